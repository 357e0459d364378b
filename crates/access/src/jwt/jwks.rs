//! Key sets as issuers publish them (RFC 7517): what can be used is, and the rest is counted.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use thiserror::Error;

use super::json;
use super::key::{BadKey, JwtAlgorithm, KeySet, VerificationKey};
use super::spki::PublicKeyInfo;

/// The longest document.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;
/// The most keys that a document may list; a document with more is refused.
pub const JWKS_KEYS_MAX: usize = 100;
/// The longest `kid`, in a set and in a token.
pub const KID_BYTES_MAX: usize = 256;

/// A key set of an issuer.
#[derive(Debug, Clone)]
pub struct Jwks {
    keys: Arc<KeySet>,
    skipped: SkippedKeys,
}

/// Why a document is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadJwks {
    /// It is longer than [`JWKS_BYTES_MAX`].
    #[error("the key set is longer than {JWKS_BYTES_MAX} bytes")]
    TooLong,
    /// It lists more than [`JWKS_KEYS_MAX`] keys.
    #[error("the key set has more than {JWKS_KEYS_MAX} keys")]
    TooManyKeys,
    /// It is not JSON, or names a member twice.
    #[error("the document is not JSON, or names a member twice")]
    NotJson,
    /// It is not an object with a list `keys`.
    #[error("the document has no list `keys`")]
    NotKeySet,
    /// No key in it can be used. An issuer that withdraws all its keys is so not obeyed before
    /// `stale_max`: much more often an empty set is a fault of its deployment.
    #[error("the key set has no key that can be used ({0})")]
    NoUsableKey(SkippedKeys),
}

/// How many keys of a document are not used, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkippedKeys {
    /// A type, curve or algorithm that is not supported; HMAC secrets among them, as a published
    /// secret is none.
    pub unknown_type: usize,
    /// For encryption, or for signing only.
    pub other_use: usize,
    /// RSA below 2048 bits or above 8192.
    pub rsa_size: usize,
    /// Not encoded as RFC 7518 demands, or not a point of its curve.
    pub malformed: usize,
    /// The private half is published as well.
    pub private: usize,
    /// The document has another key with this `kid` and algorithm before it.
    pub duplicate: usize,
}

impl Jwks {
    /// Reads a document. What cannot be used is skipped and counted.
    ///
    /// A key is known by its `kid` and algorithm: one `kid` may name an RSA and an EC key. An RSA key
    /// without `alg` is used with RS256.
    ///
    /// # Errors
    ///
    /// If the document is beyond a bound, is no key set, or has no key that can be used.
    pub fn parse(document: &[u8]) -> Result<Self, BadJwks> {
        if document.len() > JWKS_BYTES_MAX {
            return Err(BadJwks::TooLong);
        }
        let document = json::parse(document).map_err(|_| BadJwks::NotJson)?;
        let listed = document.get("keys").and_then(Value::as_array).ok_or(BadJwks::NotKeySet)?;
        if listed.len() > JWKS_KEYS_MAX {
            return Err(BadJwks::TooManyKeys);
        }
        let mut keys: Vec<VerificationKey> = Vec::with_capacity(listed.len());
        let mut skipped = SkippedKeys::default();
        for jwk in listed {
            match read_key(jwk) {
                Ok(key) => {
                    let twin = |other: &VerificationKey| {
                        key.kid.is_some()
                            && (&other.kid, other.algorithm) == (&key.kid, key.algorithm)
                    };
                    if keys.iter().any(twin) {
                        skipped.duplicate += 1;
                    } else {
                        keys.push(key);
                    }
                }
                Err(reason) => *skipped.count(reason) += 1,
            }
        }
        if keys.is_empty() {
            return Err(BadJwks::NoUsableKey(skipped));
        }
        Ok(Self { keys: Arc::new(KeySet::of_public_keys(keys)), skipped })
    }

    /// The keys that can be used; at least one.
    pub fn keys(&self) -> &Arc<KeySet> {
        &self.keys
    }
}

/// For logs: `2 keys (RS256 a, ES256 b), skipped: 1 of another use`. No key material, and of a `kid`
/// only what can be printed.
impl fmt::Display for Jwks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.keys.len();
        write!(formatter, "{count} key{} (", if count == 1 { "" } else { "s" })?;
        self.keys.summary(formatter)?;
        formatter.write_str(")")?;
        if self.skipped != SkippedKeys::default() {
            write!(formatter, ", skipped: {}", self.skipped)?;
        }
        Ok(())
    }
}

impl fmt::Display for SkippedKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unknown_type, other_use, rsa_size, malformed, private, duplicate } = *self;
        let reasons = [
            (unknown_type, "of an unknown type"),
            (other_use, "of another use"),
            (rsa_size, "of an RSA size out of bounds"),
            (malformed, "malformed"),
            (private, "with their private half"),
            (duplicate, "named twice"),
        ];
        let mut written = reasons.iter().filter(|(count, _)| *count > 0).peekable();
        if written.peek().is_none() {
            return formatter.write_str("none skipped");
        }
        while let Some((count, reason)) = written.next() {
            let comma = if written.peek().is_some() { ", " } else { "" };
            write!(formatter, "{count} {reason}{comma}")?;
        }
        Ok(())
    }
}

/// Why one key is skipped.
#[derive(Clone, Copy)]
enum SkipReason {
    Key(BadKey),
    OtherUse,
    Private,
}

impl From<BadKey> for SkipReason {
    fn from(reason: BadKey) -> Self {
        Self::Key(reason)
    }
}

impl SkippedKeys {
    fn count(&mut self, reason: SkipReason) -> &mut usize {
        match reason {
            SkipReason::OtherUse => &mut self.other_use,
            SkipReason::Private => &mut self.private,
            SkipReason::Key(BadKey::UnknownType | BadKey::WrongAlgorithm) => &mut self.unknown_type,
            SkipReason::Key(BadKey::RsaSize) => &mut self.rsa_size,
            SkipReason::Key(
                BadKey::Malformed
                | BadKey::NoPublicKey
                | BadKey::ShortSecret
                | BadKey::PublicSecret,
            ) => &mut self.malformed,
        }
    }
}

fn read_key(jwk: &Value) -> Result<VerificationKey, SkipReason> {
    let jwk = jwk.as_object().ok_or(BadKey::Malformed)?;
    let kind = text(jwk, "kty")?.ok_or(BadKey::Malformed)?;
    if !matches!(kind, "RSA" | "EC" | "OKP") {
        return Err(BadKey::UnknownType.into());
    }
    if jwk.contains_key("d") {
        return Err(SkipReason::Private);
    }
    if !is_for_verification(jwk)? {
        return Err(SkipReason::OtherUse);
    }
    let algorithm = match text(jwk, "alg")? {
        Some(name) => Some(JwtAlgorithm::from_name(name).ok_or(BadKey::UnknownType)?),
        None => None,
    };
    let kid = text(jwk, "kid")?;
    if kid.is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
        return Err(BadKey::Malformed.into());
    }
    let curve = text(jwk, "crv")?;
    let buffers = match kind {
        "RSA" => [number(jwk, "n")?, number(jwk, "e")?],
        "EC" => [point(jwk, curve)?, Vec::new()],
        _ => [number(jwk, "x")?, Vec::new()],
    };
    let info = match (kind, curve) {
        ("RSA", _) => PublicKeyInfo::Rsa { modulus: &buffers[0], exponent: &buffers[1] },
        ("EC", Some("P-256")) => PublicKeyInfo::P256 { point: &buffers[0] },
        ("EC", Some("P-384")) => PublicKeyInfo::P384 { point: &buffers[0] },
        ("OKP", Some("Ed25519")) => PublicKeyInfo::Ed25519 { point: &buffers[0] },
        _ => return Err(BadKey::UnknownType.into()),
    };
    Ok(VerificationKey::public(kid.map(Box::from), &info, algorithm)?)
}

/// A member that must be a string if it is there.
fn text<'a>(jwk: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, BadKey> {
    jwk.get(name).map(|value| value.as_str().ok_or(BadKey::Malformed)).transpose()
}

/// RFC 7517, sections 4.2 and 4.3.
fn is_for_verification(jwk: &Map<String, Value>) -> Result<bool, BadKey> {
    let operations = match jwk.get("key_ops") {
        Some(operations) => Some(operations.as_array().ok_or(BadKey::Malformed)?),
        None => None,
    };
    let may_verify = operations.is_none_or(|operations| operations.iter().any(|op| op == "verify"));
    Ok(may_verify && text(jwk, "use")?.is_none_or(|purpose| purpose == "sig"))
}

fn number(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, BadKey> {
    let encoded = text(jwk, name)?.ok_or(BadKey::Malformed)?;
    URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BadKey::Malformed)
}

/// The uncompressed point (SEC 1, section 2.3.3). Each coordinate has the full length of its field.
fn point(jwk: &Map<String, Value>, curve: Option<&str>) -> Result<Vec<u8>, BadKey> {
    let length = match curve {
        Some("P-256") => 32,
        Some("P-384") => 48,
        _ => return Err(BadKey::UnknownType),
    };
    let (x, y) = (number(jwk, "x")?, number(jwk, "y")?);
    if x.len() != length || y.len() != length {
        return Err(BadKey::Malformed);
    }
    Ok([&[4], x.as_slice(), y.as_slice()].concat())
}
