//! The listener of `analyze watch`: `/metrics`, probes of the process, and `/status`. It changes nothing.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::task::JoinHandle;
use wellhead_server::{
    AdminAccess, AdminAction, AdminCall, AdminHandler, AdminReply, Drained, Health, Hosts,
    Listener, Metrics, Server, Settings, Shutdown, UsageReport,
};
use wellhead_transport::BoxFuture;

use super::figures::{FigureCollector, FigureFamily};
use crate::admin::OPEN_METRICS;

/// The newest figures: written by the monitor, read by the listener and the exporter.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedFigures(Arc<Mutex<Vec<FigureFamily>>>);

impl SharedFigures {
    pub(super) fn set(&self, families: Vec<FigureFamily>) {
        *self.0.lock() = families;
    }

    pub(super) fn families(&self) -> Vec<FigureFamily> {
        self.0.lock().clone()
    }
}

/// What the listener tells.
#[derive(Debug)]
struct WatchPages {
    access: Arc<AdminAccess>,
    figures: SharedFigures,
}

/// A listener that serves the pages.
#[derive(Debug)]
pub(super) struct WatchListener {
    /// With the port that it was given.
    pub(super) address: SocketAddr,
    /// Ends it.
    pub(super) shutdown: Shutdown,
    pub(super) task: JoinHandle<io::Result<Drained>>,
}

/// Listens at an address until the shutdown begins.
///
/// # Errors
///
/// If it cannot listen there.
pub(super) fn serve(at: SocketAddr, figures: SharedFigures) -> io::Result<WatchListener> {
    let listener = Listener::bind(at, false)?;
    let address = listener.address();
    // Nothing here is secret or can be changed: a page of another origin gains nothing.
    let hosts = if at.ip().is_loopback() { Hosts::LOCAL } else { Hosts::Any };
    let server = Server::with(Settings { hosts, ..Settings::admin() }, None);
    let shutdown = Shutdown::new();
    let pages = Arc::new(WatchPages { access: Arc::new(AdminAccess::default()), figures });
    let begun = shutdown.clone();
    let task = tokio::spawn(async move { server.serve_admin(listener, pages, &begun).await });
    Ok(WatchListener { address, shutdown, task })
}

fn told(well: bool, body: &serde_json::Value) -> Health {
    Health { well, body: body.to_string().into() }
}

impl AdminHandler for WatchPages {
    fn access(&self) -> Arc<AdminAccess> {
        Arc::clone(&self.access)
    }

    fn metrics(&self, _: bool) -> Metrics {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(FigureCollector(self.figures.families())));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        Metrics { content_type: OPEN_METRICS, body: text.into() }
    }

    fn live(&self) -> Health {
        told(true, &json!({ "live": true }))
    }

    fn ready(&self) -> Health {
        told(true, &json!({ "ready": true }))
    }

    fn status(&self) -> Bytes {
        let mut targets = serde_json::Map::new();
        for family in self.figures.families() {
            for series in family.series {
                let name = match series.quantile {
                    Some(quantile) => format!("{}_{quantile}", family.name),
                    None => family.name.to_owned(),
                };
                targets.entry(series.target).or_insert_with(|| json!({}))[name] =
                    json!(series.value);
            }
        }
        json!({ "targets": targets }).to_string().into()
    }

    fn explain(&self, _: &str) -> Health {
        told(false, &json!({ "error": "nothing is proxied here" }))
    }

    fn actions(&self) -> &'static [AdminAction] {
        &[]
    }

    fn act(&self, _: AdminCall) -> BoxFuture<'_, AdminReply> {
        let body = Bytes::from_static(b"{}");
        Box::pin(ready(AdminReply { status: 404, body, subject: None }))
    }

    fn usage(&self, _: &str) -> UsageReport {
        let body = json!({ "error": "nothing is proxied here" }).to_string().into();
        UsageReport { well: false, content_type: "application/json", body }
    }
}
