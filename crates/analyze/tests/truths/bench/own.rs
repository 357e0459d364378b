//! Servers of HTTP/1.1 that behave as a script says: what the fake provider has no dial for, and a
//! plain backend behind nginx and HAProxy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A request is no larger than that.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// A call, as the server meets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Since the server started.
    pub(crate) at: Duration,
    /// Calls before it.
    pub(crate) calls: u64,
}

/// What a call gets, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptedReply {
    pub(crate) after: Duration,
    pub(crate) form: ReplyForm,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyForm {
    Answer,
    /// A page with this status, and this `Retry-After`, seconds.
    Page(u16, Option<u64>),
    /// Nothing, ever.
    Silence,
}

/// Decides on each call.
pub(crate) type Script = Box<dyn FnMut(Arrival) -> ScriptedReply + Send>;

/// What a server does.
pub(crate) struct OwnBehaviour {
    pub(crate) script: Script,
    /// Connections that are served at once; further ones get 503 for their first call and are closed.
    pub(crate) connections_max: Option<usize>,
}

impl OwnBehaviour {
    pub(crate) fn of(script: Script) -> Self {
        Self { script, connections_max: None }
    }
}

/// A server that listens on the loopback until it is dropped.
pub(crate) struct OwnServer {
    port: u16,
    accepting: JoinHandle<()>,
}

impl OwnServer {
    pub(crate) async fn start(behaviour: OwnBehaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(OwnState {
            begun: Instant::now(),
            connections_max: behaviour.connections_max,
            books: Mutex::new(OwnBooks { script: behaviour.script, calls: 0, connections: 0 }),
        });
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                tokio::spawn(connection(socket, Arc::clone(&state)));
            }
        });
        Self { port, accepting }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct OwnState {
    begun: Instant,
    connections_max: Option<usize>,
    books: Mutex<OwnBooks>,
}

struct OwnBooks {
    script: Script,
    calls: u64,
    connections: usize,
}

async fn connection(mut socket: TcpStream, state: Arc<OwnState>) {
    let is_full = {
        let mut books = state.books.lock().unwrap();
        let is_full = state.connections_max.is_some_and(|max| books.connections >= max);
        books.connections += usize::from(!is_full);
        is_full
    };
    if is_full {
        if read_request(&mut socket, &mut Vec::new()).await.is_some() {
            sleep(Duration::from_millis(1)).await;
            let _ = socket.write_all(page(503, None, "close").as_bytes()).await;
        }
        return;
    }
    let _ = serve(&mut socket, &state).await;
    state.books.lock().unwrap().connections -= 1;
}

async fn serve(socket: &mut TcpStream, state: &OwnState) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let id = read_request(socket, &mut bytes).await?;
        let reply = {
            let mut books = state.books.lock().unwrap();
            let arrival = Arrival { at: state.begun.elapsed(), calls: books.calls };
            books.calls += 1;
            (books.script)(arrival)
        };
        sleep(reply.after).await;
        if matches!(reply.form, ReplyForm::Silence) {
            // Until the client gives up.
            let _ = socket.read(&mut [0; 1]).await;
        }
        let text = match reply.form {
            ReplyForm::Answer => answer(id),
            ReplyForm::Page(status, pause) => page(status, pause, "keep-alive"),
            ReplyForm::Silence => return None,
        };
        socket.write_all(text.as_bytes()).await.ok()?;
    }
}

/// The id of the next call. `None` where the connection ends, or HTTP/2 is spoken.
async fn read_request(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<u64> {
    loop {
        let text = String::from_utf8_lossy(bytes);
        if text.starts_with("PRI ") || bytes.len() > REQUEST_BYTES_MAX {
            return None;
        }
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let id = body.split_once("\"id\":").map_or("1", |(_, rest)| rest);
                let digits: String = id.chars().take_while(char::is_ascii_digit).collect();
                let whole = text.len() - body.len() + length;
                let id = digits.parse().unwrap_or(1);
                bytes.drain(..whole);
                return Some(id);
            }
        }
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn answer(id: u64) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x10"}}"#);
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn page(status: u16, pause: Option<u64>, connection: &str) -> String {
    let body = format!("<html><body><h1>{status}</h1></body></html>");
    let pause = pause.map_or(String::new(), |seconds| format!("retry-after: {seconds}\r\n"));
    let length = body.len();
    format!(
        "HTTP/1.1 {status} No\r\ncontent-type: text/html\r\n{pause}connection: {connection}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

fn seconds(at: f64) -> Duration {
    Duration::from_secs_f64(at.max(0.0))
}

fn served(after: Duration) -> ScriptedReply {
    ScriptedReply { after, form: ReplyForm::Answer }
}

/// How long a call takes that is not refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnLatency {
    pub(crate) base_ms: f64,
    pub(crate) jitter_ms: f64,
}

impl OwnLatency {
    fn draw(self, rng: &mut SmallRng) -> Duration {
        seconds((self.base_ms + self.jitter_ms * rng.random::<f64>()) / 1_000.0)
    }
}

/// Answers after a while, and nothing else.
pub(crate) fn plain(latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |_| served(latency.draw(&mut rng)))
}

/// A token bucket; what is refused takes this form, at once.
pub(crate) fn bucket(
    size: f64,
    per_second: f64,
    form: ReplyForm,
    latency: OwnLatency,
    seed: u64,
) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut tokens, mut last) = (size, 0.0);
    Box::new(move |call| {
        let at = call.at.as_secs_f64();
        tokens = f64::min(size, tokens + (at - last) * per_second);
        last = at;
        if tokens < 1.0 {
            return ScriptedReply { after: seconds(0.001), form };
        }
        tokens -= 1.0;
        served(latency.draw(&mut rng))
    })
}

/// A leaky bucket, as nginx's `limit_req` without `nodelay`: calls wait for their turn, and are refused
/// where `burst` wait.
pub(crate) fn leaky(burst: f64, per_second: f64, latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut excess, mut last) = (0.0, 0.0);
    Box::new(move |call| {
        let at = call.at.as_secs_f64();
        let next = f64::max(0.0, excess - (at - last) * per_second) + 1.0;
        if next > burst + 1.0 {
            return ScriptedReply { after: seconds(0.001), form: ReplyForm::Page(503, None) };
        }
        (excess, last) = (next, at);
        served(seconds((next - 1.0) / per_second) + latency.draw(&mut rng))
    })
}

/// A log of a sliding window in which refused calls count as well: while more are sent than it holds, nothing
/// passes.
pub(crate) fn strict_log(size: usize, window: f64, latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut log: VecDeque<f64> = VecDeque::new();
    Box::new(move |call| {
        let at = call.at.as_secs_f64();
        while log.front().is_some_and(|first| at - first >= window) {
            log.pop_front();
        }
        log.push_back(at);
        if log.len() > size {
            return ScriptedReply { after: seconds(0.001), form: ReplyForm::Page(429, None) };
        }
        served(latency.draw(&mut rng))
    })
}

/// A token bucket of one second that bans for `lasting` seconds a client with `refused_max` refusals in a row.
pub(crate) fn banning(
    per_second: f64,
    refused_max: u32,
    lasting: f64,
    latency: OwnLatency,
    seed: u64,
) -> Script {
    let mut within = bucket(per_second, per_second, ReplyForm::Page(429, None), latency, seed);
    let (mut refused, mut until) = (0, 0.0);
    Box::new(move |call| {
        let at = call.at.as_secs_f64();
        if at < until {
            return ScriptedReply { after: seconds(0.001), form: ReplyForm::Page(403, None) };
        }
        let reply = within(call);
        refused = if matches!(reply.form, ReplyForm::Answer) { 0 } else { refused + 1 };
        if refused >= refused_max {
            (refused, until) = (0, at + lasting);
        }
        reply
    })
}

/// One server with one line, each call of which takes an exponential time: M/M/1 where calls come by chance,
/// D/M/1 where they come evenly.
pub(crate) fn mm1(per_second: f64, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut free_at = 0.0;
    Box::new(move |call| {
        let at = call.at.as_secs_f64();
        let takes = -f64::ln(1.0 - rng.random::<f64>()) / per_second;
        free_at = f64::max(free_at, at) + takes;
        served(seconds(free_at - at))
    })
}

/// This share of the calls fails with 500.
pub(crate) fn failing(share: f64, latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |_| {
        let after = latency.draw(&mut rng);
        let fails = rng.random::<f64>() < share;
        let form = if fails { ReplyForm::Page(500, None) } else { ReplyForm::Answer };
        ScriptedReply { after, form }
    })
}

/// This share of the calls takes so much longer, milliseconds.
pub(crate) fn bimodal(share: f64, more_ms: f64, latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |_| {
        let more = if rng.random::<f64>() < share { more_ms } else { 0.0 };
        served(latency.draw(&mut rng) + seconds(more / 1_000.0))
    })
}

/// The first calls take this many times as long.
pub(crate) fn warming(calls: u64, times: f64, latency: OwnLatency, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |call| {
        let left = 1.0 - (call.calls as f64 / calls as f64).min(1.0);
        served(latency.draw(&mut rng).mul_f64(1.0 + (times - 1.0) * left))
    })
}

/// Takes `from` ms until `at` seconds, and `to` ms afterwards.
pub(crate) fn stepping(at: f64, from_ms: f64, to_ms: f64, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |call| {
        let base_ms = if call.at.as_secs_f64() < at { from_ms } else { to_ms };
        served(OwnLatency { base_ms, jitter_ms: base_ms / 10.0 }.draw(&mut rng))
    })
}

/// Takes `from` ms at first and `to` ms after `lasting` seconds, on a straight line.
pub(crate) fn ramping(lasting: f64, from_ms: f64, to_ms: f64, seed: u64) -> Script {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |call| {
        let share = (call.at.as_secs_f64() / lasting).min(1.0);
        let base_ms = from_ms + share * (to_ms - from_ms);
        served(OwnLatency { base_ms, jitter_ms: base_ms / 10.0 }.draw(&mut rng))
    })
}

/// So many calls, and then refusals with a pause until tomorrow.
pub(crate) fn quota(calls: u64, status: u16, pause: Option<u64>, latency: OwnLatency) -> Script {
    let mut rng = SmallRng::seed_from_u64(calls);
    Box::new(move |call| {
        if call.calls >= calls {
            let form = ReplyForm::Page(status, pause);
            return ScriptedReply { after: seconds(0.001), form };
        }
        served(latency.draw(&mut rng))
    })
}
