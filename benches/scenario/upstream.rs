//! An upstream that is as far away as a real one, and fails when told to.
//!
//! Good answers take [`DELAY`], which is the work and the way; what says no does so
//! from the provider's edge and takes [`EDGE_DELAY`], so that one which refuses looks
//! fast. HTTP/1.1 and HTTP/2 on one port. A balance is the tail of the address that
//! was asked for, so that a client can tell its own answer from another's.
//!
//! All upstreams of a run share one thread. It knows five methods: this is no node,
//! see the `sim` crate for one.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use wellhead_e2e::{empty_block, free_port, mix, tail, wall_clock};

/// From a call's arrival to its good answer.
pub(crate) const DELAY: Duration = Duration::from_millis(200);
/// From a call's arrival to a refusal or an error.
const EDGE_DELAY: Duration = Duration::from_millis(20);
pub(crate) const CHAIN_ID: u64 = 1;
const FIRST_HEAD: u64 = 21_000_000;
const BLOCK_TIME: Duration = Duration::from_secs(12);
/// Streams on one HTTP/2 connection, as geth allows.
const STREAMS_MAX: u32 = 250;
/// The listener's queue.
const BACKLOG: u32 = 1024;
/// A port that is not free yet is tried again after this.
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// What is wrong with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Connections break, and new ones are refused.
    Killed,
    /// So many percent of the calls fail, in four ways.
    Errors(u64),
    /// HTTP 429 for what comes while so many calls are under way.
    Limited(u64),
    /// Takes calls and never answers them, not even later.
    Stalls,
}

/// Two upstreams with the same blocks, and a third like them that wellhead does not
/// know and that never fails: the measure of what an upstream takes by itself.
pub(crate) struct Upstreams {
    pub(crate) north: Upstream,
    pub(crate) south: Upstream,
    pub(crate) bare: Upstream,
}

/// One of them, seen from the outside.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

/// What one was asked since the last look.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    /// HTTP requests, whatever became of them.
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    /// Never answered.
    pub(crate) stalled: u64,
}

struct Shared {
    fault: watch::Sender<Fault>,
    delay: Duration,
    seed: u64,
    /// Draws of chance so far.
    draws: AtomicU64,
    in_flight: AtomicU64,
    requests: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    stalled: AtomicU64,
    began: Instant,
    began_unix: Duration,
}

impl Upstreams {
    /// Starts them on a thread of their own. Chance follows from `seed`.
    pub(crate) fn start(seed: u64) -> Self {
        Self::start_after(seed, DELAY)
    }

    /// Starts upstreams whose good answers take `delay`.
    pub(crate) fn start_after(seed: u64, delay: Duration) -> Self {
        let (began, began_unix) = (Instant::now(), wall_clock());
        let upstream = |seed: u64| Upstream {
            port: free_port(),
            shared: Arc::new(Shared {
                fault: watch::Sender::new(Fault::None),
                delay,
                seed,
                draws: AtomicU64::new(0),
                in_flight: AtomicU64::new(0),
                requests: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                stalled: AtomicU64::new(0),
                began,
                began_unix,
            }),
        };
        let [north, south, bare] = [0, 1, 2].map(|which| upstream(mix(seed ^ which)));
        let places = [&north, &south, &bare].map(|one| (one.port, Arc::clone(&one.shared)));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a process may have a second event loop");
            let [north, south, bare] = places.map(open_and_close);
            runtime.block_on(async { tokio::join!(north, south, bare) });
        });
        Self { north, south, bare }
    }

    /// Those that wellhead has, by the ids that it has them under.
    pub(crate) fn each(&self) -> [(&'static str, &Upstream); 2] {
        [("north", &self.north), ("south", &self.south)]
    }

    /// Both are well, or both have the same fault.
    pub(crate) fn set(&self, fault: Fault) {
        self.north.set(fault);
        self.south.set(fault);
    }
}

impl Upstream {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on, every call meets this fault.
    pub(crate) fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// The counts, leaving zeros behind.
    pub(crate) fn take(&self) -> Seen {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let Shared { requests, answered, refused, failed, stalled, .. } = &*self.shared;
        Seen {
            requests: take(requests),
            answered: take(answered),
            refused: take(refused),
            failed: take(failed),
            stalled: take(stalled),
        }
    }
}

/// Listens unless killed, for as long as the process lives.
async fn open_and_close((port, shared): (u16, Arc<Shared>)) {
    let mut fault = shared.fault.subscribe();
    loop {
        let well = fault.wait_for(|fault| *fault != Fault::Killed).await.is_ok();
        assert!(well, "the sender lives in what we hold");
        let Ok(listener) = listen(port) else {
            sleep(BIND_PAUSE).await;
            continue;
        };
        tokio::select! {
            _ = fault.wait_for(|fault| *fault == Fault::Killed) => {}
            () = accept(&listener, &shared) => {}
        }
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(BACKLOG)
}

/// Dropping this breaks its connections.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(shared);
        connections.spawn(async move {
            let _nodelay = stream.set_nodelay(true);
            let service = service_fn(move |request| serve(Arc::clone(&shared), request));
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http2().max_concurrent_streams(STREAMS_MAX);
            let _closed = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Page = Response<Full<Bytes>>;

/// An error breaks the connection.
async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Page, hyper::Error> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let body = request.into_body().collect().await?.to_bytes();
    let fault = *shared.fault.borrow();
    match fault {
        Fault::None | Fault::Killed => {}
        Fault::Errors(percent) => {
            let chance = mix(shared.seed ^ shared.draws.fetch_add(1, Ordering::Relaxed));
            if chance % 100 < percent {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                sleep(EDGE_DELAY).await;
                return Ok(failure(chance / 100, &body));
            }
        }
        Fault::Limited(most) if shared.in_flight.load(Ordering::Relaxed) >= most => {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            sleep(EDGE_DELAY).await;
            return Ok(page(429, "text/plain", "Too Many Requests\n".into()));
        }
        Fault::Limited(_) => {}
        Fault::Stalls => {
            shared.stalled.fetch_add(1, Ordering::Relaxed);
            // Ends with the connection, or when the caller cancels it.
            let Err(never) = pending::<Result<Page, Infallible>>().await else {
                return Ok(page(500, "text/plain", String::new()));
            };
            match never {}
        }
    }
    let _under_way = UnderWay::new(&shared.in_flight);
    if !shared.delay.is_zero() {
        sleep(shared.delay).await;
    }
    shared.answered.fetch_add(1, Ordering::Relaxed);
    Ok(match serde_json::from_slice::<Value>(&body) {
        Ok(Value::Array(calls)) => {
            let replies = calls.iter().map(|call| shared.reply(call)).collect();
            page(200, "application/json", Value::Array(replies).to_string())
        }
        Ok(call) => page(200, "application/json", shared.reply(&call).to_string()),
        Err(why) => page(400, "text/plain", why.to_string()),
    })
}

/// Counts a call while it is worked on, however that ends.
struct UnderWay<'a>(&'a AtomicU64);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn reply(&self, call: &Value) -> Value {
        let result = match call["method"].as_str().unwrap_or_default() {
            "eth_chainId" => json!(format!("{CHAIN_ID:#x}")),
            "eth_blockNumber" => json!(format!("{:#x}", self.head())),
            "eth_syncing" => json!(false),
            "web3_clientVersion" => json!("Geth/v1.16.5-canned/linux-amd64/go1.25.1"),
            "eth_getBalance" => json!(tail(call["params"][0].as_str().unwrap_or_default())),
            "eth_getBlockByNumber" if call["params"][0] == "0x1" => self.block(1),
            "eth_getBlockByNumber" => self.block(self.head()),
            method => {
                let message = format!("the method {method} does not exist/is not available");
                let error = json!({ "code": -32601, "message": message });
                return json!({ "jsonrpc": "2.0", "id": call["id"], "error": error });
            }
        };
        json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })
    }

    fn head(&self) -> u64 {
        FIRST_HEAD + self.began.elapsed().as_secs() / BLOCK_TIME.as_secs()
    }

    /// A block without its transactions. Of a height, only the first is told; whatever else was
    /// asked for, it is the newest one.
    fn block(&self, number: u64) -> Value {
        let passed = number.saturating_sub(FIRST_HEAD) * BLOCK_TIME.as_secs();
        empty_block(number, self.began_unix.as_secs() + passed)
    }
}

/// One of the ways in which providers fail.
fn failure(chance: u64, body: &[u8]) -> Page {
    match chance % 4 {
        0 => page(500, "text/plain", "Internal Server Error\n".into()),
        1 => page(502, "text/html", "<html><body>502 Bad Gateway</body></html>".into()),
        2 => {
            let call: Value = serde_json::from_slice(body).unwrap_or_default();
            let error = json!({ "code": -32603, "message": "Internal error" });
            let reply = json!({ "jsonrpc": "2.0", "id": call["id"], "error": error });
            page(200, "application/json", reply.to_string())
        }
        _ => page(200, "application/json", r#"{"jsonrpc":"2.0","id":1,"resu"#.into()),
    }
}

fn page(status: u16, kind: &str, body: String) -> Page {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(body.into()))
        .expect("every status and header above is legal")
}
