//! Chain words and the method table.
//!
//! What a chain, a block and a method are called everywhere else: [`ChainId`],
//! [`BlockNumber`], [`BlockRef`], and [`MethodTable`], the one place that says
//! what a method does, which block it speaks of and how long its answer lasts.
//!
//! Nothing here knows an upstream, a head or a clock: whether `latest` is block
//! 20 000 000 is for `chain`, which upstreams can serve it is for `route`.
//! The table itself is `data/methods.txt`; start with [`method`] to read it.

mod at_hash;
mod block;
mod bloom;
mod canonical;
pub mod docs;
mod filter;
mod glob;
pub mod hex;
mod id;
mod log_pattern;
mod member;
pub mod method;
mod named_contract;
mod param;
mod pin;
mod table;
mod transaction;

pub use at_hash::BY_HASH_METHODS;
pub use block::{BlockPoint, BlockRef, BlockTag};
pub use bloom::{Bloom, BloomBits};
pub use canonical::canonical;
pub use filter::FilterShape;
pub use glob::{GLOB_BYTES_MAX, MethodGlob, MethodGlobError};
pub use id::{BlockHash, BlockNumber, ChainId, NumberError, NumberedBlock, TransactionHash};
pub use log_pattern::{
    AddressBytes, LogPattern, LogPatternBounds, LogPatternError, PatternBits, TOPICS_MAX,
    TopicBytes,
};
pub use member::{AmbiguousMember, find_members};
pub use method::{Access, CostClass, Data, Effect, Finality, MethodIndex, MethodRow, StickyRole};
pub use named_contract::UnnamedContracts;
pub use param::BlockParam;
pub use pin::Pinned;
pub use table::MethodTable;
pub use transaction::{keccak256, raw_transaction, raw_transaction_hash, transaction_hash};
