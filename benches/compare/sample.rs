//! What one turn showed, as measured.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One turn of one contender.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) requests: u64,
    /// Requests that failed, and answers that were not what the upstream gave.
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) latency: Option<Latency>,
    /// Resident memory before the load, at the end of it, and at its most.
    pub(crate) before_kib: u64,
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
    /// Requests while system calls were counted; zero when they were not.
    pub(crate) traced_requests: u64,
    /// By name.
    pub(crate) system_calls: BTreeMap<String, u64>,
}

/// Percentiles. Of a closed load they hide waiting, and are not compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latency {
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    pub(crate) p999_micros: f64,
}

impl Latency {
    /// Of these waits, in any order.
    pub(crate) fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| {
            let index = (nanos.len() as f64 * share) as usize;
            let last = nanos.len().saturating_sub(1);
            nanos.get(index.min(last)).map_or(0.0, |nanos| *nanos as f64 / 1e3)
        };
        Self { p50_micros: at(0.5), p99_micros: at(0.99), p999_micros: at(0.999) }
    }
}

impl Sample {
    pub(crate) fn cpu_micros_per_request(&self) -> f64 {
        (self.user_seconds + self.system_seconds) * 1e6 / self.requests.max(1) as f64
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }

    /// As it is kept.
    pub(crate) fn to_json(&self) -> Value {
        let mut value = json!({
            "requests": self.requests,
            "errors": self.errors,
            "seconds": self.seconds,
            "user_seconds": self.user_seconds,
            "system_seconds": self.system_seconds,
            "before_kib": self.before_kib,
            "resident_kib": self.resident_kib,
            "peak_kib": self.peak_kib,
        });
        if let Some(latency) = &self.latency {
            value["latency_p50_micros"] = json!(latency.p50_micros);
            value["latency_p99_micros"] = json!(latency.p99_micros);
            value["latency_p999_micros"] = json!(latency.p999_micros);
        }
        if !self.system_calls.is_empty() {
            value["traced_requests"] = json!(self.traced_requests);
            value["system_calls"] = json!(self.system_calls);
        }
        value
    }
}
