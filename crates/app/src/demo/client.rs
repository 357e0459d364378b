//! The demo's client: a steady rate of realistic calls, and how they went.
//!
//! Open loop: a call is sent when it is due, however slow the answers are; its
//! latency counts from then.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use wellhead_jsonrpc::{ReplyOutcome, scan};
use wellhead_net::{
    ClientSettings, Endpoint, HttpTransport, HttpVersion, Resolver, TlsClient, TransportResources,
    TrustedRoots,
};
use wellhead_sim::traffic::Traffic;
use wellhead_sim::world::KnownWorld;
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{Exchange, Sent, Transport, TransportError, TransportErrorKind};

use crate::terminal::CommandError;

/// The client gives up after so long; longer than the proxy's own deadline.
const PATIENCE: Duration = Duration::from_secs(40);
/// Calls in flight; over it a call that is due counts as failed.
const IN_FLIGHT_MAX: usize = 1_000;
/// Percentiles are over so many of the last calls.
const WINDOW: usize = 2_000;
/// Calls are sent in bunches this often, so that high rates need no fine timer.
const TICK: Duration = Duration::from_millis(10);

/// How the calls went so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// Over the last calls.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) last_failure: Option<String>,
}

/// Sends calls and counts.
pub(crate) struct Client {
    transport: HttpTransport,
    rate: u32,
    seed: u64,
    calls: AtomicU64,
    failures: AtomicU64,
    in_flight: AtomicUsize,
    latencies: Mutex<VecDeque<Duration>>,
    last_failure: Mutex<Option<String>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, rate: u32, seed: u64) -> Result<Self, CommandError> {
        let url = SecretUrl::parse(&format!("http://{address}/")).map_err(CommandError::system)?;
        let endpoint = Endpoint { version: HttpVersion::H1, ..Endpoint::new(url) };
        let tls = TlsClient::new(TrustedRoots::Public).map_err(CommandError::system)?;
        let shared = TransportResources::new(Arc::new(Resolver::new()), Arc::new(tls));
        let transport = HttpTransport::new(&endpoint, ClientSettings::default(), shared, seed)
            .map_err(CommandError::system)?;
        Ok(Self {
            transport,
            rate,
            seed,
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            latencies: Mutex::default(),
            last_failure: Mutex::default(),
        })
    }

    /// Calls for ever.
    pub(crate) async fn call(self: Arc<Self>, known: watch::Receiver<KnownWorld>) {
        let mut traffic = Traffic::new(self.seed, known.borrow().clone());
        let mut known = known;
        let began = tokio::time::Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = 0_u64;
        loop {
            ticks.tick().await;
            if known.has_changed().unwrap_or(false) {
                traffic.learn(known.borrow_and_update().clone());
            }
            let due = began.elapsed().as_secs_f64() * f64::from(self.rate);
            while (sent as f64) < due {
                sent += 1;
                let Some(call) = traffic.next() else { return };
                let body = Bytes::from(call.body(sent));
                if self.in_flight.load(Ordering::Relaxed) >= IN_FLIGHT_MAX {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    self.failed("the client has too many calls in flight".to_owned());
                    continue;
                }
                let client = Arc::clone(&self);
                tokio::spawn(async move { client.one(call.method, body).await });
            }
        }
    }

    async fn one(&self, method: &str, body: Bytes) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let began = wellhead_dispatch::now();
        let deadline = began + PATIENCE;
        let exchange =
            Exchange { body, deadline, whole_max: usize::MAX, bulky: false, trace: None };
        let reply = tokio::time::timeout_at(deadline.into(), self.transport.exchange(exchange))
            .await
            .unwrap_or_else(|_| {
                Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, ""))
            });
        let took = wellhead_dispatch::now().saturating_duration_since(began);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        match reply {
            Err(error) => self.failed(format!("{method}: {error}")),
            Ok(reply) => match scan(&reply.body).map(|envelope| envelope.outcome) {
                Ok(ReplyOutcome::Result(_)) => self.answered(took),
                Ok(ReplyOutcome::Error(error))
                    if is_verdict_of_a_contract(error.of(&reply.body)) =>
                {
                    self.answered(took);
                }
                Ok(ReplyOutcome::Error(_)) | Err(_) => {
                    let text = String::from_utf8_lossy(&reply.body);
                    let text: String = text.chars().take(300).collect();
                    self.failed(format!("{method}: HTTP {}: {text}", reply.status));
                }
            },
        }
    }

    fn answered(&self, took: Duration) {
        let mut latencies = self.latencies.lock();
        if latencies.len() == WINDOW {
            latencies.pop_front();
        }
        latencies.push_back(took);
    }

    fn failed(&self, why: String) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%why, "a call of the demo client failed");
        *self.last_failure.lock() = Some(why);
    }

    pub(crate) fn figures(&self) -> Figures {
        let mut sorted: Vec<Duration> = self.latencies.lock().iter().copied().collect();
        sorted.sort_unstable();
        Figures {
            calls: self.calls.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            p50: percentile(&sorted, 50),
            p99: percentile(&sorted, 99),
            last_failure: self.last_failure.lock().clone(),
        }
    }

    /// The last words.
    pub(crate) fn summary(&self) -> String {
        let Figures { calls, failures, p50, p99, last_failure } = self.figures();
        let mut text = format!(
            "{calls} calls, {failures} failed; p50 {:.1} ms, p99 {:.1} ms",
            p50.as_secs_f64() * 1e3,
            p99.as_secs_f64() * 1e3
        );
        if let Some(failure) = last_failure {
            text.push_str(&format!("\nlast failure: {failure}"));
        }
        text
    }
}

/// A contract that reverts did what it should: the call was answered.
fn is_verdict_of_a_contract(error: &[u8]) -> bool {
    wellhead_jsonrpc::scan_error(error).is_some_and(|error| error.code == 3)
}

/// Nearest rank over sorted values; zero while there are none.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let values: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Duration::from_millis(100));
        assert_eq!(percentile(&values, 99), Duration::from_millis(198));
        assert_eq!(percentile(&values[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn a_revert_is_an_answer() {
        assert!(is_verdict_of_a_contract(br#"{"code":3,"message":"execution reverted"}"#));
        assert!(!is_verdict_of_a_contract(br#"{"code":-32002,"message":"no upstream"}"#));
    }
}
