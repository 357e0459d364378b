//! Each way to go wrong does what it says, without the proxy in between: a fault that
//! does no harm would prove nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use wellhead_eth::MethodTable;
use wellhead_sim::{SimNode, World, WorldConfig};
use wellhead_simulation::evidence::{Caller, Evidence, Place};
use wellhead_simulation::record::Recorder;
use wellhead_simulation::scenario::{Scale, Scenario};
use wellhead_simulation::upstream::{SimLink, SimUpstream};
use wellhead_simulation::weather::{Kind, Spell};
use wellhead_simulation::words::Dialect;
use wellhead_transport::{Exchange, Transport, WireReply};
use wellhead_upstream::Judge;

const HEIGHT: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
const HASH: &str = r#"{"jsonrpc":"2.0","id":1,"method":"web3_sha3","params":["0x07"]}"#;
const OLD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","0x1"]}"#;
const SYNCING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_syncing","params":[]}"#;
const BATCH: &str = r#"[{"jsonrpc":"2.0","id":0,"method":"eth_blockNumber"},{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}]"#;

/// An upstream in this weather, by itself, that answers at once.
fn upstream(kind: Option<Kind>, seed: u64) -> SimLink {
    upstream_after(kind, seed, Duration::ZERO)
}

/// One that answers after `latency`.
fn upstream_after(kind: Option<Kind>, seed: u64, latency: Duration) -> SimLink {
    upstream_of(kind, seed, latency, 0)
}

/// One in whose world each block has so many transactions.
fn upstream_of(kind: Option<Kind>, seed: u64, latency: Duration, txs_per_block: u32) -> SimLink {
    let mut scenario = Scenario::draw(1, Scale::Short);
    let config = WorldConfig {
        history_blocks: 30,
        wallets: 1,
        bots: 1,
        txs_per_block,
        ..WorldConfig::seeded(1)
    };
    let plan = &mut scenario.chains[0].upstreams[0];
    (plan.has_feed, plan.budget) = (false, None);
    (plan.latency, plan.jitter) = (latency, Duration::ZERO);
    (plan.meter, plan.shaped) = (None, None);
    (plan.takes_batches, plan.is_elsewhere) = (true, false);
    let spell = |kind| Spell { from: Duration::ZERO, until: Duration::from_secs(60), kind };
    plan.spells = kind.map(spell).into_iter().collect();
    let plan = plan.clone();
    let recorder = Recorder::new(Evidence::new(scenario));
    let node = SimNode::new("up", World::new(config));
    let place = Place { chain: 0, slot: 0 };
    let upstream = SimUpstream::new(place, plan, node, &recorder, seed);
    if let Some(kind) = kind {
        upstream.begin(kind);
    }
    SimLink::new(Arc::clone(&upstream), Caller::Client)
}

async fn ask(link: &SimLink, body: &str) -> Result<WireReply, String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let exchange = Exchange {
        trace: None,
        body: Bytes::from(body.to_owned()),
        deadline: deadline.into_std(),
        whole_max: usize::MAX,
        bulky: false,
    };
    match timeout(Duration::from_secs(20), link.exchange(exchange)).await {
        Err(_elapsed) => Err("silence".to_owned()),
        Ok(Err(error)) => Err(format!("{} {:?}", error.kind.word(), error.sent)),
        Ok(Ok(reply)) => Ok(reply),
    }
}

/// What a call in this weather brings, whatever the upstream's chance: how it failed, or
/// what the judge says.
async fn check(kind: Kind, body: &str, expected: &str) {
    for seed in 0..12 {
        let link = upstream(Some(kind), seed);
        let said = match ask(&link, body).await {
            Err(failure) => failure,
            Ok(reply) => {
                let method = body.split('"').nth(9).expect("a call");
                let row = MethodTable::standard().row(method);
                Judge::standard().reply(row, &reply).class.word().to_owned()
            }
        };
        assert!(expected.split('|').any(|it| it == said), "{kind:?}, seed {seed}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn exchanges_that_bring_nothing() {
    check(Kind::Crash, HASH, "connect No").await;
    check(Kind::Hang, HASH, "silence").await;
    check(Kind::Reset { unread: true }, HASH, "closed No").await;
    check(Kind::Reset { unread: false }, HASH, "closed Maybe").await;
    check(Kind::Truncate, HASH, "truncated Maybe").await;
}

#[tokio::test(start_paused = true)]
async fn logs_that_are_hidden() {
    const LOGS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"fromBlock":"0x0","toBlock":"latest"}]}"#;
    let said = async |kind| {
        let reply = ask(&upstream_of(kind, 1, Duration::ZERO, 2), LOGS).await.expect("an answer");
        let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
        reply["result"].as_array().expect("a list").is_empty()
    };
    assert!(!said(None).await && said(Some(Kind::NoLogs)).await);
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_none() {
    check(Kind::Garble, HASH, "fault").await;
    check(Kind::Page(502), HASH, "fault").await;
    check(Kind::Page(404), HASH, "fault").await;
    check(Kind::Internal, HASH, "fault|unknown").await;
    check(Kind::Unknown, HASH, "unknown").await;
    check(Kind::WrongId, HASH, "fault").await;
    check(Kind::Auth, HASH, "auth").await;
    check(Kind::Billing, HASH, "billing").await;
    check(Kind::Unsupported, HASH, "unsupported").await;
    check(Kind::Pruned, OLD, "missing_data").await;
    for dialect in [
        Dialect::Plain(None),
        Dialect::Plain(Some(3)),
        Dialect::Html,
        Dialect::Infura,
        Dialect::InfuraInside(2),
        Dialect::Alchemy,
        Dialect::AlchemyInside,
        Dialect::QuickNode,
    ] {
        check(Kind::Throttle(dialect), HASH, "throttled").await;
        check(Kind::Throttle(dialect), BATCH, "throttled").await;
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_are_asked_for() {
    let check = async |dialect: Dialect, expected| {
        let link = upstream(Some(Kind::Throttle(dialect)), 1);
        let reply = ask(&link, HASH).await.expect("a refusal");
        let row = MethodTable::standard().row("web3_sha3");
        let asked = Judge::standard().reply(row, &reply).retry_after;
        assert_eq!(asked, expected, "{dialect:?}");
        assert_eq!(dialect.asks_for(), expected, "{dialect:?}");
    };
    check(Dialect::Plain(Some(3)), Some(Duration::from_secs(3))).await;
    check(Dialect::InfuraInside(5), Some(Duration::from_secs(5))).await;
    check(Dialect::Plain(None), None).await;
}

/// The result of a call in this weather.
async fn result(kind: Option<Kind>, body: &str) -> (String, Duration) {
    let link = upstream(kind, 1);
    let began = Instant::now();
    let reply = ask(&link, body).await.expect("an answer");
    let value: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    (value["result"].to_string(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_old_or_late() {
    assert_eq!(result(None, HEIGHT).await, ("\"0x1e\"".to_owned(), Duration::ZERO));
    assert_eq!(result(Some(Kind::Lag(3)), HEIGHT).await.0, "\"0x1b\"");
    assert_eq!(result(Some(Kind::Syncing), HEIGHT).await.0, "\"0xa\"");
    assert!(result(Some(Kind::Syncing), SYNCING).await.0.contains("highestBlock"));
    let slow = Duration::from_secs(3);
    assert_eq!(result(Some(Kind::Slow(slow)), HEIGHT).await.1, slow);
    assert_eq!(result(None, SYNCING).await.0, "false");
}

#[tokio::test(start_paused = true)]
async fn lies_are_answers_that_differ_in_a_value() {
    const BLOCK: &str =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x5",false]}"#;
    let (truth, _) = result(None, BLOCK).await;
    let (lie, _) = result(Some(Kind::Lie), BLOCK).await;
    assert!(truth != lie && lie.contains(r#""gasUsed":"0xbad""#), "{lie}");
    let but_for = |told: &str| {
        let mut told: serde_json::Value = serde_json::from_str(told).expect("JSON");
        told["gasUsed"].take();
        told
    };
    assert_eq!(but_for(&truth), but_for(&lie));
    // Of other things it tells the truth.
    assert_eq!(result(Some(Kind::Lie), HEIGHT).await.0, "\"0x1e\"");
    check(Kind::Lie, HASH, "answer").await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_back_without_an_item() {
    let count = async |kind| {
        let reply = ask(&upstream(kind, 1), BATCH).await.expect("an answer");
        let value: Vec<serde_json::Value> = serde_json::from_slice(&reply.body).expect("JSON");
        value.len()
    };
    assert_eq!(count(None).await, 2);
    assert_eq!(count(Some(Kind::LoseItems)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_dies_with_all_that_it_carries() {
    // Slow enough that all are on the way together.
    let link = upstream_after(Some(Kind::Die { after: 3 }), 1, Duration::from_millis(50));
    let all = tokio::join!(ask(&link, HASH), ask(&link, HASH), ask(&link, HASH), ask(&link, HASH));
    let said = [all.0, all.1, all.2, all.3]
        .map(|one| one.map_or_else(|failure| failure, |_| "answer".to_owned()));
    assert_eq!(said, ["closed No", "closed Maybe", "closed No", "answer"]);
}
