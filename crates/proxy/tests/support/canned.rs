//! A proxy over an upstream that answers at once with the same bytes: what is left to
//! measure is our own part, from the body of a call to the bytes of its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wellhead_access::usage::UsageTable;
use wellhead_access::{
    Caller, GrantKind, GrantTerms, Quota, QuotaBounds, QuotaGroup, QuotaRate, TenantDirectory,
    TenantSettings,
};
use wellhead_chain::{Heads, Observation, Source, Tag};
use wellhead_dispatch::{Bounds, WorkerUpstreams, now};
use wellhead_eth::{BlockHash, BlockNumber, ChainId};
use wellhead_jsonrpc::ParseLimits;
use wellhead_kit::{ScriptedTransport, status, verified};
use wellhead_limit::Caps;
use wellhead_proxy::{
    AccessTerms, Answer, ByHashMode, Cache, CacheSettings, ChainName, Ctx, Level, ParentMode,
    Proxy, ServedChain, Settings, TraceRules, Tracer, VerifyPool, VerifySettings, WorkerChains,
};
use wellhead_route::Roster;
use wellhead_transport::Transport;
use wellhead_upstream::{Identity, MethodRules, Slot};
use wellhead_watch::Pulse;

/// How many upstreams the plan has to order.
const UPSTREAMS: u8 = 3;

/// A proxy of one chain, ready to answer.
pub(crate) struct Bench {
    proxy: Proxy,
    worker: WorkerChains,
    caller: Option<Caller>,
}

impl Bench {
    /// Upstreams that all answer `reply`, with the settings that there are by default.
    pub(crate) fn answering(reply: String) -> Self {
        Self::new(reply, false, None, Level::Off)
    }

    /// As [`Bench::answering`], where tags are pinned.
    pub(crate) fn pinning(reply: String) -> Self {
        Self::new(reply, true, None, Level::Off)
    }

    /// As [`Bench::pinning`], where answers are verified at the level `cheap`.
    pub(crate) fn verifying(reply: String) -> Self {
        Self::new(reply, true, None, Level::Cheap)
    }

    /// As [`Bench::answering`], to a caller with a key: a quota of the key and one of its tenant, each with
    /// all bounds and a group, none of which is reached, and usage counted.
    pub(crate) fn charging(reply: String) -> Self {
        let ample = Some(QuotaRate::new(1e9, 1e9));
        let bounds = QuotaBounds { calls: ample, credits: ample, in_flight: Some(1_000) };
        let methods = vec!["eth_*".parse().expect("a pattern")];
        let quota = Quota {
            name: "ample".into(),
            groups: vec![QuotaGroup { methods, bounds: bounds.clone() }],
            bounds,
            caps: Caps { day: Some(u64::MAX), month: Some(u64::MAX) },
            ..Quota::default()
        };
        let ample = || Some("ample".to_owned());
        let acme = TenantSettings {
            name: "acme".to_owned(),
            quota: ample(),
            key_quota: ample(),
            ..TenantSettings::default()
        };
        let tenants = TenantDirectory::new(&[acme], [quota], Arc::default(), &mut Vec::new());
        let terms = GrantTerms::new(GrantKind::Key, "k1", "acme");
        let grant = Arc::new(tenants.grant(&terms).expect("a grant"));
        let caller = Caller::new(grant, [127, 0, 0, 1].into(), tenants.book(), Duration::ZERO);
        Self { caller: Some(caller), ..Self::answering(reply) }
    }

    /// As a proxy is by default: answers cached, calls coalesced, and states asked for by the hash of
    /// their block at upstreams that honour one.
    pub(crate) fn by_default(reply: String) -> Self {
        let bench = Self::keeping(reply);
        let (chain, hash) = (&bench.proxy.chains()[0], BlockHash([7; 32]));
        for slot in (0..UPSTREAMS).map(Slot) {
            let seen = Observation { hash: Some(hash), ..Observation::of_number(BlockNumber(101)) };
            chain.heads.observe(slot, seen, Source::Word, now());
            chain.pulse.tell_honours_hashes(slot, true);
        }
        bench
    }

    /// Leaving traces of `sample` of the requests; a thread takes them away.
    pub(crate) fn tracing(self, sample: f64) -> Self {
        let rules = TraceRules {
            sample,
            parent: ParentMode::Continue,
            errors: true,
            hedged: true,
            slow: Duration::from_secs(1),
            per_second: 20,
        };
        let (tracer, mut traces) = Tracer::new(rules, 1_000_000, now());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime
                .map(|runtime| runtime.block_on(async { while traces.next().await.is_some() {} }))
        });
        Self { proxy: self.proxy.tracing(Some(tracer)), ..self }
    }

    /// As [`Bench::pinning`], where answers are cached too.
    pub(crate) fn keeping(reply: String) -> Self {
        let settings = CacheSettings {
            bytes: 4 << 20,
            head: Duration::from_secs(1),
            null: Duration::ZERO,
            by_hash: ByHashMode::Auto,
        };
        Self::new(reply, true, Some(Arc::new(Cache::new(settings, now(), 0, 42))), Level::Off)
    }

    fn new(reply: String, pins: bool, cache: Option<Arc<Cache>>, verify: Level) -> Self {
        let reply = status(200, reply);
        let canned = ScriptedTransport::new(move |_| reply.clone()).unrecorded();
        let canned: Arc<dyn Transport> = Arc::new(canned);
        let upstream =
            |slot: u8| Arc::new(verified(Identity::named(&format!("upstream-{slot}")), Slot(slot)));
        let upstreams: Vec<_> = (0..UPSTREAMS).map(upstream).collect();
        let heads = Heads::new(upstreams.len(), None, None);
        for slot in 0..UPSTREAMS {
            let seen = Observation::of_number(BlockNumber(100));
            heads.observe(Slot(slot), seen, Source::Word, now());
            let seen = Observation::of_number(BlockNumber(90));
            heads.observe_marks(Slot(slot), &[(Tag::Finalized, seen)], now());
        }
        let count = upstreams.len();
        let chain = ServedChain::new(
            ChainName { name: "ethereum".into(), aliases: Vec::new() },
            Roster::new(upstreams, MethodRules::default(), Vec::new()),
            Arc::new(heads),
            Arc::new(Pulse::new(Some(ChainId(1)), now())),
            (0..UPSTREAMS).map(|_| Arc::default()).collect(),
            Bounds::default(),
        )
        .pinning(pins)
        .verifying(
            &VerifySettings { level: verify, ..VerifySettings::OFF },
            Arc::new(VerifyPool::new(1)),
        )
        .sharing(cache.clone(), cache.map(|_| 42));
        let upstreams = WorkerUpstreams::new((0..count).map(|_| Arc::clone(&canned)).collect(), 1)
            .inspecting(chain.inspector());
        let settings = Settings {
            limits: ParseLimits::default(),
            batch_parallel: 32,
            total: Duration::from_secs(30),
            log_requests: false,
            upstream_calls: 5_000,
        };
        let usage = Some(Arc::new(UsageTable::new("bench")));
        let terms = AccessTerms { usage, ..AccessTerms::new(now()) };
        let proxy = Proxy::new(vec![Arc::new(chain)], settings).charging(terms);
        Self { proxy, worker: WorkerChains::new(vec![upstreams]), caller: None }
    }

    /// Answers `body`.
    pub(crate) async fn answer(&self, body: &Bytes) -> Answer {
        let ctx = Ctx {
            received_at: now(),
            peer: ([127, 0, 0, 1], 1).into(),
            caller: self.caller.clone(),
            want_trail: false,
            known_block: None,
            may_stream: true,
            trace_parent: None,
        };
        self.proxy.handle(&self.worker, ctx, None, body.clone()).await
    }
}

/// A call as clients make them, under `id`.
pub(crate) fn balance_call(id: usize) -> String {
    let params = r#"["0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","latest"]"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBalance","params":{params}}}"#)
}

/// As [`balance_call`], of an account that no other call asks for.
pub(crate) fn own_call(id: usize) -> String {
    balance_call(id).replace("0xf39fd6e5", &format!("0x{id:08x}"))
}

/// A batch of `calls` balances.
pub(crate) fn batch(calls: usize) -> Bytes {
    let calls: Vec<String> = (0..calls).map(balance_call).collect();
    Bytes::from(format!("[{}]", calls.join(",")))
}

/// What an upstream answers to a single call.
pub(crate) fn balance_reply() -> String {
    r#"{"jsonrpc":"2.0","id":1,"result":"0x21e19e0c9bab2400000"}"#.to_owned()
}

/// What an upstream answers to a batch of `calls`.
pub(crate) fn batch_reply(calls: usize) -> String {
    let reply =
        |id: usize| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x21e19e0c9bab2400000"}}"#);
    format!("[{}]", (0..calls).map(reply).collect::<Vec<_>>().join(","))
}
