//! What the cache saves, and what its disk takes: two parts that are no turns of contenders.
//!
//! **replay**: ten thousand calls of wallets, dapps and indexers from one seed, through nginx,
//! through wellhead, and through wellhead with its cache, before one simulated node whose chain
//! stands still. All must give the same answers.
//!
//! **disk**: many answers are put on disk, wellhead is started anew, what the kernel has of the
//! folder in memory is let go, and each answer is asked for once, at a fixed pace. Then all of
//! them once more, from memory, which tells what a hit takes without a disk.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wellhead_sim::traffic::Traffic;
use wellhead_sim::{FakeUpstream, SimNode, World, WorldConfig};

use crate::Bench;
use crate::case::{FINAL, call};
use crate::client::Client;
use crate::closed::Seen;
use crate::config::Setup;
use crate::contender::{Behind, CHAIN_ID, Contender, Kind};
use crate::open::open_each;
use crate::process::cpu_seconds;
use crate::sample::Latency;
use crate::scrape::sum;
use crate::turn::{HITS, wait_for_hits};

const SEED: u64 = 1;
const CALLS: usize = 10_000;
/// Clients of the replay, each with one call at a time.
const CLIENTS: usize = 8;
/// Answers that are put on disk.
const ANSWERS: u32 = 4_000;
const PER_SECOND: u32 = 500;
/// A hit from the disk is to take no more at p99.
const DISK_MICROS_MAX: f64 = 2_000.0;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Replay,
    Disk,
}

impl Kept {
    pub(crate) const ALL: [Self; 2] = [Self::Replay, Self::Disk];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Disk => "disk",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Replay => {
                "10,000 calls of a wallet, a dapp and an indexer, with the cache and without"
            }
            Self::Disk => "500 hits a second from the disk, each for the first time",
        }
    }

    /// Plays it in rounds; gives what is to be kept of it, and how much went wrong.
    pub(crate) async fn run(self, rounds: u32, bench: &Bench<'_>) -> (Value, u64) {
        println!("\n{}: {}", self.name(), self.about());
        match self {
            Self::Replay => replay(rounds, bench).await,
            Self::Disk => disk(rounds, bench).await,
        }
    }
}

/// The kinds of the replay, nginx first.
const REPLAYED: [(&str, Kind, bool); 3] = [
    ("nginx", Kind::Nginx, false),
    ("wellhead", Kind::Wellhead, false),
    ("wellhead, cache", Kind::Wellhead, true),
];

/// What one of them did with the calls.
#[derive(Debug, Default)]
struct Replayed {
    answers: Vec<Vec<u8>>,
    errors: u64,
    /// Of the proxy, per call.
    cpu_micros: f64,
    /// That the node got meanwhile.
    upstream_calls: u64,
    hits: f64,
    joined: f64,
}

async fn replay(rounds: u32, bench: &Bench<'_>) -> (Value, u64) {
    let (node, behind) = start_node();
    let bodies = bodies(&node);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); REPLAYED.len()];
    let (mut kept, mut errors) = (Vec::new(), 0);
    for round in 1..=rounds {
        println!("round {round}");
        let mut all: Vec<Replayed> = Vec::new();
        for (name, kind, keeps) in REPLAYED {
            let setup = Setup { keeps, ..Setup::default() };
            let contender =
                Contender::start(kind, behind, setup, bench.certificate, bench.before).await;
            if keeps {
                wait_for_hits(&contender, &balance(0, FINAL)).await;
            }
            let mut one = through(&contender, &node, &bodies, kind == Kind::Wellhead);
            let differ = all.last().map_or(0, |other| differing(&one, other, keeps));
            one.errors += differ;
            errors += one.errors;
            let bar = all.first().unwrap_or(&one);
            let saved =
                100.0 - one.upstream_calls as f64 * 100.0 / bar.upstream_calls.max(1) as f64;
            println!(
                "  {name:<16} {:6.2} µs CPU a call ({:.2} x), {:6} calls upstream ({saved:.1} % saved), \
                 {} hits, {} joined, {differ} answers differ, {} errors",
                one.cpu_micros,
                one.cpu_micros / bar.cpu_micros,
                one.upstream_calls,
                one.hits,
                one.joined,
                one.errors,
            );
            kept.push(json!({
                "round": round, "contender": name, "cpu_micros": one.cpu_micros,
                "upstream_calls": one.upstream_calls, "hits": one.hits, "joined": one.joined,
                "differ": differ, "errors": one.errors,
            }));
            ratios[all.len()].push(one.cpu_micros / bar.cpu_micros);
            all.push(one);
        }
    }
    for ((name, ..), ratios) in REPLAYED.iter().zip(ratios) {
        println!("  {name:<16} median {:.2} x nginx", median(ratios));
    }
    (json!(kept), errors)
}

/// A simulated node on a thread of its own, which is on the core of the load as we are.
fn start_node() -> (std::sync::Arc<SimNode>, Behind) {
    let world = World::new(WorldConfig {
        chain_id: CHAIN_ID,
        history_blocks: 200,
        safe_distance: 8,
        // Of the last 64 blocks, from which clients take what they ask for, most are final.
        finalized_distance: 16,
        ..WorldConfig::seeded(SEED)
    });
    let node = SimNode::new("node", world);
    let (own, (tell, told)) = (std::sync::Arc::clone(&node), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a process may have a second event loop");
        runtime.block_on(async {
            let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let fake = FakeUpstream::start_on(own, place).expect("the loopback has a port");
            tell.send(fake.addr().port()).expect("there is a receiver");
            std::future::pending::<()>().await;
        });
    });
    let port = told.recv().expect("it listens");
    (node, Behind { pid: std::process::id(), port, ws_port: port })
}

fn bodies(node: &SimNode) -> Vec<String> {
    let traffic = Traffic::new(SEED, node.world().known());
    let bodies = (0..).zip(traffic).take(CALLS).map(|(id, call)| call.body(id));
    bodies.map(|body| String::from_utf8(body).expect("it is JSON")).collect()
}

fn through(contender: &Contender, node: &SimNode, bodies: &[String], tells: bool) -> Replayed {
    let count = |found: &str| match tells {
        true => sum(&contender.metrics, HITS, &[found]).unwrap_or(0.0),
        false => 0.0,
    };
    let (hits, joined) = (count("\"hit\""), count("\"joined\""));
    let (calls, cpu) = (node.calls(), cpu_seconds(contender.pid));
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<(usize, io::Result<Vec<u8>>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(contender.port, 64 * 1024).expect("it listens");
                let mut own = Vec::new();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(body) = bodies.get(place) else { break };
                    own.push((place, client.answer(body)));
                }
                answers.lock().expect("no holder of this lock panics").extend(own);
            });
        }
    });
    let after = cpu_seconds(contender.pid);
    let mut answers = answers.into_inner().expect("no holder of this lock panics");
    answers.sort_by_key(|(place, _)| *place);
    let errors = answers.iter().filter(|(_, answer)| answer.is_err()).count() as u64;
    Replayed {
        errors,
        answers: answers.into_iter().map(|(_, answer)| answer.unwrap_or_default()).collect(),
        cpu_micros: (after.0 + after.1 - cpu.0 - cpu.1) * 1e6 / bodies.len() as f64,
        upstream_calls: node.calls() - calls,
        hits: count("\"hit\"") - hits,
        joined: count("\"joined\"") - joined,
    }
}

/// Answers that are not what the one before gave: to the byte between two wellheads, as JSON
/// where nginx is one of the two, which hands on how the node spaces and orders.
fn differing(one: &Replayed, other: &Replayed, to_the_byte: bool) -> u64 {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let is_same =
        |one: &[u8], other: &[u8]| one == other || !to_the_byte && read(one) == read(other);
    let both = one.answers.iter().zip(&other.answers);
    both.filter(|(one, other)| !is_same(one, other)).count() as u64
}

fn balance(number: u32, block: &str) -> String {
    call(1, "eth_getBalance", &json!([format!("0x{number:040x}"), block])).to_string()
}

async fn disk(rounds: u32, bench: &Bench<'_>) -> (Value, u64) {
    let (mut kept, mut errors) = (Vec::new(), 0);
    let (mut from_disk, mut from_memory) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let folder = tempfile::tempdir().expect("there is room for a cache");
        let place = folder.path().join("cache");
        let setup = Setup { keeps: true, disk: Some(&place), ..Setup::default() };
        let start = || async {
            let behind = Behind::of(bench.upstream);
            let contender =
                Contender::start(Kind::Wellhead, behind, setup, bench.certificate, bench.before)
                    .await;
            // One that is not asked for later.
            wait_for_hits(&contender, &balance(ANSWERS, FINAL)).await;
            contender
        };
        let contender = start().await;
        let mut client = Client::connect(contender.port, 64 * 1024).expect("it listens");
        for number in 0..ANSWERS {
            errors += u64::from(client.answer(&balance(number, FINAL)).is_err());
        }
        contender.end().await;
        let contender = start().await;
        let_go(&place);
        let tier = ["disk", "result=\"hit\""];
        let hits = || sum(&contender.metrics, "wellhead_cache_tier_gets_total", &tier);
        let before = hits().unwrap_or(0.0);
        let first = each_once(contender.port);
        let hits = hits().unwrap_or(0.0) - before;
        let again = each_once(contender.port);
        let missed = u64::from(ANSWERS).saturating_sub(hits as u64);
        errors += first.errors + again.errors + missed;
        let (disk, memory) = (first.latency.unwrap_or_default(), again.latency.unwrap_or_default());
        println!(
            "  round {round}: {hits} of {ANSWERS} from the disk, p50 {:.2} ms, p99 {:.2} ms; then from \
             memory p50 {:.2} ms, p99 {:.2} ms",
            disk.p50_micros / 1e3,
            disk.p99_micros / 1e3,
            memory.p50_micros / 1e3,
            memory.p99_micros / 1e3,
        );
        kept.push(json!({
            "round": round, "hits": hits,
            "disk": json_of(&disk), "memory": json_of(&memory),
        }));
        from_disk.push(disk.p99_micros);
        from_memory.push(memory.p99_micros);
    }
    let (disk, memory) = (median(from_disk), median(from_memory));
    let word = if disk <= DISK_MICROS_MAX { "within" } else { "NOT within" };
    println!(
        "  median: p99 of {:.2} ms from the disk, {word} 2 ms; {:.2} ms from memory",
        disk / 1e3,
        memory / 1e3
    );
    (json!(kept), errors)
}

/// Each answer once.
fn each_once(port: u16) -> Seen {
    let time = Duration::from_secs(1) * ANSWERS / PER_SECOND;
    open_each(port, PER_SECOND, (Duration::ZERO, time), &|client, number| {
        let expected = b"\"result\":";
        let answer = client.answer(&balance(number, FINAL))?;
        let is_whole = answer.windows(expected.len()).any(|part| part == expected);
        if is_whole { Ok(()) } else { Err(io::Error::other("no result")) }
    })
}

/// Lets the kernel forget the files, so that they are read from the device; where `dd` cannot
/// do that, they are read from the kernel's memory.
fn let_go(folder: &Path) {
    let _best_effort = Command::new("sync").status();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let input = format!("if={}", file.path().display());
        let _best_effort =
            Command::new("dd").args([&input, "iflag=nocache", "count=0", "status=none"]).status();
    }
}

fn json_of(latency: &Latency) -> Value {
    json!({
        "p50_micros": latency.p50_micros, "p99_micros": latency.p99_micros,
        "p999_micros": latency.p999_micros,
    })
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    f64::midpoint(numbers[middle], numbers[(numbers.len() - 1) / 2])
}
