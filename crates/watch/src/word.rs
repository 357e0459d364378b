//! An upstream's own word on its newest block, from a poll or a feed.

use wellhead_chain::{Heads, News, Observation, Source};

use crate::ask::{Asker, now};
use crate::doubt::is_doubtful;

/// Records the head that an upstream reports, and wakes the loops of upstreams that have not
/// reported it yet: the more upstreams hold a block, the sooner it is the newest.
///
/// One that falls back by more than the lag bound did not see a reorg: its chain was
/// reset, or what it showed before was never there.
pub(crate) fn take(heads: &Heads, asker: &Asker, seen: Observation, source: Source) {
    let (slot, id) = (asker.upstream.slot(), &asker.upstream.identity().id);
    let view = heads.view();
    if let Some(head) = view.head(slot) {
        let fell = head.number.0.saturating_sub(seen.number.0);
        if fell > view.lag_bound() && asker.falls.tell(now()) {
            tracing::warn!(
                upstream = %id, from = head.number.0, to = seen.number.0,
                "upstream went back by {fell} blocks; its lower head is accepted"
            );
        }
    }
    if is_doubtful(&view, slot, &seen, now()) {
        asker.doubt.raise(now());
    }
    if heads.observe(slot, seen, source, now()) == News::BestHead {
        tracing::trace!(upstream = %id, block = seen.number.0, "new best head");
        asker.pulse.tell_head();
    }
    let seen = heads.view();
    for reorg in seen.reorgs().since(view.reorgs().last()).into_iter().flatten() {
        tracing::info!(
            upstream = %id, depth = reorg.depth, from = reorg.from.0, to = reorg.to.0,
            orphaned = reorg.orphaned.len(), "the chain was reorganised"
        );
    }
}
