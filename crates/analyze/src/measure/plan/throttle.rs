//! `throttle`: whether more calls at once become slower instead of being refused.
//!
//! Closed loop: the same number of calls each time, more and more of them at once, over few
//! connections and over twice as many. Shuffled, so that what changes with time is no slope.

use std::time::Duration;

use rand::Rng;

use super::{FixedPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

impl FixedPlan {
    /// `throttle`: each of `at_once` over each of `connections`, `calls` calls each, in an order
    /// drawn from `rng`.
    pub fn throttle(
        at_once: &[usize],
        connections: &[usize],
        calls: u64,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let cell = |connections: usize, at_once: usize| Ordered {
            factors: factors([
                ("concurrency", at_once.to_string()),
                ("connections", connections.to_string()),
            ]),
            // Not one more than its share: the connections are the factor.
            transport: ConnectionSettings {
                connections,
                streams_max: at_once.div_ceil(connections.max(1)),
                ..ConnectionSettings::ONE
            },
            rest,
            ..Ordered::timed(WorkKind::Cheap, Schedule::Closed { at_once, calls, within: None })
        };
        let round: Vec<Ordered> = connections
            .iter()
            .flat_map(|connections| at_once.iter().map(|at_once| cell(*connections, *at_once)))
            .collect();
        Self { version: 2, ..Self::rounds("throttle", &round, 1, WorkKind::Cheap, rng) }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    fn play(seed: u64) -> Vec<String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut plan = FixedPlan::throttle(&[5, 10, 20], &[5, 10], 60, Duration::ZERO, &mut rng);
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
