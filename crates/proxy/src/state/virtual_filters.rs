//! The filters that clients made on one chain, as all workers share them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_dispatch::ClientId;
use wellhead_eth::NumberedBlock;
use wellhead_subscribe::{
    CompletePoll, FilterBounds, FilterRefusal, FinishError, OpenPoll, SavedFilter, VirtualFilterId,
    VirtualFilterKind, VirtualFilters,
};

/// The filters of one chain. A lock is held for a moment, never over a call.
#[derive(Debug)]
pub(crate) struct ChainFilters {
    filters: Mutex<VirtualFilters>,
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
            made: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            gone: AtomicU64::new(0),
        }
    }
}

impl ChainFilters {
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

    /// Ends a poll; see [`VirtualFilters::finish`].
    pub(crate) fn finish(&self, poll: CompletePoll, now: Instant) -> Result<Bytes, FinishError> {
        let answer = self.filters.lock().finish(poll, now)?;
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

    /// Ends a filter for its client; false if it is not there.
    pub(crate) fn remove(&self, id: VirtualFilterId) -> bool {
        self.filters.lock().remove(id)
    }

    /// Ends a filter that cannot go on.
    pub(crate) fn drop_gone(&self, id: VirtualFilterId) {
        if self.filters.lock().remove(id) {
            self.gone.fetch_add(1, Relaxed);
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
