//! The settings of callers: keys, tokens, networks, tenants and quotas.
//!
//! Each is described here once, as in `settings`. What of them names something else, such as a quota, is
//! checked in `check::access`.

use std::path::PathBuf;
use std::time::Duration;

use wellhead_access::{AnonymousRule, EffectClass, KeyHash, KeyId};
use wellhead_eth::MethodGlob;
use wellhead_telemetry::{Secret, SecretUrl};

use super::chain::Methods;
use super::name::{
    AccessOrigin, CertificateText, ChainName, ClaimPath, ContractText, KeyEnv, LabelName,
    QuotaName, TenantName,
};
use super::network::Network;
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, required, secs};
use super::settings::Proxies;
use super::value::{KeyFile, KeyPlace, TextLine};

const DAY: Duration = secs(86_400);

section! {
    /// Which clients may call, and how they are told apart. See docs/access.md.
    Access {
        /// Whether a client may call without a key, a token, a certificate or a network that
        /// `networks` names. It then belongs to the tenant `anonymous`.
        anonymous: Option<AnonymousRule> =
            derived("`deny` if keys or tokens are set up here, otherwise `allow`"),
        /// Where a client may put its key or token. `path`: `/KEY` or `/CHAIN/KEY`. `x-api-key` and
        /// `bearer`: headers. `basic`: as password. `subprotocol`: `wellhead.key.KEY` among the
        /// WebSocket subprotocols, for browsers, which must offer another one as well:
        /// `new WebSocket(url, ["wellhead", "wellhead.key.KEY"])`. The first that is no key is
        /// selected; the key is never sent back, and browsers close a connection whose subprotocols are all
        /// declined. `query`: `?key=KEY`; it ends up in the logs of proxies, so it is off by default.
        from: Vec<KeyPlace> = default(vec![
            KeyPlace::Path,
            KeyPlace::ApiKey,
            KeyPlace::Bearer,
            KeyPlace::Basic,
            KeyPlace::Subprotocol,
        ]),
        /// Where the keys are kept.
        keys: Option<AccessKeys> = derived("none"),
        /// The issuers whose signed tokens (JWT) are accepted.
        jwt: Vec<Jwt> = default(Vec::new()),
        /// What is known of client networks. The longest prefix decides.
        networks: Vec<AccessNetwork> = default(Vec::new()),
        /// The tenants of names in verified client certificates (`tls.clients`):
        /// `"uri:spiffe://example.org/indexer": acme`, `"dns:app.example.org": acme` or `"cn:app": acme`.
        certificates: Map<CertificateText, TenantName> = default(Map::default()),
        /// Load balancers and proxies in front of `listen`, which say where a request comes from.
        proxies: Proxies = default(Proxies::default()),
        /// Credits that calls of some methods cost a client. The first rule that names a method
        /// applies. Without one a call costs 1 (light), 2 (state), 4 (block, call), 5 (write), 12
        /// (logs) or 30 (trace), by its class in docs/methods.md.
        prices: Vec<Price> = default(Vec::new()),
        /// What an answer from the cache costs, in percent of the price.
        cached_percent: u32 = default(100).within(0, 100),
    }
}

section! {
    /// Where the keys of callers are kept. The file, Redis and the list may be used together.
    AccessKeys {
        /// A file with one key per line, as `wellhead key` writes it. It is read again within 2 s when
        /// it has changed.
        file: Option<PathBuf> = derived("none"),
        /// Whether keys are kept in the Redis of `shared`, for all replicas. `POST /keys` on the admin listener
        /// makes them there, also if there is a file. A change is in use everywhere within 2 s.
        redis: bool = default(false),
        /// Keys written here, without their secrets.
        list: Vec<AccessKey> = default(Vec::new()),
        /// A secret that is mixed into the hashes of keys. Keys made with another one are not
        /// valid. 64 hex digits (`openssl rand -hex 32`). Set it before you make keys, or not at all: a
        /// key has 130 random bits, so its hash alone tells nothing.
        pepper: Option<Secret> = derived("none"),
        /// Whether keys are accepted that wellhead did not make, such as those of another proxy. In the
        /// path such a key stands behind the chain.
        foreign: bool = default(false),
        /// The first word of new keys: `wh_live_…`.
        env: KeyEnv = default(KeyEnv("live".to_owned())),
        /// How long keys stay valid while the file or Redis cannot be read. After that, requests with
        /// keys are answered with 503.
        stale_max: Duration = default(DAY).within(secs(60), secs(30 * 86_400)),
    }
}

section! {
    /// One key, without its secret.
    AccessKey {
        /// Its public id, as `wellhead key create` shows it.
        id: KeyId = required(),
        /// The hash of its secret, as `wellhead key create` shows it.
        hash: KeyHash = required(),
        /// The tenant that it belongs to.
        tenant: TenantName = required(),
        /// For people.
        note: Option<TextLine> = derived("none"),
        /// A quota of its own, within that of its tenant.
        quota: Option<QuotaName> = derived("the `key_quota` of its tenant"),
        /// What it may do of what its tenant may do.
        rights: Rights = default(Rights::default()),
    }
}

section! {
    /// An issuer of signed tokens.
    Jwt {
        /// The claim `iss` of its tokens.
        issuer: TextLine = required(),
        /// The claim `aud` must hold one of these. An empty list accepts tokens for any service of
        /// the issuer.
        audience: Vec<TextLine> = required(),
        /// Where its keys are published (JWKS): an `https://` URL. They are fetched every 10 minutes,
        /// and at once when a token names an unknown key.
        jwks: Option<SecretUrl> = derived("none"),
        /// Certificates (PEM) of the authorities to trust for `jwks`, instead of the public ones. A reload reads
        /// the file again.
        ca_file: Option<PathBuf> = derived("none"),
        /// Its public key (PEM), instead of `jwks`.
        public_key: Option<KeyFile> = derived("none"),
        /// The secret that it shares with wellhead (HS256), instead of `jwks`. At least 32 characters.
        secret: Option<Secret> = derived("none"),
        /// The tenant of all its tokens.
        tenant: Option<TenantName> = derived("named by `tenant_claim`"),
        /// The claim that names the tenant, as a JSON pointer: `/org/id`.
        tenant_claim: Option<ClaimPath> = derived("none"),
        /// The claim that names a quota for the subject.
        quota_claim: Option<ClaimPath> = derived("none"),
        /// The claim that lists the methods that the token may call.
        methods_claim: Option<ClaimPath> = derived("none"),
        /// The claim that lists the chains that the token may call.
        chains_claim: Option<ClaimPath> = derived("none"),
        /// The claim that identifies the caller in logs and limits.
        subject_claim: ClaimPath = default(ClaimPath("/sub".to_owned())),
        /// Claims that a token must have, each with one of these values.
        require: Map<ClaimPath, Vec<TextLine>> = default(Map::default()),
        /// The tolerance for `exp` and `nbf`.
        leeway: Duration = default(secs(30)).within(Duration::ZERO, secs(600)),
        /// How long its keys stay in use while `jwks` cannot be fetched.
        stale_max: Duration = default(DAY).within(secs(60), secs(30 * 86_400)),
    }
}

section! {
    /// What is known of one network: either a tenant, or that it is denied.
    AccessNetwork {
        /// An address or a network: `10.0.0.0/8`.
        cidr: Network = required(),
        /// Clients from there without a key belong to this tenant.
        tenant: Option<TenantName> = derived("none"),
        /// Whether clients from there are refused, whatever they show.
        deny: bool = default(false),
    }
}

section! {
    /// What calls of some methods cost a client.
    Price {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// Credits for each call; 0 is free.
        credits: u32 = required(),
    }
}

section! {
    /// One tenant: it pays for what its keys, tokens and networks do.
    TenantConfig {
        /// The quota of the tenant, over all its keys.
        quota: Option<QuotaName> = derived("none: nothing is bounded"),
        /// The quota of each of its keys that has none of its own.
        key_quota: Option<QuotaName> = derived("none"),
        /// The quota of each address (each /64 of IPv6) that uses its keys.
        address_quota: Option<QuotaName> = derived("none"),
        /// What it may do.
        rights: Rights = default(Rights::default()),
    }
}

section! {
    /// What a tenant or a key may do. What is left out is not limited.
    Rights {
        /// The chains that it may call.
        chains: Option<Vec<ChainName>> = derived("all"),
        /// The methods that it may call, of those that the chain allows.
        methods: Methods = default(Methods::default()),
        /// What its calls may do: `read` (filters included), `subscribe`, `broadcast` (raw
        /// transactions), `write`, or `admin` (methods that are not public).
        effects: Option<Vec<EffectClass>> = derived("all"),
        /// The contracts that `eth_call`, `eth_estimateGas`, `eth_getLogs` and similar may name. A
        /// call that names none, or brings code along, is refused.
        contracts: Option<Vec<ContractText>> = derived("all"),
        /// The web pages that may use it: `https://app.example`, `https://*.example.org`. Programs can
        /// send any origin, so this protects a public key from other pages, and from nothing else.
        origins: Option<Vec<AccessOrigin>> = derived("all, and programs"),
        /// The addresses and networks from which it may be used.
        networks: Option<Vec<Network>> = derived("all"),
        /// The labels by which it may select upstreams (`?archive=true`); an empty list for none.
        select: Option<Vec<LabelName>> = derived("all"),
        /// Whether it may see the trail of its calls (`x-wellhead-trail`).
        trail: bool = default(true),
        /// Blocks in one search for logs or traces.
        logs_range_max: Option<u64> = derived("no bound").if_given_within(1, 1_000_000_000),
        /// Calls in one batch.
        batch_items_max: Option<u64> = derived("no bound").if_given_within(1, 100_000),
    }
}

section! {
    /// A named set of limits. Days and months are those of UTC.
    QuotaConfig {
        /// Calls per second in the long run.
        calls_per_second: Option<u32> = derived("no bound").if_given_within(1, 10_000_000),
        /// Calls at once after a pause.
        burst: Option<u32> = derived("the calls of one second").if_given_within(1, 100_000_000),
        /// Credits per second in the long run; see `access.prices`.
        credits_per_second: Option<u32> = derived("no bound").if_given_within(1, 1_000_000_000),
        /// Credits at once after a pause.
        credits_burst: Option<u32> =
            derived("the credits of one second").if_given_within(1, 1_000_000_000),
        /// Credits per day.
        credits_per_day: Option<u64> = derived("no bound").if_given_within(1, 1_000_000_000_000),
        /// Credits per calendar month.
        credits_per_month: Option<u64> = derived("no bound").if_given_within(1, 1_000_000_000_000),
        /// Requests in progress at one time, a batch being one.
        in_flight: Option<u32> = derived("no bound").if_given_within(1, 1_000_000),
        /// WebSocket connections open at one time.
        connections: Option<u32> = derived("no bound").if_given_within(1, 1_000_000),
        /// Subscriptions at one time, over all connections.
        subscriptions: Option<u32> = derived("no bound").if_given_within(1, 1_000_000),
        /// Bounds of some methods, within those above. A call counts in each group that names it.
        groups: Vec<QuotaGroupConfig> = default(Vec::new()),
    }
}

section! {
    /// The bounds of some methods.
    QuotaGroupConfig {
        /// Which methods.
        methods: Vec<MethodGlob> = required(),
        /// Calls per second in the long run.
        calls_per_second: Option<u32> = derived("no bound").if_given_within(1, 10_000_000),
        /// Calls at once after a pause.
        burst: Option<u32> = derived("the calls of one second").if_given_within(1, 100_000_000),
        /// Credits per second in the long run.
        credits_per_second: Option<u32> = derived("no bound").if_given_within(1, 1_000_000_000),
        /// Credits at once after a pause.
        credits_burst: Option<u32> =
            derived("the credits of one second").if_given_within(1, 1_000_000_000),
        /// Calls in progress at one time.
        in_flight: Option<u32> = derived("no bound").if_given_within(1, 1_000_000),
    }
}

with_defaults!(Access, AccessKeys, Rights);
