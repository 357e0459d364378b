//! What is made from the tables of the settings, or speaks of them: the reference
//! page, the example file, the schema. All are checked in or printed, none may be stale.

use serde_json::Value;
use wellhead_app::config::{self, Loaded, Overrides, Settings};

fn root_file(name: &str) -> String {
    let path =
        format!("{}/../../{name}", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn parse(source: &str) -> Loaded {
    config::parse("wellhead.yaml", source, &|_| None, Overrides::default())
        .unwrap_or_else(|report| panic!("{}\n{source}", report.render(false)))
}

#[test]
fn the_reference_page_is_fresh() {
    let page = config::docs::page();
    assert_eq!(root_file("docs/config.md"), page, "run `cargo xtask docs`");
}

#[test]
fn the_example_is_sound_and_has_nothing_to_warn_of() {
    let loaded = parse(&root_file("wellhead.example.yaml"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.settings.chains.len(), 1);
}

/// `# key: value` lines of the example are defaults: with them all taken in, the
/// settings are those of the example as it is, but for what is derived.
#[test]
fn the_example_says_true_defaults() {
    /// Of `traces`, a section that has no default as it has no endpoint.
    const OF_TRACES: &str =
        "endpoint headers auth sample always parent queue timeout service instance";
    /// Derived, at any depth.
    const DERIVED: &str = "\
        traces shared anonymous keys replica file push webhook metrics_open hosts workers tls \
        state upstream_calls connections_per_address disk redis";
    /// Derived where it stands in a section: there `timeouts` and its times are an upstream's own.
    const DERIVED_IN_SECTIONS: &str = "\
        profile study dir calls_per_hour calls_per_day every rate_max rate_time calls_window \
        calls_burst connection streams_max requests_max idle of plan credits_per_second \
        calls_per_second in_flight block_time lag_blocks_max agreement final_after ethereum \
        level history blocks logs range_max ca_file ca_file_adds client_cert_file \
        client_key_file gzip attempt connect timeouts fall ws credits_per_day mode";
    let example = root_file("wellhead.example.yaml");
    let mut uncommented = String::new();
    let mut taken = 0;
    for line in example.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let setting = rest.strip_prefix("# ").filter(|rest| {
            let key = rest.trim_start().split(':').next().unwrap_or_default();
            let word = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let here = if indent.is_empty() { OF_TRACES } else { DERIVED_IN_SECTIONS };
            let derived = [DERIVED, here].iter().any(|all| all.split(' ').any(|it| it == key));
            word && rest.trim_start().len() > key.len() && !derived && !rest.contains("$schema")
        });
        match setting {
            Some(setting) => {
                taken += 1;
                uncommented.push_str(&format!("{indent}{setting}\n"));
            }
            None => uncommented.push_str(&format!("{line}\n")),
        }
    }
    assert!(taken > 35, "only {taken} lines were defaults:\n{uncommented}");
    assert_eq!(parse(&uncommented).settings, parse(&example).settings, "{uncommented}");
}

/// The path of each setting that the reference page lists, but for sections.
fn settings_of_page() -> Vec<String> {
    let page = config::docs::page();
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in page.lines().skip_while(|line| *line != "## Top level") {
        if let Some(heading) = line.strip_prefix("## ") {
            let path = heading.strip_prefix('`').map(|path| path.trim_end_matches('`'));
            section = path.map(|path| format!("{path}.")).unwrap_or_default();
        } else if let Some((key, row)) =
            line.strip_prefix("| `").and_then(|row| row.split_once("` | "))
        {
            let (kind, _) = row.split_once(" | ").expect("a row has four fields");
            if !kind.ends_with("map") && !kind.ends_with("maps") {
                found.push(format!("{section}{key}"));
            }
        }
    }
    found
}

/// Every setting stands in the example, so that it can be read instead of the page.
#[test]
fn the_example_names_every_setting() {
    let example = root_file("wellhead.example.yaml");
    for path in settings_of_page() {
        let key = path.rsplit('.').next().expect("a key");
        // Shown by its sibling: one kind of auth at a time.
        if path.contains(".auth.basic") {
            continue;
        }
        assert!(example.contains(&format!("{key}:")), "`{path}` is not in the example");
    }
}

#[test]
fn the_smallest_config_has_the_documented_defaults() {
    let settings =
        parse("chains: { ethereum: { upstreams: [{ url: \"http://geth:8545\" }] } }").settings;
    let rendered = settings.render();
    for line in [
        "listen: 127.0.0.1:4545",
        "admin: 127.0.0.1:4546",
        "# workers: one per available core",
        "  body_bytes: 5MiB",
        "  total: 30s",
        "  idle: 1m15s",
        "    # id: found by asking `eth_chainId`",
        "      - id: geth",
        "        url: http://geth:8545",
    ] {
        assert!(rendered.lines().any(|found| found == line), "`{line}` is not in\n{rendered}");
    }
}

#[test]
fn check_shows_which_upstreams_are_verified() {
    let own = "      - id: geth\n        url: http://geth:8545\n";
    let other = "      - id: other\n        url: https://eth.example\n";
    let source = |verify| {
        format!("chains:\n  ethereum:\n    verify: {verify}\n    upstreams:\n{own}{other}")
    };
    let notes = |verify| {
        let rendered = parse(&source(verify)).settings.render();
        let notes = rendered.lines().filter(|line| line.starts_with("        # verify: "));
        notes.map(|line| line.trim_start().to_owned()).collect::<Vec<_>>()
    };
    let derived = [
        "# verify: off, as for upstreams of your own",
        "# verify: cheap, as for upstreams of others",
    ];
    assert_eq!(notes("{}"), derived);
    assert!(notes("{ level: full }").is_empty());
}

/// What `wellhead check` prints can be read again and means the same.
#[test]
fn what_is_rendered_reads_back() {
    let example = root_file("wellhead.example.yaml")
        .replace("/v2/${ETH_KEY:-set-me}", "")
        .replace("${TEAM_HEADER:-none}", "\"***\"")
        .replace("${ETH_TOKEN:-set-me}", "\"***\"");
    let odd = "
listen: '[::1]:1'
admin: off
workers: 3
log: { level: 'off' }
cors: { origins: ['*', 'https://a.example'] }
timeouts: { total: 1h, attempt: 1m1s1ms }
chains:
  '10':
    aliases: [off, 'yes', '1e3']
    upstreams:
      - { id: '007', url: 'http://a:1', labels: { a: ' x ', b: '#', c: 'é: \"', d: '$${X}', e: '\\' } }
      - { url: 'http://[::1]:2', auth: { basic: { user: u, password: '***' } }, gzip: false, http: 1.1 }
    routes:
      - { methods: ['*'], upstreams: ['007'] }
";
    let guarded = "
admin: unix:/run/wellhead/admin.sock
admin_access: { socket_mode: 0600, metrics_open: false }
access: { proxies: { trust: [10.0.0.0/8, '::1'], protocol: require } }
tls: { certificate: a.pem, key: a.key, clients: { ca: ca.pem, required: false, crl: [crl.pem] } }
chains: { a: { upstreams: [{ url: 'http://a' }] } }
";
    let callers = "
access:
  anonymous: allow
  from: [path, bearer]
  keys: { file: keys.jsonl, foreign: false, env: test, stale_max: 1h }
  jwt:
    - { issuer: 'https://a', audience: [rpc], jwks: 'https://a/***', tenant: acme, require: { /scope: [rpc] } }
    - { issuer: b, audience: [rpc], jwks: 'http://[::1]:1', tenant_claim: /org/id, quota_claim: /plan, leeway: 0s }
  networks: [{ cidr: 10.0.0.0/8, tenant: acme }, { cidr: '::1', deny: true }]
  certificates: { 'dns:a.example': acme }
  proxies: { trust: [10.0.0.0/8], header: forwarded }
  prices: [{ methods: [eth_getLogs], credits: 75 }]
  cached_percent: 10
tls: { acme: { domains: [a.example, b], contact: ['mailto:a@b'], cache: acme, directory: 'https://ca.example/dir', ca: ca.pem }, clients: { ca: ca.pem } }
tenants:
  acme: { quota: pro, rights: { chains: [a], effects: [read], select: [], trail: false, batch_items_max: 9 } }
  anonymous: { address_quota: free, rights: { methods: { allow: ['eth_*'], deny: [eth_getLogs] } } }
quotas:
  free: { calls_per_second: 1, burst: 5, groups: [{ methods: ['debug_*'], in_flight: 1 }] }
  pro: { credits_per_month: 1M, subscriptions: 9 }
usage:
  replica: a-1
  file: { folder: /var/usage, format: jsonl }
  push: { url: 'http://clickhouse:8123', clickhouse_table: a.b, auth: { bearer: '***' } }
  webhook: { url: 'http://hooks:1' }
chains: { a: { upstreams: [{ url: 'http://a' }] } }
";
    for source in [example.as_str(), odd, guarded, callers] {
        let settings = parse(source).settings;
        let rendered = settings.render();
        assert_eq!(parse(&rendered).settings, settings, "{rendered}");
        assert_eq!(parse(&rendered).settings.render(), rendered);
    }
}

#[test]
fn no_rendering_shows_a_secret() {
    let source = "
chains:
  ethereum:
    upstreams:
      - url: https://eth.example/v2/${KEY}?k=${KEY}
        ws: wss://eth.example/${KEY}
        headers: { x-key: \"${KEY}\" }
        auth: { bearer: \"${KEY}\" }
      - url: https://two.example
        auth: { basic: { user: me, password: \"${KEY}\" } }
";
    let lookup = |name: &str| (name == "KEY").then(|| "GEHEIM".to_owned());
    let settings =
        config::parse("f", source, &lookup, Overrides::default()).expect("sound").settings;
    assert!(!settings.render().contains("GEHEIM"), "{}", settings.render());
    assert!(!format!("{settings:?}").contains("GEHEIM"));
    let upstream = &settings.chains.get("ethereum").expect("a chain").upstreams[0];
    assert_eq!(upstream.url.expose().as_str(), "https://eth.example/v2/GEHEIM?k=GEHEIM");
    assert_eq!(upstream.headers.0[0].1.expose(), "GEHEIM");
}

/// The schema speaks of exactly the keys that the reader takes, which are those of the page.
#[test]
fn the_schema_has_every_setting() {
    fn walk(schema: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(properties) = schema["properties"].as_object() {
            for (key, property) in properties {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let before = found.len();
                walk(property, &path, found);
                if found.len() == before {
                    found.push(path);
                }
            }
        } else if schema["items"].is_object() {
            walk(&schema["items"], &format!("{path}[]"), found);
        } else if schema["additionalProperties"].is_object() {
            walk(&schema["additionalProperties"], &format!("{path}.NAME"), found);
        }
    }
    let mut found = Vec::new();
    walk(&config::schema(), "", &mut found);
    let (mut found, mut paths) = (found, settings_of_page());
    found.sort();
    paths.sort();
    assert_eq!(found, paths);
}

#[test]
fn settings_from_urls_are_those_of_the_same_file() {
    let urls = ["http://geth:8545".to_owned(), "ws://geth:8546".to_owned()];
    let (settings, report) = Settings::from_urls(&urls, None, None).expect("sound");
    assert!(report.is_empty());
    let file = "chains: { default: { upstreams: [{ url: \"http://geth:8545\", ws: \"ws://geth:8546\" }] } }";
    assert_eq!(settings, parse(file).settings);
}
