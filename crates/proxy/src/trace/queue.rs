//! The queue between the workers and the control plane: bounded in spans, the newest trace goes at the bound.
//!
//! What takes traces out is woken by the first trace and by a full batch. To be woken by each would cost the worker a
//! system call and the core a change of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{Notify, mpsc};

use super::span::TraceSpan;

/// Spans that leave together: some 300 KB.
pub const TRACE_BATCH_SPANS: usize = 512;

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
    fill: Arc<QueueFill>,
    spans_max: usize,
}

/// Where traces come out.
#[derive(Debug)]
pub struct TraceReceiver {
    traces: mpsc::Receiver<FinishedTrace>,
    fill: Arc<QueueFill>,
}

/// How full a queue is.
#[derive(Debug)]
struct QueueFill {
    /// Spans that wait.
    spans: AtomicUsize,
    /// Spans that are a full batch: fewer than [`TRACE_BATCH_SPANS`] where the queue is small, so that it is emptied
    /// before it overflows.
    batch: usize,
    /// Told when a batch becomes full.
    is_full: Notify,
}

/// A queue for at most `spans_max` spans, and for one trace at least.
pub(super) fn bounded(spans_max: usize) -> (TraceSender, TraceReceiver) {
    let spans_max = spans_max.max(1);
    // A trace has at least one span.
    let (sender, receiver) = mpsc::channel(spans_max);
    let fill = Arc::new(QueueFill {
        spans: AtomicUsize::new(0),
        batch: TRACE_BATCH_SPANS.min(spans_max.div_ceil(2)),
        is_full: Notify::new(),
    });
    let sender = TraceSender { traces: sender, fill: Arc::clone(&fill), spans_max };
    (sender, TraceReceiver { traces: receiver, fill })
}

impl TraceSender {
    /// Puts a trace at the end; false when there is no room for it.
    pub(super) fn send(&self, spans: Vec<TraceSpan>) -> bool {
        let (fill, count) = (&*self.fill, spans.len());
        let before = fill.spans.fetch_add(count, Relaxed);
        let has_room = before == 0 || before + count <= self.spans_max;
        let is_sent = has_room && self.traces.try_send(FinishedTrace { spans }).is_ok();
        if !is_sent {
            fill.spans.fetch_sub(count, Relaxed);
        } else if before < fill.batch && before + count >= fill.batch {
            fill.is_full.notify_one();
        }
        is_sent
    }
}

impl TraceReceiver {
    /// The next trace; `None` when its tracers are gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<FinishedTrace> {
        let next = self.traces.recv().await;
        self.note(next)
    }

    /// The next trace, if one waits.
    pub fn try_next(&mut self) -> Option<FinishedTrace> {
        let next = self.traces.try_recv().ok();
        self.note(next)
    }

    /// Waits until a full batch waits. Cancel-safe.
    pub async fn batch_is_full(&self) {
        while self.fill.spans.load(Relaxed) < self.fill.batch {
            self.fill.is_full.notified().await;
        }
    }

    /// Traces that wait.
    pub fn waiting(&self) -> usize {
        self.traces.len()
    }

    fn note(&self, next: Option<FinishedTrace>) -> Option<FinishedTrace> {
        next.inspect(|trace| _ = self.fill.spans.fetch_sub(trace.spans.len(), Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use wellhead_transport::{SpanId, TraceId};

    use super::*;
    use crate::trace::span::SpanKind;

    fn trace() -> Vec<TraceSpan> {
        let now = wellhead_dispatch::now();
        vec![TraceSpan {
            trace_id: TraceId::of([1, 2]),
            span_id: SpanId::of(1),
            parent: None,
            is_parent_remote: false,
            is_sampled: true,
            name: "eth_call".into(),
            kind: SpanKind::Server,
            began: now,
            ended: now,
            attributes: Vec::new(),
            is_error: false,
        }]
    }

    #[test]
    fn a_batch_is_full_before_a_small_queue_is() {
        for (spans_max, full_at) in [(1, 1), (2, 1), (100, 50), (1_023, 512), (8_192, 512)] {
            let (sender, mut receiver) = bounded(spans_max);
            {
                let mut full = Box::pin(receiver.batch_is_full());
                for sent in 1..=full_at {
                    assert_eq!(full.as_mut().now_or_never(), None, "{sent} of {spans_max}");
                    assert!(sender.send(trace()), "{sent} of {spans_max}");
                }
                assert_eq!(full.as_mut().now_or_never(), Some(()), "{spans_max}");
            }
            assert_eq!(receiver.batch_is_full().now_or_never(), Some(()), "it is still full");
            assert!(receiver.try_next().is_some());
            assert_eq!(receiver.batch_is_full().now_or_never(), None, "one is missing");
        }
    }
}
