//! The line that each request leaves, and what an answer says of where it is from.

#[path = "../../watch/tests/support/log.rs"]
mod log;
mod support;

use std::time::Duration;

use log::Lines;
use support::{Plan, Stage, Step, elapsed, text};
use wellhead_dispatch::now;
use wellhead_kit::result;

fn call(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#)
}

/// The client waits for `patience` and goes away.
async fn give_up(stage: &Stage, path: Option<&str>, body: &str, patience: Duration) {
    let asking = stage.send(path, body);
    assert!(tokio::time::timeout(patience, asking).await.is_err(), "it hangs");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_leaves_a_line() {
    let lines = Lines::collect();
    let stage = Stage::upstreams(2);
    stage.peer(0).next("eth_gasPrice", Step::Hang);
    give_up(&stage, None, &call("eth_gasPrice"), Duration::from_millis(10)).await;
    let told = "chain=\"ethereum\" method=\"eth_gasPrice\" status=499 reason=\"client_closed\" \
                upstream=\"a\" attempts=1";
    assert_eq!(lines.with(told), 1, "{lines:?}");
    assert_eq!(lines.with("request"), 1, "one line: {lines:?}");
    // A failure before that was an attempt as well.
    stage.peer(0).next("eth_sendTransaction", Step::REFUSE);
    stage.peer(0).next("eth_feeHistory", Step::REFUSE);
    stage.peer(1).next("eth_feeHistory", Step::Hang);
    give_up(&stage, Some("eth"), &call("eth_feeHistory"), Duration::from_millis(10)).await;
    let told = "chain=\"ethereum\" method=\"eth_feeHistory\" status=499 reason=\"client_closed\" \
                upstream=\"b\" attempts=2";
    assert_eq!(lines.with(told), 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cut_was_not_left_by_its_client() {
    let lines = Lines::collect();
    let stage = Stage::upstreams(1);
    stage.peer(0).next("eth_gasPrice", Step::Hang);
    stage.proxy.note_cut();
    give_up(&stage, None, &call("eth_gasPrice"), Duration::from_millis(10)).await;
    assert_eq!(
        lines.with("method=\"eth_gasPrice\" status=503 reason=\"drain_cut\""),
        1,
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_and_a_word_of_the_client_s_own_leave_one_as_well() {
    let lines = Lines::collect();
    let stage = Stage::upstreams(1);
    stage.peer(0).next("eth_gasPrice", Step::Hang);
    let batch = format!("[{},{}]", call("eth_gasPrice"), call("eth_feeHistory"));
    give_up(&stage, None, &batch, Duration::from_millis(10)).await;
    assert_eq!(lines.with("method=\"batch\" status=499"), 1, "{lines:?}");
    let long = "x".repeat(100);
    stage.peer(0).next(&long, Step::Hang);
    give_up(&stage, None, &call(&long), Duration::from_millis(10)).await;
    assert_eq!(lines.with(&format!("method=\"{}\" status=499", "x".repeat(64))), 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_leaves_its_own_line_alone() {
    let lines = Lines::collect();
    let stage = Stage::upstreams(1);
    stage.send(None, &call("eth_gasPrice")).await;
    stage.send(Some("nowhere"), &call("eth_gasPrice")).await;
    stage.send(None, "!").await;
    assert_eq!(lines.with("status=499"), 0);
    assert_eq!(lines.with("chain=\"ethereum\" method=\"eth_gasPrice\""), 1, "{lines:?}");
    assert_eq!(lines.with("chain=\"nowhere\" method=\"-\""), 1, "{lines:?}");
    assert_eq!(lines.with("chain=\"ethereum\" method=\"-\""), 1, "{lines:?}");
    assert_eq!(lines.with("request"), 3, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_says_its_methods_and_upstreams() {
    let lines = Lines::collect();
    let stage = Stage::upstreams(2);
    let many = vec![call("eth_gasPrice"); 3].join(",");
    stage.send(None, &format!("[{many},{},1]", call("eth_chainId"))).await;
    let told = "method=\"batch\" methods=\"eth_gasPrice*3,eth_chainId\" calls=5 failed=1 \
                status=200 upstream=\"a\" attempts=1";
    assert_eq!(lines.with(told), 1, "{lines:?}");
    stage.send(None, &format!("[{}]", call("eth_chainId"))).await;
    assert_eq!(lines.with("methods=\"eth_chainId\" calls=1 failed=0 status=200 upstream=\"-\""), 1);
    // Of a single call nothing is said twice.
    stage.send(None, &call("eth_chainId")).await;
    assert_eq!(lines.with("methods="), 2, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_says_where_it_is_from() {
    let stage = Stage::keeping_to_100(1);
    let from = async |method: &str, params: &str| {
        let answer = support::ask(&stage, method, params).await;
        answer.upstream.as_deref().map(str::to_owned)
    };
    assert_eq!(from("eth_chainId", "[]").await.as_deref(), Some("view"));
    assert_eq!(from("eth_blockNumber", "[]").await.as_deref(), Some("view"));
    let header = r#"{"number":"0xa","hash":"0x0a00000000000000000000000000000000000000000000000000000000000000"}"#;
    stage.peer(0).next("eth_getBlockByNumber", result(header));
    assert_eq!(from("eth_getBlockByNumber", r#"["0xa",false]"#).await.as_deref(), Some("a"));
    assert_eq!(from("eth_getBlockByNumber", r#"["0xa",false]"#).await.as_deref(), Some("cache"));
    assert_eq!(from("admin_peers", "[]").await, None, "a refusal is from no upstream");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_refused_as_a_whole_is_answered_with_a_list() {
    let stage = Stage::upstreams(1);
    let item = |id: usize| call("eth_chainId").replace("\"id\":1", &format!("\"id\":{id}"));
    let batch: Vec<String> = (7..1008).map(item).collect();
    let batch = format!("[{}]", batch.join(","));
    assert_eq!(
        stage.ask(&batch).await,
        r#"[{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"batch too large: it has more than 1000 items, the most that the setting `limits.batch_items` allows"}}]"#
    );
    let answer = stage.send(Some("nowhere"), &format!("[1,{}]", item(9))).await;
    assert_eq!(answer.status, 404);
    assert!(text(&answer).starts_with(r#"[{"jsonrpc":"2.0","id":9,"error":"#), "{}", text(&answer));
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_polled_for_no_longer_than_an_attempt() {
    let stage = Stage::new(vec![Plan::default()]);
    stage.peer(0).next("eth_newPendingTransactionFilter", result("\"0xabc1\""));
    let id = stage.call("eth_newPendingTransactionFilter", "[]").await;
    stage.peer(0).next("eth_getFilterChanges", Step::Hang);
    let began = now();
    let told = stage.call("eth_getFilterChanges", &format!("[{id}]")).await;
    assert!(told.contains("no answer in time"), "{told}");
    assert_eq!(elapsed(began), Duration::from_secs(5), "`timeouts.attempt`");
}
