//! Metrics of the sockets on both sides; calls are counted by `proxy`.
//!
//! What is told of an upstream's connections appears with the first one of its protocol, and
//! a counter with its first count. The head of each family is always there, whatever is used, so that
//! [`page`] knows them all.

mod callers;
mod facts;
mod page;
mod process;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use wellhead_net::{CloseReason, ConnectionStats, Lesson, Protocol};
use wellhead_proxy::{Proxy, TraceCounts, TraceLoss, Tracer};
use wellhead_server::{
    ClientProtocol, HandshakeFailure, HttpRefusal, ProxyFailure, STATUSES, Server, ServerCounts,
    TlsFile, WsEnd,
};
use wellhead_store::{BroadcastStatus, LeaseStatus};

use crate::access::{JwksCounts, JwksSource};
use crate::assemble::{Assembly, UpstreamConnections};
use crate::heartbeat::Heartbeats;
use crate::reload::ReloadRecord;
use crate::renew::ListenerTls;
use crate::shared::SharedLimits;
use crate::state::State;
use crate::study::StudyRecord;
use crate::usage::Usage;

use callers::CallerSeries;
use process::ProcessUse;

#[cfg(test)]
pub(crate) use page::idle_sources;
pub use page::page;

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct MetricSources {
    pub(crate) proxy: Arc<ArcSwap<Proxy>>,
    pub(crate) connections: Arc<ArcSwap<Vec<UpstreamConnections>>>,
    pub(crate) server: Arc<Server>,
    pub(crate) tls: Vec<ListenerTls>,
    pub(crate) state: Option<Arc<State>>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) beats: Arc<Heartbeats>,
    pub(crate) record: ReloadRecord,
    pub(crate) studies: StudyRecord,
}

/// All that `/metrics` tells.
pub(crate) fn registry(parts: &Assembly, sources: MetricSources) -> Registry {
    let MetricSources { proxy, connections, server, tls, state, usage, beats, record, studies } =
        sources;
    let mut registry = Registry::default();
    wellhead_proxy::register(proxy, &mut registry);
    registry.register_collector(Box::new(Listeners(server)));
    registry.register_collector(Box::new(TlsEnds(tls)));
    registry.register_collector(Box::new(StateFile(state)));
    let (callers, denied) = (parts.callers.clone(), Arc::clone(&parts.denied));
    registry.register_collector(Box::new(CallerSeries { callers, denied }));
    registry.register_collector(Box::new(IssuersOfTokens(parts.issuers.clone())));
    registry.register_collector(Box::new(Pools(connections)));
    registry.register_collector(Box::new(UsageOutlets(usage)));
    registry.register_collector(Box::new(TraceSeries(parts.recorders.tracer.clone())));
    registry.register_collector(Box::new(SharedStoreUse(parts.shared().cloned())));
    registry.register_collector(Box::new(Workers(beats)));
    registry.register_collector(Box::new(ProcessUse));
    registry.register_collector(Box::new(record));
    registry.register_collector(Box::new(studies));
    registry
}

#[derive(Debug)]
struct Workers(Arc<Heartbeats>);

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let help = "1 for a worker thread that has not run for 10 s, otherwise 0";
        let name = "wellhead_worker_stuck";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let stuck = self.0.stuck(wellhead_dispatch::now());
        for worker in 0..self.0.workers() {
            let is_stuck = ConstGauge::new(u64::from(stuck.contains(&worker)));
            is_stuck.encode(family.encode_family(&[("worker", worker.to_string())])?)?;
        }
        Ok(())
    }
}

/// There are few: each is a row of the settings.
#[derive(Debug)]
struct IssuersOfTokens(Vec<Arc<JwksSource>>);

impl Collector for IssuersOfTokens {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let help = "Time since the keys of an issuer of tokens came; absent before the first time";
        let name = "wellhead_jwks_age_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for issuer in &self.0 {
            let Some(age) = issuer.age() else { continue };
            let labels = [("issuer", issuer.name())];
            ConstGauge::new(age.as_secs()).encode(family.encode_family(&labels)?)?;
        }
        let help = "Fetches of the keys of an issuer of tokens: `fetched`, `failed` without a \
                    document, or `invalid`: a document without keys";
        let name = "wellhead_jwks_fetches";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for issuer in &self.0 {
            let JwksCounts { fetched, failed, invalid } = issuer.counts();
            for (result, count) in [("fetched", fetched), ("failed", failed), ("invalid", invalid)]
            {
                let labels = [("issuer", issuer.name()), ("result", result)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// How limits are shared; no series before the sharing began.
#[derive(Debug)]
struct SharedStoreUse(Option<Arc<SharedLimits>>);

impl Collector for SharedStoreUse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let status = self.0.as_ref().and_then(|shared| shared.status());
        let status = status.as_ref();
        let value = |of: fn(&LeaseStatus) -> u64| status.map(|it| (NO_LABELS, of(it)));
        let gauges = [
            (
                "wellhead_shared_limits_away",
                "1 while the store of shared limits is away, otherwise 0",
                value(|it| u64::from(it.away_since.is_some())),
            ),
            (
                "wellhead_shared_limits_replicas",
                "Wellheads that share limits, this one included, as counted last",
                value(|it| it.replicas.into()),
            ),
            (
                "wellhead_shared_limits_served",
                "Limits that are shared",
                value(|it| it.limits as u64),
            ),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value.as_slice())?;
        }
        let counters = [
            (
                "wellhead_shared_limits_departures",
                "Times that the store of shared limits went away",
                value(|it| it.departures),
            ),
            (
                "wellhead_shared_limits_alone",
                "Calls that a shared limit let through without its store, which was away or silent, once for each limit",
                value(|it| it.alone),
            ),
        ];
        for (name, help, value) in counters {
            counter(&mut encoder, name, help, value.as_slice())?;
        }
        shared_asks(status, &mut encoder)?;
        let pauses = self.0.as_ref().and_then(|shared| shared.pause_status());
        messages(
            &mut encoder,
            "wellhead_shared_pauses",
            "Messages about pauses that upstreams asked for, by what became of them",
            pauses,
        )?;
        replicas(self.0.as_deref(), &mut encoder)
    }
}

fn replicas(shared: Option<&SharedLimits>, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let replicas = shared.and_then(|shared| shared.replica_status(wellhead_dispatch::now()));
    let count = replicas.map(|it| (NO_LABELS, it.replicas as u64));
    gauge(
        encoder,
        "wellhead_replicas",
        "Wellheads that hear each other and share probes of upstreams, this one included",
        count.as_slice(),
    )?;
    messages(
        encoder,
        "wellhead_replica_messages",
        "Messages between replicas about chains and upstreams, by what became of them",
        replicas.map(|it| it.words),
    )
}

fn messages(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    status: Option<BroadcastStatus>,
) -> EncodeResult {
    let results = status.map(|it| {
        [
            ([("result", "published")], it.published),
            ([("result", "received")], it.received),
            ([("result", "dropped")], it.dropped),
            ([("result", "malformed")], it.malformed),
        ]
    });
    let rows: Vec<_> =
        results.iter().flatten().map(|(labels, count)| (&labels[..], *count)).collect();
    counter(encoder, name, help, &rows)
}

fn shared_asks(status: Option<&LeaseStatus>, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let asks = status.map(|it| {
        let granted = it.asks.saturating_sub(it.refused);
        [([("result", "granted")], granted), ([("result", "refused")], it.refused)]
    });
    let rows: Vec<_> = asks.iter().flatten().map(|(labels, count)| (&labels[..], *count)).collect();
    counter(
        encoder,
        "wellhead_shared_limits_asks",
        "Asks for tokens of shared limits, by whether the store had any",
        &rows,
    )?;
    let rounds = status.map(|it| {
        let answered = it.rounds.saturating_sub(it.failures);
        [([("result", "answered")], answered), ([("result", "failed")], it.failures)]
    });
    let rows: Vec<_> =
        rounds.iter().flatten().map(|(labels, count)| (&labels[..], *count)).collect();
    counter(
        encoder,
        "wellhead_shared_limits_rounds",
        "Pipelines of asks to the store of shared limits, by whether the answer was right and in time",
        &rows,
    )
}

#[derive(Debug)]
struct UsageOutlets(Arc<Usage>);

impl Collector for UsageOutlets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let (table, counts) = (self.0.table(), self.0.counts().all());
        gauge(
            &mut encoder,
            "wellhead_usage_rows_open",
            "Rows of usage of the minutes that are not over",
            &[(NO_LABELS, table.rows() as u64)],
        )?;
        counter(
            &mut encoder,
            "wellhead_usage_folded_calls",
            "Calls that count in a row `other`, as there was no room for one of theirs",
            &[(NO_LABELS, table.folded())],
        )?;
        let labels: Vec<_> = counts
            .iter()
            .map(|(outlet, what, _)| [("outlet", *outlet), ("result", *what)])
            .collect();
        let counts: Vec<(&[(&str, &str)], u64)> = labels
            .iter()
            .zip(counts)
            .filter(|(_, (.., count))| *count > 0)
            .map(|(labels, (.., count))| (labels.as_slice(), count))
            .collect();
        let help = "Rows and quota events handed out, dropped at a bound, and failed attempts";
        counter(&mut encoder, "wellhead_usage_outlets", help, &counts)
    }
}

/// Without `traces` there is no series.
#[derive(Debug)]
struct TraceSeries(Option<Arc<Tracer>>);

impl Collector for TraceSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let counts = self.0.as_ref().map(|tracer| tracer.counts());
        let sent: Vec<_> = counts.iter().map(|counts| (NO_LABELS, counts.sent())).collect();
        let help = "Traces that the collector took";
        counter(&mut encoder, "wellhead_traces_sent", help, &sent)?;
        let reasons = TraceLoss::ALL.map(|loss| (loss, [("reason", loss.word())]));
        let lost = |counts: &Arc<TraceCounts>| {
            reasons.iter().map(|(loss, labels)| (&labels[..], counts.dropped(*loss))).collect()
        };
        let lost: Vec<_> = counts.map(lost).unwrap_or_default();
        let help = "Traces that were to be kept and are lost: more than `traces.always.per_second`, \
                    a full queue, a collector that could not be reached for a minute or refused them";
        counter(&mut encoder, "wellhead_traces_dropped", help, &lost)
    }
}

#[derive(Debug)]
struct Listeners(Arc<Server>);

#[derive(Debug)]
struct StateFile(Option<Arc<State>>);

impl Collector for StateFile {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let writes = self.0.as_ref().map(|state| {
            let (written, failed) = state.writes();
            [([("result", "written")], written), ([("result", "failed")], failed)]
        });
        let rows: Vec<_> =
            writes.iter().flatten().map(|(labels, count)| (&labels[..], *count)).collect();
        let help = "Writes of the state file, by result";
        counter(&mut encoder, "wellhead_state_writes", help, &rows)
    }
}

#[derive(Debug)]
struct TlsEnds(Vec<ListenerTls>);

impl Collector for TlsEnds {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let mut rows = Vec::new();
        for ListenerTls { listener, tls } in &self.0 {
            let ends = tls.ends();
            let mut first = |is_of: fn(TlsFile) -> bool, word| {
                let ends = ends.iter().filter(|it| is_of(it.file)).map(|it| it.end.as_secs());
                rows.extend(ends.min().map(|end| ([("listener", *listener), ("file", word)], end)));
            };
            first(|file| file == TlsFile::Certificate, "certificate");
            first(|file| matches!(file, TlsFile::RevocationList(_)), "crl");
        }
        let rows: Vec<_> = rows.iter().map(|(labels, end)| (&labels[..], *end)).collect();
        gauge(
            &mut encoder,
            "wellhead_tls_expires_timestamp_seconds",
            "When a TLS file of a listener expires, as seconds since 1970: of the certificate chain \
             the first end, of the revocation lists the first overdue update",
            &rows,
        )
    }
}

#[derive(Debug)]
struct Pools(Arc<ArcSwap<Vec<UpstreamConnections>>>);

type EncodeResult = Result<(), fmt::Error>;

const NO_LABELS: &[(&str, &str)] = &[];

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(&[(&str, &str)], u64)],
) -> EncodeResult {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in rows {
        ConstCounter::new(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(&[(&str, &str)], u64)],
) -> EncodeResult {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

impl Collector for Listeners {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let counts = self.0.counts();
        connections(&mut encoder, &counts)?;
        requests(&mut encoder, &counts)?;
        handshakes(&mut encoder, &counts)?;
        answers(&mut encoder, &counts)
    }
}

/// Connections of clients.
fn connections(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    let protocol = |protocol: ClientProtocol| [("protocol", protocol.word())];
    let [http1, http2, websocket] =
        [ClientProtocol::Http1, ClientProtocol::Http2, ClientProtocol::WebSocket].map(protocol);
    gauge(
        encoder,
        "wellhead_client_connections",
        "Open client connections",
        &[
            (&http1, counts.http1_open as u64),
            (&http2, counts.http2_open as u64),
            (&websocket, counts.websocket_open as u64),
        ],
    )?;
    counter(
        encoder,
        "wellhead_client_connections_opened",
        "Client connections accepted",
        &[
            (&http1, counts.http1_total),
            (&http2, counts.http2_total),
            (&websocket, counts.websocket_total),
        ],
    )?;
    let help = "WebSocket connections that ended: closed by the `client`, `lost` without a close, \
                or closed by wellhead with this code";
    let name = "wellhead_websocket_closed";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (end, count) in WsEnd::ALL.iter().zip(counts.websocket_ended) {
        ConstCounter::new(count).encode(family.encode_family(&[("by", end.word())])?)?;
    }
    let reason = |word| [("reason", word)];
    counter(
        encoder,
        "wellhead_client_connections_dropped",
        "Client connections and streams closed by wellhead, by reason",
        &[
            (&reason("idle"), counts.idle_closed_total),
            (&reason("slow_head"), counts.slow_head_total),
            (&reason("slow_reader"), counts.slow_reader_total),
            (&reason("hoarder"), counts.hoarders_total),
            (&reason("flood"), counts.floods_total),
            (&reason("displaced"), counts.displaced_total),
            (&reason("bad_http"), counts.bad_http_total),
            (&reason("drain"), counts.drain_dropped_total),
        ],
    )
}

/// Requests by how they ended, and those that were refused.
fn requests(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    let help = "Requests that ended, by HTTP status; 499: the client left before its answer; \
                without those of HTTP/2 whose headers are too large (431)";
    let name = "wellhead_http_requests";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let statuses = STATUSES.iter().map(u16::to_string).chain(["other".to_owned()]);
    for (status, count) in statuses.zip(counts.statuses) {
        ConstCounter::new(count).encode(family.encode_family(&[("status", status)])?)?;
    }
    let help = "Requests refused before they were read as JSON-RPC, by reason";
    let mut family =
        encoder.encode_descriptor("wellhead_http_refused", help, None, MetricType::Counter)?;
    for refusal in HttpRefusal::all() {
        let labels = [("reason", refusal.word())];
        let count = ConstCounter::new(counts.refused(refusal));
        count.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// TLS handshakes, and connections that could not be accepted.
fn handshakes(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    let help = "TLS handshakes of clients that failed, by reason";
    let name = "wellhead_tls_handshakes_failed";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for failure in HandshakeFailure::ALL {
        let count = ConstCounter::new(counts.tls_failed(failure));
        count.encode(family.encode_family(&[("reason", failure.word())])?)?;
    }
    let help = "Connections closed before a trusted proxy had named their client, by reason";
    let name = "wellhead_proxy_headers_failed";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for failure in ProxyFailure::ALL {
        let count = ConstCounter::new(counts.proxy_failed(failure));
        count.encode(family.encode_family(&[("reason", failure.word())])?)?;
    }
    counter(
        encoder,
        "wellhead_tls_handshakes",
        "Successful TLS handshakes of clients",
        &[(NO_LABELS, counts.tls_total)],
    )?;
    counter(
        encoder,
        "wellhead_accept_failures",
        "Failures to accept a connection",
        &[(NO_LABELS, counts.accept_failures_total)],
    )
}

/// Requests under way and answers that wait.
fn answers(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    counter(
        encoder,
        "wellhead_answers_compressed",
        "Compressed answers",
        &[(NO_LABELS, counts.compressed_total)],
    )?;
    gauge(
        encoder,
        "wellhead_http_requests_open",
        "Requests in progress",
        &[(NO_LABELS, counts.requests_open as u64)],
    )?;
    gauge(
        encoder,
        "wellhead_answers_waiting",
        "Answers waiting for clients that do not read them",
        &[(NO_LABELS, counts.answers_waiting as u64)],
    )?;
    gauge(
        encoder,
        "wellhead_answers_waiting_bytes",
        "Bytes of answers waiting for clients that do not read them",
        &[(NO_LABELS, counts.answers_waiting_bytes as u64)],
    )
}

impl Collector for Pools {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        self.tell(
            &mut encoder,
            ("wellhead_upstream_connections", "Open connections to upstreams"),
            MetricType::Gauge,
            |stats| {
                let used = Protocol::ALL.into_iter().filter(|it| stats.opened(*it) > 0);
                used.map(|it| ("protocol", it.word(), stats.open(it))).collect()
            },
        )?;
        self.tell(
            &mut encoder,
            ("wellhead_upstream_connections_opened", "Connections to upstreams so far"),
            MetricType::Counter,
            |stats| Protocol::ALL.map(|it| ("protocol", it.word(), stats.opened(it))).to_vec(),
        )?;
        let closed = |stats: &ConnectionStats, reason| {
            Protocol::ALL.into_iter().map(|it| stats.closed(it, reason)).sum::<u64>()
        };
        self.tell(
            &mut encoder,
            ("wellhead_upstream_connections_closed", "Closed connections to upstreams, by reason"),
            MetricType::Counter,
            |stats| {
                let told = |reason: &CloseReason| ("reason", reason.word(), closed(stats, *reason));
                CloseReason::ALL.iter().map(told).collect()
            },
        )?;
        let on_sockets = ("protocol", Protocol::Ws.word());
        self.tell(
            &mut encoder,
            ("wellhead_upstream_socket_calls", "Calls under way on WebSocket connections"),
            MetricType::Gauge,
            |stats| {
                let is_used = stats.opened(Protocol::Ws) > 0;
                is_used
                    .then(|| (on_sockets.0, on_sockets.1, stats.on_sockets()))
                    .into_iter()
                    .collect()
            },
        )?;
        self.tell(
            &mut encoder,
            (
                "wellhead_upstream_socket_unclaimed",
                "WebSocket messages that answered no pending call",
            ),
            MetricType::Counter,
            |stats| vec![(on_sockets.0, on_sockets.1, stats.unclaimed())],
        )?;
        self.learnt(&mut encoder)
    }
}

impl Pools {
    /// What one HTTP/2 connection bears: told, and found out.
    fn learnt(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        self.tell(
            encoder,
            (
                "wellhead_upstream_streams_max",
                "Concurrent streams that an HTTP/2 connection allows, by source of the limit",
            ),
            MetricType::Gauge,
            |stats| {
                let learnt = stats.learnt_caps();
                let by = learnt.streams_lesson.map_or("learnt", Lesson::word);
                let announced = stats.announced_streams().map(|streams| ("announced", streams));
                let found = learnt.streams.map(|streams| (by, streams as u64));
                let fatal = learnt.streams_fatal.map(|streams| ("fatal", streams as u64));
                let rows = [announced, found, fatal].into_iter().flatten();
                rows.map(|(by, streams)| ("by", by, streams)).collect()
            },
        )?;
        self.tell(
            encoder,
            (
                "wellhead_upstream_connection_bounds",
                "Learnt number of requests and idle milliseconds after which HTTP/2 connections are replaced",
            ),
            MetricType::Gauge,
            |stats| {
                let learnt = stats.learnt_caps();
                let requests = learnt.requests.map(|requests| ("requests", requests));
                let idle = learnt.idle.map(|idle| ("idle_ms", idle.as_millis() as u64));
                let rows = [requests, idle].into_iter().flatten();
                rows.map(|(of, bound)| ("of", of, bound)).collect()
            },
        )?;
        let help = "Abandoned HTTP/2 streams that were left to finish, to send fewer resets";
        let name = "wellhead_upstream_streams_left_open";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for row in self.0.load().iter() {
            let (labels, count) =
                ([("chain", &*row.chain), ("upstream", &*row.upstream)], row.stats.left_open());
            if count > 0 {
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// One family: for each upstream what `of` makes of its counters, each a label, its
    /// value and a number. A counter that is zero is left out.
    fn tell(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        kind: MetricType,
        of: impl Fn(&ConnectionStats) -> Vec<(&'static str, &'static str, u64)>,
    ) -> EncodeResult {
        let is_gauge = matches!(kind, MetricType::Gauge);
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for row in self.0.load().iter() {
            for (label, word, number) in of(&row.stats) {
                if number == 0 && !is_gauge {
                    continue;
                }
                let labels = [("chain", &*row.chain), ("upstream", &*row.upstream), (label, word)];
                let metric = family.encode_family(&labels)?;
                match is_gauge {
                    true => ConstGauge::new(number).encode(metric)?,
                    false => ConstCounter::new(number).encode(metric)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use std::time::Duration;

    use super::*;
    use crate::limits::KnownLimits;

    #[test]
    fn a_worker_without_a_beat_is_told_of() {
        let now = wellhead_dispatch::now();
        let began = now.checked_sub(Duration::from_secs(11)).expect("a machine that is up");
        let beats = Heartbeats::new(2, began);
        beats.beat(1, now);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Workers(Arc::new(beats))));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for line in
            ["wellhead_worker_stuck{worker=\"0\"} 1\n", "wellhead_worker_stuck{worker=\"1\"} 0\n"]
        {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn each_listener_tells_when_its_certificate_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = |name: &str, year| {
            let mut params = rcgen::CertificateParams::default();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().expect("a key");
            let [certificate, key_file] =
                ["crt", "key"].map(|kind| folder.path().join(format!("{name}.{kind}")));
            let made = params.self_signed(&key).expect("a certificate");
            std::fs::write(&certificate, made.pem()).expect("it is written");
            std::fs::write(&key_file, key.serialize_pem()).expect("it is written");
            let files = wellhead_server::TlsFiles { certificate, key: key_file, clients: None };
            Some(wellhead_server::Tls::load(files).expect("TLS"))
        };
        let both = ListenerTls::of(load("clients", 2040), load("admin", 2041));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(TlsEnds(both)));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let name = "wellhead_tls_expires_timestamp_seconds";
        // Midnight of the first of January of each year.
        let expected =
            [("listen", 2_208_988_800_u64), ("admin", 2_240_611_200)].map(|(listener, end)| {
                format!("{name}{{listener=\"{listener}\",file=\"certificate\"}} {end}")
            });
        assert_eq!(series, expected);
    }

    #[test]
    fn nothing_is_told_of_streams_before_something_is_known() {
        let row = UpstreamConnections {
            chain: "ethereum".into(),
            upstream: "a".to_owned(),
            stats: Arc::default(),
            limits: KnownLimits::default(),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Pools(Arc::new(ArcSwap::from_pointee(vec![row])))));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series, Vec::<&str>::new(), "an upstream without connections");
        let head = "# TYPE wellhead_upstream_streams_left_open counter";
        assert!(text.contains(head), "{text}");
    }
}
