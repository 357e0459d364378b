//! What is told of studies, for `/metrics` and `/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;
use wellhead_proxy::StudyStatus;
use wellhead_telemetry::series::{EncodeResult, counter, gauge};

/// Which upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StudyKey {
    pub(crate) chain: Arc<str>,
    pub(crate) upstream: String,
}

/// Written by the thread of studies, read by the admin pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct StudyRecord(Arc<Mutex<BTreeMap<StudyKey, StudyStatus>>>);

impl StudyRecord {
    /// Forgets the others.
    pub(super) fn keep(&self, is_studied: impl Fn(&StudyKey) -> bool) {
        self.0.lock().retain(|key, _| is_studied(key));
    }

    /// Changes what is told of an upstream.
    pub(super) fn change(&self, key: &StudyKey, change: impl FnOnce(&mut StudyStatus)) {
        change(self.0.lock().entry(key.clone()).or_default());
    }

    /// What is told of an upstream; `None` if it is not studied.
    pub(crate) fn of(&self, chain: &str, upstream: &str) -> Option<StudyStatus> {
        let studied = self.0.lock();
        let mut it = studied.iter();
        let found = it.find(|(key, _)| &*key.chain == chain && key.upstream == upstream);
        found.map(|(_, status)| status.clone())
    }

    /// The series of studies.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let studied = self.0.lock().clone();
        let rows = || {
            studied.iter().map(|(key, status)| {
                ([("chain", &*key.chain), ("upstream", key.upstream.as_str())], status)
            })
        };
        for (name, help, read) in GAUGES {
            let rows = rows().filter_map(|(labels, status)| Some((labels, read(status)?)));
            gauge(encoder, name, help, rows)?;
        }
        for (name, help, read) in COUNTERS {
            let rows = rows().map(|(labels, status)| (labels, read(status)));
            counter(encoder, name, help, rows)?;
        }
        Ok(())
    }
}

/// A family, its help, and how it is read.
type StudyFamily<N> = (&'static str, &'static str, fn(&StudyStatus) -> N);

const GAUGES: [StudyFamily<Option<f64>>; 4] = [
    (
        "wellhead_study_rate_limit_calls_per_second",
        "The rate limit that studies found; absent where they found none yet, or none at all",
        |it| it.limit_calls_per_second,
    ),
    (
        "wellhead_study_burst_calls",
        "Calls that pass at once before that limit refuses; absent if not known",
        |it| it.burst_calls,
    ),
    (
        "wellhead_study_probed_timestamp_seconds",
        "When a round of probes, or a study, began last and was answered, as seconds since 1970",
        |it| it.probed_at.map(|at| at as f64),
    ),
    (
        "wellhead_study_budget_left_calls",
        "Calls that the budget of the last hour and day still allows",
        |it| it.calls_left.map(|left| left as f64),
    ),
];

const COUNTERS: [StudyFamily<u64>; 3] = [
    ("wellhead_study_rounds", "Rounds of probes; counted on over restarts", |it| it.rounds),
    ("wellhead_study_studies", "Studies of the limit; counted on over restarts", |it| it.studies),
    (
        "wellhead_study_limit_changes",
        "Times that a study found another limit than was known; counted on over restarts",
        |it| it.changes,
    ),
];
