//! The harness itself: nodes come up and go down, and each fault is the fault it says.
//!
//! A fault proxy that did no harm would let every test in `faults` pass, so it
//! is shown here what a client sees of each fault with nothing in between.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use serde_json::json;
use wellhead_e2e::{Node, Process, Signal, until};

const SOON: Duration = Duration::from_secs(10);

fn is_running(pid: u32) -> bool {
    let status = std::process::Command::new("kill").args(["-0", &pid.to_string()]).output();
    status.is_ok_and(|output| output.status.success())
}

fn shell(script: &str) -> Process {
    let command = ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    Process::start(&command, "/dev/null".into())
}

#[tokio::test]
async fn dropping_a_process_kills_it() {
    let process = shell("exec tail -f /dev/null");
    let pid = process.pid();
    assert!(is_running(pid));
    drop(process);
    let gone = until(SOON, || async { (!is_running(pid)).then_some(()) }).await;
    assert!(gone.is_some(), "pid {pid} still runs");
}

#[tokio::test]
async fn exit_code_is_the_program_s_own() {
    assert_eq!(shell("exit 7").exit_code(SOON).await, Some(7));
    let mut killed = shell("exec tail -f /dev/null");
    assert_eq!(killed.exit_code(Duration::ZERO).await, None);
    killed.signal(Signal::Kill);
    assert_eq!(killed.exit_code(SOON).await, Some(128 + 9));
}

async fn makes_blocks_and_takes_transactions(node: &Node) {
    let rpc = node.rpc();
    node.wait_for_block(2).await;
    let accounts = rpc.result("eth_accounts", json!([])).await.unwrap();
    let receipt = node
        .transact(json!({ "from": accounts[0], "to": accounts[0], "value": "0x1" }))
        .await
        .unwrap();
    assert_eq!(receipt["status"], "0x1");
}

mod with_geth {
    use wellhead_e2e::Geth;

    use super::*;

    #[tokio::test]
    async fn geth_makes_blocks_and_takes_transactions() {
        let node = Geth::start().await;
        assert_eq!(node.rpc().result("eth_chainId", json!([])).await.unwrap(), "0x539");
        makes_blocks_and_takes_transactions(&node).await;
    }
}

mod with_anvil {
    use serde_json::Value;
    use wellhead_e2e::load::Gauge;
    use wellhead_e2e::{Anvil, Fault, FaultProxy, Rewrite, Rpc, load};

    use super::*;

    #[tokio::test]
    async fn anvil_makes_blocks_and_takes_transactions() {
        let node = Anvil::start(7).await;
        assert_eq!(node.rpc().result("eth_chainId", json!([])).await.unwrap(), "0x7");
        makes_blocks_and_takes_transactions(&node).await;
    }

    /// What a client without a proxy in between sees: status and body, or the failure.
    async fn seen(fault: Fault) -> String {
        let node = Anvil::start(7).await;
        let proxy = FaultProxy::start(node.port).await;
        proxy.set(fault);
        let port = proxy.url().rsplit(':').next().unwrap().parse().unwrap();
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": [] });
        let seen = match Rpc::new(port, "/").post(call.to_string()).await {
            Ok(reply) => format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)),
            Err(why) => why,
        };
        assert_eq!(proxy.requests(), 1);
        seen
    }

    const WHOLE: &str = r#"{"jsonrpc":"2.0","id":1,"result":"0x7"}"#;

    #[tokio::test]
    async fn faults_are_what_they_say() {
        assert_eq!(seen(Fault::None).await, format!("200 {WHOLE}"));
        assert_eq!(seen(Fault::Status(500)).await, "500 something went wrong");
        assert_eq!(seen(Fault::TooMany(3)).await, "429 slow down");
        assert!(seen(Fault::Html).await.starts_with("200 <!doctype html>"));
        assert_eq!(seen(Fault::Cut).await, format!("200 {}", &WHOLE[..WHOLE.len() / 2]));
        let cut_short = seen(Fault::CutShort).await;
        assert!(!cut_short.starts_with("200"), "{cut_short}");
        assert_eq!(
            seen(Fault::WrongChain(9)).await,
            r#"200 {"id":1,"jsonrpc":"2.0","result":"0x9"}"#,
        );
        let lie = Rewrite::new(|call, reply| reply["result"] = call["method"].clone());
        assert_eq!(
            seen(Fault::Rewritten(lie)).await,
            r#"200 {"id":1,"jsonrpc":"2.0","result":"eth_chainId"}"#,
        );
    }

    #[tokio::test]
    async fn lagging_shows_the_past() {
        let node = Anvil::start(7).await;
        node.wait_for_block(3).await;
        let proxy = FaultProxy::start(node.port).await;
        proxy.set(Fault::Lagging(2));
        let port = proxy.url().rsplit(':').next().unwrap().parse().unwrap();
        let rpc = Rpc::new(port, "/");
        let before = node.head().await.unwrap();
        let number = rpc.result("eth_blockNumber", json!([])).await.unwrap();
        let block = rpc.result("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
        let after = node.head().await.unwrap();
        for seen in [&number, &block["number"]] {
            let possible: Vec<Value> =
                (before..=after).map(|head| json!(format!("{:#x}", head - 2))).collect();
            assert!(possible.contains(seen), "{seen} is not in {possible:?}");
        }
    }

    #[tokio::test]
    async fn hanging_answers_nothing() {
        let node = Anvil::start(7).await;
        let proxy = FaultProxy::start(node.port).await;
        proxy.set(Fault::Hang);
        let port = proxy.url().rsplit(':').next().unwrap().parse().unwrap();
        let rpc = Rpc::new(port, "/");
        let call = rpc.call("eth_chainId", json!([]));
        let answer = tokio::time::timeout(Duration::from_millis(300), call).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(proxy.requests(), 1);
    }

    #[tokio::test]
    async fn load_counts_answers_and_failures() {
        let node = Anvil::start(7).await;
        let proxy = FaultProxy::start(node.port).await;
        let port = proxy.url().rsplit(':').next().unwrap().parse().unwrap();
        let rpc = Rpc::new(port, "/");
        let gauge = Gauge::default();
        load(&rpc, &gauge, 8, 100).await;
        let tally = gauge.take();
        assert_eq!((tally.answered, tally.failed), (100, 0), "{:?}", tally.failures);

        proxy.set(Fault::Status(500));
        let gauge = Gauge::default();
        load(&rpc, &gauge, 8, 100).await;
        let tally = gauge.take();
        assert_eq!((tally.answered, tally.failed, tally.failures.len()), (0, 100, 10));
    }
}
