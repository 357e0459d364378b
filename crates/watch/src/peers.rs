//! Several replicas, one prober an upstream.
//!
//! Replicas that share a store tell each other that they are there ([`ReplicaWord::Here`]). Of those that are,
//! one leads each upstream: the one with the highest hash of its name and the upstream's (rendezvous hashing,
//! Thaler and Ravishankar 1998), so that each leads about as many as the others, and one that comes or goes moves
//! no other upstream. The leader asks, and tells what it learns; the others take that as the upstream's word.
//!
//! ```text
//! leader     poll ── Head ──┐ acknowledged by the store, then observed here
//!                           ▼
//! store      wh:{cluster}:replicas
//!                           │
//! followers  Demand ────────┤ a client calls here: the leader follows more closely
//!            Heads, Pulse ◄─┘
//! ```
//!
//! *Own evidence comes first.* Breakers are each replica's own: a broken path of one replica rests no upstream
//! for the others. While the leader says that its probes fail, a replica that finds the upstream well asks
//! for itself; one that finds it failing, too, leaves the probes to the leader. While the leader finds it well, a
//! replica that does not probes its own path.
//!
//! *Alone.* A replica asks for itself while it has no connection, while it heard nothing of an upstream for
//! 6 s, and, while its clients call, when the newest block is late. So a leader that died costs
//! freshness for a block and a half at most, and a store that died costs calls and nothing else.
//!
//! *Not promised:* exactly one prober. For a moment after one joined, and while replicas cannot hear each other,
//! two or all may ask.

mod word;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_transport::feed::BoxFuture;

pub use self::word::{
    BlockWord, ChainDemand, ChainWord, HeadWord, MarksWord, ReplicaWord, SentWord, StateWord,
    UpstreamWord,
};

/// How often a replica says that it is there, and a leader how its upstreams are.
pub const BEAT: Duration = Duration::from_secs(2);
/// After such a silence a replica counts as gone, and the word on an upstream as missing.
const SILENT_AFTER: Duration = Duration::from_secs(6);
/// Words on one upstream that wait for its loop; of more the oldest are lost.
const INBOX_MAX: usize = 64;
/// Replicas that are known at most: a store that is shared by mistake must not fill the memory.
const REPLICAS_MAX: usize = 1_000;

/// What carries words to the other replicas.
pub trait PeerOutlet: Debug + Send + Sync {
    /// Whether words arrive at present.
    fn is_linked(&self) -> bool;

    /// Tells the others, if it is linked. Never waits.
    fn tell(&self, text: String);

    /// Tells the others, and resolves when the store has passed it on, or when that took too long.
    fn tell_acked(&self, text: String) -> BoxFuture<'static, ()>;
}

/// The replicas of a cluster, as one of them sees it.
#[derive(Debug)]
pub struct Replicas {
    own: u64,
    outlet: Arc<dyn PeerOutlet>,
    /// The others by name, and when each was heard last.
    others: Mutex<BTreeMap<u64, Instant>>,
}

impl Replicas {
    /// None but this one, whose name is `own`.
    pub fn new(own: u64, outlet: Arc<dyn PeerOutlet>) -> Self {
        Self { own, outlet, others: Mutex::default() }
    }

    /// Notes that a replica said something.
    pub fn note_heard(&self, from: u64, now: Instant) {
        let mut others = self.others.lock();
        if others.len() >= REPLICAS_MAX {
            others.retain(|_, heard| is_recent(*heard, now));
        }
        if others.len() < REPLICAS_MAX || others.contains_key(&from) {
            others.insert(from, now);
        }
    }

    /// Notes that a replica is about to end.
    pub fn note_leaving(&self, from: u64) {
        self.others.lock().remove(&from);
    }

    /// How many hear each other, this one included: one while no words arrive.
    pub fn count(&self, now: Instant) -> usize {
        let is_there = |heard: &&Instant| self.is_linked() && is_recent(**heard, now);
        self.others.lock().values().filter(is_there).count() + 1
    }

    /// Whether words arrive at present.
    pub fn is_linked(&self) -> bool {
        self.outlet.is_linked()
    }

    /// Tells all others.
    pub fn tell(&self, word: &ReplicaWord) {
        if self.is_linked() {
            self.outlet.tell(word.write());
        }
    }

    /// Tells all others, and resolves when the store has passed it on or could not.
    pub async fn tell_last(&self, word: &ReplicaWord) {
        if self.is_linked() {
            self.outlet.tell_acked(word.write()).await;
        }
    }

    /// Whether this one leads what `key` names, among those that are there.
    fn leads(&self, key: u64, now: Instant) -> bool {
        let own = rank(key, self.own);
        let others = self.others.lock();
        let mut there = others.iter().filter(|(_, heard)| is_recent(**heard, now));
        !there.any(|(other, _)| (rank(key, *other), *other) > (own, self.own))
    }

    fn is_there(&self, other: u64, now: Instant) -> bool {
        self.others.lock().get(&other).is_some_and(|heard| is_recent(*heard, now))
    }
}

fn is_recent(heard: Instant, now: Instant) -> bool {
    now.saturating_duration_since(heard) < SILENT_AFTER
}

/// A hash of two numbers, one in all builds: the finaliser of `SplitMix64` (Steele, Lea and Flood 2014).
fn rank(key: u64, replica: u64) -> u64 {
    let mut bits = key ^ replica.rotate_left(32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// FNV-1a of 64 bits.
fn key_of(chain: &str, upstream: &str) -> u64 {
    let bytes = chain.bytes().chain([b':']).chain(upstream.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What the replicas say of one chain.
#[derive(Debug)]
pub struct ChainPeers {
    chain: Arc<str>,
    replicas: Arc<Replicas>,
    /// By id; those that a loop follows here.
    upstreams: Mutex<BTreeMap<String, Weak<UpstreamPeers>>>,
}

impl ChainPeers {
    /// Of the chain with this name, which it has in all replicas.
    pub fn new(chain: Arc<str>, replicas: Arc<Replicas>) -> Self {
        Self { chain, replicas, upstreams: Mutex::default() }
    }

    /// Tells the others.
    pub fn tell(&self, says: ChainWord) {
        if self.replicas.is_linked() {
            self.replicas.outlet.tell(self.write(says));
        }
    }

    /// Whether this replica leads an upstream: of those that hear each other one does. None does while it hears
    /// no other because its store is away.
    pub fn leads(&self, upstream: &str, now: Instant) -> bool {
        self.replicas.is_linked() && self.replicas.leads(key_of(&self.chain, upstream), now)
    }

    pub(crate) fn tell_acked(&self, says: ChainWord) -> BoxFuture<'static, ()> {
        match self.replicas.is_linked() {
            true => self.replicas.outlet.tell_acked(self.write(says)),
            false => Box::pin(std::future::ready(())),
        }
    }

    fn write(&self, says: ChainWord) -> String {
        ReplicaWord::Chain { chain: self.chain.to_string(), says }.write()
    }

    /// Hands on what a replica says of an upstream, to the loop that follows it here, if one does.
    pub fn hear(&self, from: u64, upstream: &str, word: UpstreamWord, now: Instant) {
        if let Some(peers) = self.known(upstream) {
            peers.hear(from, word, now);
        }
    }

    fn known(&self, upstream: &str) -> Option<Arc<UpstreamPeers>> {
        self.upstreams.lock().get(upstream)?.upgrade()
    }

    fn of_upstream(&self, upstream: &str) -> Arc<UpstreamPeers> {
        let mut upstreams = self.upstreams.lock();
        if let Some(known) = upstreams.get(upstream).and_then(Weak::upgrade) {
            return known;
        }
        upstreams.retain(|_, peers| peers.strong_count() > 0);
        let peers = Arc::new(UpstreamPeers {
            key: key_of(&self.chain, upstream),
            ..UpstreamPeers::default()
        });
        upstreams.insert(upstream.to_owned(), Arc::downgrade(&peers));
        peers
    }

    fn is_prober(&self, peers: &UpstreamPeers, now: Instant) -> bool {
        if !self.replicas.is_linked() {
            return true;
        }
        let Some(prober) = *peers.prober.lock() else { return true };
        !is_recent(prober.heard, now)
            || !self.replicas.is_there(prober.replica, now)
            || self.replicas.leads(peers.key, now)
    }
}

/// What the other replicas say of one upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamPeers {
    key: u64,
    /// The replica that said last how the upstream is.
    prober: Mutex<Option<Prober>>,
    /// When another replica said that clients' calls come to it there.
    pub(crate) called: Mutex<Option<Instant>>,
    pub(crate) inbox: Mutex<VecDeque<UpstreamWord>>,
    pub(crate) heard: Notify,
    /// By the prober's word its breaker is open.
    pub(crate) is_resting: AtomicBool,
    /// It was resting by that word, and no longer is: worth a probe of one's own.
    pub(crate) has_recovered: AtomicBool,
}

/// How a loop speaks with the loops that follow its upstream in other replicas.
#[derive(Debug)]
pub(crate) struct LoopPeers {
    pub(crate) chain: Arc<ChainPeers>,
    pub(crate) upstream: Arc<UpstreamPeers>,
    /// What it said last of itself.
    pub(crate) told: Mutex<Option<StateWord>>,
    /// Since when clients of this replica need it.
    pub(crate) needed_since: Mutex<Option<Instant>>,
}

impl LoopPeers {
    pub(crate) fn new(chain: &Arc<ChainPeers>, upstream: &str) -> Self {
        let upstream = chain.of_upstream(upstream);
        let chain = Arc::clone(chain);
        Self { chain, upstream, told: Mutex::default(), needed_since: Mutex::default() }
    }

    pub(crate) fn is_prober(&self, now: Instant) -> bool {
        self.chain.is_prober(&self.upstream, now)
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.upstream.is_resting.load(Relaxed)
    }
}

#[derive(Debug, Clone, Copy)]
struct Prober {
    replica: u64,
    heard: Instant,
}

impl UpstreamPeers {
    fn hear(&self, from: u64, word: UpstreamWord, now: Instant) {
        match &word {
            UpstreamWord::State(state) => {
                *self.prober.lock() = Some(Prober { replica: from, heard: now });
                if self.is_resting.swap(state.is_resting, Relaxed) && !state.is_resting {
                    self.has_recovered.store(true, Relaxed);
                }
            }
            UpstreamWord::Called => *self.called.lock() = Some(now),
            UpstreamWord::Head(_) | UpstreamWord::Marks(_) => {}
        }
        let mut inbox = self.inbox.lock();
        if inbox.len() >= INBOX_MAX {
            inbox.pop_front();
        }
        inbox.push_back(word);
        self.heard.notify_one();
    }

    /// Whether another replica said within this time that clients' calls come to it there.
    pub(crate) fn is_called_within(&self, within: Duration, now: Instant) -> bool {
        self.called.lock().is_some_and(|called| now.saturating_duration_since(called) <= within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere {
        is_linked: AtomicBool,
    }

    impl PeerOutlet for Nowhere {
        fn is_linked(&self) -> bool {
            self.is_linked.load(Relaxed)
        }

        fn tell(&self, _: String) {}

        fn tell_acked(&self, _: String) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    fn replicas(own: u64) -> Replicas {
        Replicas::new(own, Arc::new(Nowhere { is_linked: AtomicBool::new(true) }))
    }

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Of replicas that hear each other, one leads each upstream, and each leads its part.
    #[test]
    fn each_upstream_has_one_leader() {
        let now = now();
        let names: [u64; 5] = [3, 0xfeed_5eed, 1 << 63, 77, u64::MAX];
        let fleet = names.map(|own| {
            let replicas = replicas(own);
            names.iter().filter(|name| **name != own).for_each(|it| replicas.note_heard(*it, now));
            replicas
        });
        let mut led = [0_u32; 5];
        for upstream in 0..1_000 {
            let key = key_of("ethereum", &format!("upstream-{upstream}"));
            let leaders: Vec<usize> = (0..5).filter(|it| fleet[*it].leads(key, now)).collect();
            assert_eq!(leaders.len(), 1, "{upstream}");
            led[leaders[0]] += 1;
        }
        assert!(led.iter().all(|led| (150..=250).contains(led)), "{led:?}");
    }

    #[test]
    fn a_replica_without_its_store_leads_nothing() {
        let of = |is_linked| {
            let outlet = Arc::new(Nowhere { is_linked: AtomicBool::new(is_linked) });
            ChainPeers::new("ethereum".into(), Arc::new(Replicas::new(1, outlet)))
        };
        assert_eq!([true, false].map(|it| of(it).leads("a", now())), [true, false]);
    }

    #[test]
    fn one_that_goes_moves_only_what_it_led() {
        let (at, names) = (now(), [1_u64, 2, 3]);
        let leader = |there: &[u64], key| {
            let leads = |own: &&u64| {
                let replicas = replicas(**own);
                there.iter().filter(|it| it != own).for_each(|it| replicas.note_heard(*it, at));
                replicas.leads(key, at)
            };
            *there.iter().find(leads).expect("one leads")
        };
        for upstream in 0..200 {
            let key = key_of("ethereum", &upstream.to_string());
            let before = leader(&names, key);
            let after = leader(&names[..2], key);
            assert!(before == after || before == 3, "{upstream}");
        }
    }

    #[test]
    fn a_silent_replica_is_gone() {
        let (begun, replicas) = (now(), replicas(1));
        replicas.note_heard(2, begun);
        replicas.note_heard(3, begun + BEAT);
        assert_eq!(replicas.count(begun + BEAT), 3);
        assert_eq!(replicas.count(begun + SILENT_AFTER), 2);
        replicas.note_leaving(3);
        assert_eq!(replicas.count(begun + SILENT_AFTER), 1);
    }

    #[test]
    fn a_replica_that_hears_nothing_counts_itself() {
        let (now, outlet) = (now(), Arc::new(Nowhere { is_linked: AtomicBool::new(true) }));
        let replicas = Replicas::new(1, Arc::clone(&outlet) as Arc<dyn PeerOutlet>);
        replicas.note_heard(2, now);
        assert_eq!(replicas.count(now), 2);
        outlet.is_linked.store(false, Relaxed);
        assert_eq!(replicas.count(now), 1);
    }

    #[test]
    fn replicas_and_words_are_bounded() {
        let (now, replicas) = (now(), Arc::new(replicas(1)));
        (2..3_000).for_each(|name| replicas.note_heard(name, now));
        assert_eq!(replicas.count(now), REPLICAS_MAX + 1);
        let later = now + SILENT_AFTER;
        replicas.note_heard(5_000, later);
        assert_eq!(replicas.count(later), 2, "those that are gone make room");
        let peers = ChainPeers::new("ethereum".into(), replicas);
        peers.hear(2, "nobody-follows-it", UpstreamWord::Called, now);
        assert!(peers.upstreams.lock().is_empty());
        let upstream = peers.of_upstream("a");
        (0..1_000).for_each(|_| peers.hear(2, "a", UpstreamWord::Called, now));
        assert_eq!(upstream.inbox.lock().len(), INBOX_MAX);
    }
}
