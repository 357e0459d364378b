//! A call that was pinned: the block that it is answered at, and what it asks of upstreams.

use wellhead_eth::BlockRef;
use wellhead_route::PlanRequest;

use crate::request::pin::PinnedParams;

/// A call on the one view that it sees.
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
