//! Servers that count connections, calls in flight, or neither, before a pool of HTTP/1.1 connections.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::conclude::verdict::trial::trials;
use crate::record::{Cell, Record, WireRecord};

/// What a server counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counting {
    /// Connections; a further one is refused before a call is read.
    Connections(usize),
    /// Connections; a call on a further one gets 429, and the connection is closed.
    ConnectionsPolitely(usize),
    /// Calls in flight; connections stay open.
    Calls(usize),
    /// Nothing, but each fourth connection leads to a server that is broken.
    BrokenBackend,
    /// Calls in each second.
    Window(usize),
    /// Nothing.
    Nothing,
}

/// Calls that go over a pool, the connection that was used last before the others.
struct Pool {
    counting: Counting,
    experiment: &'static str,
    rng: SmallRng,
    records: Vec<Record>,
    /// Connections that carry nothing.
    idle: Vec<u64>,
    /// Those that carry a call, until when, and whether it was taken.
    busy: Vec<(u64, u64, bool)>,
    opened: u64,
    in_window: (u64, usize),
}

impl Pool {
    fn new(counting: Counting, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        let (records, idle, busy) = (Vec::new(), Vec::new(), Vec::new());
        let experiment = "rate";
        Self { counting, experiment, rng, records, idle, busy, opened: 0, in_window: (0, 0) }
    }

    /// One cell: calls at this rate for three seconds.
    fn play(&mut self, cell: u32, per_second: f64) {
        (self.idle, self.busy) = (Vec::new(), Vec::new());
        let begin = u64::from(cell) * 20_000_000;
        let calls = (per_second * 3.0) as u64;
        let experiment = self.experiment.to_owned();
        let mut call = CallRecord { experiment: experiment.clone(), cell, ..CallRecord::default() };
        for n in 0..calls {
            call.begun_at = begin + (n as f64 * 1e6 / per_second) as u64;
            (call.n, call.intended_at) = (n, call.begun_at);
            let call = self.call(call.clone());
            self.records.push(Record::Call(call));
        }
        self.records.push(Record::Cell(Cell {
            experiment,
            cell,
            factors: BTreeMap::from([("rate".to_owned(), per_second.to_string())]),
            begun_at: begin,
            ended_at: begin + 9_000_000,
            calls,
            ..Cell::default()
        }));
    }

    fn call(&mut self, mut call: CallRecord) -> CallRecord {
        let now = call.begun_at;
        let over = self.busy.extract_if(.., |(_, until, _)| *until <= now);
        let over: Vec<u64> = over.map(|(connection, ..)| connection).collect();
        self.idle.extend(over);
        let open = self.idle.len() + self.busy.len();
        let takes = self.rng.random_range(40_000..120_000);
        let fresh = self.idle.is_empty();
        let connection = self.idle.pop().unwrap_or_else(|| {
            self.opened += 1;
            self.opened
        });
        call.connection = Some(connection);
        if now / 1_000_000 > self.in_window.0 {
            self.in_window = (now / 1_000_000, 0);
        }
        let passes = match self.counting {
            Counting::Connections(most) | Counting::ConnectionsPolitely(most) => {
                !fresh || open < most
            }
            Counting::Calls(most) => self.busy.iter().filter(|it| it.2).count() < most,
            Counting::BrokenBackend => connection % 4 != 3,
            Counting::Window(most) => self.in_window.1 < most,
            Counting::Nothing => true,
        };
        self.in_window.1 += usize::from(passes);
        (call.ended_at, call.class, call.status) = match passes {
            true => (now + takes, "answer".to_owned(), Some(200)),
            false => (now + 1_500, "throttled".to_owned(), Some(429)),
        };
        match self.counting {
            Counting::Connections(_) if !passes => {
                (call.connection, call.status) = (None, None);
                (call.class, call.error) = ("fault".to_owned(), Some("connect".to_owned()));
            }
            Counting::ConnectionsPolitely(_) if !passes => {
                let reason = "eof".to_owned();
                let event = WireEvent::Closed { reason, calls: 1, in_flight: 0 };
                let (experiment, cell, at) = (call.experiment.clone(), call.cell, call.ended_at);
                let wire = WireRecord { experiment, cell, target: 0, at, connection, event };
                self.records.push(Record::Wire(wire));
            }
            _ => self.busy.push((connection, call.ended_at, passes)),
        }
        call
    }
}

/// Rates from below the bound to far above it.
fn played(counting: Counting, most: f64, seed: u64) -> Pool {
    let mut pool = Pool::new(counting, seed);
    for (cell, times) in (0..).zip([0.4, 0.7, 1.5, 2.2, 3.0]) {
        pool.play(cell, times * most / 0.08);
    }
    pool
}

/// What is said of `rate`.
fn concluded(pool: &Pool) -> Option<DraftVerdict> {
    let trials = trials(&pool.records);
    let rate = trials.iter().find(|trial| trial.experiment == "rate")?;
    bound(rate, &trials)
}

fn told(counting: Counting, most: f64, seed: u64) -> Option<DraftVerdict> {
    concluded(&played(counting, most, seed))
}

/// What is said of `rate` if another experiment met a server that counts `beside`.
fn contradicted(
    counting: Counting,
    beside: Counting,
    most: usize,
    change: impl Fn(&mut Record),
) -> Option<DraftVerdict> {
    let mut pool = played(counting, most as f64, most as u64);
    let own = pool.records.len();
    (pool.counting, pool.experiment) = (beside, "throttle");
    for (cell, times) in (0..).zip([0.4, 0.7, 1.5, 3.0]) {
        pool.play(cell, times * most as f64 / 0.08);
    }
    pool.records[own..].iter_mut().for_each(change);
    concluded(&pool)
}

/// The bounds that refuse calls.
fn bounds(most: usize) -> [Counting; 3] {
    [Counting::Connections(most), Counting::ConnectionsPolitely(most), Counting::Calls(most)]
}

#[test]
fn what_another_experiment_disproves_is_not_told() {
    for most in [2, 5, 9, 16, 33] {
        for counting in bounds(most) {
            let told = contradicted(counting, Counting::Nothing, most, |_| {}).expect("a verdict");
            let Finding::CannotTell { why } = &told.finding else {
                panic!("{counting:?}: {:?}", told.finding);
            };
            assert_eq!(told.confidence, Confidence::None);
            assert!(why.contains("but in `throttle` calls were served"), "{counting:?}: {why}");
            assert!(!told.evidence.is_empty(), "{counting:?}");
        }
    }
}

#[test]
fn another_experiment_at_that_server_disproves_nothing() {
    for most in [2, 5, 9, 16, 33] {
        for counting in bounds(most) {
            let told = contradicted(counting, counting, most, |_| {});
            let told = told.expect("a verdict");
            assert_eq!(told.confidence, Confidence::High, "{counting:?}: {:?}", told.finding);
        }
    }
}

/// A call whose answer is read late seems to be in flight for longer.
#[test]
fn late_times_disprove_nothing() {
    for most in [5, 16, 33] {
        for counting in bounds(most) {
            let doubted = contradicted(counting, Counting::Nothing, most, |record| {
                if let Record::Cell(cell) = record {
                    cell.load.saturated = true;
                }
            });
            let told = doubted.expect("a verdict");
            assert_eq!(told.confidence, Confidence::High, "{counting:?}: {:?}", told.finding);
        }
        // The longest of these calls may have taken 1 ms.
        let late = contradicted(Counting::Calls(most), Counting::Nothing, most, |record| {
            if let Record::Cell(cell) = record {
                cell.load.lag_p99 = 119_000;
            }
        });
        assert_eq!(late.expect("a verdict").confidence, Confidence::High);
    }
}

/// Where a call of a cell fails, the cell says nothing; and nor does another target.
#[test]
fn only_cells_that_passed_whole_at_that_target_disprove() {
    for counting in bounds(9) {
        let failed = contradicted(counting, Counting::Nothing, 9, |record| match record {
            Record::Call(call) if call.n == 5 => "fault".clone_into(&mut call.class),
            _ => {}
        });
        let elsewhere = contradicted(counting, Counting::Nothing, 9, |record| match record {
            Record::Call(call) => call.target = 1,
            Record::Cell(cell) => cell.target = 1,
            Record::Wire(_) | Record::Rollup(_) => {}
        });
        for told in [failed, elsewhere] {
            assert_eq!(told.expect("a verdict").confidence, Confidence::High, "{counting:?}");
        }
    }
}

#[test]
fn what_a_server_counts_is_told() {
    let mut rng = SmallRng::seed_from_u64(1);
    for seed in 0..20 {
        let most = rng.random_range(2..40_usize);
        let calls = most as u64;
        for (counting, expected) in [
            (
                Counting::Connections(most),
                Finding::ConnectionCap { connections: calls, way: RefusalWay::Unanswered },
            ),
            (
                Counting::ConnectionsPolitely(most),
                Finding::ConnectionCap { connections: calls, way: RefusalWay::Status429 },
            ),
            (Counting::Calls(most), Finding::InFlight { calls, way: RefusalWay::Status429 }),
        ] {
            let told = told(counting, most as f64, seed);
            let told = told.unwrap_or_else(|| panic!("seed {seed}, {counting:?}"));
            assert_eq!(told.finding, expected, "seed {seed}, {:#?}", told.evidence);
            assert_eq!(told.confidence, Confidence::High, "seed {seed}, {:#?}", told.evidence);
        }
    }
}

#[test]
fn where_neither_is_counted_nothing_is_told() {
    for seed in 0..10 {
        for counting in [Counting::BrokenBackend, Counting::Window(60)] {
            let told = told(counting, 20.0, seed).map(|it| (it.finding, it.evidence));
            assert_eq!(told, None, "seed {seed}, {counting:?}");
        }
    }
}

#[test]
fn sentences() {
    let way = RefusalWay::Status429;
    for (finding, sentence) in [
        (Finding::InFlight { calls: 20, way }, "At most 20 concurrent requests; excess gets 429"),
        (Finding::InFlight { calls: 1, way }, "At most 1 concurrent request; excess gets 429"),
        (
            Finding::ConnectionCap { connections: 10, way: RefusalWay::Unanswered },
            "At most 10 connections per client address; excess gets no response",
        ),
    ] {
        assert_eq!(finding.to_string(), sentence);
    }
}
