//! A node and a feed without sockets, and a loop that follows them on a paused clock.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod log;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use wellhead_chain::{Heads, HeadsTerms};
use wellhead_eth::{ChainId, MethodTable};
use wellhead_jsonrpc::raw;
use wellhead_kit::{Arrival, ScriptedTransport, Step, named_by, status};
pub(crate) use wellhead_kit::{error, now, result};
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_transport::{Sent, Transport, TransportError, TransportErrorKind};
use wellhead_upstream::{
    Budget, Condition, Identity, Slot, Tier, Upstream, UpstreamList, UpstreamSet,
};
use wellhead_watch::{CallReason, CheckCounts, Checks, PollPace, Pulse, Watcher, WatcherParts};

/// The time between the blocks of most chains here.
pub(crate) const BLOCK: Duration = Duration::from_secs(12);

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How the node is.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    Well,
    Refuses,
    Hangs,
    /// This HTTP status, and no JSON.
    Status(u16),
    /// Every call but the first kind gets this status.
    Only(&'static str, u16),
}

/// What geth says of a block that it does not have.
pub(crate) fn not_found() -> Step {
    error(-32000, "header for hash not found")
}

/// A node whose chain moves with the clock.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) chain_id: Mutex<u64>,
    pub(crate) mood: Mutex<Mood>,
    /// Raw JSON.
    pub(crate) syncing: Mutex<&'static str>,
    pub(crate) peers: Mutex<u64>,
    /// Whether it tells which blocks are safe and final.
    pub(crate) knows_tags: Mutex<bool>,
    /// The head at the start of the clock, and the time between blocks.
    pub(crate) chain: Mutex<(u64, Duration)>,
    /// Which of several chains with the same heights it is on: a hexadecimal digit of its hashes.
    pub(crate) lineage: Mutex<Option<char>>,
    /// Raw JSON of a block by its height.
    pub(crate) origin: Mutex<String>,
    /// What it calls itself, if it says so.
    pub(crate) version: Mutex<Option<&'static str>>,
    /// What it says to a state at a block that does not exist.
    pub(crate) no_block: Mutex<Step>,
    began: Instant,
    /// Every call that came.
    pub(crate) calls: Mutex<Vec<Arrival>>,
}

impl Node {
    pub(crate) fn new(chain_id: u64, block_time: Duration) -> Arc<Self> {
        Arc::new(Self {
            chain_id: Mutex::new(chain_id),
            mood: Mutex::new(Mood::Well),
            syncing: Mutex::new("false"),
            peers: Mutex::new(25),
            knows_tags: Mutex::new(true),
            chain: Mutex::new((1000, block_time)),
            lineage: Mutex::new(None),
            origin: Mutex::new("null".to_owned()),
            version: Mutex::new(None),
            no_block: Mutex::new(not_found()),
            began: now(),
            calls: Mutex::default(),
        })
    }

    pub(crate) fn head(&self) -> u64 {
        let (first, block_time) = *self.chain.lock();
        let blocks = (now() - self.began).as_millis() / block_time.as_millis();
        first + u64::try_from(blocks).expect("few blocks")
    }

    pub(crate) fn feel(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    /// The calls of one method since `since`, as times after it.
    pub(crate) fn calls_of(&self, method: &str, since: Instant) -> Vec<Duration> {
        let calls = self.calls.lock();
        let of = calls.iter().filter(|call| call.method() == method && call.at >= since);
        of.map(|call| call.at - since).collect()
    }

    fn answer(&self, method: &str, params: &str) -> Step {
        match (method, *self.version.lock()) {
            ("web3_clientVersion", Some(version)) => result(&format!("\"{version}\"")),
            ("web3_clientVersion", None) => error(-32601, "the method does not exist"),
            ("eth_getBalance", _) => self.no_block.lock().clone(),
            _ => Step::Result(self.result(method, params)),
        }
    }

    /// A way to the node, which counts what comes by it.
    fn transport(self: &Arc<Self>) -> Arc<dyn Transport> {
        let node = Arc::clone(self);
        Arc::new(ScriptedTransport::new(move |call| node.step(call)))
    }

    fn step(&self, call: &Arrival) -> Step {
        let method = call.method();
        self.calls.lock().push(call.clone());
        let mut mood = self.mood.lock().clone();
        if let Mood::Only(well, status) = mood {
            mood = if method == well { Mood::Well } else { Mood::Status(status) };
        }
        match mood {
            Mood::Well | Mood::Only(..) => {
                let params = raw::field(&call.body, "params").unwrap_or_default();
                self.answer(&method, &String::from_utf8_lossy(params))
            }
            Mood::Refuses => Step::REFUSE,
            Mood::Hangs => Step::Hang,
            Mood::Status(code) => status(code, "no luck"),
        }
    }

    fn behind(&self, blocks: u64) -> String {
        match *self.knows_tags.lock() {
            true => format!(r#"{{"number":"0x{:x}"}}"#, self.head() - blocks),
            false => "null".to_owned(),
        }
    }

    fn newest(&self) -> String {
        let number = self.head();
        match *self.lineage.lock() {
            None => format!(r#"{{"number":"0x{number:x}"}}"#),
            Some(lineage) => {
                let hash = |number: u64| format!("0x{lineage}{number:063x}");
                let (hash, parent) = (hash(number), hash(number - 1));
                format!(r#"{{"number":"0x{number:x}","hash":"{hash}","parentHash":"{parent}"}}"#)
            }
        }
    }

    fn result(&self, method: &str, params: &str) -> String {
        match method {
            "eth_chainId" => format!("\"0x{:x}\"", *self.chain_id.lock()),
            "eth_syncing" => (*self.syncing.lock()).to_owned(),
            "net_peerCount" => format!("\"0x{:x}\"", *self.peers.lock()),
            "eth_getBlockByNumber" if params.contains("\"0x") => self.origin.lock().clone(),
            "eth_getBlockByNumber" if params.contains("finalized") => self.behind(64),
            "eth_getBlockByNumber" if params.contains("safe") => self.behind(32),
            "eth_getBlockByNumber" => self.newest(),
            other => panic!("no loop should ask for {other}"),
        }
    }
}

/// One connection's messages; the feed closes when the sender is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    told: mpsc::UnboundedReceiver<Bytes>,
    ends: Arc<LineEnds>,
}

/// What both ends of a line know.
#[derive(Debug, Default)]
struct LineEnds {
    close_code: Mutex<Option<u16>>,
    asked: Mutex<Vec<(Instant, String)>>,
}

impl Feed for Line {
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        let method = raw::field(&text, "method").and_then(raw::string).expect("a method");
        self.ends.asked.lock().push((now(), method.into_owned()));
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(async { self.told.recv().await.map(Ok) })
    }

    fn close_code(&self) -> Option<u16> {
        *self.ends.close_code.lock()
    }
}

/// Opens the lines that were prepared, then refuses.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    lines: Mutex<VecDeque<Line>>,
    pub(crate) opened: Mutex<Vec<Instant>>,
}

impl FeedConnector for Connector {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>> {
        self.opened.lock().push(now());
        let line = self.lines.lock().pop_front();
        Box::pin(async move {
            match line {
                Some(line) => Ok(Box::new(line) as Box<dyn Feed>),
                None => Err(TransportError::new(TransportErrorKind::Connect, Sent::No, "injected")),
            }
        })
    }
}

/// The other end of a line.
#[derive(Debug)]
pub(crate) struct Speaker {
    to: mpsc::UnboundedSender<Bytes>,
    ends: Arc<LineEnds>,
}

impl Speaker {
    pub(crate) fn say(&self, text: &str) {
        self.to.send(Bytes::from(text.to_owned())).expect("there is a listener");
    }

    /// Pushes a block; returns the bytes of the message.
    pub(crate) fn head(&self, number: u64) -> usize {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{{"subscription":"0x1","result":{{"number":"0x{number:x}"}}}}}}"#
        );
        self.say(&text);
        text.len()
    }

    /// Whether the feed was closed from the other side.
    pub(crate) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Closes with this code.
    pub(crate) fn close_with(self, code: u16) {
        *self.ends.close_code.lock() = Some(code);
    }

    /// The calls of one method that came over the line since `since`, as times after it.
    pub(crate) fn calls_of(&self, method: &str, since: Instant) -> Vec<Duration> {
        let asked = self.ends.asked.lock();
        let of = asked.iter().filter(|(at, name)| name == method && *at >= since);
        of.map(|(at, _)| *at - since).collect()
    }
}

impl Connector {
    /// Prepares a line that begins with these messages.
    pub(crate) fn prepare(&self, messages: &[&str]) -> Speaker {
        let (sender, receiver) = mpsc::unbounded_channel();
        let ends = Arc::<LineEnds>::default();
        self.lines.lock().push_back(Line { told: receiver, ends: Arc::clone(&ends) });
        let speaker = Speaker { to: sender, ends };
        messages.iter().for_each(|message| speaker.say(message));
        speaker
    }

    /// One that is on `chain` and takes the subscription.
    pub(crate) fn prepare_good(&self, chain: u64) -> Speaker {
        self.prepare(&[
            &format!(r#"{{"jsonrpc":"2.0","id":1,"result":"0x{chain:x}"}}"#),
            r#"{"jsonrpc":"2.0","id":2,"result":"0x1"}"#,
        ])
    }
}

/// An upstream named by its place.
fn upstream(place: usize, tier: Tier, budget: Budget) -> Arc<Upstream> {
    let slot = Slot(u8::try_from(place).expect("few upstreams"));
    Arc::new(wellhead_kit::upstream(Identity { tier, ..named_by(slot) }, slot).within(budget))
}

/// One upstream of a chain.
pub(crate) struct Member<'a> {
    node: &'a Arc<Node>,
    feed: Option<&'a Arc<Connector>>,
    tier: Tier,
    budget: Budget,
}

impl<'a> Member<'a> {
    pub(crate) fn new(node: &'a Arc<Node>, tier: Tier) -> Self {
        Self { node, feed: None, tier, budget: Budget::default() }
    }

    pub(crate) fn feeding(self, feed: &'a Arc<Connector>) -> Self {
        Self { feed: Some(feed), ..self }
    }

    pub(crate) fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }
}

/// A chain with some upstreams, each followed by its loop.
pub(crate) struct Stage {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) asked: Vec<Arc<CheckCounts>>,
    loops: tokio::task::JoinSet<()>,
}

impl Stage {
    pub(crate) fn new(chain_id: Option<u64>, upstreams: usize) -> Self {
        Self {
            pulse: Arc::new(Pulse::new(chain_id.map(ChainId), now())),
            heads: Arc::new(Heads::new(upstreams, None, None)),
            upstreams: Vec::new(),
            asked: Vec::new(),
            loops: tokio::task::JoinSet::new(),
        }
    }

    /// Of chain 1, with one upstream that is followed.
    pub(crate) fn following(node: &Arc<Node>) -> Self {
        Self::checking(node, Checks::default())
    }

    /// As [`Stage::following`], with these checks.
    pub(crate) fn checking(node: &Arc<Node>, checks: Checks) -> Self {
        let mut stage = Self::new(Some(1), 1);
        stage.follow_checking(node, None, checks);
        stage
    }

    pub(crate) fn follow(&mut self, node: &Arc<Node>, feed: Option<&Arc<Connector>>) {
        self.follow_at(node, feed, PollPace::default());
    }

    pub(crate) fn follow_at(
        &mut self,
        node: &Arc<Node>,
        feed: Option<&Arc<Connector>>,
        pace: PollPace,
    ) {
        let watcher = self.watcher(node, feed, pace);
        self.loops.spawn(watcher.run());
    }

    pub(crate) fn follow_checking(
        &mut self,
        node: &Arc<Node>,
        feed: Option<&Arc<Connector>>,
        checks: Checks,
    ) {
        let watcher = self.watcher(node, feed, PollPace::default());
        self.loops.spawn(watcher.checking(checks).run());
    }

    /// Follows several that know of each other.
    pub(crate) fn follow_all(&mut self, nodes: &[&Arc<Node>], checks: Checks) {
        let watchers: Vec<Watcher> =
            nodes.iter().map(|node| self.watcher(node, None, PollPace::default())).collect();
        for watcher in watchers {
            self.loops
                .spawn(watcher.checking(checks).among(UpstreamList::of(&self.upstreams)).run());
        }
    }

    fn watcher(
        &mut self,
        node: &Arc<Node>,
        feed: Option<&Arc<Connector>>,
        pace: PollPace,
    ) -> Watcher {
        let upstream = upstream(self.upstreams.len(), Tier::Primary, Budget::default());
        self.watcher_for(node, feed, pace, upstream)
    }

    /// Follows several of these tiers, as the proxy does: whose word counts follows from their
    /// health.
    pub(crate) fn follow_tiers(&mut self, nodes: &[(&Arc<Node>, Tier)], checks: Checks) {
        let members = nodes.iter().map(|(node, tier)| Member::new(node, *tier));
        self.follow_chain(members.collect(), None, checks);
    }

    /// Follows several with their feeds, tiers and budgets. `agreement` is the setting.
    pub(crate) fn follow_chain(
        &mut self,
        members: Vec<Member<'_>>,
        agreement: Option<usize>,
        checks: Checks,
    ) {
        let upstreams: Vec<Arc<Upstream>> = members
            .iter()
            .enumerate()
            .map(|(place, member)| upstream(place, member.tier, member.budget.clone()))
            .collect();
        let heads = Heads::new(members.len(), None, None).among(UpstreamList::of(&upstreams));
        let poll_min = Some(Duration::ZERO);
        let terms = HeadsTerms { agreement, poll_min, ..HeadsTerms::default() };
        heads.change(&terms, UpstreamSet::NONE, now());
        self.heads = Arc::new(heads);
        for (member, upstream) in members.into_iter().zip(&upstreams) {
            let pace = PollPace::default();
            let watcher = self.watcher_for(member.node, member.feed, pace, Arc::clone(upstream));
            self.loops.spawn(watcher.checking(checks).among(UpstreamList::of(&upstreams)).run());
        }
    }

    /// A client's call that goes to one of them, as `dispatch` sends it.
    pub(crate) fn call(&self, place: usize) {
        self.pulse.note_call(now());
        let row = MethodTable::standard().row("eth_chainId");
        drop(self.upstreams[place].admit(row, 1, now()));
    }

    /// A client's call that could not connect.
    pub(crate) fn fail(&self, place: usize) {
        use wellhead_transport::{Sent, TransportError, TransportErrorKind};
        let error = TransportError::new(TransportErrorKind::Connect, Sent::No, "injected");
        let verdict = wellhead_upstream::Judge::standard().transport(&error);
        let row = MethodTable::standard().row("eth_call");
        self.upstreams[place].settle(row, &verdict, now(), now());
    }

    fn watcher_for(
        &mut self,
        node: &Arc<Node>,
        feed: Option<&Arc<Connector>>,
        pace: PollPace,
        upstream: Arc<Upstream>,
    ) -> Watcher {
        let asked = Arc::new(CheckCounts::default());
        let watcher = Watcher::new(
            WatcherParts {
                upstream: Arc::clone(&upstream),
                transport: node.transport(),
                feed: feed.map(|feed| Arc::clone(feed) as Arc<dyn FeedConnector>),
                heads: Arc::clone(&self.heads),
                pulse: Arc::clone(&self.pulse),
                counts: Arc::clone(&asked),
            },
            pace,
        );
        self.upstreams.push(upstream);
        self.asked.push(asked);
        watcher
    }

    pub(crate) fn condition(&self, place: usize) -> Condition {
        self.upstreams[place].condition(now())
    }

    pub(crate) fn head(&self, place: usize) -> Option<u64> {
        let slot = self.upstreams[place].slot();
        self.heads.view().head(slot).map(|head| head.number.0)
    }

    /// Calls so far, as `verify=1 syncing=1 head=1`; reasons without a call are left out.
    pub(crate) fn asked(&self, place: usize) -> String {
        let counts = CallReason::ALL.map(|reason| (reason.word(), self.asked[place].get(reason)));
        let some = counts.iter().filter(|(_, count)| *count > 0);
        some.map(|(word, count)| format!("{word}={count}")).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn asked_in_all(&self, place: usize) -> u64 {
        self.asked[place].total()
    }

    /// Lets time pass while a client asks every `every`.
    pub(crate) async fn busy_for(&self, time: Duration, every: Duration) {
        let end = now() + time;
        while now() < end {
            self.pulse.note_call(now());
            tokio::time::sleep(every.min(end - now())).await;
        }
    }
}

/// Lets the loops run until they have nothing left to do in this moment.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
