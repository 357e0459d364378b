//! How calls travel: one target, over the same transport as the proxy, with as many connections
//! as an experiment asks for.
//!
//! The transport notes what connections do and what each call meets (`net`'s journal), which
//! becomes records here: `event` for connections, [`CallRecord`] for calls.

mod event;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use wellhead_eth::MethodTable;
use wellhead_jsonrpc::{ReplyOutcome, scan, scan_error};
use wellhead_net::{
    ClientSettings, ConnectionStats, Endpoint, EndpointError, ExchangeTimeline, HttpVersion,
    Journal, Protocol, TlsSetupError, TransportResources,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{
    Exchange, MemoryBudget, Sent, TransportError, TransportErrorKind, WireReply,
};
use wellhead_upstream::{CALL_ID, Judge, Provider, ProviderPlan, Tariff};

use self::event::Secrets;
use self::line::LineTransport;
use crate::record::{CallRecord, CreditPrice, MeasuredTarget, NUMBER_MAX, WireEvent};
use crate::work::WorkCall;

mod access;
mod batch;
mod line;
mod socket;

pub use access::TargetAccess;
pub use socket::WsSession;

/// A call without an answer for this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Calls that may wait for a connection: an experiment bounds them itself.
const QUEUE_MAX: usize = 1 << 20;
/// Answers of one set of connections that are held at once, in bytes: one target may send as much
/// as it likes. What has no room is given up, and its cell concludes nothing.
const HELD_BYTES_MAX: usize = 512 << 20;
/// Ours stay open however long they are not used: what ends them is the other side's.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Calls of one connection's warming up.
pub(crate) const WARMING_MAX: usize = 3;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TargetClientError {
    /// The URL cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// Is told of calls before they are sent: of all of them, those that greet and those that open a connection included.
pub trait CallMeter: std::fmt::Debug + Send + Sync {
    /// A call of this method leaves.
    fn sends(&self, method: &'static str);
}

/// The endpoint that is measured. Prints no path and no query.
#[derive(Debug, Clone)]
pub struct TargetEndpoint {
    url: SecretUrl,
    access: TargetAccess,
    /// What the run says of it.
    pub target: MeasuredTarget,
    tariff: Option<Tariff>,
    provider: Option<&'static Provider>,
    meter: Option<Arc<dyn CallMeter>>,
}

impl TargetEndpoint {
    /// The target at `url`, to be called `id`.
    pub fn new(id: String, url: SecretUrl) -> Self {
        let provider = Provider::of_host(url.expose().host_str().unwrap_or_default());
        let target = MeasuredTarget { id, host: host(&url), ..MeasuredTarget::default() };
        let (access, tariff) = (TargetAccess::default(), None);
        let endpoint = Self { url, access, target, tariff, provider: None, meter: None };
        match provider {
            Some(provider) => endpoint.at_provider(provider),
            None => endpoint,
        }
    }

    /// Run by this provider, whose prices hold.
    #[must_use]
    pub fn at_provider(mut self, provider: &'static Provider) -> Self {
        self.target.provider = Some(provider.id.clone());
        let unit = provider.unit.clone();
        self.target.price = Some(CreditPrice { unit, ..CreditPrice::default() });
        Self { tariff: Some(Tariff::of(provider)), provider: Some(provider), ..self }
    }

    /// On this plan of its provider, and at this price of a million credits, US dollars. Without
    /// effect where the provider is not known.
    #[must_use]
    pub fn on_plan(mut self, plan: Option<&ProviderPlan>, usd_per_million: Option<f64>) -> Self {
        if let Some(price) = &mut self.target.price {
            price.plan = plan.map(|plan| plan.name.clone());
            price.credits_per_month = plan.and_then(|plan| plan.credits_per_month);
            price.usd_per_million = usd_per_million;
        }
        self
    }

    /// Reached by these headers, credentials and connections.
    #[must_use]
    pub fn with_access(self, access: TargetAccess) -> Self {
        Self { access, ..self }
    }

    /// Whose calls `meter` is told of.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn CallMeter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// How it is reached.
    pub fn access(&self) -> &TargetAccess {
        &self.access
    }

    /// What must not be in a record.
    fn secrets(&self) -> Secrets {
        Secrets::of(&self.url).and(&self.access.secrets())
    }

    /// Its provider, where the catalogue knows the host.
    pub fn provider(&self) -> Option<&'static Provider> {
        self.provider
    }

    /// What the catalogue says that a call costs.
    pub fn credits(&self, method: &str) -> Option<f64> {
        let row = MethodTable::standard().row(method);
        self.tariff.as_ref().map(|tariff| f64::from(tariff.billed(row)))
    }

    /// Whether its calls go over WebSocket, as its URL says.
    pub fn is_socket(&self) -> bool {
        matches!(self.url.expose().scheme(), "ws" | "wss")
    }

    /// Whether it is on this machine or in a private network.
    pub fn is_private(&self) -> bool {
        use std::net::IpAddr;
        let host = self.url.expose().host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            Ok(IpAddr::V6(ip)) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        }
    }
}

/// The host, and the port where it is not the usual one.
pub fn host(url: &SecretUrl) -> String {
    let host = url.expose().host_str().unwrap_or_default();
    match url.expose().port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// What an experiment asks of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// The protocol.
    pub version: HttpVersion,
    /// Connections. Over HTTP/2 calls go to the one with the fewest under way.
    pub connections: usize,
    /// Calls at once on one HTTP/2 connection; more wait.
    pub streams_max: usize,
}

impl ConnectionSettings {
    /// One connection, which bears more than any experiment asks of it.
    pub const ONE: Self = Self { version: HttpVersion::Auto, connections: 1, streams_max: 10_000 };
}

/// Numbers of the run's connections.
#[derive(Debug, Default)]
pub struct ConnectionNumbers(Arc<AtomicU64>);

impl ConnectionNumbers {
    /// From `next` on.
    pub(crate) fn from(next: u64) -> Self {
        Self(Arc::new(AtomicU64::new(next)))
    }
}

/// A fresh set of connections to one target. Nothing is opened before the first call.
#[derive(Debug)]
pub struct TargetClient {
    lines: Vec<Arc<ClientPool>>,
    journal: Arc<Journal>,
    secrets: Arc<Secrets>,
}

/// One pool: one connection over HTTP/2, all of them over HTTP/1.1.
#[derive(Debug)]
struct ClientPool {
    transport: LineTransport,
    version: HttpVersion,
    connections: usize,
    streams_max: usize,
    under_way: AtomicUsize,
    secrets: Arc<Secrets>,
    meter: Option<Arc<dyn CallMeter>>,
}

/// One call that is over: what a record says of it but for where it belongs.
#[derive(Debug)]
pub struct FinishedCall {
    /// The record, with times of this call and no place in a run.
    pub call: CallRecord,
    /// When it began.
    pub begun: Instant,
    /// When it was over.
    pub ended: Instant,
    /// The answer, where there is one.
    pub body: Bytes,
    /// Calls that were under way when it was made, where it could have gone.
    pub under_way: usize,
    /// And how many can be there: from then on calls wait for each other here.
    pub places: usize,
}

impl FinishedCall {
    /// What it took, without waiting for a connection and opening one.
    pub(crate) fn on_the_wire(&self) -> Duration {
        let took = self.ended.saturating_duration_since(self.begun);
        let CallRecord { dns, tcp, tls, .. } = self.call;
        let set_up = [dns, tcp, tls].into_iter().flatten().sum();
        took.saturating_sub(self.queued()).saturating_sub(Duration::from_micros(set_up))
    }

    /// The raw result, where it has one.
    pub(crate) fn result(&self) -> Option<Bytes> {
        match scan(&self.body).ok()?.outcome {
            ReplyOutcome::Result(span) => Some(self.body.slice_ref(span.of(&self.body))),
            ReplyOutcome::Error(_) => None,
        }
    }

    /// How long it waited for a connection or for room on one: all of its time, where it did so in
    /// vain.
    pub(crate) fn queued(&self) -> Duration {
        match self.call.queue {
            Some(us) => Duration::from_micros(us),
            None => self.ended.saturating_duration_since(self.begun),
        }
    }
}

impl TargetClient {
    /// Prepares connections to `target`.
    ///
    /// # Errors
    ///
    /// Where the URL cannot be used or TLS cannot be set up.
    pub fn new(
        target: &TargetEndpoint,
        connection: ConnectionSettings,
        numbers: &ConnectionNumbers,
        seed: u64,
    ) -> Result<Self, TargetClientError> {
        let tls = Arc::new(target.access.tls()?);
        let resolver = Arc::new(target.access.resolver());
        let answers = Arc::new(MemoryBudget::new(HELD_BYTES_MAX));
        let secrets = Arc::new(target.secrets());
        let endpoint = target.access.endpoint(target.url.clone());
        let endpoint = Endpoint { version: connection.version, ..endpoint };
        let connections = connection.connections.max(1);
        let (lines, each) = match connection.version {
            HttpVersion::H1 => (1, connections),
            HttpVersion::H2 | HttpVersion::Auto => (connections, 1),
        };
        let settings = ClientSettings {
            connections_max: each,
            connects_max: each,
            queue_max: QUEUE_MAX,
            h2_connections_min: 1,
            h2_connections_max: 1,
            h2_streams_max: connection.streams_max,
            idle: AGE_MAX,
            age_max: AGE_MAX,
            // What is refused is what we want to see.
            resend: false,
            ..ClientSettings::default()
        };
        let journal = Arc::new(Journal::new(Arc::clone(&numbers.0)));
        let is_socket = target.is_socket();
        let line = |index: usize| {
            let stats = Arc::new(ConnectionStats::with_journal(Arc::clone(&journal)));
            let resources = TransportResources::new(Arc::clone(&resolver), Arc::clone(&tls));
            let shared = TransportResources { stats, answers: Arc::clone(&answers), ..resources };
            let seed = seed.wrapping_add(index as u64);
            let settings = settings.clone();
            let transport = LineTransport::new(&endpoint, is_socket, settings, shared, seed)?;
            let (version, connections) = (connection.version, each);
            let (streams_max, under_way) = (connection.streams_max, AtomicUsize::new(0));
            let (secrets, meter) = (Arc::clone(&secrets), target.meter.clone());
            Ok(Arc::new(ClientPool {
                transport,
                version,
                connections,
                streams_max,
                under_way,
                secrets,
                meter,
            }))
        };
        let lines = (0..lines).map(line).collect::<Result<_, EndpointError>>()?;
        Ok(Self { lines, journal, secrets })
    }

    /// The protocol that was found.
    pub fn protocol(&self) -> Option<Protocol> {
        self.lines.first().and_then(|line| line.transport.protocol())
    }

    /// Opens each connection with a call, and again where that fails, up to three times. What
    /// comes of it is not told: the calls that follow will say.
    pub async fn warm(&self, ask: &WorkCall, mut may: impl FnMut() -> bool) {
        for line in &self.lines {
            for _ in 0..WARMING_MAX {
                if !may() {
                    return;
                }
                let done = Arc::clone(line).call(ask.clone()).await;
                if done.call.error.is_none() {
                    break;
                }
            }
        }
    }

    /// A call, over the connection with the fewest under way. Counts from here on.
    pub fn call(&self, ask: WorkCall) -> impl Future<Output = FinishedCall> + Send + use<> {
        ClientPool::counted(self.emptiest(), move |line| line.call(ask))
    }

    /// The line with the fewest calls under way.
    fn emptiest(&self) -> Arc<ClientPool> {
        let line = self.lines.iter().min_by_key(|line| line.under_way.load(Relaxed));
        Arc::clone(line.expect("a client has at least one line"))
    }

    /// What the target says of itself, for people: short, without what moves a cursor or turns
    /// text around, and without a part of its URL.
    pub fn told(&self, text: &str) -> String {
        self.secrets.short(text)
    }

    /// A text that is kept, or that it was one with a part of the URL in it.
    pub(crate) fn kept(&self, text: String) -> String {
        self.secrets.kept(text)
    }

    /// What its connections did since this was last asked: when, which of them, and what.
    pub fn events(&self) -> Vec<(Instant, u64, WireEvent)> {
        let told = |event| event::told(event, &self.secrets);
        self.journal.take().into_iter().map(told).collect()
    }
}

/// Counts one less when it is dropped, however that comes about.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl ClientPool {
    /// Calls that it bears at once; without end while that is not known.
    fn places(&self) -> usize {
        let protocol = match self.version {
            HttpVersion::H1 => Some(Protocol::H1),
            HttpVersion::H2 => Some(Protocol::H2),
            HttpVersion::Auto => self.transport.protocol(),
        };
        match protocol {
            Some(Protocol::H1) => self.connections,
            Some(Protocol::H2) => {
                let announced = self.transport.announced_streams();
                let announced = announced.and_then(|streams| usize::try_from(streams).ok());
                self.connections * announced.map_or(self.streams_max, |it| it.min(self.streams_max))
            }
            Some(Protocol::Ws) => self.connections * self.streams_max,
            None => usize::MAX,
        }
    }

    /// What `carry` does over the line, counted as under way from here on.
    fn counted<C, F>(
        line: Arc<Self>,
        carry: C,
    ) -> impl Future<Output = FinishedCall> + Send + use<C, F>
    where
        C: FnOnce(Arc<Self>) -> F + Send,
        F: Future<Output = FinishedCall> + Send,
    {
        let places = line.places();
        let under_way = line.under_way.fetch_add(1, Relaxed);
        async move {
            let _leave = Leave(&line.under_way);
            FinishedCall { under_way, places, ..carry(Arc::clone(&line)).await }
        }
    }

    async fn call(self: Arc<Self>, ask: WorkCall) -> FinishedCall {
        self.meter(&ask);
        let body = Bytes::from(ask.body(CALL_ID));
        self.carry(ask.method, body).await
    }

    fn meter(&self, ask: &WorkCall) {
        if let Some(meter) = &self.meter {
            meter.sends(ask.method);
        }
    }

    /// Sends a body; its answer is judged as one to a call of `method`.
    async fn carry(self: Arc<Self>, method: &'static str, body: Bytes) -> FinishedCall {
        let (bytes_out, deadline) = (body.len(), (Instant::now() + PATIENCE).into_std());
        let whole_max = usize::MAX;
        let exchange = Exchange { body, deadline, whole_max, bulky: false, trace: None };
        let mut passage = ExchangeTimeline::default();
        let reply = self.transport.exchange(exchange, &mut passage);
        let mut done = finished(method, bytes_out, reply).await;
        match &self.transport {
            LineTransport::Http(_) => travelled(&mut done.call, passage, &self.secrets),
            // Connections of WebSocket are not noted; the reply tells the times.
            LineTransport::Ws(_) => over_websocket(&mut done.call),
        }
        done
    }
}

/// Waits for the reply to a call of `method`, and writes down what came of it.
async fn finished(
    method: &'static str,
    bytes_out: usize,
    reply: impl Future<Output = Result<WireReply, TransportError>>,
) -> FinishedCall {
    let begun = Instant::now();
    let reply = timeout(PATIENCE, reply).await;
    let ended = Instant::now();
    let reply = reply
        .unwrap_or_else(|_| Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, "")));
    let mut call = CallRecord {
        method: method.to_owned(),
        bytes_out: bytes_out as u64,
        ..CallRecord::default()
    };
    let body = match reply {
        Ok(reply) => answered(&mut call, method, reply),
        Err(error) => failed(&mut call, &error),
    };
    FinishedCall { call, begun, ended, body, under_way: 0, places: usize::MAX }
}

/// Says so, and leaves out what is HTTP's alone.
fn over_websocket(call: &mut CallRecord) {
    call.protocol = Some(word(Protocol::Ws));
    (call.status, call.transfer) = (None, None);
}

fn word(protocol: Protocol) -> String {
    match protocol {
        Protocol::H1 => "http/1.1".to_owned(),
        Protocol::H2 => "h2".to_owned(),
        Protocol::Ws => "ws".to_owned(),
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// How the call travelled. What did not happen is absent.
fn travelled(call: &mut CallRecord, passage: ExchangeTimeline, secrets: &Secrets) {
    let some = |length: Duration| Some(micros(length)).filter(|us| *us > 0);
    call.protocol = passage.protocol.map(word);
    call.connection = passage.connection;
    call.stream = passage.stream;
    call.queue = passage.connection.map(|_| micros(passage.queued));
    if let Some(set_up) = passage.set_up {
        (call.dns, call.tcp, call.tls) = (some(set_up.dns), some(set_up.tcp), some(set_up.tls));
    }
    call.write = passage.write.map(micros);
    call.first_byte = passage.first_byte.map(micros);
    let harmless =
        |(name, value): &(String, String)| !secrets.are_in(name) && !secrets.are_in(value);
    call.limits = passage.limits.into_iter().filter(harmless).collect();
}

fn answered(call: &mut CallRecord, method: &str, reply: WireReply) -> Bytes {
    let verdict = Judge::standard().reply(MethodTable::standard().row(method), &reply);
    let timing = reply.timing;
    call.queue = Some(micros(timing.queued));
    call.first_byte = Some(micros(timing.first_byte));
    call.class = verdict.class.word().to_owned();
    call.rule = verdict.rule.to_owned();
    call.status = Some(reply.status);
    call.bytes_in = reply.body.len() as u64;
    let before = timing.queued + timing.connect + timing.first_byte;
    call.transfer = Some(micros(timing.total.saturating_sub(before)));
    let asked = reply.retry_after.or(verdict.retry_after);
    call.retry_after_ms = asked.map(|pause| (micros(pause) / 1_000).min(NUMBER_MAX));
    call.code = code(&reply.body);
    reply.body
}

/// A call that has no answer, and so no body.
fn failed(call: &mut CallRecord, error: &TransportError) -> Bytes {
    let verdict = Judge::standard().transport(error);
    call.class = verdict.class.word().to_owned();
    call.rule = verdict.rule.to_owned();
    call.error = Some(error.kind.word().to_owned());
    Bytes::new()
}

fn code(body: &[u8]) -> Option<i64> {
    match scan(body).ok()?.outcome {
        ReplyOutcome::Error(span) => scan_error(span.of(body)).map(|error| error.code),
        ReplyOutcome::Result(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> TargetEndpoint {
        TargetEndpoint::new("a".to_owned(), SecretUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn a_target_tells_its_host_and_no_key() {
        let endpoint =
            endpoint("https://user:PASSKEY@eth-mainnet.g.alchemy.com/v2/PATHKEY?k=QUERYKEY");
        assert_eq!(endpoint.target.host, "eth-mainnet.g.alchemy.com");
        assert_eq!(endpoint.target.provider.as_deref(), Some("alchemy"));
        assert_eq!(endpoint.credits("eth_blockNumber"), Some(10.0));
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("KEY"), "{shown}");
    }

    #[test]
    fn a_near_target_is_known_by_its_address() {
        for (url, is_private) in [
            ("http://127.0.0.1:8545", true),
            ("http://[::1]:8545", true),
            ("http://localhost:8545", true),
            ("http://10.1.2.3", true),
            ("http://192.168.1.9", true),
            ("https://1.1.1.1", false),
            ("https://rpc.example", false),
            // A name that only looks like one.
            ("https://127.0.0.1.example", false),
        ] {
            assert_eq!(endpoint(url).is_private(), is_private, "{url}");
        }
    }
}
