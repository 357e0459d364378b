//! The settings as meant, and the one place where each is described.
//!
//! A description here is what rustdoc, the JSON schema, the reference page and the
//! reader's hints say. Keep it one short paragraph for someone who is new.
//! What is served, chain by chain, is in `chain`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Host;
use wellhead_dispatch::TierScope;
use wellhead_proxy::{ByHashMode, ClientVersion};
use wellhead_telemetry::SecretUrl;
use wellhead_telemetry::log::Format;

use super::chain::{Chain, Upstream};
use super::name::{ChainName, ListenerName, Origin};
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, required};
use super::unit::ByteSize;
use super::value::{Admin, KeyFile, LogFilter};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

section! {
    /// Everything that wellhead can be told.
    Settings {
        /// Where clients connect, over HTTP/1.1 or HTTP/2. The default is for this machine only;
        /// `0.0.0.0:4545` listens on every IPv4 address.
        listen: SocketAddr = default(SocketAddr::from(([127, 0, 0, 1], 4545))),
        /// The names by which clients may call `listen`: those in the `Host` header, without
        /// port. `*.example.org` stands for all names below it, `*` for every name. Addresses,
        /// `localhost` and names below it are always answered; a request by another name is
        /// refused (403), as a web page may have made its own name lead here.
        hosts: Option<Vec<ListenerName>> =
            derived("`*` when `listen` is reached from other machines, otherwise none besides"),
        /// TLS for `listen`, whose clients then connect with `https://` and no longer without.
        tls: Option<Tls> = derived("none: clients speak plain HTTP"),
        /// Where metrics, health, status and the dashboard are served, or `off`. It has no
        /// password: keep it away from the internet.
        admin: Admin = default(Admin::At(SocketAddr::from(([127, 0, 0, 1], 4546)))),
        /// The names by which `admin` may be called, as in `hosts`: `wellhead` for a Prometheus
        /// that scrapes `http://wellhead:4546/metrics`.
        admin_hosts: Vec<ListenerName> = default(Vec::new()),
        /// A file in which what was spent at each upstream in the day and the month survives a
        /// restart. Written every 10 s, so that a crash forgets as much. Its folder must exist;
        /// each running wellhead needs a file of its own. Where it is not set and an upstream
        /// has a cap, `wellhead serve` keeps `wellhead.state` in $STATE_DIRECTORY, else in
        /// `wellhead` in $XDG_STATE_HOME or ~/.local/state.
        state: Option<PathBuf> = derived("a default file where an upstream has a cap"),
        /// Worker threads, each with its own connections.
        workers: Option<usize> = derived("one per available core").if_given_within(1, 256),
        /// What `web3_clientVersion` answers: `upstream` is what the first ready upstream told
        /// when it was verified, followed by our own name, as tools recognise nodes by how it
        /// begins; `own` is the name of wellhead alone. No call goes upstream for it.
        client_version: ClientVersion = default(ClientVersion::Upstream),
        /// What is logged, and how.
        log: Log = default(Log::default()),
        /// How much clients may send and hold. Memory is bounded by these.
        limits: Limits = default(Limits::default()),
        /// How long things may take.
        timeouts: Timeouts = default(Timeouts::default()),
        /// How often a call is tried.
        attempts: Attempts = default(Attempts::default()),
        /// A second attempt for reads that take long.
        hedging: Hedging = default(Hedging::default()),
        /// Answers that are kept.
        cache: Cache = default(Cache::default()),
        /// Whether clients that ask the same at the same time share one call to an upstream. Each
        /// keeps its own deadline; a failure is tried once more before it is everybody's.
        coalesce: bool = default(true),
        /// Compression of answers to clients.
        compression: Compression = default(Compression::default()),
        /// Which web pages may call from a browser.
        cors: Cors = default(Cors::default()),
        /// When a failing upstream is left alone, and for how long.
        health: Health = default(Health::default()),
        /// The chains to serve, by name. Each is reached at `/name`, at its aliases and at
        /// its id; the only chain also at `/`.
        chains: Map<ChainName, Chain> = required(),
    }
}

section! {
    /// TLS for `listen`. Both files are read at start, and again within a minute when they
    /// have changed; a pair that is no good is told in the log and not taken.
    Tls {
        /// The certificate, followed by those that lead to its authority (PEM).
        certificate: PathBuf = required(),
        /// The private key of the certificate (PEM, not encrypted).
        key: KeyFile = required(),
    }
}

section! {
    /// What is logged, and how.
    Log {
        /// The level, and other levels for single modules: `info,wellhead_net=debug`. Levels
        /// are `error`, `warn`, `info`, `debug`, `trace` and `off`.
        level: LogFilter = default(LogFilter("info".to_owned())),
        /// `text` for people, `json` for collectors; `auto` is `text` on a terminal.
        format: Format = default(Format::Auto),
        /// Whether each request leaves a line when it is done.
        requests: bool = default(true),
    }
}

section! {
    /// How much clients may send and hold.
    Limits {
        /// Largest body of one request, after decompression. A larger one is answered with 413.
        body_bytes: ByteSize = default(ByteSize::mib(5))
            .within(ByteSize::kib(1), ByteSize::gib(1)),
        /// All request bodies held at one moment. Over it, new ones are answered with 503.
        bodies_bytes: ByteSize = default(ByteSize::mib(256))
            .within(ByteSize::mib(1), ByteSize::gib(64)),
        /// Largest request line and headers together. Larger ones are answered with 431; over HTTP/2 no metric counts that.
        header_bytes: ByteSize = default(ByteSize::kib(16))
            .within(ByteSize::kib(1), ByteSize::kib(256)),
        /// Calls in one batch.
        batch_items: usize = default(1_000).within(1, 100_000),
        /// Calls of one batch that are worked on at a time; the others wait.
        batch_parallel: usize = default(32).within(1, 1_000),
        /// Calls to upstreams for one request, a batch being one: with all retries, hedges, parts
        /// of searches and second opinions. What would need more is answered with an error.
        upstream_calls: Option<u32> =
            derived("one more than `attempts.max` for each of `batch_items`: 5000")
            .if_given_within(1, 100_000_000),
        /// How deeply the JSON of a request may be nested.
        json_depth: usize = default(128).within(4, 512),
        /// A larger answer to a single read is passed on as it arrives, so that this and not
        /// the answer's size is what a request holds in memory.
        answer_buffer: ByteSize = default(ByteSize::mib(1))
            .within(ByteSize::kib(64), ByteSize::gib(1)),
        /// Largest answer that is ever held, after decompression: in a batch, or when its
        /// beginning does not say enough. A larger one is an error.
        answer_bytes: ByteSize = default(ByteSize::mib(128))
            .within(ByteSize::kib(64), ByteSize::gib(4)),
        /// All answers held at one moment: read whole, in batches, or on their way to clients;
        /// those up to 16 KiB are not counted. Over it, answers that may be passed on as they
        /// arrive are; others wait for a second and are then given up with 503.
        answers_bytes: ByteSize = default(ByteSize::mib(256))
            .within(ByteSize::mib(16), ByteSize::gib(64)),
        /// All replies of one batch together: it holds this and one answer more at most. The calls
        /// over it are answered with an error.
        batch_bytes: ByteSize = default(ByteSize::mib(32))
            .within(ByteSize::kib(64), ByteSize::gib(4)),
        /// Client connections open at once. With `shares` one more takes the place of the longest
        /// idle one of the address that has most; otherwise, and where that has none to give up,
        /// it is answered with 503 and closed. Under TLS it is just closed.
        connections: usize = default(10_000).within(1, 1_000_000),
        /// Of these, from one client address (one /64 of IPv6); one more is answered with 429
        /// and closed. Leave it out behind a load balancer or proxy, where all clients have
        /// its address.
        connections_per_address: Option<usize> =
            derived("no bound").if_given_within(1, 1_000_000),
        /// Requests worked on at once, over all connections. One more is answered with 503.
        in_flight: usize = default(16_384).within(1, 1_000_000),
        /// Whether one client address (one /64 of IPv6) may hold only a share of what clients have
        /// together: about seven eighths of it while no other address wants any, and so much less
        /// the more others do that something stays free for the next one. Set it to `false` behind
        /// a load balancer or proxy, where all clients have its address.
        shares: bool = default(true),
    }
}

section! {
    /// How long things may take.
    Timeouts {
        /// From the arrival of a request to its answer, all attempts together.
        total: Duration = default(secs(30)).within(ms(10), secs(3_600)),
        /// One attempt at one upstream; never longer than what is left of `total`.
        attempt: Duration = default(secs(5)).within(ms(1), secs(3_600)),
        /// Name look-up, TCP and TLS of a new connection to an upstream.
        connect: Duration = default(secs(3)).within(ms(1), secs(300)),
        /// How long a client may take to send the head of a request, and for a TLS handshake
        /// before the first.
        header: Duration = default(secs(10)).within(ms(100), secs(3_600)),
        /// How long a client may take to send the body of a request.
        body: Duration = default(secs(30)).within(ms(100), secs(3_600)),
        /// How long a client connection may stay open without a request. More than the 60 s of
        /// common load balancers, so that they close first.
        idle: Duration = default(secs(75)).within(secs(1), secs(86_400)),
        /// How long a client may take to accept a piece of its answer.
        write: Duration = default(secs(30)).within(ms(100), secs(3_600)),
        /// How long `/readyz` says no after SIGTERM before the listeners close, so that load
        /// balancers hear it first. An interrupt from the keyboard does not wait.
        unready: Duration = default(secs(2)).within(Duration::ZERO, secs(3_600)),
        /// How long requests under way may take when wellhead is told to stop. Less than the
        /// 30 s that Kubernetes gives.
        drain: Duration = default(secs(25)).within(Duration::ZERO, secs(3_600)),
    }
}

section! {
    /// How often a call is tried.
    Attempts {
        /// Upstreams tried for one call at most, the first included. Calls that change
        /// something are repeated only where that is safe.
        max: u32 = default(4).within(1, 32),
        /// Upstreams that a raw transaction is sent to at once, if so many are well. One that
        /// takes it is enough. With 1 it goes to one after another.
        broadcast: u32 = default(3).within(1, 16),
        /// To which tiers a raw transaction is sent: `best` for the best tier in which an
        /// upstream is well, and the next one only when that tier fails or would hold the
        /// transaction for 2 s; `all` for any, the best first. Whoever receives a transaction can
        /// act on it before it is mined.
        broadcast_tiers: TierScope = default(TierScope::Best),
        /// To which tiers a hedge or a second opinion may go, an attempt beside or after one that
        /// did not fail: `best` for no dearer tier than the one that was asked, `all` for any.
        /// After a failure, or a stall, each tier may be asked.
        extra_tiers: TierScope = default(TierScope::Best),
    }
}

section! {
    /// A second attempt at another upstream for a read that takes longer than nineteen in
    /// twenty of its kind do there; the first good answer is used. Of a chain's calls five in a
    /// hundred have one at most, and one a second beside these, so that a chain that is rarely
    /// called has some as well; up to 32 that were not used are saved. An attempt that leaves an
    /// upstream which stalls does not count.
    Hedging {
        /// Whether there are second attempts beside the first at all.
        enabled: bool = default(true),
        /// Never earlier after the first.
        delay_min: Duration = default(ms(20)).within(ms(1), secs(3_600)),
        /// Never later. Logs and traces get four times as long.
        delay_max: Duration = default(secs(1)).within(ms(1), secs(3_600)),
    }
}

section! {
    /// Answers are kept in memory as long as they are true. What of an answer is final, canonical
    /// or not to be kept is found out for each: see `docs/cache.md`.
    Cache {
        /// Whether answers are kept at all.
        enabled: bool = default(true),
        /// Memory for kept answers, of all chains together. One answer may take a 64th of it.
        bytes: ByteSize = default(ByteSize::mib(64)).within(ByteSize::mib(1), ByteSize::gib(64)),
        /// How long an answer that changes with the newest block (`eth_gasPrice`) is kept, at
        /// most until the next one. As long one upstream's word stands for all; 0 keeps none.
        head_time: Duration = default(secs(1)).within(Duration::ZERO, secs(60)),
        /// How long a `null` that says something true is kept (a receipt that is not there
        /// yet), at most until the next block; 0 keeps none.
        null_time: Duration = default(Duration::ZERO).within(Duration::ZERO, secs(60)),
        /// Whether states (`eth_call`, `eth_getBalance`) at the newest blocks are asked for by the
        /// hash of the agreed block (EIP-1898), which lets their answers be kept. `auto` asks only
        /// upstreams so that were found to honour a hash, `on` all of them without finding out,
        /// `off` none. The others are asked by the height.
        by_hash: ByHashMode = default(ByHashMode::Auto),
        /// A disk behind the memory, for answers that are final. Outlives restarts.
        disk: Option<CacheDisk> = derived("none"),
        /// A Redis or Valkey behind the memory, shared by several wellheads. Asked only while
        /// it is quick, and never needed to serve.
        redis: Option<CacheRedis> = derived("none"),
    }
}

section! {
    /// Where final answers are kept over restarts.
    CacheDisk {
        /// A folder of its own, for one running wellhead. It is made when it is not there.
        path: PathBuf = required(),
        /// What its files may take together; the oldest answers give way.
        bytes: ByteSize = default(ByteSize::gib(4)).within(ByteSize::mib(1), ByteSize::gib(4096)),
    }
}

section! {
    /// A Redis or Valkey in which several wellheads keep answers for each other.
    CacheRedis {
        /// `redis://host:6379/0`, or `rediss://` for TLS; a password in it is never shown.
        url: SecretUrl = required(),
        /// The longest that an answer is kept there.
        ttl: Duration = default(secs(86_400)).within(secs(1), secs(30 * 86_400)),
        /// How long a look may take; slower is a miss, and a Redis that often is slower is left
        /// alone until it is quick again.
        get_within: Duration = default(ms(2)).within(ms(1), secs(1)),
    }
}

section! {
    /// Compression of answers to clients that accept it (zstd or gzip).
    Compression {
        /// Whether answers are compressed at all.
        enabled: bool = default(true),
        /// Smaller answers go as they are: they fit in few packets anyway.
        min_bytes: ByteSize = default(ByteSize::kib(4)).within(ByteSize(0), ByteSize::gib(1)),
    }
}

section! {
    /// Which web pages may call from a browser.
    Cors {
        /// Origins such as `https://app.example`, compared as browsers send them: in lower case,
        /// without the usual port, and no patterns. `*` allows all, an empty list none. `null` is
        /// the origin of any page in a sandboxed frame.
        origins: Vec<Origin> = default(Vec::new()),
    }
}

section! {
    /// When a failing upstream is left alone, and for how long.
    Health {
        /// Failures in a row after which an upstream rests.
        failures: u32 = default(3).within(1, 1_000),
        /// The first rest. Each relapse doubles it.
        rest: Duration = default(secs(1)).within(ms(10), secs(3_600)),
        /// No rest is longer.
        rest_max: Duration = default(secs(30)).within(ms(10), secs(86_400)),
    }
}

impl Settings {
    /// What one request may cost: where that is not set, so much that each call of a batch may go
    /// with others and then have as many attempts as if it were alone, and a search its calls.
    pub fn upstream_calls(&self) -> u32 {
        let limits = &self.limits;
        let chains = || self.chains.0.iter().map(|(_, chain)| chain);
        let heard = chains().flat_map(|chain| {
            let count = chain.upstreams.len();
            chain.quorum.iter().map(move |rule| rule.heard_max(count))
        });
        let attempts = self.attempts.max as usize + heard.max().unwrap_or(1);
        let searches = chains().map(|chain| chain.searches.calls_max);
        let calls = limits.batch_items.saturating_mul(attempts).max(searches.max().unwrap_or(1));
        limits.upstream_calls.unwrap_or_else(|| u32::try_from(calls).unwrap_or(u32::MAX))
    }

    /// Whether cheats and the keys of nodes are harmless should `chain` turn out to be a test
    /// chain: its upstreams, and every client, are on this machine.
    pub fn may_serve_a_test_chain(&self, chain: &Chain) -> bool {
        let is_here = |upstream: &Upstream| match upstream.url.expose().host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => false,
        };
        self.listen.ip().is_loopback() && chain.upstreams.iter().all(is_here)
    }
}

with_defaults!(Log, Limits, Timeouts, Attempts, Hedging, Cache, Compression, Cors, Health);
