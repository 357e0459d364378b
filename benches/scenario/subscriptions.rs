//! Subscribers for as long as asked, while upstreams fail and blocks are replaced: is anything missed, told
//! twice or kept, and does anything grow?
//!
//! The upstreams are the demo's: three simulated nodes of one chain with a block every two seconds, each in
//! trouble for some seconds of every 90, with reorgs. **Steady** clients subscribe to heads and logs and
//! stay; what they were told must add up to the chain at the end. Others come and go, stop reading, or storm.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep, timeout};
use wellhead_e2e::{WsClient, mix, until, wall_clock};
use wellhead_sim::fleet::Fleet;

use crate::claim::Claims;
use crate::proxy::{Log, Wellhead};

/// Clients that stay.
const STEADY: usize = 50;
/// Clients that come, are told some blocks and leave, half of them without a word.
const RESTLESS: u64 = 20;
/// Clients that subscribe, do not read for [`STALL`] and are gone.
const STALLING: u64 = 10;
const STALL: Duration = Duration::from_secs(90);
/// So many come at once, twice in [`STORM_EVERY`], and leave after [`STORM`].
const STORMING: usize = 100;
const STORM_EVERY: Duration = Duration::from_secs(60);
const STORM: Duration = Duration::from_secs(5);
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// One sample of this many is printed.
const TOLD_EVERY: usize = 6;
/// The newest blocks are not compared: they may be replaced or under way.
const UNSETTLED: u64 = 8;
/// A block is heard within this: the chain's reorgs and the worst weather.
const SILENT_MAX: Duration = Duration::from_secs(60);
const SETTLED_MAX: Duration = Duration::from_secs(90);
/// Growth beside the cache that counts as none over the second half, when the journal has its 1,024 events: a
/// fifth, and what an allocator keeps.
const GROWTH_KIB: u64 = 10 * 1024;
const DESCRIPTORS_SPARE: usize = 8;

/// What was compared with the chain.
#[derive(Default)]
struct Compared {
    blocks: usize,
    logs: usize,
}

/// What one steady client was told.
#[derive(Default)]
struct Told {
    /// The chain as it was told, by height.
    chain: BTreeMap<u64, String>,
    /// By block, the indexes of the logs that were told and not taken back.
    logs: HashMap<String, BTreeSet<u64>>,
    heads: usize,
    problems: Vec<String>,
}

impl Told {
    fn note(&mut self, result: &Value) {
        match result.get("logIndex") {
            Some(_) => self.note_log(result),
            None => self.note_head(result),
        }
    }

    fn note_head(&mut self, head: &Value) {
        let (hash, parent) = (text(head, "hash"), text(head, "parentHash"));
        let number = quantity(head, "number");
        let is_linked = number
            .checked_sub(1)
            .and_then(|below| self.chain.get(&below))
            .is_none_or(|below| *below == parent)
            && (self.heads == 0 || self.chain.contains_key(&(number - 1)));
        if !is_linked {
            self.problems.push(format!("head {number} does not follow"));
        }
        if self.chain.get(&number) == Some(&hash) {
            self.problems.push(format!("head {number} was told twice"));
        }
        self.chain.split_off(&number);
        self.chain.insert(number, hash);
        self.heads += 1;
    }

    fn note_log(&mut self, log: &Value) {
        let (block, index) = (text(log, "blockHash"), quantity(log, "logIndex"));
        let of_block = self.logs.entry(block).or_default();
        let (is_new, word) = match log["removed"] == true {
            false => (of_block.insert(index), "told twice"),
            true => (of_block.remove(&index), "taken back, and was not told"),
        };
        if !is_new {
            let number = quantity(log, "blockNumber");
            self.problems.push(format!("log {index} of block {number} was {word}"));
        }
    }

    /// Compares what was told with the chain, up to the newest settled block.
    fn compare(&mut self, fleet: &Fleet, compared: &mut Compared) {
        let (Some((first, _)), Some((last, _))) =
            (self.chain.first_key_value(), self.chain.last_key_value())
        else {
            self.problems.push("no head was told".to_owned());
            return;
        };
        let settled = *first + 1..last.saturating_sub(UNSETTLED);
        for number in settled {
            let block = fleet.world().chain().canonical(number).cloned();
            let Some(block) = block else { break };
            let hash = format!("{:#x}", block.hash);
            if self.chain.get(&number) != Some(&hash) {
                self.problems.push(format!("block {number} is another one"));
            }
            let params = json!([{ "blockHash": hash }]);
            let logs = fleet.upstreams()[0].node().ask("eth_getLogs", Some(&params));
            let logs = logs.unwrap_or_default();
            let indexes = logs.as_array().into_iter().flatten();
            let expected: BTreeSet<u64> = indexes.map(|log| quantity(log, "logIndex")).collect();
            let found = self.logs.remove(&hash).unwrap_or_default();
            if found != expected {
                let missing = expected.difference(&found).count();
                self.problems.push(format!("block {number}: {missing} logs are missing"));
            }
            compared.blocks += 1;
            compared.logs += expected.len();
        }
        let newest: BTreeSet<&String> = self.chain.values().collect();
        let left =
            self.logs.iter().filter(|(block, logs)| !logs.is_empty() && !newest.contains(block));
        for (block, logs) in left {
            self.problems.push(format!("{} logs of {block} were not taken back", logs.len()));
        }
    }
}

fn text(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or_default().to_owned()
}

fn quantity(object: &Value, name: &str) -> u64 {
    let digits = object[name].as_str().unwrap_or_default();
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap_or(u64::MAX)
}

struct Sample {
    at: Duration,
    resident_kib: u64,
    /// Of these, answers that the cache keeps up to a bound of its own.
    cached_kib: u64,
    descriptors: usize,
    connections: f64,
}

/// Plays the subscribers of one process for `time`, and compares what they were told with the chain.
pub(crate) async fn run(time: Duration, seed: u64, claims: &mut Claims) -> Value {
    let local = LocalSet::new();
    local.run_until(play(time, seed, claims)).await
}

async fn play(time: Duration, seed: u64, claims: &mut Claims) -> Value {
    println!(
        "\nsubscriptions: {} minutes; {STEADY} clients stay, {RESTLESS} come and go, {STALLING} stop reading, {STORMING} storm",
        time.as_secs() / 60
    );
    let fleet = Fleet::start(2026, wall_clock()).expect("ports are free");
    let chain_id = fleet.world().config().chain_id;
    let upstreams: Vec<_> = fleet
        .upstreams()
        .iter()
        .map(|it| {
            let (id, url, ws) = (it.node().id(), it.url(), it.ws_url());
            format!("{{ id: {id}, url: \"{url}\", ws: \"{ws}\" }}")
        })
        .collect();
    let wellhead = Wellhead::start_before(chain_id, &upstreams, Log::Dropped, "").await;
    let bare_descriptors = wellhead.descriptors();
    let port = wellhead.port;

    let mut steady = JoinSet::new();
    for _ in 0..STEADY {
        steady.spawn_local(listen(port, time));
    }
    let left = Rc::new(RefCell::new(BTreeMap::<String, u64>::new()));
    let mut others = JoinSet::new();
    for number in 0..RESTLESS {
        others.spawn_local(come_and_go(port, mix(seed ^ number), Rc::clone(&left)));
    }
    for _ in 0..STALLING {
        others.spawn_local(stall(port, Rc::clone(&left)));
    }
    others.spawn_local(storm(port, Rc::clone(&left)));
    let mut samples = Vec::new();
    let told = tokio::select! {
        told = steady.join_all() => told,
        () = watch(&wellhead, &mut samples) => unreachable!("watching has no end of its own"),
        _ = others.join_next() => unreachable!("the others do not end"),
    };
    others.shutdown().await;

    let (mut compared, mut heads, mut problems) = (Compared::default(), 0, Vec::new());
    for mut told in told {
        told.compare(&fleet, &mut compared);
        heads += told.heads;
        problems.append(&mut told.problems);
    }
    let ended = left.borrow().clone();
    let Compared { blocks, logs } = compared;
    println!(
        "  {heads} heads told to those that stayed; {blocks} blocks with {logs} logs compared"
    );
    println!("  how others left: {ended:?}");
    problems.iter().take(10).for_each(|problem| println!("  {problem}"));
    let quiet = until(SETTLED_MAX, || async {
        let metrics = wellhead.metrics().await;
        let open =
            metrics.sum("wellhead_feed_open", &[]) + metrics.sum("wellhead_relays_open", &[]);
        let subscribed = metrics.sum("wellhead_subscriptions", &[]);
        (open == 0.0 && subscribed == 0.0).then_some(())
    });
    let is_quiet = quiet.await.is_some();
    let upstream_connections =
        wellhead.metrics().await.sum("wellhead_upstream_connections", &[]) as usize;
    let half = samples.iter().find(|sample| sample.at >= time / 2);
    let beside_cache = |sample: &Sample| sample.resident_kib.saturating_sub(sample.cached_kib);
    let half_kib = half.map_or(0, beside_cache);
    let end_kib = samples.last().map_or(0, beside_cache);
    let (resident_kib, descriptors) = (wellhead.resident_kib(), wellhead.descriptors());
    println!(
        "  memory    {half_kib} KiB beside the cache after half the time, {end_kib} at the end; {resident_kib} in all after it, {} at most",
        wellhead.peak_kib()
    );
    println!("  files     {bare_descriptors} idle, {descriptors} at the end");
    claims.check(
        problems.is_empty() && blocks > 0 && logs > 0,
        format!("subscriptions: {} gaps, doubles or logs not taken back", problems.len()),
    );
    let flat = half_kib + half_kib / 5 + GROWTH_KIB;
    claims.check(
        end_kib > 0 && end_kib <= flat,
        format!("subscriptions: memory is flat, {end_kib} KiB of {flat} allowed"),
    );
    let allowed = bare_descriptors + upstream_connections + DESCRIPTORS_SPARE;
    claims.check(
        descriptors > 0 && descriptors <= allowed,
        format!("subscriptions: no descriptor leaks, {descriptors} of {allowed} allowed"),
    );
    claims.check(is_quiet, "subscriptions: no upstream pushes after the last client".to_owned());
    json!({
        "minutes": time.as_secs() / 60, "steady": STEADY, "heads": heads, "blocks": blocks, "logs": logs,
        "problems": problems.len(), "left": ended, "half_kib": half_kib, "end_kib": end_kib,
        "after_kib": resident_kib, "peak_kib": wellhead.peak_kib(),
        "descriptors_idle": bare_descriptors, "descriptors_end": descriptors,
        "samples": samples.iter().map(|one| json!([
            one.at.as_secs(), one.resident_kib, one.cached_kib, one.descriptors, one.connections,
        ])).collect::<Value>(),
    })
}

async fn subscribed(port: u16) -> WsClient {
    let mut client = WsClient::connect(port).await;
    client.subscribe(json!(["newHeads"])).await;
    client.subscribe(json!(["logs"])).await;
    client
}

/// Stays for `time`, and notes each notification.
async fn listen(port: u16, time: Duration) -> Told {
    let (mut told, ends_at) = (Told::default(), Instant::now() + time);
    let mut client = subscribed(port).await;
    while Instant::now() < ends_at {
        match timeout(SILENT_MAX, client.told_or_closed()).await {
            Ok(Ok(notification)) => told.note(&notification["result"]),
            Ok(Err(code)) => {
                told.problems.push(format!("the connection was closed: {code:?}"));
                break;
            }
            Err(_elapsed) => {
                told.problems.push(format!("silent for {} s", SILENT_MAX.as_secs()));
                break;
            }
        }
    }
    told
}

type Left = Rc<RefCell<BTreeMap<String, u64>>>;

fn note(left: &Left, how: &str) {
    *left.borrow_mut().entry(how.to_owned()).or_default() += 1;
}

/// Comes for 1 to 20 s again and again.
async fn come_and_go(port: u16, seed: u64, left: Left) {
    for turn in 0.. {
        let chance = mix(seed ^ turn);
        let mut client = subscribed(port).await;
        if chance.is_multiple_of(3) {
            client.subscribe(json!(["newPendingTransactions"])).await;
            client.subscribe(json!(["transactionReceipts"])).await;
        }
        let until = Instant::now() + Duration::from_secs(1 + chance % 20);
        let how = loop {
            match tokio::time::timeout_at(until, client.told_or_closed()).await {
                Ok(Ok(_)) => {}
                Ok(Err(code)) => break format!("closed with {code:?}"),
                Err(_elapsed) => break "left".to_owned(),
            }
        };
        note(&left, &how);
        drop(client);
        sleep(Duration::from_millis(chance % 3000)).await;
    }
}

/// Subscribes, and does not read.
async fn stall(port: u16, left: Left) {
    loop {
        let client = subscribed(port).await;
        sleep(STALL).await;
        note(&left, "stalled");
        drop(client);
    }
}

/// Many at once.
async fn storm(port: u16, left: Left) {
    loop {
        sleep(STORM_EVERY / 2).await;
        let mut crowd = JoinSet::new();
        for _ in 0..STORMING {
            crowd.spawn_local(async move {
                let client = subscribed(port).await;
                sleep(STORM).await;
                drop(client);
            });
        }
        let came = crowd.join_all().await.len();
        (0..came).for_each(|_| note(&left, "stormed"));
    }
}

async fn watch(wellhead: &Wellhead, samples: &mut Vec<Sample>) {
    let began = Instant::now();
    let mut due = interval(SAMPLE_EVERY);
    loop {
        due.tick().await;
        let metrics = wellhead.metrics().await;
        let connections = metrics.sum("wellhead_client_connections", &["websocket"]);
        let sample = Sample {
            at: began.elapsed(),
            resident_kib: wellhead.resident_kib(),
            cached_kib: metrics.sum("wellhead_cache_bytes", &[]) as u64 / 1024,
            descriptors: wellhead.descriptors(),
            connections,
        };
        if samples.len().is_multiple_of(TOLD_EVERY) {
            println!(
                "  {:4} s    {} KiB, {} of them cached answers, {} files, {connections} clients",
                sample.at.as_secs(),
                sample.resident_kib,
                sample.cached_kib,
                sample.descriptors
            );
        }
        samples.push(sample);
    }
}
