//! The recent headers of a chain, as far as they were reported: which block follows which, and
//! which upstreams had it as their head.
//!
//! A tree, since there are siblings; bounded in depth and in number. Gaps are not filled: a
//! poller skips blocks, and fetching them would cost calls. A block that is not linked by known
//! parents counts as unknown, never as another fork.

use std::collections::HashMap;
use std::time::Instant;

use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};
use wellhead_upstream::Slot;

/// Headers so far below the newest agreed block are forgotten. No proof-of-stake chain
/// reorganises deeper, and clients that follow heads do not look back further.
pub(crate) const DEPTH: u64 = 256;
/// And so many are kept at most: four siblings at each height, 100 bytes each.
const HEADERS_MAX: usize = 4 * DEPTH as usize;

#[derive(Debug)]
pub(crate) struct RememberedHeader {
    number: u64,
    parent: Option<BlockHash>,
    /// The upstreams that had it as their head, and since when.
    stood: Vec<(Slot, Instant)>,
}

/// The headers that are remembered.
#[derive(Debug, Default)]
pub(crate) struct HeaderMemory {
    by_hash: HashMap<BlockHash, RememberedHeader>,
}

impl HeaderMemory {
    /// Remembers that the upstream in `slot` stands on a block. `agreed` is the newest
    /// agreed number: far below it nothing is kept, and what is farthest goes when there
    /// are too many.
    pub(crate) fn stand(
        &mut self,
        slot: Slot,
        block: NumberedBlock,
        parent: Option<BlockHash>,
        agreed: u64,
        now: Instant,
    ) {
        let Some(header) = self.remember(block, parent, agreed) else { return };
        if !header.stood.iter().any(|(it, _)| *it == slot) {
            header.stood.push((slot, now));
        }
    }

    /// Forgets which blocks the upstream in `slot` stood on.
    pub(crate) fn vacate(&mut self, slot: Slot) {
        for header in self.by_hash.values_mut() {
            header.stood.retain(|(it, _)| *it != slot);
        }
    }

    /// Remembers which block another one follows, whichever upstream holds it. `None` where it is too old
    /// to matter.
    pub(crate) fn remember(
        &mut self,
        block: NumberedBlock,
        parent: Option<BlockHash>,
        agreed: u64,
    ) -> Option<&mut RememberedHeader> {
        let NumberedBlock { number: BlockNumber(number), hash } = block;
        if number.saturating_add(DEPTH) < agreed {
            return None;
        }
        if !self.by_hash.contains_key(&hash) && self.by_hash.len() >= HEADERS_MAX {
            self.forget_one(agreed);
        }
        let new = || RememberedHeader { number, parent, stood: Vec::new() };
        let header = self.by_hash.entry(hash).or_insert_with(new);
        header.parent = header.parent.or(parent);
        Some(header)
    }

    fn forget_one(&mut self, agreed: u64) {
        self.by_hash.retain(|_, header| header.number.saturating_add(DEPTH) >= agreed);
        let farthest = |(hash, header): (&BlockHash, &RememberedHeader)| {
            (header.number.abs_diff(agreed), *hash)
        };
        if self.by_hash.len() >= HEADERS_MAX
            && let Some((_, hash)) = self.by_hash.iter().map(farthest).max()
        {
            self.by_hash.remove(&hash);
        }
    }

    /// The block and those before it, as far as parents are known.
    pub(crate) fn back(&self, block: NumberedBlock) -> impl Iterator<Item = NumberedBlock> + '_ {
        let parent = |block: &NumberedBlock| {
            let header = self.by_hash.get(&block.hash)?;
            // A parent is one below; any other claim is ignored.
            let below =
                block.number.0.checked_sub(1).filter(|_| header.number == block.number.0)?;
            Some(NumberedBlock { number: BlockNumber(below), hash: header.parent? })
        };
        std::iter::successors(Some(block), parent)
            .take(usize::try_from(DEPTH).unwrap_or(usize::MAX))
    }

    /// The block at `height` of the branch that ends in this one; `None` when it is not known.
    pub(crate) fn ancestor(&self, block: NumberedBlock, height: BlockNumber) -> Option<BlockHash> {
        self.back(block).find(|it| it.number == height).map(|it| it.hash)
    }

    /// Since when the upstream in `slot` stood on this block.
    pub(crate) fn stood(&self, hash: &BlockHash, slot: Slot) -> Option<Instant> {
        let stood = &self.by_hash.get(hash)?.stood;
        stood.iter().find(|(it, _)| *it == slot).map(|(_, at)| *at)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
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

    fn block(number: u64, fork: u8) -> NumberedBlock {
        NumberedBlock { number: BlockNumber(number), hash: hash(number, fork) }
    }

    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_branch_is_known_as_far_as_its_parents() {
        let (mut headers, now) = (HeaderMemory::default(), origin());
        for number in [10, 11, 13, 14] {
            let parent = Some(hash(number - 1, 0));
            headers.stand(Slot(0), block(number, 0), parent, 14, now);
        }
        let of_14 =
            |headers: &HeaderMemory, height| headers.ancestor(block(14, 0), BlockNumber(height));
        assert_eq!(of_14(&headers, 14), Some(hash(14, 0)));
        assert_eq!(of_14(&headers, 12), Some(hash(12, 0)), "named as a parent");
        assert_eq!(of_14(&headers, 11), None, "no upstream showed block 12");
        headers.stand(Slot(1), block(12, 0), Some(hash(11, 0)), 14, now);
        assert_eq!(of_14(&headers, 9), Some(hash(9, 0)));
        let stood = |number, slot| headers.stood(&hash(number, 0), Slot(slot));
        assert_eq!((stood(12, 1), stood(12, 0), stood(9, 0)), (Some(now), None, None));
    }

    #[test]
    fn a_parent_that_is_not_one_below_leads_nowhere() {
        let mut headers = HeaderMemory::default();
        headers.stand(Slot(0), block(10, 0), Some(hash(10, 0)), 10, origin());
        assert_eq!(headers.back(block(10, 0)).count(), 2, "itself as its own parent");
        assert_eq!(headers.ancestor(block(10, 0), BlockNumber(8)), None);
    }

    #[test]
    fn they_are_bounded() {
        let (mut headers, now) = (HeaderMemory::default(), origin());
        for number in 0..5_000 {
            for fork in 0..4 {
                headers.stand(Slot(0), block(number, fork), None, number, now);
            }
            headers.stand(
                Slot(1),
                NumberedBlock { number: BlockNumber(u64::MAX - number), ..block(number, 9) },
                None,
                number,
                now,
            );
        }
        assert_eq!(headers.len(), HEADERS_MAX);
        assert!(headers.stood(&hash(4_999, 0), Slot(0)).is_some(), "the newest is there");
        let before = headers.len();
        headers.stand(Slot(0), block(4_000, 7), None, 4_999, now);
        assert_eq!(headers.len(), before, "too old to matter");
    }
}
