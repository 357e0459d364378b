//! The counters of the listeners: atomics inside, one plain copy for readers.
//!
//! Each request is counted once by the status of its answer when its place is given back
//! ([`crate::ticket`]), also when it had none. What the calls in it were is for the handler
//! to count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use wellhead_limit::Held;

use crate::protocol::ClientProtocol;
use crate::ws_end::WsEnd;
use crate::{HandshakeFailure, HttpRefusal, ProxyFailure};

/// The statuses that are counted; all others share one more counter. 499 is no answer: the
/// client disconnected before there was one. 503 counts requests cut off by the end of the drain too.
pub const STATUSES: [u16; 17] =
    [101, 200, 204, 400, 403, 404, 405, 408, 413, 415, 426, 429, 431, 499, 500, 501, 503];

/// A copy of all counts at one moment. `_total` only grow; the rest are gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections open now, also those that have not said their protocol yet.
    pub connections_open: usize,
    /// Of these, speaking HTTP/1.
    pub http1_open: usize,
    /// Of these, speaking HTTP/2.
    pub http2_open: usize,
    /// Of these, upgraded to WebSocket.
    pub websocket_open: usize,
    /// Connections accepted.
    pub accepted_total: u64,
    /// HTTP/1 connections so far.
    pub http1_total: u64,
    /// HTTP/2 connections so far.
    pub http2_total: u64,
    /// Connections upgraded to WebSocket so far; each was counted as one of HTTP/1 before.
    pub websocket_total: u64,
    /// How WebSocket connections ended, in the order of [`WsEnd::ALL`].
    pub websocket_ended: [u64; WsEnd::ALL.len()],
    /// TLS handshakes that succeeded.
    pub tls_total: u64,
    /// TLS handshakes that failed, in the order of [`HandshakeFailure::ALL`].
    pub tls_failed: [u64; HandshakeFailure::ALL.len()],
    /// Connections closed before their client was known, in the order of [`ProxyFailure::ALL`].
    pub proxy_failed: [u64; ProxyFailure::ALL.len()],
    /// Times that accepting failed, for want of file descriptors for example.
    pub accept_failures_total: u64,
    /// Connections closed because they were idle.
    pub idle_closed_total: u64,
    /// Connections dropped because a request head did not arrive in time.
    pub slow_head_total: u64,
    /// Connections and streams dropped because the client did not read.
    pub slow_reader_total: u64,
    /// Connections that let too many answers wait.
    pub hoarders_total: u64,
    /// HTTP/2 connections ended for more resets or errors of streams than can be meant.
    pub floods_total: u64,
    /// Connections that gave way to those of other clients when all places were taken.
    pub displaced_total: u64,
    /// Connections ended by something that is not HTTP, or over its limits.
    pub bad_http_total: u64,
    /// Connections dropped because the drain time was over.
    pub drain_dropped_total: u64,
    /// Requests that ended, in the order of [`STATUSES`]; at last those of any other status.
    pub statuses: [u64; STATUSES.len() + 1],
    /// Requests under way now.
    pub requests_open: usize,
    /// Bytes of request bodies held now; bodies up to 16 KiB are not counted.
    pub bodies_bytes: usize,
    /// Answers that wait for clients that do not take them.
    pub answers_waiting: usize,
    /// Bytes of these.
    pub answers_waiting_bytes: usize,
    /// Answers sent compressed.
    pub compressed_total: u64,
    /// Large answers sent uncompressed because all compression jobs were busy.
    pub compression_skipped_total: u64,
    /// Refusals, in the order of [`HttpRefusal::ALL`].
    pub refused: [u64; HttpRefusal::ALL.len()],
}

impl ServerCounts {
    /// How often `refusal` happened.
    pub fn refused(&self, refusal: HttpRefusal) -> u64 {
        self.refused[refusal.index()]
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

#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) connections_open: AtomicUsize,
    http1_open: AtomicUsize,
    http2_open: AtomicUsize,
    websocket_open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    http1: AtomicU64,
    http2: AtomicU64,
    websocket: AtomicU64,
    websocket_ended: [AtomicU64; WsEnd::ALL.len()],
    pub(crate) tls: AtomicU64,
    tls_failed: [AtomicU64; HandshakeFailure::ALL.len()],
    proxy_failed: [AtomicU64; ProxyFailure::ALL.len()],
    pub(crate) accept_failures: AtomicU64,
    pub(crate) idle_closed: AtomicU64,
    pub(crate) slow_head: AtomicU64,
    pub(crate) slow_reader: AtomicU64,
    pub(crate) hoarders: AtomicU64,
    pub(crate) floods: AtomicU64,
    pub(crate) displaced: AtomicU64,
    pub(crate) bad_http: AtomicU64,
    pub(crate) drain_dropped: AtomicU64,
    pub(crate) requests_open: Held,
    pub(crate) bodies_bytes: Held,
    pub(crate) answers_waiting: Held,
    pub(crate) answers_waiting_bytes: Held,
    pub(crate) compressed: AtomicU64,
    pub(crate) compression_skipped: AtomicU64,
    refused: [AtomicU64; HttpRefusal::ALL.len()],
    statuses: [AtomicU64; STATUSES.len() + 1],
}

impl ServerCounters {
    /// A connection speaks `protocol` from now on.
    pub(crate) fn open(&self, protocol: ClientProtocol) {
        let (total, open) = match protocol {
            ClientProtocol::Http1 => (&self.http1, &self.http1_open),
            ClientProtocol::Http2 => (&self.http2, &self.http2_open),
            ClientProtocol::WebSocket => (&self.websocket, &self.websocket_open),
        };
        Self::add(total);
        open.fetch_add(1, Relaxed);
    }

    /// A connection that was counted by [`Self::open`] has ended.
    pub(crate) fn close(&self, protocol: ClientProtocol) {
        let open = match protocol {
            ClientProtocol::Http1 => &self.http1_open,
            ClientProtocol::Http2 => &self.http2_open,
            ClientProtocol::WebSocket => &self.websocket_open,
        };
        open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self, refusal: HttpRefusal) {
        Self::add(&self.refused[refusal.index()]);
    }

    pub(crate) fn end_request(&self, status: u16) {
        Self::add(&self.statuses[place(status)]);
    }

    pub(crate) fn fail_handshake(&self, failure: HandshakeFailure) {
        Self::add(&self.tls_failed[failure as usize]);
    }

    pub(crate) fn fail_proxy(&self, failure: ProxyFailure) {
        Self::add(&self.proxy_failed[failure as usize]);
    }

    pub(crate) fn websocket_open(&self) -> usize {
        self.websocket_open.load(Relaxed)
    }

    pub(crate) fn close_websocket(&self, end: WsEnd) {
        Self::add(&self.websocket_ended[end as usize]);
    }

    pub(crate) fn read(&self) -> ServerCounts {
        ServerCounts {
            connections_open: self.connections_open.load(Relaxed),
            http1_open: self.http1_open.load(Relaxed),
            http2_open: self.http2_open.load(Relaxed),
            websocket_open: self.websocket_open(),
            accepted_total: self.accepted.load(Relaxed),
            http1_total: self.http1.load(Relaxed),
            http2_total: self.http2.load(Relaxed),
            websocket_total: self.websocket.load(Relaxed),
            websocket_ended: std::array::from_fn(|index| self.websocket_ended[index].load(Relaxed)),
            tls_total: self.tls.load(Relaxed),
            tls_failed: std::array::from_fn(|index| self.tls_failed[index].load(Relaxed)),
            proxy_failed: std::array::from_fn(|index| self.proxy_failed[index].load(Relaxed)),
            accept_failures_total: self.accept_failures.load(Relaxed),
            idle_closed_total: self.idle_closed.load(Relaxed),
            slow_head_total: self.slow_head.load(Relaxed),
            slow_reader_total: self.slow_reader.load(Relaxed),
            hoarders_total: self.hoarders.load(Relaxed),
            floods_total: self.floods.load(Relaxed),
            displaced_total: self.displaced.load(Relaxed),
            bad_http_total: self.bad_http.load(Relaxed),
            drain_dropped_total: self.drain_dropped.load(Relaxed),
            statuses: std::array::from_fn(|index| self.statuses[index].load(Relaxed)),
            requests_open: self.requests_open.get(),
            bodies_bytes: self.bodies_bytes.get(),
            answers_waiting: self.answers_waiting.get(),
            answers_waiting_bytes: self.answers_waiting_bytes.get(),
            compressed_total: self.compressed.load(Relaxed),
            compression_skipped_total: self.compression_skipped.load(Relaxed),
            refused: std::array::from_fn(|index| self.refused[index].load(Relaxed)),
        }
    }
}
