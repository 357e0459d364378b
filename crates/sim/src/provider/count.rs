//! What a fake provider did: evidence for tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often a provider did what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProviderCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Of these, connections over HTTP/2.
    pub http2: u64,
    /// HTTP requests; a batch is one, a refused stream none.
    pub requests: u64,
    /// Calls in them.
    pub calls: u64,
    /// Of the calls, those turned away by bars, buckets and bounds.
    pub refusals: u64,
    /// Of the calls, those answered with a lie.
    pub lies: u64,
    /// Streams ended with `REFUSED_STREAM` because of the cap.
    pub refused_streams: u64,
    /// Connections ended because of the cap.
    pub fatal: u64,
    /// Connections ended because they had their requests.
    pub recycled: u64,
    /// Connections ended because they had none for too long.
    pub idle_closed: u64,
    /// Connections told GOAWAY on purpose. A graceful one may be two frames.
    pub goaways: u64,
    /// Most streams at once that one connection had, the one above the cap not counted.
    pub streams_peak: u64,
    /// Requests that wait for a slot or in a line, now.
    pub waiting: u64,
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
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

counters!(
    connections,
    http2,
    requests,
    calls,
    refusals,
    lies,
    refused_streams,
    fatal,
    recycled,
    idle_closed,
    goaways,
    streams_peak,
    waiting,
);

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
