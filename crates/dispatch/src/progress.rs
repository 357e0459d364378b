//! What a request is doing, for the log line that is written when its future is dropped: then the
//! trail is gone with it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use wellhead_upstream::Slot;

use crate::allowance::Allowance;
use crate::client_id::ClientId;

/// The exchanges of one request that began so far, over all its calls, and what it may still
/// cost. A copy of the trail that can be read from outside, and says only this much.
#[derive(Debug)]
pub struct Progress {
    allowance: Allowance,
    client: Option<ClientId>,
    begun: AtomicU32,
    /// The slot of the last one plus one; 0: none.
    last: AtomicU32,
}

impl Progress {
    /// Of a request that may cost this much.
    pub fn new(allowance: Allowance) -> Self {
        let (begun, last) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { allowance, client: None, begun, last }
    }

    /// Progress of a request that came from this client, or from an unknown one.
    #[must_use]
    pub fn from_client(self, client: Option<ClientId>) -> Self {
        Self { client, ..self }
    }

    /// Where the request came from: clients take turns where calls have to wait.
    pub fn client(&self) -> Option<ClientId> {
        self.client
    }

    /// What it may still cost.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Notes that an exchange with `slot` begins.
    pub fn begin(&self, slot: Slot) {
        self.begun.fetch_add(1, Relaxed);
        self.last.store(u32::from(slot.0) + 1, Relaxed);
    }

    /// How many exchanges began.
    pub fn begun(&self) -> u32 {
        self.begun.load(Relaxed)
    }

    /// The upstream of the last attempt.
    pub fn last(&self) -> Option<Slot> {
        let last = self.last.load(Relaxed).checked_sub(1)?;
        u8::try_from(last).ok().map(Slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_and_how_many() {
        let progress = Progress::new(Allowance::new(9));
        assert_eq!((progress.begun(), progress.last()), (0, None));
        progress.begin(Slot(0));
        assert_eq!((progress.begun(), progress.last()), (1, Some(Slot(0))));
        progress.begin(Slot(127));
        assert_eq!((progress.begun(), progress.last()), (2, Some(Slot(127))));
    }
}
