//! What verifying an answer came to, and the checks it can come from.

use std::fmt;

/// How closely answers are looked at. Its words stand in `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// Not at all.
    Off,
    /// Compared with the call and with itself: the answer is read once, nothing is hashed.
    Cheap,
    /// Compared as at `Cheap`, and recomputed: hashes, tries, blooms, signatures, proofs.
    Full,
}

wellhead_word::words!(Level);

/// What is known of an answer after it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerFinding {
    /// Every check of the level passed that applies to what the answer contains.
    /// It may still be false in what no check looks at: see `docs/verify.md`.
    Sound,
    /// It cannot be true, or does not answer this call.
    Void {
        /// The first check that failed.
        check: Check,
        /// What was expected and what was found, for people; bounded in length.
        detail: String,
    },
    /// Nothing is wrong with it, as far as could be seen, but something that the
    /// level asks for could not be seen.
    NotChecked {
        /// The first obstacle.
        why: Why,
    },
}

/// Declares the checks, so that the level and the text for people stand in one place.
macro_rules! checks {
    ($($(#[$doc:meta])* $check:ident = $level:ident, $about:literal;)+) => {
        /// One thing that is looked at.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
        #[strum(serialize_all = "kebab-case")]
        pub enum Check { $(#[doc = $about] $check,)+ }

        impl Check {
            /// The level from which on it is made.
            pub const fn level(self) -> Level {
                match self { $(Self::$check => Level::$level),+ }
            }

            /// What it compares.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$check => $about),+ }
            }
        }
    };
}

checks! {
    Shape = Cheap, "All fields that the other checks read are present and well-formed, and no key is duplicated.";
    Quantity = Cheap, "The answer is a number in hex, below 2^256.";
    AskedHash = Cheap, "The answer has the requested hash.";
    AskedNumber = Cheap, "The answer has the requested block number.";
    Pinned = Cheap, "The answer is for the block that the call was pinned to.";
    AskedIndex = Cheap, "The answer has the requested index, sender or nonce.";
    OneBlock = Cheap, "All transactions, receipts and logs name the block that contains them, and logs their transaction.";
    Order = Cheap, "Transactions and receipts are numbered from 0 without a gap, and log indexes ascend; on chains that follow Ethereum's rules.";
    ChainId = Cheap, "Signed transactions are for this chain.";
    Range = Cheap, "Logs are from the requested blocks.";
    Filter = Cheap, "Logs match the requested addresses and topics.";
    ProofAsked = Cheap, "The proof is for the requested address and slots, in the requested order.";
    BlockHash = Full, "The block's hash matches its header.";
    TransactionsRoot = Full, "The transactions are those that the header commits to.";
    WithdrawalsRoot = Full, "The withdrawals are those that the header commits to.";
    Uncles = Full, "The block has uncles if and only if the header commits to some.";
    TransactionHash = Full, "The transaction's hash matches its fields, or its bytes.";
    Sender = Full, "The transaction's signer is its `from` account.";
    ReceiptBloom = Full, "A receipt's bloom matches its logs.";
    Gas = Full, "Gas adds up: each receipt's cumulative gas is the sum so far, and the last one is the block's gas used.";
    ReceiptsRoot = Full, "The receipts are those that the header commits to; needs the header.";
    BlockBloom = Full, "The header's bloom matches all logs; needs the header.";
    Complete = Full, "The logs are all logs of the block's receipts; needs the receipts and the header.";
    AccountProof = Full, "The account's proof leads to the state root; needs the header.";
    StorageProof = Full, "The slots' proofs lead to the account's storage root.";
}

wellhead_word::words!(Check);

/// Why something was not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The level is [`Level::Off`].
    Off,
    /// There is no check for this method.
    Method,
    /// The answer is `null`: what that means is said by the method table.
    Null,
    /// The call's own parameters could not be understood in exactly one way.
    Params,
    /// The call asks for a pending block, which has no hash yet.
    Pending,
    /// The answer is larger than [`crate::CHEAP_BYTES_MAX`] or [`crate::FULL_BYTES_MAX`].
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// More signatures than [`crate::SENDERS_MAX`].
    TooManySenders,
    /// A member that a check needs is absent.
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A transaction or receipt of a type that is not known here.
    TransactionType {
        /// The type byte.
        kind: u64,
    },
    /// A transaction without a signature, as some chains make themselves.
    Unsigned,
    /// The header has a member that is not known here, and its hash differs.
    HeaderField {
        /// The member, shortened.
        field: String,
    },
    /// A header is needed and none is known.
    NoHeader,
    /// Uncles are named by hash only.
    UnclesByHash,
    /// It differs, but the chain is not known to follow Ethereum's rules here.
    Rules {
        /// What differs.
        check: Check,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("verifying is off"),
            Self::Method => f.write_str("no check for this method"),
            Self::Null => f.write_str("the answer is null"),
            Self::Params => f.write_str("the parameters can be read in more ways than one"),
            Self::Pending => f.write_str("the block is pending"),
            Self::TooLarge { bytes } => write!(f, "{bytes} bytes are too many"),
            Self::TooManySenders => f.write_str("too many signatures"),
            Self::Missing { field } => write!(f, "`{field}` is missing"),
            Self::TransactionType { kind } => write!(f, "transaction type {kind:#x} is not known"),
            Self::Unsigned => f.write_str("a transaction without a signature"),
            Self::HeaderField { field } => write!(f, "header field `{field}` is not known"),
            Self::NoHeader => f.write_str("no header is known to compare with"),
            Self::UnclesByHash => f.write_str("uncles are named by hash only"),
            Self::Rules { check } => write!(f, "`{check}` differs, by rules that are not known"),
        }
    }
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidAnswer {
    pub(crate) check: Check,
    pub(crate) detail: String,
}

impl InvalidAnswer {
    pub(crate) fn new(check: Check, detail: impl Into<String>) -> Self {
        Self { check, detail: detail.into() }
    }
}

/// What keeps a value from being read: it is wrong, or it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Void(InvalidAnswer),
    Doubt(Why),
}

impl From<InvalidAnswer> for Obstacle {
    fn from(void: InvalidAnswer) -> Self {
        Self::Void(void)
    }
}

impl From<Why> for Obstacle {
    fn from(why: Why) -> Self {
        Self::Doubt(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_words_and_differ() {
        let mut words: Vec<&str> = Check::ALL.iter().map(|check| check.word()).collect();
        assert!(words.iter().all(|word| word.bytes().all(|b| b == b'-' || b.is_ascii_lowercase())));
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Check::ALL.len());
    }
}
