//! nginx and HAProxy, with one worker each, before a server of our own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Far more than it needs, for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(20);

/// Parts of a config of HAProxy.
#[derive(Debug, Default)]
pub(crate) struct HaProxyConfig {
    /// What follows the port after `bind`.
    pub(crate) bind: &'static str,
    /// Lines of `global`.
    pub(crate) global: String,
    /// Lines of `frontend`.
    pub(crate) frontend: String,
    /// Words of `server`.
    pub(crate) server: String,
}

/// A running proxy; it ends when this is dropped.
pub(crate) struct ProxyServer {
    port: u16,
    child: Child,
    // Removed after the process has gone.
    _folder: TempDir,
}

impl ProxyServer {
    /// nginx on a free port, before the port `behind`.
    pub(crate) async fn nginx(listen: &str, http: &str, location: &str, behind: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, at) = (free_port(), folder.path().display());
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error crit;
events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 1000000; keepalive_timeout 300s;
  client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
  uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
  upstream own {{ server 127.0.0.1:{behind}; keepalive 256; keepalive_requests 1000000; }}
  {http}
  server {{
    listen 127.0.0.1:{port} {listen};
    location / {{
      proxy_pass http://own; proxy_http_version 1.1; proxy_set_header Connection \"\";
      {location}
    }}
  }}
}}
"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg(folder.path().join("start")).arg("-c").arg(&file);
        Self::start(command, port, folder).await
    }

    /// HAProxy, likewise.
    pub(crate) async fn haproxy(config: &HaProxyConfig, behind: u16) -> Self {
        let HaProxyConfig { bind, global, frontend, server } = config;
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let config = format!(
            "global
  nbthread 1
{global}
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 60s
  timeout queue 60s
frontend calls
  bind 127.0.0.1:{port} {bind}
{frontend}
  default_backend own
backend own
  server own 127.0.0.1:{behind} {server}
"
        );
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file);
        Self::start(command, port, folder).await
    }

    async fn start(mut command: Command, port: u16, folder: TempDir) -> Self {
        let log = fs::File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let proxy = Self { port, child, _folder: folder };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = proxy._folder.path().join("log");
            assert!(begun.elapsed() < READY_MAX, "{}", fs::read_to_string(log).unwrap());
            sleep(Duration::from_millis(10)).await;
        }
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap().port()
}
