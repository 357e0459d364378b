//! `replay`: recorded calls, at the times at which they were made or faster.
//!
//! One cell. It asks how a target would have served that traffic; it looks for no limit.

use std::sync::Arc;
use std::time::Duration;

use super::{FixedPlan, Ordered, factors};
use crate::call_list::CallList;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

impl FixedPlan {
    /// `replay`: plays `list` at `speed` times its pace over `connections` connections; `None`
    /// unless each of its calls has a time.
    pub fn replay(list: &'static CallList, speed: f64, connections: usize) -> Option<Self> {
        let times: Arc<[Duration]> = list.times(speed)?.into();
        let lasting = times.last().copied().unwrap_or_default();
        let work = WorkKind::Replayed(list);
        let cell = Ordered {
            factors: factors([("speed", speed.to_string())]),
            ..Ordered::timed(work, Schedule::At(times)).over(connections)
        };
        Some(Self { lasting, ..Self::one("replay", cell) })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    #[test]
    fn calls_are_played_in_their_order_and_at_their_times() {
        let text = "{\"method\":\"eth_chainId\",\"timestamp\":3}\n{\"method\":\"eth_call\",\"timestamp\":1}";
        let list = Box::leak(Box::new(CallList::parse(text, &[]).expect("a list")));
        let mut plan = FixedPlan::replay(list, 4.0, 2).expect("times");
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
