//! What the tests of runs share: the terms of a run, one plan against one target, and the
//! reading of what a run wrote.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;

use tempfile::TempDir;
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::{CellOutcome, ExperimentPlan};
use wellhead_analyze::measure::run::{
    CallBudget, CpuClock, Player, RunTerms, StopSignal, Unwatched, Watch,
};
use wellhead_analyze::record::{CallRecord, Cell, Machine, Record, RunRecord};
use wellhead_analyze::stored::StoredRun;
use wellhead_telemetry::SecretUrl;

pub(crate) fn terms() -> RunTerms {
    let (wellhead, machine) = ("test".to_owned(), Machine::default());
    RunTerms { seed: 7, started_unix: 1, wellhead, machine }
}

/// Within a tenth.
#[track_caller]
pub(crate) fn near(seen: f64, truth: f64, about: &dyn std::fmt::Debug) {
    assert!((seen / truth - 1.0).abs() <= 0.1, "{seen} for {truth}: {about:#?}");
}

/// The only target of a run.
pub(crate) fn endpoint(url: &str) -> TargetEndpoint {
    TargetEndpoint::new("target-1".to_owned(), SecretUrl::parse(url).expect("a URL"))
}

/// Plays `plan` against the target at `url`; what the run wrote.
pub(crate) async fn played(
    url: &str,
    plan: &mut dyn ExperimentPlan,
    budget: &CallBudget,
    cpu: CpuClock,
) -> (RunRecord, Vec<Record>) {
    let (dir, stop) = (TempDir::new().expect("a directory"), StopSignal::default());
    let endpoints = [endpoint(url)];
    let player = Player::begin(dir.path(), terms(), &endpoints, budget, &stop).expect("it begins");
    let mut player = player.with_cpu(cpu);
    let greeting = player.greet(0, &endpoints[0]).await.expect("it is written");
    let played = player.play(plan, 0, &endpoints[0], &greeting, &mut Unwatched).await;
    played.expect("it is written");
    read(dir.path())
}

/// A run without a torn line.
pub(crate) fn read(dir: &Path) -> (RunRecord, Vec<Record>) {
    let StoredRun { run, records, torn } = StoredRun::read(dir).expect("a run");
    assert_eq!(torn, None);
    (run, records)
}

/// Cuts the run after this many cells, or after this many calls of the next cell.
pub(crate) struct Cut<'a> {
    pub(crate) cells: usize,
    pub(crate) calls: u64,
    pub(crate) stop: &'a StopSignal,
}

impl Cut<'_> {
    fn stop_if_due(&self) {
        if self.cells == 0 && self.calls == 0 {
            self.stop.set();
        }
    }
}

impl Watch for Cut<'_> {
    fn played(&mut self, _: &str, _: &Cell, _: &CellOutcome) {
        self.cells = self.cells.saturating_sub(1);
        self.stop_if_due();
    }

    fn over(&mut self, _: &CallRecord) {
        if self.cells == 0 {
            self.calls = self.calls.saturating_sub(1);
            self.stop_if_due();
        }
    }
}
