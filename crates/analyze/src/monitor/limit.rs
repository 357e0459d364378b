//! The limit that a target is known to have, how it is probed, and what contradicts it. No clock, and nothing is sent.

use std::time::Duration;

use crate::conclude::verdict::FindingBound::{Found, NotUpTo};
use crate::conclude::verdict::{Confidence, ExperimentVerdict, Finding, Refilled, RefusedRate};
use crate::measure::plan::{CellOutcome, ProbeCell, ProbePlan, RatePlan};
use crate::record::Cell;

/// Of the limit, in the cell that has to pass.
const BELOW: f64 = 0.8;
/// How long that one lasts: half of a limit that was halved, with a bucket of a second, is met within 2 s.
const BELOW_LASTS: Duration = Duration::from_secs(3);
/// Of the limit, in the cell that has to be refused.
const ABOVE: f64 = 2.0;
/// It lasts until a bucket is empty, this much longer, and a second.
const ABOVE_LONGER: f64 = 1.25;
/// A longer bucket than this is not emptied by a probe, which then tells what is below alone, seconds.
const WINDOW_MAX_S: f64 = 12.0;
/// Where no limit was met, the highest rate is probed up to here, in calls per second: more is no gentle probe.
const UNLIMITED_PROBE_MAX: f64 = 25.0;
/// Fewer refusals below the limit, or a smaller share, are a slip.
const REFUSED_MIN: u64 = 2;
const REFUSED_SHARE: f64 = 0.02;
/// The share by which the calls that pass may differ from those that the size and rate of an even bucket predict.
const PASSED_OFF: f64 = 0.3;
/// Between the two cells, and between the rates of a study.
pub(super) const REST: Duration = Duration::from_secs(2);
/// Of a study: from each rate to the next.
const STUDY_STEP: f64 = 1.5;
/// Where nothing is known.
const FIRST_STEP: f64 = 2.0;
/// The lowest rate of a study, calls per second.
const RATE_MIN: f64 = 1.0;

/// What is known of the limit of a target on its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrackedLimit {
    /// Nothing: no study was conclusive.
    Unknown,
    /// More calls per second than this were not tried, and these pass.
    NoneUpTo(f64),
    /// So many pass.
    Limited(RateBound),
    /// It bounds calls in flight, or connections, which probes of a rate do not show.
    Concurrency,
}

/// A bound on a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateBound {
    /// Calls per second.
    pub per_second: f64,
    /// Calls that pass at once, where that was seen.
    pub size: Option<f64>,
    /// Whether single calls pass again, evenly.
    pub is_even: bool,
}

impl RateBound {
    /// Seconds in which the size passes.
    fn window_s(&self) -> f64 {
        self.size.map_or(1.0, |size| size / self.per_second.max(0.01)).max(1.0)
    }
}

impl TrackedLimit {
    /// What the verdicts of a target say; those of low confidence say nothing.
    pub fn of(verdicts: &[ExperimentVerdict]) -> Self {
        let sure = || verdicts.iter().filter(|it| it.confidence >= Confidence::Medium);
        let bucket = sure().find_map(|verdict| match verdict.finding {
            Finding::Bucket(Found(limit)) => Some(limit),
            _ => None,
        });
        let rate = sure().find_map(|verdict| match verdict.finding {
            Finding::Rate(Found(RefusedRate { per_second, .. })) => {
                let size = bucket.map(|limit| limit.size as f64);
                let is_even = bucket.is_some_and(|limit| limit.refill == Refilled::Evenly);
                Some(Self::Limited(RateBound { per_second, size, is_even }))
            }
            Finding::Rate(NotUpTo(none)) => Some(Self::NoneUpTo(none.up_to_per_second)),
            Finding::InFlight { .. } | Finding::ConnectionCap { .. } => Some(Self::Concurrency),
            _ => None,
        });
        rate.unwrap_or(Self::Unknown)
    }

    /// Calls per second, where there is a limit.
    pub fn per_second(&self) -> Option<f64> {
        match self {
            Self::Limited(bound) => Some(bound.per_second),
            Self::Unknown | Self::NoneUpTo(_) | Self::Concurrency => None,
        }
    }

    /// The silence before a probe, in which a bucket that other calls have emptied becomes full again.
    pub(super) fn settles(&self) -> Duration {
        match self {
            Self::Limited(bound) => {
                REST.max(Duration::from_secs_f64(ABOVE_LONGER * bound.window_s().min(WINDOW_MAX_S)))
            }
            Self::Unknown | Self::NoneUpTo(_) | Self::Concurrency => REST,
        }
    }

    /// A gentle probe of it; `None` where there is nothing to probe.
    pub(super) fn probe(&self) -> Option<ProbePlan> {
        let below = |per_second| ProbeCell { per_second, lasting: BELOW_LASTS };
        match self {
            Self::Unknown | Self::Concurrency => None,
            Self::NoneUpTo(up_to) => {
                Some(ProbePlan::new(below(up_to.min(UNLIMITED_PROBE_MAX)), None, REST))
            }
            Self::Limited(bound) => {
                let lasts_s = ABOVE_LONGER * bound.window_s() / (ABOVE - 1.0) + 1.0;
                let lasting = Duration::from_secs_f64(lasts_s);
                let above = ProbeCell { per_second: bound.per_second * ABOVE, lasting };
                let above = Some(above).filter(|_| bound.window_s() <= WINDOW_MAX_S);
                Some(ProbePlan::new(below(bound.per_second * BELOW), above, REST))
            }
        }
    }

    /// What a cell of a probe says of it. One in which the generator fell behind says only what was refused.
    pub(super) fn sign(&self, cell: &Cell, outcome: &CellOutcome) -> ProbeSign {
        let is_below = cell.factors.get("side").is_some_and(|side| side == ProbePlan::BELOW);
        let is_slip = outcome.throttled < REFUSED_MIN
            || (outcome.throttled as f64) < REFUSED_SHARE * outcome.calls as f64;
        let only_refused = CellOutcome { throttled: 0, ..*outcome };
        match (is_below, outcome.is_limited()) {
            (true, true) if is_slip && !only_refused.is_limited() => ProbeSign::Agrees,
            (true, true) => ProbeSign::Lower,
            (true, false) => ProbeSign::Agrees,
            (false, _) if cell.load.doubted().is_some() => ProbeSign::Agrees,
            (false, false) => ProbeSign::Higher,
            (false, true) => self.passed_sign(cell, outcome),
        }
    }

    /// Of an even bucket the number of calls that pass is known beforehand.
    fn passed_sign(&self, cell: &Cell, outcome: &CellOutcome) -> ProbeSign {
        let Self::Limited(RateBound { per_second, size: Some(size), is_even: true }) = self else {
            return ProbeSign::Agrees;
        };
        let lasted_s = cell.ended_at.saturating_sub(cell.begun_at) as f64 / 1e6;
        let expected = size + per_second * lasted_s;
        let passed = outcome.calls.saturating_sub(outcome.throttled + outcome.unserved) as f64;
        if passed > expected * (1.0 + PASSED_OFF) {
            ProbeSign::Higher
        } else if passed < expected * (1.0 - PASSED_OFF) {
            ProbeSign::Lower
        } else {
            ProbeSign::Agrees
        }
    }
}

/// What a probe says of the limit that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeSign {
    /// It may be where it was.
    Agrees,
    /// Calls below it were refused, failed or waited.
    Lower,
    /// Calls above it passed.
    Higher,
}

/// Rates of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StudyRange {
    pub(super) from: f64,
    pub(super) to: f64,
    step: f64,
}

impl StudyRange {
    /// Rates around what is known, up to `to_max`, on the side where `sign` points. After studies that failed, each
    /// time wider, to both sides.
    pub(super) fn of(limit: &TrackedLimit, sign: ProbeSign, failed: u32, to_max: f64) -> Self {
        let wider = 4_f64.powi(i32::try_from(failed.min(8)).unwrap_or(8));
        let first = Self { from: to_max / 16.0, to: to_max, step: FIRST_STEP };
        let range = match (limit, sign) {
            (TrackedLimit::Unknown | TrackedLimit::Concurrency, _) => first,
            // It was met at a rate that passed: it may be anywhere below.
            (TrackedLimit::NoneUpTo(_), _) => first,
            (TrackedLimit::Limited(bound), ProbeSign::Lower) => {
                Self { from: bound.per_second / 8.0, to: bound.per_second * 1.5, step: STUDY_STEP }
            }
            (TrackedLimit::Limited(bound), ProbeSign::Higher) => {
                Self { from: bound.per_second, to: to_max, step: STUDY_STEP }
            }
            (TrackedLimit::Limited(bound), ProbeSign::Agrees) => {
                Self { from: bound.per_second / 2.0, to: bound.per_second * 4.0, step: STUDY_STEP }
            }
        };
        let to = (range.to * wider).min(to_max).max(RATE_MIN);
        Self { from: (range.from / wider).max(RATE_MIN).min(to), to, step: range.step }
    }

    /// The plan, whose rates last `lasting` each; lower ones where it could cost more than `calls_max`.
    pub(super) fn plan(mut self, lasting: Duration, calls_max: u64) -> RatePlan {
        loop {
            let plan = RatePlan::new(self.from, self.to, self.step, lasting, REST);
            let is_within = crate::measure::plan::ExperimentPlan::calls_max(&plan) <= calls_max;
            if is_within || self.to <= RATE_MIN {
                return plan;
            }
            self.to = (self.to / self.step).max(RATE_MIN);
            self.from = self.from.min(self.to);
        }
    }
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
