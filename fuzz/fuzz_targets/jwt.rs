//! Tokens and key sets: nothing panics, no text is accepted that the key did not sign, and of a
//! token that it did sign a slow reader finds what we find.
//!
//! The first byte says which is fed: a text as it comes, a header and claims that are signed here, or
//! a key set.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wellhead_access::jwt::{
    AudienceRule, ClaimPointer, JWKS_KEYS_MAX, JwtAlgorithm, JwtIssuer, JwtVerifier, Jwks, KeySet,
    KeySource, TOKEN_BYTES_MAX, TenantRule,
};
use wellhead_telemetry::Secret;

const SECRET: &str = "a secret of more than 32 bytes for fuzzing";
const NOW: u64 = 1_000;

static VERIFIER: LazyLock<JwtVerifier> = LazyLock::new(|| {
    let pointer = |text| ClaimPointer::parse(text).expect("it is a pointer");
    let keys = KeySet::from_secret(&Secret::new(SECRET), JwtAlgorithm::Hs256);
    let mut issuer = JwtIssuer::new(
        "i",
        AudienceRule::OneOf(vec!["a".into()]),
        KeySource::from(keys.expect("the secret is long enough")),
        TenantRule::Claim(pointer("/t/0")),
    );
    issuer.claims.methods = Some(pointer("/m"));
    JwtVerifier::with_memory(vec![issuer], 100).expect("one issuer is few")
});

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    match which % 3 {
        0 => any_text(rest),
        1 => signed(rest),
        _ => key_set(rest),
    }
});

/// The fuzzer cannot sign.
fn any_text(text: &[u8]) {
    if let Ok(token) = std::str::from_utf8(text) {
        assert!(VERIFIER.verify(token, Duration::from_secs(NOW)).is_err(), "{token}");
    }
}

fn signed(text: &[u8]) {
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else { return };
    let (header, claims) = (&text[..end], &text[end + 1..]);
    let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
    let message = format!("{}.{}", encode(header), encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    let token = format!("{message}.{}", encode(signature.as_ref()));
    let now = Duration::from_secs(NOW);
    let found = VERIFIER.verify(&token, now);
    assert_eq!(VERIFIER.verify(&token, now), found, "remembered");
    let Ok(found) = found else { return };
    assert!(token.len() <= TOKEN_BYTES_MAX);
    let read = |part| serde_json::from_slice::<Value>(part).expect("what is accepted is JSON");
    let (header, claims) = (read(header), read(claims));
    assert_eq!(header["alg"], "HS256");
    assert!(header.get("crit").is_none());
    assert_eq!(claims["iss"], "i");
    assert!(claims["exp"].as_f64().is_some_and(|expiry| expiry + 31.0 > NOW as f64), "{claims}");
    assert!(claims.get("nbf").is_none_or(|begin| begin.as_f64() <= Some(NOW as f64 + 30.0)));
    let audiences = claims["aud"].as_array().cloned().unwrap_or_else(|| vec![claims["aud"].clone()]);
    assert!(audiences.contains(&Value::from("a")), "{claims}");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    assert_eq!(*found.subject, text(&claims["sub"]));
    assert_eq!(*found.tenant, text(&claims["t"][0]));
    assert_eq!(found.rights.methods.is_some(), claims.get("m").is_some());
    assert!(!found.subject.chars().any(char::is_control), "{:?}", found.subject);
}

fn key_set(document: &[u8]) {
    let Ok(jwks) = Jwks::parse(document) else { return };
    let read: Value = serde_json::from_slice(document).expect("what is accepted is JSON");
    let listed = read["keys"].as_array().expect("a set has a list of keys").len();
    assert!((1..=JWKS_KEYS_MAX).contains(&listed));
    let skipped = jwks.skipped();
    let sum = skipped.unknown_type
        + skipped.other_use
        + skipped.rsa_size
        + skipped.malformed
        + skipped.private
        + skipped.duplicate;
    assert_eq!(jwks.keys().len() + sum, listed, "each key is used or counted");
    assert!(!jwks.keys().is_empty());
    assert!(!jwks.to_string().chars().any(char::is_control), "{jwks}");
}
