//! How often the log is told that an upstream fell back.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A fall of one upstream is logged at most this often: a broken feed can fall back
/// thousands of times a second.
const FALL_TOLD_EVERY: Duration = Duration::from_secs(60);

/// When a fall of one upstream was last logged.
#[derive(Debug, Default)]
pub(crate) struct Falls(Mutex<Option<Instant>>);

impl Falls {
    /// Notes a fall at `now`; true when it is to be logged.
    pub(crate) fn tell(&self, now: Instant) -> bool {
        let mut told = self.0.lock();
        let due = told.is_none_or(|at| now.saturating_duration_since(at) >= FALL_TOLD_EVERY);
        if due {
            *told = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_are_told_once_a_minute() {
        let (falls, begun) = (Falls::default(), crate::ask::now());
        let told: Vec<u64> =
            (0..=120).filter(|second| falls.tell(begun + Duration::from_secs(*second))).collect();
        assert_eq!(told, [0, 60, 120]);
    }
}
