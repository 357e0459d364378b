//! The present upstreams of a chain, for loops that outlive a change of the settings.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::upstream::Upstream;

/// The upstreams of one chain as the settings name them now. Readers never wait.
#[derive(Debug, Default)]
pub struct UpstreamList(ArcSwap<Vec<Arc<Upstream>>>);

impl UpstreamList {
    /// These upstreams, to be shared.
    pub fn of(upstreams: &[Arc<Upstream>]) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(upstreams.to_vec())))
    }

    /// The upstreams at this moment. To be held for a moment.
    pub fn load(&self) -> Guard<Arc<Vec<Arc<Upstream>>>> {
        self.0.load()
    }

    /// From now on these upstreams.
    pub fn store(&self, upstreams: &[Arc<Upstream>]) {
        self.0.store(Arc::new(upstreams.to_vec()));
    }
}
