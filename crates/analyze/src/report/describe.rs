//! A chart in words, for those who do not see it.

use super::chart::{Axis, Chart, ChartMark, Heat, MarkKind, Plot, Stack};
use crate::conclude::verdict::figure;

/// Series or rows that are told one by one.
const TOLD_MAX: usize = 8;

/// What a chart shows: its axes, each series from its first to its last value, and its lines. The
/// figures themselves are in the table below it.
pub(super) fn description(chart: &Chart) -> String {
    let mut told = match chart {
        Chart::Plot(plot) => of_plot(plot),
        Chart::Stack(stack) => of_stack(stack),
        Chart::Waterfall(fall) => {
            let failed = fall.good.iter().filter(|good| !**good).count();
            format!(
                "Calls in the order of their start, a bar each, over {}. {} calls are shown, \
                 {failed} of them failed; the last one ended at {}.",
                fall.x.label,
                fall.begin.len(),
                figure(fall.end.iter().copied().fold(0.0, f64::max)),
            )
        }
        Chart::Matrix(matrix) => {
            let columns = matrix.columns.join(", ");
            let differ = matrix.rows.iter().filter(|row| row.1.iter().any(|it| it.0 < it.1));
            let names: Vec<&str> = differ.map(|(name, _)| name.as_str()).take(TOLD_MAX).collect();
            let differ = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("A row for each method, columns: {columns}. Methods that differ: {differ}.")
        }
        Chart::Heat(heat) => of_heat(heat),
    };
    told.push_str(" All figures are in the table below the chart.");
    told
}

fn axis(name: &str, axis: &Axis) -> String {
    let log = if axis.log { ", logarithmic" } else { "" };
    match axis.range {
        Some((from, to)) => {
            format!("{name}: {}, from {} to {}{log}.", axis.label, figure(from), figure(to))
        }
        None => format!("{name}: {}{log}.", axis.label),
    }
}

fn of_plot(plot: &Plot) -> String {
    let mut told = vec![axis("Across", &plot.x), axis("Upward", &plot.y)];
    for series in plot.series.iter().take(TOLD_MAX) {
        let points: Vec<(f64, f64)> =
            plot.xs.iter().zip(&series.data).filter_map(|(x, y)| Some((*x, (*y)?))).collect();
        let name = &series.name;
        told.push(match (points.first(), points.last()) {
            (Some(first), Some(last)) if points.len() > 1 => format!(
                "{name}: {} at {}, {} at {}.",
                figure(first.1),
                figure(first.0),
                figure(last.1),
                figure(last.0)
            ),
            (Some(only), _) => format!("{name}: {} at {}.", figure(only.1), figure(only.0)),
            (None, _) => format!("{name}: no figures."),
        });
    }
    told.extend(marks(&plot.marks));
    told.join(" ")
}

fn of_stack(stack: &Stack) -> String {
    let mut told = vec![axis("Bars along", &stack.x)];
    for (name, parts) in stack.bars.iter().take(TOLD_MAX) {
        let sum: f64 = parts.iter().sum();
        told.push(format!("{name}: {} {}.", figure(sum), stack.unit));
    }
    told.extend(marks(&stack.marks));
    told.join(" ")
}

fn of_heat(heat: &Heat) -> String {
    let served: u64 = heat.counts.iter().flatten().sum();
    let failed: u64 = heat.failed.iter().sum();
    let middles = || heat.median.iter().flatten().copied();
    let (low, high) =
        (middles().fold(f64::INFINITY, f64::min), middles().fold(f64::NEG_INFINITY, f64::max));
    let medians = match high >= low {
        true => format!(" The median lies between {} and {}.", figure(low), figure(high)),
        false => String::new(),
    };
    format!(
        "{} {} The darker, the more calls: {served} were served, {failed} were not.{medians}",
        axis("Across", &heat.x),
        axis("Upward", &heat.y)
    )
}

fn marks(marks: &[ChartMark]) -> Option<String> {
    let told: Vec<&str> =
        marks.iter().filter(|it| it.kind != MarkKind::Guide).map(|it| it.label.as_str()).collect();
    (!told.is_empty()).then(|| format!("Lines: {}.", told.join(", ")))
}
