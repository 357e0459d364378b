//! From a body to an answer: one call or a batch, and the closing line.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use wellhead_access::{LimitDenied, SendingPlaces};
use wellhead_dispatch::{Allowance, Progress, WorkerUpstreams, now};
use wellhead_eth::{BlockNumber, Effect, MethodTable};
use wellhead_jsonrpc::{Call, Malformed, Packet, ParseError, ParseLimits, first_id, parse};
use wellhead_telemetry::Histogram;
use wellhead_transport::MemoryBudget;

use crate::answer::{Answer, Refusal};
use crate::batch;
use crate::call::{Report, handle_and_count, read_for_itself, refuse_and_count};
use crate::line::{Closing, Line, RequestLog, method_of};
use crate::line_sampler::{LineRates, LineSampler};
use crate::request::context::{Ctx, RequestContext, Settings, Target};
use crate::request::reply::write_malformed;
use crate::request::select::Selection;
use crate::state::access::AccessTerms;
use crate::state::cache::Cache;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome};
use crate::state::directory::{ChainIndex, Directory};
use crate::state::subscriber::{Subscriber, SubscriberHubs, SubscriberMessage};
use crate::steps::catch_up::{catch_up, known_block};
use crate::steps::charge::{self, CallEnd, ChargedCall};
use crate::trace::Tracer;

/// Calls to upstreams that one read of our own may cost.
const OWN_CALLS_MAX: u32 = 16;

/// What one worker reaches the upstreams of all chains with, in the order of the proxy's chains.
#[derive(Debug)]
pub struct WorkerChains(pub Vec<WorkerChain>);

/// One chain, as one worker reaches it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WorkerChain {
    /// Shared with answers that are still on their way when their request was answered.
    upstreams: Arc<WorkerUpstreams>,
    /// The worker's own connections that are subscribed to something.
    hubs: SubscriberHubs,
}

impl WorkerChain {
    /// A chain to which no connection is subscribed yet.
    pub fn new(upstreams: WorkerUpstreams) -> Self {
        Self { upstreams: Arc::new(upstreams), hubs: SubscriberHubs::default() }
    }

    /// The chain after its settings changed, with the connections that are subscribed to `old`.
    #[must_use]
    pub fn succeeding(self, old: &Self) -> Self {
        Self { hubs: old.hubs.clone(), ..self }
    }

    /// How its upstreams are reached.
    pub fn upstreams(&self) -> &Arc<WorkerUpstreams> {
        &self.upstreams
    }
}

impl WorkerChains {
    /// One for each chain, in the order of the chains.
    pub fn new(chains: Vec<WorkerUpstreams>) -> Self {
        Self(chains.into_iter().map(WorkerChain::new).collect())
    }
}

/// A proxy, and what one worker reaches its upstreams with. A reload of the settings replaces both together.
#[derive(Debug)]
pub struct ProxyWorker {
    /// What all workers share.
    pub proxy: Arc<Proxy>,
    /// The worker's own.
    pub chains: WorkerChains,
}

impl ProxyWorker {
    /// Both, where others can take their place.
    pub fn replaceable(proxy: &Arc<Proxy>, chains: WorkerChains) -> Arc<ArcSwap<Self>> {
        Arc::new(ArcSwap::from_pointee(Self { proxy: Arc::clone(proxy), chains }))
    }
}

/// All chains, ready to answer. Shared by all workers.
#[derive(Debug)]
pub struct Proxy {
    chains: Vec<Arc<ServedChain>>,
    directory: Directory,
    pub(crate) settings: Settings,
    /// How long requests took, whatever chain they name. By status the listener counts them, which sees also
    /// those that never get here.
    pub(crate) requests: Arc<Histogram>,
    pub(crate) answers: Arc<MemoryBudget>,
    terms: AccessTerms,
    /// Decides which requests leave a line.
    pub(crate) lines: Arc<LineSampler>,
    tracer: Option<Arc<Tracer>>,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    /// A proxy for `chains`.
    pub fn new(chains: Vec<Arc<ServedChain>>, settings: Settings) -> Self {
        let directory = Directory::new(&chains);
        Self {
            chains,
            directory,
            settings,
            requests: Arc::default(),
            answers: Arc::default(),
            terms: AccessTerms::new(now()),
            lines: Arc::new(LineSampler::unbounded(now())),
            tracer: None,
            is_cut: Arc::default(),
        }
    }

    /// The proxy after the settings changed, going on with the counts of `old`.
    #[must_use]
    pub fn succeeding(self, old: &Self) -> Self {
        Self {
            requests: Arc::clone(&old.requests),
            lines: Arc::clone(&old.lines),
            is_cut: Arc::clone(&old.is_cut),
            ..self
        }
    }

    /// This proxy, where another one can take its place.
    pub fn replaceable(self: &Arc<Self>) -> Arc<ArcSwap<Self>> {
        Arc::new(ArcSwap::new(Arc::clone(self)))
    }

    /// Charging callers by these terms.
    #[must_use]
    pub fn charging(self, terms: AccessTerms) -> Self {
        Self { terms, ..self }
    }

    /// Writing the lines of requests at no more than these rates.
    #[must_use]
    pub fn logging(self, rates: LineRates) -> Self {
        Self { lines: Arc::new(LineSampler::new(rates, now())), ..self }
    }

    /// Leaving traces of requests.
    #[must_use]
    pub fn tracing(self, tracer: Option<Arc<Tracer>>) -> Self {
        Self { tracer, ..self }
    }

    /// With the memory budget of its workers' answers, to report it.
    #[must_use]
    pub fn holding(self, answers: Arc<MemoryBudget>) -> Self {
        Self { answers, ..self }
    }

    /// Notes that the listeners cut what is under way, at the end of a drain: such requests are
    /// logged as cut from now on.
    pub fn note_cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// Counts a connection that a limit of its caller refused.
    pub fn note_denied(&self, denied: &LimitDenied) {
        self.terms.denied.count(denied);
    }

    /// The chains, in the order that [`WorkerChains`] must have.
    pub fn chains(&self) -> &[Arc<ServedChain>] {
        &self.chains
    }

    /// Answers one body sent to the chain that the path names.
    ///
    /// Always resolves with an answer, by the total time at the latest; cancel-safe.
    pub fn handle<'a>(
        &'a self,
        worker: &'a WorkerChains,
        ctx: Ctx,
        target: impl Into<Target<'a>>,
        body: Bytes,
    ) -> impl Future<Output = Answer> {
        // Not a future around a future, which would hold all of this twice.
        self.handle_message(worker, None, ctx, target.into(), body)
    }

    /// As [`Self::handle`], of a message that came on the connection of a subscriber.
    pub fn handle_message<'a>(
        &'a self,
        worker: &'a WorkerChains,
        subscriber: Option<&'a SubscriberMessage<'a>>,
        ctx: Ctx,
        target: Target<'a>,
        body: Bytes,
    ) -> impl Future<Output = Answer> {
        // Made here, so that the future does not hold what it is made of beside it.
        let log =
            RequestLog { lines: &self.lines, tracer: self.tracer.as_deref(), is_cut: &self.is_cut };
        let is_websocket = subscriber.is_some();
        let mut closing = Closing::new(ctx, target, &body, self.settings, log, is_websocket);
        async move {
            let (answer, line) =
                self.journey(worker, subscriber, target, &body, &mut closing).await;
            self.requests.observe(line.took);
            closing.end(&answer, &line);
            answer
        }
    }

    fn reject(&self, refusal: &Refusal, body: &Bytes, received_at: Instant) -> (Answer, Line) {
        let limits = self.settings.limits;
        (refused(refusal, &parse(body, limits), body, limits), Line::rejected(received_at))
    }

    fn reject_unreadable(
        &self,
        error: ParseError,
        body: &Bytes,
        received_at: Instant,
    ) -> (Answer, Line) {
        let refusal = Refusal::unreadable(&error);
        let answer = refused(&refusal, &Err(error), body, self.settings.limits);
        (answer, Line::rejected(received_at))
    }

    async fn journey<'a>(
        &'a self,
        worker: &'a WorkerChains,
        subscriber: Option<&'a SubscriberMessage<'a>>,
        target: Target<'_>,
        body: &Bytes,
        closing: &mut Closing<'a>,
    ) -> (Answer, Line) {
        let (received_at, Settings { limits, total, .. }) =
            (closing.ctx.received_at, self.settings);
        let (chain, WorkerChain { upstreams, .. }) = match self.reach(worker, target.chain) {
            Ok(reached) => reached,
            Err(refusal) => return self.reject(&refusal, body, received_at),
        };
        closing.leads_to(chain, upstreams);
        if let Err(refusal) = admit(chain, target, &mut closing.ctx) {
            return self.reject(&refusal, body, received_at);
        }
        let packet = match parse(body, limits) {
            Ok(packet) => packet,
            Err(error) => return self.reject_unreadable(error, body, received_at),
        };
        closing.holds(&packet);
        let selection = match Selection::read(target.select, &chain.roster) {
            Ok(selection) => selection,
            Err(why) => return self.reject(&Refusal::bad_selection(why), body, received_at),
        };
        if !is_of_a_subscription(&packet) {
            chain.pulse.note_call(received_at);
        }
        // All items of a batch see the same; one call looks for itself, once.
        let view = matches!(packet, Packet::Batch(_)).then(|| chain.heads.view());
        let (ctx, progress) = (&closing.ctx, &closing.progress);
        let mut request = RequestContext::new(chain, upstreams, ctx, view, total, progress);
        request.selection = selection;
        request.terms = Some(&self.terms);
        request.subscriber = subscriber;
        request.trace = closing.trace();
        let place = match charge::take_place(&request).await {
            Ok(place) => place,
            Err(refusal) => return self.reject(&refusal, body, received_at),
        };
        if let Some(known) = closing.ctx.known_block {
            Box::pin(catch_up(&mut request, BlockNumber(known))).await;
        }
        let (mut answer, line) = match packet {
            Packet::Single(Ok(call)) => single(&request, &call).await,
            Packet::Single(Err(malformed)) => return no_call(&malformed, received_at),
            Packet::Batch(items) => {
                if let Err(refusal) = charge::check_batch(&request, items.len()) {
                    return self.reject(&refusal, body, received_at);
                }
                let parallel = self.settings.batch_parallel.max(1);
                Box::pin(batch::answer(&request, &items, parallel)).await
            }
        };
        charge::hold_until_sent(&request, place, &mut answer.held);
        (Answer { warning: request.warning(), block: known_block(&request), ..answer }, line)
    }

    fn index(&self, named: Option<&str>) -> Result<ChainIndex, Refusal> {
        self.directory.find(&self.chains, named).map_err(|why| {
            let known: Vec<&str> = self.chains.iter().map(|chain| &*chain.name.name).collect();
            Refusal::no_such_chain(why, named, &known)
        })
    }

    /// The chain that a client calls so, and how this worker reaches it.
    fn reach<'a>(
        &'a self,
        worker: &'a WorkerChains,
        named: Option<&str>,
    ) -> Result<(&'a Arc<ServedChain>, &'a WorkerChain), Refusal> {
        let ChainIndex(place) = self.index(named)?;
        Ok((&self.chains[place], &worker.0[place]))
    }

    /// The answers that are kept; all chains that keep any keep them in one place.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.chains().iter().find_map(|chain| Some(&**chain.cache()?))
    }

    /// The chain that a client calls so.
    pub(crate) fn find(&self, named: Option<&str>) -> Result<&Arc<ServedChain>, Refusal> {
        self.index(named).map(|index| &self.chains[index.0])
    }

    /// A connection that can be told things, to the chain that its path names; `None` for a path
    /// that leads to no chain, where all calls are refused.
    pub fn open_subscriber(
        &self,
        worker: &WorkerChains,
        chain: Option<&str>,
    ) -> Option<Subscriber> {
        let (chain, WorkerChain { hubs, .. }) = self.reach(worker, chain).ok()?;
        Some(Subscriber::new(Arc::clone(chain), hubs.clone()))
    }

    /// Makes a read that no client asked for, as if one did; `None` when it fails, or when the chain is no longer
    /// served.
    pub(crate) async fn own_call(
        &self,
        worker: &WorkerChains,
        chain: &str,
        method: &'static str,
        params: &[u8],
    ) -> Option<Bytes> {
        let (chain, WorkerChain { upstreams, .. }) = self.reach(worker, Some(chain)).ok()?;
        // No client has this address, so that no client is taken to have seen what is read here.
        let ctx = Ctx::of_address(Ipv4Addr::UNSPECIFIED.into(), now());
        let progress = Progress::new(Allowance::new(OWN_CALLS_MAX));
        let total = self.settings.total;
        let request = RequestContext::new(chain, upstreams, &ctx, None, total, &progress);
        read_for_itself(&request, method, params).await
    }
}

/// What is said to something that is no call.
fn no_call(malformed: &Malformed, received_at: Instant) -> (Answer, Line) {
    let mut out = Vec::new();
    write_malformed(&mut out, malformed);
    let answer = Answer { status: 200, body: vec![out.into()], ..Answer::default() };
    (answer, Line::rejected(received_at))
}

/// Whether the caller may call this chain and select upstreams so; it sees no trail that it may not see.
fn admit(chain: &ServedChain, target: Target<'_>, ctx: &mut Ctx) -> Result<(), Refusal> {
    let Some(caller) = &ctx.caller else { return Ok(()) };
    let rights = &caller.grant.rights;
    ctx.want_trail &= rights.shows_trail();
    let mut labels = target.select.iter();
    rights
        .check_chain(&chain.name.name)
        .and_then(|()| labels.try_for_each(|(label, _)| rights.check_select(label)))
        .map_err(|denied| Refusal::denied(&denied))
}

/// Whether it begins or ends a subscription, and nothing else. The announcer tells the loops of
/// that: a client that leaves is no reason to follow the chain for longer.
fn is_of_a_subscription(packet: &Packet) -> bool {
    match packet {
        Packet::Single(Ok(call)) => {
            MethodTable::standard().row(call.method()).effect == Effect::Subscribe
        }
        Packet::Single(Err(_)) | Packet::Batch(_) => false,
    }
}

/// Answers a request that is one call.
async fn single(request: &RequestContext<'_>, call: &Call) -> (Answer, Line) {
    let silent = call.is_notification();
    // The client of a notification reads no answer, so none is streamed.
    let may_stream = request.ctx.may_stream && !silent;
    let row = MethodTable::standard().row(call.method());
    let (mut charge, (mut report, took)) = match charge::charge(request, row, call).await {
        Ok(charge) => {
            let began = request.ctx.received_at;
            (charge, handle_and_count(request, call, began, may_stream).await)
        }
        Err(refusal) => (ChargedCall::default(), refuse_and_count(request, row, refusal)),
    };
    charge.settle(CallEnd {
        outcome: report.outcome,
        found: report.noted.found,
        slot: report.slot,
        credits_out: charge::credits_out(request.chain, row, &report.trail),
        bytes_out: report.reply.bytes(),
    });
    let attempts = u32::try_from(report.trail.exchanges()).unwrap_or(u32::MAX);
    let method = method_of(report.row, call);
    let failed = usize::from(report.outcome != CallOutcome::Answered);
    let roster = &request.chain.roster;
    let name = |slot| roster.upstream(slot).identity().id.shared();
    let trail = request.ctx.want_trail.then(|| report.line(roster));
    if let Some(trace) = request.trace
        && trace.may_tell(report.outcome, took, &report.trail)
    {
        let began = request.ctx.received_at;
        trace.note_call(report.take_traced(call, began, began + took));
    }
    let upstream = report.slot.map(name).or_else(|| source(&report));
    let rate_limit = report.reply.rate_limit();
    let (body, rest) =
        if silent { (Vec::new(), None) } else { report.reply.into_pieces(call.id()) };
    let mut held = SendingPlaces::default();
    charge.hold_until_sent(&mut held);
    let answer = Answer {
        status: if silent { 204 } else { report.status },
        body,
        rest,
        held,
        upstream,
        attempts,
        cache: report.noted.found.map(CacheResult::word),
        retry_after: report.retry_after,
        rate_limit,
        warning: None,
        block: None,
        trail,
    };
    (answer, Line { method, calls: 1, failed, took, batch: None })
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

/// Refuses the whole body, under the caller's id where it has one. To a batch with a list, as a
/// program that sent one looks for its answers there.
fn refused(
    refusal: &Refusal,
    packet: &Result<Packet, ParseError>,
    body: &Bytes,
    limits: ParseLimits,
) -> Answer {
    let mut out = Vec::new();
    match packet {
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
        rate_limit: refusal.limit.clone(),
        ..Answer::default()
    }
}
