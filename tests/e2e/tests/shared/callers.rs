//! Those that call: as often as they can, or seldom.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};
use wellhead_e2e::{Rpc, tail};

/// The tenant whose limit is hunted, and the one that no limit may touch.
pub(crate) const LOUD: &str = "loud";
pub(crate) const CALM: &str = "calm";

/// Callers of the loud tenant at each wellhead, and how often each calls: together four times its limit, also
/// when a call takes its time.
const HUNTERS: usize = 8;
const HUNTER_EVERY: Duration = Duration::from_millis(30);
/// How often the calm tenant calls at each wellhead: together a quarter of its limit, and three quarters of
/// its part while the store is away.
const CALM_EVERY: Duration = Duration::from_millis(100);

/// Failures kept word for word.
const FAILURES_KEPT: usize = 10;

/// What became of calls. Each has a number of its own, so that no answer comes from the cache.
#[derive(Debug, Default)]
pub(crate) struct CallTally {
    sent: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    failures: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl CallTally {
    /// The callers end with the call that each is in.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// By the limit of the loud tenant.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The first failures.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("no holder of this lock panics").clone()
    }

    fn count(&self, outcome: Result<bool, String>) {
        match outcome {
            Ok(true) => {
                self.served.fetch_add(1, Relaxed);
            }
            Ok(false) => {
                self.refused.fetch_add(1, Relaxed);
            }
            Err(why) => {
                let mut failures = self.failures.lock().expect("no holder of this lock panics");
                if failures.len() < FAILURES_KEPT {
                    failures.push(why);
                }
            }
        }
    }

    async fn call_each(&self, mut ticks: Interval, client: &Rpc, numbers: &AtomicU64) {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_over.load(Relaxed) {
            ticks.tick().await;
            self.sent.fetch_add(1, Relaxed);
            self.count(call(client, numbers.fetch_add(1, Relaxed)).await);
        }
    }
}

/// Begins the calls of the loud tenant, by way of these clients.
pub(crate) fn hunt(
    clients: &[Arc<Rpc>],
    numbers: &Arc<AtomicU64>,
) -> (Arc<CallTally>, JoinSet<()>) {
    let hunters = clients.iter().flat_map(|client| [client; HUNTERS]);
    begin(hunters, HUNTER_EVERY, numbers)
}

/// Begins the calls of the calm tenant, by way of these clients.
pub(crate) fn stay_calm(
    clients: &[Arc<Rpc>],
    numbers: &Arc<AtomicU64>,
) -> (Arc<CallTally>, JoinSet<()>) {
    begin(clients.iter(), CALM_EVERY, numbers)
}

fn begin<'a>(
    clients: impl Iterator<Item = &'a Arc<Rpc>>,
    every: Duration,
    numbers: &Arc<AtomicU64>,
) -> (Arc<CallTally>, JoinSet<()>) {
    let (tally, mut callers) = (Arc::<CallTally>::default(), JoinSet::new());
    for client in clients {
        let (tally, client, numbers) =
            (Arc::clone(&tally), Arc::clone(client), Arc::clone(numbers));
        callers.spawn(async move { tally.call_each(interval(every), &client, &numbers).await });
    }
    (tally, callers)
}

/// Whether a call was served, or refused by the limit of the loud tenant. Anything else is a failure, in
/// words.
async fn call(client: &Rpc, number: u64) -> Result<bool, String> {
    let address = format!("0x{number:040x}");
    let params = json!([address, "latest"]);
    let (answer, reply) = client.call_with_reply("eth_getBalance", params).await?;
    let data = &answer["error"]["data"];
    let is_of_limit = data["quota"] == LOUD && data["limit"] == "calls_per_second";
    match reply.status {
        200 if answer["result"] == tail(&address) => Ok(true),
        429 if is_of_limit => Ok(false),
        status => Err(format!("{status}: {answer}")),
    }
}
