//! What a run that was cut has left behind, to be gone on with.
//!
//! Cells that were played to their end are not played again: their outcomes are told to the plans
//! as if they had been, so that a plan asks for the same cells in the same order. What is left of a
//! cell that was not stays in the records; it has no end and so counts for nothing. Times go on
//! after what was written, by the wall clock.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use super::first::First;
use crate::measure::plan::CellOutcome;
use crate::record::trials;
use crate::record::{Cell, FORMAT, FORMAT_MIN, Record, RunRecord};
use crate::stat::bucket::TimedCall;
use crate::stored::{StoredRun, StoredRunError};

/// Why a run cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// It cannot be read.
    #[error("it is not a readable run: {0}")]
    Unread(String),
    /// It is of another format.
    #[error("it has format {0}, and this wellhead reads {FORMAT_MIN} to {FORMAT}")]
    Format(u32),
}

/// A cell that was played to its end.
#[derive(Debug)]
pub(super) struct ResumedCell {
    pub(super) cell: Cell,
    pub(super) outcome: CellOutcome,
    /// What became of each call, in order of time.
    pub(super) served: Vec<TimedCall>,
}

/// A run that was cut.
#[derive(Debug, Default)]
pub struct EarlierRun {
    run: RunRecord,
    /// By target and experiment, in the order in which they were played.
    cells: BTreeMap<(u32, String), VecDeque<ResumedCell>>,
    /// Likewise, for how long a cell was watched that was rolled up and cut.
    watched: BTreeMap<(u32, String), Duration>,
    next_cell: u32,
    next_connection: u64,
    next_part: u32,
    /// The last time in the records, microseconds.
    ended_at: u64,
}

impl EarlierRun {
    /// Reads what is in `dir`. A torn last line is left out.
    ///
    /// # Errors
    ///
    /// Where there is no run, or one that another version wrote.
    pub fn read(dir: &Path) -> Result<Self, ResumeError> {
        let StoredRun { run, records, torn: _ } =
            StoredRun::read(dir).map_err(|error| match error {
                StoredRunError::Format(format) => ResumeError::Format(format),
                StoredRunError::Io(_) | StoredRunError::Run(_) | StoredRunError::Records(_) => {
                    ResumeError::Unread(error.to_string())
                }
            })?;
        Ok(Self::of(run, &records))
    }

    fn of(run: RunRecord, records: &[Record]) -> Self {
        let mut earlier = Self { run, ..Self::default() };
        for record in records {
            let (cell, connection, at) = match record {
                Record::Call(call) => (call.cell, call.connection, call.ended_at),
                Record::Wire(wire) => (wire.cell, Some(wire.connection), wire.at),
                Record::Cell(cell) => (cell.cell, None, cell.ended_at),
                Record::Rollup(rollup) => (rollup.cell, None, rollup.ended_at),
            };
            earlier.next_cell = earlier.next_cell.max(cell.saturating_add(1));
            let after = connection.map_or(0, |it| it.saturating_add(1));
            earlier.next_connection = earlier.next_connection.max(after);
            earlier.ended_at = earlier.ended_at.max(at);
            if let Record::Cell(cell) = record {
                earlier.next_part = earlier.next_part.max(cell.part.saturating_add(1));
            }
        }
        for trial in trials(records) {
            let key = (trial.target, trial.experiment.to_owned());
            if trial.played.is_empty() {
                earlier.watched.insert(key.clone(), Duration::from_micros(trial.watched()));
            }
            let cells = earlier.cells.entry(key).or_default();
            // What was played again because it was doubted is none of the plan's cells.
            for played in trial.played.iter().filter(|played| played.cell.again == 0) {
                let (mut outcome, mut first) = (CellOutcome::default(), First::default());
                let mut served = Vec::new();
                let mut calls = played.calls.clone();
                calls.sort_by_key(|call| call.ended_at);
                for call in calls {
                    outcome.add(call);
                    first.follow(call, &mut outcome);
                    served.push(TimedCall::of(call, played.cell.begun_at));
                }
                served.sort_by(|a, b| a.at.total_cmp(&b.at));
                let events = played.wires.iter().map(|it| (it.at, it.connection, &it.event));
                outcome.silent_ms = first.silent_ms(events);
                cells.push_back(ResumedCell { cell: played.cell.clone(), outcome, served });
            }
        }
        earlier
    }

    /// The run.
    pub fn run(&self) -> &RunRecord {
        &self.run
    }

    /// Cells that were played to their end.
    pub fn cells(&self) -> usize {
        self.cells.values().map(VecDeque::len).sum()
    }

    /// The number of the next cell, connection and part of the run.
    pub(super) fn numbers(&self) -> (u32, u64, u32) {
        (self.next_cell, self.next_connection, self.next_part)
    }

    /// Where times go on, microseconds after the start of the run.
    pub(super) fn goes_on_at(&self, now_unix: u64) -> u64 {
        const SECOND: u64 = 1_000_000;
        let passed = now_unix.saturating_sub(self.run.started_unix).saturating_mul(SECOND);
        // A clock that was set back does not turn the order of what happened.
        passed.max(self.ended_at.saturating_add(SECOND))
    }

    /// For how long an experiment that is rolled up was played, where it was cut.
    pub(super) fn watched(&self, target: u32, experiment: &str) -> Duration {
        self.watched.get(&(target, experiment.to_owned())).copied().unwrap_or_default()
    }

    /// The cells that were played of this experiment at this target.
    pub(super) fn take(&mut self, target: u32, experiment: &str) -> VecDeque<ResumedCell> {
        self.cells.remove(&(target, experiment.to_owned())).unwrap_or_default()
    }

    /// The cells that were played of this experiment, of all targets.
    pub(super) fn take_all(&mut self, experiment: &str) -> BTreeMap<u32, Vec<Cell>> {
        let mut cells: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
        for ((target, name), done) in &self.cells {
            if name == experiment {
                cells.insert(*target, done.iter().map(|done| done.cell.clone()).collect());
            }
        }
        self.cells.retain(|(_, name), _| name != experiment);
        cells
    }
}
