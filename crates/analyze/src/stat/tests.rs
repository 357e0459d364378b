//! Each function against data with a known truth, with noise and with nothing to find.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::bootstrap::{Interval, median_difference, worst_difference};
use super::bucket::{TimedCall, pace};
use super::offered::{OfferedCall, OfferedLevel, Saturation, level, saturation};
use super::plateau::{SweepPoint, SweepShape, fit, shape};
use super::step::{Recycling, Tipping, TriedSize, recycling, tipping};
use super::*;

fn near(seen: f64, expected: f64, percent: f64) {
    let off = (seen - expected).abs() / expected * 100.0;
    assert!(off <= percent, "{seen} is {off:.1} % off {expected}");
}

fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Near enough to normal, by twelve draws.
pub(super) fn normal(rng: &mut SmallRng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

/// A row around 20 in which each value keeps `memory` of the one before.
pub(super) fn remembering(seed: u64, n: usize, memory: f64) -> Vec<f64> {
    let mut rng = rng(seed);
    let mut at = normal(&mut rng) / (1.0 - memory * memory).sqrt();
    let next = |_| {
        at = memory * at + normal(&mut rng);
        20.0 + at
    };
    (0..n).map(next).collect()
}

#[test]
fn quantiles_as_numpy_has_them() {
    let samples = [4.0, 1.0, 3.0, 2.0];
    assert_eq!(quantile(&samples, 0.25), Some(1.75));
    assert_eq!(quantile(&samples, 0.5), Some(2.5));
    assert_eq!(quantile(&samples, 0.99), Some(3.9699999999999998));
    assert_eq!((quantile(&samples, 0.0), quantile(&samples, 7.0)), (Some(1.0), Some(4.0)));
    assert_eq!((quantile(&[], 0.5), quantile(&[f64::NAN], 0.5)), (None, None));
}

#[test]
fn slopes() {
    assert_eq!(slope(&[(0.0, 1.0), (2.0, 5.0)]), Some(2.0));
    assert_eq!(slope(&[(1.0, 1.0), (1.0, 5.0)]), None);
    assert_eq!(slope_through_origin(&[(1.0, 3.0), (2.0, 6.0)]), Some(3.0));
    assert_eq!(slope_through_origin(&[]), None);
}

#[test]
fn spread_that_is_explained() {
    assert_eq!(r_squared(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 1.0);
    assert_eq!(r_squared(&[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]), 0.0);
    assert_eq!((r_squared(&[2.0, 2.0], &[2.0, 2.0]), r_squared(&[], &[])), (1.0, 0.0));
}

fn cells(middle: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = rng(seed);
    (0..3).map(|_| (0..120).map(|_| middle * (0.7 + 0.6 * rng.random::<f64>())).collect()).collect()
}

fn holds(interval: &Interval, value: f64) -> bool {
    (interval.low..=interval.high).contains(&value)
}

#[test]
fn an_interval_holds_the_truth_and_excludes_none() {
    let mut held = 0;
    for seed in 0..10 {
        let found =
            median_difference(&cells(40.0, seed), &cells(100.0, seed + 100), &mut rng(seed));
        let found = found.expect("there are samples");
        held += u32::from(holds(&found, -60.0));
        assert!(!holds(&found, 0.0) && holds(&found, found.point));
    }
    assert!(held >= 9, "{held} of 10 hold the truth");
}

#[test]
fn an_interval_of_the_same_holds_zero() {
    let excluded = (0..10).filter(|seed| {
        let found = median_difference(&cells(100.0, *seed), &cells(100.0, seed + 100), &mut rng(1));
        !holds(&found.expect("there are samples"), 0.0)
    });
    assert!(excluded.count() <= 1);
}

#[test]
fn an_interval_is_the_same_for_the_same_seed() {
    let found = || median_difference(&cells(10.0, 1), &cells(11.0, 2), &mut rng(5));
    assert_eq!(found(), found());
    assert_eq!(median_difference(&[], &cells(1.0, 1), &mut rng(1)), None);
}

/// A target that is no later than nine others seems late against the worst of them: the interval
/// knows.
#[test]
fn the_worst_of_several_is_judged_as_such() {
    let claimed = |of: usize, seed: u64| {
        let mut rng = rng(seed);
        let mut noise = || (0..25).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect::<Vec<f64>>();
        let rows: Vec<Vec<f64>> = (0..9).map(|_| noise()).collect();
        let worst =
            rows.into_iter().max_by(|a, b| median(a).partial_cmp(&median(b)).expect("numbers"));
        let worst = [worst.expect("nine")];
        let found = worst_difference(&worst, &[vec![0.0]], of, &mut rng);
        found.expect("samples").low > 0.0
    };
    let claims = |of: usize| (0..60).filter(|seed| claimed(of, *seed)).count();
    // One side of an interval that is missed in 5 of 100 cases: 1.5 of 60 are expected.
    assert!(claims(9) <= 5, "{}", claims(9));
    assert!(claims(1) > claims(9));
}

#[test]
fn a_slow_cell_widens_the_interval() {
    let mut a = cells(100.0, 1);
    let even = median_difference(&a, &cells(100.0, 2), &mut rng(1)).expect("samples");
    a[0].iter_mut().for_each(|sample| *sample *= 2.0);
    let uneven = median_difference(&a, &cells(100.0, 2), &mut rng(1)).expect("samples");
    assert!(uneven.high - uneven.low > 3.0 * (even.high - even.low));
}

fn sweep(w0: f64, x_max: f64, noise: f64, seed: u64) -> Vec<SweepPoint> {
    let mut rng = rng(seed);
    let point = |n: i32| {
        let concurrency = f64::from(n) * 5.0;
        let throughput = (concurrency / w0).min(x_max);
        let by = |rng: &mut SmallRng| 1.0 + noise * (2.0 * rng.random::<f64>() - 1.0);
        let latency = concurrency / throughput * by(&mut rng);
        SweepPoint { concurrency, throughput: throughput * by(&mut rng), latency }
    };
    (1..=24).map(point).collect()
}

#[test]
fn a_plateau_is_found_within_its_noise() {
    for seed in 0..20 {
        let Some(SweepShape::Plateau(fit)) = shape(&sweep(0.080, 252.0, 0.08, seed)) else {
            panic!("seed {seed}: {:?}", shape(&sweep(0.080, 252.0, 0.08, seed)));
        };
        near(fit.x_max, 252.0, 4.0);
        near(fit.w0, 0.080, 8.0);
        near(fit.knee.expect("a plateau has one"), 252.0 * 0.080, 10.0);
        assert!(fit.r_squared > 0.8, "{fit:?}");
    }
}

#[test]
fn no_plateau_where_there_is_none() {
    for seed in 0..20 {
        let found = shape(&sweep(0.050, f64::INFINITY, 0.08, seed));
        assert!(matches!(found, Some(SweepShape::Rising(_))), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_plateau_that_is_only_touched_is_not_believed() {
    // The knee is at 110 of 120.
    let found = shape(&sweep(0.1, 1_100.0, 0.02, 1));
    assert!(matches!(found, Some(SweepShape::Rising(_))), "{found:?}");
}

#[test]
fn too_few_points_fit_nothing() {
    assert_eq!(fit(&sweep(0.1, 100.0, 0.0, 1)[..2]), None);
    let silent = SweepPoint { concurrency: 5.0, throughput: 0.0, latency: 0.0 };
    assert_eq!(fit(&[silent; 5]), None);
}

/// A bucket as a provider has it.
struct Meter {
    size: f64,
    refill: f64,
    tokens: f64,
    last: f64,
    /// Counts anew after this long instead.
    window: Option<f64>,
}

impl Meter {
    fn steady(size: f64, refill: f64) -> Self {
        Self { size, refill, tokens: size, last: 0.0, window: None }
    }

    fn fixed(size: f64, window: f64) -> Self {
        Self { window: Some(window), ..Self::steady(size, 0.0) }
    }

    fn send(&mut self, at: f64) -> TimedCall {
        match self.window {
            None => {
                self.tokens = (self.tokens + self.refill * (at - self.last)).min(self.size);
                self.last = at;
            }
            Some(window) if at - self.last >= window => {
                (self.tokens, self.last) = (self.size, at);
            }
            Some(_) => {}
        }
        let passed = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(passed));
        TimedCall { at, passed }
    }
}

fn steady_calls(mut meter: Meter, rate: f64, seconds: f64, seed: u64) -> Vec<TimedCall> {
    let mut rng = rng(seed);
    let mut at = 100.0;
    let mut calls = Vec::new();
    while at < 100.0 + seconds {
        calls.push(meter.send(at));
        at += (0.5 + rng.random::<f64>()) / rate;
    }
    calls
}

#[test]
fn the_pace_of_a_bucket_above_its_rate() {
    for seed in 0..10 {
        let calls = steady_calls(Meter::steady(125.0, 125.0), 190.0, 30.0, seed);
        near(pace(&calls).expect("it refuses").per_second, 125.0, 3.0);
    }
}

#[test]
fn the_pace_of_windows_that_start_anew() {
    for seed in 0..10 {
        let calls = steady_calls(Meter::fixed(400.0, 10.0), 60.0, 45.0, seed);
        near(pace(&calls).expect("it refuses").per_second, 40.0, 3.0);
    }
}

#[test]
fn one_wait_is_no_pace() {
    // Of a window of a minute, half is seen.
    let calls = steady_calls(Meter::fixed(400.0, 60.0), 40.0, 65.0, 1);
    assert!(calls.iter().any(|call| !call.passed) && calls.last().is_some_and(|it| it.passed));
    assert_eq!(pace(&calls), None);
}

#[test]
fn calls_that_overtook_each_other_are_no_window() {
    let mut calls = steady_calls(Meter::fixed(400.0, 10.0), 60.0, 45.0, 3);
    for at in 1..calls.len() {
        if calls[at - 1].passed != calls[at].passed {
            let passed = calls[at].passed;
            calls[at].passed = calls[at - 1].passed;
            calls[at - 1].passed = passed;
        }
    }
    near(pace(&calls).expect("it refuses").per_second, 40.0, 3.0);
}

#[test]
fn no_pace_without_a_refusal_or_with_nothing_else() {
    assert_eq!(pace(&steady_calls(Meter::steady(1e9, 1e9), 100.0, 5.0, 1)), None);
    assert_eq!(pace(&[TimedCall { at: 1.0, passed: false }; 5]), None);
    assert_eq!(pace(&[]), None);
}

fn tip(sizes: &[(u64, &str)]) -> Option<Tipping> {
    let tried = sizes.iter().flat_map(|(size, repeats)| {
        repeats.chars().map(|repeat| TriedSize { size: *size, failed: repeat == 'x' })
    });
    tipping(&tried.collect::<Vec<_>>())
}

#[test]
fn where_it_tips() {
    let found = tip(&[(128, "xxx"), (64, "..."), (96, "..."), (100, "xxx"), (99, "...")]);
    assert_eq!(found, Some(Tipping { holds: Some(99), fails_at: Some(100), repeats: 3, odd: 0 }));
}
#[test]
fn where_nothing_tips() {
    let found = tip(&[(64, "..."), (128, "..")]);
    assert_eq!(found, Some(Tipping { holds: Some(128), fails_at: None, repeats: 2, odd: 0 }));
    assert_eq!(tip(&[]), None);
}
#[test]
fn a_single_failure_does_not_tip() {
    let found = tip(&[(32, "..."), (64, ".x."), (96, "..."), (100, "xxx")]);
    assert_eq!(found, Some(Tipping { holds: Some(96), fails_at: Some(100), repeats: 3, odd: 1 }));
}
#[test]
fn nothing_holds() {
    assert_eq!(
        tip(&[(8, "xx")]),
        Some(Tipping { holds: None, fails_at: Some(8), repeats: 2, odd: 0 })
    );
}

#[test]
fn connections_that_end() {
    assert_eq!(recycling(&[1_000, 1_002, 999], &[], 4), Recycling::After(1_000));
    assert_eq!(recycling(&[10_000, 9_950], &[], 4), Recycling::After(10_000));
    assert_eq!(recycling(&[310, 900], &[], 4), Recycling::Irregular(vec![310, 900]));
    assert_eq!(recycling(&[310, 311], &[20_000], 4), Recycling::Irregular(vec![310, 311]));
    assert_eq!(recycling(&[1_000], &[], 4), Recycling::Once(1_000));
    assert_eq!(recycling(&[], &[20_000, 500], 4), Recycling::Never(20_000));
    assert_eq!(recycling(&[], &[], 4), Recycling::Nothing);
}

fn offers(rate: f64, bound: f64, seconds: f64) -> Vec<OfferedCall> {
    let calls = (rate * seconds) as u32;
    let one = |n: u32| {
        let intended = f64::from(n) / rate;
        OfferedCall { intended, ended: 0.05 + intended.max(f64::from(n) / bound), good: true }
    };
    (0..calls).map(one).collect()
}

#[test]
fn a_level_that_is_borne_and_one_that_is_not() {
    let below = level(100.0, &offers(100.0, 150.0, 2.0)).expect("calls");
    near(below.achieved, 100.0, 1.0);
    let above = level(300.0, &offers(300.0, 150.0, 2.0)).expect("calls");
    near(above.achieved, 150.0, 1.0);
    assert!(below.holds() && !above.holds());
    assert_eq!(level(5.0, &[]), None);
}

#[test]
fn errors_are_no_throughput() {
    let mut calls = offers(100.0, 1e9, 10.0);
    calls.iter_mut().step_by(4).for_each(|call| call.good = false);
    let found = level(100.0, &calls).expect("calls");
    near(found.achieved, 75.0, 1.0);
    assert_eq!((found.failed * 4, found.holds()), (found.calls, false));
}

/// What becomes of 100 calls/s for 5 s, of which some fail and some take longer by so much.
fn disturbed(failed: usize, late: &[usize], by: f64) -> OfferedLevel {
    let mut calls = offers(100.0, 1e9, 5.0);
    calls.iter_mut().step_by(40).take(failed).for_each(|call| call.good = false);
    late.iter().for_each(|at| calls[*at].ended += by);
    level(100.0, &calls).expect("calls")
}

#[test]
fn one_call_that_fails_or_is_late_breaks_nothing() {
    for failed in [0, 1, 2] {
        assert!(disturbed(failed, &[], 0.0).holds(), "{failed}");
    }
    // 3 of 500 are more than 0.1 % explains, and 12 more than 1 %.
    assert!(!disturbed(3, &[], 0.0).holds() && !disturbed(3, &[], 0.0).breaks_by_far());
    assert!(disturbed(12, &[], 0.0).breaks_by_far());
    for late in [&[499_usize][..], &[498], &[3, 250, 499], &[480, 490]] {
        for by in [0.6, 5.0] {
            let found = disturbed(0, late, by);
            assert!(found.holds() && found.achieved == 100.0, "{late:?}: {found:?}");
        }
    }
    // Ten calls, of which the last is half the cell late.
    let mut few = offers(2.0, 1e9, 5.0);
    few[9].ended += 2.5;
    assert!(level(2.0, &few).expect("calls").holds());
}

#[test]
fn calls_of_two_lengths_are_no_backlog() {
    for seed in 0..20 {
        let mut rng = rng(seed);
        let mut calls = offers(100.0, 1e9, 5.0);
        for call in &mut calls {
            // One of five takes two seconds.
            call.ended += if rng.random_bool(0.2) { 2.0 } else { 0.05 * rng.random::<f64>() };
        }
        let found = level(100.0, &calls).expect("calls");
        assert!(found.holds(), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_tenth_too_much_is_seen_however_long_it_is_offered() {
    for seconds in [3.0, 20.0, 120.0] {
        let found = level(110.0, &offers(110.0, 100.0, seconds)).expect("calls");
        assert!(!found.holds(), "{found:?}");
        near(found.achieved, 100.0, 1.0);
        assert!(level(103.0, &offers(103.0, 100.0, seconds)).expect("calls").holds());
    }
}

#[test]
fn where_load_is_no_longer_borne() {
    let at = |offered: f64, achieved: f64| {
        let behind = (1_000.0 * (1.0 - achieved / offered)) as u64;
        OfferedLevel { offered, achieved, calls: 1_000, failed: 0, behind }
    };
    let levels = [at(100.0, 100.0), at(400.0, 220.0), at(200.0, 199.0), at(800.0, 210.0)];
    assert_eq!(saturation(&levels), Saturation { holds: Some(200.0), breaks: Some(400.0) });
    assert_eq!(saturation(&levels[..1]), Saturation { holds: Some(100.0), breaks: None });
    assert_eq!(saturation(&levels[1..2]), Saturation { holds: None, breaks: Some(400.0) });
}
