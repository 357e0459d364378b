//! The filters of one chain as replicas share them, beside the copies that this one has.
//!
//! A call that names a filter first asks the store: a copy under another stamp gives way to what is there. A poll
//! that moved the filter ends by a write that names the stamp which it replaces, so of two replicas that poll at once
//! the second one polls again.
//!
//! While the store is away a copy serves alone if no other replica has polled the filter lately. Of any other one it
//! is not known whether it is the newest: to serve would be to tell again what another replica told, and the call
//! fails so that the client repeats it. After the store lost its data the first copy that is polled is put back.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use wellhead_store::{FilterLookup, FilterStoreError, FilterWrite, SharedFilters};
use wellhead_subscribe::{CompletePoll, FilterStamp, SavedFilter, StoreOutcome, VirtualFilterId};

/// Bytes of logs that were told and are written with a filter: so much can be taken back by another replica.
const TOLD_BYTES_MAX: usize = 48 << 10;

/// What a store of filters says to a call, or why it says nothing.
pub type StoreAnswer<'a, T> = BoxFuture<'a, Result<T, FilterStoreError>>;

/// Where replicas keep filters: [`SharedFilters`], or what a test has in its place. Each call takes a bounded time.
pub trait FilterStore: fmt::Debug + Send + Sync {
    /// See [`SharedFilters::look`].
    fn look<'a>(&'a self, name: &'a str, known: &'a [u64]) -> StoreAnswer<'a, FilterLookup>;

    /// See [`SharedFilters::write`].
    fn write<'a>(
        &'a self,
        name: &'a str,
        value: &'a str,
        stamp: u64,
        replaces: &'a [u64],
    ) -> StoreAnswer<'a, FilterWrite>;

    /// See [`SharedFilters::remove`].
    fn remove<'a>(&'a self, name: &'a str, was_here: bool) -> StoreAnswer<'a, bool>;
}

impl FilterStore for SharedFilters {
    fn look<'a>(&'a self, name: &'a str, known: &'a [u64]) -> StoreAnswer<'a, FilterLookup> {
        Box::pin(Self::look(self, name, known))
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        value: &'a str,
        stamp: u64,
        replaces: &'a [u64],
    ) -> StoreAnswer<'a, FilterWrite> {
        Box::pin(Self::write(self, name, value, stamp, replaces))
    }

    fn remove<'a>(&'a self, name: &'a str, was_here: bool) -> StoreAnswer<'a, bool> {
        Box::pin(Self::remove(self, name, was_here))
    }
}

/// The stored filters of one chain.
#[derive(Debug)]
pub(crate) struct ChainFilterStore {
    chain: Arc<str>,
    store: Arc<dyn FilterStore>,
}

/// What the store has of a filter.
#[derive(Debug)]
pub(crate) enum StoredFilter {
    /// Nothing: it never had it, it ended, or it was lost.
    Missing,
    /// It was removed, or is not readable here.
    Removed,
    /// What this replica has, or had before it went on alone.
    Known(FilterStamp, IsHome),
    /// What another replica wrote.
    Newer(FilterStamp, IsHome, SavedFilter),
}

/// Whether no other replica polled the filter lately.
pub(crate) type IsHome = bool;

/// Why a filter that a call names cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterAbsence {
    /// There is none.
    Unknown,
    /// It may be, and the store that would know is away.
    StoreAway,
    /// Another replica made it, and there is no room for it here.
    NoRoom,
}

/// Why the end of a poll was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollRefusal {
    /// Another poll of the filter ended first: this one has to be made again.
    Superseded,
    /// The filter cannot be used.
    Absent(FilterAbsence),
}

impl ChainFilterStore {
    pub(crate) fn new(chain: Arc<str>, store: Arc<dyn FilterStore>) -> Self {
        Self { chain, store }
    }

    /// What the store has of a filter, of which this replica has a copy under one of these stamps.
    pub(crate) async fn look(
        &self,
        id: VirtualFilterId,
        known: &[FilterStamp],
    ) -> Result<StoredFilter, FilterStoreError> {
        let (name, known) = (self.name(id), numbers(known));
        let (stamp, is_home, value) = match self.store.look(&name, &known).await? {
            FilterLookup::Missing => return Ok(StoredFilter::Missing),
            FilterLookup::Removed => return Ok(StoredFilter::Removed),
            FilterLookup::Found { stamp, is_home, value } => (FilterStamp(stamp), is_home, value),
        };
        let Some(value) = value else { return Ok(StoredFilter::Known(stamp, is_home)) };
        // What cannot be read, as another version may have written it, is no filter to any copy.
        let saved = SavedFilter::read(&value).filter(|saved| saved.id() == id);
        Ok(saved.map_or(StoredFilter::Removed, |saved| StoredFilter::Newer(stamp, is_home, saved)))
    }

    /// Writes a filter that was made.
    pub(crate) async fn create(&self, saved: &SavedFilter, stamp: FilterStamp) -> StoreOutcome {
        let name = self.name(saved.id());
        match self.store.write(&name, &saved.to_json(), stamp.0, &[]).await {
            Ok(FilterWrite::Written) => StoreOutcome::Stored(stamp),
            Err(FilterStoreError::Unanswered) => StoreOutcome::Sent(stamp),
            Ok(FilterWrite::Superseded | FilterWrite::Removed)
            | Err(FilterStoreError::Away | FilterStoreError::TooLarge) => StoreOutcome::Local,
        }
    }

    /// Writes what comes after a poll.
    pub(crate) async fn end_poll(
        &self,
        id: VirtualFilterId,
        poll: &CompletePoll,
        stamp: FilterStamp,
    ) -> Result<StoreOutcome, PollRefusal> {
        if !poll.is_news() {
            return Ok(StoreOutcome::Local);
        }
        let mark = poll.mark();
        let replaces = numbers(&mark.stamps().collect::<Vec<_>>());
        let name = self.name(id);
        let write = async |told_bytes_max| {
            let value = poll.to_saved(told_bytes_max).to_json();
            self.store.write(&name, &value, stamp.0, &replaces).await
        };
        let mut written = write(TOLD_BYTES_MAX).await;
        if written == Err(FilterStoreError::TooLarge) {
            // Without what it told it fits, if it did when it was made.
            written = write(0).await;
        }
        match written {
            Ok(FilterWrite::Written) => Ok(StoreOutcome::Stored(stamp)),
            Ok(FilterWrite::Superseded) => Err(PollRefusal::Superseded),
            Ok(FilterWrite::Removed) => Err(PollRefusal::Absent(FilterAbsence::Unknown)),
            // If it was written, no other poll tells what this one found.
            Err(FilterStoreError::Unanswered) => Ok(StoreOutcome::Sent(stamp)),
            Err(FilterStoreError::TooLarge) => Ok(StoreOutcome::Local),
            Err(FilterStoreError::Away) if mark.is_home() => Ok(StoreOutcome::Local),
            // This copy may not be the newest.
            Err(FilterStoreError::Away) => Err(PollRefusal::Absent(FilterAbsence::StoreAway)),
        }
    }

    /// Ends a filter everywhere; says whether this ended it.
    pub(crate) async fn remove(
        &self,
        id: VirtualFilterId,
        was_here: bool,
    ) -> Result<bool, FilterStoreError> {
        self.store.remove(&self.name(id), was_here).await
    }

    fn name(&self, id: VirtualFilterId) -> String {
        format!("{}:{id}", self.chain)
    }
}

fn numbers(stamps: &[FilterStamp]) -> Vec<u64> {
    stamps.iter().map(|stamp| stamp.0).collect()
}
