//! What the pinned view knows about blocks: the few questions that decide whether an
//! answer is still valid.
//!
//! The crate that follows the chain implements it; nothing here learns anything. One request
//! uses one view for its key, its look-up and, when the answer has arrived, the newest view
//! for the rule: an answer may be about a block that arrived during the call.

use wellhead_eth::{BlockHash, BlockNumber};

/// What is believed of a chain at one moment.
///
/// It must remember the canonical hashes from the newest block down to the finalized one,
/// and a while further (a few minutes of blocks): what is older is unknown here, and an
/// answer that hangs on an unknown block is not served. It may remember no hash at all:
/// then only answers about final heights and content named by its hash are kept.
pub trait Canon {
    /// The newest block that is believed to exist.
    fn head(&self) -> Option<BlockNumber>;

    /// The newest block that can no longer be replaced, as reported by the upstreams that the
    /// settings trust. `None` if it is unknown: then nothing is final.
    fn finalized(&self) -> Option<BlockNumber>;

    /// The canonical block of this height, as far as it is remembered.
    fn hash_at(&self, number: BlockNumber) -> Option<BlockHash>;

    /// The height of a block that was seen lately, canonical or orphaned.
    fn number_of(&self, hash: &BlockHash) -> Option<BlockNumber>;
}

/// A block by its name, and by its height where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Its height.
    pub number: Option<BlockNumber>,
    /// Its name.
    pub hash: BlockHash,
}

/// What has become of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockStatus {
    /// Canonical, and never to be replaced.
    Final,
    /// Canonical, and may be replaced.
    Canonical,
    /// Another block has its height.
    Orphaned,
    /// Not remembered, or not heard of.
    Unknown,
}

impl BlockId {
    /// What `canon` says of this block.
    pub fn standing(self, canon: &(impl Canon + ?Sized)) -> BlockStatus {
        let Some(number) = self.number.or_else(|| canon.number_of(&self.hash)) else {
            return BlockStatus::Unknown;
        };
        match canon.hash_at(number) {
            Some(hash) if hash != self.hash => BlockStatus::Orphaned,
            Some(_) if canon.finalized().is_some_and(|finalized| number <= finalized) => {
                BlockStatus::Final
            }
            Some(_) => BlockStatus::Canonical,
            None => BlockStatus::Unknown,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chain whose block 7 has the hash 07070707…, from `first` to `head`; blocks of a
    /// fork have the byte 0xF0 beside the number's.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Chain {
        pub(crate) first: u64,
        pub(crate) finalized: u64,
        pub(crate) head: u64,
        /// From this height on the other fork is canonical.
        pub(crate) forked_at: u64,
    }

    pub(crate) fn hash(number: u64) -> BlockHash {
        BlockHash([number as u8; 32])
    }

    pub(crate) fn fork(number: u64) -> BlockHash {
        let mut hash = hash(number);
        hash.0[0] = 0xF0;
        hash
    }

    /// Blocks 50 to 100, final up to 90.
    pub(crate) fn chain() -> Chain {
        Chain { first: 50, finalized: 90, head: 100, forked_at: u64::MAX }
    }

    impl Canon for Chain {
        fn head(&self) -> Option<BlockNumber> {
            Some(BlockNumber(self.head))
        }

        fn finalized(&self) -> Option<BlockNumber> {
            Some(BlockNumber(self.finalized))
        }

        fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
            (self.first..=self.head)
                .contains(&number.0)
                .then(|| if number.0 >= self.forked_at { fork(number.0) } else { hash(number.0) })
        }

        fn number_of(&self, block: &BlockHash) -> Option<BlockNumber> {
            (self.first..=self.head)
                .find(|number| hash(*number) == *block || fork(*number) == *block)
                .map(BlockNumber)
        }
    }

    #[test]
    fn standings() {
        let check = |number: Option<u64>, hash, want| {
            let block = BlockId { number: number.map(BlockNumber), hash };
            assert_eq!(block.standing(&chain()), want, "{block:?}");
        };
        check(Some(90), hash(90), BlockStatus::Final);
        check(None, hash(90), BlockStatus::Final);
        check(Some(91), hash(91), BlockStatus::Canonical);
        check(None, hash(100), BlockStatus::Canonical);
        check(Some(91), fork(91), BlockStatus::Orphaned);
        check(None, fork(91), BlockStatus::Orphaned);
        check(Some(101), hash(101), BlockStatus::Unknown);
        check(None, hash(101), BlockStatus::Unknown);
        // Below finality, but no longer remembered: it may have been orphaned before.
        check(Some(49), hash(49), BlockStatus::Unknown);
    }
}
