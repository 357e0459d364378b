//! Figures from samples: plain functions, no clock, chance is passed in.
//!
//! What a figure means for a provider is decided in `verdict`. Samples are finite numbers;
//! one that is not is left out where it would spoil a sort.

pub mod bootstrap;
pub mod bucket;
pub mod ceiling;
pub mod chance;
pub mod change;
pub mod offered;
pub mod plateau;
pub mod ratio;
pub mod refill;
pub mod step;
pub mod trend;

/// The exact `q`-quantile, with a straight line between neighbours: type 7 of Hyndman and Fan,
/// "Sample Quantiles in Statistical Packages" (1996), as R, `NumPy` and pandas have it.
/// `None` without samples. `q` outside 0..=1 is taken as the nearer end.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(samples), q)
}

/// As [`quantile`], where the samples are in order.
pub(crate) fn quantile_of_sorted(samples: &[f64], q: f64) -> Option<f64> {
    let last = samples.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(samples[below] + (samples[above] - samples[below]) * (at - below as f64))
}

/// The finite ones, in order.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut samples: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    samples.sort_by(f64::total_cmp);
    samples
}

/// The middle one, or the mean of the middle two.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// How much of the spread of `seen` is explained by `expected`: 1 - (sum of squares that is
/// left) / (sum of squares around the mean). 1 where nothing spreads and nothing is left.
pub(crate) fn r_squared(seen: &[f64], expected: &[f64]) -> f64 {
    if seen.is_empty() {
        return 0.0;
    }
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    let around: f64 = seen.iter().map(|y| (y - mean).powi(2)).sum();
    let left: f64 = seen.iter().zip(expected).map(|(y, e)| (y - e).powi(2)).sum();
    if around > 0.0 {
        1.0 - left / around
    } else if left > 0.0 {
        0.0
    } else {
        1.0
    }
}

/// The slope of the line through the origin that is nearest: sum(x y) / sum(x x).
pub(crate) fn slope_through_origin(points: &[(f64, f64)]) -> Option<f64> {
    let xx: f64 = points.iter().map(|(x, _)| x * x).sum();
    (xx > 0.0).then(|| points.iter().map(|(x, y)| x * y).sum::<f64>() / xx)
}

/// The slope of the least squares line.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let x_mean = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let y_mean = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let xx: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let xy: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (xx > 0.0).then(|| xy / xx)
}

#[cfg(test)]
#[path = "stat/tests.rs"]
mod tests;
