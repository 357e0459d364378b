//! What the connections of one upstream did: counters shared by all workers.
//!
//! Plain relaxed atomics, read by the metrics and the status page; nothing
//! here decides anything. What was learnt from how connections ended lives here
//! too, for it is shared in the same way; `caps` knows what it means.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use wellhead_transport::TransportErrorKind;

use crate::caps::{LearntCaps, SharedCaps};
use crate::journal::Journal;
use crate::protocol::{CloseReason, Protocol};

/// Counters of one upstream, over all workers.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    opened: [AtomicU64; Protocol::ALL.len()],
    closed: [[AtomicU64; CloseReason::ALL.len()]; Protocol::ALL.len()],
    connect_failed: AtomicU64,
    connect_timed_out: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) left_open: AtomicU64,
    /// One more than what was announced last; zero while nothing was.
    announced: AtomicU64,
    pub(crate) on_sockets: AtomicU64,
    pub(crate) unclaimed: AtomicU64,
    /// No WebSocket can be opened, and that was said.
    without_sockets: AtomicBool,
    pub(crate) caps: SharedCaps,
    journal: Option<Arc<Journal>>,
}

impl ConnectionStats {
    /// Counters, and beside them everything noted in `journal` that connections over HTTP do.
    pub fn with_journal(journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..Self::default() }
    }

    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// What the ends of HTTP/2 connections taught so far. Takes a lock: for
    /// metrics and the status page.
    pub fn learnt_caps(&self) -> LearntCaps {
        self.caps.learnt()
    }

    /// The streams at once that the last HTTP/2 connection announced to bear. `None` where
    /// nothing was announced, and where the announcement is no bound.
    pub fn announced_streams(&self) -> Option<u64> {
        self.announced.load(Relaxed).checked_sub(1)
    }

    pub(crate) fn note_announced(&self, streams: usize) {
        // What says nothing of streams allows them all.
        let told = u32::try_from(streams).map_or(0, |streams| u64::from(streams) + 1);
        self.announced.store(told, Relaxed);
    }

    /// Abandoned HTTP/2 streams that were left to finish, because the connection
    /// had been sent enough resets.
    pub fn left_open(&self) -> u64 {
        self.left_open.load(Relaxed)
    }

    /// Calls under way on WebSocket connections now.
    pub fn on_sockets(&self) -> u64 {
        self.on_sockets.load(Relaxed)
    }

    /// Messages on WebSocket connections that answered no pending call: late answers, unrequested
    /// notifications, garbage.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed.load(Relaxed)
    }

    /// Notes whether WebSocket connections can be opened; `true` when that is news.
    pub(crate) fn note_without_sockets(&self, without: bool) -> bool {
        self.without_sockets.swap(without, Relaxed) != without
    }

    /// Connections opened since the start.
    pub fn opened(&self, protocol: Protocol) -> u64 {
        self.opened[protocol as usize].load(Relaxed)
    }

    /// Connections that ended for `reason` since the start.
    pub fn closed(&self, protocol: Protocol, reason: CloseReason) -> u64 {
        self.closed[protocol as usize][reason as usize].load(Relaxed)
    }

    /// Connections open now. Two counters read one after the other: may be off
    /// by what happened in between.
    pub fn open(&self, protocol: Protocol) -> u64 {
        let closed: u64 = self.closed[protocol as usize].iter().map(|c| c.load(Relaxed)).sum();
        self.opened(protocol).saturating_sub(closed)
    }

    /// Connection attempts that failed, without those that took too long.
    pub fn connect_failed(&self) -> u64 {
        self.connect_failed.load(Relaxed)
    }

    /// Connection attempts that took too long.
    pub fn connect_timed_out(&self) -> u64 {
        self.connect_timed_out.load(Relaxed)
    }

    /// Exchanges waiting for a connection now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Exchanges sent again because the first connection certainly had not processed them.
    pub fn resent(&self) -> u64 {
        self.resent.load(Relaxed)
    }

    /// HTTP/2 streams that were refused one by one (`REFUSED_STREAM`), on connections that went
    /// on.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(crate) fn note_opened(&self, protocol: Protocol) {
        self.opened[protocol as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_closed(&self, protocol: Protocol, reason: CloseReason) {
        self.closed[protocol as usize][reason as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_connect_failed(&self, kind: TransportErrorKind) {
        match kind {
            TransportErrorKind::ConnectTimeout => self.connect_timed_out.fetch_add(1, Relaxed),
            _ => self.connect_failed.fetch_add(1, Relaxed),
        };
    }
}
