//! Plays plans: sends what their cells ask for and writes down what came of it.
//!
//! Records go to `records.jsonl` as they come and `run.json` lies beside them, so that a run that
//! is cut has lost nothing but its last cell. What they mean is computed afterwards. Two bounds
//! hold whatever a plan wants: [`Budget`], and [`Stop`], which whoever is in front of the terminal
//! sets.

mod cell;
mod panel;
mod rollup;

pub use panel::{Finished, Member, Panel};

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use wellhead_net::{HttpVersion, Protocol};

use crate::plan::{Ordered, Outcome, Plan};
use crate::record::{FORMAT, Machine, Record, Run, Wire, WireEvent, Writer};
use crate::schedule::Schedule;
use crate::way::{Goal, Means, Numbers, Way, WayError};
use crate::work::Ask;

/// Connections of an experiment that does not vary them, where the target speaks HTTP/1.1.
const H1_CONNECTIONS: usize = 64;

/// The factor `connections` where each call has its own.
pub const EACH_ITS_OWN: &str = "each its own";

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory has records of another run.
    #[error("`{0}` has records already: choose another directory")]
    Taken(PathBuf),
    /// Something cannot be written.
    #[error("cannot write to `{0}`: {1}")]
    Write(PathBuf, io::Error),
    /// Nothing can be sent.
    #[error("cannot send to `{0}`: {1}")]
    Way(String, WayError),
}

/// A bound on calls. Not one more is sent, by whichever experiment.
#[derive(Debug)]
pub struct Budget {
    max: u64,
    left: AtomicU64,
}

impl Budget {
    /// So many calls.
    pub fn new(max: u64) -> Self {
        Self { max, left: AtomicU64::new(max) }
    }

    /// Takes one; `false` when none is left.
    pub fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes so many at once, or none of them.
    pub fn take_all(&self, calls: u64) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(calls)).is_ok()
    }

    /// Calls that were made.
    pub fn spent(&self) -> u64 {
        self.max - self.left.load(Relaxed)
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left.load(Relaxed) == 0
    }
}

/// Asks a run to end. What was played to the end is kept and concluded from.
#[derive(Debug, Default)]
pub struct Stop {
    set: AtomicBool,
    told: Notify,
}

impl Stop {
    /// Ends the run.
    pub fn set(&self) {
        self.set.store(true, Relaxed);
        self.told.notify_waiters();
    }

    /// Whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.set.load(Relaxed)
    }

    /// Waits for that.
    pub async fn wait(&self) {
        loop {
            let told = self.told.notified();
            if self.is_set() {
                return;
            }
            told.await;
        }
    }
}

/// Is told how a run goes.
pub trait Watch {
    /// A cell has ended.
    fn played(&mut self, experiment: &str, cell: &crate::record::Cell, outcome: &Outcome);
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
    /// The class and rule of the first answer that was none, for people.
    pub trouble: Option<String>,
}

/// How long the thread that sends has had a processor; `None` where nobody knows.
pub type CpuClock = fn() -> Option<Duration>;

/// Plays plans and writes records into a directory.
#[derive(Debug)]
pub struct Player<'a> {
    dir: PathBuf,
    run: Run,
    records: Writer<BufWriter<File>>,
    budget: &'a Budget,
    stop: &'a Stop,
    numbers: Numbers,
    origin: Instant,
    rng: SmallRng,
    cells: u32,
    cpu: CpuClock,
}

/// What a run is made with.
#[derive(Debug, Clone)]
pub struct Terms {
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
    /// Where `dir` has records already or cannot be written to.
    pub fn begin(
        dir: &Path,
        terms: Terms,
        goals: &[Goal],
        budget: &'a Budget,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let write = |error| RunError::Write(dir.to_owned(), error);
        fs::create_dir_all(dir).map_err(write)?;
        let path = dir.join("records.jsonl");
        if path.exists() {
            return Err(RunError::Taken(dir.to_owned()));
        }
        let records = Writer::new(BufWriter::new(File::create(&path).map_err(write)?));
        let run = Run {
            format: FORMAT,
            wellhead: terms.wellhead,
            seed: terms.seed,
            started_unix: terms.started_unix,
            targets: goals.iter().map(|goal| goal.target.clone()).collect(),
            experiments: Vec::new(),
            machine: terms.machine,
        };
        let player = Self {
            dir: dir.to_owned(),
            run,
            records,
            budget,
            stop,
            numbers: Numbers::default(),
            origin: Instant::now(),
            rng: SmallRng::seed_from_u64(terms.seed),
            cells: 0,
            cpu: cell::cpu_time,
        };
        player.save()?;
        Ok(player)
    }

    /// With another clock for the processor's time: where time is paused, seconds of it pass in
    /// none of the processor's.
    #[must_use]
    pub fn with_cpu(self, cpu: CpuClock) -> Self {
        Self { cpu, ..self }
    }

    /// The run so far.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Asks a target who it is: three calls, which are not recorded. What it tells of its chain
    /// goes to `run.json`.
    ///
    /// # Errors
    ///
    /// Where nothing can be sent or written.
    pub async fn greet(&mut self, target: u32, goal: &Goal) -> Result<Greeting, RunError> {
        let way = self.way(goal, Means::ONE)?;
        let mut greeting = Greeting::default();
        for method in ["eth_chainId", "eth_blockNumber", "web3_clientVersion"] {
            if self.stop.is_set() || !self.budget.take() {
                break;
            }
            let done = way.call(Ask::bare(method)).await;
            let answer: Option<serde_json::Value> = serde_json::from_slice(&done.body).ok();
            let text = answer.as_ref().and_then(|it| it.get("result")).and_then(|it| it.as_str());
            match (method, text) {
                ("eth_chainId", Some(text)) => greeting.chain_id = quantity(text),
                ("eth_blockNumber", Some(text)) => greeting.block = quantity(text),
                (_, Some(text)) => greeting.client = Some(plain(text)),
                (_, None) => {
                    let trouble = format!("{method}: {} ({})", done.call.class, done.call.rule);
                    greeting.trouble.get_or_insert(trouble);
                }
            }
        }
        greeting.protocol = way.protocol();
        if let Some(known) = self.run.targets.get_mut(target as usize) {
            known.chain_id = greeting.chain_id;
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
        plan: &mut dyn Plan,
        target: u32,
        goal: &Goal,
        greeting: &Greeting,
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        if !self.run.experiments.iter().any(|known| known == plan.name()) {
            self.run.experiments.push(plan.name().to_owned());
            self.save()?;
        }
        let mut last = None;
        let mut first = true;
        while let Some(ordered) = plan.next(last.as_ref()) {
            if !first && !self.rest(ordered.rest).await || self.stop.is_set() {
                break;
            }
            first = false;
            let ordered = suited(ordered, greeting.protocol);
            let place = cell::Place {
                experiment: plan.name(),
                version: plan.version(),
                cell: self.cells,
                target,
                rolled: plan.rolled(),
            };
            self.cells += 1;
            let way = self.way(goal, ordered.means)?;
            let seed = self.rng.random();
            let head = greeting.block.unwrap_or(0);
            let mut hand = cell::Hand {
                origin: self.origin,
                budget: self.budget,
                stop: self.stop,
                records: &mut self.records,
                credits: &|method| goal.credits(method),
                cpu: self.cpu,
            };
            let played = cell::play(&mut hand, &place, &ordered, &way, head, seed).await;
            let Some(mut played) = played.map_err(|error| self.unwritten(error))? else { break };
            let events = way.events();
            played.outcome.silent_ms = silent_ms(played.first, &events);
            for (at, connection, event) in events {
                // What came of the last calls belongs to the cell as well.
                let at = cell::since(self.origin, at).min(played.record.ended_at);
                let experiment = plan.name().to_owned();
                let cell = place.cell;
                let wire = Wire { experiment, cell, target, at, connection, event };
                self.write(&Record::Wire(wire))?;
            }
            watch.played(plan.name(), &played.record, &played.outcome);
            self.write(&Record::Cell(played.record))?;
            self.records.flush().map_err(|error| self.unwritten(error))?;
            plan.saw(&played.served);
            last = Some(played.outcome);
            if self.budget.is_over() {
                break;
            }
        }
        self.records.flush().map_err(|error| self.unwritten(error))
    }

    /// Waits; `false` when the run is to end instead.
    async fn rest(&self, pause: Duration) -> bool {
        tokio::select! {
            () = sleep(pause) => true,
            () = self.stop.wait() => false,
        }
    }

    fn way(&mut self, goal: &Goal, means: Means) -> Result<Way, RunError> {
        let seed = self.rng.random();
        Way::new(goal, means, &self.numbers, seed)
            .map_err(|error| RunError::Way(goal.target.host.clone(), error))
    }

    fn write(&mut self, record: &Record) -> Result<(), RunError> {
        self.records.write(record).map_err(|error| self.unwritten(error))
    }

    fn unwritten(&self, error: io::Error) -> RunError {
        RunError::Write(self.dir.clone(), error)
    }

    fn save(&self) -> Result<(), RunError> {
        let path = self.dir.join("run.json");
        let text = serde_json::to_string_pretty(&self.run).map_err(io::Error::from);
        text.and_then(|text| fs::write(path, text + "\n")).map_err(|error| self.unwritten(error))
    }
}

/// How long the first connection had been silent when the other side ended it.
fn silent_ms(first: Option<(u64, Instant)>, events: &[(Instant, u64, WireEvent)]) -> Option<u64> {
    let (first, last) = first?;
    let (at, _, _) = events.iter().find(|(at, connection, event)| {
        *connection == first
            && *at >= last
            && matches!(event, WireEvent::Goaway { .. } | WireEvent::Closed { .. })
    })?;
    u64::try_from((*at - last).as_millis()).ok()
}

/// The cell as it fits what the target speaks. A connection of HTTP/1.1 carries one call at a
/// time: with fewer connections than calls at once, calls would wait for each other here.
fn suited(mut ordered: Ordered, protocol: Option<Protocol>) -> Ordered {
    if ordered.means.version != HttpVersion::Auto || protocol != Some(Protocol::H1) {
        return ordered;
    }
    ordered.means.version = HttpVersion::H1;
    match ordered.schedule {
        Schedule::Closed { at_once, .. } => {
            ordered.means.connections = ordered.means.connections.max(at_once);
            if let Some(connections) = ordered.factors.get_mut("connections") {
                *connections = EACH_ITS_OWN.to_owned();
            }
        }
        Schedule::Open { .. }
        | Schedule::At(_)
        | Schedule::Knock(_)
        | Schedule::OneConnection { .. }
        | Schedule::Beside { .. } => {
            if !ordered.factors.contains_key("connections") {
                ordered.means.connections = H1_CONNECTIONS;
            }
        }
    }
    ordered
}

fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A text from outside, for a terminal: short, and without anything that moves the cursor.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_no_more_than_it_has() {
        let budget = Budget::new(2);
        assert!(budget.take() && budget.take() && !budget.take() && !budget.take());
        assert_eq!((budget.spent(), budget.is_over()), (2, true));
    }

    fn ordered(schedule: Schedule) -> Ordered {
        Ordered {
            factors: [("connections".to_owned(), "2".to_owned())].into(),
            repeat: 0,
            means: Means { connections: 2, ..Means::ONE },
            work: crate::work::Work::Cheap,
            schedule,
            warmed: false,
            until_failure: false,
            timed: true,
            rest: Duration::ZERO,
        }
    }

    #[test]
    fn over_http_1_no_call_waits_for_another_of_ours() {
        let closed = ordered(Schedule::Closed { at_once: 40, calls: 80, within: None });
        let fits = suited(closed.clone(), Some(Protocol::H1));
        assert_eq!((fits.means.version, fits.means.connections), (HttpVersion::H1, 40));
        assert_eq!(fits.factors["connections"], EACH_ITS_OWN);
        assert_eq!(suited(closed.clone(), Some(Protocol::H2)), closed);
        let mut open = ordered(Schedule::rate(5.0, Duration::from_secs(1)));
        open.factors.clear();
        assert_eq!(suited(open, Some(Protocol::H1)).means.connections, H1_CONNECTIONS);
    }

    #[test]
    fn what_a_client_calls_itself_cannot_move_a_cursor() {
        assert_eq!(plain("Geth/v1\u{1b}[2J\n"), "Geth/v1[2J");
        assert_eq!(plain(&"x".repeat(1_000)).len(), 100);
    }

    #[tokio::test]
    async fn whoever_waits_for_the_end_is_told() {
        let stop = Stop::default();
        let waiting = stop.wait();
        stop.set();
        waiting.await;
        stop.wait().await;
    }
}
