//! What a tier did and how it is: plain counters and one state.
//!
//! Each `get` that was not cancelled adds to exactly one of `hits`, `misses`,
//! `late`, `busy`, `down` and `errors`; `damaged` and `expired` say why some misses
//! were ones. Each `put` that did not come to be stored adds to `refused` or `dropped`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a tier is worth asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Up,
    /// It failed lately: the disk takes no writes, or Redis is out of reach.
    Down,
}

/// The counters at one moment. They are read one by one, so their sums may be off
/// by what happens meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Values found, whole and in time.
    pub hits: u64,
    /// Digests that are not there, damaged and expired ones among them.
    pub misses: u64,
    /// Gets that were given up because the answer took too long.
    pub late: u64,
    /// Gets that were not even begun because too many were under way.
    pub busy: u64,
    /// Gets that were not even begun because the tier was down.
    pub down: u64,
    /// Gets that failed.
    pub errors: u64,
    /// Values found that were not what had been put; each was a miss and is forgotten.
    pub damaged: u64,
    /// Values found past their time; each was a miss.
    pub expired: u64,
    /// Values written.
    pub written: u64,
    /// Puts refused because the value is too large or its time is over.
    pub refused: u64,
    /// Puts lost: the queue was full, the tier down or the write failed.
    pub dropped: u64,
    /// Values that gave way to newer ones before their time. Always 0 for the shared
    /// tier, which decides that by itself.
    pub evicted: u64,
    /// Bytes held, all overhead of ours included. `None` where others decide it.
    pub bytes: Option<u64>,
    /// Values held. `None` where others decide it.
    pub entries: Option<u64>,
    /// Whether it is worth asking.
    pub state: State,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// The living counters. Relaxed throughout: nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
    pub(crate) late: Count,
    pub(crate) busy: Count,
    pub(crate) down: Count,
    pub(crate) errors: Count,
    pub(crate) damaged: Count,
    pub(crate) expired: Count,
    pub(crate) written: Count,
    pub(crate) refused: Count,
    pub(crate) dropped: Count,
    pub(crate) evicted: Count,
    /// `since << 1`, and 1 when down: both change at once.
    state: AtomicU64,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn new(state: State, now: u64) -> Self {
        Self { state: AtomicU64::new(packed(state, now)), ..Self::default() }
    }

    /// Notes the state, and says whether it is another one than before.
    pub(crate) fn turn(&self, state: State, now: u64) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        if unpacked(before).0 == state {
            return false;
        }
        self.state.store(packed(state, now), Ordering::Relaxed);
        true
    }

    pub(crate) fn snapshot(&self, bytes: Option<u64>, entries: Option<u64>) -> Snapshot {
        let (state, since) = unpacked(self.state.load(Ordering::Relaxed));
        Snapshot {
            hits: self.hits.get(),
            misses: self.misses.get(),
            late: self.late.get(),
            busy: self.busy.get(),
            down: self.down.get(),
            errors: self.errors.get(),
            damaged: self.damaged.get(),
            expired: self.expired.get(),
            written: self.written.get(),
            refused: self.refused.get(),
            dropped: self.dropped.get(),
            evicted: self.evicted.get(),
            bytes,
            entries,
            state,
            since,
        }
    }
}

fn packed(state: State, since: u64) -> u64 {
    since << 1 | u64::from(state == State::Down)
}

fn unpacked(word: u64) -> (State, u64) {
    (if word & 1 == 1 { State::Down } else { State::Up }, word >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_the_time_when_it_began() {
        let counters = Counters::new(State::Up, 100);
        assert!(!counters.turn(State::Up, 110));
        assert!(counters.turn(State::Down, 120));
        assert!(!counters.turn(State::Down, 130));
        let seen = counters.snapshot(None, None);
        assert_eq!((seen.state, seen.since), (State::Down, 120));
    }
}
