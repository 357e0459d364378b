//! One upstream is studied at a time: studies of two would make each other's calls late.

use std::cell::Cell;
use std::rc::Rc;

/// Whether one of the upstreams is being studied.
#[derive(Debug, Clone, Default)]
pub(super) struct StudyTurn(Rc<Cell<bool>>);

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct TakenTurn(Rc<Cell<bool>>);

impl StudyTurn {
    /// Takes the turn, if none has it.
    pub(super) fn take(&self) -> Option<TakenTurn> {
        (!self.0.replace(true)).then(|| TakenTurn(Rc::clone(&self.0)))
    }
}

impl Drop for TakenTurn {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
