//! `latency`: how long a call takes when nothing else is asked. One cell, one call at a time.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// See the module.
#[derive(Debug, Clone)]
pub struct LatencyPlan {
    calls: u64,
    over: bool,
}

impl LatencyPlan {
    /// This many calls.
    pub fn new(calls: u64) -> Self {
        Self { calls, over: false }
    }
}

impl ExperimentPlan for LatencyPlan {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn version(&self) -> u32 {
        2
    }

    fn calls_max(&self) -> u64 {
        self.calls + 3
    }

    fn lasts(&self) -> Duration {
        Duration::ZERO
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let schedule = Schedule::Closed { at_once: 1, calls: self.calls, within: None };
        (!std::mem::replace(&mut self.over, true)).then(|| Ordered {
            factors: factors([("concurrency", "1".to_owned())]),
            ..Ordered::timed(WorkKind::Cheap, schedule)
        })
    }
}
