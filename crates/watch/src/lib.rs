//! The control loops: one per upstream, each following its head and its health.
//!
//! A loop verifies which chain its upstream is on before anything is believed of
//! it, then listens to newHeads where there is a WebSocket and that costs no more, and polls
//! where it does. It polls at the chain's own pace while clients ask, not at all while
//! answers to clients tell the same, and while nobody asks it makes one call a minute,
//! whatever for. An upstream of a tier that serves no calls is idle, too (see the module `need`). An upstream that rests is probed when its rest ends, and twice a second
//! while clients ask and no upstream is well; the probe, not a client's call, finds out
//! whether it is back. What is asked at all, and at what cost, is [`Checks`].
//!
//! Requests never wait for a loop. [`Pulse`] is what the two sides share.

mod ask;
mod block_hash;
mod budget;
mod checks;
mod doubt;
mod fall;
mod feed;
mod follow;
mod identify;
mod need;
mod poll;
mod price;
mod pulse;
mod state;
mod version;
mod watcher;
mod word;

pub use ask::{CallReason, CheckCounts};
pub use checks::{CheckKind, CheckSet, Checks, FeedUse, Mode, PollPace};
pub use pulse::Pulse;
pub use watcher::{Watcher, WatcherParts};
