//! Tells an observer while calls lean on the limit of a target, so that other calls to it can be kept away.
//!
//! Calls lean on it in cells that hold a rate. Not in the silence that such a cell may begin with, and not after
//! [`LEAN_MAX`]: what is kept away may wait no longer.

use std::time::Duration;

use tokio::time::Instant;

use super::MonitorObserver;
use super::gather::RoundRecords;
use super::target::MonitoredTarget;
use crate::ending::SendingEnd;
use crate::measure::plan::{CellOutcome, Ordered};
use crate::measure::run::Watch;
use crate::measure::schedule::Schedule;
use crate::record::{CallRecord, Cell};

/// How often the observer is told that calls still lean on the limit.
pub const LEAN_EVERY: Duration = Duration::from_millis(250);
/// For how long in one cell it is told so.
const LEAN_MAX: Duration = Duration::from_secs(8);

/// When calls of a cell lean on a limit.
#[derive(Debug, Clone, Copy)]
struct LeanTime {
    from: Instant,
    until: Instant,
}

/// Takes the records of a round or a study, and tells the observer when its calls lean on the limit.
pub(super) struct LeanWatch<'a> {
    records: &'a mut RoundRecords,
    observer: &'a mut dyn MonitorObserver,
    target: &'a MonitoredTarget,
    time: Option<LeanTime>,
}

impl<'a> LeanWatch<'a> {
    pub(super) fn new(
        records: &'a mut RoundRecords,
        observer: &'a mut dyn MonitorObserver,
        target: &'a MonitoredTarget,
    ) -> Self {
        Self { records, observer, target, time: None }
    }

    /// Tells that no call leans on the limit any more, if one did.
    pub(super) fn end(&mut self) {
        if self.time.take().is_some() {
            self.observer.leans_no_more(self.target);
        }
    }
}

impl Watch for LeanWatch<'_> {
    fn begins(&mut self, _: &str, _: u32, ordered: &Ordered) {
        self.end();
        let settle = match &ordered.schedule {
            Schedule::Knock(terms) => terms.settle,
            Schedule::Open { .. } | Schedule::At(_) => Duration::ZERO,
            Schedule::Closed { .. }
            | Schedule::OneConnection { .. }
            | Schedule::Beside { .. }
            | Schedule::Users { .. } => return,
        };
        let from = Instant::now() + settle;
        self.time = Some(LeanTime { from, until: from + LEAN_MAX });
        self.look();
    }

    fn played(&mut self, experiment: &str, cell: &Cell, outcome: &CellOutcome) {
        self.records.played(experiment, cell, outcome);
        self.end();
    }

    fn over(&mut self, call: &CallRecord) {
        self.records.over(call);
    }

    fn silent(&mut self, experiment: &str, target: u32) {
        self.records.silent(experiment, target);
    }

    fn ended(&mut self, experiment: &str, target: u32, why: SendingEnd) {
        self.records.ended(experiment, target, why);
    }

    fn every(&self) -> Option<Duration> {
        Some(LEAN_EVERY)
    }

    fn look(&mut self) {
        let now = Instant::now();
        match self.time {
            Some(time) if now >= time.until => self.end(),
            Some(time) if now >= time.from => self.observer.leans(self.target),
            Some(_) | None => {}
        }
    }
}
