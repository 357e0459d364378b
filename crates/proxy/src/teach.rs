//! What an answer to a client tells about its upstream's head, for free.

use std::time::Instant;

use wellhead_chain::{Heads, Observation, Source};
use wellhead_eth::{BlockNumber, BlockRef, BlockTag, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_upstream::Slot;

/// Larger answers are not looked into: a block with all its transactions would
/// cost more to read than the poll that it saves.
const LOOK_INTO_MAX: usize = 64 * 1024;

/// Tells `heads` what `result`, given by `slot`, shows.
pub(crate) fn teach(
    heads: &Heads,
    slot: Slot,
    row: &MethodRow,
    block: &BlockRef,
    result: &[u8],
    now: Instant,
) {
    let seen = match (row.name, block) {
        ("eth_blockNumber", _) => raw::quantity(result).map(|number| Observation {
            number: BlockNumber(number),
            hash: None,
            timestamp: None,
        }),
        ("eth_getBlockByNumber", BlockRef::Tag(BlockTag::Latest))
            if result.len() <= LOOK_INTO_MAX =>
        {
            Observation::of_block(result)
        }
        // Whoever answers for a block by its number holds it.
        ("eth_getBlockByNumber" | "eth_getBlockReceipts", BlockRef::Number(number))
            if !raw::is_null(result) =>
        {
            Some(Observation { number: *number, hash: None, timestamp: None })
        }
        _ => None,
    };
    if let Some(seen) = seen {
        heads.observe(slot, seen, Source::Answer, now);
    }
}
