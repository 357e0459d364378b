//! What becomes of load (`load`): offered rates or stages of users.
//!
//! A cell is `{"rate": r}`, or `{"users": u, "stage": s}`, whose rate is that of its
//! calls.

use super::finding::Finding;
use super::sentence::figure;
use super::trial::{Played, seconds, served};
use super::{Confidence, Found};
use crate::stat::offered::{Level, Offer, level, saturation};
use crate::stat::quantile;

pub(super) fn load(cells: &[&Played<'_>]) -> Found {
    let levels: Vec<(Level, &Played<'_>)> =
        cells.iter().filter_map(|cell| Some((level_of(cell)?, *cell))).collect();
    if levels.is_empty() {
        return Found::cannot_tell("no cell was played to its end");
    }
    let found = saturation(&levels.iter().map(|(level, _)| *level).collect::<Vec<_>>());
    let p99_at = |rate: f64| {
        let those = levels.iter().filter(|(level, _)| level.offered == rate);
        let times: Vec<f64> = those.flat_map(|(_, cell)| cell.times()).collect();
        quantile(&times, 0.99).unwrap_or(0.0)
    };
    let best = levels.iter().map(|(level, _)| level.achieved).fold(0.0, f64::max);
    let mut evidence = vec![format!("at most {} calls/s were served", figure(best))];
    let Some(holds) = found.holds else {
        let lowest = found.breaks.unwrap_or(0.0);
        return Found::cannot_tell(format!(
            "even {} calls/s are not borne: begin lower",
            figure(lowest)
        ));
    };
    let Some(breaks) = found.breaks else {
        let finding = Finding::NoCapacityLimit { up_to_per_second: holds, p99_ms: p99_at(holds) };
        return Found::new(finding, Confidence::High, evidence);
    };
    if let Some((level, _)) = levels.iter().find(|(level, _)| level.offered == breaks) {
        evidence.push(format!(
            "of {} calls/s {} are served, {:.1} % with success",
            figure(breaks),
            figure(level.achieved),
            level.success * 100.0
        ));
    }
    let finding = Finding::Capacity { per_second: holds, p99_ms: p99_at(holds) };
    // A level above that is borne again says that the break was a moment's.
    let again = levels.iter().any(|(level, _)| level.offered > breaks && level.holds());
    let sure = if again { Confidence::Low } else { Confidence::High };
    Found::new(finding, sure, evidence)
}

/// What became of one cell, in calls from their intended start.
pub(crate) fn level_of(cell: &Played<'_>) -> Option<Level> {
    let offered = cell.number("rate").or_else(|| pace_of(cell))?;
    let offers: Vec<Offer> = cell
        .calls
        .iter()
        .map(|call| Offer {
            intended: seconds(call.intended_at),
            ended: seconds(call.ended_at),
            good: served(call),
        })
        .collect();
    level(offered, &offers)
}

/// Calls a second that were meant to be sent.
fn pace_of(cell: &Played<'_>) -> Option<f64> {
    let first = cell.calls.iter().map(|call| call.intended_at).min()?;
    let last = cell.calls.iter().map(|call| call.intended_at).max()?;
    (last > first).then(|| (cell.calls.len() - 1) as f64 / seconds(last - first))
}
