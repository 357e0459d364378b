//! Where the time of a call goes: waterfalls, phases, distributions.

use std::collections::BTreeMap;

use super::super::chart::{Axis, Chart, Ink, Plot, Series, Stack, Style, Waterfall, rounded};
use super::{FACETS_MAX, ms};
use crate::conclude::verdict::see;
use crate::record::{CallRecord, PlayedCell};
use crate::stat::{median, quantile_of_sorted};

/// Rows of a waterfall; more cannot be told apart on a screen.
const ROWS_MAX: usize = 240;

/// Figures along a distribution.
const STEPS: usize = 80;

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
    let firsts: Vec<(String, &PlayedCell<'_>)> = facets
        .iter()
        .take(FACETS_MAX)
        .filter_map(|(key, cells)| Some((name(key), *cells.first()?)))
        .collect();
    let until = firsts.iter().map(|(_, cell)| lasts_ms(cell)).fold(0.0, f64::max);
    let mut charts: Vec<Chart> =
        firsts.iter().map(|(title, cell)| waterfall(title, cell, until)).collect();
    let groups: Vec<(String, Vec<&CallRecord>)> = facets
        .iter()
        .take(FACETS_MAX)
        .map(|(key, cells)| (name(key), cells.iter().flat_map(|cell| served(cell)).collect()))
        .collect();
    charts.push(phases("phases of a call that opens its connection, medians", &groups));
    let times = facets
        .iter()
        .take(FACETS_MAX)
        .map(|(key, cells)| (name(key), cells.iter().flat_map(|cell| cell.times()).collect()));
    charts.extend(cdf("time of a call", "time, ms", times.collect()));
    charts
}

fn served<'a>(cell: &PlayedCell<'a>) -> Vec<&'a CallRecord> {
    cell.calls.iter().copied().filter(|call| see::served(call)).collect()
}

fn lasts_ms(cell: &PlayedCell<'_>) -> f64 {
    let begin = cell.calls.iter().map(|call| call.begun_at).min().unwrap_or(0);
    let end = cell.calls.iter().map(|call| call.ended_at).max().unwrap_or(0);
    ms(end.saturating_sub(begin))
}

fn waterfall(title: &str, cell: &PlayedCell<'_>, until: f64) -> Chart {
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
        until,
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
    Chart::Stack(Stack { title: title.to_owned(), unit: "ms", parts, bars })
}

/// The share of samples at or below each time, on one row of times for all.
pub(super) fn cdf(title: &str, label: &str, groups: Vec<(String, Vec<f64>)>) -> Vec<Chart> {
    let groups: Vec<(String, Vec<f64>)> = groups
        .into_iter()
        .map(|(name, samples)| (name, crate::stat::sorted(&samples)))
        .filter(|(_, samples)| !samples.is_empty())
        .collect();
    let end = |q: f64| groups.iter().filter_map(move |(_, all)| quantile_of_sorted(all, q));
    let high = end(1.0).fold(0.0, f64::max).max(0.01);
    // A time of nothing has no place on a log axis.
    let low = end(0.0).fold(f64::INFINITY, f64::min).clamp(high / 2_000.0, high / 1.01);
    if groups.is_empty() {
        return Vec::new();
    }
    let at = |step: usize| low * (high / low).powf(step as f64 / STEPS as f64);
    let xs: Vec<f64> = (0..=STEPS).map(|step| rounded(at(step))).collect();
    let share = |all: &[f64], x: f64| {
        Some(100.0 * all.partition_point(|sample| *sample <= x * 1.000_1) as f64 / all.len() as f64)
    };
    let series = groups.iter().enumerate().map(|(n, (name, all))| {
        let data = xs.iter().map(|x| share(all, *x)).collect();
        Series::new(name, Style::Line, Ink::Nth(n), data)
    });
    vec![Chart::Plot(Plot {
        title: title.to_owned(),
        x: Axis::log(label),
        y: Axis::percent("% within"),
        second: None,
        series: series.collect(),
        xs,
        marks: Vec::new(),
    })]
}
