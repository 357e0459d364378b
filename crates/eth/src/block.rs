//! Which block a call speaks of, as the caller said it.
//!
//! A tag stays a tag here: only `chain` knows which number `latest` is today.

use std::fmt;

use crate::id::{BlockHash, BlockNumber};

/// A block named by its role, which moves on as the chain grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum BlockTag {
    /// Genesis, or the oldest block the upstream still has.
    Earliest,
    /// The newest canonical block.
    Latest,
    /// The newest block that an honest majority keeps.
    Safe,
    /// The newest block that can no longer be replaced.
    Finalized,
    /// A block that does not exist yet, built from one upstream's own pool.
    Pending,
}

wellhead_word::words!(BlockTag);

/// One end of a range: a height, or a tag that stands for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockPoint {
    /// A tag.
    Tag(BlockTag),
    /// A height.
    Number(BlockNumber),
}

impl fmt::Display for BlockPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => fmt::Display::fmt(tag, f),
            Self::Number(number) => fmt::Display::fmt(number, f),
        }
    }
}

/// Which block or blocks a call speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockRef {
    /// The method takes none.
    None,
    /// A tag, written or by default.
    Tag(BlockTag),
    /// A height.
    Number(BlockNumber),
    /// A hash.
    Hash(BlockHash),
    /// All blocks between two points, both included. The ends are as written:
    /// `from` may be the later one, which upstreams refuse.
    Range {
        /// The first block.
        from: BlockPoint,
        /// The last block.
        to: BlockPoint,
    },
    /// The method takes one, but what the caller wrote could not be understood,
    /// or could be understood in two ways. Such a call may be sent, so that an
    /// upstream explains what is wrong, but nothing may be concluded from it.
    Unreadable,
}

impl BlockRef {
    /// The newest point the answer depends on: what an upstream's head must have reached.
    ///
    /// `None` for a hash, whose height is not known here, and where there is no reference.
    pub const fn newest(self) -> Option<BlockPoint> {
        match self {
            Self::Tag(tag) => Some(BlockPoint::Tag(tag)),
            Self::Number(number) => Some(BlockPoint::Number(number)),
            Self::Range { to, .. } => Some(to),
            Self::None | Self::Hash(_) | Self::Unreadable => None,
        }
    }

    /// The oldest point the answer depends on: what an upstream must not have pruned.
    ///
    /// `None` for a hash, whose height is not known here, and where there is no reference.
    pub const fn oldest(self) -> Option<BlockPoint> {
        match self {
            Self::Range { from, .. } => Some(from),
            Self::None | Self::Tag(_) | Self::Number(_) | Self::Hash(_) | Self::Unreadable => {
                self.newest()
            }
        }
    }

    /// Both ends of a range, where both are heights.
    pub const fn heights(self) -> Option<(BlockNumber, BlockNumber)> {
        match self {
            Self::Range { from: BlockPoint::Number(from), to: BlockPoint::Number(to) } => {
                Some((from, to))
            }
            Self::Range { .. }
            | Self::None
            | Self::Tag(_)
            | Self::Number(_)
            | Self::Hash(_)
            | Self::Unreadable => None,
        }
    }
}

impl From<BlockPoint> for BlockRef {
    fn from(point: BlockPoint) -> Self {
        match point {
            BlockPoint::Tag(tag) => Self::Tag(tag),
            BlockPoint::Number(number) => Self::Number(number),
        }
    }
}

impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Tag(tag) => fmt::Display::fmt(tag, f),
            Self::Number(number) => fmt::Display::fmt(number, f),
            Self::Hash(hash) => fmt::Display::fmt(hash, f),
            Self::Range { from, to } => write!(f, "{from}..{to}"),
            Self::Unreadable => f.write_str("unreadable"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_exact_words() {
        for tag in BlockTag::ALL {
            assert_eq!(BlockTag::from_word(tag.word()), Some(tag));
        }
        for text in ["", "Latest", "latest ", "0x1"] {
            assert_eq!(BlockTag::from_word(text), None, "{text:?}");
        }
    }

    #[test]
    fn ends_of_a_reference() {
        let tag = BlockPoint::Tag(BlockTag::Latest);
        let five = BlockPoint::Number(BlockNumber(5));
        let cases = [
            (BlockRef::None, None, None),
            (BlockRef::Unreadable, None, None),
            (BlockRef::Hash(BlockHash([1; 32])), None, None),
            (BlockRef::from(tag), Some(tag), Some(tag)),
            (BlockRef::from(five), Some(five), Some(five)),
            (BlockRef::Range { from: five, to: tag }, Some(five), Some(tag)),
        ];
        for (block, oldest, newest) in cases {
            assert_eq!((block.oldest(), block.newest()), (oldest, newest), "{block}");
            assert_eq!(block.heights(), None, "{block}");
        }
        let heights = BlockRef::Range { from: five, to: five };
        assert_eq!(heights.heights(), Some((BlockNumber(5), BlockNumber(5))));
    }

    #[test]
    fn people_can_read_it() {
        let range = BlockRef::Range {
            from: BlockPoint::Number(BlockNumber(16)),
            to: BlockPoint::Tag(BlockTag::Safe),
        };
        assert_eq!(range.to_string(), "16..safe");
        assert_eq!(BlockRef::Unreadable.to_string(), "unreadable");
    }
}
