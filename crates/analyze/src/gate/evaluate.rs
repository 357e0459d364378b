//! Whether conditions hold, and what a run comes to.

use serde::Serialize;

use super::condition::{ConditionSubject, GateCondition};
use super::measure::MeasuredRun;
use crate::conclude::verdict::{
    Confidence, ExperimentVerdict, FigureBound, Unit, VerdictFigure, figures,
};

/// What a run comes to, from the conditions, the baseline and how it ended.
/// Its words stand in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    /// No condition holds; also of a run without any.
    Passed,
    /// A condition holds.
    Failed,
    /// A figure that a condition needs was not measured.
    Inconclusive,
    /// It is worse than the baseline.
    Worse,
    /// It was ended by a signal before it was over.
    Interrupted,
}

wellhead_word::words!(GateOutcome);

impl GateOutcome {
    /// The exit code. 1 to 3 are those of bad input, of the system, and of `compare`.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 4,
            Self::Inconclusive => 5,
            Self::Worse => 6,
            Self::Interrupted => 130,
        }
    }
}

/// What became of one condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionOutcome {
    /// It does not hold.
    Passed,
    /// It holds.
    Failed,
    /// The figure was not measured.
    Inconclusive,
}

/// One condition at one target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConditionResult {
    /// As it was written.
    pub condition: String,
    /// The target's id.
    pub target: String,
    /// What became of it.
    pub outcome: ConditionOutcome,
    /// What was measured, for people; or why nothing was.
    pub measured: String,
}

/// All conditions at all targets, target by target.
pub fn evaluate(
    conditions: &[GateCondition],
    run: &MeasuredRun<'_>,
    verdicts: &[ExperimentVerdict],
) -> Vec<ConditionResult> {
    let mut results = Vec::new();
    for (target, measured) in run.run.targets.iter().enumerate() {
        for condition in conditions {
            let (outcome, text) = match figure_of(condition, run, verdicts, target) {
                Ok(figure) => (outcome_of(condition, &figure), figure.to_string()),
                Err(why) => (ConditionOutcome::Inconclusive, why),
            };
            results.push(ConditionResult {
                condition: condition.to_string(),
                target: measured.id.clone(),
                outcome,
                measured: text,
            });
        }
    }
    results
}

/// What the whole comes to: what was cut proves nothing, a condition that holds is worse than a
/// baseline that was better, and that is worse than a figure that is missing.
pub fn decide(results: &[ConditionResult], is_worse: bool, is_interrupted: bool) -> GateOutcome {
    let has = |outcome| results.iter().any(|result| result.outcome == outcome);
    if is_interrupted {
        GateOutcome::Interrupted
    } else if has(ConditionOutcome::Failed) {
        GateOutcome::Failed
    } else if is_worse {
        GateOutcome::Worse
    } else if has(ConditionOutcome::Inconclusive) {
        GateOutcome::Inconclusive
    } else {
        GateOutcome::Passed
    }
}

/// The figure that the condition needs, or why it is not there.
fn figure_of(
    condition: &GateCondition,
    run: &MeasuredRun<'_>,
    verdicts: &[ExperimentVerdict],
    target: usize,
) -> Result<VerdictFigure, String> {
    match &condition.subject {
        ConditionSubject::Calls { experiment, measure } => {
            run.figure(target, *experiment, *measure)
        }
        ConditionSubject::Verdict { experiment, figure } => {
            let own = verdicts
                .iter()
                .filter(|it| it.target as usize == target && it.experiment == *experiment);
            verdict_figure(&own.collect::<Vec<_>>(), experiment, figure, condition.unit)
        }
    }
}

fn verdict_figure(
    own: &[&ExperimentVerdict],
    experiment: &str,
    word: &str,
    unit: Unit,
) -> Result<VerdictFigure, String> {
    let Some(first) = own.first() else { return Err(format!("`{experiment}` was not run")) };
    let found = own.iter().flat_map(|verdict| {
        let sure = verdict.confidence;
        figures(&verdict.finding).into_iter().map(move |figure| (figure, sure))
    });
    let found = found.filter(|(figure, _)| figure.word == word).max_by_key(|(_, sure)| *sure);
    match found {
        None => Err(format!("`{experiment}` found no `{word}`: {}", first.sentence)),
        Some((figure, _)) if figure.unit != unit => {
            let (own, given) = (figure.unit.word(), unit.word());
            Err(format!("`{experiment}.{word}` is in `{own}`, and the condition in `{given}`"))
        }
        Some((figure, sure)) if sure <= Confidence::Low => {
            Err(format!("{figure}, with {} confidence", sure.word()))
        }
        Some((figure, _)) => Ok(figure),
    }
}

/// Where only a bound is known, a condition is decided if it is the same for every true value.
fn outcome_of(condition: &GateCondition, figure: &VerdictFigure) -> ConditionOutcome {
    let (limit, value) = (condition.limit, figure.value);
    let (low, high) = match figure.bound {
        FigureBound::Exactly => (value, value),
        FigureBound::AtLeast => (value, f64::INFINITY),
        FigureBound::AtMost => (f64::NEG_INFINITY, value),
    };
    // A comparison turns at its limit and nowhere else.
    let turn = (low..=high).contains(&limit).then_some(limit);
    let holds = |value: &f64| (condition.comparison)(value, &limit);
    let values: Vec<f64> = [low, high].into_iter().chain(turn).collect();
    match (values.iter().all(holds), values.iter().any(holds)) {
        (true, _) => ConditionOutcome::Failed,
        (false, false) => ConditionOutcome::Passed,
        (false, true) => ConditionOutcome::Inconclusive,
    }
}
