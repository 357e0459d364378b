//! How sure a ratio of times is, from cells: each cell counts once, by its median.
//!
//! Calls of one cell resemble each other, so that thousands of them in one cell know nothing of
//! other minutes. What counts is how the medians of cells scatter. Their logarithms are taken,
//! because what disturbs a time multiplies it. Where both sides were played in the same repeats,
//! the ratio of each repeat is one value and what the repeats had in common is gone: Student's t
//! (1908). Where they were not, that of Welch (1947), with its degrees of freedom.

use super::bootstrap::Interval;
use super::chance::{beyond, holm, t_beyond};
use super::median;

/// A smaller difference is none that a user would choose by: it is within what our own clock and
/// the order of our own tasks make.
pub const TELLING: f64 = 0.01;

/// Where each side has one cell, what one minute differs from the next is not seen. A difference
/// below a third is not told there: equal runs whose minutes scatter by 15 % stay below.
pub(crate) const TELLING_OF_BLOCKS: f64 = 1.0 / 3.0;

/// Blocks into which one cell is cut at most, and the calls that each has at least: the median of
/// fewer is moved by single calls.
const BLOCKS_MAX: usize = 20;
const BLOCK_CALLS_MIN: usize = 10;

/// Fewer blocks tell nothing of their spread.
const BLOCKS_MIN: usize = 3;

/// Questions that are asked together are answered falsely no more often than this.
pub(crate) const LEVEL: f64 = 0.05;

/// What cells say of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Of the logarithms.
    mean: f64,
    /// The standard error of that.
    error: f64,
    freedom: f64,
    /// A smaller difference is not told.
    telling: f64,
}

impl Ratio {
    /// From pairs of medians, each of one repeat. `None` with fewer than two pairs.
    pub(crate) fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().filter_map(|(a, b)| log(a / b)).collect();
        let (mean, variance) = moments(&logs)?;
        let n = logs.len() as f64;
        Some(Self { mean, error: (variance / n).sqrt(), freedom: n - 1.0, telling: TELLING })
    }

    /// From the medians of cells that have nothing in common. `None` where a side has fewer than
    /// two.
    pub(crate) fn of_cells(a: &[f64], b: &[f64]) -> Option<Self> {
        let logs = |cells: &[f64]| cells.iter().filter_map(|x| log(*x)).collect::<Vec<f64>>();
        let (a, b) = (logs(a), logs(b));
        let ((a_mean, a_variance), (b_mean, b_variance)) = (moments(&a)?, moments(&b)?);
        let (a_n, b_n) = (a.len() as f64, b.len() as f64);
        let (a_part, b_part) = (a_variance / a_n, b_variance / b_n);
        let spread = a_part + b_part;
        let least = a_n.min(b_n) - 1.0;
        let freedom = match spread > 0.0 {
            true => spread.powi(2) / (a_part.powi(2) / (a_n - 1.0) + b_part.powi(2) / (b_n - 1.0)),
            false => least,
        };
        let (mean, error) = (a_mean - b_mean, spread.sqrt());
        Some(Self { mean, error, freedom: freedom.max(least), telling: TELLING })
    }

    /// From the times of one cell a side, in the order in which the calls were sent. Each is cut
    /// into blocks, and their medians take the place of those of cells; blocks that follow each
    /// other resemble each other, so the error grows with their autocorrelation as that of a mean
    /// of an AR(1) process does. Only a difference above [`TELLING_OF_BLOCKS`] is told. `None`
    /// where a side has fewer than three blocks of ten calls.
    pub(crate) fn of_blocks(a: &[f64], b: &[f64]) -> Option<Self> {
        let (a, b) = (blocks(a)?, blocks(b)?);
        let ratio = Self::of_cells(&a, &b)?;
        let alike = autocorrelation(&a).max(autocorrelation(&b));
        let error = ratio.error * ((1.0 + alike) / (1.0 - alike)).sqrt();
        Some(Self { error, telling: TELLING_OF_BLOCKS, ..ratio })
    }

    /// The chance to see as much, on either side, where the ratio is too near to one to be told.
    pub fn chance(&self) -> f64 {
        let beyond_telling = self.mean.abs() + (-self.telling).ln_1p();
        if beyond_telling <= 0.0 {
            return 1.0;
        }
        beyond(beyond_telling / self.error, self.freedom)
    }

    /// The interval that misses the truth with the chance `level`.
    pub fn interval(&self, level: f64) -> Interval {
        let by = t_beyond(level, self.freedom) * self.error;
        Interval {
            point: self.mean.exp(),
            low: (self.mean - by).exp(),
            high: (self.mean + by).exp(),
        }
    }
}

/// Whether an interval shows a difference that matters.
pub fn tells(interval: &Interval) -> bool {
    tells_beyond(interval, TELLING)
}

/// Whether an interval shows a difference above `telling`.
pub(crate) fn tells_beyond(interval: &Interval, telling: f64) -> bool {
    interval.high <= 1.0 - telling || interval.low >= 1.0 / (1.0 - telling)
}

/// The medians of equal blocks; the calls that are left over go to the last one.
fn blocks(times: &[f64]) -> Option<Vec<f64>> {
    let count = (times.len() / BLOCK_CALLS_MIN).min(BLOCKS_MAX);
    if count < BLOCKS_MIN {
        return None;
    }
    let each = times.len() / count;
    let block = |n: usize| {
        let end = if n + 1 == count { times.len() } else { (n + 1) * each };
        median(&times[n * each..end])
    };
    (0..count).map(block).collect()
}

/// The first autocorrelation of the logarithms, from 0 to 0.9.
fn autocorrelation(values: &[f64]) -> f64 {
    let logs: Vec<f64> = values.iter().filter_map(|x| log(*x)).collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let around: f64 = logs.iter().map(|x| (x - mean).powi(2)).sum();
    let beside: f64 = logs.windows(2).map(|it| (it[0] - mean) * (it[1] - mean)).sum();
    if around > 0.0 { (beside / around).clamp(0.0, 0.9) } else { 0.0 }
}

/// The intervals of ratios that are asked for together, each at the level at which Holm decides
/// it: where nothing differs, one of them or more [tells] otherwise in 5 of 100 families.
pub fn family(ratios: &[Ratio]) -> Vec<Interval> {
    let chances: Vec<f64> = ratios.iter().map(Ratio::chance).collect();
    let levels = holm(&chances, LEVEL);
    ratios.iter().zip(levels).map(|(ratio, level)| ratio.interval(level)).collect()
}

fn log(x: f64) -> Option<f64> {
    (x.is_finite() && x > 0.0).then(|| x.ln())
}

/// The mean and the variance of a sample; `None` with fewer than two.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let around: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((mean, around / (n - 1.0)))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::stat::tests::normal;

    /// Medians of `repeats` cells with the true value `truth`, that scatter by `scatter`.
    fn cells(truth: f64, scatter: f64, repeats: usize, rng: &mut SmallRng) -> Vec<f64> {
        (0..repeats).map(|_| truth * (scatter * normal(rng)).exp()).collect()
    }

    const FAMILIES: u64 = 500;
    /// Of 500 families with a chance of 5 %, more than 40 are false in 2 of 1,000 runs.
    const FALSE_MAX: usize = 40;

    /// Families of eight pairs with equal arms in which something is claimed.
    fn false_families(scatter: f64, repeats: usize, paired: bool) -> usize {
        let claims = |seed: &u64| {
            let mut rng = SmallRng::seed_from_u64(*seed);
            let ratios: Vec<Ratio> = (0..8)
                .filter_map(|_| {
                    let a = cells(40.0, scatter, repeats, &mut rng);
                    let b = cells(40.0, scatter, repeats, &mut rng);
                    if paired {
                        Ratio::of_pairs(&a.into_iter().zip(b).collect::<Vec<_>>())
                    } else {
                        Ratio::of_cells(&a, &b)
                    }
                })
                .collect();
            assert_eq!(ratios.len(), 8);
            family(&ratios).iter().any(tells)
        };
        (0..FAMILIES).filter(claims).count()
    }

    #[test]
    fn equal_arms_are_told_apart_no_more_often_than_is_said() {
        for scatter in [0.05, 0.2] {
            for (repeats, paired) in [(3, true), (5, true), (2, false), (4, false)] {
                let seen = false_families(scatter, repeats, paired);
                assert!(seen <= FALSE_MAX, "{scatter}, {repeats}, {paired}: {seen}");
            }
        }
    }

    #[test]
    fn a_difference_of_three_tenths_is_found_by_five_repeats() {
        let found = |seed: &u64| {
            let mut rng = SmallRng::seed_from_u64(*seed);
            let mut ratios = Vec::new();
            for nth in 0..8 {
                let truth = if nth == 0 { 28.0 } else { 40.0 };
                let (a, b) = (cells(truth, 0.05, 5, &mut rng), cells(40.0, 0.05, 5, &mut rng));
                ratios.extend(Ratio::of_pairs(&a.into_iter().zip(b).collect::<Vec<_>>()));
            }
            tells(&family(&ratios)[0])
        };
        let found = (0..200).filter(found).count();
        assert!(found >= 170, "{found} of 200");
    }

    #[test]
    fn what_repeats_have_in_common_does_not_count() {
        let pairs = [(10.0, 20.0), (30.0, 61.0), (5.0, 9.9), (80.0, 161.0)];
        let ratio = Ratio::of_pairs(&pairs).expect("enough");
        let found = ratio.interval(LEVEL);
        assert!(tells(&found) && (found.point - 0.5).abs() < 0.01, "{found:?}");
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let ratio = Ratio::of_cells(&a, &b).expect("enough");
        assert!(!tells(&ratio.interval(LEVEL)));
    }

    /// Times of a cell of a minute that is slower by `minute`.
    fn calls(truth: f64, minute: f64, count: usize, rng: &mut SmallRng) -> Vec<f64> {
        (0..count).map(|_| truth * (minute + 0.2 * normal(rng)).exp()).collect()
    }

    #[test]
    fn blocks_of_one_cell_tell_what_is_more_than_the_minute() {
        let of = |seed: u64, truth: f64, count: usize| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut minute = || 0.15 * (2.0 * rng.random::<f64>() - 1.0);
            let (one, other) = (minute(), minute());
            let (a, b) = (calls(truth, one, count, &mut rng), calls(40.0, other, count, &mut rng));
            Ratio::of_blocks(&a, &b)
        };
        let told = |ratio: Option<Ratio>| {
            let ratio = ratio.expect("enough calls");
            tells_beyond(&family(&[ratio])[0], TELLING_OF_BLOCKS)
        };
        let found = |truth: f64| (0..200).filter(|seed| told(of(*seed, truth, 200))).count();
        assert_eq!((found(40.0), found(40.0 * 2.69)), (0, 200));
        assert_eq!(of(1, 400.0, 29), None);
    }

    #[test]
    fn one_cell_says_nothing_and_equal_ones_all() {
        assert_eq!(Ratio::of_pairs(&[(1.0, 2.0)]), None);
        assert_eq!(Ratio::of_cells(&[1.0, 2.0], &[2.0]), None);
        assert_eq!(Ratio::of_pairs(&[(1.0, 0.0), (0.0, 1.0), (2.0, 1.0)]), None);
        let same = Ratio::of_pairs(&[(3.0, 3.0), (4.0, 4.0)]).expect("enough");
        let found = same.interval(LEVEL);
        assert_eq!((found.low, found.high, same.chance()), (1.0, 1.0, 1.0));
        let other = Ratio::of_pairs(&[(3.0, 4.0), (6.0, 8.0)]).expect("enough");
        assert!(other.chance() < 1e-9 && tells(&other.interval(LEVEL)));
    }
}
