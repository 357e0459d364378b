//! When an upstream rests, and for how long.
//!
//! A count of consecutive failures rather than a rate: with few calls a rate
//! says nothing, and a dead upstream has no successes to count against.
//! Rests double from `rest` up to `rest_max`; the doubling is forgotten only
//! after the upstream stayed well for as long as `rest_max`, so that one which
//! answers a probe and fails the next call does not start over each time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The bounds of resting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerBounds {
    /// So many failures in a row start a rest. At least 1.
    pub failures_max: u32,
    /// The first rest.
    pub rest: Duration,
    /// No rest is longer.
    pub rest_max: Duration,
}

impl Default for BreakerBounds {
    fn default() -> Self {
        Self { failures_max: 3, rest: Duration::from_secs(1), rest_max: Duration::from_secs(30) }
    }
}

/// The breaker of one upstream. All instants are milliseconds of the owner's epoch.
#[derive(Debug)]
pub(crate) struct Breaker {
    bounds: BreakerBounds,
    failures: AtomicU32,
    /// Rests taken since it was last well for long.
    rests: AtomicU32,
    /// When the present rest began; zero when not resting.
    rest_began_ms: AtomicU64,
    rest_ends_ms: AtomicU64,
    recovered_ms: AtomicU64,
}

/// What the breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    Closed,
    /// Resting until this millisecond.
    Open(u64),
    /// The rest is over; a probe or a last resort may try.
    HalfOpen,
}

impl Breaker {
    pub(crate) fn new(bounds: BreakerBounds) -> Self {
        Self {
            bounds,
            failures: AtomicU32::new(0),
            rests: AtomicU32::new(0),
            rest_began_ms: AtomicU64::new(0),
            rest_ends_ms: AtomicU64::new(0),
            recovered_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn state(&self, now_ms: u64) -> BreakerState {
        if self.rest_began_ms.load(Ordering::Relaxed) == 0 {
            return BreakerState::Closed;
        }
        match self.rest_ends_ms.load(Ordering::Relaxed) {
            ends if ends > now_ms => BreakerState::Open(ends),
            _ => BreakerState::HalfOpen,
        }
    }

    /// Notes an exchange that went well. `began_ms` is when it was sent: an answer
    /// to something sent before the rest says nothing about now.
    /// True when this ends a rest.
    pub(crate) fn succeeded(&self, began_ms: u64, now_ms: u64) -> bool {
        let rest_began = self.rest_began_ms.load(Ordering::Relaxed);
        if rest_began == 0 {
            self.answered();
            return false;
        }
        if began_ms < rest_began {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.recovered_ms.store(now_ms, Ordering::Relaxed);
        self.rest_began_ms.store(0, Ordering::Relaxed);
        true
    }

    /// Notes an exchange that shows no more than that the upstream works: failures
    /// are no longer in a row, but a rest goes on until something goes well.
    pub(crate) fn answered(&self) {
        // Stored only when it changes: this is the request path.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a failure; `at_once` rests without counting. True when this starts a rest.
    pub(crate) fn failed(&self, began_ms: u64, now_ms: u64, at_once: bool) -> bool {
        let rest_began = self.rest_began_ms.load(Ordering::Relaxed);
        if rest_began != 0 {
            // Many calls fail together when an upstream dies: only a failure of something
            // sent after the rest ended makes the next rest longer.
            if began_ms >= self.rest_ends_ms.load(Ordering::Relaxed) {
                self.rest(now_ms, self.rests.load(Ordering::Relaxed).saturating_add(1));
                return true;
            }
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if !at_once && failures < self.bounds.failures_max {
            return false;
        }
        let well_ms = now_ms.saturating_sub(self.recovered_ms.load(Ordering::Relaxed));
        let relapsed = self.rests.load(Ordering::Relaxed) > 0
            && u128::from(well_ms) < self.bounds.rest_max.as_millis();
        let rests = if relapsed { self.rests.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.rest(now_ms, rests);
        true
    }

    fn rest(&self, now_ms: u64, rests: u32) {
        let doubled = self.bounds.rest.saturating_mul(2_u32.saturating_pow(rests.min(16) - 1));
        let rest = doubled.min(self.bounds.rest_max);
        let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
        self.rests.store(rests, Ordering::Relaxed);
        self.rest_ends_ms.store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
        // Never zero: zero means not resting.
        self.rest_began_ms.store(now_ms.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays steps such as `100f` (failure of a call sent at 100), `100!` (at once) and
    /// `100s` (success) and `100n` (neutral, but it works), each ending when it began unless written `100-900f`.
    fn check(script: &str, at_ms: u64, expected: BreakerState) {
        let breaker = Breaker::new(BreakerBounds {
            failures_max: 3,
            rest: Duration::from_secs(1),
            rest_max: Duration::from_secs(8),
        });
        for step in script.split_whitespace() {
            let (span, act) = step.split_at(step.len() - 1);
            let (began, ended) = span.split_once('-').unwrap_or((span, span));
            let (began, ended) = (began.parse().expect("ms"), ended.parse().expect("ms"));
            match act {
                "f" => drop(breaker.failed(began, ended, false)),
                "!" => drop(breaker.failed(began, ended, true)),
                "s" => drop(breaker.succeeded(began, ended)),
                "n" => breaker.answered(),
                other => panic!("unknown act {other}"),
            }
        }
        assert_eq!(breaker.state(at_ms), expected, "{script} at {at_ms}");
    }

    #[test]
    fn three_failures_in_a_row_rest() {
        check("10f 20f", 30, BreakerState::Closed);
        check("10f 20f 30f", 40, BreakerState::Open(1030));
        check("10f 20f 25s 30f", 40, BreakerState::Closed);
    }

    #[test]
    fn a_refused_call_breaks_the_row_but_ends_no_rest() {
        check("10f 20f 25n 30f", 40, BreakerState::Closed);
        check("10! 1020n", 1030, BreakerState::HalfOpen);
    }

    #[test]
    fn a_refused_connection_rests_at_once() {
        check("10!", 20, BreakerState::Open(1010));
    }

    #[test]
    fn the_rest_ends_half_open_until_a_success() {
        check("10!", 1010, BreakerState::HalfOpen);
        check("10! 1020s", 1030, BreakerState::Closed);
    }

    #[test]
    fn calls_that_fail_together_make_one_rest() {
        check("10! 5-11f 6-12f 7-13!", 20, BreakerState::Open(1010));
    }

    #[test]
    fn each_failed_probe_doubles_the_rest() {
        check("10! 1010f", 1011, BreakerState::Open(3010));
        check("10! 1010f 3010f 7010f", 7011, BreakerState::Open(15_010));
        check("10! 1010f 3010f 7010f 15010f", 15_011, BreakerState::Open(23_010));
    }

    #[test]
    fn an_answer_from_before_the_rest_does_not_end_it() {
        check("10! 5-500s", 600, BreakerState::Open(1010));
    }

    #[test]
    fn a_relapse_soon_after_rests_longer_and_a_late_one_starts_over() {
        check("10! 1010s 2000!", 2001, BreakerState::Open(4000));
        check("10! 1010s 20000!", 20_001, BreakerState::Open(21_000));
    }
}
