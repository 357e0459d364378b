//! The head of a request as the endpoints see it, whichever protocol brought it.
//!
//! A view for as long as the head is being judged: whatever is needed later is
//! taken out of it, because its bytes are not kept.

use http::Uri;

use crate::headers::RequestHeaders;

/// Method, target and headers of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: RequestTarget<'a>,
    pub(crate) headers: RequestHeaders<'a>,
    /// It came over HTTP/1.1, so that its connection can be upgraded to another protocol.
    pub(crate) may_upgrade: bool,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestTarget<'a> {
    /// As nearly every client writes it: a path that begins with `/`, and a query.
    Origin(&'a str),
    /// Any other form, and every one of HTTP/2.
    Uri(&'a Uri),
}

impl<'a> RequestTarget<'a> {
    /// The host and port that the target itself names: always in HTTP/2, seldom before.
    pub(crate) fn authority(self) -> Option<&'a str> {
        match self {
            Self::Origin(_) => None,
            Self::Uri(uri) => uri.authority().map(http::uri::Authority::as_str),
        }
    }

    /// The path and the query, as they came.
    pub(crate) fn parts(self) -> (&'a str, Option<&'a str>) {
        match self {
            Self::Origin(text) => match text.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (text, None),
            },
            Self::Uri(uri) => (uri.path(), uri.query()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::{HeaderName, HeaderValue, Request};

    use super::*;

    /// Calls `check` with the same head as either protocol brings it; `text` is
    /// `METHOD target | name: value | ...`.
    pub(crate) fn with_head(text: &str, mut check: impl FnMut(RequestHead<'_>)) {
        let mut lines = text.split('|').map(str::trim);
        let (method, target) = lines.next().unwrap().split_once(' ').unwrap();
        let pairs: Vec<_> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let parsed: Vec<_> = pairs
            .iter()
            .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
            .collect();
        check(RequestHead {
            method,
            target: RequestTarget::Origin(target),
            headers: RequestHeaders::Lines(&parsed),
            may_upgrade: true,
        });
        let mut request = Request::new(());
        *request.uri_mut() = target.parse().unwrap();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        let (uri, headers) = (request.uri(), request.headers());
        check(RequestHead {
            method,
            target: RequestTarget::Uri(uri),
            headers: RequestHeaders::Map(headers),
            may_upgrade: false,
        });
    }

    #[test]
    fn both_kinds_say_the_same() {
        with_head("POST /1?a=1 | accept-encoding: a | x: y | Accept-Encoding: b", |head| {
            let all: Vec<_> = head.headers.all("accept-encoding").collect();
            assert_eq!(all, [b"a", b"b"]);
            assert_eq!(head.headers.get("accept-encoding"), Some(&b"a"[..]));
            assert!(!head.headers.has("origin"));
            assert_eq!(head.target.parts(), ("/1", Some("a=1")));
        });
    }
}
