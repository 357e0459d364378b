//! Whether an answer can be true.
//!
//! [`verify`] is told the method, the raw parameters, the raw result and what is
//! [`KnownFacts`], and says that the result is [`AnswerFinding::Sound`], that it is `Void`, or that
//! something stood in the way of knowing. At the level `cheap` an answer is compared with
//! the call and with itself; at `full` everything is recomputed that can be: block,
//! transaction and receipt hashes, tries, blooms, signatures, proofs. Each check, with
//! its methods and its cost, is listed in `docs/verify.md`, which is written from here.
//!
//! All functions are pure, and none panics, whatever the bytes are. They do not fetch
//! what would be needed to know more, do not compare upstreams, and do not decide what
//! becomes of a void answer: `proxy` asks, and `dispatch` sees to that. What `null` means is said
//! by the method table.
//!
//! `Void` has to be certain, because a good answer that is thrown away is an outage. So
//! what another fork or another chain may do otherwise is `NotChecked`, and a mismatch in
//! anything recomputed is `Void` only under [`Rules::Ethereum`].

mod audit;
mod block;
pub mod docs;
mod finding;
mod header;
mod json;
mod log;
mod method;
mod proof;
mod receipt;
mod rlp;
mod transaction;

pub use alloy_primitives::Address;
pub use audit::{KnownFacts, Rules};
pub use finding::{AnswerFinding, Check, Level, Why};
pub use header::HeaderFacts;
pub use log::{Filter, LogProof, Sieve, Sifted, prove_logs};
pub use method::{has_checks, verify};
pub use transaction::{RawTransaction, sender_of_raw};

/// Longest answer that is looked at, in bytes: about 50 ms of one core at the level `cheap`.
/// A longer one is [`Why::TooLarge`].
pub const CHEAP_BYTES_MAX: usize = 16 << 20;
/// Longest answer that is recomputed, in bytes: larger than any block of today. A longer
/// one is looked at as at the level `cheap`, and is [`Why::TooLarge`] if that finds nothing.
pub const FULL_BYTES_MAX: usize = 8 << 20;
/// Most signatures that are recovered for one answer: each takes a good part
/// of a millisecond. Those that follow are left alone, with [`Why::TooManySenders`].
pub const SENDERS_MAX: usize = 1024;
