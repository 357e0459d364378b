//! What `latest` may not fall below where it goes upstream as the client wrote it.
//!
//! While the view is not fresh (no upstream was heard of lately, or heads are not followed), no
//! number is written in the place of `latest`, so that an upstream says what is the newest block
//! there. That upstream may have fallen behind since it was last seen. So what is agreed, or was
//! shown to this client, is the **floor** of the call: upstreams that were seen below it are asked
//! last, and a block below it is no answer yet. The block at the floor is asked for by its number,
//! at the other upstreams first, and at the upstream that fell behind where no other is fit: behind
//! one address there may be several nodes.
//!
//! Where that finds nothing the first answer stands: the chain may have been reset, or a reorg may
//! have left it shorter. It takes no more attempts than `attempts.max` leaves, and at most [`WAIT`].
//!
//! Such a block is held whole, within `limits.answer_bytes`, and its first [`crate::blocks::LOOK_INTO_MAX`] bytes
//! are looked into.
//!
//! Not promised for an answer that does not name its block, such as a balance at `latest`.

use std::time::Duration;

use wellhead_chain::Observation;
use wellhead_dispatch::{Bounds, Job, now};
use wellhead_eth::{BlockNumber, BlockRef, BlockTag, MethodRow};
use wellhead_route::PlanRequest;
use wellhead_upstream::UpstreamSet;

use crate::blocks::beginning;
use crate::request::context::RequestContext;
use crate::request::pin::BlockAsk;
use crate::request::result::CallResult;
use crate::steps::ask_upstreams::{AttemptTerms, ask_upstreams};
use crate::steps::planning::try_plan;

/// The method whose answer names the newest block.
const BLOCK: &str = "eth_getBlockByNumber";

/// The first answer waits this long for a better one.
const WAIT: Duration = Duration::from_secs(5);

/// Whether the call asks an upstream which block is the newest, and is answered with that block.
/// Nothing to look at where tags are not pinned.
pub(crate) fn is_open(request: &RequestContext<'_>, row: &MethodRow, block: &BlockRef) -> bool {
    request.chain.pins && *block == BlockRef::Tag(BlockTag::Latest) && row.name == BLOCK
}

/// The floor that this answer is below, if it is the newest block of an upstream.
pub(crate) fn missed(
    request: &RequestContext<'_>,
    row: &MethodRow,
    block: &BlockRef,
    result: &[u8],
) -> Option<BlockNumber> {
    if !is_open(request, row, block) {
        return None;
    }
    let told = Observation::of_block(beginning(result))?.number;
    request.look(|view| request.floor(view)).filter(|floor| told < *floor)
}

/// What the call came to, or the block at the floor where that is below it.
/// Costs a comparison for all other calls. Cancel-safe.
pub(crate) async fn kept_to(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    BlockAsk { ask, block }: BlockAsk<'_>,
    call_result: CallResult,
) -> CallResult {
    let CallResult::Result { result, rest: None, slot, .. } = &call_result else {
        return call_result;
    };
    let itself: UpstreamSet = slot.iter().copied().collect();
    match missed(request, job.row, block, result) {
        // Boxed: it is rare, and few calls should carry the state of another one.
        Some(floor) => Box::pin(ask_at(request, job, ask, floor, itself, call_result)).await,
        None => call_result,
    }
}

async fn ask_at(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    ask: &PlanRequest<'_>,
    floor: BlockNumber,
    itself: UpstreamSet,
    mut call_result: CallResult,
) -> CallResult {
    let (chain, began) = (request.chain, now());
    let attempts_max = chain.bounds.attempts_max.saturating_sub(call_result.trail().exchanges());
    let pinned = job.row.pin(job.params, |tag| (tag == BlockTag::Latest).then_some(floor));
    let Some(pinned) = pinned.filter(|_| attempts_max > 0 && began < job.deadline) else {
        return call_result;
    };
    let plan_among = |eligible| {
        let ask = PlanRequest { eligible, needed: Some(floor), ..*ask };
        let planned =
            try_plan(chain, request.worker, BlockAsk { ask: &ask, block: &pinned.block }, began);
        (ask, planned)
    };
    let (mut ask_there, mut planned) = plan_among(ask.eligible.without(itself));
    // A quorum needs as many upstreams as must agree.
    if planned.plan.fit() < planned.ballot.map_or(1, |ballot| ballot.quorum.agree) {
        (ask_there, planned) = plan_among(ask.eligible);
    }
    if planned.plan.candidates().is_empty() {
        return call_result;
    }
    let deadline = job.deadline.min(began + WAIT);
    let job = Job { params: Some(&pinned.params), deadline, at_hash: None, flows_to: None, ..*job };
    let bounds = Bounds { attempts_max, ..chain.bounds };
    let terms =
        AttemptTerms { bounds: &bounds, before: std::mem::take(call_result.trail_mut()), began };
    let subject = BlockAsk { ask: &ask_there, block: &pinned.block };
    let mut found = ask_upstreams(request, &job, subject, Some(planned), terms).await;
    if let CallResult::Result { result, .. } = &found
        && Observation::of_block(beginning(result)).is_some_and(|seen| seen.number == floor)
    {
        return found;
    }
    *call_result.trail_mut() = std::mem::take(found.trail_mut());
    call_result
}
