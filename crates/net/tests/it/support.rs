//! Servers that misbehave as told, and a short way to ask.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use wellhead_net::{
    ClientSettings, Endpoint, HttpTransport, HttpVersion, Resolver, TlsClient, TransportResources,
    TrustedRoots,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{
    Exchange, Sent, TraceContext, Transport, TransportError, TransportErrorKind, WireReply,
};

/// Far beyond what any test needs: a hanging test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A listener whose connections are handled by a closure.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Hands each connection, with its number from 0 on, to `handle`.
    pub(crate) async fn start<F, Fut>(handle: F) -> Self
    where
        F: Fn(TcpStream, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), handle).await
    }

    /// Hands the first connection to `handle`, and echoes on all others.
    pub(crate) async fn start_with_first<F, Fut>(handle: F) -> Self
    where
        F: FnOnce(TcpStream) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let handle = std::sync::Mutex::new(Some(handle));
        Self::start(move |stream, _| {
            let first = handle.lock().expect("no panic").take();
            async move {
                match first {
                    Some(handle) => handle(stream).await,
                    None => echo(stream).await,
                }
            }
        })
        .await
    }

    pub(crate) async fn start_at<F, Fut>(address: SocketAddr, handle: F) -> Self
    where
        F: Fn(TcpStream, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(handle(stream, counter.fetch_add(1, SeqCst)));
            }
        });
        Self { address, accepted, task }
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A port of ours without a listener. Held, so that no other test is given it.
pub(crate) struct DeadPort {
    pub(crate) address: SocketAddr,
    _socket: TcpSocket,
}

impl DeadPort {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"))
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("set");
        socket.bind(address).expect("a port");
        Self { address: socket.local_addr().expect("bound"), _socket: socket }
    }
}

/// One upstream as the workers share it.
pub(crate) struct Upstream {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: ClientSettings,
    pub(crate) shared: TransportResources,
}

impl Upstream {
    pub(crate) fn new(url: &str, version: HttpVersion) -> Self {
        let mut endpoint = Endpoint::new(SecretUrl::parse(url).expect("a good URL"));
        endpoint.version = version;
        let tls = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
        let shared = TransportResources::new(Arc::new(Resolver::new()), Arc::new(tls));
        let settings = ClientSettings {
            connect_timeout: PATIENCE,
            detect_timeout: PATIENCE,
            ..ClientSettings::default()
        };
        Self { endpoint, settings, shared }
    }

    pub(crate) fn h1(server: &Server) -> Self {
        Self::new(&server.url(), HttpVersion::H1)
    }

    pub(crate) fn auto(server: &Server) -> Self {
        Self::new(&server.url(), HttpVersion::Auto)
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut ClientSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn transport(&self) -> HttpTransport {
        HttpTransport::new(&self.endpoint, self.settings.clone(), self.shared.clone(), 1)
            .expect("a good endpoint")
    }
}

/// `question` as an exchange that has to end in time.
pub(crate) fn exchange(question: &str, within: Duration) -> Exchange {
    let deadline = (tokio::time::Instant::now() + within).into_std();
    let body = Bytes::copy_from_slice(question.as_bytes());
    Exchange { body, deadline, whole_max: usize::MAX, bulky: false, trace: None }
}

/// Sends `question` with a generous deadline.
pub(crate) async fn ask(
    transport: &impl Transport,
    question: &str,
) -> Result<WireReply, TransportError> {
    ask_within(transport, question, PATIENCE).await
}

pub(crate) async fn ask_within(
    transport: &impl Transport,
    question: &str,
    within: Duration,
) -> Result<WireReply, TransportError> {
    let exchange = exchange(question, within);
    // As every caller does: the transport bounds the wait for a connection only.
    tokio::time::timeout_at(exchange.deadline.into(), transport.exchange(exchange))
        .await
        .unwrap_or_else(|_| Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, "")))
}

/// Sends `question` as a part of a trace.
pub(crate) async fn ask_in_trace(
    transport: &impl Transport,
    question: &str,
    traceparent: &str,
) -> Result<WireReply, TransportError> {
    let trace = TraceContext::parse(traceparent.as_bytes());
    let trace = Some(Box::new(trace.unwrap_or_else(|| panic!("{traceparent}"))));
    transport.exchange(Exchange { trace, ..exchange(question, PATIENCE) }).await
}

/// Sends `question`; keeps up to `whole_max` bytes of the answer.
pub(crate) async fn ask_for_part(
    transport: &HttpTransport,
    question: &str,
    whole_max: usize,
) -> WireReply {
    let exchange = Exchange { whole_max, ..exchange(question, PATIENCE) };
    transport.exchange(exchange).await.expect("an answer")
}

/// The body of a good answer.
pub(crate) async fn answer(transport: &impl Transport, question: &str) -> String {
    let reply = ask(transport, question).await.expect("an answer");
    String::from_utf8(reply.body.to_vec()).expect("text")
}

/// Kind and certainty of a failure, after checking that it says no secret.
pub(crate) async fn fails(
    transport: &impl Transport,
    question: &str,
) -> (TransportErrorKind, Sent) {
    let error = ask(transport, question).await.expect_err("a failure");
    assert!(!error.to_string().contains("SECRET"), "{error}");
    (error.kind, error.sent)
}

/// Asks in a task of its own.
pub(crate) fn ask_aside(
    transport: &(impl Transport + Clone + 'static),
    question: &str,
) -> tokio::task::JoinHandle<Result<WireReply, TransportError>> {
    let (transport, question) = (transport.clone(), question.to_owned());
    tokio::spawn(async move { ask(&transport, &question).await })
}

/// Asks, in a task of its own, a question whose answer is likely to be long.
pub(crate) fn ask_bulky_aside(
    transport: &(impl Transport + Clone + 'static),
    question: &str,
) -> tokio::task::JoinHandle<Result<WireReply, TransportError>> {
    let transport = transport.clone();
    let exchange = Exchange { bulky: true, ..exchange(question, PATIENCE) };
    tokio::spawn(async move { transport.exchange(exchange).await })
}

/// Lets everything else run until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2_000_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never happened: {what}");
}

/// A request as it arrived over HTTP/1.1.
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Reads one request; `None` when the connection ended instead.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read[..end].to_vec()).expect("text").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
    while read.len() < end + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    assert_eq!(read.len(), end + length, "no pipelining");
    let body = String::from_utf8(read[end..].to_vec()).expect("text");
    Some(Request { head, body })
}

/// An answer of 200 with a length.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), text: impl AsRef<[u8]>) {
    stream.write_all(text.as_ref()).await.expect("written");
    stream.flush().await.expect("flushed");
}

/// Answers each request with its own body until the connection ends.
pub(crate) async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(request) = read_request(&mut stream).await {
        let answer = ok(&request.body);
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Waits until the peer has closed.
pub(crate) async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = [0; 4096];
    while let Ok(1..) = stream.read(&mut rest).await {}
}
