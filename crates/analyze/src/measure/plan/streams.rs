//! `streams`: how many calls one HTTP/2 connection bears at once.
//!
//! Doubles until a cell fails, then bisects, and plays the largest number that held and the
//! smallest that failed again. Each cell has a connection of its own, and all have the same
//! number of calls, so that a limit of requests on a connection is not taken for one of streams.

use std::time::Duration;

use wellhead_net::HttpVersion;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// How often the two numbers that decide are played.
const REPEATS: u32 = 3;

/// See the module.
#[derive(Debug, Clone)]
pub struct StreamsPlan {
    up_to: u64,
    rest: Duration,
    low: u64,
    high: Option<u64>,
    phase: StreamsPhase,
    /// The number of the cell that was played last.
    trying: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamsPhase {
    Doubling(u64),
    Bisecting,
    Confirming { left: u32 },
    Over,
}

impl StreamsPlan {
    /// Doubles from `from` up to `up_to`, with `rest` between cells.
    pub fn new(from: u64, up_to: u64, rest: Duration) -> Self {
        let up_to = up_to.max(1);
        let first = from.clamp(1, up_to);
        let phase = StreamsPhase::Doubling(first);
        Self { up_to, rest, low: 0, high: None, phase, trying: first }
    }

    fn learn(&mut self, failed: bool) {
        let tried = self.trying;
        match self.phase {
            StreamsPhase::Doubling(_) | StreamsPhase::Bisecting => {
                if failed {
                    self.high = Some(tried);
                } else {
                    self.low = tried;
                }
                self.phase = match self.high {
                    None if tried >= self.up_to => StreamsPhase::Confirming { left: REPEATS - 1 },
                    None => StreamsPhase::Doubling((tried * 2).min(self.up_to)),
                    Some(high) if high > self.low + 1 => StreamsPhase::Bisecting,
                    Some(_) => StreamsPhase::Confirming { left: 2 * (REPEATS - 1) },
                };
            }
            StreamsPhase::Confirming { left } => {
                self.phase = match left {
                    0 | 1 => StreamsPhase::Over,
                    more => StreamsPhase::Confirming { left: more - 1 },
                };
            }
            StreamsPhase::Over => {}
        }
    }

    /// The size and the repeat of the cell that is next.
    fn size(&self) -> Option<(u64, u32)> {
        match (self.phase, self.high) {
            (StreamsPhase::Doubling(size), _) => Some((size, 0)),
            (StreamsPhase::Bisecting, Some(high)) => Some((self.low + (high - self.low) / 2, 0)),
            (StreamsPhase::Confirming { left }, None) => Some((self.low, REPEATS - left)),
            // In turns: what changes with time meets both.
            (StreamsPhase::Confirming { left }, Some(high)) => {
                let repeat = REPEATS - left.div_ceil(2);
                let size = if left % 2 == 0 { self.low } else { high };
                Some((size.max(1), repeat))
            }
            (StreamsPhase::Bisecting, None) | (StreamsPhase::Over, _) => None,
        }
    }
}

impl ExperimentPlan for StreamsPlan {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn calls_max(&self) -> u64 {
        let steps = u64::from(self.up_to.ilog2());
        let cells = 2 * steps + 2 + 2 * u64::from(REPEATS - 1);
        cells * (self.up_to + 1)
    }

    fn lasts(&self) -> Duration {
        self.rest * (self.up_to.ilog2() + REPEATS)
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        if let Some(last) = last {
            self.learn(last.failed > 0);
        }
        let (size, repeat) = self.size()?;
        self.trying = size;
        let at_once = usize::try_from(size).unwrap_or(usize::MAX);
        let schedule = Schedule::Closed { at_once, calls: self.up_to, within: None };
        Some(Ordered {
            factors: factors([("streams", size.to_string())]),
            repeat,
            transport: ConnectionSettings {
                version: HttpVersion::H2,
                connections: 1,
                streams_max: at_once,
            },
            // It is warmed up: the number of streams is known when the settings are.
            until_failure: true,
            timed: false,
            rest: self.rest,
            ..Ordered::timed(WorkKind::Cheap, schedule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays it against a connection that bears `cap`; the sizes and what was found.
    fn play(up_to: u64, cap: u64) -> (Vec<(u64, u32)>, u64) {
        let mut plan = StreamsPlan::new(8, up_to, Duration::ZERO);
        let (mut played, mut calls, mut last) = (Vec::new(), 0, None);
        while let Some(cell) = plan.next(last.as_ref()) {
            let size = cell.factors["streams"].parse().expect("a number");
            played.push((size, cell.repeat));
            calls += cell.schedule.calls() + 1;
            let failed = u64::from(size > cap);
            last = Some(CellOutcome { calls: 1, failed, ..CellOutcome::default() });
        }
        assert!(calls <= plan.calls_max(), "{calls} calls, {} told", plan.calls_max());
        (played, calls)
    }

    #[test]
    fn every_cap_is_found_and_seen_three_times() {
        for cap in 1..=256 {
            let (played, _) = play(256, cap);
            let times = |size| played.iter().filter(|(played, _)| *played == size).count();
            assert_eq!(times(cap), 3, "{cap}: {played:?}");
            if cap < 256 {
                assert_eq!(times(cap + 1), 3, "{cap}: {played:?}");
            }
        }
    }

    #[test]
    fn repeats_are_numbered() {
        let (played, _) = play(64, 40);
        let mut sorted = played.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), played.len(), "{played:?}");
        assert!(played.contains(&(40, 2)) && played.contains(&(41, 2)), "{played:?}");
    }

    #[test]
    fn one_that_bears_nothing_ends_as_well() {
        let (played, _) = play(64, 0);
        assert_eq!(played.last(), Some(&(1, 2)), "{played:?}");
    }
}
