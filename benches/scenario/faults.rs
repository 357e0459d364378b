//! The load of stage C while one of the two upstreams fails; or, with a rate, so many
//! calls a second that do not wait for each other: users that wait for a slow answer ask less.
//!
//! Each case has a fresh process. What is permanent is there before the first call;
//! what comes over an upstream comes after a quarter of the time and goes after three.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::claim::Claims;
use crate::load::{Load, SLOW_MS, Shape};
use crate::proxy::{Log, Metrics, Wellhead};
use crate::upstream::{Fault, Upstreams};

const USERS: u64 = 200;
/// One attempt by the default settings; the bound on p99 is this and a good answer.
const ATTEMPT_MS: f64 = 5000.0;

struct Case {
    name: &'static str,
    about: &'static str,
    fault: Fault,
    passes: bool,
}

/// What the cases are called on the command line.
pub(crate) const NAMES: [&str; 4] = ["killed", "errors", "limited", "stalls"];

const CASES: [Case; 4] = [
    Case {
        name: NAMES[0],
        about: "north is killed, and returns",
        fault: Fault::Killed,
        passes: true,
    },
    Case {
        name: NAMES[1],
        about: "30 % of north's answers are errors",
        fault: Fault::Errors(30),
        passes: false,
    },
    Case {
        name: NAMES[2],
        about: "north answers 429 above 20 in flight",
        fault: Fault::Limited(20),
        passes: false,
    },
    Case {
        name: NAMES[3],
        about: "north takes calls and does not answer, and returns",
        fault: Fault::Stalls,
        passes: true,
    },
];

/// Every case, one after the other.
pub(crate) async fn run(
    upstreams: &Upstreams,
    full: bool,
    rate: Option<u64>,
    names: &[String],
    claims: &mut Claims,
) -> Value {
    let time = Duration::from_secs(if full { 240 } else { 30 });
    let (who, shape) = match rate {
        Some(per_second) => {
            (format!("{per_second} calls a second"), Shape::Rate { per_second, time })
        }
        None => (format!("{USERS} users"), Shape::Users { users: USERS, ramp: time / 10, time }),
    };
    println!("\nfaults: {who}, times in ms; `upstream` is one that is well, called directly");
    let mut kept = Vec::new();
    let asked = |case: &Case| names.is_empty() || names.iter().any(|name| name == case.name);
    for case in CASES.iter().filter(|case| asked(case)) {
        kept.push(run_case(case, upstreams, shape, claims).await);
    }
    Value::Array(kept)
}

async fn run_case(case: &Case, upstreams: &Upstreams, shape: Shape, claims: &mut Claims) -> Value {
    let time = shape.time();
    let Case { name, about, fault, passes } = *case;
    let wellhead = Wellhead::start(upstreams, Log::Kept).await;
    let north = &upstreams.north;
    if !passes {
        north.set(fault);
    }
    for (_, upstream) in upstreams.each() {
        upstream.take();
    }
    let before = wellhead.metrics().await;
    let load = Load::start(&wellhead, upstreams, shape);
    let story = async {
        if passes {
            sleep(time / 4).await;
            north.set(fault);
            sleep(time / 2).await;
            north.set(Fault::None);
        }
    };
    let (seen, ()) = tokio::join!(load.finish(), story);
    north.set(Fault::None);
    let grown = wellhead.metrics().await.since(&before);
    let (proxy, direct) = (seen.proxy, seen.direct);
    println!(
        "{name}, {about}, {} s: {} reads, {:.2} ok/s, {} failed ({:.2} %)",
        time.as_secs(),
        proxy.calls(),
        proxy.ok_per_second,
        proxy.failed,
        proxy.failed_percent(),
    );
    println!("  answered  {}, {} took more than {SLOW_MS} ms", proxy.told(), proxy.slow);
    println!("  upstream  {}", direct.told());
    if proxy.failed > 0 {
        println!("  failed    after {:.1} at most", proxy.failed_max);
    }
    seen.print_reasons();
    let shares = shares(upstreams, &grown);
    let attempts = grown.sum("wellhead_attempts_total", &[]);
    let calls = grown.sum("wellhead_calls_total", &[]).max(1.0);
    println!("  attempts  {:.3} a call", attempts / calls);
    claims.check(proxy.failed == 0 && proxy.ok > 0, format!("{name}: no read failed"));
    let bound = ATTEMPT_MS + direct.p99;
    claims.check(
        proxy.p99 <= bound,
        format!(
            "{name}: p99 {:.0} ms is at most an attempt and a good answer, {bound:.0} ms",
            proxy.p99
        ),
    );
    if proxy.failed > 0 {
        println!("the end of its log:\n{}", wellhead.log_of_upstreams());
    }
    json!({
        "case": name, "load": shape.to_json(), "seconds": time.as_secs(),
        "wellhead": proxy.to_json(), "upstream": direct.to_json(),
        "attempts_per_call": attempts / calls, "upstreams": shares,
        "resident_kib": wellhead.resident_kib(), "peak_kib": wellhead.peak_kib(),
        "reasons": seen.reasons,
    })
}

/// What each upstream got, by its own count and by wellhead's verdicts.
fn shares(upstreams: &Upstreams, grown: &Metrics) -> Value {
    let all = grown.sum("wellhead_attempts_total", &[]).max(1.0);
    let mut kept = serde_json::Map::new();
    for (id, upstream) in upstreams.each() {
        let seen = upstream.take();
        let mine = format!("upstream=\"{id}\"");
        let verdicts = grown.by_label("wellhead_attempts_total", &[&mine], "verdict");
        let mut own = grown.by_label("wellhead_self_calls_total", &[&mine], "reason");
        own.retain(|_, count| *count > 0.0);
        let share = grown.sum("wellhead_attempts_total", &[&mine]) / all;
        println!(
            "  {id:<9} {:.1} % of attempts: {}; own calls: {}; it answered {}, refused {}, failed {}, left {} unanswered",
            share * 100.0,
            told(&verdicts),
            told(&own),
            seen.answered,
            seen.refused,
            seen.failed,
            seen.stalled,
        );
        kept.insert(
            id.to_owned(),
            json!({
                "share": share, "verdicts": verdicts, "own_calls": own, "requests": seen.requests,
                "answered": seen.answered, "refused": seen.refused, "failed": seen.failed,
                "stalled": seen.stalled,
            }),
        );
    }
    Value::Object(kept)
}

fn told(counts: &std::collections::BTreeMap<String, f64>) -> String {
    let told: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}
