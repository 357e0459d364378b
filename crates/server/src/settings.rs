//! Every bound of the listeners, with its default and its reason.
//!
//! These are resolved values; how they are written in the config file, and what cannot work, is
//! known to `app` alone.

use std::time::Duration;

use crate::{Hosts, ProxyProtocol};

/// The bounds of one [`crate::Server`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// Open connections over all workers. At the bound a new one takes the place of the longest
    /// idle of the address that has most, or is told 503 and closed.
    pub connections_max: usize,
    /// Open connections of one IPv4 address, or one IPv6 /64, over all workers. At the bound
    /// a new one is told 429 and closed. `None`: no bound, as behind a balancer all clients
    /// may have one address.
    pub connections_per_peer_max: Option<usize>,
    /// Whether each client address (one /64 of IPv6) may hold its share alone of what is
    /// bounded here: connections, requests, bodies, answers that wait, handshakes. Behind a
    /// balancer that hides its clients there is one address.
    pub shares: bool,
    /// Requests being read, answered or written over all workers. At the bound: 503.
    pub requests_max: usize,
    /// Answers that wait for clients that do not take them; their requests are not counted
    /// among those under way. At the bound a connection that takes nothing is ended.
    pub waiting_max: usize,
    /// Bytes of these. At the bound a connection that takes nothing is ended.
    pub waiting_bytes_max: usize,
    /// TLS handshakes under way, each of which has said something. At the bound one that waits
    /// for its client gives way to a new one, which is closed where there is none.
    pub handshakes_max: usize,
    /// Streams of one HTTP/2 connection, at most 65,535. At the bound the client queues them
    /// itself.
    pub streams_max: u32,
    /// Request line and headers of one request. Over it: 431. At least 1 KiB, at most 256 KiB.
    pub head_bytes_max: usize,
    /// One request body, as sent and as inflated. Over it: 413.
    pub body_bytes_max: usize,
    /// All request bodies held at one moment, over all workers; bodies up to
    /// 16 KiB are not counted. At the bound: 503.
    pub bodies_bytes_max: usize,
    /// From the first byte of a request head to its last, and from the
    /// connection to its first byte; before that a TLS handshake has this long, and a header of
    /// the PROXY protocol. Over it the
    /// connection is dropped.
    pub head_timeout: Duration,
    /// From the head of a request to the last byte of its body. Over it: 408.
    pub body_timeout: Duration,
    /// How long a connection may stay without a request. The default is over
    /// the 60 s of common load balancers: if the server closes first, a request is lost.
    pub idle_timeout: Duration,
    /// How long a client may take to accept 16 KiB of an answer. Over it the
    /// connection (HTTP/2: the stream) is dropped.
    pub write_timeout: Duration,
    /// A connection that takes nothing (16 KiB) for this long while many answers wait for it is
    /// ended; a fifth of it is enough where the bounds of such answers are reached.
    pub stall_timeout: Duration,
    /// An HTTP/2 connection is pinged this often while it has streams.
    pub ping_interval: Duration,
    /// An HTTP/2 client that does not answer a ping for this long is dropped.
    pub ping_timeout: Duration,
    /// A WebSocket client that was silent for this long is pinged.
    pub silence_ping: Duration,
    /// A WebSocket client that was silent for this long is dropped. More than two pings.
    pub silence_timeout: Duration,
    /// How long answers under way may take once draining began; the default
    /// leaves room inside the 30 s that Kubernetes gives.
    pub drain_timeout: Duration,
    /// How long an idle HTTP/1.1 connection stays open once a drain begins after a hand-over, so that a request
    /// already on its way is answered. At most half of the drain. A restart without a hand-over closes idle
    /// connections at once, because a client that reconnects meanwhile finds no listener.
    pub late_request_time: Duration,
    /// Compression of answers.
    pub compression: Compression,
    /// Origins whose web pages may call; `*` for all, empty for none.
    pub cors_origins: Vec<String>,
    /// The names under which requests are answered; under another one: 403.
    pub hosts: Hosts,
    /// Whether connections begin with a header of the PROXY protocol.
    pub proxy_protocol: ProxyProtocol,
    /// Whether requests that no handler sees leave a line in the log.
    pub log_requests: bool,
    /// Whether `traceparent` of requests is read.
    pub trace_parents: bool,
}

/// When answers are compressed (zstd or gzip, as the client accepts).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    /// Whether answers are compressed at all.
    pub enabled: bool,
    /// Smaller answers go as they are: they fit few packets, and compressing
    /// costs more than a whole proxied call.
    pub bytes_min: usize,
    /// Up to here the worker compresses by itself, in slices; larger answers go
    /// to a thread of their own.
    pub inline_bytes_max: usize,
    /// Large answers compressed at one moment. At the bound they go uncompressed.
    pub jobs_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            connections_per_peer_max: None,
            shares: true,
            requests_max: 32_768,
            waiting_max: 8192,
            waiting_bytes_max: 128 * 1024 * 1024,
            handshakes_max: 1024,
            streams_max: 256,
            head_bytes_max: 16 * 1024,
            body_bytes_max: 10 * 1024 * 1024,
            bodies_bytes_max: 256 * 1024 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            silence_ping: Duration::from_secs(30),
            silence_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(25),
            late_request_time: Duration::from_secs(1),
            compression: Compression::default(),
            cors_origins: Vec::new(),
            hosts: Hosts::Any,
            proxy_protocol: ProxyProtocol::default(),
            log_requests: true,
            trace_parents: false,
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self { enabled: true, bytes_min: 4096, inline_bytes_max: 256 * 1024, jobs_max: 4 }
    }
}

impl Settings {
    /// Bounds fit for the admin listener: few clients, small request bodies, and no names but those
    /// of this machine.
    pub fn admin() -> Self {
        Self {
            connections_max: 64,
            requests_max: 64,
            streams_max: 16,
            body_bytes_max: 64 * 1024,
            bodies_bytes_max: 1024 * 1024,
            drain_timeout: Duration::from_secs(1),
            hosts: Hosts::LOCAL,
            log_requests: false,
            ..Self::default()
        }
    }
}
