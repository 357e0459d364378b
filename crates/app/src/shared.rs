//! What this wellhead shares with others through a Redis: the limits of its callers, the budgets of its
//! upstreams, the pauses that those asked for, what one of them learns for all (`replicas`), and the filters that its
//! clients made.
//!
//! Limits are made before any task can run, when the settings are read, and later whenever keys are
//! read; a keeper serves them from the start of the control loops on. Until then, and where no more
//! fit, a limit goes by itself, as `limit::lease` has it for a store that is away.

mod replicas;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use wellhead_access::QuotaSharing;
use wellhead_limit::lease::{LeasedLimit, WhenAway};
use wellhead_proxy::{FilterStore, Proxy};
use wellhead_store::{
    BroadcastBounds, BroadcastStatus, FilterStoreBounds, LeaseBounds, LeaseKeeper, LeaseStatus,
    PauseChannel, PauseNotice, ReplicaChannel, SharedFilters,
};
use wellhead_telemetry::clock;
use wellhead_upstream::{Upstream, UpstreamSharing};
use wellhead_watch::Replicas;

use crate::config::{SharedProbes, SharedStore};
pub(crate) use replicas::{StartedReplicas, follow_replicas, join, leave};

/// A start waits so long for the other replicas.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// The limits that are shared, and what serves them.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    when_away: WhenAway,
    epoch: Instant,
    serving: Mutex<LimitServing>,
    /// From the start of the control loops on.
    pauses: OnceLock<PauseChannel>,
    replicas: OnceLock<KnownReplicas>,
}

/// How this replica and the others hear each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaStatus {
    /// Those that are there, this one included.
    pub(crate) replicas: usize,
    pub(crate) words: BroadcastStatus,
}

/// The other wellheads, and the channel over which they speak.
#[derive(Debug)]
struct KnownReplicas {
    channel: ReplicaChannel,
    replicas: Arc<Replicas>,
}

#[derive(Debug)]
enum LimitServing {
    /// No keeper is there yet. The limits are those of the settings: the length of the file bounds them.
    Waiting(Vec<(String, LeasedLimit)>),
    By(LeaseKeeper),
}

impl SharedLimits {
    /// `epoch`: since when the meters count.
    pub(crate) fn new(settings: &SharedStore, epoch: Instant) -> Self {
        let serving = Mutex::new(LimitServing::Waiting(Vec::new()));
        let (pauses, replicas) = (OnceLock::new(), OnceLock::new());
        Self { when_away: settings.when_away, epoch, serving, pauses, replicas }
    }

    /// Begins to hear the other replicas, in a task of this runtime, if one of them is to probe for all. Waits for the
    /// connection, though not for long: what is learnt before is told to none.
    pub(crate) async fn start_replicas(
        &self,
        settings: &SharedStore,
        rng: SmallRng,
    ) -> Option<StartedReplicas> {
        if settings.probes == SharedProbes::Each {
            return None;
        }
        let bounds = broadcast_bounds(settings);
        // The config check has looked at the URL, and the keeper of limits says what is wrong with it.
        let (channel, messages) = ReplicaChannel::start(&settings.redis, bounds, rng).ok()?;
        let _without_it = timeout(HEARD_WITHIN, channel.until_here()).await;
        let replicas = replicas::replicas(&channel);
        self.replicas.set(KnownReplicas { channel, replicas: Arc::clone(&replicas) }).ok()?;
        Some(StartedReplicas { replicas, messages })
    }

    /// What became of words between replicas, and how many replicas there are; `None` where each probes for
    /// itself.
    pub(crate) fn replica_status(&self, now: Instant) -> Option<ReplicaStatus> {
        let KnownReplicas { channel, replicas } = self.replicas.get()?;
        Some(ReplicaStatus { replicas: replicas.count(now), words: channel.status() })
    }

    /// Begins to serve the limits, and to hear of pauses, in tasks of this runtime. The pauses that other
    /// replicas tell come out of the receiver.
    pub(crate) fn start(
        &self,
        settings: &SharedStore,
        mut rng: SmallRng,
    ) -> Option<mpsc::Receiver<PauseNotice>> {
        let cluster: &str = settings.cluster.as_ref();
        let (bounds, own) = (broadcast_bounds(settings), SmallRng::seed_from_u64(rng.next_u64()));
        // The config check has looked at the URL, and the keeper of limits says what is wrong with it.
        let pauses = PauseChannel::start(&settings.redis, bounds, own).ok();
        let notices =
            pauses.and_then(|(channel, notices)| self.pauses.set(channel).ok().map(|()| notices));
        let limits = LeaseBounds { cluster: cluster.to_owned(), ..LeaseBounds::default() };
        self.start_limits(settings, limits, rng);
        notices
    }

    fn start_limits(&self, settings: &SharedStore, bounds: LeaseBounds, rng: SmallRng) {
        let (epoch, unix) = (self.epoch, Arc::new(clock::unix_seconds));
        let elapsed = Arc::new(move || wellhead_dispatch::now().saturating_duration_since(epoch));
        let keeper = LeaseKeeper::start(&settings.redis, bounds, elapsed, unix, rng);
        let keeper = match keeper {
            Ok(keeper) => keeper,
            // The config check has looked at the URL.
            Err(error) => {
                tracing::error!(%error, "the Redis of `shared` cannot be used; limits are not shared");
                return;
            }
        };
        let mut serving = self.serving.lock();
        let before = std::mem::replace(&mut *serving, LimitServing::By(keeper.clone()));
        if let LimitServing::Waiting(limits) = before {
            for (name, limit) in limits {
                serve(&keeper, &name, &limit);
            }
        }
    }

    fn share_limit(&self, name: &str, limit: LeasedLimit) {
        match &mut *self.serving.lock() {
            LimitServing::Waiting(limits) => limits.push((name.to_owned(), limit)),
            LimitServing::By(keeper) => serve(keeper, name, &limit),
        }
    }

    /// How sharing goes; `None` before it began.
    pub(crate) fn status(&self) -> Option<LeaseStatus> {
        match &*self.serving.lock() {
            LimitServing::Waiting(_) => None,
            LimitServing::By(keeper) => Some(keeper.status()),
        }
    }

    /// What became of messages about pauses; `None` before sharing began.
    pub(crate) fn pause_status(&self) -> Option<BroadcastStatus> {
        self.pauses.get().map(PauseChannel::status)
    }
}

/// Begins to look for the filters of clients that replicas share, in a task of this runtime.
pub(crate) fn filter_store(settings: &SharedStore, rng: SmallRng) -> Option<Arc<dyn FilterStore>> {
    let cluster: &str = settings.cluster.as_ref();
    let bounds = FilterStoreBounds { cluster: cluster.to_owned(), ..FilterStoreBounds::default() };
    // The config check has looked at the URL, and the keeper of limits says what is wrong with it.
    let store = SharedFilters::start(&settings.redis, bounds, rng).ok()?;
    Some(Arc::new(store))
}

fn broadcast_bounds(settings: &SharedStore) -> BroadcastBounds {
    let cluster: &str = settings.cluster.as_ref();
    BroadcastBounds { cluster: cluster.to_owned(), ..BroadcastBounds::default() }
}

/// How one upstream is shared. While the store is away its bounds go by their share, whatever holds for
/// callers: an upstream that is not asked is of no use.
#[derive(Debug)]
pub(crate) struct SharedUpstream {
    shared: Arc<SharedLimits>,
    /// See [`upstream_key`].
    key: String,
}

impl SharedUpstream {
    pub(crate) fn new(shared: &Arc<SharedLimits>, chain: &str, upstream: &str) -> Self {
        Self { shared: Arc::clone(shared), key: upstream_key(chain, upstream) }
    }
}

impl UpstreamSharing for SharedUpstream {
    fn share(&self, word: &'static str, limit: LeasedLimit) {
        self.shared.share_limit(&format!("up:{}:{word}", self.key), limit);
    }

    fn tell_pause(&self, method: Option<&'static str>, pause: Duration) {
        if let Some(channel) = self.shared.pauses.get() {
            let (key, method) = (self.key.clone(), method.map(str::to_owned));
            channel.publish(&PauseNotice { key, method, left: pause });
        }
    }
}

/// By which replicas know an upstream of a chain.
pub(crate) fn upstream_key(chain: &str, upstream: &str) -> String {
    format!("{chain}:{upstream}")
}

/// Pauses the upstreams that other replicas were told to pause, by [`upstream_key`]. Ends with the channel.
pub(crate) async fn follow_pauses(
    mut notices: mpsc::Receiver<PauseNotice>,
    proxy: Arc<ArcSwap<Proxy>>,
) {
    while let Some(PauseNotice { key, method, left }) = notices.recv().await {
        if let Some(upstream) = upstream_of_key(&proxy.load(), &key) {
            tracing::debug!(upstream = key, method, ?left, "another replica was told to pause");
            upstream.note_peer_pause(method.as_deref(), left, wellhead_dispatch::now());
        }
    }
}

/// Looks at all upstreams: pauses are rare.
fn upstream_of_key(proxy: &Proxy, key: &str) -> Option<Arc<Upstream>> {
    proxy.chains().iter().find_map(|chain| {
        let id = key.strip_prefix(&*chain.name.name)?.strip_prefix(':')?;
        let mut upstreams = chain.roster.upstreams().iter();
        upstreams.find(|upstream| upstream.identity().id.as_str() == id).cloned()
    })
}

impl QuotaSharing for SharedLimits {
    fn when_away(&self) -> WhenAway {
        self.when_away
    }

    fn share(&self, name: &str, limit: LeasedLimit) {
        self.share_limit(name, limit);
    }
}

fn serve(keeper: &LeaseKeeper, name: &str, limit: &LeasedLimit) {
    if let Err(error) = keeper.serve(name, limit) {
        tracing::debug!(name, %error, "a limit is not shared: it goes by its share");
    }
}

#[cfg(test)]
mod with_redis;
