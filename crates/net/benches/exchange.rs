//! What one exchange costs: CPU of the client's thread per exchange, over
//! HTTP/1.1 and over HTTP/2 in plain text; for a small call, a batch of 100 and
//! an answer of 300 KB.
//!
//! The upstream is a small server in another thread, or the one that
//! `UPSTREAM=http://127.0.0.1:PORT` names. Both threads are pinned to a core each
//! where `taskset` is at hand. `ONLY=h2c` and `CASE=large` leave the others out.
//! The numbers are for comparing rounds of one run.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write as _;
use std::sync::{Arc, LazyLock, mpsc};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wellhead_net::{
    ClientSettings, Endpoint, HttpTransport, HttpVersion, Resolver, TlsClient, TransportResources,
    TrustedRoots,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{Exchange, Transport as _};

/// As in the binary: large answers cost what their memory costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exchanges in flight.
const CONCURRENCY: usize = 64;
/// Exchanges of one measurement, of small calls; the other cases make fewer.
const EXCHANGES: usize = 200_000;
/// Each protocol in turn, this often.
const ROUNDS: usize = 5;
const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"0x70a08231000000000000000000000000000000000000000000000000000000000000dead"},"latest"]}"#;
const ITEMS: usize = 100;
/// About a block with its transactions.
const LARGE_BYTES: usize = 300_000;
const LARGE: &[u8] =
    br#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",true]}"#;
const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":"0x0000000000000000000000000000000000000000000000000000000000000001"}"#;

/// What is asked, and how often for one small call.
struct Case {
    name: &'static str,
    body: Bytes,
    one_in: usize,
    answer_bytes_min: usize,
}

fn cases() -> [Case; 3] {
    let batch = [&b"["[..], &[CALL; ITEMS].join(&b","[..]), b"]"].concat();
    let case = |name, body, one_in, answer_bytes_min| Case { name, body, one_in, answer_bytes_min };
    [
        case("small", Bytes::from_static(CALL), 1, 1),
        case("batch", batch.into(), 10, ITEMS * ANSWER.len()),
        case("large", Bytes::from_static(LARGE), 20, LARGE_BYTES),
    ]
}

fn main() {
    let number = |name, otherwise| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
    };
    let (exchanges, rounds) = (number("EXCHANGES", EXCHANGES), number("ROUNDS", ROUNDS));
    let concurrency = number("CONCURRENCY", CONCURRENCY);
    let word = |name| std::env::var(name).unwrap_or_default();
    let (only, only_case) = (word("ONLY"), word("CASE"));
    let url = std::env::var("UPSTREAM").unwrap_or_else(|_| start_upstream());
    pin(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{concurrency} at a time; us of CPU per exchange, exchanges/s");
    for round in 0..rounds {
        for case in cases() {
            if !only_case.is_empty() && only_case != case.name {
                continue;
            }
            let exchanges = exchanges / case.one_in;
            for (name, version) in [("h1", HttpVersion::H1), ("h2c", HttpVersion::H2)] {
                if !only.is_empty() && only != name {
                    continue;
                }
                let measured = measure(&url, version, &case, exchanges, concurrency);
                let (cpu, wall) = runtime.block_on(measured);
                let each = cpu.as_secs_f64() * 1e6 / exchanges as f64;
                let rate = exchanges as f64 / wall.as_secs_f64();
                let case = case.name;
                let _ = writeln!(out, "round {round} {case} {name:4} {each:6.2} us {rate:8.0}/s");
            }
        }
    }
}

async fn measure(
    url: &str,
    version: HttpVersion,
    case: &Case,
    exchanges: usize,
    concurrency: usize,
) -> (Duration, Duration) {
    let mut endpoint = Endpoint::new(SecretUrl::parse(url).expect("a URL"));
    endpoint.version = version;
    let tls = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
    let shared = TransportResources::new(Arc::new(Resolver::new()), Arc::new(tls));
    let transport = HttpTransport::new(&endpoint, ClientSettings::default(), shared, 1);
    let transport = transport.expect("a good endpoint");
    run(&transport, case, exchanges / 10, concurrency).await;
    let (cpu, started) = (cpu_time(), Instant::now());
    run(&transport, case, exchanges, concurrency).await;
    (cpu_time().saturating_sub(cpu), started.elapsed())
}

async fn run(transport: &HttpTransport, case: &Case, exchanges: usize, concurrency: usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency {
        let (transport, body, least) =
            (transport.clone(), case.body.clone(), case.answer_bytes_min);
        tasks.spawn(async move {
            for _ in 0..exchanges / concurrency {
                let deadline = (Instant::now() + Duration::from_secs(30)).into_std();
                let exchange = Exchange {
                    body: body.clone(),
                    deadline,
                    whole_max: 1 << 20,
                    bulky: false,
                    trace: None,
                };
                let reply = transport.exchange(exchange).await.expect("an answer");
                assert!(reply.body.len() >= least && reply.rest.is_none());
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
}

/// CPU time of this thread, in nanoseconds since its start.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux system");
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

/// Keeps this thread on `core`; without `taskset` the numbers are noisier.
fn pin(core: u32) {
    let Ok(me) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(thread) = me.file_name() else { return };
    let mut taskset = std::process::Command::new("taskset");
    taskset.args(["-pc", &core.to_string()]).arg(thread).stdout(std::process::Stdio::null());
    let _ = taskset.status();
}

/// HTTP/1.1 and HTTP/2 on one port, in a thread of its own.
fn start_upstream() -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        pin(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            tell.send(listener.local_addr().expect("bound")).expect("the starter waits");
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let _ = stream.set_nodelay(true);
                tokio::spawn(async move {
                    let builder =
                        hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let service = hyper::service::service_fn(answer);
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    format!("http://{}/", told.recv().expect("the upstream has started"))
}

/// The answers, made once.
fn answer_to(body: &[u8]) -> Bytes {
    static LARGE_ANSWER: LazyLock<Bytes> = LazyLock::new(|| vec![b'0'; LARGE_BYTES].into());
    static BATCH_ANSWER: LazyLock<Bytes> =
        LazyLock::new(|| [&b"["[..], &[ANSWER; ITEMS].join(&b","[..]), b"]"].concat().into());
    match body {
        [b'[', ..] => BATCH_ANSWER.clone(),
        LARGE => LARGE_ANSWER.clone(),
        _ => Bytes::from_static(ANSWER),
    }
}

async fn answer(request: Request<Incoming>) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let Ok(body) = request.into_body().collect().await else {
        return Ok(hyper::Response::new(Full::default()));
    };
    let body = body.to_bytes();
    // A real upstream thinks before it answers: what came together is answered together.
    let mut thought = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut thought, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    Ok(hyper::Response::new(Full::new(answer_to(&body))))
}
