//! Upstreams that asked to be left alone.
//!
//! They are not asked before their pause is over, whatever else fails. When nobody else
//! answered, the call waits for the one whose pause ends first, if that is in time, and
//! only among a bounded number; otherwise the client hears at once how long to wait.

use std::time::{Duration, Instant};

use rand::Rng;
use wellhead_upstream::{Slot, VerdictClass};

use crate::now;
use crate::run::{Ground, Next, Run};

/// A call waits for the end of a pause at most so often.
const WAITS_MAX: usize = 2;
/// Who waited for the same end goes on within this, and not all at once.
const SPREAD_MAX: Duration = Duration::from_millis(250);

impl Run<'_> {
    /// Whether `slot` may not be asked yet; remembers for how long.
    pub(crate) fn must_wait(&mut self, ground: Ground<'_>, slot: Slot, now: Instant) -> bool {
        let Some(pause) = ground.roster.upstream(slot).throttled_for(now) else { return false };
        let least = self.retry_after.map_or(pause, |least| least.min(pause));
        self.retry_after = Some(least);
        self.is_throttled = true;
        true
    }

    /// Waits for those who asked for a pause, and asks them.
    pub(crate) async fn wait_for_the_throttled(&mut self, ground: Ground<'_>) -> Next {
        for _ in 0..WAITS_MAX {
            if self.has_something_to_say() || self.asked() >= ground.bounds.attempts_max.max(1) {
                return Next::Stop;
            }
            let Some((slot, pause)) = soonest(ground, now()) else { return Next::Another };
            let spread = ground.lane.with_rng(|rng| rng.random_range(Duration::ZERO..SPREAD_MAX));
            let until = now() + pause + spread;
            if until >= self.job.deadline {
                return Next::Stop;
            }
            if self.asked() > 0 && !ground.lane.budgets().spend_retry(now()) {
                return Next::Stop;
            }
            let Some(_place) = ground.lane.waiting().enter() else { return Next::Stop };
            tokio::time::sleep_until(until.into()).await;
            let now = now();
            if self.must_wait(ground, slot, now) {
                continue;
            }
            match self.ask(ground, slot, now).await {
                Next::Another => {}
                end => return end,
            }
        }
        Next::Another
    }

    /// The failure of a call that nobody was asked for, because all wanted to be left alone.
    pub(crate) fn throttled(&self) -> Option<VerdictClass> {
        self.is_throttled.then_some(VerdictClass::Throttled)
    }
}

/// The candidate whose pause ends first.
fn soonest(ground: Ground<'_>, now: Instant) -> Option<(Slot, Duration)> {
    let pause = |slot: &Slot| Some((*slot, ground.roster.upstream(*slot).throttled_for(now)?));
    ground.plan.candidates().iter().filter_map(pause).min_by_key(|(_, pause)| *pause)
}
