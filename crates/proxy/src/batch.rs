//! A batch: each call is answered by itself, and reads for one upstream are sent to it together.
//!
//! Repeatable reads of quick classes can share an exchange. They are planned like single calls; the
//! first upstream in the plan of the first call gets all calls for which it is fit, in one exchange
//! of bounded size. A call that this upstream cannot answer, or all of them if the exchange fails,
//! then continues by itself, so no call does worse than alone.
//!
//! The replies of one batch hold at most `limits.batch_bytes` together, plus one answer; further
//! calls are refused without an attempt, because one batch could request the largest answer a
//! thousand times. Memory for an answer is reserved before its call is sent ([`Pile`]), within the
//! memory budget; a reply for which there is none is refused, and the others stay.
//!
//! Cached answers do not go upstream at all, and new ones are cached like those of single calls;
//! calls that share an exchange neither wait for identical calls of other clients nor are waited
//! for.
//!
//! Traces, logs, writes and filters are sent one by one from the start: one slow call would delay
//! all others of its exchange.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use wellhead_chain::View;
use wellhead_dispatch::{
    Attempt, BATCH_ITEMS_MAX, BatchContext, BatchItem, BatchOutcome, Trail, now, run_batch,
};
use wellhead_eth::{CostClass, Effect, MethodRow, MethodTable};
use wellhead_jsonrpc::{Call, Malformed};
use wellhead_route::{Fitness, PlanRequest, assess, plan};
use wellhead_transport::{FREE_BYTES, MemoryBudget, Reservation, Shortage};
use wellhead_upstream::{Payload, Slot, TryElsewhere, UpstreamSet, Verdict, VerdictClass};

use crate::answer::{Answer, Refusal};
use crate::blocks::is_ahead;
use crate::call::{Report, handle_and_count, refuse_and_count};
use crate::line::{InBatch, Line, Methods};
use crate::request::context::RequestContext;
use crate::request::pin::{MethodCall, PinnedCall, PinnedParams};
use crate::request::reply::{Reply, write_malformed};
use crate::state::by_hash::ByHash;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome};
use crate::steps::cached::{self, CacheTicket, CacheWrite};
use crate::steps::charge::{self, CallEnd, ChargedCall};
use crate::steps::planning::pinned_in_batch;
use crate::steps::{floor, observe, recall, tiers};
use crate::trace::{RequestTrace, TracedCall, TracedExchange};

/// Bytes of a body for which memory is taken at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// An item of the client's batch.
type Item = Result<Call, Malformed>;

/// What goes upstream as one.
enum Work<'a> {
    One(usize),
    Together(Slot, Vec<BatchMember<'a>>),
}

/// Reads that one upstream is fit for, while they are found.
struct Group<'a> {
    slot: Slot,
    members: Vec<BatchMember<'a>>,
    /// What the last member asks of the upstream; most items of a batch ask for the same.
    last: PlanRequest<'a>,
}

impl<'a> Group<'a> {
    fn into_work(self) -> Work<'a> {
        match self.members.as_slice() {
            // Alone it needs no brackets around it.
            [only] => Work::One(only.place),
            _ => Work::Together(self.slot, self.members),
        }
    }
}

/// A read that goes together with others.
struct BatchMember<'a> {
    place: usize,
    call: &'a Call,
    row: &'static MethodRow,
    pin: PinnedParams,
    /// What the cache is told of its answer.
    ticket: Option<Box<CacheTicket>>,
}

/// What became of one item.
struct ItemResult {
    place: usize,
    /// `None` for a malformed item, which is worded where the batch is written.
    reply: Option<Reply>,
    /// What it is charged by.
    outcome: CallOutcome,
    /// It was answered from the cache.
    is_cached: bool,
    /// What upstreams charge for it.
    credits_out: u64,
    /// The upstream that answered, if one did.
    slot: Option<Slot>,
    attempts: usize,
    trail: String,
}

impl ItemResult {
    /// An item, as it is where no upstream was asked for it.
    fn new(place: usize, reply: Option<Reply>, outcome: CallOutcome) -> Self {
        Self {
            place,
            reply,
            outcome,
            is_cached: false,
            credits_out: 0,
            slot: None,
            attempts: 0,
            trail: String::new(),
        }
    }

    fn refused(place: usize, refusal: Refusal) -> Self {
        Self::new(place, Some(Reply::Refused(refusal)), CallOutcome::Refused)
    }

    /// Whether its client has no answer: it may have come, and found no room.
    fn is_failed(&self) -> bool {
        self.outcome != CallOutcome::Answered || self.reply.as_ref().is_some_and(Reply::is_refused)
    }
}

/// What is told of all items of a batch together.
#[derive(Default)]
struct Sums {
    attempts: usize,
    failed: usize,
    /// Empty where the client does not ask for it.
    trail: String,
    upstreams: UpstreamSet,
}

impl Sums {
    fn add(&mut self, item: &ItemResult) {
        item.slot.into_iter().for_each(|slot| self.upstreams.insert(slot));
        self.failed += usize::from(item.is_failed());
        self.attempts += item.attempts;
        if !item.trail.is_empty() {
            self.trail.push_str(&item.trail);
            self.trail.push_str("; ");
        }
    }
}

/// The replies of a batch so far, as bytes of the body that they will be.
///
/// What is held of them has room in the memory budget of the batch: each answer a step before it is
/// asked for, and more as it comes where it is longer. What one answer needs beyond that is room below
/// the budget of all answers, and then no further one is asked for.
struct Pile<'a> {
    bytes_max: usize,
    room: &'a Arc<MemoryBudget>,
    /// Its calls run on one thread, and none is held across a wait.
    state: Mutex<PileState>,
}

#[derive(Default)]
struct PileState {
    bytes: usize,
    /// Of answers that have no room of their own.
    small: Option<Reservation>,
}

impl<'a> Pile<'a> {
    fn new(request: &'a RequestContext<'_>) -> Self {
        let bytes_max = request.chain.bounds.batch_bytes_max;
        Self { bytes_max, room: request.answers(), state: Mutex::default() }
    }

    fn is_full(&self) -> bool {
        self.state.lock().bytes > self.bytes_max || self.room.is_overdrawn()
    }

    /// Room for the beginning of an answer, held while it is asked for; `None` when there is none.
    fn reserve(&self) -> Option<Reservation> {
        self.room.try_hold_within(self.room.step())
    }

    /// Whether an answer may be asked for that was given this room. Where the batch has room and all
    /// answers together have none, one that is small may be had.
    fn may_ask(&self, room: &Option<Reservation>) -> bool {
        !self.is_full() && (room.is_some() || self.room.is_worth_waiting(self.room.step()))
    }

    /// Counts the reply; a refusal takes its place when there is no room for it. Those of one exchange
    /// may be counted already, together.
    fn add(&self, reply: &mut Reply, is_counted: bool) {
        let more = reply.bytes();
        let mut state = self.state.lock();
        let bytes = state.bytes + more;
        // What is longer than a step was read within the memory budget of the batch.
        let is_counted = is_counted || more > self.room.step();
        let has_room = match (&mut *reply, &mut state.small) {
            _ if more == 0 || is_counted || bytes <= FREE_BYTES => true,
            // It is not copied, and goes its own way.
            (Reply::Result(result), _) if more > FREE_BYTES => {
                let reservation = self.room.try_hold_within(more);
                let has_room = reservation.is_some();
                if let Some(reservation) = reservation {
                    *result = reservation.around(std::mem::take(result));
                }
                has_room
            }
            (_, Some(reservation)) => reservation.grow_within(reservation.bytes() + more),
            (_, none @ None) => {
                *none = self.room.try_hold_within(more);
                none.is_some()
            }
        };
        if has_room {
            state.bytes = bytes;
            return;
        }
        self.room.note(Shortage::Refused);
        *reply = Reply::Refused(match self.room.is_worth_waiting(more) {
            true => Refusal::no_room(),
            false => Refusal::batch_too_large(self.bytes_max),
        });
    }
}

/// The replies so far, by the place of their items, and the sums of what is told of them.
struct Replies<'a> {
    by_place: Vec<Option<Reply>>,
    sums: Sums,
    /// By place; empty where the caller is not charged.
    charges: Vec<ChargedCall<'a>>,
}

impl<'a> Replies<'a> {
    fn new(items: usize) -> Self {
        let by_place = (0..items).map(|_| None).collect();
        Self { by_place, sums: Sums::default(), charges: Vec::new() }
    }

    fn put(&mut self, item: ItemResult) {
        if let Some(charge) = self.charges.get_mut(item.place) {
            charge.settle(CallEnd {
                outcome: item.outcome,
                found: item.is_cached.then_some(CacheResult::Hit),
                slot: item.slot,
                credits_out: item.credits_out,
                bytes_out: item.reply.as_ref().map_or(0, Reply::bytes),
            });
        }
        self.sums.add(&item);
        self.by_place[item.place] = item.reply;
    }

    /// Charges each call, in order; those that the caller may not make are refused.
    async fn charge(&mut self, request: &RequestContext<'a>, items: &[Item]) {
        if request.payer().is_none() {
            return;
        }
        for (place, item) in items.iter().enumerate() {
            let Ok(call) = item else {
                self.charges.push(ChargedCall::default());
                continue;
            };
            let row = MethodTable::standard().row(call.method());
            let charge = charge::charge(request, row, call).await.unwrap_or_else(|refusal| {
                let (Report { reply, outcome, .. }, _) = refuse_and_count(request, row, refusal);
                self.put(ItemResult::new(place, Some(reply), outcome));
                ChargedCall::default()
            });
            self.charges.push(charge);
        }
    }

    /// Whether the item has its reply already.
    fn is_settled(&self, place: usize) -> bool {
        self.by_place[place].is_some()
    }
}

/// Answers the items side by side, a bounded number of exchanges at a time, and puts
/// the replies together in the order of the items. One slow call holds up no other.
pub(crate) async fn answer(
    request: &RequestContext<'_>,
    items: &[Item],
    parallel: usize,
) -> (Answer, Line) {
    let pile = Pile::new(request);
    let mut replies = Replies::new(items.len());
    replies.charge(request, items).await;
    if tiers::are_there(request) {
        let wanted = request.look(|view| wanted(request, items, &replies, view));
        // Boxed, as few proxies have slow tiers.
        Box::pin(tiers::fetch_all(request, wanted)).await;
    }
    let (work, kept, methods) = request.look(|view| divide(request, items, &replies, view));
    for item in kept {
        replies.put(from_memory(request, item, &pile));
    }
    perform_all(request, items, work, parallel, &pile, &mut replies).await;
    // What a call holds of its caller's limits is given back.
    let Replies { by_place, sums, charges: _ } = replies;
    let body = write(items, by_place, pile);
    let Sums { attempts, failed, trail, upstreams } = sums;
    let answer = Answer {
        status: if body.is_empty() { 204 } else { 200 },
        body,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        trail: request.ctx.want_trail.then_some(trail),
        ..Answer::default()
    };
    let of_batch = Box::new(InBatch { methods, upstreams });
    let line = Line {
        method: "batch".into(),
        calls: items.len(),
        failed,
        took: now().saturating_duration_since(request.ctx.received_at),
        batch: Some(of_batch),
    };
    (answer, line)
}

/// Performs the work, at most `parallel` exchanges at a time; an item that an exchange does not
/// settle goes alone.
async fn perform_all(
    request: &RequestContext<'_>,
    items: &[Item],
    work: Vec<Work<'_>>,
    parallel: usize,
    pile: &Pile<'_>,
    replies: &mut Replies<'_>,
) {
    let mut waiting = VecDeque::from(work);
    let mut running = FuturesUnordered::new();
    loop {
        let Performed { settled, alone } = if running.is_empty() && waiting.len() == 1 {
            // What stays together as a whole needs no set of futures.
            let Some(work) = waiting.pop_front() else { break };
            perform(request, items, work, pile, pile.reserve()).await
        } else {
            while running.len() < parallel && !waiting.is_empty() {
                let room = pile.reserve();
                // Those under way give back what they do not need.
                if room.is_none() && !running.is_empty() {
                    break;
                }
                let Some(work) = waiting.pop_front() else { break };
                running.push(perform(request, items, work, pile, room));
            }
            let Some(performed) = running.next().await else { break };
            performed
        };
        waiting.extend(alone.into_iter().map(Work::One));
        settled.into_iter().for_each(|item| replies.put(item));
    }
}

/// All replies in order, in pieces; none when there were only notifications. The larger ones are not
/// copied: they would be held twice.
fn write(items: &[Item], mut replies: Vec<Option<Reply>>, pile: Pile<'_>) -> Vec<Bytes> {
    let PileState { bytes, small } = pile.state.into_inner();
    let mut pieces = Vec::new();
    let mut out = Vec::with_capacity(bytes.min(COPIED_AT_ONCE) + 64 * items.len());
    let mut is_first = true;
    for (item, reply) in items.iter().zip(&mut replies) {
        let begin = out.len();
        out.push(if is_first { b'[' } else { b',' });
        match (item, reply) {
            (Err(malformed), _) => write_malformed(&mut out, malformed),
            (Ok(call), Some(reply)) if !call.is_notification() => {
                if let Some(result) = reply.write_around(call.id(), &mut out) {
                    pieces.push(std::mem::take(&mut out).into());
                    pieces.push(result);
                    out.push(b'}');
                }
            }
            (Ok(_), Some(_) | None) => {
                out.truncate(begin);
                continue;
            }
        }
        is_first = false;
    }
    if is_first {
        return Vec::new();
    }
    out.push(b']');
    // The copies take the room of those that were copied.
    pieces.push(pile.room.around(out.into(), small));
    pieces
}

/// An item of a batch whose answer was kept.
struct CachedItem {
    place: usize,
    row: &'static MethodRow,
    answer: Bytes,
}

/// Sorts the items into exchanges, and those whose answer was kept.
fn divide<'a>(
    request: &RequestContext<'_>,
    items: &'a [Item],
    replies: &Replies<'_>,
    view: &View,
) -> (Vec<Work<'a>>, Vec<CachedItem>, Methods) {
    let (chain, now, mut lead) = (request.chain, now(), None::<Group<'a>>);
    let (mut work, mut kept, mut methods) = (Vec::new(), Vec::new(), Methods::default());
    for (place, item) in items.iter().enumerate() {
        let Ok(call) = item else {
            work.push(Work::One(place));
            continue;
        };
        let row = MethodTable::standard().row(call.method());
        methods.count(row.name);
        if replies.is_settled(place) {
            continue;
        }
        let pinned = may_share(row).then(|| pinned_in_batch(request, call, row, view)).flatten();
        let Some(PinnedCall { ask, pin }) = pinned else {
            work.push(Work::One(place));
            continue;
        };
        let of = MethodCall { row, params: call.params() };
        let ticket = match cached::look_up_item(request, of, &pin, view) {
            Ok(answer) => {
                let answer = recall::recall(request, of, &pin.block, None, answer);
                kept.push(CachedItem { place, row, answer });
                continue;
            }
            Err(ticket) => ticket,
        };
        let member = BatchMember { place, call, row, pin, ticket };
        let is_fit = |slot: Slot, ask: &PlanRequest<'_>| {
            let it = chain.roster.upstream(slot);
            it.takes_batches(now) && assess(ask, it, view, now) == Fitness::Fit
        };
        match &mut lead {
            Some(group) if group.last.is_alike(&ask) || is_fit(group.slot, &ask) => {
                group.members.push(member);
                group.last = ask;
                if group.members.len() == BATCH_ITEMS_MAX {
                    work.extend(lead.take().map(Group::into_work));
                }
            }
            Some(_) => work.push(Work::One(place)),
            None => {
                let plan = request.worker.with_rng(|rng| plan(&ask, view, &chain.roster, now, rng));
                match plan.candidates().first().filter(|slot| is_fit(**slot, &ask)) {
                    Some(slot) => {
                        lead = Some(Group { slot: *slot, members: vec![member], last: ask });
                    }
                    None => work.push(Work::One(place)),
                }
            }
        }
    }
    work.extend(lead.map(Group::into_work));
    (work, kept, methods)
}

/// What of a batch may be in a slow tier.
fn wanted(
    request: &RequestContext<'_>,
    items: &[Item],
    replies: &Replies<'_>,
    view: &View,
) -> Vec<CacheTicket> {
    let open = items.iter().enumerate().filter(|(place, _)| !replies.is_settled(*place));
    let calls = open.filter_map(|(_, item)| item.as_ref().ok());
    let wanted = calls.filter_map(|call| {
        let row = MethodTable::standard().row(call.method());
        let pinned = may_share(row).then(|| pinned_in_batch(request, call, row, view)).flatten()?;
        let of = MethodCall { row, params: call.params() };
        let ticket = cached::missing_in_memory(request, of, &pinned.pin, view)?;
        tiers::may_have(request, &ticket, row).then_some(ticket)
    });
    wanted.collect()
}

/// Whether calls of this kind may share an exchange.
fn may_share(row: &MethodRow) -> bool {
    let is_quick = !row.class.is_heavy() && row.class != CostClass::Write;
    row.effect == Effect::Read && row.idempotent && is_quick
}

/// What became of some work: items that are settled, and those that have to go alone.
struct Performed {
    settled: Vec<ItemResult>,
    alone: Vec<usize>,
}

async fn perform(
    request: &RequestContext<'_>,
    items: &[Item],
    work: Work<'_>,
    pile: &Pile<'_>,
    room: Option<Reservation>,
) -> Performed {
    let settled = |settled| Performed { settled, alone: Vec::new() };
    match work {
        Work::One(place) => match &items[place] {
            Ok(call) => settled(vec![alone(request, place, call, pile, room).await]),
            Err(_) => settled(vec![ItemResult::new(place, None, CallOutcome::Refused)]),
        },
        Work::Together(slot, members) => together(request, slot, members, pile, room).await,
    }
}

/// The answer to an item, where it was kept.
fn from_memory(
    request: &RequestContext<'_>,
    CachedItem { place, row, answer }: CachedItem,
    pile: &Pile<'_>,
) -> ItemResult {
    if pile.is_full() {
        return too_large(place, pile);
    }
    let (counts, took) = (request.chain.counts(), now() - request.ctx.received_at);
    counts.observe(row, CallOutcome::Answered, took, &[]);
    request.chain.note_found(row, CacheResult::Hit);
    trace_item(request, row, CallOutcome::Answered, Some(CacheResult::Hit), took, now());
    let mut reply = Reply::Result(answer);
    pile.add(&mut reply, false);
    let answered = ItemResult::new(place, Some(reply), CallOutcome::Answered);
    ItemResult { is_cached: true, ..answered }
}

async fn alone(
    request: &RequestContext<'_>,
    place: usize,
    call: &Call,
    pile: &Pile<'_>,
    room: Option<Reservation>,
) -> ItemResult {
    if !pile.may_ask(&room) {
        return too_large(place, pile);
    }
    let began = now();
    let (mut report, lasted) = handle_and_count(request, call, began, false).await;
    // What has come is counted as it is.
    drop(room);
    let trail =
        if request.ctx.want_trail { report.line(&request.chain.roster) } else { String::new() };
    let (attempts, credits_out) =
        (report.trail.exchanges(), charge::credits_out(request.chain, report.row, &report.trail));
    if let Some(trace) = request.trace {
        trace.note_call(report.take_traced(call, began, request.ctx.received_at + lasted));
    }
    let mut reply = report.reply;
    match &reply {
        // It was the batch that left no room.
        Reply::Refused(refusal) if refusal.is_no_room() && pile.is_full() => {
            reply = Reply::Refused(Refusal::batch_too_large(pile.bytes_max));
        }
        _ => pile.add(&mut reply, false),
    }
    ItemResult {
        is_cached: report.noted.found == Some(CacheResult::Hit),
        credits_out,
        slot: report.slot,
        attempts,
        trail,
        ..ItemResult::new(place, Some(reply), report.outcome)
    }
}

fn too_large(place: usize, pile: &Pile<'_>) -> ItemResult {
    ItemResult::refused(place, Refusal::batch_too_large(pile.bytes_max))
}

/// Notes an item for the trace that has no attempts of its own: of an exchange that `began` for several, or kept.
/// It `took` what was counted.
fn trace_item(
    request: &RequestContext<'_>,
    row: &'static MethodRow,
    outcome: CallOutcome,
    found: Option<CacheResult>,
    took: Duration,
    began: Instant,
) {
    if let Some(trace) = request.trace {
        // No call of a method that the table lacks shares an exchange or is kept.
        let (method, ended, trail) = (row.name.into(), now(), Trail::default());
        trace.note_call(TracedCall { row, method, outcome, found, began, ended, took, trail });
    }
}

/// One exchange for all members; those that it does not settle go alone.
async fn together(
    request: &RequestContext<'_>,
    slot: Slot,
    mut members: Vec<BatchMember<'_>>,
    pile: &Pile<'_>,
    room: Option<Reservation>,
) -> Performed {
    if !pile.may_ask(&room) {
        let settled = members.iter().map(|member| too_large(member.place, pile)).collect();
        return Performed { settled, alone: Vec::new() };
    }
    let paid = request.allowance().take(u32::try_from(members.len()).unwrap_or(u32::MAX));
    let unpaid = members.split_off(paid as usize);
    let refusal = || Refusal::calls_spent(request.allowance().max());
    let settled = unpaid.iter().map(|it| ItemResult::refused(it.place, refusal())).collect();
    let mut performed = Performed { settled, alone: Vec::new() };
    if members.is_empty() {
        return performed;
    }
    let outcome = exchange(request, slot, &members, pile).await;
    if !outcome.is_sent {
        request.allowance().give_back(paid);
    }
    // What has come is counted as it is.
    drop(room);
    settle(request, slot, &members, pile, outcome, &mut performed);
    performed
}

/// Sends the calls of all members to one upstream.
async fn exchange(
    request: &RequestContext<'_>,
    slot: Slot,
    members: &[BatchMember<'_>],
    pile: &Pile<'_>,
) -> BatchOutcome {
    let chain = request.chain;
    let calls: Vec<BatchItem<'_>> = members
        .iter()
        .map(|it| {
            let params = it.pin.params(slot, it.call.params());
            BatchItem { row: it.row, method: it.call.method(), params }
        })
        .collect();
    request.progress.begin(slot);
    let context = BatchContext {
        worker: request.worker,
        room: pile.room,
        client: request.progress.client(),
        received_at: request.ctx.received_at,
        trace: request.trace.map(RequestTrace::seed),
    };
    run_batch(&calls, slot, &chain.roster, context, &chain.bounds, request.deadline()).await
}

/// Sorts the members by whether their verdicts settle them, counts and notes what was said.
fn settle(
    request: &RequestContext<'_>,
    slot: Slot,
    members: &[BatchMember<'_>],
    pile: &Pile<'_>,
    outcome: BatchOutcome,
    performed: &mut Performed,
) {
    let (chain, received_at) = (request.chain, request.ctx.received_at);
    let BatchOutcome { verdicts, began, took, is_counted: is_held, .. } = outcome;
    let ended = began + took;
    performed.settled.reserve(members.len());
    let unpaid = performed.settled.len();
    let mut is_counted = false;
    let mut tally =
        ItemTally { chain, took: ended.saturating_duration_since(received_at), alike: None };
    for (member, verdict) in members.iter().zip(verdicts) {
        let attempt = Attempt {
            slot,
            after: began.saturating_duration_since(received_at),
            took,
            class: verdict.class,
            rule: verdict.rule,
            learnt: None,
            detail: String::new(),
        };
        let Some((mut reply, outcome)) = member_reply(request, slot, member, verdict, ended) else {
            chain.counts().attempted(&attempt);
            performed.alone.push(member.place);
            continue;
        };
        pile.add(&mut reply, is_held);
        tally.count(member.row, outcome, attempt);
        trace_item(request, member.row, outcome, None, tally.took, began);
        // The exchange counts once, with the first item that it settled.
        let attempts = usize::from(!std::mem::replace(&mut is_counted, true));
        performed.settled.push(ItemResult {
            credits_out: chain.roster.upstream(slot).price(member.row),
            slot: Some(slot),
            attempts,
            ..ItemResult::new(member.place, Some(reply), outcome)
        });
    }
    tally.flush();
    let settled = performed.settled.len() - unpaid;
    if let Some(trace) = request.trace {
        let calls = members.len();
        trace.note_exchange(TracedExchange { slot, calls, settled, began, took });
    }
    if request.ctx.want_trail
        && let Some(first) = performed.settled.first_mut()
    {
        let id = &chain.roster.upstream(slot).identity().id;
        first.trail = format!("{id}=batch of {}:{}ms", members.len(), took.as_millis());
    }
}

/// What the verdict on its part of the exchange means for a member; `None`: it goes alone.
fn member_reply(
    request: &RequestContext<'_>,
    slot: Slot,
    member: &BatchMember<'_>,
    verdict: Verdict,
    ended: Instant,
) -> Option<(Reply, CallOutcome)> {
    let block = &member.pin.block;
    // It may have been refused for the hash alone.
    let is_unsure = member.pin.is_by_hash_at(slot) && ByHash::must_repeat_alone(verdict.class);
    let is_null = verdict.class == VerdictClass::Null;
    let is_settled = !is_unsure
        && (verdict.elsewhere == TryElsewhere::No
            || (is_null && request.look(|view| is_ahead(block, view))));
    let is_below = |result: &Bytes| floor::missed(request, member.row, block, result).is_some();
    match (is_settled, verdict.payload) {
        (true, Payload::Result(result)) if !is_below(&result) => {
            let result = learn(request, slot, member, verdict.rule, result, ended);
            Some((Reply::Result(result), CallOutcome::Answered))
        }
        (true, Payload::Error(error)) => Some((Reply::Error(error), CallOutcome::UpstreamError)),
        (true, Payload::Result(_) | Payload::None { .. }) | (false, _) => None,
    }
}

/// Learns the head from a member's result and keeps it; returns it as this client may see it.
fn learn(
    request: &RequestContext<'_>,
    slot: Slot,
    member: &BatchMember<'_>,
    rule: &'static str,
    result: Bytes,
    ended: Instant,
) -> Bytes {
    let (chain, BatchMember { row, pin, .. }) = (request.chain, member);
    observe::observe_head(chain, slot, row, &pin.block, &result, ended);
    let call = MethodCall { row, params: member.call.params() };
    if let Some(ticket) = &member.ticket {
        // Asked by the height, it may be of any block there.
        if pin.is_by_hash_at(slot) || !pin.is_by_hash() {
            let assurance = chain.assurance_of(row, slot, rule);
            let answer = cached::ReplyContent::Result(&result);
            ticket.keep(chain, CacheWrite { call, at: ended }, answer, assurance);
        }
        chain.note_found(row, CacheResult::Miss);
    }
    recall::recall(request, call, &pin.block, Some(slot), result)
}

/// Counts the items of one exchange, those in a row that went alike at once: most
/// batches ask for the same a hundred times.
struct ItemTally<'a> {
    chain: &'a ServedChain,
    took: Duration,
    alike: Option<(&'static MethodRow, CallOutcome, Attempt, u64)>,
}

impl ItemTally<'_> {
    fn count(&mut self, row: &'static MethodRow, outcome: CallOutcome, attempt: Attempt) {
        match &mut self.alike {
            Some((its_row, its_outcome, its, times))
                if its_row.index == row.index
                    && *its_outcome == outcome
                    && its.class == attempt.class =>
            {
                *times += 1;
            }
            _ => {
                self.flush();
                self.alike = Some((row, outcome, attempt, 1));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((row, outcome, attempt, times)) = self.alike.take() {
            self.chain.counts().observe_alike(row, outcome, self.took, &attempt, times);
        }
    }
}
