//! Which blocks are canonical, and which were replaced.
//!
//! A published view never removes a block silently: a block that was canonical in one view and
//! is not in the next is in a [`Reorg`], in order, so that data stored by block can be dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};

use crate::header::{DEPTH, HeaderMemory};

/// The reorgs that are remembered. A reader that misses some of them has to drop everything.
const REORGS_MAX: usize = 64;

/// A head that was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reorg {
    /// Counts from 1, without a gap.
    pub sequence: u64,
    /// How many blocks below the old head the two branches part, or how far the head fell
    /// where no hash says that it is another branch.
    pub depth: u64,
    /// The head that was taken back.
    pub from: BlockNumber,
    /// The head after it; zero where nothing is known any more.
    pub to: BlockNumber,
    /// The blocks that were canonical and are no longer, as far as their hashes are known.
    pub orphaned: Box<[(BlockNumber, BlockHash)]>,
    /// When it was seen.
    pub seen_at: Instant,
}

/// The newest reorgs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Reorgs {
    ring: VecDeque<Arc<Reorg>>,
    last: u64,
}

impl Reorgs {
    /// How many there were so far: the sequence of the last.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last one, if there was any.
    pub fn newest(&self) -> Option<&Reorg> {
        self.ring.back().map(|reorg| &**reorg)
    }

    /// Those after `sequence`, oldest first; `None` when some of them are forgotten by now.
    pub fn since(&self, sequence: u64) -> Option<impl Iterator<Item = &Reorg>> {
        let missed = self.last.saturating_sub(sequence);
        let missed = usize::try_from(missed).ok().filter(|missed| *missed <= self.ring.len())?;
        Some(self.ring.iter().skip(self.ring.len() - missed).map(|reorg| &**reorg))
    }

    /// When this block was taken back, as far as that is remembered.
    pub(crate) fn orphaned_at(&self, number: u64, hash: &BlockHash) -> Option<Instant> {
        let names = |reorg: &&Arc<Reorg>| reorg.orphaned.contains(&(BlockNumber(number), *hash));
        self.ring.iter().rev().find(names).map(|reorg| reorg.seen_at)
    }

    fn height_of(&self, hash: &BlockHash) -> Option<BlockNumber> {
        let mut orphaned = self.ring.iter().flat_map(|reorg| reorg.orphaned.iter());
        orphaned.find(|(_, it)| it == hash).map(|(number, _)| *number)
    }

    /// Adds a reorg that moved the head from the height `from` to `to`.
    fn push(
        &mut self,
        from: u64,
        to: u64,
        depth: u64,
        orphaned: Vec<(u64, BlockHash)>,
        seen_at: Instant,
    ) {
        if self.ring.len() == REORGS_MAX {
            self.ring.pop_front();
        }
        self.last += 1;
        let orphaned = orphaned.into_iter().map(|(at, hash)| (BlockNumber(at), hash)).collect();
        let (sequence, from, to) = (self.last, BlockNumber(from), BlockNumber(to));
        self.ring.push_back(Arc::new(Reorg { sequence, depth, from, to, orphaned, seen_at }));
    }
}

/// Whether a block is on the agreed chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canonical {
    /// It is.
    Yes,
    /// Another block is at its height, or it was taken back.
    No,
    /// Too old, too new, never heard of at that height, or not linked to the newest block by
    /// parents that are known.
    Unknown,
}

/// The agreed chain: by height, as far as hashes are known, and what was taken back of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CanonicalChain {
    /// Sorted by number; at most [`DEPTH`] blocks.
    blocks: Vec<(u64, BlockHash)>,
    /// From here on they are known to be ancestors of the head. Those below were on its branch when
    /// they were reported, but no report shows that they still are: a poll after a reorg shows the
    /// new head and its parent, however deep the reorg went.
    linked_from: u64,
    pub(crate) reorgs: Reorgs,
}

impl CanonicalChain {
    pub(crate) fn at(&self, number: u64) -> Option<BlockHash> {
        let place = self.blocks.binary_search_by_key(&number, |(at, _)| *at).ok()?;
        Some(self.blocks[place].1)
    }

    /// The hash at `number`, where the head is known to stand on that block.
    pub(crate) fn linked_at(&self, number: u64) -> Option<BlockHash> {
        self.at(number).filter(|_| number >= self.linked_from)
    }

    /// The hashes at all heights from `from` to `to` on which the head is known to stand.
    pub(crate) fn linked_in(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, BlockHash)> + '_ {
        let first = from.max(self.linked_from);
        let begin = self.blocks.partition_point(|(at, _)| *at < first);
        self.blocks[begin..].iter().take_while(move |(at, _)| *at <= to).copied()
    }

    /// Whether this is the lowest block on which the head is known to stand: its parent is not known.
    pub(crate) fn ends_at(&self, block: NumberedBlock) -> bool {
        self.linked_from == block.number.0 && self.at(block.number.0) == Some(block.hash)
    }

    pub(crate) fn height_of(&self, hash: &BlockHash) -> Option<BlockNumber> {
        // The newest is asked for most.
        let known = self.blocks.iter().rev().find(|(_, it)| it == hash);
        known.map(|(at, _)| BlockNumber(*at)).or_else(|| self.reorgs.height_of(hash))
    }

    pub(crate) fn is_canonical(&self, number: BlockNumber, hash: &BlockHash) -> Canonical {
        match self.linked_at(number.0) {
            Some(known) if known == *hash => Canonical::Yes,
            Some(_) => Canonical::No,
            None if self.reorgs.orphaned_at(number.0, hash).is_some() => Canonical::No,
            None => Canonical::Unknown,
        }
    }

    /// Takes everything back: it was another chain's.
    pub(crate) fn clear(&mut self, old: u64, now: Instant) {
        self.reorgs.push(old, 0, old, std::mem::take(&mut self.blocks), now);
    }

    /// Makes this block the head. `old` is the head before it.
    pub(crate) fn adopt(
        &mut self,
        old: Option<u64>,
        (number, hash): (u64, Option<BlockHash>),
        headers: &HeaderMemory,
        now: Instant,
    ) {
        let mut orphaned = Vec::new();
        let above = self.blocks.partition_point(|(at, _)| *at <= number);
        orphaned.extend(self.blocks.drain(above..));
        let floor = number.saturating_sub(DEPTH - 1);
        self.blocks.retain(|(at, _)| *at >= floor);
        let head = hash.map(|hash| NumberedBlock { number: BlockNumber(number), hash });
        let branch = head.map(|head| headers.back(head)).into_iter().flatten();
        self.linked_from = number.saturating_add(1);
        for (at, hash) in branch.map(|it| (it.number.0, it.hash)).take_while(|(at, _)| *at >= floor)
        {
            self.linked_from = at;
            match self.blocks.binary_search_by_key(&at, |(at, _)| *at) {
                Ok(place) if self.blocks[place].1 != hash => {
                    orphaned.push(std::mem::replace(&mut self.blocks[place], (at, hash)));
                }
                Ok(_) => {}
                Err(place) => self.blocks.insert(place, (at, hash)),
            }
        }
        let Some(old) = old else { return };
        let parted = orphaned.iter().map(|(at, _)| at.saturating_sub(1)).min();
        if parted.is_none() && number >= old {
            return;
        }
        orphaned.sort_unstable();
        let depth = old.saturating_sub(parted.unwrap_or(number).min(number));
        self.reorgs.push(old, number, depth, orphaned, now);
    }
}
