//! Who contradicts others about the same call: counted, and told of once a while.

use std::sync::atomic::{AtomicU64, Ordering};

/// What contradicts others is told of at most so often, in milliseconds.
const TELL_EVERY_MS: u64 = 60_000;

/// How often one upstream said something else than those who agreed.
#[derive(Debug, Default)]
pub(crate) struct Dissents {
    about_final: AtomicU64,
    about_open: AtomicU64,
    /// From when on one more is told of, in milliseconds since the upstream's epoch.
    tell_from_ms: AtomicU64,
}

impl Dissents {
    /// Counts one; whether it is time to tell of it.
    pub(crate) fn note(&self, is_final: bool, now_ms: u64) -> bool {
        let count = if is_final { &self.about_final } else { &self.about_open };
        count.fetch_add(1, Ordering::Relaxed);
        let next = |from: u64| (from <= now_ms).then_some(now_ms.saturating_add(TELL_EVERY_MS));
        self.tell_from_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
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
        let told = |seconds: &u64| dissents.note(*seconds > 59, seconds * 1_000);
        let told: Vec<bool> = [0, 1, 59, 60, 61, 500].iter().map(told).collect();
        assert_eq!(told, [true, false, false, true, false, true]);
        assert_eq!(dissents.told(), (3, 3));
    }
}
