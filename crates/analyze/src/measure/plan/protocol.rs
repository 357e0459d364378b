//! `protocol`: HTTP/1.1 against HTTP/2, by connections, calls at a time and the size of answers.
//!
//! Each cell opens its connections anew, and what that takes is a part of it. A cell is played
//! several times, all of them once before any is played again, and each time in another order
//! drawn from the seed: what changes with time is spread over all alike.

use std::time::Duration;

use rand::Rng;
use wellhead_net::HttpVersion;

use super::{FixedPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// What is swept.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Connections; over HTTP/1.1 a call has one for itself as long as it lasts.
    pub connections: Vec<usize>,
    /// Over HTTP/1.1 there are as many connections as calls at a time, as clients have them, whatever
    /// `connections` says.
    pub http1_own: bool,
    /// Calls at a time.
    pub at_once: Vec<usize>,
    /// What is asked.
    pub bodies: Vec<WorkKind>,
    /// Calls of a cell.
    pub calls: u64,
    /// How often each cell is played.
    pub repeats: u32,
}

impl FixedPlan {
    /// `protocol`: all of `sweep` over both protocols, in an order drawn from `rng`.
    pub fn protocol(sweep: &Sweep, rest: Duration, rng: &mut impl Rng) -> Self {
        let ways = sweep.ways();
        let mut round = Vec::new();
        for work in &sweep.bodies {
            let cell = |(transport, at_once): &(ConnectionSettings, usize)| {
                let schedule =
                    Schedule::Closed { at_once: *at_once, calls: sweep.calls, within: None };
                let protocol = if transport.version == HttpVersion::H1 { "http/1.1" } else { "h2" };
                Ordered {
                    factors: factors([
                        ("protocol", protocol.to_owned()),
                        ("connections", transport.connections.to_string()),
                        ("concurrency", at_once.to_string()),
                        ("body", body(*work).to_owned()),
                    ]),
                    transport: *transport,
                    warmed: false,
                    rest,
                    ..Ordered::timed(*work, schedule)
                }
            };
            round.extend(ways.iter().map(cell));
        }
        let costly = sweep.bodies.iter().find(|work| **work != WorkKind::Cheap);
        let costly = costly.copied().unwrap_or(WorkKind::Cheap);
        Self::rounds("protocol", &round, sweep.repeats, costly, rng)
    }
}

impl Sweep {
    /// Protocols and connections, and calls at a time.
    fn ways(&self) -> Vec<(ConnectionSettings, usize)> {
        let mut ways = Vec::new();
        for (nth, connections) in self.connections.iter().enumerate() {
            for at_once in &self.at_once {
                let (connections, at_once) = ((*connections).max(1), (*at_once).max(1));
                let mut add = |version, connections| {
                    let streams_max = at_once.div_ceil(connections);
                    ways.push((ConnectionSettings { version, connections, streams_max }, at_once));
                };
                match (self.http1_own, nth) {
                    (false, _) => add(HttpVersion::H1, connections),
                    (true, 0) => add(HttpVersion::H1, at_once),
                    (true, _) => {}
                }
                add(HttpVersion::H2, connections);
            }
        }
        ways
    }
}

/// As a factor names it.
fn body(work: WorkKind) -> &'static str {
    match work {
        WorkKind::Cheap => "small",
        WorkKind::SmallBlocks => "medium",
        WorkKind::LargeBlocks => "large",
        WorkKind::Mix => "mixed",
        WorkKind::Only(method) => method,
        WorkKind::Listed(_) | WorkKind::Replayed(_) => work.word(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    fn play(seed: u64) -> Vec<String> {
        let sweep = Sweep {
            connections: vec![1, 4],
            http1_own: false,
            at_once: vec![10, 50],
            bodies: vec![WorkKind::Cheap, WorkKind::LargeBlocks],
            calls: 100,
            repeats: 3,
        };
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut plan = FixedPlan::protocol(&sweep, Duration::ZERO, &mut rng);
        assert_eq!(plan.calls_max(), 4_800);
        assert_eq!(plan.methods(), WorkKind::LargeBlocks.methods());
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            cells.push(format!("{} {:?}", cell.repeat, cell.factors));
        }
        cells
    }

    #[test]
    fn each_cell_comes_once_before_any_comes_again() {
        let cells = play(1);
        assert_eq!(cells.len(), 48);
        for (repeat, round) in cells.chunks(16).enumerate() {
            let different: BTreeSet<&String> = round.iter().collect();
            assert_eq!(different.len(), 16);
            assert!(round.iter().all(|cell| cell.starts_with(&format!("{repeat} "))), "{round:?}");
        }
    }

    #[test]
    fn over_http_1_each_call_has_its_connection() {
        let (connections, at_once) = (vec![1, 4], vec![10, 50]);
        let bodies = vec![WorkKind::Cheap];
        let sweep = Sweep { connections, http1_own: true, at_once, bodies, calls: 100, repeats: 1 };
        let mut plan = FixedPlan::protocol(&sweep, Duration::ZERO, &mut SmallRng::seed_from_u64(1));
        assert_eq!(plan.calls_max(), 600);
        let mut cells = BTreeSet::new();
        while let Some(cell) = plan.next(None) {
            let of = |name: &str| cell.factors[name].clone();
            cells.insert(format!("{} {} {}", of("protocol"), of("concurrency"), of("connections")));
        }
        let expected =
            ["h2 10 1", "h2 10 4", "h2 50 1", "h2 50 4", "http/1.1 10 10", "http/1.1 50 50"];
        assert_eq!(cells.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_order_is_the_seeds_and_another_one_each_time() {
        let cells = play(1);
        assert_eq!(cells, play(1));
        assert_ne!(cells, play(2));
        let order = |round: &[String]| round.iter().map(|cell| cell[2..].to_owned()).collect();
        let rounds: BTreeSet<Vec<String>> = cells.chunks(16).map(order).collect();
        assert_eq!(rounds.len(), 3);
    }
}
