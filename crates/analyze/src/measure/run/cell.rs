//! One cell: its calls, at their times, each written down when it is over.

use std::fs::File;
use std::future::pending;
use std::io::{self, BufWriter};
use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until};
use wellhead_transport::TransportErrorKind;

use super::call_waits::CallWaits;
use super::first::First;
use super::pacer::Pacer;
use super::rollup::RollupWindow;
use super::sample::Sample;
use super::strain::{CpuClock, CpuShares, CpuTime, LagTicks, MeasuredTimes, is_behind, next_lag};
use super::{CallBudget, Origin, StopSignal, Watch};
use crate::ending::{RefusalRun, SendingEnd};
use crate::measure::client::{FinishedCall, TargetClient};
use crate::measure::knock::Knocker;
use crate::measure::plan::{CellOutcome, Ordered};
use crate::measure::schedule::{CellProgress, NextCall, Schedule};
use crate::record::trial;
use crate::record::{Cell, CellDoubt, Record, Writer};
use crate::stat::bucket::TimedCall;
use crate::stat::quantile;
use crate::work::{WorkCall, WorkKind};

/// Calls under way at once; one more than that ends the cell, which concludes nothing.
const UNDER_WAY_MAX: usize = 20_000;
/// A generator later than this in more than one call of a hundred has fallen behind, or a tenth
/// of the time between two calls where that is more.
pub(super) const LATE_MAX: Duration = Duration::from_millis(10);

/// Where a cell belongs.
pub(super) struct CellPlace<'a> {
    pub(super) experiment: &'a str,
    pub(super) version: u32,
    pub(super) cell: u32,
    pub(super) part: u32,
    /// See [`Cell::again`].
    pub(super) again: u32,
    pub(super) target: u32,
    /// Calls are not written one by one, but what became of them at this interval.
    pub(super) rolled: Option<Duration>,
}

/// What all cells of a run have in common.
pub(super) struct Hand<'a> {
    pub(super) origin: Origin,
    /// Whether calls leave by a pacer that is finer than the runtime's timer.
    pub(super) precise: bool,
    pub(super) watch: &'a mut dyn Watch,
    pub(super) budget: &'a CallBudget,
    pub(super) stop: &'a StopSignal,
    pub(super) records: &'a mut Writer<BufWriter<File>>,
    pub(super) credits: &'a dyn Fn(&str) -> Option<f64>,
    pub(super) cpu: CpuClock,
    /// What the target has refused since it last served a call.
    pub(super) refusals: &'a mut RefusalRun,
}

/// A cell that was played.
pub(super) struct CellResult {
    pub(super) record: Cell,
    pub(super) outcome: CellOutcome,
    /// Its first connection, and when the last answer on it was whole.
    pub(super) first: First,
    /// What became of each call, in order of time, where its schedule leans on a limit or has times of its own.
    pub(super) served: Vec<TimedCall>,
    /// Its schedule leant on a limit.
    pub(super) has_knocked: bool,
}

/// How a cell ended.
pub(super) enum CellEnd {
    /// As it was meant to.
    Played(Box<CellResult>),
    /// By what stops the run, or for want of calls.
    Cut,
    /// By a target that answers nothing any more.
    Silent,
    /// By a target that serves nothing for longer than an experiment waits.
    Ended(SendingEnd),
}

/// What happens next in a cell.
enum CellEvent {
    /// A call is due.
    Send(NextCall),
    /// One is over; `None` where what became of it is not known.
    Over(Option<Box<Numbered>>),
    /// The loop saw a tick so late.
    Lagged(Duration),
    /// The watch wants to look.
    Look,
    /// The run is to end.
    End,
}

struct Numbered {
    n: u64,
    /// When it should have begun, where a clock says so.
    intended: Option<Instant>,
    turn: NextCall,
    /// By the catalogue.
    credits: Option<f64>,
    done: FinishedCall,
}

/// Plays a cell. The cell is cut if the run or its budget ends before the cell does.
pub(super) async fn play(
    hand: &mut Hand<'_>,
    place: &CellPlace<'_>,
    ordered: &Ordered,
    client: &TargetClient,
    head: u64,
    seed: u64,
) -> io::Result<CellEnd> {
    let mut rng = SmallRng::seed_from_u64(seed);
    if ordered.warmed {
        let ask = ordered.work.next(0, head, &mut rng);
        let warm = client.warm(&ask, || !hand.stop.is_set() && hand.budget.take());
        tokio::select! {
            () = warm => {}
            () = hand.stop.wait() => return Ok(CellEnd::Cut),
        }
    }
    let (begun, cpu) = (Instant::now(), (hand.cpu)());
    let mut tally = CellTally::default();
    let is_open = late_max_us(&ordered.schedule).is_some();
    tally.roll = place.rolled.map(|every| RollupWindow::begin(every, is_open, begun, cpu));
    if let Schedule::Knock(terms) = &ordered.schedule {
        tally.knocker = Some(Knocker::new(*terms));
    }
    tally.keeps_served = matches!(ordered.schedule, Schedule::Knock(_) | Schedule::At(_));
    let clocks = CellClocks {
        pacer: pacer(hand.precise, &ordered.schedule, begun),
        look: look(hand.watch.every(), begun),
        lag: ordered.timed.then(|| LagTicks::begin(begun)),
    };
    let cell = PlayingCell {
        hand,
        place,
        ordered,
        client,
        head,
        rng,
        begun,
        cpu,
        is_open,
        calls: JoinSet::new(),
        tally,
        progress: CellProgress::default(),
        silence: Silence::default(),
        over: false,
        cut: false,
    };
    cell.play(clocks).await
}

/// The timers of the loop of a cell.
struct CellClocks {
    pacer: Option<Pacer>,
    look: Option<Interval>,
    lag: Option<LagTicks>,
}

/// A cell under way.
struct PlayingCell<'c, 'h> {
    hand: &'c mut Hand<'h>,
    place: &'c CellPlace<'c>,
    ordered: &'c Ordered,
    client: &'c TargetClient,
    /// The target's newest block, by its greeting.
    head: u64,
    rng: SmallRng,
    begun: Instant,
    /// CPU time of the thread at the beginning.
    cpu: Option<CpuTime>,
    /// The schedule says when calls begin, and does not wait for answers.
    is_open: bool,
    calls: JoinSet<Numbered>,
    tally: CellTally,
    progress: CellProgress,
    silence: Silence,
    /// No further call begins.
    over: bool,
    /// The budget did not suffice.
    cut: bool,
}

impl PlayingCell<'_, '_> {
    async fn play(mut self, mut clocks: CellClocks) -> io::Result<CellEnd> {
        let schedule = &self.ordered.schedule;
        loop {
            self.progress.under_way = self.calls.len();
            self.over = self.over || schedule.is_over(&self.progress, self.begun.elapsed());
            self.over = self.over || self.tally.knocker.as_ref().is_some_and(Knocker::is_over);
            if self.over && self.calls.is_empty() {
                break;
            }
            self.roll_up(false)?;
            let due = self.tally.knocker.as_ref().map(Knocker::due);
            let due = due.or_else(|| schedule.due(self.progress.begun)).map(|at| self.begun + at);
            match self.next(due, &mut clocks).await {
                CellEvent::End => {
                    // What was rolled up so far is worth keeping.
                    self.roll_up(true)?;
                    return Ok(CellEnd::Cut);
                }
                CellEvent::Over(Some(done)) => {
                    if let Some(end) = self.settle(&done)? {
                        self.roll_up(true)?;
                        return Ok(end);
                    }
                }
                CellEvent::Over(None) => self.tally.lost = true,
                CellEvent::Lagged(lag) => self.tally.lagged(lag),
                CellEvent::Look => self.hand.watch.look(),
                CellEvent::Send(turn) => self.send(turn, due),
            }
        }
        self.roll_up(true)?;
        // Less than the cell says would look like all of it, and borne.
        if self.cut {
            return Ok(CellEnd::Cut);
        }
        Ok(CellEnd::Played(Box::new(self.into_result())))
    }

    /// Waits for the next event. An open schedule sends its next call at `due`.
    async fn next(&mut self, due: Option<Instant>, clocks: &mut CellClocks) -> CellEvent {
        let Self { hand, ordered, calls, progress, .. } = self;
        let CellClocks { pacer, look, lag } = clocks;
        let turn = ordered.schedule.turn(progress).filter(|_| !self.over);
        let is_closed = matches!(ordered.schedule, Schedule::Closed { .. });
        match turn.filter(|_| is_closed && !hand.stop.is_set()) {
            // What is free is taken before a further answer is heard: where many come at once, there
            // would be fewer under way than the cell says until all of them were.
            Some(turn) => CellEvent::Send(turn),
            None => tokio::select! {
                biased;
                () = hand.stop.wait() => CellEvent::End,
                lag = next_lag(lag.as_mut()) => CellEvent::Lagged(lag),
                Some(done) = calls.join_next() => CellEvent::Over(done.ok().map(Box::new)),
                Some(turn) = until(due, pacer.as_ref(), turn), if turn.is_some() => {
                    CellEvent::Send(turn)
                }
                () = next_look(look.as_mut()) => CellEvent::Look,
            },
        }
    }

    /// Records a call that is over; how the cell ends if the target turns out to be silent, or to serve
    /// nothing for long.
    fn settle(&mut self, it: &Numbered) -> io::Result<Option<CellEnd>> {
        self.tally.add(self.hand, self.place, self.begun, it)?;
        // An open loop ends by the clock, and one that is watched for long may come back.
        if !self.is_open && self.place.rolled.is_none() && self.silence.hears(&it.done) {
            return Ok(Some(CellEnd::Silent));
        }
        if let Some(end) = self.tally.ends {
            return Ok(Some(CellEnd::Ended(end)));
        }
        let error = it.done.call.error.as_deref();
        // Our own memory for answers was full, which says nothing of the target.
        self.tally.lost = self.tally.lost || error == Some(TransportErrorKind::NoRoom.word());
        let one = matches!(self.ordered.schedule, Schedule::OneConnection { .. });
        self.over = self.over
            || (self.ordered.until_failure && error.is_some())
            || (one && self.tally.outcome.first_ended);
        self.progress.large_under_way -= usize::from(it.turn == NextCall::Large);
        Ok(None)
    }

    fn send(&mut self, turn: NextCall, due: Option<Instant>) {
        if self.calls.len() >= UNDER_WAY_MAX {
            (self.tally.lost, self.over) = (true, true);
            return;
        }
        let batch = self.ordered.batch;
        if !self.hand.budget.take_all(batch) {
            (self.cut, self.over) = (true, true);
            return;
        }
        let (work, large) = match turn {
            NextCall::Usual => (self.ordered.work, false),
            NextCall::Large => (WorkKind::LargeBlocks, true),
        };
        let n = self.progress.begun;
        let asks: Vec<WorkCall> = (n * batch..(n + 1) * batch)
            .map(|nth| work.next(nth, self.head, &mut self.rng))
            .collect();
        let credits = asks.iter().map(|ask| (self.hand.credits)(ask.method)).sum();
        let call = self.client.send(asks);
        self.progress.begun += 1;
        self.tally.knocker.iter_mut().for_each(Knocker::sent);
        self.progress.large_begun += u64::from(large);
        self.progress.large_under_way += usize::from(large);
        let (before, after) = self.ordered.schedule.thinks(n);
        self.calls.spawn(async move {
            think(before).await;
            let mut done = call.await;
            // A user that thinks does not hold it meanwhile.
            done.body = Bytes::new();
            think(after).await;
            Numbered { n, intended: due, turn, credits, done }
        });
    }

    /// Writes the roll-ups that are due; with `last`, all of them.
    fn roll_up(&mut self, last: bool) -> io::Result<()> {
        self.tally.roll_up(self.hand, self.place, self.client, last)
    }

    fn into_result(self) -> CellResult {
        let Self { hand, place, ordered, begun, cpu, mut tally, .. } = self;
        let ended = Instant::now();
        let shares = CpuShares::of(cpu, (hand.cpu)(), ended - begun);
        let (late_p99, lag_p99) = tally.lateness();
        let measured = tally.measured(ended - begun);
        let doubt =
            ordered.timed.then(|| tally.doubt(&ordered.schedule, shares, measured)).flatten();
        let record = Cell {
            experiment: place.experiment.to_owned(),
            version: place.version,
            cell: place.cell,
            repeat: ordered.repeat,
            part: place.part,
            again: place.again,
            target: place.target,
            factors: ordered.factors.clone(),
            begun_at: hand.origin.micros(begun),
            ended_at: hand.origin.micros(ended),
            calls: tally.outcome.calls,
            load: shares.load(late_p99, lag_p99, doubt),
        };
        tally.served.sort_by(|a, b| a.at.total_cmp(&b.at));
        let CellTally { outcome, first, served, knocker, .. } = tally;
        CellResult { record, outcome, first, served, has_knocked: knocker.is_some() }
    }
}

/// How long no call may be answered before a target counts as silent, and after how many calls.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const UNANSWERED_MIN: u32 = 4;

/// Whether a target answers at all. One that was asked for something that takes long is not silent
/// yet.
#[derive(Debug, Default)]
struct Silence {
    /// When the first of the calls began that had no answer since the last one that had, and how
    /// many they are.
    since: Option<(Instant, u32)>,
}

impl Silence {
    /// Notes a call that is over. `true` where the target is silent.
    fn hears(&mut self, done: &FinishedCall) -> bool {
        if done.call.error.is_none() {
            self.since = None;
            return false;
        }
        let (since, calls) = self.since.get_or_insert((done.begun, 0));
        *calls += 1;
        *calls >= UNANSWERED_MIN && done.ended.saturating_duration_since(*since) >= SILENCE_MAX
    }
}

/// At once where no clock says when.
async fn until(
    due: Option<Instant>,
    pacer: Option<&Pacer>,
    turn: Option<NextCall>,
) -> Option<NextCall> {
    match (due, pacer) {
        (Some(due), Some(pacer)) => pacer.until(due).await,
        (Some(due), None) => sleep_until(due).await,
        (None, _) => {}
    }
    turn
}

/// How late a call may begin before its times may be our own, microseconds; `None` where no clock
/// says when it begins.
fn late_max_us(schedule: &Schedule) -> Option<f64> {
    let between_us = match schedule {
        Schedule::Open { per_second, .. } => 1e6 / per_second,
        Schedule::Knock(terms) => 1e6 / terms.per_second,
        Schedule::At(_) => 0.0,
        Schedule::Closed { .. }
        | Schedule::OneConnection { .. }
        | Schedule::Beside { .. }
        | Schedule::Users { .. } => return None,
    };
    Some((LATE_MAX.as_secs_f64() * 1e6).max(between_us / 10.0))
}

/// Without a thread for it the runtime's timer has to do.
fn pacer(precise: bool, schedule: &Schedule, begun: Instant) -> Option<Pacer> {
    match schedule {
        Schedule::Open { per_second, calls } if precise => {
            Pacer::start(begun, *per_second, *calls).ok()
        }
        Schedule::Open { .. }
        | Schedule::Closed { .. }
        | Schedule::OneConnection { .. }
        | Schedule::At(_)
        | Schedule::Knock(_)
        | Schedule::Beside { .. }
        | Schedule::Users { .. } => None,
    }
}

/// Not even a turn of the runtime where there is nothing to wait for.
async fn think(pause: Duration) {
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

pub(super) fn look(every: Option<Duration>, now: Instant) -> Option<Interval> {
    let every = every?;
    let mut looks = interval_at(now + every, every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(looks)
}

pub(super) async fn next_look(look: Option<&mut Interval>) {
    match look {
        Some(look) => {
            look.tick().await;
        }
        None => pending().await,
    }
}

#[derive(Default)]
struct CellTally {
    outcome: CellOutcome,
    /// Microseconds, of calls that had a time. Empty where calls are rolled up.
    late: Vec<f64>,
    /// How late the loop saw ticks, likewise.
    lags: Sample,
    /// Microseconds on the wire, of calls that were served, likewise.
    times: Sample,
    waits: CallWaits,
    /// A call was not made, or what became of it is not known.
    lost: bool,
    first: First,
    knocker: Option<Knocker>,
    /// The plan wants to see each call.
    keeps_served: bool,
    served: Vec<TimedCall>,
    roll: Option<RollupWindow>,
    /// The target is to be asked no more.
    ends: Option<SendingEnd>,
}

impl CellTally {
    fn add(
        &mut self,
        hand: &mut Hand<'_>,
        place: &CellPlace<'_>,
        origin: Instant,
        it: &Numbered,
    ) -> io::Result<()> {
        let Numbered { n, intended, turn: _, credits, done } = it;
        let intended = intended.unwrap_or(done.begun);
        let mut call = done.call.clone();
        call.experiment = place.experiment.to_owned();
        call.cell = place.cell;
        call.target = place.target;
        call.n = *n;
        call.intended_at = hand.origin.micros(intended);
        call.begun_at = hand.origin.micros(done.begun);
        call.ended_at = hand.origin.micros(done.ended);
        call.credits = *credits;
        self.outcome.add(&call);
        self.first.follow(&call, &mut self.outcome);
        hand.watch.over(&call);
        // What leans on a limit waits for its end, and asks ever more rarely; a long watch may see it end.
        let waits = self.knocker.is_some() || self.roll.is_some();
        let end = hand.refusals.add(&call);
        self.ends = end.filter(|end| !(waits && matches!(end, SendingEnd::Refused { .. })));
        let late = done.begun.saturating_duration_since(intended).as_secs_f64() * 1e6;
        if self.keeps_served {
            let served = TimedCall::of(&call, hand.origin.micros(origin));
            if let Some(knocker) = &mut self.knocker {
                knocker.heard(intended - origin, done.ended - origin, served.passed);
            }
            self.served.push(served);
        }
        if let Some(roll) = &mut self.roll {
            roll.add(done, &call, intended, late);
            // What ends it has to be read from the records.
            let last = hand.refusals.first.iter().filter(|_| self.ends.is_some());
            for call in last {
                hand.records.write(&Record::Call(call.clone()))?;
            }
            return Ok(());
        }
        self.late.push(late);
        if trial::served(&call) {
            self.times.add(done.on_the_wire().as_secs_f64() * 1e6);
        }
        self.waits.add(done, late);
        hand.records.write(&Record::Call(call))
    }

    fn lagged(&mut self, lag: Duration) {
        let us = lag.as_secs_f64() * 1e6;
        match &mut self.roll {
            Some(roll) => roll.lagged(us),
            None => self.lags.add(us),
        }
    }

    /// Writes what is to be written by now; with `last`, all of it.
    fn roll_up(
        &mut self,
        hand: &mut Hand<'_>,
        place: &CellPlace<'_>,
        client: &TargetClient,
        last: bool,
    ) -> io::Result<()> {
        let Some(roll) = &mut self.roll else { return Ok(()) };
        let now = Instant::now();
        if !last && !roll.is_due(now) {
            return Ok(());
        }
        let Some(mut rollup) = roll.take(now, hand.origin, (hand.cpu)()) else { return Ok(()) };
        rollup.experiment = place.experiment.to_owned();
        rollup.cell = place.cell;
        rollup.target = place.target;
        for (_, _, event) in client.events() {
            *rollup.wire.entry(event.word().to_owned()).or_default() += 1;
        }
        hand.records.write(&Record::Rollup(rollup))?;
        hand.records.flush()
    }

    /// How late calls began and how late the loop was, 99th percentiles in microseconds.
    fn lateness(&self) -> (f64, f64) {
        match &self.roll {
            Some(roll) => roll.lateness(),
            None => {
                let lag_p99 = self.lags.quantile(0.99).unwrap_or(0.0);
                (quantile(&self.late, 0.99).unwrap_or(0.0), lag_p99)
            }
        }
    }

    fn measured(&self, lasted: Duration) -> MeasuredTimes {
        MeasuredTimes {
            calls: self.outcome.calls,
            lasted_us: lasted.as_secs_f64() * 1e6,
            p50_us: self.times.quantile(0.5).unwrap_or(0.0),
        }
    }

    /// Why times of the cell may be our own.
    fn doubt(
        &self,
        schedule: &Schedule,
        shares: CpuShares,
        measured: MeasuredTimes,
    ) -> Option<CellDoubt> {
        if self.lost {
            return Some(CellDoubt::Lost);
        }
        // Where it is rolled up, each part says for itself whether it may be believed.
        if let Some(roll) = &self.roll {
            return roll.doubt();
        }
        let (late, lag) = self.lateness();
        let late_max = late_max_us(schedule).map(|max| max.max(measured.own_max_us(LATE_MAX)));
        if late_max.is_some_and(|max| late > max) || is_behind(lag, shares, measured) {
            return Some(CellDoubt::Behind);
        }
        late_max.filter(|max| self.waits.is_ours(*max)).map(|_| CellDoubt::Full)
    }
}
