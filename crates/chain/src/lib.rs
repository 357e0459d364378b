//! What we believe of one chain: who stands on which head, and which is the best.
//!
//! [`Heads`] takes observations (feeds, polls, and answers that happen to name a
//! block) and publishes an immutable [`View`]; a request pins one view and asks
//! it everything. Nothing here sleeps or reads a clock; `watch` feeds it.
//!
//! Not promised yet: agreement by hash. The best head is the highest that a
//! verified upstream reported.

mod heads;
mod pace;
mod view;

pub use heads::{Heads, News, Observation, Source};
pub use view::{Head, View};
