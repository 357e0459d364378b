//! The admin listener: metrics, health, status, and a page that shows it.
//!
//! Only reads. What is in the answers is for the [`Admin`] to say; here are the
//! routes, the headers, and the page, which knows no more of the status than
//! that it is JSON. Nobody is asked who he is: bind it where only friends are.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;

use crate::AnswerBody;
use crate::answer::{JSON, respond};
use crate::body::Frames;
use crate::compress::compress;
use crate::connection::Endpoint;
use crate::encoding;
use crate::link::Link;
use crate::ticket::Ticket;

/// What the admin listener tells. Called on the listener's thread for each
/// request: quick, and never blocking.
pub trait Admin: Send + Sync + 'static {
    /// `GET /metrics`.
    fn metrics(&self) -> Metrics;
    /// `GET /livez`: unwell means "restart me".
    fn live(&self) -> Health;
    /// `GET /readyz`: unwell means "send me no requests", also while draining.
    fn ready(&self) -> Health;
    /// `GET /status`: a JSON object. The page shows any shape; an array of
    /// objects becomes a table, and words such as `healthy` a colour.
    fn status(&self) -> Bytes;
}

/// The metrics as text.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// As the exposition format wants it.
    pub content_type: &'static str,
    /// All metric families.
    pub body: Bytes,
}

/// Answer to a probe: 200 when well, 503 when not.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether all is well.
    pub well: bool,
    /// A JSON object that says why.
    pub body: Bytes,
}

/// Serves the routes of an [`Admin`].
#[derive(Debug)]
pub(crate) struct Pages<A> {
    admin: Arc<A>,
}

const ROUTES: [&str; 7] =
    ["/", "/page.css", "/page.js", "/status", "/livez", "/readyz", "/metrics"];

const PAGE: &str = include_str!("admin/page.html");
const STYLE: &str = include_str!("admin/page.css");
const SCRIPT: &str = include_str!("admin/page.js");

/// The page loads nothing but itself, runs nothing inline, and is shown in no frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

struct Reply {
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
}

impl Reply {
    fn ok(content_type: &'static str, body: Bytes) -> Self {
        Self { status: StatusCode::OK, content_type: HeaderValue::from_static(content_type), body }
    }

    fn json(status: StatusCode, body: Bytes) -> Self {
        Self { status, content_type: JSON.clone(), body }
    }

    fn health(health: Health) -> Self {
        let status = if health.well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Self::json(status, health.body)
    }
}

impl<A: Admin> Pages<A> {
    pub(crate) fn new(admin: Arc<A>) -> Self {
        Self { admin }
    }

    fn reply(&self, method: &Method, path: &str) -> Reply {
        let read = |body: &'static str| Bytes::from_static(body.as_bytes());
        // The route first: a wrong method on no page is still no page.
        if !ROUTES.contains(&path) {
            let hint = r#"{"error":"no such page: try /, /status, /metrics, /livez or /readyz"}"#;
            return Reply::json(StatusCode::NOT_FOUND, read(hint));
        }
        if method != Method::GET && method != Method::HEAD {
            let hint = r#"{"error":"this page can only be read: use GET"}"#;
            return Reply::json(StatusCode::METHOD_NOT_ALLOWED, read(hint));
        }
        match path {
            "/page.css" => Reply::ok("text/css; charset=utf-8", read(STYLE)),
            "/page.js" => Reply::ok("text/javascript; charset=utf-8", read(SCRIPT)),
            "/status" => Reply::json(StatusCode::OK, self.admin.status()),
            "/livez" => Reply::health(self.admin.live()),
            "/readyz" => Reply::health(self.admin.ready()),
            "/metrics" => {
                let metrics = self.admin.metrics();
                Reply::ok(metrics.content_type, metrics.body)
            }
            _ => Reply::ok("text/html; charset=utf-8", read(PAGE)),
        }
    }
}

impl<A: Admin> Endpoint for Pages<A> {
    async fn answer(&self, link: &Arc<Link>, request: http::Request<Incoming>) -> Response<Frames> {
        let (ticket, _) = Ticket::open(link);
        let reply = self.reply(request.method(), request.uri().path());
        let mut headers = HeaderMap::with_capacity(10);
        headers.insert(CONTENT_TYPE, reply.content_type);
        headers.insert(CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
        headers.insert(X_CONTENT_TYPE_OPTIONS, const { HeaderValue::from_static("nosniff") });
        headers.insert(REFERRER_POLICY, const { HeaderValue::from_static("no-referrer") });
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(
            const { HeaderName::from_static("cross-origin-resource-policy") },
            const { HeaderValue::from_static("same-origin") },
        );
        if reply.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, const { HeaderValue::from_static("GET, HEAD") });
        }
        let mut body = AnswerBody::One(reply.body);
        let compression = &link.server.settings.compression;
        if compression.enabled && body.len() >= compression.bytes_min {
            headers.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
            if let Some(coding) = encoding::choose(request.headers())
                && let Some(squeezed) = Box::pin(compress(&link.server, &body, coding)).await
            {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
                body = squeezed.into();
            }
        }
        respond(reply.status, headers, body, link, ticket)
    }
}
