//! How sure a difference of medians is: the percentile bootstrap of Efron (1979), in two
//! stages (Davison and Hinkley, "Bootstrap Methods", 1997, section 3.8).
//!
//! Calls of one cell resemble each other more than calls of two: a cell may have met a slow
//! minute. So cells are drawn first, then calls within them. With few repeats such an interval
//! is still a little too narrow; where there is one cell it says nothing of other minutes.

use rand::Rng;

use super::{median, quantile_of_sorted, sorted};

/// Times that is drawn anew.
const RESAMPLES: usize = 1_000;

/// Of a larger cell this many evenly spaced order statistics are used: the median stays, the
/// interval becomes wider rather than narrower, and the work is bounded.
const SAMPLES_MAX: usize = 100;

/// A figure and where it lies in 95 of 100 draws, or in as many as is said where it is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// From all samples.
    pub point: f64,
    /// The lower end: where nothing else is said the 2.5 % quantile of the draws.
    pub low: f64,
    /// The upper end, likewise.
    pub high: f64,
}

impl Interval {
    /// The interval of one over the figure, for a ratio above zero.
    pub(crate) fn inverted(&self) -> Self {
        Self { point: 1.0 / self.point, low: 1.0 / self.high, high: 1.0 / self.low }
    }
}

/// The difference of medians, `a - b`; each a list of cells. `None` where one has no samples.
pub(crate) fn median_difference(
    a: &[Vec<f64>],
    b: &[Vec<f64>],
    rng: &mut impl Rng,
) -> Option<Interval> {
    worst_difference(a, b, 1, rng)
}

/// As [`median_difference`], where it is the largest of this many that were looked at: the interval
/// is made wider, so that all of them are missed together in 5 of 100 cases (Bonferroni).
pub(crate) fn worst_difference(
    a: &[Vec<f64>],
    b: &[Vec<f64>],
    of: usize,
    rng: &mut impl Rng,
) -> Option<Interval> {
    let tail = 0.025 / of.max(1) as f64;
    let point = median(&a.concat())? - median(&b.concat())?;
    let (a, b) = (thinned(a), thinned(b));
    let mut drawn = Vec::with_capacity(RESAMPLES);
    let mut room = Vec::new();
    for _ in 0..RESAMPLES {
        drawn.push(draw(&a, &mut room, rng) - draw(&b, &mut room, rng));
    }
    drawn.sort_by(f64::total_cmp);
    Some(Interval {
        point,
        low: quantile_of_sorted(&drawn, tail)?,
        high: quantile_of_sorted(&drawn, 1.0 - tail)?,
    })
}

fn thinned(cells: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let thin = |cell: &Vec<f64>| {
        let all = sorted(cell);
        if all.len() <= SAMPLES_MAX {
            return all;
        }
        let at = |n: usize| quantile_of_sorted(&all, (n as f64 + 0.5) / SAMPLES_MAX as f64);
        (0..SAMPLES_MAX).filter_map(at).collect()
    };
    cells.iter().map(thin).filter(|cell| !cell.is_empty()).collect()
}

/// The median of one draw: as many cells as there are, with replacement, and of each as many
/// samples as it has.
fn draw(cells: &[Vec<f64>], room: &mut Vec<f64>, rng: &mut impl Rng) -> f64 {
    room.clear();
    for _ in 0..cells.len() {
        let cell = &cells[rng.random_range(0..cells.len())];
        for _ in 0..cell.len() {
            room.push(cell[rng.random_range(0..cell.len())]);
        }
    }
    let middle = room.len() / 2;
    *room.select_nth_unstable_by(middle, f64::total_cmp).1
}
