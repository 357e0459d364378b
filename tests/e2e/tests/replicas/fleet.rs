//! Five wellheads with a relay of their own to the store, two nodes behind proxies that fail, and their clients.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use wellhead_e2e::{
    Anvil, Fault, FaultProxy, Node, Relay, RelayMode, Signal, SteppingClock, Upstream, Wellhead,
    chain, until,
};
use wellhead_kit::RedisServer;

use crate::clients::{self, ClientTally};

pub(crate) const REPLICAS: usize = 5;

const CHAIN_ID: u64 = 31337;
/// Seconds between blocks.
const BLOCK: f64 = 0.5;
/// For each thing that must come true, on a machine of any speed.
const BOUND: Duration = Duration::from_secs(60);
/// The share of reads that may be told a block before the one that the client knows: those that overtake the message
/// between replicas, which takes a millisecond on an idle machine. Without messages it is one of five.
const BACK_MAX: f64 = 0.005;
/// Blocks of a stretch in which polls are counted.
const COUNTED: u64 = 12;

pub(crate) struct Fleet {
    replicas: Vec<Wellhead>,
    clocks: Vec<SteppingClock>,
    relays: Vec<Relay>,
    store: RedisServer,
    faults: Vec<FaultProxy>,
    node: Node,
    tally: Arc<ClientTally>,
    clients: JoinSet<()>,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let store = RedisServer::valkey();
        let node = Anvil::every(CHAIN_ID, BLOCK).await;
        let (mut faults, mut relays, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 {
            faults.push(FaultProxy::start(node.port).await);
        }
        for _ in 0..REPLICAS {
            relays.push(Relay::before(store.port()).await);
            clocks.push(SteppingClock::new());
        }
        let upstreams = [("a", &faults[0]), ("b", &faults[1])];
        let upstreams = upstreams.map(|(id, proxy)| Upstream::new(id, &proxy.url()));
        let chain = chain(CHAIN_ID, &upstreams);
        let spawn = |(relay, clock): (&Relay, &SteppingClock)| {
            let launcher = clock.launcher();
            let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
            let shared = format!("shared: {{ redis: \"redis://127.0.0.1:{}\" }}\n", relay.port());
            Wellhead::spawn_under(&launcher, &shared, &chain)
        };
        let replicas = join_all(relays.iter().zip(&clocks).map(spawn).map(Wellhead::ready)).await;
        let ports: Vec<u16> = replicas.iter().map(|replica| replica.port).collect();
        let (tally, clients) = clients::start(&ports);
        let fleet = Self { replicas, clocks, relays, store, faults, node, tally, clients };
        fleet.until_heard().await;
        fleet
    }

    pub(crate) fn clients(&self) -> &ClientTally {
        &self.tally
    }

    /// Until so many blocks more were made.
    pub(crate) async fn blocks(&self, count: u64) {
        let head = self.node.head().await.unwrap();
        self.node.wait_for_block(head + count).await;
    }

    /// Until each replica hears all others, and one of them probes each upstream.
    pub(crate) async fn until_heard(&self) {
        let heard = until(BOUND, || async {
            let counts = join_all(self.replicas.iter().map(replicas_of)).await;
            counts.iter().all(|count| *count == Some(REPLICAS as f64)).then_some(())
        });
        if heard.await.is_none() {
            let counts = join_all(self.replicas.iter().map(replicas_of)).await;
            panic!("{counts:?}\n{}", self.logs());
        }
    }

    fn logs(&self) -> String {
        let log = |replica: &Wellhead| replica.process.log();
        self.replicas.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// While nothing goes wrong: the polls of each upstream are those of one replica.
    pub(crate) async fn undisturbed(&self) {
        // What was begun before takes a block to end.
        self.until_heard().await;
        self.blocks(6).await;
        let before = self.polls().await;
        self.blocks(COUNTED).await;
        let after = self.polls().await;
        let polls: Vec<f64> =
            after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let all: f64 = polls.iter().sum();
        let an_upstream_and_block = all / (2.0 * COUNTED as f64);
        println!(
            "replicas: {polls:?} polls of {REPLICAS} replicas, {an_upstream_and_block:.2} for each block and upstream"
        );
        // Alone each would poll each upstream for each block. A poll that asks too soon is made anew.
        assert!(an_upstream_and_block <= 2.0, "{polls:?}");
    }

    /// Polls for the newest block that each replica made so far.
    async fn polls(&self) -> Vec<f64> {
        let polls = async |replica: &Wellhead| {
            let page = metrics(replica).await.expect("it answers");
            let of_heads = page.lines().filter(|line| {
                line.starts_with("wellhead_self_calls_total{") && line.contains("reason=\"head\"")
            });
            of_heads.map(value).sum::<f64>()
        };
        join_all(self.replicas.iter().map(polls)).await
    }

    /// Kills a replica, and starts it again some blocks later.
    pub(crate) async fn kill(&mut self, place: usize) {
        self.replicas[place].process.signal(Signal::Kill);
        self.blocks(8).await;
        self.begin_again(place, |replica| async { replica.start_again().await }).await;
    }

    /// Ends a replica in order, and starts it again.
    pub(crate) async fn restart(&mut self, place: usize) {
        self.begin_again(place, |replica| async { replica.restart().await }).await;
    }

    async fn begin_again<F: Future<Output = Wellhead>>(
        &mut self,
        place: usize,
        how: impl FnOnce(Wellhead) -> F,
    ) {
        let replica = self.replicas.remove(place);
        self.replicas.insert(place, how(replica).await);
    }

    pub(crate) fn store_signal(&self, signal: &str) {
        self.store.signal(signal);
    }

    /// Starts the store again after it was killed.
    pub(crate) fn store_anew(&mut self) {
        self.store = RedisServer::valkey_at(self.store.port());
    }

    pub(crate) fn set_mode(&self, place: usize, mode: RelayMode) {
        self.relays[place].set(mode);
    }

    pub(crate) fn set_fault(&self, upstream: usize, fault: Fault) {
        self.faults[upstream].set(fault);
    }

    pub(crate) fn step_clock(&self, place: usize, ahead_ms: i64) {
        self.clocks[place].set(ahead_ms);
    }

    /// Ends the clients, and judges what they saw.
    pub(crate) async fn end(self) {
        self.tally.end();
        self.clients.join_all().await;
        let tally = &self.tally;
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Relaxed);
        println!(
            "replicas: {} reads, {} of them back, {} in a row; {} reads while replicas were parted, {} of them back; {} moved to \
             another replica; {} reads of clients that say which block they know, {} of them back",
            count(&tally.reads),
            count(&tally.back),
            count(&tally.back_in_a_row),
            count(&tally.reads_parted),
            count(&tally.back_parted),
            count(&tally.moved),
            count(&tally.reads_saying),
            count(&tally.back_saying),
        );
        assert_eq!(tally.failures(), Vec::<String>::new());
        assert!(count(&tally.reads) > 1_000 && count(&tally.reads_saying) > 1_000);
        let back = count(&tally.back) as f64 / count(&tally.reads) as f64;
        assert!(back <= BACK_MAX, "{back}");
    }
}

async fn metrics(replica: &Wellhead) -> Option<String> {
    let page = replica.admin().get("/metrics").await.ok()?.body;
    Some(String::from_utf8_lossy(&page).into_owned())
}

async fn replicas_of(replica: &Wellhead) -> Option<f64> {
    let page = metrics(replica).await?;
    page.lines().find(|line| line.starts_with("wellhead_replicas{")).map(value)
}

fn value(line: &str) -> f64 {
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap()
}
