//! Limits that three wellheads share, before a Valkey that is paused, killed, emptied, slow, cut off or wrong
//! about the time.
//!
//! Clients hunt the limit of one tenant at all three, and another tenant stays far below its own. No call
//! fails but by the limit of the first, and that one admits no more than `limit::lease` says. Bounds are of
//! the time that was measured, so they hold on a machine of any speed. What each phase let through is
//! printed.
//!
//! Their keys are in it as well, and are changed over the admin listener of one for all (`with_redis::keys`).
//!
//! The tests of `store` and `app` show the same of keepers and assemblies within one process.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

mod callers;
mod fleet;
mod with_redis;
