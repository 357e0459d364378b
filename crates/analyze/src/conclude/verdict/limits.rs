//! Limits: of a rate (`rate`), and in silence (`throttle`). How they refill: `refill`.
//!
//! `rate`: a cell `{"rate": r}` sends `r` calls a second, open loop. What is served against what is offered decides: a
//! limit may refuse, let calls fail, or let them wait. `throttle`: a cell
//! `{"concurrency": c, "connections": k}` keeps `c` calls under way over `k` connections, or over
//! as many as there are calls where `k` is no number.

use std::collections::BTreeMap;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{
    Finding, NoRateLimit, NotShaped, RefusalWay, RefusedRate, Shaped, ShapingScope,
};
use super::load::level_of;
use super::sentence::figure;
use super::trial::{PlayedCell, seconds, sent_at, sent_per_second, served, throttled};
use super::{Confidence, DraftVerdict};
use crate::record::CallRecord;
use crate::stat::bucket::{TimedCall, pace};
use crate::stat::median;
use crate::stat::plateau::{Fit, SweepPoint, SweepShape, shape};

/// A rate at which fewer are refused is below the limit.
const REFUSED_MAX: f64 = 0.001;

/// The rate causes failures that are no refusals if their share is above [`FAILED_MAX`] plus [`FAILED_TIMES`] times
/// their share at the lowest rate.
const FAILED_MAX: f64 = 0.01;
const FAILED_TIMES: f64 = 3.0;

/// Where a larger share of the served calls is late, calls wait.
const LATE_MAX: f64 = 0.1;

/// So large a share of calls without an answer is a limit's, where others take no more than this many times what
/// the quickest takes.
const HANGING_MIN: f64 = 0.05;
const HANGING_TIMES: f64 = 5.0;

/// A call that waited for longer here left later than it was meant to, microseconds.
const QUEUE_MAX_US: u64 = 100_000;

/// Where more fail at the lowest rate nothing can be said of limits.
const FAILED_AT_ALL_MAX: f64 = 0.1;

/// The longest bucket that is common, seconds: it lets a rate above its own pass for a while.
const LONG_WINDOW_S: f64 = 10.0;

/// A pace that is so much of what was meant is the one that was meant.
const KEPT_MIN: f64 = 0.99;

/// Plateaus that differ by less are one.
const SAME: f64 = 0.15;

/// Which calls passed, in the order in which they were sent.
pub(crate) fn order(calls: &[&CallRecord]) -> Vec<TimedCall> {
    order_by(calls, throttled)
}

/// Likewise, where `refused` tells which did not.
pub(super) fn order_by(calls: &[&CallRecord], refused: fn(&CallRecord) -> bool) -> Vec<TimedCall> {
    let one = |call: &&CallRecord| TimedCall { at: seconds(sent_at(call)), passed: !refused(call) };
    calls.iter().map(one).collect()
}

/// How most of the calls that were not served were refused.
pub(super) fn refusal_way(cells: &[&PlayedCell<'_>]) -> RefusalWay {
    let refused = cells.iter().flat_map(|cell| &cell.calls).filter(|call| !served(call));
    ways_of(refused.copied()).first().map_or(RefusalWay::Status429, |(way, _)| *way)
}

/// How `calls` were refused, and how many of them, the most frequent way first.
pub(super) fn ways_of<'a>(
    calls: impl IntoIterator<Item = &'a CallRecord>,
) -> Vec<(RefusalWay, usize)> {
    let mut ways = counts_of(calls.into_iter().map(refusal_of));
    ways.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ways
}

/// How many there are of each.
pub(super) fn counts_of<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts: Vec<(T, usize)> = Vec::new();
    for one in all {
        match counts.iter_mut().find(|(known, _)| *known == one) {
            Some((_, count)) => *count += 1,
            None => counts.push((one, 1)),
        }
    }
    counts
}

/// How a call that was not served was refused.
pub(super) fn refusal_of(call: &CallRecord) -> RefusalWay {
    match call.status.filter(|_| call.error.is_none()) {
        Some(429) => RefusalWay::Status429,
        Some(200) => RefusalWay::InBody,
        Some(status) => RefusalWay::OtherStatus(status),
        None => RefusalWay::Unanswered,
    }
}

/// Seconds in which calls of a cell were meant to begin.
pub(super) fn lasted(cell: &PlayedCell<'_>) -> f64 {
    let first = cell.calls.iter().map(|call| call.intended_at).min().unwrap_or(0);
    let last = cell.calls.iter().map(|call| call.intended_at).max().unwrap_or(0);
    let gaps = cell.calls.len().saturating_sub(1).max(1) as f64;
    seconds(last - first) * (1.0 + 1.0 / gaps)
}

pub(super) fn failed_otherwise(call: &CallRecord) -> bool {
    !served(call) && !throttled(call)
}

/// What became of one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateFate {
    /// All calls are served in time, but for those that fail at any rate.
    Passes,
    /// Calls are told that there is a limit.
    Refused,
    /// More fail than at the lowest rate.
    Fails,
    /// Calls wait for longer and longer.
    Queued,
    /// Nothing was refused and nothing failed; calls waited, and whether for the provider or for us is not known.
    Untimed,
}

/// A rate that was tried.
#[derive(Debug, Clone, Copy)]
struct TriedRate<'a, 'r> {
    rate: f64,
    cell: &'a PlayedCell<'r>,
    fate: RateFate,
}

impl<'a, 'r> TriedRate<'a, 'r> {
    fn new(rate: f64, cell: &'a PlayedCell<'r>, usual_failures: f64) -> Self {
        let failed = cell.share(failed_otherwise);
        let queues = || {
            let level = level_of(cell);
            level.is_some_and(|level| level.queues()) || late_share(cell) >= LATE_MAX
        };
        let fate = if cell.share(throttled) >= REFUSED_MAX {
            RateFate::Refused
        } else if hangs(cell, usual_failures) {
            RateFate::Fails
        } else if cell.is_timed() && queues() {
            // Looked at before failures: calls that wait for too long time out.
            RateFate::Queued
        } else if failed > FAILED_MAX + FAILED_TIMES * usual_failures {
            RateFate::Fails
        } else if cell.is_timed() || !queues() {
            // What we were late by makes no call early: where none waits in spite of it, none does.
            RateFate::Passes
        } else {
            RateFate::Untimed
        };
        Self { rate, cell, fate }
    }

    fn is_limited(&self) -> bool {
        match self.fate {
            RateFate::Passes | RateFate::Untimed => false,
            RateFate::Refused | RateFate::Fails | RateFate::Queued => true,
        }
    }

    /// Calls a second that pass while more are sent.
    fn pace(&self) -> Option<f64> {
        match self.fate {
            RateFate::Passes | RateFate::Untimed => None,
            RateFate::Queued => served_pace(self.cell),
            // What failed otherwise did not pass either.
            RateFate::Refused | RateFate::Fails => {
                // Calls that are not answered keep our places: what waits for one says nothing of the rate.
                let prompt =
                    self.cell.calls.iter().filter(|call| call.queue.unwrap_or(0) <= QUEUE_MAX_US);
                let calls: Vec<&CallRecord> = prompt.copied().collect();
                Some(pace(&order_by(&calls, |call| !served(call)))?.per_second)
            }
        }
    }
}

/// Whether a part of the calls is never answered, while the others are as quick as ever: no call waits for its turn
/// there.
fn hangs(cell: &PlayedCell<'_>, usual_failures: f64) -> bool {
    let unanswered = cell.share(|call| refusal_of(call) == RefusalWay::Unanswered && !served(call));
    let wire = |call: &&&CallRecord| seconds(call.ended_at.saturating_sub(sent_at(call)));
    let times: Vec<f64> =
        cell.calls.iter().filter(|call| served(call)).map(|it| wire(&it)).collect();
    let quickest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let is_quick = median(&times).is_some_and(|middle| middle <= HANGING_TIMES * quickest);
    unanswered >= HANGING_MIN + FAILED_TIMES * usual_failures && is_quick
}

/// The share of served calls that took ten times as long as the quickest of them, and a second.
fn late_share(cell: &PlayedCell<'_>) -> f64 {
    let times = cell.times();
    let Some(quickest) = times.first() else { return 0.0 };
    let late = times.iter().filter(|took| **took > (10.0 * quickest).max(1_000.0)).count();
    late as f64 / times.len() as f64
}

/// Answers a second, from the first to the last: what is served where calls always wait.
fn served_pace(cell: &PlayedCell<'_>) -> Option<f64> {
    let ends = || cell.calls.iter().filter(|call| served(call)).map(|call| call.ended_at);
    let (first, last, count) = (ends().min()?, ends().max()?, ends().count());
    (last > first).then(|| (count - 1) as f64 / seconds(last - first))
}

/// The rates in their order, each with what became of it.
fn tried<'a, 'r>(cells: &[&'a PlayedCell<'r>]) -> (Vec<TriedRate<'a, 'r>>, f64) {
    let mut rates: Vec<(f64, &PlayedCell<'_>)> =
        cells.iter().filter_map(|cell| Some((cell.number("rate")?, *cell))).collect();
    rates.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    // What fails at the lowest rate fails at any.
    let usual = rates.first().map_or(0.0, |(_, cell)| cell.share(failed_otherwise));
    let tried = rates.into_iter().map(|(rate, cell)| TriedRate::new(rate, cell, usual));
    (without_leftovers(&tried.collect::<Vec<_>>()), usual)
}

/// Without cells of a rate that passed when it was played again: what refused them was left behind by what had been
/// played before.
fn without_leftovers<'a, 'r>(tried: &[TriedRate<'a, 'r>]) -> Vec<TriedRate<'a, 'r>> {
    let is_left = |it: &TriedRate<'_, '_>| {
        it.is_limited()
            && tried.iter().any(|other| {
                other.fate == RateFate::Passes
                    && other.rate == it.rate
                    && other.cell.cell.begun_at > it.cell.cell.begun_at
            })
    };
    tried.iter().filter(|it| !is_left(it)).copied().collect()
}

/// `None` where the times of no cell are known, and nothing was refused.
pub(super) fn rate(cells: &[&PlayedCell<'_>]) -> Option<DraftVerdict> {
    let (tried, usual_failures) = tried(cells);
    if usual_failures > FAILED_AT_ALL_MAX {
        return Some(DraftVerdict::cannot_tell(
            "calls fail at the lowest rate, for reasons other than a limit",
        ));
    }
    let mut evidence = Vec::new();
    if usual_failures > 0.0 {
        let percent = figure(usual_failures * 100.0);
        evidence.push(format!(
            "{percent} % of calls fail even at the lowest rate, for reasons other than a limit"
        ));
    }
    let breaks = tried.iter().find(|tried| tried.is_limited()).map(|tried| tried.rate);
    let Some(breaks) = breaks else {
        let timed: Vec<TriedRate<'_, '_>> =
            tried.iter().filter(|tried| tried.fate == RateFate::Passes).copied().collect();
        let passes = timed.last().map(|tried| tried.rate);
        return match (passes, tried.is_empty()) {
            (Some(passes), _) => Some(never_refused(passes, &timed, evidence)),
            (None, true) => Some(DraftVerdict::cannot_tell("no cell was completed")),
            (None, false) => None,
        };
    };
    let passes = tried.iter().rfind(|tried| tried.rate < breaks).map(|tried| tried.rate);
    let above: Vec<TriedRate<'_, '_>> =
        tried.iter().filter(|tried| tried.is_limited()).copied().collect();
    let mut found = limited(&above, breaks, passes, evidence);
    let beyond = tried.iter().rfind(|tried| tried.fate == RateFate::Passes && tried.rate > breaks);
    if let Some(beyond) = beyond {
        found.confidence = found.confidence.min(Confidence::Low);
        let passed = figure(beyond.rate);
        found.evidence.push(format!("but all calls were served at {passed} calls/s"));
    }
    Some(found)
}

/// Calls did not all pass at the rates `above`, from `breaks` on; `passes` is the highest rate below at which they did.
fn limited(
    above: &[TriedRate<'_, '_>],
    breaks: f64,
    passes: Option<f64>,
    mut evidence: Vec<String>,
) -> DraftVerdict {
    let of = |fate: RateFate| above.iter().filter(|tried| tried.fate == fate).count();
    // Failures that are told to be no limit are one where they come with the rate, and seen twice.
    let told = of(RateFate::Refused) + of(RateFate::Queued) > 0;
    if !told && of(RateFate::Fails) < 2 {
        return DraftVerdict::cannot_tell(format!(
            "calls failed at {} calls/s for reasons other than a limit, and no higher rate was tried",
            figure(breaks)
        ));
    }
    let paces: Vec<f64> = above.iter().filter_map(TriedRate::pace).collect();
    let Some(per_second) = median(&paces) else {
        let cells: Vec<_> = above.iter().map(|tried| tried.cell).collect();
        return without_pace(breaks, &cells);
    };
    match passes {
        Some(rate) => evidence.push(format!("all calls are served at {} calls/s", figure(rate))),
        None => evidence.push("calls were throttled, failed or queued at every rate".to_owned()),
    }
    let way = limit_way(above);
    evidence.push(match way {
        RefusalWay::Queued => waiting(above, per_second),
        _ => format!(
            "limited from {} calls/s on; {} calls/s are served under excess load ({} cells)",
            figure(breaks),
            figure(per_second),
            paces.len()
        ),
    });
    let spread = paces.iter().map(|pace| (pace / per_second - 1.0).abs()).fold(0.0, f64::max);
    // A bucket may let a rate above its own pass for as long as the cell lasts.
    let hidden = |cell: &PlayedCell<'_>| 1.0 + LONG_WINDOW_S / lasted(cell).max(1.0);
    let most = above.iter().map(|tried| hidden(tried.cell)).fold(1.1, f64::max);
    let bracketed = passes.is_some_and(|passes| passes <= per_second * most);
    // Where calls pass otherwise from rate to rate, what was left of the rates before is counted.
    let agree = spread < 0.1 && paces.len() == above.len();
    let sure = match (paces.len(), agree && bracketed) {
        (2.., true) => Confidence::High,
        (_, true) => Confidence::Medium,
        (_, false) => Confidence::Low,
    };
    DraftVerdict::new(Finding::Rate(Found(RefusedRate { per_second, way })), sure, evidence)
}

/// What becomes of calls above the limit.
fn limit_way(above: &[TriedRate<'_, '_>]) -> RefusalWay {
    let refused: Vec<&PlayedCell<'_>> = above
        .iter()
        .filter(|tried| tried.fate != RateFate::Queued)
        .map(|tried| tried.cell)
        .collect();
    if refused.is_empty() { RefusalWay::Queued } else { refusal_way(&refused) }
}

/// How long calls wait where more are sent than are served.
fn waiting(above: &[TriedRate<'_, '_>], per_second: f64) -> String {
    let last = above.last();
    let p99 = last.and_then(|tried| tried.cell.took(0.99)).unwrap_or(0.0);
    let quickest = last.and_then(|tried| tried.cell.took(0.0)).unwrap_or(0.0);
    format!(
        "at {} calls/s offered, {} are served and the others queue: latency {} to {} ms",
        figure(last.map_or(0.0, |tried| tried.rate)),
        figure(per_second),
        figure(quickest),
        figure(p99)
    )
}

/// No rate was refused; `passes` is the highest one.
fn never_refused(
    passes: f64,
    tried: &[TriedRate<'_, '_>],
    mut evidence: Vec<String>,
) -> DraftVerdict {
    evidence.push(format!("nothing throttled at {} rates", tried.len()));
    let top = tried.iter().filter(|tried| tried.rate == passes).map(|tried| tried.cell);
    let kept_s = top.clone().map(lasted).fold(0.0, f64::max);
    // What was meant to be sent is told where it was.
    let sent = top.filter_map(sent_per_second).reduce(f64::max);
    let up_to_per_second = sent.filter(|sent| *sent < KEPT_MIN * passes).unwrap_or(passes);
    let hidden = figure(up_to_per_second * kept_s / (kept_s + LONG_WINDOW_S));
    evidence.push(format!(
        "a token bucket of {LONG_WINDOW_S} s could hide a limit as low as {hidden} calls/s"
    ));
    let sure = if kept_s >= LONG_WINDOW_S { Confidence::High } else { Confidence::Medium };
    let finding = Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second, kept_s }));
    DraftVerdict::new(finding, sure, evidence)
}

/// Calls were refused at `breaks` calls a second, but no pace can be read from the refusals.
fn without_pace(breaks: f64, above: &[&PlayedCell<'_>]) -> DraftVerdict {
    let some = above.iter().any(|cell| cell.calls.iter().any(|call| served(call)));
    let why = match some {
        true => {
            "calls were throttled, but did not recover twice within the cell: hold each rate for \
             longer (`--seconds`), or run `window`"
        }
        false => "no call was served",
    };
    DraftVerdict::cannot_tell(format!("at {} calls/s {why}", figure(breaks)))
}

/// Sound cells that a shape is read from where the times of others are doubted.
const TIMED_MIN: usize = 2;

/// `None` where the times of too few cells are known.
pub(super) fn throttle(cells: &[&PlayedCell<'_>]) -> Option<DraftVerdict> {
    let refused = cells.iter().filter(|cell| cell.share(throttled) >= REFUSED_MAX).count();
    if refused > 0 {
        let cells = cells.len();
        return Some(DraftVerdict::cannot_tell(format!(
            "calls were throttled in {refused} of {cells} cells: an explicit limit, not silent shaping"
        )));
    }
    let timed: Vec<&PlayedCell<'_>> =
        cells.iter().filter(|cell| cell.is_timed()).copied().collect();
    // What we were late by may flatten a rise, and raises nothing.
    let rises =
        Some(shaping(cells)).filter(|it| matches!(it.finding, Finding::Shaping(NotUpTo(_))));
    let is_enough = timed.len() == cells.len() || timed.len() >= TIMED_MIN;
    rises.or_else(|| is_enough.then(|| shaping(&timed)))
}

fn shaping(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let mut sweeps: BTreeMap<u64, Vec<SweepPoint>> = BTreeMap::new();
    let mut failed = 0;
    for cell in cells {
        let Some(point) = point(cell) else {
            failed += 1;
            continue;
        };
        sweeps.entry(cell.count("connections").unwrap_or(0)).or_default().push(point);
    }
    if failed * 4 > cells.len() {
        let cells = cells.len();
        return DraftVerdict::cannot_tell(format!("calls failed in {failed} of {cells} cells"));
    }
    let shapes: Vec<(u64, SweepShape)> = sweeps
        .iter()
        .filter_map(|(connections, points)| Some((*connections, shape(points)?)))
        .collect();
    let mut evidence: Vec<String> =
        shapes.iter().map(|(connections, shape)| told(*connections, *shape)).collect();
    let plateaus: Vec<(u64, Fit)> = shapes
        .iter()
        .filter_map(|(connections, shape)| match shape {
            SweepShape::Plateau(fit) => Some((*connections, *fit)),
            SweepShape::Rising(_) | SweepShape::Unclear(_) => None,
        })
        .collect();
    if shapes.is_empty() {
        return DraftVerdict::cannot_tell("fewer than three levels of concurrency were measured");
    }
    if plateaus.is_empty() {
        return without_plateau(cells, &shapes, evidence);
    }
    let (scope, certain) = scope(&plateaus, &shapes);
    let of = |figure: fn(&(u64, Fit)) -> f64| {
        median(&plateaus.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let calls_per_second = match scope {
        ShapingScope::Account | ShapingScope::Open => of(|(_, fit)| fit.x_max),
        ShapingScope::Connection => of(|(connections, fit)| fit.x_max / *connections as f64),
    };
    let w0 = of(|(_, fit)| fit.w0);
    evidence.push(format!("latency {} ms at low load", figure(w0 * 1_000.0)));
    let finding =
        Finding::Shaping(Found(Shaped { calls_per_second, scope, knee: calls_per_second * w0 }));
    let sure = if certain { Confidence::High } else { Confidence::Medium };
    DraftVerdict::new(finding, sure, evidence)
}

fn without_plateau(
    cells: &[&PlayedCell<'_>],
    shapes: &[(u64, SweepShape)],
    evidence: Vec<String>,
) -> DraftVerdict {
    if shapes.iter().any(|(_, shape)| matches!(shape, SweepShape::Unclear(_))) {
        let found =
            DraftVerdict::cannot_tell("throughput neither clearly rises nor clearly flattens");
        return DraftVerdict { evidence, ..found };
    }
    let up_to = cells.iter().filter_map(|cell| sustained(cell)).fold(0.0, f64::max);
    DraftVerdict::new(Finding::Shaping(NotUpTo(NotShaped { up_to })), Confidence::High, evidence)
}

/// `None` where calls failed: that is no silent limit.
fn point(cell: &PlayedCell<'_>) -> Option<SweepPoint> {
    if cell.share(failed_otherwise) > FAILED_MAX {
        return None;
    }
    Some(SweepPoint {
        concurrency: cell.number("concurrency")?,
        throughput: sustained(cell)?,
        latency: cell.took(0.5)? / 1_000.0,
    })
}

/// Served calls a second of a closed loop: those under way over the mean time of a call (Little's
/// law), and of them the share that was served. Counted are calls that began when as many were under
/// way as should be: what is over at the begin and what runs out at the end adds nothing.
pub(crate) fn sustained(cell: &PlayedCell<'_>) -> Option<f64> {
    let at_once = usize::try_from(cell.count("concurrency")?).ok()?;
    let steady = cell.calls.get(at_once..).filter(|calls| calls.len() >= at_once.max(1));
    let Some(steady) = steady else { return cell.throughput() };
    let took = |call: &&CallRecord| seconds(call.ended_at.saturating_sub(call.begun_at));
    let mean = steady.iter().map(took).sum::<f64>() / steady.len() as f64;
    let share = steady.iter().filter(|call| served(call)).count() as f64 / steady.len() as f64;
    (mean > 0.0).then(|| at_once as f64 / mean * share)
}

fn told(connections: u64, shape: SweepShape) -> String {
    let (word, fit) = match shape {
        SweepShape::Plateau(fit) => ("flat at", fit),
        SweepShape::Rising(fit) => ("still rising at", fit),
        SweepShape::Unclear(fit) => ("unclear, about", fit),
    };
    let over = over(connections);
    format!("{over}: {word} {} calls/s, R² {:.2}", figure(fit.x_max), fit.r_squared)
}

/// Over how many connections calls go.
pub(crate) fn over(connections: u64) -> String {
    match connections {
        0 => "a connection for each call".to_owned(),
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    }
}

/// Whether plateaus stay when there are more connections, or grow with them: by all numbers of these that were played.
fn scope(plateaus: &[(u64, Fit)], shapes: &[(u64, SweepShape)]) -> (ShapingScope, bool) {
    let [(most, _), ..] = plateaus else { return (ShapingScope::Open, false) };
    if plateaus.len() == 1 {
        // It may have risen where there were more connections, because each has its own share.
        let rises = shapes.iter().any(|(connections, shape)| {
            connections > most && matches!(shape, SweepShape::Rising(_))
        });
        return if rises {
            (ShapingScope::Connection, false)
        } else {
            (ShapingScope::Open, shapes.len() == 1)
        };
    }
    let is_same = |of: &dyn Fn(&(u64, Fit)) -> f64| {
        let values = || plateaus.iter().map(of);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        high < (1.0 + SAME) * low
    };
    let by_account = is_same(&|(_, fit)| fit.x_max);
    let by_connection = is_same(&|(connections, fit)| fit.x_max / *connections as f64);
    // What all share holds back those as well that have no plateau.
    let shared = plateaus.iter().map(|(_, fit)| fit.x_max).fold(0.0, f64::max);
    let is_exceeded = shapes.iter().any(
        |(_, shape)| matches!(shape, SweepShape::Rising(fit) if fit.x_max > (1.0 + SAME) * shared),
    );
    match (by_account && !is_exceeded, by_connection) {
        (true, false) => (ShapingScope::Account, true),
        (false, true) => (ShapingScope::Connection, true),
        (true, true) | (false, false) => (ShapingScope::Open, false),
    }
}

/// The nearest `min(c / W0, Xmax)`, or `c / W0` where throughput rises to the end; for charts.
pub(crate) fn fit_of(cells: &[&PlayedCell<'_>]) -> Option<Fit> {
    if cells.iter().any(|cell| cell.share(throttled) >= REFUSED_MAX) {
        return None;
    }
    let points: Vec<SweepPoint> = cells.iter().filter_map(|cell| point(cell)).collect();
    let (SweepShape::Plateau(fit) | SweepShape::Rising(fit) | SweepShape::Unclear(fit)) =
        shape(&points)?;
    Some(fit)
}
