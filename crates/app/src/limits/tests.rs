//! A profile from its measurement to the proxy that keeps to it.
//!
//! Time is paused and the sockets are real: what is waited for passes when no task has anything
//! to do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wellhead_analyze::conclude::verdict::verdicts;
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::{ExperimentPlan, RatePlan};
use wellhead_analyze::measure::run::{CallBudget, Player, RunTerms, StopSignal, Unwatched};
use wellhead_analyze::record::Machine;
use wellhead_analyze::stored::StoredRun;
use wellhead_proxy::{Ctx, Target};
use wellhead_sim::provider::{CreditBucket, RefusalForm};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

use super::*;
use crate::admin::{AdminPages, AdminParts};
use crate::assemble::{Assembly, Recorders};
use crate::config::{Loaded, Overrides};
use crate::loops::ChainLoops;
use crate::metrics::idle_sources;
use crate::reload::ReloadDesk;
use wellhead_proxy::ProxyWorker;

const SECOND: Duration = Duration::from_secs(1);

/// Calls a second that the provider takes.
const LIMIT: f64 = 40.0;

fn provider(bucket: CreditBucket) -> FakeProvider {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let latency =
        wellhead_sim::node::LatencyDial::even(Duration::from_millis(20), Duration::from_millis(5));
    let dials = ProviderDials { buckets: vec![bucket], latency, ..ProviderDials::default() };
    FakeProvider::start("provider", world, dials).expect("a port")
}

/// What `wellhead analyze rate --profile FILE` does.
async fn measure(provider: &FakeProvider, window: Duration, dir: &Path) {
    let url = SecretUrl::parse(&provider.url()).expect("a URL");
    let endpoints = [TargetEndpoint::new("target-1".to_owned(), url)];
    let terms = RunTerms {
        seed: 1,
        started_unix: 1_795_000_000,
        wellhead: "test".to_owned(),
        machine: Machine::default(),
    };
    let (budget, stop, run) = (CallBudget::new(u64::MAX), StopSignal::default(), dir.join("run"));
    let mut player = Player::begin(&run, terms, &endpoints, &budget, &stop).expect("a directory");
    let greeting = player.greet(0, &endpoints[0]).await.expect("a client");
    let mut plan: Box<dyn ExperimentPlan> =
        Box::new(RatePlan::new(30.0, 80.0, 1.25, window * 12, window * 2));
    player.play(&mut *plan, 0, &endpoints[0], &greeting, &mut Unwatched).await.expect("played");
    let StoredRun { run, records, .. } = StoredRun::read(&run).expect("a run");
    let text = wellhead_analyze::conclude::profile::profile(&run, &verdicts(&run, &records));
    std::fs::write(dir.join("measured.yaml"), text).expect("a file");
}

/// The config with this profile, read as `serve` reads it.
fn settings(provider: &FakeProvider, dir: &Path, upstream: &str) -> Loaded {
    let url = provider.url();
    // Each call is to go upstream, though all are alike.
    let text = format!(
        "cache: {{ enabled: false }}\ncoalesce: false\nchains:\n  ethereum:\n    id: 1337\n    checks: {{ mode: off }}\n    upstreams:\n      \
         - {{ id: a, url: \"{url}\", {upstream} }}\n"
    );
    let file = dir.join("wellhead.yaml");
    std::fs::write(&file, text).expect("a file");
    let loaded = config::load(&file, &|_| None, Overrides::default());
    loaded.unwrap_or_else(|report| panic!("{}", report.render(false)))
}

/// Sends `per_second` calls through the proxy, and tells how many were answered in how long.
async fn load(parts: &Assembly, per_second: f64, lasting: Duration) -> (u64, Duration) {
    let mut rng = SmallRng::seed_from_u64(1);
    let worker = Arc::new(parts.worker_chains(&mut rng).expect("usable"));
    let chains = parts.worker_chains(&mut rng).expect("usable");
    let mut loops = ChainLoops::new(ProxyWorker::replaceable(&parts.proxy, chains), None, None);
    loops.follow(parts, &mut rng).expect("usable");
    let (began, mut calls) = (Instant::now(), JoinSet::new());
    let count = (per_second * lasting.as_secs_f64()) as u64;
    for n in 0..count {
        sleep_until(began + Duration::from_secs_f64(n as f64 / per_second)).await;
        let (proxy, worker) = (Arc::clone(&parts.proxy), Arc::clone(&worker));
        calls.spawn(async move {
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            let ctx = Ctx {
                received_at: wellhead_dispatch::now(),
                peer,
                caller: None,
                want_trail: false,
                known_block: None,
                may_stream: true,
                trace_parent: None,
            };
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"eth_gasPrice","params":[]}}"#);
            let answer = proxy.handle(&worker, ctx, Target::default(), body.into()).await;
            answer.status == 200
        });
    }
    let took = began.elapsed();
    let mut answered = 0;
    while let Some(ended) = calls.join_next().await {
        answered += u64::from(ended.expect("no call panics"));
    }
    (answered, took.max(began.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_loads_what_was_measured_is_hardly_refused_and_wastes_little() {
    let buckets = [
        CreditBucket::steady(LIMIT, SECOND, RefusalForm::too_many(None)),
        CreditBucket::fixed(LIMIT, SECOND, RefusalForm::too_many_in_body()),
        CreditBucket::steady(LIMIT * 3.0, SECOND * 3, RefusalForm::too_many(Some(SECOND))),
    ];
    for bucket in buckets {
        let provider = provider(bucket.clone());
        let dir = tempfile::tempdir().expect("a directory");
        measure(&provider, bucket.window().expect("it fills"), dir.path()).await;
        let loaded = settings(&provider, dir.path(), "profile: measured.yaml");
        let own = &loaded.settings.chains.0[0].1.upstreams[0];
        assert!(own.budget.calls_per_second.is_some(), "{bucket:?}: {own:?}");
        let parts = Assembly::new(
            &Arc::new(loaded.settings),
            Recorders::default(),
            wellhead_dispatch::now(),
        )
        .expect("sound");
        // As long as it takes to be full again.
        tokio::time::sleep(SECOND * 11).await;
        let before = provider.counts();
        let (answered, took) = load(&parts, 2.0 * LIMIT, SECOND * 30).await;
        let counts = provider.counts();
        let sent = (counts.calls - before.calls) as f64;
        let refused = (counts.refusals - before.refusals) as f64;
        assert!(refused < 0.01 * sent, "{bucket:?}: {refused} of {sent} refused");
        let used = answered as f64 / took.as_secs_f64() / LIMIT;
        assert!(used >= 0.9, "{bucket:?}: {used:.3} of the limit in {took:?}");
    }
}

fn limits(parts: &Assembly) -> Vec<Value> {
    let told = AdminParts {
        sources: idle_sources(parts),
        access: Arc::default(),
        keys: crate::admin::KeyAdmin::none(),
        reloads: ReloadDesk::new().0,
        hand_overs: crate::handover::HandOverDesk::new().0,
    };
    let pages = AdminPages::new(parts, told);
    let status = wellhead_server::AdminHandler::status(&pages);
    let status: Value = serde_json::from_slice(&status).expect("JSON");
    let limits = &status["chains"][0]["upstreams"][0]["limits"];
    limits.as_array().expect("a list").clone()
}

fn limit(limits: &[Value], name: &str) -> Value {
    let found = limits.iter().find(|limit| limit["limit"] == name);
    found.unwrap_or_else(|| panic!("{name} in {limits:?}")).clone()
}

#[tokio::test(start_paused = true)]
async fn the_status_names_the_source_of_a_limit() {
    let provider = provider(CreditBucket::steady(LIMIT, SECOND, RefusalForm::too_many(None)));
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "measured: \"2026-11-22 10:15\"\nupstreams:\n  - host: elsewhere\n    \
                   budget: { calls_per_second: 80, in_flight: 7 }\n    \
                   connection: { streams_max: 93 }\n    history: { range_max: 500 }\n";
    std::fs::write(dir.path().join("p.yaml"), profile).expect("a file");
    let own = "profile: p.yaml, budget: { calls_per_second: 400 }, history: { state: 128 }";
    let loaded = settings(&provider, dir.path(), own);
    let parts =
        Assembly::new(&Arc::new(loaded.settings), Recorders::default(), wellhead_dispatch::now())
            .expect("sound");
    let found = limits(&parts);
    let told = |limit: &str, value: f64, source: &str, measured: Option<&str>| json!({ "limit": limit, "value": value, "source": source, "measured": measured });
    let day = Some("2026-11-22 10:15");
    for expected in [
        // What the upstream says itself goes before the profile.
        told("calls_per_second", 400.0, "given", None),
        told("state", 128.0, "given", None),
        told("in_flight", 7.0, "measured", day),
        told("streams_max", 93.0, "measured", day),
        told("range_max", 500.0, "measured", day),
        told("idle_ms", 60_000.0, "default", None),
    ] {
        let name = expected["limit"].as_str().expect("a name");
        assert_eq!(limit(&found, name), expected);
    }
    // More than it takes: what its refusals teach is told as learnt.
    load(&parts, 2.0 * LIMIT, SECOND * 5).await;
    let found = limits(&parts);
    let learnt = limit(&found, "credits_per_second");
    assert_eq!(learnt["source"], "learnt", "{learnt}");
    assert!(learnt["value"].as_f64().expect("a number") < 2.0 * LIMIT, "{learnt}");
}
