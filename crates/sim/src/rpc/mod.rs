//! The JSON-RPC methods of a node, answered from one view of the world.
//!
//! A call is answered whole from one view, so that an answer never mixes two
//! heads. Envelopes, batches, faults and delays are the node's business
//! ([`crate::node`]); subscriptions are the socket's ([`crate::fake`]).

pub mod call;
pub mod error;
pub mod fee;
pub mod filter;
pub mod json;
pub mod logs;
pub mod params;

use std::sync::Arc;

use alloy_primitives::{Address, U256, keccak256};
use serde_json::{Value, json};

pub use self::error::RpcError;
pub use self::filter::Filters;
pub use self::params::{BlockSelector, Params};

use self::call::CallRequest;
use self::filter::Wanted;
use self::json::{big, quantity};
use crate::world::block::{BlockBody, SimBlock};
use crate::world::state::State;
use crate::world::{BranchView, World};

/// How much of the past a node keeps. `None` means as much as the world does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Newest blocks whose state can be asked.
    pub state_blocks: Option<u64>,
    /// Newest blocks whose body, receipts and logs are there.
    pub body_blocks: Option<u64>,
}

/// What a node says that is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Balances are one wei too high.
    WrongBalance,
    /// No log was ever written.
    EmptyLogs,
    /// Blocks, transactions and receipts are null.
    NullBlocks,
}

/// What the hash of a block means to a node that is asked for a state at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashMeans {
    /// That block.
    #[default]
    Block,
    /// The block that stands at its height, as anvil has it.
    Height,
    /// The newest block, where there is none of that hash.
    LatestIfUnknown,
}

/// What a node is and tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `web3_clientVersion`.
    pub client_version: String,
    /// `eth_chainId` and `net_version`; another than the world's on a miswired upstream.
    pub chain_id: u64,
    /// Whether `eth_syncing` says so.
    pub syncing: bool,
    /// What of the past is kept.
    pub history: History,
    /// Most blocks in one `eth_getLogs`.
    pub log_range_max: Option<u64>,
    /// Most logs in one answer.
    pub log_results_max: usize,
    /// Refuse a log range that ends above the head, as newer geths do, rather
    /// than silently search less.
    pub strict_log_range: bool,
    /// Refuse a block by its hash where a state is asked for, as what is older than EIP-1898 does.
    pub heights_only: bool,
    /// What a block's hash means where a state is asked for.
    pub hash_means: HashMeans,
    /// Methods answered as unknown: names, or a prefix with `*` at the end.
    pub unsupported: Vec<String>,
    /// What to be wrong about.
    pub lie: Option<Lie>,
}

/// One call's world.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// For the pool and the contracts.
    pub world: &'a World,
    /// The chain as this node sees it.
    pub view: BranchView<'a>,
    /// What the node is.
    pub facts: &'a Facts,
    /// The node's filters.
    pub filters: &'a mut Filters,
}

/// Answers one call.
pub fn answer(
    asked: &mut CallContext<'_>,
    method: &str,
    params: Option<&Value>,
) -> Result<Value, RpcError> {
    if asked.facts.unsupported.iter().any(|name| is_named(name, method)) {
        return Err(RpcError::no_method(method));
    }
    let params = Params::new(params)?;
    let honest = if let Some(namespace) = method.strip_prefix("eth_") {
        eth(asked, namespace, method, params)
    } else {
        other(asked, method, params)
    }?;
    Ok(bent(asked.facts.lie, method, honest))
}

/// Whether `name`, a method or a prefix with `*` at the end, means this method.
pub(crate) fn is_named(name: &str, method: &str) -> bool {
    match name.strip_suffix('*') {
        Some(prefix) => method.starts_with(prefix),
        None => name == method,
    }
}

fn bent(lie: Option<Lie>, method: &str, honest: Value) -> Value {
    match (lie, method) {
        (Some(Lie::WrongBalance), "eth_getBalance") => {
            let balance = params::big(&honest).unwrap_or_default();
            big(balance.wrapping_add(U256::ONE))
        }
        (Some(Lie::EmptyLogs), "eth_getLogs") => json!([]),
        (
            Some(Lie::NullBlocks),
            "eth_getBlockByNumber"
            | "eth_getBlockByHash"
            | "eth_getTransactionByHash"
            | "eth_getTransactionReceipt"
            | "eth_getBlockReceipts",
        ) => Value::Null,
        _ => honest,
    }
}

fn other(asked: &CallContext<'_>, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
    match method {
        "net_version" => Ok(json!(asked.facts.chain_id.to_string())),
        "net_listening" => Ok(json!(true)),
        "net_peerCount" => Ok(quantity(50)),
        "web3_clientVersion" => Ok(json!(asked.facts.client_version)),
        "web3_sha3" => Ok(json!(keccak256(params.at_most(1)?.bytes(0)?))),
        "txpool_status" => {
            let (pending, queued) = asked.world.pool_counts_on(asked.view.chain());
            Ok(json!({"pending": quantity(pending), "queued": quantity(queued)}))
        }
        "rpc_modules" => {
            Ok(json!({"eth": "1.0", "net": "1.0", "rpc": "1.0", "txpool": "1.0", "web3": "1.0"}))
        }
        _ => Err(RpcError::no_method(method)),
    }
}

/// Facts about the node and its head, and what is sent. The functions that follow take the other
/// methods of the namespace, each a group of them.
fn eth(
    asked: &mut CallContext<'_>,
    name: &str,
    method: &str,
    params: Params<'_>,
) -> Result<Value, RpcError> {
    match name {
        "chainId" => Ok(quantity(asked.facts.chain_id)),
        "blockNumber" => Ok(quantity(params.at_most(0).map(|_| asked.view.head().number())?)),
        "syncing" => Ok(syncing(asked)),
        "accounts" => Ok(json!([])),
        "gasPrice" => {
            let head = asked.view.head();
            Ok(big(U256::from(u128::from(head.header.base_fee) + fee::suggested_tip(head))))
        }
        "maxPriorityFeePerGas" => Ok(big(U256::from(fee::suggested_tip(asked.view.head())))),
        "blobBaseFee" => Ok(quantity(1)),
        "feeHistory" => fee::history(asked, params.at_most(3)?),
        "sendRawTransaction" => {
            let raw = params.at_most(1)?.bytes(0)?;
            let sent = asked.world.submit_on(asked.view.chain(), &raw);
            sent.map(|hash| json!(hash)).map_err(|error| RpcError::server(error.to_string()))
        }
        "sendTransaction" | "sign" | "signTransaction" => Err(RpcError::server("unknown account")),
        "subscribe" | "unsubscribe" => Err(RpcError::new(-32601, "notifications not supported")),
        _ => eth_state(asked, name, method, params),
    }
}

/// Methods that need the state after a block.
fn eth_state(
    asked: &mut CallContext<'_>,
    name: &str,
    method: &str,
    params: Params<'_>,
) -> Result<Value, RpcError> {
    match name {
        "getBalance" => {
            let (address, state) = account_at(asked, params)?;
            Ok(big(state.balance(address)))
        }
        "getCode" => {
            let (address, state) = account_at(asked, params)?;
            Ok(json!(state.code(address)))
        }
        "getTransactionCount" => {
            let (address, state) = account_at(asked, params)?;
            let pending = params.point(1)? == Some(BlockSelector::Pending);
            Ok(quantity(match pending {
                true => asked.world.pending_nonce(&state, address),
                false => state.nonce(address),
            }))
        }
        "getStorageAt" => {
            let params = params.at_most(3)?;
            let (address, slot) = (params.address(0)?, params.slot(1)?);
            let state = asked.state(params.point(2)?.unwrap_or(BlockSelector::Latest))?;
            Ok(json!(alloy_primitives::B256::from(state.slot(address, slot))))
        }
        "call" => {
            let (request, state) = call_at(asked, params)?;
            Ok(json!(request.call(asked.world.contracts(), &state)?))
        }
        "estimateGas" => {
            let (request, state) = call_at(asked, params)?;
            Ok(quantity(request.estimate(asked.world.contracts(), &state)?))
        }
        "createAccessList" => {
            let request = CallRequest::read(params.at_most(3)?)?;
            let state = asked.state(params.point(1)?.unwrap_or(BlockSelector::Latest))?;
            let gas = request.estimate(asked.world.contracts(), &state)?;
            Ok(json!({"accessList": [], "gasUsed": quantity(gas)}))
        }
        _ => eth_logs(asked, name, method, params),
    }
}

/// Searches for logs, and filters.
fn eth_logs(
    asked: &mut CallContext<'_>,
    name: &str,
    method: &str,
    params: Params<'_>,
) -> Result<Value, RpcError> {
    match name {
        "getLogs" => {
            let criteria = logs::Criteria::read(params.at_most(1)?.required(0)?)?;
            logs::get_logs(asked, &criteria).map(Value::Array)
        }
        "newFilter" => {
            let criteria = logs::Criteria::read(params.at_most(1)?.required(0)?)?;
            Ok(filter::install(asked, Wanted::Logs(criteria)))
        }
        "newBlockFilter" => Ok(filter::install(asked, Wanted::Blocks)),
        "newPendingTransactionFilter" => Ok(filter::install(asked, Wanted::Pending)),
        "getFilterChanges" => filter::changes(asked, filter_id(params)?),
        "getFilterLogs" => filter::all_logs(asked, filter_id(params)?),
        "uninstallFilter" => Ok(json!(filter::uninstall(asked, filter_id(params)?))),
        _ => eth_blocks(asked, name, method, params),
    }
}

/// Blocks, and what they hold.
fn eth_blocks(
    asked: &CallContext<'_>,
    name: &str,
    method: &str,
    params: Params<'_>,
) -> Result<Value, RpcError> {
    match name {
        "getBlockByNumber" => {
            let (point, whole) = (params.at_most(2)?.height(0)?, params.flag(1)?);
            let Some(block) = asked.block(point)? else { return Ok(Value::Null) };
            let answer = json::block(&block, asked.body(&block)?, whole);
            Ok(if point == BlockSelector::Pending { as_pending(&block, answer) } else { answer })
        }
        "getBlockByHash" => {
            let (hash, whole) = (params.at_most(2)?.hash(0)?, params.flag(1)?);
            let Some(block) = asked.view.by_hash(&hash) else { return Ok(Value::Null) };
            Ok(json::block(&block, asked.body(&block)?, whole))
        }
        "getHeaderByNumber" | "getHeaderByHash" => Ok(asked
            .block_by(name, params.at_most(1)?)?
            .map_or(Value::Null, |block| json::header(&block.header, block.hash))),
        "getBlockTransactionCountByNumber" | "getBlockTransactionCountByHash" => {
            let Some(block) = asked.block_by(name, params.at_most(1)?)? else {
                return Ok(Value::Null);
            };
            Ok(quantity(asked.body(&block)?.txs.len() as u64))
        }
        "getUncleCountByBlockNumber" | "getUncleCountByBlockHash" => {
            Ok(asked.block_by(name, params.at_most(1)?)?.map_or(Value::Null, |_| quantity(0)))
        }
        "getUncleByBlockNumberAndIndex" | "getUncleByBlockHashAndIndex" => {
            asked.block_by(name, params.at_most(2)?)?;
            Ok(Value::Null)
        }
        "getTransactionByBlockNumberAndIndex" | "getTransactionByBlockHashAndIndex" => {
            let block = asked.block_by(name, params.at_most(2)?)?;
            let index = usize::try_from(params.quantity(1)?).unwrap_or(usize::MAX);
            let Some(block) = block else { return Ok(Value::Null) };
            let body = asked.body(&block)?;
            Ok(match body.txs.get(index) {
                Some(_) => json::mined_tx(&block, body, index),
                None => Value::Null,
            })
        }
        "getBlockReceipts" => {
            let point = params.at_most(1)?.point(0)?;
            let point = point
                .ok_or_else(|| RpcError::invalid_params("missing value for required argument 0"))?;
            let Some(block) = asked.block(point)? else { return Ok(Value::Null) };
            let body = asked.body(&block)?;
            Ok((0..body.txs.len()).map(|index| json::receipt(&block, body, index)).collect())
        }
        _ => eth_transactions(asked, name, method, params),
    }
}

/// Transactions by their hash.
fn eth_transactions(
    asked: &CallContext<'_>,
    name: &str,
    method: &str,
    params: Params<'_>,
) -> Result<Value, RpcError> {
    match name {
        "getTransactionByHash" => {
            let hash = params.at_most(1)?.hash(0)?;
            Ok(match asked.mined(&hash) {
                Some((block, index)) => match &block.body {
                    Some(body) => json::mined_tx(&block, body, index),
                    None => Value::Null,
                },
                None => asked.world.waiting(&hash).map_or(Value::Null, |tx| json::waiting_tx(&tx)),
            })
        }
        "getRawTransactionByHash" => {
            let hash = params.at_most(1)?.hash(0)?;
            let mined = asked.mined(&hash).and_then(|(block, index)| {
                block.body.as_ref().map(|body| Arc::clone(&body.txs[index]))
            });
            let found = mined.or_else(|| asked.world.waiting(&hash));
            Ok(found.map_or(json!("0x"), |tx| json!(tx.raw)))
        }
        "getTransactionReceipt" => {
            let hash = params.at_most(1)?.hash(0)?;
            let Some((block, index)) = asked.mined(&hash) else { return Ok(Value::Null) };
            Ok(match &block.body {
                Some(body) => json::receipt(&block, body, index),
                None => Value::Null,
            })
        }
        _ => Err(RpcError::no_method(method)),
    }
}

impl CallContext<'_> {
    /// The height a tag or number means here. A hash means nothing to its callers: 0.
    pub(crate) fn number_of(&self, point: BlockSelector) -> u64 {
        let head = self.view.head().number();
        let config = self.world.config();
        match point {
            BlockSelector::Number(number) => number,
            BlockSelector::Earliest | BlockSelector::Hash { .. } => 0,
            BlockSelector::Latest | BlockSelector::Pending => head,
            BlockSelector::Safe => head.saturating_sub(config.safe_distance),
            BlockSelector::Finalized => head.saturating_sub(config.finalized_distance),
        }
    }

    /// The block, `None` when it does not exist for this node.
    fn block(&self, point: BlockSelector) -> Result<Option<Arc<SimBlock>>, RpcError> {
        match point {
            BlockSelector::Hash { hash, require_canonical } => {
                let block = self.view.by_hash(&hash);
                if let Some(block) = &block
                    && require_canonical
                    && !self.view.is_ancestor(block)
                {
                    return Err(RpcError::server("hash is not currently canonical"));
                }
                Ok(block)
            }
            point => {
                let number = self.number_of(point);
                match self.view.at(number) {
                    None if number <= self.view.head().number() => Err(RpcError::pruned_history()),
                    block => Ok(block),
                }
            }
        }
    }

    /// By the hash or number in parameter 0, as the method's name says.
    fn block_by(&self, name: &str, params: Params<'_>) -> Result<Option<Arc<SimBlock>>, RpcError> {
        if name.contains("Hash") {
            Ok(self.view.by_hash(&params.hash(0)?))
        } else {
            self.block(params.height(0)?)
        }
    }

    /// The body, when this node still has it.
    pub(crate) fn body<'b>(&self, block: &'b SimBlock) -> Result<&'b BlockBody, RpcError> {
        if self.is_older(block, self.facts.history.body_blocks) {
            return Err(RpcError::pruned_history());
        }
        block.body.as_ref().ok_or_else(RpcError::pruned_history)
    }

    /// The state after a block, when this node still has it.
    fn state(&self, point: BlockSelector) -> Result<State, RpcError> {
        if self.facts.heights_only && matches!(point, BlockSelector::Hash { .. }) {
            let why = "json: cannot unmarshal object into Go value of type string";
            return Err(RpcError::invalid_argument(1, why));
        }
        let point = self.meant(point);
        let block = self.block(point)?.ok_or_else(|| match point {
            BlockSelector::Hash { .. } => RpcError::server("header for hash not found"),
            _ => RpcError::server("header not found"),
        })?;
        let kept = !self.is_older(&block, self.facts.history.state_blocks);
        block.state.clone().filter(|_| kept).ok_or_else(|| {
            let root = block.header.state_root;
            RpcError::server(format!(
                "missing trie node {root:x} (path ) state {root} is not available, not found"
            ))
        })
    }

    /// The block that a hash means to this node.
    fn meant(&self, point: BlockSelector) -> BlockSelector {
        let BlockSelector::Hash { hash, .. } = point else { return point };
        match (self.facts.hash_means, self.view.by_hash(&hash)) {
            (HashMeans::Height, Some(block)) => BlockSelector::Number(block.number()),
            (HashMeans::LatestIfUnknown, None) => BlockSelector::Latest,
            (HashMeans::Block | HashMeans::Height | HashMeans::LatestIfUnknown, _) => point,
        }
    }

    fn is_older(&self, block: &SimBlock, kept: Option<u64>) -> bool {
        let age = self.view.head().number().saturating_sub(block.number());
        kept.is_some_and(|kept| age >= kept)
    }

    fn mined(&self, hash: &alloy_primitives::B256) -> Option<(Arc<SimBlock>, usize)> {
        let (block, index) = self.view.tx(hash)?;
        (!self.is_older(&block, self.facts.history.body_blocks)).then_some((block, index))
    }
}

fn account_at(asked: &CallContext<'_>, params: Params<'_>) -> Result<(Address, State), RpcError> {
    let address = params.at_most(2)?.address(0)?;
    let state = asked.state(params.point(1)?.unwrap_or(BlockSelector::Latest))?;
    Ok((address, state))
}

/// A call, and the state that it runs on: that of its block, with what it overrides.
fn call_at(asked: &CallContext<'_>, params: Params<'_>) -> Result<(CallRequest, State), RpcError> {
    let params = params.at_most(4)?;
    let request = CallRequest::read(params)?;
    let state = asked.state(params.point(1)?.unwrap_or(BlockSelector::Latest))?;
    Ok((request, call::overridden(&state, params, 2)?))
}

fn filter_id(params: Params<'_>) -> Result<&str, RpcError> {
    let value = params.at_most(1)?.required(0)?;
    value.as_str().ok_or_else(|| RpcError::invalid_argument(0, "invalid ID"))
}

fn syncing(asked: &CallContext<'_>) -> Value {
    if !asked.facts.syncing {
        return json!(false);
    }
    let highest = asked.view.chain().head().number();
    json!({
        "startingBlock": "0x0",
        "currentBlock": quantity(asked.view.head().number()),
        "highestBlock": quantity(highest + 1),
    })
}

/// The newest block dressed as the one being made: next height, no hash yet, nothing inside.
fn as_pending(head: &SimBlock, mut answer: Value) -> Value {
    answer["number"] = quantity(head.number() + 1);
    answer["parentHash"] = json!(head.hash);
    answer["baseFeePerGas"] = quantity(head.header.next_base_fee());
    answer["transactions"] = json!([]);
    answer["gasUsed"] = quantity(0);
    for unknown in ["hash", "nonce", "miner"] {
        answer[unknown] = Value::Null;
    }
    answer
}
