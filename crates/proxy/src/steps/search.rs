//! A search over many blocks or for many addresses, such as `eth_getLogs`, in parts that upstreams
//! accept.
//!
//! A search is sent whole if some upstream is not known to accept less. If all accept less, or one
//! refuses it because of its size or its number of addresses, its parts are requested concurrently,
//! each like a separate call with its own plan and attempts, and joined in order.
//! [`crate::state::parts`] decides how large parts are, and when a search cannot succeed. All parts
//! together hold at most as much as one answer, and the whole search has the deadline of the call,
//! unless it is large and streamed: [`stream`]. With a cache, final parts are cached.

pub(crate) mod division;
mod stream;
mod under_way;

use std::sync::Arc;

use bytes::Bytes;
use wellhead_dispatch::{Failure, Job, Trail, now};
use wellhead_transport::MemoryBudget;
use wellhead_upstream::UpstreamSet;

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::pin::BlockAsk;
use crate::request::result::CallResult;
use crate::state::counts::CallOutcome;
use crate::state::hopeless::Subject;
use crate::state::parts::Stuck;
use crate::steps::search::division::Division;
pub(crate) use crate::steps::search::under_way::hold;
use crate::steps::search::under_way::{Ended, Search};

/// A list in one piece, within the memory budget; `None` when there is no room for it.
/// What the parts hold is given back when the caller drops them.
fn whole(pieces: &[Bytes], answers: &Arc<MemoryBudget>) -> Option<Bytes> {
    let bytes = pieces.iter().map(Bytes::len).sum();
    hold(bytes, answers, || pieces.concat().into())
}

/// A search in parts that is divided like this at first, and what it comes to.
pub(crate) async fn in_parts(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    Division { range, size }: Division,
    mut trail: Trail,
) -> CallResult {
    let (chain, eligible) = (request.chain, subject.ask.eligible);
    let range = chain.heads.look(|view| range.up_to_head(view));
    let calls_max = u32::try_from(chain.search.calls_max).unwrap_or(u32::MAX);
    let made = u32::try_from(trail.exchanges()).unwrap_or(u32::MAX);
    let allowance = request.allowance().part(calls_max, made);
    let what = Subject {
        digest: if range.is_hash { 0 } else { subject.ask.filter.digest },
        from: range.from,
        to: range.to,
        eligible,
    };
    if let Some(why) = chain.hopeless.find(&what, now()) {
        return stuck(request, what, why, false, trail);
    }
    let is_of_request = allowance.is_bound_by_whole();
    let mut search = match Search::new(request, job, subject, Division { range, size }, allowance) {
        Ok(search) => search,
        Err(why) => return stuck(request, what, why, is_of_request, trail),
    };
    let ended = loop {
        let is_long = search.parts.held() > chain.bounds.whole_bytes_max && search.parts.is_begun();
        if let Some(client) = job.flows_to.filter(|_| is_long)
            // Where no place is left it is held, as long as it may be.
            && let Some(place) = request.worker.search_flows().enter(client, now())
        {
            trail.append(std::mem::take(&mut search.trail));
            let (result, slot) = (Bytes::new(), search.last);
            let rest = Some(stream::flowing(search, place));
            return CallResult::Result { result, rest, slot, trail, is_doubtful: false };
        }
        match search.step().await {
            Ok(true) => {}
            Ok(false) => break None,
            Err(ended) => break Some(ended),
        }
    };
    trail.append(std::mem::take(&mut search.trail));
    match ended {
        None => complete(request, search, eligible, trail),
        Some(Ended::Error(error, slot)) => CallResult::Error { error, slot, trail },
        Some(Ended::Failed(failure)) => CallResult::failed(chain, failure, trail, eligible),
        Some(Ended::Refused(refusal)) => {
            CallResult::Refused { refusal, outcome: CallOutcome::Refused, trail }
        }
        Some(Ended::Stuck(Stuck::NoRoom)) => {
            CallResult::failed(chain, Failure::NoRoom, trail, eligible)
        }
        Some(Ended::Stuck(why)) => give_up(request, what, &search, why, trail),
    }
}

/// A search that got stuck under way. Where that is for its size, it is remembered as hopeless.
fn give_up(
    request: &RequestContext<'_>,
    what: Subject,
    search: &Search,
    why: Stuck,
    trail: Trail,
) -> CallResult {
    let is_of_request = search.allowance().is_bound_by_whole();
    if matches!(why, Stuck::TooManyCalls { .. }) && search.parts.was_refused() && !is_of_request {
        request.chain.hopeless.note(what, why, now());
    }
    stuck(request, what, why, is_of_request, trail)
}

/// A search that cannot be made in parts; where too many calls are what it would need, they may be
/// those of the whole request.
fn stuck(
    request: &RequestContext<'_>,
    what: Subject,
    why: Stuck,
    is_of_request: bool,
    trail: Trail,
) -> CallResult {
    let chain = request.chain;
    if let (Stuck::TooManyCalls { .. }, true) = (why, is_of_request) {
        let failure = Failure::CallsSpent { max: request.allowance().max() };
        return CallResult::failed(chain, failure, trail, what.eligible);
    }
    let refusal = Refusal::too_wide(what.blocks(), why, chain.search);
    CallResult::Refused { refusal, outcome: CallOutcome::Refused, trail }
}

/// The list of a search all of whose parts were found.
fn complete(
    request: &RequestContext<'_>,
    mut search: Search,
    eligible: UpstreamSet,
    trail: Trail,
) -> CallResult {
    debug_assert!(search.parts.is_complete(), "all parts were asked for and settled");
    let Some(result) = whole(&search.parts.take(), request.answers()) else {
        return CallResult::failed(request.chain, Failure::NoRoom, trail, eligible);
    };
    let Search { last: slot, is_doubtful, warns, .. } = search;
    if warns {
        request.warn_of_logs();
    }
    CallResult::Result { result, rest: None, slot, trail, is_doubtful }
}
