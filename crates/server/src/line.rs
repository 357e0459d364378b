//! The lines of the log for requests that no handler saw, within a bound.
//!
//! Each request leaves one line. The handler writes those of the calls that it got; what the
//! listener refuses, or loses before its body is there, is written here. A client can make
//! many of these for nothing, so there are at most so many lines a second, and the next one
//! says how many were left out. The counts ([`crate::ServerCounts`]) are exact in any case.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

/// Lines of refused requests a second and listener.
const LINES_MAX: u64 = 20;
/// The hints for operators: at most this many in [`HINT_SECONDS`].
const HINTS_MAX: u64 = 1;
const HINT_SECONDS: u64 = 60;

/// Lets so many lines through in each window of time.
#[derive(Debug)]
pub(crate) struct LineLimit {
    lines_max: u64,
    window_seconds: u64,
    epoch: OnceLock<Instant>,
    /// The number of the window in the upper half, its lines in the lower.
    window: AtomicU64,
    left_out: AtomicU64,
}

impl LineLimit {
    pub(crate) fn of_lines() -> Self {
        Self::new(LINES_MAX, 1)
    }

    pub(crate) fn of_hints() -> Self {
        Self::new(HINTS_MAX, HINT_SECONDS)
    }

    fn new(lines_max: u64, window_seconds: u64) -> Self {
        Self {
            lines_max,
            window_seconds,
            epoch: OnceLock::new(),
            window: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Takes the place of one line: how many were left out since the last one. `None` when
    /// there is none, and this one is left out.
    pub(crate) fn take(&self, now: Instant) -> Option<u64> {
        let epoch = *self.epoch.get_or_init(|| now);
        let seconds = now.saturating_duration_since(epoch).as_secs();
        let number = (seconds / self.window_seconds) & u64::from(u32::MAX);
        let taken = self.window.fetch_update(Relaxed, Relaxed, |window| {
            let (last, lines) = (window >> 32, window & u64::from(u32::MAX));
            match last == number {
                false => Some((number << 32) | 1),
                true if lines < self.lines_max => Some(window + 1),
                true => None,
            }
        });
        match taken {
            Ok(_) => Some(self.left_out.swap(0, Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_leaves_some_lines_and_a_count() {
        let limit = LineLimit::new(3, 1);
        let take =
            |times: usize| (0..times).map(|_| limit.take(Instant::now())).collect::<Vec<_>>();
        assert_eq!(take(5), [Some(0), Some(0), Some(0), None, None]);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(take(1), [None]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(take(4), [Some(3), Some(0), Some(0), None]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(take(2), [Some(1), Some(0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn hints_are_rare_and_the_first_is_told_at_once() {
        let limit = LineLimit::of_hints();
        assert_eq!(limit.take(Instant::now()), Some(0));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(limit.take(Instant::now()), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limit.take(Instant::now()), Some(1));
    }
}
