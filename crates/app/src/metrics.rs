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
use prometheus_client::registry::Registry;
use wellhead_access::DenialCounts;
use wellhead_front::CallerControl;
use wellhead_net::{CloseReason, ConnectionStats, Lesson, Protocol};
use wellhead_proxy::{Proxy, TraceLoss, Tracer};
use wellhead_server::{
    ClientProtocol, HandshakeFailure, HttpRefusal, ProxyFailure, STATUSES, Server, ServerCounts,
    TlsFile, WsEnd,
};
use wellhead_store::{BroadcastStatus, LeaseStatus};
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, by, counted, counter, gauge};

use crate::access::{JwksCounts, JwksSource};
use crate::assemble::{Assembly, UpstreamConnections};
use crate::heartbeat::Heartbeats;
use crate::reload::ReloadRecord;
use crate::renew::ListenerTls;
use crate::shared::SharedLimits;
use crate::state::State;
use crate::study::StudyRecord;
use crate::usage::Usage;

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
    let mut registry = Registry::default();
    wellhead_proxy::register(Arc::clone(&sources.proxy), &mut registry);
    registry.register_collector(Box::new(OwnSeries {
        sources,
        callers: parts.callers.clone(),
        denied: Arc::clone(&parts.denied),
        issuers: parts.issuers.clone(),
        tracer: parts.recorders.tracer.clone(),
        shared: parts.shared().cloned(),
    }));
    registry
}

/// What is told beside calls.
#[derive(Debug)]
struct OwnSeries {
    sources: MetricSources,
    callers: Option<Arc<CallerControl>>,
    denied: Arc<DenialCounts>,
    issuers: Vec<Arc<JwksSource>>,
    tracer: Option<Arc<Tracer>>,
    shared: Option<Arc<SharedLimits>>,
}

impl Collector for OwnSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let (encoder, sources) = (&mut encoder, &self.sources);
        let counts = sources.server.counts();
        connections(encoder, &counts)?;
        requests(encoder, &counts)?;
        handshakes(encoder, &counts)?;
        answers(encoder, &counts)?;
        tls_ends(encoder, &sources.tls)?;
        state_file(encoder, sources.state.as_deref())?;
        callers::encode(encoder, self.callers.as_deref(), &self.denied)?;
        issuers_of_tokens(encoder, &self.issuers)?;
        pools(encoder, &sources.connections.load())?;
        usage_outlets(encoder, &sources.usage)?;
        traces(encoder, self.tracer.as_deref())?;
        shared_store(encoder, self.shared.as_deref())?;
        workers(encoder, &sources.beats)?;
        process::encode(encoder)?;
        sources.record.encode(encoder)?;
        sources.studies.encode(encoder)
    }
}

fn workers(encoder: &mut DescriptorEncoder<'_>, beats: &Heartbeats) -> EncodeResult {
    let stuck = beats.stuck(wellhead_dispatch::now());
    let workers = 0..beats.workers();
    let rows = workers.map(|it| (it.to_string(), u64::from(stuck.contains(&it))));
    gauge(
        encoder,
        "wellhead_worker_stuck",
        "1 for a worker thread that has not run for 10 s, otherwise 0",
        by("worker", rows),
    )
}

/// There are few: each is a row of the settings.
fn issuers_of_tokens(
    encoder: &mut DescriptorEncoder<'_>,
    issuers: &[Arc<JwksSource>],
) -> EncodeResult {
    let ages = issuers.iter().filter_map(|it| Some((it.name(), it.age()?.as_secs())));
    gauge(
        encoder,
        "wellhead_jwks_age_seconds",
        "Time since the keys of an issuer of tokens came; absent before the first time",
        by("issuer", ages),
    )?;
    let fetches = issuers.iter().flat_map(|issuer| {
        let JwksCounts { fetched, failed, invalid } = issuer.counts();
        [("fetched", fetched), ("failed", failed), ("invalid", invalid)]
            .map(|(result, count)| ([("issuer", issuer.name()), ("result", result)], count))
    });
    counter(
        encoder,
        "wellhead_jwks_fetches",
        "Fetches of the keys of an issuer of tokens: `fetched`, `failed` without a document, or \
         `invalid`: a document without keys",
        fetches,
    )
}

/// How limits are shared; no series before the sharing began.
fn shared_store(
    encoder: &mut DescriptorEncoder<'_>,
    shared: Option<&SharedLimits>,
) -> EncodeResult {
    let status = shared.and_then(SharedLimits::status);
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
        ("wellhead_shared_limits_served", "Limits that are shared", value(|it| it.limits as u64)),
    ];
    for (name, help, value) in gauges {
        gauge(encoder, name, help, value)?;
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
        counter(encoder, name, help, value)?;
    }
    shared_asks(encoder, status)?;
    let pauses = shared.and_then(SharedLimits::pause_status);
    messages(
        encoder,
        "wellhead_shared_pauses",
        "Messages about pauses that upstreams asked for, by what became of them",
        pauses,
    )?;
    replicas(encoder, shared)
}

fn replicas(encoder: &mut DescriptorEncoder<'_>, shared: Option<&SharedLimits>) -> EncodeResult {
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

fn shared_asks(encoder: &mut DescriptorEncoder<'_>, status: Option<&LeaseStatus>) -> EncodeResult {
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

fn usage_outlets(encoder: &mut DescriptorEncoder<'_>, usage: &Usage) -> EncodeResult {
    let table = usage.table();
    gauge(
        encoder,
        "wellhead_usage_rows_open",
        "Rows of usage of the minutes that are not over",
        [(NO_LABELS, table.rows() as u64)],
    )?;
    counter(
        encoder,
        "wellhead_usage_folded_calls",
        "Calls that count in a row `other`, as there was no room for one of theirs",
        [(NO_LABELS, table.folded())],
    )?;
    let counts = usage.counts().all().into_iter().filter(|(.., count)| *count > 0);
    counter(
        encoder,
        "wellhead_usage_outlets",
        "Rows and quota events handed out, dropped at a bound, and failed attempts",
        counts.map(|(outlet, what, count)| ([("outlet", outlet), ("result", what)], count)),
    )
}

/// Without `traces` there is no series.
fn traces(encoder: &mut DescriptorEncoder<'_>, tracer: Option<&Tracer>) -> EncodeResult {
    let counts = tracer.map(Tracer::counts);
    counter(
        encoder,
        "wellhead_traces_sent",
        "Traces that the collector took",
        counts.iter().map(|counts| (NO_LABELS, counts.sent())),
    )?;
    let lost = counts
        .iter()
        .flat_map(|counts| TraceLoss::ALL.iter().map(|loss| (loss.word(), counts.dropped(*loss))));
    counter(
        encoder,
        "wellhead_traces_dropped",
        "Traces that were to be kept and are lost: more than `traces.always.per_second`, a full \
         queue, a collector that could not be reached for a minute or refused them",
        by("reason", lost),
    )
}

fn state_file(encoder: &mut DescriptorEncoder<'_>, state: Option<&State>) -> EncodeResult {
    let writes = state.map(State::writes).into_iter();
    let writes = writes.flat_map(|(written, failed)| [("written", written), ("failed", failed)]);
    counter(
        encoder,
        "wellhead_state_writes",
        "Writes of the state file, by result",
        by("result", writes),
    )
}

fn tls_ends(encoder: &mut DescriptorEncoder<'_>, listeners: &[ListenerTls]) -> EncodeResult {
    let mut rows = Vec::new();
    for ListenerTls { listener, tls } in listeners {
        let ends = tls.ends();
        let mut first = |is_of: fn(TlsFile) -> bool, word| {
            let ends = ends.iter().filter(|it| is_of(it.file)).map(|it| it.end.as_secs());
            rows.extend(ends.min().map(|end| ([("listener", *listener), ("file", word)], end)));
        };
        first(|file| file == TlsFile::Certificate, "certificate");
        first(|file| matches!(file, TlsFile::RevocationList(_)), "crl");
    }
    gauge(
        encoder,
        "wellhead_tls_expires_timestamp_seconds",
        "When a TLS file of a listener expires, as seconds since 1970: of the certificate chain \
         the first end, of the revocation lists the first overdue update",
        rows,
    )
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

/// The connections to upstreams.
fn pools(encoder: &mut DescriptorEncoder<'_>, pools: &[UpstreamConnections]) -> EncodeResult {
    gauge(
        encoder,
        "wellhead_upstream_connections",
        "Open connections to upstreams",
        each(pools, "protocol", |stats| {
            let used = Protocol::ALL.into_iter().filter(|it| stats.opened(*it) > 0);
            used.map(|it| (it.word(), stats.open(it))).collect()
        }),
    )?;
    counter(
        encoder,
        "wellhead_upstream_connections_opened",
        "Connections to upstreams so far",
        counted(each(pools, "protocol", |stats| {
            Protocol::ALL.map(|it| (it.word(), stats.opened(it))).to_vec()
        })),
    )?;
    let closed = |stats: &ConnectionStats, reason| {
        Protocol::ALL.into_iter().map(|it| stats.closed(it, reason)).sum::<u64>()
    };
    counter(
        encoder,
        "wellhead_upstream_connections_closed",
        "Closed connections to upstreams, by reason",
        counted(each(pools, "reason", |stats| {
            CloseReason::ALL.iter().map(|it| (it.word(), closed(stats, *it))).collect()
        })),
    )?;
    gauge(
        encoder,
        "wellhead_upstream_socket_calls",
        "Calls under way on WebSocket connections",
        each(pools, "protocol", |stats| {
            let used = Some(stats.on_sockets()).filter(|_| stats.opened(Protocol::Ws) > 0);
            used.map(|calls| (Protocol::Ws.word(), calls)).into_iter().collect()
        }),
    )?;
    counter(
        encoder,
        "wellhead_upstream_socket_unclaimed",
        "WebSocket messages that answered no pending call",
        counted(each(pools, "protocol", |stats| vec![(Protocol::Ws.word(), stats.unclaimed())])),
    )?;
    learnt(encoder, pools)
}

/// What one HTTP/2 connection bears: told, and found out.
fn learnt(encoder: &mut DescriptorEncoder<'_>, pools: &[UpstreamConnections]) -> EncodeResult {
    gauge(
        encoder,
        "wellhead_upstream_streams_max",
        "Concurrent streams that an HTTP/2 connection allows, by source of the limit",
        each(pools, "by", |stats| {
            let learnt = stats.learnt_caps();
            let by = learnt.streams_lesson.map_or("learnt", Lesson::word);
            let announced = stats.announced_streams().map(|streams| ("announced", streams));
            let found = learnt.streams.map(|streams| (by, streams as u64));
            let fatal = learnt.streams_fatal.map(|streams| ("fatal", streams as u64));
            [announced, found, fatal].into_iter().flatten().collect()
        }),
    )?;
    gauge(
        encoder,
        "wellhead_upstream_connection_bounds",
        "Learnt number of requests and idle milliseconds after which HTTP/2 connections are replaced",
        each(pools, "of", |stats| {
            let learnt = stats.learnt_caps();
            let requests = learnt.requests.map(|requests| ("requests", requests));
            let idle = learnt.idle.map(|idle| ("idle_ms", idle.as_millis() as u64));
            [requests, idle].into_iter().flatten().collect()
        }),
    )?;
    counter(
        encoder,
        "wellhead_upstream_streams_left_open",
        "Abandoned HTTP/2 streams that were left to finish, to send fewer resets",
        counted(pools.iter().map(|pool| (upstream(pool), pool.stats.left_open()))),
    )
}

fn upstream(pool: &UpstreamConnections) -> [(&'static str, &str); 2] {
    [("chain", &*pool.chain), ("upstream", &*pool.upstream)]
}

/// For each upstream what `of` makes of its counters: values of the label, each with a number.
fn each<'a>(
    pools: &'a [UpstreamConnections],
    label: &'static str,
    of: impl Fn(&ConnectionStats) -> Vec<(&'static str, u64)> + 'a,
) -> impl Iterator<Item = ([(&'static str, &'a str); 3], u64)> {
    pools.iter().flat_map(move |pool| {
        let [chain, id] = upstream(pool);
        let rows = of(&pool.stats).into_iter();
        rows.map(move |(word, number)| ([chain, id, (label, word)], number))
    })
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use std::time::Duration;

    use super::*;
    use crate::limits::KnownLimits;

    /// Writes some families.
    struct Told<F>(F);

    impl<F> std::fmt::Debug for Told<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Told")
        }
    }

    impl<F> Collector for Told<F>
    where
        F: Fn(&mut DescriptorEncoder<'_>) -> EncodeResult + Send + Sync + 'static,
    {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
            (self.0)(&mut encoder)
        }
    }

    fn text_of(
        families: impl Fn(&mut DescriptorEncoder<'_>) -> EncodeResult + Send + Sync + 'static,
    ) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Told(families)));
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
        let text = text_of(move |encoder| workers(encoder, &beats));
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
        let text = text_of(move |encoder| tls_ends(encoder, &both));
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
        let text = text_of(move |encoder| pools(encoder, std::slice::from_ref(&row)));
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series, Vec::<&str>::new(), "an upstream without connections");
        let head = "# TYPE wellhead_upstream_streams_left_open counter";
        assert!(text.contains(head), "{text}");
    }
}
