//! The upstream of the attacks: well-behaved until a [`Mode`] says otherwise, and counting.
//!
//! HTTP/1.1 and HTTP/2 are written by hand on one port, so that each byte of a hostile answer is
//! ours. What it answers depends on the call alone, so that a caller can check its own answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant, sleep};

use super::frame::PREFACE;
use super::hostile::Mode;
use super::upstream_http2;
use crate::{empty_block, tail, wall_clock};

/// The chain that it serves.
pub const CHAIN_ID: u64 = 1_009;
/// A good answer to a client's call takes this long, so that calls are under way together.
const ANSWER_AFTER: Duration = Duration::from_millis(20);
const FIRST_HEAD: u64 = 21_000_000;
const BLOCK_TIME: Duration = Duration::from_secs(2);
/// Searches over more blocks are refused, as providers do.
pub const SEARCH_BLOCKS_MAX: u64 = 1_000;
/// Longer heads and bodies are not read.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What long answers are written from.
static FILLER: [u8; 64 * 1024] = [b'a'; 64 * 1024];

/// Calls of the well-behaved caller: no attack makes these.
pub const CALLER_METHODS: [&str; 3] = ["eth_getBalance", "eth_getStorageAt", "eth_estimateGas"];
/// Calls that a proxy makes by itself.
const OWN_METHODS: [&str; 7] = [
    "eth_chainId",
    "eth_blockNumber",
    "eth_getBlockByNumber",
    "eth_syncing",
    "web3_clientVersion",
    "net_peerCount",
    "net_version",
];

/// What the upstream shares with those that watch and steer it.
#[derive(Debug)]
pub struct Shared {
    began: Instant,
    began_unix: Duration,
    mode: Mutex<Mode>,
    connections_open: AtomicU64,
    connections_accepted: AtomicU64,
    attack_calls: AtomicU64,
    caller_calls: AtomicU64,
    smuggled: AtomicU64,
}

/// A running upstream, on a thread of its own; it ends with the process.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its counts and its mode.
    pub shared: Arc<Shared>,
}

impl Upstream {
    /// Starts it, well-behaved.
    ///
    /// # Panics
    /// When the loopback has no port left.
    #[must_use]
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a port");
        listener.set_nonblocking(true).expect("a listener can be asked not to block");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            began: Instant::now(),
            began_unix: wall_clock(),
            mode: Mutex::new(Mode::Well),
            connections_open: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            attack_calls: AtomicU64::new(0),
            caller_calls: AtomicU64::new(0),
            smuggled: AtomicU64::new(0),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a thread can have a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("it does not block");
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    tokio::spawn(connection(stream, Arc::clone(&served)));
                }
            });
        });
        Self { address, shared }
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Shared {
    /// What it does from now on.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no holder of this lock panics") = mode;
    }

    /// What it does now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        *self.mode.lock().expect("no holder of this lock panics")
    }

    /// Connections to it that are open.
    #[must_use]
    pub fn connections_open(&self) -> u64 {
        self.connections_open.load(Ordering::Relaxed)
    }

    /// Calls that attacks caused: neither the caller's nor the proxy's own. Items of batches count.
    #[must_use]
    pub fn attack_calls(&self) -> u64 {
        self.attack_calls.load(Ordering::Relaxed)
    }

    /// Connections to it so far.
    #[must_use]
    pub fn connections_accepted(&self) -> u64 {
        self.connections_accepted.load(Ordering::Relaxed)
    }

    /// Calls of the well-behaved caller.
    #[must_use]
    pub fn caller_calls(&self) -> u64 {
        self.caller_calls.load(Ordering::Relaxed)
    }

    /// Calls of the method that only smuggled requests make.
    #[must_use]
    pub fn smuggled(&self) -> u64 {
        self.smuggled.load(Ordering::Relaxed)
    }

    /// Answers one body; the flag says whether it held a client's call, which takes its time.
    pub(crate) fn answer(&self, body: &[u8]) -> (Body, bool) {
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Array(calls)) => {
                let clients = calls.iter().any(|call| !is_own(call));
                let replies: Vec<String> =
                    calls.iter().map(|call| self.reply(call).text()).collect();
                (Body::Text(format!("[{}]", replies.join(","))), clients)
            }
            Ok(call) => (self.reply(&call), !is_own(&call)),
            Err(why) => (Body::Text(json!({ "error": why.to_string() }).to_string()), false),
        }
    }

    fn count(&self, method: &str) {
        let count = match method {
            method if CALLER_METHODS.contains(&method) => &self.caller_calls,
            method if OWN_METHODS.contains(&method) => return,
            "eth_getUncleCountByBlockNumber" => &self.smuggled,
            _ => &self.attack_calls,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn reply(&self, call: &Value) -> Body {
        let id = &call["id"];
        let method = call["method"].as_str().unwrap_or_default();
        let params = &call["params"];
        self.count(method);
        if self.mode() == Mode::RefuseOneKind && method == "eth_call" {
            let error = json!({ "code": -32005, "message": "rate limit exceeded" });
            return Body::Text(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
        let result = match method {
            "eth_chainId" => json!(format!("{CHAIN_ID:#x}")),
            "net_version" => json!(CHAIN_ID.to_string()),
            "eth_blockNumber" => json!(format!("{:#x}", self.head())),
            "eth_syncing" => json!(false),
            "web3_clientVersion" => json!("Geth/v1.16.5-attacked/linux-amd64/go1.25.1"),
            "eth_getBlockByNumber" => self.block(block_number(&params[0]).unwrap_or(self.head())),
            "eth_getBalance" => json!(tail(params[0].as_str().unwrap_or_default())),
            "eth_getStorageAt" => {
                let address = params[0].as_str().unwrap_or_default();
                json!(format!("0x{:0>64}", address.trim_start_matches("0x")))
            }
            "eth_estimateGas" => json!(tail(params[0]["to"].as_str().unwrap_or_default())),
            "eth_getLogs" => {
                let range = &params[0];
                let ends = block_number(&range["fromBlock"]).zip(block_number(&range["toBlock"]));
                let blocks = ends.map_or(1, |(from, to)| to.saturating_sub(from) + 1);
                if blocks > SEARCH_BLOCKS_MAX {
                    let message = match self.mode() {
                        Mode::MaxBlocks => format!("max {SEARCH_BLOCKS_MAX} blocks"),
                        _ => "query returned more than 10000 results".to_owned(),
                    };
                    let error = json!({ "code": -32005, "message": message });
                    let reply = json!({ "jsonrpc": "2.0", "id": id, "error": error });
                    return Body::Text(reply.to_string());
                }
                json!([])
            }
            // The data of the call is how many bytes are wanted.
            "eth_call" => {
                let data = params[0]["data"].as_str().unwrap_or_default();
                let bytes = usize::from_str_radix(data.trim_start_matches("0x"), 16).unwrap_or(64);
                return Body::Long {
                    start: format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x"#).into_bytes(),
                    bytes: bytes.min(BODY_BYTES_MAX),
                    end: b"\"}",
                };
            }
            _ => json!("0x1"),
        };
        Body::Text(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
    }

    fn head(&self) -> u64 {
        FIRST_HEAD + self.began.elapsed().as_secs() / BLOCK_TIME.as_secs()
    }

    fn block(&self, number: u64) -> Value {
        let passed = number.saturating_sub(FIRST_HEAD) * BLOCK_TIME.as_secs();
        empty_block(number, self.began_unix.as_secs() + passed)
    }
}

fn is_own(call: &Value) -> bool {
    call["method"].as_str().is_some_and(|method| OWN_METHODS.contains(&method))
}

fn block_number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok()
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Text(String),
    /// `start`, so many bytes of filler, `end`; written without being held.
    Long {
        start: Vec<u8>,
        bytes: usize,
        end: &'static [u8],
    },
}

impl Body {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Long { start, bytes, end } => start.len() + bytes + end.len(),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Long { start: mut all, bytes, end } => {
                all.reserve_exact(bytes + end.len());
                all.resize(all.len() + bytes, b'a');
                all.extend_from_slice(end);
                String::from_utf8(all).expect("all of it is ASCII")
            }
        }
    }

    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Self::Text(text) => stream.write_all(text.as_bytes()).await,
            Self::Long { start, bytes, end } => {
                stream.write_all(&start).await?;
                let mut left = bytes;
                while left > 0 {
                    let piece = left.min(FILLER.len());
                    stream.write_all(&FILLER[..piece]).await?;
                    left -= piece;
                }
                stream.write_all(end).await
            }
        }
    }
}

/// Counts a connection while it is open.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connection(mut stream: TcpStream, shared: Arc<Shared>) {
    shared.connections_open.fetch_add(1, Ordering::Relaxed);
    shared.connections_accepted.fetch_add(1, Ordering::Relaxed);
    let _open = Open(Arc::clone(&shared));
    let _best_effort = stream.set_nodelay(true);
    let mut read = Vec::new();
    while read.len() < PREFACE.len() {
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
    }
    if read.starts_with(PREFACE) {
        upstream_http2::serve(stream, read.split_off(PREFACE.len()), shared).await;
    } else {
        http1(stream, read, &shared).await;
    }
}

async fn http1(mut stream: TcpStream, mut read: Vec<u8>, shared: &Arc<Shared>) {
    while let Some((head, body)) = request(&mut stream, &mut read).await {
        let mode = shared.mode();
        let (answer, takes_time) = shared.answer(&body);
        // A proxy's own checks are answered, so that it comes back again and again.
        if takes_time && mode.is_hostile_http1(&body) {
            if !super::hostile::act(mode, &mut stream, &head, answer).await {
                return;
            }
            continue;
        }
        if takes_time {
            sleep(ANSWER_AFTER).await;
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let written = match answer {
            // One segment: a small answer waits for nothing.
            Body::Text(text) => stream.write_all(format!("{head}{text}").as_bytes()).await,
            long => match stream.write_all(head.as_bytes()).await {
                Ok(()) => long.write(&mut stream).await,
                Err(why) => Err(why),
            },
        };
        if written.is_err() {
            return;
        }
    }
}

/// How long a good answer takes.
pub(crate) async fn take_time() {
    sleep(ANSWER_AFTER).await;
}

/// The next request's head and body.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_bytes = loop {
        let end = read.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            break end + 4;
        }
        if read.len() > HEAD_BYTES_MAX || stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&read[..head_bytes]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body_bytes = length.unwrap_or(0).min(BODY_BYTES_MAX);
    while read.len() < head_bytes + body_bytes {
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    let rest = read.split_off(head_bytes + body_bytes);
    let body = read.split_off(head_bytes);
    *read = rest;
    Some((head, body))
}
