//! Sets of upstreams of one chain: a value, and one that loops write and requests read.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many upstreams a chain may have: what fits an [`UpstreamSet`].
pub const UPSTREAMS_MAX: usize = 128;

/// The place of an upstream in its chain's roster; stable for the life of the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

impl Slot {
    /// The place as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of upstreams of one chain, by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpstreamSet(u128);

impl UpstreamSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds one.
    pub fn insert(&mut self, slot: Slot) {
        self.0 |= 1 << slot.0;
    }

    /// Whether it is in.
    pub fn contains(self, slot: Slot) -> bool {
        self.0 >> slot.0 & 1 == 1
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it has no members.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Each that is in, by slot.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let slot = u8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
            left &= left - 1;
            Some(Slot(slot))
        })
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Slot> for UpstreamSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

/// A set that loops write and requests read. Slots of the two halves change apart from each other.
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
