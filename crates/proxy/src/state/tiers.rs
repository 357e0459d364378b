//! The slow tiers behind the memory: a disk that outlives a restart, and a Redis that
//! replicas share. When they are asked: [`crate::steps::tiers`].
//!
//! | answer | disk | Redis |
//! |---|---|---|
//! | final for ever | yes | yes |
//! | belongs to a block that may be replaced, named by its hash | no | for an hour |
//! | ends by the clock or with the head | no | no |
//!
//! What they have is found by the call and the chain's **origin**: the hash of its block 1, which
//! a chain that was started anew under the same id does not share. Until the upstreams told it,
//! and while two of them differ, the tiers are neither asked nor written.
//!
//! Not promised: anything where final blocks are replaced and block 1 is not, as when a
//! development node is wound back. When that is seen the tiers are not asked for the chain any
//! more, until wellhead is started again.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_cache::{Assurance, Entry, Key, Retention, Validity};
use wellhead_eth::BlockHash;
use wellhead_store::{Digest, Disk, SharedTier, Snapshot};
use wellhead_watch::Pulse;

/// What may be replaced is final or forgotten after this long.
const REPLACEABLE_FOR: Duration = Duration::from_secs(3_600);

/// The items of one batch together wait for their tiers no longer, by default.
pub(crate) const BATCH_WAIT: Duration = Duration::from_millis(40);

/// The tiers of a cache.
#[derive(Debug)]
pub struct Tiers {
    /// Set later where another process has it first.
    disk: OnceLock<Disk>,
    /// How long the items of one batch wait for them together.
    pub(crate) batch_within: Duration,
    /// Needs a runtime, which there is when the proxy is put together already.
    shared: OnceLock<SharedTier>,
}

/// One tier and how it fares.
#[derive(Debug)]
pub(crate) struct TierSeen {
    pub(crate) name: &'static str,
    pub(crate) stats: Snapshot,
}

impl Default for Tiers {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Tiers {
    /// With this disk, if any.
    pub fn new(disk: Option<Disk>) -> Self {
        let disk = disk.map(OnceLock::from).unwrap_or_default();
        Self { disk, batch_within: BATCH_WAIT, shared: OnceLock::new() }
    }

    /// The items of one batch wait for this long together; 40 ms by default.
    #[must_use]
    pub fn batches_within(self, batch_within: Duration) -> Self {
        Self { batch_within, ..self }
    }

    /// Whether there is no disk, at least not yet.
    pub fn has_no_disk(&self) -> bool {
        self.disk.get().is_none()
    }

    /// Adds the disk, where another process had it when this one began. There is one at most.
    pub fn add_disk(&self, disk: Disk) {
        // A second one would be a defect of the assembly, and is not used.
        let _is_first = self.disk.set(disk);
    }

    /// Adds the tier that is shared with others. There is one at most.
    pub fn share(&self, shared: SharedTier) {
        // A second one would be a defect of the assembly, and is not used.
        let _is_first = self.shared.set(shared);
    }

    /// Writes what waits for the disk and frees its directory.
    pub async fn close(&self) {
        if let Some(disk) = self.disk.get() {
            disk.close().await;
        }
    }

    pub(crate) fn seen(&self) -> Vec<TierSeen> {
        let disk = self.disk.get().map(|it| TierSeen { name: "disk", stats: it.stats() });
        let shared = self.shared.get().map(|it| TierSeen { name: "redis", stats: it.stats() });
        disk.into_iter().chain(shared).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.disk.get().is_none() && self.shared.get().is_none()
    }

    /// What a tier has under this key, and that meets what is required.
    pub(crate) async fn get(
        &self,
        key: &Key,
        origin: &BlockHash,
        required: Assurance,
    ) -> Option<Entry> {
        let digest = Digest(key.digest(origin));
        let read = |bytes: Bytes| {
            let entry = Entry::decode(&bytes, &digest.0)?;
            entry.assurance.meets(required).then_some(entry)
        };
        if let Some(disk) = self.disk.get()
            && let Some(entry) = disk.get(&digest).await.and_then(read)
        {
            return Some(entry);
        }
        let entry = self.shared.get()?.get(&digest).await.and_then(read)?;
        if let (Some(disk), Validity::Final) = (self.disk.get(), entry.hold) {
            disk.put(digest, entry.encode(&digest.0).into(), Duration::MAX);
        }
        Some(entry)
    }

    /// Has an answer written that was kept in memory.
    pub(crate) fn put(&self, key: &Key, origin: &BlockHash, kept: Retention, result: &[u8]) {
        if kept.expires_ms.is_some() {
            return;
        }
        let (on_disk, time) = match kept.hold {
            Validity::Final => (true, Duration::MAX),
            Validity::Canonical { .. } | Validity::Named { .. } => (false, REPLACEABLE_FOR),
            Validity::Head(_) => return,
        };
        let disk = self.disk.get().filter(|_| on_disk);
        if disk.is_none() && self.shared.get().is_none() {
            return;
        }
        let digest = Digest(key.digest(origin));
        let bytes: Bytes = kept.entry(Bytes::copy_from_slice(result)).encode(&digest.0).into();
        if let Some(disk) = disk {
            disk.put(digest, bytes.clone(), time);
        }
        if let Some(shared) = self.shared.get() {
            shared.put(digest, bytes, time);
        }
    }
}

/// Under which origin the tiers are believed.
#[derive(Debug, Default)]
pub(crate) struct TierGuard(Mutex<Origins>);

#[derive(Debug, Default)]
struct Origins {
    /// That under which they were used last.
    used: Option<BlockHash>,
    /// That whose answers are not believed: final blocks of it were replaced.
    distrusted: Option<BlockHash>,
}

impl TierGuard {
    /// Blocks that were final were replaced. All upstreams are asked anew for their origin, and
    /// while it is the one that there was the tiers are left alone.
    pub(crate) fn begin(&self, pulse: &Pulse) {
        let mut origins = self.0.lock();
        origins.distrusted = origins.used.or(pulse.origin());
        pulse.forget_origins();
    }

    /// The origin under which the tiers are asked, if they are.
    pub(crate) fn origin(&self, pulse: &Pulse) -> Option<BlockHash> {
        let mut origins = self.0.lock();
        let origin = pulse.origin().filter(|origin| origins.distrusted != Some(*origin))?;
        origins.used = Some(origin);
        Some(origin)
    }
}
