//! Calls whose `latest` was replaced by the number of a block that is gone.
//!
//! wellhead writes a number in the place of a tag. A reorg that leaves the chain shorter can take that block
//! away before the call reaches an upstream: then each upstream says that there is no such block, or answers `null`,
//! and the client knows nothing of that block. Once the view has changed accordingly, the call is sent as the client wrote it.

use std::time::{Duration, Instant};

use wellhead_chain::View;
use wellhead_dispatch::{Bounds, Job, now};
use wellhead_eth::BlockNumber;
use wellhead_jsonrpc::raw;
use wellhead_route::PlanRequest;
use wellhead_upstream::VerdictClass;

use crate::request::context::RequestContext;
use crate::request::pin::{BlockAsk, PinnedCall};
use crate::request::result::CallResult;
use crate::steps::ask_upstreams::{AttemptTerms, ask_upstreams};
use crate::steps::planning::try_plan;

/// The error of the upstreams waits this long for news of a reorg.
const WAIT: Duration = Duration::from_millis(500);

/// Methods that answer `null` for a block that is not there, and for no other reason.
const OF_BLOCKS: [&str; 2] = ["eth_getBlockByNumber", "eth_getBlockReceipts"];

/// Whether the block that this call was pinned to is missing at the upstreams.
pub(crate) fn is_lost(job: &Job<'_>, call: &PinnedCall<'_>, call_result: &CallResult) -> bool {
    let last = match call_result {
        CallResult::Result { result, rest, .. } => {
            let is_null = rest.is_none() && raw::is_null(result);
            return is_null && call.pin.number().is_some() && OF_BLOCKS.contains(&job.row.name);
        }
        CallResult::Error { trail, .. } | CallResult::Refused { trail, .. } => {
            trail.attempts.last()
        }
    };
    call.pin.number().is_some() && last.is_some_and(|it| it.class == VerdictClass::MissingData)
}

/// Whether a reorg that the view shows can have taken this block away since the call came.
fn is_gone(view: &View, number: BlockNumber, since: Instant) -> bool {
    view.latest.is_none_or(|head| head.number < number)
        || view.reorgs().newest().is_some_and(|reorg| reorg.seen_at >= since)
}

/// What the call comes to as the client wrote it, if a reorg took its block away; else what it came to.
/// Cancel-safe.
pub(crate) async fn ask_as_written(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    call: &PinnedCall<'_>,
    mut call_result: CallResult,
) -> CallResult {
    let (chain, Some(number)) = (request.chain, call.pin.number()) else { return call_result };
    let attempts_max = chain.bounds.attempts_max.saturating_sub(call_result.trail().exchanges());
    let wait_until = job.deadline.min(now() + WAIT);
    let mut changes = chain.head_changes();
    while !chain.heads.look(|view| is_gone(view, number, request.ctx.received_at)) {
        let changed = tokio::time::timeout_at(wait_until.into(), changes.changed()).await;
        if !matches!(changed, Ok(Ok(()))) {
            return call_result;
        }
    }
    let (began, block) = (now(), job.row.block_ref(job.params));
    let ask = PlanRequest { needed: None, oldest: None, ..call.ask };
    let subject = BlockAsk { ask: &ask, block: &block };
    let planned = try_plan(chain, request.worker, subject, began);
    if planned.plan.candidates().is_empty() || began >= job.deadline {
        return call_result;
    }
    let job = Job { at_hash: None, flows_to: None, ..*job };
    let bounds = Bounds { attempts_max: attempts_max.max(1), ..chain.bounds };
    let terms =
        AttemptTerms { bounds: &bounds, before: std::mem::take(call_result.trail_mut()), began };
    let mut asked = ask_upstreams(request, &job, subject, Some(planned), terms).await;
    if let CallResult::Result { is_doubtful, .. } = &mut asked {
        // It is not of the block under which it would be kept.
        *is_doubtful = true;
    }
    asked
}
