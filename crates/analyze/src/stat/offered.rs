//! What becomes of an offered rate: throughput, success, and where it is no longer borne.

/// Of what is offered, a level that is borne achieves so much.
const ACHIEVED_MIN: f64 = 0.95;

/// And so many of its calls succeed.
const SUCCESS_MIN: f64 = 0.999;

/// One call of an open loop, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// When it should have begun.
    pub intended: f64,
    /// When it was over.
    pub ended: f64,
    /// Whether it was served.
    pub good: bool,
}

/// What became of one offered rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Calls a second that were sent.
    pub offered: f64,
    /// Calls a second that were served.
    pub achieved: f64,
    /// The share that was served.
    pub success: f64,
}

impl Level {
    /// Whether the rate is borne: 99.9 % are served, at 95 % of the pace or more.
    pub fn holds(&self) -> bool {
        self.success >= SUCCESS_MIN && self.achieved >= ACHIEVED_MIN * self.offered
    }
}

/// What became of `calls`. Throughput is counted between the first and the last answer,
/// (n - 1) / (t_n - t_1), so that neither the time of the first answer nor a short cell spoils it.
/// `None` with fewer than two calls.
pub fn level(offered: f64, calls: &[Offer]) -> Option<Level> {
    if calls.len() < 2 {
        return None;
    }
    let ends = calls.iter().filter(|call| call.good).map(|call| call.ended);
    let (mut first, mut last, mut good) = (f64::INFINITY, f64::NEG_INFINITY, 0_usize);
    for end in ends {
        (first, last, good) = (first.min(end), last.max(end), good + 1);
    }
    let span = last - first;
    let achieved = if good > 1 && span > 0.0 { (good - 1) as f64 / span } else { 0.0 };
    // Calls that are all over at once were at least as quick as they were sent.
    let achieved = achieved.min(offered * good as f64 / calls.len() as f64 * 1.05);
    Some(Level { offered, achieved, success: good as f64 / calls.len() as f64 })
}

/// Where load is no longer borne.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saturation {
    /// The highest rate that is borne, below any that is not.
    pub holds: Option<f64>,
    /// The lowest that is not.
    pub breaks: Option<f64>,
}

/// Finds it. Levels of one rate are repeats: all have to be borne.
pub fn saturation(levels: &[Level]) -> Saturation {
    let breaks =
        levels.iter().filter(|level| !level.holds()).map(|level| level.offered).reduce(f64::min);
    let below = |level: &&Level| breaks.is_none_or(|breaks| level.offered < breaks);
    let holds = levels.iter().filter(below).map(|level| level.offered).reduce(f64::max);
    Saturation { holds, breaks }
}
