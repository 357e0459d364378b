//! `protocol`: HTTP/1.1 against HTTP/2, by connections, calls at a time and the size of answers.
//!
//! Each cell opens its connections anew, and what that takes is a part of it. A cell is played
//! several times, all of them once before any is played again, and each time in another order
//! drawn from the seed: what changes with time is spread over all alike.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;
use wellhead_net::HttpVersion;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::measure::way::Means;
use crate::work::WorkKind;

/// What is swept.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Connections; over HTTP/1.1 a call has one for itself as long as it lasts.
    pub connections: Vec<usize>,
    /// Calls at a time.
    pub at_once: Vec<usize>,
    /// What is asked.
    pub bodies: Vec<WorkKind>,
    /// Calls of a cell.
    pub calls: u64,
    /// How often each cell is played.
    pub repeats: u32,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ProtocolPlan {
    sweep: Sweep,
    /// The next one last.
    cells: Vec<ProtocolSetting>,
    rest: Duration,
}

#[derive(Debug, Clone, Copy)]
struct ProtocolSetting {
    version: HttpVersion,
    connections: usize,
    at_once: usize,
    body: WorkKind,
    repeat: u32,
}

impl ProtocolPlan {
    /// All of `sweep` over both protocols, in an order drawn from `rng`.
    pub fn new(sweep: Sweep, rest: Duration, rng: &mut impl Rng) -> Self {
        let mut cells = Vec::new();
        for repeat in (0..sweep.repeats).rev() {
            let mut round = Vec::new();
            for body in &sweep.bodies {
                for connections in &sweep.connections {
                    for at_once in &sweep.at_once {
                        for version in [HttpVersion::H1, HttpVersion::H2] {
                            let (connections, at_once) = ((*connections).max(1), (*at_once).max(1));
                            let body = *body;
                            round.push(ProtocolSetting {
                                version,
                                connections,
                                at_once,
                                body,
                                repeat,
                            });
                        }
                    }
                }
            }
            round.shuffle(rng);
            cells.append(&mut round);
        }
        Self { sweep, cells, rest }
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

impl ExperimentPlan for ProtocolPlan {
    fn name(&self) -> &'static str {
        "protocol"
    }

    fn version(&self) -> u32 {
        1
    }

    fn calls_max(&self) -> u64 {
        let Sweep { connections, at_once, bodies, calls, repeats } = &self.sweep;
        let cells = 2 * connections.len() * at_once.len() * bodies.len();
        calls * u64::from(*repeats) * cells as u64
    }

    fn work(&self) -> WorkKind {
        let costly = self.sweep.bodies.iter().find(|work| **work != WorkKind::Cheap);
        costly.copied().unwrap_or(WorkKind::Cheap)
    }

    fn lasts(&self) -> Duration {
        self.rest * u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let ProtocolSetting { version, connections, at_once, body: work, repeat } =
            self.cells.pop()?;
        let protocol = if version == HttpVersion::H1 { "http/1.1" } else { "h2" };
        Some(Ordered {
            factors: factors([
                ("protocol", protocol.to_owned()),
                ("connections", connections.to_string()),
                ("concurrency", at_once.to_string()),
                ("body", body(work).to_owned()),
            ]),
            repeat,
            means: Means { version, connections, streams_max: at_once.div_ceil(connections) },
            work,
            batch: 1,
            schedule: Schedule::Closed { at_once, calls: self.sweep.calls, within: None },
            warmed: false,
            until_failure: false,
            timed: true,
            rest: self.rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn play(seed: u64) -> Vec<String> {
        let sweep = Sweep {
            connections: vec![1, 4],
            at_once: vec![10, 50],
            bodies: vec![WorkKind::Cheap, WorkKind::LargeBlocks],
            calls: 100,
            repeats: 3,
        };
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut plan = ProtocolPlan::new(sweep, Duration::ZERO, &mut rng);
        assert_eq!((plan.calls_max(), plan.work()), (4_800, WorkKind::LargeBlocks));
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
    fn the_order_is_the_seeds_and_another_one_each_time() {
        let cells = play(1);
        assert_eq!(cells, play(1));
        assert_ne!(cells, play(2));
        let order = |round: &[String]| round.iter().map(|cell| cell[2..].to_owned()).collect();
        let rounds: BTreeSet<Vec<String>> = cells.chunks(16).map(order).collect();
        assert_eq!(rounds.len(), 3);
    }
}
