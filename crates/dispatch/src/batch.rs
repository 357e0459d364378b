//! Several reads to one upstream in one exchange.
//!
//! One body up, one body down, each item judged by itself. Only repeatable reads are
//! batched: the caller runs an item that this upstream cannot answer
//! by itself, and all items if the exchange fails.
//!
//! A batch that is merely slow is not hedged: it is as slow as its slowest
//! item, and repeating all items would cost a hundred calls for the sake of one.
//! But a batch at a stalled upstream is abandoned: if the upstream has answered no call for
//! four times as long as nineteen in twenty exchanges take (250 ms at least, 4 s at most),
//! or if its breaker has opened, and another upstream is healthy, the exchange counts as timed
//! out, and its items continue one by one.
//!
//! An upstream that answers a batch with something else, such as a single error, is
//! not unhealthy: it does not accept batches, and gets none for a while.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_eth::{CostClass, MethodRow};
use wellhead_jsonrpc::{Envelope, scan_batch, write};
use wellhead_route::Roster;
use wellhead_transport::{
    Exchange, ExchangeFuture, MemoryBudget, Sent, TransportError, TransportErrorKind, WireReply,
};
use wellhead_upstream::{
    Change, Condition, HealthEffect, InFlight, Judge, Payload, Slot, Upstream, Verdict,
    VerdictClass,
};

use crate::attempt::{AnswerRoom, Guarded, whole};
use crate::bounds::Bounds;
use crate::client_id::ClientId;
use crate::health_log::ExchangeRecord;
use crate::hedge_timer::HedgeTimer;
use crate::inspect::{Answered, subject, with_inspection};
use crate::now;
use crate::trace_seed::{TraceSeed, TracedOrigin};
use crate::wait_queue::{Claim, Holders};
use crate::worker_upstreams::WorkerUpstreams;

/// Items in one exchange; providers that bound batches at all allow about this many,
/// and a slow item holds up no more than these.
pub const BATCH_ITEMS_MAX: usize = 100;

/// So long a batch waits for its turn at one upstream; then its calls go alone, and each
/// may go elsewhere.
const TURN_WAIT: Duration = Duration::from_secs(1);

/// One call of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchItem<'a> {
    /// The row of its method.
    pub row: &'a MethodRow,
    /// The method as the client wrote it.
    pub method: &'a str,
    /// Its params as raw JSON.
    pub params: Option<&'a [u8]>,
}

/// Where a batch runs, and for which client.
#[derive(Debug, Clone, Copy)]
pub struct BatchContext<'a> {
    /// The worker's.
    pub worker: &'a WorkerUpstreams,
    /// Where its answers are counted.
    pub room: &'a Arc<MemoryBudget>,
    /// Whose calls these are, where that is known.
    pub client: Option<ClientId>,
    /// When its request arrived.
    pub received_at: Instant,
    /// The trace of the request; see [`Job::trace`](crate::Job::trace).
    pub trace: Option<&'a TraceSeed>,
}

/// What became of a batch.
#[derive(Debug)]
pub struct BatchOutcome {
    /// One verdict an item, in the order of the items.
    pub verdicts: Vec<Verdict>,
    /// When the exchange began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// Whether it was sent at all.
    pub is_sent: bool,
    /// Whether its answers are counted in the room that was given.
    pub is_counted: bool,
}

/// Sends `items`, at most [`BATCH_ITEMS_MAX`] and at least one, to `slot`.
///
/// Resolves at `deadline` at the latest. Cancel-safe, as a single attempt is.
pub async fn run_batch(
    items: &[BatchItem<'_>],
    slot: Slot,
    roster: &Roster,
    context: BatchContext<'_>,
    bounds: &Bounds,
    deadline: Instant,
) -> BatchOutcome {
    let BatchContext { worker, room, .. } = context;
    worker.retry_budget().count_call();
    let upstream = roster.upstream(slot);
    let row = heaviest(items);
    let Some(in_flight) = admitted(items, slot, roster, context, deadline).await else {
        return held(items);
    };
    let began = in_flight.began();
    let record = ExchangeRecord::new(upstream, row, began);
    let hedge_timer = bounds
        .hedging
        .filter(|_| is_another_well(roster, slot, began))
        .map(|hedging| HedgeTimer::new(hedging.batch_delay(upstream)));
    let mut time_limit = bounds.time_limit(upstream.identity().attempt, row.class, began, deadline);
    time_limit.hedge_timer = hedge_timer.as_ref();
    let guarded = Guarded::begin(upstream, row, in_flight, time_limit);
    let bytes_max = bounds.batch_bytes_max.min(bounds.answer_bytes_max);
    let whole_max = room.step().min(bytes_max);
    let received_at = context.received_at;
    let origin = context.trace.map(|seed| TracedOrigin { seed, received_at });
    let transport = worker.transport(slot);
    let trace = origin.and_then(|origin| origin.attempt(slot, began, transport));
    let (body, deadline) = (wire_body(items), time_limit.deadline);
    let exchange = Exchange { body, deadline, whole_max, bulky: true, trace };
    let exchange = transport.exchange(exchange);
    let reply = pin!(all(exchange, bytes_max, room));
    let reply = guarded.in_time(reply);
    let reply = unless_stalled(reply, upstream, began, hedge_timer.as_ref()).await;
    let ended = now();
    let took = ended.saturating_duration_since(began);
    upstream.batch_took(took);
    let is_counted = reply.as_ref().is_ok_and(|reply| reply.body.len() > whole_max);
    let exchange = BatchExchange { items, record, ended };
    let verdicts = match reply {
        Err(error) => exchange.fail(guarded, &error, bytes_max),
        Ok(reply) => match scan_batch(&reply.body, items.len()) {
            Ok(envelopes) => {
                let verdicts = exchange.judge(guarded, &reply, &envelopes);
                let until = time_limit.deadline;
                let verdicts = inspected_items(items, worker, upstream, verdicts, until).await;
                exchange.settle_items(&verdicts);
                verdicts
            }
            Err(_) => exchange.refuse(guarded, &reply),
        },
    };
    worker.wait_queue().freed(slot);
    BatchOutcome { verdicts, began, took, is_sent: true, is_counted }
}

/// An exchange that ended.
struct BatchExchange<'a> {
    items: &'a [BatchItem<'a>],
    record: ExchangeRecord<'a>,
    ended: Instant,
}

impl BatchExchange<'_> {
    /// The exchange failed.
    fn fail(&self, guarded: Guarded<'_>, error: &TransportError, bytes_max: usize) -> Vec<Verdict> {
        if error.kind == TransportErrorKind::TooLarge {
            // Its items are asked for one by one, so that the caller can stop when it holds enough.
            guarded.give_up();
            let detail = format!("the answers are longer than {bytes_max} bytes together");
            return self.alone("batch-too-large", detail);
        }
        vec![guarded.fail(error, self.ended); self.items.len()]
    }

    /// The upstream answered with something else than a batch.
    fn refuse(&self, mut guarded: Guarded<'_>, reply: &WireReply) -> Vec<Verdict> {
        let ExchangeRecord { upstream, row, .. } = self.record;
        let verdict = upstream.redacted(Judge::standard().reply(row, reply));
        if verdict.class.is_between_us_and_the_upstream() {
            guarded.settle(&verdict, self.ended, self.ended);
        } else {
            guarded.give_up();
            upstream.refuses_batches(self.ended);
            let (id, detail) = (&upstream.identity().id, verdict.detail());
            tracing::info!(upstream = %id, %detail, "upstream does not accept batches; sending calls one by one");
            self.record.tell(&verdict, Change::None, self.ended);
        }
        self.alone("batch-refused", "the reply to the batch is not a batch".to_owned())
    }

    /// A verdict for each item by which it is asked for alone.
    fn alone(&self, rule: &'static str, detail: String) -> Vec<Verdict> {
        let verdict = Verdict::new(VerdictClass::Fault, rule, Payload::None { detail });
        vec![verdict; self.items.len()]
    }

    /// The upstream's part is done: its answers are judged.
    fn judge(
        &self,
        mut guarded: Guarded<'_>,
        reply: &WireReply,
        envelopes: &[Envelope],
    ) -> Vec<Verdict> {
        let verdicts = judge_items(self.items, reply, envelopes);
        let verdicts = verdicts.into_iter().map(|it| self.record.upstream.redacted(it)).collect();
        guarded.hand_over(self.ended);
        verdicts
    }

    /// One exchange is one sign of health of each kind, however many items show it; only
    /// what is learnt of a method is learnt for each.
    fn settle_items(&self, verdicts: &[Verdict]) {
        let Self { items, record, ended } = *self;
        let mut seen: Vec<HealthEffect> = Vec::new();
        for (item, verdict) in items.iter().zip(verdicts) {
            if verdict.class != VerdictClass::Unsupported {
                if seen.contains(&verdict.health) {
                    continue;
                }
                seen.push(verdict.health);
            }
            let change = record.upstream.settle_shared(item.row, verdict, record.began, ended);
            if change != Change::None || verdict.health != HealthEffect::Good {
                ExchangeRecord { row: item.row, ..record }.tell(verdict, change, ended);
            }
        }
    }
}

/// An upstream that has answered no call for this many times longer than most exchanges take is
/// stalled, as for single calls.
const QUIET_FACTOR: u32 = 4;

fn is_another_well(roster: &Roster, slot: Slot, now: Instant) -> bool {
    let mut others = roster.upstreams().iter().filter(|other| other.slot() != slot);
    others.any(|other| other.condition(now) == Condition::Ready)
}

/// Waits for `reply` until its upstream stalls, looking whenever the timer rings.
async fn unless_stalled(
    reply: impl Future<Output = Result<WireReply, TransportError>>,
    upstream: &Upstream,
    began: Instant,
    hedge_timer: Option<&HedgeTimer>,
) -> Result<WireReply, TransportError> {
    let mut reply = pin!(reply);
    let mut noted = None;
    poll_fn(|cx| {
        if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
            return Poll::Ready(reply);
        }
        let Some(hedge_timer) = hedge_timer.filter(|hedge_timer| hedge_timer.take_ring()) else {
            return Poll::Pending;
        };
        let now = now();
        upstream.overdue(began, noted.replace(now), now);
        let is_quiet = now.saturating_duration_since(began) >= hedge_timer.after() * QUIET_FACTOR
            && !upstream.was_heard_after(began);
        if !is_quiet && upstream.condition(now) == Condition::Ready {
            return Poll::Pending;
        }
        let what = "silent while other upstreams are healthy; its calls continue one by one";
        Poll::Ready(Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, what)))
    })
    .await
}

/// The whole answer, when there is or will be room for it.
async fn all(
    exchange: ExchangeFuture<'_>,
    bytes_max: usize,
    room: &Arc<MemoryBudget>,
) -> Result<WireReply, TransportError> {
    let mut reply = exchange.await?;
    if let Some(rest) = reply.rest.take() {
        let first = std::mem::take(&mut reply.body);
        // What a batch takes teaches no limit.
        let mut waited = Duration::ZERO;
        let room = AnswerRoom { memory: room, may_overdraw: false };
        reply.body = Box::pin(whole(first, rest, bytes_max, Some(room), &mut waited)).await?;
    }
    Ok(reply)
}

/// The exchange's turn: at once, or after a short wait. A batch costs what its calls cost.
async fn admitted(
    items: &[BatchItem<'_>],
    slot: Slot,
    roster: &Roster,
    context: BatchContext<'_>,
    deadline: Instant,
) -> Option<InFlight> {
    let BatchContext { worker, client, .. } = context;
    let try_admit = |upstream: &Arc<Upstream>, now: Instant| {
        worker.try_admit(upstream, items.iter().map(|item| item.row), true, client, now)
    };
    let (queue, claim, began) = (worker.wait_queue(), Claim::of_batch(client), now());
    let held = match queue.admit(roster.upstream(slot), claim, try_admit, began) {
        Ok(in_flight) => return Some(in_flight),
        Err(held) => Holders::and(None, slot, held),
    };
    let until = deadline.min(began + TURN_WAIT);
    let turn = Box::pin(queue.wait(&[slot], held, claim, try_admit, roster, until)).await;
    turn.ok().map(|(_, in_flight)| in_flight)
}

/// No upstream was called.
fn held(items: &[BatchItem<'_>]) -> BatchOutcome {
    let detail = "the upstream is at a bound".to_owned();
    let verdict = Verdict::new(VerdictClass::Throttled, "batch-held", Payload::None { detail });
    BatchOutcome {
        verdicts: vec![verdict; items.len()],
        began: now(),
        took: Duration::ZERO,
        is_sent: false,
        is_counted: false,
    }
}

/// The item by which the exchange is timed.
fn heaviest<'a>(items: &[BatchItem<'a>]) -> &'a MethodRow {
    let weight = |class: CostClass| match class {
        CostClass::Light => 0,
        CostClass::State => 1,
        CostClass::Block => 2,
        CostClass::Call => 3,
        CostClass::Write => 4,
        CostClass::Logs => 5,
        CostClass::Trace => 6,
    };
    let heaviest = items.iter().map(|item| item.row).max_by_key(|row| weight(row.class));
    heaviest.expect("a batch has at least one item")
}

/// Each item carries its place as its id.
fn wire_body(items: &[BatchItem<'_>]) -> Bytes {
    let size = |item: &BatchItem<'_>| 64 + item.method.len() + item.params.map_or(2, <[u8]>::len);
    let mut body = Vec::with_capacity(2 + items.iter().map(size).sum::<usize>());
    body.push(b'[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        write::call(&mut body, place as u64, item.method, item.params);
    }
    body.push(b']');
    Bytes::from(body)
}

/// Finds each item's reply by its id; replies may come in any order.
fn judge_items(items: &[BatchItem<'_>], reply: &WireReply, envelopes: &[Envelope]) -> Vec<Verdict> {
    let judge = Judge::standard();
    let mut found: Vec<Option<Verdict>> = (0..items.len()).map(|_| None).collect();
    for envelope in envelopes {
        let Some(place) = envelope.id.and_then(|id| place(id.of(&reply.body))) else { continue };
        // Of two replies under one id neither can be trusted more: the first stays.
        if let (Some(empty @ None), Some(item)) = (found.get_mut(place), items.get(place)) {
            *empty = Some(judge.item(item.row, reply, envelope));
        }
    }
    let missing = || {
        let detail = "the batch came back without this item".to_owned();
        let verdict =
            Verdict::new(VerdictClass::Fault, "batch-item-missing", Payload::None { detail });
        Verdict { health: HealthEffect::Neutral, ..verdict }
    };
    found.into_iter().map(|verdict| verdict.unwrap_or_else(missing)).collect()
}

/// Has the results among the verdicts looked at, all of them together.
async fn inspected_items(
    items: &[BatchItem<'_>],
    worker: &WorkerUpstreams,
    upstream: &Arc<Upstream>,
    verdicts: Vec<Verdict>,
    until: Instant,
) -> Vec<Verdict> {
    let Some(inspect) = worker.inspect() else { return verdicts };
    let (mut places, mut answers) = (Vec::new(), Vec::new());
    for (place, (item, verdict)) in items.iter().zip(&verdicts).enumerate() {
        if let Some(result) = subject(verdict).filter(|_| inspect.is_asked(upstream, item.row)) {
            places.push(place);
            answers.push(Answered { row: item.row, params: item.params, result });
        }
    }
    if places.is_empty() {
        return verdicts;
    }
    let inspections = inspect.inspect(upstream, answers, until).await;
    let mut found = places.into_iter().zip(inspections).peekable();
    let each = verdicts.into_iter().enumerate();
    each.map(|(place, verdict)| match found.next_if(|(of, _)| *of == place) {
        Some((_, inspection)) => with_inspection(upstream, verdict, inspection),
        None => verdict,
    })
    .collect()
}

fn place(id: &[u8]) -> Option<usize> {
    let is_plain = !id.is_empty() && id.len() <= 4 && id.iter().all(u8::is_ascii_digit);
    is_plain.then(|| id.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
