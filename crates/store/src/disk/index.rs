//! Where each value lies: a table of fixed size, read without a lock.
//!
//! A digest belongs to one bucket of [`WAYS`] slots. A slot is one word: 24 bits of
//! the digest, so that others are told apart without the disk (one in a million looks
//! is mistaken, and the record then says so), and the value's place. A full bucket
//! gives up its oldest value. Only the writer inserts; readers remove what turned
//! out damaged or expired.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Digest;

/// Slots of a bucket: two cache lines. At two thirds of all slots taken, one value
/// in a hundred finds its bucket full.
const WAYS: usize = 16;

/// What the index knows of a digest: its first eight bytes. The top decides the
/// bucket, the bottom is the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(pub(super) u64);

impl Fingerprint {
    pub(super) fn of(digest: &Digest) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&digest.0[..8]);
        Self(u64::from_le_bytes(first))
    }

    fn tag(self) -> u64 {
        self.0 & 0xff_ffff
    }
}

/// Where a record begins. Never all zero: a segment begins with its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordPlace {
    /// The segment's id modulo 256.
    pub(super) segment: u8,
    /// In units of 16 bytes from the beginning of the segment.
    pub(super) unit: u32,
}

impl RecordPlace {
    fn of(slot: u64) -> Self {
        let [_, _, _, segment, unit @ ..] = slot.to_be_bytes();
        Self { segment, unit: u32::from_be_bytes(unit) }
    }

    fn slot(self, fingerprint: Fingerprint) -> u64 {
        fingerprint.tag() << 40 | u64::from(self.segment) << 32 | u64::from(self.unit)
    }

    /// Grows with the age of segments when `oldest` is the first one that lives.
    fn order(self, oldest: u8) -> (u8, u32) {
        (self.segment.wrapping_sub(oldest), self.unit)
    }
}

/// What became of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    /// It took a free slot.
    New,
    /// It took the slot of what has the same tag, most likely an older value of its own.
    InPlace,
    /// It took the slot of the bucket's oldest.
    Displacing,
}

pub(super) struct Index {
    slots: Box<[AtomicU64]>,
    entries: AtomicU64,
}

impl Index {
    /// A table that holds `entries_max` values with few losses: 12 bytes for each.
    pub(super) fn new(entries_max: usize) -> Self {
        let buckets = (entries_max.saturating_mul(3) / 2).div_ceil(WAYS).max(1);
        let slots = (0..buckets * WAYS).map(|_| AtomicU64::new(0)).collect();
        Self { slots, entries: AtomicU64::new(0) }
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<RecordPlace> {
        let slots = self.bucket(fingerprint).iter();
        slots
            .map(|slot| slot.load(Ordering::Acquire))
            .find(|slot| *slot != 0 && slot >> 40 == fingerprint.tag())
            .map(RecordPlace::of)
    }

    /// For one thread only. `oldest` is the segment of the oldest values.
    pub(super) fn insert(
        &self,
        fingerprint: Fingerprint,
        place: RecordPlace,
        oldest: u8,
    ) -> Inserted {
        let bucket = self.bucket(fingerprint);
        let mut free = None;
        let mut last = (&bucket[0], (u8::MAX, u32::MAX));
        for slot in bucket {
            let found = slot.load(Ordering::Acquire);
            if found == 0 {
                free = Some(slot);
                continue;
            }
            if found >> 40 == fingerprint.tag() {
                self.put(slot, place.slot(fingerprint));
                return Inserted::InPlace;
            }
            let order = RecordPlace::of(found).order(oldest);
            if order <= last.1 {
                last = (slot, order);
            }
        }
        self.put(free.unwrap_or(last.0), place.slot(fingerprint));
        if free.is_some() { Inserted::New } else { Inserted::Displacing }
    }

    /// Removes the entry unless it points elsewhere by now; says whether it did.
    pub(super) fn remove(&self, fingerprint: Fingerprint, place: RecordPlace) -> bool {
        let expected = place.slot(fingerprint);
        self.bucket(fingerprint).iter().any(|slot| self.take(slot, expected))
    }

    /// Removes all that lies in a segment, which takes a look at each slot, and
    /// returns how many there were.
    pub(super) fn clear(&self, segment: u8) -> u64 {
        let mut cleared = 0;
        for slot in &self.slots {
            let found = slot.load(Ordering::Acquire);
            if found != 0 && RecordPlace::of(found).segment == segment && self.take(slot, found) {
                cleared += 1;
            }
        }
        cleared
    }

    fn bucket(&self, fingerprint: Fingerprint) -> &[AtomicU64] {
        let buckets = (self.slots.len() / WAYS) as u128;
        let bucket = (u128::from(fingerprint.0) * buckets) >> 64;
        let start = bucket as usize * WAYS;
        &self.slots[start..start + WAYS]
    }

    fn put(&self, slot: &AtomicU64, word: u64) {
        // A reader may have emptied it since it was looked at.
        if slot.swap(word, Ordering::AcqRel) == 0 {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, slot: &AtomicU64, expected: u64) -> bool {
        let taken = slot.compare_exchange(expected, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if taken {
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u8, unit: u32) -> RecordPlace {
        RecordPlace { segment, unit }
    }
    /// Fingerprints of one bucket that differ in their tag.
    fn fingerprint(tag: u64) -> Fingerprint {
        Fingerprint(tag)
    }

    #[test]
    fn what_was_inserted_is_found() {
        let index = Index::new(100);
        for n in 1..=60u64 {
            let spread = Fingerprint(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(index.insert(spread, place(255, n as u32), 255), Inserted::New);
        }
        for n in 1..=60u64 {
            let spread = Fingerprint(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(index.find(spread), Some(place(255, n as u32)));
        }
        assert_eq!(index.find(fingerprint(5)), None);
        assert_eq!(index.entries(), 60);
    }
    #[test]
    fn newer_place_takes_the_slot() {
        let index = Index::new(1);
        index.insert(fingerprint(1), place(3, 1), 3);
        assert_eq!(index.insert(fingerprint(1), place(3, 9), 3), Inserted::InPlace);
        assert_eq!((index.find(fingerprint(1)), index.entries()), (Some(place(3, 9)), 1));
    }
    #[test]
    fn full_bucket_gives_up_its_oldest() {
        // Segment ids wrap: 250 to 255 are older than 0 to 9.
        let index = Index::new(1);
        let segments = (0..10).chain(250..=255);
        for (tag, segment) in segments.enumerate() {
            index.insert(fingerprint(tag as u64), place(segment, 1), 250);
        }
        assert_eq!(index.insert(fingerprint(99), place(10, 1), 250), Inserted::Displacing);
        assert_eq!(index.find(fingerprint(10)), None, "tag 10 lay in segment 250");
        assert_eq!(index.find(fingerprint(0)), Some(place(0, 1)));
        assert_eq!(index.entries(), WAYS as u64);
    }
    #[test]
    fn removal_of_what_has_moved_does_nothing() {
        let index = Index::new(1);
        index.insert(fingerprint(1), place(3, 9), 3);
        assert!(!index.remove(fingerprint(1), place(3, 1)));
        assert!(index.remove(fingerprint(1), place(3, 9)));
        assert_eq!((index.find(fingerprint(1)), index.entries()), (None, 0));
    }
    #[test]
    fn a_segment_goes_as_a_whole() {
        let index = Index::new(1);
        for tag in 0..6 {
            index.insert(fingerprint(tag), place((tag % 2) as u8, tag as u32 + 1), 0);
        }
        assert_eq!(index.clear(0), 3);
        assert_eq!((index.find(fingerprint(0)), index.entries()), (None, 3));
        assert_eq!(index.find(fingerprint(1)), Some(place(1, 2)));
    }
}
