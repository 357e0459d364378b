//! Replicas of the mind that share one bucket, for tests: what they admit together.
//!
//! Played in steps of a quarter of a millisecond. A control loop asks at most each 5 ms, as that of
//! `store` does; an ask takes half of the latency there, and half back. A call that has no answer
//! yet comes back with one, or when [`ANSWER_WITHIN`] has passed.

use std::time::Duration;

use super::book::LeaseBook;
use super::{ANSWER_WITHIN, LeaseAsk, LeaseGrant, LeaseShortage, LeasedBucket};
use crate::{Bucket, Pace};

/// One step.
const STEP: Duration = Duration::from_micros(250);

/// How often a control loop sends at most.
const TICK: Duration = Duration::from_millis(5);

/// Random numbers that a seed decides, on every machine alike: xorshift64*.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 to below 1.
    pub(super) fn roll(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.roll() * end as f64) as u64
    }

    /// How many of an event come in a step in which `mean` are expected (Knuth's way).
    fn poisson(&mut self, mean: f64) -> u32 {
        let (limit, mut product, mut events) = ((-mean).exp(), self.roll(), 0);
        while product > limit {
            product *= self.roll();
            events += 1;
        }
        events
    }
}

/// How the demand comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// Of each replica as much as of another.
    Even,
    /// 80 % at the first.
    Skewed,
    /// All at one replica, which changes each three seconds.
    Moving,
    /// For a second threefold, then none for two.
    Bursty,
    /// A greedy one: as many as are admitted, at a replica that changes each half second.
    Hunting,
}

#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) rate: f64,
    pub(super) burst: f64,
    pub(super) replicas: usize,
    /// Calls a second.
    pub(super) demand: f64,
    pub(super) shape: Shape,
    /// Of the store, there and back.
    pub(super) latency: Duration,
    pub(super) seconds: u64,
    /// The price of a call, or up to four times of it.
    pub(super) price: f64,
    pub(super) prices_vary: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// When, and at which price.
    pub(super) admitted: Vec<(Duration, f64)>,
    /// By one bucket that sees all calls at once.
    pub(super) reference: f64,
    pub(super) offered: f64,
    pub(super) calls: u64,
    pub(super) waited: u64,
    pub(super) asks: u64,
    pub(super) dearest: f64,
}

impl Played {
    pub(super) fn total(&self) -> f64 {
        self.admitted.iter().map(|(_, price)| price).sum()
    }

    pub(super) fn asks_per_replica(&self, scene: &Scene) -> f64 {
        self.asks as f64 / scene.seconds as f64 / scene.replicas as f64
    }

    /// The most credits in any stretch of this length.
    pub(super) fn most_in(&self, window: Duration) -> f64 {
        let (mut from, mut sum, mut most) = (0, 0.0, 0.0_f64);
        for (at, price) in &self.admitted {
            sum += price;
            while self.admitted[from].0 + window < *at {
                sum -= self.admitted[from].1;
                from += 1;
            }
            most = most.max(sum);
        }
        most
    }
}

struct Replica {
    bucket: LeasedBucket,
    next_round: Duration,
    /// On their way there, and back.
    asked: Option<(Duration, LeaseAsk)>,
    granted: Option<(Duration, LeaseGrant)>,
    /// Calls without an answer: since when, the price.
    waiting: Vec<(Duration, f64)>,
}

/// Plays a scene.
pub(super) fn play(scene: &Scene) -> Played {
    let mut dice = Dice::new(scene.seed);
    let mut played = Played::default();
    let single = (Bucket::default(), Pace::new(scene.rate, Duration::from_secs(1), scene.burst));
    let mut book = LeaseBook::default();
    let mut replicas: Vec<Replica> = (0..scene.replicas)
        .map(|_| {
            let bucket = LeasedBucket::new(scene.rate, scene.burst);
            bucket.note_replicas(scene.replicas as u32);
            bucket.note_back();
            let waiting = Vec::new();
            Replica { bucket, next_round: Duration::ZERO, asked: None, granted: None, waiting }
        })
        .collect();
    let begin = Duration::from_secs(10);
    let mut now = begin;
    while now < begin + Duration::from_secs(scene.seconds) {
        for (number, replica) in replicas.iter_mut().enumerate() {
            let is_answered = carry(replica, &mut book, scene, now, &mut played);
            let is_over = |since: &Duration| is_answered || now - *since >= ANSWER_WITHIN;
            let (over, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut replica.waiting)
                .into_iter()
                .partition(|(since, _)| is_over(since));
            replica.waiting = waiting;
            for (since, price) in over {
                call(replica, since, price, now, &mut played);
            }
            let calls = match scene.shape {
                Shape::Hunting => {
                    if turn(now - begin, 500, scene.replicas) == number {
                        20
                    } else {
                        0
                    }
                }
                _ => dice
                    .poisson(scene.demand * part(scene, number, now - begin) * STEP.as_secs_f64()),
            };
            for _ in 0..calls {
                let factor = if scene.prices_vary { 1 + dice.below(4) } else { 1 };
                let price = scene.price * factor as f64;
                played.offered += price;
                played.calls += 1;
                played.dearest = played.dearest.max(price);
                if single.0.take(price, single.1, now).is_ok() {
                    played.reference += price;
                }
                call(replica, now, price, now, &mut played);
            }
        }
        now += STEP;
    }
    played
}

fn call(replica: &mut Replica, since: Duration, price: f64, now: Duration, played: &mut Played) {
    match replica.bucket.take(price, now) {
        Ok(()) => {
            played.admitted.push((now, price));
            played.waited += u64::from(since < now);
        }
        Err(LeaseShortage::Unanswered(_)) if now - since < ANSWER_WITHIN => {
            replica.waiting.push((since, price));
        }
        Err(LeaseShortage::Unanswered(_) | LeaseShortage::Refused(_)) => {}
    }
}

/// The control loop of a replica, and the store.
///
/// Says whether an answer came.
fn carry(
    replica: &mut Replica,
    book: &mut LeaseBook,
    scene: &Scene,
    now: Duration,
    played: &mut Played,
) -> bool {
    let mut is_answered = false;
    if let Some((due, ask)) = replica.asked.filter(|(due, _)| *due <= now) {
        let grant = book.lease(replica.bucket.terms(), ask, now.as_micros() as u64);
        replica.asked = None;
        replica.granted = Some((due + scene.latency / 2, grant));
    }
    if let Some((_, grant)) = replica.granted.filter(|(due, _)| *due <= now) {
        replica.granted = None;
        replica.bucket.grant(grant, now);
        is_answered = true;
    }
    if replica.asked.is_none() && replica.granted.is_none() && now >= replica.next_round {
        let due = replica.bucket.due(now);
        let is_due = due.is_some_and(|due| due <= now);
        if let Some(ask) = is_due.then(|| replica.bucket.ask(now)).flatten() {
            played.asks += 1;
            replica.asked = Some((now + scene.latency / 2, ask));
            replica.next_round = now + TICK;
        }
    }
    is_answered
}

/// The part of the demand that comes to a replica at a time.
fn part(scene: &Scene, number: usize, at: Duration) -> f64 {
    let replicas = scene.replicas as f64;
    match scene.shape {
        Shape::Even => 1.0 / replicas,
        Shape::Skewed if scene.replicas == 1 => 1.0,
        Shape::Skewed if number == 0 => 0.8,
        Shape::Skewed => 0.2 / (replicas - 1.0),
        Shape::Moving => f64::from(u8::from(turn(at, 3_000, scene.replicas) == number)),
        Shape::Bursty if at.as_secs().is_multiple_of(3) => 3.0 / replicas,
        Shape::Bursty | Shape::Hunting => 0.0,
    }
}

fn turn(at: Duration, each_ms: u128, replicas: usize) -> usize {
    (at.as_millis() / each_ms) as usize % replicas
}

#[cfg(test)]
mod tests {
    use super::super::{GAP, LEASE};
    use super::*;

    fn scene() -> Scene {
        Scene {
            seed: 1,
            rate: 1_000.0,
            burst: 100.0,
            replicas: 5,
            demand: 3_000.0,
            shape: Shape::Even,
            latency: Duration::from_millis(1),
            seconds: 60,
            price: 1.0,
            prices_vary: false,
        }
    }

    /// In every window `R·(W + L) + B`, and one call for each replica where its credit is less.
    fn stays_within_bounds(scene: &Scene, played: &Played) {
        for window_ms in [0, 1, 10, 50, 100, 250, 500, 1_000, 2_000, 10_000] {
            let window = Duration::from_millis(window_ms);
            let credit = scene.rate * super::super::CREDIT.as_secs_f64();
            let first_calls = (scene.replicas as f64 * played.dearest - credit).max(0.0);
            let bound = scene.rate * (window + LEASE).as_secs_f64()
                + scene.burst.max(played.dearest)
                + first_calls;
            let most = played.most_in(window);
            assert!(most <= bound + 0.01, "{most} of {bound} in {window:?}: {scene:?}");
        }
    }

    fn print(what: &str, scene: &Scene, played: &Played) {
        let seconds = scene.seconds as f64;
        let goal = (scene.rate * seconds + scene.burst).min(played.offered);
        println!(
            "lease: {what:32} N={} latency {:>4.1} ms: {:7.1}/s admitted, {:5.1} % of the goal, \
             {:5.1} % of one bucket, most in 1 s {:6.1}, {:5.1} asks/s, {:4.1} % waited",
            scene.replicas,
            scene.latency.as_secs_f64() * 1_000.0,
            played.total() / seconds,
            100.0 * played.total() / goal,
            100.0 * played.total() / played.reference,
            played.most_in(Duration::from_secs(1)),
            played.asks as f64 / seconds,
            100.0 * played.waited as f64 / played.calls as f64,
        );
    }

    #[test]
    fn all_that_the_rate_allows_is_admitted_and_no_more() {
        for (what, demand, shape) in [
            ("3000/s of 1000, even", 3_000.0, Shape::Even),
            ("3000/s of 1000, skewed", 3_000.0, Shape::Skewed),
            ("1050/s of 1000, even", 1_050.0, Shape::Even),
            ("940/s of 1000, moving", 940.0, Shape::Moving),
            ("900/s of 1000, even", 900.0, Shape::Even),
            ("500/s of 1000, skewed", 500.0, Shape::Skewed),
            ("50/s of 1000, even", 50.0, Shape::Even),
        ] {
            for (replicas, latency_ms) in [(1, 1), (3, 1), (5, 1), (5, 20)] {
                let latency = Duration::from_millis(latency_ms);
                let scene = Scene { demand, shape, replicas, latency, ..scene() };
                let played = play(&scene);
                print(what, &scene, &played);
                stays_within_bounds(&scene, &played);
                let share = played.total() / played.reference;
                assert!((0.99..1.01).contains(&share), "{share}: {scene:?}");
                let asks = played.asks_per_replica(&scene);
                assert!(asks <= 30.0, "{asks} asks a second and replica: {scene:?}");
            }
        }
    }

    #[test]
    fn hunting_from_replica_to_replica_gains_nothing_in_the_long_run() {
        for replicas in [1, 3, 5] {
            let scene = Scene { shape: Shape::Hunting, replicas, seconds: 20, ..scene() };
            let played = play(&scene);
            print("hunting", &scene, &played);
            stays_within_bounds(&scene, &played);
            let long_run = scene.rate * scene.seconds as f64 + scene.burst;
            assert!(played.total() <= long_run * 1.01 + 0.5 * scene.rate, "{}", played.total());
        }
    }

    /// A scene at random, none of whose calls is dearer than the burst.
    fn any_scene(seed: u64) -> Scene {
        let mut dice = Dice::new(seed);
        // From 1 to 5000, even on a logarithmic scale.
        let rate = 5_000_f64.powf(dice.roll());
        let burst = (rate * 2.0 * dice.roll()).max(4.0);
        let price = if dice.roll() < 0.5 { 1.0 } else { (burst / 16.0).max(0.1) };
        let shapes = [Shape::Even, Shape::Skewed, Shape::Moving, Shape::Bursty, Shape::Hunting];
        Scene {
            seed,
            rate,
            burst,
            replicas: [1, 3, 5][dice.below(3) as usize],
            demand: (rate / price * 3.0 * dice.roll()).min(8_000.0),
            shape: shapes[dice.below(5) as usize],
            latency: Duration::from_millis(1 + dice.below(20)),
            seconds: 30,
            price,
            prices_vary: dice.roll() < 0.3,
        }
    }

    /// 60, or as many as `LEASE_SEEDS` says.
    fn seeds() -> u64 {
        std::env::var("LEASE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60)
    }

    /// Panics unless the replicas admit what one bucket would that sees all calls, within 1 % and what
    /// is under way when the demand ends. Their share of that, where the latter is little.
    fn compare_with_one_bucket(scene: &Scene, played: &Played) -> Option<f64> {
        let (total, reference) = (played.total(), played.reference);
        // A least lease at each replica at least.
        let calls = scene.replicas as f64 * played.dearest;
        let under_way = scene.rate * LEASE.as_secs_f64() + 4.0 * calls;
        // A burst may find the store's bucket deeper than its own, and goes on credit, which is paid
        // in the silence after it; it leaves in the store what the pause kept it from spending.
        let bursts = if scene.shape == Shape::Bursty { scene.seconds as f64 / 3.0 } else { 0.0 };
        let more = under_way + bursts * (scene.rate * LEASE.as_secs_f64() + calls);
        assert!(total <= 1.01 * reference + more, "{total} of {reference}: {scene:?}");
        // What is left where a hunter was comes back too late for it.
        let share = if scene.shape == Shape::Hunting { 0.9 } else { 0.99 };
        let less = under_way + bursts * (scene.rate * GAP.as_secs_f64() + calls);
        assert!(total >= share * reference - less, "{total} of {reference}: {scene:?}");
        let is_telling = reference > 20.0 * (more + less);
        is_telling.then_some(total / reference)
    }

    #[test]
    fn any_scene_stays_within_its_bounds_and_uses_the_rate() {
        let (mut least, mut most, mut asks_most) = (f64::MAX, 0.0_f64, 0.0_f64);
        for seed in 0..seeds() {
            let scene = any_scene(seed);
            let played = play(&scene);
            stays_within_bounds(&scene, &played);
            assert!(played.asks_per_replica(&scene) <= 30.0, "{}: {scene:?}", played.asks);
            if let Some(share) = compare_with_one_bucket(&scene, &played) {
                (least, most) = (least.min(share), most.max(share));
            }
            let asks = played.asks_per_replica(&scene);
            asks_most = asks_most.max(asks);
        }
        println!(
            "lease: {} random scenes: {:.1} to {:.1} % of what one bucket admits, at most {asks_most:.1} \
             asks/s and replica",
            seeds(),
            100.0 * least,
            100.0 * most,
        );
    }

    #[test]
    fn a_slow_key_costs_the_store_an_ask_a_call_and_a_busy_one_less() {
        for (demand, asks_max) in [(1.0, 1.05), (9.0, 1.0), (36.0, 0.6), (90.0, 0.4)] {
            let (rate, burst, replicas) = (200.0, 50.0, 3);
            let scene = Scene { demand, rate, burst, replicas, ..scene() };
            let played = play(&scene);
            print("slow", &scene, &played);
            let asks = played.asks as f64 / played.calls as f64;
            assert!(asks <= asks_max, "{asks} asks a call: {scene:?}");
        }
    }
}
