//! `cost`: what a method counts against the rate, compared with the others.
//!
//! Each method alone is sent more often than the limit allows (`knock`), twice, in an order drawn
//! from the seed. How often it passes is what it costs: the limit is the same for all.

use std::time::Duration;

use rand::Rng;

use super::window::CONNECTIONS;
use super::{FixedPlan, Ordered, factors};
use crate::measure::knock::Knocking;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// How often each method is played.
const REPEATS: u32 = 2;

impl FixedPlan {
    /// `cost`: floods each of `methods`, of [`crate::work::METHODS`], on these `terms`, with `rest`
    /// between cells, in an order drawn from `rng`.
    pub fn cost(
        methods: &[&'static str],
        terms: Knocking,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let cell = |method: &&'static str| Ordered {
            factors: factors([("method", (*method).to_owned())]),
            rest,
            ..Ordered::timed(WorkKind::Only(method), Schedule::Knock(terms)).over(CONNECTIONS)
        };
        let round: Vec<Ordered> = methods.iter().map(cell).collect();
        let plan = Self::rounds("cost", &round, REPEATS, WorkKind::Cheap, rng);
        let share = 1.0 / plan.cells.len().max(1) as f64;
        let methods = plan.cells.iter().map(|cell| (cell.work.word(), share)).collect();
        Self { methods, ..plan }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    fn play(seed: u64) -> Vec<(String, u32)> {
        let second = Duration::from_secs(1);
        let terms = Knocking { settle: second, per_second: 50.0, calls: 100, within: second * 60 };
        let mut rng = SmallRng::seed_from_u64(seed);
        let methods = ["eth_call", "eth_getLogs", "eth_chainId"];
        let mut plan = FixedPlan::cost(&methods, terms, second, &mut rng);
        assert_eq!(plan.calls_max(), 6 * 112);
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            cells.push((cell.factors["method"].clone(), cell.repeat));
        }
        cells
    }

    #[test]
    fn each_method_twice_one_round_after_the_other() {
        let mut cells = play(1);
        assert_eq!(cells, play(1));
        assert!((2..9).any(|seed| play(seed) != cells));
        assert!(cells[..3].iter().all(|(_, repeat)| *repeat == 0));
        cells.sort_unstable();
        let methods: Vec<&str> = cells.iter().map(|(method, _)| method.as_str()).collect();
        let [call, chain, logs] = ["eth_call", "eth_chainId", "eth_getLogs"];
        assert_eq!(methods, [call, call, chain, chain, logs, logs]);
    }
}
