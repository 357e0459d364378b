//! What subscribers cost at six providers, for an hour of blocks: each provider keeps a ledger of its
//! own, by its own prices, of the calls, events and bytes that it saw. wellhead's ledger must agree.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use wellhead_chain::{Heads, HeadsTerms};
use wellhead_dispatch::{Bounds, WorkerUpstreams};
use wellhead_eth::ChainId;
use wellhead_jsonrpc::ParseLimits;
use wellhead_kit::{ScriptedTransport, Step, ms, now, secs};
use wellhead_proxy::{
    Announcer, ChainName, Ctx, Proxy, ProxyWorker, ServedChain, Settings, Subscriber,
    SubscriberEvent, SubscriberMessage, Target, Thought, WorkerChains,
};
use wellhead_route::Roster;
use wellhead_sim::node::SimNode;
use wellhead_sim::world::{World, WorldConfig};
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_transport::{Transport, TransportError};
use wellhead_upstream::{
    Budget, BudgetTerms, Identity, MethodRules, Provider, Slot, Upstream, UpstreamList, UpstreamSet,
};
use wellhead_watch::{CheckCounts, PollPace, Pulse, Watcher, WatcherParts};

const BLOCK: Duration = Duration::from_secs(12);
const HOUR_BLOCKS: u64 = 300;
/// Blocks before the first client.
const IDLE_BLOCKS: u64 = 5;

/// What one provider charges, in thousandths of a credit: as its page says, and not as wellhead
/// reads it.
fn call_price(provider: &str, method: &str) -> u64 {
    let credits = match (provider, method) {
        ("alchemy", "eth_chainId" | "eth_syncing" | "net_version") => 0,
        ("alchemy", "eth_subscribe") => 10,
        ("alchemy", "eth_getLogs") => 60,
        ("alchemy", _) => 20,
        ("infura", "eth_chainId") => 5,
        ("infura", "eth_getLogs") => 255,
        ("infura", _) => 80,
        ("quicknode", _) => 20,
        ("chainstack", _) => 1,
        _ => panic!("no price of {method} at {provider}"),
    };
    credits * 1_000
}

fn push_price(provider: &str, bytes: usize) -> u64 {
    match provider {
        "alchemy" => 40 * bytes as u64,
        "infura" => 50_000,
        "quicknode" => 20_000,
        "chainstack" => 1_000,
        _ => panic!("no price of a message at {provider}"),
    }
}

/// `eth_getBlockByNumber` of a height, as the headers are read of which several are missing.
const BLOCK_AT_HEIGHT: &str = "eth_getBlockByNumber of a height";
/// The calls by which headers are read.
const HEADERS: [&str; 2] = ["eth_getBlockByHash", BLOCK_AT_HEIGHT];

/// One upstream that counts.
#[derive(Debug)]
struct Metered {
    provider: &'static str,
    node: Arc<SimNode>,
    calls: Mutex<BTreeMap<String, u64>>,
    events: AtomicU64,
    bytes: AtomicU64,
    /// Thousandths of a credit.
    owed: AtomicU64,
    feeds_open: AtomicUsize,
}

impl Metered {
    fn call(&self, method: &str, params: Option<&Value>) -> Option<Value> {
        // A head is polled at a tag.
        let is_at_height =
            params.is_some_and(|it| it[0].as_str().is_some_and(|at| at.starts_with("0x")));
        let name = match method {
            "eth_getBlockByNumber" if is_at_height => BLOCK_AT_HEIGHT,
            _ => method,
        };
        *self.calls.lock().entry(name.to_owned()).or_default() += 1;
        self.owed.fetch_add(call_price(self.provider, method), Relaxed);
        match method {
            "eth_subscribe" => Some(json!("0x77")),
            _ => self.node.ask(method, params).ok(),
        }
    }

    fn transport(self: &Arc<Self>) -> Arc<dyn Transport> {
        let metered = Arc::clone(self);
        let transport = ScriptedTransport::of_calls(move |call| {
            let call: Value = serde_json::from_slice(&call.body).expect("a call");
            let method = call["method"].as_str().expect("a method");
            match metered.call(method, call.get("params")) {
                Some(result) => Step::Result(result.to_string()),
                None => wellhead_kit::error(-32000, "not here"),
            }
        });
        Arc::new(transport.unrecorded())
    }

    fn calls_of(&self, method: &str) -> u64 {
        self.calls.lock().get(method).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
struct MeteredFeeds(Arc<Metered>);

struct MeteredFeed {
    metered: Arc<Metered>,
    replies: VecDeque<Bytes>,
    told: u64,
}

impl Drop for MeteredFeed {
    fn drop(&mut self) {
        self.metered.feeds_open.fetch_sub(1, Relaxed);
    }
}

impl FeedConnector for MeteredFeeds {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>> {
        self.0.feeds_open.fetch_add(1, Relaxed);
        let metered = Arc::clone(&self.0);
        let told = metered.node.head().number();
        let feed = MeteredFeed { metered, replies: VecDeque::new(), told };
        Box::pin(async { Ok(Box::new(feed) as Box<dyn Feed>) })
    }
}

impl Feed for MeteredFeed {
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        let call: Value = serde_json::from_slice(&text).expect("a call");
        let method = call["method"].as_str().expect("a method");
        let result = self.metered.call(method, call.get("params")).expect("served");
        let reply = json!({"jsonrpc": "2.0", "id": call["id"], "result": result});
        self.replies.push_back(reply.to_string().into());
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(async {
            loop {
                if let Some(reply) = self.replies.pop_front() {
                    return Some(Ok(reply));
                }
                if self.metered.node.head().number() > self.told {
                    self.told += 1;
                    let number = json!([format!("{:#x}", self.told), false]);
                    let head = self.metered.node.ask("eth_getBlockByNumber", Some(&number));
                    let params = json!({"subscription": "0x77", "result": head.expect("a block")});
                    let event =
                        json!({"jsonrpc": "2.0", "method": "eth_subscription", "params": params});
                    let event = Bytes::from(event.to_string());
                    self.metered.events.fetch_add(1, Relaxed);
                    self.metered.bytes.fetch_add(event.len() as u64, Relaxed);
                    let price = push_price(self.metered.provider, event.len());
                    self.metered.owed.fetch_add(price, Relaxed);
                    return Some(Ok(event));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

/// A chain at several providers, and the proxy before them.
struct Market {
    world: Arc<World>,
    began: Instant,
    metered: Vec<Arc<Metered>>,
    proxy: Arc<Proxy>,
    worker: Arc<WorkerChains>,
    /// Ended with it.
    _loops: tokio::task::JoinSet<()>,
}

impl Market {
    fn new(providers: &[&'static str]) -> Self {
        let world = World::new(WorldConfig { block_time: BLOCK, ..WorldConfig::seeded(18) });
        let metered: Vec<_> = providers
            .iter()
            .enumerate()
            .map(|(place, provider)| {
                Arc::new(Metered {
                    provider,
                    node: SimNode::new(format!("{provider}-{place}"), Arc::clone(&world)),
                    calls: Mutex::default(),
                    events: AtomicU64::new(0),
                    bytes: AtomicU64::new(0),
                    owed: AtomicU64::new(0),
                    feeds_open: AtomicUsize::new(0),
                })
            })
            .collect();
        let chain = Arc::new(served(&metered, world.config().chain_id));
        let reach = || {
            let transports = metered.iter().map(Metered::transport).collect();
            WorkerChains::new(vec![WorkerUpstreams::new(transports, 1)])
        };
        let settings = Settings {
            limits: ParseLimits::default(),
            batch_parallel: 8,
            total: secs(30),
            log_requests: false,
            upstream_calls: 100,
        };
        let proxy = Arc::new(Proxy::new(vec![Arc::clone(&chain)], settings));
        let mut loops = tokio::task::JoinSet::new();
        for (upstream, metered) in chain.roster.upstreams().iter().zip(&metered) {
            let parts = WatcherParts {
                upstream: Arc::clone(upstream),
                transport: metered.transport(),
                feed: Some(Arc::new(MeteredFeeds(Arc::clone(metered)))),
                heads: Arc::clone(&chain.heads),
                pulse: Arc::clone(&chain.pulse),
                counts: Arc::clone(&chain.asked[upstream.slot().index()]),
            };
            let watcher = Watcher::new(parts, PollPace::default());
            loops.spawn(watcher.among(UpstreamList::of(chain.roster.upstreams())).run());
        }
        for announcer in Announcer::all(&ProxyWorker::replaceable(&proxy, reach())) {
            loops.spawn(announcer.run());
        }
        let worker = Arc::new(reach());
        Self { world, began: now(), metered, proxy, worker, _loops: loops }
    }

    /// This many blocks are made; never more than two feeds are open.
    async fn blocks(&self, blocks: u64) {
        for _ in 0..blocks * BLOCK.as_secs() {
            tokio::time::sleep(secs(1)).await;
            let due = (now() - self.began).as_secs() / BLOCK.as_secs();
            while self.world.head().number() < self.world.config().history_blocks + due {
                self.world.mine();
            }
            assert!(self.feeds_open() <= 2, "{} feeds", self.feeds_open());
        }
    }

    fn feeds_open(&self) -> usize {
        self.metered.iter().map(|it| it.feeds_open.load(Relaxed)).sum()
    }

    fn calls_of(&self, methods: &[&str]) -> u64 {
        let of =
            |metered: &Arc<Metered>| methods.iter().map(|it| metered.calls_of(it)).sum::<u64>();
        self.metered.iter().map(of).sum()
    }

    fn all_calls(&self) -> u64 {
        self.metered.iter().map(|it| it.calls.lock().values().sum::<u64>()).sum()
    }

    /// The ledgers of both sides agree to one in a hundred, at each upstream.
    fn check_ledgers(&self, told: &str) {
        for (upstream, metered) in
            self.proxy.chains()[0].roster.upstreams().iter().zip(&self.metered)
        {
            let (ours, theirs) = (
                upstream.spending(now()).total as f64,
                metered.owed.load(Relaxed) as f64 / 1_000.0,
            );
            assert!(
                (ours - theirs).abs() <= theirs / 100.0,
                "{told}, {}: {ours} in our ledger, {theirs} on the bill, {:?}, {} events of {} bytes",
                upstream.identity().id,
                metered.calls.lock(),
                metered.events.load(Relaxed),
                metered.bytes.load(Relaxed),
            );
        }
    }

    /// What operators see is what the providers counted.
    fn check_status(&self, clients: usize) {
        let status = self.proxy.status();
        let (chain, metered) = (&status.chains[0], &self.metered);
        let seen: Vec<_> = chain
            .feeds
            .iter()
            .map(|feed| (&*feed.upstream, feed.feed, feed.messages, feed.bytes, feed.credits))
            .collect();
        let of = |place: usize| {
            let pushes: &Metered = &metered[place];
            let events = pushes.events.load(Relaxed);
            (pushes.node.id(), "subscribed", events, pushes.bytes.load(Relaxed), 50 * events)
        };
        assert_eq!(seen, [of(2), of(5)]);
        let subscriptions = chain.subscriptions.as_ref().expect("something subscribes");
        let open: Vec<_> =
            subscriptions.kinds.iter().map(|kind| (kind.kind, kind.subscriptions)).collect();
        assert!(open.contains(&("newHeads", clients)) && open.contains(&("logs", clients)));
        let lag = (subscriptions.connections, subscriptions.lag_events_max);
        assert_eq!(lag, (clients as u64, 0));
        assert_eq!(subscriptions.filters, if clients > 10 { 2 } else { 1 });
        assert_eq!(subscriptions.headers_fetched, self.calls_of(&HEADERS));
        let pulls = self.calls_of(&["eth_getLogs", "eth_getBlockReceipts"]);
        assert_eq!((subscriptions.logs_pulled, subscriptions.fetches_failed), (pulls, 0));
        let thought = Thought {
            chain: None,
            method: "eth_subscribe",
            params: Some(br#"["newHeads"]"#),
            client: [10, 0, 0, 1].into(),
            select: &[],
        };
        let heads = self.proxy.explain(thought).expect("it can be").heads;
        let how: Vec<_> = heads.iter().map(|it| it.how.split(';').next().expect("words")).collect();
        let (idle, pushed) = ("it is looked at once a minute", "it pushes them");
        assert_eq!(how, [idle, idle, pushed, idle, idle, pushed]);
    }

    /// A client that subscribes to heads and to these logs, and counts what it hears.
    async fn client(&self, logs: &str) -> Client {
        let subscriber = self.proxy.open_subscriber(&self.worker, None).expect("one chain");
        let subscriber = Arc::new(subscriber);
        let mut ids = Vec::new();
        for params in [r#"["newHeads"]"#, logs] {
            let message = SubscriberMessage::new(&subscriber);
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":{params}}}"#);
            let ctx = Ctx {
                received_at: now(),
                peer: SocketAddr::from(([10, 0, 0, 1], 1)),
                caller: None,
                want_trail: false,
                known_block: None,
                may_stream: false,
                trace_parent: None,
            };
            let target = Target { chain: None, select: &[] };
            let answer = self
                .proxy
                .handle_message(&self.worker, Some(&message), ctx, target, body.into())
                .await;
            assert_eq!(answer.status, 200);
            let subscribed = message.into_subscribed();
            assert_eq!(subscribed.len(), 1, "{:?}", answer.body);
            subscriber.activate(&subscribed);
            ids.extend(subscribed.iter().map(ToString::to_string));
        }
        let heard = Arc::<Heard>::default();
        let listens = tokio::spawn(listen(subscriber, ids.swap_remove(0), Arc::clone(&heard)));
        Client { heard, listens }
    }
}

fn served(metered: &[Arc<Metered>], chain_id: u64) -> ServedChain {
    let upstreams: Vec<_> = (0..)
        .map(Slot)
        .zip(metered)
        .map(|(slot, metered)| {
            let identity = Identity::named(metered.node.id());
            let budget = Budget::new(Provider::named(metered.provider), &BudgetTerms::default(), 0);
            Arc::new(wellhead_kit::upstream(identity, slot).within(budget))
        })
        .collect::<Vec<Arc<Upstream>>>();
    let heads = Heads::new(upstreams.len(), None, None).among(UpstreamList::of(&upstreams));
    let poll_min = Some(PollPace::default().poll_min);
    heads.change(&HeadsTerms { poll_min, ..HeadsTerms::default() }, UpstreamSet::NONE, now());
    let counts = (0..upstreams.len()).map(|_| Arc::default()).collect::<Vec<Arc<CheckCounts>>>();
    ServedChain::new(
        ChainName { name: "main".into(), aliases: Vec::new() },
        Roster::new(upstreams, MethodRules::default(), Vec::new()),
        Arc::new(heads),
        Arc::new(Pulse::new(Some(ChainId(chain_id)), now())),
        counts,
        Bounds::default(),
    )
}

#[derive(Debug, Default)]
struct Heard {
    heads: AtomicU64,
    logs: AtomicU64,
}

struct Client {
    heard: Arc<Heard>,
    listens: tokio::task::JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

async fn listen(subscriber: Arc<Subscriber>, of_heads: String, heard: Arc<Heard>) {
    poll_fn::<(), _>(|cx| {
        loop {
            match subscriber.poll_event(cx) {
                Poll::Ready(SubscriberEvent::Notification(parts)) => {
                    let of = match parts[1] == of_heads {
                        true => &heard.heads,
                        false => &heard.logs,
                    };
                    of.fetch_add(1, Relaxed);
                }
                Poll::Ready(ended) => panic!("the connection is ended: {ended:?}"),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

const SIX: [&str; 6] = ["alchemy", "quicknode", "infura", "chainstack", "alchemy", "infura"];

const ALL_LOGS: &str = r#"["logs",{}]"#;
const NO_LOGS: &str = r#"["logs",{"address":"0x00000000000000000000000000000000000000ff"}]"#;

/// An hour of blocks before this many clients.
async fn check(clients: usize) -> u64 {
    let market = Market::new(&SIX);
    market.blocks(IDLE_BLOCKS).await;
    assert_eq!(market.feeds_open(), 0, "nothing subscribes");
    let (mut cast, began) = (Vec::new(), market.all_calls());
    for place in 0..clients {
        cast.push(market.client(if place < 10 { ALL_LOGS } else { NO_LOGS }).await);
    }
    market.blocks(HOUR_BLOCKS).await;
    // Heads: what was pushed is proven and not read again, but for those from four below the last idle poll to
    // the first push.
    let headers = market.calls_of(&HEADERS);
    assert!(headers <= IDLE_BLOCKS + 5, "{headers} headers were fetched");
    let logs = market.calls_of(&["eth_getLogs", "eth_getBlockReceipts"]);
    assert!((HOUR_BLOCKS / 2..=HOUR_BLOCKS + 1).contains(&logs), "{logs} pulls of logs");
    // Those without a feed are looked at once a minute, and until two have told a block.
    let polls = market.calls_of(&["eth_getBlockByNumber"]);
    assert!(polls <= 4 * 64 + 60, "{polls} polls");
    let pushed = |place: usize| market.metered[place].events.load(Relaxed);
    assert_eq!([0, 1, 3, 4].map(pushed), [0; 4], "polled ones are pushed nothing");
    assert!([2, 5].map(pushed).iter().all(|events| *events >= HOUR_BLOCKS - 1));
    for (place, client) in cast.iter().enumerate() {
        let (heads, logs) = (client.heard.heads.load(Relaxed), client.heard.logs.load(Relaxed));
        assert!(
            heads >= HOUR_BLOCKS - 1 && (logs > HOUR_BLOCKS) == (place < 10),
            "{heads} heads, {logs} logs"
        );
    }
    market.check_ledgers(&format!("{clients} clients"));
    market.check_status(clients);
    let calls = market.all_calls() - began;
    drop(cast);
    tokio::time::sleep(secs(30) + ms(1)).await;
    assert_eq!(market.feeds_open(), 0);
    let pulls = || market.calls_of(&HEADERS) + market.calls_of(&["eth_getLogs"]);
    let (pulled, left) = (pulls(), market.all_calls());
    market.blocks(100).await;
    assert_eq!(pulls(), pulled);
    let idle = market.all_calls() - left;
    assert!(idle <= 6 * 21, "{idle} calls in twenty minutes: one a minute of each upstream");
    assert_eq!(market.feeds_open(), 0);
    market.check_ledgers("after the last client");
    calls
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_subscriptions_costs_what_the_providers_say_whatever_the_number_of_clients() {
    let calls = [check(1).await, check(10).await, check(200).await];
    assert!(calls.iter().all(|of| of.abs_diff(calls[0]) <= 10), "{calls:?}");
}
