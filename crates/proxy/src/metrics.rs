//! What was asked and how it went, as Prometheus families at a scrape.
//!
//! The counters themselves are in [`crate::state::counts`]. A series with a label beside chain and upstream, and a
//! histogram, appears with its first count: a thousand upstreams without traffic would
//! otherwise be 4 MB of zeros at each scrape. The head of each family is always there.

mod budget;
mod exemplars;
mod facts;
mod filters;
mod lines;
mod logs;
mod subscriptions;
mod verify;
mod view;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use wellhead_cache::Reason as NotKept;
use wellhead_dispatch::now;
use wellhead_eth::{CostClass, MethodTable};
use wellhead_store::State;
use wellhead_transport::Shortage;
use wellhead_upstream::VerdictClass;
use wellhead_watch::CallReason;

use crate::journey::Proxy;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome};
use crate::state::tiers::TierSeen;

pub use exemplars::with_exemplars;
pub use facts::FAMILIES;

/// Adds everything that the proxy counts to `registry`.
pub fn register(proxy: Arc<ArcSwap<Proxy>>, registry: &mut Registry) {
    registry.register_collector(Box::new(ExposedNow(proxy)));
}

/// The proxy at the moment of each look.
#[derive(Debug)]
struct ExposedNow(Arc<ArcSwap<Proxy>>);

impl Collector for ExposedNow {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Encoded {
        Exposed(self.0.load_full()).encode(encoder)
    }
}

#[derive(Debug)]
struct Exposed(Arc<Proxy>);

type Encoded = Result<(), fmt::Error>;

impl Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.requests(&mut encoder)?;
        self.lines(&mut encoder)?;
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
        self.asked(&mut encoder)?;
        self.subscriptions(&mut encoder)?;
        self.filters(&mut encoder)
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
            "Time from the head of a request to its answer, including batches",
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
            ("wellhead_answers_held_bytes", "Bytes of buffered answers", answers.held()),
            ("wellhead_answers_held_peak_bytes", "Peak bytes of buffered answers", answers.peak()),
            (
                "wellhead_answers_bytes_max",
                "Limit of bytes of buffered answers",
                answers.bytes_max(),
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, gauge)?;
            // As `f64`, which holds any size that there is.
            ConstGauge::new(bytes as f64).encode(family.encode_family(&none)?)?;
        }
        let help = "Answers without memory, by outcome";
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
        let is_used = self.chains().any(|(_, served)| served.shares.is_some());
        let chains = || self.chains().filter(|_| is_used);
        let counter = prometheus_client::metrics::MetricType::Counter;
        let help = "Cache look-ups by result: hit, miss, or joined";
        let mut family = encoder.encode_descriptor("wellhead_cache_calls", help, None, counter)?;
        for (chain, served) in chains() {
            for found in CacheResult::ALL {
                let count = ConstCounter::new(served.counts().found_so_far(found));
                let labels = [("chain", chain), ("found", found.word())];
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Credits that hits and joined calls would have cost, each at the least that an \
                    upstream of the chain charges for its method";
        let mut family =
            encoder.encode_descriptor("wellhead_cache_saved_credits", help, None, counter)?;
        for (chain, served) in chains() {
            let count = ConstCounter::new(served.counts().saved_so_far());
            count.encode(family.encode_family(&[("chain", chain)])?)?;
        }
        self.memory_tier(encoder)
    }

    /// The cache of the process, and the slow tiers behind it.
    fn memory_tier(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counter = prometheus_client::metrics::MetricType::Counter;
        let gauge = prometheus_client::metrics::MetricType::Gauge;
        let none: &[(&str, &str)] = &[];
        let cache = self.0.cache().map(|cache| (cache, cache.stats()));
        let help = "Calls and answers that were not cached, by reason";
        let mut family =
            encoder.encode_descriptor("wellhead_cache_not_kept", help, None, counter)?;
        if let Some((_, stats)) = &cache {
            for (reason, count) in NotKept::ALL.iter().zip(stats.refused) {
                if !reason.is_kept() {
                    let labels = [("reason", reason.word())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let stats = cache.as_ref().map(|(_, stats)| stats);
        for (name, help, count) in [
            ("wellhead_cache_stored", "Answers stored in memory", stats.map(|it| it.stored)),
            (
                "wellhead_cache_evicted",
                "Cached answers evicted by others",
                stats.map(|it| it.evicted),
            ),
            (
                "wellhead_cache_orphaned",
                "Cached answers removed because their block was orphaned",
                stats.map(|it| it.orphaned),
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, counter)?;
            if let Some(count) = count {
                ConstCounter::new(count).encode(family.encode_family(&none)?)?;
            }
        }
        let bytes_max = cache.as_ref().map(|(cache, _)| cache.bytes_max());
        for (name, help, now) in [
            ("wellhead_cache_entries", "Cached answers", stats.map(|it| it.entries)),
            (
                "wellhead_cache_bytes",
                "Bytes of cached answers, including overhead",
                stats.map(|it| it.bytes),
            ),
            ("wellhead_cache_bytes_max", "Limit of bytes of cached answers", bytes_max),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, gauge)?;
            if let Some(now) = now {
                ConstGauge::new(now).encode(family.encode_family(&none)?)?;
            }
        }
        let seen = cache.as_ref().map(|(cache, _)| cache.tiers().seen()).unwrap_or_default();
        tiers(&seen, encoder)
    }

    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let mut family = encoder.encode_descriptor(
            "wellhead_calls",
            "JSON-RPC calls, by method and outcome for the client",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for (row, counts) in MethodTable::standard().rows().iter().zip(served.counts().calls())
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
            "Time from the start of a call to its reply, by cost class of the method",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Histogram,
        )?;
        for (chain, served) in self.chains() {
            for (class, took) in CostClass::ALL.iter().zip(&served.counts().chain.took) {
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
                let counts = &served.counts().of(upstream.slot()).attempts;
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
            "Exchanges abandoned because another upstream answered",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                let left = served.counts().of(upstream.slot()).abandoned.load(Ordering::Relaxed);
                if left > 0 {
                    ConstCounter::new(left).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "wellhead_attempt_duration",
            "Time from sending a call to an upstream to the verdict on its reply",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Histogram,
        )?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                let took = &served.counts().of(upstream.slot()).attempt_took;
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
        let help = "1 for the condition of an upstream";
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
                for reason in CallReason::ALL {
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
        self.feeds(encoder)?;
        let help = "Credits spent on wellhead's own calls and on pushed messages";
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
            "Answers that disagreed with the quorum, by whether the block was final",
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

/// What the slow tiers of the cache did; no series where there are none.
fn tiers(seen: &[TierSeen], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let counter = prometheus_client::metrics::MetricType::Counter;
    let gauge = prometheus_client::metrics::MetricType::Gauge;
    let help = "Look-ups in the slow tiers of the cache, by result";
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
    let help = "Writes to the slow tiers of the cache, by result";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_puts", help, None, counter)?;
    for TierSeen { name, stats } in seen {
        for (result, count) in
            [("written", stats.written), ("refused", stats.refused), ("dropped", stats.dropped)]
        {
            let labels = [("tier", *name), ("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Damaged values in the slow tiers of the cache, which were removed";
    let mut family =
        encoder.encode_descriptor("wellhead_cache_tier_damaged", help, None, counter)?;
    for TierSeen { name, stats } in seen {
        ConstCounter::new(stats.damaged).encode(family.encode_family(&[("tier", *name)])?)?;
    }
    let help = "Whether a slow tier of the cache is in use";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_up", help, None, gauge)?;
    for TierSeen { name, stats } in seen {
        let is_up = u64::from(stats.state == State::Up);
        ConstGauge::new(is_up).encode(family.encode_family(&[("tier", *name)])?)?;
    }
    let help = "Bytes in a slow tier of the cache";
    let mut family = encoder.encode_descriptor("wellhead_cache_tier_bytes", help, None, gauge)?;
    for (name, bytes) in seen.iter().filter_map(|it| Some((it.name, it.stats.bytes?))) {
        ConstGauge::new(bytes).encode(family.encode_family(&[("tier", name)])?)?;
    }
    Ok(())
}
