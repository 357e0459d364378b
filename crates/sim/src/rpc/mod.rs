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

use alloy_primitives::{Address, B256, U256, keccak256};
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
    /// Refuse a block by its hash where a state is asked for, as what is older than EIP-1898 does.
    pub heights_only: bool,
    /// What a block's hash means where a state is asked for.
    pub hash_means: HashMeans,
    /// Methods answered as unknown: names, or a prefix with `*` at the end.
    pub unsupported: Vec<String>,
    /// Says that no log was ever written.
    pub hides_logs: bool,
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
    asked.node(method, Params::new(params)?)
}

/// Whether `name`, a method or a prefix with `*` at the end, means this method.
pub(crate) fn is_named(name: &str, method: &str) -> bool {
    match name.strip_suffix('*') {
        Some(prefix) => method.starts_with(prefix),
        None => name == method,
    }
}

/// The methods, a function for each group of them.
impl CallContext<'_> {
    /// Facts about the node, and what is sent to it.
    fn node(&mut self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "net_version" => Ok(json!(self.facts.chain_id.to_string())),
            "net_listening" => Ok(json!(true)),
            "net_peerCount" => Ok(quantity(50)),
            "web3_clientVersion" => Ok(json!(self.facts.client_version)),
            "web3_sha3" => Ok(json!(keccak256(params.at_most(1)?.bytes(0)?))),
            "txpool_status" => {
                let (pending, queued) = self.world.pool_counts_on(self.view.chain());
                Ok(json!({"pending": quantity(pending), "queued": quantity(queued)}))
            }
            "rpc_modules" => Ok(
                json!({"eth": "1.0", "net": "1.0", "rpc": "1.0", "txpool": "1.0", "web3": "1.0"}),
            ),
            "eth_chainId" => Ok(quantity(self.facts.chain_id)),
            "eth_syncing" => Ok(self.syncing()),
            "eth_accounts" => Ok(json!([])),
            "eth_sendRawTransaction" => {
                let raw = params.at_most(1)?.bytes(0)?;
                let sent = self.world.submit_on(self.view.chain(), &raw);
                sent.map(|hash| json!(hash)).map_err(|error| RpcError::server(error.to_string()))
            }
            "eth_sendTransaction" | "eth_sign" | "eth_signTransaction" => {
                Err(RpcError::server("unknown account"))
            }
            "eth_subscribe" | "eth_unsubscribe" => {
                Err(RpcError::new(-32601, "notifications not supported"))
            }
            _ => self.at_head(method, params),
        }
    }

    /// The head, and fees.
    fn at_head(&mut self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let head = self.view.head();
        match method {
            "eth_blockNumber" => Ok(quantity(params.at_most(0).map(|_| head.number())?)),
            "eth_gasPrice" => {
                Ok(big(U256::from(u128::from(head.base_fee()) + fee::suggested_tip(head))))
            }
            "eth_maxPriorityFeePerGas" => Ok(big(U256::from(fee::suggested_tip(head)))),
            "eth_blobBaseFee" => Ok(quantity(1)),
            "eth_feeHistory" => fee::history(self, params.at_most(3)?),
            _ => self.of_state(method, params),
        }
    }

    /// What needs the state after a block.
    fn of_state(&mut self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "eth_getBalance" => {
                let (address, state) = self.account_at(params)?;
                Ok(big(state.balance(address)))
            }
            "eth_getCode" => {
                let (address, state) = self.account_at(params)?;
                Ok(json!(state.code(address)))
            }
            "eth_getTransactionCount" => {
                let (address, state) = self.account_at(params)?;
                let pending = params.point(1)? == Some(BlockSelector::Pending);
                Ok(quantity(match pending {
                    true => self.world.pending_nonce(&state, address),
                    false => state.nonce(address),
                }))
            }
            "eth_getStorageAt" => {
                let params = params.at_most(3)?;
                let (address, slot) = (params.address(0)?, params.slot(1)?);
                Ok(json!(B256::from(self.state_at(params, 2)?.slot(address, slot))))
            }
            "eth_call" => {
                let (request, state) = self.call_at(params)?;
                Ok(json!(request.call(self.world.contracts(), &state)?))
            }
            "eth_estimateGas" => {
                let (request, state) = self.call_at(params)?;
                Ok(quantity(request.estimate(self.world.contracts(), &state)?))
            }
            "eth_createAccessList" => {
                let request = CallRequest::read(params.at_most(3)?)?;
                let gas = request.estimate(self.world.contracts(), &self.state_at(params, 1)?)?;
                Ok(json!({"accessList": [], "gasUsed": quantity(gas)}))
            }
            _ => self.of_logs(method, params),
        }
    }

    /// Searches for logs, and filters.
    fn of_logs(&mut self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "eth_getLogs" => {
                let criteria = logs::Criteria::read(params.at_most(1)?.required(0)?)?;
                let found = logs::get_logs(self, &criteria)?;
                Ok(if self.facts.hides_logs { json!([]) } else { Value::Array(found) })
            }
            "eth_newFilter" => {
                let criteria = logs::Criteria::read(params.at_most(1)?.required(0)?)?;
                Ok(filter::install(self, Wanted::Logs(criteria)))
            }
            "eth_newBlockFilter" => Ok(filter::install(self, Wanted::Blocks)),
            "eth_newPendingTransactionFilter" => Ok(filter::install(self, Wanted::Pending)),
            "eth_getFilterChanges" => filter::changes(self, filter_id(params)?),
            "eth_getFilterLogs" => filter::all_logs(self, filter_id(params)?),
            "eth_uninstallFilter" => Ok(json!(filter::uninstall(self, filter_id(params)?))),
            _ => self.of_blocks(method, params),
        }
    }

    /// Blocks, and what they hold.
    fn of_blocks(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "eth_getBlockByNumber" => {
                let (point, whole) = (params.at_most(2)?.height(0)?, params.flag(1)?);
                let Some(block) = self.block(point)? else { return Ok(Value::Null) };
                let answer = json::block(&block, self.body(&block)?, whole);
                Ok(match point {
                    BlockSelector::Pending => as_pending(&block, answer),
                    _ => answer,
                })
            }
            "eth_getBlockByHash" => {
                let (hash, whole) = (params.at_most(2)?.hash(0)?, params.flag(1)?);
                let Some(block) = self.view.by_hash(&hash) else { return Ok(Value::Null) };
                Ok(json::block(&block, self.body(&block)?, whole))
            }
            "eth_getHeaderByNumber" | "eth_getHeaderByHash" => Ok(self
                .block_by(method, params.at_most(1)?)?
                .map_or(Value::Null, |block| json::header(&block.header, block.hash))),
            "eth_getBlockTransactionCountByNumber" | "eth_getBlockTransactionCountByHash" => {
                let Some(block) = self.block_by(method, params.at_most(1)?)? else {
                    return Ok(Value::Null);
                };
                Ok(quantity(self.body(&block)?.txs.len() as u64))
            }
            "eth_getUncleCountByBlockNumber" | "eth_getUncleCountByBlockHash" => {
                Ok(self.block_by(method, params.at_most(1)?)?.map_or(Value::Null, |_| quantity(0)))
            }
            "eth_getUncleByBlockNumberAndIndex" | "eth_getUncleByBlockHashAndIndex" => {
                self.block_by(method, params.at_most(2)?)?;
                Ok(Value::Null)
            }
            "eth_getTransactionByBlockNumberAndIndex" | "eth_getTransactionByBlockHashAndIndex" => {
                let block = self.block_by(method, params.at_most(2)?)?;
                let index = usize::try_from(params.quantity(1)?).unwrap_or(usize::MAX);
                let Some(block) = block else { return Ok(Value::Null) };
                let body = self.body(&block)?;
                Ok(match body.txs.get(index) {
                    Some(_) => json::mined_tx(&block, body, index),
                    None => Value::Null,
                })
            }
            "eth_getBlockReceipts" => {
                params.at_most(1)?.required(0)?;
                let Some(block) = self.block(params.point_or_latest(0)?)? else {
                    return Ok(Value::Null);
                };
                let body = self.body(&block)?;
                Ok((0..body.txs.len()).map(|index| json::receipt(&block, body, index)).collect())
            }
            _ => self.of_transactions(method, params),
        }
    }

    /// Transactions by their hash.
    fn of_transactions(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let hash = || params.at_most(1)?.hash(0);
        match method {
            "eth_getTransactionByHash" => {
                let hash = hash()?;
                let waiting = || self.world.waiting(&hash).map(|tx| json::waiting_tx(&tx));
                Ok(self.mined(&hash, json::mined_tx).or_else(waiting).unwrap_or_default())
            }
            "eth_getRawTransactionByHash" => {
                let hash = hash()?;
                let waiting = || self.world.waiting(&hash).map(|tx| json!(tx.raw));
                let mined = self.mined(&hash, |_, body, index| json!(body.txs[index].raw));
                Ok(mined.or_else(waiting).unwrap_or_else(|| json!("0x")))
            }
            "eth_getTransactionReceipt" => {
                Ok(self.mined(&hash()?, json::receipt).unwrap_or_default())
            }
            _ => Err(RpcError::no_method(method)),
        }
    }

    fn account_at(&self, params: Params<'_>) -> Result<(Address, State), RpcError> {
        let address = params.at_most(2)?.address(0)?;
        Ok((address, self.state_at(params, 1)?))
    }

    /// A call, and the state that it runs on: that of its block, with what it overrides.
    fn call_at(&self, params: Params<'_>) -> Result<(CallRequest, State), RpcError> {
        let request = CallRequest::read(params.at_most(4)?)?;
        let state = self.state_at(params, 1)?;
        Ok((request, call::overridden(&state, params, 2)?))
    }

    /// The state after the block that the parameter at `index` names.
    fn state_at(&self, params: Params<'_>, index: usize) -> Result<State, RpcError> {
        self.state(params.point_or_latest(index)?)
    }

    fn syncing(&self) -> Value {
        if !self.facts.syncing {
            return json!(false);
        }
        let highest = self.view.chain().head().number();
        json!({
            "startingBlock": "0x0",
            "currentBlock": quantity(self.view.head().number()),
            "highestBlock": quantity(highest + 1),
        })
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

    /// A mined transaction in this form, when this node still has it.
    fn mined(
        &self,
        hash: &B256,
        form: impl FnOnce(&SimBlock, &BlockBody, usize) -> Value,
    ) -> Option<Value> {
        let (block, index) = self.view.tx(hash)?;
        Some(form(&block, self.body(&block).ok()?, index))
    }
}

fn filter_id(params: Params<'_>) -> Result<&str, RpcError> {
    let value = params.at_most(1)?.required(0)?;
    value.as_str().ok_or_else(|| RpcError::invalid_argument(0, "invalid ID"))
}

/// The newest block dressed as the one being made: next height, no hash yet, nothing inside.
fn as_pending(head: &SimBlock, mut answer: Value) -> Value {
    answer["number"] = quantity(head.number() + 1);
    answer["parentHash"] = json!(head.hash);
    answer["baseFeePerGas"] = quantity(head.next_base_fee());
    answer["transactions"] = json!([]);
    answer["gasUsed"] = quantity(0);
    for unknown in ["hash", "nonce", "miner"] {
        answer[unknown] = Value::Null;
    }
    answer
}
