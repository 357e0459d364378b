//! How often limits refused, by what they belong to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::meter::{LimitDenied, QuotaLimit, SubjectKind};

/// Refusals since the start. Shared by all workers.
#[derive(Debug, Default)]
pub struct DenialCounts([[AtomicU64; QuotaLimit::ALL.len()]; SubjectKind::ALL.len()]);

impl DenialCounts {
    /// Counts a refusal.
    pub fn count(&self, denied: &LimitDenied) {
        self.cell(denied.subject, denied.limit).fetch_add(1, Relaxed);
    }

    /// How often this limit of such subjects refused.
    pub fn of(&self, subject: SubjectKind, limit: QuotaLimit) -> u64 {
        self.cell(subject, limit).load(Relaxed)
    }

    fn cell(&self, subject: SubjectKind, limit: QuotaLimit) -> &AtomicU64 {
        &self.0[subject as usize][limit as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_limit_of_each_subject_has_its_count() {
        let counts = DenialCounts::default();
        for subject in SubjectKind::ALL {
            for limit in QuotaLimit::ALL {
                let denied = LimitDenied {
                    subject,
                    limit,
                    quota: "pro".into(),
                    most: 1.0,
                    retry_after: Duration::ZERO,
                    is_unanswered: false,
                };
                counts.count(&denied);
                assert_eq!(counts.of(subject, limit), 1, "{subject:?} {limit:?}");
            }
        }
    }
}
