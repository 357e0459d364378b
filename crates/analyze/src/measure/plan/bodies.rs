//! `bodies`: how fast large answers come, and whether small ones wait for them.
//!
//! All over one connection, HTTP/2 where there is a choice: large answers one by one, several of
//! them at a time, small ones one by one, and small ones beside several large ones. All four are
//! played before any is played again, each time in another order drawn from the seed.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;
use wellhead_net::HttpVersion;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::measure::way::Means;
use crate::work::WorkKind;

/// Small calls for each large one.
const SMALL_EACH: u64 = 4;

/// See the module.
#[derive(Debug, Clone)]
pub struct BodiesPlan {
    calls: u64,
    at_once: usize,
    repeats: u32,
    version: HttpVersion,
    rest: Duration,
    /// Large ones at a time, whether small ones are asked, and the repeat; the next one last.
    cells: Vec<(usize, bool, u32)>,
}

impl BodiesPlan {
    /// `calls` large ones in a cell, alone and `at_once` at a time, `repeats` times.
    pub fn new(
        calls: u64,
        at_once: usize,
        repeats: u32,
        version: HttpVersion,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let at_once = at_once.max(2);
        let mut cells = Vec::new();
        for repeat in (0..repeats).rev() {
            let mut round = kinds(at_once).map(|(large, small)| (large, small, repeat));
            round.shuffle(rng);
            cells.extend(round);
        }
        Self { calls: calls.max(1), at_once, repeats, version, rest, cells }
    }

    fn schedule(&self, large: usize, small: bool) -> Schedule {
        let smalls = self.calls * SMALL_EACH;
        match (large, small) {
            (0, _) => Schedule::Closed { at_once: 1, calls: smalls, within: None },
            (_, true) => Schedule::Beside { large, small: smalls },
            // As many for each place, or one would be measured while others are already done.
            (_, false) => {
                Schedule::Closed { at_once: large, calls: self.calls * large as u64, within: None }
            }
        }
    }
}

/// Large ones at a time, and whether small ones are asked, of the four kinds of cells.
fn kinds(at_once: usize) -> [(usize, bool); 4] {
    [(1, false), (at_once, false), (0, true), (at_once, true)]
}

impl ExperimentPlan for BodiesPlan {
    fn name(&self) -> &'static str {
        "bodies"
    }

    fn calls_max(&self) -> u64 {
        // Each cell is warmed up.
        let calls =
            kinds(self.at_once).map(|(large, small)| self.schedule(large, small).calls() + 3);
        u64::from(self.repeats) * calls.iter().sum::<u64>()
    }

    fn work(&self) -> WorkKind {
        WorkKind::LargeBlocks
    }

    fn lasts(&self) -> Duration {
        self.rest * u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let (large, small, repeat) = self.cells.pop()?;
        let work = if small { WorkKind::Cheap } else { WorkKind::LargeBlocks };
        Some(Ordered {
            factors: factors([
                ("large", large.to_string()),
                ("small", u64::from(small).to_string()),
                ("connections", "1".to_owned()),
            ]),
            repeat,
            means: Means { version: self.version, streams_max: self.at_once + 1, ..Means::ONE },
            rest: self.rest,
            ..Ordered::timed(work, self.schedule(large, small))
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn four_kinds_of_cells_come_in_rounds() {
        let mut rng = SmallRng::seed_from_u64(1);
        let auto = HttpVersion::Auto;
        let mut plan = BodiesPlan::new(10, 4, 3, auto, Duration::ZERO, &mut rng);
        // Ten alone, forty at once, forty small ones, and those beside four times as many.
        assert_eq!(plan.calls_max(), 3 * (10 + 40 + 40 + 200 + 12));
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            cells.push(format!("{} {}", cell.factors["large"], cell.factors["small"]));
        }
        for round in cells.chunks_mut(4) {
            round.sort_unstable();
            assert_eq!(round, ["0 1", "1 0", "4 0", "4 1"]);
        }
        assert_eq!(cells.len(), 12);
    }
}
