//! A few clients that ask for a call now and then, beside one address that takes all it can get.
//!
//! All upstreams are well, all the time. From the rude address come clients that ask for large answers
//! and hardly read them, clients that send hundreds of calls at once and never pause, and clients
//! whose batches of searches would cost upstreams thousands of calls. What the others are owed is
//! looked at by the checkers `share` and `amplification`, and by `reads`.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scenario::{ClientPlan, Habit, Scale, Scenario};

/// Each upstream was seen to be on its chain by now.
const BEGINS: Duration = Duration::from_secs(2);
/// Blocks that a search may go through, each of which may cost a call.
const HISTORY: u64 = 120;

impl Scenario {
    /// What this seed is, as a story of one address that wants everything.
    pub fn crowd(seed: u64, scale: Scale) -> Self {
        let mut scenario = Self::relay(seed, Scale::Short);
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0xc40d_ed00);
        scenario.is_relay = false;
        scenario.is_crowd = true;
        scenario.length = Duration::from_secs(if scale == Scale::Full { 30 } else { 12 });
        scenario.settings.pins = true;
        scenario.settings.whole_bytes_max = 512;
        scenario.settings.upstream_calls = [20, 60, 200][rng.random_range(0..3)];
        let chain = &mut scenario.chains[0];
        chain.world.history_blocks = HISTORY;
        chain.world.txs_per_block = rng.random_range(0..=2);
        for upstream in &mut chain.upstreams {
            upstream.spells.clear();
            upstream.latency = Duration::from_millis(rng.random_range(1..100));
            upstream.connections = Some(64);
            upstream.log_range_max = Some(rng.random_range(1..=8));
        }
        let polite = rng.random_range(2..=4);
        let rude = rng.random_range(2..=4);
        scenario.clients = (0..polite).map(|_| polite_client(rng)).collect();
        scenario.clients.extend((0..rude).map(|_| rude_client(rng, scale)));
        scenario
    }
}

fn polite_client(rng: &mut SmallRng) -> ClientPlan {
    let pace = Duration::from_millis([50, 100, 400][rng.random_range(0..3)]);
    let habit = match rng.random_range(0..4) {
        0 => Habit::Batches(rng.random_range(2..6), pace),
        _ => Habit::Steady(pace),
    };
    let from = BEGINS + Duration::from_millis(rng.random_range(0..1000));
    ClientPlan { habit, from, ..ClientPlan::endless(rng) }
}

fn rude_client(rng: &mut SmallRng, scale: Scale) -> ClientPlan {
    let many = if scale == Scale::Full { 4 } else { 1 };
    let habit = match rng.random_range(0..3) {
        0 => Habit::Stalls(rng.random_range(20..=60) * many, Duration::from_secs(5)),
        1 => Habit::Bursts(rng.random_range(50..=100) * many, Duration::from_millis(1)),
        _ => Habit::Searches(rng.random_range(5..=20) * many, Duration::from_millis(100)),
    };
    let from = BEGINS + Duration::from_millis(rng.random_range(0..3000));
    ClientPlan { habit, from, is_rude: true, ..ClientPlan::endless(rng) }
}
