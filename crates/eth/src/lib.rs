//! Chain words.
//!
//! What a chain, a block and a method are called everywhere else: [`ChainId`],
//! [`BlockNumber`], [`BlockRef`], [`MethodGlob`].
//!
//! Nothing here knows an upstream, a head or a clock: whether `latest` is block
//! 20 000 000 is for `chain`, who can serve it for `route`.

mod block;
mod glob;
pub mod hex;
mod id;
mod transaction;
mod word;

pub use block::{BlockPoint, BlockRef, BlockTag, UnknownTag};
pub use glob::{GLOB_BYTES_MAX, MethodGlob, MethodGlobError};
pub use id::{BlockHash, BlockNumber, ChainId, NumberError, TransactionHash};
pub use transaction::{keccak256, raw_transaction_hash, transaction_hash};
