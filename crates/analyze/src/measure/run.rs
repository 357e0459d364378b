//! Plays plans: sends what their cells ask for and writes down what came of it.
//!
//! Records go to `records.jsonl` as they come and `run.json` lies beside them, so that a run that
//! is cut has lost nothing but its last cell. What they mean is computed afterwards. Two bounds
//! hold for every plan: [`CallBudget`], and [`StopSignal`], which the user sets with Ctrl-C.

mod call_budget;
mod call_waits;
mod cell;
mod first;
mod identity;
mod pacer;
mod panel;
mod resume;
mod rollup;
mod sample;
mod strain;

pub use panel::{Finished, Panel, PanelEnd, PanelMember, UnlessStopped};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wellhead_net::{HttpVersion, Protocol};
use wellhead_upstream::VerdictClass;

pub use call_budget::CallBudget;
pub use resume::{EarlierRun, ResumeError};
pub use strain::{CpuClock, CpuTime};

use crate::ending::{RefusalRun, SendingEnd};
use crate::measure::client::{
    ConnectionNumbers, ConnectionSettings, TargetClient, TargetClientError, TargetEndpoint,
    WARMING_MAX,
};
use crate::measure::plan::{CellOutcome, ExperimentPlan, Ordered};
use crate::measure::schedule::Schedule;
use crate::record::{
    CallRecord, Cell, FORMAT, Machine, Record, RunRecord, WireEvent, WireRecord, Writer, append,
};
use crate::stat::bucket::TimedCall;
use crate::stored::{self, PACKED_RECORDS, RECORDS, REPORT_FILES};
use crate::work::{GREETING, WorkCall};

/// Connections of an experiment that does not vary them, where the target speaks HTTP/1.1.
const H1_CONNECTIONS: usize = 64;
/// And where its rate needs more: from there on we would measure how we open them.
const H1_CONNECTIONS_MAX: usize = 512;
/// Over HTTP/2 this many times those of the plan. Warming one up takes a call, and three were
/// announced for each.
const H2_CONNECTIONS_FACTOR: usize = WARMING_MAX;
/// Places for this many times the calls that a rate has under way, so that ours are not the bound:
/// more than one that has grown slow needs to be seen, see `call_waits`.
const ROOM: f64 = 2.0;

/// The factor `connections` where each call has its own.
pub(crate) const EACH_ITS_OWN: &str = "each its own";

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory has a file that the run would write.
    #[error("`{0}` is there already: choose another directory")]
    Taken(PathBuf),
    /// Something cannot be written.
    #[error("cannot write to `{0}`: {1}")]
    Write(PathBuf, io::Error),
    /// Nothing can be sent.
    #[error("cannot send to `{0}`: {1}")]
    Client(String, TargetClientError),
    /// A run that is gone on with asks for something else than it did before.
    #[error("`{0}` now plans other cells than those that were run, so it cannot be resumed")]
    Other(String),
}

/// Asks a run to end. What was played to the end is kept and concluded from.
#[derive(Debug, Default)]
pub struct StopSignal(CancellationToken);

impl StopSignal {
    /// Ends the run.
    pub fn set(&self) {
        self.0.cancel();
    }

    /// Whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits for that.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}

/// Is told how a run goes.
pub trait Watch {
    /// A cell has ended.
    fn played(&mut self, _experiment: &str, _cell: &Cell, _outcome: &CellOutcome) {}

    /// A cell begins, after its rest.
    fn begins(&mut self, _experiment: &str, _target: u32, _ordered: &Ordered) {}

    /// A call is over.
    fn over(&mut self, _call: &CallRecord) {}

    /// A target has not answered for so long that it is asked no more.
    fn silent(&mut self, _experiment: &str, _target: u32) {}

    /// A target serves nothing for longer than an experiment waits, and is asked no more.
    fn ended(&mut self, _experiment: &str, _target: u32, _why: SendingEnd) {}

    /// How often it wants to look, whatever happens.
    fn every(&self) -> Option<Duration> {
        None
    }

    /// Called that often.
    fn look(&mut self) {}
}

/// For a run that needs no watch.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// What times of a run are counted from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    at: Instant,
    /// Microseconds of the run that had passed by then.
    passed: u64,
}

impl Origin {
    fn micros(self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.at).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(self.passed)
    }
}

/// What a target says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The chain.
    pub chain_id: Option<u64>,
    /// The head.
    pub block: Option<u64>,
    /// The client's own words; chosen by the other side, and bounded.
    pub client: Option<String>,
    /// What it speaks.
    pub protocol: Option<Protocol>,
    /// How long the slowest of these calls took, connecting aside.
    pub takes: Duration,
    /// The class and rule of the first answer that was none, for people.
    pub trouble: Option<String>,
    /// Whether a call was refused for its rate.
    pub is_throttled: bool,
}

/// Plays plans and writes records into a directory.
#[derive(Debug)]
pub struct Player<'a> {
    dir: PathBuf,
    run: RunRecord,
    records: Writer<BufWriter<File>>,
    budget: &'a CallBudget,
    stop: &'a StopSignal,
    numbers: ConnectionNumbers,
    origin: Origin,
    earlier: Option<EarlierRun>,
    /// Nothing was played since the run was cut.
    goes_on: bool,
    precise: bool,
    cells: u32,
    /// See [`Cell::part`].
    part: u32,
    cpu: CpuClock,
    /// Targets that answer nothing any more: they are asked no more in this part.
    silent: BTreeSet<u32>,
    /// What targets have refused since they last served a call.
    refusals: BTreeMap<u32, RefusalRun>,
}

/// What a run is made with.
#[derive(Debug, Clone)]
pub struct RunTerms {
    /// What all chance comes from.
    pub seed: u64,
    /// When it begins, seconds since 1970.
    pub started_unix: u64,
    /// The version of wellhead.
    pub wellhead: String,
    /// Where it runs.
    pub machine: Machine,
}

impl<'a> Player<'a> {
    /// Begins a run in `dir`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// Where `dir` has a file already that the run or its report would write, or cannot be
    /// written to.
    pub fn begin(
        dir: &Path,
        terms: RunTerms,
        endpoints: &[TargetEndpoint],
        budget: &'a CallBudget,
        stop: &'a StopSignal,
    ) -> Result<Self, RunError> {
        let write = |error| RunError::Write(dir.to_owned(), error);
        fs::create_dir_all(dir).map_err(write)?;
        for name in [RECORDS, PACKED_RECORDS, "run.json"].into_iter().chain(REPORT_FILES) {
            let path = dir.join(name);
            if path.exists() {
                return Err(RunError::Taken(path));
            }
        }
        let file = File::create_new(dir.join(RECORDS)).map_err(write)?;
        let run = RunRecord {
            format: FORMAT,
            wellhead: terms.wellhead,
            seed: terms.seed,
            started_unix: terms.started_unix,
            targets: endpoints.iter().map(|endpoint| endpoint.target.clone()).collect(),
            machine: terms.machine,
            ..RunRecord::default()
        };
        let mut player = Self::new(dir, run, file, budget, stop);
        player.save()?;
        Ok(player)
    }

    /// At the beginning of a run.
    fn new(
        dir: &Path,
        run: RunRecord,
        records: File,
        budget: &'a CallBudget,
        stop: &'a StopSignal,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            run,
            records: Writer::new(BufWriter::with_capacity(RECORDS_BYTES, records)),
            budget,
            stop,
            numbers: ConnectionNumbers::default(),
            origin: Origin { at: Instant::now(), passed: 0 },
            earlier: None,
            goes_on: false,
            precise: false,
            cells: 0,
            part: 0,
            cpu: strain::cpu_time,
            silent: BTreeSet::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// With another clock for the processor's time: where time is paused, seconds of it pass in
    /// none of the processor's.
    #[must_use]
    pub fn with_cpu(self, cpu: CpuClock) -> Self {
        Self { cpu, ..self }
    }

    /// Goes on with the run in `dir`, which `earlier` is read from: cells that were played to
    /// their end are not played again. `budget` has to know what the run has
    /// [spent](RunRecord::spent). `now_unix` are seconds since 1970.
    ///
    /// # Errors
    ///
    /// Where `dir` cannot be written to.
    pub fn resume(
        dir: &Path,
        earlier: EarlierRun,
        now_unix: u64,
        budget: &'a CallBudget,
        stop: &'a StopSignal,
    ) -> Result<Self, RunError> {
        let write = |error| RunError::Write(dir.to_owned(), error);
        stored::unpack(dir).map_err(write)?;
        let records = append(&dir.join(RECORDS)).map_err(write)?;
        let (cells, connection, part) = earlier.numbers();
        let run = earlier.run().clone();
        let mut player = Self {
            numbers: ConnectionNumbers::from(connection),
            origin: Origin { at: Instant::now(), passed: earlier.goes_on_at(now_unix) },
            earlier: Some(earlier),
            goes_on: true,
            cells,
            part,
            ..Self::new(dir, run, records, budget, stop)
        };
        player.save()?;
        Ok(player)
    }

    /// Lets calls of an open loop leave by the clock of the system, which is finer than the
    /// runtime's and cannot be paused.
    #[must_use]
    pub fn precise(self) -> Self {
        Self { precise: true, ..self }
    }

    /// The run so far.
    pub fn run(&self) -> &RunRecord {
        &self.run
    }

    /// Asks a target what it is: three calls, which are not recorded. What it tells of its chain
    /// goes to `run.json`.
    ///
    /// # Errors
    ///
    /// Where nothing can be sent or written.
    pub async fn greet(
        &mut self,
        target: u32,
        endpoint: &TargetEndpoint,
    ) -> Result<Greeting, RunError> {
        let client = self.client(endpoint, ConnectionSettings::ONE, self.seed(target, "", 0))?;
        let mut greeting = Greeting::default();
        for method in GREETING {
            if self.stop.is_set() || !self.budget.take() {
                break;
            }
            let done = tokio::select! {
                () = self.stop.wait() => break,
                done = client.call(WorkCall::bare(method)) => done,
            };
            if done.call.error.is_none() {
                greeting.takes = greeting.takes.max(done.on_the_wire());
            }
            let raw = done.result();
            let text: Option<String> = raw.and_then(|raw| serde_json::from_slice(&raw).ok());
            let text = text.as_deref();
            let number = text.and_then(quantity);
            let is_client = method == "web3_clientVersion";
            match method {
                "eth_chainId" => greeting.chain_id = number,
                "eth_blockNumber" => greeting.block = number,
                _ => greeting.client = text.map(|text| client.told(text)),
            }
            let is_told = if is_client { text.is_some() } else { number.is_some() };
            if !is_told {
                let CallRecord { class, rule, .. } = &done.call;
                greeting.is_throttled |= class == VerdictClass::Throttled.word();
                let why = if class == VerdictClass::Answer.word() {
                    let what = "an answer that is no hexadecimal number of 64 bits";
                    if is_client { "an answer that is no text" } else { what }.to_owned()
                } else {
                    format!("{class} ({rule})")
                };
                greeting.trouble.get_or_insert(format!("{method}: {why}"));
            }
        }
        greeting.protocol = client.protocol();
        if let Some(known) = self.run.targets.get_mut(target as usize) {
            // A target that does not answer when a run is gone on with did so before.
            known.chain_id = greeting.chain_id.or(known.chain_id);
        }
        self.save()?;
        Ok(greeting)
    }

    /// Plays `plan` at one target until it is over, the budget is, or the run is to end.
    ///
    /// # Errors
    ///
    /// Where nothing can be sent or written.
    pub async fn play(
        &mut self,
        plan: &mut dyn ExperimentPlan,
        target: u32,
        endpoint: &TargetEndpoint,
        greeting: &Greeting,
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        self.note(plan.name())?;
        let mut turn = PlanTurn::new(self, plan, target);
        while self.step(&mut turn, plan, endpoint, greeting, watch).await? {}
        self.records.flush().map_err(|error| self.unwritten(error))
    }

    /// Plays each plan at its target, a cell of one and then a cell of the next, so that all are
    /// measured in the same minutes. Which plan is first changes: what is asked first may warm what
    /// the next one stands before.
    ///
    /// # Errors
    ///
    /// Where nothing can be sent or written.
    pub async fn play_in_turn(
        &mut self,
        parts: &mut [PlacedPlan<'_>],
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        for part in &*parts {
            self.note(part.plan.name())?;
        }
        let begin =
            |part: &mut PlacedPlan<'_>| Some(PlanTurn::new(self, &mut *part.plan, part.target));
        let mut turns: Vec<Option<PlanTurn>> = parts.iter_mut().map(begin).collect();
        let drawn = self.seed(0, "order", 0);
        for round in 0.. {
            if turns.iter().all(Option::is_none) {
                break;
            }
            for index in in_turn(parts.len(), drawn, round) {
                let (slot, part) = (&mut turns[index], &mut parts[index]);
                let Some(turn) = slot else { continue };
                let PlacedPlan { plan, endpoint, greeting, target: _ } = part;
                if !self.step(turn, &mut **plan, endpoint, greeting, watch).await? {
                    *slot = None;
                }
            }
        }
        self.records.flush().map_err(|error| self.unwritten(error))
    }

    fn note(&mut self, experiment: &str) -> Result<(), RunError> {
        if !self.run.experiments.iter().any(|known| known == experiment) {
            self.run.experiments.push(experiment.to_owned());
            self.save()?;
        }
        Ok(())
    }

    /// Plays the next cell; `false` when there is none, or it was not played to its end.
    async fn step(
        &mut self,
        turn: &mut PlanTurn,
        plan: &mut dyn ExperimentPlan,
        endpoint: &TargetEndpoint,
        greeting: &Greeting,
        watch: &mut dyn Watch,
    ) -> Result<bool, RunError> {
        let is_ended = self.refusals.get(&turn.target).is_some_and(|run| run.end().is_some());
        if self.budget.is_over() || self.silent.contains(&turn.target) || is_ended {
            return Ok(false);
        }
        let Some(ordered) = plan.next(turn.last.as_ref()) else { return Ok(false) };
        let ordered = suited(ordered, greeting);
        let seed = self.seed(turn.target, plan.name(), turn.index);
        turn.index += 1;
        if let Some(earlier) = turn.earlier.pop_front() {
            turn.go_on(earlier, plan, &ordered)?;
            return Ok(true);
        }
        let target = turn.target;
        let step = CellStep { target, endpoint, greeting, ordered: &ordered, seed, again: 0 };
        if !self.rest_before(turn, &ordered, watch).await {
            return Ok(false);
        }
        let Some(kept) = self.play_cell(step, plan, watch).await? else {
            return Ok(false);
        };
        plan.saw(&kept.served);
        turn.last = Some(kept.outcome);
        let is_over = self.refusals.get(&turn.target).is_some_and(|run| run.end().is_some());
        if is_over || !kept.is_worth_again || !self.budget.take_spare(ordered.calls_max()) {
            return Ok(true);
        }
        // What is told to the plan is what came of it first: so a run that is resumed plans the same cells.
        let again = CellStep { again: 1, ..step };
        let rests = self.rest(ordered.rest, watch).await && !self.stop.is_set();
        Ok(rests && self.play_cell(again, plan, watch).await?.is_some())
    }

    /// Plays one cell and keeps its records; `None` when it was not played to its end.
    async fn play_cell(
        &mut self,
        step: CellStep<'_>,
        plan: &mut dyn ExperimentPlan,
        watch: &mut dyn Watch,
    ) -> Result<Option<KeptCell>, RunError> {
        let CellStep { target, endpoint, greeting, ordered, seed, again } = step;
        watch.begins(plan.name(), target, ordered);
        let place = cell::CellPlace {
            experiment: plan.name(),
            version: plan.version(),
            cell: self.cells,
            part: self.part,
            again,
            target,
            rolled: plan.rolled(),
        };
        self.cells += 1;
        self.save_with(ordered.calls_max())?;
        let client = self.client(endpoint, ordered.transport, seed)?;
        let head = greeting.block.unwrap_or(0);
        let mut hand = cell::Hand {
            origin: self.origin,
            precise: self.precise,
            watch,
            budget: self.budget,
            stop: self.stop,
            records: &mut self.records,
            credits: &|method| endpoint.credits(method),
            cpu: self.cpu,
            refusals: self.refusals.entry(target).or_default(),
        };
        let played = cell::play(&mut hand, &place, ordered, &client, head, seed).await;
        let played = match played.map_err(|error| self.unwritten(error))? {
            cell::CellEnd::Played(played) => *played,
            end => return self.leave(&end, plan.name(), target, watch).map(|()| None),
        };
        let kept = self.keep(played, &place, &client, watch)?;
        if let Some(why) = self.refusals.get(&target).and_then(RefusalRun::end) {
            watch.ended(plan.name(), target, why);
        }
        Ok(Some(kept))
    }

    /// Tells why a cell was not played to its end.
    fn leave(
        &mut self,
        end: &cell::CellEnd,
        experiment: &str,
        target: u32,
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        match end {
            cell::CellEnd::Played(_) | cell::CellEnd::Cut => {}
            cell::CellEnd::Silent => {
                self.silent.insert(target);
                watch.silent(experiment, target);
            }
            cell::CellEnd::Ended(why) => watch.ended(experiment, target, *why),
        }
        self.save()
    }

    /// Writes the records of a finished cell, and gives its outcome to the watch.
    fn keep(
        &mut self,
        mut played: cell::CellResult,
        place: &cell::CellPlace<'_>,
        client: &TargetClient,
        watch: &mut dyn Watch,
    ) -> Result<KeptCell, RunError> {
        let events = self.events(client, &played.record);
        let told = events.iter().map(|(at, connection, event)| (*at, *connection, event));
        played.outcome.silent_ms = played.first.silent_ms(told);
        // Where calls are rolled up, so is what their connections did.
        if place.rolled.is_none() {
            self.write_events(&played.record, events)?;
        }
        watch.played(place.experiment, &played.record, &played.outcome);
        let cell::CellResult { record, outcome, first: _, served, has_knocked } = played;
        // What was refused needs no time; where calls are rolled up, other parts are sound.
        let is_worth_again = record.load.saturated
            && outcome.throttled == 0
            && !has_knocked
            && place.rolled.is_none();
        self.write(&Record::Cell(record))?;
        self.records.flush().map_err(|error| self.unwritten(error))?;
        self.save()?;
        Ok(KeptCell { outcome, served, is_worth_again })
    }

    /// What connections did in a cell that is over, in times of the run. What came of the last calls belongs to the
    /// cell as well.
    fn events(&self, client: &TargetClient, cell: &Cell) -> Vec<(u64, u64, WireEvent)> {
        let within = |at: Instant| self.origin.micros(at).min(cell.ended_at);
        let told = |(at, connection, event)| (within(at), connection, event);
        client.events().into_iter().map(told).collect()
    }

    fn write_events(
        &mut self,
        cell: &Cell,
        events: Vec<(u64, u64, WireEvent)>,
    ) -> Result<(), RunError> {
        for (at, connection, event) in events {
            let (experiment, target) = (cell.experiment.clone(), cell.target);
            let wire = WireRecord { experiment, cell: cell.cell, target, at, connection, event };
            self.write(&Record::Wire(wire))?;
        }
        Ok(())
    }

    /// Rests between cells; `false` if the run is to end instead.
    async fn rest_before(
        &mut self,
        turn: &mut PlanTurn,
        ordered: &Ordered,
        watch: &mut dyn Watch,
    ) -> bool {
        // A target that was asked before an interruption may still be counting.
        let goes_on = std::mem::replace(&mut self.goes_on, false);
        let is_first = std::mem::replace(&mut turn.first, false) && !goes_on;
        (is_first || self.rest(ordered.rest, watch).await) && !self.stop.is_set()
    }

    /// Waits; `false` when the run is to end instead.
    async fn rest(&self, pause: Duration, watch: &mut dyn Watch) -> bool {
        let now = Instant::now();
        let mut look = cell::look(watch.every(), now);
        loop {
            tokio::select! {
                () = sleep_until(now + pause) => return true,
                () = self.stop.wait() => return false,
                () = cell::next_look(look.as_mut()) => watch.look(),
            }
        }
    }

    /// What chance in a cell comes from. The same whether the cells before were played now or in
    /// an earlier run.
    fn seed(&self, target: u32, experiment: &str, index: u64) -> u64 {
        // FNV-1a of what tells the cell from others.
        let words = [self.run.seed, target.into(), index];
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).chain(experiment.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        SmallRng::seed_from_u64(hash).random()
    }

    fn client(
        &self,
        endpoint: &TargetEndpoint,
        transport: ConnectionSettings,
        seed: u64,
    ) -> Result<TargetClient, RunError> {
        TargetClient::new(endpoint, transport, &self.numbers, seed)
            .map_err(|error| RunError::Client(endpoint.target.host.clone(), error))
    }

    fn write(&mut self, record: &Record) -> Result<(), RunError> {
        self.records.write(record).map_err(|error| self.unwritten(error))
    }

    fn unwritten(&self, error: io::Error) -> RunError {
        RunError::Write(self.dir.clone(), error)
    }

    fn save(&mut self) -> Result<(), RunError> {
        self.save_with(0)
    }

    /// Writes `run.json`, with calls that may be sent before it is written again. Never torn: it
    /// is written beside and put in its place.
    fn save_with(&mut self, more: u64) -> Result<(), RunError> {
        self.run.spent = self.budget.spent().saturating_add(more.min(self.budget.left()));
        let (path, new) = (self.dir.join("run.json"), self.dir.join("run.json.new"));
        let text = serde_json::to_string_pretty(&self.run).map_err(io::Error::from);
        text.and_then(|text| fs::write(&new, text + "\n"))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| self.unwritten(error))
    }
}

/// A plan and where it is played.
#[derive(Debug)]
pub struct PlacedPlan<'a> {
    /// The plan.
    pub plan: Box<dyn ExperimentPlan>,
    /// Index in [`RunRecord::targets`].
    pub target: u32,
    /// That target.
    pub endpoint: &'a TargetEndpoint,
    /// And what it said of itself.
    pub greeting: &'a Greeting,
}

/// One cell that is to be played.
#[derive(Clone, Copy)]
struct CellStep<'a> {
    target: u32,
    endpoint: &'a TargetEndpoint,
    greeting: &'a Greeting,
    ordered: &'a Ordered,
    seed: u64,
    /// See [`Cell::again`].
    again: u32,
}

/// A cell that was played and written.
struct KeptCell {
    outcome: CellOutcome,
    /// What became of each call, where its schedule leans on a limit.
    served: Vec<TimedCall>,
    /// Its times are doubted, and may be sound if it is played again.
    is_worth_again: bool,
}

/// How far a plan is.
struct PlanTurn {
    target: u32,
    earlier: VecDeque<resume::ResumedCell>,
    last: Option<CellOutcome>,
    first: bool,
    index: u64,
}

impl PlanTurn {
    fn new(player: &mut Player<'_>, plan: &mut dyn ExperimentPlan, target: u32) -> Self {
        let mut turn = Self { target, earlier: VecDeque::new(), last: None, first: true, index: 0 };
        if let Some(earlier) = &mut player.earlier {
            plan.watched(earlier.watched(target, plan.name()));
            turn.earlier = earlier.take(target, plan.name());
        }
        turn
    }

    /// Takes a cell from before the interruption in place of the one that is `ordered` now.
    fn go_on(
        &mut self,
        earlier: resume::ResumedCell,
        plan: &mut dyn ExperimentPlan,
        ordered: &Ordered,
    ) -> Result<(), RunError> {
        let resume::ResumedCell { cell, outcome, served } = earlier;
        let is_same = cell.version == plan.version()
            && cell.factors == ordered.factors
            && cell.repeat == ordered.repeat;
        if !is_same {
            return Err(RunError::Other(plan.name().to_owned()));
        }
        plan.saw(&served);
        self.last = Some(outcome);
        self.first = false;
        Ok(())
    }
}

/// In which order this many are played in a round. Each order is followed by its reverse, and then
/// another one begins, so that with time none is before or after the others more often: of two
/// A B, B A, B A, A B. Which one begins is drawn.
fn in_turn(many: usize, drawn: u64, round: u64) -> Vec<usize> {
    let each = many.max(1) as u64;
    let first = ((drawn % each + round / 2) % each) as usize;
    let mut order: Vec<usize> = (0..many).map(|nth| (first + nth) % many).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Bytes of records that are written at once.
const RECORDS_BYTES: usize = 64 * 1024;

/// The cell as it fits what the target speaks, and how quick it is. A connection of HTTP/1.1
/// carries one call at a time: with fewer connections than calls at once, calls would wait for each
/// other here.
fn suited(mut ordered: Ordered, greeting: &Greeting) -> Ordered {
    let asked = ordered.transport.version;
    let found = asked == HttpVersion::Auto && greeting.protocol == Some(Protocol::H1);
    if found {
        ordered.transport.version = HttpVersion::H1;
    }
    let varies = ordered.factors.contains_key("connections");
    let transport = &mut ordered.transport;
    if let Schedule::Closed { at_once, .. } = ordered.schedule {
        if found {
            transport.connections = transport.connections.max(at_once);
            if let Some(connections) = ordered.factors.get_mut("connections") {
                *connections = EACH_ITS_OWN.to_owned();
            }
        }
    } else if !varies {
        if found {
            transport.connections = H1_CONNECTIONS;
        }
        let per_second = ordered.schedule.per_second().unwrap_or(0.0);
        let needed = (per_second * greeting.takes.as_secs_f64() * ROOM).ceil() as usize;
        let connections = match transport.version {
            HttpVersion::H1 => needed.min(H1_CONNECTIONS_MAX),
            HttpVersion::H2 | HttpVersion::Auto => needed
                .div_ceil(transport.streams_max.max(1))
                .min(transport.connections * H2_CONNECTIONS_FACTOR),
        };
        transport.connections = transport.connections.max(connections);
    }
    ordered
}

fn quantity(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    // The parser takes a sign as well.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(schedule: Schedule) -> Ordered {
        Ordered {
            factors: [("connections".to_owned(), "2".to_owned())].into(),
            transport: ConnectionSettings { connections: 2, ..ConnectionSettings::ONE },
            warmed: false,
            ..Ordered::timed(crate::work::WorkKind::Cheap, schedule)
        }
    }

    #[test]
    fn each_is_first_as_often_as_the_others() {
        let orders = |many, drawn| -> Vec<String> {
            let told = |order: Vec<usize>| order.iter().map(usize::to_string).collect();
            (0..4).map(|round| told(in_turn(many, drawn, round))).collect()
        };
        assert_eq!(orders(2, 0), ["01", "10", "10", "01"]);
        assert_eq!(orders(2, u64::MAX), ["10", "01", "01", "10"]);
        assert_eq!(orders(3, 0), ["012", "210", "120", "021"]);
        assert_eq!(orders(1, 5), ["0"; 4]);
    }

    fn greeting(protocol: Protocol, takes_ms: u64) -> Greeting {
        let (protocol, takes) = (Some(protocol), Duration::from_millis(takes_ms));
        Greeting { protocol, takes, ..Greeting::default() }
    }

    #[test]
    fn over_http_1_no_call_waits_for_another_of_ours() {
        let (h1, h2) = (greeting(Protocol::H1, 20), greeting(Protocol::H2, 20));
        let closed = ordered(Schedule::Closed { at_once: 40, calls: 80, within: None });
        let fits = suited(closed.clone(), &h1);
        assert_eq!((fits.transport.version, fits.transport.connections), (HttpVersion::H1, 40));
        assert_eq!(fits.factors["connections"], EACH_ITS_OWN);
        assert_eq!(suited(closed.clone(), &h2), closed);
        let mut open = ordered(Schedule::rate(5.0, Duration::from_secs(1)));
        open.factors.clear();
        assert_eq!(suited(open, &h1).transport.connections, H1_CONNECTIONS);
    }

    /// Connections for this many calls a second, which take this long.
    #[track_caller]
    fn sized(version: HttpVersion, told: Protocol, per_second: f64, takes_ms: u64, many: usize) {
        let mut open = ordered(Schedule::rate(per_second, Duration::from_secs(1)));
        open.factors.clear();
        open.transport = ConnectionSettings { version, connections: 4, streams_max: 90 };
        assert_eq!(suited(open, &greeting(told, takes_ms)).transport.connections, many);
    }

    #[test]
    fn there_are_connections_for_a_rate() {
        let (auto, h1) = (HttpVersion::Auto, HttpVersion::H1);
        sized(auto, Protocol::H1, 100.0, 200, 64);
        sized(auto, Protocol::H1, 500.0, 200, 200);
        sized(auto, Protocol::H1, 50_000.0, 200, H1_CONNECTIONS_MAX);
        sized(auto, Protocol::H2, 500.0, 200, 4);
        sized(auto, Protocol::H2, 1_500.0, 200, 7);
        sized(auto, Protocol::H2, 50_000.0, 200, 12);
        // A caller that asks for HTTP/1.1 says how many, and has not to say how many are enough.
        sized(h1, Protocol::H1, 10.0, 100, 4);
        sized(h1, Protocol::H1, 100.0, 100, 20);
    }

    #[test]
    fn a_number_has_64_bits_and_no_sign() {
        for (text, number) in [
            ("0x0", Some(0)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("0x+1", None),
            ("0x-1", None),
            ("0x", None),
            ("1", None),
            ("1.0", None),
            ("", None),
        ] {
            assert_eq!(quantity(text), number, "{text}");
        }
    }

    #[tokio::test]
    async fn a_task_that_waits_for_the_end_is_told() {
        let stop = StopSignal::default();
        let waiting = stop.wait();
        stop.set();
        waiting.await;
        stop.wait().await;
    }
}
