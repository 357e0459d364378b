//! Claims of tokens whose signature is valid.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ED, NOW, claims, fixed, issuer_with, now, pointer, verifier, verify_twice};
use crate::jwt::{
    AudienceRule, CLAIM_ITEMS_MAX, ClaimMatcher, ClaimRole, ClaimValue, JwtError, JwtIssuer,
    TenantRule,
};

use JwtError::{ClaimInvalid, ClaimMissing};

fn issuer() -> JwtIssuer {
    issuer_with(fixed(&[&ED]))
}

fn check_with(settings: JwtIssuer, claims_text: &str, at: u64, expected: Result<(), JwtError>) {
    let token = ED.sign_text(r#"{"alg":"EdDSA","kid":"ed"}"#, claims_text);
    let found = verify_twice(&verifier(settings), &token, Duration::from_secs(at));
    assert_eq!(found.map(|_| ()), expected, "{claims_text} at {at}");
}

fn check(more: &Value, expected: Result<(), JwtError>) {
    check_with(issuer(), &claims(more).to_string(), NOW, expected);
}

#[test]
fn expiry() {
    let invalid = Err(ClaimInvalid(ClaimRole::Expiry));
    check(&json!({"exp": NOW + 1}), Ok(()));
    check(&json!({"exp": NOW - 29}), Ok(()));
    check(&json!({"exp": NOW - 30}), Err(JwtError::Expired));
    check(&json!({"exp": 0}), Err(JwtError::Expired));
    check(&json!({"exp": null}), Err(ClaimMissing(ClaimRole::Expiry)));
    check(&json!({"exp": NOW as f64 + 0.5}), Ok(()));
    check(&json!({"exp": NOW as f64 - 29.5}), Err(JwtError::Expired));
    check(&json!({"exp": (NOW + 1).to_string()}), invalid);
    check(&json!({"exp": -1}), invalid);
    check(&json!({"exp": -1.5}), invalid);
    check(&json!({"exp": true}), invalid);
    check(&json!({"exp": [NOW + 1]}), invalid);
    check(&json!({"exp": 253_402_300_799_u64}), Ok(()));
    check(&json!({"exp": 253_402_300_800_u64}), invalid);
    check(&json!({"exp": u64::MAX}), invalid);
    check(&json!({"exp": 1e300}), invalid);
    for (number, expected) in [
        ("1e10", Ok(())),
        ("-0", Err(JwtError::Expired)),
        ("-0.0", Err(JwtError::Expired)),
        ("18446744073709551616", invalid),
        ("null", invalid),
    ] {
        let text = claims(&json!({"exp": 12345})).to_string().replace("12345", number);
        check_with(issuer(), &text, NOW, expected);
    }
    let text = claims(&json!({"exp": 12345})).to_string().replace("12345", "1e999");
    check_with(
        issuer(),
        &text,
        NOW,
        Err(JwtError::Malformed("the token's claims are no JSON object, or name a member twice")),
    );
}

#[test]
fn expiry_that_is_not_required() {
    let relaxed = || JwtIssuer { exp_required: false, ..issuer() };
    let check = |more: &Value, at, expected| {
        check_with(relaxed(), &claims(more).to_string(), at, expected);
    };
    check(&json!({"exp": null}), NOW, Ok(()));
    check(&json!({"exp": null}), u64::MAX - 1, Ok(()));
    check(&json!({"exp": NOW}), NOW + 30, Err(JwtError::Expired));
    check(&json!({"exp": "never"}), NOW, Err(ClaimInvalid(ClaimRole::Expiry)));
}

#[test]
fn begin() {
    check(&json!({"nbf": NOW}), Ok(()));
    check(&json!({"nbf": NOW + 30}), Ok(()));
    check(&json!({"nbf": NOW + 31}), Err(JwtError::NotYetValid));
    check(&json!({"nbf": NOW as f64 + 30.5}), Err(JwtError::NotYetValid));
    check(&json!({"nbf": 0}), Ok(()));
    for invalid in [json!("0"), json!(-1), json!(1e300), json!({})] {
        check(&json!({"nbf": invalid}), Err(ClaimInvalid(ClaimRole::NotBefore)));
    }
}

#[test]
fn the_leeway_is_a_setting() {
    let strict = || JwtIssuer { leeway: Duration::ZERO, ..issuer() };
    let text = claims(&json!({"exp": NOW, "nbf": NOW - 5})).to_string();
    check_with(strict(), &text, NOW - 1, Ok(()));
    check_with(strict(), &text, NOW, Err(JwtError::Expired));
    check_with(strict(), &text, NOW - 5, Ok(()));
    check_with(strict(), &text, NOW - 6, Err(JwtError::NotYetValid));
}

#[test]
fn audience() {
    let wrong = Err(JwtError::WrongAudience);
    let invalid = Err(ClaimInvalid(ClaimRole::Audience));
    check(&json!({"aud": "rpc"}), Ok(()));
    check(&json!({"aud": ["rpc"]}), Ok(()));
    check(&json!({"aud": ["other", "rpc"]}), Ok(()));
    check(&json!({"aud": "other"}), wrong);
    check(&json!({"aud": "RPC"}), wrong);
    check(&json!({"aud": "rpc other"}), wrong);
    check(&json!({"aud": ["other"]}), wrong);
    check(&json!({"aud": []}), wrong);
    check(&json!({"aud": null}), Err(ClaimMissing(ClaimRole::Audience)));
    check(&json!({"aud": ["rpc", 1]}), invalid);
    check(&json!({"aud": {"rpc": true}}), invalid);
    check(&json!({"aud": 1}), invalid);
    let any = || JwtIssuer { audience: AudienceRule::Any, ..issuer() };
    check_with(any(), &claims(&json!({"aud": null})).to_string(), NOW, Ok(()));
    check_with(any(), &claims(&json!({"aud": 1})).to_string(), NOW, Ok(()));
    let of = |list: &[&str]| JwtIssuer {
        audience: AudienceRule::OneOf(list.iter().map(|&audience| audience.into()).collect()),
        ..issuer()
    };
    check_with(of(&[]), &claims(&json!({})).to_string(), NOW, wrong);
    check_with(of(&["a", "b"]), &claims(&json!({"aud": ["c", "b"]})).to_string(), NOW, Ok(()));
}

/// All claims, and of each any value.
#[test]
fn required_claims() {
    let text = |text: &str| ClaimValue::Text(text.to_owned());
    let matcher = |claim: &str, any_of: Vec<ClaimValue>, words| ClaimMatcher {
        pointer: pointer(claim),
        any_of,
        words,
    };
    let settings = || JwtIssuer {
        required: vec![
            matcher("/realm/roles", vec![text("rpc-user"), text("rpc-admin")], false),
            matcher("/scope", vec![text("rpc")], true),
        ],
        ..issuer()
    };
    let check = |more: &Value, expected| {
        check_with(settings(), &claims(more).to_string(), NOW, expected);
    };
    check(&json!({"realm": {"roles": ["x", "rpc-admin"]}, "scope": "openid rpc"}), Ok(()));
    check(&json!({"realm": {"roles": "rpc-user"}, "scope": "rpc"}), Ok(()));
    let refused = Err(JwtError::ClaimRefused);
    check(&json!({"realm": {"roles": ["x"]}, "scope": "openid rpc"}), refused);
    check(&json!({"realm": {"roles": ["rpc-user"]}, "scope": "openid"}), refused);
    check(&json!({"realm": {"roles": ["rpc-user"]}}), refused);
    check(&json!({"roles": ["rpc-user"], "scope": "rpc"}), refused);
    check(&json!({}), refused);
}

#[test]
fn subject_and_tenant() {
    check(&json!({"sub": 42, "org": 7}), Ok(()));
    check(&json!({"sub": "Ærøskøbing & co. <a@b.example>"}), Ok(()));
    check(&json!({"sub": "s".repeat(256)}), Ok(()));
    check(&json!({"sub": null}), Err(ClaimMissing(ClaimRole::Subject)));
    check(&json!({"org": null}), Err(ClaimMissing(ClaimRole::Tenant)));
    let unusable = [
        json!(""),
        json!("s".repeat(257)),
        json!("a\nb"),
        json!("a\u{1b}[2J"),
        json!("a\u{202e}b"),
        json!("a\u{0}"),
        json!(1.5),
        json!(true),
        json!(["alice"]),
        json!({"id": 1}),
    ];
    for value in &unusable {
        check(&json!({"sub": value}), Err(ClaimInvalid(ClaimRole::Subject)));
        check(&json!({"org": value}), Err(ClaimInvalid(ClaimRole::Tenant)));
    }
    let fixed_tenant = || {
        let mut settings = issuer();
        settings.claims.tenant = TenantRule::Fixed("inside".into());
        settings
    };
    let token = ED.token(&claims(&json!({"org": "other"})));
    let verified = verifier(fixed_tenant()).verify(&token, now()).unwrap();
    assert_eq!(&*verified.tenant, "inside");
}

/// What a token with these claims says: quota, methods and chains, `-` for what it does not say.
fn said(more: &Value) -> Result<String, JwtError> {
    let mut settings = issuer();
    settings.claims.quota = Some(pointer("/plan"));
    settings.claims.methods = Some(pointer("/rpc/methods"));
    settings.claims.chains = Some(pointer("/rpc/chains"));
    let token = ED.token(&claims(more));
    let verified = verify_twice(&verifier(settings), &token, now())?;
    let list = |list: &Option<Vec<std::sync::Arc<str>>>| {
        list.as_ref().map_or("-".to_owned(), |items| format!("[{}]", items.join("|")))
    };
    let (methods, chains) = (list(&verified.rights.methods), list(&verified.rights.chains));
    Ok(format!("{} {methods} {chains}", verified.quota.as_deref().unwrap_or("-")))
}

#[test]
fn rights() {
    let check = |more: &Value, expected: &str| assert_eq!(said(more).as_deref(), Ok(expected));
    check(&json!({}), "- - -");
    check(&json!({"plan": "pro"}), "pro - -");
    check(&json!({"rpc": {"methods": ["eth_*", "net_version"]}}), "- [eth_*|net_version] -");
    check(&json!({"rpc": {"methods": "eth_call  eth_getLogs "}}), "- [eth_call|eth_getLogs] -");
    check(&json!({"rpc": {"methods": []}}), "- [] -");
    check(&json!({"rpc": {"methods": ""}}), "- [] -");
    check(&json!({"rpc": {"chains": [1, "base"]}}), "- - [1|base]");
    check(&json!({"rpc": {"chains": 8453}}), "- - [8453]");
    let most = vec!["m"; CLAIM_ITEMS_MAX];
    check(&json!({"rpc": {"methods": most}}), &format!("- [{}] -", most.join("|")));
}

/// A claim that cannot be understood must not read as one that is not there.
#[test]
fn rights_that_cannot_be_used_refuse_the_token() {
    let check = |more: &Value, role| assert_eq!(said(more), Err(ClaimInvalid(role)), "{more}");
    check(&json!({"plan": 1.5}), ClaimRole::Quota);
    check(&json!({"plan": ["pro"]}), ClaimRole::Quota);
    for value in
        [json!(null), json!({}), json!(true), json!([["eth_call"]]), json!(["a\nb"]), json!([""])]
    {
        check(&json!({"rpc": {"methods": value}}), ClaimRole::Methods);
        check(&json!({"rpc": {"chains": value}}), ClaimRole::Chains);
    }
    let many = vec!["m"; CLAIM_ITEMS_MAX + 1];
    check(&json!({"rpc": {"methods": many}}), ClaimRole::Methods);
    check(&json!({"rpc": {"methods": many.join(" ")}}), ClaimRole::Methods);
}

/// An error is for the sender and for logs, and a refused token may be valid elsewhere.
#[test]
fn errors_show_nothing_of_the_token() {
    for more in [json!({"sub": "s3cr3t\n"}), json!({"aud": "s3cr3t"}), json!({"iss": "s3cr3t"})] {
        let token = ED.token(&claims(&more));
        let error = verifier(issuer()).verify(&token, now()).unwrap_err();
        let shown = format!("{error} {error:?} {}", error.reason());
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }
}
