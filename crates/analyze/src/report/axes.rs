//! Common ends for the charts of all targets, so that what looks longer is longer.
//!
//! Charts are alike where their titles are, up to a colon: a waterfall counts its calls behind one.

use std::collections::BTreeMap;

use super::chart::{Axis, Chart, ChartMark, MarkKind};
use super::scale::{even_ends, log_ends};

/// The least and the greatest value of an axis that all of its charts have to hold.
#[derive(Debug, Clone, Copy)]
struct AxisExtent {
    low: f64,
    high: f64,
    /// The least above zero, for a log axis.
    low_above_zero: f64,
}

/// What charts that are alike hold.
#[derive(Debug, Clone, Copy)]
struct ChartExtents {
    x: AxisExtent,
    y: AxisExtent,
}

/// Gives each axis that has no ends those that hold the data of all charts that are alike.
pub(super) fn fit<'a>(charts: impl IntoIterator<Item = &'a mut Chart>) {
    let mut charts: Vec<&mut Chart> = charts.into_iter().collect();
    let mut held: BTreeMap<String, ChartExtents> = BTreeMap::new();
    for chart in &charts {
        let all = held.entry(kin(chart)).or_insert_with(ChartExtents::nothing);
        all.add(chart);
    }
    for chart in &mut charts {
        if let Some(all) = held.get(&kin(chart)) {
            all.set(chart);
        }
    }
}

/// What charts that are alike have in common.
fn kin(chart: &Chart) -> String {
    let kind: &str = chart.into();
    // All waterfalls of an experiment stand beside each other.
    let title = if matches!(chart, Chart::Waterfall(_)) { "" } else { chart.title() };
    format!("{kind} {}", title.split_once(':').map_or(title, |(before, _)| before))
}

impl AxisExtent {
    fn nothing() -> Self {
        Self { low: f64::INFINITY, high: f64::NEG_INFINITY, low_above_zero: f64::INFINITY }
    }

    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        if value > 0.0 {
            self.low_above_zero = self.low_above_zero.min(value);
        }
    }

    fn set(self, axis: &mut Axis) {
        if axis.range.is_some() {
            return;
        }
        axis.range = Some(match (self.high >= self.low, axis.log) {
            (false, true) => log_ends(1.0, 10.0),
            (false, false) => even_ends(0.0, 1.0),
            (true, true) => log_ends(self.low_above_zero, self.high),
            (true, false) => even_ends(self.low, self.high),
        });
    }
}

impl ChartExtents {
    fn nothing() -> Self {
        Self { x: AxisExtent::nothing(), y: AxisExtent::nothing() }
    }

    fn add(&mut self, chart: &Chart) {
        match chart {
            Chart::Plot(plot) => {
                plot.xs.iter().for_each(|x| self.x.add(*x));
                let values = plot.series.iter().flat_map(|series| &series.data).flatten();
                values.for_each(|y| self.y.add(*y));
                self.add_marks(&plot.marks);
            }
            Chart::Stack(stack) => {
                self.x.add(0.0);
                stack.bars.iter().for_each(|(_, parts)| self.x.add(parts.iter().sum()));
                self.add_marks(&stack.marks);
            }
            Chart::Waterfall(fall) => {
                self.x.add(0.0);
                fall.end.iter().for_each(|end| self.x.add(*end));
            }
            // A grid has the same for all targets from the beginning.
            Chart::Heat(_) | Chart::Matrix(_) => {}
        }
    }

    /// A verdict's line is always seen.
    fn add_marks(&mut self, marks: &[ChartMark]) {
        for mark in marks.iter().filter(|mark| mark.kind == MarkKind::Verdict) {
            mark.x.into_iter().for_each(|x| self.x.add(x));
            mark.y.into_iter().for_each(|y| self.y.add(y));
        }
    }

    fn set(&self, chart: &mut Chart) {
        match chart {
            Chart::Plot(plot) => {
                self.x.set(&mut plot.x);
                self.y.set(&mut plot.y);
            }
            Chart::Stack(stack) => self.x.set(&mut stack.x),
            Chart::Waterfall(fall) => self.x.set(&mut fall.x),
            Chart::Heat(_) | Chart::Matrix(_) => {}
        }
    }
}
