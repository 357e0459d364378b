//! What a token costs: verified by each algorithm, and remembered.
//!
//! `cargo bench -p wellhead-access` prints the median and the best of many rounds; it asserts nothing
//! but that the tokens are accepted. Beside each algorithm stands what the crate `jsonwebtoken` takes
//! for it, with the settings that come nearest; it parses the key each time.

#![allow(clippy::print_stdout, reason = "a bench prints what it found")]

#[path = "../../jsonrpc/benches/support/rounds.rs"]
mod rounds;

use std::hint::black_box;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Value, json};
use wellhead_access::jwt::{
    AudienceRule, ClaimPointer, JwtAlgorithm, JwtIssuer, JwtVerifier, KeySet, KeySource, TenantRule,
};
use wellhead_telemetry::Secret;

use rounds::Rounds;

const ROUNDS: usize = 201;
/// A round lasts about this long, and at least one call: shorter than a slice of time, so that on a
/// busy machine the best is a round that nothing interrupted.
const ROUND: Duration = Duration::from_millis(1);
const SECRET: &str = "a secret of more than 32 bytes for benches";
const NOW: Duration = Duration::from_secs(1_700_000_000);

/// Both halves of a key, for both implementations.
struct BenchKey {
    theirs: Algorithm,
    encoding: EncodingKey,
    decoding: DecodingKey,
    keys: KeySet,
}

fn main() {
    let claims = json!({
        "iss": "https://id.example/realms/main", "sub": "5f2b7c3e-08a4-4f0f-9d4e-5a1e6f9b2d11",
        "aud": ["rpc", "account"], "exp": 4_000_000_000_u64, "iat": NOW.as_secs(),
        "nbf": NOW.as_secs(), "jti": "c0a8012e-7f1d-4a55-b0f3-2f2f6d9b7e10", "org": "acme",
        "plan": "pro", "scope": "openid profile rpc", "rpc": {"methods": ["eth_*", "net_*"]},
    });
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("keys are made");
    for (name, key) in [
        ("HS256", secret()),
        ("RS256, 2048 bits", rsa_key(&rsa, Algorithm::RS256, JwtAlgorithm::Rs256)),
        ("PS256, 2048 bits", rsa_key(&rsa, Algorithm::PS256, JwtAlgorithm::Ps256)),
        ("ES256", ec_key(Algorithm::ES256)),
        ("ES384", ec_key(Algorithm::ES384)),
        ("EdDSA", ed_key()),
    ] {
        compare(name, key, &claims);
    }
}

fn compare(name: &str, key: BenchKey, claims: &Value) {
    let token = jsonwebtoken::encode(&Header::new(key.theirs), claims, &key.encoding)
        .expect("claims are encoded");
    let verifier = verifier(key.keys, 10_000);
    // Nothing fits, so each token is verified anew.
    let forgetful = &verifier.1;
    let accept = |verifier: &JwtVerifier| {
        black_box(verifier.verify(black_box(&token), NOW)).expect("the token is valid");
    };
    measure(&format!("{name}, verified"), token.len(), || accept(forgetful));
    measure(&format!("{name}, remembered"), token.len(), || accept(&verifier.0));
    let mut validation = Validation::new(key.theirs);
    validation.set_audience(&["rpc"]);
    validation.set_issuer(&["https://id.example/realms/main"]);
    validation.validate_nbf = true;
    measure(&format!("{name}, by jsonwebtoken"), token.len(), || {
        let decoded = jsonwebtoken::decode::<Value>(black_box(&token), &key.decoding, &validation);
        black_box(decoded).expect("the token is valid");
    });
}

/// One that remembers, and one that does not.
fn verifier(keys: KeySet, tokens_max: usize) -> (JwtVerifier, JwtVerifier) {
    let pointer = |text| ClaimPointer::parse(text).expect("it is a pointer");
    let mut issuer = JwtIssuer::new(
        "https://id.example/realms/main",
        AudienceRule::OneOf(vec!["rpc".into()]),
        KeySource::from(keys),
        TenantRule::Claim(pointer("/org")),
    );
    issuer.claims.quota = Some(pointer("/plan"));
    issuer.claims.methods = Some(pointer("/rpc/methods"));
    let of = |tokens_max| {
        JwtVerifier::with_memory(vec![issuer.clone()], tokens_max).expect("one issuer is few")
    };
    (of(tokens_max), of(0))
}

fn public_key(der: &PublicKeyX509Der<'_>, algorithm: Option<JwtAlgorithm>) -> KeySet {
    let base64 = STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n");
    KeySet::from_pem(pem.as_bytes(), algorithm).expect("it is a public key")
}

fn secret() -> BenchKey {
    BenchKey {
        theirs: Algorithm::HS256,
        encoding: EncodingKey::from_secret(SECRET.as_bytes()),
        decoding: DecodingKey::from_secret(SECRET.as_bytes()),
        keys: KeySet::from_secret(&Secret::new(SECRET), JwtAlgorithm::Hs256)
            .expect("the secret is long enough"),
    }
}

fn rsa_key(pair: &RsaKeyPair, theirs: Algorithm, ours: JwtAlgorithm) -> BenchKey {
    let pkcs8 = pair.as_der().expect("a key has a form in PKCS #8");
    let public = pair.public_key();
    BenchKey {
        theirs,
        // The PKCS #1 form is what follows the header of PKCS #8.
        encoding: EncodingKey::from_rsa_der(&pkcs8.as_ref()[26..]),
        decoding: DecodingKey::from_rsa_der(public.as_ref()),
        keys: public_key(&public.as_der().expect("a key has a form in X.509"), Some(ours)),
    }
}

fn ec_key(theirs: Algorithm) -> BenchKey {
    let curve = match theirs {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
        _ => &ECDSA_P384_SHA384_FIXED_SIGNING,
    };
    let pair = EcdsaKeyPair::generate(curve).expect("keys are made");
    let pkcs8 = pair.to_pkcs8v1().expect("a key has a form in PKCS #8");
    BenchKey {
        theirs,
        encoding: EncodingKey::from_ec_der(pkcs8.as_ref()),
        decoding: DecodingKey::from_ec_der(pair.public_key().as_ref()),
        keys: public_key(&pair.public_key().as_der().expect("a key has a form in X.509"), None),
    }
}

fn ed_key() -> BenchKey {
    let pair = Ed25519KeyPair::generate().expect("keys are made");
    let pkcs8 = pair.to_pkcs8v1().expect("a key has a form in PKCS #8");
    BenchKey {
        theirs: Algorithm::EdDSA,
        encoding: EncodingKey::from_ed_der(pkcs8.as_ref()),
        decoding: DecodingKey::from_ed_der(pair.public_key().as_ref()),
        keys: public_key(&pair.public_key().as_der().expect("a key has a form in X.509"), None),
    }
}

fn measure(what: &str, bytes: usize, run: impl Fn()) {
    let Rounds { best, median } = Rounds::of(ROUNDS, ROUND, run);
    let [median, best] = [median, best].map(|nanos| Duration::from_nanos(nanos as u64));
    println!("{what:<32} {bytes:>5} B  median {median:>9.2?}  best {best:>9.2?}");
}
