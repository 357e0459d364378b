//! What a long time shows (`soak`): how it held, which share of the calls failed, and whether anything
//! drifts or steps.
//!
//! Read from rollups alone, each as good as another. Those in which we were the bound are
//! left out. Of the median, the 99th percentile, failures and throughput each is tested for a trend and
//! for a step; of those that are there, the one that leaves less is told.

use super::failures;
use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{Drift, Drifting, Finding, NoDrift};
use super::sentence::figure;
use super::trial::watched;
use super::{Confidence, DraftVerdict};
use crate::record::{CellDoubt, Rollup};
use crate::stat::change::{StepChange, change};
use crate::stat::trend::{Trend, VALUES_MIN, folded, trend};
use crate::stat::{median, quantile};
use crate::text::class_words;

/// Microseconds in a minute.
const MINUTE: f64 = 6e7;

/// Values that a trend is computed from at most: more are folded.
const VALUES_MAX: usize = 240;

/// With fewer parts a drift may go unseen.
const SURE_MIN: usize = 20;

/// A part that is shorter than this share of the usual one has too few calls for a throughput.
const PART_MIN: f64 = 0.5;

/// The 99th percentile is told beside the median where the ratio of its change to that of the median is
/// larger than this, or smaller than its inverse.
const OTHERWISE: f64 = 1.25;

pub(super) fn soak(rollups: &[&Rollup]) -> Vec<DraftVerdict> {
    let sound: Vec<&Rollup> =
        rollups.iter().filter(|rollup| !rollup.load.saturated).copied().collect();
    let left_out = rollups.len() - sound.len();
    if left_out * 4 > rollups.len() {
        let all = rollups.len();
        let why = format!("{} in {left_out} of {all} intervals", doubt(rollups).words());
        return vec![DraftVerdict::cannot_tell(why)];
    }
    let p50s: Vec<f64> = sound.iter().filter_map(|it| it.p50).map(ms).collect();
    let p99s: Vec<f64> = sound.iter().filter_map(|it| it.p99).map(ms).collect();
    let (Some(p50_ms), Some(p99_ms)) = (median(&p50s), median(&p99s)) else {
        return vec![DraftVerdict::cannot_tell("no call was served")];
    };
    let minutes = (watched(&sound) as f64 / MINUTE).round() as u64;
    let with_errors = sound.iter().filter(|it| it.served < it.calls).count();
    let calls: u64 = sound.iter().map(|it| it.calls).sum();
    let served: u64 = sound.iter().map(|it| it.served).sum();
    let worst = quantile(&p99s, 1.0).unwrap_or(0.0);
    let mut evidence = vec![
        format!("{served} of {calls} calls were served, over {} intervals", sound.len()),
        format!("p99 {} ms in the worst interval", figure(worst)),
    ];
    evidence.extend(unserved(&sound));
    evidence.extend(connections(rollups));
    if left_out > 0 {
        evidence.push(format!("{left_out} intervals are left out: {}", doubt(rollups).words()));
    }
    let sure = match (sound.len() >= VALUES_MIN, left_out) {
        (true, 0) => Confidence::High,
        (true, _) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let (parts, with_errors) = (sound.len() as u64, with_errors as u64);
    let held = Finding::Held { minutes, parts, with_errors, p50_ms, p99_ms };
    let mut found = vec![DraftVerdict::new(held, sure, evidence)];
    let moved = movements(&sound, minutes);
    let is_even = !moved.iter().any(|it| it.finding.moves(Drifting::Errors));
    found.extend(failures::of_rollups(&sound).filter(|_| is_even));
    found.extend(moved);
    found
}

/// Why most of those that are left out are.
fn doubt(rollups: &[&Rollup]) -> CellDoubt {
    let left_out = || rollups.iter().filter(|rollup| rollup.load.saturated);
    let full = left_out().filter(|rollup| rollup.load.doubted() == Some(CellDoubt::Full)).count();
    if full * 2 > left_out().count() { CellDoubt::Full } else { CellDoubt::Behind }
}

/// What connections did, where any of them ended.
fn connections(rollups: &[&Rollup]) -> Option<String> {
    let count = |kind| rollups.iter().filter_map(|it| it.wire.get(kind)).sum::<u64>();
    let (closed, goaways, resets) = (count("closed"), count("goaway"), count("reset"));
    (closed + goaways + resets > 0).then(|| {
        format!("connections: {closed} closed, {goaways} GOAWAY frames, {resets} streams reset")
    })
}

/// How one figure moves.
struct PartMovement {
    what: Drifting,
    from: f64,
    to: f64,
    /// Minutes until it steps; `None` for a line.
    after: Option<f64>,
    is_sure: bool,
    told: String,
}

impl PartMovement {
    /// What moves in one figure of all parts, if anything does, and a line on what the tests say. `None` with too few
    /// parts.
    fn of(
        what: Drifting,
        sound: &[&Rollup],
        value: impl Fn(&Rollup) -> Option<f64>,
    ) -> Option<Self> {
        // With the minutes that had been watched when the part began.
        let (mut values, mut minutes, mut passed) = (Vec::new(), Vec::new(), 0.0);
        for part in sound {
            if let Some(value) = value(part) {
                values.push(value);
                minutes.push(passed);
            }
            passed += (part.ended_at - part.begun_at) as f64 / MINUTE;
        }
        let each = values.len().div_ceil(VALUES_MAX).max(1);
        let values = folded(&values, VALUES_MAX);
        let (line, step) = (trend(&values)?, change(&values)?);
        let told = format!("{}: {}; {}", what.subject(), told(&line), told_step(&step));
        let is_line = line.left <= step.left;
        let (from, to) = match (is_line, what) {
            // A straight line may leave what is possible.
            (true, Drifting::Errors) => (line.first.clamp(0.0, 100.0), line.last.clamp(0.0, 100.0)),
            (true, _) => (line.first.max(0.0), line.last.max(0.0)),
            (false, _) => (step.before, step.after),
        };
        let is_sure = (line.is_sure() || step.is_sure()) && what.is_worth_telling(from, to);
        let after = (!is_line).then(|| minutes[step.at * each]);
        Some(Self { what, from, to, after, is_sure, told })
    }

    fn verdict(self, minutes: u64) -> DraftVerdict {
        let Self { what, from, to, after, .. } = self;
        let finding = match after {
            Some(after) => {
                let after_minutes = after.round() as u64;
                Finding::Step { what, from, to, after_minutes, minutes }
            }
            None => Finding::Drift(Found(Drift { what, from, to, minutes })),
        };
        DraftVerdict::new(finding, Confidence::High, vec![self.told])
    }

    /// Whether it moves by another factor than the median does.
    fn is_other_than(&self, median: &Self) -> bool {
        let by = |it: &Self| it.to.max(f64::MIN_POSITIVE) / it.from.max(f64::MIN_POSITIVE);
        let ratio = by(self) / by(median);
        !median.is_sure || !(1.0 / OTHERWISE..=OTHERWISE).contains(&ratio)
    }
}

impl Drifting {
    /// Whether so much is more than any provider does from one day to the next.
    fn is_worth_telling(self, from: f64, to: f64) -> bool {
        let share = (to - from).abs() / from.max(f64::MIN_POSITIVE);
        match self {
            Self::Time | Self::Throughput => share >= 0.05,
            Self::Tail => share >= 0.1,
            // Percent of the calls.
            Self::Errors => (to - from).abs() >= 0.1,
        }
    }
}

fn movements(sound: &[&Rollup], minutes: u64) -> Vec<DraftVerdict> {
    let length = |it: &Rollup| (it.ended_at - it.begun_at) as f64;
    let usual = median(&sound.iter().map(|it| length(it)).collect::<Vec<_>>()).unwrap_or(0.0);
    let errors = |it: &Rollup| Some(100.0 * (it.calls - it.served) as f64 / it.calls.max(1) as f64);
    let pace = |it: &Rollup| {
        (length(it) >= PART_MIN * usual && usual > 0.0).then(|| it.calls as f64 / length(it) * 1e6)
    };
    let of = |what, value: &dyn Fn(&Rollup) -> Option<f64>| PartMovement::of(what, sound, value);
    let times = (of(Drifting::Time, &|it| it.p50.map(ms)), of(Drifting::Errors, &errors));
    let (Some(time), Some(errors)) = times else {
        return vec![DraftVerdict::cannot_tell(format!(
            "drift needs at least {VALUES_MIN} intervals with served calls"
        ))];
    };
    // A tail that moves as the median does is no news.
    let tail = of(Drifting::Tail, &|it| it.p99.map(ms));
    let tail = tail
        .map(|tail| PartMovement { is_sure: tail.is_sure && tail.is_other_than(&time), ..tail });
    let all = [Some(time), tail, Some(errors), of(Drifting::Throughput, &pace)];
    let all: Vec<PartMovement> = all.into_iter().flatten().collect();
    if all.iter().any(|it| it.is_sure) {
        let sure = all.into_iter().filter(|it| it.is_sure);
        return sure.map(|it| it.verdict(minutes)).collect();
    }
    let parts = sound.iter().filter(|it| it.p50.is_some()).count();
    // In a short row nothing but a straight line would be sure.
    let sure = if parts >= SURE_MIN { Confidence::High } else { Confidence::Medium };
    let evidence = all.into_iter().map(|it| it.told).collect();
    vec![DraftVerdict::new(Finding::Drift(NotUpTo(NoDrift { minutes })), sure, evidence)]
}

fn told(trend: &Trend) -> String {
    let sure = if trend.is_sure() { "significant" } else { "not significant" };
    format!(
        "Mann-Kendall z = {:.1}: {sure} at p = 0.001; variance after Hamed and Rao, {} times that of \
         independent intervals",
        trend.z,
        figure(trend.widened)
    )
}

fn told_step(step: &StepChange) -> String {
    let sure = if step.is_sure() { "significant" } else { "not significant" };
    format!(
        "largest step: Student's t p = {:.1e}, Mann-Whitney z = {:.1}: {sure}",
        step.chance, step.z
    )
}

/// What became of calls that were not served.
fn unserved(sound: &[&Rollup]) -> Option<String> {
    let classes = failures::unserved(sound).into_iter();
    let words: Vec<String> =
        classes.map(|(class, n)| format!("{n} {}", class_words(class))).collect();
    (!words.is_empty()).then(|| format!("not served: {}", words.join(", ")))
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

#[cfg(test)]
#[path = "soak_tests.rs"]
mod tests;
