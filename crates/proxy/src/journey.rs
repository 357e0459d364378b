//! From a body to an answer: one call or a batch, and the closing line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use wellhead_dispatch::{Lane, now};
use wellhead_jsonrpc::{Call, Limits, Malformed, Packet, ParseError, parse, write};

use crate::answer::{Answer, INVALID_REQUEST, PARSE_ERROR, Refusal};
use crate::call::{Report, answer};
use crate::chain::{ChainIndex, Directory, ServedChain};
use crate::metrics::{CallOutcome, RequestCounts};

/// The replies of one batch may hold so many bytes together; calls that follow are
/// refused unasked. More than the 25 MB of geth, and a bound on our memory: one
/// batch may ask for the largest answer a thousand times.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// What the settings say of requests.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Bounds on what a body may hold.
    pub limits: Limits,
    /// Calls of one batch that are in flight together. At least 1.
    pub batch_parallel: usize,
    /// From the arrival of a request to its answer.
    pub total: Duration,
    /// Whether each request leaves a line in the log.
    pub log_requests: bool,
}

/// What the listener knows of a request.
#[derive(Debug, Clone, Copy)]
pub struct Ctx {
    /// When its head had arrived.
    pub received_at: Instant,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The client asked for the trail.
    pub want_trail: bool,
}

/// What one worker uses to reach upstreams: a lane for each chain, in the order
/// of the proxy's chains.
#[derive(Debug)]
pub struct Lanes(Vec<Lane>);

impl Lanes {
    /// Lanes in the order of the chains.
    pub fn new(lanes: Vec<Lane>) -> Self {
        Self(lanes)
    }
}

/// All chains, ready to answer. Shared by all workers.
#[derive(Debug)]
pub struct Proxy {
    chains: Vec<Arc<ServedChain>>,
    directory: Directory,
    settings: Settings,
    requests: RequestCounts,
}

impl Proxy {
    /// A proxy for `chains`.
    pub fn new(chains: Vec<Arc<ServedChain>>, settings: Settings) -> Self {
        let directory = Directory::new(&chains);
        Self { chains, directory, settings, requests: RequestCounts::default() }
    }

    /// The chains, in the order in which a worker's lanes must be.
    pub fn chains(&self) -> &[Arc<ServedChain>] {
        &self.chains
    }

    pub(crate) fn requests(&self) -> &RequestCounts {
        &self.requests
    }

    /// Answers one body sent to the chain that the path names.
    ///
    /// Always resolves with an answer, by the total time at the latest; cancel-safe.
    pub async fn handle(
        &self,
        lanes: &Lanes,
        ctx: Ctx,
        chain: Option<&str>,
        body: Bytes,
    ) -> Answer {
        let received = body.len();
        let (answer, line) = self.journey(lanes, ctx, chain, &body).await;
        let took = now().saturating_duration_since(ctx.received_at);
        self.requests.observe(answer.status, took);
        if self.settings.log_requests {
            tracing::info!(
                target: "wellhead::request",
                peer = %ctx.peer,
                chain = chain.unwrap_or("-"),
                method = line.method.as_ref(),
                calls = line.calls,
                failed = line.failed,
                status = answer.status,
                upstream = answer.upstream.as_deref().unwrap_or("-"),
                attempts = answer.attempts,
                bytes_in = received,
                bytes_out = answer.body.len(),
                ms = took.as_secs_f64() * 1e3,
                "request"
            );
        }
        answer
    }

    async fn journey(
        &self,
        lanes: &Lanes,
        ctx: Ctx,
        named: Option<&str>,
        body: &Bytes,
    ) -> (Answer, Line) {
        let index = match self.directory.find(&self.chains, named) {
            Ok(index) => index,
            Err(why) => {
                let known: Vec<&str> = self.chains.iter().map(|chain| &*chain.name.name).collect();
                let refusal = Refusal::no_such_chain(why, named, &known);
                return (refused(&refusal, body, self.settings.limits), Line::rejected());
            }
        };
        let packet = match parse(body, self.settings.limits) {
            Ok(packet) => packet,
            Err(error) => return (unreadable(&error), Line::rejected()),
        };
        let chain = &self.chains[index.0];
        chain.pulse.note_call(now());
        let trip = Trip { chain, lane: self.lane(lanes, index), ctx, total: self.settings.total };
        match packet {
            Packet::Single(Ok(call)) => trip.single(&call).await,
            Packet::Single(Err(malformed)) => {
                let mut out = Vec::new();
                write_malformed(&mut out, &malformed);
                (Answer { status: 200, body: out.into(), ..Answer::default() }, Line::rejected())
            }
            Packet::Batch(items) => trip.batch(items, self.settings.batch_parallel.max(1)).await,
        }
    }

    fn lane<'a>(&self, lanes: &'a Lanes, index: ChainIndex) -> &'a Lane {
        &lanes.0[index.0]
    }
}

/// What the closing line says of the calls.
struct Line {
    method: std::borrow::Cow<'static, str>,
    calls: usize,
    failed: usize,
}

impl Line {
    fn rejected() -> Self {
        Self { method: "-".into(), calls: 0, failed: 1 }
    }
}

/// One request on its way to one chain.
struct Trip<'a> {
    chain: &'a ServedChain,
    lane: &'a Lane,
    ctx: Ctx,
    total: Duration,
}

impl Trip<'_> {
    fn deadline(&self) -> Instant {
        self.ctx.received_at + self.total
    }

    async fn call(&self, call: &Call, out: &mut Vec<u8>) -> Report {
        let began = now();
        let (received_at, deadline) = (self.ctx.received_at, self.deadline());
        let report = answer(self.chain, self.lane, call, received_at, deadline, out).await;
        let took = now().saturating_duration_since(began);
        self.chain.counts().observe(report.row, report.outcome, took, &report.trail);
        report
    }

    async fn single(&self, call: &Call) -> (Answer, Line) {
        let mut out = Vec::new();
        let report = self.call(call, &mut out).await;
        let method = match report.row.is_unknown() {
            // A client's own word, cut so that it cannot flood the log.
            true => call.method().chars().take(64).collect::<String>().into(),
            false => report.row.name.into(),
        };
        let failed = usize::from(report.outcome != CallOutcome::Answered);
        let roster = &self.chain.roster;
        let name = |slot| roster.upstream(slot).identity().id.shared();
        let silent = call.is_notification();
        let answer = Answer {
            status: if silent { 204 } else { report.status },
            body: if silent { Bytes::new() } else { out.into() },
            upstream: report.slot.map(name),
            attempts: u32::try_from(report.trail.attempts.len()).unwrap_or(u32::MAX),
            retry_after: report.retry_after,
            trail: self.ctx.want_trail.then(|| report.trail.line(roster)),
        };
        (answer, Line { method, calls: 1, failed })
    }

    /// Answers the items side by side, a bounded number at a time, and puts the
    /// replies together in the order of the items. One slow call holds up no other.
    async fn batch(&self, items: Vec<Result<Call, Malformed>>, parallel: usize) -> (Answer, Line) {
        let calls = items.len();
        let held = AtomicUsize::new(0);
        let mut replies: Vec<Option<ItemReply>> = (0..calls).map(|_| None).collect();
        {
            let answered = stream::iter(items.into_iter().enumerate())
                .map(|(place, item)| {
                    let item = self.item(item, &held);
                    async move { (place, item.await) }
                })
                .buffer_unordered(parallel);
            let mut answered = std::pin::pin!(answered);
            while let Some((place, reply)) = answered.next().await {
                replies[place] = Some(reply);
            }
        }
        let (mut out, mut attempts, mut failed) = (vec![b'['], 0_usize, 0_usize);
        let mut trail = String::new();
        for item in replies.into_iter().flatten() {
            if let Some(reply) = item.reply {
                if out.len() > 1 {
                    out.push(b',');
                }
                out.extend_from_slice(&reply);
            }
            failed += usize::from(item.failed);
            if let Some(report) = item.report {
                attempts += report.trail.attempts.len();
                if self.ctx.want_trail {
                    trail.push_str(&report.trail.line(&self.chain.roster));
                    trail.push_str("; ");
                }
            }
        }
        let (status, body) = if out.len() == 1 {
            // Nothing but notifications.
            (204, Bytes::new())
        } else {
            out.push(b']');
            (200, out.into())
        };
        let answer = Answer {
            status,
            body,
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            trail: self.ctx.want_trail.then_some(trail),
            ..Answer::default()
        };
        (answer, Line { method: "batch".into(), calls, failed })
    }

    /// `held` counts the bytes of the replies so far.
    async fn item(&self, item: Result<Call, Malformed>, held: &AtomicUsize) -> ItemReply {
        let mut out = Vec::new();
        match item {
            Ok(call) if held.load(Ordering::Relaxed) > BATCH_BYTES_MAX => {
                Refusal::batch_too_large(BATCH_BYTES_MAX).write(&mut out, call.id());
                let reply = (!call.is_notification()).then_some(out);
                ItemReply { reply, report: None, failed: true }
            }
            Err(malformed) => {
                write_malformed(&mut out, &malformed);
                ItemReply { reply: Some(out), report: None, failed: true }
            }
            Ok(call) => {
                let report = self.call(&call, &mut out).await;
                let failed = report.outcome != CallOutcome::Answered;
                held.fetch_add(out.len(), Ordering::Relaxed);
                let reply = (!call.is_notification()).then_some(out);
                ItemReply { reply, report: Some(report), failed }
            }
        }
    }
}

struct ItemReply {
    /// `None` for a notification.
    reply: Option<Vec<u8>>,
    report: Option<Report>,
    failed: bool,
}

fn write_malformed(out: &mut Vec<u8>, malformed: &Malformed) {
    write::error(
        out,
        malformed.id.as_deref(),
        INVALID_REQUEST,
        &malformed.reason.to_string(),
        None,
    );
}

/// Refuses the whole body, under the caller's id where it has one.
fn refused(refusal: &Refusal, body: &Bytes, limits: Limits) -> Answer {
    let mut out = Vec::new();
    match parse(body, limits) {
        Ok(Packet::Single(Ok(call))) => refusal.write(&mut out, call.id()),
        Ok(Packet::Single(Err(malformed))) => refusal.write(&mut out, malformed.id.as_deref()),
        Ok(Packet::Batch(_)) | Err(_) => refusal.write(&mut out, None),
    }
    Answer {
        status: refusal.status,
        body: out.into(),
        retry_after: refusal.retry_after,
        ..Answer::default()
    }
}

fn unreadable(error: &ParseError) -> Answer {
    let code = error.code();
    debug_assert!(code == PARSE_ERROR || code == INVALID_REQUEST);
    let mut out = Vec::new();
    write::error(&mut out, None, code, &error.to_string(), None);
    Answer { status: 200, body: out.into(), ..Answer::default() }
}
