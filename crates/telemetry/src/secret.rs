//! Strings and URLs that cannot print themselves.
//!
//! Provider URLs carry keys in their path, their query or their user info, so
//! only scheme, host and port are ever shown. Who must have the whole calls
//! `expose`, which is easy to search for.

use std::fmt;

use url::Url;
use zeroize::Zeroizing;

/// A string that prints as `***` and is wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A URL that prints without user info, path and query.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(Url);

/// A text that is not a usable URL. Does not quote the text: it may hold a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadUrl {
    /// Not a URL at all.
    NotAUrl,
    /// No scheme such as `http://`.
    NoScheme,
    /// No host.
    NoHost,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAUrl => "not a valid URL",
            Self::NoScheme => "the URL has no scheme such as `http://`",
            Self::NoHost => "the URL has no host",
        })
    }
}

impl std::error::Error for BadUrl {}

impl SecretUrl {
    /// Parses an absolute URL with a host.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let url = match Url::parse(text.trim()) {
            Ok(url) => url,
            Err(url::ParseError::RelativeUrlWithoutBase) => return Err(BadUrl::NoScheme),
            Err(url::ParseError::EmptyHost) => return Err(BadUrl::NoHost),
            Err(_) => return Err(BadUrl::NotAUrl),
        };
        // `localhost:8545` parses as scheme `localhost`.
        if url.cannot_be_a_base() {
            return Err(BadUrl::NoScheme);
        }
        match url.host_str() {
            Some(host) if !host.is_empty() => Ok(Self(url)),
            Some(_) | None => Err(BadUrl::NoHost),
        }
    }

    /// The whole URL, for the wire only.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// Host and port, which are no secret.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        let is_alone = self.0.username().is_empty() && self.0.password().is_none();
        let bare = is_alone && matches!(self.0.path(), "" | "/") && self.0.query().is_none();
        if bare { Ok(()) } else { f.write_str("/…") }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        let url = SecretUrl::parse(text).expect("a good URL");
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), shown);
    }

    #[test]
    fn only_the_place_is_shown() {
        check("http://127.0.0.1:8545", "http://127.0.0.1:8545");
        check("https://eth.example/v2/KEY", "https://eth.example/…");
        check("https://eth.example/?apikey=KEY", "https://eth.example/…");
        check("https://user:pass@eth.example", "https://eth.example/…");
        check("wss://eth.example:8443/ws/KEY#KEY", "wss://eth.example:8443/…");
    }

    #[test]
    fn bad_urls_are_named_without_being_quoted() {
        for (text, problem) in [
            ("", BadUrl::NoScheme),
            ("eth.example/KEY", BadUrl::NoScheme),
            ("localhost:8545", BadUrl::NoScheme),
            ("http://", BadUrl::NoHost),
            ("http://[::1/KEY", BadUrl::NotAUrl),
        ] {
            assert_eq!(SecretUrl::parse(text), Err(problem), "{text}");
            assert!(!problem.to_string().contains("KEY"));
        }
    }

    #[test]
    fn a_secret_prints_stars() {
        let secret = Secret::new("KEY");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.expose(), "KEY");
    }
}
