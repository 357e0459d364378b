//! Answers kept as long as they are true, and one upstream call for many who ask the same.
//!
//! # What is kept, and for how long
//!
//! A [`Pin`] says on which block an answer depends, from the method's row and the block
//! reference that goes upstream. [`Canon`] is what the view says of blocks.
//!
//! | the call | is kept | [`Hold`] |
//! |---|---|---|
//! | depends on no block (`web3_sha3`) | for ever | `Final` |
//! | names a height at or below the finalized one, or a range of such | for ever | `Final` |
//! | names a block by hash | until that is known to be orphaned | `Named`, `Final` once it is |
//! | names a height above it, and the answer tells its block's hash | until that block is orphaned | `Canonical` |
//! | the same, and the answer does not tell (`eth_call`) | not: nobody knows from which block it is | |
//! | finds something by hash (a receipt) | until the block that the answer names is orphaned | `Canonical`, or `Final` |
//! | speaks of the head (`eth_gasPrice`) | until the next head, and the settings' short time | `Head` |
//! | is sent with a tag, `pending`, to a pool, or writes | not | |
//!
//! Errors and answers not read to their end are never kept, nor is `null`, but for the
//! settings' short time where the method table says that it is an answer. Each decision
//! has a [`Reason`].
//!
//! # Why no answer of an orphaned block is served
//!
//! Not because somebody cleans up in time: each look-up asks the view of its own request
//! ([`Hold::under`]). What hangs on a block is served only where that view still has the
//! block as canonical. Cleaning up only frees memory early.

mod canon;
mod entry;
mod key;
mod memory;
mod pin;
mod reason;
mod rule;

pub use canon::{BlockId, Canon, Standing};
pub use entry::{Entry, EntryError, Hold, Kept, Use};
pub use key::{Ask, Key, PARAMS_BYTES_MAX, PARAMS_DEPTH_MAX};
pub use memory::{Hit, LARGEST_SHARE, Memory, MemoryStats, Settled};
pub use pin::{Pin, Point};
pub use reason::Reason;
pub use rule::{Answer, Times, rule};
