//! What is told of studies, for `/metrics` and `/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
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
}

/// One family and how it is read.
struct StudyFamily {
    name: &'static str,
    help: &'static str,
    read: StudyFigure,
}

enum StudyFigure {
    Gauge(fn(&StudyStatus) -> Option<f64>),
    Counter(fn(&StudyStatus) -> u64),
}

const FAMILIES: [StudyFamily; 7] = [
    StudyFamily {
        name: "wellhead_study_rate_limit_calls_per_second",
        help: "The rate limit that studies found; absent where they found none yet, or none at all",
        read: StudyFigure::Gauge(|it| it.limit_calls_per_second),
    },
    StudyFamily {
        name: "wellhead_study_burst_calls",
        help: "Calls that pass at once before that limit refuses; absent if not known",
        read: StudyFigure::Gauge(|it| it.burst_calls),
    },
    StudyFamily {
        name: "wellhead_study_probed_timestamp_seconds",
        help: "When a round of probes, or a study, began last and was answered, as seconds since 1970",
        read: StudyFigure::Gauge(|it| it.probed_at.map(|at| at as f64)),
    },
    StudyFamily {
        name: "wellhead_study_budget_left_calls",
        help: "Calls that the budget of the last hour and day still allows",
        read: StudyFigure::Gauge(|it| it.calls_left.map(|left| left as f64)),
    },
    StudyFamily {
        name: "wellhead_study_rounds",
        help: "Rounds of probes; counted on over restarts",
        read: StudyFigure::Counter(|it| it.rounds),
    },
    StudyFamily {
        name: "wellhead_study_studies",
        help: "Studies of the limit; counted on over restarts",
        read: StudyFigure::Counter(|it| it.studies),
    },
    StudyFamily {
        name: "wellhead_study_limit_changes",
        help: "Times that a study found another limit than was known; counted on over restarts",
        read: StudyFigure::Counter(|it| it.changes),
    },
];

impl Collector for StudyRecord {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let studied = self.0.lock().clone();
        for StudyFamily { name, help, read } in &FAMILIES {
            let rows = studied.iter().map(|(key, status)| {
                ([("chain", &*key.chain), ("upstream", key.upstream.as_str())], status)
            });
            match read {
                StudyFigure::Gauge(read) => {
                    let rows = rows.filter_map(|(labels, status)| Some((labels, read(status)?)));
                    gauge(&mut encoder, name, help, rows)?;
                }
                StudyFigure::Counter(read) => {
                    let rows = rows.map(|(labels, status)| (labels, read(status)));
                    counter(&mut encoder, name, help, rows)?;
                }
            }
        }
        Ok(())
    }
}
