//! Callers: keys by every way that clients have, limits, and what is told of them.
//!
//! The binary stands before an upstream of this process, which records what it is sent. What a key may not do, and
//! what a limit refuses, is compared with the tables of the code: status, code and headers.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

mod admin;
mod fairness;
mod fronts;
mod lasting;
mod limits;
mod secret;
mod site;
mod ways;
