//! Whether clients' calls come to an upstream, for its control loop.
//!
//! An upstream of a tier that serves no calls is checked rarely. Its first call after a quiet
//! time wakes the loop, so that its head is asked for beside the call and not a minute later.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::upstream::Upstream;

/// The time of a call is written at most so often: calls come to one upstream from all workers.
const NOTE_EVERY_MS: u64 = 250;

/// What is done at the first call after a quiet time.
struct Wake {
    quiet_ms: u64,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// When calls of clients came. Costs one load until a loop wants to know.
#[derive(Default)]
pub(crate) struct Demand {
    /// Milliseconds of the upstream's epoch; zero: never.
    last_ms: AtomicU64,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("last_ms", &self.last_ms).finish_non_exhaustive()
    }
}

impl Demand {
    fn note(&self, now_ms: impl FnOnce() -> u64) {
        let Some(Wake { quiet_ms, wake }) = self.wake.get() else { return };
        let (now_ms, last) = (now_ms(), self.last_ms.load(Ordering::Relaxed));
        if last != 0 && now_ms < last.saturating_add(NOTE_EVERY_MS) {
            return;
        }
        self.last_ms.store(now_ms, Ordering::Relaxed);
        if last == 0 || now_ms > last.saturating_add(*quiet_ms) {
            wake();
        }
    }
}

impl Upstream {
    /// From now on notes when clients' calls come, and calls `wake` at each that comes after
    /// `quiet` without one. `wake` must not block. Only the first registration counts.
    pub fn wake_on_demand(&self, quiet: Duration, wake: impl Fn() + Send + Sync + 'static) {
        let quiet_ms = u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX);
        // A second loop for one upstream would be a mistake of its own.
        let _ = self.controls().demand.wake.set(Wake { quiet_ms, wake: Box::new(wake) });
    }

    /// Whether a client's call came within `time`; never, where nothing wants to know.
    pub fn is_called_within(&self, time: Duration, now: Instant) -> bool {
        match self.controls().demand.last_ms.load(Ordering::Relaxed) {
            0 => false,
            last => u128::from(self.ms(now).saturating_sub(last)) <= time.as_millis(),
        }
    }

    /// Notes that a client's call is meant for this upstream, whether a bound holds it or not.
    pub(crate) fn note_demand(&self, now: Instant) {
        self.controls().demand.note(|| self.ms(now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_first_call_after_a_quiet_time_wakes() {
        let demand = Demand::default();
        demand.note(|| unreachable!("nothing wants to know"));
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let wake = Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(demand.wake.set(Wake { quiet_ms: 30_000, wake }).is_ok());
        for (now_ms, expected) in [(1, 1), (2, 1), (300, 1), (30_300, 1), (60_301, 2), (60_400, 2)]
        {
            demand.note(|| now_ms);
            assert_eq!(woken.load(Ordering::Relaxed), expected, "at {now_ms} ms");
        }
    }
}
