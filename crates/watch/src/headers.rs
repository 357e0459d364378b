//! The newest headers, as upstreams push them or answer polls, while something subscribes to the chain.
//!
//! They save a call for each block that subscribers are told of. Nothing here is proven: a reader holds the
//! hash that it asks for against what it gets.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_eth::BlockHash;

/// Headers that are kept: some upstreams tell each block, and blocks come while one is announced.
const HEADERS_MAX: usize = 16;
/// Bytes of one: a poll brings the hashes of all transactions of its block.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// The headers of one chain.
#[derive(Debug, Default)]
pub(crate) struct ToldHeaders(Mutex<VecDeque<(BlockHash, Bytes)>>);

impl ToldHeaders {
    /// Keeps what was told of a block (raw JSON); the oldest goes.
    pub(crate) fn note(&self, hash: BlockHash, told: &Bytes) {
        if told.len() > HEADER_BYTES_MAX {
            return;
        }
        let mut headers = self.0.lock();
        if headers.len() == HEADERS_MAX {
            headers.pop_front();
        }
        headers.push_back((hash, told.clone()));
    }

    /// What was told of a block, by one upstream or several.
    pub(crate) fn of(&self, hash: &BlockHash) -> Vec<Bytes> {
        let headers = self.0.lock();
        headers.iter().filter(|(it, _)| it == hash).map(|(_, told)| told.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_whichever_upstream_told_them() {
        let (headers, hash) = (ToldHeaders::default(), |byte| BlockHash([byte; 32]));
        for byte in 0..20 {
            headers.note(hash(byte), &Bytes::from(vec![byte]));
        }
        headers.note(hash(19), &Bytes::from_static(b"another"));
        headers.note(hash(18), &Bytes::from(vec![0; HEADER_BYTES_MAX + 1]));
        assert_eq!(headers.of(&hash(4)), [""; 0]);
        assert_eq!(headers.of(&hash(18)), [vec![18]]);
        assert_eq!(headers.of(&hash(19)), [&[19][..], b"another"]);
        assert_eq!(headers.0.lock().len(), HEADERS_MAX);
    }
}
