//! What a turn is judged by: single numbers, each of which nginx has too.

use crate::sample::{Latency, Sample};

/// A number, and how it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// CPU time of the proxy per request.
    Cost,
    /// Requests that were answered in a second: the load and the upstream limit it too.
    Rate,
    /// Resident memory at its most.
    Peak,
    /// Resident memory at its most, beyond what it was before the load.
    Growth,
    /// Resident memory under the load.
    Resident,
    /// Latency beyond the upstream's own, measured in the same round.
    AddedP50,
    AddedP99,
    AddedP999,
    /// System calls per request.
    Calls,
}

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cost => "µs CPU",
            Self::Rate => "requests/s",
            Self::Peak => "MiB peak",
            Self::Growth => "MiB grown",
            Self::Resident => "MiB resident",
            Self::AddedP50 => "µs added p50",
            Self::AddedP99 => "µs added p99",
            Self::AddedP999 => "µs added p99.9",
            Self::Calls => "system calls",
        }
    }

    /// The number in this sample; `direct` is the bare upstream's in the same round.
    pub(crate) fn of(self, sample: &Sample, direct: Option<&Sample>) -> f64 {
        let added = |pick: fn(&Latency) -> f64| {
            let own = |sample: &Sample| sample.latency.as_ref().map_or(0.0, pick);
            own(sample) - direct.map_or(0.0, own)
        };
        match self {
            Self::Cost => sample.cpu_micros_per_request(),
            Self::Rate => sample.requests_per_second(),
            Self::Peak => mebibytes(sample.peak_kib),
            Self::Growth => mebibytes(sample.peak_kib.saturating_sub(sample.before_kib)),
            Self::Resident => mebibytes(sample.resident_kib),
            Self::AddedP50 => added(|latency| latency.p50_micros),
            Self::AddedP99 => added(|latency| latency.p99_micros),
            Self::AddedP999 => added(|latency| latency.p999_micros),
            Self::Calls => {
                let calls = sample.system_calls.values().sum::<u64>();
                calls as f64 / sample.traced_requests.max(1) as f64
            }
        }
    }
}

fn mebibytes(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
