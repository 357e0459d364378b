//! Settings become parts: chains, upstreams, transports, control loops.
//!
//! What all workers share is made once ([`Assembly`]); connections are made per
//! worker, since each has its own pools ([`Assembly::worker_chains`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;
use wellhead_access::DenialCounts;
use wellhead_access::usage::UsageTable;
use wellhead_chain::Heads;
use wellhead_dispatch::{Bounds, Hedging, WorkerUpstreams};
use wellhead_eth::Data;
use wellhead_jsonrpc::ParseLimits;
use wellhead_limit::RetryBudget;
use wellhead_net::{
    Auth, ClientSettings, ConnectionStats, Endpoint, FeedSettings, HttpTransport, Resolver,
    TlsClient, TransportResources, TrustedRoots, WsClient, WsTransport,
};
use wellhead_proxy::{
    Cache, CacheSettings, ChainName, Level, LineRates, Proxy, QuorumRule, SearchBounds,
    ServedChain, Tiers, VerifyPool, VerifySettings, WorkerChains,
};
use wellhead_route::{DangerousMethods, Only, Roster, RouteRule};
use wellhead_server::TlsProblem;
use wellhead_store::{Disk, DiskBounds, OpenError, SharedBounds, SharedTier};
use wellhead_telemetry::clock;
use wellhead_transport::feed::FeedConnector;
use wellhead_transport::{Ceiling, Transport};
use wellhead_upstream::{
    BreakerBounds, Budget, BudgetTerms, Identity, MethodRules, ReachSettings, Redactor, Slot,
    Upstream, UpstreamSet,
};
use wellhead_watch::{CheckCounts, Checks, FeedUse, Mode, PollPace, Pulse, Watcher, WatcherParts};

use crate::access::{self, CallerControl, JwksSource, PlannedAccess};
use crate::config::callers::IssuerKeys;
use crate::config::{self, CallsOver, Settings};
use crate::limits::KnownLimits;
use crate::secrets;
use crate::shared::{self, SharedLimits, SharedUpstream};

/// Calls of one batch that run at one time. Most batches share one exchange; the others are bounded
/// by what their upstreams admit, long before this.
const BATCH_PARALLEL: usize = 32;
/// Parts of one search that run at one time: upstreams answer a few side by side about as fast as
/// one, and each part may be a megabyte that is held.
const SEARCH_PARALLEL: usize = 4;
/// Good answers that end a rest. One is enough: the first failure after it begins a longer rest.
const RECOVERY_ANSWERS: u32 = 1;
/// A `null` that says something true is not kept: a client that saw its transaction elsewhere must
/// find the receipt at once.
const NULL_TIME: Duration = Duration::ZERO;

/// Why the parts could not be made. The config was checked before, so these are
/// things that only show when they are tried.
#[derive(Debug)]
pub(crate) enum AssembleError {
    /// Certificate or key of the listener cannot be used.
    Tls(Vec<TlsProblem>),
    /// An upstream cannot be reached in the way that its settings say.
    Upstream { id: String, problem: String },
    /// The settings of callers do not fit together.
    Access(Vec<String>),
    /// The folder of the cache cannot be used.
    CacheDisk(PathBuf, OpenError),
}

impl std::fmt::Display for AssembleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tls(problems) => {
                let problems: Vec<_> = problems.iter().map(TlsProblem::to_string).collect();
                write!(f, "{}", problems.join("; "))
            }
            Self::Access(problems) => write!(f, "{}", problems.join("; ")),
            Self::Upstream { id, problem } => write!(f, "upstream `{id}`: {problem}"),
            Self::CacheDisk(path, error) => write!(f, "`cache.disk` `{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for AssembleError {}

/// How one upstream is reached; every worker makes its own transport from it.
#[derive(Debug)]
struct UpstreamReach {
    id: String,
    endpoint: Endpoint,
    /// Where the upstream speaks WebSocket.
    feed: Option<Endpoint>,
    /// It speaks nothing else.
    is_socket: bool,
    calls_over: CallsOver,
    settings: ClientSettings,
    shared: TransportResources,
    pace: PollPace,
    checks: Checks,
    limits: KnownLimits,
}

#[derive(Debug)]
struct ChainParts {
    served: Arc<ServedChain>,
    retry_budget: Arc<RetryBudget>,
    reach: Vec<UpstreamReach>,
}

/// Everything that is made once.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) cache: Option<Arc<Cache>>,
    /// Who may call; `None` where clients are told apart by their addresses alone.
    pub(crate) callers: Option<Arc<CallerControl>>,
    /// What limits of callers refused.
    pub(crate) denied: Arc<DenialCounts>,
    /// Where limits are shared with other wellheads.
    pub(crate) shared: Option<Arc<SharedLimits>>,
    /// The issuers of tokens whose keys are fetched.
    pub(crate) issuers: Vec<Arc<JwksSource>>,
    answers: Arc<Ceiling>,
    chains: Vec<ChainParts>,
}

/// What is counted of the connections to one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamConnections {
    pub(crate) chain: Arc<str>,
    pub(crate) upstream: String,
    pub(crate) stats: Arc<ConnectionStats>,
    pub(crate) limits: KnownLimits,
}

impl Assembly {
    /// The upstreams by the keys under which replicas share them.
    pub(crate) fn upstreams_by_key(&self) -> HashMap<String, Arc<Upstream>> {
        let of_chain = |parts: &ChainParts| {
            let name = Arc::clone(&parts.served.name.name);
            let upstreams = parts.served.roster.upstreams().to_vec();
            upstreams.into_iter().map(move |upstream| {
                (shared::upstream_key(&name, upstream.identity().id.as_str()), upstream)
            })
        };
        self.chains.iter().flat_map(of_chain).collect()
    }

    /// Makes the parts. Opens no connection.
    pub(crate) fn new(
        settings: &Settings,
        usage: Option<Arc<UsageTable>>,
        now: Instant,
    ) -> Result<Self, AssembleError> {
        let cache = cache(&settings.cache, now)?;
        let mut commons = Commons {
            resolver: Arc::new(Resolver::new()),
            tls: HashMap::new(),
            cache,
            verify_pool: Arc::new(VerifyPool::new(verify_threads())),
            shared: settings.shared.as_ref().map(|it| Arc::new(SharedLimits::new(it, now))),
        };
        let mut chains = Vec::new();
        for (name, chain) in settings.chains.iter() {
            chains.push(chain_parts(name.as_ref(), chain, settings, &mut commons, now)?);
        }
        let served = chains.iter().map(|chain| Arc::clone(&chain.served)).collect();
        let answers = Arc::new(Ceiling::new(settings.limits.answers_total_bytes.as_usize()));
        let denied = Arc::default();
        let proxy = Proxy::new(served, proxy_settings(settings))
            .logging(line_rates(&settings.log))
            .holding(Arc::clone(&answers))
            .charging(access::terms(&settings.access, usage, Arc::clone(&denied), now));
        let shared = commons.shared.clone();
        let sharing = shared.as_ref().map(|it| Arc::clone(it) as _);
        let planned = access::plan(settings, sharing, now).map_err(AssembleError::Access)?;
        let (callers, tokens) = planned
            .map_or((None, None), |PlannedAccess { control, tokens }| (Some(control), tokens));
        let issuers = match &tokens {
            Some(keys) => commons.issuers(&settings.access.jwt, keys)?,
            None => Vec::new(),
        };
        let (proxy, cache) = (Arc::new(proxy), commons.cache);
        Ok(Self { proxy, cache, callers, denied, shared, issuers, answers, chains })
    }

    /// What one more worker reaches the upstreams of all chains with: connections of its own.
    pub(crate) fn worker_chains(&self, rng: &mut impl Rng) -> Result<WorkerChains, AssembleError> {
        let mut chains = Vec::new();
        for chain in &self.chains {
            let mut transports: Vec<Arc<dyn Transport>> = Vec::new();
            for reach in &chain.reach {
                transports.push(reach.transport(&self.answers, rng)?);
            }
            let upstreams = WorkerUpstreams::new(transports, rng.random())
                .spending(Arc::clone(&chain.retry_budget))
                .holding(Arc::clone(&self.answers))
                .inspecting(chain.served.inspector())
                .flowing(chain.reach.iter().map(UpstreamReach::flows_max));
            chains.push(upstreams);
        }
        Ok(WorkerChains::new(chains))
    }

    /// The control loops, one an upstream, with connections of their own.
    pub(crate) fn watchers(&self, rng: &mut impl Rng) -> Result<Vec<Watcher>, AssembleError> {
        let mut watchers = Vec::new();
        // Not below the ceiling: they hold one answer each, and are to go on when it is reached.
        let answers = Arc::default();
        for chain in &self.chains {
            for (upstream, reach) in chain.served.roster.upstreams().iter().zip(&chain.reach) {
                let watcher = Watcher::new(
                    WatcherParts {
                        upstream: Arc::clone(upstream),
                        transport: reach.transport(&answers, rng)?,
                        feed: reach.feed()?,
                        heads: Arc::clone(&chain.served.heads),
                        pulse: Arc::clone(&chain.served.pulse),
                        counts: Arc::clone(&chain.served.asked[upstream.slot().index()]),
                    },
                    reach.pace,
                );
                let beside = chain.served.roster.upstreams();
                watchers.push(watcher.checking(reach.checks).among(beside));
            }
        }
        Ok(watchers)
    }

    /// The counters of the connections to each upstream.
    pub(crate) fn connections(&self) -> Vec<UpstreamConnections> {
        let of_chain = |chain: &ChainParts| {
            let name = Arc::clone(&chain.served.name.name);
            let of_upstream = |reach: &UpstreamReach| UpstreamConnections {
                chain: Arc::clone(&name),
                upstream: reach.id.clone(),
                stats: Arc::clone(&reach.shared.stats),
                limits: reach.limits.clone(),
            };
            chain.reach.iter().map(of_upstream).collect::<Vec<_>>()
        };
        self.chains.iter().flat_map(of_chain).collect()
    }
}

/// Of its connections to an upstream a thread lends one in so many to large answers, which
/// hold them for as long as their clients take.
const FLOWS_SHARE: usize = 4;

impl UpstreamReach {
    fn flows_max(&self) -> usize {
        (self.settings.connections_max / FLOWS_SHARE).max(1)
    }

    fn problem(&self, problem: &dyn std::fmt::Display) -> AssembleError {
        AssembleError::Upstream { id: self.id.clone(), problem: problem.to_string() }
    }

    /// Checks go the same way as calls: they find out whether that one is open.
    fn transport(
        &self,
        answers: &Arc<Ceiling>,
        rng: &mut impl Rng,
    ) -> Result<Arc<dyn Transport>, AssembleError> {
        let settings = self.settings.clone();
        let shared = TransportResources { answers: Arc::clone(answers), ..self.shared.clone() };
        if self.is_socket {
            let sockets = WsTransport::alone(&self.endpoint, settings, shared, rng.random())
                .map_err(|error| self.problem(&error))?;
            return Ok(Arc::new(sockets));
        }
        let http =
            HttpTransport::new(&self.endpoint, settings.clone(), shared.clone(), rng.random())
                .map_err(|error| self.problem(&error))?;
        match (self.calls_over, &self.feed) {
            (CallsOver::WebSocket, Some(endpoint)) => {
                let sockets = WsTransport::new(endpoint, settings, shared, http, rng.random())
                    .map_err(|error| self.problem(&error))?;
                Ok(Arc::new(sockets))
            }
            // The config check has seen to it that there is a URL where one is needed.
            (CallsOver::Http, _) | (CallsOver::WebSocket, None) => Ok(Arc::new(http)),
        }
    }

    fn feed(&self) -> Result<Option<Arc<dyn FeedConnector>>, AssembleError> {
        let Some(endpoint) = &self.feed else { return Ok(None) };
        let settings = FeedSettings {
            connect_timeout: self.settings.connect_timeout,
            ..FeedSettings::default()
        };
        let resolver = Arc::clone(&self.shared.resolver);
        let client = WsClient::new(endpoint, settings, resolver, &self.shared.tls)
            .map_err(|error| self.problem(&error))?;
        Ok(Some(Arc::new(client)))
    }
}

/// What all upstreams and chains share.
struct Commons {
    resolver: Arc<Resolver>,
    /// By the file of certificates, if any, and whether these add to the public ones.
    tls: HashMap<(Option<PathBuf>, bool), Arc<TlsClient>>,
    cache: Option<Arc<Cache>>,
    /// Where answers are looked at that take long.
    verify_pool: Arc<VerifyPool>,
    /// Where limits are shared with other wellheads.
    shared: Option<Arc<SharedLimits>>,
}

impl Commons {
    /// A client that trusts the authorities in a file, or the public ones, or both.
    fn tls(&mut self, ca_file: Option<&Path>, adds: bool) -> Result<Arc<TlsClient>, String> {
        let key = (ca_file.map(Path::to_owned), adds);
        if let Some(client) = self.tls.get(&key) {
            return Ok(Arc::clone(client));
        }
        let read = |path: &Path| {
            let pem = config::authorities(path);
            pem.map_err(|why| format!("`ca_file` `{}`: {why}", path.display()))
        };
        let pem = ca_file.map(read).transpose()?;
        let roots = match &pem {
            Some(pem) if adds => TrustedRoots::PublicAnd(pem),
            Some(pem) => TrustedRoots::Only(pem),
            None => TrustedRoots::Public,
        };
        let client = TlsClient::new(roots).map_err(|error| error.to_string())?;
        Ok(Arc::clone(self.tls.entry(key).or_insert(Arc::new(client))))
    }

    /// The issuers of tokens whose keys are fetched.
    fn issuers(
        &mut self,
        settings: &[config::Jwt],
        keys: &IssuerKeys,
    ) -> Result<Vec<Arc<JwksSource>>, AssembleError> {
        let resolver = Arc::clone(&self.resolver);
        access::jwks_sources(settings, keys, &resolver, |ca_file| self.tls(ca_file, false))
            .map_err(AssembleError::Access)
    }
}

/// One for all chains.
fn cache(settings: &config::Cache, now: Instant) -> Result<Option<Arc<Cache>>, AssembleError> {
    if !settings.enabled {
        return Ok(None);
    }
    let kept = CacheSettings {
        bytes: settings.bytes.0,
        head: settings.head_ttl,
        null: NULL_TIME,
        by_hash: settings.by_hash,
    };
    let open = |disk: &config::CacheDisk| {
        let bounds = DiskBounds { bytes_max: disk.bytes.0, ..DiskBounds::default() };
        Disk::open(&disk.path, &bounds, Arc::new(clock::unix_seconds))
            .map_err(|error| AssembleError::CacheDisk(disk.path.clone(), error))
    };
    let tiers = Tiers::new(settings.disk.as_ref().map(open).transpose()?);
    let unix_ms = clock::unix_seconds().saturating_mul(1_000);
    let cache = Cache::new(kept, now, unix_ms, rand::random()).before(tiers);
    Ok(Some(Arc::new(cache)))
}

/// Begins to look for the Redis of the settings. Needs a runtime.
pub(crate) fn share_cache(cache: &Cache, redis: &config::CacheRedis, rng: SmallRng) {
    let bounds = SharedBounds {
        ttl_max: redis.ttl,
        get_within: redis.get_timeout,
        ..SharedBounds::default()
    };
    match SharedTier::start(&redis.url, bounds, Arc::new(clock::unix_seconds), rng) {
        Ok(shared) => cache.tiers().share(shared),
        // The config check has looked at the URL.
        Err(error) => {
            tracing::error!(%error, "the Redis of the cache cannot be used; continuing without it");
        }
    }
}

fn line_rates(log: &config::Log) -> LineRates {
    LineRates { succeeded: log.requests_per_second, failed: log.failures_per_second }
}

fn proxy_settings(settings: &Settings) -> wellhead_proxy::Settings {
    wellhead_proxy::Settings {
        limits: ParseLimits {
            batch_items_max: settings.limits.batch_items,
            ..ParseLimits::default()
        },
        batch_parallel: BATCH_PARALLEL,
        total: settings.timeouts.total,
        log_requests: settings.log.requests,
        upstream_calls: settings.upstream_calls(),
    }
}

fn chain_parts(
    name: &str,
    chain: &config::Chain,
    settings: &Settings,
    commons: &mut Commons,
    now: Instant,
) -> Result<ChainParts, AssembleError> {
    let mut upstreams = Vec::new();
    let mut reach = Vec::new();
    for (place, upstream) in chain.upstreams.iter().enumerate() {
        // The config check keeps a chain within `UPSTREAMS_MAX`, which fits.
        let slot = Slot(u8::try_from(place).unwrap_or(u8::MAX));
        let made = Upstream::new(identity(upstream), slot, breaker(settings), now)
            .hiding(Redactor::of(&secrets::of(upstream)))
            .within(budget(upstream))
            .reaching(history(&upstream.history));
        let made = match &commons.shared {
            Some(shared) => {
                made.sharing(Arc::new(SharedUpstream::new(shared, name, upstream.id.as_str())))
            }
            None => made,
        };
        upstreams.push(Arc::new(made));
        reach.push(reach_of(chain, upstream, settings, commons)?);
    }
    let count = upstreams.len();
    let roster = Roster::new(
        upstreams,
        MethodRules { allow: chain.methods.allow.clone(), deny: chain.methods.deny.clone() },
        chain.routes.iter().map(|route| route_rule(chain, route)).collect(),
    )
    .balanced(chain.balance)
    .allowing(DangerousMethods {
        allow: chain.methods.dangerous.clone(),
        on_test_chains: settings.may_serve_a_test_chain(chain),
    });
    let name = ChainName {
        name: name.into(),
        aliases: chain.aliases.iter().map(|alias| alias.as_ref().to_owned()).collect(),
    };
    let heads = heads(chain, roster.upstreams());
    let served = ServedChain::new(
        name,
        roster,
        heads,
        Arc::new(Pulse::new(chain.id, now)),
        (0..count).map(|_| Arc::default()).collect::<Vec<Arc<CheckCounts>>>(),
        bounds(settings),
    )
    .searching(SearchBounds { calls_max: chain.searches.calls_max, parallel: SEARCH_PARALLEL })
    .pinning(chain.pin)
    .naming(settings.client_version)
    .agreeing_on(&chain.quorum.iter().map(|rule| quorum_rule(chain, rule)).collect::<Vec<_>>())
    .verifying(&verify_settings(chain), Arc::clone(&commons.verify_pool))
    .sharing(commons.cache.clone(), settings.coalesce.then(rand::random));
    Ok(ChainParts { served: Arc::new(served), retry_budget: Arc::default(), reach })
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        attempts_max: settings.attempts.max as usize,
        attempt: settings.timeouts.attempt,
        whole_bytes_max: settings.limits.answer_buffer.as_usize(),
        answer_bytes_max: settings.limits.answer_bytes.as_usize(),
        batch_bytes_max: settings.limits.batch_bytes.as_usize(),
        hedging: settings.hedging.enabled.then(Hedging::default),
        broadcast_max: settings.attempts.broadcast as usize,
        broadcast_tiers: settings.attempts.broadcast_tiers,
        extra_tiers: settings.attempts.extra_tiers,
    }
}

/// Where no level is set, answers of upstreams of others are verified and those of your own are
/// not; levels that are set for methods hold for all.
fn verify_settings(chain: &config::Chain) -> VerifySettings {
    let verify = &chain.verify;
    let levels = verify.levels.iter().map(|of| (of.methods.clone(), of.level));
    let of_upstreams = chain.upstreams.iter().map(|upstream| chain.verify_level(upstream));
    let level = of_upstreams.clone().find(|level| *level != Level::Off).unwrap_or(Level::Off);
    let mut trusted = UpstreamSet::NONE;
    for (slot, of_upstream) in (0..).map(Slot).zip(of_upstreams) {
        if level != of_upstream {
            trusted.insert(slot);
        }
    }
    VerifySettings {
        level,
        trusted,
        levels: levels.collect(),
        ethereum: verify.ethereum,
        proves_logs: true,
    }
}

/// Checks of answers take at most half of the cores.
fn verify_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).max(1)
}

fn heads(chain: &config::Chain, upstreams: &[Arc<Upstream>]) -> Arc<Heads> {
    let checks = chain.upstreams.iter().map(|upstream| checks_of(&chain.checks_of(upstream)));
    // Where all are followed rarely, what one of them told has to last until the next poll.
    let followed = checks.filter(|(_, checks)| checks.mode == Mode::On);
    let poll_min = followed.map(|(pace, _)| pace.poll_min).min();
    let agreement = chain.agreement.and_then(|count| usize::try_from(count).ok());
    let heads = Heads::new(upstreams.len(), chain.block_time, chain.lag_blocks_max)
        .agreeing(agreement)
        .final_after(chain.final_after)
        .polled_every(poll_min)
        .among(upstreams.to_vec());
    Arc::new(heads)
}

fn breaker(settings: &Settings) -> BreakerBounds {
    BreakerBounds {
        failures_max: settings.health.failures,
        successes_min: RECOVERY_ANSWERS,
        rest: settings.health.open_for,
        rest_max: settings.health.open_for_max,
    }
}

fn checks_of(checks: &config::Checks) -> (PollPace, Checks) {
    let pace = PollPace {
        poll_min: checks.head_interval_min,
        idle: checks.idle_interval,
        ..PollPace::default()
    };
    let checks = Checks {
        mode: checks.mode,
        calls: checks.calls.iter().copied().collect(),
        feed: match checks.ws {
            Some(true) => FeedUse::Always,
            Some(false) => FeedUse::Never,
            None if checks.mode == Mode::On => FeedUse::ByPrice,
            None => FeedUse::Never,
        },
        credits_per_day: checks.credits_per_day,
    };
    (pace, checks)
}

fn identity(upstream: &config::Upstream) -> Identity {
    let label = |(name, value): &(config::LabelName, config::TextLine)| {
        (name.as_ref().to_owned(), value.0.clone())
    };
    let named = upstream.provider.as_ref().map(|provider| provider.0.clone());
    Identity {
        id: upstream.id.clone(),
        tier: upstream.tier,
        labels: upstream.labels.iter().map(label).collect(),
        methods: rules(&upstream.methods),
        provider: named.or_else(|| upstream.known_provider().map(|known| known.id.clone())),
        attempt: upstream.timeouts.attempt,
        lag_blocks_max: upstream.lag_blocks_max,
        weight: upstream.weight,
    }
}

fn history(given: &config::History) -> ReachSettings {
    let config::History { state, blocks, logs, traces, range_max } = *given;
    let mut history = ReachSettings { range_max, ..ReachSettings::default() };
    for data in Data::ALL {
        history.kept[*data as usize] = match data {
            Data::State => state,
            Data::Blocks => blocks,
            Data::Logs => logs,
            Data::Traces => traces,
        };
    }
    history
}

/// The upstream is made now, so that the wall time of its epoch is that of now.
fn budget(upstream: &config::Upstream) -> Budget {
    let own = &upstream.budget;
    let terms = BudgetTerms {
        plan: own.plan.as_ref().map(AsRef::as_ref),
        credits_per_second: own.credits_per_second,
        credits_per_day: own.credits_per_day,
        credits_per_month: own.credits_per_month,
        calls_per_second: own.calls_per_second,
        calls_window: own.calls_window,
        calls_burst: own.calls_burst,
        in_flight: own.in_flight,
        overspend: own.overspend,
        learn: own.learn,
    };
    Budget::new(upstream.known_provider(), &terms, clock::unix_seconds())
}

fn rules(methods: &config::Methods) -> MethodRules {
    MethodRules { allow: methods.allow.clone(), deny: methods.deny.clone() }
}

/// As ids: the config may ask for labels and ids together.
fn route_rule(chain: &config::Chain, route: &config::Route) -> RouteRule {
    let picked = chain.upstreams.iter().filter(|upstream| route.picks(upstream));
    let ids = picked.map(|upstream| upstream.id.clone()).collect();
    RouteRule { methods: route.methods.clone(), only: Only::Upstreams(ids), balance: route.balance }
}

fn quorum_rule(chain: &config::Chain, rule: &config::Quorum) -> QuorumRule {
    let config::Quorum { agree, wait, on_dispute, on_low_participation, .. } = *rule;
    let of = rule.heard_max(chain.upstreams.len());
    QuorumRule {
        methods: rule.methods.clone(),
        quorum: wellhead_dispatch::Quorum { agree, of, wait, on_dispute, on_low_participation },
    }
}

/// The credentials for an endpoint.
pub(crate) fn auth_of(auth: Option<&config::Auth>) -> Auth {
    match auth {
        None => Auth::Url,
        Some(config::Auth { basic: Some(basic), .. }) => Auth::Basic {
            user: wellhead_telemetry::Secret::new(basic.user.0.as_str()),
            password: basic.password.clone(),
        },
        Some(config::Auth { bearer: Some(token), .. }) => Auth::Bearer(token.clone()),
        Some(config::Auth { basic: None, bearer: None }) => Auth::Url,
    }
}

/// Where calls to an upstream go, and what each carries.
pub(crate) fn endpoint_of(upstream: &config::Upstream) -> Endpoint {
    let headers = upstream.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_ref().to_owned(), value.clone())).collect();
    let auth = auth_of(upstream.auth.as_ref());
    Endpoint { url: upstream.url.clone(), headers, auth, version: upstream.http }
}

fn reach_of(
    chain: &config::Chain,
    upstream: &config::Upstream,
    settings: &Settings,
    commons: &mut Commons,
) -> Result<UpstreamReach, AssembleError> {
    let id = upstream.id.as_str().to_owned();
    let endpoint = endpoint_of(upstream);
    let is_socket = upstream.is_socket();
    let feed = upstream.ws.clone().or_else(|| is_socket.then(|| upstream.url.clone()));
    let feed = feed.map(|url| Endpoint { url, ..endpoint.clone() });
    // Each transport is told where answers are counted.
    let tls = commons
        .tls(upstream.ca_file.as_deref(), upstream.ca_file_adds)
        .map_err(|problem| AssembleError::Upstream { id: id.clone(), problem })?;
    let shared = TransportResources::new(Arc::clone(&commons.resolver), tls);
    let usual = ClientSettings::default();
    let settings = ClientSettings {
        connect_timeout: upstream.timeouts.connect.unwrap_or(settings.timeouts.connect),
        connections_max: upstream.connections_max,
        answer_bytes_max: settings.limits.answer_bytes.as_usize(),
        compression: upstream.gzip,
        h2_streams_max: upstream.connection.streams_max.unwrap_or(usual.h2_streams_max),
        h2_requests_max: upstream.connection.requests_max,
        idle: upstream.connection.idle.unwrap_or(usual.idle),
        ..usual
    };
    let (pace, checks) = checks_of(&chain.checks_of(upstream));
    let calls_over = upstream.calls_over;
    let limits = KnownLimits::new(upstream);
    Ok(UpstreamReach {
        id,
        endpoint,
        feed,
        is_socket,
        calls_over,
        settings,
        shared,
        pace,
        checks,
        limits,
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// The level at each upstream with these settings, one URL each.
    fn check_levels(verify: &str, upstreams: &[(&str, Level)]) {
        let listed: Vec<_> =
            upstreams.iter().map(|(settings, _)| format!("      - {{ {settings} }}\n")).collect();
        let source = format!(
            "chains:\n  ethereum:\n    id: 1\n    verify: {verify}\n    upstreams:\n{}",
            listed.concat()
        );
        let loaded = config::parse("test", &source, &|_| None, config::Overrides::default());
        let settings = loaded.unwrap_or_else(|report| panic!("{}", report.render(false))).settings;
        let (_, chain) = settings.chains.iter().next().expect("one chain");
        let made = verify_settings(chain);
        for (slot, (settings, level)) in (0..).map(Slot).zip(upstreams) {
            let found = if made.trusted.contains(slot) { Level::Off } else { made.level };
            assert_eq!(found, *level, "{settings} with {verify}");
        }
    }

    #[test]
    fn upstreams_of_others_are_verified_by_default_and_your_own_are_not() {
        let all = [
            ("id: a, url: 'https://eth.example/key'", Level::Cheap),
            ("id: b, url: 'https://203.0.113.7'", Level::Cheap),
            ("id: c, url: 'https://eth-mainnet.g.alchemy.com/v2/key'", Level::Cheap),
            ("id: d, url: 'http://gateway:8545', provider: alchemy", Level::Cheap),
            ("id: e, url: 'http://eth.example'", Level::Off),
            ("id: f, url: 'http://127.0.0.1:8545'", Level::Off),
            ("id: g, url: 'https://10.0.0.7'", Level::Off),
            ("id: h, url: 'https://geth'", Level::Off),
            ("id: i, url: 'https://geth.eth.svc.cluster.local'", Level::Off),
            ("id: j, url: 'http://geth', provider: ours", Level::Off),
        ];
        check_levels("{}", &all);
        check_levels("{ ethereum: true }", &all);
        check_levels("{}", &all[4..]);
        check_levels("{}", &all[..4]);
        for (word, level) in [("'off'", Level::Off), ("cheap", Level::Cheap), ("full", Level::Full)]
        {
            let alike = all.map(|(settings, _)| (settings, level));
            check_levels(&format!("{{ level: {word} }}"), &alike);
        }
    }

    #[test]
    fn calls_go_over_websocket_where_the_settings_say_so() {
        let source = r#"
chains:
  ethereum:
    id: 1
    upstreams:
      - { id: a, url: "http://a", ws: "ws://a" }
      - { id: b, url: "http://b", ws: "ws://b", calls_over: websocket }
"#;
        let loaded = config::parse("test", source, &|_| None, config::Overrides::default());
        let settings = loaded.expect("a good config").settings;
        let now = tokio::time::Instant::now().into_std();
        let parts = Assembly::new(&settings, None, now).expect("sound");
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let made = parts.chains[0].reach.iter().map(|reach| {
            let transport = reach.transport(&parts.answers, &mut rng).expect("usable");
            let name = format!("{transport:?}");
            name.split(' ').next().unwrap_or_default().to_owned()
        });
        assert_eq!(made.collect::<Vec<_>>(), ["HttpTransport", "WsTransport"]);
    }

    /// The memory of idle upstreams: settings, parts, connection pools of two workers and of the
    /// control loops, and these loops before they begin.
    #[test]
    fn an_idle_upstream_takes_little_memory() {
        const CHAINS: usize = 200;
        const UPSTREAMS: usize = 1_000;
        let mut source = "chains:\n".to_owned();
        for chain in 0..CHAINS {
            source += &format!("  c{chain}:\n    upstreams:\n");
            for upstream in 0..UPSTREAMS / CHAINS {
                let id = format!("u{chain}-{upstream}");
                source += &format!("      - {{ id: {id}, url: \"http://localhost/{id}\" }}\n");
            }
        }
        let now = tokio::time::Instant::now().into_std();
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let held = std::cell::RefCell::new(Vec::<Box<dyn std::any::Any>>::new());
        let mut bytes = 0;
        let mut count = |what: &str, make: &mut dyn FnMut() -> Box<dyn std::any::Any>| {
            let taken = allocation_counter::measure(|| held.borrow_mut().push(make()));
            println!("{what}: {} bytes an upstream", taken.bytes_current / UPSTREAMS as i64);
            bytes += taken.bytes_current;
        };
        let (mut settings, mut parts) = (None, None);
        count("settings", &mut || {
            let loaded = config::parse("test", &source, &|_| None, config::Overrides::default());
            settings = Some(loaded.expect("a good config").settings);
            Box::new(())
        });
        let settings = settings.expect("parsed");
        count("parts", &mut || {
            parts = Some(Assembly::new(&settings, None, now).expect("sound"));
            Box::new(())
        });
        let parts = parts.expect("made");
        count("workers", &mut || {
            Box::new([(); 2].map(|()| parts.worker_chains(&mut rng).expect("usable")))
        });
        count("loops", &mut || {
            let watchers = parts.watchers(&mut rng).expect("usable");
            let loops = watchers.into_iter().map(|watcher| Box::pin(watcher.run()));
            Box::new(loops.collect::<Vec<_>>())
        });
        let each = bytes / UPSTREAMS as i64;
        assert!(each <= BYTES_EACH_MAX, "{each} bytes an upstream");
    }

    /// 26.5 KB were measured; see docs/performance.md.
    const BYTES_EACH_MAX: i64 = 28_000;
}
