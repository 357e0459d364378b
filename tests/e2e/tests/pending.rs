//! What subscribers are told of the pools of real nodes: each transaction once, whichever nodes know it,
//! while nodes die, and where no node may push.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wellhead_e2e::{ConsensusDriver, Rpc, Signal, Upstream, Wellhead, WsClient};

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

/// Transactions that one node knows, that both know, and after the death of the first.
async fn pools_are_one(feeds: bool) {
    let stage = Stage::set(feeds).await;
    let mut hashes = stage.subscribe(json!(["newPendingTransactions"])).await;
    let mut other = stage.subscribe(json!(["newPendingTransactions", false])).await;
    let first = send(stage.wellhead.rpc(), 0, 0).await;
    let mut sent = vec![first.clone(), send(stage.node(1), 1, 0).await];
    if feeds {
        // What is polled is the pool of one node.
        sent.push(send(stage.node(0), 2, 0).await);
    } else {
        sent.truncate(1);
        other.expect(&sent).await;
        hashes.expect(&sent).await;
        return;
    }
    hashes.expect(&sent).await;
    other.expect(&sent).await;

    // Whole transactions, as the node has them; and those of one sender, as Alchemy tells them.
    let whole_of = async |hash: &str| {
        stage.node(1).result("eth_getTransactionByHash", json!([hash])).await.unwrap()
    };
    let from = whole_of(&first).await["from"].clone();
    let mut whole = stage.subscribe(json!(["newPendingTransactions", true])).await;
    let filter = json!({ "fromAddress": [from], "hashesOnly": true });
    let mut of_sender = stage.subscribe(json!(["alchemy_pendingTransactions", filter])).await;
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

mod with_geth {
    use super::*;

    #[tokio::test]
    async fn each_transaction_is_told_once_whichever_nodes_push_it() {
        pools_are_one(true).await;
    }

    #[tokio::test]
    async fn where_no_node_may_push_a_pool_is_polled() {
        pools_are_one(false).await;
    }
}
