//! One call to be answered.

use std::sync::Arc;
use std::time::Instant;

use wellhead_eth::MethodRow;
use wellhead_transport::MemoryBudget;
use wellhead_upstream::UpstreamSet;

use crate::allowance::Allowance;
use crate::ballot::Ballot;
use crate::client_id::ClientId;
use crate::progress::Progress;
use crate::trace_seed::{TraceSeed, TracedOrigin};

/// The params of a call that names its block by the hash, for upstreams that honour one.
#[derive(Debug, Clone, Copy)]
pub struct AtHash<'a> {
    /// Raw JSON.
    pub params: &'a [u8],
    /// The upstreams that are sent these in the place of [`Job::params`].
    pub honoured_by: UpstreamSet,
}

/// One call to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The row of its method.
    pub row: &'a MethodRow,
    /// The method as the client wrote it.
    pub method: &'a str,
    /// Its params as raw JSON.
    pub params: Option<&'a [u8]>,
    /// Other params for some upstreams.
    pub at_hash: Option<AtHash<'a>>,
    /// When the request arrived; the trail counts from here.
    pub received_at: Instant,
    /// When the client must have an answer.
    pub deadline: Instant,
    /// A null is true from any upstream: the call asks for a block that is not there yet. Asking
    /// elsewhere would multiply the load of clients that poll.
    pub null_is_final: bool,
    /// The chain has the block that the call names: an upstream that answers null lacks it.
    pub is_there: bool,
    /// This client takes a large result as it arrives; see [`Served::rest`](crate::Served::rest).
    pub flows_to: Option<ClientId>,
    /// How many must answer alike; `None`: one is enough. Only for reads that may be repeated,
    /// and their results are held whole.
    pub ballot: Option<Ballot>,
    /// Where the exchanges of the request are noted as they begin, and what it may still cost;
    /// `None`: what this call may.
    pub progress: Option<&'a Progress>,
    /// The first exchange was taken from that already.
    pub is_first_paid: bool,
    /// Where its answer is counted, if that is a part of all answers: those to one batch.
    pub room: Option<&'a Arc<MemoryBudget>>,
    /// The trace of its request, if that may have one; attempts become [`attempt_context`](crate::attempt_context)s of its span.
    pub trace: Option<&'a TraceSeed>,
}

impl<'a> Job<'a> {
    /// A call without params, of which nothing else is known.
    pub fn new(
        row: &'a MethodRow,
        method: &'a str,
        received_at: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            row,
            method,
            params: None,
            at_hash: None,
            received_at,
            deadline,
            null_is_final: false,
            is_there: false,
            flows_to: None,
            ballot: None,
            progress: None,
            is_first_paid: false,
            room: None,
            trace: None,
        }
    }

    /// Whose call it is, where that is known.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.progress.and_then(Progress::client).or(self.flows_to)
    }

    /// What its attempts belong to, if it is traced.
    pub(crate) fn traced(&self) -> Option<TracedOrigin<'a>> {
        let received_at = self.received_at;
        self.trace.map(|seed| TracedOrigin { seed, received_at })
    }

    /// What its request may still cost.
    pub fn allowance(&self) -> Option<&Allowance> {
        self.progress.map(Progress::allowance)
    }
}
