//! From a body to an answer: one call or a batch, and the closing line.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_chain::View;
use wellhead_dispatch::{Allowance, Lane, Progress, now};
use wellhead_eth::{BlockNumber, MethodRow};
use wellhead_jsonrpc::{Call, Limits, Malformed, Packet, ParseError, first_id, parse, write};
use wellhead_route::NotServed;
use wellhead_transport::Ceiling;
use wellhead_upstream::UpstreamSet;

use crate::answer::{Answer, INVALID_REQUEST, PARSE_ERROR, Refusal};
use crate::batch;
use crate::call::{Report, Terms, answer};
use crate::chain::{ChainIndex, Directory, ServedChain};
use crate::kept::Found;
use crate::line::{Closing, Line, method_of};
use crate::metrics::{CallOutcome, RequestCounts};
use crate::select::Selection;
use crate::session::Newest;

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
    /// Calls to upstreams that may be made for one request, a batch being one, with all retries,
    /// hedges, parts of searches and second opinions.
    pub upstream_calls: u32,
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

/// Where a request goes, by its path and its query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target<'a> {
    /// The chain's name, alias or id; `None` for the only one there is.
    pub chain: Option<&'a str>,
    /// The pairs of the query, decoded: labels that upstreams have to carry.
    pub select: &'a [(Cow<'a, str>, Cow<'a, str>)],
}

impl<'a> From<Option<&'a str>> for Target<'a> {
    fn from(chain: Option<&'a str>) -> Self {
        Self { chain, select: &[] }
    }
}

/// What one worker uses to reach upstreams: a lane for each chain, in the order
/// of the proxy's chains.
#[derive(Debug)]
pub struct Lanes(Vec<Arc<Lane>>);

impl Lanes {
    /// Lanes in the order of the chains.
    pub fn new(lanes: Vec<Lane>) -> Self {
        // Shared with answers that are still on their way when their request was answered.
        Self(lanes.into_iter().map(Arc::new).collect())
    }
}

/// All chains, ready to answer. Shared by all workers.
#[derive(Debug)]
pub struct Proxy {
    chains: Vec<Arc<ServedChain>>,
    directory: Directory,
    settings: Settings,
    requests: RequestCounts,
    answers: Arc<Ceiling>,
}

impl Proxy {
    /// A proxy for `chains`.
    pub fn new(chains: Vec<Arc<ServedChain>>, settings: Settings) -> Self {
        let directory = Directory::new(&chains);
        let (requests, answers) = (RequestCounts::default(), Arc::default());
        Self { chains, directory, settings, requests, answers }
    }

    /// With the ceiling that its lanes hold answers below, to tell of it.
    #[must_use]
    pub fn holding(self, answers: Arc<Ceiling>) -> Self {
        Self { answers, ..self }
    }

    pub(crate) fn answers(&self) -> &Ceiling {
        &self.answers
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
        target: impl Into<Target<'_>>,
        body: Bytes,
    ) -> Answer {
        let target = target.into();
        let mut closing = Closing::new(ctx, target, &body, self.settings);
        let (answer, line) = self.journey(lanes, target, &body, &mut closing).await;
        self.requests.observe(line.ended.saturating_duration_since(closing.ctx.received_at));
        closing.end(&answer, &line);
        answer
    }

    async fn journey<'a>(
        &'a self,
        lanes: &'a Lanes,
        target: Target<'_>,
        body: &Bytes,
        closing: &mut Closing<'a>,
    ) -> (Answer, Line) {
        let index = match self.index(target.chain) {
            Ok(index) => index,
            Err(refusal) => {
                return (refused(&refusal, body, self.settings.limits), Line::rejected());
            }
        };
        let chain = &self.chains[index.0];
        closing.leads_to(chain);
        let packet = match parse(body, self.settings.limits) {
            Ok(packet) => packet,
            Err(error) => {
                return (unreadable(&error, body, self.settings.limits), Line::rejected());
            }
        };
        closing.holds(&packet);
        let selection = match Selection::read(target.select, &chain.roster) {
            Ok(selection) => selection,
            Err(why) => {
                let refusal = Refusal::bad_selection(why);
                return (refused(&refusal, body, self.settings.limits), Line::rejected());
            }
        };
        chain.pulse.note_call(closing.ctx.received_at);
        // All items of a batch see the same; one call looks for itself, once.
        let view = matches!(packet, Packet::Batch(_)).then(|| chain.heads.view());
        let lane = self.lane(lanes, index);
        let trip =
            Trip::new(chain, lane, closing.ctx, view, self.settings.total, &closing.progress)
                .selecting(selection);
        match packet {
            Packet::Single(Ok(call)) => {
                let (answer, line) = trip.single(&call).await;
                (Answer { warning: trip.warning(), ..answer }, line)
            }
            Packet::Single(Err(malformed)) => {
                let mut out = Vec::new();
                write_malformed(&mut out, &malformed);
                (
                    Answer { status: 200, body: vec![out.into()], ..Answer::default() },
                    Line::rejected(),
                )
            }
            Packet::Batch(items) => {
                let parallel = self.settings.batch_parallel.max(1);
                let (answer, line) = Box::pin(batch::answer(&trip, &items, parallel)).await;
                (Answer { warning: trip.warning(), ..answer }, line)
            }
        }
    }

    fn index(&self, named: Option<&str>) -> Result<ChainIndex, Refusal> {
        self.directory.find(&self.chains, named).map_err(|why| {
            let known: Vec<&str> = self.chains.iter().map(|chain| &*chain.name.name).collect();
            Refusal::no_such_chain(why, named, &known)
        })
    }

    /// The chain that a client calls so.
    pub(crate) fn find(&self, named: Option<&str>) -> Result<&Arc<ServedChain>, Refusal> {
        self.index(named).map(|index| &self.chains[index.0])
    }

    /// How long a request may take.
    pub(crate) fn total(&self) -> Duration {
        self.settings.total
    }

    fn lane<'a>(&self, lanes: &'a Lanes, index: ChainIndex) -> &'a Arc<Lane> {
        &lanes.0[index.0]
    }
}

/// One request on its way to one chain.
pub(crate) struct Trip<'a> {
    pub(crate) chain: &'a Arc<ServedChain>,
    pub(crate) lane: &'a Arc<Lane>,
    pub(crate) ctx: Ctx,
    /// What was believed of the chain when the batch came, if it is one.
    pub(crate) view: Option<Arc<View>>,
    /// Where its answers are counted, if it is a batch.
    pub(crate) room: Option<Arc<Ceiling>>,
    /// The newest block for the client, once somebody wanted to know.
    newest: OnceLock<Option<Newest>>,
    total: Duration,
    /// What it is doing.
    pub(crate) progress: &'a Progress,
    selection: Option<Box<Selection>>,
    /// An empty answer to a search for logs was served that a header speaks against.
    doubts_logs: AtomicBool,
}

/// What a client is told of such an answer.
const LOGS_DOUBTED: &str = "logs-doubted";

impl<'a> Trip<'a> {
    pub(crate) fn new(
        chain: &'a Arc<ServedChain>,
        lane: &'a Arc<Lane>,
        ctx: Ctx,
        view: Option<Arc<View>>,
        total: Duration,
        progress: &'a Progress,
    ) -> Self {
        let (newest, doubts_logs) = (OnceLock::new(), AtomicBool::new(false));
        let part = || Arc::new(lane.answers().part(chain.bounds.batch_bytes_max));
        let room = view.as_ref().map(|_| part());
        Self { chain, lane, ctx, view, room, newest, total, progress, selection: None, doubts_logs }
    }

    /// With what the client selects upstreams by.
    pub(crate) fn selecting(self, selection: Option<Box<Selection>>) -> Self {
        Self { selection, ..self }
    }
}

impl Trip<'_> {
    /// The answer will carry a warning; see [`crate::doubt`].
    pub(crate) fn warn_of_logs(&self) {
        self.doubts_logs.store(true, Ordering::Relaxed);
    }

    fn warning(&self) -> Option<&'static str> {
        self.doubts_logs.load(Ordering::Relaxed).then_some(LOGS_DOUBTED)
    }

    /// Looks at the view of the request: of its batch, or the newest.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        match &self.view {
            Some(view) => look(view),
            None => self.chain.heads.look(look),
        }
    }

    /// The newest block for this client, by the view that it was first asked on, so that all
    /// items of a batch see the same; see [`crate::session`].
    pub(crate) fn newest(&self, view: &View) -> Option<Newest> {
        let Ctx { peer, received_at, .. } = self.ctx;
        *self.newest.get_or_init(|| self.chain.sessions.newest(peer.ip(), view, received_at))
    }

    /// The same, as far as one of those who may be asked holds it.
    pub(crate) fn latest(
        &self,
        row: &MethodRow,
        eligible: UpstreamSet,
        view: &View,
    ) -> Option<BlockNumber> {
        let (roster, at) = (&self.chain.roster, self.ctx.received_at);
        self.newest(view).map(|newest| newest.held((row, eligible), view, roster, at))
    }

    /// Who may be asked for `method` by the settings and by what the client selects.
    pub(crate) fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        let roster = &self.chain.roster;
        let eligible = self.chain.eligible(row, method)?;
        let Some(selection) = &self.selection else { return Ok(eligible) };
        let at = self.ctx.received_at;
        let selected = self.look(|view| selection.narrow(eligible, row, roster, view, at));
        if selected.is_empty() { Err(NotServed::NotSelected) } else { Ok(selected) }
    }

    /// What the client selects upstreams by, in one way of writing it; empty for nothing.
    pub(crate) fn selected(&self) -> &str {
        self.selection.as_ref().map_or("", |selection| selection.words())
    }

    /// Where its answers are counted.
    pub(crate) fn answers(&self) -> &Arc<Ceiling> {
        self.room.as_ref().unwrap_or(self.lane.answers())
    }

    /// What the request may still cost.
    pub(crate) fn allowance(&self) -> &Allowance {
        self.progress.allowance()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.ctx.received_at + self.total
    }

    /// Answers one call and counts it.
    /// Its turn came at `began`. Also says when it ended.
    pub(crate) async fn call(
        &self,
        call: &Call,
        began: Instant,
        may_flow: bool,
    ) -> (Report, Instant) {
        let received_at = self.ctx.received_at;
        let terms = Terms { received_at, began, deadline: self.deadline(), may_flow };
        let report = answer(self, call, terms).await;
        // A call that an upstream answered ended with that attempt, but for a moment: a
        // reading of the clock less. To look at the answer may have taken longer.
        let ended = match (report.outcome, report.trail.attempts.last()) {
            (CallOutcome::Answered, Some(_)) if self.chain.verifier.is_none() => {
                received_at + report.trail.lasted()
            }
            _ => now(),
        };
        let took = ended.saturating_duration_since(began);
        let (counts, trail) = (self.chain.counts(), &report.trail);
        counts.observe(report.row, report.outcome, took, &trail.attempts);
        trail.abandoned.iter().for_each(|attempt| counts.abandoned(attempt));
        if let Some(found) = report.noted.found {
            self.chain.note_found(report.row, found);
        }
        (report, ended)
    }

    async fn single(&self, call: &Call) -> (Answer, Line) {
        let silent = call.is_notification();
        // What nobody reads need not flow.
        let (report, ended) = self.call(call, self.ctx.received_at, !silent).await;
        let method = method_of(report.row, call);
        let failed = usize::from(report.outcome != CallOutcome::Answered);
        let roster = &self.chain.roster;
        let name = |slot| roster.upstream(slot).identity().id.shared();
        let trail = self.ctx.want_trail.then(|| report.line(roster));
        let upstream = report.slot.map(name).or_else(|| source(&report));
        let (body, rest) =
            if silent { (Vec::new(), None) } else { report.reply.into_pieces(call.id()) };
        let answer = Answer {
            status: if silent { 204 } else { report.status },
            body,
            rest,
            upstream,
            attempts: u32::try_from(report.trail.exchanges()).unwrap_or(u32::MAX),
            cache: report.noted.found.map(Found::word),
            retry_after: report.retry_after,
            warning: None,
            trail,
        };
        (answer, Line { method, calls: 1, failed, ended, batch: None })
    }
}

/// Where an answer is from when no upstream was asked for it.
fn source(report: &Report) -> Option<Arc<str>> {
    static VIEW: LazyLock<Arc<str>> = LazyLock::new(|| "view".into());
    static CACHE: LazyLock<Arc<str>> = LazyLock::new(|| "cache".into());
    match (report.outcome, report.noted.found) {
        (CallOutcome::Answered, Some(_)) => Some(Arc::clone(&CACHE)),
        (CallOutcome::Answered, None) => Some(Arc::clone(&VIEW)),
        (CallOutcome::UpstreamError | CallOutcome::Failed | CallOutcome::Refused, _) => None,
    }
}

pub(crate) fn write_malformed(out: &mut Vec<u8>, malformed: &Malformed) {
    write::error(
        out,
        malformed.id.as_deref(),
        INVALID_REQUEST,
        &malformed.reason.to_string(),
        None,
    );
}

/// Refuses the whole body, under the caller's id where it has one. To a batch with a list, as a
/// program that sent one looks for its answers there.
fn refused(refusal: &Refusal, body: &Bytes, limits: Limits) -> Answer {
    let mut out = Vec::new();
    match parse(body, limits) {
        Ok(Packet::Single(Ok(call))) => refusal.write(&mut out, call.id()),
        Ok(Packet::Single(Err(malformed))) => refusal.write(&mut out, malformed.id.as_deref()),
        Ok(Packet::Batch(_)) | Err(ParseError::BatchTooLarge { .. }) => {
            let id = first_id(body, limits);
            out.push(b'[');
            refusal.write(&mut out, id.as_deref());
            out.push(b']');
        }
        Err(_) => refusal.write(&mut out, None),
    }
    Answer {
        status: refusal.status,
        body: vec![out.into()],
        retry_after: refusal.retry_after,
        ..Answer::default()
    }
}

fn unreadable(error: &ParseError, body: &Bytes, limits: Limits) -> Answer {
    let code = error.code();
    debug_assert!(code == PARSE_ERROR || code == INVALID_REQUEST);
    let mut out = Vec::new();
    match error {
        // As geth does.
        ParseError::BatchTooLarge { .. } => {
            let message = format!("{error}, the most that the setting `limits.batch_items` allows");
            let id = first_id(body, limits);
            out.push(b'[');
            write::error(&mut out, id.as_deref(), code, &message, None);
            out.push(b']');
        }
        ParseError::Empty
        | ParseError::NotJson { .. }
        | ParseError::TooDeep { .. }
        | ParseError::EmptyBatch
        | ParseError::TooLarge => write::error(&mut out, None, code, &error.to_string(), None),
    }
    Answer { status: 200, body: vec![out.into()], ..Answer::default() }
}
