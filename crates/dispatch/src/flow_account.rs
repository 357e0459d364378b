//! How a large answer that flows is settled with its upstream.

use wellhead_eth::{MethodRow, MethodTable};
use wellhead_transport::TransportError;
use wellhead_upstream::{Change, FlowShare, InFlight, Judge};

use crate::health_log::ExchangeRecord;
use crate::now;

/// The call that a flowing answer belongs to: it went well only when the answer came to its end.
#[derive(Debug)]
pub(crate) struct FlowAccount {
    in_flight: InFlight,
    row: &'static MethodRow,
    /// Held while it flows: one that gives way or ends is not waited for until its client notices.
    _share: FlowShare,
}

impl FlowAccount {
    pub(crate) fn new(in_flight: InFlight, row: &MethodRow, share: FlowShare) -> Self {
        // The same row, for as long as the answer takes.
        let row = &MethodTable::standard().rows()[row.index.get()];
        Self { in_flight, row, _share: share }
    }

    /// The answer waits for its client.
    pub(crate) fn park(&mut self) {
        self.in_flight.park();
    }

    /// It waits for its upstream.
    pub(crate) fn resume(&mut self) {
        self.in_flight.resume();
    }

    /// The answer came to its end.
    pub(crate) fn was_whole(self) {
        let upstream = self.in_flight.upstream();
        if upstream.ended_well(self.row, self.in_flight.began(), now()) == Change::Recovered {
            tracing::info!(upstream = %upstream.identity().id, "upstream recovered");
        }
    }

    /// It broke off, and not by its client's doing.
    pub(crate) fn failed(self, error: &TransportError) {
        let (upstream, began, now) = (self.in_flight.upstream(), self.in_flight.began(), now());
        let verdict = upstream.redacted(Judge::standard().transport(error));
        ExchangeRecord::new(upstream, self.row, began).settle(&verdict, now, now);
    }
}
