//! The control loops: one per upstream, each following its head and its health.
//!
//! A loop verifies the chain id of its upstream before anything else is used, then subscribes to
//! newHeads if there is a WebSocket and that costs no more, and otherwise polls.
//! It polls at the chain's own pace while clients call, not at all while
//! answers to clients show the head, and while no client calls it makes one call a minute
//! of any kind. An upstream of a tier that serves no calls is idle, too (see the module `need`).
//! An upstream with an open breaker is probed when the open time ends, and twice a second
//! while clients call and no upstream is healthy; the probe, not a client's call, detects the
//! recovery. [`Checks`] sets which calls are made, and at what cost.
//!
//! Replicas that share a store have one loop ask for all of them (`peers`).
//!
//! A request waits for a loop only until the first upstream is verified. [`Pulse`] is what the two sides share.

mod ask;
mod block_hash;
mod budget;
mod checks;
mod doubt;
mod feed;
mod follow;
mod headers;
mod identify;
mod keep;
mod lead;
mod need;
mod peers;
mod poll;
mod price;
mod pulse;
mod relay;
mod seats;
mod state;
mod version;
mod watcher;
mod word;

pub use ask::{CallReason, CheckCounts, is_behind};
pub use checks::{CheckKind, CheckSet, Checks, FeedUse, Mode, PollPace};
pub use peers::{
    BEAT, BlockWord, ChainDemand, ChainPeers, ChainWord, HeadWord, MarksWord, PeerOutlet,
    ReplicaWord, Replicas, SentWord, StateWord, UpstreamWord,
};
pub use pulse::Pulse;
pub use relay::{RelayHandle, RelaySink, RelayStatus, Relays};
pub use seats::SeatRule;
pub use watcher::{Watcher, WatcherParts};
