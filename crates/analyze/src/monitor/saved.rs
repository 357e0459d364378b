//! What a monitor keeps on the disk: `watch.json`, and the runs beside it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::target::MonitoredTarget;
use crate::record::MeasuredTarget;

/// Goes up when a newer wellhead cannot read it as it is.
const VERSION: u32 = 1;
const FILE: &str = "watch.json";
/// A longer file is refused: the ledgers and verdicts of hundreds of targets take far less.
const BYTES_MAX: u64 = 64 << 20;
/// Runs of these names are a monitor's own.
const RUN: &str = "run-";
/// Runs that are kept, the newest; older ones are removed.
pub(super) const RUNS_MAX: usize = 30;

#[derive(Debug, Serialize, Deserialize)]
struct SavedMonitor {
    version: u32,
    targets: Vec<MonitoredTarget>,
}

/// Takes the directory for one monitor, as long as the file is open: two would each spend the whole budget.
///
/// # Errors
///
/// If another one has it, or the file cannot be made.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    let file = File::create(dir.join("watch.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another `watch` uses it")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The targets, each as it was left, if it was watched here before.
///
/// # Errors
///
/// If the file is there and cannot be read: what was spent is not known then, and nothing may be sent.
pub(super) fn load(dir: &Path, targets: &[MeasuredTarget]) -> io::Result<Vec<MonitoredTarget>> {
    let saved = match read(&dir.join(FILE)) {
        Ok(text) => serde_json::from_slice::<SavedMonitor>(&text).map_err(io::Error::other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            SavedMonitor { version: VERSION, targets: Vec::new() }
        }
        Err(error) => return Err(error),
    };
    if saved.version != VERSION {
        let told = format!("`{FILE}` has version {}, not {VERSION}", saved.version);
        return Err(io::Error::other(told));
    }
    let of = |(index, target): (usize, &MeasuredTarget)| {
        let is_it =
            |it: &&MonitoredTarget| it.target.id == target.id && it.target.host == target.host;
        let mut found = saved
            .targets
            .iter()
            .find(is_it)
            .cloned()
            .unwrap_or_else(|| MonitoredTarget::new(target.clone()));
        let chain_id = found.target.chain_id;
        found.target = MeasuredTarget { chain_id, ..target.clone() };
        for verdict in &mut found.verdicts {
            verdict.target = u32::try_from(index).unwrap_or(u32::MAX);
        }
        found
    };
    Ok(targets.iter().enumerate().map(of).collect())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        let told = format!("`{FILE}` is longer than {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, told));
    }
    Ok(text)
}

/// Writes it beside and puts it in its place: it is never torn.
pub(super) fn save(dir: &Path, targets: &[MonitoredTarget]) -> io::Result<()> {
    let saved = SavedMonitor { version: VERSION, targets: targets.to_vec() };
    let text = serde_json::to_string(&saved).map_err(io::Error::other)?;
    let new = dir.join("watch.json.new");
    fs::write(&new, text + "\n").and_then(|()| fs::rename(&new, dir.join(FILE)))
}

/// The directory of a run that begins `now`, seconds since 1970, which is not there yet.
pub(super) fn new_run(dir: &Path, now: u64) -> PathBuf {
    let at = |second: u64| dir.join(format!("{RUN}{second:010}"));
    let mut second = now;
    while at(second).exists() {
        second += 1;
    }
    at(second)
}

/// Removes all but the newest runs.
pub(super) fn prune(dir: &Path) -> io::Result<()> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let second = name.as_deref().and_then(|name| name.strip_prefix(RUN));
        let is_own = second.is_some_and(|it| it.len() == 10 && it.parse::<u64>().is_ok());
        if is_own && path.join("run.json").is_file() {
            runs.push(path);
        }
    }
    runs.sort();
    for old in runs.iter().rev().skip(RUNS_MAX) {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_runs_go_and_other_files_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        for second in 0..RUNS_MAX as u64 + 3 {
            let run = new_run(dir.path(), 1_000 + second / 2);
            fs::create_dir(&run).expect("it is new");
            fs::write(run.join("run.json"), "{}").expect("written");
        }
        for other in ["run-own", "other"] {
            fs::create_dir(dir.path().join(other)).expect("it is new");
        }
        prune(dir.path()).expect("pruned");
        let left = fs::read_dir(dir.path()).expect("read").count();
        assert_eq!(left, RUNS_MAX + 2);
        assert!(!dir.path().join("run-0000001000").exists());
    }

    #[test]
    fn a_directory_has_one_monitor() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = lock(dir.path()).expect("it is free");
        let told = lock(dir.path()).map_err(|error| error.to_string());
        assert_eq!(told.err().as_deref(), Some("another `watch` uses it"));
        drop(first);
        assert!(lock(dir.path()).is_ok());
    }

    #[test]
    fn what_cannot_be_read_is_no_empty_ledger() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = |id: &str| MeasuredTarget { id: id.to_owned(), ..MeasuredTarget::default() };
        let (a, b) = (target("a"), target("b"));
        let mut targets = load(dir.path(), std::slice::from_ref(&a)).expect("nothing is there");
        targets[0].charge(70, 60);
        save(dir.path(), &targets).expect("saved");
        let again = load(dir.path(), &[b, a]).expect("it was saved so");
        let spent: Vec<u64> = again.iter().map(|it| it.spent_in_hour(60)).collect();
        assert_eq!(spent, [0, 70]);
        for text in ["", r#"{"version":2,"targets":[]}"#] {
            fs::write(dir.path().join(FILE), text).expect("written");
            assert!(load(dir.path(), &[]).is_err(), "{text}");
        }
        let file = File::create(dir.path().join(FILE)).expect("made");
        file.set_len(BYTES_MAX + 1).expect("a hole takes no room");
        let error = load(dir.path(), &[]).expect_err("too long");
        assert_eq!(error.to_string(), "`watch.json` is longer than 64 MiB");
    }
}
