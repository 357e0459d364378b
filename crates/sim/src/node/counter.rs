//! What a simulated upstream was asked: evidence for checkers.

use std::collections::BTreeMap;

use alloy_primitives::{B256, hex, keccak256};
use parking_lot::Mutex;
use serde_json::Value;

/// Method names counted apart; further ones are summed as `other`.
const METHODS_MAX: usize = 512;
/// Transactions whose sendings are counted; later ones are not.
const BROADCASTS_MAX: usize = 65_536;

/// How often an upstream was asked for what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// HTTP requests (or WebSocket messages).
    pub requests: u64,
    /// Calls in them.
    pub calls: u64,
    /// Of the requests, batches.
    pub batches: u64,
    /// Of the requests, those that went wrong on purpose.
    pub faults: u64,
    /// Of the faults, refusals for too many calls.
    pub throttled: u64,
    /// Calls by method, those that then failed included.
    pub by_method: BTreeMap<String, u64>,
    /// How often each transaction reached this upstream, by its hash.
    pub broadcasts: BTreeMap<B256, u64>,
}

impl NodeCounts {
    /// Calls of one method.
    pub fn of(&self, method: &str) -> u64 {
        self.by_method.get(method).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct NodeCounters {
    counts: Mutex<NodeCounts>,
}

impl NodeCounters {
    pub(super) fn request(&self, calls: usize, batch: bool) {
        let mut counts = self.counts.lock();
        counts.requests += 1;
        counts.calls += calls as u64;
        counts.batches += u64::from(batch);
    }

    pub(super) fn fault(&self, throttled: bool) {
        let mut counts = self.counts.lock();
        counts.faults += 1;
        counts.throttled += u64::from(throttled);
    }

    pub(super) fn call(&self, method: &str, params: Option<&Value>) {
        let mut counts = self.counts.lock();
        let known = counts.by_method.contains_key(method);
        let name = if known || counts.by_method.len() < METHODS_MAX { method } else { "other" };
        *counts.by_method.entry(name.to_owned()).or_default() += 1;
        if method == "eth_sendRawTransaction"
            && let Some(raw) = params.and_then(|params| params.get(0)).and_then(Value::as_str)
            && let Ok(raw) = hex::decode(raw)
            && counts.broadcasts.len() < BROADCASTS_MAX
        {
            *counts.broadcasts.entry(keccak256(raw)).or_default() += 1;
        }
    }

    pub(super) fn snapshot(&self) -> NodeCounts {
        self.counts.lock().clone()
    }
}
