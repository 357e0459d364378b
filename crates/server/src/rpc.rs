//! The public endpoint: one HTTP request in, one handler call, one answer out.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;
use wellhead_access::is_secret_protocol;
use wellhead_websocket::handshake::{
    HandshakeError, UpgradeRequest, accept, asks_for_websocket, select_protocol,
};

use crate::answer::{self, HttpResponse, UpgradeAnswer};
use crate::compress::inflate;
use crate::end::ConnectionEnd;
use crate::head::RequestHead;
use crate::headers::ResponseHeaders;
use crate::link::ClientLink;
use crate::request::{CallHead, read_head};
use crate::service::{HttpService, ServiceReply};
use crate::socket::ClientStream;
use crate::ticket::Ticket;
use crate::websocket::{self, Upgraded};
use crate::{
    AnswerBody, ClientHead, Handler, HttpAnswer, HttpRefusal, HttpRequest, Identified, RequestPath,
};

/// Answers JSON-RPC over POST.
#[derive(Debug)]
pub(crate) struct RpcService<H> {
    handler: Arc<H>,
}

/// What a head asks for, and whether a web page may read the answer.
#[derive(Debug)]
pub(crate) struct RpcRoute<C> {
    allowed: Option<HeaderValue>,
    action: RpcAction<C>,
}

/// What becomes of a request.
#[derive(Debug)]
enum RpcAction<C> {
    Call(CallHead, C),
    /// A browser asks what a page may send.
    Preflight(ResponseHeaders),
    Upgrade(UpgradeAnswer, Box<Upgraded<C>>),
    BadUpgrade(HandshakeError),
    Refused(HttpRefusal),
}

impl<H: Handler> RpcService<H> {
    pub(crate) fn new(handler: Arc<H>) -> Self {
        Self { handler }
    }

    async fn call(
        &self,
        call: CallHead,
        caller: H::Caller,
        body: Result<Bytes, HttpRefusal>,
        received_at: Instant,
        ticket: &mut Ticket,
    ) -> Result<HttpAnswer, HttpRefusal> {
        let mut body = body?;
        if call.gzip {
            let bytes_max = ticket.link().shared.settings.body_bytes_max;
            body = Box::pin(inflate(body, bytes_max, |bytes| ticket.hold(bytes))).await?;
        }
        ticket.hand_over();
        let peer = ticket.link().peer;
        let request = HttpRequest {
            caller,
            received_at: received_at.into_std(),
            peer,
            path: call.path,
            want_trail: call.want_trail,
            known_block: call.known_block,
            may_stream: true,
            trace_parent: call.trace_parent,
            body,
        };
        // A panic would take along every other request of an HTTP/2 connection. No block
        // around the call: it would hold the request a second time.
        let mut answer =
            AssertUnwindSafe(self.handler.handle(request)).catch_unwind().await.map_err(|_| {
                tracing::error!(%peer, "the handler panicked; answered 500");
                HttpRefusal::HandlerFailed
            })?;
        if !call.want_trail {
            answer.trail = None;
        }
        Ok(answer)
    }

    /// What becomes of a request that is no question of a browser. `is_allowed`: the web page that it is
    /// sent by, if any, may call.
    fn route_call(
        &self,
        ticket: &Ticket,
        head: &RequestHead<'_>,
        is_allowed: bool,
    ) -> RpcAction<H::Caller> {
        let shared = &ticket.link().shared;
        let is_upgrade = is_upgrade(head);
        // A browser sends it for any web page without a preflight, so the page's origin is checked here.
        if is_upgrade && !is_allowed && head.headers.has("origin") {
            shared.hint_at_origin(head.headers.get("origin"));
            return RpcAction::Refused(HttpRefusal::OriginRefused);
        }
        if !is_upgrade && !ticket.has_room() {
            return RpcAction::Refused(HttpRefusal::RequestsFull);
        }
        let link = ticket.link();
        let client = ClientHead { peer: link.peer, names: link.names(), head: *head };
        let Identified { caller, path, query } = match self.handler.identify(&client) {
            Ok(identified) => identified,
            Err(refusal) => return RpcAction::Refused(refusal),
        };
        let (path_sent, query_sent) = head.target.parts();
        let path = RequestPath::read(
            path.as_deref().unwrap_or(path_sent),
            query.as_deref().or(query_sent),
        );
        if is_upgrade {
            return upgrade(head, path, caller);
        }
        match read_head(head, path, &shared.settings) {
            Ok(call) => RpcAction::Call(call, caller),
            Err(refusal) => RpcAction::Refused(refusal),
        }
    }
}

/// Whether a request names WebSocket as what its connection should become.
fn is_upgrade(head: &RequestHead<'_>) -> bool {
    // A POST with such a field is a call: the field may be ignored (RFC 9110, section 7.8).
    head.method == "GET" && asks_for_websocket(head.headers.fields())
}

/// Judges an upgrade to WebSocket.
fn upgrade<C>(head: &RequestHead<'_>, path: Option<RequestPath>, caller: C) -> RpcAction<C> {
    let Some(path) = path else { return RpcAction::Refused(HttpRefusal::NotFound) };
    if !head.may_upgrade {
        return RpcAction::Refused(HttpRefusal::NoUpgrade);
    }
    let request =
        UpgradeRequest { method: head.method, newest: true, fields: head.headers.fields() };
    match accept(request) {
        Ok(key) => {
            // Any path but one that holds a secret: it does not change the call.
            let protocol = select_protocol(head.headers.fields(), |name| !is_secret_protocol(name));
            let protocol = protocol.and_then(|name| HeaderValue::from_str(name).ok());
            // The last one counts, as where the caller is identified.
            let is_origin = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("origin");
            let origin = head.headers.fields().filter(is_origin).last();
            let origin = origin.map(|(_, value)| value.trim_ascii().into());
            let opened = Box::new(Upgraded { path, caller, origin });
            RpcAction::Upgrade(UpgradeAnswer { key, protocol }, opened)
        }
        Err(error) => RpcAction::BadUpgrade(error),
    }
}

impl<H: Handler> HttpService for RpcService<H> {
    type Route = RpcRoute<H::Caller>;
    type Upgrade = Upgraded<H::Caller>;

    fn note_cut(&self) {
        self.handler.note_cut();
    }

    fn serve_upgraded<S: ClientStream>(
        &self,
        upgraded: Upgraded<H::Caller>,
        stream: S,
        unread: Vec<u8>,
        link: &Arc<ClientLink>,
    ) -> impl Future<Output = ConnectionEnd> + Send {
        // Not an `async fn`, whose future would have room for all of these beside that of the other one.
        websocket::serve(stream, unread, link, &self.handler, upgraded)
    }

    fn route(&self, ticket: &Ticket, head: &RequestHead<'_>) -> Self::Route {
        let shared = &ticket.link().shared;
        let cors = &shared.cors;
        let allowed = cors.allowed(head.headers);
        let action = if !shared.settings.hosts.answers(head) {
            shared.hint_at_host(head, "hosts");
            RpcAction::Refused(HttpRefusal::WrongHost)
        } else if cors.refuses(head.method, head.headers, allowed.as_ref()) {
            shared.hint_at_origin(head.headers.get("origin"));
            RpcAction::Refused(HttpRefusal::OriginRefused)
        } else if head.method == "OPTIONS" && !cors.is_off() {
            RpcAction::Preflight(match allowed {
                Some(_) => cors.preflight(head.headers),
                None => ResponseHeaders::new(),
            })
        } else {
            self.route_call(ticket, head, allowed.is_some())
        };
        RpcRoute { allowed, action }
    }

    fn wants_body(route: &Self::Route) -> bool {
        match route.action {
            RpcAction::Call(..) => true,
            RpcAction::Preflight(_)
            | RpcAction::Upgrade(..)
            | RpcAction::BadUpgrade(_)
            | RpcAction::Refused(_) => false,
        }
    }

    async fn answer(
        &self,
        route: Self::Route,
        body: Result<Bytes, HttpRefusal>,
        received_at: Instant,
        mut ticket: Ticket,
    ) -> ServiceReply<Self::Upgrade> {
        let mut upgraded = None;
        let mut response = match route.action {
            RpcAction::Call(call, caller) => {
                let coding = call.coding;
                match self.call(call, caller, body, received_at, &mut ticket).await {
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
            RpcAction::Preflight(fields) => {
                let link = ticket.link();
                link.shared.tell(link.peer, StatusCode::NO_CONTENT.as_u16(), "preflight");
                answer::respond(StatusCode::NO_CONTENT, fields, AnswerBody::default(), ticket)
            }
            RpcAction::Upgrade(agreed, opened) => {
                upgraded = Some(opened);
                answer::upgrade(agreed, ticket)
            }
            RpcAction::BadUpgrade(error) => answer::refuse_upgrade(error, ticket),
            RpcAction::Refused(refusal) => {
                if refusal == HttpRefusal::RequestsFull {
                    ticket.give_place();
                }
                answer::refuse(refusal, ticket)
            }
        };
        let HttpResponse { ticket, fields, .. } = &mut response;
        ticket.link().shared.cors.write(route.allowed.as_ref(), fields);
        ServiceReply { response, upgraded }
    }
}
