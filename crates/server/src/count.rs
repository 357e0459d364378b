//! The counters of the listeners: atomics inside, one plain copy for readers.
//!
//! Each request is counted once by the status of its answer when its place is given back
//! ([`crate::ticket`]), also when it had none. What the calls in it were is for the handler
//! to count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wellhead_limit::Held;

use crate::protocol::ClientProtocol;
use crate::ws_end::WsEnd;
use crate::{HandshakeFailure, HttpRefusal, ProxyFailure};

/// The statuses that are counted; all others share one more counter. 499 is no answer: the
/// client disconnected before there was one. 503 counts requests cut off by the end of the drain too.
pub const STATUSES: [u16; 17] =
    [101, 200, 204, 400, 403, 404, 405, 408, 413, 415, 426, 429, 431, 499, 500, 501, 503];

/// A copy of all counts at one moment. `_total` only grow; the rest are gauges. The counters that
/// they are read from are named the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts<C = u64, G = usize> {
    /// Connections open now, also those that have not said their protocol yet.
    pub connections_open: G,
    /// Of these, speaking HTTP/1.
    pub http1_open: G,
    /// Of these, speaking HTTP/2.
    pub http2_open: G,
    /// Of these, upgraded to WebSocket.
    pub websocket_open: G,
    /// Connections accepted.
    pub accepted_total: C,
    /// HTTP/1 connections so far.
    pub http1_total: C,
    /// HTTP/2 connections so far.
    pub http2_total: C,
    /// Connections upgraded to WebSocket so far; each was counted as one of HTTP/1 before.
    pub websocket_total: C,
    /// How WebSocket connections ended, in the order of [`WsEnd::ALL`].
    pub websocket_ended: [C; WsEnd::ALL.len()],
    /// TLS handshakes that succeeded.
    pub tls_total: C,
    /// TLS handshakes that failed, in the order of [`HandshakeFailure::ALL`].
    pub tls_failed: [C; HandshakeFailure::ALL.len()],
    /// Connections closed before their client was known, in the order of [`ProxyFailure::ALL`].
    pub proxy_failed: [C; ProxyFailure::ALL.len()],
    /// Times that accepting failed, for want of file descriptors for example.
    pub accept_failures_total: C,
    /// Connections closed because they were idle.
    pub idle_closed_total: C,
    /// Connections dropped because a request head did not arrive in time.
    pub slow_head_total: C,
    /// Connections and streams dropped because the client did not read.
    pub slow_reader_total: C,
    /// Connections that let too many answers wait.
    pub hoarders_total: C,
    /// HTTP/2 connections ended for more resets or errors of streams than can be meant.
    pub floods_total: C,
    /// Connections that gave way to those of other clients when all places were taken.
    pub displaced_total: C,
    /// Connections ended by something that is not HTTP, or over its limits.
    pub bad_http_total: C,
    /// Connections dropped because the drain time was over.
    pub drain_dropped_total: C,
    /// Requests that ended, in the order of [`STATUSES`]; at last those of any other status.
    pub statuses: [C; STATUSES.len() + 1],
    /// Requests under way now.
    pub requests_open: G,
    /// Bytes of request bodies held now; bodies up to 16 KiB are not counted.
    pub bodies_bytes: G,
    /// Answers that wait for clients that do not take them.
    pub answers_waiting: G,
    /// Bytes of these.
    pub answers_waiting_bytes: G,
    /// Answers sent compressed.
    pub compressed_total: C,
    /// Large answers sent uncompressed because all compression jobs were busy.
    pub compression_skipped_total: C,
    /// Refusals, in the order of [`HttpRefusal::ALL`].
    pub refused: [C; HttpRefusal::ALL.len()],
}

impl ServerCounts {
    /// How often `refusal` happened.
    pub fn refused(&self, refusal: HttpRefusal) -> u64 {
        self.refused[refusal as usize]
    }

    /// How many requests were answered with this status, which is one of [`STATUSES`].
    pub fn answered(&self, status: u16) -> u64 {
        self.statuses[place(status)]
    }

    /// How many connections were closed so before their client was known.
    pub fn proxy_failed(&self, failure: ProxyFailure) -> u64 {
        self.proxy_failed[failure as usize]
    }

    /// How many TLS handshakes failed so.
    pub fn tls_failed(&self, failure: HandshakeFailure) -> u64 {
        self.tls_failed[failure as usize]
    }
}

fn place(status: u16) -> usize {
    STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len())
}

/// The counters themselves.
pub(crate) type ServerCounters = ServerCounts<AtomicU64, Held>;

impl ServerCounters {
    /// A connection speaks `protocol` from now on.
    pub(crate) fn open(&self, protocol: ClientProtocol) {
        let (total, open) = match protocol {
            ClientProtocol::Http1 => (&self.http1_total, &self.http1_open),
            ClientProtocol::Http2 => (&self.http2_total, &self.http2_open),
            ClientProtocol::WebSocket => (&self.websocket_total, &self.websocket_open),
        };
        Self::add(total);
        open.raise(1);
    }

    /// A connection that was counted by [`Self::open`] has ended.
    pub(crate) fn close(&self, protocol: ClientProtocol) {
        let open = match protocol {
            ClientProtocol::Http1 => &self.http1_open,
            ClientProtocol::Http2 => &self.http2_open,
            ClientProtocol::WebSocket => &self.websocket_open,
        };
        open.lower(1);
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self, refusal: HttpRefusal) {
        Self::add(&self.refused[refusal as usize]);
    }

    pub(crate) fn end_request(&self, status: u16) {
        Self::add(&self.statuses[place(status)]);
    }

    pub(crate) fn fail_handshake(&self, failure: HandshakeFailure) {
        Self::add(&self.tls_failed[failure as usize]);
    }

    pub(crate) fn read(&self) -> ServerCounts {
        fn all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
            counters.each_ref().map(|counter| counter.load(Relaxed))
        }
        ServerCounts {
            connections_open: self.connections_open.get(),
            http1_open: self.http1_open.get(),
            http2_open: self.http2_open.get(),
            websocket_open: self.websocket_open.get(),
            accepted_total: self.accepted_total.load(Relaxed),
            http1_total: self.http1_total.load(Relaxed),
            http2_total: self.http2_total.load(Relaxed),
            websocket_total: self.websocket_total.load(Relaxed),
            websocket_ended: all(&self.websocket_ended),
            tls_total: self.tls_total.load(Relaxed),
            tls_failed: all(&self.tls_failed),
            proxy_failed: all(&self.proxy_failed),
            accept_failures_total: self.accept_failures_total.load(Relaxed),
            idle_closed_total: self.idle_closed_total.load(Relaxed),
            slow_head_total: self.slow_head_total.load(Relaxed),
            slow_reader_total: self.slow_reader_total.load(Relaxed),
            hoarders_total: self.hoarders_total.load(Relaxed),
            floods_total: self.floods_total.load(Relaxed),
            displaced_total: self.displaced_total.load(Relaxed),
            bad_http_total: self.bad_http_total.load(Relaxed),
            drain_dropped_total: self.drain_dropped_total.load(Relaxed),
            statuses: all(&self.statuses),
            requests_open: self.requests_open.get(),
            bodies_bytes: self.bodies_bytes.get(),
            answers_waiting: self.answers_waiting.get(),
            answers_waiting_bytes: self.answers_waiting_bytes.get(),
            compressed_total: self.compressed_total.load(Relaxed),
            compression_skipped_total: self.compression_skipped_total.load(Relaxed),
            refused: all(&self.refused),
        }
    }
}
