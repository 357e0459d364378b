//! Metrics of the sockets on both sides; calls are counted by `proxy`.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use wellhead_net::{CloseReason, ConnectionStats, Protocol};
use wellhead_server::{HandshakeFailure, Refusal, Server};

use crate::assemble::{Parts, UpstreamConnections};

/// Adds the connections of clients and to upstreams to `registry`.
pub(crate) fn register(parts: &Parts, server: Arc<Server>, registry: &mut Registry) {
    registry.register_collector(Box::new(Listeners(server)));
    registry.register_collector(Box::new(Pools(parts.connections())));
}

#[derive(Debug)]
struct Listeners(Arc<Server>);

#[derive(Debug)]
struct Pools(Vec<UpstreamConnections>);

/// In the order in which they are told.
const PROTOCOLS: [Protocol; 2] = [Protocol::H1, Protocol::H2];

type Encoded = Result<(), fmt::Error>;

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(&[(&str, &str)], u64)],
) -> Encoded {
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
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

impl Collector for Listeners {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let counts = self.0.counts();
        let (http1, http2) = ([("protocol", "http/1")], [("protocol", "http/2")]);
        gauge(
            &mut encoder,
            "wellhead_client_connections",
            "Open connections of clients",
            &[(&http1, counts.http1_open as u64), (&http2, counts.http2_open as u64)],
        )?;
        counter(
            &mut encoder,
            "wellhead_client_connections_opened",
            "Connections of clients so far",
            &[(&http1, counts.http1_total), (&http2, counts.http2_total)],
        )?;
        let reason = |word| [("reason", word)];
        counter(
            &mut encoder,
            "wellhead_client_connections_dropped",
            "Connections and streams of clients that wellhead ended, by reason",
            &[
                (&reason("idle"), counts.idle_closed_total),
                (&reason("slow_head"), counts.slow_head_total),
                (&reason("slow_reader"), counts.slow_reader_total),
                (&reason("bad_http"), counts.bad_http_total),
                (&reason("drain"), counts.drain_dropped_total),
            ],
        )?;
        let help = "Requests refused before they were read as JSON-RPC, by reason";
        let mut family =
            encoder.encode_descriptor("wellhead_http_refused", help, None, MetricType::Counter)?;
        for refusal in Refusal::all() {
            let labels = [("reason", refusal.word())];
            let count = ConstCounter::new(counts.refused(refusal));
            count.encode(family.encode_family(&labels)?)?;
        }
        let help = "TLS handshakes of clients that failed, by reason";
        let name = "wellhead_tls_handshakes_failed";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for failure in HandshakeFailure::ALL {
            let count = ConstCounter::new(counts.tls_failed(failure));
            count.encode(family.encode_family(&[("reason", failure.word())])?)?;
        }
        let none: &[(&str, &str)] = &[];
        counter(
            &mut encoder,
            "wellhead_tls_handshakes",
            "TLS handshakes of clients that succeeded",
            &[(none, counts.tls_total)],
        )?;
        counter(
            &mut encoder,
            "wellhead_accept_failures",
            "Times that a connection could not be accepted",
            &[(none, counts.accept_failures_total)],
        )?;
        counter(
            &mut encoder,
            "wellhead_answers_compressed",
            "Answers sent compressed",
            &[(none, counts.compressed_total)],
        )?;
        gauge(
            &mut encoder,
            "wellhead_http_requests_open",
            "Requests under way",
            &[(none, counts.requests_open as u64)],
        )
    }
}

impl Collector for Pools {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.tell(
            &mut encoder,
            ("wellhead_upstream_connections", "Open connections to upstreams"),
            MetricType::Gauge,
            |stats| PROTOCOLS.map(|it| ("protocol", it.word(), stats.open(it))).to_vec(),
        )?;
        self.tell(
            &mut encoder,
            ("wellhead_upstream_connections_opened", "Connections to upstreams so far"),
            MetricType::Counter,
            |stats| PROTOCOLS.map(|it| ("protocol", it.word(), stats.opened(it))).to_vec(),
        )?;
        let closed = |stats: &ConnectionStats, reason| {
            PROTOCOLS.into_iter().map(|it| stats.closed(it, reason)).sum::<u64>()
        };
        self.tell(
            &mut encoder,
            (
                "wellhead_upstream_connections_closed",
                "Connections to upstreams that ended, by reason",
            ),
            MetricType::Counter,
            |stats| {
                let told = |reason: &CloseReason| ("reason", reason.word(), closed(stats, *reason));
                CloseReason::ALL.iter().map(told).collect()
            },
        )
    }
}

impl Pools {
    /// One family: for each upstream what `of` makes of its counters, each a label, its
    /// value and a number.
    fn tell(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        kind: MetricType,
        of: impl Fn(&ConnectionStats) -> Vec<(&'static str, &'static str, u64)>,
    ) -> Encoded {
        let is_gauge = matches!(kind, MetricType::Gauge);
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for row in &self.0 {
            for (label, word, number) in of(&row.stats) {
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
