//! Whether clients' calls come to an upstream, for its control loop.
//!
//! An upstream of a tier that serves no calls is checked rarely. Its first call after a quiet
//! time wakes the loop, so that its head is asked for beside the call and not a minute later.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::stamp::{Stamp, StampCell};

/// The time of a call is written at most once in this time: calls come to one upstream from
/// all workers.
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
    is_wanted: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Demand {
    /// From now on notes when calls come, and calls `wake` at each that comes after `quiet` without
    /// one. It takes the place of the one before.
    pub(crate) fn wake(&self, quiet: Duration, wake: Box<dyn Fn() + Send + Sync>) {
        *self.wake.lock() = Some(Wake { quiet, wake });
        self.is_wanted.store(true, Relaxed);
    }

    /// When the last call came; `None` where nothing wants to know.
    pub(crate) fn last(&self) -> Option<Stamp> {
        self.last.get()
    }

    /// Notes that a call came.
    pub(crate) fn note(&self, now: impl FnOnce() -> Stamp) {
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        let (now, last) = (now(), self.last.get());
        if last.is_some_and(|last| now < last.after(NOTE_EVERY)) {
            return;
        }
        self.last.set(now);
        let wake = self.wake.lock();
        if let Some(Wake { quiet, wake }) = &*wake
            && last.is_none_or(|last| now > last.after(*quiet))
        {
            wake();
        }
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
        demand.wake(Duration::from_secs(30), wake);
        for (now, expected) in [(1, 1), (2, 1), (300, 1), (30_300, 1), (60_301, 2), (60_400, 2)] {
            demand.note(|| ms(now));
            assert_eq!(woken.load(Ordering::Relaxed), expected, "at {now} ms");
        }
    }
}
