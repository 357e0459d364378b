//! Upstreams that contradict others about a call: counted, and logged once in a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stamp::{Stamp, StampCell};

/// What contradicts others is told of at most once in this time.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How often one upstream disagreed with the quorum.
#[derive(Debug, Default)]
pub(crate) struct Dissents {
    about_final: AtomicU64,
    about_open: AtomicU64,
    /// From when on one more is told of.
    tell_from: StampCell,
}

impl Dissents {
    /// Counts one; whether it is time to tell of it.
    pub(crate) fn note(&self, is_final: bool, now: Stamp) -> bool {
        let count = if is_final { &self.about_final } else { &self.about_open };
        count.fetch_add(1, Ordering::Relaxed);
        let from = self.tell_from.get();
        from <= Some(now) && self.tell_from.replace(from, Some(now.after(TELL_EVERY)))
    }

    /// How often about blocks that were final, and about others.
    pub(crate) fn told(&self) -> (u64, u64) {
        (self.about_final.load(Ordering::Relaxed), self.about_open.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_and_one_a_minute_is_told() {
        let dissents = Dissents::default();
        let told =
            |seconds: &u64| dissents.note(*seconds > 59, Stamp::at(Duration::from_secs(*seconds)));
        let told: Vec<bool> = [0, 1, 59, 60, 61, 500].iter().map(told).collect();
        assert_eq!(told, [true, false, false, true, false, true]);
        assert_eq!(dissents.told(), (3, 3));
    }
}
