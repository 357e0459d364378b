//! The slow tiers behind the memory: a disk that outlives a restart, and a Redis that
//! replicas share.
//!
//! They are asked when memory has nothing, before an upstream is, by one of those who ask the
//! same; what they have goes to memory first and is served as from there, by what the newest
//! view says of its block. Each look is bounded in time by `wellhead_store`, so that a tier
//! that hangs, is full or gone costs a moment now and then and no answer. Puts never wait.
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
//! Not promised: anything where final blocks are replaced and block 1 is not, as when somebody
//! winds a development node back. When that is seen the tiers are not asked for the chain any
//! more, until wellhead is started again.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use wellhead_cache::{Assurance, Entry, Hold, Kept, Key, Pin, Use, may_be_kept};
use wellhead_dispatch::now;
use wellhead_eth::{BlockHash, MethodRow};
use wellhead_store::{Digest, Disk, Shared, Snapshot};
use wellhead_watch::Pulse;

use crate::chain::ServedChain;
use crate::journey::Trip;
use crate::kept::{Asked, Seen, may_be_told};

/// What may be replaced is final or forgotten after so long.
const REPLACEABLE_FOR: Duration = Duration::from_secs(3_600);

/// The items of one batch together wait for their tiers no longer, by default.
const BATCH_WAIT: Duration = Duration::from_millis(40);
/// Looks of one batch at a time.
const BATCH_PARALLEL: usize = 32;

/// The tiers of a cache.
#[derive(Debug)]
pub struct Tiers {
    disk: Option<Disk>,
    /// How long the items of one batch wait for them together.
    batch_within: Duration,
    /// Needs a runtime, which there is when the proxy is put together already.
    shared: OnceLock<Shared>,
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
        Self { disk, batch_within: BATCH_WAIT, shared: OnceLock::new() }
    }

    /// The items of one batch wait for so long together; 40 ms by default.
    #[must_use]
    pub fn batches_within(self, batch_within: Duration) -> Self {
        Self { batch_within, ..self }
    }

    /// Adds the tier that is shared with others. There is one at most.
    pub fn share(&self, shared: Shared) {
        // A second one would be a defect of whoever assembles, and is not used.
        let _is_first = self.shared.set(shared);
    }

    /// Writes what waits for the disk and frees its directory.
    pub async fn close(&self) {
        if let Some(disk) = &self.disk {
            disk.close().await;
        }
    }

    pub(crate) fn seen(&self) -> Vec<TierSeen> {
        let disk = self.disk.as_ref().map(|it| TierSeen { name: "disk", stats: it.stats() });
        let shared = self.shared.get().map(|it| TierSeen { name: "redis", stats: it.stats() });
        disk.into_iter().chain(shared).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.disk.is_none() && self.shared.get().is_none()
    }

    async fn get(&self, key: &Key, origin: &BlockHash, required: Assurance) -> Option<Entry> {
        let digest = Digest(key.digest(origin));
        let read = |bytes: Bytes| {
            let entry = Entry::decode(&bytes, &digest.0).ok()?;
            entry.assurance.meets(required).then_some(entry)
        };
        if let Some(disk) = &self.disk
            && let Some(entry) = disk.get(&digest).await.and_then(read)
        {
            return Some(entry);
        }
        let entry = self.shared.get()?.get(&digest).await.and_then(read)?;
        if let (Some(disk), Hold::Final) = (&self.disk, entry.hold) {
            disk.put(digest, entry.encode(&digest.0).into(), Duration::MAX);
        }
        Some(entry)
    }

    /// Has an answer written that was kept in memory.
    pub(crate) fn put(&self, key: &Key, origin: &BlockHash, kept: Kept, result: &[u8]) {
        if kept.expires_ms.is_some() {
            return;
        }
        let (on_disk, time) = match kept.hold {
            Hold::Final => (true, Duration::MAX),
            Hold::Canonical { .. } | Hold::Named { .. } => (false, REPLACEABLE_FOR),
            Hold::Head(_) => return,
        };
        let disk = self.disk.as_ref().filter(|_| on_disk);
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
pub(crate) struct Distrust(Mutex<Origins>);

#[derive(Debug, Default)]
struct Origins {
    /// That under which they were used last.
    used: Option<BlockHash>,
    /// That whose answers are not believed: final blocks of it were replaced.
    distrusted: Option<BlockHash>,
}

impl Distrust {
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

/// The origin under which the slow tiers of this chain are asked, where there are any.
fn origin(chain: &ServedChain) -> Option<BlockHash> {
    chain.cache().filter(|cache| !cache.tiers().is_empty())?;
    chain.shares.as_ref()?.distrust.origin(&chain.pulse)
}

/// Whether there is a slow tier to ask for this chain.
pub(crate) fn are_there(trip: &Trip<'_>) -> bool {
    origin(trip.chain).is_some()
}

/// Whether a slow tier may have the answer.
pub(crate) fn may_have(trip: &Trip<'_>, asked: &Asked, row: &MethodRow) -> bool {
    are_there(trip) && asked.pin() != Pin::Head && may_be_kept(row, asked.pin()).is_ok()
}

/// Fetches what the items of a batch ask for into memory, side by side and within
/// [`Tiers::batches_within`] for all of them.
pub(crate) async fn fetch_all(trip: &Trip<'_>, asked: Vec<Asked>) {
    let all = async {
        let mut waiting = asked.iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < BATCH_PARALLEL
                && let Some(asked) = waiting.next()
            {
                running.push(fetch(trip, asked));
            }
            if running.next().await.is_none() {
                break;
            }
        }
    };
    let within = trip.chain.cache().map_or(BATCH_WAIT, |it| it.tiers().batch_within);
    // What was not found in time is asked upstream.
    let _in_time = tokio::time::timeout(within, all).await;
}

/// The answer to a part of a search that is final, from memory or a slow tier.
pub(crate) async fn part(chain: &ServedChain, asked: &Asked) -> Option<Bytes> {
    let shares = chain.shares.as_ref()?;
    if let Some(kept) = shares.part(chain, asked) {
        return Some(kept);
    }
    look(chain, asked, None).await
}

/// The answer that a slow tier has and that is true by the newest view; it is in memory then.
/// Cancel-safe.
pub(crate) async fn fetch(trip: &Trip<'_>, asked: &Asked) -> Option<Bytes> {
    look(trip.chain, asked, Some(trip)).await
}

/// The same, if it may be told to this client, where it is for one.
async fn look(chain: &ServedChain, asked: &Asked, client: Option<&Trip<'_>>) -> Option<Bytes> {
    let (shares, cache) = (chain.shares.as_ref()?, chain.cache()?);
    let origin = origin(chain)?;
    let mut entry = cache.tiers().get(asked.key(), &origin, asked.required()).await?;
    let at = now();
    chain.heads.look(|view| {
        let seen = client.map_or(Seen::at(view, at), |trip| Seen::by(trip, view, at));
        match entry.hold.under(&seen) {
            Use::Serve => {}
            Use::ServeForEver => entry.hold = Hold::Final,
            Use::Skip | Use::Drop => return None,
        }
        let is_true =
            !entry.is_over(cache.ms(at)) && shares.distrust.origin(&chain.pulse) == Some(origin);
        let is_told = client.is_none_or(|trip| may_be_told(trip, &entry.value, view));
        if !is_true || !is_told {
            return None;
        }
        cache.adopt(asked.key(), &entry);
        Some(entry.value.clone())
    })
}
