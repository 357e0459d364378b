//! Tokens that would be accepted if they could choose how they are verified.

use serde_json::json;

use super::{
    EC, EC384, ED, ISSUER, PSS, RSA, SECRET, Signer, claims, encode, fixed, issuer_with, now,
    verify_twice,
};
use crate::jwt::spki::{self, PublicKeyInfo};
use crate::jwt::{
    ClaimRole, IssuerIndex, JwtAlgorithm, JwtError, JwtIssuer, JwtVerifier, KeySet, KeySource,
    TOKEN_BYTES_MAX,
};

const NOT_THREE: JwtError = JwtError::Malformed("the token has not three parts");
const BAD_HEADER: JwtError =
    JwtError::Malformed("the token's header is no JSON object, or names a member twice");
const BAD_CLAIMS: JwtError =
    JwtError::Malformed("the token's claims are no JSON object, or name a member twice");
const HEADER_TEXT: JwtError = JwtError::Malformed("the token's header is not base64url");
const CLAIMS_TEXT: JwtError = JwtError::Malformed("the token's claims are not base64url");
const SIGNATURE_TEXT: JwtError = JwtError::Malformed("the token's signature is not base64url");
const BAD_KID: JwtError = JwtError::Malformed("the token's `kid` is no string, or too long");
const NO_ALG: JwtError = JwtError::Malformed("the token's header has no `alg`");
const MAIN: IssuerIndex = IssuerIndex(0);

fn other(name: &str, keys: impl Into<KeySource>) -> JwtIssuer {
    JwtIssuer { issuer: name.into(), ..issuer_with(keys) }
}

/// The main issuer with a set of public keys; one with a PEM, one with a secret, and one with an own
/// EC key.
fn all_issuers() -> JwtVerifier {
    let pem = KeySet::from_pem(RSA.public_pem().as_bytes(), None).unwrap();
    let secret = KeySet::from_secret_bytes(SECRET, JwtAlgorithm::Hs256).unwrap();
    JwtVerifier::new(vec![
        issuer_with(fixed(&[&RSA, &PSS, &EC, &ED])),
        other("pem", pem),
        other("secret", secret),
        other("ec384", fixed(&[&EC384])),
    ])
    .unwrap()
}

fn check(token: &str, expected: JwtError) {
    assert_eq!(verify_twice(&all_issuers(), token, now()), Err(expected), "{token}");
}

fn accepted(token: &str) {
    let verified = verify_twice(&all_issuers(), token, now());
    assert_eq!(verified.map(|token| token.subject.to_string()), Ok("alice".to_owned()), "{token}");
}

fn plain() -> String {
    claims(&json!({})).to_string()
}

/// The claims of a token of another issuer.
fn of(issuer: &str) -> String {
    claims(&json!({"iss": issuer})).to_string()
}

#[test]
fn what_is_accepted() {
    for signer in [&*RSA, &*PSS, &*EC, &*ED] {
        accepted(&signer.sign_text(&header(signer), &plain()));
    }
    accepted(&RSA.sign_text(&header(&RSA), &of("pem")));
    accepted(&EC384.sign_text(&header(&EC384), &of("ec384")));
    let secret = Signer::secret(JwtAlgorithm::Hs256, SECRET);
    accepted(&secret.sign_text(&header(&secret), &of("secret")));
    // Each algorithm has one key in the main set.
    for signer in [&*RSA, &*PSS, &*EC, &*ED] {
        let header = json!({"alg": signer.algorithm.word()});
        accepted(&signer.sign_text(&header.to_string(), &plain()));
    }
}

fn header(signer: &Signer) -> String {
    json!({"alg": signer.algorithm.word(), "kid": signer.kid}).to_string()
}

/// The public key as the secret of an HMAC, in each form that it can be had in.
#[test]
fn an_hmac_with_the_public_key() {
    let der = RSA.public_der();
    let PublicKeyInfo::Rsa { modulus, .. } = spki::parse(&der).unwrap() else {
        panic!("it is an RSA key");
    };
    let pem = RSA.public_pem();
    let jwk = RSA.jwk().to_string();
    let forms: [&[u8]; 7] = [
        pem.as_bytes(),
        pem.trim_end().as_bytes(),
        &der,
        modulus,
        &modulus[1..],
        jwk.as_bytes(),
        &[],
    ];
    for form in forms {
        let forger = Signer::secret(JwtAlgorithm::Hs256, form.to_vec().leak());
        for header in [r#"{"alg":"HS256"}"#, r#"{"alg":"HS256","kid":"rsa"}"#] {
            check(&forger.sign_text(header, &plain()), JwtError::AlgorithmMismatch);
            check(&forger.sign_text(header, &of("pem")), JwtError::AlgorithmMismatch);
            check(&forger.sign_text(header, &of("secret")), JwtError::BadSignature);
        }
        check(
            &forger.sign_text(r#"{"alg":"RS256","kid":"rsa"}"#, &plain()),
            JwtError::BadSignature,
        );
    }
}

#[test]
fn no_signature() {
    for none in ["none", "None", "NONE", "nOnE"] {
        let header = json!({"alg": none, "kid": "rsa"}).to_string();
        check(&RSA.sign_text(&header, &plain()), JwtError::Unsigned);
        check(&format!("{}.{}.", encode(&header), encode(plain())), JwtError::Unsigned);
        check(&format!("{}.{}", encode(&header), encode(plain())), NOT_THREE);
    }
    for signer in [&*RSA, &*PSS, &*EC, &*ED] {
        let token = signer.sign_text(&header(signer), &plain());
        let (message, _) = token.rsplit_once('.').unwrap();
        check(&format!("{message}."), JwtError::Unsigned);
        check(&format!("{message}.AA"), JwtError::BadSignature);
        for length in [32, 64, 96, 256] {
            let zeros = encode(vec![0; length]);
            check(&format!("{message}.{zeros}"), JwtError::BadSignature);
        }
    }
    // RFC 8725, section 2.1: some libraries read these as `none`.
    for alg in [r#"{"alg":""}"#, r#"{"alg":" none"}"#, r#"{"alg":"HS257"}"#, r#"{"alg":"rs256"}"#] {
        check(&RSA.sign_text(alg, &plain()), JwtError::AlgorithmMismatch);
    }
    for alg in
        ["{}", r#"{"alg":null}"#, r#"{"alg":["RS256"]}"#, r#"{"alg":0}"#, r#"{"Alg":"RS256"}"#]
    {
        check(&RSA.sign_text(alg, &plain()), NO_ALG);
    }
}

/// The signature is right for the algorithm that the header names, and the key is for another.
#[test]
fn an_algorithm_that_is_not_the_keys() {
    let sign = |signer: &Signer, algorithm: JwtAlgorithm, kid: Option<&str>| {
        let header = match kid {
            Some(kid) => json!({"alg": algorithm.word(), "kid": kid}),
            None => json!({"alg": algorithm.word()}),
        };
        let message = format!("{}.{}", encode(header.to_string()), encode(plain()));
        format!("{message}.{}", encode(signer.sign_as(algorithm, message.as_bytes())))
    };
    use JwtAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Rs256, Rs384, Rs512};
    for algorithm in [Rs384, Rs512, Ps256, Ps384] {
        check(&sign(&RSA, algorithm, Some("rsa")), JwtError::AlgorithmMismatch);
    }
    for algorithm in [Rs256, Rs384, Ps384] {
        check(&sign(&PSS, algorithm, Some("pss")), JwtError::AlgorithmMismatch);
    }
    // Without a name the algorithm finds the key, which is not the one that signed.
    check(&sign(&PSS, Rs256, None), JwtError::BadSignature);
    check(&sign(&RSA, Ps256, None), JwtError::BadSignature);
    check(&sign(&RSA, Rs384, None), JwtError::AlgorithmMismatch);
    check(&sign(&RSA, Rs256, Some("ec")), JwtError::AlgorithmMismatch);
    check(&sign(&EC, Es256, Some("rsa")), JwtError::AlgorithmMismatch);
    check(&sign(&EC, Es256, Some("ed")), JwtError::AlgorithmMismatch);
    check(&sign(&ED, EdDsa, Some("ec")), JwtError::AlgorithmMismatch);
    check(&sign(&EC384, Es384, Some("ec")), JwtError::AlgorithmMismatch);
    check(&sign(&EC, Rs256, Some("rsa")), JwtError::BadSignature);
}

#[test]
fn the_key_of_another_issuer() {
    check(&EC384.sign_text(&header(&EC384), &plain()), JwtError::UnknownKid(MAIN));
    check(&RSA.sign_text(&header(&RSA), &of("ec384")), JwtError::UnknownKid(IssuerIndex(3)));
    check(&EC384.sign_text(r#"{"alg":"ES384"}"#, &plain()), JwtError::AlgorithmMismatch);
    check(&PSS.sign_text(&header(&PSS), &of("pem")), JwtError::AlgorithmMismatch);
    check(&PSS.sign_text(r#"{"alg":"RS256"}"#, &of("pem")), JwtError::BadSignature);
    let secret = Signer::secret(JwtAlgorithm::Hs256, SECRET);
    check(&secret.sign_text(r#"{"alg":"HS256"}"#, &plain()), JwtError::AlgorithmMismatch);
    for issuer in
        ["nobody", "", "https://id.example/", "HTTPS://ID.EXAMPLE", "https://id.example\0"]
    {
        check(&RSA.sign_text(&header(&RSA), &of(issuer)), JwtError::UnknownIssuer);
    }
    let without = claims(&json!({"iss": null})).to_string();
    check(&RSA.sign_text(&header(&RSA), &without), JwtError::ClaimMissing(ClaimRole::Issuer));
    let list = claims(&json!({"iss": [ISSUER]})).to_string();
    check(&RSA.sign_text(&header(&RSA), &list), JwtError::ClaimInvalid(ClaimRole::Issuer));
}

#[test]
fn names_of_keys() {
    let kid = |kid: &serde_json::Value| {
        RSA.sign_text(&json!({"alg": "RS256", "kid": kid}).to_string(), &plain())
    };
    for unknown in ["", "RSA", "rsa ", "../rsa", "rsa\0", "' OR 1=1 --"] {
        check(&kid(&json!(unknown)), JwtError::UnknownKid(MAIN));
    }
    for invalid in
        [json!(1), json!(null), json!(["rsa"]), json!({"rsa": 1}), json!("k".repeat(257))]
    {
        check(&kid(&invalid), BAD_KID);
    }
}

/// What a header offers instead of the key that it should name.
#[test]
fn keys_in_the_header_are_not_looked_at() {
    let forger = Signer::ed("forged", 99);
    let mut jwk = forger.jwk();
    jwk["kid"] = json!("ed");
    for (name, value) in [
        ("jwk", jwk),
        ("jku", json!("https://evil.example/jwks.json")),
        ("x5u", json!("https://evil.example/chain.pem")),
        ("x5c", json!(["MII="])),
    ] {
        let header = json!({"alg": "EdDSA", "kid": "ed", name: value}).to_string();
        check(&forger.sign_text(&header, &plain()), JwtError::BadSignature);
        accepted(&ED.sign_text(&header, &plain()));
    }
}

#[test]
fn critical_extensions() {
    for crit in [json!([]), json!(["exp"]), json!(["b64"]), json!(null), json!("exp")] {
        let header = json!({"alg": "EdDSA", "kid": "ed", "crit": crit, "b64": false}).to_string();
        check(&ED.sign_text(&header, &plain()), JwtError::CriticalHeader);
    }
}

#[test]
fn dots_and_white_space() {
    let token = ED.sign_text(&header(&ED), &plain());
    let [head, body, signature]: [&str; 3] =
        token.split('.').collect::<Vec<_>>().try_into().unwrap();
    for text in ["", ".", "x", "....", &format!("{token}."), &format!(".{token}"), head] {
        check(text, NOT_THREE);
    }
    check(&format!("{token}.{signature}"), NOT_THREE);
    check(&format!("{head}..{body}.{signature}"), NOT_THREE);
    check(&format!(".{body}.{signature}"), BAD_HEADER);
    check(&format!("{head}..{signature}"), BAD_CLAIMS);
    check(&format!(" {token}"), HEADER_TEXT);
    check(&format!("{token} "), SIGNATURE_TEXT);
    check(&format!("{token}\n"), SIGNATURE_TEXT);
    check(&format!("{head} .{body}.{signature}"), HEADER_TEXT);
    check(&format!("{head}.{body}\t.{signature}"), CLAIMS_TEXT);
    check(&format!("{head}.{}\n{}.{signature}", &body[..4], &body[4..]), CLAIMS_TEXT);
    check(&format!("{head}\u{ff0e}{body}.{signature}"), NOT_THREE);
}

/// Each text has one way to be written: a second one of a refused or revoked token is no new token.
#[test]
fn base64_that_is_not_canonical() {
    let token = ED.sign_text(&header(&ED), &plain());
    let (message, signature) = token.rsplit_once('.').unwrap();
    check(&format!("{token}=="), SIGNATURE_TEXT);
    check(&format!("{token}="), SIGNATURE_TEXT);
    check(&format!("{token}A"), JwtError::BadSignature);
    // 64 bytes are 85 characters and 2 bits: the last 4 bits of the 86th must be zero.
    let (rest, last) = signature.split_at(85);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let value = alphabet.find(last).unwrap();
    assert_eq!(value % 16, 0, "{last}");
    for beside in 1..16 {
        let last = &alphabet[value + beside..=value + beside];
        check(&format!("{message}.{rest}{last}"), SIGNATURE_TEXT);
    }
    let both = |from: &str, to: &str| {
        // Until a signature has the character; each has another one.
        let token = (0..1000)
            .map(|nonce| ED.sign_text(&header(&ED), &claims(&json!({"jti": nonce})).to_string()))
            .find(|token| token.rsplit_once('.').unwrap().1.contains(from));
        check(&token.unwrap().replace(from, to), SIGNATURE_TEXT);
    };
    both("-", "+");
    both("_", "/");
}

#[test]
fn members_that_are_there_twice() {
    for twice in [
        r#"{"alg":"none","alg":"EdDSA","kid":"ed"}"#,
        r#"{"alg":"EdDSA","alg":"EdDSA","kid":"ed"}"#,
        r#"{"alg":"EdDSA","kid":"rsa","kid":"ed"}"#,
        r#"{"alg":"EdDSA","kid":"ed","\u0061lg":"none"}"#,
        r#"{"alg":"EdDSA","kid":"ed","x":{"y":1,"y":2}}"#,
    ] {
        check(&ED.sign_text(twice, &plain()), BAD_HEADER);
    }
    let twice = plain().replacen('{', r#"{"org":"other","#, 1);
    check(&ED.sign_text(&header(&ED), &twice), BAD_CLAIMS);
}

#[test]
fn texts_that_are_no_objects() {
    for text in
        ["", "null", "[]", "\"x\"", "1", "{", "{}{}", "{}x", "\u{feff}{}", "{'alg':'EdDSA'}"]
    {
        check(&ED.sign_text(text, &plain()), BAD_HEADER);
        check(&ED.sign_text(&header(&ED), text), BAD_CLAIMS);
    }
    let nested = ED.sign_text(&header(&ED), &plain());
    check(&ED.sign_text(&header(&ED), &nested), BAD_CLAIMS);
    let mut latin = encode([b'{', b'"', 0xe9, b'"', b':', b'1', b'}']);
    latin.push_str(".e30.AA");
    check(&latin, BAD_HEADER);
}

#[test]
fn long_tokens_and_deep_ones() {
    // Header, dots and signature take 27 + 2 + 86 characters; the rest is claims.
    let filled = |length: usize| {
        let short = claims(&json!({"pad": ""})).to_string().len();
        let text = claims(&json!({"pad": "p".repeat(length - short)})).to_string();
        ED.sign_text(&header(&ED), &text)
    };
    let fits = |token: &String| token.len() <= TOKEN_BYTES_MAX;
    let longest = (5_900..6_144).rev().map(filled).find(fits).unwrap();
    assert!(longest.len() > TOKEN_BYTES_MAX - 4, "{}", longest.len());
    accepted(&longest);
    check(&filled(6_144), JwtError::TooLong);
    check(&"a".repeat(TOKEN_BYTES_MAX + 1), JwtError::TooLong);
    check(&".".repeat(TOKEN_BYTES_MAX), NOT_THREE);
    let deep = |depth: usize| {
        let nest = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        plain().replacen('{', &format!(r#"{{"deep":{nest},"#), 1)
    };
    accepted(&ED.sign_text(&header(&ED), &deep(100)));
    check(&ED.sign_text(&header(&ED), &deep(128)), BAD_CLAIMS);
    check(&ED.sign_text(&header(&ED), &deep(2_900)), BAD_CLAIMS);
}

/// ECDSA signatures are valid in DER in other protocols, and some libraries accept zeros
/// (CVE-2022-21449).
#[test]
fn signatures_of_another_form() {
    let message = format!("{}.{}", encode(header(&EC)), encode(plain()));
    let fixed = EC.sign_as(JwtAlgorithm::Es256, message.as_bytes());
    accepted(&format!("{message}.{}", encode(&fixed)));
    let integer = |number: &[u8]| [&[0x02, 33, 0], number].concat();
    let body = [integer(&fixed[..32]), integer(&fixed[32..])].concat();
    let der = [&[0x30, u8::try_from(body.len()).unwrap()], body.as_slice()].concat();
    check(&format!("{message}.{}", encode(der)), JwtError::BadSignature);
    check(&format!("{message}.{}", encode([&fixed[..], &[0]].concat())), JwtError::BadSignature);
    check(&format!("{message}.{}", encode([&[0], &fixed[..]].concat())), JwtError::BadSignature);
    check(&format!("{message}.{}", encode(&fixed[..63])), JwtError::BadSignature);
}
