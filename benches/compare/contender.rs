//! The proxies that are compared, each before the same upstream.
//!
//! How they are set up is in `config`, how they are measured in `turn`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wellhead_e2e::{Geth, Node, Process, Rpc, Signal, binary, free_port, tool};

use crate::client::{Client, Request};
use crate::config::{Place, Setup, haproxy, nginx, wellhead};
use crate::scrape::Metrics;
use crate::trace_sink::TraceSink;
use wellhead_e2e::Certificate;

/// The core of the contender. Everything else is on the other one.
const PROXY_CORE: &str = "1";
pub(crate) const LOAD_CORE: &str = "0";
pub(crate) const CHAIN_ID: u64 = Geth::CHAIN_ID;
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What stands behind the contenders.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UpstreamKind {
    Fast,
    Geth,
}

impl UpstreamKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Geth => "geth",
        }
    }
}

/// Starts the upstream on the core of the load.
pub(crate) async fn start_upstream(kind: UpstreamKind) -> Node {
    match kind {
        UpstreamKind::Geth => {
            let node = Geth::start().await;
            let pid = node.process.pid().to_string();
            let pinned = std::process::Command::new("taskset")
                .args(["-acp", LOAD_CORE, &pid])
                .stdout(std::process::Stdio::null())
                .status();
            assert!(pinned.is_ok_and(|status| status.success()), "geth could not be pinned");
            node
        }
        UpstreamKind::Fast => {
            let program = std::env::var("FAST_UPSTREAM_BIN")
                .expect("scripts/bench says where the fast upstream is");
            let port = free_port();
            let command = format!(
                "taskset -c {LOAD_CORE} {program} --port {port} --workers 1 --chain-id {CHAIN_ID}"
            );
            let words = command.split(' ').map(str::to_owned).collect();
            Node::start(words, port, port).await
        }
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bar: others are told as multiples of it.
    Nginx,
    HaProxy,
    /// Over HTTP/1.1 to the upstream, as the two above.
    Wellhead,
    /// Calls multiplexed over HTTP/2 to the upstream.
    WellheadHttp2,
    /// Calls multiplexed over WebSocket to the upstream.
    WellheadWebSocket,
    /// As `Wellhead`, leaving traces of 1 % of the requests.
    WellheadTraced,
    /// Another build of wellhead, as `Wellhead`: what `--before` names.
    WellheadBefore,
    /// The upstream itself, where latency is compared. No contender.
    Direct,
}

impl Kind {
    /// In the order of their turns; the bar comes first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Nginx, Self::HaProxy, Self::Wellhead, Self::WellheadHttp2, Self::WellheadWebSocket];

    /// As [`Kind::ALL`], with the one that leaves traces behind the one that does not.
    pub(crate) const AND_TRACED: [Self; 6] = [
        Self::Nginx,
        Self::HaProxy,
        Self::Wellhead,
        Self::WellheadTraced,
        Self::WellheadHttp2,
        Self::WellheadWebSocket,
    ];

    /// The one of this name, with `-` for what stands between its words.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut kinds = Self::AND_TRACED.into_iter().chain([Self::WellheadBefore]);
        kinds.find(|kind| kind.name().replace(", ", "-") == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Wellhead => "wellhead",
            Self::WellheadHttp2 => "wellhead, http2",
            Self::WellheadWebSocket => "wellhead, websocket",
            Self::WellheadTraced => "wellhead, traces",
            Self::WellheadBefore => "wellhead, before",
            Self::Direct => "direct",
        }
    }
}

/// What stands behind the contenders, as they reach it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) ws_port: u16,
}

impl Behind {
    pub(crate) fn of(node: &Node) -> Self {
        Self { pid: node.process.pid(), port: node.port, ws_port: node.ws_port }
    }
}

/// A running proxy; dropping it ends it.
pub(crate) struct Contender {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    /// Where clients may speak HTTP/2 without being asked.
    pub(crate) http2_port: u16,
    /// Where its metrics are, if it tells them.
    pub(crate) metrics: Metrics,
    pub(crate) first_answer_after: Duration,
    process: Option<Process>,
    /// Where it sends traces, if it does.
    traces: Option<TraceSink>,
    _folder: TempDir,
}

impl Contender {
    /// Starts it, and waits until it forwards an answer.
    pub(crate) async fn start(
        kind: Kind,
        upstream: Behind,
        setup: Setup<'_>,
        certificate: &Certificate,
        before: Option<&Path>,
    ) -> Self {
        let began = Instant::now();
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let http2_port = if kind == Kind::Nginx { free_port() } else { port };
        let metrics_port = free_port();
        let [certificate_file, key_file, both_file] = &certificate.files();
        let place = Place {
            folder: folder.path(),
            port,
            http2_port,
            metrics_port,
            upstream: upstream.port,
            upstream_ws: upstream.ws_port,
            certificate_file,
            key_file,
            both_file,
            setup,
        };
        let file = folder.path().join("config.yaml");
        let path = file.display().to_string();
        let errors = folder.path().join("error").display().to_string();
        let mut traces = None;
        let (text, command) = match kind {
            Kind::Nginx => (nginx(&place), vec![tool("nginx"), "-e".into(), errors, "-c".into()]),
            Kind::HaProxy => (haproxy(&place), vec![tool("haproxy"), "-db".into(), "-f".into()]),
            Kind::Wellhead => (wellhead(&place, "1.1", false), serve(&binary())),
            Kind::WellheadHttp2 => (wellhead(&place, "2", false), serve(&binary())),
            Kind::WellheadWebSocket => (wellhead(&place, "1.1", true), serve(&binary())),
            Kind::WellheadTraced => {
                let sink = TraceSink::start();
                let text = with_traces(&wellhead(&place, "1.1", false), sink.port());
                traces = Some(sink);
                (text, serve(&binary()))
            }
            Kind::WellheadBefore => {
                let program = before.expect("`--before` names the other build");
                let text = with_defaults(wellhead(&place, "1.1", false));
                (known_to(program, text, &file), serve(program))
            }
            Kind::Direct => {
                let (pid, port) = (upstream.pid, upstream.port);
                return Self {
                    pid,
                    port,
                    http2_port: port,
                    metrics: Metrics { port: metrics_port, path: "/metrics" },
                    first_answer_after: Duration::ZERO,
                    process: None,
                    traces,
                    _folder: folder,
                };
            }
        };
        std::fs::write(&file, text).expect("the folder is ours");
        let mut words: Vec<String> = ["taskset", "-c", PROXY_CORE].map(str::to_owned).to_vec();
        words.extend(command);
        words.push(path);
        // A log that is asked for costs its writing, not a disk.
        let log = match setup.log {
            true => PathBuf::from("/dev/null"),
            false => folder.path().join("log"),
        };
        let process = Process::start(&words, log);
        // A call that has to be forwarded: a proxy may know the chain id itself.
        let (rpc, asked) = (Rpc::new(port, "/"), json!([]));
        let answers = async || match setup.tls {
            false => rpc.result("eth_blockNumber", asked.clone()).await.is_ok(),
            true => answers_under_tls(port, certificate),
        };
        while !answers().await {
            let name = kind.name();
            assert!(began.elapsed() < ANSWER_MAX, "{name} does not answer:\n{}", process.log());
            sleep(Duration::from_millis(1)).await;
        }
        Self {
            pid: process.pid(),
            port,
            http2_port,
            metrics: Metrics { port: metrics_port, path: "/metrics" },
            first_answer_after: began.elapsed(),
            process: Some(process),
            traces,
            _folder: folder,
        }
    }

    /// Lets it end by itself.
    pub(crate) async fn end(mut self) {
        if let Some(process) = &mut self.process {
            process.signal(Signal::Term);
            let code = process.exit_code(ANSWER_MAX).await;
            assert_eq!(code, Some(0), "it does not end well:\n{}", process.log());
        }
        if let Some(traces) = &self.traces {
            assert!(traces.requests() > 0, "it left no trace");
        }
    }
}

fn answers_under_tls(port: u16, certificate: &Certificate) -> bool {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": [] });
    let request = Request::alike(body.to_string());
    let asked = Client::connect_to(port, Some(certificate), 4096)
        .and_then(|mut client| client.exchange(&request));
    asked.is_ok()
}

fn serve(program: &Path) -> Vec<String> {
    vec![program.display().to_string(), "serve".into(), "-c".into()]
}

/// A trace of 1 % of the requests, and of all that are slow.
fn with_traces(text: &str, port: u16) -> String {
    let traces = format!("traces: {{ endpoint: \"http://127.0.0.1:{port}/v1/traces\" }}\n");
    format!("{traces}{text}")
}

/// What is a setting by default now, and was not in each build before.
fn with_defaults(mut text: String) -> String {
    if !text.contains("cache:") {
        text.push_str("\ncache: { enabled: true }\n");
    }
    text
}

/// Settings as an older build knows them, each behind how it is written today.
const OLDER_SETTINGS: [(&str, &str); 2] =
    [("coalesce: false\n", ""), ("by_hash: on", "by_hash: true")];

/// `text`, in the words of [`OLDER_SETTINGS`] when `program` does not accept it as it is.
fn known_to(program: &Path, text: String, file: &Path) -> String {
    std::fs::write(file, &text).expect("the folder is ours");
    let check = std::process::Command::new(program).args(["check", "-c"]).arg(file).output();
    let output = check.expect("the build that `--before` names can be started");
    if output.status.success() {
        return text;
    }
    OLDER_SETTINGS.iter().fold(text, |text, (newer, older)| text.replace(newer, older))
}
