//! One cell: its calls, at their times, each written down when it is over.

use std::fs::File;
use std::io::{self, BufWriter};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wellhead_upstream::VerdictClass;

use super::{Budget, Stop};
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
    pub(super) origin: Instant,
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
    pub(super) first: Option<(u64, Instant)>,
}

/// What happens next in a cell.
enum Next {
    /// A call is due.
    Send(Turn),
    /// One is over; `None` where what became of it is not known.
    Over(Option<Box<Numbered>>),
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
                Some(turn) = until(due, turn), if turn.is_some() => Next::Send(turn),
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
                calls.spawn(async move { Numbered { n, intended: due, turn, done: call.await } });
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
        begun_at: since(hand.origin, begun),
        ended_at: since(hand.origin, ended),
        calls: tally.outcome.calls,
        late_p99: late_p99 as u64,
        cpu,
        saturated,
    };
    Ok(Some(Played { record, outcome: tally.outcome, first: tally.first }))
}

/// At once where no clock says when.
async fn until(due: Option<Instant>, turn: Option<Turn>) -> Option<Turn> {
    if let Some(due) = due {
        sleep_until(due).await;
    }
    turn
}

fn is_late(schedule: &Schedule, late_us: f64) -> bool {
    match schedule {
        Schedule::Open { per_second, .. } => {
            late_us > (LATE_MAX.as_secs_f64() * 1e6).max(1e5 / per_second)
        }
        Schedule::Closed { .. } | Schedule::OneConnection { .. } | Schedule::Beside { .. } => false,
    }
}

#[derive(Default)]
struct Tally {
    outcome: Outcome,
    /// Microseconds, of calls that had a time.
    late: Vec<f64>,
    /// A call was not made, or what became of it is not known.
    lost: bool,
    /// The first connection, and when the last answer on it was whole.
    first: Option<(u64, Instant)>,
}

impl Tally {
    fn add(&mut self, hand: &mut Hand<'_>, place: &Place<'_>, it: &Numbered) -> io::Result<()> {
        let Numbered { n, intended, turn: _, done } = it;
        let intended = intended.unwrap_or(done.begun);
        self.outcome.calls += 1;
        self.outcome.throttled += u64::from(done.call.class == VerdictClass::Throttled.word());
        self.outcome.failed += u64::from(done.call.error.is_some());
        self.follow_first(done);
        self.late.push(done.begun.saturating_duration_since(intended).as_secs_f64() * 1e6);
        let mut call = done.call.clone();
        call.experiment = place.experiment.to_owned();
        call.cell = place.cell;
        call.target = place.target;
        call.n = *n;
        call.intended_at = since(hand.origin, intended);
        call.begun_at = since(hand.origin, done.begun);
        call.ended_at = since(hand.origin, done.ended);
        call.credits = (hand.credits)(&call.method);
        hand.records.write(&Record::Call(call))
    }

    /// What the first connection carried, and whether it still does.
    fn follow_first(&mut self, done: &Done) {
        let failed = done.call.error.is_some();
        match (&mut self.first, done.call.connection) {
            (none @ None, Some(connection)) => {
                *none = Some((connection, done.ended));
                self.outcome.on_first += 1;
                self.outcome.first_ended |= failed;
            }
            (Some((first, last)), Some(connection)) if *first == connection => {
                self.outcome.on_first += 1;
                self.outcome.first_ended |= failed;
                if !failed {
                    *last = done.ended;
                }
            }
            (Some(_), _) | (None, None) => self.outcome.first_ended = true,
        }
    }
}

pub(super) fn since(origin: Instant, at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(origin).as_micros()).unwrap_or(u64::MAX)
}

/// What this thread, which does all the sending, has used. `None` where the system does not tell.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
