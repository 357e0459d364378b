//! The body of an answer: bytes in one piece or several, sent without copying.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::count::Protocol;
use crate::stream::{PIECE_BYTES, StreamPace};
use crate::ticket::Ticket;

/// What an answer says, in one piece or several that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerBody {
    /// One piece; empty for nothing.
    One(Bytes),
    /// Several: an envelope around an upstream's bytes, or the items of a batch.
    Many(Vec<Bytes>),
}

impl AnswerBody {
    /// Bytes altogether.
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// The pieces in order; some may be empty.
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }

    fn piece_mut(&mut self, index: usize) -> Option<&mut Bytes> {
        match self {
            Self::One(piece) => (index == 0).then_some(piece),
            Self::Many(pieces) => pieces.get_mut(index),
        }
    }
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl From<Bytes> for AnswerBody {
    fn from(piece: Bytes) -> Self {
        Self::One(piece)
    }
}

impl From<Vec<Bytes>> for AnswerBody {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self::Many(pieces)
    }
}

/// The body as hyper takes it. Holds the request's ticket until it has.
#[derive(Debug)]
pub(crate) struct Frames {
    body: AnswerBody,
    next: usize,
    left: usize,
    piece_bytes_max: usize,
    pace: Option<Arc<StreamPace>>,
    _ticket: Ticket,
}

impl Frames {
    pub(crate) fn new(body: AnswerBody, protocol: Protocol, ticket: Ticket) -> Self {
        let (piece_bytes_max, pace) = match protocol {
            // As it is: hyper writes all pieces with one system call.
            Protocol::Http1 => (usize::MAX, None),
            Protocol::Http2 => (PIECE_BYTES, StreamPace::here()),
        };
        let left = body.len();
        Self { body, next: 0, left, piece_bytes_max, pace, _ticket: ticket }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        while let Some(piece) = this.body.piece_mut(this.next) {
            let data = if piece.len() > this.piece_bytes_max {
                piece.split_to(this.piece_bytes_max)
            } else {
                this.next += 1;
                std::mem::take(piece)
            };
            if data.is_empty() {
                continue;
            }
            this.left -= data.len();
            if let Some(pace) = &this.pace {
                pace.note_piece();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let piece = Bytes::from_static(b"abc");
        for (body, length) in [
            (AnswerBody::default(), 0),
            (AnswerBody::from(piece.clone()), 3),
            (AnswerBody::from(vec![]), 0),
            (AnswerBody::from(vec![Bytes::new()]), 0),
            (AnswerBody::from(vec![piece.clone(), Bytes::new(), piece]), 6),
        ] {
            assert_eq!(body.len(), length);
            assert_eq!(body.is_empty(), length == 0);
        }
    }
}
