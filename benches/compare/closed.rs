//! Loads that ask again when they are answered: wrk, and h2load for HTTP/2.
//!
//! A closed loop hides waiting, so its latencies are told but not compared.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;
use wellhead_e2e::tool;

use crate::client::{Request, run_digits};
use crate::contender::LOAD_CORE;
use crate::sample::Latency;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/compare/post.lua");

/// What the load saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Option<Latency>,
}

/// As many requests as are answered, one at a time on each connection.
pub(crate) fn wrk(
    port: u16,
    tls: bool,
    request: &Request,
    connections: u32,
    turn: Duration,
) -> Seen {
    // Where the number of a call stands, and how those of this run begin.
    let numbered = request.number_at.map(|at| [at.to_string(), run_digits()]);
    let output = Command::new("taskset")
        .args(["-c", LOAD_CORE, &tool("wrk"), "-t1", "--timeout", "30s"])
        .args(["-c", &connections.to_string(), "-d", &format!("{}s", turn.as_secs())])
        .args(["-s", SCRIPT, &url(port, tls), "--", &request.body])
        .args(numbered.iter().flatten())
        .output()
        .expect("taskset is there: scripts/setup looked");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let line = line.unwrap_or_else(|| {
        panic!("wrk printed no result:\n{text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    let seen: Value = serde_json::from_str(line).expect("post.lua prints JSON");
    let number = |name: &str| seen[name].as_u64().expect("post.lua prints this number");
    let requests = number("requests");
    // Answers that are shorter on average than they should be were not answers.
    let short = number("bytes") < requests * request.answer_bytes;
    Seen {
        requests,
        errors: number("errors") + u64::from(short),
        seconds: number("duration_micros") as f64 / 1e6,
        latency: Some(Latency {
            p50_micros: number("p50_micros") as f64,
            p99_micros: number("p99_micros") as f64,
            p999_micros: number("p999_micros") as f64,
        }),
    }
}

/// Runs a closed loop over HTTP/2, with several streams on each connection.
pub(crate) fn h2load(
    port: u16,
    tls: bool,
    request: &Request,
    (connections, streams): (u32, u32),
    turn: Duration,
) -> Seen {
    let body = NamedTempFile::new().expect("there is room for a body");
    std::fs::write(body.path(), &request.body).expect("the file is ours");
    let log = NamedTempFile::new().expect("there is room for a log");
    let output = Command::new("taskset")
        .args(["-c", LOAD_CORE, &tool("h2load"), "-t", "1"])
        .args(["-c", &connections.to_string(), "-m", &streams.to_string()])
        .args(["-D", &turn.as_secs().to_string(), "-H", "content-type: application/json"])
        .arg("-d")
        .arg(body.path())
        .arg("--log-file")
        .arg(log.path())
        .arg(url(port, tls))
        .output()
        .expect("taskset is there: scripts/setup looked");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("requests: "));
    let line = line.unwrap_or_else(|| {
        panic!("h2load printed no result:\n{text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    // `100 total, 108 started, 100 done, 100 succeeded, 0 failed, 0 errored, 0 timeout`.
    let number = |name: &str| {
        let found = line.split(", ").find_map(|part| part.strip_suffix(name));
        found.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    Seen {
        requests: number("succeeded"),
        errors: number("failed") + number("errored") + number("timeout"),
        seconds: turn.as_secs_f64(),
        latency: Some(Latency::of(waits(log.path()))),
    }
}

/// The third word of each line is how long a request took, in microseconds.
fn waits(log: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let micros = text.lines().filter_map(|line| line.split('\t').nth(2)?.parse::<u64>().ok());
    micros.map(|micros| micros * 1000).collect()
}

fn url(port: u16, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}/")
}
