//! The settings of one chain: its upstreams, and which methods go where.
//!
//! Described here once, as in `settings`. What several of these say together, such
//! as a route that leaves nobody, is checked in `check`.

use std::path::PathBuf;
use std::time::Duration;

use wellhead_eth::{ChainId, MethodGlob};
use wellhead_net::HttpVersion;
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_upstream::{Tier, UpstreamId};

use super::name::{ChainName, HeaderName, LabelName};
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, required};
use super::value::Text;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

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
        /// How heads are followed at upstreams without a WebSocket.
        poll: Poll = default(Poll::default()),
        /// Which methods clients may call.
        methods: Methods = default(Methods::default()),
        /// Who serves the chain. The order does not matter: see `tier`.
        upstreams: Vec<Upstream> = required(),
        /// Methods that only some upstreams serve. The first route that matches decides.
        routes: Vec<Route> = default(Vec::new()),
    }
}

section! {
    /// How heads are followed at upstreams without a WebSocket.
    Poll {
        /// No upstream is asked for its head more often than this; the block time sets the
        /// pace where it is longer.
        min: Duration = default(ms(250)).within(ms(10), secs(300)),
        /// How often upstreams are asked while no client calls the chain, to spend fewer
        /// credits.
        idle: Duration = default(secs(60)).within(ms(100), secs(3_600)),
    }
}

section! {
    /// Which methods may be called. `*` in a name stands for any run of characters.
    Methods {
        /// When not empty, only these.
        allow: Vec<MethodGlob> = default(Vec::new()),
        /// Never these, whatever `allow` says.
        deny: Vec<MethodGlob> = default(Vec::new()),
    }
}

section! {
    /// One endpoint to send calls to.
    Upstream {
        /// Its name in logs, metrics and answers. Unique within the chain.
        id: UpstreamId = derived("the host of `url`"),
        /// Where calls are sent: `http://` or `https://`. Shown without path and query, as
        /// providers put keys there.
        url: SecretUrl = required(),
        /// Where new blocks are listened for: `ws://` or `wss://`. Without it the upstream is
        /// polled.
        ws: Option<SecretUrl> = derived("none"),
        /// `primary` upstreams are asked first, `fallback` ones when no primary can serve,
        /// `public` ones last.
        tier: Tier = default(Tier::Primary),
        /// The company that runs it, for logs and metrics.
        provider: Option<Text> = derived("none"),
        /// Words of your own that `routes` select by, such as `archive: "true"`.
        labels: Map<LabelName, Text> = default(Map::default()),
        /// Headers sent with each request. Their values are never shown.
        headers: Map<HeaderName, Secret> = default(Map::default()),
        /// How to prove who we are: either `basic` or `bearer`.
        auth: Option<Auth> = derived("none"),
        /// Which HTTP to speak; `auto` takes HTTP/2 where the upstream offers it.
        http: HttpVersion = default(HttpVersion::Auto),
        /// Which methods this upstream is sent.
        methods: Methods = default(Methods::default()),
        /// Blocks that this upstream may be behind the best one.
        lag_blocks_max: Option<u64> = derived("as for the chain"),
        /// HTTP/1.1 connections open at once, per worker.
        connections_max: usize = default(256).within(1, 65_536),
        /// Certificates (PEM) to trust for this upstream, instead of the public ones.
        ca_file: Option<PathBuf> = derived("none"),
        /// Whether to ask for compressed answers.
        gzip: Option<bool> = derived("over `https://` only, where bytes cost more than time"),
        /// Other times for this upstream.
        timeouts: UpstreamTimeouts = default(UpstreamTimeouts::default()),
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

with_defaults!(Poll, Methods, UpstreamTimeouts);

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
