//! `wellhead analyze history` and `merge`: several runs at once.

use std::fs;
use std::path::PathBuf;

use wellhead_analyze::conclude::profile::plain;
use wellhead_analyze::record::{Record, RunRecord};
use wellhead_analyze::report::{MERGED_FILES, Side, history, merge};

use super::gate::write;
use super::{failed_at, has_place, read};
use crate::cli::analyze::several::{HistoryArgs, MergeArgs};
use crate::terminal::{CommandError, say};

/// A run and what it is called.
struct NamedRun {
    name: String,
    run: RunRecord,
    records: Vec<Record>,
}

/// Prints the figures of each run in the order of time.
pub(super) fn trends(it: &HistoryArgs) -> Result<(), CommandError> {
    it.html.as_deref().map_or(Ok(()), has_place)?;
    let runs = read_all(&it.dirs)?;
    let told = history(&sides(&runs));
    // Some of it is in the words of the other side.
    told.text.lines().for_each(|line| say(&plain(line)));
    it.html.as_ref().map_or(Ok(()), |path| write(path, &told.html))
}

/// Writes one report on all runs.
pub(super) fn regions(it: &MergeArgs) -> Result<(), CommandError> {
    let runs = read_all(&it.dirs)?;
    if let Some(taken) = MERGED_FILES.map(|name| it.out.join(name)).iter().find(|it| it.exists()) {
        return Err(CommandError::Config(format!("`{}` is already there", taken.display())));
    }
    fs::create_dir_all(&it.out).map_err(failed_at(&it.out))?;
    for file in merge(&sides(&runs)) {
        write(&it.out.join(file.name), &file.text)?;
    }
    Ok(())
}

fn read_all(dirs: &[PathBuf]) -> Result<Vec<NamedRun>, CommandError> {
    let named = |dir: &PathBuf| {
        let (run, records) = read(dir)?;
        let name = dir
            .file_name()
            .map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
        Ok(NamedRun { name, run, records })
    };
    dirs.iter().map(named).collect()
}

fn sides(runs: &[NamedRun]) -> Vec<Side<'_>> {
    runs.iter().map(|it| Side { name: &it.name, run: &it.run, records: &it.records }).collect()
}
