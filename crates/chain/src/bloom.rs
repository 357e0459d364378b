//! The logs blooms of recent headers, as upstreams reported them: which logs a block may hold.
//!
//! Stored beside the views, since most requests never need them. The bloom of a block hash is
//! the union of all reports: an upstream that omits bits hides nothing, and one that adds bits
//! only makes an empty answer doubtful. Not guaranteed: that any bloom is known; polls skip
//! blocks, and some chains leave all blooms empty.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use wellhead_eth::{BlockHash, BlockNumber, Bloom};

use crate::header::DEPTH;

/// So many are kept, the farthest from the agreed head go first: two at each height, 300
/// bytes each.
const BLOOMS_MAX: usize = 2 * DEPTH as usize;

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
        known.add_all(told);
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
    fn what_two_tell_of_a_block_is_added_up() {
        let blooms = Blooms::default();
        blooms.hear(7, hash(7, 1), &Bloom([0b01; 256]), 7);
        blooms.hear(7, hash(7, 1), &Bloom([0b10; 256]), 7);
        blooms.hear(7, hash(7, 2), &Bloom([0; 256]), 7);
        assert_eq!((known(&blooms, 7, 1), known(&blooms, 7, 2)), (Some(0b11), Some(0)));
        assert_eq!(known(&blooms, 8, 1), None);
    }

    #[test]
    fn they_are_bounded_and_no_upstream_far_ahead_pushes_out_the_newest() {
        let blooms = Blooms::default();
        for number in 0..2_000 {
            blooms.hear(number, hash(number, 1), &Bloom([1; 256]), number);
            blooms.hear(u64::MAX - number, hash(u64::MAX - number, 9), &Bloom([9; 256]), number);
        }
        assert_eq!(blooms.by_block.read().len(), BLOOMS_MAX);
        assert_eq!((known(&blooms, 1_999, 1), known(&blooms, 1_000, 1)), (Some(1), None));
    }
}
