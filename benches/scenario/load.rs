//! One run of k6, and what it saw.
//!
//! Part of the users call the upstreams directly at the same time, so that what the
//! upstreams, the machine and k6 itself need is known under the same load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{Process, tool};

use crate::proxy::Wellhead;
use crate::upstream::Upstreams;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/scenario/load.js");
/// Calls that are under way at the end may take as long as wellhead's total.
const GRACE: Duration = Duration::from_secs(40);
/// k6's own start and summary.
const AROUND_MAX: Duration = Duration::from_secs(60);
/// Of the users, one in so many calls the upstreams directly; at least two.
const DIRECT_SHARE: u64 = 10;
/// A person notices this.
pub(crate) const SLOW_MS: u64 = 1000;
/// Users that k6 may need to keep a rate up; each takes memory.
const USERS_MAX: u64 = 3000;
/// Of those, so many are made before the load begins.
const USERS_AT_FIRST_MAX: u64 = 1500;
const REASONS_MAX: usize = 6;

/// How clients call, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// This many users, each waiting for its answers, that arrive evenly within `ramp`.
    Users { users: u64, ramp: Duration, time: Duration },
    /// So many calls a second, whether or not earlier ones are answered.
    Rate { per_second: u64, time: Duration },
}

/// What one side of a load saw, in milliseconds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) ok_per_second: f64,
    /// Of right answers.
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    /// Right answers that took longer than [`SLOW_MS`].
    pub(crate) slow: u64,
    /// How long the longest failure took to be one.
    pub(crate) failed_max: f64,
}

/// What a load showed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) proxy: Side,
    pub(crate) direct: Side,
    /// Calls that were due and never made, as k6 had no user free for them.
    pub(crate) dropped: u64,
    /// Why calls failed, the most frequent first, each with how often it was told.
    pub(crate) reasons: Vec<(String, u64)>,
}

impl Side {
    pub(crate) fn calls(&self) -> u64 {
        self.ok + self.failed
    }

    pub(crate) fn failed_percent(&self) -> f64 {
        self.failed as f64 * 100.0 / self.calls().max(1) as f64
    }

    /// Percentiles of right answers, in ms.
    pub(crate) fn told(&self) -> String {
        let Self { p50, p95, p99, p999, max, .. } = self;
        format!("p50 {p50:7.1}  p95 {p95:7.1}  p99 {p99:7.1}  p99.9 {p999:7.1}  max {max:7.1}")
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "ok": self.ok, "failed": self.failed, "ok_per_second": self.ok_per_second,
            "p50_ms": self.p50, "p95_ms": self.p95, "p99_ms": self.p99,
            "p999_ms": self.p999, "max_ms": self.max, "slow": self.slow, "failed_max_ms": self.failed_max,
        })
    }
}

impl Shape {
    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Users { users, .. } => json!({ "users": users }),
            Self::Rate { per_second, .. } => json!({ "per_second": per_second }),
        }
    }

    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Users { time, .. } | Self::Rate { time, .. } => time,
        }
    }

    /// k6's scenarios: through wellhead, and beside it.
    fn scenarios(self) -> Value {
        let grace = format!("{}s", GRACE.as_secs());
        let seconds = |time: Duration| format!("{}ms", time.as_millis());
        match self {
            Self::Users { users, ramp, time } => json!({
                "proxy": {
                    "executor": "ramping-vus", "exec": "throughProxy", "gracefulStop": grace,
                    "startVUs": if ramp.is_zero() { users } else { 1 },
                    "stages": [
                        { "duration": seconds(ramp), "target": users },
                        { "duration": seconds(time.saturating_sub(ramp)), "target": users },
                    ],
                },
                "direct": {
                    "executor": "constant-vus", "exec": "straight", "gracefulStop": grace,
                    "vus": (users / DIRECT_SHARE).max(2), "duration": seconds(time),
                },
            }),
            Self::Rate { per_second, time } => {
                let rate = |exec: &str, rate: u64| {
                    json!({
                        "executor": "constant-arrival-rate", "exec": exec, "gracefulStop": grace,
                        "rate": rate, "timeUnit": "1s", "duration": seconds(time),
                        // A call takes 0.2 s, but one that meets silence takes 5 s and more,
                        // and making users under load comes too late.
                        "preAllocatedVUs": (rate * 5).clamp(10, USERS_AT_FIRST_MAX),
                        "maxVUs": (rate * 8).clamp(50, USERS_MAX),
                    })
                };
                json!({
                    "proxy": rate("throughProxy", per_second),
                    "direct": rate("straight", (per_second / DIRECT_SHARE).max(2)),
                })
            }
        }
    }
}

/// A load under way; dropping it ends it.
pub(crate) struct Load {
    k6: Process,
    shape: Shape,
    folder: tempfile::TempDir,
}

impl Load {
    /// Starts it. Both sides stay on the loopback.
    pub(crate) fn start(wellhead: &Wellhead, upstreams: &Upstreams, shape: Shape) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a summary");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let plan = json!({
            "proxy": wellhead.url(),
            "direct": upstreams.bare.url(),
            "scenarios": shape.scenarios(),
            "single": matches!(shape, Shape::Rate { .. }),
            "slow_ms": SLOW_MS,
            "millis": shape.time().as_millis(),
            "out": path("summary.json"),
        });
        let command = [
            tool("k6"),
            "run".into(),
            "--quiet".into(),
            "--no-usage-report".into(),
            "--log-format".into(),
            "raw".into(),
            "--console-output".into(),
            path("console"),
            "--address".into(),
            String::new(),
            "--env".into(),
            format!("PLAN={plan}"),
            SCRIPT.into(),
        ];
        Self { k6: Process::start(&command, folder.path().join("log")), shape, folder }
    }

    /// Waits for its end.
    pub(crate) async fn finish(mut self) -> Seen {
        let bound = self.shape.time() + GRACE + AROUND_MAX;
        let code = self.k6.exit_code(bound).await;
        assert_eq!(code, Some(0), "k6 did not end well:\n{}", self.k6.log());
        let file = self.folder.path().join("summary.json");
        let text = std::fs::read_to_string(file).expect("k6 wrote its summary");
        let metrics: Value = serde_json::from_str(&text).expect("the script writes JSON");
        let console = std::fs::read_to_string(self.folder.path().join("console"));
        Seen {
            proxy: side(&metrics, "proxy", self.shape.time()),
            direct: side(&metrics, "direct", self.shape.time()),
            dropped: number(&metrics, "dropped_iterations", "count") as u64,
            reasons: reasons(&console.unwrap_or_default()),
        }
    }
}

fn side(metrics: &Value, name: &str, time: Duration) -> Side {
    let count = |what: &str| number(metrics, &format!("{name}_{what}"), "count");
    let took = |what: &str| number(metrics, &format!("{name}_took"), what);
    Side {
        ok: count("ok") as u64,
        failed: count("failed") as u64,
        ok_per_second: count("ok_in_time") / time.as_secs_f64(),
        p50: took("med"),
        p95: took("p(95)"),
        p99: took("p(99)"),
        p999: took("p(99.9)"),
        slow: count("slow") as u64,
        max: took("max"),
        failed_max: number(metrics, &format!("{name}_failed_took"), "max"),
    }
}

/// Zero where k6 has nothing to tell.
fn number(metrics: &Value, name: &str, what: &str) -> f64 {
    metrics[name]["values"][what].as_f64().unwrap_or(0.0)
}

/// Groups what was told by its words, whatever the numbers in it.
fn reasons(console: &str) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for line in console.lines() {
        let Ok(told) = serde_json::from_str::<Value>(line) else { continue };
        let text = told["text"].as_str().unwrap_or_default();
        let reason = format!("HTTP {}: {text}", told["status"]);
        let words: String = reason.chars().filter(|one| !one.is_ascii_digit()).collect();
        counts.entry(words).or_insert((reason, 0)).1 += 1;
    }
    let mut told: Vec<_> = counts.into_values().collect();
    told.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    told.truncate(REASONS_MAX);
    told
}

impl Seen {
    /// Why calls failed, when any did.
    pub(crate) fn print_reasons(&self) {
        for (reason, count) in &self.reasons {
            println!("  failed    {count} x {reason}");
        }
    }
}
