//! `load`: what becomes of a load that one sets, stage after stage.
//!
//! A stage is a rate, open loop, or a number of users, each of which waits for an answer and asks
//! again at once. Stages are played in their order: what one leaves behind for the next is a part
//! of what is asked.

use std::time::Duration;

use wellhead_net::HttpVersion;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::schedule::Schedule;
use crate::measure::way::Means;
use crate::work::WorkKind;

/// Calls that a user makes in a second at most, where nothing else is asked for.
pub const PER_USER: u64 = 20;
/// Of a spike the peak lasts for this part of what comes before and after.
const PEAK_SHARE: u32 = 3;

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Calls a second.
    Rate(f64),
    /// Calls at a time.
    Users(usize),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    stages: Vec<(Stage, Duration)>,
    work: WorkKind,
    connections: usize,
    rest: Duration,
    think: Duration,
    per_user: u64,
    version: HttpVersion,
    batch: u64,
    next: usize,
}

impl LoadPlan {
    /// Plays `stages`, each for `lasting`, over `connections` connections.
    pub fn new(stages: Vec<Stage>, lasting: Duration, work: WorkKind, connections: usize) -> Self {
        let stages = stages.into_iter().map(|stage| (stage, lasting)).collect();
        let (rest, think) = (Duration::ZERO, Duration::ZERO);
        let (version, per_user) = (HttpVersion::Auto, PER_USER);
        Self { stages, work, connections, rest, think, per_user, version, batch: 1, next: 0 }
    }

    /// A rate, a far higher one for a third of the time, and the first one again.
    pub fn spike(
        (usual, peak): (f64, f64),
        lasting: Duration,
        work: WorkKind,
        connections: usize,
    ) -> Self {
        let short = (lasting / PEAK_SHARE).max(Duration::from_secs(1));
        let usual = Stage::Rate(usual);
        let stages = vec![(usual, lasting), (Stage::Rate(peak), short), (usual, lasting)];
        Self { stages, ..Self::new(Vec::new(), lasting, work, connections) }
    }

    /// With `rest` between stages.
    #[must_use]
    pub fn with_rest(self, rest: Duration) -> Self {
        Self { rest, ..self }
    }

    /// With users that think for this long after an answer, and make at most `per_user` calls
    /// a second each: a stage ends early when these are made.
    #[must_use]
    pub fn with_users(self, think: Duration, per_user: u64) -> Self {
        Self { think, per_user, ..self }
    }

    /// Over this protocol, whatever else the target speaks.
    #[must_use]
    pub fn over(self, version: HttpVersion) -> Self {
        Self { version, ..self }
    }

    /// With requests of this many calls each. Rates and users are those of requests.
    #[must_use]
    pub fn in_batches(self, batch: u64) -> Self {
        Self { batch: batch.max(1), ..self }
    }

    fn schedule(&self, stage: Stage, lasting: Duration) -> Schedule {
        match stage {
            Stage::Rate(rate) => Schedule::rate(rate, lasting),
            Stage::Users(users) => {
                let users = users.max(1);
                let each = self.per_user * lasting.as_secs().max(1);
                if self.think.is_zero() {
                    let calls = users as u64 * each;
                    return Schedule::Closed { at_once: users, calls, within: Some(lasting) };
                }
                // One at once, and then no more than one a thought.
                let thoughts = lasting.as_secs_f64() / self.think.as_secs_f64();
                let calls = users as u64 * each.min(thoughts as u64 + 1);
                Schedule::Users { users, calls, within: lasting, think: self.think }
            }
        }
    }
}

impl ExperimentPlan for LoadPlan {
    fn name(&self) -> &'static str {
        "load"
    }

    fn calls_max(&self) -> u64 {
        let warming = 3 * self.connections as u64;
        let calls = |(stage, lasting): &(Stage, Duration)| self.schedule(*stage, *lasting).calls();
        self.stages.iter().map(|stage| calls(stage).saturating_mul(self.batch) + warming).sum()
    }

    fn work(&self) -> WorkKind {
        self.work
    }

    fn lasts(&self) -> Duration {
        self.stages.iter().map(|(_, lasting)| *lasting + self.rest).sum()
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        let (stage, lasting) = *self.stages.get(self.next)?;
        let number = self.next;
        self.next += 1;
        let mut factors = factors([("work", self.work.word().to_owned())]);
        if self.batch > 1 {
            factors.insert("batch".to_owned(), self.batch.to_string());
        }
        match stage {
            Stage::Rate(rate) => {
                let again = |(other, _): &&(Stage, Duration)| *other == stage;
                if self.stages.iter().filter(again).count() > 1 {
                    factors.insert("stage".to_owned(), number.to_string());
                }
                factors.insert("rate".to_owned(), rate.to_string())
            }
            Stage::Users(users) => {
                factors.insert("stage".to_owned(), number.to_string());
                factors.insert("users".to_owned(), users.to_string())
            }
        };
        let schedule = self.schedule(stage, lasting);
        let usual = Ordered::timed(self.work, schedule).over(self.connections);
        Some(Ordered {
            factors,
            means: Means { version: self.version, ..usual.means },
            batch: self.batch,
            rest: self.rest,
            ..usual
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_come_in_their_order() {
        let stages = vec![Stage::Rate(10.0), Stage::Rate(50.0), Stage::Users(4)];
        let mut plan = LoadPlan::new(stages, Duration::from_secs(2), WorkKind::Mix, 2);
        assert_eq!(plan.calls_max(), (20 + 6) + (100 + 6) + (160 + 6));
        let mut cells = Vec::new();
        while let Some(cell) = plan.next(None) {
            let text: Vec<String> =
                cell.factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
            cells.push(text.join(" "));
        }
        assert_eq!(cells, ["rate=10 work=mix", "rate=50 work=mix", "stage=2 users=4 work=mix"]);
    }

    #[test]
    fn a_spike_is_short_and_between_two_times_of_the_usual() {
        let mut plan = LoadPlan::spike((8.0, 400.0), Duration::from_secs(6), WorkKind::Cheap, 1);
        assert_eq!(plan.lasts(), Duration::from_secs(14));
        let cells = std::iter::from_fn(|| plan.next(None));
        let told: Vec<_> = cells
            .map(|cell| {
                let stage = cell.factors.get("stage").cloned().unwrap_or_default();
                (cell.factors["rate"].clone(), stage, cell.schedule.calls())
            })
            .collect();
        let expected = [("8", "0", 48), ("400", "", 800), ("8", "2", 48)]
            .map(|(rate, stage, calls)| (rate.to_owned(), stage.to_owned(), calls));
        assert_eq!(told, expected);
    }

    #[test]
    fn a_batch_is_one_request_and_many_calls() {
        let stages = vec![Stage::Rate(10.0)];
        let plan = LoadPlan::new(stages, Duration::from_secs(2), WorkKind::Cheap, 1);
        let mut plan = plan.in_batches(5);
        assert_eq!(plan.calls_max(), 20 * 5 + 3);
        let cell = plan.next(None).expect("a stage");
        assert_eq!((cell.batch, cell.schedule.calls(), cell.calls_max()), (5, 20, 20 * 5 + 3));
        assert_eq!(cell.factors["batch"], "5");
    }

    #[test]
    fn users_who_think_ask_less() {
        let (second, stages) = (Duration::from_secs(1), vec![Stage::Users(5)]);
        let plan =
            LoadPlan::new(stages, second * 10, WorkKind::Mix, 1).with_users(second * 2, PER_USER);
        assert_eq!(plan.calls_max(), 5 * 6 + 3);
    }
}
