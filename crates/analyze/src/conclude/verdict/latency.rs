//! How long a call takes when nothing else is asked (`latency`): one cell, one call at a time.

use super::finding::Finding;
use super::trial::{PlayedCell, served};
use super::{Confidence, DraftVerdict};
use crate::stat::quantile_of_sorted;

/// Where fewer are served, times are those of a lucky few.
const SERVED_MIN: f64 = 0.9;

pub(super) fn latency(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let calls: usize = cells.iter().map(|cell| cell.calls.len()).sum();
    let mut times: Vec<f64> = cells.iter().flat_map(|cell| cell.times()).collect();
    times.sort_by(f64::total_cmp);
    let took = |q: f64| quantile_of_sorted(&times, q);
    let (Some(p50_ms), Some(p95_ms), Some(least)) = (took(0.5), took(0.95), took(0.0)) else {
        return DraftVerdict::cannot_tell("no call was served");
    };
    let served = cells.iter().flat_map(|cell| &cell.calls).filter(|call| served(call)).count();
    if (served as f64) < SERVED_MIN * calls as f64 {
        return DraftVerdict::cannot_tell(format!("{served} of {calls} calls were served"));
    }
    let evidence = vec![
        format!("{served} of {calls} calls were served, one at a time"),
        format!("fastest {} ms", super::figure(least)),
    ];
    let sure = Confidence::by_count(served, 30, 10);
    DraftVerdict::new(Finding::Takes { p50_ms, p95_ms }, sure, evidence)
}
