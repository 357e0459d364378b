//! A proxy over upstreams that say what they are told to, on a paused clock.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod filter_store;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use wellhead_access::Caller;
use wellhead_access::usage::UsageTable;
use wellhead_chain::{Heads, HeadsTerms, Observation, Source, Tag};
use wellhead_dispatch::{Bounds, WorkerUpstreams, now};
use wellhead_eth::{BlockHash, BlockNumber, Bloom, ChainId};
use wellhead_jsonrpc::{ParseLimits, raw};
use wellhead_kit::{Arrival, ScriptedTransport, named_by, upstream};
pub(crate) use wellhead_kit::{Step, error, ms, settle};
use wellhead_proxy::{
    AccessTerms, Announcer, Answer, ByHashMode, Cache, CacheSettings, ChainName, Ctx, Proxy,
    ProxyWorker, QuorumRule, ServedChain, Settings, Subscriber, SubscriberMessage, Target, Tiers,
    VerifyPool, VerifySettings, WorkerChains,
};
use wellhead_route::{DangerousMethods, Roster};
use wellhead_transport::{MemoryBudget, Transport};
use wellhead_upstream::{
    HiddenSecrets, Identity, MethodRules, Redactor, Slot, Standing, Tier, Upstream, UpstreamSet,
    VerdictClass,
};
use wellhead_watch::Pulse;

/// Part of the URL of each upstream.
pub(crate) const SECRET: &str = "KEY-12345";

/// An upstream. Says `"<name>"` to whatever it was not told about.
pub(crate) struct Peer {
    pub(crate) transport: Arc<ScriptedTransport>,
    script: Arc<Script>,
}

/// What a peer was told to say.
struct Script {
    name: String,
    says: Mutex<HashMap<String, VecDeque<Step>>>,
    /// By method and params.
    of_params: Mutex<HashMap<(String, String), Step>>,
    /// What it says where it was told nothing else; of a method, or of `*`.
    usual: Mutex<HashMap<String, Step>>,
    searches: Mutex<Option<(u64, Duration)>>,
    logs: Mutex<Option<LogSearch>>,
}

/// How an upstream answers searches for logs: each address has one in each block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSearch {
    /// It takes this many, and refuses more with these words.
    pub(crate) blocks: (u64, &'static str),
    pub(crate) addresses: (usize, &'static str),
    pub(crate) results: (usize, &'static str),
}

impl Default for LogSearch {
    fn default() -> Self {
        Self {
            blocks: (u64::MAX, "block range is too wide"),
            addresses: (usize::MAX, "exceed max addresses or topics per search position"),
            results: (usize::MAX, "query returned more than 10000 results"),
        }
    }
}

impl LogSearch {
    fn step(self, (from, to): (u64, u64), addresses: &[u8]) -> Step {
        let results = usize::try_from(to - from + 1).expect("few").saturating_mul(addresses.len());
        let refused = [
            (addresses.len() > self.addresses.0, self.addresses.1),
            (to - from >= self.blocks.0, self.blocks.1),
            (results > self.results.0, self.results.1),
        ];
        if let Some((_, words)) = refused.into_iter().find(|(is_refused, _)| *is_refused) {
            return error(-32000, words);
        }
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        let logs = (from..=to).flat_map(|block| addresses.iter().map(move |it| log(block, *it)));
        Step::Result(format!("[{}]", logs.collect::<Vec<_>>().join(",")))
    }
}

/// The log of an address in a block.
pub(crate) fn log(block: u64, address: u8) -> String {
    format!(r#"{{"blockNumber":"0x{block:x}","logIndex":"0x{address:x}"}}"#)
}

/// An address as it is written in a filter, quotes included.
pub(crate) fn address(byte: u8) -> String {
    format!("\"0x{}\"", format!("{byte:02x}").repeat(20))
}

/// The addresses that a search names.
fn addresses(call: &[u8]) -> Vec<u8> {
    let filter = raw::field(call, "params").and_then(|params| raw::item(params, 0));
    let list = filter.and_then(|filter| raw::field(filter, "address")).unwrap_or(b"[]");
    let byte = |text: &[u8]| {
        let text = String::from_utf8_lossy(raw::trim(text)).into_owned();
        u8::from_str_radix(&text[3..5], 16).expect("an address")
    };
    match raw::trim(list).starts_with(b"[") {
        true => raw::items(list).map(byte).collect(),
        false => vec![byte(list)],
    }
}

impl Peer {
    fn new(name: String) -> Self {
        let script = Arc::new(Script {
            name,
            says: Mutex::default(),
            of_params: Mutex::default(),
            usual: Mutex::default(),
            searches: Mutex::default(),
            logs: Mutex::default(),
        });
        let steps = Arc::clone(&script);
        let transport = ScriptedTransport::of_calls(move |call| steps.step(call));
        Self { transport: Arc::new(transport), script }
    }

    pub(crate) fn name(&self) -> &str {
        &self.script.name
    }

    /// The next call of `method` gets `step`.
    pub(crate) fn next(&self, method: &str, step: Step) {
        self.script.says.lock().entry(method.to_owned()).or_default().push_back(step);
    }

    /// Each of the next `times` calls of `method` gets `step`.
    pub(crate) fn next_times(&self, times: usize, method: &str, step: Step) {
        let mut says = self.script.says.lock();
        says.entry(method.to_owned()).or_default().extend(vec![step; times]);
    }

    /// From now on all calls of `method` get `step`; those of any method for `*`.
    pub(crate) fn always(&self, method: &str, step: Step) {
        self.script.usual.lock().insert(method.to_owned(), step);
    }

    /// From now on all calls of `method` with exactly these params get `step`.
    pub(crate) fn when(&self, method: &str, params: &str, step: Step) {
        self.script.of_params.lock().insert((method.to_owned(), params.to_owned()), step);
    }

    /// Calls that it was sent, each one of a batch.
    pub(crate) fn calls(&self) -> usize {
        let seen = self.transport.bodies();
        let of = |body: &String| match body.starts_with('[') {
            true => raw::items(body.as_bytes()).count(),
            false => 1,
        };
        seen.iter().map(of).sum()
    }

    /// From now on a search is answered with the numbers of its blocks, if there are at
    /// most `most`.
    pub(crate) fn searches(&self, most: u64) {
        self.searches_slowly(most, Duration::ZERO);
    }

    /// As [`Peer::searches`], where each search takes `time`.
    pub(crate) fn searches_slowly(&self, most: u64, time: Duration) {
        *self.script.searches.lock() = Some((most, time));
    }

    /// From now on searches for logs are answered like this.
    pub(crate) fn searches_logs(&self, search: LogSearch) {
        *self.script.logs.lock() = Some(search);
    }

    /// The searches so far, with the number of their addresses: `1-5:2 1-5:1`.
    pub(crate) fn searched_for(&self) -> String {
        let seen = self.transport.bodies();
        let searches = seen.iter().map(|body| {
            let (from, to) = range(body.as_bytes()).unwrap_or_default();
            format!("{from}-{to}:{}", addresses(body.as_bytes()).len())
        });
        searches.collect::<Vec<_>>().join(" ")
    }

    /// The ranges that were searched so far: `1-5 6-10`.
    pub(crate) fn searched(&self) -> String {
        let seen = self.transport.bodies();
        let ranges = seen.iter().filter_map(|body| range(body.as_bytes()));
        ranges.map(|(from, to)| format!("{from}-{to}")).collect::<Vec<_>>().join(" ")
    }

    /// The calls so far, without what is the same in each.
    pub(crate) fn seen(&self) -> Vec<String> {
        let short = |body: &String| body.replace(r#"{"jsonrpc":"2.0","id":1,"method":"#, "{");
        self.transport.bodies().iter().map(short).collect()
    }
}

impl Script {
    fn step(&self, call: &Arrival) -> Step {
        let (method, call) = (call.method(), &*call.body);
        let told = self.says.lock().get_mut(&method).and_then(VecDeque::pop_front);
        let of_params = || {
            let params = String::from_utf8_lossy(raw::field(call, "params")?).into_owned();
            self.of_params.lock().get(&(method.clone(), params)).cloned()
        };
        let told = told.or_else(of_params);
        let usual = || {
            let usual = self.usual.lock();
            usual.get(&method).or_else(|| usual.get("*")).cloned()
        };
        let told = told.or_else(usual);
        if let (None, Some(search), "eth_getLogs") = (&told, *self.logs.lock(), &*method) {
            return search.step(range(call).unwrap_or((7, 7)), &addresses(call));
        }
        if let (None, Some((most, time)), Some((from, to))) =
            (&told, *self.searches.lock(), range(call))
        {
            return match to - from < most {
                true => {
                    let blocks: Vec<String> = (from..=to).map(|block| block.to_string()).collect();
                    Step::Result(format!("[{}]", blocks.join(","))).after(time)
                }
                false => error(-32602, &format!("range {} exceeds limit of {most}", to - from + 1)),
            };
        }
        told.unwrap_or_else(|| Step::Result(format!("\"{}\"", self.name)))
    }
}

/// The range of a search.
fn range(call: &[u8]) -> Option<(u64, u64)> {
    let filter = raw::item(raw::field(call, "params")?, 0)?;
    let end = |name| raw::quantity(raw::field(filter, name)?);
    Some((end("fromBlock")?, end("toBlock")?))
}

/// How a chain is made.
pub(crate) struct Plan {
    /// Of what the worker draws.
    pub(crate) seed: u64,
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) id: Option<u64>,
    pub(crate) upstreams: usize,
    pub(crate) verified: bool,
    pub(crate) methods: MethodRules,
    /// Which methods are allowed that are not meant for every client.
    pub(crate) dangerous: DangerousMethods,
    /// By upstream; those missing have none.
    pub(crate) own_methods: Vec<MethodRules>,
    /// Whether answers are kept.
    pub(crate) keeps: bool,
    /// Whether identical calls are shared, also where nothing is kept.
    pub(crate) shares: bool,
    /// Which upstreams are asked for states by the hash of their block.
    pub(crate) by_hash: ByHashMode,
    /// What several upstreams must answer alike.
    pub(crate) quorum: Vec<QuorumRule>,
    /// How closely answers are looked at.
    pub(crate) verify: VerifySettings,
    /// By upstream; those missing have none.
    pub(crate) labels: Vec<&'static [(&'static str, &'static str)]>,
    /// By upstream; those missing are primaries.
    pub(crate) tiers: Vec<Tier>,
    /// A longer answer flows.
    pub(crate) whole_bytes_max: usize,
    /// Whether an upstream is asked for its head.
    pub(crate) is_followed: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            name: "ethereum",
            aliases: &["eth"],
            id: Some(1),
            upstreams: 1,
            verified: true,
            methods: MethodRules::default(),
            dangerous: DangerousMethods::default(),
            own_methods: Vec::new(),
            keeps: false,
            shares: false,
            by_hash: ByHashMode::On,
            quorum: Vec::new(),
            verify: VerifySettings::OFF,
            labels: Vec::new(),
            tiers: Vec::new(),
            whole_bytes_max: Bounds::default().whole_bytes_max,
            is_followed: true,
        }
    }
}

pub(crate) struct Stage {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) peers: Vec<Vec<Peer>>,
    /// Below which all answers are held.
    pub(crate) answers: Arc<MemoryBudget>,
    pub(crate) worker: WorkerChains,
    /// Where the calls of callers are counted.
    pub(crate) usage: Arc<UsageTable>,
}

/// A request of the client at `127.0.0.client`, which may be streamed and shows its trail.
fn streaming_from(client: u8) -> Ctx {
    Ctx {
        received_at: now(),
        peer: ([127, 0, 0, client], 1).into(),
        caller: None,
        want_trail: true,
        known_block: None,
        may_stream: true,
        trace_parent: None,
    }
}

/// A request of the first client, which is answered whole and without its trail.
pub(crate) fn whole() -> Ctx {
    Ctx { want_trail: false, may_stream: false, ..streaming_from(1) }
}

/// The body of a call under the id 1.
pub(crate) fn body_of(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

impl Stage {
    pub(crate) fn upstreams(count: usize) -> Self {
        Self::new(vec![Plan { upstreams: count, ..Plan::default() }])
    }

    /// One chain of `count` upstreams, whose answers are cached.
    pub(crate) fn keeping(count: usize) -> Self {
        Self::new(vec![Plan { upstreams: count, keeps: true, ..Plan::default() }])
    }

    /// As [`Stage::keeping`]; blocks up to 90 are final, and 100 is the newest.
    pub(crate) fn keeping_to_100(count: usize) -> Self {
        let stage = Self::keeping(count);
        stage.show_to_100();
        stage
    }

    /// All upstreams stand on block 100, and blocks up to 90 are final.
    pub(crate) fn show_to_100(&self) {
        for place in 0..u8::try_from(self.peers[0].len()).expect("few") {
            for number in 88..=100 {
                self.show_block(place, number, b'a');
            }
            self.show_final(place, 90);
        }
    }

    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        Self::before(plans, Tiers::default())
    }

    /// With these tiers behind the memory.
    pub(crate) fn before(plans: Vec<Plan>, tiers: Tiers) -> Self {
        let (mut chains, mut worker, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let answers = Arc::new(MemoryBudget::new(256 << 20));
        let by_hash = plans.first().map_or(ByHashMode::On, |plan| plan.by_hash);
        let settings = CacheSettings { by_hash, ..KEPT };
        let cache = Arc::new(Cache::new(settings, now(), 1_000_000, 42).before(tiers));
        for plan in plans {
            let kept = plan.keeps.then(|| Arc::clone(&cache));
            let calls = (plan.keeps || plan.shares).then_some(42);
            let (quorum, verify) = (plan.quorum.clone(), plan.verify.clone());
            let seed = plan.seed;
            let (chain, own) = chain(plan);
            // Not by default, so that what it does is seen in all that is tested.
            let chain = chain.pinning(true).agreeing_on(&quorum).sharing(kept, calls);
            let chain = chain.verifying(&verify, Arc::new(VerifyPool::new(1)));
            worker.push(reached(&chain, &own, &answers, seed));
            chains.push(Arc::new(chain));
            peers.push(own);
        }
        let settings = request_settings();
        let usage = Arc::new(UsageTable::new("test"));
        let terms = AccessTerms { usage: Some(Arc::clone(&usage)), ..AccessTerms::new(now()) };
        let proxy = Proxy::new(chains, settings).holding(Arc::clone(&answers)).charging(terms);
        Self { proxy: Arc::new(proxy), peers, answers, worker: WorkerChains::new(worker), usage }
    }

    /// Has the blocks of the first chain announced, to a client that subscribes to heads. Both end when
    /// what is returned is dropped.
    pub(crate) async fn announce(&self) -> (JoinSet<()>, Subscriber) {
        let dynamic = |peer: &Peer| Arc::clone(&peer.transport) as Arc<dyn Transport>;
        let upstreams = WorkerUpstreams::new(self.peers[0].iter().map(dynamic).collect(), 2);
        let mut loops = JoinSet::new();
        for announcer in Announcer::all(&ProxyWorker::replaceable(
            &self.proxy,
            WorkerChains::new(vec![upstreams]),
        )) {
            loops.spawn(announcer.run());
        }
        let subscriber = self.proxy.open_subscriber(&self.worker, None).expect("one chain");
        let message = SubscriberMessage::new(&subscriber);
        let call = r#"{"id":1,"method":"eth_subscribe","params":["newHeads"]}"#.into();
        let target = Target::default();
        let answered =
            self.proxy.handle_message(&self.worker, Some(&message), whole(), target, call);
        assert_eq!(answered.await.status, 200);
        assert_eq!(message.into_subscribed().len(), 1);
        (loops, subscriber)
    }

    /// What one more worker reaches the upstreams with.
    pub(crate) fn another_worker(&self) -> WorkerChains {
        let chains = self.proxy.chains().iter().zip(&self.peers);
        let reached = chains.map(|(chain, peers)| reached(chain, peers, &self.answers, 1));
        WorkerChains::new(reached.collect())
    }

    /// What a scraper reads.
    pub(crate) fn metrics(&self) -> String {
        let mut registry = Registry::default();
        wellhead_proxy::register(self.proxy.replaceable(), &mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("as text");
        text
    }

    pub(crate) fn chain(&self) -> &ServedChain {
        &self.proxy.chains()[0]
    }

    pub(crate) fn peer(&self, place: usize) -> &Peer {
        &self.peers[0][place]
    }

    pub(crate) fn upstream(&self, place: usize) -> &Arc<Upstream> {
        &self.chain().roster.upstreams()[place]
    }

    /// What a control loop does when an upstream told its chain.
    pub(crate) fn verify(&self, place: usize, chain: u64) {
        let pulse = &self.chain().pulse;
        pulse.agree_chain_id(ChainId(chain));
        self.upstream(place).set_standing(Standing::Verified);
        pulse.tell_verified();
    }

    pub(crate) fn show_head(&self, place: u8, number: u64) {
        let seen = Observation::of_number(BlockNumber(number));
        self.chain().heads.observe(Slot(place), seen, Source::Word, now());
    }

    /// The upstream stands on this block of this branch.
    pub(crate) fn show_block(&self, place: u8, number: u64, branch: u8) {
        let seen = Observation {
            number: BlockNumber(number),
            hash: Some(hash(number, branch)),
            parent: number.checked_sub(1).map(|number| hash(number, branch)),
            timestamp: None,
        };
        self.chain().heads.observe(Slot(place), seen, Source::Word, now());
    }

    /// A header of this block of this branch told this bloom, each byte the same.
    pub(crate) fn show_bloom(&self, number: u64, branch: u8, bits: u8) {
        let seen = Observation::of_number(BlockNumber(number));
        let seen = Observation { hash: Some(hash(number, branch)), ..seen };
        self.chain().heads.observe_bloom(&seen, Some(&Bloom([bits; 256])));
    }

    /// The upstream holds this block to be final.
    pub(crate) fn show_final(&self, place: u8, number: u64) {
        let seen = Observation::of_number(BlockNumber(number));
        self.chain().heads.observe_marks(Slot(place), &[(Tag::Finalized, seen)], now());
    }

    pub(crate) fn head(&self, place: u8) -> Option<u64> {
        self.chain().heads.view().head(Slot(place)).map(|head| head.number.0)
    }

    pub(crate) async fn send(&self, path: Option<&str>, body: &str) -> Answer {
        self.send_from(1, path, body).await
    }

    /// Sends `body` with a query, decoded.
    pub(crate) async fn send_selecting(&self, pairs: &[(&str, &str)], body: &str) -> Answer {
        let select: Vec<_> =
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let ctx = streaming_from(1);
        let target = Target { chain: None, select: &select };
        self.proxy.handle(&self.worker, ctx, target, Bytes::from(body.to_owned())).await
    }

    /// Sends `body` as this caller, which pays for it.
    pub(crate) async fn send_as(&self, caller: &Caller, body: &str) -> Answer {
        let caller = Some(caller.clone());
        let ctx = Ctx { caller, ..streaming_from(1) };
        self.proxy.handle(&self.worker, ctx, None, Bytes::from(body.to_owned())).await
    }

    /// Sends `body` from a client that says which block it knows, if any.
    pub(crate) async fn send_knowing(&self, known_block: Option<u64>, body: &str) -> Answer {
        let ctx = Ctx { known_block, ..streaming_from(1) };
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.proxy.handle(&self.worker, ctx, None, body).await
    }

    /// Sends `body` from the client at `127.0.0.client`.
    pub(crate) async fn send_from(&self, client: u8, path: Option<&str>, body: &str) -> Answer {
        let ctx = streaming_from(client);
        self.proxy.handle(&self.worker, ctx, path, Bytes::from(body.to_owned())).await
    }

    /// The body that answers `body`.
    pub(crate) async fn ask(&self, body: &str) -> String {
        text(&self.send(None, body).await)
    }

    /// Calls with id 1 and strips the envelope: `"0x1"`, or the error object.
    pub(crate) async fn call(&self, method: &str, params: &str) -> String {
        self.call_from(1, method, params).await
    }

    /// As [`Stage::call`], from the client at `127.0.0.client`.
    pub(crate) async fn call_from(&self, client: u8, method: &str, params: &str) -> String {
        let answer = text(&self.send_from(client, None, &body_of(method, params)).await);
        let field = |key| raw::field(answer.as_bytes(), key);
        let value = field("result").or_else(|| field("error")).expect("an outcome");
        String::from_utf8_lossy(value).into_owned()
    }
}

pub(crate) fn request_settings() -> Settings {
    Settings {
        limits: ParseLimits::default(),
        batch_parallel: 4,
        total: Duration::from_secs(30),
        upstream_calls: 5_000,
        log_requests: true,
    }
}

/// What the stage keeps.
const KEPT: CacheSettings = CacheSettings {
    bytes: 4 << 20,
    head: Duration::from_secs(1),
    null: Duration::ZERO,
    by_hash: ByHashMode::On,
};

/// The hash of a block. Up to [`SPLIT`] all branches are one.
pub(crate) fn hash(number: u64, branch: u8) -> BlockHash {
    let mut bytes = [if number <= SPLIT { b'a' } else { branch }; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    BlockHash(bytes)
}

/// Here branches part.
pub(crate) const SPLIT: u64 = 99;

pub(crate) fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body.concat()).into_owned()
}

pub(crate) fn elapsed(since: Instant) -> Duration {
    now() - since
}

fn reached(
    chain: &ServedChain,
    peers: &[Peer],
    answers: &Arc<MemoryBudget>,
    seed: u64,
) -> WorkerUpstreams {
    let dynamic = |peer: &Peer| Arc::clone(&peer.transport) as Arc<dyn Transport>;
    let upstreams = WorkerUpstreams::new(peers.iter().map(dynamic).collect(), seed);
    upstreams.inspecting(chain.inspector()).holding(Arc::clone(answers))
}

fn chain(plan: Plan) -> (ServedChain, Vec<Peer>) {
    let (mut upstreams, mut peers) = (Vec::new(), Vec::new());
    for place in 0..plan.upstreams {
        let slot = Slot(u8::try_from(place).expect("few upstreams"));
        let identity = Identity {
            tier: plan.tiers.get(place).copied().unwrap_or(Tier::Primary),
            labels: labels(plan.labels.get(place).copied().unwrap_or_default()),
            methods: plan.own_methods.get(place).cloned().unwrap_or_default(),
            ..named_by(slot)
        };
        let name = identity.id.to_string();
        let mut secrets = HiddenSecrets::default();
        secrets.word(SECRET);
        let upstream = upstream(identity, slot).hiding(Redactor::of(&secrets));
        // Far enough apart that the chance in a plan does not matter.
        settle(&upstream, "eth_call", VerdictClass::Answer, ms(10 << (2 * place)));
        if plan.verified {
            upstream.set_standing(Standing::Verified);
        }
        upstreams.push(Arc::new(upstream));
        peers.push(Peer::new(name));
    }
    let name = ChainName {
        name: plan.name.into(),
        aliases: plan.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
    };
    let heads = Heads::new(plan.upstreams, None, None);
    if !plan.is_followed {
        heads.change(&HeadsTerms::default(), UpstreamSet::NONE, now());
    }
    let chain = ServedChain::new(
        name,
        Roster::new(upstreams, plan.methods, Vec::new()).allowing(plan.dangerous),
        Arc::new(heads),
        Arc::new(Pulse::new(plan.id.map(ChainId), now())),
        (0..plan.upstreams).map(|_| Arc::default()).collect(),
        Bounds { whole_bytes_max: plan.whole_bytes_max, ..Bounds::default() },
    );
    (chain, peers)
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn rules(allow: &str, deny: &str) -> MethodRules {
    let globs = |text: &str| {
        text.split_whitespace().map(|glob| glob.parse().expect("a good glob")).collect()
    };
    MethodRules { allow: globs(allow), deny: globs(deny) }
}

/// One call, its parameters as they are to stand there.
pub(crate) async fn ask(stage: &Stage, method: &str, params: &str) -> Answer {
    stage.send(None, &body_of(method, params)).await
}

/// Compares what the cache had, and the result.
#[track_caller]
pub(crate) fn check_kept(answer: &Answer, found: Option<&str>, result: &str) {
    let body = text(answer);
    assert_eq!(answer.cache, found, "{body}");
    assert!(body.ends_with(&format!(r#""result":{result}}}"#)), "{body} is not {result}");
}
