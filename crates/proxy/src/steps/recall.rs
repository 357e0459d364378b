//! What an answer shows to its client is remembered ([`crate::state::sessions`]), and what the
//! client was shown and sent before decides what it is told.

use bytes::Bytes;
use wellhead_chain::Observation;
use wellhead_dispatch::now;
use wellhead_eth::{BlockNumber, BlockRef, BlockTag, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_upstream::Slot;

use crate::blocks::{LOOK_INTO_MAX, beginning};
use crate::request::context::RequestContext;
use crate::request::pin::MethodCall;
use crate::state::sent::address;
use crate::steps::observe;

/// The method that asks how many transactions were sent.
const NONCE: &str = "eth_getTransactionCount";

/// A block that an answer shows to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The call named it, and it was not missing.
    Named(BlockNumber),
    /// The answer says that it is, or was found in, this one.
    Told(Observation),
}

fn shown(row: &MethodRow, block: &BlockRef, result: &[u8]) -> Option<Shown> {
    match block {
        BlockRef::Number(number) => {
            return Some(Shown::Named(*number)).filter(|_| !raw::is_null(result));
        }
        BlockRef::Tag(BlockTag::Latest) | BlockRef::Hash(_) | BlockRef::None => {}
        // A range may end above all that is there.
        BlockRef::Range { .. } | BlockRef::Tag(_) | BlockRef::Unreadable => return None,
    }
    let is_newest = matches!(block, BlockRef::Tag(_));
    let result = if is_newest { beginning(result) } else { result };
    if result.len() > LOOK_INTO_MAX || result.first() != Some(&b'{') {
        return None;
    }
    match row.name {
        "eth_getTransactionReceipt" | "eth_getTransactionByHash" => {
            let number = raw::field(result, "blockNumber").and_then(raw::quantity)?;
            let hash = raw::field(result, "blockHash").and_then(raw::string);
            let hash = hash.and_then(|hash| hash.parse().ok());
            let seen = Observation::of_number(BlockNumber(number));
            Some(Shown::Told(Observation { hash, ..seen }))
        }
        "eth_getBlockByHash" | "eth_getBlockByNumber" => {
            Observation::of_block(result).map(Shown::Told)
        }
        _ => None,
    }
}

/// Notes a block that a call named, whose answer is sent on as it arrives.
pub(crate) fn recall_flowing(request: &RequestContext<'_>, block: &BlockRef) {
    if let (true, BlockRef::Number(number)) = (request.chain.pins, block) {
        request.show(*number);
    }
}

/// What a client is told of its own call: a pending nonce counts what it sent a moment ago.
/// Notes the block that the answer shows, which is news of the upstream in `slot`, too.
pub(crate) fn recall(
    request: &RequestContext<'_>,
    MethodCall { row, params }: MethodCall<'_>,
    block: &BlockRef,
    slot: Option<Slot>,
    result: Bytes,
) -> Bytes {
    let chain = request.chain;
    if !chain.pins {
        return result;
    }
    match shown(row, block, &result) {
        Some(Shown::Told(seen)) => {
            if let Some(slot) = slot {
                observe::observe_block(chain, slot, seen, now());
            }
            request.show(seen.number);
        }
        Some(Shown::Named(number)) => request.show(number),
        None => {}
    }
    if row.name != NONCE || *block != BlockRef::Tag(BlockTag::Pending) {
        return result;
    }
    let Some((told, sender)) = raw::quantity(&result).zip(params.and_then(address)) else {
        return result;
    };
    match chain.sent.next_nonce(&sender, told, now()) {
        next if next == told => result,
        next => format!("\"0x{next:x}\"").into(),
    }
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    fn check(method: &str, params: &str, result: &str, expected: Option<u64>) {
        let row = MethodTable::standard().row(method);
        let seen = shown(row, &row.block_ref(Some(params.as_bytes())), result.as_bytes());
        let number = seen.map(|shown| match shown {
            Shown::Named(number) => number.0,
            Shown::Told(seen) => seen.number.0,
        });
        assert_eq!(number, expected, "{method}{params} {result}");
    }

    #[test]
    fn answers_show_blocks() {
        let hash = format!("[\"0x{}\"]", "ab".repeat(32));
        check("eth_getTransactionReceipt", &hash, r#"{"logs":[],"blockNumber":"0x64"}"#, Some(100));
        check("eth_getTransactionReceipt", &hash, "null", None);
        check("eth_getTransactionByHash", &hash, r#"{"blockNumber":null}"#, None);
        // What a client's own tracer says.
        check("debug_traceTransaction", &hash, r#"{"blockNumber":"0xffff"}"#, None);
        check("trace_transaction", &hash, r#"{"number":"0xffff"}"#, None);
        check("eth_getBlockByHash", &hash, r#"{"number":"0x64"}"#, Some(100));
        check("eth_getBlockByNumber", r#"["latest",false]"#, r#"{"number":"0x64"}"#, Some(100));
        check("eth_getBlockByNumber", r#"["pending",false]"#, r#"{"number":"0x64"}"#, None);
        check("eth_getBlockByNumber", r#"["0x64",false]"#, r#"{}"#, Some(100));
        check("eth_getBlockByNumber", r#"["0x64",false]"#, "null", None);
        check("eth_getBalance", r#"["0xab","0x64"]"#, "\"0x1\"", Some(100));
        check("eth_getBalance", r#"["0xab","latest"]"#, "\"0x1\"", None);
        check("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x64"}]"#, "[]", None);
        check("eth_call", r#"[{"to":"0xab"},"latest"]"#, r#"{"number":"0x64"}"#, None);
    }
}
