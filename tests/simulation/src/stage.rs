//! The real proxy over simulated upstreams, put together as the binary does it.
//!
//! What differs: transports and feeds without sockets, settings without a file.

use std::sync::Arc;
use std::time::Instant;

use wellhead_chain::{Heads, HeadsTerms};
use wellhead_dispatch::{Bounds, Inspect, Quorum, WorkerUpstreams};
use wellhead_eth::ChainId;
use wellhead_jsonrpc::ParseLimits;
use wellhead_limit::RetryBudget;
use wellhead_proxy::{
    Announcer, Cache, ChainName, Level, Proxy, ProxyWorker, QuorumRule, ServedChain, VerifyPool,
    VerifySettings, WorkerChains,
};
use wellhead_route::{DangerousMethods, Roster};
use wellhead_sim::{Dials, SimNode, World, WorldConfig};
use wellhead_transport::Transport;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{
    Budget, BudgetTerms, HiddenSecrets, Identity, MethodRules, Redactor, Slot, Upstream,
    UpstreamList, UpstreamSet,
};
use wellhead_watch::{CheckCounts, Checks, Mode, PollPace, Pulse, Watcher, WatcherParts};

use crate::evidence::{Caller, Place};
use crate::feed::FeedWay;
use crate::record::Recorder;
use crate::sabotage::Sabotage;
use crate::scenario::{ChainPlan, QUORUM_METHODS, Scenario, Settings, UpstreamPlan};
use crate::upstream::{SimLink, SimUpstream};

/// The wall time at which scenarios begin, in seconds since 1970: no day ends in one.
const NOON: u64 = 20_772 * 86_400 + 43_200;

/// Everything that plays.
#[derive(Debug)]
pub struct Stage {
    /// The proxy itself.
    pub proxy: Arc<Proxy>,
    /// One a worker.
    pub workers: Vec<Arc<WorkerChains>>,
    /// One a chain.
    pub worlds: Vec<Arc<World>>,
    /// By chain and slot.
    pub upstreams: Vec<Vec<Arc<SimUpstream>>>,
}

/// What of it is run.
#[derive(Debug, Default)]
pub struct Loops {
    /// One an upstream.
    pub watchers: Vec<Watcher>,
    /// One a chain.
    pub announcers: Vec<Announcer>,
}

impl Stage {
    /// Puts it together.
    pub fn new(
        scenario: &Scenario,
        recorder: &Arc<Recorder>,
        now: Instant,
        sabotage: Option<Sabotage>,
    ) -> (Self, Loops) {
        let (mut worlds, mut upstreams) = (Vec::new(), Vec::new());
        let mut served: Vec<Arc<ServedChain>> = Vec::new();
        let mut loops = Loops::default();
        let cache = scenario
            .settings
            .cache
            .map(|kept| Arc::new(Cache::new(kept, now, NOON * 1_000, scenario.seed)));
        for (place, plan) in scenario.chains.iter().enumerate() {
            let world = World::new(plan.world.clone());
            let mut settings = scenario.settings;
            if sabotage == Some(Sabotage::LookAway) {
                settings.verify = Level::Off;
            }
            let own = simulated(scenario.seed, place, plan, &world, recorder);
            let chain = chain(plan, &settings, now)
                .sharing(cache.clone(), scenario.settings.coalesces.then_some(scenario.seed));
            let chain = Arc::new(chain);
            loops.watchers.extend(watchers(&chain, &own, scenario.settings.checks));
            worlds.push(world);
            upstreams.push(own);
            served.push(chain);
        }
        let budgets: Vec<Arc<RetryBudget>> = upstreams.iter().map(|_| Arc::default()).collect();
        let inspectors: Vec<_> = served.iter().map(|chain| chain.inspector()).collect();
        let reach = Reach { scenario, upstreams: &upstreams, budgets, inspectors, sabotage };
        let workers = (0..scenario.settings.workers)
            .map(|worker| Arc::new(reach.worker(worker, Caller::Client)))
            .collect();
        let announcers = reach.worker(scenario.settings.workers, Caller::Announcer);
        let settings = wellhead_proxy::Settings {
            limits: ParseLimits::default(),
            batch_parallel: scenario.settings.batch_parallel,
            total: scenario.settings.total,
            log_requests: true,
            upstream_calls: match sabotage {
                Some(Sabotage::SpendFreely) => u32::MAX,
                _ => scenario.settings.upstream_calls,
            },
        };
        let proxy = Arc::new(Proxy::new(served, settings));
        loops.announcers = Announcer::all(&ProxyWorker::replaceable(&proxy, announcers));
        (Self { proxy, workers, worlds, upstreams }, loops)
    }

    /// Calls that the proxy counts as in flight, by upstream; those with none left out.
    pub fn in_flight(&self) -> Vec<(String, u32)> {
        let upstreams = self.proxy.chains().iter().flat_map(|chain| chain.roster.upstreams());
        upstreams
            .filter(|upstream| upstream.in_flight() > 0)
            .map(|upstream| (upstream.identity().id.to_string(), upstream.in_flight()))
            .collect()
    }
}

/// How workers reach upstreams.
struct Reach<'a> {
    scenario: &'a Scenario,
    upstreams: &'a [Vec<Arc<SimUpstream>>],
    budgets: Vec<Arc<RetryBudget>>,
    /// Checks the answers of each chain, if they are checked.
    inspectors: Vec<Option<Arc<dyn Inspect>>>,
    sabotage: Option<Sabotage>,
}

impl Reach<'_> {
    /// The connections of one worker to the upstreams of all chains.
    fn worker(&self, worker: usize, caller: Caller) -> WorkerChains {
        let chains = (0..self.upstreams.len()).map(|chain| {
            let own = &self.upstreams[chain];
            let ways = own.iter().map(|it| way(it, caller, self.sabotage)).collect();
            let seed = self.scenario.seed ^ ((worker * 8 + chain + 1) as u64);
            let upstreams = WorkerUpstreams::new(ways, seed)
                .spending(Arc::clone(&self.budgets[chain]))
                .inspecting(self.inspectors[chain].clone());
            match self.scenario.settings.flows_max {
                Some(most) => upstreams.flowing(own.iter().map(|_| most)),
                None => upstreams,
            }
        });
        WorkerChains::new(chains.collect())
    }
}

fn way(
    upstream: &Arc<SimUpstream>,
    caller: Caller,
    sabotage: Option<Sabotage>,
) -> Arc<dyn Transport> {
    let link = SimLink::new(Arc::clone(upstream), caller);
    let sends_again = match caller {
        Caller::Client => sabotage == Some(Sabotage::SendAgain),
        Caller::Announcer => sabotage == Some(Sabotage::AnnounceAgain),
        Caller::House => false,
    };
    Arc::new(link.sending_again(sends_again))
}

fn simulated(
    seed: u64,
    chain: usize,
    plan: &ChainPlan,
    world: &Arc<World>,
    recorder: &Arc<Recorder>,
) -> Vec<Arc<SimUpstream>> {
    let upstream = |(slot, own): (usize, &UpstreamPlan)| {
        // One that is elsewhere shows another world, and says so when it is asked.
        let (world, dials) = match own.is_elsewhere {
            false => (Arc::clone(world), Dials::healthy(plan.world.chain_id)),
            true => {
                let config = WorldConfig {
                    seed: plan.world.seed ^ 1,
                    chain_id: plan.world.chain_id + 100,
                    ..plan.world.clone()
                };
                let dials = Dials::healthy(config.chain_id);
                (World::new(config), dials)
            }
        };
        let node = SimNode::with_dials(own.name.clone(), world, dials);
        let seed = seed.rotate_left(8) ^ (chain * 16 + slot) as u64;
        SimUpstream::new(Place { chain, slot }, own.clone(), node, recorder, seed)
    };
    plan.upstreams.iter().enumerate().map(upstream).collect()
}

fn chain(plan: &ChainPlan, settings: &Settings, now: Instant) -> ServedChain {
    let count = plan.upstreams.len();
    let upstreams = plan.upstreams.iter().enumerate().map(|(slot, own)| {
        let identity = Identity { tier: own.tier, ..Identity::named(&own.name) };
        let slot = Slot(u8::try_from(slot).expect("a handful of upstreams"));
        let upstream = Upstream::new(identity, slot, settings.breaker, now);
        let mut secrets = HiddenSecrets::default();
        secrets.word(&own.api_key);
        let upstream = upstream.hiding(Redactor::of(&secrets));
        Arc::new(match own.budget {
            None => upstream,
            Some(budget) => upstream.within(within(budget)),
        })
    });
    // Writes that must not run twice are what the checkers look at.
    let dangerous = ["eth_sendTransaction".parse().expect("a method")].to_vec();
    let dangerous = DangerousMethods { allow: dangerous, on_test_chains: false };
    let roster = Roster::new(upstreams.collect(), MethodRules::default(), Vec::new());
    let roster = roster.allowing(dangerous);
    let poll_min = (settings.checks == Mode::On).then(|| PollPace::default().poll_min);
    let heads = Heads::new(count, None, None).among(UpstreamList::of(roster.upstreams()));
    let terms = HeadsTerms { poll_min, ..HeadsTerms::default() };
    heads.change(&terms, UpstreamSet::NONE, now);
    let id = plan.id_is_given.then_some(ChainId(plan.world.chain_id));
    ServedChain::new(
        ChainName { name: plan.name.into(), aliases: Vec::new() },
        roster,
        Arc::new(heads),
        Arc::new(Pulse::new(id, now)),
        (0..count).map(|_| Arc::default()).collect::<Vec<Arc<CheckCounts>>>(),
        Bounds {
            attempts_max: settings.attempts_max,
            attempt: settings.attempt,
            whole_bytes_max: settings.whole_bytes_max,
            hedging: settings.hedging,
            broadcast_max: settings.broadcast_max,
            ..Bounds::default()
        },
    )
    .pinning(settings.pins)
    .agreeing_on(&quorums(plan, settings))
    .verifying(
        &VerifySettings { level: settings.verify, ethereum: Some(true), ..VerifySettings::OFF },
        // Another thread would answer sooner or later, not the same each time.
        Arc::new(VerifyPool::nowhere()),
    )
}

/// What several upstreams must answer alike, where there are so many.
fn quorums(plan: &ChainPlan, settings: &Settings) -> Vec<QuorumRule> {
    let methods = QUORUM_METHODS.map(|method| method.parse().expect("a method's name"));
    let agree = settings.quorum.filter(|agree| *agree <= plan.upstreams.len());
    agree
        .map(|agree| QuorumRule {
            methods: methods.to_vec(),
            quorum: Quorum { agree, of: agree + 1, ..Quorum::default() },
        })
        .into_iter()
        .collect()
}

/// A budget as its settings say it.
fn within(budget: crate::scenario::Budget) -> Budget {
    let terms = BudgetTerms {
        calls_per_second: budget.calls_per_second,
        in_flight: budget.in_flight,
        credits_per_day: budget.credits_per_day,
        overspend: budget.overspend,
        learn: true,
        ..BudgetTerms::default()
    };
    Budget::new(None, &terms, NOON)
}

fn watchers(chain: &Arc<ServedChain>, own: &[Arc<SimUpstream>], mode: Mode) -> Vec<Watcher> {
    let watcher = |(upstream, simulated): (&Arc<Upstream>, &Arc<SimUpstream>)| {
        let feed = simulated.has_feed().then(|| {
            Arc::new(FeedWay { upstream: Arc::clone(simulated) }) as Arc<dyn FeedConnector>
        });
        Watcher::new(
            WatcherParts {
                upstream: Arc::clone(upstream),
                transport: way(simulated, Caller::House, None),
                feed,
                heads: Arc::clone(&chain.heads),
                pulse: Arc::clone(&chain.pulse),
                counts: Arc::clone(&chain.asked[upstream.slot().index()]),
            },
            PollPace::default(),
        )
        .checking(Checks { mode, ..Checks::default() })
        .among(UpstreamList::of(chain.roster.upstreams()))
    };
    chain.roster.upstreams().iter().zip(own).map(watcher).collect()
}
