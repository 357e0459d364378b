//! `eth_getLogs`: what is asked for, and finding it.

use std::sync::Arc;

use alloy_primitives::{Address, B256, BloomInput, Log};
use serde_json::Value;

use super::CallContext;
use super::error::RpcError;
use super::json;
use super::params::{self, BlockSelector};
use crate::world::block::SimBlock;

/// Topic positions a log has.
const TOPICS_MAX: usize = 4;

/// Which blocks to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRange {
    /// One block.
    Block(B256),
    /// From one height to another, both included.
    Range(BlockSelector, BlockSelector),
}

/// Which logs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criteria {
    /// Where.
    pub span: LogRange,
    /// The contracts that emit them; empty for all.
    pub addresses: Vec<Address>,
    /// By position; an empty list matches anything.
    pub topics: Vec<Vec<B256>>,
}

impl Criteria {
    /// Reads a filter object, refusing as geth does.
    pub fn read(value: &Value) -> Result<Self, RpcError> {
        let invalid = |why: String| RpcError::invalid_argument(0, &why);
        let Value::Object(object) = value else {
            let why = "json: cannot unmarshal non-object into Go value of type filters.input";
            return Err(invalid(why.to_owned()));
        };
        let field = |name: &str| object.get(name).filter(|value| !value.is_null());
        let (from, to) = (field("fromBlock"), field("toBlock"));
        let span = match field("blockHash") {
            Some(_) if from.is_some() || to.is_some() => {
                let why =
                    "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other";
                return Err(invalid(why.to_owned()));
            }
            Some(hash) => LogRange::Block(params::hash(hash).map_err(invalid)?),
            None => {
                let height = |value: Option<&Value>| match value {
                    None => Ok(BlockSelector::Latest),
                    Some(value) => params::height(value).map_err(invalid),
                };
                LogRange::Range(height(from)?, height(to)?)
            }
        };
        let addresses = match field("address") {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().map(params::address).collect::<Result<_, _>>().map_err(invalid)?
            }
            Some(one) => vec![params::address(one).map_err(invalid)?],
        };
        let topics = match field("topics") {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().map(topic_choice).collect::<Result<Vec<_>, _>>().map_err(invalid)?
            }
            Some(_) => return Err(invalid("invalid topics".to_owned())),
        };
        if topics.len() > TOPICS_MAX {
            return Err(RpcError::server("exceed max topics"));
        }
        Ok(Self { span, addresses, topics })
    }

    /// Whether a log is wanted, whatever its block.
    pub fn matches(&self, log: &Log) -> bool {
        let by_address = self.addresses.is_empty() || self.addresses.contains(&log.address);
        let topics = log.topics();
        by_address
            && self.topics.len() <= topics.len()
            && self
                .topics
                .iter()
                .zip(topics)
                .all(|(choice, topic)| choice.is_empty() || choice.contains(topic))
    }

    /// Whether the block may hold a wanted log, by its bloom.
    fn may_be_in(&self, block: &SimBlock) -> bool {
        let bloom = &block.header.logs_bloom;
        let has = |raw: &[u8]| bloom.contains_input(BloomInput::Raw(raw));
        (self.addresses.is_empty() || self.addresses.iter().any(|address| has(address.as_slice())))
            && self
                .topics
                .iter()
                .all(|choice| choice.is_empty() || choice.iter().any(|topic| has(topic.as_slice())))
    }

    /// The wanted logs of one block; `None` when its body is gone.
    pub fn in_block(&self, block: &SimBlock) -> Option<Vec<Value>> {
        if !self.may_be_in(block) {
            return Some(Vec::new());
        }
        let body = block.body.as_ref()?;
        let found = body.receipts.iter().enumerate().flat_map(|(index, receipt)| {
            json::logs_of(block, body, index, receipt, |log| self.matches(log))
        });
        Some(found.collect())
    }

    /// What a reorg changed: the wanted logs of the blocks that are gone, marked as removed,
    /// before those of the fresh ones.
    pub fn in_move(&self, gone: &[Arc<SimBlock>], fresh: &[Arc<SimBlock>]) -> Vec<Value> {
        let of = |block: &Arc<SimBlock>| self.in_block(block).unwrap_or_default();
        let mut logs: Vec<Value> = gone.iter().flat_map(of).collect();
        for log in &mut logs {
            log["removed"] = true.into();
        }
        logs.extend(fresh.iter().flat_map(of));
        logs
    }
}

fn topic_choice(value: &Value) -> Result<Vec<B256>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        // A null inside a choice makes the whole position a wildcard.
        Value::Array(items) if items.iter().any(Value::is_null) => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(params::hash).collect(),
        one => Ok(vec![params::hash(one)?]),
    }
}

/// Answers `eth_getLogs`.
pub fn get_logs(asked: &CallContext<'_>, criteria: &Criteria) -> Result<Vec<Value>, RpcError> {
    let (from, to) = match criteria.span {
        LogRange::Block(hash) => {
            let block =
                asked.view.by_hash(&hash).ok_or_else(|| RpcError::server("unknown block"))?;
            asked.body(&block)?;
            return criteria.in_block(&block).ok_or_else(RpcError::pruned_history);
        }
        LogRange::Range(BlockSelector::Pending, _) | LogRange::Range(_, BlockSelector::Pending) => {
            return Err(RpcError::server("pending logs are not supported"));
        }
        LogRange::Range(from, to) => (asked.number_of(from), asked.number_of(to)),
    };
    let head = asked.view.head().number();
    if from > to {
        return Err(RpcError::invalid_params("invalid block range params"));
    }
    if let Some(most) = asked.facts.log_range_max
        && to - from >= most
    {
        let words = format!("exceed maximum block range: {most}");
        return Err(RpcError::server(words));
    }
    let mut found = Vec::new();
    for number in from..=to.min(head) {
        let block = asked.view.at(number).ok_or_else(RpcError::pruned_history)?;
        asked.body(&block)?;
        found.extend(criteria.in_block(&block).ok_or_else(RpcError::pruned_history)?);
        if found.len() > asked.facts.log_results_max {
            let words = format!(
                "query returned more than {} results. Try with this block range [{from:#x}, {:#x}].",
                asked.facts.log_results_max,
                number.saturating_sub(1).max(from)
            );
            return Err(RpcError::new(-32005, words));
        }
    }
    Ok(found)
}
