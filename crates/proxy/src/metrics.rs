//! What was asked and how it went, as Prometheus families at a scrape.
//!
//! The counters themselves are in [`crate::state::counts`]. A series with a label beside chain and upstream, and a
//! histogram, appears with its first count: a thousand upstreams without traffic would
//! otherwise be 4 MB of zeros at each scrape. The head of each family is always there.

mod budget;
mod exemplars;
mod facts;
mod subscriptions;
mod verify;
mod view;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use wellhead_cache::Reason as NotKept;
use wellhead_dispatch::now;
use wellhead_eth::{CostClass, MethodTable};
use wellhead_store::State;
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, by, counted, counter, durations, gauge};
use wellhead_transport::Shortage;
use wellhead_upstream::{Upstream, VerdictClass};
use wellhead_watch::{CallReason, CheckCounts};

use crate::journey::Proxy;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome, UpstreamCounts};
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
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> EncodeResult {
        Exposed(self.0.load_full()).encode(encoder)
    }
}

#[derive(Debug)]
struct Exposed(Arc<Proxy>);

/// The labels of a series of one upstream.
type UpstreamLabels<'a> = [(&'static str, &'a str); 2];

impl Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
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

    /// Each upstream with its labels, its chain, and what was asked of it on wellhead's own behalf.
    fn each_upstream(&self) -> impl Iterator<Item = UpstreamSeen<'_>> {
        self.chains().flat_map(|(chain, served)| {
            let upstreams = served.roster.upstreams().iter().zip(&served.asked);
            upstreams.map(move |(upstream, asked)| UpstreamSeen {
                labels: [("chain", chain), ("upstream", upstream.identity().id.as_str())],
                served,
                upstream,
                asked,
            })
        })
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let family = encoder.encode_descriptor(
            "wellhead_http_request_duration",
            "Time from the head of a request to its answer, including batches",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        self.0.requests.encode(family)
    }

    /// Lines of requests in the log: written, and left out of a sample.
    fn lines(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let lines = self.0.lines.counts().into_iter().flat_map(|(outcome, counts)| {
            [("written", counts.written), ("left_out", counts.left_out)]
                .map(|(result, count)| ([("outcome", outcome), ("result", result)], count))
        });
        counter(
            encoder,
            "wellhead_log_lines",
            "Lines of requests in the log, by the outcome of the request: written, or left \
             out because there were more than `log.requests_per_second` or \
             `log.failures_per_second`",
            lines,
        )
    }

    fn answers(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let answers = &self.0.answers;
        for (name, help, bytes) in [
            ("wellhead_answers_held_bytes", "Bytes of buffered answers", answers.held()),
            ("wellhead_answers_held_peak_bytes", "Peak bytes of buffered answers", answers.peak()),
            (
                "wellhead_answers_bytes_max",
                "Limit of bytes of buffered answers",
                answers.bytes_max(),
            ),
        ] {
            // As `f64`, which holds any size that there is.
            gauge(encoder, name, help, [(NO_LABELS, bytes as f64)])?;
        }
        counter(
            encoder,
            "wellhead_answers_without_room",
            "Answers without memory, by outcome",
            by("became", Shortage::ALL.map(|it| (it.word(), answers.shortages(it)))),
        )
    }

    fn cache(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let is_used = self.chains().any(|(_, served)| served.shares.is_some());
        let chains = || self.chains().filter(|_| is_used);
        let found = chains().flat_map(|(chain, served)| {
            CacheResult::ALL.map(|found| {
                let labels = [("chain", chain), ("found", found.word())];
                (labels, served.counts().found_so_far(found))
            })
        });
        let help = "Cache look-ups by result: hit, miss, or joined";
        counter(encoder, "wellhead_cache_calls", help, found)?;
        let saved = chains().map(|(chain, served)| (chain, served.counts().saved_so_far()));
        counter(
            encoder,
            "wellhead_cache_saved_credits",
            "Credits that hits and joined calls would have cost, each at the least that an \
             upstream of the chain charges for its method",
            by("chain", saved),
        )?;
        self.memory_tier(encoder)
    }

    /// The cache of the process, and the slow tiers behind it.
    fn memory_tier(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let cache = self.0.cache().map(|cache| (cache, cache.memory.stats()));
        let stats = cache.as_ref().map(|(_, stats)| stats);
        let refused = stats.into_iter().flat_map(|stats| NotKept::ALL.iter().zip(stats.refused));
        let not_kept = refused.filter(|(reason, _)| !reason.is_kept());
        counter(
            encoder,
            "wellhead_cache_not_kept",
            "Calls and answers that were not cached, by reason",
            by("reason", not_kept.map(|(reason, count)| (reason.word(), count))),
        )?;
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
            counter(encoder, name, help, count.map(|count| (NO_LABELS, count)))?;
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
            gauge(encoder, name, help, now.map(|now| (NO_LABELS, now)))?;
        }
        let seen = cache.as_ref().map(|(cache, _)| cache.tiers().seen()).unwrap_or_default();
        tiers(&seen, encoder)
    }

    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let calls = self.chains().flat_map(|(chain, served)| {
            let rows = MethodTable::standard().rows().iter().zip(served.counts().calls());
            rows.flat_map(move |(row, counts)| {
                CallOutcome::ALL.iter().zip(counts).map(move |(outcome, count)| {
                    let outcome = ("outcome", outcome.word());
                    let labels = [("chain", chain), ("method", row.name), outcome];
                    (labels, count.load(Ordering::Relaxed))
                })
            })
        });
        let help = "JSON-RPC calls, by method and outcome for the client";
        counter(encoder, "wellhead_calls", help, counted(calls))?;
        let took = self.chains().flat_map(|(chain, served)| {
            CostClass::ALL
                .iter()
                .zip(&served.counts().chain.took)
                .map(move |(class, took)| ([("chain", chain), ("class", class.word())], took))
        });
        durations(
            encoder,
            "wellhead_call_duration",
            "Time from the start of a call to its reply, by cost class of the method",
            took.filter(|(_, took)| took.count() > 0),
        )
    }

    fn attempts(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let all = || self.each_upstream().map(|it| (it.labels, it.counts()));
        let verdicts = all().flat_map(|([chain, id], counts)| {
            VerdictClass::ALL.iter().zip(&counts.attempts).map(move |(class, count)| {
                ([chain, id, ("verdict", class.word())], count.load(Ordering::Relaxed))
            })
        });
        let help = "Exchanges with upstreams on behalf of clients, by verdict";
        counter(encoder, "wellhead_attempts", help, counted(verdicts))?;
        let abandoned =
            all().map(|(labels, counts)| (labels, counts.abandoned.load(Ordering::Relaxed)));
        let help = "Exchanges abandoned because another upstream answered";
        counter(encoder, "wellhead_attempts_abandoned", help, counted(abandoned))?;
        let took = all().map(|(labels, counts)| (labels, &counts.attempt_took));
        durations(
            encoder,
            "wellhead_attempt_duration",
            "Time from sending a call to an upstream to the verdict on its reply",
            took.filter(|(_, took)| took.count() > 0),
        )
    }

    /// Searches for logs whose empty answer was doubtful.
    fn logs(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let chains = || self.chains().map(|(chain, served)| (chain, &served.counts().chain));
        let doubted = chains().map(|(chain, it)| (chain, it.doubted.load(Ordering::Relaxed)));
        counter(
            encoder,
            "wellhead_logs_doubted",
            "Doubtful empty answers to log searches, for which another upstream was called",
            by("chain", doubted),
        )?;
        let unconfirmed =
            chains().map(|(chain, it)| (chain, it.unconfirmed.load(Ordering::Relaxed)));
        counter(
            encoder,
            "wellhead_logs_unconfirmed",
            "Empty answers to searches for logs that were served though a header speaks \
             against them, with a warning",
            by("chain", unconfirmed),
        )?;
        let missed = self
            .each_upstream()
            .map(|it| (it.labels, it.served.counts().missed_logs_so_far(it.upstream.slot())));
        counter(
            encoder,
            "wellhead_upstream_missed_logs",
            "Empty answers to log searches for which another upstream found logs",
            counted(missed),
        )
    }

    fn upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let now = now();
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
        let heads = rows.iter().filter_map(|(labels, _, head, _)| Some((*labels, (*head)?)));
        let help = "Newest block that an upstream is known to hold";
        gauge(encoder, "wellhead_upstream_head_block", help, heads)?;
        let lags = rows.iter().filter_map(|(labels, _, _, lag)| Some((*labels, (*lag)?)));
        gauge(encoder, "wellhead_upstream_lag_blocks", "Blocks behind the agreed head", lags)?;
        let in_flight =
            rows.iter().map(|(labels, upstream, ..)| (*labels, i64::from(upstream.in_flight())));
        gauge(encoder, "wellhead_upstream_in_flight", "Calls in flight", in_flight)?;
        let conditions = rows.iter().map(|([chain, id], upstream, ..)| {
            ([*chain, *id, ("condition", upstream.condition(now).word())], 1_i64)
        });
        let help = "1 for the condition of an upstream";
        gauge(encoder, "wellhead_upstream_condition", help, conditions)
    }

    fn asked(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let calls =
            self.each_upstream().flat_map(|UpstreamSeen { labels: [chain, id], asked, .. }| {
                CallReason::ALL
                    .map(|reason| ([chain, id, ("reason", reason.word())], asked.get(reason)))
            });
        let help = "Calls that wellhead made on its own behalf, by reason";
        counter(encoder, "wellhead_self_calls", help, counted(calls))?;
        self.feeds(encoder)?;
        counter(
            encoder,
            "wellhead_self_credits",
            "Credits spent on wellhead's own calls and on pushed messages",
            self.each_upstream().map(|it| (it.labels, it.asked.credits())),
        )
    }

    fn dissents(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let with_quorum = self.each_upstream().filter(|it| it.served.quorums.are_there());
        let dissents =
            with_quorum.flat_map(|UpstreamSeen { labels: [chain, id], upstream, .. }| {
                let (about_final, about_open) = upstream.dissents();
                [("final", about_final), ("open", about_open)]
                    .map(|(block, count)| ([chain, id, ("block", block)], count))
            });
        counter(
            encoder,
            "wellhead_quorum_dissents",
            "Answers that disagreed with the quorum, by whether the block was final",
            counted(dissents),
        )
    }

    fn unknown_errors(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let errors = self.each_upstream().flat_map(|UpstreamSeen { labels, upstream, .. }| {
            let (codes, others) = upstream.unknown_errors();
            let codes = codes.into_iter().map(|(code, count)| (code.to_string(), count));
            let others = (others > 0).then(|| ("other".to_owned(), others));
            let [chain, upstream] = labels.map(|(label, value)| (label, Cow::Borrowed(value)));
            codes.chain(others).map(move |(code, count)| {
                ([chain.clone(), upstream.clone(), ("code", Cow::Owned(code))], count)
            })
        });
        counter(
            encoder,
            "wellhead_unknown_errors",
            "Errors of upstreams that no rule knows, by JSON-RPC code",
            errors,
        )
    }
}

/// One upstream, and what is counted of it.
struct UpstreamSeen<'a> {
    labels: UpstreamLabels<'a>,
    served: &'a ServedChain,
    upstream: &'a Upstream,
    asked: &'a CheckCounts,
}

impl<'a> UpstreamSeen<'a> {
    fn counts(&self) -> &'a UpstreamCounts {
        self.served.counts().of(self.upstream.slot())
    }
}

/// What the slow tiers of the cache did; no series where there are none.
fn tiers(seen: &[TierSeen], encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let gets = seen.iter().flat_map(|TierSeen { name, stats }| {
        [
            ("hit", stats.hits),
            ("miss", stats.misses),
            ("late", stats.late),
            ("busy", stats.busy),
            ("down", stats.down),
            ("error", stats.errors),
        ]
        .map(|(result, count)| ([("tier", *name), ("result", result)], count))
    });
    let help = "Look-ups in the slow tiers of the cache, by result";
    counter(encoder, "wellhead_cache_tier_gets", help, gets)?;
    let puts = seen.iter().flat_map(|TierSeen { name, stats }| {
        [("written", stats.written), ("refused", stats.refused), ("dropped", stats.dropped)]
            .map(|(result, count)| ([("tier", *name), ("result", result)], count))
    });
    let help = "Writes to the slow tiers of the cache, by result";
    counter(encoder, "wellhead_cache_tier_puts", help, puts)?;
    let damaged = by("tier", seen.iter().map(|it| (it.name, it.stats.damaged)));
    let help = "Damaged values in the slow tiers of the cache, which were removed";
    counter(encoder, "wellhead_cache_tier_damaged", help, damaged)?;
    let up = seen.iter().map(|it| (it.name, u64::from(it.stats.state == State::Up)));
    let help = "Whether a slow tier of the cache is in use";
    gauge(encoder, "wellhead_cache_tier_up", help, by("tier", up))?;
    let bytes = seen.iter().filter_map(|it| Some((it.name, it.stats.bytes?)));
    let help = "Bytes in a slow tier of the cache";
    gauge(encoder, "wellhead_cache_tier_bytes", help, by("tier", bytes))
}
