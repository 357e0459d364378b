//! What upstreams push for the subscribers of one chain, in streams that something writes while there is a
//! reader: transactions that enter pools, and the kinds that only upstreams know.
//!
//! A relay is kept open at upstreams by `wellhead_watch` from its first reader until some time after its
//! last one. Where no upstream pushes pending transactions, [`crate::announcer`] polls a pool for them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_jsonrpc::raw;
use wellhead_subscribe::{
    Cursor, EventStream, GapPolicy, Notification, PendingCriteria, PendingEvent, PendingJournal,
    RelayedKind, RingReader, StreamBounds,
};
use wellhead_watch::{RelayHandle, RelaySink, RelayStatus, Relays, SeatRule};

use crate::state::subscriptions::{HeldCriteria, KindName, Publications, SubscriberEvent};

/// Different relays of a chain. Each holds at most [`STREAM_BOUNDS`]: 128 MiB in all.
const RELAYS_MAX: usize = 32;
/// What a stream holds for readers that are behind.
const STREAM_BOUNDS: StreamBounds = StreamBounds { events_max: 1024, bytes_max: 4 << 20 };
/// How long a relay stays open after its last reader has left, for clients that connect again.
const LINGER: Duration = Duration::from_secs(20);
/// A pool that was pushed is polled when no upstream has pushed it for this long.
const PUSH_GRACE: Duration = Duration::from_secs(3);

/// What is relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RelayTopic {
    /// Transactions that enter a pool.
    Pool(PoolForm),
    /// What a kind pushes for these parameters (raw JSON of the whole list).
    Kind { kind: &'static RelayedKind, params: Arc<str> },
}

/// How transactions of a pool are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolForm {
    Hashes,
    Whole,
}

impl PoolForm {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Hashes, Self::Whole];

    /// The parameters of `eth_newPendingTransactionFilter`.
    pub(crate) fn filter_params(self) -> &'static str {
        match self {
            Self::Hashes => "[]",
            Self::Whole => "[true]",
        }
    }
}

impl RelayTopic {
    fn subscription(&self) -> &str {
        match self {
            Self::Pool(PoolForm::Hashes) => r#"["newPendingTransactions"]"#,
            Self::Pool(PoolForm::Whole) => r#"["newPendingTransactions",true]"#,
            Self::Kind { params, .. } => params,
        }
    }

    fn seat_rule(&self) -> SeatRule {
        match self {
            Self::Pool(_) => SeatRule::AllFree,
            Self::Kind { .. } => SeatRule::Cheapest,
        }
    }

    fn gap(&self) -> GapPolicy {
        match self {
            Self::Pool(_) => GapPolicy::Silent,
            Self::Kind { kind, .. } => kind.gap,
        }
    }
}

/// The relays of one chain, over all workers.
#[derive(Debug)]
pub(crate) struct ChainRelays {
    relays: Arc<Relays>,
    published: Arc<Publications>,
    open: Mutex<Vec<OpenRelay>>,
    /// The first relay was opened.
    opened: Notify,
    missed: AtomicU64,
}

#[derive(Debug)]
struct OpenRelay {
    topic: RelayTopic,
    source: Arc<RelaySource>,
    handle: Arc<RelayHandle>,
    readers: usize,
    /// When the last reader left.
    unread_since: Option<Instant>,
    /// When an upstream last pushed, or the relay was opened.
    pushed_at: Instant,
}

/// Where the pushes of one relay go.
#[derive(Debug)]
struct RelaySource {
    journal: RelayJournal,
    published: Arc<Publications>,
    gaps: AtomicU64,
    /// Whether its pool can be polled; of use where no upstream pushes.
    polled: Mutex<PollRecord>,
    poll_news: Notify,
}

/// What came of polls of a pool.
#[derive(Debug, Clone, Copy, Default)]
struct PollRecord {
    last: PolledPool,
    polls: u64,
}

/// Whether a pool can be polled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PolledPool {
    /// It was not tried.
    #[default]
    Untried,
    /// An upstream made a filter for it.
    Works,
    /// No upstream did.
    Fails,
}

#[derive(Debug)]
enum RelayJournal {
    Pool(Mutex<PoolJournal>),
    Kind(Mutex<EventStream<Notification>>),
}

/// What pools told, in one form.
#[derive(Debug)]
struct PoolJournal {
    form: PoolForm,
    journal: PendingJournal,
    /// An upstream told a whole transaction.
    has_whole: bool,
}

impl PoolJournal {
    fn new(form: PoolForm) -> Self {
        Self { form, journal: PendingJournal::default(), has_whole: false }
    }

    /// Takes in a hash or a whole transaction; whether it is told. Some nodes push hashes where whole
    /// transactions are asked for. Those are told while no other upstream does better: a hash must not hide
    /// the whole transaction that comes after it.
    fn offer(&mut self, result: &[u8]) -> bool {
        let is_whole = raw::trim(result).first() == Some(&b'{');
        self.has_whole |= is_whole;
        let is_wanted = match self.form {
            PoolForm::Hashes => true,
            PoolForm::Whole => is_whole || !self.has_whole,
        };
        is_wanted && self.journal.offer_result(result)
    }
}

#[derive(Debug)]
enum RelayReader {
    Pool(RingReader<PendingEvent>),
    Kind(RingReader<Notification>),
}

impl RelaySource {
    fn new(topic: &RelayTopic, published: Arc<Publications>) -> Self {
        let journal = match topic {
            RelayTopic::Pool(form) => RelayJournal::Pool(Mutex::new(PoolJournal::new(*form))),
            RelayTopic::Kind { .. } => {
                RelayJournal::Kind(Mutex::new(EventStream::new(STREAM_BOUNDS)))
            }
        };
        let (gaps, polled, poll_news) = (AtomicU64::new(0), Mutex::default(), Notify::new());
        Self { journal, published, gaps, polled, poll_news }
    }

    fn reader(&self) -> (RelayReader, Cursor) {
        match &self.journal {
            RelayJournal::Pool(journal) => {
                let reader = journal.lock().journal.reader();
                let cursor = reader.tip();
                (RelayReader::Pool(reader), cursor)
            }
            RelayJournal::Kind(stream) => {
                let reader = stream.lock().reader();
                let cursor = reader.tip();
                (RelayReader::Kind(reader), cursor)
            }
        }
    }
}

impl RelaySink for RelaySource {
    fn push(&self, result: &[u8]) {
        let is_news = match &self.journal {
            RelayJournal::Pool(journal) => journal.lock().offer(result),
            RelayJournal::Kind(stream) => {
                stream.lock().push(Notification::new(result));
                true
            }
        };
        if is_news {
            self.published.tell();
        }
    }

    fn note_gap(&self) {
        self.gaps.fetch_add(1, Release);
        self.published.tell();
    }
}

/// Why nothing can be relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayUnavailable {
    /// There are too many different relays.
    TooMany,
    /// No upstream offers it.
    NotOffered,
}

impl ChainRelays {
    /// Relays that are kept open by these loops; `published` grows with each notification.
    pub(crate) fn new(relays: Arc<Relays>, published: Arc<Publications>) -> Self {
        let (open, opened, missed) = (Mutex::default(), Notify::new(), AtomicU64::new(0));
        Self { relays, published, open, opened, missed }
    }

    /// One more reader of a relay, from now until the ticket is dropped. The relay is opened if it is not
    /// open yet.
    pub(crate) fn join(
        self: &Arc<Self>,
        topic: RelayTopic,
        told: RelayTold,
        now: Instant,
    ) -> Result<RelayTicket, RelayUnavailable> {
        let mut open = self.open.lock();
        let place = match open.iter().position(|relay| relay.topic == topic) {
            Some(place) => place,
            None if open.len() >= RELAYS_MAX => return Err(RelayUnavailable::TooMany),
            None => {
                let source = Arc::new(RelaySource::new(&topic, Arc::clone(&self.published)));
                let sink = Arc::clone(&source) as Arc<dyn RelaySink>;
                let handle = self.relays.open(topic.subscription(), topic.seat_rule(), sink);
                open.push(OpenRelay {
                    topic: topic.clone(),
                    source,
                    handle: Arc::new(handle),
                    readers: 0,
                    unread_since: None,
                    pushed_at: now,
                });
                self.opened.notify_one();
                open.len() - 1
            }
        };
        let relay = &mut open[place];
        relay.readers += 1;
        relay.unread_since = None;
        let (reader, cursor) = relay.source.reader();
        Ok(RelayTicket {
            relays: Arc::clone(self),
            source: Arc::clone(&relay.source),
            handle: Arc::clone(&relay.handle),
            gaps_seen: relay.source.gaps.load(Acquire),
            polls_seen: relay.source.polled.lock().polls,
            topic,
            told,
            reader,
            cursor,
        })
    }

    fn leave(&self, topic: &RelayTopic, now: Instant) {
        let mut open = self.open.lock();
        if let Some(relay) = open.iter_mut().find(|relay| relay.topic == *topic) {
            relay.readers -= 1;
            if relay.readers == 0 {
                relay.unread_since = Some(now);
            }
        }
    }

    /// Whether none is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Resolves when the first one was opened.
    pub(crate) async fn opened(&self) {
        self.opened.notified().await;
    }

    /// Closes those without a reader for a while.
    pub(crate) fn close_unread(&self, now: Instant) {
        let is_read = |relay: &OpenRelay| {
            relay.unread_since.is_none_or(|since| now.saturating_duration_since(since) < LINGER)
        };
        let closed: Vec<_> = self.open.lock().extract_if(.., |relay| !is_read(relay)).collect();
        drop(closed);
    }

    /// Whether the pool has readers and no upstream pushes it, so that it is worth polling.
    pub(crate) fn is_pool_unpushed(&self, form: PoolForm, now: Instant) -> bool {
        let mut open = self.open.lock();
        let pool = open.iter_mut().find(|relay| relay.topic == RelayTopic::Pool(form));
        let Some(pool) = pool.filter(|pool| pool.readers > 0) else { return false };
        match pool.handle.status() {
            RelayStatus::Told => {
                pool.pushed_at = now;
                false
            }
            RelayStatus::Opening => now.saturating_duration_since(pool.pushed_at) >= PUSH_GRACE,
            RelayStatus::Refused | RelayStatus::NoFeeds => true,
        }
    }

    /// Takes in what a poll of a pool found (raw JSON, a list).
    pub(crate) fn note_polled<'a>(
        &self,
        form: PoolForm,
        polled: PolledPool,
        found: impl Iterator<Item = &'a [u8]>,
    ) {
        let open = self.open.lock();
        let pool = open.iter().find(|relay| relay.topic == RelayTopic::Pool(form));
        let Some(source) = pool.map(|pool| Arc::clone(&pool.source)) else { return };
        drop(open);
        let mut record = source.polled.lock();
        *record = PollRecord { last: polled, polls: record.polls + 1 };
        drop(record);
        source.poll_news.notify_waiters();
        found.for_each(|result| source.push(result));
    }

    /// Notifications that readers missed because they read too slowly, of kinds for which that is said by
    /// nothing else.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

/// Which notifications of a relay a subscription is told.
#[derive(Debug)]
pub(crate) enum RelayTold {
    /// All, as they are.
    All,
    /// Those transactions that match. The filter is counted while it is held.
    Matching { criteria: PendingCriteria, _held: HeldCriteria },
}

/// A place in a relay, which is kept open while the place is held.
#[derive(Debug)]
pub(crate) struct RelayTicket {
    relays: Arc<ChainRelays>,
    topic: RelayTopic,
    told: RelayTold,
    source: Arc<RelaySource>,
    handle: Arc<RelayHandle>,
    reader: RelayReader,
    cursor: Cursor,
    gaps_seen: u64,
    /// Polls of the pool before this reader came.
    polls_seen: u64,
}

impl RelayTicket {
    /// The kind of the subscription that reads it.
    pub(crate) fn kind(&self) -> KindName {
        match (&self.topic, &self.told) {
            (RelayTopic::Pool(_), RelayTold::All) => KindName::NewPendingTransactions,
            (RelayTopic::Pool(_), RelayTold::Matching { .. }) => {
                KindName::AlchemyPendingTransactions
            }
            (RelayTopic::Kind { .. }, _) => KindName::Relayed,
        }
    }

    /// Resolves when something tells it, or when it is known that no upstream offers it.
    pub(crate) async fn confirmed(&self) -> Result<(), RelayUnavailable> {
        loop {
            // Made before the look, so that nothing is missed.
            let (changed, polled) = (self.handle.changed(), self.source.poll_news.notified());
            match (self.handle.status(), self.polled()) {
                (RelayStatus::Told, _) | (_, PolledPool::Works) => return Ok(()),
                (RelayStatus::Opening, _) => {}
                (RelayStatus::Refused | RelayStatus::NoFeeds, PolledPool::Untried)
                    if matches!(self.topic, RelayTopic::Pool(_)) => {}
                (
                    RelayStatus::Refused | RelayStatus::NoFeeds,
                    PolledPool::Untried | PolledPool::Fails,
                ) => return Err(RelayUnavailable::NotOffered),
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = polled => {}
            }
        }
    }

    /// Whether the pool can be polled. That a poll failed before this reader came says nothing: the
    /// upstreams may have been down, and may be back.
    fn polled(&self) -> PolledPool {
        let record = *self.source.polled.lock();
        let is_old = record.last == PolledPool::Fails && record.polls == self.polls_seen;
        if is_old { PolledPool::Untried } else { record.last }
    }

    /// What the subscription with this id is told next, if it is there. What the reader missed is counted and passed
    /// over where the kind permits it.
    pub(crate) fn next(&mut self, id: &Bytes) -> Option<SubscriberEvent> {
        if self.topic.gap() == GapPolicy::Close && self.source.gaps.load(Acquire) != self.gaps_seen
        {
            return Some(SubscriberEvent::Resync);
        }
        loop {
            let (found, tip) = match &self.reader {
                RelayReader::Pool(reader) => {
                    let view = reader.load();
                    let told = view.since(self.cursor).map(|mut events| {
                        events.next().map(|(_, event)| match &self.told {
                            RelayTold::All => Some(event.notification.clone()),
                            RelayTold::Matching { criteria, .. } => criteria.notification(event),
                        })
                    });
                    (told, view.tip())
                }
                RelayReader::Kind(reader) => {
                    let view = reader.load();
                    let told = view.since(self.cursor).map(|mut events| {
                        events.next().map(|(_, notification)| Some(notification.clone()))
                    });
                    (told, view.tip())
                }
            };
            match found {
                Ok(None) => return None,
                Ok(Some(told)) => {
                    self.cursor = self.cursor.next();
                    if let Some(notification) = told {
                        return Some(SubscriberEvent::of(id, &notification));
                    }
                }
                Err(lagged) => {
                    self.relays.missed.fetch_add(lagged.missed.unwrap_or(1), Relaxed);
                    if self.topic.gap() == GapPolicy::Close {
                        return Some(SubscriberEvent::TooSlow);
                    }
                    self.cursor = tip;
                }
            }
        }
    }
}

impl Drop for RelayTicket {
    fn drop(&mut self) {
        self.relays.leave(&self.topic, wellhead_dispatch::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_told_for_whole_transactions_only_while_no_upstream_does_better() {
        let hash = |number: u8| format!("\"0x{}\"", format!("{number:02x}").repeat(32));
        let whole = |number| format!("{{\"hash\":{}}}", hash(number));
        let mut pool = PoolJournal::new(PoolForm::Whole);
        assert!(pool.offer(hash(1).as_bytes()));
        assert!(pool.offer(whole(2).as_bytes()));
        assert!(!pool.offer(hash(3).as_bytes()));
        assert!(pool.offer(whole(3).as_bytes()), "not hidden by its hash");
        assert!(!pool.offer(whole(3).as_bytes()), "each once");
        assert!(PoolJournal::new(PoolForm::Hashes).offer(hash(1).as_bytes()));
    }

    fn relays() -> Arc<ChainRelays> {
        Arc::new(ChainRelays::new(Arc::default(), Arc::default()))
    }

    fn kind(params: &str) -> RelayTopic {
        let kind = RelayedKind::named("newFlashblocks").expect("a kind");
        RelayTopic::Kind { kind, params: params.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn relays_are_bounded_and_end_some_time_after_their_last_reader() {
        let (relays, start) = (relays(), wellhead_dispatch::now());
        let join = |number| relays.join(kind(&format!("[{number}]")), RelayTold::All, start);
        let mut tickets: Vec<_> = (0..RELAYS_MAX).map(|it| join(it).expect("room")).collect();
        assert_eq!(join(99).map(|_| ()), Err(RelayUnavailable::TooMany));
        tickets.push(join(5).expect("it is open already"));
        tickets.truncate(1);
        relays.close_unread(start + LINGER / 2);
        assert_eq!(relays.len(), RELAYS_MAX, "clients come back");
        drop(join(5).expect("it came back"));
        relays.close_unread(start + LINGER);
        assert_eq!(relays.len(), 1, "the one that is read");
        drop(tickets);
        relays.close_unread(start + LINGER * 2);
        assert!(relays.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_failed_says_nothing_to_readers_that_come_later() {
        let (relays, now) = (relays(), wellhead_dispatch::now());
        let pool = RelayTopic::Pool(PoolForm::Hashes);
        let join = || relays.join(pool.clone(), RelayTold::All, now).expect("room");
        let first = join();
        assert_eq!(first.polled(), PolledPool::Untried);
        relays.note_polled(PoolForm::Hashes, PolledPool::Fails, std::iter::empty());
        assert_eq!(first.confirmed().await, Err(RelayUnavailable::NotOffered));
        let second = join();
        assert_eq!(second.polled(), PolledPool::Untried, "the next poll decides");
        relays.note_polled(PoolForm::Hashes, PolledPool::Works, std::iter::empty());
        assert_eq!(second.confirmed().await, Ok(()));
        assert_eq!(join().polled(), PolledPool::Works);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_goes_on_with_the_newest_or_is_ended_as_the_kind_says() {
        let (relays, now) = (relays(), wellhead_dispatch::now());
        let monad = RelayedKind::named("monadLogs").expect("a kind");
        let strict = RelayTopic::Kind { kind: monad, params: "[]".into() };
        let mut lossy = relays.join(kind("[]"), RelayTold::All, now).expect("room");
        let mut strict = relays.join(strict, RelayTold::All, now).expect("room");
        for number in 0..1100 {
            lossy.source.push(number.to_string().as_bytes());
            strict.source.push(number.to_string().as_bytes());
        }
        let id = Bytes::new();
        assert!(matches!(strict.next(&id), Some(SubscriberEvent::TooSlow)));
        assert!(lossy.next(&id).is_none());
        assert_eq!(relays.missed(), 2 * (1100 - 1024));
        lossy.source.push(b"new");
        let Some(SubscriberEvent::Notification(told)) = lossy.next(&id) else { panic!("no news") };
        assert!(told.concat().ends_with(b"\"result\":new}}"), "{told:?}");
    }
}
