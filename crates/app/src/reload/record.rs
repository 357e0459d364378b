//! How reloads went, for the status page and the metrics.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_proxy::ConfigStatus;
use wellhead_telemetry::series::{EncodeResult, by, counter};

/// Shared by the control thread, which writes it, and the admin pages.
#[derive(Debug, Clone)]
pub(crate) struct ReloadRecord(Arc<Mutex<ReloadOutcomes>>);

#[derive(Debug, Clone)]
struct ReloadOutcomes {
    status: ConfigStatus,
    failed: u64,
}

impl ReloadRecord {
    /// Settings were applied for the first time at `unix`.
    pub(crate) fn new(unix: u64) -> Self {
        let (generation, needs_restart) = (1, Vec::new());
        let status = ConfigStatus { generation, read_at: unix, last_error: None, needs_restart };
        Self(Arc::new(Mutex::new(ReloadOutcomes { status, failed: 0 })))
    }

    pub(crate) fn status(&self) -> ConfigStatus {
        self.0.lock().status.clone()
    }

    /// Settings were read that can be used; returns the generation. `is_applied`: they differ from those in use.
    pub(crate) fn note_read(&self, is_applied: bool, needs_restart: Vec<String>, unix: u64) -> u64 {
        let status = &mut self.0.lock().status;
        status.generation += u64::from(is_applied);
        (status.last_error, status.needs_restart) = (None, needs_restart);
        status.read_at = unix;
        status.generation
    }

    /// Settings cannot be used; returns whether they could be before, or could not for another reason.
    pub(crate) fn note_failed(&self, problem: &str) -> bool {
        let mut outcomes = self.0.lock();
        let is_news = outcomes.status.last_error.as_deref() != Some(problem);
        outcomes.status.last_error = Some(problem.to_owned());
        outcomes.failed += 1;
        is_news
    }

    /// Whether the settings that were read last cannot be used.
    pub(crate) fn is_failing(&self) -> bool {
        self.0.lock().status.last_error.is_some()
    }

    /// The series of reloads.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let ReloadOutcomes { status, failed } = self.0.lock().clone();
        let gauges = [
            (
                "wellhead_config_last_reload_successful",
                "1 if the settings that were read last can be used, otherwise 0",
                u64::from(status.last_error.is_none()),
            ),
            (
                "wellhead_config_last_reload_success_timestamp_seconds",
                "When settings that can be used were read last, in seconds since 1970",
                status.read_at,
            ),
            (
                "wellhead_config_needs_restart",
                "Settings of the file that wait for a restart",
                status.needs_restart.len() as u64,
            ),
        ];
        for (name, help, value) in gauges {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        let results = [("applied", status.generation - 1), ("failed", failed)];
        counter(
            encoder,
            "wellhead_config_reloads",
            "Reloads, by whether the settings could be used; those without a change are not counted",
            by("result", results),
        )
    }
}
