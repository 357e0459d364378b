//! `probe`: whether a limit is still where it was found. One cell below it, and one above it.
//!
//! The one below comes first, and the other is left out where it was refused: what is known then is enough, and a
//! provider that punishes is not provoked. Above a limit a bucket lets calls pass until it is empty, so that cell
//! lasts until it must be.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Connections: few enough to be polite, and more than one so that none is the limit.
const CONNECTIONS: usize = 2;

/// A rate, and how long it is held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeCell {
    /// Calls a second.
    pub per_second: f64,
    /// How long.
    pub lasting: Duration,
}

impl ProbeCell {
    fn schedule(self) -> Schedule {
        Schedule::rate(self.per_second, self.lasting)
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ProbePlan {
    below: Option<ProbeCell>,
    above: Option<ProbeCell>,
    rest: Duration,
    played: u32,
}

impl ProbePlan {
    /// What a cell of it is called, by the factor `side`.
    pub const BELOW: &'static str = "below";
    /// Likewise.
    pub const ABOVE: &'static str = "above";

    /// One cell that has to pass, then one that has to be refused, with `rest` between them.
    pub fn new(below: ProbeCell, above: Option<ProbeCell>, rest: Duration) -> Self {
        Self { below: Some(below), above, rest, played: 0 }
    }

    fn cell(&mut self, side: &str, cell: ProbeCell) -> Ordered {
        let rest = if self.played == 0 { Duration::ZERO } else { self.rest };
        self.played += 1;
        Ordered {
            factors: factors([("rate", cell.per_second.to_string()), ("side", side.to_owned())]),
            rest,
            ..Ordered::timed(WorkKind::Cheap, cell.schedule()).over(CONNECTIONS)
        }
    }
}

impl ExperimentPlan for ProbePlan {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn calls_max(&self) -> u64 {
        let calls = |cell: ProbeCell| cell.schedule().calls() + 3 * CONNECTIONS as u64;
        [self.below, self.above].into_iter().flatten().map(calls).sum()
    }

    fn lasts(&self) -> Duration {
        [self.below, self.above].into_iter().flatten().map(|cell| cell.lasting + self.rest).sum()
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        if let Some(below) = self.below.take() {
            return Some(self.cell(Self::BELOW, below));
        }
        let above = self.above.take().filter(|_| !last.is_some_and(CellOutcome::is_limited))?;
        Some(self.cell(Self::ABOVE, above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(throttled: u64) -> Vec<String> {
        let cell = |per_second| ProbeCell { per_second, lasting: Duration::from_secs(2) };
        let mut plan = ProbePlan::new(cell(40.0), Some(cell(100.0)), Duration::from_secs(2));
        assert_eq!(plan.calls_max(), 80 + 200 + 2 * 6);
        let outcome = CellOutcome { calls: 80, throttled, ..CellOutcome::default() };
        let (mut sides, mut last) = (Vec::new(), None);
        while let Some(cell) = plan.next(last.as_ref()) {
            sides.push(cell.factors["side"].clone());
            last = Some(outcome);
        }
        sides
    }

    #[test]
    fn nothing_is_sent_above_a_limit_that_was_met_below() {
        assert_eq!(play(0), ["below", "above"]);
        assert_eq!(play(1), ["below"]);
    }
}
