//! What subscribers to `syncing` are told: the state at once, then each change of it, once.
//!
//! The form is geth's. geth repeats its progress each minute while it syncs; here only the change is
//! told.

use crate::notification::Notification;
use crate::ring::RingReader;
use crate::stream::{EventStream, StreamBounds};

/// Far more changes than a reader can have missed that is not closed for being slow. A reader that
/// did is told the newest state.
const BOUNDS: StreamBounds = StreamBounds { events_max: 64, bytes_max: 64 * 1024 };

/// Whether the chain is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// Its newest block is known.
    Synced,
    /// What is known of its newest block is old.
    Syncing(SyncProgress),
}

/// How far the chain was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncProgress {
    /// The newest agreed block when it began.
    pub starting: u64,
    /// The newest agreed block.
    pub current: u64,
    /// The highest block that an upstream told.
    pub highest: u64,
}

impl SyncState {
    fn is_syncing(&self) -> bool {
        matches!(self, Self::Syncing(_))
    }

    fn notification(&self) -> Notification {
        match self {
            Self::Synced => Notification::new(b"false"),
            Self::Syncing(SyncProgress { starting, current, highest }) => {
                // geth names and writes the members so, unlike those of `eth_syncing`.
                let status = format!(
                    r#"{{"syncing":true,"status":{{"StartingBlock":{starting},"CurrentBlock":{current},"HighestBlock":{highest}}}}}"#
                );
                Notification::new(status.as_bytes())
            }
        }
    }
}

/// The states of one chain in order. The newest one is always there: a subscription begins before
/// it.
#[derive(Debug)]
pub struct SyncingJournal {
    stream: EventStream<Notification>,
    is_syncing: bool,
}

impl Default for SyncingJournal {
    fn default() -> Self {
        let mut stream = EventStream::new(BOUNDS);
        stream.push(SyncState::Synced.notification());
        Self { stream, is_syncing: false }
    }
}

impl SyncingJournal {
    /// A reader's end.
    pub fn reader(&self) -> RingReader<Notification> {
        self.stream.reader()
    }

    /// Takes in the state as it is now; true when it changed.
    pub fn note(&mut self, state: SyncState) -> bool {
        let is_news = state.is_syncing() != self.is_syncing;
        if is_news {
            self.is_syncing = state.is_syncing();
            self.stream.push(state.notification());
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_told_and_then_each_change_once() {
        let mut journal = SyncingJournal::default();
        let reader = journal.reader();
        let start = reader.load().newest();
        let syncing =
            |current| SyncState::Syncing(SyncProgress { starting: 5, current, highest: 9 });
        let states = [SyncState::Synced, syncing(6), syncing(7), SyncState::Synced];
        let news: Vec<_> = states.into_iter().map(|state| journal.note(state)).collect();
        assert_eq!(news, [false, true, false, true]);
        let view = reader.load();
        let told = view.since(start).expect("there").map(|(_, it)| it.result());
        let told: Vec<_> = told.map(|it| String::from_utf8_lossy(&it).into_owned()).collect();
        let syncing =
            r#"{"syncing":true,"status":{"StartingBlock":5,"CurrentBlock":6,"HighestBlock":9}}"#;
        assert_eq!(told, ["false", syncing, "false"]);
        // Another one that subscribes now.
        let newest = view.since(view.newest()).expect("there").map(|(_, it)| it.result());
        assert!(newest.eq([&b"false"[..]]));
    }
}
