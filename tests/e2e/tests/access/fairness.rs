//! One tenant floods, another makes light calls: none of these fails, and each has its turn.
//!
//! Latencies are printed beside those of a run without the flood; what is asserted are counts, which do not
//! depend on the machine. `WELLHEAD_FLOOD_SECONDS` makes the flood longer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use wellhead_e2e::{Fault, KeyFile, Rpc};

use crate::site::{Site, balance_call};

/// What a heavy call takes at the upstream.
const HEAVY: Duration = Duration::from_millis(50);
/// What the flooder may do, and how much more it tries.
const RATE: u64 = 40;
const TIMES: u64 = 10;
/// More than wait for the upstream at one moment, so that the others go on.
const FLOODERS: usize = 120;
const CALL_EVERY: Duration = Duration::from_millis(50);

fn flood_time() -> Duration {
    let seconds = std::env::var("WELLHEAD_FLOOD_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(3))
}

fn settings(keys: &KeyFile, quota: &str) -> String {
    format!(
        "access: {{ keys: {{ file: \"{}\" }} }}\ntenants: {{ calm: {{}}, loud: {{ quota: loud }} }}\n\
         quotas: {{ loud: {{ {quota} }} }}\n",
        keys.path().display()
    )
}

/// Latencies of light calls, one each interval for some time. All of them are served.
async fn calm(client: &Rpc, lasts: Duration, first: u64) -> Vec<Duration> {
    let end = Instant::now() + lasts;
    let mut ticks = interval(CALL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut took = Vec::new();
    for number in first.. {
        ticks.tick().await;
        let began = Instant::now();
        if began >= end {
            break;
        }
        let (call, result) = balance_call(number);
        let reply = client.post(call.to_string()).await.unwrap();
        assert_eq!(reply.json().unwrap()["result"], result, "{reply:?}");
        took.push(began.elapsed());
    }
    took.sort();
    took
}

#[derive(Default)]
struct Flood {
    stop: AtomicBool,
    sent: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
}

/// Heavy calls at ten times the limit until it is stopped; whatever is neither served nor refused fails the test.
async fn flood(client: &Rpc, flood: &Flood, flooder: usize) {
    let one = Duration::from_secs(1) / (RATE * TIMES) as u32;
    // One after the other, and not all at once.
    let mut ticks = interval_at(Instant::now() + one * flooder as u32, one * FLOODERS as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !flood.stop.load(Relaxed) {
        ticks.tick().await;
        let number = flood.sent.fetch_add(1, Relaxed);
        // Blocks that were not asked for before.
        let block = format!("{:#x}", 1_000 + number);
        let range =
            json!({ "fromBlock": block, "toBlock": block, "address": format!("0x{flooder:040x}") });
        let (answer, reply) = client.call_with_reply("eth_getLogs", json!([range])).await.unwrap();
        let count = match reply.status {
            200 => &flood.served,
            429 => &flood.refused,
            other => panic!("{other}: {answer}"),
        };
        count.fetch_add(1, Relaxed);
    }
}

fn told(name: &str, alone: &[Duration], beside: &[Duration]) {
    let at = |took: &[Duration], percent: usize| took[(took.len() - 1) * percent / 100];
    for percent in [50, 99] {
        let (alone, beside) = (at(alone, percent), at(beside, percent));
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!(
            "{name}: p{percent} alone {alone:?}, beside the flood {beside:?}: {ratio:.2} times"
        );
    }
}

/// Calls alone and beside a flood, at an upstream with these fields and with this quota of the flooder.
/// Returns what held calls at the upstream.
async fn beside_a_flood(name: &str, quota: &str, fields: &str) -> String {
    let mut keys = KeyFile::new();
    let [calm_key, loud_key] = [keys.add("calm", |_| {}), keys.add("loud", |_| {})];
    let site = Site::start_with(&settings(&keys, quota), fields).await;
    site.proxy.set(Fault::Slow("eth_getLogs", HEAVY));
    let (calm_client, loud_client) = (site.client(&calm_key), site.client(&loud_key));
    let lasts = flood_time();
    let alone = calm(&calm_client, lasts, 0).await;
    let state = Flood::default();
    let began = Instant::now();
    let flooding = join_all((0..FLOODERS).map(|flooder| flood(&loud_client, &state, flooder)));
    let calling = async {
        let beside = calm(&calm_client, lasts, 1_000_000).await;
        state.stop.store(true, Relaxed);
        beside
    };
    let (_, beside) = tokio::join!(flooding, calling);
    let took = began.elapsed();
    let (sent, served, refused) =
        (state.sent.load(Relaxed), state.served.load(Relaxed), state.refused.load(Relaxed));
    println!("{name}: the flood in {took:?}: {sent} calls, {served} served, {refused} refused");
    println!("{name}: beside it {} calls, all served; without it {}", beside.len(), alone.len());
    told(name, &alone, &beside);
    let status = site.wellhead.admin().get("/status").await.unwrap().json().unwrap();
    let held = status["chains"][0]["upstreams"][0]["held"].to_string();
    println!("{name}: held {held}");
    assert!(refused > 0 && served > 0);
    assert_eq!(sent, served + refused);
    let most = RATE as f64 * (1.0 + took.as_secs_f64());
    assert!(served as f64 <= most, "{served} served, {most:.1} at most");
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_tenant_costs_others_no_call() {
    let rate = format!("calls_per_second: {RATE}");
    beside_a_flood("an upstream with room", &rate, "").await;
    // What is served of the flood would take all places of the upstream, but one is left to others.
    let fields = "budget: { in_flight: 4, learn: false }";
    let held = beside_a_flood("four at once", &rate, fields).await;
    assert!(held.contains("client_share"), "{held}");
    let bounded = format!("{rate}, in_flight: 2");
    beside_a_flood("four at once, two of the flood", &bounded, fields).await;
}

/// Where nothing but the upstream bounds the flood, its calls wait in line, and others pass them: between two calls
/// of another tenant a few of the flood are served, and not all that wait.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_take_turns_in_line() {
    const WAITING: usize = 64;
    const CALLS: u64 = 30;
    const PLACES: u64 = 4;
    let mut keys = KeyFile::new();
    let [calm_key, loud_key] = [keys.add("calm", |_| {}), keys.add("loud", |_| {})];
    let fields = format!("budget: {{ in_flight: {PLACES}, learn: false }}");
    // Each worker has a line of its own, and which of them is quicker to take a free place is up to the machine.
    let settings = format!("workers: 1\n{}", settings(&keys, "in_flight: 1000"));
    let site = Site::start_with(&settings, &fields).await;
    site.proxy.set(Fault::Slow("eth_getBalance", HEAVY));
    let (calm_client, loud_client) = (site.client(&calm_key), site.client(&loud_key));
    let state = Flood::default();
    let flooding = join_all((0..WAITING).map(|_| async {
        while !state.stop.load(Relaxed) {
            let (call, result) = balance_call(state.sent.fetch_add(1, Relaxed));
            let reply = loud_client.post(call.to_string()).await.unwrap();
            assert_eq!(reply.json().unwrap()["result"], result, "{reply:?}");
            state.served.fetch_add(1, Relaxed);
        }
    }));
    let calling = async {
        // The line is full when twice as many calls were served as can be under way.
        let is_full = || async { (state.served.load(Relaxed) >= 2 * PLACES).then_some(()) };
        wellhead_e2e::until(Duration::from_secs(30), is_full).await.expect("the flood runs");
        let before = state.served.load(Relaxed);
        for number in 0..CALLS {
            let (call, result) = balance_call(1_000_000 + number);
            let reply = calm_client.post(call.to_string()).await.unwrap();
            assert_eq!(reply.json().unwrap()["result"], result, "{reply:?}");
        }
        let served = state.served.load(Relaxed) - before;
        state.stop.store(true, Relaxed);
        served
    };
    let (_, served) = tokio::join!(flooding, calling);
    let each = served as f64 / CALLS as f64;
    println!(
        "{WAITING} calls of the flood under way: {each:.1} of them served for each call of another tenant"
    );
    // With turns: those that are under way when it comes, and those that take the other places until it is
    // answered. In the order of arrival it would be all 64.
    assert!(each <= 4.0 * PLACES as f64, "{served} of the flood for {CALLS} calls");
}
