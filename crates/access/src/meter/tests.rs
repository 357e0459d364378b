//! Calls against quotas: what passes, what is refused, and what is given back.

use super::*;

use wellhead_eth::MethodTable;
use wellhead_limit::Caps;

use crate::quota::{Quota, QuotaGroup, QuotaRate};

/// 2026-11-29 12:00 UTC: a day and a half before December.
const NOON: u64 = 20_786 * DAY_SECONDS + DAY_SECONDS / 2;

fn at(ms: u64) -> MeterTime {
    MeterTime { elapsed: Duration::from_millis(ms), unix_seconds: NOON + ms / 1000 }
}

fn rate(per_second: f64, burst: f64) -> Option<QuotaRate> {
    Some(QuotaRate::new(per_second, burst))
}

fn bounds(calls: Option<QuotaRate>, credits: Option<QuotaRate>) -> QuotaBounds {
    QuotaBounds { calls, credits, in_flight: None }
}

fn group(pattern: &str, bounds: QuotaBounds) -> QuotaGroup {
    QuotaGroup { methods: vec![pattern.parse().expect("a pattern")], bounds }
}

fn meter(kind: SubjectKind, quota: Quota) -> SubjectMeter {
    SubjectMeter::new(kind, "acme".into(), Arc::new(QuotaPlan::new(quota)))
}

fn call(method: &str, credits: u32) -> MeteredCall<'_> {
    MeteredCall { row: MethodTable::standard().row(method), method, credits }
}

/// Plays `at_ms:method:credits` against meters of an address, a key and a tenant; each call ends at once.
/// Compares what each was told: `ok`, or the subject, the limit and the wait in ms.
fn check(meters: &[SubjectMeter], script: &str, expected: &str) {
    let told = |step: &str| {
        let mut parts = step.split(':');
        let ms = parts.next().and_then(|ms| ms.parse().ok()).expect("ms");
        let method = parts.next().expect("method");
        let credits = parts.next().and_then(|credits| credits.parse().ok()).expect("credits");
        match CallCharge::take(meters, call(method, credits), at(ms)) {
            Ok(_) => "ok".to_owned(),
            Err(LimitDenied { subject, limit, retry_after, .. }) => {
                format!("{}.{}:{}", subject.word(), limit.word(), retry_after.as_millis())
            }
        }
    };
    let found: Vec<_> = script.split_whitespace().map(told).collect();
    assert_eq!(found.join(" "), expected, "{script}");
}

#[test]
fn calls_and_credits_are_bounded_apart() {
    let quota = Quota { bounds: bounds(rate(10.0, 2.0), rate(100.0, 50.0)), ..Quota::default() };
    check(
        &[meter(SubjectKind::Key, quota)],
        "0:eth_call:1 0:eth_call:1 0:eth_call:1 1000:eth_call:45 1000:eth_call:10 1000:eth_call:5",
        "ok ok key.calls_per_second:100 ok key.credits_per_second:50 ok",
    );
}

#[test]
fn where_one_refuses_nothing_is_taken_from_the_others() {
    let narrow = || Quota { bounds: bounds(rate(1.0, 1.0), None), ..Quota::default() };
    let wide = || Quota { bounds: bounds(rate(1.0, 2.0), None), ..Quota::default() };
    // The tenant refuses the third; the address would be empty if it had paid for it.
    let meters = [meter(SubjectKind::Address, wide()), meter(SubjectKind::Tenant, narrow())];
    check(
        &meters,
        "0:eth_call:1 0:eth_call:1 0:eth_call:1 1000:eth_call:1",
        "ok tenant.calls_per_second:1000 tenant.calls_per_second:1000 ok",
    );
    assert!(meters[0].is_idle(Duration::from_secs(2)) && !meters[0].is_idle(Duration::ZERO));
}

#[test]
fn a_group_is_bounded_within_the_whole() {
    let logs = group("eth_getLogs", bounds(rate(1.0, 1.0), None));
    let traces = group("TRACE_*", bounds(None, rate(30.0, 30.0)));
    let quota = Quota {
        bounds: bounds(rate(3.0, 3.0), None),
        groups: vec![logs, traces],
        ..Quota::default()
    };
    check(
        &[meter(SubjectKind::Tenant, quota)],
        "0:eth_getLogs:9 0:eth_getLogs:9 0:trace_block:30 0:trace_block:1 0:trace_unlisted:1 0:eth_call:1 \
         0:eth_call:1",
        "ok tenant.calls_per_second:1000 ok tenant.credits_per_second:33 \
         tenant.credits_per_second:33 ok tenant.calls_per_second:333",
    );
}

#[test]
fn caps_end_with_their_day_and_month() {
    let caps = Caps { day: Some(10), month: Some(15) };
    let meters = [meter(SubjectKind::Tenant, Quota { caps, ..Quota::default() })];
    let half_a_day = DAY_SECONDS * 1000 / 2;
    check(
        &meters,
        &format!(
            "0:eth_call:8 0:eth_call:3 0:eth_call:2 {half_a_day}:eth_call:5 {half_a_day}:eth_call:1"
        ),
        "ok tenant.credits_per_day:43200000 ok ok tenant.credits_per_month:86400000",
    );
}

#[test]
fn a_price_is_corrected_after_the_call() {
    let caps = Caps { day: Some(100), month: None };
    let quota = Quota { bounds: bounds(None, rate(10.0, 10.0)), caps, ..Quota::default() };
    let meters = [meter(SubjectKind::Key, quota)];
    let settle = |credits: u32, actual: u32| {
        let mut charge = CallCharge::take(&meters, call("eth_getLogs", credits), at(0))?;
        charge.settle(actual, at(0));
        assert_eq!(charge.credits(), actual);
        Ok::<_, LimitDenied>(())
    };
    let spent = || meters[0].ledger().on_day(at(0).day());
    assert_eq!((settle(10, 1), spent()), (Ok(()), 1));
    assert_eq!((settle(9, 29), spent()), (Ok(()), 30), "nine were there again");
    let denied = settle(1, 1).expect_err("20 are owed");
    assert_eq!((denied.limit, denied.retry_after.as_millis()), (QuotaLimit::Credits, 2_100));
    assert_eq!(spent(), 30);
}

#[test]
fn requests_and_the_calls_of_a_group_hold_places() {
    let at_once = |most| QuotaBounds { in_flight: Some(most), ..QuotaBounds::default() };
    let groups = vec![group("trace_*", at_once(1))];
    let quota = Quota { bounds: at_once(2), groups, ..Quota::default() };
    let meters = [meter(SubjectKind::Key, Quota::default()), meter(SubjectKind::Tenant, quota)];
    let place = || InFlightPlace::take(&meters, at(0)).map_err(|denied| denied.limit);
    let trace =
        || CallCharge::take(&meters, call("trace_block", 1), at(0)).map_err(|denied| denied.limit);
    let (first, second) = (place().expect("one of two"), place().expect("two of two"));
    assert_eq!(place().err(), Some(QuotaLimit::InFlight));
    drop(first);
    let third = place().expect("one is free");
    let charge = trace().expect("the only one");
    assert_eq!(trace().err(), Some(QuotaLimit::InFlight));
    assert!(CallCharge::take(&meters, call("eth_call", 1), at(0)).is_ok(), "of no group");
    drop(charge);
    assert!(trace().is_ok());
    drop((second, third));
    assert!(meters.iter().all(|meter| meter.is_idle(Duration::ZERO)));
}

#[test]
fn connections_and_subscriptions_are_held() {
    let quota = Quota { connections: Some(1), subscriptions: Some(2), ..Quota::default() };
    let meter = Arc::new(meter(SubjectKind::Key, quota));
    let all = || [Arc::clone(&meter)];
    let connection = HeldPlace::connection(all()).expect("one");
    let denied = HeldPlace::connection(all()).expect_err("no second");
    assert_eq!((denied.limit, denied.most), (QuotaLimit::Connections, 1.0));
    let held = [HeldPlace::subscription(all()), HeldPlace::subscription(all())];
    assert!(held.iter().all(Result::is_ok));
    let denied = HeldPlace::subscription(all()).expect_err("no third");
    assert_eq!(denied.limit, QuotaLimit::Subscriptions);
    assert!(!meter.is_idle(Duration::ZERO));
    drop((connection, held));
    assert!(meter.is_idle(Duration::ZERO) && HeldPlace::connection(all()).is_ok());
}
