//! Settings change while wellhead runs: no call fails, what does not change stays as it is, and what cannot be used
//! changes nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use wellhead_e2e::attack::{self, upstream::CHAIN_ID};
use wellhead_e2e::{
    Certificate, KeyFile, Process, Rpc, Signal, WsClient, binary, free_port, https, until,
};

const BOUND: Duration = Duration::from_secs(60);
/// An answer takes 20 ms, so these make about 2,000 calls a second where the machine has the time.
const CLIENTS: usize = 64;

/// A wellhead before two nodes, and the file that it reads.
struct Site {
    folder: TempDir,
    nodes: [attack::Upstream; 2],
    port: u16,
    admin: Rpc,
    admin_port: u16,
    process: Process,
}

impl Site {
    async fn start(more: &str, upstreams: impl Fn(&[attack::Upstream; 2]) -> String) -> Self {
        Self::start_in(TempDir::new().unwrap(), more, upstreams).await
    }

    /// As [`Self::start`], with the files that are in the folder.
    async fn start_in(
        folder: TempDir,
        more: &str,
        upstreams: impl Fn(&[attack::Upstream; 2]) -> String,
    ) -> Self {
        let nodes = [(); 2].map(|()| attack::Upstream::start());
        let (port, admin_port) = (free_port(), free_port());
        let file = folder.path().join("wellhead.yaml");
        let state = folder.path().join("state").display().to_string();
        let more = &format!("state: {state}\n{more}");
        fs::write(&file, config(port, admin_port, more, &upstreams(&nodes))).unwrap();
        let words = [binary().display().to_string(), "serve".into(), "-c".into()];
        let command = [&words[..], &[file.display().to_string()]].concat();
        let process = Process::start(&command, folder.path().join("log"));
        let site =
            Self { folder, nodes, port, admin: Rpc::new(admin_port, "/"), admin_port, process };
        let ready = until(BOUND, || async {
            let reply = site.admin.get("/readyz").await.ok()?;
            (reply.status == 200).then_some(())
        });
        assert!(ready.await.is_some(), "{}", site.process.log());
        site
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("wellhead.yaml")
    }

    fn write(&self, more: &str, upstreams: &str) {
        fs::write(self.file(), self.config(more, upstreams)).unwrap();
    }

    fn config(&self, more: &str, upstreams: &str) -> String {
        let state = self.folder.path().join("state").display().to_string();
        config(self.port, self.admin_port, &format!("state: {state}\n{more}"), upstreams)
    }

    /// The node's line among the upstreams.
    fn upstream(&self, id: &str, node: usize, more: &str) -> String {
        upstream(id, &self.nodes[node], more)
    }

    async fn reload(&self, query: &str) -> (u16, Value) {
        let path = format!("/reload{query}");
        let headers = [("x-wellhead-admin", "1")];
        let reply = self.admin.send("POST", &path, &headers, Bytes::new()).await.unwrap();
        (reply.status, reply.json().unwrap())
    }

    async fn status(&self) -> Value {
        self.admin.get("/status").await.unwrap().json().unwrap()
    }

    async fn upstream_status(&self, id: &str) -> Value {
        let status = self.status().await;
        let upstreams = status["chains"][0]["upstreams"].as_array().unwrap().clone();
        upstreams.into_iter().find(|it| it["id"] == id).unwrap_or(Value::Null)
    }

    /// Waits until the settings in use are of this generation.
    async fn generation(&self, wanted: u64) {
        let applied = until(BOUND, || async {
            let status = self.status().await;
            (status["config"]["generation"] == wanted).then_some(())
        });
        assert!(applied.await.is_some(), "{}", self.process.log());
    }
}

fn config(port: u16, admin: u16, more: &str, upstreams: &str) -> String {
    format!(
        "listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nworkers: 2\nlog: {{ requests: false }}\n{more}\n\
         chains:\n  main:\n    id: {CHAIN_ID}\n    upstreams:\n{upstreams}"
    )
}

fn upstream(id: &str, node: &attack::Upstream, more: &str) -> String {
    format!("      - {{ id: {id}, url: \"http://{}\"{more} }}\n", node.address)
}

fn changes(told: &Value, list: &str) -> Vec<String> {
    let list = told[list].as_array().unwrap().iter();
    list.map(|change| change["text"].as_str().unwrap().to_owned()).collect()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

const CAPPED: &str = ", budget: { credits_per_day: 1000000000 }";
/// Calls between two reloads, by all clients.
const CALLS_BETWEEN: u64 = 200;
/// The key and the certificate are replaced after this many reloads.
const RELOADS_A_ROTATION: u64 = 20;

/// Clients of a site that has keys and certificates.
struct Clients<'a> {
    site: &'a Site,
    tls: Arc<ClientConfig>,
    /// The key that they call with.
    key: Mutex<String>,
    calls: AtomicU64,
    stop: AtomicBool,
}

impl Clients<'_> {
    async fn call_on(&self, client: usize) {
        let (mut number, mut path, mut rpc) = (0_u64, String::new(), None);
        while !self.stop.load(Relaxed) {
            let now = format!("/main/{}", self.key.lock().unwrap());
            if now != path {
                rpc = Some(Rpc::over_tls(Arc::clone(&self.tls), self.site.port, &now));
                path = now;
            }
            number += 1;
            let address = format!("0x{client:020x}{number:020x}");
            let told = rpc.as_ref().unwrap().result("eth_getBalance", json!([address, "latest"]));
            told.await.unwrap_or_else(|error| panic!("{error}\n{}", self.site.process.log()));
            self.calls.fetch_add(1, Relaxed);
        }
    }

    async fn some_calls(&self, least: u64) {
        let before = self.calls.load(Relaxed);
        let called =
            until(BOUND, || async { (self.calls.load(Relaxed) >= before + least).then_some(()) });
        assert!(called.await.is_some(), "{}", self.site.process.log());
    }

    /// Waits until a call with this key has this status, on a connection of its own.
    async fn status_with(&self, key: &str, wanted: u16) {
        let rpc = Rpc::over_tls(Arc::clone(&self.tls), self.site.port, &format!("/main/{key}"));
        let call = r#"{"id":1,"method":"eth_chainId"}"#;
        let told = until(BOUND, || async {
            let reply = rpc.post(call).await.unwrap();
            (reply.status == wanted).then_some(())
        });
        assert!(told.await.is_some(), "no {wanted}: {}", self.site.process.log());
    }

    /// The clients take another key; the one before is invalid afterwards.
    async fn rotate_key(&self, keys: &mut KeyFile) {
        let new = keys.add("acme", |_| {});
        self.status_with(&new, 200).await;
        let old = std::mem::replace(&mut *self.key.lock().unwrap(), new);
        // Each client has ended the call that it made with the old one.
        self.some_calls(20 * CLIENTS as u64).await;
        keys.revoke(&old);
        self.status_with(&old, 401).await;
    }

    /// The next certificate takes the place of the one in use, and new connections get it with the next reload.
    async fn rotate_certificate(&self, certificate: &Certificate) {
        let [from, key, _] = certificate.files();
        fs::copy(from, self.site.folder.path().join("certificate")).unwrap();
        fs::copy(key, self.site.folder.path().join("key")).unwrap();
        assert_eq!(self.site.reload("").await.0, 200);
        let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        // It has no session of before, which would be resumed with the certificate of then.
        let reply = https(certificate.client(), "localhost", self.site.port, request).await;
        assert_eq!(reply.unwrap().certificate, *certificate.der());
    }
}

/// The settings of one round, and the lines of its upstreams.
fn round(site: &Site, access: &str, round: u64) -> (String, String) {
    let b = match round % 5 {
        0 => String::new(),
        1 => site.upstream("b", 1, ""),
        2 => site.upstream("b", 1, ", tier: fallback, labels: { archive: \"true\" }"),
        3 => site.upstream("b", 1, &format!(", budget: {{ in_flight: {} }}", 10 + round % 7)),
        _ => site.upstream("c", 1, ", weight: 3"),
    };
    let more = match round % 3 {
        0 => "",
        1 => "timeouts: { total: 20s }",
        _ => "health: { failures: 5 }",
    };
    let a = match round % 4 {
        3 => format!("{CAPPED}, labels: {{ round: \"{round}\" }}"),
        _ => CAPPED.to_owned(),
    };
    (format!("{access}\n{more}"), site.upstream("a", 0, &a) + &b)
}

/// Tiers, labels, budgets, time limits and a second upstream change again and again under load over TLS, and so do
/// certificates and keys. `WELLHEAD_RELOADS=1000` for a thousand reloads.
#[tokio::test(flavor = "multi_thread")]
async fn reloads_fail_no_call_and_leave_the_rest_alone() {
    let reloads: u64 =
        std::env::var("WELLHEAD_RELOADS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let rotations = (reloads / RELOADS_A_ROTATION).min(8);
    let certificates: Vec<_> = (0..=rotations).map(|_| Certificate::new()).collect();
    let mut keys = KeyFile::new();
    let key = Mutex::new(keys.add("acme", |_| {}));
    let access = |folder: &Path| {
        format!(
            "reload: signal\ntls: {{ certificate: {0}/certificate, key: {0}/key }}\n\
             access: {{ keys: {{ file: \"{1}\" }} }}\ntenants: {{ acme: {{}} }}",
            folder.display(),
            keys.path().display()
        )
    };
    let folder = TempDir::new().unwrap();
    let [certificate, private, _] = certificates[0].files();
    fs::copy(certificate, folder.path().join("certificate")).unwrap();
    fs::copy(private, folder.path().join("key")).unwrap();
    let access = access(folder.path());
    let site = Site::start_in(folder, &access, |nodes| upstream("a", &nodes[0], CAPPED)).await;
    let (tls, stop) = (Certificate::client_of(&certificates), AtomicBool::new(false));
    let clients = Clients { site: &site, tls, key, calls: AtomicU64::new(0), stop };
    let reloading = async {
        clients.some_calls(CALLS_BETWEEN).await;
        let (accepted, mut spent) = (site.nodes[0].shared.connections_accepted(), 0);
        let (began_with, before) = (resident_kib(site.process.pid()), clients.calls.load(Relaxed));
        let began = Instant::now();
        let mut rotation = certificates.iter().skip(1);
        for number in 1..=reloads {
            let (more, upstreams) = round(&site, &access, number);
            site.write(&more, &upstreams);
            let (status, told) = site.reload("").await;
            assert_eq!((status, &told["ok"]), (200, &json!(true)), "{told}");
            assert!(!changes(&told, "applied").is_empty(), "{number}: {told}");
            clients.some_calls(CALLS_BETWEEN).await;
            let a = site.upstream_status("a").await;
            assert_eq!(a["condition"], "ready", "{number}: {a}");
            let now = a["credits_today"].as_u64().unwrap_or_else(|| panic!("{a}"));
            assert!(now >= spent && now > 0, "{number}: {spent} then {now}");
            spent = now;
            if number % RELOADS_A_ROTATION == 0
                && let Some(next) = rotation.next()
            {
                clients.rotate_certificate(next).await;
                clients.rotate_key(&mut keys).await;
            }
        }
        let (took, calls) = (began.elapsed(), clients.calls.load(Relaxed) - before);
        let opened = site.nodes[0].shared.connections_accepted() - accepted;
        let ends_with = resident_kib(site.process.pid());
        clients.stop.store(true, Relaxed);
        println!(
            "{reloads} reloads with {rotations} rotations of certificate and key: {calls} calls in {:.0} s, none failed; {opened} \
             more connections to the upstream that stayed, {began_with} then {ends_with} KiB",
            took.as_secs_f64()
        );
        assert_eq!(rotation.count(), 0, "each certificate had its turn");
        // The pools of two workers may grow with the calls in flight; a reload that lost them would open connections each time.
        assert!(opened < reloads.max(20) / 2, "{opened}");
        assert!(ends_with < began_with * 2 + 20_480, "{began_with} then {ends_with} KiB");
        let told = site.status().await;
        assert_eq!(told["config"]["generation"], reloads + 1, "{told}");
    };
    tokio::join!(join_all((0..CLIENTS).map(|client| clients.call_on(client))), reloading);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_changes_nothing() {
    let site = Site::start("reload: signal", |nodes| upstream("a", &nodes[0], "")).await;
    site.write("reload: signal\nnonsense: 1", &site.upstream("b", 1, ""));
    let (status, told) = site.reload("").await;
    assert_eq!(status, 422, "{told}");
    assert!(told["error"].as_str().unwrap().contains("nonsense"), "{told}");
    assert_eq!(site.upstream_status("a").await["condition"], "ready");
    let told = site.status().await;
    assert!(told["config"]["last_error"].as_str().unwrap().contains("nonsense"), "{told}");
    let metrics = site.admin.get("/metrics").await.unwrap().text();
    for line in [
        "wellhead_config_last_reload_successful 0",
        "wellhead_config_reloads_total{result=\"failed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    // The command says the same, with the exit code of a config that cannot be used.
    let admin = format!("127.0.0.1:{}", site.admin_port);
    let command = |dry: bool| {
        let mut command = Command::new(binary());
        command.args(["reload", "--admin", &admin]).args(dry.then_some("--dry-run"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let (code, text) = command(false);
    assert!(code == Some(1) && text.contains("nonsense"), "{code:?} {text}");
    // A plan changes nothing either, and names what needs a restart.
    let upstreams = site.upstream("a", 0, ", tier: fallback") + &site.upstream("b", 1, "");
    site.write("reload: signal\nlimits: { in_flight: 100 }", &upstreams);
    let (code, text) = command(true);
    assert_eq!(code, Some(0), "{text}");
    let expected = [
        "+ chains.main.upstreams.b",
        "~ chains.main.upstreams.a.tier: primary -> fallback",
        "restart needed: ~ limits.in_flight: 16384 -> 100",
        "not applied: this was a dry run",
    ];
    assert_eq!(text.trim_end().lines().collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(site.upstream_status("b").await, Value::Null);
    let (code, text) = command(false);
    assert!(code == Some(0) && text.contains("applied: generation 2"), "{text}");
    assert_eq!(site.upstream_status("a").await["tier"], "fallback");
    let told = site.status().await;
    assert_eq!(told["config"]["needs_restart"], json!(["limits.in_flight"]), "{told}");
    assert_eq!(told["config"]["last_error"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_and_a_file_that_changes_are_heard() {
    let site = Site::start("", |nodes| upstream("a", &nodes[0], "")).await;
    site.write("", &(site.upstream("a", 0, "") + &site.upstream("b", 1, "")));
    site.generation(2).await;
    assert_ne!(site.upstream_status("b").await, Value::Null);
    // As Kubernetes does: the new file takes the place of the old one.
    let next = site.folder.path().join("next");
    fs::write(&next, site.config("", &site.upstream("b", 1, ""))).unwrap();
    fs::rename(&next, site.file()).unwrap();
    site.process.signal(Signal::Hangup);
    site.generation(3).await;
    assert_eq!(site.upstream_status("a").await, Value::Null);
    let ready = until(BOUND, || async {
        (site.upstream_status("b").await["condition"] == "ready").then_some(())
    });
    assert!(ready.await.is_some(), "{}", site.process.log());
    let answer = Rpc::new(site.port, "/").result("eth_chainId", json!([])).await;
    assert_eq!(answer.unwrap(), json!(format!("{CHAIN_ID:#x}")));
}

/// Chains come and go: a path that is gone is one that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn chains_come_and_go() {
    let site = Site::start("reload: signal", |nodes| upstream("a", &nodes[0], "")).await;
    let other = |name: &str| {
        format!(
            "{}  {name}:\n    upstreams:\n{}",
            site.upstream("a", 0, ""),
            site.upstream("x", 1, "")
        )
    };
    site.write("reload: signal", &other("side"));
    let (status, told) = site.reload("").await;
    assert_eq!((status, changes(&told, "applied")), (200, vec!["+ chains.side".to_owned()]));
    let side = Rpc::new(site.port, "/side");
    let answered = until(BOUND, || async { side.result("eth_chainId", json!([])).await.ok() });
    assert!(answered.await.is_some(), "{}", site.process.log());
    site.write("reload: signal", &site.upstream("a", 0, ""));
    let (_, told) = site.reload("").await;
    assert_eq!(changes(&told, "applied"), ["- chains.side"]);
    let gone = side.post(r#"{"id":1,"method":"eth_chainId"}"#).await.unwrap();
    assert_eq!(gone.status, 404);
    let main = Rpc::new(site.port, "/main").result("eth_chainId", json!([])).await;
    assert_eq!(main.unwrap(), json!(format!("{CHAIN_ID:#x}")));
    // A connection whose path leads to another chain now goes on with calls alone.
    let mut client = WsClient::connect(site.port).await;
    let renamed = site.config("reload: signal", &site.upstream("a", 0, ""));
    fs::write(site.file(), renamed.replace("  main:", "  other:")).unwrap();
    assert_eq!(site.reload("").await.0, 200);
    let called = until(BOUND, || async {
        Rpc::new(site.port, "/").result("eth_chainId", json!([])).await.ok()
    });
    assert!(called.await.is_some());
    assert_eq!(
        client.call("eth_chainId", json!([])).await.unwrap(),
        json!(format!("{CHAIN_ID:#x}"))
    );
    let refused = client.call("eth_subscribe", json!(["newHeads"])).await.unwrap_err();
    assert!(refused.contains("another chain"), "{refused}");
}

mod with_anvil {
    use wellhead_e2e::{Anvil, Node};

    use super::*;

    const GENESIS: u64 = 1_790_000_000;

    /// Both make the next block, which is one: its time is given, as their clocks may be on both sides of a second.
    async fn mine(nodes: &[Node; 2]) -> u64 {
        let number = nodes[0].head().await.unwrap() + 1;
        for node in nodes {
            let at = json!([GENESIS + 12 * number]);
            node.rpc().result("evm_mine", at).await.unwrap();
        }
        nodes[0].head().await.unwrap()
    }

    /// A subscriber is told every block once, while upstreams are added, changed and replaced; when its chain is gone, its
    /// connection is closed.
    #[tokio::test(flavor = "multi_thread")]
    async fn subscriptions_outlive_reloads() {
        let nodes =
            [Anvil::by_hand(CHAIN_ID, GENESIS).await, Anvil::by_hand(CHAIN_ID, GENESIS).await];
        let line = |id: &str, node: usize, more: &str| {
            format!("      - {{ id: {id}, url: \"{}\"{more} }}\n", nodes[node].url())
        };
        let site = Site::start("reload: signal", |_| line("a", 0, "")).await;
        let mut client = WsClient::connect(site.port).await;
        client.subscribe(json!(["newHeads"])).await;
        let rosters = [
            line("a", 0, ", tier: fallback") + &line("b", 1, ""),
            line("b", 1, "") + &line("a", 0, ""),
            line("b", 1, ", labels: { x: \"y\" }"),
            line("b", 1, "") + &line("c", 0, ""),
            line("c", 0, ""),
            line("a", 1, ""),
        ];
        let mut last: Option<Value> = None;
        for roster in &rosters {
            for _ in 0..2 {
                let number = mine(&nodes).await;
                let head = client.told().await["result"].take();
                assert_eq!(head["number"], json!(format!("{number:#x}")), "{}", site.process.log());
                if let Some(last) = last.replace(head.clone()) {
                    assert_eq!(head["parentHash"], last["hash"]);
                }
            }
            site.write("reload: signal", roster);
            let (status, told) = site.reload("").await;
            assert_eq!((status, &told["ok"]), (200, &json!(true)), "{told}");
        }
        let number = mine(&nodes).await;
        assert_eq!(client.told().await["result"]["number"], json!(format!("{number:#x}")));
        let renamed =
            site.config("reload: signal", &line("a", 1, "")).replace("  main:", "  other:");
        fs::write(site.file(), renamed).unwrap();
        assert_eq!(site.reload("").await.0, 200);
        assert!(client.told_or_closed().await.is_err(), "{}", site.process.log());
    }
}
