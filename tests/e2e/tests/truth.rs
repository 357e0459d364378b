//! What clients are told of a chain is true: by the word of the nodes themselves, while they
//! go from one branch to another, and while one of them is far behind.
//!
//! Two anvils are told to make the same blocks, first the one, then the other, and to leave
//! their newest blocks for others, in two ways and to any depth up to [`DEPTH_MAX`]. Before
//! them stand two wellheads, of which one keeps answers in memory and on disk. Clients ask
//! both without a pause; what they got is judged by `ledger` when all is over. In between, when
//! the nodes stand still, everything that can be asked is asked of the node and of both
//! wellheads, and must be the same to the byte. Nothing here looks at a clock.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

mod ledger;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ledger::{Answered, Ask, Ledger, WATCHED};
use serde_json::Value;
use wellhead_e2e::{Rpc, Wellhead, mix, until};

const BOUND: Duration = Duration::from_secs(60);

/// What the clients of one wellhead got.
#[derive(Debug, Default)]
struct Got {
    answered: Vec<Answered>,
    failed: Vec<String>,
    hits: usize,
}

/// The clients that ask one wellhead without a pause.
struct Clients<'a> {
    rpc: &'a Rpc,
    wellhead: &'a Wellhead,
    ledger: &'a Mutex<Ledger>,
    got: Mutex<Got>,
    is_over: AtomicBool,
}

impl<'a> Clients<'a> {
    fn new(wellhead: &'a Wellhead, ledger: &'a Mutex<Ledger>) -> Self {
        let (rpc, is_over) = (wellhead.rpc(), AtomicBool::new(false));
        Self { rpc, wellhead, ledger, got: Mutex::default(), is_over }
    }

    /// What it knows, for the message of a failed test.
    async fn told(&self) -> String {
        let status = self.wellhead.admin().get("/status").await.and_then(|reply| reply.json());
        let chain = status.map(|status| status["chains"][0].to_string());
        format!("{}\n{}", chain.unwrap_or_default(), self.wellhead.process.log())
    }

    fn count(&self) -> usize {
        let got = self.got.lock().unwrap();
        got.answered.len() + got.failed.len()
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// One of them, which asks what `draw` makes of chance.
    async fn run(&self, seed: u64, draw: impl Fn(&Ledger, u64) -> Ask) {
        for step in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (ask, sent) = {
                let mut ledger = self.ledger.lock().unwrap();
                let sent = ledger.tick();
                (draw(&ledger, mix(seed << 32 | step)), sent)
            };
            let reply = self.rpc.post(ask.body()).await;
            let got = self.ledger.lock().unwrap().tick();
            let mut all = self.got.lock().unwrap();
            let answer = reply.and_then(|reply| Ok((reply.json()?, reply)));
            match answer {
                Ok((mut body, reply)) if body.get("result").is_some() => {
                    all.hits += usize::from(reply.header("x-wellhead-cache") == "hit");
                    let result = body["result"].take();
                    all.answered.push(Answered { ask, sent, got, result });
                }
                Ok((body, _)) => all.failed.push(format!("{ask:?}, {sent} to {got}: {body}")),
                Err(why) => all.failed.push(format!("{ask:?}, {sent} to {got}: {why}")),
            }
        }
    }

    /// Looks at everything that they got.
    fn judge(&self, name: &str) {
        let (ledger, got) = (self.ledger.lock().unwrap(), self.got.lock().unwrap());
        println!("{name}: {} answers, {} hits", got.answered.len(), got.hits);
        let wrong: Vec<String> = got
            .answered
            .iter()
            .filter_map(|one| Some(format!("{}: {one:?}", ledger.judge(one).err()?)))
            .collect();
        assert_eq!(wrong.len(), 0, "{name}: {:#?}", &wrong[..wrong.len().min(5)]);
        assert_eq!(got.failed.len(), 0, "{name}: {:#?}", &got.failed[..got.failed.len().min(5)]);
        let back = steps_back(&ledger, &got.answered);
        let log = self.wellhead.process.log();
        assert_eq!(back.len(), 0, "{name}: the newest block goes back: {back:#?}\n{log}");
    }
}

/// Where the newest block was lower than one that had been shown before, and no branch was
/// left in between. All clients have one address here, and so are one client.
fn steps_back(ledger: &Ledger, answered: &[Answered]) -> Vec<String> {
    let heights = answered.iter().filter_map(|one| Some((one, ledger.shown(one)?)));
    let heights: Vec<(&Answered, (u64, usize))> = heights.collect();
    let mut by_got = heights.clone();
    by_got.sort_by_key(|(one, _)| one.got);
    let mut by_sent = heights;
    by_sent.sort_by_key(|(one, _)| one.sent);
    let (mut shown, mut floor, mut back) = (by_got.into_iter().peekable(), (0, 0), Vec::new());
    for (one, (height, storms)) in by_sent {
        while let Some((_, (height, storms))) = shown.next_if(|(early, _)| early.got < one.sent) {
            floor = if storms > floor.1 { (height, storms) } else { (floor.0.max(height), storms) };
        }
        if floor.1 == storms && height < floor.0 {
            back.push(format!("{height} after {}: {one:?}", floor.0));
        }
    }
    back
}

mod with_anvil {
    use serde_json::json;
    use tempfile::TempDir;
    use wellhead_e2e::{Anvil, Node};

    use super::*;

    const CHAIN_ID: u64 = 31;
    const GENESIS: u64 = 1_750_000_000;
    /// Blocks before anything happens; some of them are final.
    const FIRST: u64 = 120;
    const ROUNDS: u64 = 8;
    /// Blocks that are left at most.
    const DEPTH_MAX: u64 = 20;
    /// Answers between two things that happen.
    const PAUSE: usize = 60;

    /// Deploys what writes a log with the value that it was sent: PUSH9 (CALLVALUE, PUSH0,
    /// MSTORE, TIMESTAMP, PUSH1 32, PUSH0, LOG1, STOP), and returns that.
    const LOGGER: &str = "0x68345f524260205fa1005f5260096017f3";

    /// The transactions of one block.
    #[derive(Debug, Clone)]
    struct Plan(Vec<Value>);

    struct Stage<'a> {
        nodes: [&'a Node; 2],
        accounts: Vec<String>,
        logger: String,
        clients: [&'a Clients<'a>; 2],
        ledger: &'a Mutex<Ledger>,
        /// Of the blocks of the chain, from the first one that has any.
        plans: Vec<Plan>,
        /// What was taken back and not mined again.
        lost: Vec<Plan>,
        serial: u64,
        /// So many calls of their own are enough for wellheads to have seen a new head.
        looks: u64,
    }

    impl Stage<'_> {
        /// A block's worth of transactions: each watched account gets what no other account gets.
        fn plan(&mut self) -> Plan {
            self.serial += 1;
            let value = |more: usize| format!("{:#x}", self.serial * 16 + more as u64);
            let pay = |who: usize| self.pay(who, &ledger::watched(who), &value(who));
            let mut all: Vec<Value> = (0..WATCHED).map(pay).collect();
            all.push(self.pay(WATCHED, &self.logger, &value(WATCHED)));
            Plan(all)
        }

        /// A transaction that is the same wherever it is mined.
        fn pay(&self, from: usize, to: &str, value: &str) -> Value {
            json!({
                "from": self.accounts[from], "to": to, "value": value, "gas": "0x20000",
                "maxFeePerGas": "0x174876e800", "maxPriorityFeePerGas": "0x1",
            })
        }

        /// Something that no other block has.
        fn mark(&mut self) -> Plan {
            self.serial += 1;
            let value = format!("{:#x}", self.serial * 16);
            Plan(vec![self.pay(WATCHED + 1, &ledger::watched(0), &value)])
        }

        fn tick(&self) -> u64 {
            self.ledger.lock().unwrap().tick()
        }

        async fn learn(&self, node: usize, born: u64) {
            let known = self.ledger.lock().unwrap().known();
            let (chain, facts) = Ledger::read(self.nodes[node], known).await;
            self.ledger.lock().unwrap().note(born, chain, facts);
        }

        /// Both wellheads have the newest block of the ledger.
        async fn shown(&self) {
            let newest = self.ledger.lock().unwrap().chain().last().cloned().unwrap();
            for clients in self.clients {
                let seen = until(BOUND, || async {
                    let reply = clients.rpc.post(Ask::Newest.body()).await.ok()?.json().ok()?;
                    (reply["result"]["hash"] == *newest).then_some(())
                });
                let is_shown = seen.await.is_some();
                assert!(is_shown, "{newest} is not shown: {}", clients.told().await);
            }
        }

        /// Both wellheads looked at both nodes, of their own accord. Where nodes tell their blocks
        /// that is done when they are shown.
        async fn looked(&self) {
            for clients in self.clients.iter().filter(|_| self.looks > 0) {
                let looks = || async {
                    let status = clients.wellhead.admin().get("/status").await.ok()?.json().ok()?;
                    let upstreams = status["chains"][0]["upstreams"].as_array()?.iter();
                    upstreams
                        .map(|upstream| upstream["self_calls"].as_u64())
                        .collect::<Option<Vec<_>>>()
                };
                let before = looks().await.unwrap();
                let done = until(BOUND, || async {
                    let mut both = looks().await?.into_iter().zip(&before);
                    both.all(|(now, before)| now >= before + self.looks).then_some(())
                });
                assert!(done.await.is_some(), "no client polls: {}", clients.told().await);
            }
        }

        /// The clients got so many answers more.
        async fn asked(&self, more: usize) {
            for clients in self.clients {
                let enough = clients.count() + more;
                let asked = until(BOUND, || async { (clients.count() >= enough).then_some(()) });
                assert!(asked.await.is_some(), "no answer");
            }
        }

        /// Blocks with these transactions, at one node and then at the other.
        async fn grow(&mut self, plans: Vec<Plan>, first: usize) {
            for plan in plans {
                let born = self.tick();
                mine(self.nodes[first], &plan).await;
                self.learn(first, born).await;
                mine(self.nodes[1 - first], &plan).await;
                self.plans.push(plan);
                self.shown().await;
                self.ledger.lock().unwrap().publish();
            }
        }

        /// What was taken back is mined again, then something new.
        async fn go_on(&mut self, blocks: u64, first: usize) {
            let lost = std::mem::take(&mut self.lost);
            let fresh: Vec<Plan> = (0..blocks).map(|_| self.plan()).collect();
            self.grow(lost.into_iter().chain(fresh).collect(), first).await;
        }

        /// One node leaves its newest `depth` blocks for others, then the other one does.
        async fn reorg(&mut self, depth: u64, first: usize, is_longer: bool) {
            self.ledger.lock().unwrap().begin_storm();
            let kept = self.plans.len().saturating_sub(depth as usize);
            let taken = self.plans.split_off(kept);
            let mark = self.mark();
            for node in [first, 1 - first] {
                let (rpc, born) = (self.nodes[node].rpc(), self.tick());
                if is_longer {
                    rpc.result("anvil_rollback", json!([depth])).await.unwrap();
                    // The same transactions, each a block later.
                    mine(self.nodes[node], &mark).await;
                    for plan in &taken {
                        mine(self.nodes[node], plan).await;
                    }
                } else {
                    // As many blocks, of which one pays an account.
                    let pay = json!([[mark.0[0], 0]]);
                    rpc.result("anvil_reorg", json!([depth, pay])).await.unwrap();
                }
                self.learn(node, born).await;
                self.asked(PAUSE).await;
            }
            if is_longer {
                self.plans.push(mark);
                self.plans.extend(taken);
            } else {
                self.plans.resize(kept + depth as usize, Plan(Vec::new()));
                self.lost = taken;
            }
            self.shown().await;
            self.looked().await;
            self.ledger.lock().unwrap().end_storm();
        }

        /// While the nodes stand still, all that can be asked of these heights.
        async fn compare(&self, from: u64) -> usize {
            let asks = self.ledger.lock().unwrap().questions(from);
            for ask in &asks {
                let mut bodies = Vec::new();
                for rpc in [self.nodes[0].rpc(), self.clients[0].rpc, self.clients[1].rpc] {
                    bodies.push(rpc.post(ask.body()).await.unwrap().body);
                }
                bodies.push(self.clients[0].rpc.post(ask.body()).await.unwrap().body);
                let may_dig_up = self.ledger.lock().unwrap().may_dig_up(ask);
                for (body, who) in bodies[1..].iter().zip(["kept", "plain", "kept again"]) {
                    // What else it may be is looked at with all that clients got.
                    let node = &bodies[0];
                    let is_it = body == node || may_dig_up;
                    assert!(is_it, "{who}: {ask:?}: {body:?}, and the node says {node:?}");
                }
            }
            asks.len()
        }
    }

    async fn mine(node: &Node, Plan(transactions): &Plan) {
        let rpc = node.rpc();
        for transaction in transactions {
            rpc.result("eth_sendTransaction", json!([transaction])).await.unwrap();
        }
        let newest = rpc.result("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
        let next = ledger::number(&newest["timestamp"]).unwrap() + 1;
        rpc.result("evm_setNextBlockTimestamp", json!([next])).await.unwrap();
        rpc.result("anvil_mine", json!(["0x1"])).await.unwrap();
    }

    /// A node with some history; all of them have the same one.
    async fn node() -> (Node, String) {
        let node = Anvil::by_hand(CHAIN_ID, GENESIS).await;
        let rpc = node.rpc();
        // Else blocks would be dated by the wall clock, and those of two nodes would differ.
        rpc.result("anvil_setBlockTimestampInterval", json!([1])).await.unwrap();
        rpc.result("anvil_mine", json!([format!("{:#x}", FIRST - 1)])).await.unwrap();
        let accounts = rpc.result("eth_accounts", json!([])).await.unwrap();
        let deploy = json!({
            "from": accounts[WATCHED + 2], "data": LOGGER, "gas": "0x40000",
            "maxFeePerGas": "0x174876e800", "maxPriorityFeePerGas": "0x1",
        });
        let hash = rpc.result("eth_sendTransaction", json!([deploy])).await.unwrap();
        mine(&node, &Plan(Vec::new())).await;
        let receipt = rpc.result("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        assert_eq!(receipt["status"], "0x1", "{receipt}");
        (node, receipt["contractAddress"].as_str().unwrap().to_owned())
    }

    async fn wellhead(more: &str, nodes: [&Node; 2], feeds: bool) -> Wellhead {
        let mut chain = format!(
            "  main:\n    id: {CHAIN_ID}\n    block_time: 250ms\n    checks: {{ head_interval_min: 50ms }}\n    \
             upstreams:\n"
        );
        for (id, node) in ["a", "b"].into_iter().zip(nodes) {
            let ws = if feeds { format!(", ws: \"{}\"", node.ws_url()) } else { String::new() };
            chain.push_str(&format!("      - {{ id: {id}, url: \"{}\"{ws} }}\n", node.url()));
        }
        Wellhead::spawn(more, &chain).ready().await
    }

    /// What a client asks: mostly of the newest blocks, by what the ledger knows of them.
    fn draw(ledger: &Ledger, chance: u64) -> Ask {
        let (kind, chance) = (chance % 16, chance >> 8);
        let head = ledger.head();
        let height = match chance % 8 {
            0 => 1 + (chance >> 8) % 40,
            _ => head - (chance >> 8) % 30,
        };
        let who = (chance >> 24) as usize % WATCHED;
        match kind {
            0 | 1 => Ask::Height,
            2 | 3 => Ask::Newest,
            4..=6 => Ask::ByNumber(height),
            7 | 8 => Ask::ByHash(ledger.some_hash(chance >> 8)),
            9..=11 => match ledger.some_transaction(chance >> 8) {
                Some(hash) => Ask::Receipt(hash),
                None => Ask::Height,
            },
            12 => Ask::Logs { from: height, to: (height + (chance >> 40) % 12).min(head) },
            13 | 14 => Ask::Balance { who, at: Some(height) },
            _ => Ask::Balance { who, at: None },
        }
    }

    async fn story(stage: &mut Stage<'_>) {
        let plans: Vec<Plan> = (0..DEPTH_MAX + 4).map(|_| stage.plan()).collect();
        stage.grow(plans, 0).await;
        let mut compared = 0;
        for round in 0..ROUNDS {
            let chance = mix(round);
            let first = (chance % 2) as usize;
            stage.asked(PAUSE).await;
            // The deepest and the shallowest are always there.
            let depth = match round {
                0 => 1,
                1 => DEPTH_MAX,
                _ => 1 + (chance >> 8) % DEPTH_MAX,
            };
            stage.reorg(depth, first, round % 2 == 0).await;
            let head = stage.ledger.lock().unwrap().head();
            compared += stage.compare(head - depth - 3).await;
            stage.asked(PAUSE).await;
            stage.go_on(1 + (chance >> 16) % 3, 1 - first).await;
            compared += stage.compare(head - 3).await;
        }
        println!("{compared} calls compared four ways while the nodes stood still");
    }

    async fn through_reorgs(feeds: bool) {
        let ((one, logger), (other, _)) = (node().await, node().await);
        let nodes = [&one, &other];
        let newest = json!(["latest", false]);
        let heads = nodes.map(|node| node.rpc().result("eth_getBlockByNumber", newest.clone()));
        let [head, other_head] = heads;
        assert_eq!(head.await.unwrap(), other_head.await.unwrap(), "they have one history");
        let folder = TempDir::new().unwrap();
        let path = folder.path().display();
        let tiers = format!("disk: {{ path: \"{path}/cache\", bytes: 16MiB }}");
        let keeps = wellhead(&format!("cache: {{ {tiers} }}"), nodes, feeds).await;
        let plain = wellhead("cache: { enabled: false }", nodes, feeds).await;
        let ledger = Mutex::new(Ledger::default());
        ledger.lock().unwrap().digs_up = !feeds;
        let accounts = one.rpc().result("eth_accounts", json!([])).await.unwrap();
        let accounts = accounts.as_array().unwrap().iter();
        let clients = [&keeps, &plain].map(|it| Clients::new(it, &ledger));
        let [of_keeps, of_plain] = &clients;
        let mut stage = Stage {
            nodes,
            accounts: accounts.map(|it| it.as_str().unwrap().to_owned()).collect(),
            logger,
            clients: [of_keeps, of_plain],
            ledger: &ledger,
            plans: Vec::new(),
            lost: Vec::new(),
            serial: 0,
            // Some of them ask for something else.
            looks: if feeds { 0 } else { 6 },
        };
        stage.learn(0, 0).await;
        stage.shown().await;
        ledger.lock().unwrap().publish();
        let all = async {
            story(&mut stage).await;
            clients.iter().for_each(Clients::stop);
        };
        tokio::join!(
            all,
            of_keeps.run(1, draw),
            of_keeps.run(2, draw),
            of_keeps.run(3, draw),
            of_plain.run(1, draw),
            of_plain.run(2, draw),
        );
        of_keeps.judge("with a cache");
        of_plain.judge("without");
        assert!(of_keeps.got.lock().unwrap().hits > 0, "nothing was kept");
        assert_eq!(of_plain.got.lock().unwrap().hits, 0);
    }

    #[tokio::test]
    async fn two_nodes_that_are_polled_go_through_reorgs() {
        through_reorgs(false).await;
    }

    #[tokio::test]
    async fn two_nodes_that_tell_their_blocks_go_through_reorgs() {
        through_reorgs(true).await;
    }
}

mod with_geth {
    use wellhead_e2e::{FaultProxy, Geth, Upstream};

    use super::*;

    /// Blocks that come while clients ask.
    const BLOCKS: u64 = 12;

    fn draw(ledger: &Ledger, chance: u64) -> Ask {
        let (kind, chance) = (chance % 8, chance >> 8);
        let height = ledger.head() - chance % (ledger.head() + 1).min(16);
        match kind {
            0 | 1 => Ask::Height,
            2 => Ask::Newest,
            3 | 4 => Ask::ByNumber(height),
            5 => Ask::ByHash(ledger.some_hash(chance >> 8)),
            6 => Ask::Logs { from: height, to: ledger.head() },
            _ => Ask::Balance { who: 0, at: Some(height) },
        }
    }

    /// One goes on and the other one stands: no client is told less than there is, and the lower
    /// one is not asked for what it has not.
    #[tokio::test]
    async fn two_nodes_of_different_height() {
        let (higher, lower) = Geth::two(8).await;
        let held = lower.head().await.unwrap();
        let late = FaultProxy::start(lower.port).await;
        let upstreams =
            [Upstream::new("higher", &higher.url()), Upstream::new("lower", &late.url())];
        let keeps = "cache: { enabled: true, by_hash: on }";
        let keeps = Wellhead::start_with(keeps, Geth::CHAIN_ID, &upstreams).await;
        let plain = "cache: { enabled: false }";
        let plain = Wellhead::start_with(plain, Geth::CHAIN_ID, &upstreams).await;
        let ledger = Mutex::new(Ledger::default());
        let clients = [&keeps, &plain].map(|it| Clients::new(it, &ledger));
        let learn = || async {
            // What is new came after the last look.
            let (born, known) = {
                let mut ledger = ledger.lock().unwrap();
                (ledger.looked(), ledger.known())
            };
            let (chain, facts) = Ledger::read(&higher, known).await;
            let height = chain.len() as u64 - 1;
            ledger.lock().unwrap().note(born, chain, facts);
            // It is known to the higher one alone, and that is enough once the other one lags.
            for clients in &clients {
                let shown = until(BOUND, || async {
                    let reply = clients.rpc.post(Ask::Height.body()).await.ok()?.json().ok()?;
                    ledger::number(&reply["result"]).filter(|shown| *shown >= height)
                });
                let is_shown = shown.await.is_some();
                assert!(is_shown, "{height} is not shown: {}", clients.told().await);
            }
            ledger.lock().unwrap().publish();
            height
        };
        let first = learn().await;
        assert!(first > held, "{first} and {held}");
        let story = async {
            while learn().await < first + BLOCKS {}
            clients.iter().for_each(Clients::stop);
        };
        let [of_keeps, of_plain] = &clients;
        tokio::join!(
            story,
            of_keeps.run(1, draw),
            of_keeps.run(2, draw),
            of_plain.run(1, draw),
            of_plain.run(2, draw),
        );
        // What came since the last look.
        learn().await;
        of_keeps.judge("with a cache");
        of_plain.judge("without");
        for height in held + 1..=first + BLOCKS {
            let asked = late.asked_for(&format!("\"{height:#x}\""));
            assert_eq!(asked, 0, "the lower one has {held} and was asked for {height}");
        }
        println!("{} requests to the lower one", late.requests());
    }
}
