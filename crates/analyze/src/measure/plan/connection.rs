//! `connection`: how many requests one connection bears, and how long it may be silent.
//!
//! Requests: calls over one fresh connection, a few at a time, until it ends or there were as
//! many as were asked for. Where it ended it is done twice more, and the last calls before the
//! number that was seen go alone, so that it is known to the request. Silence: two calls with the
//! longest silence between them; when the connection ends before the second is known to the
//! moment, so that one cell finds it, and three more show that it is no chance: one that is to
//! bear it, with a tenth less, and two that are not, with half as much again. Where the end cannot be seen, because
//! something between forgets the connection without a word, the silence is bisected.

use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Calls at a time while the end is far.
const AT_ONCE: usize = 8;
/// The last calls before the end that was seen, this many, go alone.
const ALONE: u64 = 3 * AT_ONCE as u64;
/// Connections that are used up, where they end.
const ENDS: u32 = 3;
/// Connections that are not, where they don't.
const HOLDS: u32 = 2;
/// Bisecting ends when the two are so near to each other.
const NEAR: f64 = 1.1;
/// The shortest silence that is tried.
const SILENCE_MIN: Duration = Duration::from_millis(100);
/// A longer one is known well enough by a generator that is late: a tenth of a second is a fiftieth
/// of it.
const TIMED_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Clone)]
pub struct ConnectionPlan {
    requests: u64,
    idle: Duration,
    rest: Duration,
    phase: ConnectionPhase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ConnectionPhase {
    /// Which connection, from 0, and from which call on calls go alone.
    Requests {
        nth: u32,
        alone_from: u64,
    },
    /// The longest silence.
    Longest,
    /// The end was seen after `after`; of the cells that are to show it, this many were played.
    Shown {
        after: Duration,
        played: u32,
    },
    /// It was not seen: the longest that was borne and the shortest that was not.
    Bisecting {
        low: Duration,
        high: Duration,
    },
    Over,
}

impl ConnectionPlan {
    /// Up to `requests` calls on a connection, and a silence of up to `idle`; where one is zero
    /// that half is left out.
    pub fn new(requests: u64, idle: Duration, rest: Duration) -> Self {
        let phase = match (requests, idle.is_zero()) {
            (0, true) => ConnectionPhase::Over,
            (0, false) => ConnectionPhase::Longest,
            (_, _) => ConnectionPhase::Requests { nth: 0, alone_from: u64::MAX },
        };
        Self { requests, idle, rest, phase }
    }

    fn after_requests(&self) -> ConnectionPhase {
        if self.idle.is_zero() { ConnectionPhase::Over } else { ConnectionPhase::Longest }
    }

    /// What follows the cell that was played in this phase.
    fn learn(&mut self, last: &CellOutcome) {
        let seen = last.silent_ms.map(Duration::from_millis);
        self.phase = match self.phase {
            ConnectionPhase::Requests { nth, alone_from } => {
                // One that was seen to end is looked for closely from then on.
                let alone_from = match last.first_ended {
                    true => alone_from.min(last.on_first.saturating_sub(ALONE)),
                    false => alone_from,
                };
                let wanted = if alone_from == u64::MAX { HOLDS } else { ENDS };
                match nth + 1 < wanted {
                    true => ConnectionPhase::Requests { nth: nth + 1, alone_from },
                    false => self.after_requests(),
                }
            }
            ConnectionPhase::Longest => match (seen, last.first_ended) {
                (Some(after), _) => ConnectionPhase::Shown { after, played: 0 },
                (None, true) => ConnectionPhase::Bisecting { low: SILENCE_MIN, high: self.idle },
                (None, false) => ConnectionPhase::Over,
            },
            ConnectionPhase::Shown { played: 2.., .. } => ConnectionPhase::Over,
            ConnectionPhase::Shown { after, played } => {
                ConnectionPhase::Shown { after, played: played + 1 }
            }
            ConnectionPhase::Bisecting { low, high } => {
                let tried = middle(low, high);
                let (low, high) = if last.first_ended { (low, tried) } else { (tried, high) };
                match high > low.mul_f64(NEAR) {
                    true => ConnectionPhase::Bisecting { low, high },
                    false => ConnectionPhase::Over,
                }
            }
            ConnectionPhase::Over => ConnectionPhase::Over,
        };
    }

    fn silent(&self, length: Duration, repeat: u32) -> Ordered {
        let length = length.max(SILENCE_MIN);
        let ms = length.as_millis().to_string();
        let schedule = Schedule::Open { per_second: 1.0 / length.as_secs_f64(), calls: 2 };
        let held = [("idle_ms", ms), ("connections", "1".to_owned())];
        Ordered { timed: length <= TIMED_MAX, ..self.cell(held, schedule, repeat) }
    }

    fn cell<const N: usize>(
        &self,
        held: [(&str, String); N],
        schedule: Schedule,
        repeat: u32,
    ) -> Ordered {
        Ordered {
            factors: factors(held),
            repeat,
            transport: ConnectionSettings { streams_max: AT_ONCE, ..ConnectionSettings::ONE },
            // All requests of the connection are to be counted.
            warmed: false,
            timed: false,
            rest: self.rest,
            ..Ordered::timed(WorkKind::Cheap, schedule)
        }
    }
}

/// As far from one as from the other by their ratio.
fn middle(low: Duration, high: Duration) -> Duration {
    Duration::from_secs_f64((low.as_secs_f64() * high.as_secs_f64()).sqrt())
}

impl ExperimentPlan for ConnectionPlan {
    fn name(&self) -> &'static str {
        "connection"
    }

    fn calls_max(&self) -> u64 {
        // A call or a few too many tell that it is over.
        let requests = u64::from(ENDS) * (self.requests + AT_ONCE as u64);
        let silences = if self.idle.is_zero() { 0 } else { 2 * BISECTIONS_MAX };
        if self.requests == 0 { silences } else { requests + silences }
    }

    fn lasts(&self) -> Duration {
        self.idle + self.rest * HOLDS
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        if let Some(last) = last {
            self.learn(last);
        }
        match self.phase {
            ConnectionPhase::Requests { nth, alone_from } => {
                let calls = self.requests;
                let schedule = Schedule::OneConnection { at_once: AT_ONCE, alone_from, calls };
                let held = [("requests", calls.to_string()), ("connections", "1".to_owned())];
                Some(self.cell(held, schedule, nth))
            }
            ConnectionPhase::Longest => Some(self.silent(self.idle, 0)),
            ConnectionPhase::Shown { after, played: 0 } => Some(self.silent(after.mul_f64(0.9), 0)),
            ConnectionPhase::Shown { after, played } => {
                Some(self.silent(after.mul_f64(1.5), played))
            }
            ConnectionPhase::Bisecting { low, high } => Some(self.silent(middle(low, high), 0)),
            ConnectionPhase::Over => None,
        }
    }
}

/// Cells that bisecting from a tenth of a second to a day takes at most, and the first.
const BISECTIONS_MAX: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Plays it against connections that end after this many requests, and after a silence of this
    /// length, which is seen or not. Tells the cells.
    fn play(
        requests: u64,
        idle_ms: u64,
        ends: Option<u64>,
        silence: Option<(u64, bool)>,
    ) -> String {
        let mut plan = ConnectionPlan::new(requests, MS * idle_ms as u32, MS);
        let (mut cells, mut calls, mut last) = (Vec::new(), 0, None);
        while let Some(cell) = plan.next(last.as_ref()) {
            let mut outcome = CellOutcome::default();
            match cell.schedule {
                Schedule::OneConnection { at_once, alone_from, calls: up_to } => {
                    let late = if alone_from == u64::MAX { at_once as u64 - 1 } else { 0 };
                    outcome.first_ended = ends.is_some_and(|ends| ends < up_to);
                    outcome.on_first = ends.map_or(up_to, |ends| (ends + late).min(up_to));
                    calls += up_to;
                    cells.push(match alone_from {
                        u64::MAX => format!("{up_to}"),
                        from => format!("{up_to} alone from {from}"),
                    });
                }
                Schedule::Open { .. } => {
                    let length: u64 = cell.factors["idle_ms"].parse().expect("a number");
                    if let Some((after, seen)) = silence.filter(|(after, _)| *after <= length) {
                        outcome.first_ended = true;
                        outcome.silent_ms = seen.then_some(after);
                    }
                    calls += 2;
                    cells.push(format!("silent {length}"));
                }
                other => panic!("{other:?}"),
            }
            last = Some(outcome);
        }
        assert!(calls <= plan.calls_max(), "{calls} calls, {} told", plan.calls_max());
        cells.join(", ")
    }

    #[test]
    fn one_that_ends_is_looked_at_closely() {
        let cells = play(2_000, 0, Some(1_000), None);
        assert_eq!(cells, "2000, 2000 alone from 983, 2000 alone from 976");
        assert_eq!(play(50, 0, Some(3), None), "50, 50 alone from 0, 50 alone from 0");
    }

    #[test]
    fn one_that_bears_all_is_tried_twice() {
        assert_eq!(play(100, 0, None, None), "100, 100");
    }

    #[test]
    fn an_end_that_is_seen_is_shown() {
        let cells = play(0, 90_000, None, Some((60_000, true)));
        assert_eq!(cells, "silent 90000, silent 54000, silent 90000, silent 90000");
    }

    #[test]
    fn an_end_that_is_not_seen_is_bisected() {
        let cells = play(0, 100_000, None, Some((30_000, false)));
        let tried: Vec<u64> =
            cells.split(", ").map(|cell| cell[7..].parse().expect("a number")).collect();
        let borne = tried.iter().filter(|ms| **ms < 30_000).max().expect("some are");
        let not = tried.iter().filter(|ms| **ms >= 30_000).min().expect("some are not");
        assert!(*not as f64 / *borne as f64 <= 1.101, "{cells}");
        assert!(tried.len() as u64 <= BISECTIONS_MAX, "{cells}");
        assert_eq!(play(0, 86_400_000, None, Some((100, false))).split(", ").count(), 9);
    }

    #[test]
    fn where_nothing_ends_one_silence_is_enough() {
        assert_eq!(play(0, 5_000, None, None), "silent 5000");
        assert_eq!(play(0, 0, None, None), "");
    }
}
