//! `load`: what becomes of a load that one sets, stage after stage.
//!
//! A stage is a rate, open loop, or a number of users, each of which waits for an answer and asks
//! again at once. Stages are played in their order: what one leaves behind for the next is a part
//! of what is asked.

use std::time::Duration;

use wellhead_net::HttpVersion;

use super::{FixedPlan, Ordered, factors};
use crate::measure::client::ConnectionSettings;
use crate::measure::schedule::Schedule;
use crate::work::WorkKind;

/// Calls that a user makes in a second at most, where nothing else is asked for.
pub const PER_USER: u64 = 20;
/// Of a spike the peak lasts for this part of what comes before and after.
const PEAK_SHARE: u32 = 3;

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Calls a second, open loop.
    Rate(f64),
    /// This many users, each of which asks again when it has an answer, closed loop.
    Users(usize),
}

impl Stage {
    /// The stage for this long. Users think for a while after an answer, and make at most
    /// `per_user` calls a second each: a stage ends early when these are made.
    pub(super) fn schedule(self, lasting: Duration, think: Duration, per_user: u64) -> Schedule {
        match self {
            Self::Rate(rate) => Schedule::rate(rate, lasting),
            Self::Users(users) => {
                let users = users.max(1);
                let each = per_user * lasting.as_secs().max(1);
                if think.is_zero() {
                    let calls = users as u64 * each;
                    return Schedule::Closed { at_once: users, calls, within: Some(lasting) };
                }
                // One at once, and then no more than one a thought.
                let thoughts = lasting.as_secs_f64() / think.as_secs_f64();
                let calls = users as u64 * each.min(thoughts as u64 + 1);
                Schedule::Users { users, calls, within: lasting, think }
            }
        }
    }

    /// As a factor.
    pub(super) fn factor(self) -> (&'static str, String) {
        match self {
            Self::Rate(rate) => ("rate", rate.to_string()),
            Self::Users(users) => ("users", users.to_string()),
        }
    }
}

/// Which load.
#[derive(Debug, Clone)]
pub struct LoadTerms {
    /// Stages, and how long each of them lasts.
    pub stages: Vec<(Stage, Duration)>,
    /// What is asked.
    pub work: WorkKind,
    /// Connections.
    pub connections: usize,
    /// Silence between stages.
    pub rest: Duration,
    /// How long users think after an answer.
    pub think: Duration,
    /// Calls that a user makes in a second at most.
    pub per_user: u64,
    /// The protocol, whatever else the target speaks.
    pub version: HttpVersion,
    /// Calls of a request. Rates and users are those of requests.
    pub batch: u64,
}

impl LoadTerms {
    /// `stages`, each for `lasting`, over `connections` connections.
    pub fn new(stages: Vec<Stage>, lasting: Duration, work: WorkKind, connections: usize) -> Self {
        Self {
            stages: stages.into_iter().map(|stage| (stage, lasting)).collect(),
            work,
            connections,
            rest: Duration::ZERO,
            think: Duration::ZERO,
            per_user: PER_USER,
            version: HttpVersion::Auto,
            batch: 1,
        }
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

    /// The cell of the stage at this place. A rate is known by itself, unless it comes more than once.
    fn cell(&self, place: usize) -> Ordered {
        let (stage, lasting) = self.stages[place];
        let is_again = self.stages.iter().filter(|(other, _)| *other == stage).count() > 1;
        let mut factors = factors([("work", self.work.word().to_owned()), stage.factor()]);
        if is_again || matches!(stage, Stage::Users(_)) {
            factors.insert("stage".to_owned(), place.to_string());
        }
        if self.batch > 1 {
            factors.insert("batch".to_owned(), self.batch.to_string());
        }
        let schedule = stage.schedule(lasting, self.think, self.per_user);
        let usual = Ordered::timed(self.work, schedule).over(self.connections);
        Ordered {
            factors,
            transport: ConnectionSettings { version: self.version, ..usual.transport },
            batch: self.batch.max(1),
            rest: self.rest,
            ..usual
        }
    }
}

impl FixedPlan {
    /// `load`: plays the stages of `terms`.
    pub fn load(terms: &LoadTerms) -> Self {
        Self {
            name: "load",
            version: 1,
            cells: (0..terms.stages.len()).rev().map(|place| terms.cell(place)).collect(),
            methods: terms.work.methods(),
            lasting: terms.stages.iter().map(|(_, lasting)| *lasting).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::ExperimentPlan as _;

    #[test]
    fn stages_come_in_their_order() {
        let stages = vec![Stage::Rate(10.0), Stage::Rate(50.0), Stage::Users(4)];
        let terms = LoadTerms::new(stages, Duration::from_secs(2), WorkKind::Mix, 2);
        let mut plan = FixedPlan::load(&terms);
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
        let lasting = Duration::from_secs(6);
        let terms = LoadTerms::spike((8.0, 400.0), lasting, WorkKind::Cheap, 1);
        let mut plan = FixedPlan::load(&terms);
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
        let terms = LoadTerms::new(stages, Duration::from_secs(2), WorkKind::Cheap, 1);
        let mut plan = FixedPlan::load(&LoadTerms { batch: 5, ..terms });
        assert_eq!(plan.calls_max(), 20 * 5 + 3);
        let cell = plan.next(None).expect("a stage");
        assert_eq!((cell.batch, cell.schedule.calls(), cell.calls_max()), (5, 20, 20 * 5 + 3));
        assert_eq!(cell.factors["batch"], "5");
    }

    #[test]
    fn users_that_think_ask_less() {
        let (second, stages) = (Duration::from_secs(1), vec![Stage::Users(5)]);
        let terms = LoadTerms::new(stages, second * 10, WorkKind::Mix, 1);
        let plan = FixedPlan::load(&LoadTerms { think: second * 2, ..terms });
        assert_eq!(plan.calls_max(), 5 * 6 + 3);
    }
}
