//! Filters that outlive their upstreams: `eth_newFilter`, `eth_newBlockFilter`,
//! `eth_newPendingTransactionFilter` and what polls them.
//!
//! A filter is its criteria and the blocks up to which it told; it costs nothing while
//! no client polls it. `poll` finds what changed; here are the ids, the bounds and the lifetime.
//!
//! Two polls of one filter at once would both tell the same changes. The second to end is refused
//! ([`FinishError::Superseded`]) and has to be made again. A poll that is dropped changes nothing here, but what it wrote
//! to a store that replicas share stays.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_eth::NumberedBlock;

use crate::id::VirtualFilterId;
use crate::poll::{FilterBounds, FilterPoll, FilterPosition, ToldBlock, VirtualFilterKind};
use crate::saved_filter::SavedFilter;
use crate::shared_mark::{FilterStamp, SharedMark, StoreOutcome};

/// Why no filter was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterRefusal {
    /// The client has as many as it may.
    TooManyOfClient,
    /// All clients together have.
    TooMany,
}

/// Why the end of a poll was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishError {
    /// The filter ended: "filter not found".
    Gone,
    /// Another poll of it ended first: this one has to be made again.
    Superseded,
}

/// The filter of a poll, as it was when the poll began.
#[derive(Debug)]
struct PolledFilter {
    id: VirtualFilterId,
    version: u64,
    kind: VirtualFilterKind,
    client: u64,
    cursor: NumberedBlock,
    mark: SharedMark,
}

/// A poll of a filter that has begun.
#[derive(Debug)]
pub struct OpenPoll {
    filter: PolledFilter,
    /// What is needed next.
    pub poll: FilterPoll,
}

impl OpenPoll {
    /// Writes the answer of a poll whose last step was `Done`; `None` for any other. Not under the
    /// lock of the filters: an answer may be long.
    pub fn complete(self) -> Option<CompletePoll> {
        let Self { filter, poll } = self;
        let (answer, position) = poll.answer()?;
        Some(CompletePoll { filter, answer, position })
    }
}

/// A poll whose answer is written, for [`VirtualFilters::finish`].
#[derive(Debug)]
pub struct CompletePoll {
    filter: PolledFilter,
    answer: Bytes,
    position: FilterPosition,
}

impl CompletePoll {
    /// How the filter stood to the stored one when the poll began.
    pub fn mark(&self) -> SharedMark {
        self.filter.mark
    }

    /// Whether the store is to have what comes after this poll: it moved, or what is here was newer before.
    pub fn is_news(&self) -> bool {
        self.filter.mark.is_ahead() || self.is_moved()
    }

    /// The filter after the poll, with about `told_bytes_max` of the newest logs that it told.
    pub fn to_saved(&self, told_bytes_max: usize) -> SavedFilter {
        let PolledFilter { id, client, ref kind, .. } = self.filter;
        let position = self.position.for_replicas(told_bytes_max);
        SavedFilter { id, client, kind: kind.clone(), position }
    }

    fn is_moved(&self) -> bool {
        self.position.cursor() != self.filter.cursor
    }
}

#[derive(Debug)]
struct VirtualFilter {
    kind: VirtualFilterKind,
    told: FilterPosition,
    client: u64,
    polled_at: Instant,
    version: u64,
    bytes: usize,
    /// Since when its polls end in doubt.
    doubted_since: Option<Instant>,
    mark: SharedMark,
}

/// The time after its last poll for which a copy may serve without the store. Libraries poll every 4 to 7 s.
const HOME_FOR: Duration = Duration::from_secs(15);

/// Polls of one filter end in doubt for at most this long; see [`VirtualFilters::put_off`].
const DOUBT_MAX: Duration = Duration::from_secs(60);

impl VirtualFilter {
    fn is_idle(&self, bounds: &FilterBounds, now: Instant) -> bool {
        now.saturating_duration_since(self.polled_at) > bounds.idle
    }
}

/// The filters of one chain.
#[derive(Debug)]
pub struct VirtualFilters {
    bounds: FilterBounds,
    by_id: HashMap<VirtualFilterId, VirtualFilter>,
    of_client: HashMap<u64, usize>,
    bytes_held: usize,
    /// Of the last change of a filter: no two states of filters have one version.
    version: u64,
}

impl VirtualFilters {
    /// No filters yet.
    pub fn new(bounds: FilterBounds) -> Self {
        Self { bounds, by_id: HashMap::new(), of_client: HashMap::new(), bytes_held: 0, version: 0 }
    }

    /// Makes a filter for a client, with an id that was drawn for it. It tells what comes after the last of `blocks`; the others are
    /// ancestors of that one, ascending, for a reorg that replaces it. `None` where there is no block.
    pub fn create(
        &mut self,
        id: VirtualFilterId,
        kind: VirtualFilterKind,
        blocks: &[NumberedBlock],
        client: u64,
        now: Instant,
    ) -> Option<Result<(), FilterRefusal>> {
        if self.is_full() || self.of_client(client) >= self.bounds.per_client_max {
            self.expire(now);
        }
        if self.of_client(client) >= self.bounds.per_client_max {
            return Some(Err(FilterRefusal::TooManyOfClient));
        }
        if !self.make_room() {
            return Some(Err(FilterRefusal::TooMany));
        }
        let told = blocks.iter().map(|block| ToldBlock::without_logs(*block));
        let position = FilterPosition::of(told)?;
        self.insert(SavedFilter { id, client, kind, position }, SharedMark::made(), now);
        Some(Ok(()))
    }

    /// Begins a poll of what changed up to `tip`; `None` if there is no such filter. The filter is as it was
    /// until [`VirtualFilters::finish`].
    pub fn begin_poll(
        &mut self,
        id: VirtualFilterId,
        tip: NumberedBlock,
        now: Instant,
    ) -> Option<OpenPoll> {
        let bounds = self.bounds;
        let filter = self.polled(id, now)?;
        let poll = FilterPoll::new(filter.kind.clone(), filter.told.clone(), tip, bounds);
        let VirtualFilter { version, client, mark, .. } = *filter;
        let (kind, cursor) = (filter.kind.clone(), filter.told.cursor());
        Some(OpenPoll { filter: PolledFilter { id, version, kind, client, cursor, mark }, poll })
    }

    /// Ends a poll: the answer to be handed out (a JSON array), and the filter goes on behind it. A
    /// client that does not receive it has lost these changes, as with geth.
    ///
    /// What the store has, or may have, is always handed out: no other poll tells it.
    pub fn finish(
        &mut self,
        complete: CompletePoll,
        outcome: StoreOutcome,
        now: Instant,
    ) -> Result<Bytes, FinishError> {
        let is_moved = complete.is_moved();
        let CompletePoll { filter: PolledFilter { id, version, .. }, answer, position } = complete;
        let is_local = outcome == StoreOutcome::Local;
        let filter = match self.by_id.get_mut(&id) {
            Some(filter) if filter.version == version => filter,
            // Another poll here told the same, and whether the store took it is not known either.
            Some(filter) if is_local || filter.mark.is_sent() => {
                return Err(FinishError::Superseded);
            }
            None if is_local => return Err(FinishError::Gone),
            Some(_) | None => return Ok(answer),
        };
        filter.told = position;
        self.version += 1;
        filter.version = self.version;
        filter.polled_at = now;
        filter.doubted_since = None;
        filter.mark.note_outcome(outcome, is_moved);
        let bytes = bytes_of(&filter.kind, &filter.told);
        self.bytes_held = self.bytes_held - filter.bytes + bytes;
        filter.bytes = bytes;
        Ok(answer)
    }

    /// Drops a poll that rests on a doubtful answer, so that the next one begins at the same block; false once
    /// polls of the filter have ended in doubt for 60 s: the upstreams are then believed.
    pub fn put_off(&mut self, poll: &OpenPoll, now: Instant) -> bool {
        let Some(filter) = self.by_id.get_mut(&poll.filter.id) else { return false };
        let since = *filter.doubted_since.get_or_insert(now);
        now.saturating_duration_since(since) < DOUBT_MAX
    }

    /// What a filter tells, for `eth_getFilterLogs`; `None` if there is no such filter. Counts as a poll.
    pub fn kind(&mut self, id: VirtualFilterId, now: Instant) -> Option<VirtualFilterKind> {
        self.polled(id, now).map(|filter| filter.kind.clone())
    }

    fn polled(&mut self, id: VirtualFilterId, now: Instant) -> Option<&mut VirtualFilter> {
        if self.by_id.get(&id)?.is_idle(&self.bounds, now) {
            self.remove(id);
        }
        let filter = self.by_id.get_mut(&id)?;
        filter.polled_at = now;
        Some(filter)
    }

    /// Ends a filter; false if it is not there. To be called for one that is
    /// [gone](crate::FilterStep::Gone), too.
    pub fn remove(&mut self, id: VirtualFilterId) -> bool {
        let Some(filter) = self.by_id.remove(&id) else { return false };
        self.bytes_held -= filter.bytes;
        if let Some(count) = self.of_client.get_mut(&filter.client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&filter.client);
            }
        }
        true
    }

    /// Ends the filters that were not polled for too long. How many.
    pub fn expire(&mut self, now: Instant) -> usize {
        let is_idle = |(_, filter): &(&_, &VirtualFilter)| filter.is_idle(&self.bounds, now);
        let idle: Vec<_> = self.by_id.iter().filter(is_idle).map(|(id, _)| *id).collect();
        idle.iter().filter(|id| self.remove(**id)).count()
    }

    /// The filters as a restart keeps them.
    pub fn save(&self) -> Vec<SavedFilter> {
        let saved = self.by_id.iter().map(|(id, VirtualFilter { client, kind, told, .. })| {
            let (kind, position) = (kind.clone(), told.for_restart());
            SavedFilter { id: *id, client: *client, kind, position }
        });
        saved.collect()
    }

    /// Takes a filter in that was saved, as if it had been polled now; false if it does not fit
    /// within the bounds, or is there.
    pub fn restore(&mut self, saved: &SavedFilter, now: Instant) -> bool {
        let has_room = !self.is_full()
            && self.of_client(saved.client) < self.bounds.per_client_max
            && !self.by_id.contains_key(&saved.id);
        if has_room {
            self.insert(saved.clone(), SharedMark::default(), now);
        }
        has_room
    }

    /// How the copy here stands to the stored filter; `None` if there is none here. A copy that was not polled for
    /// 15 s is at home nowhere: its client may have moved on.
    pub fn mark(&self, id: VirtualFilterId, now: Instant) -> Option<SharedMark> {
        let filter = self.by_id.get(&id)?;
        let is_recent = now.saturating_duration_since(filter.polled_at) <= HOME_FOR;
        Some(if is_recent { filter.mark } else { filter.mark.away_from_home() })
    }

    /// Notes what became of a filter that was written as it is here.
    pub fn note_outcome(&mut self, id: VirtualFilterId, outcome: StoreOutcome) {
        if let Some(filter) = self.by_id.get_mut(&id) {
            filter.mark.note_outcome(outcome, false);
        }
    }

    /// The filter as other replicas read it, with about `told_bytes_max` of the newest logs that it told.
    pub fn to_saved(&self, id: VirtualFilterId, told_bytes_max: usize) -> Option<SavedFilter> {
        let VirtualFilter { client, kind, told, .. } = self.by_id.get(&id)?;
        let (kind, position) = (kind.clone(), told.for_replicas(told_bytes_max));
        Some(SavedFilter { id, client: *client, kind, position })
    }

    /// The store has the filter under this stamp. Counts as a poll; false unless the copy here is as new.
    pub fn confirm(
        &mut self,
        id: VirtualFilterId,
        stamp: FilterStamp,
        is_home: bool,
        now: Instant,
    ) -> bool {
        let Some(filter) = self.by_id.get_mut(&id) else { return false };
        if filter.mark.stamps().all(|own| own != stamp) {
            return false;
        }
        filter.mark.note_stored(stamp, is_home);
        filter.polled_at = now;
        true
    }

    /// The store has no such filter, and lost it if it had it; false if there is none here either.
    pub fn note_missing(&mut self, id: VirtualFilterId, now: Instant) -> bool {
        let Some(filter) = self.polled(id, now) else { return false };
        filter.mark.note_missing();
        true
    }

    /// Takes in what the store has under this stamp, in the place of the copy here. Counts as a poll; where there is no
    /// room, other copies give way; false where there is none for all that. Nothing is refused to its client for it.
    pub fn adopt(
        &mut self,
        saved: &SavedFilter,
        stamp: FilterStamp,
        is_home: bool,
        now: Instant,
    ) -> bool {
        self.remove(saved.id);
        if self.is_full() {
            self.expire(now);
        }
        let has_room = self.make_room();
        if has_room {
            self.insert(saved.clone(), SharedMark::copied(stamp, is_home), now);
        }
        has_room
    }

    /// Has copies of stored filters give way, where that is needed; whether there is room for one filter.
    fn make_room(&mut self) -> bool {
        while self.is_full() {
            if !self.forget_copy() {
                return false;
            }
        }
        true
    }

    /// Forgets the copy that was not polled for longest, of those that the store is known to have.
    fn forget_copy(&mut self) -> bool {
        let stored = self.by_id.iter().filter(|(_, filter)| filter.mark.is_stored());
        let oldest = stored.min_by_key(|(_, filter)| filter.polled_at).map(|(id, _)| *id);
        oldest.is_some_and(|id| self.remove(id))
    }

    /// How many filters there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// About how many bytes they hold.
    pub fn bytes_held(&self) -> usize {
        self.bytes_held
    }

    fn insert(&mut self, filter: SavedFilter, mark: SharedMark, now: Instant) {
        let SavedFilter { id, client, kind, position: told } = filter;
        let bytes = bytes_of(&kind, &told);
        self.bytes_held += bytes;
        *self.of_client.entry(client).or_default() += 1;
        self.version += 1;
        let filter = VirtualFilter {
            kind,
            told,
            client,
            polled_at: now,
            version: self.version,
            bytes,
            doubted_since: None,
            mark,
        };
        let replaced = self.by_id.insert(id, filter);
        debug_assert!(replaced.is_none(), "96 random bits were drawn twice");
    }

    fn is_full(&self) -> bool {
        self.by_id.len() >= self.bounds.filters_max || self.bytes_held >= self.bounds.bytes_max
    }

    fn of_client(&self, client: u64) -> usize {
        self.of_client.get(&client).copied().unwrap_or_default()
    }
}

fn bytes_of(kind: &VirtualFilterKind, told: &FilterPosition) -> usize {
    let of_kind = match kind {
        VirtualFilterKind::Logs(filter) => filter.bytes_held(),
        VirtualFilterKind::Blocks => 0,
    };
    size_of::<VirtualFilter>() + of_kind + told.bytes_held()
}

#[cfg(test)]
mod tests;
