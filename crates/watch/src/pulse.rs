//! What the request path and the loops of one chain tell each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_eth::{BlockHash, ChainId};
use wellhead_upstream::{SharedUpstreamSet, Slot, Stamp, StampCell, UpstreamSet};

use crate::headers::ToldHeaders;
use crate::peers::{BEAT, ChainDemand, ChainPeers, ChainWord};
use crate::relay::Relays;
use crate::seats::FeedSeats;

/// A chain counts as in use for this long after the last call.
pub(crate) const BUSY_FOR: Duration = Duration::from_secs(30);
/// Safe and final blocks are followed closely for this long after the last question for one.
const TAGS_FOR: Duration = Duration::from_secs(30);
/// And what is final is followed at all for this long.
const FINALITY_FOR: Duration = Duration::from_secs(600);
/// For this long after the last call that could be sent by block hash, wellhead tests which
/// upstreams honour hashes.
const BLOCK_HASHES_FOR: Duration = Duration::from_secs(600);
/// A need is noted at most once in this time: requests on all cores would otherwise write to one cache line.
const NOTED_FOR: Duration = Duration::from_millis(249);

/// The shared signs of life of one chain.
#[derive(Debug)]
pub struct Pulse {
    epoch: Instant,
    chain_id: OnceLock<ChainId>,
    /// Something subscribes to the chain now.
    is_subscribed: AtomicBool,
    demand: DemandTimes,
    /// Which upstreams may have a feed open.
    pub(crate) seats: FeedSeats,
    pub(crate) relays: Arc<Relays>,
    headers: ToldHeaders,
    woken: Notify,
    verified: Notify,
    head: Notify,
    wants_origin: AtomicBool,
    /// Those that answer for the block that a hash names, or not at all.
    honouring: SharedUpstreamSet,
    /// By slot, the hash of the first block after the genesis.
    origins: Mutex<BTreeMap<u8, BlockHash>>,
    /// The other replicas, where there may be some.
    peers: OnceLock<Arc<ChainPeers>>,
}

/// When clients last needed each thing of the chain; see [`ChainDemand`].
#[derive(Debug, Default)]
struct DemandTimes {
    called: NeedTimes,
    subscribed: NeedTimes,
    tags: NeedTimes,
    finality: NeedTimes,
    block_hashes: NeedTimes,
}

/// When clients of this replica last needed something, and when another replica last told that its clients do.
#[derive(Debug, Default)]
struct NeedTimes {
    here: StampCell,
    elsewhere: StampCell,
}

impl NeedTimes {
    fn was_within(&self, time: Duration, now: Stamp) -> bool {
        self.here.is_within(time, now) || self.elsewhere.is_within(time, now)
    }
}

impl Pulse {
    /// A chain without any calls yet. `chain_id` is the setting, if given; otherwise the first
    /// upstream to answer decides.
    pub fn new(chain_id: Option<ChainId>, now: Instant) -> Self {
        Self {
            epoch: now,
            chain_id: chain_id.map_or_else(OnceLock::new, OnceLock::from),
            is_subscribed: AtomicBool::new(false),
            demand: DemandTimes::default(),
            seats: FeedSeats::default(),
            relays: Arc::default(),
            headers: ToldHeaders::default(),
            woken: Notify::new(),
            verified: Notify::new(),
            head: Notify::new(),
            wants_origin: AtomicBool::new(false),
            honouring: SharedUpstreamSet::default(),
            origins: Mutex::default(),
            peers: OnceLock::new(),
        }
    }

    /// The chain's id, once given or found out.
    pub fn chain_id(&self) -> Option<ChainId> {
        self.chain_id.get().copied()
    }

    /// Settles the chain's id if it is open, and returns the one that holds.
    pub fn agree_chain_id(&self, reported: ChainId) -> ChainId {
        *self.chain_id.get_or_init(|| reported)
    }

    fn stamp(&self, now: Instant) -> Stamp {
        Stamp::at(now.saturating_duration_since(self.epoch))
    }

    /// Keeps what an upstream told of a block (raw JSON), while something subscribes. To be called before
    /// the block is observed, which may make it the agreed one.
    pub(crate) fn note_header(&self, hash: Option<BlockHash>, told: &Bytes) {
        if let Some(hash) = hash.filter(|_| self.is_subscribed.load(Ordering::Relaxed)) {
            self.headers.note(hash, told);
        }
    }

    /// What upstreams told of a block lately, unproven: headers and blocks as raw JSON.
    pub fn told_headers(&self, hash: &BlockHash) -> Vec<Bytes> {
        self.headers.of(hash)
    }

    /// The subscriptions that upstreams are kept asked for.
    pub fn relays(&self) -> &Arc<Relays> {
        &self.relays
    }

    /// Notes that a client asked; wakes the loops when the chain was idle.
    pub fn note_call(&self, now: Instant) {
        self.note(&self.demand.called, Self::is_busy, now);
    }

    /// Notes a need; wakes the loops when nothing followed the chain for it.
    fn note(&self, need: &NeedTimes, is_followed: fn(&Self, Instant) -> bool, now: Instant) {
        let stamp = self.stamp(now);
        if need.here.is_within(NOTED_FOR, stamp) {
            return;
        }
        let was_followed = is_followed(self, now);
        need.here.set(stamp);
        if !was_followed {
            self.woken.notify_waiters();
            self.tell_demand(now);
        }
    }

    /// Notes whether something subscribes to the chain; wakes the loops when the chain was idle.
    pub fn note_subscribed(&self, is_subscribed: bool, now: Instant) {
        let was_busy = self.is_busy(now);
        if self.is_subscribed.swap(is_subscribed, Ordering::Relaxed) && !is_subscribed {
            self.demand.subscribed.here.set(self.stamp(now));
        }
        if is_subscribed && !was_busy {
            self.woken.notify_waiters();
            self.tell_demand(now);
        }
    }

    /// Whether clients asked lately, or something subscribes or did lately.
    pub fn is_busy(&self, now: Instant) -> bool {
        self.wants_heads(now) || self.demand.subscribed.was_within(BUSY_FOR, self.stamp(now))
    }

    /// Whether clients of this replica asked lately, or subscribe.
    pub(crate) fn is_busy_here(&self, now: Instant) -> bool {
        self.is_subscribed.load(Ordering::Relaxed)
            || self.demand.called.here.is_within(BUSY_FOR, self.stamp(now))
    }

    /// Whether clients asked lately, or something subscribes: a feed lingers from the end of this.
    pub(crate) fn wants_heads(&self, now: Instant) -> bool {
        self.is_subscribed.load(Ordering::Relaxed)
            || self.is_called(now)
            || self.demand.subscribed.elsewhere.is_within(BEAT * 3, self.stamp(now))
    }

    /// Whether clients asked lately.
    pub(crate) fn is_called(&self, now: Instant) -> bool {
        self.demand.called.was_within(BUSY_FOR, self.stamp(now))
    }

    /// From now on other replicas follow this chain, too. To be called before a loop begins; the first call holds.
    pub fn join(&self, peers: ChainPeers) {
        let _first_holds = self.peers.set(Arc::new(peers));
    }

    /// The other replicas, where there may be some.
    pub fn peers(&self) -> Option<&Arc<ChainPeers>> {
        self.peers.get()
    }

    /// Tells the other replicas what clients of this one need of the chain, if anything: to be called each
    /// [`BEAT`].
    pub fn tell_demand(&self, now: Instant) {
        let (Some(peers), stamp) = (self.peers(), self.stamp(now)) else { return };
        let demand = ChainDemand {
            called: self.demand.called.here.is_within(BEAT, stamp),
            subscribed: self.is_subscribed.load(Ordering::Relaxed),
            tags: self.demand.tags.here.is_within(BEAT, stamp),
            finality: self.demand.finality.here.is_within(BEAT, stamp),
            block_hashes: self.demand.block_hashes.here.is_within(BEAT, stamp),
        };
        if demand != ChainDemand::default() {
            peers.tell(ChainWord::Demand(demand));
        }
    }

    /// Takes in what clients of another replica need; wakes the loops when the chain was idle.
    pub fn hear_demand(&self, demand: ChainDemand, now: Instant) {
        let was_followed = self.is_busy(now) && (self.follows_tags(now) || !demand.tags);
        for (is_needed, need) in [
            (demand.called, &self.demand.called),
            (demand.subscribed, &self.demand.subscribed),
            (demand.tags, &self.demand.tags),
            (demand.finality, &self.demand.finality),
            (demand.block_hashes, &self.demand.block_hashes),
        ] {
            if is_needed {
                need.elsewhere.set(self.stamp(now));
            }
        }
        if !was_followed && self.is_busy(now) {
            self.woken.notify_waiters();
        }
    }

    /// Resolves when a client asks after a quiet time, also when it asked between
    /// this call and the first poll: made before looking, nothing is missed.
    pub fn woken(&self) -> impl Future<Output = ()> + '_ {
        self.woken.notified()
    }

    /// Notes that a client asks for a safe or final block; wakes the loops when none did
    /// lately, as what is known may be old.
    pub fn note_tag(&self, now: Instant) {
        self.want_finality(now);
        self.note(&self.demand.tags, Self::follows_tags, now);
    }

    /// Whether a client asked for a safe or final block lately (`TAGS_FOR`).
    pub(crate) fn follows_tags(&self, now: Instant) -> bool {
        self.demand.tags.was_within(TAGS_FOR, self.stamp(now))
    }

    /// Records that the final block is needed: upstreams are polled for it only then.
    pub fn want_finality(&self, now: Instant) {
        self.note(&self.demand.finality, |_, _| true, now);
    }

    /// Whether it was needed recently.
    pub fn wants_finality(&self, now: Instant) -> bool {
        self.demand.finality.was_within(FINALITY_FOR, self.stamp(now))
    }

    /// Notes that a call could be asked by the hash of its block: only then is it found out which
    /// upstreams honour one.
    pub fn want_block_hashes(&self, now: Instant) {
        self.note(&self.demand.block_hashes, |_, _| true, now);
    }

    /// Whether there was such a call lately.
    pub(crate) fn wants_block_hashes(&self, now: Instant) -> bool {
        self.demand.block_hashes.was_within(BLOCK_HASHES_FOR, self.stamp(now))
    }

    /// Notes whether an upstream honours the hash of a block; true when that is news.
    pub fn tell_honours_hashes(&self, slot: Slot, honours: bool) -> bool {
        self.honouring.set(slot, honours)
    }

    /// The upstreams that were found to honour the hash of a block.
    pub fn honouring_hashes(&self) -> UpstreamSet {
        self.honouring.load()
    }

    /// From now on upstreams are asked for their origin, once the final block is needed.
    pub fn want_origin(&self) {
        self.wants_origin.store(true, Ordering::Relaxed);
    }

    /// Whether this one is to be asked.
    pub(crate) fn lacks_origin(&self, slot: Slot) -> bool {
        self.wants_origin.load(Ordering::Relaxed) && !self.origins.lock().contains_key(&slot.0)
    }

    /// Notes the origin of an upstream: the hash of its block 1, or of its genesis where it does
    /// not keep that any more.
    pub fn tell_origin(&self, slot: Slot, origin: BlockHash) {
        self.origins.lock().insert(slot.0, origin);
    }

    /// An upstream that was away may be on a chain that was started anew.
    pub(crate) fn forget_origin(&self, slot: Slot) {
        self.origins.lock().remove(&slot.0);
    }

    /// Forgets what is known of the upstream in `slot`, which is gone. Its loop has ended.
    pub fn vacate(&self, slot: Slot) {
        self.honouring.set(slot, false);
        self.forget_origin(slot);
        self.end_feed(slot);
    }

    /// Gives back what a loop that was ended held of feeds. One that begins anew asks for its own.
    pub fn end_feed(&self, slot: Slot) {
        self.seats.bid(slot, None);
        self.relays.vacate(slot);
    }

    /// The chain itself may have been.
    pub fn forget_origins(&self) {
        self.origins.lock().clear();
    }

    /// What distinguishes this chain from one that was restarted from a new genesis under its id.
    /// `None` while no upstream has reported it, and while two differ.
    pub fn origin(&self) -> Option<BlockHash> {
        let origins = self.origins.lock();
        let mut told = origins.values();
        let first = told.next()?;
        told.all(|other| other == first).then_some(*first)
    }

    /// Tells the loops that an upstream showed a block that the others did not.
    pub(crate) fn tell_head(&self) {
        self.head.notify_waiters();
    }

    /// Resolves when an upstream shows a new block after this call, polled or not: made
    /// before looking, nothing is missed.
    pub fn head(&self) -> impl Future<Output = ()> + '_ {
        self.head.notified()
    }

    /// Tells waiting requests that an upstream was verified.
    pub fn tell_verified(&self) {
        self.verified.notify_waiters();
    }

    /// Resolves when an upstream is verified after this call, polled or not: made
    /// before looking, nothing is missed.
    pub fn verified(&self) -> impl Future<Output = ()> + '_ {
        self.verified.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn news_between_the_call_and_the_wait_are_not_missed() {
        let now = tokio::time::Instant::now().into_std();
        let pulse = Pulse::new(None, now);
        let (woken, verified) = (pulse.woken(), pulse.verified());
        pulse.note_call(now);
        pulse.tell_verified();
        let both = async { tokio::join!(woken, verified) };
        assert!(tokio::time::timeout(Duration::from_secs(1), both).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_chain_is_busy_for_half_a_minute_after_a_call() {
        let start = tokio::time::Instant::now().into_std();
        let at = |seconds| start + Duration::from_secs(seconds);
        let pulse = Pulse::new(None, start);
        assert!(!pulse.is_busy(start), "no call yet");
        pulse.note_call(at(5));
        assert!(pulse.is_busy(at(5)) && pulse.is_busy(at(35)) && !pulse.is_busy(at(36)));
        // Only a call after an idle period wakes.
        let check = async |seconds, wakes: bool| {
            let woken = pulse.woken();
            pulse.note_call(at(seconds));
            let woke = tokio::time::timeout(Duration::from_millis(1), woken).await.is_ok();
            assert_eq!(woke, wakes, "a call at {seconds} s");
        };
        check(20, false).await;
        check(49, false).await;
        check(80, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_chain_is_busy_while_something_subscribes_and_for_half_a_minute() {
        let start = tokio::time::Instant::now().into_std();
        let at = |seconds| start + Duration::from_secs(seconds);
        let pulse = Pulse::new(None, start);
        let woken = pulse.woken();
        pulse.note_subscribed(true, at(5));
        assert!(tokio::time::timeout(Duration::from_millis(1), woken).await.is_ok());
        assert!(pulse.is_busy(at(3600)) && pulse.wants_heads(at(3600)));
        pulse.note_subscribed(false, at(3600));
        pulse.note_subscribed(false, at(3610));
        assert!(pulse.is_busy(at(3630)) && !pulse.is_busy(at(3631)));
        assert!(!pulse.wants_heads(at(3600)), "from here on a feed lingers");
        assert!(!Pulse::new(None, start).is_busy(start), "nothing ever subscribed");
    }

    #[test]
    fn an_origin_is_what_all_upstreams_that_answered_say() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let pulse = Pulse::new(None, Instant::now());
        let (one, other) = (BlockHash([1; 32]), BlockHash([2; 32]));
        assert!(!pulse.lacks_origin(Slot(0)), "no loop wants it");
        pulse.want_origin();
        assert!(pulse.lacks_origin(Slot(0)));
        assert_eq!(pulse.origin(), None);
        pulse.tell_origin(Slot(0), one);
        assert_eq!((pulse.origin(), pulse.lacks_origin(Slot(0))), (Some(one), false));
        pulse.tell_origin(Slot(1), other);
        assert_eq!(pulse.origin(), None, "they are on two chains");
        pulse.forget_origin(Slot(0));
        assert_eq!((pulse.origin(), pulse.lacks_origin(Slot(0))), (Some(other), true));
        pulse.forget_origins();
        assert_eq!(pulse.origin(), None);
    }

    #[test]
    fn the_first_chain_id_holds() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let pulse = Pulse::new(None, Instant::now());
        assert_eq!(pulse.chain_id(), None);
        assert_eq!(pulse.agree_chain_id(ChainId(5)), ChainId(5));
        assert_eq!(pulse.agree_chain_id(ChainId(1)), ChainId(5));
        assert_eq!(pulse.chain_id(), Some(ChainId(5)));
    }
}
