//! How providers count calls: in fixed windows, in sliding ones, or not at all but in
//! silence, by answering one call after another.

use std::collections::VecDeque;
use std::time::Duration;

/// A limit on calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// So many in each window; windows begin at whole multiples of their length.
    Fixed {
        /// Length of a window.
        window: Duration,
        /// Calls in it.
        calls: u32,
    },
    /// So many in any span of this length.
    Sliding {
        /// Length of the span.
        window: Duration,
        /// Calls in it.
        calls: u32,
    },
}

/// Counts calls against a [`Limit`]. Refused calls are not counted.
#[derive(Debug, Default)]
pub struct Meter {
    /// Start of the window and calls in it.
    fixed: (Duration, u32),
    taken: VecDeque<Duration>,
}

impl Meter {
    /// Whether `calls` more may come at `at`; counts them if so.
    pub fn take(&mut self, limit: Limit, at: Duration, calls: u32) -> bool {
        match limit {
            Limit::Fixed { window, calls: max } => {
                let start = window * u32::try_from(at.as_nanos() / window.as_nanos()).unwrap_or(0);
                if self.fixed.0 != start {
                    self.fixed = (start, 0);
                }
                let fits = self.fixed.1 + calls <= max;
                if fits {
                    self.fixed.1 += calls;
                }
                fits
            }
            Limit::Sliding { window, calls: max } => {
                while self.taken.front().is_some_and(|taken| *taken + window <= at) {
                    self.taken.pop_front();
                }
                let fits = self.taken.len() + calls as usize <= max as usize;
                if fits {
                    self.taken.extend((0..calls).map(|_| at));
                }
                fits
            }
        }
    }
}

/// Answers so many calls a second, one after the other, and never refuses.
#[derive(Debug, Default)]
pub struct Queue {
    free_at: Duration,
}

impl Queue {
    /// How long calls that come at `at` wait for their turn.
    pub fn wait(&mut self, per_second: u32, at: Duration, calls: u32) -> Duration {
        let start = self.free_at.max(at);
        self.free_at = start + Duration::from_secs(1) / per_second.max(1) * calls;
        start - at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Plays calls at these milliseconds; compares which were taken.
    fn check(limit: Limit, at_ms: &[u64], expected: &str) {
        let mut meter = Meter::default();
        let mut take = |at: &u64| meter.take(limit, Duration::from_millis(*at), 1);
        let taken: String = at_ms.iter().map(|at| if take(at) { '+' } else { '-' }).collect();
        assert_eq!(taken, expected, "{limit:?}");
    }

    #[test]
    fn a_fixed_window_forgets_all_at_once() {
        let limit = Limit::Fixed { window: SECOND, calls: 2 };
        check(limit, &[900, 950, 990, 1000, 1001, 1002, 2000], "++-++-+");
    }

    #[test]
    fn a_sliding_window_forgets_one_by_one() {
        let limit = Limit::Sliding { window: SECOND, calls: 2 };
        check(limit, &[900, 950, 990, 1000, 1899, 1900, 1950, 1960], "++---++-");
    }

    #[test]
    fn a_queue_makes_calls_wait() {
        let mut queue = Queue::default();
        let ms = Duration::from_millis;
        assert_eq!(queue.wait(10, ms(0), 1), ms(0));
        assert_eq!(queue.wait(10, ms(0), 2), ms(100));
        assert_eq!(queue.wait(10, ms(50), 1), ms(250));
        assert_eq!(queue.wait(10, ms(5000), 1), ms(0));
    }
}
