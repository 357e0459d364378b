//! The state of everything as JSON, for `/status`, the dashboard and `/readyz`.

use serde_json::{Value, json};
use wellhead_dispatch::now;
use wellhead_upstream::{Condition, Upstream};

use crate::chain::ServedChain;
use crate::journey::Proxy;

impl Proxy {
    /// Whether each chain has an upstream that can take calls now; the names of
    /// those that have none otherwise.
    pub fn readiness(&self) -> Result<(), Vec<String>> {
        let served = |chain: &ServedChain| {
            let condition = |upstream: &Upstream| upstream.condition(now());
            let mut conditions = chain.roster.upstreams().iter().map(|it| condition(it));
            conditions.any(|condition| condition == Condition::Ready)
        };
        let unserved: Vec<String> = self
            .chains()
            .iter()
            .filter(|chain| !served(chain))
            .map(|chain| chain.name.name.to_string())
            .collect();
        if unserved.is_empty() { Ok(()) } else { Err(unserved) }
    }

    /// Everything an operator may want to know, without secrets.
    pub fn status(&self) -> Value {
        let millis = |share| self.requests().quantile(share).map(|took| took.as_secs_f64() * 1e3);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "requests": {
                "total": self.requests().total(),
                "p50_ms_at_most": millis(0.5),
                "p99_ms_at_most": millis(0.99),
            },
            "chains": self.chains().iter().map(|chain| chain_status(chain)).collect::<Vec<_>>(),
        })
    }
}

fn chain_status(chain: &ServedChain) -> Value {
    let view = chain.heads.view();
    let now = now();
    let [answered, upstream_error, failed, refused] = chain.counts().totals();
    let upstream = |upstream: &std::sync::Arc<Upstream>| {
        let slot = upstream.slot();
        let (attempts, failures) = upstream.totals();
        let millis = |share| {
            let took = chain.counts().attempt_quantile(slot.index(), share);
            took.map(|took| took.as_secs_f64() * 1e3)
        };
        let problem = upstream.last_problem();
        json!({
            "id": upstream.identity().id.as_str(),
            "tier": upstream.identity().tier.word(),
            "provider": upstream.identity().provider,
            "labels": upstream.identity().labels,
            "condition": upstream.condition(now).word(),
            "head": view.head(slot).map(|head| head.number.0),
            "lag_blocks": view.lag_blocks(slot),
            "lag_ms": view.lag_time(slot, now).map(|lag| lag.as_millis() as u64),
            "lagging": view.is_lagging(slot, upstream.identity().lag_blocks_max),
            "latency_ms": upstream.latency(now).map(|it| it.as_secs_f64() * 1e3),
            "p50_ms_at_most": millis(0.5),
            "p99_ms_at_most": millis(0.99),
            "in_flight": upstream.in_flight(),
            "attempts": attempts,
            "failures": failures,
            "last_problem": problem.as_ref().map(|problem| &problem.text),
            "last_problem_ms_ago": problem.as_ref()
                .map(|problem| now.saturating_duration_since(problem.at).as_millis() as u64),
        })
    };
    json!({
        "name": &*chain.name.name,
        "aliases": chain.name.aliases,
        "id": chain.pulse.chain_id().map(|id| id.0),
        "head": view.best.map(|head| head.number.0),
        "block_time_ms": view.block_time.map(|time| time.as_millis() as u64),
        "lag_bound_blocks": view.lag_bound(),
        "calls": {
            "answered": answered,
            "upstream_error": upstream_error,
            "failed": failed,
            "refused": refused,
        },
        "upstreams": chain.roster.upstreams().iter().map(upstream).collect::<Vec<_>>(),
    })
}
