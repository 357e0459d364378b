//! Figures that a condition takes from the records themselves.

use serde::Serialize;

use crate::conclude::verdict::Unit;
use crate::conclude::verdict::see;
use crate::record::{Record, RunRecord, Trial, trials};
use crate::stat::quantile;

/// Above this share of doubted cells no time is told. Stricter than verdicts, which two sound cells decide: a gate
/// that passes says so of the whole run.
const DOUBTED_MAX: f64 = 0.25;

/// What is measured over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// A percentile of the latency of served calls, from their intended start.
    Latency(Percentile),
    /// The longest of them.
    LatencyMax,
    /// The share of calls that were neither served nor throttled.
    Errors,
    /// The share that was refused for its rate.
    Throttled,
    /// Served calls per second, in the best cell.
    Throughput,
    /// Calls that were made.
    Calls,
}

/// Which percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Percentile {
    /// The median.
    P50,
    /// The ninetieth.
    P90,
    /// The ninety-fifth.
    P95,
    /// The ninety-ninth.
    P99,
}

impl Percentile {
    fn share(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P95 => 0.95,
            Self::P99 => 0.99,
        }
    }

    /// One call in the tail on average: with fewer it is the longest call.
    fn calls_min(self) -> usize {
        match self {
            Self::P50 => 2,
            Self::P90 => 10,
            Self::P95 => 20,
            Self::P99 => 100,
        }
    }
}

/// All of them, with their words.
pub(crate) const MEASURES: [(&str, Measure); 9] = [
    ("p50", Measure::Latency(Percentile::P50)),
    ("p90", Measure::Latency(Percentile::P90)),
    ("p95", Measure::Latency(Percentile::P95)),
    ("p99", Measure::Latency(Percentile::P99)),
    ("max", Measure::LatencyMax),
    ("errors", Measure::Errors),
    ("throttled", Measure::Throttled),
    ("throughput", Measure::Throughput),
    ("calls", Measure::Calls),
];

impl Measure {
    /// The unit of its figures.
    pub fn unit(self) -> Unit {
        match self {
            Self::Latency(_) | Self::LatencyMax => Unit::Milliseconds,
            Self::Errors | Self::Throttled => Unit::Percent,
            Self::Throughput => Unit::PerSecond,
            Self::Calls => Unit::Count,
        }
    }
}

/// A figure over the calls of a target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredFigure {
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// A run whose calls are sorted into experiments and cells.
#[derive(Debug)]
pub struct MeasuredRun<'a> {
    pub(super) run: &'a RunRecord,
    trials: Vec<Trial<'a>>,
}

/// What became of the calls of sound cells.
#[derive(Debug, Default)]
struct Tally {
    times_ms: Vec<f64>,
    /// A percentile of each part of a long run, with its served calls.
    parts_ms: Vec<(f64, u64)>,
    calls: u64,
    served: u64,
    throttled: u64,
    throughput_max: f64,
    cells: usize,
    doubted: usize,
}

impl<'a> MeasuredRun<'a> {
    /// Sorts the records.
    pub fn new(run: &'a RunRecord, records: &'a [Record]) -> Self {
        Self { run, trials: trials(records) }
    }

    /// Names of the experiments that left records of this target.
    pub fn experiments(&self, target: usize) -> Vec<&str> {
        let own = self.trials.iter().filter(|trial| trial.target as usize == target);
        own.map(|trial| trial.experiment).collect()
    }

    /// The figure over all calls of the target, or of one experiment.
    ///
    /// # Errors
    ///
    /// Why it was not measured, for people.
    pub fn figure(
        &self,
        target: usize,
        experiment: Option<&str>,
        measure: Measure,
    ) -> Result<MeasuredFigure, String> {
        let tally = self.tally(target, experiment, measure);
        let value = tally.figure(measure)?;
        Ok(MeasuredFigure { value, unit: measure.unit() })
    }

    fn tally(&self, target: usize, experiment: Option<&str>, measure: Measure) -> Tally {
        let mut tally = Tally::default();
        let own = self.trials.iter().filter(|trial| {
            trial.target as usize == target && experiment.is_none_or(|it| it == trial.experiment)
        });
        for trial in own {
            tally.add(trial, measure);
        }
        tally
    }
}

impl Tally {
    fn add(&mut self, trial: &Trial<'_>, measure: Measure) {
        let (sound, doubted) = trial.sound();
        self.cells += sound.len() + doubted;
        self.doubted += doubted;
        for cell in sound {
            let times = cell.times();
            self.calls += cell.calls.len() as u64;
            self.served += times.len() as u64;
            self.throttled += cell.calls.iter().filter(|call| see::throttled(call)).count() as u64;
            self.throughput_max = self.throughput_max.max(cell.throughput().unwrap_or(0.0));
            self.times_ms.extend(times);
        }
        for part in trial.rollups.iter().filter(|part| !part.load.saturated) {
            self.calls += part.calls;
            self.served += part.served;
            self.throttled += part.unserved.get("throttled").copied().unwrap_or(0);
            let seconds = part.ended_at.saturating_sub(part.begun_at) as f64 / 1e6;
            if seconds > 0.0 {
                self.throughput_max = self.throughput_max.max(part.served as f64 / seconds);
            }
            let us = match measure {
                Measure::Latency(Percentile::P50) => part.p50,
                Measure::Latency(Percentile::P95) => part.p95,
                Measure::Latency(Percentile::P99) => part.p99,
                Measure::LatencyMax => part.max,
                _ => None,
            };
            self.parts_ms.extend(us.map(|us| (us as f64 / 1_000.0, part.served)));
        }
    }

    fn figure(&self, measure: Measure) -> Result<f64, String> {
        if self.calls == 0 {
            return Err(match self.doubted {
                0 => "no call was made".to_owned(),
                _ => "all cells are doubted: the generator fell behind".to_owned(),
            });
        }
        let share = |some: u64| some as f64 * 100.0 / self.calls as f64;
        match measure {
            Measure::Errors => Ok(share(self.calls.saturating_sub(self.served + self.throttled))),
            Measure::Throttled => Ok(share(self.throttled)),
            Measure::Calls => Ok(self.calls as f64),
            Measure::Latency(percentile) => self.latency(percentile),
            Measure::LatencyMax => {
                self.has_times(1)?;
                let parts = self.parts_ms.iter().map(|(ms, _)| *ms);
                Ok(self.times_ms.iter().copied().chain(parts).fold(0.0, f64::max))
            }
            Measure::Throughput => match self.throughput_max > 0.0 {
                true => Ok(self.throughput_max),
                false => Err("too few calls to tell a rate".to_owned()),
            },
        }
    }

    fn latency(&self, percentile: Percentile) -> Result<f64, String> {
        self.has_times(percentile.calls_min())?;
        if let Some(ms) = quantile(&self.times_ms, percentile.share()) {
            return Ok(ms);
        }
        let mut parts = self.parts_ms.clone();
        parts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let middle = parts.iter().map(|(_, served)| served).sum::<u64>() / 2;
        let mut passed = 0;
        let found = parts.iter().find(|(_, served)| {
            passed += served;
            passed > middle
        });
        found
            .map(|(ms, _)| *ms)
            .ok_or_else(|| "a long run does not keep this percentile".to_owned())
    }

    /// Whether times may be told, and there are as many as needed.
    fn has_times(&self, calls_min: usize) -> Result<(), String> {
        if self.doubted as f64 > DOUBTED_MAX * self.cells as f64 {
            return Err(format!("{} of {} cells are doubted", self.doubted, self.cells));
        }
        if (self.served as usize) < calls_min {
            return Err(format!("{} served calls, and it needs {calls_min}", self.served));
        }
        Ok(())
    }
}
