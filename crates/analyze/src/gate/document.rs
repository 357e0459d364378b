//! The run as one JSON document, for what reads no text. Its schema is [`DOCUMENT_SCHEMA`].

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::evaluate::{ConditionResult, GateOutcome};
use super::measure::MeasuredRun;
use crate::conclude::verdict::{Confidence, ExperimentVerdict, Unit, VerdictFigure, figures};
use crate::record::MeasuredTarget;

/// The JSON Schema (draft 2020-12) of a [`RunDocument`].
pub const DOCUMENT_SCHEMA: &str = include_str!("../../data/run-document.schema.json");

/// The version that the document names: it grows when a member changes or goes, not when one is
/// added.
const VERSION: u32 = 1;

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunDocument {
    /// Of this format.
    pub version: u32,
    /// The version of wellhead that measured.
    pub wellhead: String,
    /// When the run began, seconds since 1970.
    pub started_unix: u64,
    /// What all chance came from.
    pub seed: u64,
    /// The remark of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it comes to.
    pub outcome: GateOutcome,
    /// The exit code that follows.
    pub exit_code: u8,
    /// What was measured.
    pub targets: Vec<DocumentTarget>,
    /// Each condition at each target.
    pub conditions: Vec<ConditionResult>,
    /// Beside an earlier run, where one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineReport>,
}

/// One target.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentTarget {
    /// Its name.
    pub id: String,
    /// Its host.
    pub host: String,
    /// Of the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The chain that it told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// Over the calls of each experiment.
    pub experiments: Vec<DocumentExperiment>,
    /// What was concluded.
    pub verdicts: Vec<DocumentVerdict>,
}

/// The figures of one experiment; what was not measured is absent.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentExperiment {
    /// Its name.
    pub experiment: String,
    /// Each measure of it under its word and unit, such as `p95_ms`.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
}

/// One verdict.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentVerdict {
    /// The experiment.
    pub experiment: String,
    /// The finding in a sentence.
    pub sentence: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// Its figures, which `--fail-if 'verdict EXPERIMENT.WORD ...'` compares.
    pub figures: Vec<VerdictFigure>,
    /// What it rests on.
    pub evidence: Vec<String>,
}

/// A run beside an earlier one.
#[derive(Debug, Clone, Serialize)]
pub struct BaselineReport {
    /// When the earlier run began, seconds since 1970.
    pub started_unix: u64,
    /// Whether anything differs.
    pub differs: bool,
    /// What is worse now, a line each.
    pub worse: Vec<String>,
}

/// The document on a run and what was decided about it.
pub fn document(
    measured: &MeasuredRun<'_>,
    verdicts: &[ExperimentVerdict],
    conditions: Vec<ConditionResult>,
    baseline: Option<BaselineReport>,
    outcome: GateOutcome,
) -> RunDocument {
    let run = measured.run;
    RunDocument {
        version: VERSION,
        wellhead: run.wellhead.clone(),
        started_unix: run.started_unix,
        seed: run.seed,
        note: run.machine.note.clone(),
        outcome,
        exit_code: outcome.exit_code(),
        targets: targets(measured, verdicts),
        conditions,
        baseline,
    }
}

fn targets(measured: &MeasuredRun<'_>, verdicts: &[ExperimentVerdict]) -> Vec<DocumentTarget> {
    let verdict = |it: &ExperimentVerdict| DocumentVerdict {
        experiment: it.experiment.clone(),
        sentence: it.sentence.clone(),
        confidence: it.confidence,
        figures: figures(&it.finding),
        evidence: it.evidence.clone(),
    };
    let target = |(index, target): (usize, &MeasuredTarget)| DocumentTarget {
        id: target.id.clone(),
        host: target.host.clone(),
        provider: target.provider.clone(),
        chain_id: target.chain_id,
        experiments: measured
            .experiments(index)
            .into_iter()
            .map(|name| experiment(measured, index, name))
            .collect(),
        verdicts: verdicts.iter().filter(|it| it.target as usize == index).map(verdict).collect(),
    };
    measured.run.targets.iter().enumerate().map(target).collect()
}

fn experiment(measured: &MeasuredRun<'_>, target: usize, name: &str) -> DocumentExperiment {
    let figure = |VerdictFigure { word, value, unit, .. }: VerdictFigure| match unit {
        Unit::Count => (word.to_owned(), json!(value as u64)),
        unit => (format!("{word}_{}", key_word(unit)), json!((value * 1_000.0).round() / 1_000.0)),
    };
    let figures = measured.figures(target, name).into_iter().map(figure).collect();
    DocumentExperiment { experiment: name.to_owned(), figures }
}

/// A unit at the end of a key.
fn key_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Milliseconds => "ms",
        Unit::Percent => "percent",
        Unit::PerSecond => "per_second",
        Unit::BytesPerSecond => "bytes_per_second",
        Unit::Count => "count",
    }
}
