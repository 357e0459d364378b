//! A transport that plays a script in the place of an upstream.
//!
//! A script is a function: told of an [`Arrival`], it says what becomes of it, a [`Step`] or any
//! future ([`Act::Run`]). The transport plays that, counts the exchanges and records them.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::coop;
use wellhead_jsonrpc::raw;
use wellhead_transport::{
    Exchange, ExchangeFuture, Sent, Timing, TraceContext, Transport, TransportError,
    TransportErrorKind, WireReply,
};

use crate::now;

/// An exchange as the script sees it, or one call of it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When it came.
    pub at: Instant,
    /// What was sent.
    pub body: Bytes,
    /// How many exchanges came before it.
    pub number: usize,
    /// How many of those have not ended.
    pub in_flight: usize,
    /// The span that it was said to be.
    pub trace: Option<TraceContext>,
}

impl Arrival {
    /// The method of a single call; empty for a batch.
    pub fn method(&self) -> String {
        let method = raw::field(&self.body, "method").and_then(raw::string);
        method.unwrap_or_default().into_owned()
    }

    /// The id of a single call, raw JSON.
    pub fn id(&self) -> &[u8] {
        id_of(&self.body)
    }

    /// What was sent, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The id of a call; that of a script's own where there is none.
fn id_of(call: &[u8]) -> &[u8] {
    raw::field(call, "id").unwrap_or(b"1")
}

/// What an upstream does with one exchange, or with one call of it.
#[derive(Debug, Clone)]
pub enum Step {
    /// Answers with this raw JSON as the result, under the id of the call.
    Result(String),
    /// Answers with this raw JSON as the error, under the id of the call.
    Error(String),
    /// Answers the exchange as a whole.
    Status {
        /// The HTTP status.
        status: u16,
        /// The body as it is sent.
        body: Bytes,
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Fails.
    Fail(TransportErrorKind, Sent),
    /// Never answers.
    Hang,
    /// Sets up a connection for ever: each step of it takes a while.
    Dial,
    /// Is always ready for another step and never done.
    Busy,
    /// Waits, then does the step.
    After(Duration, Box<Self>),
}

/// A result, raw JSON.
pub fn result(raw: &str) -> Step {
    Step::Result(raw.to_owned())
}

/// A JSON-RPC error.
pub fn error(code: i64, message: &str) -> Step {
    Step::Error(format!(r#"{{"code":{code},"message":"{message}"}}"#))
}

/// An HTTP response with this status and body.
pub fn status(status: u16, body: impl Into<Bytes>) -> Step {
    Step::Status { status, body: body.into(), retry_after: None }
}

impl Step {
    /// A refused connection.
    pub const REFUSE: Self = Self::Fail(TransportErrorKind::Connect, Sent::No);

    /// This step, `time` later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self::After(time, Box::new(self))
    }

    /// Whether it answers a call rather than the exchange.
    fn is_of_one_call(&self) -> bool {
        match self {
            Self::Result(_) | Self::Error(_) => true,
            Self::After(_, then) => then.is_of_one_call(),
            Self::Status { .. } | Self::Fail(..) | Self::Hang | Self::Dial | Self::Busy => false,
        }
    }

    /// Plays the step for `call`. A transport calls it; a script that does more than one step
    /// may as well.
    pub async fn play(mut self, call: &[u8]) -> Result<WireReply, TransportError> {
        while let Self::After(time, then) = self {
            tokio::time::sleep(time).await;
            self = *then;
        }
        let outcome = |name: &str, raw: &str| {
            let id = String::from_utf8_lossy(id_of(call));
            whole(format!(r#"{{"jsonrpc":"2.0","id":{id},"{name}":{raw}}}"#))
        };
        match self {
            Self::Result(raw) => Ok(outcome("result", &raw)),
            Self::Error(raw) => Ok(outcome("error", &raw)),
            Self::Status { status, body, retry_after } => {
                let reply = WireReply::whole(status, body, Timing::default());
                Ok(reply.with_retry_after(retry_after))
            }
            Self::Fail(kind, sent) => Err(TransportError::new(kind, sent, "injected")),
            Self::Dial => loop {
                tokio::time::sleep(Duration::from_millis(700)).await;
            },
            Self::Busy => loop {
                // Leaves nothing of the task's budget for the timer that is polled next.
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::future::poll_fn(|cx| {
                    while coop::has_budget_remaining() {
                        let _ = pin!(coop::consume_budget()).poll(cx);
                    }
                    Poll::Ready(())
                })
                .await;
            },
            Self::Hang | Self::After(..) => pending().await,
        }
    }
}

fn whole(body: impl Into<Bytes>) -> WireReply {
    WireReply::whole(200, body, Timing::default())
}

/// What becomes of an exchange.
pub enum Act {
    /// One step.
    Step(Step),
    /// Anything else.
    Run(ExchangeFuture<'static>),
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => step.fmt(f),
            Self::Run(_) => f.write_str("Run"),
        }
    }
}

impl From<Step> for Act {
    fn from(step: Step) -> Self {
        Self::Step(step)
    }
}

impl Act {
    /// An act that a step does not say: an answer that flows, one that is counted when it arrives.
    pub fn run(
        future: impl Future<Output = Result<WireReply, TransportError>> + Send + 'static,
    ) -> Self {
        Self::Run(Box::pin(future))
    }
}

type Script = Box<dyn Fn(&Arrival) -> Act + Send + Sync>;

/// Plays a script, one act an exchange.
pub struct ScriptedTransport {
    script: Script,
    count: AtomicUsize,
    in_flight: AtomicUsize,
    in_flight_peak: AtomicUsize,
    arrivals: Option<Mutex<Vec<Arrival>>>,
    pool: Option<Pool>,
}

/// Connections, each of which carries one exchange at a time.
struct Pool {
    free: Semaphore,
    all: usize,
    /// Exchanges whose answers may be long, of which half of the connections may carry one.
    bulky: AtomicUsize,
}

impl ScriptedTransport {
    /// Does with each exchange what `script` says.
    pub fn new<A: Into<Act>>(script: impl Fn(&Arrival) -> A + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(move |arrival| script(arrival).into()),
            count: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            in_flight_peak: AtomicUsize::new(0),
            arrivals: Some(Mutex::default()),
            pool: None,
        }
    }

    /// Does with each exchange the next of `steps`, and `last` with each one beyond them.
    pub fn playing(steps: impl IntoIterator<Item = Step>, last: Step) -> Self {
        let steps: Mutex<VecDeque<Step>> = Mutex::new(steps.into_iter().collect());
        Self::new(move |_| steps.lock().pop_front().unwrap_or_else(|| last.clone()))
    }

    /// Does what `script` says with each call, those of a batch one by one. What it says of one
    /// that is no result or error answers the whole batch.
    pub fn of_calls(script: impl Fn(&Arrival) -> Step + Send + Sync + 'static) -> Self {
        Self::new(move |arrival| {
            if !arrival.body.starts_with(b"[") {
                return Act::Step(script(arrival));
            }
            let items: Vec<Bytes> = raw::items(&arrival.body).map(Bytes::copy_from_slice).collect();
            let steps: Vec<Step> = items
                .iter()
                .map(|body| script(&Arrival { body: body.clone(), ..arrival.clone() }))
                .collect();
            Act::run(batch(items, steps))
        })
    }

    /// A transport that keeps nothing of what it was sent, and so allocates no more than the
    /// future of an exchange.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        Self { arrivals: None, ..self }
    }

    /// With so many connections: an exchange that finds none free waits for one.
    #[must_use]
    pub fn pooled(self, connections: usize) -> Self {
        let (free, bulky) = (Semaphore::new(connections), AtomicUsize::new(0));
        Self { pool: Some(Pool { free, all: connections, bulky }), ..self }
    }

    /// The exchanges so far, in order. Those that wait for a connection are not among them.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.as_ref().map(|arrivals| arrivals.lock().clone()).unwrap_or_default()
    }

    /// Drops the record of the exchanges so far.
    pub fn forget(&self) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.lock().clear();
        }
    }

    /// What was sent so far, exchange by exchange.
    pub fn bodies(&self) -> Vec<String> {
        self.arrivals().iter().map(Arrival::text).collect()
    }

    /// How many exchanges came so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many exchanges there were at a time, at most.
    pub fn in_flight_peak(&self) -> usize {
        self.in_flight_peak.load(Ordering::Relaxed)
    }

    fn arrival(&self, body: Bytes, trace: Option<TraceContext>) -> (Arrival, Counted<'_>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (counted, in_flight) = Counted::enter(&self.in_flight);
        self.in_flight_peak.fetch_max(in_flight + 1, Ordering::Relaxed);
        let arrival = Arrival { at: now(), body, number, in_flight, trace };
        if let Some(arrivals) = &self.arrivals {
            arrivals.lock().push(arrival.clone());
        }
        (arrival, counted)
    }
}

/// The answers to a batch, or what answers it as a whole.
async fn batch(items: Vec<Bytes>, steps: Vec<Step>) -> Result<WireReply, TransportError> {
    let replies = items.iter().zip(steps).map(async |(item, step)| {
        let is_item = step.is_of_one_call();
        match step.play(item).await {
            Ok(reply) if is_item => Ok(String::from_utf8_lossy(&reply.body).into_owned()),
            other => Err(other),
        }
    });
    match try_join_all(replies).await {
        Ok(replies) => Ok(whole(format!("[{}]", replies.join(",")))),
        Err(reply) => reply,
    }
}

/// Counted until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// How many there were before, too.
    fn enter(count: &'a AtomicUsize) -> (Self, usize) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        (Self(count), before)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for ScriptedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedTransport").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Transport for ScriptedTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        let Exchange { body, whole_max, bulky, trace, .. } = exchange;
        Box::pin(async move {
            let pool = self.pool.as_ref();
            let _bulky = pool.filter(|_| bulky).map(|pool| Counted::enter(&pool.bulky));
            let _connection = match pool {
                Some(pool) => pool.free.acquire().await.ok(),
                None => None,
            };
            let (arrival, _counted) = self.arrival(body, trace.map(|trace| *trace));
            let reply = match (self.script)(&arrival) {
                Act::Step(step) => step.play(&arrival.body).await,
                Act::Run(future) => future.await,
            };
            reply.map(|reply| reply.shortened(whole_max))
        })
    }

    fn has_room(&self, bulky: bool) -> bool {
        self.pool.as_ref().is_none_or(|pool| {
            pool.free.available_permits() > 0
                && (!bulky || pool.bulky.load(Ordering::Relaxed) < pool.all - pool.all / 2)
        })
    }

    fn is_told_of_traces(&self) -> bool {
        // Otherwise a test has no use for them.
        self.arrivals.is_some()
    }
}
