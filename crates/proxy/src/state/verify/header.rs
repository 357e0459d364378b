//! Headers that were recomputed, by their hashes, for answers that need one.
//!
//! The recomputed hash of a header proves all of its content, whichever upstream sent it and
//! whatever its branch. So an answer that names a block is compared with the header of that hash,
//! and a reorg makes no answer void.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use wellhead_eth::{BlockHash, BlockRef, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_verify::HeaderFacts;

/// At most this many are remembered, about half a kilobyte each; the oldest gives way.
const HEADERS_MAX: usize = 256;

/// Headers of one chain.
#[derive(Debug, Default)]
pub(crate) struct Headers(Mutex<VecDeque<Arc<HeaderFacts>>>);

impl Headers {
    /// Remembers a header whose hash was recomputed.
    pub(crate) fn keep(&self, header: HeaderFacts) {
        let mut headers = self.0.lock();
        if headers.iter().any(|known| known.hash == header.hash) {
            return;
        }
        if headers.len() == HEADERS_MAX {
            headers.pop_front();
        }
        headers.push_back(Arc::new(header));
    }

    /// The header with this hash.
    pub(crate) fn by_hash(&self, hash: &BlockHash) -> Option<Arc<HeaderFacts>> {
        self.0.lock().iter().rev().find(|header| header.hash == *hash).cloned()
    }

    /// The header that this answer is to be compared with, if it is known.
    pub(crate) fn of(
        &self,
        row: &MethodRow,
        params: Option<&[u8]>,
        result: &[u8],
    ) -> Option<Arc<HeaderFacts>> {
        let named = || match row.block_ref(params) {
            BlockRef::Hash(hash) => Some(hash),
            BlockRef::None
            | BlockRef::Tag(_)
            | BlockRef::Number(_)
            | BlockRef::Range { .. }
            | BlockRef::Unreadable => None,
        };
        let hash = match row.name {
            "eth_getBlockReceipts" => first_receipt(result).or_else(named)?,
            // It names no block itself, and at a height there may be several.
            "eth_getProof" => named()?,
            _ => return None,
        };
        self.by_hash(&hash)
    }
}

/// The block that the first receipt says it stands in.
fn first_receipt(result: &[u8]) -> Option<BlockHash> {
    let hash = raw::field(raw::item(result, 0)?, "blockHash")?;
    raw::string(hash)?.parse().ok()
}
