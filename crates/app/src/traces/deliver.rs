//! Batches of traces over HTTP, one request at a time.
//!
//! As OTLP asks for, an answer of 429, 502, 503 or 504 and a failure of the connection are tried again, after a
//! [`pause`] or the `Retry-After` of the answer; all other errors mean that the batch is not wanted. A trace that is
//! a minute late is of no use to a reader of traces now, so a batch is given up after [`RETRY_FOR`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::time::Instant;
use wellhead_proxy::{FinishedTrace, TRACE_BATCH_SPANS, TraceCounts, TraceLoss, TraceReceiver};
use wellhead_telemetry::clock::{self, ClockPair};
use wellhead_transport::Transport;

use super::encode::{TraceResource, body, rejected_spans};
use crate::outlet::{PAUSE_MIN, pause, post, wait};

/// A batch that is not full leaves after this.
const LINGER: Duration = Duration::from_secs(1);
/// How long a batch is tried.
pub(super) const RETRY_FOR: Duration = Duration::from_secs(60);
/// Of an answer this much is read.
const ANSWER_BYTES: usize = 4_096;

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExportAttempt {
    /// The collector took the batch, except for this many spans.
    Taken(u64),
    /// It is not wanted.
    Refused(String),
    /// It may be taken later.
    Failed(String, Option<Duration>),
}

/// Sends what comes out of a queue.
pub(super) struct TraceExporter {
    pub(super) receiver: TraceReceiver,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) timeout: Duration,
    pub(super) resource: TraceResource,
    pub(super) counts: Arc<TraceCounts>,
    /// Traces of the batch that is being sent.
    pub(super) in_hand: Arc<AtomicUsize>,
    pub(super) rng: SmallRng,
}

/// Whether the collector took the last batch. Each change leaves one line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CollectorState {
    Well,
    Failing,
}

impl TraceExporter {
    /// Ends when `closing` says so and nothing is left.
    pub(super) async fn run(mut self, mut closing: watch::Receiver<bool>) {
        let mut collector = CollectorState::Well;
        loop {
            let traces = self.gather(&mut closing).await;
            if traces.is_empty() {
                return;
            }
            self.in_hand.store(traces.len(), Relaxed);
            collector = self.deliver(traces, collector, &mut closing).await;
            self.in_hand.store(0, Relaxed);
        }
    }

    /// What waits, as soon as it fills a batch or has waited long enough; nothing when all was sent and `closing`
    /// says so, or when the tracer is gone.
    async fn gather(&mut self, closing: &mut watch::Receiver<bool>) -> Vec<FinishedTrace> {
        let first = tokio::select! {
            biased;
            first = self.receiver.next() => first,
            () = closed(closing) => None,
        };
        let Some(first) = first else { return Vec::new() };
        tokio::select! {
            () = tokio::time::sleep(LINGER) => {}
            () = self.receiver.batch_is_full() => {}
            () = closed(closing) => {}
        }
        let mut spans = first.spans.len();
        let mut traces = vec![first];
        while spans < TRACE_BATCH_SPANS
            && let Some(trace) = self.receiver.try_next()
        {
            spans += trace.spans.len();
            traces.push(trace);
        }
        traces
    }

    async fn deliver(
        &mut self,
        traces: Vec<FinishedTrace>,
        mut collector: CollectorState,
        closing: &mut watch::Receiver<bool>,
    ) -> CollectorState {
        let clock = ClockPair { now: Instant::now().into_std(), unix: clock::unix_time() };
        let body = body(&traces, &self.resource, clock);
        let count = traces.len() as u64;
        drop(traces);
        let (began, mut failures) = (Instant::now(), 0_u32);
        loop {
            let (why, retry_after) = match self.attempt(body.clone()).await {
                ExportAttempt::Taken(rejected) => {
                    self.counts.count_sent(count);
                    note_taken(collector, rejected);
                    return CollectorState::Well;
                }
                ExportAttempt::Refused(why) => {
                    self.counts.count_dropped(TraceLoss::Refused, count);
                    note_refused(collector, &why);
                    return CollectorState::Failing;
                }
                ExportAttempt::Failed(why, retry_after) => (why, retry_after),
            };
            note_not_taken(collector, &why);
            collector = CollectorState::Failing;
            failures = failures.saturating_add(1);
            let pause = pause(PAUSE_MIN, failures, retry_after, &mut self.rng);
            if began.elapsed() + pause > RETRY_FOR {
                self.counts.count_dropped(TraceLoss::Undelivered, count);
                return collector;
            }
            wait(pause, closing).await;
        }
    }

    async fn attempt(&self, body: Bytes) -> ExportAttempt {
        match post(&*self.transport, body, self.timeout, ANSWER_BYTES).await {
            Err(why) => ExportAttempt::Failed(why, None),
            Ok(reply) => judge(reply.status, reply.retry_after, &reply.body),
        }
    }
}

/// Waits until `closing` says so, or is gone.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let closed = closing.wait_for(|closing| *closing).await;
    drop(closed);
}

/// What an answer means for the batch that was sent.
pub(super) fn judge(status: u16, retry_after: Option<Duration>, answer: &[u8]) -> ExportAttempt {
    match status {
        200..=299 => ExportAttempt::Taken(rejected_spans(answer)),
        429 | 502 | 503 | 504 => ExportAttempt::Failed(format!("HTTP {status}"), retry_after),
        _ => ExportAttempt::Refused(format!("HTTP {status}")),
    }
}

/// The first of several failures leaves a line: what follows is counted.
fn note_refused(collector: CollectorState, why: &str) {
    match collector {
        CollectorState::Well => tracing::warn!(why, "traces were refused: they are dropped"),
        CollectorState::Failing => tracing::debug!(why, "traces were refused"),
    }
}

/// As [`note_refused`], of traces that are sent again.
fn note_not_taken(collector: CollectorState, why: &str) {
    match collector {
        CollectorState::Well => {
            tracing::warn!(why, "traces were not taken: they are sent again for a minute");
        }
        CollectorState::Failing => tracing::debug!(why, "traces were not taken"),
    }
}

fn note_taken(collector: CollectorState, rejected: u64) {
    if collector == CollectorState::Failing {
        tracing::info!("traces are taken again");
    }
    if rejected > 0 {
        tracing::warn!(rejected, "the collector took traces without these spans");
    }
}
