//! What would become of a call is told without making it.

mod support;

use std::time::Duration;

use support::{Plan, Stage, Step};
use wellhead_kit::{result, throttle};
use wellhead_proxy::{Explanation, Thought};
use wellhead_upstream::Tier;

fn explain(stage: &Stage, client: u8, method: &str, params: &str) -> Result<Explanation, String> {
    let client = [127, 0, 0, client].into();
    let params = Some(params.as_bytes());
    stage.proxy.explain(Thought { chain: None, method, params, client, select: &[] })
}

/// The upstreams as `name:place`, those never asked without a place.
fn order(told: &Explanation) -> String {
    let place = |place: Option<usize>| place.map_or(String::new(), |place| place.to_string());
    let words = told.upstreams.iter().map(|it| format!("{}:{}", it.id, place(it.place)));
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn the_block_the_cache_and_the_order_are_told() {
    let stage = Stage::keeping(3);
    for (place, head) in [(0, 100), (1, 100), (2, 90)] {
        stage.show_head(place, head);
    }
    let told = explain(&stage, 1, "eth_getBalance", r#"["0xab","latest"]"#).expect("told");
    assert_eq!((told.block.asked.as_str(), told.block.sent.as_str()), ("latest", "100"));
    assert_eq!(told.block.params.as_deref(), Some(r#"["0xab","0x64"]"#));
    assert_eq!((told.cache.asked, told.cache.why), (false, "unproven"));
    assert!(order(&told).ends_with("c:3"), "{told:?}");
    assert!(told.upstreams[2].why.contains("90"), "{told:?}");

    let told = explain(&stage, 1, "eth_getBlockByNumber", r#"["0x5",false]"#).expect("told");
    assert_eq!((told.cache.asked, told.cache.why), (true, "looked up"));
    assert_eq!(told.block.why, "the client named it");
    let told = explain(&stage, 1, "eth_chainId", "[]").expect("told");
    assert_eq!((told.effect.as_str(), told.upstreams.len()), ("local", 0));
    // Nothing was sent, and nothing counted.
    assert!(stage.peers[0].iter().all(|peer| peer.seen().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn each_client_has_its_own_latest() {
    let stage = Stage::upstreams(2);
    (0..2).for_each(|place| stage.show_head(place, 100));
    stage.peer(0).next("eth_getBlockByNumber", result(r#"{"number":"0x65"}"#));
    stage.peer(1).next("eth_getBlockByNumber", result(r#"{"number":"0x65"}"#));
    stage.call("eth_getBlockByNumber", r#"["0x65",false]"#).await;
    let sent = |client| {
        let told = explain(&stage, client, "eth_getBalance", r#"["0xab","latest"]"#);
        told.expect("told").block.sent
    };
    assert_eq!((sent(1).as_str(), sent(2).as_str()), ("101", "100"));
}

#[tokio::test(start_paused = true)]
async fn what_would_be_refused_is_told_in_words() {
    let stage = Stage::new(vec![
        Plan::default(),
        Plan { name: "base", aliases: &[], id: Some(8453), ..Plan::default() },
    ]);
    let why = explain(&stage, 1, "eth_call", "[]").expect_err("no chain is named");
    assert!(why.contains("name one"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn the_trail_says_what_the_cache_said_and_which_upstreams_were_left_out_in_the_same_words() {
    let stage = Stage::new(vec![Plan { upstreams: 14, keeps: true, ..Plan::default() }]);
    for place in 0..14 {
        stage.show_head(place, if place < 2 { 100 } else { 60 });
    }
    stage.upstream(1).set_syncing(true);
    let trail = async |method: &str, params: &str| {
        let body = format!(r#"{{"id":1,"method":"{method}","params":{params}}}"#);
        stage.send(None, &body).await.trail.expect("asked for")
    };
    let told = trail("eth_getBalance", r#"["0xab","latest"]"#).await;
    let started = "a=answer/result:0ms block=100 cache=unproven left_out=[b: syncing; c: ";
    assert!(told.starts_with(started), "{told}");
    let explained = explain(&stage, 1, "eth_getBalance", r#"["0xab","latest"]"#).expect("told");
    for other in explained.upstreams.iter().filter(|it| ["b", "c", "i"].contains(&it.id.as_str())) {
        assert!(told.contains(&format!("{}: {}", other.id, other.why)), "{other:?} {told}");
    }
    // Bounded, however many there are.
    assert!(told.ends_with("; and 5 others]"), "{told}");
    assert!(!told.contains("j: "), "{told}");
    let told = trail("eth_getBlockByNumber", r#"["0x5",false]"#).await;
    assert!(told.contains(" cache=looked-up "), "{told}");
    // The items of a batch that go alone say so, too.
    let body =
        r#"[{"id":1,"method":"eth_getLogs","params":[{"fromBlock":"0x1","toBlock":"0x2"}]}]"#;
    let told = stage.send(None, body).await.trail.expect("asked for");
    assert!(told.contains(" left_out=[b: syncing]"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn the_steps_are_those_of_a_call_whose_attempts_fail() {
    let tiers = vec![Tier::Fallback, Tier::Primary, Tier::Public];
    let stage = Stage::new(vec![Plan { upstreams: 3, tiers, ..Plan::default() }]);
    for place in 0..3 {
        stage.show_head(place, 100);
        stage.peer(place.into()).always("*", Step::REFUSE);
    }
    let told = explain(&stage, 1, "eth_getBalance", r#"["0xab","latest"]"#).expect("told");
    let asked = ["call b", "call a", "call c"];
    assert_eq!(told.steps[..3], asked, "{told:?}");
    assert_eq!(told.steps[3], "pause for at most 100 ms");
    assert!(stage.peers[0].iter().all(|peer| peer.seen().is_empty()));
    let body = r#"{"id":1,"method":"eth_getBalance","params":["0xab","latest"]}"#;
    let trail = stage.send(None, body).await.trail.expect("asked for");
    let went: Vec<_> = trail.split(' ').take(3).filter_map(|word| word.split('=').next()).collect();
    assert_eq!(went, ["b", "a", "c"], "{trail}");

    // An upstream that asked for a pause is passed over, and asked when the pause is over.
    let stage = Stage::upstreams(2);
    (0..2).for_each(|place| stage.show_head(place, 100));
    throttle(stage.upstream(0), "eth_call", Some(Duration::from_secs(3)));
    let told = explain(&stage, 1, "eth_call", r#"[{},"latest"]"#).expect("told");
    assert_eq!(told.steps[..2], ["call b", "skip a: method_pause for 3000 ms"], "{told:?}");
    // Raw transactions go to several upstreams at once.
    let told = explain(&stage, 1, "eth_sendRawTransaction", r#"["0xab"]"#).expect("told");
    assert_eq!(told.steps, [""; 0]);
}
