//! What became of many calls, rolled up each so often: a long cell needs no more memory and no
//! more disk the longer it lasts, but for a line each time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Origin;
use super::cell::LATE_MAX;
use super::sample::Sample;
use super::strain::{LAG_MAX, Shares, Taken};
use crate::record::{Call, Rollup};
use crate::stat::quantile_of_sorted;
use crate::verdict::see;

/// Calls since the last line.
pub(super) struct Roll {
    every: Duration,
    begun: Instant,
    cpu: Option<Taken>,
    calls: u64,
    unserved: BTreeMap<String, u64>,
    /// `None` where the catalogue does not tell.
    credits: Option<f64>,
    times: Sample,
    late: Sample,
    lags: Sample,
    /// Of all parts so far: the latest, and how many there were and fell behind.
    late_max: f64,
    lag_max: f64,
    parts: u64,
    behind: u64,
}

impl Roll {
    pub(super) fn begin(every: Duration, begun: Instant, cpu: Option<Taken>) -> Self {
        Self {
            every,
            begun,
            cpu,
            calls: 0,
            unserved: BTreeMap::new(),
            credits: Some(0.0),
            times: Sample::default(),
            late: Sample::default(),
            lags: Sample::default(),
            late_max: 0.0,
            lag_max: 0.0,
            parts: 0,
            behind: 0,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.begun + self.every
    }

    pub(super) fn add(
        &mut self,
        call: &Call,
        intended: Instant,
        ended: Instant,
        late_us: f64,
        credits: Option<f64>,
    ) {
        self.calls += 1;
        self.credits = self.credits.zip(credits).map(|(all, one)| all + one);
        self.late.add(late_us);
        if see::served(call) {
            let took = ended.saturating_duration_since(intended);
            self.times.add(took.as_secs_f64() * 1e6);
        } else {
            *self.unserved.entry(call.class.clone()).or_default() += 1;
        }
    }

    /// The loop saw a tick so late, in microseconds.
    pub(super) fn lagged(&mut self, lag_us: f64) {
        self.lags.add(lag_us);
    }

    /// The line, without its place; `None` where no call ended.
    pub(super) fn take(
        &mut self,
        now: Instant,
        origin: Origin,
        cpu: Option<Taken>,
    ) -> Option<Rollup> {
        let fresh = Self {
            late_max: self.late_max,
            lag_max: self.lag_max,
            parts: self.parts,
            behind: self.behind,
            ..Self::begin(self.every, now, cpu)
        };
        let part = std::mem::replace(self, fresh);
        if part.calls == 0 {
            return None;
        }
        let shares = Shares::of(part.cpu, cpu, now - part.begun);
        let (times, late) = (part.times.sorted(), part.late.sorted());
        let took = |q: f64| quantile_of_sorted(&times, q).map(|us| us.round() as u64);
        let late_p99 = quantile_of_sorted(&late, 0.99).unwrap_or(0.0);
        let lag_p99 = part.lags.quantile(0.99).unwrap_or(0.0);
        let saturated = late_p99 > LATE_MAX.as_secs_f64() * 1e6
            || lag_p99 > LAG_MAX.as_secs_f64() * 1e6
            || shares.are_too_much();
        self.parts += 1;
        self.behind += u64::from(saturated);
        self.late_max = self.late_max.max(late_p99);
        self.lag_max = self.lag_max.max(lag_p99);
        let refused: u64 = part.unserved.values().sum();
        Some(Rollup {
            begun_at: origin.micros(part.begun),
            ended_at: origin.micros(now),
            calls: part.calls,
            served: part.calls - refused,
            unserved: part.unserved,
            p50: took(0.5),
            p95: took(0.95),
            p99: took(0.99),
            max: took(1.0),
            credits: part.credits,
            late_p99: late_p99 as u64,
            lag_p99: lag_p99 as u64,
            cpu: shares.ran,
            waited: shares.waited,
            saturated,
            ..Rollup::default()
        })
    }

    /// How late calls began and the loop was in the worst of all parts, microseconds, and whether
    /// most of them fell behind.
    pub(super) fn lateness(&self) -> (f64, f64, bool) {
        (self.late_max, self.lag_max, self.behind * 2 > self.parts)
    }
}
