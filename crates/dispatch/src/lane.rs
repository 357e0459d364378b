//! What one worker thread uses to reach the upstreams of one chain.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_transport::Transport;
use wellhead_upstream::Slot;

/// The transports of one chain, by slot, and a source of chance. Each worker has
/// its own, so that its connections and its lock are never fought over.
pub struct Lane {
    transports: Box<[Arc<dyn Transport>]>,
    rng: Mutex<SmallRng>,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("transports", &self.transports.len()).finish_non_exhaustive()
    }
}

impl Lane {
    /// A lane over `transports`, which must be in the order of the roster.
    pub fn new(transports: Vec<Arc<dyn Transport>>, seed: u64) -> Self {
        Self { transports: transports.into(), rng: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    /// The transport of one upstream.
    pub fn transport(&self, slot: Slot) -> &dyn Transport {
        &*self.transports[slot.index()]
    }

    /// Uses the lane's chance. Held for the moment of a plan or a draw only.
    pub fn with_rng<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }
}
