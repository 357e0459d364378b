//! Where a head carries a secret, and which one it is.
//!
//! Looked for in the path (`/{key}`, `/{chain}/{key}`, `/{key}/{chain}`), in `x-api-key`, in
//! `authorization` as `Bearer` or `Basic`, in `sec-websocket-protocol` as `wellhead.key.{key}`, and in the
//! query as `?key=`; which of these count is a setting. Two different secrets are an error: the client
//! would not know which of its keys was charged. One secret in two places is one.
//!
//! A key of ours is told by its prefix, a token by its three parts. What is neither is a foreign key where
//! those are enabled, and else a malformed key. Texts are borrowed from the head, but for Basic, whose
//! password has to be decoded, and for percent-encoded paths.
//!
//! A segment of the path, and a name or a value of the query, that begins like a key of ours, in whatever case, is
//! never left in the target: it would be told as the name of an unknown chain or label. Where it does not count it is a malformed key.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::key::{ApiKey, KEY_PREFIX, KeyId, begins_like_key};
use crate::key_hash::check_foreign;

/// Longest secret of a field, in bytes: a large token. What is longer is malformed, and is not looked at.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;
/// Subprotocols of one line that are looked at. Those behind them carry no key.
const PROTOCOLS_MAX: usize = 16;
const PROTOCOL_PREFIX: &str = "wellhead.key.";
const QUERY_NAME: &str = "key";

/// Whether a subprotocol of WebSocket is made to carry a secret, in whatever case: it must not be named
/// in an answer.
pub fn is_secret_protocol(name: &str) -> bool {
    let prefix = name.as_bytes().get(..PROTOCOL_PREFIX.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PROTOCOL_PREFIX.as_bytes()))
}

/// Where secrets are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialSources {
    /// A segment of the path.
    pub path: bool,
    /// The field `x-api-key`.
    pub x_api_key: bool,
    /// `Authorization: Bearer`, which also carries tokens.
    pub bearer: bool,
    /// `Authorization: Basic`: the password, with no user or the id of the key.
    pub basic: bool,
    /// A subprotocol `wellhead.key.{key}`, for browsers, which can set no field of a WebSocket handshake.
    pub websocket_protocol: bool,
    /// `?key=`. Queries end up in the logs of others.
    pub query: bool,
    /// Whether keys that were not made here are looked for, too: in the fields, and in the second segment
    /// of a path, behind the chain.
    pub foreign_keys: bool,
}

impl Default for CredentialSources {
    /// All but the query, for keys of ours.
    fn default() -> Self {
        Self {
            path: true,
            x_api_key: true,
            bearer: true,
            basic: true,
            websocket_protocol: true,
            ..Self::NONE
        }
    }
}

impl CredentialSources {
    /// None at all, for a listener that asks for certificates or networks alone.
    pub const NONE: Self = Self {
        path: false,
        x_api_key: false,
        bearer: false,
        basic: false,
        websocket_protocol: false,
        query: false,
        foreign_keys: false,
    };
}

/// A secret of the head. Cannot be printed.
#[derive(Clone)]
pub enum CredentialText<'a> {
    /// As it stands in the head.
    Borrowed(&'a str),
    /// Decoded.
    Decoded(Zeroizing<String>),
}

impl CredentialText<'_> {
    /// The text, for hashing and verifying.
    pub fn expose(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Decoded(text) => text,
        }
    }
}

impl fmt::Debug for CredentialText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a secret turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of ours, as far as its length and its id say.
    Key(KeyId),
    /// A text that may be another caller's key.
    Foreign,
    /// A signed token, by its shape.
    Token,
    /// None of these: no look-up is needed to refuse it.
    Malformed,
}

/// The one secret of a head.
#[derive(Debug, Clone)]
pub struct Credential<'a> {
    /// The secret.
    pub text: CredentialText<'a>,
    /// What it is.
    pub kind: CredentialKind,
}

/// What is left of a request's target without its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BareTarget<'a> {
    /// The path, if there was a key in it.
    pub path: Option<Cow<'a, str>>,
    /// The query, if there was a key in it.
    pub query: Option<String>,
}

/// A path with keys in it.
struct SplitPath<'p> {
    keys: [Option<&'p str>; 2],
    /// The path without them.
    bare: &'p str,
}

/// Two different secrets in one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DifferentCredentials;

/// Finds the secret while the fields of a head are walked over.
#[derive(Debug)]
pub struct CredentialFinder<'a> {
    sources: CredentialSources,
    found: Option<Credential<'a>>,
    are_different: bool,
    target: BareTarget<'a>,
}

impl<'a> CredentialFinder<'a> {
    /// Begins with the target of the request, as it came.
    pub fn new(sources: CredentialSources, path: &'a str, query: Option<&'a str>) -> Self {
        let (found, are_different, target) = (None, false, BareTarget::default());
        let mut finder = Self { sources, found, are_different, target };
        finder.read_path(path);
        if let Some(query) = query {
            finder.read_query(query);
        }
        finder
    }

    /// Looks at one field. Names are in whatever case.
    #[inline]
    pub fn read_field(&mut self, name: &str, value: &'a [u8]) {
        // Lengths tell these names from nearly all others.
        match name.len() {
            9 if self.sources.x_api_key && name.eq_ignore_ascii_case("x-api-key") => {
                self.offer_bytes(value.trim_ascii(), false);
            }
            13 if name.eq_ignore_ascii_case("authorization") => self.read_authorization(value),
            22 if self.sources.websocket_protocol
                && name.eq_ignore_ascii_case("sec-websocket-protocol") =>
            {
                self.read_protocols(value);
            }
            _ => {}
        }
    }

    /// The id of the key that was found so far.
    pub(crate) fn key_id(&self) -> Option<KeyId> {
        match self.found.as_ref()?.kind {
            CredentialKind::Key(id) => Some(id),
            CredentialKind::Foreign | CredentialKind::Token | CredentialKind::Malformed => None,
        }
    }

    /// The secret, when all fields were looked at, and the target without it.
    pub fn finish(self) -> Result<(Option<Credential<'a>>, BareTarget<'a>), DifferentCredentials> {
        if self.are_different { Err(DifferentCredentials) } else { Ok((self.found, self.target)) }
    }

    fn read_path(&mut self, path: &'a str) {
        if path.len() > CREDENTIAL_BYTES_MAX || path.len() <= 1 {
            return;
        }
        if !path.contains('%') {
            let Some(split) = self.split_path(path) else { return };
            self.target.path = Some(Cow::Borrowed(split.bare));
            for key in split.keys.into_iter().flatten() {
                self.offer_from_target(CredentialText::Borrowed(key), self.sources.path, false);
            }
            return;
        }
        // A key may be written in a way that only decoding shows.
        let Some(decoded) = percent_decoded(path) else { return };
        let Some(split) = self.split_path(&decoded) else { return };
        self.target.path = Some(Cow::Owned(split.bare.to_owned()));
        for key in split.keys.into_iter().flatten() {
            let text = CredentialText::Decoded(Zeroizing::new(key.to_owned()));
            self.offer_from_target(text, self.sources.path, false);
        }
    }

    /// The keys in a path; `None` where there is none.
    fn split_path<'p>(&self, path: &'p str) -> Option<SplitPath<'p>> {
        let inner = path.strip_prefix('/')?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let is_key = begins_like_key;
        let Some((first, second)) = inner.split_once('/') else {
            return is_key(inner).then_some(SplitPath { keys: [Some(inner), None], bare: "/" });
        };
        match (is_key(first), is_key(second)) {
            (true, true) => Some(SplitPath { keys: [Some(first), Some(second)], bare: "/" }),
            (true, false) => {
                Some(SplitPath { keys: [Some(first), None], bare: &path[1 + first.len()..] })
            }
            (false, is_key) => {
                let is_foreign = self.sources.path && self.sources.foreign_keys;
                let is_found =
                    is_key || (is_foreign && !second.is_empty() && !second.contains('/'));
                is_found
                    .then(|| SplitPath { keys: [Some(second), None], bare: &path[..=first.len()] })
            }
        }
    }

    fn read_query(&mut self, query: &'a str) {
        let pairs = || query.split('&');
        if !pairs().any(|pair| self.secret_of(pair).is_some()) {
            return;
        }
        let mut rest = Vec::new();
        for pair in pairs() {
            match self.secret_of(pair) {
                Some((text, counts)) => self.offer_from_target(text, counts, true),
                None => rest.push(pair),
            }
        }
        self.target.query = Some(rest.join("&"));
    }

    /// The secret in one pair of the query, and whether it counts there. A name or a value that begins like a key
    /// is one, too: it would be told as that of an unknown label.
    fn secret_of(&self, pair: &'a str) -> Option<(CredentialText<'a>, bool)> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == QUERY_NAME && self.sources.query && pair.contains('=') {
            return Some((CredentialText::Borrowed(value), true));
        }
        let is_key = |text: &&str| begins_like_key(text);
        if !pair.contains('%') {
            let key = [value, name].into_iter().find(is_key)?;
            return Some((CredentialText::Borrowed(key), false));
        }
        let decoded = [percent_decoded(value), percent_decoded(name)].into_iter().flatten();
        let key = decoded.into_iter().find(|text| begins_like_key(text))?;
        Some((CredentialText::Decoded(key), false))
    }

    /// A secret in the target that does not count there must not be left there either, where it would be
    /// told as the name of a chain or of a label.
    fn offer_from_target(&mut self, text: CredentialText<'a>, counts: bool, may_be_token: bool) {
        let kind = match counts {
            true => self.kind(text.expose(), may_be_token),
            false => CredentialKind::Malformed,
        };
        self.offer(Credential { text, kind });
    }

    fn read_authorization(&mut self, value: &'a [u8]) {
        let value = value.trim_ascii();
        let Some(blank) = value.iter().position(|byte| *byte == b' ') else { return };
        let (scheme, secret) = (&value[..blank], value[blank..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") && self.sources.bearer {
            self.offer_bytes(secret, true);
        } else if scheme.eq_ignore_ascii_case(b"basic") && self.sources.basic {
            self.read_basic(secret);
        }
    }

    fn read_basic(&mut self, secret: &'a [u8]) {
        if secret.len() > CREDENTIAL_BYTES_MAX {
            return self.offer_malformed();
        }
        let decoded = STANDARD.decode(secret).map(Zeroizing::new);
        let text = decoded.as_ref().ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let Some((user, password)) = text.and_then(|text| text.split_once(':')) else {
            return self.offer_malformed();
        };
        let kind = self.kind(password, false);
        let is_user =
            user.is_empty() || matches!(kind, CredentialKind::Key(id) if id.as_str() == user);
        let text = CredentialText::Decoded(Zeroizing::new(password.to_owned()));
        self.offer(Credential {
            text,
            kind: if is_user { kind } else { CredentialKind::Malformed },
        });
    }

    fn read_protocols(&mut self, value: &'a [u8]) {
        for protocol in value.split(|byte| *byte == b',').take(PROTOCOLS_MAX) {
            if let Some(secret) = protocol.trim_ascii().strip_prefix(PROTOCOL_PREFIX.as_bytes()) {
                self.offer_bytes(secret, true);
            }
        }
    }

    fn offer_bytes(&mut self, secret: &'a [u8], may_be_token: bool) {
        match std::str::from_utf8(secret) {
            Ok(text) => self.offer_text(text, may_be_token),
            Err(_) => self.offer_malformed(),
        }
    }

    fn offer_text(&mut self, text: &'a str, may_be_token: bool) {
        let kind = self.kind(text, may_be_token);
        self.offer(Credential { text: CredentialText::Borrowed(text), kind });
    }

    fn offer_malformed(&mut self) {
        let text = CredentialText::Borrowed("");
        self.offer(Credential { text, kind: CredentialKind::Malformed });
    }

    fn offer(&mut self, credential: Credential<'a>) {
        match &self.found {
            None => self.found = Some(credential),
            Some(found) if found.text.expose() == credential.text.expose() => {
                // One that is malformed where it stands, such as with a wrong user, stays so.
                if credential.kind == CredentialKind::Malformed {
                    self.found = Some(credential);
                }
            }
            Some(_) => self.are_different = true,
        }
    }

    fn kind(&self, text: &str, may_be_token: bool) -> CredentialKind {
        if text.len() > CREDENTIAL_BYTES_MAX {
            return CredentialKind::Malformed;
        }
        if text.starts_with(KEY_PREFIX) {
            return ApiKey::id_in(text).map_or(CredentialKind::Malformed, CredentialKind::Key);
        }
        if may_be_token && is_token(text) {
            return CredentialKind::Token;
        }
        if self.sources.foreign_keys && check_foreign(text).is_ok() {
            return CredentialKind::Foreign;
        }
        CredentialKind::Malformed
    }
}

/// Three parts, none of them empty, divided by dots: the shape of a signed token.
fn is_token(text: &str) -> bool {
    let mut parts = text.split('.');
    let mut next = || parts.next().is_some_and(|part| !part.is_empty());
    next() && next() && next() && parts.next().is_none()
}

/// `None` if it is not UTF-8 when decoded. A `%` without two digits stands for itself.
fn percent_decoded(text: &str) -> Option<Zeroizing<String>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (bytes, mut at) = (text.as_bytes(), 0);
    let mut decoded = Zeroizing::new(Vec::with_capacity(bytes.len()));
    while let Some(byte) = bytes.get(at) {
        let pair = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match pair.and_then(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)) {
            Some(value) => {
                decoded.push(value as u8);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(std::mem::take(&mut *decoded)).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey";
    const OTHER: &str = "wh_t_00000000_zzzzzzzzzzzzzzzzzzzzzzzzzz_p1pvcc";
    const FOREIGN: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    const JWT: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln";

    fn filled(text: &str) -> String {
        let text = text.replace("KEY", KEY).replace("OTHER", OTHER);
        text.replace("FOREIGN", FOREIGN).replace("JWT", JWT)
    }

    /// A head: the target, then fields, divided by `|`. `KEY` and so on stand for secrets.
    fn find(sources: CredentialSources, head: &str) -> String {
        let head = filled(head);
        let mut lines = head.split('|');
        let target = lines.next().expect("a target");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let mut finder = CredentialFinder::new(sources, path, query);
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field");
            finder.read_field(name, value.as_bytes());
        }
        let shown = format!("{finder:?}");
        assert!(!shown.contains("0123456789abcdef") && !shown.contains(FOREIGN), "{shown}");
        let Ok((found, target)) = finder.finish() else { return "different".to_owned() };
        let path = match &target.path {
            None => String::new(),
            Some(Cow::Borrowed(path)) => format!(" {path}"),
            Some(Cow::Owned(path)) => format!(" decoded {path}"),
        };
        let target = path + &target.query.map_or(String::new(), |query| format!(" ?{query}"));
        let Some(found) = found else { return format!("none{target}") };
        let text = found.text.expose();
        match found.kind {
            CredentialKind::Key(id) => {
                let word = match text {
                    KEY => "KEY",
                    OTHER => "OTHER",
                    _ => return format!("like {id}{target}"),
                };
                assert_eq!(ApiKey::parse(text).map(|key| key.id()), Ok(id));
                format!("{word}{target}")
            }
            CredentialKind::Foreign => {
                assert_eq!(text, FOREIGN);
                format!("FOREIGN{target}")
            }
            CredentialKind::Token => {
                assert_eq!(text, JWT);
                format!("JWT{target}")
            }
            CredentialKind::Malformed => format!("malformed{target}"),
        }
    }

    #[track_caller]
    fn check(head: &str, want: &str) {
        assert_eq!(find(CredentialSources::default(), head), want, "{head}");
    }

    #[track_caller]
    fn foreign(head: &str, want: &str) {
        let sources = CredentialSources { foreign_keys: true, ..CredentialSources::default() };
        assert_eq!(find(sources, head), want, "{head}");
    }

    #[test]
    fn in_the_path() {
        check("/", "none");
        check("/ethereum", "none");
        check("/ethereum/", "none");
        check("/KEY", "KEY /");
        check("/KEY/", "KEY /");
        check("/ethereum/KEY", "KEY /ethereum");
        check("/ethereum/KEY/", "KEY /ethereum");
        check("/KEY/ethereum", "KEY /ethereum");
        check("/KEY/ethereum/", "KEY /ethereum/");
        check("/KEY/KEY", "KEY /");
        check("/KEY/OTHER", "different");
        check("/ethereum/f47ac10b-58cc-4372-a567-0e02b2c3d479", "none");
        check("/a/b/KEY", "none");
        // In capitals it is not valid, and not told either.
        check("/WH_LIVE_7C9XK2MA", "malformed /");
        check("/ethereum/Wh_live_x", "malformed /ethereum");
        check("", "none");
        check("*", "none");
    }

    #[test]
    fn in_an_encoded_path() {
        let encoded = |text: &str| text.replace("wh_", "%77h%5F");
        check(&encoded(&filled("/KEY")), "KEY decoded /");
        check(&encoded(&filled("/ethereum/KEY")), "KEY decoded /ethereum");
        check("/eth%65reum", "none");
        check("/%", "none");
        check("/%ff", "none");
        check("/%zz/KEY", "KEY decoded /%zz");
    }

    #[test]
    fn in_fields() {
        check("/ethereum|x-api-key: KEY", "KEY");
        check("/|X-Api-Key:  KEY ", "KEY");
        check("/|authorization: Bearer KEY", "KEY");
        check("/|Authorization: bearer   KEY", "KEY");
        check("/|authorization: Bearer JWT", "JWT");
        check("/|x-api-key: JWT", "malformed");
        check("/|sec-websocket-protocol: wellhead.key.KEY", "KEY");
        check("/|sec-websocket-protocol: json-rpc, wellhead.key.KEY", "KEY");
        check("/|sec-websocket-protocol: json-rpc|sec-websocket-protocol: wellhead.key.KEY", "KEY");
        check("/|sec-websocket-protocol: wellhead.key.JWT", "JWT");
        check("/|sec-websocket-protocol: json-rpc", "none");
        check("/|authorization: Digest KEY", "none");
        check("/|authorization: Bearer", "none");
        check("/|x-other: KEY|x-api-kez: KEY", "none");
    }

    #[test]
    fn as_a_password() {
        let basic = |user: &str, password: &str| {
            format!(
                "/|authorization: Basic {}",
                STANDARD.encode(filled(&format!("{user}:{password}")))
            )
        };
        check(&basic("", "KEY"), "KEY");
        check(&basic("7c9xk2ma", "KEY"), "KEY");
        check(&basic("admin", "KEY"), "malformed");
        check(&basic("", "hunter2"), "malformed");
        foreign(&basic("", "FOREIGN"), "FOREIGN");
        foreign(&basic("user", "FOREIGN"), "malformed");
        foreign(&basic("", "short"), "malformed");
        check(&format!("/|authorization: Basic {}", STANDARD.encode("no colon")), "malformed");
        check("/|authorization: Basic !!!", "malformed");
        check(&format!("/|authorization: Basic {}", STANDARD.encode(b"\xff:\xff")), "malformed");
    }

    #[test]
    fn in_the_query_if_that_is_wanted() {
        let sources = CredentialSources { query: true, ..CredentialSources::default() };
        let query = |head: &str, want: &str| assert_eq!(find(sources, head), want, "{head}");
        check("/?key=KEY", "malformed ?");
        check("/?key=FOREIGN", "none");
        check("/KEY?key=KEY", "malformed / ?");
        query("/?key=KEY", "KEY ?");
        query("/?region=eu&key=KEY&archive=true", "KEY ?region=eu&archive=true");
        query("/?monkey=KEY", "malformed ?");
        query("/?a=1&KEY=true", "malformed ?a=1");
        check("/?KEY&a=%77", "malformed ?a=%77");
        check("/?label=%77h_live_x", "malformed ?");
        check("/?%57h_live_x=%", "malformed ?");
        query("/?key", "none");
        query("/?key=KEY&key=KEY", "KEY ?");
        query("/?key=KEY&key=OTHER", "different");
        query("/KEY?key=OTHER", "different");
        query("/KEY?key=KEY&a=1", "KEY / ?a=1");
        query("/?key=JWT", "JWT ?");
        query("/?key=", "malformed ?");
    }

    #[test]
    fn keys_of_others() {
        foreign("/ethereum/FOREIGN", "FOREIGN /ethereum");
        foreign("/ethereum/FOREIGN/", "FOREIGN /ethereum");
        foreign("/FOREIGN", "none");
        foreign("/ethereum/short", "malformed /ethereum");
        foreign("/ethereum/FOREIGN/x", "none");
        foreign("/ethereum//", "none");
        foreign("/|x-api-key: FOREIGN", "FOREIGN");
        foreign("/|authorization: Bearer FOREIGN", "FOREIGN");
        foreign("/|authorization: Bearer JWT", "JWT");
        check("/ethereum/FOREIGN", "none");
        check("/|x-api-key: FOREIGN", "malformed");
        check("/|authorization: Bearer FOREIGN", "malformed");
    }

    #[test]
    fn what_looks_like_a_key_and_is_none() {
        check("/wh_live_typo", "malformed /");
        check("/ethereum/wh_live_typo", "malformed /ethereum");
        check("/wh_live_typo/ethereum", "malformed /ethereum");
        check("/KEYx", "malformed /");
        check("/|x-api-key: wh_live_typo", "malformed");
        check("/|x-api-key: ", "malformed");
        check("/|authorization: Bearer a..c", "malformed");
        check("/|authorization: Bearer a.b.c.d", "malformed");
        // What has an id is looked up; see `AccessTable`. It is no foreign key in any case.
        let mistyped = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_000000";
        foreign(&format!("/|x-api-key: {mistyped}"), "like 7c9xk2ma");
        foreign(&format!("/|x-api-key: wh_{}", &mistyped[8..]), "malformed");
        foreign(&format!("/|x-api-key: wh_longlonger{}", &mistyped[7..]), "malformed");
        foreign(&format!("/|x-api-key: {}", mistyped.replace("7c9x", "7o9x")), "malformed");
        let long = "k".repeat(CREDENTIAL_BYTES_MAX + 1);
        check(&format!("/|authorization: Bearer {long}.a.b"), "malformed");
        check(&format!("/|authorization: Basic {long}"), "malformed");
    }

    #[test]
    fn two_different_ones_are_an_error() {
        check("/KEY|x-api-key: KEY|authorization: Bearer KEY", "KEY /");
        check("/KEY|x-api-key: OTHER", "different");
        check("/|x-api-key: KEY|x-api-key: OTHER", "different");
        check("/|x-api-key: KEY|x-api-key: KEY", "KEY");
        check("/|x-api-key: KEY|authorization: Bearer JWT", "different");
        let basic = STANDARD.encode(filled(":KEY"));
        check(&format!("/|x-api-key: KEY|authorization: Basic {basic}"), "KEY");
        let basic = STANDARD.encode(filled("admin:KEY"));
        check(&format!("/|x-api-key: KEY|authorization: Basic {basic}"), "malformed");
    }

    #[test]
    fn sources_can_be_switched_off() {
        let all = CredentialSources { query: true, ..CredentialSources::default() };
        let basic = filled("/|authorization: Basic ") + &STANDARD.encode(filled(":KEY"));
        for (head, off) in [
            ("/|x-api-key: KEY", CredentialSources { x_api_key: false, ..all }),
            ("/|authorization: Bearer KEY", CredentialSources { bearer: false, ..all }),
            (&basic, CredentialSources { basic: false, ..all }),
            (
                "/|sec-websocket-protocol: wellhead.key.KEY",
                CredentialSources { websocket_protocol: false, ..all },
            ),
            ("/?key=KEY", CredentialSources { query: false, ..all }),
        ] {
            assert!(find(all, head).starts_with("KEY"), "{head}");
            let want = if head.contains('?') { "malformed ?" } else { "none" };
            assert_eq!(find(off, head), want, "{head}");
            assert_eq!(find(CredentialSources::NONE, head), want, "{head}");
        }
        // A key in the path is not left there.
        let off = CredentialSources { path: false, ..all };
        assert_eq!(find(off, "/ethereum/KEY"), "malformed /ethereum");
        let off = CredentialSources { path: false, foreign_keys: true, ..all };
        assert_eq!(find(off, "/ethereum/FOREIGN"), "none");
    }

    proptest! {
        #[test]
        fn any_head_is_survived(path: String, query: Option<String>, name: String, value: Vec<u8>) {
            let sources = CredentialSources { query: true, foreign_keys: true, ..CredentialSources::default() };
            let mut finder = CredentialFinder::new(sources, &path, query.as_deref());
            for name in [name.as_str(), "x-api-key", "authorization", "sec-websocket-protocol"] {
                finder.read_field(name, &value);
            }
            let _ = finder.finish();
        }

        #[test]
        fn the_target_keeps_no_key(before in "[a-z/%?]{0,6}", after in "[a-z/%]{0,6}") {
            let path = format!("/{before}{KEY}{after}");
            let finder = CredentialFinder::new(CredentialSources::default(), &path, None);
            let Ok((_, target)) = finder.finish() else { return Ok(()) };
            let Some(bare) = &target.path else { return Ok(()) };
            prop_assert!(!bare.contains(KEY), "{} {}", path, bare);
        }
    }
}
