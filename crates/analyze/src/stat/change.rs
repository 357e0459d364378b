//! Whether figures change at one moment, for good.
//!
//! The change is where the values before and after are nearest to their two medians. It is sure if two tests
//! agree. Student's t says that the medians differ by more than the noise explains: with the mean distance
//! from the medians in place of the standard deviation, so that one outlier does not hide a change; with a
//! variance that is as much larger as that of a trend is if values resemble their neighbours (Hamed and
//! Rao, see [`super::trend`]); and with a level that is divided by the number of places at which it was
//! looked for (Bonferroni). The test of Mann and Whitney says that the values after are others than those
//! before, and not a few of them.
//!
//! A test of a trend does not see a change: what a straight line leaves of it looks like a long memory.

use super::chance::beyond;
use super::trend::{SURE_DEVIATIONS, VALUES_MIN, ranks, resemblance};

/// A part of fewer values is no part.
const PART_MIN: usize = 3;

/// Chance alone then shows as much in about one row of a thousand: the place is chosen where the two
/// medians hide most of a memory, and of rows of 20 with a memory of one half five times as many would do
/// at one in a thousand.
const CHANCE_MAX: f64 = 0.000_2;

/// The standard deviation of normal values over their mean distance from the middle.
const DEVIATION: f64 = 1.253_314;

/// What a row of values, evenly spaced, shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepChange {
    /// The place of the first value after it.
    pub at: usize,
    /// The chance that the medians differ so much at any place without a change.
    pub chance: f64,
    /// By ranks, in standard deviations: how much larger or smaller the values after it are.
    pub z: f64,
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// What is left by the two medians: the mean distance of the values from theirs.
    pub left: f64,
}

impl StepChange {
    /// Whether chance alone would show as much in less than one row of a thousand.
    pub(crate) fn is_sure(&self) -> bool {
        self.chance < CHANCE_MAX && self.z.abs() > SURE_DEVIATIONS
    }
}

/// The change of `values`; `None` with fewer than ten of them. Work grows with the square of their
/// number.
pub fn change(values: &[f64]) -> Option<StepChange> {
    let n = values.len();
    if n < VALUES_MIN {
        return None;
    }
    let size = n as f64;
    let places = PART_MIN..=n - PART_MIN;
    let tried = places.clone().filter_map(|at| Some((at, distance(values, at)?)));
    let (at, rest) = tried.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let (first, second) = values.split_at(at);
    let (before, after) = (super::median(first)?, super::median(second)?);
    let left = rest / size;
    let apart: Vec<f64> =
        first.iter().map(|v| v - before).chain(second.iter().map(|v| v - after)).collect();
    let parts = 1.0 / at as f64 + 1.0 / (n - at) as f64;
    let deviation = DEVIATION * rest / (size - 2.0) * (parts * resemblance(&apart)).sqrt();
    let chance = match after == before {
        true => 1.0,
        false => beyond((after - before) / deviation, size - 2.0),
    };
    let sum: f64 = ranks(values)[..at].iter().sum();
    let before_it = at as f64;
    let expected = before_it * (size + 1.0) / 2.0;
    let z = (expected - sum) / (before_it * (size - before_it) * (size + 1.0) / 12.0).sqrt();
    let chance = (chance * places.count() as f64).min(1.0);
    Some(StepChange { at, chance, z, before, after, left })
}

/// The sum of the distances of the values from the medians of the two parts.
fn distance(values: &[f64], at: usize) -> Option<f64> {
    let part = |values: &[f64]| {
        let middle = super::median(values)?;
        Some(values.iter().map(|value| (value - middle).abs()).sum::<f64>())
    };
    let (first, second) = values.split_at(at);
    Some(part(first)? + part(second)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::tests::remembering;
    use crate::stat::trend::trend;

    #[test]
    fn a_step_is_found_where_it_is() {
        for seed in 0..40 {
            let at = 6 + (seed as usize * 7) % 48;
            let mut values = remembering(seed, 60, 0.0);
            values[at..].iter_mut().for_each(|value| *value += 20.0);
            let found = change(&values).expect("enough values");
            assert!(found.is_sure(), "seed {seed}, {at}: {found:?}");
            assert_eq!(found.at, at, "seed {seed}: {found:?}");
            assert!((found.after - found.before - 20.0).abs() < 1.5, "seed {seed}: {found:?}");
            let line = trend(&values).expect("enough values");
            assert!(found.left < 0.5 * line.left, "seed {seed}: {found:?}, {line:?}");
        }
    }

    #[test]
    fn a_step_in_a_short_row() {
        for (n, at) in [(16, 8), (20, 10), (20, 7), (30, 6)] {
            for seed in 0..20 {
                let mut values = remembering(seed, n, 0.0);
                values[at..].iter_mut().for_each(|value| *value -= 12.0);
                let found = change(&values).expect("enough values");
                assert!(found.is_sure() && found.at == at, "{seed}, {at} of {n}: {found:?}");
            }
        }
    }

    #[test]
    fn noise_is_no_step() {
        // As for a trend: one in a thousand is nominal.
        for (n, memory) in [(12, 0.0), (20, 0.5), (30, 0.0), (30, 0.5), (60, 0.5), (120, 0.7)] {
            let sure =
                |seed: &u64| change(&remembering(*seed, n, memory)).expect("enough").is_sure();
            let seen = (0..1_000).filter(sure).count();
            assert!(seen <= 5, "{n}, {memory}: {seen}");
        }
    }

    #[test]
    fn a_slope_is_better_told_by_a_line() {
        for seed in 0..40 {
            let mut values = remembering(seed, 60, 0.0);
            values.iter_mut().zip(0..).for_each(|(value, at)| *value += 0.3 * f64::from(at));
            let (step, line) = (change(&values).expect("enough"), trend(&values).expect("enough"));
            assert!(line.left < step.left, "seed {seed}: {step:?}, {line:?}");
        }
    }

    #[test]
    fn a_spell_and_a_short_row_are_no_step() {
        assert_eq!(change(&[1.0; 9]), None);
        assert!(!change(&[1.0; 20]).expect("enough").is_sure());
        let mut values = remembering(1, 60, 0.0);
        values[30..34].iter_mut().for_each(|value| *value += 50.0);
        assert!(!change(&values).expect("enough").is_sure());
        values[59] = 9_000.0;
        assert!(!change(&values).expect("enough").is_sure());
    }
}
