//! What became of rows, for metrics and warnings.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sums since the start.
#[derive(Debug, Default)]
pub(crate) struct UsageCounts {
    file_rows: AtomicU64,
    file_dropped: AtomicU64,
    file_failures: AtomicU64,
    delivered_rows: AtomicU64,
    push_dropped: AtomicU64,
    delivered_crossings: AtomicU64,
    crossings_dropped: AtomicU64,
    delivery_failures: AtomicU64,
}

impl UsageCounts {
    /// Each with the name of its outlet and what it counts.
    pub(crate) fn all(&self) -> [(&'static str, &'static str, u64); 8] {
        let of = |count: &AtomicU64| count.load(Relaxed);
        [
            ("file", "written", of(&self.file_rows)),
            ("file", "dropped", of(&self.file_dropped)),
            ("file", "failed_attempts", of(&self.file_failures)),
            ("push", "written", of(&self.delivered_rows)),
            ("push", "dropped", of(&self.push_dropped)),
            ("webhook", "written", of(&self.delivered_crossings)),
            ("webhook", "dropped", of(&self.crossings_dropped)),
            ("push_and_webhook", "failed_attempts", of(&self.delivery_failures)),
        ]
    }

    pub(super) fn written(&self, rows: usize) {
        self.file_rows.fetch_add(rows as u64, Relaxed);
    }

    /// Whether it is the first failure.
    pub(super) fn write_failed(&self) -> bool {
        self.file_failures.fetch_add(1, Relaxed) == 0
    }

    pub(super) fn delivered(&self, rows: usize, crossings: usize) {
        self.delivered_rows.fetch_add(rows as u64, Relaxed);
        self.delivered_crossings.fetch_add(crossings as u64, Relaxed);
    }

    pub(super) fn delivery_failed(&self) {
        self.delivery_failures.fetch_add(1, Relaxed);
    }

    pub(super) fn dropped_by_file(&self, rows: usize) {
        tell(&self.file_dropped, rows, "the disk does not take usage: the oldest rows are dropped");
    }

    pub(super) fn dropped_by_push(&self, rows: usize) {
        tell(
            &self.push_dropped,
            rows,
            "the store does not take usage: the oldest rows are dropped",
        );
    }

    pub(super) fn dropped_crossings(&self, crossings: usize) {
        let words = "the webhook takes no quota events: the oldest are dropped";
        tell(&self.crossings_dropped, crossings, words);
    }
}

/// The first time only: then it goes on and on, and is a metric.
fn tell(count: &AtomicU64, more: usize, words: &str) {
    if more > 0 && count.fetch_add(more as u64, Relaxed) == 0 {
        tracing::warn!(more, "{words}");
    }
}
