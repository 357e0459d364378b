//! What a study of an upstream's limit holds, charges and keeps from being learnt.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wellhead_eth::{MethodRow, MethodTable};
use wellhead_limit::lease::LeasedLimit;
use wellhead_upstream::{
    Bound, BreakerBounds, Budget, BudgetTerms, Condition, Identity, LimitedBy, Payload, Slot,
    Standing, Upstream, UpstreamSharing, Verdict, VerdictClass,
};

const SECOND: Duration = Duration::from_secs(1);

fn row() -> &'static MethodRow {
    MethodTable::standard().row("eth_call")
}

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

fn upstream(terms: &BudgetTerms<'_>, now: Instant) -> Upstream {
    let budget = Budget::new(None, terms, 20_000 * 86_400);
    let made = Upstream::new(Identity::named("a"), Slot(3), BreakerBounds::default(), now);
    let made = made.within(budget);
    made.set_standing(Standing::Verified);
    made
}

fn limited(upstream: &Arc<Upstream>, now: Instant) -> Option<LimitedBy> {
    upstream.admit(row(), 1, now).err()
}

fn refuse(upstream: &Upstream, now: Instant) {
    let payload = Payload::None { detail: String::new() };
    upstream.settle(row(), &Verdict::new(VerdictClass::Throttled, "test", payload), now, now);
}

#[test]
fn calls_of_clients_are_held_and_own_calls_are_not() {
    let now = origin();
    let upstream = Arc::new(upstream(&BudgetTerms::default(), now));
    upstream.hold_for_study(SECOND, now);
    let held = LimitedBy { bound: Bound::Study, wait: SECOND, pace: Duration::ZERO };
    assert_eq!(limited(&upstream, now), Some(held));
    assert_eq!(upstream.paused_for(row(), now), Some(held));
    // It is well, and load balancers in front need not hear of it.
    assert_eq!(upstream.condition(now), Condition::Ready);
    drop(upstream.begin_call(row(), now));
    assert_eq!(upstream.held(Bound::Study), 1);
    assert_eq!(limited(&upstream, now + SECOND), None, "it ends by itself");
    upstream.hold_for_study(SECOND, now + SECOND * 2);
    upstream.release_from_study(now + SECOND * 2);
    assert_eq!(limited(&upstream, now + SECOND * 2), None);
}

#[test]
fn a_pause_that_is_longer_than_the_hold_is_told() {
    let now = origin();
    let terms = BudgetTerms { calls_per_second: Some(100), learn: false, ..BudgetTerms::default() };
    let upstream = Arc::new(upstream(&terms, now));
    refuse(&upstream, now);
    upstream.hold_for_study(SECOND / 2, now);
    let bound = |at| limited(&upstream, at).map(|held| held.bound);
    assert_eq!(bound(now), Some(Bound::MethodPause));
    upstream.hold_for_study(SECOND * 2, now);
    assert_eq!(bound(now), Some(Bound::Study));
}

#[test]
fn calls_begin_with_an_empty_bucket_after_a_hold() {
    let now = origin();
    // A burst of 5, a twentieth of what a second holds.
    let terms = BudgetTerms { calls_per_second: Some(100), ..BudgetTerms::default() };
    let upstream = Arc::new(upstream(&terms, now));
    upstream.release_from_study(now);
    assert_eq!(limited(&upstream, now), None, "without a hold nothing is emptied");
    upstream.hold_for_study(SECOND, now);
    let later = now + SECOND;
    upstream.release_from_study(later - Duration::from_millis(1));
    let held = limited(&upstream, later).expect("the bucket is empty");
    assert_eq!(held.bound, Bound::Calls);
    assert!(held.wait <= SECOND / 10, "{held:?}");
    assert_eq!(limited(&upstream, later + held.wait), None);
}

#[test]
fn calls_of_a_study_are_paid_from_caps_and_leave_the_rate_alone() {
    let now = origin();
    let terms = BudgetTerms {
        calls_per_second: Some(100),
        credits_per_day: Some(10),
        ..BudgetTerms::default()
    };
    let upstream = Arc::new(upstream(&terms, now));
    for _ in 0..9 {
        assert_eq!(upstream.charge_study(row(), now), 1);
    }
    assert_eq!((upstream.spending(now).day, upstream.totals().0), (Some(9), 9));
    assert_eq!(limited(&upstream, now), None, "one is left, and the bucket is full");
    assert_eq!(limited(&upstream, now).map(|held| held.bound), Some(Bound::Day));
}

#[test]
fn a_refusal_that_a_study_explains_teaches_no_rate_and_is_no_failure() {
    let now = origin();
    let learnt = |study: bool, refused_after: Duration| {
        let terms = BudgetTerms { learn: true, ..BudgetTerms::default() };
        let upstream = Arc::new(upstream(&terms, now));
        if study {
            upstream.hold_for_study(SECOND, now);
            upstream.release_from_study(now);
        }
        let later = now + refused_after;
        for _ in 0..50 {
            drop(upstream.admit(row(), 1, later - SECOND / 10));
        }
        for _ in 0..20 {
            refuse(&upstream, later);
        }
        assert_eq!(upstream.probe_due(later), None, "the breaker is closed");
        let pause = limited(&upstream, later).expect("it pauses");
        assert!(pause.bound.is_pause() && pause.wait <= SECOND, "{pause:?}");
        upstream.spending(later).learnt_rate
    };
    assert!(learnt(false, SECOND * 5).is_some());
    assert_eq!(learnt(true, SECOND * 5), None);
    assert!(learnt(true, SECOND * 12).is_some());
}

#[derive(Debug, Default)]
struct Pauses(Mutex<Vec<Duration>>);

impl UpstreamSharing for Pauses {
    fn share(&self, _: &'static str, _: LeasedLimit) {}

    fn tell_pause(&self, method: Option<&'static str>, pause: Duration) {
        assert_eq!(method, None, "all calls are held");
        self.0.lock().expect("no panic").push(pause);
    }
}

#[test]
fn replicas_hear_of_a_hold_that_is_worth_it() {
    let (now, pauses) = (origin(), Arc::new(Pauses::default()));
    let upstream = upstream(&BudgetTerms::default(), now).sharing(Arc::clone(&pauses) as _);
    upstream.hold_for_study(SECOND / 2, now);
    upstream.hold_for_study(SECOND, now);
    assert_eq!(*pauses.0.lock().expect("no panic"), [SECOND]);
}
