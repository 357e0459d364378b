//! The binary under test, started as its users start it.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{Process, Signal, binary, linked_binary};
use crate::{Rpc, free_port, until};

/// Far more than it needs (tens of milliseconds), for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(20);
/// More than its drain may take.
const EXIT_MAX: Duration = Duration::from_secs(60);

/// No line for each request: a load would bury what matters. Left out where a test has its own `log:`.
const LOG: &str = "log: { level: info, requests: false }";

/// One upstream of a config: an id and where it is.
#[derive(Debug, Clone)]
pub struct Upstream {
    id: String,
    fields: String,
}

impl Upstream {
    /// An upstream with everything else left to the defaults.
    #[must_use]
    pub fn new(id: &str, url: &str) -> Self {
        Self { id: id.to_owned(), fields: format!("url: \"{url}\"") }
    }

    /// Adds fields as they stand in a config: `tier: fallback`.
    #[must_use]
    pub fn with(mut self, fields: &str) -> Self {
        self.fields = format!("{}, {fields}", self.fields);
        self
    }
}

/// A running `wellhead serve`.
#[derive(Debug)]
pub struct Wellhead {
    /// The program that runs.
    pub process: Process,
    /// Where it takes calls on the loopback.
    pub port: u16,
    /// Where its admin listener is.
    pub admin_port: u16,
    /// How long from its start until `/readyz` said yes.
    pub ready_after: Duration,
    started: Instant,
    rpc: Rpc,
    admin: Rpc,
    command: Vec<String>,
    folder: TempDir,
}

impl Wellhead {
    /// Serves one chain, called `main`, with these upstreams; waits until it is ready.
    pub async fn start(chain_id: u64, upstreams: &[Upstream]) -> Self {
        Self::start_with("", chain_id, upstreams).await
    }

    /// As [`Self::start`], with more lines at the top level of the config.
    pub async fn start_with(more: &str, chain_id: u64, upstreams: &[Upstream]) -> Self {
        let wellhead = Self::spawn(more, &chain(chain_id, upstreams));
        wellhead.ready().await
    }

    /// Starts it with these lines below `chains:`, without waiting.
    #[must_use]
    pub fn spawn(more: &str, chains: &str) -> Self {
        Self::spawn_under(&[], more, chains)
    }

    /// As [`Self::spawn`], by way of another program: `taskset -c 1`.
    #[must_use]
    pub fn spawn_under(launcher: &[&str], more: &str, chains: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let (port, admin_port) = (free_port(), free_port());
        let log = if more.lines().any(|line| line.starts_with("log:")) { "" } else { LOG };
        let config = format!(
            "{log}\nlisten: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin_port}\n{more}\nchains:\n{chains}"
        );
        let file = folder.path().join("wellhead.yaml");
        std::fs::write(&file, config).expect("the folder is ours");
        let mut command: Vec<String> = launcher.iter().map(|word| (*word).to_owned()).collect();
        let loads_library = launcher.iter().any(|word| word.starts_with("LD_PRELOAD="));
        let program = if loads_library { linked_binary() } else { binary() };
        command.push(program.display().to_string());
        command.extend(["serve".to_owned(), "-c".to_owned(), file.display().to_string()]);
        let started = now();
        let process = Process::start(&command, folder.path().join("log"));
        let (rpc, admin) = (Rpc::new(port, "/"), Rpc::new(admin_port, "/"));
        let ready_after = Duration::ZERO;
        Self { process, port, admin_port, ready_after, started, rpc, admin, command, folder }
    }

    /// Asks it to end, waits until it has, and starts it again with its config and its ports.
    ///
    /// # Panics
    /// When it does not end in order, or is not ready afterwards.
    pub async fn restart(mut self) -> Self {
        self.process.signal(Signal::Term);
        assert_eq!(self.process.exit_code(EXIT_MAX).await, Some(0), "{}", self.process.log());
        self.start_again().await
    }

    /// Starts it again with its config and its ports, after it was killed.
    ///
    /// # Panics
    /// When it is not ready afterwards.
    pub async fn start_again(mut self) -> Self {
        self.started = now();
        self.process.look_for_secrets();
        self.process = Process::start(&self.command, self.folder.path().join("log"));
        self.ready().await
    }

    /// Replaces its config by what `with` makes of it. It is not told.
    ///
    /// # Panics
    /// When the file cannot be read or written.
    pub fn rewrite(&self, with: impl FnOnce(String) -> String) {
        let file = self.folder.path().join("wellhead.yaml");
        let config = std::fs::read_to_string(&file).expect("it is there");
        let new = self.folder.path().join("wellhead.yaml.new");
        std::fs::write(&new, with(config)).expect("the folder is ours");
        std::fs::rename(new, file).expect("the folder is ours");
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Panics
    /// With its log, when it does not.
    pub async fn ready(mut self) -> Self {
        if until(READY_MAX, || self.ask_ready()).await.is_none() {
            panic!("wellhead is not ready:\n{}", self.process.log());
        }
        self.ready_after = now() - self.started;
        self
    }

    /// Asks the admin listener, and says whether it answered that the process is alive.
    pub async fn answers(&self) -> bool {
        self.admin.get("/livez").await.is_ok_and(|reply| reply.status == 200)
    }

    async fn ask_ready(&self) -> Option<()> {
        let reply = self.admin.get("/readyz").await.ok()?;
        (reply.status == 200).then_some(())
    }

    /// A client that calls `/`, the only chain.
    #[must_use]
    pub fn rpc(&self) -> &Rpc {
        &self.rpc
    }

    /// A client of the admin listener.
    #[must_use]
    pub fn admin(&self) -> &Rpc {
        &self.admin
    }

    /// The address that clients use.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The address that clients of WebSocket use.
    #[must_use]
    pub fn ws_url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }
}

/// The lines of one chain, called `main`, below `chains:`.
#[must_use]
pub fn chain(chain_id: u64, upstreams: &[Upstream]) -> String {
    let mut lines = format!("  main:\n    id: {chain_id}\n    upstreams:\n");
    for Upstream { id, fields } in upstreams {
        lines.push_str(&format!("      - {{ id: {id}, {fields} }}\n"));
    }
    lines
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
