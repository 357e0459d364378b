//! `wellhead doctor` before good and bad upstreams: each fault has its line, and no line has a secret.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use wellhead_e2e::{Upstream, Wellhead, binary, free_port, wall_clock};
use wellhead_sim::provider::{ProviderTls, RefusalForm};
use wellhead_sim::{FakeProvider, FakeUpstream, ProviderDials, SimNode, World, WorldConfig};

const BLOCK_TIME: Duration = Duration::from_secs(12);
const SECRET: &str = "7f3c9a1e5b2d48f60c8e";

/// A chain whose newest block, this number, is of now.
fn world(chain_id: u64, newest: u64, behind: u64) -> Arc<World> {
    let now = wall_clock().as_secs();
    World::new(WorldConfig {
        chain_id,
        genesis_time_secs: now - newest * BLOCK_TIME.as_secs(),
        block_time: BLOCK_TIME,
        history_blocks: newest - behind,
        ..WorldConfig::default()
    })
}

fn provider(world: Arc<World>) -> FakeProvider {
    FakeProvider::start("provider", world, ProviderDials::default()).unwrap()
}

fn url(provider: &FakeProvider) -> String {
    format!("{}/v2/{SECRET}", provider.url())
}

/// A config with these upstreams of chain 1337; both addresses are free.
struct Config {
    folder: TempDir,
}

impl Config {
    fn new(more: &str, upstreams: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listed: String = upstreams
            .iter()
            .map(|(fields, url)| format!("      - {{ {fields}, url: \"{url}\" }}\n"))
            .collect();
        let text = format!(
            "listen: 127.0.0.1:{}\nadmin: 127.0.0.1:{}\n{more}\nchains:\n  main:\n    id: 1337\n    upstreams:\n{listed}",
            free_port(),
            free_port()
        );
        std::fs::write(folder.path().join("wellhead.yaml"), text).unwrap();
        Self { folder }
    }
}

/// What it printed, on both.
struct Told {
    code: Option<i32>,
    text: String,
}

impl Told {
    /// The one line of a check.
    #[track_caller]
    fn has(&self, status: &str, subject: &str, check: &str, part: &str) {
        let is_it = |line: &&str| {
            let mut words = line.split("  ").map(str::trim).filter(|word| !word.is_empty());
            words.next() == Some(status)
                && words.next() == Some(subject)
                && words.next() == Some(check)
                && line.contains(part)
        };
        let found = self.text.lines().filter(is_it).count();
        assert_eq!(found, 1, "no line `{status} {subject} {check} {part}` in:\n{}", self.text);
    }
}

async fn run(command: &mut Command) -> Told {
    let output = command.output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.contains(SECRET), "a secret in:\n{text}");
    Told { code: output.status.code(), text }
}

async fn doctor(config: &Config) -> Told {
    let file = config.folder.path().join("wellhead.yaml");
    run(Command::new(binary()).arg("doctor").arg("-c").arg(file)).await
}

#[tokio::test]
async fn all_is_well() {
    let own = world(1337, 16, 0);
    let one = FakeUpstream::start(SimNode::new("one", Arc::clone(&own))).unwrap();
    let two = provider(own);
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("spent");
    let more = format!("workers: 1\nstate: {}", state.display());
    let config = Config::new(
        &more,
        &[
            (&format!("id: one, ws: \"{}/{SECRET}\"", one.ws_url()), one.url()),
            ("id: two", url(&two)),
        ],
    );
    let told = doctor(&config).await;
    assert_eq!(told.code, Some(0), "{}", told.text);
    assert!(!told.text.contains("FAIL  "), "{}", told.text);
    told.has("ok", "config", "config", "1 chain, 2 upstreams");
    told.has("ok", "listen", "port", "is free");
    told.has("ok", "admin", "running", "no wellhead runs");
    told.has("ok", "state", "folder", "can be written to");
    for name in ["main/one", "main/two"] {
        told.has("ok", name, "connect", "127.0.0.1");
        told.has("ok", name, "chain id", "1337");
        told.has("ok", name, "syncing", "no");
        told.has("ok", name, "head", "block 16");
    }
    told.has("ok", "main/one", "websocket", "takes subscriptions");
    told.has("ok", "main", "chain", "2 of 2 upstreams can serve; block 16");
    assert!(!state.exists(), "nothing is written");
}

#[tokio::test]
async fn each_bad_upstream_has_its_line() {
    let own = world(1337, 16, 0);
    let good = provider(Arc::clone(&own));
    let (wrong, late) = (provider(world(5, 16, 0)), provider(world(1337, 16, 6)));
    let refusing = provider(own);
    refusing.turn(|dials| dials.barred = Some(RefusalForm::no_key()));
    let dead = format!("http://127.0.0.1:{}/{SECRET}", free_port());
    // Its port has no WebSocket.
    let deaf = format!("id: deaf, ws: \"{}/{SECRET}\"", good.url().replace("http", "ws"));
    let config = Config::new(
        "",
        &[
            ("id: good", url(&good)),
            (&deaf, url(&good)),
            ("id: wrong", url(&wrong)),
            ("id: late", url(&late)),
            ("id: refusing", url(&refusing)),
            ("id: dead", dead),
            ("id: unknown", format!("https://no-such-host.invalid/{SECRET}")),
        ],
    );
    let told = doctor(&config).await;
    assert_eq!(told.code, Some(1), "{}", told.text);
    told.has("ok", "main/good", "head", "block 16");
    told.has("FAIL", "main/deaf", "websocket", "405");
    told.has("FAIL", "main/wrong", "chain id", "it serves chain 5, and the config says 1337 -> ");
    told.has("warn", "main/late", "head", "6 blocks and 72 s behind");
    told.has("FAIL", "main/refusing", "chain id", "-> see the key in `url`");
    told.has("FAIL", "main/dead", "connect", "refused");
    told.has("FAIL", "main/unknown", "dns", "-> correct the host");
    told.has("ok", "main", "chain", "3 of 7 upstreams can serve");
}

#[tokio::test]
async fn a_bad_certificate_is_told_with_its_fault() {
    let secure = |change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = ProviderTls::new(made.der().clone(), der).unwrap();
        let dials = ProviderDials::default();
        (FakeProvider::start_tls("tls", world(1337, 16, 0), dials, tls).unwrap(), made.pem())
    };
    let (valid, pem) = secure(|_| ());
    let (expired, past) = secure(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let config = Config::new(
        "",
        &[
            (&format!("id: private, ca_file: {}", file("ca", &pem)), url(&valid)),
            (&format!("id: expired, ca_file: {}", file("past", &past)), url(&expired)),
            ("id: untrusted", url(&valid)),
        ],
    );
    let told = doctor(&config).await;
    assert_eq!(told.code, Some(1), "{}", told.text);
    told.has("ok", "main/private", "tls", "(`ca_file`), valid for");
    told.has("ok", "main/private", "chain id", "1337");
    told.has("FAIL", "main/expired", "tls", "expired");
    told.has("FAIL", "main/untrusted", "tls", "is by no public authority -> for a private");
}

#[tokio::test]
async fn a_low_limit_of_open_files_fails() {
    let good = provider(world(1337, 16, 0));
    let config = Config::new("", &[("id: good", url(&good))]);
    let file = config.folder.path().join("wellhead.yaml");
    let script = "ulimit -n \"$1\" && exec \"$2\" doctor -c \"$3\"";
    for (limit, status) in [("64", "FAIL"), ("1024", "warn")] {
        let mut limited = Command::new("sh");
        limited.args(["-c", script, "sh", limit]).arg(binary()).arg(&file);
        let told = run(&mut limited).await;
        told.has(status, "machine", "open files", &format!("the limit is {limit}"));
        assert_eq!(told.code, Some(i32::from(status == "FAIL")), "{}", told.text);
    }
}

#[tokio::test]
async fn a_running_wellhead_is_known() {
    let good = provider(world(1337, 16, 0));
    let wellhead = Wellhead::start(1337, &[Upstream::new("good", &good.url())]).await;
    let at = |port: u16| format!("127.0.0.1:{port}");
    let ask = |listen: u16, admin: u16| {
        let mut command = Command::new(binary());
        command.args(["doctor", &url(&good), "--listen", &at(listen), "--admin", &at(admin)]);
        command
    };
    let told = run(&mut ask(wellhead.port, wellhead.admin_port)).await;
    assert_eq!(told.code, Some(0), "{}", told.text);
    told.has("ok", "listen", "port", "is taken, and a wellhead runs here");
    told.has("ok", "admin", "running", "is live and ready");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let told = run(&mut ask(other.local_addr().unwrap().port(), free_port())).await;
    assert_eq!(told.code, Some(1), "{}", told.text);
    told.has("FAIL", "listen", "port", "is taken, and no wellhead answers at `admin`");
}

#[tokio::test]
async fn machines_get_json_and_a_bad_config_its_lines() {
    let good = provider(world(1337, 16, 0));
    let told = run(Command::new(binary()).args(["doctor", &url(&good), "--json"])).await;
    let json: Value = serde_json::from_str(&told.text).unwrap();
    assert!(json["checks"].as_array().unwrap().iter().any(|it| it["check"] == "chain id"));
    let config = Config::new("lisen: 1", &[("id: good", url(&good))]);
    let told = doctor(&config).await;
    assert_eq!(told.code, Some(1), "{}", told.text);
    told.has("FAIL", "config", "config", "line 3: ");
}
