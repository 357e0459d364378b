//! Limits that replicas share: the messages between a process and the store.
//!
//! One task, the [`LeaseKeeper`]'s, serves all limits of the process. It sleeps until a limit rings,
//! because it has little left, or is due; it then asks for all that want something in one
//! pipeline, a call of one script for each, at most once a [`LeaseBounds::tick`]. The script is
//! atomic for its key, and has the server's clock as its only one.
//!
//! ```text
//! limit::lease   take ─ ring ─┐                        ┌─ answer: grant
//!                             ▼                        │
//! LeaseKeeper    queue, due ─ round: here, rate, cap, gate, … ─ one pipeline
//!                                      │
//! store          script.lua            wh:{cluster}:replicas, wh:{cluster:NAME}…
//! ```
//!
//! *Which replicas are there.* Each round, and each [`LeaseBounds::heartbeat`] without one, says that this
//! replica is there and answers how many are. One that was silent for
//! [`LeaseBounds::absent_after`] is counted no more.
//!
//! *Away.* A connection that broke, or five answers in a row later than
//! [`LeaseBounds::answer_within`] (or one in a hundred, as for the shared cache): all limits are
//! told, and go by their share, or as they are set. The keeper connects anew in the background,
//! with pauses that double, and says that the store is back once three pings were quick.
//!
//! *What is lost.* A server that forgets all (restart, `FLUSHALL`) has full buckets and unused caps:
//! what was used of a cap before is forgotten with it. A grant whose answer was lost is lost. An ask that
//! reaches the script later than its answer is waited for is void, by the server's clock, which each round
//! tells: a server that was frozen would otherwise empty limits for asks that were given up.

mod ask;
mod registry;
mod round;
mod status;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use wellhead_limit::lease::LeasedLimit;
use wellhead_telemetry::SecretUrl;

pub use self::registry::RegistryFull;
pub use self::status::LeaseStatus;

use self::registry::Registry;
use self::round::LeaseRounds;
use self::status::LeaseCounters;
use crate::reconnect::{self, Reconnect};
use crate::shared::link;
use crate::{AbortOnDrop, Clock, NotRedis};

/// Tells the time since the epoch by which the limits are asked. It never goes back, except that a
/// step back is survived: all limits begin anew.
pub type LeaseClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What a keeper may take, and when it gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseBounds {
    /// What the replicas that share have in common: a part of all keys. No braces.
    pub cluster: String,
    /// An answer that takes longer is late; five in a row, and the store is away.
    pub answer_within: Duration,
    /// How often a round may begin.
    pub tick: Duration,
    /// How often the replica says that it is there, when nothing else does.
    pub heartbeat: Duration,
    /// After such a silence it is not counted.
    pub absent_after: Duration,
    /// How long connecting may take, logging in included.
    pub connect_within: Duration,
    /// The pause after the first failure to connect; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Limits that are served; further ones go by their share.
    pub limits_max: usize,
    /// Asks in one round; further ones come with the next.
    pub asks_max: usize,
}

impl Default for LeaseBounds {
    fn default() -> Self {
        Self {
            cluster: "wellhead".to_owned(),
            answer_within: Duration::from_millis(20),
            tick: Duration::from_millis(5),
            heartbeat: Duration::from_secs(2),
            absent_after: Duration::from_secs(6),
            connect_within: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            limits_max: 200_000,
            asks_max: 512,
        }
    }
}

/// Serves the shared limits of a process; clones share it. Its task ends with the last one; limits
/// that it served then find the store silent, and go by their share.
#[derive(Clone)]
pub struct LeaseKeeper {
    core: Arc<KeeperCore>,
    rings: mpsc::Sender<u32>,
    _closer: Arc<AbortOnDrop>,
}

/// What the handles and the task share.
struct KeeperCore {
    registry: Mutex<Registry>,
    counters: LeaseCounters,
    is_here: AtomicBool,
    bounds: LeaseBounds,
    now: LeaseClock,
    unix: Clock,
}

impl LeaseKeeper {
    /// Begins to look for the store at `url`, in a task of this runtime.
    ///
    /// `now` tells the time by which limits are asked, `unix` the seconds since 1970, by which days
    /// and months turn; `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: LeaseBounds,
        now: LeaseClock,
        unix: Clock,
        mut rng: SmallRng,
    ) -> Result<Self, NotRedis> {
        let client = link::client(url).map_err(|_| NotRedis)?;
        let replica = format!("{:016x}", rng.random::<u64>());
        // Each limit rings at most once until it was asked: the queue is never full.
        let (rings, queue) = mpsc::channel(bounds.limits_max.max(1));
        let core = Arc::new(KeeperCore {
            registry: Mutex::new(Registry::default()),
            counters: LeaseCounters::new(unix()),
            is_here: AtomicBool::new(false),
            bounds,
            now,
            unix,
        });
        let rounds = LeaseRounds::new(Arc::clone(&core), client, url.clone(), replica, queue);
        let reconnect = Reconnect::new(core.bounds.pause_min, core.bounds.pause_max);
        Ok(Self { core, rings, _closer: reconnect::keep(rounds, reconnect, rng) })
    }

    /// Serves this limit from now on, under this name, until it is dropped everywhere else. Limits
    /// of one name in several replicas are one; each replica has one of a name.
    ///
    /// To be called once for a limit. If it is refused, the limit goes by its share for ever.
    pub fn serve(&self, name: &str, limit: &LeasedLimit) -> Result<(), RegistryFull> {
        let replicas = self.core.counters.replicas();
        limit.count_alone(&self.core.counters.alone);
        let mut registry = self.core.registry.lock();
        let slot = registry.add(name, limit, self.core.bounds.limits_max).inspect_err(|_| {
            limit.note_away(replicas);
        })?;
        let rings = self.rings.downgrade();
        limit.set_bell(move || {
            // After the keeper has ended nothing asks.
            if let Some(rings) = rings.upgrade() {
                let _never_full = rings.try_send(slot);
            }
        });
        // Under the lock, by which the task tells all when the state changes.
        limit.note_replicas(replicas);
        match self.core.is_here.load(Relaxed) {
            true => limit.note_back(),
            false => limit.note_away(replicas),
        }
        Ok(())
    }

    /// How it is, for operators.
    pub fn status(&self) -> LeaseStatus {
        let limits = self.core.registry.lock().len();
        self.core.counters.status(limits, self.core.is_here.load(Relaxed))
    }
}

impl fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseKeeper").field("status", &self.status()).finish_non_exhaustive()
    }
}
