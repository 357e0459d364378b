//! The OpenTelemetry Collector, which writes the traces that it was sent to a file.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, Signal, cache};
use crate::{Rpc, free_port, until};

/// Far more than it needs (a second), for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(60);

/// A running collector; dropping it ends it.
#[derive(Debug)]
pub struct Collector {
    /// The program that runs.
    pub process: Process,
    port: u16,
    folder: TempDir,
}

/// A span as the collector wrote it.
#[derive(Debug, Clone)]
pub struct CollectedSpan {
    /// Its JSON.
    pub json: Value,
    /// What all spans of its process have in common.
    pub resource: Value,
}

impl CollectedSpan {
    /// The text of a field: `name`, `traceId`, `spanId`, `parentSpanId`.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }

    /// An attribute as text; empty without one.
    #[must_use]
    pub fn attribute(&self, name: &str) -> String {
        attribute(&self.json, name)
    }

    /// An attribute of the resource as text; empty without one.
    #[must_use]
    pub fn resource(&self, name: &str) -> String {
        attribute(&self.resource, name)
    }
}

fn attribute(of: &Value, name: &str) -> String {
    let attributes = of["attributes"].as_array().into_iter().flatten();
    let value = attributes.filter(|it| it["key"] == name).map(|it| &it["value"]).next();
    let value = value.and_then(|it| it["stringValue"].as_str().or(it["intValue"].as_str()));
    value.unwrap_or_default().to_owned()
}

impl Collector {
    /// Starts one, and waits until it takes requests.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("there is room for traces");
        let port = free_port();
        let config = format!(
            "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: \"127.0.0.1:{port}\" }} }} }} }}\n\
             exporters: {{ jsonfile: {{ path: {} }} }}\n\
             service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  \
             pipelines: {{ traces: {{ receivers: [otlp], exporters: [jsonfile] }} }}\n",
            folder.path().join("traces").display()
        );
        std::fs::write(folder.path().join("config.yaml"), config).expect("the folder is ours");
        let process = spawn(&folder);
        let collector = Self { process, port, folder };
        collector.ready().await;
        collector
    }

    /// Where it takes traces.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once. What it took stays.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn kill(&mut self) {
        self.process.signal(Signal::Kill);
        assert!(self.process.exit_code(READY_MAX).await.is_some(), "it does not end");
    }

    /// Starts it again at its port.
    pub async fn start_again(&mut self) {
        self.process = spawn(&self.folder);
        self.ready().await;
    }

    async fn ready(&self) {
        let rpc = Rpc::new(self.port, "/");
        if until(READY_MAX, || async { rpc.get("/v1/traces").await.ok() }).await.is_none() {
            panic!("the collector does not answer:\n{}", self.process.log());
        }
    }

    /// All that it wrote so far.
    #[must_use]
    pub fn written(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("traces")).unwrap_or_default()
    }

    /// All spans that it took so far.
    #[must_use]
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let written = self.written();
        // The last line may be half there.
        let requests = written.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
        let mut spans = Vec::new();
        for of_resource in requests.flat_map(|request| list(&request, "resourceSpans")) {
            let of_scopes = list(&of_resource, "scopeSpans").into_iter();
            spans.extend(
                of_scopes
                    .flat_map(|of_scope| list(&of_scope, "spans"))
                    .map(|json| CollectedSpan { json, resource: of_resource["resource"].clone() }),
            );
        }
        spans
    }

    /// Waits for the spans of the trace whose root is the first for which `is_root`; the root comes first.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn trace(&self, is_root: impl Fn(&CollectedSpan) -> bool) -> Vec<CollectedSpan> {
        let found = until(READY_MAX, || async {
            let spans = self.spans();
            let root = spans.iter().find(|span| is_root(span))?.clone();
            let of_trace = |it: &&CollectedSpan| {
                it.text("traceId") == root.text("traceId")
                    && it.text("spanId") != root.text("spanId")
            };
            let others: Vec<_> = spans.iter().filter(of_trace).cloned().collect();
            Some(std::iter::once(root).chain(others).collect::<Vec<_>>())
        });
        let Some(spans) = found.await else { panic!("there is no such trace: {}", self.written()) };
        spans
    }
}

fn spawn(folder: &TempDir) -> Process {
    let program = cache().join("collector/collector");
    assert!(program.exists(), "the collector is not here; `scripts/setup test` builds it");
    let config = folder.path().join("config.yaml");
    let text = |path: &Path| path.display().to_string();
    let command = [text(&program), "--config".to_owned(), text(&config)];
    Process::start(&command, folder.path().join("log"))
}
