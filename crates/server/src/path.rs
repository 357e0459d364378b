//! The path of a request: `/`, or `/{chain}`, with or without a trailing slash.
//!
//! Which chains exist, and what a query means, is for the handler to know. A path of more segments is
//! not one of ours: keys in the path come with `access`.

use std::sync::Arc;

/// A chain's name or id is at most this long, decoded.
const CHAIN_BYTES_MAX: usize = 64;

/// The chain that a path names, if any, and its query.
#[derive(Debug, Clone)]
pub struct RequestPath {
    /// Shared, as all calls of a WebSocket connection have one.
    chain: Option<Arc<str>>,
    query: Option<Arc<str>>,
}

impl RequestPath {
    /// Reads the parts of a request target; `None` when it cannot name anything we serve.
    pub(crate) fn read(path: &str, query: Option<&str>) -> Option<Self> {
        let inner = path.strip_prefix('/')?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let chain = if inner.is_empty() {
            // "//" is not "/": an empty segment names nothing.
            if path.len() > 1 {
                return None;
            }
            None
        } else if inner.contains('%') {
            Some(decode(inner).filter(|chain| is_plain(chain))?)
        } else if is_plain(inner) {
            Some(inner.into())
        } else {
            return None;
        };
        Some(Self { chain, query: query.map(Into::into) })
    }

    /// The chain's name or id as the client wrote it, decoded.
    pub fn chain(&self) -> Option<&str> {
        self.chain.as_deref()
    }

    /// The query as the client wrote it, not decoded; `None` for none and for an empty one.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref().filter(|query| !query.is_empty())
    }

    /// Whether the query has `name`, alone or as `name=1` or `name=true`.
    pub fn flag(&self, name: &str) -> bool {
        let Some(query) = &self.query else { return false };
        query.split('&').any(|pair| match pair.split_once('=') {
            Some((key, value)) => key == name && (value == "1" || value == "true"),
            None => pair == name,
        })
    }
}

/// What may name a chain. Anything else would only turn up in logs and metrics.
fn is_plain(chain: &str) -> bool {
    chain.len() <= CHAIN_BYTES_MAX
        && chain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn decode(text: &str) -> Option<Arc<str>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    fn read(target: &str) -> Option<RequestPath> {
        let uri: Uri = target.parse().expect("a target");
        RequestPath::read(uri.path(), uri.query())
    }

    fn check(target: &'static str, expected: Option<Option<&str>>) {
        let path = read(target);
        assert_eq!(path.as_ref().map(RequestPath::chain), expected, "{target}");
    }

    #[test]
    fn paths() {
        check("/", Some(None));
        check("/?x=1", Some(None));
        check("/ethereum", Some(Some("ethereum")));
        check("/ethereum/", Some(Some("ethereum")));
        check("/1?trail", Some(Some("1")));
        check("http://host:1/base", Some(Some("base")));
        check("http://host", Some(None));
        check("/arbitrum%2done", Some(Some("arbitrum-one")));
        check("/arbitrum%2Done", Some(Some("arbitrum-one")));
    }

    #[test]
    fn not_paths_of_ours() {
        check("//", None);
        check("//1", None);
        check("/1//", None);
        check("/1/key", None);
        check("*", None);
        check("host:1", None);
        check("/a%2fb", None);
        check("/a%0d%0ab", None);
        check("/a%", None);
        check("/a%4", None);
        check("/a%zz", None);
        check("/%ff", None);
        check("/a'b", None);
    }

    #[test]
    fn a_long_name_is_none() {
        let long = format!("/{}", "a".repeat(CHAIN_BYTES_MAX + 1));
        assert!(read(&long).is_none());
    }

    #[test]
    fn queries() {
        let query = |target| read(target).unwrap().query().map(str::to_owned);
        assert_eq!(query("/1?archive=true&a=%20"), Some("archive=true&a=%20".to_owned()));
        assert_eq!((query("/1"), query("/1?")), (None, None));
    }

    #[test]
    fn flags() {
        let path = read("/1?a&b=1&c=0&d=true&e=").unwrap();
        let set: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| path.flag(name)).into();
        assert_eq!(set, [true, true, false, true, false, false]);
    }
}
