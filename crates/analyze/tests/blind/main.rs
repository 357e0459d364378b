//! Experiments against providers whose limits were drawn from a seed. What was drawn is looked at
//! only when the verdict is there: each has to name the right kind and the right figure, and that
//! there is no limit where there is none.
//!
//! Time is paused: what is waited for passes when no task has anything to do. The processor's time
//! goes on meanwhile, so the generator is told that it had enough; `overload` is about what happens
//! when it had not.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod cost;
mod crowd;
mod harness;
mod in_flight;
mod load;
mod overload;
mod rate;
mod soak;
mod streams;
mod throttle;
mod window;

#[path = "../support/mod.rs"]
mod support;
