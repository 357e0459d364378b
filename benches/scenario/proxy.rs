//! The wellhead that is measured: the release binary on a core of its own, with its
//! default settings and two upstreams.
//!
//! It is held to one core by its affinity, and to 1 GiB by a limit on what it may
//! allocate where that can be set, and always by a look at the most that was resident.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;
use wellhead_e2e::{Process, Rpc, binary, free_port, tool, until};

use crate::process::{peak_kib, resident_kib};
use crate::upstream::{CHAIN_ID, Upstreams};

/// The core of wellhead; loads and upstreams share the other one.
const PROXY_CORE: &str = "1";
/// What the whole stack had in the public comparison.
pub(crate) const MEMORY_KIB_MAX: u64 = 1 << 20;
/// Lines of its log that are worth printing.
const LOG_LINES_MAX: usize = 12;
/// Far more than a start takes, for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(20);

/// A running wellhead; dropping it ends it.
pub(crate) struct Wellhead {
    pub(crate) port: u16,
    pub(crate) pid: u32,
    /// From its start to the first good answer.
    pub(crate) first_answer_after: Duration,
    admin: Rpc,
    _process: Process,
    folder: TempDir,
}

/// Whether the log is looked at later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    Kept,
    /// It is written all the same, as by default, but a long load would fill a disk.
    Dropped,
}

impl Wellhead {
    /// Starts it and waits for an answer that had to be forwarded.
    pub(crate) async fn start(upstreams: &Upstreams, log: Log) -> Self {
        Self::start_with(upstreams, log, "").await
    }

    /// Starts with more lines at the top level of the settings.
    pub(crate) async fn start_with(upstreams: &Upstreams, log: Log, more: &str) -> Self {
        let upstreams = upstreams.each();
        let lines = upstreams.map(|(id, it)| format!("{{ id: {id}, url: \"{}\" }}", it.url()));
        Self::start_before(CHAIN_ID, &lines, log, more).await
    }

    /// Starts before upstreams that are written as in a config.
    pub(crate) async fn start_before(
        chain_id: u64,
        upstreams: &[String],
        log: Log,
        more: &str,
    ) -> Self {
        let began = Instant::now();
        let folder = tempfile::tempdir().expect("there is room for a config");
        let (port, admin_port) = (free_port(), free_port());
        let mut config = format!(
            "listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin_port}\n{more}\
             chains:\n  main:\n    id: {chain_id}\n    upstreams:\n"
        );
        upstreams.iter().for_each(|upstream| config.push_str(&format!("      - {upstream}\n")));
        let file = folder.path().join("wellhead.yaml");
        std::fs::write(&file, config).expect("the folder is ours");
        let mut command = vec![tool("taskset"), "-c".to_owned(), PROXY_CORE.to_owned()];
        if let Some(limit) = memory_limit() {
            command.extend([tool("prlimit"), limit]);
        }
        command.extend([binary().display().to_string(), "serve".into(), "-c".into()]);
        command.push(file.display().to_string());
        let log = match log {
            Log::Kept => folder.path().join("log"),
            Log::Dropped => PathBuf::from("/dev/null"),
        };
        let process = Process::start(&command, log);
        let rpc = Rpc::new(port, "/");
        let answered =
            until(READY_MAX, || async { rpc.result("eth_blockNumber", json!([])).await.ok() });
        assert!(answered.await.is_some(), "wellhead does not answer:\n{}", process.log());
        Self {
            port,
            pid: process.pid(),
            first_answer_after: began.elapsed(),
            admin: Rpc::new(admin_port, "/"),
            _process: process,
            folder,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        resident_kib(self.pid)
    }

    pub(crate) fn peak_kib(&self) -> u64 {
        peak_kib(self.pid)
    }

    /// How long its threads were ready to run, and another program had their core.
    pub(crate) fn waited_for_core(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let waits = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        Duration::from_nanos(waits.sum())
    }

    /// File descriptors that are open; 0 when it has died.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }

    /// The end of what its log says of upstreams: what became of requests is for the
    /// load to tell.
    pub(crate) fn log_of_upstreams(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("upstream ")).collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    /// What its metrics say now.
    pub(crate) async fn metrics(&self) -> Metrics {
        let Ok(reply) = self.admin.get("/metrics").await else { return Metrics::default() };
        Metrics::parse(&reply.text())
    }
}

/// Prometheus' text: a name with its labels, and a number.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// The sum over all of this name whose labels hold each of these texts.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let named = self.0.iter().filter(|(key, _)| key.split('{').next() == Some(name));
        named
            .filter(|(key, _)| labels.iter().all(|label| key.contains(label)))
            .map(|(_, n)| n)
            .sum()
    }

    /// How much each has grown since an earlier look.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let grown = self
            .0
            .iter()
            .map(|(key, value)| (key.clone(), value - before.0.get(key).copied().unwrap_or(0.0)));
        Self(grown.collect())
    }

    /// The values of one label among those of this name, each with its sum.
    pub(crate) fn by_label(&self, name: &str, labels: &[&str], by: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        let open = format!("{by}=\"");
        for (key, value) in &self.0 {
            if key.split('{').next() != Some(name) || !labels.iter().all(|l| key.contains(l)) {
                continue;
            }
            let Some((_, rest)) = key.split_once(&open) else { continue };
            let Some((label, _)) = rest.split_once('"') else { continue };
            *sums.entry(label.to_owned()).or_default() += value;
        }
        sums
    }
}

/// The option of prlimit, where that program can set it.
fn memory_limit() -> Option<String> {
    let limit = format!("--data={}", MEMORY_KIB_MAX * 1024);
    let tried = Command::new("prlimit").args([&limit, "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success()).then_some(limit)
}

/// How memory is held, in words.
pub(crate) fn memory_held_by() -> &'static str {
    match memory_limit() {
        Some(_) => {
            "prlimit --data (what it may allocate), and a look at the peak of resident memory"
        }
        None => "a look at the peak of resident memory; prlimit is not here",
    }
}
