//! One upstream that knows of no logs and says so, beside others that are well.
//!
//! Blocks come slowly enough for each header to be heard of, and nearly all hold logs. So
//! whatever is known of the chain when a client asks, headers included, speaks against the
//! one that says that there is nothing.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scenario::{ClientPlan, Habit, Scale, Scenario};
use crate::weather::{Kind, Spell};

/// Long enough for a few blocks to be made.
const BEGINS: Duration = Duration::from_secs(9);

impl Scenario {
    /// What this seed is, as a story of logs that are hidden.
    pub fn silence(seed: u64, scale: Scale) -> Self {
        let mut scenario = Self::relay(seed, scale);
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x511e_4ce0);
        scenario.is_relay = false;
        scenario.settings.pins = true;
        let chain = &mut scenario.chains[0];
        chain.world.block_time = Duration::from_secs(2);
        chain.world.txs_per_block = rng.random_range(1..=3);
        if chain.upstreams.len() == 2 {
            let mut third = chain.upstreams[1].clone();
            third.name = "up-0c".to_owned();
            chain.upstreams.push(third);
        }
        for upstream in &mut chain.upstreams {
            upstream.spells.clear();
            upstream.has_feed = true;
            upstream.latency = Duration::from_millis(rng.random_range(5..50));
        }
        let until = scenario.length * 2;
        let spell = Spell { from: Duration::ZERO, until, kind: Kind::NoLogs };
        let liar = rng.random_range(0..chain.upstreams.len());
        chain.upstreams[liar].spells.push(spell);
        // Asked first, or it may never be asked.
        chain.upstreams[liar].latency = Duration::from_millis(1);
        scenario.clients = (0..rng.random_range(3..8)).map(|_| client(rng)).collect();
        // Feeds are open while clients call, so that one has to be there from the first block on.
        scenario.clients[0].from = Duration::ZERO;
        scenario
    }
}

fn client(rng: &mut SmallRng) -> ClientPlan {
    let pace = Duration::from_millis([20, 100, 400][rng.random_range(0..3)]);
    let habit = match rng.random_range(0..4) {
        0 => Habit::Batches(rng.random_range(2..10), pace),
        1 => Habit::Reader(pace),
        _ => Habit::Steady(pace),
    };
    ClientPlan { habit, from: BEGINS, requests: 400, ..ClientPlan::endless(rng) }
}
