//! What a listener serves: the border between connections and what their requests mean.
//!
//! `rpc` answers JSON-RPC and `admin` the pages for operators; `h1` and `connection` know neither.

use std::future::Future;

use bytes::Bytes;
use tokio::time::Instant;

use crate::Refusal;
use crate::answer::Reply;
use crate::head::Head;
use crate::ticket::Ticket;

/// What a listener serves. In two steps, because the bytes of a head are not kept
/// for as long as its answer takes.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// What a head asks for.
    type Asked: Send + 'static;

    /// Judges a head.
    fn ask(&self, ticket: &Ticket, head: &Head<'_>) -> Self::Asked;

    /// Whether the body has to be read before there is an answer.
    fn wants_body(asked: &Self::Asked) -> bool;

    /// Answers. The body is empty when it is not wanted, and a refusal when it could
    /// not be read.
    fn answer(
        &self,
        asked: Self::Asked,
        body: Result<Bytes, Refusal>,
        received_at: Instant,
        ticket: Ticket,
    ) -> impl Future<Output = Reply> + Send;
}
