//! The parts of one chain, made anew or from those of before the settings changed.
//!
//! An upstream stays what it is for as long as it is reached in one way ([`ConnectTerms`]): its connections, its
//! health, what was learnt of it and what was spent stay, whatever else its settings say. One that is reached
//! in another way is a new upstream in a slot of its own. A chain stays for as long as its name does, unless its
//! `id` becomes another one: its view, its sessions, subscriptions, filters and counts go on.

use std::sync::Arc;
use std::time::Instant;

use rand::Rng;
use wellhead_chain::{Heads, HeadsTerms};
use wellhead_dispatch::WorkerUpstreams;
use wellhead_limit::RetryBudget;
use wellhead_net::{
    ClientSettings, Endpoint, FeedSettings, HttpTransport, TransportResources, WsClient,
    WsTransport,
};
use wellhead_proxy::{ChainName, Level, SearchBounds, ServedChain, VerifySettings, WorkerChain};
use wellhead_route::{DangerousMethods, Roster};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::feed::FeedConnector;
use wellhead_transport::{MemoryBudget, Transport};
use wellhead_upstream::{
    MethodRules, Redactor, Slot, Upstream, UpstreamId, UpstreamList, UpstreamSet,
};
use wellhead_watch::{CheckCounts, Checks, Mode, PollPace, Pulse};

use super::authorities::Authorities;
use super::slots::SlotBook;
use super::{
    AssembleError, ClientTlsFiles, Commons, SEARCH_PARALLEL, bounds, breaker, budget, checks_of,
    endpoint_of, identity, quorum_rule, route_rule,
};
use crate::config::{self, CallsOver, IdentityFiles, Settings};
use crate::limits::{KnownLimits, history};
use crate::secrets;
use crate::shared::SharedUpstream;

/// A thread lends at most one in four of its connections to an upstream to large answers: each holds its
/// connection for as long as its client takes.
const FLOWS_SHARE: usize = 4;

/// The parts of one chain.
#[derive(Debug, Clone)]
pub(crate) struct ChainParts {
    pub(crate) served: Arc<ServedChain>,
    retry_budget: Arc<RetryBudget>,
    /// In the order of the roster.
    pub(crate) upstreams: Vec<UpstreamParts>,
    slots: SlotBook,
}

/// The parts of one upstream.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamParts {
    pub(crate) reach: Arc<UpstreamReach>,
    pub(crate) watch: WatchTerms,
    pub(crate) limits: KnownLimits,
}

/// How an upstream is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchTerms {
    pub(crate) pace: PollPace,
    pub(crate) checks: Checks,
}

/// What an upstream is reached by. While it stays, the upstream stays what it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConnectTerms {
    endpoint: Endpoint,
    ws: Option<SecretUrl>,
    /// It speaks nothing but WebSocket.
    is_socket: bool,
    files: ClientTlsFiles,
    /// Of the certificates in `ca_file`.
    ca_digest: Option<u64>,
    /// Of the certificate that is shown.
    identity_digest: Option<u64>,
    calls_over: CallsOver,
    settings: ClientSettings,
}

impl ConnectTerms {
    fn new(upstream: &config::Upstream, settings: &Settings, authorities: &Authorities) -> Self {
        let identity = IdentityFiles::of(upstream);
        let read = identity.as_ref().and_then(|files| authorities.identity(files).ok());
        Self {
            endpoint: endpoint_of(upstream),
            ws: upstream.ws.clone(),
            is_socket: upstream.is_socket(),
            ca_digest: upstream.ca_file.as_deref().and_then(|path| authorities.digest(path)),
            identity_digest: read.map(|read| read.digest),
            files: ClientTlsFiles {
                ca_file: upstream.ca_file.clone(),
                ca_file_adds: upstream.ca_file_adds,
                identity,
            },
            calls_over: upstream.calls_over,
            settings: client_settings(upstream, settings),
        }
    }
}

fn client_settings(upstream: &config::Upstream, settings: &Settings) -> ClientSettings {
    let (usual, connection) = (ClientSettings::default(), &upstream.connection);
    let connections_max = upstream.connections_max;
    ClientSettings {
        connect_timeout: upstream.timeouts.connect.unwrap_or(settings.timeouts.connect),
        connections_max,
        h2_connections_min: usual.h2_connections_min.min(connections_max),
        h2_connections_max: usual.h2_connections_max.min(connections_max),
        answer_bytes_max: settings.limits.answer_bytes.as_usize(),
        compression: upstream.gzip,
        propagate_trace: upstream.propagate_trace,
        h2_streams_max: connection.streams_max.unwrap_or(usual.h2_streams_max),
        h2_requests_max: connection.requests_max,
        idle: connection.idle.unwrap_or(usual.idle),
        ..usual
    }
}

/// How one upstream is reached; every worker makes its own transport from it.
#[derive(Debug)]
pub(crate) struct UpstreamReach {
    pub(super) id: UpstreamId,
    terms: ConnectTerms,
    /// Where the upstream speaks WebSocket.
    feed: Option<Endpoint>,
    pub(crate) shared: TransportResources,
}

impl UpstreamReach {
    fn new(
        id: &UpstreamId,
        terms: ConnectTerms,
        commons: &mut Commons,
    ) -> Result<Self, AssembleError> {
        let ConnectTerms { endpoint, ws, is_socket, files, .. } = &terms;
        let feed = ws.clone().or_else(|| is_socket.then(|| endpoint.url.clone()));
        let feed = feed.map(|url| Endpoint { url, ..endpoint.clone() });
        let tls = commons
            .tls(files.clone())
            .map_err(|problem| AssembleError::Upstream { id: id.as_str().to_owned(), problem })?;
        // Each transport is told where answers are counted.
        let shared = TransportResources::new(Arc::clone(&commons.resolver), tls);
        Ok(Self { id: id.clone(), terms, feed, shared })
    }

    /// The settings that name the files that they did for `before`, whose content is another one now.
    pub(super) fn changed_files(&self, before: &Self) -> Vec<&'static str> {
        let (now, was) = (&self.terms, &before.terms);
        let mut changed = Vec::new();
        if now.files.ca_file == was.files.ca_file && now.ca_digest != was.ca_digest {
            changed.push("ca_file");
        }
        if now.files.identity == was.files.identity && now.identity_digest != was.identity_digest {
            changed.push("client_cert_file");
        }
        changed
    }

    fn flows_max(&self) -> usize {
        (self.terms.settings.connections_max / FLOWS_SHARE).max(1)
    }

    fn problem(&self, problem: &dyn std::fmt::Display) -> AssembleError {
        AssembleError::Upstream { id: self.id.as_str().to_owned(), problem: problem.to_string() }
    }

    /// Checks go the same way as calls: they find out whether that one is open.
    pub(crate) fn transport(
        &self,
        answers: &Arc<MemoryBudget>,
        rng: &mut impl Rng,
    ) -> Result<Arc<dyn Transport>, AssembleError> {
        let ConnectTerms { endpoint, settings, .. } = &self.terms;
        let settings = settings.clone();
        let shared = TransportResources { answers: Arc::clone(answers), ..self.shared.clone() };
        if self.terms.is_socket {
            let sockets = WsTransport::alone(endpoint, settings, shared, rng.random())
                .map_err(|error| self.problem(&error))?;
            return Ok(Arc::new(sockets));
        }
        let http = HttpTransport::new(endpoint, settings.clone(), shared.clone(), rng.random())
            .map_err(|error| self.problem(&error))?;
        match (self.terms.calls_over, &self.feed) {
            (CallsOver::WebSocket, Some(endpoint)) => {
                let sockets = WsTransport::new(endpoint, settings, shared, http, rng.random())
                    .map_err(|error| self.problem(&error))?;
                Ok(Arc::new(sockets))
            }
            // The config check has seen to it that there is a URL where one is needed.
            (CallsOver::Http, _) | (CallsOver::WebSocket, None) => Ok(Arc::new(http)),
        }
    }

    pub(crate) fn feed(&self) -> Result<Option<Arc<dyn FeedConnector>>, AssembleError> {
        let Some(endpoint) = &self.feed else { return Ok(None) };
        let settings = FeedSettings {
            connect_timeout: self.terms.settings.connect_timeout,
            ..FeedSettings::default()
        };
        let resolver = Arc::clone(&self.shared.resolver);
        let client = WsClient::new(endpoint, settings, resolver, &self.shared.tls)
            .map_err(|error| self.problem(&error))?;
        Ok(Some(Arc::new(client)))
    }
}

/// A chain before its settings changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldChain<'a> {
    pub(super) parts: &'a ChainParts,
    pub(super) chain: &'a config::Chain,
    pub(super) settings: &'a Settings,
}

impl<'a> OldChain<'a> {
    /// Whether it is still the chain of these settings.
    fn is_kept(self, chain: &config::Chain) -> bool {
        let known = self.parts.served.pulse.chain_id();
        chain.id.is_none_or(|id| known.is_none_or(|known| id == known))
    }

    /// Whether nothing that the chain depends on has changed. `terms` are those of its upstreams.
    fn is_unchanged(
        self,
        chain: &config::Chain,
        settings: &Settings,
        terms: &[ConnectTerms],
    ) -> bool {
        let old = self.settings;
        let were = self.parts.upstreams.iter().map(|parts| &parts.reach.terms);
        *chain == *self.chain
            && old.health == settings.health
            && old.attempts == settings.attempts
            && old.timeouts == settings.timeouts
            && old.limits == settings.limits
            && old.hedging == settings.hedging
            && old.client_version == settings.client_version
            && old.coalesce == settings.coalesce
            && were.eq(terms)
    }

    fn upstream(self, id: &UpstreamId) -> Option<OldUpstream<'a>> {
        let place = self.chain.upstreams.iter().position(|upstream| upstream.id == *id)?;
        Some(OldUpstream {
            settings: self.chain.upstreams.get(place)?,
            upstream: self.parts.served.roster.upstreams().get(place)?,
            reach: &self.parts.upstreams.get(place)?.reach,
            asked: self.parts.served.asked.get(place)?,
        })
    }
}

/// An upstream before its settings changed.
#[derive(Debug, Clone, Copy)]
struct OldUpstream<'a> {
    settings: &'a config::Upstream,
    upstream: &'a Arc<Upstream>,
    reach: &'a Arc<UpstreamReach>,
    asked: &'a Arc<CheckCounts>,
}

/// An upstream of the roster that is made.
struct MadeUpstream {
    upstream: Arc<Upstream>,
    parts: UpstreamParts,
    asked: Arc<CheckCounts>,
}

/// What the upstreams of one chain are made from.
struct UpstreamMaker<'a> {
    name: &'a str,
    chain: &'a config::Chain,
    settings: &'a Settings,
    /// The chain of this name, also where it is another one now: what was spent counts on.
    named: Option<OldChain<'a>>,
    old: Option<OldChain<'a>>,
    now: Instant,
}

impl UpstreamMaker<'_> {
    /// The upstream before the change, if it is still reached in one way.
    fn kept(&self, id: &UpstreamId, terms: &ConnectTerms) -> Option<OldUpstream<'_>> {
        let old = self.old?.upstream(id)?;
        (old.reach.terms == *terms).then_some(old)
    }

    /// The slots of those that are. `terms` are those of all, in their order.
    fn kept_slots(&self, terms: &[ConnectTerms]) -> UpstreamSet {
        let all = self.chain.upstreams.iter().zip(terms);
        all.filter_map(|(upstream, terms)| Some(self.kept(&upstream.id, terms)?.upstream.slot()))
            .collect()
    }

    fn make(
        &self,
        upstream: &config::Upstream,
        terms: ConnectTerms,
        slots: &mut SlotBook,
        commons: &mut Commons,
    ) -> Result<MadeUpstream, AssembleError> {
        let watch = watch_terms(&self.chain.checks_of(upstream));
        let limits = KnownLimits::new(upstream);
        let kept = self.kept(&upstream.id, &terms);
        let reach = match kept {
            Some(old) => Arc::clone(old.reach),
            None => Arc::new(UpstreamReach::new(&upstream.id, terms, commons)?),
        };
        let made = match kept {
            Some(old) => self.succeeding(upstream, old, commons),
            None => Arc::new(self.fresh(upstream, slots.take(self.now), commons)),
        };
        let asked = kept.map_or_else(Arc::default, |old| Arc::clone(old.asked));
        Ok(MadeUpstream { upstream: made, parts: UpstreamParts { reach, watch, limits }, asked })
    }

    fn blank(&self, upstream: &config::Upstream, slot: Slot) -> Upstream {
        Upstream::new(identity(upstream), slot, breaker(self.settings), self.now)
            .hiding(Redactor::of(&secrets::of(upstream)))
            .reaching(history(&upstream.history))
    }

    fn shared(&self, made: Upstream, id: &UpstreamId, commons: &Commons) -> Upstream {
        match &commons.shared {
            Some(shared) => {
                made.sharing(Arc::new(SharedUpstream::new(shared, self.name, id.as_str())))
            }
            None => made,
        }
    }

    /// One of which nothing is known. What one of its name spent was spent at its account, as after a restart.
    fn fresh(&self, upstream: &config::Upstream, slot: Slot, commons: &Commons) -> Upstream {
        let made = self.blank(upstream, slot).within(budget(upstream));
        let made = self.shared(made, &upstream.id, commons);
        let before = self.named.and_then(|old| old.upstream(&upstream.id)?.upstream.pages());
        if let Some(pages) = before {
            made.restore(pages, self.now);
        }
        made
    }

    fn succeeding(
        &self,
        upstream: &config::Upstream,
        old: OldUpstream<'_>,
        commons: &Commons,
    ) -> Arc<Upstream> {
        let has_same_health =
            self.old.is_some_and(|old| old.settings.health == self.settings.health);
        if *old.settings == *upstream && has_same_health {
            return Arc::clone(old.upstream);
        }
        let made = self.blank(upstream, old.upstream.slot());
        let made = made.succeeding(old.upstream);
        let has_same_budget =
            old.settings.budget == upstream.budget && old.settings.provider == upstream.provider;
        Arc::new(match has_same_budget {
            true => made,
            false => {
                let made = made.within_instead(budget(upstream));
                self.shared(made, &upstream.id, commons)
            }
        })
    }
}

impl ChainParts {
    /// The parts of a chain with these settings; `named` are those of before. Nothing that is in use is changed:
    /// see [`Self::begin`].
    pub(super) fn new(
        name: &str,
        chain: &config::Chain,
        settings: &Settings,
        commons: &mut Commons,
        named: Option<OldChain<'_>>,
        now: Instant,
    ) -> Result<Self, AssembleError> {
        let old = named.filter(|old| old.is_kept(chain));
        let terms: Vec<_> = chain
            .upstreams
            .iter()
            .map(|it| ConnectTerms::new(it, settings, &commons.authorities))
            .collect();
        if let Some(old) = old.filter(|old| old.is_unchanged(chain, settings, &terms)) {
            return Ok(old.parts.clone());
        }
        let maker = UpstreamMaker { name, chain, settings, named, old, now };
        let kept = maker.kept_slots(&terms);
        let mut slots =
            old.map_or_else(SlotBook::default, |old| old.parts.slots.keeping(kept, now));
        let (mut upstreams, mut parts, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for (upstream, terms) in chain.upstreams.iter().zip(terms) {
            let made = maker.make(upstream, terms, &mut slots, commons)?;
            upstreams.push(made.upstream);
            parts.push(made.parts);
            asked.push(made.asked);
        }
        let roster = roster(upstreams, chain, settings);
        let (heads, pulse) = match old.map(|old| &old.parts.served) {
            Some(served) => (Arc::clone(&served.heads), Arc::clone(&served.pulse)),
            None => (heads(chain, roster.upstreams(), now), Arc::new(Pulse::new(chain.id, now))),
        };
        let verify = verify_settings(chain, roster.slots());
        let quorums: Vec<_> = chain.quorum.iter().map(|rule| quorum_rule(chain, rule)).collect();
        let served = ServedChain::new(
            chain_name(name, chain),
            roster,
            heads,
            pulse,
            asked,
            bounds(settings),
        )
        .searching(searches(chain))
        .pinning(chain.pin)
        .naming(settings.client_version)
        .agreeing_on(&quorums)
        .verifying(&verify, Arc::clone(&commons.verify_pool))
        .sharing(commons.cache.clone(), settings.coalesce.then(rand::random));
        let served = match old {
            Some(old) => served.succeeding(&old.parts.served, kept),
            None => served,
        };
        let retry_budget = old.map_or_else(Arc::default, |old| Arc::clone(&old.parts.retry_budget));
        Ok(Self { served: Arc::new(served), retry_budget, upstreams: parts, slots })
    }

    /// The slots of upstreams that are reached as in `old`.
    fn kept_since(&self, old: &Self) -> UpstreamSet {
        let was = |reach| old.upstreams.iter().any(|parts| Arc::ptr_eq(&parts.reach, reach));
        let upstreams = self.served.roster.slots().zip(&self.upstreams);
        upstreams.filter(|(_, parts)| was(&parts.reach)).map(|(slot, _)| slot).collect()
    }

    /// Takes the parts into use in the place of `old`: from now on the chain's view counts these upstreams.
    /// The settings are those that they were made from.
    pub(super) fn begin(
        &self,
        old: &Self,
        chain: &config::Chain,
        settings: &Settings,
        now: Instant,
    ) {
        if Arc::ptr_eq(&self.served, &old.served) {
            return;
        }
        let ServedChain { heads, pulse, roster, .. } = &*self.served;
        if let Some(id) = chain.id {
            pulse.agree_chain_id(id);
        }
        let kept = self.kept_since(old);
        let gone = old.served.roster.slots().filter(|slot| !kept.contains(*slot));
        let new = roster.slots().filter(|slot| !kept.contains(*slot));
        for slot in gone.chain(new) {
            pulse.vacate(slot);
        }
        self.served.keep(kept);
        for upstream in roster.upstreams() {
            upstream.set_bounds(breaker(settings));
        }
        heads.upstreams().store(roster.upstreams());
        heads.change(&heads_terms(chain), kept, now);
    }

    /// What a worker reaches the chain with: where it is reached as before, with the connections of `old`.
    pub(super) fn worker_chain(
        &self,
        old: Option<OldWorkerChain<'_>>,
        answers: &Arc<MemoryBudget>,
        rng: &mut impl Rng,
    ) -> Result<WorkerChain, AssembleError> {
        if let Some(old) = old.filter(|old| Arc::ptr_eq(&old.parts.served, &self.served)) {
            return Ok(old.worker.clone());
        }
        let mut transports = Vec::new();
        for (slot, parts) in self.served.roster.slots().zip(&self.upstreams) {
            let kept = old.and_then(|old| old.transport(&parts.reach, slot));
            transports.push(match kept {
                Some(transport) => transport,
                None => parts.reach.transport(answers, rng)?,
            });
        }
        let upstreams = WorkerUpstreams::new(transports, rng.random())
            .placed(self.served.roster.slots())
            .spending(Arc::clone(&self.retry_budget))
            .holding(Arc::clone(answers))
            .inspecting(self.served.inspector())
            .flowing(self.upstreams.iter().map(|parts| parts.reach.flows_max()));
        Ok(match old {
            Some(old) => {
                let upstreams = upstreams.succeeding(old.worker.upstreams());
                WorkerChain::new(upstreams).succeeding(old.worker)
            }
            None => WorkerChain::new(upstreams),
        })
    }
}

fn roster(upstreams: Vec<Arc<Upstream>>, chain: &config::Chain, settings: &Settings) -> Roster {
    Roster::new(
        upstreams,
        MethodRules { allow: chain.methods.allow.clone(), deny: chain.methods.deny.clone() },
        chain.routes.iter().map(|route| route_rule(chain, route)).collect(),
    )
    .balanced(chain.balance)
    .allowing(DangerousMethods {
        allow: chain.methods.dangerous.clone(),
        on_test_chains: settings.may_serve_a_test_chain(chain),
    })
}

fn chain_name(name: &str, chain: &config::Chain) -> ChainName {
    let aliases = chain.aliases.iter().map(|alias| alias.as_ref().to_owned());
    ChainName { name: name.into(), aliases: aliases.collect() }
}

fn searches(chain: &config::Chain) -> SearchBounds {
    SearchBounds { calls_max: chain.searches.calls_max, parallel: SEARCH_PARALLEL }
}

/// A chain as one worker reached it before the settings changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldWorkerChain<'a> {
    pub(super) parts: &'a ChainParts,
    pub(super) worker: &'a WorkerChain,
}

impl OldWorkerChain<'_> {
    /// The transport of the upstream in `slot`, if it is reached in this way.
    fn transport(self, reach: &Arc<UpstreamReach>, slot: Slot) -> Option<Arc<dyn Transport>> {
        let is_kept = self.parts.upstreams.iter().any(|parts| Arc::ptr_eq(&parts.reach, reach));
        is_kept.then(|| self.worker.upstreams().shared_transport(slot))
    }
}

/// Where no level is set, answers of upstreams of others are verified and those of your own are
/// not; levels that are set for methods hold for all. `slots` are in the order of the upstreams.
pub(super) fn verify_settings(
    chain: &config::Chain,
    slots: impl Iterator<Item = Slot>,
) -> VerifySettings {
    let verify = &chain.verify;
    let levels = verify.levels.iter().map(|of| (of.methods.clone(), of.level));
    let of_upstreams = chain.upstreams.iter().map(|upstream| chain.verify_level(upstream));
    let level = of_upstreams.clone().find(|level| *level != Level::Off).unwrap_or(Level::Off);
    let mut trusted = UpstreamSet::NONE;
    for (slot, of_upstream) in slots.zip(of_upstreams) {
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

fn heads_terms(chain: &config::Chain) -> HeadsTerms {
    let watched = chain.upstreams.iter().map(|upstream| watch_terms(&chain.checks_of(upstream)));
    // Where all are followed rarely, what one of them told has to last until the next poll.
    let followed = watched.filter(|watch| watch.checks.mode == Mode::On);
    HeadsTerms {
        block_time: chain.block_time,
        lag_blocks_max: chain.lag_blocks_max,
        agreement: chain.agreement.and_then(|count| usize::try_from(count).ok()),
        final_after: chain.final_after,
        poll_min: followed.map(|watch| watch.pace.poll_min).min(),
    }
}

fn heads(chain: &config::Chain, upstreams: &[Arc<Upstream>], now: Instant) -> Arc<Heads> {
    let terms = heads_terms(chain);
    let heads = Heads::new(upstreams.len(), terms.block_time, terms.lag_blocks_max)
        .among(UpstreamList::of(upstreams));
    heads.change(&terms, UpstreamSet::NONE, now);
    Arc::new(heads)
}

fn watch_terms(checks: &config::Checks) -> WatchTerms {
    let (pace, checks) = checks_of(checks);
    WatchTerms { pace, checks }
}
