//! Metrics of the sockets on both sides; calls are counted by `proxy`.
//!
//! What is told of an upstream's connections appears with the first one of its protocol, and
//! a counter with its first count. The head of each family is always there, whatever is used, so that
//! [`page`] knows them all.

mod callers;
mod facts;
mod page;
mod process;

use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use wellhead_net::{CloseReason, ConnectionStats, Lesson, Protocol};
use wellhead_proxy::{Proxy, TraceLoss, Tracer};
use wellhead_server::{
    ClientProtocol, HandshakeFailure, HttpRefusal, ProxyFailure, STATUSES, Server, ServerCounts,
    TlsFile, WsEnd,
};
use wellhead_store::{BroadcastStatus, LeaseStatus};
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, by, counter, gauge};

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
        let stuck = self.0.stuck(wellhead_dispatch::now());
        let workers = 0..self.0.workers();
        let rows = workers.map(|it| (it.to_string(), u64::from(stuck.contains(&it))));
        gauge(
            &mut encoder,
            "wellhead_worker_stuck",
            "1 for a worker thread that has not run for 10 s, otherwise 0",
            by("worker", rows),
        )
    }
}

/// There are few: each is a row of the settings.
#[derive(Debug)]
struct IssuersOfTokens(Vec<Arc<JwksSource>>);

impl Collector for IssuersOfTokens {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let ages = self.0.iter().filter_map(|it| Some((it.name(), it.age()?.as_secs())));
        gauge(
            &mut encoder,
            "wellhead_jwks_age_seconds",
            "Time since the keys of an issuer of tokens came; absent before the first time",
            by("issuer", ages),
        )?;
        let fetches = self.0.iter().flat_map(|issuer| {
            let JwksCounts { fetched, failed, invalid } = issuer.counts();
            [("fetched", fetched), ("failed", failed), ("invalid", invalid)]
                .map(|(result, count)| ([("issuer", issuer.name()), ("result", result)], count))
        });
        counter(
            &mut encoder,
            "wellhead_jwks_fetches",
            "Fetches of the keys of an issuer of tokens: `fetched`, `failed` without a document, or \
             `invalid`: a document without keys",
            fetches,
        )
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
            gauge(&mut encoder, name, help, value)?;
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
            counter(&mut encoder, name, help, value)?;
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
    gauge(
        encoder,
        "wellhead_replicas",
        "Wellheads that hear each other and share probes of upstreams, this one included",
        replicas.map(|it| (NO_LABELS, it.replicas as u64)),
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
    let results = status.into_iter().flat_map(|it| {
        [
            ("published", it.published),
            ("received", it.received),
            ("dropped", it.dropped),
            ("malformed", it.malformed),
        ]
    });
    counter(encoder, name, help, by("result", results))
}

fn shared_asks(status: Option<&LeaseStatus>, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let asks = status
        .into_iter()
        .flat_map(|it| [("granted", it.asks.saturating_sub(it.refused)), ("refused", it.refused)]);
    counter(
        encoder,
        "wellhead_shared_limits_asks",
        "Asks for tokens of shared limits, by whether the store had any",
        by("result", asks),
    )?;
    let rounds = status.into_iter().flat_map(|it| {
        [("answered", it.rounds.saturating_sub(it.failures)), ("failed", it.failures)]
    });
    counter(
        encoder,
        "wellhead_shared_limits_rounds",
        "Pipelines of asks to the store of shared limits, by whether the answer was right and in time",
        by("result", rounds),
    )
}

#[derive(Debug)]
struct UsageOutlets(Arc<Usage>);

impl Collector for UsageOutlets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let table = self.0.table();
        gauge(
            &mut encoder,
            "wellhead_usage_rows_open",
            "Rows of usage of the minutes that are not over",
            [(NO_LABELS, table.rows() as u64)],
        )?;
        counter(
            &mut encoder,
            "wellhead_usage_folded_calls",
            "Calls that count in a row `other`, as there was no room for one of theirs",
            [(NO_LABELS, table.folded())],
        )?;
        let counts = self.0.counts().all().into_iter().filter(|(.., count)| *count > 0);
        counter(
            &mut encoder,
            "wellhead_usage_outlets",
            "Rows and quota events handed out, dropped at a bound, and failed attempts",
            counts.map(|(outlet, what, count)| ([("outlet", outlet), ("result", what)], count)),
        )
    }
}

/// Without `traces` there is no series.
#[derive(Debug)]
struct TraceSeries(Option<Arc<Tracer>>);

impl Collector for TraceSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let counts = self.0.as_ref().map(|tracer| tracer.counts());
        counter(
            &mut encoder,
            "wellhead_traces_sent",
            "Traces that the collector took",
            counts.iter().map(|counts| (NO_LABELS, counts.sent())),
        )?;
        let lost = counts.iter().flat_map(|counts| {
            TraceLoss::ALL.iter().map(|loss| (loss.word(), counts.dropped(*loss)))
        });
        counter(
            &mut encoder,
            "wellhead_traces_dropped",
            "Traces that were to be kept and are lost: more than `traces.always.per_second`, a full \
             queue, a collector that could not be reached for a minute or refused them",
            by("reason", lost),
        )
    }
}

#[derive(Debug)]
struct StateFile(Option<Arc<State>>);

impl Collector for StateFile {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let writes = self.0.as_ref().map(|state| state.writes()).into_iter();
        let writes =
            writes.flat_map(|(written, failed)| [("written", written), ("failed", failed)]);
        counter(
            &mut encoder,
            "wellhead_state_writes",
            "Writes of the state file, by result",
            by("result", writes),
        )
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
        gauge(
            &mut encoder,
            "wellhead_tls_expires_timestamp_seconds",
            "When a TLS file of a listener expires, as seconds since 1970: of the certificate chain \
             the first end, of the revocation lists the first overdue update",
            rows,
        )
    }
}

#[derive(Debug)]
struct Listeners(Arc<Server>);

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
    let protocols = [ClientProtocol::Http1, ClientProtocol::Http2, ClientProtocol::WebSocket];
    let by_protocol = |counts: [u64; 3]| {
        by("protocol", protocols.map(ClientProtocol::word).into_iter().zip(counts))
    };
    gauge(
        encoder,
        "wellhead_client_connections",
        "Open client connections",
        by_protocol(
            [counts.http1_open, counts.http2_open, counts.websocket_open].map(|n| n as u64),
        ),
    )?;
    counter(
        encoder,
        "wellhead_client_connections_opened",
        "Client connections accepted",
        by_protocol([counts.http1_total, counts.http2_total, counts.websocket_total]),
    )?;
    counter(
        encoder,
        "wellhead_websocket_closed",
        "WebSocket connections that ended: closed by the `client`, `lost` without a close, or closed \
         by wellhead with this code",
        by("by", WsEnd::ALL.iter().map(|end| end.word()).zip(counts.websocket_ended)),
    )?;
    counter(
        encoder,
        "wellhead_client_connections_dropped",
        "Client connections and streams closed by wellhead, by reason",
        by(
            "reason",
            [
                ("idle", counts.idle_closed_total),
                ("slow_head", counts.slow_head_total),
                ("slow_reader", counts.slow_reader_total),
                ("hoarder", counts.hoarders_total),
                ("flood", counts.floods_total),
                ("displaced", counts.displaced_total),
                ("bad_http", counts.bad_http_total),
                ("drain", counts.drain_dropped_total),
            ],
        ),
    )
}

/// Requests by how they ended, and those that were refused.
fn requests(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    let statuses = STATUSES.iter().map(u16::to_string).chain(["other".to_owned()]);
    counter(
        encoder,
        "wellhead_http_requests",
        "Requests that ended, by HTTP status; 499: the client left before its answer; without those \
         of HTTP/2 whose headers are too large (431)",
        by("status", statuses.zip(counts.statuses)),
    )?;
    counter(
        encoder,
        "wellhead_http_refused",
        "Requests refused before they were read as JSON-RPC, by reason",
        by("reason", HttpRefusal::ALL.map(|it| (it.word(), counts.refused(it)))),
    )
}

/// TLS handshakes, and connections that could not be accepted.
fn handshakes(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    counter(
        encoder,
        "wellhead_tls_handshakes_failed",
        "TLS handshakes of clients that failed, by reason",
        by("reason", HandshakeFailure::ALL.map(|it| (it.word(), counts.tls_failed(it)))),
    )?;
    counter(
        encoder,
        "wellhead_proxy_headers_failed",
        "Connections closed before a trusted proxy had named their client, by reason",
        by("reason", ProxyFailure::ALL.map(|it| (it.word(), counts.proxy_failed(it)))),
    )?;
    counter(
        encoder,
        "wellhead_tls_handshakes",
        "Successful TLS handshakes of clients",
        [(NO_LABELS, counts.tls_total)],
    )?;
    counter(
        encoder,
        "wellhead_accept_failures",
        "Failures to accept a connection",
        [(NO_LABELS, counts.accept_failures_total)],
    )
}

/// Requests under way and answers that wait.
fn answers(encoder: &mut DescriptorEncoder<'_>, counts: &ServerCounts) -> EncodeResult {
    counter(
        encoder,
        "wellhead_answers_compressed",
        "Compressed answers",
        [(NO_LABELS, counts.compressed_total)],
    )?;
    let gauges = [
        ("wellhead_http_requests_open", "Requests in progress", counts.requests_open),
        (
            "wellhead_answers_waiting",
            "Answers waiting for clients that do not read them",
            counts.answers_waiting,
        ),
        (
            "wellhead_answers_waiting_bytes",
            "Bytes of answers waiting for clients that do not read them",
            counts.answers_waiting_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        gauge(encoder, name, help, [(NO_LABELS, value as u64)])?;
    }
    Ok(())
}

#[derive(Debug)]
struct Pools(Arc<ArcSwap<Vec<UpstreamConnections>>>);

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
                let used = Some(stats.on_sockets()).filter(|_| stats.opened(Protocol::Ws) > 0);
                used.map(|calls| (on_sockets.0, on_sockets.1, calls)).into_iter().collect()
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
        let rows = self.0.load();
        let rows = rows.iter().map(|row| {
            ([("chain", &*row.chain), ("upstream", &*row.upstream)], row.stats.left_open())
        });
        counter(
            encoder,
            "wellhead_upstream_streams_left_open",
            "Abandoned HTTP/2 streams that were left to finish, to send fewer resets",
            rows.filter(|(_, count)| *count > 0),
        )
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
        let pools = self.0.load();
        let rows = pools.iter().flat_map(|row| {
            let (chain, upstream) = (("chain", &*row.chain), ("upstream", &*row.upstream));
            let rows = of(&row.stats).into_iter();
            rows.map(move |(label, word, number)| ([chain, upstream, (label, word)], number))
        });
        match kind {
            MetricType::Gauge => gauge(encoder, name, help, rows),
            _ => counter(encoder, name, help, rows.filter(|(.., number)| *number > 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use std::time::Duration;

    use super::*;
    use crate::limits::KnownLimits;

    fn text_of(collector: impl Collector) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        text
    }

    #[test]
    fn a_worker_without_a_beat_is_told_of() {
        let now = wellhead_dispatch::now();
        let began = now.checked_sub(Duration::from_secs(11)).expect("a machine that is up");
        let beats = Heartbeats::new(2, began);
        beats.beat(1, now);
        let text = text_of(Workers(Arc::new(beats)));
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
        let text = text_of(TlsEnds(both));
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
        let text = text_of(Pools(Arc::new(ArcSwap::from_pointee(vec![row]))));
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series, Vec::<&str>::new(), "an upstream without connections");
        let head = "# TYPE wellhead_upstream_streams_left_open counter";
        assert!(text.contains(head), "{text}");
    }
}
