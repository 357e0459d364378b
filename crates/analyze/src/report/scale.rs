//! From values to places on a chart, and where an axis has its ticks.
//!
//! Ends of an axis are round numbers, so that the charts of all targets can have the same ones and
//! a reader can name them. A log axis begins above zero: what is not above zero stands at its end.

use super::chart::Axis;

/// Steps of an axis that has even ones.
const STEPS: f64 = 5.0;

/// A log axis spans no more than this factor: smaller values stand at its lower end.
const SPAN_MAX: f64 = 1e5;

/// Powers of ten from which on a log axis has a tick at these alone.
const DECADES_OF_POWERS: f64 = 2.5;

/// Where the values of an axis are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// Of an axis, whose lower end is drawn at `start` and whose upper end at `end`. An axis that
    /// nothing was [fitted](super::axes) to goes from 0 to 1.
    pub(super) fn new(axis: &Axis, start: f64, end: f64) -> Self {
        let (from, to) = axis.range.unwrap_or(if axis.log { (1.0, 10.0) } else { (0.0, 1.0) });
        Self { from, to, log: axis.log, start, end }
    }

    /// Where a value is drawn; what is beyond an end, at that end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Where its lower end is drawn.
    pub(super) fn start(&self) -> f64 {
        self.start
    }

    /// Whether a value lies between the ends.
    pub(super) fn holds(&self, value: f64) -> bool {
        let beyond = 1e-9 * self.to.abs().max(self.from.abs());
        value >= self.from - beyond && value <= self.to + beyond
    }

    /// The values at which ticks stand, in order, both within the ends.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let ticks = if self.log { log_ticks(self.from, self.to) } else { even(self.from, self.to) };
        ticks.into_iter().filter(|tick| self.holds(*tick)).collect()
    }
}

/// Round ends of an axis with even steps that holds `low` and `high`. It begins at zero where all
/// is above it: a part of an axis makes small differences large.
pub(super) fn even_ends(low: f64, high: f64) -> (f64, f64) {
    let (low, high) = (low.min(0.0), high.max(low.min(0.0)));
    let span = if high > low { high - low } else { 1.0 };
    let step = round_up(span / STEPS);
    let from = (low / step).floor() * step;
    let to = (high / step - 1e-9).ceil() * step;
    (from, if to > from { to } else { from + step })
}

/// Round ends of a log axis that holds all above zero of `low` to `high`.
pub(super) fn log_ends(low: f64, high: f64) -> (f64, f64) {
    if high.is_nan() || high <= 0.0 {
        return (1.0, 10.0);
    }
    let low = low.max(high / SPAN_MAX);
    let (from, to) = (round_down(low), round_up(high));
    let to = if to > from { to } else { round_up(from * 1.5) };
    match (to / from).log10() > DECADES_OF_POWERS {
        true => (power_below(from), power_above(to)),
        false => (from, to),
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = power_below(value);
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

fn round_down(value: f64) -> f64 {
    let power = power_below(value);
    let steps = [5.0, 2.0, 1.0].map(|step| step * power);
    steps.into_iter().find(|step| *step <= value * (1.0 + 1e-9)).unwrap_or(power)
}

fn power_below(value: f64) -> f64 {
    10_f64.powf((value.log10() + 1e-9).floor())
}

fn power_above(value: f64) -> f64 {
    10_f64.powf((value.log10() - 1e-9).ceil())
}

fn even(from: f64, to: f64) -> Vec<f64> {
    let step = round_up((to - from) / STEPS);
    let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let steps: &[f64] = match (to / from).log10() > DECADES_OF_POWERS {
        true => &[1.0],
        false => &[1.0, 2.0, 5.0],
    };
    let (first, last) = (power_below(from).log10().round(), power_above(to).log10().round());
    let powers = (first as i32..=last as i32).map(|power| 10_f64.powi(power));
    powers.flat_map(|power| steps.iter().map(move |step| step * power)).collect()
}

/// The label of a tick: three figures, `12k` and `1.5M` for large ones.
pub(super) fn tick_label(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        return format!("{}M", tick_label(value / 1e6));
    }
    if size >= 1e4 {
        return format!("{}k", tick_label(value / 1e3));
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    let decimals = (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
