//! What callers pay for their calls, and the clock of their limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_access::usage::{UsageMinute, UsageTable};
use wellhead_access::{DenialCounts, LimitDenied, MeterTime, PriceList};
use wellhead_telemetry::clock;

use crate::answer::Refusal;

/// How calls of callers are charged.
#[derive(Debug)]
pub struct AccessTerms {
    /// The price of each method.
    pub prices: PriceList,
    /// What an answer from the cache costs, as a part of the price: 1 is all of it.
    pub cached_share: f64,
    /// Where the time of the meters begins.
    pub epoch: Instant,
    /// What limits refused.
    pub denied: Arc<DenialCounts>,
    /// Where usage is counted, if it is.
    pub usage: Option<Arc<UsageTable>>,
}

impl AccessTerms {
    /// Default prices, for answers from the cache too.
    pub fn new(epoch: Instant) -> Self {
        Self {
            prices: PriceList::default(),
            cached_share: 1.0,
            epoch,
            denied: Arc::default(),
            usage: None,
        }
    }

    /// The time of the meters at an instant.
    pub fn elapsed(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch)
    }

    /// The time of the meters at an instant, which is about now.
    pub(crate) fn meter_time(&self, at: Instant) -> MeterTime {
        MeterTime { elapsed: self.elapsed(at), unix_seconds: clock::unix_seconds() }
    }

    /// Counts and words a refusal by a limit.
    pub(crate) fn refuse(&self, denied: LimitDenied) -> Refusal {
        self.denied.count(&denied);
        Refusal::over_limit(denied)
    }

    /// The minute in which a call that ends now is counted.
    pub(crate) fn minute(&self) -> UsageMinute {
        UsageMinute::of(Duration::from_secs(clock::unix_seconds()))
    }

    /// What an answer from the cache costs where a call costs `credits`.
    pub(crate) fn cached_credits(&self, credits: u32) -> u32 {
        // Whole credits, rounded up: only a free call stays free.
        (f64::from(credits) * self.cached_share.clamp(0.0, 1.0)).ceil() as u32
    }
}
