//! JSON-RPC as bytes: what a client asks and what an upstream answers, found in
//! place and never rebuilt.
//!
//! Nothing here makes a document of a body. One pass over the bytes proves that
//! they are JSON and notes where the few interesting things are; ids, params and
//! results then travel as the ranges of bytes they came as, so no number can
//! lose digits on the way and no result is copied to be looked at.
//!
//! * [`parse`] reads what a client sent: a [`Packet`] of [`Call`]s.
//! * [`scan`] and [`scan_batch`] read what an upstream answered, [`scan_head`]
//!   reads as much as the first bytes tell, [`scan_error`] an error object, and
//!   [`scan_id`] finds whose a text is.
//! * [`raw`] looks into values already known to be valid, [`write`](mod@write)
//!   makes calls and replies.
//!
//! What methods mean, which block a call refers to and what an answer is worth
//! are the business of `eth` and `upstream`. HTTP is the business of `server`.
//!
//! # What a client may send
//!
//! | body | becomes |
//! |---|---|
//! | nothing, or only white space | [`ParseError::Empty`], -32700 |
//! | not JSON as RFC 8259 has it, or not UTF-8 (a BOM counts as neither) | [`ParseError::NotJson`], -32700 |
//! | a string with half a surrogate pair (`"\ud800"`) | [`ParseError::NotJson`]: JavaScript and Go shrug, Rust nodes refuse the whole body, and with it every call that shares it |
//! | nested deeper than [`ParseLimits::depth_max`] | [`ParseError::TooDeep`], -32600 |
//! | `[]` | [`ParseError::EmptyBatch`], -32600 |
//! | more items than [`ParseLimits::batch_items_max`] | [`ParseError::BatchTooLarge`], -32600; what follows is not read. It is answered under [`first_id`] |
//! | 4 GiB or more | [`ParseError::TooLarge`], -32600 |
//! | `[...]` | [`Packet::Batch`]; each item is judged alone |
//! | anything else | [`Packet::Single`] |
//!
//! # What an item may be
//!
//! | item | becomes |
//! |---|---|
//! | `1`, `"x"`, `null`, `[..]` (inside a batch) | [`MalformedReason::NotAnObject`] |
//! | any key twice, however it is escaped (`id` and `\u0069d`) | [`MalformedReason::DuplicateKey`]: two readers would see two different calls |
//! | `jsonrpc` absent, or a string that reads `2.0` | accepted |
//! | any other `jsonrpc` (`2.0` without quotes, `"1.0"`, `null`) | [`MalformedReason::WrongVersion`] |
//! | `id` absent | a notification |
//! | `id` a string, any number, or `null` | a call; the id's bytes are kept (`1`, `1.0`, `1e0` and `"1"` are four ids) |
//! | `id` a boolean, array or object | [`MalformedReason::IdNotScalar`] |
//! | `method` absent | [`MalformedReason::MethodMissing`] |
//! | `method` not a string | [`MalformedReason::MethodNotAString`] |
//! | `params` absent or `null` | no params |
//! | `params` an array or an object | kept as written |
//! | `params` anything else | [`MalformedReason::ParamsNotStructured`] |
//! | other keys | ignored |
//!
//! When several things are wrong with an item, the first in the table is told.
//! Numbers beyond any machine's range (`1e999`) are JSON and are kept.
//!
//! # What an upstream may answer
//!
//! [`scan`] validates the whole text, the values it does not look into as well,
//! so that a client is never handed a text that its own parser refuses. What one
//! could save by following strings and brackets only is little, because nearly
//! all bytes are inside strings: on 300 KB of logs, finding where the strings end
//! costs 73 to 89 us, validating everything 94, `serde_json` 99. Half surrogate
//! pairs pass here: they are legal JSON, and the answer is the upstream's word.
//!
//! # What it costs
//!
//! From `cargo bench -p wellhead-jsonrpc` on a virtual machine that copies 300 KB
//! in 7 us and checks them for UTF-8 in 8; compare with those before comparing
//! with another machine.
//!
//! | | ns |
//! |---|---|
//! | [`parse`] of a 200 B `eth_call`, of which 24 are for counting the body's owners | 140 |
//! | [`parse`] of 20 such calls | 3 200 |
//! | [`scan_head`] when the id leads | 10 |
//! | [`scan`] of a 58 B reply | 54 |
//! | [`scan`] of 300 KB of logs | 94 000 |
//! | [`scan`] of one hex string of 300 KB | 12 200 |
//! | [`write::call`] | 23 |

mod call;
mod envelope;
mod error;
mod head;
mod id;
mod json;
mod nesting;
mod parse;
pub mod raw;
mod span;
mod text;
pub mod write;

pub use call::{Call, Packet};
pub use envelope::{Envelope, ReplyOutcome, scan, scan_batch};
pub use error::{Malformed, MalformedReason, ParseError, ScanError};
pub use head::{ReplyHead, scan_head};
pub use id::scan_id;
pub use nesting::Nesting;
pub use parse::{ParseLimits, first_id, parse};
pub use raw::{ErrorObject, scan_error};
pub use span::Span;
