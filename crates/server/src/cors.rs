//! Which web pages may call: CORS, without credentials.
//!
//! Off by default: then a browser refuses to let a page call at all, because
//! JSON needs a preflight and the preflight is answered 405.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};

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
    /// Origins that are no legal header value were reported by
    /// [`crate::Settings::problems`] and are passed over.
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
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        match self {
            Self::Off => None,
            Self::Any => {
                headers.contains_key(ORIGIN).then_some(const { HeaderValue::from_static("*") })
            }
            Self::Listed(origins) => {
                headers.get(ORIGIN).filter(|origin| origins.contains(origin)).cloned()
            }
        }
    }

    /// Adds to an answer what lets the page read it.
    pub(crate) fn write(&self, allowed: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if matches!(self, Self::Listed(_)) {
            // Also without an origin: a cache must not serve that answer to a page.
            headers.append(VARY, const { HeaderValue::from_static("origin") });
        }
        let Some(origin) = allowed else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            const {
                HeaderValue::from_static(
                    "retry-after, x-wellhead-upstream, x-wellhead-attempts, x-wellhead-cache, x-wellhead-trail",
                )
            },
        );
    }

    /// Adds to the answer of an OPTIONS request what the page may send.
    pub(crate) fn write_preflight(&self, asked: &HeaderMap, headers: &mut HeaderMap) {
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            const { HeaderValue::from_static("POST, OPTIONS") },
        );
        // Libraries send headers of their own; none of them gives any right here.
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS)
            && names.len() <= ASKED_BYTES_MAX
        {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            headers
                .append(VARY, const { HeaderValue::from_static("access-control-request-headers") });
        }
        // The longest that any browser honours.
        headers.insert(ACCESS_CONTROL_MAX_AGE, const { HeaderValue::from_static("86400") });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(origins: &[&str], origin: Option<&'static str>, expected: Option<&str>) {
        let origins: Vec<String> = origins.iter().map(|&o| o.to_owned()).collect();
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
        }
        let allowed = Cors::new(&origins).allowed(&headers);
        assert_eq!(allowed.as_ref().map(|v| v.to_str().unwrap()), expected, "{origins:?}");
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
