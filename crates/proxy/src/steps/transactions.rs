//! Transactions that were sent through here: looked for at the upstream that took them, and looked
//! up by their hash when it is not known whether one was taken.

use std::time::{Duration, Instant};

use wellhead_dispatch::{Job, Served, now, run};
use wellhead_eth::{BlockRef, Effect, MethodTable, raw_transaction_hash};
use wellhead_jsonrpc::raw;
use wellhead_route::PlanRequest;
use wellhead_upstream::{Payload, Slot, VerdictClass};

use crate::request::context::RequestContext;
use crate::request::pin::{BlockAsk, MethodCall};
use crate::request::result::CallResult;
use crate::state::chain::ServedChain;
use crate::state::sent;
use crate::steps::planning::{make_plan, try_plan};
use crate::steps::recall::recall;

/// The method that asks for a transaction.
pub(crate) const TRANSACTION: &str = "eth_getTransactionByHash";
/// A transaction that others do not find is looked for this long at the one that took it.
const LOOK_THERE: Duration = Duration::from_secs(1);

/// Remembers a transaction that an upstream took.
pub(crate) fn note_sent(chain: &ServedChain, job: &Job<'_>, slot: Option<Slot>, at: Instant) {
    let hash = job.params.and_then(raw_transaction_hash);
    if let (Some(hash), Some(slot)) = (hash, slot) {
        chain.note_sent(hash, job.params.and_then(sent::sender), slot, at);
    }
}

/// The upstream that accepted the requested transaction, when another one did not find it.
pub(crate) fn taker(chain: &ServedChain, job: &Job<'_>, asked: Option<Slot>) -> Option<Slot> {
    let hash = raw::string(raw::item(raw::trim(job.params?), 0)?)?.parse().ok()?;
    chain.sent.taken_by(&hash, now()).filter(|taker| Some(*taker) != asked)
}

/// Asks the one that took the transaction, if it is fit for it; without an answer from there
/// within a second, `call_result` stands.
pub(crate) async fn look_there(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    block: &BlockRef,
    taker: Slot,
    mut call_result: CallResult,
) -> CallResult {
    let (chain, worker) = (request.chain, request.worker);
    let began = now();
    let eligible = request.eligible(job.row, job.method).unwrap_or_default();
    if began >= job.deadline || !eligible.contains(taker) {
        return call_result;
    }
    let ask = PlanRequest::of(job.row, [taker].into_iter().collect());
    let plan = try_plan(chain, worker, BlockAsk { ask: &ask, block }, began).plan;
    if plan.fit() == 0 {
        return call_result;
    }
    let job = &Job { deadline: job.deadline.min(began + LOOK_THERE), ballot: None, ..*job };
    let found = run(job, &plan, &chain.roster, worker, &chain.bounds).await;
    let trail = call_result.trail_mut();
    trail.append(found.trail);
    match found.result {
        Ok(Served { class: VerdictClass::Answer, payload: Payload::Result(result), .. })
            if !raw::is_null(&result) =>
        {
            let result = recall(request, MethodCall::of(job), block, Some(taker), result);
            CallResult::result(result, taker, std::mem::take(trail))
        }
        Ok(_) | Err(_) => call_result,
    }
}

/// The hash of the raw transaction that the call carries, as raw JSON.
pub(crate) fn known_hash(job: &Job<'_>) -> Option<String> {
    if job.row.effect != Effect::Broadcast {
        return None;
    }
    raw_transaction_hash(job.params?).map(|hash| format!("\"{hash}\""))
}

/// A raw transaction was refused because its nonce is used, which is also what is
/// said of one that was mined since: after a lost answer, or when the sender asks
/// twice. Or no upstream answered, though one may have accepted it. Whether the chain has it
/// decides; without an answer to that, `call_result` stands.
pub(crate) async fn maybe_there(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    mut call_result: CallResult,
) -> CallResult {
    let (chain, worker) = (request.chain, request.worker);
    let row = MethodTable::standard().row(TRANSACTION);
    let (Some(hash), Ok(eligible)) = (known_hash(job), request.eligible(row, row.name)) else {
        return call_result;
    };
    if now() >= job.deadline {
        return call_result;
    }
    let params = format!("[{hash}]");
    let look_up = Job { row, method: row.name, params: Some(params.as_bytes()), ..*job };
    let ask = PlanRequest::of(row, eligible);
    let subject = BlockAsk { ask: &ask, block: &BlockRef::None };
    let planned = make_plan(chain, worker, subject, job.deadline, now()).await;
    let plan = planned.plan;
    let found = run(&look_up, &plan, &chain.roster, worker, &chain.bounds).await;
    let trail = call_result.trail_mut();
    trail.append(found.trail);
    match found.result {
        Ok(served) if served.class == VerdictClass::Answer => {
            CallResult::result(hash.into(), served.slot, std::mem::take(trail))
        }
        Ok(_) | Err(_) => call_result,
    }
}
