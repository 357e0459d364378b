//! Runs of several places in one report, target beside target.
//!
//! Each run concludes for itself: what is told are its own verdicts. `fresh` and `agree` compare
//! endpoints at the same moment, which two runs never share, so that of them the verdicts alone
//! are there and no charts.

use super::compare::Side;
use super::{ReportFile, files_of};
use crate::conclude::verdict::{ExperimentVerdict, verdicts};
use crate::record::{Machine, Record, RunRecord};

/// Experiments whose charts compare targets at one moment.
const AT_ONE_MOMENT: [&str; 2] = ["fresh", "agree"];

/// The names of all files of a merged report.
pub const MERGED_FILES: [&str; 4] = ["report.html", "summary.csv", "summary.md", "verdicts.json"];

/// The files of one report on all runs: [`MERGED_FILES`]. A target is called `ID@PLACE`, where the
/// place is the run's note, or its name where it has none.
pub fn merge(runs: &[Side<'_>]) -> Vec<ReportFile> {
    let (run, records, verdicts) = merged(runs);
    files_of(&run, &records, &verdicts)
}

fn merged(runs: &[Side<'_>]) -> (RunRecord, Vec<Record>, Vec<ExperimentVerdict>) {
    let first = runs.iter().min_by_key(|side| side.run.started_unix);
    let mut run = first.map(|side| side.run.clone()).unwrap_or_default();
    run.targets.clear();
    let names: Vec<&str> = runs.iter().map(|side| side.name).collect();
    let machine = Machine { note: Some(format!("runs: {}", names.join(", "))), ..run.machine };
    run.machine = machine;
    let (mut records, mut told) = (Vec::new(), Vec::new());
    for side in runs {
        let offset = u32::try_from(run.targets.len()).unwrap_or(u32::MAX);
        let place = side.run.machine.note.as_deref().unwrap_or(side.name);
        for target in &side.run.targets {
            let mut target = target.clone();
            target.id = format!("{}@{place}", target.id);
            let alike = |id: &String| run.targets.iter().any(|other| other.id == *id);
            if alike(&target.id) {
                target.id = format!("{} {}", target.id, run.targets.len() + 1);
            }
            run.targets.push(target);
        }
        for experiment in &side.run.experiments {
            if !run.experiments.contains(experiment) {
                run.experiments.push(experiment.clone());
            }
        }
        told.extend(verdicts(side.run, side.records).into_iter().map(|mut verdict| {
            verdict.target += offset;
            verdict
        }));
        records.extend(side.records.iter().filter_map(|record| moved(record, offset)));
    }
    (run, records, told)
}

/// The record at its target's new place; times stay those of its own run.
fn moved(record: &Record, offset: u32) -> Option<Record> {
    let mut record = record.clone();
    let (experiment, target) = match &mut record {
        Record::Call(it) => (&it.experiment, &mut it.target),
        Record::Wire(it) => (&it.experiment, &mut it.target),
        Record::Cell(it) => (&it.experiment, &mut it.target),
        Record::Rollup(it) => (&it.experiment, &mut it.target),
    };
    *target = target.saturating_add(offset);
    (!AT_ONE_MOMENT.contains(&experiment.as_str())).then_some(record)
}
