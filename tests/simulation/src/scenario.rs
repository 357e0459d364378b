//! What will be played: everything that one seed decides.
//!
//! Drawn before anything runs, so that it can be printed, and so that a change in how
//! calls are made does not change the weather of every seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wellhead_dispatch::Hedging;
use wellhead_proxy::{ByHashMode, CacheSettings, Level};
use wellhead_sim::WorldConfig;
use wellhead_sim::rpc::HashMeans;
use wellhead_upstream::{BreakerBounds, Tier};
use wellhead_watch::Mode;

use crate::meter::Limit;
use crate::session::PendingForm;
use crate::weather::{FeedHabit, Kind, Spell};
use crate::words::{Dialect, Envelope};

/// How much of a scenario is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// For long runs of an optimised build.
    Full,
    /// For the tests of every change.
    Short,
}

/// Everything that is played for one seed.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// Where it comes from.
    pub seed: u64,
    /// Clients begin no calls after this.
    pub length: Duration,
    /// How the proxy is set.
    pub settings: Settings,
    /// The chains.
    pub chains: Vec<ChainPlan>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The clients that subscribe.
    pub subscribers: Vec<SubscriberPlan>,
    /// The chains go on for this long after the last client has left.
    pub tail: Duration,
    /// Trouble goes from one upstream to the next, so that one is well at any moment,
    /// and then no read may fail, whichever was resting a moment ago.
    pub is_relay: bool,
    /// One address takes all it can get, while all upstreams are well.
    pub is_crowd: bool,
}

/// What a config file would say.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `timeouts.total`.
    pub total: Duration,
    /// `timeouts.attempt`.
    pub attempt: Duration,
    /// `attempts.max`.
    pub attempts_max: usize,
    /// `limits.answer_buffer`; far smaller than one would set it, so that answers flow.
    pub whole_bytes_max: usize,
    /// `limits.batch_parallel`.
    pub batch_parallel: usize,
    /// `health`.
    pub breaker: BreakerBounds,
    /// `hedging`.
    pub hedging: Option<Hedging>,
    /// `attempts.broadcast`.
    pub broadcast_max: usize,
    /// `checks.mode`.
    pub checks: Mode,
    /// Worker threads; here only sources of chance.
    pub workers: usize,
    /// Large answers of one upstream that flow at a time; the default where it is `None`.
    pub flows_max: Option<usize>,
    /// `pin` of each chain.
    pub pins: bool,
    /// `cache`, if it is enabled.
    pub cache: Option<CacheSettings>,
    /// Whether identical calls are shared.
    pub coalesces: bool,
    /// `agree` of a `quorum` for [`QUORUM_METHODS`] on chains with as many upstreams.
    pub quorum: Option<usize>,
    /// `verify.level` of each chain.
    pub verify: Level,
    /// `limits.upstream_calls`.
    pub upstream_calls: u32,
}

/// One chain.
#[derive(Debug, Clone)]
pub struct ChainPlan {
    /// Its name in the path.
    pub name: &'static str,
    /// Its world.
    pub world: WorldConfig,
    /// Whether the settings give its id.
    pub id_is_given: bool,
    /// Its upstreams.
    pub upstreams: Vec<UpstreamPlan>,
    /// What happens to the chain itself.
    pub turns: Vec<(Duration, Turn)>,
    /// A transaction enters its pool so often, if any does.
    pub pooled_every: Option<Duration>,
}

/// Something that happens to a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// So many of the newest blocks are replaced.
    Reorg(u64),
    /// No block for so long.
    Stall(Duration),
    /// So many of the newest blocks are replaced by a branch of its own length.
    Switch {
        /// Blocks replaced.
        depth: u64,
        /// Blocks of the new branch.
        length: u64,
    },
    /// The branch that the last reorg left is the chain again.
    Return,
}

/// One upstream.
#[derive(Debug, Clone, Default)]
pub struct UpstreamPlan {
    /// Its name.
    pub name: String,
    /// The key in its URL.
    pub api_key: String,
    /// When it is asked.
    pub tier: Tier,
    /// It shows another chain.
    pub is_elsewhere: bool,
    /// An answer takes so long at least.
    pub latency: Duration,
    /// And up to so much more.
    pub jitter: Duration,
    /// How it counts calls, and what it says to too many.
    pub meter: Option<(Limit, Dialect)>,
    /// Calls a second that it answers, the others wait.
    pub shaped: Option<u32>,
    /// Connections to it of one worker, each with one call at a time; a call that hangs keeps
    /// its own for as long as a caller waits for the answer. `None`: any number.
    pub connections: Option<usize>,
    /// How it writes.
    pub envelope: Envelope,
    /// Whether it takes batches.
    pub takes_batches: bool,
    /// Whether it refuses a block by its hash where a state is asked for.
    pub heights_only: bool,
    /// What the hash of a block means to it where a state is asked for.
    pub hash_means: HashMeans,
    /// Whether it tells new blocks by itself, over a connection that its weather spares as
    /// little as it does its answers.
    pub has_feed: bool,
    /// How it tells them.
    pub feed_habit: FeedHabit,
    /// Blocks that a search for logs may go through.
    pub log_range_max: Option<u64>,
    /// What the settings let it be asked for.
    pub budget: Option<Budget>,
    /// What goes wrong, one after the other.
    pub spells: Vec<Spell>,
}

/// What one upstream may be asked for, by its settings. A call costs one credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// `budget.calls_per_second`.
    pub calls_per_second: Option<u64>,
    /// `budget.in_flight`.
    pub in_flight: Option<u32>,
    /// `budget.credits_per_day`.
    pub credits_per_day: Option<u64>,
    /// `budget.overspend`.
    pub overspend: bool,
}

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientPlan {
    /// Its chance.
    pub seed: u64,
    /// To which chain it talks.
    pub chain: usize,
    /// How it calls.
    pub habit: Habit,
    /// It begins so late.
    pub from: Duration,
    /// And makes so many requests at most.
    pub requests: u32,
    /// Now and then it is quiet for a while, so that few calls see much weather.
    pub pauses: bool,
    /// It calls from the address that takes all it can get, and is owed nothing.
    pub is_rude: bool,
}

/// How a client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// One call after the other, at this pace.
    Steady(Duration),
    /// So many at once, then a pause.
    Bursts(u32, Duration),
    /// Batches of up to so many items.
    Batches(u32, Duration),
    /// Hangs up on most of its calls after about so long.
    Impatient(Duration),
    /// Sends transactions and waits for them.
    Sender(Duration),
    /// Makes filters and polls them.
    Filters(Duration),
    /// Asks for large answers and reads them slowly.
    Reader(Duration),
    /// Asks for so many large answers at once, and takes a piece of each after so long.
    Stalls(u32, Duration),
    /// Batches of so many searches for logs over all blocks.
    Searches(u32, Duration),
}

/// One client that subscribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriberPlan {
    /// Its chance.
    pub seed: u64,
    /// To which chain it is connected.
    pub chain: usize,
    /// It comes so late.
    pub from: Duration,
    /// And leaves.
    pub until: Duration,
    /// What it does.
    pub habit: SubscriberHabit,
    /// It keeps filters besides, and does something with one about so often.
    pub polls_every: Option<Duration>,
    /// It subscribes to pending transactions besides.
    pub pending: Option<PendingForm>,
}

/// What a subscriber does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriberHabit {
    /// Subscribes, and listens.
    Listens,
    /// Reads nothing now and then, for up to so long.
    Stalls(Duration),
    /// Leaves, and comes again.
    Returns,
    /// Subscribes and unsubscribes at this pace.
    Storms(Duration),
}

/// A key that no text holds by chance; every one begins with this.
pub const KEY_MARK: &str = "sk5ec2e7";

/// What several upstreams must answer alike, where anything is.
pub const QUORUM_METHODS: [&str; 2] = ["eth_getBalance", "eth_call"];

/// `limits.upstream_calls` where it is not set.
pub(crate) const UPSTREAM_CALLS: u32 = 5_000;

/// So many blocks a reorg replaces at most: two epochs, after which mainnet is final.
const DEPTH_MAX: u64 = 64;

/// One upstream comes back this long after an outage of a chain began, at least.
const OUTAGE_MIN: Duration = Duration::from_secs(4);

impl Scenario {
    /// What this seed is.
    pub fn draw(seed: u64, scale: Scale) -> Self {
        let mut scenario = Self::plain(seed, scale);
        // Of its own chance: what is added here changes no seed's weather and clients.
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0xfeed_c4ed_175e);
        scenario.settings.flows_max = rng.random_ratio(1, 3).then(|| rng.random_range(1..=3));
        for chain in &mut scenario.chains {
            chain.embellish(rng, scenario.length);
        }
        scenario.settings.pins = rng.random();
        // And of another, for the same reason.
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x5eed_0f1d_a5cc);
        scenario.settings.cache = rng.random_ratio(2, 3).then(|| draw_cache(rng));
        scenario.settings.coalesces = scenario.settings.cache.is_some();
        for chain in &mut scenario.chains {
            if rng.random_ratio(1, 4) {
                chain.deepen(rng, scenario.length);
            }
        }
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x5eed_0ffa_62ee);
        if rng.random_ratio(1, 4) {
            scenario.settings.quorum = Some(2);
            scenario.chains.iter_mut().for_each(|chain| chain.mislead(rng));
        }
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x5eed_1009_0a70);
        scenario.settings.verify = [Level::Off, Level::Off, Level::Cheap, Level::Full, Level::Full]
            [rng.random_range(0..5)];
        if scenario.settings.verify == Level::Full {
            scenario.chains.iter_mut().for_each(|chain| chain.corrupt(rng));
        }
        scenario.loosen(&mut SmallRng::seed_from_u64(seed ^ 0x5eed_0f0f_f5e7));
        scenario
    }

    /// Has calls shared where nothing is kept, some upstreams take hashes for something else, and
    /// now and then all of them asked nothing.
    fn loosen(&mut self, rng: &mut SmallRng) {
        if self.settings.cache.is_none() {
            self.settings.coalesces = rng.random_ratio(1, 2);
        }
        for upstream in self.chains.iter_mut().flat_map(|chain| &mut chain.upstreams) {
            upstream.hash_means = match rng.random_range(0..8) {
                0 => HashMeans::Height,
                1 => HashMeans::LatestIfUnknown,
                _ => HashMeans::Block,
            };
        }
        // It is not noticed then that an upstream is on another chain, and the settings have to say
        // which one it is.
        let is_possible = self.chains.iter().all(|chain| {
            chain.id_is_given && !chain.upstreams.iter().any(|upstream| upstream.is_elsewhere)
        });
        if rng.random_ratio(1, 8) && is_possible {
            self.settings.checks = Mode::Off;
        }
    }

    /// Whether several upstreams of a chain must answer this method alike.
    pub fn needs_quorum(&self, chain: usize, method: &str) -> bool {
        let count = self.chains[chain].upstreams.len();
        self.settings.quorum.is_some_and(|agree| agree <= count) && QUORUM_METHODS.contains(&method)
    }

    /// Whether some upstream hides logs.
    pub fn hides_logs(&self) -> bool {
        let mut spells =
            self.chains.iter().flat_map(|it| &it.upstreams).flat_map(|upstream| &upstream.spells);
        spells.any(|spell| spell.kind == Kind::NoLogs)
    }

    /// The scenario of a seed without feeds, budgets, outages of a whole chain, a cache, deep reorgs and lies,
    /// which came later: the seeds that are kept by their number are played so.
    pub fn plain(seed: u64, scale: Scale) -> Self {
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x5eed_5eed);
        let seconds = match scale {
            Scale::Full => rng.random_range(10..=60),
            Scale::Short => rng.random_range(8..=20),
        };
        let length = Duration::from_secs(seconds);
        let chains: Vec<ChainPlan> = (0..if rng.random_ratio(1, 4) { 2 } else { 1 })
            .map(|place| ChainPlan::draw(rng, place, length))
            .collect();
        let clients = rng.random_range(2..=6);
        let requests = match scale {
            Scale::Full => 120,
            Scale::Short => 50,
        };
        let clients =
            (0..clients).map(|_| ClientPlan::draw(rng, chains.len(), length, requests)).collect();
        let settings = Settings::draw(rng);
        Self { seed, length, settings, chains, clients, ..Self::default() }
    }
}

/// Small ones have no room for a block, or for few; large ones for all that is asked.
fn draw_cache(rng: &mut SmallRng) -> CacheSettings {
    let millis = Duration::from_millis;
    CacheSettings {
        bytes: [16 << 10, 512 << 10, 64 << 20, 64 << 20][rng.random_range(0..4)],
        head: millis([0, 1_000, 1_000, 5_000][rng.random_range(0..4)]),
        null: millis([0, 0, 500, 3_000][rng.random_range(0..4)]),
        by_hash: if rng.random_ratio(3, 4) { ByHashMode::Auto } else { ByHashMode::Off },
    }
}

impl Default for Settings {
    /// What wellhead has by itself, but that it looks at no answer and keeps none.
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            attempt: Duration::from_secs(5),
            attempts_max: 4,
            whole_bytes_max: 1 << 20,
            batch_parallel: 32,
            breaker: BreakerBounds::default(),
            hedging: Some(Hedging::default()),
            broadcast_max: 3,
            checks: Mode::On,
            workers: 1,
            flows_max: None,
            pins: false,
            cache: None,
            coalesces: false,
            quorum: None,
            verify: Level::Off,
            upstream_calls: UPSTREAM_CALLS,
        }
    }
}

impl Settings {
    fn draw(rng: &mut SmallRng) -> Self {
        let seconds = Duration::from_secs;
        Self {
            total: seconds(if rng.random_ratio(3, 4) { 30 } else { 10 }),
            attempt: seconds([5, 5, 2, 1][rng.random_range(0..4)]),
            attempts_max: [4, 4, 4, 2, 6][rng.random_range(0..5)],
            whole_bytes_max: [512, 4096, 1 << 20][rng.random_range(0..3)],
            batch_parallel: [32, 4, 1][rng.random_range(0..3)],
            breaker: BreakerBounds {
                failures_max: 3,
                rest: seconds(1),
                rest_max: seconds([2, 8, 30][rng.random_range(0..3)]),
                ..BreakerBounds::default()
            },
            hedging: rng.random_ratio(3, 4).then(Hedging::default),
            broadcast_max: rng.random_range(1..=3),
            checks: if rng.random_ratio(1, 8) { Mode::Ephemeral } else { Mode::On },
            workers: rng.random_range(1..=2),
            ..Self::default()
        }
    }
}

/// The world of mainnet's chain id, with a short past and few accounts.
pub(crate) fn small_world(seed: u64) -> WorldConfig {
    WorldConfig {
        seed,
        chain_id: 1337,
        history_blocks: 8,
        wallets: 3,
        bots: 1,
        txs_per_block: 0,
        finalized_distance: 6,
        safe_distance: 3,
        ..WorldConfig::default()
    }
}

impl ChainPlan {
    fn draw(rng: &mut SmallRng, place: usize, length: Duration) -> Self {
        let is_slow = rng.random_ratio(2, 3);
        let (block_ms, txs) = match is_slow {
            true => ([12_000, 2_000][rng.random_range(0..2)], rng.random_range(0..3)),
            false => (250, 0),
        };
        let world = WorldConfig {
            chain_id: 1337 + place as u64,
            block_time: Duration::from_millis(block_ms),
            txs_per_block: txs,
            ..small_world(rng.random())
        };
        let id_is_given = rng.random_ratio(2, 3);
        let count = rng.random_range(1..=5);
        // In most scenarios an upstream is well all the time, and then no read may fail.
        let steady = rng.random_ratio(4, 5).then(|| rng.random_range(0..count));
        let mut upstreams = Vec::new();
        for slot in 0..count {
            let is_steady = steady == Some(slot);
            let is_elsewhere = id_is_given && !is_steady && count > 1 && rng.random_ratio(1, 20);
            upstreams.push(UpstreamPlan::draw(rng, place, slot, is_steady, is_elsewhere, length));
        }
        let mut turns = Vec::new();
        let mut at = Duration::ZERO;
        while rng.random_ratio(1, 2) && turns.len() < 4 {
            at += length.mul_f64(rng.random_range(0.05..0.5));
            turns.push((
                at,
                match rng.random_ratio(2, 3) {
                    true => Turn::Reorg(rng.random_range(1..=3)),
                    false => Turn::Stall(Duration::from_millis(rng.random_range(500..20_000))),
                },
            ));
        }
        let name = ["ethereum", "gnosis"][place];
        Self { name, world, id_is_given, upstreams, turns, pooled_every: None }
    }

    /// Adds feeds, budgets, and in some chains a time in which all upstreams are down.
    fn embellish(&mut self, rng: &mut SmallRng, length: Duration) {
        for upstream in &mut self.upstreams {
            upstream.has_feed = rng.random_ratio(1, 3);
            // An upstream with troubles may have bounds besides; the others stay as they are, so
            // that one is well without any.
            if !upstream.spells.is_empty() && rng.random_ratio(1, 4) {
                upstream.budget = Some(Budget::draw(rng));
            }
        }
        if rng.random_ratio(1, 5) {
            let from = length.mul_f64(rng.random_range(0.1..0.4));
            let until = (from + OUTAGE_MIN).max(length.mul_f64(rng.random_range(0.4..0.8)));
            self.black_out(rng, from, until);
        }
    }

    /// Most spells become lies, but not those of which outages are made, or of quorums.
    fn corrupt(&mut self, rng: &mut SmallRng) {
        for spell in self.upstreams.iter_mut().flat_map(|upstream| &mut upstream.spells) {
            let stays =
                matches!(spell.kind, Kind::Crash | Kind::Hang | Kind::Page(_) | Kind::Mislead);
            if !stays && rng.random_ratio(3, 4) {
                spell.kind = Kind::Lie;
            }
        }
    }

    /// Gives the chain a longer past, and reorgs of up to all that is not final.
    fn deepen(&mut self, rng: &mut SmallRng, length: Duration) {
        self.world.history_blocks = DEPTH_MAX + 16;
        self.world.finalized_distance = DEPTH_MAX;
        self.world.safe_distance = DEPTH_MAX / 2;
        for _ in 0..rng.random_range(1..=3) {
            let at = length.mul_f64(rng.random_range(0.1..0.9));
            let depth = rng.random_range(2..=DEPTH_MAX);
            self.turns.push((at, Turn::Reorg(depth)));
        }
        self.turns.sort_by_key(|(at, _)| *at);
    }

    /// Has one of three or more mislead where it would have had other troubles, but for those
    /// of which outages are made.
    fn mislead(&mut self, rng: &mut SmallRng) {
        let troubled: Vec<usize> = (0..self.upstreams.len())
            .filter(|slot| !self.upstreams[*slot].spells.is_empty())
            .collect();
        if self.upstreams.len() < 3 || troubled.is_empty() {
            return;
        }
        let liar = troubled[rng.random_range(0..troubled.len())];
        for spell in &mut self.upstreams[liar].spells {
            if !matches!(spell.kind, Kind::Crash | Kind::Hang | Kind::Page(_)) {
                spell.kind = Kind::Mislead;
            }
        }
    }

    /// No upstream is there between the two; then one comes back, and the others later.
    fn black_out(&mut self, rng: &mut SmallRng, from: Duration, until: Duration) {
        let first = rng.random_range(0..self.upstreams.len());
        for (slot, upstream) in self.upstreams.iter_mut().enumerate() {
            let longer = match slot == first {
                true => Duration::ZERO,
                false => Duration::from_millis(rng.random_range(0..20_000)),
            };
            let kind = match rng.random_range(0..4) {
                0 | 1 => Kind::Crash,
                2 => Kind::Hang,
                _ => Kind::Page(503),
            };
            let begins = from.saturating_sub(Duration::from_millis(rng.random_range(0..1000)));
            let spell = Spell { from: begins, until: until + longer, kind };
            upstream.spells.retain(|it| it.until <= spell.from || it.from >= spell.until);
            upstream.spells.push(spell);
            upstream.spells.sort_by_key(|spell| spell.from);
        }
    }
}

impl UpstreamPlan {
    fn draw(
        rng: &mut SmallRng,
        chain: usize,
        slot: usize,
        is_steady: bool,
        is_elsewhere: bool,
        length: Duration,
    ) -> Self {
        let millis = Duration::from_millis;
        let letter = char::from(b'a' + u8::try_from(slot).unwrap_or(25));
        let meter = (!is_steady && rng.random_ratio(1, 4)).then(|| {
            let window = [millis(1000), millis(10_000)][rng.random_range(0..2)];
            let calls = rng.random_range(3..40) * if window > millis(1000) { 5 } else { 1 };
            let limit = match rng.random() {
                true => Limit::Fixed { window, calls },
                false => Limit::Sliding { window, calls },
            };
            (limit, Dialect::draw(rng))
        });
        let shaped = (!is_steady && rng.random_ratio(1, 10)).then(|| rng.random_range(5..60));
        let mut spells = Vec::new();
        if !is_steady {
            let mut at = Duration::ZERO;
            for _ in 0..rng.random_range(0..6) {
                at += length.mul_f64(rng.random_range(0.0..0.4));
                let until = at + length.mul_f64(rng.random_range(0.02..0.5));
                spells.push(Spell { from: at, until, kind: Kind::draw(rng) });
                at = until;
            }
        }
        Self {
            name: format!("up-{chain}{letter}"),
            api_key: format!("{KEY_MARK}{:016x}", rng.random::<u64>()),
            tier: [Tier::Primary, Tier::Primary, Tier::Primary, Tier::Fallback, Tier::Public]
                [rng.random_range(0..5)],
            is_elsewhere,
            latency: millis([0, 1, 5, 20, 80, 200][rng.random_range(0..6)]),
            jitter: millis(rng.random_range(0..50)),
            meter,
            shaped,
            envelope: Envelope::draw(rng),
            takes_batches: rng.random_ratio(4, 5),
            heights_only: rng.random_ratio(1, 6),
            spells,
            ..Self::default()
        }
    }
}

impl Budget {
    fn draw(rng: &mut SmallRng) -> Self {
        Self {
            calls_per_second: rng.random_ratio(1, 2).then(|| rng.random_range(2..40)),
            in_flight: rng.random_ratio(1, 2).then(|| rng.random_range(1..8)),
            credits_per_day: rng.random_ratio(1, 3).then(|| rng.random_range(20..300)),
            overspend: rng.random_ratio(1, 4),
        }
    }
}

impl ClientPlan {
    fn draw(rng: &mut SmallRng, chains: usize, length: Duration, requests: u32) -> Self {
        let pace = Duration::from_millis([5, 20, 100, 500, 1000][rng.random_range(0..5)]);
        let habit = match rng.random_range(0..10) {
            0..=2 => Habit::Steady(pace),
            3 => Habit::Bursts(rng.random_range(2..30), pace * 10),
            4 | 5 => Habit::Batches(rng.random_range(2..20), pace * 4),
            6 => Habit::Impatient(Duration::from_millis(rng.random_range(1..1500))),
            7 => Habit::Sender(pace * 2),
            8 => Habit::Filters(pace),
            _ => Habit::Reader(pace),
        };
        Self {
            seed: rng.random(),
            chain: rng.random_range(0..chains),
            habit,
            // Some come before any upstream was verified.
            from: length.mul_f64([0.0, 0.0, 0.1, 0.4][rng.random_range(0..4)]),
            requests,
            pauses: true,
            is_rude: false,
        }
    }

    /// One that calls the first chain from the first moment until the scenario ends.
    pub(crate) fn endless(rng: &mut SmallRng) -> Self {
        Self {
            seed: rng.random(),
            chain: 0,
            habit: Habit::Steady(Duration::from_secs(1)),
            from: Duration::ZERO,
            requests: u32::MAX,
            pauses: false,
            is_rude: false,
        }
    }
}
