//! Subscribers that add up what they are told, compared with a node's own history: before an anvil that makes
//! many blocks at once and leaves them again, before geths of which one is killed and started again or has
//! WebSocket alone, and with nginx in between.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use wellhead_e2e::{ConsensusDriver, Rpc, WsClient};

/// Less than a client waits for a message, so that what is missing is printed.
const BOUND: Duration = Duration::from_secs(50);
/// Every contract that logs is here.
const LOGGER: &str = ConsensusDriver::LOGGER;

/// A chain as a node has it, from a block on.
struct History {
    headers: Vec<Value>,
    logs: Vec<Value>,
}

impl History {
    async fn of(node: &Rpc, from: u64) -> Self {
        let latest = node.result("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
        let to = number(&latest["number"]);
        let mut headers = Vec::new();
        for number in from..=to {
            let params = json!([format!("{number:#x}"), false]);
            let mut block = node.result("eth_getBlockByNumber", params).await.unwrap();
            for name in ["transactions", "uncles", "withdrawals", "size", "totalDifficulty"] {
                block.as_object_mut().unwrap().remove(name);
            }
            headers.push(block);
        }
        let range = json!({ "fromBlock": format!("{from:#x}"), "toBlock": latest["number"] });
        let logs = node.result("eth_getLogs", json!([range])).await.unwrap();
        Self { headers, logs: logs.as_array().unwrap().clone() }
    }
}

/// A client that subscribed to heads and logs, with the sum of what it was told.
struct Follower {
    client: WsClient,
    of_heads: String,
    /// The headers of the chain, ascending.
    chain: Vec<Value>,
    /// The logs that were not taken back.
    logs: Vec<Value>,
    taken_back: usize,
}

impl Follower {
    async fn subscribe(port: u16) -> Self {
        let mut client = WsClient::connect(port).await;
        let of_heads = client.subscribe(json!(["newHeads"])).await;
        client.subscribe(json!(["logs", { "address": LOGGER }])).await;
        Self { client, of_heads, chain: Vec::new(), logs: Vec::new(), taken_back: 0 }
    }

    /// Adds the next notification.
    async fn listen(&mut self) {
        let mut told = self.client.told().await;
        let result = told["result"].take();
        match told["subscription"] == self.of_heads {
            true => self.add_head(result),
            false => self.add_log(result),
        }
    }

    /// The block stands on the tip, or on an earlier one whose successors it replaces.
    fn add_head(&mut self, head: Value) {
        let parent = self.chain.iter().rposition(|block| block["hash"] == head["parentHash"]);
        assert!(parent.is_some() || self.chain.is_empty(), "a gap before {head}");
        let kept = parent.map_or(0, |parent| parent + 1);
        let replaced = self.chain.get(kept).map(|block| &block["hash"]);
        assert_ne!(replaced, Some(&head["hash"]), "told twice");
        self.chain.truncate(kept);
        self.chain.push(head);
    }

    fn add_log(&mut self, mut log: Value) {
        let key = |log: &Value| (log["blockHash"].clone(), log["logIndex"].clone());
        let told = self.logs.iter().rposition(|told| key(told) == key(&log));
        match (log["removed"] == true, told) {
            (false, None) => self.logs.push(log),
            (true, Some(told)) => {
                log["removed"] = false.into();
                assert_eq!(self.logs.remove(told), log);
                self.taken_back += 1;
            }
            (false, Some(_)) => panic!("told twice: {log}"),
            (true, None) => panic!("taken back without having been told: {log}"),
        }
    }

    /// Waits until it was told this history, and asserts that it was told nothing else.
    async fn hear(&mut self, history: &History) {
        let tip = |headers: &[Value]| headers.last().map(|head| head["hash"].clone());
        let expected = tip(&history.headers);
        let listening = async {
            while tip(&self.chain) != expected || self.logs != history.logs {
                self.listen().await;
            }
        };
        let has_heard = timeout(BOUND, listening).await.is_ok();
        assert_eq!(self.chain, history.headers);
        assert_eq!(self.logs, history.logs);
        assert!(has_heard);
        self.client.expect_silence().await;
    }
}

fn number(quantity: &Value) -> u64 {
    u64::from_str_radix(quantity.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

mod with_anvil {
    use wellhead_e2e::{Anvil, LOGGER_CODE, Nginx, Node, Upstream, Wellhead, until};

    use super::*;

    const CHAIN_ID: u64 = 31337;
    /// Seconds since 1970.
    const GENESIS: u64 = 1_700_000_000;
    /// Four a second.
    const BLOCKS: usize = 24;

    async fn tell(node: &Node, method: &str, params: Value) -> Value {
        node.rpc().result(method, params).await.unwrap_or_else(|why| panic!("{method}: {why}"))
    }

    fn log_call(value: u64) -> Value {
        let data = format!("0x{:064x}{value:064x}", 0xbb);
        json!({ "from": Anvil::RICH_ADDRESS, "to": LOGGER, "data": data, "gas": "0x186a0" })
    }

    /// Makes blocks with a log each.
    async fn mine_logs(node: &Node, values: std::ops::Range<u64>) {
        for value in values {
            tell(node, "eth_sendTransaction", json!([log_call(value)])).await;
            tell(node, "evm_mine", json!([])).await;
        }
    }

    /// A node with a contract that logs, behind one wellhead that polls it and another one that listens to it,
    /// and a subscriber of each, which are told of blocks from 3 on.
    struct Stage {
        node: Node,
        _wellheads: [Wellhead; 2],
        followers: [Follower; 2],
    }

    impl Stage {
        const FIRST: u64 = 3;

        async fn set(node: Node) -> Self {
            tell(&node, "anvil_setCode", json!([LOGGER, LOGGER_CODE])).await;
            tell(&node, "anvil_mine", json!(["0x2"])).await;
            let polled = Upstream::new("anvil", &node.url());
            let listened_to = polled.clone().with(&format!("ws: \"{}\"", node.ws_url()));
            let wellheads = [
                Wellhead::start(CHAIN_ID, &[polled]).await,
                Wellhead::start(CHAIN_ID, &[listened_to]).await,
            ];
            let followers = [
                Follower::subscribe(wellheads[0].port).await,
                Follower::subscribe(wellheads[1].port).await,
            ];
            Self { node, _wellheads: wellheads, followers }
        }

        async fn hear(&mut self) {
            let history = History::of(self.node.rpc(), Self::FIRST).await;
            for follower in &mut self.followers {
                follower.hear(&history).await;
            }
        }
    }

    #[tokio::test]
    async fn blocks_mined_at_once_and_left_again_are_told() {
        let mut stage = Stage::set(Anvil::by_hand(CHAIN_ID, GENESIS).await).await;
        tell(&stage.node, "eth_sendTransaction", json!([log_call(1)])).await;
        let began = Instant::now();
        tell(&stage.node, "anvil_mine", json!(["0x12c"])).await;
        let mined = began.elapsed();
        stage.hear().await;
        println!("300 blocks: mined in {mined:.1?}, told after {:.1?}", began.elapsed());

        mine_logs(&stage.node, 2..7).await;
        stage.hear().await;
        // Other blocks at the heights of the newest three, of which one has a log.
        tell(&stage.node, "anvil_reorg", json!([3, [[log_call(7), 1]]])).await;
        stage.hear().await;
        // A shorter chain, which then grows again.
        let snapshot = tell(&stage.node, "evm_snapshot", json!([])).await;
        mine_logs(&stage.node, 8..12).await;
        stage.hear().await;
        assert_eq!(tell(&stage.node, "evm_revert", json!([snapshot])).await, true);
        mine_logs(&stage.node, 12..14).await;
        stage.hear().await;
        mine_logs(&stage.node, 14..18).await;
        stage.hear().await;
        for follower in &stage.followers {
            assert_eq!(follower.taken_back, 3 + 4);
        }
    }

    #[tokio::test]
    async fn four_blocks_a_second_are_told() {
        let mut stage = Stage::set(Anvil::every(CHAIN_ID, 0.25).await).await;
        let node = stage.node.rpc();
        let hears = async {
            let [polled, listening] = &mut stage.followers;
            // A poll may miss a branch that is left at once, but not each time.
            let is_through =
                |follower: &Follower| follower.chain.len() >= BLOCKS && follower.taken_back > 0;
            while !is_through(polled) || !is_through(listening) {
                tokio::select! {
                    () = polled.listen() => {}
                    () = listening.listen() => {}
                }
            }
        };
        let sends = async {
            for value in 0.. {
                let hash =
                    node.result("eth_sendTransaction", json!([log_call(value)])).await.unwrap();
                let receipt = json!([hash]);
                let look = || async {
                    let receipt =
                        node.result("eth_getTransactionReceipt", receipt.clone()).await.ok()?;
                    (!receipt.is_null()).then_some(())
                };
                until(BOUND, look).await.unwrap();
                if value % 4 == 3 {
                    tell(&stage.node, "anvil_reorg", json!([2, []])).await;
                }
            }
        };
        tokio::select! {
            () = hears => {}
            () = sends => unreachable!("for ever"),
        }
        tell(&stage.node, "evm_setIntervalMining", json!([0])).await;
        for follower in &mut stage.followers {
            let history = History::of(node, number(&follower.chain[0]["number"])).await;
            follower.hear(&history).await;
        }
    }

    mod with_nginx {
        use super::*;

        /// Longer than nginx waits.
        const SILENCE: Duration = Duration::from_secs(38);

        /// nginx closes a connection on which the server is silent for longer than it may be, and wellhead
        /// is not, though there is nothing to be told.
        #[tokio::test]
        async fn a_silent_chain_costs_no_connection_behind_nginx() {
            let node = Anvil::by_hand(CHAIN_ID, GENESIS).await;
            tell(&node, "anvil_mine", json!(["0x2"])).await;
            let upstream = Upstream::new("anvil", &node.url());
            let upstream = upstream.with(&format!("ws: \"{}\"", node.ws_url()));
            let wellhead = Wellhead::start(CHAIN_ID, &[upstream]).await;
            let nginx = Nginx::before(wellhead.port, Duration::from_secs(35)).await;
            let impatient = Nginx::before(wellhead.port, Duration::from_secs(5)).await;
            let mut follower = Follower::subscribe(nginx.port).await;
            let mut other = Follower::subscribe(impatient.port).await;
            // It reads all the while, and so answers pings.
            let (silent, closed) = tokio::join!(
                timeout(SILENCE, follower.client.told_or_closed()),
                timeout(SILENCE, other.client.told_or_closed()),
            );
            assert!(silent.is_err(), "{silent:?}");
            assert_eq!(closed.unwrap(), Err(None), "nginx closes connections");
            tell(&node, "anvil_setCode", json!([LOGGER, LOGGER_CODE])).await;
            mine_logs(&node, 0..3).await;
            follower.hear(&History::of(node.rpc(), 3).await).await;
        }
    }
}

mod with_geth {
    use wellhead_e2e::{LogMiner, Node, Signal, Transactions, Upstream, Wellhead, until};

    use super::*;

    const FOLLOWERS: usize = 100;

    /// Both nodes stand at one block, on which a miner goes on.
    async fn at_one_block(driver: &ConsensusDriver) -> LogMiner {
        let first = driver.mine_on(driver.genesis(), Transactions::None).await;
        for node in [0, 1] {
            driver.set_head(node, &first).await;
        }
        LogMiner::new(&first)
    }

    /// Subscribes when the miner's block is the newest to clients.
    async fn subscribe(wellhead: &Wellhead, miner: &LogMiner, count: usize) -> Vec<Follower> {
        let look = || async {
            let latest = json!(["latest", false]);
            let latest = wellhead.rpc().result("eth_getBlockByNumber", latest).await.ok()?;
            (latest["hash"] == miner.head().hash).then_some(())
        };
        until(BOUND, look).await.unwrap();
        let mut followers = Vec::new();
        for _ in 0..count {
            followers.push(Follower::subscribe(wellhead.port).await);
        }
        followers
    }

    async fn all_hear(followers: &mut [Follower], node: &Node) {
        let history = History::of(node.rpc(), 2).await;
        for follower in followers {
            follower.hear(&history).await;
        }
    }

    #[tokio::test]
    async fn a_geth_that_is_started_again_costs_a_hundred_subscribers_nothing() {
        let mut driver = ConsensusDriver::start_durable(2).await;
        let mut miner = at_one_block(&driver).await;
        let upstreams = [0, 1].map(|node| {
            let (id, node) = (format!("geth-{node}"), driver.node(node));
            Upstream::new(&id, &node.url()).with(&format!("ws: \"{}\"", node.ws_url()))
        });
        let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
        let mut followers = subscribe(&wellhead, &miner, FOLLOWERS).await;
        for (back, count) in [(0, 1), (0, 3), (2, 3)] {
            miner.step(&driver, back, count, &[0, 1]).await;
        }
        all_hear(&mut followers, driver.node(1)).await;
        // While it is away, while it stands on a branch that was left, and when it follows again.
        driver.node(0).process.signal(Signal::Kill);
        for (back, count) in [(0, 1), (1, 2)] {
            miner.step(&driver, back, count, &[1]).await;
        }
        all_hear(&mut followers, driver.node(1)).await;
        driver.restart(0).await;
        for (back, count) in [(0, 1), (0, 2), (2, 3)] {
            miner.step(&driver, back, count, &[1]).await;
        }
        all_hear(&mut followers, driver.node(1)).await;
        for (back, count) in [(0, 1), (3, 4)] {
            miner.step(&driver, back, count, &[0, 1]).await;
        }
        all_hear(&mut followers, driver.node(0)).await;
        // It is all that is left.
        driver.node(1).process.signal(Signal::Kill);
        for (back, count) in [(0, 1), (2, 3), (0, 1)] {
            miner.step(&driver, back, count, &[0]).await;
        }
        all_hear(&mut followers, driver.node(0)).await;
    }

    /// One upstream has WebSocket alone and the other one HTTP alone; then each has to do without the other.
    #[tokio::test]
    async fn websocket_here_and_http_there_are_one_chain() {
        let driver = ConsensusDriver::start(2).await;
        let mut miner = at_one_block(&driver).await;
        let websocket = Upstream::new("websocket", &driver.node(0).ws_url());
        let upstreams = [websocket, Upstream::new("http", &driver.node(1).url())];
        let wellhead = Wellhead::start(ConsensusDriver::CHAIN_ID, &upstreams).await;
        let mut followers = subscribe(&wellhead, &miner, 2).await;
        for (back, count) in [(0, 1), (0, 5), (2, 3), (1, 1), (3, 2)] {
            miner.step(&driver, back, count, &[0, 1]).await;
            all_hear(&mut followers, driver.node(1)).await;
        }
        driver.node(1).process.signal(Signal::Stop);
        for (back, count) in [(0, 1), (0, 4)] {
            miner.step(&driver, back, count, &[0]).await;
            all_hear(&mut followers, driver.node(0)).await;
        }
        driver.node(1).process.signal(Signal::Cont);
        miner.step(&driver, 1, 2, &[0, 1]).await;
        all_hear(&mut followers, driver.node(1)).await;
        driver.node(0).process.signal(Signal::Kill);
        for (back, count) in [(0, 1), (2, 3)] {
            miner.step(&driver, back, count, &[1]).await;
            all_hear(&mut followers, driver.node(1)).await;
        }
    }
}
