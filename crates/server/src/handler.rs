//! The interface between the listeners and the handler: one request in, one answer out.
//!
//! No HTTP types cross this border, so that the journey (`proxy`) can be tested
//! without a socket. A large answer may flow: see [`HttpAnswer::rest`].

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_transport::Rest;

use crate::{AnswerBody, RequestPath};

/// Answers requests. Shared by all workers.
///
/// The future is dropped when the client goes away or the drain time is over;
/// a panic inside it becomes a 500 for this request alone.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Its own deadline is its own business: the listener
    /// waits as long as the client does.
    fn handle(&self, request: HttpRequest) -> impl Future<Output = HttpAnswer> + Send;

    /// The drain time is over: requests under way are dropped next, and not by their clients.
    fn note_cut(&self) {}
}

/// One POST, completely read and decoded.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// When its head had arrived.
    pub received_at: Instant,
    /// The other end of the connection; a load balancer when there is one.
    pub peer: SocketAddr,
    /// The chain named in the path, and the query.
    pub path: RequestPath,
    /// The client asked for the trail (`x-wellhead-trail: 1`).
    pub want_trail: bool,
    /// The body, content encodings undone; empty when none was sent.
    pub body: Bytes,
}

/// What goes back to the client.
#[derive(Debug, Default)]
pub struct HttpAnswer {
    /// HTTP status; 0 and other impossible values become 500. 200 with an empty body becomes 204.
    pub status: u16,
    /// JSON, in one piece or several; empty when there is nothing to say.
    pub body: AnswerBody,
    /// What follows `body`, taken as fast as the client takes it. An error in it
    /// cuts the answer in a way that HTTP shows to the client.
    pub rest: Option<Box<dyn Rest>>,
    /// Goes out as `x-wellhead-upstream`. Left out if it is not a legal header value.
    pub upstream: Option<Arc<str>>,
    /// Goes out as `x-wellhead-attempts`, unless 0.
    pub attempts: u32,
    /// Goes out as `x-wellhead-cache`.
    pub cache: Option<&'static str>,
    /// Goes out as `Retry-After`, in whole seconds, rounded up, at least 1.
    pub retry_after: Option<Duration>,
    /// Goes out as `x-wellhead-warning`.
    pub warning: Option<&'static str>,
    /// Goes out as `x-wellhead-trail` when the client asked; characters that a
    /// header cannot carry become `?`, and what is over 4 KiB is cut.
    pub trail: Option<String>,
}
