//! The block at which a call is answered, its requirements on upstreams, and its plan.

use std::time::Instant;

use wellhead_chain::View;
use wellhead_dispatch::{Ballot, WorkerUpstreams};
use wellhead_eth::{
    BlockNumber, BlockPoint, BlockRef, BlockTag, CostClass, FilterShape, Finality, MethodRow,
};
use wellhead_jsonrpc::Call;
use wellhead_route::{Plan, PlanRequest, plan};
use wellhead_upstream::UpstreamSet;

use crate::blocks::{is_ahead, is_there, named, needed};
use crate::request::context::RequestContext;
use crate::request::pin::{BlockAsk, MethodCall, PinnedCall, PinnedParams};
use crate::state::chain::ServedChain;
use crate::steps::height::BLOCK_NUMBER;
use crate::steps::startup;

/// Pins a call on this view, and says what it asks of upstreams.
pub(crate) fn pinned<'a>(
    request: &RequestContext<'_>,
    call: MethodCall<'a>,
    eligible: UpstreamSet,
    view: &View,
) -> PinnedCall<'a> {
    let pin = PinnedParams::new(request, call, eligible, view);
    let ask = ask(request, call, eligible, &pin.block, view);
    PinnedCall { ask, pin }
}

/// Pins a read that may go together with others of its batch; `None` for one that is answered
/// alone.
pub(crate) fn pinned_in_batch<'a>(
    request: &RequestContext<'_>,
    call: &'a Call,
    row: &'static MethodRow,
    view: &View,
) -> Option<PinnedCall<'a>> {
    // Answered here, if the view is fresh; or several are asked.
    if row.name == BLOCK_NUMBER || request.chain.quorums.of(row).is_some() {
        return None;
    }
    let eligible = request.eligible(row, call.method()).ok()?;
    Some(pinned(request, MethodCall { row, params: call.params() }, eligible, view))
}

/// What a call about `block` requires of the plan. A call without a height, for a receipt or a
/// pending nonce, goes to upstreams that hold the newest block of this client.
fn ask<'a>(
    request: &RequestContext<'_>,
    MethodCall { row, params }: MethodCall<'a>,
    eligible: UpstreamSet,
    block: &BlockRef,
    view: &View,
) -> PlanRequest<'a> {
    let number = |point| match point {
        BlockPoint::Number(number) => Some(number),
        BlockPoint::Tag(_) => None,
    };
    let blocks =
        |(from, to): (BlockNumber, BlockNumber)| to.0.saturating_sub(from.0).saturating_add(1);
    let span = block.heights().map_or(0, blocks);
    let oldest = block.oldest().and_then(number);
    let is_open = row.finality == Finality::Inclusion || *block == BlockRef::Tag(BlockTag::Pending);
    let newest =
        || (request.chain.pins && is_open).then(|| request.latest(row, eligible, view)).flatten();
    let needed = needed(block).or_else(|| named(row, block, view)).or_else(newest);
    let is_latest = *block == BlockRef::Tag(BlockTag::Latest);
    let needed = needed.or_else(|| is_latest.then(|| request.floor(view)).flatten());
    let filter = match row.class {
        CostClass::Logs | CostClass::Trace => row.filter_shape(params),
        CostClass::Light
        | CostClass::State
        | CostClass::Block
        | CostClass::Call
        | CostClass::Write => FilterShape::default(),
    };
    PlanRequest { row, eligible, needed, oldest, span, filter, caller: request.home(row) }
}

/// A plan, and what the view that it was made on says of the block that is asked for.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// See [`is_ahead`].
    pub(crate) null_is_final: bool,
    /// See [`is_there`].
    pub(crate) is_there: bool,
    /// How many must answer alike.
    pub(crate) ballot: Option<Ballot>,
}

impl Planned {
    /// Whether it has candidates, or shows that no upstream offers the method.
    pub(crate) fn is_decided(&self) -> bool {
        !self.plan.candidates().is_empty() || self.plan.is_unoffered()
    }
}

/// Plans on one view.
pub(crate) fn try_plan(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    subject: BlockAsk<'_>,
    now: Instant,
) -> Planned {
    chain.heads.look(|view| plan_on(view, chain, worker, subject, now))
}

/// Plans on this view.
pub(crate) fn plan_on(
    view: &View,
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    BlockAsk { ask, block }: BlockAsk<'_>,
    now: Instant,
) -> Planned {
    let plan = worker.with_rng(|rng| plan(ask, view, &chain.roster, now, rng));
    Planned {
        plan,
        null_is_final: is_ahead(block, view),
        is_there: is_there(block, view),
        ballot: chain.quorums.ballot(ask.row, block, view),
    }
}

/// Plans on the newest view. When no upstream may be asked because none was verified yet, waits for
/// that: a call that comes with the start should not fail.
pub(crate) async fn make_plan(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    subject: BlockAsk<'_>,
    deadline: Instant,
    mut now: Instant,
) -> Planned {
    let began = now;
    loop {
        // Made before the look, so that a verification in between is not missed.
        let verified = chain.pulse.verified();
        let planned = try_plan(chain, worker, subject, now);
        if planned.is_decided() || !startup::is_any_unverified(chain, subject.ask.eligible) {
            return planned;
        }
        if !startup::wait(chain, subject.ask.eligible, began, deadline, verified).await {
            return planned;
        }
        now = wellhead_dispatch::now();
    }
}
