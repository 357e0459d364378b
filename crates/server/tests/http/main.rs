//! The listeners over real sockets on 127.0.0.1: raw bytes where framing is
//! the question, hyper's client for HTTP/2.
//!
//! Waits are for events, under one generous guard that only ever fails; where
//! a timer of the server must fire, the test injects a tiny one and asserts
//! what happened, never when.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod acme;
mod admin;
mod bounds;
mod certificates;
mod compression;
mod cors;
mod counted;
mod drain;
mod flow;
mod framing;
mod http2;
#[path = "../../../watch/tests/support/log.rs"]
mod log;
mod proxied;
mod shares;
mod site;
mod tls;
mod websocket;
mod wire;
