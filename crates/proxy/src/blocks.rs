//! What a view says of the block that a call speaks of, and how far answers are looked into for
//! the block that they name.

use std::time::Instant;

use wellhead_chain::{Canonical, UpstreamHead, View};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, CostClass, MethodRow};
use wellhead_route::{Fitness, PlanRequest, Roster, assess};

/// Larger answers are not looked into: a block with all its transactions would
/// cost more to read than the poll that it saves.
pub(crate) const LOOK_INTO_MAX: usize = 64 * 1024;

/// The highest block that is agreed, or that an upstream which is not astray holds.
pub(crate) fn highest(view: &View) -> Option<BlockNumber> {
    let number = |head: Option<UpstreamHead>| head.map(|head| head.number);
    number(view.best).max(number(view.latest))
}

/// The highest block of the upstreams that are fit for `ask`; `None` where none is, or none has told of one.
pub(crate) fn highest_fit(
    ask: &PlanRequest<'_>,
    view: &View,
    roster: &Roster,
    now: Instant,
) -> Option<BlockNumber> {
    let heads = roster.upstreams().iter().filter_map(|upstream| {
        let fitness = assess(ask, upstream, view, now);
        let is_fit = matches!(fitness, Fitness::Fit | Fitness::Held { .. });
        view.head(upstream.slot()).filter(|_| is_fit).map(|head| head.number)
    });
    heads.max()
}

/// The block that an upstream must hold to answer truthfully, when the call says it by
/// number. Of a range both ends count: an upstream whose head is below `fromBlock` calls
/// "from there to `latest`" an invalid range.
pub(crate) fn needed(block: &BlockRef) -> Option<BlockNumber> {
    let number = |point: &BlockPoint| match point {
        BlockPoint::Number(number) => Some(*number),
        BlockPoint::Tag(_) => None,
    };
    match block {
        BlockRef::Number(number) => Some(*number),
        BlockRef::Range { from, to } => number(from).max(number(to)),
        BlockRef::None | BlockRef::Tag(_) | BlockRef::Hash(_) | BlockRef::Unreadable => None,
    }
}

/// The height of the block that a log search names by its hash, if it is known: an upstream below
/// it would find nothing.
pub(crate) fn named(row: &MethodRow, block: &BlockRef, view: &View) -> Option<BlockNumber> {
    match block {
        BlockRef::Hash(hash) if row.class == CostClass::Logs => view.height_of(hash),
        BlockRef::Hash(_)
        | BlockRef::None
        | BlockRef::Tag(_)
        | BlockRef::Number(_)
        | BlockRef::Range { .. }
        | BlockRef::Unreadable => None,
    }
}

/// Whether the call asks for a block above every known head. No upstream can have it, so one
/// `null` is believed. A block between the agreed head and the highest one is asked for.
pub(crate) fn is_ahead(block: &BlockRef, view: &View) -> bool {
    match (block, highest(view)) {
        (BlockRef::Number(number), Some(highest)) => *number > highest,
        _ => false,
    }
}

/// Whether the call asks for a block that an upstream was seen to hold.
pub(crate) fn is_there(block: &BlockRef, view: &View) -> bool {
    match block {
        BlockRef::Number(number) => highest(view).is_some_and(|highest| *number <= highest),
        // One that was left may be gone.
        BlockRef::Hash(hash) => {
            let height = view.height_of(hash);
            height.is_some_and(|number| view.canonical(number, hash) == Canonical::Yes)
        }
        BlockRef::None | BlockRef::Tag(_) | BlockRef::Range { .. } | BlockRef::Unreadable => false,
    }
}

/// As much of a block as is looked into; nodes write its header first.
pub(crate) fn beginning(block: &[u8]) -> &[u8] {
    &block[..block.len().min(LOOK_INTO_MAX)]
}
