//! Limits: of a rate (`rate`), and in silence (`throttle`). How they refill: `refill`.
//!
//! `rate`: a cell `{"rate": r}` sends `r` calls a second, open loop. `throttle`: a cell
//! `{"concurrency": c, "connections": k}` keeps `c` calls under way over `k` connections, or over
//! as many as there are calls where `k` is no number.

use std::collections::BTreeMap;

use super::finding::{Finding, RefusalWay, ShapingScope};
use super::sentence::figure;
use super::trial::{PlayedCell, seconds, sent_at, sent_per_second, served, throttled};
use super::{Confidence, DraftVerdict};
use crate::record::CallRecord;
use crate::stat::bucket::{TimedCall, pace};
use crate::stat::median;
use crate::stat::plateau::{Fit, SweepPoint, SweepShape, shape};

/// A rate at which fewer are refused is below the limit.
const REFUSED_MAX: f64 = 0.001;

/// Other failures above this share make a cell say nothing of limits.
const FAILED_MAX: f64 = 0.01;

/// The longest bucket that is common, seconds: it lets a rate above its own pass for a while.
const LONG_WINDOW_S: f64 = 10.0;

/// A pace that is so much of what was meant is the one that was meant.
const KEPT_MIN: f64 = 0.99;

/// Plateaus that differ by less are one.
const SAME: f64 = 0.15;

/// Which calls passed, in the order in which they were sent.
pub(crate) fn order(calls: &[&CallRecord]) -> Vec<TimedCall> {
    let one =
        |call: &&CallRecord| TimedCall { at: seconds(sent_at(call)), passed: !throttled(call) };
    calls.iter().map(one).collect()
}

/// How most of the refused were refused.
pub(super) fn refusal_way(cells: &[&PlayedCell<'_>]) -> RefusalWay {
    let refused = || cells.iter().flat_map(|cell| &cell.calls).filter(|call| throttled(call));
    let by_status = refused().filter(|call| call.status == Some(429)).count();
    if by_status * 2 >= refused().count() { RefusalWay::Status429 } else { RefusalWay::InBody }
}

/// Seconds in which calls of a cell were meant to begin.
fn lasted(cell: &PlayedCell<'_>) -> f64 {
    let first = cell.calls.iter().map(|call| call.intended_at).min().unwrap_or(0);
    let last = cell.calls.iter().map(|call| call.intended_at).max().unwrap_or(0);
    let gaps = cell.calls.len().saturating_sub(1).max(1) as f64;
    seconds(last - first) * (1.0 + 1.0 / gaps)
}

pub(super) fn failed_otherwise(call: &CallRecord) -> bool {
    !served(call) && !throttled(call)
}

pub(super) fn rate(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let offered: Vec<(f64, &PlayedCell<'_>)> =
        cells.iter().filter_map(|cell| Some((cell.number("rate")?, *cell))).collect();
    let (sound, failing): (Vec<_>, Vec<_>) =
        offered.iter().partition(|(_, cell)| cell.share(failed_otherwise) <= FAILED_MAX);
    let limited = |(_, cell): &&(f64, &PlayedCell<'_>)| cell.share(throttled) >= REFUSED_MAX;
    let above: Vec<(f64, &PlayedCell<'_>)> = sound.iter().filter(limited).copied().collect();
    let breaks = above.iter().map(|(rate, _)| *rate).reduce(f64::min);
    let below = |(rate, _): &&(f64, &PlayedCell<'_>)| breaks.is_none_or(|breaks| *rate < breaks);
    let passes = sound.iter().filter(below).map(|(rate, _)| *rate).reduce(f64::max);
    let mut evidence = Vec::new();
    if !failing.is_empty() {
        evidence.push(format!(
            "{} of {} cells failed for other reasons and are left out",
            failing.len(),
            offered.len()
        ));
    }
    let Some(breaks) = breaks else {
        let Some(passes) = passes else {
            return DraftVerdict::cannot_tell("every cell failed for reasons other than a limit");
        };
        return never_refused(passes, &sound, failing.is_empty(), evidence);
    };
    let paces: Vec<f64> = above
        .iter()
        .filter_map(|(_, cell)| pace(&order(&cell.calls)))
        .map(|pace| pace.per_second)
        .collect();
    let Some(per_second) = median(&paces) else {
        return without_pace(breaks, &above);
    };
    match passes {
        Some(rate) => evidence.push(format!("all calls pass at {} calls/s", figure(rate))),
        None => evidence.push("at every rate some calls were refused".to_owned()),
    }
    evidence.push(format!(
        "refused from {} calls/s on; {} calls/s pass while more are sent, in {} cells",
        figure(breaks),
        figure(per_second),
        paces.len()
    ));
    let spread = paces.iter().map(|pace| (pace / per_second - 1.0).abs()).fold(0.0, f64::max);
    // A bucket may let a rate above its own pass for as long as the cell lasts.
    let hidden = |cell: &PlayedCell<'_>| 1.0 + LONG_WINDOW_S / lasted(cell).max(1.0);
    let most = above.iter().map(|(_, cell)| hidden(cell)).fold(1.1, f64::max);
    let bracketed = passes.is_some_and(|passes| passes <= per_second * most);
    let sure = match (paces.len(), spread < 0.1 && bracketed) {
        (2.., true) => Confidence::High,
        (_, true) => Confidence::Medium,
        (_, false) => Confidence::Low,
    };
    let above: Vec<&PlayedCell<'_>> = above.iter().map(|(_, cell)| *cell).collect();
    DraftVerdict::new(Finding::Rate { per_second, way: refusal_way(&above) }, sure, evidence)
}

/// No rate was refused; `passes` is the highest one.
fn never_refused(
    passes: f64,
    sound: &[(f64, &PlayedCell<'_>)],
    all_sound: bool,
    mut evidence: Vec<String>,
) -> DraftVerdict {
    evidence.push(format!("nothing refused at {} rates", sound.len()));
    let top = sound.iter().filter(|(rate, _)| *rate == passes);
    let kept_s = top.clone().map(|(_, cell)| lasted(cell)).fold(0.0, f64::max);
    // What was meant to be sent is told where it was.
    let sent = top.filter_map(|(_, cell)| sent_per_second(cell)).reduce(f64::max);
    let up_to_per_second = sent.filter(|sent| *sent < KEPT_MIN * passes).unwrap_or(passes);
    let hidden = figure(up_to_per_second * kept_s / (kept_s + LONG_WINDOW_S));
    evidence.push(format!(
        "with a bucket of {LONG_WINDOW_S} s the limit could be as low as {hidden} calls/s"
    ));
    let sure = match all_sound && kept_s >= LONG_WINDOW_S {
        true => Confidence::High,
        false => Confidence::Medium,
    };
    DraftVerdict::new(Finding::NoRateLimit { up_to_per_second, kept_s }, sure, evidence)
}

/// Calls were refused at `breaks` calls a second, but no pace can be read from the refusals.
fn without_pace(breaks: f64, above: &[(f64, &PlayedCell<'_>)]) -> DraftVerdict {
    let some = above.iter().any(|(_, cell)| cell.calls.iter().any(|call| served(call)));
    let why = match some {
        true => {
            "calls were refused, but it was not seen twice how they pass again: keep each rate \
             for longer, or try `window`"
        }
        false => "nothing passed",
    };
    DraftVerdict::cannot_tell(format!("at {} calls/s {why}", figure(breaks)))
}

pub(super) fn throttle(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let refused = cells.iter().filter(|cell| cell.share(throttled) >= REFUSED_MAX).count();
    if refused > 0 {
        let cells = cells.len();
        return DraftVerdict::cannot_tell(format!(
            "calls were refused in {refused} of {cells} cells: an announced limit, not a silent one"
        ));
    }
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
    evidence.push(format!("a call takes {} ms at low load", figure(w0 * 1_000.0)));
    let finding = Finding::Shaped { calls_per_second, scope, knee: calls_per_second * w0 };
    let sure = if certain { Confidence::High } else { Confidence::Medium };
    DraftVerdict::new(finding, sure, evidence)
}

fn without_plateau(
    cells: &[&PlayedCell<'_>],
    shapes: &[(u64, SweepShape)],
    evidence: Vec<String>,
) -> DraftVerdict {
    if shapes.iter().any(|(_, shape)| matches!(shape, SweepShape::Unclear(_))) {
        let found = DraftVerdict::cannot_tell("throughput neither rises nor flattens clearly");
        return DraftVerdict { evidence, ..found };
    }
    let up_to = cells.iter().filter_map(|cell| sustained(cell)).fold(0.0, f64::max);
    DraftVerdict::new(Finding::NotShaped { up_to }, Confidence::High, evidence)
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
    let connections = match connections {
        0 => "a connection for each call".to_owned(),
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    };
    format!("{connections}: {word} {} calls/s, R² {:.2}", figure(fit.x_max), fit.r_squared)
}

/// Whether plateaus stay when there are more connections, or grow with them.
fn scope(plateaus: &[(u64, Fit)], shapes: &[(u64, SweepShape)]) -> (ShapingScope, bool) {
    let (Some((fewest, low)), Some((most, high))) = (plateaus.first(), plateaus.last()) else {
        return (ShapingScope::Open, false);
    };
    if fewest == most {
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
    let ratio = high.x_max / low.x_max;
    let share = *most as f64 / *fewest as f64;
    if (ratio - 1.0).abs() < SAME {
        (ShapingScope::Account, true)
    } else if (ratio / share - 1.0).abs() < SAME {
        (ShapingScope::Connection, true)
    } else {
        (ShapingScope::Open, false)
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
