//! The text of a token (RFC 7515, section 7.1), before anything in it is believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::error::JwtError;
use super::json;
use super::jwks::KID_BYTES_MAX;
use super::key::JwtAlgorithm;

/// The longest token; a head has room for one, and no issuer needs as much.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// A token taken apart. Nothing in it is verified.
pub(super) struct TokenParts<'a> {
    /// What the signature is of: the first two parts as they were sent.
    pub(super) message: &'a [u8],
    /// `None` if the header names an algorithm that no key here has.
    pub(super) algorithm: Option<JwtAlgorithm>,
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
    pub(super) signature: Vec<u8>,
}

/// Takes a token apart.
///
/// Base64url must be canonical: without padding, white space or bits that are not used, so that two
/// different texts are never one token. Of the header only `alg`, `kid` and `crit` are read: a key or
/// the address of one (`jwk`, `jku`, `x5c`, `x5u`) is the word of the sender and not looked at.
pub(super) fn take_apart(token: &str) -> Result<TokenParts<'_>, JwtError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(JwtError::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(JwtError::Malformed("the token has not three parts"));
    };
    let message = &token.as_bytes()[..header.len() + 1 + claims.len()];
    let header = decode(header, "the token's header is not base64url")?;
    let header = json::parse_object(&header).ok_or(JwtError::Malformed(
        "the token's header is no JSON object, or names a member twice",
    ))?;
    let (algorithm, kid) = read_header(&header)?;
    let claims = decode(claims, "the token's claims are not base64url")?;
    let claims = json::parse_object(&claims).ok_or(JwtError::Malformed(
        "the token's claims are no JSON object, or name a member twice",
    ))?;
    let signature = decode(signature, "the token's signature is not base64url")?;
    if signature.is_empty() {
        return Err(JwtError::Unsigned);
    }
    Ok(TokenParts { message, algorithm, kid, claims, signature })
}

fn decode(part: &str, otherwise: &'static str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed(otherwise))
}

fn read_header(
    header: &Map<String, Value>,
) -> Result<(Option<JwtAlgorithm>, Option<String>), JwtError> {
    if header.contains_key("crit") {
        return Err(JwtError::CriticalHeader);
    }
    let Some(Value::String(name)) = header.get("alg") else {
        return Err(JwtError::Malformed("the token's header has no `alg`"));
    };
    if name.eq_ignore_ascii_case("none") {
        return Err(JwtError::Unsigned);
    }
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
        Some(_) => return Err(JwtError::Malformed("the token's `kid` is no string, or too long")),
    };
    Ok((JwtAlgorithm::from_name(name), kid))
}
