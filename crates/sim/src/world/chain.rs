//! The block tree: one canonical chain, side branches, and what a viewer sees of them.
//!
//! Old blocks lose body and state, and very old ones vanish, so that a world can
//! run for days in bounded memory. How blocks are made is in `build`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use alloy_primitives::B256;

use super::block::SimBlock;
use super::tx::Tx;

/// Side blocks remembered; the oldest go first.
const SIDE_BLOCKS_MAX: usize = 1024;

/// All blocks.
#[derive(Debug)]
pub struct Chain {
    genesis: Arc<SimBlock>,
    /// Consecutive, the last one is the head.
    canonical: VecDeque<Arc<SimBlock>>,
    by_hash: HashMap<B256, Arc<SimBlock>>,
    /// Each block that holds the transaction; several only across branches.
    tx_places: HashMap<B256, Vec<(B256, usize)>>,
    sides: VecDeque<B256>,
    full_blocks: usize,
    headers_max: usize,
}

/// What changing the canonical head took away and brought, both oldest first.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) dropped: Vec<Arc<SimBlock>>,
    pub(super) adopted: Vec<Arc<SimBlock>>,
}

/// Where on the block tree a viewer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standpoint {
    /// This many blocks behind the canonical head.
    Lag(u64),
    /// At this block whatever happens elsewhere. An unknown block means the genesis.
    At(B256),
}

impl Chain {
    pub(super) fn new(genesis: SimBlock, full_blocks: usize, headers_max: usize) -> Self {
        let genesis = Arc::new(genesis);
        Self {
            by_hash: HashMap::from([(genesis.hash, Arc::clone(&genesis))]),
            canonical: VecDeque::from([Arc::clone(&genesis)]),
            genesis,
            tx_places: HashMap::new(),
            sides: VecDeque::new(),
            full_blocks: full_blocks.max(2),
            headers_max: headers_max.max(full_blocks).max(2),
        }
    }

    /// The newest canonical block.
    pub fn head(&self) -> &Arc<SimBlock> {
        self.canonical.back().unwrap_or(&self.genesis)
    }

    /// The canonical block at this height.
    pub fn canonical(&self, number: u64) -> Option<&Arc<SimBlock>> {
        if number == 0 {
            return Some(&self.genesis);
        }
        let first = self.canonical.front()?.number();
        self.canonical.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Any block of the tree.
    pub fn by_hash(&self, hash: &B256) -> Option<&Arc<SimBlock>> {
        self.by_hash.get(hash)
    }

    /// Whether the block is on the canonical chain.
    pub fn is_canonical(&self, block: &SimBlock) -> bool {
        self.canonical(block.number()).is_some_and(|other| other.hash == block.hash)
    }

    /// What a node at `standpoint` sees.
    pub fn view(&self, standpoint: Standpoint) -> BranchView<'_> {
        match standpoint {
            Standpoint::Lag(lag) => {
                let number = self.head().number().saturating_sub(lag);
                let head = self.canonical(number).unwrap_or(&self.genesis);
                BranchView { chain: self, head: Arc::clone(head), sees_sides: true }
            }
            Standpoint::At(hash) => {
                let head = self.by_hash(&hash).unwrap_or(&self.genesis);
                BranchView { chain: self, head: Arc::clone(head), sees_sides: false }
            }
        }
    }

    /// Puts a block on top of the canonical chain.
    pub(super) fn push(&mut self, block: SimBlock) -> Arc<SimBlock> {
        let block = self.remember(block);
        self.canonical.push_back(Arc::clone(&block));
        self.prune();
        block
    }

    /// Keeps a block beside the canonical chain.
    pub(super) fn push_side(&mut self, block: SimBlock) -> Arc<SimBlock> {
        let block = self.remember(block);
        self.remember_side(block.hash);
        block
    }

    /// Makes `head` the canonical head; `None` when it does not descend from a
    /// canonical block that is still known.
    pub(super) fn adopt(&mut self, head: &B256) -> Option<Switch> {
        let mut adopted = VecDeque::new();
        let mut block = Arc::clone(self.by_hash(head)?);
        while !self.is_canonical(&block) {
            let parent = Arc::clone(self.by_hash(&block.header.parent_hash)?);
            adopted.push_front(block);
            block = parent;
        }
        let first = self.canonical.front()?.number();
        let keep = usize::try_from(block.number().checked_sub(first)? + 1).ok()?;
        let dropped: Vec<_> = self.canonical.drain(keep..).collect();
        self.sides.retain(|hash| !adopted.iter().any(|block| block.hash == *hash));
        for block in &dropped {
            self.remember_side(block.hash);
        }
        self.canonical.extend(adopted.iter().cloned());
        self.prune();
        Some(Switch { dropped, adopted: adopted.into() })
    }

    /// Heads of side branches: side blocks without a child.
    pub fn side_heads(&self) -> Vec<B256> {
        let is_parent = |hash: &B256| {
            self.sides
                .iter()
                .filter_map(|other| self.by_hash(other))
                .any(|other| other.header.parent_hash == *hash)
        };
        self.sides.iter().filter(|hash| !is_parent(hash)).copied().collect()
    }

    fn remember(&mut self, block: SimBlock) -> Arc<SimBlock> {
        let block = Arc::new(block);
        for (index, tx) in block.body.iter().flat_map(|body| &body.txs).enumerate() {
            self.tx_places.entry(tx.hash).or_default().push((block.hash, index));
        }
        self.by_hash.insert(block.hash, Arc::clone(&block));
        block
    }

    fn remember_side(&mut self, hash: B256) {
        self.sides.push_back(hash);
        while self.sides.len() > SIDE_BLOCKS_MAX {
            if let Some(oldest) = self.sides.pop_front()
                && let Some(block) = self.by_hash.remove(&oldest)
            {
                self.forget_txs(&block);
            }
        }
    }

    fn forget_txs(&mut self, block: &SimBlock) {
        for tx in block.body.iter().flat_map(|body| &body.txs) {
            if let Some(places) = self.tx_places.get_mut(&tx.hash) {
                places.retain(|(hash, _)| *hash != block.hash);
                if places.is_empty() {
                    self.tx_places.remove(&tx.hash);
                }
            }
        }
    }

    /// Takes body and state from what has grown too old; the genesis keeps its own.
    fn prune(&mut self) {
        let mut index = self.canonical.len().saturating_sub(self.full_blocks);
        // Usually one block; several after a branch longer than the old one was adopted.
        while index > 0 {
            index -= 1;
            let block = Arc::clone(&self.canonical[index]);
            if block.body.is_none() {
                break;
            }
            self.forget_txs(&block);
            let pruned = Arc::new(block.pruned());
            if pruned.number() > 0 {
                self.by_hash.insert(pruned.hash, Arc::clone(&pruned));
            }
            self.canonical[index] = pruned;
        }
        while self.canonical.len() > self.headers_max {
            if let Some(oldest) = self.canonical.pop_front()
                && oldest.number() > 0
            {
                self.by_hash.remove(&oldest.hash);
            }
        }
    }
}

/// The tree as seen from one head: nothing above it, and no other branch's past.
#[derive(Debug, Clone)]
pub struct BranchView<'a> {
    chain: &'a Chain,
    head: Arc<SimBlock>,
    /// A node that follows the chain still has the blocks a reorg took away; one
    /// that stands still never heard of the others.
    sees_sides: bool,
}

impl<'a> BranchView<'a> {
    /// The tree that is looked at.
    pub(crate) fn chain(&self) -> &'a Chain {
        self.chain
    }

    /// The newest block seen.
    pub fn head(&self) -> &Arc<SimBlock> {
        &self.head
    }

    /// The ancestor of the head, or the head itself, at this height.
    pub fn at(&self, number: u64) -> Option<Arc<SimBlock>> {
        let mut block = &self.head;
        while block.number() > number {
            if self.chain.is_canonical(block) {
                return self.chain.canonical(number).cloned();
            }
            block = self.chain.by_hash(&block.header.parent_hash)?;
        }
        (block.number() == number).then(|| Arc::clone(block))
    }

    /// The block with this hash, if it can be known here.
    pub fn by_hash(&self, hash: &B256) -> Option<Arc<SimBlock>> {
        let block = self.chain.by_hash(hash)?;
        if block.number() > self.head.number() {
            return None;
        }
        (self.is_ancestor(block) || (self.sees_sides && !self.chain.is_canonical(block)))
            .then(|| Arc::clone(block))
    }

    /// Whether the head descends from `block`, or is it.
    pub fn is_ancestor(&self, block: &SimBlock) -> bool {
        self.at(block.number()).is_some_and(|other| other.hash == block.hash)
    }

    /// The block and index of a mined transaction.
    pub fn tx(&self, hash: &B256) -> Option<(Arc<SimBlock>, usize)> {
        self.chain.tx_places.get(hash)?.iter().find_map(|(block, index)| {
            let block = self.chain.by_hash(block)?;
            self.is_ancestor(block).then(|| (Arc::clone(block), *index))
        })
    }
}

/// The transactions of `blocks`, oldest first.
pub(super) fn txs_of(blocks: &[Arc<SimBlock>]) -> Vec<Arc<Tx>> {
    blocks
        .iter()
        .filter_map(|block| block.body.as_ref())
        .flat_map(|body| &body.txs)
        .cloned()
        .collect()
}
