//! A latency histogram that costs two atomic additions to record.
//!
//! prometheus-client's own histogram takes a lock for each observation; the
//! request path may not. Buckets are fixed: a 1-2.5-5 ladder from 100 µs to
//! 60 s, wide enough for a locally answered call and a block trace alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds of the buckets in seconds; a last one, unbounded, follows.
pub const BUCKETS_SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// The place of the bucket that a duration falls into: that of the unbounded one follows [`BUCKETS_SECONDS`].
pub fn bucket_of(took: Duration) -> usize {
    let seconds = took.as_secs_f64();
    BUCKETS_SECONDS.partition_point(|bound| *bound < seconds)
}

#[derive(Debug)]
struct Buckets {
    buckets: [AtomicU64; BUCKETS_SECONDS.len() + 1],
    sum_micros: AtomicU64,
}

/// Counts durations in buckets. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Buckets>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Arc::new(Buckets {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_micros: AtomicU64::new(0),
        }))
    }
}

impl Histogram {
    /// Records one duration.
    pub fn observe(&self, took: Duration) {
        self.observe_many(took, 1);
    }

    /// Records the same duration `times` times.
    pub fn observe_many(&self, took: Duration, times: u64) {
        self.0.buckets[bucket_of(took)].fetch_add(times, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).saturating_mul(times);
        self.0.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// An upper estimate of the `share` quantile (0 to 1): the bound of the
    /// bucket that holds it. `None` while nothing was recorded.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = (share.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, bound) in self.0.buckets.iter().zip(BUCKETS_SECONDS) {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= rank {
                return Some(Duration::from_secs_f64(bound));
            }
        }
        Some(Duration::from_secs_f64(BUCKETS_SECONDS[BUCKETS_SECONDS.len() - 1]))
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<u64> =
            self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let bounds = BUCKETS_SECONDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let sum = self.0.sum_micros.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for micros in [50, 100, 101, 70_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let counts: Vec<u64> =
            histogram.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        assert_eq!((counts[0], counts[1], counts[18], histogram.count()), (2, 1, 1, 4));
    }

    #[test]
    fn quantiles_name_the_bucket() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for millis in [1, 2, 3, 200] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!(histogram.quantile(0.5), Some(Duration::from_micros(2500)));
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_millis(250)));
    }
}
