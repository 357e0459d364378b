//! Which requests leave a line in the log when there are many: all up to a rate, then a sample.
//!
//! What succeeds and what fails have bounds of their own, so that a flood of one hides nothing of the other.
//! The sample is even in time, as each line waits for its place in the rate. What is left out is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wellhead_limit::{Bucket, Pace};

/// Lines a second. A second's worth of them may wait to be used: traffic below the rate is whole, however
/// it bunches up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRates {
    /// Of requests that succeed.
    pub succeeded: u32,
    /// Of requests that fail: by their status, or one of their calls.
    pub failed: u32,
}

/// What became of lines so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LineCounts {
    pub(crate) written: u64,
    pub(crate) left_out: u64,
}

/// One kind of lines.
#[derive(Debug, Default)]
struct LineStream {
    /// `None`: all are written.
    pace: Option<Pace>,
    bucket: Bucket,
    written: AtomicU64,
    left_out: AtomicU64,
    /// What was left out at the last report.
    reported: AtomicU64,
}

impl LineStream {
    fn bounded(per_second: u32) -> Self {
        let rate = f64::from(per_second);
        let pace = Pace::new(rate, Duration::from_secs(1), rate);
        Self { pace: Some(pace), ..Self::default() }
    }

    fn take(&self, now: Duration) -> bool {
        let is_written = self.pace.is_none_or(|pace| self.bucket.take(1.0, pace, now).is_ok());
        let count = if is_written { &self.written } else { &self.left_out };
        count.fetch_add(1, Relaxed);
        is_written
    }

    fn counts(&self) -> LineCounts {
        LineCounts { written: self.written.load(Relaxed), left_out: self.left_out.load(Relaxed) }
    }

    /// How many were left out since the last time.
    fn take_report(&self) -> u64 {
        let so_far = self.left_out.load(Relaxed);
        so_far.saturating_sub(self.reported.swap(so_far, Relaxed))
    }
}

/// Decides for all workers. Without rates every line is written.
#[derive(Debug)]
pub(crate) struct LineSampler {
    epoch: Instant,
    succeeded: LineStream,
    failed: LineStream,
}

impl LineSampler {
    pub(crate) fn unbounded(epoch: Instant) -> Self {
        Self { epoch, succeeded: LineStream::default(), failed: LineStream::default() }
    }

    pub(crate) fn new(rates: LineRates, epoch: Instant) -> Self {
        let LineRates { succeeded, failed } = rates;
        let (succeeded, failed) = (LineStream::bounded(succeeded), LineStream::bounded(failed));
        Self { epoch, succeeded, failed }
    }

    /// Takes the place of one line; `false` when there is none, and the line is left out.
    pub(crate) fn take(&self, has_failed: bool, now: Instant) -> bool {
        let stream = if has_failed { &self.failed } else { &self.succeeded };
        stream.take(now.saturating_duration_since(self.epoch))
    }

    /// Of those that succeeded, and of those that failed.
    pub(crate) fn counts(&self) -> [(&'static str, LineCounts); 2] {
        [("ok", self.succeeded.counts()), ("failed", self.failed.counts())]
    }

    /// Writes how many lines were left out since the last time, if any.
    pub(crate) fn report(&self) {
        let (ok, failed) = (self.succeeded.take_report(), self.failed.take_report());
        if ok > 0 || failed > 0 {
            tracing::info!(
                target: "wellhead::request",
                left_out_ok = ok,
                left_out_failed = failed,
                "request lines left out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: LineRates = LineRates { succeeded: 10, failed: 2 };

    /// The lines written in each second, of `per_second` requests a second.
    fn written(per_second: u32, seconds: u32, has_failed: bool) -> Vec<usize> {
        let epoch = wellhead_dispatch::now();
        let sampler = LineSampler::new(RATES, epoch);
        let second = |second: u32| {
            let line = |nth: u32| {
                let at = f64::from(second) + f64::from(nth) / f64::from(per_second);
                sampler.take(has_failed, epoch + Duration::from_secs_f64(at))
            };
            (0..per_second).filter(|nth| line(*nth)).count()
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn below_the_rate_every_line_is_written() {
        assert_eq!(written(10, 4, false), [10; 4]);
        assert_eq!(written(2, 3, true), [2; 3]);
    }

    #[test]
    fn above_it_a_sample_is_written_after_the_first_second() {
        let found = written(1_000, 4, false);
        assert!(found[0] <= 21, "{found:?}");
        assert!(found[1..].iter().all(|lines| (9..=11).contains(lines)), "{found:?}");
        let found = written(1_000, 4, true);
        assert!(found[1..].iter().all(|lines| (1..=3).contains(lines)), "{found:?}");
    }

    #[test]
    fn traffic_that_bunches_up_below_the_rate_is_whole() {
        let epoch = wellhead_dispatch::now();
        let sampler = LineSampler::new(RATES, epoch);
        for second in 0..5 {
            let at = epoch + Duration::from_secs(second);
            assert!((0..10).all(|_| sampler.take(false, at)), "second {second}");
        }
    }

    #[test]
    fn what_is_left_out_is_counted_and_reported_once() {
        let epoch = wellhead_dispatch::now();
        let sampler = LineSampler::new(RATES, epoch);
        let take =
            |has_failed, lines: u32| (0..lines).filter(|_| sampler.take(has_failed, epoch)).count();
        // A flood of one kind takes nothing from the other.
        assert_eq!((take(false, 100), take(true, 3)), (10, 2));
        let [(_, ok), (_, failed)] = sampler.counts();
        assert_eq!(ok, LineCounts { written: 10, left_out: 90 });
        assert_eq!(failed, LineCounts { written: 2, left_out: 1 });
        assert_eq!(sampler.succeeded.take_report(), 90);
        assert_eq!(sampler.succeeded.take_report(), 0);
        take(false, 5);
        assert_eq!(sampler.succeeded.take_report(), 5);
    }

    #[test]
    fn without_rates_every_line_is_written() {
        let epoch = wellhead_dispatch::now();
        let sampler = LineSampler::unbounded(epoch);
        assert!((0..10_000).all(|_| sampler.take(false, epoch) && sampler.take(true, epoch)));
    }
}
