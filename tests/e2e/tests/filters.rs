//! Filters of clients that change replica with each poll: three wellheads, one Valkey, and two geths that leave
//! branches. What the polls tell is the nodes' own history, each change once, though a replica dies, another one is
//! started, and the store stands still.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

mod with_geth {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};
    use serde_json::{Value, json};
    use wellhead_e2e::{
        Block, ConsensusDriver, LogMiner, Signal, Transactions, Upstream, Wellhead, chain, until,
    };
    use wellhead_kit::RedisServer;

    const BOUND: Duration = Duration::from_secs(60);
    const SEED: u64 = 18;
    const POLL_AGAIN: &str =
        "the filters that replicas share cannot be reached for now: poll again";

    struct Fleet {
        driver: ConsensusDriver,
        store: RedisServer,
        replicas: Vec<Wellhead>,
        rng: SmallRng,
    }

    impl Fleet {
        async fn start() -> Self {
            let (driver, store) = (ConsensusDriver::start(2).await, RedisServer::valkey());
            let rng = SmallRng::seed_from_u64(SEED);
            let mut fleet = Self { driver, store, replicas: Vec::new(), rng };
            for _ in 0..3 {
                let replica = fleet.replica().await;
                fleet.replicas.push(replica);
            }
            fleet
        }

        /// One more replica.
        async fn replica(&self) -> Wellhead {
            let upstreams = [0, 1]
                .map(|node| Upstream::new(&format!("geth-{node}"), &self.driver.node(node).url()));
            let shared = format!("shared: {{ redis: \"{}\" }}\n", self.store.url());
            let chain = chain(ConsensusDriver::CHAIN_ID, &upstreams);
            let replica = Wellhead::spawn(&shared, &chain).ready().await;
            let is_sharing = || async {
                replica.process.log().contains("filters of clients are shared").then_some(())
            };
            assert_eq!(until(BOUND, is_sharing).await, Some(()), "{}", replica.process.log());
            replica
        }

        async fn ask(&self, place: usize, method: &str, params: Value) -> Result<Value, String> {
            self.replicas[place].rpc().result(method, params).await
        }

        async fn changes(&self, place: usize, id: &Value) -> Result<Value, String> {
            self.ask(place, "eth_getFilterChanges", json!([id])).await
        }

        /// The changes that a poll tells, made again while the store is too slow to be asked, as a client would.
        async fn polled(&self, place: usize, id: &Value) -> Value {
            let polled = || async {
                match self.changes(place, id).await {
                    Err(why) if why.contains(POLL_AGAIN) => None,
                    told => Some(told),
                }
            };
            until(BOUND, polled).await.expect("the store is there").unwrap()
        }

        /// Polls replicas at random, and asserts that the polls tell exactly these changes, in order and once.
        async fn expect(&mut self, id: &Value, expected: &[Value]) {
            let places: Vec<usize> =
                (0..1_000).map(|_| self.rng.random_range(0..self.replicas.len())).collect();
            let (polls, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
            let all = || async {
                let poll = polls.fetch_add(1, Relaxed);
                let changes = self.polled(places[poll % places.len()], id).await;
                let mut told = told.lock().unwrap();
                told.extend(changes.as_array().unwrap().iter().cloned());
                (told.len() >= expected.len()).then_some(())
            };
            let is_told = until(BOUND, all).await;
            assert_eq!(told.into_inner().unwrap(), expected);
            assert_eq!(is_told, Some(()));
            for place in 0..self.replicas.len() {
                assert_eq!(self.polled(place, id).await, json!([]), "each once");
            }
        }
    }

    fn hashes(blocks: &[Block]) -> Vec<Value> {
        blocks.iter().map(|block| json!(block.hash)).collect()
    }

    #[tokio::test]
    async fn polls_at_any_replica_tell_each_change_once() {
        let mut fleet = Fleet::start().await;
        let genesis = fleet.driver.genesis().clone();
        let first = fleet.driver.mine_on(&genesis, Transactions::None).await;
        fleet.driver.set_head(0, &first).await;
        fleet.driver.set_head(1, &first).await;
        for place in 0..3 {
            let look = || async {
                let latest = fleet.ask(place, "eth_getBlockByNumber", json!(["latest", false]));
                (latest.await.ok()?["hash"] == first.hash).then_some(())
            };
            assert_eq!(until(BOUND, look).await, Some(()), "never agreed");
        }
        let logs = json!([{ "address": ConsensusDriver::LOGGER, "fromBlock": "0x1" }]);
        let of_logs = fleet.ask(0, "eth_newFilter", logs.clone()).await.unwrap();
        let of_blocks = fleet.ask(1, "eth_newBlockFilter", json!([])).await.unwrap();

        let mut miner = LogMiner::new(&first);
        for (round, (back, count)) in
            [(0, 1), (0, 3), (2, 3), (1, 1), (0, 8), (3, 2), (0, 1), (2, 5)].into_iter().enumerate()
        {
            let (blocks, told) = miner.step(&fleet.driver, back, count, &[0, 1]).await;
            fleet.expect(&of_logs, &told).await;
            fleet.expect(&of_blocks, &hashes(&blocks)).await;
            if round == 3 {
                // The replica that made the filter dies, and another one takes its place.
                fleet.replicas[0].process.signal(Signal::Kill);
                fleet.replicas[0] = fleet.replica().await;
            }
        }
        let all = fleet.ask(2, "eth_getFilterLogs", json!([of_logs])).await.unwrap();
        assert_eq!(all, fleet.driver.node(1).rpc().result("eth_getLogs", logs).await.unwrap());

        // A store that stands still costs time and no change: polls fail until it goes on.
        fleet.store.signal("-STOP");
        let (blocks, told) = miner.step(&fleet.driver, 1, 2, &[0, 1]).await;
        for place in 0..3 {
            let refused = fleet.changes(place, &of_logs).await.unwrap_err();
            assert!(refused.contains("-32002") && refused.contains(POLL_AGAIN), "{refused}");
        }
        fleet.store.signal("-CONT");
        // Whether there is a filter of this id the store alone knows.
        let unknown = json!([format!("0xf117e200{:024}", 0)]);
        for place in 0..3 {
            let asked =
                || async { fleet.ask(place, "eth_uninstallFilter", unknown.clone()).await.ok() };
            assert_eq!(until(BOUND, asked).await, Some(json!(false)), "the store is there again");
        }
        fleet.expect(&of_logs, &told).await;
        fleet.expect(&of_blocks, &hashes(&blocks)).await;

        for (place, is_ended) in [(1, true), (0, false), (2, false)] {
            let ended = fleet.ask(place, "eth_uninstallFilter", json!([of_blocks])).await;
            assert_eq!(ended.unwrap(), is_ended);
            let gone = fleet.changes(place, &of_blocks).await.unwrap_err();
            assert!(gone.contains("-32000") && gone.contains("filter not found"), "{gone}");
        }
    }
}
