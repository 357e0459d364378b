//! Records sorted by target and experiment: one experiment at one target, its cells, their calls.

use std::collections::BTreeMap;

use wellhead_upstream::VerdictClass;

use super::{CallRecord, Cell, CellDoubt, NUMBER_MAX, Record, Rollup, WireRecord};
use crate::stat::{quantile, sorted};
use crate::work;

/// One experiment at one target.
#[derive(Debug)]
pub struct Trial<'a> {
    /// Its name.
    pub experiment: &'a str,
    /// Index of the target.
    pub target: u32,
    /// In the order in which the cells began.
    pub played: Vec<PlayedCell<'a>>,
    /// What was rolled up instead of written call by call, in the order of time; also of a cell
    /// that was not played to its end.
    pub rollups: Vec<&'a Rollup>,
}

/// One cell and what happened in it.
#[derive(Debug, Clone)]
pub struct PlayedCell<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// In the order in which they were sent.
    pub calls: Vec<&'a CallRecord>,
    /// In order of time.
    pub wires: Vec<&'a WireRecord>,
}

type CellKey<'a> = (&'a str, u32, u32);

/// Sorts the records. A call counts where its cell was played to the end, and only within its
/// time: what an interrupted cell left behind, and the same cell played again, are two. So does
/// what a connection did; one that was opened before the cell counts from there where a call of
/// the cell went over it.
pub fn trials(records: &[Record]) -> Vec<Trial<'_>> {
    let mut cells: BTreeMap<CellKey<'_>, PlayedCell<'_>> = BTreeMap::new();
    for cell in records.iter().filter_map(Record::cell) {
        let played = PlayedCell { cell, calls: Vec::new(), wires: Vec::new() };
        cells.insert((&cell.experiment, cell.target, cell.cell), played);
    }
    for call in records.iter().filter_map(Record::call) {
        let key = (call.experiment.as_str(), call.target, call.cell);
        let within = |cell: &Cell| (cell.begun_at..=cell.ended_at).contains(&call.begun_at);
        if let Some(played) = cells.get_mut(&key).filter(|played| within(played.cell)) {
            played.calls.push(call);
        }
    }
    for wire in records.iter().filter_map(Record::wire) {
        let key = (wire.experiment.as_str(), wire.target, wire.cell);
        if let Some(played) = cells.get_mut(&key).filter(|played| played.saw(wire)) {
            played.wires.push(wire);
        }
    }
    let mut trials: Vec<Trial<'_>> = Vec::new();
    for ((experiment, target, _), mut played) in cells {
        played.calls.sort_by_key(|call| sent_at(call));
        played.wires.sort_by_key(|wire| wire.at);
        match trials.last_mut() {
            Some(last) if last.experiment == experiment && last.target == target => {
                last.played.push(played);
            }
            Some(_) | None => {
                let (played, rollups) = (vec![played], Vec::new());
                trials.push(Trial { experiment, target, played, rollups });
            }
        }
    }
    for rollup in records.iter().filter_map(Record::rollup) {
        let (experiment, target) = (rollup.experiment.as_str(), rollup.target);
        let own = |trial: &&mut Trial<'_>| (trial.experiment, trial.target) == (experiment, target);
        match trials.iter_mut().find(own) {
            Some(trial) => trial.rollups.push(rollup),
            None => {
                let rollups = vec![rollup];
                trials.push(Trial { experiment, target, played: Vec::new(), rollups });
            }
        }
    }
    for trial in &mut trials {
        trial.rollups.sort_by_key(|rollup| rollup.begun_at);
        trial.played.sort_by_key(|played| (played.cell.begun_at, played.cell.cell));
    }
    trials
}

/// Microseconds that were watched, by what was rolled up: from the begin to the end of each
/// cell, for between two cells a run was cut.
pub(crate) fn watched(rollups: &[&Rollup]) -> u64 {
    let mut cells: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for rollup in rollups {
        let span = cells.entry(rollup.cell).or_insert((rollup.begun_at, rollup.ended_at));
        *span = (span.0.min(rollup.begun_at), span.1.max(rollup.ended_at));
    }
    cells.values().map(|(from, to)| to - from).sum()
}

impl<'a> Trial<'a> {
    /// Microseconds in which it was watched, where it is rolled up.
    pub(crate) fn watched(&self) -> u64 {
        watched(&self.rollups)
    }

    /// The cells that may conclude something, and the number of those that may not. One without
    /// calls is neither: where nothing was sent nothing failed.
    pub fn sound(&self) -> (Vec<&PlayedCell<'a>>, usize) {
        let sound: Vec<_> = self.sent().filter(|played| played.is_timed()).collect();
        (sound, self.left_out().count())
    }

    /// The cells that may conclude something from what became of calls, whatever time they took.
    pub(crate) fn counted(&self) -> Vec<&PlayedCell<'a>> {
        self.sent().filter(|played| played.is_counted()).collect()
    }

    /// Why cells may not conclude anything, and how many these are.
    pub(crate) fn doubts(&self) -> BTreeMap<CellDoubt, usize> {
        let mut doubts = BTreeMap::new();
        for doubt in self.left_out().filter_map(|played| played.cell.load.doubted()) {
            *doubts.entry(doubt).or_default() += 1;
        }
        doubts
    }

    fn sent(&self) -> impl Iterator<Item = &PlayedCell<'a>> {
        self.played.iter().filter(|played| played.cell.calls > 0 || !played.calls.is_empty())
    }

    /// The cells that are doubted, and were not played again without doubt.
    fn left_out(&self) -> impl Iterator<Item = &PlayedCell<'a>> {
        let is_replaced = |cell: &Cell| {
            self.sent().any(|other| {
                other.is_timed()
                    && other.cell.again > cell.again
                    && (&other.cell.factors, other.cell.repeat) == (&cell.factors, cell.repeat)
            })
        };
        self.sent().filter(move |played| {
            !played.is_timed() && played.cell.again == 0 && !is_replaced(played.cell)
        })
    }
}

impl<'a> PlayedCell<'a> {
    /// Whether its times are the target's.
    pub(crate) fn is_timed(&self) -> bool {
        !self.cell.load.saturated
    }

    /// Whether all of its calls were made as they were meant to, at whatever time.
    fn is_counted(&self) -> bool {
        self.cell.load.doubted().is_none_or(CellDoubt::is_of_times)
    }

    fn saw(&self, wire: &WireRecord) -> bool {
        let carried = || self.calls.iter().any(|call| call.connection == Some(wire.connection));
        wire.at <= self.cell.ended_at && (wire.at >= self.cell.begun_at || carried())
    }

    /// A factor by its name.
    pub fn factor(&self, name: &str) -> Option<&'a str> {
        self.cell.factors.get(name).map(String::as_str)
    }

    /// A factor that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.factor(name)?.parse().ok().filter(|number: &f64| number.abs() <= NUMBER_MAX as f64)
    }

    /// A factor that is a whole number.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.factor(name)?.parse().ok().filter(|count| *count <= NUMBER_MAX)
    }

    /// The share of calls of which `is` holds; 0 without calls.
    pub fn share(&self, is: impl Fn(&CallRecord) -> bool) -> f64 {
        let those = self.calls.iter().filter(|call| is(call)).count();
        those as f64 / self.calls.len().max(1) as f64
    }

    /// The `q`-quantile of the times of served calls, milliseconds.
    pub fn took(&self, q: f64) -> Option<f64> {
        quantile(&self.times(), q)
    }

    /// The times of served calls in order, milliseconds.
    pub fn times(&self) -> Vec<f64> {
        let served = self.calls.iter().filter(|call| served(call));
        sorted(&served.map(|call| took_ms(call)).collect::<Vec<_>>())
    }

    /// The first start and the last end of its calls, where time passed between them.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let begin = self.calls.iter().map(|call| call.begun_at).min()?;
        let end = self.calls.iter().map(|call| call.ended_at).max()?;
        (end > begin).then_some((begin, end))
    }

    /// Served calls a second, from the first start to the last end.
    pub fn throughput(&self) -> Option<f64> {
        let (begin, end) = self.span()?;
        let served = self.calls.iter().filter(|call| served(call)).count();
        Some(served as f64 / seconds(end - begin))
    }
}

/// Calls a second that went on their way.
pub(crate) fn sent_per_second(cell: &PlayedCell<'_>) -> Option<f64> {
    // They are in that order.
    let (first, last) = (cell.calls.first()?, cell.calls.last()?);
    let span = seconds(sent_at(last).saturating_sub(sent_at(first)));
    (span > 0.0).then(|| (cell.calls.len() - 1) as f64 / span)
}

/// When it was on its way, as far as we know.
pub(crate) fn sent_at(call: &CallRecord) -> u64 {
    call.begun_at + call.queue.unwrap_or(0)
}

/// Whether the upstream did what was asked, even if the answer is a revert, or `null` where that
/// says something.
pub(crate) fn served(call: &CallRecord) -> bool {
    call.error.is_none()
        && match VerdictClass::from_word(&call.class) {
            Some(
                VerdictClass::Answer | VerdictClass::Reverted | VerdictClass::TransactionKnown,
            ) => true,
            Some(VerdictClass::Null) => work::may_be_null(&call.method),
            Some(
                VerdictClass::CallerFault
                | VerdictClass::TransactionRejected
                | VerdictClass::MissingData
                | VerdictClass::RangeTooLarge
                | VerdictClass::FilterTooLarge
                | VerdictClass::Throttled
                | VerdictClass::Billing
                | VerdictClass::Auth
                | VerdictClass::Unsupported
                | VerdictClass::Fault
                | VerdictClass::Void
                | VerdictClass::Unknown,
            )
            | None => false,
        }
}

/// Whether it was refused for its rate.
pub(crate) fn throttled(call: &CallRecord) -> bool {
    call.class == VerdictClass::Throttled.word()
}

/// Whether it was answered and not served: a limit may tell itself by any status.
pub(crate) fn denied(call: &CallRecord) -> bool {
    call.error.is_none() && !served(call)
}

/// From the intended start to the end, milliseconds.
pub(crate) fn took_ms(call: &CallRecord) -> f64 {
    call.ended_at.saturating_sub(call.intended_at) as f64 / 1_000.0
}

/// Of microseconds.
pub(crate) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
