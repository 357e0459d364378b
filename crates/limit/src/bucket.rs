//! A rate with a burst: the generic cell rate algorithm.
//!
//! ITU-T I.371 in its form of virtual scheduling. With `T` the time that one credit
//! takes and `τ` the time that a full bucket is worth, a call of `c` credits at `t` goes
//! through when `max(TAT, t) + c·T - τ <= t`; then `TAT` becomes `max(TAT, t) + c·T`.
//! Otherwise it may come back after what is missing. `TAT`, the theoretical arrival
//! time, is all the state there is: one word.
//!
//! A call dearer than the whole burst could never pass by this. It passes when the bucket
//! is full, and those after it wait until its debt is paid.
//!
//! The pace is given with each call, because a learnt one changes: what was taken before
//! stays on the books as time, not as credits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::nanos;

/// How fast credits come back, and how many can wait to be used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// `T`, in nanoseconds.
    nanos_per_credit: f64,
    /// `τ`, in nanoseconds.
    burst_nanos: f64,
}

impl Pace {
    /// `credits` in each `window`, `burst` of them at once. Less than one credit in a
    /// window, or an empty window, is no pace that anything could keep: it counts as one.
    pub fn new(credits: f64, window: Duration, burst: f64) -> Self {
        let window = window.as_nanos().max(1) as f64;
        let nanos_per_credit = window / credits.max(f64::MIN_POSITIVE);
        Self { nanos_per_credit, burst_nanos: burst.max(0.0) * nanos_per_credit }
    }

    /// For a provider whose bucket holds `credits` and fills in `window`. A tenth of the
    /// burst is left: calls bunch up on their way.
    pub fn for_bucket(credits: f64, window: Duration) -> Self {
        Self::new(credits, window, 0.9 * credits)
    }

    /// For a provider that counts `credits` in windows whose begin we do not know, or that
    /// slide. Any stretch of `window` holds at most the burst and what comes back
    /// meanwhile: 5 % and 95 % of the credits, together what is allowed.
    pub fn for_window(credits: f64, window: Duration) -> Self {
        Self::new(0.95 * credits, window, 0.05 * credits)
    }

    /// Credits that come back in a second.
    pub fn per_second(&self) -> f64 {
        1e9 / self.nanos_per_credit
    }

    /// Credits at once.
    pub fn burst(&self) -> f64 {
        self.burst_nanos / self.nanos_per_credit
    }

    /// The time that `credits` take to come back.
    pub fn time_of(&self, credits: f64) -> Duration {
        Duration::from_nanos((credits * self.nanos_per_credit) as u64)
    }
}

/// A bucket of credits, full at the epoch.
#[derive(Debug, Default)]
pub struct Bucket {
    /// `TAT`, in nanoseconds since the epoch.
    arrival: AtomicU64,
}

impl Bucket {
    /// Takes `credits`, or says how long until they are there.
    pub fn take(&self, credits: f64, pace: Pace, now: Duration) -> Result<(), Duration> {
        let now = nanos(now);
        let cost = (credits * pace.nanos_per_credit) as u64;
        let taken =
            self.arrival.fetch_update(
                Ordering::Relaxed,
                Ordering::Relaxed,
                |arrival| match missing(arrival, cost, pace, now) {
                    0 => Some(arrival.max(now).saturating_add(cost)),
                    _ => None,
                },
            );
        match taken {
            Ok(_) => Ok(()),
            Err(arrival) => Err(Duration::from_nanos(missing(arrival, cost, pace, now))),
        }
    }

    /// Takes `credits` that were spent regardless of the bucket: later calls wait longer.
    pub fn charge(&self, credits: f64, pace: Pace, now: Duration) {
        let (now, cost) = (nanos(now), (credits * pace.nanos_per_credit) as u64);
        let charge = |arrival: u64| Some(arrival.max(now).saturating_add(cost));
        let _always = self.arrival.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
    }

    /// Puts back what was taken for a call that was not made after all.
    pub fn give_back(&self, credits: f64, pace: Pace) {
        let cost = (credits * pace.nanos_per_credit) as u64;
        let less = |arrival: u64| Some(arrival.saturating_sub(cost));
        let _always = self.arrival.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// How long until `credits` could be taken; takes none.
    pub fn wait(&self, credits: f64, pace: Pace, now: Duration) -> Duration {
        let cost = (credits * pace.nanos_per_credit) as u64;
        let arrival = self.arrival.load(Ordering::Relaxed);
        Duration::from_nanos(missing(arrival, cost, pace, nanos(now)))
    }
}

/// `max(TAT, t) + c·T - τ - t`, or zero.
fn missing(arrival: u64, cost: u64, pace: Pace, now: u64) -> u64 {
    let burst = pace.burst_nanos as u64;
    arrival.max(now).saturating_add(cost.min(burst)).saturating_sub(burst).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `at_ms:credits` and compares what each was told: `ok`, or the wait in ms.
    fn check(pace: Pace, script: &str, expected: &str) {
        let bucket = Bucket::default();
        let told = |step: &str| {
            let (at, credits) = step.split_once(':').expect("at:credits");
            let at = Duration::from_millis(at.parse().expect("ms"));
            match bucket.take(credits.parse().expect("credits"), pace, at) {
                Ok(()) => "ok".to_owned(),
                Err(wait) => wait.as_millis().to_string(),
            }
        };
        let found: Vec<_> = script.split_whitespace().map(told).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    fn pace(credits: f64, window_s: u64, burst: f64) -> Pace {
        Pace::new(credits, Duration::from_secs(window_s), burst)
    }

    #[test]
    fn a_full_bucket_holds_its_burst() {
        check(pace(10.0, 1, 3.0), "0:1 0:1 0:1 0:1", "ok ok ok 100");
        check(pace(10.0, 1, 3.0), "0:3 0:1 100:1 100:1", "ok 100 ok 100");
    }

    #[test]
    fn credits_come_back_with_time_up_to_the_burst() {
        check(pace(10.0, 1, 3.0), "0:3 5000:3 5000:1", "ok ok 100");
        check(pace(10.0, 1, 3.0), "0:3 150:1 150:1 200:1", "ok ok 50 ok");
    }

    #[test]
    fn windows_of_ten_seconds_and_a_minute() {
        check(pace(6600.0, 10, 6600.0), "0:6600 0:26 39:26 40:26", "ok 39 0 ok");
        check(pace(60.0, 60, 2.0), "0:1 0:1 0:1 1000:1 1000:1", "ok ok 1000 ok 1000");
    }

    #[test]
    fn what_is_dearer_than_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() {
        check(pace(10.0, 1, 3.0), "0:1 0:20 100:20 100:1 2000:1", "ok 100 ok 1800 ok");
    }

    #[test]
    fn a_window_never_sees_more_than_its_credits() {
        // As fast as it lets us, from a full bucket: 125 in any second at most.
        let (bucket, pace) = (Bucket::default(), Pace::for_window(125.0, Duration::from_secs(1)));
        let sent: Vec<u64> = (0..20_000_u64)
            .filter(|ms| bucket.take(1.0, pace, Duration::from_millis(*ms)).is_ok())
            .collect();
        let most = sent
            .iter()
            .map(|from| sent.iter().filter(|at| (*from..*from + 1000).contains(*at)).count())
            .max();
        assert!(most <= Some(125), "{most:?}");
        assert!(sent.len() >= 20 * 115, "{} of {}", sent.len(), 20 * 125);
    }

    #[test]
    fn what_was_put_back_can_be_taken_again() {
        let (bucket, pace) = (Bucket::default(), pace(10.0, 1, 1.0));
        assert_eq!(bucket.take(1.0, pace, Duration::ZERO), Ok(()));
        assert_eq!(bucket.wait(1.0, pace, Duration::ZERO), Duration::from_millis(100));
        bucket.give_back(1.0, pace);
        assert_eq!(bucket.take(1.0, pace, Duration::ZERO), Ok(()));
        bucket.charge(2.0, pace, Duration::ZERO);
        assert_eq!(bucket.wait(1.0, pace, Duration::ZERO), Duration::from_millis(300));
    }
}
