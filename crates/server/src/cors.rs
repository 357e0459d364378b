//! Which web pages may call: CORS, without credentials.
//!
//! Off by default: then a browser refuses to let a page call at all, because JSON needs a
//! preflight and the preflight is answered 403. A page cannot see why, so the log tells it.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderValue, VARY,
};

use crate::headers::{RequestHeaders, ResponseHeaders};

/// A preflight may ask for this many bytes of header names.
const ASKED_BYTES_MAX: usize = 1024;

/// The origins that may call.
#[derive(Debug, Clone)]
pub(crate) enum Cors {
    Off,
    Any,
    Listed(Vec<HeaderValue>),
}

impl Cors {
    /// Origins that are no legal header value are passed over.
    pub(crate) fn new(origins: &[String]) -> Self {
        if origins.iter().any(|origin| origin == "*") {
            Self::Any
        } else if origins.is_empty() {
            Self::Off
        } else {
            let listed = origins.iter().filter_map(|o| HeaderValue::from_str(o).ok());
            Self::Listed(listed.collect())
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// What to say to a request with these headers; `None` when nothing.
    pub(crate) fn allowed(&self, headers: RequestHeaders<'_>) -> Option<HeaderValue> {
        match self {
            Self::Off => None,
            Self::Any => headers.has("origin").then_some(const { HeaderValue::from_static("*") }),
            Self::Listed(origins) => {
                let origin = headers.get("origin")?;
                origins.iter().find(|known| known.as_bytes() == origin).cloned()
            }
        }
    }

    /// Whether this is a browser's question for a page that may not call.
    pub(crate) fn refuses(
        &self,
        method: &str,
        headers: RequestHeaders<'_>,
        allowed: Option<&HeaderValue>,
    ) -> bool {
        method == "OPTIONS"
            && allowed.is_none()
            && headers.has("origin")
            && headers.has("access-control-request-method")
    }

    /// Adds to an answer what lets the page read it.
    pub(crate) fn write(&self, allowed: Option<&HeaderValue>, fields: &mut ResponseHeaders) {
        if matches!(self, Self::Listed(_)) {
            // Also without an origin: a cache must not serve that answer to a page.
            fields.push((VARY, const { HeaderValue::from_static("origin") }));
        }
        let Some(origin) = allowed else { return };
        fields.push((ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()));
        fields.push((
            ACCESS_CONTROL_EXPOSE_HEADERS,
            const {
                HeaderValue::from_static(
                    "retry-after, ratelimit, ratelimit-policy, x-wellhead-upstream, x-wellhead-attempts, x-wellhead-cache, x-wellhead-block, x-wellhead-warning, x-wellhead-trail",
                )
            },
        ));
    }

    /// What the answer of an OPTIONS request says the page may send.
    pub(crate) fn preflight(&self, asked: RequestHeaders<'_>) -> ResponseHeaders {
        let mut fields = vec![(
            ACCESS_CONTROL_ALLOW_METHODS,
            const { HeaderValue::from_static("POST, OPTIONS") },
        )];
        // Libraries send headers of their own; none of them gives any right here.
        if let Some(names) = asked.get("access-control-request-headers")
            && names.len() <= ASKED_BYTES_MAX
            && let Ok(names) = HeaderValue::from_bytes(names)
        {
            fields.push((ACCESS_CONTROL_ALLOW_HEADERS, names));
            let vary = const { HeaderValue::from_static("access-control-request-headers") };
            fields.push((VARY, vary));
        }
        // The longest that any browser honours.
        fields.push((ACCESS_CONTROL_MAX_AGE, const { HeaderValue::from_static("86400") }));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::tests::with_head;

    fn check(origins: &[&str], origin: Option<&'static str>, expected: Option<&str>) {
        let origins: Vec<String> = origins.iter().map(|&o| o.to_owned()).collect();
        let line = origin.map_or_else(String::new, |origin| format!("| origin: {origin}"));
        with_head(&format!("POST / {line}"), |head| {
            let allowed = Cors::new(&origins).allowed(head.headers);
            assert_eq!(allowed.as_ref().map(|v| v.to_str().unwrap()), expected, "{origins:?}");
        });
    }

    #[test]
    fn origins() {
        let app = "https://app.example";
        check(&[], Some(app), None);
        check(&["*"], Some(app), Some("*"));
        check(&["*"], None, None);
        check(&[app], Some(app), Some(app));
        check(&[app], Some("https://app.example.evil"), None);
        check(&[app], Some("null"), None);
        check(&[app, "null"], Some("null"), Some("null"));
        check(&["https://b.example", "*"], Some(app), Some("*"));
    }
}
