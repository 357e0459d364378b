//! Failures that no limit brings about: the same share at any rate, at any concurrency, or at any time.
//!
//! Such a share is no reason to send less, and a client meets it whatever it does: it is told by itself.
//! Failures that come with the load are what the limit of a rate looks like, and are told there. So are those of a
//! flood that is above the limit at any concurrency: the same share of each cell fails, but first as many calls pass
//! as a bucket holds and then hardly any, or they pass at an even pace. What fails by chance is scattered.

use std::collections::BTreeMap;

use super::finding::{FailureSpan, FailureWay, Finding};
use super::limits::{counts_of, failed_otherwise, refusal_of};
use super::trial::{PlayedCell, sent_at};
use super::{Confidence, DraftVerdict};
use crate::record::{CallRecord, Rollup};
use crate::stat::chance::{chi_square_deviate, share_interval, so_many};

/// Fewer failures are no share.
const FAILED_MIN: u64 = 5;

/// The lower end of the interval of a share that is told.
const SHARE_MIN: f64 = 0.000_5;

/// As many as this in three cells are sure.
const SURE_MIN: u64 = 20;

/// Cells differ where chance shows as much less often than this, over all of them.
const CHANCE_MAX: f64 = 0.01;

/// The most parts that a cell is divided into.
const PARTS_MAX: usize = 8;
/// The failures that a part has on average, or the calls that pass if these are fewer.
const PART_MIN: usize = 2;

/// Chance leads as far above or below what it leads to on average once in 700 times.
const DEVIATE_MAX: f64 = 3.0;

/// The class of refusals for a rate: these are no failures.
const THROTTLED: &str = "throttled";

/// Failures and calls of a cell, or of a part of one.
type CellFailures = (u64, u64);

/// A share of failures that is the same in all of `cells`.
pub(super) fn of_cells(cells: &[&PlayedCell<'_>], when: FailureSpan) -> Option<DraftVerdict> {
    let failed = |cell: &PlayedCell<'_>| {
        cell.calls.iter().filter(|call| failed_otherwise(call)).count() as u64
    };
    let counts: Vec<CellFailures> =
        cells.iter().map(|cell| (failed(cell), cell.calls.len() as u64)).collect();
    if !are_scattered(cells) {
        return None;
    }
    let calls = cells.iter().flat_map(|cell| &cell.calls).filter(|call| failed_otherwise(call));
    let ways = counts_of(calls.map(|call| way(call))).into_iter();
    told(&counts, ways.max_by_key(|(_, count)| *count)?.0, when)
}

/// The share of failures of a long time. Whether it changes is another question.
pub(super) fn of_rollups(parts: &[&Rollup]) -> Option<DraftVerdict> {
    let mut classes = unserved(parts);
    classes.remove(THROTTLED);
    let counts = (classes.values().sum(), parts.iter().map(|it| it.calls).sum());
    let (class, _) = classes.into_iter().max_by_key(|(_, calls)| *calls)?;
    told(&[counts], FailureWay::Class(class.to_owned()), FailureSpan::AnyTime)
}

/// The calls that were not served, by class.
pub(super) fn unserved<'a>(parts: &[&'a Rollup]) -> BTreeMap<&'a str, u64> {
    let mut classes = BTreeMap::new();
    for (class, calls) in parts.iter().flat_map(|it| &it.unserved) {
        *classes.entry(class.as_str()).or_default() += calls;
    }
    classes
}

fn told(counts: &[CellFailures], how: FailureWay, when: FailureSpan) -> Option<DraftVerdict> {
    let (failed, calls) =
        counts.iter().fold((0, 0), |(failed, calls), it| (failed + it.0, calls + it.1));
    let (low, high) = share_interval(failed, calls);
    if failed < FAILED_MIN || low < SHARE_MIN || !is_even(counts, failed as f64 / calls as f64) {
        return None;
    }
    let sure = match (when, counts.len()) {
        (FailureSpan::AnyTime, _) | (_, 3..) if failed >= SURE_MIN => Confidence::High,
        (FailureSpan::AnyTime, _) | (_, 2..) => Confidence::Medium,
        (_, _) => Confidence::Low,
    };
    let shares: Vec<String> =
        counts.iter().map(|(failed, calls)| format!("{failed} of {calls}")).collect();
    let evidence = vec![match when {
        FailureSpan::AnyTime => format!("{failed} of {calls} calls failed"),
        FailureSpan::AnyRate | FailureSpan::AnyConcurrency => {
            format!(
                "failed calls by cell: {}; the differences are within chance",
                shares.join(", ")
            )
        }
    }];
    let percent = 100.0 * failed as f64 / calls as f64;
    let finding = Finding::Fails { percent, low: 100.0 * low, high: 100.0 * high, how, when };
    Some(DraftVerdict::new(finding, sure, evidence))
}

/// Whether each cell has as many failures as a common share explains.
fn is_even(counts: &[CellFailures], share: f64) -> bool {
    let level = CHANCE_MAX / (2 * counts.len().max(1)) as f64;
    counts.iter().all(|(failed, calls)| {
        let fewer = 1.0 - so_many(failed + 1, *calls, share);
        so_many(*failed, *calls, share) > level && fewer > level
    })
}

/// Whether the failures of each cell are spread over its calls as by chance: the parts of a cell, one after the other,
/// have as many of them as others, or differ as chance has them differ. Where most calls fail, those that pass may not
/// be spread more evenly than by chance, either: a limit lets them pass at a pace.
fn are_scattered(cells: &[&PlayedCell<'_>]) -> bool {
    let (mut sum, mut freedom) = (0.0, 0.0);
    let (mut failures, mut all) = (0, 0);
    for cell in cells {
        let mut calls = cell.calls.clone();
        calls.sort_by_key(|call| sent_at(call));
        let failed: Vec<bool> = calls.iter().map(|call| failed_otherwise(call)).collect();
        let count = failed.iter().filter(|failed| **failed).count();
        (failures, all) = (failures + count, all + failed.len());
        let parts = (count.min(failed.len() - count) / PART_MIN).min(PARTS_MAX);
        if parts < 2 {
            continue;
        }
        let share = count as f64 / failed.len() as f64;
        let parts = failed.chunks(failed.len().div_ceil(parts));
        freedom += (parts.len() - 1) as f64;
        for part in parts {
            let calls = part.len() as f64;
            let seen = part.iter().filter(|failed| **failed).count() as f64;
            sum += (seen - calls * share).powi(2) / (calls * share * (1.0 - share));
        }
    }
    if freedom == 0.0 {
        return true;
    }
    let deviate = chi_square_deviate(sum, freedom);
    deviate <= DEVIATE_MAX && (2 * failures < all || deviate >= -DEVIATE_MAX)
}

fn way(call: &CallRecord) -> FailureWay {
    match &call.error {
        Some(error) => FailureWay::Transport(error.clone()),
        None => FailureWay::Refused(refusal_of(call)),
    }
}

#[cfg(test)]
#[path = "failures_tests.rs"]
mod tests;
