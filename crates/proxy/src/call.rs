//! One call, from its method to its report.
//!
//! [`handle_call`] and [`read_through`] take the steps of the table in ARCHITECTURE.md in its order; what a
//! step does is in [`crate::steps`]. By its effect a call goes upstream (read, broadcast, write),
//! goes where its filter lives (sticky), is answered here (local), or begins or ends a subscription
//! of its connection (subscribe).

use std::fmt::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use wellhead_cache::{Follow, FollowEnd};
use wellhead_dispatch::{Failure, Job, Trail, now};
use wellhead_eth::{BlockRef, Effect, MethodRow, MethodTable};
use wellhead_jsonrpc::{Call, raw};
use wellhead_route::{NotServed, Roster};
use wellhead_upstream::{Slot, UpstreamSet};

use crate::answer::Refusal;
use crate::line::method_of;
use crate::request::context::RequestContext;
use crate::request::pin::{MethodCall, PinnedCall};
use crate::request::reply::Reply;
use crate::request::result::{CallResult, Noted};
use crate::state::cache::SharedResult;
use crate::state::counts::{CacheResult, CallOutcome};
use crate::steps::by_hash::run_pinned;
use crate::steps::cached::{self, CacheLookup, CacheTicket, CacheWrite};
use crate::steps::filters::FilterPlace;
use crate::steps::planning::{self, Planned};
use crate::steps::transactions::{self, TRANSACTION};
use crate::steps::virtual_filters::ReadForClient;
use crate::steps::{
    filters, floor, height, local, lost_block, reasons, recall, startup, subscribe, tiers,
    virtual_filters,
};
use crate::trace::{RequestTrace, TracedCall};

/// What a call became, and what to note of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) row: &'static MethodRow,
    pub(crate) reply: Reply,
    pub(crate) outcome: CallOutcome,
    pub(crate) slot: Option<Slot>,
    pub(crate) trail: Trail,
    pub(crate) noted: Noted,
    /// The HTTP status, if it was alone in its request.
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

impl Report {
    /// What came of a call, and what else was noted of it.
    fn of(row: &'static MethodRow, call_result: CallResult, noted: Noted) -> Self {
        let report = move |reply, outcome, slot, trail| Self {
            noted,
            row,
            reply,
            outcome,
            slot,
            trail,
            status: 200,
            retry_after: None,
        };
        match call_result {
            CallResult::Result { result, rest: None, slot, trail, .. } => {
                report(Reply::Result(result), CallOutcome::Answered, slot, trail)
            }
            CallResult::Result { result, rest: Some(rest), slot, trail, .. } => {
                report(Reply::Flowing(result, rest), CallOutcome::Answered, slot, trail)
            }
            CallResult::Error { error, slot, trail } => {
                report(Reply::Error(error), CallOutcome::UpstreamError, Some(slot), trail)
            }
            CallResult::Refused { refusal, outcome, trail } => {
                let (status, retry_after) = (refusal.status, refusal.retry_after);
                let reply = Reply::Refused(refusal);
                Self { status, retry_after, ..report(reply, outcome, None, trail) }
            }
        }
    }

    /// What its trace is told of it, which ran from `began` to `ended`. Takes the trail with it.
    pub(crate) fn take_traced(
        &mut self,
        call: &Call,
        began: Instant,
        ended: Instant,
    ) -> TracedCall {
        TracedCall {
            row: self.row,
            method: method_of(self.row, call),
            outcome: self.outcome,
            found: self.noted.found,
            began,
            ended,
            took: ended.saturating_duration_since(began),
            trail: std::mem::take(&mut self.trail),
        }
    }

    /// What was tried, in one line, the block that a tag stood for, what the cache said and
    /// which upstreams were left out.
    pub(crate) fn line(&self, roster: &Roster) -> String {
        let mut line = self.trail.line(roster);
        if let Some(block) = self.noted.block {
            let space = if line.is_empty() { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(line, "{space}block={}", block.0);
        }
        if let Some(aside) = &self.noted.aside {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{aside}");
        }
        line
    }
}

/// Answers one call and counts it. Its turn came at `began`; a large result may reach the client
/// while it still arrives where it `may_flow`. Also says how long after its request came the call ended.
pub(crate) async fn handle_and_count(
    request: &RequestContext<'_>,
    call: &Call,
    began: Instant,
    may_flow: bool,
) -> (Report, Duration) {
    let report = report_call(request, call, began, may_flow).await;
    // A call that an upstream answered ended with that attempt, but for a moment: a
    // reading of the clock less. To look at the answer may have taken longer.
    let received_at = request.ctx.received_at;
    let lasted = match (report.outcome, report.trail.attempts.last()) {
        (CallOutcome::Answered, Some(_)) if request.chain.verifier.is_none() => {
            report.trail.lasted()
        }
        _ => now().saturating_duration_since(received_at),
    };
    // 15. Counted. A call that is alone in its request waits for no turn.
    let took = match began == received_at {
        true => lasted,
        false => lasted.saturating_sub(began.saturating_duration_since(received_at)),
    };
    let (counts, trail) = (request.chain.counts(), &report.trail);
    counts.observe(report.row, report.outcome, took, &trail.attempts);
    trail.abandoned.iter().for_each(|attempt| counts.abandoned(attempt));
    if let Some(found) = report.noted.found {
        request.chain.note_found(report.row, found);
    }
    (report, lasted)
}

/// Reports and counts a call that is refused before it begins.
pub(crate) fn refuse_and_count(
    request: &RequestContext<'_>,
    row: &'static MethodRow,
    refusal: Refusal,
) -> (Report, Duration) {
    let took = now().saturating_duration_since(request.ctx.received_at);
    request.chain.counts().observe(row, CallOutcome::Refused, took, &[]);
    (Report::of(row, CallResult::refused(refusal), Noted::default()), took)
}

/// Answers one call.
async fn report_call(
    request: &RequestContext<'_>,
    call: &Call,
    began: Instant,
    may_flow: bool,
) -> Report {
    // 4. The method.
    // Once, as it looks at the bytes of the name.
    let method = call.method();
    let row = MethodTable::standard().row(method);
    let job = job_of(request, row, method, call.params(), may_flow);
    let mut noted = Noted::default();
    let call_result = if row.effect == Effect::Subscribe && call.is_notification() {
        // The client would not be told the id, and could never end it.
        CallResult::refused(Refusal::invalid_request("a subscription needs an id"))
    } else {
        handle_call(request, job, began, &mut noted).await
    };
    Report::of(row, call_result, noted)
}

/// The result of a read that no client asked for; `None` when there is none.
pub(crate) async fn read_for_itself(
    request: &RequestContext<'_>,
    method: &'static str,
    params: &[u8],
) -> Option<Bytes> {
    let row = MethodTable::standard().row(method);
    let job = job_of(request, row, method, Some(params), false);
    match Box::pin(handle_call(request, job, now(), &mut Noted::default())).await {
        CallResult::Result { result, rest: None, .. } => Some(result),
        CallResult::Result { rest: Some(_), .. }
        | CallResult::Error { .. }
        | CallResult::Refused { .. } => None,
    }
}

/// The life of a call, from step 5 of the table on.
async fn handle_call(
    request: &RequestContext<'_>,
    job: Job<'_>,
    began: Instant,
    noted: &mut Noted,
) -> CallResult {
    let (chain, row, method) = (request.chain, job.row, job.method);
    // 5. The upstreams that may serve it.
    let mut may_ask = request.eligible_by_effect(row, method);
    if let Err(NotServed::Dangerous(access)) = may_ask
        && chain.roster.allows_on_test_chains(access)
        && chain.pulse.chain_id().is_none()
    {
        // A test may begin with such a call. Boxed, as few calls should carry the state of it.
        Box::pin(startup::chain_id(chain, job.deadline)).await;
        may_ask = request.eligible_by_effect(row, method);
    }
    if row.effect == Effect::Sticky
        && matches!(may_ask, Ok(_) | Err(NotServed::NoUpstream | NotServed::NotSelected))
        && let Some(id) = virtual_filters::named(&job)
    {
        return Box::pin(virtual_filters::answer(request, &job, id, &ClientReads(request))).await;
    }
    let eligible = match may_ask {
        Ok(eligible) => eligible,
        Err(why) => {
            return CallResult::refused(Refusal::not_served(why, method, request.selected()));
        }
    };
    // 6. By its effect.
    match row.effect {
        Effect::Local => local::local(chain, row, job.deadline).await,
        // Boxed, as few calls should carry the state of waiting for the first block.
        Effect::Subscribe => Box::pin(subscribe::subscribe(request, &job)).await,
        // Boxed, as the state of an attempt is ten times that of everything before it
        // and would be moved about with each request, also with those answered here.
        Effect::Read | Effect::Write | Effect::Broadcast => {
            if row.name == height::BLOCK_NUMBER
                && let Some(number) = height::known_height(request, job.params)
            {
                return CallResult::local(number);
            }
            // 7. On one view: the block, what is kept, and the plan.
            let begun = match begin(request, &job, eligible, began) {
                PreparedCall { lookup: CacheLookup::Hit(result), call, aside, .. } => {
                    (noted.block, noted.aside) = (call.pin.number(), aside);
                    return from_cache(request, &job, &call.pin.block, result, noted);
                }
                begun => Box::new(begun),
            };
            Box::pin(read_through(request, &job, begun, noted)).await
        }
        Effect::Filter => {
            Box::pin(virtual_filters::make(request, &job, &ClientReads(request))).await
        }
        Effect::Sticky => Box::pin(sticky_call(request, job, eligible, began)).await,
    }
}

/// What upstreams are asked, as the client wrote it. A large result may reach the client while it
/// still arrives where it `may_flow`.
fn job_of<'a>(
    request: &'a RequestContext<'_>,
    row: &'static MethodRow,
    method: &'a str,
    params: Option<&'a [u8]>,
    may_flow: bool,
) -> Job<'a> {
    Job {
        params,
        // A filter's id is rewritten, and a write's answer is small.
        flows_to: (may_flow && row.effect == Effect::Read).then(|| request.ctx.tenant()),
        progress: Some(request.progress),
        room: request.room.as_ref(),
        trace: request.trace.map(RequestTrace::seed),
        ..Job::new(row, method, request.ctx.received_at, request.deadline())
    }
}

/// What a call becomes on the one view that it sees.
struct PreparedCall<'a> {
    call: PinnedCall<'a>,
    lookup: CacheLookup,
    planned: Option<Planned>,
    aside: Option<Box<str>>,
    /// When its turn came.
    began: Instant,
}

/// Pins, looks for what is kept, and plans.
fn begin<'a>(
    request: &RequestContext<'_>,
    job: &Job<'a>,
    eligible: UpstreamSet,
    began: Instant,
) -> PreparedCall<'a> {
    request.look(|view| {
        let of = MethodCall::of(job);
        let call = planning::pinned(request, of, eligible, view);
        // Before the call is planned, and counted as one that waits for others.
        let aside = request.ctx.want_trail.then(|| reasons::aside(request, of, &call, view));
        let lookup = cached::look_up(request, job, &call.pin, view);
        let planned = match lookup {
            CacheLookup::Hit(_) | CacheLookup::Follow(..) => None,
            CacheLookup::Bypass | CacheLookup::Lead(_) => {
                Some(planning::plan_on(view, request.chain, request.worker, call.at_block(), began))
            }
        };
        PreparedCall { call, lookup, planned, aside, began }
    })
}

/// An answer that was kept.
fn from_cache(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    block: &BlockRef,
    result: Bytes,
    noted: &mut Noted,
) -> CallResult {
    noted.found = Some(CacheResult::Hit);
    let result = recall::recall(request, MethodCall::of(job), block, None, result);
    CallResult::whole(result, None, Trail::default())
}

/// From a slow tier, from the call of another client, or from upstreams by the plan. What was begun
/// stays in its box, so that the future is small.
async fn read_through(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    mut begun: Box<PreparedCall<'_>>,
    noted: &mut Noted,
) -> CallResult {
    (noted.block, noted.aside) = (begun.call.pin.number(), begun.aside.take());
    if let CacheLookup::Lead(ticket) = &begun.lookup
        && tiers::may_have(request, ticket, job.row)
        // Boxed, as few calls should carry the state of waiting.
        && let Some(result) = Box::pin(tiers::fetch(request, ticket)).await
    {
        if let CacheLookup::Lead(ticket) = begun.lookup {
            ticket.found(&result);
        }
        return from_cache(request, job, &begun.call.pin.block, result, noted);
    }
    let mut call_result;
    match begun.lookup {
        CacheLookup::Hit(result) => {
            return from_cache(request, job, &begun.call.pin.block, result, noted);
        }
        CacheLookup::Follow(follow, ticket) => {
            let followed = follow_on(request, job, &begun.call, follow, ticket);
            (call_result, noted.found) = Box::pin(followed).await;
        }
        CacheLookup::Bypass | CacheLookup::Lead(_) => {
            if let CacheLookup::Lead(_) = begun.lookup {
                noted.found = missed(request);
            }
            // 8 to 12. Attempts, until a verdict ends the call.
            let planned = begun.planned.take();
            call_result = run_pinned(request, job, &begun.call, planned, begun.began).await;
            if lost_block::is_lost(job, &begun.call, &call_result) {
                // Boxed, as few calls should carry the state of asking again.
                let asked = lost_block::ask_as_written(request, job, &begun.call, call_result);
                call_result = Box::pin(asked).await;
            }
            // 13. What may be kept is kept.
            if let CacheLookup::Lead(ticket) = begun.lookup {
                ticket.settle(request.chain, CacheWrite::of(job, &call_result), &call_result);
            }
        }
    }
    // What the client is told, by what it was shown.
    let block = &begun.call.pin.block;
    match recall_result(request, job, block, &mut call_result) {
        Some(taker) => {
            Box::pin(transactions::look_there(request, job, block, taker, call_result)).await
        }
        None => call_result,
    }
}

/// Recalls what there is to recall without another call, by what the client was shown and sent before; see
/// [`crate::state::sessions`] and [`crate::state::sent`]. For a transaction that the upstream does not have, returns
/// the upstream that took it. Costs a comparison where tags are not pinned.
fn recall_result(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    block: &BlockRef,
    call_result: &mut CallResult,
) -> Option<Slot> {
    let chain = request.chain;
    let CallResult::Result { result, rest, slot, trail, .. } = call_result else { return None };
    if !chain.pins {
        return None;
    }
    if rest.is_some() {
        recall::recall_flowing(request, block);
        return None;
    }
    if job.row.effect == Effect::Broadcast {
        transactions::note_sent(chain, job, *slot, job.received_at + trail.lasted());
    }
    if job.row.name == TRANSACTION
        && raw::is_null(result)
        && let Some(taker) = transactions::taker(chain, job, *slot)
    {
        return Some(taker);
    }
    *result = recall::recall(request, MethodCall::of(job), block, *slot, std::mem::take(result));
    None
}

/// Waits for what comes of another's call, as long as the deadline lets it, or makes the
/// call when that one went away or cannot share its answer.
async fn follow_on(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    call: &PinnedCall<'_>,
    follow: Follow<SharedResult>,
    ticket: CacheTicket,
) -> (CallResult, Option<CacheResult>) {
    let chain = request.chain;
    let ticket = match tokio::time::timeout_at(job.deadline.into(), follow).await {
        Ok(FollowEnd::Landed(landed)) => {
            // The client may have been told of a newer block since.
            let told = floor::kept_to(request, job, call.at_block(), landed.into()).await;
            return (told, Some(CacheResult::Joined));
        }
        Err(_) => {
            let (failure, trail) = (Failure::Deadline, Trail::default());
            let call_result = CallResult::failed(chain, failure, trail, call.ask.eligible);
            return (call_result, Some(CacheResult::Joined));
        }
        Ok(FollowEnd::Lead(lead)) => ticket.leading(lead),
        Ok(FollowEnd::Alone) => ticket,
    };
    let call_result = run_pinned(request, job, call, None, now()).await;
    ticket.settle(chain, CacheWrite::of(job, &call_result), &call_result);
    (call_result, missed(request))
}

/// What is told of a call whose answer was not there, where answers are kept.
fn missed(request: &RequestContext<'_>) -> Option<CacheResult> {
    request.chain.cache().map(|_| CacheResult::Miss)
}

/// The reads that a call of this request is answered by.
struct ClientReads<'a>(&'a RequestContext<'a>);

impl ReadForClient for ClientReads<'_> {
    fn read(&self, method: &'static str, params: String) -> BoxFuture<'_, CallResult> {
        Box::pin(read(self.0, method, params))
    }
}

async fn read(request: &RequestContext<'_>, method: &'static str, params: String) -> CallResult {
    let row = MethodTable::standard().row(method);
    let params = params.into_bytes();
    let job = job_of(request, row, method, Some(&params), false);
    match request.eligible(row, method) {
        Ok(eligible) => {
            let begun = Box::new(begin(request, &job, eligible, now()));
            read_through(request, &job, begun, &mut Noted::default()).await
        }
        Err(why) => CallResult::refused(Refusal::not_served(why, method, request.selected())),
    }
}

/// Filters for pending transactions: made anywhere, then asked where they live.
async fn sticky_call(
    request: &RequestContext<'_>,
    job: Job<'_>,
    eligible: UpstreamSet,
    began: Instant,
) -> CallResult {
    if filters::is_made_by(job.row) {
        let begun = Box::new(begin(request, &job, eligible, began));
        let call_result = read_through(request, &job, begun, &mut Noted::default()).await;
        return filters::name_the_filter(request.chain, call_result, eligible);
    }
    let FilterPlace { only, params, deadline } = match filters::place(request.chain, &job, began) {
        Ok(place) => place,
        Err(refusal) => return CallResult::refused(refusal),
    };
    let job = Job { params: Some(&params), deadline, ..job };
    let begun = Box::new(begin(request, &job, only, began));
    read_through(request, &job, begun, &mut Noted::default()).await
}
