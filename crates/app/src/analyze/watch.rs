//! `wellhead analyze watch`: a monitor (`wellhead_analyze::monitor`), its lines on standard output, its metrics.

mod figures;
mod otlp;
mod pages;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::run::StopSignal;
use wellhead_analyze::monitor::{
    Monitor, MonitorEvent, MonitorObserver, MonitorRunTerms, MonitorTerms, MonitoredTarget,
    SpendBounds,
};
use wellhead_analyze::work::WorkKind;
use wellhead_telemetry::{SecretUrl, clock};

use self::figures::figures;
use self::otlp::MetricExporter;
use self::pages::SharedFigures;
use super::{ended, endpoint, has_place, host_of, is_meant, stop_at_signals};
use crate::cli::analyze::watch::WatchArgs;
use crate::serve;
use crate::target::run_terms;
use crate::terminal::{CommandError, complain, say};

/// At the end, for the last export and the connections of the listener.
const END_MAX: Duration = Duration::from_secs(5);
const DAYS_OF_MONTH: f64 = 30.0;

/// Watches until a signal ends it.
pub(super) fn command(it: &WatchArgs) -> Result<(), CommandError> {
    let endpoints = endpoint::endpoints(&it.targets)?;
    it.profile.as_deref().map_or(Ok(()), has_place)?;
    let figures = SharedFigures::default();
    let exporter = exporter(it, &figures)?;
    for endpoint in &endpoints {
        complain(&budget_line(endpoint, it));
    }
    if it.dry_run {
        return Ok(());
    }
    if endpoints.iter().any(|endpoint| !endpoint.is_private()) && !it.yes && !is_meant()? {
        return Err(CommandError::Config("nothing was sent".to_owned()));
    }
    let runtime = serve::runtime().map_err(CommandError::system)?;
    runtime.block_on(watch(it, &endpoints, figures, exporter))
}

fn exporter(
    it: &WatchArgs,
    figures: &SharedFigures,
) -> Result<Option<MetricExporter>, CommandError> {
    let Some(text) = &it.otlp else { return Ok(None) };
    let wrong = |why: String| CommandError::Config(format!("`--otlp`: {why}"));
    let url = SecretUrl::parse(text).map_err(|why| wrong(why.to_string()))?;
    let headers = endpoint::headers("--otlp-header", &it.otlp_header)?;
    MetricExporter::new(url, headers, figures.clone()).map(Some).map_err(wrong)
}

/// What a target may be sent, and what that costs in a month at most.
fn budget_line(endpoint: &TargetEndpoint, it: &WatchArgs) -> String {
    let per_day = it.calls_per_day.min(it.calls_per_hour.saturating_mul(24));
    let methods = WorkKind::Cheap.methods();
    let each = methods.iter().map(|(method, share)| Some(endpoint.credits(method)? * share));
    let each: Option<f64> = each.sum();
    let month = |each: f64| each * per_day as f64 * DAYS_OF_MONTH;
    let cost =
        endpoint.target.price.as_ref().zip(each).map(|(price, each)| price.told(month(each)));
    let cost = cost.map_or(String::new(), |cost| format!(", {cost} in 30 days"));
    format!(
        "{}: at most {} calls in an hour and {per_day} in a day{cost}",
        endpoint.target.id, it.calls_per_hour
    )
}

async fn watch(
    it: &WatchArgs,
    endpoints: &[TargetEndpoint],
    figures: SharedFigures,
    exporter: Option<MetricExporter>,
) -> Result<(), CommandError> {
    let listener = match it.metrics {
        Some(at) => {
            let served = pages::serve(at, figures.clone()).map_err(|error| {
                CommandError::System(format!("`--metrics {at}`: cannot listen: {error}"))
            })?;
            say(&format!("metrics: http://{}/metrics", served.address));
            Some(served)
        }
        None => None,
    };
    let stop = stop_at_signals();
    let export = exporter.map(|exporter| tokio::spawn(exported(exporter, Arc::clone(&stop))));
    let played = monitor(it, endpoints, figures, &stop).await;
    // Also where it ended by an error.
    stop.set();
    let end = async {
        if let Some(export) = export {
            let _ = export.await;
        }
        if let Some(listener) = listener {
            listener.shutdown.begin();
            let _ = listener.task.await;
        }
    };
    let _ = tokio::time::timeout(END_MAX, end).await;
    played
}

/// Exports until the watch is to stop, and once more.
async fn exported(mut exporter: MetricExporter, stop: Arc<StopSignal>) {
    tokio::select! {
        () = exporter.run() => {}
        () = stop.wait() => {}
    }
    exporter.export().await;
}

async fn monitor(
    it: &WatchArgs,
    endpoints: &[TargetEndpoint],
    figures: SharedFigures,
    stop: &StopSignal,
) -> Result<(), CommandError> {
    let usual = || PathBuf::from(format!("wellhead-watch-{}", host_of(endpoints)));
    let dir = it.out.clone().unwrap_or_else(usual);
    let bounds = SpendBounds { per_hour: it.calls_per_hour, per_day: it.calls_per_day };
    let terms = MonitorTerms {
        bounds,
        every: Duration::from_secs(it.every),
        rate_max: it.to,
        rate_lasting: Duration::from_secs(it.seconds),
    };
    let run = run_terms(it.targets.seed, clock::unix_seconds(), it.targets.note.clone());
    let play = MonitorRunTerms { run, is_precise: true, cpu: None };
    let mut desk = WatchDesk { profile: it.profile.as_deref(), bounds, figures };
    let monitor = Monitor::new(&dir, terms, play, endpoints, stop, &mut desk);
    let monitor = monitor.map_err(|error| ended(&error))?;
    monitor.run().await.map_err(|error| ended(&error))?;
    say(&format!("records and state: {}", dir.display()));
    Ok(())
}

/// Prints what happens and passes the figures on.
struct WatchDesk<'a> {
    profile: Option<&'a Path>,
    bounds: SpendBounds,
    figures: SharedFigures,
}

/// A line of the log, with its time.
fn line(text: &str) {
    say(&format!("{} {text}", super::stamp(clock::unix_seconds())));
}

impl MonitorObserver for WatchDesk<'_> {
    fn event(&mut self, target: &MonitoredTarget, event: &MonitorEvent) {
        line(&format!("{}: {event}", target.target.id));
    }

    fn updated(&mut self, targets: &[MonitoredTarget], now_unix: u64) {
        self.figures.set(figures(targets, self.bounds, now_unix));
    }

    fn profile(&mut self, text: &str) {
        let Some(path) = self.profile else { return };
        // In its place at once: the proxy may read it at any time.
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        match written {
            Ok(()) => line(&format!("profile written: {}", path.display())),
            Err(error) => line(&format!("`{}` cannot be written: {error}", path.display())),
        }
    }
}
