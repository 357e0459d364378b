//! Where the traces of requests go: to a server of OTLP over HTTP, in batches.
//!
//! ```text
//! proxy::Tracer ── bounded queue ──> gather ──> `encode` ──> POST, and again after a pause
//! ```
//!
//! It all runs on the control thread: no request waits for a collector. Which traces are kept, and what is in them,
//! is decided in `proxy`. A batch that a collector cannot take now is tried for [`RETRY_FOR`]; meanwhile the queue
//! fills, and what does not fit it is dropped and counted there. Nothing is written to a disk.

mod deliver;
mod encode;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wellhead_proxy::Tracer;
use wellhead_transport::Transport;

use self::deliver::TraceExporter;
use self::encode::TraceResource;
use crate::assemble::auth_of;
use crate::config::{Settings, TracesConfig};
use crate::otlp::collector_transport;
use crate::outlet::{OutletError, instance_name};

/// At the end of the process, when requests have used all the time to drain.
const END_MIN: Duration = Duration::from_secs(2);
/// A collector that is away holds up the end for no longer.
const END_MAX: Duration = Duration::from_secs(5);

/// The traces of this process.
pub(crate) struct Traces {
    tracer: Arc<Tracer>,
    /// Before it runs.
    prepared: Mutex<Option<TraceExporter>>,
    running: tokio::sync::Mutex<JoinSet<()>>,
    /// Whether the delivery ends when nothing is left.
    closing: watch::Sender<bool>,
    /// Traces that were taken out of the queue and are not sent yet.
    in_hand: Arc<AtomicUsize>,
    drain: Duration,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("tracer", &self.tracer).finish_non_exhaustive()
    }
}

impl Traces {
    /// Checks the settings; `None` where they ask for no traces. [`Self::start`] starts what they ask for.
    ///
    /// # Errors
    ///
    /// If the URL or a header cannot be used.
    pub(crate) fn new(settings: &Settings, now: Instant) -> Result<Option<Arc<Self>>, OutletError> {
        let Some(traces) = &settings.traces else { return Ok(None) };
        let (transport, rng) = (transport(traces)?, SmallRng::from_os_rng());
        Ok(Some(Self::with_transport(traces, transport, settings.timeouts.drain, now, rng)))
    }

    fn with_transport(
        traces: &TracesConfig,
        transport: Arc<dyn Transport>,
        drain: Duration,
        now: Instant,
        rng: SmallRng,
    ) -> Arc<Self> {
        let (tracer, receiver) = Tracer::new(traces.rules(), traces.queue, now);
        let in_hand = Arc::<AtomicUsize>::default();
        let delivery = TraceExporter {
            receiver,
            transport,
            timeout: traces.timeout,
            resource: TraceResource {
                service: traces.service.0.clone(),
                instance: instance_name(traces.instance.as_ref().map(AsRef::as_ref)),
            },
            counts: Arc::clone(tracer.counts()),
            in_hand: Arc::clone(&in_hand),
            rng,
        };
        Arc::new(Self {
            tracer,
            prepared: Mutex::new(Some(delivery)),
            running: tokio::sync::Mutex::default(),
            closing: watch::Sender::new(false),
            in_hand,
            drain,
        })
    }

    /// Decides by the settings of the start which requests leave a trace. A reload makes other tracers of it, with
    /// its queue and its counts.
    pub(crate) fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Begins to send traces, until [`Self::end`].
    pub(crate) async fn start(&self) {
        let Some(delivery) = self.prepared.lock().take() else { return };
        self.running.lock().await.spawn(delivery.run(self.closing.subscribe()));
    }

    /// Sends what is left: for what is left of the time to drain, of which requests used `used`, but between
    /// [`END_MIN`] and [`END_MAX`].
    pub(crate) async fn end(&self, used: Duration) {
        self.start().await;
        self.closing.send_replace(true);
        let mut running = self.running.lock().await;
        let all = async { while running.join_next().await.is_some() {} };
        let within = self.drain.saturating_sub(used).clamp(END_MIN, END_MAX);
        if tokio::time::timeout(within, all).await.is_err() {
            running.abort_all();
            let traces = self.in_hand.load(Relaxed);
            tracing::warn!(
                traces,
                "traces could not be sent in the time to drain: these and those in the queue are lost"
            );
        }
    }
}

fn transport(traces: &TracesConfig) -> Result<Arc<dyn Transport>, OutletError> {
    let headers = traces.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_ref().to_owned(), value.clone()));
    let auth = auth_of(traces.auth.as_ref());
    collector_transport(traces.endpoint.clone(), headers, auth, traces.timeout)
}

#[cfg(test)]
mod tests;
