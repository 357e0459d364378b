//! The records of one round or study, taken as they come: what they say is told at once, whatever was measured before.

use crate::ending::SendingEnd;
use crate::measure::plan::CellOutcome;
use crate::measure::run::Watch;
use crate::record::{CallRecord, Cell, Record};

/// A cell and what came of it.
#[derive(Debug, Clone)]
pub(super) struct GatheredCell {
    pub(super) cell: Cell,
    pub(super) outcome: CellOutcome,
}

/// See the module. Bounded by the calls that the round may send.
#[derive(Debug, Default)]
pub(super) struct RoundRecords {
    pub(super) records: Vec<Record>,
    pub(super) cells: Vec<GatheredCell>,
    /// The target answers nothing, or refuses everything: the run asks it no more.
    pub(super) is_ended: bool,
}

impl Watch for RoundRecords {
    fn played(&mut self, _: &str, cell: &Cell, outcome: &CellOutcome) {
        self.records.push(Record::Cell(cell.clone()));
        self.cells.push(GatheredCell { cell: cell.clone(), outcome: *outcome });
    }

    fn over(&mut self, call: &CallRecord) {
        self.records.push(Record::Call(call.clone()));
    }

    fn silent(&mut self, _: &str, _: u32) {
        self.is_ended = true;
    }

    fn ended(&mut self, _: &str, _: u32, _: SendingEnd) {
        self.is_ended = true;
    }
}
