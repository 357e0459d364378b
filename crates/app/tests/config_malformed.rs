//! A table of configs that cannot be used, each with the exact words for it.
//!
//! The cases are in `config/malformed.txt`: a line `>>>> what the case shows`, the
//! YAML, a line `<<<<`, and what `wellhead check` prints. After a deliberate change
//! of a message, run with `WELLHEAD_BLESS=1` and read the difference.

use wellhead_app::config::{self, Overrides};

const TABLE: &str = include_str!("config/malformed.txt");

/// The environment of every case.
fn lookup(name: &str) -> Option<String> {
    match name {
        "ETH_KEY" => Some("0123456789abcdefSECRET".to_owned()),
        "PORT" => Some("not-a-port-SECRET".to_owned()),
        "EMPTY" => Some(String::new()),
        "BREAK" => Some("SECRET0123456789\n".to_owned()),
        _ => None,
    }
}

struct Case<'a> {
    name: &'a str,
    yaml: &'a str,
    expected: &'a str,
}

fn cases() -> Vec<Case<'static>> {
    TABLE
        .split(">>>> ")
        .skip(1)
        .map(|case| {
            let (name, rest) = case.split_once('\n').expect("a name and a line break");
            let (yaml, expected) = rest.split_once("<<<<\n").expect("a line `<<<<`");
            Case { name, yaml, expected: expected.trim_end_matches('\n') }
        })
        .collect()
}

/// `→` is a tab and `␍` a carriage return, which editors would eat.
fn rendered(yaml: &str) -> String {
    let yaml = yaml.replace('→', "\t").replace('␍', "\r");
    match config::parse("wellhead.yaml", &yaml, &lookup, Overrides::default()) {
        Err(report) => report.render(false),
        Ok(loaded) => format!("accepted\n\n{}", loaded.warnings.render(false)),
    }
}

#[test]
fn every_malformed_config_has_its_words() {
    let mut blessed = TABLE[..TABLE.find(">>>> ").expect("a case")].to_owned();
    let mut wrong = Vec::new();
    let cases = cases();
    for case in &cases {
        let found = rendered(case.yaml);
        let found = found.trim_end_matches('\n');
        blessed.push_str(&format!(">>>> {}\n{}<<<<\n{found}\n\n", case.name, case.yaml));
        if found != case.expected {
            wrong.push(format!("{}:\n{found}\n-- expected:\n{}", case.name, case.expected));
        }
    }
    if std::env::var_os("WELLHEAD_BLESS").is_some() {
        let path = format!(
            "{}/tests/config/malformed.txt",
            std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
        );
        std::fs::write(path, blessed).expect("the table can be written");
        return;
    }
    assert!(wrong.is_empty(), "{} of {}\n\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
    assert!(cases.len() >= 60, "only {} cases", cases.len());
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Values that the cases call secret never show, whatever else is wrong.
#[test]
fn no_report_shows_a_secret() {
    for case in cases() {
        let yaml = case.yaml.replace('→', "\t");
        let found = rendered(&yaml);
        assert!(!found.contains("SECRET"), "{}:\n{found}", case.name);
        assert!(!found.contains("0123456789abcdef"), "{}:\n{found}", case.name);
    }
}

/// Each case is one or more whole problems: an error, or a warning that says so.
#[test]
fn every_problem_has_a_line() {
    for case in cases() {
        let Err(report) = config::parse("f", case.yaml, &lookup, Overrides::default()) else {
            continue;
        };
        assert!(report.errors() > 0, "{}", case.name);
        for problem in report.problems() {
            let place = report.line_and_column(problem);
            // Only a text that is too large to show has no place.
            assert!(place.is_some(), "{}: {problem:?}", case.name);
        }
    }
}

/// Settings with which other proxies let clients in, lock them out or limit nothing, and say nothing of it. The name
/// says what becomes of it there.
const FOOTGUNS: [(&str, &str); 18] = [
    (
        "a token chooses its algorithm: a public key is taken for a secret",
        "access: { jwt: [{ issuer: a, audience: [me], tenant: acme, jwks: 'https://a/jwks', secret: '0123456789abcdef0123456789abcdef' }] }\ntenants: { acme: {} }",
    ),
    (
        "the last of two kinds of a credential counts",
        "access: { jwt: [{ issuer: a, audience: [me], tenant: acme, jwks: 'https://a/jwks', public_key: a.pem }] }\ntenants: { acme: {} }",
    ),
    (
        "tokens for any service are accepted",
        "access: { jwt: [{ issuer: a, tenant: acme, jwks: 'https://a/jwks' }] }\ntenants: { acme: {} }",
    ),
    (
        "a secret is guessed",
        "access: { jwt: [{ issuer: a, audience: [me], tenant: acme, secret: short }] }\ntenants: { acme: {} }",
    ),
    (
        "keys of an issuer are replaced on their way",
        "access: { jwt: [{ issuer: a, audience: [me], tenant: acme, jwks: 'http://a/jwks' }] }\ntenants: { acme: {} }",
    ),
    (
        "an empty list denies all in silence",
        "access: { networks: [{ cidr: 10.0.0.0/8, tenant: acme }] }\ntenants: { acme: { rights: { origins: [] } } }",
    ),
    ("each client says its own address", "access: { proxies: { trust: [0.0.0.0/0] } }"),
    ("the header of proxies is ignored", "access: { proxies: { header: forwarded } }"),
    ("a setting does nothing: `trustedProxies`", "access: { trustedProxies: [10.0.0.0/8] }"),
    (
        "a setting does nothing: `waitTime`",
        "quotas: { pro: { calls_per_second: 10, waitTime: 1s } }\ntenants: { acme: { quota: pro } }\naccess: { networks: [{ cidr: 10.0.0.0/8, tenant: acme }] }",
    ),
    ("memory is used in the place of a store", "access: { keys: { redis: true } }"),
    (
        "a misspelled quota is noticed by the first client",
        "quotas: { pro: { calls_per_second: 10 } }\ntenants: { acme: { quota: por, key_quota: pro } }\naccess: { networks: [{ cidr: 10.0.0.0/8, tenant: acme }] }",
    ),
    (
        "a limit of nothing refuses each call",
        "quotas: { pro: { calls_per_second: 0 } }\ntenants: { acme: { quota: pro } }\naccess: { networks: [{ cidr: 10.0.0.0/8, tenant: acme }] }",
    ),
    (
        "hashes of keys that people chose are guessed",
        "access: { keys: { file: keys.jsonl, foreign: true } }",
    ),
    (
        "a key stands in the config",
        "access: { keys: { list: [{ id: 7c9xk2ma, hash: wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey, tenant: acme }] } }\ntenants: { acme: {} }",
    ),
    ("the admin listener is for everybody", "admin: 0.0.0.0:4546"),
    ("no client can call", "access: { anonymous: deny }"),
    (
        "the tenant of a key is misspelled, and has no limits",
        "access: { networks: [{ cidr: 10.0.0.0/8, tenant: acne }] }\ntenants: { acme: {} }",
    ),
];

#[test]
fn footguns_of_access_are_refused_with_what_to_write() {
    let chain = "chains: { ethereum: { upstreams: [{ url: \"http://geth:8545\" }] } }\n";
    assert!(rendered(chain).starts_with("accepted"), "{}", rendered(chain));
    for (name, yaml) in FOOTGUNS {
        let found = rendered(&format!("{yaml}\n{chain}"));
        let count = |words: &str| found.matches(words).count();
        let (errors, told) = (count("error: "), count("= help: ") + count(" must be between "));
        assert!(errors >= 1 && told >= errors, "{name}:\n{found}");
        assert!(!found.contains("0123456789abcdefghjkmnpqrs"), "{name}:\n{found}");
    }
}
