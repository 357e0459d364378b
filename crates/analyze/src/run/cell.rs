//! One cell: its calls, at their times, each written down when it is over.

use std::fs::File;
use std::future::pending;
use std::io::{self, BufWriter};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::beat::Beat;
use super::first::First;
use super::{Budget, Origin, Stop, Watch};
use crate::plan::{Ordered, Outcome};
use crate::record::{Cell, Record, Writer};
use crate::schedule::{Progress, Schedule, Turn};
use crate::stat::quantile;
use crate::way::{Done, Way};
use crate::work::Work;

/// Calls under way at once; one more than that ends the cell, which concludes nothing.
const UNDER_WAY_MAX: usize = 20_000;
/// A generator later than this in more than one call of a hundred has fallen behind, or a tenth
/// of the time between two calls where that is more.
const LATE_MAX: Duration = Duration::from_millis(10);
/// The share of a core above which the times of calls may be our own.
const CPU_MAX: f64 = 0.7;

/// Where a cell belongs.
pub(super) struct Place<'a> {
    pub(super) experiment: &'a str,
    pub(super) version: u32,
    pub(super) cell: u32,
    pub(super) target: u32,
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
}

/// A cell that was played.
pub(super) struct Played {
    pub(super) record: Cell,
    pub(super) outcome: Outcome,
    /// Its first connection, and when the last answer on it was whole.
    pub(super) first: First,
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
    let (begun, cpu) = (Instant::now(), cpu_time());
    let beat = beat(hand.precise, &ordered.schedule, begun);
    let mut look = look(hand.watch.every(), begun);
    let (mut progress, mut over) = (Progress::default(), false);
    loop {
        progress.under_way = calls.len();
        over = over || ordered.schedule.is_over(&progress, begun.elapsed());
        if over && calls.is_empty() {
            break;
        }
        let due = ordered.schedule.due(progress.begun).map(|at| begun + at);
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
            Next::End => return Ok(None),
            Next::Over(Some(done)) => {
                tally.add(hand, place, &done)?;
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
                progress.large_begun += u64::from(large);
                progress.large_under_way += usize::from(large);
                let (before, after) = ordered.schedule.thinks(n);
                calls.spawn(async move {
                    think(before).await;
                    let done = call.await;
                    think(after).await;
                    Numbered { n, intended: due, turn, done }
                });
            }
        }
    }
    let ended = Instant::now();
    let took = (ended - begun).as_secs_f64();
    let used = cpu.zip(cpu_time()).map_or(0.0, |(from, to)| to.saturating_sub(from).as_secs_f64());
    let cpu = if took > 0.0 { used / took } else { 0.0 };
    let late_p99 = quantile(&tally.late, 0.99).unwrap_or(0.0);
    let saturated =
        ordered.timed && (tally.lost || is_late(&ordered.schedule, late_p99) || cpu > CPU_MAX);
    let record = Cell {
        experiment: place.experiment.to_owned(),
        version: place.version,
        cell: place.cell,
        repeat: ordered.repeat,
        target: place.target,
        factors: ordered.factors.clone(),
        begun_at: hand.origin.micros(begun),
        ended_at: hand.origin.micros(ended),
        calls: tally.outcome.calls,
        late_p99: late_p99 as u64,
        cpu,
        saturated,
    };
    Ok(Some(Played { record, outcome: tally.outcome, first: tally.first }))
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

/// Without a thread for it the runtime's timer has to do.
fn beat(precise: bool, schedule: &Schedule, begun: Instant) -> Option<Beat> {
    match schedule {
        Schedule::Open { per_second, calls } if precise => {
            Beat::start(begun, *per_second, *calls).ok()
        }
        Schedule::Open { .. }
        | Schedule::Closed { .. }
        | Schedule::OneConnection { .. }
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

fn is_late(schedule: &Schedule, late_us: f64) -> bool {
    match schedule {
        Schedule::Open { per_second, .. } => {
            late_us > (LATE_MAX.as_secs_f64() * 1e6).max(1e5 / per_second)
        }
        Schedule::Closed { .. }
        | Schedule::OneConnection { .. }
        | Schedule::Beside { .. }
        | Schedule::Users { .. } => false,
    }
}

#[derive(Default)]
struct Tally {
    outcome: Outcome,
    /// Microseconds, of calls that had a time.
    late: Vec<f64>,
    /// A call was not made, or what became of it is not known.
    lost: bool,
    first: First,
}

impl Tally {
    fn add(&mut self, hand: &mut Hand<'_>, place: &Place<'_>, it: &Numbered) -> io::Result<()> {
        let Numbered { n, intended, turn: _, done } = it;
        let intended = intended.unwrap_or(done.begun);
        self.late.push(done.begun.saturating_duration_since(intended).as_secs_f64() * 1e6);
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
        hand.records.write(&Record::Call(call))
    }
}

/// What this thread, which does all the sending, has used. `None` where the system does not tell.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
