//! The interface between the listeners and the handler: one request in, one answer out.
//!
//! No HTTP types cross this border, so that the journey (`proxy`) can be tested
//! without a socket. A large answer may flow: see [`HttpAnswer::rest`].

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_access::LimitDenied;
use wellhead_transport::{Rest, TraceContext};

use crate::head::RequestHead;
use crate::{AnswerBody, ClientName, HttpRefusal, RequestPath};

/// Answers requests. Shared by all workers.
///
/// The future is dropped when the client goes away or the drain time is over;
/// a panic inside it becomes a 500 for this request alone.
pub trait Handler: Send + Sync + 'static {
    /// What a WebSocket connection keeps between its messages.
    type Session: ClientSession;
    /// What a request comes from, as far as the handler tells clients apart.
    type Caller: Clone + Send + Sync + fmt::Debug + 'static;

    /// Says what a request comes from, before anything of its body is read; or why it is turned away.
    fn identify(&self, head: &ClientHead<'_>) -> Result<Identified<Self::Caller>, HttpRefusal>;

    /// Answers one request. Its own deadline is its own business: the listener
    /// waits as long as the client does.
    fn handle(&self, request: HttpRequest<Self::Caller>)
    -> impl Future<Output = HttpAnswer> + Send;

    /// A connection begins to speak WebSocket: all its messages go to this path.
    fn open_session(&self, caller: &Self::Caller, head: SessionHead<'_>) -> Self::Session;

    /// Answers one message of a WebSocket connection, as [`Self::handle`] answers a request.
    fn handle_message(
        &self,
        session: &Arc<Self::Session>,
        request: HttpRequest<Self::Caller>,
    ) -> impl Future<Output = HttpAnswer> + Send;

    /// The drain time is over: requests under way are dropped next, and not by their clients.
    fn note_cut(&self) {}
}

/// What a WebSocket connection keeps between its messages. Dropped when the connection ends.
pub trait ClientSession: Send + Sync + 'static {
    /// The next thing that the client did not ask for just now. Called by the connection alone, and
    /// only when all answers so far are with the system: what it returns is sent behind them.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SessionEvent>;
}

/// Of a handler that sends nothing unasked.
impl ClientSession for () {
    fn poll_event(&self, _cx: &mut Context<'_>) -> Poll<SessionEvent> {
        Poll::Pending
    }
}

/// What a session has for its client.
#[derive(Debug)]
pub enum SessionEvent {
    /// One message, in pieces that follow each other.
    Message([Bytes; 3]),
    /// The connection has to end.
    Close(SessionClose),
}

/// Why a session ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionClose {
    /// The client does not take what it subscribed to: 1008.
    TooSlow,
    /// What it subscribed to cannot be continued without a gap: 1013.
    Resync,
    /// Its caller has as many connections as it may: 1013.
    OverLimit,
    /// Its key or token is no longer valid, or not for what it does: 1008.
    KeyEnded,
    /// Whether its key is valid cannot be said any more: 1013.
    KeysUnknown,
}

/// The head of a request, as far as it may say where the request comes from.
#[derive(Debug, Clone, Copy)]
pub struct ClientHead<'a> {
    pub(crate) peer: SocketAddr,
    pub(crate) names: &'a [ClientName],
    pub(crate) head: RequestHead<'a>,
}

impl<'a> ClientHead<'a> {
    /// The other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The names in the verified certificate of the client: alternative names first. Empty without a
    /// certificate, and of one without a name.
    pub fn names(&self) -> &'a [ClientName] {
        self.names
    }

    /// The path of the request's target, as it came.
    pub fn path(&self) -> &'a str {
        self.head.target.parts().0
    }

    /// The query of the target, as it came.
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.parts().1
    }

    /// All header fields, name and value, in their order; names in the case in which they came.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.head.headers.fields()
    }
}

/// What the head of a connection said that speaks WebSocket from then on.
#[derive(Debug, Clone, Copy)]
pub struct SessionHead<'a> {
    /// The chain and the labels of all its calls.
    pub path: &'a RequestPath,
    /// The web page that it was sent by, as it came.
    pub origin: Option<&'a [u8]>,
    /// As [`ClientHead::names`] has them.
    pub names: &'a [ClientName],
}

/// What a request comes from.
#[derive(Debug)]
pub struct Identified<C> {
    /// Goes with the request, and with each message of a WebSocket connection.
    pub caller: C,
    /// The path in place of the one that came, where that one held a key.
    pub path: Option<String>,
    /// The query in place of the one that came, where that one held a key.
    pub query: Option<String>,
}

impl<C> Identified<C> {
    /// The path and the query stay as they came.
    pub fn as_it_came(caller: C) -> Self {
        Self { caller, path: None, query: None }
    }
}

/// One POST or one message over WebSocket, completely read and decoded.
#[derive(Debug, Clone)]
pub struct HttpRequest<C> {
    /// What it comes from.
    pub caller: C,
    /// When its head had arrived.
    pub received_at: Instant,
    /// The other end of the connection; a load balancer when there is one.
    pub peer: SocketAddr,
    /// The chain named in the path, and the query.
    pub path: RequestPath,
    /// The client asked for the trail (`x-wellhead-trail: 1`).
    pub want_trail: bool,
    /// The newest block that the client was told of (`x-wellhead-block`), if it says so.
    pub known_block: Option<u64>,
    /// Whether the answer may have a [`HttpAnswer::rest`].
    pub may_stream: bool,
    /// What its `traceparent` says, where [`Settings::trace_parents`](crate::Settings::trace_parents) asks for it.
    pub trace_parent: Option<Box<TraceContext>>,
    /// The body, content encodings undone; empty when none was sent.
    pub body: Bytes,
}

/// What a handler does when its answer has its place.
pub struct OnQueued(pub Box<dyn FnOnce() + Send>);

impl fmt::Debug for OnQueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnQueued")
    }
}

/// What is dropped when the last byte of an answer was written, or when its client is gone.
pub struct HeldUntilSent(
    #[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>,
);

impl HeldUntilSent {
    /// Holds this.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for HeldUntilSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldUntilSent")
    }
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
    /// Called when the answer is in its place among all that is sent to the client. For WebSocket.
    pub on_queued: Option<OnQueued>,
    /// What the handler holds for the request until its answer is sent.
    pub held: Option<HeldUntilSent>,
    /// Goes out as `x-wellhead-upstream`. Left out if it is not a legal header value.
    pub upstream: Option<Arc<str>>,
    /// Goes out as `x-wellhead-attempts`, unless 0.
    pub attempts: u32,
    /// Goes out as `x-wellhead-cache`.
    pub cache: Option<&'static str>,
    /// Goes out as `Retry-After`, in whole seconds, rounded up, at least 1.
    pub retry_after: Option<Duration>,
    /// Goes out as `RateLimit-Policy` and `RateLimit`. Each is left out if it is not a legal header value.
    pub rate_limit: Option<Box<LimitDenied>>,
    /// Goes out as `x-wellhead-block`.
    pub block: Option<u64>,
    /// Goes out as `x-wellhead-warning`.
    pub warning: Option<&'static str>,
    /// Goes out as `x-wellhead-trail` when the client asked; characters that a
    /// header cannot carry become `?`, and what is over 4 KiB is cut.
    pub trail: Option<String>,
}
