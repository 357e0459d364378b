//! `soak`: how it does over a long time, under a load that does not change.
//!
//! One cell on connections that stay open. Its calls are not written one by one, but what became
//! of them at a fixed interval, so that a day needs no more than an hour but for lines. A soak that
//! is stopped keeps what it saw, and goes on for the time that is left.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Calls that all users may make in a second, for a bound.
const USERS_PER_SECOND: u64 = 20;

/// The load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SoakLoad {
    /// Calls a second, open loop.
    Rate(f64),
    /// This many users, each of which asks again when it has an answer, closed loop.
    Users(usize),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct SoakPlan {
    pace: SoakLoad,
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
        pace: SoakLoad,
        lasting: Duration,
        every: Duration,
        work: WorkKind,
        connections: usize,
    ) -> Self {
        Self { pace, lasting, every, work, connections, over: false }
    }

    fn schedule(&self) -> Schedule {
        match self.pace {
            SoakLoad::Rate(rate) => Schedule::rate(rate, self.lasting),
            SoakLoad::Users(users) => {
                let users = users.max(1);
                let calls = users as u64 * USERS_PER_SECOND * self.lasting.as_secs().max(1);
                Schedule::Closed { at_once: users, calls, within: Some(self.lasting) }
            }
        }
    }
}

impl ExperimentPlan for SoakPlan {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn calls_max(&self) -> u64 {
        self.schedule().calls() + 3 * self.connections as u64
    }

    fn work(&self) -> WorkKind {
        self.work
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
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let load = match self.pace {
            SoakLoad::Rate(rate) => ("rate", rate.to_string()),
            SoakLoad::Users(users) => ("users", users.to_string()),
        };
        Some(Ordered {
            factors: factors([load, ("work", self.work.word().to_owned())]),
            ..Ordered::timed(self.work, self.schedule()).over(self.connections)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cell_that_is_bounded() {
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        for (pace, calls) in [(SoakLoad::Rate(5.0), 300), (SoakLoad::Users(3), 3_600)] {
            let mut plan = SoakPlan::new(pace, minute, second * 10, WorkKind::Mix, 2);
            assert_eq!(plan.calls_max(), calls + 6);
            let cell = plan.next(None).expect("one cell");
            assert_eq!(cell.schedule.calls(), calls);
            assert_eq!(plan.next(None), None);
            assert_eq!(plan.rolled(), Some(second * 10));
        }
    }
}
