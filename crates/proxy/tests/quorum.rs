//! Methods that several upstreams must answer alike, through the whole journey.

mod support;

use std::time::Duration;

use support::{Plan, Stage, error, text};
use wellhead_dispatch::Quorum;
use wellhead_kit::result;
use wellhead_proxy::{QuorumRule, Thought};

const BALANCE: &str = r#"{"id":1,"method":"eth_getBalance","params":["0xab","latest"]}"#;

fn stage(upstreams: usize, methods: &[&str], keeps: bool) -> Stage {
    let rule = QuorumRule {
        methods: methods.iter().map(|it| it.parse().expect("a pattern")).collect(),
        quorum: Quorum::default(),
    };
    let stage = Stage::new(vec![Plan { upstreams, keeps, quorum: vec![rule], ..Plan::default() }]);
    for place in 0..upstreams {
        stage.show_head(u8::try_from(place).expect("few"), 100);
    }
    stage
}

/// Has each upstream answer the next call of the method.
fn say(stage: &Stage, method: &str, words: &[&str]) {
    for (place, word) in words.iter().enumerate() {
        stage.peer(place).next(method, result(word));
    }
}

fn asked(stage: &Stage) -> usize {
    stage.peers[0].iter().map(|peer| peer.seen().len()).sum()
}

#[tokio::test(start_paused = true)]
async fn what_two_agree_on_is_passed_on_and_all_are_asked_about_one_block() {
    let stage = stage(3, &["eth_getBalance"], false);
    say(&stage, "eth_getBalance", &["\"0x5\"", "\"0x5\"", "\"0x5\""]);
    let answer = stage.send(None, BALANCE).await;
    assert_eq!(text(&answer), r#"{"jsonrpc":"2.0","id":1,"result":"0x5"}"#);
    assert_eq!(asked(&stage), 2);
    let seen: Vec<String> = stage.peers[0].iter().flat_map(support::Peer::seen).collect();
    assert!(seen.iter().all(|call| call.contains(r#""0x64""#)), "{seen:?}");
    // Another method goes to one.
    stage.send(None, r#"{"id":1,"method":"eth_call","params":[{},"latest"]}"#).await;
    assert_eq!(asked(&stage), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dispute_is_an_error_that_names_all_upstreams() {
    let stage = stage(3, &["eth_*"], false);
    // Each says its own name.
    let answer = stage.send(None, BALANCE).await;
    assert_eq!((answer.status, answer.attempts), (503, 3));
    let told = text(&answer);
    assert!(told.contains(r#""code":-32002"#), "{told}");
    assert!(told.contains("disagree: 1 of 3 agreed, 2 are required"), "{told}");
    for name in ["a", "b", "c"] {
        assert!(told.contains(&format!("{name}: answer")), "{told}");
        let place = usize::from(name.as_bytes()[0] - b'a');
        assert_eq!(stage.upstream(place).dissents(), (0, 1));
    }
    let status = serde_json::to_value(stage.proxy.status()).expect("a status");
    assert_eq!(status["chains"][0]["upstreams"][0]["dissents_open"], 1);
}

#[tokio::test(start_paused = true)]
async fn too_few_are_told_with_what_became_of_the_others() {
    let stage = stage(2, &["eth_getBalance"], false);
    stage.peer(1).next_times(4, "eth_getBalance", error(-32000, "internal error"));
    let answer = stage.send(None, BALANCE).await;
    let told = text(&answer);
    assert_eq!(answer.status, 503, "{told}");
    assert!(told.contains("1 of the upstreams answered, 2 must agree"), "{told}");
    assert!(told.contains("b: fault: "), "{told}");
}

#[tokio::test(start_paused = true)]
async fn items_of_a_batch_that_need_several_go_alone() {
    let stage = stage(3, &["eth_getBalance"], false);
    say(&stage, "eth_getBalance", &["\"0x5\"", "\"0x6\"", "\"0x5\""]);
    say(&stage, "eth_gasPrice", &["\"0x9\"", "\"0x9\"", "\"0x9\""]);
    let price = r#"{"id":2,"method":"eth_gasPrice","params":[]}"#;
    let answer = stage.send(None, &format!("[{BALANCE},{price}]")).await;
    let told = text(&answer);
    assert!(told.contains(r#"{"jsonrpc":"2.0","id":1,"result":"0x5"}"#), "{told}");
    assert!(told.contains(r#"{"jsonrpc":"2.0","id":2,"result":"0x9"}"#), "{told}");
}

#[tokio::test(start_paused = true)]
async fn each_part_of_a_divided_search_needs_its_quorum() {
    let stage = stage(2, &["eth_getLogs"], false);
    stage.peer(0).searches(10);
    stage.peer(1).searches(50);
    let call = r#"{"id":1,"method":"eth_getLogs","params":[{"fromBlock":"0x1","toBlock":"0x14"}]}"#;
    let blocks: Vec<String> = (1..=20).map(|block| block.to_string()).collect();
    for _ in 0..2 {
        let told = text(&stage.send(None, call).await);
        assert!(told.contains(&format!("[{}]", blocks.join(","))), "{told}");
    }
    let parts = |place: usize| stage.peer(place).searched().matches("1-10 11-20").count();
    assert!(parts(0) >= 1 && parts(1) >= 1, "{:?}", stage.peer(0).searched());
}

#[tokio::test(start_paused = true)]
async fn what_was_agreed_on_is_kept_and_what_was_not_is_not() {
    let stage = stage(3, &["eth_getBlockByNumber"], true);
    let call = r#"{"id":1,"method":"eth_getBlockByNumber","params":["0x5",false]}"#;
    (0..3).for_each(|place| stage.show_final(place, 50));
    let block = |last: char| format!(r#"{{"number":"0x5","hash":"0x{}{last}"}}"#, "0".repeat(63));
    let (one, other, third) = (block('1'), block('2'), block('3'));
    say(&stage, "eth_getBlockByNumber", &[&one, &other, &third]);
    assert_eq!(stage.send(None, call).await.status, 503);
    say(&stage, "eth_getBlockByNumber", &[&one, &other, &one]);
    let first = stage.send(None, call).await;
    assert!(text(&first).contains(&one), "{}", text(&first));
    let count = asked(&stage);
    let second = stage.send(None, call).await;
    assert_eq!((second.cache, asked(&stage)), (Some("hit"), count));
    assert_eq!(text(&first), text(&second));
    let liar = stage.upstream(1).dissents();
    assert!(liar.0 >= 1, "a final block is disputed by the one that is wrong: {liar:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_needs_is_explained() {
    let stage = stage(3, &["eth_getBalance"], false);
    let explain = |method| {
        let client = [127, 0, 0, 1].into();
        let thought = Thought { chain: None, method, params: Some(b"[]"), client, select: &[] };
        stage.proxy.explain(thought).expect("explained").quorum.map(|it| (it.agree, it.of))
    };
    assert_eq!(explain("eth_getBalance"), Some((2, 3)));
    assert_eq!(explain("eth_call"), None);
}

#[tokio::test(start_paused = true)]
async fn the_pending_nonce_is_the_largest_of_two() {
    let stage = stage(3, &["eth_getTransactionCount"], false);
    say(&stage, "eth_getTransactionCount", &["\"0x5\"", "\"0x7\"", "\"0x6\""]);
    let call = r#"{"id":1,"method":"eth_getTransactionCount","params":["0xab","pending"]}"#;
    let began = wellhead_dispatch::now();
    let told = text(&stage.send(None, call).await);
    assert_eq!(asked(&stage), 2);
    assert!(told.contains("0x7") || told.contains("0x6"), "{told}");
    assert!(support::elapsed(began) < Duration::from_secs(1));
}
