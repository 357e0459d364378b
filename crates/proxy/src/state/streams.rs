//! What subscribers of one chain are told beside its blocks: a stream for each topic, which something
//! writes while there is a reader.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_subscribe::{
    Cursor, Lagged, Notification, NotificationReader, SyncState, SyncingJournal,
};

use crate::state::subscriptions::{KindName, Publications};

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamTopic {
    /// Whether the chain is followed.
    Syncing,
}

impl StreamTopic {
    /// The kind of the subscriptions that read it.
    pub(crate) fn kind(self) -> KindName {
        match self {
            Self::Syncing => KindName::Syncing,
        }
    }
}

/// The streams of one chain, over all workers.
#[derive(Debug)]
pub(crate) struct ChainStreams {
    /// Grows with each notification.
    published: Arc<Publications>,
    syncing: Mutex<SyncingStream>,
    syncing_reader: NotificationReader,
    /// The first reader of `syncing` came.
    syncing_wanted: Notify,
}

#[derive(Debug, Default)]
struct SyncingStream {
    journal: SyncingJournal,
    readers: usize,
}

impl Default for ChainStreams {
    fn default() -> Self {
        let syncing = SyncingStream::default();
        Self {
            published: Arc::default(),
            syncing_reader: syncing.journal.reader(),
            syncing: Mutex::new(syncing),
            syncing_wanted: Notify::new(),
        }
    }
}

impl ChainStreams {
    /// One more reader of a stream, from now until the ticket is dropped.
    pub(crate) fn join(self: &Arc<Self>, topic: StreamTopic) -> StreamTicket {
        let (reader, cursor) = match topic {
            StreamTopic::Syncing => {
                let mut syncing = self.syncing.lock();
                syncing.readers += 1;
                if syncing.readers == 1 {
                    // What was seen when it was last read is old.
                    syncing.journal.note(SyncState::Synced);
                    self.syncing_wanted.notify_one();
                }
                (self.syncing_reader.clone(), self.syncing_reader.load().newest())
            }
        };
        StreamTicket { streams: Arc::clone(self), topic, reader, cursor }
    }

    fn leave(&self, topic: StreamTopic) {
        match topic {
            StreamTopic::Syncing => self.syncing.lock().readers -= 1,
        }
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

    /// Grows with each notification of any stream.
    pub(crate) fn published(&self) -> &Arc<Publications> {
        &self.published
    }
}

/// A place in a stream, which is written while the place is held.
#[derive(Debug)]
pub(crate) struct StreamTicket {
    streams: Arc<ChainStreams>,
    topic: StreamTopic,
    reader: NotificationReader,
    cursor: Cursor,
}

impl StreamTicket {
    /// What it reads.
    pub(crate) fn topic(&self) -> StreamTopic {
        self.topic
    }

    /// The next notification, if it is there. What the reader missed is passed over: of `syncing` only the
    /// newest state counts.
    pub(crate) fn next(&mut self) -> Option<Notification> {
        let view = self.reader.load();
        let next = |cursor| match view.since(cursor) {
            Ok(mut events) => Ok(events.next().map(|(_, notification)| notification.clone())),
            Err(lagged) => Err(lagged),
        };
        let found = next(self.cursor).or_else(|_lagged: Lagged| {
            self.cursor = view.newest();
            next(self.cursor)
        });
        let found = found.ok().flatten()?;
        self.cursor = self.cursor.next();
        Some(found)
    }
}

impl Drop for StreamTicket {
    fn drop(&mut self) {
        self.streams.leave(self.topic);
    }
}

#[cfg(test)]
mod tests {
    use wellhead_subscribe::SyncProgress;

    use super::*;

    fn syncing() -> SyncState {
        SyncState::Syncing(SyncProgress { starting: 1, current: 1, highest: 2 })
    }

    fn told(ticket: &mut StreamTicket) -> Vec<String> {
        let told = std::iter::from_fn(|| ticket.next());
        told.map(|it| String::from_utf8_lossy(&it.result()).into_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_reader_is_told_the_state_and_then_its_changes() {
        let streams = Arc::<ChainStreams>::default();
        streams.note_syncing(syncing());
        assert!(!streams.wants_syncing());
        let mut first = streams.join(StreamTopic::Syncing);
        streams.syncing_wanted().await;
        assert!(streams.wants_syncing());
        assert_eq!(told(&mut first), ["false"], "nothing was seen while it had no reader");
        let mut published = streams.published().reader();
        streams.note_syncing(syncing());
        streams.note_syncing(syncing());
        published.changed().await;
        let mut second = streams.join(StreamTopic::Syncing);
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
        assert_eq!(told(&mut streams.join(StreamTopic::Syncing)), ["false"], "it begins anew");
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_the_newest_state() {
        let streams = Arc::<ChainStreams>::default();
        let mut ticket = streams.join(StreamTopic::Syncing);
        for _ in 0..100 {
            streams.note_syncing(syncing());
            streams.note_syncing(SyncState::Synced);
        }
        assert_eq!(told(&mut ticket), ["false"]);
    }
}
