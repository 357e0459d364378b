//! What a run says of a provider: typed findings, each with a sentence, its evidence and how
//! sure it is.
//!
//! Computed from records alone and the same each time: chance comes from the run's seed. A cell
//! in which the generator fell behind, or our connections were full, concludes nothing, and where
//! more than a quarter of the cells of an experiment are such, the verdict is that nothing can be
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

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

pub use finding::{
    AnswersAgree, AnswersDiffer, BlockLag, BodyPace, CapWay, Drift, Drifting, EndReason, Extent,
    FailedCalls, FailureSpan, FailureWay, Faster, Finding, FindingBound, IdleClose, LoadCapacity,
    NoBlockLag, NoBodyPace, NoDifference, NoDrift, NoIdleClose, NoLoadCapacity, NoRateLimit,
    NoRecycle, NoStreamLimit, NoTokenLimit, NotShaped, PacedFlow, Recycle, Refilled, RefusalWay,
    RefusedRate, RetryAfterWorth, ServedUsers, Shaped, ShapingScope, SmallFlow, SmallWait,
    StreamLimit, TokenLimit,
};
pub use kind::{
    Better, FINDING_KINDS, FigureBound, FigureTerms, FindingKind, Unit, VerdictFigure,
    figure_words, figures,
};
pub use samples::{sample_findings, sentences_page};
pub use sentence::figure;

use crate::record::{Record, RunRecord, Trial, trial, trials};

/// How a report sees calls and cells: with the same eyes as the verdicts.
pub(crate) mod see {
    pub(crate) use super::agree::questions;
    pub(crate) use super::bodies::is_large;
    pub(crate) use super::connections::first_end;
    pub(crate) use super::fresh::{Distance, lags_ms, sights};
    pub(crate) use super::limits::{fit_of, order, sustained};
    pub(crate) use super::load::level_of;
    pub(crate) use super::reach::{TryFate, methods};
    pub(crate) use super::trial::{served, throttled, took_ms};
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

impl Confidence {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
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
        told.push(found.of(experiment, target));
    }
    // Each of these is the last of its experiment and target.
    told.sort_by_key(|it| (place(&it.experiment).unwrap_or(usize::MAX), it.target));
    told
}

fn judge(run: &RunRecord, trial: &Trial<'_>, all: &[Trial<'_>]) -> Vec<DraftVerdict> {
    let (sound, left_out) = trial.sound();
    // These look at answers, not at times.
    let timeless = matches!(trial.experiment, "agree" | "reach");
    // Parts of a soak say for themselves whether the generator fell behind.
    let timeless = timeless || trial.experiment == "soak";
    if !timeless && left_out * 4 > trial.played.len() {
        let cells = trial.played.len();
        let doubts = trial.doubts().into_iter();
        let why: Vec<String> = doubts
            .map(|(doubt, some)| format!("{} in {some} of {cells} cells", doubt.words()))
            .collect();
        let why = why.join(", ");
        return vec![DraftVerdict::cannot_tell(format!("too few sound samples ({why})"))];
    }
    let mut rng = SmallRng::seed_from_u64(run.seed ^ u64::from(trial.target));
    let bounded = in_flight::bound(trial, all);
    let mut found = match trial.experiment {
        // Refusals that have another cause than a rate say nothing of one.
        _ if bounded.is_some() => bounded.into_iter().collect(),
        "latency" => vec![latency::latency(&sound)],
        "streams" => vec![connections::streams(&sound)],
        "connection" => connections::connection(&sound),
        "rate" => vec![limits::rate(&sound)],
        "window" => vec![refill::window(&sound)],
        "throttle" => vec![limits::throttle(&sound)],
        "cost" => refill::cost(&sound, run.targets.get(trial.target as usize)),
        "protocol" => comparison::protocol(&sound),
        "bodies" => bodies::bodies(&sound, &mut rng),
        "load" => {
            let beside = load::beside(run, trial, all, &mut rng);
            load::load(&sound).into_iter().chain(beside).collect()
        }
        "soak" => soak::soak(&trial.rollups),
        "fresh" => vec![fresh::fresh(run, trial, all, &mut rng)],
        "agree" => vec![agree::agree(run, trial, all)],
        "reach" => reach::reach(trial),
        _ => Vec::new(),
    };
    found.iter_mut().for_each(|found| in_flight::doubt(&sound, found));
    found.extend(span_of(trial).and_then(|span| failures::of_cells(&sound, span)));
    if left_out > 0 && !timeless {
        for found in &mut found {
            found.confidence = found.confidence.one_less();
            for (doubt, cells) in trial.doubts() {
                found.evidence.push(format!("{cells} cells are left out: {}", doubt.words()));
            }
        }
    }
    found
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
