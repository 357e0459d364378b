//! Filters that outlive their upstreams: `eth_newFilter`, `eth_newBlockFilter`,
//! `eth_newPendingTransactionFilter` and what polls them.
//!
//! A filter is its criteria and the hash of the block up to which it told; it costs nothing while
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
use wellhead_eth::BlockNumber;
use wellhead_jsonrpc::raw;

use crate::criteria::LogCriteria;
use crate::header::NumberedBlock;
use crate::journal::ChainEvent;
use crate::poll::{ChainFilter, FilterPoll, FilterPosition, PollBounds};
use crate::ring::{Cursor, RingView};

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
    pub const TAG: u32 = 0xf117_e200;

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

/// What a filter tells. To be made with the place from which it tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualFilterKind {
    /// The hashes of blocks above this one.
    Blocks(NumberedBlock),
    /// The logs of blocks above this one, and which of them were taken back.
    Logs(Arc<LogCriteria>, NumberedBlock),
    /// Pending transactions behind this place of the pending journal.
    Pending(Cursor),
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
    /// A filter that is not polled for so long ends.
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

/// The message and code for a filter that is not there, as geth has them. Clients make a new
/// filter when they read this.
pub const FILTER_NOT_FOUND: (i64, &str) = (-32000, "filter not found");

/// How a poll begins.
#[derive(Debug)]
pub enum PollBegun {
    /// There is no such filter.
    NotFound,
    /// The changes of the chain are found in steps.
    Chain(Box<OpenPoll>),
    /// Pending transactions are read from here; [`VirtualFilters::move_pending`] ends the poll.
    Pending(Cursor),
}

/// A poll of a filter on the chain.
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
enum FilterProgress {
    Chain(ChainFilter, FilterPosition),
    Pending(Cursor),
}

#[derive(Debug)]
struct VirtualFilter {
    told: FilterProgress,
    client: u64,
    polled_at: Instant,
    version: u64,
    bytes: usize,
}

impl VirtualFilter {
    fn is_idle(&self, bounds: &FilterBounds, now: Instant) -> bool {
        now.saturating_duration_since(self.polled_at) > bounds.idle
    }
}

/// A filter as a restart keeps it: what it told before cannot be taken back afterwards, unless the
/// journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedFilter {
    /// Its id.
    pub id: VirtualFilterId,
    /// The client, by the caller's number.
    pub client: u64,
    /// Of a filter for logs: the criteria as JSON.
    pub criteria: Option<String>,
    /// The block up to which it told.
    pub cursor: NumberedBlock,
    /// Nothing was told of blocks up to here.
    pub began: BlockNumber,
}

impl SavedFilter {
    /// The filter as a JSON object.
    pub fn to_json(&self) -> String {
        let Self { id, client, criteria, cursor, began } = self;
        let criteria = criteria.as_deref().unwrap_or("null");
        let (number, hash) = (cursor.number.hex(), cursor.hash);
        format!(
            r#"{{"id":"{id}","client":"{client:#x}","criteria":{criteria},"number":"{number}","hash":"{hash}","began":"{}"}}"#,
            began.hex()
        )
    }

    /// Reads what [`SavedFilter::to_json`] wrote; `None` for anything else.
    pub fn read(object: &[u8]) -> Option<Self> {
        let text = |name| raw::field(object, name).and_then(raw::string);
        let number = |name| raw::field(object, name).and_then(raw::quantity);
        let criteria = raw::field(object, "criteria")?;
        let criteria = match raw::is_null(criteria) {
            true => None,
            false => Some(LogCriteria::read(Some(criteria)).ok()?.to_json()),
        };
        let hash = text("hash")?.parse().ok()?;
        Some(Self {
            id: VirtualFilterId::parse(&text("id")?)?,
            client: number("client")?,
            criteria,
            cursor: NumberedBlock { number: BlockNumber(number("number")?), hash },
            began: BlockNumber(number("began")?),
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

    /// Makes a filter for a client.
    pub fn create(
        &mut self,
        kind: VirtualFilterKind,
        client: u64,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Result<VirtualFilterId, FilterRefusal> {
        if self.is_full() || self.of_client(client) >= self.bounds.per_client_max {
            self.expire(now);
        }
        if self.of_client(client) >= self.bounds.per_client_max {
            return Err(FilterRefusal::TooManyOfClient);
        }
        if self.is_full() {
            return Err(FilterRefusal::TooMany);
        }
        let told = match kind {
            VirtualFilterKind::Blocks(at) => {
                FilterProgress::Chain(ChainFilter::Blocks, FilterPosition::new(at))
            }
            VirtualFilterKind::Logs(criteria, at) => {
                FilterProgress::Chain(ChainFilter::Logs(criteria), FilterPosition::new(at))
            }
            VirtualFilterKind::Pending(cursor) => FilterProgress::Pending(cursor),
        };
        let id = VirtualFilterId::draw(rng);
        self.insert(id, told, client, now);
        Ok(id)
    }

    /// Begins a poll. The filter is as it was until [`VirtualFilters::finish`].
    pub fn begin_poll(
        &mut self,
        id: VirtualFilterId,
        now: Instant,
        view: &RingView<ChainEvent>,
    ) -> PollBegun {
        self.remove_if_idle(id, now);
        let Some(filter) = self.by_id.get_mut(&id) else { return PollBegun::NotFound };
        filter.polled_at = now;
        match &filter.told {
            FilterProgress::Pending(cursor) => PollBegun::Pending(*cursor),
            FilterProgress::Chain(kind, position) => {
                let bounds = PollBounds {
                    answer_bytes_max: self.bounds.answer_bytes_max,
                    told_bytes_max: self.bounds.told_bytes_max,
                    reply_bytes_max: self.bounds.reply_bytes_max,
                };
                let poll = FilterPoll::new(kind.clone(), position.clone(), view, bounds);
                PollBegun::Chain(Box::new(OpenPoll { id, version: filter.version, poll }))
            }
        }
    }

    /// Ends a poll: the answer to be handed out (a JSON array), and the filter goes on behind it. A
    /// client that does not receive it has lost these changes, as with geth.
    pub fn finish(&mut self, complete: CompletePoll, now: Instant) -> Result<Bytes, FinishError> {
        let CompletePoll { id, version, answer, position } = complete;
        let filter = self.by_id.get_mut(&id).ok_or(FinishError::Gone)?;
        if filter.version != version {
            return Err(FinishError::Superseded);
        }
        if let FilterProgress::Chain(_, old) = &mut filter.told {
            *old = position;
        }
        filter.version += 1;
        filter.polled_at = now;
        let bytes = bytes_of(&filter.told);
        self.bytes_held = self.bytes_held - filter.bytes + bytes;
        filter.bytes = bytes;
        Ok(answer)
    }

    /// Moves a filter for pending transactions behind what was read; false if it is not there.
    pub fn move_pending(&mut self, id: VirtualFilterId, to: Cursor, now: Instant) -> bool {
        match self.by_id.get_mut(&id) {
            Some(filter) if matches!(filter.told, FilterProgress::Pending(_)) => {
                (filter.told, filter.polled_at) = (FilterProgress::Pending(to), now);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The criteria of a filter for logs, for `eth_getFilterLogs`. Counts as a poll.
    pub fn criteria(&mut self, id: VirtualFilterId, now: Instant) -> Option<Arc<LogCriteria>> {
        self.remove_if_idle(id, now);
        let filter = self.by_id.get_mut(&id)?;
        filter.polled_at = now;
        match &filter.told {
            FilterProgress::Chain(ChainFilter::Logs(criteria), _) => Some(Arc::clone(criteria)),
            FilterProgress::Chain(ChainFilter::Blocks, _) | FilterProgress::Pending(_) => None,
        }
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

    /// The filters as a restart keeps them, those for pending transactions left out.
    pub fn save(&self) -> Vec<SavedFilter> {
        let saved = self.by_id.iter().filter_map(|(id, filter)| {
            let FilterProgress::Chain(kind, position) = &filter.told else { return None };
            let criteria = match kind {
                ChainFilter::Blocks => None,
                ChainFilter::Logs(criteria) => Some(criteria.to_json()),
            };
            let (cursor, began) = (position.cursor, position.began);
            Some(SavedFilter { id: *id, client: filter.client, criteria, cursor, began })
        });
        saved.collect()
    }

    /// Takes a filter in that was saved, as if it had been polled now; false if it does not fit
    /// within the bounds.
    pub fn restore(&mut self, saved: &SavedFilter, now: Instant) -> bool {
        let criteria = saved.criteria.as_ref();
        let criteria = criteria.map(|json| LogCriteria::read(Some(json.as_bytes())));
        let kind = match criteria {
            None => ChainFilter::Blocks,
            Some(Ok(criteria)) => ChainFilter::Logs(Arc::new(criteria)),
            Some(Err(_)) => return false,
        };
        let has_room = !self.is_full()
            && self.of_client(saved.client) < self.bounds.per_client_max
            && !self.by_id.contains_key(&saved.id);
        if has_room {
            let position =
                FilterPosition { began: saved.began, ..FilterPosition::new(saved.cursor) };
            self.insert(saved.id, FilterProgress::Chain(kind, position), saved.client, now);
        }
        has_room
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

    fn insert(&mut self, id: VirtualFilterId, told: FilterProgress, client: u64, now: Instant) {
        let bytes = bytes_of(&told);
        self.bytes_held += bytes;
        *self.of_client.entry(client).or_default() += 1;
        let filter = VirtualFilter { told, client, polled_at: now, version: 0, bytes };
        let replaced = self.by_id.insert(id, filter);
        debug_assert!(replaced.is_none(), "96 random bits were drawn twice");
    }

    fn remove_if_idle(&mut self, id: VirtualFilterId, now: Instant) {
        if self.by_id.get(&id).is_some_and(|filter| filter.is_idle(&self.bounds, now)) {
            self.remove(id);
        }
    }

    fn is_full(&self) -> bool {
        self.by_id.len() >= self.bounds.filters_max || self.bytes_held >= self.bounds.bytes_max
    }

    fn of_client(&self, client: u64) -> usize {
        self.of_client.get(&client).copied().unwrap_or_default()
    }
}

fn bytes_of(told: &FilterProgress) -> usize {
    size_of::<VirtualFilter>()
        + match told {
            FilterProgress::Chain(ChainFilter::Logs(criteria), position) => {
                criteria.bytes_held() + position.told_bytes + 64 * position.told.len()
            }
            FilterProgress::Chain(ChainFilter::Blocks, _) | FilterProgress::Pending(_) => 0,
        }
}

#[cfg(test)]
mod tests;
