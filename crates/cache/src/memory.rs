//! The memory tier: answers held by this process, all workers sharing one.
//!
//! The table is `quick_cache`: sharded, so that a look-up takes one shard's lock for a
//! moment, and bounded by weight, which it makes room for before it inserts. Here is what
//! it does not know: how much an answer really weighs, when it ends, and that what hangs
//! on a block is asked of the view at each look-up ([`crate::Validity::under`]).
//!
//! Correctness depends on that check alone. The index of blocks below has two lesser purposes,
//! both in [`Memory::settle`]: it frees the memory of orphaned blocks at once, and marks entries
//! as final while the view still remembers their block. It may miss an entry that is replaced
//! at that time; that entry is then served for as long as the view allows, and ages out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use foldhash::quality::FixedState;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use wellhead_eth::{BlockHash, BlockNumber, ChainId};

use crate::assurance::Assurance;
use crate::canon::{BlockId, BlockStatus, Canon};
use crate::entry::{Entry, Retention, Use, Validity};
use crate::key::Key;
use crate::reason::Reason;

/// One answer may be at most this part of the whole: a few large traces must not evict the
/// answers that most clients request. It also has to fit one shard, see `SHARDS_MAX`.
pub const LARGEST_SHARE: u64 = 64;

/// Enough that threads rarely meet. Each shard holds its part of the bytes and evicts for
/// itself, so more of them would hold large answers worse.
const SHARDS_MAX: u64 = 16;

/// Below this a shard would hold too few answers to evict well.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// What an entry takes beside the bytes of key and value: counts and lengths of the three
/// allocations and what the allocator adds, the table's slot and link, the table's room to
/// grow. The test `memory_is_bounded_honestly` compares with what was really allocated.
const ENTRY_BYTES: u64 = 352;

/// What one more key in the index of blocks takes.
const INDEX_BYTES: u64 = 64;

/// Answers in memory.
#[derive(Debug)]
pub struct Memory {
    entries: Cache<Key, Arc<Stored>, Weigh, FixedState, Evicted>,
    blocks: Mutex<HashMap<BlockHash, Block, FixedState>>,
    counts: MemoryCounters,
    entry_bytes_max: u64,
}

/// What a look-up found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The raw JSON of the result.
    pub value: Bytes,
    /// Why it is kept still: one of [`Reason::Final`], [`Reason::Canonical`],
    /// [`Reason::Named`] and [`Reason::Head`].
    pub reason: Reason,
}

/// What [`Memory::settle`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettleStats {
    /// Entries that are final now.
    pub promoted: usize,
    /// Entries that are gone, because their block was orphaned or is no longer known.
    pub dropped: usize,
}

#[derive(Debug)]
struct Stored {
    entry: Entry,
    /// The block became final: the view need not be checked any more.
    is_final: AtomicBool,
}

/// A block that may be orphaned, and what hangs on it.
#[derive(Debug)]
struct Block {
    chain: ChainId,
    number: BlockNumber,
    keys: HashSet<Key, FixedState>,
}

#[derive(Debug, Clone)]
struct Weigh;

impl Weighter<Key, Arc<Stored>> for Weigh {
    fn weight(&self, key: &Key, stored: &Arc<Stored>) -> u64 {
        weight(key, &stored.entry)
    }
}

fn weight(key: &Key, entry: &Entry) -> u64 {
    let index = if indexed(entry.hold).is_some() { INDEX_BYTES } else { 0 };
    (key.as_bytes().len() + entry.value.len()) as u64 + ENTRY_BYTES + index
}

/// The block under which an entry is found again when that is orphaned or final. One of
/// unknown height is old; it only ages out.
fn indexed(hold: Validity) -> Option<(BlockNumber, BlockHash)> {
    let block = hold.block()?;
    Some((block.number?, block.hash))
}

/// Hands evicted entries to the caller of the insertion, so that neither the index is touched
/// nor memory freed under the lock of a shard.
#[derive(Debug, Clone)]
struct Evicted;

impl Lifecycle<Key, Arc<Stored>> for Evicted {
    type RequestState = Vec<(Key, Arc<Stored>)>;

    fn on_evict(&self, state: &mut Self::RequestState, key: Key, stored: Arc<Stored>) {
        state.push((key, stored));
    }
}

impl Memory {
    /// Holds `bytes_max` bytes of answers, their keys and what goes with them. `seed` is a
    /// secret: it decides where a key's slot is, so that no client can choose keys that collide.
    pub fn new(bytes_max: u64, seed: u64) -> Self {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // The next power of two below: the table would round up.
        let shards = 1_u64 << shards.ilog2();
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .weight_capacity(bytes_max / shards * shards)
            // A guess at the usual answer; how many evicted keys are remembered hangs on it.
            .estimated_items_capacity((bytes_max / 1024) as usize)
            .build()
            .expect("both capacities are given");
        Self {
            entries: Cache::with_options(options, Weigh, FixedState::with_seed(seed), Evicted),
            blocks: Mutex::new(HashMap::with_hasher(FixedState::with_seed(seed))),
            counts: MemoryCounters::default(),
            entry_bytes_max: bytes_max / LARGEST_SHARE,
        }
    }

    /// The answer under `key`, where it is true by this view, the one that the request
    /// pinned, at this time, and as much stands behind it as is `required`.
    pub fn get(
        &self,
        key: &Key,
        canon: &(impl Canon + ?Sized),
        required: Assurance,
        now_ms: u64,
    ) -> Option<Hit> {
        let Some(stored) = self.entries.get(key) else {
            self.counts.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if stored.entry.assurance.meets(required)
            && let Some(reason) = self.usable(key, &stored, canon, now_ms)
        {
            self.counts.hits.fetch_add(1, Ordering::Relaxed);
            return Some(Hit { value: stored.entry.value.clone(), reason });
        }
        self.counts.stale.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn usable(
        &self,
        key: &Key,
        stored: &Arc<Stored>,
        canon: &(impl Canon + ?Sized),
        now_ms: u64,
    ) -> Option<Reason> {
        if stored.entry.is_over(now_ms) {
            self.remove(key, stored);
            return None;
        }
        if stored.is_final.load(Ordering::Relaxed) {
            return Some(Reason::Final);
        }
        match stored.entry.hold.under(canon) {
            Use::Serve => Some(stored.entry.hold.reason()),
            Use::ServeForEver => {
                stored.is_final.store(true, Ordering::Relaxed);
                Some(Reason::Final)
            }
            Use::Skip => None,
            Use::Drop => {
                self.remove(key, stored);
                None
            }
        }
    }

    /// Keeps a result if the rule says so, and counts why if it does not. The bytes are
    /// copied: they are a piece of a body that shall not be kept alive.
    ///
    /// Answers why it is kept, or why not: the rule's reason, or [`Reason::TooLarge`].
    pub fn put(&self, key: &Key, ruling: Result<Retention, Reason>, result: &[u8]) -> Reason {
        let kept = match ruling {
            Ok(kept) => kept,
            Err(reason) => {
                self.refused(reason);
                return reason;
            }
        };
        if self.insert(key, kept.entry(Bytes::new()), result) {
            kept.reason
        } else {
            Reason::TooLarge
        }
    }

    /// Takes over an entry that another tier held. `false` when it is too large.
    pub fn adopt(&self, key: &Key, entry: &Entry) -> bool {
        let empty = Entry { value: Bytes::new(), ..*entry };
        self.insert(key, empty, &entry.value)
    }

    fn insert(&self, key: &Key, mut entry: Entry, value: &[u8]) -> bool {
        if weight(key, &entry) + value.len() as u64 > self.entry_bytes_max {
            self.refused(Reason::TooLarge);
            return false;
        }
        entry.value = Bytes::copy_from_slice(value);
        if let Some((number, hash)) = indexed(entry.hold) {
            let mut blocks = self.blocks.lock();
            let hasher = blocks.hasher().clone();
            let keys = || Block { chain: key.chain(), number, keys: HashSet::with_hasher(hasher) };
            blocks.entry(hash).or_insert_with(keys).keys.insert(key.clone());
        }
        let stored = Arc::new(Stored { entry, is_final: AtomicBool::new(false) });
        let mut evicted = Vec::new();
        self.entries.insert_with_lifecycle(key.clone(), stored, &mut evicted);
        self.counts.stored.fetch_add(1, Ordering::Relaxed);
        self.counts.evicted.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        for (key, stored) in &evicted {
            self.forget(key, stored);
        }
        true
    }

    /// Counts a call that has no key, or an answer that was not put because of `reason`.
    pub fn refused(&self, reason: Reason) {
        self.counts.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Goes through the blocks of one chain that may still be replaced, to be called after
    /// each change of its finalized block or a reorg: entries whose block is final now need no more
    /// questions, those whose block was orphaned are freed, and those whose block is below
    /// the finalized one and not remembered too, unless they were asked for by hash.
    ///
    /// Costs some hundred nanoseconds an entry of such a block: for the control plane.
    pub fn settle(&self, chain: ChainId, canon: &(impl Canon + ?Sized)) -> SettleStats {
        let settled = |hash: &BlockHash, block: &Block| {
            // Of other chains this view knows nothing, and would call all of it orphaned.
            if block.chain != chain {
                return None;
            }
            let number = block.number;
            match (BlockId { number: Some(number), hash: *hash }).standing(canon) {
                BlockStatus::Final => Some(true),
                BlockStatus::Orphaned => Some(false),
                BlockStatus::Canonical => None,
                BlockStatus::Unknown => {
                    canon.finalized().is_some_and(|finalized| number <= finalized).then_some(false)
                }
            }
        };
        // The cache is not touched under the index's lock, which inserts need.
        let mut due = Vec::new();
        self.blocks.lock().retain(|hash, block| match settled(hash, block) {
            Some(is_final) => {
                due.push((*hash, is_final, std::mem::take(&mut block.keys)));
                false
            }
            None => true,
        });
        let mut done = SettleStats::default();
        for (hash, is_final, keys) in due {
            for key in keys {
                if is_final {
                    let stored = self.entries.peek(&key).filter(|stored| hangs_on(stored, &hash));
                    if let Some(stored) = stored {
                        stored.is_final.store(true, Ordering::Relaxed);
                        done.promoted += 1;
                    }
                } else {
                    done.dropped += usize::from(self.remove_of_block(&key, &hash));
                }
            }
        }
        self.counts.orphaned.fetch_add(done.dropped as u64, Ordering::Relaxed);
        done
    }

    /// Forgets everything, as when a finalized block turned out to be replaced.
    pub fn clear(&self) {
        self.entries.clear();
        self.blocks.lock().clear();
    }

    /// Counts so far, and what is held now.
    pub fn stats(&self) -> MemoryStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MemoryStats {
            hits: read(&self.counts.hits),
            misses: read(&self.counts.misses),
            stale: read(&self.counts.stale),
            stored: read(&self.counts.stored),
            evicted: read(&self.counts.evicted),
            orphaned: read(&self.counts.orphaned),
            refused: std::array::from_fn(|reason| read(&self.counts.refused[reason])),
            bytes: self.entries.weight(),
            entries: self.entries.len() as u64,
        }
    }

    fn remove(&self, key: &Key, found: &Arc<Stored>) {
        // Another one may have come in its place.
        if self.entries.remove_if(key, |stored| Arc::ptr_eq(stored, found)).is_some() {
            self.forget(key, found);
        }
    }

    fn remove_of_block(&self, key: &Key, hash: &BlockHash) -> bool {
        self.entries.remove_if(key, |stored| hangs_on(stored, hash)).is_some()
    }

    /// Takes an entry that is gone out of the index.
    fn forget(&self, key: &Key, stored: &Stored) {
        let Some((_, hash)) = indexed(stored.entry.hold) else { return };
        let mut blocks = self.blocks.lock();
        if let Some(block) = blocks.get_mut(&hash) {
            block.keys.remove(key);
            if block.keys.is_empty() {
                blocks.remove(&hash);
            }
        }
    }
}

fn hangs_on(stored: &Stored, hash: &BlockHash) -> bool {
    !stored.is_final.load(Ordering::Relaxed)
        && stored.entry.hold.block().is_some_and(|block| block.hash == *hash)
}

/// What a memory did and holds, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStats {
    /// Look-ups that were served.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Look-ups that found an entry which could not be served: its time or its block was
    /// over, or this view does not know its block.
    pub stale: u64,
    /// Entries put in.
    pub stored: u64,
    /// Entries pushed out by others.
    pub evicted: u64,
    /// Entries freed because their block was orphaned.
    pub orphaned: u64,
    /// What was not kept, by [`Reason`] as an index.
    pub refused: [u64; Reason::ALL.len()],
    /// Bytes held, everything counted; never more than the bound.
    pub bytes: u64,
    /// Entries held.
    pub entries: u64,
}

#[derive(Debug, Default)]
struct MemoryCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    stale: AtomicU64,
    stored: AtomicU64,
    evicted: AtomicU64,
    orphaned: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assurance::Scrutiny;
    use crate::canon::tests::{Chain, chain, fork, hash};
    use crate::key::CacheRequest;
    use crate::pin::Pin;
    use wellhead_eth::{ChainId, MethodTable};

    const MIB: u64 = 1 << 20;

    fn key(name: &str) -> Key {
        let row = MethodTable::standard().row("web3_sha3");
        let params = format!("[\"{name}\"]");
        let ask = CacheRequest {
            chain: ChainId(1),
            row,
            params: Some(params.as_bytes()),
            pin: Pin::Fixed,
            head: None,
            salt: b"",
        };
        Key::of(&ask).unwrap()
    }

    fn kept(hold: Validity, expires_ms: Option<u64>) -> Result<Retention, Reason> {
        Ok(Retention { reason: hold.reason(), hold, expires_ms, assurance: WORD })
    }

    fn canonical(number: u64) -> Validity {
        Validity::Canonical { number: BlockNumber(number), hash: hash(number) }
    }

    const WORD: Assurance = Assurance::WORD;

    fn memory() -> Memory {
        Memory::new(4 * MIB, 1)
    }

    #[track_caller]
    fn check(memory: &Memory, name: &str, canon: Chain, now_ms: u64, want: Option<Reason>) {
        let hit = memory.get(&key(name), &canon, WORD, now_ms);
        assert_eq!(hit.as_ref().map(|hit| hit.reason), want, "{name}");
        if let Some(hit) = hit {
            assert_eq!(hit.value, name, "the answer of another key");
        }
    }

    fn put(memory: &Memory, name: &str, hold: Validity, expires_ms: Option<u64>) {
        assert_eq!(memory.put(&key(name), kept(hold, expires_ms), name.as_bytes()), hold.reason());
    }

    #[test]
    fn what_was_put_is_found() {
        let memory = memory();
        check(&memory, "a", chain(), 0, None);
        put(&memory, "a", Validity::Final, None);
        check(&memory, "a", chain(), u64::MAX, Some(Reason::Final));
        check(&memory, "b", chain(), 0, None);
        let stats = memory.stats();
        assert_eq!((stats.hits, stats.misses, stats.stored, stats.entries), (1, 2, 1, 1));
        memory.clear();
        check(&memory, "a", chain(), 0, None);
    }

    #[test]
    fn what_less_stands_behind_than_is_asked_for_is_not_served() {
        let memory = memory();
        let of = |scrutiny, agreed| Assurance { scrutiny, agreed };
        let (cheap, two) = (of(Scrutiny::Cheap, 1), of(Scrutiny::None, 2));
        let put = |assurance| {
            let kept = kept(Validity::Final, None).map(|kept| kept.with(assurance));
            memory.put(&key("a"), kept, b"1");
        };
        let is_served = |required| memory.get(&key("a"), &chain(), required, 0).is_some();
        put(WORD);
        assert!(is_served(WORD) && !is_served(cheap) && !is_served(two));
        assert_eq!(memory.stats().entries, 1, "it still serves calls that ask for less");
        put(of(Scrutiny::Full, 1));
        assert!(is_served(WORD) && is_served(cheap) && !is_served(two));
        put(of(Scrutiny::Full, 3));
        assert!(is_served(WORD) && is_served(cheap) && is_served(two));
    }

    #[test]
    fn time_ends_an_entry() {
        let memory = memory();
        put(&memory, "a", Validity::Head(BlockNumber(100)), Some(1000));
        check(&memory, "a", chain(), 999, Some(Reason::Head));
        check(&memory, "a", chain(), 1000, None);
        assert_eq!(memory.stats().entries, 0);
        // And so does the next head.
        put(&memory, "a", Validity::Head(BlockNumber(100)), Some(1000));
        check(&memory, "a", Chain { head: 101, ..chain() }, 0, None);
        assert_eq!((memory.stats().stale, memory.stats().entries), (2, 0));
    }

    #[test]
    fn an_orphaned_block_ends_an_entry_before_the_sweeper_comes() {
        let memory = memory();
        put(&memory, "a", canonical(95), None);
        check(&memory, "a", chain(), 0, Some(Reason::Canonical));
        let reorged = Chain { forked_at: 95, ..chain() };
        check(&memory, "a", reorged, 0, None);
        assert_eq!(memory.stats().entries, 0);
        assert!(memory.blocks.lock().is_empty());
    }

    #[test]
    fn a_view_that_does_not_know_the_block_serves_nothing_and_spoils_nothing() {
        let memory = memory();
        put(&memory, "a", canonical(100), None);
        check(&memory, "a", Chain { head: 99, ..chain() }, 0, None);
        check(&memory, "a", chain(), 0, Some(Reason::Canonical));
        check(&memory, "a", Chain { first: 200, head: 300, finalized: 250, ..chain() }, 0, None);
    }

    #[test]
    fn an_entry_whose_block_became_final_stays() {
        let memory = memory();
        put(&memory, "seen", canonical(95), None);
        put(&memory, "settled", canonical(96), None);
        put(&memory, "missed", canonical(97), None);
        let later = Chain { first: 50, finalized: 96, head: 110, ..chain() };
        check(&memory, "seen", later, 0, Some(Reason::Final));
        assert_eq!(memory.settle(ChainId(1), &later), SettleStats { promoted: 1, dropped: 0 });
        // Much later the view has forgotten all three blocks.
        let much_later = Chain { first: 200, finalized: 250, head: 300, ..chain() };
        assert_eq!(memory.settle(ChainId(1), &much_later), SettleStats { promoted: 0, dropped: 1 });
        check(&memory, "seen", much_later, 0, Some(Reason::Final));
        check(&memory, "settled", much_later, 0, Some(Reason::Final));
        check(&memory, "missed", much_later, 0, None);
        assert!(memory.blocks.lock().is_empty());
    }

    #[test]
    fn orphaned_blocks_free_their_entries() {
        let memory = memory();
        for name in ["a", "b", "c"] {
            put(&memory, name, canonical(95), None);
        }
        put(&memory, "d", canonical(94), None);
        put(&memory, "e", Validity::Final, None);
        put(&memory, "f", Validity::Named { number: Some(BlockNumber(96)), hash: hash(96) }, None);
        // Kept anew, for the other fork, before the clean-up.
        put(&memory, "c", Validity::Canonical { number: BlockNumber(95), hash: fork(95) }, None);
        let reorged = Chain { forked_at: 95, ..chain() };
        assert_eq!(memory.settle(ChainId(1), &reorged), SettleStats { promoted: 0, dropped: 3 });
        assert_eq!(memory.settle(ChainId(1), &reorged), SettleStats::default());
        assert_eq!((memory.stats().entries, memory.stats().orphaned), (3, 3));
        check(&memory, "c", reorged, 0, Some(Reason::Canonical));
        check(&memory, "d", reorged, 0, Some(Reason::Canonical));
        assert_eq!(memory.settle(ChainId(1), &chain()), SettleStats { promoted: 0, dropped: 1 });
    }

    #[test]
    fn what_is_final_survives_a_late_word_of_orphaning() {
        let memory = memory();
        put(&memory, "a", canonical(90), None);
        check(&memory, "a", chain(), 0, Some(Reason::Final));
        let reorged = Chain { forked_at: 90, ..chain() };
        assert_eq!(memory.settle(ChainId(1), &reorged), SettleStats::default());
        check(&memory, "a", chain(), 0, Some(Reason::Final));
    }

    #[test]
    fn one_chain_s_view_says_nothing_of_another_s_blocks() {
        let memory = memory();
        let (number, hash) = (BlockNumber(95), fork(95));
        put(&memory, "a", Validity::Canonical { number, hash }, None);
        assert_eq!(memory.settle(ChainId(10), &chain()), SettleStats::default());
        assert_eq!(memory.settle(ChainId(1), &chain()), SettleStats { promoted: 0, dropped: 1 });
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let memory = memory();
        assert_eq!(memory.put(&key("a"), Err(Reason::Error), b"1"), Reason::Error);
        let large = vec![b'1'; (4 * MIB / LARGEST_SHARE) as usize];
        assert_eq!(memory.put(&key("a"), kept(Validity::Final, None), &large), Reason::TooLarge);
        memory.refused(Reason::Live);
        let refused = memory.stats().refused;
        for reason in Reason::ALL {
            let want = matches!(reason, Reason::Error | Reason::TooLarge | Reason::Live);
            assert_eq!(refused[reason as usize], u64::from(want), "{reason}");
        }
        assert_eq!((memory.stats().entries, memory.stats().bytes), (0, 0));
    }

    #[test]
    fn an_entry_of_another_tier_is_taken_over() {
        let memory = memory();
        let body = Bytes::from("xxaxx");
        let entry = Entry {
            value: body.slice(2..3),
            hold: canonical(95),
            expires_ms: Some(5),
            assurance: WORD,
        };
        assert!(memory.adopt(&key("a"), &entry));
        check(&memory, "a", chain(), 4, Some(Reason::Canonical));
        check(&memory, "a", chain(), 5, None);
    }

    #[test]
    fn evicted_entries_leave_the_index() {
        let memory = Memory::new(256 * 1024, 1);
        for number in 0..5000 {
            put(&memory, &format!("{number}"), canonical(91 + number % 9), None);
            assert!(memory.stats().bytes <= 256 * 1024);
        }
        let stats = memory.stats();
        assert!(stats.evicted > 4000 && stats.entries > 100, "{stats:?}");
        assert_eq!(stats.entries + stats.evicted, 5000);
        let indexed: usize = memory.blocks.lock().values().map(|block| block.keys.len()).sum();
        assert_eq!(indexed as u64, stats.entries);
    }

    #[test]
    fn memory_is_bounded_honestly() {
        for (value_bytes, bound) in [(20, 8 * MIB), (600, 8 * MIB), (20_000, 8 * MIB)] {
            let value = vec![b'1'; value_bytes];
            let keep = std::cell::RefCell::new(None);
            let taken = allocation_counter::measure(|| {
                let memory = Memory::new(bound, 1);
                for number in 0..40_000 {
                    let key = key(&format!("{number}"));
                    memory.put(&key, kept(canonical(91 + number % 9), None), &value);
                    // A clone makes the bytes of a value shared, which allocates.
                    memory.get(&key, &chain(), WORD, 0);
                }
                *keep.borrow_mut() = Some(memory);
            });
            let stats = keep.borrow().as_ref().unwrap().stats();
            let taken = u64::try_from(taken.bytes_current).unwrap();
            assert!(stats.bytes <= bound && stats.bytes > bound / 10 * 8, "{stats:?}");
            assert!(taken <= stats.bytes, "{value_bytes}: {taken} allocated, {stats:?}");
        }
    }

    #[test]
    fn threads_may_share_it() {
        let memory = Memory::new(MIB, 1);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let memory = &memory;
                scope.spawn(move || {
                    for step in 0..3000_u64 {
                        let number = (step * 7 + thread * 13) % 200;
                        let name = format!("{number}");
                        let canon = Chain { forked_at: 91 + step % 10, ..chain() };
                        if let Some(hit) = memory.get(&key(&name), &canon, WORD, step) {
                            assert_eq!(hit.value, name);
                            assert_eq!(hit.reason, Reason::Canonical);
                            assert!(91 + number % 9 < canon.forked_at, "served from an orphan");
                        }
                        put(memory, &name, canonical(91 + number % 9), None);
                        if step % 100 == 0 {
                            memory.settle(ChainId(1), &canon);
                        }
                    }
                });
            }
        });
        assert!(memory.stats().bytes <= MIB);
    }
}
