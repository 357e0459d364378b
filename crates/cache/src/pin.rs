//! What an answer depends on: the blocks that a call names, as it is sent upstream.
//!
//! A pin is part of the key, so that only calls about that block find the answer. It is made
//! from the reference *that goes upstream*: if `latest` was replaced by a number or a hash, the
//! pin is made from that number or hash. A tag that is sent as a tag stays one, and no answer
//! is cached under it, because another upstream may mean another block.

use wellhead_eth::{BlockHash, BlockNumber, BlockPoint, BlockRef, BlockTag};
use wellhead_eth::{Effect, Finality, MethodRow};

use crate::canon::Canon;
use crate::reason::Reason;

/// What the answer to a call depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// On no block.
    Fixed,
    /// On the block in which something is found; the answer names it.
    Inclusion,
    /// On the head, as the upstream sees it.
    Head,
    /// On one block.
    Block(Point),
    /// On all blocks from one to another.
    Range {
        /// The first, as sent.
        from: Point,
        /// The last, as sent.
        to: Point,
    },
}

/// One block, as the call names it to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// By a height at or below the finalized one: the height alone names the block.
    Final(BlockNumber),
    /// By its hash.
    Hash(BlockHash),
    /// By a height whose block may still be replaced.
    Height(BlockNumber),
    /// By a tag, so that the upstream decides.
    Tag(BlockTag),
}

impl Pin {
    /// What the answer depends on when a call of this method is sent with this reference.
    ///
    /// Fails for calls whose answers can be neither cached nor shared: all except repeatable
    /// reads, calls about pending state, and calls that are ambiguous.
    pub fn of(
        row: &MethodRow,
        sent: BlockRef,
        canon: &(impl Canon + ?Sized),
    ) -> Result<Self, Reason> {
        if row.effect != Effect::Read {
            return Err(Reason::NotARead);
        }
        if !row.idempotent {
            return Err(Reason::Live);
        }
        match row.finality {
            Finality::Live => Err(Reason::Live),
            // Its parameters stay in the key as they are: a tag there would be a mistake
            // of the table or of the caller, and neither may be kept for ever.
            Finality::Fixed => match sent {
                BlockRef::None | BlockRef::Number(_) | BlockRef::Hash(_) => Ok(Self::Fixed),
                BlockRef::Tag(_) | BlockRef::Range { .. } => Err(Reason::Tag),
                BlockRef::Unreadable => Err(Reason::Unreadable),
            },
            Finality::Inclusion => Ok(Self::Inclusion),
            Finality::Head => match sent {
                BlockRef::Unreadable => Err(Reason::Unreadable),
                BlockRef::Tag(BlockTag::Pending) => Err(Reason::Pending),
                _ => Ok(Self::Head),
            },
            Finality::Block => match sent {
                BlockRef::None | BlockRef::Unreadable => Err(Reason::Unreadable),
                BlockRef::Hash(hash) => Ok(Self::Block(Point::Hash(hash))),
                BlockRef::Tag(tag) => Ok(Self::Block(Point::of(BlockPoint::Tag(tag), canon)?)),
                BlockRef::Number(number) => {
                    Ok(Self::Block(Point::of(BlockPoint::Number(number), canon)?))
                }
                BlockRef::Range { from, to } => {
                    Ok(Self::Range { from: Point::of(from, canon)?, to: Point::of(to, canon)? })
                }
            },
        }
    }
}

impl Point {
    fn of(sent: BlockPoint, canon: &(impl Canon + ?Sized)) -> Result<Self, Reason> {
        match sent {
            BlockPoint::Tag(BlockTag::Pending) => Err(Reason::Pending),
            BlockPoint::Tag(tag) => Ok(Self::Tag(tag)),
            BlockPoint::Number(number)
                if canon.finalized().is_some_and(|final_| number <= final_) =>
            {
                Ok(Self::Final(number))
            }
            BlockPoint::Number(number) => Ok(Self::Height(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::tests::{chain, hash};
    use wellhead_eth::MethodTable;

    #[track_caller]
    fn check(method: &str, params: &str, want: Result<Pin, Reason>) {
        let row = MethodTable::standard().row(method);
        let params = params.replace('\'', "\"").replace("HASH", &format!("\"{}\"", hash(95)));
        let sent = row.block_ref(Some(params.as_bytes()));
        assert_eq!(Pin::of(row, sent, &chain()), want, "{method} {params}");
    }

    #[track_caller]
    fn block(method: &str, params: &str, want: Point) {
        check(method, params, Ok(Pin::Block(want)));
    }

    #[test]
    fn one_block() {
        block("eth_getBalance", "['0x', '0x5a']", Point::Final(BlockNumber(90)));
        block("eth_getBalance", "['0x', '0x5b']", Point::Height(BlockNumber(91)));
        block("eth_getBalance", "['0x', HASH]", Point::Hash(hash(95)));
        block("eth_getBalance", "['0x', {'blockHash':HASH}]", Point::Hash(hash(95)));
        block("eth_getBalance", "['0x', 'latest']", Point::Tag(BlockTag::Latest));
        block("eth_getBalance", "['0x']", Point::Tag(BlockTag::Latest));
        block("eth_getBalance", "['0x', 'earliest']", Point::Tag(BlockTag::Earliest));
        block("eth_getBlockByHash", "[HASH, true]", Point::Hash(hash(95)));
        check("eth_getBalance", "['0x', 'pending']", Err(Reason::Pending));
        check("eth_getBalance", "['0x', {}]", Err(Reason::Unreadable));
        check("eth_getBalance", "{'address':'0x'}", Err(Reason::Unreadable));
    }

    #[test]
    fn ranges() {
        let (first, last) = (Point::Final(BlockNumber(1)), Point::Height(BlockNumber(99)));
        check(
            "eth_getLogs",
            "[{'fromBlock':'0x1','toBlock':'0x63'}]",
            Ok(Pin::Range { from: first, to: last }),
        );
        check(
            "eth_getLogs",
            "[{'fromBlock':'0x1'}]",
            Ok(Pin::Range { from: first, to: Point::Tag(BlockTag::Latest) }),
        );
        check("eth_getLogs", "[{'fromBlock':'0x1','toBlock':'pending'}]", Err(Reason::Pending));
        block("eth_getLogs", "[{'blockHash':HASH}]", Point::Hash(hash(95)));
    }

    #[test]
    fn what_depends_on_no_block_of_the_call() {
        check("web3_sha3", "['0x00']", Ok(Pin::Fixed));
        check("debug_seedHash", "['0x1']", Ok(Pin::Fixed));
        check("debug_seedHash", "['latest']", Err(Reason::Tag));
        check("eth_getTransactionReceipt", "['0x00']", Ok(Pin::Inclusion));
        check("eth_gasPrice", "[]", Ok(Pin::Head));
        check("erigon_blockNumber", "['latest']", Ok(Pin::Head));
    }

    #[test]
    fn what_is_never_shared() {
        check("eth_sendRawTransaction", "['0x00']", Err(Reason::NotARead));
        check("eth_getFilterChanges", "['0x00']", Err(Reason::NotARead));
        check("eth_chainId", "[]", Err(Reason::NotARead));
        check("eth_subscribe", "['newHeads']", Err(Reason::NotARead));
        check("eth_syncing", "[]", Err(Reason::Live));
        check("eth_whoKnows", "[]", Err(Reason::Live));
    }
}
