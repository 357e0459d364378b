//! A transport without a network: an exchange with a [`SimNode`] in this process.
//!
//! Delays are tokio sleeps, so that a paused clock plays hours in moments. A
//! node that hangs stays silent until the caller gives up; the deadline is the
//! caller's to enforce.

use std::sync::Arc;

use tokio::time::Instant;
use wellhead_transport::{
    Exchange, ExchangeFuture, Sent, Timing, Transport, TransportError, TransportErrorKind,
    WireReply,
};

use crate::node::{SimNode, WireEnding};

/// Reaches one simulated node.
#[derive(Debug, Clone)]
pub struct SimTransport {
    node: Arc<SimNode>,
}

impl SimTransport {
    /// A way to `node`.
    pub fn new(node: Arc<SimNode>) -> Self {
        Self { node }
    }

    /// The node it reaches.
    pub fn node(&self) -> &Arc<SimNode> {
        &self.node
    }
}

impl Transport for SimTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        Box::pin(async move {
            let started = Instant::now();
            // The node answers what is true when the request arrives, not when
            // the answer does: an answer may be old when it is read, as in life.
            let reply = self.node.answer(&exchange.body);
            let failed = |kind, sent| Err(TransportError::new(kind, sent, "simulated"));
            match reply.ending {
                WireEnding::Refused => return failed(TransportErrorKind::Connect, Sent::No),
                WireEnding::Silence => return std::future::pending().await,
                WireEnding::Whole | WireEnding::Cut | WireEnding::Reset => {}
            }
            if !reply.delay.is_zero() {
                tokio::time::sleep(reply.delay).await;
            }
            match reply.ending {
                WireEnding::Cut => failed(TransportErrorKind::Truncated, Sent::Maybe),
                WireEnding::Reset => failed(TransportErrorKind::Closed, Sent::Maybe),
                WireEnding::Whole | WireEnding::Refused | WireEnding::Silence => {
                    let retry_after = reply.retry_after();
                    let total = started.elapsed();
                    let timing =
                        Timing { first_byte: total, total, reused: true, ..Timing::default() };
                    Ok(WireReply::whole(reply.status, reply.body, timing)
                        .with_retry_after(retry_after)
                        .shortened(exchange.whole_max))
                }
            }
        })
    }
}
