//! Where the time of a call goes: waterfalls, phases, distributions.

use std::collections::BTreeMap;

use super::super::chart::{
    Axis, Chart, ChartMark, Ink, MarkKind, Plot, Series, Stack, Style, Waterfall, rounded,
};
use super::{FACETS_MAX, ms, places};
use crate::conclude::verdict::{figure, see};
use crate::record::{CallRecord, PlayedCell};
use crate::stat::{median, quantile_of_sorted};

/// Rows of a waterfall; more cannot be told apart on a screen.
const ROWS_MAX: usize = 240;

/// Steps of all distributions of a chart, and of each of them at least.
const STEPS_MAX: usize = 600;
const STEPS_MIN: usize = 40;

/// Percentiles that are marked.
const MARKED: [(f64, &str); 3] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")];

pub(super) fn protocol(cells: &[&PlayedCell<'_>]) -> Vec<Chart> {
    let most = cells.iter().filter_map(|cell| cell.count("concurrency")).max();
    // The largest, where transfer shows.
    let bytes = |cell: &&&PlayedCell<'_>| cell.calls.iter().map(|call| call.bytes_in).max();
    let body = cells.iter().max_by_key(bytes).and_then(|cell| cell.factor("body"));
    let shown: Vec<&&PlayedCell<'_>> = cells
        .iter()
        .filter(|cell| cell.count("concurrency") == most && cell.factor("body") == body)
        .collect();
    let mut facets: BTreeMap<(u64, &str), Vec<&PlayedCell<'_>>> = BTreeMap::new();
    for cell in shown {
        let key = (cell.count("connections").unwrap_or(0), cell.factor("protocol").unwrap_or("?"));
        facets.entry(key).or_default().push(cell);
    }
    let name = |(connections, protocol): &(u64, &str)| match connections {
        1 => format!("{protocol}, 1 connection"),
        n => format!("{protocol}, {n} connections"),
    };
    let facets: Vec<(String, Vec<&PlayedCell<'_>>)> =
        facets.iter().take(FACETS_MAX).map(|(key, cells)| (name(key), cells.clone())).collect();
    let mut charts: Vec<Chart> =
        facets.iter().map(|(title, cells)| waterfall(title, cells[0])).collect();
    let groups: Vec<(String, Vec<&CallRecord>)> = facets
        .iter()
        .map(|(name, cells)| (name.clone(), cells.iter().flat_map(|cell| served(cell)).collect()))
        .collect();
    charts.push(phases("phases of a call that opens its connection, medians", &groups));
    let times = facets.into_iter().map(|(name, cells)| {
        let times = cells.iter().flat_map(|cell| cell.times()).collect();
        (name, times)
    });
    charts.extend(cdf("latency", "latency, ms", times.collect()));
    charts
}

fn served<'a>(cell: &PlayedCell<'a>) -> Vec<&'a CallRecord> {
    cell.calls.iter().copied().filter(|call| see::served(call)).collect()
}

fn waterfall(title: &str, cell: &PlayedCell<'_>) -> Chart {
    let start = cell.calls.iter().map(|call| call.begun_at).min().unwrap_or(0);
    let every = cell.calls.len().div_ceil(ROWS_MAX).max(1);
    let mut calls: Vec<&CallRecord> = cell.calls.iter().copied().step_by(every).collect();
    calls.sort_by_key(|call| (call.begun_at, call.n));
    let since = |at: u64| rounded(ms(at.saturating_sub(start)));
    let all = cell.calls.len();
    let failed = cell.calls.iter().filter(|call| !see::served(call)).count();
    let shown = if every > 1 { format!(", {} shown", calls.len()) } else { String::new() };
    Chart::Waterfall(Waterfall {
        title: format!("{title}: {all} calls, {failed} failed{shown}"),
        x: Axis::new("ms since the first call"),
        begin: calls.iter().map(|call| since(call.begun_at)).collect(),
        steps: calls.iter().map(|call| steps(call, start)).collect(),
        parts: PHASES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        end: calls.iter().map(|call| since(call.ended_at)).collect(),
        good: calls.iter().map(|call| see::served(call)).collect(),
        word: calls.iter().map(|call| word(call)).collect(),
    })
}

/// When each phase of a call was over, since `start`. What is not told has no length.
fn steps(call: &CallRecord, start: u64) -> Vec<f64> {
    let mut at = call.begun_at;
    let mut steps = Vec::with_capacity(PHASES.len());
    for (_, phase) in PHASES {
        at = (at + phase(call).unwrap_or(0)).min(call.ended_at);
        steps.push(rounded(ms(at.saturating_sub(start))));
    }
    steps
}

/// What became of a call, and what carried it.
fn word(call: &CallRecord) -> String {
    let mut word = match (&call.error, call.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => format!("{} {status}", call.class),
        (None, None) => call.class.clone(),
    };
    if let Some(connection) = call.connection {
        word.push_str(&format!(", connection {connection}"));
    }
    if let Some(stream) = call.stream {
        word.push_str(&format!(", stream {stream}"));
    }
    word
}

type PhaseColumn = (&'static str, fn(&CallRecord) -> Option<u64>);

/// The phases of a call, in their order.
const PHASES: [PhaseColumn; 7] = [
    ("queue", |call| call.queue),
    ("DNS", |call| call.dns),
    ("TCP", |call| call.tcp),
    ("TLS", |call| call.tls),
    ("write", |call| call.write),
    ("first byte", |call| call.first_byte),
    ("transfer", |call| call.transfer),
];

/// The median of each phase. Set-up is counted over the calls that had any.
pub(super) fn phases(title: &str, groups: &[(String, Vec<&CallRecord>)]) -> Chart {
    let middle = |calls: &[&CallRecord], phase: fn(&CallRecord) -> Option<u64>| {
        let took: Vec<f64> = calls.iter().filter_map(|call| phase(call)).map(ms).collect();
        rounded(median(&took).unwrap_or(0.0))
    };
    let bars = groups
        .iter()
        .filter(|(_, calls)| !calls.is_empty())
        .map(|(name, calls)| {
            (name.clone(), PHASES.iter().map(|(_, phase)| middle(calls, *phase)).collect())
        })
        .collect();
    let parts = PHASES.iter().map(|(name, _)| (*name).to_owned()).collect();
    Chart::Stack(Stack {
        title: title.to_owned(),
        x: Axis::new("ms"),
        unit: "ms",
        parts,
        bars,
        marks: Vec::new(),
    })
}

/// The share of samples at or below each time, as the steps that it has, with p50, p95 and p99.
pub(super) fn cdf(title: &str, label: &str, groups: Vec<(String, Vec<f64>)>) -> Vec<Chart> {
    let groups: Vec<(String, Vec<f64>)> = groups
        .into_iter()
        .map(|(name, samples)| (name, crate::stat::sorted(&samples)))
        .filter(|(_, samples)| !samples.is_empty())
        .collect();
    if groups.is_empty() {
        return Vec::new();
    }
    let each = (STEPS_MAX / groups.len()).max(STEPS_MIN);
    let steps: Vec<f64> =
        groups.iter().flat_map(|(_, all)| steps_of(all, each)).map(rounded).collect();
    // A time of nothing has no place on a log axis.
    let low = steps.iter().copied().fold(0.0, f64::max).max(0.01) / 2_000.0;
    let xs = places(steps.into_iter().map(|x| x.max(low)));
    let share = |all: &[f64], x: f64| {
        Some(100.0 * all.partition_point(|sample| *sample <= x * 1.000_1) as f64 / all.len() as f64)
    };
    let series = groups.iter().enumerate().map(|(n, (name, all))| {
        let data = xs.iter().map(|x| share(all, *x)).collect();
        Series::new(&format!("{name}: {}", percentiles(all)), Style::Step, Ink::Nth(n), data)
    });
    let guide = |(q, name): (f64, &str)| ChartMark {
        kind: MarkKind::Guide,
        ..ChartMark::y(100.0 * q, name)
    };
    vec![Chart::Plot(Plot {
        title: title.to_owned(),
        x: Axis::log(label),
        y: Axis::percent("calls within, %"),
        series: series.collect(),
        xs,
        marks: MARKED.map(guide).to_vec(),
    })]
}

/// `p50 4.7, p95 6.8, p99 9.1`, in the unit of the axis.
fn percentiles(all: &[f64]) -> String {
    let told = MARKED.map(|(q, name)| {
        let at = quantile_of_sorted(all, q).unwrap_or(0.0);
        format!("{name} {}", figure(at))
    });
    told.join(", ")
}

/// The samples at which a distribution has its steps; of many, evenly many of them, with both ends.
fn steps_of(all: &[f64], most: usize) -> impl Iterator<Item = f64> + '_ {
    let last = all.len() - 1;
    let count = all.len().min(most);
    (0..count).map(move |n| all[n * last / (count - 1).max(1)])
}
