//! What a run says of a provider: typed findings, each with a sentence, its evidence and how
//! sure it is.
//!
//! Computed from records alone and the same each time: chance comes from the run's seed. A cell
//! in which the generator fell behind concludes nothing from times; what it counts, such as refusals, stands. One
//! in which our connections were full, or calls were lost, concludes nothing. Two sound cells decide, with one step
//! less of confidence where others are left out; with fewer the verdict is that nothing can be
//! said. What each experiment writes into its cells is said at the module that reads it.

mod agree;
mod bodies;
mod comparison;
mod connections;
mod ended;
mod failures;
mod finding;
mod fresh;
mod in_flight;
mod kind;
mod latency;
mod limits;
mod load;
mod reach;
mod refill;
mod samples;
mod sentence;
mod soak;

use finding::FindingBound::Found;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

pub use finding::{
    AnswersAgree, AnswersDiffer, BlockLag, BodyPace, CapWay, Drift, Drifting, Extent, FailedCalls,
    FailureSpan, FailureWay, Faster, Finding, FindingBound, IdleClose, LoadCapacity, NoBlockLag,
    NoBodyPace, NoCountLimit, NoDifference, NoDrift, NoIdleClose, NoLoadCapacity, NoRateLimit,
    NotShaped, PacedFlow, Recycle, Refilled, RefusalWay, RefusedRate, RetryAfterWorth, ServedUsers,
    Shaped, ShapingScope, SmallFlow, SmallWait, StreamLimit, TokenLimit,
};
pub use kind::{
    Better, FINDING_KINDS, FigureBound, FigureTerms, FindingKind, Unit, VerdictFigure,
    figure_words, figures,
};
pub use samples::{sample_findings, sentences_page};
pub use sentence::figure;

use crate::record::{PlayedCell, Record, RunRecord, Trial, trial, trials};

/// How a report sees calls and cells: with the same eyes as the verdicts.
pub(crate) mod see {
    pub(crate) use super::agree::questions;
    pub(crate) use super::bodies::{delivered, is_large};
    pub(crate) use super::connections::first_end;
    pub(crate) use super::fresh::{Distance, lags_ms, sights};
    pub(crate) use super::limits::{fit_of, order, over, sustained};
    pub(crate) use super::load::level_of;
    pub(crate) use super::reach::methods;
    pub(crate) use super::trial::{served, throttled, took_ms};
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nothing was concluded.
    None,
    /// It was seen once, or not all of it agrees.
    Low,
    /// It was seen, and repeated too little to exclude chance.
    Medium,
    /// Repeats agree.
    High,
}

wellhead_word::words!(Confidence);

impl Confidence {
    /// High from `high` times on that it was seen, medium from `medium` on, and low below.
    fn by_count<N: Ord + Copy>(seen: N, high: N, medium: N) -> Self {
        match (seen >= high, seen >= medium) {
            (true, _) => Self::High,
            (false, true) => Self::Medium,
            (false, false) => Self::Low,
        }
    }

    fn one_less(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Low | Self::Medium => Self::Low,
            Self::High => Self::Medium,
        }
    }
}

/// What one experiment says of one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentVerdict {
    /// The name of the experiment.
    pub experiment: String,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// The finding in a sentence.
    pub sentence: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// What it rests on, a line each.
    pub evidence: Vec<String>,
}

impl ExperimentVerdict {
    /// How sure it is, to follow the sentence: ` (high confidence)`; empty where nothing was found.
    pub fn confidence_note(&self) -> String {
        match self.confidence {
            Confidence::None => String::new(),
            sure => format!(" ({} confidence)", sure.word()),
        }
    }
}

/// A finding on its way to a verdict.
struct DraftVerdict {
    finding: Finding,
    confidence: Confidence,
    evidence: Vec<String>,
}

impl DraftVerdict {
    fn new(finding: Finding, confidence: Confidence, evidence: Vec<String>) -> Self {
        Self { finding, confidence, evidence }
    }

    fn of(self, experiment: &str, target: u32) -> ExperimentVerdict {
        let finding = self.finding.rounded();
        ExperimentVerdict {
            experiment: experiment.to_owned(),
            target,
            sentence: finding.to_string(),
            finding,
            confidence: self.confidence,
            evidence: self.evidence,
        }
    }

    fn cannot_tell(why: impl Into<String>) -> Self {
        Self::new(Finding::CannotTell { why: why.into() }, Confidence::None, Vec::new())
    }

    /// Nothing is concluded, because other cells say otherwise; the evidence stays.
    fn disproved(self, why: String) -> Self {
        Self { evidence: self.evidence, ..Self::cannot_tell(why) }
    }
}

/// All verdicts of a run, in the order of its experiments and targets.
pub fn verdicts(run: &RunRecord, records: &[Record]) -> Vec<ExperimentVerdict> {
    let trials = trials(records);
    let place = |name: &str| run.experiments.iter().position(|known| known == name);
    let mut order: Vec<&Trial<'_>> = trials.iter().collect();
    order.sort_by_key(|trial| (place(trial.experiment).unwrap_or(usize::MAX), trial.target));
    let mut told = Vec::new();
    for trial in order {
        for found in judge(run, trial, &trials) {
            told.push(found.of(trial.experiment, trial.target));
        }
    }
    for (target, experiment, found) in ended::ended(records) {
        for cut in told.iter_mut().filter(|it| (it.target, &*it.experiment) == (target, experiment))
        {
            cut.confidence = cut.confidence.min(Confidence::Low);
            cut.evidence.push("sending stopped before the experiment was complete".to_owned());
        }
        told.push(found.of(experiment, target));
    }
    // Each of these is the last of its experiment and target.
    told.sort_by_key(|it| (place(&it.experiment).unwrap_or(usize::MAX), it.target));
    told
}

fn judge(run: &RunRecord, trial: &Trial<'_>, all: &[Trial<'_>]) -> Vec<DraftVerdict> {
    let (sound, left_out) = trial.sound();
    let counted = trial.counted();
    let (cells, cells_min) = match needs(trial.experiment) {
        FindingNeeds::Times => (&sound, SOUND_MIN),
        FindingNeeds::Counts | FindingNeeds::Both => (&counted, 1),
        FindingNeeds::Neither => (&sound, 0),
    };
    if left_out > 0 && cells.len() < cells_min {
        // Failures are counted, whatever time they took.
        let failures = span_of(trial).and_then(|span| failures::of_cells(&counted, span));
        return [doubted(trial)].into_iter().chain(failures).collect();
    }
    let mut rng = SmallRng::seed_from_u64(run.seed ^ u64::from(trial.target));
    let bounded = in_flight::bound(trial, all);
    let mut found = match trial.experiment {
        // Refusals that have another cause than a rate say nothing of one.
        _ if bounded.is_some() => bounded.into_iter().collect(),
        "latency" => vec![latency::latency(cells)],
        "streams" => vec![connections::streams(cells)],
        "connection" => connections::connection(cells),
        "rate" => vec![limits::rate(cells).unwrap_or_else(|| doubted(trial))],
        "window" => vec![without_contradiction(refill::window(cells), trial, all)],
        "throttle" => vec![limits::throttle(cells).unwrap_or_else(|| doubted(trial))],
        "cost" => refill::cost(cells, run.targets.get(trial.target as usize)),
        "protocol" => comparison::protocol(cells),
        "bodies" => bodies::bodies(cells, &mut rng),
        "load" => {
            let beside = load::beside(run, trial, all, &mut rng);
            load::load(cells).into_iter().chain(beside).collect()
        }
        "soak" => soak::soak(&trial.rollups),
        "fresh" => vec![fresh::fresh(run, trial, all, &mut rng)],
        "agree" => vec![agree::agree(run, trial, all)],
        "reach" => reach::reach(trial),
        _ => Vec::new(),
    };
    found.iter_mut().for_each(|found| in_flight::doubt(&counted, found));
    let span = span_of(trial).filter(|_| !found.iter().any(|it| it.finding.explains_failures()));
    found.extend(span.and_then(|span| failures::of_cells(&counted, span)));
    let lost = trial.doubts().keys().any(|doubt| !doubt.is_of_times());
    for found in found.iter_mut().filter(|_| left_out > 0) {
        let touched = match needs(trial.experiment) {
            FindingNeeds::Times => true,
            FindingNeeds::Counts => lost,
            FindingNeeds::Both => lost || found.finding.rests_on_times(),
            FindingNeeds::Neither => false,
        };
        if touched {
            found.confidence = found.confidence.one_less();
            for (doubt, cells) in trial.doubts() {
                found.evidence.push(format!("{cells} cells are left out: {}", doubt.words()));
            }
        }
    }
    found
}

/// What a flood shows, if the rates that passed at that target do not say otherwise.
fn without_contradiction(
    found: DraftVerdict,
    trial: &Trial<'_>,
    all: &[Trial<'_>],
) -> DraftVerdict {
    let rates = all.iter().filter(|it| it.target == trial.target && it.experiment == "rate");
    let cells: Vec<&PlayedCell<'_>> = rates.flat_map(|trial| trial.counted()).collect();
    match refill::is_disproved(&found, &cells) {
        Some(why) => found.disproved(why),
        None => found,
    }
}

/// Sound cells that decide where others are left out.
const SOUND_MIN: usize = 2;

/// What of its cells an experiment concludes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindingNeeds {
    /// The times of calls.
    Times,
    /// What became of calls, whatever time they took.
    Counts,
    /// Times where nothing was refused.
    Both,
    /// Answers, or parts that say for themselves whether the generator fell behind.
    Neither,
}

fn needs(experiment: &str) -> FindingNeeds {
    match experiment {
        "agree" | "reach" | "soak" => FindingNeeds::Neither,
        "streams" | "window" | "cost" => FindingNeeds::Counts,
        "rate" | "throttle" | "connection" => FindingNeeds::Both,
        _ => FindingNeeds::Times,
    }
}

impl Finding {
    /// Whether calls fail because they wait for too long, or are never answered, above a rate: then they fail at that
    /// rate, and not at any.
    fn explains_failures(&self) -> bool {
        let Self::Rate(Found(it)) = self else { return false };
        matches!(it.way, RefusalWay::Queued | RefusalWay::Unanswered)
    }

    /// Whether calls that were late here could have brought it about.
    fn rests_on_times(&self) -> bool {
        let is_counted = matches!(self, Self::Fails { .. } | Self::ConnectionCap { .. });
        let is_refused = matches!(self, Self::Rate(Found(it)) if it.way != RefusalWay::Queued);
        !is_counted && !is_refused
    }
}

/// Nothing can be said, because of what the generator did.
fn doubted(trial: &Trial<'_>) -> DraftVerdict {
    let cells = trial.played.len();
    let doubts = trial.doubts().into_iter();
    let why: Vec<String> = doubts
        .map(|(doubt, some)| format!("{} in {some} of {cells} cells", doubt.words()))
        .collect();
    DraftVerdict::cannot_tell(format!("too few sound samples ({})", why.join(", ")))
}

/// What the cells of an experiment differ in, where a share of failures that is the same in all of them is
/// told.
fn span_of(trial: &Trial<'_>) -> Option<FailureSpan> {
    let by_users = trial.played.iter().any(|cell| cell.count("users").is_some());
    match trial.experiment {
        "load" if by_users => Some(FailureSpan::AnyConcurrency),
        "rate" | "load" => Some(FailureSpan::AnyRate),
        "throttle" => Some(FailureSpan::AnyConcurrency),
        _ => None,
    }
}

#[cfg(test)]
#[path = "verdict/tests.rs"]
mod tests;
