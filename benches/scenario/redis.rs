//! A Redis behind the cache that freezes, is slow, dies, loses all and comes back, during load.
//!
//! Three wellheads stand before upstreams that answer at once. Two of them keep answers in
//! one Redis, the third has none: it tells what a call takes without, at the same moment on
//! the same machine. Calls come at a fixed pace, whether or not earlier ones are answered.
//! Each is new to the replica that gets it, so that memory has none; the **neighbour** is asked for it
//! a second before the two others, so that Redis has it when Redis is well.
//!
//! Redis is reached by way of a relay of ours, which can pass everything on late.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep};
use wellhead_e2e::{Relay, RelayMode, Rpc, until};
use wellhead_kit::RedisServer;

use crate::claim::Claims;
use crate::proxy::{Log, Wellhead};
use crate::upstream::Upstreams;

/// Calls a second to each of the three.
const PER_SECOND: u64 = 200;
/// The neighbour is asked so many calls before the others.
const LEAD: u64 = PER_SECOND;
/// What a look into Redis may add, by the settings' default.
const ADDED_MS_MAX: f64 = 2.0;
/// How late everything is when Redis is slow.
const SLOW: Duration = Duration::from_secs(1);
/// From its return until it is asked again; the longest pause between two tries is 10 s.
const BACK_MAX: Duration = Duration::from_secs(30);
const READY_MAX: Duration = Duration::from_secs(30);
/// Times that everything in it is forgotten in one phase.
const FLUSHES: u32 = 3;

/// What becomes of Redis, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
enum Phase {
    Well,
    Frozen,
    Thawed,
    Slow,
    Quick,
    Killed,
    Restarted,
    Flushed,
}

wellhead_word::variants!(Phase);

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Frozen => "frozen",
            Self::Thawed => "thawed",
            Self::Slow => "slow, 1 s",
            Self::Quick => "quick again",
            Self::Killed => "killed",
            Self::Restarted => "restarted",
            Self::Flushed => "flushed",
        }
    }

    /// Whether it is to be used again.
    fn is_return(self) -> bool {
        match self {
            Self::Thawed | Self::Quick | Self::Restarted => true,
            Self::Well | Self::Frozen | Self::Slow | Self::Killed | Self::Flushed => false,
        }
    }
}

/// What one wellhead's clients saw in one phase of one round.
#[derive(Debug, Default, Clone)]
struct Waits {
    millis: Vec<f64>,
    failed: u64,
}

impl Waits {
    fn at(&self, share: f64) -> f64 {
        let mut sorted = self.millis.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (sorted.len() as f64 * share) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

/// What a phase of a round showed.
#[derive(Debug, Default, Clone)]
struct Seen {
    with: Waits,
    without: Waits,
    neighbour: Waits,
    hits: f64,
    /// Looks that Redis answered in time, whether it had the value or not: what it has after a
    /// restart is for the neighbour to write, which may find it back some seconds later.
    looks: f64,
    /// From the return to the first look.
    back_after: Option<Duration>,
}

/// A load that goes on from phase to phase.
struct Load {
    neighbour: Wellhead,
    with: Wellhead,
    without: Wellhead,
    next: Cell<u64>,
    is_over: Cell<bool>,
    seen: RefCell<Seen>,
}

pub(crate) async fn run(seed: u64, full: bool, claims: &mut Claims) -> Value {
    let (rounds, time) = match full {
        true => (7, Duration::from_secs(10)),
        false => (3, Duration::from_secs(6)),
    };
    println!(
        "\nredis: {PER_SECOND} calls a second to each of three wellheads, {rounds} rounds, at \
         least {} s a phase, times in ms",
        time.as_secs()
    );
    let upstreams = Upstreams::start_after(seed, Duration::ZERO);
    let server = RedisServer::start();
    let port = server.port();
    let relay = Relay::before(port).await;
    let mut redis = Some(server);
    let keeps = |more: &str| format!("cache: {{ enabled: true, bytes: 1MiB{more} }}\n");
    let shares = keeps(&format!(", redis: {{ url: \"redis://127.0.0.1:{}\" }}", relay.port()));
    let load = Load {
        neighbour: Wellhead::start_with(&upstreams, Log::Kept, &shares).await,
        with: Wellhead::start_with(&upstreams, Log::Kept, &shares).await,
        without: Wellhead::start_with(&upstreams, Log::Kept, &keeps("")).await,
        next: Cell::new(LEAD),
        is_over: Cell::new(false),
        seen: RefCell::default(),
    };
    let load = Rc::new(load);
    let story = async {
        let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); Phase::ALL.len()];
        load.warm_up().await;
        for round in 1..=rounds {
            println!("round {round}");
            for (place, phase) in Phase::ALL.into_iter().enumerate() {
                let one = play(phase, &load, &relay, port, &mut redis, time).await;
                one.print(phase);
                seen[place].push(one);
            }
        }
        load.is_over.set(true);
        seen
    };
    let seen = LocalSet::new().run_until(async { tokio::join!(story, load.go()).0 }).await;
    println!("median of {rounds} rounds");
    let kept =
        Phase::ALL.into_iter().zip(&seen).map(|(phase, rounds)| judge(phase, rounds, claims));
    kept.collect()
}

/// One phase: what happens to Redis, and then the load for `time` at least.
async fn play(
    phase: Phase,
    load: &Rc<Load>,
    relay: &Relay,
    port: u16,
    redis: &mut Option<RedisServer>,
    time: Duration,
) -> Seen {
    let before = load.with.metrics().await;
    load.seen.take();
    let began = Instant::now();
    let signal = |signal| redis.as_ref().expect("it runs in this phase").signal(signal);
    match phase {
        Phase::Well | Phase::Flushed => {}
        Phase::Frozen => signal("-STOP"),
        Phase::Thawed => signal("-CONT"),
        Phase::Slow => relay.set(RelayMode::Late(SLOW)),
        Phase::Quick => relay.set(RelayMode::Late(Duration::ZERO)),
        Phase::Killed => drop(redis.take()),
        Phase::Restarted => *redis = Some(RedisServer::start_at(port, &[])),
    }
    let mut back_after = None;
    if phase.is_return() {
        let is_up = until(BACK_MAX, || async {
            let up = load.with.metrics().await.sum("wellhead_cache_tier_up", &["redis"]);
            (up > 0.0).then_some(())
        });
        back_after = is_up.await.map(|()| began.elapsed());
    }
    for _ in 0..FLUSHES {
        if phase == Phase::Flushed {
            flush(port).await;
        }
        sleep(time / FLUSHES).await;
    }
    let grown = load.with.metrics().await.since(&before);
    let gets = |result| grown.sum("wellhead_cache_tier_gets_total", &["redis", result]);
    let (hits, misses) = (gets("result=\"hit\""), gets("result=\"miss\""));
    Seen { hits, looks: hits + misses, back_after, ..load.seen.take() }
}

impl Load {
    /// Until all know what is final, so that answers are kept, and Redis is up.
    async fn warm_up(&self) {
        for wellhead in [&self.neighbour, &self.with, &self.without] {
            let stored = until(READY_MAX, || async {
                let metrics = wellhead.metrics().await;
                let is_up = std::ptr::eq(wellhead, &self.without)
                    || metrics.sum("wellhead_cache_tier_up", &["redis"]) > 0.0;
                (is_up && metrics.sum("wellhead_cache_stored_total", &[]) > 0.0).then_some(())
            });
            assert!(stored.await.is_some(), "nothing is kept:\n{}", wellhead.log_of_upstreams());
        }
        // What was asked before that is not in Redis.
        sleep(Duration::from_secs(2 * LEAD / PER_SECOND)).await;
    }

    /// Calls until told to end, then waits for those under way.
    async fn go(self: &Rc<Self>) {
        let rpcs = [&self.neighbour, &self.with, &self.without];
        let rpcs = rpcs.map(|wellhead| Rc::new(Rpc::new(wellhead.port, "/")));
        let mut due = interval(Duration::from_micros(1_000_000 / PER_SECOND));
        let mut calls = JoinSet::new();
        while !self.is_over.get() {
            due.tick().await;
            while calls.try_join_next().is_some() {}
            let next = self.next.replace(self.next.get() + 1);
            // Neither of the two always comes first.
            let order = if next.is_multiple_of(2) { [0, 1, 2] } else { [0, 2, 1] };
            for who in order {
                let number = if who == 0 { next } else { next - LEAD };
                let (load, rpc) = (Rc::clone(self), Rc::clone(&rpcs[who]));
                calls.spawn_local(async move { load.call(&rpc, who, number).await });
            }
        }
        while calls.join_next().await.is_some() {}
    }

    /// A balance that tells which address it was asked for, at a height that is final.
    async fn call(&self, rpc: &Rpc, who: usize, number: u64) {
        let params = json!([format!("0x{number:040x}"), "0x64"]);
        let call =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": params });
        let body = call.to_string();
        let sent = Instant::now();
        let reply = rpc.post(body).await;
        let took = sent.elapsed().as_secs_f64() * 1e3;
        let reply = reply.and_then(|reply| reply.json());
        let mut seen = self.seen.borrow_mut();
        let waits = match who {
            0 => &mut seen.neighbour,
            1 => &mut seen.with,
            _ => &mut seen.without,
        };
        match reply {
            Ok(reply) if reply["result"] == format!("{number:#x}") => waits.millis.push(took),
            Ok(_) | Err(_) => waits.failed += 1,
        }
    }
}

impl Seen {
    fn failed(&self) -> u64 {
        self.with.failed + self.without.failed + self.neighbour.failed
    }

    /// Of the calls, so many were answered from Redis.
    fn share(&self) -> f64 {
        self.hits * 100.0 / self.with.millis.len().max(1) as f64
    }

    fn print(&self, phase: Phase) {
        let Self { with, without, .. } = self;
        print!(
            "  {:<12} p50 {:6.2}, without {:6.2}   p99 {:6.2}, without {:6.2}   {:3.0} % from Redis, {} failed",
            phase.name(),
            with.at(0.5),
            without.at(0.5),
            with.at(0.99),
            without.at(0.99),
            self.share(),
            self.failed(),
        );
        match self.back_after {
            Some(after) => println!(", asked after {:.1} s", after.as_secs_f64()),
            None => println!(),
        }
    }
}

/// The middle of the rounds, and what should hold.
fn judge(phase: Phase, rounds: &[Seen], claims: &mut Claims) -> Value {
    let name = phase.name();
    let of = |pick: &dyn Fn(&Seen) -> f64| median(rounds.iter().map(pick).collect());
    let p50 = of(&|seen| seen.with.at(0.5) - seen.without.at(0.5));
    let p99 = of(&|seen| seen.with.at(0.99) - seen.without.at(0.99));
    let share = of(&Seen::share);
    let failed: u64 = rounds.iter().map(Seen::failed).sum();
    let calls: usize = rounds.iter().map(|seen| seen.with.millis.len()).sum();
    println!(
        "  {name:<12} added p50 {p50:6.2}, p99 {p99:6.2}; {share:.0} % from Redis; {calls} calls"
    );
    claims.check(failed == 0, format!("redis {name}: no call failed ({failed} did)"));
    claims.check(
        p99 <= ADDED_MS_MAX,
        format!("redis {name}: at most {ADDED_MS_MAX} ms are added at p99 ({p99:.2})"),
    );
    if phase.is_return() || phase == Phase::Well {
        let least = rounds.iter().map(|seen| seen.looks).fold(f64::INFINITY, f64::min);
        claims.check(
            least > 0.0,
            format!("redis {name}: it is used ({least} looks in time in the worst round)"),
        );
    }
    let samples: Vec<Value> = rounds.iter().map(Seen::to_json).collect();
    json!({ "phase": name, "added_p50_ms": p50, "added_p99_ms": p99, "rounds": samples })
}

impl Seen {
    fn to_json(&self) -> Value {
        let side = |waits: &Waits| {
            let mut kept = BTreeMap::from([("failed", json!(waits.failed))]);
            kept.insert("calls", json!(waits.millis.len()));
            for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)] {
                kept.insert(name, json!(waits.at(share)));
            }
            json!(kept)
        };
        json!({
            "with": side(&self.with), "without": side(&self.without),
            "neighbour": side(&self.neighbour), "hits": self.hits, "looks": self.looks,
            "back_after_ms": self.back_after.map(|after| after.as_millis() as u64),
        })
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    f64::midpoint(numbers[middle], numbers[(numbers.len() - 1) / 2])
}

async fn flush(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Redis runs");
    stream.write_all(b"FLUSHALL\r\n").await.expect("Redis reads");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.expect("Redis answers");
    assert_eq!(&answer, b"+OK\r\n");
}
