//! When calls begin: by a clock, whatever the answers do, or by the answers.
//!
//! Plain sums; `cell` keeps to them and tells how late it was.

use std::sync::Arc;
use std::time::Duration;

use crate::measure::knock::Knocking;

/// How the calls of a cell follow each other, until one of its bounds is met.
#[derive(Debug, Clone, PartialEq)]
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
    /// Closed loop over one connection, which ends with it: when a call fails or goes over
    /// another one.
    OneConnection {
        /// Under way at a time, at least 1.
        at_once: usize,
        /// From this call on, counted from 0, one at a time: then it is known to the call when
        /// the connection ends.
        alone_from: u64,
        /// Calls in all.
        calls: u64,
    },
    /// Two closed loops: large answers are kept on their way, and beside them small calls are made
    /// one after another, until there were enough of those.
    Beside {
        /// Large ones at a time.
        large: usize,
        /// Small ones in all.
        small: u64,
    },
    /// Open loop at these times, in their order.
    At(Arc<[Duration]>),
    /// Open loop that leans on a limit: when the next call is due depends on what was refused.
    Knock(Knocking),
    /// Closed loop of users that think for a while after each answer. They begin one after another
    /// over that while, so that they do not all ask at the same moment.
    Users {
        /// Users, at least 1.
        users: usize,
        /// Calls in all.
        calls: u64,
        /// No call begins later than this after the first.
        within: Duration,
        /// Between an answer and the next call of the same user.
        think: Duration,
    },
}

/// How far a cell has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellProgress {
    /// Calls that were begun.
    pub begun: u64,
    /// Of these, those under way.
    pub under_way: usize,
    /// Of those begun, the large ones; only beside small ones.
    pub large_begun: u64,
    /// Of these, those under way.
    pub large_under_way: usize,
}

/// Which call is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextCall {
    /// One as the cell says.
    Usual,
    /// A large one.
    Large,
}

impl Schedule {
    /// An open loop for this long; at least one call.
    pub fn rate(per_second: f64, lasting: Duration) -> Self {
        let calls = (per_second * lasting.as_secs_f64()).round().max(1.0) as u64;
        Self::Open { per_second, calls }
    }

    /// Calls a second, at most, where a clock says when they begin.
    pub fn per_second(&self) -> Option<f64> {
        match self {
            Self::Open { per_second, .. } => Some(*per_second),
            Self::Knock(terms) => Some(terms.per_second),
            Self::At(times) => {
                let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
                gaps.filter(|gap| *gap > 0.0).reduce(f64::min).map(|gap| 1.0 / gap)
            }
            Self::Closed { .. }
            | Self::OneConnection { .. }
            | Self::Beside { .. }
            | Self::Users { .. } => None,
        }
    }

    /// Calls at most.
    pub fn calls(&self) -> u64 {
        match self {
            Self::Open { calls, .. }
            | Self::Closed { calls, .. }
            | Self::OneConnection { calls, .. }
            | Self::Users { calls, .. } => *calls,
            Self::Beside { large, small } => small.saturating_mul(1 + *large as u64),
            Self::At(times) => times.len() as u64,
            Self::Knock(terms) => terms.calls,
        }
    }

    /// Which call may begin as things stand; `None` where something has to end first.
    pub fn turn(&self, now: &CellProgress) -> Option<NextCall> {
        let usual = |may: bool| may.then_some(NextCall::Usual);
        match self {
            Self::Open { .. } | Self::At(_) | Self::Knock(_) => usual(true),
            Self::Closed { at_once, .. } => usual(now.under_way < *at_once),
            Self::Users { users, .. } => usual(now.under_way < *users),
            Self::OneConnection { at_once, alone_from, .. } => {
                let at_once = if now.begun < *alone_from { *at_once } else { 1 };
                usual(now.under_way < at_once.max(1))
            }
            Self::Beside { large, .. } if now.large_under_way < *large => Some(NextCall::Large),
            Self::Beside { .. } => usual(now.under_way == now.large_under_way),
        }
    }

    /// Whether no further call begins once `after` has passed.
    pub fn is_over(&self, now: &CellProgress, after: Duration) -> bool {
        let enough = now.begun >= self.calls();
        match self {
            Self::Open { .. }
            | Self::At(_)
            | Self::Knock(_)
            | Self::Closed { within: None, .. }
            | Self::OneConnection { .. } => enough,
            Self::Closed { within: Some(within), .. } | Self::Users { within, .. } => {
                enough || after >= *within
            }
            Self::Beside { small, .. } => enough || now.begun - now.large_begun >= *small,
        }
    }

    /// When call `n`, counted from 0, should begin; `None` where no clock says it, or not yet.
    pub fn due(&self, n: u64) -> Option<Duration> {
        match self {
            Self::Open { per_second, .. } => Some(Duration::from_secs_f64(n as f64 / per_second)),
            Self::At(times) => times.get(usize::try_from(n).ok()?).copied(),
            Self::Closed { .. }
            | Self::OneConnection { .. }
            | Self::Beside { .. }
            | Self::Users { .. }
            | Self::Knock(_) => None,
        }
    }

    /// What call `n` waits for before it leaves, and after its answer came.
    pub(crate) fn thinks(&self, n: u64) -> (Duration, Duration) {
        match self {
            Self::Open { .. }
            | Self::At(_)
            | Self::Knock(_)
            | Self::Closed { .. }
            | Self::OneConnection { .. }
            | Self::Beside { .. } => (Duration::ZERO, Duration::ZERO),
            Self::Users { users, think, .. } => {
                let users = *users as u64;
                let first = if n < users { n as f64 / users as f64 } else { 0.0 };
                (think.mul_f64(first), *think)
            }
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
    fn a_pace_is_that_of_the_calls_nearest_to_each_other() {
        let ms = Duration::from_millis;
        assert_eq!(Schedule::rate(50.0, ms(1_000)).per_second(), Some(50.0));
        let at = Schedule::At([ms(0), ms(100), ms(104), ms(900)].into());
        assert_eq!(at.per_second(), Some(250.0));
        let closed = Schedule::Closed { at_once: 3, calls: 9, within: None };
        assert_eq!((closed.per_second(), Schedule::At([ms(5)].into()).per_second()), (None, None));
    }

    #[test]
    fn users_begin_one_after_another_and_think_after_each_answer() {
        let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
        let users = Schedule::Users { users: 4, calls: 9, within: second, think: second };
        assert_eq!((users.calls(), users.due(1)), (9, None));
        assert_eq!(users.thinks(0), (zero, second));
        assert_eq!(users.thinks(3), (second * 3 / 4, second));
        assert_eq!(users.thinks(4), (zero, second));
    }

    #[test]
    fn a_closed_loop_has_none() {
        let closed = Schedule::Closed { at_once: 3, calls: 9, within: None };
        assert_eq!((closed.calls(), closed.due(1)), (9, None));
    }

    fn turn(
        schedule: &Schedule,
        begun: u64,
        under_way: usize,
        large: (u64, usize),
    ) -> Option<NextCall> {
        let (large_begun, large_under_way) = large;
        schedule.turn(&CellProgress { begun, under_way, large_begun, large_under_way })
    }

    #[test]
    fn towards_the_end_of_a_connection_calls_go_alone() {
        let one = Schedule::OneConnection { at_once: 8, alone_from: 20, calls: 30 };
        assert_eq!(turn(&one, 19, 7, (0, 0)), Some(NextCall::Usual));
        assert_eq!(turn(&one, 19, 8, (0, 0)), None);
        assert_eq!(turn(&one, 20, 1, (0, 0)), None);
        assert_eq!(turn(&one, 20, 0, (0, 0)), Some(NextCall::Usual));
    }

    #[test]
    fn large_calls_are_kept_under_way_beside_small_ones() {
        let beside = Schedule::Beside { large: 2, small: 3 };
        assert_eq!(turn(&beside, 1, 1, (1, 1)), Some(NextCall::Large));
        assert_eq!(turn(&beside, 2, 2, (2, 2)), Some(NextCall::Usual));
        assert_eq!(turn(&beside, 3, 3, (2, 2)), None);
        assert_eq!(turn(&beside, 3, 2, (2, 1)), Some(NextCall::Large));
        let progress =
            |begun, large_begun| CellProgress { begun, large_begun, ..CellProgress::default() };
        assert!(!beside.is_over(&progress(6, 4), Duration::ZERO));
        assert!(beside.is_over(&progress(7, 4), Duration::ZERO));
        // However quick the large ones are.
        assert!(beside.is_over(&progress(9, 8), Duration::ZERO));
    }
}
