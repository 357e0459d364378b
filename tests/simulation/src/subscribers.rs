//! Clients that subscribe to heads and logs, while the chain and its upstreams do all that they can do.
//!
//! Upstreams push heads in all ways that nodes have, or are polled; they hide logs, or have them late;
//! branches of any length are left and come back; all upstreams stand still or are gone for a minute.
//! Subscribers stay, stall, leave and come again, and subscribe hundreds of times; some keep filters and poll
//! them, over HTTP and over their sessions. For a while before they
//! leave all is well and no block is made, so that what was told can be compared with the chain; and
//! after the last one has left the chain goes on, so that a feed or a loop that does not end is seen.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wellhead_upstream::Tier;

use crate::scenario::{
    ChainPlan, Scale, Scenario, SubscriberHabit, SubscriberPlan, Turn, UpstreamPlan,
};
use crate::session::PendingForm;
use crate::weather::{FeedHabit, Kind, Spell};

/// All are well at first, until each has been seen to be on its chain.
const BEGINS: Duration = Duration::from_secs(4);
/// The last trouble ends so long before the subscribers leave: a breaker has closed by then, and what was
/// missed is told.
const CALM: Duration = Duration::from_secs(75);
/// Longer than that no upstream is left alone after a trouble of these stories.
const SETTLED: Duration = Duration::from_secs(30);
const BREAKER_REST_MAX: Duration = Duration::from_secs(8);
/// And the last block is made so long before, or as many block times.
const QUIET: Duration = Duration::from_secs(20);
const QUIET_BLOCKS: u32 = 3;
/// So long the chains go on without a subscriber: feeds are closed a minute and a half after the last one left.
const TAIL: Duration = Duration::from_secs(110);
/// All upstreams are gone for so long.
const OUTAGE: Duration = Duration::from_secs(60);
/// So many blocks a reorg replaces at most.
const DEPTH_MAX: u64 = 64;

/// How the upstreams of a story tell new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feeds {
    /// All push each one.
    Prompt,
    /// None pushes any.
    Polled,
    /// Each in its own way, some not at all.
    Mixed,
}

impl Scenario {
    /// What this seed is, as a story of subscribers.
    pub fn subscribers(seed: u64, scale: Scale) -> Self {
        let mut scenario = Self::relay(seed, Scale::Short);
        let rng = &mut SmallRng::seed_from_u64(seed ^ 0x50b5_c41b_e500);
        scenario.is_relay = false;
        let active = Duration::from_secs(match scale {
            Scale::Full => rng.random_range(60..=180),
            Scale::Short => rng.random_range(25..=50),
        });
        scenario.length = BEGINS + active + CALM;
        scenario.tail = TAIL;
        scenario.settings.pins = true;
        scenario.settings.breaker.rest_max = BREAKER_REST_MAX;
        scenario.settings.hedging = scenario.settings.hedging.filter(|_| rng.random());
        scenario.clients.clear();
        let chain = &mut scenario.chains[0];
        chain.subscribe(rng, active);
        let count = match scale {
            Scale::Full => rng.random_range(4..=30),
            Scale::Short => rng.random_range(3..=6),
        };
        let length = scenario.length;
        scenario.subscribers = (0..count).map(|_| subscriber(rng, active, length)).collect();
        // Others are compared with one that hears all.
        let first = &mut scenario.subscribers[0];
        (first.from, first.habit) = (Duration::ZERO, SubscriberHabit::Listens);
        scenario.keep_filters(&mut SmallRng::seed_from_u64(seed ^ 0x50b5_f117_e250));
        scenario.hear_pools(&mut SmallRng::seed_from_u64(seed ^ 0x50b5_9001_5000));
        scenario
    }

    /// In a third of the stories transactions enter pools, and most subscribers want to hear of them.
    fn hear_pools(&mut self, rng: &mut SmallRng) {
        if !rng.random_ratio(1, 3) {
            return;
        }
        let pace = [100, 700, 3_000][rng.random_range(0..3)];
        self.chains[0].pooled_every = Some(Duration::from_millis(pace));
        for subscriber in &mut self.subscribers {
            let form =
                if rng.random_ratio(1, 4) { PendingForm::Whole } else { PendingForm::Hashes };
            subscriber.pending = rng.random_ratio(2, 3).then_some(form);
        }
    }

    /// In half of the stories most subscribers keep filters, too.
    fn keep_filters(&mut self, rng: &mut SmallRng) {
        if rng.random() {
            return;
        }
        for subscriber in &mut self.subscribers {
            let pace = Duration::from_millis([300, 2_000, 8_000][rng.random_range(0..3)]);
            subscriber.polls_every = rng.random_ratio(2, 3).then_some(pace);
        }
    }

    /// From when on no subscriber is kept from what it is to hear, and no block is made.
    pub fn quiet_from(&self, chain: usize) -> Duration {
        self.length.saturating_sub(quiet(self.chains[chain].world.block_time))
    }
}

fn quiet(block_time: Duration) -> Duration {
    QUIET.max(block_time * QUIET_BLOCKS)
}

impl ChainPlan {
    fn subscribe(&mut self, rng: &mut SmallRng, active: Duration) {
        let millis = Duration::from_millis;
        let block_time = millis([250, 2_000, 2_000, 12_000][rng.random_range(0..4)]);
        self.world.block_time = block_time;
        self.world.txs_per_block = rng.random_range(0..=2);
        let is_deep = rng.random_ratio(1, 4);
        if is_deep {
            self.world.history_blocks = DEPTH_MAX + 16;
            self.world.finalized_distance = DEPTH_MAX;
            self.world.safe_distance = DEPTH_MAX / 2;
        }
        let feeds = [Feeds::Prompt, Feeds::Polled, Feeds::Mixed][rng.random_range(0..3)];
        let mut upstreams = self.upstreams.clone();
        if upstreams.len() < 3 && rng.random_ratio(1, 3) {
            upstreams.push(upstreams[0].clone());
        }
        if rng.random_ratio(1, 8) {
            upstreams.truncate(1);
        }
        for (slot, upstream) in upstreams.iter_mut().enumerate() {
            let letter = char::from(b'a' + u8::try_from(slot).unwrap_or(25));
            upstream.name = format!("up-0{letter}");
            upstream.tell(rng, feeds);
        }
        self.upstreams = upstreams;
        let ends = BEGINS + active;
        match rng.random_range(0..7) {
            0 | 1 => {}
            2 | 3 => self.relay_troubles(rng, ends),
            4 => self.lose_logs(rng, ends),
            5 => self.stand_still(rng, ends),
            _ => self.vanish(rng, ends),
        }
        if rng.random_ratio(2, 3) {
            self.reorganise(rng, ends, if is_deep { DEPTH_MAX } else { 3 });
        }
        let length = ends + CALM;
        let stall = quiet(block_time) + block_time;
        self.turns.push((length.saturating_sub(quiet(block_time)), Turn::Stall(stall)));
        self.turns.sort_by_key(|(at, _)| *at);
    }

    /// One upstream after the other is in trouble.
    fn relay_troubles(&mut self, rng: &mut SmallRng, ends: Duration) {
        let count = self.upstreams.len();
        self.each_spell(rng, ends, |rng| {
            let slot = rng.random_range(0..count);
            let kind = std::iter::repeat_with(|| Kind::draw(rng));
            let mut settling = kind.filter(|kind| kind.settling(BREAKER_REST_MAX) <= SETTLED);
            (slot, settling.next().unwrap_or(Kind::Crash))
        });
    }

    /// Upstreams do not have all logs of their blocks, one after the other.
    fn lose_logs(&mut self, rng: &mut SmallRng, ends: Duration) {
        let count = self.upstreams.len();
        let kinds = [Kind::NoLogs, Kind::LoseLogs, Kind::LateLogs, Kind::Internal];
        self.world.txs_per_block = 2;
        self.each_spell(rng, ends, |rng| {
            (rng.random_range(0..count), kinds[rng.random_range(0..kinds.len())])
        });
    }

    /// All upstreams stand still for a while, and what they missed comes at once.
    fn stand_still(&mut self, rng: &mut SmallRng, ends: Duration) {
        let from = ends.mul_f64(rng.random_range(0.2..0.6));
        let until = from + (ends - from).mul_f64(rng.random_range(0.2..0.9));
        for upstream in &mut self.upstreams {
            upstream.spells = vec![Spell { from, until, kind: Kind::Stuck }];
        }
        // While what was missed is fetched.
        if rng.random() {
            let soon = Duration::from_millis(rng.random_range(0..500));
            self.turns.push((until + soon, Turn::Reorg(rng.random_range(1..=3))));
        }
    }

    /// No upstream is there for up to a minute.
    fn vanish(&mut self, rng: &mut SmallRng, ends: Duration) {
        let from = ends.mul_f64(rng.random_range(0.2..0.4));
        let until = (from + OUTAGE).min(ends);
        for upstream in &mut self.upstreams {
            let kind = [Kind::Crash, Kind::Hang, Kind::Page(503)][rng.random_range(0..3)];
            upstream.spells = vec![Spell { from, until, kind }];
        }
    }

    fn each_spell(
        &mut self,
        rng: &mut SmallRng,
        ends: Duration,
        mut draw: impl FnMut(&mut SmallRng) -> (usize, Kind),
    ) {
        for upstream in &mut self.upstreams {
            upstream.spells.clear();
        }
        let mut at = BEGINS;
        while at < ends {
            let until = at + Duration::from_millis(rng.random_range(2_000..=12_000));
            let (slot, kind) = draw(rng);
            self.upstreams[slot].spells.push(Spell { from: at, until: until.min(ends), kind });
            at = until + Duration::from_millis(rng.random_range(0..=4_000));
        }
    }

    /// Branches are left, for others of any length, and come back.
    fn reorganise(&mut self, rng: &mut SmallRng, ends: Duration, depth_max: u64) {
        let count = rng.random_range(1..=6);
        let mut at = BEGINS;
        for _ in 0..count {
            at += (ends - BEGINS).mul_f64(rng.random_range(0.0..1.0) / f64::from(count));
            let depth = rng.random_range(1..=depth_max);
            let turn = match rng.random_range(0..6) {
                0 | 1 => Turn::Reorg(depth),
                2 | 3 => Turn::Switch { depth, length: depth },
                4 => Turn::Switch { depth, length: rng.random_range(1..=depth) },
                _ => Turn::Return,
            };
            self.turns.push((at, turn));
        }
    }
}

impl UpstreamPlan {
    fn tell(&mut self, rng: &mut SmallRng, feeds: Feeds) {
        let all = FeedHabit::ALL;
        self.spells.clear();
        self.connections = None;
        self.tier = Tier::Primary;
        self.latency = Duration::from_millis([1, 20, 80][rng.random_range(0..3)]);
        (self.has_feed, self.feed_habit) = match feeds {
            Feeds::Prompt => {
                (true, if rng.random() { FeedHabit::Newest } else { FeedHabit::Every })
            }
            Feeds::Polled => (false, FeedHabit::Newest),
            Feeds::Mixed => (rng.random_ratio(3, 4), all[rng.random_range(0..all.len())]),
        };
    }
}

fn subscriber(rng: &mut SmallRng, active: Duration, length: Duration) -> SubscriberPlan {
    let millis = Duration::from_millis;
    let habit = match rng.random_range(0..6) {
        0..=2 => SubscriberHabit::Listens,
        3 => SubscriberHabit::Stalls(millis(rng.random_range(1_000..25_000))),
        4 => SubscriberHabit::Returns,
        _ => SubscriberHabit::Storms(millis([20, 200, 1_000][rng.random_range(0..3)])),
    };
    SubscriberPlan {
        seed: rng.random(),
        chain: 0,
        // Some come before anything is verified.
        from: active.mul_f64([0.0, 0.1, 0.1, 0.5][rng.random_range(0..4)]),
        until: length,
        habit,
        polls_every: None,
        pending: None,
    }
}
