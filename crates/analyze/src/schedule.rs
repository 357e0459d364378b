//! When calls begin: by a clock, whatever the answers do, or by the answers.
//!
//! Plain sums; `cell` keeps to them and tells how late it was.

use std::time::Duration;

/// How the calls of a cell follow each other, until one of its bounds is met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// Open loop: each call has its time. One that begins late is counted from when it should
    /// have begun, so that a slow target cannot slow down what is asked of it.
    Open {
        /// Calls a second, above zero.
        per_second: f64,
        /// Calls in all.
        calls: u64,
    },
    /// Closed loop: a call begins when another one ends.
    Closed {
        /// Under way at a time, at least 1.
        at_once: usize,
        /// Calls in all.
        calls: u64,
        /// No call begins later than this after the first.
        within: Option<Duration>,
    },
}

impl Schedule {
    /// An open loop for so long; at least one call.
    pub fn rate(per_second: f64, lasting: Duration) -> Self {
        let calls = (per_second * lasting.as_secs_f64()).round().max(1.0) as u64;
        Self::Open { per_second, calls }
    }

    /// Calls at most.
    pub fn calls(&self) -> u64 {
        match self {
            Self::Open { calls, .. } | Self::Closed { calls, .. } => *calls,
        }
    }

    /// When call `n`, counted from 0, should begin; `None` where no clock says it.
    pub fn due(&self, n: u64) -> Option<Duration> {
        match self {
            Self::Open { per_second, .. } => Some(Duration::from_secs_f64(n as f64 / per_second)),
            Self::Closed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_has_a_time_for_each_call() {
        let open = Schedule::rate(50.0, Duration::from_secs(2));
        assert_eq!(open, Schedule::Open { per_second: 50.0, calls: 100 });
        assert_eq!(open.due(0), Some(Duration::ZERO));
        assert_eq!(open.due(75), Some(Duration::from_millis(1_500)));
        // No error adds up.
        assert_eq!(open.due(50_000_000), Some(Duration::from_secs(1_000_000)));
    }

    #[test]
    fn a_short_time_is_one_call() {
        assert_eq!(Schedule::rate(0.5, Duration::from_secs(1)).calls(), 1);
    }

    #[test]
    fn a_closed_loop_has_none() {
        let closed = Schedule::Closed { at_once: 3, calls: 9, within: None };
        assert_eq!((closed.calls(), closed.due(1)), (9, None));
    }
}
