//! One call at the upstreams of its plan, and what their answers teach.

use std::time::Instant;

use wellhead_dispatch::{Bounds, Failure, Job, Outcome, Served, Trail, run};
use wellhead_eth::Effect;
use wellhead_upstream::{Learnt, Payload, VerdictClass};

use crate::request::context::RequestContext;
use crate::request::pin::BlockAsk;
use crate::request::result::CallResult;
use crate::state::counts::CallOutcome;
use crate::steps::empty_logs::{self, SearchOutcome};
use crate::steps::planning::{Planned, make_plan};
use crate::steps::search::division::{self, Range};
use crate::steps::transactions::{known_hash, maybe_there};
use crate::steps::{height, observe, search};

/// Within which bounds upstreams are asked, and what of the call went before.
pub(crate) struct AttemptTerms<'a> {
    pub(crate) bounds: &'a Bounds,
    /// What was tried before, told together with what follows.
    pub(crate) before: Trail,
    /// When its turn came.
    pub(crate) began: Instant,
}

/// Asks upstreams by the plan, or by one made now, within these bounds, and learns from what they
/// say. What was tried `before` is told with it.
pub(crate) async fn ask_upstreams(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    planned: Option<Planned>,
    terms: AttemptTerms<'_>,
) -> CallResult {
    let (chain, worker) = (request.chain, request.worker);
    let BlockAsk { ask, block } = subject;
    let AttemptTerms { bounds, before, began } = terms;
    let range = Range::of(chain, job, block, ask.filter);
    let Planned { plan, null_is_final, is_there, ballot } = match planned {
        Some(planned) if planned.is_decided() => planned,
        // Boxed: it is rare, and few calls should carry the state of waiting.
        Some(_) | None => Box::pin(make_plan(chain, worker, subject, job.deadline, began)).await,
    };
    // Where several must agree, that many have to accept the range.
    let needed = ballot.map_or(1, |ballot| ballot.quorum.agree);
    if let Some(range) = range
        && plan.fit() < needed
        && !plan.is_unoffered()
        && let Some(division) = division::widest(chain, job, ask, range, began)
    {
        return Box::pin(search::in_parts(request, job, subject, division, before)).await;
    }
    let job = &Job { null_is_final, is_there, ballot, ..*job };
    let outcome = run(job, &plan, &chain.roster, worker, bounds).await;
    observe::observe_reach(chain, ask, &outcome.trail);
    let SearchOutcome { outcome, is_doubtful, .. } = match empty_logs::is_search(job) {
        true => empty_logs::looked_into(request, job, subject, outcome).await,
        false => SearchOutcome::certain(outcome),
    };
    let Outcome { result, trail: own } = outcome;
    let mut trail = before;
    trail.append(own);
    if let Some(range) = range {
        if let Some(division) = division::after_refusal(job, &result, range) {
            return Box::pin(search::in_parts(request, job, subject, division, trail)).await;
        }
        if let Some(refusal) = division::filter_refused(chain, ask, &result) {
            return CallResult::Refused { refusal, outcome: CallOutcome::Refused, trail };
        }
    }
    let is_unsettled = may_have_been_taken(job, &result);
    let call_result = match result {
        Ok(served) => answered(request, job, subject, served, trail, is_doubtful),
        Err(failure) => CallResult::failed(chain, failure, trail, ask.eligible),
    };
    match is_unsettled {
        true => Box::pin(maybe_there(request, job, call_result)).await,
        false => call_result,
    }
}

/// Whether a transaction that was refused, or whose answer was lost, may be in the pool or in a
/// block all the same.
fn may_have_been_taken(job: &Job<'_>, result: &Result<Served, Failure>) -> bool {
    match result {
        Ok(Served { class: VerdictClass::TransactionRejected, payload, learnt, .. }) => {
            matches!(payload, Payload::Error(_)) && *learnt == Some(Learnt::MaybeMined)
        }
        Ok(_) => false,
        Err(_) => match job.row.effect {
            // Its answer may have been lost on the way.
            Effect::Broadcast => true,
            Effect::Read
            | Effect::Write
            | Effect::Subscribe
            | Effect::Filter
            | Effect::Sticky
            | Effect::Local => false,
        },
    }
}

/// The result of a call to which an upstream had an answer; a height that it shows is noted.
fn answered(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    BlockAsk { ask, block }: BlockAsk<'_>,
    served: Served,
    trail: Trail,
    is_doubtful: bool,
) -> CallResult {
    let (chain, slot) = (request.chain, served.slot);
    match (served.class, served.payload) {
        // It is in the pool, which is what the sender wanted: the hash is the answer.
        (VerdictClass::TransactionKnown, payload) => match (known_hash(job), payload) {
            (Some(hash), _) => CallResult::result(hash.into(), slot, trail),
            (None, Payload::Error(error)) => CallResult::Error { error, slot, trail },
            (None, Payload::Result(result)) => CallResult::result(result, slot, trail),
            (None, Payload::None { .. }) => {
                CallResult::exhausted(chain, served.class, trail, ask.eligible)
            }
        },
        (_, Payload::Result(result)) => {
            let at = job.received_at + trail.lasted();
            observe::observe_head(chain, slot, job.row, block, &result, at);
            let result = match job.row.name {
                height::BLOCK_NUMBER => height::agreed_height(request, result),
                _ => result,
            };
            CallResult::Result { result, rest: served.rest, slot: Some(slot), trail, is_doubtful }
        }
        (_, Payload::Error(error)) => CallResult::Error { error, slot, trail },
        (class, Payload::None { .. }) => CallResult::exhausted(chain, class, trail, ask.eligible),
    }
}
