//! The configs of the proxies: as close to one another as they can be.
//!
//! One worker, keep-alive on both sides, no log unless it is asked for, and
//! otherwise what each of them does by itself.

use std::path::Path;

use crate::contender::CHAIN_ID;

/// Connections that are allowed where thousands are wanted.
const CONNECTIONS_MANY: u32 = 12_000;

/// What differs from case to case.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setup<'a> {
    /// A line for each request.
    pub(crate) log: bool,
    /// Metrics are told.
    pub(crate) metrics: bool,
    /// Clients speak TLS.
    pub(crate) tls: bool,
    pub(crate) many_connections: bool,
    /// Answers are kept in memory.
    pub(crate) keeps: bool,
    /// Each call is another one, so that wellhead may keep answers and share calls as by default.
    pub(crate) calls_differ: bool,
    /// And in this folder.
    pub(crate) disk: Option<&'a Path>,
}

/// Where a config is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) port: u16,
    /// Where clients may speak HTTP/2 at once; nginx wants a port of its own for it.
    pub(crate) http2_port: u16,
    pub(crate) metrics_port: u16,
    pub(crate) upstream: u16,
    /// Where the upstream speaks WebSocket.
    pub(crate) upstream_ws: u16,
    pub(crate) certificate_file: &'a Path,
    pub(crate) key_file: &'a Path,
    pub(crate) both_file: &'a Path,
    pub(crate) setup: Setup<'a>,
}

/// One process without a master, so that ending it leaves no worker behind; a
/// single worker does the same work either way. Its buffers take a whole block,
/// for it would else write it to disk.
pub(crate) fn nginx(place: &Place<'_>) -> String {
    let Place { port, http2_port, upstream, setup, .. } = place;
    let folder = place.folder.display();
    let log = if setup.log { "/dev/null" } else { "off" };
    let connections = if setup.many_connections { CONNECTIONS_MANY } else { 4096 };
    let (certificate, key) = (place.certificate_file.display(), place.key_file.display());
    let (tls, ssl) = match setup.tls {
        true => (
            format!("    ssl_certificate {certificate};\n    ssl_certificate_key {key};\n"),
            " ssl",
        ),
        false => (String::new(), ""),
    };
    let metrics = match setup.metrics {
        true => format!(
            "  server {{\n    listen 127.0.0.1:{};\n    location / {{ stub_status; }}\n  }}\n",
            place.metrics_port
        ),
        false => String::new(),
    };
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error;
events {{ worker_connections {connections}; }}
http {{
  access_log {log};
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  client_body_buffer_size 64k;
  proxy_buffers 32 64k;
  proxy_buffer_size 64k;
  proxy_busy_buffers_size 256k;
  proxy_max_temp_file_size 0;
  upstream node {{
    server 127.0.0.1:{upstream};
    keepalive 512;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port}{ssl};
    listen 127.0.0.1:{http2_port}{ssl} http2;
{tls}    location / {{
      proxy_pass http://node;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
    }}
  }}
{metrics}}}
"
    )
}

pub(crate) fn haproxy(place: &Place<'_>) -> String {
    let Place { port, upstream, setup, .. } = place;
    let log = if setup.log { "  log global\n  option httplog\n" } else { "" };
    // It would not start with more than half of the files that it may open.
    let connections = match setup.many_connections {
        true => format!("  maxconn {CONNECTIONS_MANY}\n  no strict-limits\n"),
        false => String::new(),
    };
    let frontend_connections = match setup.many_connections {
        true => format!("  maxconn {CONNECTIONS_MANY}\n"),
        false => String::new(),
    };
    let tls = match setup.tls {
        true => format!(" ssl crt {} alpn h2,http/1.1", place.both_file.display()),
        false => String::new(),
    };
    let metrics = match setup.metrics {
        true => format!(
            "frontend metrics\n  bind 127.0.0.1:{}\n  http-request use-service prometheus-exporter\n",
            place.metrics_port
        ),
        false => String::new(),
    };
    format!(
        "global
  nbthread 1
  log stdout format raw local0
{connections}defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
{log}{frontend_connections}frontend calls
  bind 127.0.0.1:{port}{tls}
  default_backend nodes
{metrics}backend nodes
  server node 127.0.0.1:{upstream}
"
    )
}

/// `http` is what it speaks to the upstream; over `sockets` go single calls, and no heads.
pub(crate) fn wellhead(place: &Place<'_>, http: &str, sockets: bool) -> String {
    let Place { port, upstream, setup, .. } = place;
    let requests = setup.log;
    let limits = match setup.many_connections {
        true => format!("limits: {{ connections: {CONNECTIONS_MANY} }}\n"),
        false => String::new(),
    };
    let tls = match setup.tls {
        true => format!(
            "tls: {{ certificate: {}, key: {} }}\n",
            place.certificate_file.display(),
            place.key_file.display()
        ),
        false => String::new(),
    };
    let sockets = match sockets {
        true => format!(
            ", ws: \"ws://127.0.0.1:{}\", calls_over: websocket, checks: {{ ws: false }}",
            place.upstream_ws
        ),
        false => String::new(),
    };
    let cache = match (setup.keeps, setup.disk) {
        (false, _) if setup.calls_differ => String::new(),
        // One body again and again: by default all but the first would be answered from memory, and
        // what goes upstream is what is compared.
        (false, _) => "cache: { enabled: false }\ncoalesce: false\n".to_owned(),
        (true, None) => "cache: { enabled: true, by_hash: on }\n".to_owned(),
        (true, Some(folder)) => {
            format!(
                "cache: {{ enabled: true, by_hash: on, disk: {{ path: \"{}\" }} }}\n",
                folder.display()
            )
        }
    };
    format!(
        "listen: 127.0.0.1:{port}
{tls}admin: 127.0.0.1:{admin}
log: {{ level: info, requests: {requests} }}
{limits}{cache}chains:
  main:
    id: {CHAIN_ID}
    upstreams:
      - {{ id: a, url: \"http://127.0.0.1:{upstream}\", http: \"{http}\"{sockets} }}
",
        admin = place.metrics_port,
    )
}
