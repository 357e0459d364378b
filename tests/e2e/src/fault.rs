//! A proxy before a node that misbehaves when told to.
//!
//! It speaks HTTP/1.1 only, so it also shows that an upstream without HTTP/2
//! is served. Faults change from one request to the next; connections that are
//! open stay open, as they do when a real provider starts to fail.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::Rpc;
use crate::secrets::look_for_secrets;

/// Bodies of requests that are kept to be looked at.
const BODIES_MAX: usize = 100_000;

/// What the proxy does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing wrong: the node's own answer.
    None,
    /// An HTTP error with a page of text.
    Status(u16),
    /// 429 with `Retry-After` in seconds.
    TooMany(u32),
    /// 200 and a page for people.
    Html,
    /// Half of the answer, with the length of that half.
    Cut,
    /// Half of the answer with the length of the whole, then the connection closes.
    CutShort,
    /// No answer until the fault is another one; then the node's own.
    Hang,
    /// As [`Fault::Hang`], for requests with this text in their body only.
    Hold(&'static str),
    /// The node's own answer after this time, for requests with this text in their body only.
    Slow(&'static str, Duration),
    /// Another chain's id; everything else is the node's answer.
    WrongChain(u64),
    /// The chain as it was this many blocks ago.
    Lagging(u64),
    /// What this makes of the node's answers.
    Rewritten(Rewrite),
}

/// Changes replies by their calls: a lie that is told in the same way each time.
#[derive(Clone)]
pub struct Rewrite(Arc<Change>);

type Change = dyn Fn(&Value, &mut Value) + Send + Sync;

impl Rewrite {
    /// `change` sees each call, and the whole reply to it.
    #[must_use]
    pub fn new(change: impl Fn(&Value, &mut Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }
}

impl std::fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rewrite").finish_non_exhaustive()
    }
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Rewrite {}

/// A running proxy; dropping it ends it.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    node: Rpc,
    fault: watch::Sender<Fault>,
    requests: AtomicUsize,
    held: AtomicUsize,
    /// The bodies of requests, [`BODIES_MAX`] at most.
    bodies: Mutex<Vec<Bytes>>,
}

impl FaultProxy {
    /// Starts one before the node at this port.
    pub async fn start(node_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let shared = Arc::new(Shared {
            node: Rpc::new(node_port, "/"),
            fault: watch::Sender::new(Fault::None),
            requests: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            bodies: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, every request meets this fault.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Requests that have arrived, whatever became of them.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Requests that have arrived with this text in their body, among the first 100,000.
    #[must_use]
    pub fn asked_for(&self, text: &str) -> usize {
        let bodies = self.shared.bodies.lock().expect("no holder of this lock panics");
        bodies.iter().filter(|body| contains(body, text.as_bytes())).count()
    }

    /// Requests that [`Fault::Hang`] or [`Fault::Hold`] has kept waiting so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set ends the connections with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _nodelay = stream.set_nodelay(true);
            let service = service_fn(|request| serve(Arc::clone(&shared), request));
            let server = hyper::server::conn::http1::Builder::new();
            let _closed = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Piece>, Infallible> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let mut faults = shared.fault.subscribe();
    let fault = faults.borrow_and_update().clone();
    let head = format!("{} {:?}", request.uri(), request.headers());
    look_for_secrets("the head of a call to an upstream", head.as_bytes());
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) => return Ok(answer(400, "text/plain", why.to_string().into())),
    };
    look_for_secrets("a call to an upstream", &body);
    shared.note(&body);
    Ok(match fault {
        Fault::None => forward(&shared.node, body).await,
        Fault::Status(status) => {
            answer(status, "text/plain", Bytes::from_static(b"something went wrong"))
        }
        Fault::TooMany(seconds) => {
            let mut response = answer(429, "text/plain", Bytes::from_static(b"slow down"));
            response.headers_mut().insert("retry-after", seconds.into());
            response
        }
        Fault::Html => answer(
            200,
            "text/html",
            Bytes::from_static(b"<!doctype html><html><body>We will be right back.</body></html>"),
        ),
        Fault::Cut => {
            let whole = forward(&shared.node, body).await.into_body().0;
            answer(200, "application/json", whole.slice(..whole.len() / 2))
        }
        Fault::CutShort => cut_short(&forward(&shared.node, body).await.into_body().0),
        Fault::Hold(text) if !contains(&body, text.as_bytes()) => forward(&shared.node, body).await,
        Fault::Slow(text, takes) => {
            if contains(&body, text.as_bytes()) {
                sleep(takes).await;
            }
            forward(&shared.node, body).await
        }
        Fault::Hang | Fault::Hold(_) => {
            shared.held.fetch_add(1, Ordering::Relaxed);
            let _the_proxy_is_gone = faults.changed().await;
            forward(&shared.node, body).await
        }
        Fault::WrongChain(id) => {
            rewritten(&shared.node, &body, |call, reply| match call["method"].as_str() {
                Some("eth_chainId") => reply["result"] = json!(format!("{id:#x}")),
                Some("net_version") => reply["result"] = json!(id.to_string()),
                _ => {}
            })
            .await
        }
        Fault::Lagging(blocks) => lagging(&shared.node, &body, blocks).await,
        Fault::Rewritten(Rewrite(change)) => rewritten(&shared.node, &body, &*change).await,
    })
}

fn cut_short(whole: &Bytes) -> Response<Piece> {
    let mut response = answer(200, "application/json", whole.slice(..whole.len() / 2));
    response.headers_mut().insert("content-length", whole.len().into());
    response.body_mut().1 = End::Broken;
    response
}

impl Shared {
    fn note(&self, body: &Bytes) {
        let mut bodies = self.bodies.lock().expect("no holder of this lock panics");
        if bodies.len() < BODIES_MAX {
            bodies.push(body.clone());
        }
    }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

async fn forward(node: &Rpc, body: Bytes) -> Response<Piece> {
    match node.post(body).await {
        Ok(reply) => answer(reply.status, "application/json", reply.body),
        Err(why) => answer(502, "text/plain", why.into()),
    }
}

/// Forwards one call or a batch, and lets `change` see each reply with its call.
async fn rewritten(
    node: &Rpc,
    body: &[u8],
    mut change: impl FnMut(&Value, &mut Value),
) -> Response<Piece> {
    let Ok(calls) = serde_json::from_slice::<Value>(body) else {
        return answer(400, "text/plain", Bytes::from_static(b"not JSON"));
    };
    let mut response = forward(node, Bytes::copy_from_slice(body)).await;
    let Ok(mut replies) = serde_json::from_slice::<Value>(&response.body().0) else {
        return response;
    };
    match (&calls, &mut replies) {
        (Value::Array(calls), Value::Array(replies)) => {
            for reply in replies {
                if let Some(call) = calls.iter().find(|call| call["id"] == reply["id"]) {
                    change(call, reply);
                }
            }
        }
        (call, reply) => change(call, reply),
    }
    response.body_mut().0 = replies.to_string().into();
    response
}

/// Asks the node about the block that `latest` was, `blocks` ago, and hides what was found in
/// later ones.
async fn lagging(node: &Rpc, body: &[u8], blocks: u64) -> Response<Piece> {
    let head = node.result("eth_blockNumber", json!([])).await.ok();
    let head = head.as_ref().and_then(Value::as_str).and_then(|text| text.strip_prefix("0x"));
    let Some(head) = head.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return answer(502, "text/plain", Bytes::from_static(b"the node has no head"));
    };
    let seen = format!("{:#x}", head.saturating_sub(blocks));
    let text = String::from_utf8_lossy(body);
    let now = format!("\"{seen}\"");
    let asked = text.replace("\"latest\"", &now).replace("\"pending\"", &now);
    rewritten(node, asked.as_bytes(), |call, reply| {
        let found_in = reply["result"]["blockNumber"].as_str();
        let found_in = found_in.and_then(|text| u64::from_str_radix(text.get(2..)?, 16).ok());
        if call["method"] == "eth_blockNumber" {
            reply["result"] = json!(seen);
        } else if found_in.is_some_and(|number| number > head.saturating_sub(blocks)) {
            reply["result"] = Value::Null;
        }
    })
    .await
}

fn answer(status: u16, content_type: &str, body: Bytes) -> Response<Piece> {
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .body(Piece(body, End::Clean))
        .expect("every status and header above is legal")
}

/// A body in one piece, which may break off where it should end.
#[derive(Debug)]
struct Piece(Bytes, End);

#[derive(Debug)]
enum End {
    Clean,
    Broken,
}

impl Body for Piece {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if !self.0.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.0)))));
        }
        match self.1 {
            End::Clean => Poll::Ready(None),
            End::Broken => Poll::Ready(Some(Err(io::Error::other("broken off on purpose")))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.1 {
            End::Clean => SizeHint::with_exact(self.0.len() as u64),
            // The header says more than will come.
            End::Broken => SizeHint::default(),
        }
    }
}
