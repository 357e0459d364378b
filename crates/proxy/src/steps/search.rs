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
use wellhead_transport::{Ceiling, Rest};
use wellhead_upstream::Slot;

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::pin::BlockAsk;
use crate::request::result::CallResult;
use crate::state::counts::CallOutcome;
use crate::state::hopeless::Subject;
use crate::state::parts::Stuck;
use crate::steps::search::division::{Division, Range};
pub(crate) use crate::steps::search::under_way::hold;
use crate::steps::search::under_way::{Ended, Search};

/// A list in one piece, counted below the ceiling on answers; `None` when there is no room for it.
/// What the parts hold is given back when the caller drops them.
fn whole(pieces: &[Bytes], answers: &Arc<Ceiling>) -> Option<Bytes> {
    let bytes = pieces.iter().map(Bytes::len).sum();
    hold(bytes, answers, || pieces.concat().into())
}

/// A search in parts, and what it comes to.
pub(crate) async fn in_parts(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    division: Division,
    mut trail: Trail,
) -> CallResult {
    match search(request, job, subject, division, &mut trail).await {
        Searched::Found { list, slot, is_doubtful, warns } => {
            if warns {
                request.warn_of_logs();
            }
            CallResult::Result { result: list, rest: None, slot, trail, is_doubtful }
        }
        Searched::Flows(rest, slot) => {
            let (result, rest) = (Bytes::new(), Some(rest));
            CallResult::Result { result, rest, slot, trail, is_doubtful: false }
        }
        Searched::Error(error, slot) => CallResult::Error { error, slot, trail },
        Searched::Failed(failure) => {
            CallResult::failed(request.chain, failure, trail, subject.ask.eligible)
        }
        Searched::Refused(refusal) => {
            CallResult::Refused { refusal, outcome: CallOutcome::Refused, trail }
        }
    }
}

/// How a search in parts ended.
enum Searched {
    /// The list; this upstream gave the last part, if one was asked.
    Found {
        list: Bytes,
        slot: Option<Slot>,
        /// See [`crate::steps::empty_logs::SearchOutcome`]; of any part.
        is_doubtful: bool,
        warns: bool,
    },
    /// The list as it is found, and the end of its envelope.
    Flows(Box<dyn Rest>, Option<Slot>),
    /// An upstream's error about the search itself.
    Error(Bytes, Slot),
    /// A part could not be had.
    Failed(Failure),
    /// It cannot be made in parts.
    Refused(Refusal),
}

/// Searches in parts that are divided like this at first. Adds what was tried to `trail`.
async fn search(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    Division { range, size }: Division,
    trail: &mut Trail,
) -> Searched {
    let range = request.chain.heads.look(|view| range.up_to_head(view));
    let calls_max = u32::try_from(request.chain.search.calls_max).unwrap_or(u32::MAX);
    let made = u32::try_from(trail.exchanges()).unwrap_or(u32::MAX);
    let allowance = request.allowance().part(calls_max, made);
    let what = Subject {
        digest: if range.is_hash { 0 } else { subject.ask.filter.digest },
        from: range.from,
        to: range.to,
        eligible: subject.ask.eligible,
    };
    if let Some(why) = request.chain.hopeless.find(&what, now()) {
        return stuck(request, range, why, false);
    }
    let is_of_request = allowance.is_bound_by_whole();
    let mut search = match Search::new(request, job, subject, Division { range, size }, allowance) {
        Ok(search) => search,
        Err(why) => return stuck(request, range, why, is_of_request),
    };
    let whole_max = request.chain.bounds.whole_bytes_max;
    let ended = loop {
        let is_long = search.parts.held() > whole_max && search.parts.is_begun();
        if let Some(client) = job.flows_to.filter(|_| is_long)
            // Where no place is left it is held, as long as it may be.
            && let Some(place) = request.worker.search_flows().enter(client, now())
        {
            trail.append(std::mem::take(&mut search.trail));
            let last = search.last;
            return Searched::Flows(stream::flowing(search, place), last);
        }
        match search.step().await {
            Ok(true) => {}
            Ok(false) => break None,
            Err(ended) => break Some(ended),
        }
    };
    trail.append(std::mem::take(&mut search.trail));
    match ended {
        None => complete(request, search),
        Some(Ended::Error(error, slot)) => Searched::Error(error, slot),
        Some(Ended::Failed(failure)) => Searched::Failed(failure),
        Some(Ended::Filter(refusal)) => Searched::Refused(refusal),
        Some(Ended::Stuck(Stuck::NoRoom)) => Searched::Failed(Failure::NoRoom),
        Some(Ended::Stuck(why)) => give_up(request, range, what, &search, why),
    }
}

/// A search that got stuck under way. Where that is for its size, it is remembered as hopeless.
fn give_up(
    request: &RequestContext<'_>,
    range: Range,
    what: Subject,
    search: &Search,
    why: Stuck,
) -> Searched {
    let is_of_request = search.allowance().is_bound_by_whole();
    if matches!(why, Stuck::TooManyCalls { .. }) && search.parts.was_refused() && !is_of_request {
        request.chain.hopeless.note(what, why, now());
    }
    stuck(request, range, why, is_of_request)
}

/// A search over `range` that cannot be made in parts; where too many calls are what it would
/// need, they may be those of the whole request.
fn stuck(request: &RequestContext<'_>, range: Range, why: Stuck, is_of_request: bool) -> Searched {
    match (why, is_of_request) {
        (Stuck::TooManyCalls { .. }, true) => {
            Searched::Failed(Failure::CallsSpent { max: request.allowance().max() })
        }
        (why, _) => Searched::Refused(Refusal::too_wide(range.len(), why, request.chain.search)),
    }
}

/// The list of a search all of whose parts were found.
fn complete(request: &RequestContext<'_>, mut search: Search) -> Searched {
    debug_assert!(search.parts.is_complete(), "all parts were asked for and settled");
    match whole(&search.parts.take(), request.answers()) {
        Some(list) => {
            let Search { last: slot, is_doubtful, warns, .. } = search;
            Searched::Found { list, slot, is_doubtful, warns }
        }
        None => Searched::Failed(Failure::NoRoom),
    }
}
