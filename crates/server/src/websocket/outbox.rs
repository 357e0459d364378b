//! What leaves a WebSocket connection: answers in frames, and control frames between them.
//!
//! Small answers are copied behind each other, so that several leave with one system call; large
//! ones are written from where they are. Control frames overtake the answers that wait. What an
//! answer holds is given back when its last byte is with the system.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use wellhead_websocket::{CloseFrame, ControlPayload, MessageKind, encode};

use crate::AnswerBody;
use crate::link::ClientLink;
use crate::socket::ClientStream;
use crate::ticket::Ticket;

/// Answers up to this size are copied.
const JOINED_BYTES_MAX: usize = 4096;
/// A batch that has reached this size takes no further answer.
const BATCH_BYTES: usize = 16 * 1024;
/// Pieces of a large answer that are handed to the system at once.
const SLICES_MAX: usize = 16;

/// The answers of a connection that are not sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Whole answers, of which nothing is sent.
    waiting: VecDeque<WaitingAnswer>,
    /// What is being sent. Boxed: most connections are idle most of the time.
    batch: Option<Box<Batch>>,
    /// The latest ping is answered; earlier ones need not be (RFC 6455, section 5.5.3).
    pong: Option<Box<ControlPayload>>,
    pings: bool,
    /// Sent as the last frame of all.
    close: Option<Box<CloseFrame>>,
    /// TLS may hold something back.
    is_flushed: bool,
}

#[derive(Debug)]
struct WaitingAnswer {
    body: AnswerBody,
    ticket: Ticket,
}

/// Frames that are written one after the other.
#[derive(Debug, Default)]
struct Batch {
    /// Whole frames, and the header of the large answer if there is one.
    joined: Vec<u8>,
    /// Bytes of these that were written.
    written: usize,
    /// A large answer behind them.
    large: Option<LargeAnswer>,
    /// Of the answers in `joined`.
    tickets: Vec<Ticket>,
}

#[derive(Debug)]
struct LargeAnswer {
    body: AnswerBody,
    /// The piece that is written next.
    piece: usize,
    /// `None` for a notification.
    ticket: Option<Ticket>,
}

impl Outbox {
    /// Answers that are not sent.
    pub(super) fn len(&self) -> usize {
        let under_way = self
            .batch
            .as_ref()
            .map_or(0, |batch| batch.tickets.len() + usize::from(batch.large.is_some()));
        self.waiting.len() + under_way
    }

    /// Sends an answer, after those before it.
    pub(super) fn push(&mut self, body: AnswerBody, mut ticket: Ticket) {
        ticket.send(body.len());
        self.waiting.push_back(WaitingAnswer { body, ticket });
    }

    /// Whether a notification can be sent behind those of this batch. Answers come first.
    pub(super) fn takes_notifications(&self) -> bool {
        let batch = self.batch.as_ref();
        self.waiting.is_empty()
            && self.close.is_none()
            && batch.is_none_or(|batch| {
                batch.large.is_none() && batch.written == 0 && batch.joined.len() < BATCH_BYTES
            })
    }

    /// Sends a notification behind all answers.
    pub(super) fn notify(&mut self, parts: [Bytes; 3]) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        let batch = self.batch.get_or_insert_default();
        // Once, and not with each part.
        batch.joined.reserve(len.min(JOINED_BYTES_MAX) + 10);
        batch.joined.extend_from_slice(&encode::message_header(MessageKind::Text, len));
        if len > JOINED_BYTES_MAX {
            let body = AnswerBody::Many(parts.into());
            batch.large = Some(LargeAnswer { body, piece: 0, ticket: None });
        } else {
            parts.iter().for_each(|part| batch.joined.extend_from_slice(part));
        }
    }

    /// Answers a ping, as soon as the frame under way is sent.
    pub(super) fn pong(&mut self, payload: ControlPayload) {
        self.pong = Some(Box::new(payload));
    }

    /// Sends a ping, as soon as the frame under way is sent.
    pub(super) fn ping(&mut self) {
        self.pings = true;
    }

    /// Sends a close after the frame under way, and nothing behind it.
    pub(super) fn close(&mut self, frame: CloseFrame) {
        self.waiting.clear();
        self.pong = None;
        self.pings = false;
        self.close = Some(Box::new(frame));
    }

    /// Writes as much as the client takes; ready when there is nothing more to send.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut impl ClientStream,
        link: &ClientLink,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.batch.is_none() {
                self.batch = self.next_batch();
            }
            let Some(batch) = &mut self.batch else { break };
            let written = batch.poll_write(cx, stream);
            self.is_flushed = false;
            let bytes = ready!(link.note_some(written))?;
            if batch.advance(bytes) {
                self.batch = None;
            }
        }
        if self.is_flushed {
            return Poll::Ready(Ok(()));
        }
        ready!(link.note_flush(Pin::new(stream).poll_flush(cx)))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    /// What is sent next; `None` when there is nothing.
    fn next_batch(&mut self) -> Option<Box<Batch>> {
        let mut joined = Vec::new();
        if let Some(payload) = self.pong.take() {
            joined.extend_from_slice(&encode::pong(&payload));
        }
        if std::mem::take(&mut self.pings) {
            joined.extend_from_slice(&encode::ping(&ControlPayload::EMPTY));
        }
        let mut batch = Batch { joined, written: 0, large: None, tickets: Vec::new() };
        while batch.joined.len() < BATCH_BYTES
            && let Some(WaitingAnswer { body, ticket }) = self.waiting.pop_front()
        {
            let len = body.len();
            batch.joined.reserve(len.min(JOINED_BYTES_MAX) + 10);
            batch.joined.extend_from_slice(&encode::message_header(MessageKind::Text, len));
            if len > JOINED_BYTES_MAX {
                batch.large = Some(LargeAnswer { body, piece: 0, ticket: Some(ticket) });
                break;
            }
            for piece in body.pieces() {
                batch.joined.extend_from_slice(piece);
            }
            batch.tickets.push(ticket);
        }
        if self.waiting.is_empty()
            && batch.large.is_none()
            && let Some(frame) = self.close.take()
        {
            batch.joined.extend_from_slice(&encode::close(&frame));
        }
        if self.waiting.is_empty() {
            // An idle connection holds nothing.
            self.waiting = VecDeque::new();
        }
        (!batch.joined.is_empty()).then(|| Box::new(batch))
    }
}

impl Batch {
    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        stream: &mut impl ClientStream,
    ) -> Poll<io::Result<usize>> {
        let joined = &self.joined[self.written..];
        let Some(large) = &self.large else { return Pin::new(stream).poll_write(cx, joined) };
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut filled = 0;
        let pieces = large.body.pieces().get(large.piece..).unwrap_or_default();
        let pieces = [joined].into_iter().chain(pieces.iter().map(|piece| &piece[..]));
        for (slice, piece) in slices.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        Pin::new(stream).poll_write_vectored(cx, &slices[..filled])
    }

    /// Notes that `bytes` were written; true when that was all.
    fn advance(&mut self, mut bytes: usize) -> bool {
        let of_joined = bytes.min(self.joined.len() - self.written);
        self.written += of_joined;
        bytes -= of_joined;
        if self.written == self.joined.len() {
            self.tickets.clear();
        }
        let Some(large) = &mut self.large else { return self.written == self.joined.len() };
        if let Some(ticket) = &mut large.ticket {
            ticket.note_taken(bytes);
        }
        while let Some(piece) = large.body.piece_mut(large.piece) {
            let some = bytes.min(piece.len());
            // What was written need not be held.
            let _written = piece.split_to(some);
            bytes -= some;
            if !piece.is_empty() {
                return false;
            }
            large.piece += 1;
        }
        true
    }
}
