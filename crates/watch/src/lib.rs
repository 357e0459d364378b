//! The control loops: one per upstream, each following its head and its health.
//!
//! A loop verifies which chain its upstream is on before anything is believed of
//! it, then listens to newHeads where there is a WebSocket and polls where there
//! is none. It polls at the chain's own pace while clients ask, once a minute
//! while nobody does, and not at all while answers to clients tell the same. An
//! upstream that rests is probed when its rest ends; the probe, not a client's
//! call, finds out whether it is back.
//!
//! Requests never wait for a loop. [`Pulse`] is what the two sides share.

mod ask;
mod feed;
mod follow;
mod pulse;
mod word;

pub use ask::{Asked, Reason};
pub use follow::{Pace, Watcher};
pub use pulse::Pulse;
