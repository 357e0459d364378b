//! What subscribers are told, of chains whose upstreams say what they are told to.

mod support;

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use support::{Plan, Stage, Step, hash, text};
use tokio::time::{sleep, timeout};
use wellhead_dispatch::now;
use wellhead_eth::{Bloom, BloomBits, hex};
use wellhead_jsonrpc::raw;
use wellhead_proxy::{Announcer, Ctx, Subscriber, SubscriberEvent, SubscriberMessage};

/// Longer than anything that is waited for.
const BOUND: Duration = Duration::from_secs(600);

/// A stage whose chain is announced.
fn announced(stage: Stage) -> Stage {
    for announcer in Announcer::all(&stage.proxy, stage.another_worker()) {
        tokio::spawn(announcer.run());
    }
    stage
}

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
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let peer = ([127, 0, 0, 1], 1).into();
        let ctx = Ctx { received_at: now(), peer, want_trail: false, may_stream: false };
        let message = SubscriberMessage::new(&self.subscriber);
        let (proxy, worker) = (&self.stage.proxy, &self.stage.worker);
        let target = None.into();
        let answer = proxy.handle_message(worker, Some(&message), ctx, target, Bytes::from(body));
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
        std::iter::from_fn(next).collect()
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
