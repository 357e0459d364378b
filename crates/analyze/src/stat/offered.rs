//! What becomes of an offered rate: throughput, success, and where it is no longer borne.
//!
//! One call that fails, or is late, is nothing that a rate brings about: any call may. So a rate
//! is said not to be borne only where more failed than one in a thousand explains, or where a part
//! of the calls was still waiting when the last of them should have been over.

use super::chance::so_many;
use super::quantile;

/// Of the calls of a level that is borne, no more than this share is left behind.
const BEHIND_MAX: f64 = 0.05;

/// And no larger share of them fails.
const FAILED_MAX: f64 = 0.001;

/// A failure share is above that where chance shows as many failures no more often than this: the
/// lower end of the interval of 95 % of Clopper and Pearson (1934).
const CHANCE_MAX: f64 = 0.025;

/// Fewer calls may have failed, or been late, each for a reason of its own.
const CALLS_MIN: u64 = 2;

/// A break is gross where ten times as many fail as may, or so large a share is left behind.
const GROSS: f64 = 0.2;

/// Above a limit of which a tenth more is sent, so large a share is left behind.
const QUEUED: f64 = 0.08;

/// What is usual is told by the first part of the calls: what waits is not yet long there.
const USUAL_PART: usize = 4;

/// Nine of ten calls take no longer than what is usual.
const USUAL: f64 = 0.9;

/// One call of an open loop, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfferedCall {
    /// When it should have begun.
    pub intended: f64,
    /// When it was over.
    pub ended: f64,
    /// Whether it was served.
    pub good: bool,
}

/// What became of one offered rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OfferedLevel {
    /// Calls a second that were sent.
    pub offered: f64,
    /// Calls a second that were served.
    pub achieved: f64,
    /// Calls in all.
    pub calls: u64,
    /// Of these, those that were not served.
    pub failed: u64,
    /// Of these, those that were served later than the last call usually is.
    pub behind: u64,
}

impl OfferedLevel {
    /// Whether the rate is borne: no more fail than 0.1 % explains, and no more than 5 % of them
    /// are left behind.
    pub fn holds(&self) -> bool {
        !self.fails_above(FAILED_MAX) && !self.is_behind(BEHIND_MAX)
    }

    /// Whether it is not borne by far.
    pub(crate) fn breaks_by_far(&self) -> bool {
        self.fails_above(10.0 * FAILED_MAX) || self.is_behind(GROSS)
    }

    /// Whether calls wait for longer and longer: by far more are left behind than where the rate is borne.
    pub(crate) fn queues(&self) -> bool {
        self.is_behind(QUEUED)
    }

    fn fails_above(&self, share: f64) -> bool {
        self.failed >= CALLS_MIN && so_many(self.failed, self.calls, share) <= CHANCE_MAX
    }

    fn is_behind(&self, share: f64) -> bool {
        self.behind > CALLS_MIN && self.behind as f64 > share * self.calls as f64
    }
}

/// What became of `calls`, in order of their intended times. Where the pace is kept, what is
/// served is the offered rate times the share that succeeds; where it is not, it is counted over
/// the time in which calls were sent, later by what the quickest of them took. `None` with fewer
/// than two calls.
pub fn level(offered: f64, calls: &[OfferedCall]) -> Option<OfferedLevel> {
    if calls.len() < 2 {
        return None;
    }
    let last = calls.iter().map(|call| call.intended).fold(f64::NEG_INFINITY, f64::max);
    let good = || calls.iter().filter(|call| call.good);
    let times = |calls: &[OfferedCall]| -> Vec<f64> {
        let good = calls.iter().filter(|call| call.good);
        good.map(|call| call.ended - call.intended).collect()
    };
    let (all, first) = (times(calls), times(&calls[..calls.len().div_ceil(USUAL_PART)]));
    let usual = quantile(&first, USUAL).or_else(|| quantile(&all, USUAL)).unwrap_or(0.0);
    let quick = all.iter().copied().fold(f64::INFINITY, f64::min);
    let by = |deadline: f64| good().filter(|call| call.ended <= deadline).count() as f64;
    let behind = good().filter(|call| call.ended > last + usual).count() as u64;
    let (n, served) = (calls.len() as u64, all.len() as u64);
    let success = served as f64 / n as f64;
    let mut level = OfferedLevel { offered, achieved: 0.0, calls: n, failed: n - served, behind };
    let share = if level.is_behind(BEHIND_MAX) { by(last + quick) / n as f64 } else { success };
    level.achieved = offered * share;
    Some(level)
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
pub(crate) fn saturation(levels: &[OfferedLevel]) -> Saturation {
    let breaks =
        levels.iter().filter(|level| !level.holds()).map(|level| level.offered).reduce(f64::min);
    let below = |level: &&OfferedLevel| breaks.is_none_or(|breaks| level.offered < breaks);
    let holds = levels.iter().filter(below).map(|level| level.offered).reduce(f64::max);
    Saturation { holds, breaks }
}
