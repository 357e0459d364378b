//! What subscribers are told, compared with the history of real nodes: heads over WebSocket while
//! the nodes skip blocks, leave branches, hang and die.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{
    Block, ConsensusDriver, Signal, Transactions, Upstream, Wellhead, WsClient, until,
};

const BOUND: Duration = Duration::from_secs(60);

/// Two geths of one chain, and wellhead before both.
struct Stage {
    driver: ConsensusDriver,
    wellhead: Wellhead,
}

impl Stage {
    /// `feeds`: whether wellhead may listen to the nodes' own subscriptions, or polls.
    async fn set(feeds: bool) -> Self {
        let driver = ConsensusDriver::start(2).await;
        let upstreams = [0, 1].map(|number| {
            let node = driver.node(number);
            let upstream = Upstream::new(&format!("geth-{number}"), &node.url());
            if feeds { upstream.with(&format!("ws: \"{}\"", node.ws_url())) } else { upstream }
        });
        let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
        Self { driver, wellhead }
    }

    async fn client(&self) -> WsClient {
        WsClient::connect(self.wellhead.port).await
    }

    /// Makes blocks on `parent`, and makes the last one the head of both nodes.
    async fn mine(&self, parent: &Block, count: usize, nodes: &[usize]) -> Vec<Block> {
        let mut blocks = vec![parent.clone()];
        for _ in 0..count {
            blocks.push(self.driver.mine_on(blocks.last().unwrap(), Transactions::None).await);
        }
        for node in nodes {
            self.driver.set_head(*node, blocks.last().unwrap()).await;
        }
        blocks.split_off(1)
    }

    /// Waits until this block is the newest to clients.
    async fn agrees_on(&self, block: &Block) {
        let look = || async {
            let latest = json!(["latest", false]);
            let latest = self.wellhead.rpc().result("eth_getBlockByNumber", latest).await.ok()?;
            (latest["hash"] == block.hash).then_some(())
        };
        until(BOUND, look).await.unwrap_or_else(|| panic!("never agreed: {block:?}"));
    }

    /// What a head must be, by the word of a node: its block without what is not of the header.
    async fn header(&self, node: usize, hash: &str) -> Value {
        let rpc = self.driver.node(node).rpc();
        let mut block = rpc.result("eth_getBlockByHash", json!([hash, false])).await.unwrap();
        for name in ["transactions", "uncles", "withdrawals", "size", "totalDifficulty"] {
            block.as_object_mut().unwrap().remove(name);
        }
        block
    }

    /// Asserts that `client` is told exactly these heads next, and that each can be read at once.
    async fn expect(&self, client: &mut WsClient, id: &str, blocks: &[Block], node: usize) {
        for block in blocks {
            let told = client.told().await;
            assert_eq!(told["subscription"], id);
            assert_eq!(told["result"], self.header(node, &block.hash).await);
            let read = json!([block.quantity(), false]);
            let over_http = self.wellhead.rpc().result("eth_getBlockByNumber", read.clone()).await;
            let over_websocket = client.call("eth_getBlockByNumber", read).await;
            // A later reorg may have replaced it by now; it is never missing.
            for read in [over_http, over_websocket] {
                assert!(read.unwrap()["hash"].is_string(), "{block:?}");
            }
        }
    }
}

mod with_geth {
    use super::*;

    /// Every block is told, whichever way wellhead heard of the newest one.
    async fn heads_are_linked(feeds: bool) {
        let stage = Stage::set(feeds).await;
        let first = stage.mine(stage.driver.genesis(), 3, &[0, 1]).await;
        let mut client = stage.client().await;
        stage.agrees_on(&first[2]).await;
        let id = client.subscribe(json!(["newHeads"])).await;
        assert_eq!((id.len(), &id[..2]), (34, "0x"));
        client.expect_silence().await;

        // One by one, and many at once.
        let mut head = first[2].clone();
        for count in [1, 1, 8, 40] {
            let blocks = stage.mine(&head, count, &[0, 1]).await;
            stage.expect(&mut client, &id, &blocks, 0).await;
            head = blocks.last().unwrap().clone();
        }

        // Another block at the same height, a longer branch, and a shorter one.
        for (depth, count) in [(1, 1), (3, 5), (4, 2)] {
            let fork = stage.driver.ancestor(&head, depth);
            let branch = stage.mine(&fork, count, &[0, 1]).await;
            stage.expect(&mut client, &id, &branch, 0).await;
            head = branch.last().unwrap().clone();
        }

        // A second subscriber hears only what is new, and one that has left nothing.
        let mut other = stage.client().await;
        let of_other = other.subscribe(json!(["newHeads", {}])).await;
        assert_ne!(of_other, id);
        assert_eq!(client.call("eth_unsubscribe", json!([of_other])).await.unwrap(), false);
        assert_eq!(client.call("eth_unsubscribe", json!([id])).await.unwrap(), true);
        assert_eq!(client.call("eth_unsubscribe", json!([id])).await.unwrap(), false);
        let blocks = stage.mine(&head, 2, &[0, 1]).await;
        stage.expect(&mut other, &of_other, &blocks, 1).await;
        client.expect_silence().await;
    }

    #[tokio::test]
    async fn polled_heads_are_linked() {
        heads_are_linked(false).await;
    }

    #[tokio::test]
    async fn pushed_heads_are_linked() {
        heads_are_linked(true).await;
    }

    #[tokio::test]
    async fn a_node_that_hangs_or_dies_costs_no_head() {
        for signal in [Signal::Stop, Signal::Kill] {
            let stage = Stage::set(true).await;
            let first = stage.mine(stage.driver.genesis(), 2, &[0, 1]).await;
            stage.agrees_on(&first[1]).await;
            let mut clients = Vec::new();
            for _ in 0..20 {
                let mut client = stage.client().await;
                let id = client.subscribe(json!(["newHeads"])).await;
                clients.push((client, id));
            }
            let blocks = stage.mine(first.last().unwrap(), 2, &[0, 1]).await;
            for (client, id) in &mut clients {
                stage.expect(client, id, &blocks, 1).await;
            }
            stage.driver.node(0).process.signal(signal);
            let mut head = blocks.last().unwrap().clone();
            for count in [1, 1, 5, 1] {
                let blocks = stage.mine(&head, count, &[1]).await;
                for (client, id) in &mut clients {
                    stage.expect(client, id, &blocks, 1).await;
                }
                head = blocks.last().unwrap().clone();
            }
        }
    }

    /// The logs that a node has for a block, as a subscriber is told of them.
    async fn logs(stage: &Stage, node: usize, block: &Block, is_removed: bool) -> Vec<Value> {
        let rpc = stage.driver.node(node).rpc();
        let logs = rpc.result("eth_getLogs", json!([{ "blockHash": block.hash }])).await.unwrap();
        let mut logs = logs.as_array().unwrap().clone();
        logs.iter_mut().for_each(|log| log["removed"] = is_removed.into());
        logs
    }

    /// Every log of the chain once, and those of a branch that is left taken back before the logs of
    /// the new one, whatever the nodes' own subscriptions say.
    #[tokio::test]
    async fn logs_are_told_and_taken_back() {
        let stage = Stage::set(true).await;
        let first = stage.mine(stage.driver.genesis(), 1, &[0, 1]).await;
        stage.agrees_on(&first[0]).await;
        let mut client = stage.client().await;
        let all = client.subscribe(json!(["logs", { "address": ConsensusDriver::LOGGER }])).await;
        // A topic that no log has, and an error in the words of geth.
        let none = json!(["logs", { "topics": [format!("0x{:064x}", 1)] }]);
        client.subscribe(none).await;
        let bad = client.call("eth_subscribe", json!(["logs", { "address": "0x12" }])).await;
        assert!(bad.unwrap_err().contains("-32602"));
        let heads = client.subscribe(json!(["newHeads"])).await;

        let mut nonces = [0; 3];
        let mut head = first[0].clone();
        let mut told = Vec::new();
        for (block, back) in (0..12_u64).zip([0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 3, 0]) {
            // Leaves some blocks first, and makes one more than it leaves.
            let fork = stage.driver.ancestor(&head, back);
            let abandoned: Vec<_> = (0..back).map(|at| stage.driver.ancestor(&head, at)).collect();
            nonces = nonces.map(|nonce| nonce - back.min(nonce));
            let mut branch = vec![fork.clone()];
            for _ in 0..=back {
                let calls = nonces.iter_mut().enumerate().map(|(account, nonce)| {
                    *nonce += 1;
                    ConsensusDriver::log_call(account as u32, *nonce - 1, block)
                });
                let transactions = Transactions::These(calls.collect());
                let parent = branch.last().unwrap();
                branch.push(stage.driver.mine_on(parent, transactions).await);
            }
            head = branch.last().unwrap().clone();
            for node in [0, 1] {
                stage.driver.set_head(node, &head).await;
            }
            let mut expected = Vec::new();
            for block in &abandoned {
                expected.extend(logs(&stage, 0, block, true).await);
            }
            for block in &branch[1..] {
                expected.extend(logs(&stage, 0, block, false).await);
            }
            assert_eq!(expected.len(), 3 * (2 * back as usize + 1));
            let mut seen = Vec::new();
            let mut heads_told = 0;
            while seen.len() < expected.len() || heads_told <= back {
                let mut message = client.told().await;
                if message["subscription"] == heads {
                    heads_told += 1;
                    continue;
                }
                assert_eq!(message["subscription"], all);
                seen.push(message["result"].take());
            }
            assert_eq!(seen, expected, "block {block}");
            told.extend(seen);
        }
        client.expect_silence().await;
        assert!(told.iter().any(|log| log["removed"] == true));
        // One call for the logs of each block, whatever the number of subscriptions.
        let metrics = stage.wellhead.admin().get("/metrics").await.unwrap().body;
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        for line in [
            r#"wellhead_subscriptions{chain="main",kind="logs"} 2"#,
            r#"wellhead_subscriptions{chain="main",kind="newHeads"} 1"#,
            r#"wellhead_announced_blocks_total{chain="main",change="added"} 18"#,
            r#"wellhead_announced_blocks_total{chain="main",change="removed"} 6"#,
            r#"wellhead_announcer_calls_total{chain="main",fetched="logs"} 18"#,
            r#"wellhead_subscription_gaps_total{chain="main",reason="resync"} 0"#,
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line} is not in\n{metrics}");
        }
    }

    #[tokio::test]
    async fn over_http_there_is_none() {
        let stage = Stage::set(false).await;
        let told = stage.wellhead.rpc().result("eth_subscribe", json!(["newHeads"])).await;
        let told = told.unwrap_err();
        assert!(told.contains("-32601") && told.contains("notifications not supported"), "{told}");
        let mut client = stage.client().await;
        let told = client.call("eth_subscribe", json!(["oldHeads"])).await.unwrap_err();
        assert!(told.contains(r#"no \"oldHeads\" subscription in eth namespace"#), "{told}");
    }
}
