//! What a long time shows (`soak`): how it held, and whether it drifts.
//!
//! Read from rollups alone, each as good as another. Those in which we were the bound are
//! left out.

use super::finding::{Drifting, Finding};
use super::sentence::figure;
use super::trial::watched;
use super::{Confidence, DraftVerdict};
use crate::record::{CellDoubt, Rollup};
use crate::stat::trend::{Trend, VALUES_MIN, folded, trend};
use crate::stat::{median, quantile};

/// Microseconds in a minute.
const MINUTE: f64 = 6e7;

/// Values that a trend is computed from at most: more are folded.
const VALUES_MAX: usize = 240;

/// With fewer parts a drift may go unseen.
const SURE_MIN: usize = 20;

/// A change of the median by a smaller share is told by no one, however sure it is.
const CHANGE_MIN: f64 = 0.05;

/// And one of errors by fewer percent of the calls.
const ERRORS_MIN: f64 = 0.1;

pub(super) fn soak(rollups: &[&Rollup]) -> Vec<DraftVerdict> {
    let sound: Vec<&Rollup> =
        rollups.iter().filter(|rollup| !rollup.load.saturated).copied().collect();
    let left_out = rollups.len() - sound.len();
    if left_out * 4 > rollups.len() {
        let all = rollups.len();
        let why = format!("{} in {left_out} of {all} parts", doubt(rollups).words());
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
        format!("{served} of {calls} calls were served, in {} parts", sound.len()),
        format!("99 % within {} ms in the worst part", figure(worst)),
    ];
    evidence.extend(unserved(&sound));
    evidence.extend(connections(rollups));
    if left_out > 0 {
        evidence.push(format!("{left_out} parts are left out: {}", doubt(rollups).words()));
    }
    let sure = match (sound.len() >= VALUES_MIN, left_out) {
        (true, 0) => Confidence::High,
        (true, _) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let (parts, with_errors) = (sound.len() as u64, with_errors as u64);
    let held = Finding::Held { minutes, parts, with_errors, p50_ms, p99_ms };
    let mut found = vec![DraftVerdict::new(held, sure, evidence)];
    found.extend(drifts(&sound, minutes));
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
        format!("{closed} connections ended, {goaways} GOAWAY and {resets} resets of streams came")
    })
}

fn drifts(sound: &[&Rollup], minutes: u64) -> Vec<DraftVerdict> {
    let times: Vec<f64> = sound.iter().filter_map(|it| it.p50).map(ms).collect();
    let errors: Vec<f64> = sound
        .iter()
        .map(|it| 100.0 * (it.calls - it.served) as f64 / it.calls.max(1) as f64)
        .collect();
    let row = |values: &[f64]| trend(&folded(values, VALUES_MAX));
    let (Some(time), Some(error)) = (row(&times), row(&errors)) else {
        return vec![DraftVerdict::cannot_tell(format!(
            "whether it drifts: that requires {VALUES_MIN} parts with answers"
        ))];
    };
    let mut found = Vec::new();
    let change = (time.last - time.first).abs() / time.first.max(f64::MIN_POSITIVE);
    if time.is_sure() && change >= CHANGE_MIN {
        found.push(drift(Drifting::Time, &time, minutes));
    }
    if error.is_sure() && (error.last - error.first).abs() >= ERRORS_MIN {
        found.push(drift(Drifting::Errors, &error, minutes));
    }
    if found.is_empty() {
        let evidence = vec![
            format!("of the median time: {}", told(&time)),
            format!("of calls that are not served: {}", told(&error)),
        ];
        // In a short row nothing but a straight line would be sure.
        let sure = if times.len() >= SURE_MIN { Confidence::High } else { Confidence::Medium };
        found.push(DraftVerdict::new(Finding::NoDrift { minutes }, sure, evidence));
    }
    found
}

fn drift(what: Drifting, trend: &Trend, minutes: u64) -> DraftVerdict {
    let (from, to) = match what {
        Drifting::Time => (trend.first, trend.last),
        // A straight line may leave what is possible.
        Drifting::Errors => (trend.first.clamp(0.0, 100.0), trend.last.clamp(0.0, 100.0)),
    };
    let evidence = vec![told(trend)];
    DraftVerdict::new(Finding::Drift { what, from, to, minutes }, Confidence::High, evidence)
}

fn told(trend: &Trend) -> String {
    let sure = if trend.is_sure() { "more" } else { "no more" };
    format!(
        "Mann-Kendall, z = {:.1}: {sure} than chance does in one of a thousand; the variance is that \
         of Hamed and Rao, {} times that of parts that know nothing of each other",
        trend.z,
        figure(trend.widened)
    )
}

/// What became of calls that were not served.
fn unserved(sound: &[&Rollup]) -> Option<String> {
    let mut classes = std::collections::BTreeMap::new();
    for (class, count) in sound.iter().flat_map(|it| &it.unserved) {
        *classes.entry(class.as_str()).or_insert(0) += count;
    }
    let words: Vec<String> = classes.iter().map(|(class, n)| format!("{n} {class}")).collect();
    (!words.is_empty()).then(|| format!("not served: {}", words.join(", ")))
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}
