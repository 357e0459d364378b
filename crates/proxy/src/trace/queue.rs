//! The queue between the workers and the control plane: bounded in spans, the newest trace goes at the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::mpsc;

use super::span::TraceSpan;

/// The spans of one request, the root first.
#[derive(Debug)]
pub struct FinishedTrace {
    /// All of them; at least one.
    pub spans: Vec<TraceSpan>,
}

/// Where traces go in.
#[derive(Debug)]
pub(super) struct TraceSender {
    traces: mpsc::Sender<FinishedTrace>,
    spans: Arc<AtomicUsize>,
    spans_max: usize,
}

/// Where traces come out.
#[derive(Debug)]
pub struct TraceReceiver {
    traces: mpsc::Receiver<FinishedTrace>,
    spans: Arc<AtomicUsize>,
}

/// A queue for at most `spans_max` spans, and for one trace at least.
pub(super) fn bounded(spans_max: usize) -> (TraceSender, TraceReceiver) {
    let spans_max = spans_max.max(1);
    // A trace has at least one span.
    let (sender, receiver) = mpsc::channel(spans_max);
    let spans = Arc::<AtomicUsize>::default();
    let sender = TraceSender { traces: sender, spans: Arc::clone(&spans), spans_max };
    (sender, TraceReceiver { traces: receiver, spans })
}

impl TraceSender {
    /// Puts a trace at the end; false when there is no room for it.
    pub(super) fn send(&self, spans: Vec<TraceSpan>) -> bool {
        let count = spans.len();
        let before = self.spans.fetch_add(count, Relaxed);
        let has_room = before == 0 || before + count <= self.spans_max;
        let is_sent = has_room && self.traces.try_send(FinishedTrace { spans }).is_ok();
        if !is_sent {
            self.spans.fetch_sub(count, Relaxed);
        }
        is_sent
    }
}

impl TraceReceiver {
    /// The next trace; `None` when its tracer is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<FinishedTrace> {
        let next = self.traces.recv().await;
        self.note(next)
    }

    /// The next trace, if one waits.
    pub fn try_next(&mut self) -> Option<FinishedTrace> {
        let next = self.traces.try_recv().ok();
        self.note(next)
    }

    /// Traces that wait.
    pub fn waiting(&self) -> usize {
        self.traces.len()
    }

    fn note(&self, next: Option<FinishedTrace>) -> Option<FinishedTrace> {
        next.inspect(|trace| _ = self.spans.fetch_sub(trace.spans.len(), Relaxed))
    }
}
