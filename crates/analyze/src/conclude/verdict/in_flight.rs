//! What is bounded besides a rate (`rate`, `window`, `throttle`, `cost`): calls in flight, and connections.
//!
//! Looked for before anything is called a rate or a window: more calls a second are more calls in flight
//! and more connections, so each of the three bounds refuses calls from some rate on. They differ in which
//! calls these are. A bound on calls in flight refuses a call if and only if that many are in flight when it
//! arrives. A bound on connections refuses what comes over further connections, and never a call on a
//! connection that it has taken. A rate looks at neither.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::FindingBound::Found;
use super::finding::{Finding, RefusalWay, RefusedRate, TokenLimit};
use super::limits::{refusal_of, ways_of};
use super::sentence::figure;
use super::trial::{PlayedCell, Trial, sent_at, served};
use super::{Confidence, DraftVerdict};
use crate::record::{CallRecord, WireEvent};
use crate::stat::ceiling::{FlightCeiling, HeldCall, ceiling, exceeded, fits, suspected};
use crate::stat::quantile;

/// Experiments whose cells can show it.
const SHOWN_BY: [&str; 4] = ["rate", "window", "throttle", "cost"];

/// Fewer calls refused in one way show no bound.
const REFUSED_MIN: usize = 10;

/// Where nine of ten calls take no more than this many times as long as one of ten, a bucket that fills in
/// just that time would look like a bound on calls in flight.
const EVEN: f64 = 1.1;

/// Where calls near the bound take more than this many times as long as those with few in flight, they wait in a
/// line for a pace, and the bound is the line's: what is limited is the rate.
const WAITING: f64 = 2.0;

/// Providers count over this time or longer: where calls take that long as well, nothing tells a window of
/// it from a bound on calls in flight. Milliseconds.
const WINDOW_MS: f64 = 800.0;

/// Of the calls that are refused, so large a share may come over connections that served others.
const MIXED_MAX: f64 = 0.02;

/// Calls that a connection serves on average at least, where connections are told apart.
const SERVED_EACH_MIN: usize = 3;

/// Failures of the transport that a bound on connections shows as.
const NOT_TAKEN: [&str; 4] = ["connect", "closed", "tls", "truncated"];

/// What is bounded at `trial`, if it is no rate; by its own cells, or by those of another experiment at
/// that target where its own say nothing against it.
pub(super) fn bound(trial: &Trial<'_>, all: &[Trial<'_>]) -> Option<DraftVerdict> {
    if !SHOWN_BY.contains(&trial.experiment) {
        return None;
    }
    let (cells, _) = trial.sound();
    let counted = trial.counted();
    // Late times blur how many were in flight: what shows all the same may be there.
    let is_whole = counted.len() == cells.len();
    let blurred = || {
        let found = shown(&counted).filter(|_| !is_whole)?;
        Some(DraftVerdict { confidence: found.confidence.min(Confidence::Low), ..found })
    };
    let shown_here = shown(&cells).filter(|found| is_whole || is_borne_out(found, &counted));
    let at_target = || all.iter().filter(|other| other.target == trial.target);
    let why_not = |found: &DraftVerdict| disproof(&found.finding, &counted, at_target());
    if let Some(found) = shown_here.or_else(blurred) {
        return Some(match why_not(&found) {
            Some(why) => found.disproved(why),
            None => found,
        });
    }
    let others = at_target().filter(|other| {
        other.experiment != trial.experiment && SHOWN_BY.contains(&other.experiment)
    });
    let mut told = others.filter_map(|other| Some((other.experiment, shown(&other.sound().0)?)));
    told.find_map(|(experiment, found)| {
        taken_from(&counted, experiment, found).filter(|found| why_not(found).is_none())
    })
}

/// Why a bound that `cells` show is none: in another cell more was in flight, or open, and all calls were served.
/// A cell in which a call failed says nothing, and neither does one whose times are doubted: answers that are
/// read late seem to be in flight for longer.
fn disproof<'a, 'r: 'a>(
    bound: &Finding,
    cells: &[&PlayedCell<'_>],
    at_target: impl Iterator<Item = &'a Trial<'r>>,
) -> Option<String> {
    let is_served = |cell: &PlayedCell<'_>| cell.calls.iter().all(|call| served(call));
    let played = at_target.flat_map(|trial| trial.sound().0);
    let passed: Vec<&PlayedCell<'_>> = played.filter(|cell| is_served(cell)).collect();
    let of = |cell: usize| passed[cell].cell.experiment.as_str();
    match *bound {
        Finding::InFlight { calls, way } => {
            let others: Vec<Vec<HeldCall>> =
                passed.iter().map(|cell| held_at_least(cell)).collect();
            let most = exceeded(&held(cells, way), calls, &others)?;
            Some(format!(
                "calls were throttled with {} others in flight, but in `{}` calls were served with {} in flight: \
                 the limit is not on concurrency alone",
                figure(calls as f64),
                of(most.cell),
                figure(most.calls as f64)
            ))
        }
        Finding::ConnectionCap { connections, .. } => {
            let open = passed.iter().map(|cell| open_at_least(cell) as u64).enumerate();
            let (cell, most) = open.max_by_key(|(_, open)| *open)?;
            (most > connections).then(|| {
                format!(
                    "connections were rejected while {} were open, but in `{}` calls were served over {} at once: \
                     the limit is not on connections alone",
                    figure(connections as f64),
                    of(cell),
                    figure(most as f64)
                )
            })
        }
        _ => None,
    }
}

/// Takes the confidence from a rate or a window where a bound on calls in flight explains most of the
/// refusals, and badly measured times may be why not all.
pub(super) fn doubt(cells: &[&PlayedCell<'_>], found: &mut DraftVerdict) {
    let (Finding::Rate(Found(RefusedRate { way, .. }))
    | Finding::Bucket(Found(TokenLimit { way, .. }))) = found.finding
    else {
        return;
    };
    let Some(bound) = suspected(&held(cells, way)).filter(|it| it.slows <= WAITING) else { return };
    found.confidence = found.confidence.min(Confidence::Low);
    found.evidence.push(format!(
        "most throttled calls met about {} calls in flight: the limit may be on concurrency, not on the rate",
        figure(bound.calls as f64)
    ));
}

/// What the cells show by themselves.
fn shown(cells: &[&PlayedCell<'_>]) -> Option<DraftVerdict> {
    connections(cells).or_else(|| ways(cells).into_iter().find_map(|way| in_flight(cells, way)))
}

/// Whether a bound on calls in flight that some cells show explains the refusals of all.
fn is_borne_out(found: &DraftVerdict, cells: &[&PlayedCell<'_>]) -> bool {
    match found.finding {
        Finding::InFlight { calls, way } => fits(&held(cells, way), calls),
        _ => true,
    }
}

/// What another experiment showed for sure, where the refusals in `cells` are explained by it.
fn taken_from(
    cells: &[&PlayedCell<'_>],
    experiment: &str,
    found: DraftVerdict,
) -> Option<DraftVerdict> {
    let Finding::InFlight { calls, way } = found.finding else { return None };
    let is_sure = found.confidence >= Confidence::Medium;
    (is_sure && fits(&held(cells, way), calls)).then(|| {
        let evidence = vec![format!(
            "`{experiment}` shows this limit, and it explains all throttled calls here: each met {} calls in flight",
            figure(calls as f64)
        )];
        DraftVerdict::new(found.finding, Confidence::Medium, evidence)
    })
}

/// The ways in which calls are refused often enough, the most frequent first.
fn ways(cells: &[&PlayedCell<'_>]) -> Vec<RefusalWay> {
    let calls = cells.iter().flat_map(|cell| &cell.calls).filter(|call| is_turned_away(call));
    let ways = ways_of(calls.copied()).into_iter();
    ways.filter(|(_, count)| *count >= REFUSED_MIN).map(|(way, _)| way).collect()
}

/// Whether it was not served, and was let go of at once: a call that timed out was in flight until then.
fn is_turned_away(call: &CallRecord) -> bool {
    !served(call) && call.error.as_deref().is_none_or(|error| NOT_TAKEN.contains(&error))
}

/// When it was on its way, its connection being open.
fn left_at(call: &CallRecord) -> u64 {
    let set_up: u64 = [call.dns, call.tcp, call.tls].into_iter().flatten().sum();
    (sent_at(call) + set_up).min(call.ended_at)
}

/// The calls of the cells; refused are those that were turned away in this way.
fn held(cells: &[&PlayedCell<'_>], way: RefusalWay) -> Vec<Vec<HeldCall>> {
    let one = |call: &&CallRecord| HeldCall {
        sent: left_at(call),
        ended: call.ended_at,
        refused: is_turned_away(call) && refusal_of(call) == way,
    };
    cells.iter().map(|cell| cell.calls.iter().map(one).collect()).collect()
}

/// When a call of the cell ended at the earliest: its response may have been read as late as the loop was.
fn seen_early(cell: &PlayedCell<'_>, call: &CallRecord) -> u64 {
    call.ended_at.saturating_sub(cell.cell.load.lag_p99).max(left_at(call))
}

/// The calls of a cell in which all were served, each in flight for no longer than is certain.
fn held_at_least(cell: &PlayedCell<'_>) -> Vec<HeldCall> {
    let one = |call: &&CallRecord| HeldCall {
        sent: left_at(call),
        ended: seen_early(cell, call),
        refused: false,
    };
    cell.calls.iter().map(one).collect()
}

/// Connections of a cell that were open at the same time for certain: from the first call on each to its last answer.
fn open_at_least(cell: &PlayedCell<'_>) -> usize {
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for call in &cell.calls {
        let Some(connection) = call.connection else { continue };
        let from = left_at(call);
        // One that is opened at the moment at which another ends takes its place.
        let to = seen_early(cell, call).saturating_sub(1).max(from);
        let own = open.entry(connection).or_insert((from, to));
        *own = (own.0.min(from), own.1.max(to));
    }
    open_at_once(&open.into_values().collect::<Vec<_>>())
}

fn in_flight(cells: &[&PlayedCell<'_>], way: RefusalWay) -> Option<DraftVerdict> {
    let FlightCeiling { calls, refused, fills, slows } = ceiling(&held(cells, way))?;
    if slows > WAITING {
        return None;
    }
    let took: Vec<f64> = cells
        .iter()
        .flat_map(|cell| cell.calls.iter().filter(|call| served(call)))
        .map(|call| call.ended_at.saturating_sub(left_at(call)) as f64 / 1_000.0)
        .collect();
    let (short, long) = (quantile(&took, 0.1)?, quantile(&took, 0.9)?);
    let mut evidence = vec![
        format!(
            "{refused} calls were throttled, each with {} others in flight; with fewer, calls were served",
            figure(calls as f64)
        ),
        match fills {
            1 => "the limit was reached once, from at most half of it".to_owned(),
            _ => format!("the limit was reached {fills} times, each time from at most half of it"),
        },
    ];
    let even = long <= EVEN * short;
    if even {
        evidence.push(format!(
            "all calls take about {} ms: a token bucket of {} that refills in that time looks the same",
            figure(short),
            figure(calls as f64)
        ));
    }
    let sure = match fills {
        _ if even && long >= WINDOW_MS => Confidence::Low,
        3.. if !even => Confidence::High,
        2.. => Confidence::Medium,
        _ => Confidence::Low,
    };
    Some(DraftVerdict::new(Finding::InFlight { calls, way }, sure, evidence))
}

/// Connections of a cell, by what became of their calls.
#[derive(Default)]
struct SortedConnections {
    /// From when to when those were open that served calls.
    taken: Vec<(u64, u64)>,
    /// When those were opened whose calls were all refused, or those calls were begun.
    turned_away: Vec<u64>,
    served: usize,
}

/// A bound on connections.
fn connections(cells: &[&PlayedCell<'_>]) -> Option<DraftVerdict> {
    let refused = cells.iter().flat_map(|cell| &cell.calls).filter(|call| is_turned_away(call));
    let refused: Vec<&CallRecord> = refused.copied().collect();
    if refused.len() < REFUSED_MIN {
        return None;
    }
    let sorted = cells.iter().map(|cell| sort(cell)).collect::<Option<Vec<_>>>()?;
    let met: Vec<&SortedConnections> =
        sorted.iter().filter(|cell| !cell.turned_away.is_empty()).collect();
    let most = met.iter().map(|cell| open_at_once(&cell.taken)).collect::<BTreeSet<usize>>();
    let (Some(connections), 1) = (most.first().copied(), most.len()) else { return None };
    // Cells in which none is turned away show as well that connections carry many calls.
    let (served, taken) = sorted
        .iter()
        .fold((0, 0), |(served, taken), cell| (served + cell.served, taken + cell.taken.len()));
    // As many must be open whenever one is turned away, and never more.
    let is_full = |cell: &&SortedConnections| {
        let full = cell.turned_away.iter().filter(|at| open_when(&cell.taken, **at) == connections);
        full.count() as f64 >= (1.0 - MIXED_MAX) * cell.turned_away.len() as f64
    };
    let beyond = sorted.iter().any(|cell| open_at_once(&cell.taken) > connections);
    if connections == 0 || beyond || served < SERVED_EACH_MIN * taken || !met.iter().all(is_full) {
        return None;
    }
    let away: usize = met.iter().map(|cell| cell.turned_away.len()).sum();
    let way = ways_of(refused).first()?.0;
    let evidence = vec![
        format!(
            "{} connections served {served} calls; {away} more were rejected while {connections} were open",
            figure(taken as f64)
        ),
        format!("in {} of {} cells", met.len(), cells.len()),
    ];
    let sure = Confidence::by_count(met.len(), 3, 2);
    let finding = Finding::ConnectionCap { connections: connections as u64, way };
    Some(DraftVerdict::new(finding, sure, evidence))
}

/// `None` where a connection served some calls and refused others, or stayed open after a refusal: then it is not
/// connections that are counted.
fn sort(cell: &PlayedCell<'_>) -> Option<SortedConnections> {
    let mut by: BTreeMap<u64, (usize, usize, u64, u64)> = BTreeMap::new();
    let mut sorted = SortedConnections::default();
    for call in &cell.calls {
        let away = is_turned_away(call);
        let Some(connection) = call.connection else {
            if away {
                sorted.turned_away.push(call.ended_at);
            }
            continue;
        };
        let own = by.entry(connection).or_insert((0, 0, left_at(call), call.ended_at));
        own.0 += usize::from(served(call));
        own.1 += usize::from(away);
        (own.2, own.3) = (own.2.min(left_at(call)), own.3.max(call.ended_at));
    }
    let (mut mixed, mut refused) = (0, sorted.turned_away.len());
    for (connection, (passed, away, mut from, mut to)) in by {
        refused += away;
        let mut closed = None;
        for wire in cell.wires.iter().filter(|wire| wire.connection == connection) {
            match wire.event {
                WireEvent::Opened { .. } => from = from.min(wire.at),
                WireEvent::Closed { .. } => closed = Some(wire.at),
                WireEvent::Settings { .. } | WireEvent::Goaway { .. } | WireEvent::Reset { .. } => {
                }
            }
        }
        to = to.max(closed.unwrap_or(cell.cell.ended_at));
        match (passed, away) {
            (0, 0) => {}
            // One that is not wanted is closed; where it carries more, calls are refused on it.
            (0, 1) => sorted.turned_away.push(from),
            (0, _) => mixed += away,
            (_, _) => {
                mixed += away;
                sorted.served += passed;
                sorted.taken.push((from, to));
            }
        }
    }
    (mixed as f64 <= MIXED_MAX * refused as f64).then_some(sorted)
}

fn open_when(taken: &[(u64, u64)], at: u64) -> usize {
    taken.iter().filter(|(from, to)| *from <= at && at <= *to).count()
}

fn open_at_once(taken: &[(u64, u64)]) -> usize {
    taken.iter().map(|(from, _)| open_when(taken, *from)).max().unwrap_or(0)
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
