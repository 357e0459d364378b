//! What one request carries beside the head that all requests to a peer have in common.

use bytes::Bytes;
use wellhead_transport::TraceContext;

/// The parts of one request that differ from those of others.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingCall {
    pub(crate) body: Bytes,
    /// Sent as `traceparent`.
    pub(crate) trace: Option<Box<TraceContext>>,
}

impl OutgoingCall {
    /// Of no trace.
    pub(crate) fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), trace: None }
    }
}
