//! One request on its way to one chain: what the listener knows of it, what it selects, and what
//! its client was shown before.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wellhead_access::{AccessGrant, Caller, GrantKind};
use wellhead_chain::View;
use wellhead_dispatch::{Allowance, ClientId, Progress, WorkerUpstreams, now};
use wellhead_eth::{BlockNumber, Effect, MethodRow};
use wellhead_jsonrpc::ParseLimits;
use wellhead_route::{Balance, NotServed};
use wellhead_transport::{MemoryBudget, TraceContext};
use wellhead_upstream::UpstreamSet;

use crate::request::select::Selection;
use crate::state::access::AccessTerms;
use crate::state::cache::ViewCanon;
use crate::state::chain::ServedChain;
use crate::state::sessions::Newest;
use crate::state::subscriber::SubscriberMessage;
use crate::trace::RequestTrace;

/// What the settings say of requests.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Bounds on what a body may hold.
    pub limits: ParseLimits,
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
#[derive(Debug, Clone)]
pub struct Ctx {
    /// When its head had arrived.
    pub received_at: Instant,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// What it comes from; `None` where clients are told apart by their addresses alone.
    pub caller: Option<Caller>,
    /// The client asked for the trail.
    pub want_trail: bool,
    /// The newest block that the client says it was told of, be it by another replica.
    pub known_block: Option<u64>,
    /// The answer may flow: it need not be whole before its first byte leaves.
    pub may_stream: bool,
    /// The trace that its client says it belongs to.
    pub trace_parent: Option<Box<TraceContext>>,
}

impl Ctx {
    /// A request without a key, which is answered whole and without its trail.
    pub(crate) fn of_address(address: IpAddr, received_at: Instant) -> Self {
        let peer = SocketAddr::new(address, 0);
        Self {
            received_at,
            peer,
            caller: None,
            want_trail: false,
            known_block: None,
            may_stream: false,
            trace_parent: None,
        }
    }

    /// The client's address, behind proxies that are trusted.
    pub(crate) fn address(&self) -> IpAddr {
        self.caller.as_ref().map_or_else(|| self.peer.ip(), |caller| caller.address)
    }

    /// The client that must not see the chain go back: what holds one key, or an address.
    pub(crate) fn client(&self) -> ClientId {
        self.id_by(|grant| grant.number)
    }

    /// The client that gets one share of what is scarce: a tenant, or an address.
    pub(crate) fn tenant(&self) -> ClientId {
        self.id_by(|grant| grant.tenant.number)
    }

    /// The tenant of the caller, for people; never a secret.
    pub(crate) fn tenant_name(&self) -> Option<&str> {
        self.caller.as_ref().map(|caller| &*caller.grant.tenant.name)
    }

    /// The public id of the caller's key, for people; never a secret.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.caller.as_ref().map(|caller| &*caller.grant.id)
    }

    fn id_by(&self, number: impl FnOnce(&AccessGrant) -> u64) -> ClientId {
        match &self.caller {
            Some(Caller { grant, .. }) if grant.kind != GrantKind::Anonymous => {
                ClientId::Named(number(grant))
            }
            Some(caller) => caller.address.into(),
            None => self.peer.ip().into(),
        }
    }
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

/// One request on its way to one chain.
pub(crate) struct RequestContext<'a> {
    pub(crate) chain: &'a Arc<ServedChain>,
    pub(crate) worker: &'a Arc<WorkerUpstreams>,
    pub(crate) ctx: &'a Ctx,
    /// What was believed of the chain when the batch came, if it is one.
    pub(crate) view: Option<Arc<View>>,
    /// Where its answers are counted, if it is a batch.
    pub(crate) room: Option<Arc<MemoryBudget>>,
    /// The newest block for the client, from the first step that needs it.
    newest: OnceLock<Option<Newest>>,
    /// The block that the client said it knows, where an upstream has it.
    pub(crate) known: Option<BlockNumber>,
    total: Duration,
    /// What it is doing.
    pub(crate) progress: &'a Progress,
    /// What the client selects upstreams by.
    pub(crate) selection: Option<Box<Selection>>,
    /// How its calls are charged; `None` where they are not.
    pub(crate) terms: Option<&'a AccessTerms>,
    /// The message that it came as, on a connection that can be told things.
    pub(crate) subscriber: Option<&'a SubscriberMessage<'a>>,
    /// What it leaves for its trace, if it may have one.
    pub(crate) trace: Option<&'a RequestTrace<'a>>,
    /// An empty answer to a search for logs was served that a header speaks against.
    doubts_logs: AtomicBool,
}

/// What a client is told of such an answer.
const LOGS_DOUBTED: &str = "logs-doubted";

impl<'a> RequestContext<'a> {
    /// A request that is charged to no caller, selects no upstreams and leaves no trace.
    pub(crate) fn new(
        chain: &'a Arc<ServedChain>,
        worker: &'a Arc<WorkerUpstreams>,
        ctx: &'a Ctx,
        view: Option<Arc<View>>,
        total: Duration,
        progress: &'a Progress,
    ) -> Self {
        let (newest, doubts_logs) = (OnceLock::new(), AtomicBool::new(false));
        let part = || Arc::new(worker.answers().part(chain.bounds.batch_bytes_max));
        let room = view.as_ref().map(|_| part());
        Self {
            chain,
            worker,
            ctx,
            view,
            room,
            newest,
            known: None,
            total,
            progress,
            selection: None,
            terms: None,
            subscriber: None,
            trace: None,
            doubts_logs,
        }
    }

    /// The caller that pays for it, and by which terms; `None` where nothing is charged.
    pub(crate) fn payer(&self) -> Option<(&'a Caller, &'a AccessTerms)> {
        self.ctx.caller.as_ref().zip(self.terms)
    }
}

impl RequestContext<'_> {
    /// The answer will carry a warning; see [`crate::steps::empty_logs`].
    pub(crate) fn warn_of_logs(&self) {
        self.doubts_logs.store(true, Ordering::Relaxed);
    }

    /// Why the client should not rely on the answer, if there is a reason.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        self.doubts_logs.load(Ordering::Relaxed).then_some(LOGS_DOUBTED)
    }

    /// Has a batch see what is believed of the chain now. Must come before anything of it is decided.
    pub(crate) fn renew_view(&mut self) {
        debug_assert!(self.newest.get().is_none(), "an item has seen another view");
        if let Some(view) = &mut self.view {
            *view = self.chain.heads.view();
        }
    }

    /// Looks at the view of the request: of its batch, or the newest.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        match &self.view {
            Some(view) => look(view),
            None => self.chain.heads.look(look),
        }
    }

    /// The newest block for this client, by the view that it was first asked on, so that all
    /// items of a batch see the same; see [`crate::state::sessions`].
    pub(crate) fn newest(&self, view: &View) -> Option<Newest> {
        let newest = || self.chain.sessions.newest(self.ctx.client(), view, self.ctx.received_at);
        *self.newest.get_or_init(newest)
    }

    /// The newest block for this client, as far as one of those that may be asked holds it.
    pub(crate) fn latest(
        &self,
        row: &MethodRow,
        eligible: UpstreamSet,
        view: &View,
    ) -> Option<BlockNumber> {
        let (roster, at) = (&self.chain.roster, self.ctx.received_at);
        self.newest(view).map(|newest| newest.held((row, eligible), view, roster, at))
    }

    /// The upstreams that may serve `method`, by the settings and the client's selection.
    pub(crate) fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        let roster = &self.chain.roster;
        let eligible = self.chain.eligible(row, method)?;
        let Some(selection) = &self.selection else { return Ok(eligible) };
        let at = self.ctx.received_at;
        let selected = self.look(|view| selection.narrow(eligible, row, roster, view, at));
        if selected.is_empty() { Err(NotServed::NotSelected) } else { Ok(selected) }
    }

    /// Which upstreams may be asked for `method`, by its effect: none has to serve what none is
    /// asked for; what is forbidden stays so.
    pub(crate) fn eligible_by_effect(
        &self,
        row: &MethodRow,
        method: &str,
    ) -> Result<UpstreamSet, NotServed> {
        match (row.effect, self.eligible(row, method)) {
            (
                Effect::Local | Effect::Subscribe | Effect::Filter,
                Err(NotServed::NoUpstream | NotServed::NotSelected),
            ) => Ok(UpstreamSet::default()),
            (_, eligible) => eligible,
        }
    }

    /// The hash of the caller, where each has its own upstream.
    pub(crate) fn home(&self, row: &MethodRow) -> Option<u64> {
        // Of methods that the table does not list the chain's own setting counts.
        match self.chain.roster.balance(row, row.name) {
            Balance::Cost => None,
            Balance::Rendezvous => Some(self.ctx.client().number()),
        }
    }

    /// What the client selects upstreams by, in one way of writing it; empty for nothing.
    pub(crate) fn selected(&self) -> &str {
        self.selection.as_ref().map_or("", |selection| &*selection.words)
    }

    /// Where its answers are counted.
    pub(crate) fn answers(&self) -> &Arc<MemoryBudget> {
        self.room.as_ref().unwrap_or(self.worker.answers())
    }

    /// What the request may still cost.
    pub(crate) fn allowance(&self) -> &Allowance {
        self.progress.allowance()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.ctx.received_at + self.total
    }

    /// The lowest that the newest block may be for this client: what is agreed, or was shown to it.
    pub(crate) fn floor(&self, view: &View) -> Option<BlockNumber> {
        let agreed = view.latest.filter(|_| self.chain.pins)?.number;
        let (client, at) = (self.ctx.client(), self.ctx.received_at);
        self.chain.sessions.above(client, agreed, view, at).or(Some(agreed))
    }

    /// Whether this client was shown more than is agreed.
    pub(crate) fn is_shown_more(&self, view: &View) -> bool {
        self.chain.pins && self.newest(view).is_some_and(Newest::is_shown)
    }

    /// What the view says of blocks to this client; see [`ViewCanon::by`].
    pub(crate) fn canon<'v>(&self, view: &'v View, now: Instant) -> ViewCanon<'v> {
        ViewCanon::by(view, now, || self.is_shown_more(view))
    }

    /// Notes that this client is told of a block, now: its call may have come long before.
    pub(crate) fn show(&self, number: BlockNumber) {
        let (chain, client) = (self.chain, self.ctx.client());
        let news = chain.heads.look(|view| chain.sessions.show(client, number, view, now));
        if let Some(number) = news {
            chain.tell_shown(client.number(), number);
        }
    }
}
