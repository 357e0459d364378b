//! Charts over time: what a limit lets pass, and a long run.

use super::super::chart::{Axis, Chart, ChartMark, Ink, Plot, Series, Style, rounded};
use super::opt;
use crate::conclude::verdict::{
    Drift, Drifting, ExperimentVerdict, Finding, FindingBound, TokenLimit, see,
};
use crate::record::{PlayedCell, Rollup};
use crate::stat::median;

/// Floods that are drawn.
const FLOODS_MAX: usize = 4;

/// Points of each.
const POINTS_MAX: usize = 300;

/// Points in time of a long run.
const TIMES_MAX: usize = 240;

/// Calls that passed since the first, over the time since then: a bucket is a slope after a step,
/// windows are stairs.
pub(super) fn window(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Chart {
    let floods: Vec<Vec<(f64, f64)>> = cells
        .iter()
        .filter(|cell| cell.number("flood").is_some())
        .take(FLOODS_MAX)
        .map(|cell| passed(cell))
        .collect();
    let mut xs: Vec<f64> = floods.iter().flatten().map(|(at, _)| *at).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
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
    for verdict in verdicts {
        if let Finding::Bucket(FindingBound::Found(TokenLimit {
            size, refill_per_second, ..
        })) = verdict.finding
        {
            let long = xs.iter().map(|x| size as f64 + refill_per_second * x);
            series.push(Series::new(
                "size + rate x time",
                Style::Dashed,
                Ink::Quiet,
                opt(long.map(rounded)),
            ));
            marks.push(ChartMark::y(size as f64, format!("size {size}")));
        }
    }
    Chart::Plot(Plot {
        title: "calls that passed under excess load".to_owned(),
        x: Axis::new("seconds since the first call"),
        y: Axis::new("calls that passed"),
        second: None,
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

/// A long run: medians, 99th percentiles and what was not served, with what drifts.
pub(super) fn soak(rollups: &[&Rollup], verdicts: &[&ExperimentVerdict]) -> Chart {
    let begin = rollups.first().map_or(0, |rollup| rollup.begun_at);
    let each = rollups.len().div_ceil(TIMES_MAX).max(1);
    let parts: Vec<&[&Rollup]> = rollups.chunks(each).collect();
    let minutes = |us: u64| (us - begin) as f64 / 6e7;
    let xs: Vec<f64> = parts.iter().map(|part| rounded(minutes(part[0].begun_at))).collect();
    let middle = |of: fn(&Rollup) -> Option<u64>| -> Vec<Option<f64>> {
        let one = |part: &&[&Rollup]| {
            let times: Vec<f64> = part.iter().filter_map(|it| of(it)).map(|us| us as f64).collect();
            median(&times).map(|us| us / 1_000.0)
        };
        parts.iter().map(one).collect()
    };
    let failed = parts.iter().map(|part| {
        let calls: u64 = part.iter().map(|it| it.calls).sum();
        let served: u64 = part.iter().map(|it| it.served).sum();
        100.0 * (calls - served) as f64 / calls.max(1) as f64
    });
    let mut series = vec![
        Series::new("% not served", Style::Bars, Ink::Bad, opt(failed)).on_second(),
        Series::new("median", Style::Line, Ink::Nth(0), middle(|it| it.p50)),
        Series::new("99 % within", Style::Line, Ink::Nth(1), middle(|it| it.p99)),
    ];
    for verdict in verdicts {
        if let Finding::Drift(FindingBound::Found(Drift {
            what: Drifting::Time, from, to, ..
        })) = verdict.finding
        {
            let end = xs.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
            let line = xs.iter().map(|x| from + (to - from) * x / end);
            series.push(Series::new("drift of the median", Style::Dashed, Ink::Quiet, opt(line)));
        }
        if let Finding::Step { what: Drifting::Time, from, to, after_minutes, .. } = verdict.finding
        {
            let line = xs.iter().map(|x| if *x < after_minutes as f64 { from } else { to });
            series.push(Series::new("step of the median", Style::Dashed, Ink::Quiet, opt(line)));
        }
    }
    Chart::Plot(Plot {
        title: "times and errors since the start".to_owned(),
        x: Axis::new("minutes since the start"),
        y: Axis::log("within, ms"),
        second: Some(Axis::percent("% not served")),
        xs,
        series,
        marks: Vec::new(),
    })
}
