//! Traces as examples of how long calls took: for each bucket of a histogram the newest one that was kept.
//!
//! Only a call whose trace is kept comes here, so that no other pays for it. At most one exemplar for each cost class
//! and bucket is held.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_eth::CostClass;
use wellhead_telemetry::clock::ClockPair;
use wellhead_telemetry::histogram::bucket_of;
use wellhead_transport::TraceId;

/// The exemplars of one chain.
#[derive(Debug, Default)]
pub(crate) struct Exemplars(Mutex<BTreeMap<(usize, usize), Exemplar>>);

/// One call.
#[derive(Debug, Clone, Copy)]
struct Exemplar {
    trace: TraceId,
    took: Duration,
    ended: Instant,
    /// When it ended, since 1970. Found when it is first told, so that it never changes afterwards: Prometheus takes
    /// one with another time for another one.
    unix: Option<Duration>,
}

/// One exemplar as it is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ToldExemplar {
    pub(crate) class: CostClass,
    /// The place of its bucket.
    pub(crate) bucket: usize,
    pub(crate) trace: TraceId,
    pub(crate) took: Duration,
    /// When it ended, since 1970.
    pub(crate) unix: Duration,
}

impl Exemplars {
    /// Notes a call of a trace that is kept, which was counted with `took`.
    pub(crate) fn note(&self, class: CostClass, trace: TraceId, took: Duration, ended: Instant) {
        let exemplar = Exemplar { trace, took, ended, unix: None };
        self.0.lock().insert((class as usize, bucket_of(took)), exemplar);
    }

    /// All of them.
    pub(crate) fn told(&self, clock: ClockPair) -> Vec<ToldExemplar> {
        let mut exemplars = self.0.lock();
        let told = exemplars.iter_mut().map(|((class, bucket), it)| ToldExemplar {
            class: CostClass::ALL[*class],
            bucket: *bucket,
            trace: it.trace,
            took: it.took,
            unix: *it.unix.get_or_insert_with(|| clock.unix_at(it.ended)),
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u64) -> TraceId {
        TraceId::of([0, number])
    }

    #[test]
    fn each_bucket_has_the_newest() {
        let (exemplars, now) = (Exemplars::default(), wellhead_dispatch::now());
        for (number, class, millis) in [
            (1, CostClass::State, 3),
            (2, CostClass::State, 4),
            (3, CostClass::State, 6),
            (4, CostClass::Logs, 4),
            (5, CostClass::Logs, 100_000),
        ] {
            exemplars.note(class, trace(number), Duration::from_millis(millis), now);
        }
        let told = exemplars.told(ClockPair { now, unix: Duration::from_secs(9) });
        let told: Vec<_> = told.iter().map(|it| (it.class, it.bucket, it.trace)).collect();
        assert_eq!(
            told,
            [
                (CostClass::State, 5, trace(2)),
                (CostClass::State, 6, trace(3)),
                (CostClass::Logs, 5, trace(4)),
                (CostClass::Logs, 18, trace(5)),
            ]
        );
    }

    #[test]
    fn the_time_of_one_never_changes() {
        let (exemplars, ended) = (Exemplars::default(), wellhead_dispatch::now());
        exemplars.note(CostClass::Light, trace(1), Duration::from_millis(1), ended);
        let now = ended + Duration::from_secs(5);
        let at = |seconds| ClockPair { now, unix: Duration::from_secs(seconds) };
        assert_eq!(exemplars.told(at(105))[0].unix, Duration::from_secs(100));
        // The clock of the wall was set.
        assert_eq!(exemplars.told(at(205))[0].unix, Duration::from_secs(100));
    }
}
