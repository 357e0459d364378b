//! A simulated upstream: a node that tells the truth of its world, and what stands
//! between it and us: a meter, a queue, the weather, and its own way of writing.
//!
//! What goes wrong is decided when an exchange arrives; only a dying connection takes
//! with it what came before. The truth is computed by [`SimNode`], never here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy_primitives::keccak256;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};
use wellhead_sim::SimNode;
use wellhead_sim::rpc::{HashMeans, RpcError};
use wellhead_transport::{
    Exchange, ExchangeFuture, Pieces, Sent, Timing, Transport, TransportError, TransportErrorKind,
    WireReply,
};

use crate::evidence::{Caller, End, Place, Told, key};
use crate::meter::{Meter, Queue};
use crate::record::{OpenExchange, Recorder};
use crate::scenario::{QUORUM_METHODS, UpstreamPlan};
use crate::weather::{FeedHabit, Kind, UNSUPPORTED};
use crate::words::{self, Dialect, Said};

/// The method that searches for logs.
pub(crate) const LOGS: &str = "eth_getLogs";
/// The method that reads what is in a block.
pub(crate) const RECEIPTS: &str = "eth_getBlockReceipts";
/// The code of a contract's refusal, which is as true as a result.
const REVERTED: i64 = 3;
/// What lies inside of an answer that is longer is not read on the way: that it is cut
/// is noticed, that a byte is wrong is not promised to be.
const READ_MAX: usize = 64 << 10;
/// Of the bytes beyond the first part of a large answer, so many arrive before it is cut.
const CUT_AFTER: usize = 100;

/// One upstream.
#[derive(Debug)]
pub struct SimUpstream {
    pub(crate) place: Place,
    plan: UpstreamPlan,
    node: Arc<SimNode>,
    pub(crate) recorder: Arc<Recorder>,
    state: Mutex<State>,
    /// Wakes all exchanges of a connection that dies.
    deaths: Notify,
}

#[derive(Debug)]
struct State {
    rng: SmallRng,
    meter: Meter,
    queue: Queue,
    /// Exchanges on the present connection.
    carried: u32,
    /// Until when it works on what it took in.
    busy_until: Vec<Duration>,
}

/// One call as it came.
#[derive(Debug, Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

impl Call<'_> {
    fn id(&self) -> &str {
        self.id.map_or("null", RawValue::get)
    }

    fn key(&self) -> String {
        key(&self.method, self.params.map_or("", RawValue::get))
    }
}

/// What is known of an exchange when its fate is decided.
#[derive(Debug, Clone, Copy)]
struct Deed {
    kind: Option<Kind>,
    is_batch: bool,
    caller: Caller,
    number: usize,
    whole_max: usize,
}

/// What becomes of an exchange.
enum Fate {
    Fail(TransportErrorKind, Sent),
    Silence,
    Say { said: Said, told: Vec<Option<Told>>, end: End, is_cut: bool },
}

impl Fate {
    /// Something other than answers to the calls.
    fn say(said: Said, end: End) -> Self {
        Self::Say { said, told: Vec::new(), end, is_cut: false }
    }
}

/// What arrives of an answer; one that is cut while it is read whole does not.
fn reply(
    said: Said,
    delay: Duration,
    whole_max: usize,
    is_cut: bool,
) -> Result<WireReply, TransportError> {
    let is_long = said.body.len() > whole_max;
    let timing = Timing { total: delay, first_byte: delay, ..Timing::default() };
    if is_cut && !is_long {
        return Err(failed(TransportErrorKind::Truncated, Sent::Maybe));
    }
    let mut reply =
        WireReply::whole(said.status, said.body, timing).with_retry_after(said.retry_after);
    if !is_cut {
        return Ok(reply.shortened(whole_max));
    }
    let mut rest = reply.body.split_off(whole_max);
    rest.truncate(CUT_AFTER.min(rest.len() / 2));
    let error = failed(TransportErrorKind::Truncated, Sent::Maybe);
    reply.rest = Some(Box::new(Pieces::of(rest).then_fail(error)));
    Ok(reply)
}

impl SimUpstream {
    /// An upstream at `place`.
    pub fn new(
        place: Place,
        plan: UpstreamPlan,
        node: Arc<SimNode>,
        recorder: &Arc<Recorder>,
        seed: u64,
    ) -> Arc<Self> {
        node.turn(|dials| {
            dials.facts.heights_only = plan.heights_only;
            dials.facts.hash_means = plan.hash_means;
            if plan.log_range_max.is_some() {
                dials.facts.log_range_max = plan.log_range_max;
            }
            // Nothing else gives it away.
            if plan.hash_means == HashMeans::Height {
                dials.facts.client_version = "anvil/v1.2.3".to_owned();
            }
        });
        let rng = SmallRng::seed_from_u64(seed);
        let (meter, queue) = (Meter::default(), Queue::default());
        Arc::new(Self {
            place,
            plan,
            node,
            recorder: Arc::clone(recorder),
            state: Mutex::new(State { rng, meter, queue, carried: 0, busy_until: Vec::new() }),
            deaths: Notify::new(),
        })
    }

    /// A spell begins: turns the dials of the node.
    pub fn begin(&self, kind: Kind) {
        self.recorder.note(format!("{}: {kind:?} begins", self.plan.name));
        match kind {
            Kind::Lag(blocks) => self.node.turn(|dials| dials.lag_blocks = blocks),
            Kind::Stuck => self.node.freeze(),
            Kind::Syncing => self.node.turn(|dials| {
                dials.facts.syncing = true;
                dials.lag_blocks = 20;
            }),
            Kind::Pruned => self.node.turn(|dials| {
                dials.facts.history.state_blocks = Some(2);
                dials.facts.history.body_blocks = Some(2);
            }),
            Kind::Unsupported => self.node.turn(|dials| {
                dials.facts.unsupported = UNSUPPORTED.map(str::to_owned).to_vec();
            }),
            Kind::Crash => self.die(),
            // These come with each exchange.
            _ => {}
        }
    }

    /// A spell is over.
    pub fn end(&self, kind: Kind) {
        self.recorder.note(format!("{}: {kind:?} is over", self.plan.name));
        self.node.turn(|dials| {
            dials.lag_blocks = 0;
            dials.stuck_at = None;
            dials.facts.syncing = false;
            dials.facts.history = wellhead_sim::rpc::History::default();
            dials.facts.unsupported.clear();
        });
    }

    /// Whether it tells new blocks by itself.
    pub fn has_feed(&self) -> bool {
        self.plan.has_feed
    }

    /// How it tells them.
    pub(crate) fn feed_habit(&self) -> FeedHabit {
        self.plan.feed_habit
    }

    /// Its node, for what does not come as an exchange.
    pub(crate) fn node(&self) -> &SimNode {
        &self.node
    }

    /// Resolves when its connections die.
    pub(crate) fn dies(&self) -> impl Future<Output = ()> + '_ {
        self.deaths.notified()
    }

    /// A line for people.
    pub(crate) fn note(&self, what: &str) {
        self.recorder.note(format!("{}: {what}", self.plan.name));
    }

    /// What is wrong at this moment.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let now = self.recorder.now();
        let spells = self.plan.spells.iter();
        spells.rev().find(|it| (it.from..it.until).contains(&now)).map(|spell| spell.kind)
    }

    /// The connection dies with all that it carries.
    fn die(&self) {
        self.state.lock().carried = 0;
        self.deaths.notify_waiters();
    }

    async fn play(&self, exchange: Exchange, caller: Caller) -> Result<WireReply, TransportError> {
        let body = exchange.body.clone();
        let (calls, is_batch) = read(&body);
        let open = OpenExchange::begin(
            &self.recorder,
            self.place,
            caller,
            calls.iter().map(Call::key).collect(),
        );
        let (kind, delay) = self.arrive(calls.len());
        let dies = self.deaths.notified();
        let is_dying = matches!(kind, Some(Kind::Die { .. }));
        // On a dying connection what was not answered may not have been looked at.
        let (number, whole_max) = (open.number, exchange.whole_max);
        let deed = Deed { kind, is_batch, caller, number, whole_max };
        let fate = if is_dying { None } else { Some(self.decide(&calls, deed)) };
        if let Some(Fate::Fail(error @ TransportErrorKind::Connect, sent)) = fate {
            open.end(End::Failed, Vec::new());
            return Err(failed(error, sent));
        }
        if let Some(Fate::Silence) = fate {
            dies.await;
            open.end(End::Failed, Vec::new());
            return Err(failed(TransportErrorKind::Closed, Sent::Maybe));
        }
        tokio::select! {
            biased;
            () = dies => {
                let sent = match is_dying && open.number.is_multiple_of(2) {
                    true => Sent::No,
                    false => Sent::Maybe,
                };
                if sent == Sent::Maybe {
                    self.recorder.may_have_run(open.number);
                }
                open.end(End::Failed, Vec::new());
                return Err(failed(TransportErrorKind::Closed, sent));
            }
            () = tokio::time::sleep(delay) => {}
        }
        let fate = match fate {
            Some(fate) => fate,
            None => self.decide(&calls, deed),
        };
        match fate {
            Fate::Fail(kind, sent) => {
                open.end(End::Failed, Vec::new());
                Err(failed(kind, sent))
            }
            Fate::Silence => std::future::pending().await,
            Fate::Say { said, told, end, is_cut } => {
                let reply = reply(said, delay, exchange.whole_max, is_cut);
                match reply {
                    Ok(_) => open.end(end, told),
                    Err(_) => open.end(End::Failed, Vec::new()),
                }
                reply
            }
        }
    }

    /// Takes an exchange in: the weather, and how long it takes.
    fn arrive(&self, calls: usize) -> (Option<Kind>, Duration) {
        let now = self.recorder.now();
        let mut kind = self.kind();
        let mut state = self.state.lock();
        let state = &mut *state;
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let jitter = self.plan.jitter.mul_f64(state.rng.random::<f64>());
        let mut delay = self.plan.latency + whole_millis(jitter);
        if let Some(Kind::Flaky(percent)) = kind {
            let is_unlucky = state.rng.random_range(0..100) < percent;
            let kinds = [
                Kind::Internal,
                Kind::Page(502),
                Kind::Garble,
                Kind::Truncate,
                Kind::Reset { unread: false },
                Kind::Reset { unread: true },
                Kind::Slow(Duration::from_millis(400)),
            ];
            kind = is_unlucky.then(|| kinds[state.rng.random_range(0..kinds.len())]);
        }
        if let Some(Kind::Slow(longer)) = kind {
            delay += longer;
        }
        if let Some(per_second) = self.plan.shaped {
            delay += whole_millis(state.queue.wait(per_second, now, calls));
        }
        // An upstream that is down counts nothing.
        if kind != Some(Kind::Crash)
            && let Some((limit, dialect)) = self.plan.meter
            && !state.meter.take(limit, now, calls)
        {
            return (Some(Kind::Throttle(dialect)), delay);
        }
        state.busy_until.retain(|until| *until > now);
        if let Some(Kind::Crowded(most)) = kind {
            if state.busy_until.len() >= most as usize {
                return (Some(Kind::Throttle(Dialect::Plain(None))), whole_millis(delay / 10));
            }
            kind = None;
        }
        state.busy_until.push(now + delay);
        if let Some(Kind::Die { after }) = kind {
            state.carried += 1;
            if state.carried > after {
                state.carried = 0;
                // What came before dies; this one opens the next connection.
                self.deaths.notify_waiters();
            }
        }
        (kind, delay)
    }

    fn decide(&self, calls: &[Call<'_>], deed: Deed) -> Fate {
        if let Some(fate) = self.refused(calls, deed) {
            return fate;
        }
        // From here on it may be executed, whatever becomes of the answer.
        self.recorder.may_have_run(deed.number);
        match self.lost(calls, deed.kind) {
            Some(fate) => fate,
            None => self.answered(calls, deed),
        }
    }

    /// What becomes of an exchange that the upstream does not look into; `None` where it does.
    fn refused(&self, calls: &[Call<'_>], deed: Deed) -> Option<Fate> {
        let first_id = calls.first().map_or("null", Call::id);
        let api_key = &self.plan.api_key;
        match deed.kind {
            Some(Kind::Crash) => Some(Fate::Fail(TransportErrorKind::Connect, Sent::No)),
            Some(Kind::Reset { unread: true }) => {
                Some(Fate::Fail(TransportErrorKind::Closed, Sent::No))
            }
            Some(Kind::Throttle(dialect)) => {
                let said = dialect.refusal((!deed.is_batch).then_some(first_id));
                Some(Fate::say(said, End::Refused(dialect.asks_for())))
            }
            Some(Kind::Auth) => {
                let said = words::auth(&mut self.state.lock().rng, first_id, api_key);
                Some(Fate::say(said, End::Failed))
            }
            Some(Kind::Billing) => {
                let said = words::billing(&mut self.state.lock().rng, first_id, api_key);
                Some(Fate::say(said, End::Failed))
            }
            _ if deed.is_batch && !self.plan.takes_batches => {
                let error = r#"{"code":-32600,"message":"batches are not served here"}"#.to_owned();
                let body = self.plan.envelope.write("null", &Err(error));
                Some(Fate::say(Said::new(200, body), End::Failed))
            }
            _ => None,
        }
    }

    /// What becomes of an exchange whose calls are executed and not answered; `None` where they
    /// are.
    fn lost(&self, calls: &[Call<'_>], kind: Option<Kind>) -> Option<Fate> {
        let fate = match kind {
            Some(Kind::Hang) => Fate::Silence,
            Some(Kind::Reset { unread: false }) => {
                Fate::Fail(TransportErrorKind::Closed, Sent::Maybe)
            }
            Some(Kind::Page(status)) => {
                let path = format!("/v2/{}", self.plan.api_key);
                Fate::say(Said::new(status, words::page(status, &path)), End::Failed)
            }
            _ => return None,
        };
        self.maybe_execute(calls);
        Some(fate)
    }

    fn answered(&self, calls: &[Call<'_>], deed: Deed) -> Fate {
        let Deed { kind, is_batch, whole_max, .. } = deed;
        let mut told: Vec<Option<Told>> = Vec::new();
        let mut written: Vec<String> = Vec::new();
        let mut has_lied = false;
        for call in calls {
            let (answer, is_lie) = self.answer(call, deed);
            has_lied |= is_lie;
            let id = match kind {
                Some(Kind::WrongId) => (call.id().parse::<u64>().unwrap_or(0) + 1000).to_string(),
                _ => call.id().to_owned(),
            };
            written.push(self.plan.envelope.write(&id, &answer.outcome));
            told.push(Some(answer));
        }
        if kind == Some(Kind::LoseItems) && is_batch {
            let mut state = self.state.lock();
            let lost = state.rng.random_range(0..written.len());
            written.remove(lost);
            told[lost] = None;
            written.reverse();
        }
        let mut body = if is_batch { format!("[{}]", written.join(",")) } else { written.concat() };
        if kind == Some(Kind::Garble) {
            let rng = &mut self.state.lock().rng;
            let whole_max = whole_max.min(READ_MAX);
            let spoilt = match body.len() > whole_max {
                true => words::cut(rng, &body, whole_max),
                false => words::garbled(rng, &body),
            };
            body = String::from_utf8_lossy(&spoilt).into_owned();
        }
        let is_spoilt = match kind {
            Some(Kind::Garble | Kind::WrongId | Kind::Truncate) => true,
            // Alone it loses nothing.
            _ => false,
        };
        if is_spoilt {
            told.iter_mut().flatten().for_each(|told| told.is_honest = false);
        }
        Fate::Say {
            said: Said::new(200, body),
            told,
            end: if is_spoilt || has_lied { End::Failed } else { End::Answered },
            is_cut: kind == Some(Kind::Truncate),
        }
    }

    /// The answer to one call, and whether it is a lie that a hash gives away.
    fn answer(&self, call: &Call<'_>, deed: Deed) -> (Told, bool) {
        let api_key = &self.plan.api_key;
        let (outcome, is_honest) = match deed.kind {
            Some(Kind::Internal) => {
                (Err(words::internal(&mut self.state.lock().rng, api_key)), false)
            }
            Some(Kind::Unknown) => (Err(words::unknown(api_key)), false),
            kind => self.truth(call, kind, deed.caller),
        };
        let other = match (&outcome, deed.kind) {
            (Ok(result), Some(Kind::Mislead)) if QUORUM_METHODS.contains(&&*call.method) => {
                words::misleading(result)
            }
            (Ok(result), Some(Kind::Lie)) if deed.caller != Caller::House => {
                words::lie(&call.method, result)
            }
            _ => None,
        };
        match other {
            Some(other) => {
                let is_lie = deed.kind == Some(Kind::Lie);
                (Told { is_honest: false, outcome: Ok(other) }, is_lie)
            }
            None => (Told { is_honest, outcome }, false),
        }
    }

    /// What the node says, and whether that is what a well one would say.
    fn truth(
        &self,
        call: &Call<'_>,
        kind: Option<Kind>,
        caller: Caller,
    ) -> (Result<String, String>, bool) {
        if is_private_write(&call.method) {
            // A node that receives it has executed it; the node itself knows no such thing.
            let params = call.params.map_or("", RawValue::get);
            return (Ok(format!("\"{}\"", keccak256(params))), true);
        }
        let params: Option<Value> =
            call.params.and_then(|params| serde_json::from_str(params.get()).ok());
        match self.node.ask(&call.method, params.as_ref()) {
            Ok(result) => match self.less(call, (kind, caller), &result) {
                // What it does not have yet it says so truly.
                Some(less) => (less.map(|less| less.to_string()), kind == Some(Kind::LateLogs)),
                None => (Ok(result.to_string()), true),
            },
            Err(error) => {
                let sees_less = matches!(
                    kind,
                    Some(
                        Kind::Unsupported
                            | Kind::Pruned
                            | Kind::Lag(_)
                            | Kind::Stuck
                            | Kind::Syncing
                    )
                );
                // The pool is one for the whole world, wherever a node stands in it.
                let is_anywhere = error.code == REVERTED || call.method == "eth_sendRawTransaction";
                let is_honest = is_anywhere || !sees_less;
                (Err(error.to_json().to_string()), is_honest)
            }
        }
    }

    /// What it says in the place of a result while it does not have all that is in its blocks. Logs of one
    /// contract are missing for the announcer alone: what a client reads is compared with the block only
    /// where `verify` is on.
    fn less(
        &self,
        call: &Call<'_>,
        (kind, caller): (Option<Kind>, Caller),
        result: &Value,
    ) -> Option<Result<Value, String>> {
        let is_of_logs = call.method == LOGS || call.method == RECEIPTS;
        if !is_of_logs || result.as_array().is_none_or(Vec::is_empty) {
            return None;
        }
        match kind? {
            Kind::NoLogs if call.method == LOGS => Some(Ok(Value::Array(Vec::new()))),
            Kind::LoseLogs if caller == Caller::Announcer => without_one_contract(result).map(Ok),
            Kind::LateLogs if self.is_of_the_newest_block(result) => Some(match &*call.method {
                RECEIPTS => Ok(Value::Null),
                _ => Err(RpcError::server("unknown block").to_json().to_string()),
            }),
            _ => None,
        }
    }

    fn is_of_the_newest_block(&self, result: &Value) -> bool {
        let head = self.node.head().hash.to_string();
        result.as_array().into_iter().flatten().any(|it| it["blockHash"].as_str() == Some(&*head))
    }

    /// No client will hear of it, but it may have had its effect.
    fn maybe_execute(&self, calls: &[Call<'_>]) {
        if self.state.lock().rng.random() {
            for call in calls {
                let _ = self.truth(call, None, Caller::Client);
            }
        }
    }
}

/// Logs, or receipts, as if the contract of the last log had written none; `None` if there is no log.
fn without_one_contract(result: &Value) -> Option<Value> {
    let mut result = result.clone();
    let items = result.as_array_mut()?;
    let logs_of = |item: &Value| item.get("logs").and_then(Value::as_array).cloned();
    let all = items.iter().flat_map(|item| logs_of(item).unwrap_or_else(|| vec![item.clone()]));
    let lost =
        all.filter_map(|log| log.get("topics").map(|_| log["address"].clone())).next_back()?;
    items.retain(|item| item.get("topics").is_none() || item["address"] != lost);
    for logs in items.iter_mut().filter_map(|item| item.get_mut("logs")?.as_array_mut()) {
        logs.retain(|log| log["address"] != lost);
    }
    Some(result)
}

/// Writes that every upstream of a scenario takes.
fn is_private_write(method: &str) -> bool {
    method == "eth_sendPrivateTransaction" || method.starts_with("acme_")
}

/// Whole milliseconds, so that every instant of a scenario is one.
fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn failed(kind: TransportErrorKind, sent: Sent) -> TransportError {
    TransportError::new(kind, sent, "simulated")
}

fn read(body: &[u8]) -> (Vec<Call<'_>>, bool) {
    let is_batch = body.trim_ascii_start().starts_with(b"[");
    let calls = match is_batch {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|call| vec![call]),
    };
    (calls.expect("the proxy sends calls and batches of calls"), is_batch)
}

/// A link to an upstream: for clients' calls, or for those of the control loops.
#[derive(Debug)]
pub struct SimLink {
    upstream: Arc<SimUpstream>,
    caller: Caller,
    connections: Option<Semaphore>,
    /// Exchanges whose answers may be long, of which half of the connections may carry one.
    bulky: AtomicUsize,
    /// Each exchange goes out four times: broken on purpose.
    sends_again: bool,
}

impl SimLink {
    /// A link of one worker, or of the control loops, which have as many connections as they like.
    pub fn new(upstream: Arc<SimUpstream>, caller: Caller) -> Self {
        let is_worker = caller != Caller::House;
        let connections = upstream.plan.connections.filter(|_| is_worker).map(Semaphore::new);
        let bulky = AtomicUsize::new(0);
        Self { upstream, caller, connections, bulky, sends_again: false }
    }

    /// A link that is broken on purpose, if it is to be: each exchange goes out four times.
    #[must_use]
    pub fn sending_again(self, sends_again: bool) -> Self {
        Self { sends_again, ..self }
    }
}

/// An exchange that is counted until it is dropped.
struct Bulky<'a>(&'a AtomicUsize);

impl<'a> Bulky<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Bulky<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Transport for SimLink {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        Box::pin(async move {
            let _bulky = exchange.bulky.then(|| Bulky::enter(&self.bulky));
            let _connection = match &self.connections {
                Some(connections) => connections.acquire().await.ok(),
                None => None,
            };
            let send = || self.upstream.play(exchange.clone(), self.caller);
            if self.sends_again {
                return tokio::join!(send(), send(), send(), send()).0;
            }
            self.upstream.play(exchange, self.caller).await
        })
    }

    fn has_room(&self, bulky: bool) -> bool {
        let Some(connections) = &self.connections else { return true };
        let max = self.upstream.plan.connections.unwrap_or_default();
        connections.available_permits() > 0
            && (!bulky || self.bulky.load(Ordering::Relaxed) < max - max / 2)
    }
}
