//! What the admin listener tells: metrics, life, readiness, status, explanations.

mod keys;
mod log;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use wellhead_dispatch::now;
use wellhead_net::{ConnectionStats, Lesson, Protocol};
use wellhead_proxy::{
    ConnectionStatus, EndStatus, Readiness, SharedStatus, Status, WebSocketStatus,
};
use wellhead_server::{
    AdminAccess, AdminAction, AdminCall, AdminHandler, AdminReply, Health, Metrics, ServerCounts,
    UsageReport, WsEnd,
};
use wellhead_store::LeaseStatus;
use wellhead_telemetry::clock::{self, ClockPair};
use wellhead_transport::BoxFuture;

use crate::access::{JwksSource, RedisKeys};
use crate::assemble::Assembly;
use crate::handover::{self, HandOverDesk};
use crate::metrics::MetricSources;
use crate::reload::{self, ReloadDesk};
use crate::shared::SharedLimits;
use crate::{explain, limits, metrics};

pub(crate) use keys::KeyAdmin;
use log::LogAdmin;

/// The content type of metrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers of the admin listener.
#[derive(Debug)]
pub(crate) struct AdminPages {
    parts: AdminParts,
    issuers: Vec<Arc<JwksSource>>,
    registry: Registry,
    log: LogAdmin,
    shared: Option<Arc<SharedLimits>>,
    draining: AtomicBool,
}

/// What the pages tell of, and what can be done there.
#[derive(Debug)]
pub(crate) struct AdminParts {
    /// What `/metrics` measures; the other pages tell of the same.
    pub(crate) sources: MetricSources,
    /// Who may see them.
    pub(crate) access: Arc<AdminAccess>,
    pub(crate) keys: KeyAdmin,
    /// Where a reload is asked for.
    pub(crate) reloads: ReloadDesk,
    /// Where a hand-over is asked for.
    pub(crate) hand_overs: HandOverDesk,
}

/// What can be done beside looking: a row here, and an arm in [`AdminPages::act`].
static ACTIONS: LazyLock<Vec<AdminAction>> = LazyLock::new(|| {
    [&keys::ACTIONS[..], &log::ACTIONS[..], &reload::ACTIONS[..], &handover::ACTIONS[..]].concat()
});

impl AdminPages {
    pub(crate) fn new(assembly: &Assembly, parts: AdminParts) -> Self {
        let registry = metrics::registry(assembly, parts.sources.clone());
        Self {
            parts,
            issuers: assembly.issuers.clone(),
            registry,
            log: LogAdmin::default(),
            shared: assembly.shared().cloned(),
            draining: AtomicBool::new(false),
        }
    }

    fn sources(&self) -> &MetricSources {
        &self.parts.sources
    }

    /// The proxy's status, with what is known of sockets.
    fn whole_status(&self) -> Status {
        let proxy = self.sources().proxy.load();
        let mut status = proxy.status();
        status.config = Some(self.sources().record.status());
        status.websocket = Some(websocket_status(&self.sources().server.counts()));
        status.issuers = self.issuers.iter().map(|issuer| issuer.status()).collect();
        let sharing = self.shared.as_ref().and_then(|shared| shared.status());
        status.shared = sharing.map(|sharing| shared_status(&sharing, clock::unix_seconds()));
        let (served, connections) = (proxy.chains(), self.sources().connections.load());
        for (chain, served) in status.chains.iter_mut().zip(served) {
            for (upstream, known) in chain.upstreams.iter_mut().zip(served.roster.upstreams()) {
                let own = connections
                    .iter()
                    .find(|it| *it.chain == *chain.name && it.upstream == upstream.id);
                let Some(own) = own else { continue };
                let (caps, announced) = (own.stats.learnt_caps(), own.stats.announced_streams());
                let (head, now) = (upstream.head, now());
                upstream.limits = limits::told(&own.limits, known, &caps, announced, head, now);
                upstream.connections = Some(connection_status(&own.stats));
                upstream.study = self.parts.sources.studies.of(&chain.name, &upstream.id);
            }
        }
        status
    }

    /// Tells of this assembly from now on. The proxy was replaced before.
    pub(crate) fn change(&self, assembly: &Assembly) {
        self.sources().connections.store(Arc::new(assembly.connections()));
        self.parts.keys.change(&assembly.settings);
    }

    /// The keys in Redis, if keys are kept there.
    pub(crate) fn redis_keys(&self) -> Option<&Arc<RedisKeys>> {
        self.parts.keys.redis_keys()
    }

    /// From now on not ready.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

fn websocket_status(counts: &ServerCounts) -> WebSocketStatus {
    let ended = WsEnd::ALL.iter().zip(counts.websocket_ended);
    WebSocketStatus {
        connections: counts.websocket_open as u64,
        closes: ended
            .filter(|(_, connections)| *connections > 0)
            .map(|(end, connections)| EndStatus { by: end.word(), connections })
            .collect(),
    }
}

fn shared_status(sharing: &LeaseStatus, unix: u64) -> SharedStatus {
    SharedStatus {
        away_s: sharing.away_since.map(|since| unix.saturating_sub(since)),
        replicas: sharing.replicas,
        limits: sharing.limits,
        asks_per_second: sharing.asks_per_second,
        latency_p99_ms: sharing.latency_p99.map(|took| took.as_secs_f64() * 1_000.0),
    }
}

fn connection_status(stats: &ConnectionStats) -> ConnectionStatus {
    let learnt = stats.learnt_caps();
    ConnectionStatus {
        open: Protocol::ALL.into_iter().map(|protocol| stats.open(protocol)).sum(),
        streams_announced: stats.announced_streams(),
        streams_learnt: learnt.streams,
        streams_learnt_by: learnt.streams_lesson.map(Lesson::word),
        streams_fatal: learnt.streams_fatal,
        requests_learnt: learnt.requests,
        idle_learnt_ms: learnt.idle.map(|idle| idle.as_millis() as u64),
        streams_left_open: stats.left_open(),
    }
}

fn health(well: bool, body: &Value) -> Health {
    Health { well, body: Bytes::from(body.to_string()) }
}

impl AdminHandler for AdminPages {
    fn access(&self) -> Arc<AdminAccess> {
        Arc::clone(&self.parts.access)
    }

    fn actions(&self) -> &'static [AdminAction] {
        &ACTIONS
    }

    fn act(&self, call: AdminCall) -> BoxFuture<'_, AdminReply> {
        Box::pin(async move {
            if log::ACTIONS.contains(call.action) {
                return self.log.act(&call);
            }
            if handover::ACTIONS.contains(call.action) {
                return self.parts.hand_overs.act().await;
            }
            match reload::ACTIONS.contains(call.action) {
                true => self.parts.reloads.act(&call).await,
                false => self.parts.keys.act(call).await,
            }
        })
    }

    fn metrics(&self, is_open: bool) -> Metrics {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        if is_open {
            let clock = ClockPair { now: now(), unix: clock::unix_time() };
            text = wellhead_proxy::with_exemplars(text, &self.sources().proxy.load(), clock);
        }
        Metrics { content_type: OPEN_METRICS, body: text.into() }
    }

    fn live(&self) -> Health {
        let stuck = self.sources().beats.stuck(now());
        health(stuck.is_empty(), &json!({ "live": stuck.is_empty(), "stuck_workers": stuck }))
    }

    fn ready(&self) -> Health {
        if self.draining.load(Ordering::Relaxed) {
            return health(false, &json!({ "ready": false, "reason": "draining" }));
        }
        let Readiness { is_ready, unserved } = self.sources().proxy.load().readiness();
        let mut body = json!({ "ready": is_ready });
        if !unserved.is_empty() {
            body["unserved_chains"] = json!(unserved);
            body["reason"] = json!("no upstream of these chains can take calls");
        }
        health(is_ready, &body)
    }

    fn status(&self) -> Bytes {
        // Plain data with string keys always serializes.
        serde_json::to_vec(&self.whole_status()).map_or_else(|_| Bytes::new(), Bytes::from)
    }

    fn explain(&self, query: &str) -> Health {
        explain::page(&self.sources().proxy.load(), query)
    }

    fn usage(&self, query: &str) -> UsageReport {
        self.sources().usage.page(query)
    }
}

#[cfg(test)]
mod tests {
    use wellhead_upstream::Condition;

    /// A `match` has to know each condition, so a new one is missed in the list.
    #[test]
    fn the_list_of_conditions_is_whole() {
        use Condition::{
            BreakerOpen, HalfOpen, OutOfService, Overspent, Ready, Spent, Syncing, Throttled,
            Unverified, WrongChain,
        };
        let place = |condition| match condition {
            Ready => 0,
            Throttled => 1,
            HalfOpen => 2,
            Syncing => 3,
            BreakerOpen => 4,
            OutOfService => 5,
            Overspent => 6,
            Spent => 7,
            Unverified => 8,
            WrongChain => 9,
        };
        assert!(Condition::ALL.into_iter().map(place).eq(0..=9));
    }

    #[test]
    fn the_page_has_a_colour_for_every_condition() {
        let path = format!(
            "{}/../server/src/admin/page.js",
            std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
        );
        let script = std::fs::read_to_string(path).expect("the script of the page");
        let lists: Vec<&str> = ["const GOOD", "const WARN", "const BAD"]
            .iter()
            .map(|name| {
                let (_, rest) = script.split_once(name).expect("a list");
                rest.split_once("];").expect("its end").0
            })
            .collect();
        for condition in Condition::ALL {
            let word = format!("\"{}\"", condition.word());
            let found = lists.iter().filter(|list| list.contains(&word)).count();
            assert_eq!(found, 1, "{word} is in one list");
        }
        assert!(lists[0].contains("\"ready\""));
    }
}
