//! The servers that subscribers connect to.

use tempfile::TempDir;
use wellhead_e2e::{Certificate, ConsensusDriver, Process, Rpc, Wellhead, free_port, tool, until};

use crate::fan_out::HeadMaker;

/// The core of the contender; all else is on the other one.
pub(crate) const PROXY_CORE: &str = "1";
/// More than any run opens.
const CONNECTIONS: usize = 40_000;

/// A server that runs until it is dropped.
pub(crate) struct Served {
    pub(crate) port: u16,
    process: Running,
    _folder: Option<TempDir>,
}

enum Running {
    Wellhead(Box<Wellhead>),
    Process(Process),
}

impl Served {
    pub(crate) fn pid(&self) -> u32 {
        match &self.process {
            Running::Wellhead(wellhead) => wellhead.process.pid(),
            Running::Process(process) => process.pid(),
        }
    }
}

/// wellhead with one worker before the geth.
pub(crate) async fn wellhead(maker: &HeadMaker, certificate: Option<&Certificate>) -> Served {
    let tls = certificate.map_or_else(String::new, |certificate| {
        let [certificate_file, key_file, _] = certificate.files();
        let (certificate, key) = (certificate_file.display(), key_file.display());
        format!("tls: {{ certificate: \"{certificate}\", key: \"{key}\" }}\n")
    });
    let settings = format!("workers: 1\nlimits: {{ connections: {CONNECTIONS} }}\n{tls}");
    let chains = format!(
        "  main:\n    id: {}\n    upstreams:\n      - {{ id: geth, url: \"http://127.0.0.1:{}\", ws: \"ws://127.0.0.1:{}\" }}\n",
        ConsensusDriver::CHAIN_ID,
        maker.port(),
        maker.ws_port()
    );
    let wellhead = Wellhead::spawn_under(&["taskset", "-c", PROXY_CORE], &settings, &chains);
    let wellhead = wellhead.ready().await;
    Served { port: wellhead.port, process: Running::Wellhead(Box::new(wellhead)), _folder: None }
}

/// nginx with one worker, which passes each connection on to one of its own to the geth.
pub(crate) async fn nginx(maker: &HeadMaker) -> Served {
    let folder = tempfile::tempdir().expect("there is room for a config");
    let (port, place) = (free_port(), folder.path().display());
    let config = format!(
        "daemon off;\nmaster_process off;\npid {place}/pid;\nworker_rlimit_nofile 1000000;\n\
         events {{ worker_connections {CONNECTIONS}; }}\n\
         http {{\n access_log off;\n client_body_temp_path {place}/body;\n proxy_temp_path {place}/proxy;\n\
         fastcgi_temp_path {place}/f;\n uwsgi_temp_path {place}/u;\n scgi_temp_path {place}/s;\n\
         server {{\n listen 127.0.0.1:{port} backlog=4096;\n location / {{\n proxy_pass http://127.0.0.1:{};\n\
         proxy_http_version 1.1;\n proxy_set_header Upgrade $http_upgrade;\n proxy_set_header Connection \"upgrade\";\n\
         proxy_read_timeout 600s;\n }}\n }}\n}}\n",
        maker.ws_port()
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, config).expect("the folder is ours");
    let words =
        ["taskset", "-c", PROXY_CORE, &tool("nginx"), "-e", &format!("{place}/error"), "-c"];
    let mut command: Vec<String> = words.map(str::to_owned).to_vec();
    command.push(file.display().to_string());
    let process = Process::start(&command, folder.path().join("log"));
    let rpc = Rpc::new(port, "/");
    let answers = || async { rpc.get("/").await.ok().map(drop) };
    let is_up = until(std::time::Duration::from_secs(20), answers).await;
    assert!(is_up.is_some(), "nginx does not answer:\n{}", process.log());
    Served { port, process: Running::Process(process), _folder: Some(folder) }
}
