//! The place a request takes, from its head to the last byte of its answer:
//! one of the requests under way, and the bytes of its body.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use crate::Refusal;
use crate::link::Link;

/// Bodies up to this size are not counted: the atomics would cost more than
/// the memory is worth, and `requests_max` bounds it.
const FREE_BYTES: usize = 16 * 1024;

/// Gives everything back when dropped, also when the client goes away midway.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: Arc<Link>,
    held_bytes: usize,
}

impl Ticket {
    /// Opens a ticket whether or not there is room, so that every request is
    /// seen by the drain and the idle rule; says when the request was received.
    pub(crate) fn open(link: &Arc<Link>) -> (Self, Instant) {
        let received_at = link.begin_request();
        link.server.counters.requests_open.fetch_add(1, Relaxed);
        (Self { link: Arc::clone(link), held_bytes: 0 }, received_at)
    }

    /// The connection that the request came on.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Whether this request is within `requests_max`.
    pub(crate) fn has_room(&self) -> bool {
        let server = &self.link.server;
        server.counters.requests_open.load(Relaxed) <= server.settings.requests_max
    }

    /// Makes the body's bytes known, as they have become `bytes_now` altogether.
    pub(crate) fn hold(&mut self, bytes_now: usize) -> Result<(), Refusal> {
        if bytes_now <= FREE_BYTES || bytes_now <= self.held_bytes {
            return Ok(());
        }
        let more = bytes_now - self.held_bytes;
        let server = &self.link.server;
        let before = server.counters.bodies_bytes.fetch_add(more, Relaxed);
        self.held_bytes = bytes_now;
        if before + more > server.settings.bodies_bytes_max {
            return Err(Refusal::BodiesFull);
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let counters = &self.link.server.counters;
        if self.held_bytes > 0 {
            counters.bodies_bytes.fetch_sub(self.held_bytes, Relaxed);
        }
        counters.requests_open.fetch_sub(1, Relaxed);
        self.link.end_request();
    }
}
