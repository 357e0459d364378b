//! What we believe of one chain: who stands on which head, and which one they agree on.
//!
//! [`Heads`] takes observations (feeds, polls, and answers that happen to name a
//! block) and publishes an immutable [`View`]; a request pins one view and asks
//! it everything. Nothing here sleeps or reads a clock; `watch` feeds it.
//!
//! - `agree`: the rules of agreement, and what they do not withstand
//! - `header`: the tree of recent headers
//! - `bloom`: which logs recent blocks may hold
//! - `reorg`: which blocks are canonical, and what was taken back
//! - `pace`: the time between blocks

mod agree;
mod bloom;
mod header;
mod heads;
mod pace;
mod reorg;
mod view;

pub use bloom::Bloom;
pub use heads::{Heads, News, Observation, Source};
pub use reorg::{Canonical, Reorg, Reorgs};
pub use view::{Head, Mark, Tag, View};
