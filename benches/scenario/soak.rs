//! Mixed faults at half of capacity, for as long as asked: does anything grow?
//!
//! Most calls are wrk's; k6 looks closely at some. Capacity is looked for first: the
//! load doubles until calls fail or are late. Where the core of the load is the first to
//! be full, that is said, and the soak runs at half of what the whole arrangement can do.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};
use wellhead_e2e::{mix, until};

use crate::claim::Claims;
use crate::load::{Load, SLOW_MS, Shape};
use crate::process::cpu_seconds;
use crate::proxy::{Log, MEMORY_KIB_MAX, Wellhead};
use crate::upstream::{DELAY, Fault, Upstreams};
use crate::volume::Volume;

/// Calls a second that are tried for capacity.
const LADDER: [u64; 6] = [500, 1000, 2000, 4000, 8000, 16_000];
/// Calls a second that k6 looks at.
const LOOKED_AT: u64 = 100;
const RUNG: Duration = Duration::from_secs(8);
/// An arrangement that adds more to p95 than this is past its capacity.
const ADDED_MS_MAX: f64 = 50.0;
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Lines that are printed: one in so many samples.
const TOLD_EVERY: usize = 6;
/// Connections of clients that left are closed by then.
const SETTLED_MAX: Duration = Duration::from_secs(20);
/// Growth that counts as none: a fifth, and what an allocator keeps.
const GROWTH_KIB: u64 = 10 * 1024;
/// Descriptors that may come and go besides those we can count: a log, a timer.
const DESCRIPTORS_SPARE: usize = 4;

struct Sample {
    at: Duration,
    resident_kib: u64,
    descriptors: usize,
    in_flight: f64,
}

/// One long load before one process.
pub(crate) async fn run(
    upstreams: &Upstreams,
    time: Duration,
    rate: Option<u64>,
    seed: u64,
    claims: &mut Claims,
) -> Value {
    println!("\nsoak: {} minutes of mixed faults, one upstream at a time", time.as_secs() / 60);
    let wellhead = Wellhead::start(upstreams, Log::Dropped).await;
    let bare_descriptors = wellhead.descriptors();
    let rate = match rate {
        Some(rate) => rate,
        None => capacity(&wellhead, upstreams).await / 2,
    };
    let before = settled(&wellhead, bare_descriptors).await;
    let metrics = wellhead.metrics().await;
    let shape = Shape::Rate { per_second: LOOKED_AT, time };
    let load = Load::start(&wellhead, upstreams, shape);
    let volume = Volume::start(&wellhead, rate, time);
    let mut samples = Vec::new();
    let (seen, flood) = tokio::select! {
        both = async { tokio::join!(load.finish(), volume.finish()) } => both,
        () = trouble(upstreams, seed) => unreachable!("trouble has no end of its own"),
        () = watch(&wellhead, &mut samples) => unreachable!("nor has watching it"),
    };
    upstreams.set(Fault::None);
    let after = settled(&wellhead, bare_descriptors).await;
    let grown = wellhead.metrics().await.since(&metrics);
    let proxy = seen.proxy;
    println!(
        "{} reads at {:.0}/s, {} failed; of {} more that were looked at, {} failed, {} could not be made in time",
        flood.requests,
        flood.per_second,
        flood.failed,
        proxy.calls(),
        proxy.failed,
        seen.dropped
    );
    println!("  answered  {}, {} took more than {SLOW_MS} ms", proxy.told(), proxy.slow);
    seen.print_reasons();
    for (id, verdicts) in upstreams.each().map(|(id, _)| {
        let mine = format!("upstream=\"{id}\"");
        (id, grown.by_label("wellhead_attempts_total", &[&mine], "verdict"))
    }) {
        println!("  {id:<9} {verdicts:?}");
    }
    let peak = wellhead.peak_kib();
    println!(
        "  memory    {} KiB at the start, {} at the end, {peak} at most",
        before.resident_kib, after.resident_kib
    );
    println!(
        "  files     {} idle, {} at the end, {} at most seen",
        bare_descriptors,
        after.descriptors,
        samples.iter().map(|one| one.descriptors).max().unwrap_or(0)
    );
    let none = proxy.failed + flood.failed == 0 && proxy.ok > 0 && flood.requests > 0;
    claims.check(none, "soak: no read failed".to_owned());
    let flat = before.resident_kib + before.resident_kib / 5 + GROWTH_KIB;
    claims.check(
        after.resident_kib > 0 && after.resident_kib <= flat,
        format!("soak: memory is flat, {} KiB of {flat} allowed", after.resident_kib),
    );
    claims.check(
        peak <= MEMORY_KIB_MAX,
        format!("soak: {} MiB at most, of 1024 allowed", peak / 1024),
    );
    let allowed = bare_descriptors + after.upstream_connections + DESCRIPTORS_SPARE;
    claims.check(
        after.descriptors > 0 && after.descriptors <= allowed,
        format!("soak: no descriptor leaks, {} of {allowed} allowed", after.descriptors),
    );
    claims.check(
        after.in_flight == 0.0,
        format!("soak: nothing is in flight after the end ({} calls)", after.in_flight),
    );
    json!({
        "minutes": time.as_secs() / 60, "per_second": flood.per_second,
        "reads": flood.requests, "failed": flood.failed, "wellhead": proxy.to_json(),
        "dropped": seen.dropped, "start_kib": before.resident_kib, "end_kib": after.resident_kib,
        "peak_kib": peak, "descriptors_idle": bare_descriptors, "descriptors_end": after.descriptors,
        "samples": samples.iter().map(|one| json!([
            one.at.as_secs(), one.resident_kib, one.descriptors, one.in_flight,
        ])).collect::<Value>(),
    })
}

/// The highest rung of the ladder that holds.
async fn capacity(wellhead: &Wellhead, upstreams: &Upstreams) -> u64 {
    let mut best = LADDER[0];
    for rate in LADDER {
        let before = cpu_seconds(wellhead.pid);
        let shape = Shape::Rate { per_second: LOOKED_AT, time: RUNG };
        let load = Load::start(wellhead, upstreams, shape);
        let volume = Volume::start(wellhead, rate, RUNG);
        let (seen, flood) = tokio::join!(load.finish(), volume.finish());
        let after = cpu_seconds(wellhead.pid);
        let busy = (after.0 + after.1 - before.0 - before.1) / RUNG.as_secs_f64();
        let failed = seen.proxy.failed + flood.failed;
        let holds = failed == 0
            && seen.dropped == 0
            && seen.proxy.p95 <= seen.direct.p95 + ADDED_MS_MAX
            && seen.direct.p95 <= DELAY.as_secs_f64() * 1e3 + ADDED_MS_MAX;
        println!(
            "  {rate}/s wanted: {:.0}/s, {failed} failed, p95 {:.1} ms, upstream {:.1} ms, wellhead busy {:.0} % of its core: {}",
            flood.per_second,
            seen.proxy.p95,
            seen.direct.p95,
            busy * 100.0,
            if holds { "holds" } else { "does not hold" }
        );
        seen.print_reasons();
        if !holds {
            if busy < 0.8 {
                println!("  the core of the load was full before wellhead's");
            }
            break;
        }
        best = rate;
    }
    best
}

/// One upstream at a time is in trouble, for 3 to 8 s; then both are well for 2 to 5.
async fn trouble(upstreams: &Upstreams, seed: u64) {
    const FAULTS: [Fault; 4] =
        [Fault::Killed, Fault::Errors(30), Fault::Limited(20), Fault::Stalls];
    for turn in 0.. {
        let chance = mix(mix(seed) ^ turn);
        sleep(Duration::from_secs(2 + chance % 4)).await;
        let (_, upstream) = upstreams.each()[(chance >> 8) as usize % 2];
        upstream.set(FAULTS[(chance >> 16) as usize % FAULTS.len()]);
        sleep(Duration::from_secs(3 + (chance >> 24) % 6)).await;
        upstream.set(Fault::None);
    }
}

async fn watch(wellhead: &Wellhead, samples: &mut Vec<Sample>) {
    let began = Instant::now();
    let mut due = interval(SAMPLE_EVERY);
    loop {
        due.tick().await;
        let in_flight = wellhead.metrics().await.sum("wellhead_upstream_in_flight", &[]);
        let sample = Sample {
            at: began.elapsed(),
            resident_kib: wellhead.resident_kib(),
            descriptors: wellhead.descriptors(),
            in_flight,
        };
        if samples.len().is_multiple_of(TOLD_EVERY) {
            println!(
                "  {:4} s    {} KiB, {} files, {in_flight} in flight",
                sample.at.as_secs(),
                sample.resident_kib,
                sample.descriptors
            );
        }
        samples.push(sample);
    }
}

struct Settled {
    resident_kib: u64,
    descriptors: usize,
    upstream_connections: usize,
    in_flight: f64,
}

/// A look at it once the connections of clients are closed, or are not in time.
async fn settled(wellhead: &Wellhead, bare_descriptors: usize) -> Settled {
    let look = || async {
        let metrics = wellhead.metrics().await;
        Settled {
            resident_kib: wellhead.resident_kib(),
            descriptors: wellhead.descriptors(),
            upstream_connections: metrics.sum("wellhead_upstream_connections", &[]) as usize,
            in_flight: metrics.sum("wellhead_upstream_in_flight", &[]),
        }
    };
    let quiet = until(SETTLED_MAX, || async {
        let now = look().await;
        let allowed = bare_descriptors + now.upstream_connections + DESCRIPTORS_SPARE;
        (now.descriptors <= allowed && now.in_flight == 0.0).then_some(now)
    });
    match quiet.await {
        Some(quiet) => quiet,
        None => look().await,
    }
}
