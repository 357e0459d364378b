//! What becomes of load (`load`): offered rates or stages of users.
//!
//! A cell is `{"rate": r}`, or `{"users": u, "stage": s}`. Users ask again when they have an answer:
//! whatever is served, they offer no more than that, and so they show no capacity. Of them is told
//! what they were served, stage by stage.

use rand::Rng;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{FailedCalls, Finding, LoadCapacity, NoLoadCapacity, ServedUsers};
use super::sentence::figure;
use super::trial::{PlayedCell, Trial, seconds, served};
use super::{Confidence, DraftVerdict};
use crate::record::RunRecord;
use crate::stat::bootstrap::{Interval, median_difference};
use crate::stat::offered::{OfferedCall, OfferedLevel, level, saturation};
use crate::stat::quantile;

pub(super) fn load(cells: &[&PlayedCell<'_>]) -> Vec<DraftVerdict> {
    let by_users: Vec<&PlayedCell<'_>> =
        cells.iter().filter(|cell| cell.count("users").is_some()).copied().collect();
    let levels: Vec<(OfferedLevel, &PlayedCell<'_>)> = cells
        .iter()
        .filter(|cell| cell.count("users").is_none())
        .filter_map(|cell| Some((level_of(cell)?, *cell)))
        .collect();
    let mut found = Vec::new();
    if !levels.is_empty() {
        found.push(capacity(&levels));
    }
    found.extend(users(&by_users));
    if found.is_empty() {
        found.push(DraftVerdict::cannot_tell("no cell was completed"));
    }
    if let Some(calls) = cells.iter().find_map(|cell| cell.factor("batch")) {
        let line = format!("each request is a batch of {calls} calls and counts as one call above");
        found.iter_mut().for_each(|draft| draft.evidence.push(line.clone()));
    }
    found
}

/// What users were served.
fn users(cells: &[&PlayedCell<'_>]) -> Option<DraftVerdict> {
    let stage = |cell: &&PlayedCell<'_>| {
        let users = cell.count("users")?;
        let (per_second, p99_ms) = (cell.throughput()?, cell.took(0.99)?);
        Some(ServedUsers { users, per_second, p99_ms, failed: failures([*cell]) })
    };
    let stages: Vec<ServedUsers> = cells.iter().filter_map(stage).collect();
    let evidence = cells
        .iter()
        .map(|cell| {
            let FailedCalls { failed, of, unanswered } = failures([*cell]);
            format!(
                "{} users: {failed} of {of} calls were not served, {unanswered} of these got no response",
                cell.factor("users").unwrap_or_default()
            )
        })
        .collect();
    // One cell of each says nothing of other minutes.
    let found = DraftVerdict::new(Finding::Users { stages }, Confidence::Medium, evidence);
    matches!(&found.finding, Finding::Users { stages } if !stages.is_empty()).then_some(found)
}

/// What was not served in these cells.
fn failures<'c, 'r: 'c>(cells: impl IntoIterator<Item = &'c PlayedCell<'r>>) -> FailedCalls {
    let mut found = FailedCalls::default();
    for call in cells.into_iter().flat_map(|cell| &cell.calls) {
        found.of += 1;
        found.failed += u64::from(!served(call));
        found.unanswered += u64::from(call.error.is_some());
    }
    found
}

/// The 99th percentile of the times at a rate, milliseconds, and what failed there.
fn borne_at(levels: &[(OfferedLevel, &PlayedCell<'_>)], rate: f64) -> (f64, FailedCalls) {
    let cells = || levels.iter().filter(|(level, _)| level.offered == rate).map(|(_, cell)| *cell);
    let times: Vec<f64> = cells().flat_map(PlayedCell::times).collect();
    (quantile(&times, 0.99).unwrap_or(0.0), failures(cells()))
}

fn capacity(levels: &[(OfferedLevel, &PlayedCell<'_>)]) -> DraftVerdict {
    let found = saturation(&levels.iter().map(|(level, _)| *level).collect::<Vec<_>>());
    let best = levels.iter().map(|(level, _)| level.achieved).fold(0.0, f64::max);
    let kept =
        |cell: &PlayedCell<'_>| seconds(cell.cell.ended_at.saturating_sub(cell.cell.begun_at));
    let shortest = levels.iter().map(|(_, cell)| kept(cell)).fold(f64::INFINITY, f64::min);
    let mut evidence = vec![
        format!("at most {} calls/s were served", figure(best)),
        format!(
            "each stage lasted {} s or more; a burst allowance that lasts longer is not detected",
            figure(shortest.round())
        ),
    ];
    evidence.extend(few_failed(levels));
    let Some(holds) = found.holds else {
        let lowest = found.breaks.unwrap_or(0.0);
        return DraftVerdict::cannot_tell(format!(
            "even {} calls/s are not sustained: start lower",
            figure(lowest)
        ));
    };
    let Some(breaks) = found.breaks else {
        let (up_to_per_second, (p99_ms, failed)) = (holds, borne_at(levels, holds));
        let finding =
            Finding::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, p99_ms, failed }));
        return DraftVerdict::new(finding, Confidence::High, evidence);
    };
    let at_break = || levels.iter().map(|it| it.0).filter(|level| level.offered == breaks);
    if let Some(level) = at_break().find(|level| !level.holds()) {
        evidence.push(format!(
            "at {} calls/s offered, {} are served; {} of {} calls failed, and {} were late",
            figure(breaks),
            figure(level.achieved),
            level.failed,
            level.calls,
            level.behind
        ));
    }
    let (per_second, (p99_ms, failed)) = (holds, borne_at(levels, holds));
    let finding = Finding::Capacity(Found(LoadCapacity { per_second, p99_ms, failed }));
    // A level above that is borne again says that the break was a moment's.
    let again = levels.iter().any(|(level, _)| level.offered > breaks && level.holds());
    let broken = levels.iter().filter(|(level, _)| !level.holds()).count();
    let sure = match (again, broken) {
        (true, _) => Confidence::Low,
        (false, 2..) => Confidence::High,
        (false, _) if at_break().any(|level| level.breaks_by_far()) => Confidence::High,
        (false, _) => Confidence::Medium,
    };
    if sure == Confidence::Medium {
        evidence.push(
            "seen in one stage only, by a small margin: a short disturbance may explain it".into(),
        );
    }
    DraftVerdict::new(finding, sure, evidence)
}

/// Failures at rates that are borne: so few are nothing that the rate brings about.
fn few_failed(levels: &[(OfferedLevel, &PlayedCell<'_>)]) -> Option<String> {
    let held = levels.iter().map(|it| it.0).filter(|level| level.failed > 0 && level.holds());
    let (failed, calls) =
        held.fold((0, 0), |(failed, calls), it| (failed + it.failed, calls + it.calls));
    (failed > 0).then(|| {
        format!(
            "{failed} of {calls} calls failed at sustained rates, within a failure rate of 0.1 %"
        )
    })
}

/// A stage in which fewer were served says nothing of time.
const SERVED_MIN: f64 = 0.99;

/// What calls take more here than at the first target, in the stages that both bore.
pub(super) fn beside(
    run: &RunRecord,
    trial: &Trial<'_>,
    all: &[Trial<'_>],
    rng: &mut impl Rng,
) -> Option<DraftVerdict> {
    let first = all.iter().find(|other| other.experiment == trial.experiment)?;
    if first.target == trial.target {
        return None;
    }
    let bears = |cell: &&&PlayedCell<'_>| cell.share(served) >= SERVED_MIN;
    let (own, others) = (trial.sound().0, first.sound().0);
    let mut found: Vec<(String, Interval, (f64, f64))> = Vec::new();
    for cell in own.iter().filter(bears) {
        let same = |other: &&&PlayedCell<'_>| other.cell.factors == cell.cell.factors;
        let Some(other) = others.iter().filter(bears).find(same) else { continue };
        let (times, other_times) = (vec![cell.times()], vec![other.times()]);
        let Some(more) = median_difference(&times, &other_times, rng) else { continue };
        let p99 = |played: &PlayedCell<'_>| played.took(0.99).unwrap_or(0.0);
        found.push((cell.cell.setting(), more, (p99(cell), p99(other))));
    }
    let evidence = found
        .iter()
        .map(|(setting, more, (p99, other))| {
            format!(
                "{setting}: {} ms ({} to {}), 99 % within {} and {} ms",
                figure(more.point),
                figure(more.low),
                figure(more.high),
                figure(*p99),
                figure(*other)
            )
        })
        .collect();
    // One stage, and so one order of the two, says nothing of what the first did for the second.
    let sure = if found.len() >= 2 { Confidence::Medium } else { Confidence::Low };
    // The stages go up: the last one is the highest that both bore.
    let (held, more, _) = found.pop()?;
    let than = run.targets.get(first.target as usize)?.id.clone();
    let finding = Finding::Adds { than, ms: more.point, low: more.low, high: more.high, held };
    // And few stages say nothing of other minutes.
    Some(DraftVerdict::new(finding, sure, evidence))
}

/// What became of one cell, in calls from their intended start.
pub(crate) fn level_of(cell: &PlayedCell<'_>) -> Option<OfferedLevel> {
    let offered = cell.number("rate").or_else(|| pace_of(cell))?;
    let offers: Vec<OfferedCall> = cell
        .calls
        .iter()
        .map(|call| OfferedCall {
            intended: seconds(call.intended_at),
            ended: seconds(call.ended_at),
            good: served(call),
        })
        .collect();
    level(offered, &offers)
}

/// Calls a second that were meant to be sent.
fn pace_of(cell: &PlayedCell<'_>) -> Option<f64> {
    let first = cell.calls.iter().map(|call| call.intended_at).min()?;
    let last = cell.calls.iter().map(|call| call.intended_at).max()?;
    (last > first).then(|| (cell.calls.len() - 1) as f64 / seconds(last - first))
}
