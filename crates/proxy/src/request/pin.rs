//! The block at which a call is answered, by one view: tags become the numbers that the view
//! agrees on, so that every upstream answers the same question, and only upstreams that hold the
//! block are called.
//!
//! Not promised: that the number names one block. During a reorg each of two branches may have one;
//! the view excludes upstreams on the other branch as soon as
//! that is known. With a cache, reads of state are therefore sent with the
//! hash of the block, if it is known and allowed: see [`crate::steps::by_hash`].

use wellhead_cache::Canon as _;
use wellhead_chain::View;
use wellhead_dispatch::{AtHash, Job};
use wellhead_eth::{BlockHash, BlockNumber, BlockRef, BlockTag, MethodRow};
use wellhead_route::PlanRequest;
use wellhead_upstream::{Slot, UpstreamSet};

use crate::blocks::needed;
use crate::request::context::RequestContext;
use crate::state::cache::{ByHashMode, ViewCanon};

/// A call, as far as its method decides what becomes of it: the method, and the parameters that go with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MethodCall<'a> {
    pub(crate) row: &'a MethodRow,
    pub(crate) params: Option<&'a [u8]>,
}

impl<'a> MethodCall<'a> {
    pub(crate) fn of(job: &Job<'a>) -> Self {
        Self { row: job.row, params: job.params }
    }
}

/// A call on the one view that it sees: the block that it is answered at, and what it asks of upstreams.
#[derive(Debug)]
pub(crate) struct PinnedCall<'a> {
    pub(crate) ask: PlanRequest<'a>,
    pub(crate) pin: PinnedParams,
}

impl PinnedCall<'_> {
    /// What it asks of upstreams, and of which block.
    pub(crate) fn at_block(&self) -> BlockAsk<'_> {
        BlockAsk { ask: &self.ask, block: &self.pin.block }
    }
}

/// What is asked of upstreams, and the block that it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockAsk<'a> {
    pub(crate) ask: &'a PlanRequest<'a>,
    pub(crate) block: &'a BlockRef,
}

/// What a call asks for, seen from one view.
#[derive(Debug)]
pub(crate) struct PinnedParams {
    /// The new parameters; `None` when they stay as the client wrote them.
    pub(crate) params: Option<Vec<u8>>,
    /// The block that they speak of.
    pub(crate) block: BlockRef,
    /// The call with the block's hash in the place of its number, where it is asked so.
    by_hash: Option<ByBlockHash>,
}

/// What goes to those that honour the hash of a block.
#[derive(Debug)]
struct ByBlockHash {
    params: Vec<u8>,
    hash: BlockHash,
    honoured_by: UpstreamSet,
}

impl PinnedParams {
    /// Pins `params` where the settings let it and the view is fresh.
    pub(crate) fn new(
        request: &RequestContext<'_>,
        call: MethodCall<'_>,
        eligible: UpstreamSet,
        view: &View,
    ) -> Self {
        let MethodCall { row, params } = call;
        let now = request.ctx.received_at;
        let number_of = |tag| match tag {
            BlockTag::Latest => request.latest(row, eligible, view),
            BlockTag::Safe | BlockTag::Finalized => {
                request.chain.pulse.note_tag(now);
                view.number_of(tag, now)
            }
            BlockTag::Earliest | BlockTag::Pending => None,
        };
        let pinned = request.chain.pins.then(|| row.pin(params, number_of)).flatten();
        let pin = match pinned {
            Some(pinned) => {
                Self { params: Some(pinned.params), block: pinned.block, by_hash: None }
            }
            None => Self { params: None, block: row.block_ref(params), by_hash: None },
        };
        let by_hash = pin.at_hash(request, call, eligible, view);
        Self { by_hash, ..pin }
    }

    /// The call with the hash of the block, where that is known, not final yet, and may be asked
    /// for.
    fn at_hash(
        &self,
        request: &RequestContext<'_>,
        MethodCall { row, params: as_written }: MethodCall<'_>,
        eligible: UpstreamSet,
        view: &View,
    ) -> Option<ByBlockHash> {
        let (chain, now) = (request.chain, request.ctx.received_at);
        let BlockRef::Number(number) = self.block else { return None };
        let mode = chain.cache()?.by_hash();
        // The height alone names a final one.
        let is_final = || ViewCanon::at(view, now).finalized().is_some_and(|mark| number <= mark);
        if mode == ByHashMode::Off || !chain.by_hash.may(row, now) || is_final() {
            return None;
        }
        let honoured_by = match mode {
            ByHashMode::On => eligible,
            ByHashMode::Auto | ByHashMode::Off => {
                chain.pulse.want_block_hashes(now);
                chain.pulse.honouring_hashes().and(eligible)
            }
        };
        if honoured_by.is_empty() {
            return None;
        }
        let hash = request.canon(view, now).hash_at(number)?;
        let params = row.at_hash(self.by_height(as_written)?, &hash)?;
        Some(ByBlockHash { params, hash, honoured_by })
    }

    /// The parameters that go to the upstream in `slot`.
    pub(crate) fn params<'a>(
        &'a self,
        slot: Slot,
        as_written: Option<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        match self.at_block_hash() {
            Some(at_hash) if at_hash.honoured_by.contains(slot) => Some(at_hash.params),
            Some(_) | None => self.by_height(as_written),
        }
    }

    /// The parameters with the hash of the block, and the upstreams to which they are sent.
    pub(crate) fn at_block_hash(&self) -> Option<AtHash<'_>> {
        let ByBlockHash { params, honoured_by, .. } = self.by_hash.as_ref()?;
        Some(AtHash { params, honoured_by: *honoured_by })
    }

    /// Whether the upstream in `slot` is sent the hash of the block.
    pub(crate) fn is_by_hash_at(&self, slot: Slot) -> bool {
        self.by_hash.as_ref().is_some_and(|it| it.honoured_by.contains(slot))
    }

    /// The parameters with the height of the block, as far as one is known.
    pub(crate) fn by_height<'a>(&'a self, as_written: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.params.as_deref().or(as_written)
    }

    /// Whether the hash of the block goes to some upstream where the client named none.
    pub(crate) fn is_by_hash(&self) -> bool {
        self.by_hash.is_some()
    }

    /// The block, as upstreams are told it.
    pub(crate) fn sent(&self) -> BlockRef {
        self.by_hash.as_ref().map_or(self.block, |it| BlockRef::Hash(it.hash))
    }

    /// The newest block that was written in the place of a tag.
    pub(crate) fn number(&self) -> Option<BlockNumber> {
        self.params.as_ref().and_then(|_| needed(&self.block))
    }
}
