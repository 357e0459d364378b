//! `replay`: recorded calls, at the times at which they were made or faster.
//!
//! One cell. It asks how a target would have served that traffic; it looks for no limit.

use std::sync::Arc;
use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::call_list::CallList;
use crate::measure::schedule::Schedule;
use crate::measure::way::WARMING_MAX;
use crate::work::WorkKind;

/// See the module.
#[derive(Debug, Clone)]
pub struct ReplayPlan {
    list: &'static CallList,
    times: Arc<[Duration]>,
    speed: f64,
    connections: usize,
    over: bool,
}

impl ReplayPlan {
    /// Plays `list` at `speed` times its pace over `connections` connections; `None` unless each
    /// of its calls has a time.
    pub fn new(list: &'static CallList, speed: f64, connections: usize) -> Option<Self> {
        let times = list.times(speed)?.into();
        Some(Self { list, times, speed, connections, over: false })
    }
}

impl ExperimentPlan for ReplayPlan {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn calls_max(&self) -> u64 {
        (self.times.len() + WARMING_MAX * self.connections.max(1)) as u64
    }

    fn work(&self) -> WorkKind {
        WorkKind::Replayed(self.list)
    }

    fn lasts(&self) -> Duration {
        self.times.last().copied().unwrap_or_default()
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        (!std::mem::replace(&mut self.over, true)).then(|| Ordered {
            factors: factors([("speed", self.speed.to_string())]),
            ..Ordered::timed(self.work(), Schedule::At(Arc::clone(&self.times)))
                .over(self.connections)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn calls_are_played_in_their_order_and_at_their_times() {
        let text = "{\"method\":\"eth_chainId\",\"timestamp\":3}\n{\"method\":\"eth_call\",\"timestamp\":1}";
        let list = Box::leak(Box::new(CallList::parse(text, &[]).expect("a list")));
        let mut plan = ReplayPlan::new(list, 4.0, 2).expect("times");
        assert_eq!((plan.calls_max(), plan.lasts()), (2 + 6, Duration::from_millis(500)));
        let cell = plan.next(None).expect("one cell");
        assert_eq!(cell.schedule.due(0), Some(Duration::ZERO));
        assert_eq!(cell.schedule.due(1), Some(Duration::from_millis(500)));
        let mut rng = SmallRng::seed_from_u64(1);
        let methods = [0, 1].map(|n| cell.work.next(n, 0, &mut rng).method);
        assert_eq!(methods, ["eth_call", "eth_chainId"]);
        assert_eq!(plan.next(None), None);
    }
}
