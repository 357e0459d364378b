//! What accompanies an answer from check to check: what is known, and the first doubt.

use alloy_primitives::B256;
use wellhead_eth::{BlockHash, BlockNumber, BlockRef, BlockTag, ChainId};

use crate::finding::{Check, InvalidAnswer, Obstacle, Why};
use crate::header::HeaderFacts;
use crate::json::Value;

/// Whose rules a chain follows when it hashes headers, transactions and receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// Ethereum's own: what cannot be recomputed by them is false.
    Ethereum,
    /// Not known. Many chains add header fields, unsigned transactions or
    /// receipts that no root covers, or call something else a hash. What differs here is
    /// [`Why::Rules`] and never `Void`.
    #[default]
    Unknown,
}

impl Rules {
    /// The chains that are certain to follow Ethereum's rules: its own public ones.
    ///
    /// For all others, private ones of unchanged nodes among them, the settings have to say so.
    pub const fn of(chain: ChainId) -> Self {
        match chain.0 {
            // Mainnet, Holesky, Hoodi, Sepolia.
            1 | 17_000 | 560_048 | 11_155_111 => Self::Ethereum,
            _ => Self::Unknown,
        }
    }
}

/// What is known before an answer is looked at. Each part that is left out is a
/// check that is not made, or [`Why::NoHeader`].
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownFacts<'a> {
    /// The chain that the answer must be of.
    pub chain_id: Option<ChainId>,
    /// Whose rules it follows.
    pub rules: Rules,
    /// The height that the call's block reference stands for, when it is a tag that was
    /// pinned. A height written in the call itself is read from there.
    pub number: Option<BlockNumber>,
    /// The hash of that block.
    pub hash: Option<BlockHash>,
    /// The header of that block, believed.
    pub header: Option<&'a HeaderFacts>,
}

/// Which block the call itself asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedBlock {
    number: Option<u64>,
    hash: Option<B256>,
    pub(crate) pending: bool,
}

impl RequestedBlock {
    pub(crate) fn of(block: BlockRef) -> Self {
        let mut asked = Self { number: None, hash: None, pending: false };
        match block {
            BlockRef::Number(number) => asked.number = Some(number.0),
            BlockRef::Hash(hash) => asked.hash = Some(B256::new(hash.0)),
            BlockRef::Tag(tag) => asked.pending = tag == BlockTag::Pending,
            BlockRef::None | BlockRef::Range { .. } | BlockRef::Unreadable => {}
        }
        asked
    }
}

/// The block in which something says it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) number: u64,
    pub(crate) hash: B256,
}

/// One answer being looked at.
#[derive(Debug)]
pub(crate) struct Audit<'a> {
    pub(crate) known: &'a KnownFacts<'a>,
    pub(crate) full: bool,
    /// Signatures looked at so far.
    pub(crate) senders: usize,
    doubt: Option<Why>,
}

impl<'a> Audit<'a> {
    pub(crate) fn new(known: &'a KnownFacts<'a>, full: bool) -> Self {
        Self { known, full, senders: 0, doubt: None }
    }

    pub(crate) fn into_doubt(self) -> Option<Why> {
        self.doubt
    }

    /// Notes what could not be looked at; the first one is kept.
    pub(crate) fn doubt(&mut self, why: Why) {
        self.doubt.get_or_insert(why);
    }

    /// `None` when a doubt stood in the way, which is noted.
    pub(crate) fn take<T>(
        &mut self,
        read: Result<T, Obstacle>,
    ) -> Result<Option<T>, InvalidAnswer> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Obstacle::Doubt(why)) => {
                self.doubt(why);
                Ok(None)
            }
            Err(Obstacle::Void(void)) => Err(void),
        }
    }

    /// Something recomputed is not what was written: a lie, if the rules are known.
    pub(crate) fn differs(&mut self, check: Check, detail: String) -> Result<(), InvalidAnswer> {
        match self.known.rules {
            Rules::Ethereum => Err(InvalidAnswer::new(check, detail)),
            Rules::Unknown => {
                self.doubt(Why::Rules { check });
                Ok(())
            }
        }
    }

    /// The answer says it is of this block; is it the one that was asked for?
    pub(crate) fn names(
        &self,
        asked: RequestedBlock,
        place: BlockPosition,
    ) -> Result<(), InvalidAnswer> {
        let known = self.known;
        let header = known.header;
        let number = |check, want: Option<u64>| match want {
            Some(want) if want != place.number => {
                Err(InvalidAnswer::new(check, format!("block {}, not {want}", place.number)))
            }
            _ => Ok(()),
        };
        let hash = |check, want: Option<B256>| match want {
            Some(want) if want != place.hash => {
                Err(InvalidAnswer::new(check, format!("block {}, not {want}", place.hash)))
            }
            _ => Ok(()),
        };
        number(Check::AskedNumber, asked.number)?;
        hash(Check::AskedHash, asked.hash)?;
        number(Check::Pinned, known.number.or(header.map(|header| header.number)).map(|n| n.0))?;
        let pinned = known.hash.or(header.map(|header| header.hash));
        hash(Check::Pinned, pinned.map(|hash| B256::new(hash.0)))
    }

    /// Something that stands in `place` names a block itself.
    pub(crate) fn stands(
        &mut self,
        place: BlockPosition,
        number: Option<Value<'_>>,
        hash: Option<Value<'_>>,
    ) -> Result<(), InvalidAnswer> {
        let elsewhere = |named: &dyn std::fmt::Display, want: &dyn std::fmt::Display| {
            InvalidAnswer::new(
                Check::OneBlock,
                format!("it names block {named}, in an answer of {want}"),
            )
        };
        match self.take(want(hash, "blockHash", Value::hash))? {
            Some(hash) if hash != place.hash => return Err(elsewhere(&hash, &place.hash)),
            Some(_) | None => {}
        }
        match self.take(want(number, "blockNumber", Value::quantity))? {
            Some(number) if number != place.number => Err(elsewhere(&number, &place.number)),
            Some(_) | None => Ok(()),
        }
    }
}

/// A member that a check reads: absent is a doubt, unreadable is void.
pub(crate) fn want<'a, T>(
    member: Option<Value<'a>>,
    name: &'static str,
    read: impl Fn(Value<'a>) -> Option<T>,
) -> Result<T, Obstacle> {
    let value = member.ok_or(Why::Missing { field: name })?;
    read(value).ok_or_else(|| misshapen(name, value).into())
}

/// A member without which the answer is none.
pub(crate) fn must<'a, T>(
    member: Option<Value<'a>>,
    name: &'static str,
    read: impl Fn(Value<'a>) -> Option<T>,
) -> Result<T, InvalidAnswer> {
    match member {
        Some(value) => read(value).ok_or_else(|| misshapen(name, value)),
        None => Err(InvalidAnswer::new(Check::Shape, format!("`{name}` is missing"))),
    }
}

pub(crate) fn misshapen(name: &str, value: Value<'_>) -> InvalidAnswer {
    InvalidAnswer::new(Check::Shape, format!("`{name}` is {value}"))
}
