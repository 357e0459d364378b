//! An upstream whose settings change goes on with what was learnt and counted before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_eth::{MethodRow, MethodTable};
use wellhead_upstream::{
    BreakerBounds, Budget, BudgetTerms, Condition, Identity, Payload, Slot, Standing, Tier,
    Upstream, Verdict, VerdictClass,
};

fn row() -> &'static MethodRow {
    MethodTable::standard().row("eth_call")
}

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

fn budget(credits_per_day: u64, in_flight: Option<u32>) -> Budget {
    let terms =
        BudgetTerms { credits_per_day: Some(credits_per_day), in_flight, ..BudgetTerms::default() };
    Budget::new(None, &terms, 20_000 * 86_400)
}

fn upstream(now: Instant) -> Arc<Upstream> {
    let made = Upstream::new(Identity::named("a"), Slot(3), BreakerBounds::default(), now);
    let upstream = Arc::new(made.within(budget(10, None)));
    upstream.set_standing(Standing::Verified);
    upstream
}

fn blank(now: Instant) -> Upstream {
    let identity = Identity { tier: Tier::Fallback, ..Identity::named("a") };
    Upstream::new(identity, Slot(3), BreakerBounds::default(), now)
}

fn settle(upstream: &Upstream, class: VerdictClass, now: Instant) {
    let payload = match class {
        VerdictClass::Answer => Payload::Result("1".into()),
        _ => Payload::None { detail: String::new() },
    };
    upstream.settle(row(), &Verdict::new(class, "test", payload), now, now);
}

#[test]
fn what_was_spent_counts_against_another_budget() {
    let now = origin();
    let old = upstream(now);
    for _ in 0..4 {
        drop(old.admit(row(), 1, now).expect("four of ten"));
    }
    let later = now + Duration::from_secs(60);
    let new = blank(later).succeeding(&old);
    let new = Arc::new(new.within_instead(budget(6, None)));
    assert_eq!(new.identity().tier, Tier::Fallback);
    assert_eq!(new.condition(later), Condition::Ready);
    assert_eq!((new.spending(later).day, new.spending(later).caps.day), (Some(4), Some(6)));
    // Those that began before spend from one account, too.
    drop(old.admit(row(), 1, later).expect("five"));
    drop(new.admit(row(), 1, later).expect("six"));
    assert!(new.admit(row(), 1, later).is_err());
    assert_eq!(new.spending(later).day, Some(6));
}

#[test]
fn calls_under_way_take_places_of_both() {
    let now = origin();
    let old = upstream(now);
    let under_way = old.admit(row(), 1, now).expect("it is free");
    let new = blank(now).succeeding(&old);
    let new = Arc::new(new.within_instead(budget(10, Some(1))));
    assert_eq!(new.in_flight(), 1);
    assert!(new.admit(row(), 1, now).is_err(), "its only place is taken");
    drop(under_way);
    assert_eq!(new.in_flight(), 0);
    assert!(new.admit(row(), 1, now).is_ok());
}

#[test]
fn health_stays_and_goes_by_the_new_bounds() {
    let now = origin();
    let old = upstream(now);
    settle(&old, VerdictClass::Fault, now);
    let patient = BreakerBounds { failures_max: 5, ..BreakerBounds::default() };
    let new = blank(now).succeeding(&old);
    new.set_bounds(patient);
    for failures in 2..5 {
        settle(&new, VerdictClass::Fault, now);
        assert_eq!(new.condition(now), Condition::Ready, "{failures} failures");
    }
    settle(&new, VerdictClass::Fault, now);
    assert_eq!(new.condition(now), Condition::BreakerOpen);
    assert_eq!(old.condition(now), Condition::BreakerOpen, "both are one upstream");
}
