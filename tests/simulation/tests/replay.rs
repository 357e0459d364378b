//! Ten thousand calls of wallets, dapps and indexers, answered with and without a cache: the
//! same to the byte, and far fewer of them reach an upstream.
//!
//! The chain goes on meanwhile, and now and then leaves its newest blocks for others. Both
//! runs see the same of it: each call is made when the proxy has seen the newest block, and
//! which ones are safe and final.

#![allow(clippy::print_stdout, reason = "what was saved is told as well as checked")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wellhead_chain::{Heads, HeadsTerms, Tag};
use wellhead_dispatch::{Bounds, WorkerUpstreams};
use wellhead_eth::{BlockHash, ChainId};
use wellhead_jsonrpc::ParseLimits;
use wellhead_proxy::{
    ByHashMode, Cache, CacheSettings, ChainName, Ctx, Proxy, ServedChain, Settings, Sweeper,
    WorkerChains,
};
use wellhead_route::Roster;
use wellhead_sim::traffic::Traffic;
use wellhead_sim::{SimNode, SimTransport, World, WorldConfig};
use wellhead_transport::Transport;
use wellhead_upstream::{
    BreakerBounds, Identity, MethodRules, Slot, Upstream, UpstreamList, UpstreamSet,
};
use wellhead_watch::{CheckCounts, PollPace, Pulse, Watcher, WatcherParts};

const CALLS: u64 = 10_000;
/// Calls from block to block.
const CALLS_A_BLOCK: u64 = 100;
/// Blocks from reorg to reorg.
const BLOCKS_A_REORG: u64 = 10;
/// Looks for a new block that is not seen yet.
const LOOKS_MAX: usize = 3_000;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SETTINGS: CacheSettings = CacheSettings {
    bytes: 64 << 20,
    head: Duration::from_secs(1),
    null: Duration::ZERO,
    by_hash: ByHashMode::On,
};

/// What a run came to.
#[derive(Default)]
struct Run {
    answers: Vec<Bytes>,
    /// Calls that the upstreams got, those of the house included.
    calls: u64,
    /// Answers that the cache had.
    hits: usize,
}

/// A world, the nodes of its chain and the proxy before them.
struct Stage {
    world: Arc<World>,
    nodes: Vec<Arc<SimNode>>,
    proxy: Arc<Proxy>,
    worker: WorkerChains,
    sweeper: Sweeper,
}

impl Stage {
    fn new(seed: u64, keeps: bool) -> Self {
        let now = Instant::now().into_std();
        let world = World::new(WorldConfig {
            history_blocks: 80,
            safe_distance: 8,
            finalized_distance: 16,
            ..WorldConfig::seeded(seed)
        });
        let nodes: Vec<Arc<SimNode>> =
            ["a", "b"].map(|id| SimNode::new(id, Arc::clone(&world))).into();
        let upstreams: Vec<Arc<Upstream>> = nodes
            .iter()
            .zip(0..)
            .map(|(node, slot)| upstream(node.id(), Slot(slot), now))
            .collect();
        let roster = Roster::new(upstreams.clone(), MethodRules::default(), Vec::new());
        let heads = Heads::new(nodes.len(), None, None).among(UpstreamList::of(&upstreams));
        let poll_min = Some(PollPace::default().poll_min);
        let terms = HeadsTerms { poll_min, ..HeadsTerms::default() };
        heads.change(&terms, UpstreamSet::NONE, now);
        let id = ChainId(world.config().chain_id);
        let cache = keeps.then(|| Arc::new(Cache::new(SETTINGS, now, 1_750_000_000_000, seed)));
        let chain = ServedChain::new(
            ChainName { name: "main".into(), aliases: Vec::new() },
            roster,
            Arc::new(heads),
            Arc::new(Pulse::new(Some(id), now)),
            nodes.iter().map(|_| Arc::default()).collect::<Vec<Arc<CheckCounts>>>(),
            Bounds::default(),
        );
        let chain = Arc::new(chain.pinning(true).sharing(cache.clone(), cache.map(|_| 7)));
        for (upstream, node) in chain.roster.upstreams().iter().zip(&nodes) {
            let watcher = Watcher::new(
                WatcherParts {
                    upstream: Arc::clone(upstream),
                    transport: Arc::new(SimTransport::new(Arc::clone(node))),
                    feed: None,
                    heads: Arc::clone(&chain.heads),
                    pulse: Arc::clone(&chain.pulse),
                    counts: Arc::clone(&chain.asked[upstream.slot().index()]),
                },
                PollPace::default(),
            );
            tokio::spawn(watcher.among(UpstreamList::of(chain.roster.upstreams())).run());
        }
        let way = |node: &Arc<SimNode>| {
            Arc::new(SimTransport::new(Arc::clone(node))) as Arc<dyn Transport>
        };
        let worker =
            WorkerChains::new(vec![WorkerUpstreams::new(nodes.iter().map(way).collect(), seed)]);
        let settings = Settings {
            limits: ParseLimits::default(),
            batch_parallel: 4,
            total: Duration::from_secs(30),
            log_requests: false,
            upstream_calls: 5_000,
        };
        let proxy = Arc::new(Proxy::new(vec![chain], settings));
        let sweeper = Sweeper::new(proxy.replaceable());
        Self { world, nodes, proxy, worker, sweeper }
    }

    /// A block time, and until the newest block is seen.
    async fn pass(&mut self) {
        sleep(self.world.config().block_time).await;
        let newest = BlockHash(self.world.head().hash.0);
        let chain = &self.proxy.chains()[0];
        for _ in 0..LOOKS_MAX {
            // A test waits for it.
            let now = Instant::now().into_std();
            chain.pulse.note_call(now);
            chain.pulse.note_tag(now);
            let view = chain.heads.view();
            let seen = view.latest.and_then(|head| head.hash);
            let marks =
                [Tag::Safe, Tag::Finalized].map(|tag| view.mark(tag).map(|mark| mark.number.0));
            if seen == Some(newest) && marks == self.marks() {
                return self.sweeper.sweep();
            }
            sleep(LOOK_EVERY).await;
        }
        panic!("block {} is not seen", self.world.head().number());
    }

    /// Which blocks are safe and final now.
    fn marks(&self) -> [Option<u64>; 2] {
        let (head, config) = (self.world.head().number(), self.world.config());
        [config.safe_distance, config.finalized_distance].map(|distance| Some(head - distance))
    }

    async fn ask(&self, body: Vec<u8>) -> (Bytes, bool) {
        let received_at = Instant::now().into_std();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let ctx = Ctx {
            received_at,
            peer,
            caller: None,
            want_trail: false,
            known_block: None,
            may_stream: true,
            trace_parent: None,
        };
        let answer = self.proxy.handle(&self.worker, ctx, None, Bytes::from(body)).await;
        assert_eq!(answer.status, 200);
        (answer.body.concat().into(), answer.cache == Some("hit"))
    }
}

fn upstream(name: &str, slot: Slot, now: std::time::Instant) -> Arc<Upstream> {
    let identity = Identity::named(name);
    Arc::new(Upstream::new(identity, slot, BreakerBounds::default(), now))
}

async fn play(seed: u64, keeps: bool) -> Run {
    let mut stage = Stage::new(seed, keeps);
    stage.pass().await;
    let mut traffic = Traffic::new(seed, stage.world.known());
    let mut run = Run::default();
    for number in 0..CALLS {
        if number % CALLS_A_BLOCK == 0 {
            let block = number / CALLS_A_BLOCK;
            if block % BLOCKS_A_REORG == BLOCKS_A_REORG - 1 {
                let depth = 1 + (seed + block) % 8;
                stage.world.reorg(depth).expect("not as deep as what is final");
            }
            stage.world.mine();
            stage.pass().await;
            traffic.learn(stage.world.known());
        }
        let call = traffic.next().expect("it never ends");
        let (answer, is_hit) = stage.ask(call.body(number)).await;
        run.hits += usize::from(is_hit);
        run.answers.push(answer);
    }
    run.calls = stage.nodes.iter().map(|node| node.calls()).sum();
    run
}

async fn check(seed: u64) {
    let (with, without) = (play(seed, true).await, play(seed, false).await);
    for (number, (one, other)) in with.answers.iter().zip(&without.answers).enumerate() {
        assert_eq!(one, other, "call {number} of seed {seed}");
    }
    assert_eq!((with.answers.len(), without.hits), (CALLS as usize, 0));
    println!(
        "seed {seed}: {} calls to upstreams instead of {}, {} hits",
        with.calls, without.calls, with.hits
    );
    // Most is asked of the newest state, whose answers do not say of which block they are.
    assert!(with.hits >= CALLS as usize / 20, "{} hits", with.hits);
    assert!(with.calls + CALLS / 20 < without.calls, "{} of {}", with.calls, without.calls);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_are_answered_alike() {
    check(1).await;
}

#[tokio::test(start_paused = true)]
async fn and_ten_thousand_others() {
    check(2).await;
}
