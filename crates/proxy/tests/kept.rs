//! Answers that are kept, and calls that are shared.

mod support;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use support::{Plan, Stage, Step, ask, check_kept, elapsed, error, hash, ms, text};
use wellhead_dispatch::now;
use wellhead_kit::result;
use wellhead_proxy::Sweeper;

/// A block as upstreams tell it.
fn block(number: u64, branch: u8) -> String {
    let (own, parent) = (hash(number, branch), hash(number - 1, branch));
    format!(r#"{{"number":"0x{number:x}","hash":"{own}","parentHash":"{parent}"}}"#)
}

fn slow(millis: u64, step: Step) -> Step {
    step.after(ms(millis))
}

const BALANCE: &str = "eth_getBalance";
const BLOCK: &str = "eth_getBlockByNumber";

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_final_block_is_told_again_to_the_byte_under_another_id() {
    let stage = Stage::keeping_to_100(1);
    let odd = r#"{ "number":"0x50", "b" : [ 12345678901234567890 , "\u00e9" ] }"#;
    stage.peer(0).next(BLOCK, result(odd));
    let first = ask(&stage, BLOCK, r#"["0x50",false]"#).await;
    check_kept(&first, Some("miss"), odd);
    assert_eq!((first.attempts, first.upstream.as_deref()), (1, Some("a")));
    let body = r#"{"id":"x\u0041","method":"eth_getBlockByNumber","params":[ "0x50" ,false]}"#;
    let again = stage.send(None, body).await;
    assert_eq!(text(&again), format!(r#"{{"jsonrpc":"2.0","id":"x\u0041","result":{odd}}}"#));
    assert_eq!(
        (again.cache, again.attempts, again.upstream.as_deref()),
        (Some("hit"), 0, Some("cache"))
    );
    assert_eq!(stage.peer(0).seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_head_changes_what_latest_is() {
    let stage = Stage::keeping_to_100(1);
    for number in [100, 101] {
        stage.show_block(0, number, b'a');
        stage.peer(0).next(BLOCK, result(&block(number, b'a')));
        let params = r#"["latest",false]"#;
        check_kept(&ask(&stage, BLOCK, params).await, Some("miss"), &block(number, b'a'));
        check_kept(&ask(&stage, BLOCK, params).await, Some("hit"), &block(number, b'a'));
        // The number means the same, and shares it.
        let params = format!(r#"["0x{number:x}",false]"#);
        check_kept(&ask(&stage, BLOCK, &params).await, Some("hit"), &block(number, b'a'));
    }
    assert_eq!(stage.peer(0).seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_orphaned_block_is_told() {
    let stage = Stage::keeping_to_100(1);
    let receipt = |branch| {
        format!(r#"{{"blockNumber":"0x64","blockHash":"{}","status":"0x1"}}"#, hash(100, branch))
    };
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let params = format!(r#"["{}"]"#, hash(7, b'a'));
    for branch in [b'a', b'b'] {
        // The first of them is there already.
        stage.show_block(0, 100, branch);
        stage.peer(0).next(BLOCK, result(&block(100, branch)));
        stage.peer(0).next(RECEIPT, result(&receipt(branch)));
        for found in ["miss", "hit"] {
            let answer = ask(&stage, BLOCK, r#"["0x64",false]"#).await;
            check_kept(&answer, Some(found), &block(100, branch));
            check_kept(&ask(&stage, RECEIPT, &params).await, Some(found), &receipt(branch));
        }
    }
    assert_eq!(stage.peer(0).seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn how_deep_a_reorg_went_is_not_guessed() {
    let stage = Stage::keeping_to_100(1);
    let params = r#"["0x60",false]"#;
    stage.peer(0).next(BLOCK, result(&block(96, b'a')));
    check_kept(&ask(&stage, BLOCK, params).await, Some("miss"), &block(96, b'a'));
    check_kept(&ask(&stage, BLOCK, params).await, Some("hit"), &block(96, b'a'));
    // The new head, and its parent by name: 96 may have been replaced with 100, or not.
    stage.show_block(0, 101, b'b');
    stage.peer(0).next(BLOCK, result(&block(96, b'b')));
    check_kept(&ask(&stage, BLOCK, params).await, Some("miss"), &block(96, b'b'));
}

/// It may have been shown another branch, of which the view knows nothing yet.
#[tokio::test(start_paused = true)]
async fn a_client_that_was_shown_more_than_is_agreed_is_told_only_what_is_final() {
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let stage = Stage::keeping_to_100(2);
    let say = |method: &str, text: &str| {
        stage.peers[0].iter().for_each(|peer| peer.next(method, result(text)));
    };
    let (recent, finished) = (r#"["0x5f",false]"#, r#"["0x00",  "0x50"]"#);
    say(BLOCK, &block(95, b'a'));
    check_kept(&ask(&stage, BLOCK, recent).await, Some("miss"), &block(95, b'a'));
    check_kept(&ask(&stage, BLOCK, recent).await, Some("hit"), &block(95, b'a'));
    assert_eq!(ask(&stage, BALANCE, finished).await.cache, Some("miss"));
    say(RECEIPT, &format!(r#"{{"blockNumber":"0x65","blockHash":"{}"}}"#, hash(101, b'b')));
    ask(&stage, RECEIPT, &format!(r#"["{}"]"#, hash(7, b'a'))).await;
    say(BLOCK, &block(95, b'a'));
    check_kept(&ask(&stage, BLOCK, recent).await, Some("miss"), &block(95, b'a'));
    assert_eq!(ask(&stage, BALANCE, finished).await.cache, Some("hit"));
    // Another client saw nothing of it.
    let body = support::body_of(BLOCK, recent);
    check_kept(&stage.send_from(2, None, &body).await, Some("hit"), &block(95, b'a'));
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_replaced_since_the_last_word_is_asked_for() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next(BLOCK, result(&block(100, b'a')));
    stage.peer(0).next(BLOCK, result("\"final\""));
    check_kept(&ask(&stage, BLOCK, r#"["0x64",false]"#).await, Some("miss"), &block(100, b'a'));
    check_kept(&ask(&stage, BLOCK, r#"["0x50",false]"#).await, Some("miss"), "\"final\"");
    tokio::time::advance(Duration::from_secs(600)).await;
    check_kept(&ask(&stage, BLOCK, r#"["0x64",false]"#).await, Some("miss"), "\"a\"");
    check_kept(&ask(&stage, BLOCK, r#"["0x50",false]"#).await, Some("hit"), "\"final\"");
}

#[tokio::test(start_paused = true)]
async fn other_calls_have_other_answers() {
    let stage = Stage::keeping_to_100(1);
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    let calls = [
        (BALANCE, format!(r#"["0x{a}","0x50"]"#)),
        (BALANCE, format!(r#"["0x{b}","0x50"]"#)),
        (BALANCE, format!(r#"["0x{a}","0x51"]"#)),
        ("eth_getCode", format!(r#"["0x{a}","0x50"]"#)),
        ("eth_call", format!(r#"[{{"to":"0x{a}"}},"0x50"]"#)),
        ("eth_call", format!(r#"[{{"to":"0x{a}","data":"0x"}},"0x50"]"#)),
        (BLOCK, r#"["0x50",true]"#.to_owned()),
        (BLOCK, r#"["0x50",false]"#.to_owned()),
    ];
    for found in ["miss", "hit"] {
        for (number, (method, params)) in calls.iter().enumerate() {
            if found == "miss" {
                stage.peer(0).next(method, result(&format!("\"{number}\"")));
            }
            let answer = ask(&stage, method, params).await;
            check_kept(&answer, Some(found), &format!("\"{number}\""));
        }
    }
    assert_eq!(stage.peer(0).seen().len(), calls.len());
}

#[tokio::test(start_paused = true)]
async fn chains_do_not_share_answers() {
    let plan = |name, id| Plan { name, aliases: &[], id, keeps: true, ..Plan::default() };
    let stage = Stage::new(vec![plan("one", Some(1)), plan("two", Some(2))]);
    for (chain, peers) in stage.peers.iter().enumerate() {
        peers[0].next("web3_sha3", result(&format!("\"{chain}\"")));
    }
    for found in ["miss", "hit"] {
        for (path, told) in [("one", "\"0\""), ("two", "\"1\"")] {
            let body = r#"{"id":1,"method":"web3_sha3","params":["0x00"]}"#;
            check_kept(&stage.send(Some(path), body).await, Some(found), told);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_not_be_kept_is_asked_for_each_time() {
    let stage = Stage::keeping_to_100(1);
    // Above the newest block: of which block it will be is not known.
    let own = format!(r#"["0x{}","0x70"]"#, "a".repeat(40));
    let null = format!(r#"["{}"]"#, hash(7, b'a'));
    for turn in 0..2 {
        let told = format!("\"{turn}\"");
        stage.peer(0).next(BALANCE, result(&told));
        check_kept(&ask(&stage, BALANCE, &own).await, Some("miss"), &told);
        stage.peer(0).next("eth_getTransactionReceipt", result("null"));
        let answer = ask(&stage, "eth_getTransactionReceipt", &null).await;
        check_kept(&answer, Some("miss"), "null");
        // It is the upstream's own matter, so that the cache is not asked.
        stage.peer(0).next("net_peerCount", result(&told));
        check_kept(&ask(&stage, "net_peerCount", "[]").await, None, &told);
    }
    let refused = r#"[{"to":"0x00"},"0x50"]"#;
    for _ in 0..2 {
        stage.peer(0).next("eth_call", error(3, "execution reverted"));
        let answer = ask(&stage, "eth_call", refused).await;
        assert!(text(&answer).contains("reverted") && answer.cache == Some("miss"));
    }
    check_kept(&ask(&stage, "eth_call", refused).await, Some("miss"), "\"a\"");
    assert_eq!(stage.chain().heads.view().latest.map(|head| head.number.0), Some(100));
}

#[tokio::test(start_paused = true)]
async fn equal_questions_share_one_call() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next("eth_call", slow(50, result("\"told\"")));
    let began = now();
    let calls = (0..20).map(|_| ask(&stage, "eth_call", r#"[{"to":"0x00"},"latest"]"#));
    let answers = join_all(calls).await;
    assert_eq!(elapsed(began), Duration::from_millis(50));
    check_kept(&answers[0], Some("miss"), "\"told\"");
    for answer in &answers[1..] {
        check_kept(answer, Some("joined"), "\"told\"");
        assert_eq!((answer.attempts, answer.upstream.as_deref()), (0, Some("a")));
    }
    assert_eq!(stage.peer(0).seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_seen_a_newer_block_is_not_told_what_was_asked_before() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next("eth_gasPrice", slow(50, result("\"old\"")));
    stage.peer(0).next("eth_gasPrice", slow(10, result("\"new\"")));
    let mut first = Box::pin(ask(&stage, "eth_gasPrice", "[]"));
    assert!(first.as_mut().now_or_never().is_none());
    stage.show_block(0, 101, b'a');
    check_kept(&ask(&stage, "eth_gasPrice", "[]").await, Some("miss"), "\"new\"");
    check_kept(&first.await, Some("miss"), "\"old\"");
    check_kept(&ask(&stage, "eth_gasPrice", "[]").await, Some("hit"), "\"new\"");
    tokio::time::advance(Duration::from_secs(1)).await;
    check_kept(&ask(&stage, "eth_gasPrice", "[]").await, Some("miss"), "\"a\"");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_hands_its_call_over() {
    let stage = Stage::keeping_to_100(1);
    let params = r#"[{"to":"0x00"},"latest"]"#;
    for told in ["\"lost\"", "\"told\""] {
        stage.peer(0).next("eth_call", slow(50, result(told)));
    }
    let mut leader = Box::pin(ask(&stage, "eth_call", params));
    assert!(leader.as_mut().now_or_never().is_none());
    let followers = join_all((0..5).map(|_| ask(&stage, "eth_call", params)));
    let mut followers = Box::pin(followers);
    assert!(followers.as_mut().now_or_never().is_none());
    drop(leader);
    let answers = followers.await;
    check_kept(&answers[0], Some("miss"), "\"told\"");
    answers[1..].iter().for_each(|answer| check_kept(answer, Some("joined"), "\"told\""));
    assert_eq!(stage.peer(0).seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_once_more_and_then_that_of_all() {
    let stage = Stage::keeping_to_100(1);
    let params = r#"[{"to":"0x00"},"latest"]"#;
    stage.peer(0).next_times(20, "eth_call", slow(1, Step::REFUSE));
    let answers = join_all((0..50).map(|_| ask(&stage, "eth_call", params))).await;
    for answer in &answers {
        assert_eq!(answer.status, 503, "{}", text(answer));
    }
    let found = |word| answers.iter().filter(|answer| answer.cache == Some(word)).count();
    assert_eq!((found("miss"), found("joined")), (2, 48));
    assert!(stage.peer(0).seen().len() <= 8, "two calls, each with its rounds");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_another_keeps_its_own_deadline() {
    let stage = Stage::keeping_to_100(1);
    let params = r#"[{"to":"0x00"},"latest"]"#;
    stage.peer(0).next_times(40, "eth_call", Step::Hang);
    let late = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let began = now();
        let answer = ask(&stage, "eth_call", params).await;
        (answer.status, elapsed(began))
    };
    let (first, (status, took)) = tokio::join!(ask(&stage, "eth_call", params), late);
    assert_eq!((first.status, status), (503, 503));
    assert!(took <= Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_flows_is_shared_with_no_other_call() {
    let stage = Stage::keeping_to_100(1);
    let large = format!("\"{}\"", "0".repeat(2 << 20));
    stage.peer(0).next_times(3, "debug_traceBlockByNumber", slow(10, result(&large)));
    let calls = (0..3).map(|_| ask(&stage, "debug_traceBlockByNumber", r#"["0x50"]"#));
    for answer in join_all(calls).await {
        assert!(answer.rest.is_some() && answer.cache == Some("miss"), "{:?}", answer.cache);
    }
    assert_eq!(stage.peer(0).seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn tidying_frees_what_was_orphaned_and_forgets_all_when_final_blocks_are_replaced() {
    let stage = Stage::keeping_to_100(1);
    let mut sweeper = Sweeper::new(stage.proxy.replaceable());
    sweeper.sweep();
    stage.peer(0).next(BLOCK, result(&block(100, b'a')));
    for params in [r#"["0x64",false]"#, r#"["0x50",false]"#] {
        ask(&stage, BLOCK, params).now_or_never().expect("said at once");
    }
    let entries = || stage.proxy.status().cache.expect("there is one").entries;
    assert_eq!(entries(), 2);
    stage.show_block(0, 100, b'b');
    assert_eq!(entries(), 2, "nothing has swept yet");
    sweeper.sweep();
    assert_eq!(entries(), 1);
    // As a development node does that starts anew.
    stage.show_block(0, 3, b'c');
    tokio::time::advance(Duration::from_secs(60)).await;
    stage.show_block(0, 3, b'c');
    sweeper.sweep();
    assert_eq!(entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_only_what_is_not_kept_goes_upstream() {
    let stage = Stage::keeping_to_100(1);
    let item = |id: usize, block: usize| {
        format!(r#"{{"id":{id},"method":"eth_getBalance","params":["0x00","0x{block:x}"]}}"#)
    };
    let batch = |from: usize| {
        let items: Vec<String> = (from..from + 3).map(|block| item(block, block)).collect();
        format!("[{}]", items.join(","))
    };
    let reply = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{id}"}}"#);
    for block in 10..15 {
        stage.peer(0).next(BALANCE, result(&format!("\"{block}\"")));
    }
    for from in [10, 12, 11] {
        let replies: Vec<String> = (from..from + 3).map(reply).collect();
        assert_eq!(stage.ask(&batch(from)).await, format!("[{}]", replies.join(",")));
    }
    let seen = stage.peer(0).seen();
    let asked: Vec<usize> = seen.iter().map(|body| body.matches(BALANCE).count()).collect();
    assert_eq!(asked, [3, 2]);
    // What a batch brought is there for single calls.
    check_kept(&ask(&stage, BALANCE, r#"["0x00","0xa"]"#).await, Some("hit"), "\"10\"");
    let found = &stage.proxy.status().chains[0].cache;
    assert_eq!((found.hits, found.misses, found.joined), (5, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_are_shared_where_nothing_is_kept() {
    let stage = Stage::new(vec![Plan { shares: true, ..Plan::default() }]);
    stage.show_to_100();
    stage.peer(0).next("eth_call", slow(50, result("\"told\"")));
    let calls = (0..20).map(|_| ask(&stage, "eth_call", r#"[{"to":"0x00"},"latest"]"#));
    let answers = join_all(calls).await;
    check_kept(&answers[0], None, "\"told\"");
    answers[1..].iter().for_each(|answer| check_kept(answer, Some("joined"), "\"told\""));
    assert_eq!(stage.peer(0).seen().len(), 1);
    // And the next one is asked for itself.
    stage.peer(0).next("eth_call", result("\"again\""));
    let answer = ask(&stage, "eth_call", r#"[{"to":"0x00"},"latest"]"#).await;
    check_kept(&answer, None, "\"again\"");
    assert!(stage.proxy.status().cache.is_none());
    assert_eq!(stage.proxy.status().chains[0].cache.saved_credits, 19);
}

#[tokio::test(start_paused = true)]
async fn what_hits_and_joined_calls_would_have_cost_is_told() {
    let stage = Stage::keeping_to_100(2);
    let saved = || stage.proxy.status().chains[0].cache.saved_credits;
    let params = r#"["0xab","0x50"]"#;
    ask(&stage, "eth_getBalance", params).await;
    assert_eq!(saved(), 0);
    ask(&stage, "eth_getBalance", params).await;
    ask(&stage, "eth_getBalance", params).await;
    assert_eq!(saved(), 2, "a credit a call where nothing is known of prices");
}
