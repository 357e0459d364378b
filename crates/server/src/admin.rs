//! The admin listener: metrics, health, status, and a page that shows it.
//!
//! Only reads. What is in the answers is for the [`AdminHandler`] to say; here are the
//! routes, the headers, and the page, which knows no more of the status than
//! that it is JSON. There is no authentication: bind it to a trusted network only.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use tokio::time::Instant;

use crate::answer::{JSON, respond};
use crate::compress::compress;
use crate::encoding::{self, Coding};
use crate::head::RequestHead;
use crate::host::is_same_origin;
use crate::service::{HttpService, ServiceReply};
use crate::shared::ServerShared;
use crate::ticket::Ticket;
use crate::{AnswerBody, HttpRefusal};

/// What the admin listener tells. Called on the listener's thread for each
/// request: quick, and never blocking.
pub trait AdminHandler: Send + Sync + 'static {
    /// `GET /metrics`.
    fn metrics(&self) -> Metrics;
    /// `GET /livez`: unwell means "restart me".
    fn live(&self) -> Health;
    /// `GET /readyz`: unwell means "send me no requests", also while draining.
    fn ready(&self) -> Health;
    /// `GET /status`: a JSON object. The page shows any shape; an array of
    /// objects becomes a table, and words such as `healthy` a colour.
    fn status(&self) -> Bytes;
    /// `GET /explain?...`: what would become of the call in the query. The body is a JSON
    /// object, and says why when it is not `well`: the query cannot be understood.
    fn explain(&self, query: &str) -> Health;
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

/// Serves the routes of an [`AdminHandler`].
#[derive(Debug)]
pub(crate) struct AdminService<A> {
    admin: Arc<A>,
}

const ROUTES: [&str; 8] =
    ["/", "/page.css", "/page.js", "/status", "/livez", "/readyz", "/metrics", "/explain"];

const PAGE: &str = include_str!("admin/page.html");
const STYLE: &str = include_str!("admin/page.css");
const SCRIPT: &str = include_str!("admin/page.js");

/// The page loads nothing but itself, runs nothing inline, and is shown in no frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// What a route answers, and how the client wants it.
#[derive(Debug)]
pub(crate) struct Page {
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
    coding: Option<Coding>,
}

impl Page {
    fn ok(content_type: &'static str, body: Bytes) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self { status: StatusCode::OK, content_type, body, coding: None }
    }

    fn json(status: StatusCode, body: Bytes) -> Self {
        Self { status, content_type: JSON.clone(), body, coding: None }
    }

    fn health(health: Health) -> Self {
        let status = if health.well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Self::json(status, health.body)
    }
}

impl<A: AdminHandler> AdminService<A> {
    pub(crate) fn new(admin: Arc<A>) -> Self {
        Self { admin }
    }

    fn page(&self, head: &RequestHead<'_>, shared: &ServerShared) -> Page {
        let (method, (path, query)) = (head.method, head.target.parts());
        let read = |body: &'static str| Bytes::from_static(body.as_bytes());
        if !shared.settings.hosts.answers(head) {
            shared.hint_at_host(head, "admin_hosts");
            let hint = r#"{"error":"the name in the Host header is not one that this address answers to: the setting `admin_hosts` lists them"}"#;
            return Page::json(StatusCode::FORBIDDEN, read(hint));
        }
        // Reading is bound to `Host` alone; a browser tells no other page what it read.
        if method != "GET" && method != "HEAD" && !is_same_origin(head) {
            let hint = r#"{"error":"web pages of another origin may not do this"}"#;
            return Page::json(StatusCode::FORBIDDEN, read(hint));
        }
        // The route first: a wrong method on no page is still no page.
        if !ROUTES.contains(&path) {
            let hint = r#"{"error":"no such page: try /, /status, /metrics, /livez, /readyz or /explain"}"#;
            return Page::json(StatusCode::NOT_FOUND, read(hint));
        }
        if method != "GET" && method != "HEAD" {
            let hint = r#"{"error":"this page can only be read: use GET"}"#;
            return Page::json(StatusCode::METHOD_NOT_ALLOWED, read(hint));
        }
        match path {
            "/page.css" => Page::ok("text/css; charset=utf-8", read(STYLE)),
            "/page.js" => Page::ok("text/javascript; charset=utf-8", read(SCRIPT)),
            "/status" => Page::json(StatusCode::OK, self.admin.status()),
            "/livez" => Page::health(self.admin.live()),
            "/readyz" => Page::health(self.admin.ready()),
            "/explain" => {
                let Health { well, body } = self.admin.explain(query.unwrap_or_default());
                let status = if well { StatusCode::OK } else { StatusCode::BAD_REQUEST };
                Page::json(status, body)
            }
            "/metrics" => {
                let metrics = self.admin.metrics();
                Page::ok(metrics.content_type, metrics.body)
            }
            _ => Page::ok("text/html; charset=utf-8", read(PAGE)),
        }
    }
}

impl<A: AdminHandler> HttpService for AdminService<A> {
    type Route = Page;
    type Upgrade = ();

    fn route(&self, ticket: &Ticket, head: &RequestHead<'_>) -> Page {
        let page = self.page(head, &ticket.link().shared);
        Page { coding: encoding::choose(head.headers), ..page }
    }

    fn wants_body(_page: &Page) -> bool {
        false
    }

    async fn answer(
        &self,
        page: Page,
        _body: Result<Bytes, HttpRefusal>,
        _received_at: Instant,
        ticket: Ticket,
    ) -> ServiceReply<()> {
        let mut fields = Vec::with_capacity(10);
        fields.push((CONTENT_TYPE, page.content_type));
        fields.push((CACHE_CONTROL, const { HeaderValue::from_static("no-store") }));
        fields.push((X_CONTENT_TYPE_OPTIONS, const { HeaderValue::from_static("nosniff") }));
        fields.push((REFERRER_POLICY, const { HeaderValue::from_static("no-referrer") }));
        fields.push((CONTENT_SECURITY_POLICY, POLICY));
        fields.push((
            const { HeaderName::from_static("cross-origin-resource-policy") },
            const { HeaderValue::from_static("same-origin") },
        ));
        if page.status == StatusCode::METHOD_NOT_ALLOWED {
            fields.push((ALLOW, const { HeaderValue::from_static("GET, HEAD") }));
        }
        let mut body = AnswerBody::One(page.body);
        let shared = &ticket.link().shared;
        let compression = &shared.settings.compression;
        if compression.enabled && body.len() >= compression.bytes_min {
            fields.push((VARY, HeaderValue::from_name(ACCEPT_ENCODING)));
            if let Some(coding) = page.coding
                && let Some(squeezed) = Box::pin(compress(shared, &body, coding)).await
            {
                fields.push((CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
                body = squeezed.into();
            }
        }
        respond(page.status, fields, body, ticket).into()
    }
}
