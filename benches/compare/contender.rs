//! The proxies that are compared, each before the same upstream.
//!
//! Their configs are as close to one another as they can be: one worker,
//! keep-alive on both sides, no log. How they are measured is in `measure`.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wellhead_e2e::{Geth, Node, Process, Rpc, Wellhead, free_port, tool};

/// The core of the contender. Everything else is on the other one.
const PROXY_CORE: &str = "1";
pub(crate) const LOAD_CORE: &str = "0";
const CHAIN_ID: u64 = Geth::CHAIN_ID;
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

/// Who is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bar: others are told as multiples of it.
    Nginx,
    HaProxy,
    /// Over HTTP/1.1 to the upstream, as the two above.
    Wellhead,
    /// Calls multiplexed over HTTP/2 to the upstream.
    WellheadHttp2,
}

impl Kind {
    /// In the order of their turns; the bar comes first.
    pub(crate) const ALL: [Self; 4] =
        [Self::Nginx, Self::HaProxy, Self::Wellhead, Self::WellheadHttp2];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Wellhead => "wellhead",
            Self::WellheadHttp2 => "wellhead, http2",
        }
    }
}

/// A running proxy; dropping it ends it.
pub(crate) struct Contender {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) first_answer_after: Duration,
    _running: Running,
}

enum Running {
    Configured { _process: Process, _folder: TempDir },
    Wellhead { _wellhead: Box<Wellhead> },
}

impl Contender {
    /// Starts it, and waits until it forwards an answer.
    pub(crate) async fn start(kind: Kind, upstream: &Node) -> Self {
        let began = Instant::now();
        let (pid, port, running) = match kind {
            Kind::Nginx => configured("nginx", "nginx.conf", nginx, upstream.port),
            Kind::HaProxy => configured("haproxy", "haproxy.cfg", haproxy, upstream.port),
            Kind::Wellhead => wellhead(upstream, "1.1"),
            Kind::WellheadHttp2 => wellhead(upstream, "2"),
        };
        let rpc = Rpc::new(port, "/");
        // A call that has to be forwarded: a proxy may know the chain id itself.
        while rpc.result("eth_blockNumber", json!([])).await.is_err() {
            assert!(began.elapsed() < ANSWER_MAX, "{} does not answer", kind.name());
            sleep(Duration::from_millis(1)).await;
        }
        Self { pid, port, first_answer_after: began.elapsed(), _running: running }
    }
}

fn wellhead(upstream: &Node, http: &str) -> (u32, u16, Running) {
    let chains = format!(
        "  main:\n    id: {CHAIN_ID}\n    upstreams:\n      - {{ id: a, url: \"{}\", http: \"{http}\" }}\n",
        upstream.url(),
    );
    let wellhead = Wellhead::spawn_under(&["taskset", "-c", PROXY_CORE], "", &chains);
    (wellhead.process.pid(), wellhead.port, Running::Wellhead { _wellhead: Box::new(wellhead) })
}

type Config = fn(folder: &Path, port: u16, upstream: u16) -> (String, Vec<String>);

fn configured(program: &str, file: &str, config: Config, upstream: u16) -> (u32, u16, Running) {
    let folder = tempfile::tempdir().expect("there is room for a config");
    let port = free_port();
    let (text, arguments) = config(folder.path(), port, upstream);
    let path = folder.path().join(file);
    std::fs::write(&path, text).expect("the folder is ours");
    let mut command: Vec<String> = ["taskset", "-c", PROXY_CORE].map(str::to_owned).to_vec();
    command.push(tool(program));
    command.extend(arguments);
    command.push(path.display().to_string());
    let process = Process::start(&command, folder.path().join("log"));
    (process.pid(), port, Running::Configured { _process: process, _folder: folder })
}

/// One process without a master, so that ending it leaves no worker behind; a
/// single worker does the same work either way.
fn nginx(folder: &Path, port: u16, upstream: u16) -> (String, Vec<String>) {
    let folder = folder.display();
    let text = format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  upstream node {{
    server 127.0.0.1:{upstream};
    keepalive 256;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://node;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
    }}
  }}
}}
"
    );
    (text, vec!["-e".to_owned(), format!("{folder}/error"), "-c".to_owned()])
}

fn haproxy(_folder: &Path, port: u16, upstream: u16) -> (String, Vec<String>) {
    let text = format!(
        "global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend calls
  bind 127.0.0.1:{port}
  default_backend nodes
backend nodes
  server node 127.0.0.1:{upstream}
"
    );
    (text, vec!["-db".to_owned(), "-f".to_owned()])
}
