//! What subscribers of one chain are told beside its blocks: a stream for each topic, which something
//! writes while there is a reader.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_subscribe::{Cursor, Notification, RingReader, SyncState, SyncingJournal};
use wellhead_watch::Relays;

use crate::state::relays::{ChainRelays, RelayTicket};
use crate::state::subscriptions::{KindName, Publications, SubscriberEvent};

/// The streams of one chain, over all workers.
#[derive(Debug)]
pub(crate) struct ChainStreams {
    /// Grows with each notification of any stream.
    pub(crate) published: Arc<Publications>,
    syncing: Mutex<SyncingStream>,
    syncing_reader: RingReader<Notification>,
    /// The first reader of `syncing` came.
    syncing_wanted: Notify,
    /// What upstreams push.
    pub(crate) relays: Arc<ChainRelays>,
}

#[derive(Debug, Default)]
struct SyncingStream {
    journal: SyncingJournal,
    readers: usize,
}

impl ChainStreams {
    /// Streams of a chain whose upstreams are kept asked by these relays.
    pub(crate) fn new(relays: Arc<Relays>) -> Self {
        let (syncing, published) = (SyncingStream::default(), Arc::<Publications>::default());
        Self {
            relays: Arc::new(ChainRelays::new(relays, Arc::clone(&published))),
            published,
            syncing_reader: syncing.journal.reader(),
            syncing: Mutex::new(syncing),
            syncing_wanted: Notify::new(),
        }
    }

    /// One more reader of whether the chain is followed, from now until the ticket is dropped.
    pub(crate) fn join_syncing(self: &Arc<Self>) -> SyncingTicket {
        let mut syncing = self.syncing.lock();
        syncing.readers += 1;
        if syncing.readers == 1 {
            // What was seen when it was last read is old.
            syncing.journal.note(SyncState::Synced);
            self.syncing_wanted.notify_one();
        }
        let cursor = self.syncing_reader.load().newest();
        SyncingTicket { streams: Arc::clone(self), cursor }
    }

    /// Whether `syncing` has a reader.
    pub(crate) fn wants_syncing(&self) -> bool {
        self.syncing.lock().readers > 0
    }

    /// Resolves when `syncing` may have its first reader.
    pub(crate) async fn syncing_wanted(&self) {
        self.syncing_wanted.notified().await;
    }

    /// Takes in whether the chain is followed; readers are told of a change.
    pub(crate) fn note_syncing(&self, state: SyncState) {
        let mut syncing = self.syncing.lock();
        // A reader that comes later is told `false` first, whatever was seen before.
        if syncing.readers > 0 && syncing.journal.note(state) {
            self.published.tell();
        }
    }
}

/// A place in a stream, which is written while the place is held.
#[derive(Debug)]
pub(crate) enum StreamTicket {
    /// Whether the chain is followed.
    Syncing(SyncingTicket),
    /// What upstreams push.
    Relay(Box<RelayTicket>),
}

impl StreamTicket {
    /// The kind of the subscription that reads it.
    pub(crate) fn kind(&self) -> KindName {
        match self {
            Self::Syncing(_) => KindName::Syncing,
            Self::Relay(ticket) => ticket.kind(),
        }
    }

    /// What the subscription with this id is told next, if it is there.
    pub(crate) fn next(&mut self, id: &Bytes) -> Option<SubscriberEvent> {
        match self {
            Self::Syncing(ticket) => ticket.next().map(|told| SubscriberEvent::of(id, &told)),
            Self::Relay(ticket) => ticket.next(id),
        }
    }
}

/// A place in the stream of whether the chain is followed.
#[derive(Debug)]
pub(crate) struct SyncingTicket {
    streams: Arc<ChainStreams>,
    cursor: Cursor,
}

impl SyncingTicket {
    /// The next notification. What the reader missed is passed over: only the newest state counts.
    fn next(&mut self) -> Option<Notification> {
        let view = self.streams.syncing_reader.load();
        if view.since(self.cursor).is_err() {
            self.cursor = view.newest();
        }
        let (_, found) = view.since(self.cursor).ok()?.next()?;
        self.cursor = self.cursor.next();
        Some(found.clone())
    }
}

impl Drop for SyncingTicket {
    fn drop(&mut self) {
        self.streams.syncing.lock().readers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use wellhead_subscribe::SyncProgress;

    use super::*;

    fn syncing() -> SyncState {
        SyncState::Syncing(SyncProgress { starting: 1, current: 1, highest: 2 })
    }

    fn streams() -> Arc<ChainStreams> {
        Arc::new(ChainStreams::new(Arc::default()))
    }

    fn told(ticket: &mut SyncingTicket) -> Vec<String> {
        let told = std::iter::from_fn(|| ticket.next());
        told.map(|it| String::from_utf8_lossy(&it.result()).into_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_reader_is_told_the_state_and_then_its_changes() {
        let streams = streams();
        streams.note_syncing(syncing());
        assert!(!streams.wants_syncing());
        let mut first = streams.join_syncing();
        streams.syncing_wanted().await;
        assert!(streams.wants_syncing());
        assert_eq!(told(&mut first), ["false"], "nothing was seen while it had no reader");
        let mut published = streams.published.reader();
        streams.note_syncing(syncing());
        streams.note_syncing(syncing());
        published.changed().await;
        let mut second = streams.join_syncing();
        for ticket in [&mut first, &mut second] {
            let told = told(ticket);
            assert!(told.len() == 1 && told[0].starts_with(r#"{"syncing":true"#), "{told:?}");
        }
        streams.note_syncing(SyncState::Synced);
        assert_eq!(
            (told(&mut first), told(&mut second)),
            (vec!["false".into()], vec!["false".into()])
        );
        streams.note_syncing(syncing());
        drop((first, second));
        assert!(!streams.wants_syncing());
        assert_eq!(told(&mut streams.join_syncing()), ["false"], "it begins anew");
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_the_newest_state() {
        let streams = streams();
        let mut ticket = streams.join_syncing();
        for _ in 0..100 {
            streams.note_syncing(syncing());
            streams.note_syncing(SyncState::Synced);
        }
        assert_eq!(told(&mut ticket), ["false"]);
    }
}
