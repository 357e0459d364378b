//! What one request gets, and when: the bars, bounds, buckets and lines in order, then
//! the node's answer.
//!
//! One desk serves all connections of a provider. What belongs to one connection alone
//! is its [`ConnectionState`]. How an answer is sent is the connections' business.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::count::{Present, ProviderCounters, ProviderCounts, add, count};
use super::dial::{LimitScope, ProviderDials, RefusalForm, STREAMS_MAX, Shaping, StreamWay};
use super::meter::{Charge, PacedLine, Tank, charge};
use crate::envelope::{RequestBody, RequestItem, WireCall, write_answer};
use crate::node::SimNode;
use crate::rpc::RpcError;

/// An answer on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderAnswer {
    /// HTTP status.
    pub(super) status: u16,
    /// `Retry-After`, in seconds.
    pub(super) retry_after: Option<u64>,
    /// Always JSON, or empty.
    pub(super) body: Bytes,
}

impl ProviderAnswer {
    /// A status that is no JSON-RPC provider's decision, with nothing to say.
    pub(super) fn bare(status: u16) -> Self {
        Self { status, retry_after: None, body: Bytes::new() }
    }

    fn ok(body: Vec<u8>) -> Self {
        Self { status: 200, retry_after: None, body: body.into() }
    }
}

/// What becomes of a new stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Welcome {
    Served,
    Refused,
    /// The connection ends, with this code if there is a GOAWAY.
    Fatal(Option<u32>),
}

/// What one connection has for itself.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    line: Mutex<Option<ShapedLine>>,
}

/// A line, and the dial that it was begun for: a turned one begins anew.
#[derive(Debug, Clone, Copy)]
struct ShapedLine {
    shaping: Shaping,
    line: PacedLine,
}

fn queue(
    queue: &mut Option<ShapedLine>,
    shaping: Shaping,
    now: Duration,
    calls: usize,
) -> Duration {
    if queue.is_some_and(|queue| queue.shaping != shaping) {
        *queue = None;
    }
    let queue = queue.get_or_insert(ShapedLine { shaping, line: PacedLine::default() });
    queue.line.place(now, calls, shaping.per_second)
}

/// The dials, and what depends on how they stand.
#[derive(Debug)]
struct Setup {
    dials: ProviderDials,
    /// One for each bucket.
    tanks: Mutex<Vec<Tank>>,
    /// As many permits as requests may be served at once.
    room: Option<Arc<Semaphore>>,
}

impl Setup {
    /// Turned from `before`: buckets and bounds that did not change go on as they are.
    fn new(dials: ProviderDials, before: Option<&Self>) -> Arc<Self> {
        let same = before.filter(|before| before.dials.buckets == dials.buckets);
        let tanks = match same {
            Some(before) => before.tanks.lock().clone(),
            None => dials.buckets.iter().map(Tank::full).collect(),
        };
        let same = before.filter(|before| before.dials.at_once == dials.at_once);
        let room = match (same, &dials.at_once) {
            (Some(before), _) => before.room.clone(),
            (None, Some(at_once)) => {
                Some(Arc::new(Semaphore::new(at_once.max.min(Semaphore::MAX_PERMITS))))
            }
            (None, None) => None,
        };
        Arc::new(Self { dials, tanks: Mutex::new(tanks), room })
    }
}

/// All connections' common part.
#[derive(Debug)]
pub(super) struct Desk {
    node: Arc<SimNode>,
    started: Instant,
    setup: RwLock<Arc<Setup>>,
    line: Mutex<Option<ShapedLine>>,
    rng: Mutex<SmallRng>,
    turned: watch::Sender<u64>,
    pub(super) counters: ProviderCounters,
}

impl Desk {
    pub(super) fn new(node: Arc<SimNode>, dials: ProviderDials) -> Self {
        show(&node, &dials);
        Self {
            node,
            started: Instant::now(),
            rng: Mutex::new(SmallRng::seed_from_u64(dials.seed)),
            setup: RwLock::new(Setup::new(dials, None)),
            line: Mutex::default(),
            turned: watch::Sender::new(0),
            counters: ProviderCounters::default(),
        }
    }

    pub(super) fn node(&self) -> &Arc<SimNode> {
        &self.node
    }

    pub(super) fn counts(&self) -> ProviderCounts {
        self.counters.snapshot()
    }

    /// Wakes connections when a dial is turned.
    pub(super) fn turns(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }

    pub(super) fn turn(&self, change: impl FnOnce(&mut ProviderDials)) {
        {
            let mut setup = self.setup.write();
            let mut dials = setup.dials.clone();
            change(&mut dials);
            show(&self.node, &dials);
            *setup = Setup::new(dials, Some(&setup));
        }
        self.turned.send_modify(|count| *count += 1);
    }

    fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.read())
    }

    /// A look at the dials. For moments: a change of them waits meanwhile.
    pub(super) fn read<T>(&self, look: impl FnOnce(&ProviderDials) -> T) -> T {
        look(&self.setup.read().dials)
    }

    /// Whether a connection with this many requests is to end: abruptly with the next one, or with
    /// the answer to the last.
    pub(super) fn has_its_share(&self, taken: u64, abruptly: bool) -> bool {
        self.read(|dials| {
            dials.recycle_abruptly == abruptly && dials.recycle_after.is_some_and(|it| taken >= it)
        })
    }

    /// Whether a connection with this many streams has its share.
    pub(super) fn is_full(&self, streams: usize) -> bool {
        streams >= self.streams_max()
    }

    fn streams_max(&self) -> usize {
        self.read(|dials| dials.stream_cap).map_or(STREAMS_MAX, |cap| cap.max) as usize
    }

    /// What becomes of a stream with which its connection has this many.
    pub(super) fn welcome(&self, streams: usize) -> Welcome {
        let cap = self.read(|dials| dials.stream_cap);
        if streams <= self.streams_max() {
            self.counters.streams_peak.fetch_max(streams as u64, Ordering::Relaxed);
            return Welcome::Served;
        }
        match cap.map(|cap| cap.way) {
            Some(StreamWay::Fatal { goaway, .. }) => {
                count(&self.counters.fatal);
                Welcome::Fatal(goaway)
            }
            None | Some(StreamWay::Announced | StreamWay::Refused { .. }) => {
                count(&self.counters.refused_streams);
                Welcome::Refused
            }
        }
    }

    /// Answers one request body, when its time has come.
    pub(super) async fn answer(&self, place: &ConnectionState, body: &[u8]) -> ProviderAnswer {
        let setup = self.setup();
        let request = RequestBody::read(body);
        count(&self.counters.requests);
        add(&self.counters.calls, request.items.len());
        let latency = setup.dials.latency.sample(&mut *self.rng.lock());
        // A slot is kept until the latency is over as well.
        let (answer, _permit) = match self.admit(&setup, &request) {
            Err(answer) => (answer, None),
            Ok(admitted) => self.serve(&setup, place, &request, admitted).await,
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        answer
    }

    /// Bars, bounds and buckets.
    fn admit<'a>(
        &self,
        setup: &'a Setup,
        request: &RequestBody<'_>,
    ) -> Result<Admitted<'a>, ProviderAnswer> {
        let dials = &setup.dials;
        if let Some(refusal) = &dials.barred {
            return Err(self.refused(refusal, request));
        }
        if let Some(max) = dials.batch_max.filter(|max| request.items.len() > *max) {
            let words = format!("batch too large: at most {max} calls");
            return Err(self.refused_whole(RpcError::new(-32600, words), request));
        }
        let refusal = dials.at_once.as_ref().and_then(|at_once| at_once.refusal.as_ref());
        let permit = match (refusal, &setup.room) {
            (Some(refusal), Some(room)) => match room.try_acquire() {
                Ok(permit) => Some(permit),
                Err(_) => return Err(self.refused(refusal, request)),
            },
            (None, _) | (Some(_), None) => None,
        };
        if dials.buckets.is_empty() {
            return Ok(Admitted { permit, refused: Vec::new() });
        }
        let method = |item| RequestItem::call(item).map_or("", WireCall::method);
        let methods: Vec<&str> = request.items.iter().map(method).collect();
        let now = self.started.elapsed();
        let charged = charge(&mut setup.tanks.lock(), &dials.buckets, now, &methods);
        match charged {
            Charge::Refused(bucket) => Err(self.refused(&dials.buckets[bucket].refusal, request)),
            Charge::Taken(refused) => Ok(Admitted { permit, refused }),
        }
    }

    /// Waits as long as the dials say, then asks the node.
    async fn serve<'a>(
        &self,
        setup: &'a Setup,
        place: &ConnectionState,
        request: &RequestBody<'_>,
        admitted: Admitted<'a>,
    ) -> (ProviderAnswer, Option<SemaphorePermit<'a>>) {
        let Admitted { permit, refused } = admitted;
        let calls = request.items.len() - refused.iter().flatten().count();
        let leaves_at = match setup.dials.shaping {
            Some(shaping) if calls > 0 => {
                let line = match shaping.scope {
                    LimitScope::Connection => &place.line,
                    LimitScope::Account => &self.line,
                };
                queue(&mut line.lock(), shaping, self.started.elapsed(), calls)
            }
            Some(_) | None => Duration::ZERO,
        };
        let waiting = Present::new(&self.counters.waiting);
        let permit = match (permit, &setup.room) {
            (None, Some(room)) => room.acquire().await.ok(),
            (permit, _) => permit,
        };
        if leaves_at > self.started.elapsed() {
            tokio::time::sleep_until(self.started + leaves_at).await;
        }
        drop(waiting);
        (self.ask(&setup.dials, request, &refused), permit)
    }

    fn ask(
        &self,
        dials: &ProviderDials,
        request: &RequestBody<'_>,
        refused: &[Option<usize>],
    ) -> ProviderAnswer {
        let answers = request.answered(|index, call| {
            if let Some(bucket) = refused.get(index).copied().flatten() {
                count(&self.counters.refusals);
                return Err(error_of(&dials.buckets[bucket].refusal));
            }
            let (method, params) = (call.method(), call.params.as_ref());
            let mut answer = self.node.ask(method, params)?;
            let lie = dials.lie.as_ref();
            if lie.is_some_and(|lie| lie.bend(method, params, &mut answer)) {
                count(&self.counters.lies);
            }
            Ok(answer)
        });
        ProviderAnswer::ok(answers)
    }

    /// Turns all calls of a request away.
    fn refused(&self, refusal: &RefusalForm, request: &RequestBody<'_>) -> ProviderAnswer {
        let error = error_of(refusal);
        match refusal {
            RefusalForm::Status { status, retry_after, .. } => {
                let retry_after = retry_after.map(|after| after.as_secs_f64().ceil() as u64);
                ProviderAnswer {
                    status: *status,
                    retry_after,
                    ..self.refused_whole(error, request)
                }
            }
            RefusalForm::InBody { .. } => {
                add(&self.counters.refusals, request.items.len());
                ProviderAnswer::ok(request.answered(|_, _| Err(error.clone())))
            }
        }
    }

    /// With one error, whatever was asked.
    fn refused_whole(&self, error: RpcError, request: &RequestBody<'_>) -> ProviderAnswer {
        add(&self.counters.refusals, request.items.len());
        let mut out = Vec::with_capacity(128);
        let only = request.items.first().filter(|_| !request.is_batch);
        let id = only.and_then(RequestItem::call).and_then(WireCall::told_id);
        write_answer(&mut out, id, Err(error));
        ProviderAnswer::ok(out)
    }
}

/// What the buckets let through.
#[derive(Debug)]
struct Admitted<'a> {
    /// Taken already where no request waits for one.
    permit: Option<SemaphorePermit<'a>>,
    /// For each call the bucket that refuses it; empty when none does.
    refused: Vec<Option<usize>>,
}

/// Puts the dials that are the node's own where the node reads them.
fn show(node: &SimNode, dials: &ProviderDials) {
    let shown = node.dials();
    let same = shown.lag_blocks == dials.lag_blocks
        && shown.facts.history == dials.history
        && shown.facts.unsupported == dials.unsupported
        && shown.facts.log_range_max == dials.log_range_max;
    if same {
        return;
    }
    node.turn(|shown| {
        shown.lag_blocks = dials.lag_blocks;
        shown.facts.history = dials.history;
        shown.facts.unsupported.clone_from(&dials.unsupported);
        shown.facts.log_range_max = dials.log_range_max;
    });
}

fn error_of(refusal: &RefusalForm) -> RpcError {
    match refusal {
        RefusalForm::Status { code, message, .. } | RefusalForm::InBody { code, message } => {
            RpcError::new(*code, message.as_str())
        }
    }
}
