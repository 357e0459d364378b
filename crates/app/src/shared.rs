//! What this wellhead shares with others through a Redis: the limits of its callers, and the rates of its
//! upstreams.
//!
//! Limits are made before any task can run, when the settings are read, and later whenever keys are
//! read; a keeper serves them from the start of the control loops on. Until then, and where no more
//! fit, a limit goes by itself, as `limit::lease` has it for a store that is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use wellhead_access::{QuotaSharing, SharedQuotaLimit};
use wellhead_limit::lease::{LeasedBucket, WhenAway};
use wellhead_store::{LeaseBounds, LeaseClock, LeaseKeeper, LeaseStatus, LeasedLimit};
use wellhead_telemetry::clock;

use crate::config::SharedStore;

/// The limits that are shared, and who serves them.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    when_away: WhenAway,
    epoch: Instant,
    serving: Mutex<LimitServing>,
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
        Self { when_away: settings.when_away, epoch, serving }
    }

    /// Begins to serve the limits, in a task of this runtime.
    pub(crate) fn start(&self, settings: &SharedStore, rng: SmallRng) {
        let cluster = settings.cluster.as_ref().to_owned();
        self.start_within(settings, LeaseBounds { cluster, ..LeaseBounds::default() }, rng);
    }

    fn start_within(&self, settings: &SharedStore, bounds: LeaseBounds, rng: SmallRng) {
        let unix = Arc::new(clock::unix_seconds);
        let keeper = LeaseKeeper::start(&settings.redis, bounds, self.clock(), unix, rng);
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

    fn clock(&self) -> LeaseClock {
        let epoch = self.epoch;
        Arc::new(move || elapsed(epoch))
    }

    /// Shares a rate of an upstream. While the store is away it goes by its share, whatever holds for callers:
    /// an upstream that is not asked is of no use.
    pub(crate) fn share_rate(&self, name: &str, bucket: &Arc<LeasedBucket>) {
        self.share_limit(name, LeasedLimit::Bucket(Arc::clone(bucket)));
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
}

impl QuotaSharing for SharedLimits {
    fn when_away(&self) -> WhenAway {
        self.when_away
    }

    fn share(&self, name: &str, limit: SharedQuotaLimit) {
        self.share_limit(
            name,
            match limit {
                SharedQuotaLimit::Rate(bucket) => LeasedLimit::Bucket(bucket),
                SharedQuotaLimit::Caps(cap) => LeasedLimit::Cap(cap),
            },
        );
    }
}

fn serve(keeper: &LeaseKeeper, name: &str, limit: &LeasedLimit) {
    if let Err(error) = keeper.serve(name, limit) {
        tracing::debug!(name, %error, "a limit is not shared: it goes by its share");
    }
}

fn elapsed(epoch: Instant) -> Duration {
    wellhead_dispatch::now().saturating_duration_since(epoch)
}

#[cfg(test)]
mod tests;
