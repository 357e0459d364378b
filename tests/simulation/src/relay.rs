//! Trouble that goes from one upstream to the next, as in the soak of `benches/scenario`.
//!
//! One upstream at a time is in trouble; then all are well for a moment, then the next one
//! is, or that one again. One is well at any moment, so no read may fail; but the one that
//! is well may have been down a second ago, and rest by all rules. Clients are many and
//! steady, enough to fill what is bounded.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wellhead_upstream::Tier;

use crate::scenario::{
    ChainPlan, ClientPlan, Habit, KEY_MARK, Scale, Scenario, Settings, UpstreamPlan, small_world,
};
use crate::weather::{Kind, Spell};
use crate::words::Envelope;

/// All are well at first, until each has been seen to be on its chain.
const BEGINS: Duration = Duration::from_secs(4);

impl Scenario {
    /// What this seed is, as a relay of troubles, with the settings that wellhead has by itself.
    pub fn relay(seed: u64, scale: Scale) -> Self {
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x4e1a_4e1a);
        let seconds = match scale {
            Scale::Full => rng.random_range(30..=120),
            Scale::Short => 30,
        };
        let length = Duration::from_secs(seconds);
        let clients = match scale {
            Scale::Full => rng.random_range(10..=60),
            Scale::Short => rng.random_range(10..=20),
        };
        let chains = vec![chain(rng, length)];
        let clients = (0..clients).map(|_| client(rng)).collect();
        let settings = Settings {
            workers: rng.random_range(1..=2),
            pins: rng.random(),
            ..Settings::default()
        };
        Self { seed, length, settings, chains, clients, is_relay: true, ..Self::default() }
    }
}

fn chain(rng: &mut SmallRng, length: Duration) -> ChainPlan {
    let mut world = small_world(rng.random());
    world.block_time = Duration::from_millis([12_000, 2_000][rng.random_range(0..2)]);
    let latency = Duration::from_millis([200, 80, 20][rng.random_range(0..3)]);
    let count = if rng.random_ratio(3, 4) { 2 } else { 3 };
    let mut upstreams: Vec<UpstreamPlan> =
        (0..count).map(|slot| upstream(rng, slot, latency)).collect();
    let mut at = BEGINS;
    while at < length {
        let until = at + Duration::from_millis(rng.random_range(3_000..=8_000));
        let spell = Spell { from: at, until, kind: kind(rng) };
        upstreams[rng.random_range(0..count)].spells.push(spell);
        at = until + Duration::from_millis(rng.random_range(1_000..=5_000));
    }
    let (turns, pooled_every) = (Vec::new(), None);
    ChainPlan { name: "ethereum", world, id_is_given: true, upstreams, turns, pooled_every }
}

fn upstream(rng: &mut SmallRng, slot: usize, latency: Duration) -> UpstreamPlan {
    let letter = char::from(b'a' + u8::try_from(slot).unwrap_or(25));
    UpstreamPlan {
        name: format!("up-0{letter}"),
        api_key: format!("{KEY_MARK}{:016x}", rng.random::<u64>()),
        tier: if rng.random_ratio(3, 4) { Tier::Primary } else { Tier::Fallback },
        latency,
        jitter: Duration::from_millis(rng.random_range(0..20)),
        // Enough for what comes while all is well.
        connections: rng.random_ratio(1, 2).then(|| rng.random_range(64..=256)),
        envelope: Envelope::draw(rng),
        takes_batches: true,
        ..UpstreamPlan::default()
    }
}

fn kind(rng: &mut SmallRng) -> Kind {
    match rng.random_range(0..10) {
        0..=2 => Kind::Crash,
        3..=5 => Kind::Hang,
        6 | 7 => Kind::Flaky(30),
        8 => Kind::Page(503),
        _ => Kind::Crowded(rng.random_range(5..=20)),
    }
}

fn client(rng: &mut SmallRng) -> ClientPlan {
    let pace = Duration::from_millis([5, 20, 100][rng.random_range(0..3)]);
    let habit = match rng.random_range(0..8) {
        0 => Habit::Bursts(rng.random_range(2..10), pace),
        1 => Habit::Batches(rng.random_range(2..10), pace),
        _ => Habit::Steady(pace),
    };
    let from = Duration::from_millis(rng.random_range(2_000..4_000));
    ClientPlan { habit, from, ..ClientPlan::endless(rng) }
}
