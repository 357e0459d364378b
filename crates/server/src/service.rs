//! What a listener serves: the border between connections and what their requests mean.
//!
//! `rpc` answers JSON-RPC and `admin` the pages for operators; `h1` and `connection` know neither.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::HttpRefusal;
use crate::answer::HttpResponse;
use crate::end::ConnectionEnd;
use crate::head::RequestHead;
use crate::link::ClientLink;
use crate::socket::ClientStream;
use crate::ticket::Ticket;

/// The answer to a request.
pub(crate) struct ServiceReply<U> {
    pub(crate) response: HttpResponse,
    /// The connection is no longer one of HTTP/1.1 after it.
    pub(crate) upgraded: Option<Box<U>>,
}

impl<U> From<HttpResponse> for ServiceReply<U> {
    fn from(response: HttpResponse) -> Self {
        Self { response, upgraded: None }
    }
}

/// What a listener serves. In two steps, because the bytes of a head are not kept
/// for as long as its answer takes.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// What a head asks for.
    type Route: Send + 'static;
    /// What is known of a connection that an answer upgrades.
    type Upgrade: Send + 'static;

    /// Judges a head.
    fn route(&self, ticket: &Ticket, head: &RequestHead<'_>) -> Self::Route;

    /// Whether the body has to be read before there is an answer.
    fn wants_body(route: &Self::Route) -> bool;

    /// Answers. The body is empty when it is not wanted, and a refusal when it could
    /// not be read.
    fn answer(
        &self,
        route: Self::Route,
        body: Result<Bytes, HttpRefusal>,
        received_at: Instant,
        ticket: Ticket,
    ) -> impl Future<Output = ServiceReply<Self::Upgrade>> + Send;

    /// Serves a connection that an answer upgraded, to its end. `unread` came behind the request.
    fn serve_upgraded<S: ClientStream>(
        &self,
        _upgraded: Self::Upgrade,
        _stream: S,
        _unread: Vec<u8>,
        _link: &Arc<ClientLink>,
    ) -> impl Future<Output = ConnectionEnd> + Send {
        // Of a service whose answers upgrade nothing.
        std::future::ready(ConnectionEnd::ByItself)
    }

    /// The drain time is over: requests under way are dropped next.
    fn note_cut(&self) {}
}
