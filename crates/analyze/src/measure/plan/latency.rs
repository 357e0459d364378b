//! `latency`: how long a call takes when nothing else is asked. One cell, one call at a time.

use super::{FixedPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

impl FixedPlan {
    /// `latency`: this many calls.
    pub fn latency(calls: u64) -> Self {
        let schedule = Schedule::Closed { at_once: 1, calls, within: None };
        let cell = Ordered {
            factors: factors([("concurrency", "1".to_owned())]),
            ..Ordered::timed(WorkKind::Cheap, schedule)
        };
        Self { version: 2, ..Self::one("latency", cell) }
    }
}
