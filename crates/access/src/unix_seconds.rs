//! Instants of records and rights.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Whether it is at or before `now`, the time since 1970.
    pub fn is_over(self, now: Duration) -> bool {
        now.as_secs() >= self.0
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_over_from_its_second_on() {
        let over = |millis| UnixSeconds(9).is_over(Duration::from_millis(millis));
        assert_eq!([over(8_999), over(9_000), over(10_000)], [false, true, true]);
    }
}
