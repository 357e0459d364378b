//! How bytes reach an upstream, as a trait: no sockets here.
//!
//! `net` implements [`Transport`] over HTTP/1.1 and HTTP/2, `sim` implements it
//! without a network. Which upstream is called, how often, and what an answer means is decided
//! elsewhere (`route`, `dispatch`, `upstream`).

mod error;
pub mod feed;
mod memory_budget;
mod rest;
mod trace_context;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use error::{Sent, TransportError, TransportErrorKind};
pub use memory_budget::{FREE_BYTES, MemoryBudget, Reservation, Shortage};
pub use rest::{Pieces, Rest, TRUSTED_LENGTH_MAX};
pub use trace_context::{HexId, SpanId, TraceContext, TraceId};

/// A boxed future that may borrow from its maker.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One request body on its way to one upstream.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// A JSON-RPC call or batch with ids of our own. Of what is inside, a transport that
    /// carries many calls over one connection looks at the id alone.
    pub body: Bytes,
    /// When the caller stops waiting. A transport uses it to bound connection
    /// set-up and to refuse work that cannot be done in time; the caller still
    /// enforces it by dropping the future.
    pub deadline: Instant,
    /// Bytes of an answer that are kept in memory: one up to this size arrives
    /// whole in [`WireReply::body`], of a longer one the remainder is read as the
    /// caller asks for it ([`WireReply::rest`]), and so it is, from fewer bytes on, when
    /// there is no room below the [`MemoryBudget`]. `usize::MAX` asks for everything, bounded by
    /// the transport's own setting, and fails when there is no room.
    pub whole_max: usize,
    /// Whether the answer is likely to be long, or is several answers: a transport whose
    /// answers share connections sends such an exchange by a way of its own.
    pub bulky: bool,
    /// The span that the exchange is, for the upstreams that are told of traces. A transport that has no
    /// place for it leaves it out.
    pub trace: Option<Box<TraceContext>>,
}

/// What came back: an HTTP response, whatever its status.
///
/// Complete unless it has a `rest`. A body that ended early is never a
/// `WireReply` but a [`TransportErrorKind::Truncated`], here or from the rest.
#[derive(Debug)]
pub struct WireReply {
    /// HTTP status; 200 for transports without one.
    pub status: u16,
    /// `Retry-After` as a duration (dates are turned into one on arrival).
    pub retry_after: Option<Duration>,
    /// The body, content encodings already undone. With a `rest` only its
    /// beginning: at least [`Exchange::whole_max`] bytes, or as much as there was room for.
    pub body: Bytes,
    /// What follows `body`, when the answer is longer than [`Exchange::whole_max`].
    pub rest: Option<Box<dyn Rest>>,
    /// How long each phase took.
    pub timing: Timing,
}

impl WireReply {
    /// A complete reply without `Retry-After`.
    pub fn whole(status: u16, body: impl Into<Bytes>, timing: Timing) -> Self {
        Self { status, retry_after: None, body: body.into(), rest: None, timing }
    }

    /// This reply with `retry_after`.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// This reply as it comes where `whole_max` was asked for: what lies beyond becomes its rest.
    /// For transports that have the answer in memory.
    #[must_use]
    pub fn shortened(mut self, whole_max: usize) -> Self {
        if self.rest.is_none() && self.body.len() > whole_max {
            let beyond = self.body.split_off(whole_max);
            self.rest = Some(Box::new(Pieces::of(beyond)));
        }
        self
    }
}

/// The phases of an exchange. Zero where a phase did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Waiting for a free connection or stream.
    pub queued: Duration,
    /// Name look-up, TCP and TLS, when this exchange had to open a connection.
    pub connect: Duration,
    /// From the request written to the first byte of the answer.
    pub first_byte: Duration,
    /// From the call of [`Transport::exchange`] to the last byte of the answer,
    /// or of the part of it that is not left to [`WireReply::rest`].
    pub total: Duration,
    /// Whether an open connection was used again.
    pub reused: bool,
}

/// The future of one exchange. Boxed, so that `dispatch` can hold different
/// transports behind one type: one allocation per attempt.
pub type ExchangeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<WireReply, TransportError>> + Send + 'a>>;

/// A way to reach one upstream.
///
/// Promises: the future resolves once; dropping it abandons the exchange and
/// never lets its late answer reach another exchange; a returned reply is complete
/// or says that it is not, and its rest is read no faster than it is asked for.
/// Does not promise: that an abandoned request was not executed, any order
/// between exchanges, or a retry of any kind (see [`Sent`]).
pub trait Transport: Send + Sync + Debug {
    /// Sends `exchange` and waits for the whole answer, or for as much of it as
    /// `whole_max` says.
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_>;

    /// Whether one more exchange would begin without waiting for another one to end; `bulky` as
    /// in [`Exchange::bulky`], which may have a smaller share of the room. An exchange that is
    /// begun all the same waits until its deadline.
    ///
    /// By default there always is room.
    fn has_room(&self, bulky: bool) -> bool {
        let _ = bulky;
        true
    }

    /// Whether the other end is told of the traces that exchanges belong to. Where it is not,
    /// [`Exchange::trace`] is left out, as nothing would read it.
    ///
    /// By default it is not.
    fn is_told_of_traces(&self) -> bool {
        false
    }
}
