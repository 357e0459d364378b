//! The public load comparison, the same with faults, an outage, a Redis in trouble and a soak.
//!
//! wellhead stands alone on one core with its default settings, before two upstreams
//! that are 200 ms away; k6 and the upstreams share the other core. What is measured
//! is what a client sees. `compare` measures what a call costs.
//!
//! Each part makes claims; the run ends with 1 when one does not hold. See `stages`,
//! `faults`, `outage`, `redis`, `soak` and `subscriptions` for the parts, `upstream` for how far away and how
//! faulty upstreams are, `load`, `load.js` and `volume` for the clients.

#![allow(clippy::print_stdout, reason = "a tool of the command line")]

mod claim;
mod faults;
mod load;
#[path = "../compare/machine.rs"]
mod machine;
mod options;
mod outage;
#[path = "../compare/process.rs"]
mod process;
mod proxy;
mod redis;
mod soak;
mod stages;
mod subscriptions;
mod upstream;
mod volume;

use claim::Claims;
use options::{Options, Part, USAGE};
use serde_json::json;
use upstream::{DELAY, Upstreams};

// One thread, which only waits; the upstreams have another.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        print!("{USAGE}");
        return;
    }
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        print!("{USAGE}");
        std::process::exit(2);
    };
    let upstreams = Upstreams::start(options.seed);
    println!(
        "wellhead with its default settings on one core, memory held by {}; upstreams {} ms away; seed {}",
        proxy::memory_held_by(),
        DELAY.as_millis(),
        options.seed
    );
    let mut claims = Claims::default();
    let mut results = serde_json::Map::new();
    for part in &options.parts {
        let (name, result) = match part {
            Part::Stages => ("stages", stages::run(&upstreams, options.full, &mut claims).await),
            Part::Faults => {
                let Options { full, rate, cases, .. } = &options;
                ("faults", faults::run(&upstreams, *full, *rate, cases, &mut claims).await)
            }
            Part::Outage => ("outage", outage::run(&upstreams, &mut claims).await),
            Part::Redis => ("redis", redis::run(options.seed, options.full, &mut claims).await),
            Part::Soak => {
                let Options { soak, rate, seed, .. } = options;
                ("soak", soak::run(&upstreams, soak, rate, seed, &mut claims).await)
            }
            Part::Subscriptions => {
                let run = subscriptions::run(options.soak, options.seed, &mut claims);
                ("subscriptions", run.await)
            }
        };
        results.insert(name.to_owned(), result);
    }
    let record = || {
        json!({
            "memory_held_by": proxy::memory_held_by(),
            "upstream_delay_ms": DELAY.as_millis() as u64,
            "seed": options.seed,
            "results": results,
        })
    };
    claims.end("scenario", options.keep.then(record));
}
