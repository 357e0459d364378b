//! Figures over runs: what each run measured, in the order of time, as a table and as charts.
//!
//! Nothing is concluded here: whether two runs differ is told by `compare`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::axes;
use super::chart::{Axis, Chart, Ink, Plot, Series, Style, rounded};
use super::compare::Side;
use super::html::{place, wrap};
use crate::conclude::profile::date;
use crate::conclude::verdict::{
    Confidence, FigureBound, Unit, VerdictFigure, figure, figures, verdicts,
};
use crate::gate::MeasuredRun;
use crate::text::escaped;

/// Runs in a line of the terminal: the newest.
const COLUMNS_MAX: usize = 6;

/// Figures over runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHistory {
    /// For a terminal.
    pub text: String,
    /// A page of its own.
    pub html: String,
}

/// What is drawn: of a target, an experiment, a figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TrendKey {
    target: String,
    experiment: String,
    word: String,
}

/// One figure in each run.
struct RunTrend {
    unit: Unit,
    values: Vec<Option<VerdictFigure>>,
}

fn words(it: VerdictFigure) -> String {
    let sign = match it.bound {
        FigureBound::Exactly => "",
        FigureBound::AtLeast => ">=",
        FigureBound::AtMost => "<=",
    };
    format!("{sign}{}", figure(it.value))
}

impl RunTrend {
    /// From the first value that was measured to the last, percent.
    fn change(&self) -> Option<f64> {
        let mut told = self.values.iter().flatten().filter(|it| it.bound == FigureBound::Exactly);
        let first = told.next()?.value;
        let last = told.next_back()?.value;
        (first > 0.0).then(|| (last / first - 1.0) * 100.0)
    }
}

/// The figures of all runs, the oldest first, whatever their order is.
pub fn history(runs: &[Side<'_>]) -> RunHistory {
    let mut runs: Vec<Side<'_>> = runs.to_vec();
    runs.sort_by_key(|side| side.run.started_unix);
    let trends = trends(&runs);
    RunHistory { text: text(&runs, &trends), html: html(&runs, &trends) }
}

fn trends(runs: &[Side<'_>]) -> BTreeMap<TrendKey, RunTrend> {
    let mut trends: BTreeMap<TrendKey, RunTrend> = BTreeMap::new();
    for (n, side) in runs.iter().enumerate() {
        let mut add = |target: &str, experiment: &str, word: String, figure: VerdictFigure| {
            let (target, experiment) = (target.to_owned(), experiment.to_owned());
            let trend = trends.entry(TrendKey { target, experiment, word });
            let none = || RunTrend { unit: figure.unit, values: vec![None; runs.len()] };
            trend.or_insert_with(none).values[n] = Some(figure);
        };
        let measured = MeasuredRun::new(side.run, side.records);
        for (index, target) in side.run.targets.iter().enumerate() {
            for experiment in measured.experiments(index) {
                for found in measured.figures(index, experiment) {
                    add(&target.id, experiment, found.word.to_owned(), found);
                }
            }
        }
        for verdict in verdicts(side.run, side.records) {
            let Some(target) = side.run.targets.get(verdict.target as usize) else { continue };
            if verdict.confidence <= Confidence::Low {
                continue;
            }
            for found in figures(&verdict.finding) {
                add(&target.id, &verdict.experiment, format!("verdict {}", found.word), found);
            }
        }
    }
    trends
}

fn named(key: &TrendKey, unit: Unit) -> String {
    let name = match key.word.strip_prefix("verdict ") {
        Some(word) => format!("verdict {}.{word}", key.experiment),
        None => format!("{}.{}", key.experiment, key.word),
    };
    if unit == Unit::Count { name } else { format!("{name}, {}", unit.word()) }
}

fn text(runs: &[Side<'_>], trends: &BTreeMap<TrendKey, RunTrend>) -> String {
    const NAME: usize = 32;
    const COLUMN: usize = 17;
    let mut out = String::new();
    let first = runs.len().saturating_sub(COLUMNS_MAX);
    if first > 0 {
        let _ = writeln!(out, "{first} older runs are only in the HTML page");
    }
    let mut target = None;
    for (key, trend) in trends {
        if target != Some(&key.target) {
            target = Some(&key.target);
            let _ = write!(out, "{:NAME$}", key.target);
            for side in &runs[first..] {
                let _ = write!(out, " {:>COLUMN$}", date(side.run.started_unix));
            }
            out.push_str("   change\n");
        }
        let _ = write!(out, "{:NAME$}", format!("  {}", named(key, trend.unit)));
        for value in &trend.values[first..] {
            let told = value.map_or("-".to_owned(), words);
            let _ = write!(out, " {told:>COLUMN$}");
        }
        let change = trend.change().map(|change| format!("{change:+.0} %"));
        let _ = writeln!(out, " {:>8}", change.unwrap_or_default());
    }
    out.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

fn html(runs: &[Side<'_>], trends: &BTreeMap<TrendKey, RunTrend>) -> String {
    let mut charts = Vec::new();
    let mut out = String::from(
        "<header>\n<h1>Runs over time</h1>\n\
         <button id=\"theme\" type=\"button\">light or dark</button>\n</header>\n\
         <section><div class=\"wide\"><table class=\"overview plain\"><thead><tr><th>run</th><th>began, \
         UTC</th><th>note</th></tr></thead><tbody>\n",
    );
    for side in runs {
        let note = side.run.machine.note.as_deref().unwrap_or_default();
        let (name, began) = (escaped(side.name), date(side.run.started_unix));
        let _ = writeln!(out, "<tr><td>{name}</td><td>{began}</td><td>{}</td></tr>", escaped(note));
    }
    out.push_str("</tbody></table></div></section>\n");
    for section in sections(runs, trends) {
        let (target, experiment) = (escaped(section.target), escaped(section.experiment));
        let _ = writeln!(
            out,
            "<section><h2>{target}: {experiment}</h2>\n<div class=\"cards\"><article \
             class=\"card all\"><div class=\"plots\">"
        );
        place(&mut out, section.plots, &mut charts);
        out.push_str("</div></article></div></section>\n");
    }
    wrap("runs over time", &out, &charts)
}

/// What one experiment measured at one target.
struct TrendSection<'a> {
    target: &'a str,
    experiment: &'a str,
    plots: Vec<Chart>,
}

/// All sections; the charts of an experiment have the same axes at all targets.
fn sections<'a>(
    runs: &[Side<'_>],
    trends: &'a BTreeMap<TrendKey, RunTrend>,
) -> Vec<TrendSection<'a>> {
    let mut groups: BTreeMap<(&str, &str), Vec<(&TrendKey, &RunTrend)>> = BTreeMap::new();
    for (key, trend) in trends {
        groups.entry((&key.target, &key.experiment)).or_default().push((key, trend));
    }
    let section = |((target, experiment), group): ((&'a str, &'a str), Vec<_>)| TrendSection {
        target,
        experiment,
        plots: plots(runs, &group),
    };
    let mut sections: Vec<TrendSection<'a>> = groups.into_iter().map(section).collect();
    let experiments: BTreeSet<&str> = sections.iter().map(|it| it.experiment).collect();
    for experiment in experiments {
        let alike = sections.iter_mut().filter(|it| it.experiment == experiment);
        axes::fit(alike.flat_map(|it| &mut it.plots));
    }
    sections
}

/// The percentiles in one chart, each other figure in its own.
fn plots(runs: &[Side<'_>], group: &[(&TrendKey, &RunTrend)]) -> Vec<Chart> {
    const PERCENTILES: [&str; 4] = ["p50", "p90", "p95", "p99"];
    let (times, others): (Vec<_>, Vec<_>) =
        group.iter().partition(|(key, _)| PERCENTILES.contains(&key.word.as_str()));
    let mut plots = Vec::new();
    if !times.is_empty() {
        plots.push(plot("latency", "ms", runs, &times));
    }
    for it in others {
        plots.push(plot(&it.0.word, it.1.unit.word(), runs, &[it]));
    }
    plots
}

fn plot(title: &str, unit: &str, runs: &[Side<'_>], lines: &[&(&TrendKey, &RunTrend)]) -> Chart {
    let begin = runs.first().map_or(0, |side| side.run.started_unix);
    let days = |unix: u64| rounded((unix - begin) as f64 / 86_400.0);
    let series = lines.iter().enumerate().map(|(n, (key, trend))| {
        let values = trend.values.iter().map(|value| value.map(|it| it.value)).collect();
        Series::new(&key.word, Style::Line, Ink::Nth(n), values)
    });
    Chart::Plot(Plot {
        title: title.to_owned(),
        x: Axis::new(&format!("days since {}", date(begin))),
        y: Axis::new(&if unit.is_empty() { title.to_owned() } else { format!("{title}, {unit}") }),
        xs: runs.iter().map(|side| days(side.run.started_unix)).collect(),
        series: series.collect(),
        marks: Vec::new(),
    })
}
