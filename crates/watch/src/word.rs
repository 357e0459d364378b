//! An upstream's own word on its newest block, from a poll or a feed.

use wellhead_chain::{Heads, News, Observation, Source};
use wellhead_upstream::Upstream;

use crate::ask::now;

/// Takes in what `upstream` says of its head.
///
/// One that falls back by more than the lag bound did not see a reorg: its chain was
/// reset, or what it showed before was never there. Then the best head must not
/// stand on that, or every upstream would lag behind it for ever.
pub(crate) fn take(heads: &Heads, upstream: &Upstream, seen: Observation) {
    let slot = upstream.slot();
    let view = heads.view();
    if let Some(head) = view.head(slot) {
        let fell = head.number.0.saturating_sub(seen.number.0);
        if fell > view.lag_bound() {
            tracing::warn!(
                upstream = %upstream.identity().id, from = head.number.0, to = seen.number.0,
                "upstream fell back by {fell} blocks; forgetting what it showed before"
            );
            heads.forget(slot);
        }
    }
    if heads.observe(slot, seen, Source::Word, now()) == News::BestHead {
        tracing::trace!(upstream = %upstream.identity().id, block = seen.number.0, "new best head");
    }
}
