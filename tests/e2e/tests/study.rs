//! The proxy studies the rate limit of its own upstream, a real nginx whose limit is changed by a reload: the limit that
//! the proxy keeps to follows without a restart, own calls stay within their budget, and of the clients' calls less
//! than one in a hundred fails.
//!
//! `WELLHEAD_STUDY_MINUTES=60` lets it go on for so long, at a gentler pace; the limit then changes in the middle, and
//! is to be followed within five minutes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at what it does not expect, and tell what it saw"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wellhead_e2e::{Nginx, NginxLimit, Rpc, Upstream, Wellhead, until};
use wellhead_sim::{FakeUpstream, SimNode, World, WorldConfig};

const CHAIN_ID: u64 = 7;
/// Far more than a study takes (a minute), for a machine that is busy.
const STUDY_MAX: Duration = Duration::from_secs(300);
/// In a run of an hour.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(300);
const BEFORE: NginxLimit = NginxLimit { per_second: 40, burst: 10 };
const AFTER: NginxLimit = NginxLimit { per_second: 12, burst: 4 };

/// How it is studied.
#[derive(Clone, Copy)]
struct Pace {
    /// Fields of `study`, but for its directory.
    fields: &'static str,
    calls_per_hour: u64,
    /// How long each limit holds, where it is not left as soon as it is known.
    each: Option<Duration>,
}

fn pace() -> Pace {
    match std::env::var("WELLHEAD_STUDY_MINUTES") {
        Ok(minutes) => {
            let minutes: u64 = minutes.parse().expect("WELLHEAD_STUDY_MINUTES is a number");
            let fields = "every: 1m, calls_per_hour: 12000, calls_per_day: 300000";
            let each = Some(Duration::from_secs(30 * minutes));
            Pace { fields, calls_per_hour: 12_000, each }
        }
        Err(_) => {
            let fields = "every: 5s, rate_time: 2s, calls_per_hour: 60000, calls_per_day: 1000000";
            Pace { fields, calls_per_hour: 60_000, each: None }
        }
    }
}

/// Clients that call at an even pace.
#[derive(Debug, Default)]
struct Clients {
    calls: AtomicU64,
    refused: AtomicU64,
    slowest_ms: AtomicU64,
    is_over: AtomicBool,
}

impl Clients {
    async fn run(self: Arc<Self>, rpc: Arc<Rpc>, every: Duration) {
        while !self.is_over.load(Relaxed) {
            let (clients, rpc) = (Arc::clone(&self), Arc::clone(&rpc));
            tokio::spawn(async move { clients.call(&rpc).await });
            // The pace of the clients.
            sleep(every).await;
        }
    }

    async fn call(&self, rpc: &Rpc) {
        let n = self.calls.fetch_add(1, Relaxed);
        let call = json!({ "jsonrpc": "2.0", "id": n, "method": "eth_gasPrice", "params": [] });
        let begun = Instant::now();
        let reply = rpc.post(call.to_string()).await.and_then(|reply| reply.json());
        self.slowest_ms.fetch_max(begun.elapsed().as_millis() as u64, Relaxed);
        if !reply.as_ref().is_ok_and(|body| body["result"].is_string()) {
            println!("study: a client was refused: {reply:?}");
            self.refused.fetch_add(1, Relaxed);
        }
    }
}

async fn status(wellhead: &Wellhead) -> Option<Value> {
    let reply = wellhead.admin().get("/status").await.ok()?;
    let status: Value = serde_json::from_slice(&reply.body).ok()?;
    Some(status["chains"][0]["upstreams"][0].clone())
}

/// The limit that the proxy keeps to, if it was measured.
async fn known(wellhead: &Wellhead) -> Option<f64> {
    let status = status(wellhead).await?;
    let mut limits = status["limits"].as_array()?.iter();
    let limit = limits.find(|limit| limit["limit"] == "calls_per_second")?;
    (limit["source"] == "measured").then(|| limit["value"].as_f64())?
}

async fn own_calls(wellhead: &Wellhead) -> u64 {
    let text = wellhead.admin().get("/metrics").await.unwrap().text();
    let line = text.lines().find(|line| {
        line.starts_with("wellhead_self_calls_total{") && line.contains("reason=\"study\"")
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The series that the dashboard of upstreams shows of studies.
fn on_the_dashboard() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/upstream.json");
    let text = std::fs::read_to_string(file).unwrap();
    let words = text.split(|char: char| !char.is_ascii_lowercase() && char != '_');
    words.filter(|word| word.starts_with("wellhead_study_")).map(str::to_owned).collect()
}

/// Waits until the proxy keeps to this limit.
async fn follows(wellhead: &Wellhead, limit: NginxLimit, within: Duration) {
    let is_it = |found: &f64| (found / f64::from(limit.per_second) - 1.0).abs() < 0.2;
    let begun = Instant::now();
    if until(within, || async { known(wellhead).await.filter(is_it) }).await.is_none() {
        let (known, status) = (known(wellhead).await, status(wellhead).await);
        panic!("{known:?} for {limit:?}: {status:?}\n{}", wellhead.process.log());
    }
    println!("study: {limit:?} followed after {:?}", begun.elapsed());
}

/// Studies one upstream, alone or beside one without a limit, while clients call `every` so often.
async fn study(beside: bool, every: Duration) {
    let world = World::new(WorldConfig { chain_id: CHAIN_ID, ..WorldConfig::seeded(1) });
    let node = FakeUpstream::start(SimNode::new("one", world)).unwrap();
    let server = node.addr().port();
    let nginx = Nginx::limiting(server, BEFORE).await;
    let (folder, pace) = (TempDir::new().unwrap(), pace());
    let fields = format!("study: {{ dir: {}, {} }}", folder.path().display(), pace.fields);
    let url = format!("http://127.0.0.1:{}", nginx.port);
    let mut upstreams = vec![Upstream::new("a", &url).with(&fields)];
    if beside {
        upstreams.push(Upstream::new("b", &node.url()));
    }
    // Each call of a client reaches an upstream.
    let settings = "cache: { enabled: false }\ncoalesce: false\n";
    let wellhead = Wellhead::start_with(settings, CHAIN_ID, &upstreams).await;
    let clients = Arc::new(Clients::default());
    let rpc = Arc::new(Rpc::new(wellhead.port, "/"));
    let calling = tokio::spawn(Arc::clone(&clients).run(rpc, every));

    let within = if pace.each.is_some() { FOLLOWED_WITHIN } else { STUDY_MAX };
    for limit in [BEFORE, AFTER] {
        nginx.limit(server, limit);
        let begun = Instant::now();
        follows(&wellhead, limit, within).await;
        if let Some(each) = pace.each {
            // As long as was asked for.
            sleep(each.saturating_sub(begun.elapsed())).await;
        }
    }
    clients.is_over.store(true, Relaxed);
    calling.await.unwrap();

    let metrics = wellhead.admin().get("/metrics").await.unwrap().text();
    let has = |name: &String| metrics.lines().any(|line| line.starts_with(&format!("{name}{{")));
    let (shown, missing): (Vec<_>, Vec<_>) = on_the_dashboard().into_iter().partition(has);
    assert!(shown.len() >= 5 && missing.is_empty(), "{shown:?}, but not {missing:?}");

    let own = own_calls(&wellhead).await;
    let hours = pace.each.map_or(1, |each| (2 * each.as_secs()).div_ceil(3_600).max(1));
    // It ran for a little longer.
    let most = hours * pace.calls_per_hour + pace.calls_per_hour / 20;
    assert!(own > 0 && own <= most, "{own} own calls");
    let (calls, refused) = (clients.calls.load(Relaxed), clients.refused.load(Relaxed));
    let slowest = clients.slowest_ms.load(Relaxed);
    println!("study: {calls} calls of clients, {refused} refused, {slowest} ms at most; {own} own");
    assert!(refused * 100 < calls, "{refused} of {calls}: {}", wellhead.process.log());

    // A restart knows the limit before it studies anything, and what was spent.
    let wellhead = wellhead.restart().await;
    let found = known(&wellhead).await.expect("it was kept");
    assert!((found / f64::from(AFTER.per_second) - 1.0).abs() < 0.2, "{found}");
    let spent = || async {
        let study = status(&wellhead).await?["study"].clone();
        study["calls_in_hour"].as_u64().filter(|calls| *calls > 0)
    };
    assert!(until(STUDY_MAX, spent).await.is_some(), "{:?}", status(&wellhead).await);

    // A reload ends it, and with it what it found.
    wellhead.rewrite(|config| config.replace(&format!(", {fields}"), ""));
    let ended = || async {
        let is_over = status(&wellhead).await?["study"].is_null();
        (is_over && known(&wellhead).await.is_none()).then_some(())
    };
    assert!(until(STUDY_MAX, ended).await.is_some(), "{:?}", status(&wellhead).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_followed_where_there_is_no_other_upstream() {
    study(false, Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_followed_beside_another_upstream() {
    study(true, Duration::from_millis(50)).await;
}
