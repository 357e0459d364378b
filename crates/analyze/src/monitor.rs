//! Watches targets for ever: gentle probes within a budget, and a study of the limit when they contradict what is
//! known of it. So a profile stays what the provider is now.
//!
//! ```text
//! SpendLedger ── calls ──> round: greet, latency, `probe` ──> agrees: next round
//!                             └── contradicts, twice in a row ──> study: `rate`, `window` ──> profile
//! ```
//!
//! **Owners.** [`MonitoredTarget`] has what is known of a target and decides what is next; it is told the time, and
//! sends nothing. This module waits, plays and writes. What a round says is told from its own records alone
//! (`gather`), by the same verdicts as those of any other run.
//!
//! **A round** costs 3 calls that greet, at most 13 for the latency, and the probe: at 0.8 of the limit for 3 s, which
//! has to pass, and at twice the limit until a bucket must be empty, which has to be refused. With a limit of 50 calls
//! per second and a bucket of a second that is 16 + 126 + 231 = 373 calls. Where no limit was met it is 97. A cell that
//! is refused below the limit, passes whole above it, or lets 30 % more or fewer calls pass than an even bucket would,
//! contradicts; 10 s later it is asked again, because a slip of the provider, or other clients of the same key, look
//! the same once. Others that use the same key take a part of the limit, and what is found is what they leave.
//! **A study** begins 5 s later, when what the probe has emptied is full again. It holds rising rates, from an eighth of the limit if it fell and from the limit if it rose,
//! until two are refused; then it empties the bucket, if there are calls left. At most half of the calls of an hour (or
//! a day, where these are fewer) go into one, and rounds leave as many as it needs. One that finds nothing is played
//! again after 1 min, 2 min ... 1 h, each time over a wider range; one that finds what was known, likewise.
//!
//! **How soon** a change is seen: at most the time between two rounds, 10 s, and the study (7 s for each rate). The time
//! between rounds is `every`, or more where the budget asks for it: the cost of a round divided by what the budget has
//! left beside a study. At 50 calls per second 12,000 calls an hour allow a round each 133 s, and a change of the limit
//! is in the profile after 4 minutes at most.
//!
//! **Bounds.** Calls to each target in any 60 minutes and any 24 hours ([`SpendBounds`]); they are charged, and written
//! down, before they are sent. `RUNS_MAX` runs (`saved`) of at most 50,000 calls each are kept, packed. Each study begins a
//! run of its own, so that the records of one run know one limit.
//!
//! One monitor at a time uses a directory.
//!
//! **Beside other traffic.** A program that uses the target itself gives its turns to the monitor, and is told when
//! calls lean on the limit ([`MonitorObserver`]): it can hold its own calls meanwhile.
//!
//! **A restart** keeps what was spent, the verdicts and the counts (`watch.json`). A probe that had contradicted is
//! forgotten, and played again.
//!
//! A target that answers nothing, or refuses everything, rests for 15 minutes. Targets are watched in turn, never two
//! at once; where there are several, `fresh` looks at all of them for 75 s each quarter of an hour.

mod gather;
mod lean;
mod limit;
mod saved;
mod spend;
mod target;
mod terms;

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use lean::LEAN_EVERY;
pub use limit::{ProbeSign, RateBound, TrackedLimit};
pub use spend::{SpendBounds, SpendLedger};
pub use target::{MonitorCounts, MonitoredTarget};
pub use terms::{CALLS_PER_HOUR_MIN, MonitorTerms};

use self::gather::RoundRecords;
use self::lean::LeanWatch;
use self::target::{MonitorStep, StudyResult, latency_plan};
use crate::conclude::profile::profile;
use crate::conclude::verdict::{ExperimentVerdict, Finding, FindingBound, figure, verdicts};
use crate::measure::client::TargetEndpoint;
use crate::measure::inquiry::fresh::{self, FreshTerms};
use crate::measure::plan::{ExperimentPlan, WindowPlan};
use crate::measure::run::{
    CallBudget, CpuClock, Greeting, PanelMember, Player, RunError, RunTerms, StopSignal,
};
use crate::record::{Record, RunRecord};
use crate::stored;
use crate::work::GREETING;

/// Calls of one run; the next one begins then.
const RUN_CALLS_MAX: u64 = 50_000;
/// The rate of a study's flood, as a multiple of the limit.
const FLOOD: f64 = 4.0;
/// The calls of that flood: this many seconds of the limit and [`FLOOD_CALLS_MORE`]. Fewer do not empty a bucket.
const FLOOD_CALLS: f64 = 5.0;
const FLOOD_CALLS_MORE: u64 = 200;
/// How long one flood may last.
const FLOOD_LASTS: Duration = Duration::from_secs(15);
/// How often, how long and at which pace new blocks are looked at, where there are several targets.
const FRESH_EVERY_S: u64 = 900;
const FRESH_LASTS: Duration = Duration::from_secs(75);
const FRESH_POLL: Duration = Duration::from_secs(3);
/// A target whose turn it is not is looked at again so soon.
const TURN_EVERY: Duration = Duration::from_secs(5);
/// A profile that nothing contradicts is written again this often: it is as of now.
const PROFILE_EVERY_S: u64 = 6 * 3_600;

/// What a monitor tells while it runs.
pub trait MonitorObserver {
    /// Something happened that a person may want to know.
    fn event(&mut self, target: &MonitoredTarget, event: &MonitorEvent);
    /// Figures may be other ones.
    fn updated(&mut self, targets: &[MonitoredTarget], now_unix: u64);
    /// The profile is to be written.
    fn profile(&mut self, text: &str);

    /// Takes the turn of a target for a round or a study of this many calls at most, if it has one now. Where not, it is
    /// asked again in some seconds.
    fn take_turn(&mut self, _target: &MonitoredTarget, _calls: u64) -> bool {
        true
    }

    /// That turn is over.
    fn end_turn(&mut self, _target: &MonitoredTarget) {}

    /// Calls lean on the limit of a target. Told again each [`LEAN_EVERY`] while they do.
    fn leans(&mut self, _target: &MonitoredTarget) {}

    /// They no longer do.
    fn leans_no_more(&mut self, _target: &MonitoredTarget) {}
}

/// What happened at a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MonitorEvent {
    /// The first study told this.
    Found(TrackedLimit),
    /// A study told another limit than was known.
    Changed {
        /// What was known.
        from: TrackedLimit,
        /// What holds now.
        to: TrackedLimit,
    },
    /// A study told what was known.
    Confirmed(TrackedLimit),
    /// A study told nothing.
    Unclear,
    /// A probe contradicts what is known.
    Contradicted(ProbeSign),
    /// It answers nothing, or refuses everything.
    Resting,
    /// It answers again.
    Answering,
}

impl fmt::Display for TrackedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::NoneUpTo(rate) => write!(f, "none up to {} calls/s", figure(*rate)),
            Self::Limited(bound) => write!(f, "{} calls/s", figure(bound.per_second)),
            Self::Concurrency => f.write_str("on concurrency or connections, not on the rate"),
        }
    }
}

impl fmt::Display for MonitorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(limit) => write!(f, "rate limit: {limit}"),
            Self::Changed { from, to } => write!(f, "rate limit changed: {from} -> {to}"),
            Self::Confirmed(limit) => write!(f, "rate limit unchanged: {limit}"),
            Self::Unclear => {
                f.write_str("study inconclusive: it will be repeated over a wider range")
            }
            Self::Contradicted(ProbeSign::Higher) => {
                f.write_str("calls above the known limit are served: probing again")
            }
            Self::Contradicted(ProbeSign::Lower | ProbeSign::Agrees) => {
                f.write_str("calls below the known limit are throttled or queue: probing again")
            }
            Self::Resting => f.write_str("serves no call: asked again in 15 minutes"),
            Self::Answering => f.write_str("answers again"),
        }
    }
}

/// How a monitor plays.
#[derive(Debug, Clone)]
pub struct MonitorRunTerms {
    /// What its runs are begun with; they begin at `started_unix` and later.
    pub run: RunTerms,
    /// See [`Player::precise`].
    pub is_precise: bool,
    /// See [`Player::with_cpu`]; `None` for the processor's own.
    pub cpu: Option<CpuClock>,
}

/// Why no further call is made in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Stopped,
    /// Another run begins.
    Next,
}

/// See the module.
pub struct Monitor<'a> {
    dir: PathBuf,
    terms: MonitorTerms,
    play: MonitorRunTerms,
    endpoints: &'a [TargetEndpoint],
    stop: &'a StopSignal,
    observer: &'a mut dyn MonitorObserver,
    targets: Vec<MonitoredTarget>,
    begun: Instant,
    fresh_at: u64,
    profile_at: u64,
    /// The run gave a target up.
    gave_up: bool,
    /// Held as long as the monitor lives.
    _lock: File,
}

impl fmt::Debug for Monitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl<'a> Monitor<'a> {
    /// Prepares to watch `endpoints`, with what an earlier monitor left in `dir`.
    ///
    /// # Errors
    ///
    /// If `dir` cannot be made, or what was left there cannot be read.
    pub fn new(
        dir: &Path,
        terms: MonitorTerms,
        play: MonitorRunTerms,
        endpoints: &'a [TargetEndpoint],
        stop: &'a StopSignal,
        observer: &'a mut dyn MonitorObserver,
    ) -> Result<Self, RunError> {
        let write = |error| RunError::Write(dir.to_owned(), error);
        fs::create_dir_all(dir).map_err(write)?;
        let lock = saved::lock(dir).map_err(write)?;
        let measured: Vec<_> = endpoints.iter().map(|endpoint| endpoint.target.clone()).collect();
        let targets = saved::load(dir, &measured).map_err(write)?;
        let (begun, now) = (Instant::now(), play.run.started_unix);
        Ok(Self {
            dir: dir.to_owned(),
            terms,
            play,
            endpoints,
            stop,
            observer,
            targets,
            begun,
            fresh_at: now,
            profile_at: now,
            gave_up: false,
            _lock: lock,
        })
    }

    /// Watches until it is to stop.
    ///
    /// # Errors
    ///
    /// If nothing can be sent, or records cannot be written.
    pub async fn run(mut self) -> Result<(), RunError> {
        loop {
            let dir = saved::new_run(&self.dir, self.now());
            let budget = CallBudget::new(0);
            let begun = RunTerms { started_unix: self.now(), ..self.play.run.clone() };
            let (endpoints, stop) = (self.endpoints, self.stop);
            let player = Player::begin(&dir, begun, endpoints, &budget, stop)?;
            let mut player = player.stamping(self.run_id(), Duration::from_secs(self.now()))?;
            if self.play.is_precise {
                player = player.precise();
            }
            if let Some(cpu) = self.play.cpu {
                player = player.with_cpu(cpu);
            }
            let end = self.watch(&mut player, &budget).await?;
            drop(player);
            stored::pack(&dir).map_err(|error| RunError::Write(dir, error))?;
            saved::prune(&self.dir).map_err(|error| self.unwritten(error))?;
            if end == RunEnd::Stopped {
                return Ok(());
            }
        }
    }

    /// Seconds since 1970, by a clock that does not go back.
    fn now(&self) -> u64 {
        self.play.run.started_unix + self.begun.elapsed().as_secs()
    }

    /// What no other run is called: the seed differs from start to start, and the time from run to run.
    fn run_id(&self) -> String {
        format!("{:016x}", self.play.run.seed.rotate_left(32) ^ self.now())
    }

    fn unwritten(&self, error: std::io::Error) -> RunError {
        RunError::Write(self.dir.clone(), error)
    }

    fn save(&mut self) -> Result<(), RunError> {
        saved::save(&self.dir, &self.targets).map_err(|error| self.unwritten(error))?;
        let now = self.now();
        self.observer.updated(&self.targets, now);
        Ok(())
    }

    /// Does what is next, until the run is to end.
    async fn watch(
        &mut self,
        player: &mut Player<'_>,
        budget: &CallBudget,
    ) -> Result<RunEnd, RunError> {
        self.save()?;
        loop {
            if self.stop.is_set() {
                return Ok(RunEnd::Stopped);
            }
            if budget.spent() >= RUN_CALLS_MAX {
                return Ok(RunEnd::Next);
            }
            if self.endpoints.len() > 1 && self.now() >= self.fresh_at {
                self.look_at_heads(player, budget).await?;
                continue;
            }
            match self.next() {
                (_, MonitorStep::Wait { until }) => self.wait(until).await,
                (_, MonitorStep::Study { .. }) if budget.spent() > 0 => return Ok(RunEnd::Next),
                (index, step @ (MonitorStep::Round { calls } | MonitorStep::Study { calls })) => {
                    if !self.observer.take_turn(&self.targets[index], calls) {
                        self.pause(TURN_EVERY).await;
                        continue;
                    }
                    let before = self.begin(budget, index, calls)?;
                    match step {
                        MonitorStep::Study { .. } => self.study(player, budget, index).await?,
                        _ => self.round(player, index).await?,
                    }
                    self.observer.end_turn(&self.targets[index]);
                    self.end(budget, index, calls, before)?;
                }
            }
            self.write_profile(player.run());
            // A run does not ask a target again that it gave up.
            if std::mem::take(&mut self.gave_up) {
                return Ok(RunEnd::Next);
            }
        }
    }

    /// The target at which something is to be done, or that has to wait for the shortest time.
    fn next(&self) -> (usize, MonitorStep) {
        let now = self.now();
        let order = |step: &MonitorStep| match step {
            MonitorStep::Study { .. } | MonitorStep::Round { .. } => 0,
            MonitorStep::Wait { until } => *until,
        };
        let steps = self.targets.iter().map(|target| target.next_step(&self.terms, now));
        let idle = (0, MonitorStep::Wait { until: now + FRESH_EVERY_S });
        steps.enumerate().min_by_key(|(_, step)| order(step)).unwrap_or(idle)
    }

    async fn wait(&self, until: u64) {
        let until = if self.endpoints.len() > 1 { until.min(self.fresh_at) } else { until };
        self.pause(Duration::from_secs(until.saturating_sub(self.now()).max(1))).await;
    }

    /// Waits, unless it is to stop.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.stop.wait() => {}
        }
    }

    /// Charges calls and hands them out.
    fn begin(&mut self, budget: &CallBudget, index: usize, calls: u64) -> Result<u64, RunError> {
        let now = self.now();
        self.targets[index].charge(calls, now);
        self.save()?;
        budget.allow(calls);
        Ok(budget.spent())
    }

    /// Takes back what was not sent since `before`.
    fn end(
        &mut self,
        budget: &CallBudget,
        index: usize,
        calls: u64,
        before: u64,
    ) -> Result<(), RunError> {
        self.targets[index].settle(calls, budget.spent() - before);
        budget.allow(0);
        self.save()
    }

    /// Greets a target; `None` where it answers nothing, which is noted.
    async fn greet(
        &mut self,
        player: &mut Player<'_>,
        index: usize,
    ) -> Result<Option<Greeting>, RunError> {
        let greeting = player.greet(number(index), &self.endpoints[index]).await?;
        let now = self.now();
        let target = &mut self.targets[index];
        if greeting.chain_id.is_none() && greeting.block.is_none() {
            if greeting.is_throttled {
                target.settle_down(now);
            } else if !self.stop.is_set() {
                self.rest(index);
            }
            return Ok(None);
        }
        target.target.chain_id = greeting.chain_id.or(target.target.chain_id);
        if target.answered(greeting.block, now) {
            self.observer.event(target, &MonitorEvent::Answering);
        }
        Ok(Some(greeting))
    }

    /// Plays a plan at a target.
    async fn play(
        &mut self,
        player: &mut Player<'_>,
        plan: &mut dyn ExperimentPlan,
        index: usize,
        greeting: &Greeting,
        gather: &mut RoundRecords,
    ) -> Result<(), RunError> {
        let endpoint = &self.endpoints[index];
        let mut watch = LeanWatch::new(gather, &mut *self.observer, &self.targets[index]);
        let played = player.play(plan, number(index), endpoint, greeting, &mut watch).await;
        watch.end();
        played
    }

    async fn round(&mut self, player: &mut Player<'_>, index: usize) -> Result<(), RunError> {
        let mut gather = RoundRecords::default();
        let greeting = self.greet(player, index).await?;
        let limit = self.targets[index].limit();
        if let Some(greeting) = &greeting {
            self.play(player, &mut latency_plan(), index, greeting, &mut gather).await?;
            if let Some(mut probe) = limit.probe() {
                // The calls before may have emptied a small bucket.
                self.pause(limit.settles()).await;
                self.play(player, &mut probe, index, greeting, &mut gather).await?;
            }
        }
        let now = self.now();
        let target = &mut self.targets[index];
        if gather.is_ended {
            self.give_up(index);
        } else if greeting.is_some() && !self.stop.is_set() {
            target.take(told(player.run(), &gather.records, &["latency"]));
            let probes = gather.cells.iter().filter(|it| it.cell.experiment == "probe");
            let mut signs = probes.map(|it| limit.sign(&it.cell, &it.outcome));
            let sign = signs.find(|sign| *sign != ProbeSign::Agrees);
            let sign = sign.unwrap_or(ProbeSign::Agrees);
            if target.finish_round(sign, &self.terms, now) {
                self.observer.event(target, &MonitorEvent::Contradicted(sign));
            }
        }
        Ok(())
    }

    /// Lets a target rest of which the run has said that it serves nothing.
    fn give_up(&mut self, index: usize) {
        self.gave_up = true;
        self.rest(index);
    }

    fn rest(&mut self, index: usize) {
        let now = self.now();
        let target = &mut self.targets[index];
        if target.rest(now) {
            self.observer.event(target, &MonitorEvent::Resting);
        }
    }

    async fn study(
        &mut self,
        player: &mut Player<'_>,
        budget: &CallBudget,
        index: usize,
    ) -> Result<(), RunError> {
        let mut gather = RoundRecords::default();
        if let Some(greeting) = self.greet(player, index).await? {
            let mut rates = self.targets[index].study_plan(&self.terms);
            self.play(player, &mut rates, index, &greeting, &mut gather).await?;
            let found = told(player.run(), &gather.records, &["rate"]);
            if let Some(mut window) = window_plan(&found, budget.left()) {
                self.play(player, &mut window, index, &greeting, &mut gather).await?;
            }
        }
        if self.targets[index].is_up == Some(true) && !self.stop.is_set() {
            let found = told(player.run(), &gather.records, &["rate", "window"]);
            self.conclude(index, found);
        }
        if gather.is_ended {
            self.give_up(index);
        }
        Ok(())
    }

    fn conclude(&mut self, index: usize, found: Vec<ExperimentVerdict>) {
        let now = self.now();
        let target = &mut self.targets[index];
        let result = target.finish_study(found, &self.terms, now);
        let event = match result {
            StudyResult::Changed { from: TrackedLimit::Unknown, to } => MonitorEvent::Found(to),
            StudyResult::Changed { from, to } => MonitorEvent::Changed { from, to },
            StudyResult::Confirmed => MonitorEvent::Confirmed(target.limit()),
            StudyResult::Unclear => MonitorEvent::Unclear,
        };
        if result != StudyResult::Unclear {
            self.profile_at = now;
        }
        self.observer.event(target, &event);
    }

    /// Looks how soon each target shows new blocks.
    async fn look_at_heads(
        &mut self,
        player: &mut Player<'_>,
        budget: &CallBudget,
    ) -> Result<(), RunError> {
        let now = self.now();
        self.fresh_at = now + FRESH_EVERY_S;
        let seed = self.play.run.seed ^ now;
        let terms = FreshTerms { lasting: FRESH_LASTS, every: FRESH_POLL, seed };
        let each = terms.calls_max() + GREETING.len() as u64;
        let may = |target: &MonitoredTarget| target.left(self.terms.bounds, now) >= each;
        let asked: Vec<usize> =
            (0..self.endpoints.len()).filter(|it| may(&self.targets[*it])).collect();
        if asked.len() < 2 {
            return Ok(());
        }
        let mut members = Vec::new();
        for index in asked {
            self.begin(budget, index, each)?;
            let is_answering = self.greet(player, index).await?.is_some();
            // Polls are not counted one by one: all of them may be sent.
            self.targets[index].settle(each, each);
            let endpoint = &self.endpoints[index];
            members.extend(is_answering.then(|| PanelMember { target: number(index), endpoint }));
        }
        let mut gather = RoundRecords::default();
        if members.len() > 1 {
            budget.allow(terms.calls_max() * members.len() as u64);
            let name = fresh::NAME;
            let panel = player.panel(name, fresh::VERSION, &members, FRESH_POLL, &mut gather);
            fresh::play(&mut panel?, &terms).await?;
        }
        budget.allow(0);
        let found = told(player.run(), &gather.records, &[fresh::NAME]);
        for verdict in found {
            let target = &mut self.targets[verdict.target as usize];
            target.take(vec![verdict]);
        }
        self.save()
    }

    /// Gives the profile out where a study told a limit, and now and then.
    fn write_profile(&mut self, run: &RunRecord) {
        let now = self.now();
        let is_known = self.targets.iter().any(|it| it.limit() != TrackedLimit::Unknown);
        if now < self.profile_at || !is_known {
            return;
        }
        self.profile_at = now + PROFILE_EVERY_S;
        let targets = self.targets.iter().map(|it| it.target.clone()).collect();
        let run = RunRecord { started_unix: now, targets, ..run.clone() };
        let all: Vec<_> = self.targets.iter().flat_map(|it| it.verdicts.clone()).collect();
        self.observer.profile(&profile(&run, &all));
    }
}

/// A target's number in a run.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// What records say of these experiments.
fn told(run: &RunRecord, records: &[Record], experiments: &[&str]) -> Vec<ExperimentVerdict> {
    let mut found = verdicts(run, records);
    found.retain(|verdict| {
        let is_finding = !matches!(verdict.finding, Finding::CannotTell { .. });
        is_finding && experiments.contains(&verdict.experiment.as_str())
    });
    found
}

/// Empties the bucket of a limit that was found; `None` where there is none, or too few calls are left.
fn window_plan(found: &[ExperimentVerdict], left: u64) -> Option<WindowPlan> {
    let rate = found.iter().find_map(|verdict| match verdict.finding {
        Finding::Rate(FindingBound::Found(it)) => Some(it.per_second),
        _ => None,
    })?;
    let calls = (FLOOD_CALLS * rate).ceil() as u64 + FLOOD_CALLS_MORE;
    (left >= calls).then(|| WindowPlan::new(FLOOD * rate, calls, FLOOD_LASTS, limit::REST))
}
