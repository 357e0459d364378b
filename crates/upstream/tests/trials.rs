//! How it is found out whether an upstream is back: one call at a time, and the claim ends with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_eth::{MethodRow, MethodTable};
use wellhead_upstream::{
    BreakerBounds, Identity, InFlight, Payload, Slot, Standing, Upstream, Verdict, VerdictClass,
};

fn row() -> &'static MethodRow {
    MethodTable::standard().row("eth_call")
}

/// An upstream that failed so at `now`, and that is not probed.
fn failed(class: VerdictClass, times: usize, now: Instant) -> Arc<Upstream> {
    let identity = Identity::named("a");
    let upstream = Arc::new(Upstream::new(identity, Slot(0), BreakerBounds::default(), now));
    upstream.set_standing(Standing::Verified);
    upstream.set_tried_by_clients(true);
    for _ in 0..times {
        let verdict = Verdict::new(class, "test", Payload::None { detail: String::new() });
        upstream.settle(row(), &verdict, now, now);
    }
    upstream
}

fn admit(upstream: &Arc<Upstream>, now: Instant) -> InFlight {
    upstream.admit(row(), 1, now).expect("nothing holds it")
}

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn check(class: VerdictClass, times: usize, rest: Duration) {
    let start = Instant::now();
    let upstream = failed(class, times, start);
    let now = start + rest;
    assert!(!upstream.takes_trial(start), "{class}: it rests");
    assert!(upstream.takes_trial(now), "{class}");
    let first = admit(&upstream, now);
    let second = admit(&upstream, now);
    assert!(!first.is_second_on_trial() && second.is_second_on_trial(), "{class}");
    assert!(!upstream.takes_trial(now), "{class}: a call tries");
    drop(second);
    assert!(!upstream.takes_trial(now), "{class}: not the second's to give back");
    // Its client went away.
    drop(first);
    assert!(upstream.takes_trial(now), "{class}");
    let third = admit(&upstream, now);
    assert!(!third.is_second_on_trial(), "{class}");
    let good = Verdict::new(VerdictClass::Answer, "test", Payload::Result("1".into()));
    upstream.settle(row(), &good, now, now);
    drop(third);
    assert!(!upstream.takes_trial(now), "{class}: it is back");
    assert!(!admit(&upstream, now).is_second_on_trial(), "{class}");
}

#[test]
fn one_call_finds_out_and_gives_its_claim_back() {
    check(VerdictClass::Fault, 3, Duration::from_millis(1500));
    check(VerdictClass::Auth, 1, Duration::from_secs(61));
}

/// One answer in three keeps the upstream as a whole from resting, but not the class.
#[test]
#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn a_class_is_tried_by_one_call_as_well() {
    let start = Instant::now();
    let upstream = failed(VerdictClass::Answer, 1, start);
    for turn in 0..20 {
        let class = if turn % 3 == 2 { VerdictClass::Answer } else { VerdictClass::Fault };
        let verdict = Verdict::new(class, "test", Payload::None { detail: String::new() });
        upstream.settle(row(), &verdict, start, start);
    }
    let now = start + Duration::from_secs(40);
    assert!(upstream.class_rests(row().class, start) && !upstream.class_rests(row().class, now));
    let first = admit(&upstream, now);
    assert!(upstream.class_rests(row().class, now), "a call tries it");
    assert!(admit(&upstream, now).is_second_on_trial());
    drop(first);
    assert!(!upstream.class_rests(row().class, now), "and went away");
}
