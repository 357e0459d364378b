//! Charts over time: what a limit lets pass, a long run, and how long calls took when.

use super::super::chart::{Axis, Chart, ChartMark, Heat, Ink, Plot, Series, Style, rounded};
use super::super::scale::{even_ends, log_ends};
use super::{figure_of, opt, places, totals};
use crate::conclude::verdict::FindingBound::Found;
use crate::conclude::verdict::{Drift, Drifting, ExperimentVerdict, Finding, figure, see};
use crate::record::{PlayedCell, Rollup, Trial};
use crate::stat::median;

/// Floods that are drawn.
const FLOODS_MAX: usize = 4;

/// Points of each.
const POINTS_MAX: usize = 300;

/// Points in time of a long run.
const TIMES_MAX: usize = 240;

/// Classes of failures of a long run that are drawn.
const CLASSES_MAX: usize = 5;

/// Columns and rows of a heat map.
const COLUMNS: usize = 60;
const ROWS: usize = 22;

/// Calls that passed since the first, over the time since then: a bucket is a slope after a step,
/// windows are stairs.
pub(super) fn window(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Chart {
    let floods: Vec<Vec<(f64, f64)>> = cells
        .iter()
        .filter(|cell| cell.number("flood").is_some())
        .take(FLOODS_MAX)
        .map(|cell| passed(cell))
        .collect();
    let xs = places(floods.iter().flatten().map(|(at, _)| *at));
    let mut series: Vec<Series> = floods
        .iter()
        .enumerate()
        .map(|(n, points)| {
            let at = |x: &f64| points.iter().find(|(at, _)| at == x).map(|(_, count)| *count);
            let name = format!("flood {}", n + 1);
            Series::new(&name, Style::Line, Ink::Nth(n), xs.iter().map(at).collect())
        })
        .collect();
    let mut marks = Vec::new();
    if let (Some(size), Some(rate)) = (figure_of(verdicts, "burst"), figure_of(verdicts, "refill"))
    {
        let long = opt(xs.iter().map(|x| size + rate * x));
        series.push(Series::new("burst + rate x time", Style::Dashed, Ink::Quiet, long));
        marks.push(ChartMark::y(size, format!("burst {}", figure(size))));
    }
    Chart::Plot(Plot {
        title: "calls served under excess load".to_owned(),
        x: Axis::new("seconds since the first call"),
        y: Axis::new("calls served"),
        xs,
        series,
        marks,
    })
}

/// Seconds since the first call and calls that passed until then; of many, enough that the form
/// stays: where it turns, and some between.
fn passed(cell: &PlayedCell<'_>) -> Vec<(f64, f64)> {
    let calls = see::order(&cell.calls);
    let begin = calls.first().map_or(0.0, |call| call.at);
    let each = calls.len().div_ceil(POINTS_MAX).max(1);
    let mut count = 0.0;
    let mut points = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let turns = |other: Option<&crate::stat::bucket::TimedCall>| {
            other.is_none_or(|other| other.passed != call.passed)
        };
        let before = n.checked_sub(1).and_then(|n| calls.get(n));
        count += f64::from(u8::from(call.passed));
        if n % each == 0
            || (calls.len() < 2 * POINTS_MAX && (turns(before) || turns(calls.get(n + 1))))
        {
            points.push((rounded(call.at - begin), count));
        }
    }
    points.dedup_by(|a, b| a.0 == b.0);
    points
}

/// A long run: percentiles with what drifts, and what was not served.
pub(super) fn soak(rollups: &[&Rollup], verdicts: &[&ExperimentVerdict]) -> Vec<Chart> {
    let begin = rollups.first().map_or(0, |rollup| rollup.begun_at);
    let each = rollups.len().div_ceil(TIMES_MAX).max(1);
    let parts: Vec<&[&Rollup]> = rollups.chunks(each).collect();
    let minutes = |us: u64| (us - begin) as f64 / 6e7;
    let xs: Vec<f64> = parts.iter().map(|part| rounded(minutes(part[0].begun_at))).collect();
    let middle = |of: fn(&Rollup) -> Option<u64>, is_doubted: bool| -> Vec<Option<f64>> {
        let one = |part: &&[&Rollup]| {
            let those = part.iter().filter(|it| it.load.saturated == is_doubted);
            let times: Vec<f64> = those.filter_map(|it| of(it)).map(|us| us as f64).collect();
            median(&times).map(|us| us / 1_000.0)
        };
        parts.iter().map(one).collect()
    };
    let mut series = vec![
        Series::new("p50", Style::Line, Ink::Nth(0), middle(|it| it.p50, false)),
        Series::new("p95", Style::Line, Ink::Nth(1), middle(|it| it.p95, false)),
        Series::new("p99", Style::Line, Ink::Nth(2), middle(|it| it.p99, false)),
    ];
    if rollups.iter().any(|rollup| rollup.load.saturated) {
        let doubted = middle(|it| it.p50, true);
        series.push(Series::new("p50 of doubted intervals", Style::Hollow, Ink::Nth(0), doubted));
    }
    for verdict in verdicts {
        let end = xs.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let (name, line) = match verdict.finding {
            Finding::Drift(Found(Drift { what: Drifting::Time, from, to, .. })) => {
                ("drift", opt(xs.iter().map(|x| from + (to - from) * x / end)))
            }
            Finding::Step { what: Drifting::Time, from, to, after_minutes, .. } => {
                let at = after_minutes as f64;
                ("step", opt(xs.iter().map(|x| if *x < at { from } else { to })))
            }
            _ => continue,
        };
        let name = format!("{name} of the median");
        series.push(Series::new(&name, Style::Dashed, Ink::Quiet, line));
    }
    let latency = Plot {
        title: "latency over time".to_owned(),
        x: Axis::new("minutes since the start"),
        y: Axis::log("latency, ms"),
        xs: xs.clone(),
        series,
        marks: Vec::new(),
    };
    [Chart::Plot(latency)].into_iter().chain(unserved(&parts, &xs)).collect()
}

/// What was not served in a long run, by class; nothing where all was.
fn unserved(parts: &[&[&Rollup]], xs: &[f64]) -> Option<Chart> {
    let classes = totals(parts.iter().copied().flatten().flat_map(|it| &it.unserved));
    let share = |class: &str, part: &&[&Rollup]| {
        let calls: u64 = part.iter().map(|it| it.calls).sum();
        let those: u64 = part.iter().filter_map(|it| it.unserved.get(class)).sum();
        Some(100.0 * those as f64 / calls.max(1) as f64)
    };
    let series = classes.iter().take(CLASSES_MAX).enumerate().map(|(n, (class, _))| {
        let data = parts.iter().map(|part| share(class, part)).collect();
        Series::new(&class.replace('_', " "), Style::Step, Ink::Nth(n), data)
    });
    (!classes.is_empty()).then(|| {
        Chart::Plot(Plot {
            title: "calls not served over time, by class".to_owned(),
            x: Axis::new("minutes since the start"),
            y: Axis::new("of all calls, %"),
            xs: xs.to_vec(),
            series: series.collect(),
            marks: Vec::new(),
        })
    })
}

/// A call on a heat map.
struct HeatCall {
    /// Seconds since the first call of the experiment at its target.
    at: f64,
    /// Milliseconds; `None` where it was not served.
    took: Option<f64>,
}

fn heat_calls(trial: &Trial<'_>) -> Vec<HeatCall> {
    let cells = trial.sound().0;
    let calls = || cells.iter().flat_map(|cell| cell.calls.iter());
    let begin = calls().map(|call| call.intended_at).min().unwrap_or(0);
    let one = |call: &&crate::record::CallRecord| HeatCall {
        at: call.intended_at.saturating_sub(begin) as f64 / 1e6,
        took: see::served(call).then(|| see::took_ms(call).max(0.01)),
    };
    calls().map(one).collect()
}

/// How long calls took, and when, on the same axes for all targets.
pub(super) fn heat(trial: &Trial<'_>, all: &[Trial<'_>]) -> Option<Chart> {
    let alike = || all.iter().filter(|other| other.experiment == trial.experiment);
    let others: Vec<HeatCall> = alike().flat_map(heat_calls).collect();
    let own = heat_calls(trial);
    if own.is_empty() {
        return None;
    }
    let until = others.iter().map(|call| call.at).fold(0.0, f64::max);
    let times = || others.iter().filter_map(|call| call.took);
    let ends = log_ends(times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let (from, to) = even_ends(0.0, until);
    let wide = (to - from) / COLUMNS as f64;
    let factor = (ends.1 / ends.0).powf(1.0 / ROWS as f64);
    let edges: Vec<f64> = (0..=ROWS).map(|row| ends.0 * factor.powi(row as i32)).collect();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); COLUMNS];
    let mut failed = vec![0; COLUMNS];
    for call in own {
        let column = ((call.at / wide) as usize).min(COLUMNS - 1);
        match call.took {
            Some(took) => columns[column].push(took),
            None => failed[column] += 1,
        }
    }
    let row = |took: &f64| ((took / ends.0).ln() / factor.ln()).max(0.0) as usize;
    let counts = columns.iter().map(|times| {
        let mut counts = vec![0; ROWS];
        times.iter().for_each(|took| counts[row(took).min(ROWS - 1)] += 1);
        counts
    });
    Some(Chart::Heat(Heat {
        title: "latency over time".to_owned(),
        x: Axis { range: Some((from, to)), ..Axis::new("seconds since the first call") },
        y: Axis { range: Some(ends), ..Axis::log("latency, ms") },
        xs: (0..COLUMNS).map(|n| rounded(from + wide * (n as f64 + 0.5))).collect(),
        edges: edges.into_iter().map(rounded).collect(),
        counts: counts.collect(),
        failed,
        median: columns.iter().map(|times| median(times).map(rounded)).collect(),
    }))
}
