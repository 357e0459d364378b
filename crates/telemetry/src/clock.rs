//! The one reader of the wall clock.
//!
//! Only outer loops call it; what decides anything is told the time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, as block timestamps count them. Zero before 1970.
pub fn unix_seconds() -> u64 {
    system_time().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time by which files are dated; it may be set back.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn system_time() -> SystemTime {
    SystemTime::now()
}
