//! All targets side by side, for experiments that look at what is answered (`inquiry`).
//!
//! Each target has one client and a pace of its own that is kept to. A call that was refused for its
//! rate, or that met a fault, is made again a little later; all tries are in the records, and what
//! the connections did. Budget and stop are those of the run.
//!
//! What a run that was cut has left behind is handed out ([`Panel::take_earlier`]): an inquiry knows
//! what its cells mean, and which of them need not be played again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wellhead_upstream::VerdictClass;

use super::{Player, RunError, StopSignal, Watch};
use crate::measure::client::{ConnectionSettings, FinishedCall, TargetClient, TargetEndpoint};
use crate::measure::plan::CellOutcome;
use crate::record::{Cell, Record};
use crate::work::WorkCall;

/// Times that a call is made until it is answered.
const TRIES_MAX: u32 = 3;
/// Before the second try, where the target asks for no pause; twice as long before each further.
const PAUSE: Duration = Duration::from_secs(1);
/// A longer pause than this is not waited for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A target has one try a call when its last calls, at least this many, all failed.
const FAILING: u32 = 4;

/// Why a panel is asked no more.
#[derive(Debug)]
pub enum PanelEnd {
    /// The run is to end, or the target is to be left alone.
    Stopped,
    /// Nothing can be sent or written.
    Failed(RunError),
}

impl From<RunError> for PanelEnd {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl PanelEnd {
    /// An inquiry that is stopped has not failed.
    pub(crate) fn failure(self) -> Result<(), RunError> {
        match self {
            Self::Stopped => Ok(()),
            Self::Failed(error) => Err(error),
        }
    }
}

/// What was asked for, unless the run is to end instead.
pub type UnlessStopped<T> = Result<T, PanelEnd>;

/// One target of a panel.
#[derive(Debug, Clone, Copy)]
pub struct PanelMember<'a> {
    /// Index in the run.
    pub target: u32,
    /// The target itself.
    pub endpoint: &'a TargetEndpoint,
}

#[derive(Debug)]
struct Seat<'p> {
    member: PanelMember<'p>,
    client: TargetClient,
    free_at: Instant,
    failing: u32,
}

/// A call that is over, with all its tries.
#[derive(Debug, Default)]
pub struct Finished {
    /// In the order of time; empty where what became of it is not known.
    pub tries: Vec<FinishedCall>,
}

impl Finished {
    /// The last try.
    pub fn last(&self) -> Option<&FinishedCall> {
        self.tries.last()
    }

    /// The class of the last try; that of a fault where there is none.
    pub fn class(&self) -> VerdictClass {
        let class = self.last().and_then(|done| VerdictClass::from_word(&done.call.class));
        class.unwrap_or(VerdictClass::Fault)
    }
}

/// See the module.
pub struct Panel<'p, 'a> {
    player: &'p mut Player<'a>,
    watch: &'p mut dyn Watch,
    experiment: &'static str,
    version: u32,
    gap: Duration,
    seats: Vec<Seat<'p>>,
    earlier: BTreeMap<u32, Vec<Cell>>,
}

impl std::fmt::Debug for Panel<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Panel").field("seats", &self.seats).finish_non_exhaustive()
    }
}

impl<'a> Player<'a> {
    /// Seats `members` for an experiment. A target is asked nothing within `gap` of the call
    /// before.
    ///
    /// # Errors
    ///
    /// Where nothing can be sent or written, or another version played what there is.
    pub fn panel<'p>(
        &'p mut self,
        experiment: &'static str,
        version: u32,
        members: &[PanelMember<'p>],
        gap: Duration,
        watch: &'p mut dyn Watch,
    ) -> Result<Panel<'p, 'a>, RunError> {
        self.note(experiment)?;
        let earlier = self.earlier.as_mut().map(|earlier| earlier.take_all(experiment));
        let earlier = earlier.unwrap_or_default();
        if earlier.values().flatten().any(|cell| cell.version != version) {
            return Err(RunError::Other(experiment.to_owned()));
        }
        let now = Instant::now();
        let mut seats = Vec::new();
        for member in members {
            let seed = self.seed(member.target, experiment, 0);
            let client = self.client(member.endpoint, ConnectionSettings::ONE, seed)?;
            seats.push(Seat { member: *member, client, free_at: now, failing: 0 });
        }
        Ok(Panel { player: self, watch, experiment, version, gap, seats, earlier })
    }
}

impl<'p> Panel<'p, '_> {
    /// Targets.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// The member that sits there.
    pub fn member(&self, seat: usize) -> PanelMember<'p> {
        self.seats[seat].member
    }

    /// What ends the run.
    pub fn stop(&self) -> &StopSignal {
        self.player.stop
    }

    /// The cells that were played to their end before the run was cut, by target, in the order of
    /// time; also of targets that have no seat now. None of them is handed out twice.
    pub(crate) fn take_earlier(&mut self) -> BTreeMap<u32, Vec<Cell>> {
        std::mem::take(&mut self.earlier)
    }

    /// How often the run was gone on with.
    pub fn part(&self) -> u32 {
        self.player.part
    }

    /// Asks all targets one question at one time.
    ///
    /// # Errors
    ///
    /// Where it cannot be written that calls are sent, as for all that ask.
    pub async fn ask_all(&mut self, ask: &WorkCall) -> UnlessStopped<Vec<Finished>> {
        let asks: Vec<(usize, WorkCall)> =
            (0..self.len()).map(|seat| (seat, ask.clone())).collect();
        self.ask(&asks).await
    }

    /// Asks one.
    ///
    /// # Errors
    ///
    /// See [`ask_all`](Self::ask_all).
    pub(crate) async fn ask_one(&mut self, seat: usize, ask: WorkCall) -> UnlessStopped<Finished> {
        Ok(self.ask(&[(seat, ask)]).await?.pop().unwrap_or_default())
    }

    /// Makes these calls at the same time, each of another target. The answers are in the order
    /// of the calls.
    ///
    /// # Errors
    ///
    /// See [`ask_all`](Self::ask_all).
    pub async fn ask(&mut self, asks: &[(usize, WorkCall)]) -> UnlessStopped<Vec<Finished>> {
        self.play(asks, |client, ask| Box::pin(client.call(ask.clone())), 1).await
    }

    /// Asks one target one call several times in one request.
    ///
    /// # Errors
    ///
    /// See [`ask_all`](Self::ask_all).
    pub async fn batch(
        &mut self,
        seat: usize,
        ask: &WorkCall,
        calls: u64,
    ) -> UnlessStopped<Finished> {
        let send = |client: &TargetClient, ask: &WorkCall| -> PanelCall {
            Box::pin(client.batch(ask, calls))
        };
        Ok(self.play(&[(seat, ask.clone())], send, calls).await?.pop().unwrap_or_default())
    }

    /// Pays for this many calls that are about to be sent; `false` where the run is to end instead.
    /// Written down first: a run that goes on after a kill has to know.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn pay(&mut self, calls: u64) -> Result<bool, RunError> {
        let may = !self.player.stop.is_set() && self.player.budget.take_all(calls);
        if may {
            self.player.save()?;
        }
        Ok(may)
    }

    async fn play(
        &mut self,
        asks: &[(usize, WorkCall)],
        send: impl Fn(&TargetClient, &WorkCall) -> PanelCall,
        cost: u64,
    ) -> UnlessStopped<Vec<Finished>> {
        let mut finished: Vec<Finished> = asks.iter().map(|_| Finished::default()).collect();
        let mut open: Vec<usize> = (0..asks.len()).collect();
        let mut pause = Duration::ZERO;
        for n in 0..TRIES_MAX {
            let free = open.iter().map(|place| self.seats[asks[*place].0].free_at).max();
            let Some(free) = free else { break };
            let due = free.max(Instant::now() + pause);
            tokio::select! {
                biased;
                () = self.player.stop.wait() => return Err(PanelEnd::Stopped),
                () = sleep_until(due) => {}
            }
            if !self.pay(open.len() as u64 * cost)? {
                return Err(PanelEnd::Stopped);
            }
            let mut calls = JoinSet::new();
            for place in open.drain(..) {
                let (seat, ask) = &asks[place];
                let seat = &mut self.seats[*seat];
                seat.free_at = Instant::now() + self.gap;
                let call = send(&seat.client, ask);
                calls.spawn(async move { (place, call.await) });
            }
            pause = PAUSE * 2_u32.pow(n);
            while !calls.is_empty() {
                let over = tokio::select! {
                    biased;
                    () = self.player.stop.wait() => return Err(PanelEnd::Stopped),
                    over = calls.join_next() => over,
                };
                let Some(Ok((place, mut done))) = over else { continue };
                self.over(&done);
                let seat = &mut self.seats[asks[place].0];
                let each = seat.member.endpoint.credits(&done.call.method);
                done.call.credits = each.map(|each| each * cost as f64);
                let again = passes(&done);
                seat.failing = if again { seat.failing + 1 } else { 0 };
                let asked = done.call.retry_after_ms.map(Duration::from_millis);
                if again && seat.failing < FAILING && asked.is_none_or(|it| it <= PAUSE_MAX) {
                    pause = pause.max(asked.unwrap_or(Duration::ZERO));
                    open.push(place);
                }
                finished[place].tries.push(done);
            }
        }
        Ok(finished)
    }

    /// Begins a call of one now, whatever its pace; `None` where the run is to end instead. The
    /// caller tells when it is [`over`](Self::over).
    ///
    /// # Errors
    ///
    /// See [`ask_all`](Self::ask_all).
    pub fn launch(
        &mut self,
        seat: usize,
        ask: WorkCall,
    ) -> Result<Option<impl Future<Output = FinishedCall> + Send + use<>>, RunError> {
        Ok(self.pay(1)?.then(|| self.seats[seat].client.call(ask)))
    }

    /// A call is over.
    pub fn over(&mut self, done: &FinishedCall) {
        self.watch.over(&done.call);
    }

    /// Writes a cell of one target that was played from the first to the last of `calls`, or
    /// `within` the given times.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn close(
        &mut self,
        seat: usize,
        factors: BTreeMap<String, String>,
        calls: Vec<FinishedCall>,
        within: Option<(Instant, Instant)>,
    ) -> Result<(), RunError> {
        let now = Instant::now();
        let first = calls.iter().map(|done| done.begun).min().unwrap_or(now);
        let last = calls.iter().map(|done| done.ended).max().unwrap_or(now);
        let (from, to) = within.unwrap_or((first, last));
        let PanelMember { target, endpoint } = self.seats[seat].member;
        let origin = self.player.origin;
        let mut outcome = CellOutcome::default();
        let number = self.player.cells;
        self.player.cells += 1;
        for (n, done) in calls.into_iter().enumerate() {
            let mut call = done.call;
            outcome.calls += 1;
            outcome.throttled += u64::from(call.class == VerdictClass::Throttled.word());
            outcome.failed += u64::from(call.error.is_some());
            call.experiment = self.experiment.to_owned();
            call.cell = number;
            call.target = target;
            call.n = n as u64;
            call.begun_at = origin.micros(done.begun);
            call.intended_at = call.begun_at;
            call.ended_at = origin.micros(done.ended);
            call.credits = call.credits.or_else(|| endpoint.credits(&call.method));
            self.player.write(&Record::Call(call))?;
        }
        // What one says may be what another one is asked for.
        let kept = |text| self.seats.iter().fold(text, |text, seat| seat.client.kept(text));
        let factors = factors.into_iter().map(|(name, text)| (name, kept(text))).collect();
        let cell = Cell {
            experiment: self.experiment.to_owned(),
            version: self.version,
            cell: number,
            part: self.player.part,
            target,
            factors,
            begun_at: origin.micros(from),
            ended_at: origin.micros(to),
            calls: outcome.calls,
            ..Cell::default()
        };
        let events = self.player.events(&self.seats[seat].client, &cell);
        self.player.write_events(&cell, events)?;
        self.watch.played(self.experiment, &cell, &outcome);
        self.player.write(&Record::Cell(cell))?;
        self.player.records.flush().map_err(|error| self.player.unwritten(error))
    }
}

type PanelCall = std::pin::Pin<Box<dyn Future<Output = FinishedCall> + Send>>;

/// Whether it may go better a moment later.
fn passes(done: &FinishedCall) -> bool {
    let word = done.call.class.as_str();
    done.call.error.is_some()
        || word == VerdictClass::Throttled.word()
        || word == VerdictClass::Fault.word()
}
