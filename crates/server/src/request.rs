//! Reading a request: what its head asks for, and its body within bounds.
//!
//! The cheapest refusal comes first: nothing is read of a body that its head
//! already condemns.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::time::Sleep;
use wellhead_transport::TraceContext;

use crate::encoding::{self, Coding};
use crate::head::RequestHead;
use crate::headers::RequestHeaders;
use crate::ticket::Ticket;
use crate::{HttpRefusal, RequestPath, Settings};

/// Room made for a body before its bytes are there. A client announces its
/// length for free; memory goes only to what it has sent.
pub(crate) const ROOM_BYTES_MAX: usize = 64 * 1024;

/// What the head of a good request asks for.
#[derive(Debug)]
pub(crate) struct CallHead {
    pub(crate) path: RequestPath,
    pub(crate) want_trail: bool,
    pub(crate) known_block: Option<u64>,
    pub(crate) coding: Option<Coding>,
    pub(crate) trace_parent: Option<Box<TraceContext>>,
    /// Whether the body has to be inflated.
    pub(crate) gzip: bool,
}

/// Judges a head that leads to `path`, the length of the body apart.
pub(crate) fn read_head(
    head: &RequestHead<'_>,
    path: Option<RequestPath>,
    settings: &Settings,
) -> Result<CallHead, HttpRefusal> {
    let path = path.ok_or(HttpRefusal::NotFound)?;
    let headers = head.headers;
    if head.method != "POST" {
        return Err(HttpRefusal::MethodNotAllowed);
    }
    check_content_type(headers)?;
    let gzip = is_gzip(headers)?;
    let want_trail = headers.get("x-wellhead-trail").is_some_and(|value| value == b"1");
    let known_block = read_block(headers)?;
    let coding = if settings.compression.enabled { encoding::choose(headers) } else { None };
    let trace_parent = match settings.trace_parents {
        true => headers.get("traceparent").and_then(TraceContext::parse).map(Box::new),
        false => None,
    };
    Ok(CallHead { path, want_trail, known_block, coding, trace_parent, gzip })
}

/// The newest block that the client was told of, in decimal digits alone.
fn read_block(headers: RequestHeaders<'_>) -> Result<Option<u64>, HttpRefusal> {
    let Some(value) = headers.get("x-wellhead-block") else { return Ok(None) };
    let digits = std::str::from_utf8(value).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).map(Some).ok_or(HttpRefusal::BadBlock)
}

/// Reads the whole body of an HTTP/2 request.
pub(crate) async fn collect(
    mut body: Incoming,
    settings: &Settings,
    ticket: &mut Ticket,
) -> Result<Bytes, HttpRefusal> {
    let bytes_max = settings.body_bytes_max;
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(HttpRefusal::BodyTooLarge);
    }
    let mut timer = None;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = next_frame(&mut body, &mut timer, settings).await? {
        // Trailers say nothing to us.
        let Ok(data) = frame.into_data() else { continue };
        let so_far = first.len().max(rest.len()) + data.len();
        if so_far > bytes_max {
            return Err(HttpRefusal::BodyTooLarge);
        }
        ticket.hold(so_far)?;
        if first.is_empty() && rest.is_empty() {
            // Nearly every body is one frame, and is passed on without a copy.
            first = data;
            continue;
        }
        if rest.is_empty() {
            let room =
                usize::try_from(announced).unwrap_or(0).clamp(so_far, ROOM_BYTES_MAX.max(so_far));
            rest.reserve(room);
            rest.extend_from_slice(&first);
            first = Bytes::new();
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The next frame within the time of the whole body. The timer is made when
/// there is something to wait for: most bodies arrive with their head.
async fn next_frame(
    body: &mut Incoming,
    timer: &mut Option<Pin<Box<Sleep>>>,
    settings: &Settings,
) -> Result<Option<Frame<Bytes>>, HttpRefusal> {
    poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(None) => Poll::Ready(Ok(None)),
        Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Some(frame))),
        Poll::Ready(Some(Err(_))) => Poll::Ready(Err(HttpRefusal::BodyBroken)),
        Poll::Pending => {
            let timer =
                timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(settings.body_timeout)));
            ready!(timer.as_mut().poll(cx));
            Poll::Ready(Err(HttpRefusal::BodySlow))
        }
    })
    .await
}

/// JSON or not said. But a browser must say it: only a content type that is
/// not one of a plain form makes it ask (by a preflight) whether it may call.
fn check_content_type(headers: RequestHeaders<'_>) -> Result<(), HttpRefusal> {
    let Some(value) = headers.get("content-type") else {
        return if headers.has("origin") { Err(HttpRefusal::NotJson) } else { Ok(()) };
    };
    // As nearly every client writes it.
    if value == b"application/json" || is_json(value) { Ok(()) } else { Err(HttpRefusal::NotJson) }
}

fn is_json(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let mut pieces = text.split(';').map(str::trim);
    let essence = pieces.next().unwrap_or_default();
    let json = ["application/json", "application/json-rpc", "application/jsonrequest"]
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known));
    json && pieces.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            ["utf-8", "utf8", "us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known))
        }
        _ => true,
    })
}

fn is_gzip(headers: RequestHeaders<'_>) -> Result<bool, HttpRefusal> {
    let mut gzip = false;
    for value in headers.all("content-encoding") {
        let Ok(text) = std::str::from_utf8(value) else {
            return Err(HttpRefusal::UnsupportedEncoding);
        };
        match text.trim() {
            name if name.is_empty() || name.eq_ignore_ascii_case("identity") => {}
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                // Twice would be legal, and is only ever a bomb.
                if gzip {
                    return Err(HttpRefusal::UnsupportedEncoding);
                }
                gzip = true;
            }
            _ => return Err(HttpRefusal::UnsupportedEncoding),
        }
    }
    Ok(gzip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_head;

    fn check(text: &str, expected: Result<bool, HttpRefusal>) {
        with_head(text, |head| {
            let (path, query) = head.target.parts();
            let path = RequestPath::read(path, query);
            let asked = read_head(&head, path, &Settings::default());
            assert_eq!(asked.map(|asked| asked.gzip), expected, "{text}");
        });
    }

    #[test]
    fn methods_and_paths() {
        check("POST /", Ok(false));
        check("POST /1", Ok(false));
        check("POST /1/2", Err(HttpRefusal::NotFound));
        check("GET /1/2", Err(HttpRefusal::NotFound));
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
            check(&format!("{method} /"), Err(HttpRefusal::MethodNotAllowed));
        }
    }

    #[test]
    fn content_types() {
        check("POST / | content-type: application/json", Ok(false));
        check("POST / | content-type: application/json; charset=utf-8", Ok(false));
        check("POST / | content-type: Application/JSON;charset=\"UTF-8\"", Ok(false));
        check("POST / | content-type: application/json-rpc", Ok(false));
        check("POST / | content-type: application/json; charset=utf-16", Err(HttpRefusal::NotJson));
        check("POST / | content-type: text/plain", Err(HttpRefusal::NotJson));
        check("POST / | content-type: application/jsonp", Err(HttpRefusal::NotJson));
        check(
            "POST / | content-type: application/x-www-form-urlencoded",
            Err(HttpRefusal::NotJson),
        );
        check("POST / | content-type:", Err(HttpRefusal::NotJson));
    }

    #[test]
    fn a_page_must_say_the_content_type() {
        check("POST / | origin: https://a.example", Err(HttpRefusal::NotJson));
        check("POST / | origin: https://a.example | content-type: application/json", Ok(false));
    }

    #[test]
    fn content_encodings() {
        check("POST / | content-encoding: gzip", Ok(true));
        check("POST / | content-encoding: X-GZIP", Ok(true));
        check("POST / | content-encoding: identity", Ok(false));
        check("POST / | content-encoding: br", Err(HttpRefusal::UnsupportedEncoding));
        check("POST / | content-encoding: gzip, gzip", Err(HttpRefusal::UnsupportedEncoding));
        check(
            "POST / | content-encoding: gzip | content-encoding: gzip",
            Err(HttpRefusal::UnsupportedEncoding),
        );
    }
}
