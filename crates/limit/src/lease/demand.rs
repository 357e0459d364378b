//! What calls ask for: how many a second, and what one costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The low bits hold thousandths of credits, the high ones calls: one addition counts both.
/// They are read at least once a lease, and 16 million calls or 10^9 credits fit.
const CREDIT_BITS: u32 = 40;
const CREDITS: u64 = (1 << CREDIT_BITS) - 1;

/// Counts on the request path.
#[derive(Debug, Default)]
pub(super) struct LeaseDemand(AtomicU64);

impl LeaseDemand {
    pub(super) fn add(&self, price: u64) {
        self.0.fetch_add(1 << CREDIT_BITS | price.min(CREDITS), Relaxed);
    }

    /// Calls and credits since the last time.
    fn collect(&self) -> (u64, u64) {
        let counted = self.0.swap(0, Relaxed);
        (counted >> CREDIT_BITS, counted & CREDITS)
    }
}

/// Smooths on the control plane.
#[derive(Debug, Default)]
pub(super) struct DemandRate {
    /// Thousandths of credits a second.
    smooth: f64,
    /// Mean price of a call, in thousandths.
    price: f64,
    since: Duration,
    credits: u64,
    /// What came since then, a second; over a lease at least.
    fresh: f64,
}

impl DemandRate {
    /// Takes in what was counted.
    ///
    /// A new mean counts half once it is as long as `lease`; after a silence of several, the old one
    /// has as good as gone.
    pub(super) fn update(&mut self, demand: &LeaseDemand, lease: Duration, now: Duration) {
        let (calls, credits) = demand.collect();
        self.credits = self.credits.saturating_add(credits);
        if calls > 0 {
            let price = credits as f64 / calls as f64;
            self.price = if self.price == 0.0 { price } else { 0.5 * (self.price + price) };
        }
        let passed = now.saturating_sub(self.since);
        if passed >= lease {
            let kept = 0.5_f64.powf(passed.as_secs_f64() / lease.as_secs_f64());
            let mean = self.credits as f64 / passed.as_secs_f64();
            self.smooth = kept * self.smooth + (1.0 - kept) * mean;
            (self.since, self.credits) = (now, 0);
        }
        let passed = now.saturating_sub(self.since).max(lease);
        self.fresh = self.credits as f64 / passed.as_secs_f64();
    }

    /// Thousandths of credits that `stretch` takes.
    pub(super) fn in_stretch(&self, stretch: Duration) -> u64 {
        (self.smooth.max(self.fresh) * stretch.as_secs_f64()) as u64
    }

    /// Whether less than a call comes in the life of a lease. All of one would be given back: such
    /// calls go on credit, and are paid for one by one.
    pub(super) fn is_slow(&self, life: Duration) -> bool {
        self.in_stretch(life) < self.price_of(1)
    }

    /// What `calls` cost; a credit each, if none was seen.
    pub(super) fn price_of(&self, calls: u64) -> u64 {
        let price = if self.price == 0.0 { super::MILLI } else { self.price };
        (price as u64).max(1).saturating_mul(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(500);

    /// Calls of `price` each at a steady pace for `seconds`; what a second takes then.
    fn rate_after(calls_per_second: u64, price: u64, seconds: u64) -> u64 {
        let (demand, mut rate) = (LeaseDemand::default(), DemandRate::default());
        for call in 0..calls_per_second * seconds {
            demand.add(price);
            let now = Duration::from_nanos(call * 1_000_000_000 / calls_per_second);
            rate.update(&demand, LEASE, now);
        }
        rate.in_stretch(Duration::from_secs(1))
    }

    #[test]
    fn a_steady_demand_is_known_after_some_seconds() {
        for (calls, price, expected) in [(100, 1_000, 100_000), (20, 75_000, 1_500_000)] {
            let found = rate_after(calls, price, 8);
            assert!(found.abs_diff(expected) * 20 <= expected, "{found} of {expected}");
        }
    }

    #[test]
    fn it_is_forgotten_in_silence() {
        let (demand, mut rate) = (LeaseDemand::default(), DemandRate::default());
        (0..1_000).for_each(|_| demand.add(1_000));
        rate.update(&demand, LEASE, Duration::from_secs(1));
        assert!(rate.in_stretch(LEASE) > 0);
        rate.update(&demand, LEASE, Duration::from_secs(60));
        assert_eq!(rate.in_stretch(LEASE), 0);
    }

    #[test]
    fn the_mean_price_sets_the_price_of_some_calls() {
        let (demand, mut rate) = (LeaseDemand::default(), DemandRate::default());
        assert_eq!(rate.price_of(4), 4_000);
        demand.add(20_000);
        demand.add(40_000);
        rate.update(&demand, LEASE, Duration::from_secs(1));
        assert_eq!(rate.price_of(4), 120_000);
    }
}
