//! HAProxy as people put it before a server that wants to know its clients: it names each of them in a PROXY
//! header of version 2, and looks at nothing else.

use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, tool};
use crate::{Rpc, nginx, until};

/// A running HAProxy with one thread.
#[derive(Debug)]
pub struct HaProxy {
    /// Where it listens on the loopback.
    pub port: u16,
    /// The program that runs.
    pub process: Process,
    // Removed after the process has gone: fields drop in this order.
    _folder: TempDir,
}

impl HaProxy {
    /// Passes connections on to this port of the loopback.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn before(server: u16) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let config = format!(
            "global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen calls
  bind 127.0.0.1:{port}
  server wellhead 127.0.0.1:{server} send-proxy-v2
"
        );
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).expect("the folder is ours");
        let command =
            [tool("haproxy"), "-db".into(), "-f".into(), file.display().to_string()].to_vec();
        let process = Process::start(&command, folder.path().join("log"));
        let rpc = Rpc::new(port, "/");
        let answers = || async { rpc.get("/").await.ok().map(drop) };
        if until(nginx::READY_MAX, answers).await.is_none() {
            panic!("HAProxy does not answer:\n{}", process.log());
        }
        Self { port, process, _folder: folder }
    }
}
