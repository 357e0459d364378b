//! Filters that outlive their upstreams: `eth_newFilter`, `eth_newBlockFilter`,
//! `eth_newPendingTransactionFilter` and what polls them.
//!
//! A filter is its criteria and the blocks up to which it told; it costs nothing while
//! no client polls it. `poll` finds what changed; here are the ids, the bounds and the lifetime.
//!
//! Two polls of one filter at once would both tell the same changes. The second to end is refused
//! ([`FinishError::Superseded`]) and has to be made again; a poll that is dropped changes nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::Rng;
use wellhead_eth::{BlockNumber, NumberedBlock};
use wellhead_jsonrpc::raw;

use crate::poll::{FilterPoll, FilterPosition, FilterQuery, PollBounds, VirtualFilterKind};

/// Bytes of an id: `0x` and 32 hex digits.
const ID_BYTES: usize = 34;
/// Digits of the tag.
const TAG_DIGITS: usize = 8;

/// The id of a filter: `0x`, eight digits that no upstream's tag may have, and 24 random ones.
///
/// The id of a filter that lives in an upstream begins with the tag of that upstream. A request
/// that names a filter is routed by these eight digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualFilterId([u8; ID_BYTES]);

impl VirtualFilterId {
    /// The tag: an upstream whose own tag is this number cannot have filters.
    pub(crate) const TAG: u32 = 0xf117_e200;

    /// Draws an id.
    pub fn draw(rng: &mut impl Rng) -> Self {
        let (high, low): (u64, u32) = (rng.random(), rng.random());
        let text = format!("0x{:08x}{high:016x}{low:08x}", Self::TAG);
        Self(text.as_bytes().try_into().expect("34 digits, by the format"))
    }

    /// Reads an id that a client sent; `None` if it is not one of these.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        id[2..].make_ascii_lowercase();
        let digits = std::str::from_utf8(&id).ok()?.strip_prefix("0x")?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let tag = u32::from_str_radix(digits.get(..TAG_DIGITS)?, 16);
        (is_hex && tag == Ok(Self::TAG)).then_some(Self(id))
    }

    /// The text of the id, without quotes.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of hex digits")
    }
}

impl fmt::Display for VirtualFilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for VirtualFilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualFilterId({self})")
    }
}

/// The bounds of filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterBounds {
    /// Filters at most; one more is refused.
    pub filters_max: usize,
    /// Filters of one client at most; one more is refused.
    pub per_client_max: usize,
    /// Bytes of criteria and of what was told at most; one more filter is refused then.
    pub bytes_max: usize,
    /// Bytes of logs that a filter remembers to take them back; the oldest are forgotten.
    pub told_bytes_max: usize,
    /// Bytes of an answer, but for one block: the rest follows at the next poll.
    pub answer_bytes_max: usize,
    /// Bytes of an upstream's answer that a poll takes in at most.
    pub reply_bytes_max: usize,
    /// A filter that is not polled for this long ends.
    pub idle: Duration,
}

impl Default for FilterBounds {
    fn default() -> Self {
        Self {
            filters_max: 10_000,
            per_client_max: 1_000,
            bytes_max: 64 << 20,
            told_bytes_max: 256 << 10,
            answer_bytes_max: 16 << 20,
            reply_bytes_max: 32 << 20,
            idle: Duration::from_secs(300),
        }
    }
}

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

/// A poll of a filter that has begun.
#[derive(Debug)]
pub struct OpenPoll {
    id: VirtualFilterId,
    version: u64,
    /// What is needed next.
    pub poll: FilterPoll,
}

impl OpenPoll {
    /// Writes the answer of a poll whose last step was `Done`; `None` for any other. Not under the
    /// lock of the filters: an answer may be long.
    pub fn complete(self) -> Option<CompletePoll> {
        let Self { id, version, poll } = self;
        let (answer, position) = poll.answer()?;
        Some(CompletePoll { id, version, answer, position })
    }
}

/// A poll whose answer is written, for [`VirtualFilters::finish`].
#[derive(Debug)]
pub struct CompletePoll {
    id: VirtualFilterId,
    version: u64,
    answer: Bytes,
    position: FilterPosition,
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
}

/// Polls of one filter end in doubt for at most this long; see [`VirtualFilters::put_off`].
const DOUBT_MAX: Duration = Duration::from_secs(60);

impl VirtualFilter {
    fn is_idle(&self, bounds: &FilterBounds, now: Instant) -> bool {
        now.saturating_duration_since(self.polled_at) > bounds.idle
    }
}

/// Blocks of a filter that a restart keeps.
const SAVED_BLOCKS_MAX: usize = 8;

/// A filter as a restart keeps it: the logs that it told before cannot be taken back afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedFilter {
    id: VirtualFilterId,
    client: u64,
    /// Of a filter for logs: the filter object.
    object: Option<String>,
    /// The newest blocks up to which it told, ascending.
    blocks: Vec<NumberedBlock>,
}

impl SavedFilter {
    /// The filter as a JSON object.
    pub fn to_json(&self) -> String {
        let Self { id, client, object, blocks } = self;
        let object = object.as_deref().unwrap_or("null");
        let blocks = blocks.iter().map(|it| format!(r#"["{}","{}"]"#, it.number.hex(), it.hash));
        let blocks = blocks.collect::<Vec<_>>().join(",");
        format!(r#"{{"id":"{id}","client":"{client:#x}","filter":{object},"blocks":[{blocks}]}}"#)
    }

    /// Reads what [`SavedFilter::to_json`] wrote; `None` for anything else.
    pub fn read(object: &[u8]) -> Option<Self> {
        let field = |name| raw::field(object, name);
        let filter = field("filter")?;
        let filter = (!raw::is_null(filter)).then(|| FilterQuery::read(Some(filter))).transpose();
        let block = |block: &[u8]| {
            let number = raw::item(block, 0).and_then(raw::quantity).map(BlockNumber)?;
            let hash = raw::item(block, 1).and_then(raw::string)?.parse().ok()?;
            Some(NumberedBlock { number, hash })
        };
        let blocks: Option<Vec<_>> = raw::items(field("blocks")?).map(block).collect();
        let blocks = blocks?;
        let is_ascending = blocks.is_sorted_by(|one, next| one.number < next.number);
        Some(Self {
            id: VirtualFilterId::parse(&raw::string(field("id")?)?)?,
            client: raw::quantity(field("client")?)?,
            object: filter.ok()?.map(|filter| filter.object().to_owned()),
            blocks: Some(blocks).filter(|blocks| is_ascending && !blocks.is_empty())?,
        })
    }
}

/// The filters of one chain.
#[derive(Debug)]
pub struct VirtualFilters {
    bounds: FilterBounds,
    by_id: HashMap<VirtualFilterId, VirtualFilter>,
    of_client: HashMap<u64, usize>,
    bytes_held: usize,
}

impl VirtualFilters {
    /// No filters yet.
    pub fn new(bounds: FilterBounds) -> Self {
        Self { bounds, by_id: HashMap::new(), of_client: HashMap::new(), bytes_held: 0 }
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
        if self.is_full() {
            return Some(Err(FilterRefusal::TooMany));
        }
        let told = FilterPosition::new(blocks.iter().copied())?;
        self.insert(id, kind, told, client, now);
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
        let FilterBounds { answer_bytes_max, told_bytes_max, reply_bytes_max, .. } = self.bounds;
        let filter = self.polled(id, now)?;
        let bounds = PollBounds { answer_bytes_max, told_bytes_max, reply_bytes_max };
        let poll = FilterPoll::new(filter.kind.clone(), filter.told.clone(), tip, bounds);
        Some(OpenPoll { id, version: filter.version, poll })
    }

    /// Ends a poll: the answer to be handed out (a JSON array), and the filter goes on behind it. A
    /// client that does not receive it has lost these changes, as with geth.
    pub fn finish(&mut self, complete: CompletePoll, now: Instant) -> Result<Bytes, FinishError> {
        let CompletePoll { id, version, answer, position } = complete;
        let filter = self.by_id.get_mut(&id).ok_or(FinishError::Gone)?;
        if filter.version != version {
            return Err(FinishError::Superseded);
        }
        filter.told = position;
        filter.version += 1;
        filter.polled_at = now;
        filter.doubted_since = None;
        let bytes = bytes_of(&filter.kind, &filter.told);
        self.bytes_held = self.bytes_held - filter.bytes + bytes;
        filter.bytes = bytes;
        Ok(answer)
    }

    /// Drops a poll that rests on a doubtful answer, so that the next one begins at the same block; false once
    /// polls of the filter have ended in doubt for 60 s: the upstreams are then believed.
    pub fn put_off(&mut self, poll: &OpenPoll, now: Instant) -> bool {
        let Some(filter) = self.by_id.get_mut(&poll.id) else { return false };
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
        let saved = self.by_id.iter().map(|(id, filter)| SavedFilter {
            id: *id,
            client: filter.client,
            object: match &filter.kind {
                VirtualFilterKind::Blocks => None,
                VirtualFilterKind::Logs(filter) => Some(filter.object().to_owned()),
            },
            blocks: filter.told.untold(SAVED_BLOCKS_MAX),
        });
        saved.collect()
    }

    /// Takes a filter in that was saved, as if it had been polled now; false if it does not fit
    /// within the bounds, or is there.
    pub fn restore(&mut self, saved: &SavedFilter, now: Instant) -> bool {
        let object = saved.object.as_deref().map(str::as_bytes);
        let kind = match object.map(|object| FilterQuery::read(Some(object))) {
            None => VirtualFilterKind::Blocks,
            Some(Ok(filter)) => VirtualFilterKind::Logs(Arc::new(filter)),
            Some(Err(_)) => return false,
        };
        let has_room = !self.is_full()
            && self.of_client(saved.client) < self.bounds.per_client_max
            && !self.by_id.contains_key(&saved.id);
        let told = FilterPosition::new(saved.blocks.iter().copied()).filter(|_| has_room);
        let Some(told) = told else { return false };
        self.insert(saved.id, kind, told, saved.client, now);
        true
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

    fn insert(
        &mut self,
        id: VirtualFilterId,
        kind: VirtualFilterKind,
        told: FilterPosition,
        client: u64,
        now: Instant,
    ) {
        let bytes = bytes_of(&kind, &told);
        self.bytes_held += bytes;
        *self.of_client.entry(client).or_default() += 1;
        let (version, doubted_since) = (0, None);
        let filter =
            VirtualFilter { kind, told, client, polled_at: now, version, bytes, doubted_since };
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
