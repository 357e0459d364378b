//! Which block a call is answered at, by one view: tags become the numbers that the view
//! agrees on, so that whoever is asked answers the same question, and nobody is asked who
//! does not hold the block.
//!
//! Not promised: that the number names one block. Two branches may have one each while a
//! reorg goes on; the view keeps upstreams on the other branch from being asked as soon as
//! that is known.

use wellhead_chain::{Head, View};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, BlockTag, MethodRow};
use wellhead_upstream::UpstreamSet;

use crate::journey::Trip;

/// What a call asks for, seen from one view.
#[derive(Debug)]
pub(crate) struct Pin {
    /// The new parameters; `None` when they stay as the client wrote them.
    pub(crate) params: Option<Vec<u8>>,
    /// The block that they speak of.
    pub(crate) block: BlockRef,
}

impl Pin {
    /// Pins `params` where the settings let it and the view is fresh.
    pub(crate) fn new(
        trip: &Trip<'_>,
        row: &MethodRow,
        params: Option<&[u8]>,
        eligible: UpstreamSet,
        view: &View,
    ) -> Self {
        let now = trip.ctx.received_at;
        let number_of = |tag| match tag {
            BlockTag::Latest => trip.latest(row, eligible, view),
            BlockTag::Safe | BlockTag::Finalized => {
                trip.chain.pulse.want_finality(now);
                view.number_of(tag, now)
            }
            BlockTag::Earliest | BlockTag::Pending => None,
        };
        let pinned = trip.chain.pins.then(|| row.pin(params, number_of)).flatten();
        match pinned {
            Some(pinned) => Self { params: Some(pinned.params), block: pinned.block },
            None => Self { params: None, block: row.block_ref(params) },
        }
    }

    /// The parameters that go upstream.
    pub(crate) fn params<'a>(&'a self, as_written: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.params.as_deref().or(as_written)
    }

    /// The newest block that was written in the place of a tag.
    pub(crate) fn number(&self) -> Option<BlockNumber> {
        self.params.as_ref().and_then(|_| needed(&self.block))
    }
}

/// The highest block that is agreed, or that one who is not astray holds.
pub(crate) fn highest(view: &View) -> Option<BlockNumber> {
    let number = |head: Option<Head>| head.map(|head| head.number);
    number(view.best).max(number(view.latest))
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
