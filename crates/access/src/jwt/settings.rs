//! What is asked of the tokens of one issuer, and which of their claims say what.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use super::key::KeySet;

/// The tolerance between an issuer's clock and ours, unless the settings say otherwise.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// An issuer of tokens.
#[derive(Debug, Clone)]
pub struct JwtIssuer {
    /// The claim `iss`, byte for byte.
    pub issuer: Arc<str>,
    /// The audience of its tokens.
    pub audience: AudienceRule,
    /// Where its keys come from.
    pub keys: KeySource,
    /// All of these must match.
    pub required: Vec<ClaimMatcher>,
    /// How far its clock may be from ours, for `exp` and `nbf`.
    pub leeway: Duration,
    /// Whether a token without `exp` is refused. Without it a token is valid until its key goes.
    pub exp_required: bool,
    /// The claims that are used.
    pub claims: ClaimMap,
}

impl JwtIssuer {
    /// An issuer with safe defaults: a leeway of 30 s, `exp` required, the subject in `sub`.
    pub fn new(
        issuer: impl Into<Arc<str>>,
        audience: AudienceRule,
        keys: KeySource,
        tenant: TenantRule,
    ) -> Self {
        Self {
            issuer: issuer.into(),
            audience,
            keys,
            required: Vec::new(),
            leeway: LEEWAY,
            exp_required: true,
            claims: ClaimMap::new(tenant),
        }
    }
}

/// The audience that a token must name.
#[derive(Debug, Clone)]
pub enum AudienceRule {
    /// The claim `aud` is not read: a token that the issuer made for any other service is accepted.
    Any,
    /// The claim `aud`, a string or a list of them, has at least one of these. An empty list accepts
    /// no token.
    OneOf(Vec<Arc<str>>),
}

/// Where the keys of an issuer come from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// They are installed while the process runs, and expire if that stops: see
    /// [`JwtVerifier::install_keys`](super::JwtVerifier::install_keys).
    Fetched {
        /// How long after the last successful fetch they are used.
        stale_max: Duration,
    },
    /// They are known from the start and stay.
    Fixed(Arc<KeySet>),
}

/// Which claims say what. Each is a JSON pointer, as claims are often nested, and named by URLs.
#[derive(Debug, Clone)]
pub struct ClaimMap {
    /// The name in logs and metrics: a string or an integer. Required in each token.
    pub subject: ClaimPointer,
    /// The tenant that pays.
    pub tenant: TenantRule,
    /// The name of a set of limits: a string. A token without it has its tenant's.
    pub quota: Option<ClaimPointer>,
    /// Globs of methods: a list of strings, or one string with spaces between them. A token without
    /// the claim may call what its tenant may.
    pub methods: Option<ClaimPointer>,
    /// Names or ids of chains, in the form of `methods`; an integer is an id.
    pub chains: Option<ClaimPointer>,
}

impl ClaimMap {
    /// The subject from `sub`, and nothing narrowed.
    pub fn new(tenant: TenantRule) -> Self {
        Self {
            subject: ClaimPointer::parse("/sub").expect("it begins with a slash"),
            tenant,
            quota: None,
            methods: None,
            chains: None,
        }
    }
}

/// The tenant that a token belongs to.
#[derive(Debug, Clone)]
pub enum TenantRule {
    /// A claim names it: a string or an integer. Required in each token. An issuer may so name each
    /// tenant, that of another issuer included.
    Claim(ClaimPointer),
    /// All tokens of the issuer belong to this one.
    Fixed(Arc<str>),
}

/// A JSON pointer (RFC 6901) to a claim, such as `/org/id`, or `/https:~1~1example.com~1plan` for a
/// claim whose name is a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPointer {
    /// The members from the outermost, unescaped.
    path: Box<[String]>,
}

/// The deepest claim that a pointer names.
pub const POINTER_DEPTH_MAX: usize = 16;

/// Why a text is no pointer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadClaimPointer {
    /// It does not begin with `/`.
    #[error("a claim is named by a JSON pointer, which begins with `/`")]
    NoSlash,
    /// A `~` is followed by neither `0` nor `1`.
    #[error("in a JSON pointer `~` is written `~0`, and `/` within a name `~1`")]
    BadEscape,
    /// It has more than [`POINTER_DEPTH_MAX`] members.
    #[error("a claim may be at most {POINTER_DEPTH_MAX} members deep")]
    TooDeep,
}

impl ClaimPointer {
    /// Parses a pointer.
    ///
    /// # Errors
    ///
    /// If it is empty, malformed or too deep.
    pub fn parse(text: &str) -> Result<Self, BadClaimPointer> {
        let members = text.strip_prefix('/').ok_or(BadClaimPointer::NoSlash)?;
        let path = members.split('/').map(unescape).collect::<Result<Box<[String]>, _>>()?;
        if path.len() > POINTER_DEPTH_MAX {
            return Err(BadClaimPointer::TooDeep);
        }
        Ok(Self { path })
    }

    /// The claim that it points to. A number in it is a place in a list.
    pub(super) fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        rest.iter().try_fold(claims.get(first)?, |value, member| match value {
            Value::Object(object) => object.get(member),
            Value::Array(items) => {
                let canonical = member == "0" || !member.starts_with(['0', '+']);
                canonical.then(|| member.parse().ok()).flatten().and_then(|at: usize| items.get(at))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

fn unescape(member: &str) -> Result<String, BadClaimPointer> {
    let mut name = String::with_capacity(member.len());
    let mut chars = member.chars();
    while let Some(char) = chars.next() {
        name.push(match char {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(BadClaimPointer::BadEscape),
            },
            other => other,
        });
    }
    Ok(name)
}

/// A claim that must have one of some values.
#[derive(Debug, Clone)]
pub struct ClaimMatcher {
    /// The claim. A token without it is refused.
    pub pointer: ClaimPointer,
    /// One of these suffices. An empty list matches nothing.
    pub any_of: Vec<ClaimValue>,
    /// Whether a string is a list with spaces between its items, as OAuth's `scope` is.
    pub words: bool,
}

/// A value that a claim may be required to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimValue {
    /// A string. Compared byte for byte.
    Text(String),
    /// An integer.
    Integer(i64),
    /// `true` or `false`.
    Flag(bool),
}

impl ClaimMatcher {
    /// Whether the claim, or one item of it if it is a list, is one of the values. Types are not
    /// converted: `"1"` is not `1`.
    pub(super) fn is_met(&self, claims: &Map<String, Value>) -> bool {
        match self.pointer.find(claims) {
            Some(Value::Array(items)) => items.iter().any(|item| self.is_value(item)),
            Some(Value::String(text)) if self.words => {
                text.split(' ').any(|word| self.any_of.iter().any(|wanted| wanted.is_text(word)))
            }
            Some(value) => self.is_value(value),
            None => false,
        }
    }

    fn is_value(&self, value: &Value) -> bool {
        self.any_of.iter().any(|wanted| match wanted {
            ClaimValue::Text(_) => value.as_str().is_some_and(|text| wanted.is_text(text)),
            ClaimValue::Integer(wanted) => value.as_i64() == Some(*wanted),
            ClaimValue::Flag(wanted) => value.as_bool() == Some(*wanted),
        })
    }
}

impl ClaimValue {
    fn is_text(&self, text: &str) -> bool {
        matches!(self, Self::Text(wanted) if wanted == text)
    }
}

#[cfg(test)]
mod tests {
    use super::{BadClaimPointer, ClaimMatcher, ClaimPointer, ClaimValue};
    use crate::jwt::json::parse_object;

    const CLAIMS: &str = r#"{"a":{"b":[10,{"c":"deep"}]},"x/y":1,"t~":2,"":3,"https://e.x/org":"acme",
        "scope":"rpc read","list":["p","q"],"level":3,"on":true,"nil":null,"text":"3"}"#;

    fn found(pointer: &str) -> Option<String> {
        let claims = parse_object(CLAIMS.as_bytes()).unwrap();
        ClaimPointer::parse(pointer).unwrap().find(&claims).map(ToString::to_string)
    }

    #[test]
    fn pointers() {
        assert_eq!(found("/a/b/0").as_deref(), Some("10"));
        assert_eq!(found("/a/b/1/c").as_deref(), Some("\"deep\""));
        assert_eq!(found("/x~1y").as_deref(), Some("1"));
        assert_eq!(found("/t~0").as_deref(), Some("2"));
        assert_eq!(found("/").as_deref(), Some("3"));
        assert_eq!(found("/https:~1~1e.x~1org").as_deref(), Some("\"acme\""));
        for nowhere in ["/b", "/a/b/2", "/a/b/00", "/a/b/+1", "/a/b/-", "/a/b/x", "/level/x"] {
            assert_eq!(found(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn texts_that_are_no_pointer() {
        let refused = |text: &str| ClaimPointer::parse(text).unwrap_err();
        assert_eq!(refused(""), BadClaimPointer::NoSlash);
        assert_eq!(refused("org"), BadClaimPointer::NoSlash);
        assert_eq!(refused("/a~2"), BadClaimPointer::BadEscape);
        assert_eq!(refused("/a~"), BadClaimPointer::BadEscape);
        assert_eq!(refused(&"/a".repeat(17)), BadClaimPointer::TooDeep);
        assert!(ClaimPointer::parse(&"/a".repeat(16)).is_ok());
    }

    fn check(pointer: &str, any_of: &[ClaimValue], words: bool, met: bool) {
        let pointer = ClaimPointer::parse(pointer).unwrap();
        let matcher = ClaimMatcher { pointer, any_of: any_of.to_vec(), words };
        assert_eq!(matcher.is_met(&parse_object(CLAIMS.as_bytes()).unwrap()), met, "{matcher:?}");
    }

    #[test]
    fn matchers() {
        let text = |text: &str| ClaimValue::Text(text.to_owned());
        check("/https:~1~1e.x~1org", &[text("other"), text("acme")], false, true);
        check("/https:~1~1e.x~1org", &[text("acm")], false, false);
        check("/scope", &[text("read")], true, true);
        check("/scope", &[text("read")], false, false);
        check("/scope", &[text("")], true, false);
        check("/list", &[text("q")], false, true);
        check("/list", &[text("r")], false, false);
        check("/level", &[ClaimValue::Integer(3)], false, true);
        check("/level", &[text("3")], false, false);
        check("/text", &[ClaimValue::Integer(3)], false, false);
        check("/on", &[ClaimValue::Flag(true)], false, true);
        check("/on", &[ClaimValue::Flag(false)], false, false);
        check("/nil", &[text("null"), ClaimValue::Flag(false)], false, false);
        check("/none", &[text("")], false, false);
        check("/on", &[], false, false);
    }
}
