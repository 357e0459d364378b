//! How heads become callers.

use std::sync::Mutex;

use super::*;
use crate::client_address::ProxyTrustHeader;
use crate::key::ApiKey;
use crate::key_hash::{Pepper, comparisons};
use crate::policy::{AccessSettings, AnonymousRule, CertificateRule, NetworkAction, NetworkRule};
use crate::tenants::{TenantDirectory, TenantSettings};
use crate::token::TokenVerifier;
use crate::unix_seconds::UnixSeconds;
use crate::{CredentialSources, NetworkSet, ProxyTrust, Quota, parse_network};
use rand::SeedableRng;
use rand::rngs::StdRng;
use wellhead_telemetry::Secret;

const FOREIGN: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
const NOW: Duration = Duration::from_secs(1_000);
const FACTS: ClientFacts<'static> = ClientFacts {
    peer: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    path: "",
    query: None,
    certificate: &[],
    now: NOW,
    elapsed: Duration::ZERO,
    keys_are_stale: false,
};

/// Accepts `a.b.good`, and does not know the keys of `a.b.stale`.
#[derive(Debug)]
struct TokensOfTest(Mutex<Vec<Duration>>, Arc<TenantDirectory>);

impl TokenVerifier for TokensOfTest {
    fn verify(&self, token: &str, now: Duration) -> Result<Arc<AccessGrant>, TokenRefusal> {
        self.0.lock().unwrap().push(now);
        match token {
            "a.b.good" => {
                let terms = GrantTerms::new(GrantKind::Token, "alice", "acme");
                Ok(Arc::new(self.1.grant(&terms).unwrap()))
            }
            "a.b.stale" => Err(TokenRefusal::KeysUnknown),
            _ => Err(TokenRefusal::Invalid("wrong signature")),
        }
    }
}

fn rights(json: &str) -> RightsSettings {
    serde_json::from_str(&json.replace('\'', "\"")).unwrap()
}

fn settings(anonymous: AnonymousRule) -> AccessSettings {
    let tenant = |name: &str, json: &str| TenantSettings {
        name: name.to_owned(),
        rights: rights(json),
        ..TenantSettings::default()
    };
    let tenants = [
        tenant("acme", "{'chains':['a','b']}"),
        tenant("inside", "{}"),
        tenant("pages", "{'origins':['https://*.example.org']}"),
        tenant("old", "{'expires_at':1000}"),
    ];
    let mut problems = Vec::new();
    let tenants = TenantDirectory::new(
        &tenants,
        [Quota { name: "pro".into(), ..Quota::default() }],
        Arc::default(),
        &mut problems,
    );
    assert_eq!(problems, [""; 0]);
    let proxies = NetworkSet::new([(parse_network("10.9.0.0/16").unwrap(), ())]).unwrap();
    let network = |text: &str, action| NetworkRule { network: text.to_owned(), action };
    let tenants = Arc::new(tenants);
    AccessSettings {
        tenants: Arc::clone(&tenants),
        sources: CredentialSources { foreign_keys: true, ..CredentialSources::default() },
        pepper: Pepper::parse(&Secret::new("01".repeat(32))).unwrap(),
        tokens: Some(Arc::new(TokensOfTest(Mutex::default(), tenants))),
        networks: vec![
            network("10.0.0.0/8", NetworkAction::Tenant("inside".to_owned())),
            network("10.6.0.0/16", NetworkAction::Deny),
        ],
        certificates: vec![CertificateRule {
            name: "dns:client.example.org".parse().unwrap(),
            tenant: "inside".to_owned(),
        }],
        anonymous,
        trust: ProxyTrust::new(proxies, ProxyTrustHeader::XForwardedFor),
    }
}

/// A table with a key of each sort, and their texts by the words that stand for them.
struct Scene {
    table: AccessTable,
    texts: Vec<(&'static str, String)>,
    records: Vec<KeyRecord>,
}

impl Scene {
    fn new(anonymous: AnonymousRule) -> Self {
        let settings = settings(anonymous);
        let pepper = settings.pepper.clone();
        let mut rng = StdRng::seed_from_u64(2);
        let (mut records, mut texts) = (Vec::new(), Vec::new());
        let mut key = |word: &'static str, tenant: &str, change: &dyn Fn(&mut KeyRecord)| {
            let new = ApiKey::generate("live", &mut rng).unwrap();
            let hash = pepper.hash(new.text.expose());
            let mut record = KeyRecord::new(new.id, hash, tenant);
            change(&mut record);
            texts.push((word, new.text.expose().to_owned()));
            records.push(record);
        };
        key("GOOD", "acme", &|_| {});
        key("NARROW", "acme", &|record| record.rights = rights("{'chains':['b']}"));
        key("HOME", "acme", &|record| record.rights = rights("{'networks':['192.0.2.7']}"));
        key("EXPIRED", "acme", &|record| record.expires_at = Some(UnixSeconds(1_000)));
        key("LASTING", "acme", &|record| record.expires_at = Some(UnixSeconds(1_001)));
        key("REVOKED", "acme", &|record| record.revoked_at = Some(UnixSeconds(999)));
        key("PAGE", "pages", &|_| {});
        key("OLDTENANT", "old", &|_| {});
        let new = pepper.hash("not a key that is used");
        key("ROTATED", "acme", &|record| record.rotate(new, UnixSeconds(1_001)));
        key("RETIRED", "acme", &|record| record.rotate(new, UnixSeconds(1_000)));
        // One that is in no record, and the secret of one with the id of another.
        let unknown = ApiKey::generate("live", &mut rng).unwrap();
        texts.push(("UNKNOWN", unknown.text.expose().to_owned()));
        let (id, hash) = pepper.hash_foreign(FOREIGN).unwrap();
        records.push(KeyRecord::new(id, hash, "acme"));
        texts.push(("FOREIGN", FOREIGN.to_owned()));
        Self::of(settings, texts, records)
    }

    /// All of it has to be sound.
    fn of(
        settings: AccessSettings,
        texts: Vec<(&'static str, String)>,
        records: Vec<KeyRecord>,
    ) -> Self {
        let mut problems = Vec::new();
        let policy = AccessPolicy::new(settings, &mut problems);
        assert_eq!(problems, [""; 0]);
        let built = AccessTable::build(policy.unwrap(), &records);
        assert_eq!(built.key_problems, [""; 0]);
        Self { table: built.table, texts, records }
    }

    /// The key that this word stands for.
    fn key(&self, word: &str) -> &str {
        &self.texts.iter().find(|(known, _)| *known == word).unwrap().1
    }

    /// A head: peer, target, fields, divided by `|`. The peer and the path are no facts yet.
    fn client<R>(
        &self,
        head: &str,
        facts: ClientFacts<'_>,
        read: impl FnOnce(Result<IdentifiedClient<'_>, Denied>) -> R,
    ) -> R {
        let text =
            self.texts.iter().fold(head.to_owned(), |head, (word, key)| head.replace(word, key));
        let mut parts = text.split('|');
        let (peer, path) = (parts.next().unwrap().parse().unwrap(), parts.next().unwrap());
        let fields = parts.map(|line| line.split_once(": ").unwrap());
        let fields = fields.map(|(name, value)| (name, value.as_bytes()));
        read(self.table.identify(&ClientFacts { peer, path, ..facts }, fields))
    }

    /// What a head with these names in its certificate comes from.
    fn caller(&self, head: &str, certificate: &[CertificateName]) -> Caller {
        self.client(head, ClientFacts { certificate, ..FACTS }, |told| {
            told.unwrap_or_else(|it| panic!("{head}: {it:?}")).caller
        })
    }

    /// The caller of a head and its path, or why it is denied.
    fn identify(&self, head: &str, facts: ClientFacts<'_>) -> String {
        self.client(head, facts, |told| match told {
            Ok(IdentifiedClient { caller, target }) => {
                let grant = &caller.grant;
                let kind = format!("{:?}", grant.kind).to_lowercase();
                let path = target.path.map_or(String::new(), |path| format!(" {path}"));
                format!("{} {kind} {}{path}", grant.tenant.name, caller.address)
            }
            Err(denied) => shown(denied),
        })
    }
}

fn names(certificate: &str) -> Vec<CertificateName> {
    certificate.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

fn shown(denied: Denied) -> String {
    match denied {
        Denied::BadKey(reason) => format!("{reason:?}"),
        Denied::CallerDenied(reason) => format!("{reason:?}"),
        Denied::NoKey | Denied::ManyKeys | Denied::KeysUnknown => format!("{denied:?}"),
    }
}

#[track_caller]
fn check(head: &str, want: &str) {
    assert_eq!(Scene::new(AnonymousRule::Deny).identify(head, FACTS), want, "{head}");
}

#[test]
fn a_key_is_its_tenant() {
    check("192.0.2.1|/GOOD", "acme key 192.0.2.1 /");
    check("192.0.2.1|/a/GOOD", "acme key 192.0.2.1 /a");
    check("192.0.2.1|/a|x-api-key: GOOD", "acme key 192.0.2.1");
    check("192.0.2.1|/a|authorization: Bearer GOOD", "acme key 192.0.2.1");
    check("::ffff:192.0.2.1|/GOOD", "acme key 192.0.2.1 /");
    check("192.0.2.1|/a/FOREIGN", "acme key 192.0.2.1 /a");
    check("192.0.2.1|/|x-api-key: FOREIGN", "acme key 192.0.2.1");
}

/// Its check sum does not fit.
const MISTYPED: &str = "192.0.2.1|/wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_000000";

#[test]
fn keys_that_are_not_valid() {
    check("192.0.2.1|/UNKNOWN", "Unknown");
    check("192.0.2.1|/|x-api-key: e47ac10b-58cc-4372-a567-0e02b2c3d479", "Unknown");
    check("192.0.2.1|/wh_live_typo", "Malformed");
    check(MISTYPED, "Malformed");
    check("192.0.2.1|/EXPIRED", "Ended");
    check("192.0.2.1|/LASTING", "acme key 192.0.2.1 /");
    check("192.0.2.1|/REVOKED", "Ended");
    check("192.0.2.1|/GOOD|x-api-key: NARROW", "ManyKeys");
    check("192.0.2.1|/GOOD|x-api-key: GOOD", "acme key 192.0.2.1 /");
}

#[test]
fn a_rotated_key_is_valid_for_a_while() {
    check("192.0.2.1|/ROTATED", "acme key 192.0.2.1 /");
    check("192.0.2.1|/RETIRED", "Unknown");
}

#[test]
fn a_secret_under_another_id_is_unknown() {
    let scene = Scene::new(AnonymousRule::Deny);
    let (good, narrow) = (scene.key("GOOD"), scene.key("NARROW"));
    let text = format!("{}{}", &good[..17], &narrow[17..44]);
    let check = crc32fast::hash(text.as_bytes());
    let digit = |shift: u32| {
        char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[(check >> shift) as usize & 31])
    };
    let text: String = text.chars().chain([25, 20, 15, 10, 5, 0].map(digit)).collect();
    assert!(ApiKey::parse(&text).is_ok(), "{text}");
    assert_eq!(scene.identify(&format!("192.0.2.1|/{text}"), FACTS), "Unknown");
}

#[test]
fn a_bad_key_is_not_made_good_by_anything_else() {
    for head in ["10.0.0.1|/UNKNOWN", "10.0.0.1|/EXPIRED"] {
        let told = Scene::new(AnonymousRule::Allow).identify(head, FACTS);
        assert!(["Unknown", "Ended"].contains(&told.as_str()), "{told}");
    }
}

#[test]
fn rights_narrow_what_a_tenant_may() {
    let scene = Scene::new(AnonymousRule::Deny);
    let chains = |word: &str| {
        let id = ApiKey::parse(scene.key(word)).unwrap().id();
        let grant = scene.table.grant_of(id).unwrap();
        ["a", "b", "c"].map(|name| grant.rights.check_chain(name).is_ok())
    };
    assert_eq!(chains("GOOD"), [true, true, false]);
    assert_eq!(chains("NARROW"), [false, true, false]);
    check("192.0.2.7|/HOME", "acme key 192.0.2.7 /");
    check("192.0.2.1|/HOME", "Right(Network)");
    check("192.0.2.1|/PAGE|origin: https://a.example.org", "pages key 192.0.2.1 /");
    check("192.0.2.1|/PAGE|Origin: https://evil.example", "Right(Origin)");
    check("192.0.2.1|/PAGE", "Right(Origin)");
    check("192.0.2.1|/OLDTENANT", "RightsExpired");
}

#[test]
fn tokens() {
    check("192.0.2.1|/|authorization: Bearer a.b.good", "acme token 192.0.2.1");
    check("192.0.2.1|/|authorization: Bearer a.b.bad", "Token(\"wrong signature\")");
    check("192.0.2.1|/|authorization: Bearer a.b.stale", "KeysUnknown");
    check("192.0.2.1|/GOOD|authorization: Bearer a.b.good", "ManyKeys");
    let mut settings = settings(AnonymousRule::Deny);
    let tokens = Arc::new(TokensOfTest(Mutex::default(), Arc::clone(&settings.tenants)));
    settings.tokens = Some(Arc::clone(&tokens) as Arc<dyn TokenVerifier>);
    let scene = Scene::of(settings, Vec::new(), Vec::new());
    scene.identify("192.0.2.1|/|authorization: Bearer a.b.good", FACTS);
    assert_eq!(*tokens.0.lock().unwrap(), [NOW]);
}

#[test]
fn without_tokens_none_are_accepted() {
    let mut settings = settings(AnonymousRule::Allow);
    settings.tokens = None;
    let scene = Scene::of(settings, Vec::new(), Vec::new());
    let told = scene.identify("192.0.2.1|/|authorization: Bearer a.b.good", FACTS);
    assert_eq!(told, "Token(\"no tokens are accepted\")");
}

#[test]
fn networks_and_anonymous_clients() {
    check("192.0.2.1|/a", "NoKey");
    check("10.0.0.1|/a", "inside network 10.0.0.1");
    check("10.0.0.1|/GOOD", "acme key 10.0.0.1 /");
    check("10.6.0.1|/a", "Network");
    check("10.6.0.1|/GOOD", "Network");
    let scene = Scene::new(AnonymousRule::Allow);
    let told = |head: &str| scene.identify(head, FACTS);
    assert_eq!(told("192.0.2.1|/a"), "anonymous anonymous 192.0.2.1");
    assert_eq!(told("10.0.0.1|/a"), "inside network 10.0.0.1");
    assert_eq!(told("192.0.2.1|/a|authorization: Digest x"), "anonymous anonymous 192.0.2.1");
}

#[test]
fn the_address_is_that_behind_trusted_proxies() {
    check("10.9.0.1|/GOOD|x-forwarded-for: 6.6.6.6, 203.0.113.9", "acme key 203.0.113.9 /");
    check("10.9.0.1|/a|x-forwarded-for: 203.0.113.9", "NoKey");
    check("10.9.0.1|/a|x-forwarded-for: 10.6.0.1", "Network");
    check("10.0.0.1|/a|x-forwarded-for: 10.6.0.1", "inside network 10.0.0.1");
    check("10.9.0.1|/HOME|X-Forwarded-For: 192.0.2.7", "acme key 192.0.2.7 /");
}

#[test]
fn certificates() {
    let scene = Scene::new(AnonymousRule::Deny);
    let check = |head: &str, certificate: &str, want: &str| {
        let facts = ClientFacts { certificate: &names(certificate), ..FACTS };
        let told = scene.identify(head, facts);
        assert_eq!(told, want, "{head} {certificate}");
    };
    check("192.0.2.1|/a", "dns:client.example.org", "inside certificate 192.0.2.1");
    check("192.0.2.1|/a", "uri:spiffe://x dns:CLIENT.example.org", "inside certificate 192.0.2.1");
    check("192.0.2.1|/a", "cn:client.example.org", "NoKey");
    check("192.0.2.1|/GOOD", "dns:client.example.org", "acme key 192.0.2.1 /");
    check("10.6.0.1|/a", "dns:client.example.org", "Network");
}

#[test]
fn while_a_source_of_keys_is_stale_no_key_is_called_wrong() {
    let scene = Scene::new(AnonymousRule::Deny);
    let told = |head| scene.identify(head, ClientFacts { keys_are_stale: true, ..FACTS });
    assert_eq!(told("192.0.2.1|/GOOD"), "acme key 192.0.2.1 /");
    assert_eq!(told("192.0.2.1|/UNKNOWN"), "KeysUnknown");
    assert_eq!(told("192.0.2.1|/wh_live_typo"), "Malformed");
    assert_eq!(told(MISTYPED), "Malformed");
    assert_eq!(told("10.0.0.1|/a"), "inside network 10.0.0.1");
    assert_eq!(told("192.0.2.1|/|authorization: Bearer a.b.good"), "acme token 192.0.2.1");
}

#[test]
fn records_with_a_problem_are_left_out() {
    let policy = AccessPolicy::new(settings(AnonymousRule::Deny), &mut Vec::new()).unwrap();
    let hash = policy.pepper().hash("a");
    let record = |id: &str, tenant: &str| KeyRecord::new(id.parse().unwrap(), hash, tenant);
    let mut bad = record("00000002", "acne");
    (bad.rights, bad.quota) = (rights("{'chains':['']}"), Some("gold".to_owned()));
    let built = AccessTable::build(
        Arc::clone(&policy),
        &[record("00000001", "acme"), bad, record("00000001", "inside"), record("00000003", "old")],
    );
    assert_eq!(
        built.key_problems,
        [
            "key 00000002: tenant: there is no tenant `acne`: there are acme, inside, old, pages",
            "key 00000002: quota: there is no quota `gold`: there are pro",
            "key 00000002: rights.chains: ``: a name is not empty",
            "key 00000001: there are two keys with this id: the first counts",
        ]
    );
    assert_eq!(built.table.keys(), 2);
    let many: Vec<_> = (0..30).map(|_| record("00000002", "acne")).collect();
    let built = AccessTable::build(policy, &many);
    assert_eq!(built.key_problems.len(), 21);
    assert_eq!(built.key_problems[20], "and 10 more keys with a problem");
}

#[test]
fn keys_of_one_kind_share_their_rights() {
    let policy = AccessPolicy::new(settings(AnonymousRule::Deny), &mut Vec::new()).unwrap();
    let hash = policy.pepper().hash("a");
    let record = |id: &str, tenant: &str, json: &str| {
        let mut record = KeyRecord::new(id.parse().unwrap(), hash, tenant);
        record.rights = rights(json);
        record
    };
    let records = [
        record("00000001", "acme", "{'chains':['b']}"),
        record("00000002", "acme", "{'chains':['b']}"),
        record("00000003", "inside", "{'chains':['b']}"),
        record("00000004", "acme", "{'chains':['a']}"),
    ];
    let table = AccessTable::build(policy, &records).table;
    let of = |id: &str| Arc::as_ptr(&table.grant_of(id.parse().unwrap()).unwrap().rights);
    assert_eq!(of("00000001"), of("00000002"));
    assert_ne!(of("00000001"), of("00000003"));
    assert_ne!(of("00000001"), of("00000004"));
}

/// How long it takes to say no tells nothing of which keys exist: by the count of hashes that are compared.
#[test]
fn a_known_key_and_an_unknown_one_take_as_many_comparisons() {
    let scene = Scene::new(AnonymousRule::Deny);
    for (head, want) in [
        ("192.0.2.1|/GOOD", "acme key 192.0.2.1 /"),
        ("192.0.2.1|/a/FOREIGN", "acme key 192.0.2.1 /a"),
        ("192.0.2.1|/ROTATED", "acme key 192.0.2.1 /"),
        ("192.0.2.1|/RETIRED", "Unknown"),
        ("192.0.2.1|/UNKNOWN", "Unknown"),
        ("192.0.2.1|/|x-api-key: e47ac10b-58cc-4372-a567-0e02b2c3d479", "Unknown"),
        ("192.0.2.1|/EXPIRED", "Ended"),
        ("192.0.2.1|/REVOKED", "Ended"),
        ("192.0.2.1|/HOME", "Right(Network)"),
    ] {
        let told = comparisons::count(|| scene.identify(head, FACTS));
        assert_eq!(told, (want.to_owned(), 2), "{head}");
    }
}

/// What becomes of a connection when other settings or keys come: `Ok` for what it goes on with.
struct Lasting {
    before: Scene,
    after: Scene,
}

impl Lasting {
    /// Both from these settings, which `change` makes the later ones of.
    fn new(change: impl Fn(&mut AccessSettings)) -> Self {
        let before = Scene::new(AnonymousRule::Allow);
        let mut later = settings(AnonymousRule::Allow);
        change(&mut later);
        let policy = AccessPolicy::new(later, &mut Vec::new()).unwrap();
        let table = AccessTable::build(policy, &before.records).table;
        let (texts, records) = (before.texts.clone(), before.records.clone());
        Self { before, after: Scene { table, texts, records } }
    }

    /// With other rights of the key that this word stands for.
    fn with_rights(word: &str, json: &str) -> Self {
        let Self { before, mut after } = Self::new(|_| {});
        let id = ApiKey::parse(after.key(word)).unwrap().id();
        let record = after.records.iter_mut().find(|record| record.id == id).unwrap();
        record.rights = rights(json);
        after.table = AccessTable::build(Arc::clone(&after.table.policy), &after.records).table;
        Self { before, after }
    }

    /// A connection that began with this head; `page` is its origin.
    #[track_caller]
    fn check(&self, head: &str, certificate: &str, want: Result<&str, &str>) {
        let names = names(certificate);
        let caller = self.before.caller(head, &names);
        let origin = head.split("origin: ").nth(1).map(str::as_bytes);
        let lasting = LastingHead::new(origin, names);
        let renewed = self.after.table.renewed(&caller, &lasting, NOW);
        let told = renewed.map(|grant| grant.tenant.name.to_string()).map_err(shown);
        assert_eq!(told.as_deref().map_err(String::as_str), want, "{head} {certificate}");
    }
}

#[test]
fn a_connection_goes_on_while_nothing_changes() {
    let same = Lasting::new(|_| {});
    same.check("192.0.2.1|/GOOD", "", Ok("acme"));
    same.check("192.0.2.1|/PAGE|origin: https://a.example.org", "", Ok("pages"));
    same.check("192.0.2.1|/|authorization: Bearer a.b.good", "", Ok("acme"));
    same.check("192.0.2.1|/a", "dns:client.example.org", Ok("inside"));
    same.check("10.0.0.1|/a", "", Ok("inside"));
    same.check("192.0.2.1|/a", "", Ok("anonymous"));
}

#[test]
fn a_connection_ends_with_the_rights_of_its_key() {
    let page = "192.0.2.1|/GOOD|origin: https://a.example.org";
    let narrowed = Lasting::with_rights("GOOD", "{'origins':['https://b.example.org']}");
    narrowed.check(page, "", Err("Right(Origin)"));
    narrowed.check("192.0.2.1|/GOOD", "", Err("Right(Origin)"));
    narrowed.check("192.0.2.1|/NARROW", "", Ok("acme"));
    Lasting::with_rights("GOOD", "{'origins':['https://a.example.org']}").check(
        page,
        "",
        Ok("acme"),
    );
    let narrowed = Lasting::with_rights("GOOD", "{'networks':['198.51.100.0/24']}");
    narrowed.check(page, "", Err("Right(Network)"));
    Lasting::with_rights("GOOD", "{'expires_at':1000}").check(page, "", Err("RightsExpired"));
    Lasting::with_rights("GOOD", "{'chains':['b']}").check(page, "", Ok("acme"));
    let long = format!("192.0.2.1|/GOOD|origin: https://{}.example.org", "a".repeat(300));
    let any = Lasting::with_rights("GOOD", "{'origins':['https://*.example.org']}");
    any.check(&long, "", Err("Right(Origin)"));
}

#[test]
fn a_connection_ends_with_the_settings_that_let_it_in() {
    let denied = Lasting::new(|it| {
        it.networks =
            vec![NetworkRule { network: "192.0.2.0/24".to_owned(), action: NetworkAction::Deny }];
    });
    denied.check("192.0.2.1|/GOOD", "", Err("Network"));
    denied.check("192.0.2.1|/|authorization: Bearer a.b.good", "", Err("Network"));
    denied.check("198.51.100.1|/GOOD", "", Ok("acme"));
    // It would be anonymous, which is another caller with other limits.
    denied.check("10.0.0.1|/a", "", Err("NoKey"));
    Lasting::new(|it| it.anonymous = AnonymousRule::Deny).check("192.0.2.1|/a", "", Err("NoKey"));
    let no_names = Lasting::new(|it| it.certificates.clear());
    no_names.check("192.0.2.1|/a", "dns:client.example.org", Err("NoKey"));
    let moved = Lasting::new(|it| it.certificates[0].tenant = "acme".to_owned());
    moved.check("192.0.2.1|/a", "dns:client.example.org", Err("NoKey"));
}

#[test]
fn a_connection_with_a_token_ends_with_the_rights_of_its_tenant() {
    let tenants = |json: &'static str| {
        Lasting::new(move |it| {
            let names = ["acme", "inside", "pages", "old"];
            let tenant = |name: &&str| TenantSettings {
                name: (*name).to_owned(),
                rights: rights(if *name == "acme" { json } else { "{}" }),
                ..TenantSettings::default()
            };
            let all: Vec<_> = names.iter().map(tenant).collect();
            it.tenants = Arc::new(TenantDirectory::new(&all, [], Arc::default(), &mut Vec::new()));
        })
    };
    let head = "192.0.2.1|/|authorization: Bearer a.b.good";
    tenants("{'chains':['a','b']}").check(head, "", Ok("acme"));
    let changed = "Token(\"its tenant has changed\")";
    tenants("{'chains':['a']}").check(head, "", Err(changed));
    let gone = Lasting::new(|it| {
        it.tenants = Arc::new(TenantDirectory::new(&[], [], Arc::default(), &mut Vec::new()));
        (it.networks, it.certificates) = (Vec::new(), Vec::new());
    });
    assert_eq!(gone.after.table.keys(), 0);
    gone.check(head, "", Err(changed));
    gone.check("192.0.2.1|/GOOD", "", Err("Unknown"));
}
