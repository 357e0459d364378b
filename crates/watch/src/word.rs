//! An upstream's own word on its newest block, from a poll or a feed.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_chain::{Heads, News, Observation, Source};
use wellhead_upstream::Upstream;

use crate::ask::now;

/// A fall of one upstream is told so often at most: a broken feed can fall back
/// thousands of times a second.
const FALL_TOLD_EVERY: Duration = Duration::from_secs(60);

/// When a fall of one upstream was last told.
#[derive(Debug, Default)]
pub(crate) struct Falls(Mutex<Option<Instant>>);

impl Falls {
    /// Whether a fall at `now` is to be told.
    fn tell(&self, now: Instant) -> bool {
        let mut told = self.0.lock();
        let due = told.is_none_or(|at| now.saturating_duration_since(at) >= FALL_TOLD_EVERY);
        if due {
            *told = Some(now);
        }
        due
    }
}

/// Takes in what `upstream` says of its head.
///
/// One that falls back by more than the lag bound did not see a reorg: its chain was
/// reset, or what it showed before was never there. Then the best head must not
/// stand on that, or every upstream would lag behind it for ever.
pub(crate) fn take(heads: &Heads, upstream: &Upstream, falls: &Falls, seen: Observation) {
    let slot = upstream.slot();
    let view = heads.view();
    if let Some(head) = view.head(slot) {
        let fell = head.number.0.saturating_sub(seen.number.0);
        if fell > view.lag_bound() {
            if falls.tell(now()) {
                tracing::warn!(
                    upstream = %upstream.identity().id, from = head.number.0, to = seen.number.0,
                    "upstream fell back by {fell} blocks; forgetting what it showed before"
                );
            }
            heads.forget(slot);
        }
    }
    if heads.observe(slot, seen, Source::Word, now()) == News::BestHead {
        tracing::trace!(upstream = %upstream.identity().id, block = seen.number.0, "new best head");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_are_told_once_a_minute() {
        let (falls, begun) = (Falls::default(), now());
        let told: Vec<u64> =
            (0..=120).filter(|second| falls.tell(begun + Duration::from_secs(*second))).collect();
        assert_eq!(told, [0, 60, 120]);
    }
}
