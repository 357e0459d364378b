//! Throughput over concurrency: a slope, and a plateau where the other side shapes.
//!
//! In a closed loop of `c` calls at a time, each taking `W0` when nothing is in the way,
//! throughput is `X(c) = c / W0` (Little's law). A limit `Xmax` makes it
//! `X(c) = min(c / W0, Xmax)`, and each call then takes `c / Xmax`. The two meet at the knee
//! `c* = Xmax * W0`: the asymptotic bounds of Denning and Buzen, "The Operational Analysis of
//! Queueing Network Models" (1978).

use super::{r_squared, slope, slope_through_origin};

/// Points on the plateau that it takes to believe in one.
const POINTS_MIN: usize = 3;

/// A plateau rises by less than this share of the first slope.
const FLAT: f64 = 0.05;

/// And reaches at least this far past the knee, or it may be noise on a slope.
const PAST_KNEE: f64 = 1.5;

/// The share of spread that the fits have to explain.
const R_SQUARED_MIN: f64 = 0.9;

/// One measured cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweepPoint {
    /// Calls at a time.
    pub concurrency: f64,
    /// Calls a second.
    pub throughput: f64,
    /// The median time of a call, seconds.
    pub latency: f64,
}

/// The nearest `min(c / W0, Xmax)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Seconds that a call takes when nothing is in the way.
    pub w0: f64,
    /// Calls a second on the plateau; the highest seen where there is no plateau.
    pub x_max: f64,
    /// Where slope and plateau meet; `None` without a plateau.
    pub knee: Option<f64>,
    /// Of throughput.
    pub r_squared: f64,
}

impl Fit {
    /// What the fit expects of `concurrency`.
    pub fn throughput(&self, concurrency: f64) -> f64 {
        match self.knee {
            Some(_) => (concurrency / self.w0).min(self.x_max),
            None => concurrency / self.w0,
        }
    }
}

/// What a sweep shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SweepShape {
    /// A plateau: more at a time only takes longer.
    Plateau(Fit),
    /// It rises to the end.
    Rising(Fit),
    /// Neither; the fit is told for what it is worth.
    Unclear(Fit),
}

/// The nearest fit by least squares. For each place where the plateau may begin, the slope is
/// that of the line through the origin and the plateau the mean; the place with the smallest
/// sum of squares is taken. `None` with fewer than three points, or none above zero.
pub fn fit(points: &[SweepPoint]) -> Option<Fit> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.concurrency.total_cmp(&b.concurrency));
    if points.len() < 3 {
        return None;
    }
    let seen: Vec<f64> = points.iter().map(|point| point.throughput).collect();
    let candidates = (1..=points.len()).filter_map(|rising| split(&points, rising));
    let rated = candidates.map(|mut fit| {
        let expected: Vec<f64> = points.iter().map(|p| fit.throughput(p.concurrency)).collect();
        fit.r_squared = r_squared(&seen, &expected);
        fit
    });
    rated.max_by(|a, b| a.r_squared.total_cmp(&b.r_squared))
}

fn split(points: &[SweepPoint], rising: usize) -> Option<Fit> {
    let (slope_part, flat_part) = points.split_at(rising);
    let line: Vec<(f64, f64)> = slope_part.iter().map(|p| (p.concurrency, p.throughput)).collect();
    let per_call = slope_through_origin(&line).filter(|s| *s > 0.0)?;
    let w0 = 1.0 / per_call;
    if flat_part.is_empty() {
        let highest = points.iter().map(|p| p.throughput).fold(0.0, f64::max);
        return Some(Fit { w0, x_max: highest, knee: None, r_squared: 0.0 });
    }
    let x_max = flat_part.iter().map(|p| p.throughput).sum::<f64>() / flat_part.len() as f64;
    Some(Fit { w0, x_max, knee: Some(x_max * w0), r_squared: 0.0 })
}

/// Whether the sweep flattens. It does where at least three points lie past the knee and reach
/// half as far again, their slope is below 5 % of the first one, and their times grow as
/// `c / Xmax` with R² above 0.9. It rises where the last point is still above 80 % of `c / W0`.
/// Calls that failed are none of this function's business: the caller leaves such cells out.
pub fn shape(points: &[SweepPoint]) -> Option<SweepShape> {
    let fit = fit(points)?;
    let end = points.iter().max_by(|a, b| a.concurrency.total_cmp(&b.concurrency))?;
    if end.throughput > 0.8 * end.concurrency / fit.w0 {
        return Some(SweepShape::Rising(Fit { knee: None, ..fit }));
    }
    let Some(knee) = fit.knee else { return Some(SweepShape::Unclear(fit)) };
    let past: Vec<SweepPoint> = points.iter().copied().filter(|p| p.concurrency > knee).collect();
    let line: Vec<(f64, f64)> = past.iter().map(|p| (p.concurrency, p.throughput)).collect();
    let flat = slope(&line).is_some_and(|s| s.abs() < FLAT / fit.w0);
    let seen: Vec<f64> = past.iter().map(|p| p.latency).collect();
    let expected: Vec<f64> = past.iter().map(|p| p.concurrency / fit.x_max).collect();
    let long = past.len() >= POINTS_MIN && end.concurrency >= PAST_KNEE * knee;
    let plateau = long && flat && r_squared(&seen, &expected) > R_SQUARED_MIN;
    Some(if plateau { SweepShape::Plateau(fit) } else { SweepShape::Unclear(fit) })
}
