//! The resolved settings, and the one place where each is described.
//!
//! rustdoc, the JSON schema, the reference page and the hints of the config reader use these
//! descriptions. Keep each to one short paragraph for a new user. The settings of a chain are
//! in `chain`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use wellhead_access::KeyHash;
use wellhead_dispatch::{Bounds, TierScope};
use wellhead_eth::ChainId;
use wellhead_limit::lease::WhenAway;
use wellhead_proxy::{ByHashMode, ClientVersion};
use wellhead_server::{AdminRole, ClientName, ProxyMode};
use wellhead_telemetry::SecretUrl;
use wellhead_telemetry::log::Format;

use super::access::{Access, QuotaConfig, TenantConfig};
use super::acme::Acme;
use super::chain::{Chain, Upstream};
use super::name::{
    ChainName, ClusterName, HeaderName, ListenerName, Origin, QuotaName, TenantName,
};
use super::network::Network;
use super::place::is_local;
use super::problem::SettingPath;
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, ms, required, secs};
use super::traces::TracesConfig;
use super::unit::ByteSize;
use super::usage::UsageConfig;
use super::value::{Admin, FileMode, KeyFile, LogFilter, ReloadTrigger, SharedProbes, TextLine};

section! {
    /// All settings of wellhead.
    Settings {
        /// Where clients connect, over HTTP/1.1 or HTTP/2. The default is for this machine only;
        /// `0.0.0.0:4545` listens on every IPv4 address.
        listen: SocketAddr = default(SocketAddr::from(([127, 0, 0, 1], 4545))),
        /// The host names that clients may use for `listen` (the `Host` header, without
        /// port). `*.example.org` matches all its subdomains, `*` every name. Addresses,
        /// `localhost` and its subdomains are always accepted. A request for another name is
        /// refused (403), because a web page could otherwise point its own name here (DNS rebinding).
        hosts: Option<Vec<ListenerName>> =
            derived("`*` if other machines can reach `listen`, otherwise empty"),
        /// TLS for `listen`. Clients must then connect with `https://`.
        tls: Option<Tls> = derived("none: clients speak plain HTTP"),
        /// Where metrics, health, status and the dashboard are served: an address, the path of a socket
        /// file (`unix:/run/wellhead/admin.sock`), or `off`. An address that other machines can reach
        /// needs tokens or client certificates (`admin_access`); on the loopback every program of this
        /// machine can use it without them.
        admin: Admin = default(Admin::At(SocketAddr::from(([127, 0, 0, 1], 4546)))),
        /// The host names that clients may use for `admin`, as in `hosts`: `wellhead` for a Prometheus
        /// that scrapes `http://wellhead:4546/metrics`.
        admin_hosts: Vec<ListenerName> = default(Vec::new()),
        /// Who may use `admin`, and for what.
        admin_access: AdminGuard = default(AdminGuard::default()),
        /// A file that keeps the filters of clients, the daily and monthly spending, at each upstream and of
        /// each tenant and key, and which keys were revoked, across restarts. It is written every 10 s, so a crash loses at most that much. Its directory must exist;
        /// each wellhead process needs its own file. If it is not set and an upstream
        /// or a quota has a cap, `wellhead serve` keeps `wellhead.state` in $STATE_DIRECTORY, else in
        /// `wellhead` in $XDG_STATE_HOME or ~/.local/state.
        state: Option<PathBuf> = derived("a default file if an upstream or a quota has a cap"),
        /// Worker threads, each with its own connections.
        workers: Option<usize> = derived("one per available core").if_given_within(1, 256),
        /// What `web3_clientVersion` returns. `upstream`: the version of the first ready upstream,
        /// followed by wellhead's name, because tools recognise nodes by the beginning. `own`:
        /// wellhead's name and version. Neither costs an upstream call.
        client_version: ClientVersion = default(ClientVersion::Upstream),
        /// When the config is read again while wellhead runs. `auto`: when the file, or a file that it
        /// names, has changed, on SIGHUP and on request (`wellhead reload`). `signal`: on SIGHUP and on
        /// request. `off`: never. See docs/operation.md.
        reload: ReloadTrigger = default(ReloadTrigger::Auto),
        /// What is logged, and how.
        log: Log = default(Log::default()),
        /// Limits on what clients may send and hold. They bound memory.
        limits: Limits = default(Limits::default()),
        /// How long things may take.
        timeouts: Timeouts = default(Timeouts::default()),
        /// How often wellhead tries a call.
        attempts: Attempts = default(Attempts::default()),
        /// A second attempt for reads that take long.
        hedging: Hedging = default(Hedging::default()),
        /// The cache of answers.
        cache: Cache = default(Cache::default()),
        /// Whether identical concurrent calls share one upstream call. Each client keeps its own
        /// deadline. A failed call is repeated once before all of them get its error.
        coalesce: bool = default(true),
        /// Compression of answers to clients.
        compression: Compression = default(Compression::default()),
        /// Which web pages may call from a browser (CORS).
        cors: Cors = default(Cors::default()),
        /// Which clients may call, and how they are told apart.
        access: Access = default(Access::default()),
        /// Those that pay for calls, by name. Without any, every tenant that a key, a network or a
        /// certificate names exists, without limits; with some, others are an error.
        tenants: Map<TenantName, TenantConfig> = default(Map::default()),
        /// Sets of limits, by name.
        quotas: Map<QuotaName, QuotaConfig> = default(Map::default()),
        /// What several wellheads share, and through which Redis.
        shared: Option<SharedStore> = derived("none: each wellhead counts for itself"),
        /// Where usage goes, beside memory.
        usage: UsageConfig = default(UsageConfig::default()),
        /// Where traces of requests go.
        traces: Option<TracesConfig> = derived("none: no request leaves a trace"),
        /// When the circuit breaker of an upstream opens, and for how long.
        health: Health = default(Health::default()),
        /// The chains to serve, by name. Each is reached at `/name`, at its aliases and at
        /// its id; the only chain also at `/`.
        chains: Map<ChainName, Chain> = required(),
    }
}

section! {
    /// TLS for `listen`, with a certificate from files (`certificate` and `key`) or from an ACME server
    /// (`acme`). All files are read at start, and again within a minute when one of them has
    /// changed; invalid files are logged and not used.
    Tls {
        /// The certificate, followed by its intermediate certificates (PEM).
        certificate: Option<PathBuf> = derived("required without `acme`"),
        /// The private key of the certificate (PEM, not encrypted).
        key: Option<KeyFile> = derived("required without `acme`"),
        /// A certificate that wellhead orders and renews itself.
        acme: Option<Acme> = derived("none: the certificate is in files"),
        /// Certificates of clients (mTLS).
        clients: Option<TlsClients> = derived("none: clients are not asked for certificates"),
    }
}

section! {
    /// TLS for `admin`. All files are read at start, and again within a minute when one of them has
    /// changed; invalid files are logged and not used.
    AdminTls {
        /// The certificate, followed by its intermediate certificates (PEM).
        certificate: PathBuf = required(),
        /// The private key of the certificate (PEM, not encrypted).
        key: KeyFile = required(),
        /// Certificates of clients (mTLS).
        clients: Option<TlsClients> = derived("none: clients are not asked for certificates"),
    }
}

section! {
    /// Certificates of clients (mTLS). They are verified in the handshake, before any path is known:
    /// TLS 1.3 cannot ask for a certificate per path, so `required` holds for the whole listener. A
    /// change of these files holds from the next handshake; open connections stay. TLS sessions are
    /// not resumed, because a resumed session is not verified again.
    TlsClients {
        /// The authorities that issue certificates to clients (PEM). Their own expiry is not checked.
        ca: PathBuf = required(),
        /// Whether a client without a certificate is refused. With `false` a client may have
        /// none, but an invalid one is still refused.
        required: bool = default(true),
        /// Certificate revocation lists (PEM). If any is given, each authority between a client's
        /// certificate and `ca` needs one: without a list, or with a list whose next update is
        /// overdue, its certificates are refused.
        crl: Vec<PathBuf> = default(Vec::new()),
    }
}

section! {
    /// Who may use `admin`, and for what. `view` is for metrics, status and explanations, `operate` for
    /// actions and all that `view` allows, `keys` for the keys of clients and nothing else. `/livez`,
    /// `/readyz` and the dashboard's empty page need no role. With a socket file its mode
    /// decides which users may connect, and every connection may do everything. Each action leaves a line in the log (target
    /// `audit`).
    AdminGuard {
        /// Tokens, which are sent as `authorization: Bearer TOKEN`. `wellhead token` makes one.
        tokens: Vec<NamedToken> = default(Vec::new()),
        /// Names of client certificates, if `tls.clients` asks for them.
        certificates: Vec<NamedCertificate> = default(Vec::new()),
        /// Whether `/metrics` needs no token. Otherwise it needs `view`.
        metrics_open: Option<bool> = derived("`true` if `admin` is on the loopback"),
        /// The mode of the socket file, in octal.
        socket_mode: FileMode = default(FileMode(0o660)),
        /// TLS for `admin`, as `tls` is for `listen`, without `acme`.
        tls: Option<AdminTls> = derived("none: plain HTTP"),
    }
}

section! {
    /// A token for `admin`.
    NamedToken {
        /// How audit lines name it.
        name: TextLine = required(),
        /// What it may do.
        roles: Vec<AdminRole> = required(),
        /// The hash of the token in hex, as `wellhead token` prints it. The token itself is not kept.
        hash: KeyHash = required(),
    }
}

section! {
    /// What the holder of a client certificate may do.
    NamedCertificate {
        /// A name in the certificate: `uri:spiffe://example/ops`, `dns:ops.example` or `cn:ops`.
        name: ClientName = required(),
        /// What it may do.
        roles: Vec<AdminRole> = required(),
    }
}

section! {
    /// Load balancers and proxies in front of `listen`, whose word about their clients is believed.
    Proxies {
        /// Their addresses or networks: `10.0.0.0/8`.
        trust: Vec<Network> = default(Vec::new()),
        /// Whether connections begin with a header of the PROXY protocol (version 1 or 2), before TLS,
        /// that names the client. `accept`: those from `trust` may. `require`: connections from `trust`
        /// must, and others are closed. `off`: none does. The named address counts in every limit and
        /// log line as the client's.
        protocol: ProxyMode = default(ProxyMode::Off),
        /// The header in which they name the client, if they do not use the PROXY protocol:
        /// `x-forwarded-for`, `forwarded`, or one that holds a single address, such as
        /// `cf-connecting-ip`. It is ignored in requests from other addresses.
        header: HeaderName = default(HeaderName("x-forwarded-for".to_owned())),
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
        /// Whether wellhead writes one line per request when it ends.
        requests: bool = default(true),
        /// Lines of successful requests per second. Below this rate every request has its line; above it wellhead
        /// writes a sample, and one line per second says how many were left out
        /// (`wellhead_log_lines_total` in `/metrics`).
        requests_per_second: u32 = default(1_000).within(1, 1_000_000),
        /// Lines of failed requests per second, which successful ones do not crowd out.
        failures_per_second: u32 = default(1_000).within(1, 1_000_000),
    }
}

section! {
    /// Limits on what clients may send and hold.
    Limits {
        /// Largest body of one request, after decompression. A larger one is answered with 413.
        body_bytes: ByteSize = default(ByteSize::mib(5))
            .within(ByteSize::kib(1), ByteSize::gib(1)),
        /// All request bodies held at one time. Above it, new ones are answered with 503.
        bodies_total_bytes: ByteSize = default(ByteSize::mib(256))
            .within(ByteSize::mib(1), ByteSize::gib(64)),
        /// Largest request line and headers together. Larger ones are answered with 431; over HTTP/2 no metric counts that.
        header_bytes: ByteSize = default(ByteSize::kib(16))
            .within(ByteSize::kib(1), ByteSize::kib(256)),
        /// Calls in one batch.
        batch_items: usize = default(1_000).within(1, 100_000),
        /// Upstream calls for one request, with all retries, hedges, parts of searches and second
        /// opinions. A batch is one request. A call that needs more is answered with an error.
        upstream_calls: Option<u32> =
            derived("one more than `attempts.max` for each of `batch_items`: 5000")
            .if_given_within(1, 100_000_000),
        /// A larger answer to a single read is streamed, so that a request buffers this much and
        /// not the whole answer.
        answer_buffer: ByteSize = default(ByteSize(Bounds::WHOLE_BYTES_MAX as u64))
            .within(ByteSize::kib(64), ByteSize::gib(1)),
        /// Largest answer that is buffered whole, after decompression: in a batch, or when its
        /// beginning does not show that it is a result. A larger one is an error.
        answer_bytes: ByteSize = default(ByteSize(Bounds::ANSWER_BYTES_MAX as u64))
            .within(ByteSize::kib(64), ByteSize::gib(4)),
        /// All answers in memory at one time: being buffered, in batches, or on their way to clients.
        /// Answers of up to 16 KiB are not counted. Above it, answers are streamed where possible;
        /// others wait up to a second and then fail with 503.
        answers_total_bytes: ByteSize = default(ByteSize::mib(256))
            .within(ByteSize::mib(16), ByteSize::gib(64)),
        /// All replies of one batch together; the batch holds at most this plus one answer.
        /// Calls above it are answered with an error. The default is what geth allows.
        batch_bytes: ByteSize = default(ByteSize(Bounds::BATCH_BYTES_MAX as u64))
            .within(ByteSize::kib(64), ByteSize::gib(4)),
        /// Client connections open at once. With `shares`, a further connection replaces the one
        /// that has been idle longest, of the address with the most connections. Without `shares`, or if that
        /// address has no idle connection, the new one is answered with 503 and closed; under TLS
        /// it is closed without an answer.
        connections: usize = default(10_000).within(1, 1_000_000),
        /// Client connections from one address (one /64 of IPv6). A further one is answered with
        /// 429 and closed. Do not set it behind a load balancer or proxy, where all clients share
        /// one address.
        connections_per_address: Option<usize> =
            derived("no bound").if_given_within(1, 1_000_000),
        /// Requests in progress at one time, over all connections. A further one is answered with
        /// 503.
        in_flight: usize = default(16_384).within(1, 1_000_000),
        /// Whether one client address (one /64 of IPv6) may hold only a share of connections, body
        /// bytes and requests in progress: about seven eighths while no other address needs any,
        /// and less the more others hold, so that some room stays free for a new address. Set it to
        /// `false` behind a load balancer or proxy, where all clients share one address.
        shares: bool = default(true),
    }
}

section! {
    /// How long things may take.
    Timeouts {
        /// Time from the arrival of a request to its answer, all attempts included.
        total: Duration = default(secs(30)).within(ms(10), secs(3_600)),
        /// Time for one attempt at one upstream; never longer than what is left of `total`.
        attempt: Duration = default(secs(5)).within(ms(1), secs(3_600)),
        /// Time for DNS, TCP and TLS of a new connection to an upstream.
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
        /// Delay between SIGTERM, when `/readyz` starts to fail, and the closing of the listeners, so
        /// that load balancers notice first. SIGINT skips it.
        shutdown_delay: Duration = default(secs(2)).within(Duration::ZERO, secs(3_600)),
        /// Time that requests in progress have to finish during shutdown. Less than the 30 s that
        /// Kubernetes allows.
        drain: Duration = default(secs(25)).within(Duration::ZERO, secs(3_600)),
    }
}

section! {
    /// How often wellhead tries a call.
    Attempts {
        /// The most attempts for one call, including the first. A call that changes something is
        /// repeated only if that is safe.
        max: u32 = default(4).within(1, 32),
        /// Upstreams to which a raw transaction is sent at once, if that many are healthy. One
        /// acceptance is enough. With 1, upstreams are tried one after another.
        broadcast: u32 = default(3).within(1, 16),
        /// The tiers to which a raw transaction may be sent. `best`: the best tier with a healthy
        /// upstream, and the next tier only if that one fails or would delay the transaction by 2
        /// s. `all`: any tier, the best first. A provider that receives a transaction can act on it
        /// before it is mined.
        broadcast_tiers: TierScope = default(TierScope::Best),
        /// The tiers to which hedges and second opinions may go: additional attempts although none
        /// failed. `best`: no more expensive tier than that of the first attempt. `all`: any tier.
        /// After a failure or a stall, any tier may be used.
        extra_tiers: TierScope = default(TierScope::Best),
    }
}

section! {
    /// A second attempt at another upstream, for a read that takes longer than 95 % of the reads of
    /// its class at the first one, and at least 20 ms. The first good answer is used. At most 5 % of a
    /// chain's calls are hedged, plus one per second, so that a chain with little traffic has hedges,
    /// too; up to 32 unused ones are saved. Abandoning a stalled upstream does not count.
    Hedging {
        /// Whether slow reads are hedged.
        enabled: bool = default(true),
    }
}

section! {
    /// Answers are cached in memory for as long as they are valid. `docs/cache.md` says which
    /// answers are final, canonical or not cached.
    Cache {
        /// Whether answers are cached.
        enabled: bool = default(true),
        /// Memory for the cached answers of all chains together. One answer may take up to 1/64 of it.
        bytes: ByteSize = default(ByteSize::mib(64)).within(ByteSize::mib(1), ByteSize::gib(64)),
        /// How long an answer that changes with the newest block (`eth_gasPrice`) is cached, at
        /// most until the next block. During this time all clients get one upstream's answer; 0
        /// caches none.
        head_ttl: Duration = default(secs(1)).within(Duration::ZERO, secs(60)),
        /// Whether reads of state (`eth_call`, `eth_getBalance`) at unfinalized blocks are sent
        /// with the hash of the agreed block (EIP-1898), so that their answers can be cached.
        /// `auto`: to upstreams that were found to honour the hash. `on`: to all upstreams, without a test.
        /// `off`: to none. Other upstreams get the height.
        by_hash: ByHashMode = default(ByHashMode::Auto),
        /// A disk cache behind the memory, for final answers. It survives restarts.
        disk: Option<CacheDisk> = derived("none"),
        /// A Redis or Valkey behind the memory, shared by several wellheads. It is used only while
        /// it is fast, and wellhead works without it.
        redis: Option<CacheRedis> = derived("none"),
    }
}

section! {
    /// A disk cache for final answers, which survives restarts.
    CacheDisk {
        /// A directory that only this wellhead uses. It is created if it does not exist.
        path: PathBuf = required(),
        /// The largest size of its files together; the oldest answers are removed first.
        bytes: ByteSize = default(ByteSize::gib(4)).within(ByteSize::mib(1), ByteSize::gib(4096)),
    }
}

section! {
    /// A Redis or Valkey in which several wellheads share answers.
    CacheRedis {
        /// `redis://host:6379/0`, or `rediss://` for TLS; a password in it is never shown.
        url: SecretUrl = required(),
        /// The longest time that an answer stays there.
        ttl: Duration = default(secs(86_400)).within(secs(1), secs(30 * 86_400)),
        /// The longest time for a look-up. A slower one is a miss; if many are slower, Redis is not
        /// used until it is fast again.
        get_timeout: Duration = default(ms(2)).within(ms(1), secs(1)),
    }
}

section! {
    /// A Redis or Valkey through which several wellheads share the rates and quotas of tenants and keys,
    /// `budget` of upstreams and the pauses that upstreams ask for, probes of upstreams, filters of clients, and, with `access.keys.redis`, the keys.
    /// No request but a poll of a filter waits for it as a rule: each wellhead takes a small stock of calls in advance. Calls per
    /// address, calls in progress of tenants and keys, and learnt rates of upstreams are counted by each
    /// wellhead for itself.
    SharedStore {
        /// `redis://host:6379/0`, or `rediss://` for TLS; a password in it is never shown.
        redis: SecretUrl = required(),
        /// The wellheads of one name share; those of another name in the same Redis do not.
        cluster: ClusterName = default(ClusterName("wellhead".to_owned())),
        /// What holds for tenants and keys while Redis is away. `share`: each wellhead goes on with its
        /// part of every limit, divided by the wellheads known last. `open`: no shared limit. `closed`:
        /// calls with a shared limit are refused. Upstreams are always asked by the part.
        when_away: WhenAway = default(WhenAway::Share),
        /// Which wellhead asks an upstream on its own behalf: its newest block, its state, whether it is back.
        /// `one`: one of them for all, which tells the others. `each`: each for itself.
        probes: SharedProbes = default(SharedProbes::One),
    }
}

section! {
    /// Compression of answers to clients that accept it (zstd or gzip). Answers of less than 4 KiB
    /// are sent uncompressed.
    Compression {
        /// Whether answers are compressed.
        enabled: bool = default(true),
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
    /// When the circuit breaker of an upstream opens, and for how long.
    Health {
        /// Consecutive failures that open the breaker.
        failures: u32 = default(3).within(1, 1_000),
        /// How long the breaker stays open at first. Each relapse doubles it.
        open_for: Duration = default(secs(1)).within(ms(10), secs(3_600)),
        /// The longest time that the breaker stays open.
        open_for_max: Duration = default(secs(30)).within(ms(10), secs(86_400)),
    }
}

impl Settings {
    /// Worker threads.
    pub(crate) fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.unwrap_or_else(cores)
    }

    /// Calls `each` with the place of every upstream, the name and id of its chain, and the upstream.
    pub(super) fn each_upstream(
        &mut self,
        mut each: impl FnMut(&SettingPath, (&ChainName, Option<ChainId>), &mut Upstream),
    ) {
        for (name, chain) in &mut self.chains.0 {
            let upstreams = SettingPath::root().key("chains").key(name.as_ref()).key("upstreams");
            for (index, upstream) in chain.upstreams.iter_mut().enumerate() {
                each(&upstreams.item(index), (name, chain.id), upstream);
            }
        }
    }

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
        let is_here = |upstream: &Upstream| is_local(upstream.url.expose());
        // A proxy on this machine that names its clients has them elsewhere.
        let Proxies { trust, protocol, header: _ } = &self.access.proxies;
        let is_proxied = *protocol != ProxyMode::Off || !trust.is_empty();
        self.listen.ip().is_loopback() && !is_proxied && chain.upstreams.iter().all(is_here)
    }
}

with_defaults!(AdminGuard, Proxies);
with_defaults!(Log, Limits, Timeouts, Attempts, Hedging, Cache, Compression, Cors, Health);
