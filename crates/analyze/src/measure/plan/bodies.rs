//! `bodies`: how fast large answers come, and whether small ones wait for them.
//!
//! All over one connection, HTTP/2 where there is a choice: large answers one by one, several of
//! them at a time, small ones one by one, and small ones beside several large ones. All four are
//! played before any is played again, each time in another order drawn from the seed.

use std::time::Duration;

use rand::Rng;

use super::{FixedPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Small calls for each large one.
const SMALL_EACH: u64 = 4;

impl FixedPlan {
    /// `bodies`: `calls` large ones in a cell, alone and `at_once` at a time, `repeats` times.
    pub fn bodies(
        calls: u64,
        at_once: usize,
        repeats: u32,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let at_once = at_once.max(2);
        let cell = |(large, small): (usize, bool)| {
            let work = if small { WorkKind::Cheap } else { WorkKind::LargeBlocks };
            Ordered {
                factors: factors([
                    ("large", large.to_string()),
                    ("small", u64::from(small).to_string()),
                    ("connections", "1".to_owned()),
                ]),
                transport: ConnectionSettings {
                    streams_max: at_once + 1,
                    ..ConnectionSettings::ONE
                },
                rest,
                ..Ordered::timed(work, schedule(calls.max(1), large, small))
            }
        };
        // Large ones at a time, and whether small ones are asked.
        let round = [(1, false), (at_once, false), (0, true), (at_once, true)].map(cell);
        Self::rounds("bodies", &round, repeats, WorkKind::LargeBlocks, rng)
    }
}

fn schedule(calls: u64, large: usize, small: bool) -> Schedule {
    let smalls = calls * SMALL_EACH;
    match (large, small) {
        (0, _) => Schedule::Closed { at_once: 1, calls: smalls, within: None },
        (_, true) => Schedule::Beside { large, small: smalls },
        // As many for each place, or one would be measured while others are already done.
        (_, false) => {
            Schedule::Closed { at_once: large, calls: calls * large as u64, within: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    #[test]
    fn four_kinds_of_cells_come_in_rounds() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut plan = FixedPlan::bodies(10, 4, 3, Duration::ZERO, &mut rng);
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
