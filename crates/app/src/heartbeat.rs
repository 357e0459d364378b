//! Whether the worker threads run: each shows it, and one that does not is stuck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A worker without a beat for this long is stuck: something blocks its thread.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// When each worker last showed that it runs.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    epoch: Instant,
    beats_ms: Vec<AtomicU64>,
}

impl Heartbeats {
    pub(crate) fn new(workers: usize, now: Instant) -> Self {
        Self { epoch: now, beats_ms: (0..workers).map(|_| AtomicU64::new(0)).collect() }
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn beat(&self, worker: usize, now: Instant) {
        self.beats_ms[worker].store(self.ms(now), Ordering::Relaxed);
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.beats_ms.len()
    }

    /// The workers that are stuck.
    pub(crate) fn stuck(&self, now: Instant) -> Vec<usize> {
        let late = |beat: &AtomicU64| {
            let since = self.ms(now).saturating_sub(beat.load(Ordering::Relaxed));
            u128::from(since) > STUCK_AFTER.as_millis()
        };
        let beats = self.beats_ms.iter().enumerate();
        beats.filter(|(_, beat)| late(beat)).map(|(worker, _)| worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use wellhead_dispatch::now;

    use super::*;

    #[test]
    fn a_worker_that_stops_beating_is_stuck() {
        let began = now();
        let beats = Heartbeats::new(2, began);
        let later = began + Duration::from_secs(11);
        beats.beat(1, later);
        assert_eq!(beats.stuck(began + Duration::from_secs(9)), Vec::<usize>::new());
        assert_eq!(beats.stuck(later), vec![0]);
    }
}
