//! What more calls at a time do to time and to throughput.

use std::collections::BTreeMap;

use super::super::chart::{Axis, Chart, ChartMark, Ink, Plot, Series, Style, rounded};
use super::{DOUBTED, doubted, marks_of, opt, places};
use crate::conclude::verdict::FindingBound::Found;
use crate::conclude::verdict::{ExperimentVerdict, Finding, figure, see};
use crate::record::{PlayedCell, Trial};
use crate::stat::median;

/// Points of a cloud, in one chart.
const POINTS_MAX: usize = 1_500;

/// Numbers of connections that are drawn.
const SWEEPS_MAX: usize = 4;

/// Cells by the number of connections.
type Sweeps<'a> = BTreeMap<u64, Vec<&'a PlayedCell<'a>>>;

pub(super) fn throttle(
    trial: &Trial<'_>,
    cells: &[&PlayedCell<'_>],
    verdicts: &[&ExperimentVerdict],
) -> Vec<Chart> {
    let mut sweeps: Sweeps<'_> = BTreeMap::new();
    for cell in cells {
        sweeps.entry(cell.count("connections").unwrap_or(0)).or_default().push(cell);
    }
    let doubted = doubted(trial);
    let mut charts = vec![flattening(&sweeps, &doubted, verdicts)];
    let clouds = sweeps.iter().take(SWEEPS_MAX);
    charts.extend(clouds.map(|(connections, cells)| cloud(*connections, cells)));
    charts
}

/// Every call by its concurrency and time, failed ones in their own colour.
fn cloud(connections: u64, cells: &[&PlayedCell<'_>]) -> Chart {
    let total: usize = cells.iter().map(|cell| cell.calls.len()).sum();
    let every = total.div_ceil(POINTS_MAX).max(1);
    // x, time, and whether it was served; a middle has no call.
    let mut points: Vec<(f64, f64, Option<bool>)> = Vec::new();
    for cell in cells {
        let Some(concurrency) = cell.number("concurrency") else { continue };
        for (n, call) in cell.calls.iter().enumerate().step_by(every) {
            // Spread within the column by a sequence that repeats itself late.
            let aside = (n as f64 * 0.618_034).fract() - 0.5;
            let took = see::took_ms(call).max(0.01);
            let x = (concurrency + 2.6 * aside).max(0.0);
            points.push((x, took, Some(see::served(call))));
        }
        if let Some(middle) = cell.took(0.5) {
            points.push((concurrency, middle, None));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of = |kind: Option<bool>| -> Vec<Option<f64>> {
        points.iter().map(|point| (point.2 == kind).then_some(point.1)).collect()
    };
    let mut series = vec![Series::new("served", Style::Points, Ink::Nth(0), of(Some(true)))];
    if points.iter().any(|point| point.2 == Some(false)) {
        series.push(Series::new("failed", Style::Points, Ink::Bad, of(Some(false))));
    }
    series.push(Series::new("median", Style::Line, Ink::Nth(1), of(None)));
    Chart::Plot(Plot {
        title: format!("latency by concurrency, {}", see::over(connections)),
        x: Axis::new("concurrent calls"),
        y: Axis::log("latency, ms"),
        xs: points.iter().map(|point| rounded(point.0)).collect(),
        series,
        marks: Vec::new(),
    })
}

/// Throughput over concurrency with the nearest `min(c / W0, Xmax)`.
fn flattening(
    sweeps: &Sweeps<'_>,
    doubted: &[&PlayedCell<'_>],
    verdicts: &[&ExperimentVerdict],
) -> Chart {
    let cells = sweeps.values().flatten().chain(doubted);
    let xs = places(cells.filter_map(|cell| cell.number("concurrency")));
    let at = |cells: &[&PlayedCell<'_>], x: f64| {
        let those = cells.iter().filter(|cell| cell.number("concurrency") == Some(x));
        median(&those.filter_map(|cell| see::sustained(cell)).collect::<Vec<_>>())
    };
    let along = |cells: &[&PlayedCell<'_>]| xs.iter().map(|x| at(cells, *x)).collect::<Vec<_>>();
    let mut series = Vec::new();
    for (n, (connections, cells)) in sweeps.iter().take(SWEEPS_MAX).enumerate() {
        let name = see::over(*connections);
        series.push(Series::new(&name, Style::Points, Ink::Nth(n), along(cells)));
        if let Some(fit) = see::fit_of(cells) {
            let expected = opt(xs.iter().map(|x| fit.throughput(*x)));
            let name = format!("model, {name}");
            series.push(Series::new(&name, Style::Line, Ink::Nth(n), expected));
        }
    }
    if !doubted.is_empty() {
        series.push(Series::new(DOUBTED, Style::Hollow, Ink::Quiet, along(doubted)));
    }
    let knee = verdicts.iter().find_map(|verdict| {
        let Finding::Shaping(Found(it)) = &verdict.finding else { return None };
        Some(ChartMark::x(it.knee, format!("knee {}", figure(it.knee))))
    });
    let limit = marks_of(verdicts, &[("in_flight", "limit")]);
    Chart::Plot(Plot {
        title: "throughput by concurrency".to_owned(),
        x: Axis::new("concurrent calls"),
        y: Axis::new("served, calls/s"),
        xs,
        series,
        marks: knee.into_iter().chain(limit).collect(),
    })
}
