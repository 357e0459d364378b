//! The place a request takes, from its head to the last byte of its answer: one of the
//! requests under way, and the bytes of its body. When it is given back the request is
//! counted, whatever became of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;
use tokio::time::Instant;

use crate::Refusal;
use crate::link::Link;

/// Bodies up to this size are not counted: the atomics would cost more than
/// the memory is worth, and `requests_max` bounds it.
const FREE_BYTES: usize = 16 * 1024;

/// The status that stands for "the client went away before there was an answer".
const CLIENT_CLOSED: u16 = 499;

/// Gives everything back when dropped, also when the client goes away midway.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: Arc<Link>,
    held_bytes: usize,
    /// Of the answer; 0 while there is none.
    status: u16,
    /// The handler has it, and leaves its line.
    is_handed_over: bool,
}

impl Ticket {
    /// Opens a ticket whether or not there is room, so that every request is
    /// seen by the drain and the idle rule; says when the request was received.
    pub(crate) fn open(link: &Arc<Link>) -> (Self, Instant) {
        let received_at = link.begin_request();
        link.server.counters.requests_open.fetch_add(1, Relaxed);
        let ticket =
            Self { link: Arc::clone(link), held_bytes: 0, status: 0, is_handed_over: false };
        (ticket, received_at)
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

    /// From here on the handler tells what becomes of the request.
    pub(crate) fn hand_over(&mut self) {
        self.is_handed_over = true;
    }

    /// Notes the status of the answer.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
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
        match self.status {
            0 => {
                counters.end_request(CLIENT_CLOSED);
                if !self.is_handed_over {
                    self.link.server.tell(self.link.peer, CLIENT_CLOSED, "client_closed");
                }
            }
            status => counters.end_request(status),
        }
        self.link.end_request();
    }
}
