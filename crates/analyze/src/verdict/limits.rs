//! Limits: of a rate (`rate`), at once (`window`), in silence (`throttle`), by method (`cost`).
//!
//! `rate`: a cell `{"rate": r}` sends `r` calls a second, open loop. `window`: a cell
//! `{"burst": k, "wait_ms": t}` sends `k` calls at once, waits for `t`, and sends `k` again.
//! `throttle`: a cell `{"concurrency": c, "connections": k}` keeps `c` calls under way over `k`
//! connections. `cost`: a cell `{"method": m}` sends calls of one method above their limit.

use std::collections::BTreeMap;

use wellhead_eth::MethodTable;
use wellhead_upstream::{Provider, Tariff};

use super::finding::{Finding, RefusalWay, Scope};
use super::sentence::figure;
use super::trial::{Played, seconds, sent_at, served, throttled};
use super::{Confidence, Found};
use crate::record::{Call, Target};
use crate::stat::bucket::{Inference, Probe, Refill, Served, infer, pace};
use crate::stat::median;
use crate::stat::plateau::{Fit, Point, Shape, shape};

/// A rate at which fewer are refused is below the limit.
const REFUSED_MAX: f64 = 0.001;

/// Other failures above this share make a cell say nothing of limits.
const FAILED_MAX: f64 = 0.01;

/// Plateaus that differ by less are one.
const SAME: f64 = 0.15;

fn order(calls: &[&Call]) -> Vec<Served> {
    let one = |call: &&Call| Served { at: seconds(sent_at(call)), passed: !throttled(call) };
    calls.iter().map(one).collect()
}

/// How most of the refused were refused.
fn refusal_way(cells: &[&Played<'_>]) -> RefusalWay {
    let refused = || cells.iter().flat_map(|cell| &cell.calls).filter(|call| throttled(call));
    let by_status = refused().filter(|call| call.status == Some(429)).count();
    if by_status * 2 >= refused().count() { RefusalWay::Status429 } else { RefusalWay::InBody }
}

fn failed_otherwise(call: &Call) -> bool {
    !served(call) && !throttled(call)
}

pub(super) fn rate(cells: &[&Played<'_>]) -> Found {
    let offered: Vec<(f64, &Played<'_>)> =
        cells.iter().filter_map(|cell| Some((cell.number("rate")?, *cell))).collect();
    let (sound, failing): (Vec<_>, Vec<_>) =
        offered.iter().partition(|(_, cell)| cell.share(failed_otherwise) <= FAILED_MAX);
    let limited = |(_, cell): &&(f64, &Played<'_>)| cell.share(throttled) >= REFUSED_MAX;
    let above: Vec<(f64, &Played<'_>)> = sound.iter().filter(limited).copied().collect();
    let breaks = above.iter().map(|(rate, _)| *rate).reduce(f64::min);
    let below = |(rate, _): &&(f64, &Played<'_>)| breaks.is_none_or(|breaks| *rate < breaks);
    let passes = sound.iter().filter(below).map(|(rate, _)| *rate).reduce(f64::max);
    let mut evidence = Vec::new();
    if !failing.is_empty() {
        evidence.push(format!(
            "{} of {} cells failed for other reasons and are left out",
            failing.len(),
            offered.len()
        ));
    }
    let (Some(breaks), passes) = (breaks, passes) else {
        let Some(up_to_per_second) = passes else {
            return Found::cannot_tell("every cell failed for other reasons than a limit");
        };
        evidence.push(format!("nothing refused at {} rates", sound.len()));
        let sure = if failing.is_empty() { Confidence::High } else { Confidence::Medium };
        return Found::new(Finding::NoRateLimit { up_to_per_second }, sure, evidence);
    };
    let paces: Vec<f64> = above
        .iter()
        .filter_map(|(_, cell)| pace(&order(&cell.calls)))
        .map(|pace| pace.per_second)
        .collect();
    let Some(per_second) = median(&paces) else {
        return Found::cannot_tell(format!("at {} calls/s nothing passed", figure(breaks)));
    };
    match passes {
        Some(rate) => evidence.push(format!("all pass at {} calls/s", figure(rate))),
        None => evidence.push("at no rate did all pass".to_owned()),
    }
    evidence.push(format!(
        "refused from {} calls/s on; {} calls/s pass while more are sent, in {} cells",
        figure(breaks),
        figure(per_second),
        paces.len()
    ));
    let spread = paces.iter().map(|pace| (pace / per_second - 1.0).abs()).fold(0.0, f64::max);
    let bracketed = passes.is_some_and(|passes| passes <= per_second * 1.1);
    let sure = match (paces.len(), spread < 0.1 && bracketed) {
        (2.., true) => Confidence::High,
        (_, true) => Confidence::Medium,
        (_, false) => Confidence::Low,
    };
    let above: Vec<&Played<'_>> = above.iter().map(|(_, cell)| *cell).collect();
    Found::new(Finding::Rate { per_second, way: refusal_way(&above) }, sure, evidence)
}

pub(super) fn window(cells: &[&Played<'_>]) -> Found {
    let probes: Vec<Probe> = cells.iter().filter_map(|cell| probe(cell)).collect();
    let largest = cells.iter().filter_map(|cell| cell.count("burst")).max();
    match infer(&probes) {
        Inference::Found(bucket) => {
            let how = match bucket.refill {
                Refill::Steady => "bit by bit",
                Refill::Reset => "all at once",
            };
            let evidence = vec![
                format!("size from {} bursts that were refused in part", bucket.bursts),
                format!(
                    "{} calls/s come back, {how}; {} pauses show it",
                    figure(bucket.refill_per_second),
                    bucket.pauses
                ),
            ];
            let sure = match (bucket.bursts, bucket.pauses, bucket.refill) {
                (4.., 3.., Refill::Steady) => Confidence::High,
                (4.., _, Refill::Reset) | (2.., 2.., Refill::Steady) => Confidence::Medium,
                (_, _, Refill::Steady | Refill::Reset) => Confidence::Low,
            };
            let finding = Finding::Bucket {
                size: bucket.size.round() as u64,
                refill_per_second: bucket.refill_per_second,
                window_s: bucket.window,
                refill: bucket.refill,
            };
            Found::new(finding, sure, evidence)
        }
        Inference::SizeOnly { size } => Found::cannot_tell(format!(
            "about {} calls pass at once, but no pause shows how they come back",
            figure(size)
        )),
        Inference::Unlimited { up_to } => {
            let up_to = largest.unwrap_or(up_to as u64).min(up_to as u64);
            let evidence = vec![format!("{} pairs of bursts, nothing refused", probes.len())];
            Found::new(Finding::NoBucket { up_to }, Confidence::High, evidence)
        }
        Inference::Nothing => Found::cannot_tell("no cell holds two bursts"),
    }
}

/// The two bursts of a cell: they part where the calls are farthest apart.
fn probe(cell: &Played<'_>) -> Option<Probe> {
    let calls = order(&cell.calls);
    let burst = usize::try_from(cell.count("burst")?).ok()?;
    // The pause is known to lie after the first burst; where all were sent, there exactly.
    let gap = |at: &usize| calls[*at].at - calls[*at - 1].at;
    let widest = (1..calls.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let at = if calls.len() == 2 * burst { burst } else { widest };
    let (first, second) = calls.split_at(at);
    Some(Probe { first: first.to_vec(), second: second.to_vec() })
}

pub(super) fn throttle(cells: &[&Played<'_>]) -> Found {
    let refused = cells.iter().filter(|cell| cell.share(throttled) >= REFUSED_MAX).count();
    if refused > 0 {
        let cells = cells.len();
        return Found::cannot_tell(format!(
            "calls were refused in {refused} of {cells} cells: a limit that is told, not silent"
        ));
    }
    let mut sweeps: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    let mut failed = 0;
    for cell in cells {
        let Some(point) = point(cell) else {
            failed += 1;
            continue;
        };
        sweeps.entry(cell.count("connections").unwrap_or(1)).or_default().push(point);
    }
    if failed * 4 > cells.len() {
        let cells = cells.len();
        return Found::cannot_tell(format!("calls failed in {failed} of {cells} cells"));
    }
    let shapes: Vec<(u64, Shape)> = sweeps
        .iter()
        .filter_map(|(connections, points)| Some((*connections, shape(points)?)))
        .collect();
    let mut evidence: Vec<String> =
        shapes.iter().map(|(connections, shape)| told(*connections, *shape)).collect();
    let plateaus: Vec<(u64, Fit)> = shapes
        .iter()
        .filter_map(|(connections, shape)| match shape {
            Shape::Plateau(fit) => Some((*connections, *fit)),
            Shape::Rising(_) | Shape::Unclear(_) => None,
        })
        .collect();
    if shapes.is_empty() {
        return Found::cannot_tell("fewer than three levels of concurrency were played");
    }
    if plateaus.is_empty() {
        if shapes.iter().any(|(_, shape)| matches!(shape, Shape::Unclear(_))) {
            let mut found = Found::cannot_tell("throughput neither rises nor flattens clearly");
            found.evidence = evidence;
            return found;
        }
        let up_to = cells.iter().filter_map(|cell| cell.throughput()).fold(0.0, f64::max);
        return Found::new(Finding::NotShaped { up_to }, Confidence::High, evidence);
    }
    let (scope, certain) = scope(&plateaus, &shapes);
    let of = |figure: fn(&(u64, Fit)) -> f64| {
        median(&plateaus.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let calls_per_second = match scope {
        Scope::Account | Scope::Open => of(|(_, fit)| fit.x_max),
        Scope::Connection => of(|(connections, fit)| fit.x_max / *connections as f64),
    };
    let w0 = of(|(_, fit)| fit.w0);
    evidence.push(format!("a call takes {} ms when little is sent", figure(w0 * 1_000.0)));
    let finding = Finding::Shaped { calls_per_second, scope, knee: calls_per_second * w0 };
    let sure = if certain { Confidence::High } else { Confidence::Medium };
    Found::new(finding, sure, evidence)
}

/// `None` where calls failed: that is no silent limit.
fn point(cell: &Played<'_>) -> Option<Point> {
    if cell.share(failed_otherwise) > FAILED_MAX {
        return None;
    }
    Some(Point {
        concurrency: cell.number("concurrency")?,
        throughput: cell.throughput()?,
        latency: cell.took(0.5)? / 1_000.0,
    })
}

fn told(connections: u64, shape: Shape) -> String {
    let (word, fit) = match shape {
        Shape::Plateau(fit) => ("flat at", fit),
        Shape::Rising(fit) => ("still rising at", fit),
        Shape::Unclear(fit) => ("unclear, about", fit),
    };
    format!(
        "{connections} connections: {word} {} calls/s, R² {:.2}",
        figure(fit.x_max),
        fit.r_squared
    )
}

/// Whether plateaus stay when there are more connections, or grow with them.
fn scope(plateaus: &[(u64, Fit)], shapes: &[(u64, Shape)]) -> (Scope, bool) {
    let (Some((fewest, low)), Some((most, high))) = (plateaus.first(), plateaus.last()) else {
        return (Scope::Open, false);
    };
    if fewest == most {
        // It may have risen where there were more connections, because each has its own share.
        let rises = shapes
            .iter()
            .any(|(connections, shape)| connections > most && matches!(shape, Shape::Rising(_)));
        return if rises { (Scope::Connection, false) } else { (Scope::Open, shapes.len() == 1) };
    }
    let ratio = high.x_max / low.x_max;
    let share = *most as f64 / *fewest as f64;
    if (ratio - 1.0).abs() < SAME {
        (Scope::Account, true)
    } else if (ratio / share - 1.0).abs() < SAME {
        (Scope::Connection, true)
    } else {
        (Scope::Open, false)
    }
}

pub(super) fn cost(cells: &[&Played<'_>], target: Option<&Target>) -> Vec<Found> {
    let mut paces: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut unlimited = Vec::new();
    for cell in cells {
        let Some(method) = cell.factor("method") else { continue };
        match pace(&order(&cell.calls)) {
            Some(pace) => paces.entry(method).or_default().push(pace.per_second),
            None => unlimited.push(method),
        }
    }
    let passes = |paces: &Vec<f64>| median(paces).unwrap_or(0.0);
    // What passes most often is cheapest: the others are multiples of it.
    let base = paces.iter().max_by(|a, b| passes(a.1).total_cmp(&passes(b.1)));
    let Some((base, most)) = base.map(|(method, rates)| (*method, passes(rates))) else {
        return vec![Found::cannot_tell("no call was refused, so nothing shows what counts")];
    };
    let mut found = Vec::new();
    for (method, rates) in paces.iter().filter(|(method, _)| **method != base) {
        let observed_ratio = most / passes(rates);
        let catalogue_ratio = catalogue_ratio(target, method, base);
        let evidence = vec![
            format!("{base}: {} calls/s pass", figure(most)),
            format!("{method}: {} calls/s pass, in {} cells", figure(passes(rates)), rates.len()),
        ];
        let sure = if rates.len() >= 2 { Confidence::High } else { Confidence::Medium };
        let (method, base) = ((*method).to_owned(), base.to_owned());
        let finding = Finding::Cost { method, base, observed_ratio, catalogue_ratio };
        found.push(Found::new(finding, sure, evidence));
    }
    if found.is_empty() {
        found.push(Found::cannot_tell(format!("only {base} was refused: nothing to compare with")));
    }
    unlimited.sort_unstable();
    unlimited.dedup();
    unlimited.retain(|method| !paces.contains_key(method));
    if let (Some(first), false) = (found.first_mut(), unlimited.is_empty()) {
        first.evidence.push(format!("never refused: {}", unlimited.join(", ")));
    }
    found
}

/// What `method` counts against the rate, as a multiple of `base`.
fn catalogue_ratio(target: Option<&Target>, method: &str, base: &str) -> Option<f64> {
    let provider = Provider::named(target?.provider.as_deref()?)?;
    let tariff = Tariff::of(provider);
    let credits = |method: &str| f64::from(tariff.throughput(MethodTable::standard().row(method)));
    let base = credits(base);
    (base > 0.0).then(|| credits(method) / base)
}

/// The nearest `min(c / W0, Xmax)`, or `c / W0` where throughput rises to the end; for charts.
pub(crate) fn fit_of(cells: &[&Played<'_>]) -> Option<Fit> {
    let points: Vec<Point> = cells.iter().filter_map(|cell| point(cell)).collect();
    let (Shape::Plateau(fit) | Shape::Rising(fit) | Shape::Unclear(fit)) = shape(&points)?;
    Some(fit)
}
