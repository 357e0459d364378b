//! Reads of state by block hash (EIP-1898).
//!
//! An answer at a height whose block may be replaced does not show its block, so it can never be
//! cached. Most calls of dapps and wallets are of this kind. If the call is sent with the hash of
//! the agreed block, the answer is for that block or is an error, and is cached under the hash.
//!
//! A hash goes only to upstreams that were found to honour one (`wellhead_watch`); the others get
//! the height within the same call, and their answers are returned but not cached.
//!
//! Not every such upstream accepts a hash in every method. If one refuses it, the call is repeated
//! by height, and if that succeeds no call of this method is sent by hash for a while: a second,
//! and twice as long with each refusal within an hour, up to an hour. The answer to the second call
//! is returned but not cached. If an upstream has accepted a hash in this method before, its error
//! about the call is taken as such.

use std::time::Instant;

use wellhead_dispatch::{Bounds, Job, Trail, now};
use wellhead_eth::MethodRow;
use wellhead_upstream::{Slot, VerdictClass};

use crate::request::context::RequestContext;
use crate::request::pin::{PinnedCall, PinnedParams};
use crate::request::result::CallResult;
use crate::state::by_hash::ByHash;
use crate::steps::ask_upstreams::{AttemptTerms, ask_upstreams};
use crate::steps::floor;
use crate::steps::planning::{Planned, try_plan};

/// Whether what was said may be said of the hash alone, so that the height is worth a call.
fn is_in_doubt(
    by_hash: &ByHash,
    row: &MethodRow,
    call_result: &CallResult,
    pin: &PinnedParams,
) -> bool {
    let doubts = |slot: Slot, class: VerdictClass| {
        class.may_be_of_hash() && (class != VerdictClass::CallerFault || !by_hash.takes(row, slot))
    };
    match call_result {
        CallResult::Result { .. } => false,
        CallResult::Error { slot, trail, .. } => {
            let last = trail.attempts.iter().rev().find(|it| it.slot == *slot);
            last.is_some_and(|it| pin.is_by_hash_at(it.slot) && doubts(it.slot, it.class))
        }
        CallResult::Refused { trail, .. } => {
            let mut asked = trail.attempts.iter().filter(|it| pin.is_by_hash_at(it.slot));
            asked.any(|it| doubts(it.slot, it.class))
        }
    }
}

/// Asks as the call was pinned; where that was by the block's hash and may have been refused for
/// that, once more by its height.
pub(crate) async fn run_pinned(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    call: &PinnedCall<'_>,
    planned: Option<Planned>,
    began: Instant,
) -> CallResult {
    let pin = &call.pin;
    let (params, at_hash) = (pin.by_height(job.params), pin.at_block_hash());
    let flows_to = job.flows_to.filter(|_| !floor::is_open(request, job.row, &pin.block));
    let as_sent = Job { params, at_hash, flows_to, ..*job };
    let terms = AttemptTerms { bounds: &request.chain.bounds, before: Trail::default(), began };
    let mut call_result = ask_upstreams(request, &as_sent, call.at_block(), planned, terms).await;
    if !pin.is_by_hash() {
        return match floor::is_open(request, job.row, &pin.block) {
            true => floor::kept_to(request, job, call.at_block(), call_result).await,
            false => call_result,
        };
    }
    let by_hash = &request.chain.by_hash;
    if let CallResult::Result { slot, is_doubtful, .. } = &mut call_result {
        match slot.filter(|slot| pin.is_by_hash_at(*slot)) {
            Some(slot) => by_hash.took(job.row, slot),
            // It was asked by the height, so what it said may be of any block there.
            None => *is_doubtful = true,
        }
    }
    if now() >= job.deadline || !is_in_doubt(by_hash, job.row, &call_result, pin) {
        return call_result;
    }
    let before = std::mem::take(call_result.trail_mut());
    Box::pin(run_by_height(request, job, call, before)).await
}

/// Asks by the height what was refused by the hash. What comes of it may be of any block of that
/// height: it is told and not kept.
async fn run_by_height(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    call: &PinnedCall<'_>,
    before: Trail,
) -> CallResult {
    let by_height = Job { params: call.pin.by_height(job.params), at_hash: None, ..*job };
    let (chain, by_hash, bounds) = (request.chain, &request.chain.by_hash, &request.chain.bounds);
    // An upstream that failed otherwise has used up an attempt and is not tried first. Attempts that
    // the hash cost are given back, because wellhead chose to send it.
    let failures = before.attempts.iter().filter(|it| it.class.is_failure()).map(|it| it.slot);
    let attempts_max = bounds.attempts_max.saturating_sub(failures.clone().count()).max(1);
    let bounds = Bounds { attempts_max, ..*bounds };
    let began = now();
    let mut planned = try_plan(chain, request.worker, call.at_block(), began);
    planned.plan = planned.plan.with_last(failures.collect());
    let tried = before.line(&chain.roster);
    let terms = AttemptTerms { bounds: &bounds, before, began };
    let mut call_result =
        ask_upstreams(request, &by_height, call.at_block(), Some(planned), terms).await;
    if let CallResult::Result { is_doubtful, .. } = &mut call_result {
        *is_doubtful = true;
        let pause = by_hash.refused(job.row, now());
        tracing::debug!(
            method = job.row.name, %tried, ?pause,
            "upstream refused a call by block hash: using the height instead"
        );
    }
    call_result
}
