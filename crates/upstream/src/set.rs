//! A set of upstreams that loops write and requests read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::upstream::{Slot, UpstreamSet};

/// Such a set. Slots of the two halves change apart from each other.
#[derive(Debug, Default)]
pub struct SharedUpstreamSet([AtomicU64; 2]);

impl SharedUpstreamSet {
    /// Puts the upstream in, or takes it out; true when it was otherwise before.
    pub fn set(&self, slot: Slot, is_in: bool) -> bool {
        let Some(half) = self.0.get(slot.index() / 64) else { return false };
        let bit = 1_u64 << (slot.index() % 64);
        let before = match is_in {
            true => half.fetch_or(bit, Ordering::Relaxed),
            false => half.fetch_and(!bit, Ordering::Relaxed),
        };
        (before & bit != 0) != is_in
    }

    /// Those that are in it now.
    pub fn load(&self) -> UpstreamSet {
        let [low, high] = &self.0;
        let half = |half: &AtomicU64| u128::from(half.load(Ordering::Relaxed));
        UpstreamSet(half(low) | half(high) << 64)
    }
}

impl UpstreamSet {
    /// With nobody in it.
    pub const NONE: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_its_own() {
        let set = SharedUpstreamSet::default();
        for slot in [0, 63, 64, 127] {
            assert!(set.set(Slot(slot), true));
            assert!(!set.set(Slot(slot), true), "it was in");
        }
        assert_eq!(set.load().len(), 4);
        assert!(set.set(Slot(64), false) && !set.set(Slot(64), false));
        assert!(set.load().contains(Slot(63)) && !set.load().contains(Slot(64)));
        assert!(set.load().contains(Slot(127)));
    }
}
