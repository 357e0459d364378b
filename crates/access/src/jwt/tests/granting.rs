//! Tokens as grants to tenants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{DAY, ED, ISSUER, NOW, RSA, claims, fixed, issuer_with, jwks_of, now, pointer};
use crate::jwt::{IssuerIndex, JwtIssuer, JwtVerifier, KeySource, TokenGrants};
use crate::{
    AccessGrant, GrantKind, Quota, RightDenied, TenantDirectory, TenantSettings, TokenRefusal,
    TokenVerifier as _,
};

fn issuer(name: &str, keys: KeySource) -> JwtIssuer {
    let mut issuer = JwtIssuer { issuer: name.into(), ..issuer_with(keys) };
    issuer.claims.quota = Some(pointer("/plan"));
    issuer.claims.methods = Some(pointer("/methods"));
    issuer.claims.chains = Some(pointer("/chains"));
    issuer
}

/// Tenants `acme` and `other`, the quota `pro`, and the chains `ethereum` (1) and `base`.
fn tenants() -> Arc<TenantDirectory> {
    tenants_with("{}")
}

/// These, with rights of `acme`.
fn tenants_with(rights: &str) -> Arc<TenantDirectory> {
    let tenant = |name: &str, rights: &str| TenantSettings {
        name: name.to_owned(),
        rights: serde_json::from_str(rights).unwrap(),
        ..TenantSettings::default()
    };
    let mut problems = Vec::new();
    let tenants = TenantDirectory::new(
        &[tenant("acme", rights), tenant("other", "{}")],
        [Quota { name: "pro".into(), ..Quota::default() }],
        Arc::default(),
        &mut problems,
    );
    assert_eq!(problems, Vec::<String>::new());
    Arc::new(tenants)
}

fn grants_of(issuers: Vec<JwtIssuer>) -> TokenGrants {
    let chains = BTreeMap::from([("1".into(), "ethereum".into())]);
    TokenGrants::new(
        Arc::new(JwtVerifier::new(issuers).unwrap()),
        tenants(),
        chains,
        Box::new(|_| {}),
    )
}

fn two_issuers() -> TokenGrants {
    grants_of(vec![issuer(ISSUER, fixed(&[&ED])), issuer("second", fixed(&[&ED]))])
}

/// The grant of a token with these claims, twice: the second is the first, remembered.
fn grant(grants: &TokenGrants, more: &Value) -> Result<Arc<AccessGrant>, TokenRefusal> {
    let token = ED.token(&claims(more));
    let first = grants.verify(&token, now());
    let second = grants.verify(&token, now());
    match (&first, &second) {
        (Ok(first), Ok(second)) => assert!(Arc::ptr_eq(first, second), "{more}"),
        (first, second) => assert_eq!(first.as_ref().err(), second.as_ref().err(), "{more}"),
    }
    first
}

fn check_refused(more: &Value, text: &'static str) {
    let refusal = grant(&two_issuers(), more).err();
    assert_eq!(refusal, Some(TokenRefusal::Invalid(text)), "{more}");
}

#[test]
fn a_token_is_a_grant_to_its_tenant() {
    let grants = two_issuers();
    let granted = grant(&grants, &json!({})).unwrap();
    assert_eq!(
        (granted.kind, &*granted.id, &*granted.tenant.name),
        (GrantKind::Token, "alice", "acme")
    );
    assert_eq!(granted.quota, None);
    let pro = grant(&grants, &json!({"plan": "pro", "org": "other"})).unwrap();
    assert_eq!((pro.quota.as_deref(), &*pro.tenant.name), (Some("pro"), "other"));
}

#[test]
fn a_token_narrows_chains_and_methods() {
    let grants = two_issuers();
    let chains = grant(&grants, &json!({"chains": [1, "base"]})).unwrap();
    for (name, expected) in [
        ("ethereum", Ok(())),
        ("base", Ok(())),
        ("1", Err(RightDenied::Chain)),
        ("optimism", Err(RightDenied::Chain)),
    ] {
        assert_eq!(chains.rights.check_chain(name), expected, "{name}");
    }
    let methods = grant(&grants, &json!({"methods": "eth_call net_*"})).unwrap();
    let table = wellhead_eth::MethodTable::standard();
    for (name, is_allowed) in [("eth_call", true), ("net_version", true), ("eth_getLogs", false)] {
        let found = methods.rights.check_method(table.row(name), name);
        assert_eq!(found.is_ok(), is_allowed, "{name}");
    }
    assert_eq!(chains.rights.check_method(table.row("eth_getLogs"), "eth_getLogs"), Ok(()));
}

/// A connection may outlive the head that it began with.
#[test]
fn the_rights_end_with_the_token() {
    let granted = grant(&two_issuers(), &json!({"exp": NOW + 10})).unwrap();
    let address = "192.0.2.1".parse().unwrap();
    let at = |seconds| granted.rights.check_head(address, None, Duration::from_secs(seconds));
    assert_eq!(at(NOW + 39), Ok(()));
    assert_eq!(at(NOW + 40), Err(RightDenied::Expired));
}

#[test]
fn one_number_for_one_subject_of_one_issuer_and_tenant() {
    let grants = two_issuers();
    let number = |more: Value| grant(&grants, &more).unwrap().number;
    let alice = number(json!({}));
    assert_eq!(number(json!({"jti": "another token"})), alice);
    assert_ne!(number(json!({"iss": "second"})), alice);
    assert_ne!(number(json!({"org": "other"})), alice);
    assert_ne!(number(json!({"sub": "bob"})), alice);
}

#[test]
fn what_the_settings_do_not_have() {
    check_refused(&json!({"org": "nobody"}), "the token's tenant is not known");
    let terms = "the token's quota or rights are not known";
    check_refused(&json!({"plan": "free"}), terms);
    check_refused(&json!({"methods": ["eth_[call"]}), terms);
    check_refused(&json!({"methods": []}), terms);
    check_refused(&json!({"chains": []}), terms);
    check_refused(&json!({"exp": 1}), "the token has expired");
    check_refused(&json!({"iss": "third"}), "the token's issuer is not known");
}

#[test]
fn unknown_keys_are_told() {
    let told: Arc<Mutex<Vec<IssuerIndex>>> = Arc::default();
    let fetched = KeySource::Fetched { stale_max: DAY };
    let verifier =
        JwtVerifier::new(vec![issuer("fixed", fixed(&[&ED])), issuer(ISSUER, fetched)]).unwrap();
    let tell = Arc::clone(&told);
    let hook = Box::new(move |issuer| tell.lock().unwrap().push(issuer));
    let grants = TokenGrants::new(Arc::new(verifier), tenants(), BTreeMap::new(), hook);
    let check = |more: &Value, expected: Option<TokenRefusal>, tellings: usize| {
        assert_eq!(grants.verify(&ED.token(&claims(more)), now()).err(), expected);
        let told = told.lock().unwrap();
        assert_eq!(*told, vec![IssuerIndex(1); tellings], "{more}");
    };
    check(&json!({}), Some(TokenRefusal::KeysUnknown), 1);
    grants.verifier().install_keys(IssuerIndex(1), &jwks_of(&[&RSA]));
    let unknown = "the token's key (`kid`) is not one of its issuer's";
    check(&json!({}), Some(TokenRefusal::Invalid(unknown)), 2);
    grants.verifier().install_keys(IssuerIndex(1), &jwks_of(&[&RSA, &ED]));
    check(&json!({}), None, 2);
    check(&json!({"exp": 1}), Some(TokenRefusal::Invalid("the token has expired")), 2);
}

/// New keys of an issuer take the grants of its tokens with them.
#[test]
fn grants_end_with_the_keys() {
    let grants = grants_of(vec![issuer(ISSUER, KeySource::Fetched { stale_max: DAY })]);
    let main = IssuerIndex(0);
    grants.verifier().install_keys(main, &jwks_of(&[&ED]));
    let token = ED.token(&claims(&json!({})));
    assert!(grants.verify(&token, now()).is_ok());
    grants.verifier().install_keys(main, &jwks_of(&[&RSA]));
    assert!(matches!(grants.verify(&token, now()), Err(TokenRefusal::Invalid(_))));
}

/// A reload keeps the verifier, which remembers tokens that it granted more to.
#[test]
fn remembered_tokens_have_the_rights_of_new_settings() {
    let before = two_issuers();
    let token = ED.token(&claims(&json!({})));
    let may_log = |grants: &TokenGrants| {
        let row = wellhead_eth::MethodTable::standard().row("eth_getLogs");
        let granted = grants.verify(&token, now()).unwrap();
        granted.rights.check_method(row, "eth_getLogs").is_ok()
    };
    assert!(may_log(&before));
    let verifier = Arc::clone(before.verifier());
    let narrowed = tenants_with(r#"{"methods":{"deny":["eth_getLogs"]}}"#);
    let after = TokenGrants::new(verifier, narrowed, BTreeMap::new(), Box::new(|_| {}));
    assert!(!may_log(&after));
    assert!(!may_log(&after), "remembered anew");
    assert_eq!(after.verifier().remembered(), 1);
}

#[test]
fn a_grant_is_made_once() {
    let made = AtomicUsize::new(0);
    let verifier = JwtVerifier::new(vec![issuer(ISSUER, fixed(&[&ED]))]).unwrap();
    let token = ED.token(&claims(&json!({})));
    for (round, edition) in (1..).zip([verifier.next_edition(), verifier.next_edition()]) {
        for _ in 0..10 {
            let granted = verifier.verify_as_grant(&token, now(), edition, |token, _| {
                made.fetch_add(1, Ordering::Relaxed);
                let tenant = Arc::new(crate::Tenant::new(&*token.tenant));
                Ok(Arc::new(AccessGrant::new(GrantKind::Token, &*token.subject, tenant)))
            });
            assert!(granted.is_ok());
        }
        assert_eq!(made.load(Ordering::Relaxed), round, "once by the terms of each");
    }
}
