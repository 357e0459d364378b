//! The cache and coalescing: the look-up before an upstream is called, and the write of its answer.
//!
//! `wellhead_cache` decides what may be cached and for how long; [`crate::state::cache`] gives it
//! the state of the chain. Here a call is translated for the cache ([`CacheTicket`]), and it is
//! decided whether it waits for an identical call of another client.
//!
//! Not guaranteed: that a chain whose final blocks are replaced, as when a development node is
//! restarted, is detected at once. Cached answers are dropped when the view falls below its
//! finalized block.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
pub(crate) use wellhead_cache::ReplyContent;
use wellhead_cache::{
    Assurance, CacheRequest, Canon, FlightKey, Follow, Joined, Key, Lead, Pin, Point, Reason,
    may_be_kept, rule,
};
use wellhead_chain::View;
use wellhead_dispatch::{Job, now};
use wellhead_eth::{BlockNumber, BlockRef, ChainId, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_upstream::TryElsewhere;

use crate::request::context::RequestContext;
use crate::request::pin::{MethodCall, PinnedParams};
use crate::request::result::CallResult;
use crate::state::cache::{SharedResult, Shares, ViewCanon};
use crate::state::chain::ServedChain;
use crate::steps::height::BLOCK_NUMBER;

/// How a call is answered.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    /// By an upstream; the answer is neither kept nor shared.
    Bypass,
    /// From memory, by this.
    Hit(Bytes),
    /// By an upstream; the answer may be kept, and shared with calls that follow.
    Lead(CacheTicket),
    /// By what comes of the same call of another client.
    Follow(Follow<SharedResult>, CacheTicket),
}

/// What a call means, to know its answer again.
#[derive(Debug)]
pub(crate) struct CacheTicket {
    chain: ChainId,
    pub(crate) key: Key,
    pub(crate) pin: Pin,
    head: Option<BlockNumber>,
    /// What has to stand behind an answer that was kept.
    pub(crate) required: Assurance,
    /// Where others may wait for it.
    lead: Option<Lead<SharedResult>>,
}

/// How `job` is answered, by the view that it was pinned on: from memory, together with
/// others, or alone. Costs a comparison where the method's answers are never kept.
pub(crate) fn look_up(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    pin: &PinnedParams,
    view: &View,
) -> CacheLookup {
    let Some(shares) = &request.chain.shares else { return CacheLookup::Bypass };
    let call = MethodCall::of(job);
    let ticket =
        depends_on(request, call.row, pin, view).and_then(|of| ticket_for(request, call, of, view));
    let mut ticket = match ticket {
        Ok(ticket) => ticket,
        Err(reason) => {
            shares.refused(reason);
            return CacheLookup::Bypass;
        }
    };
    if let Some(kept) = in_memory(shares, request, &ticket, call.row, view) {
        return CacheLookup::Hit(kept);
    }
    // A client that was shown more than is agreed waits for none that was not.
    let head = request.floor(view).or(view.latest.map(|head| head.number));
    let Some(flights) = &shares.flights else { return CacheLookup::Lead(ticket) };
    match flights.join(FlightKey { key: ticket.key.clone(), head }) {
        Joined::Lead(lead) => {
            // The call before this one may have landed since the first look.
            if let Some(kept) = in_memory(shares, request, &ticket, call.row, view) {
                lead.land(SharedResult::Result(kept.clone(), None));
                return CacheLookup::Hit(kept);
            }
            ticket.lead = Some(lead);
            CacheLookup::Lead(ticket)
        }
        Joined::Follow(follow) => CacheLookup::Follow(follow, ticket),
        Joined::Alone => CacheLookup::Lead(ticket),
    }
}

/// Looks for the answer to an item of a batch, which waits for no other call: `Err` with the
/// ticket under which its answer is written, if it may be kept. Boxed, as most items have none.
pub(crate) fn look_up_item(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    pin: &PinnedParams,
    view: &View,
) -> Result<Bytes, Option<Box<CacheTicket>>> {
    let shares = request.chain.shares.as_ref().filter(|shares| shares.cache.is_some());
    let Some(shares) = shares else { return Err(None) };
    match kept_ticket(request, call, pin, view) {
        Ok(ticket) => in_memory(shares, request, &ticket, call.row, view)
            .ok_or_else(|| Some(Box::new(ticket))),
        Err(reason) => {
            shares.refused(reason);
            Err(None)
        }
    }
}

/// What an item of a batch means that is not in memory.
pub(crate) fn missing_in_memory(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    pin: &PinnedParams,
    view: &View,
) -> Option<CacheTicket> {
    let ticket = kept_ticket(request, call, pin, view).ok()?;
    let shares = request.chain.shares.as_ref()?;
    in_memory(shares, request, &ticket, call.row, view).is_none().then_some(ticket)
}

/// What the answer depends on, where it can be kept or shared. Needs no allocation.
fn depends_on(
    request: &RequestContext<'_>,
    row: &MethodRow,
    pin: &PinnedParams,
    view: &View,
) -> Result<Pin, Reason> {
    let (pulse, at) = (&request.chain.pulse, request.ctx.received_at);
    let of = Pin::of(row, pin.sent(), &ViewCanon::at(view, at))?;
    // Final answers are cached forever. A call by height may name a final block; a call at the newest
    // block does not.
    let is_by_height = matches!(of, Pin::Block(Point::Height(_) | Point::Hash(_)))
        && matches!(pin.block, BlockRef::Number(_))
        && pin.params.is_none();
    if (is_by_height || of == Pin::Inclusion)
        && let Some(cache) = request.chain.cache()
    {
        // In this order: an upstream is asked for its origin before it is asked what is final.
        if !cache.tiers.is_empty() {
            pulse.want_origin();
        }
        pulse.want_finality(at);
    }
    match of {
        // While the view is not fresh, each is to hear what there is now.
        Pin::Head if row.name == BLOCK_NUMBER => Err(Reason::Live),
        of => Ok(of),
    }
}

/// What a call means whose answer may be in memory, or why it is not looked up there.
pub(crate) fn kept_ticket(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    pin: &PinnedParams,
    view: &View,
) -> Result<CacheTicket, Reason> {
    if request.chain.cache().is_none() {
        return Err(Reason::Off);
    }
    let of = depends_on(request, call.row, pin, view)?;
    may_be_kept(call.row, of)?;
    ticket_for(request, call, of, view)
}

/// What the call means to the cache.
fn ticket_for(
    request: &RequestContext<'_>,
    MethodCall { row, params }: MethodCall<'_>,
    pin: Pin,
    view: &View,
) -> Result<CacheTicket, Reason> {
    let chain = request.chain.pulse.chain_id().ok_or(Reason::Off)?;
    let head = ViewCanon::at(view, request.ctx.received_at).head();
    // Requests share only with requests that select the same upstreams.
    let salt = request.selected().as_bytes();
    let key = Key::of(&CacheRequest { chain, row, params, pin, head, salt })?;
    let required = request.chain.required(row);
    Ok(CacheTicket { chain, key, pin, head, required, lead: None })
}

/// What a part of a search means to the cache, made by the newest view; `None` unless all of
/// it is final and such answers are kept.
pub(crate) fn part(
    chain: &ServedChain,
    MethodCall { row, params }: MethodCall<'_>,
    block: &BlockRef,
    salt: &[u8],
) -> Option<CacheTicket> {
    chain.cache()?;
    let (id, at) = (chain.pulse.chain_id()?, now());
    chain.pulse.want_finality(at);
    chain.heads.look(|view| {
        let canon = ViewCanon::at(view, at);
        let pin = Pin::of(row, *block, &canon).ok()?;
        let Pin::Range { from: Point::Final(_), to: Point::Final(_) } = pin else { return None };
        may_be_kept(row, pin).ok()?;
        let head = canon.head();
        let key = Key::of(&CacheRequest { chain: id, row, params, pin, head, salt }).ok()?;
        let required = chain.required(row);
        Some(CacheTicket { chain: id, key, pin, head, required, lead: None })
    })
}

/// Whether this client may be told so: one that was shown more than is agreed is told of nothing
/// that is missing below that.
pub(crate) fn may_be_told(request: &RequestContext<'_>, result: &[u8], view: &View) -> bool {
    !raw::is_null(result) || !request.is_shown_more(view)
}

/// The answer to a part of a search that is final, if it is in memory.
pub(crate) fn part_in_memory(
    shares: &Shares,
    chain: &ServedChain,
    ticket: &CacheTicket,
) -> Option<Bytes> {
    let (cache, at) = (shares.cache.as_ref()?, now());
    let hit = chain.heads.look(|view| {
        cache.memory.get(&ticket.key, &ViewCanon::at(view, at), ticket.required, cache.ms(at))
    });
    hit.map(|hit| hit.value)
}

/// The answer to a call, if it is in memory and may be told to this client.
fn in_memory(
    shares: &Shares,
    request: &RequestContext<'_>,
    ticket: &CacheTicket,
    row: &MethodRow,
    view: &View,
) -> Option<Bytes> {
    let cache = shares.cache.as_ref()?;
    may_be_kept(row, ticket.pin).ok()?;
    let at = request.ctx.received_at;
    let seen = request.canon(view, at);
    let hit = cache.memory.get(&ticket.key, &seen, ticket.required, cache.ms(at))?;
    may_be_told(request, &hit.value, view).then_some(hit.value)
}

/// What the cache is told of a call beside its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheWrite<'a> {
    /// With the parameters as the client wrote them.
    pub(crate) call: MethodCall<'a>,
    /// When it was answered.
    pub(crate) at: Instant,
}

impl<'a> CacheWrite<'a> {
    /// Of a call that ended with its last attempt.
    pub(crate) fn of(job: &Job<'a>, call_result: &CallResult) -> Self {
        Self { call: MethodCall::of(job), at: job.received_at + call_result.trail().lasted() }
    }
}

impl CacheTicket {
    /// Passes an answer from a slow tier to the followers.
    pub(crate) fn found(self, result: &Bytes) {
        if let Some(lead) = self.lead {
            lead.land(SharedResult::Result(result.clone(), None));
        }
    }

    /// Makes this the leader of identical calls.
    pub(crate) fn leading(self, lead: Lead<SharedResult>) -> Self {
        Self { lead: Some(lead), ..self }
    }

    /// Caches the answer of an upstream if it may be cached, and passes it to the followers.
    pub(crate) fn settle(
        self,
        chain: &ServedChain,
        write: CacheWrite<'_>,
        call_result: &CallResult,
    ) {
        let flows = ReplyContent::Unfinished;
        let (answer, landed, is_final) = match call_result {
            CallResult::Result { rest: Some(_), .. } => (flows, None, true),
            // Told, as there is nothing better, and not kept.
            CallResult::Result { result, slot, is_doubtful: true, .. } => {
                (flows, Some(SharedResult::Result(result.clone(), *slot)), true)
            }
            CallResult::Result { result, rest: None, slot, .. } => (
                ReplyContent::Result(result),
                Some(SharedResult::Result(result.clone(), *slot)),
                true,
            ),
            CallResult::Error { error, slot, trail } => {
                let is_final = trail.attempts.iter().any(|attempt| {
                    attempt.slot == *slot && attempt.class.try_elsewhere() == TryElsewhere::No
                });
                (ReplyContent::Error, Some(SharedResult::Error(error.clone(), *slot)), is_final)
            }
            CallResult::Refused { refusal, outcome, .. } => {
                let refusal = Arc::new(refusal.clone());
                (ReplyContent::Error, Some(SharedResult::Refused(refusal, *outcome)), false)
            }
        };
        let assurance = chain.assurance(write.call.row, call_result.trail());
        self.keep(chain, write, answer, assurance);
        match (self.lead, landed) {
            (Some(lead), Some(landed)) if is_final => lead.land(landed),
            (Some(lead), Some(landed)) => lead.fail(landed),
            (Some(lead), None) => lead.part(),
            (None, _) => {}
        }
    }

    /// Keeps an answer where it may be kept, by the newest view.
    pub(crate) fn keep(
        &self,
        chain: &ServedChain,
        write: CacheWrite<'_>,
        answer: ReplyContent<'_>,
        assurance: Assurance,
    ) {
        let Some(Shares { cache: Some(cache), tier_guard, .. }) = &chain.shares else { return };
        let CacheWrite { call: MethodCall { row, params }, at } = write;
        let (pin, head, now_ms) = (self.pin, self.head, cache.ms(at));
        let ask = CacheRequest { chain: self.chain, row, params, pin, head, salt: b"" };
        let ruling = chain.heads.look(|view| {
            let canon = ViewCanon::at(view, at);
            rule(&ask, answer, &canon, cache.times(), now_ms)
        });
        let ruling = ruling.map(|kept| kept.with(assurance));
        let result = match answer {
            ReplyContent::Result(result) => result,
            ReplyContent::Error | ReplyContent::Unfinished => b"",
        };
        cache.memory.put(&self.key, ruling, result);
        if let Ok(kept) = ruling
            && let Some(origin) = tier_guard.origin(&chain.pulse)
        {
            cache.tiers.put(&self.key, &origin, kept, result);
        }
    }
}
