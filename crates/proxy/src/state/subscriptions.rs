//! What the subscribers of one chain share: the journal that they read, how many there are, and
//! how they are woken.
//!
//! The announcer ([`crate::announcer`]) writes the journal while there is a subscriber, and for a
//! while after the last one. A connection is a cursor into it ([`crate::state::subscriber`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wellhead_eth::{BlockNumber, Bloom};
use wellhead_prefetch::FetchAddress;
use wellhead_subscribe::{
    AddedBlock, BlockLogs, BlockMatches, ChainEvent, ChainJournal, FilterGroups, GroupId,
    LogCriteria, Notification, RingReader,
};

/// Subscribers that are woken before the other tasks of their worker have their turn: each
/// writes to its socket, which takes some microseconds.
const WOKEN_AT_ONCE: usize = 32;

/// Different filters of one chain: each log is compared with some of them.
const GROUPS_MAX: usize = 4096;
/// A filter is held as it was read, as blooms see it, and in the index.
const CRITERIA_COPIES: usize = 3;
/// Bytes of all filters of one chain.
const CRITERIA_BYTES_MAX: usize = 64 << 20;
/// Logs of the blocks that are kept, counted for each filter that they match: 32 MiB.
const MATCHES_MAX: usize = 4 << 20;

/// A part of blocks that is fetched while a subscription wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockPart {
    /// The receipts.
    Receipts,
    /// The whole transactions.
    Transactions,
}

impl BlockPart {
    const COUNT: usize = 2;
}

/// One subscription's filter, whose bytes are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldCriteria {
    subscriptions: Arc<ChainSubscriptions>,
    bytes: usize,
    of: CriteriaUse,
}

/// What else ends with a filter.
#[derive(Debug)]
enum CriteriaUse {
    /// Nothing.
    Alone,
    /// A place among the subscriptions with equal criteria.
    Group(GroupId),
    /// A demand for a part of each block.
    Part(BlockPart),
}

impl Drop for HeldCriteria {
    fn drop(&mut self) {
        match self.of {
            CriteriaUse::Alone => {}
            CriteriaUse::Group(group) => self.subscriptions.groups.lock().leave(group),
            CriteriaUse::Part(part) => {
                self.subscriptions.parts[part as usize].fetch_sub(1, Relaxed);
            }
        }
        self.subscriptions.criteria_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// The subscriptions to one chain, over all workers.
#[derive(Debug)]
pub(crate) struct ChainSubscriptions {
    pub(crate) reader: RingReader<ChainEvent>,
    /// Until the announcer takes it.
    journal: Mutex<Option<ChainJournal>>,
    demand: Mutex<JournalDemand>,
    /// The criteria of all subscriptions to logs.
    groups: Mutex<FilterGroups>,
    /// About how many bytes all filters hold, each subscription's counted.
    criteria_bytes: AtomicUsize,
    /// How many subscriptions want each part of blocks.
    parts: [AtomicUsize; BlockPart::COUNT],
    /// By the sequence number of the event that added a block: which of its logs are whose. A block that
    /// the journal dropped has no entry.
    matches: Mutex<BTreeMap<u64, Arc<BlockMatches>>>,
    /// The demand began or ended, or the agreed head changed.
    news: Notify,
    /// Grows with each publication.
    pub(crate) published: Arc<Publications>,
    pub(crate) counts: SubscriptionCounters,
    is_closed: AtomicBool,
    positions: ReaderPositions,
}

/// What a connection is told next.
#[derive(Debug)]
pub enum SubscriberEvent {
    /// A notification, in pieces that follow each other.
    Notification([Bytes; 3]),
    /// The client reads so slowly that what it would be told next has been dropped.
    TooSlow,
    /// The journal began anew, or the upstream of a stream ended: what was between is not known.
    Resync,
}

impl SubscriberEvent {
    /// A notification for the subscription with this id.
    pub(crate) fn of(id: &Bytes, notification: &Notification) -> Self {
        let prefix = Bytes::from_static(Notification::prefix());
        Self::Notification([prefix, id.clone(), notification.suffix().clone()])
    }
}

/// Where the connections read in the journal, for the metrics.
#[derive(Debug, Default)]
struct ReaderPositions(Mutex<Vec<Weak<AtomicU64>>>);

/// Positions of connections that have left are kept until there are this many in all, and as many
/// as those that are left.
const POSITIONS_MIN: usize = 64;

impl ReaderPositions {
    fn enter(&self, at: u64) -> Arc<AtomicU64> {
        let position = Arc::new(AtomicU64::new(at));
        let mut all = self.0.lock();
        if all.len() >= POSITIONS_MIN && all.len() == all.capacity() {
            all.retain(|position| position.strong_count() > 0);
            let free = all.len().max(POSITIONS_MIN);
            all.reserve_exact(free);
        }
        all.push(Arc::downgrade(&position));
        position
    }

    /// How many there are, and how far the last one is behind.
    fn lag(&self, tip: u64) -> ReaderLag {
        let mut lag = ReaderLag::default();
        for position in self.0.lock().iter().filter_map(Weak::upgrade) {
            let behind = tip.saturating_sub(position.load(Relaxed));
            lag.connections += 1;
            lag.events_max = lag.events_max.max(behind);
        }
        lag
    }
}

/// How far the connections are behind the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReaderLag {
    /// Connections that read it.
    pub(crate) connections: u64,
    /// Events of the journal that the slowest has yet to be told.
    pub(crate) events_max: u64,
}

/// What can be subscribed to. Its words are as clients write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "camelCase")]
pub(crate) enum KindName {
    /// Each block of the agreed chain.
    NewHeads,
    /// The logs of these that match a filter.
    Logs,
    /// The receipts of each block.
    TransactionReceipts,
    /// Whether the chain is followed.
    Syncing,
    /// Transactions that enter pools.
    NewPendingTransactions,
    /// Those of them that match a filter, in the form of Alchemy.
    #[strum(serialize = "alchemy_pendingTransactions")]
    AlchemyPendingTransactions,
    /// The transactions of each block that match a filter, in the form of Alchemy.
    #[strum(serialize = "alchemy_minedTransactions")]
    AlchemyMinedTransactions,
    /// The kinds that only upstreams know, all together.
    Relayed,
}

wellhead_word::words!(KindName);

/// What subscribers had and cost, of one chain.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionCounters {
    /// Subscriptions so far.
    pub(crate) begun: AtomicU64,
    /// Of each kind, now.
    open: [AtomicUsize; KindName::ALL.len()],
    /// Blocks announced.
    pub(crate) added: AtomicU64,
    /// Blocks taken back.
    pub(crate) removed: AtomicU64,
    /// Headers fetched.
    pub(crate) headers: AtomicU64,
    /// Blocks whose logs were fetched.
    pub(crate) log_blocks: AtomicU64,
    /// Blocks whose bloom excludes the logs of all filters.
    pub(crate) logs_avoided: AtomicU64,
    /// Blocks whose receipts were fetched.
    pub(crate) receipt_blocks: AtomicU64,
    /// Blocks whose transactions were fetched.
    pub(crate) transaction_blocks: AtomicU64,
    /// Fetches that brought nothing.
    pub(crate) failed: AtomicU64,
    /// Journals that began anew while they were read.
    pub(crate) resyncs: AtomicU64,
}

impl SubscriptionCounters {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Relaxed);
    }

    /// Counts a subscription that began.
    pub(crate) fn open(&self, kind: KindName) {
        self.begun.fetch_add(1, Relaxed);
        self.open[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts a subscription that ended.
    pub(crate) fn close(&self, kind: KindName) {
        self.open[kind as usize].fetch_sub(1, Relaxed);
    }

    /// Subscriptions now, by kind.
    pub(crate) fn open_now(&self) -> impl Iterator<Item = (KindName, usize)> {
        KindName::ALL.into_iter().zip(&self.open).map(|(kind, open)| (kind, open.load(Relaxed)))
    }
}

/// How many subscriptions read the journal, and whether it is written.
#[derive(Debug, Default)]
struct JournalDemand {
    subscriptions: usize,
    is_written: bool,
}

impl Default for ChainSubscriptions {
    fn default() -> Self {
        let journal = ChainJournal::default();
        Self {
            reader: journal.reader(),
            journal: Mutex::new(Some(journal)),
            demand: Mutex::default(),
            groups: Mutex::default(),
            criteria_bytes: AtomicUsize::new(0),
            parts: Default::default(),
            matches: Mutex::default(),
            news: Notify::new(),
            published: Arc::default(),
            counts: SubscriptionCounters::default(),
            is_closed: AtomicBool::new(false),
            positions: ReaderPositions::default(),
        }
    }
}

impl ChainSubscriptions {
    /// The journal, for the one that writes it; `None` the second time.
    pub(crate) fn take_journal(&self) -> Option<ChainJournal> {
        self.journal.lock().take()
    }

    /// A connection that reads the journal from now on, until this is dropped.
    pub(crate) fn enter(&self) -> Arc<AtomicU64> {
        self.positions.enter(self.reader.tip().sequence())
    }

    /// How far connections are behind.
    pub(crate) fn lag(&self) -> ReaderLag {
        self.positions.lag(self.reader.tip().sequence())
    }

    /// One more subscription, which needs the journal from now on until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Demanded {
        let mut demand = self.demand.lock();
        demand.subscriptions += 1;
        if demand.subscriptions == 1 {
            self.news.notify_one();
        }
        Demanded(Arc::clone(self))
    }

    /// Subscriptions now.
    pub(crate) fn count(&self) -> usize {
        self.demand.lock().subscriptions
    }

    /// One more subscription to the logs that these criteria match, and its place among those with
    /// equal criteria. To be called before the place from which it reads is taken: what is added behind
    /// that place is matched for it. `None` where the bounds on filters are reached.
    pub(crate) fn join(self: &Arc<Self>, criteria: LogCriteria) -> Option<(GroupId, HeldCriteria)> {
        let mut held = self.hold(CRITERIA_COPIES * criteria.bytes_held())?;
        let mut groups = self.groups.lock();
        if groups.len() >= GROUPS_MAX {
            return None;
        }
        let group = groups.join(criteria);
        held.of = CriteriaUse::Group(group);
        Some((group, held))
    }

    /// Different filters of subscriptions to logs.
    pub(crate) fn filters(&self) -> usize {
        self.groups.lock().len()
    }

    /// One more subscription for which this part of each block is fetched, with a filter of this
    /// many bytes. To be called before the place from which it reads is taken, as
    /// [`ChainSubscriptions::join`].
    /// `None` where the bound on filters is reached.
    pub(crate) fn want(self: &Arc<Self>, part: BlockPart, bytes: usize) -> Option<HeldCriteria> {
        let mut held = self.hold(bytes)?;
        self.parts[part as usize].fetch_add(1, Relaxed);
        held.of = CriteriaUse::Part(part);
        Some(held)
    }

    /// Counts a filter of this many bytes until the result is dropped. `None` where the bound on
    /// filters is reached.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Option<HeldCriteria> {
        let before = self.criteria_bytes.fetch_add(bytes, Relaxed);
        let of = CriteriaUse::Alone;
        let held = HeldCriteria { subscriptions: Arc::clone(self), bytes, of };
        (before + bytes <= CRITERIA_BYTES_MAX).then_some(held)
    }

    /// Whether a subscription wants this part of blocks.
    pub(crate) fn wants(&self, part: BlockPart) -> bool {
        self.parts[part as usize].load(Relaxed) > 0
    }

    /// Whether there is a subscription to logs.
    pub(crate) fn has_filters(&self) -> bool {
        !self.groups.lock().is_empty()
    }

    /// Whether a subscription may match a log of this block, whose bloom is `None` where it says
    /// nothing.
    pub(crate) fn may_match(&self, number: BlockNumber, bloom: Option<&Bloom>) -> bool {
        self.groups.lock().may_match(number, bloom)
    }

    /// Finds once whose the logs of a block are, before any subscription is told of them.
    pub(crate) fn note_logs(&self, block: &AddedBlock, logs: &BlockLogs) {
        let found = self.groups.lock().matches(logs);
        let oldest = self.reader.load().oldest().sequence();
        let mut matches = self.matches.lock();
        *matches = matches.split_off(&oldest);
        matches.insert(block.sequence(), Arc::new(found));
        let mut pairs: usize = matches.values().map(|found| found.len()).sum();
        while pairs > MATCHES_MAX
            && matches.len() > 1
            && let Some((_, dropped)) = matches.pop_first()
        {
            pairs -= dropped.len();
        }
    }

    /// Whose the logs of a block are; `None` where that is no longer known.
    pub(crate) fn matches_of(&self, block: &AddedBlock) -> Option<Arc<BlockMatches>> {
        self.matches.lock().get(&block.sequence()).cloned()
    }

    /// Hears of each publication from now on.
    pub(crate) fn publications(&self) -> PublicationReader {
        self.published.reader()
    }

    /// Waits until the journal is written: a subscription begins behind what is there then.
    pub(crate) async fn written(&self) {
        let mut published = self.publications();
        loop {
            published.mark_seen();
            {
                let demand = self.demand.lock();
                if demand.is_written {
                    return;
                }
            }
            published.changed().await;
        }
    }

    /// The journal is written from now on.
    pub(crate) fn note_written(&self) {
        self.demand.lock().is_written = true;
        self.tell();
    }

    /// Ends the writing of the journal unless something reads it; true when it ended.
    pub(crate) fn rest_if_unread(&self) -> bool {
        let mut demand = self.demand.lock();
        if demand.subscriptions == 0 {
            demand.is_written = false;
        }
        !demand.is_written
    }

    /// Tells all workers that the journal grew.
    pub(crate) fn tell(&self) {
        self.published.tell();
    }

    /// Ends all subscriptions, as the chain is no longer served.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Release);
        self.tell();
    }

    /// Whether the chain is no longer served.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// Tells the announcer that the agreed head changed.
    pub(crate) fn note_head(&self) {
        self.news.notify_one();
    }

    /// Resolves when there may be something to announce.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }
}

/// Counts publications. Those that wait are woken in the order in which they began to wait: a channel of
/// tokio's wakes them in an order of its own, and a simulated world would have another chance than its
/// seed's.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    count: AtomicU64,
    grown: Notify,
}

impl Publications {
    /// One more.
    pub(crate) fn tell(&self) {
        self.count.fetch_add(1, Release);
        self.grown.notify_waiters();
    }

    /// Hears of each from now on.
    pub(crate) fn reader(self: &Arc<Self>) -> PublicationReader {
        PublicationReader { published: Arc::clone(self), seen: self.count.load(Acquire) }
    }
}

/// Hears of publications.
#[derive(Debug)]
pub(crate) struct PublicationReader {
    published: Arc<Publications>,
    seen: u64,
}

impl PublicationReader {
    /// Takes all publications so far as heard of.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.published.count.load(Acquire);
    }

    /// Resolves when there is a publication that was not heard of, and takes it as heard of.
    pub(crate) async fn changed(&mut self) {
        loop {
            // Created before the count is looked at, so that nothing is missed.
            let grown = self.published.grown.notified();
            let count = self.published.count.load(Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            grown.await;
        }
    }
}

/// A subscription that needs the journal until this is dropped.
#[derive(Debug)]
pub(crate) struct Demanded(Arc<ChainSubscriptions>);

impl Drop for Demanded {
    fn drop(&mut self) {
        let mut demand = self.0.demand.lock();
        demand.subscriptions -= 1;
        if demand.subscriptions == 0 {
            self.0.news.notify_one();
        }
    }
}

/// The subscribers of one worker to one chain, which are woken when what they read grew: the journal of
/// blocks, or a stream beside it.
///
/// A task of the worker wakes them in slices: ten thousand tasks that become ready at once would
/// delay every call of that worker until the last of them has run.
#[derive(Debug, Default)]
pub(crate) struct SubscriberHub {
    state: Mutex<HubState>,
}

/// The waker of a subscriber, and the memory that its next turn needs.
#[derive(Debug)]
struct WokenSubscriber {
    waker: Waker,
    memory: SubscriberMemory,
}

/// The addresses of a subscriber when it was last polled. It may have moved since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubscriberMemory {
    /// The subscriber itself, [`Self::STATE_BYTES`] long.
    pub(crate) state: FetchAddress,
    /// Its first subscription, about [`Self::SUBSCRIPTION_BYTES`] long.
    pub(crate) subscription: FetchAddress,
}

/// Of the task of a connection, the bytes that are prefetched: its first half. To prefetch all 2 KiB made a turn dearer.
const TASK_BYTES: usize = 1024;

impl WokenSubscriber {
    /// Prefetches what its turn needs. A turn writes to a socket, which takes some microseconds, so the memory of a slice
    /// arrives during the first turns and is still in the caches at the last. Of ten thousand subscribers most are in none.
    fn fetch_ahead(&self) {
        FetchAddress::of_woken(&self.waker).fetch(TASK_BYTES);
        self.memory.state.fetch(SubscriberMemory::STATE_BYTES);
        self.memory.subscription.fetch(SubscriberMemory::SUBSCRIPTION_BYTES);
    }
}

#[derive(Debug, Default)]
struct HubState {
    places: Vec<Option<WokenSubscriber>>,
    free: Vec<usize>,
    /// The task that wakes them, while there is one of them.
    relay: Option<AbortHandle>,
}

impl SubscriberHub {
    /// A place for one more subscriber, on its own worker.
    pub(crate) fn enter(self: &Arc<Self>, published: &Arc<Publications>) -> usize {
        let mut state = self.state.lock();
        if state.relay.is_none() {
            let published = published.reader();
            state.relay = Some(tokio::spawn(Arc::clone(self).relay(published)).abort_handle());
        }
        state.free.pop().unwrap_or_else(|| {
            state.places.push(None);
            state.places.len() - 1
        })
    }

    /// Gives the place back.
    pub(crate) fn leave(&self, place: usize) {
        let mut state = self.state.lock();
        state.places[place] = None;
        state.free.push(place);
        if state.free.len() == state.places.len()
            && let Some(relay) = std::mem::take(&mut *state).relay
        {
            relay.abort();
        }
    }

    /// Has this task woken when that grew.
    pub(crate) fn wake_at(&self, place: usize, waker: &Waker, memory: SubscriberMemory) {
        let mut state = self.state.lock();
        match &mut state.places[place] {
            Some(known) => {
                known.waker.clone_from(waker);
                known.memory = memory;
            }
            empty => *empty = Some(WokenSubscriber { waker: waker.clone(), memory }),
        }
    }

    /// Passes news on to this worker's subscribers. It ends when the last one leaves.
    async fn relay(self: Arc<Self>, mut published: PublicationReader) {
        loop {
            published.changed().await;
            let mut from = 0;
            loop {
                {
                    let state = self.state.lock();
                    let end = (from + WOKEN_AT_ONCE).min(state.places.len());
                    let woken = || state.places.get(from..end).into_iter().flatten().flatten();
                    woken().for_each(WokenSubscriber::fetch_ahead);
                    woken().for_each(|subscriber| subscriber.waker.wake_by_ref());
                    from = end;
                    if from >= state.places.len() {
                        break;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Debug, Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn memory() -> SubscriberMemory {
        let at = FetchAddress::of(&());
        SubscriberMemory { state: at, subscription: at }
    }

    #[tokio::test(start_paused = true)]
    async fn subscribers_are_woken_in_slices_between_other_tasks() {
        let (hub, subscriptions) = (Arc::<SubscriberHub>::default(), ChainSubscriptions::default());
        let woken = Arc::<Woken>::default();
        for _ in 0..100 {
            let place = hub.enter(&subscriptions.published);
            hub.wake_at(place, &Arc::clone(&woken).into(), memory());
        }
        tokio::task::yield_now().await;
        subscriptions.tell();
        let mut counts = Vec::new();
        while counts.last() != Some(&100) {
            tokio::task::yield_now().await;
            counts.push(woken.0.load(Relaxed));
        }
        assert_eq!(counts, [32, 64, 96, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_without_subscribers_rests_and_begins_again() {
        let (hub, subscriptions) = (Arc::<SubscriberHub>::default(), ChainSubscriptions::default());
        let woken = Arc::<Woken>::default();
        for round in 1..=3 {
            let first = hub.enter(&subscriptions.published);
            let second = hub.enter(&subscriptions.published);
            hub.wake_at(second, &Arc::clone(&woken).into(), memory());
            hub.leave(first);
            tokio::task::yield_now().await;
            subscriptions.tell();
            while woken.0.load(Relaxed) < round {
                tokio::task::yield_now().await;
            }
            hub.leave(second);
            // No block has to come for that.
            while Arc::strong_count(&subscriptions.published) > 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn criteria(text: &str) -> LogCriteria {
        LogCriteria::read(Some(text.as_bytes())).expect("a filter")
    }

    #[test]
    fn filters_are_bounded_in_number_and_bytes() {
        let subscriptions = Arc::<ChainSubscriptions>::default();
        let mut joined = Vec::new();
        for number in 0..GROUPS_MAX {
            let gate = criteria(&format!(r#"{{"fromBlock":"{:#x}"}}"#, number + 1));
            joined.push(subscriptions.join(gate).expect("there is room"));
        }
        assert!(subscriptions.join(criteria("{}")).is_none());
        joined.clear();
        assert!(!subscriptions.has_filters());
        let addresses: Vec<_> = (0..1000).map(|n| format!("\"0x{n:040x}\"")).collect();
        let large = format!(r#"{{"address":[{}]}}"#, addresses.join(","));
        while let Some(group) = subscriptions.join(criteria(&large)) {
            joined.push(group);
        }
        assert!((500..2000).contains(&joined.len()), "{} of 64 MiB", joined.len());
        drop(joined);
        assert_eq!(subscriptions.criteria_bytes.load(Relaxed), 0);
    }

    #[test]
    fn the_slowest_reader_is_known_and_those_that_left_are_forgotten() {
        let positions = ReaderPositions::default();
        assert_eq!(positions.lag(7), ReaderLag::default());
        let readers: Vec<_> = (0..10).map(|at| positions.enter(at)).collect();
        assert_eq!(positions.lag(20), ReaderLag { connections: 10, events_max: 20 });
        readers[0].store(20, Relaxed);
        assert_eq!(positions.lag(20), ReaderLag { connections: 10, events_max: 19 });
        drop(readers);
        for at in 0..10_000 {
            drop(positions.enter(at));
        }
        assert_eq!(positions.lag(20), ReaderLag::default());
        assert!(positions.0.lock().capacity() <= 2 * POSITIONS_MIN);
    }

    #[test]
    fn a_part_of_blocks_is_wanted_while_a_subscription_wants_it() {
        let subscriptions = Arc::<ChainSubscriptions>::default();
        assert!(!subscriptions.wants(BlockPart::Receipts));
        let first = subscriptions.want(BlockPart::Receipts, CRITERIA_BYTES_MAX);
        assert!(first.is_some() && subscriptions.want(BlockPart::Receipts, 1).is_none());
        let second = subscriptions.want(BlockPart::Receipts, 0);
        drop(first);
        assert!(second.is_some() && subscriptions.wants(BlockPart::Receipts));
        drop(second);
        assert!(!subscriptions.wants(BlockPart::Receipts));
        assert_eq!(subscriptions.criteria_bytes.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_journal_is_written_while_it_is_wanted() {
        let subscriptions = Arc::<ChainSubscriptions>::default();
        let mut journal = subscriptions.take_journal().expect("once");
        assert!(subscriptions.take_journal().is_none());
        drop(subscriptions.begin());
        assert_eq!(subscriptions.count(), 0, "it came to nothing");
        let demanded = subscriptions.begin();
        subscriptions.news().await;
        let mut written = std::pin::pin!(subscriptions.written());
        assert!(futures_util::poll!(written.as_mut()).is_pending(), "nothing is written yet");
        journal.begin(wellhead_eth::NumberedBlock {
            number: wellhead_eth::BlockNumber(7),
            hash: wellhead_eth::BlockHash([7; 32]),
        });
        subscriptions.note_written();
        written.await;
        assert!(!subscriptions.rest_if_unread(), "it is read");
        drop(demanded);
        assert!(subscriptions.rest_if_unread());
    }
}
