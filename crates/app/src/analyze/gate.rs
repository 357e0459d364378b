//! What a run comes to: conditions, the baseline, the files for machines and the exit code.

use std::fs;
use std::path::Path;

use wellhead_analyze::gate::{
    BaselineReport, ConditionOutcome, ConditionResult, GateOutcome, MeasuredRun, decide, document,
    evaluate, junit,
};
use wellhead_analyze::profile::plain;
use wellhead_analyze::record::{Record, RunRecord};
use wellhead_analyze::report::{Comparison, Side, compare};
use wellhead_analyze::stored;
use wellhead_analyze::verdict::verdicts;

use super::{has_place, read};
use crate::cli::analyze::gate::{ConditionArgs, GateArgs};
use crate::terminal::{CommandError, complain, say};

/// A run that is decided on.
pub(super) struct JudgedRun<'a> {
    pub(super) run: &'a RunRecord,
    pub(super) records: &'a [Record],
    pub(super) is_interrupted: bool,
}

/// Prints a line of a run: on standard output, unless the JSON document is there.
pub(super) fn tell(conditions: &ConditionArgs, text: &str) {
    if conditions.takes_stdout() { complain(text) } else { say(text) }
}

/// Finds out before a call is sent that a file has no place, or that the baseline is no run.
pub(super) fn check(gate: &GateArgs) -> Result<(), CommandError> {
    let files = [&gate.conditions.json, &gate.conditions.junit];
    for path in files.into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        has_place(path)?;
    }
    gate.baseline.as_deref().map_or(Ok(()), |dir| read(dir).map(drop))
}

/// Decides, prints and writes.
pub(super) fn conclude(gate: &GateArgs, judged: &JudgedRun<'_>) -> Result<(), CommandError> {
    let Some(dir) = &gate.baseline else { return decide_on(&gate.conditions, judged, None) };
    let (run, records) = read(dir)?;
    let name = dir.display().to_string();
    let comparison = compare(
        Side { name: &name, run: &run, records: &records },
        Side { name: "this run", run: judged.run, records: judged.records },
    );
    comparison.text.lines().for_each(|line| tell(&gate.conditions, &plain(line)));
    decide_on(&gate.conditions, judged, Some((&run, &comparison)))
}

/// Decides by the conditions and by a comparison that is already printed.
pub(super) fn decide_on(
    conditions: &ConditionArgs,
    judged: &JudgedRun<'_>,
    earlier: Option<(&RunRecord, &Comparison)>,
) -> Result<(), CommandError> {
    let verdicts = verdicts(judged.run, judged.records);
    let measured = MeasuredRun::new(judged.run, judged.records);
    let results = evaluate(&conditions.fail_if, &measured, &verdicts);
    results.iter().for_each(|result| tell(conditions, &plain(&line(result))));
    let worse = earlier.map(|(_, comparison)| comparison.worse.as_slice());
    for line in worse.unwrap_or_default() {
        tell(conditions, &plain(&format!("worse: {line}")));
    }
    let is_worse = worse.is_some_and(|worse| !worse.is_empty());
    let outcome = decide(&results, is_worse, judged.is_interrupted);
    if let Some(path) = &conditions.junit {
        write(path, &junit(&results, worse))?;
    }
    if let Some(path) = &conditions.json {
        let baseline = earlier.map(|(run, comparison)| BaselineReport {
            started_unix: run.started_unix,
            differs: comparison.differs,
            worse: comparison.worse.clone(),
        });
        let told = document(judged.run, &measured, &verdicts, (results, baseline, outcome));
        let text = serde_json::to_string_pretty(&told)
            .map_err(|error| CommandError::System(error.to_string()))?;
        if conditions.takes_stdout() { say(&text) } else { write(path, &format!("{text}\n"))? }
    }
    match outcome {
        GateOutcome::Passed => Ok(()),
        GateOutcome::Failed
        | GateOutcome::Inconclusive
        | GateOutcome::Worse
        | GateOutcome::Interrupted => Err(CommandError::Unmet(outcome)),
    }
}

fn line(result: &ConditionResult) -> String {
    let word = match result.outcome {
        ConditionOutcome::Passed => "passed",
        ConditionOutcome::Failed => "FAILED",
        ConditionOutcome::Inconclusive => "inconclusive",
    };
    let ConditionResult { target, condition, measured, .. } = result;
    format!("{word} {target}: fail if {condition}: {measured}")
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    fs::write(path, text)
        .map_err(|error| CommandError::System(format!("`{}`: {error}", path.display())))?;
    complain(&format!("written: {}", path.display()));
    Ok(())
}

/// Packs the records of a run that is over, where that is asked for.
pub(super) fn pack(gate: &GateArgs, dir: &Path) -> Result<(), CommandError> {
    if !gate.gzip {
        return Ok(());
    }
    stored::pack(dir).map_err(|error| CommandError::System(format!("`{}`: {error}", dir.display())))
}
