//! One kept answer: the bytes of its result, and as long as they are true.
//!
//! Also how it is written where other processes read it: see [`Entry::encode`]. Where it
//! is kept, and for how long it is kept at most, is not said here.

use bytes::Bytes;
use wellhead_eth::{BlockHash, BlockNumber};

use crate::assurance::Assurance;
use crate::canon::{BlockId, BlockStatus, Canon};
use crate::reason::Reason;

/// As long as what an answer is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// For ever.
    Final,
    /// While this block is canonical; served only where the view says that it is.
    Canonical {
        /// Its height.
        number: BlockNumber,
        /// Its name.
        hash: BlockHash,
    },
    /// The call itself named the block by hash, so the answer stays true; served unless
    /// the view says that the block was orphaned, when upstreams may say otherwise.
    Named {
        /// The block's height, where it was known.
        number: Option<BlockNumber>,
        /// Its name.
        hash: BlockHash,
    },
    /// While this is the height of the head.
    Head(BlockNumber),
}

/// What a look-up makes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Serve it.
    Serve,
    /// Serve it; from now on it is [`Validity::Final`].
    ServeForEver,
    /// This view cannot tell whether it is true; another may.
    Skip,
    /// It will not be true again.
    Drop,
}

impl Validity {
    /// Whether an answer may be served under this view.
    pub fn under(self, canon: &(impl Canon + ?Sized)) -> Use {
        let (number, hash) = match self {
            Self::Final => return Use::Serve,
            Self::Head(number) => {
                return match canon.head() {
                    Some(head) if head == number => Use::Serve,
                    // The entry may be newer than the view of this request.
                    Some(head) if head < number => Use::Skip,
                    Some(_) => Use::Drop,
                    None => Use::Skip,
                };
            }
            Self::Canonical { number, hash } => (Some(number), hash),
            Self::Named { number, hash } => (number, hash),
        };
        match (BlockId { number, hash }.standing(canon), self) {
            (BlockStatus::Final, _) => Use::ServeForEver,
            (BlockStatus::Canonical, _) => Use::Serve,
            (BlockStatus::Orphaned, _) => Use::Drop,
            (BlockStatus::Unknown, Self::Named { .. }) => Use::Serve,
            (BlockStatus::Unknown, _) => Use::Skip,
        }
    }

    /// The word for it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Final => Reason::Final,
            Self::Canonical { .. } => Reason::Canonical,
            Self::Named { .. } => Reason::Named,
            Self::Head(_) => Reason::Head,
        }
    }

    /// The block whose orphaning ends it, and its height where that is known.
    pub const fn block(self) -> Option<BlockId> {
        match self {
            Self::Final | Self::Head(_) => None,
            Self::Canonical { number, hash } => Some(BlockId { number: Some(number), hash }),
            Self::Named { number, hash } => Some(BlockId { number, hash }),
        }
    }
}

/// The rule's word that an answer may be kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Why; one of those that keep.
    pub reason: Reason,
    /// As long as what it is true.
    pub hold: Validity,
    /// When it ends at the latest, in milliseconds of the caller's clock.
    pub expires_ms: Option<u64>,
    /// What stands behind it; the word of one upstream until the caller says more.
    pub assurance: Assurance,
}

impl Retention {
    /// With this behind it.
    #[must_use]
    pub const fn with(self, assurance: Assurance) -> Self {
        Self { assurance, ..self }
    }

    /// The entry for a result.
    pub const fn entry(self, value: Bytes) -> Entry {
        let Self { hold, expires_ms, assurance, .. } = self;
        Entry { value, hold, expires_ms, assurance }
    }
}

/// A kept answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The raw JSON of the result.
    pub value: Bytes,
    /// As long as what it is true.
    pub hold: Validity,
    /// When it ends at the latest, in milliseconds of the caller's clock. Entries that
    /// leave the process need milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// What stands behind it.
    pub assurance: Assurance,
}

/// The layout of [`Entry::encode`]; another number is another layout, and is not read.
const LAYOUT: u8 = 2;

const KIND: u8 = 0b0000_0011;
const HAS_NUMBER: u8 = 0b0000_0100;
const HAS_HASH: u8 = 0b0000_1000;
const HAS_EXPIRY: u8 = 0b0001_0000;

const KIND_FINAL: u8 = 0;
const KIND_CANONICAL: u8 = 1;
const KIND_NAMED: u8 = 2;
const KIND_HEAD: u8 = 3;

/// Enough that a damaged entry passes once in 2^64, which is never.
const CHECKSUM_BYTES: usize = 8;

impl Entry {
    /// Whether its time is over.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end| now_ms >= end)
    }

    /// For a store that other processes, or this one after a restart, read: layout,
    /// flags, what stands behind it, the block's number and hash, the end, the value, a checksum. Numbers are
    /// little-endian. The checksum covers the key's `digest`, so that an entry found
    /// under another key is refused.
    pub fn encode(&self, digest: &[u8; 32]) -> Vec<u8> {
        let (kind, number, hash) = match self.hold {
            Validity::Final => (KIND_FINAL, None, None),
            Validity::Canonical { number, hash } => (KIND_CANONICAL, Some(number), Some(hash)),
            Validity::Named { number, hash } => (KIND_NAMED, number, Some(hash)),
            Validity::Head(number) => (KIND_HEAD, Some(number), None),
        };
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = kind
            | flag(number.is_some(), HAS_NUMBER)
            | flag(hash.is_some(), HAS_HASH)
            | flag(self.expires_ms.is_some(), HAS_EXPIRY);
        let mut out = Vec::with_capacity(4 + 8 + 32 + 8 + self.value.len() + CHECKSUM_BYTES);
        out.extend([LAYOUT, flags]);
        out.extend(self.assurance.encode());
        out.extend(number.into_iter().flat_map(|number| number.0.to_le_bytes()));
        out.extend(hash.into_iter().flat_map(|hash| hash.0));
        out.extend(self.expires_ms.into_iter().flat_map(u64::to_le_bytes));
        out.extend_from_slice(&self.value);
        let checksum = checksum(digest, &out);
        out.extend(checksum);
        out
    }

    /// Reads what [`Entry::encode`] wrote for the same key. The value is a slice of
    /// `bytes`, not a copy. `None`, as if there were no entry, for what another version wrote, for
    /// what is damaged, and for the entry of another key.
    pub fn decode(bytes: &Bytes, digest: &[u8; 32]) -> Option<Self> {
        let (body, found) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if bytes.first() != Some(&LAYOUT) || checksum(digest, body) != *found {
            return None;
        }
        let mut at = 1;
        let [flags] = take(body, &mut at)?;
        if flags & !(KIND | HAS_NUMBER | HAS_HASH | HAS_EXPIRY) != 0 {
            return None;
        }
        let assurance = Assurance::decode(take(body, &mut at)?)?;
        let mut number = None;
        if flags & HAS_NUMBER != 0 {
            number = Some(BlockNumber(u64::from_le_bytes(take(body, &mut at)?)));
        }
        let mut hash = None;
        if flags & HAS_HASH != 0 {
            hash = Some(BlockHash(take(body, &mut at)?));
        }
        let mut expires_ms = None;
        if flags & HAS_EXPIRY != 0 {
            expires_ms = Some(u64::from_le_bytes(take(body, &mut at)?));
        }
        let hold = match (flags & KIND, number, hash) {
            (KIND_FINAL, None, None) => Validity::Final,
            (KIND_CANONICAL, Some(number), Some(hash)) => Validity::Canonical { number, hash },
            (KIND_NAMED, number, Some(hash)) => Validity::Named { number, hash },
            (KIND_HEAD, Some(number), None) => Validity::Head(number),
            _ => return None,
        };
        Some(Self { value: bytes.slice(at..body.len()), hold, expires_ms, assurance })
    }
}

fn take<const N: usize>(body: &[u8], at: &mut usize) -> Option<[u8; N]> {
    let chunk = body.get(*at..)?.first_chunk()?;
    *at += N;
    Some(*chunk)
}

fn checksum(digest: &[u8; 32], body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(digest);
    hasher.update(body);
    let whole = hasher.finalize();
    let (first, _) = whole.as_bytes().split_first_chunk().expect("blake3 gives 32 bytes");
    *first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assurance::Scrutiny;
    use crate::canon::tests::{Chain, chain, fork, hash};
    use proptest::prelude::*;

    #[track_caller]
    fn check(hold: Validity, canon: Chain, want: Use) {
        assert_eq!(hold.under(&canon), want, "{hold:?} {canon:?}");
    }

    fn canonical(number: u64) -> Validity {
        Validity::Canonical { number: BlockNumber(number), hash: hash(number) }
    }

    fn named(number: u64) -> Validity {
        Validity::Named { number: None, hash: hash(number) }
    }

    #[test]
    fn what_is_final_is_served_for_ever() {
        check(Validity::Final, chain(), Use::Serve);
        check(Validity::Final, Chain { forked_at: 0, ..chain() }, Use::Serve);
    }

    #[test]
    fn what_hangs_on_a_block_is_served_while_that_is_canonical() {
        check(canonical(95), chain(), Use::Serve);
        check(canonical(95), Chain { forked_at: 96, ..chain() }, Use::Serve);
        check(canonical(95), Chain { forked_at: 95, ..chain() }, Use::Drop);
        check(canonical(95), Chain { finalized: 95, ..chain() }, Use::ServeForEver);
        check(canonical(101), chain(), Use::Skip);
        check(canonical(49), chain(), Use::Skip);
    }

    #[test]
    fn what_was_asked_by_hash_is_served_unless_that_is_orphaned() {
        check(named(95), chain(), Use::Serve);
        check(named(95), Chain { forked_at: 95, ..chain() }, Use::Drop);
        check(named(90), chain(), Use::ServeForEver);
        check(named(49), chain(), Use::Serve);
        check(named(101), chain(), Use::Serve);
        check(
            Validity::Named { number: Some(BlockNumber(95)), hash: fork(95) },
            chain(),
            Use::Drop,
        );
    }

    #[test]
    fn what_hangs_on_the_head_ends_with_it() {
        check(Validity::Head(BlockNumber(100)), chain(), Use::Serve);
        check(Validity::Head(BlockNumber(99)), chain(), Use::Drop);
        check(Validity::Head(BlockNumber(101)), chain(), Use::Skip);
    }

    fn any_hold() -> impl Strategy<Value = Validity> {
        let number = any::<u64>().prop_map(BlockNumber);
        let hash = any::<[u8; 32]>().prop_map(BlockHash);
        prop_oneof![
            Just(Validity::Final),
            (number.clone(), hash.clone())
                .prop_map(|(number, hash)| Validity::Canonical { number, hash }),
            (prop::option::of(number.clone()), hash)
                .prop_map(|(number, hash)| Validity::Named { number, hash }),
            number.prop_map(Validity::Head),
        ]
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        (any::<Vec<u8>>(), any_hold(), any::<Option<u64>>()).prop_map(
            |(value, hold, expires_ms)| {
                let assurance = Assurance { scrutiny: Scrutiny::Cheap, agreed: 2 };
                Entry { value: value.into(), hold, expires_ms, assurance }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(entry in any_entry(), digest: [u8; 32]) {
            let bytes = Bytes::from(entry.encode(&digest));
            prop_assert_eq!(Entry::decode(&bytes, &digest), Some(entry));
        }

        #[test]
        fn damage_is_noticed(
            entry in any_entry(), digest: [u8; 32], at: prop::sample::Index, bit in 0..8_u32,
        ) {
            let mut bytes = entry.encode(&digest);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Entry::decode(&bytes.clone().into(), &digest).is_none());
            bytes[at] ^= 1_u8 << bit;
            bytes.pop();
            prop_assert!(Entry::decode(&bytes.into(), &digest).is_none());
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            prop_assert!(Entry::decode(&bytes.into(), &[0; 32]).is_none());
        }
    }

    #[test]
    fn another_key_s_entry_is_refused() {
        let entry = Entry {
            value: "1".into(),
            hold: Validity::Final,
            expires_ms: None,
            assurance: Assurance::WORD,
        };
        let bytes = Bytes::from(entry.encode(&[1; 32]));
        assert_eq!(Entry::decode(&bytes, &[2; 32]), None);
    }

    /// The layout is read by other processes: a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_this_one() {
        let entry = Entry {
            value: "\"0x1\"".into(),
            hold: canonical(7),
            expires_ms: Some(9),
            assurance: Assurance { scrutiny: Scrutiny::Full, agreed: 3 },
        };
        let bytes = entry.encode(&[0; 32]);
        assert_eq!(bytes[..4], [2, 0b1_1101, 2, 3]);
        assert_eq!(bytes[4..12], 7_u64.to_le_bytes());
        assert_eq!(bytes[12..44], [7; 32]);
        assert_eq!(bytes[44..52], 9_u64.to_le_bytes());
        assert_eq!(&bytes[52..57], b"\"0x1\"");
        assert_eq!(bytes.len(), 57 + CHECKSUM_BYTES);
    }
}
