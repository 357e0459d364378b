//! What a run comes to: conditions, the baseline, the files for machines and the exit code.

use std::path::Path;

use wellhead_analyze::conclude::profile::plain;
use wellhead_analyze::conclude::verdict::verdicts;
use wellhead_analyze::gate::{
    BaselineReport, ConditionOutcome, ConditionResult, GateOutcome, MeasuredRun, decide, document,
    evaluate, junit,
};
use wellhead_analyze::record::{Record, RunRecord};
use wellhead_analyze::report::{Comparison, Side, compare};
use wellhead_analyze::stored;

use super::{failed_at, has_place, read};
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
        let told = document(&measured, &verdicts, results, baseline, outcome);
        let text = serde_json::to_string_pretty(&told).map_err(CommandError::system)?;
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
    super::write(path, text)?;
    complain(&format!("written: {}", path.display()));
    Ok(())
}

/// Packs the records of a run that is over, where that is asked for.
pub(super) fn pack(gate: &GateArgs, dir: &Path) -> Result<(), CommandError> {
    if !gate.gzip {
        return Ok(());
    }
    stored::pack(dir).map_err(failed_at(dir))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use wellhead_analyze::record::{CallRecord, Cell, FORMAT, MeasuredTarget, Writer};

    use super::*;
    use crate::cli::{Cli, Command};

    /// A run of one cell of 200 calls that take `ms`, a little more or less.
    fn run(dir: &Path, ms: u64) {
        let target = MeasuredTarget { id: "a".to_owned(), ..MeasuredTarget::default() };
        let experiments = vec!["load".to_owned()];
        let run = RunRecord {
            format: FORMAT,
            targets: vec![target],
            experiments,
            ..RunRecord::default()
        };
        fs::create_dir_all(dir).expect("a directory");
        let text = serde_json::to_string(&run).expect("plain data");
        fs::write(dir.join("run.json"), text).expect("written");
        let mut records = Vec::new();
        let mut writer = Writer::new(&mut records);
        let experiment = || "load".to_owned();
        for n in 0..200 {
            let at = n * 50_000;
            let call = CallRecord {
                experiment: experiment(),
                n,
                method: "eth_blockNumber".to_owned(),
                intended_at: at,
                begun_at: at,
                ended_at: at + ms * (950 + n % 100),
                class: "answer".to_owned(),
                rule: "result".to_owned(),
                ..CallRecord::default()
            };
            writer.write(&Record::Call(call)).expect("written");
        }
        let cell = Cell {
            experiment: experiment(),
            factors: [("rate".to_owned(), "20".to_owned())].into(),
            ended_at: 20_000_000,
            calls: 200,
            ..Cell::default()
        };
        writer.write(&Record::Cell(cell)).expect("written");
        fs::write(dir.join("records.jsonl"), records).expect("written");
    }

    /// The exit code, 1 for what cannot work.
    fn code(words: &[&str]) -> u8 {
        let cli = Cli::try_parse_from(["wellhead", "analyze"].iter().chain(words));
        let Command::Analyze(it) = cli.expect("valid words").command else { panic!("{words:?}") };
        match super::super::command(&it.what) {
            Ok(()) => 0,
            Err(CommandError::Unmet(outcome)) => outcome.exit_code(),
            Err(CommandError::Differs) => 3,
            Err(CommandError::Config(_) | CommandError::System(_) | CommandError::Unwell) => 1,
        }
    }

    #[test]
    fn a_pipeline_can_tell_how_a_run_ended() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name).display().to_string();
        let (quick, slow) = (path("quick"), path("slow"));
        run(Path::new(&quick), 40);
        run(Path::new(&slow), 108);
        let json = format!("--json={}", path("doc.json"));
        for (words, expected) in [
            (vec!["report", &quick, "--fail-if", "p95 > 200ms"], 0),
            (vec!["report", &quick, "--fail-if", "p95 > 200ms", "--fail-if", "p50 > 1ms"], 4),
            (vec!["report", &quick, "--fail-if", "verdict rate.limit < 1/s"], 5),
            (vec!["report", &slow, "--baseline", &quick, "--gzip"], 6),
            // Its records are packed now, and read as before.
            (vec!["report", &slow, "--baseline", &slow], 0),
            (vec!["report", &quick, "--baseline", &slow], 0),
            (vec!["report", &quick, "--baseline", "/no/run"], 1),
            (vec!["report", &quick, "--junit", "/no/place/j.xml"], 1),
            (vec!["compare", &quick, &quick], 0),
            (vec!["compare", &slow, &quick], 3),
            (vec!["compare", &quick, &slow], 6),
            (vec!["compare", &quick, &slow, "--fail-if", "p50 > 100ms", &json], 4),
        ] {
            assert_eq!(code(&words), expected, "{words:?}");
        }
        assert!(place.path().join("slow/records.jsonl.gz").exists());
        let text = fs::read_to_string(path("doc.json")).expect("a document");
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&told["outcome"], &told["exit_code"]), (&"failed".into(), &4.into()));
        assert!(
            told["baseline"]["worse"][0].as_str().expect("a line").contains("+170 %"),
            "{told}"
        );
    }
}
