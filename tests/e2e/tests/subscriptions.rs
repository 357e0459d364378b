//! What subscribers are told over WebSocket, compared with the history of real nodes that skip blocks,
//! leave branches, hang and die. The subscribers are a plain client that looks at each message, and the
//! libraries that people use: viem, ethers, web3.py, web3.js, go-ethereum's own client, and alloy.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;
use wellhead_e2e::{
    Block, ConsensusDriver, LogMiner, Script, Signal, Transactions, Upstream, Wellhead, WsClient,
    until,
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
        let wellhead = Self::before(&driver, feeds, "").await;
        Self { driver, wellhead }
    }

    async fn before(driver: &ConsensusDriver, feeds: bool, settings: &str) -> Wellhead {
        let upstreams = [0, 1].map(|number| {
            let node = driver.node(number);
            let upstream = Upstream::new(&format!("geth-{number}"), &node.url());
            if feeds { upstream.with(&format!("ws: \"{}\"", node.ws_url())) } else { upstream }
        });
        Wellhead::start_with(settings, ConsensusDriver::CHAIN_ID, &upstreams).await
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

    /// Asserts that the metrics have these lines.
    async fn measures(&self, lines: &[&str]) {
        let metrics = self.wellhead.admin().get("/metrics").await.unwrap().text();
        for line in lines {
            assert!(metrics.lines().any(|it| it == *line), "{line} is not in\n{metrics}");
        }
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

/// A script under `clients/`, and what its library makes of notifications.
#[derive(Clone, Copy)]
struct Library {
    script: &'static str,
    /// It subscribes over WebSocket; otherwise it polls filters over HTTP.
    subscribes: bool,
    /// It passes on the heads in their order.
    orders_heads: bool,
    /// It passes on logs with `"removed": true`.
    shows_removals: bool,
    /// Its script connects anew and says so; otherwise the library does so in silence.
    shows_restarts: bool,
}

impl Library {
    fn of_subscriptions(script: &'static str) -> Self {
        Self {
            script,
            subscribes: true,
            orders_heads: true,
            shows_removals: true,
            shows_restarts: true,
        }
    }

    fn of_filters(script: &'static str) -> Self {
        Self { subscribes: false, ..Self::of_subscriptions(script) }
    }
}

/// A library that hears of heads and of the logs of [`ConsensusDriver::LOGGER`].
struct LibraryProcess {
    library: Library,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    script: Script,
}

impl LibraryProcess {
    async fn start(library: Library, wellhead: &Wellhead) -> Self {
        let url = if library.subscribes { wellhead.ws_url() } else { wellhead.url() };
        let mut script = Script::new(library.script);
        let stderr = std::fs::File::create(script.folder.path().join("stderr")).unwrap();
        let command = script.command.args([&url, ConsensusDriver::LOGGER]).stderr(stderr);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { library, child, lines, script };
        assert_eq!(process.line().await, "subscribed");
        process
    }

    /// What it prints next.
    async fn line(&mut self) -> Value {
        let stderr = || std::fs::read_to_string(self.script.folder.path().join("stderr")).unwrap();
        let line = timeout(BOUND, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("printed nothing in {BOUND:?}:\n{}", stderr()));
        let line = line.unwrap().unwrap_or_else(|| panic!("ended:\n{}", stderr()));
        serde_json::from_str(&line).unwrap()
    }

    /// Asserts that it passes on exactly these heads and logs next.
    async fn expect(&mut self, blocks: &[Block], logs: &[Value]) {
        let mut hashes: Vec<_> = blocks.iter().map(|block| json!(block.hash)).collect();
        let number = |quantity: &Value| {
            u64::from_str_radix(quantity.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
        };
        let expected: Vec<_> = logs
            .iter()
            .filter(|log| self.library.shows_removals || log["removed"] == false)
            .map(|log| {
                let index = number(&log["logIndex"]);
                let log_id =
                    json!([log["blockHash"], index, log["transactionHash"], log["removed"]]);
                json!({ "log": log_id, "value": number(&log["data"]) })
            })
            .collect();
        let (mut heads, mut seen) = (Vec::new(), Vec::new());
        for _ in 0..hashes.len() + expected.len() {
            let mut line = self.line().await;
            match line.get_mut("head") {
                Some(head) => heads.push(head.take()),
                None => seen.push(line),
            }
        }
        if !self.library.orders_heads {
            heads.sort_by_key(Value::to_string);
            hashes.sort_by_key(Value::to_string);
        }
        assert_eq!(heads, hashes);
        assert_eq!(seen, expected);
    }

    /// Has these nodes go back and add blocks, as often as there are `(back, count)`, and asserts that it
    /// passes on exactly what changed.
    async fn expect_steps(
        &mut self,
        stage: &Stage,
        miner: &mut LogMiner,
        nodes: &[usize],
        steps: &[(u64, u64)],
    ) {
        for (back, count) in steps {
            let (blocks, logs) = miner.step(&stage.driver, *back, *count, nodes).await;
            self.expect(&blocks, &logs).await;
        }
    }

    /// Sends three transactions to wellhead, and asserts that a subscriber passes on exactly these next.
    async fn expect_pending(&mut self, stage: &Stage, first_nonce: u64) {
        if !self.library.subscribes {
            return;
        }
        let mut sent = Vec::new();
        for nonce in first_nonce..first_nonce + 3 {
            // The account makes no logs, and no block takes its transactions.
            let transaction = ConsensusDriver::log_call(3, nonce, 0);
            let rpc = stage.wellhead.rpc();
            sent.push(rpc.result("eth_sendRawTransaction", json!([transaction])).await.unwrap());
        }
        let mut told = Vec::new();
        for _ in &sent {
            told.push(self.line().await["pending"].take());
        }
        sent.sort_by_key(Value::to_string);
        told.sort_by_key(Value::to_string);
        assert_eq!(told, sent);
    }

    /// Asserts that a subscriber was told of a restart, and has subscribed again.
    async fn expect_restart(&mut self, wellhead: &Wellhead) {
        if !self.library.subscribes {
            return;
        }
        if !self.library.shows_restarts {
            let all_are_back = || async {
                let metrics = wellhead.admin().get("/metrics").await.ok()?.text();
                let kinds = ["newHeads", "logs", "newPendingTransactions"];
                let has_one = |kind: &str| {
                    let line = format!(r#"wellhead_subscriptions{{chain="main",kind="{kind}"}} 1"#);
                    metrics.lines().any(|it| it == line)
                };
                kinds.into_iter().all(has_one).then_some(())
            };
            assert_eq!(until(BOUND, all_are_back).await, Some(()), "it subscribed again");
            return;
        }
        assert_eq!(self.line().await, json!({ "closed": 1012 }));
        assert_eq!(self.line().await, "subscribed");
    }

    /// Asserts that it can unsubscribe, heard of nothing more, and ends well.
    async fn leave(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.line().await, "unsubscribed");
        let rest = timeout(BOUND, self.lines.next_line()).await.expect("ends in time").unwrap();
        assert_eq!(rest, None);
        let status = timeout(BOUND, self.child.wait()).await.expect("ends in time").unwrap();
        assert!(status.success(), "{status}");
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

        let mut miner = LogMiner::new(&first[0]);
        let mut told = Vec::new();
        for (block, back) in (0..12_u64).zip([0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 3, 0]) {
            let (_, expected) = miner.step(&stage.driver, back, back + 1, &[0, 1]).await;
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
        let lines = [
            r#"wellhead_subscriptions{chain="main",kind="logs"} 2"#,
            r#"wellhead_subscriptions{chain="main",kind="newHeads"} 1"#,
            r#"wellhead_announced_blocks_total{chain="main",change="added"} 18"#,
            r#"wellhead_announced_blocks_total{chain="main",change="removed"} 6"#,
            r#"wellhead_announcer_calls_total{chain="main",fetched="logs"} 18"#,
            r#"wellhead_subscription_gaps_total{chain="main",reason="resync"} 0"#,
        ];
        stage.measures(&lines).await;
    }

    /// The changes that a filter tells are the node's own history, whichever upstream is left and though
    /// wellhead is started anew.
    #[tokio::test]
    async fn filters_outlive_their_upstream_and_a_restart() {
        let driver = ConsensusDriver::start(2).await;
        let folder = tempfile::tempdir().unwrap();
        let settings = format!("state: \"{}\"\n", folder.path().join("state").display());
        let wellhead = Stage::before(&driver, true, &settings).await;
        let mut stage = Stage { driver, wellhead };
        let first = stage.mine(stage.driver.genesis(), 1, &[0, 1]).await;
        stage.agrees_on(&first[0]).await;
        let make = async |stage: &Stage, method: &str, params: Value| {
            stage.wellhead.rpc().result(method, params).await.unwrap()
        };
        let logs = json!([{ "address": ConsensusDriver::LOGGER, "fromBlock": "0x1" }]);
        let of_logs = make(&stage, "eth_newFilter", logs).await;
        let of_blocks = make(&stage, "eth_newBlockFilter", json!([])).await;
        let changes = async |stage: &Stage, id: &Value| {
            stage.wellhead.rpc().result("eth_getFilterChanges", json!([id])).await
        };
        // An upstream may answer at a new head just before all agree on it.
        let expect = async |stage: &Stage, id: &Value, expected: &[Value]| {
            let told = Mutex::new(Vec::new());
            let all = || async {
                let new = changes(stage, id).await.unwrap();
                let mut told = told.lock().unwrap();
                told.extend(new.as_array().unwrap().iter().cloned());
                (told.len() >= expected.len()).then_some(())
            };
            let is_told = until(BOUND, all).await;
            assert_eq!(told.into_inner().unwrap(), expected);
            assert_eq!(is_told, Some(()));
        };
        let hashes = |blocks: &[Block]| blocks.iter().map(|it| json!(it.hash)).collect::<Vec<_>>();

        let mut miner = LogMiner::new(&first[0]);
        let mut upstreams = vec![0, 1];
        for (back, count) in [(0, 1), (0, 3), (2, 3), (1, 1), (0, 8), (3, 2), (0, 1), (2, 5)] {
            let (blocks, told) = miner.step(&stage.driver, back, count, &upstreams).await;
            stage.agrees_on(miner.head()).await;
            expect(&stage, &of_logs, &told).await;
            expect(&stage, &of_blocks, &hashes(&blocks)).await;
            assert_eq!(changes(&stage, &of_logs).await.unwrap(), json!([]), "each once");
            if count == 8 {
                stage.driver.node(0).process.signal(Signal::Kill);
                upstreams = vec![1];
            }
        }
        let all = stage.wellhead.rpc().result("eth_getFilterLogs", json!([of_logs])).await.unwrap();
        let search = json!([{ "address": ConsensusDriver::LOGGER, "fromBlock": "0x1" }]);
        let direct = stage.driver.node(1).rpc().result("eth_getLogs", search).await.unwrap();
        assert_eq!(all, direct);

        // Blocks that come while wellhead is away are told; what cannot be taken back ends the filter.
        for back in [0, 1] {
            stage.wellhead.process.signal(Signal::Term);
            assert_eq!(stage.wellhead.process.exit_code(BOUND).await, Some(0));
            let (blocks, told) = miner.step(&stage.driver, back, 2, &upstreams).await;
            stage.wellhead = Stage::before(&stage.driver, true, &settings).await;
            stage.agrees_on(miner.head()).await;
            match back {
                0 => expect(&stage, &of_logs, &told).await,
                _ => {
                    let told = changes(&stage, &of_logs).await.unwrap_err();
                    assert!(told.contains("-32000") && told.contains("filter not found"), "{told}");
                }
            }
            expect(&stage, &of_blocks, &hashes(&blocks)).await;
        }
        assert_eq!(make(&stage, "eth_uninstallFilter", json!([of_blocks])).await, true);
        assert_eq!(make(&stage, "eth_uninstallFilter", json!([of_blocks])).await, false);
    }

    /// The receipts of each block as a node has them, from one call that also brings the logs.
    #[tokio::test]
    async fn receipts_are_those_of_the_chain() {
        let stage = Stage::set(true).await;
        let first = stage.mine(stage.driver.genesis(), 1, &[0, 1]).await;
        stage.agrees_on(&first[0]).await;
        let mut client = stage.client().await;
        let all = client.subscribe(json!(["transactionReceipts"])).await;
        client.subscribe(json!(["logs", { "address": ConsensusDriver::LOGGER }])).await;
        let mut miner = LogMiner::new(&first[0]);
        for back in [0, 0, 2, 1, 0] {
            let (blocks, logs) = miner.step(&stage.driver, back, back + 1, &[0, 1]).await;
            let rpc = stage.driver.node(0).rpc();
            let mut expected = Vec::new();
            for block in &blocks {
                let receipts = rpc.result("eth_getBlockReceipts", json!([block.hash])).await;
                expected.push(receipts.unwrap());
            }
            let (mut receipts, mut logs_told) = (Vec::new(), 0);
            while receipts.len() < expected.len() || logs_told < logs.len() {
                let mut message = client.told().await;
                match message["subscription"] == all {
                    true => receipts.push(message["result"].take()),
                    false => logs_told += 1,
                }
            }
            assert_eq!(receipts, expected);
        }
        client.expect_silence().await;
        let lines = [
            r#"wellhead_subscriptions{chain="main",kind="transactionReceipts"} 1"#,
            r#"wellhead_announcer_calls_total{chain="main",fetched="receipts"} 8"#,
            r#"wellhead_announcer_calls_total{chain="main",fetched="logs"} 0"#,
        ];
        stage.measures(&lines).await;
    }

    #[tokio::test]
    async fn nodes_that_hang_are_syncing() {
        let stage = Stage::set(true).await;
        let first = stage.mine(stage.driver.genesis(), 2, &[0, 1]).await;
        stage.agrees_on(&first[1]).await;
        let mut client = stage.client().await;
        client.subscribe(json!(["syncing"])).await;
        assert_eq!(client.told().await["result"], false);
        (0..2).for_each(|node| stage.driver.node(node).process.signal(Signal::Stop));
        let block = u64::from_str_radix(&first[1].quantity()[2..], 16).unwrap();
        let status = json!({"StartingBlock": block, "CurrentBlock": block, "HighestBlock": block});
        assert_eq!(client.told().await["result"], json!({"syncing": true, "status": status}));
        (0..2).for_each(|node| stage.driver.node(node).process.signal(Signal::Cont));
        assert_eq!(client.told().await["result"], false);
        client.expect_silence().await;
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

    /// Every head and every log in order, and to subscribers every pending transaction, while blocks come
    /// one by one and many at once, one of two nodes is killed, branches are left, and wellhead is started
    /// anew.
    async fn hears_all(library: Library) {
        let driver = ConsensusDriver::start(2).await;
        let folder = tempfile::tempdir().unwrap();
        let settings = format!("state: \"{}\"\n", folder.path().join("state").display());
        let wellhead = Stage::before(&driver, true, &settings).await;
        let mut stage = Stage { driver, wellhead };
        let first = stage.mine(stage.driver.genesis(), 1, &[0, 1]).await;
        stage.agrees_on(&first[0]).await;
        let mut process = LibraryProcess::start(library, &stage.wellhead).await;
        let mut miner = LogMiner::new(&first[0]);
        let steps = [(0, 1), (0, 1), (0, 5), (1, 1), (1, 2), (0, 1)];
        process.expect_steps(&stage, &mut miner, &[0, 1], &steps).await;
        process.expect_pending(&stage, 0).await;
        stage.driver.node(0).process.signal(Signal::Kill);
        let steps = [(0, 1), (0, 1), (0, 8), (3, 5), (1, 1), (0, 2)];
        process.expect_steps(&stage, &mut miner, &[1], &steps).await;
        process.expect_pending(&stage, 3).await;
        stage.wellhead = stage.wellhead.restart().await;
        process.expect_restart(&stage.wellhead).await;
        process.expect_pending(&stage, 6).await;
        process.expect_steps(&stage, &mut miner, &[1], &[(0, 1), (0, 3), (1, 3)]).await;
        process.leave().await;
    }

    /// Has each of these libraries hear all, in a module of its own.
    macro_rules! hear_all {
        ($($module:ident { $($test:ident: $library:expr;)* })*) => {$(
            mod $module {
                use super::*;

                $(
                    #[tokio::test]
                    async fn $test() {
                        hears_all($library).await;
                    }
                )*
            }
        )*};
    }

    hear_all! {
        with_viem {
            viem_keeps_filters: Library::of_filters("filters.viem.mjs");
            // It reads the block of each head, and passes on blocks in the order of the answers.
            viem_hears_all: Library {
                orders_heads: false,
                ..Library::of_subscriptions("subscribe.viem.mjs")
            };
        }
        // A removed log is an event of its own there, whose listener has to name that very log.
        with_ethers {
            ethers_keeps_filters: Library {
                shows_removals: false,
                ..Library::of_filters("filters.ethers.mjs")
            };
            ethers_hears_all: Library {
                shows_removals: false,
                ..Library::of_subscriptions("subscribe.ethers.mjs")
            };
        }
        with_web3py {
            web3py_keeps_filters: Library::of_filters("filters_web3py.py");
            web3py_hears_all: Library::of_subscriptions("subscribe_web3py.py");
        }
        with_web3js {
            web3js_keeps_filters: Library::of_filters("web3js/filters.mjs");
            web3js_hears_all: Library::of_subscriptions("web3js/subscribe.mjs");
        }
        with_alloy {
            alloy_keeps_filters: Library::of_filters("alloy");
            alloy_hears_all: Library {
                shows_restarts: false,
                ..Library::of_subscriptions("alloy")
            };
        }
        with_go_ethereum {
            go_ethereum_keeps_filters: Library::of_filters("go-ethereum");
            go_ethereum_hears_all: Library::of_subscriptions("go-ethereum");
        }
    }
}
