//! Experiments as plans: which cell is played next, given what came of those before.
//!
//! A plan decides and nothing else: it sends nothing, reads no clock, and with the same seed and
//! the same outcomes it asks for the same cells. One factor varies in a plan; the others are held.
//! What the cells mean is `verdict`'s business. A plan that needs no outcome is a [`FixedPlan`].

mod bodies;
mod connection;
mod cost;
mod latency;
mod load;
mod probe;
mod protocol;
mod rate;
mod replay;
mod soak;
mod streams;
mod throttle;
mod window;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;
use wellhead_upstream::VerdictClass;

use crate::measure::client::{ConnectionSettings, WARMING_MAX};
use crate::measure::schedule::Schedule;
use crate::record::trial;
use crate::record::{CallRecord, factors};
use crate::stat::bucket::TimedCall;
use crate::work::WorkKind;

pub use connection::ConnectionPlan;
pub use load::{LoadTerms, PER_USER, Stage};
pub use probe::{ProbeCell, ProbePlan};
pub use protocol::Sweep;
pub use rate::RatePlan;
pub use soak::SoakPlan;
pub use streams::StreamsPlan;
pub use window::WindowPlan;

/// One cell to be played.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered {
    /// What is varied and held.
    pub factors: BTreeMap<String, String>,
    /// Which repeat of these factors, from 0.
    pub repeat: u32,
    /// Connections and protocol; all fresh.
    pub transport: ConnectionSettings,
    /// What is asked.
    pub work: WorkKind,
    /// Calls of one request: more than one make a batch.
    pub batch: u64,
    /// When.
    pub schedule: Schedule,
    /// Whether connections are opened by calls that are not recorded.
    pub warmed: bool,
    /// Whether the first call without an answer ends the cell.
    pub until_failure: bool,
    /// Whether it measures time: only then a generator that falls behind spoils it.
    pub timed: bool,
    /// Silence before it.
    pub rest: Duration,
}

/// Calls at once on one connection, as the proxy has it where nothing else is known.
const STREAMS_MAX: usize = 90;

/// A served call is late if it took more than [`LATE_TIMES`] times as long as the quickest, and more than [`LATE_US`].
const LATE_TIMES: u64 = 10;
const LATE_US: u64 = 1_000_000;

/// What came of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellOutcome {
    /// Calls that were made.
    pub calls: u64,
    /// Of these, those that were refused for their rate.
    pub throttled: u64,
    /// Of these, those without an answer.
    pub failed: u64,
    /// Of all, those that were neither served nor refused, whether an answer came or not.
    pub unserved: u64,
    /// Of all, those that were served so late that they must have waited: a second and ten times as long as the
    /// quickest before them.
    pub late: u64,
    /// The shortest time of a served call, microseconds.
    pub quickest_us: Option<u64>,
    /// Of all, those that its first connection carried.
    pub on_first: u64,
    /// Whether that connection carried no more in the end: it was gone, or a call on it failed.
    pub first_ended: bool,
    /// The longest pause that a refusal for the rate asked for, milliseconds.
    pub pause_ms: Option<u64>,
    /// How long it had been silent when the other side ended it, milliseconds.
    pub silent_ms: Option<u64>,
}

impl CellOutcome {
    /// Counts one call that is over. What the first connection did is not counted here.
    pub fn add(&mut self, call: &CallRecord) {
        self.calls += 1;
        if call.class == VerdictClass::Throttled.word() {
            self.throttled += 1;
            self.pause_ms = self.pause_ms.max(call.retry_after_ms);
        }
        self.failed += u64::from(call.error.is_some());
        let is_served = trial::served(call);
        self.unserved += u64::from(!is_served && !trial::throttled(call));
        if is_served {
            let took = call.ended_at.saturating_sub(call.intended_at);
            let quickest = self.quickest_us.map_or(took, |quickest| quickest.min(took));
            self.quickest_us = Some(quickest);
            self.late += u64::from(took > (LATE_TIMES * quickest).max(LATE_US));
        }
    }

    /// Whether its calls met a limit, whatever tells so: calls that are refused (one in a thousand is no limit), that
    /// fail, or that wait.
    pub(crate) fn is_limited(&self) -> bool {
        let calls = self.calls.max(1);
        let is_refused = self.throttled * 1_000 >= calls;
        is_refused || self.unserved * 10 >= calls || self.late * 10 >= calls
    }
}

impl TimedCall {
    /// What became of a call, with its time in seconds after `begun_at`, in microseconds.
    pub(crate) fn of(call: &CallRecord, begun_at: u64) -> Self {
        let at = call.begun_at.saturating_sub(begun_at) + call.queue.unwrap_or(0);
        let passed = !trial::denied(call);
        Self { at: Duration::from_micros(at).as_secs_f64(), passed }
    }
}

impl Ordered {
    /// A cell that measures time over one connection, warmed, without silence before it; of no
    /// factors yet.
    pub(crate) fn timed(work: WorkKind, schedule: Schedule) -> Self {
        Self {
            factors: BTreeMap::new(),
            repeat: 0,
            transport: ConnectionSettings::ONE,
            work,
            batch: 1,
            schedule,
            warmed: true,
            until_failure: false,
            timed: true,
            rest: Duration::ZERO,
        }
    }

    /// Sends its calls over this number of connections.
    fn over(self, connections: usize) -> Self {
        let transport =
            ConnectionSettings { connections, streams_max: STREAMS_MAX, ..self.transport };
        Self { transport, ..self }
    }

    /// Calls that it sends at most, those that warm up included.
    pub fn calls_max(&self) -> u64 {
        let warming = if self.warmed { WARMING_MAX * self.transport.connections.max(1) } else { 0 };
        self.schedule.calls().saturating_mul(self.batch).saturating_add(warming as u64)
    }
}

/// An experiment.
pub trait ExperimentPlan: Debug {
    /// Its name, as records and verdicts have it.
    fn name(&self) -> &'static str;

    /// Goes up when what it sends changes; 1 while that never did.
    fn version(&self) -> u32 {
        1
    }

    /// Calls that it may send at most, those that warm up included, for one target.
    fn calls_max(&self) -> u64;

    /// Methods that it asks and their shares, for a prediction of what it costs: the cheapest, where it says nothing
    /// else.
    fn methods(&self) -> Vec<(&'static str, f64)> {
        WorkKind::Cheap.methods()
    }

    /// How long it lasts at least, pauses included.
    fn lasts(&self) -> Duration;

    /// The cell to be played now; `None` when it is over. `last` is what came of the one before.
    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered>;

    /// What became of each call of the cell before, in order of time, where its schedule leans on
    /// a limit or has times of its own; otherwise nothing.
    fn saw(&mut self, _: &[TimedCall]) {}

    /// Where it says how often, calls are not written one by one, but what became of them
    /// at that interval: a long run would fill the disk.
    fn rolled(&self) -> Option<Duration> {
        None
    }

    /// For this long it was played before the run was cut, where calls are rolled up.
    fn watched(&mut self, _: Duration) {}
}

/// An experiment that asks for the same cells whatever comes of them.
#[derive(Debug, Clone)]
pub struct FixedPlan {
    name: &'static str,
    version: u32,
    /// The next one last.
    cells: Vec<Ordered>,
    methods: Vec<(&'static str, f64)>,
    /// How long it lasts at least beside the rests.
    lasting: Duration,
}

impl FixedPlan {
    /// One cell.
    fn one(name: &'static str, cell: Ordered) -> Self {
        let methods = cell.work.methods();
        Self { name, version: 1, cells: vec![cell], methods, lasting: Duration::ZERO }
    }

    /// All cells of a `round`, and all of them again until there were `repeats` rounds, each in an order drawn from
    /// `rng`: what changes with time is spread over all alike. It costs what `work` does.
    fn rounds(
        name: &'static str,
        round: &[Ordered],
        repeats: u32,
        work: WorkKind,
        rng: &mut impl Rng,
    ) -> Self {
        let mut cells = Vec::new();
        for repeat in (0..repeats).rev() {
            let again = |cell: &Ordered| Ordered { repeat, ..cell.clone() };
            let mut round: Vec<Ordered> = round.iter().map(again).collect();
            round.shuffle(rng);
            cells.append(&mut round);
        }
        Self { name, version: 1, cells, methods: work.methods(), lasting: Duration::ZERO }
    }
}

impl ExperimentPlan for FixedPlan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn calls_max(&self) -> u64 {
        self.cells.iter().map(Ordered::calls_max).sum()
    }

    fn methods(&self) -> Vec<(&'static str, f64)> {
        self.methods.clone()
    }

    fn lasts(&self) -> Duration {
        self.lasting + self.cells.iter().map(|cell| cell.rest).sum::<Duration>()
    }

    fn next(&mut self, _: Option<&CellOutcome>) -> Option<Ordered> {
        self.cells.pop()
    }
}
