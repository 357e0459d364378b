//! A store of filters in memory, in the place of a Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_proxy::{FilterStore, StoreAnswer};
use wellhead_store::{FilterLookup, FilterStoreError, FilterWrite};

/// Polls in a row after which a replica is the home of a filter.
const HOME_ROW: u32 = 3;

/// Larger filters are refused.
pub(crate) const VALUE_BYTES_MAX: usize = 40_000;

/// What becomes of calls of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreMood {
    Answers,
    Away,
    /// What is written is lost, or its answer is.
    LosesWrites,
    LosesAnswers,
}

/// The filter of a name.
#[derive(Debug)]
enum Row {
    Removed,
    Filter { stamp: u64, value: String, by: usize, row: u32 },
}

/// The way of one replica to the store.
#[derive(Debug)]
pub(crate) struct FakeFilterStore {
    rows: Arc<Mutex<HashMap<String, Row>>>,
    replica: usize,
    mood: Mutex<StoreMood>,
    calls: AtomicUsize,
}

impl FakeFilterStore {
    /// The ways of this many replicas to one store.
    pub(crate) fn of(replicas: usize) -> Vec<Arc<Self>> {
        let rows = Arc::<Mutex<HashMap<_, _>>>::default();
        let of = |replica| {
            let (rows, mood) = (Arc::clone(&rows), Mutex::new(StoreMood::Answers));
            Arc::new(Self { rows, replica, mood, calls: AtomicUsize::new(0) })
        };
        (0..replicas).map(of).collect()
    }

    pub(crate) fn set(&self, mood: StoreMood) {
        *self.mood.lock() = mood;
    }

    /// It loses its data.
    pub(crate) fn empty(&self) {
        self.rows.lock().clear();
    }

    pub(crate) fn filters(&self) -> usize {
        self.rows.lock().len()
    }

    /// Calls of this replica so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    async fn mood(&self) -> StoreMood {
        self.calls.fetch_add(1, Relaxed);
        // A round trip, in which others have their turn.
        tokio::task::yield_now().await;
        *self.mood.lock()
    }
}

impl FilterStore for FakeFilterStore {
    fn look<'a>(&'a self, name: &'a str, known: &'a [u64]) -> StoreAnswer<'a, FilterLookup> {
        Box::pin(async move {
            match self.mood().await {
                StoreMood::Away => return Err(FilterStoreError::Away),
                StoreMood::Answers | StoreMood::LosesWrites | StoreMood::LosesAnswers => {}
            }
            Ok(match self.rows.lock().get_mut(name) {
                None => FilterLookup::Missing,
                Some(Row::Removed) => FilterLookup::Removed,
                Some(Row::Filter { stamp, value, by, row }) => {
                    *row = if *by == self.replica { *row + 1 } else { 1 };
                    *by = self.replica;
                    let value = (!known.contains(stamp)).then(|| Bytes::from(value.clone()));
                    FilterLookup::Found { stamp: *stamp, is_home: *row >= HOME_ROW, value }
                }
            })
        })
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        value: &'a str,
        stamp: u64,
        replaces: &'a [u64],
    ) -> StoreAnswer<'a, FilterWrite> {
        Box::pin(async move {
            if value.len() > VALUE_BYTES_MAX {
                return Err(FilterStoreError::TooLarge);
            }
            let mood = self.mood().await;
            match mood {
                StoreMood::Away => return Err(FilterStoreError::Away),
                StoreMood::LosesWrites => return Err(FilterStoreError::Unanswered),
                StoreMood::Answers | StoreMood::LosesAnswers => {}
            }
            let mut rows = self.rows.lock();
            let row = match rows.get(name) {
                Some(Row::Removed) => return Ok(FilterWrite::Removed),
                Some(Row::Filter { stamp, .. }) if !replaces.contains(stamp) => {
                    return Ok(FilterWrite::Superseded);
                }
                Some(Row::Filter { by, row, .. }) if *by == self.replica => *row,
                Some(Row::Filter { .. }) | None => HOME_ROW,
            };
            let (value, by) = (value.to_owned(), self.replica);
            rows.insert(name.to_owned(), Row::Filter { stamp, value, by, row });
            match mood {
                StoreMood::LosesAnswers => Err(FilterStoreError::Unanswered),
                _ => Ok(FilterWrite::Written),
            }
        })
    }

    fn remove<'a>(&'a self, name: &'a str, was_here: bool) -> StoreAnswer<'a, bool> {
        Box::pin(async move {
            if self.mood().await == StoreMood::Away {
                return Err(FilterStoreError::Away);
            }
            let mut rows = self.rows.lock();
            let is_ended = match rows.get(name) {
                Some(Row::Removed) => false,
                Some(Row::Filter { .. }) => true,
                None => was_here,
            };
            if is_ended {
                rows.insert(name.to_owned(), Row::Removed);
            }
            Ok(is_ended)
        })
    }
}
