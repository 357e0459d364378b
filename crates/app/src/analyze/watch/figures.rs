//! What `analyze watch` exports of each target. One list, from which both Prometheus and OTLP are written.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use wellhead_analyze::conclude::verdict::{BlockLag, Finding, FindingBound};
use wellhead_analyze::monitor::{MonitoredTarget, SpendBounds, TrackedLimit};
use wellhead_telemetry::series::{self, EncodeResult};

/// Whether it only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureKind {
    Gauge,
    Counter,
}

/// One family of figures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FigureFamily {
    /// Without the suffix `_total` of a counter.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FigureKind,
    pub(super) series: Vec<FigureSeries>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FigureSeries {
    pub(super) target: String,
    pub(super) quantile: Option<&'static str>,
    pub(super) value: f64,
}

impl FigureSeries {
    /// Its labels, by their names.
    pub(super) fn labels(&self) -> Vec<(&'static str, &str)> {
        let quantile = self.quantile.map(|quantile| ("quantile", quantile));
        std::iter::once(("target", self.target.as_str())).chain(quantile).collect()
    }
}

/// A figure and how it is read from a target.
struct FigureRow {
    name: &'static str,
    help: &'static str,
    kind: FigureKind,
    quantile: Option<&'static str>,
    read: fn(&MonitoredTarget, &FigureTime) -> Option<f64>,
}

/// When the figures are told, and within which bounds.
struct FigureTime {
    bounds: SpendBounds,
    now_unix: u64,
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&MonitoredTarget, &FigureTime) -> Option<f64>,
) -> FigureRow {
    FigureRow { name, help, kind: FigureKind::Gauge, quantile: None, read }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&MonitoredTarget, &FigureTime) -> Option<f64>,
) -> FigureRow {
    FigureRow { name, help, kind: FigureKind::Counter, quantile: None, read }
}

const LATENCY: &str = "wellhead_watch_latency_seconds";
const LATENCY_HELP: &str = "Time of a call when nothing else is asked, by the last round";

/// All of them; rows of one family stand together.
const ROWS: &[FigureRow] = &[
    gauge(
        "wellhead_watch_up",
        "1 if the target answered when it was last asked, otherwise 0",
        |target, _| target.is_up.map(f64::from),
    ),
    FigureRow {
        quantile: Some("0.5"),
        ..gauge(LATENCY, LATENCY_HELP, |target, _| latency_ms(target, |p50, _| p50))
    },
    FigureRow {
        quantile: Some("0.95"),
        ..gauge(LATENCY, LATENCY_HELP, |target, _| latency_ms(target, |_, p95| p95))
    },
    gauge(
        "wellhead_watch_rate_limit_calls_per_second",
        "The known limit; absent if none was found",
        |target, _| target.limit().per_second(),
    ),
    gauge(
        "wellhead_watch_burst_calls",
        "Calls that pass at once before the limit refuses; absent if not known",
        |target, _| match target.limit() {
            TrackedLimit::Limited(bound) => bound.size,
            TrackedLimit::Unknown | TrackedLimit::NoneUpTo(_) | TrackedLimit::Concurrency => None,
        },
    ),
    gauge("wellhead_watch_head_block", "Newest block, by the last round", |target, _| {
        target.block.map(|block| block as f64)
    }),
    gauge(
        "wellhead_watch_head_lag_seconds",
        "How much later than the others the target shows new blocks (median); absent with one target",
        |target, _| {
            target.verdicts.iter().find_map(|verdict| match verdict.finding {
                Finding::Lag(FindingBound::Found(BlockLag { ms, .. })) => Some(ms / 1e3),
                Finding::Lag(FindingBound::NotUpTo(_)) => Some(0.0),
                _ => None,
            })
        },
    ),
    gauge(
        "wellhead_watch_answered_timestamp_seconds",
        "When the target answered last, as seconds since 1970",
        |target, _| target.answered_at.map(|at| at as f64),
    ),
    gauge(
        "wellhead_watch_budget_left_calls",
        "Calls that the budget of the last hour and day still allows",
        |target, time| Some(target.left(time.bounds, time.now_unix) as f64),
    ),
    counter("wellhead_watch_calls", "Calls that were sent", |target, _| {
        Some(target.counts.calls as f64)
    }),
    counter("wellhead_watch_rounds", "Rounds of probes", |target, _| {
        Some(target.counts.rounds as f64)
    }),
    counter("wellhead_watch_studies", "Studies of the limit", |target, _| {
        Some(target.counts.studies as f64)
    }),
    counter(
        "wellhead_watch_limit_changes",
        "Times that a study found another limit than was known",
        |target, _| Some(target.counts.changes as f64),
    ),
];

fn latency_ms(target: &MonitoredTarget, of: fn(f64, f64) -> f64) -> Option<f64> {
    target.verdicts.iter().find_map(|verdict| match verdict.finding {
        Finding::Takes { p50_ms, p95_ms } => Some(of(p50_ms, p95_ms) / 1e3),
        _ => None,
    })
}

/// The figures of all targets. A family without a figure is there as well.
pub(super) fn figures(
    targets: &[MonitoredTarget],
    bounds: SpendBounds,
    now_unix: u64,
) -> Vec<FigureFamily> {
    let time = FigureTime { bounds, now_unix };
    let mut families: Vec<FigureFamily> = Vec::new();
    for row in ROWS {
        let series = targets.iter().filter_map(|target| {
            let (target, value) = (target.target.id.clone(), (row.read)(target, &time)?);
            Some(FigureSeries { target, quantile: row.quantile, value })
        });
        match families.last_mut() {
            Some(last) if last.name == row.name => last.series.extend(series),
            Some(_) | None => families.push(FigureFamily {
                name: row.name,
                help: row.help,
                kind: row.kind,
                series: series.collect(),
            }),
        }
    }
    families
}

/// The figures as Prometheus reads them.
#[derive(Debug)]
pub(super) struct FigureCollector(pub(super) Vec<FigureFamily>);

impl Collector for FigureCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        for FigureFamily { name, help, kind, series: all } in &self.0 {
            let rows = all.iter().map(|it| (it.labels(), it.value));
            match kind {
                FigureKind::Gauge => series::gauge(&mut encoder, name, help, rows)?,
                FigureKind::Counter => series::counter(&mut encoder, name, help, rows)?,
            }
        }
        Ok(())
    }
}
