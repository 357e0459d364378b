//! The trace of a request as long as its ids are not asked for: few requests are ever told of.

use std::time::Instant;

use wellhead_transport::{SpanId, TraceContext, TraceId, Transport};
use wellhead_upstream::Slot;

use crate::trail::attempt_context;

/// What the ids of a request's trace are made of, as often as they are asked for.
#[derive(Debug, Clone)]
pub struct TraceSeed {
    numbers: [u64; 2],
    /// Boxed, as few requests have one.
    parent: Option<Box<TraceContext>>,
    is_sampled: bool,
}

impl TraceSeed {
    /// From random numbers, below the span of a client where there is one.
    pub fn new(numbers: [u64; 2], parent: Option<Box<TraceContext>>, is_sampled: bool) -> Self {
        Self { numbers, parent, is_sampled }
    }

    /// The span of the client that sent the request.
    pub fn parent(&self) -> Option<SpanId> {
        self.parent.as_ref().map(|parent| parent.span_id)
    }

    /// The span of the request.
    pub fn context(&self) -> TraceContext {
        let [first, second] = self.numbers;
        // Whether a request is sampled may depend on how large the first is, which no id may show.
        let span_id = SpanId::of(first).child(second);
        let trace_id = match &self.parent {
            Some(parent) => parent.trace_id,
            None => {
                TraceId::of([u64::from_be_bytes(SpanId::of(second).child(first).bytes()), second])
            }
        };
        TraceContext { trace_id, span_id, is_sampled: self.is_sampled }
    }
}

/// The request that an attempt is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TracedOrigin<'a> {
    pub(crate) seed: &'a TraceSeed,
    pub(crate) received_at: Instant,
}

impl TracedOrigin<'_> {
    /// The span of an exchange with `slot`, for an upstream that is told of it.
    pub(crate) fn attempt(
        self,
        slot: Slot,
        began: Instant,
        transport: &dyn Transport,
    ) -> Option<Box<TraceContext>> {
        transport.is_told_of_traces().then(|| {
            let after = began.saturating_duration_since(self.received_at);
            Box::new(attempt_context(&self.seed.context(), slot, after))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_always_the_same_and_differ_from_those_of_other_requests() {
        let of = |number| TraceSeed::new([number, 7], None, false).context();
        let ids = |it: TraceContext| (it.trace_id.bytes(), it.span_id.bytes());
        assert_eq!(of(5), of(5));
        let requests: Vec<_> = (1..=10_000).map(of).map(ids).collect();
        assert_eq!(requests.iter().map(|it| it.0).collect::<HashSet<_>>().len(), 10_000);
        assert_eq!(requests.iter().map(|it| it.1).collect::<HashSet<_>>().len(), 10_000);
    }

    #[test]
    fn a_small_number_does_not_show_in_an_id() {
        // As those of a small sample are.
        let first: HashSet<_> = (1..=10_000)
            .map(|number| TraceSeed::new([number, 7], None, true).context().trace_id.bytes()[0])
            .collect();
        assert_eq!(first.len(), 256);
    }

    #[test]
    fn it_is_below_the_span_of_its_client() {
        let parent = TraceSeed::new([1, 2], None, true).context();
        let seed = TraceSeed::new([3, 4], Some(Box::new(parent)), false);
        assert_eq!(seed.parent(), Some(parent.span_id));
        assert_eq!(seed.context().trace_id, parent.trace_id);
        assert_ne!(seed.context().span_id, parent.span_id);
        assert!(!seed.context().is_sampled);
    }
}
