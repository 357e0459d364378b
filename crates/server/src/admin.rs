//! The admin listener: metrics, health, status, a page that shows it, and actions.
//!
//! What is in the answers, and what the actions do, is for the [`AdminHandler`] to say; here are the
//! routes with the role that each needs (`access`, `action`), the headers, and the page, which knows
//! no more of the status than that it is JSON.
//!
//! A browser must not be made to act by a page of another origin: nothing goes by cookies, such a page
//! gets no answer that it could read, and what changes something needs a token, or a header that no
//! page can have sent without being asked first.

mod access;
mod action;
mod client;

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderName, HeaderValue, REFERRER_POLICY, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use tokio::time::Instant;
use wellhead_transport::BoxFuture;

pub use access::{AdminAccess, AdminActor, AdminCertificate, AdminRole, AdminRoles, AdminToken};
pub use action::{AdminAction, AdminCall, AdminReply};
pub use client::{AdminAnswer, AdminPlace, AdminRequest, ask_admin};

use crate::answer::{JSON, respond};
use crate::compress::compress;
use crate::encoding::{self, Coding};
use crate::head::RequestHead;
use crate::host::is_same_origin;
use crate::service::{HttpService, ServiceReply};
use crate::ticket::Ticket;
use crate::{AnswerBody, HttpRefusal};
use access::{AdminDenial, check_intent, check_role};
use action::{ActionMatch, AuditLine};

/// What the admin listener tells and does. Called on the listener's thread for each
/// request: quick, and never blocking.
pub trait AdminHandler: Debug + Send + Sync + 'static {
    /// Who may use the listener. Asked for each request.
    fn access(&self) -> Arc<AdminAccess>;
    /// `GET /metrics`; `is_open` if the client names the OpenMetrics format in `Accept`, so that it can read exemplars.
    fn metrics(&self, is_open: bool) -> Metrics;
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
    /// Further paths with what they need. A path of those above is never one of these.
    fn actions(&self) -> &'static [AdminAction];
    /// Carries out one of [`Self::actions`]. The future is dropped when the client disconnects, and a
    /// panic inside it becomes a 500.
    fn act(&self, call: AdminCall) -> BoxFuture<'_, AdminReply>;
    /// `GET /usage?...`: what was used, as the query asks.
    fn usage(&self, query: &str) -> UsageReport;
}

/// Whether the client names the OpenMetrics format among those that it takes.
fn takes_open_metrics(head: &RequestHead<'_>) -> bool {
    let accept = head.headers.get("accept").and_then(|value| std::str::from_utf8(value).ok());
    accept.into_iter().flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPEN_METRICS));
        // A weight of zero means: not this one.
        let is_refused = |part: &str| {
            part.strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0_f32))
        };
        is_named && !parts.any(is_refused)
    })
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

/// What was used; 400 when not `well`, with a JSON object that says why.
#[derive(Debug, Clone)]
pub struct UsageReport {
    /// Whether the query could be understood.
    pub well: bool,
    /// Of the body.
    pub content_type: &'static str,
    /// The report.
    pub body: Bytes,
}

/// Serves the routes of an [`AdminHandler`].
#[derive(Debug)]
pub(crate) struct AdminService {
    admin: Arc<dyn AdminHandler>,
}

/// What a page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageNeed {
    /// Nothing: it is public.
    Nothing,
    /// Nothing; only with [`AdminRole::View`] it says why.
    Probe,
    /// [`AdminRole::View`], unless the settings say otherwise.
    Metrics,
    View,
}

const ROUTES: [(&str, PageNeed); 9] = [
    ("/", PageNeed::Nothing),
    ("/page.css", PageNeed::Nothing),
    ("/page.js", PageNeed::Nothing),
    ("/livez", PageNeed::Probe),
    ("/readyz", PageNeed::Probe),
    ("/metrics", PageNeed::Metrics),
    ("/status", PageNeed::View),
    ("/explain", PageNeed::View),
    ("/usage", PageNeed::View),
];

/// The format that has exemplars.
const OPEN_METRICS: &str = "application/openmetrics-text";

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
    /// One more header.
    more: Option<(HeaderName, HeaderValue)>,
}

/// What a request is answered with.
#[derive(Debug)]
pub(crate) enum AdminRoute {
    Page(Page),
    Act(Box<PendingAct>),
}

/// An action whose body is yet to come.
#[derive(Debug)]
pub(crate) struct PendingAct {
    call: AdminCall,
    audit: Option<AuditLine>,
    coding: Option<Coding>,
}

impl Page {
    fn new(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        Self { status, content_type, body, coding: None, more: None }
    }

    fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, HeaderValue::from_static(content_type), body.into())
    }

    fn json(status: StatusCode, body: Bytes) -> Self {
        Self::new(status, JSON.clone(), body)
    }

    /// An error in words that JSON would not escape.
    fn error(status: StatusCode, words: &str) -> Self {
        debug_assert!(!words.contains(['"', '\\']) && !words.contains(char::is_control));
        Self::json(status, format!(r#"{{"error":"{words}"}}"#).into())
    }

    fn with(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { more: Some((name, value)), ..self }
    }

    /// `word` stands for a body that says too much.
    fn health(health: Health, word: Option<&str>) -> Self {
        let status = if health.well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = match word {
            Some(word) => format!(r#"{{"{word}":{}}}"#, health.well).into(),
            None => health.body,
        };
        Self::json(status, body)
    }

    fn other_method(allow: &str) -> Self {
        let words = format!("this path has other methods: {allow}");
        let allow =
            HeaderValue::from_str(allow).unwrap_or(const { HeaderValue::from_static("GET") });
        Self::error(StatusCode::METHOD_NOT_ALLOWED, &words).with(ALLOW, allow)
    }

    fn denied(denial: AdminDenial) -> Self {
        let words = denial.to_string();
        match denial {
            AdminDenial::NoToken | AdminDenial::BadToken => {
                Self::error(StatusCode::UNAUTHORIZED, &words).with(
                    WWW_AUTHENTICATE,
                    const { HeaderValue::from_static(r#"Bearer realm="wellhead admin""#) },
                )
            }
            AdminDenial::NoRole(_) | AdminDenial::Forgeable => {
                Self::error(StatusCode::FORBIDDEN, &words)
            }
        }
    }
}

impl AdminService {
    pub(crate) fn new(admin: Arc<dyn AdminHandler>) -> Self {
        Self { admin }
    }

    fn judge(&self, ticket: &Ticket, head: &RequestHead<'_>) -> AdminRoute {
        let shared = &ticket.link().shared;
        let path = head.target.parts().0;
        let is_read = head.method == "GET" || head.method == "HEAD";
        if !shared.settings.hosts.answers(head) {
            shared.hint_at_host(head, "admin_hosts");
            let words = "the name in the Host header is not one that this address answers to: the setting `admin_hosts` lists them";
            return AdminRoute::Page(Page::error(StatusCode::FORBIDDEN, words));
        }
        // Reading is bound to `Host` alone; a browser tells no other page what it read.
        if !is_read && !is_same_origin(head) {
            let words = "web pages of another origin may not do this";
            return AdminRoute::Page(Page::error(StatusCode::FORBIDDEN, words));
        }
        // The route first: a wrong method on no page is still no page.
        match ROUTES.iter().find(|(known, _)| *known == path) {
            Some(_) if !is_read => AdminRoute::Page(Page::other_method("GET, HEAD")),
            Some((_, need)) => AdminRoute::Page(self.page(ticket, head, *need)),
            None => self.action(ticket, head),
        }
    }

    fn page(&self, ticket: &Ticket, head: &RequestHead<'_>, need: PageNeed) -> Page {
        let link = ticket.link();
        let access = self.admin.access();
        // A token that is wrong does no harm where none is needed.
        let may_view = || {
            access.actor(link.proof(), head).and_then(|actor| check_role(&actor, AdminRole::View))
        };
        let is_free = match need {
            PageNeed::Nothing | PageNeed::Probe => true,
            PageNeed::Metrics => access.metrics_open,
            PageNeed::View => false,
        };
        if !is_free && let Err(denial) = may_view() {
            link.shared.hint_at_denial(link.peer, &denial);
            return Page::denied(denial);
        }
        let (path, query) = head.target.parts();
        let less = |word| may_view().is_err().then_some(word);
        match path {
            "/page.css" => Page::ok("text/css; charset=utf-8", STYLE),
            "/page.js" => Page::ok("text/javascript; charset=utf-8", SCRIPT),
            "/status" => Page::json(StatusCode::OK, self.admin.status()),
            "/livez" => Page::health(self.admin.live(), less("live")),
            "/readyz" => Page::health(self.admin.ready(), less("ready")),
            "/explain" => {
                let Health { well, body } = self.admin.explain(query.unwrap_or_default());
                let status = if well { StatusCode::OK } else { StatusCode::BAD_REQUEST };
                Page::json(status, body)
            }
            "/usage" => {
                let report = self.admin.usage(query.unwrap_or_default());
                let status = if report.well { StatusCode::OK } else { StatusCode::BAD_REQUEST };
                Page { status, ..Page::ok(report.content_type, report.body) }
            }
            "/metrics" => {
                let metrics = self.admin.metrics(takes_open_metrics(head));
                Page::ok(metrics.content_type, metrics.body)
            }
            _ => Page::ok("text/html; charset=utf-8", PAGE),
        }
    }

    fn action(&self, ticket: &Ticket, head: &RequestHead<'_>) -> AdminRoute {
        let link = ticket.link();
        let (path, query) = head.target.parts();
        let (action, subject) = match action::find(self.admin.actions(), head.method, path) {
            ActionMatch::Action(action, subject) => (action, subject),
            ActionMatch::OtherMethods(methods) => {
                return AdminRoute::Page(Page::other_method(&methods.join(", ")));
            }
            ActionMatch::Nothing => {
                let words = "no such page: try /, /status, /metrics, /livez, /readyz, /explain, /usage or /log";
                return AdminRoute::Page(Page::error(StatusCode::NOT_FOUND, words));
            }
        };
        let access = self.admin.access();
        let actor = access.actor(link.proof(), head);
        let name = actor.as_ref().map_or("nobody", |actor| &*actor.name);
        let audit = AuditLine::begin(&link.shared, link.peer, action, subject, name);
        let allowed = actor.and_then(|actor| {
            check_role(&actor, action.role)?;
            if action.is_mutating() {
                check_intent(&actor, head)?;
            }
            Ok(actor)
        });
        match allowed {
            Ok(actor) => {
                let (subject, query) = (subject.map(str::to_owned), query.map(str::to_owned));
                let call = AdminCall { action, subject, query, body: Bytes::new(), actor };
                AdminRoute::Act(Box::new(PendingAct { call, audit, coding: None }))
            }
            Err(denial) => {
                link.shared.hint_at_denial(link.peer, &denial);
                let page = Page::denied(denial);
                if let Some(audit) = audit {
                    audit.deny(page.status);
                }
                AdminRoute::Page(page)
            }
        }
    }

    async fn act(&self, pending: PendingAct, body: Result<Bytes, HttpRefusal>) -> Page {
        let PendingAct { mut call, audit, coding } = pending;
        let (page, subject) = match body {
            Err(refusal) => {
                let words = format!("the body cannot be taken: {}", refusal.word());
                (Page::error(refusal.status(), &words), None)
            }
            Ok(body) => {
                call.body = body;
                let name = call.action.name;
                match AssertUnwindSafe(self.admin.act(call)).catch_unwind().await {
                    Ok(AdminReply { status, body, subject }) => {
                        let status = StatusCode::from_u16(status);
                        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                        (Page::json(status, body), subject)
                    }
                    Err(_) => {
                        tracing::error!(action = name, "an admin action panicked; answered 500");
                        let status = StatusCode::INTERNAL_SERVER_ERROR;
                        (Page::error(status, "internal error"), None)
                    }
                }
            }
        };
        if let Some(audit) = audit {
            audit.end(page.status, subject);
        }
        Page { coding, ..page }
    }
}

impl HttpService for AdminService {
    type Route = AdminRoute;
    type Upgrade = ();

    fn route(&self, ticket: &Ticket, head: &RequestHead<'_>) -> AdminRoute {
        let wanted = encoding::choose(head.headers);
        let mut route = self.judge(ticket, head);
        match &mut route {
            AdminRoute::Page(Page { coding, .. }) => *coding = wanted,
            AdminRoute::Act(pending) => pending.coding = wanted,
        }
        route
    }

    fn wants_body(route: &AdminRoute) -> bool {
        match route {
            AdminRoute::Page(_) => false,
            AdminRoute::Act(pending) => pending.call.action.is_mutating(),
        }
    }

    async fn answer(
        &self,
        route: AdminRoute,
        body: Result<Bytes, HttpRefusal>,
        _received_at: Instant,
        ticket: Ticket,
    ) -> ServiceReply<()> {
        let page = match route {
            AdminRoute::Page(page) => page,
            // Boxed: most requests are for pages.
            AdminRoute::Act(pending) => Box::pin(self.act(*pending, body)).await,
        };
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
        fields.extend(page.more);
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
