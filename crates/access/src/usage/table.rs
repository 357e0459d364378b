//! The rows of the minutes that are open.
//!
//! Workers record concurrently. A shard is found by the hash of the row and locked for one look-up and
//! six additions; each shard has a map per open minute, so that taking a minute takes whole maps and
//! holds no worker up. Maps that were taken come back empty: in the steady state recording allocates
//! nothing at all, and otherwise only with the first record of a row in a minute.
//!
//! # At the bound
//!
//! The open minutes hold at most `rows_max` rows together. Then calls under a new key count in the row
//! `other` of their tenant, with source and outcome ([`OTHER`](super::OTHER)); rows that are there go
//! on. When there are [`OTHERS_MAX`] rows `other`, calls of further tenants count in those of the
//! tenant `other`, of which there is one per source, outcome and open minute. Every sum over tenants, sources and
//! outcomes stays right, but those of the tenants that came last.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{UsageAmounts, UsageKey, UsageMinute, UsageOutcome, UsageRow, UsageRowId, UsageSource};
use crate::AccessGrant;
use crate::hashed_already::HashedAlready;

/// Rows of all open minutes: about 12 MB.
const ROWS_MAX: usize = 65_536;
/// Rows `other` of tenants: about 200 tenants that each have every source and outcome, or thousands
/// that have one.
const OTHERS_MAX: usize = 4_096;
/// Far more than threads, so that two of them rarely meet unless they count in one row.
const SHARDS: usize = 64;
/// Two are open where a minute ends. More are if nothing is taken or the clock was set; what is
/// recorded in a further one counts in the newest.
const OPEN_MINUTES_MAX: usize = 4;

/// One call, or several that are alike, as it ended.
#[derive(Debug, Clone, Copy)]
pub struct UsageRecord<'a> {
    /// What it came from.
    pub grant: &'a AccessGrant,
    /// The name of the chain.
    pub chain: &'a Arc<str>,
    /// The name of the row of the method table, which is `*` for unknown methods: a client's own word
    /// would let it fill the table.
    pub method: &'static str,
    /// Where the answer came from.
    pub source: UsageSource,
    /// How it ended.
    pub outcome: UsageOutcome,
    /// What it amounts to.
    pub amounts: UsageAmounts,
}

impl UsageRecord<'_> {
    fn hash(&self) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, value: u64| {
            let product = u128::from(state ^ value).wrapping_mul(u128::from(FACTOR));
            (product as u64) ^ (product >> 64) as u64
        };
        let words = (self.source as u64) << 8 | self.outcome as u64;
        let state = mix(self.grant.tenant.number, words);
        let state = mix(state, self.grant.number);
        let state = mix(state, xxh3_64(self.chain.as_bytes()));
        mix(state, xxh3_64(self.method.as_bytes()))
    }

    fn is_of(&self, key: &UsageKey) -> bool {
        self.source == key.source
            && self.outcome == key.outcome
            && self.method == key.method
            && *self.chain == key.chain
            && self.grant.id == key.key
            && self.grant.tenant.name == key.tenant
            && self.grant.kind.word() == key.kind
    }
}

/// Counts what is used; see the module for what happens at its bounds.
#[derive(Debug)]
pub struct UsageTable {
    replica: Box<str>,
    shards: Box<[UsageShard]>,
    rows_max: usize,
    others_max: usize,
    /// Rows in the shards that are no `other`, and those that are.
    rows: AtomicUsize,
    others: AtomicUsize,
    folded: AtomicU64,
    takes: AtomicU64,
}

impl UsageTable {
    /// An empty table of at most 65,536 rows.
    ///
    /// `replica` is part of the rows' ids: two processes, and also two runs of one process, must have
    /// different ones, or a store drops rows of the one as doubles of the other.
    pub fn new(replica: &str) -> Self {
        Self::with_bounds(replica, ROWS_MAX, OTHERS_MAX)
    }

    /// A table of at most `rows_max` rows, and `others_max` rows `other` of tenants.
    pub fn with_bounds(replica: &str, rows_max: usize, others_max: usize) -> Self {
        Self {
            replica: replica.into(),
            shards: (0..SHARDS).map(|_| UsageShard::default()).collect(),
            rows_max,
            others_max,
            rows: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            folded: AtomicU64::new(0),
            takes: AtomicU64::new(0),
        }
    }

    /// The replica that the ids of its rows are made with.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// Counts what was used in `minute`.
    pub fn record(&self, record: &UsageRecord<'_>, minute: UsageMinute) {
        let hash = record.hash();
        let mut shard = self.shard(hash).lock();
        let open = shard.open(minute);
        if let Some(row) = open.find(hash, |key| record.is_of(key)) {
            return row.amounts.add(&record.amounts);
        }
        if reserve(&self.rows, self.rows_max) {
            let key = record.grant.usage_key(record);
            return open.insert(hash, OpenRow { key, amounts: record.amounts });
        }
        drop(shard);
        self.fold(record, minute);
    }

    #[cold]
    fn fold(&self, record: &UsageRecord<'_>, minute: UsageMinute) {
        self.folded.fetch_add(record.amounts.calls, Relaxed);
        let tenant = &record.grant.tenant.name;
        let key = UsageKey::other_of(Arc::clone(tenant), record.source, record.outcome);
        if self.add_other(key, &record.amounts, minute, self.others_max) {
            return;
        }
        let key = UsageKey::other_of(super::OTHER.into(), record.source, record.outcome);
        // One per source, outcome and open minute: these need no bound.
        self.add_other(key, &record.amounts, minute, usize::MAX);
    }

    /// Whether there was room.
    fn add_other(
        &self,
        key: UsageKey,
        amounts: &UsageAmounts,
        minute: UsageMinute,
        max: usize,
    ) -> bool {
        let hash = xxh3_64(key.tenant.as_bytes()) ^ (key.source as u64) << 8 ^ key.outcome as u64;
        let mut shard = self.shard(hash).lock();
        let open = shard.open(minute);
        match open.find(hash, |known| *known == key) {
            Some(row) => row.amounts.add(amounts),
            None if reserve(&self.others, max) => {
                open.insert(hash, OpenRow { key, amounts: *amounts });
            }
            None => return false,
        }
        true
    }

    fn shard(&self, hash: u64) -> &Mutex<OpenMinutes> {
        // The maps use the low bits.
        &self.shards[(hash >> 48) as usize % SHARDS].0
    }

    /// Takes the rows of the minutes before `before`, in the order of minutes and keys, each with an id.
    ///
    /// A call of such a minute that is recorded later, because it was under way, makes another row at
    /// the next take. [`UsageMinute::MAX`] takes all.
    pub fn take_minute(&self, before: UsageMinute) -> Vec<UsageRow> {
        let take = self.takes.fetch_add(1, Relaxed);
        let mut rows = Vec::new();
        for UsageShard(shard) in &self.shards {
            let ended = shard.lock().take(before);
            for mut ended in ended {
                let minute = ended.minute;
                rows.extend(ended.rows.drain(..).map(|OpenRow { key, amounts }| {
                    let id = UsageRowId::new(&self.replica, take, minute, &key);
                    UsageRow { id, minute, key, amounts }
                }));
                ended.places.clear();
                shard.lock().spare = Some(ended);
            }
        }
        let others = rows.iter().filter(|row| row.key.kind == super::OTHER).count();
        self.others.fetch_sub(others, Relaxed);
        self.rows.fetch_sub(rows.len() - others, Relaxed);
        rows.sort_unstable_by(|a, b| (a.minute, &a.key).cmp(&(b.minute, &b.key)));
        rows
    }

    /// Rows that are held now.
    pub fn rows(&self) -> usize {
        self.rows.load(Relaxed) + self.others.load(Relaxed)
    }

    /// Calls since the start that count in rows `other`, because there was no room for one of theirs.
    pub fn folded(&self) -> u64 {
        self.folded.load(Relaxed)
    }
}

/// Takes one place of `max`, unless all are taken.
fn reserve(taken: &AtomicUsize, max: usize) -> bool {
    let next = |taken: usize| (taken < max).then_some(taken + 1);
    taken.fetch_update(Relaxed, Relaxed, next).is_ok()
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct UsageShard(Mutex<OpenMinutes>);

#[derive(Debug, Default)]
struct OpenMinutes {
    /// At most [`OPEN_MINUTES_MAX`], the newest last.
    minutes: Vec<OpenMinute>,
    /// Empty, with the memory of one that was taken.
    spare: Option<OpenMinute>,
}

impl OpenMinutes {
    fn open(&mut self, minute: UsageMinute) -> &mut OpenMinute {
        let place = match self.minutes.iter().rposition(|open| open.minute == minute) {
            Some(place) => place,
            None => self.begin(minute),
        };
        &mut self.minutes[place]
    }

    #[cold]
    fn begin(&mut self, minute: UsageMinute) -> usize {
        if self.minutes.len() >= OPEN_MINUTES_MAX {
            return self.minutes.len() - 1;
        }
        let mut open = self.spare.take().unwrap_or_default();
        open.minute = minute;
        let place = self.minutes.partition_point(|open| open.minute < minute);
        self.minutes.insert(place, open);
        place
    }

    fn take(&mut self, before: UsageMinute) -> Vec<OpenMinute> {
        let ended = match before {
            UsageMinute::MAX => self.minutes.len(),
            _ => self.minutes.partition_point(|open| open.minute < before),
        };
        self.minutes.drain(..ended).collect()
    }
}

#[derive(Debug)]
struct OpenRow {
    key: UsageKey,
    amounts: UsageAmounts,
}

/// The rows of one minute in one shard.
#[derive(Debug, Default)]
struct OpenMinute {
    minute: UsageMinute,
    rows: Vec<OpenRow>,
    /// Where the row of a hash is. One whose hash is taken by another row has the next that is free.
    places: HashMap<u64, u32, BuildHasherDefault<HashedAlready>>,
}

impl OpenMinute {
    fn find(&mut self, mut hash: u64, is_it: impl Fn(&UsageKey) -> bool) -> Option<&mut OpenRow> {
        loop {
            // Ends: there are fewer rows than hashes.
            let place = *self.places.get(&hash)? as usize;
            if is_it(&self.rows[place].key) {
                return Some(&mut self.rows[place]);
            }
            hash = hash.wrapping_add(1);
        }
    }

    fn insert(&mut self, mut hash: u64, row: OpenRow) {
        while self.places.contains_key(&hash) {
            hash = hash.wrapping_add(1);
        }
        self.places.insert(hash, self.rows.len() as u32);
        self.rows.push(row);
    }
}
