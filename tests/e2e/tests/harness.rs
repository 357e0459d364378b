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
    use serde_json::Value;
    use wellhead_e2e::{Block, ConsensusDriver, Geth, Transactions};

    use super::*;

    #[tokio::test]
    async fn geth_makes_blocks_and_takes_transactions() {
        let node = Geth::start().await;
        assert_eq!(node.rpc().result("eth_chainId", json!([])).await.unwrap(), "0x539");
        makes_blocks_and_takes_transactions(&node).await;
    }

    /// The hash of a node's block, by height or by tag.
    async fn hash_at(node: &Node, at: &str) -> Value {
        let block = node.rpc().result("eth_getBlockByNumber", json!([at, false])).await.unwrap();
        block["hash"].clone()
    }

    /// The values that `LOGGER` logged, and in which block.
    async fn logs(node: &Node, filter: Value) -> Vec<(Value, u64)> {
        let logs = node.rpc().result("eth_getLogs", json!([filter])).await.unwrap();
        let value = |log: &Value| u64::from_str_radix(&log["data"].as_str().unwrap()[2..], 16);
        let logs = logs.as_array().unwrap();
        logs.iter().map(|log| (log["blockHash"].clone(), value(log).unwrap())).collect()
    }

    /// Blocks of one log each, of account 0, whose nonces begin at `nonce`.
    fn logging(nonce: u64, values: std::ops::Range<u64>) -> Vec<Transactions> {
        let calls =
            values.zip(nonce..).map(|(value, nonce)| ConsensusDriver::log_call(0, nonce, value));
        calls.map(|raw| Transactions::These(vec![raw])).collect()
    }

    async fn has(node: &Node, blocks: &[Block]) {
        for block in blocks {
            assert_eq!(hash_at(node, &block.quantity()).await, block.hash);
        }
        assert_eq!(hash_at(node, "latest").await, blocks.last().unwrap().hash);
    }

    /// Two geths have one history with a log in each block; the first leaves its newest blocks for a branch
    /// that is longer by one, with logs of its own, and the second follows when it is told.
    #[tokio::test]
    async fn reorgs_of_one_three_and_twenty_blocks() {
        let driver = ConsensusDriver::start(2).await;
        let (first, second) = (driver.node(0), driver.node(1));
        let mut values: Vec<u64> = (1..=20).collect();
        let whole = driver.reorg(0, 0, logging(0, 1..21)).await;
        assert_eq!((whole.fork, whole.abandoned), (driver.genesis().clone(), Vec::new()));
        driver.set_head(1, &driver.head(0)).await;

        for depth in [1, 3, 20] {
            let old = values.split_off(values.len() - depth);
            let new: Vec<u64> = (depth as u64 * 1_000..).take(depth + 1).collect();
            let blocks = logging(values.len() as u64, new[0]..new[depth] + 1);
            let fork = driver.ancestor(&driver.head(0), depth as u64);
            let reorg = driver.reorg(0, depth as u64, blocks).await;
            assert_eq!(reorg.fork, fork);
            has(first, &reorg.branch).await;
            has(second, &reorg.abandoned).await;

            // By a block's hash there are the logs of both branches, by heights those of the new one.
            for (blocks, values) in [(&reorg.abandoned, &old), (&reorg.branch, &new)] {
                assert_eq!(blocks.len(), values.len());
                for (block, value) in blocks.iter().zip(values) {
                    let found = logs(first, json!({ "blockHash": block.hash })).await;
                    assert_eq!(found, [(json!(block.hash), *value)]);
                }
            }
            values.extend(new);
            let range = json!({ "fromBlock": "0x1", "toBlock": "latest" });
            let seen = logs(first, range).await.into_iter().map(|(_, value)| value);
            assert_eq!(seen.collect::<Vec<_>>(), values);

            driver.set_head(1, reorg.branch.last().unwrap()).await;
            has(second, &reorg.branch).await;
        }
    }

    #[tokio::test]
    async fn one_geth_lags_and_safe_and_finalized_are_what_was_said() {
        let driver = ConsensusDriver::start(2).await;
        let genesis = driver.genesis().clone();
        for _ in 0..5 {
            let head = driver.mine(0).await;
            driver.set_head(1, &driver.ancestor(&head, 3)).await;
        }
        let head = driver.head(0);
        assert_eq!((driver.node(0).head().await, driver.node(1).head().await), (Ok(5), Ok(2)));
        assert_eq!(hash_at(driver.node(1), "0x2").await, driver.ancestor(&head, 3).hash);
        assert_eq!(driver.ancestor(&head, 5), genesis);
        assert_eq!(driver.ancestor(&head, 6), genesis);

        let (safe, finalized) = (driver.ancestor(&head, 1), driver.ancestor(&head, 3));
        driver.set_head_and_finality(0, &head, &safe, &finalized).await;
        assert_eq!(hash_at(driver.node(0), "safe").await, safe.hash);
        assert_eq!(hash_at(driver.node(0), "finalized").await, finalized.hash);
        // They stay where they are until something else is said.
        driver.mine(0).await;
        assert_eq!(hash_at(driver.node(0), "latest").await, driver.head(0).hash);
        assert_eq!(hash_at(driver.node(0), "safe").await, safe.hash);
    }

    #[tokio::test]
    async fn a_block_takes_what_waits_in_the_pool_of_one_node() {
        let driver = ConsensusDriver::start(2).await;
        let send = async |node: usize, raw: String| {
            driver.node(node).rpc().result("eth_sendRawTransaction", json!([raw])).await.unwrap()
        };
        for nonce in 0..3 {
            send(0, ConsensusDriver::log_call(0, nonce, nonce)).await;
        }
        // One whose nonce has a gap before it waits on.
        send(0, ConsensusDriver::log_call(1, 1, 9)).await;
        send(1, ConsensusDriver::log_call(2, 0, 7)).await;
        let block = driver.mine(0).await;
        let seen = logs(driver.node(0), json!({ "blockHash": block.hash })).await;
        assert_eq!(seen.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), [0, 1, 2]);
        // On another branch the same ones are taken again, and there is one more.
        send(0, ConsensusDriver::log_call(1, 0, 8)).await;
        let sibling = driver.mine_on(driver.genesis(), Transactions::PoolOf(0)).await;
        driver.set_head(0, &sibling).await;
        let seen = logs(driver.node(0), json!({ "blockHash": sibling.hash })).await;
        let values: Vec<u64> = seen.into_iter().map(|(_, value)| value).collect();
        assert!(values.ends_with(&[8, 9]) || values.starts_with(&[8, 9]), "{values:?}");
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
            Ok(reply) => format!("{} {}", reply.status, reply.text()),
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
