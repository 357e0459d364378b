//! The public endpoint: one HTTP request in, one handler call, one answer out.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::answer::{self, Reply};
use crate::head::Head;
use crate::headers::Fields;
use crate::request::{self, decode, read_head};
use crate::service::HttpService;
use crate::ticket::Ticket;
use crate::{Answer, AnswerBody, Handler, Refusal, Request};

/// Answers JSON-RPC over POST.
#[derive(Debug)]
pub(crate) struct Rpc<H> {
    handler: Arc<H>,
}

/// What a head asks for, and whether a web page may read the answer.
#[derive(Debug)]
pub(crate) struct Asked {
    allowed: Option<HeaderValue>,
    what: What,
}

#[derive(Debug)]
enum What {
    Call(request::Asked),
    /// A browser asks what a page may send.
    Preflight(Fields),
    Refused(Refusal),
}

impl<H: Handler> Rpc<H> {
    pub(crate) fn new(handler: Arc<H>) -> Self {
        Self { handler }
    }

    async fn call(
        &self,
        asked: request::Asked,
        body: Result<Bytes, Refusal>,
        received_at: Instant,
        ticket: &mut Ticket,
    ) -> Result<Answer, Refusal> {
        let mut body = body?;
        if asked.is_encoded() {
            let shared = Arc::clone(&ticket.link().shared);
            body = decode(body, &asked, &shared.settings, ticket).await?;
        }
        ticket.hand_over();
        let peer = ticket.link().peer;
        let request = Request {
            received_at: received_at.into_std(),
            peer,
            path: asked.path,
            want_trail: asked.want_trail,
            body,
        };
        // A panic would take along every other request of an HTTP/2 connection. No block
        // around the call: it would hold the request a second time.
        let mut answer =
            AssertUnwindSafe(self.handler.handle(request)).catch_unwind().await.map_err(|_| {
                tracing::error!(%peer, "the handler panicked; answered 500");
                Refusal::HandlerFailed
            })?;
        if !asked.want_trail {
            answer.trail = None;
        }
        Ok(answer)
    }
}

impl<H: Handler> HttpService for Rpc<H> {
    type Asked = Asked;

    fn ask(&self, ticket: &Ticket, head: &Head<'_>) -> Asked {
        let shared = &ticket.link().shared;
        let cors = &shared.cors;
        let allowed = cors.allowed(head.headers);
        let what = if !shared.settings.hosts.answers(head) {
            shared.hint_at_host(head, "hosts");
            What::Refused(Refusal::WrongHost)
        } else if cors.refuses(head.method, head.headers, allowed.as_ref()) {
            shared.hint_at_origin(head.headers.get("origin"));
            What::Refused(Refusal::OriginRefused)
        } else if head.method == "OPTIONS" && !cors.is_off() {
            What::Preflight(match allowed {
                Some(_) => cors.preflight(head.headers),
                None => Fields::new(),
            })
        } else if ticket.has_room() {
            match read_head(head, &shared.settings) {
                Ok(asked) => What::Call(asked),
                Err(refusal) => What::Refused(refusal),
            }
        } else {
            What::Refused(Refusal::RequestsFull)
        };
        Asked { allowed, what }
    }

    fn wants_body(asked: &Asked) -> bool {
        match asked.what {
            What::Call(_) => true,
            What::Preflight(_) | What::Refused(_) => false,
        }
    }

    async fn answer(
        &self,
        asked: Asked,
        body: Result<Bytes, Refusal>,
        received_at: Instant,
        mut ticket: Ticket,
    ) -> Reply {
        let mut reply = match asked.what {
            What::Call(call) => {
                let coding = call.coding;
                match self.call(call, body, received_at, &mut ticket).await {
                    Ok(mut answer) => {
                        let squeezed = match answer::worth_squeezing(&answer, coding, &ticket) {
                            // Boxed: small answers should not carry the state of it.
                            Some(coding) => {
                                Box::pin(answer::squeeze(&mut answer, coding, &ticket)).await
                            }
                            None => None,
                        };
                        answer::word(answer, squeezed, ticket)
                    }
                    Err(refusal) => answer::refuse(refusal, ticket),
                }
            }
            What::Preflight(fields) => {
                let link = ticket.link();
                link.shared.tell(link.peer, StatusCode::NO_CONTENT.as_u16(), "preflight");
                answer::respond(StatusCode::NO_CONTENT, fields, AnswerBody::default(), ticket)
            }
            What::Refused(refusal) => {
                if refusal == Refusal::RequestsFull {
                    ticket.give_place();
                }
                answer::refuse(refusal, ticket)
            }
        };
        let Reply { ticket, fields, .. } = &mut reply;
        ticket.link().shared.cors.write(asked.allowed.as_ref(), fields);
        reply
    }
}
