//! An answer that is being received, together with its connection.
//!
//! The holder reads it. When it is complete the connection is free again;
//! if it is dropped before, the exchange ends, and a late answer is discarded.

use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use wellhead_transport::{BoxFuture, Rest, TransportError, TransportErrorKind};

use crate::body::{Chunks, Decoding};
use crate::h2::H2Stream;
use crate::pool::{H1Lease, H2Lease};
use crate::protocol::CloseReason;

/// The body of an answer whose head was read.
#[derive(Debug)]
pub(crate) enum Incoming {
    H1(H1Lease),
    /// The stream first: it is to end before its place is given to the next.
    H2 {
        stream: H2Stream,
        _lease: H2Lease,
    },
}

impl Incoming {
    /// Whether the whole answer arrived with its head, where that is known.
    pub(crate) fn has_arrived(&self) -> bool {
        match self {
            Self::H1(lease) => lease.has_arrived(),
            Self::H2 { .. } => false,
        }
    }

    /// The answer is complete.
    pub(crate) fn finish(self, now: Instant) {
        match self {
            Self::H1(lease) => lease.finish(now),
            Self::H2 { .. } => {}
        }
    }

    /// The answer is of no use.
    pub(crate) fn fail(self, kind: TransportErrorKind) {
        match self {
            Self::H1(lease) => lease.discard(close_reason(kind)),
            Self::H2 { .. } => {}
        }
    }
}

impl Chunks for Incoming {
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        at_least: usize,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        match self {
            Self::H1(lease) => lease.connection().poll_chunk(cx, at_least),
            Self::H2 { stream, .. } => stream.poll_chunk(cx, at_least),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::H1(lease) => lease.is_end(),
            Self::H2 { stream, .. } => stream.is_end(),
        }
    }
}

pub(crate) fn close_reason(kind: TransportErrorKind) -> CloseReason {
    match kind {
        TransportErrorKind::Protocol | TransportErrorKind::TooLarge => CloseReason::BadAnswer,
        TransportErrorKind::Dns
        | TransportErrorKind::Connect
        | TransportErrorKind::Tls
        | TransportErrorKind::ConnectTimeout
        | TransportErrorKind::Timeout
        | TransportErrorKind::Closed
        | TransportErrorKind::Truncated
        | TransportErrorKind::PoolFull => CloseReason::Peer,
        TransportErrorKind::NoRoom => CloseReason::Abandoned,
    }
}

/// The part of a long answer that is read on demand.
#[derive(Debug)]
pub(crate) struct Remainder {
    /// `None` once it has ended, well or badly.
    incoming: Option<Incoming>,
    decoding: Decoding,
}

impl Remainder {
    pub(crate) fn new(incoming: Incoming, decoding: Decoding) -> Self {
        Self { incoming: Some(incoming), decoding }
    }

    async fn read(&mut self) -> Option<Result<Bytes, TransportError>> {
        let piece = self.decoding.next(self.incoming.as_mut()?, 1).await;
        match &piece {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                if let Some(incoming) = self.incoming.take() {
                    incoming.fail(error.kind);
                }
            }
            None => {
                if let Some(incoming) = self.incoming.take() {
                    incoming.finish(Instant::now());
                }
            }
        }
        piece
    }
}

impl Rest for Remainder {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(self.read())
    }

    fn announced(&self) -> Option<u64> {
        self.incoming.as_ref().and(self.decoding.announced())
    }
}
