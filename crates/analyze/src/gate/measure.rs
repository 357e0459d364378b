//! Figures that a condition takes from the records themselves.

use crate::conclude::verdict::{Better, FigureBound, Unit, VerdictFigure, see};
use crate::record::{Record, RunRecord, Trial, trials};
use crate::stat::quantile;

/// Above this share of doubted cells (of a long run: of its intervals) no latency and no throughput is given. Shares
/// of calls are, from the sound cells. Stricter than most verdicts, which two sound cells decide: a gate that passes
/// says so of the whole run. `soak` has the same bound.
const DOUBTED_MAX: f64 = 0.25;

/// What is measured over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// This percentile of the latency of served calls, from their intended start.
    Latency(u8),
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

/// All of them, with their words.
pub(crate) const MEASURES: [(&str, Measure); 9] = [
    ("p50", Measure::Latency(50)),
    ("p90", Measure::Latency(90)),
    ("p95", Measure::Latency(95)),
    ("p99", Measure::Latency(99)),
    ("max", Measure::LatencyMax),
    ("errors", Measure::Errors),
    ("throttled", Measure::Throttled),
    ("throughput", Measure::Throughput),
    ("calls", Measure::Calls),
];

impl Measure {
    fn word(self) -> &'static str {
        MEASURES.into_iter().find(|(_, measure)| *measure == self).map_or("", |(word, _)| word)
    }

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
    /// Cells, and intervals of a long run.
    cells: usize,
    /// Of these.
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

    /// Those of the figures of an experiment at a target that were measured.
    pub(crate) fn figures(&self, target: usize, experiment: &str) -> Vec<VerdictFigure> {
        let figure = |(_, measure)| self.figure(target, Some(experiment), measure).ok();
        MEASURES.into_iter().filter_map(figure).collect()
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
    ) -> Result<VerdictFigure, String> {
        let mut tally = Tally::default();
        let own = self.trials.iter().filter(|trial| {
            trial.target as usize == target && experiment.is_none_or(|it| it == trial.experiment)
        });
        own.for_each(|trial| tally.add(trial, measure));
        let (value, unit, word) = (tally.figure(measure)?, measure.unit(), measure.word());
        let (bound, better) = (FigureBound::Exactly, Better::Neither);
        Ok(VerdictFigure { word, value, bound, unit, better })
    }
}

impl Tally {
    fn add(&mut self, trial: &Trial<'_>, measure: Measure) {
        let (sound, doubted) = trial.sound();
        // The cell of a long run is doubted only if half of its intervals are.
        let is_whole = trial.rollups.is_empty();
        let parts = trial.rollups.iter().filter(|part| part.load.saturated).count();
        let (cells, doubted) = match is_whole {
            true => (sound.len() + doubted, doubted),
            false => (trial.rollups.len(), parts),
        };
        self.cells += cells;
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
                Measure::Latency(50) => part.p50,
                Measure::Latency(95) => part.p95,
                Measure::Latency(99) => part.p99,
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
                _ => "all cells are doubted".to_owned(),
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
            Measure::Throughput => {
                self.has_times(1)?;
                match self.throughput_max > 0.0 {
                    true => Ok(self.throughput_max),
                    false => Err("too few calls for a rate".to_owned()),
                }
            }
        }
    }

    fn latency(&self, percentile: u8) -> Result<f64, String> {
        // One call in the tail on average: with fewer it is the longest call.
        self.has_times(100 / (100 - usize::from(percentile)))?;
        if let Some(ms) = quantile(&self.times_ms, f64::from(percentile) / 100.0) {
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

    /// Whether latencies may be given, and there are as many as needed.
    fn has_times(&self, calls_min: usize) -> Result<(), String> {
        if self.doubted as f64 > DOUBTED_MAX * self.cells as f64 {
            let (doubted, cells) = (self.doubted, self.cells);
            return Err(format!("{doubted} of {cells} cells or intervals are doubted"));
        }
        if (self.served as usize) < calls_min {
            return Err(format!(
                "{} served calls, and at least {calls_min} are needed",
                self.served
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CallRecord, Cell, GeneratorLoad, Rollup};

    /// 100 calls of 20 ms in each cell, one of ten throttled; of these cells the first are doubted.
    fn cells(sound: u32, doubted: u32) -> Vec<Record> {
        (0..sound + doubted).flat_map(|cell| one_cell(cell, cell < doubted)).collect()
    }

    fn one_cell(cell: u32, saturated: bool) -> Vec<Record> {
        let begun_at = u64::from(cell) * 10_000_000;
        let call = |n: u64| {
            let at = begun_at + n * 50_000;
            Record::Call(CallRecord {
                experiment: "load".to_owned(),
                cell,
                n,
                intended_at: at,
                begun_at: at,
                ended_at: at + 20_000,
                class: if n % 10 == 9 { "throttled" } else { "answer" }.to_owned(),
                ..CallRecord::default()
            })
        };
        let mut records: Vec<Record> = (0..100).map(call).collect();
        records.push(Record::Cell(Cell {
            experiment: "load".to_owned(),
            cell,
            factors: [("rate".to_owned(), cell.to_string())].into(),
            begun_at,
            ended_at: begun_at + 9_000_000,
            calls: 100,
            load: GeneratorLoad { saturated, ..GeneratorLoad::default() },
            ..Cell::default()
        }));
        records
    }

    /// Intervals of a long run, of which the first are doubted.
    fn intervals(sound: u64, doubted: u64) -> Vec<Record> {
        let one = |n: u64| {
            Record::Rollup(Rollup {
                experiment: "soak".to_owned(),
                begun_at: n * 10_000_000,
                ended_at: (n + 1) * 10_000_000,
                calls: 100,
                served: 90,
                unserved: [("throttled".to_owned(), 10)].into(),
                p95: Some(20_000),
                load: GeneratorLoad { saturated: n < doubted, ..GeneratorLoad::default() },
                ..Rollup::default()
            })
        };
        let cell =
            Cell { experiment: "soak".to_owned(), ended_at: u64::MAX, calls: 1, ..Cell::default() };
        (0..sound + doubted).map(one).chain([Record::Cell(cell)]).collect()
    }

    #[track_caller]
    fn check(records: &[Record], word: &str, expected: Result<f64, &str>) {
        let (_, measure) = MEASURES.into_iter().find(|(name, _)| *name == word).expect("a measure");
        let run = RunRecord::default();
        let found = MeasuredRun::new(&run, records).figure(0, None, measure);
        let found = found.map(|it| it.value.round());
        assert_eq!(found, expected.map_err(str::to_owned), "{word}");
    }

    #[test]
    fn a_quarter_of_the_cells_may_be_doubted() {
        for (sound, doubted) in [(1, 0), (3, 1), (6, 2), (9, 3)] {
            check(&cells(sound, doubted), "p95", Ok(20.0));
            check(&cells(sound, doubted), "max", Ok(20.0));
            check(&cells(sound, doubted), "throughput", Ok(18.0));
        }
    }

    #[test]
    fn above_a_quarter_no_latency_and_no_throughput_is_given() {
        for (sound, doubted) in [(2, 1), (5, 2), (8, 3), (1, 3)] {
            let records = cells(sound, doubted);
            let why = format!("{doubted} of {} cells or intervals are doubted", sound + doubted);
            for word in ["p50", "p95", "max", "throughput"] {
                check(&records, word, Err(&why));
            }
            // What became of the calls of sound cells does not depend on times.
            check(&records, "throttled", Ok(10.0));
            check(&records, "errors", Ok(0.0));
            check(&records, "calls", Ok(f64::from(sound) * 100.0));
        }
    }

    #[test]
    fn without_a_sound_cell_nothing_is_given() {
        let why = "all cells are doubted";
        for word in ["p95", "throughput", "errors", "throttled", "calls"] {
            check(&cells(0, 1), word, Err(why));
            check(&[], word, Err("no call was made"));
        }
    }

    #[test]
    fn of_a_long_run_the_intervals_count() {
        for (sound, doubted) in [(8, 0), (6, 2), (30, 10)] {
            check(&intervals(sound, doubted), "p95", Ok(20.0));
            check(&intervals(sound, doubted), "throughput", Ok(9.0));
        }
        check(&intervals(5, 2), "p95", Err("2 of 7 cells or intervals are doubted"));
        check(&intervals(29, 11), "throughput", Err("11 of 40 cells or intervals are doubted"));
        check(&intervals(5, 2), "throttled", Ok(10.0));
    }

    #[test]
    fn a_doubted_cell_that_was_played_again_is_not_counted() {
        let mut records = cells(1, 1);
        let mut again = one_cell(2, false);
        if let Some(Record::Cell(cell)) = again.last_mut() {
            (cell.again, cell.factors) = (1, [("rate".to_owned(), "0".to_owned())].into());
        }
        records.extend(again);
        check(&records, "p95", Ok(20.0));
    }
}
