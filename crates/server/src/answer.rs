//! What an answer says: status, headers, compression; nothing from outside
//! reaches a header unchecked. `h1` and hyper put it on the wire.
//!
//! Header values that repeat are made once: a call costs no allocation here but
//! the list of its headers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue,
    RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE, VARY, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use wellhead_transport::Rest;
use wellhead_websocket::handshake::{AcceptKey, HandshakeError};

use crate::compress::compress;
use crate::encoding::Coding;
use crate::frames::Frames;
use crate::headers::ResponseHeaders;
use crate::refusal::refusal_body;
use crate::ticket::Ticket;
use crate::{AnswerBody, HttpAnswer, HttpRefusal};

/// One answer, complete but for what flows, and the place that its request takes.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: ResponseHeaders,
    pub(crate) body: AnswerBody,
    pub(crate) rest: Option<Box<dyn Rest>>,
    /// An HTTP/1.1 connection ends with it. HTTP/2 has no such mark, and needs none.
    pub(crate) closes: bool,
    pub(crate) ticket: Ticket,
}

impl HttpResponse {
    /// The answer as hyper takes it, for HTTP/2.
    pub(crate) fn into_response(self) -> Response<Frames> {
        let Self { status, fields, body, rest, ticket, closes: _ } = self;
        let mut response = Response::new(Frames::new(body, ticket).followed_by(rest));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.reserve(fields.len());
        for (name, value) in fields {
            headers.append(name, value);
        }
        response
    }
}

static UPSTREAM: HeaderName = HeaderName::from_static("x-wellhead-upstream");
static ATTEMPTS: HeaderName = HeaderName::from_static("x-wellhead-attempts");
static CACHE: HeaderName = HeaderName::from_static("x-wellhead-cache");
static BLOCK: HeaderName = HeaderName::from_static("x-wellhead-block");
static WARNING: HeaderName = HeaderName::from_static("x-wellhead-warning");
static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
static TRAIL: HeaderName = HeaderName::from_static("x-wellhead-trail");

pub(crate) static JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Clients bound the headers they take, often to 8 or 16 KiB altogether.
const TRAIL_BYTES_MAX: usize = 4096;

/// Values of `x-wellhead-upstream` kept by a worker; at the bound it starts anew.
const UPSTREAM_VALUES_MAX: usize = 128;

/// What a client is told to wait when a bound of ours was reached.
const RETRY_AFTER_OVERLOAD: HeaderValue = HeaderValue::from_static("1");

/// The coding in which the answer is to be sent, if any.
pub(crate) fn worth_squeezing(
    answer: &HttpAnswer,
    coding: Option<Coding>,
    ticket: &Ticket,
) -> Option<Coding> {
    coding.filter(|_| may_be_squeezed(answer, ticket))
}

/// What flows goes as it is: compressing it would hold it back.
fn may_be_squeezed(answer: &HttpAnswer, ticket: &Ticket) -> bool {
    let compression = &ticket.link().shared.settings.compression;
    let bytes = answer.body.len();
    compression.enabled && answer.rest.is_none() && bytes >= compression.bytes_min.max(1)
}

/// Puts the body in that coding and says which; `None` when it stays as it is.
pub(crate) async fn squeeze(
    answer: &mut HttpAnswer,
    coding: Coding,
    ticket: &Ticket,
) -> Option<Coding> {
    let squeezed = compress(&ticket.link().shared, &answer.body, coding).await?;
    answer.body = AnswerBody::One(squeezed);
    Some(coding)
}

/// Words what the handler answered; its body is in the coding `squeezed`.
pub(crate) fn word(
    mut answer: HttpAnswer,
    squeezed: Option<Coding>,
    mut ticket: Ticket,
) -> HttpResponse {
    ticket.hold_for_handler(answer.held.take());
    let varies = squeezed.is_some() || may_be_squeezed(&answer, &ticket);
    let mut status =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (body, rest) = (answer.body, answer.rest);
    let mut fields = ResponseHeaders::with_capacity(8);
    if body.is_empty() && rest.is_none() {
        if status == StatusCode::OK {
            status = StatusCode::NO_CONTENT;
        }
    } else {
        fields.push((CONTENT_TYPE, JSON.clone()));
        if varies {
            fields.push((VARY, HeaderValue::from_name(ACCEPT_ENCODING)));
        }
        if let Some(coding) = squeezed {
            fields.push((CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
        }
    }
    if let Some(upstream) = answer.upstream
        && let Some(value) = upstream_value(upstream)
    {
        fields.push((UPSTREAM.clone(), value));
    }
    if answer.attempts > 0 {
        fields.push((ATTEMPTS.clone(), number(answer.attempts)));
    }
    if let Some(cache) = answer.cache
        && let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from_static(cache.as_bytes()))
    {
        fields.push((CACHE.clone(), value));
    }
    if let Some(block) = answer.block {
        fields.push((BLOCK.clone(), HeaderValue::from(block)));
    }
    if let Some(warning) = answer.warning
        && let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from_static(warning.as_bytes()))
    {
        fields.push((WARNING.clone(), value));
    }
    if let Some(denied) = answer.rate_limit {
        push_rate_limit(&mut fields, denied.rate_limit_fields());
    }
    if let Some(retry_after) = answer.retry_after {
        fields.push((RETRY_AFTER, seconds(retry_after)));
    }
    if let Some(trail) = answer.trail {
        fields.push((TRAIL.clone(), trail_value(trail)));
    }
    HttpResponse { rest, ..respond(status, fields, body, ticket) }
}

fn push_rate_limit(fields: &mut ResponseHeaders, values: [String; 2]) {
    for (name, value) in [&RATE_LIMIT_POLICY, &RATE_LIMIT].into_iter().zip(values) {
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            fields.push((name.clone(), value));
        }
    }
}

/// Words a refusal.
pub(crate) fn refuse(refusal: HttpRefusal, ticket: Ticket) -> HttpResponse {
    let shared = &ticket.link().shared;
    shared.counters.refuse(refusal);
    shared.tell(ticket.link().peer, refusal.status().as_u16(), refusal.word());
    let mut fields = ResponseHeaders::with_capacity(6);
    fields.push((CONTENT_TYPE, JSON.clone()));
    // What HTTP asks for with a status.
    match refusal.status() {
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = if shared.cors.is_off() { "POST" } else { "POST, OPTIONS" };
            fields.push((ALLOW, HeaderValue::from_static(allow)));
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE if refusal == HttpRefusal::UnsupportedEncoding => {
            fields.push((ACCEPT_ENCODING, const { HeaderValue::from_static("gzip") }));
        }
        StatusCode::UNAUTHORIZED => {
            fields.push((WWW_AUTHENTICATE, const { HeaderValue::from_static("Bearer") }));
        }
        _ if refusal.passes() => fields.push((RETRY_AFTER, RETRY_AFTER_OVERLOAD)),
        _ => {}
    }
    let body = shared.refusals.of(refusal).into();
    let mut reply = respond(refusal.status(), fields, body, ticket);
    reply.closes |= refusal.ends_connection();
    reply
}

/// Words the refusal of an upgrade to WebSocket.
pub(crate) fn refuse_upgrade(error: HandshakeError, ticket: Ticket) -> HttpResponse {
    let shared = &ticket.link().shared;
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    shared.counters.refuse(HttpRefusal::BadUpgrade);
    shared.tell(ticket.link().peer, status.as_u16(), HttpRefusal::BadUpgrade.word());
    let mut fields = vec![(CONTENT_TYPE, JSON.clone())];
    for (name, value) in error.fields() {
        fields.push((HeaderName::from_static(name), HeaderValue::from_static(value)));
    }
    let body = refusal_body(HttpRefusal::BadUpgrade.code(), &error.to_string());
    respond(status, fields, body.into(), ticket)
}

/// What is agreed on with a client that upgrades to WebSocket.
#[derive(Debug)]
pub(crate) struct UpgradeAnswer {
    pub(crate) key: AcceptKey,
    /// The subprotocol.
    pub(crate) protocol: Option<HeaderValue>,
}

/// Accepts an upgrade to WebSocket.
pub(crate) fn upgrade(
    UpgradeAnswer { key, protocol }: UpgradeAnswer,
    ticket: Ticket,
) -> HttpResponse {
    let mut fields = ResponseHeaders::with_capacity(5);
    fields.push((UPGRADE, const { HeaderValue::from_static("websocket") }));
    fields.push((CONNECTION, const { HeaderValue::from_static("upgrade") }));
    if let Ok(key) = HeaderValue::from_bytes(key.as_bytes()) {
        fields.push((SEC_WEBSOCKET_ACCEPT, key));
    }
    fields.extend(protocol.map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
    respond(StatusCode::SWITCHING_PROTOCOLS, fields, AnswerBody::default(), ticket)
}

/// Puts an answer together that is known as a whole.
pub(crate) fn respond(
    status: StatusCode,
    fields: ResponseHeaders,
    body: AnswerBody,
    mut ticket: Ticket,
) -> HttpResponse {
    ticket.answered(status);
    let closes = ticket.link().is_draining();
    HttpResponse { status, fields, body, rest: None, closes, ticket }
}

/// The header value for an upstream's id: made once for each worker and upstream.
fn upstream_value(upstream: Arc<str>) -> Option<HeaderValue> {
    type Known = Vec<(Arc<str>, Option<HeaderValue>)>;
    thread_local! {
        static VALUES: RefCell<Known> = const { RefCell::new(Vec::new()) };
    }
    VALUES.with_borrow_mut(|values| {
        // By address: the entry keeps the id alive, so no other can get its place.
        if let Some((_, value)) = values.iter().find(|(known, _)| Arc::ptr_eq(known, &upstream)) {
            return value.clone();
        }
        if values.len() >= UPSTREAM_VALUES_MAX {
            values.clear();
        }
        let value = HeaderValue::from_str(&upstream).ok();
        values.push((upstream, value.clone()));
        value
    })
}

fn number(number: u32) -> HeaderValue {
    const DIGITS: &str = "0123456789";
    match usize::try_from(number) {
        Ok(digit) if digit < DIGITS.len() => HeaderValue::from_static(&DIGITS[digit..=digit]),
        _ => HeaderValue::from(number),
    }
}

/// Rounded up: a client that comes back too early is refused again.
fn seconds(duration: Duration) -> HeaderValue {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// A trail repeats what upstreams said, so nothing in it is trusted.
fn trail_value(trail: String) -> HeaderValue {
    let mut bytes = trail.into_bytes();
    bytes.truncate(TRAIL_BYTES_MAX);
    for byte in &mut bytes {
        if !(b' '..=b'~').contains(byte) {
            *byte = b'?';
        }
    }
    HeaderValue::from_maybe_shared(Bytes::from(bytes))
        .expect("every byte is a visible ASCII character or a space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up() {
        for (millis, expected) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (90_000, "90")] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected, "{millis}");
        }
    }

    #[test]
    fn numbers() {
        for n in [0, 1, 9, 10, 4_000_000_000] {
            assert_eq!(number(n), n.to_string().as_str());
        }
    }

    #[test]
    fn a_trail_cannot_break_out_of_its_header() {
        let value = trail_value("a: timeout\r\nset-cookie: x=1\0 é".into());
        assert_eq!(value, "a: timeout??set-cookie: x=1? ??");
        assert_eq!(trail_value("x".repeat(10_000)).len(), TRAIL_BYTES_MAX);
    }

    #[test]
    fn an_upstream_that_is_no_header_value_is_left_out() {
        assert_eq!(upstream_value("geth-a".into()).unwrap(), "geth-a");
        assert_eq!(upstream_value("geth\r\nx: y".into()), None);
    }

    #[test]
    fn upstream_values_are_made_once_and_bounded() {
        let id: Arc<str> = "geth-a".into();
        for _ in 0..3 {
            upstream_value(Arc::clone(&id));
        }
        assert_eq!(Arc::strong_count(&id), 2);
        for n in 0..UPSTREAM_VALUES_MAX {
            upstream_value(n.to_string().into());
        }
        assert_eq!(Arc::strong_count(&id), 1);
    }
}
