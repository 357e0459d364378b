//! From the calls of an experiment to its charts.

mod answers;
mod connection;
mod errors;
mod offered;
mod protocol;
mod throttle;
mod time;

use std::collections::BTreeMap;

use self::connection::{bodies, connection};
use self::protocol::{cdf, phases, protocol};
use super::axes;
use super::chart::{Axis, Chart, ChartMark, Ink, Plot, Series, Stack, Style, rounded};
use super::table::sentences;
use crate::conclude::verdict::{
    ExperimentVerdict, FigureBound, Finding, figure, figure_words, figures,
};
use crate::record::{PlayedCell, RunRecord, Trial};

/// Facets, settings or bars in one chart.
const FACETS_MAX: usize = 12;

/// Methods in the matrix.
const METHODS_MAX: usize = 60;

/// One experiment at one target, and what is said of it.
struct DrawnTrial<'a> {
    run: &'a RunRecord,
    trial: &'a Trial<'a>,
    verdicts: &'a [&'a ExperimentVerdict],
    /// All experiments at all targets.
    all: &'a [Trial<'a>],
}

/// The charts of one experiment, with the same axes for all targets.
pub(super) struct ExperimentCharts {
    /// Those that hold all targets.
    pub(super) together: Vec<Chart>,
    /// Those of each target, in the order of the run.
    pub(super) of_targets: Vec<Vec<Chart>>,
}

/// Draws one experiment.
pub(super) fn of_experiment(
    run: &RunRecord,
    experiment: &str,
    all: &[Trial<'_>],
    verdicts: &[ExperimentVerdict],
) -> ExperimentCharts {
    let own = |index: usize| {
        let those = |it: &&Trial<'_>| it.experiment == experiment && it.target as usize == index;
        let Some(trial) = all.iter().find(those) else { return Vec::new() };
        let verdicts = &sentences(verdicts, experiment, index).collect::<Vec<_>>();
        of_trial(&DrawnTrial { run, trial, verdicts, all })
    };
    let mut together = of_all(run, experiment, all);
    let mut of_targets: Vec<Vec<Chart>> = (0..run.targets.len()).map(own).collect();
    axes::fit(together.iter_mut().chain(of_targets.iter_mut().flatten()));
    ExperimentCharts { together, of_targets }
}

/// The charts of one experiment at one target, of the cells that its verdicts rest on; others are
/// drawn hollow where a chart has a point for each cell.
fn of_trial(it: &DrawnTrial<'_>) -> Vec<Chart> {
    let DrawnTrial { trial, verdicts, .. } = it;
    let cells: Vec<&PlayedCell<'_>> = match trial.experiment {
        // What counts there is a number and not a time.
        "streams" | "connection" => trial.played.iter().collect(),
        _ => trial.sound().0,
    };
    if cells.is_empty() && trial.rollups.is_empty() && doubted(trial).is_empty() {
        return Vec::new();
    }
    let mut charts = match trial.experiment {
        "latency" => {
            let times = cells.iter().flat_map(|cell| cell.times()).collect();
            cdf("latency", "latency, ms", vec![("one at a time".to_owned(), times)])
        }
        "protocol" => protocol(&cells),
        "streams" => vec![failures(&cells, verdicts)],
        "bodies" => bodies(&cells, verdicts),
        "connection" => connection(&cells, verdicts),
        "rate" | "load" => offered::offered(it),
        "window" => vec![time::window(&cells, verdicts)],
        "throttle" => throttle::throttle(trial, &cells, verdicts),
        "cost" => cost(verdicts).into_iter().collect(),
        "soak" => time::soak(&trial.rollups, verdicts),
        _ => Vec::new(),
    };
    if matches!(trial.experiment, "latency" | "rate" | "load" | "replay") {
        charts.extend(time::heat(trial, it.all));
    }
    charts
}

/// The charts of one experiment that hold all targets.
fn of_all(run: &RunRecord, experiment: &str, all: &[Trial<'_>]) -> Vec<Chart> {
    let trials: Vec<&Trial<'_>> =
        all.iter().filter(|trial| trial.experiment == experiment).collect();
    let name = |trial: &Trial<'_>| {
        run.targets.get(trial.target as usize).map_or("?", |target| &target.id).to_owned()
    };
    let mut charts = match experiment {
        "fresh" => answers::freshness(run, all),
        "latency" | "load" | "rate" if trials.len() > 1 => {
            let times = |trial: &&Trial<'_>| {
                let lowest = trial.sound().0.into_iter().min_by(|a, b| {
                    let rate = |played: &PlayedCell<'_>| played.number("rate").unwrap_or(f64::MAX);
                    rate(a).total_cmp(&rate(b))
                });
                (name(trial), lowest.map(PlayedCell::times).unwrap_or_default())
            };
            let title = "latency at the lowest load, all targets";
            cdf(title, "latency, ms", trials.iter().map(times).collect())
        }
        "agree" => answers::agreement(run, all),
        _ => Vec::new(),
    };
    if trials.len() > 1 && errors::is_told(experiment) {
        charts.extend(errors::by_target(&trials, &name));
    }
    charts
}

/// Cells that conclude nothing, although calls were sent in them.
fn doubted<'a, 'r>(trial: &'a Trial<'r>) -> Vec<&'a PlayedCell<'r>> {
    let cells = trial.played.iter();
    cells.filter(|played| played.cell.load.saturated && !played.calls.is_empty()).collect()
}

/// The name of what is drawn of them.
const DOUBTED: &str = "doubted cells";

/// The figure of this word that was found; a bound is none.
fn figure_of(verdicts: &[&ExperimentVerdict], word: &str) -> Option<f64> {
    debug_assert!(figure_words().contains(&word));
    let mut told = verdicts.iter().flat_map(|verdict| figures(&verdict.finding));
    let found = told.find(|it| it.word == word && it.bound == FigureBound::Exactly);
    found.map(|it| it.value)
}

/// Lines where verdicts put figures, each a word of a figure and the word that stands at its line.
fn marks_of(verdicts: &[&ExperimentVerdict], words: &[(&str, &str)]) -> Vec<ChartMark> {
    let mark = |(word, label): &(&str, &str)| {
        let at = figure_of(verdicts, word)?;
        Some(ChartMark::x(at, format!("{label} {}", figure(at))))
    };
    words.iter().filter_map(mark).collect()
}

/// Places on an axis in their order, each of them once.
fn places(xs: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut xs: Vec<f64> = xs.collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

/// The mean of the shares of each size.
fn means(shares: &BTreeMap<u64, Vec<f64>>) -> Vec<Option<f64>> {
    shares.values().map(|all| Some(all.iter().sum::<f64>() / all.len() as f64)).collect()
}

/// Classes of calls, that with the most first.
fn totals<'a>(counts: impl Iterator<Item = (&'a String, &'a u64)>) -> Vec<(&'a str, u64)> {
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for (class, calls) in counts {
        *totals.entry(class).or_default() += calls;
    }
    let mut classes: Vec<(&str, u64)> = totals.into_iter().collect();
    classes.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    classes
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn opt(values: impl Iterator<Item = f64>) -> Vec<Option<f64>> {
    values.map(Some).collect()
}

/// The share of failed calls over the streams at once.
fn failures(cells: &[&PlayedCell<'_>], verdicts: &[&ExperimentVerdict]) -> Chart {
    let mut shares: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        if let Some(size) = cell.count("streams") {
            // A call that is refused for its rate was a stream nevertheless.
            let failed = cell.share(|call| call.error.is_some());
            shares.entry(size).or_default().push(100.0 * failed);
        }
    }
    Chart::Plot(Plot {
        title: "failed calls by concurrent streams".to_owned(),
        x: Axis::log("concurrent streams"),
        y: Axis::percent("failed, %"),
        xs: shares.keys().map(|size| *size as f64).collect(),
        series: vec![Series::new("failed calls", Style::Line, Ink::Bad, means(&shares))],
        marks: marks_of(verdicts, &[("cap", "cap")]),
    })
}

/// What methods count, the cheapest first; nothing where nothing was concluded.
fn cost(verdicts: &[&ExperimentVerdict]) -> Option<Chart> {
    let mut counts: Vec<(String, Vec<f64>)> = Vec::new();
    for verdict in verdicts {
        let Finding::Cost { method, base, observed_ratio, .. } = &verdict.finding else { continue };
        if counts.is_empty() {
            counts.push((base.clone(), vec![1.0]));
        }
        counts.push((method.clone(), vec![rounded(*observed_ratio)]));
    }
    counts.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    counts.truncate(FACETS_MAX);
    (!counts.is_empty()).then(|| {
        Chart::Stack(Stack {
            title: "cost of a call, as a multiple of the cheapest".to_owned(),
            x: Axis::new("multiple of the cheapest"),
            unit: "times",
            parts: vec!["cost of a call".to_owned()],
            bars: counts,
            marks: Vec::new(),
        })
    })
}
