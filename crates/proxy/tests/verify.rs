//! Answers are looked at before they are passed on.

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Plan, SECRET, Stage, Step, text};
use wellhead_kit::result;
use wellhead_proxy::{Level, Thought, VerifySettings};
use wellhead_sim::{SimNode, World, WorldConfig};
use wellhead_upstream::{Slot, UpstreamSet};

const BLOCK: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";

/// A stage whose answers are looked at, over a chain like the simulated one.
fn stage(level: Level, upstreams: usize) -> Stage {
    stage_where(VerifySettings { level, ..settings() }, upstreams)
}

fn settings() -> VerifySettings {
    VerifySettings { ethereum: Some(true), ..VerifySettings::OFF }
}

fn stage_where(verify: VerifySettings, upstreams: usize) -> Stage {
    Stage::new(vec![Plan { id: Some(1337), upstreams, verify, ..Plan::default() }])
}

/// The truth.
struct Truth(Arc<SimNode>);

impl Truth {
    fn new() -> Self {
        let config = WorldConfig { history_blocks: 4, txs_per_block: 5, ..WorldConfig::seeded(11) };
        assert_eq!(config.chain_id, 1337);
        Self(SimNode::new("truth", World::new(config)))
    }

    fn say(&self, method: &str, params: &str) -> Value {
        let params: Value = serde_json::from_str(params).expect("JSON");
        self.0.ask(method, Some(&params)).expect("the truth is known")
    }

    /// With another value in the place of what `pointer` points at.
    fn forged(&self, method: &str, params: &str, pointer: &str, value: Value) -> String {
        let mut said = self.say(method, params);
        *said.pointer_mut(pointer).expect("it is there") = value;
        said.to_string()
    }
}

fn status(stage: &Stage) -> Value {
    serde_json::to_value(stage.proxy.status()).expect("as JSON")
}

fn voids(stage: &Stage) -> Vec<Value> {
    let status = status(stage);
    status["chains"][0]["void_answers"].as_array().expect("a list").clone()
}

/// The lines of the metrics about answers that were looked at.
fn counted(stage: &Stage) -> Vec<String> {
    let text = stage.metrics();
    let lines = text.lines().filter(|line| line.starts_with("wellhead_verify"));
    lines.map(|line| line.replace(r#"chain="ethereum","#, "")).collect()
}

async fn send(stage: &Stage, method: &str, params: &str) -> wellhead_proxy::Answer {
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
    stage.send(None, &body).await
}

#[tokio::test(start_paused = true)]
async fn a_lie_goes_to_no_client_and_is_shown_to_the_operator() {
    let (stage, truth) = (stage(Level::Full, 2), Truth::new());
    let params = r#"["0x2",true]"#;
    let lie = truth.forged(BLOCK, params, "/gasUsed", json!("0x5208"));
    let sound = truth.say(BLOCK, params).to_string();
    stage.peer(0).next(BLOCK, result(&lie));
    stage.peer(1).next(BLOCK, result(&sound));
    let answer = send(&stage, BLOCK, params).await;
    assert_eq!(text(&answer), format!(r#"{{"jsonrpc":"2.0","id":7,"result":{sound}}}"#));
    assert_eq!(
        answer.trail.as_deref(),
        Some("a=void/block-hash:0ms b=answer/sound-full:0ms cache=off")
    );
    assert_eq!(stage.upstream(0).totals().1, 1);
    assert_eq!(stage.upstream(1).totals().1, 0);

    let voids = voids(&stage);
    let [void] = voids.as_slice() else { panic!("one: {voids:?}") };
    assert_eq!(
        [&void["upstream"], &void["method"], &void["check"], &void["params"]],
        ["a", BLOCK, "block-hash", params]
    );
    assert!(void["detail"].as_str().expect("words").starts_with("named 0x"), "{void}");
    let shown = void["answer"].as_str().expect("text");
    assert!(lie.starts_with(shown) && shown.len() == 2048, "{shown}");
    let a = &status(&stage)["chains"][0]["upstreams"][0];
    assert!(a["last_problem"].as_str().expect("a problem").starts_with("void: `block-hash`"));
    assert_eq!(
        counted(&stage),
        [
            r#"wellhead_verify_total{method="eth_getBlockByNumber",finding="sound"} 1"#,
            r#"wellhead_verify_total{method="eth_getBlockByNumber",finding="void"} 1"#,
            r#"wellhead_verify_void_total{upstream="a",method="eth_getBlockByNumber",check="block-hash"} 1"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn answers_of_trusted_upstreams_are_taken_as_they_are() {
    let mut trusted = UpstreamSet::NONE;
    trusted.insert(Slot(1));
    let verify = VerifySettings { level: Level::Cheap, trusted, ..settings() };
    let (stage, truth) = (stage_where(verify.clone(), 2), Truth::new());
    let params = r#"["0x2",false]"#;
    let another = truth.say(BLOCK, r#"["0x3",false]"#).to_string();
    stage.peer(0).next(BLOCK, result(&another));
    stage.peer(1).next(BLOCK, result(&another));
    let answer = send(&stage, BLOCK, params).await;
    assert_eq!(text(&answer), format!(r#"{{"jsonrpc":"2.0","id":7,"result":{another}}}"#));
    let trail = answer.trail.as_deref().expect("a trail");
    assert!(trail.starts_with("a=void/asked-number:0ms b=answer/"), "{trail}");
    assert!(!trail.contains("sound"), "{trail}");
    assert_eq!(voids(&stage).len(), 1);

    // A level for the method itself holds for all.
    let levels = vec![(vec![BLOCK.parse().expect("a pattern")], Level::Cheap)];
    let stage = stage_where(VerifySettings { levels, ..verify }, 2);
    stage.peer(0).next(BLOCK, result(&another));
    stage.peer(1).next(BLOCK, result(&another));
    assert_eq!(send(&stage, BLOCK, params).await.status, 503);
    assert_eq!(voids(&stage).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_all_lie_the_error_names_the_check() {
    let (stage, truth) = (stage(Level::Cheap, 2), Truth::new());
    let params = r#"["0x2",false]"#;
    let another = truth.say(BLOCK, r#"["0x3",false]"#).to_string();
    stage.peer(0).next(BLOCK, result(&another));
    stage.peer(1).next(BLOCK, result(r#"{"number":"0x2"}"#));
    let answer = send(&stage, BLOCK, params).await;
    assert_eq!((answer.status, answer.retry_after.is_some()), (503, true));
    let error: Value = serde_json::from_str(&text(&answer)).expect("JSON");
    let message = error["error"]["message"].as_str().expect("words");
    assert_eq!(
        message,
        "no upstream gave a valid answer; made 2 attempts: \
         a: void: `asked-number`: block 3, not 2; b: void: `shape`: `hash` is missing"
    );
    assert_eq!(error["error"]["data"]["attempts"][0]["verdict"], "void");
}

/// What becomes of the lie of the first of two upstreams at a level.
async fn check(level: Level, method: &str, params: &str, lie: &str, found: Option<&str>) {
    let (stage, truth) = (stage(level, 2), Truth::new());
    let sound = truth.say(method, params).to_string();
    stage.peer(0).next(method, result(lie));
    stage.peer(1).next(method, result(&sound));
    let answer = stage.call(method, params).await;
    let voids = voids(&stage);
    let told = voids.first().map(|void| void["check"].as_str().expect("a word"));
    assert_eq!(told, found, "{level} {method}{params}");
    let expected = if found.is_some() { &sound } else { lie };
    assert_eq!(answer, *expected, "{level} {method}{params}");
}

#[tokio::test(start_paused = true)]
async fn the_level_says_what_is_found() {
    let truth = Truth::new();
    let params = r#"["0x2",true]"#;
    let gas = truth.forged(BLOCK, params, "/gasUsed", json!("0x1"));
    check(Level::Off, BLOCK, params, &gas, None).await;
    check(Level::Cheap, BLOCK, params, &gas, None).await;
    check(Level::Full, BLOCK, params, &gas, Some("block-hash")).await;
    let index = truth.forged(BLOCK, params, "/transactions/0/transactionIndex", json!("0x4"));
    check(Level::Off, BLOCK, params, &index, None).await;
    check(Level::Cheap, BLOCK, params, &index, Some("order")).await;
    check(Level::Cheap, "eth_gasPrice", "[]", r#""many""#, Some("quantity")).await;
    // For what there is no check, or whose null says something.
    check(Level::Full, "web3_sha3", r#"["0x07"]"#, r#""0x07""#, None).await;
}

#[tokio::test(start_paused = true)]
async fn methods_have_levels_of_their_own() {
    let glob = |text: &str| vec![text.parse().expect("a pattern")];
    let levels = vec![(glob("eth_getBlockBy*"), Level::Off), (glob("eth_getBlock*"), Level::Full)];
    let stage =
        stage_where(VerifySettings { level: Level::Cheap, levels, ..VerifySettings::OFF }, 1);
    let level = |method| {
        let client = [127, 0, 0, 1].into();
        let thought = Thought { chain: None, method, params: None, client, select: &[] };
        stage.proxy.explain(thought).expect("explained").verify.level
    };
    assert_eq!(level(BLOCK), "off");
    assert_eq!(level(RECEIPTS), "full");
    assert_eq!(level("eth_getLogs"), "cheap");
    assert_eq!(level("eth_call"), "off");
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_batch_goes_on_alone() {
    let (stage, truth) = (stage(Level::Full, 2), Truth::new());
    let params = |number| format!(r#"["0x{number:x}",false]"#);
    let said = |number| truth.say(BLOCK, &params(number)).to_string();
    let lie = truth.forged(BLOCK, &params(2), "/timestamp", json!("0x1"));
    for say in [said(1), lie, said(3)] {
        stage.peer(0).next(BLOCK, result(&say));
    }
    stage.peer(1).next(BLOCK, result(&said(2)));
    let call = |number| {
        let params = params(number);
        format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{BLOCK}","params":{params}}}"#)
    };
    let answers = stage.ask(&format!("[{},{},{}]", call(1), call(2), call(3))).await;
    let answers: Vec<Value> = serde_json::from_str(&answers).expect("JSON");
    let results: Vec<String> = answers.iter().map(|it| it["result"].to_string()).collect();
    let same = |one: &str, other: &str| {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(read(one), read(other));
    };
    for (number, told) in (1..=3).zip(&results) {
        same(told, &said(number));
    }
    // Alone it went to the other one.
    assert_eq!(voids(&stage).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn receipts_are_compared_with_a_header_that_was_proven() {
    let (stage, truth) = (stage(Level::Full, 2), Truth::new());
    let params = r#"["0x2"]"#;
    let lie = truth.forged(RECEIPTS, params, "/0/cumulativeGasUsed", json!("0x5209"));
    let mut lie: Value = serde_json::from_str(&lie).expect("JSON");
    lie[0]["gasUsed"] = json!("0x5209");
    let lie = Value::Array(vec![lie[0].take()]).to_string();
    let sound = truth.say(RECEIPTS, params).to_string();
    // Nothing to compare with: it agrees with itself.
    stage.peer(0).next(RECEIPTS, result(&lie));
    assert_eq!(stage.call(RECEIPTS, params).await, lie);
    let block = truth.say(BLOCK, r#"["0x2",false]"#).to_string();
    stage.peer(0).next(BLOCK, result(&block));
    assert_eq!(stage.call(BLOCK, r#"["0x2",false]"#).await, block);
    stage.peer(0).next(RECEIPTS, result(&lie));
    stage.peer(1).next(RECEIPTS, result(&sound));
    assert_eq!(stage.call(RECEIPTS, params).await, sound);
    let voids = voids(&stage);
    assert_eq!((voids.len(), &voids[0]["method"]), (1, &json!(RECEIPTS)), "{voids:?}");
    assert!(counted(&stage).iter().any(|line| line.contains(r#""not_checked"} 1"#)));
}

#[tokio::test(start_paused = true)]
async fn a_void_answer_is_not_kept() {
    let verify = VerifySettings { level: Level::Full, ..settings() };
    let plan = Plan { id: Some(1337), upstreams: 2, keeps: true, verify, ..Plan::default() };
    let (stage, truth) = (Stage::new(vec![plan]), Truth::new());
    for place in 0..2 {
        stage.show_head(place, 4);
        stage.show_final(place, 3);
    }
    let params = r#"["0x2",false]"#;
    let sound = truth.say(BLOCK, params).to_string();
    stage.peer(0).next(BLOCK, result(&truth.forged(BLOCK, params, "/size", json!("0x1"))));
    // The size is not part of the header: that lie is told.
    assert_ne!(stage.call(BLOCK, params).await, sound);
    let params = r#"["0x1",false]"#;
    let sound = truth.say(BLOCK, params).to_string();
    stage
        .peer(0)
        .next(BLOCK, result(&truth.forged(BLOCK, params, "/nonce", json!("0x0000000000000001"))));
    stage.peer(1).next(BLOCK, result(&sound));
    for found in ["miss", "hit"] {
        let answer = send(&stage, BLOCK, params).await;
        assert!(text(&answer).contains(&sound));
        assert_eq!(answer.cache, Some(found));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_holds_no_secret() {
    let stage = stage(Level::Cheap, 1);
    let lie = format!(r#"{{"number":"at https://node/{SECRET}/","hash":1}}"#);
    stage.peer(0).next(BLOCK, result(&lie));
    let told = stage.call(BLOCK, r#"["0x2",false]"#).await;
    let shown = status(&stage).to_string() + &told;
    assert!(!shown.contains(SECRET) && shown.contains("https://node/***/"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn large_answers_flow_unseen_or_are_held() {
    let params = r#"["0x1111111111111111111111111111111111111111111111111111111111111111"]"#;
    let large = format!("\"0x{}\"", "ab".repeat(600 << 10));
    let method = "eth_getRawTransactionByHash";
    let cheap = stage(Level::Cheap, 1);
    cheap.peer(0).next(method, result(&large));
    let answer = send(&cheap, method, params).await;
    assert!(answer.rest.is_some());
    let line = format!(r#"wellhead_verify_total{{method="{method}",finding="flowed"}} 1"#);
    assert_eq!(counted(&cheap), [line]);
    let full = stage(Level::Full, 1);
    full.peer(0).next(method, result(&large));
    let answer = send(&full, method, params).await;
    assert!(answer.rest.is_none() && text(&answer).contains("`transaction-hash`"));
}

#[tokio::test(start_paused = true)]
async fn what_stands_behind_a_long_result_does_not_make_it_void() {
    let stage = stage(Level::Cheap, 1);
    let more = vec!["1"; 40_000].join(",");
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":[],"more":[{more}]}}"#);
    stage.peer(0).next("eth_getLogs", wellhead_kit::status(200, body));
    let params = r#"[{"fromBlock":"0x1","toBlock":"0x2"}]"#;
    let answer = text(&send(&stage, "eth_getLogs", params).await);
    assert!(answer.contains(r#""result":[]"#), "{}", &answer[..200]);
    assert!(voids(&stage).is_empty());
}

/// Where the logs of one block are held against its receipts.
fn proving(upstreams: usize) -> Stage {
    let verify = VerifySettings { level: Level::Full, proves_logs: true, ..settings() };
    stage_where(verify, upstreams)
}

fn calls(stage: &Stage, place: usize) -> Vec<String> {
    let calls = stage.peer(place).seen();
    let method = |call: &String| call.split('"').nth(1).expect("a method").to_owned();
    calls.iter().map(method).collect()
}

#[tokio::test(start_paused = true)]
async fn the_logs_of_one_block_are_those_of_its_receipts() {
    let truth = Truth::new();
    let hash = truth.say(BLOCK, r#"["0x2",false]"#)["hash"].as_str().expect("a hash").to_owned();
    let by_hash = format!(r#"[{{"blockHash":"{hash}"}}]"#);
    let header = truth.say("eth_getBlockByHash", &format!(r#"["{hash}",false]"#)).to_string();
    let receipts = truth.say(RECEIPTS, &format!(r#"["{hash}"]"#)).to_string();
    let logs = truth.say("eth_getLogs", &by_hash);
    let all = logs.as_array().expect("logs").clone();
    assert!(all.len() > 2, "{} logs", all.len());
    let some = Value::Array(all[1..].to_vec());
    let by_number = r#"[{"fromBlock":"0x2","toBlock":"0x2"}]"#;
    for (params, told, is_sound) in [
        (by_hash.as_str(), logs.clone(), true),
        (by_hash.as_str(), some.clone(), false),
        (by_hash.as_str(), json!([]), false),
        (by_number, logs.clone(), true),
        (by_number, some, false),
    ] {
        let stage = proving(1);
        stage.peer(0).next("eth_getLogs", result(&told.to_string()));
        stage.peer(0).next("eth_getBlockByHash", result(&header));
        stage.peer(0).next(RECEIPTS, result(&receipts));
        let answer: Value =
            serde_json::from_str(&text(&send(&stage, "eth_getLogs", params).await)).expect("JSON");
        assert_eq!(answer["result"], logs, "{params} {told}");
        let asked = ["eth_getLogs", "eth_getBlockByHash", RECEIPTS];
        assert_eq!(calls(&stage, 0), asked, "{params}");
        let found: Vec<Value> = voids(&stage).iter().map(|void| void["check"].clone()).collect();
        assert_eq!(found, if is_sound { vec![] } else { vec![json!("complete")] });
        // The header is known by now.
        stage.peer(0).next("eth_getLogs", result(&logs.to_string()));
        stage.peer(0).next(RECEIPTS, result(&receipts));
        send(&stage, "eth_getLogs", params).await;
        assert_eq!(calls(&stage, 0)[3..], ["eth_getLogs", RECEIPTS]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_proof_logs_are_told_as_they_came() {
    let truth = Truth::new();
    let hash = truth.say(BLOCK, r#"["0x2",false]"#)["hash"].as_str().expect("a hash").to_owned();
    let params = format!(r#"[{{"blockHash":"{hash}"}}]"#);
    let header = truth.say("eth_getBlockByHash", &format!(r#"["{hash}",false]"#)).to_string();
    let logs = truth.say("eth_getLogs", &params).to_string();
    let forged = truth.forged(RECEIPTS, &format!(r#"["{hash}"]"#), "/0/gasUsed", json!("0x1"));
    let check = async |stage: Stage, header: Step, receipts: Step| {
        stage.peer(0).next("eth_getLogs", result(&logs));
        stage.peer(0).next("eth_getBlockByHash", header);
        stage.peer(0).next(RECEIPTS, receipts);
        let told = text(&send(&stage, "eth_getLogs", &params).await);
        assert_eq!(told, format!(r#"{{"jsonrpc":"2.0","id":7,"result":{logs}}}"#));
        let voids = voids(&stage);
        assert!(voids.iter().all(|void| void["check"] != "complete"), "{voids:?}");
        calls(&stage, 0).len()
    };
    let none = || Step::Error(r#"{"code":-32000,"message":"header not found"}"#.to_owned());
    check(proving(1), none(), none()).await;
    check(proving(1), result(&header), none()).await;
    check(proving(1), result(&header), result(&forged)).await;
    let cheap = VerifySettings { level: Level::Cheap, proves_logs: true, ..settings() };
    assert_eq!(check(stage_where(cheap, 1), none(), none()).await, 1);
    let unknown = VerifySettings { level: Level::Full, ethereum: Some(false), ..settings() };
    let unknown = VerifySettings { proves_logs: true, ..unknown };
    assert_eq!(check(stage_where(unknown, 1), none(), none()).await, 1);
}
