//! Servers whose bound is known, and servers that have another limit or none.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// What a server does with a call.
#[derive(Debug, Clone, Copy)]
enum ModelRule {
    /// It takes at most this many at a time.
    AtOnce(usize),
    /// A bucket of this size, filled at this rate in tokens per second.
    Bucket(f64, f64),
    /// So many in each window of this many milliseconds.
    Window(usize, f64),
    /// So many in a window of this many milliseconds that slides.
    Sliding(usize, f64),
    /// So many are served at a time, and the others wait.
    Queue(usize),
    /// It refuses a share that grows with the calls in flight, all of them at this many.
    Sheds(f64),
    /// It fails this share, whatever it is offered.
    Fails(f64),
}

/// A server, and the way to it.
#[derive(Debug, Clone, Copy)]
struct ModelServer {
    rule: ModelRule,
    /// Milliseconds of a call.
    takes: f64,
    /// It takes so much more or less, as a share.
    jitter: f64,
    /// Milliseconds of the way there, and of the way back.
    way: f64,
    /// Each way takes so much more or less, as a share.
    wobble: f64,
    /// A refusal takes as long as a call.
    slow_refusals: bool,
}

const fn server(rule: ModelRule, takes: f64, jitter: f64) -> ModelServer {
    ModelServer { rule, takes, jitter, way: 4.0, wobble: 0.0, slow_refusals: false }
}

/// Milliseconds.
struct ModelServing {
    ends: Vec<f64>,
    tokens: f64,
    last: f64,
    passed: VecDeque<f64>,
    free: Vec<f64>,
}

impl ModelServing {
    fn begin(rule: ModelRule) -> Self {
        let tokens = if let ModelRule::Bucket(size, _) = rule { size } else { 0.0 };
        let free = if let ModelRule::Queue(places) = rule { vec![0.0; places] } else { Vec::new() };
        Self { ends: Vec::new(), tokens, last: 0.0, passed: VecDeque::new(), free }
    }

    /// When the answer to a call that arrives leaves; `None` for a refusal.
    fn serve(&mut self, rule: ModelRule, at: f64, takes: f64, rng: &mut SmallRng) -> Option<f64> {
        self.ends.retain(|end| *end > at);
        let under_way = self.ends.len();
        let passes = match rule {
            ModelRule::AtOnce(most) => under_way < most,
            ModelRule::Bucket(size, per_second) => {
                self.tokens = (self.tokens + per_second * (at - self.last) / 1e3).min(size);
                self.last = at;
                let passes = self.tokens >= 1.0;
                self.tokens -= f64::from(u8::from(passes));
                passes
            }
            ModelRule::Window(most, length) => {
                while self
                    .passed
                    .front()
                    .is_some_and(|it| (it / length).floor() < (at / length).floor())
                {
                    self.passed.pop_front();
                }
                self.passed.len() < most
            }
            ModelRule::Sliding(most, length) => {
                while self.passed.front().is_some_and(|it| at - it >= length) {
                    self.passed.pop_front();
                }
                self.passed.len() < most
            }
            ModelRule::Queue(_) => {
                self.free.sort_by(f64::total_cmp);
                let end = self.free[0].max(at) + takes;
                self.free[0] = end;
                return Some(end);
            }
            ModelRule::Sheds(most) => rng.random::<f64>() > under_way as f64 / most,
            ModelRule::Fails(share) => rng.random::<f64>() > share,
        };
        if passes {
            self.passed.push_back(at);
            self.ends.push(at + takes);
        }
        passes.then_some(at + takes)
    }
}

/// An open loop for this many seconds.
fn play(it: ModelServer, per_second: f64, seconds: f64, rng: &mut SmallRng) -> Vec<HeldCall> {
    let mut serving = ModelServing::begin(it.rule);
    let us = |ms: f64| (ms * 1e3) as u64;
    let mut uneven = |by: f64, share: f64| by * (1.0 + share * (2.0 * rng.random::<f64>() - 1.0));
    // When each is sent, when it arrives, what it takes, and its way back.
    let one = |n: u64| {
        let sent = n as f64 * 1e3 / per_second;
        let (there, back) = (uneven(it.way, it.wobble), uneven(it.way, it.wobble));
        (sent, sent + there, uneven(it.takes, it.jitter), back)
    };
    let mut calls: Vec<_> = (0..(per_second * seconds) as u64).map(one).collect();
    calls.sort_by(|one, other| one.1.total_cmp(&other.1));
    let answered = |(sent, arrives, takes, back): (f64, f64, f64, f64)| {
        let left = serving.serve(it.rule, arrives, takes, rng);
        let refused = arrives + if it.slow_refusals { takes } else { 0.2 };
        let ended = left.unwrap_or(refused) + back;
        HeldCall { sent: us(sent), ended: us(ended), refused: left.is_none() }
    };
    calls.into_iter().map(answered).collect()
}

fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Rates around what it serves, twice each.
fn found(it: ModelServer, per_second: f64, seed: u64) -> Option<FlightCeiling> {
    let mut rng = rng(seed);
    let rates = [0.5, 0.8, 1.3, 2.0, 4.0];
    let cells = rates.map(|times| play(it, times * per_second, 6.0, &mut rng));
    ceiling(&cells)
}

#[test]
fn a_bound_on_calls_in_flight_is_found_to_the_call() {
    let mut rng = rng(1);
    for seed in 0..60 {
        let most = rng.random_range(2..120_usize);
        let takes = rng.random_range(20.0..400.0);
        let jitter = [0.0, 0.05, 0.3, 0.8][seed as usize % 4];
        let it = server(ModelRule::AtOnce(most), takes, jitter);
        // Then the way there and back cannot be told from the call.
        let slow_refusals = seed % 3 == 0;
        let way = if slow_refusals { 0.0 } else { it.way };
        let it = ModelServer { slow_refusals, way, ..it };
        let found = found(it, most as f64 / takes * 1e3, seed);
        let found = found.unwrap_or_else(|| panic!("seed {seed}: {it:?}"));
        assert_eq!(found.calls, most as u64, "seed {seed}: {it:?}, {found:?}");
        assert!(found.fills >= 2, "seed {seed}: {it:?}, {found:?}");
    }
}

#[test]
fn over_an_uneven_way_it_is_found_nearly_to_the_call() {
    let mut rng = rng(5);
    for seed in 0..40 {
        let most = rng.random_range(8..80_usize);
        let takes = rng.random_range(40.0..200.0);
        let jitter = [0.05, 0.3][seed as usize % 2];
        let (way, wobble) = (10.0, 0.1);
        let it = ModelServer { way, wobble, ..server(ModelRule::AtOnce(most), takes, jitter) };
        let found = found(it, most as f64 / takes * 1e3, seed);
        let found = found.unwrap_or_else(|| panic!("seed {seed}: {it:?}"));
        let off = found.calls.abs_diff(most as u64);
        assert!(off <= 1 + most as u64 / 16, "seed {seed}: {it:?}, {found:?}");
    }
}

#[test]
fn limits_of_a_rate_are_no_bound_on_calls_in_flight() {
    let mut rng = rng(2);
    for seed in 0..60 {
        let size = rng.random_range(1..200_usize);
        let length = rng.random_range(100.0..3_000.0);
        // Where a bucket fills in the time of a call, nothing tells the two apart.
        let takes = rng.random_range(15.0..0.7 * length);
        let jitter = [0.0, 0.05, 0.3][seed as usize % 3];
        let per_second = size as f64 / length * 1e3;
        for rule in [
            ModelRule::Bucket(size as f64, per_second),
            ModelRule::Bucket(1.0, per_second),
            ModelRule::Window(size, length),
            ModelRule::Sliding(size, length),
        ] {
            let wobble = [0.0, 0.2][seed as usize % 2];
            let slow_refusals = seed % 4 == 0;
            let it = ModelServer { wobble, slow_refusals, ..server(rule, takes, jitter) };
            // Without a burst the bucket of one call fills in another time.
            let fills_ms =
                if let ModelRule::Bucket(1.0, _) = rule { 1e3 / per_second } else { length };
            if (takes + 8.0) / fills_ms > 0.8 && (takes + 8.0) / fills_ms < 1.25 {
                continue;
            }
            assert_eq!(found(it, per_second, seed), None, "seed {seed}: {it:?}");
        }
    }
}

#[test]
fn servers_that_queue_shed_or_fail_have_no_bound() {
    for seed in 0..20 {
        for rule in [
            ModelRule::Queue(5),
            ModelRule::Sheds(60.0),
            ModelRule::Fails(0.02),
            ModelRule::Fails(0.3),
        ] {
            let it = server(rule, 50.0, 0.2);
            assert_eq!(found(it, 100.0, seed), None, "seed {seed}: {it:?}");
        }
    }
}

/// A server whose calls begin or end a good deal later than is seen.
#[test]
fn what_is_badly_measured_is_suspected() {
    let mut rng = rng(6);
    let mut seen = 0;
    for seed in 0..20 {
        let it = ModelServer { wobble: 0.9, ..server(ModelRule::AtOnce(20), 60.0, 0.3) };
        let mut cells = [0.8, 1.3, 2.0, 4.0].map(|times| play(it, times * 333.0, 3.0, &mut rng));
        // One call in ten is heard of late.
        for call in cells.iter_mut().flatten().step_by(10) {
            call.ended += 40_000;
        }
        let bound = suspected(&cells);
        assert!(bound.is_some_and(|it| it.calls.abs_diff(20) <= 3), "seed {seed}: {bound:?}");
        seen += usize::from(ceiling(&cells).is_some());
    }
    assert!(seen < 20, "all of them are told");
    let it = server(ModelRule::Window(20, 1_000.0), 50.0, 0.1);
    assert_eq!(
        suspected(&[0.8, 2.0, 4.0].map(|times| play(it, times * 20.0, 9.0, &mut rng))),
        None
    );
}

#[test]
fn few_refusals_and_none_that_passes_show_nothing() {
    let refused = |n: u64| HeldCall { sent: n * 1_000, ended: n * 1_000 + 300, refused: true };
    assert_eq!(ceiling(&[]), None);
    assert_eq!(ceiling(&[(0..100).map(refused).collect()]), None);
    let mut rng = rng(3);
    let mut cells = vec![play(server(ModelRule::AtOnce(5), 50.0, 0.1), 90.0, 5.0, &mut rng)];
    assert_eq!(ceiling(&cells), None, "nothing is refused");
    cells[0].extend((0..5).map(|n| HeldCall { sent: 9_000_000 + n, ..refused(n) }));
    assert_eq!(ceiling(&cells), None);
}

#[test]
fn what_was_found_elsewhere_fits_or_does_not() {
    let mut rng = rng(4);
    let cells = [play(server(ModelRule::AtOnce(20), 50.0, 0.1), 800.0, 2.0, &mut rng)];
    assert!(fits(&cells, 20) && !fits(&cells, 40) && !fits(&cells, 10));
    let cells = [play(server(ModelRule::Window(20, 1_000.0), 50.0, 0.1), 800.0, 2.0, &mut rng)];
    assert!(!fits(&cells, 20));
}

/// Cells of `it` in which nothing was refused.
fn passed(it: ModelServer, rates: &[f64], rng: &mut SmallRng) -> Vec<Vec<HeldCall>> {
    let cells = rates.iter().map(|rate| play(it, *rate, 6.0, rng));
    cells.filter(|calls| calls.iter().all(|call| !call.refused)).collect()
}

#[test]
fn a_bound_is_exceeded_by_a_server_without_it_and_never_by_its_own() {
    let mut rng = rng(7);
    for seed in 0..40 {
        let most = rng.random_range(2..80_usize);
        let takes = rng.random_range(30.0..300.0);
        let (jitter, wobble) = ([0.0, 0.05, 0.3, 0.8][seed % 4], [0.0, 0.1][seed % 2]);
        let it = ModelServer { wobble, ..server(ModelRule::AtOnce(most), takes, jitter) };
        let per_second = most as f64 / takes * 1e3;
        let shown = [1.3, 2.0, 4.0].map(|times| play(it, times * per_second, 6.0, &mut rng));
        let Some(bound) = ceiling(&shown) else { continue };
        let own = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95].map(|times| times * per_second);
        let own = passed(it, &own, &mut rng);
        assert!(!own.is_empty(), "seed {seed}: {it:?}");
        assert_eq!(exceeded(&shown, bound.calls, &own), None, "seed {seed}: {it:?}");
        let free = ModelServer { rule: ModelRule::Fails(0.0), ..it };
        let free = passed(free, &[0.5 * per_second, 2.0 * per_second], &mut rng);
        let found = exceeded(&shown, bound.calls, &free);
        assert!(
            found.is_some_and(|it| it.cell == 1 && it.calls >= bound.calls),
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn a_few_calls_beyond_a_bound_disprove_nothing() {
    let mut rng = rng(8);
    let shown = [play(server(ModelRule::AtOnce(8), 50.0, 0.1), 400.0, 3.0, &mut rng)];
    // One after another, and none ends before the last one is sent.
    let calls = |count: u64| {
        let one = |n: u64| HeldCall { sent: n * 6_000, ended: 9_000_000, refused: false };
        vec![(0..count).map(one).collect::<Vec<_>>()]
    };
    // One above the bound is within what the network makes uneven.
    assert_eq!(exceeded(&shown, 8, &calls(18)), None);
    assert_eq!(exceeded(&shown, 8, &calls(19)), Some(ExceededCeiling { cell: 0, calls: 9 }));
    assert_eq!(exceeded(&shown, 8, &[]), None);
    // Of many calls ten are few.
    let mut long = calls(19);
    let single = |n: u64| HeldCall {
        sent: 9_000_000 + n * 60_000,
        ended: 9_050_000 + n * 60_000,
        refused: false,
    };
    long[0].extend((1..1_000).map(single));
    assert_eq!(exceeded(&shown, 8, &long), None);
    assert_eq!(exceeded(&shown, 40, &calls(200)), None, "the cells show no bound of 40");
}
