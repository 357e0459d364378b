//! Settings become parts: chains, upstreams, transports, control loops.
//!
//! What all workers share is made once ([`Assembly`]); connections are made per
//! worker, since each has its own pools ([`Assembly::worker_chains`]).

mod authorities;
mod chain;
mod slots;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;
use wellhead_access::DenialCounts;
use wellhead_access::usage::UsageTable;
use wellhead_dispatch::{Bounds, Hedging};
use wellhead_front::CallerControl;
use wellhead_jsonrpc::ParseLimits;
use wellhead_net::{Auth, ConnectionStats, Endpoint, Resolver, TlsClient, TrustedRoots};
use wellhead_proxy::{
    AccessTerms, Cache, CacheSettings, LineRates, Proxy, QuorumRule, Tiers, Tracer, VerifyPool,
    WorkerChains,
};
use wellhead_route::RouteRule;
use wellhead_server::TlsProblem;
use wellhead_store::{Disk, DiskBounds, OpenError, SharedBounds, SharedTier};
use wellhead_telemetry::clock;
use wellhead_transport::MemoryBudget;
use wellhead_upstream::{BreakerBounds, Budget, BudgetTerms, Identity, MethodRules, Upstream};
use wellhead_watch::{Checks, FeedUse, Mode, PollPace};

use crate::access::{self, ChangedWay, JwksSource, PlannedAccess};
use crate::config::callers::{self, CallerPlan, IssuerKeys};
use crate::config::{self, IdentityFiles, SettingChange, Settings};
use crate::limits::KnownLimits;
use crate::shared::SharedLimits;
pub(crate) use authorities::Authorities;
pub(crate) use chain::{ChainParts, UpstreamParts, UpstreamReach, WatchTerms};
use chain::{OldChain, OldWorkerChain};

/// Calls of one batch that run at one time. Most batches share one exchange; the others are bounded
/// by what their upstreams admit, long before this.
const BATCH_PARALLEL: usize = 32;
/// Parts of one search that run at one time: upstreams answer a few side by side about as fast as
/// one, and each part may be a megabyte that is held.
const SEARCH_PARALLEL: usize = 4;
/// Good answers that end a rest. One is enough: the first failure after it begins a longer rest.
const RECOVERY_ANSWERS: u32 = 1;
/// A process that hands over closes its disk cache when it has drained.
const DISK_IS_FREE_EVERY: Duration = Duration::from_secs(1);
/// A `null` that says something true is not kept: a client that saw its transaction elsewhere must
/// find the receipt at once.
const NULL_TIME: Duration = Duration::ZERO;

/// Why the parts could not be made. The config was checked before, so these are
/// things that only show when they are tried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssembleError {
    /// Certificate or key of the listener cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Tls(Vec<TlsProblem>),
    /// An upstream cannot be reached in the way that its settings say.
    #[error("upstream `{id}`: {problem}")]
    Upstream { id: String, problem: String },
    /// The settings of callers do not fit together.
    #[error("{}", .0.join("; "))]
    Access(Vec<String>),
    /// The folder of the cache cannot be used.
    #[error("`cache.disk` `{}`: {}", .0.display(), .1)]
    CacheDisk(PathBuf, OpenError),
}

/// Everything that workers share, made from settings, and made anew from others ([`Assembly::succeeding`]).
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) settings: Arc<Settings>,
    pub(crate) proxy: Arc<Proxy>,
    /// Who may call; `None` where clients are told apart by their addresses alone.
    pub(crate) callers: Option<Arc<CallerControl>>,
    /// What limits of callers refused.
    pub(crate) denied: Arc<DenialCounts>,
    /// The issuers of tokens whose keys are fetched.
    pub(crate) issuers: Vec<Arc<JwksSource>>,
    tokens: Option<IssuerKeys>,
    answers: Arc<MemoryBudget>,
    pub(crate) recorders: Recorders,
    epoch: Instant,
    commons: Commons,
    /// In the order of the settings.
    pub(crate) chains: Vec<ChainParts>,
}

/// Where requests leave what they did, beside counters and the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorders {
    /// What callers use.
    pub(crate) usage: Option<Arc<UsageTable>>,
    /// Which of them leave traces.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl Recorders {
    /// Those of other settings: what is recorded goes where it went.
    fn succeeding(&self, settings: &Settings) -> Self {
        let tracer = self.tracer.as_ref().map(|tracer| match &settings.traces {
            Some(traces) => tracer.with_rules(traces.rules()),
            None => Arc::clone(tracer),
        });
        Self { tracer, ..self.clone() }
    }
}

/// An assembly of new settings that is not in use yet, and what has to be done for that.
#[derive(Debug)]
pub(crate) struct NextAssembly {
    pub(crate) assembly: Assembly,
    callers: Option<CallerPlan>,
    /// To the keys of issuers.
    ways: Vec<ChangedWay>,
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
    /// Makes the parts. Opens no connection; waits for the files that the settings name.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        recorders: Recorders,
        now: Instant,
    ) -> Result<Self, AssembleError> {
        Self::made(settings, recorders, false, now)
    }

    /// As [`Self::new`]; where it `is_handed_over` by a process that has the disk of the cache, there is none yet.
    pub(crate) fn made(
        settings: &Arc<Settings>,
        recorders: Recorders,
        is_handed_over: bool,
        now: Instant,
    ) -> Result<Self, AssembleError> {
        let mut commons = Commons {
            resolver: Arc::new(Resolver::new()),
            authorities: Arc::new(Authorities::read(settings)),
            tls: HashMap::new(),
            cache: cache(&settings.cache, is_handed_over, now)?,
            verify_pool: Arc::new(VerifyPool::new(verify_threads())),
            shared: settings.shared.as_ref().map(|it| Arc::new(SharedLimits::new(it, now))),
        };
        let mut chains = Vec::new();
        for (name, chain) in settings.chains.iter() {
            chains.push(ChainParts::new(name.as_ref(), chain, settings, &mut commons, None, now)?);
        }
        let answers = Arc::new(MemoryBudget::new(settings.limits.answers_total_bytes.as_usize()));
        let denied = Arc::default();
        let usage = recorders.usage.clone();
        let terms = access::terms(&settings.access, usage, Arc::clone(&denied), now);
        let proxy = proxy(settings, &chains, &answers, terms).tracing(recorders.tracer.clone());
        let proxy = Arc::new(proxy);
        let sharing = commons.shared.as_ref().map(|it| Arc::clone(it) as _);
        let planned = access::plan(settings, sharing, now).map_err(AssembleError::Access)?;
        let (callers, tokens) = planned
            .map_or((None, None), |PlannedAccess { control, tokens }| (Some(control), tokens));
        let issuers = match &tokens {
            Some(keys) => commons.issuers(&settings.access.jwt, keys)?,
            None => Vec::new(),
        };
        Ok(Self {
            settings: Arc::clone(settings),
            proxy,
            callers,
            denied,
            issuers,
            tokens,
            answers,
            recorders,
            epoch: now,
            commons,
            chains,
        })
    }

    /// The parts for other settings, which keep what these do not change. Opens no connection, and changes nothing
    /// that is in use. Only what may change while wellhead runs may differ: see `reload`. `is_dry`: to be looked at and dropped.
    pub(crate) fn succeeding(
        &self,
        settings: &Arc<Settings>,
        authorities: Authorities,
        is_dry: bool,
        now: Instant,
    ) -> Result<NextAssembly, AssembleError> {
        let authorities = Arc::new(authorities);
        let mut commons = Commons { authorities, tls: HashMap::new(), ..self.commons.clone() };
        if is_dry {
            // Limits that are looked at only are not shared.
            commons.shared = None;
        }
        let mut chains = Vec::new();
        for (name, chain) in settings.chains.iter() {
            let old = self.old_chain(name.as_ref());
            let name = name.as_ref();
            chains.push(ChainParts::new(name, chain, settings, &mut commons, old, now)?);
        }
        let (recorders, denied) = (self.recorders.succeeding(settings), Arc::clone(&self.denied));
        let usage = recorders.usage.clone();
        let terms = access::terms(&settings.access, usage, Arc::clone(&denied), self.epoch);
        let proxy = proxy(settings, &chains, &self.answers, terms).succeeding(&self.proxy);
        let proxy = proxy.tracing(recorders.tracer.clone());
        let callers = match &self.callers {
            Some(callers) => {
                // A plan opens meters for quotas that are new.
                let book = if is_dry { Arc::default() } else { Arc::clone(callers.book()) };
                callers::plan(settings, book, self.tokens.as_ref())
                    .map_err(AssembleError::Access)?
            }
            None => None,
        };
        let tokens = callers.as_ref().and_then(|plan| plan.tokens.clone());
        let ways = commons.changed_ways(settings, &self.issuers, &self.commons.authorities)?;
        let assembly = Self {
            settings: Arc::clone(settings),
            proxy: Arc::new(proxy),
            callers: self.callers.clone(),
            denied,
            issuers: self.issuers.clone(),
            tokens,
            answers: Arc::clone(&self.answers),
            recorders,
            epoch: self.epoch,
            commons,
            chains,
        };
        Ok(NextAssembly { assembly, callers, ways })
    }

    fn old_chain(&self, name: &str) -> Option<OldChain<'_>> {
        let place = self.settings.chains.iter().position(|(known, _)| known.as_ref() == name)?;
        let (_, chain) = self.settings.chains.iter().nth(place)?;
        Some(OldChain { parts: self.chains.get(place)?, chain, settings: &self.settings })
    }

    /// The chain of this name, if it is served.
    pub(crate) fn chain(&self, name: &str) -> Option<&ChainParts> {
        self.chains.iter().find(|parts| &*parts.served.name.name == name)
    }

    /// What is cached.
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.commons.cache.as_ref()
    }

    /// Where limits are shared with other wellheads.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedLimits>> {
        self.commons.shared.as_ref()
    }

    /// What one more worker reaches the upstreams of all chains with: connections of its own.
    pub(crate) fn worker_chains(&self, rng: &mut impl Rng) -> Result<WorkerChains, AssembleError> {
        let chains = self.chains.iter();
        let chains = chains.map(|chain| chain.worker_chain(None, &self.answers, rng));
        Ok(WorkerChains(chains.collect::<Result<_, _>>()?))
    }

    /// The counters of the connections to each upstream.
    pub(crate) fn connections(&self) -> Vec<UpstreamConnections> {
        let of_chain = |chain: &ChainParts| {
            let name = Arc::clone(&chain.served.name.name);
            let upstreams = chain.served.roster.upstreams().iter().zip(&chain.upstreams);
            let of_upstream =
                |(upstream, parts): (&Arc<Upstream>, &UpstreamParts)| UpstreamConnections {
                    chain: Arc::clone(&name),
                    upstream: upstream.identity().id.as_str().to_owned(),
                    stats: Arc::clone(&parts.reach.shared.stats),
                    limits: parts.limits.clone(),
                };
            upstreams.map(of_upstream).collect::<Vec<_>>()
        };
        self.chains.iter().flat_map(of_chain).collect()
    }
}

impl NextAssembly {
    /// The files of upstreams that have other certificates than for `old`, which the settings do not show.
    pub(crate) fn other_certificates(&self, old: &Assembly) -> Vec<SettingChange> {
        let mut found = Vec::new();
        for chain in &self.assembly.chains {
            let chain_name = &chain.served.name.name;
            let Some(before) = old.chain(chain_name) else { continue };
            for parts in &chain.upstreams {
                let (reach, id) = (&parts.reach, &parts.reach.id);
                let was = before.upstreams.iter().find(|it| it.reach.id == *id);
                for key in was.iter().flat_map(|was| reach.changed_files(&was.reach)) {
                    let path = format!("chains.{chain_name}.upstreams.{id}.{key}");
                    found.push(SettingChange::content(path));
                }
            }
        }
        found.extend(self.ways.iter().map(|way| SettingChange::content(way.setting())));
        found
    }

    /// What a worker reaches the upstreams with from now on, in the place of `worker`, with which it reached those of
    /// `old`: with the same connections where these stay.
    pub(crate) fn worker_chains(
        &self,
        old: &Assembly,
        worker: &WorkerChains,
        rng: &mut impl Rng,
    ) -> Result<WorkerChains, AssembleError> {
        let mut chains = Vec::new();
        for chain in &self.assembly.chains {
            let is_it = |parts: &ChainParts| Arc::ptr_eq(&parts.served.heads, &chain.served.heads);
            let place = old.chains.iter().position(is_it);
            let old = place.and_then(|place| {
                let (parts, worker) = (old.chains.get(place)?, worker.0.get(place)?);
                Some(OldWorkerChain { parts, worker })
            });
            chains.push(chain.worker_chain(old, &self.assembly.answers, rng)?);
        }
        Ok(WorkerChains(chains))
    }

    /// Takes what chains and callers share with `old` into use. From now on it is the assembly.
    pub(crate) fn begin(self, old: &Assembly, now: Instant) -> Assembly {
        let Self { assembly, callers, ways } = self;
        let settings = assembly.settings.chains.iter();
        for (chain, (name, chain_settings)) in assembly.chains.iter().zip(settings) {
            let before = old.chain(name.as_ref());
            let is_kept = |it: &&ChainParts| Arc::ptr_eq(&it.served.heads, &chain.served.heads);
            if let Some(before) = before.filter(is_kept) {
                chain.begin(before, chain_settings, &assembly.settings, now);
            }
        }
        if let (Some(control), Some(plan)) = (&assembly.callers, callers) {
            control.change(plan.policy, plan.listed);
        }
        ways.into_iter().for_each(ChangedWay::begin);
        assembly
    }
}

fn proxy(
    settings: &Settings,
    chains: &[ChainParts],
    answers: &Arc<MemoryBudget>,
    terms: AccessTerms,
) -> Proxy {
    let served = chains.iter().map(|chain| Arc::clone(&chain.served)).collect();
    Proxy::new(served, proxy_settings(settings))
        .logging(line_rates(&settings.log))
        .holding(Arc::clone(answers))
        .charging(terms)
}

/// What all upstreams and chains share.
#[derive(Debug, Clone)]
struct Commons {
    resolver: Arc<Resolver>,
    authorities: Arc<Authorities>,
    tls: HashMap<ClientTlsFiles, Arc<TlsClient>>,
    cache: Option<Arc<Cache>>,
    /// Where answers are looked at that take long.
    verify_pool: Arc<VerifyPool>,
    /// Where limits are shared with other wellheads.
    shared: Option<Arc<SharedLimits>>,
}

/// Which certificates a client of TLS trusts and shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClientTlsFiles {
    /// Of the authorities; `None` for the public ones.
    ca_file: Option<PathBuf>,
    /// Whether these add to the public ones.
    ca_file_adds: bool,
    /// What it shows to a server that asks.
    identity: Option<IdentityFiles>,
}

impl ClientTlsFiles {
    /// Trusts the authorities in a file, or the public ones, and shows nothing.
    fn trusting(ca_file: Option<&Path>) -> Self {
        Self { ca_file: ca_file.map(Path::to_owned), ca_file_adds: false, identity: None }
    }
}

impl Commons {
    /// The client with these certificates.
    fn tls(&mut self, files: ClientTlsFiles) -> Result<Arc<TlsClient>, String> {
        if let Some(client) = self.tls.get(&files) {
            return Ok(Arc::clone(client));
        }
        let read = |path: &Path| {
            let pem = self.authorities.pem(path);
            pem.map_err(|why| format!("`ca_file` `{}`: {why}", path.display()))
        };
        let roots = match files.ca_file.as_deref().map(read).transpose()? {
            Some(pem) if files.ca_file_adds => TrustedRoots::PublicAnd(pem),
            Some(pem) => TrustedRoots::Only(pem),
            None => TrustedRoots::Public,
        };
        let identity = files.identity.as_ref().map(|it| self.authorities.identity(it)).transpose();
        let identity = identity.map_err(|why| format!("`client_cert_file`: {why}"))?;
        let client = TlsClient::with_identity(roots, identity.map(|it| &it.identity))
            .map_err(|error| error.to_string())?;
        Ok(Arc::clone(self.tls.entry(files).or_insert(Arc::new(client))))
    }

    /// The issuers of tokens whose keys are fetched.
    fn issuers(
        &mut self,
        settings: &[config::Jwt],
        keys: &IssuerKeys,
    ) -> Result<Vec<Arc<JwksSource>>, AssembleError> {
        let resolver = Arc::clone(&self.resolver);
        access::jwks_sources(settings, keys, &resolver, |ca_file| {
            self.tls(ClientTlsFiles::trusting(ca_file))
        })
        .map_err(AssembleError::Access)
    }

    /// New ways to the keys of issuers whose files of authorities have other certificates than `before`.
    fn changed_ways(
        &mut self,
        settings: &Settings,
        issuers: &[Arc<JwksSource>],
        before: &Authorities,
    ) -> Result<Vec<ChangedWay>, AssembleError> {
        let (resolver, authorities) = (Arc::clone(&self.resolver), Arc::clone(&self.authorities));
        let has_changed = |path: &Path| {
            let digest = authorities.digest(path);
            digest.is_some() && digest != before.digest(path)
        };
        let tls = |ca_file: Option<&Path>| self.tls(ClientTlsFiles::trusting(ca_file));
        access::changed_ways(&settings.access.jwt, issuers, &resolver, has_changed, tls)
            .map_err(AssembleError::Access)
    }
}

fn open_disk(disk: &config::CacheDisk) -> Result<Disk, OpenError> {
    let bounds = DiskBounds { bytes_max: disk.bytes.0, ..DiskBounds::default() };
    Disk::open(&disk.path, &bounds, Arc::new(clock::unix_seconds))
}

/// Opens the disk of the cache as soon as no other process has it. Looks once a second, for ever.
pub(crate) async fn add_disk(cache: Arc<Cache>, disk: config::CacheDisk) {
    let path = disk.path.clone();
    loop {
        tokio::time::sleep(DISK_IS_FREE_EVERY).await;
        let settings = disk.clone();
        match tokio::task::spawn_blocking(move || open_disk(&settings)).await {
            Ok(Ok(disk)) => {
                tracing::info!(path = %path.display(), "the disk cache is free: this process uses it from now on");
                return cache.tiers().add_disk(disk);
            }
            Ok(Err(OpenError::InUse)) => {}
            Ok(Err(error)) => {
                tracing::error!(path = %path.display(), %error, "the disk cache cannot be opened; continuing without it");
                return;
            }
            Err(_) => return,
        }
    }
}

fn cache(
    settings: &config::Cache,
    is_handed_over: bool,
    now: Instant,
) -> Result<Option<Arc<Cache>>, AssembleError> {
    if !settings.enabled {
        return Ok(None);
    }
    let kept = CacheSettings {
        bytes: settings.bytes.0,
        head: settings.head_ttl,
        null: NULL_TIME,
        by_hash: settings.by_hash,
    };
    let open = |disk: &config::CacheDisk| match open_disk(disk) {
        Ok(disk) => Ok(Some(disk)),
        Err(OpenError::InUse) if is_handed_over => Ok(None),
        Err(error) => Err(AssembleError::CacheDisk(disk.path.clone(), error)),
    };
    let tiers = Tiers::new(settings.disk.as_ref().map(open).transpose()?.flatten());
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

/// Checks of answers take at most half of the cores.
fn verify_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).max(1)
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

/// As ids, where the config asks for labels, too.
fn route_rule(chain: &config::Chain, route: &config::Route) -> RouteRule {
    let picked = chain.upstreams.iter().filter(|upstream| route.picks(upstream));
    let only = picked.map(|upstream| upstream.id.clone()).collect();
    RouteRule { methods: route.methods.clone(), only, balance: route.balance }
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
        Some(config::Auth { basic: Some(basic), .. }) => Auth::Basic {
            user: wellhead_telemetry::Secret::new(basic.user.0.as_str()),
            password: basic.password.clone(),
        },
        Some(config::Auth { bearer: Some(token), .. }) => Auth::Bearer(token.clone()),
        Some(config::Auth { basic: None, bearer: None }) | None => Auth::Url,
    }
}

/// Where calls to an upstream go, and what each carries.
pub(crate) fn endpoint_of(upstream: &config::Upstream) -> Endpoint {
    let headers = upstream.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_ref().to_owned(), value.clone())).collect();
    let auth = auth_of(upstream.auth.as_ref());
    Endpoint { headers, auth, version: upstream.http, ..Endpoint::new(upstream.url.clone()) }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use rand::SeedableRng as _;
    use wellhead_proxy::{Level, ProxyWorker};
    use wellhead_upstream::{Slot, UpstreamId};

    use super::*;
    use crate::loops::ChainLoops;

    /// The level at each upstream with these settings, one URL each.
    fn check_levels(verify: &str, upstreams: &[(&str, Level)]) {
        let listed: Vec<_> =
            upstreams.iter().map(|(settings, _)| format!("      - {{ {settings} }}\n")).collect();
        let source = format!(
            "chains:\n  ethereum:\n    id: 1\n    verify: {verify}\n    upstreams:\n{}",
            listed.concat()
        );
        let settings = config::sound(&source);
        let (_, chain) = settings.chains.iter().next().expect("one chain");
        let made = chain::verify_settings(chain, (0..).map(Slot).take(upstreams.len()));
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
    fn routes_pick_by_label_and_by_name() {
        let source = r#"
chains:
  ethereum:
    id: 1
    upstreams:
      - { id: a, url: "http://a" }
      - { id: b, url: "http://b", labels: { archive: "true" } }
      - { id: c, url: "http://c", labels: { archive: "true" } }
    routes:
      - { methods: [debug_*], only: { archive: "true" } }
      - { methods: [trace_*], upstreams: [a, c] }
"#;
        let settings = config::sound(source);
        let (_, chain) = settings.chains.iter().next().expect("one chain");
        let picked = chain.routes.iter().map(|route| route_rule(chain, route).only);
        let names = |ids: Vec<UpstreamId>| ids.iter().map(ToString::to_string).collect::<String>();
        assert_eq!(picked.map(names).collect::<Vec<_>>(), ["bc", "ac"]);
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
        let settings = Arc::new(config::sound(source));
        let now = tokio::time::Instant::now().into_std();
        let parts = Assembly::new(&settings, Recorders::default(), now).expect("sound");
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let made = parts.chains[0].upstreams.iter().map(|it| {
            let transport = it.reach.transport(&parts.answers, &mut rng).expect("usable");
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
            settings = Some(Arc::new(config::sound(&source)));
            Box::new(())
        });
        let settings = settings.expect("parsed");
        count("parts", &mut || {
            parts = Some(Assembly::new(&settings, Recorders::default(), now).expect("sound"));
            Box::new(())
        });
        let parts = parts.expect("made");
        count("workers", &mut || {
            Box::new([(); 2].map(|()| parts.worker_chains(&mut rng).expect("usable")))
        });
        let runtime = crate::serve::runtime().expect("a runtime");
        let _entered = runtime.enter();
        let chains = parts.worker_chains(&mut rng).expect("usable");
        let current = ProxyWorker { proxy: Arc::clone(&parts.proxy), chains };
        let mut loops = ChainLoops::new(Arc::new(ArcSwap::from_pointee(current)), None, None);
        count("loops", &mut || {
            loops.follow(&parts, &mut rng).expect("usable");
            Box::new(())
        });
        let each = bytes / UPSTREAMS as i64;
        assert!(each <= BYTES_EACH_MAX, "{each} bytes an upstream");
    }

    /// 28.1 KB were measured; see docs/performance.md.
    const BYTES_EACH_MAX: i64 = 29_500;
}
