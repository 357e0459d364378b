//! One turn: wrk loads the contender while the kernel counts its CPU time.
//!
//! wrk's closed loop hides waiting, so its latencies are told but not compared.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use wellhead_e2e::tool;

use crate::contender::LOAD_CORE;

const CONNECTIONS: &str = "64";
const WARM_UP: Duration = Duration::from_secs(1);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/compare/post.lua");

/// What one turn showed.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) latency_p50_micros: u64,
    pub(crate) latency_p99_micros: u64,
    pub(crate) resident_kib: u64,
}

impl Sample {
    pub(crate) fn cpu_micros_per_request(&self) -> f64 {
        (self.user_seconds + self.system_seconds) * 1e6 / self.requests.max(1) as f64
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

/// Opens connections and fills caches; nothing is kept of it.
pub(crate) fn warm_up(port: u16) {
    let _unmeasured = wrk(port, WARM_UP);
}

/// Loads the port for this long and counts what the process spends meanwhile.
pub(crate) fn measure(pid: u32, port: u16, turn: Duration) -> Sample {
    let before = cpu_seconds(pid);
    let seen = wrk(port, turn);
    let after = cpu_seconds(pid);
    let number = |name: &str| seen[name].as_u64().expect("post.lua prints this number");
    Sample {
        requests: number("requests"),
        errors: number("errors"),
        seconds: number("duration_micros") as f64 / 1e6,
        user_seconds: after.0 - before.0,
        system_seconds: after.1 - before.1,
        latency_p50_micros: number("p50_micros"),
        latency_p99_micros: number("p99_micros"),
        resident_kib: resident_kib(pid),
    }
}

fn wrk(port: u16, turn: Duration) -> Value {
    let output = Command::new("taskset")
        .args(["-c", LOAD_CORE, &tool("wrk"), "-t1", "-c", CONNECTIONS])
        .args(["-d", &format!("{}s", turn.as_secs()), "-s", SCRIPT])
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .expect("taskset is there: scripts/setup looked");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let line = line.unwrap_or_else(|| {
        panic!("wrk printed no result:\n{text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    serde_json::from_str(line).expect("post.lua prints JSON")
}

/// User and system time so far, of all threads of the process.
fn cpu_seconds(pid: u32) -> (f64, f64) {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    // The program's name may hold anything, so count from its closing bracket:
    // state is field 3, utime 14, stime 15.
    let (_, fields) = text.rsplit_once(')').expect("the name stands in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().expect("a count of ticks");
    let per_second = ticks_per_second();
    (ticks(14) / per_second, ticks(15) / per_second)
}

fn ticks_per_second() -> f64 {
    let output = Command::new("getconf").arg("CLK_TCK").output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.and_then(|text| text.parse().ok()).unwrap_or(100.0)
}

fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
