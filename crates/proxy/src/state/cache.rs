//! The answers that are kept, the calls that are shared while they are under way, and what a view
//! says of the blocks of kept answers ([`ViewCanon`]).
//!
//! What may be kept and for how long is decided in `wellhead_cache`; what becomes of a call in
//! [`crate::steps::cached`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_cache::{Canon, FlightLimits, Flights, Memory, Reason, Times};
use wellhead_chain::{Tag, View};
use wellhead_eth::{BlockHash, BlockNumber};
use wellhead_upstream::Slot;

use crate::answer::Refusal;
use crate::state::counts::CallOutcome;
use crate::state::tiers::{TierGuard, Tiers};

/// What the settings say of kept answers.
#[derive(Debug, Clone, Copy)]
pub struct CacheSettings {
    /// Bytes of answers in memory, with their keys and all that goes with them.
    pub bytes: u64,
    /// For answers that change with the head; zero keeps none.
    pub head: Duration,
    /// For a `null` that says something true; zero keeps none.
    pub null: Duration,
    /// Whether states are asked for by the hash of their block, which lets them be kept.
    pub by_hash: ByHashMode,
}

/// Which upstreams are asked for a state by the hash of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByHashMode {
    /// Those that were found to honour one.
    #[default]
    Auto,
    /// All of them: they are known to.
    On,
    /// None.
    Off,
}

/// The answers that are kept, of all chains and for all workers.
#[derive(Debug)]
pub struct Cache {
    pub(crate) memory: Memory,
    settings: CacheSettings,
    /// The clock by which entries end: milliseconds since 1970 at a moment, counted on from
    /// there by the clock that requests have.
    since: (Instant, u64),
    pub(crate) tiers: Tiers,
}

impl Cache {
    /// Keeps nothing yet. `unix_ms` is the wall time at `now`; `seed` is a secret, so that
    /// no client can choose calls that are slow to look up.
    pub fn new(settings: CacheSettings, now: Instant, unix_ms: u64, seed: u64) -> Self {
        let memory = Memory::new(settings.bytes, seed);
        Self { memory, settings, since: (now, unix_ms), tiers: Tiers::default() }
    }

    /// With these tiers behind the memory.
    #[must_use]
    pub fn before(self, tiers: Tiers) -> Self {
        Self { tiers, ..self }
    }

    /// What stands behind the memory.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.settings.bytes
    }

    pub(crate) fn ms(&self, at: Instant) -> u64 {
        let (then, unix_ms) = self.since;
        let passed = at.saturating_duration_since(then).as_millis();
        unix_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(crate) fn by_hash(&self) -> ByHashMode {
        self.settings.by_hash
    }

    /// How long what ends by the clock is kept.
    pub(crate) fn times(&self) -> Times {
        Times { head: self.settings.head, null: self.settings.null }
    }
}

/// What one chain shares: the answers kept, and the calls under way.
#[derive(Debug)]
pub(crate) struct Shares {
    /// `None` where nothing is kept.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Of this chain alone: another may have the same id, and other upstreams. `None` where each
    /// goes alone.
    pub(crate) flights: Option<Flights<SharedResult>>,
    /// Whose answers in the slow tiers are left alone.
    pub(crate) tier_guard: Arc<TierGuard>,
}

impl Shares {
    /// `None` where neither is wanted. `seed` is that of the flights.
    pub(crate) fn new(cache: Option<Arc<Cache>>, seed: Option<u64>) -> Option<Self> {
        let is_wanted = cache.is_some() || seed.is_some();
        let flights = seed.map(|seed| Flights::new(FlightLimits::default(), seed));
        is_wanted.then(|| Self { cache, flights, tier_guard: Arc::default() })
    }

    /// Going on with what `old` knows of slow tiers. Calls do not join those of other settings, which may name
    /// upstreams that are gone and were checked by other rules.
    pub(crate) fn succeeding(self, old: &Self) -> Self {
        Self { tier_guard: Arc::clone(&old.tier_guard), ..self }
    }

    /// Counts a call that is not looked up.
    pub(crate) fn refused(&self, reason: Reason) {
        if let Some(cache) = &self.cache {
            cache.memory.refused(reason);
        }
    }
}

/// What came of a call that others wait for.
#[derive(Debug, Clone)]
pub(crate) enum SharedResult {
    Result(Bytes, Option<Slot>),
    Error(Bytes, Slot),
    Refused(Arc<Refusal>, CallOutcome),
}

/// What a view says of blocks. While it is not fresh it says nothing of those that may have
/// been replaced since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewCanon<'a> {
    view: &'a View,
    is_fresh: bool,
}

impl<'a> ViewCanon<'a> {
    pub(crate) fn at(view: &'a View, now: Instant) -> Self {
        Self { view, is_fresh: view.is_fresh(now) }
    }

    /// What the view says to a client that was `shown_more` than is agreed: it may have been shown
    /// another branch, so nothing of what may be replaced.
    pub(crate) fn by(view: &'a View, now: Instant, shown_more: impl FnOnce() -> bool) -> Self {
        Self { view, is_fresh: view.is_fresh(now) && !shown_more() }
    }

    /// What is believed, fresh or not.
    pub(crate) fn believed(view: &'a View) -> Self {
        Self { view, is_fresh: true }
    }
}

impl Canon for ViewCanon<'_> {
    fn head(&self) -> Option<BlockNumber> {
        self.view.latest.filter(|_| self.is_fresh).map(|head| head.number)
    }

    fn finalized(&self) -> Option<BlockNumber> {
        let (mark, latest) = (self.view.mark(Tag::Finalized)?.number, self.view.latest?.number);
        // Above the newest block it is a chain's that was there before a reset.
        (mark <= latest).then_some(mark)
    }

    fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let may_be_known = self.is_fresh || self.finalized().is_some_and(|mark| number <= mark);
        may_be_known.then(|| self.view.hash_at(number)).flatten()
    }

    fn number_of(&self, hash: &BlockHash) -> Option<BlockNumber> {
        self.view.height_of(hash)
    }
}
