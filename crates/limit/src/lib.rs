//! Mechanisms that bound: a rate, how many at once, a sum. And two that learn such a
//! bound from how a provider behaves.
//!
//! | mechanism | bounds | formula |
//! |---|---|---|
//! | [`Bucket`] | a rate with a burst | GCRA |
//! | [`FixedWindow`] | a sum in a window that opens with its first call | a count |
//! | [`Gate`], [`Permits`] | how many at once | a count |
//! | [`Held`] | how much at once, in things or bytes | a sum |
//! | [`FairShare`] | how much of a common bound one client holds | dynamic thresholds |
//! | [`RetryBudget`] | attempts beyond one a call | a share of the calls, and a floor |
//! | [`Ledger`] | a sum a day and a month | a count |
//! | [`lease`] | a rate, a sum, a window or how many at once, over several replicas | leases of one bucket |
//! | [`LearntRate`] | an unknown rate, learnt from refusals | CUBIC |
//! | [`LearntLimit`] | an unknown concurrency, learnt from latency | gradient |
//!
//! Nothing here knows upstreams, providers or tenants, reads a clock, sleeps or waits
//! for a lock. Every instant is told by the caller as the time since an epoch of its
//! own; days are counted in UTC from 1970.

mod bucket;
mod fair_share;
mod gate;
mod held;
pub mod lease;
mod ledger;
mod limit;
mod rate;
mod recent;
mod retry_budget;
#[cfg(test)]
mod sim;
mod window;

pub use bucket::{Bucket, Pace};
pub use fair_share::{FairShare, fits};
pub use gate::{Gate, Permit, Permits};
pub use held::Held;
pub use ledger::{Cap, Caps, Ledger, Pages, civil, days_left_in_month, month_of};
pub use limit::LearntLimit;
pub use rate::LearntRate;
pub use retry_budget::RetryBudget;
pub use window::FixedWindow;

use std::time::Duration;

/// Nanoseconds since the epoch; 584 years of them fit.
fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}
