//! What was asked and how it went, counted without a lock and without a look-up.
//!
//! Counters are arrays by row of the method table, by slot and by verdict, so
//! that a call pays additions only and a client cannot grow the label sets:
//! methods that the table does not list share the row `*`. They become
//! Prometheus families at a scrape. A series with a label beside chain and upstream, and a
//! histogram, appears with its first count: a thousand upstreams without traffic would
//! otherwise be 4 MB of zeros at each scrape. The head of each family is always there.

mod budget;
mod logs;
mod verify;
mod view;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use wellhead_cache::Reason as NotKept;
use wellhead_dispatch::{Abandoned, Attempt, Failure, now};
use wellhead_eth::{CostClass, MethodRow, MethodTable};
use wellhead_store::State;
use wellhead_telemetry::Histogram;
use wellhead_transport::Shortage;
use wellhead_upstream::{Slot, VerdictClass};
use wellhead_watch::Reason;

use crate::chain::ServedChain;
use crate::journey::Proxy;
use crate::kept::Found;
use crate::tiers::TierSeen;

/// How a call ended for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// With a result.
    Answered,
    /// With an error that an upstream wrote: a revert, bad params, missing data.
    UpstreamError,
    /// With an error of ours, because nobody could answer.
    Failed,
    /// With an error of ours, because it may or can not be served.
    Refused,
}

impl CallOutcome {
    /// That of a call for which nothing could be passed on.
    pub(crate) fn of(failure: Failure) -> Self {
        match failure {
            Failure::NotOffered | Failure::CallsSpent { .. } => Self::Refused,
            Failure::NobodyToAsk
            | Failure::Deadline
            | Failure::Exhausted { .. }
            | Failure::NoRoom
            | Failure::Held { .. }
            | Failure::Disputed { .. }
            | Failure::TooFew { .. } => Self::Failed,
        }
    }

    const ALL: [Self; 4] = [Self::Answered, Self::UpstreamError, Self::Failed, Self::Refused];

    fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::UpstreamError => "upstream_error",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

const OUTCOMES: usize = CallOutcome::ALL.len();
const VERDICTS: usize = VerdictClass::ALL.len();

/// The counters of one chain.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By row and outcome.
    calls: Box<[[AtomicU64; OUTCOMES]]>,
    /// By cost class.
    took: [Histogram; CostClass::ALL.len()],
    /// By slot and verdict.
    attempts: Box<[[AtomicU64; VERDICTS]]>,
    /// By slot.
    attempt_took: Box<[Histogram]>,
    /// By slot: those that nobody waited for any more.
    abandoned: Box<[AtomicU64]>,
    /// By what the cache had.
    found: [AtomicU64; Found::ALL.len()],
    /// Credits that the answers kept and shared would have cost.
    saved: AtomicU64,
    /// Empty answers that were doubtful.
    doubted: AtomicU64,
    /// Those that were served for want of a better one.
    unconfirmed: AtomicU64,
    /// By slot: those where another found logs.
    missed_logs: Box<[AtomicU64]>,
}

impl Counts {
    pub(crate) fn new(upstreams: usize) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            calls: (0..MethodTable::standard().rows().len()).map(|_| zeros()).collect(),
            took: Default::default(),
            attempts: (0..upstreams).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            attempt_took: (0..upstreams).map(|_| Histogram::default()).collect(),
            abandoned: (0..upstreams).map(|_| AtomicU64::new(0)).collect(),
            found: Default::default(),
            saved: AtomicU64::new(0),
            doubted: AtomicU64::new(0),
            unconfirmed: AtomicU64::new(0),
            missed_logs: (0..upstreams).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn observe(
        &self,
        row: &MethodRow,
        outcome: CallOutcome,
        took: Duration,
        attempts: &[Attempt],
    ) {
        self.calls[row.index.get()][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.took[row.class as usize].observe(took);
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
        self.calls[row.index.get()][outcome as usize].fetch_add(times, Ordering::Relaxed);
        self.took[row.class as usize].observe_many(took, times);
        let slot = attempt.slot.index();
        self.attempts[slot][attempt.class as usize].fetch_add(times, Ordering::Relaxed);
        self.attempt_took[slot].observe_many(attempt.took, times);
    }

    /// Counts an attempt of a call that is not yet answered.
    pub(crate) fn attempted(&self, attempt: &Attempt) {
        let slot = attempt.slot.index();
        self.attempts[slot][attempt.class as usize].fetch_add(1, Ordering::Relaxed);
        self.attempt_took[slot].observe(attempt.took);
    }

    /// Counts an attempt that was left for a quicker one.
    pub(crate) fn abandoned(&self, attempt: &Abandoned) {
        self.abandoned[attempt.slot.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that the cache was asked for.
    pub(crate) fn found(&self, found: Found) {
        self.found[found as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what a call would have cost that no upstream was asked for.
    pub(crate) fn saved(&self, credits: u64) {
        self.saved.fetch_add(credits, Ordering::Relaxed);
    }

    /// Credits that such calls would have cost.
    pub(crate) fn saved_so_far(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Calls that the cache was asked for, by what it had.
    pub(crate) fn found_so_far(&self, found: Found) -> u64 {
        self.found[found as usize].load(Ordering::Relaxed)
    }

    /// Counts an empty answer to a search for logs that was doubtful.
    pub(crate) fn doubted(&self) {
        self.doubted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that was served with a warning.
    pub(crate) fn unconfirmed(&self) {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an upstream that gave one where another found logs: so many times before.
    pub(crate) fn missed_logs(&self, slot: Slot) -> u64 {
        self.missed_logs[slot.index()].fetch_add(1, Ordering::Relaxed)
    }

    /// How often it did so far.
    pub(crate) fn missed_logs_so_far(&self, slot: Slot) -> u64 {
        self.missed_logs[slot.index()].load(Ordering::Relaxed)
    }

    /// Calls by outcome since the start: answered, with an upstream's error, failed, refused.
    pub(crate) fn totals(&self) -> [u64; OUTCOMES] {
        let sum = |outcome: usize| {
            self.calls.iter().map(|row| row[outcome].load(Ordering::Relaxed)).sum::<u64>()
        };
        std::array::from_fn(sum)
    }

    /// The upper bound of the bucket that holds the quantile, over all classes.
    pub(crate) fn attempt_quantile(&self, slot: usize, share: f64) -> Option<Duration> {
        self.attempt_took.get(slot)?.quantile(share)
    }
}

/// Requests, whatever chain they name. By status the listener counts them, which sees also those
/// that never get here.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    took: Histogram,
}

impl RequestCounts {
    pub(crate) fn observe(&self, took: Duration) {
        self.took.observe(took);
    }

    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        self.took.quantile(share)
    }

    pub(crate) fn total(&self) -> u64 {
        self.took.count()
    }
}

/// Adds everything that the proxy counts to `registry`.
pub fn register(proxy: Arc<Proxy>, registry: &mut Registry) {
    registry.register_collector(Box::new(Exposed(proxy)));
}

#[derive(Debug)]
struct Exposed(Arc<Proxy>);

type Encoded = Result<(), fmt::Error>;

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.requests(&mut encoder)?;
        self.answers(&mut encoder)?;
        self.cache(&mut encoder)?;
        self.calls(&mut encoder)?;
        self.attempts(&mut encoder)?;
        self.logs(&mut encoder)?;
        self.upstreams(&mut encoder)?;
        self.views(&mut encoder)?;
        self.unknown_errors(&mut encoder)?;
        self.dissents(&mut encoder)?;
        self.verified(&mut encoder)?;
        self.budgets(&mut encoder)?;
        self.asked(&mut encoder)
    }
}

impl Exposed {
    fn chains(&self) -> impl Iterator<Item = (&str, &ServedChain)> {
        self.0.chains().iter().map(|chain| (&*chain.name.name, &**chain))
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counts = self.0.requests();
        let family = encoder.encode_descriptor(
            "wellhead_http_request_duration",
            "From the head of a request to its answer, batches included",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Histogram,
        )?;
        counts.took.encode(family)
    }

    fn answers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let answers = self.0.answers();
        let gauge = prometheus_client::metrics::MetricType::Gauge;
        let none: &[(&str, &str)] = &[];
        for (name, help, bytes) in [
            ("wellhead_answers_held_bytes", "Bytes of answers held now", answers.held()),
            (
                "wellhead_answers_held_peak_bytes",
                "The most bytes of answers that were held at once",
                answers.peak(),
            ),
            (
                "wellhead_answers_bytes_max",
                "Bytes of answers that may be held at once",
                answers.bytes_max(),
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, gauge)?;
            // As `f64`, which holds any size that there is.
            ConstGauge::new(bytes as f64).encode(family.encode_family(&none)?)?;
        }
        let help = "Answers for which there was no room, by what became of them";
        let counter = prometheus_client::metrics::MetricType::Counter;
        let mut family =
            encoder.encode_descriptor("wellhead_answers_without_room", help, None, counter)?;
        for shortage in Shortage::ALL {
            let count = ConstCounter::new(answers.shortages(shortage));
            count.encode(family.encode_family(&[("became", shortage.word())])?)?;
        }
        Ok(())
    }

    fn cache(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        if self.chains().all(|(_, served)| served.shares.is_none()) {
            return Ok(());
        }
        let counter = prometheus_client::metrics::MetricType::Counter;
        let gauge = prometheus_client::metrics::MetricType::Gauge;
        let none: &[(&str, &str)] = &[];
        let help = "Calls that the cache was asked for: hit, miss, or joined to another's";
        let mut family = encoder.encode_descriptor("wellhead_cache_calls", help, None, counter)?;
        for (chain, served) in self.chains() {
            for found in Found::ALL {
                let count = ConstCounter::new(served.counts().found_so_far(found));
                let labels = [("chain", chain), ("found", found.word())];
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Credits that hits and joined calls would have cost, each at the least that an \
                    upstream of the chain charges for its method";
        let mut family =
            encoder.encode_descriptor("wellhead_cache_saved_credits", help, None, counter)?;
        for (chain, served) in self.chains() {
            let count = ConstCounter::new(served.counts().saved_so_far());
            count.encode(family.encode_family(&[("chain", chain)])?)?;
        }
        let Some(cache) = self.0.cache() else { return Ok(()) };
        let stats = cache.stats();
        let help = "Calls and answers that were not kept, by reason";
        let mut family =
            encoder.encode_descriptor("wellhead_cache_not_kept", help, None, counter)?;
        for (reason, count) in NotKept::ALL.iter().zip(stats.refused) {
            if !reason.is_kept() {
                let labels = [("reason", reason.word())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, count) in [
            ("wellhead_cache_stored", "Answers put into memory", stats.stored),
            ("wellhead_cache_evicted", "Kept answers pushed out by others", stats.evicted),
            (
                "wellhead_cache_orphaned",
                "Kept answers freed because their block was orphaned",
                stats.orphaned,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, counter)?;
            ConstCounter::new(count).encode(family.encode_family(&none)?)?;
        }
        for (name, help, now) in [
            ("wellhead_cache_entries", "Answers kept now", stats.entries),
            ("wellhead_cache_bytes", "Bytes that kept answers take, all counted", stats.bytes),
            ("wellhead_cache_bytes_max", "Bytes that kept answers may take", cache.bytes_max()),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, gauge)?;
            ConstGauge::new(now).encode(family.encode_family(&none)?)?;
        }
        tiers(&cache.tiers().seen(), encoder)
    }

    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let mut family = encoder.encode_descriptor(
            "wellhead_calls",
            "JSON-RPC calls, by method and by how they ended for the client",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for (row, counts) in
                MethodTable::standard().rows().iter().zip(served.counts().calls.iter())
            {
                for (outcome, count) in CallOutcome::ALL.iter().zip(counts) {
                    let count = count.load(Ordering::Relaxed);
                    if count == 0 {
                        continue;
                    }
                    let labels =
                        [("chain", chain), ("method", row.name), ("outcome", outcome.word())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "wellhead_call_duration",
            "From a call's turn to its reply, by cost class of the method",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Histogram,
        )?;
        for (chain, served) in self.chains() {
            for (class, took) in CostClass::ALL.iter().zip(&served.counts().took) {
                if took.count() > 0 {
                    let labels = [("chain", chain), ("class", class.word())];
                    took.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn attempts(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let mut family = encoder.encode_descriptor(
            "wellhead_attempts",
            "Exchanges with upstreams on behalf of clients, by verdict",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let id = upstream.identity().id.as_str();
                let counts = &served.counts().attempts[upstream.slot().index()];
                for (class, count) in VerdictClass::ALL.iter().zip(counts) {
                    let count = count.load(Ordering::Relaxed);
                    if count > 0 {
                        let labels =
                            [("chain", chain), ("upstream", id), ("verdict", class.word())];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "wellhead_attempts_abandoned",
            "Exchanges that nobody waited for any more, because another upstream answered",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for (upstream, left) in served.roster.upstreams().iter().zip(&served.counts().abandoned)
            {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                let left = left.load(Ordering::Relaxed);
                if left > 0 {
                    ConstCounter::new(left).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "wellhead_attempt_duration",
            "From sending to an upstream to its verdict",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Histogram,
        )?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                let took = &served.counts().attempt_took[upstream.slot().index()];
                if took.count() > 0 {
                    took.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let now = now();
        let gauge = prometheus_client::metrics::MetricType::Gauge;
        let rows: Vec<_> = self
            .chains()
            .flat_map(|(chain, served)| {
                let view = served.heads.view();
                served.roster.upstreams().iter().map(move |upstream| {
                    let slot = upstream.slot();
                    let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                    let head = view.head(slot).map(|head| head.number.0);
                    (labels, upstream, head, view.lag_blocks(slot))
                })
            })
            .collect();
        let help = "Newest block that an upstream is known to hold";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_head_block", help, None, gauge)?;
        for (labels, _, head, _) in &rows {
            if let Some(head) = head {
                ConstGauge::new(*head).encode(family.encode_family(labels)?)?;
            }
        }
        let help = "Blocks behind the agreed head";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_lag_blocks", help, None, gauge)?;
        for (labels, _, _, lag) in &rows {
            if let Some(lag) = lag {
                ConstGauge::new(*lag).encode(family.encode_family(labels)?)?;
            }
        }
        let help = "Calls in flight";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_in_flight", help, None, gauge)?;
        for (labels, upstream, _, _) in &rows {
            let count = i64::from(upstream.in_flight());
            ConstGauge::new(count).encode(family.encode_family(labels)?)?;
        }
        let help = "1 for the condition that an upstream is in";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_condition", help, None, gauge)?;
        for ([chain, id], upstream, _, _) in &rows {
            let labels = [*chain, *id, ("condition", upstream.condition(now).word())];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn asked(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counter = prometheus_client::metrics::MetricType::Counter;
        let help = "Calls that wellhead made on its own behalf, by reason";
        let mut family = encoder.encode_descriptor("wellhead_self_calls", help, None, counter)?;
        for (chain, served) in self.chains() {
            for (upstream, asked) in served.roster.upstreams().iter().zip(&served.asked) {
                for reason in Reason::ALL {
                    let labels = [
                        ("chain", chain),
                        ("upstream", upstream.identity().id.as_str()),
                        ("reason", reason.word()),
                    ];
                    let count = asked.get(reason);
                    if count > 0 {
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        let help = "New blocks and other messages that upstreams pushed over feeds";
        let mut family = encoder.encode_descriptor("wellhead_self_pushed", help, None, counter)?;
        for (chain, served) in self.chains() {
            for (upstream, asked) in served.roster.upstreams().iter().zip(&served.asked) {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                if asked.pushed() > 0 {
                    ConstCounter::new(asked.pushed()).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Credits that calls and pushed messages on wellhead's own behalf cost";
        let mut family = encoder.encode_descriptor("wellhead_self_credits", help, None, counter)?;
        for (chain, served) in self.chains() {
            for (upstream, asked) in served.roster.upstreams().iter().zip(&served.asked) {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                ConstCounter::new(asked.credits()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn dissents(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let mut family = encoder.encode_descriptor(
            "wellhead_quorum_dissents",
            "Words of upstreams that contradicted those who agreed, by whether the block was final",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains().filter(|(_, served)| served.quorums.are_there()) {
            for upstream in served.roster.upstreams() {
                let (about_final, about_open) = upstream.dissents();
                for (block, count) in [("final", about_final), ("open", about_open)] {
                    let id = upstream.identity().id.as_str();
                    let labels = [("chain", chain), ("upstream", id), ("block", block)];
                    if count > 0 {
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn unknown_errors(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let mut family = encoder.encode_descriptor(
            "wellhead_unknown_errors",
            "Errors of upstreams that no rule knows, by JSON-RPC code",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let (codes, others) = upstream.unknown_errors();
                let codes = codes.into_iter().map(|(code, count)| (code.to_string(), count));
                let others = (others > 0).then(|| ("other".to_owned(), others));
                for (code, count) in codes.chain(others) {
                    let id = upstream.identity().id.as_str();
                    let labels = [("chain", chain), ("upstream", id), ("code", code.as_str())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// What the slow tiers of the cache did; nothing where there are none.
fn tiers(seen: &[TierSeen], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    if seen.is_empty() {
        return Ok(());
    }
    let counter = prometheus_client::metrics::MetricType::Counter;
    let gauge = prometheus_client::metrics::MetricType::Gauge;
    let help = "Looks into the slow tiers of the cache, by how they ended";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_gets", help, None, counter)?;
    for TierSeen { name, stats } in seen {
        for (result, count) in [
            ("hit", stats.hits),
            ("miss", stats.misses),
            ("late", stats.late),
            ("busy", stats.busy),
            ("down", stats.down),
            ("error", stats.errors),
        ] {
            let labels = [("tier", *name), ("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Answers given to the slow tiers of the cache, by what became of them";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_puts", help, None, counter)?;
    for TierSeen { name, stats } in seen {
        for (result, count) in
            [("written", stats.written), ("refused", stats.refused), ("dropped", stats.dropped)]
        {
            let labels = [("tier", *name), ("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Values of the slow tiers of the cache that were damaged and are forgotten";
    let mut family =
        encoder.encode_descriptor("wellhead_cache_tier_damaged", help, None, counter)?;
    for TierSeen { name, stats } in seen {
        ConstCounter::new(stats.damaged).encode(family.encode_family(&[("tier", *name)])?)?;
    }
    let help = "Whether a slow tier of the cache is worth asking";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_up", help, None, gauge)?;
    for TierSeen { name, stats } in seen {
        let is_up = u64::from(stats.state == State::Up);
        ConstGauge::new(is_up).encode(family.encode_family(&[("tier", *name)])?)?;
    }
    let help = "Bytes that a slow tier of the cache holds";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_bytes", help, None, gauge)?;
    for (name, bytes) in seen.iter().filter_map(|it| Some((it.name, it.stats.bytes?))) {
        ConstGauge::new(bytes).encode(family.encode_family(&[("tier", name)])?)?;
    }
    Ok(())
}
