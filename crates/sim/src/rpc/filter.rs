//! Filters: state that lives on one node alone and dies with it.
//!
//! Not expired by time, as geth does after five minutes, but by number: the
//! oldest goes when there are too many.

use std::collections::VecDeque;
use std::sync::Arc;

use alloy_primitives::{B256, keccak256};
use serde_json::{Value, json};

use super::CallContext;
use super::error::RpcError;
use super::logs::{self, Criteria};
use crate::world::BranchView;
use crate::world::block::SimBlock;

/// Filters a node remembers.
pub const FILTERS_MAX: usize = 256;
/// Blocks one poll tells of; older ones are left out.
const CHANGES_BLOCKS_MAX: u64 = 1024;

#[derive(Debug, Clone)]
enum FilterKind {
    Blocks { since: B256 },
    Logs { since: B256, criteria: Criteria },
    Pending { seen: Vec<B256> },
}

/// The filters of one node.
#[derive(Debug)]
pub struct Filters {
    seed: u64,
    made: u64,
    filters: VecDeque<(String, FilterKind)>,
}

/// What a new filter reports.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// Hashes of new blocks.
    Blocks,
    /// New logs.
    Logs(Criteria),
    /// Hashes of new waiting transactions.
    Pending,
}

impl Filters {
    /// None yet. Two nodes with different seeds never hand out the same id.
    pub fn new(seed: u64) -> Self {
        Self { seed, made: 0, filters: VecDeque::new() }
    }
}

fn not_found() -> RpcError {
    RpcError::server("filter not found")
}

/// Makes a filter that reports what comes after now, and returns its id.
pub fn install(asked: &mut CallContext<'_>, wanted: Wanted) -> Value {
    let since = asked.view.head().hash;
    let kind = match wanted {
        Wanted::Blocks => FilterKind::Blocks { since },
        Wanted::Logs(criteria) => FilterKind::Logs { since, criteria },
        Wanted::Pending => FilterKind::Pending { seen: asked.world.waiting_hashes() },
    };
    let filters = &mut *asked.filters;
    filters.made += 1;
    let hash = keccak256([filters.seed.to_be_bytes(), filters.made.to_be_bytes()].concat());
    let id = format!("{:#x}", alloy_primitives::U128::from_be_slice(&hash[..16]));
    if filters.filters.len() >= FILTERS_MAX {
        filters.filters.pop_front();
    }
    filters.filters.push_back((id.clone(), kind));
    json!(id)
}

/// Forgets a filter; false when there was none.
pub fn uninstall(asked: &mut CallContext<'_>, id: &str) -> bool {
    let before = asked.filters.filters.len();
    asked.filters.filters.retain(|(known, _)| known != id);
    asked.filters.filters.len() < before
}

/// What came since the last poll. Logs of blocks that a reorg took away come
/// first, marked as removed.
pub fn changes(asked: &mut CallContext<'_>, id: &str) -> Result<Value, RpcError> {
    let place = asked.filters.filters.iter().position(|(known, _)| known == id);
    let place = place.ok_or_else(not_found)?;
    let mut kind = asked.filters.filters[place].1.clone();
    let head = asked.view.head().hash;
    let answer = match &mut kind {
        FilterKind::Blocks { since } => {
            let (_, fresh) = moved(&asked.view, since);
            *since = head;
            fresh.iter().map(|block| json!(block.hash)).collect()
        }
        FilterKind::Logs { since, criteria } => {
            let (gone, fresh) = moved(&asked.view, since);
            *since = head;
            criteria.in_move(&gone, &fresh)
        }
        FilterKind::Pending { seen } => {
            let now = asked.world.waiting_hashes();
            let fresh = now.iter().filter(|hash| !seen.contains(hash));
            let fresh = fresh.map(|hash| json!(hash)).collect();
            *seen = now;
            fresh
        }
    };
    asked.filters.filters[place].1 = kind;
    Ok(Value::Array(answer))
}

/// Everything a log filter would match from its span.
pub fn all_logs(asked: &CallContext<'_>, id: &str) -> Result<Value, RpcError> {
    let found = asked.filters.filters.iter().find(|(known, _)| known == id);
    match found {
        Some((_, FilterKind::Logs { criteria, .. })) => {
            logs::get_logs(asked, criteria).map(Value::Array)
        }
        Some(_) | None => Err(not_found()),
    }
}

/// Blocks of one branch.
pub(crate) type BranchBlocks = Vec<Arc<SimBlock>>;

/// From the old head to the present one: blocks left behind, newest first, and
/// blocks gained, oldest first.
pub(crate) fn moved(view: &BranchView<'_>, since: &B256) -> (BranchBlocks, BranchBlocks) {
    let mut gone = Vec::new();
    let chain = view.chain();
    let mut common = chain.by_hash(since).cloned();
    while let Some(block) = &common
        && !view.is_ancestor(block)
    {
        let parent = chain.by_hash(&block.header.parent_hash).cloned();
        gone.push(Arc::clone(block));
        common = parent;
    }
    let head = view.head().number();
    let first = common.map_or(head, |block| block.number() + 1);
    let first = first.max(head.saturating_sub(CHANGES_BLOCKS_MAX));
    let fresh = (first..=head).filter_map(|number| view.at(number)).collect();
    (gone, fresh)
}
