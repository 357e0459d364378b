//! What a keeper did so far and how it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use wellhead_telemetry::Histogram;

/// A keeper at one moment. Counts only grow, and are read one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseStatus {
    /// Since when the store is away, in seconds since 1970; `None`: it is there.
    pub away_since: Option<u64>,
    /// Replicas that share, this one included, as counted last.
    pub replicas: u32,
    /// Limits that are served.
    pub limits: usize,
    /// Pipelines sent.
    pub rounds: u64,
    /// Calls of the script for limits, in those.
    pub asks: u64,
    /// Asks for which the store had nothing.
    pub refused: u64,
    /// LeaseRounds that had no answer, a late one or a wrong one.
    pub failures: u64,
    /// How often the store went away.
    pub departures: u64,
    /// Calls that limits let through without the store, which was away or silent; each limit counts for
    /// itself.
    pub alone: u64,
    /// Calls of the script a second, of late.
    pub asks_per_second: f64,
    /// From sending a round to its answer: half of them took less.
    pub latency_p50: Option<Duration>,
    /// 99 in 100 took less.
    pub latency_p99: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct LeaseCounters {
    since: AtomicU64,
    replicas: AtomicU32,
    pub(super) rounds: AtomicU64,
    pub(super) asks: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failures: AtomicU64,
    departures: AtomicU64,
    pub(super) alone: Arc<AtomicU64>,
    /// The bits of a float.
    asks_per_second: AtomicU64,
    pub(super) latency: Histogram,
}

impl LeaseCounters {
    pub(super) fn new(unix: u64) -> Self {
        Self { since: AtomicU64::new(unix), replicas: AtomicU32::new(1), ..Self::default() }
    }

    pub(super) fn note_away(&self, unix: u64) {
        self.since.store(unix, Relaxed);
        self.departures.fetch_add(1, Relaxed);
    }

    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Relaxed)
    }

    pub(super) fn note_replicas(&self, replicas: u32) {
        self.replicas.store(replicas, Relaxed);
    }

    pub(super) fn note_pace(&self, asks_per_second: f64) {
        self.asks_per_second.store(asks_per_second.to_bits(), Relaxed);
    }

    pub(super) fn status(&self, limits: usize, is_here: bool) -> LeaseStatus {
        LeaseStatus {
            away_since: (!is_here).then(|| self.since.load(Relaxed)),
            replicas: self.replicas(),
            limits,
            rounds: self.rounds.load(Relaxed),
            asks: self.asks.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failures: self.failures.load(Relaxed),
            departures: self.departures.load(Relaxed),
            alone: self.alone.load(Relaxed),
            asks_per_second: f64::from_bits(self.asks_per_second.load(Relaxed)),
            latency_p50: self.latency.quantile(0.5),
            latency_p99: self.latency.quantile(0.99),
        }
    }
}
