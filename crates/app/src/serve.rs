//! Threads, signals and the drain.
//!
//! Each worker thread is a single-threaded runtime with its own listener and its
//! own connections to upstreams. The main thread is the control thread: control
//! loops, the admin listener, signals. Stopping is in order: `/readyz` says no,
//! load balancers get a moment to hear it, then listeners close and what is
//! under way ends.

mod hand_over;
mod reload;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinSet};
use wellhead_access::{ProxyTrust, ProxyTrustHeader};
use wellhead_front::{CallerControl, WorkerHandler};
use wellhead_proxy::{FilterStore, Proxy, ProxyWorker, Sweeper};
use wellhead_server::{
    Compression, Drained, Hosts, Listener, ProxyProtocol, Server, Shutdown, Tls,
};
use wellhead_telemetry::clock;
use wellhead_watch::Replicas;

use crate::access::{self, directory};
use crate::acme;
use crate::admin::{AdminPages, AdminParts, KeyAdmin};
use crate::admin_listener::{AdminListener, admin_access, hosts};
use crate::assemble::{AssembleError, Assembly, Recorders, add_disk, share_cache};
use crate::config::{Admin, Network, Settings};
use crate::heartbeat::Heartbeats;
use crate::loops::ChainLoops;
use crate::metrics::MetricSources;
use crate::reload::{
    ReadConfig, ReloadCause, ReloadDesk, ReloadRecord, ReloadRequest, ReloadSource,
};
use crate::renew::{self, ListenerTls};
pub(crate) use crate::runtime::runtime;
use crate::serve_error::ServeError;
use crate::shared::{filter_store, follow_pauses, follow_replicas};
use crate::state::State;
use crate::study::Studies;
use crate::systemd::{self, GivenSockets};
use crate::traces::Traces;
use crate::usage::{Usage, UsageSettings};
use hand_over::{BegunHandOver, Succession, outcome_of};
use reload::BegunReload;

/// A sweep looks at each meter, of which there may be some hundred thousand.
const METERS_SWEPT_EVERY: Duration = Duration::from_secs(60);
/// Workers show that they are not stuck so often.
const HEARTBEAT: Duration = Duration::from_secs(1);
const WORKER_NAME: &str = "wellhead-worker";

/// A disk that hangs does not keep the process from ending.
const DISK_CLOSES_WITHIN: Duration = Duration::from_secs(5);

/// Where a running proxy listens.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Admin,
}

impl Addresses {
    fn new(settings: &Settings, listeners: &[Listener], admin: Option<&AdminListener>) -> Self {
        Self {
            listen: listeners.first().map_or(settings.listen, Listener::address),
            admin: admin.map_or(Admin::Off, AdminListener::place),
        }
    }
}

/// A worker thread.
#[derive(Debug)]
struct WorkerThread {
    thread: JoinHandle<io::Result<Drained>>,
    current: Arc<ArcSwap<ProxyWorker>>,
}

/// Listeners bound and workers serving.
pub(crate) struct Running {
    pub(crate) proxy: Arc<ArcSwap<Proxy>>,
    pub(crate) addresses: Addresses,
    parts: Assembly,
    workers: Vec<WorkerThread>,
    shutdown: Shutdown,
    admin: Option<AdminListener>,
    pages: Arc<AdminPages>,
    beats: Arc<Heartbeats>,
    tls: Vec<ListenerTls>,
    state: Option<Arc<State>>,
    usage: Arc<Usage>,
    traces: Option<Arc<Traces>>,
    source: Option<ReloadSource>,
    /// The files that settings are read from.
    watched: Arc<ArcSwap<Vec<PathBuf>>>,
    desk: ReloadDesk,
    requests: mpsc::Receiver<ReloadRequest>,
    record: ReloadRecord,
    studies: Studies,
    succession: Succession,
}

/// Binds what was not given, starts the workers, and returns; [`Running::control`] does the rest.
pub(crate) fn start(settings: &Arc<Settings>, given: GivenSockets) -> Result<Running, ServeError> {
    given.check(settings)?;
    let (usage, now) = (usage(settings)?, wellhead_dispatch::now());
    let traces = Traces::new(settings, now).map_err(ServeError::Traces)?;
    let is_handed_over = given.predecessor.is_some();
    let recorders = recorders(&usage, traces.as_deref());
    let parts = Assembly::made(settings, recorders, is_handed_over, now)?;
    fetch_keys(&parts)?;
    let listeners = bind(settings, given.clients)?;
    let admin = AdminListener::bind(settings, given.admin, is_handed_over)?;
    let addresses = Addresses::new(settings, &listeners, admin.as_ref());
    let succession = Succession::new(given.predecessor, &listeners, admin.as_ref())?;
    let tls = load_tls(settings)?;
    let server = Server::with(server_settings(settings), tls.clone());
    let tls = ListenerTls::of(tls, admin.as_ref().and_then(AdminListener::tls).cloned());
    let (shutdown, beats) = (Shutdown::new(), Arc::new(Heartbeats::new(listeners.len(), now)));
    let proxy = Arc::new(ArcSwap::new(Arc::clone(&parts.proxy)));
    let state = restore(settings, &proxy, &parts, now);
    let (desk, requests) = ReloadDesk::new();
    let (record, studies) = (ReloadRecord::new(clock::unix_seconds()), Studies::default());
    let told = AdminParts {
        sources: MetricSources {
            proxy: Arc::clone(&proxy),
            connections: Arc::new(ArcSwap::from_pointee(parts.connections())),
            server: Arc::clone(&server),
            tls: tls.clone(),
            state: state.clone(),
            usage: Arc::clone(&usage),
            beats: Arc::clone(&beats),
            record: record.clone(),
            studies: studies.record(),
        },
        access: Arc::new(admin_access(settings)),
        keys: keys(settings, parts.callers.as_ref()),
        reloads: desk.clone(),
        hand_overs: succession.desk.clone(),
    };
    let common = WorkerCommon::new(server, &shutdown, &beats, &succession);
    Ok(Running {
        workers: spawn_workers(&parts, &common, listeners)?,
        pages: Arc::new(AdminPages::new(&parts, told)),
        proxy,
        addresses,
        parts,
        shutdown,
        admin,
        beats,
        tls,
        state,
        usage,
        traces,
        source: None,
        watched: Arc::default(),
        desk,
        requests,
        record,
        studies,
        succession,
    })
}

/// What all workers share.
#[derive(Clone)]
struct WorkerCommon {
    server: Arc<Server>,
    shutdown: Shutdown,
    beats: Arc<Heartbeats>,
    /// Whether connections are accepted.
    is_open: watch::Receiver<bool>,
}

impl WorkerCommon {
    fn new(
        server: Arc<Server>,
        shutdown: &Shutdown,
        beats: &Arc<Heartbeats>,
        succession: &Succession,
    ) -> Self {
        let (shutdown, beats) = (shutdown.clone(), Arc::clone(beats));
        Self { server, shutdown, beats, is_open: succession.is_open() }
    }
}

fn load_tls(settings: &Settings) -> Result<Option<Arc<Tls>>, AssembleError> {
    let tls = settings.tls.as_ref().map(|tls| match &tls.acme {
        Some(acme) => Tls::with_acme(acme.order(), tls.clients()),
        None => Tls::load(tls.files()),
    });
    tls.transpose().map_err(AssembleError::Tls)
}

/// Binds the address of clients, once for each worker, unless its sockets were given.
fn bind(settings: &Settings, given: Vec<TcpListener>) -> Result<Vec<Listener>, ServeError> {
    let count = settings.workers();
    if !given.is_empty() {
        return Listener::of_given(given, count)
            .map_err(|error| ServeError::System("a socket that was given cannot be used", error));
    }
    Listener::bind_workers(settings.listen, count)
        .map_err(|error| ServeError::Bind("listen", settings.listen, error))
}

/// Fetches the keys of issuers before a client can call: where no address is bound yet, clients go to
/// other replicas meanwhile.
fn fetch_keys(parts: &Assembly) -> Result<(), ServeError> {
    if parts.issuers.is_empty() {
        return Ok(());
    }
    let runtime =
        runtime().map_err(|error| ServeError::System("a runtime could not start", error))?;
    runtime.block_on(access::fetch_first(&parts.issuers));
    // A name server that hangs would else hold it up beyond the time of a fetch.
    runtime.shutdown_background();
    Ok(())
}

/// Takes the file of keys into use, and lets it and the keys in Redis be changed.
fn keys(settings: &Settings, callers: Option<&Arc<CallerControl>>) -> KeyAdmin {
    let file = settings.access.keys.as_ref().and_then(|keys| keys.file.as_deref());
    if let (Some(callers), Some(path)) = (callers, file) {
        access::begin(callers, path);
    }
    KeyAdmin::new(settings, callers.cloned())
}

/// Starts a thread for each listener.
fn spawn_workers(
    parts: &Assembly,
    common: &WorkerCommon,
    listeners: Vec<Listener>,
) -> Result<Vec<WorkerThread>, ServeError> {
    let mut rng = SmallRng::from_os_rng();
    let mut workers = Vec::new();
    for (number, listener) in listeners.into_iter().enumerate() {
        let current = proxy_worker(parts, &mut rng)?;
        let handler = Arc::new(WorkerHandler {
            current: Arc::clone(&current),
            callers: parts.callers.clone(),
        });
        let common = common.clone();
        let thread = std::thread::Builder::new()
            .name(format!("{WORKER_NAME}-{number}"))
            .spawn(move || work(number, listener, handler, common))
            .map_err(|error| ServeError::System("a worker thread could not start", error))?;
        workers.push(WorkerThread { thread, current });
    }
    Ok(workers)
}

/// The proxy, with connections of its own.
fn proxy_worker(
    parts: &Assembly,
    rng: &mut SmallRng,
) -> Result<Arc<ArcSwap<ProxyWorker>>, AssembleError> {
    let (proxy, chains) = (Arc::clone(&parts.proxy), parts.worker_chains(rng)?);
    Ok(Arc::new(ArcSwap::from_pointee(ProxyWorker { proxy, chains })))
}

/// What was spent, and what ended of keys, before, as the state file says.
fn restore(
    settings: &Settings,
    proxy: &Arc<ArcSwap<Proxy>>,
    parts: &Assembly,
    now: Instant,
) -> Option<Arc<State>> {
    let restore = |path| State::restore(path, proxy, parts.callers.clone(), now);
    settings.state.as_deref().map(restore)
}

/// Where requests leave what they did.
fn recorders(usage: &Usage, traces: Option<&Traces>) -> Recorders {
    Recorders {
        usage: Some(Arc::clone(usage.table())),
        tracer: traces.map(|traces| Arc::clone(traces.tracer())),
    }
}

/// What becomes of usage.
fn usage(settings: &Settings) -> Result<Arc<Usage>, ServeError> {
    Usage::new(&UsageSettings::of(settings), Arc::new(clock::unix_seconds))
        .map_err(ServeError::Usage)
}

fn server_settings(settings: &Settings) -> wellhead_server::Settings {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    wellhead_server::Settings {
        connections_max: limits.connections,
        connections_per_peer_max: limits.connections_per_address,
        shares: limits.shares,
        requests_max: limits.in_flight,
        // A client that does not take its answers may hold a part of what all answers may.
        waiting_max: (limits.in_flight / 4).max(1),
        waiting_bytes_max: limits.answers_total_bytes.as_usize() / 2,
        head_bytes_max: limits.header_bytes.as_usize(),
        body_bytes_max: limits.body_bytes.as_usize(),
        bodies_bytes_max: limits.bodies_total_bytes.as_usize(),
        head_timeout: timeouts.header,
        body_timeout: timeouts.body,
        idle_timeout: timeouts.idle,
        write_timeout: timeouts.write,
        drain_timeout: timeouts.drain,
        compression: Compression {
            enabled: settings.compression.enabled,
            ..Compression::default()
        },
        cors_origins: settings
            .cors
            .origins
            .iter()
            .map(|origin| origin.as_ref().to_owned())
            .collect(),
        hosts: match &settings.hosts {
            Some(listed) => hosts(listed),
            None if settings.listen.ip().is_loopback() => Hosts::LOCAL,
            // A listener for other machines is called by unknown names.
            None => Hosts::Any,
        },
        proxy_protocol: proxy_protocol(settings),
        log_requests: settings.log.requests,
        trace_parents: settings.traces.is_some(),
        ..wellhead_server::Settings::default()
    }
}

fn proxy_protocol(settings: &Settings) -> ProxyProtocol {
    let proxies = &settings.access.proxies;
    // The settings were checked.
    let trusted = Network::set(&proxies.trust).unwrap_or_default();
    let trusted = ProxyTrust::new(trusted, ProxyTrustHeader::XForwardedFor);
    ProxyProtocol { mode: proxies.protocol, trusted: Arc::new(trusted) }
}

fn work(
    number: usize,
    listener: Listener,
    handler: Arc<WorkerHandler>,
    common: WorkerCommon,
) -> io::Result<Drained> {
    let WorkerCommon { server, shutdown, beats, mut is_open } = common;
    runtime()?.block_on(async {
        let beat = async {
            loop {
                beats.beat(number, wellhead_dispatch::now());
                tokio::time::sleep(HEARTBEAT).await;
            }
        };
        let serve = async {
            // An error says that it ends before it has opened. What is returned holds a lock.
            let is_open = is_open.wait_for(|is_open| *is_open).await.is_ok();
            match is_open {
                true => wellhead_front::serve(&server, listener, handler, &shutdown).await,
                false => Ok(Drained::default()),
            }
        };
        tokio::select! {
            drained = serve => drained,
            () = beat => Ok(Drained::default()),
        }
    })
}

/// The signals that end it, have it read its settings again, and have it hand its sockets over.
struct ControlSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    upgrade: Signal,
}

impl ControlSignals {
    fn listen() -> Result<Self, ServeError> {
        let listen =
            |kind, failure| signal(kind).map_err(|error| ServeError::System(failure, error));
        Ok(Self {
            terminate: listen(SignalKind::terminate(), "SIGTERM cannot be listened to")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT cannot be listened to")?,
            hangup: listen(SignalKind::hangup(), "SIGHUP cannot be listened to")?,
            upgrade: listen(SignalKind::user_defined2(), "SIGUSR2 cannot be listened to")?,
        })
    }
}

impl Running {
    /// Runs the control loops and the admin listener until a signal comes or `until`
    /// resolves, then calls `stopping` and drains. Runs on the main thread.
    pub(crate) async fn control(
        mut self,
        until: impl Future<Output = ()>,
        stopping: impl FnOnce(),
    ) -> Result<(), ServeError> {
        let mut signals = ControlSignals::listen()?;
        let mut rng = SmallRng::from_os_rng();
        let mut loops = JoinSet::new();
        let replicas = self.start_replicas(&mut loops).await;
        let current = proxy_worker(&self.parts, &mut rng)?;
        let mut chains = ChainLoops::new(current, replicas, self.filter_store());
        chains.follow(&self.parts, &mut rng)?;
        self.start_loops(&mut loops);
        let mut until = std::pin::pin!(until);
        let is_open = tokio::select! {
            opened = self.open() => opened.map(|()| true)?,
            _ = signals.terminate.recv() => false,
            _ = signals.interrupt.recv() => false,
            () = &mut until => false,
        };
        let admin = self.admin.take().filter(|_| is_open);
        let admin = admin.map(|admin| admin.serve(Arc::clone(&self.pages)));
        let end = match is_open {
            true => {
                self.tell_ready();
                self.studies.follow(&self.parts);
                self.serve_until(until, &mut signals, &mut chains).await
            }
            false => ServingEnd::Asked,
        };
        stopping();
        let began = wellhead_dispatch::now();
        match end {
            ServingEnd::HandedOver { pid } => {
                systemd::tell_successor(pid);
                self.shutdown.begin_handed_over();
                // What is asked from now on is for the successor.
                if let Some((shutdown, _)) = &admin {
                    shutdown.begin();
                }
            }
            ServingEnd::Asked => {
                systemd::tell_stopping();
                self.pages.drain();
            }
        }
        self.succession.end(&end);
        self.drain(&mut signals).await;
        self.studies.end().await;
        loops.shutdown().await;
        chains.shutdown().await;
        self.write_out(began).await;
        if let Some((shutdown, admin)) = admin {
            shutdown.begin();
            // Its own drain is bounded by a second.
            let _ = admin.await;
        }
        Ok(())
    }

    fn shutdown_delay(&self) -> Duration {
        self.parts.settings.timeouts.shutdown_delay
    }

    /// Ends the workers when what is under way has ended, or a further signal comes.
    async fn drain(&mut self, signals: &mut ControlSignals) {
        self.studies.stop();
        self.shutdown.begin();
        let workers = std::mem::take(&mut self.workers);
        let joined = task::spawn_blocking(move || join(workers));
        tokio::select! {
            drained = joined => match drained {
                Ok(drained) => {
                    tracing::info!(finished = drained.finished, dropped = drained.dropped, "stopped");
                }
                Err(error) => tracing::error!(%error, "a worker could not be joined"),
            },
            _ = signals.terminate.recv() => tracing::warn!("received a second SIGTERM: not waiting for requests in progress"),
            _ = signals.interrupt.recv() => tracing::warn!("interrupted again: not waiting for requests in progress"),
        }
    }

    /// Carries out reloads and hand-overs until a signal comes or `until` resolves; after SIGTERM it is not ready for a while.
    async fn serve_until(
        &mut self,
        until: impl Future<Output = ()>,
        signals: &mut ControlSignals,
        chains: &mut ChainLoops,
    ) -> ServingEnd {
        let mut until = std::pin::pin!(until);
        let mut begun: Option<BegunReload> = None;
        let mut hand_over: Option<BegunHandOver> = None;
        let mut end = ServingEnd::Asked;
        loop {
            tokio::select! {
                _ = signals.terminate.recv() => {
                    tracing::info!(delay_ms = self.shutdown_delay().as_millis() as u64, "received SIGTERM: no longer ready");
                    self.pages.drain();
                    tokio::select! {
                        () = tokio::time::sleep(self.shutdown_delay()) => {}
                        _ = signals.terminate.recv() => {}
                        _ = signals.interrupt.recv() => {}
                    }
                    break;
                }
                _ = signals.interrupt.recv() => {
                    tracing::info!("interrupted");
                    break;
                }
                () = &mut until => break,
                _ = signals.hangup.recv() => {
                    // As without a handler: the terminal of a demo was closed.
                    if self.source.is_none() {
                        tracing::info!("received SIGHUP, and there is no config to read again");
                        break;
                    }
                    self.desk.ask(ReloadCause::Signal);
                }
                Some(request) = self.requests.recv(), if begun.is_none() => {
                    begun = Some(self.begin_reload(request));
                }
                _ = signals.upgrade.recv() => self.succession.desk.ask(),
                Some(request) = self.succession.requests.recv() => {
                    self.begin_hand_over(request, &mut hand_over);
                }
                outcome = outcome_of(&mut hand_over), if hand_over.is_some() => {
                    if let Some(pid) = hand_over.take().and_then(|begun| begun.end(outcome)) {
                        end = ServingEnd::HandedOver { pid };
                        break;
                    }
                }
                read = read_of(&mut begun), if begun.is_some() => {
                    if let Some(BegunReload { request, .. }) = begun.take() {
                        self.end_reload(request, read, chains);
                    }
                }
            }
        }
        // No reload waits for an answer any more.
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        end
    }

    /// Starts what runs beside the workers and the chains until the process stops.
    async fn start_replicas(&self, loops: &mut JoinSet<()>) -> Option<Arc<Replicas>> {
        let (shared, store) = (self.parts.shared()?, self.parts.settings.shared.as_ref()?);
        let started = shared.start_replicas(store, SmallRng::from_os_rng()).await?;
        let replicas = Arc::clone(&started.replicas);
        loops.spawn(follow_replicas(started, Arc::clone(&self.proxy)));
        Some(replicas)
    }

    fn filter_store(&self) -> Option<Arc<dyn FilterStore>> {
        filter_store(self.parts.settings.shared.as_ref()?, SmallRng::from_os_rng())
    }

    fn start_loops(&self, loops: &mut JoinSet<()>) {
        if let (Some(cache), Some(redis)) = (self.parts.cache(), &self.parts.settings.cache.redis) {
            share_cache(cache, redis, SmallRng::from_os_rng());
        }
        if let (Some(_), Some(cache), Some(disk)) =
            (&self.succession.predecessor, self.parts.cache(), &self.parts.settings.cache.disk)
            && cache.tiers().has_no_disk()
        {
            loops.spawn(add_disk(Arc::clone(cache), disk.clone()));
        }
        loops.spawn(sweep(Sweeper::new(Arc::clone(&self.proxy))));
        for ListenerTls { tls, .. } in &self.tls {
            loops.spawn(renew::run(Arc::clone(tls)));
            if let Some(orders) = tls.acme() {
                loops.spawn(acme::run(orders));
            }
        }
        if let (Some(shared), Some(store)) = (self.parts.shared(), &self.parts.settings.shared)
            && let Some(notices) = shared.start(store, SmallRng::from_os_rng())
        {
            loops.spawn(follow_pauses(notices, Arc::clone(&self.proxy)));
        }
        if let Some(callers) = &self.parts.callers {
            self.usage.watch(callers.book());
            self.follow_keys(callers, loops);
            loops.spawn(sweep_meters(Arc::clone(callers)));
            loops.spawn(wellhead_front::watch_sessions(Arc::clone(callers)));
        }
        for issuer in &self.parts.issuers {
            loops.spawn(Arc::clone(issuer).run());
        }
        if let Some(state) = &self.state {
            loops.spawn(Arc::clone(state).run());
        }
        self.watch_files(loops);
        loops.spawn(Arc::clone(&self.usage).run());
        if let Some(traces) = &self.traces {
            let traces = Arc::clone(traces);
            loops.spawn(async move { traces.start().await });
        }
        loops.spawn(systemd::keep_told(Arc::clone(&self.proxy), Arc::clone(&self.beats)));
    }

    fn follow_keys(&self, callers: &Arc<CallerControl>, loops: &mut JoinSet<()>) {
        let Some(keys) = &self.parts.settings.access.keys else { return };
        if let Some(path) = &keys.file {
            loops.spawn(access::watch(Arc::clone(callers), path.clone(), keys.stale_max));
        }
        // The config check has seen to it that there is a store.
        if let (Some(store), Some(redis)) = (&self.parts.settings.shared, self.pages.redis_keys())
            && redis.open(store, SmallRng::from_os_rng()).is_some()
        {
            let redis = Arc::clone(redis);
            loops.spawn(directory::follow(Arc::clone(callers), redis, keys.stale_max));
        }
    }

    /// Writes what was spent and used, and the cache entries that wait for the disk.
    async fn write_out(&mut self, began: Instant) {
        let used = wellhead_dispatch::now().saturating_duration_since(began);
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.end(used).await;
            }
        };
        tokio::join!(self.usage.end(used), traces);
        if let Some(state) = self.state.take() {
            state.end().await;
        }
        if let Some(cache) = self.parts.cache()
            && tokio::time::timeout(DISK_CLOSES_WITHIN, cache.tiers().close()).await.is_err()
        {
            tracing::warn!(
                "the disk cache did not close in time: entries not yet written are lost"
            );
        }
    }
}

/// Why serving ended.
enum ServingEnd {
    /// A signal, or the program.
    Asked,
    /// Another process serves.
    HandedOver { pid: u32 },
}

/// What the reload that has begun reads; never, where none has.
async fn read_of(begun: &mut Option<BegunReload>) -> Result<ReadConfig, String> {
    match begun {
        Some(begun) => (&mut begun.read).await,
        None => std::future::pending().await,
    }
}

/// Forgets the meters that have nothing to remember, until it is dropped.
async fn sweep_meters(callers: Arc<CallerControl>) {
    loop {
        tokio::time::sleep(METERS_SWEPT_EVERY).await;
        callers.sweep(wellhead_dispatch::now());
    }
}

/// Tidies the answers that are kept until it is dropped.
async fn sweep(mut sweeper: Sweeper) {
    loop {
        tokio::time::sleep(Sweeper::EVERY).await;
        sweeper.sweep();
    }
}

fn join(workers: Vec<WorkerThread>) -> Drained {
    let mut drained = Drained::default();
    for worker in workers {
        match worker.thread.join() {
            Ok(Ok(own)) => drained += own,
            Ok(Err(error)) => tracing::error!(%error, "a worker failed"),
            Err(_) => tracing::error!("a worker panicked"),
        }
    }
    drained
}
