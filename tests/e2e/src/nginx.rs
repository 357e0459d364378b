//! nginx as people put it before a server: it passes each connection of WebSocket on to one of its own, and closes
//! both when one side is silent for too long; or it lets so many calls per second pass.

use std::time::Duration;

use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, Signal, tool};
use crate::{Rpc, until};

/// Far more than it needs, for a machine that is busy.
pub(crate) const READY_MAX: Duration = Duration::from_secs(20);

/// A running nginx with one worker.
#[derive(Debug)]
pub struct Nginx {
    /// Where it listens on the loopback.
    pub port: u16,
    /// The program that runs.
    pub process: Process,
    // Removed after the process has gone: fields drop in this order.
    folder: TempDir,
}

/// What nginx lets pass (`limit_req`): so many calls per second, and so many at once.
#[derive(Debug, Clone, Copy)]
pub struct NginxLimit {
    /// Calls per second.
    pub per_second: u32,
    /// Calls above it that pass at once.
    pub burst: u32,
}

impl Nginx {
    /// Passes connections on to this port of the loopback, and closes one on which the server sends nothing
    /// for this long, rounded to seconds.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn before(server: u16, read_timeout: Duration) -> Self {
        let seconds = read_timeout.as_secs();
        Self::with(
            "",
            &format!(
                "location / {{
               proxy_pass http://127.0.0.1:{server};
               proxy_http_version 1.1;
               proxy_set_header Upgrade $http_upgrade;
               proxy_set_header Connection \"upgrade\";
               proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
               proxy_read_timeout {seconds}s;
             }}"
            ),
        )
        .await
    }

    /// Serves what the lines of a `server` block say; `listen_words` follow the port.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn with(listen_words: &str, server: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let http = format!("server {{ listen 127.0.0.1:{port} {listen_words}; {server} }}");
        let config = config(&folder, "master_process off;", &http);
        Self::started(folder, port, &config).await
    }

    /// Passes calls on to this port of the loopback, within a limit; others get 429.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn limiting(server: u16, limit: NginxLimit) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let config = limiting(&folder, port, server, limit);
        Self::started(folder, port, &config).await
    }

    /// Changes the limit of one that was started by [`Self::limiting`] before the same server, by a reload.
    ///
    /// # Panics
    /// When the config cannot be written.
    pub fn limit(&self, server: u16, limit: NginxLimit) {
        let config = limiting(&self.folder, self.port, server, limit);
        std::fs::write(self.folder.path().join("nginx.conf"), config).expect("the folder is ours");
        self.process.signal(Signal::Hangup);
    }

    async fn started(folder: TempDir, port: u16, config: &str) -> Self {
        let at = folder.path().display();
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).expect("the folder is ours");
        let words = [tool("nginx"), "-e".into(), format!("{at}/error"), "-c".into()];
        let command = [&words[..], &[file.display().to_string()]].concat();
        let process = Process::start(&command, folder.path().join("log"));
        let rpc = Rpc::new(port, "/");
        let answers = || async { rpc.get("/").await.ok().map(drop) };
        if until(READY_MAX, answers).await.is_none() {
            panic!("nginx does not answer:\n{}", process.log());
        }
        Self { port, process, folder }
    }
}

/// With a master process, as only that reloads.
fn limiting(folder: &TempDir, port: u16, server: u16, limit: NginxLimit) -> String {
    let NginxLimit { per_second, burst } = limit;
    let http = format!(
        "limit_req_zone $binary_remote_addr zone=all:1m rate={per_second}r/s;
         limit_req_status 429;
         server {{
           listen 127.0.0.1:{port};
           location / {{
             limit_req zone=all burst={burst} nodelay;
             proxy_pass http://127.0.0.1:{server};
           }}
         }}"
    );
    config(folder, "worker_processes 1;", &http)
}

/// The config in the folder: what says how its processes run, and what stands in `http`.
fn config(folder: &TempDir, processes: &str, http: &str) -> String {
    let at = folder.path().display();
    format!(
        "daemon off;
         {processes}
         pid {at}/pid;
         events {{ worker_connections 1024; }}
         http {{
           access_log off;
           client_body_temp_path {at}/body;
           proxy_temp_path {at}/proxy;
           fastcgi_temp_path {at}/fastcgi;
           uwsgi_temp_path {at}/uwsgi;
           scgi_temp_path {at}/scgi;
           {http}
         }}"
    )
}
