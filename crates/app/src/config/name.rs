//! Names that people choose: chains, upstreams, labels, headers, origins.
//!
//! They travel in paths, headers and metric labels, so each has a form and a
//! length. Other single values are in `value`.

use wellhead_access::jwt::ClaimPointer;
use wellhead_access::{CertificateName, KEY_ENV_BYTES_MAX, OriginPattern};
use wellhead_upstream::UpstreamId;

use super::problem::Wrong;
use super::read::SettingWord;
use super::rule::ValueShape;
use super::write::Yaml;

/// Names travel in paths, headers and metric labels.
const NAME_LEN_MAX: usize = 64;

/// As DNS has it.
const HOST_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// Letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
fn name(text: &str, what: &str) -> Result<(), Wrong> {
    let first = text.bytes().next();
    let tidy = first.is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if text.len() > NAME_LEN_MAX {
        return Err(Wrong::new(format!("{what} has at most {NAME_LEN_MAX} characters")));
    }
    if !tidy {
        let hint = "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
        return Err(Wrong::hinted(format!("this is not {what}"), hint));
    }
    Ok(())
}

/// A type around a string with a form of its own, or of one line.
macro_rules! names {
    ($($(#[doc = $doc:literal])+ $type:ident, $article:literal $noun:literal;)+) => {$(
        names! {
            @ [$($doc)+] $type, concat!($article, " ", $noun), $noun, Some("[A-Za-z0-9][A-Za-z0-9._-]*"),
            |text| name(text, Self::EXPECTED)
        }
    )+};
    ($(#[doc = $doc:literal])+ $type:ident, $article:literal $noun:literal, $pattern:literal, $check:expr) => {
        names! { @ [$($doc)+] $type, concat!($article, " ", $noun), $noun, Some($pattern), $check }
    };
    ($(#[doc = $doc:literal])+ $type:ident, $article:literal $noun:literal, $check:expr) => {
        names! { @ [$($doc)+] $type, concat!($article, " ", $noun), $noun, None, $check }
    };
    ($(#[doc = $doc:literal])+ $type:ident = $expected:literal, $noun:literal, $pattern:literal, $check:expr) => {
        names! { @ [$($doc)+] $type, $expected, $noun, Some($pattern), $check }
    };
    (@ [$($doc:literal)+] $type:ident, $expected:expr, $noun:literal, $pattern:expr, $check:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $type(pub String);

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl $crate::config::read::EntryName for $type {
            fn unchecked(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl PartialEq<str> for $type {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl SettingWord for $type {
            const EXPECTED: &'static str = $expected;
            const SHAPE: ValueShape = ValueShape::Text { name: $noun, pattern: $pattern };

            fn parse(text: &str) -> Result<Self, Wrong> {
                let check: fn(&str) -> Result<(), Wrong> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }

            fn write(&self) -> Yaml {
                Yaml::Text(self.0.clone())
            }

            fn blank() -> Self {
                Self(String::new())
            }
        }
    };
}

pub(super) use names;

names! {
    /// A chain's name or alias: a segment of its path, so lower case only.
    ChainName, "a" "chain name", "[a-z0-9][a-z0-9._-]*", |text| {
        name(text, "a chain name")?;
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            let hint = format!("write `{}`: it is part of the URL", text.to_ascii_lowercase());
            return Err(Wrong::hinted("a chain name is lower case", hint));
        }
        Ok(())
    }
}

names! {
    /// What a label is called.
    LabelName, "a" "label";
    /// What a tenant is called.
    TenantName, "a" "tenant's name";
    /// What a set of limits is called.
    QuotaName, "a" "quota's name";
    /// What wellheads that share have in common.
    ClusterName, "a" "cluster's name";
    /// What a wellhead is called beside others.
    ReplicaName, "a" "replica's name";
}

names! {
    /// The name of an HTTP header.
    HeaderName, "a" "header name", "[A-Za-z0-9-]+", |text| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if text.is_empty() || !text.bytes().all(good) {
            return Err(Wrong::new("this is not a header name"));
        }
        // The transport sets these; one of ours would break the framing.
        const RESERVED: [&str; 10] = [
            "accept", "accept-encoding", "connection", "content-encoding", "content-length",
            "content-type", "host", "te", "transfer-encoding", "upgrade",
        ];
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(text)) {
            return Err(Wrong::new(format!("the header `{text}` is set by wellhead itself")));
        }
        Ok(())
    }
}

names! {
    /// A name by which clients may call a listener.
    ListenerName, "a" "host name", r"\*|(\*\.)?[a-z0-9][a-z0-9._-]*", |text| {
        let bare = text.strip_prefix("*.").unwrap_or(text);
        if text == "*" {
            return Ok(());
        }
        if text.contains([':', '/', '[']) {
            let hint = "write the name alone, without scheme, port and path: `rpc.example.org`";
            return Err(Wrong::hinted("this is not a host name", hint));
        }
        if bare.parse::<std::net::Ipv4Addr>().is_ok() {
            return Err(Wrong::new("addresses need not be listed: they are always accepted"));
        }
        if bare.bytes().any(|b| b.is_ascii_uppercase()) {
            let hint = format!("write `{}`: case does not matter", text.to_ascii_lowercase());
            return Err(Wrong::hinted("a host name is lower case", hint));
        }
        let tidy = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if bare.is_empty() || bare.len() > HOST_LEN_MAX || !bare.bytes().all(tidy) {
            let hint = "write a name such as `rpc.example.org`, `*.example.org`, or `*` for all";
            return Err(Wrong::hinted("this is not a host name", hint));
        }
        Ok(())
    }
}

names! {
    /// A name that an ACME server issues a certificate for.
    AcmeDomain, "a" "domain", "[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*", |text| {
        let example = "write the name alone: `rpc.example.org`";
        if text.starts_with("*.") || text == "*" {
            let hint = "list each name; or let another program obtain the certificate, and name its files in `certificate` and `key`";
            return Err(Wrong::hinted("TLS-ALPN-01 cannot verify a wildcard", hint));
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return Err(Wrong::hinted("an address is no domain", example));
        }
        if !text.is_ascii() {
            let hint = "write it as DNS has it, beginning with `xn--`";
            return Err(Wrong::hinted("this is not a domain in ASCII", hint));
        }
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            let hint = format!("write `{}`: case does not matter", text.to_ascii_lowercase());
            return Err(Wrong::hinted("a domain is lower case", hint));
        }
        let is_label = |label: &str| {
            (1..=LABEL_LEN_MAX).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if text.len() > HOST_LEN_MAX || !text.split('.').all(is_label) {
            return Err(Wrong::hinted("this is not a domain", example));
        }
        Ok(())
    }
}

names! {
    /// An origin whose web pages may call.
    Origin, "an" "origin", r"\*|null|[a-z]+://[^/]+", |text| {
        let hint = "write scheme and host without a path: `https://app.example`, or `*` for all";
        let wrong = || Wrong::hinted("this is not an origin", hint);
        if text == "*" || text == "null" {
            return Ok(());
        }
        let (scheme, host) = text.split_once("://").ok_or_else(wrong)?;
        let is_odd = |b: u8| !b.is_ascii_graphic() || matches!(b, b'/' | b'?' | b'#' | b'@');
        if scheme.is_empty() || host.is_empty() || host.bytes().any(is_odd) {
            return Err(wrong());
        }
        if text.contains('*') {
            let hint = "list each origin, or write `*` alone for all";
            return Err(Wrong::hinted("an origin is compared verbatim and cannot be a pattern", hint));
        }
        // Browsers send what is compared.
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            let hint = format!("write `{}`, as browsers do", text.to_ascii_lowercase());
            return Err(Wrong::hinted("an origin is lower case", hint));
        }
        let usual = match scheme { "http" => ":80", "https" => ":443", _ => return Ok(()) };
        if let Some(bare) = text.strip_suffix(usual) {
            let hint = format!("write `{bare}`, as browsers do");
            return Err(Wrong::hinted("an origin does not name the usual port", hint));
        }
        Ok(())
    }
}

names! {
    /// The first word of keys.
    KeyEnv, "a" "word of a key", "[a-z][a-z0-9]{0,7}", |text| {
        let tidy = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        match tidy && first && text.len() <= KEY_ENV_BYTES_MAX {
            true => Ok(()),
            false => Err(Wrong::new("expected 1 to 8 small letters and digits, such as `live`")),
        }
    }
}

names! {
    /// A name in a client certificate.
    CertificateText, "a" "name in a certificate", "(uri|dns|cn):.+", |text| {
        text.parse::<CertificateName>().map(drop).map_err(|error| Wrong::new(error.to_string()))
    }
}

names! {
    /// A claim of a token, as a JSON pointer.
    ClaimPath, "a" "claim", "/.+", |text| {
        let read = ClaimPointer::parse(text).map(drop);
        read.map_err(|error| Wrong::hinted(error.to_string(), "write `/org/id`"))
    }
}

names! {
    /// The address of a contract.
    ContractText, "a" "contract", "0x[0-9a-fA-F]{40}", |text| {
        let digits = text.strip_prefix("0x").unwrap_or_default();
        match digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            true => Ok(()),
            false => Err(Wrong::new("a contract's address is `0x` and 40 hex digits")),
        }
    }
}

names! {
    /// Web pages that may use a key.
    AccessOrigin, "an" "origin", r"[a-z]+://[^/]+", |text| {
        text.parse::<OriginPattern>().map(drop).map_err(|error| Wrong::new(error.to_string()))
    }
}

/// Whether a text is `table` or `database.table`. It becomes a part of a query.
pub(crate) fn is_clickhouse_table(text: &str) -> bool {
    let is_name = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.split('.').count() <= 2 && text.split('.').all(is_name)
}

names! {
    /// A table of ClickHouse.
    ClickHouseTable, "a" "table", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", |text| {
        match is_clickhouse_table(text) {
            true => Ok(()),
            false => {
                let hint = "write `billing.usage`, of letters, digits and `_`";
                Err(Wrong::hinted("this is not the name of a table", hint))
            }
        }
    }
}

impl SettingWord for UpstreamId {
    const EXPECTED: &'static str = "an upstream id";
    const SHAPE: ValueShape = ValueShape::word("upstream id", "[A-Za-z0-9:][A-Za-z0-9._:-]*");

    fn parse(text: &str) -> Result<Self, Wrong> {
        // Ids made from hosts have colons: `::1`, `geth:8545`.
        let bare: String = text.chars().map(|c| if c == ':' { 'x' } else { c }).collect();
        name(&bare, "an upstream id").map(|()| Self::new(text))
    }

    fn write(&self) -> Yaml {
        if self.as_str().is_empty() { Yaml::Absent } else { Yaml::Text(self.to_string()) }
    }

    fn blank() -> Self {
        Self::new("")
    }
}
