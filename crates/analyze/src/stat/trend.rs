//! Whether figures drift: the test of Mann (1945) and Kendall, and the slope of Theil and Sen.
//!
//! `S` is the number of pairs that rise less those that fall. Without a drift it has the mean 0
//! and, with ties, the variance `(n (n-1) (2n+5) - sum t (t-1) (2t+5)) / 18`, and from ten values
//! on it is near enough to normal (Kendall, "Rank Correlation Methods", 1975). Neither an outlier
//! nor the shape of the noise matters.
//!
//! That holds where values know nothing of their neighbours, and neighbouring minutes do. So the
//! variance is made larger by what Hamed and Rao found ("A modified Mann-Kendall trend test for
//! autocorrelated data", Journal of Hydrology 204, 1998): by
//! `1 + 2 / (n (n-1) (n-2)) sum (n-i) (n-i-1) (n-i-2) r_i`, where `r_i` is the correlation of the
//! ranks of what a straight line leaves with themselves `i` places on. They take those `r_i` that
//! tell by themselves; in rows as short as ours these are too few and too small, and of a hundred
//! rows with `r_1` of one half two seemed to drift at a level of one in a thousand. So `r_1` alone
//! is taken, made larger by what a short row hides, and the others as its powers. It is never made
//! smaller. A wave that is longer than the watch looks like a drift, and is one for as long as it
//! was watched.

/// Of values in rows by chance alone, one row in a thousand exceeds this many standard deviations.
pub(crate) const SURE_DEVIATIONS: f64 = 3.29;

/// Fewer values say nothing.
pub(crate) const VALUES_MIN: usize = 10;

/// The memory that is reckoned with is larger than the one that is seen by this many standard
/// errors: of rows with a memory of one half, about one in a thousand then seems to drift, and not
/// twenty.
const UNSURE: f64 = 1.0;

/// And is no larger than this: whatever remembers more is a wave.
const MEMORY_MAX: f64 = 0.95;

/// What a row of values, evenly spaced, shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// `S` over its standard deviation, brought nearer to zero by one half a step.
    pub z: f64,
    /// The line with the median of the slopes of all pairs, through the median of the residuals: the value at the
    /// first place.
    pub first: f64,
    /// And at the last.
    pub last: f64,
    /// The variance is this many times that of values that know nothing of each other.
    pub widened: f64,
    /// What is left by the line: the mean distance of the values from it.
    pub left: f64,
}

impl Trend {
    /// Whether chance alone would show as much in less than one row of a thousand.
    pub(crate) fn is_sure(&self) -> bool {
        self.z.abs() > SURE_DEVIATIONS
    }
}

/// The trend of `values`; `None` with fewer than [`VALUES_MIN`]. Work and memory grow with the
/// square of their number: fold long rows first, with [`folded`].
pub(crate) fn trend(values: &[f64]) -> Option<Trend> {
    let n = values.len();
    if n < VALUES_MIN {
        return None;
    }
    let mut s = 0_i64;
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (at, value) in values.iter().enumerate() {
        for (after, later) in values.iter().enumerate().skip(at + 1) {
            s += (*later > *value) as i64 - (*later < *value) as i64;
            slopes.push((later - value) / (after - at) as f64);
        }
    }
    let slope = super::median(&slopes)?;
    let rest: Vec<f64> = values.iter().enumerate().map(|(at, v)| v - slope * at as f64).collect();
    let first = super::median(&rest)?;
    let size = n as f64;
    let widened = resemblance(&rest);
    let variance = widened * (size * (size - 1.0) * (2.0 * size + 5.0) - tied(values)) / 18.0;
    let z = if s == 0 || variance <= 0.0 {
        0.0
    } else {
        (s as f64 - s.signum() as f64) / variance.sqrt()
    };
    let left = rest.iter().map(|it| (it - first).abs()).sum::<f64>() / size;
    Some(Trend { z, first, last: first + slope * (size - 1.0), widened, left })
}

/// By how much values that resemble their neighbours widen the variance of `S`: Hamed and Rao.
pub(super) fn resemblance(rest: &[f64]) -> f64 {
    let n = rest.len();
    let size = n as f64;
    let ranks = ranks(rest);
    let mean = (size + 1.0) / 2.0;
    let around: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    if around <= 0.0 {
        return 1.0;
    }
    let pairs = ranks.iter().zip(&ranks[1..]);
    let seen = pairs.map(|(one, other)| (one - mean) * (other - mean)).sum::<f64>() / around;
    // A line that was taken from a short row takes some of what values share with it.
    let whole = (seen + 2.0 / size) / (1.0 - 4.0 / size);
    let unsure = ((1.0 - whole.min(1.0).powi(2)).max(0.0) / size).sqrt();
    let memory = (whole + UNSURE * unsure).clamp(0.0, MEMORY_MAX);
    let part = |lag: usize| {
        let left = (n - lag) as f64;
        left * (left - 1.0) * (left - 2.0) * memory.powi(lag as i32)
    };
    let sum: f64 = (1..n).map(part).sum();
    1.0 + 2.0 / (size * (size - 1.0) * (size - 2.0)) * sum
}

/// The place of each value in order, from 1; equal ones share the mean of theirs.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = before as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|at| ranks[*at] = rank);
        before += equal.len();
    }
    ranks
}

/// What ties take from the variance.
fn tied(values: &[f64]) -> f64 {
    let sorted = super::sorted(values);
    let groups = sorted.chunk_by(|a, b| a == b).map(|group| group.len() as f64);
    groups.map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum()
}

/// At most `most` values, each the median of as many neighbours.
pub fn folded(values: &[f64], most: usize) -> Vec<f64> {
    let each = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(each).filter_map(super::median).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::stat::tests::remembering;

    fn row(seed: u64, n: usize, per_step: f64) -> Vec<f64> {
        let mut rng = SmallRng::seed_from_u64(seed);
        (0..n).map(|at| 20.0 + per_step * at as f64 + 2.0 * rng.random::<f64>()).collect()
    }

    #[test]
    fn a_drift_is_found_and_measured() {
        for seed in 0..20 {
            let found = trend(&row(seed, 60, 0.1)).expect("enough values");
            assert!(found.is_sure(), "{found:?}");
            assert!((found.last - found.first - 5.9).abs() < 1.0, "{found:?}");
        }
    }

    #[test]
    fn noise_is_no_drift() {
        let found = (0..200).filter(|seed| trend(&row(*seed, 30, 0.0)).expect("enough").is_sure());
        assert!(found.count() <= 1);
    }

    /// Of this many rows of `n` values without a drift, those that seem to drift.
    fn false_drifts(rows: u64, n: usize, memory: f64) -> usize {
        let found = |seed: &u64| trend(&remembering(*seed, n, memory)).expect("enough").is_sure();
        (0..rows).filter(found).count()
    }

    #[test]
    fn minutes_that_resemble_their_neighbours_are_no_drift() {
        // One in a thousand is nominal: more than five of a thousand rows come by chance in less
        // than one of a thousand tests. Without the correction it is twenty to fifty.
        for (n, memory) in [(20, 0.5), (30, 0.0), (30, 0.5), (60, 0.5)] {
            let seen = false_drifts(1_000, n, memory);
            assert!(seen <= 5, "{n}, {memory}: {seen}");
        }
    }

    #[test]
    fn a_drift_among_minutes_that_resemble_their_neighbours_is_found() {
        let rising = |seed: u64| {
            let row = remembering(seed, 60, 0.5);
            row.iter().zip(0..).map(|(value, at)| value + 0.2 * f64::from(at)).collect::<Vec<_>>()
        };
        let found = (0..50).filter(|seed| trend(&rising(*seed)).expect("enough").is_sure());
        assert!(found.count() >= 45);
    }

    #[test]
    fn one_bad_value_is_none() {
        let mut values = row(1, 40, 0.0);
        values[39] = 5_000.0;
        assert!(!trend(&values).expect("enough").is_sure());
    }

    #[test]
    fn ties_and_short_rows() {
        assert_eq!(trend(&[1.0; 9]), None);
        let flat = trend(&[1.0; 20]).expect("enough");
        assert_eq!((flat.z, flat.first, flat.last), (0.0, 1.0, 1.0));
    }

    #[test]
    fn the_variance_is_that_of_the_book() {
        // Gilbert, "Statistical Methods for Environmental Pollution Monitoring" (1987), 16.4.1.
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        let found = trend(&rising).expect("enough");
        assert!((found.z - 44.0 / 125.0_f64.sqrt()).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn a_long_row_is_folded() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(
            folded(&values, 10),
            [4.5, 14.5, 24.5, 34.5, 44.5, 54.5, 64.5, 74.5, 84.5, 94.5]
        );
        assert_eq!(folded(&values[..3], 10), [0.0, 1.0, 2.0]);
    }
}
