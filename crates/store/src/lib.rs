//! What outlives a process or is shared by several: two slow tiers behind a cache of answers,
//! [`Disk`], which outlives a restart, and [`SharedTier`], a Redis or Valkey that replicas have in
//! common; and five things more that replicas share through one: limits ([`LeaseKeeper`]), pauses of
//! upstreams ([`PauseChannel`]), what they learn of chains and upstreams ([`ReplicaChannel`]), the keys of
//! callers ([`KeyDirectory`]) and filters of clients ([`SharedFilters`]). Each of these documents
//! itself; what follows is of the two tiers.
//!
//! Both keep opaque bytes under an opaque digest of 32 bytes and know nothing else of
//! them: what may be kept, for how long and under which digest is for the cache to
//! say. They look alike (`get`, `put`, `stats`) and are two types, as the
//! cache asks them in turn and not in general.
//!
//! # What both promise
//!
//! - A `get` returns what was put under this very digest, or nothing. Each value has a
//!   header with its digest and a checksum (`record`); what is damaged, torn, expired or
//!   another's is a miss and is forgotten.
//! - A `get` is slow for `read_within` or `get_within` at most, and never an error.
//! - A `put` never waits. What does not fit its queue is dropped and counted.
//! - Futures may be dropped at any moment. What runs in the background belongs to the
//!   handles and ends with the last one.
//!
//! What they do not promise is that a value is there, however lately it was put.
//!
//! # The disk
//!
//! *Shape.* A row of about 64 segments, each two files: values one after the other, and
//! 16 bytes for each that say where it lies (`disk::segment`). One thread appends. An index
//! of fixed size in memory, 12 bytes for each of `entries_max`, leads from a
//! digest to its place (`disk::index`): a miss is a look at two cache lines and wakes
//! no thread; a hit is one read of 4 KiB by a reader's thread, and another one for
//! what is larger.
//!
//! *Bound.* Before a record is appended the oldest segments are deleted until it fits, so
//! the lengths of all files together never exceed `bytes_max`. Beyond it are: the
//! rounding of each file up to a block by the file system, and a deleted segment that a
//! reader has open, until that read ends. Eviction is by age of writing alone, a 64th
//! of the store at a time.
//!
//! *Death.* A record is written before its place, and a place before the write is
//! acknowledged, in plain writes that are the kernel's once they return: a killed process
//! loses what was still queued and nothing else. A machine that loses power loses more,
//! in any order; places and records have checksums of their own. There is nothing to
//! replay: opening reads the places, 16 bytes a value.
//!
//! *Why not an embedded database.* `fjall` and `redb` were considered. An LSM tree keeps
//! at least 64 MiB of journal, compacts in the background, and is poisoned by a damaged
//! table until it is rebuilt; a B-tree in one file is repaired by reading it whole after
//! a kill, unless each commit pays, and does not shrink. Both are made for values that
//! must not be lost, and neither is bounded to the byte. A cache that forgets the oldest
//! first is a log.
//!
//! # The shared tier
//!
//! Gets go to Redis only over a link that a task in the background has proven to be
//! quick. Five late answers in a row, or more than one in a hundred in the long run,
//! end the link; until the task has proven a new one with three quick pings, a
//! get is a miss without a wait. No request tries whether Redis is back. So the 99th
//! percentile of gets stays within `get_within`, whatever Redis does, but for five gets
//! and those beside them each time a link ends.

mod broadcast;
mod disk;
mod filters;
mod key_directory;
mod lease;
mod look;
mod pauses;
mod reconnect;
mod record;
mod replicas;
mod shared;
mod stats;
mod subscription;

use std::fmt;
use std::sync::Arc;

use tokio::task::AbortHandle;

pub use crate::broadcast::{BroadcastBounds, BroadcastStatus, ReplicaChannel, ReplicaId};
pub use crate::disk::{Disk, DiskBounds, OpenError};
pub use crate::filters::{
    FilterLookup, FilterStoreBounds, FilterStoreError, FilterWrite, SharedFilters,
};
pub use crate::key_directory::{
    DirectoryBounds, DirectoryEntry, DirectoryError, DirectoryStatus, DirectoryWrite,
    DirectoryWriter, KeyDirectory, KeySnapshot,
};
pub use crate::lease::{LeaseBounds, LeaseClock, LeaseKeeper, LeaseStatus, RegistryFull};
pub use crate::look::{LookError, StoreReport, look_at};
pub use crate::pauses::{PauseChannel, PauseNotice};
pub use crate::replicas::ReplicaMessage;
pub use crate::shared::{NotRedis, SharedBounds, SharedTier};
pub use crate::stats::{Snapshot, State};

/// Ends a task when the last handle is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the seconds since 1970, from any thread: `telemetry::clock::unix_seconds`.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a value is found by. Its bytes must be as good as random, those of a
/// cryptographic hash: nothing else tells two questions apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
