//! The real proxy in a simulated world, on one thread, with one seed.
//!
//! From a seed a [`scenario`] is drawn: chains, upstreams and their [`weather`], clients
//! and their habits. The [`stage`] puts the real crates together over transports without
//! sockets, on tokio's paused clock; [`play`](mod@play) plays it, and each part writes
//! down what they see ([`evidence`]). The [`check`] ers then look at that from outside.
//!
//! Two runs of one seed do the same, down to the last line of the [`journal`]: what fails
//! once fails again, with the log. Sockets and real nodes are the business of `tests/e2e`;
//! the worlds and their nodes come from `crates/sim`.
//!
//! `cargo xtask sim --seeds 10000` plays many; a fixed set is played by `cargo test`.

pub mod ask;
pub mod check;
pub mod client;
mod crowd;
pub mod evidence;
pub mod feed;
pub mod filter;
pub mod journal;
mod keeper;
pub mod log;
pub mod meter;
pub mod play;
pub mod record;
pub mod relay;
pub mod sabotage;
pub mod scenario;
pub mod session;
mod silence;
pub mod stage;
pub mod subscriber;
mod subscribers;
pub mod upstream;
pub mod weather;
pub mod words;

pub use play::{Report, play, play_sabotaged, play_scenario};
pub use scenario::{Scale, Scenario};
