//! `eth_call` and `eth_estimateGas`: a message run on a copy of a block's state.

use alloy_primitives::{Address, Bytes, TxKind, U256};
use serde_json::Value;

use super::error::RpcError;
use super::params::{self, Params};
use crate::world::Contracts;
use crate::world::execute::{ExecutionError, Message, execute};
use crate::world::state::State;

/// Gas of a call that names none, as geth's default cap.
const CALL_GAS_MAX: u64 = 50_000_000;

/// A call object, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// What to run.
    pub message: Message,
    /// With at most so much gas.
    pub gas: u64,
}

impl CallRequest {
    /// Reads parameter 0.
    pub fn read(params: Params<'_>) -> Result<Self, RpcError> {
        let Value::Object(object) = params.required(0)? else {
            let why =
                "json: cannot unmarshal non-object into Go value of type ethapi.TransactionArgs";
            return Err(RpcError::invalid_argument(0, why));
        };
        let invalid = |why: String| RpcError::invalid_argument(0, &why);
        let field = |name: &str| object.get(name).filter(|value| !value.is_null());
        let bytes = |name: &str| field(name).map(params::bytes).transpose().map_err(invalid);
        let address = |name: &str| field(name).map(params::address).transpose().map_err(invalid);
        let input = match (bytes("input")?, bytes("data")?) {
            (Some(input), Some(data)) if input != data => {
                return Err(RpcError::server(
                    "both \"data\" and \"input\" are set and not equal. Please use \"input\" to pass transaction call data",
                ));
            }
            (Some(input), _) | (None, Some(input)) => input,
            (None, None) => Bytes::new(),
        };
        let gas = match field("gas").map(params::quantity).transpose().map_err(invalid)? {
            None | Some(0) => CALL_GAS_MAX,
            Some(gas) => gas.min(CALL_GAS_MAX),
        };
        let message = Message {
            from: address("from")?.unwrap_or(Address::ZERO),
            to: address("to")?.map_or(TxKind::Create, TxKind::Call),
            value: field("value")
                .map(params::big)
                .transpose()
                .map_err(invalid)?
                .unwrap_or_default(),
            input,
        };
        Ok(Self { message, gas })
    }

    /// The return data.
    pub fn call(&self, contracts: &Contracts, state: &State) -> Result<Bytes, RpcError> {
        let ran = execute(contracts, &mut state.clone(), &self.message, self.gas);
        ran.outcome.map_err(|failure| self.refusal(failure, state))
    }

    /// The gas it takes.
    pub fn estimate(&self, contracts: &Contracts, state: &State) -> Result<u64, RpcError> {
        let ran = execute(contracts, &mut state.clone(), &self.message, self.gas);
        match ran.outcome {
            Ok(_) => Ok(ran.gas_used),
            Err(ExecutionError::OutOfGas) => {
                Err(RpcError::server(format!("gas required exceeds allowance ({})", self.gas)))
            }
            Err(failure) => Err(self.refusal(failure, state)),
        }
    }

    fn refusal(&self, failure: ExecutionError, state: &State) -> RpcError {
        match failure {
            ExecutionError::Reverted(output) => RpcError::reverted(&output),
            ExecutionError::OutOfGas => RpcError::server("out of gas"),
            ExecutionError::InsufficientFunds => RpcError::server(format!(
                "insufficient funds for gas * price + value: address {} have {} want {}",
                self.message.from,
                state.balance(self.message.from),
                self.message.value
            )),
        }
    }
}

/// Applies the state overrides of parameter `index`: balances, nonces and single
/// storage words. Code cannot be overridden, as there is no EVM to run it.
pub fn overridden(state: &State, params: Params<'_>, index: usize) -> Result<State, RpcError> {
    let mut state = state.clone();
    let Some(Value::Object(accounts)) = params.optional(index) else { return Ok(state) };
    let invalid = |why: String| RpcError::invalid_argument(index, &why);
    for (address, changes) in accounts {
        let address = params::address(&Value::String(address.clone())).map_err(invalid)?;
        if changes.get("code").is_some_and(|code| !code.is_null()) {
            return Err(RpcError::server("code overrides are not simulated"));
        }
        if let Some(balance) = changes.get("balance") {
            state.account_mut(address).balance = params::big(balance).map_err(invalid)?;
        }
        if let Some(nonce) = changes.get("nonce") {
            state.account_mut(address).nonce = params::quantity(nonce).map_err(invalid)?;
        }
        if let Some(Value::Object(slots)) = changes.get("stateDiff") {
            for (slot, word) in slots {
                let slot = params::hash(&Value::String(slot.clone())).map_err(invalid)?;
                let word = params::hash(word).map_err(invalid)?;
                state.set_slot(address, slot, U256::from_be_bytes(word.0));
            }
        }
    }
    Ok(state)
}
