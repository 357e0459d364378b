//! Any limit that replicas share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{LeasedBucket, LeasedCap, LeasedGate, LeasedWindow};

/// A limit of this process that shares its bound with other replicas.
#[derive(Debug, Clone)]
pub enum LeasedLimit {
    /// A rate.
    Bucket(Arc<LeasedBucket>),
    /// The credits of a day and a month.
    Cap(Arc<LeasedCap>),
    /// Calls in flight.
    Gate(Arc<LeasedGate>),
    /// The credits of a window that opens with its first call.
    Window(Arc<LeasedWindow>),
}

macro_rules! each {
    ($self:expr, $limit:ident => $do:expr) => {
        match $self {
            Self::Bucket($limit) => $do,
            Self::Cap($limit) => $do,
            Self::Gate($limit) => $do,
            Self::Window($limit) => $do,
        }
    };
}

impl LeasedLimit {
    /// Whether anything else holds it, too.
    pub fn is_held_elsewhere(&self) -> bool {
        each!(self, limit => Arc::strong_count(limit) > 1)
    }

    /// How it calls for a look: at most once until [`Self::due`] was called. The first one set stays.
    pub fn set_bell(&self, ring: impl Fn() + Send + Sync + 'static) {
        each!(self, limit => limit.set_bell(ring));
    }

    /// Where calls that it lets through without the store are counted, beside those of other limits. The
    /// first one set stays.
    pub fn count_alone(&self, calls: &Arc<AtomicU64>) {
        each!(self, limit => limit.count_alone(Arc::clone(calls)));
    }

    /// `replicas` share it, this one included.
    pub fn note_replicas(&self, replicas: u32) {
        each!(self, limit => limit.note_replicas(replicas));
    }

    /// The store went away. `replicas` is the last known number of replicas.
    pub fn note_away(&self, replicas: u32) {
        each!(self, limit => limit.note_away(replicas));
    }

    /// The store is back.
    pub fn note_back(&self) {
        each!(self, limit => limit.note_back());
    }

    /// When to look again, if it does not ring before; to be called after each look.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        each!(self, limit => limit.due(now))
    }

    /// No answer to the last ask came.
    pub fn fail(&self, now: Duration) {
        each!(self, limit => limit.fail(now));
    }
}
