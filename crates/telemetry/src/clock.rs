//! The one reader of the wall clock.
//!
//! Only outer loops call it; what decides anything is told the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, as block timestamps count them. Zero before 1970.
pub fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

/// The time since 1970. Zero before 1970.
pub fn unix_time() -> Duration {
    system_time().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time by which files are dated; it may be set back.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn system_time() -> SystemTime {
    SystemTime::now()
}

/// One moment by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct ClockPair {
    /// By the clock that is never set.
    pub now: Instant,
    /// Since 1970.
    pub unix: Duration,
}

impl ClockPair {
    /// Another moment, since 1970.
    pub fn unix_at(self, at: Instant) -> Duration {
        let (ago, ahead) =
            (self.now.saturating_duration_since(at), at.saturating_duration_since(self.now));
        (self.unix + ahead).saturating_sub(ago)
    }
}
