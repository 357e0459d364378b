//! The logs blooms of recent headers, as upstreams reported them: which logs a block may hold.
//!
//! Stored beside the views, since most requests never need them. The bloom of a block hash is
//! the union of all reports: an upstream that omits bits hides nothing, and one that adds bits
//! only makes an empty answer doubtful. Not guaranteed: that any bloom is known; polls skip
//! blocks, and some chains leave all blooms empty.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use wellhead_eth::{BlockHash, BlockNumber};
use wellhead_jsonrpc::raw;

use crate::header::DEPTH;

/// Bytes of a bloom.
const BYTES: usize = 256;
/// So many are kept, the farthest from the agreed head go first: two at each height, 300
/// bytes each.
const BLOOMS_MAX: usize = 2 * DEPTH as usize;

/// The logs bloom of one header: 2,048 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bloom(pub [u8; BYTES]);

impl Bloom {
    /// Reads the raw JSON of a block or header object; `None` where it tells none.
    pub fn of_block(block: &[u8]) -> Option<Self> {
        let text = raw::field(block, "logsBloom").and_then(raw::string)?;
        let digits = text.strip_prefix("0x")?.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let mut bloom = [0; BYTES];
        for (byte, pair) in bloom.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bloom))
    }
}

/// Those that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Blooms {
    /// Locked for moments: by a new header, and to check an empty answer.
    by_block: RwLock<BTreeMap<(u64, BlockHash), Box<Bloom>>>,
}

impl Blooms {
    /// Remembers what was told of a block; `agreed` is the newest agreed number.
    pub(crate) fn hear(&self, number: u64, hash: BlockHash, told: &Bloom, agreed: u64) {
        let mut by_block = self.by_block.write();
        let known = by_block.entry((number, hash)).or_insert_with(|| Box::new(*told));
        for (bits, more) in known.0.iter_mut().zip(told.0) {
            *bits |= more;
        }
        if by_block.len() <= BLOOMS_MAX {
            return;
        }
        let distance = |end: Option<(&(u64, BlockHash), _)>| {
            end.map_or(0, |((number, _), _)| number.abs_diff(agreed))
        };
        let (lowest, highest) =
            (distance(by_block.first_key_value()), distance(by_block.last_key_value()));
        let _farthest = if lowest > highest { by_block.pop_first() } else { by_block.pop_last() };
    }

    /// Shows those of `blocks` that are known.
    pub(crate) fn show(
        &self,
        blocks: impl Iterator<Item = (BlockNumber, BlockHash)>,
        mut look: impl FnMut(BlockNumber, &Bloom),
    ) {
        let by_block = self.by_block.read();
        for (number, hash) in blocks {
            if let Some(bloom) = by_block.get(&(number.0, hash)) {
                look(number, bloom);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64, fork: u8) -> BlockHash {
        let mut bytes = [fork; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        BlockHash(bytes)
    }

    fn known(blooms: &Blooms, number: u64, fork: u8) -> Option<u8> {
        let mut first = None;
        let block = std::iter::once((BlockNumber(number), hash(number, fork)));
        blooms.show(block, |_, bloom| first = Some(bloom.0[0]));
        first
    }

    #[test]
    fn a_header_tells_its_bloom() {
        let check = |bloom: &str, first: Option<u8>| {
            let block = format!(r#"{{"number":"0x1","logsBloom":"{bloom}"}}"#);
            assert_eq!(Bloom::of_block(block.as_bytes()).map(|it| it.0[0]), first, "{bloom}");
        };
        check(&format!("0xaB{}", "0".repeat(510)), Some(0xab));
        check(&format!("0xaB{}", "0".repeat(508)), None);
        check(&format!("0xaB{}", "0".repeat(512)), None);
        check(&format!("ab{}", "0".repeat(512)), None);
        check(&format!("0xxy{}", "0".repeat(510)), None);
        assert_eq!(Bloom::of_block(br#"{"number":"0x1"}"#), None);
        assert_eq!(Bloom::of_block(br#"{"logsBloom":null}"#), None);
    }

    #[test]
    fn what_two_tell_of_a_block_is_added_up() {
        let blooms = Blooms::default();
        blooms.hear(7, hash(7, 1), &Bloom([0b01; BYTES]), 7);
        blooms.hear(7, hash(7, 1), &Bloom([0b10; BYTES]), 7);
        blooms.hear(7, hash(7, 2), &Bloom([0; BYTES]), 7);
        assert_eq!((known(&blooms, 7, 1), known(&blooms, 7, 2)), (Some(0b11), Some(0)));
        assert_eq!(known(&blooms, 8, 1), None);
    }

    #[test]
    fn they_are_bounded_and_nobody_far_ahead_pushes_out_the_newest() {
        let blooms = Blooms::default();
        for number in 0..2_000 {
            blooms.hear(number, hash(number, 1), &Bloom([1; BYTES]), number);
            blooms.hear(u64::MAX - number, hash(u64::MAX - number, 9), &Bloom([9; BYTES]), number);
        }
        assert_eq!(blooms.by_block.read().len(), BLOOMS_MAX);
        assert_eq!((known(&blooms, 1_999, 1), known(&blooms, 1_000, 1)), (Some(1), None));
    }
}
