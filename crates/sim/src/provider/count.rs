//! What a fake provider did: evidence for tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counts as they are read, and the living counters they are read from.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often a provider did what.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct ProviderCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct ProviderCounters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl ProviderCounters {
            pub(super) fn snapshot(&self) -> ProviderCounts {
                ProviderCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Of these, connections over HTTP/2.
    http2,
    /// HTTP requests; a batch is one, a refused stream none.
    requests,
    /// Calls in them.
    calls,
    /// Of the calls, those turned away by bars, buckets and bounds.
    refusals,
    /// Of the calls, those answered with a lie.
    lies,
    /// Streams ended with `REFUSED_STREAM` because of the cap.
    refused_streams,
    /// Connections ended because of the cap.
    fatal,
    /// Connections ended because they had their requests.
    recycled,
    /// Connections ended because they had none for too long.
    idle_closed,
    /// Connections told GOAWAY on purpose. A graceful one may be two frames.
    goaways,
    /// Most streams at once that one connection had, the one above the cap not counted.
    streams_peak,
    /// Requests that wait for a slot or in a line, now.
    waiting,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// This many more.
pub(super) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// Counts as one until it is dropped.
#[derive(Debug)]
pub(super) struct Present<'a>(&'a AtomicU64);

impl<'a> Present<'a> {
    pub(super) fn new(counter: &'a AtomicU64) -> Self {
        count(counter);
        Self(counter)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
