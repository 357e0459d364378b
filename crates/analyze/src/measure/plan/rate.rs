//! `rate`: how many calls a second are let through.
//!
//! Open loop at one rate after another, each by one factor above the last, with a rest between them
//! in which buckets fill. Two cells are played from the first on in which calls were refused, failed or waited:
//! the next rates, or the top again. From low to high and not shuffled: above a limit some providers
//! punish, and what comes later would be measured under that.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::measure::way::Means;
use crate::work::WorkKind;

/// Cells that are played from the first refusal on.
const BEYOND: u32 = 2;
/// Connections: few enough to be polite, and more than one so that none is the limit.
const CONNECTIONS: usize = 4;
/// Calls at once on one of them.
const STREAMS_MAX: usize = 90;
/// Rates in a plan.
const RATES_MAX: usize = 100;

/// See the module.
#[derive(Debug, Clone)]
pub struct RatePlan {
    rates: Vec<f64>,
    lasting: Duration,
    rest: Duration,
    next: usize,
    refused: u32,
    repeat: u32,
}

impl RatePlan {
    /// From `from` up to `up_to` calls a second, times `step` each time, each for `lasting` and
    /// with `rest` between them.
    pub fn new(from: f64, up_to: f64, step: f64, lasting: Duration, rest: Duration) -> Self {
        let mut rates = Vec::new();
        let mut rate = from.max(0.1);
        while rate < up_to && rates.len() < RATES_MAX {
            rates.push((rate * 100.0).round() / 100.0);
            rate *= step.max(1.01);
        }
        rates.push(up_to);
        Self { rates, lasting, rest, next: 0, refused: 0, repeat: 0 }
    }
}

impl ExperimentPlan for RatePlan {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn version(&self) -> u32 {
        2
    }

    fn calls_max(&self) -> u64 {
        let calls =
            |rate: &f64| Schedule::rate(*rate, self.lasting).calls() + 3 * CONNECTIONS as u64;
        let again = self.rates.last().map_or(0, calls);
        self.rates.iter().map(calls).sum::<u64>() + again
    }

    fn work(&self) -> WorkKind {
        WorkKind::Cheap
    }

    fn lasts(&self) -> Duration {
        (self.lasting + self.rest) * u32::try_from(self.rates.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        if last.is_some_and(CellOutcome::is_limited) {
            self.refused += 1;
        }
        if self.refused >= BEYOND {
            return None;
        }
        let rate = match (self.rates.get(self.next), self.rates.last()) {
            (Some(rate), _) => *rate,
            (None, Some(top)) if self.refused > 0 => {
                self.repeat += 1;
                *top
            }
            (None, _) => return None,
        };
        self.next += 1;
        Some(Ordered {
            factors: factors([("rate", rate.to_string())]),
            repeat: self.repeat,
            means: Means { connections: CONNECTIONS, streams_max: STREAMS_MAX, ..Means::ONE },
            rest: self.rest,
            ..Ordered::timed(WorkKind::Cheap, Schedule::rate(rate, self.lasting))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(limit: f64) -> Vec<f64> {
        let second = Duration::from_secs(1);
        let mut plan = RatePlan::new(10.0, 40.0, 1.25, second, second);
        let (mut rates, mut last) = (Vec::new(), None);
        while let Some(cell) = plan.next(last.as_ref()) {
            let rate = cell.factors["rate"].parse().expect("a number");
            rates.push(rate);
            let calls = cell.schedule.calls();
            let throttled = u64::from(rate > limit);
            last = Some(CellOutcome { calls, throttled, ..CellOutcome::default() });
        }
        rates
    }

    #[test]
    fn two_cells_are_refused_or_none_up_to_the_top() {
        assert_eq!(play(39.0), [10.0, 12.5, 15.63, 19.53, 24.41, 30.52, 38.15, 40.0, 40.0]);
        assert_eq!(play(14.0), [10.0, 12.5, 15.63, 19.53]);
        assert_eq!(play(99.0), [10.0, 12.5, 15.63, 19.53, 24.41, 30.52, 38.15, 40.0]);
    }

    #[test]
    fn no_more_is_sent_than_was_told() {
        let second = Duration::from_secs(1);
        let plan = RatePlan::new(10.0, 40.0, 2.0, second, second);
        assert_eq!(plan.calls_max(), 10 + 20 + 40 + 40 + 4 * 12);
    }
}
