//! What became of many calls, rolled up at a fixed interval: a long cell needs no more memory and
//! no more disk the longer it lasts, but for a line each time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Origin;
use super::call_waits::CallWaits;
use super::cell::LATE_MAX;
use super::sample::Sample;
use super::strain::{CpuShares, CpuTime, MeasuredTimes, is_behind};
use crate::measure::client::FinishedCall;
use crate::record::trial;
use crate::record::{CallRecord, CellDoubt, Rollup};
use crate::stat::quantile_of_sorted;

/// Calls since the last line.
pub(super) struct RollupWindow {
    every: Duration,
    /// A clock says when calls begin.
    is_open: bool,
    begun: Instant,
    cpu: Option<CpuTime>,
    calls: u64,
    unserved: BTreeMap<String, u64>,
    /// `None` where the catalogue does not tell.
    credits: Option<f64>,
    times: Sample,
    late: Sample,
    lags: Sample,
    waits: CallWaits,
    /// Of all parts so far: the latest, and how many there were and are doubted.
    late_max: f64,
    lag_max: f64,
    parts: u64,
    behind: u64,
    full: u64,
}

impl RollupWindow {
    pub(super) fn begin(
        every: Duration,
        is_open: bool,
        begun: Instant,
        cpu: Option<CpuTime>,
    ) -> Self {
        Self {
            every,
            is_open,
            begun,
            cpu,
            calls: 0,
            unserved: BTreeMap::new(),
            credits: Some(0.0),
            times: Sample::default(),
            late: Sample::default(),
            lags: Sample::default(),
            waits: CallWaits::default(),
            late_max: 0.0,
            lag_max: 0.0,
            parts: 0,
            behind: 0,
            full: 0,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.begun + self.every
    }

    /// A call is over, which began so late, in microseconds.
    pub(super) fn add(
        &mut self,
        done: &FinishedCall,
        call: &CallRecord,
        intended: Instant,
        late_us: f64,
    ) {
        self.calls += 1;
        self.credits = self.credits.zip(call.credits).map(|(all, one)| all + one);
        self.late.add(late_us);
        self.waits.add(done, late_us);
        if trial::served(call) {
            let took = done.ended.saturating_duration_since(intended);
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
        cpu: Option<CpuTime>,
    ) -> Option<Rollup> {
        let is_full = self.is_open && self.waits.is_ours(LATE_MAX.as_secs_f64() * 1e6);
        let fresh = Self {
            waits: self.waits.rolled(),
            late_max: self.late_max,
            lag_max: self.lag_max,
            parts: self.parts,
            behind: self.behind,
            full: self.full,
            ..Self::begin(self.every, self.is_open, now, cpu)
        };
        let part = std::mem::replace(self, fresh);
        if part.calls == 0 {
            return None;
        }
        let shares = CpuShares::of(part.cpu, cpu, now - part.begun);
        let (times, late) = (part.times.sorted(), part.late.sorted());
        let took = |q: f64| quantile_of_sorted(&times, q).map(|us| us.round() as u64);
        let late_p99 = quantile_of_sorted(&late, 0.99).unwrap_or(0.0);
        let lag_p99 = part.lags.quantile(0.99).unwrap_or(0.0);
        let measured = MeasuredTimes {
            calls: part.calls,
            lasted_us: (now - part.begun).as_secs_f64() * 1e6,
            p50_us: quantile_of_sorted(&times, 0.5).unwrap_or(0.0),
        };
        let is_late = late_p99 > measured.own_max_us(LATE_MAX);
        let doubt = match is_late || is_behind(lag_p99, shares, measured) {
            true => Some(CellDoubt::Behind),
            false => is_full.then_some(CellDoubt::Full),
        };
        self.parts += 1;
        self.behind += u64::from(doubt == Some(CellDoubt::Behind));
        self.full += u64::from(doubt == Some(CellDoubt::Full));
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
            load: shares.load(late_p99, lag_p99, doubt),
            ..Rollup::default()
        })
    }

    /// How late calls began and the loop was in the worst of all parts, microseconds.
    pub(super) fn lateness(&self) -> (f64, f64) {
        (self.late_max, self.lag_max)
    }

    /// Why most parts conclude nothing, where that is so.
    pub(super) fn doubt(&self) -> Option<CellDoubt> {
        let why = if self.behind >= self.full { CellDoubt::Behind } else { CellDoubt::Full };
        ((self.behind + self.full) * 2 > self.parts).then_some(why)
    }
}
