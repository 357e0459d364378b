//! Methods that an upstream does not offer, each kept from it for a while.
//!
//! Room for all of them is made with the first ban: most upstreams of a large roster are never
//! asked for what they do not offer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use wellhead_eth::{MethodRow, MethodTable};

/// Until when each method is kept from an upstream, in milliseconds of the upstream's epoch.
#[derive(Debug, Default)]
pub(crate) struct MethodBans {
    until_ms: OnceLock<Box<[AtomicU64]>>,
}

impl MethodBans {
    /// When the ban of this method ends; zero for one that was never banned.
    pub(crate) fn until_ms(&self, row: &MethodRow) -> u64 {
        self.until_ms.get().map_or(0, |rows| rows[row.index.get()].load(Ordering::Relaxed))
    }

    /// Keeps the method from the upstream until then.
    pub(crate) fn ban(&self, row: &MethodRow, until_ms: u64) {
        let none = || MethodTable::standard().rows().iter().map(|_| AtomicU64::new(0)).collect();
        self.until_ms.get_or_init(none)[row.index.get()].store(until_ms, Ordering::Relaxed);
    }
}
