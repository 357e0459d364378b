//! How much went out in the last second.
//!
//! A ring of eighths of a second, each one word: which eighth, and the credits in it. The
//! sum of the last eight is what a second held; adding costs a load and an addition.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::nanos;

const SLICE_NANOS: u64 = 125_000_000;
/// A second.
const SLICES: u64 = 8;
/// More than are read, so that the slice being written is none of them.
const RING: usize = 16;

/// Credits by the time at which they went.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// The slice's number above, its credits below.
    ring: [AtomicU64; RING],
}

impl Recent {
    pub(crate) fn add(&self, credits: u32, now: Duration) {
        let slice = number(now);
        let place = &self.ring[slice as usize % RING];
        if place.load(Ordering::Relaxed) >> 32 == slice {
            place.fetch_add(u64::from(credits), Ordering::Relaxed);
        } else {
            // Two concurrent callers that start a slice may lose one of their counts.
            place.store(slice << 32 | u64::from(credits), Ordering::Relaxed);
        }
    }

    /// What was counted so far, to be counted on apart.
    pub(crate) fn copied(&self) -> Self {
        let place = |place: usize| AtomicU64::new(self.ring[place].load(Ordering::Relaxed));
        Self { ring: std::array::from_fn(place) }
    }

    /// Credits in the second that ends now, the last eighth as far as it has come.
    pub(crate) fn last_second(&self, now: Duration) -> u64 {
        let slice = number(now);
        let held = |age: u64| {
            let slice = slice.saturating_sub(age);
            let value = self.ring[slice as usize % RING].load(Ordering::Relaxed);
            if value >> 32 == slice { value & u64::from(u32::MAX) } else { 0 }
        };
        let whole: u64 = (0..SLICES).map(held).sum();
        // Of the oldest, the share that the newest lacks.
        let passed = nanos(now) % SLICE_NANOS;
        let rest = held(SLICES) as u128 * u128::from(SLICE_NANOS - passed);
        whole + (rest / u128::from(SLICE_NANOS)) as u64
    }
}

/// Slices are numbered from 1, so that an empty place is none.
fn number(now: Duration) -> u64 {
    (nanos(now) / SLICE_NANOS + 1) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_is_remembered_and_no_more() {
        let recent = Recent::default();
        for ms in 0..5_000 {
            recent.add(2, Duration::from_millis(ms));
        }
        let near = |found: u64, meant: u64| found.abs_diff(meant) <= 4;
        assert!(near(recent.last_second(Duration::from_millis(4_999)), 2_000));
        assert!(near(recent.last_second(Duration::from_millis(5_500)), 1_000));
        assert_eq!(recent.last_second(Duration::from_millis(7_000)), 0);
        recent.add(7, Duration::from_secs(60));
        assert_eq!(recent.last_second(Duration::from_secs(60)), 7);
    }
}
