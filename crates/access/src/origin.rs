//! Patterns over origins of web pages.

use std::fmt;
use std::str::FromStr;

/// Longest origin accepted, in bytes: a scheme, the longest name of a host, and a port.
pub(crate) const ORIGIN_BYTES_MAX: usize = 300;

/// One origin, or all hosts below one: `https://app.example.org`, `https://*.example.org:8443`.
///
/// `*` stands for one or more labels, and not for the host itself. Case is ignored, as it is in names of
/// hosts. A browser leaves the default port out; so does a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern {
    /// Up to the host, or the whole.
    scheme: Box<str>,
    /// What stands behind `://` or behind `*`.
    host: Box<str>,
    any_below: bool,
}

impl OriginPattern {
    /// Whether a page of this origin is meant. `null`, which pages without an origin send, never is.
    pub fn matches(&self, origin: &[u8]) -> bool {
        if origin.len() > ORIGIN_BYTES_MAX {
            return false;
        }
        let Some((scheme, host)) = origin.split_at_checked(self.scheme.len()) else { return false };
        if !scheme.eq_ignore_ascii_case(self.scheme.as_bytes()) {
            return false;
        }
        if !self.any_below {
            return host.eq_ignore_ascii_case(self.host.as_bytes());
        }
        let Some(labels) = host.len().checked_sub(self.host.len()) else { return false };
        let (labels, below) = host.split_at(labels);
        below.eq_ignore_ascii_case(self.host.as_bytes()) && are_labels(labels)
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.scheme, if self.any_below { "*" } else { "" }, self.host)
    }
}

/// A text that is no pattern over origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an origin is `https://app.example.org`, or `https://*.example.org` for all below it")]
pub struct OriginPatternError;

impl FromStr for OriginPattern {
    type Err = OriginPatternError;

    fn from_str(text: &str) -> Result<Self, OriginPatternError> {
        let scheme_bytes = text.find("://").ok_or(OriginPatternError)? + "://".len();
        let (scheme, rest) = text.split_at(scheme_bytes);
        let word = &scheme[..scheme.len() - "://".len()];
        let is_scheme = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let begins_well = word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        let (host, any_below) = match rest.strip_prefix('*') {
            Some(host) => (host, true),
            None => (rest, false),
        };
        // Below a name of one label would be half of the web.
        let has_parent = |host: &str| host.starts_with('.') && host[1..].contains('.');
        let name = host.strip_prefix('.').filter(|_| any_below).unwrap_or(host);
        let is_good = is_scheme
            && begins_well
            && is_host(name)
            && (!any_below || has_parent(host))
            && text.len() <= ORIGIN_BYTES_MAX;
        if !is_good {
            return Err(OriginPatternError);
        }
        Ok(Self { scheme: scheme.into(), host: host.into(), any_below })
    }
}

/// A name or an address with perhaps a port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        Some(_) | None => (text, None),
    };
    let is_v6 = |name: &str| {
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0));
    is_port && (is_v6(name) || are_labels(name.as_bytes()))
}

/// Labels of a name, divided by single dots.
fn are_labels(text: &[u8]) -> bool {
    let is_label = |label: &[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.iter().all(is_plain)
    };
    text.split(|byte| *byte == b'.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let origin: OriginPattern = pattern.parse().unwrap();
        assert_eq!(origin.to_string(), pattern);
        for text in yes {
            assert!(origin.matches(text.as_bytes()), "`{pattern}` should match `{text}`");
        }
        for text in no {
            assert!(!origin.matches(text.as_bytes()), "`{pattern}` should not match `{text}`");
        }
    }

    #[test]
    fn exact() {
        check(
            "https://app.example.org",
            &["https://app.example.org", "HTTPS://App.Example.org"],
            &[
                "http://app.example.org",
                "https://app.example.org:8443",
                "https://app.example.org.evil.net",
                "https://xapp.example.org",
                "https://app.example.org/",
                "null",
                "",
            ],
        );
        check("http://localhost:3000", &["http://localhost:3000"], &["http://localhost"]);
        check("http://[::1]:3000", &["http://[::1]:3000"], &["http://[::1]"]);
        check("http://[::1]", &["http://[::1]"], &["http://[::2]"]);
        check("chrome-extension://abcdef", &["chrome-extension://abcdef"], &["https://abcdef"]);
    }

    #[test]
    fn all_below() {
        check(
            "https://*.example.org",
            &["https://a.example.org", "https://a.b.example.org", "https://A-1.EXAMPLE.org"],
            &[
                "https://example.org",
                "https://.example.org",
                "https://a..example.org",
                "https://evilexample.org",
                "https://evil.net/.example.org",
                "https://evil.net:1.example.org",
                "https://user@a.example.org",
                "http://a.example.org",
                "https://a.example.org:8443",
                "https://a.example.org.evil.net",
            ],
        );
        check(
            "https://*.example.org:8443",
            &["https://a.example.org:8443"],
            &["https://a.example.org"],
        );
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "*",
            "https://",
            "https://*",
            "https://*.",
            "https://*.org",
            "https://*example.org",
            "https://a.*.example.org",
            "https://example.org/",
            "https://example.org/x",
            "example.org",
            "://example.org",
            "1a://example.org",
            "https://example.org:0",
            "https://example.org:x",
            "https://user@example.org",
            "https://exa mple.org",
            "null",
            "https://.example.org",
        ] {
            assert_eq!(text.parse::<OriginPattern>(), Err(OriginPatternError), "{text}");
        }
        let long = format!("https://{}.org", "a".repeat(300));
        assert!(long.parse::<OriginPattern>().is_err());
        let origin: OriginPattern = "https://*.example.org".parse().unwrap();
        assert!(!origin.matches(format!("https://{}.example.org", "a".repeat(300)).as_bytes()));
    }
}
