//! Strings and URLs that cannot print themselves.
//!
//! Provider URLs carry keys in their path, their query or their user info, so
//! only scheme, host and port are ever shown, the host without its labels that look like keys
//! ([`key_in_host`]). Code that needs the whole URL calls
//! `expose`, which is easy to search for.

use std::fmt;
use std::ops::Range;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not a URL at all.
    #[error("not a valid URL")]
    NotAUrl,
    /// No scheme such as `http://`.
    #[error("the URL has no scheme such as `http://`")]
    NoScheme,
    /// No host.
    #[error("the URL has no host")]
    NoHost,
    /// A line break, another control character or a blank in it, which parsers of URLs would drop
    /// or encode without a word.
    #[error("the URL holds a line break, another control character or a blank")]
    Blank,
}

impl SecretUrl {
    /// Parses an absolute URL with a host.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let text = text.trim_matches(' ');
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(BadUrl::Blank);
        }
        let url = match Url::parse(text) {
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

    /// The host with `***` in the place of a label that looks like a key.
    pub fn shown_host(&self) -> String {
        let mut host = self.0.host_str().unwrap_or_default().to_owned();
        for label in key_in_host(&host).into_iter().rev() {
            host.replace_range(label, "***");
        }
        host
    }

    /// Host and port, as far as they are no secret.
    pub fn authority(&self) -> String {
        let host = self.shown_host();
        match self.0.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }
}

/// Names below the registered one, such as `KEY` in `KEY.eth.example.com`: the last labels are
/// those that a registry gave.
const REGISTERED_LABELS: usize = 2;
/// A shorter piece of a label is no key.
const KEY_LEN_MIN: usize = 8;
/// A piece this long is one, whatever it looks like.
const KEY_LEN_SURE: usize = 20;
/// A word may have a number behind it that has at most this many digits: `archive12`.
const NUMBER_LEN_MAX: usize = 3;
/// A word has at most this many consonants in a row ...
const CONSONANTS_MAX: usize = 5;
/// ... and of its letters at least one in this many is a vowel.
const VOWELS_SHARE: usize = 5;

/// Where `host` has labels that look like keys, as byte ranges in order.
///
/// A guess, on the safe side: a label that only looks like a key is missing from a name, while a
/// key that looks like words is shown.
pub fn key_in_host(host: &str) -> Vec<Range<usize>> {
    // The brackets of an IPv6 address; in that of an IPv4 address each label is short.
    if host.starts_with('[') {
        return Vec::new();
    }
    let mut labels = Vec::new();
    let mut start = 0;
    for label in host.split('.') {
        labels.push(start..start + label.len());
        start += label.len() + 1;
    }
    labels.truncate(labels.len().saturating_sub(REGISTERED_LABELS));
    labels.retain(|label| looks_like_a_key(&host[label.clone()]));
    labels
}

fn looks_like_a_key(label: &str) -> bool {
    label.split(['-', '_']).any(|piece| piece.len() >= KEY_LEN_MIN && !is_a_word(piece))
}

/// Whether a person may have chosen `piece`: letters that can be spoken, and perhaps a number.
fn is_a_word(piece: &str) -> bool {
    let letters = piece.trim_end_matches(|c: char| c.is_ascii_digit());
    if piece.len() >= KEY_LEN_SURE
        || piece.len() - letters.len() > NUMBER_LEN_MAX
        || letters.bytes().all(|byte| byte.is_ascii_hexdigit())
        || !letters.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        return false;
    }
    let is_vowel = |byte: &u8| b"aeiouyAEIOUY".contains(byte);
    let vowels = letters.bytes().filter(|byte| is_vowel(byte)).count();
    let runs = letters.as_bytes().split(is_vowel);
    vowels * VOWELS_SHARE >= letters.len() && runs.map(<[u8]>::len).all(|it| it <= CONSONANTS_MAX)
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.shown_host())?;
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
    fn a_key_in_the_host_is_not_shown() {
        for host in [
            // Words, as providers and operators choose them.
            "localhost",
            "geth",
            "abcdef0123456789",
            "eth-mainnet.g.alchemy.com",
            "ethereum-rpc.publicnode.com",
            "cool-wandering-dawn.ethereum-sepolia.quiknode.pro",
            "archive12.nodes.example.com",
            "mainnet.infura.io",
            "nightshift.example.com",
            "erigon-archive-2.eu-central-1.internal.example",
            "192.168.100.200",
            "[2001:db8::1234:5678]",
        ] {
            check(&format!("https://{host}"), &format!("https://{host}"));
        }
        for (host, shown) in [
            ("a1b2c3d4e5f6.eth.example.com", "***.eth.example.com"),
            ("deadbeefcafe.example.com", "***.example.com"),
            ("12345678.example.com", "***.example.com"),
            ("xkqzvbnmwrtp.rpc.example.com", "***.rpc.example.com"),
            ("eth-a8f3k2m9.rpc.example.com", "***.rpc.example.com"),
            ("eth.averyverylongsecretkeyofletters.example.com", "eth.***.example.com"),
            ("key0123456789.a.token9876543210.example.com", "***.a.***.example.com"),
        ] {
            check(&format!("https://{host}/x"), &format!("https://{shown}/…"));
            let url = SecretUrl::parse(&format!("https://{host}:1")).expect("a good URL");
            assert_eq!(url.authority(), format!("{shown}:1"));
        }
    }

    #[test]
    fn bad_urls_are_named_without_being_quoted() {
        for (text, problem) in [
            ("", BadUrl::NoScheme),
            ("eth.example/KEY", BadUrl::NoScheme),
            ("localhost:8545", BadUrl::NoScheme),
            ("http://", BadUrl::NoHost),
            ("http://[::1/KEY", BadUrl::NotAUrl),
            ("http://a/KEY\r\nX-Key: a", BadUrl::Blank),
            ("http://a/KEY\n", BadUrl::Blank),
            ("http://a/a\tKEY", BadUrl::Blank),
            ("http://a/a KEY", BadUrl::Blank),
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
