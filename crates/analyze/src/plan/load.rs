//! `load`: what becomes of a load that one sets, stage after stage.
//!
//! A stage is a rate, open loop, or a number of users who each wait for an answer and ask again
//! at once. Stages are played in their order: what one leaves behind for the next is a part of
//! what is asked.

use std::time::Duration;

use super::{Ordered, Outcome, Plan, factors};
use crate::schedule::Schedule;
use crate::way::Means;
use crate::work::Work;

/// Calls at once on one connection, as the proxy has it where nothing else is known.
const STREAMS_MAX: usize = 90;
/// Calls that all users of a stage may make in a second, for the bound on a stage.
const USERS_PER_SECOND: u64 = 20;

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Calls a second.
    Rate(f64),
    /// Calls at a time.
    Users(usize),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Load {
    stages: Vec<Stage>,
    lasting: Duration,
    work: Work,
    connections: usize,
    rest: Duration,
    next: usize,
}

impl Load {
    /// Plays `stages`, each for `lasting`, over `connections` connections.
    pub fn new(stages: Vec<Stage>, lasting: Duration, work: Work, connections: usize) -> Self {
        Self { stages, lasting, work, connections, rest: Duration::ZERO, next: 0 }
    }

    /// With `rest` between stages.
    #[must_use]
    pub fn with_rest(self, rest: Duration) -> Self {
        Self { rest, ..self }
    }

    fn schedule(&self, stage: Stage) -> Schedule {
        match stage {
            Stage::Rate(rate) => Schedule::rate(rate, self.lasting),
            Stage::Users(users) => {
                let calls = users as u64 * USERS_PER_SECOND * self.lasting.as_secs().max(1);
                Schedule::Closed { at_once: users.max(1), calls, within: Some(self.lasting) }
            }
        }
    }
}

impl Plan for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn version(&self) -> u32 {
        1
    }

    fn calls_max(&self) -> u64 {
        let warming = 3 * self.connections as u64;
        self.stages.iter().map(|stage| self.schedule(*stage).calls() + warming).sum()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn lasts(&self) -> Duration {
        (self.lasting + self.rest) * u32::try_from(self.stages.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, _: Option<&Outcome>) -> Option<Ordered> {
        let stage = *self.stages.get(self.next)?;
        let number = self.next;
        self.next += 1;
        let mut factors = factors([("work", self.work.word().to_owned())]);
        match stage {
            Stage::Rate(rate) => factors.insert("rate".to_owned(), rate.to_string()),
            Stage::Users(users) => {
                factors.insert("stage".to_owned(), number.to_string());
                factors.insert("users".to_owned(), users.to_string())
            }
        };
        Some(Ordered {
            factors,
            repeat: 0,
            means: Means { connections: self.connections, streams_max: STREAMS_MAX, ..Means::ONE },
            work: self.work,
            schedule: self.schedule(stage),
            warmed: true,
            until_failure: false,
            timed: true,
            rest: self.rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_come_in_their_order() {
        let stages = vec![Stage::Rate(10.0), Stage::Rate(50.0), Stage::Users(4)];
        let mut plan = Load::new(stages, Duration::from_secs(2), Work::Mix, 2);
        assert_eq!(plan.calls_max(), (20 + 6) + (100 + 6) + (160 + 6));
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            let text: Vec<String> =
                cell.factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
            cells.push(text.join(" "));
        }
        assert_eq!(cells, ["rate=10 work=mix", "rate=50 work=mix", "stage=2 users=4 work=mix"]);
    }
}
