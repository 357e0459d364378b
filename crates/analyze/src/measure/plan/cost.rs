//! `cost`: what a method counts against the rate, compared with the others.
//!
//! Each method alone is sent more often than the limit allows (`knock`), twice, in an order drawn
//! from the seed. How often it passes is what it costs: the limit is the same for all.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;

use super::window::CONNECTIONS;
use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::knock::Knocking;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// How often each method is played.
const REPEATS: u32 = 2;

/// See the module.
#[derive(Debug, Clone)]
pub struct CostPlan {
    /// Methods and repeats, the next one last.
    cells: Vec<(&'static str, u32)>,
    terms: Knocking,
    rest: Duration,
}

impl CostPlan {
    /// Floods each of `methods`, of [`crate::work::METHODS`], on these `terms`, with `rest` between
    /// cells, in an order drawn from `rng`.
    pub fn new(
        methods: &[&'static str],
        terms: Knocking,
        rest: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        let mut cells = Vec::new();
        for repeat in (0..REPEATS).rev() {
            let mut round: Vec<_> = methods.iter().map(|method| (*method, repeat)).collect();
            round.shuffle(rng);
            cells.extend(round);
        }
        Self { cells, terms, rest }
    }
}

impl ExperimentPlan for CostPlan {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn calls_max(&self) -> u64 {
        self.cells.len() as u64 * (self.terms.calls + 3 * CONNECTIONS as u64)
    }

    fn work(&self) -> WorkKind {
        self.cells.last().map_or(WorkKind::Cheap, |(method, _)| WorkKind::Only(method))
    }

    fn methods(&self) -> Vec<(&'static str, f64)> {
        let share = 1.0 / self.cells.len().max(1) as f64;
        self.cells.iter().map(|(method, _)| (*method, share)).collect()
    }

    fn lasts(&self) -> Duration {
        self.rest * u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let (method, repeat) = self.cells.pop()?;
        Some(Ordered {
            factors: factors([("method", method.to_owned())]),
            repeat,
            rest: self.rest,
            ..Ordered::timed(WorkKind::Only(method), Schedule::Knock(self.terms)).over(CONNECTIONS)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn play(seed: u64) -> Vec<(String, u32)> {
        let second = Duration::from_secs(1);
        let terms = Knocking { settle: second, per_second: 50.0, calls: 100, within: second * 60 };
        let mut rng = SmallRng::seed_from_u64(seed);
        let methods = ["eth_call", "eth_getLogs", "eth_chainId"];
        let mut plan = CostPlan::new(&methods, terms, second, &mut rng);
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
