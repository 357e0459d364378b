//! The headers of a request, whichever protocol brought it, and those of an answer.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use wellhead_http1::request::fields;

/// The headers of an answer, but for those that frame it. Names do not repeat, but `vary`.
pub(crate) type ResponseHeaders = Vec<(HeaderName, HeaderValue)>;

/// The headers of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestHeaders<'a> {
    Lines(&'a [httparse::Header<'a>]),
    Map(&'a HeaderMap),
}

impl<'a> RequestHeaders<'a> {
    /// The first value of `name`, which is in lower case.
    pub(crate) fn get(self, name: &'static str) -> Option<&'a [u8]> {
        match self {
            Self::Lines(lines) => fields(lines, name).next(),
            Self::Map(map) => map.get(name).map(HeaderValue::as_bytes),
        }
    }

    pub(crate) fn has(self, name: &'static str) -> bool {
        self.get(name).is_some()
    }

    /// All fields, name and value, in the order of their protocol.
    pub(crate) fn fields(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (lines, map) = match self {
            Self::Lines(lines) => (Some(lines.iter().map(|line| (line.name, line.value))), None),
            Self::Map(map) => {
                (None, Some(map.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))))
            }
        };
        lines.into_iter().flatten().chain(map.into_iter().flatten())
    }

    /// All values of `name`, each line its own.
    pub(crate) fn all(self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        let (lines, map) = match self {
            Self::Lines(lines) => (Some(fields(lines, name)), None),
            Self::Map(map) => (None, Some(map.get_all(name).iter().map(HeaderValue::as_bytes))),
        };
        lines.into_iter().flatten().chain(map.into_iter().flatten())
    }
}
