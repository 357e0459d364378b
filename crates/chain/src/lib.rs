//! The state of one chain: the head of each upstream, and the head on which they agree.
//!
//! [`Heads`] takes observations (feeds, polls, and answers that happen to name a
//! block) and publishes an immutable [`View`]; a request pins one view and uses
//! it throughout. Nothing here sleeps or reads a clock; `watch` feeds it.
//!
//! - `agree`: the rules of agreement, and what they do not cover
//! - `header`: the tree of recent headers
//! - `bloom`: which logs recent blocks may hold
//! - `reorg`: which blocks are canonical, and which were replaced
//! - `pace`: the time between blocks

mod agree;
mod bloom;
mod header;
mod heads;
mod pace;
mod reorg;
mod view;

pub use agree::HeadsTerms;
pub use heads::{Heads, News, Observation, Source};
pub use reorg::{Canonical, Reorg, Reorgs};
pub use view::{Mark, Tag, UpstreamHead, View};
