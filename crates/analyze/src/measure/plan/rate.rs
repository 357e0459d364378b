//! `rate`: how many calls a second are let through.
//!
//! Open loop at one rate after another, each by one factor above the last, with a rest between them
//! in which buckets fill. Two cells are played from the first on in which calls were refused, failed or waited:
//! the next rates, or the top again. From low to high and not shuffled: above a limit some providers
//! punish, and what comes later would be measured under that.
//!
//! What came before may have emptied a bucket, or earned a ban. So a lowest rate that is refused is played again
//! after longer rests, and so is a rate below one that passed.

use std::time::Duration;

use super::window::CONNECTIONS;
use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Cells that are played from the first refusal on.
const BEYOND: u32 = 2;
/// Rests before the lowest rate is played again, where it was refused: a window of ten seconds, and of a minute.
const WAITS: [Duration; 2] = [Duration::from_secs(11), Duration::from_secs(61)];
/// Rates that are played again because a higher one passed.
const AGAIN_MAX: u32 = 1;
/// Rates in a plan.
const RATES_MAX: usize = 100;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct RatePlan {
    rates: Vec<f64>,
    lasting: Duration,
    rest: Duration,
    next: usize,
    /// Limited cells since the last one that passed.
    refused: u32,
    repeat: u32,
    /// The place of the rate that was played last.
    played: usize,
    /// Whether any rate has passed.
    passed: bool,
    /// Rests of [`WAITS`] that were taken.
    waits: usize,
    /// The highest rate that was limited below one that passed later.
    doubted: Option<usize>,
    again: u32,
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
        Self { rates, lasting, rest, ..Self::default() }
    }

    /// The cell of the rate at this place.
    fn cell(&mut self, at: usize, rest: Duration, repeat: u32) -> Ordered {
        self.played = at;
        let rate = self.rates[at];
        Ordered {
            factors: factors([("rate", rate.to_string())]),
            repeat,
            rest,
            ..Ordered::timed(WorkKind::Cheap, Schedule::rate(rate, self.lasting)).over(CONNECTIONS)
        }
    }

    /// Counts what came of the last cell; a rest after which the lowest rate is to be played again, where that was
    /// limited.
    fn learn(&mut self, last: &CellOutcome) -> Option<Duration> {
        if !last.is_limited() {
            self.passed = true;
            self.refused = 0;
            return None;
        }
        let wait = WAITS.get(self.waits).filter(|_| !self.passed)?;
        let asked = Duration::from_millis(last.pause_ms.unwrap_or(0));
        self.waits += 1;
        Some((*wait).max(asked.min(WAITS[WAITS.len() - 1])))
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
        let waited = WAITS.len() as u64 * self.rates.first().map_or(0, calls);
        let below = self.rates.iter().rev().nth(1).map_or(0, calls);
        self.rates.iter().map(calls).sum::<u64>() + again + waited + u64::from(AGAIN_MAX) * below
    }

    fn lasts(&self) -> Duration {
        (self.lasting + self.rest) * u32::try_from(self.rates.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        if let Some(last) = last {
            let limited = last.is_limited();
            if let Some(rest) = self.learn(last) {
                let repeat = u32::try_from(self.waits).unwrap_or(u32::MAX);
                return Some(self.cell(self.played, rest.max(self.rest), repeat));
            }
            if limited {
                self.refused += 1;
                self.doubted = self.doubted.max(Some(self.played));
            } else if let Some(at) = self.doubted.filter(|at| *at < self.played)
                && self.again < AGAIN_MAX
            {
                (self.doubted, self.again) = (None, self.again + 1);
                return Some(self.cell(at, self.rest, 1));
            }
        }
        if self.refused >= BEYOND {
            return None;
        }
        let top = self.rates.len() - 1;
        if self.next > top {
            self.repeat += 1;
        }
        if self.next > top && self.refused == 0 {
            return None;
        }
        let at = self.next.min(top);
        self.next += 1;
        Some(self.cell(at, self.rest, self.repeat))
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
        assert_eq!(plan.calls_max(), 10 + 20 + 40 + 40 + 2 * 10 + 20 + 7 * 12);
    }

    /// Rates and rests in seconds, where the cells with these numbers are refused.
    fn played(refused: &[usize]) -> Vec<(f64, u64)> {
        let second = Duration::from_secs(1);
        let mut plan = RatePlan::new(10.0, 80.0, 2.0, second, second);
        let (mut cells, mut last, mut calls) = (Vec::new(), None, 0);
        let calls_max = plan.calls_max();
        while let Some(cell) = plan.next(last.as_ref()) {
            let throttled = u64::from(refused.contains(&cells.len()));
            calls += cell.calls_max();
            last = Some(CellOutcome { calls: 100, throttled, ..CellOutcome::default() });
            cells.push((cell.factors["rate"].parse().expect("a number"), cell.rest.as_secs()));
        }
        assert!(calls <= calls_max, "{calls} calls");
        cells
    }

    #[test]
    fn what_was_left_behind_is_waited_out() {
        assert_eq!(played(&[0]), [(10.0, 1), (10.0, 11), (20.0, 1), (40.0, 1), (80.0, 1)]);
        let refused = [(10.0, 1), (10.0, 11), (10.0, 61), (20.0, 1)];
        assert_eq!(played(&[0, 1, 2, 3]), refused);
    }

    #[test]
    fn a_rate_below_one_that_passed_is_played_again() {
        assert_eq!(played(&[1]), [(10.0, 1), (20.0, 1), (40.0, 1), (20.0, 1), (80.0, 1)]);
        assert_eq!(played(&[1, 3]), [(10.0, 1), (20.0, 1), (40.0, 1), (20.0, 1), (80.0, 1)]);
    }
}
