//! The place a request takes, from its head to the last byte of its answer: one of the
//! requests under way, and the bytes of its body. When it is given back the request is
//! counted, whatever became of it. A place goes earlier where the answer waits for its
//! client alone ([`crate::backlog`]).

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;
use wellhead_limit::{FairShare, fits};

use crate::backlog::{BegunAnswer, RequestPlace};
use crate::link::ClientLink;
use crate::{HeldUntilSent, HttpRefusal};

/// Bodies up to this size are not counted: the atomics would cost more than
/// the memory is worth, and `requests_max` bounds it.
pub(crate) const FREE_BYTES: usize = 16 * 1024;

/// Gives everything back when dropped, also when the client goes away midway.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: Arc<ClientLink>,
    held_bytes: usize,
    /// The bytes of the answer that are not taken yet.
    unsent_bytes: usize,
    /// Of the answer; 0 while there is none.
    status: u16,
    /// The handler has it, and leaves its line.
    is_handed_over: bool,
    place: RequestPlace,
    /// When its answer went on its way: the connection's backlog gives the place back.
    sent: Option<BegunAnswer>,
    /// What the handler holds for the request.
    held: Option<HeldUntilSent>,
}

impl Ticket {
    /// Opens a ticket whether or not there is room, so that every request is
    /// seen by the drain and the idle rule; says when the request was received.
    pub(crate) fn open(link: &Arc<ClientLink>) -> (Self, Instant) {
        let received_at = link.begin_request();
        let shared = &link.shared;
        let open = shared.counters.requests_open.raise(1);
        // Shares matter where places get scarce: until then they cost nothing.
        let share = link.share.as_ref().filter(|_| open > shared.settings.requests_max / 2);
        if let Some(share) = share {
            share.places.raise(1);
        }
        let ticket = Self {
            link: Arc::clone(link),
            held_bytes: 0,
            unsent_bytes: 0,
            status: 0,
            is_handed_over: false,
            place: if share.is_some() { RequestPlace::Shared } else { RequestPlace::Plain },
            sent: None,
            held: None,
        };
        (ticket, received_at)
    }

    /// The connection that the request came on.
    pub(crate) fn link(&self) -> &Arc<ClientLink> {
        &self.link
    }

    /// Whether this request is within `requests_max`, and its address within its share.
    pub(crate) fn has_room(&self) -> bool {
        let shared = &self.link.shared;
        let open = shared.counters.requests_open.get();
        let most = shared.settings.requests_max;
        if open > most {
            return false;
        }
        match self.link.share.as_ref().filter(|_| self.place == RequestPlace::Shared) {
            None => true,
            // As it was before this request: the last permit may go to an address that has none.
            Some(share) => {
                let held = share.places.get();
                fits(held.saturating_sub(1), open.saturating_sub(1), most)
            }
        }
    }

    /// Gives its place back before there is an answer: there was none left. A refusal that is
    /// not taken must not hold what it was refused for.
    pub(crate) fn give_place(&mut self) {
        self.link.pools().give_place(self.place);
        self.place = RequestPlace::None;
    }

    /// From here on the handler tells what becomes of the request.
    pub(crate) fn hand_over(&mut self) {
        self.is_handed_over = true;
    }

    /// Notes the status of the answer.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Drops this when the last byte of the answer is out, or the client is gone.
    pub(crate) fn hold_for_handler(&mut self, held: Option<HeldUntilSent>) {
        self.held = held;
    }

    /// The answer, of so many bytes, goes to the client now.
    pub(crate) fn send(&mut self, bytes: usize) {
        // Its request was read and answered.
        self.give_body();
        self.unsent_bytes = bytes;
        let pools = self.link.pools();
        self.sent = Some(self.link.backlog().begin(bytes, self.place, pools));
    }

    /// Records that the client took `bytes` of the answer.
    pub(crate) fn note_taken(&mut self, bytes: usize) {
        let bytes = bytes.min(self.unsent_bytes);
        self.unsent_bytes -= bytes;
        self.link.note_taken(bytes);
    }

    /// A part of the answer that tells itself when it is taken.
    pub(crate) fn part(&mut self, bytes: usize) -> AnswerPart {
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        AnswerPart { link: Arc::clone(&self.link), bytes }
    }

    /// As [`Self::part`], of bytes that were not known before.
    pub(crate) fn further_part(&mut self, bytes: usize) -> AnswerPart {
        self.link.backlog().grow(bytes, self.link.pools());
        AnswerPart { link: Arc::clone(&self.link), bytes }
    }

    /// Makes the body's bytes known, as they have become `bytes_now` altogether.
    pub(crate) fn hold(&mut self, bytes_now: usize) -> Result<(), HttpRefusal> {
        if bytes_now <= FREE_BYTES || bytes_now <= self.held_bytes {
            return Ok(());
        }
        let more = bytes_now - self.held_bytes;
        let shared = &self.link.shared;
        let most = shared.settings.bodies_bytes_max;
        self.held_bytes = bytes_now;
        let (total, own) = self.bodies().raise(more);
        // The only body of its address may take whatever is free.
        let is_fair = self.link.share.is_none() || own == bytes_now || fits(own, total, most);
        if total <= most && is_fair { Ok(()) } else { Err(HttpRefusal::BodiesFull) }
    }

    fn give_body(&mut self) {
        let bytes = std::mem::take(&mut self.held_bytes);
        if bytes > 0 {
            self.bodies().lower(bytes);
        }
    }

    fn bodies(&self) -> FairShare<'_> {
        let own = self.link.share.as_ref().map(|share| &share.bodies_bytes);
        FairShare { total: &self.link.shared.counters.bodies_bytes, own }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.give_body();
        match self.sent {
            Some(begun) => self.link.end_answer(self.unsent_bytes, begun),
            None => self.link.pools().give_place(self.place),
        }
        let counters = &self.link.shared.counters;
        match self.status {
            0 => {
                let (status, reason) = self.link.shared.unanswered();
                counters.end_request(status);
                if !self.is_handed_over {
                    self.link.shared.tell(self.link.peer, status, reason);
                }
            }
            status => counters.end_request(status),
        }
        self.link.end_request();
    }
}

/// Bytes of an answer on their way; dropped when they are written, or never will be.
#[derive(Debug)]
pub(crate) struct AnswerPart {
    link: Arc<ClientLink>,
    bytes: usize,
}

impl Drop for AnswerPart {
    fn drop(&mut self) {
        self.link.note_taken(self.bytes);
    }
}
