//! What tests of several crates share: a transport that plays a script, upstreams without
//! sockets, and verdicts. All of these run on a paused clock. A real Redis ([`RedisServer`]) does not.
//!
//! Start at [`ScriptedTransport`]. A node that knows a chain is `wellhead_sim`'s; what a test
//! asks of the proxy, or of a plan, stands in the support of that test.

mod ports;
mod redis;
mod transport;
mod upstream;

use std::time::{Duration, Instant};

pub use ports::free_port;
pub use redis::RedisServer;
pub use transport::{Act, Arrival, ScriptedTransport, Step, error, result, status};
pub use upstream::{named_by, settle, throttle, upstream, verdict, verified};

/// The time of tokio's clock, which a test may have paused.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// So many milliseconds.
pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// So many seconds.
pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
