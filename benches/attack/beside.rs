//! Other proxies before the same upstream, with the bounds that wellhead has by default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};
use wellhead_e2e::Certificate;
use wellhead_e2e::attack::{self, Attack, Place, Report, Scale, Subject, Upstream};
use wellhead_e2e::{Process, Rpc, cache, free_port, tool};

/// As `limits.connections` and those to upstreams.
const CONNECTIONS: u32 = 12_000;
const READY_MAX: Duration = Duration::from_secs(20);

/// Which proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Envoy,
}

impl Kind {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "nginx" => Some(Self::Nginx),
            "envoy" => Some(Self::Envoy),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
        }
    }
}

/// Plays an attack before it, or says why not.
pub(crate) async fn play(
    kind: Kind,
    attack: &Attack,
    certificate: &Certificate,
    lasts: Duration,
) -> Result<Report, String> {
    let (upstream, well) = (Upstream::start(), Upstream::start());
    let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
    let (port, http2_port) = (free_port(), free_port());
    let tls = attack.place == Place::Tls;
    let (config, command) = match kind {
        Kind::Nginx => {
            let file = folder.path().join("nginx.conf").display().to_string();
            let errors = folder.path().join("error").display().to_string();
            let text = nginx(
                folder.path(),
                [port, http2_port],
                upstream.address,
                tls.then_some(certificate),
            );
            (text, vec![tool("nginx"), "-e".into(), errors, "-c".into(), file])
        }
        Kind::Envoy => {
            let program = cache().join("bin/envoy");
            if !program.exists() {
                return Err("`envoy` is not here: see docs/testing.md".to_owned());
            }
            let file = folder.path().join("envoy.yaml").display().to_string();
            let text = envoy([port, http2_port], upstream.address, tls.then_some(certificate));
            let program = program.display().to_string();
            let words = ["--concurrency", "2", "--disable-hot-restart", "-l", "error", "-c"];
            let words = words.map(str::to_owned);
            (text, [vec![program], words.to_vec(), vec![file]].concat())
        }
    };
    let file = command.last().ok_or("a command has words")?;
    std::fs::write(file, config).map_err(|why| why.to_string())?;
    let running =
        Running { process: Process::start(&command, folder.path().join("log")), _folder: folder };
    let rpc = Rpc::new(port, "/");
    let began = Instant::now();
    while !tls && rpc.result("eth_chainId", json!([])).await.is_err() {
        if began.elapsed() > READY_MAX {
            return Err(format!("does not answer:\n{}", running.process.log()));
        }
        sleep(Duration::from_millis(20)).await;
    }
    if tls {
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            if began.elapsed() > READY_MAX {
                return Err(format!("does not listen:\n{}", running.process.log()));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let subject = Subject {
        pid: running.process.pid(),
        target: at(port),
        http2: at(http2_port),
        tls: tls.then(|| certificate.client()),
    };
    Ok(attack::play(attack, &subject, [&upstream, &well], Scale::Full, lasts).await)
}

struct Running {
    process: Process,
    _folder: TempDir,
}

/// One process that does all, as one descriptor table and one memory are looked at. nginx wants a
/// port of its own for HTTP/2 without TLS.
fn nginx(
    folder: &Path,
    [port, http2_port]: [u16; 2],
    upstream: SocketAddr,
    certificate: Option<&Certificate>,
) -> String {
    let folder = folder.display();
    let (ssl, files) = match certificate {
        Some(certificate) => {
            let [certificate, key, _] = certificate.files();
            let (certificate, key) = (certificate.display(), key.display());
            (
                " ssl",
                format!("    ssl_certificate {certificate};\n    ssl_certificate_key {key};\n"),
            )
        }
        None => ("", String::new()),
    };
    format!(
        "daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/pid;
error_log {folder}/error crit;
events {{ worker_connections {CONNECTIONS}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 5m;
  upstream node {{
    server {upstream};
    keepalive 512;
  }}
  server {{
    listen 127.0.0.1:{port}{ssl};
    listen 127.0.0.1:{http2_port} http2;
{files}    location / {{
      proxy_pass http://node;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
    }}
  }}
}}
"
    )
}

/// Both ports take HTTP/1.1 and HTTP/2, as wellhead does.
fn envoy(
    [port, http2_port]: [u16; 2],
    upstream: SocketAddr,
    certificate: Option<&Certificate>,
) -> String {
    let tls = certificate.map_or(serde_json::Value::Null, |certificate| {
        let [certificate, key, _] = certificate.files();
        json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": { "tls_certificates": [{
                    "certificate_chain": { "filename": certificate },
                    "private_key": { "filename": key },
                }] },
            },
        })
    });
    let listener = |name: &str, port: u16, tls: &serde_json::Value| {
        let mut chain = json!({ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": name,
                "codec_type": "AUTO",
                "route_config": { "virtual_hosts": [{
                    "name": "all", "domains": ["*"],
                    "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "node" } }],
                }] },
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                    },
                }],
            },
        }] });
        if !tls.is_null() {
            chain["transport_socket"] = tls.clone();
        }
        json!({
            "name": name,
            "address": { "socket_address": { "address": "127.0.0.1", "port_value": port } },
            "filter_chains": [chain],
        })
    };
    let breakers = json!({ "thresholds": [{
        "max_connections": CONNECTIONS, "max_pending_requests": 16_384, "max_requests": 16_384,
    }] });
    let config = json!({
        "static_resources": {
            "listeners": [listener("first", port, &tls), listener("second", http2_port, &serde_json::Value::Null)],
            "clusters": [{
                "name": "node",
                "type": "STATIC",
                "circuit_breakers": breakers,
                "load_assignment": { "cluster_name": "node", "endpoints": [{ "lb_endpoints": [{
                    "endpoint": { "address": { "socket_address": {
                        "address": upstream.ip().to_string(), "port_value": upstream.port(),
                    } } },
                }] }] },
            }],
        },
    });
    // JSON is YAML.
    config.to_string()
}
