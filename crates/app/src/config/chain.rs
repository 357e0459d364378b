//! The settings of one chain: its upstreams, and which methods go where.
//!
//! Each is described here once, as in `settings`. Combinations, such as a route that leaves no
//! upstream, are checked in `check`.

use std::path::PathBuf;
use std::time::Duration;

use wellhead_analyze::monitor::CALLS_PER_HOUR_MIN;
use wellhead_dispatch::Otherwise;
use wellhead_eth::{ChainId, MethodGlob};
use wellhead_net::HttpVersion;
use wellhead_proxy::Level;
use wellhead_route::Balance;
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_upstream::{Provider, Tier, UpstreamId};
use wellhead_watch::{CheckKind, Mode};

use super::name::{ChainName, HeaderName, LabelName};
use super::place::is_private;
use super::profile::Profile;
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, ms, required, secs};
use super::value::{CallsOver, TextLine};

/// More calls than a study of any provider needs.
const STUDY_CALLS_MAX: u64 = 10_000_000;

/// More than any provider sells per day.
pub(super) const CREDITS_MAX: u64 = 1_000_000_000_000;

/// More requests than any connection lives for.
const REQUESTS_MAX: u64 = 1_000_000_000;

/// More blocks than any chain has; a larger value is a typing error.
const BLOCKS_MAX: u64 = 100_000_000_000;

section! {
    /// One chain and its upstreams.
    Chain {
        /// The chain id, decimal or `0x` hex. Upstreams that report another id are not used.
        id: Option<ChainId> = derived("found by asking `eth_chainId`"),
        /// Other names of the chain, each with its own path.
        aliases: Vec<ChainName> = default(Vec::new()),
        /// The time between blocks.
        block_time: Option<Duration> = derived("measured").if_given_within(ms(10), secs(3_600)),
        /// Blocks that an upstream may be behind the best one before it is excluded.
        lag_blocks_max: Option<u64> = derived("the blocks of 20 s, at least 3"),
        /// Healthy upstreams that must hold a block before it is `latest`. With 1, a block is
        /// `latest` as soon as one upstream shows it.
        agreement: Option<u64> = derived("2, or as many as are healthy").if_given_within(1, 128),
        /// Whether `latest`, `safe` and `finalized` in calls are replaced by the numbers of the
        /// agreed blocks. All upstreams then answer the same question, and no client gets an
        /// older block than before. See docs/chain.md.
        pin: bool = default(true),
        /// Depth below the newest block at which a block counts as safe and final, where no
        /// upstream knows these tags.
        final_after: Option<u64> = derived("such calls go as they are"),
        /// How upstreams of one tier share the calls, as far as they are healthy and below their limits.
        /// `cost`: each call goes to the one with the lowest latency times calls in flight, divided by
        /// its `weight`. `rendezvous`: each caller (a key, or an address) has an upstream of its own,
        /// chosen by hash and `weight`, so that caches and pools of an upstream see the same callers;
        /// when an upstream fails only its callers move. All replicas choose alike.
        balance: Balance = default(Balance::Cost),
        /// The calls that wellhead makes on its own behalf, and how often.
        checks: Checks = default(Checks::default()),
        /// How searches over many blocks are divided.
        searches: Searches = default(Searches::default()),
        /// How closely answers are checked before they are used.
        verify: Verify = default(Verify::default()),
        /// Which methods clients may call.
        methods: ChainMethods = default(ChainMethods::default()),
        /// The upstreams of the chain. Their order does not matter: see `tier`.
        upstreams: Vec<Upstream> = required(),
        /// Methods that only some upstreams serve. The first route that matches decides.
        routes: Vec<Route> = default(Vec::new()),
        /// Reads on which several upstreams must agree. The first rule that names a method
        /// applies to it. See docs/quorum.md.
        quorum: Vec<Quorum> = default(Vec::new()),
    }
}

section! {
    /// How searches over many blocks (`eth_getLogs`, `trace_filter` and similar) are divided where
    /// upstreams accept fewer blocks at once. What an upstream accepts is given by its `history` or
    /// learnt from its refusals.
    Searches {
        /// Upstream calls for one search, with refused parts, retries, hedges and second opinions.
        /// With `1` a search is never divided. A search that needs more is refused, before the
        /// first call if that is known.
        calls_max: usize = default(100).within(1, 10_000),
    }
}

section! {
    /// How closely answers are checked before a client or the cache gets them. An answer that
    /// cannot be true counts as a failure of its upstream, and the call goes to the next one.
    /// docs/verify.md lists the checks for each method and their cost.
    Verify {
        /// `off`: no check. `cheap`: each answer is compared with its call and with itself, which
        /// takes a few microseconds, and a millisecond for the largest blocks. `full`: hashes,
        /// roots, blooms and signatures are recomputed as well, which takes up to 0.1 s on another
        /// core for a large block; when that is too much, answers are checked at `cheap`. Without
        /// this setting, third-party upstreams are checked at `cheap`: those of a provider that
        /// wellhead knows, and those at an `https://` URL with a public name or address. All other
        /// upstreams count as your own. A level that is set here applies to all upstreams of the
        /// chain.
        level: Option<Level> = derived("`cheap` for third-party upstreams, `off` for your own"),
        /// Levels for some methods, instead of `level`. The first match decides.
        levels: Vec<MethodLevel> = default(Vec::new()),
        /// Whether the chain hashes its blocks, transactions and receipts as Ethereum does. If that
        /// is unknown, a value that cannot be recomputed is not treated as false.
        ethereum: Option<bool> =
            derived("known of mainnet, Sepolia, Holesky and Hoodi by their ids"),
    }
}

section! {
    /// The level for some methods.
    MethodLevel {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// How closely their answers are checked.
        level: Level = required(),
    }
}

section! {
    /// How far back the data of an upstream goes, in blocks from its head. An upstream that no
    /// longer has the block of a call is not used for it while another upstream may have it. What
    /// is not set is learnt from the upstream's answers and forgotten after ten minutes.
    History {
        /// Blocks whose state it has, for balances, calls and the like: 128 for most nodes that are
        /// not archive nodes.
        state: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// Blocks that it has with their transactions.
        blocks: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// Blocks whose logs and receipts it has.
        logs: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// Blocks whose traces it has.
        traces: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// Blocks that one search may cover.
        range_max: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
    }
}

section! {
    /// The calls that wellhead makes on its own behalf, and how often. Heads are learnt from
    /// answers to clients first: while these show the head as it moves, no upstream is polled.
    Checks {
        /// `on`: wellhead follows the head and probes upstreams whose breaker is open. `ephemeral`: it
        /// checks an upstream only at start, while its breaker is open, and while it seems to lag.
        /// `off`: no checks. The chain's `id` is then required, and the upstream is assumed to be on that
        /// chain; its lag is known only from answers, and only client calls detect its recovery.
        mode: Mode = default(Mode::On),
        /// The checks: `chain_id` (`eth_chainId`, before its first use and after its breaker was open),
        /// `head` (`eth_getBlockByNumber`), `syncing` (`eth_syncing`), `peers` (`net_peerCount`;
        /// an upstream without peers is not used), `version` (`web3_clientVersion`, together with
        /// `chain_id`). The first one in the list, except `version`, is the probe while the
        /// breaker is open. Without `chain_id` the chain's `id` is required.
        calls: Vec<CheckKind> = default(vec![CheckKind::ChainId, CheckKind::Head, CheckKind::Syncing, CheckKind::Version]),
        /// While no client calls the chain: the time between two checks of any kind.
        idle_interval: Duration = default(secs(60)).within(ms(100), secs(86_400)),
        /// While clients call the chain: the shortest time between two polls of the head, which
        /// otherwise follow the block time.
        head_interval_min: Duration = default(ms(250)).within(ms(10), secs(300)),
        /// Whether wellhead subscribes to new blocks over `ws`, while clients call the chain or
        /// subscribe to it, and the upstream's tier serves them. If not set, it does so when `mode`
        /// is `on` and a pushed block costs no more than a polled one by the provider's prices, at
        /// the two cheapest upstreams of the chain. `true`: at any price, and beyond these two.
        ws: Option<bool> = derived("by price when `mode` is `on`"),
        /// The most that the checks of one upstream may cost in a day. When it is spent, checks are
        /// off until the next day. A call costs what the provider charges, or one credit if that is
        /// unknown.
        credits_per_day: Option<u64> = derived("no limit").if_given_within(1, CREDITS_MAX),
    }
}

section! {
    /// Checks of one upstream, instead of the chain's.
    UpstreamChecks {
        /// When it is checked.
        mode: Option<Mode> = derived("as for the chain"),
        /// Which calls.
        calls: Option<Vec<CheckKind>> = derived("as for the chain"),
        /// While no client calls the chain: the time between two checks.
        idle_interval: Option<Duration> =
            derived("as for the chain").if_given_within(ms(100), secs(86_400)),
        /// While clients call the chain: the shortest time between two polls of the head.
        head_interval_min: Option<Duration> =
            derived("as for the chain").if_given_within(ms(10), secs(300)),
        /// Whether wellhead subscribes to new blocks over `ws`.
        ws: Option<bool> = derived("as for the chain"),
        /// The most that these checks may cost in a day.
        credits_per_day: Option<u64> =
            derived("as for the chain").if_given_within(1, CREDITS_MAX),
    }
}

section! {
    /// Which methods clients may call. `*` in a name matches any characters.
    ChainMethods {
        /// If not empty: only these methods, and those in `dangerous`.
        allow: Vec<MethodGlob> = default(Vec::new()),
        /// Never these methods, whatever `allow` and `dangerous` say. Case is ignored.
        deny: Vec<MethodGlob> = default(Vec::new()),
        /// Dangerous methods to allow. These control, stop or inspect a node (`admin_*`,
        /// `engine_*`, `debug_setHead`), use its keys (`personal_*`, `eth_sign`,
        /// `eth_sendTransaction`) or manipulate a test chain (`anvil_*`, `evm_*`, `hardhat_*`); the
        /// column Access of docs/methods.md lists them. Methods that use keys or manipulate a test
        /// chain are also allowed while the chain id is 1337 or 31337 and `listen` and each `url`
        /// of the chain are on this machine.
        dangerous: Vec<MethodGlob> = default(Vec::new()),
    }
}

section! {
    /// Which methods may be called. `*` in a name matches any characters.
    Methods {
        /// If not empty: only these methods.
        allow: Vec<MethodGlob> = default(Vec::new()),
        /// Never these methods, whatever `allow` says. Case is ignored.
        deny: Vec<MethodGlob> = default(Vec::new()),
    }
}

section! {
    /// One endpoint to send calls to.
    Upstream {
        /// Its name in logs, metrics and answers. Unique within the chain.
        id: UpstreamId = derived("the host of `url`, without labels that look like keys"),
        /// Where calls are sent: `http://` or `https://`; or `ws://` or `wss://` for an upstream with
        /// WebSocket alone, where wellhead subscribes to new blocks, too. Shown without path and
        /// query, as providers put keys there.
        url: SecretUrl = required(),
        /// Where wellhead subscribes to new blocks: `ws://` or `wss://`. Without it the upstream is
        /// polled. See also `calls_over`.
        ws: Option<SecretUrl> = derived("none"),
        /// `primary` upstreams are used first, `fallback` ones when no primary can serve, `public`
        /// ones last.
        tier: Tier = default(Tier::Primary),
        /// Its share of the calls beside the other upstreams of its tier: one with 2 gets about twice as
        /// many as one with 1. See `balance`.
        weight: u32 = default(1).within(1, 1_000),
        /// The company that runs it. wellhead knows the prices of those in `docs/providers.md`; any
        /// other name is only shown.
        provider: Option<TextLine> = derived("found by the host of `url`"),
        /// Its limits and what it may cost.
        budget: Budget = default(Budget::default()),
        /// Labels of your own, such as `archive: "true"`. `routes` select by them, and clients do
        /// with the query of their URL: `/ethereum?archive=true`.
        labels: Map<LabelName, TextLine> = default(Map::default()),
        /// Headers sent with each request. Their values are never shown.
        headers: Map<HeaderName, Secret> = default(Map::default()),
        /// The credentials that wellhead sends: either `basic` or `bearer`.
        auth: Option<Auth> = derived("none"),
        /// A file that `wellhead analyze` wrote, relative to the directory of the config. Its
        /// measurements apply where the config sets nothing. See docs/analyze.md.
        profile: Option<Profile> = derived("none, or what `study` found"),
        /// Studies of its rate limit, with calls of wellhead's own. Off unless given.
        study: Option<Study> = derived("off"),
        /// The HTTP version; `auto` uses HTTP/2 if the upstream offers it.
        http: HttpVersion = default(HttpVersion::Auto),
        /// How single calls are sent: `http`, or `websocket`, where many calls share a few connections
        /// to `ws`. Batches, logs and traces are sent to `url` in any case, and so is every call while
        /// `ws` cannot be reached. Answers over WebSocket are buffered whole: one above
        /// `limits.answer_bytes` ends its connection.
        calls_over: CallsOver = default(CallsOver::Http),
        /// Which methods this upstream gets.
        methods: Methods = default(Methods::default()),
        /// Blocks that this upstream may be behind the best one.
        lag_blocks_max: Option<u64> = derived("as for the chain"),
        /// How far back its data goes, and over how many blocks it searches at once.
        history: History = default(History::default()),
        /// Limits of one connection to it.
        connection: Connection = default(Connection::default()),
        /// HTTP/1.1 connections open at one time, for each worker. Logs, traces and batches use at
        /// most half of them. If none is free, a call goes to another upstream or waits. HTTP/2
        /// connections are at most 8, and at most this many.
        connections_max: usize = default(256).within(1, 65_536),
        /// Certificates (PEM) of the authorities to trust for this upstream, instead of the
        /// public ones.
        ca_file: Option<PathBuf> = derived("none"),
        /// Trust the public authorities as well as those in `ca_file`.
        ca_file_adds: bool = default(false),
        /// The certificate (PEM, with its intermediate ones) that wellhead shows to this upstream if it asks for one
        /// (mTLS). Needs `client_key_file`. A reload reads both again.
        client_cert_file: Option<PathBuf> = derived("none"),
        /// The private key (PEM) of `client_cert_file`.
        client_key_file: Option<PathBuf> = derived("none"),
        /// Whether to ask for compressed answers.
        gzip: Option<bool> = derived("`true` for `https://`, otherwise `false`"),
        /// Whether it is told of the trace that a call belongs to: the header `traceparent`, over HTTP
        /// alone. For nodes of your own, as a provider could tell by it which calls belong together.
        propagate_trace: bool = default(false),
        /// Time limits of this upstream, instead of the global ones.
        timeouts: UpstreamTimeouts = default(UpstreamTimeouts::default()),
        /// Checks of this upstream, instead of the chain's.
        checks: UpstreamChecks = default(UpstreamChecks::default()),
    }
}

section! {
    /// Studies of the rate limit of an upstream, with calls of wellhead's own. Gentle probes look whether the limit is
    /// still where it was; if they contradict it twice in a row, rising rates find it anew. What is found applies
    /// where `budget` sets nothing, before what a `profile` says, and without a restart (by `reload: auto`). While
    /// probes lean on the limit, calls of clients go to other upstreams, or wait for some seconds. See docs/analyze.md.
    Study {
        /// The directory for the records, and for what was spent and found, relative to that of the config. It is
        /// made if it is missing, and may be shared by upstreams and replicas: each upstream has its own part of it,
        /// `CHAIN/ID`.
        dir: PathBuf = required(),
        /// Calls in any 60 minutes. `wellhead_self_calls_total` counts them with the reason `study`, and they count
        /// against the caps of `budget`.
        calls_per_hour: u64 = default(3_000).within(CALLS_PER_HOUR_MIN, STUDY_CALLS_MAX),
        /// Calls in any 24 hours.
        calls_per_day: u64 = default(10_000).within(CALLS_PER_HOUR_MIN, STUDY_CALLS_MAX),
        /// The time between two rounds of probes; longer if the calls would not suffice.
        every: Duration = default(secs(600)).within(secs(5), secs(86_400)),
        /// The highest rate of a study, in calls per second. A probe goes up to twice the known limit.
        rate_max: u64 = default(100).within(1, 10_000),
        /// How long a study holds each rate. Clients' calls may wait for as long if no other upstream can serve them.
        rate_time: Duration = default(secs(5)).within(secs(1), secs(8)),
    }
}

section! {
    /// Limits of one connection to an upstream. If connections end earlier than these limits say,
    /// wellhead learns lower ones.
    Connection {
        /// Concurrent calls on one HTTP/2 connection.
        streams_max: Option<usize> =
            derived("90, or a lower learnt value").if_given_within(1, 1_000),
        /// Requests after which an HTTP/2 connection is replaced.
        requests_max: Option<u64> = derived("learnt").if_given_within(1, REQUESTS_MAX),
        /// Time after which an unused connection is closed.
        idle: Option<Duration> =
            derived("1m, or a shorter learnt time").if_given_within(ms(100), secs(3_600)),
    }
}

section! {
    /// The credentials that wellhead sends: either `basic` or `bearer`.
    Auth {
        /// User and password.
        basic: Option<Basic> = derived("none"),
        /// A token.
        bearer: Option<Secret> = derived("none"),
    }
}

section! {
    /// User and password.
    Basic {
        /// The user.
        user: TextLine = required(),
        /// The password. Prefer `${PASSWORD}` from the environment to a value in the file.
        password: Secret = required(),
    }
}

section! {
    /// Time limits of one upstream, instead of the global ones.
    UpstreamTimeouts {
        /// One attempt.
        attempt: Option<Duration> =
            derived("as in `timeouts`").if_given_within(ms(1), secs(3_600)),
        /// Name look-up, TCP and TLS of a new connection.
        connect: Option<Duration> =
            derived("as in `timeouts`").if_given_within(ms(1), secs(300)),
    }
}

section! {
    /// The limits of an upstream and what it may cost. What is not set follows from its plan;
    /// without a plan there is no cap, and rates are learnt.
    Budget {
        /// The plan that you pay for, by its name in `docs/providers.md`.
        plan: Option<TextLine> = derived("none"),
        /// Credits per second. At an unknown provider each call costs one.
        credits_per_second: Option<u64> =
            derived("as the plan says, or learnt").if_given_within(1, CREDITS_MAX),
        /// Credits per day, in UTC. When they are spent, calls go to other upstreams. Counted from
        /// the start of wellhead, or across restarts with `state`.
        credits_per_day: Option<u64> =
            derived("as the plan says, or no cap").if_given_within(1, CREDITS_MAX),
        /// Credits per calendar month, in UTC, with the effect of `credits_per_day`.
        credits_per_month: Option<u64> =
            derived("as the plan says, or no cap").if_given_within(1, CREDITS_MAX),
        /// Calls per second, whatever they cost.
        calls_per_second: Option<u64> =
            derived("as the plan says, or learnt").if_given_within(1, CREDITS_MAX),
        /// The window in which the provider counts them: with 100 per second, `10s` means a thousand
        /// in any ten seconds. A longer window allows larger bursts.
        calls_window: Option<Duration> = derived("1s").if_given_within(ms(10), secs(86_400)),
        /// The burst of the provider's token bucket. After a pause, up to nine tenths of it are
        /// sent together.
        calls_burst: Option<u64> =
            derived("a twentieth of what a window holds").if_given_within(1, CREDITS_MAX),
        /// Concurrent requests.
        in_flight: Option<u32> = derived("learnt").if_given_within(1, 65_536),
        /// Whether its caps may be exceeded when no other upstream can serve.
        overspend: bool = default(false),
        /// Whether unknown limits are learnt: the rate from refusals, the concurrency from latency.
        learn: bool = default(true),
    }
}

section! {
    /// Methods that only some upstreams serve, selected by `only` or by `upstreams`.
    Route {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// The upstreams with all of these labels.
        only: Option<Map<LabelName, TextLine>> = derived("none"),
        /// The upstreams with these ids.
        upstreams: Option<Vec<UpstreamId>> = derived("none"),
        /// How these upstreams share the calls, as `balance` of the chain.
        balance: Option<Balance> = derived("as for the chain"),
    }
}

section! {
    /// Reads on which several upstreams must agree before a client gets the answer. Each call
    /// costs at least `agree` upstream calls, and more if one fails, is slow or disagrees.
    Quorum {
        /// The methods: reads whose answer depends on the chain alone. Other methods that a pattern
        /// matches are ignored.
        methods: Vec<MethodGlob> = required(),
        /// Upstreams that must agree.
        agree: usize = default(2).within(2, 16),
        /// The most upstreams that are called.
        of: Option<usize> =
            derived("one more than `agree`, if the chain has that many upstreams").if_given_within(2, 16),
        /// How long wellhead waits for the others after the first answer.
        wait: Duration = default(secs(2)).within(ms(1), secs(60)),
        /// What a client gets when upstreams disagree: `error`, or `most` for the answer that most
        /// of them gave.
        on_dispute: Otherwise = default(Otherwise::Fail),
        /// What a client gets when fewer upstreams answer than must agree: `error`, or `most`.
        on_low_participation: Otherwise = default(Otherwise::Fail),
    }
}

with_defaults!(
    Checks,
    Searches,
    Verify,
    History,
    ChainMethods,
    Methods,
    Connection,
    UpstreamTimeouts,
    UpstreamChecks,
    Budget
);

impl Chain {
    /// What it is called beside its name: its aliases, and its id if that is given.
    pub(crate) fn other_names(&self) -> impl Iterator<Item = String> {
        let aliases = self.aliases.iter().map(ToString::to_string);
        aliases.chain(self.id.map(|id| id.to_string()))
    }

    /// The checks of one of its upstreams.
    pub fn checks_of(&self, upstream: &Upstream) -> Checks {
        let (own, all) = (&upstream.checks, &self.checks);
        Checks {
            mode: own.mode.unwrap_or(all.mode),
            calls: own.calls.clone().unwrap_or_else(|| all.calls.clone()),
            idle_interval: own.idle_interval.unwrap_or(all.idle_interval),
            head_interval_min: own.head_interval_min.unwrap_or(all.head_interval_min),
            ws: own.ws.or(all.ws),
            credits_per_day: own.credits_per_day.or(all.credits_per_day),
        }
    }

    /// How closely answers of one of its upstreams are verified, except for methods with their own
    /// level.
    pub fn verify_level(&self, upstream: &Upstream) -> Level {
        match self.verify.level {
            Some(level) => level,
            None if upstream.is_own() => Level::Off,
            None => Level::Cheap,
        }
    }
}

impl Study {
    /// The part of its directory that is of an upstream of this name.
    pub fn place(&self, chain: &str, id: &UpstreamId) -> PathBuf {
        self.dir.join(chain).join(id.as_str())
    }
}

impl Checks {
    /// Whether the chain id of an upstream is never checked.
    pub fn trust_the_id(&self) -> bool {
        self.mode == Mode::Off || !self.calls.contains(&CheckKind::ChainId)
    }
}

impl Upstream {
    /// Whether its spending per day or month has a cap, from its settings or its plan.
    pub fn has_cap(&self) -> bool {
        let budget = &self.budget;
        let plan = self.known_provider().zip(budget.plan.as_ref());
        let plan = plan.and_then(|(provider, plan)| provider.plan(&plan.0));
        let of_plan = plan
            .is_some_and(|plan| plan.credits_per_day.is_some() || plan.credits_per_month.is_some());
        budget.credits_per_day.is_some() || budget.credits_per_month.is_some() || of_plan
    }

    /// Whether the operator seems to run it: it belongs to no known provider, and its URL is clear
    /// text or not public.
    pub fn is_own(&self) -> bool {
        let url = self.url.expose();
        let is_secure = matches!(url.scheme(), "https" | "wss");
        self.known_provider().is_none() && (!is_secure || is_private(url))
    }

    /// Whether it has WebSocket alone.
    pub fn is_socket(&self) -> bool {
        matches!(self.url.expose().scheme(), "ws" | "wss")
    }

    /// Its provider in the catalogue: the one that `provider` names, or else the one to which the
    /// host of the URL belongs.
    pub fn known_provider(&self) -> Option<&'static Provider> {
        match &self.provider {
            Some(name) => Provider::named(&name.0),
            None => Provider::of_host(self.url.expose().host_str()?),
        }
    }
}

impl Quorum {
    /// The most upstreams that a quorum calls, on a chain with this many upstreams.
    pub fn heard_max(&self, upstreams: usize) -> usize {
        self.of.unwrap_or_else(|| (self.agree + 1).min(upstreams).max(self.agree))
    }
}

impl Route {
    /// Whether the route picks this upstream.
    pub fn picks(&self, upstream: &Upstream) -> bool {
        let labelled = |only: &Map<LabelName, TextLine>| {
            only.iter().all(|(name, value)| upstream.labels.get(name.as_ref()) == Some(value))
        };
        self.only.as_ref().is_none_or(labelled)
            && self.upstreams.as_ref().is_none_or(|ids| ids.contains(&upstream.id))
    }
}
