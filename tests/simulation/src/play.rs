//! Plays one seed: the worlds move, the weather comes and goes, the clients call.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{B256, U256};
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};
use wellhead_proxy::{Proxy, Sweeper};
use wellhead_sim::World;
use wellhead_sim::world::{CanonicalChange, Fee, ForkError, TxBody};

use crate::ask::GAS_PRICE;
use crate::check::{self, Violation};
use crate::client::{self, Desk};
use crate::evidence::{Evidence, Left};
use crate::log;
use crate::record::Recorder;
use crate::sabotage::{Sabotage, Saboteur};
use crate::scenario::{ChainPlan, Scale, Scenario, Turn};
use crate::stage::Stage;
use crate::subscriber;
use crate::upstream::SimUpstream;
use crate::weather::Spell;

/// Tasks that were told to end get so many turns to do so.
const LAST_TURNS: usize = 16;

/// What became of a seed.
#[derive(Debug)]
pub struct Report {
    /// Which.
    pub seed: u64,
    /// What was wrong, earliest first.
    pub violations: Vec<Violation>,
    /// Everything that was seen.
    pub evidence: Evidence,
}

/// Plays `seed` and checks it.
pub fn play(seed: u64, scale: Scale) -> Report {
    play_scenario(Scenario::draw(seed, scale))
}

/// Plays a scenario and checks it.
pub fn play_scenario(scenario: Scenario) -> Report {
    play_sabotaged(scenario, None)
}

/// Plays a scenario in which something is broken on purpose, and checks it.
pub fn play_sabotaged(scenario: Scenario, sabotage: Option<Sabotage>) -> Report {
    let seed = scenario.seed;
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing that could be missing");
    let evidence = runtime.block_on(act(scenario, sabotage));
    let mut violations = check::all(&evidence);
    violations.sort_by_key(|violation| violation.at);
    Report { seed, violations, evidence }
}

async fn act(scenario: Scenario, sabotage: Option<Sabotage>) -> Evidence {
    let recorder = Recorder::new(Evidence::new(scenario.clone()));
    let caught = log::catch(&recorder);
    let now = tokio::time::Instant::now().into_std();
    let (stage, loops) = Stage::new(&scenario, &recorder, now, sabotage);
    let mut tasks = start_worlds(&scenario, &stage, &recorder);
    tasks.extend(loops.watchers.into_iter().map(|watcher| tokio::spawn(watcher.run())));
    tasks.extend(loops.announcers.into_iter().map(|announcer| tokio::spawn(announcer.run())));
    tasks.push(tokio::spawn(sweep(Sweeper::new(stage.proxy.replaceable()))));
    let (proxy, desk) = (Arc::clone(&stage.proxy), Arc::clone(&recorder));
    let half = scenario.length / 2;
    tasks.push(tokio::spawn(async move {
        sleep(half).await;
        look(&proxy, &desk);
    }));

    play_clients(&scenario, &stage, &recorder, Saboteur::new(sabotage)).await;
    recorder.all_left();
    look(&stage.proxy, &recorder);
    sleep(scenario.tail).await;
    match sabotage {
        Some(Sabotage::ShowKey) => {
            let key = scenario.chains[0].upstreams[0].api_key.clone();
            recorder.with(|evidence| evidence.pages.push(("status", key)));
        }
        Some(Sabotage::LeaveTask) => drop(tokio::spawn(std::future::pending::<()>())),
        _ => {}
    }
    for task in &tasks {
        task.abort();
    }
    for task in tasks {
        // Cancelled, or over by itself.
        let _ = task.await;
    }
    // A transaction is still on its way to some when its sender has heard of it.
    sleep(scenario.settings.total).await;
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
    let left = Left {
        in_flight: stage.in_flight(),
        open: recorder.open(),
        tasks: Handle::current().metrics().num_alive_tasks(),
    };
    drop(caught);
    let mut evidence = recorder.take();
    evidence.left = left;
    evidence.worlds = stage.worlds;
    evidence
}

/// Has the blocks of each chain come, and its weather.
fn start_worlds(
    scenario: &Scenario,
    stage: &Stage,
    recorder: &Arc<Recorder>,
) -> Vec<JoinHandle<()>> {
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for (place, (plan, world)) in scenario.chains.iter().zip(&stage.worlds).enumerate() {
        for number in 0..=world.head().number() {
            let hash = world.chain().canonical(number).expect("the history is there").hash;
            recorder.block(place, number, hash);
        }
        tasks.push(tokio::spawn(advance(
            Arc::clone(world),
            plan.clone(),
            place,
            Arc::clone(recorder),
        )));
        if let Some(every) = plan.pooled_every {
            let (world, recorder) = (Arc::clone(world), Arc::clone(recorder));
            let pace = PoolPace { every, until: scenario.length };
            tasks.push(tokio::spawn(fill_pool(world, place, pace, recorder)));
        }
        for (own, upstream) in plan.upstreams.iter().zip(&stage.upstreams[place]) {
            let (spells, recorder) = (own.spells.clone(), Arc::clone(recorder));
            tasks.push(tokio::spawn(weather(Arc::clone(upstream), spells, recorder)));
        }
    }
    tasks
}

/// Has all clients play to their end.
async fn play_clients(
    scenario: &Scenario,
    stage: &Stage,
    recorder: &Arc<Recorder>,
    saboteur: Saboteur,
) {
    let desk = Arc::new(Desk {
        proxy: Arc::clone(&stage.proxy),
        workers: stage.workers.clone(),
        worlds: stage.worlds.clone(),
        keeps: scenario.settings.cache.is_some(),
        names: scenario.chains.iter().map(|chain| chain.name).collect(),
        recorder: Arc::clone(recorder),
        total: scenario.settings.total,
        saboteur,
    });
    let clients: Vec<_> = scenario
        .clients
        .iter()
        .enumerate()
        .map(|(name, plan)| {
            tokio::spawn(client::play(Arc::clone(&desk), *plan, name, scenario.length))
        })
        .collect();
    let subscribers: Vec<_> = scenario
        .subscribers
        .iter()
        .enumerate()
        .map(|(name, plan)| tokio::spawn(subscriber::play(Arc::clone(&desk), *plan, name)))
        .collect();
    for client in clients.into_iter().chain(subscribers) {
        client.await.expect("a client does not panic");
    }
}

/// What an operator would look at.
fn look(proxy: &Arc<Proxy>, recorder: &Recorder) {
    let status = serde_json::to_string(&proxy.status()).expect("a status is plain data");
    let mut registry = Registry::default();
    wellhead_proxy::register(proxy.replaceable(), &mut registry);
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry)
        .expect("metrics can be written to memory");
    recorder.note(format!("status {status}"));
    recorder.with(|evidence| {
        evidence.pages.push(("status", status));
        evidence.pages.push(("metrics", metrics));
    });
}

/// When transactions enter a pool.
#[derive(Debug, Clone, Copy)]
struct PoolPace {
    every: Duration,
    until: Duration,
}

/// Has transactions of the users enter the pool of a chain, one user after the other.
async fn fill_pool(world: Arc<World>, place: usize, pace: PoolPace, recorder: Arc<Recorder>) {
    for (number, key) in (1_u64..).zip(world.wallets().iter().cycle()) {
        sleep(pace.every).await;
        if recorder.now() > pace.until {
            return;
        }
        let head = world.head();
        let state = head.state.as_ref().expect("the head keeps its state");
        let nonce = world.pending_nonce(state, key.address());
        let fee = Fee::Legacy { gas_price: GAS_PRICE };
        let to = world.contracts().pair;
        let chain_id = world.config().chain_id;
        let transfer = TxBody::transfer(chain_id, nonce, fee, to, U256::from(number));
        // A full pool takes none.
        if let Ok(hash) = world.submit(&transfer.sign(key).raw) {
            recorder.pooled(place, hash);
        }
    }
}

/// Makes blocks, and reorgs and stalls where they are due.
async fn advance(world: Arc<World>, plan: ChainPlan, place: usize, recorder: Arc<Recorder>) {
    let every = plan.world.block_time;
    let mut due = every;
    let mut turns = plan.turns.into_iter().peekable();
    // The head that the last reorg left.
    let mut left = None;
    loop {
        let turn_at = turns.peek().map_or(Duration::MAX, |(at, _)| *at);
        if due < turn_at {
            sleep_until(recorder.instant(due)).await;
            let block = world.mine();
            recorder.block(place, block.number(), block.hash);
            due += every;
            continue;
        }
        let Some((at, turn)) = turns.next() else { continue };
        sleep_until(recorder.instant(at)).await;
        recorder.note(format!("chain {place}: {turn:?}"));
        match turn {
            Turn::Stall(pause) => due += pause,
            Turn::Reorg(depth) => {
                left = reorg(&world, place, &recorder, || world.reorg(depth)).or(left);
            }
            Turn::Switch { depth, length } => {
                let switch = || world.adopt(&world.fork(depth, length)?.hash);
                left = reorg(&world, place, &recorder, switch).or(left);
            }
            Turn::Return => {
                if let Some(head) = left {
                    left = reorg(&world, place, &recorder, || world.adopt(&head)).or(left);
                }
            }
        }
    }
}

/// Has the chain change as `change` does it; returns the head that was left, if it did.
fn reorg(
    world: &World,
    place: usize,
    recorder: &Recorder,
    change: impl FnOnce() -> Result<CanonicalChange, ForkError>,
) -> Option<B256> {
    let old = world.head();
    let CanonicalChange { dropped, adopted } = change().ok()?;
    let first = world.head().number() + 1 - adopted.len() as u64;
    recorder.reorg(place, (old.number(), old.hash), dropped);
    for (number, hash) in (first..).zip(adopted) {
        recorder.block(place, number, hash);
    }
    Some(old.hash)
}

async fn sweep(mut sweeper: Sweeper) {
    loop {
        sleep(Sweeper::EVERY).await;
        sweeper.sweep();
    }
}

async fn weather(upstream: Arc<SimUpstream>, spells: Vec<Spell>, recorder: Arc<Recorder>) {
    for Spell { from, until, kind } in spells {
        sleep_until(recorder.instant(from)).await;
        upstream.begin(kind);
        sleep_until(recorder.instant(until)).await;
        upstream.end(kind);
    }
}
