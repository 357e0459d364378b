//! Prometheus and Alertmanager, each as a process of its own with its files in a folder of the test.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, tool};
use crate::{Rpc, until};

/// Far more than either needs (a second), for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(60);

/// A running Prometheus that scrapes and evaluates every second.
#[derive(Debug)]
pub struct Prometheus {
    /// The program that runs.
    pub process: Process,
    http: Rpc,
    // Removed after the process has gone: fields drop in this order.
    _folder: TempDir,
}

impl Prometheus {
    /// Scrapes these ports of the loopback as the job `wellhead`, evaluates these rules, and gives its alerts to an
    /// Alertmanager.
    ///
    /// # Panics
    /// When it does not come up, as with rules that it refuses.
    pub async fn start(targets: &[u16], rules: &str, alerts: &Alertmanager) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let targets: Vec<_> = targets.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}
rule_files: [rules.yaml]
scrape_configs:
  - {{ job_name: wellhead, static_configs: [{{ targets: [{}] }}] }}
alerting:
  alertmanagers: [{{ static_configs: [{{ targets: [\"127.0.0.1:{}\"] }}] }}]
",
            targets.join(", "),
            alerts.port
        );
        std::fs::write(folder.path().join("rules.yaml"), rules).expect("the folder is ours");
        let file = folder.path().join("prometheus.yaml");
        std::fs::write(&file, config).expect("the folder is ours");
        let command = [
            tool("prometheus"),
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--enable-feature=exemplar-storage".to_owned(),
        ];
        let process = Process::start(&command, folder.path().join("log"));
        let http = ready(&process, port).await;
        Self { process, http, _folder: folder }
    }

    /// What an expression gives now: `data.result` of the answer, or the words with which it is refused.
    ///
    /// # Errors
    /// When the expression is wrong or Prometheus does not answer.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let reply = self.http.get(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        let reply = reply.json()?;
        let result = reply["data"]["result"].as_array().cloned();
        result.ok_or_else(|| format!("{expression}: {reply}"))
    }

    /// The exemplars of the series of an expression, by series: `data` of the answer.
    ///
    /// # Errors
    /// When the expression is wrong or Prometheus does not answer.
    pub async fn exemplars(&self, expression: &str) -> Result<Vec<Value>, String> {
        // Without a begin and an end it looks at no time at all.
        let query = format!("query={}&start=0&end=10000000000", encoded(expression));
        let reply = self.http.get(&format!("/api/v1/query_exemplars?{query}")).await?;
        let reply = reply.json()?;
        reply["data"].as_array().cloned().ok_or_else(|| format!("{expression}: {reply}"))
    }
}

/// A running Alertmanager that passes each alert on at once.
#[derive(Debug)]
pub struct Alertmanager {
    /// The program that runs.
    pub process: Process,
    port: u16,
    // Removed after the process has gone: fields drop in this order.
    _folder: TempDir,
}

impl Alertmanager {
    /// Sends what it gets to this port of the loopback, each alert in a message of its own.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn before(webhook: u16) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let port = free_port();
        let config = format!(
            "route: {{ receiver: test, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h }}
receivers:
  - {{ name: test, webhook_configs: [{{ url: \"http://127.0.0.1:{webhook}/\", send_resolved: false }}] }}
"
        );
        let file = folder.path().join("alertmanager.yaml");
        std::fs::write(&file, config).expect("the folder is ours");
        let command = [
            tool("prometheus-alertmanager"),
            format!("--config.file={}", file.display()),
            format!("--storage.path={}", folder.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            // One alone: without this it waits for others.
            "--cluster.listen-address=".to_owned(),
        ];
        let process = Process::start(&command, folder.path().join("log"));
        ready(&process, port).await;
        Self { process, port, _folder: folder }
    }
}

async fn ready(process: &Process, port: u16) -> Rpc {
    let http = Rpc::new(port, "/");
    let asked = || async {
        let reply = http.get("/-/ready").await.ok()?;
        (reply.status == 200).then_some(())
    };
    if until(READY_MAX, asked).await.is_none() {
        panic!("not ready:\n{}", process.log());
    }
    http
}

/// For a query of a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Runs promtool with these arguments in a folder; what it printed, and whether it was content.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn promtool(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = std::process::Command::new(tool("promtool"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("`tool` has found it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}
