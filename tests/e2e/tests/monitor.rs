//! `wellhead analyze watch` before a real nginx whose limit is changed by a reload: the profile follows, Prometheus
//! and an OTLP collector are told, and a signal ends it in good order.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wellhead_e2e::{Nginx, NginxLimit, Process, Rpc, Signal, binary, free_port, until};
use wellhead_sim::{FakeUpstream, SimNode, World, WorldConfig};

/// Far more than a study takes (half a minute), for a machine that is busy.
const STUDY_MAX: Duration = Duration::from_secs(300);
const END_MAX: Duration = Duration::from_secs(30);
const PAGE: &str = include_str!("../../../docs/analyze.md");

/// A server of OTLP that takes everything.
struct OtlpSink {
    port: u16,
    received: Arc<Mutex<Vec<u8>>>,
}

impl OtlpSink {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, Arc::clone(&kept)));
            }
        });
        Self { port, received }
    }

    fn has(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap();
        received.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Keeps what comes, and answers each request once its body is whole.
async fn take(mut stream: TcpStream, kept: Arc<Mutex<Vec<u8>>>) {
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await.is_ok_and(|bytes| bytes > 0) {
        let Some(head) = request.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        if request.len() >= head + 4 + length {
            kept.lock().unwrap().append(&mut request);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

/// The rate in the profile.
fn profiled(profile: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(profile).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("calls_per_second: "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_nginx_changes_is_followed() {
    let world = World::new(WorldConfig { history_blocks: 4, ..WorldConfig::default() });
    let node = FakeUpstream::start(SimNode::new("one", world)).unwrap();
    let server = node.addr().port();
    let nginx = Nginx::limiting(server, NginxLimit { per_second: 40, burst: 10 }).await;
    let (folder, sink, port) = (TempDir::new().unwrap(), OtlpSink::start().await, free_port());
    let profile = folder.path().join("profile.yaml");
    let words = format!(
        "analyze watch a=http://127.0.0.1:{} --out {} --profile {} --metrics 127.0.0.1:{port} --otlp \
         http://127.0.0.1:{}/v1/metrics --every 5 --seconds 2 --calls-per-hour 60000 --calls-per-day 1000000",
        nginx.port,
        folder.path().join("watch").display(),
        profile.display(),
        sink.port,
    );
    let words = words.split_whitespace().map(str::to_owned);
    let command: Vec<String> =
        std::iter::once(binary().display().to_string()).chain(words).collect();
    let mut process = Process::start(&command, folder.path().join("log"));

    for (per_second, burst) in [(40, 10), (12, 4)] {
        nginx.limit(server, NginxLimit { per_second, burst });
        let is_it = |found: &f64| (found / f64::from(per_second) - 1.0).abs() < 0.2;
        let followed = || async { profiled(&profile).filter(is_it) };
        if until(STUDY_MAX, followed).await.is_none() {
            panic!("{:?} for {per_second}:\n{}", profiled(&profile), process.log());
        }
    }
    // The figure on either side is what was measured: 39.8 is as right as 40.
    assert!(process.lines_with("a: rate limit changed: ") > 0, "{}", process.log());

    let text = Rpc::new(port, "/").get("/metrics").await.unwrap().text();
    let limit = text.lines().find(|line| {
        line.starts_with("wellhead_watch_rate_limit_calls_per_second{target=\"a\"} 1")
    });
    assert!(limit.is_some(), "{text}");
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = family.split(' ').next().unwrap();
        let is_told = [name.to_owned(), format!("{name}_total")];
        let is_told = is_told.iter().any(|name| PAGE.contains(&format!("`{name}`")));
        assert!(is_told, "{name} is not in docs/analyze.md");
    }

    process.signal(Signal::Term);
    assert_eq!(process.exit_code(END_MAX).await, Some(0), "{}", process.log());
    assert!(sink.has("wellhead_watch_rate_limit_calls_per_second"), "the last export came");
    assert!(sink.has("application/x-protobuf"));
}
