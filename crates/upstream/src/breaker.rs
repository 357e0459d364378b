//! The circuit breaker: when it opens, and for how long.
//!
//! It counts consecutive failures rather than a rate: with few calls a rate
//! says nothing, and a dead upstream has no successes to compare with.
//! The open time doubles from `rest` up to `rest_max`; the doubling is reset only
//! after the upstream stayed healthy for `rest_max`, so that an upstream which
//! answers a probe and fails the next call does not start over each time.
//!
//! After that time the breaker is half-open: the next call is a trial. One trial at a time
//! is claimed, so that one call and not all of them finds out that the upstream still fails;
//! the claim ends with the call, even with an abandoned one.
//!
//! For rates of failures see `failure_rate`, which has a breaker for each class.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::stamp::{ExchangeSpan, Stamp, StampCell};

/// The bounds of resting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerBounds {
    /// This many failures in a row start a rest. At least 1.
    pub failures_max: u32,
    /// This many good answers in a row end one; zero counts as one.
    pub successes_min: u32,
    /// The first rest.
    pub rest: Duration,
    /// No rest is longer.
    pub rest_max: Duration,
}

impl Default for BreakerBounds {
    fn default() -> Self {
        Self {
            failures_max: 3,
            successes_min: 1,
            rest: Duration::from_secs(1),
            rest_max: Duration::from_secs(30),
        }
    }
}

/// A trial that does not end holds others off no longer: some calls may take that long.
const TRIAL: Duration = Duration::from_secs(5);

/// The breaker of one upstream, or of one class of calls.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// Looked at when something failed or recovered.
    bounds: Mutex<BreakerBounds>,
    failures: AtomicU32,
    /// Good answers in a row since the rest began.
    successes: AtomicU32,
    /// Rests taken since it was last well for long.
    rests: AtomicU32,
    /// When the present rest began; none when not resting.
    rest_began: StampCell,
    rest_ends: StampCell,
    recovered: StampCell,
    /// When it last went from well to resting.
    down: StampCell,
    /// Until when a call on trial is under way; none or past: none is.
    trial_until: StampCell,
}

/// What the breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    Closed,
    /// Resting until then.
    Open(Stamp),
    /// The rest is over; a probe or a last resort may try.
    HalfOpen,
}

/// What a call that is sent is to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrialClaim {
    /// Nothing is to be found out.
    None,
    /// It is the one to find out; see [`CircuitBreaker::release`].
    Claimed,
    /// Another one is.
    Taken,
}

impl CircuitBreaker {
    /// Goes by other bounds from now on. A rest that began goes on.
    pub(crate) fn set_bounds(&self, bounds: BreakerBounds) {
        *self.bounds.lock() = bounds;
    }

    fn bounds(&self) -> BreakerBounds {
        *self.bounds.lock()
    }

    pub(crate) fn state(&self, now: Stamp) -> BreakerState {
        if self.is_closed() {
            return BreakerState::Closed;
        }
        match self.rest_ends.get() {
            Some(ends) if ends > now => BreakerState::Open(ends),
            Some(_) | None => BreakerState::HalfOpen,
        }
    }

    /// Whether it lets everything through: what nearly every call finds, without a clock.
    pub(crate) fn is_closed(&self) -> bool {
        self.rest_began.get().is_none()
    }

    /// Whether it is half-open and no trial is in progress.
    pub(crate) fn takes_trial(&self, now: Stamp) -> bool {
        self.state(now) == BreakerState::HalfOpen && self.is_untried(now)
    }

    /// Whether no call is on trial.
    pub(crate) fn is_untried(&self, now: Stamp) -> bool {
        self.trial_until.get() <= Some(now)
    }

    /// Notes that a call is sent: on trial when it is half open, and first.
    pub(crate) fn begin(&self, now: Stamp) -> TrialClaim {
        match self.state(now) {
            BreakerState::HalfOpen => self.claim(now),
            BreakerState::Closed | BreakerState::Open(_) => TrialClaim::None,
        }
    }

    /// Claims the trial. Of several threads that look at the same moment one has it.
    pub(crate) fn claim(&self, now: Stamp) -> TrialClaim {
        let held = self.trial_until.get();
        let is_claimed =
            held <= Some(now) && self.trial_until.replace(held, Some(now.after(TRIAL)));
        if is_claimed { TrialClaim::Claimed } else { TrialClaim::Taken }
    }

    /// Gives back a claim made at `began`. Does nothing when its outcome was settled, or
    /// when it took so long that another trial began.
    pub(crate) fn release(&self, began: Stamp) {
        // It fails when the claim is no longer ours.
        let _ = self.trial_until.replace(Some(began.after(TRIAL)), None);
    }

    /// Whether a rest ended after `at`.
    pub(crate) fn recovered_after(&self, at: Stamp) -> bool {
        self.recovered.get() > Some(at)
    }

    /// Since when it has not been well, however often it was tried meanwhile; `None` while it is.
    pub(crate) fn down_since(&self) -> Option<Stamp> {
        self.down.get().filter(|_| !self.is_closed())
    }

    /// Whether this is the first rest since it was last well for long.
    pub(crate) fn rests_anew(&self) -> bool {
        self.rests.load(Ordering::Relaxed) == 1
    }

    /// Notes an exchange that went well. An answer to something sent before the rest says nothing
    /// about now. True when this ends a rest.
    pub(crate) fn succeeded(&self, span: ExchangeSpan) -> bool {
        let Some(rest_began) = self.rest_began.get() else {
            self.answered();
            return false;
        };
        if span.began < rest_began {
            return false;
        }
        self.trial_until.clear();
        let successes = self.successes.fetch_add(1, Ordering::Relaxed) + 1;
        if successes < self.bounds().successes_min {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.recovered.set(span.ended);
        self.rest_began.clear();
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
    pub(crate) fn failed(&self, span: ExchangeSpan, at_once: bool) -> bool {
        let ExchangeSpan { began, ended: now } = span;
        if let Some(rest_began) = self.rest_began.get() {
            if began >= rest_began {
                self.successes.store(0, Ordering::Relaxed);
            }
            // Many calls fail together when an upstream dies: only a failure of something
            // sent after the rest ended makes the next rest longer.
            if Some(began) >= self.rest_ends.get() {
                self.rest(now, self.rests.load(Ordering::Relaxed).saturating_add(1));
                return true;
            }
            return false;
        }
        // It has answered since: what was sent before says nothing of now.
        let recovered = self.recovered.get();
        if Some(began) < recovered {
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if !at_once && failures < self.bounds().failures_max {
            return false;
        }
        let was_well = recovered.map_or(Duration::MAX, |recovered| now.since(recovered));
        let relapsed = self.rests.load(Ordering::Relaxed) > 0
            && was_well.as_millis() < self.bounds().rest_max.as_millis();
        let rests = if relapsed { self.rests.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.down.set(now);
        self.rest(now, rests);
        true
    }

    fn rest(&self, now: Stamp, rests: u32) {
        let doubled = self.bounds().rest.saturating_mul(2_u32.saturating_pow(rests.min(16) - 1));
        let rest = doubled.min(self.bounds().rest_max);
        self.rests.store(rests, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        self.trial_until.clear();
        self.rest_ends.set(now.after(rest));
        self.rest_began.set(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::{ms, span};

    fn breaker(successes_min: u32) -> CircuitBreaker {
        let breaker = CircuitBreaker::default();
        breaker.set_bounds(BreakerBounds {
            failures_max: 3,
            successes_min,
            rest: Duration::from_secs(1),
            rest_max: Duration::from_secs(8),
        });
        breaker
    }

    /// Plays steps such as `100f` (failure of a call sent at 100), `100!` (at once) and
    /// `100s` (success) and `100n` (neutral, but it works), each ending when it began unless written `100-900f`.
    fn check(script: &str, at: u64, expected: BreakerState) {
        play(&breaker(1), script, at, expected);
    }

    fn play(breaker: &CircuitBreaker, script: &str, at: u64, expected: BreakerState) {
        for step in script.split_whitespace() {
            let (times, act) = step.split_at(step.len() - 1);
            let (began, ended) = times.split_once('-').unwrap_or((times, times));
            let span = span(began.parse().expect("ms"), ended.parse().expect("ms"));
            match act {
                "f" => drop(breaker.failed(span, false)),
                "!" => drop(breaker.failed(span, true)),
                "s" => drop(breaker.succeeded(span)),
                "n" => breaker.answered(),
                other => panic!("unknown act {other}"),
            }
        }
        assert_eq!(breaker.state(ms(at)), expected, "{script} at {at}");
    }

    #[test]
    fn three_failures_in_a_row_rest() {
        check("10f 20f", 30, BreakerState::Closed);
        check("10f 20f 30f", 40, BreakerState::Open(ms(1030)));
        check("10f 20f 25s 30f", 40, BreakerState::Closed);
    }

    #[test]
    fn a_refused_call_breaks_the_row_but_ends_no_rest() {
        check("10f 20f 25n 30f", 40, BreakerState::Closed);
        check("10! 1020n", 1030, BreakerState::HalfOpen);
    }

    #[test]
    fn a_refused_connection_rests_at_once() {
        check("10!", 20, BreakerState::Open(ms(1010)));
    }

    #[test]
    fn the_rest_ends_half_open_until_a_success() {
        check("10!", 1010, BreakerState::HalfOpen);
        check("10! 1020s", 1030, BreakerState::Closed);
    }

    #[test]
    fn calls_that_fail_together_make_one_rest() {
        check("10! 5-11f 6-12f 7-13!", 20, BreakerState::Open(ms(1010)));
    }

    #[test]
    fn each_failed_probe_doubles_the_rest() {
        check("10! 1010f", 1011, BreakerState::Open(ms(3010)));
        check("10! 1010f 3010f 7010f", 7011, BreakerState::Open(ms(15_010)));
        check("10! 1010f 3010f 7010f 15010f", 15_011, BreakerState::Open(ms(23_010)));
    }

    #[test]
    fn an_answer_from_before_the_rest_does_not_end_it() {
        check("10! 5-500s", 600, BreakerState::Open(ms(1010)));
    }

    #[test]
    fn a_relapse_soon_after_rests_longer_and_a_late_one_starts_over() {
        check("10! 1010s 2000!", 2001, BreakerState::Open(ms(4000)));
        check("10! 1010s 20000!", 20_001, BreakerState::Open(ms(21_000)));
    }

    #[test]
    fn a_rest_ends_after_as_many_good_answers_in_a_row_as_are_asked_for() {
        play(&breaker(3), "10! 1020s 1030s", 1040, BreakerState::HalfOpen);
        play(&breaker(3), "10! 1020s 1030s 1040s", 1050, BreakerState::Closed);
        play(&breaker(3), "10! 1020s 1030s 1040f 3050s 3060s", 3070, BreakerState::HalfOpen);
        play(&breaker(0), "10! 1020s", 1030, BreakerState::Closed);
    }

    #[test]
    fn what_hung_since_before_the_recovery_does_not_count() {
        check("10! 900-1020s 15-1030f 16-1040f 17-1050!", 1060, BreakerState::Closed);
    }

    #[test]
    fn an_outage_lasts_from_the_first_rest_to_the_recovery() {
        let breaker = breaker(1);
        assert_eq!((breaker.down_since(), breaker.recovered_after(ms(1))), (None, false));
        play(&breaker, "10! 1010f", 1011, BreakerState::Open(ms(3010)));
        assert_eq!(breaker.down_since(), Some(ms(10)), "a trial that failed is the same outage");
        play(&breaker, "3010-3020s", 3021, BreakerState::Closed);
        assert_eq!((breaker.down_since(), breaker.recovered_after(ms(3019))), (None, true));
        assert!(!breaker.recovered_after(ms(3020)));
        play(&breaker, "4000!", 4001, BreakerState::Open(ms(8000)));
        assert_eq!(breaker.down_since(), Some(ms(4000)));
    }

    #[test]
    fn one_call_at_a_time_is_on_trial() {
        let breaker = breaker(1);
        assert!(!breaker.takes_trial(ms(5)), "nothing to try");
        assert_eq!(breaker.begin(ms(5)), TrialClaim::None);
        breaker.failed(span(10, 10), true);
        assert!(!breaker.takes_trial(ms(1009)), "it rests");
        assert!(breaker.takes_trial(ms(1010)));
        assert_eq!(breaker.begin(ms(1010)), TrialClaim::Claimed);
        assert_eq!(breaker.begin(ms(1010)), TrialClaim::Taken, "both looked before either began");
        assert!(!breaker.takes_trial(ms(1011)), "a call tries");
        assert!(breaker.takes_trial(ms(1010 + TRIAL.as_millis() as u64)), "no call waits for ever");
        breaker.failed(span(1010, 1100), false);
        assert!(breaker.takes_trial(ms(3100)), "the trial ended with its failure");
        breaker.succeeded(span(3100, 3110));
        assert!(!breaker.takes_trial(ms(3120)), "well again");
    }

    #[test]
    fn a_claim_ends_with_its_call_and_with_no_other() {
        let breaker = breaker(1);
        breaker.failed(span(10, 10), true);
        assert_eq!(breaker.begin(ms(1010)), TrialClaim::Claimed);
        breaker.release(ms(1009));
        assert_eq!(breaker.begin(ms(1020)), TrialClaim::Taken, "not the other's to give back");
        breaker.release(ms(1010));
        assert_eq!(breaker.begin(ms(1020)), TrialClaim::Claimed);
        let later = 1020 + TRIAL.as_millis() as u64;
        assert_eq!(breaker.begin(ms(later)), TrialClaim::Claimed, "no call waits for ever");
        breaker.release(ms(1020));
        assert_eq!(breaker.begin(ms(later + 1)), TrialClaim::Taken);
    }

    #[test]
    fn of_many_threads_one_has_the_trial() {
        for _ in 0..100 {
            let breaker = breaker(1);
            breaker.failed(span(10, 10), true);
            let claim = || breaker.begin(ms(1010)) == TrialClaim::Claimed;
            let claimed = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
                threads
                    .into_iter()
                    .filter_map(|it| it.join().expect("no panic").then_some(()))
                    .count()
            });
            assert_eq!(claimed, 1);
        }
    }
}
