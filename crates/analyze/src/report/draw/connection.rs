//! What one connection bears, and how bodies flow over it.

use std::collections::BTreeMap;

use super::super::chart::{Axis, Chart, ChartMark, Ink, Plot, Series, Stack, Style, rounded};
use super::{cdf, figure_of, marks_of, means, ms, phases};
use crate::conclude::verdict::{ExperimentVerdict, figure, see};
use crate::record::{CallRecord, PlayedCell};

pub(super) fn connection(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Vec<Chart> {
    requests(cells, verdicts).into_iter().chain(silence(cells, verdicts)).collect()
}

/// Requests that each connection bore.
fn requests(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Option<Chart> {
    let tried = cells.iter().filter(|cell| cell.count("requests").is_some());
    let bar = |(n, cell): (usize, &&PlayedCell<'_>)| {
        let borne = match see::first_end(cell) {
            Some(end) => vec![end.borne as f64, 0.0],
            None => vec![0.0, cell.calls.len() as f64],
        };
        (format!("connection {}", n + 1), borne)
    };
    let bars: Vec<(String, Vec<f64>)> = tried.enumerate().map(bar).collect();
    (!bars.is_empty()).then(|| {
        Chart::Stack(Stack {
            title: "requests served by a connection".to_owned(),
            x: Axis::new("requests"),
            unit: "requests",
            parts: vec!["connection closed".to_owned(), "connection still open".to_owned()],
            bars,
            marks: marks_of(verdicts, &[("requests", "ends after")]),
        })
    })
}

/// Connections that were gone after a silence.
fn silence(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Option<Chart> {
    let mut reused: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        let Some(idle) = cell.count("idle_ms") else { continue };
        let first = cell.calls.first().and_then(|call| call.connection);
        let last = cell.calls.last().and_then(|call| call.connection);
        let open = first == last && cell.calls.iter().all(|call| call.error.is_none());
        reused.entry(idle).or_default().push(if open { 0.0 } else { 100.0 });
    }
    if reused.is_empty() {
        return None;
    }
    let closes = figure_of(verdicts, "idle").into_iter();
    let mark =
        |ms: f64| ChartMark::x(ms / 1_000.0, format!("closed after {} s", figure(ms / 1_000.0)));
    Some(Chart::Plot(Plot {
        title: "connections found closed on reuse".to_owned(),
        x: Axis::log("idle for, s"),
        y: Axis::percent("closed, %"),
        xs: reused.keys().map(|idle| ms(*idle)).collect(),
        series: vec![Series::new("found closed", Style::Line, Ink::Bad, means(&reused))],
        marks: closes.map(mark).collect(),
    }))
}

pub(super) fn bodies(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Vec<Chart> {
    let kind = |cell: &&&PlayedCell<'_>| (cell.count("large").unwrap_or(0), cell.count("small"));
    let mut kinds: BTreeMap<(u64, Option<u64>), Vec<&PlayedCell<'_>>> = BTreeMap::new();
    for cell in cells {
        kinds.entry(kind(&cell)).or_default().push(cell);
    }
    let name = |(large, small): &(u64, Option<u64>)| match (large, small) {
        (0, _) => "small ones alone".to_owned(),
        (n, Some(1)) => format!("beside {n} large ones"),
        (1, _) => "large ones one by one".to_owned(),
        (n, _) => format!("{n} large ones at a time"),
    };
    let delivered = |cells: &[&PlayedCell<'_>]| rounded(see::delivered(cells).unwrap_or(0.0) / 1e6);
    let pace = figure_of(verdicts, "pace").into_iter().map(|bytes| bytes / 1e6);
    let rates = kinds.iter().filter(|(kind, _)| kind.0 > 0);
    let mut charts = vec![Chart::Stack(Stack {
        title: "throughput of a connection".to_owned(),
        x: Axis::new("MB/s"),
        unit: "MB/s",
        parts: vec!["all answers".to_owned()],
        bars: rates.map(|(kind, cells)| (name(kind), vec![delivered(cells)])).collect(),
        marks: pace.map(|at| ChartMark::x(at, format!("pace {} MB/s", figure(at)))).collect(),
    })];
    let small = kinds.iter().filter(|((_, small), _)| *small == Some(1));
    let groups: Vec<(String, Vec<&CallRecord>)> =
        small.map(|(kind, cells)| (name(kind), small_calls(cells))).collect();
    let times = |calls: &Vec<&CallRecord>| calls.iter().map(|call| see::took_ms(call)).collect();
    let times = groups.iter().map(|(name, calls)| (name.clone(), times(calls)));
    charts.extend(cdf("latency of small calls", "latency, ms", times.collect()));
    charts.push(phases("phases of a small call, medians", &groups));
    charts
}

fn small_calls<'a>(cells: &[&PlayedCell<'a>]) -> Vec<&'a CallRecord> {
    let calls = cells.iter().flat_map(|cell| cell.calls.iter().copied());
    calls.filter(|call| !see::is_large(call) && see::served(call)).collect()
}
