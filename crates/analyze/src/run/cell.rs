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

use super::beat::Beat;
use super::first::First;
use super::rollup::Roll;
use super::{Budget, CpuClock, Origin, Stop, Watch};
use crate::knock::Knocker;
use crate::plan::{Ordered, Outcome};
use crate::record::{Cell, Record, Writer};
use crate::schedule::{Progress, Schedule, Turn};
use crate::stat::bucket::Served;
use crate::stat::quantile;
use crate::way::{Done, Way};
use crate::work::Work;

/// Calls under way at once; one more than that ends the cell, which concludes nothing.
const UNDER_WAY_MAX: usize = 20_000;
/// A generator later than this in more than one call of a hundred has fallen behind, or a tenth
/// of the time between two calls where that is more.
pub(super) const LATE_MAX: Duration = Duration::from_millis(10);
/// The share of a core above which the times of calls may be our own.
pub(super) const CPU_MAX: f64 = 0.7;

/// Where a cell belongs.
pub(super) struct Place<'a> {
    pub(super) experiment: &'a str,
    pub(super) version: u32,
    pub(super) cell: u32,
    pub(super) part: u32,
    pub(super) target: u32,
    /// Calls are not written one by one, but what became of them each so often.
    pub(super) rolled: Option<Duration>,
}

/// What all cells of a run have in common.
pub(super) struct Hand<'a> {
    pub(super) origin: Origin,
    /// Whether calls leave by a beat that is finer than the runtime's timer.
    pub(super) precise: bool,
    pub(super) watch: &'a mut dyn Watch,
    pub(super) budget: &'a Budget,
    pub(super) stop: &'a Stop,
    pub(super) records: &'a mut Writer<BufWriter<File>>,
    pub(super) credits: &'a dyn Fn(&str) -> Option<f64>,
    pub(super) cpu: CpuClock,
}

/// A cell that was played.
pub(super) struct Played {
    pub(super) record: Cell,
    pub(super) outcome: Outcome,
    /// Its first connection, and when the last answer on it was whole.
    pub(super) first: First,
    /// What became of each call, in order of time, where its schedule leans on a limit.
    pub(super) served: Vec<Served>,
}

/// What happens next in a cell.
enum Next {
    /// A call is due.
    Send(Turn),
    /// One is over; `None` where what became of it is not known.
    Over(Option<Box<Numbered>>),
    /// Whoever watches wants to look.
    Look,
    /// The run is to end.
    End,
}

struct Numbered {
    n: u64,
    /// When it should have begun, where a clock says so.
    intended: Option<Instant>,
    turn: Turn,
    done: Done,
}

/// Plays a cell; `None` where the run is to end before it is over.
pub(super) async fn play(
    hand: &mut Hand<'_>,
    place: &Place<'_>,
    ordered: &Ordered,
    way: &Way,
    head: u64,
    seed: u64,
) -> io::Result<Option<Played>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    if ordered.warmed {
        let ask = ordered.work.next(head, &mut rng);
        let warm = way.warm(&ask, || !hand.stop.is_set() && hand.budget.take());
        tokio::select! {
            () = warm => {}
            () = hand.stop.wait() => return Ok(None),
        }
    }
    let mut calls = JoinSet::new();
    let mut tally = Tally::default();
    let (begun, cpu) = (Instant::now(), (hand.cpu)());
    tally.roll = place.rolled.map(|every| Roll::begin(every, begun, cpu));
    if let Schedule::Knock(terms) = &ordered.schedule {
        tally.knocker = Some(Knocker::new(*terms));
    }
    let beat = beat(hand.precise, &ordered.schedule, begun);
    let mut look = look(hand.watch.every(), begun);
    let (mut progress, mut over) = (Progress::default(), false);
    loop {
        progress.under_way = calls.len();
        over = over || ordered.schedule.is_over(&progress, begun.elapsed());
        over = over || tally.knocker.as_ref().is_some_and(Knocker::is_over);
        if over && calls.is_empty() {
            break;
        }
        tally.roll_up(hand, place, false)?;
        let due = tally.knocker.as_ref().map(Knocker::due);
        let due = due.or_else(|| ordered.schedule.due(progress.begun)).map(|at| begun + at);
        let next = {
            let turn = ordered.schedule.turn(&progress).filter(|_| !over);
            tokio::select! {
                biased;
                () = hand.stop.wait() => Next::End,
                Some(done) = calls.join_next() => Next::Over(done.ok().map(Box::new)),
                Some(turn) = until(due, beat.as_ref(), turn), if turn.is_some() => {
                    Next::Send(turn)
                }
                () = next_look(look.as_mut()) => Next::Look,
            }
        };
        match next {
            // What was rolled up so far is worth keeping.
            Next::End if place.rolled.is_some() => break,
            Next::End => return Ok(None),
            Next::Over(Some(done)) => {
                tally.add(hand, place, begun, &done)?;
                // Our own memory for answers was full, which says nothing of the target.
                let no_room = TransportErrorKind::NoRoom.word();
                tally.lost = tally.lost || done.done.call.error.as_deref() == Some(no_room);
                over = over || (ordered.until_failure && done.done.call.error.is_some());
                let one = matches!(ordered.schedule, Schedule::OneConnection { .. });
                over = over || (one && tally.outcome.first_ended);
                progress.large_under_way -= usize::from(done.turn == Turn::Large);
            }
            Next::Over(None) => tally.lost = true,
            Next::Look => hand.watch.look(),
            Next::Send(turn) => {
                if calls.len() >= UNDER_WAY_MAX || !hand.budget.take() {
                    tally.lost = tally.lost || calls.len() >= UNDER_WAY_MAX;
                    over = true;
                    continue;
                }
                let (work, large) = match turn {
                    Turn::Usual => (ordered.work, false),
                    Turn::Large => (Work::LargeBlocks, true),
                };
                let call = way.call(work.next(head, &mut rng));
                let n = progress.begun;
                progress.begun += 1;
                tally.knocker.iter_mut().for_each(Knocker::sent);
                progress.large_begun += u64::from(large);
                progress.large_under_way += usize::from(large);
                let (before, after) = ordered.schedule.thinks(n);
                calls.spawn(async move {
                    think(before).await;
                    let mut done = call.await;
                    // Who thinks does not hold it meanwhile.
                    done.body = Bytes::new();
                    think(after).await;
                    Numbered { n, intended: due, turn, done }
                });
            }
        }
    }
    tally.roll_up(hand, place, true)?;
    let ended = Instant::now();
    let cpu = share(cpu, (hand.cpu)(), ended - begun);
    let (late_p99, crowded) = tally.lateness();
    // Where it is rolled up, each part says for itself whether it may be believed.
    let fell_behind = place.rolled.is_none() && (is_late(ordered, late_p99) || cpu > CPU_MAX);
    let saturated = ordered.timed && (tally.lost || fell_behind || crowded);
    let record = Cell {
        experiment: place.experiment.to_owned(),
        version: place.version,
        cell: place.cell,
        repeat: ordered.repeat,
        part: place.part,
        target: place.target,
        factors: ordered.factors.clone(),
        begun_at: hand.origin.micros(begun),
        ended_at: hand.origin.micros(ended),
        calls: tally.outcome.calls,
        late_p99: late_p99 as u64,
        cpu,
        saturated,
    };
    tally.served.sort_by(|a, b| a.at.total_cmp(&b.at));
    Ok(Some(Played { record, outcome: tally.outcome, first: tally.first, served: tally.served }))
}

/// At once where no clock says when.
async fn until(due: Option<Instant>, beat: Option<&Beat>, turn: Option<Turn>) -> Option<Turn> {
    match (due, beat) {
        (Some(due), Some(beat)) => beat.until(due).await,
        (Some(due), None) => sleep_until(due).await,
        (None, _) => {}
    }
    turn
}

/// Whether calls began so late, in microseconds, that their times may be our own.
pub(super) fn is_late(ordered: &Ordered, late_us: f64) -> bool {
    let between_us = match &ordered.schedule {
        Schedule::Open { per_second, .. } => 1e6 / per_second,
        Schedule::Knock(terms) => 1e6 / terms.per_second,
        Schedule::At(_) => 0.0,
        Schedule::Closed { .. }
        | Schedule::OneConnection { .. }
        | Schedule::Beside { .. }
        | Schedule::Users { .. } => return false,
    };
    late_us > (LATE_MAX.as_secs_f64() * 1e6).max(between_us / 10.0)
}

/// The share of one core; 0 where the system does not tell.
pub(super) fn share(from: Option<Duration>, to: Option<Duration>, took: Duration) -> f64 {
    let used = from.zip(to).map_or(0.0, |(from, to)| to.saturating_sub(from).as_secs_f64());
    if took.is_zero() { 0.0 } else { used / took.as_secs_f64() }
}

/// Without a thread for it the runtime's timer has to do.
fn beat(precise: bool, schedule: &Schedule, begun: Instant) -> Option<Beat> {
    match schedule {
        Schedule::Open { per_second, calls } if precise => {
            Beat::start(begun, *per_second, *calls).ok()
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
struct Tally {
    outcome: Outcome,
    /// Microseconds, of calls that had a time. Empty where calls are rolled up.
    late: Vec<f64>,
    /// A call was not made, or what became of it is not known.
    lost: bool,
    first: First,
    knocker: Option<Knocker>,
    served: Vec<Served>,
    roll: Option<Roll>,
}

impl Tally {
    fn add(
        &mut self,
        hand: &mut Hand<'_>,
        place: &Place<'_>,
        origin: Instant,
        it: &Numbered,
    ) -> io::Result<()> {
        let Numbered { n, intended, turn: _, done } = it;
        let intended = intended.unwrap_or(done.begun);
        let mut call = done.call.clone();
        call.experiment = place.experiment.to_owned();
        call.cell = place.cell;
        call.target = place.target;
        call.n = *n;
        call.intended_at = hand.origin.micros(intended);
        call.begun_at = hand.origin.micros(done.begun);
        call.ended_at = hand.origin.micros(done.ended);
        call.credits = (hand.credits)(&call.method);
        self.outcome.add(&call);
        self.first.follow(&call, &mut self.outcome);
        hand.watch.over(&call);
        let late = done.begun.saturating_duration_since(intended).as_secs_f64() * 1e6;
        if let Some(knocker) = &mut self.knocker {
            let served = Served::of(&call, hand.origin.micros(origin));
            knocker.heard(intended - origin, done.ended - origin, served.passed);
            self.served.push(served);
        }
        if let Some(roll) = &mut self.roll {
            roll.add(&call, intended, done.ended, late, call.credits);
            return Ok(());
        }
        self.late.push(late);
        hand.records.write(&Record::Call(call))
    }

    /// Writes what is to be written by now; with `last`, all of it.
    fn roll_up(&mut self, hand: &mut Hand<'_>, place: &Place<'_>, last: bool) -> io::Result<()> {
        let Some(roll) = &mut self.roll else { return Ok(()) };
        let now = Instant::now();
        if !last && !roll.is_due(now) {
            return Ok(());
        }
        let Some(mut rollup) = roll.take(now, hand.origin, (hand.cpu)()) else { return Ok(()) };
        rollup.experiment = place.experiment.to_owned();
        rollup.cell = place.cell;
        rollup.target = place.target;
        hand.records.write(&Record::Rollup(rollup))?;
        hand.records.flush()
    }

    /// The 99th percentile of lateness, and whether most parts of a cell that is rolled up
    /// fell behind.
    fn lateness(&self) -> (f64, bool) {
        match &self.roll {
            Some(roll) => roll.lateness(),
            None => (quantile(&self.late, 0.99).unwrap_or(0.0), false),
        }
    }
}

/// What this thread, which does all the sending, has used. `None` where the system does not tell.
pub(super) fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
