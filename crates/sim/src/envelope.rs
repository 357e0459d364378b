//! JSON-RPC envelopes: bodies taken apart, answers put together.
//!
//! With `serde_json`, for the reason at the head of this crate.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::rpc::RpcError;

/// One call as it came.
#[derive(Debug, Deserialize)]
pub(crate) struct WireCall<'a> {
    /// `Some` for an explicit null too: only a missing id makes a notification.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<String>,
    pub(crate) params: Option<Value>,
}

impl<'a> WireCall<'a> {
    /// The id as it goes into the answer: objects and arrays are none.
    pub(crate) fn told_id(&self) -> Option<&'a str> {
        self.id.map(RawValue::get).filter(|id| !id.starts_with(['{', '[']))
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A body, taken apart.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    Single(&'a RawValue),
    Batch(Vec<&'a RawValue>),
    NotJson,
}

/// Takes a body apart, no further than its items.
pub(crate) fn parse(body: &[u8]) -> Parsed<'_> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let parsed = match first {
        Some(b'[') => serde_json::from_slice(body).map(Parsed::Batch),
        _ => serde_json::from_slice(body).map(Parsed::Single),
    };
    parsed.unwrap_or(Parsed::NotJson)
}

/// Appends the answer to a call that went well.
pub(crate) fn write_result(out: &mut Vec<u8>, id: Option<&str>, result: &Value) {
    write_member(out, id, "result", result);
}

/// Appends the answer to a call that did not.
pub(crate) fn write_error(out: &mut Vec<u8>, id: Option<&str>, error: &RpcError) {
    write_member(out, id, "error", &error.to_json());
}

fn write_member(out: &mut Vec<u8>, id: Option<&str>, name: &str, value: &Value) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.unwrap_or("null").as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(&mut *out, value).expect("a JSON value can always be written to memory");
    out.push(b'}');
}
