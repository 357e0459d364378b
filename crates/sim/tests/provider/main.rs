//! Each dial of the fake provider, seen from outside by plain clients.
//!
//! Nothing here depends on how long things take: a limit is tested where its window
//! never ends during the test, or where a request is kept open by its own client. What
//! limits make of time is tested as formulas, in `provider::meter`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod chain;
mod client;
mod connection;
mod limit;
mod wire;
