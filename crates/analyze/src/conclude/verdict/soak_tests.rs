//! Hours whose course is known, a part a minute.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// What a minute is like: milliseconds, calls, and the share of these that fails.
#[derive(Debug, Clone, Copy)]
struct Minute {
    p50: f64,
    p99: f64,
    calls: f64,
    failing: f64,
}

const USUAL: Minute = Minute { p50: 11.0, p99: 40.0, calls: 600.0, failing: 0.0 };

fn hour(seed: u64, course: impl Fn(u32) -> Minute) -> Vec<Rollup> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut noise = |by: f64| 1.0 + by * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
    let part = |minute: u32| {
        let it = course(minute);
        let us = |ms: f64| (ms * 1e3) as u64;
        let calls = (it.calls * noise(0.01)) as u64;
        let failed = (calls as f64 * it.failing * noise(0.3)).round() as u64;
        let begun_at = u64::from(minute) * 60_000_000;
        Rollup {
            begun_at,
            ended_at: begun_at + 60_000_000,
            calls,
            served: calls - failed,
            unserved: (failed > 0).then(|| ("fault".to_owned(), failed)).into_iter().collect(),
            p50: Some(us(it.p50 * noise(0.08))),
            p99: Some(us(it.p99 * noise(0.3))),
            ..Rollup::default()
        }
    };
    (0..60).map(part).collect()
}

fn told(parts: &[Rollup]) -> Vec<(String, Confidence)> {
    let found = soak(&parts.iter().collect::<Vec<_>>());
    found.into_iter().skip(1).map(|it| (it.finding.rounded().to_string(), it.confidence)).collect()
}

/// All say so, in this order, for each of ten seeds, and no more is said.
#[track_caller]
fn check(course: impl Fn(u32) -> Minute + Copy, expected: &[&str]) {
    for seed in 0..10 {
        let told = told(&hour(seed, course));
        let as_expected = told.len() == expected.len()
            && told.iter().zip(expected).all(|((told, sure), expected)| {
                told.contains(expected) && *sure == Confidence::High
            });
        assert!(as_expected, "seed {seed}: {told:#?}");
    }
}

#[test]
fn a_step_is_no_drift() {
    check(
        |at| if at < 23 { USUAL } else { Minute { p50: 31.0, p99: 113.0, ..USUAL } },
        &["p50 jumps from 1"],
    );
    check(
        |at| if at < 50 { Minute { p50: 31.0, p99: 113.0, ..USUAL } } else { USUAL },
        &["p50 drops from 3"],
    );
    let parts = hour(3, |at| if at < 23 { USUAL } else { Minute { p50: 31.0, ..USUAL } });
    let told = told(&parts);
    assert!(told[0].0.ends_with(" ms after 23 of 60 minutes"), "{told:?}");
}

#[test]
fn each_figure_has_its_own_step() {
    check(|at| if at < 30 { USUAL } else { Minute { p99: 90.0, ..USUAL } }, &["p99 jumps from "]);
    check(
        |at| if at < 40 { USUAL } else { Minute { failing: 0.04, ..USUAL } },
        &["Error rate jumps from 0 to "],
    );
    check(
        |at| if at < 20 { USUAL } else { Minute { calls: 420.0, ..USUAL } },
        &["Throughput drops from "],
    );
}

#[test]
fn a_slope_is_a_drift_and_no_step() {
    let rising = |at: u32| Minute { p50: 11.0 + f64::from(at) / 6.0, ..USUAL };
    check(|at| Minute { p99: 40.0 * rising(at).p50 / 11.0, ..rising(at) }, &["p50 rises from 1"]);
}

#[test]
fn nothing_moves() {
    let even = "No drift or step in latency, errors or throughput in 60 minutes";
    check(|_| USUAL, &[even]);
    // A spell, and a wave that comes back.
    check(|at| if (30..34).contains(&at) { Minute { p50: 31.0, ..USUAL } } else { USUAL }, &[even]);
    check(|at| Minute { p50: 11.0 * (1.0 + 0.1 * (f64::from(at) / 5.0).sin()), ..USUAL }, &[even]);
}

#[test]
fn a_share_that_stays_is_told_by_itself() {
    check(
        |_| Minute { failing: 0.02, ..USUAL },
        &[
            " % of calls fail, throughout the run",
            "No drift or step in latency, errors or throughput in 60 minutes",
        ],
    );
    let told = told(&hour(1, |_| Minute { failing: 0.02, ..USUAL }));
    assert!(told[0].0.ends_with(" % of calls fail, throughout the run"), "{told:?}");
}
