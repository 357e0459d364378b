//! The body of an answer: bytes in one piece or several, sent without copying.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body::{Body, Frame, SizeHint};
use wellhead_transport::{Rest, TransportError};

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

/// What follows a body's first pieces, piece by piece as the client takes them.
type Flow = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// The body of an HTTP/2 stream as hyper takes it. Holds the request's ticket until it has.
pub(crate) struct Frames {
    body: AnswerBody,
    next: usize,
    left: usize,
    /// `None` when the pieces are all there is. An error in it ends the connection
    /// (HTTP/2: the stream) without the mark of a good end.
    flow: Option<Flow>,
    pace: Option<Arc<StreamPace>>,
    _ticket: Ticket,
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Frames {
    pub(crate) fn new(body: AnswerBody, ticket: Ticket) -> Self {
        let left = body.len();
        let pace = StreamPace::here();
        Self { body, next: 0, left, flow: None, pace, _ticket: ticket }
    }

    /// Continues with `rest` after the pieces.
    pub(crate) fn followed_by(mut self, rest: Option<Box<dyn Rest>>) -> Self {
        self.flow = rest.map(|rest| -> Flow {
            Box::pin(unfold(rest, |mut rest| async move {
                let piece = rest.next().await?;
                Some((piece, rest))
            }))
        });
        self
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let this = &mut *self;
        while let Some(piece) = this.body.piece_mut(this.next) {
            let data = if piece.len() > PIECE_BYTES {
                piece.split_to(PIECE_BYTES)
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
        let Some(flow) = &mut this.flow else { return Poll::Ready(None) };
        let piece = ready!(flow.as_mut().poll_next(cx));
        if let Some(pace) = &this.pace {
            pace.note_piece();
        }
        match piece {
            Some(piece) => Poll::Ready(Some(piece.map(Frame::data))),
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
