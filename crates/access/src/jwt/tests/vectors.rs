//! The examples of RFC 7515 (appendix A), RFC 7519 and RFC 8037 (appendix A), and tokens made by
//! another implementation.

use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{
    EC, EC384, ED, ISSUER, PSS, PrivateKey, RSA, Signer, claims, encode, fixed, issuer_with, now,
    pointer, verifier, verify_twice,
};
use crate::jwt::{
    AudienceRule, Jwks, JwtAlgorithm, JwtError, JwtIssuer, KeySet, KeySource, TenantRule,
};
use aws_lc_rs::encoding::AsDer as _;

/// A second before the `exp` of the examples, 1300819380.
const BEFORE: Duration = Duration::from_secs(1_300_819_379);
/// `{"iss":"joe",\r\n "exp":1300819380,\r\n "http://example.com/is_root":true}`.
const JOE: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

/// RFC 7515, A.1.1.
const HS256_HEADER: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
const HS256_SIGNATURE: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const HS256_SECRET: &str =
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";

/// RFC 7515, A.2.1.
const RS256_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const RS256_MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";

/// RFC 7515, A.3.1.
const ES256_SIGNATURE: &str =
    "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const ES256_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const ES256_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

/// RFC 8037, A.2.
const ED25519_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()
}

/// The examples have no subject but `iss`.
fn joe(keys: impl Into<KeySource>) -> JwtIssuer {
    let tenant = TenantRule::Fixed("examples".into());
    let mut joe = JwtIssuer::new("joe", AudienceRule::Any, keys.into(), tenant);
    joe.claims.subject = pointer("/iss");
    joe
}

fn set(jwk: &Value) -> KeySource {
    let jwks = Jwks::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
    KeySource::Fixed(jwks.keys().clone())
}

fn rfc_rsa() -> KeySource {
    set(&json!({"kty": "RSA", "n": RS256_MODULUS, "e": "AQAB"}))
}

fn rfc_ec() -> KeySource {
    set(&json!({"kty": "EC", "crv": "P-256", "x": ES256_X, "y": ES256_Y}))
}

fn rfc_secret() -> KeySource {
    KeySet::from_secret_bytes(&decode(HS256_SECRET), JwtAlgorithm::Hs256).unwrap().into()
}

fn check(keys: KeySource, token: &str, expected: Result<(), JwtError>) {
    let verifier = verifier(joe(keys));
    let found = verify_twice(&verifier, token, BEFORE);
    assert_eq!(found.as_ref().map(|_| ()).map_err(|error| *error), expected, "{token}");
    if let Ok(token) = found {
        assert_eq!(&*token.subject, "joe");
        assert_eq!(token.expires_at, Some(BEFORE + Duration::from_secs(1)));
    }
}

#[test]
fn rfc_7515_a1_hs256_and_rfc_7519_3_1() {
    check(rfc_secret(), &format!("{HS256_HEADER}.{JOE}.{HS256_SIGNATURE}"), Ok(()));
}

#[test]
fn rfc_7515_a2_rs256() {
    let token = format!("{}.{JOE}.{RS256_SIGNATURE}", encode(r#"{"alg":"RS256"}"#));
    check(rfc_rsa(), &token, Ok(()));
    check(rfc_ec(), &token, Err(JwtError::AlgorithmMismatch));
    check(rfc_secret(), &token, Err(JwtError::AlgorithmMismatch));
}

#[test]
fn rfc_7515_a3_es256() {
    let token = format!("{}.{JOE}.{ES256_SIGNATURE}", encode(r#"{"alg":"ES256"}"#));
    check(rfc_ec(), &token, Ok(()));
    check(rfc_rsa(), &token, Err(JwtError::AlgorithmMismatch));
}

#[test]
fn rfc_7515_a5_and_rfc_7519_6_1_unsigned() {
    let token = format!("eyJhbGciOiJub25lIn0.{JOE}.");
    for keys in [rfc_secret(), rfc_rsa(), rfc_ec()] {
        check(keys, &token, Err(JwtError::Unsigned));
    }
}

#[test]
fn rfc_7515_e_a_critical_header() {
    let header = encode(
        "{\"alg\":\"none\",\r\n \"crit\":[\"http://example.invalid/UNDEFINED\"],\r\n \"http://example.invalid/UNDEFINED\":true\r\n}",
    );
    check(rfc_rsa(), &format!("{header}.RkFJTA."), Err(JwtError::CriticalHeader));
}

/// In the form of that example: five parts.
#[test]
fn rfc_7519_a1_encrypted() {
    let header = encode(r#"{"alg":"RSA1_5","enc":"A128CBC-HS256"}"#);
    let token = format!("{header}.QR1Owv.AxY8DCtDaGlsbGljb3RoZQ.MKOle7UQ.fiK51VwhsxJ");
    check(rfc_rsa(), &token, Err(JwtError::Malformed("the token has not three parts")));
}

/// The payload of this example is no JSON, so it is no token; its signature is valid all the same.
#[test]
fn rfc_8037_a4_ed25519() {
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X});
    let KeySource::Fixed(keys) = set(&jwk) else { panic!("a set is fixed") };
    let key = keys.select(None, Some(JwtAlgorithm::EdDsa)).unwrap();
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = decode(
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    assert!(key.verify(message, &signature));
    assert!(!key.verify(&message[1..], &signature));
    assert!(!key.verify(message, &signature[1..]));
}

/// All algorithms, signed by this module's tests.
#[test]
fn each_algorithm() {
    let check = |signer: &Signer, keys: KeySource| {
        let verifier = verifier(issuer_with(keys));
        let token = verify_twice(&verifier, &signer.token(&claims(&json!({}))), now());
        let subject = token.map(|token| token.subject.to_string());
        assert_eq!(subject, Ok("alice".to_owned()), "{}", signer.algorithm.word());
    };
    for signer in [&*RSA, &*PSS, &*EC, &*EC384, &*ED] {
        check(signer, fixed(&[signer]));
        let pem = signer.public_pem();
        check(signer, KeySet::from_pem(pem.as_bytes(), Some(signer.algorithm)).unwrap().into());
    }
    for algorithm in [JwtAlgorithm::Hs256, JwtAlgorithm::Hs384, JwtAlgorithm::Hs512] {
        let keys = KeySet::from_secret_bytes(super::SECRET, algorithm).unwrap();
        check(&Signer::secret(algorithm, super::SECRET), keys.into());
    }
}

/// `Ed25519` is a second name of `EdDSA` (RFC 9864), in tokens and in sets.
#[test]
fn the_second_name_of_eddsa() {
    let token = ED.sign_text(r#"{"alg":"Ed25519","kid":"ed"}"#, &claims(&json!({})).to_string());
    let mut jwk = ED.jwk();
    for name in ["EdDSA", "Ed25519"] {
        jwk["alg"] = json!(name);
        assert!(verifier(issuer_with(set(&jwk))).verify(&token, now()).is_ok(), "{name}");
    }
}

/// Headers, claims and encodings as another implementation writes them, each algorithm of RSA by one
/// key.
#[test]
fn tokens_of_another_implementation() {
    let rsa_der = match &RSA.key {
        PrivateKey::Rsa(key) => pkcs1(key.as_der().unwrap().as_ref()),
        _ => panic!("it is an RSA key"),
    };
    for (theirs, ours) in [
        (Algorithm::RS256, JwtAlgorithm::Rs256),
        (Algorithm::RS384, JwtAlgorithm::Rs384),
        (Algorithm::RS512, JwtAlgorithm::Rs512),
        (Algorithm::PS256, JwtAlgorithm::Ps256),
        (Algorithm::PS384, JwtAlgorithm::Ps384),
        (Algorithm::PS512, JwtAlgorithm::Ps512),
    ] {
        let claims = claims(&json!({}));
        let key = EncodingKey::from_rsa_der(&rsa_der);
        let token = jsonwebtoken::encode(&Header::new(theirs), &claims, &key).unwrap();
        let keys = KeySet::from_pem(RSA.public_pem().as_bytes(), Some(ours)).unwrap();
        let verified = verifier(issuer_with(keys)).verify(&token, now());
        assert!(verified.is_ok_and(|token| *token.issuer == *ISSUER), "{}", ours.word());
    }
    for (theirs, ours) in [
        (Algorithm::HS256, JwtAlgorithm::Hs256),
        (Algorithm::HS384, JwtAlgorithm::Hs384),
        (Algorithm::HS512, JwtAlgorithm::Hs512),
    ] {
        let key = EncodingKey::from_secret(super::SECRET);
        let token = jsonwebtoken::encode(&Header::new(theirs), &claims(&json!({})), &key).unwrap();
        let keys = KeySet::from_secret_bytes(super::SECRET, ours).unwrap();
        assert!(verifier(issuer_with(keys)).verify(&token, now()).is_ok(), "{}", ours.word());
    }
}

/// The RSA key within a PKCS #8 document: what follows the header of its only octet string.
fn pkcs1(pkcs8: &[u8]) -> Vec<u8> {
    pkcs8[26..].to_vec()
}
