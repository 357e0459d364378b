//! `throttle`: whether more calls at once become slower instead of being refused.
//!
//! Closed loop: the same number of calls each time, more and more of them at once, over few
//! connections and over twice as many. Shuffled, so that what changes with time is no slope.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;
use wellhead_net::HttpVersion;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::measure::way::Means;
use crate::work::WorkKind;

/// See the module.
#[derive(Debug, Clone)]
pub struct ThrottlePlan {
    /// Connections and calls at once, the next one last.
    cells: Vec<(usize, usize)>,
    calls: u64,
    version: HttpVersion,
    rest: Duration,
}

impl ThrottlePlan {
    /// Each of `at_once` over each of `connections`, `calls` calls each, in an order drawn from
    /// `rng`.
    pub fn new(
        at_once: &[usize],
        connections: &[usize],
        calls: u64,
        version: HttpVersion,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let mut cells: Vec<(usize, usize)> = connections
            .iter()
            .flat_map(|connections| at_once.iter().map(|at_once| (*connections, *at_once)))
            .collect();
        cells.shuffle(rng);
        Self { cells, calls, version, rest }
    }
}

impl ExperimentPlan for ThrottlePlan {
    fn name(&self) -> &'static str {
        "throttle"
    }

    fn version(&self) -> u32 {
        2
    }

    fn calls_max(&self) -> u64 {
        let warming: usize = self.cells.iter().map(|(connections, _)| 3 * connections).sum();
        self.calls * self.cells.len() as u64 + warming as u64
    }

    fn lasts(&self) -> Duration {
        self.rest * u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let (connections, at_once) = self.cells.pop()?;
        let schedule = Schedule::Closed { at_once, calls: self.calls, within: None };
        Some(Ordered {
            factors: factors([
                ("concurrency", at_once.to_string()),
                ("connections", connections.to_string()),
            ]),
            means: Means {
                version: self.version,
                connections,
                // Not one more than its share: the connections are the factor.
                streams_max: at_once.div_ceil(connections.max(1)),
            },
            rest: self.rest,
            ..Ordered::timed(WorkKind::Cheap, schedule)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn play(seed: u64) -> Vec<String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let auto = HttpVersion::Auto;
        let mut plan =
            ThrottlePlan::new(&[5, 10, 20], &[5, 10], 60, auto, Duration::ZERO, &mut rng);
        assert_eq!(plan.calls_max(), 360 + 3 * 45);
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            cells.push(format!("{}/{}", cell.factors["concurrency"], cell.factors["connections"]));
        }
        cells
    }

    #[test]
    fn each_cell_once_in_an_order_of_the_seed() {
        let mut sorted = play(1);
        assert_eq!(sorted, play(1));
        assert_ne!(sorted, play(2));
        sorted.sort_unstable();
        assert_eq!(sorted, ["10/10", "10/5", "20/10", "20/5", "5/10", "5/5"]);
    }
}
