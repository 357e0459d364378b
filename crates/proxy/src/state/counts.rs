//! How calls ended and what their attempts came to, counted without a lock and without a look-up.
//!
//! Counters are arrays by row of the method table, and by upstream and verdict, so that a call pays
//! additions only and a client cannot grow the label sets: methods that the table does not list
//! share the row `*`. What operators see of them: [`crate::metrics`] and [`crate::status`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wellhead_dispatch::{Abandoned, Attempt, Failure};
use wellhead_eth::{CostClass, MethodRow, MethodTable};
use wellhead_telemetry::Histogram;
use wellhead_upstream::{Slot, UpstreamSet, VerdictClass};

use crate::state::exemplars::Exemplars;

/// How a call ended for the client. Its words stand in metrics and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CallOutcome {
    /// With a result.
    Answered,
    /// With an error that an upstream wrote: a revert, bad params, missing data.
    UpstreamError,
    /// With wellhead's own error, because no upstream could answer.
    Failed,
    /// With an error of ours, because it may or can not be served.
    Refused,
}

wellhead_word::words!(CallOutcome);

impl CallOutcome {
    /// That of a call for which nothing could be passed on.
    pub(crate) fn of(failure: Failure) -> Self {
        match failure {
            Failure::NotOffered | Failure::CallsSpent { .. } => Self::Refused,
            Failure::EmptyPlan
            | Failure::Deadline
            | Failure::Exhausted { .. }
            | Failure::NoRoom
            | Failure::Held { .. }
            | Failure::Disputed { .. }
            | Failure::TooFew { .. } => Self::Failed,
        }
    }
}

/// What the cache had to say to a call that it may answer, for the client to see.
/// Its words stand in metrics, traces and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CacheResult {
    /// It was kept.
    Hit,
    /// It was not, and an upstream was asked.
    Miss,
    /// An identical call was under way for another client, and its result was the answer.
    Joined,
}

wellhead_word::words!(CacheResult);

const OUTCOMES: usize = CallOutcome::ALL.len();
const VERDICTS: usize = VerdictClass::ALL.len();

/// The counters of one chain.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) chain: Arc<ChainCounts>,
    /// By slot. Slots without an upstream share one that is not told.
    upstreams: Box<[Arc<UpstreamCounts>]>,
}

/// Those that name no upstream.
#[derive(Debug, Default)]
pub(crate) struct ChainCounts {
    /// By row and outcome. Made with the first call: most chains of a large roster are called by
    /// no client.
    calls: OnceLock<Box<[[AtomicU64; OUTCOMES]]>>,
    /// By cost class.
    pub(crate) took: [Histogram; CostClass::ALL.len()],
    /// By what the cache had.
    found: [AtomicU64; CacheResult::ALL.len()],
    /// Credits that the answers kept and shared would have cost.
    saved: AtomicU64,
    /// Empty answers that were doubtful.
    pub(crate) doubted: AtomicU64,
    /// Those that were served for want of a better one.
    pub(crate) unconfirmed: AtomicU64,
    /// Of `took`.
    pub(crate) exemplars: Exemplars,
}

/// Those of one upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamCounts {
    /// By verdict.
    pub(crate) attempts: [AtomicU64; VERDICTS],
    pub(crate) attempt_took: Histogram,
    /// Exchanges that were abandoned.
    pub(crate) abandoned: AtomicU64,
    /// Empty answers where another upstream found logs.
    missed_logs: AtomicU64,
}

impl Counts {
    /// For upstreams in these slots.
    pub(crate) fn new(slots: impl Iterator<Item = Slot>) -> Self {
        let none = Arc::<UpstreamCounts>::default();
        let mut upstreams = Vec::new();
        for slot in slots {
            let len = upstreams.len().max(slot.index() + 1);
            upstreams.resize(len, Arc::clone(&none));
            upstreams[slot.index()] = Arc::default();
        }
        Self { chain: Arc::default(), upstreams: upstreams.into() }
    }

    /// Going on with the counts of the chain, and of the upstreams in the slots that are `kept`.
    pub(crate) fn succeeding(mut self, old: &Self, kept: UpstreamSet) -> Self {
        self.chain = Arc::clone(&old.chain);
        for slot in kept.iter() {
            let old = old.upstreams.get(slot.index());
            if let (Some(counts), Some(old)) = (self.upstreams.get_mut(slot.index()), old) {
                *counts = Arc::clone(old);
            }
        }
        self
    }

    /// Those of the upstream in `slot`.
    pub(crate) fn of(&self, slot: Slot) -> &UpstreamCounts {
        &self.upstreams[slot.index()]
    }

    fn calls_of(&self, row: &MethodRow) -> &[AtomicU64; OUTCOMES] {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let rows = || MethodTable::standard().rows().iter().map(|_| zeros()).collect();
        &self.chain.calls.get_or_init(rows)[row.index.get()]
    }

    /// By row and outcome; empty before the first call.
    pub(crate) fn calls(&self) -> &[[AtomicU64; OUTCOMES]] {
        self.chain.calls.get().map_or(&[], |calls| calls)
    }

    pub(crate) fn observe(
        &self,
        row: &MethodRow,
        outcome: CallOutcome,
        took: Duration,
        attempts: &[Attempt],
    ) {
        self.calls_of(row)[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.chain.took[row.class as usize].observe(took);
        attempts.iter().for_each(|attempt| self.attempted(attempt));
    }

    /// Counts calls that went alike, each with an attempt like `attempt`.
    pub(crate) fn observe_alike(
        &self,
        row: &MethodRow,
        outcome: CallOutcome,
        took: Duration,
        attempt: &Attempt,
        times: u64,
    ) {
        self.calls_of(row)[outcome as usize].fetch_add(times, Ordering::Relaxed);
        self.chain.took[row.class as usize].observe_many(took, times);
        let counts = self.of(attempt.slot);
        counts.attempts[attempt.class as usize].fetch_add(times, Ordering::Relaxed);
        counts.attempt_took.observe_many(attempt.took, times);
    }

    /// Counts an attempt of a call that is not yet answered.
    pub(crate) fn attempted(&self, attempt: &Attempt) {
        let counts = self.of(attempt.slot);
        counts.attempts[attempt.class as usize].fetch_add(1, Ordering::Relaxed);
        counts.attempt_took.observe(attempt.took);
    }

    /// Counts an attempt that was left for a quicker one.
    pub(crate) fn abandoned(&self, attempt: &Abandoned) {
        self.of(attempt.slot).abandoned.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that the cache was asked for.
    pub(crate) fn found(&self, found: CacheResult) {
        self.chain.found[found as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what a call would have cost that no upstream was asked for.
    pub(crate) fn saved(&self, credits: u64) {
        self.chain.saved.fetch_add(credits, Ordering::Relaxed);
    }

    /// Credits that such calls would have cost.
    pub(crate) fn saved_so_far(&self) -> u64 {
        self.chain.saved.load(Ordering::Relaxed)
    }

    /// Calls that the cache was asked for, by what it had.
    pub(crate) fn found_so_far(&self, found: CacheResult) -> u64 {
        self.chain.found[found as usize].load(Ordering::Relaxed)
    }

    /// Counts an empty answer to a search for logs that was doubtful.
    pub(crate) fn doubted(&self) {
        self.chain.doubted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that was served with a warning.
    pub(crate) fn unconfirmed(&self) {
        self.chain.unconfirmed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an upstream that gave one where another found logs: how many times before.
    pub(crate) fn missed_logs(&self, slot: Slot) -> u64 {
        self.of(slot).missed_logs.fetch_add(1, Ordering::Relaxed)
    }

    /// How often it did so far.
    pub(crate) fn missed_logs_so_far(&self, slot: Slot) -> u64 {
        self.of(slot).missed_logs.load(Ordering::Relaxed)
    }

    /// Calls by outcome since the start: answered, with an upstream's error, failed, refused.
    pub(crate) fn totals(&self) -> [u64; OUTCOMES] {
        let sum = |outcome: usize| {
            self.calls().iter().map(|row| row[outcome].load(Ordering::Relaxed)).sum::<u64>()
        };
        std::array::from_fn(sum)
    }
}
