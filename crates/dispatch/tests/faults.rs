//! The four faults that people meet, one of two upstreams having one, at default settings:
//! no read fails, and how long the slowest wait is printed and bounded.
//!
//! Time is paused and chance is seeded: each run is the same.

#![allow(clippy::print_stdout, reason = "how long the slowest waited is told as well as checked")]

mod support;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{ScriptedTransport, Stage, Step, dynamic, step};
use tokio::task::JoinSet;
use wellhead_chain::View;
use wellhead_dispatch::{Bounds, Job, Outcome, WorkerUpstreams, now, run};
use wellhead_eth::MethodTable;
use wellhead_kit::Arrival;
use wellhead_route::{PlanRequest, plan};
use wellhead_transport::{Exchange, Sent, Transport, TransportError, TransportErrorKind};
use wellhead_upstream::{Condition, Judge};

/// What is wrong with an upstream from a moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    /// Accepts, and never answers.
    Stalls,
    /// Refuses connections.
    Killed,
    /// Answers 429 with more than so many in flight.
    Limits(usize),
    /// Fails this share with status 500.
    Fails(f64),
}

/// An upstream that takes about `usual` and has its fault in `span`.
fn node(seed: u64, usual: Duration, fault: Fault, span: Range<Instant>) -> Arc<ScriptedTransport> {
    let rng = Mutex::new(SmallRng::seed_from_u64(seed));
    let script = move |arrival: &Arrival| {
        // Three in a hundred take four times as long, as they do in life.
        let (factor, chance) = {
            let mut rng = rng.lock();
            let slow = if rng.random_bool(0.03) { 4.0 } else { 1.0 };
            (slow * rng.random_range(0.8..1.2), rng.random::<f64>())
        };
        match if span.contains(&arrival.at) { fault } else { Fault::Nothing } {
            Fault::Stalls => Step::Hang,
            Fault::Killed => Step::REFUSE,
            Fault::Limits(most) if arrival.in_flight >= most => step("429"),
            Fault::Fails(share) if chance < share => step("500"),
            Fault::Nothing | Fault::Limits(_) | Fault::Fails(_) => {
                step("ok").after(usual.mul_f64(factor))
            }
        }
    };
    Arc::new(ScriptedTransport::new(script))
}

/// What is asked of the two, and for how long.
struct Load {
    usual: Duration,
    /// Calls arrive so often, whatever becomes of those before them.
    every: Duration,
    lasts: Duration,
}

struct World {
    stage: Stage,
    nodes: [Arc<ScriptedTransport>; 2],
    worker: WorkerUpstreams,
}

impl World {
    fn new(load: &Load, fault: Fault, from: Duration, until: Duration) -> Arc<Self> {
        let start = now();
        let node = |seed, fault| node(seed, load.usual, fault, start + from..start + until);
        let nodes = [node(7, fault), node(8, Fault::Nothing)];
        let worker = WorkerUpstreams::new(dynamic(&nodes), 9);
        Arc::new(Self { stage: Stage::new("| "), nodes, worker })
    }

    async fn call(&self) -> Outcome {
        let row = MethodTable::standard().row("eth_call");
        let roster = &self.stage.roster;
        let view = View::unknown(2, None, None);
        let eligible = roster.eligible(row, row.name).expect("served");
        let ask = PlanRequest::of(row, eligible);
        let plan = self.worker.with_rng(|rng| plan(&ask, &view, roster, now(), rng));
        let job = Job::new(row, row.name, now(), now() + Duration::from_secs(30));
        run(&job, &plan, roster, &self.worker, &Bounds::default()).await
    }

    /// Asks the upstreams that rest, as the control loops do.
    async fn probe(&self) {
        let row = MethodTable::standard().row("eth_blockNumber");
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            for (upstream, node) in self.stage.roster.upstreams().iter().zip(&self.nodes) {
                let began = now();
                if upstream.probe_due(began).is_none_or(|due| due > began) {
                    continue;
                }
                let deadline = began + Duration::from_secs(1);
                let exchange = Exchange {
                    body: "".into(),
                    deadline,
                    whole_max: usize::MAX,
                    bulky: false,
                    trace: None,
                };
                let reply = tokio::time::timeout_at(deadline.into(), node.exchange(exchange)).await;
                let verdict = match reply {
                    Ok(Ok(reply)) => Judge::standard().reply(row, &reply),
                    Ok(Err(error)) => Judge::standard().transport(&error),
                    Err(_) => Judge::standard().transport(&TransportError::new(
                        TransportErrorKind::Timeout,
                        Sent::Maybe,
                        "",
                    )),
                };
                upstream.settle(row, &verdict, began, now());
            }
        }
    }
}

/// How a run went.
#[derive(Debug)]
struct Tally {
    calls: usize,
    failed: usize,
    /// Exchanges beyond one a call, in a hundred calls.
    extra: f64,
    p50: Duration,
    p99: Duration,
    max: Duration,
}

async fn play(load: &Load, world: &Arc<World>) -> Tally {
    let prober = {
        let world = Arc::clone(world);
        tokio::spawn(async move { world.probe().await })
    };
    let mut calls = JoinSet::new();
    let mut ticks = tokio::time::interval(load.every);
    let end = now() + load.lasts;
    while now() < end {
        ticks.tick().await;
        let world = Arc::clone(world);
        calls.spawn(async move {
            let began = now();
            let outcome = world.call().await;
            (outcome, now() - began)
        });
    }
    let (mut failed, mut exchanges, mut took) = (0, 0, Vec::new());
    while let Some(ended) = calls.join_next().await {
        let (outcome, time) = ended.expect("no panic");
        failed += usize::from(outcome.result.is_err());
        exchanges += outcome.trail.exchanges();
        took.push(time);
    }
    prober.abort();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Tally {
        calls: took.len(),
        failed,
        extra: (exchanges as f64 / took.len() as f64 - 1.0) * 100.0,
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
    }
}

/// Plays the load with `fault` and checks that no read fails, and the bounds on time.
async fn check(name: &str, load: Load, fault: Fault, span: (u64, u64), p99_ms: u64, max_ms: u64) {
    let ms = Duration::from_millis;
    let world = World::new(&load, fault, Duration::from_secs(span.0), Duration::from_secs(span.1));
    let tally = play(&load, &world).await;
    let faulty = world.nodes[0].count();
    let Tally { calls, extra, p50, p99, max, .. } = tally;
    println!(
        "{name:<30} {calls:>6} calls: p50 {p50:>6.0?}  p99 {p99:>6.0?}  max {max:>6.0?}  \
         {extra:>5.2} % extra, {faulty} to the faulty one"
    );
    assert_eq!(tally.failed, 0, "{name}: {tally:?}");
    assert!(tally.p99 <= ms(p99_ms) && tally.max <= ms(max_ms), "{name}: {tally:?}");
}

fn load(usual_ms: u64, per_second: u32, lasts_s: u64) -> Load {
    Load {
        usual: Duration::from_millis(usual_ms),
        every: Duration::from_secs(1) / per_second,
        lasts: Duration::from_secs(lasts_s),
    }
}

const EVER: u64 = 1_000;

#[tokio::test(start_paused = true)]
async fn nothing_wrong() {
    check("nothing wrong, 40 ms", load(40, 200, 30), Fault::Nothing, (0, EVER), 200, 300).await;
    check("nothing wrong, 200 ms", load(200, 200, 30), Fault::Nothing, (0, EVER), 700, 1_000).await;
}

#[tokio::test(start_paused = true)]
async fn one_stalls() {
    let stalls = Fault::Stalls;
    check("stalls from the start, 40 ms", load(40, 200, 30), stalls, (0, EVER), 320, 900).await;
    check("stalls, 40 ms", load(40, 200, 30), stalls, (5, EVER), 300, 900).await;
    check("stalls, 200 ms", load(200, 200, 30), stalls, (5, EVER), 1_000, 2_500).await;
    check("stalls for ten seconds, 40 ms", load(40, 200, 30), stalls, (5, 15), 300, 900).await;
    check("stalls, few calls", load(40, 2, 120), stalls, (5, EVER), 500, 900).await;
    check("stalls, many calls", load(40, 2_000, 10), stalls, (5, EVER), 300, 900).await;
}

#[tokio::test(start_paused = true)]
async fn one_is_killed() {
    let killed = Fault::Killed;
    check("killed from the start", load(40, 200, 30), killed, (0, EVER), 200, 300).await;
    check("killed and back", load(200, 200, 30), killed, (5, 15), 900, 1_300).await;
}

#[tokio::test(start_paused = true)]
async fn one_limits_us() {
    let limits = Fault::Limits(20);
    check("429 above 20 in flight", load(200, 200, 30), limits, (0, EVER), 900, 1_300).await;
    check("429 above 20 in flight, quick", load(40, 1_000, 20), limits, (0, EVER), 300, 500).await;
}

#[tokio::test(start_paused = true)]
async fn one_fails_often() {
    let fails = Fault::Fails(0.3);
    check("30 % fail", load(200, 200, 30), fails, (0, EVER), 900, 1_300).await;
    check("30 % fail, few calls", load(40, 5, 120), fails, (0, EVER), 300, 600).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_tail_costs_at_most_a_twentieth_more() {
    let quiet = load(200, 200, 60);
    let world = World::new(&quiet, Fault::Nothing, Duration::ZERO, Duration::ZERO);
    let tally = play(&quiet, &world).await;
    println!("extra calls with a slow tail: {tally:?}");
    assert!(tally.extra <= 5.0 + 0.5 + 100.0 * 32.0 / tally.calls as f64, "{tally:?}");
    for upstream in world.stage.roster.upstreams() {
        assert_eq!(upstream.condition(now()), Condition::Ready);
    }
}
