//! nginx as people put it before a WebSocket server: it passes each connection on to one of its own, and
//! closes both when one side is silent for too long.

use std::time::Duration;

use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, tool};
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
    _folder: TempDir,
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
        let (port, at) = (free_port(), folder.path().display());
        let config = format!(
            "daemon off;
             master_process off;
             pid {at}/pid;
             events {{ worker_connections 1024; }}
             http {{
               access_log off;
               client_body_temp_path {at}/body;
               proxy_temp_path {at}/proxy;
               fastcgi_temp_path {at}/fastcgi;
               uwsgi_temp_path {at}/uwsgi;
               scgi_temp_path {at}/scgi;
               server {{
                 listen 127.0.0.1:{port} {listen_words};
                 {server}
               }}
             }}"
        );
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
        Self { port, process, _folder: folder }
    }
}
