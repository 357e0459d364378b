//! One upstream, looked at: its connection step by step, then what it says of its chain.
//!
//! Calls go by the transports that the proxy has, with the settings that it would use; nothing is retried. What
//! the facts mean is for `judge`.

pub(super) mod judge;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use wellhead_net::{
    ClientIdentity, ClientSettings, Endpoint, EndpointReport, FeedSettings, HttpTransport,
    Resolver, TlsClient, TransportResources, TrustedRoots, WsClient, WsConnection, inspect,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{Exchange, Transport as _};
use wellhead_upstream::Redactor;

use crate::assemble::endpoint_of;
use crate::config::{self, IdentityFiles};
use crate::doctor::diagnosis::HealthCheck;
use crate::secrets;

/// More of an error text is not shown.
const TEXT_CHARS_MAX: usize = 160;

/// Fewer missing blocks are no syncing, as for the proxy while it knows no block time.
const SYNCING_LAG_BLOCKS: u64 = 3;

/// Where it stands and what the settings say of it.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamPlace {
    /// `ethereum/geth-a`.
    pub(crate) name: String,
    /// Which chain, by its place.
    pub(crate) chain: usize,
    /// The chain id that the config expects.
    pub(crate) expected_id: Option<u64>,
    pub(crate) lag_blocks_max: Option<u64>,
    pub(crate) has_own_authorities: bool,
    /// Its host is a name, which is looked up.
    pub(crate) is_named: bool,
}

impl UpstreamPlace {
    fn check(&self, check: &'static str) -> HealthCheck<'_> {
        HealthCheck::new(&self.name, check)
    }
}

/// An answer, or why there is none, in words without a secret.
pub(crate) type UpstreamAnswer<T> = Result<T, String>;

/// What it says of its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainFacts {
    pub(crate) chain_id: UpstreamAnswer<u64>,
    pub(crate) version: UpstreamAnswer<String>,
    pub(crate) is_syncing: UpstreamAnswer<bool>,
    pub(crate) head: UpstreamAnswer<NewestBlock>,
}

/// The newest block that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewestBlock {
    pub(crate) number: u64,
    pub(crate) timestamp: u64,
}

/// What is seen over WebSocket, where the settings have a URL for it.
#[derive(Debug, Clone)]
pub(crate) struct FeedFacts {
    pub(crate) report: EndpointReport,
    pub(crate) chain_id: UpstreamAnswer<u64>,
    /// Whether it takes a subscription to new blocks.
    pub(crate) subscribed: UpstreamAnswer<()>,
}

/// All that was seen of one upstream.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamFacts {
    pub(crate) place: UpstreamPlace,
    /// `Err` where its settings cannot be used.
    pub(crate) report: UpstreamAnswer<EndpointReport>,
    /// Only of one that a connection can be opened to.
    pub(crate) chain: Option<ChainFacts>,
    pub(crate) feed: Option<FeedFacts>,
}

/// Looks at one upstream, until `deadline` at most.
pub(crate) async fn look(
    place: UpstreamPlace,
    upstream: &config::Upstream,
    resolver: Arc<Resolver>,
    deadline: Instant,
) -> UpstreamFacts {
    let redactor = Redactor::of(&secrets::of(upstream));
    let unusable = |place, why| UpstreamFacts { place, report: Err(why), chain: None, feed: None };
    let pem = match upstream.ca_file.as_deref().map(config::authorities).transpose() {
        Ok(pem) => pem,
        Err(why) => return unusable(place, format!("`ca_file`: {why}")),
    };
    let identity = match IdentityFiles::of(upstream).map(|files| files.read()).transpose() {
        Ok(read) => read.map(|read| read.identity),
        Err(why) => return unusable(place, format!("`client_cert_file`: {why}")),
    };
    let roots = match &pem {
        Some(pem) if upstream.ca_file_adds => TrustedRoots::PublicAnd(pem),
        Some(pem) => TrustedRoots::Only(pem),
        None => TrustedRoots::Public,
    };
    let looker = Looker { redactor, roots, identity, resolver, deadline };
    let endpoint = endpoint_of(upstream);
    let ws = upstream.ws.clone().map(|url| Endpoint { url, ..endpoint.clone() });
    // Side by side, as a URL that hangs must leave time for the other.
    let calls = looker.calls(&endpoint, upstream);
    let feed = async {
        match &ws {
            Some(endpoint) => Some(looker.feed(endpoint).await),
            None => None,
        }
    };
    let ((report, chain), feed) = tokio::join!(calls, feed);
    UpstreamFacts { place, report, chain, feed }
}

struct Looker<'a> {
    redactor: Redactor,
    roots: TrustedRoots<'a>,
    identity: Option<ClientIdentity>,
    resolver: Arc<Resolver>,
    deadline: Instant,
}

/// What carries calls.
enum CallCarrier {
    Http(HttpTransport),
    Socket(Box<WsConnection>),
}

/// What carries calls, or why no call can be sent.
type CallLine = UpstreamAnswer<CallCarrier>;

impl Looker<'_> {
    async fn report(&self, endpoint: &Endpoint) -> UpstreamAnswer<EndpointReport> {
        let (resolver, identity) = (Arc::clone(&self.resolver), self.identity.as_ref());
        let report = inspect(endpoint, self.roots, identity, resolver, self.deadline).await;
        let mut report = report.map_err(|error| self.shown(error.to_string()))?;
        if let Some(failure) = &mut report.failure {
            failure.detail = self.shown(std::mem::take(&mut failure.detail));
        }
        Ok(report)
    }

    async fn calls(
        &self,
        endpoint: &Endpoint,
        upstream: &config::Upstream,
    ) -> (UpstreamAnswer<EndpointReport>, Option<ChainFacts>) {
        let report = self.report(endpoint).await;
        if !report.as_ref().is_ok_and(|report| report.failure.is_none()) {
            return (report, None);
        }
        let mut line = self.line(endpoint, upstream).await;
        let chain = ChainFacts {
            chain_id: self.chain_id(&mut line).await,
            version: self.version(&mut line).await,
            is_syncing: self.syncing(&mut line).await,
            head: self.head(&mut line).await,
        };
        (report, Some(chain))
    }

    async fn feed(&self, endpoint: &Endpoint) -> FeedFacts {
        let failed = |report, why: String| FeedFacts {
            report,
            chain_id: Err(why.clone()),
            subscribed: Err(why),
        };
        let report = match self.report(endpoint).await {
            Ok(report) => report,
            Err(why) => return failed(EndpointReport::default(), why),
        };
        if report.failure.is_some() {
            return failed(report, String::new());
        }
        let mut line = self.socket(endpoint).await;
        let chain_id = self.chain_id(&mut line).await;
        let subscribed = self.call(&mut line, "eth_subscribe", json!(["newHeads"])).await;
        FeedFacts { report, chain_id, subscribed: subscribed.map(|_| ()) }
    }

    async fn line(&self, endpoint: &Endpoint, upstream: &config::Upstream) -> CallLine {
        if upstream.is_socket() {
            return self.socket(endpoint).await;
        }
        let tls = self.tls()?;
        let resources = TransportResources::new(Arc::clone(&self.resolver), Arc::new(tls));
        let settings = ClientSettings {
            connect_timeout: self.left(),
            compression: upstream.gzip,
            ..ClientSettings::default()
        };
        let http = HttpTransport::new(endpoint, settings, resources, 0);
        http.map(CallCarrier::Http).map_err(|error| self.shown(error.to_string()))
    }

    fn tls(&self) -> UpstreamAnswer<TlsClient> {
        TlsClient::with_identity(self.roots, self.identity.as_ref())
            .map_err(|error| error.to_string())
    }

    async fn socket(&self, endpoint: &Endpoint) -> CallLine {
        let tls = self.tls()?;
        let settings = FeedSettings { connect_timeout: self.left(), ..FeedSettings::default() };
        let client = WsClient::new(endpoint, settings, Arc::clone(&self.resolver), &tls)
            .map_err(|error| self.shown(error.to_string()))?;
        let opened = client.open().await.map_err(|error| self.shown(error.to_string()))?;
        Ok(CallCarrier::Socket(Box::new(opened)))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    async fn chain_id(&self, line: &mut CallLine) -> UpstreamAnswer<u64> {
        let told = self.call(line, "eth_chainId", json!([])).await?;
        quantity(&told).ok_or_else(|| self.odd("eth_chainId", &told))
    }

    async fn version(&self, line: &mut CallLine) -> UpstreamAnswer<String> {
        let told = self.call(line, "web3_clientVersion", json!([])).await?;
        let version = told.as_str().map(|version| self.shown(version.to_owned()));
        version.ok_or_else(|| self.odd("web3_clientVersion", &told))
    }

    async fn syncing(&self, line: &mut CallLine) -> UpstreamAnswer<bool> {
        let told = self.call(line, "eth_syncing", json!([])).await?;
        // As the checks of the proxy see it: a progress object alone does not mean that.
        Ok(wellhead_watch::is_behind(told.to_string().as_bytes(), SYNCING_LAG_BLOCKS))
    }

    async fn head(&self, line: &mut CallLine) -> UpstreamAnswer<NewestBlock> {
        let told = self.call(line, "eth_getBlockByNumber", json!(["latest", false])).await?;
        let block = quantity(&told["number"]).zip(quantity(&told["timestamp"]));
        let (number, timestamp) =
            block.ok_or_else(|| "the newest block has no number or no time".to_owned())?;
        Ok(NewestBlock { number, timestamp })
    }

    fn odd(&self, method: &str, told: &Value) -> String {
        format!("`{method}` returns {}", self.shown(told.to_string()))
    }

    /// One call and its result.
    async fn call(
        &self,
        line: &mut CallLine,
        method: &str,
        params: Value,
    ) -> UpstreamAnswer<Value> {
        let line = line.as_mut().map_err(|why| why.clone())?;
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = Bytes::from(call.to_string());
        let (status, body) = match timeout_at(self.deadline, self.send(line, body)).await {
            Ok(answered) => answered?,
            Err(_) => return Err("no answer in time".to_owned()),
        };
        self.result(status, &body)
    }

    async fn send(&self, line: &mut CallCarrier, body: Bytes) -> UpstreamAnswer<(u16, Bytes)> {
        match line {
            CallCarrier::Socket(socket) => {
                let answer = socket.call(body).await;
                answer.map(|body| (200, body)).map_err(|error| self.shown(error.to_string()))
            }
            CallCarrier::Http(http) => {
                let deadline = self.deadline.into_std();
                let exchange =
                    Exchange { body, deadline, whole_max: usize::MAX, bulky: false, trace: None };
                let reply = http.exchange(exchange).await;
                let reply = reply.map_err(|error| self.shown(error.to_string()))?;
                Ok((reply.status, reply.body))
            }
        }
    }

    fn result(&self, status: u16, body: &[u8]) -> UpstreamAnswer<Value> {
        let told: Option<Value> = serde_json::from_slice(body).ok();
        let error = told.as_ref().and_then(|told| match &told["error"] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            error => Some(error["message"].as_str().map_or(error.to_string(), str::to_owned)),
        });
        let named = if status == 200 { String::new() } else { format!("HTTP {status}: ") };
        match (told, error) {
            (_, Some(error)) => Err(format!("{named}{}", self.shown(error))),
            (Some(mut told), None) if status == 200 && told.get("result").is_some() => {
                Ok(told["result"].take())
            }
            (_, None) if body.is_empty() => Err(format!("{named}an empty answer")),
            (_, None) => {
                let text = String::from_utf8_lossy(body);
                Err(format!("{named}it answers `{}`", self.shown(text.into_owned())))
            }
        }
    }

    /// A text of the upstream, without secrets and cut.
    fn shown(&self, text: String) -> String {
        let text = self.redactor.hidden(text);
        let mut shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        shown
    }
}

fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// Whether a URL names its host, which is then looked up.
pub(crate) fn is_named(url: &SecretUrl) -> bool {
    matches!(url.expose().host(), Some(url::Host::Domain(_)))
}
