//! Many calls for little: wrk beside k6.
//!
//! k6 looks at each answer and so makes some hundred calls a second on a shared core.
//! What keeps wellhead busy comes from wrk, which looks at the status alone: that tells
//! a failed read, for wellhead answers those with 429, 503 or nothing.

use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{Process, tool};

use crate::proxy::Wellhead;
use crate::upstream::DELAY;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/compare/post.lua");
/// Longer than `timeouts.total`, so that wellhead's own answer is seen.
const TIMEOUT_S: u64 = 40;
const AROUND_MAX: Duration = Duration::from_secs(90);

/// A load under way; dropping it ends it.
pub(crate) struct Volume {
    wrk: Process,
    time: Duration,
    _folder: tempfile::TempDir,
}

/// What came of it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Flood {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) per_second: f64,
}

impl Volume {
    /// As many connections, each with one call after the other, as make this rate while
    /// answers take what an upstream takes.
    pub(crate) fn start(wellhead: &Wellhead, per_second: u64, time: Duration) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a log");
        let connections = (per_second as f64 * DELAY.as_secs_f64()).ceil().max(1.0);
        let address = "0x70a08231000000000000000000000000f39fd6e5";
        let params = json!([address, "latest"]);
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": params });
        let command = format!(
            "-t1 -c{connections} -d{}s --timeout {TIMEOUT_S}s -s {SCRIPT} {} --",
            time.as_secs(),
            wellhead.url()
        );
        let mut words = vec![tool("wrk")];
        words.extend(command.split(' ').map(str::to_owned));
        words.push(body.to_string());
        Self { wrk: Process::start(&words, folder.path().join("log")), time, _folder: folder }
    }

    /// Waits for its end.
    pub(crate) async fn finish(mut self) -> Flood {
        let code = self.wrk.exit_code(self.time + AROUND_MAX).await;
        let log = self.wrk.log();
        assert_eq!(code, Some(0), "wrk did not end well:\n{log}");
        let line = log.lines().find_map(|line| line.strip_prefix("RESULT "));
        let line = line.expect("the script prints a line of results");
        let result: Value = serde_json::from_str(line).expect("which is JSON");
        let count = |name: &str| result[name].as_u64().unwrap_or(0);
        let (requests, failed) = (count("requests"), count("errors"));
        let seconds = count("duration_micros").max(1) as f64 / 1e6;
        Flood { requests, failed, per_second: requests as f64 / seconds }
    }
}
