//! The pieces of the demo: one world, three unreliable upstreams, scripted weather.
//!
//! Makes blocks and trouble; it neither runs a proxy nor draws anything: that is
//! `wellhead demo`. Everything stops when the [`Fleet`] is dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::fake::FakeUpstream;
use crate::node::{Dials, Fault, LatencyDial, SimNode};
use crate::world::{World, WorldConfig};

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// The script starts again after this long.
pub const CYCLE: Duration = Duration::from_secs(90);
/// Blocks made in one tick; a machine that slept catches up slowly.
const BLOCKS_PER_TICK_MAX: u64 = 8;

/// The chain of a demo.
fn chain(seed: u64) -> WorldConfig {
    WorldConfig {
        block_time: Duration::from_secs(2),
        history_blocks: 96,
        txs_per_block: 8,
        ..WorldConfig::seeded(seed)
    }
}

/// What the weather does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything goes wrong so.
    Fault(Fault),
    /// Falls this many blocks behind.
    Lag(u64),
    /// Stands still.
    Stuck,
    /// Takes so much longer.
    Slow(Duration),
    /// Says that it is syncing.
    Syncing,
}

/// One piece of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// From the start of the cycle.
    pub from: Duration,
    /// To, from the start of the cycle.
    pub until: Duration,
    /// The upstream that has it.
    pub upstream: &'static str,
    /// What.
    pub weather: Weather,
    /// For people.
    pub words: &'static str,
}

const fn spell(
    from: u64,
    until: u64,
    upstream: &'static str,
    weather: Weather,
    words: &'static str,
) -> Spell {
    let (from, until) = (Duration::from_secs(from), Duration::from_secs(until));
    Spell { from, until, upstream, weather, words }
}

const AFTER_TWO: Fault = Fault::TooMany { retry_after: Some(Duration::from_secs(2)) };

/// The script of one cycle. At every moment one upstream at least is well.
pub const SCRIPT: &[Spell] = &[
    spell(8, 14, "shaky", Weather::Fault(Fault::Down), "down: connections are refused"),
    spell(18, 28, "steady", Weather::Lag(4), "4 blocks behind"),
    spell(32, 37, "shaky", Weather::Fault(Fault::Hang), "accepts and never answers"),
    spell(40, 48, "swift", Weather::Fault(AFTER_TWO), "429 to everything"),
    spell(52, 60, "shaky", Weather::Stuck, "head stands still"),
    spell(58, 66, "steady", Weather::Slow(Duration::from_millis(600)), "600 ms slower"),
    spell(68, 74, "shaky", Weather::Fault(Fault::Html(502)), "HTML error pages"),
    spell(76, 82, "swift", Weather::Syncing, "says it is syncing"),
    spell(82, 88, "shaky", Weather::Fault(Fault::TooManyIn200), "rate limit inside HTTP 200"),
];

/// When in the cycle the newest blocks are replaced, and how many.
pub const REORGS: &[(Duration, u64)] =
    &[(Duration::from_secs(44), 1), (Duration::from_secs(86), 2)];

/// What is scripted for each upstream at this moment of the cycle.
pub fn forecast(at: Duration) -> impl Iterator<Item = &'static Spell> {
    SCRIPT.iter().filter(move |spell| (spell.from..spell.until).contains(&at))
}

/// The names of the upstreams, quickest first.
pub const UPSTREAMS: [&str; 3] = ["swift", "shaky", "steady"];

/// How an upstream is when the sky is clear.
pub fn character(upstream: &str, chain_id: u64) -> Dials {
    let millis = Duration::from_millis;
    let mut dials = Dials::healthy(chain_id);
    match upstream {
        "swift" => dials.latency = LatencyDial::even(millis(5), millis(10)),
        "shaky" => {
            dials.latency = LatencyDial {
                base: millis(12),
                jitter: millis(8),
                tail_percent: 3.0,
                tail: millis(400),
            };
            dials.error_percent = 4.0;
            dials.errors = vec![
                Fault::Status(502),
                Fault::Html(503),
                Fault::Internal,
                Fault::Reset,
                Fault::Truncated,
                Fault::TooMany { retry_after: None },
                Fault::TooManyIn200,
            ];
        }
        _ => {
            dials.latency = LatencyDial {
                base: millis(28),
                jitter: millis(6),
                tail_percent: 0.5,
                tail: millis(150),
            };
        }
    }
    dials
}

/// The running demo world.
#[derive(Debug)]
pub struct Fleet {
    world: Arc<World>,
    upstreams: Vec<FakeUpstream>,
    sky: watch::Receiver<Sky>,
    _stop: DropGuard,
}

/// What is wrong with which upstream right now, for people; those that are well are not listed.
pub type Sky = BTreeMap<&'static str, &'static str>;

impl Fleet {
    /// Builds the world, which has its head at `now_unix`, opens the ports and starts the weather.
    /// Must be called inside a tokio runtime.
    pub fn start(seed: u64, now_unix: Duration) -> io::Result<Self> {
        Self::start_with(chain(seed), now_unix)
    }

    fn start_with(mut world: WorldConfig, now_unix: Duration) -> io::Result<Self> {
        let history = world.block_time * u32::try_from(world.history_blocks).unwrap_or(u32::MAX);
        world.genesis_time_secs = now_unix.saturating_sub(history).as_secs();
        let world = World::new(world);
        let chain_id = world.config().chain_id;
        let upstreams = UPSTREAMS
            .iter()
            .map(|id| {
                let dials = character(id, chain_id);
                FakeUpstream::start(SimNode::with_dials(*id, Arc::clone(&world), dials))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let stop = CancellationToken::new();
        let (sky_sender, sky) = watch::channel(Sky::new());
        let nodes = upstreams.iter().map(|upstream| Arc::clone(upstream.node())).collect();
        let days = Days { world: Arc::clone(&world), nodes, sky: sky_sender };
        tokio::spawn(days.pass(stop.clone()));
        Ok(Self { world, upstreams, sky, _stop: stop.drop_guard() })
    }

    /// The chain.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The upstreams, quickest first.
    pub fn upstreams(&self) -> &[FakeUpstream] {
        &self.upstreams
    }

    /// The weather, with every change.
    pub fn sky(&self) -> watch::Receiver<Sky> {
        self.sky.clone()
    }
}

/// The background loop: blocks and weather.
struct Days {
    world: Arc<World>,
    nodes: Vec<Arc<SimNode>>,
    sky: watch::Sender<Sky>,
}

impl Days {
    async fn pass(self, stop: CancellationToken) {
        let started = Instant::now();
        let first = self.world.head().number();
        let block_time = self.world.config().block_time.max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = Duration::ZERO;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let elapsed = started.elapsed();
            let due = elapsed.as_nanos() / block_time.as_nanos();
            let due = first + u64::try_from(due).unwrap_or(u64::MAX / 2);
            for _ in 0..due.saturating_sub(self.world.head().number()).min(BLOCKS_PER_TICK_MAX) {
                self.world.mine();
            }
            self.play(before, elapsed);
            before = elapsed;
        }
    }

    /// Brings every upstream to what the script says for `now`.
    fn play(&self, before: Duration, now: Duration) {
        let at = within_cycle(now);
        let mut sky = Sky::new();
        for spell in forecast(at) {
            sky.insert(spell.upstream, spell.words);
        }
        if *self.sky.borrow() != sky {
            for node in &self.nodes {
                self.put_under(node, at);
            }
            tracing::info!(?sky, "weather changed");
            self.sky.send_replace(sky);
        }
        for (moment, depth) in REORGS {
            let passed = within_cycle(before) < *moment && *moment <= at;
            if passed && let Err(error) = self.world.reorg(*depth) {
                tracing::warn!(%error, depth, "no reorg");
            }
        }
    }

    fn put_under(&self, node: &SimNode, at: Duration) {
        let clear = character(node.id(), self.world.config().chain_id);
        let head = node.head().hash;
        let stuck_before = node.dials().stuck_at;
        let over_it = forecast(at).filter(|spell| spell.upstream == node.id());
        let dials = over_it.fold(clear, |mut dials, spell| {
            match spell.weather {
                Weather::Fault(fault) => dials.fault = Some(fault),
                Weather::Lag(blocks) => dials.lag_blocks = blocks,
                Weather::Stuck => dials.stuck_at = Some(stuck_before.unwrap_or(head)),
                Weather::Slow(more) => dials.latency.base += more,
                Weather::Syncing => dials.facts.syncing = true,
            }
            dials
        });
        if *node.dials() != dials {
            node.turn(|old| *old = dials);
        }
    }
}

fn within_cycle(elapsed: Duration) -> Duration {
    Duration::from_nanos(u64::try_from(elapsed.as_nanos() % CYCLE.as_nanos()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_upstream_is_always_well() {
        for second in 0..CYCLE.as_secs() {
            let ill: Vec<_> =
                forecast(Duration::from_secs(second)).map(|spell| spell.upstream).collect();
            assert!(ill.len() < UPSTREAMS.len(), "second {second}: {ill:?}");
            assert!(ill.iter().all(|id| UPSTREAMS.contains(id)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn blocks_come_and_the_weather_plays() {
        let (world, now) = (WorldConfig { txs_per_block: 1, ..chain(2026) }, 1_790_000_000);
        let fleet = Fleet::start_with(world, Duration::from_secs(now)).unwrap();
        let first = fleet.world().head();
        assert_eq!(first.header.timestamp, now);
        let (shaky, steady) = (fleet.upstreams()[1].node(), fleet.upstreams()[2].node());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(shaky.dials().fault, Some(Fault::Down));
        assert_eq!(fleet.sky().borrow().keys().collect::<Vec<_>>(), [&"shaky"]);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(shaky.dials().fault, None);
        assert_eq!(steady.dials().lag_blocks, 4);
        assert_eq!(fleet.world().head().number(), first.number() + 10);
        tokio::time::sleep(Duration::from_millis(79_500)).await;
        assert_eq!(fleet.world().head().number(), first.number() + 50);
        assert!(!fleet.world().chain().side_heads().is_empty(), "no reorg");
    }
}
