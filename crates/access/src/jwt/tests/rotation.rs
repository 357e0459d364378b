//! Keys that change while tokens are used, keys that are too old, and what is remembered.

use std::time::Duration;

use serde_json::json;

use super::{
    DAY, ED, ISSUER, NOW, RSA, Signer, claims, fixed, issuer_with, jwks_of, now, verify_twice,
};
use crate::jwt::{
    BadIssuers, ISSUERS_MAX, IssuerIndex, JwtError, JwtIssuer, JwtVerifier, KeySource,
    KeysInstalled,
};

const MAIN: IssuerIndex = IssuerIndex(0);
const OTHER: IssuerIndex = IssuerIndex(1);

fn fetched() -> KeySource {
    KeySource::Fetched { stale_max: DAY }
}

/// Two issuers with fetched keys.
fn two_issuers() -> JwtVerifier {
    let other = JwtIssuer { issuer: "other".into(), ..issuer_with(fetched()) };
    JwtVerifier::new(vec![issuer_with(fetched()), other]).unwrap()
}

/// A verifier for one issuer, and the checks of a test that follows it over time.
struct Rotation {
    verifier: JwtVerifier,
}

impl Rotation {
    fn new() -> Self {
        Self { verifier: two_issuers() }
    }

    fn install(&self, keys: &[&Signer], expected: KeysInstalled) {
        assert_eq!(self.verifier.install_keys(MAIN, &jwks_of(keys)), expected);
    }

    /// Whether a token of this key that does not expire in the test is accepted.
    fn check(&self, signer: &Signer, at: Duration, expected: Result<(), JwtError>) {
        let token = signer.token(&claims(&json!({"exp": NOW + 10_000_000})));
        let found = verify_twice(&self.verifier, &token, at);
        assert_eq!(found.map(|_| ()), expected, "{}", signer.kid);
    }
}

#[test]
fn the_old_key_is_valid_while_it_is_in_the_set() {
    let (old, new) = (Signer::ed("old", 1), Signer::ed("new", 2));
    let unknown = Err(JwtError::UnknownKid(MAIN));
    let test = Rotation::new();
    test.check(&old, now(), Err(JwtError::KeysUnknown(MAIN)));
    test.install(&[&old], KeysInstalled::Changed);
    test.check(&old, now(), Ok(()));
    test.check(&new, now(), unknown);
    test.install(&[&old, &new], KeysInstalled::Changed);
    test.check(&old, now(), Ok(()));
    test.check(&new, now(), Ok(()));
    test.install(&[&new], KeysInstalled::Changed);
    test.check(&old, now(), unknown);
    test.check(&new, now(), Ok(()));
}

/// Another key under the old name: what was verified with the old one is not believed.
#[test]
fn a_name_that_is_used_again() {
    let (old, new) = (Signer::ed("k", 1), Signer::ed("k", 2));
    let test = Rotation::new();
    test.install(&[&old], KeysInstalled::Changed);
    test.check(&old, now(), Ok(()));
    test.install(&[&new], KeysInstalled::Changed);
    test.check(&old, now(), Err(JwtError::BadSignature));
    test.check(&new, now(), Ok(()));
}

/// When that is, the loop that fetches knows. Where the wall clock is says nothing of it.
#[test]
fn retired_keys_are_not_used_until_they_come_again() {
    let test = Rotation::new();
    let unknown = Err(JwtError::KeysUnknown(MAIN));
    test.install(&[&ED], KeysInstalled::Changed);
    for at in [now(), now() + 30 * DAY] {
        test.check(&ED, at, Ok(()));
    }
    assert_eq!(test.verifier.usable_keys(MAIN), 1);
    test.verifier.retire_keys(MAIN);
    for at in [now() - DAY, now(), now() + DAY] {
        test.check(&ED, at, unknown);
        test.check(&RSA, at, unknown);
    }
    assert_eq!(test.verifier.usable_keys(MAIN), 0);
    test.install(&[&ED], KeysInstalled::Unchanged);
    test.check(&ED, now(), Ok(()));
    // Of keys that are not fetched none are too old.
    let fixed = JwtVerifier::new(vec![issuer_with(fixed(&[&ED]))]).unwrap();
    [MAIN, OTHER].into_iter().for_each(|issuer| fixed.retire_keys(issuer));
    assert_eq!((fixed.usable_keys(MAIN), fixed.usable_keys(OTHER)), (1, 0));
}

#[test]
fn unchanged_keys_leave_what_is_remembered() {
    let test = Rotation::new();
    test.install(&[&ED, &RSA], KeysInstalled::Changed);
    test.check(&ED, now(), Ok(()));
    assert_eq!(test.verifier.remembered(), 1);
    test.install(&[&RSA, &ED], KeysInstalled::Unchanged);
    assert_eq!(test.verifier.remembered(), 1);
    test.install(&[&RSA], KeysInstalled::Changed);
    assert_eq!(test.verifier.remembered(), 0);
}

#[test]
fn new_keys_of_one_issuer_leave_the_others_tokens() {
    let verifier = two_issuers();
    for issuer in [MAIN, OTHER] {
        verifier.install_keys(issuer, &jwks_of(&[&ED]));
    }
    for issuer in [ISSUER, "other"] {
        verifier.verify(&ED.token(&claims(&json!({"iss": issuer}))), now()).unwrap();
    }
    assert_eq!(verifier.remembered(), 2);
    verifier.install_keys(MAIN, &jwks_of(&[&RSA]));
    assert_eq!(verifier.remembered(), 1);
}

#[test]
fn only_what_is_fetched_is_installed() {
    let verifier = JwtVerifier::new(vec![issuer_with(fixed(&[&ED]))]).unwrap();
    for issuer in [MAIN, OTHER] {
        let ignored = verifier.install_keys(issuer, &jwks_of(&[&RSA]));
        assert_eq!(ignored, KeysInstalled::Ignored);
    }
    assert!(verifier.verify(&ED.token(&claims(&json!({}))), Duration::from_secs(NOW)).is_ok());
    assert_eq!((verifier.usable_keys(MAIN), verifier.usable_keys(OTHER)), (1, 0));
}

#[test]
fn what_is_remembered_expires_with_the_token() {
    let verifier = JwtVerifier::new(vec![issuer_with(fixed(&[&ED]))]).unwrap();
    let token = ED.token(&claims(&json!({"exp": NOW + 10, "nbf": NOW})));
    let at = |seconds: u64| verifier.verify(&token, Duration::from_secs(seconds)).map(|_| ());
    assert_eq!((at(NOW), verifier.remembered()), (Ok(()), 1));
    assert_eq!((at(NOW + 39), verifier.remembered()), (Ok(()), 1));
    // The wall clock stepped back.
    assert_eq!(at(NOW - 31), Err(JwtError::NotYetValid));
    assert_eq!((at(NOW + 40), verifier.remembered()), (Err(JwtError::Expired), 0));
}

#[test]
fn refused_tokens_are_not_remembered() {
    let test = Rotation::new();
    test.install(&[&ED], KeysInstalled::Changed);
    test.check(&RSA, now(), Err(JwtError::UnknownKid(MAIN)));
    test.check(&Signer::ed("ed", 9), now(), Err(JwtError::BadSignature));
    let _ = test.verifier.verify("x", now());
    assert_eq!(test.verifier.remembered(), 0);
}

/// At the bound tokens are forgotten, and verified anew.
#[test]
fn the_memory_is_bounded() {
    let verifier = JwtVerifier::with_memory(vec![issuer_with(fixed(&[&ED]))], 100).unwrap();
    let tokens: Vec<String> =
        (0..1_000).map(|id| ED.token(&claims(&json!({"sub": id.to_string()})))).collect();
    for round in 0..2 {
        for (id, token) in tokens.iter().enumerate() {
            let verified = verifier.verify(token, now()).unwrap();
            assert_eq!(*verified.subject, *id.to_string(), "round {round}");
            assert!(verifier.remembered() <= 100, "{}", verifier.remembered());
        }
    }
    assert!(verifier.remembered() > 50, "{}", verifier.remembered());
}

#[test]
fn issuers_that_cannot_be_used_together() {
    let named = |name: &str| JwtIssuer { issuer: name.into(), ..issuer_with(fetched()) };
    let refused = JwtVerifier::new(vec![named("a"), named("b"), named("a")]).unwrap_err();
    assert_eq!(refused, BadIssuers::Twice("a".into()));
    let many = |count: usize| (0..count).map(|n| named(&n.to_string())).collect::<Vec<_>>();
    assert_eq!(JwtVerifier::new(many(ISSUERS_MAX)).unwrap().issuers().len(), ISSUERS_MAX);
    assert_eq!(JwtVerifier::new(many(ISSUERS_MAX + 1)).unwrap_err(), BadIssuers::TooMany);
}

/// Threads verify while keys change: a token of a key that is in every set is accepted at any time,
/// and one of a key that is gone never after the change.
#[test]
fn rotation_under_load() {
    let stays = Signer::ed("stays", 1);
    let goes = Signer::ed("goes", 2);
    let comes = Signer::ed("comes", 3);
    let verifier = two_issuers();
    verifier.install_keys(MAIN, &jwks_of(&[&stays, &goes]));
    let token = |signer: &Signer| signer.token(&claims(&json!({})));
    let (staying, going) = (token(&stays), token(&goes));
    let (with, without) = (jwks_of(&[&stays, &goes]), jwks_of(&[&stays, &comes]));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    assert!(verifier.verify(&staying, now()).is_ok());
                    match verifier.verify(&going, now()) {
                        Ok(_) | Err(JwtError::UnknownKid(MAIN)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..200 {
            verifier.install_keys(MAIN, &without);
            assert_eq!(verifier.verify(&going, now()), Err(JwtError::UnknownKid(MAIN)));
            verifier.install_keys(MAIN, &with);
            assert!(verifier.verify(&going, now()).is_ok());
        }
    });
}
