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
    method: Option<String>,
    pub(crate) params: Option<Value>,
}

impl<'a> WireCall<'a> {
    pub(crate) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or_default()
    }

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
pub(crate) struct RequestBody<'a> {
    pub(crate) items: Vec<RequestItem<'a>>,
    pub(crate) is_batch: bool,
}

#[derive(Debug)]
pub(crate) enum RequestItem<'a> {
    Call(WireCall<'a>),
    /// JSON, and no call; its id, if it has one.
    Odd(Option<&'a str>),
    NotJson,
}

impl<'a> RequestItem<'a> {
    fn read(item: &'a RawValue) -> Self {
        match serde_json::from_str::<WireCall<'a>>(item.get()) {
            Ok(call) if call.method.is_some() => Self::Call(call),
            Ok(call) => Self::Odd(call.told_id()),
            Err(_) => Self::Odd(None),
        }
    }

    pub(crate) fn call(&self) -> Option<&WireCall<'a>> {
        match self {
            Self::Call(call) => Some(call),
            Self::Odd(_) | Self::NotJson => None,
        }
    }
}

impl<'a> RequestBody<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Self {
        let is_batch = body.trim_ascii_start().starts_with(b"[");
        let items: Result<Vec<&RawValue>, _> = match is_batch {
            true => serde_json::from_slice(body),
            false => serde_json::from_slice(body).map(|one| vec![one]),
        };
        match items {
            Ok(items) => {
                Self { items: items.into_iter().map(RequestItem::read).collect(), is_batch }
            }
            Err(_) => Self { items: vec![RequestItem::NotJson], is_batch: false },
        }
    }

    /// What `answer` says to each call, named by its place; nothing to notifications.
    pub(crate) fn answered(
        &self,
        mut answer: impl FnMut(usize, &WireCall<'_>) -> Result<Value, RpcError>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        if self.items.is_empty() {
            write_answer(&mut out, None, Err(RpcError::new(-32600, "empty batch")));
            return out;
        }
        for (index, item) in self.items.iter().enumerate() {
            let (id, answer) = match item {
                RequestItem::Call(call) if call.id.is_none() => continue,
                RequestItem::Call(call) => (call.told_id(), answer(index, call)),
                RequestItem::Odd(id) => (*id, Err(RpcError::new(-32600, "invalid request"))),
                RequestItem::NotJson => (None, Err(RpcError::new(-32700, "parse error"))),
            };
            if self.is_batch {
                out.push(if out.is_empty() { b'[' } else { b',' });
            }
            write_answer(&mut out, id, answer);
        }
        if self.is_batch && !out.is_empty() {
            out.push(b']');
        }
        out
    }
}

/// Appends the answer to a call.
pub(crate) fn write_answer(out: &mut Vec<u8>, id: Option<&str>, answer: Result<Value, RpcError>) {
    let (name, value) = match answer {
        Ok(result) => ("result", result),
        Err(error) => ("error", error.to_json()),
    };
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.unwrap_or("null").as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(&mut *out, &value).expect("a JSON value can always be written to memory");
    out.push(b'}');
}
