//! What becomes of an offered rate, or of users.

use wellhead_eth::MethodTable;
use wellhead_upstream::{Provider, Tariff};

use super::super::chart::{Axis, Chart, ChartMark, Ink, MarkKind, Plot, Series, Style, rounded};
use super::{DOUBTED, DrawnTrial, doubted, errors, marks_of, opt};
use crate::conclude::verdict::{figure, see};
use crate::record::{MeasuredTarget, PlayedCell};

/// Plans of the catalogue whose limits are drawn.
const PLANS_MAX: usize = 3;

/// What a cell offered, and what of it was served.
struct LevelPoint<'a> {
    set: f64,
    served: f64,
    is_doubted: bool,
    cell: &'a PlayedCell<'a>,
}

/// All cells in the order of what they offered, and how that is told.
struct OfferedLevels<'a> {
    points: Vec<LevelPoint<'a>>,
    by_users: bool,
}

pub(super) fn offered(it: &DrawnTrial<'_>) -> Vec<Chart> {
    let (sound, doubted) = (it.trial.sound().0, doubted(it.trial));
    let by_users = it.trial.played.iter().any(|cell| cell.number("users").is_some());
    let mut points = level_points(&sound, by_users);
    let hollow = level_points(&doubted, by_users).into_iter();
    points.extend(hollow.map(|point| LevelPoint { is_doubted: true, ..point }));
    points.sort_by(|a, b| a.set.total_cmp(&b.set));
    let highest = points.last().map_or(0.0, |point| point.set);
    let levels = OfferedLevels { points, by_users };
    let limits = marks_of(it.verdicts, &[("limit", "limit"), ("capacity", "sustains")]);
    let mut marks = limits.clone();
    if let Some(target) = it.run.targets.get(it.trial.target as usize).filter(|_| !by_users) {
        marks.extend(predicted(target, &sound, highest));
    }
    let charts = [levels.throughput(marks), levels.latency(limits)].map(Chart::Plot);
    charts.into_iter().chain(levels.failures()).collect()
}

impl OfferedLevels<'_> {
    fn by(&self) -> &'static str {
        if self.by_users { "users" } else { "offered rate" }
    }

    fn axis(&self) -> Axis {
        Axis::new(if self.by_users { "users" } else { "offered, calls/s" })
    }

    fn xs(&self) -> Vec<f64> {
        self.points.iter().map(|point| rounded(point.set)).collect()
    }

    /// A figure of the cells that are sound, or of those that are not.
    fn of(
        &self,
        is_doubted: bool,
        value: impl Fn(&LevelPoint<'_>) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let one = |point| value(point).filter(|_| point.is_doubted == is_doubted);
        self.points.iter().map(one).collect()
    }

    fn hollow(&self, name: &str, value: impl Fn(&LevelPoint<'_>) -> Option<f64>) -> Option<Series> {
        let any = self.points.iter().any(|point| point.is_doubted);
        any.then(|| Series::new(name, Style::Hollow, Ink::Nth(0), self.of(true, value)))
    }

    fn throughput(&self, marks: Vec<ChartMark>) -> Plot {
        let xs = self.xs();
        let ideal = Series::new("offered", Style::Dashed, Ink::Quiet, opt(xs.iter().copied()));
        let mut series: Vec<Series> = (!self.by_users).then_some(ideal).into_iter().collect();
        let served = self.of(false, |point| Some(point.served));
        series.push(Series::new("served", Style::Line, Ink::Nth(0), served));
        series.extend(self.hollow(DOUBTED, |point| Some(point.served)));
        let (title, y) = (format!("throughput by {}", self.by()), Axis::new("served, calls/s"));
        Plot { title, x: self.axis(), y, xs, series, marks }
    }

    fn latency(&self, marks: Vec<ChartMark>) -> Plot {
        let took = |(n, (q, name)): (usize, (f64, &str))| {
            let data = self.of(false, |point| point.cell.took(q));
            Series::new(name, Style::Line, Ink::Nth(n), data)
        };
        let quantiles = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")];
        let mut series: Vec<Series> = quantiles.into_iter().enumerate().map(took).collect();
        series.extend(self.hollow("p50 of doubted cells", |point| point.cell.took(0.5)));
        let title = format!("latency by {}, from the intended start", self.by());
        Plot { title, x: self.axis(), y: Axis::log("latency, ms"), xs: self.xs(), series, marks }
    }

    fn failures(&self) -> Option<Chart> {
        let unit = if self.by_users { "users" } else { "calls/s" };
        let sound = self.points.iter().filter(|point| !point.is_doubted);
        let settings = sound.map(|it| (format!("{} {unit}", figure(it.set)), it.cell));
        errors::by_setting(settings.collect())
    }
}

/// Users offer what they are served: how many there are is what was set.
fn level_points<'a>(cells: &[&'a PlayedCell<'a>], by_users: bool) -> Vec<LevelPoint<'a>> {
    let point = |cell: &&'a PlayedCell<'a>| {
        let level = see::level_of(cell)?;
        let set = if by_users { cell.number("users")? } else { level.offered };
        let served = if by_users { cell.throughput()? } else { level.achieved };
        Some(LevelPoint { set, served, is_doubted: false, cell })
    };
    cells.iter().filter_map(point).collect()
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
            marks.push(ChartMark { kind: MarkKind::Predicted, ..ChartMark::x(limit, label) });
        }
    }
    marks.truncate(PLANS_MAX);
    marks
}
