//! What a message or a transaction does to the state, and what it costs.
//!
//! Gas is a plausible sum and never depends on the limit, so that an estimate
//! is exact. Which transactions go into a block is decided in `build`.

use alloy_consensus::Transaction;
use alloy_primitives::{Address, B256, Bytes, Log, TxKind, U256, keccak256};

use super::contract::{Contracts, Ran};
use super::state::State;
use super::tx::Tx;

/// Gas of any transaction.
pub const BASE_GAS: u64 = 21_000;
/// Further gas of one that makes a contract.
const CREATE_GAS: u64 = 32_000;

/// A call without its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The caller.
    pub from: Address,
    /// The callee, or a new contract.
    pub to: TxKind,
    /// Wei that goes along.
    pub value: U256,
    /// Calldata.
    pub input: Bytes,
}

/// Why a message had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionError {
    /// The contract reverted with this data.
    Reverted(Bytes),
    /// More gas was needed than allowed.
    OutOfGas,
    /// The caller cannot pay the value.
    InsufficientFunds,
}

/// What a message did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Return data, or why there was no effect.
    pub outcome: Result<Bytes, ExecutionError>,
    /// Gas used, intrinsic gas included.
    pub gas_used: u64,
    /// Logs left; none on failure.
    pub logs: Vec<Log>,
    /// The contract made.
    pub contract: Option<Address>,
}

/// Gas before anything runs.
pub fn intrinsic_gas(to: TxKind, input: &[u8]) -> u64 {
    let data: u64 = input.iter().map(|byte| if *byte == 0 { 4 } else { 16 }).sum();
    let create = if to.is_create() { CREATE_GAS } else { 0 };
    BASE_GAS + create + data
}

/// Runs `message` on `state`. On failure the state is as before.
pub fn execute(
    contracts: &Contracts,
    state: &mut State,
    message: &Message,
    gas_limit: u64,
) -> Executed {
    let before = state.clone();
    let mut executed = attempt(contracts, state, message);
    if executed.gas_used > gas_limit {
        executed = Executed::failed(ExecutionError::OutOfGas, gas_limit);
    }
    if executed.outcome.is_err() {
        *state = before;
    }
    executed
}

/// Runs a transaction with nonce and fees. The caller has checked that the
/// nonce is next and the sender can pay.
pub fn apply(
    contracts: &Contracts,
    state: &mut State,
    tx: &Tx,
    base_fee: u64,
    miner: Address,
) -> Executed {
    state.account_mut(tx.from).nonce += 1;
    let message = Message {
        from: tx.from,
        to: tx.envelope.kind(),
        value: tx.envelope.value(),
        input: tx.envelope.input().clone(),
    };
    let executed = execute(contracts, state, &message, tx.envelope.gas_limit());
    let gas = U256::from(executed.gas_used);
    let fee = gas * U256::from(tx.envelope.effective_gas_price(Some(base_fee)));
    let tip = gas * U256::from(tx.envelope.effective_tip_per_gas(base_fee).unwrap_or_default());
    let sender = state.account_mut(tx.from);
    sender.balance = sender.balance.saturating_sub(fee);
    state.account_mut(miner).balance += tip;
    executed
}

/// Most wei `tx` can take from its sender.
pub fn cost_max(tx: &Tx) -> U256 {
    U256::from(tx.envelope.max_fee_per_gas())
        .saturating_mul(U256::from(tx.envelope.gas_limit()))
        .saturating_add(tx.envelope.value())
}

fn attempt(contracts: &Contracts, state: &mut State, message: &Message) -> Executed {
    let intrinsic = intrinsic_gas(message.to, &message.input);
    let Some(left) = state.balance(message.from).checked_sub(message.value) else {
        return Executed::failed(ExecutionError::InsufficientFunds, intrinsic);
    };
    let TxKind::Call(to) = message.to else {
        return create(state, message, left, intrinsic);
    };
    if !message.value.is_zero() {
        state.account_mut(message.from).balance = left;
        state.account_mut(to).balance += message.value;
    }
    match contracts.run(state, message.from, to, &message.input) {
        None => Executed {
            outcome: Ok(Bytes::new()),
            gas_used: intrinsic,
            logs: Vec::new(),
            contract: None,
        },
        Some(Ran::Done { output, logs, gas }) => {
            Executed { outcome: Ok(output.into()), gas_used: intrinsic + gas, logs, contract: None }
        }
        Some(Ran::Reverted { output, gas }) => {
            Executed::failed(ExecutionError::Reverted(output.into()), intrinsic + gas)
        }
    }
}

/// Without an EVM the init code is kept as the code: enough for `eth_getCode` to be non-empty.
fn create(state: &mut State, message: &Message, left: U256, intrinsic: u64) -> Executed {
    // The nonce has already been counted up for a transaction; CREATE uses the one before.
    let nonce = state.nonce(message.from).saturating_sub(1);
    let address = message.from.create(nonce);
    state.account_mut(message.from).balance = left;
    let account = state.account_mut(address);
    account.balance += message.value;
    account.nonce = 1;
    account.code = message.input.clone();
    Executed {
        outcome: Ok(message.input.clone()),
        gas_used: intrinsic + 200 * message.input.len() as u64,
        logs: Vec::new(),
        contract: Some(address),
    }
}

impl Executed {
    fn failed(failure: ExecutionError, gas_used: u64) -> Self {
        Self { outcome: Err(failure), gas_used, logs: Vec::new(), contract: None }
    }
}

/// A hash that differs when the state does: chained over the blocks' changes.
pub fn chain_state_root(parent_root: B256, transactions_root: B256, receipts_root: B256) -> B256 {
    keccak256([parent_root.0, transactions_root.0, receipts_root.0].concat())
}
