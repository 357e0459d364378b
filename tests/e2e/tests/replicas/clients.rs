//! Clients that change replica with each call. Some say which block they know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use wellhead_e2e::Rpc;

const CLIENTS: u64 = 8;
/// The first of them say which block they know: to them the chain never goes back.
const SAYING: u64 = 4;
/// Between two calls of a client: the time of a round trip to a service nearby.
const PAUSE: Duration = Duration::from_millis(4);
/// Failures that are kept to be printed.
const KEPT: usize = 20;
/// Reads in a row that one replica may tell one client a block before the newest that the client knows. A client may
/// be quicker than the message between replicas, however many blocks that message brings: a node that stood still makes
/// up for its blocks at once. The replica that has the message tells it to the client's next read.
const BACK_IN_A_ROW_MAX: u64 = 20;

/// What clients saw.
#[derive(Debug, Default)]
pub(crate) struct ClientTally {
    is_parted: AtomicBool,
    is_over: AtomicBool,
    pub(crate) reads: AtomicU64,
    pub(crate) reads_parted: AtomicU64,
    /// Reads of clients that say which block they know, at any time.
    pub(crate) reads_saying: AtomicU64,
    /// Those of them that were told a block below one that the client was told before.
    pub(crate) back_saying: AtomicU64,
    /// Reads of a replica that was away, made anew at another one.
    pub(crate) moved: AtomicU64,
    /// Newest blocks below one that the client was told before.
    pub(crate) back: AtomicU64,
    /// Those while replicas could not hear each other.
    pub(crate) back_parted: AtomicU64,
    /// The most reads in a row that one replica told one client such a block.
    pub(crate) back_in_a_row: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// Reads and those back, of each kind, as they were printed last.
    printed: [AtomicU64; 6],
}

impl ClientTally {
    /// From now on replicas may be out of each other's hearing.
    pub(crate) fn part(&self) {
        self.is_parted.store(true, Relaxed);
    }

    /// And from now on not.
    pub(crate) fn join(&self) {
        self.is_parted.store(false, Relaxed);
    }

    /// Prints what clients saw since it was printed last.
    pub(crate) fn print_since_last(&self) {
        let count = |of: &AtomicU64, printed: &AtomicU64| {
            let all = of.load(Relaxed);
            all - printed.swap(all, Relaxed)
        };
        println!(
            "replicas: {} of {} reads back, {} of {} while parted, {} of {} of clients that say which block they know",
            count(&self.back, &self.printed[0]),
            count(&self.reads, &self.printed[1]),
            count(&self.back_parted, &self.printed[2]),
            count(&self.reads_parted, &self.printed[3]),
            count(&self.back_saying, &self.printed[4]),
            count(&self.reads_saying, &self.printed[5]),
        );
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    fn note_failure(&self, text: String) {
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < KEPT {
            failures.push(text);
        }
    }
}

/// Starts clients of the replicas at these ports.
pub(crate) fn start(ports: &[u16]) -> (Arc<ClientTally>, JoinSet<()>) {
    let tally = Arc::<ClientTally>::default();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        // Each has an address of its own, as each is a session of its own.
        let from = std::net::Ipv4Addr::new(127, 0, 1, u8::try_from(client).unwrap() + 1);
        let replicas = ports.iter().map(|port| Rpc::from_address(from, *port, "/")).collect();
        let client =
            ReadingClient { replicas, number: client, known: (client < SAYING).then_some(0) };
        clients.spawn(read(client, Arc::clone(&tally)));
    }
    (tally, clients)
}

struct ReadingClient {
    replicas: Vec<Rpc>,
    number: u64,
    /// The block that it says it knows.
    known: Option<u64>,
}

impl ReadingClient {
    /// Reads the newest block of a replica; `None` if that is away.
    async fn newest(&mut self, place: usize, asks_number: bool) -> Option<Value> {
        let (method, params) = match asks_number {
            true => ("eth_blockNumber", json!([])),
            false => ("eth_getBlockByNumber", json!(["latest", false])),
        };
        let Some(known) = self.known else {
            return self.replicas[place].call(method, params).await.ok();
        };
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let known = known.to_string();
        let fields = [("content-type", "application/json"), ("x-wellhead-block", &known)];
        let sent = self.replicas[place].send("POST", "/", &fields, call.to_string().into());
        let reply = sent.await.ok()?;
        self.known = reply.header("x-wellhead-block").parse().ok().or(self.known);
        reply.json().ok()
    }
}

async fn read(mut client: ReadingClient, tally: Arc<ClientTally>) {
    let (mut newest, mut rng) = (0, SmallRng::seed_from_u64(client.number));
    let replicas = client.replicas.len();
    let mut back_in_a_row = vec![0; replicas];
    while !tally.is_over.load(Relaxed) {
        sleep(PAUSE).await;
        let place = rng.random_range(0..replicas);
        // A part of the time that is parted at either end counts as such.
        let was_parted = tally.is_parted.load(Relaxed);
        let asks_number = rng.random_range(0..3) == 0;
        let Some(reply) = client.newest(place, asks_number).await else {
            // It is away: a load balancer asks another one.
            tally.moved.fetch_add(1, Relaxed);
            continue;
        };
        let result = &reply["result"];
        let number = result.as_str().or_else(|| result["number"].as_str());
        let Some(number) = number.and_then(|it| u64::from_str_radix(it.get(2..)?, 16).ok()) else {
            tally.note_failure(format!("replica {place}: {reply}"));
            continue;
        };
        if let Some(known) = client.known {
            tally.reads_saying.fetch_add(1, Relaxed);
            if number < newest {
                tally.back_saying.fetch_add(1, Relaxed);
                let method = if asks_number { "eth_blockNumber" } else { "eth_getBlockByNumber" };
                tally.note_failure(format!(
                    "replica {place}: {method} {number} after {newest}, known is {known}"
                ));
            }
            newest = newest.max(number);
            continue;
        }
        let is_parted = was_parted || tally.is_parted.load(Relaxed);
        let (reads, back) = match is_parted {
            true => (&tally.reads_parted, &tally.back_parted),
            false => (&tally.reads, &tally.back),
        };
        reads.fetch_add(1, Relaxed);
        let in_a_row = &mut back_in_a_row[place];
        match number < newest {
            true => {
                back.fetch_add(1, Relaxed);
                *in_a_row += u64::from(!is_parted);
            }
            false => *in_a_row = 0,
        }
        tally.back_in_a_row.fetch_max(*in_a_row, Relaxed);
        if *in_a_row > BACK_IN_A_ROW_MAX {
            tally.note_failure(format!(
                "replica {place}: {number} after {newest}, {in_a_row} in a row"
            ));
        }
        newest = newest.max(number);
    }
}
