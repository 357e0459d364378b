//! Finding and reading config files, and the command line around them.

use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use wellhead_app::cli::{self, Cli, Command};
use wellhead_app::config::{self, Admin, Overrides};

const SMALL: &str = "chains: { ethereum: { upstreams: [{ url: \"http://geth:8545\" }] } }\n";

fn lookup(_: &str) -> Option<String> {
    None
}

/// A directory of our own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("config-{name}"));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn problems(path: &std::path::Path) -> String {
    let report = config::load(path, &lookup, Overrides::default()).expect_err("a problem");
    report.render(false).replace(&path.display().to_string(), "FILE")
}

#[test]
fn a_named_file_must_exist() {
    let missing = config::find(Some("/nowhere/wellhead.yaml".as_ref())).expect_err("missing");
    assert_eq!(
        missing.to_string(),
        "there is no config file at `/nowhere/wellhead.yaml`\n\n\
         start with the URLs of your upstreams:\n    \
         wellhead serve https://eth.example/v2/KEY http://geth:8545\n\
         or write a config and name it:\n    \
         wellhead serve -c wellhead.yaml"
    );
}

#[test]
fn nothing_found_says_where_it_looked() {
    let nothing = config::NotFound { named: None }.to_string();
    let first = nothing.lines().next().expect("a line");
    assert_eq!(
        first,
        "there is no config file: neither `./wellhead.yaml` nor `/etc/wellhead/wellhead.yaml`"
    );
}

#[test]
fn a_file_is_loaded_and_the_command_line_wins() {
    let folder = Folder::new("loaded");
    let path = folder.write("wellhead.yaml", format!("listen: 127.0.0.1:1\n{SMALL}").as_bytes());
    assert_eq!(config::find(Some(&path)), Ok(path.clone()));
    let overrides = Overrides {
        listen: "127.0.0.1:2".parse().ok(),
        admin: Some(Admin::Off),
        ..Overrides::default()
    };
    let loaded = config::load(&path, &lookup, overrides).expect("sound");
    assert_eq!(loaded.settings.listen.port(), 2);
    assert_eq!(loaded.settings.admin, Admin::Off);
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new("unreadable");
    assert_eq!(
        problems(&folder.write("latin1.yaml", b"# ok\nlisten: \xe9\n")),
        "error: line 2 of `FILE` is not UTF-8 text\n |\n = help: save the file as UTF-8\n\n1 error in FILE\n"
    );
    assert_eq!(
        problems(&folder.write("large.yaml", &vec![b'#'; (1 << 20) + 1])),
        "error: `FILE` cannot be read: it is longer than 1 MiB\n\n1 error in FILE\n"
    );
    let directory = problems(&folder.0);
    assert!(directory.starts_with("error: `FILE` cannot be read: "), "{directory}");
}

#[test]
fn a_ca_file_is_seen_from_the_config() {
    let folder = Folder::new("ca");
    let upstream = |file: &str| {
        format!("chains:\n  a:\n    upstreams:\n      - url: https://h\n        ca_file: {file}\n")
    };
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a good name");
    folder.write("ca.pem", made.cert.pem().as_bytes());
    let good = folder.write("good.yaml", upstream("ca.pem").as_bytes());
    let loaded = config::load(&good, &lookup, Overrides::default()).expect("sound");
    let upstream_read = &loaded.settings.chains.0[0].1.upstreams[0];
    assert_eq!(upstream_read.ca_file, Some(folder.0.join("ca.pem")));

    let bad = folder.write("bad.yaml", upstream("none.pem").as_bytes());
    let found = problems(&bad).replace(&folder.0.display().to_string(), "DIR");
    assert_eq!(
        found,
        "error: there is no file at `DIR/none.pem`\n \
         --> FILE:5:18\n  \
         |\n\
         5 |         ca_file: none.pem\n  \
         |                  ^^^^^^^^\n  \
         |\n  \
         = help: relative paths are seen from the directory of the config\n\n\
         1 error in FILE\n"
    );

    folder.write("empty.pem", b"no certificate");
    folder.write("broken.pem", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    for (file, why) in [
        ("empty.pem", "cannot be used: trusted certificates: no certificate found"),
        ("broken.pem", "cannot be used: trusted certificates: "),
        (".", "cannot be used: it is not a regular file"),
    ] {
        let found = problems(&folder.write("bad.yaml", upstream(file).as_bytes()));
        assert!(found.contains(why), "{file}: {found}");
    }
}

#[test]
fn a_client_certificate_is_seen_from_the_config() {
    let folder = Folder::new("client");
    let config = |key: &str| {
        let files = format!("client_cert_file: client.pem, client_key_file: {key}");
        format!("chains: {{ a: {{ upstreams: [{{ url: \"https://h\", {files} }}] }} }}\n")
    };
    let names = || vec!["client".to_owned()];
    let made = rcgen::generate_simple_self_signed(names()).expect("a good name");
    let other = rcgen::generate_simple_self_signed(names()).expect("a good name");
    folder.write("client.pem", made.cert.pem().as_bytes());
    folder.write("client.key", made.signing_key.serialize_pem().as_bytes());
    folder.write("other.key", other.signing_key.serialize_pem().as_bytes());
    let good = folder.write("good.yaml", config("client.key").as_bytes());
    let loaded = config::load(&good, &lookup, Overrides::default()).expect("sound");
    let upstream = &loaded.settings.chains.0[0].1.upstreams[0];
    assert_eq!(upstream.client_cert_file, Some(folder.0.join("client.pem")));
    assert_eq!(upstream.client_key_file, Some(folder.0.join("client.key")));
    for (key, why) in [
        ("none.key", "none.key`: there is no such file"),
        ("client.pem", "cannot be used: no private key found"),
        ("other.key", "cannot be used: the private key does not belong to the certificate"),
    ] {
        let found = problems(&folder.write("bad.yaml", config(key).as_bytes()));
        assert!(found.contains(why), "{key}: {found}");
    }
}

/// `serve` would wait for them for ever.
#[cfg(target_os = "linux")]
#[test]
fn files_that_a_config_names_are_no_pipes() {
    use std::os::fd::AsRawFd as _;
    let folder = Folder::new("pipes");
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let chain = |keys: &str| {
        format!("chains:\n  a:\n    upstreams:\n      - {{ url: https://h, {keys} }}\n")
    };
    let tls = format!("tls: {{ certificate: {path}, key: {path} }}\n{}", chain("id: a"));
    for config in [chain(&format!("ca_file: {path}")), chain(&format!("profile: {path}")), tls] {
        let found = problems(&folder.write("a.yaml", config.as_bytes()));
        assert!(found.contains("is not a regular file"), "{config}: {found}");
    }
}

#[test]
fn certificate_and_key_are_looked_at() {
    let folder = Folder::new("tls");
    let config = |key: &str| {
        let chain = "chains: { a: { upstreams: [{ url: \"http://h\" }] } }";
        format!("tls: {{ certificate: tls.crt, key: {key} }}\n{chain}\n")
    };
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a good name");
    folder.write("tls.crt", made.cert.pem().as_bytes());
    folder.write("tls.key", made.signing_key.serialize_pem().as_bytes());
    let good = folder.write("good.yaml", config("tls.key").as_bytes());
    let loaded = config::load(&good, &lookup, Overrides::default()).expect("sound");
    let files = loaded.settings.tls.expect("it was given").files();
    assert_eq!(files.certificate, folder.0.join("tls.crt"));
    assert_eq!(files.key, folder.0.join("tls.key"));

    for (key, expected) in [
        (
            "tls.crt",
            "error: `DIR/tls.crt` holds a certificate and no key: are the files swapped?\n \
             --> FILE:1:35\n  \
             |\n\
             1 | tls: { certificate: tls.crt, key: ******* }\n  \
             |                                   ^^^^^^^\n\n\
             1 error in FILE\n",
        ),
        (
            "none.key",
            "error: `DIR/none.key` does not exist\n \
             --> FILE:1:35\n  \
             |\n\
             1 | tls: { certificate: tls.crt, key: ******** }\n  \
             |                                   ^^^^^^^^\n  \
             |\n  \
             = help: relative paths are seen from the directory of the config\n\n\
             1 error in FILE\n",
        ),
    ] {
        let bad = folder.write("bad.yaml", config(key).as_bytes());
        let found = problems(&bad).replace(&folder.0.display().to_string(), "DIR");
        assert_eq!(found, expected);
    }
}

#[test]
fn files_of_client_certificates_are_looked_at() {
    let folder = Folder::new("clients");
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a good name");
    folder.write("tls.crt", made.cert.pem().as_bytes());
    folder.write("tls.key", made.signing_key.serialize_pem().as_bytes());
    let config = |clients: &str| {
        let chain = "chains: { a: { upstreams: [{ url: \"http://h\" }] } }";
        format!("tls:\n  certificate: tls.crt\n  key: tls.key\n  clients: {clients}\n{chain}\n")
    };
    let good = folder.write("good.yaml", config("{ ca: tls.crt }").as_bytes());
    let loaded = config::load(&good, &lookup, Overrides::default()).expect("sound");
    let files = loaded.settings.tls.expect("it was given").files();
    let clients = files.clients.expect("they were given");
    assert_eq!((clients.ca, clients.required), (folder.0.join("tls.crt"), true));
    for (clients, place, expected) in [
        ("{ ca: none.crt }", "4:18", "`DIR/none.crt` does not exist"),
        ("{ ca: tls.key }", "4:18", "`DIR/tls.key` holds a key and no certificate"),
        ("{ ca: tls.crt, crl: [tls.crt] }", "4:33", "`DIR/tls.crt` holds no revocation list"),
        ("{ ca: none.crt, crl: [none.crl] }", "4:34", "`DIR/none.crl` does not exist"),
    ] {
        let bad = folder.write("bad.yaml", config(clients).as_bytes());
        let found = problems(&bad).replace(&folder.0.display().to_string(), "DIR");
        assert!(found.contains(&format!("error: {expected}")), "{found}");
        assert!(found.contains(&format!(":{place}\n")), "{found}");
    }
}

#[test]
fn files_of_an_acme_server_are_looked_at() {
    let folder = Folder::new("acme");
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a good name");
    folder.write("ca.crt", made.cert.pem().as_bytes());
    let config = |files: &str| {
        let chain = "chains: { a: { upstreams: [{ url: \"http://h\" }] } }";
        format!(
            "tls:\n  acme:\n    domains: [a.example]\n    contact: [ops@a.example]\n    {files}\n{chain}\n"
        )
    };
    let good = folder.write("good.yaml", config("cache: acme\n    ca: ca.crt").as_bytes());
    let loaded = config::load(&good, &lookup, Overrides::default()).expect("sound");
    let order = loaded.settings.tls.and_then(|tls| tls.acme).expect("it was given").order();
    assert_eq!((order.cache, order.ca), (folder.0.join("acme"), Some(folder.0.join("ca.crt"))));
    assert_eq!(order.contact, ["mailto:ops@a.example"]);
    assert_eq!(order.directory, "https://acme-v02.api.letsencrypt.org/directory");
    assert!(!folder.0.join("acme").exists(), "a check makes no directory");
    for (files, place, expected) in [
        ("cache: ca.crt", "5:12", "`DIR/ca.crt` is not a directory"),
        ("cache: acme\n    ca: none.crt", "6:9", "`DIR/none.crt` does not exist"),
        ("cache: acme\n    ca: good.yaml", "6:9", "`DIR/good.yaml` holds no certificate"),
    ] {
        let bad = folder.write("bad.yaml", config(files).as_bytes());
        let found = problems(&bad).replace(&folder.0.display().to_string(), "DIR");
        assert!(found.contains(&format!("error: {expected}")), "{found}");
        assert!(found.contains(&format!(":{place}\n")), "{found}");
    }
}

/// Settings of callers with these words for `access`, beside what all cases have.
fn with_access(access: &str) -> String {
    format!("access: {access}\ntenants: {{ acme: {{}} }}\n{SMALL}")
}

#[test]
fn a_file_of_keys_is_read_and_its_lines_are_told() {
    let folder = Folder::new("keys");
    let record = |id: &str, tenant: &str| {
        format!("{{\"id\":\"{id}\",\"hash\":\"{}\",\"tenant\":\"{tenant}\"}}", "a1".repeat(32))
    };
    let config = folder.write("a.yaml", with_access("{ keys: { file: keys.jsonl } }").as_bytes());
    let found = problems(&config).replace(&folder.0.display().to_string(), "DIR");
    assert!(found.contains("error: there is no file at `DIR/keys.jsonl`"), "{found}");
    assert!(found.contains("`wellhead key create`"), "{found}");
    assert!(found.contains(":1:25\n"), "{found}");

    let good = format!("# keys\n{}\n", record("7c9xk2ma", "acme"));
    folder.write("keys.jsonl", good.as_bytes());
    let loaded = config::load(&config, &lookup, Overrides::default()).expect("sound");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let file = loaded.settings.access.keys.and_then(|keys| keys.file);
    assert_eq!(file, Some(folder.0.join("keys.jsonl")));

    // One key of a tenant that is gone keeps the others from nothing.
    folder.write("keys.jsonl", format!("{good}{}\n", record("7c9xk2mb", "gone")).as_bytes());
    let loaded = config::load(&config, &lookup, Overrides::default()).expect("sound");
    let warned = loaded.warnings.render(false);
    assert!(
        warned.contains("warning: key 7c9xk2mb: tenant: there is no tenant `gone`"),
        "{warned}"
    );

    let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_000000";
    folder.write("keys.jsonl", format!("{good}{{}}\n{{\"id\":\"{key}\"}}\n").as_bytes());
    let found = problems(&config);
    assert!(found.contains("error: line 3: missing field `id`"), "{found}");
    assert!(found.contains("error: line 4: "), "{found}");
    assert!(!found.contains("0123456789abc"), "{found}");
    assert!(found.contains("2 errors"), "{found}");
}

#[test]
fn files_of_issuers_and_usage_are_checked() {
    let folder = Folder::new("issuers");
    folder.write("none.pem", b"words");
    let issuer = |keys: &str| {
        with_access(&format!("{{ jwt: [{{ issuer: a, audience: [me], tenant: acme, {keys} }}] }}"))
    };
    for (config, expected) in [
        (issuer("public_key: gone.pem"), "there is no file at `DIR/gone.pem`"),
        (
            issuer("public_key: none.pem"),
            "`DIR/none.pem` cannot be used: no PEM block `PUBLIC KEY` is in it",
        ),
        (issuer("jwks: \"https://a\", ca_file: gone.pem"), "there is no file at `DIR/gone.pem`"),
        (issuer("jwks: \"https://a\", ca_file: none.pem"), "`DIR/none.pem` cannot be used: "),
        (
            format!("usage: {{ file: {{ folder: none.pem }} }}\n{SMALL}"),
            "`DIR/none.pem` is not a directory",
        ),
    ] {
        let found = problems(&folder.write("a.yaml", config.as_bytes()));
        let found = found.replace(&folder.0.display().to_string(), "DIR");
        assert!(found.contains(&format!("error: {expected}")), "{config}\n{found}");
        assert!(found.contains("1 error in"), "{config}\n{found}");
    }
    let config = format!("usage: {{ file: {{ folder: usage }} }}\n{SMALL}");
    let path = folder.write("a.yaml", config.as_bytes());
    let loaded = config::load(&path, &lookup, Overrides::default()).expect("sound");
    assert_eq!(loaded.settings.usage.file.expect("given").folder, folder.0.join("usage"));
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn arguments_are_read() {
    let parse = |line: &str| Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command);
    match parse("wellhead serve http://a ws://a --listen 0.0.0.0:1 --admin off") {
        Ok(Command::Serve(serve)) => {
            assert_eq!(serve.urls, ["http://a", "ws://a"]);
            assert_eq!(serve.listen, "0.0.0.0:1".parse().ok());
            assert_eq!(serve.admin, Some(Admin::Off));
        }
        other => panic!("{other:?}"),
    }
    match parse("wellhead demo --seconds 5 --plain --seed 7") {
        Ok(Command::Demo(demo)) => {
            assert_eq!(demo.duration(), Some(std::time::Duration::from_secs(5)));
            assert!(demo.plain);
            assert_eq!((demo.rate, demo.seed), (200, 7));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(parse("wellhead check -c x.yaml"), Ok(Command::Check(_))));
    assert!(matches!(parse("wellhead schema"), Ok(Command::Schema)));
    for (line, words) in [
        ("wellhead serve http://a -c x.yaml", "cannot be used with"),
        ("wellhead serve --listen 4545", "write `127.0.0.1:4545`"),
        ("wellhead serve --admin none", "write `off`"),
        ("wellhead demo --rate 0", "0 is not in 1..=100000"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish]
    {
        let mut script = Vec::new();
        cli::completions(shell, &mut script);
        let script = String::from_utf8(script).expect("text");
        for word in ["serve", "demo", "check", "schema", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn keys_and_cheats_may_be_used_on_this_machine_alone() {
    for (listen, url, may) in [
        ("127.0.0.1:4545", "http://127.0.0.1:8545", true),
        ("[::1]:4545", "http://localhost:8545", true),
        ("127.0.0.1:4545", "http://[::1]:8545", true),
        ("0.0.0.0:4545", "http://127.0.0.1:8545", false),
        ("127.0.0.1:4545", "http://anvil:8545", false),
        ("127.0.0.1:4545", "https://localhost.example", false),
    ] {
        let yaml = format!(
            "listen: \"{listen}\"\nchains: {{ dev: {{ upstreams: [{{ url: \"{url}\" }}] }} }}\n"
        );
        let loaded = config::parse("wellhead.yaml", &yaml, &lookup, Overrides::default());
        let settings = loaded.expect("sound").settings;
        let (_, chain) = settings.chains.iter().next().expect("one");
        assert_eq!(settings.may_serve_a_test_chain(chain), may, "{listen} {url}");
    }
}
