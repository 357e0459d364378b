//! One exchange under way, counted from its admission until it is dropped, and its place among
//! those whose answers flow.

use std::sync::Arc;
use std::time::Instant;

use crate::control::ExchangePlace;
use crate::trials::Trials;
use crate::upstream::Upstream;

/// One exchange in flight; dropping it ends the count, and gives back what it had claimed
/// to find out, however the call ended.
#[derive(Debug)]
pub struct InFlight {
    upstream: Arc<Upstream>,
    began: Instant,
    trials: Trials,
    place: ExchangePlace,
    is_parked: bool,
}

impl InFlight {
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        trials: Trials,
        place: ExchangePlace,
        began: Instant,
    ) -> Self {
        Self { upstream, began, trials, place, is_parked: false }
    }

    /// The rest of its answer waits for the client: until [`InFlight::resume`] it takes no place
    /// of the limit that is learnt.
    pub fn park(&mut self) {
        if !std::mem::replace(&mut self.is_parked, true) {
            self.upstream.controls().parked(self.place.is_bulky);
        }
    }

    /// The rest of its answer waits for the upstream again.
    pub fn resume(&mut self) {
        if std::mem::replace(&mut self.is_parked, false) {
            self.upstream.controls().resumed(self.place.is_bulky);
        }
    }

    /// Whose call it is.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// When it began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether the upstream, or this class of calls there, is unwell and another call is
    /// finding out whether it is back: this one may go where that is better known.
    pub fn is_second_on_trial(&self) -> bool {
        self.trials.is_second()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        match self.is_parked {
            true => self.upstream.controls().left_parked(self.place),
            false => self.upstream.controls().ended(self.place),
        }
        if self.trials.ours != 0 {
            self.upstream.release(self.trials, self.began);
        }
    }
}

/// The place of one large answer among those that may flow from its upstream, free when dropped.
#[derive(Debug)]
pub struct FlowShare {
    upstream: Arc<Upstream>,
}

impl FlowShare {
    /// A place at `upstream`; `None` when all of them are taken.
    pub fn begin(upstream: &Arc<Upstream>) -> Option<Self> {
        upstream.controls().begin_flow().then(|| Self { upstream: Arc::clone(upstream) })
    }
}

impl Drop for FlowShare {
    fn drop(&mut self) {
        self.upstream.controls().end_flow();
    }
}
