//! How often calls of one class fail at an upstream, and when the class rests there.
//!
//! An upstream can be well and yet useless for one kind of call: its logs time out, or
//! three in ten of its traces fail. So each class has a share of failures and a breaker
//! of its own. The share is a moving average per call: a failure moves it by 1/20 of the
//! way to one, an answer by 1/20 of the way to zero, so that it looks back over about
//! twenty calls. From a fifth on the class rests, as it does after several failures in a
//! row when it is logs or traces, whose failures say nothing of the upstream as a whole: they
//! read what nothing else reads, and take so long that they fail where nothing else does.
//!
//! A class that rests is a last resort for its calls; the others do not notice. What the
//! share means for the order of candidates is said at `Upstream::cost`.

use std::sync::atomic::{AtomicU32, Ordering};

use wellhead_eth::CostClass;

use crate::breaker::{BreakerBounds, BreakerState, CircuitBreaker, TrialClaim};
use crate::stamp::{ExchangeSpan, Stamp};

/// A share of one, in the fixed point in which it is kept.
const ONE: u32 = 1 << 20;
/// The share looks back over about this many calls.
const WINDOW_CALLS: u32 = 20;
/// From this share on a class rests.
const SHARE_MAX: u32 = ONE / 5;

/// The share of calls of one class that failed lately, and the breaker of that class.
#[derive(Debug, Default)]
pub(crate) struct ClassFailureRate {
    /// Of failures, in parts of [`ONE`]. Two racing writers may lose one sample.
    share: AtomicU32,
    breaker: CircuitBreaker,
}

impl ClassFailureRate {
    /// Goes by other bounds of the upstream from now on.
    pub(crate) fn set_bounds(&self, class: CostClass, bounds: BreakerBounds) {
        self.breaker.set_bounds(bounds_of(class, bounds));
    }

    /// The share of failures, from zero to one.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.share.load(Ordering::Relaxed)) / f64::from(ONE)
    }

    /// Whether it is well: nothing that depends on the time.
    pub(crate) fn is_well(&self) -> bool {
        self.breaker.is_closed()
    }

    /// Whether its calls should go elsewhere: its breaker is open, or a trial is in progress.
    pub(crate) fn rests(&self, now: Stamp) -> bool {
        match self.breaker.state(now) {
            BreakerState::Closed => false,
            BreakerState::Open(_) => true,
            BreakerState::HalfOpen => !self.breaker.takes_trial(now),
        }
    }

    /// Notes that a call is sent.
    pub(crate) fn begin(&self, now: Stamp) -> TrialClaim {
        self.breaker.begin(now)
    }

    /// Gives back the trial of a call that was sent then.
    pub(crate) fn release(&self, began: Stamp) {
        self.breaker.release(began);
    }

    /// Notes an answer, also one that refuses the call for its content.
    pub(crate) fn answered(&self, span: ExchangeSpan) {
        // Stored only when it changes: this is the request path.
        let share = self.share.load(Ordering::Relaxed);
        if share != 0 {
            let less = (share / WINDOW_CALLS).max(1);
            self.share.store(share - less, Ordering::Relaxed);
        }
        self.breaker.succeeded(span);
    }

    /// Notes a failure; true when the class begins to rest that was well before.
    pub(crate) fn failed(&self, span: ExchangeSpan) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let share = share + (ONE - share) / WINDOW_CALLS;
        self.share.store(share, Ordering::Relaxed);
        self.breaker.failed(span, share >= SHARE_MAX) && self.breaker.rests_anew()
    }
}

/// The bounds of a class, by those of the upstream.
fn bounds_of(class: CostClass, bounds: BreakerBounds) -> BreakerBounds {
    let failures_max = if class.is_heavy() { bounds.failures_max } else { u32::MAX };
    BreakerBounds { failures_max, successes_min: 1, ..bounds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::{ms, span};

    fn failure_rate(class: CostClass) -> ClassFailureRate {
        let rate = ClassFailureRate::default();
        rate.set_bounds(class, BreakerBounds::default());
        rate
    }

    /// Plays `f` (failure) and `.` (answer), one a millisecond, and tells the share in
    /// percent and whether the class then rests.
    fn check(class: CostClass, script: &str, percent: u32, rests: bool) {
        let rate = failure_rate(class);
        let mut now = 1;
        for act in script.chars().filter(|act| !act.is_whitespace()) {
            now += 1;
            match act {
                'f' => drop(rate.failed(span(now, now))),
                '.' => rate.answered(span(now, now)),
                other => panic!("unknown act {other}"),
            }
        }
        let told = ((rate.share() * 100.0).round() as u32, rate.rests(ms(now)));
        assert_eq!(told, (percent, rests), "{script}");
    }

    #[test]
    fn the_share_follows_the_formula() {
        // One failure: 1/20. Each further answer takes 1/20 of it away again.
        check(CostClass::Call, "f", 5, false);
        check(CostClass::Call, "f ..........", 3, false);
        check(CostClass::Call, "ffff", 19, false);
        check(CostClass::Call, "fffff", 23, true);
        check(CostClass::Call, "f....f....f....f....f....f....f....f....", 16, false);
        check(CostClass::Call, "..........", 0, false);
    }

    #[test]
    fn three_in_ten_rest_after_a_while_and_one_in_ten_does_not() {
        check(CostClass::Call, &("f..f...f..".repeat(3) + "f"), 26, true);
        check(CostClass::Call, &"f.........".repeat(100), 8, false);
    }

    #[test]
    fn logs_and_traces_rest_after_three_in_a_row() {
        check(CostClass::Logs, "fff", 14, true);
        check(CostClass::Trace, "ff.f", 14, false);
        check(CostClass::Call, "fff", 14, false);
    }

    #[test]
    fn a_class_that_rested_is_tried_by_one_call_at_a_time() {
        let rate = failure_rate(CostClass::Logs);
        for _ in 0..3 {
            rate.failed(span(10, 10));
        }
        assert!(rate.rests(ms(1009)));
        assert!(!rate.rests(ms(1010)), "the rest is over");
        rate.begin(ms(1010));
        assert!(rate.rests(ms(1011)), "a call tries it");
        assert!(!rate.failed(span(1010, 1100)), "it rested before: no news");
        assert!(rate.rests(ms(3000)), "twice as long");
        assert!(!rate.rests(ms(3100)));
        rate.begin(ms(3100));
        rate.answered(span(3100, 3150));
        assert!(!rate.rests(ms(3151)), "well again");
    }

    #[test]
    fn the_share_comes_back_to_nothing() {
        let rate = failure_rate(CostClass::Call);
        for _ in 0..100 {
            rate.failed(span(10, 10));
        }
        assert!(rate.share() > 0.99);
        (0..1000).for_each(|_| rate.answered(span(5, 20)));
        assert_eq!(rate.share(), 0.0);
    }
}
