//! Every bound and wait of the client side, with its reason.
//!
//! Plain numbers only: where they come from (config file, provider profile) is
//! `app`'s business.

use std::time::Duration;

/// Bounds of one upstream's connections, per worker thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Name look-up, TCP and TLS together.
    pub connect_timeout: Duration,
    /// How long a plain-text peer may keep silent after the HTTP/2 preface
    /// before it is taken for an HTTP/1.1 server. Delays the first exchange at most once.
    pub detect_timeout: Duration,
    /// HTTP/1.1 connections open at once; more exchanges wait.
    pub connections_max: usize,
    /// Connection attempts under way at once, so that a burst does not become
    /// a storm on the upstream's accept queue.
    pub connects_max: usize,
    /// Exchanges waiting for a connection; one more fails with `PoolFull`.
    pub queue_max: usize,
    /// An unused connection is closed after this; below the 75 s after which
    /// many servers close theirs, so that the race is rare.
    pub idle: Duration,
    /// A connection is replaced after this (up to a tenth earlier, by jitter),
    /// so that load balancers and changed names get a chance.
    pub age_max: Duration,
    /// HTTP/2 connections kept while there is traffic.
    pub h2_connections_min: usize,
    /// HTTP/2 connections open at once.
    pub h2_connections_max: usize,
    /// Streams in flight on one HTTP/2 connection; below the 100 that many
    /// servers allow, some without announcing it.
    pub h2_streams_max: usize,
    /// Requests after which an HTTP/2 connection is replaced; `None` as they are learnt.
    pub h2_requests_max: Option<u64>,
    /// Streams in flight before the peer's SETTINGS are known.
    pub h2_streams_before_settings: usize,
    /// A ping is sent this long after the last one while streams are open.
    pub h2_ping_interval: Duration,
    /// A ping without an answer for this long ends the connection.
    pub h2_ping_timeout: Duration,
    /// WebSocket connections open at once, where calls travel over them. Few that are
    /// well filled cost less than many; providers bound them by the account.
    pub ws_connections_max: usize,
    /// Calls in flight on one WebSocket connection. What is abandoned there goes on at
    /// the upstream and counts until it is answered.
    pub ws_calls_max: usize,
    /// A WebSocket connection on which nothing arrived for this long is sent a ping.
    pub ws_ping_interval: Duration,
    /// When nothing at all arrives for this long after a ping, or the peer reads nothing,
    /// the connection is taken to be dead.
    pub ws_ping_timeout: Duration,
    /// Largest answer that is buffered whole, after content encodings are undone.
    /// One that is read on demand (`Exchange::whole_max`) is held nowhere and may
    /// be longer. Over WebSocket nothing is read on demand, and none may be longer.
    pub answer_bytes_max: usize,
    /// Whether to offer gzip and deflate; `None` offers them over TLS only,
    /// where bytes usually cost more than time.
    pub compression: Option<bool>,
    /// Whether an exchange that its connection certainly did not process is sent again, once,
    /// over another one. Off for measurements of what an upstream refuses.
    pub resend: bool,
    /// Whether the peer is sent a `traceparent` with each exchange that belongs to a trace. Over HTTP alone.
    pub propagate_trace: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            detect_timeout: Duration::from_millis(500),
            connections_max: 256,
            connects_max: 32,
            queue_max: 1024,
            idle: Duration::from_secs(60),
            age_max: Duration::from_secs(600),
            h2_connections_min: 1,
            h2_connections_max: 8,
            h2_streams_max: 90,
            h2_requests_max: None,
            h2_streams_before_settings: 8,
            h2_ping_interval: Duration::from_secs(20),
            h2_ping_timeout: Duration::from_secs(10),
            ws_connections_max: 4,
            ws_calls_max: 90,
            ws_ping_interval: Duration::from_secs(10),
            ws_ping_timeout: Duration::from_secs(5),
            answer_bytes_max: 128 << 20,
            compression: None,
            resend: true,
            propagate_trace: false,
        }
    }
}
