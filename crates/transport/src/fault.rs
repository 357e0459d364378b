//! A transport that misbehaves on purpose, around one that works.
//!
//! Tests script the next faults; what is not scripted passes through.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::{
    Exchange, ExchangeFuture, Sent, Timing, Transport, TransportError, TransportErrorKind,
    WireReply,
};

/// What happens to one exchange instead of reaching the inner transport.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Fails with this error.
    Fail(TransportErrorKind, Sent),
    /// Answers with this status and body.
    Answer(u16, Bytes),
    /// Never resolves: the upstream accepted and stays silent.
    Hang,
    /// Reaches the inner transport after all.
    Pass,
}

/// Wraps a transport and plays a script of faults, one per exchange, in order.
pub struct FaultyTransport {
    inner: Arc<dyn Transport>,
    script: Mutex<VecDeque<Fault>>,
}

impl FaultyTransport {
    /// A wrapper that passes everything until faults are pushed.
    pub fn new(inner: Arc<dyn Transport>) -> Self {
        Self { inner, script: Mutex::default() }
    }

    /// Adds `fault` behind those already waiting.
    pub fn push(&self, fault: Fault) {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    fn next(&self) -> Fault {
        let next = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or(Fault::Pass)
    }
}

impl fmt::Debug for FaultyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyTransport").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Transport for FaultyTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        match self.next() {
            Fault::Pass => self.inner.exchange(exchange),
            Fault::Hang => Box::pin(std::future::pending()),
            Fault::Fail(kind, sent) => {
                Box::pin(async move { Err(TransportError::new(kind, sent, "injected")) })
            }
            Fault::Answer(status, body) => Box::pin(async move {
                Ok(WireReply::whole(status, body, Timing::default()).shortened(exchange.whole_max))
            }),
        }
    }
}
