//! When a target is asked no more: it says, or shows, that it serves nothing for longer than an experiment
//! waits.
//!
//! A pause of an hour that is asked for, a quota that is spent, a ban after a burst: whatever is sent then
//! is refused, tells nothing, and may prolong it. The run ends the sending by this, call by call, and the
//! verdicts read it from the records in the same way.

use serde::{Deserialize, Serialize};
use wellhead_upstream::VerdictClass;

use crate::record::CallRecord;

/// A pause that no experiment waits for, milliseconds.
const PAUSE_MS: u64 = 300_000;

/// So many refusals in a row say it: one may be a slip.
const TOLD: u64 = 3;

/// The shortest time, in microseconds, with nothing but refusals that ends the sending: longer than a window of a
/// minute.
const REFUSED_US: u64 = 90_000_000;

/// The fewest refusals in that time that end it.
const REFUSED_MIN: u64 = 20;

/// Why a target is asked no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendingEnd {
    /// It asks for a pause that is longer than any experiment waits.
    LongPause {
        /// Its length.
        seconds: u64,
    },
    /// It says that what was paid for is spent.
    Spent,
    /// It has refused all calls for a long time.
    Refused {
        /// How long.
        seconds: u64,
    },
}

/// Refusals of one target in a row, in the order in which calls ended.
#[derive(Debug, Clone, Default)]
pub struct RefusalRun {
    /// Calls that were served before it.
    pub(crate) served: u64,
    /// Refusals in it.
    pub(crate) refused: u64,
    /// When the first and the last of them were told, microseconds.
    pub(crate) span: (u64, u64),
    /// The longest pause that they ask for, milliseconds.
    pause_ms: u64,
    /// The last of them, in a row, that ask for a long pause, or say that nothing is left.
    paused: u64,
    spent: u64,
    /// The first few.
    pub(crate) first: Vec<CallRecord>,
}

impl RefusalRun {
    /// Counts a call that is over; tells whether that was enough.
    pub fn add(&mut self, call: &CallRecord) -> Option<SendingEnd> {
        let is = |class: VerdictClass| call.class == class.word();
        let is_spent = is(VerdictClass::Billing);
        // A call without an answer is neither served nor refused: silence is looked at elsewhere.
        if call.error.is_some() || is(VerdictClass::Fault) {
            return None;
        }
        if !(is_spent || is(VerdictClass::Throttled) || is(VerdictClass::Auth)) {
            *self = Self { served: self.served + 1, ..Self::default() };
            return None;
        }
        if self.refused == 0 {
            self.span.0 = call.ended_at;
        }
        self.refused += 1;
        self.span.1 = self.span.1.max(call.ended_at);
        let pause_ms = call.retry_after_ms.unwrap_or(0);
        self.pause_ms = self.pause_ms.max(pause_ms);
        self.paused = if pause_ms >= PAUSE_MS { self.paused + 1 } else { 0 };
        self.spent = if is_spent { self.spent + 1 } else { 0 };
        if self.refused <= TOLD {
            self.first.push(call.clone());
        }
        self.end()
    }

    /// Whether the target is to be asked no more.
    pub fn end(&self) -> Option<SendingEnd> {
        let refused_us = self.span.1.saturating_sub(self.span.0);
        if self.paused >= TOLD {
            Some(SendingEnd::LongPause { seconds: self.pause_ms / 1_000 })
        } else if self.spent >= TOLD {
            Some(SendingEnd::Spent)
        } else if self.refused >= REFUSED_MIN && refused_us >= REFUSED_US {
            Some(SendingEnd::Refused { seconds: refused_us / 1_000_000 })
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(class: &str, at_s: u64, pause_s: Option<u64>) -> CallRecord {
        CallRecord {
            class: class.to_owned(),
            ended_at: at_s * 1_000_000,
            retry_after_ms: pause_s.map(|pause| pause * 1_000),
            ..CallRecord::default()
        }
    }

    /// What follows from calls of these classes, at this interval in seconds.
    #[track_caller]
    fn check(calls: &[(&str, u64, Option<u64>)], expected: Option<SendingEnd>) {
        let (mut run, mut now) = (RefusalRun::default(), 0);
        for (class, after, pause) in calls {
            now += after;
            run.add(&call(class, now, *pause));
        }
        assert_eq!(run.end(), expected, "{calls:?}");
    }

    #[test]
    fn what_ends_the_sending() {
        let (served, hour) = (("answer", 1, None), ("throttled", 1, Some(3_600)));
        check(&[served, hour, hour], None);
        check(&[served, hour, hour, hour], Some(SendingEnd::LongPause { seconds: 3_600 }));
        check(&[hour, served, hour, hour], None);
        let minute = ("throttled", 1, Some(60));
        check(&[hour, hour, minute, hour], None);
        check(&[minute; 50], None);
        let spent = ("billing", 1, None);
        check(&[spent, spent, spent], Some(SendingEnd::Spent));
        check(&[spent, hour, spent, served], None);
    }

    #[test]
    fn refusals_of_more_than_a_minute_are_a_ban() {
        for (every, calls, expected) in [
            (1, 60, None),
            (1, 89, None),
            (1, 92, Some(SendingEnd::Refused { seconds: 91 })),
            (5, 19, None),
            (5, 20, Some(SendingEnd::Refused { seconds: 95 })),
        ] {
            check(&vec![("throttled", every, None); calls], expected);
            check(&vec![("auth", every, None); calls], expected);
            // What failed otherwise says nothing.
            check(&vec![("fault", every, None); calls], None);
            check(&vec![("caller_fault", every, None); calls], None);
        }
        let mut calls = vec![("throttled", 1, None); 200];
        calls[195] = ("answer", 1, None);
        check(&calls, None);
    }
}
