//! What is known of one target that is watched, and what is to be done at it next. No clock, and nothing is sent.

use serde::{Deserialize, Serialize};

use super::limit::{ProbeSign, StudyRange, TrackedLimit};
use super::spend::{SpendBounds, SpendLedger};
use super::terms::MonitorTerms;
use crate::conclude::verdict::ExperimentVerdict;
use crate::measure::plan::{ExperimentPlan as _, FixedPlan, RatePlan};
use crate::record::MeasuredTarget;
use crate::work::GREETING;

/// Calls that tell the latency of a round.
const LATENCY_CALLS: u64 = 10;
/// Contradictions in a row that make a study.
const CONTRADICTIONS: u32 = 2;
/// The pause between the first of them and the second probe, seconds.
const CONFIRM_S: u64 = 10;
/// The pause between the last probe and a study, seconds.
const SETTLE_S: u64 = 5;
/// The pause after a study that found nothing new, seconds. It doubles with each further one, up to
/// [`STUDY_PAUSE_MAX_S`].
const STUDY_PAUSE_S: u64 = 60;
const STUDY_PAUSE_MAX_S: u64 = 3_600;
/// The pause before a target that serves nothing is asked again, seconds.
const REST_S: u64 = 900;
/// A limit that moved by less is the one that was known.
const SAME: f64 = 0.15;

/// How often something was done or happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorCounts {
    /// Calls that were sent.
    pub calls: u64,
    /// Rounds of probes.
    pub rounds: u64,
    /// Studies of the limit.
    pub studies: u64,
    /// Times that the limit was another one than before.
    pub changes: u64,
}

/// See the module. What is not skipped is kept over a restart.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MonitoredTarget {
    /// What the runs say of it.
    pub target: MeasuredTarget,
    /// What it was sent in the last day.
    pub(super) ledger: SpendLedger,
    /// The newest verdict or verdicts of each experiment.
    pub verdicts: Vec<ExperimentVerdict>,
    /// Since the first start.
    pub counts: MonitorCounts,
    /// Whether it answers; `None` before it was asked.
    #[serde(skip)]
    pub is_up: Option<bool>,
    /// Its newest block, by the last round.
    #[serde(skip)]
    pub block: Option<u64>,
    /// When it answered last, seconds since 1970.
    #[serde(skip)]
    pub answered_at: Option<u64>,
    #[serde(skip)]
    sign: Option<ProbeSign>,
    /// Contradictions in a row.
    #[serde(skip)]
    contradictions: u32,
    /// Studies in a row that found nothing; and those that found what was known.
    #[serde(skip)]
    failed: u32,
    #[serde(skip)]
    confirmed: u32,
    #[serde(skip)]
    round_at: u64,
    #[serde(skip)]
    study_at: u64,
}

/// What is to be done at a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MonitorStep {
    /// A study, for which this many calls are handed out.
    Study { calls: u64 },
    /// A round of probes, likewise.
    Round { calls: u64 },
    /// Nothing before this time, seconds since 1970.
    Wait { until: u64 },
}

/// What a study came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StudyResult {
    /// Another limit than was known.
    Changed { from: TrackedLimit, to: TrackedLimit },
    /// The one that was known.
    Confirmed,
    /// Nothing.
    Unclear,
}

impl MonitoredTarget {
    pub(super) fn new(target: MeasuredTarget) -> Self {
        Self { target, ..Self::default() }
    }

    /// The limit that is known.
    pub fn limit(&self) -> TrackedLimit {
        TrackedLimit::of(&self.verdicts)
    }

    /// Calls of the last hour at `now`, seconds since 1970.
    pub fn spent_in_hour(&self, now: u64) -> u64 {
        self.ledger.of_last_hour(now)
    }

    /// Calls that it may still be sent.
    pub fn left(&self, bounds: SpendBounds, now: u64) -> u64 {
        self.ledger.left(bounds, now)
    }

    /// What is next. Rounds leave enough for a study; one that is due waits for its calls, and no round takes them.
    pub(super) fn next_step(&self, terms: &MonitorTerms, now: u64) -> MonitorStep {
        let left = self.ledger.left(terms.bounds, now);
        let room = |calls| {
            let until = self.ledger.when(calls, terms.bounds, now);
            MonitorStep::Wait { until: until.unwrap_or(now + STUDY_PAUSE_MAX_S).max(now + 1) }
        };
        let rests = self.is_up == Some(false);
        if self.needs_study() && now >= self.study_at && !rests {
            let calls = self.study_plan(terms).calls_max() + GREETING.len() as u64;
            if left < calls {
                return room(calls);
            }
            return MonitorStep::Study { calls: left.min(terms.study_calls_max()) };
        }
        if now < self.round_at {
            let study_at = if self.needs_study() && !rests { self.study_at } else { u64::MAX };
            return MonitorStep::Wait { until: self.round_at.min(study_at).max(now + 1) };
        }
        let (calls, reserve) = (self.round_calls(), self.reserve(terms));
        match left < calls + reserve {
            true => room(calls + reserve),
            false => MonitorStep::Round { calls },
        }
    }

    fn needs_study(&self) -> bool {
        self.limit() == TrackedLimit::Unknown || self.contradictions >= CONTRADICTIONS
    }

    /// Calls of a round at most.
    pub(super) fn round_calls(&self) -> u64 {
        let probe = self.limit().probe().map_or(0, |plan| plan.calls_max());
        GREETING.len() as u64 + latency_plan().calls_max() + probe
    }

    /// Calls that rounds leave for a study: the dearer of the two that may become due.
    fn reserve(&self, terms: &MonitorTerms) -> u64 {
        let of = |sign| self.study_plan_for(terms, sign).calls_max();
        of(ProbeSign::Lower).max(of(ProbeSign::Higher)) + GREETING.len() as u64
    }

    /// The rates of the study that is due.
    pub(super) fn study_plan(&self, terms: &MonitorTerms) -> RatePlan {
        self.study_plan_for(terms, self.sign.unwrap_or(ProbeSign::Agrees))
    }

    fn study_plan_for(&self, terms: &MonitorTerms, sign: ProbeSign) -> RatePlan {
        let range = StudyRange::of(&self.limit(), sign, self.failed, terms.rate_max);
        range.plan(terms.rate_lasting, terms.study_calls_max() - GREETING.len() as u64)
    }

    /// Seconds between two rounds: as often as was asked for, or as the bounds allow.
    fn pause_s(&self, terms: &MonitorTerms) -> u64 {
        let reserve = self.reserve(terms);
        let hourly = terms.bounds.per_hour.saturating_sub(reserve);
        let daily = terms.bounds.per_day.saturating_sub(reserve) / 24;
        let per_hour = hourly.min(daily).max(1);
        terms.every.as_secs().max((self.round_calls() * 3_600).div_ceil(per_hour))
    }

    /// Charges calls before they are sent.
    pub(super) fn charge(&mut self, calls: u64, now: u64) {
        self.ledger.charge(calls, now);
    }

    /// Of what was charged this many were sent.
    pub(super) fn settle(&mut self, charged: u64, sent: u64) {
        self.ledger.refund(charged.saturating_sub(sent));
        self.counts.calls += sent;
    }

    /// Notes that it answers nothing, or refuses everything; whether that is new.
    pub(super) fn rest(&mut self, now: u64) -> bool {
        self.round_at = now + REST_S;
        self.contradictions = 0;
        self.is_up.replace(false) != Some(false)
    }

    /// Notes an answer; whether it came after a time without.
    pub(super) fn answered(&mut self, block: Option<u64>, now: u64) -> bool {
        (self.block, self.answered_at) = (block.or(self.block), Some(now));
        self.is_up.replace(true) == Some(false)
    }

    /// Notes what a round came to; whether it begins to contradict what is known.
    pub(super) fn finish_round(&mut self, sign: ProbeSign, terms: &MonitorTerms, now: u64) -> bool {
        self.counts.rounds += 1;
        let is_new = sign != ProbeSign::Agrees && self.contradictions == 0;
        self.contradictions = match sign {
            ProbeSign::Agrees => 0,
            ProbeSign::Lower | ProbeSign::Higher if self.sign == Some(sign) => {
                self.contradictions + 1
            }
            ProbeSign::Lower | ProbeSign::Higher => 1,
        };
        self.sign = Some(sign);
        let pause = if is_new { CONFIRM_S } else { self.pause_s(terms) };
        self.round_at = now + pause;
        // The probe may have left a bucket empty.
        self.study_at = self.study_at.max(now + SETTLE_S);
        is_new
    }

    /// Notes that even the calls that greet were refused for their rate: something has left the bucket empty.
    pub(super) fn settle_down(&mut self, now: u64) {
        self.round_at = now + CONFIRM_S;
        self.study_at = self.study_at.max(now + CONFIRM_S);
    }

    /// Takes the verdicts of a study, where they tell a limit.
    pub(super) fn finish_study(
        &mut self,
        found: Vec<ExperimentVerdict>,
        terms: &MonitorTerms,
        now: u64,
    ) -> StudyResult {
        self.counts.studies += 1;
        let (was, is) = (self.limit(), TrackedLimit::of(&found));
        if is == TrackedLimit::Unknown || stops_short(was, is) {
            self.failed = self.failed.saturating_add(1);
            self.study_at = now + study_pause(self.failed);
            self.round_at = now + self.pause_s(terms);
            return StudyResult::Unclear;
        }
        // What the study did not look at again is known of another limit.
        self.verdicts.retain(|verdict| !matches!(verdict.experiment.as_str(), "rate" | "window"));
        self.take(found);
        (self.failed, self.contradictions, self.sign) = (0, 0, None);
        self.round_at = now + self.pause_s(terms);
        if is_same(was, is) {
            self.confirmed = self.confirmed.saturating_add(1);
            self.study_at = now + study_pause(self.confirmed);
            return StudyResult::Confirmed;
        }
        self.confirmed = 0;
        self.counts.changes += u64::from(was != TrackedLimit::Unknown);
        StudyResult::Changed { from: was, to: is }
    }

    /// Takes verdicts in the place of older ones of their experiments.
    pub(super) fn take(&mut self, found: Vec<ExperimentVerdict>) {
        let is_new = |verdict: &ExperimentVerdict| {
            found.iter().any(|new| new.experiment == verdict.experiment)
        };
        self.verdicts.retain(|verdict| !is_new(verdict));
        self.verdicts.extend(found);
    }
}

/// One call at a time.
pub(super) fn latency_plan() -> FixedPlan {
    FixedPlan::latency(LATENCY_CALLS)
}

fn study_pause(in_a_row: u32) -> u64 {
    (STUDY_PAUSE_S << in_a_row.saturating_sub(1).min(6)).min(STUDY_PAUSE_MAX_S)
}

/// Whether a study met no limit, but did not go up to where one was.
fn stops_short(was: TrackedLimit, is: TrackedLimit) -> bool {
    match (was, is) {
        (TrackedLimit::Limited(was), TrackedLimit::NoneUpTo(up_to)) => {
            up_to < was.per_second * (1.0 + SAME)
        }
        _ => false,
    }
}

fn is_same(was: TrackedLimit, is: TrackedLimit) -> bool {
    match (was, is) {
        (TrackedLimit::Limited(was), TrackedLimit::Limited(is)) => {
            (is.per_second / was.per_second - 1.0).abs() <= SAME
        }
        (TrackedLimit::NoneUpTo(_), TrackedLimit::NoneUpTo(_))
        | (TrackedLimit::Concurrency, TrackedLimit::Concurrency) => true,
        (
            TrackedLimit::Unknown
            | TrackedLimit::NoneUpTo(_)
            | TrackedLimit::Limited(_)
            | TrackedLimit::Concurrency,
            _,
        ) => false,
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
