//! What contradicts a limit, and which rates are studied then.

use super::*;
use crate::measure::plan::ExperimentPlan as _;

const EVEN: TrackedLimit =
    TrackedLimit::Limited(RateBound { per_second: 50.0, size: Some(50.0), is_even: true });

/// What a cell of `lasted_s` seconds tells, in which `throttled` of `calls` calls were refused.
fn sign(limit: &TrackedLimit, side: &str, calls: u64, throttled: u64, lasted_s: f64) -> ProbeSign {
    let cell = Cell {
        factors: [("side".to_owned(), side.to_owned())].into(),
        ended_at: (lasted_s * 1e6) as u64,
        calls,
        ..Cell::default()
    };
    limit.sign(&cell, &CellOutcome { calls, throttled, ..CellOutcome::default() })
}

#[test]
fn refusals_below_and_none_above_contradict_a_limit() {
    for (side, calls, throttled, expected) in [
        ("below", 120, 0, ProbeSign::Agrees),
        ("below", 120, 1, ProbeSign::Agrees),
        ("below", 30, 1, ProbeSign::Agrees),
        ("below", 120, 3, ProbeSign::Lower),
        ("above", 225, 0, ProbeSign::Higher),
        // 50 at once and 50 a second for 2.25 s are 162.
        ("above", 225, 63, ProbeSign::Agrees),
        ("above", 225, 5, ProbeSign::Higher),
        ("above", 225, 150, ProbeSign::Lower),
    ] {
        let found = sign(&EVEN, side, calls, throttled, 2.25);
        assert_eq!(found, expected, "{side} {throttled} of {calls}");
    }
    // Of a window it is not known when it begins.
    let window = RateBound { per_second: 50.0, size: Some(50.0), is_even: false };
    let found = sign(&TrackedLimit::Limited(window), "above", 225, 150, 2.25);
    assert_eq!(found, ProbeSign::Agrees);
}

#[test]
fn a_generator_that_fell_behind_tells_no_higher_limit() {
    let mut cell = Cell { factors: [("side".into(), "above".into())].into(), ..Cell::default() };
    let outcome = CellOutcome { calls: 225, ..CellOutcome::default() };
    assert_eq!(EVEN.sign(&cell, &outcome), ProbeSign::Higher);
    cell.load.saturated = true;
    assert_eq!(EVEN.sign(&cell, &outcome), ProbeSign::Agrees);
}

#[test]
fn a_probe_is_cheap() {
    let calls = |limit: TrackedLimit| limit.probe().map(|plan| plan.calls_max());
    assert_eq!(calls(EVEN), Some(120 + 225 + 12));
    assert_eq!(calls(TrackedLimit::NoneUpTo(100.0)), Some(75 + 6));
    assert_eq!(calls(TrackedLimit::Unknown), None);
    // A bucket of a minute is not emptied.
    let long = RateBound { per_second: 5.0, size: Some(300.0), is_even: false };
    assert_eq!(calls(TrackedLimit::Limited(long)), Some(12 + 6));
}

#[test]
fn a_study_looks_where_the_sign_points_and_wider_each_time() {
    let range = |limit: &TrackedLimit, sign, failed| {
        let StudyRange { from, to, .. } = StudyRange::of(limit, sign, failed, 200.0);
        (from, to)
    };
    assert_eq!(range(&TrackedLimit::Unknown, ProbeSign::Agrees, 0), (12.5, 200.0));
    assert_eq!(range(&EVEN, ProbeSign::Lower, 0), (6.25, 75.0));
    assert_eq!(range(&EVEN, ProbeSign::Lower, 1), (1.5625, 200.0));
    assert_eq!(range(&EVEN, ProbeSign::Higher, 0), (50.0, 200.0));
    assert_eq!(range(&EVEN, ProbeSign::Higher, 1), (12.5, 200.0));
    assert_eq!(range(&EVEN, ProbeSign::Lower, 9), (1.0, 200.0));
}

#[test]
fn a_study_costs_no_more_than_it_may() {
    let lasting = Duration::from_secs(5);
    for calls_max in [100, 1_000, 10_000] {
        let range = StudyRange::of(&EVEN, ProbeSign::Lower, 0, 200.0);
        assert!(range.plan(lasting, calls_max).calls_max() <= calls_max, "{calls_max}");
    }
}
