//! The public endpoint: one HTTP request in, one handler call, one response out.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use crate::body::Frames;
use crate::connection::Endpoint;
use crate::count::Protocol;
use crate::encoding::Coding;
use crate::link::Link;
use crate::request::{read_body, read_head};
use crate::ticket::Ticket;
use crate::{Answer, AnswerBody, Handler, Refusal, Request, answer};

/// Answers JSON-RPC over POST.
#[derive(Debug)]
pub(crate) struct Rpc<H> {
    handler: Arc<H>,
}

impl<H: Handler> Rpc<H> {
    pub(crate) fn new(handler: Arc<H>) -> Self {
        Self { handler }
    }

    async fn journey(
        &self,
        parts: http::request::Parts,
        body: Incoming,
        link: &Link,
        received_at: tokio::time::Instant,
        ticket: &mut Ticket,
    ) -> Result<(Answer, Option<Coding>), Refusal> {
        if !ticket.has_room() {
            return Err(Refusal::RequestsFull);
        }
        let asked = read_head(&parts, &link.server.settings)?;
        // Headers are counted nowhere, so they are not kept for as long as the answer takes.
        drop(parts);
        let body = read_body(body, &asked, &link.server, ticket).await?;
        let request = Request {
            received_at: received_at.into_std(),
            peer: link.peer,
            path: asked.path,
            want_trail: asked.want_trail,
            body,
        };
        // A panic would take along every other request of an HTTP/2 connection.
        let want_trail = asked.want_trail;
        let mut answer = AssertUnwindSafe(async { self.handler.handle(request).await })
            .catch_unwind()
            .await
            .map_err(|_| {
                tracing::error!(peer = %link.peer, "the handler panicked; answered 500");
                Refusal::HandlerFailed
            })?;
        if !want_trail {
            answer.trail = None;
        }
        Ok((answer, asked.coding))
    }
}

impl<H: Handler> Endpoint for Rpc<H> {
    async fn answer(&self, link: &Arc<Link>, request: http::Request<Incoming>) -> Response<Frames> {
        let (mut ticket, received_at) = Ticket::open(link);
        let cors = &link.server.cors;
        let allowed = cors.allowed(request.headers());
        if request.method() == Method::OPTIONS && !cors.is_off() {
            let mut headers = HeaderMap::new();
            cors.write(allowed.as_ref(), &mut headers);
            if allowed.is_some() {
                cors.write_preflight(request.headers(), &mut headers);
            }
            let nothing = AnswerBody::default();
            return answer::respond(StatusCode::NO_CONTENT, headers, nothing, link, ticket);
        }
        let (parts, body) = request.into_parts();
        let has_body = !body.is_end_stream();
        let chunked = has_body && body.size_hint().exact().is_none();
        let outcome = self.journey(parts, body, link, received_at, &mut ticket).await;
        let mut response = match outcome {
            Ok((answer, coding)) => answer::write(answer, coding, link, ticket).await,
            Err(refusal) => {
                if has_body {
                    link.ask_to_linger();
                }
                answer::refuse(refusal, link, ticket)
            }
        };
        if chunked && link.protocol == Protocol::Http1 {
            // hyper lets `Transfer-Encoding` win over a `Content-Length` beside it
            // and does not tell. Someone in front of us may have believed the
            // other one; what follows on this connection may be smuggled.
            answer::close(response.headers_mut(), link);
        }
        cors.write(allowed.as_ref(), response.headers_mut());
        response
    }
}
