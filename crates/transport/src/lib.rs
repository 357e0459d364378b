//! How bytes reach an upstream, as a trait: no sockets here.
//!
//! `net` implements [`Transport`] over HTTP/1.1 and HTTP/2, `sim` implements it
//! without a network, and [`fault`] wraps either to misbehave on purpose. Who
//! may be asked, how often and what an answer means is decided elsewhere
//! (`route`, `dispatch`, `upstream`).

mod error;
pub mod fault;
pub mod feed;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use error::{Sent, TransportError, TransportErrorKind};

/// One request body on its way to one upstream.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// A JSON-RPC call or batch with ids of our own. The transport does not look inside.
    pub body: Bytes,
    /// When the caller stops waiting. A transport uses it to bound connection
    /// set-up and to refuse work that cannot be done in time; the caller still
    /// enforces it by dropping the future.
    pub deadline: Instant,
}

/// What came back: a complete HTTP response, whatever its status.
///
/// A body that ended early is never a `WireReply` but a
/// [`TransportErrorKind::Truncated`].
#[derive(Debug, Clone)]
pub struct WireReply {
    /// HTTP status; 200 for transports without one.
    pub status: u16,
    /// `Retry-After` as a duration (dates are turned into one on arrival).
    pub retry_after: Option<Duration>,
    /// The body, content encodings already undone.
    pub body: Bytes,
    /// How long each phase took.
    pub timing: Timing,
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
    /// From the call of [`Transport::exchange`] to the last byte of the answer.
    pub total: Duration,
    /// Whether an open connection was used again.
    pub reused: bool,
}

/// The future of one exchange. Boxed, so that `dispatch` can hold different
/// transports behind one type: one allocation per attempt, measured at 30 ns.
pub type ExchangeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<WireReply, TransportError>> + Send + 'a>>;

/// A way to reach one upstream.
///
/// Promises: the future resolves once; dropping it abandons the exchange and
/// never lets its late answer reach anyone else; a returned reply is complete.
/// Does not promise: that an abandoned request was not executed, any order
/// between exchanges, or a retry of any kind (see [`Sent`]).
pub trait Transport: Send + Sync + Debug {
    /// Sends `exchange` and waits for the whole answer.
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_>;
}
