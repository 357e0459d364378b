//! How long the keys of a source are used after it was last heard of.
//!
//! By a clock that does not step: a wall clock that is set, or that is put right by NTP after the start, would
//! refuse all keys at once, or keep those of a store that is away for years. Which key has expired is
//! another question, and one of the wall clock.

use std::time::{Duration, Instant};

/// When a source was heard of, and how long that will do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotAge {
    stale_max: Duration,
    heard_at: Option<Instant>,
}

impl SnapshotAge {
    /// Of a source that was not heard of yet.
    pub(crate) fn new(stale_max: Duration) -> Self {
        Self { stale_max, heard_at: None }
    }

    /// The source was heard of at this moment, or later.
    pub(crate) fn hear(&mut self, at: Instant) {
        self.heard_at = self.heard_at.max(Some(at));
    }

    /// Whether its keys are too old to be used, or there are none yet.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.heard_at.is_none_or(|at| now.saturating_duration_since(at) > self.stale_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_used_up_to_the_bound_after_the_last_word() {
        let start = wellhead_dispatch::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut age = SnapshotAge::new(Duration::from_secs(60));
        assert!(age.is_stale(start), "before the first word");
        age.hear(at(10));
        // `now` may be older, where the word came between the two.
        assert_eq!([0, 10, 70, 71].map(|now| age.is_stale(at(now))), [false, false, false, true]);
        age.hear(at(100));
        age.hear(at(50));
        assert_eq!([160, 161].map(|now| age.is_stale(at(now))), [false, true]);
    }
}
