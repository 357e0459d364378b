//! Tokens of keys made here, and the verifier that the tests share.

mod confusion;
mod granting;
mod judging;
mod key_sets;
mod properties;
mod rotation;
mod vectors;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::spki::{self, PublicKeyInfo};
use super::{
    AudienceRule, ClaimPointer, Jwks, JwtAlgorithm, JwtError, JwtIssuer, JwtVerifier, KeySource,
    TenantRule, VerifiedToken,
};

/// 2023-11-14, in seconds since 1970.
const NOW: u64 = 1_700_000_000;
const DAY: Duration = Duration::from_secs(86_400);
const ISSUER: &str = "https://id.example";
const SECRET: &[u8] = b"a secret of more than 32 bytes for tests";

fn now() -> Duration {
    Duration::from_secs(NOW)
}

/// The private half of a key.
enum PrivateKey {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(&'static [u8]),
}

/// An issuer's side: a key, its algorithm and its name.
struct Signer {
    algorithm: JwtAlgorithm,
    kid: &'static str,
    key: PrivateKey,
}

/// Made once: an RSA key takes a tenth of a second.
static RSA: LazyLock<Signer> = LazyLock::new(|| Signer::rsa("rsa", JwtAlgorithm::Rs256));
static PSS: LazyLock<Signer> = LazyLock::new(|| Signer::rsa("pss", JwtAlgorithm::Ps256));
static EC: LazyLock<Signer> = LazyLock::new(|| Signer::ec("ec", JwtAlgorithm::Es256));
static EC384: LazyLock<Signer> = LazyLock::new(|| Signer::ec("ec384", JwtAlgorithm::Es384));
static ED: LazyLock<Signer> = LazyLock::new(|| Signer::ed("ed", 7));

impl Signer {
    fn rsa(kid: &'static str, algorithm: JwtAlgorithm) -> Self {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        Self { algorithm, kid, key: PrivateKey::Rsa(key) }
    }

    fn ec(kid: &'static str, algorithm: JwtAlgorithm) -> Self {
        let curve = match algorithm {
            JwtAlgorithm::Es256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            _ => &ECDSA_P384_SHA384_FIXED_SIGNING,
        };
        Self { algorithm, kid, key: PrivateKey::Ec(EcdsaKeyPair::generate(curve).unwrap()) }
    }

    fn ed(kid: &'static str, seed: u8) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Self { algorithm: JwtAlgorithm::EdDsa, kid, key: PrivateKey::Ed(key) }
    }

    fn secret(algorithm: JwtAlgorithm, secret: &'static [u8]) -> Self {
        Self { algorithm, kid: "secret", key: PrivateKey::Secret(secret) }
    }

    fn sign_as(&self, algorithm: JwtAlgorithm, message: &[u8]) -> Vec<u8> {
        let rng = SystemRandom::new();
        match &self.key {
            PrivateKey::Rsa(key) => {
                let encoding = match algorithm {
                    JwtAlgorithm::Rs256 => &RSA_PKCS1_SHA256,
                    JwtAlgorithm::Rs384 => &RSA_PKCS1_SHA384,
                    JwtAlgorithm::Rs512 => &RSA_PKCS1_SHA512,
                    JwtAlgorithm::Ps256 => &RSA_PSS_SHA256,
                    JwtAlgorithm::Ps384 => &RSA_PSS_SHA384,
                    _ => &RSA_PSS_SHA512,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(encoding, &rng, message, &mut signature).unwrap();
                signature
            }
            PrivateKey::Ec(key) => key.sign(&rng, message).unwrap().as_ref().to_vec(),
            PrivateKey::Ed(key) => key.sign(message).as_ref().to_vec(),
            PrivateKey::Secret(secret) => {
                let hash = match algorithm {
                    JwtAlgorithm::Hs256 => hmac::HMAC_SHA256,
                    JwtAlgorithm::Hs384 => hmac::HMAC_SHA384,
                    _ => hmac::HMAC_SHA512,
                };
                hmac::sign(&hmac::Key::new(hash, secret), message).as_ref().to_vec()
            }
        }
    }

    /// A token of this header and these claims, byte for byte.
    fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign_as(self.algorithm, message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm.word(), "kid": self.kid, "typ": "JWT"});
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// `SubjectPublicKeyInfo`.
    fn public_der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match &self.key {
            PrivateKey::Rsa(key) => key.public_key().as_der().unwrap(),
            PrivateKey::Ec(key) => key.public_key().as_der().unwrap(),
            PrivateKey::Ed(key) => key.public_key().as_der().unwrap(),
            PrivateKey::Secret(_) => panic!("a secret has no public half"),
        };
        der.as_ref().to_vec()
    }

    fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &self.public_der())
    }

    fn jwk(&self) -> Value {
        let mut jwk = json!({"kid": self.kid, "alg": self.algorithm.word(), "use": "sig"});
        let der = self.public_der();
        let members = match spki::parse(&der).unwrap() {
            PublicKeyInfo::Rsa { modulus, exponent } => {
                json!({"kty": "RSA", "n": encode(&modulus[1..]), "e": encode(exponent)})
            }
            PublicKeyInfo::P256 { point } => ec_members("P-256", point),
            PublicKeyInfo::P384 { point } => ec_members("P-384", point),
            PublicKeyInfo::Ed25519 { point } => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(point)})
            }
        };
        jwk.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        jwk
    }
}

fn ec_members(curve: &str, point: &[u8]) -> Value {
    let (x, y) = point[1..].split_at(point.len() / 2);
    json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn jwks_of(keys: &[&Signer]) -> Jwks {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    Jwks::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn fixed(keys: &[&Signer]) -> KeySource {
    KeySource::Fixed(jwks_of(keys).keys().clone())
}

/// Claims that are accepted by [`issuer_with`]; `more` is laid over them, and `null` takes one out.
fn claims(more: &Value) -> Value {
    let mut claims =
        json!({"iss": ISSUER, "sub": "alice", "aud": "rpc", "org": "acme", "exp": NOW + 600});
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn pointer(text: &str) -> ClaimPointer {
    ClaimPointer::parse(text).unwrap()
}

fn issuer_with(keys: impl Into<KeySource>) -> JwtIssuer {
    let tenant = TenantRule::Claim(pointer("/org"));
    JwtIssuer::new(ISSUER, AudienceRule::OneOf(vec!["rpc".into()]), keys.into(), tenant)
}

fn verifier(issuer: JwtIssuer) -> JwtVerifier {
    JwtVerifier::new(vec![issuer]).unwrap()
}

/// Twice, so that what is remembered gets the answer of what was verified.
fn verify_twice(
    verifier: &JwtVerifier,
    token: &str,
    now: Duration,
) -> Result<Arc<VerifiedToken>, JwtError> {
    let first = verifier.verify(token, now);
    assert_eq!(verifier.verify(token, now), first, "{token}");
    first
}
