//! The body of an HTTP/2 answer as hyper takes it, piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body::{Body, Frame, SizeHint};
use wellhead_transport::{Rest, TransportError};

use crate::AnswerBody;
use crate::stream::{PIECE_BYTES, StreamPace};
use crate::ticket::{AnswerPart, Ticket};

/// What follows a body's first pieces, piece by piece as the client takes them.
type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// Pieces up to this size are told to be taken with the last one of their answer, but where
/// more flows behind them.
const TOLD_BYTES: usize = 4096;

/// One piece of an answer, as hyper holds it until it is written.
pub(crate) struct BodyPiece {
    bytes: Bytes,
    #[allow(dead_code, reason = "held for its drop")]
    told: WrittenNotice,
}

/// What is told when a piece is written, or never will be.
#[allow(dead_code, reason = "held for their drops")]
enum WrittenNotice {
    Nothing,
    Part(AnswerPart),
    /// It is the last one, and takes the place of the request along.
    All(Ticket),
}

impl Buf for BodyPiece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
    }

    fn copy_to_bytes(&mut self, bytes: usize) -> Bytes {
        self.bytes.split_to(bytes)
    }
}

/// The body of an HTTP/2 stream as hyper takes it. The request's ticket goes with its last
/// piece: an answer is out when it is written, not when hyper has it.
pub(crate) struct Frames {
    body: AnswerBody,
    next: usize,
    left: usize,
    /// `None` when the pieces are all there is. An error in it ends the connection
    /// (HTTP/2: the stream) without the mark of a good end.
    flow: Option<BodyStream>,
    pace: Option<Arc<StreamPace>>,
    /// `None` when the last piece has it.
    ticket: Option<Ticket>,
}

impl Frames {
    pub(crate) fn new(body: AnswerBody, mut ticket: Ticket) -> Self {
        let left = body.len();
        ticket.send(left);
        let pace = StreamPace::here();
        if let Some(pace) = &pace {
            pace.is_of(ticket.link());
        }
        Self { body, next: 0, left, flow: None, pace, ticket: Some(ticket) }
    }

    /// Continues with `rest` after the pieces.
    pub(crate) fn followed_by(mut self, rest: Option<Box<dyn Rest>>) -> Self {
        self.flow = rest.map(|rest| -> BodyStream {
            Box::pin(unfold(rest, |mut rest| async move {
                let piece = rest.next().await?;
                Some((piece, rest))
            }))
        });
        self
    }

    /// What follows next of the pieces that were there from the beginning.
    fn next_piece(&mut self) -> Option<BodyPiece> {
        while let Some(piece) = self.body.piece_mut(self.next) {
            let bytes = if piece.len() > PIECE_BYTES {
                piece.split_to(PIECE_BYTES)
            } else {
                self.next += 1;
                std::mem::take(piece)
            };
            if bytes.is_empty() {
                continue;
            }
            self.left -= bytes.len();
            let told = if self.left == 0 && self.flow.is_none() {
                self.ticket.take().map_or(WrittenNotice::Nothing, WrittenNotice::All)
            } else if (bytes.len() > TOLD_BYTES || self.flow.is_some())
                && let Some(ticket) = &mut self.ticket
            {
                WrittenNotice::Part(ticket.part(bytes.len()))
            } else {
                WrittenNotice::Nothing
            };
            return Some(BodyPiece { bytes, told });
        }
        None
    }

    /// One piece of what flows.
    fn flowing(&mut self, bytes: Bytes) -> BodyPiece {
        let told = match &mut self.ticket {
            Some(ticket) => WrittenNotice::Part(ticket.further_part(bytes.len())),
            None => WrittenNotice::Nothing,
        };
        BodyPiece { bytes, told }
    }
}

impl Body for Frames {
    type Data = BodyPiece;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyPiece>, TransportError>>> {
        let this = &mut *self;
        if let Some(piece) = this.next_piece() {
            if let Some(pace) = &this.pace {
                pace.note_piece();
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(flow) = &mut this.flow else { return Poll::Ready(None) };
        if let Some(pace) = &this.pace {
            // Until there is a piece, the wait is not for the client.
            pace.note_asked();
        }
        let bytes = ready!(flow.as_mut().poll_next(cx));
        if let Some(pace) = &this.pace {
            pace.note_piece();
        }
        match bytes {
            Some(Ok(bytes)) => Poll::Ready(Some(Ok(Frame::data(this.flowing(bytes))))),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                this.flow = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.flow.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.flow {
            None => SizeHint::with_exact(self.left as u64),
            Some(_) => SizeHint::default(),
        }
    }
}
