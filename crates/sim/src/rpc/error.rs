//! JSON-RPC errors in geth's words and codes.

use alloy_primitives::Bytes;
use serde_json::{Value, json};

use crate::world::abi;

/// An error object.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// JSON-RPC code.
    pub code: i64,
    /// For people.
    pub message: String,
    /// Revert data, mostly.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// geth's code for everything that has no code of its own.
    pub fn server(message: impl Into<String>) -> Self {
        Self::new(-32000, message)
    }

    /// A parameter that cannot be read.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// Parameter `index` cannot be read, for this reason.
    pub fn invalid_argument(index: usize, why: &str) -> Self {
        Self::invalid_params(format!("invalid argument {index}: {why}"))
    }

    /// No such method here.
    pub fn no_method(method: &str) -> Self {
        Self::new(-32601, format!("the method {method} does not exist/is not available"))
    }

    /// A contract reverted.
    pub fn reverted(output: &Bytes) -> Self {
        let message = match abi::reason_of(output) {
            Some(reason) => format!("execution reverted: {reason}"),
            None => "execution reverted".to_owned(),
        };
        Self { code: 3, message, data: Some(json!(output.to_string())) }
    }

    /// The block's body is gone (EIP-4444).
    pub fn pruned_history() -> Self {
        Self::new(4444, "pruned history unavailable")
    }

    /// As the JSON of an `error` member.
    pub fn to_json(&self) -> Value {
        match &self.data {
            Some(data) => json!({"code": self.code, "message": self.message, "data": data}),
            None => json!({"code": self.code, "message": self.message}),
        }
    }
}
