//! From the calls of an experiment to its charts.

mod answers;
mod connection;
mod protocol;
mod time;

use std::collections::BTreeMap;

use wellhead_eth::MethodTable;
use wellhead_upstream::{Provider, Tariff};

use self::connection::{bodies, connection};
use self::protocol::{cdf, phases, protocol};
use super::chart::{Axis, Chart, ChartMark, Ink, Plot, Series, Stack, Style, rounded};
use crate::conclude::verdict::{
    ExperimentVerdict, Finding, FindingBound, LoadCapacity, RefusedRate, Shaped, StreamLimit,
    figure, see,
};
use crate::record::{MeasuredTarget, PlayedCell, RunRecord, Trial};
use crate::stat::median;

/// Points of a cloud, in one chart.
const POINTS_MAX: usize = 1_500;

/// Facets, settings or bars in one chart.
const FACETS_MAX: usize = 12;

/// Methods in the matrix.
const METHODS_MAX: usize = 60;

/// The charts of one experiment at one target, of the cells that its verdicts rest on.
pub(super) fn of_trial(
    run: &RunRecord,
    trial: &Trial<'_>,
    verdicts: &[&ExperimentVerdict],
) -> Vec<Chart> {
    let cells: Vec<&PlayedCell<'_>> = match trial.experiment {
        // What counts there is a number and not a time.
        "streams" | "connection" => trial.played.iter().collect(),
        _ => trial.sound().0,
    };
    if cells.is_empty() && trial.rollups.is_empty() {
        return Vec::new();
    }
    match trial.experiment {
        "latency" => {
            let times = cells.iter().flat_map(|cell| cell.times()).collect();
            cdf("time of a call", "time, ms", vec![("one at a time".to_owned(), times)])
        }
        "protocol" => protocol(&cells),
        "streams" => vec![failures(&cells, "streams", "concurrent streams", verdicts)],
        "bodies" => bodies(&cells),
        "connection" => connection(&cells, verdicts),
        "rate" | "load" => offered(run, trial, &cells, verdicts),
        "window" => vec![time::window(&cells, verdicts)],
        "throttle" => throttle(&cells, verdicts),
        "cost" => vec![cost(&cells, verdicts)],
        "soak" => vec![time::soak(&trial.rollups, verdicts)],
        _ => Vec::new(),
    }
}

/// The charts of one experiment that hold all targets.
pub(super) fn of_all(run: &RunRecord, experiment: &str, all: &[Trial<'_>]) -> Vec<Chart> {
    let trials: Vec<&Trial<'_>> =
        all.iter().filter(|trial| trial.experiment == experiment).collect();
    let name = |trial: &Trial<'_>| {
        run.targets.get(trial.target as usize).map_or("?", |target| &target.id).to_owned()
    };
    match experiment {
        "fresh" => answers::freshness(run, all),
        "load" if trials.len() > 1 => {
            let times = |trial: &&Trial<'_>| {
                let lowest = trial.sound().0.into_iter().min_by(|a, b| {
                    let rate = |played: &PlayedCell<'_>| played.number("rate").unwrap_or(f64::MAX);
                    rate(a).total_cmp(&rate(b))
                });
                (name(trial), lowest.map(PlayedCell::times).unwrap_or_default())
            };
            let title = "time of a call at the lowest load, all targets";
            cdf(title, "time, ms", trials.iter().map(times).collect())
        }
        "agree" => answers::agreement(run, all),
        _ => Vec::new(),
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// The share of failed calls over a factor.
fn failures(
    cells: &[&PlayedCell<'_>],
    factor: &str,
    label: &str,
    verdicts: &[&ExperimentVerdict],
) -> Chart {
    let mut shares: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        if let Some(size) = cell.count(factor) {
            // A call that is refused for its rate was a stream nevertheless.
            let failed = cell.share(|call| call.error.is_some());
            shares.entry(size).or_default().push(100.0 * failed);
        }
    }
    let mean = |shares: &Vec<f64>| Some(shares.iter().sum::<f64>() / shares.len() as f64);
    let data = shares.values().map(mean).collect();
    let marks = verdicts.iter().filter_map(|verdict| {
        let Finding::StreamCap(FindingBound::Found(StreamLimit { streams, .. })) = &verdict.finding
        else {
            return None;
        };
        Some(ChartMark::x(f64::from(*streams), format!("{streams}")))
    });
    Chart::Plot(Plot {
        title: format!("calls that fail, by {label}"),
        x: Axis::log(label),
        y: Axis { range: Some((-2.0, 105.0)), ..Axis::new("% failed") },
        second: None,
        xs: shares.keys().map(|size| *size as f64).collect(),
        series: vec![Series::new("% failed", Style::Step, Ink::Bad, data)],
        marks: marks.collect(),
    })
}

/// What a cell offered, and what of it was served.
struct LevelPoint<'a> {
    set: f64,
    served: f64,
    success_percent: f64,
    cell: &'a PlayedCell<'a>,
}

fn offered(
    run: &RunRecord,
    trial: &Trial<'_>,
    cells: &[&PlayedCell<'_>],
    verdicts: &[&ExperimentVerdict],
) -> Vec<Chart> {
    let by_users = cells.iter().any(|cell| cell.number("users").is_some());
    let levels = level_points(cells, by_users);
    let xs: Vec<f64> = levels.iter().map(|level| rounded(level.set)).collect();
    let highest = xs.last().copied().unwrap_or(0.0);
    let mut marks: Vec<ChartMark> = verdicts.iter().filter_map(|it| mark_of(it)).collect();
    if let Some(target) = run.targets.get(trial.target as usize).filter(|_| !by_users) {
        marks.extend(predicted(target, cells, highest));
    }
    let (by, label) =
        if by_users { ("users", "users") } else { ("offered rate", "offered, calls/s") };
    let most = levels.iter().map(|level| level.served).fold(0.0, f64::max);
    let top = if by_users { most } else { highest };
    let ideal = Series::new("offered", Style::Dashed, Ink::Quiet, opt(xs.iter().copied()));
    let achieved = opt(levels.iter().map(|level| level.served));
    let success = opt(levels.iter().map(|level| level.success_percent));
    let mut series: Vec<Series> = (!by_users).then_some(ideal).into_iter().collect();
    series.push(Series::new("served", Style::Line, Ink::Nth(0), achieved));
    series.push(Series::new("% success", Style::Line, Ink::Good, success).on_second());
    let throughput = Plot {
        title: format!("throughput and success by {by}"),
        x: Axis::new(label),
        y: Axis { range: Some((0.0, top * 1.05)), ..Axis::new("served, calls/s") },
        second: Some(Axis { range: Some((0.0, 105.0)), ..Axis::new("% success") }),
        xs: xs.clone(),
        series,
        marks,
    };
    let times = Plot {
        title: format!("time by {by}, from the intended start"),
        x: Axis::new(label),
        y: Axis::log("within, ms"),
        second: None,
        xs,
        series: quantiles(&levels),
        marks: Vec::new(),
    };
    vec![Chart::Plot(throughput), Chart::Plot(times)]
}

/// The levels in their order. Users offer what they are served: how many there are is what was set.
fn level_points<'a>(cells: &[&'a PlayedCell<'a>], by_users: bool) -> Vec<LevelPoint<'a>> {
    let point = |cell: &&'a PlayedCell<'a>| {
        let level = see::level_of(cell)?;
        let set = if by_users { cell.number("users")? } else { level.offered };
        let served = if by_users { cell.throughput()? } else { level.achieved };
        Some(LevelPoint { set, served, success_percent: 100.0 * level.success, cell })
    };
    let mut levels: Vec<LevelPoint<'_>> = cells.iter().filter_map(point).collect();
    levels.sort_by(|a, b| a.set.total_cmp(&b.set));
    levels
}

/// Where a verdict puts the limit.
fn mark_of(verdict: &ExperimentVerdict) -> Option<ChartMark> {
    let (at, word) = match verdict.finding {
        Finding::Rate(FindingBound::Found(RefusedRate { per_second, .. })) => {
            (per_second, "measured")
        }
        Finding::Capacity(FindingBound::Found(LoadCapacity { per_second, .. })) => {
            (per_second, "sustains")
        }
        _ => return None,
    };
    Some(ChartMark::x(at, format!("{word} {}", figure(at))))
}

fn quantiles(levels: &[LevelPoint<'_>]) -> Vec<Series> {
    let series = |(n, (q, name)): (usize, (f64, &'static str))| {
        let took = levels.iter().map(|level| level.cell.took(q)).collect();
        Series::new(name, Style::Line, Ink::Nth(n), took)
    };
    [(0.5, "half"), (0.95, "95 %"), (0.99, "99 %")].into_iter().enumerate().map(series).collect()
}

fn opt(values: impl Iterator<Item = f64>) -> Vec<Option<f64>> {
    values.map(Some).collect()
}

/// Where the catalogue expects limits for these calls, by plan: calls a second, or credits in a
/// window over what a call counts and the window's length.
fn predicted(target: &MeasuredTarget, cells: &[&PlayedCell<'_>], highest: f64) -> Vec<ChartMark> {
    let Some(provider) = target.provider.as_deref().and_then(Provider::named) else {
        return Vec::new();
    };
    let method = cells.iter().find_map(|cell| cell.calls.first()).map(|call| call.method.as_str());
    let tariff = Tariff::of(provider);
    let row = MethodTable::standard().row(method.unwrap_or_default());
    let cost = f64::from(tariff.throughput(row));
    let window = provider.rate.as_ref().map(|rate| rate.window().as_secs_f64());
    let mut marks: Vec<ChartMark> = Vec::new();
    for plan in &provider.plans {
        let by_calls = plan.calls_per_second.map(|calls| calls as f64);
        let by_credits = plan.credits.zip(window).filter(|(_, window)| *window > 0.0 && cost > 0.0);
        let by_credits = by_credits.map(|(credits, window)| credits as f64 / window / cost);
        let limit = by_calls.unwrap_or(f64::INFINITY).min(by_credits.unwrap_or(f64::INFINITY));
        if limit <= highest * 1.02 {
            let label = format!("plan {}: {}", plan.name, figure(limit));
            marks.push(ChartMark { predicted: true, ..ChartMark::x(limit, label) });
        }
    }
    marks.truncate(3);
    marks
}

fn throttle(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Vec<Chart> {
    let mut sweeps: BTreeMap<u64, Vec<&PlayedCell<'_>>> = BTreeMap::new();
    for cell in cells {
        sweeps.entry(cell.count("connections").unwrap_or(0)).or_default().push(cell);
    }
    let mut charts: Vec<Chart> =
        sweeps.iter().take(4).map(|(connections, cells)| cloud(*connections, cells)).collect();
    charts.push(flattening(&sweeps, verdicts));
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
            points.push((concurrency + 2.6 * aside, took, Some(see::served(call))));
        }
        if let Some(middle) = cell.took(0.5) {
            points.push((concurrency, middle, None));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of = |kind: Option<bool>| -> Vec<Option<f64>> {
        points.iter().map(|point| (point.2 == kind).then_some(point.1)).collect()
    };
    Chart::Plot(Plot {
        title: format!("time by concurrency, {}", over(connections)),
        x: Axis::new("calls at a time"),
        y: Axis::log("time, ms"),
        second: None,
        xs: points.iter().map(|point| rounded(point.0)).collect(),
        series: vec![
            Series::new("served", Style::Points, Ink::Nth(0), of(Some(true))),
            Series::new("failed", Style::Points, Ink::Bad, of(Some(false))),
            Series::new("median", Style::Line, Ink::Nth(1), of(None)),
        ],
        marks: Vec::new(),
    })
}

/// Over how many connections.
fn over(connections: u64) -> String {
    match connections {
        0 => "a connection for each call".to_owned(),
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    }
}

/// Throughput over concurrency with the nearest `min(c / W0, Xmax)`.
fn flattening(
    sweeps: &BTreeMap<u64, Vec<&PlayedCell<'_>>>,
    verdicts: &[&ExperimentVerdict],
) -> Chart {
    let mut xs: Vec<f64> =
        sweeps.values().flatten().filter_map(|cell| cell.number("concurrency")).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let mut series = Vec::new();
    for (n, (connections, cells)) in sweeps.iter().take(4).enumerate() {
        let at = |x: &f64| {
            let those = cells.iter().filter(|cell| cell.number("concurrency") == Some(*x));
            median(&those.filter_map(|cell| see::sustained(cell)).collect::<Vec<_>>())
        };
        let name = over(*connections);
        series.push(Series::new(&name, Style::Points, Ink::Nth(n), xs.iter().map(at).collect()));
        if let Some(fit) = see::fit_of(cells) {
            let expected = opt(xs.iter().map(|x| fit.throughput(*x)));
            series.push(Series::new(&format!("fit, {name}"), Style::Line, Ink::Nth(n), expected));
        }
    }
    let marks = verdicts.iter().filter_map(|verdict| {
        let Finding::Shaping(FindingBound::Found(Shaped { knee, .. })) = verdict.finding else {
            return None;
        };
        Some(ChartMark::x(knee, format!("knee {}", figure(knee))))
    });
    Chart::Plot(Plot {
        title: "throughput by concurrency".to_owned(),
        x: Axis::new("calls at a time"),
        y: Axis::new("served, calls/s"),
        second: None,
        xs,
        series,
        marks: marks.collect(),
    })
}

/// What methods count, the cheapest first.
fn cost(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Chart {
    let mut counts: Vec<(String, Vec<f64>)> = Vec::new();
    for verdict in verdicts {
        if let Finding::Cost { method, base, observed_ratio, .. } = &verdict.finding {
            if counts.is_empty() {
                counts.push((base.clone(), vec![1.0]));
            }
            counts.push((method.clone(), vec![rounded(*observed_ratio)]));
        }
    }
    if counts.is_empty() {
        let methods: BTreeMap<&str, ()> =
            cells.iter().filter_map(|cell| Some((cell.factor("method")?, ()))).collect();
        counts.extend(methods.into_keys().map(|method| (method.to_owned(), vec![0.0])));
    }
    counts.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    counts.truncate(FACETS_MAX);
    Chart::Stack(Stack {
        title: "cost of a call, as a multiple of the cheapest".to_owned(),
        unit: "times",
        parts: vec!["counts".to_owned()],
        bars: counts,
    })
}
