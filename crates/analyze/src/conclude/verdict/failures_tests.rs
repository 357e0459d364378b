//! Cells in which a known share of the calls fails.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::record::Cell;

/// What becomes of a call that fails.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Status(u16),
    Body,
    Timeout,
    Throttled,
}

fn call(ending: Option<Ending>) -> CallRecord {
    let (class, status, error) = match ending {
        None => ("answer", Some(200), None),
        Some(Ending::Status(status)) => ("fault", Some(status), None),
        Some(Ending::Body) => ("fault", Some(200), None),
        Some(Ending::Timeout) => ("fault", None, Some("timeout")),
        Some(Ending::Throttled) => ("throttled", Some(429), None),
    };
    let (class, error) = (class.to_owned(), error.map(str::to_owned));
    CallRecord { class, status, error, ..CallRecord::default() }
}

/// What follows from cells of 1,000 calls, of each of which such a share fails.
fn told(shares: &[f64], ending: Ending, when: FailureSpan, seed: u64) -> Option<DraftVerdict> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut draw = |share: f64| (rng.random::<f64>() < share).then_some(ending);
    let cells: Vec<Vec<CallRecord>> =
        shares.iter().map(|share| (0..1_000).map(|_| call(draw(*share))).collect()).collect();
    told_of(&cells, when)
}

/// What follows from the calls of some cells.
fn told_of(calls: &[Vec<CallRecord>], when: FailureSpan) -> Option<DraftVerdict> {
    let cell = Cell::default();
    let played: Vec<PlayedCell<'_>> = calls
        .iter()
        .map(|calls| PlayedCell { cell: &cell, calls: calls.iter().collect(), wires: Vec::new() })
        .collect();
    of_cells(&played.iter().collect::<Vec<_>>(), when)
}

#[test]
fn a_share_at_any_rate_is_told_with_its_interval() {
    let mut missed = 0;
    for seed in 0..100 {
        let found = told(&[0.02; 5], Ending::Status(500), FailureSpan::AnyRate, seed);
        let Some(found) = found else {
            missed += 1;
            continue;
        };
        let Finding::Fails { percent, low, high, .. } = found.finding else {
            panic!("{:?}", found.finding);
        };
        assert!((1.2..2.9).contains(&percent) && low < percent && percent < high, "seed {seed}");
        assert_eq!(found.confidence, Confidence::High);
        let sentence = found.finding.to_string();
        assert!(sentence.ends_with(" % of calls fail with 500, at any rate"), "{sentence}");
    }
    // That a share is no share is said once in a hundred times.
    assert!(missed <= 4, "{missed}");
}

/// Cells of 200 calls each, of which these pass.
fn cells(passes: impl Fn(usize) -> bool) -> Vec<Vec<CallRecord>> {
    let failed = |at: usize| (!passes(at)).then_some(Ending::Status(503));
    vec![(0..200).map(|at| call(failed(at))).collect(); 6]
}

#[test]
fn what_a_limit_refuses_at_any_concurrency_is_no_failure() {
    // A bucket that was whole, and one that was empty: in each cell as many pass.
    for passes in [&(|at: usize| at < 10) as &dyn Fn(usize) -> bool, &|at| at % 20 == 0] {
        let found = told_of(&cells(passes), FailureSpan::AnyConcurrency);
        assert_eq!(found.map(|it| it.finding), None);
    }
    // A server that drops each twentieth is odd, and no limit.
    let found = told_of(&cells(|at| at % 20 != 0), FailureSpan::AnyConcurrency);
    assert!(matches!(found.map(|it| it.finding), Some(Finding::Fails { percent: 5.0, .. })));
    // By chance, most of them.
    for seed in 0..20 {
        let found = told(&[0.9; 5], Ending::Status(503), FailureSpan::AnyConcurrency, seed);
        assert!(found.is_some(), "seed {seed}");
    }
}

#[test]
fn how_they_fail_is_told() {
    let rate = FailureSpan::AnyRate;
    for (ending, when, words) in [
        (Ending::Body, rate, " % of calls fail with an error in the body, at any rate"),
        (Ending::Timeout, rate, " % of calls get no response (timeout), at any rate"),
        (
            Ending::Status(502),
            FailureSpan::AnyConcurrency,
            " % of calls fail with 502, at any concurrency",
        ),
    ] {
        let found = told(&[0.1; 3], ending, when, 1).expect("a tenth fails");
        let sentence = found.finding.to_string();
        assert!(sentence.ends_with(words), "{sentence}");
    }
}

#[test]
fn failures_that_come_with_the_load_are_another_thing() {
    for (shares, ending) in [
        (&[0.0, 0.0, 0.0, 0.3, 0.6][..], Ending::Status(503)),
        (&[0.01, 0.01, 0.01, 0.05], Ending::Status(503)),
        (&[0.0; 4], Ending::Status(500)),
        // Few, and refusals for the rate.
        (&[0.000_2; 4], Ending::Status(500)),
        (&[0.3; 4], Ending::Throttled),
    ] {
        for seed in 0..20 {
            let found = told(shares, ending, FailureSpan::AnyRate, seed).map(|it| it.finding);
            assert_eq!(found, None, "seed {seed}, {shares:?}");
        }
    }
}
