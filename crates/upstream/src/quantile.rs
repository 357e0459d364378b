//! How long the slow ones of an upstream's answers take: the 95th percentile, forgetting.
//!
//! A histogram with four buckets an octave, so that an estimate is at most a quarter too
//! high, which halves all its counts once it holds [`KEPT_MAX`] samples: it speaks of the
//! last few hundred answers. The quantile is worked out with every sixteenth sample and
//! kept, so that reading it costs one load. The average that the plan goes by is in
//! `latency`; what is done with a call that takes longer is decided in `dispatch`.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Nineteen in twenty answers take no longer than the estimate.
const SHARE: f64 = 0.95;
/// With fewer samples nothing is said, and once in this many the estimate is worked out.
const EVERY: u32 = 16;
/// From this many samples on the counts are halved.
const KEPT_MAX: u32 = 512;
/// The finest step: 2^18 ns, about a quarter of a millisecond.
const UNIT_BITS: u32 = 18;
/// Up to 68 s; what is longer counts as that.
const BUCKETS: usize = 68;

/// The estimate. Racing writers may miscount by a sample; none can corrupt it.
#[derive(Debug)]
pub(crate) struct SlowMark {
    /// At most [`KEPT_MAX`] and what comes until the next estimate, so that two bytes are enough:
    /// each upstream has eight of these.
    buckets: [AtomicU16; BUCKETS],
    seen: AtomicU32,
    /// Nanoseconds; zero: too few samples.
    mark: AtomicU64,
}

impl Default for SlowMark {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU16::new(0)),
            seen: AtomicU32::new(0),
            mark: AtomicU64::new(0),
        }
    }
}

impl SlowMark {
    pub(crate) fn observe(&self, sample: Duration) {
        self.buckets[bucket(sample)].fetch_add(1, Ordering::Relaxed);
        let seen = self.seen.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if seen.is_multiple_of(EVERY) {
            self.work_out();
        }
    }

    /// The upper bound of the bucket that holds the percentile.
    pub(crate) fn read(&self) -> Option<Duration> {
        match self.mark.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    fn work_out(&self) {
        let counts: [u16; BUCKETS] =
            std::array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed));
        let total: u32 = counts.iter().copied().map(u32::from).sum();
        let enough = (f64::from(total) * SHARE).ceil() as u32;
        let mut below = 0;
        let place = counts.iter().position(|count| {
            below += u32::from(*count);
            below >= enough
        });
        self.mark.store(upper_nanos(place.unwrap_or(BUCKETS - 1)), Ordering::Relaxed);
        if total >= KEPT_MAX {
            for (bucket, count) in self.buckets.iter().zip(counts) {
                bucket.fetch_sub(count - count / 2, Ordering::Relaxed);
            }
        }
    }
}

fn bucket(sample: Duration) -> usize {
    let units = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX) >> UNIT_BITS;
    if units < 4 {
        return units as usize;
    }
    let octave = units.ilog2();
    let quarter = (units >> (octave - 2)) & 3;
    ((octave as usize - 1) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_nanos(bucket: usize) -> u64 {
    let units = match bucket {
        0..4 => bucket as u64 + 1,
        _ => (5 + bucket as u64 % 4) << (bucket / 4 - 1),
    };
    units << UNIT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes `count x ms`, in order, and compares the estimate: at least the truth, and
    /// at most a quarter more.
    fn check(script: &str, expected_ms: Option<f64>) {
        let mark = SlowMark::default();
        for step in script.split_whitespace() {
            let (count, ms) = step.split_once('x').expect("count x ms");
            let sample = Duration::from_secs_f64(ms.parse::<f64>().expect("a number") / 1e3);
            (0..count.parse::<u32>().expect("a number")).for_each(|_| mark.observe(sample));
        }
        let read = mark.read().map(|mark| mark.as_secs_f64() * 1e3);
        match (read, expected_ms) {
            (None, None) => {}
            (Some(read), Some(expected)) => {
                // Below a millisecond the steps are coarser.
                let most = (expected * 1.25).max(expected + 0.27);
                assert!(expected <= read && read <= most, "{script}: {read} for {expected}");
            }
            other => panic!("{script}: {other:?}"),
        }
    }

    #[test]
    fn too_few_samples_say_nothing() {
        check("", None);
        check("15x10", None);
        check("16x10", Some(10.0));
    }

    #[test]
    fn the_estimate_is_at_most_a_quarter_too_high() {
        for ms in ["0.01", "0.3", "1", "1.1", "3", "20", "210", "999", "5000", "60000"] {
            check(&format!("32x{ms}"), Some(ms.parse().expect("a number")));
        }
    }

    #[test]
    fn one_in_twenty_may_be_slower() {
        check("61x10 3x900", Some(10.0));
        check("56x10 8x900", Some(900.0));
    }

    #[test]
    fn what_was_is_forgotten() {
        check("4096x10 256x80", Some(80.0));
        check("4096x900 2048x10", Some(10.0));
    }

    #[test]
    fn no_sample_is_too_long() {
        check("16x90000000", Some(upper_nanos(BUCKETS - 1) as f64 / 1e6));
        let bounds = (0..BUCKETS).map(upper_nanos).collect::<Vec<_>>();
        assert!(bounds.is_sorted());
        for (place, upper) in bounds.into_iter().enumerate().take(BUCKETS - 1) {
            assert_eq!(bucket(Duration::from_nanos(upper - 1)), place);
            assert_eq!(bucket(Duration::from_nanos(upper)), place + 1);
        }
    }
}
