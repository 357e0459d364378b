//! What changed for one filter since it was last polled: a decision in steps, without I/O.
//!
//! A filter remembers the blocks up to which it told, and what it told of them. A poll first finds the
//! newest of these that is still on the chain; what was told above it is taken back. Then it asks for what
//! is new between that block and the tip. While no client polls, nothing is asked for.
//!
//! Where none of the remembered blocks is on the chain, what was told cannot be taken back, and the filter is
//! [gone](FilterStep::Gone): its client makes a new one and reads again, instead of living on with logs that
//! are no longer true.
//!
//! What changed is the difference between two chains, not the way there: a block that came and
//! went between two polls is not told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};

use crate::criteria::{LogCriteria, LogCriteriaError};
use crate::logs::{BlockLogs, LogsError, read_range, taken_back};

/// Blocks of a filter that a restart keeps.
const SAVED_BLOCKS_MAX: usize = 8;
/// Blocks that a filter remembers: a reorg that parts below them ends it.
const TOLD_BLOCKS_MAX: usize = 128;
/// Blocks that a poll of a filter for blocks tells at most; each may cost a call. With more the filter is gone.
const BLOCKS_MAX: usize = 512;

/// The filter of `eth_newFilter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterQuery {
    criteria: LogCriteria,
    object: Box<str>,
}

impl FilterQuery {
    /// Reads the filter object (raw JSON) of a call; `None` is a filter for all logs.
    pub fn read(object: Option<&[u8]>) -> Result<Self, LogCriteriaError> {
        let criteria = LogCriteria::read(object)?;
        // What was read as criteria is JSON, so it is text.
        let object = object.and_then(|object| std::str::from_utf8(object).ok()).unwrap_or("{}");
        Ok(Self { criteria, object: object.into() })
    }

    /// The filter object as the client wrote it, for a search in the past.
    pub fn object(&self) -> &str {
        &self.object
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.criteria.bytes_held() + self.object.len()
    }
}

/// What a filter tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualFilterKind {
    /// The hashes of blocks.
    Blocks,
    /// The logs of blocks, and which of them were taken back.
    Logs(Arc<FilterQuery>),
}

/// A block up to which a filter told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldBlock {
    pub(crate) block: NumberedBlock,
    /// The JSON of the logs that were told of it.
    pub(crate) logs: Arc<[Bytes]>,
    /// It was the tip when it was told. What lies between it and the tip told before was searched for when
    /// both were on the chain, by an upstream that may already have been on another branch.
    pub(crate) is_tip: bool,
    /// Each block whose logs were told with it was known to be on the chain of its tip.
    pub(crate) is_proven: bool,
}

/// About how many bytes the number, hash and flags of a block are as text.
const BLOCK_TEXT_BYTES: usize = 96;

impl ToldBlock {
    /// One that was the tip, and of which nothing had to be searched for.
    pub(crate) fn without_logs(block: NumberedBlock) -> Self {
        Self { block, logs: Arc::default(), is_tip: true, is_proven: true }
    }

    fn bytes(&self) -> usize {
        self.logs.iter().map(Bytes::len).sum()
    }
}

/// How far a filter has told the chain, and what it may have to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterPosition {
    /// Ascending and never empty. Of the blocks between two of these nothing was told.
    told: VecDeque<ToldBlock>,
    told_bytes: usize,
}

impl FilterPosition {
    /// A filter that told these blocks, ascending. `None` where there are none.
    pub(crate) fn of(told: impl IntoIterator<Item = ToldBlock>) -> Option<Self> {
        let told: VecDeque<_> = told.into_iter().collect();
        (!told.is_empty()).then(|| Self::at(told))
    }

    fn at(told: VecDeque<ToldBlock>) -> Self {
        let told_bytes = told.iter().map(ToldBlock::bytes).sum();
        Self { told, told_bytes }
    }

    /// The blocks up to which it told, as far as they are remembered, ascending.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &ToldBlock> {
        self.told.iter()
    }

    /// The newest block up to which it told.
    pub(crate) fn cursor(&self) -> NumberedBlock {
        self.told.back().map(|told| told.block).expect("a position is never empty")
    }

    /// The position as a restart keeps it: the newest blocks, without what was told of them. Of none of them but
    /// the oldest may something have to be taken back.
    pub(crate) fn for_restart(&self) -> Self {
        let with_logs = self.told.iter().rposition(|told| !told.logs.is_empty());
        let from = with_logs.unwrap_or(0).max(self.told.len().saturating_sub(SAVED_BLOCKS_MAX));
        Self::at(self.told.range(from..).map(|told| ToldBlock::without_logs(told.block)).collect())
    }

    /// The position as other replicas read it: the newest blocks with what was told of them, at most `bytes_max` as
    /// text, and one block more. The oldest is without its logs, as nothing is taken back to below it.
    pub(crate) fn for_replicas(&self, bytes_max: usize) -> Self {
        let mut bytes = 0;
        let fits = |told: &&ToldBlock| {
            bytes += BLOCK_TEXT_BYTES + told.bytes() + told.logs.len();
            bytes <= bytes_max
        };
        let kept = self.told.iter().rev().take_while(fits).count();
        let from = self.told.len().saturating_sub(kept + 1);
        let mut newest: VecDeque<_> = self.told.range(from..).cloned().collect();
        if let Some(oldest) = newest.front_mut() {
            oldest.logs = Arc::default();
        }
        Self::at(newest)
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes_held(&self) -> usize {
        self.told_bytes + self.told.len() * size_of::<ToldBlock>()
    }

    fn tell(&mut self, told: ToldBlock, bytes_max: usize) {
        debug_assert!(self.cursor().number < told.block.number, "blocks are told in order");
        self.told_bytes += told.bytes();
        self.told.push_back(told);
        while self.told.len() > 1
            && (self.told.len() > TOLD_BLOCKS_MAX || self.told_bytes > bytes_max)
            && let Some(oldest) = self.told.pop_front()
        {
            self.told_bytes -= oldest.bytes();
        }
    }

    /// Takes back all above the block at this place. What was told of them, the newest first.
    fn go_back_to(&mut self, place: usize) -> Vec<ToldBlock> {
        let mut above: Vec<_> = self.told.drain(place + 1..).collect();
        self.told_bytes -= above.iter().map(ToldBlock::bytes).sum::<usize>();
        above.reverse();
        above
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

/// What a poll needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterStep {
    /// Say whether this block is on the chain ([`FilterPoll::supply_canonical`]). A block above the tip that
    /// no other block replaced is.
    IsCanonical(NumberedBlock),
    /// Say which block this one stands on ([`FilterPoll::supply_parent`]).
    ParentOf(NumberedBlock),
    /// Ask for the logs of this block by its hash ([`FilterPoll::supply_logs`]).
    LogsOf(NumberedBlock),
    /// Search for the logs in these blocks, both included ([`FilterPoll::supply_logs`]).
    LogsIn(BlockNumber, BlockNumber),
    /// The answer is complete.
    Done,
    /// What was told cannot be taken back, or what changed cannot be found: "filter not found".
    Gone,
}

/// What is known of the change so far.
#[derive(Debug)]
enum PollProgress {
    /// The block at this place of what was told may be on the chain or not. `found` is the newest that is.
    /// Below one that is not, it counts when the tip that was told below it is on the chain, too; and a
    /// tip that is not proven when the block with logs below it is.
    Parting {
        at: usize,
        found: Option<usize>,
    },
    /// Blocks from the tip down, to where they meet what was told.
    Descending(Vec<NumberedBlock>),
    /// These logs are missing.
    Searching(BlockNumber, BlockNumber),
    /// The blocks to be told.
    Blocks(Vec<NumberedBlock>),
    /// The blocks with logs to be told, up to the tip, and whether each is known to be on its chain.
    Logs(Vec<Arc<BlockLogs>>, bool),
    Gone,
}

/// A poll under way. It owns all it needs: the filter may be polled again or dropped meanwhile.
#[derive(Debug)]
pub struct FilterPoll {
    kind: VirtualFilterKind,
    position: FilterPosition,
    bounds: FilterBounds,
    tip: NumberedBlock,
    /// The logs that are taken back, in their order.
    removed: Vec<Vec<u8>>,
    progress: PollProgress,
}

impl FilterPoll {
    /// What changed between `position` and `tip`.
    pub(crate) fn new(
        kind: VirtualFilterKind,
        position: FilterPosition,
        tip: NumberedBlock,
        bounds: FilterBounds,
    ) -> Self {
        let progress = match position.cursor() == tip {
            true => PollProgress::Blocks(Vec::new()),
            false => PollProgress::Parting { at: position.told.len() - 1, found: None },
        };
        let cursor = position.cursor();
        let mut poll = Self { kind, position, bounds, tip, removed: Vec::new(), progress };
        if poll.kind == VirtualFilterKind::Blocks && cursor.number < tip.number {
            // The hashes of the new blocks are needed anyhow, and lead to where the chains part.
            poll.descend(vec![tip]);
        }
        poll
    }

    /// The criteria of the logs that are asked for; `None` for a filter of blocks.
    pub fn criteria(&self) -> Option<&LogCriteria> {
        match &self.kind {
            VirtualFilterKind::Blocks => None,
            VirtualFilterKind::Logs(filter) => Some(&filter.criteria),
        }
    }

    /// What is needed next. Nothing changes by asking again.
    pub fn step(&self) -> FilterStep {
        match &self.progress {
            PollProgress::Parting { at, .. } => {
                FilterStep::IsCanonical(self.position.told[*at].block)
            }
            PollProgress::Descending(way) => {
                way.last().map_or(FilterStep::Gone, |block| FilterStep::ParentOf(*block))
            }
            PollProgress::Searching(from, _) if *from == self.tip.number => {
                FilterStep::LogsOf(self.tip)
            }
            PollProgress::Searching(from, to) => FilterStep::LogsIn(*from, *to),
            PollProgress::Blocks(_) | PollProgress::Logs(..) => FilterStep::Done,
            PollProgress::Gone => FilterStep::Gone,
        }
    }

    /// Whether the tip is below all blocks that the filter remembers: an upstream lags, or the chain was
    /// set back.
    pub fn is_set_back(&self) -> bool {
        self.position.told.front().is_some_and(|oldest| self.tip.number < oldest.block.number)
    }

    /// The params of `eth_getLogs` for the logs that are missing; `None` where none are. The gates of the
    /// criteria are in the range.
    pub fn search(&self) -> Option<String> {
        let mut object = String::new();
        self.criteria()?.pattern().write_members(&mut object);
        if !object.is_empty() {
            object.push(',');
        }
        let blocks = match self.step() {
            FilterStep::LogsOf(block) => format!(r#""blockHash":"{}""#, block.hash),
            FilterStep::LogsIn(from, to) => {
                format!(r#""fromBlock":"{}","toBlock":"{}""#, from.hex(), to.hex())
            }
            FilterStep::IsCanonical(_)
            | FilterStep::ParentOf(_)
            | FilterStep::Done
            | FilterStep::Gone => return None,
        };
        Some(format!("[{{{object}{blocks}}}]"))
    }

    /// Says whether the block that was asked about is on the chain.
    pub fn supply_canonical(&mut self, is_canonical: bool) {
        let PollProgress::Parting { at, found } = self.progress else { return };
        let (told, is_newest) = (&self.position.told[at], at + 1 == self.position.told.len());
        if is_canonical && is_newest && told.block.number >= self.tip.number {
            self.progress = PollProgress::Blocks(Vec::new());
            return;
        }
        if let VirtualFilterKind::Blocks = self.kind {
            return self.descend(vec![self.tip]);
        }
        let is_enough = match (is_newest, found) {
            (true, _) => told.is_proven,
            // The newest is on the chain, and so is the highest whose logs were told with it.
            (false, Some(found)) => told.is_tip || found + 1 == self.position.told.len(),
            (false, None) => told.is_tip,
        };
        let found = if is_canonical { found.or(Some(at)) } else { None };
        match found {
            Some(place) if is_enough || at == 0 => self.part_at(place),
            None if at == 0 => self.progress = PollProgress::Gone,
            found => self.progress = PollProgress::Parting { at: at - 1, found },
        }
    }

    /// Takes back what was told above the block at this place, which is the newest on the chain, and asks
    /// for the logs of the blocks above it.
    fn part_at(&mut self, place: usize) {
        let VirtualFilterKind::Logs(filter) = &self.kind else { return };
        for told in self.position.go_back_to(place) {
            self.removed.extend(told.logs.iter().map(|log| taken_back(log)));
        }
        let (lowest, highest) = filter.criteria.gates();
        let from = BlockNumber(self.position.cursor().number.0 + 1).max(lowest);
        let to = self.tip.number.min(highest);
        self.progress = match from <= to {
            true => PollProgress::Searching(from, to),
            false => PollProgress::Logs(Vec::new(), true),
        };
    }

    /// Says which block the one that was asked about stands on.
    pub fn supply_parent(&mut self, hash: BlockHash) {
        let PollProgress::Descending(way) = &mut self.progress else { return };
        let mut way = std::mem::take(way);
        if let Some(last) = way.last() {
            let number = BlockNumber(last.number.0.saturating_sub(1));
            way.push(NumberedBlock { number, hash });
        }
        self.descend(way);
    }

    fn descend(&mut self, mut way: Vec<NumberedBlock>) {
        let oldest = self.position.told.front().map(|told| told.block.number);
        let Some(last) = way.last().copied() else { return };
        let place = self.position.told.iter().rposition(|told| told.block == last);
        self.progress = if let Some(place) = place {
            self.position.go_back_to(place);
            way.pop();
            way.reverse();
            PollProgress::Blocks(way)
        } else if oldest.is_none_or(|oldest| last.number <= oldest) || way.len() > BLOCKS_MAX {
            PollProgress::Gone
        } else {
            PollProgress::Descending(way)
        };
    }

    /// Takes in the list of logs (raw JSON) that was asked for; `hash_at` says which block of the chain is at
    /// a height, where that is known. An error changes nothing: another upstream can be asked.
    pub fn supply_logs(
        &mut self,
        list: &[u8],
        hash_at: impl Fn(BlockNumber) -> Option<BlockHash>,
    ) -> Result<(), LogsError> {
        let PollProgress::Searching(from, to) = self.progress else { return Ok(()) };
        let tip = self.tip;
        let hash_at = |number| if number == tip.number { Some(tip.hash) } else { hash_at(number) };
        let found = read_range(list, &(from..=to), self.bounds.reply_bytes_max, hash_at)?;
        let are_known = found.iter().all(|logs| hash_at(logs.block().number).is_some());
        self.progress = PollProgress::Logs(found.into_iter().map(Arc::new).collect(), are_known);
        Ok(())
    }

    /// Takes in the logs of all blocks whose logs are missing, ascending, as they are known of each block of
    /// the chain without a search.
    pub fn supply_known(&mut self, logs: Vec<Arc<BlockLogs>>) {
        if let PollProgress::Searching(..) = self.progress {
            self.progress = PollProgress::Logs(logs, true);
        }
    }

    /// The answer (a JSON array) and the filter's position after it. At most as long as the bounds
    /// say, but for one block: the rest follows at the next poll.
    ///
    /// `None` unless the last step was [`FilterStep::Done`].
    pub(crate) fn answer(self) -> Option<(Bytes, FilterPosition)> {
        let Self { kind, mut position, bounds, tip, removed, progress } = self;
        let mut answer = FilterAnswer { json: vec![b'['], bytes_max: bounds.answer_bytes_max };
        removed.iter().for_each(|log| answer.push(log));
        match progress {
            PollProgress::Blocks(blocks) => {
                for block in blocks {
                    answer.push(format!("\"{}\"", block.hash).as_bytes());
                    position.tell(ToldBlock::without_logs(block), bounds.told_bytes_max);
                }
            }
            PollProgress::Logs(found, is_proven) => {
                let VirtualFilterKind::Logs(filter) = &kind else { return None };
                for logs in &found {
                    if answer.is_full() {
                        return Some((answer.close(), position));
                    }
                    // Copies: a slice would keep the logs of the whole block.
                    let told: Vec<Bytes> = matched(logs, &filter.criteria)
                        .map(|place| Bytes::copy_from_slice(&logs.json(place)))
                        .collect();
                    told.iter().for_each(|log| answer.push(log));
                    if !told.is_empty() {
                        let (block, logs) = (logs.block(), told.into());
                        let told = ToldBlock { block, logs, is_tip: block == tip, is_proven };
                        position.tell(told, bounds.told_bytes_max);
                    }
                }
                if position.cursor().number < tip.number {
                    let told = ToldBlock { is_proven, ..ToldBlock::without_logs(tip) };
                    position.tell(told, bounds.told_bytes_max);
                }
            }
            PollProgress::Parting { .. }
            | PollProgress::Descending(_)
            | PollProgress::Searching(..)
            | PollProgress::Gone => return None,
        }
        Some((answer.close(), position))
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

    fn close(mut self) -> Bytes {
        self.json.push(b']');
        self.json.into()
    }
}
