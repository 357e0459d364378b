//! How long an upstream takes, as a peak-sensitive moving average.
//!
//! Peak EWMA (Finagle's, also in linkerd and tower): a sample above the
//! average replaces it, one below pulls it down with weight
//! `1 - exp(-elapsed / DECAY)`. Reading decays it towards zero in the same way, so
//! that an upstream that was slow is tried again after a while without any probe.
//! Averages are kept per cost class, since a trace says nothing about a balance.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stamp::{Stamp, StampCell};

/// The time constant. Ten seconds forgets a bad moment in half a minute.
const DECAY: Duration = Duration::from_secs(10);

/// One average. Two racing writers may lose one sample; none can corrupt it.
#[derive(Debug, Default)]
pub(crate) struct PeakEwma {
    /// Nanoseconds as `f64` bits; zero bits: never measured.
    average: AtomicU64,
    /// When it was last written.
    written: StampCell,
}

impl PeakEwma {
    pub(crate) fn observe(&self, sample: Duration, now: Stamp) {
        let sample = (sample.as_nanos() as f64).max(1.0);
        let next = match self.read(now) {
            // An average that decayed below the sample is replaced: the peak rule.
            Some(average) if average > sample => {
                let kept = self.kept_share(now);
                // The read already decayed the average; undo that to weigh it against the sample.
                let undecayed = average / kept;
                undecayed * kept + sample * (1.0 - kept)
            }
            Some(_) | None => sample,
        };
        self.average.store(next.to_bits(), Ordering::Relaxed);
        self.written.set(now);
    }

    /// The average decayed until now, in nanoseconds; `None` when never measured.
    pub(crate) fn read(&self, now: Stamp) -> Option<f64> {
        match self.average.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits) * self.kept_share(now)),
        }
    }

    fn kept_share(&self, now: Stamp) -> f64 {
        let elapsed = self.written.get().map_or(0, |at| now.ms().saturating_sub(at.ms()));
        if elapsed == 0 {
            return 1.0;
        }
        (-(elapsed as f64) / DECAY.as_millis() as f64).exp().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `at_ms:sample_ms` and compares the average in whole milliseconds.
    fn check(script: &str, read_at_ms: u64, expected_ms: u64) {
        let average = PeakEwma::default();
        let stamp = |ms| Stamp::at(Duration::from_millis(ms));
        for step in script.split_whitespace() {
            let (at, sample) = step.split_once(':').expect("at:sample");
            let sample = Duration::from_millis(sample.parse().expect("a number"));
            average.observe(sample, stamp(at.parse().expect("a number")));
        }
        let read = average.read(stamp(read_at_ms)).expect("measured") / 1e6;
        assert_eq!(read.round() as u64, expected_ms, "{script}");
    }

    #[test]
    fn the_first_sample_counts_whole() {
        check("0:100", 0, 100);
    }

    #[test]
    fn a_peak_counts_at_once() {
        check("0:10 1:500", 1, 500);
    }

    #[test]
    fn a_quick_answer_pulls_slowly() {
        // e^-1 of 100 ms, and 1 - e^-1 of 10 ms.
        check("0:100 10000:10", 10_000, 43);
    }

    #[test]
    fn silence_forgives() {
        check("0:1000", 20_000, 135);
        check("0:1000", 100_000, 0);
    }

    #[test]
    fn never_measured_is_known() {
        assert_eq!(PeakEwma::default().read(Stamp::at(Duration::from_millis(5))), None);
    }
}
