//! Transactions that entered a pool, each told once however many upstreams push it.
//!
//! One [`PendingJournal`] holds hashes, and another one whole objects: an upstream that pushes
//! hashes must not hide the object that another one pushes later.
//!
//! Lossy by nature, as pools are. The ring is bounded by count; a reader that falls off jumps to
//! the tip and counts what it missed. A hash is recognised for as long as fewer than two
//! generations of other hashes came since, which at 64 Ki hashes each is hours on the main chain.

use std::collections::HashSet;
use std::sync::Arc;

use wellhead_eth::TransactionHash;

use crate::notification::Notification;
use crate::ring::{Cursor, Ring, RingReader, RingView};

/// Hashes of a generation: 2 MiB with the room that a set needs.
const GENERATION_HASHES: usize = 64 * 1024;
/// As much of a hash as is remembered: two of 2^64 share it by chance.
const PREFIX_BYTES: usize = 16;
/// Transactions in the ring, unless the settings say otherwise.
const EVENTS_DEFAULT: usize = 8192;

/// A transaction that entered a pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PendingEvent {
    /// Its hash.
    pub hash: TransactionHash,
    /// What subscribers are told.
    pub notification: Notification,
}

/// Hashes that were seen lately, in two generations: when the younger one is full, it becomes the
/// older one, whose hashes are forgotten.
#[derive(Debug)]
struct SeenHashes {
    young: HashSet<[u8; PREFIX_BYTES]>,
    old: HashSet<[u8; PREFIX_BYTES]>,
    generation_max: usize,
}

impl SeenHashes {
    /// Notes a hash; whether it is new.
    fn note(&mut self, hash: &TransactionHash) -> bool {
        let mut prefix = [0; PREFIX_BYTES];
        prefix.copy_from_slice(&hash.0[..PREFIX_BYTES]);
        if self.old.contains(&prefix) || !self.young.insert(prefix) {
            return false;
        }
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }
}

/// The pending transactions of one chain, of one kind.
#[derive(Debug)]
pub struct PendingJournal {
    seen: SeenHashes,
    ring: Ring<PendingEvent>,
    events_max: usize,
}

impl Default for PendingJournal {
    fn default() -> Self {
        Self::new(EVENTS_DEFAULT)
    }
}

impl PendingJournal {
    /// A journal of at most this many transactions. The oldest go first.
    pub fn new(events_max: usize) -> Self {
        Self::with_generations(events_max, GENERATION_HASHES)
    }

    fn with_generations(events_max: usize, generation_max: usize) -> Self {
        let (young, old) = (HashSet::new(), HashSet::new());
        let seen = SeenHashes { young, old, generation_max };
        Self { seen, ring: Ring::new(), events_max: events_max.max(1) }
    }

    /// A reader's end.
    pub fn reader(&self) -> PendingReader {
        PendingReader { ring: self.ring.reader() }
    }

    /// Takes in hashes; those that were seen are left out. How many are new.
    pub fn offer_hashes(&mut self, hashes: impl IntoIterator<Item = TransactionHash>) -> usize {
        let text = |hash: &TransactionHash| format!("\"{hash}\"").into_bytes();
        self.offer(hashes.into_iter().map(|hash| (hash, text(&hash))))
    }

    /// Takes in whole transactions (raw JSON); those that were seen are left out. How many are
    /// new.
    pub fn offer_objects<'a>(
        &mut self,
        objects: impl IntoIterator<Item = (TransactionHash, &'a [u8])>,
    ) -> usize {
        self.offer(objects.into_iter().map(|(hash, object)| (hash, object.to_vec())))
    }

    fn offer(&mut self, offered: impl Iterator<Item = (TransactionHash, Vec<u8>)>) -> usize {
        let mut events = Vec::new();
        for (hash, result) in offered {
            if self.seen.note(&hash) {
                events.push(PendingEvent { hash, notification: Notification::new(&result) });
            }
        }
        let new = events.len();
        if new > 0 {
            // Of more than the ring has room for, the newest stay.
            events.drain(..new.saturating_sub(self.events_max));
            let dropped = (self.ring.view().len() + events.len()).saturating_sub(self.events_max);
            self.ring.append(dropped, events);
        }
        new
    }
}

/// A reader's end of the pending transactions. Clones read the one journal.
#[derive(Debug, Clone)]
pub struct PendingReader {
    ring: RingReader<PendingEvent>,
}

impl PendingReader {
    /// The transactions as they are now: one atomic load, no lock.
    pub fn load(&self) -> Arc<RingView<PendingEvent>> {
        self.ring.load()
    }

    /// The place behind the newest transaction: where a new subscription begins.
    pub fn tip(&self) -> Cursor {
        self.load().tip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> TransactionHash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        TransactionHash(bytes)
    }

    fn offer(journal: &mut PendingJournal, numbers: std::ops::Range<u64>) -> usize {
        journal.offer_hashes(numbers.map(hash))
    }

    #[test]
    fn each_hash_is_told_once() {
        let mut journal = PendingJournal::default();
        let start = journal.reader().tip();
        assert_eq!((offer(&mut journal, 0..5), offer(&mut journal, 3..7)), (5, 2));
        let view = journal.reader().load();
        let told: Vec<_> = view.since(start).expect("all").map(|(_, it)| it.hash).collect();
        assert_eq!(told, (0..7).map(hash).collect::<Vec<_>>());
        let (_, first) = view.iter().next().expect("one");
        assert_eq!(first.notification.result(), format!("\"{}\"", hash(0)));
    }

    #[test]
    fn objects_are_told_as_they_are() {
        let mut journal = PendingJournal::default();
        let object = br#"{"hash":"0x1"}"#.as_slice();
        assert_eq!(journal.offer_objects([(hash(1), object), (hash(1), object)]), 1);
        let view = journal.reader().load();
        assert_eq!(view.iter().next().expect("one").1.notification.result(), object);
    }

    #[test]
    fn a_hash_is_recognised_for_at_least_one_generation() {
        let mut journal = PendingJournal::with_generations(100, 10);
        offer(&mut journal, 0..1);
        for number in 1..=10 {
            offer(&mut journal, number..number + 1);
            assert_eq!(offer(&mut journal, 0..1), 0, "after {number} others");
        }
        offer(&mut journal, 11..40);
        assert_eq!(offer(&mut journal, 0..1), 1, "forgotten");
        assert!(journal.seen.young.len() <= 10 && journal.seen.old.len() <= 10);
    }

    #[test]
    fn the_ring_is_bounded_and_a_late_reader_knows_what_it_missed() {
        let mut journal = PendingJournal::new(8);
        let start = journal.reader().tip();
        offer(&mut journal, 0..5);
        offer(&mut journal, 5..11);
        let view = journal.reader().load();
        assert_eq!(view.len(), 8);
        let lagged = view.since(start).map(|_| ()).expect_err("fell off");
        assert_eq!(lagged.missed, Some(3));
        offer(&mut journal, 100..200);
        let view = journal.reader().load();
        assert!(view.iter().map(|(_, it)| it.hash).eq((192..200).map(hash)));
    }
}
