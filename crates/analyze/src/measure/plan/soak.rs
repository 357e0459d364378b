//! `soak`: how it does over a long time, under a load that does not change.
//!
//! One cell on connections that stay open. Its calls are not written one by one, but what became
//! of them at a fixed interval, so that a day needs no more than an hour but for lines. A soak that
//! is stopped keeps what it saw, and goes on for the time that is left.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, PER_USER, Stage, factors};
use crate::work::WorkKind;

/// See the module.
#[derive(Debug, Clone)]
pub struct SoakPlan {
    pace: Stage,
    lasting: Duration,
    every: Duration,
    work: WorkKind,
    connections: usize,
    over: bool,
}

impl SoakPlan {
    /// Keeps up `pace` for `lasting` over `connections` connections, and writes a line at each
    /// interval of `every`.
    pub fn new(
        pace: Stage,
        lasting: Duration,
        every: Duration,
        work: WorkKind,
        connections: usize,
    ) -> Self {
        Self { pace, lasting, every, work, connections, over: false }
    }

    fn cell(&self) -> Ordered {
        let schedule = self.pace.schedule(self.lasting, Duration::ZERO, PER_USER);
        Ordered {
            factors: factors([self.pace.factor(), ("work", self.work.word().to_owned())]),
            ..Ordered::timed(self.work, schedule).over(self.connections)
        }
    }
}

impl ExperimentPlan for SoakPlan {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn calls_max(&self) -> u64 {
        self.cell().calls_max()
    }

    fn methods(&self) -> Vec<(&'static str, f64)> {
        self.work.methods()
    }

    fn lasts(&self) -> Duration {
        self.lasting
    }

    fn rolled(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn watched(&mut self, so_far: Duration) {
        self.lasting = self.lasting.saturating_sub(so_far);
        self.over = self.over || self.lasting.is_zero();
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        (!std::mem::replace(&mut self.over, true)).then(|| self.cell())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cell_that_is_bounded() {
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        for (pace, calls) in [(Stage::Rate(5.0), 300), (Stage::Users(3), 3_600)] {
            let mut plan = SoakPlan::new(pace, minute, second * 10, WorkKind::Mix, 2);
            assert_eq!(plan.calls_max(), calls + 6);
            let cell = plan.next(None).expect("one cell");
            assert_eq!(cell.schedule.calls(), calls);
            assert_eq!(plan.next(None), None);
            assert_eq!(plan.rolled(), Some(second * 10));
        }
    }
}
