//! The part of a long answer that is read only as fast as its reader asks.
//!
//! Memory per answer is bounded by what the first part holds plus one piece.
//! Whether the pieces make a valid answer is for the reader to judge; that they
//! are all of it is proven here.

use std::collections::VecDeque;
use std::fmt::Debug;

use bytes::Bytes;

use crate::{BoxFuture, TransportError};

/// Memory taken on the word of an announced length alone; beyond it a buffer grows with what really
/// arrives.
pub const TRUSTED_LENGTH_MAX: usize = 8 << 20;

/// What follows the first part of an answer.
///
/// Promises: nothing more is taken from the connection than is asked for here
/// (but for what one read or one HTTP/2 window brings); content encodings are
/// undone; `None` means that HTTP itself proved the end (the announced length,
/// the last chunk, END_STREAM), and an early end is a
/// [`crate::TransportErrorKind::Truncated`]. Dropping it ends the exchange: an
/// HTTP/1.1 connection is closed, an HTTP/2 stream reset.
///
/// Does not promise a deadline: the exchange's bounds the first part only, and
/// a reader that waits for a slow client takes as long as that client. Nor is
/// the total bounded, since nothing holds it.
pub trait Rest: Send + Debug {
    /// The next piece, never empty; `None` after the last one. May be dropped
    /// and called again without losing a byte. After an error the rest is of no
    /// more use.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>>;

    /// Bytes that are still to come, where the peer announced them and no encoding changes their
    /// number. A peer that fails sends fewer.
    fn announced(&self) -> Option<u64> {
        None
    }
}

/// A rest that is already in memory, for transports without sockets and for tests.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Result<Bytes, TransportError>>,
    announced: u64,
}

/// Size of the pieces into which a body is cut, like those of a socket.
const PIECE: usize = 64 << 10;

impl Pieces {
    /// Cuts `body` into pieces, and announces their length.
    pub fn of(mut body: Bytes) -> Self {
        let announced = body.len() as u64;
        let mut pieces = VecDeque::new();
        while !body.is_empty() {
            pieces.push_back(Ok(body.split_to(body.len().min(PIECE))));
        }
        Self { pieces, announced }
    }

    /// Fails with `error` where the end would have been.
    #[must_use]
    pub fn then_fail(mut self, error: TransportError) -> Self {
        self.pieces.push_back(Err(error));
        self
    }
}

impl Rest for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        let piece = self.pieces.pop_front();
        if let Some(Ok(piece)) = &piece {
            self.announced -= piece.len() as u64;
        }
        Box::pin(std::future::ready(piece))
    }

    fn announced(&self) -> Option<u64> {
        Some(self.announced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sent, Timing, TransportErrorKind, WireReply};
    use std::task::{Context, Poll, Waker};

    fn read(rest: &mut dyn Rest) -> Vec<Result<Bytes, TransportError>> {
        let mut read = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(piece)) = rest.next().as_mut().poll(&mut cx) {
            read.push(piece);
        }
        read
    }

    #[test]
    fn a_reply_is_cut_only_beyond_the_bound() {
        let reply = |max| WireReply::whole(200, "abcdef", Timing::default()).shortened(max);
        for max in [6, 7, usize::MAX] {
            assert!(reply(max).rest.is_none(), "{max}");
        }
        let cut = reply(4);
        assert_eq!(cut.body, "abcd");
        let rest = read(&mut *cut.rest.expect("two bytes are left"));
        assert_eq!(rest, [Ok(Bytes::from("ef"))]);
    }

    #[test]
    fn pieces_keep_their_order_and_may_end_badly() {
        let cut = TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, "");
        let body = Bytes::from(vec![b'x'; PIECE + 1]);
        let mut pieces = Pieces::of(body).then_fail(cut.clone());
        assert_eq!(pieces.announced(), Some(PIECE as u64 + 1));
        let read = read(&mut pieces);
        assert_eq!(pieces.announced(), Some(0));
        let sizes: Vec<_> = read.into_iter().map(|p| p.map(|p| p.len())).collect();
        assert_eq!(sizes, [Ok(PIECE), Ok(1), Err(cut)]);
    }
}
