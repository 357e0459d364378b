//! How limits refill (`window`), and what methods count against them (`cost`).
//!
//! `window`: a cell `{"flood": r, "silence_ms": s}` leans on the limit as `knock` does, after a
//! silence; a cell `{"last_part": k, ...}` sends half of what passes, then the other half in the
//! same window, and `k` calls, of which fewer pass where the window slides, after a little more
//! than one window, and is played again where fewer passed; a cell `{"heeded_ms": p, ...}` sends until calls are refused, is silent for as
//! long as these ask for, and sends one call. `cost`: a cell `{"method": m}` leans on the limit with calls of one method.

use std::collections::BTreeMap;

use wellhead_eth::MethodTable;
use wellhead_upstream::{Provider, Tariff};

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{Finding, NoCountLimit, Refilled, RetryAfterWorth, TokenLimit};
use super::limits::{failed_otherwise, lasted, order, order_by, refusal_way};
use super::sentence::figure;
use super::trial::{PlayedCell, denied, seconds, sent_at, sent_per_second, served, throttled};
use super::{Confidence, DraftVerdict};
use crate::record::{CallRecord, MeasuredTarget};
use crate::stat::bucket::{TimedCall, pace};
use crate::stat::median;
use crate::stat::refill::{
    LastPart, RefillKind, RefillLimit, RestedFlood, are_uneven, begins_by_a_clock, flood, read,
    read_rested,
};

/// Other failures above this share make a cell say nothing of limits.
const FAILED_MAX: f64 = 0.01;

/// The number of cells, at different times of the provider's clock, that have to show that a window slides.
const SLIDING_SEEN_MIN: usize = 2;

pub(super) fn window(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let leant: Vec<&PlayedCell<'_>> =
        cells.iter().filter(|cell| cell.number("flood").is_some()).copied().collect();
    let failing = cells.iter().filter(|cell| cell.share(failed_otherwise) > FAILED_MAX).count();
    let refused: IsRefused = match failing {
        0 => throttled,
        _ if is_told_by_status(&leant) => denied,
        _ => {
            let cells = cells.len();
            return DraftVerdict::cannot_tell(format!(
                "calls failed for reasons other than a limit in {failing} of {cells} cells"
            ));
        }
    };
    let floods: Vec<Vec<TimedCall>> =
        leant.iter().map(|cell| order_by(&cell.calls, refused)).collect();
    let most = floods.iter().map(Vec::len).max().unwrap_or(0);
    if most == 0 {
        return DraftVerdict::cannot_tell("no cell was completed");
    }
    if floods.iter().all(|calls| calls.iter().all(|call| call.passed)) {
        let paces = leant.iter().filter_map(|cell| sent_per_second(cell));
        let rate = figure(paces.fold(0.0, f64::max));
        let evidence = vec![format!("{} calls at {rate}/s, none throttled", most)];
        let sure = if floods.len() >= 2 { Confidence::High } else { Confidence::Medium };
        let finding = Finding::Bucket(NotUpTo(NoCountLimit { up_to: most as u64 }));
        return DraftVerdict::new(finding, sure, evidence);
    }
    let silent = |cell: &PlayedCell<'_>| cell.number("silence_ms").unwrap_or(0.0) / 1_000.0;
    let silences = leant.iter().map(|cell| silent(cell));
    let of_rest = silences.zip(&floods);
    let after_rest: Vec<RestedFlood> =
        of_rest.map(|(silence, calls)| RestedFlood { silence, calls: calls.clone() }).collect();
    let Some((limit, rested)) = read_rested(&after_rest) else {
        let first = floods.iter().filter_map(|calls| flood(calls)).map(|it| it.first);
        return DraftVerdict::cannot_tell(format!(
            "{} calls are served and then none, and a refill was not seen twice: the window is \
             longer than the wait",
            figure(first.fold(0.0, f64::max))
        ));
    };
    let limit = if are_delayed(&leant) { by_its_line(&limit, &rested) } else { limit };
    let seen = SeenFloods { cells, leant: &leant, rested: &rested, refused };
    bucket(&seen, &limit)
}

/// Whether a limit refused a call.
type IsRefused = fn(&CallRecord) -> bool;

/// Of calls that pass, half take this many times as long as the quickest where they wait for their turn.
const DELAYED: f64 = 3.0;

/// Whether calls that pass wait for their turn: then they are heard late, and knocks that pass in a row are none
/// of a window that began anew.
fn are_delayed(leant: &[&PlayedCell<'_>]) -> bool {
    let passed = leant.iter().flat_map(|cell| &cell.calls).filter(|call| served(call));
    let times: Vec<f64> =
        passed.map(|call| seconds(call.ended_at.saturating_sub(sent_at(call)))).collect();
    let quickest = times.iter().copied().fold(f64::INFINITY, f64::min);
    median(&times).is_some_and(|middle| middle > DELAYED * quickest)
}

/// A bucket that fills bit by bit, of as many calls as pass at first.
fn by_its_line(limit: &RefillLimit, rested: &[Vec<TimedCall>]) -> RefillLimit {
    let firsts: Vec<f64> =
        rested.iter().filter_map(|calls| flood(calls)).map(|it| it.first).collect();
    let size = median(&firsts).unwrap_or(limit.size);
    RefillLimit { kind: RefillKind::Steady, size, window: size / limit.per_second, ..*limit }
}

/// So much more may pass than a limit explains.
const EXPLAINED: f64 = 1.1;

/// A bucket or a window of which a rate that passed says that it is not so.
pub(super) fn is_disproved(found: &DraftVerdict, rates: &[&PlayedCell<'_>]) -> Option<String> {
    let Finding::Bucket(Found(limit)) = found.finding else { return None };
    let TokenLimit { size, refill_per_second, refill, .. } = limit;
    // A window may be met just before it begins anew.
    let at_once = if refill == Refilled::Evenly { 1.0 } else { 2.0 } * size as f64;
    let explains = |cell: &&&PlayedCell<'_>| {
        let calls = cell.calls.len() as f64;
        calls <= EXPLAINED * (at_once + refill_per_second * lasted(cell)) + 5.0
    };
    let passed = rates.iter().filter(|cell| cell.share(denied) == 0.0);
    let against = passed.filter(|cell| !explains(cell)).max_by_key(|cell| cell.calls.len())?;
    let rate = against.factor("rate").unwrap_or_default();
    Some(format!(
        "burst {} and refill {} calls/s, but in `rate` all {} calls at {rate} calls/s were served: the limit \
         depends on earlier calls",
        figure(size as f64),
        figure(refill_per_second),
        against.calls.len()
    ))
}

/// What leant on a limit.
struct SeenFloods<'a, 'r> {
    cells: &'a [&'a PlayedCell<'r>],
    /// The floods among these.
    leant: &'a [&'a PlayedCell<'r>],
    /// The calls of floods that began with a whole limit.
    rested: &'a [Vec<TimedCall>],
    refused: IsRefused,
}

/// The chance that failures which know nothing of each other begin so late in all floods.
const LATE_BY_CHANCE_MAX: f64 = 0.01;

/// Whether a limit tells itself by a status that says nothing of limits: then calls fail only after many have
/// passed, and hardly any passes afterwards. What fails now and then fails among the first as well.
fn is_told_by_status(leant: &[&PlayedCell<'_>]) -> bool {
    let is_lost = |call: &CallRecord| call.error.is_some();
    let chance = leant.iter().map(|cell| {
        let first = cell.calls.iter().position(|call| denied(call)).unwrap_or(0);
        (1.0 - cell.share(denied)).powf(first as f64)
    });
    leant.iter().all(|cell| cell.share(is_lost) <= FAILED_MAX)
        && chance.product::<f64>() <= LATE_BY_CHANCE_MAX
}

fn bucket(seen: &SeenFloods<'_, '_>, limit: &RefillLimit) -> DraftVerdict {
    let SeenFloods { cells, leant, rested, refused } = *seen;
    let (refill, how) = match limit.kind {
        RefillKind::Steady => (Refilled::Evenly, "it refills call by call".to_owned()),
        RefillKind::Reset => at_once(seen, limit),
    };
    let floods = leant.iter().filter_map(|cell| flood(&order_by(&cell.calls, refused)));
    let firsts: Vec<f64> = floods.map(|it| it.first).collect();
    let (retry_after, told) = retry_after(cells, leant);
    let evidence = vec![
        format!(
            "{} calls served before the first throttled one (median of {} floods)",
            figure(median(&firsts).unwrap_or(0.0)),
            firsts.len()
        ),
        format!("refill {} calls/s, over {} waits: {how}", figure(limit.per_second), limit.waits),
        told,
    ];
    // A size is believed when it was seen from a whole limit, a window when it was seen twice.
    let sure = match (limit.kind, rested.len(), limit.waits) {
        (RefillKind::Steady, 2.., 20..) | (RefillKind::Reset, _, 3..) => Confidence::High,
        (RefillKind::Steady, 1.., _) | (RefillKind::Reset, _, 2..) => Confidence::Medium,
        (RefillKind::Steady | RefillKind::Reset, _, _) => Confidence::Low,
    };
    // Something else is left in it, such as calls of earlier experiments in a longer window.
    let is_uneven = limit.kind == RefillKind::Steady && are_uneven(rested.iter());
    let sure = if is_uneven { Confidence::Low } else { sure };
    let finding = Finding::Bucket(Found(TokenLimit {
        size: limit.size.round() as u64,
        refill_per_second: limit.per_second,
        window_s: limit.window,
        refill,
        way: refusal_way(leant),
        retry_after,
    }));
    DraftVerdict::new(finding, sure, evidence)
}

/// Whether the window begins by a clock, with the first call, or slides.
fn at_once(seen: &SeenFloods<'_, '_>, limit: &RefillLimit) -> (Refilled, String) {
    let SeenFloods { cells, rested, refused, .. } = *seen;
    if begins_by_a_clock(rested, limit) {
        return (Refilled::Window, "windows start on the provider's clock".to_owned());
    }
    let parts: Vec<LastPart> = cells.iter().filter_map(|cell| last_part(cell, refused)).collect();
    if parts.is_empty() || rested.len() < 2 {
        return (Refilled::AtOnce, "it refills all at once".to_owned());
    }
    let served: Vec<String> =
        parts.iter().map(|part| format!("{} of {}", part.passed, part.sent)).collect();
    let how = format!("{} calls served one window after the first of them", served.join(" and "));
    let reduced = parts.iter().filter(|part| part.is_reduced()).count();
    match reduced {
        0 => (Refilled::Window, format!("{how}: windows start with the first call")),
        _ if reduced < parts.len() => {
            (Refilled::Window, format!("{how}: windows start on the provider's clock"))
        }
        SLIDING_SEEN_MIN.. => (Refilled::Sliding, how),
        _ => (Refilled::AtOnce, how),
    }
}

/// What a cell shows of a window that may slide.
fn last_part(cell: &PlayedCell<'_>, refused: IsRefused) -> Option<LastPart> {
    let last = usize::try_from(cell.count("last_part")?).ok()?;
    LastPart::of(&order_by(&cell.calls, refused), last)
}

/// Whether a refused client is told when to come again, and whether that is so: by the cells that
/// were silent for as long as was asked for, and not by knocks, for which a refused client may be
/// made to wait longer.
fn retry_after(cells: &[&PlayedCell<'_>], leant: &[&PlayedCell<'_>]) -> (RetryAfterWorth, String) {
    let refused = || leant.iter().flat_map(|cell| &cell.calls).filter(|call| throttled(call));
    let pauses: Vec<u64> = refused().filter_map(|call| call.retry_after_ms).collect();
    if pauses.len() * 2 < refused().count() || pauses.is_empty() {
        return (RetryAfterWorth::NotGiven, "throttled calls have no Retry-After".to_owned());
    }
    let longest = pauses.iter().max().copied().unwrap_or(0) as f64 / 1_000.0;
    let asked = format!("Retry-After up to {} s", figure(longest));
    let heeding = cells.iter().filter(|cell| cell.number("heeded_ms").is_some());
    let heeded: Vec<bool> = heeding.filter_map(|cell| heeded(cell)).collect();
    let again = heeded.iter().filter(|passed| !**passed).count();
    match (heeded.len(), again) {
        (0, _) => (RetryAfterWorth::Untried, format!("{asked}: no cell waited that long")),
        (of, 0) => (
            RetryAfterWorth::Holds,
            format!("{asked}: calls after that pause were served, {of} of {of}"),
        ),
        (of, again) => (
            RetryAfterWorth::TooShort,
            format!("{asked}: calls after that pause were throttled again, {again} of {of}"),
        ),
    }
}

/// Calls that pass after the last refusal where the limit is met still: a bucket that fills bit by
/// bit lets single ones pass. More are a window that began anew.
const PASSED_SINCE_MAX: usize = 5;

/// Whether the last call, after a silence, passed. `None` where those before it were no longer
/// refused, or were asked for a longer pause than was kept.
fn heeded(cell: &PlayedCell<'_>) -> Option<bool> {
    let (last, before) = cell.calls.split_last()?;
    let at = before.iter().rposition(|call| throttled(call))?;
    let refused = before[at];
    if before.len() - at - 1 > PASSED_SINCE_MAX {
        return None;
    }
    let asked = refused.ended_at + refused.retry_after_ms? * 1_000;
    (sent_at(last) >= asked).then(|| !throttled(last))
}

/// How often one method passes.
struct MethodRate {
    per_second: f64,
    /// By counting to one call, of all cells.
    low: f64,
    high: f64,
    /// In which it was refused for long enough to count.
    cells: usize,
}

impl MethodRate {
    /// Of what was sent so often and never refused.
    fn at_least(low: f64) -> Self {
        Self { per_second: f64::INFINITY, low, high: f64::INFINITY, cells: 0 }
    }
}

/// What the cells show of each method.
#[derive(Default)]
struct MethodRates<'a> {
    cells: BTreeMap<&'a str, Vec<&'a PlayedCell<'a>>>,
    /// Of methods that were refused for long enough to count.
    rates: BTreeMap<&'a str, MethodRate>,
    /// As fast as these were sent, they passed: their rate has no upper end.
    free: BTreeMap<&'a str, MethodRate>,
    /// Refused, but not for long enough.
    unclear: Vec<&'a str>,
}

impl<'a> MethodRates<'a> {
    fn of(cells: &[&'a PlayedCell<'a>]) -> Self {
        let mut found = Self::default();
        for cell in cells.iter().filter(|cell| cell.share(failed_otherwise) <= FAILED_MAX) {
            if let Some(method) = cell.factor("method") {
                found.cells.entry(method).or_default().push(cell);
            }
        }
        for (method, cells) in &found.cells {
            match rate(cells) {
                Some(rate) => _ = found.rates.insert(*method, rate),
                None if cells.iter().all(|cell| cell.share(throttled) == 0.0) => {
                    let sent = cells.iter().filter_map(|cell| cell.throughput());
                    found.free.insert(*method, MethodRate::at_least(sent.fold(0.0, f64::max)));
                }
                None => found.unclear.push(*method),
            }
        }
        found
    }

    fn fits(&self, method: &str, rate: &MethodRate) -> String {
        fits(method, &self.cells[method], rate)
    }
}

pub(super) fn cost<'a>(
    cells: &[&'a PlayedCell<'a>],
    target: Option<&MeasuredTarget>,
) -> Vec<DraftVerdict> {
    let methods = MethodRates::of(cells);
    // What passes most often is cheapest: the others are multiples of it.
    let most = methods.rates.iter().max_by(|a, b| a.1.per_second.total_cmp(&b.1.per_second));
    let Some((base, most)) = most else {
        let why = "no call was throttled, so no cost can be measured";
        return vec![DraftVerdict::cannot_tell(why)];
    };
    let cheapest = NamedRate { method: base, rate: most };
    let dearer = methods.rates.iter().filter(|(method, _)| *method != base);
    let cheaper = methods.free.iter().filter(|(_, rate)| rate.low > most.high);
    let others = dearer.chain(cheaper).map(|(method, rate)| NamedRate { method, rate });
    let mut found: Vec<DraftVerdict> =
        others.map(|one| costs(&methods, cheapest, one, target)).collect();
    if found.is_empty() {
        let why = format!("only {base} was throttled: nothing to compare with");
        found.push(DraftVerdict::cannot_tell(why));
    }
    if !methods.unclear.is_empty() {
        let unclear = methods.unclear.join(", ");
        found[0].evidence.push(format!("throttled, but too briefly to measure: {unclear}"));
    }
    found
}

/// A method and the rate at which it passes.
#[derive(Clone, Copy)]
struct NamedRate<'a> {
    method: &'a str,
    rate: &'a MethodRate,
}

/// What a method costs that passes less often than the cheapest one, `base`, or was not refused at all.
fn costs(
    methods: &MethodRates<'_>,
    base: NamedRate<'_>,
    one: NamedRate<'_>,
    target: Option<&MeasuredTarget>,
) -> DraftVerdict {
    let NamedRate { method: base, rate: most } = base;
    let NamedRate { method, rate } = one;
    // A limit of the method alone would show as the same pace.
    let is_dearer = most.low / rate.high > 1.0;
    let sure = match rate.cells.min(most.cells) {
        2.. if !is_dearer => Confidence::High,
        _ => Confidence::Medium,
    };
    let finding = Finding::Cost {
        method: method.to_owned(),
        base: base.to_owned(),
        observed_ratio: most.per_second / rate.per_second,
        low: most.low / rate.high,
        high: most.high / rate.low,
        catalogue_ratio: catalogue_ratio(target, method, base),
    };
    let own = match rate.cells {
        0 => format!("{method}: never throttled"),
        _ => methods.fits(method, rate),
    };
    DraftVerdict::new(finding, sure, vec![methods.fits(base, most), own])
}

/// Counts to one call: a wait may have ended one call earlier or later, and of a window what is
/// left may pay for one more but for a part of it.
fn rate(cells: &[&PlayedCell<'_>]) -> Option<MethodRate> {
    let floods: Vec<Vec<TimedCall>> = cells.iter().map(|cell| order(&cell.calls)).collect();
    let paces: Vec<_> = floods.iter().filter_map(|calls| pace(calls)).collect();
    let per_second = median(&paces.iter().map(|pace| pace.per_second).collect::<Vec<_>>())?;
    let one_of = match read(&floods) {
        Some(RefillLimit { kind: RefillKind::Reset, size, .. }) => 1.0 / size,
        Some(RefillLimit { kind: RefillKind::Steady, .. }) | None => 0.0,
    };
    let counted = |by: f64| paces.iter().map(move |pace| (pace.passed as f64 + by) / pace.seconds);
    let low = counted(-1.0).fold(f64::INFINITY, f64::min);
    let high = counted(1.0).fold(0.0, f64::max) * (1.0 + one_of);
    (low > 0.0).then_some(MethodRate { per_second, low, high, cells: paces.len() })
}

/// How many of one method fit into the limit, for people.
fn fits(method: &str, cells: &[&PlayedCell<'_>], rate: &MethodRate) -> String {
    let floods: Vec<Vec<TimedCall>> = cells.iter().map(|cell| order(&cell.calls)).collect();
    let per_second = figure(rate.per_second);
    match read(&floods) {
        Some(RefillLimit { kind: RefillKind::Reset, size, window, .. }) => format!(
            "{method}: {} calls per {} s, {per_second} calls/s",
            figure(size),
            figure(window)
        ),
        Some(RefillLimit { kind: RefillKind::Steady, .. }) | None => {
            format!("{method}: {per_second} calls/s served, in {} cells", rate.cells)
        }
    }
}

/// What `method` counts against the rate, as a multiple of `base`.
fn catalogue_ratio(target: Option<&MeasuredTarget>, method: &str, base: &str) -> Option<f64> {
    let provider = Provider::named(target?.provider.as_deref()?)?;
    let tariff = Tariff::of(provider);
    let credits = |method: &str| f64::from(tariff.throughput(MethodTable::standard().row(method)));
    let base = credits(base);
    (base > 0.0).then(|| credits(method) / base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cell;

    fn refused(at_ms: u64, pause_ms: Option<u64>) -> CallRecord {
        CallRecord {
            begun_at: at_ms * 1_000,
            ended_at: at_ms * 1_000 + 20_000,
            class: "throttled".to_owned(),
            retry_after_ms: pause_ms,
            ..CallRecord::default()
        }
    }

    /// What follows from a flood in which all are refused and what came of heeding it.
    #[track_caller]
    fn check(flood: &[CallRecord], heeding: &[CallRecord], expected: RetryAfterWorth) {
        let (cell, mut heeded) = (Cell::default(), Cell::default());
        heeded.factors.insert("heeded_ms".to_owned(), "1000".to_owned());
        fn played<'a>(cell: &'a Cell, calls: &'a [CallRecord]) -> PlayedCell<'a> {
            PlayedCell { cell, calls: calls.iter().collect(), wires: Vec::new() }
        }
        let (leant, heeding) = (played(&cell, flood), played(&heeded, heeding));
        assert_eq!(retry_after(&[&leant, &heeding], &[&leant]).0, expected);
    }

    #[test]
    fn what_a_retry_after_is_worth() {
        let passed = |at_ms: u64| CallRecord { class: "answer".to_owned(), ..refused(at_ms, None) };
        let told = |at_ms: u64| refused(at_ms, Some(1_000));
        check(&[refused(0, None), refused(500, None)], &[], RetryAfterWorth::NotGiven);
        // Knocks that go on after the pause say nothing: each may prolong it.
        let knocks = [told(0), told(900), told(1_200), told(2_500)];
        check(&knocks, &[], RetryAfterWorth::Untried);
        check(&knocks, &[passed(0), told(10), passed(1_300)], RetryAfterWorth::Holds);
        check(&knocks, &[passed(0), told(10), told(1_300)], RetryAfterWorth::TooShort);
        // Another window began before the silence; or more was asked for than was kept.
        let mut anew = vec![told(10)];
        anew.extend((0..6).map(|_| passed(20)));
        anew.push(told(1_300));
        check(&knocks, &anew, RetryAfterWorth::Untried);
        check(&knocks, &[told(10), passed(20), told(1_300)], RetryAfterWorth::TooShort);
        check(&knocks, &[refused(10, Some(9_000)), passed(1_300)], RetryAfterWorth::Untried);
    }
}
