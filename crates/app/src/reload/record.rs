//! How reloads went, for the status page and the metrics.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, by, counter, gauge};

/// What is told of reloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReloadStatus {
    /// How often settings were applied, the start included.
    pub(crate) generation: u64,
    /// When settings that can be used were read last, in seconds since 1970.
    pub(crate) read_at: u64,
    /// Why the last reload could not be done; `None` where it could.
    pub(crate) last_error: Option<String>,
    /// The settings of the file that wait for a restart.
    pub(crate) needs_restart: Vec<String>,
    failed: u64,
}

/// Shared by the control thread, which writes it, and the admin pages.
#[derive(Debug, Clone)]
pub(crate) struct ReloadRecord(Arc<Mutex<ReloadStatus>>);

impl ReloadRecord {
    /// Settings were applied for the first time at `unix`.
    pub(crate) fn new(unix: u64) -> Self {
        Self(Arc::new(Mutex::new(ReloadStatus {
            generation: 1,
            read_at: unix,
            last_error: None,
            needs_restart: Vec::new(),
            failed: 0,
        })))
    }

    pub(crate) fn status(&self) -> ReloadStatus {
        self.0.lock().clone()
    }

    /// Settings were read that can be used; returns the generation. `is_applied`: they differ from those in use.
    pub(crate) fn note_read(&self, is_applied: bool, needs_restart: Vec<String>, unix: u64) -> u64 {
        let mut status = self.0.lock();
        status.generation += u64::from(is_applied);
        (status.last_error, status.needs_restart) = (None, needs_restart);
        status.read_at = unix;
        status.generation
    }

    /// Settings cannot be used; returns whether they could be before, or could not for another reason.
    pub(crate) fn note_failed(&self, problem: &str) -> bool {
        let mut status = self.0.lock();
        let is_news = status.last_error.as_deref() != Some(problem);
        status.last_error = Some(problem.to_owned());
        status.failed += 1;
        is_news
    }

    /// Whether the settings that were read last cannot be used.
    pub(crate) fn is_failing(&self) -> bool {
        self.0.lock().last_error.is_some()
    }

    /// The series of reloads.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let status = self.status();
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
            gauge(encoder, name, help, [(NO_LABELS, value)])?;
        }
        let results = [("applied", status.generation - 1), ("failed", status.failed)];
        counter(
            encoder,
            "wellhead_config_reloads",
            "Reloads, by whether the settings could be used; those without a change are not counted",
            by("result", results),
        )
    }
}
