//! Whether clients' calls come to an upstream, for its control loop.
//!
//! An upstream of a tier that serves no calls is checked rarely. Its first call after a quiet
//! time wakes the loop, so that its head is asked for beside the call and not a minute later.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::stamp::{Stamp, StampCell};
use crate::upstream::Upstream;

/// The time of a call is written at most so often: calls come to one upstream from all workers.
const NOTE_EVERY: Duration = Duration::from_millis(250);

/// What is done at the first call after a quiet time.
struct Wake {
    quiet: Duration,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// When calls of clients came. Costs one load until a loop wants to know.
#[derive(Default)]
pub(crate) struct Demand {
    last: StampCell,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Demand {
    fn note(&self, now: impl FnOnce() -> Stamp) {
        let Some(Wake { quiet, wake }) = self.wake.get() else { return };
        let (now, last) = (now(), self.last.get());
        if last.is_some_and(|last| now < last.after(NOTE_EVERY)) {
            return;
        }
        self.last.set(now);
        if last.is_none_or(|last| now > last.after(*quiet)) {
            wake();
        }
    }
}

impl Upstream {
    /// From now on notes when clients' calls come, and calls `wake` at each that comes after
    /// `quiet` without one. `wake` must not block. Only the first registration counts.
    pub fn wake_on_demand(&self, quiet: Duration, wake: impl Fn() + Send + Sync + 'static) {
        // A second loop for one upstream would be a mistake of its own.
        let _ = self.controls().demand.wake.set(Wake { quiet, wake: Box::new(wake) });
    }

    /// Whether a client's call came within `time`; never, where nothing wants to know.
    pub fn is_called_within(&self, time: Duration, now: Instant) -> bool {
        let last = self.controls().demand.last.get();
        last.is_some_and(|last| self.stamp(now).since(last) <= time)
    }

    /// Notes that a client's call is meant for this upstream, whether a bound holds it or not.
    pub(crate) fn note_demand(&self, now: Instant) {
        self.controls().demand.note(|| self.stamp(now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::stamp::tests::ms;

    #[test]
    fn the_first_call_after_a_quiet_time_wakes() {
        let demand = Demand::default();
        demand.note(|| unreachable!("nothing wants to know"));
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let wake = Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(demand.wake.set(Wake { quiet: Duration::from_secs(30), wake }).is_ok());
        for (now, expected) in [(1, 1), (2, 1), (300, 1), (30_300, 1), (60_301, 2), (60_400, 2)] {
            demand.note(|| ms(now));
            assert_eq!(woken.load(Ordering::Relaxed), expected, "at {now} ms");
        }
    }
}
