//! What changed for one filter since it was last polled: a decision in steps, without I/O.
//!
//! The journal answers as far as it reaches. What it lacks is asked for: the logs of a block by
//! hash, or those of many blocks by one search. A block that was told and then replaced is taken
//! back first, from what the filter remembers having told or from the journal's logs. If neither
//! is there, the filter is [gone](FilterStep::Gone): its client makes a new one and reads again,
//! instead of living on with logs that are no longer true.
//!
//! What changed is the difference between two chains, not the way there: a block that came and
//! went between two polls is not told.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use wellhead_eth::{BlockHash, BlockNumber};

use crate::criteria::LogCriteria;
use crate::header::NumberedBlock;
use crate::journal::{AddedBlock, ChainEvent, LogsState};
use crate::logs::{BlockLogs, LogsError, LogsReply, LogsScope, read_range, taken_back};
use crate::ring::RingView;

/// Blocks whose logs are asked for one by one; more are one search.
const BLOCKS_BY_HASH_MAX: usize = 3;

/// What a filter tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChainFilter {
    Blocks,
    Logs(Arc<LogCriteria>),
}

/// How far a filter has told the chain, and what it may have to take back.
#[derive(Debug, Clone)]
pub(crate) struct FilterPosition {
    /// The newest block that was told.
    pub(crate) cursor: NumberedBlock,
    /// Nothing was told of blocks up to here.
    pub(crate) began: BlockNumber,
    /// What was told of the blocks above this one is in `told`.
    pub(crate) remembered_above: BlockNumber,
    /// The blocks of which logs were told, ascending, with the JSON of their logs.
    pub(crate) told: VecDeque<(NumberedBlock, Arc<Vec<Bytes>>)>,
    pub(crate) told_bytes: usize,
}

impl FilterPosition {
    /// A filter that tells what comes after `cursor`.
    pub(crate) fn new(cursor: NumberedBlock) -> Self {
        let (began, remembered_above) = (cursor.number, cursor.number);
        Self { cursor, began, remembered_above, told: VecDeque::new(), told_bytes: 0 }
    }

    fn remember(&mut self, block: NumberedBlock, logs: Vec<Bytes>, bytes_max: usize) {
        self.told_bytes += logs.iter().map(Bytes::len).sum::<usize>();
        self.told.push_back((block, Arc::new(logs)));
        while self.told_bytes > bytes_max
            && let Some((block, logs)) = self.told.pop_front()
        {
            self.told_bytes -= logs.iter().map(Bytes::len).sum::<usize>();
            self.remembered_above = block.number;
        }
    }

    /// Notes that all above `block` was taken back: what is told there from now on is remembered.
    fn stand_on(&mut self, block: NumberedBlock) {
        self.cursor = block;
        self.began = self.began.min(block.number);
        self.remembered_above = self.remembered_above.min(block.number);
    }

    /// What was told of a block that was replaced; `None` if that is not known.
    fn take_back(&mut self, block: &AddedBlock, criteria: &LogCriteria) -> Option<Vec<Bytes>> {
        let id = block.id();
        if id.number <= self.began {
            return Some(Vec::new());
        }
        if self.told.back().is_some_and(|(told, _)| *told == id) {
            let (_, logs) = self.told.pop_back()?;
            self.told_bytes -= logs.iter().map(Bytes::len).sum::<usize>();
            return Some(logs.iter().map(|log| taken_back(log).into()).collect());
        }
        if id.number > self.remembered_above {
            return Some(Vec::new());
        }
        let logs = whole_logs(block)?;
        let matched = matched(logs, criteria);
        Some(matched.map(|place| logs.removed_json(place)).collect())
    }
}

/// How much a poll may answer and remember.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollBounds {
    pub(crate) answer_bytes_max: usize,
    pub(crate) told_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
}

/// What a poll needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterStep {
    /// Ask which block is at this height, and tell its hash ([`FilterPoll::confirm`]): the journal
    /// no longer reaches there.
    Confirm(NumberedBlock),
    /// Ask for the criteria's logs of this block by its hash ([`FilterPoll::supply`]).
    LogsOf(NumberedBlock),
    /// Search for the criteria's logs in these blocks, both included ([`FilterPoll::supply`]).
    LogsIn(BlockNumber, BlockNumber),
    /// The answer is complete.
    Done,
    /// What was told cannot be taken back, or what changed cannot be found: "filter not found".
    Gone,
}

/// A block to be told.
#[derive(Debug)]
enum NewBlock {
    Here(Arc<AddedBlock>),
    /// Of blocks that the journal no longer has only those with logs are known.
    Found(NumberedBlock),
}

impl NewBlock {
    fn id(&self) -> NumberedBlock {
        match self {
            Self::Here(block) => block.id(),
            Self::Found(block) => *block,
        }
    }
}

/// A poll under way. It owns all it needs: the filter may be polled again or dropped meanwhile.
#[derive(Debug)]
pub struct FilterPoll {
    pub(crate) filter: ChainFilter,
    pub(crate) position: FilterPosition,
    bounds: PollBounds,
    tip: NumberedBlock,
    removed: Vec<Arc<AddedBlock>>,
    added: Vec<NewBlock>,
    /// The blocks below the journal, which have to be searched: the first height, and the last
    /// block.
    below: Option<(BlockNumber, NumberedBlock)>,
    confirm: Option<NumberedBlock>,
    asked: Option<FilterStep>,
    logs: HashMap<BlockHash, Arc<BlockLogs>>,
    is_searched_below: bool,
    is_gone: bool,
}

impl FilterPoll {
    pub(crate) fn new(
        filter: ChainFilter,
        position: FilterPosition,
        view: &RingView<ChainEvent>,
        bounds: PollBounds,
    ) -> Self {
        let tip = view.tip_block().unwrap_or(position.cursor);
        let mut poll = Self {
            filter,
            position,
            bounds,
            tip,
            removed: Vec::new(),
            added: Vec::new(),
            below: None,
            confirm: None,
            asked: None,
            logs: HashMap::new(),
            is_searched_below: false,
            is_gone: false,
        };
        poll.compare(view);
        poll
    }

    /// The criteria of the logs that are asked for; `None` for a filter of blocks. Their gates are
    /// applied here: a search needs the addresses and topics alone.
    pub fn criteria(&self) -> Option<&LogCriteria> {
        match &self.filter {
            ChainFilter::Blocks => None,
            ChainFilter::Logs(criteria) => Some(criteria),
        }
    }

    /// What is needed next. Nothing changes by asking again.
    pub fn step(&mut self) -> FilterStep {
        if self.is_gone {
            return FilterStep::Gone;
        }
        if let Some(block) = self.confirm {
            return FilterStep::Confirm(block);
        }
        let step = self.missing_logs();
        self.asked = Some(step.clone());
        step
    }

    /// Tells which block is at the height that was to be confirmed.
    pub fn confirm(&mut self, hash: BlockHash) {
        if self.confirm.take().is_some_and(|block| block.hash != hash) {
            self.is_gone = true;
        }
    }

    /// Takes in the list of logs (raw JSON) that was asked for. An error changes nothing: another
    /// upstream can be asked.
    pub fn supply(&mut self, list: &[u8]) -> Result<(), LogsError> {
        let bytes_max = self.bounds.reply_bytes_max;
        match self.asked.clone() {
            Some(FilterStep::LogsOf(block)) => {
                let (reply, scope) = (LogsReply::Logs(list), LogsScope::Filtered);
                let logs = BlockLogs::read(block, reply, scope, bytes_max)?;
                self.logs.insert(block.hash, Arc::new(logs));
            }
            Some(FilterStep::LogsIn(from, to)) => {
                let added = self.added.iter().map(NewBlock::id);
                let known: HashMap<BlockNumber, BlockHash> = added
                    .chain(self.below.map(|(_, last)| last))
                    .map(|block| (block.number, block.hash))
                    .collect();
                let hash_at = |number| known.get(&number).copied();
                let found = read_range(list, (from, to), bytes_max, hash_at)?;
                self.take_range(found, (from, to));
            }
            Some(FilterStep::Confirm(_) | FilterStep::Done | FilterStep::Gone) | None => {}
        }
        Ok(())
    }

    /// The answer (a JSON array) and the filter's position after it. At most as long as the bounds
    /// say, but for one block: the rest follows at the next poll.
    ///
    /// `None` unless the last step was [`FilterStep::Done`].
    pub(crate) fn answer(mut self) -> Option<(Bytes, FilterPosition)> {
        if self.step() != FilterStep::Done {
            return None;
        }
        let mut answer = FilterAnswer { json: vec![b'['], bytes_max: self.bounds.answer_bytes_max };
        let (filter, removed) = (self.filter.clone(), std::mem::take(&mut self.removed));
        for block in removed {
            if let ChainFilter::Logs(criteria) = &filter {
                let logs = self.position.take_back(&block, criteria)?;
                logs.iter().for_each(|log| answer.push(log));
            }
            self.position.stand_on(block.header().parent_id());
        }
        let below = self.below.is_some();
        for block in std::mem::take(&mut self.added) {
            if answer.is_full() {
                answer.json.push(b']');
                return Some((answer.json.into(), self.position));
            }
            let id = block.id();
            match &filter {
                ChainFilter::Blocks => answer.push(format!("\"{}\"", id.hash).as_bytes()),
                ChainFilter::Logs(criteria) => self.tell_logs(&block, criteria, &mut answer),
            }
            self.position.cursor = id;
        }
        debug_assert!(below || self.position.cursor == self.tip, "all changes lead to the tip");
        self.position.cursor = self.tip;
        answer.json.push(b']');
        Some((answer.json.into(), self.position))
    }

    fn tell_logs(&mut self, block: &NewBlock, criteria: &LogCriteria, answer: &mut FilterAnswer) {
        let here = match block {
            NewBlock::Here(block) => whole_logs(block).cloned(),
            NewBlock::Found(_) => None,
        };
        let Some(logs) = here.or_else(|| self.logs.get(&block.id().hash).cloned()) else { return };
        // Copies: a slice would keep the logs of the whole block.
        let told: Vec<Bytes> = matched(&logs, criteria)
            .map(|place| Bytes::copy_from_slice(&logs.json(place)))
            .collect();
        told.iter().for_each(|log| answer.push(log));
        if !told.is_empty() {
            self.position.remember(block.id(), told, self.bounds.told_bytes_max);
        }
    }

    /// Finds what is between the filter's cursor and the tip.
    fn compare(&mut self, view: &RingView<ChainEvent>) {
        let cursor = self.position.cursor;
        if view.tip_block().is_none() || cursor == self.tip {
            return;
        }
        let chain = chain_of(view, cursor);
        let added = |above: usize| {
            chain.blocks[..above].iter().rev().map(|it| NewBlock::Here(Arc::clone(it))).collect()
        };
        if let Some(above) = chain.place_of(cursor) {
            self.added = added(above);
            return;
        }
        if let Some((removed, above)) = chain.way_back(cursor, view) {
            (self.removed, self.added) = (removed, added(above));
            return;
        }
        let is_older = chain.base.is_some_and(|base| cursor.number < base.number);
        match (&self.filter, chain.base) {
            (ChainFilter::Logs(_), Some(base)) if is_older => {
                self.confirm = Some(cursor);
                self.below = Some((BlockNumber(cursor.number.0 + 1), base));
                self.added = added(chain.blocks.len());
            }
            // The hashes of that many blocks would have to be fetched one by one.
            _ => self.is_gone = true,
        }
    }

    /// What has to be asked for before the logs of all new blocks are here.
    fn missing_logs(&mut self) -> FilterStep {
        let ChainFilter::Logs(criteria) = &self.filter else { return FilterStep::Done };
        // What was told is to be known before new logs are asked for.
        let mut position = self.position.clone();
        if self.removed.iter().any(|block| position.take_back(block, criteria).is_none()) {
            self.is_gone = true;
            return FilterStep::Gone;
        }
        let bits = criteria.bits();
        let is_missing = |block: &NewBlock| match block {
            NewBlock::Here(block) => {
                let (id, bloom) = (block.id(), block.header().bloom.as_deref());
                bits.may_match(id.number, bloom)
                    && whole_logs(block).is_none()
                    && !self.logs.contains_key(&id.hash)
            }
            NewBlock::Found(_) => false,
        };
        let missing: Vec<_> =
            self.added.iter().filter(|it| is_missing(it)).map(NewBlock::id).collect();
        let unsearched = self.below.filter(|_| !self.is_searched_below);
        match (unsearched, missing.first(), missing.last()) {
            (None, None, _) | (None, _, None) => FilterStep::Done,
            (None, Some(first), Some(last)) if missing.len() > BLOCKS_BY_HASH_MAX => {
                FilterStep::LogsIn(first.number, last.number)
            }
            (None, Some(first), Some(_)) => FilterStep::LogsOf(*first),
            (Some((from, to)), _, last) => {
                FilterStep::LogsIn(from, last.map_or(to.number, |last| last.number))
            }
        }
    }

    /// Takes in the logs of a search. Blocks of it that have none are known to have none.
    fn take_range(&mut self, found: Vec<BlockLogs>, (from, to): (BlockNumber, BlockNumber)) {
        let in_range = |it: &&NewBlock| (from..=to).contains(&it.id().number);
        for block in self.added.iter().filter(in_range).map(NewBlock::id).collect::<Vec<_>>() {
            self.logs.insert(block.hash, Arc::new(BlockLogs::none(block)));
        }
        let last_below = self.below.map(|(_, last)| last.number);
        let mut below = Vec::new();
        for logs in found {
            let block = logs.block();
            if last_below.is_some_and(|last| block.number <= last) {
                below.push(NewBlock::Found(block));
            }
            self.logs.insert(block.hash, Arc::new(logs));
        }
        if last_below.is_some() {
            self.is_searched_below = true;
            below.append(&mut self.added);
            self.added = below;
        }
    }
}

/// All logs of a block, if the journal has them.
fn whole_logs(block: &AddedBlock) -> Option<&Arc<BlockLogs>> {
    match block.logs()? {
        LogsState::Known(logs) if logs.is_whole() => Some(logs),
        LogsState::Known(_) | LogsState::Unneeded => None,
    }
}

fn matched(logs: &BlockLogs, criteria: &LogCriteria) -> impl Iterator<Item = usize> {
    let number = logs.block().number;
    let fits = logs.logs().iter().map(move |log| criteria.matches(number, log));
    fits.enumerate().filter(|(_, fits)| *fits).map(|(place, _)| place)
}

/// An answer that is being written.
struct FilterAnswer {
    json: Vec<u8>,
    bytes_max: usize,
}

impl FilterAnswer {
    fn push(&mut self, item: &[u8]) {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        self.json.extend_from_slice(item);
    }

    fn is_full(&self) -> bool {
        self.json.len() >= self.bytes_max
    }
}

/// The chain that a journal's events lead to.
struct FoldedChain {
    /// Descending from the tip.
    blocks: Vec<Arc<AddedBlock>>,
    /// The block on which they stand.
    base: Option<NumberedBlock>,
}

/// The chain of the view, from its tip down to `until`, or as far as the events go.
fn chain_of(view: &RingView<ChainEvent>, until: NumberedBlock) -> FoldedChain {
    let (mut blocks, mut taken_back) = (Vec::new(), 0_usize);
    let mut base = view.tip_block();
    for (_, event) in view.iter().rev() {
        match event {
            ChainEvent::Removed(_) => taken_back += 1,
            ChainEvent::Added(_) if taken_back > 0 => taken_back -= 1,
            ChainEvent::Added(block) => {
                if block.id() == until {
                    break;
                }
                base = Some(block.header().parent_id());
                blocks.push(Arc::clone(block));
            }
            ChainEvent::Began(_) => {}
        }
    }
    FoldedChain { blocks, base }
}

impl FoldedChain {
    /// How many blocks are above this one, if it is on the chain.
    fn place_of(&self, block: NumberedBlock) -> Option<usize> {
        match self.base == Some(block) {
            true => Some(self.blocks.len()),
            false => self.blocks.iter().position(|it| it.id() == block),
        }
    }

    /// The blocks from `cursor`, which was replaced, down to the chain, and how many blocks of the
    /// chain are above where they part.
    fn way_back(
        &self,
        cursor: NumberedBlock,
        view: &RingView<ChainEvent>,
    ) -> Option<(Vec<Arc<AddedBlock>>, usize)> {
        let blocks = view.iter().filter_map(|(_, event)| event.added());
        let by_hash: HashMap<BlockHash, &Arc<AddedBlock>> =
            blocks.map(|block| (block.id().hash, block)).collect();
        let on_chain: HashSet<NumberedBlock> = self.blocks.iter().map(|it| it.id()).collect();
        let (mut removed, mut block) = (Vec::new(), cursor);
        // The height falls with each step, and each hash is there once.
        for _ in 0..=by_hash.len() {
            if on_chain.contains(&block) || self.base == Some(block) {
                return Some((removed, self.place_of(block)?));
            }
            let known = by_hash.get(&block.hash)?;
            removed.push(Arc::clone(known));
            block = known.header().parent_id();
        }
        None
    }
}
