//! The well-behaved caller beside an attack: an open loop, on a thread of its own.
//!
//! Calls are due at fixed times and each is measured from when it was due, so that a target that
//! answers late cannot make the caller ask less. Each answer is compared with what the upstream
//! says to this very call.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use crate::tail;

/// Where the caller calls from; attacks have another address.
const CALLER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Calls a second.
pub const RATE: u32 = 40;
/// A call that takes longer has failed.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Connections kept for the next call.
const IDLE_MAX: usize = 16;
/// A body that has to reserve room for itself.
const LARGE_BODY_BYTES: usize = 100_000;
const FAILURES_KEPT: usize = 5;
/// Of an answer that is not the right one.
const FAILURE_CHARS: usize = 160;

/// Where and how to call.
#[derive(Debug, Clone)]
pub struct Line {
    /// The address that is called.
    pub address: SocketAddr,
    /// Trusts the target where it speaks TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// What the caller saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Right answers.
    pub ok: usize,
    /// Everything else.
    pub failed: usize,
    /// The first failures in words.
    pub failures: Vec<String>,
    /// How long right answers took, in order.
    took: Vec<Duration>,
}

impl Seen {
    /// A quantile of right answers in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        let last = self.took.len().saturating_sub(1);
        let index = (last as f64 * quantile).ceil() as usize;
        self.took.get(index).map_or(0.0, |took| took.as_secs_f64() * 1000.0)
    }

    /// The share of calls that were answered, in per cent.
    #[must_use]
    pub fn success_percent(&self) -> f64 {
        self.ok as f64 * 100.0 / (self.ok + self.failed).max(1) as f64
    }
}

/// A caller at work.
#[derive(Debug)]
pub struct Caller {
    stop: watch::Sender<bool>,
    thread: std::thread::JoinHandle<Seen>,
}

impl Caller {
    /// Starts to call, [`RATE`] times a second; `salt` makes its calls differ from those of others.
    #[must_use]
    pub fn start(line: Line, salt: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a thread can have a runtime").block_on(run(line, salt, stopped))
        });
        Self { stop, thread }
    }

    /// Lets the calls under way end, and tells what was seen.
    ///
    /// # Panics
    /// When the caller did.
    #[must_use]
    pub fn finish(self) -> Seen {
        self.stop.send_replace(true);
        self.thread.join().expect("the caller does not panic")
    }
}

#[derive(Debug)]
struct Calls {
    line: Line,
    salt: u64,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

async fn run(line: Line, salt: u64, mut stopped: watch::Receiver<bool>) -> Seen {
    let calls = Arc::new(Calls { line, salt, idle: Mutex::default() });
    let mut due = interval(Duration::from_secs(1) / RATE);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    let mut seen = Seen::default();
    for number in 0.. {
        let at = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            at = due.tick() => at,
        };
        let calls = Arc::clone(&calls);
        running.spawn(async move {
            let result = match timeout(CALL_MAX, calls.call(number)).await {
                Ok(result) => result,
                Err(_) => Err(format!("no answer within {CALL_MAX:?}")),
            };
            result.map(|()| Instant::now() - at).map_err(|why| format!("call {number}: {why}"))
        });
        while let Some(ended) = running.try_join_next() {
            seen.add(ended.unwrap_or_else(|why| Err(why.to_string())));
        }
    }
    while let Some(ended) = running.join_next().await {
        seen.add(ended.unwrap_or_else(|why| Err(why.to_string())));
    }
    seen.took.sort_unstable();
    seen
}

impl Seen {
    fn add(&mut self, result: Result<Duration, String>) {
        match result {
            Ok(took) => {
                self.ok += 1;
                self.took.push(took);
            }
            Err(why) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_KEPT {
                    self.failures.push(why);
                }
            }
        }
    }
}

impl Calls {
    /// Of four calls two go over kept connections, one over a new one, and one has a large body.
    async fn call(&self, number: u64) -> Result<(), String> {
        let address = format!("0x{:040x}", (self.salt << 32) | number);
        let (method, params, expected) = match number % 4 {
            0 | 1 => ("eth_getBalance", json!([address, "latest"]), tail(&address)),
            2 => (
                "eth_getStorageAt",
                json!([address, "0x0", "latest"]),
                format!("0x{:0>64}", &address[2..]),
            ),
            _ => {
                let data = format!("0x{}", "00".repeat(LARGE_BODY_BYTES / 2));
                ("eth_estimateGas", json!([{ "to": address, "data": data }]), tail(&address))
            }
        };
        let call = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
        let reply = self.post(call.to_string(), number % 4 != 1).await?;
        let answer: Value = serde_json::from_slice(&reply.1)
            .map_err(|why| format!("{method}: HTTP {}: {why}", reply.0))?;
        if answer["result"] == json!(expected) && answer["id"] == json!(number) {
            return Ok(());
        }
        let told: String = answer.to_string().chars().take(FAILURE_CHARS).collect();
        Err(format!("{method}: HTTP {}: {told}", reply.0))
    }

    async fn post(&self, body: String, may_be_kept: bool) -> Result<(u16, Bytes), String> {
        let mut kept = None;
        while may_be_kept && kept.is_none() {
            let idle = self.idle.lock().expect("no holder of this lock panics").pop();
            let Some(mut sender) = idle else { break };
            kept = sender.ready().await.is_ok().then_some(sender);
        }
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await.map_err(|why| format!("connect: {why}"))?,
        };
        let host = match self.line.tls {
            Some(_) => "localhost".to_owned(),
            None => self.line.address.to_string(),
        };
        let request = Request::post("/")
            .header("host", host)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|why| why.to_string())?;
        let response = sender.send_request(request).await.map_err(|why| why.to_string())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|why| why.to_string())?.to_bytes();
        let mut idle = self.idle.lock().expect("no holder of this lock panics");
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
        Ok((status, body))
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((CALLER, 0).into())?;
        let stream = socket.connect(self.line.address).await?;
        stream.set_nodelay(true)?;
        match &self.line.tls {
            None => begin(TokioIo::new(stream)).await,
            Some(config) => {
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
                begin(TokioIo::new(stream)).await
            }
        }
    }
}

async fn begin<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _closed = connection.await;
    });
    Ok(sender)
}
