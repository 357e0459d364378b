//! Key sets, PEM blocks and secrets: what is used, what is skipped, what is refused.

use serde_json::{Value, json};
use wellhead_telemetry::Secret;

use super::{EC, EC384, ED, PSS, RSA, Signer, encode, pem};
use crate::jwt::{
    BadJwks, BadKey, JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, JwtAlgorithm, KeySet, SkippedKeys,
};

fn parse(keys: &[Value]) -> Result<Jwks, BadJwks> {
    Jwks::parse(json!({"keys": keys}).to_string().as_bytes())
}

/// The summary of a set of these keys.
fn check(keys: &[Value], expected: &str) {
    let summary = match parse(keys) {
        Ok(jwks) => jwks.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(summary, expected, "{keys:?}");
}

/// A key with a member changed, or taken out by `null`.
fn with(signer: &Signer, name: &str, value: Value) -> Value {
    let mut jwk = signer.jwk();
    match value {
        Value::Null => jwk.as_object_mut().unwrap().remove(name),
        value => jwk.as_object_mut().unwrap().insert(name.to_owned(), value),
    };
    jwk
}

fn skipped(jwk: Value, reason: &str) {
    check(&[jwk, ED.jwk()], &format!("1 key (EdDSA ed), skipped: 1 {reason}"));
}

#[test]
fn keys_that_are_used() {
    check(
        &[RSA.jwk(), PSS.jwk(), EC.jwk(), EC384.jwk(), ED.jwk()],
        "5 keys (RS256 rsa, PS256 pss, ES256 ec, ES384 ec384, EdDSA ed)",
    );
    check(&[with(&RSA, "alg", Value::Null)], "1 key (RS256 rsa)");
    check(&[with(&EC384, "alg", Value::Null)], "1 key (ES384 ec384)");
    check(&[with(&RSA, "alg", json!("PS512"))], "1 key (PS512 rsa)");
    check(&[with(&RSA, "use", Value::Null)], "1 key (RS256 rsa)");
    check(&[with(&RSA, "kid", Value::Null)], "1 key (RS256 without kid)");
    check(&[with(&RSA, "key_ops", json!(["verify"]))], "1 key (RS256 rsa)");
    check(&[with(&RSA, "x5c", json!(["MII="]))], "1 key (RS256 rsa)");
    let many: Vec<Value> = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
        .map(|kid| with(&ED, "kid", json!(kid)))
        .to_vec();
    check(
        &many,
        "9 keys (EdDSA a, EdDSA b, EdDSA c, EdDSA d, EdDSA e, EdDSA f, EdDSA g, EdDSA h, …)",
    );
    check(&[with(&ED, "kid", json!("a\n\u{1b}[2Jb"))], "1 key (EdDSA a[2Jb)");
}

#[test]
fn keys_that_are_skipped() {
    let unknown = "of an unknown type";
    skipped(json!({"kty": "oct", "kid": "s", "k": encode([7; 64]), "alg": "HS256"}), unknown);
    skipped(json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}), unknown);
    skipped(with(&EC, "crv", json!("P-521")), unknown);
    skipped(with(&EC, "crv", json!("secp256k1")), unknown);
    skipped(with(&ED, "crv", json!("X25519")), unknown);
    skipped(with(&ED, "crv", json!("Ed448")), unknown);
    skipped(with(&RSA, "alg", json!("RSA-OAEP")), unknown);
    // An HMAC with a public key, and the algorithm of another curve.
    skipped(with(&RSA, "alg", json!("HS256")), unknown);
    skipped(with(&EC, "alg", json!("HS256")), unknown);
    skipped(with(&EC, "alg", json!("RS256")), unknown);
    skipped(with(&EC, "alg", json!("ES384")), unknown);
    skipped(with(&RSA, "use", json!("enc")), "of another use");
    skipped(with(&RSA, "key_ops", json!(["encrypt"])), "of another use");
    skipped(with(&RSA, "key_ops", json!([])), "of another use");
    skipped(with(&RSA, "d", json!("AA")), "with their private half");
    skipped(with(&EC, "d", json!("AA")), "with their private half");
}

#[test]
fn sizes_of_rsa() {
    let sized = |bits: usize| {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        modulus[0] = 0xff >> ((8 - bits % 8) % 8);
        with(&RSA, "n", json!(encode(modulus)))
    };
    for bits in [512, 1024, 2040, 2047, 8193, 16_384] {
        skipped(sized(bits), "of an RSA size out of bounds");
    }
    skipped(with(&RSA, "n", json!("")), "of an RSA size out of bounds");
    for bits in [2048, 3072, 4096, 8192] {
        check(&[sized(bits)], "1 key (RS256 rsa)");
    }
    // A leading zero is not a bit (RFC 7518, section 6.3.1.1, asks to leave it out).
    let zeros = [vec![0; 64], vec![0xff; 200]].concat();
    skipped(with(&RSA, "n", json!(encode(zeros))), "of an RSA size out of bounds");
}

#[test]
fn numbers_that_are_no_key() {
    let malformed = |jwk| skipped(jwk, "malformed");
    malformed(json!(1));
    malformed(json!({}));
    malformed(with(&RSA, "kty", json!(1)));
    malformed(with(&RSA, "kid", json!(1)));
    malformed(with(&RSA, "kid", json!("k".repeat(257))));
    malformed(with(&RSA, "alg", json!(["RS256"])));
    malformed(with(&RSA, "use", json!(["sig"])));
    malformed(with(&RSA, "key_ops", json!("verify")));
    malformed(with(&RSA, "n", Value::Null));
    malformed(with(&RSA, "e", Value::Null));
    malformed(with(&RSA, "n", json!(format!("{}=", RSA.jwk()["n"].as_str().unwrap()))));
    malformed(with(&RSA, "n", json!(encode([0xfe; 256]))));
    for exponent in [&[1_u8][..], &[0], &[4], &[1, 0, 0], &[1, 0, 0, 0, 1]] {
        malformed(with(&RSA, "e", json!(encode(exponent))));
    }
    let x = EC.jwk()["x"].clone();
    malformed(with(&EC, "x", Value::Null));
    malformed(with(&EC, "y", Value::Null));
    malformed(with(&EC, "y", x));
    malformed(with(&EC, "x", json!(encode([0; 32]))));
    malformed(with(&EC, "x", json!(encode([1; 31]))));
    malformed(with(&EC, "x", json!(encode([1; 33]))));
    malformed(with(&ED, "x", json!(encode([1; 31]))));
}

#[test]
fn names_that_are_there_twice() {
    // One name, two types: both are kept.
    check(
        &[with(&EC, "kid", json!("k")), with(&ED, "kid", json!("k"))],
        "2 keys (ES256 k, EdDSA k)",
    );
    let other = Signer::ed("ed", 8);
    check(&[ED.jwk(), other.jwk()], "1 key (EdDSA ed), skipped: 1 named twice");
    let nameless = with(&ED, "kid", Value::Null);
    check(&[nameless.clone(), nameless], "2 keys (EdDSA without kid, EdDSA without kid)");
}

#[test]
fn documents_that_are_refused() {
    let refused = |document: &str, expected: BadJwks| {
        assert_eq!(Jwks::parse(document.as_bytes()).unwrap_err(), expected, "{document:.60}");
    };
    refused("", BadJwks::NotJson);
    refused("<!doctype html><title>Sign in</title>", BadJwks::NotJson);
    refused(r#"{"keys":[],"keys":[]}"#, BadJwks::NotJson);
    refused(&"[".repeat(10_000), BadJwks::NotJson);
    refused("[]", BadJwks::NotKeySet);
    refused("{}", BadJwks::NotKeySet);
    refused(r#"{"keys":{}}"#, BadJwks::NotKeySet);
    refused(r#"{"keys":[]}"#, BadJwks::NoUsableKey(SkippedKeys::default()));
    let oct = SkippedKeys { unknown_type: 1, ..SkippedKeys::default() };
    refused(r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, BadJwks::NoUsableKey(oct));
    let count = |count: usize| {
        let keys: Vec<Value> = (0..count).map(|n| with(&ED, "kid", json!(n.to_string()))).collect();
        parse(&keys).map(|jwks| jwks.keys().len())
    };
    assert_eq!(count(JWKS_KEYS_MAX), Ok(JWKS_KEYS_MAX));
    assert_eq!(count(JWKS_KEYS_MAX + 1), Err(BadJwks::TooManyKeys));
    let padded = |length: usize| {
        let document = json!({"keys": [ED.jwk()]}).to_string();
        format!("{document}{}", " ".repeat(length - document.len()))
    };
    assert!(Jwks::parse(padded(JWKS_BYTES_MAX).as_bytes()).is_ok());
    refused(&padded(JWKS_BYTES_MAX + 1), BadJwks::TooLong);
}

/// A secret never enters a log by way of a summary.
#[test]
fn no_key_material_is_shown() {
    let jwks = parse(&[RSA.jwk(), EC.jwk(), ED.jwk()]).unwrap();
    let shown = format!("{jwks} {jwks:?} {:?}", jwks.keys());
    for key in [RSA.jwk()["n"].clone(), EC.jwk()["x"].clone(), ED.jwk()["x"].clone()] {
        let material = &key.as_str().unwrap()[..20];
        assert!(!shown.contains(material), "{shown}");
    }
    let secret = Secret::new("the secret of the tests is long enough");
    let keys = KeySet::from_secret(&secret, JwtAlgorithm::Hs256).unwrap();
    assert!(!format!("{keys:?}").contains("secret of"), "{keys:?}");
}

#[test]
fn secrets() {
    let check = |secret: &str, algorithm, expected: Option<BadKey>| {
        let found = KeySet::from_secret(&Secret::new(secret), algorithm).map(|keys| keys.len());
        assert_eq!(found, expected.map_or(Ok(1), Err), "{secret}");
    };
    check(&"s".repeat(32), JwtAlgorithm::Hs256, None);
    check(&"s".repeat(32), JwtAlgorithm::Hs512, None);
    check(&"s".repeat(31), JwtAlgorithm::Hs256, Some(BadKey::ShortSecret));
    check("", JwtAlgorithm::Hs256, Some(BadKey::ShortSecret));
    check(&"s".repeat(32), JwtAlgorithm::Rs256, Some(BadKey::WrongAlgorithm));
    check(&RSA.public_pem(), JwtAlgorithm::Hs256, Some(BadKey::PublicSecret));
    check(&pem("CERTIFICATE", &[0; 64]), JwtAlgorithm::Hs256, Some(BadKey::PublicSecret));
}

fn pem_key(text: &str, algorithm: Option<JwtAlgorithm>) -> Result<String, BadKey> {
    KeySet::from_pem(text.as_bytes(), algorithm).map(|keys| format!("{keys:?}"))
}

#[test]
fn pem_blocks() {
    let used = |signer: &Signer, algorithm: Option<JwtAlgorithm>, expected: &str| {
        let shown = pem_key(&signer.public_pem(), algorithm).unwrap();
        assert!(shown.contains(expected), "{shown}");
    };
    used(&RSA, None, "RS256 -");
    used(&RSA, Some(JwtAlgorithm::Ps384), "PS384 -");
    used(&EC, None, "ES256 -");
    used(&EC384, Some(JwtAlgorithm::Es384), "ES384 -");
    used(&ED, None, "EdDSA -");
    let refused = |text: &str, algorithm, expected: BadKey| {
        assert_eq!(pem_key(text, algorithm).unwrap_err(), expected, "{text}");
    };
    refused(&EC.public_pem(), Some(JwtAlgorithm::Es384), BadKey::WrongAlgorithm);
    refused(&EC.public_pem(), Some(JwtAlgorithm::Rs256), BadKey::WrongAlgorithm);
    refused(&RSA.public_pem(), Some(JwtAlgorithm::Hs256), BadKey::WrongAlgorithm);
    refused("", None, BadKey::NoPublicKey);
    refused("not a key", None, BadKey::NoPublicKey);
    refused(&pem("CERTIFICATE", &RSA.public_der()), None, BadKey::NoPublicKey);
    refused(&pem("PRIVATE KEY", &RSA.public_der()), None, BadKey::NoPublicKey);
    refused(&pem("PUBLIC KEY", &[]), None, BadKey::Malformed);
    for cut in [1, 20, 100] {
        let der = RSA.public_der();
        refused(&pem("PUBLIC KEY", &der[..der.len() - cut]), None, BadKey::Malformed);
        refused(&pem("PUBLIC KEY", &[&der[..], &[0; 3]].concat()), None, BadKey::Malformed);
    }
}

/// Made by `openssl genpkey` and `openssl pkey -pubout`.
#[test]
fn pem_blocks_of_openssl() {
    let check = |base64: &str, expected: Result<&str, BadKey>| {
        let text = format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n");
        let found = pem_key(&text, None);
        match expected {
            Ok(name) => assert!(found.unwrap().contains(name)),
            Err(error) => assert_eq!(found.unwrap_err(), error),
        }
    };
    check(OPENSSL_P256, Ok("ES256"));
    check(OPENSSL_P384, Ok("ES384"));
    check(OPENSSL_ED25519, Ok("EdDSA"));
    check(OPENSSL_RSA_2048, Ok("RS256"));
    check(OPENSSL_RSA_1024, Err(BadKey::RsaSize));
    check(OPENSSL_P521, Err(BadKey::UnknownType));
    check(OPENSSL_SECP256K1, Err(BadKey::UnknownType));
    check(OPENSSL_X25519, Err(BadKey::UnknownType));
}

const OPENSSL_P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQw/sPZMcAd9JKQYrTugILeTEzwBXBIki8GBt6vGuwikpcL2/NsgQ/JorAkeCovTeriLBLskKNwlywYFIxLRxNg==";
const OPENSSL_P384: &str = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAElte8GfzN/qrd/gYoKuEnrHKfaP6Fxbm7mn09Wc4C3ij0UFRA41GC9agpSDUzOY/MRTQwCqAgKBm7+DWYGUBA3ibvypTzRpYTBnVlF/Wj/6ARNTFllNeNC+rmYgbCkZ2L";
const OPENSSL_ED25519: &str = "MCowBQYDK2VwAyEATewfcNZYiUBqWTxtKjypmvXUzMyRfVA3HH+jAFL1wrI=";
const OPENSSL_RSA_2048: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEArJZbIE/8OAy6t/qj4bY3gLMpqhjG2Rs1BQOyPzvivHbhEZzQPEyCPuWP5PjMJtnEmPp8qP6Ej07ljUHJMjfKSWpPEaCWub0Y4/d3SywDARp3sozIjl1bTvN8Gu1xTJCcAfi4o+W0mHfnyioCIr19uw+NnzbpLIumRe3l/vLu3Gt4BhjmMtVSQ9+YWRHEK3LUxESEha6EIKPsFt2hC4MxseybuhIZu0UUubshyy1iR4tMNeCStJ15BlmesJhgaqpzGrU/BETjvQ5tQZl6MdqcrSlzIMMz1deRPGs3hobk4d+g+sU8IxCs1+XjD9GcWwBDEobzsEB7lKgcOqxqP2+l1QIDAQAB";
const OPENSSL_RSA_1024: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDr7N+1RbXEg3wwqBbMHU3UZXwKI6L3hMuPre+Kh2GUGZgr3F9p7RjNtu3ZG9YlTVc2P7wpjJiG95WtKFSZrN2RYWMmnYI9sKU2F4j58au88tCCT+5m8xrjypiM+b7E8AOhy6KqvdQPPNHJxxCFhxbCaPiqqhElj1gKAmFhjUbhdQIDAQAB";
const OPENSSL_P521: &str = "MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQAJOK27lwEgcet5mDNNu3sJBDn6GsD4gZdK4+CzsiMqRoeSGftNrdNhv6F3HnEzuR8JX3l8g688sTb/Oqpj05dlI0B2InspVPJgU7/F1Xpyz+2o0hzzFp5hqDop+6ZZqBB2/kQC0dRMxgNu7pF7tanJVOwVyHBiByitZ/RjKKkjnuL3R4=";
const OPENSSL_SECP256K1: &str = "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEQuHsdkOLQAnH9vbWNorZfEYeen/7JWyzULy2I2OgnVsetN2ij8Zu3tjSU3vic5Qyfp/9egEaNW/tYAVpuq6yxQ==";
const OPENSSL_X25519: &str = "MCowBQYDK2VuAyEAfCAtOJ6wMh+QHA+5Qxtw20NeMl+ynwLOxdwulAfQXDA=";
