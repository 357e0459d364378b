//! What subscribers are told, of chains whose upstreams say what they are told to.

mod support;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{Plan, Stage, Step, body_of, hash, text};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use wellhead_dispatch::now;
use wellhead_eth::{Bloom, BloomBits, hex};
use wellhead_jsonrpc::raw;
use wellhead_kit::ScriptedTransport;
use wellhead_proxy::{Announcer, ProxyWorker, Subscriber, SubscriberEvent, SubscriberMessage};
use wellhead_sim::node::SimNode;
use wellhead_sim::world::{World, WorldConfig};
use wellhead_transport::TransportError;
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_watch::{PollPace, Watcher, WatcherParts};

/// Longer than anything that is waited for.
const BOUND: Duration = Duration::from_secs(600);

/// A stage whose chain is announced.
fn announced(stage: Stage) -> Stage {
    for announcer in Announcer::all(&ProxyWorker::replaceable(&stage.proxy, stage.another_worker()))
    {
        tokio::spawn(announcer.run());
    }
    stage
}

/// More than any test tells a connection at once.
const TOLD_MAX: usize = 10_000;

/// A WebSocket connection.
struct Connection<'a> {
    stage: &'a Stage,
    subscriber: Subscriber,
}

impl<'a> Connection<'a> {
    fn to(stage: &'a Stage) -> Self {
        let subscriber = stage.proxy.open_subscriber(&stage.worker, None);
        Self { stage, subscriber: subscriber.expect("one chain") }
    }

    /// The result of a call, or its error.
    async fn call(&self, method: &str, params: &str) -> String {
        let body = body_of(method, params);
        let message = SubscriberMessage::new(&self.subscriber);
        let (proxy, worker) = (&self.stage.proxy, &self.stage.worker);
        let target = None.into();
        let answer = proxy.handle_message(
            worker,
            Some(&message),
            support::whole(),
            target,
            Bytes::from(body),
        );
        let answer = text(&answer.await);
        self.subscriber.activate(&message.into_subscribed());
        let field = |key| raw::field(answer.as_bytes(), key);
        let outcome = field("result").or_else(|| field("error")).expect("an outcome");
        String::from_utf8_lossy(outcome).into_owned()
    }

    /// Subscribes, and returns the id.
    async fn subscribe(&self, params: &str) -> String {
        let id = self.call("eth_subscribe", params).await;
        assert!(id.starts_with("\"0x"), "{id}");
        id
    }

    /// What it is told by now.
    fn told(&self) -> Vec<String> {
        let mut cx = Context::from_waker(Waker::noop());
        let next = || match self.subscriber.poll_event(&mut cx) {
            Poll::Ready(event) => Some(result(event)),
            Poll::Pending => None,
        };
        // A connection that is to be closed is told so for ever.
        std::iter::from_fn(next).take(TOLD_MAX).collect()
    }

    /// What it is told next.
    async fn next(&self) -> String {
        let next = poll_fn(|cx| self.subscriber.poll_event(cx));
        result(timeout(BOUND, next).await.expect("told in time"))
    }
}

/// The result that a notification tells.
fn result(event: SubscriberEvent) -> String {
    let SubscriberEvent::Notification(pieces) = event else { return format!("{event:?}") };
    let text = pieces.concat();
    let params = raw::field(&text, "params").expect("params");
    String::from_utf8_lossy(raw::field(params, "result").expect("a result")).into_owned()
}

#[tokio::test(start_paused = true)]
async fn syncing_is_told_at_once_and_when_it_changes() {
    let stage = announced(Stage::upstreams(1));
    stage.show_head(0, 7);
    let (one, other) = (Connection::to(&stage), Connection::to(&stage));
    let id = one.subscribe(r#"["syncing"]"#).await;
    assert_eq!(one.told(), ["false"]);
    // The view is old from now on.
    sleep(Duration::from_secs(12)).await;
    assert_eq!(one.told(), [""; 0]);
    let syncing =
        r#"{"syncing":true,"status":{"StartingBlock":7,"CurrentBlock":7,"HighestBlock":7}}"#;
    assert_eq!(one.next().await, syncing);
    other.subscribe(r#"["syncing",{}]"#).await;
    assert_eq!(other.told(), [syncing], "the state is told, whatever it is");
    sleep(Duration::from_secs(600)).await;
    assert!(one.told().is_empty() && other.told().is_empty(), "each change is told once");
    stage.show_head(0, 8);
    assert_eq!((one.next().await, other.next().await), ("false".into(), "false".into()));
    assert_eq!(one.call("eth_unsubscribe", &format!("[{id}]")).await, "true");
    assert_eq!(one.call("eth_unsubscribe", &format!("[{id}]")).await, "false");
    sleep(Duration::from_secs(60)).await;
    assert_eq!((one.told().len(), other.told().len()), (0, 1));
    // What it cost: nothing.
    assert!(stage.peer(0).seen().is_empty(), "{:?}", stage.peer(0).seen());
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_at_most_1024_subscriptions_of_all_kinds() {
    let stage = announced(Stage::upstreams(1));
    let connection = Connection::to(&stage);
    for _ in 0..1024 {
        connection.subscribe(r#"["syncing"]"#).await;
    }
    let told = connection.call("eth_subscribe", r#"["syncing"]"#).await;
    assert!(told.contains("too many subscriptions"), "{told}");
    assert_eq!(connection.told().len(), 1024, "each is told the state");
    drop(connection);
    Connection::to(&stage).subscribe(r#"["syncing"]"#).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_kinds_are_refused_in_the_words_of_geth() {
    let stage = announced(Stage::upstreams(1));
    let connection = Connection::to(&stage);
    let told = connection.call("eth_subscribe", r#"["oldHeads"]"#).await;
    assert!(told.contains("-32601"), "{told}");
    assert!(told.contains(r#"no \"oldHeads\" subscription in eth namespace"#), "{told}");
}

/// A block of a branch, as an upstream tells it.
struct SimpleBlock {
    number: u64,
    branch: u8,
    /// Each writes a log of the contract with its byte; none where it is 0.
    transactions: &'static [u8],
}

impl SimpleBlock {
    fn hash(&self) -> String {
        hash(self.number, self.branch).to_string()
    }

    fn logs(&self, transaction: u8) -> Value {
        let place = self.transactions.iter().position(|it| *it == transaction).expect("there");
        let log = json!({
            "address": hex::encode(&[transaction; 20]), "topics": [], "data": "0x",
            "blockNumber": hex::quantity(self.number), "blockHash": self.hash(),
            "transactionHash": hex::encode(&[transaction; 32]),
            "transactionIndex": hex::quantity(place as u64), "logIndex": hex::quantity(place as u64),
        });
        Value::Array(if transaction == 0 { Vec::new() } else { vec![log] })
    }

    fn receipts(&self) -> Value {
        let receipt = |transaction: &u8| {
            json!({
                "transactionHash": hex::encode(&[*transaction; 32]), "blockHash": self.hash(),
                "logs": self.logs(*transaction),
            })
        };
        self.transactions.iter().map(receipt).collect()
    }

    /// With whole transactions, each sent by the address of its byte.
    fn body(&self) -> Value {
        let transaction = |byte: &u8| {
            json!({
                "hash": hex::encode(&[*byte; 32]), "blockHash": self.hash(),
                "from": hex::encode(&[*byte; 20]), "to": null,
            })
        };
        let mut body = self.header();
        body["transactions"] = self.transactions.iter().map(transaction).collect();
        body
    }

    fn header(&self) -> Value {
        let mut bloom = Bloom::EMPTY;
        for transaction in self.transactions.iter().filter(|it| **it > 0) {
            bloom.add(BloomBits::of(&[*transaction; 20]));
        }
        let mut header = json!({
            "hash": self.hash(), "parentHash": hash(self.number - 1, self.branch).to_string(),
            "number": hex::quantity(self.number), "logsBloom": hex::encode(&bloom.0),
            "gasUsed": hex::quantity(self.transactions.len() as u64),
        });
        for name in [
            "sha3Uncles",
            "stateRoot",
            "transactionsRoot",
            "receiptsRoot",
            "difficulty",
            "gasLimit",
            "timestamp",
            "extraData",
        ] {
            header[name] = json!("0x0");
        }
        header
    }

    /// The upstream has the block from now on, and says so.
    fn show(&self, stage: &Stage) {
        self.have(stage);
        stage.show_block(0, self.number, self.branch);
    }

    fn have(&self, stage: &Stage) {
        let says = |method: &str, params: Value, answer: Value| {
            stage.peer(0).when(method, &params.to_string(), Step::Result(answer.to_string()));
        };
        says("eth_getBlockByHash", json!([self.hash(), false]), self.header());
        says("eth_getBlockByHash", json!([self.hash(), true]), self.body());
        says("eth_getBlockReceipts", json!([self.hash()]), self.receipts());
        let logs: Vec<_> = self.transactions.iter().map(|it| self.logs(*it)).collect();
        let logs: Vec<_> = logs.iter().filter_map(Value::as_array).flatten().cloned().collect();
        says("eth_getLogs", json!([{ "blockHash": self.hash() }]), logs.into());
    }
}

/// A chain at block 100, announced.
fn at_100(plan: Plan) -> Stage {
    let stage = announced(Stage::new(vec![plan]));
    for number in 90..=100 {
        SimpleBlock { number, branch: b'a', transactions: &[] }.show(&stage);
    }
    stage
}

/// Calls of a method that the upstream was sent.
fn calls(stage: &Stage, method: &str) -> usize {
    stage.peer(0).seen().iter().filter(|call| call.contains(method)).count()
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_told_what_subscribers_were_told_without_a_search() {
    let stage = at_100(Plan::default());
    let connection = Connection::to(&stage);
    connection.subscribe(r#"["logs"]"#).await;
    let id = stage.call("eth_newFilter", "[{}]").await;
    let of_one = format!(r#"[{{"address":"{}"}}]"#, hex::encode(&[3; 20]));
    let of_one = stage.call("eth_newFilter", &of_one).await;
    for (number, transactions) in [(101, [1, 3].as_slice()), (102, &[]), (103, &[3, 9])] {
        SimpleBlock { number, branch: b'a', transactions }.show(&stage);
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(connection.told().len(), 4);
    let cost = calls(&stage, "eth_getLogs");
    let polled = async |id: &str| {
        let told = stage.call("eth_getFilterChanges", &format!("[{id}]")).await;
        let logs: Vec<Value> = serde_json::from_str(&told).expect(&told);
        logs.iter()
            .map(|log| log["blockNumber"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(polled(&id).await, ["0x65", "0x65", "0x67", "0x67"]);
    assert_eq!(polled(&of_one).await, ["0x65", "0x67"]);
    assert_eq!(polled(&id).await, [""; 0]);
    assert_eq!(calls(&stage, "eth_getLogs"), cost);
}

/// The upstream takes a tenth of a second for the logs of a block, and has none of the last one at first.
#[tokio::test(start_paused = true)]
async fn logs_of_blocks_that_come_at_once_are_read_side_by_side_and_told_in_order() {
    let stage = at_100(Plan::default());
    let connection = Connection::to(&stage);
    connection.subscribe(r#"["logs"]"#).await;
    let late = |step: Step, millis| Step::After(Duration::from_millis(millis), Box::new(step));
    let blocks = (101..=140).map(|number| SimpleBlock { number, branch: b'a', transactions: &[7] });
    let blocks: Vec<_> = blocks.collect();
    for block in &blocks {
        block.have(&stage);
        // The older ones take longer.
        let millis = 100 + (140 - block.number);
        let logs = Step::Result(block.logs(7).to_string());
        let params = json!([{ "blockHash": block.hash() }]).to_string();
        stage.peer(0).when("eth_getLogs", &params, late(logs, millis));
    }
    stage.show_block(0, 140, b'a');
    sleep(Duration::from_millis(500)).await;
    let number = |told: &String| {
        let log: Value = serde_json::from_str(told).expect("a log");
        log["blockNumber"].as_str().map(ToOwned::to_owned)
    };
    let told: Vec<_> = connection.told().iter().map(number).collect();
    let expected: Vec<_> = blocks.iter().map(|it| Some(hex::quantity(it.number))).collect();
    assert_eq!(told, expected);
    assert_eq!(calls(&stage, "eth_getLogs"), blocks.len(), "one call for each");
}

/// An upstream that shows a head below the journal lags, or its chain was set back.
#[tokio::test(start_paused = true)]
async fn a_head_below_the_journal_closes_no_connection_before_it_is_believed() {
    // The lower chain grows, or does not.
    let falls_for = async |seconds: u64, grows: bool| {
        let stage = at_100(Plan::default());
        let connection = Connection::to(&stage);
        connection.subscribe(r#"["newHeads"]"#).await;
        SimpleBlock { number: 101, branch: b'a', transactions: &[] }.show(&stage);
        assert!(connection.next().await.contains(r#""number":"0x65""#));
        for second in 0..seconds {
            let number = 20 + if grows { second } else { 0 };
            SimpleBlock { number, branch: b'a', transactions: &[] }.have(&stage);
            stage.show_block(0, number, b'a');
            sleep(Duration::from_secs(1)).await;
        }
        let latest = stage.chain().heads.view().latest.map(|it| it.number.0);
        assert!(latest.is_some_and(|latest| latest < 100), "{latest:?}");
        SimpleBlock { number: 102, branch: b'a', transactions: &[] }.show(&stage);
        connection.next().await
    };
    for grows in [false, true] {
        assert!(falls_for(20, grows).await.contains(r#""number":"0x66""#));
        assert_eq!(falls_for(60, grows).await, "Resync");
    }
}

/// The transactions of a notification with receipts.
fn transactions(told: &str) -> Vec<u8> {
    let receipts: Vec<Value> = serde_json::from_str(told).expect("receipts");
    let hash =
        |receipt: &Value| receipt["transactionHash"].as_str().expect("a hash")[2..4].to_owned();
    receipts.iter().map(|it| u8::from_str_radix(&hash(it), 16).expect("a byte")).collect()
}

#[tokio::test(start_paused = true)]
async fn receipts_are_told_once_a_block_and_fetched_once() {
    let stage = at_100(Plan::default());
    let (one, other, third) =
        (Connection::to(&stage), Connection::to(&stage), Connection::to(&stage));
    one.subscribe(r#"["transactionReceipts"]"#).await;
    other.subscribe(r#"["transactionReceipts",{}]"#).await;
    let hashes = [hex::encode(&[3; 32]), hex::encode(&[9; 32])];
    let some = json!(["transactionReceipts", { "transactionHashes": hashes }]).to_string();
    third.subscribe(&some).await;
    third.subscribe(r#"["logs"]"#).await;

    let block = SimpleBlock { number: 101, branch: b'a', transactions: &[1, 0, 3] };
    block.show(&stage);
    let told = one.next().await;
    assert_eq!(serde_json::from_str::<Value>(&told).expect("JSON"), block.receipts());
    assert_eq!(other.next().await, told);
    sleep(Duration::from_secs(1)).await;
    let of_third = third.told();
    let receipts: Vec<_> = of_third.iter().filter(|it| it.starts_with('[')).collect();
    assert_eq!((of_third.len(), receipts.len()), (3, 1), "and two logs: {of_third:?}");
    assert_eq!(transactions(receipts[0]), [3]);
    let cost = |stage: &Stage| (calls(stage, "Receipts"), calls(stage, "eth_getLogs"));
    assert_eq!(cost(&stage), (1, 0), "the logs are those of the receipts");

    // A block without transactions, and a reorg: the new blocks are told, and no removal.
    SimpleBlock { number: 102, branch: b'a', transactions: &[] }.show(&stage);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(one.told(), [""; 0]);
    SimpleBlock { number: 100, branch: b'b', transactions: &[] }.have(&stage);
    SimpleBlock { number: 101, branch: b'b', transactions: &[3] }.have(&stage);
    SimpleBlock { number: 102, branch: b'b', transactions: &[1] }.have(&stage);
    SimpleBlock { number: 103, branch: b'b', transactions: &[0] }.show(&stage);
    let told = [one.next().await, one.next().await, one.next().await];
    assert_eq!(told.map(|told| transactions(&told)), [vec![3], vec![1], vec![0]]);

    // Without a subscription nothing is fetched.
    drop((one, other, third));
    let heads = Connection::to(&stage);
    heads.subscribe(r#"["newHeads"]"#).await;
    let before = cost(&stage);
    SimpleBlock { number: 104, branch: b'b', transactions: &[1] }.show(&stage);
    heads.next().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(cost(&stage), before);
}

#[tokio::test(start_paused = true)]
async fn receipts_that_cannot_be_had_delay_no_logs_and_are_not_skipped() {
    let stage = at_100(Plan::default());
    let (receipts, logs) = (Connection::to(&stage), Connection::to(&stage));
    receipts.subscribe(r#"["transactionReceipts"]"#).await;
    logs.subscribe(r#"["logs"]"#).await;
    let bad = [
        Step::Result("null".into()),
        // A receipt is missing: the bloom shows it.
        Step::Result(
            SimpleBlock { number: 101, branch: b'a', transactions: &[1] }.receipts().to_string(),
        ),
        Step::Result("[]".into()),
    ];
    bad.into_iter().for_each(|step| stage.peer(0).next("eth_getBlockReceipts", step));
    SimpleBlock { number: 101, branch: b'a', transactions: &[1, 2] }.show(&stage);
    SimpleBlock { number: 102, branch: b'a', transactions: &[3] }.show(&stage);
    for address in [1, 2, 3_u8] {
        let told = logs.next().await;
        assert!(told.contains(&hex::encode(&[address; 20])), "{told}");
    }
    assert_eq!(transactions(&receipts.next().await), [1, 2]);
    assert_eq!(transactions(&receipts.next().await), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_to_receipts_is_refused_where_they_cannot_be_had() {
    let methods = support::rules("", "eth_getBlockReceipts");
    let stage = at_100(Plan { methods, ..Plan::default() });
    let connection = Connection::to(&stage);
    let told = connection.call("eth_subscribe", r#"["transactionReceipts"]"#).await;
    assert!(told.contains("-32601") && told.contains("eth_getBlockReceipts"), "{told}");
    let hashes: Vec<_> = (0..201).map(|_| hex::encode(&[1; 32])).collect();
    let many = json!(["transactionReceipts", { "transactionHashes": hashes }]).to_string();
    let told = connection.call("eth_subscribe", &many).await;
    assert!(told.contains("-32602") && told.contains("exceed max number"), "{told}");
}

/// What is told of mined transactions: `-1` that number 1 was taken back.
fn mined(told: &[String]) -> Vec<String> {
    let word = |told: &String| {
        let told: Value = serde_json::from_str(told).expect("JSON");
        let sign = if told["removed"] == true { "-" } else { "" };
        let hash = told["transaction"]["hash"].as_str().expect("a hash");
        format!("{sign}{}", u8::from_str_radix(&hash[2..4], 16).expect("a byte"))
    };
    told.iter().map(word).collect()
}

#[tokio::test(start_paused = true)]
async fn mined_transactions_are_told_once_and_taken_back_where_that_is_wanted() {
    let stage = at_100(Plan::default());
    let (all, some, back) =
        (Connection::to(&stage), Connection::to(&stage), Connection::to(&stage));
    all.subscribe(r#"["alchemy_minedTransactions"]"#).await;
    let filter = json!({ "addresses": [{ "from": hex::encode(&[3; 20]) }], "hashesOnly": true });
    some.subscribe(&json!(["alchemy_minedTransactions", filter]).to_string()).await;
    back.subscribe(r#"["alchemy_minedTransactions",{"includeRemoved":true}]"#).await;
    stage.peer(0).next("eth_getBlockByHash", Step::Result("null".into()));
    let block = SimpleBlock { number: 101, branch: b'a', transactions: &[1, 2, 3] };
    block.show(&stage);
    let first: Value = serde_json::from_str(&all.next().await).expect("JSON");
    assert_eq!(first, json!({ "removed": false, "transaction": block.body()["transactions"][0] }));
    assert_eq!(mined(&[all.next().await, all.next().await]), ["2", "3"]);
    let hash = json!({ "hash": hex::encode(&[3; 32]) });
    let told: Vec<Value> =
        some.told().iter().map(|told| serde_json::from_str(told).expect("JSON")).collect();
    assert_eq!(told, [json!({ "removed": false, "transaction": hash })]);
    assert_eq!(mined(&back.told()), ["1", "2", "3"]);
    let whole = || stage.peer(0).seen().iter().filter(|call| call.contains(",true]")).count();
    assert_eq!(whole(), 1, "{:?}", stage.peer(0).seen());

    SimpleBlock { number: 100, branch: b'b', transactions: &[] }.have(&stage);
    SimpleBlock { number: 101, branch: b'b', transactions: &[3] }.have(&stage);
    SimpleBlock { number: 102, branch: b'b', transactions: &[5] }.show(&stage);
    assert_eq!(mined(&[all.next().await, all.next().await]), ["3", "5"]);
    assert_eq!(mined(&back.told()), ["-1", "-2", "-3", "3", "5"]);
    assert_eq!(mined(&some.told()), ["3"]);
    drop((all, some, back));
    let heads = Connection::to(&stage);
    heads.subscribe(r#"["newHeads"]"#).await;
    let before = whole();
    SimpleBlock { number: 103, branch: b'b', transactions: &[1] }.show(&stage);
    heads.next().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(whole(), before, "nothing is read without a subscription");
    let told =
        heads.call("eth_subscribe", r#"["alchemy_minedTransactions",{"addresses":1}]"#).await;
    assert!(told.contains("-32602") && told.contains("addresses"), "{told}");
}

/// The hash of a transaction, as JSON.
fn tx(number: u8) -> String {
    format!("\"{}\"", hex::encode(&[number; 32]))
}

/// A whole transaction of this sender.
fn whole(number: u8, from: u8) -> String {
    let (hash, from) = (hex::encode(&[number; 32]), hex::encode(&[from; 20]));
    format!(r#"{{"hash":"{hash}","from":"{from}","to":null}}"#)
}

const FILTER: &str = "eth_newPendingTransactionFilter";
const CHANGES: &str = "eth_getFilterChanges";

#[tokio::test(start_paused = true)]
async fn a_pool_that_no_upstream_pushes_is_polled_once_for_all_and_again_where_its_filter_died() {
    let stage = announced(Stage::upstreams(1));
    stage.show_head(0, 7);
    let peer = stage.peer(0);
    let found = |hashes: &[u8]| {
        let hashes: Vec<_> = hashes.iter().map(|number| tx(*number)).collect();
        Step::Result(format!("[{}]", hashes.join(",")))
    };
    peer.always(FILTER, Step::Result(r#""0x5""#.into()));
    peer.always(CHANGES, found(&[]));
    let (one, other) = (Connection::to(&stage), Connection::to(&stage));
    one.subscribe(r#"["newPendingTransactions"]"#).await;
    let id = other.subscribe(r#"["newPendingTransactions", false]"#).await;
    peer.next(CHANGES, found(&[1, 2]));
    assert_eq!([one.next().await, one.next().await], [tx(1), tx(2)]);
    assert_eq!(other.told(), [tx(1), tx(2)]);
    // The upstream forgets its filter, and the new one tells of a transaction again.
    peer.next(CHANGES, support::error(-32000, "filter not found"));
    peer.next(CHANGES, found(&[2, 3]));
    assert_eq!(one.next().await, tx(3));
    assert_eq!(calls(&stage, FILTER), 2);
    assert_eq!(other.call("eth_unsubscribe", &format!("[{id}]")).await, "true");
    assert_eq!(other.told(), [""; 0], "nothing after the end");
    drop(one);
    sleep(Duration::from_secs(21)).await;
    let polls = calls(&stage, CHANGES);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(calls(&stage, CHANGES), polls, "nothing is polled without a reader");
}

#[tokio::test(start_paused = true)]
async fn what_no_upstream_offers_is_refused() {
    let methods = support::rules("", FILTER);
    let stage = announced(Stage::new(vec![Plan { methods, ..Plan::default() }]));
    stage.show_head(0, 7);
    let connection = Connection::to(&stage);
    for kind in ["newPendingTransactions", "newFlashblocks"] {
        let told = connection.call("eth_subscribe", &format!("[\"{kind}\"]")).await;
        assert!(told.contains("-32601") && told.contains("no upstream offers"), "{told}");
    }
    let told = connection.call("eth_subscribe", r#"["newPendingTransactions",5]"#).await;
    assert!(told.contains("-32602"), "{told}");
    let told = connection
        .call("eth_subscribe", r#"["alchemy_pendingTransactions",{"toAddress":1}]"#)
        .await;
    assert!(told.contains("-32602") && told.contains("toAddress"), "{told}");
    let long = json!(["newFlashblocks", "x".repeat(70_000)]).to_string();
    assert!(connection.call("eth_subscribe", &long).await.contains("too long"));
}

/// The feeds of an upstream, each the messages that are put into it.
#[derive(Debug, Default)]
struct Feeds {
    lines: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
    subscribed: Arc<Mutex<Vec<String>>>,
}

struct Line {
    messages: mpsc::UnboundedReceiver<Bytes>,
    to: mpsc::WeakUnboundedSender<Bytes>,
    subscribed: Arc<Mutex<Vec<String>>>,
}

impl FeedConnector for Feeds {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>> {
        let (sender, messages) = mpsc::unbounded_channel();
        let (to, subscribed) = (sender.downgrade(), Arc::clone(&self.subscribed));
        self.lines.lock().push(sender);
        let line = Line { messages, to, subscribed };
        Box::pin(async { Ok(Box::new(line) as Box<dyn Feed>) })
    }
}

impl Feed for Line {
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        let call: Value = serde_json::from_slice(&text).expect("a call");
        let result = match call["method"].as_str() {
            Some("eth_subscribe") => {
                self.subscribed.lock().push(call["params"].to_string());
                "0x9"
            }
            _ => "0x1",
        };
        let reply = json!({ "jsonrpc": "2.0", "id": call["id"], "result": result });
        if let Some(to) = self.to.upgrade() {
            to.send(reply.to_string().into()).expect("open");
        }
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(async { self.messages.recv().await.map(Ok) })
    }
}

impl Feeds {
    /// Has the loop of the first upstream follow these.
    fn of(stage: &Stage) -> Arc<Self> {
        let feeds = Arc::<Self>::default();
        let chain = stage.chain();
        let parts = WatcherParts {
            upstream: Arc::clone(stage.upstream(0)),
            transport: Arc::new(ScriptedTransport::of_calls(|_| Step::Result("\"0x1\"".into()))),
            feed: Some(Arc::clone(&feeds) as Arc<dyn FeedConnector>),
            heads: Arc::clone(&chain.heads),
            pulse: Arc::clone(&chain.pulse),
            counts: Arc::clone(&chain.asked[0]),
        };
        tokio::spawn(Watcher::new(parts, PollPace::default()).run());
        feeds
    }

    /// Pushes this over the newest one.
    fn push(&self, result: &str) {
        let params = format!(r#"{{"subscription":"0x9","result":{result}}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{params}}}"#);
        let lines = self.lines.lock();
        lines.last().expect("one is open").send(text.into()).expect("something listens");
    }

    fn opened(&self) -> usize {
        self.lines.lock().len()
    }
}

#[tokio::test(start_paused = true)]
async fn pending_transactions_are_pushed_once_for_all_in_the_form_that_each_wants() {
    let stage = announced(Stage::upstreams(1));
    let feeds = Feeds::of(&stage);
    sleep(Duration::from_secs(1)).await;
    let (all, some, hashes) =
        (Connection::to(&stage), Connection::to(&stage), Connection::to(&stage));
    all.subscribe(r#"["newPendingTransactions",true]"#).await;
    let filter = json!({ "fromAddress": hex::encode(&[5; 20]) });
    some.subscribe(&json!(["alchemy_pendingTransactions", filter]).to_string()).await;
    let filter = json!({ "hashesOnly": true });
    hashes.subscribe(&json!(["alchemy_pendingTransactions", filter]).to_string()).await;
    assert_eq!(*feeds.subscribed.lock(), [r#"["newPendingTransactions",true]"#], "once for all");
    feeds.push(&whole(1, 5));
    feeds.push(&whole(2, 6));
    feeds.push(&whole(1, 5));
    feeds.push(&whole(3, 5));
    assert_eq!(
        [all.next().await, all.next().await, all.next().await],
        [whole(1, 5), whole(2, 6), whole(3, 5)]
    );
    assert_eq!(some.told(), [whole(1, 5), whole(3, 5)]);
    assert_eq!(hashes.told(), [tx(1), tx(2), tx(3)]);
    assert!(stage.peer(0).seen().is_empty(), "nothing is polled");
    // A client that reads too slowly misses some and is told of the newest again.
    for number in 0..9000_u32 {
        let hash = hex::encode(&[&number.to_be_bytes()[..], &[0xee; 28]].concat());
        feeds.push(&format!(r#"{{"hash":"{hash}"}}"#));
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(all.told().len(), 0);
    feeds.push(&whole(4, 6));
    assert_eq!(all.next().await, whole(4, 6));
}

#[tokio::test(start_paused = true)]
async fn a_relayed_kind_is_told_as_it_is_and_a_gap_means_what_its_policy_says() {
    let stage = announced(Stage::upstreams(1));
    let feeds = Feeds::of(&stage);
    sleep(Duration::from_secs(1)).await;
    let (flash, other, monad) =
        (Connection::to(&stage), Connection::to(&stage), Connection::to(&stage));
    flash.subscribe(r#"["newFlashblocks"]"#).await;
    other.subscribe(r#"[ "newFlashblocks" ]"#).await;
    feeds.push(r#"{"index":"0x1"}"#);
    assert_eq!(flash.next().await, r#"{"index":"0x1"}"#);
    assert_eq!(other.told(), [r#"{"index":"0x1"}"#]);
    monad.subscribe(r#"["monadNewHeads"]"#).await;
    assert_eq!(*feeds.subscribed.lock(), [r#"["newFlashblocks"]"#, r#"["monadNewHeads"]"#]);
    // The upstream closes both; they are opened again.
    feeds.lines.lock().clear();
    assert_eq!(monad.next().await, "Resync");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(feeds.opened(), 2);
    assert_eq!(flash.told(), [""; 0]);
    let newest = feeds.subscribed.lock().last().cloned();
    feeds.push(r#"{"index":"0x2"}"#);
    match newest.as_deref() {
        Some(r#"["newFlashblocks"]"#) => assert_eq!(flash.next().await, r#"{"index":"0x2"}"#),
        other => assert_eq!(other, Some(r#"["monadNewHeads"]"#)),
    }
    drop((flash, other, monad));
    sleep(Duration::from_secs(22)).await;
    let is_open = |line: &mpsc::UnboundedSender<Bytes>| !line.is_closed();
    assert!(!feeds.lines.lock().iter().any(is_open), "closed after the last reader");
}

/// A header whose hash is that of its contents, as newHeads pushes it.
fn real_header(world: &Arc<World>) -> Value {
    let node = SimNode::new("node", Arc::clone(world));
    let params = json!([format!("{:#x}", world.head().number()), false]);
    let mut block = node.ask("eth_getBlockByNumber", Some(&params)).expect("a block");
    let members = block.as_object_mut().expect("a block");
    for name in ["transactions", "uncles", "withdrawals", "size", "totalDifficulty"] {
        members.remove(name);
    }
    block
}

#[tokio::test(start_paused = true)]
async fn a_pushed_header_is_used_if_it_is_proven_and_fetched_otherwise() {
    let world = World::new(WorldConfig::seeded(5));
    let stage = announced(Stage::upstreams(1));
    let feeds = Feeds::of(&stage);
    let peer = stage.peer(0);
    let mut headers = Vec::new();
    for _ in 0..8 {
        let header = real_header(&world);
        let by_hash = json!([header["hash"], false]).to_string();
        peer.when("eth_getBlockByHash", &by_hash, Step::Result(header.to_string()));
        headers.push(header);
        world.mine();
    }
    let fetches = || calls(&stage, "eth_getBlockByHash");
    sleep(Duration::from_secs(1)).await;
    stage.chain().pulse.note_call(now());
    sleep(Duration::from_secs(1)).await;
    feeds.push(&headers[4].to_string());
    let client = Connection::to(&stage);
    client.subscribe(r#"["newHeads"]"#).await;
    let before = fetches();
    feeds.push(&headers[5].to_string());
    assert_eq!(serde_json::from_str::<Value>(&client.next().await).expect("JSON"), headers[5]);
    assert_eq!(fetches(), before, "it was proven");
    // Another gas limit under this hash: what is told is what the upstream answers by the hash.
    let mut forged = headers[6].clone();
    forged["gasLimit"] = json!("0x1");
    feeds.push(&forged.to_string());
    assert_eq!(serde_json::from_str::<Value>(&client.next().await).expect("JSON"), headers[6]);
    assert_eq!(fetches(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn the_filters_of_pending_transactions_are_bounded_in_bytes_and_given_back() {
    let stage = announced(Stage::upstreams(1));
    let _feeds = Feeds::of(&stage);
    sleep(Duration::from_secs(1)).await;
    let addresses: Vec<_> = (0..1000).map(|number| format!("0x{number:040x}")).collect();
    let filter = json!(["alchemy_pendingTransactions", { "toAddress": addresses }]).to_string();
    let mut connections = vec![Connection::to(&stage)];
    let mut told = String::new();
    // 64 MiB of filters with 20 KB each.
    for number in 1..4000 {
        let connection = connections.last().expect("one");
        told = connection.call("eth_subscribe", &filter).await;
        if !told.starts_with("\"0x") {
            break;
        }
        if number % 1000 == 0 {
            connections.push(Connection::to(&stage));
        }
    }
    assert!(told.contains("-32005") && told.contains("too many different filters"), "{told}");
    drop(connections);
    Connection::to(&stage).subscribe(&filter).await;
}
