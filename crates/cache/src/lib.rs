//! Answers that are cached for as long as they are valid, and coalescing of identical calls.
//!
//! # What is cached, and for how long
//!
//! A [`Pin`] says on which block an answer depends, from the method's row and the block
//! reference that goes upstream. [`Canon`] is the view's knowledge about blocks.
//!
//! | the call | is kept | [`Validity`] |
//! |---|---|---|
//! | depends on no block (`web3_sha3`) | forever | `Final` |
//! | names a height at or below the finalized one, or a range of such | forever | `Final` |
//! | names a block by hash | until that is known to be orphaned | `Named`, `Final` once it is |
//! | names a height above it, and the answer names its block's hash | until that block is orphaned | `Canonical` |
//! | names a height above it, and the answer names no block (`eth_call`) | never: its block is unknown | |
//! | finds something by hash (a receipt) | until the block that the answer names is orphaned | `Canonical`, or `Final` |
//! | depends on the head (`eth_gasPrice`) | until the next head, at most the short time of the settings | `Head` |
//! | is sent with a tag or `pending`, reads a pool, or writes | never | |
//!
//! Errors and incomplete answers are never cached. `null` is cached only if the method table
//! says that it is an answer, for the short time of the settings. Each decision has a
//! [`Reason`].
//!
//! # Why no answer of an orphaned block is served
//!
//! Correctness does not depend on timely clean-up: each look-up asks the view of its own request
//! ([`Validity::under`]). What hangs on a block is served only where that view still has the
//! block as canonical. Cleaning up only frees memory early.
//!
//! # A request
//!
//! ```
//! use wellhead_cache::*;
//! # use wellhead_eth::{BlockHash, BlockNumber, ChainId, MethodTable};
//! # struct View;
//! # impl Canon for View {
//! #     fn head(&self) -> Option<BlockNumber> { Some(BlockNumber(100)) }
//! #     fn finalized(&self) -> Option<BlockNumber> { Some(BlockNumber(90)) }
//! #     fn hash_at(&self, _: BlockNumber) -> Option<BlockHash> { None }
//! #     fn number_of(&self, _: &BlockHash) -> Option<BlockNumber> { None }
//! # }
//! # let (pinned_view, newest_view, now_ms, required) = (View, View, 0, Assurance::WORD);
//! # let memory = Memory::new(64 << 20, 42);
//! # let flights: Flights<bytes::Bytes> = Flights::new(FlightLimits::default(), 42);
//! # fn ask_upstreams() -> &'static [u8] { b"\"0x1\"" }
//! # let get = || -> Result<bytes::Bytes, Reason> {
//! let row = MethodTable::standard().row("eth_getBalance");
//! let params = Some(&br#"["0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","0x50"]"#[..]);
//!
//! // The reference as it goes upstream: the replacement of `latest`, if it was replaced.
//! let sent = row.block_ref(params);
//! let pin = Pin::of(row, sent, &pinned_view)?; // `Err`: neither cached nor shared, with the reason
//! let head = pinned_view.head();
//! let ask = CacheRequest { chain: ChainId(1), row, params, pin, head, salt: b"" };
//! let key = Key::of(&ask)?; // `Err`: as above
//!
//! if let Some(hit) = memory.get(&key, &pinned_view, required, now_ms) {
//!     return Ok(hit.value);
//! }
//! match flights.join(FlightKey { key: key.clone(), head }) {
//!     Joined::Lead(lead) => {
//!         if let Some(hit) = memory.get(&key, &pinned_view, required, now_ms) {
//!             lead.land(hit.value.clone()); // the flight before this one had just landed
//!             return Ok(hit.value);
//!         }
//!         let result = ask_upstreams(); // if it is dropped, another one leads
//!         let ruling = rule(&ask, ReplyContent::Result(result), &newest_view, Times::default(), now_ms);
//!         memory.put(&key, ruling, result); // before it lands, so that the next call finds it
//!         let result = bytes::Bytes::copy_from_slice(result);
//!         lead.land(result.clone()); // or `fail`, or `part` when the answer is streamed
//!         Ok(result)
//!     }
//!     Joined::Follow(follow) => wait_for(follow), // within the request's own deadline
//!     Joined::Alone => Ok(bytes::Bytes::from_static(ask_upstreams())),
//! }
//! # };
//! # fn wait_for(_: Follow<bytes::Bytes>) -> Result<bytes::Bytes, Reason> { Err(Reason::Off) }
//! # assert_eq!(get().unwrap(), "\"0x1\"");
//! # assert_eq!(get().unwrap(), "\"0x1\"");
//! # assert_eq!(memory.stats().hits, 1);
//! ```
//!
//! The control plane calls [`Memory::settle`] after each change of a chain's finalized block
//! and after each reorg.
//!
//! # What is deliberately not here
//!
//! Sockets, tasks, clocks: `now_ms` is passed in, milliseconds of a clock that all sharers of
//! the entries use. Other tiers: they store [`Entry::encode`] under [`Key::digest`], and
//! [`Memory::adopt`] takes what they find. Judging answers, and replacing tags. Some chains
//! complete the fields of a receipt later (ZKsync's `l1BatchNumber`): this crate does not know
//! that, so the receipts of their finalized block must be complete.
//!
//! # What it costs
//!
//! From `cargo bench -p wellhead-cache` on a busy virtual machine of two cores, the best of
//! two runs; `serde_json` takes 600 ns there to read and write the `eth_call`'s parameters.
//!
//! | | ns |
//! |---|---|
//! | [`Key::of`] an `eth_getBalance`, 55 B of parameters | 82 |
//! | of an `eth_call`, 146 B | 159 |
//! | of an `eth_getLogs`, 260 B | 329 |
//! | of an `eth_call` with 5 KB of data | 3 160 |
//! | [`Key::digest`] | 145 |
//! | [`Memory::get`], a hit that asks the view, of 50 000 entries | 72 |
//! | a hit of what is final | 64 |
//! | a miss | 32 |
//! | key and hit of an `eth_call` together | 231 |
//! | [`Memory::put`] of 20 B | 119 |
//! | a flight begun and landed | 225 |

mod assurance;
mod canon;
mod entry;
mod flight;
mod key;
mod memory;
mod pin;
mod reason;
mod rule;

pub use assurance::{Assurance, Scrutiny};
pub use canon::{BlockId, BlockStatus, Canon};
pub use entry::{Entry, Retention, Use, Validity};
pub use flight::{
    FlightKey, FlightLimits, FlightStats, Flights, Follow, FollowEnd, Joined, LEADS_MAX, Lead,
};
pub use key::{CacheRequest, Key, PARAMS_BYTES_MAX, PARAMS_DEPTH_MAX};
pub use memory::{Hit, LARGEST_SHARE, Memory, MemoryStats, SettleStats};
pub use pin::{Pin, Point};
pub use reason::Reason;
pub use rule::{ReplyContent, Times, may_be_kept, rule};
