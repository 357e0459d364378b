//! The filters that clients made on one chain, as all workers share them, and all replicas where they share a store
//! ([`crate::state::filter_store`]).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_dispatch::ClientId;
use wellhead_eth::NumberedBlock;
use wellhead_subscribe::{
    CompletePoll, FilterBounds, FilterRefusal, FilterStamp, FinishError, OpenPoll, SavedFilter,
    SharedMark, StoreOutcome, VirtualFilterId, VirtualFilterKind, VirtualFilters,
};

use crate::state::filter_store::{ChainFilterStore, FilterAbsence, PollRefusal, StoredFilter};

/// A copy that ended while the store was asked is asked for again; at most this many times it is asked.
const LOOKS_MAX: usize = 2;

/// The filters of one chain. A lock is held for a moment, never over a call.
#[derive(Debug)]
pub(crate) struct ChainFilters {
    filters: Mutex<VirtualFilters>,
    /// Needs a runtime, which there is when the chain is put together already.
    store: OnceLock<ChainFilterStore>,
    made: AtomicU64,
    polls: AtomicU64,
    gone: AtomicU64,
}

/// What filters there are and were, of one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterCounts {
    /// Now.
    pub(crate) open: usize,
    /// About how many bytes they hold.
    pub(crate) bytes: usize,
    /// Made so far.
    pub(crate) made: u64,
    /// Polls that were answered.
    pub(crate) polls: u64,
    /// Ended because what they told could not be taken back.
    pub(crate) gone: u64,
}

impl Default for ChainFilters {
    fn default() -> Self {
        Self {
            filters: Mutex::new(VirtualFilters::new(FilterBounds::default())),
            store: OnceLock::new(),
            made: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            gone: AtomicU64::new(0),
        }
    }
}

impl ChainFilters {
    /// Shares the filters with other replicas from now on; of several stores the first one stays.
    pub(crate) fn share(&self, store: impl FnOnce() -> ChainFilterStore) {
        self.store.get_or_init(store);
    }

    /// Has the store, where there is one, know a filter that was made.
    pub(crate) async fn share_made(&self, id: VirtualFilterId, stamp: FilterStamp) {
        let Some(store) = self.store.get() else { return };
        // It has told nothing yet.
        let Some(saved) = self.filters.lock().to_saved(id, usize::MAX) else { return };
        let outcome = store.create(&saved, stamp).await;
        self.filters.lock().note_outcome(id, outcome);
    }

    /// Brings the copy of a filter here up to what the store has, where there is one. To be called before each call
    /// that names the filter.
    pub(crate) async fn refresh(
        &self,
        id: VirtualFilterId,
        now: impl Fn() -> Instant,
    ) -> Result<(), FilterAbsence> {
        let Some(store) = self.store.get() else { return Ok(()) };
        for _ in 0..LOOKS_MAX {
            let mark = self.filters.lock().mark(id, now());
            let known: Vec<_> = mark.iter().flat_map(SharedMark::stamps).collect();
            match store.look(id, &known).await {
                Ok(StoredFilter::Known(stamp, is_home)) => {
                    if self.filters.lock().confirm(id, stamp, is_home, now()) {
                        return Ok(());
                    }
                }
                Ok(StoredFilter::Newer(stamp, is_home, saved)) => {
                    let has_room = self.filters.lock().adopt(&saved, stamp, is_home, now());
                    return if has_room { Ok(()) } else { Err(FilterAbsence::NoRoom) };
                }
                Ok(StoredFilter::Missing) => {
                    let is_here = self.filters.lock().note_missing(id, now());
                    return if is_here { Ok(()) } else { Err(FilterAbsence::Unknown) };
                }
                Ok(StoredFilter::Removed) => {
                    self.filters.lock().remove(id);
                    return Err(FilterAbsence::Unknown);
                }
                Err(_) => {
                    let is_home = mark.is_some_and(|mark| mark.is_home());
                    return if is_home { Ok(()) } else { Err(FilterAbsence::StoreAway) };
                }
            }
        }
        Err(FilterAbsence::StoreAway)
    }

    /// Makes a filter that tells what comes after the last of these blocks; see
    /// [`VirtualFilters::create`].
    pub(crate) fn create(
        &self,
        id: VirtualFilterId,
        kind: VirtualFilterKind,
        blocks: &[NumberedBlock],
        client: ClientId,
        now: Instant,
    ) -> Option<Result<(), FilterRefusal>> {
        let client = match client {
            ClientId::V4(address) => u64::from(address.to_bits()),
            ClientId::V6(number) | ClientId::Named(number) => number,
        };
        let made = self.filters.lock().create(id, kind, blocks, client, now);
        if let Some(Ok(_)) = made {
            self.made.fetch_add(1, Relaxed);
        }
        made
    }

    /// Begins a poll; see [`VirtualFilters::begin_poll`].
    pub(crate) fn begin_poll(
        &self,
        id: VirtualFilterId,
        tip: NumberedBlock,
        now: Instant,
    ) -> Option<OpenPoll> {
        self.filters.lock().begin_poll(id, tip, now)
    }

    /// Ends a poll: here, and in the store under this stamp; see [`VirtualFilters::finish`].
    pub(crate) async fn finish(
        &self,
        id: VirtualFilterId,
        poll: CompletePoll,
        stamp: FilterStamp,
        now: impl Fn() -> Instant,
    ) -> Result<Bytes, PollRefusal> {
        let outcome = match self.store.get() {
            Some(store) => store.end_poll(id, &poll, stamp).await,
            None => Ok(StoreOutcome::Local),
        };
        if outcome == Err(PollRefusal::Absent(FilterAbsence::Unknown)) {
            self.filters.lock().remove(id);
        }
        let answer = self.filters.lock().finish(poll, outcome?, now());
        let answer = answer.map_err(|error| match error {
            FinishError::Superseded => PollRefusal::Superseded,
            FinishError::Gone => PollRefusal::Absent(FilterAbsence::Unknown),
        })?;
        self.polls.fetch_add(1, Relaxed);
        Ok(answer)
    }

    /// Drops a poll that rests on a doubtful answer; see [`VirtualFilters::put_off`].
    pub(crate) fn put_off(&self, poll: &OpenPoll, now: Instant) -> bool {
        self.filters.lock().put_off(poll, now)
    }

    /// What a filter tells; `None` if there is no such filter.
    pub(crate) fn kind(&self, id: VirtualFilterId, now: Instant) -> Option<VirtualFilterKind> {
        self.filters.lock().kind(id, now)
    }

    /// Ends a filter for its client, at all replicas; false if it is not there.
    pub(crate) async fn remove(&self, id: VirtualFilterId) -> Result<bool, FilterAbsence> {
        let was_here = self.filters.lock().remove(id);
        let Some(store) = self.store.get() else { return Ok(was_here) };
        match store.remove(id, was_here).await {
            Ok(is_removed) => Ok(is_removed),
            // The store forgets it when no replica polls it any more.
            Err(_) if was_here => Ok(true),
            Err(_) => Err(FilterAbsence::StoreAway),
        }
    }

    /// Ends a filter that cannot go on.
    pub(crate) async fn drop_gone(&self, id: VirtualFilterId) {
        let was_here = self.filters.lock().remove(id);
        self.gone.fetch_add(u64::from(was_here), Relaxed);
        if let Some(store) = self.store.get() {
            // Otherwise the next poll of it finds the same.
            let _where_it_is_away = store.remove(id, was_here).await;
        }
    }

    /// Ends the filters that were not polled for too long.
    pub(crate) fn expire(&self, now: Instant) {
        self.filters.lock().expire(now);
    }

    /// The filters as a restart keeps them.
    pub(crate) fn save(&self) -> Vec<SavedFilter> {
        self.filters.lock().save()
    }

    /// Takes in filters that were saved; how many.
    pub(crate) fn restore(&self, saved: &[SavedFilter], now: Instant) -> usize {
        let mut filters = self.filters.lock();
        saved.iter().filter(|filter| filters.restore(filter, now)).count()
    }

    pub(crate) fn counts(&self) -> FilterCounts {
        let filters = self.filters.lock();
        FilterCounts {
            open: filters.len(),
            bytes: filters.bytes_held(),
            made: self.made.load(Relaxed),
            polls: self.polls.load(Relaxed),
            gone: self.gone.load(Relaxed),
        }
    }
}
