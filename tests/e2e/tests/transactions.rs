//! What subscribers are told of the transactions of real nodes. Of those in pools: each once, whichever nodes
//! know it, while nodes die, and where no node may push. Of those in blocks: all, and those taken back.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{
    Block, ConsensusDriver, Rpc, Signal, Transactions, Upstream, Wellhead, WsClient, until,
};

const BOUND: Duration = Duration::from_secs(30);

/// Two geths that do not know each other, and wellhead before both.
struct Stage {
    driver: ConsensusDriver,
    wellhead: Wellhead,
}

/// A client, and what it subscribes to.
struct Subscribed {
    client: WsClient,
    id: String,
}

impl Stage {
    /// `feeds`: whether wellhead may subscribe to the nodes, or polls.
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

    async fn subscribe(&self, params: Value) -> Subscribed {
        let mut client = WsClient::connect(self.wellhead.port).await;
        let id = client.subscribe(params).await;
        Subscribed { client, id }
    }

    /// Until both nodes push on this many subscriptions: a client is answered when the first of them does, and what a
    /// node gets before it is subscribed to is not told.
    async fn all_push(&self, relays: u64) {
        let push = until(BOUND, || async {
            let status = self.wellhead.admin().get("/status").await.ok()?.json().ok()?;
            let feeds = status["chains"][0]["feeds"].as_array()?;
            let pushing =
                feeds.iter().filter(|feed| feed["relays"].as_u64() >= Some(relays)).count();
            (pushing == 2).then_some(())
        });
        assert!(push.await.is_some(), "{}", self.wellhead.process.log());
    }

    fn node(&self, number: usize) -> &Rpc {
        self.driver.node(number).rpc()
    }
}

/// Sends the next transaction of an account; its hash.
async fn send(to: &Rpc, account: u32, nonce: u64) -> String {
    let transaction = ConsensusDriver::log_call(account, nonce, 1000 + nonce);
    let hash = to.result("eth_sendRawTransaction", json!([transaction])).await.unwrap();
    hash.as_str().unwrap().to_owned()
}

impl Subscribed {
    /// Asserts that exactly these transactions are told, in any order, and returns what was told.
    async fn expect(&mut self, sent: &[String]) -> Vec<Value> {
        let (mut results, mut hashes) = (Vec::new(), BTreeSet::new());
        for _ in sent {
            let mut told = self.client.told().await;
            assert_eq!(told["subscription"], self.id);
            let result = told["result"].take();
            let hash = result.as_str().or_else(|| result["hash"].as_str()).unwrap();
            assert!(hashes.insert(hash.to_owned()), "told twice: {hash}");
            results.push(result);
        }
        assert_eq!(hashes, sent.iter().cloned().collect());
        self.client.expect_silence().await;
        results
    }
}

/// The pool of one node, which is told to all.
async fn one_pool_is_polled() {
    let stage = Stage::set(false).await;
    let mut hashes = stage.subscribe(json!(["newPendingTransactions"])).await;
    let mut other = stage.subscribe(json!(["newPendingTransactions", false])).await;
    for nonce in 0..3 {
        let sent = [send(stage.wellhead.rpc(), 0, nonce).await];
        hashes.expect(&sent).await;
        other.expect(&sent).await;
    }
}

/// Transactions that one node knows, that both know, and after the death of the first.
async fn pools_are_one() {
    let stage = Stage::set(true).await;
    let mut hashes = stage.subscribe(json!(["newPendingTransactions"])).await;
    let mut other = stage.subscribe(json!(["newPendingTransactions", false])).await;
    stage.all_push(1).await;
    let first = send(stage.wellhead.rpc(), 0, 0).await;
    let sent = [first.clone(), send(stage.node(1), 1, 0).await, send(stage.node(0), 2, 0).await];
    hashes.expect(&sent).await;
    other.expect(&sent).await;

    // Whole transactions, as the node has them; and those of one sender, as Alchemy tells them.
    // wellhead answers its client when the first node has taken a transaction: the second may not have it yet.
    let whole_of = async |hash: &str| {
        let node = stage.node(1);
        let whole = until(BOUND, || async {
            let told = node.result("eth_getTransactionByHash", json!([hash])).await.ok()?;
            told.is_object().then_some(told)
        });
        whole.await.unwrap_or_else(|| panic!("the node has not got {hash}"))
    };
    let from = whole_of(&first).await["from"].clone();
    let mut whole = stage.subscribe(json!(["newPendingTransactions", true])).await;
    let filter = json!({ "fromAddress": [from], "hashesOnly": true });
    let mut of_sender = stage.subscribe(json!(["alchemy_pendingTransactions", filter])).await;
    stage.all_push(2).await;
    stage.driver.node(0).process.signal(Signal::Kill);
    let mut sent = Vec::new();
    for nonce in 1..4 {
        sent.push(send(stage.wellhead.rpc(), 0, nonce).await);
        sent.push(send(stage.node(1), 1, nonce).await);
    }
    for told in whole.expect(&sent).await {
        assert_eq!(told, whole_of(told["hash"].as_str().unwrap()).await);
    }
    let of_account: Vec<_> = sent.iter().step_by(2).cloned().collect();
    of_sender.expect(&of_account).await;
    hashes.expect(&sent).await;
    let ended = json!([other.id]);
    other.expect(&sent).await;
    assert_eq!(other.client.call("eth_unsubscribe", ended).await.unwrap(), true);
    let last = send(stage.wellhead.rpc(), 0, 4).await;
    hashes.expect(&[last]).await;
    other.client.expect_silence().await;

    // Kinds that these nodes do not offer.
    let told = other.client.call("eth_subscribe", json!(["newFlashblocks"])).await.unwrap_err();
    assert!(told.contains("-32601") && told.contains("no upstream offers"), "{told}");
}

/// The transactions of a block, as a subscriber is told of them.
async fn mined(stage: &Stage, block: &Block, is_removed: bool) -> Vec<Value> {
    let block = stage.node(0).result("eth_getBlockByHash", json!([block.hash, true])).await;
    let transactions = block.unwrap()["transactions"].as_array().unwrap().clone();
    let told = |whole: Value| json!({ "removed": is_removed, "transaction": whole });
    transactions.into_iter().map(told).collect()
}

/// Blocks with two transactions each; the last two are left for three others.
async fn blocks_and_a_reorg() {
    let stage = Stage::set(true).await;
    let mut blocks = vec![stage.driver.genesis().clone()];
    let mut value = 0;
    let mut mine = async |parent: &Block, nonce: u64| {
        value += 2;
        let calls = [0, 1].map(|account| ConsensusDriver::log_call(account, nonce, value));
        stage.driver.mine_on(parent, Transactions::These(calls.into())).await
    };
    let set_head = async |block: &Block| {
        for node in 0..2 {
            stage.driver.set_head(node, block).await;
        }
    };
    let params = json!(["alchemy_minedTransactions", { "includeRemoved": true }]);
    let mut client = stage.subscribe(params).await;
    for nonce in 0..4 {
        let block = mine(blocks.last().unwrap(), nonce).await;
        set_head(&block).await;
        for expected in mined(&stage, &block, false).await {
            assert_eq!(client.client.told().await["result"], expected);
        }
        blocks.push(block);
    }
    let mut expected = mined(&stage, &blocks[4], true).await;
    expected.extend(mined(&stage, &blocks[3], true).await);
    let mut branch = vec![blocks[2].clone()];
    for nonce in 2..5 {
        branch.push(mine(branch.last().unwrap(), nonce).await);
    }
    set_head(&branch[3]).await;
    for block in &branch[1..] {
        expected.extend(mined(&stage, block, false).await);
    }
    for expected in expected {
        assert_eq!(client.client.told().await["result"], expected);
    }
    client.client.expect_silence().await;
}

mod with_geth {
    use super::*;

    #[tokio::test]
    async fn mined_transactions_are_those_of_the_blocks() {
        blocks_and_a_reorg().await;
    }

    #[tokio::test]
    async fn each_transaction_is_told_once_whichever_nodes_push_it() {
        pools_are_one().await;
    }

    #[tokio::test]
    async fn where_no_node_may_push_a_pool_is_polled() {
        one_pool_is_polled().await;
    }
}
