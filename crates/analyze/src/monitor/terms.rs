//! What a monitor is started with.

use std::time::Duration;

use super::spend::SpendBounds;

/// A budget that is smaller allows no study.
pub const CALLS_PER_HOUR_MIN: u64 = 200;
/// Of the calls of an hour, or of a day where these are fewer, so much a study may take.
const STUDY_SHARE: u64 = 2;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorTerms {
    /// Calls to each target at most. Both at least [`CALLS_PER_HOUR_MIN`].
    pub bounds: SpendBounds,
    /// Between two rounds at one target, where the bounds allow it.
    pub every: Duration,
    /// No study goes above this rate, calls per second.
    pub rate_max: f64,
    /// How long a study holds each rate.
    pub rate_lasting: Duration,
}

impl MonitorTerms {
    /// Calls of one study at most.
    pub(super) fn study_calls_max(&self) -> u64 {
        self.bounds.per_hour.min(self.bounds.per_day).max(CALLS_PER_HOUR_MIN) / STUDY_SHARE
    }
}
