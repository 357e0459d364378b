//! Which block a call is answered at, by one view: tags become the numbers that the view
//! agrees on, so that whoever is asked answers the same question, and nobody is asked who
//! does not hold the block.
//!
//! Not promised: that the number names one block. Two branches may have one each while a
//! reorg goes on; the view keeps upstreams on the other branch from being asked as soon as
//! that is known. Where answers are kept, those that read a state are therefore asked by the
//! hash of the block, if it is known and may be: see [`crate::by_hash`].

use wellhead_cache::Canon as _;
use wellhead_chain::{Head, View};
use wellhead_eth::{BlockHash, BlockNumber, BlockPoint, BlockRef, BlockTag, MethodRow};
use wellhead_upstream::UpstreamSet;

use crate::journey::Trip;
use crate::kept::Seen;

/// What a call asks for, seen from one view.
#[derive(Debug)]
pub(crate) struct Pin {
    /// The new parameters; `None` when they stay as the client wrote them.
    pub(crate) params: Option<Vec<u8>>,
    /// The block that they speak of.
    pub(crate) block: BlockRef,
    /// The parameters with the block's hash in the place of its number, where it is asked so.
    by_hash: Option<(Vec<u8>, BlockHash)>,
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
        let pin = match pinned {
            Some(pinned) => {
                Self { params: Some(pinned.params), block: pinned.block, by_hash: None }
            }
            None => Self { params: None, block: row.block_ref(params), by_hash: None },
        };
        let by_hash = pin.at_hash(trip, row, params, view);
        Self { by_hash, ..pin }
    }

    /// The parameters with the hash of the block, where that is known, not final yet, and may
    /// be asked for.
    fn at_hash(
        &self,
        trip: &Trip<'_>,
        row: &MethodRow,
        as_written: Option<&[u8]>,
        view: &View,
    ) -> Option<(Vec<u8>, BlockHash)> {
        let (chain, now) = (trip.chain, trip.ctx.received_at);
        let BlockRef::Number(number) = self.block else { return None };
        let is_wanted = chain.shares.as_ref().is_some_and(|it| it.cache.asks_by_hash());
        // The height alone names a final one.
        let is_final = || Seen::at(view, now).finalized().is_some_and(|mark| number <= mark);
        if !is_wanted || is_final() || !chain.by_hash.may(row, now) {
            return None;
        }
        let hash = Seen::by(trip, view, now).hash_at(number)?;
        Some((row.at_hash(self.by_height(as_written)?, &hash)?, hash))
    }

    /// The parameters that go upstream.
    pub(crate) fn params<'a>(&'a self, as_written: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let by_hash = self.by_hash.as_ref().map(|(params, _)| params.as_slice());
        by_hash.or_else(|| self.by_height(as_written))
    }

    /// The same with the height of the block, as far as one is known.
    pub(crate) fn by_height<'a>(&'a self, as_written: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.params.as_deref().or(as_written)
    }

    /// Whether the hash of the block goes upstream where the client named none.
    pub(crate) fn is_by_hash(&self) -> bool {
        self.by_hash.is_some()
    }

    /// The block, as upstreams are told it.
    pub(crate) fn sent(&self) -> BlockRef {
        self.by_hash.as_ref().map_or(self.block, |(_, hash)| BlockRef::Hash(*hash))
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
