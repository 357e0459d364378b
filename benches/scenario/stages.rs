//! Stages A to D of the public comparison, with every upstream well.

use std::time::Duration;

use serde_json::{Value, json};

use crate::claim::Claims;
use crate::load::{Load, Seen, Shape};
use crate::proxy::{Log, MEMORY_KIB_MAX, Wellhead};
use crate::upstream::Upstreams;

/// What wellhead may add to the 95th percentile.
const ADDED_MS_MAX: f64 = 10.0;
/// From the start of the process to an answer that takes 0.2 s by itself.
const START_MAX: Duration = Duration::from_secs(1);

struct Stage {
    name: &'static str,
    users: u64,
    /// Ramp and time, in seconds.
    short: (u64, u64),
    full: (u64, u64),
}

/// The last follows the one before at once: does it recover?
const STAGES: [Stage; 4] = [
    Stage { name: "A", users: 2, short: (0, 10), full: (0, 21) },
    Stage { name: "B", users: 20, short: (4, 20), full: (60, 300) },
    Stage { name: "C", users: 200, short: (6, 30), full: (60, 300) },
    Stage { name: "D", users: 20, short: (0, 20), full: (0, 180) },
];

/// All stages before one process.
pub(crate) async fn run(upstreams: &Upstreams, full: bool, claims: &mut Claims) -> Value {
    println!(
        "\nstages: all upstreams are well; times in ms; `upstream` is one called directly meanwhile"
    );
    let wellhead = Wellhead::start(upstreams, Log::Kept).await;
    let start = wellhead.first_answer_after;
    claims.check(start <= START_MAX, format!("start to first answer {} ms", start.as_millis()));
    let mut kept = Vec::new();
    for stage in STAGES {
        let (ramp, time) = if full { stage.full } else { stage.short };
        let (ramp, time) = (Duration::from_secs(ramp), Duration::from_secs(time));
        let shape = Shape::Users { users: stage.users, ramp, time };
        let waited = wellhead.waited_for_core();
        let seen = Load::start(&wellhead, upstreams, shape).finish().await;
        let waited = wellhead.waited_for_core().saturating_sub(waited).as_millis();
        let Seen { proxy, direct, .. } = &seen;
        println!(
            "stage {}, {} users, {} s: {} requests, {:.2} ok/s, {} failed ({:.2} %)",
            stage.name,
            stage.users,
            time.as_secs(),
            proxy.calls(),
            proxy.ok_per_second,
            proxy.failed,
            proxy.failed_percent(),
        );
        for (name, side) in [("wellhead", proxy), ("upstream", direct)] {
            println!("  {name:<9} {}", side.told());
        }
        let (now, peak) = (wellhead.resident_kib() / 1024, wellhead.peak_kib() / 1024);
        println!("  memory    {now} MiB resident, {peak} MiB at most");
        println!("  its core  was another program's for {waited} ms while it had work");
        seen.print_reasons();
        let name = stage.name;
        claims.check(proxy.failed == 0 && proxy.ok > 0, format!("{name}: nothing failed"));
        let added = proxy.p95 - direct.p95;
        claims.check(
            added <= ADDED_MS_MAX,
            format!(
                "{name}: p95 is {added:.1} ms above the upstream's own, of {ADDED_MS_MAX} allowed"
            ),
        );
        kept.push(json!({
            "stage": name, "users": stage.users, "seconds": time.as_secs(),
            "wellhead": proxy.to_json(), "upstream": direct.to_json(),
            "resident_kib": wellhead.resident_kib(), "peak_kib": wellhead.peak_kib(),
            "waited_for_core_ms": waited as u64,
        }));
    }
    let peak = wellhead.peak_kib();
    claims.check(
        peak > 0 && peak <= MEMORY_KIB_MAX,
        format!("{} MiB at most, of 1024 allowed", peak / 1024),
    );
    json!({ "first_answer_ms": start.as_millis() as u64, "stages": kept })
}
