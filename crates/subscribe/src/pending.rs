//! Transactions that entered a pool, each told once however many upstreams push it.
//!
//! One [`PendingJournal`] holds hashes, and another one whole objects: an upstream that pushes
//! hashes must not hide the object that another one pushes later.
//!
//! Lossy by nature, as pools are. The ring is bounded by count and bytes; a reader that falls off jumps to
//! the tip and counts what it missed. A hash is recognised for as long as fewer than two
//! generations of other hashes came since, which at 64 Ki hashes each is hours on the main chain.

use std::collections::HashSet;

use wellhead_eth::{AddressBytes, TransactionHash, hex};
use wellhead_jsonrpc::raw;

use crate::notification::Notification;
use crate::ring::RingReader;
use crate::stream::{EventStream, StreamBounds, StreamEvent};

/// Hashes of a generation: 2 MiB with the room that a set needs.
const GENERATION_HASHES: usize = 64 * 1024;
/// As much of a hash as is remembered: two of 2^64 share it by chance.
const PREFIX_BYTES: usize = 16;
/// Transactions in the ring, and their bytes: whole ones with blobs or long inputs are large.
const EVENTS_MAX: usize = 8192;
const BYTES_MAX: usize = 32 << 20;

/// A transaction that entered a pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PendingEvent {
    /// Its hash.
    pub hash: TransactionHash,
    /// Its sender, where the whole transaction was told.
    pub from: Option<AddressBytes>,
    /// Its receiver, where the whole transaction was told and creates no contract.
    pub to: Option<AddressBytes>,
    /// What subscribers are told.
    pub notification: Notification,
}

impl StreamEvent for PendingEvent {
    fn bytes_held(&self) -> usize {
        self.notification.len()
    }
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
    stream: EventStream<PendingEvent>,
}

impl Default for PendingJournal {
    fn default() -> Self {
        Self::with_generations(EVENTS_MAX, GENERATION_HASHES)
    }
}

impl PendingJournal {
    fn with_generations(events_max: usize, generation_max: usize) -> Self {
        let (young, old) = (HashSet::new(), HashSet::new());
        let seen = SeenHashes { young, old, generation_max };
        let stream = EventStream::new(StreamBounds { events_max, bytes_max: BYTES_MAX });
        Self { seen, stream }
    }

    /// A reader's end.
    pub fn reader(&self) -> RingReader<PendingEvent> {
        self.stream.reader()
    }

    /// Takes in what an upstream pushed or answered: a hash, or a whole transaction (raw JSON). Whether it
    /// is new.
    pub fn offer_result(&mut self, result: &[u8]) -> bool {
        let Some(event) = self.read(result) else { return false };
        self.stream.push(event);
        true
    }

    /// Reads a transaction that was not seen.
    fn read(&mut self, result: &[u8]) -> Option<PendingEvent> {
        let result = raw::trim(result);
        let is_whole = result.first() == Some(&b'{');
        let hash = if is_whole { raw::field(result, "hash")? } else { result };
        let hash = raw::string(hash)?.parse().ok()?;
        if !self.seen.note(&hash) {
            return None;
        }
        let party = |name| {
            let party = raw::field(result, name).filter(|_| is_whole).and_then(raw::string)?;
            hex::decode_array(&party).ok()
        };
        let notification = Notification::new(result);
        Some(PendingEvent { hash, from: party("from"), to: party("to"), notification })
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

    /// How many of these are new.
    fn offer(journal: &mut PendingJournal, numbers: std::ops::Range<u64>) -> usize {
        let text = |number| format!("\"{}\"", hash(number));
        numbers.filter(|number| journal.offer_result(text(*number).as_bytes())).count()
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
    fn whole_transactions_are_told_as_they_are() {
        let mut journal = PendingJournal::default();
        let address = |byte| hex::encode(&[byte; 20]);
        let object = format!(r#"{{"hash":"{}","from":"{}","to":null}}"#, hash(1), address(7));
        assert!(journal.offer_result(object.as_bytes()));
        assert!(!journal.offer_result(object.as_bytes()), "seen");
        let view = journal.reader().load();
        let (_, event) = view.iter().next().expect("one");
        assert_eq!(event.notification.result(), object);
        assert_eq!((event.from, event.to), (Some([7; 20]), None));
    }

    #[test]
    fn whole_transactions_are_bounded_in_bytes() {
        let mut journal = PendingJournal::default();
        let input = "0".repeat(1 << 20);
        for number in 0..40 {
            let object = format!(r#"{{"hash":"{}","input":"0x{input}"}}"#, hash(number));
            assert!(journal.offer_result(object.as_bytes()));
        }
        let view = journal.reader().load();
        let held: usize = view.iter().map(|(_, event)| event.bytes_held()).sum();
        assert_eq!((view.len(), held <= BYTES_MAX), (31, true));
        assert!(view.iter().map(|(_, it)| it.hash).eq((9..40).map(hash)));
    }

    #[test]
    fn what_is_no_transaction_is_left_out() {
        let mut journal = PendingJournal::default();
        for other in ["null", "{}", "5", "\"0x12\"", "[]", "", r#"{"hash":5}"#] {
            assert!(!journal.offer_result(other.as_bytes()), "{other}");
        }
        assert_eq!(journal.reader().load().len(), 0);
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
        let mut journal = PendingJournal::with_generations(8, GENERATION_HASHES);
        let start = journal.reader().tip();
        offer(&mut journal, 0..11);
        let view = journal.reader().load();
        assert_eq!(view.len(), 8);
        let lagged = view.since(start).map(|_| ()).expect_err("fell off");
        assert_eq!(lagged.missed, Some(3));
        offer(&mut journal, 100..200);
        let view = journal.reader().load();
        assert!(view.iter().map(|(_, it)| it.hash).eq((192..200).map(hash)));
    }
}
