//! The settings of one chain: its upstreams, and which methods go where.
//!
//! Described here once, as in `settings`. What several of these say together, such
//! as a route that leaves nobody, is checked in `check`.

use std::path::PathBuf;
use std::time::Duration;

use wellhead_dispatch::Otherwise;
use wellhead_eth::{ChainId, MethodGlob};
use wellhead_net::HttpVersion;
use wellhead_proxy::Level;
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_upstream::{Provider, Tier, UpstreamId};
use wellhead_watch::{Check, Mode};

use super::name::{ChainName, HeaderName, LabelName};
use super::place::is_private;
use super::profile::Profile;
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, required};
use super::value::{CallsOver, Text};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// More than anybody sells in a day.
const CREDITS_MAX: u64 = 1_000_000_000_000;

/// More requests than any connection lives for.
const REQUESTS_MAX: u64 = 1_000_000_000;

/// More blocks than any chain has; more is a slip of the pen.
const BLOCKS_MAX: u64 = 100_000_000_000;

section! {
    /// One chain and who serves it.
    Chain {
        /// The chain id, decimal or `0x` hex. Upstreams that say another one are not used.
        id: Option<ChainId> = derived("found by asking `eth_chainId`"),
        /// Other names, each a path of its own.
        aliases: Vec<ChainName> = default(Vec::new()),
        /// The time between blocks.
        block_time: Option<Duration> = derived("measured").if_given_within(ms(10), secs(3_600)),
        /// Blocks that an upstream may be behind the best one before it is left out.
        lag_blocks_max: Option<u64> = derived("the blocks of 20 s, at least 3"),
        /// Well upstreams that have to hold a block before it is `latest`; with 1 the first to
        /// show it is believed.
        agreement: Option<u64> = derived("2, or as many as are well").if_given_within(1, 128),
        /// Whether `latest`, `safe` and `finalized` in calls are replaced by the numbers of the
        /// agreed blocks, so that all upstreams answer the same question, and each client is
        /// answered at what it was shown before or above. See docs/chain.md.
        pin: bool = default(true),
        /// So many blocks below the newest one a block counts as safe and final where no
        /// upstream knows these tags.
        final_after: Option<u64> = derived("such calls go as they are"),
        /// What upstreams are asked on wellhead's own behalf, and how often.
        checks: Checks = default(Checks::default()),
        /// How searches over many blocks are divided.
        searches: Searches = default(Searches::default()),
        /// How closely answers of upstreams are looked at before they are used.
        verify: Verify = default(Verify::default()),
        /// Which methods clients may call.
        methods: ChainMethods = default(ChainMethods::default()),
        /// Who serves the chain. The order does not matter: see `tier`.
        upstreams: Vec<Upstream> = required(),
        /// Methods that only some upstreams serve. The first route that matches decides.
        routes: Vec<Route> = default(Vec::new()),
        /// Reads that several upstreams must answer alike. The first rule that names a method
        /// counts for it. See docs/quorum.md.
        quorum: Vec<Quorum> = default(Vec::new()),
    }
}

section! {
    /// How searches over many blocks (`eth_getLogs`, `trace_filter` and their kin) are divided
    /// where upstreams accept fewer at once. What each accepts is given by its `history` or
    /// learnt from its refusals.
    Searches {
        /// Calls that one search may be made of, with those that upstreams refuse, retries, hedges
        /// and second opinions; `1`: never divided. A search that needs more is refused, before any
        /// of them is made where that is known.
        calls_max: usize = default(100).within(1, 10_000),
        /// Those of one search that are under way at a time.
        parallel: usize = default(4).within(1, 64),
    }
}

section! {
    /// How closely answers of upstreams are looked at before anybody relies on them. One that
    /// cannot be true goes to nobody, counts as a failure of its upstream, and the next one is
    /// asked. Which checks are made for which method, and what they cost: docs/verify.md.
    Verify {
        /// `off` looks at nothing. `cheap` compares each answer with its call and with itself,
        /// which takes some millionths of a second, a thousandth for the largest blocks: right
        /// for upstreams of others, and what holds for them when this is not set. These are the
        /// upstreams of a provider that wellhead knows, and those at an `https://` URL with a
        /// public name or address; all others are your own. A level that is set holds for all
        /// upstreams of the chain. `full` also recomputes hashes, roots,
        /// blooms and signatures, a tenth of a second of a core for a large block, done beside
        /// the calls of others; at times when that is too much, answers are looked at as
        /// at `cheap`.
        level: Option<Level> = derived("`cheap` for upstreams of others, `off` for your own"),
        /// Other levels for some methods. The first that matches decides.
        levels: Vec<MethodLevel> = default(Vec::new()),
        /// Whether the chain hashes its blocks, transactions and receipts as Ethereum does.
        /// Where that is not known, what cannot be recomputed is not taken for false.
        ethereum: Option<bool> =
            derived("known of mainnet, Sepolia, Holesky and Hoodi by their ids"),
    }
}

section! {
    /// Another level for some methods.
    MethodLevel {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// How closely their answers are looked at.
        level: Level = required(),
    }
}

section! {
    /// How far an upstream reaches, counted in its newest blocks. Whoever no longer keeps a
    /// block that a call names, by number or by tag, is not asked for it while another may be. What is not given
    /// here is learnt from what the upstream answers, and forgotten after ten minutes.
    History {
        /// So many states are kept, for balances, calls and the like: 128 for most nodes that
        /// are no archive.
        state: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// So many blocks with their transactions.
        blocks: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// The logs and receipts of so many blocks.
        logs: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// The traces of so many blocks.
        traces: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
        /// A search may go over so many blocks at once.
        range_max: Option<u64> = derived("learnt").if_given_within(1, BLOCKS_MAX),
    }
}

section! {
    /// What upstreams are asked on wellhead's own behalf, and how often. Heads are learnt from
    /// answers to clients first: while those tell the head as it moves, nobody is polled.
    Checks {
        /// `on` follows the head and probes an upstream that rests. `ephemeral` asks at the
        /// start, while it rests and while it seems to lag, and nothing while it is well. `off`
        /// never asks: the
        /// upstream is taken to be on the chain whose `id` is then required, its lag is known
        /// from answers alone, and clients' calls find out whether it is back.
        mode: Mode = default(Mode::On),
        /// Which calls: `chain_id` (`eth_chainId`, when it is first used and after each rest),
        /// `head` (`eth_getBlockByNumber`), `syncing` (`eth_syncing`), `peers`
        /// (`net_peerCount`; one without peers is left out), `version` (`web3_clientVersion`,
        /// when `chain_id` is asked). The first of these that is listed, `version` apart,
        /// is the probe while the upstream rests. Without `chain_id` the chain's `id` is
        /// required.
        calls: Vec<Check> = default(vec![Check::ChainId, Check::Head, Check::Syncing, Check::Version]),
        /// While no client calls the chain, one call in this time, whatever for.
        every: Duration = default(secs(60)).within(ms(100), secs(86_400)),
        /// While clients call, the head is asked for as blocks come, but no more often than
        /// this.
        head_min: Duration = default(ms(250)).within(ms(10), secs(300)),
        /// Good answers in a row, to probes or to clients, that end a rest.
        rise: u32 = default(1).within(1, 100),
        /// Failures in a row, of checks or of clients' calls, that begin one.
        fall: Option<u32> = derived("`health.failures`").if_given_within(1, 1_000),
        /// Whether new blocks are listened for where `ws` is given, while clients call and the
        /// upstream's tier serves them. Where it is not set, they are if `mode` is `on` and a
        /// pushed block costs no more than a polled one, by the provider's prices.
        ws: Option<bool> = derived("by price when `mode` is `on`"),
        /// The most that the calls to one upstream may cost in a day. When it is spent it is
        /// as if they were off until the next one. A call costs what the provider charges for it,
        /// or one credit where that is not known.
        credits_per_day: Option<u64> = derived("no limit").if_given_within(1, CREDITS_MAX),
    }
}

section! {
    /// Other checks for one upstream.
    UpstreamChecks {
        /// Whether it is asked.
        mode: Option<Mode> = derived("as for the chain"),
        /// Which calls.
        calls: Option<Vec<Check>> = derived("as for the chain"),
        /// While no client calls the chain, one call in this time.
        every: Option<Duration> =
            derived("as for the chain").if_given_within(ms(100), secs(86_400)),
        /// While clients call, the head is asked for no more often than this.
        head_min: Option<Duration> =
            derived("as for the chain").if_given_within(ms(10), secs(300)),
        /// Good answers in a row that end a rest.
        rise: Option<u32> = derived("as for the chain").if_given_within(1, 100),
        /// Failures in a row that begin one.
        fall: Option<u32> = derived("as for the chain").if_given_within(1, 1_000),
        /// Whether new blocks are listened for where `ws` is given.
        ws: Option<bool> = derived("as for the chain"),
        /// The most that these calls may cost in a day.
        credits_per_day: Option<u64> =
            derived("as for the chain").if_given_within(1, CREDITS_MAX),
    }
}

section! {
    /// Which methods clients may call. `*` in a name stands for any run of characters.
    ChainMethods {
        /// When not empty, only these, and those of `dangerous`.
        allow: Vec<MethodGlob> = default(Vec::new()),
        /// Never these, whatever `allow` and `dangerous` say, and in whatever case they are written.
        deny: Vec<MethodGlob> = default(Vec::new()),
        /// These as well, of the methods that are not meant for every client: they steer, stop
        /// or inspect a node (`admin_*`, `engine_*`, `debug_setHead`), use its keys
        /// (`personal_*`, `eth_sign`, `eth_sendTransaction`) or are cheats of test chains
        /// (`anvil_*`, `evm_*`, `hardhat_*`). The column Access of docs/methods.md tells which.
        /// What uses keys or cheats is also allowed while the chain's id is 1337 or 31337, each
        /// `url` of the chain is of this machine, and so is `listen`.
        dangerous: Vec<MethodGlob> = default(Vec::new()),
    }
}

section! {
    /// Which methods may be called. `*` in a name stands for any run of characters.
    Methods {
        /// When not empty, only these.
        allow: Vec<MethodGlob> = default(Vec::new()),
        /// Never these, whatever `allow` says, and in whatever case they are written.
        deny: Vec<MethodGlob> = default(Vec::new()),
    }
}

section! {
    /// One endpoint to send calls to.
    Upstream {
        /// Its name in logs, metrics and answers. Unique within the chain.
        id: UpstreamId = derived("the host of `url`, without labels that look like keys"),
        /// Where calls are sent: `http://` or `https://`. Shown without path and query, as
        /// providers put keys there.
        url: SecretUrl = required(),
        /// Where new blocks are listened for: `ws://` or `wss://`. Without it the upstream is
        /// polled. See `calls_over` as well.
        ws: Option<SecretUrl> = derived("none"),
        /// `primary` upstreams are asked first, `fallback` ones when no primary can serve,
        /// `public` ones last.
        tier: Tier = default(Tier::Primary),
        /// The company that runs it. Of those in `docs/providers.md` it is known what
        /// calls cost; others are a label for people.
        provider: Option<Text> = derived("found by the host of `url`"),
        /// What it may be asked for.
        budget: Budget = default(Budget::default()),
        /// Words of your own that `routes` select by, such as `archive: "true"`, and clients
        /// with the query of their URL: `/ethereum?archive=true`.
        labels: Map<LabelName, Text> = default(Map::default()),
        /// Headers sent with each request. Their values are never shown.
        headers: Map<HeaderName, Secret> = default(Map::default()),
        /// How to prove who we are: either `basic` or `bearer`.
        auth: Option<Auth> = derived("none"),
        /// A file that `wellhead analyze` wrote, seen from the directory of the config: what it
        /// measured counts where nothing is said here. See docs/analyze.md.
        profile: Option<Profile> = derived("none"),
        /// Which HTTP to speak; `auto` takes HTTP/2 where the upstream offers it.
        http: HttpVersion = default(HttpVersion::Auto),
        /// How single calls travel: `http`, or `websocket`, many at a time over a few
        /// connections to `ws`. Batches, logs and traces are sent to `url` in any case, and so
        /// is every call while `ws` cannot be reached. What is answered over WebSocket is held
        /// whole: an answer above `limits.answer_bytes` ends its connection.
        calls_over: CallsOver = default(CallsOver::Http),
        /// Which methods this upstream is sent.
        methods: Methods = default(Methods::default()),
        /// Blocks that this upstream may be behind the best one.
        lag_blocks_max: Option<u64> = derived("as for the chain"),
        /// How far back it reaches, and over how much at once.
        history: History = default(History::default()),
        /// What one connection to it bears.
        connection: Connection = default(Connection::default()),
        /// HTTP/1.1 connections open at once, per worker. Logs, traces and batches have half of
        /// them. A call that finds none free goes to another upstream or waits in line.
        connections_max: usize = default(256).within(1, 65_536),
        /// Certificates (PEM) of the authorities to trust for this upstream, instead of the
        /// public ones.
        ca_file: Option<PathBuf> = derived("none"),
        /// Trust the public authorities as well as those in `ca_file`.
        ca_file_adds: bool = default(false),
        /// Whether to ask for compressed answers.
        gzip: Option<bool> = derived("over `https://` only, where bytes cost more than time"),
        /// Other times for this upstream.
        timeouts: UpstreamTimeouts = default(UpstreamTimeouts::default()),
        /// Other checks for this upstream.
        checks: UpstreamChecks = default(UpstreamChecks::default()),
    }
}

section! {
    /// What one connection to an upstream bears. Whatever is said here, less is used where it is
    /// learnt from how connections end.
    Connection {
        /// Calls at once on one HTTP/2 connection.
        streams_max: Option<usize> =
            derived("90, or fewer where that is learnt").if_given_within(1, 1_000),
        /// An HTTP/2 connection is replaced after so many requests.
        requests_max: Option<u64> = derived("learnt").if_given_within(1, REQUESTS_MAX),
        /// A connection that is not used for so long is closed.
        idle: Option<Duration> =
            derived("1m, or less where that is learnt").if_given_within(ms(100), secs(3_600)),
    }
}

section! {
    /// How to prove who we are: either `basic` or `bearer`.
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
        user: Text = required(),
        /// The password. Better `${PASSWORD}` from the environment than in the file.
        password: Secret = required(),
    }
}

section! {
    /// Other times for one upstream.
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
    /// What an upstream may be asked for. What is not said is as its plan says; without a
    /// plan there is no cap, and rates are learnt.
    Budget {
        /// The plan that is paid for, by its name in `docs/providers.md`.
        plan: Option<Text> = derived("none"),
        /// Credits a second; at an unknown provider each call costs one.
        credits_per_second: Option<u64> =
            derived("as the plan says, or learnt").if_given_within(1, CREDITS_MAX),
        /// Credits a day, in UTC. When they are spent, calls go to others; counted from the
        /// start of wellhead, or over restarts with `state`.
        credits_per_day: Option<u64> =
            derived("as the plan says, or no cap").if_given_within(1, CREDITS_MAX),
        /// Credits a calendar month, in UTC; in the same way.
        credits_per_month: Option<u64> =
            derived("as the plan says, or no cap").if_given_within(1, CREDITS_MAX),
        /// Calls a second, whatever they cost.
        calls_per_second: Option<u64> =
            derived("as the plan says, or learnt").if_given_within(1, CREDITS_MAX),
        /// The time in which the provider counts these: 100 a second in `10s` are a thousand
        /// in any ten seconds. Where it is longer, more calls may go together.
        calls_window: Option<Duration> = derived("1s").if_given_within(ms(10), secs(86_400)),
        /// Where the provider's limit is a bucket that fills bit by bit, what it holds: nine tenths
        /// of so many calls may go together after a pause.
        calls_burst: Option<u64> =
            derived("a twentieth of what a window holds").if_given_within(1, CREDITS_MAX),
        /// Requests at once.
        in_flight: Option<u32> = derived("learnt").if_given_within(1, 65_536),
        /// Whether it is asked beyond its caps when no other upstream can serve.
        overspend: bool = default(false),
        /// Whether limits that nobody told are learnt: a rate from refusals, requests at once
        /// from delay.
        learn: bool = default(true),
    }
}

section! {
    /// Methods that only some upstreams serve, picked by `only` or by `upstreams`.
    Route {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// The upstreams that carry all of these labels.
        only: Option<Map<LabelName, Text>> = derived("none"),
        /// The upstreams with these ids.
        upstreams: Option<Vec<UpstreamId>> = derived("none"),
    }
}

section! {
    /// Reads that several upstreams must answer alike before a client hears the answer. Each
    /// call costs `agree` calls upstream at least; more are made only when one fails, takes
    /// long or says something else.
    Quorum {
        /// Which methods: reads whose answer is the chain's. Of a pattern those that are not are
        /// left out.
        methods: Vec<MethodGlob> = required(),
        /// So many must say the same.
        agree: usize = default(2).within(2, 16),
        /// So many are heard at most.
        of: Option<usize> =
            derived("one more than `agree`, if the chain has so many upstreams").if_given_within(2, 16),
        /// Once one has spoken the others are waited for so long.
        wait: Duration = default(secs(2)).within(ms(1), secs(60)),
        /// When they contradict each other: `error`, or `most` for what most of them said.
        on_dispute: Otherwise = default(Otherwise::Fail),
        /// When fewer can be heard than must agree: the same.
        on_few: Otherwise = default(Otherwise::Fail),
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
    /// The checks of one of its upstreams.
    pub fn checks_of(&self, upstream: &Upstream) -> Checks {
        let (own, all) = (&upstream.checks, &self.checks);
        Checks {
            mode: own.mode.unwrap_or(all.mode),
            calls: own.calls.clone().unwrap_or_else(|| all.calls.clone()),
            every: own.every.unwrap_or(all.every),
            head_min: own.head_min.unwrap_or(all.head_min),
            rise: own.rise.unwrap_or(all.rise),
            fall: own.fall.or(all.fall),
            ws: own.ws.or(all.ws),
            credits_per_day: own.credits_per_day.or(all.credits_per_day),
        }
    }

    /// How closely answers of one of its upstreams are verified, but for methods that have a level
    /// of their own.
    pub fn verify_level(&self, upstream: &Upstream) -> Level {
        match self.verify.level {
            Some(level) => level,
            None if upstream.is_own() => Level::Off,
            None => Level::Cheap,
        }
    }
}

impl Checks {
    /// Whether an upstream is never asked which chain it is on.
    pub fn trust_the_id(&self) -> bool {
        self.mode == Mode::Off || !self.calls.contains(&Check::ChainId)
    }
}

impl Upstream {
    /// Whether what it may spend in a day or a month has a cap, its own or its plan's.
    pub fn has_cap(&self) -> bool {
        let budget = &self.budget;
        let plan = self.known_provider().zip(budget.plan.as_ref());
        let plan = plan.and_then(|(provider, plan)| provider.plan(&plan.0));
        let of_plan = plan
            .is_some_and(|plan| plan.credits_per_day.is_some() || plan.credits_per_month.is_some());
        budget.credits_per_day.is_some() || budget.credits_per_month.is_some() || of_plan
    }

    /// Whether the operator seems to run it: no known provider does, and it is reached in clear
    /// text or at a place that is not public.
    pub fn is_own(&self) -> bool {
        let url = self.url.expose();
        self.known_provider().is_none() && (url.scheme() != "https" || is_private(url))
    }

    /// What is known of its provider: the one that is named, or else the one whose host
    /// the URL has.
    pub fn known_provider(&self) -> Option<&'static Provider> {
        match &self.provider {
            Some(name) => Provider::named(&name.0),
            None => Provider::of_host(self.url.expose().host_str()?),
        }
    }
}

impl Quorum {
    /// How many are heard at most on a chain with so many upstreams.
    pub fn heard_max(&self, upstreams: usize) -> usize {
        self.of.unwrap_or_else(|| (self.agree + 1).min(upstreams).max(self.agree))
    }
}

impl Route {
    /// Whether the route picks this upstream.
    pub fn picks(&self, upstream: &Upstream) -> bool {
        let labelled = |only: &Map<LabelName, Text>| {
            only.iter().all(|(name, value)| upstream.labels.get(name.as_ref()) == Some(value))
        };
        self.only.as_ref().is_none_or(labelled)
            && self.upstreams.as_ref().is_none_or(|ids| ids.contains(&upstream.id))
    }
}
