//! A bound on calls in flight, read from calls that were refused and calls that passed.
//!
//! A server that takes at most N calls at a time refuses a call if and only if N are in flight when it
//! arrives. A limit on a rate refuses calls while few are in flight, and lets many pass at once when it
//! is whole. By Little's law the two look alike only where a bucket of N calls fills in just the time
//! that a call takes.
//!
//! The client sees a call for longer than the server does, by the way there and back. That is what the
//! quickest refusal takes, if a refusal is no work: a call that ends less than that after another one was
//! sent had left the server before the other one arrived. Where a refusal is made to wait, its time says
//! nothing of the way, so both are tried: a way of that length, and none. A refusal that takes as long as a
//! call is made to wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Fewer refusals show no bound.
const REFUSED_MIN: usize = 10;

/// The share of refusals, and of calls that meet the bound, that may contradict it: calls overtake each
/// other on their way.
const AGAINST_MAX: f64 = 0.02;

/// The share of refusals that may come with at most half of the bound in flight.
const FAR_OFF_MAX: f64 = 0.002;

/// A bound that is contradicted this many times as often is not told, but may be there: times that are
/// measured badly hide one.
const SUSPECTED: f64 = 8.0;

/// Two calls that are nearer to each other than this share of the quickest call may have overtaken each
/// other.
const UNSURE: f64 = 0.05;

/// But not if they are further apart than this, microseconds.
const UNSURE_MAX_US: f64 = 5_000.0;

/// From this bound on, one call in this many is within what the network makes uneven.
const SLACK_FROM: u64 = 8;
const SLACK_OF: u64 = 16;

/// A refusal that takes more than this share of what a call takes is made to wait.
const WAITS: f64 = 0.75;

/// Calls of one cell that have to pass beyond a bound before the bound is disproved, and no fewer than
/// [`AGAINST_MAX`] of the cell: a few are late, or overtook others.
const EXCEEDED_MIN: usize = 10;

/// One call, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldCall {
    /// When it left.
    pub sent: u64,
    /// When its answer was whole.
    pub ended: u64,
    /// Whether it was turned away.
    pub refused: bool,
}

/// A bound on calls in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlightCeiling {
    /// Calls.
    pub calls: u64,
    /// Refusals that it was read from.
    pub refused: usize,
    /// How often the server was filled up to the bound, from at most half of it.
    pub fills: usize,
    /// By how many times calls take longer near the bound than with few in flight, medians. Where they wait
    /// for a pace, the bound is that of their line.
    pub slows: f64,
}

/// A call with the number of others that were in flight on the server when it arrived.
struct CountedCall {
    refused: bool,
    /// Microseconds until its answer was whole.
    took: u64,
    /// As the times say.
    seen: u64,
    /// What speaks most for a bound: for a refusal the most that it may have met, for a call that
    /// passed the fewest.
    lenient: u64,
}

/// The bound that the cells show, their calls in any order. `None` if they show none.
pub fn ceiling(cells: &[Vec<HeldCall>]) -> Option<FlightCeiling> {
    found(cells, 1.0)
}

/// The bound that the cells may show, if their times are not to be trusted.
pub(crate) fn suspected(cells: &[Vec<HeldCall>]) -> Option<FlightCeiling> {
    found(cells, SUSPECTED)
}

/// A bound that is contradicted `more` times as often as one that is told.
fn found(cells: &[Vec<HeldCall>], more: f64) -> Option<FlightCeiling> {
    let refused = cells.iter().flatten().filter(|call| call.refused).count();
    if refused < REFUSED_MIN {
        return None;
    }
    counted(cells).into_iter().find_map(|cells| {
        let all = || cells.iter().flatten();
        let calls = most_common(all().filter(|call| call.refused).map(|call| call.seen))?;
        let fills = cells.iter().map(|cell| fills(cell, calls)).sum();
        (calls > 0 && agrees(&cells, calls, more)).then_some(FlightCeiling {
            calls,
            refused,
            fills,
            slows: slows(&cells, calls),
        })
    })
}

/// See [`FlightCeiling::slows`]; 1 where that was not seen.
fn slows(cells: &[Vec<CountedCall>], calls: u64) -> f64 {
    let took = |is_there: &dyn Fn(u64) -> bool| {
        let passed = cells.iter().flatten().filter(|call| !call.refused);
        let there = passed.filter(|call| is_there(call.seen));
        super::median(&there.map(|call| call.took as f64).collect::<Vec<_>>())
    };
    let (few, many) = (took(&|seen| seen <= calls / 4), took(&|seen| seen >= calls - calls / 4));
    few.zip(many).filter(|(few, _)| *few > 0.0).map_or(1.0, |(few, many)| many / few)
}

/// Whether the refusals of the cells can be those of a bound of `calls` that was found elsewhere.
pub(crate) fn fits(cells: &[Vec<HeldCall>], calls: u64) -> bool {
    counted(cells).iter().any(|cells| agrees(cells, calls, 1.0))
}

/// A bound that a cell exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExceededCeiling {
    /// The cell, an index.
    pub(crate) cell: usize,
    /// The number of other calls in flight at which calls passed.
    pub(crate) calls: u64,
}

/// The cell of `passed`, in none of which a call was refused, that exceeded the bound of `calls` most. The bound was
/// read from the cells `shown`, and the way is as long as there. `None` if no cell did, or `shown` shows no such bound.
pub(crate) fn exceeded(
    shown: &[Vec<HeldCall>],
    calls: u64,
    passed: &[Vec<HeldCall>],
) -> Option<ExceededCeiling> {
    let path = paths(shown).into_iter().find(|path| agrees(&path.count(shown), calls, 1.0))?;
    let met = |cell: &Vec<CountedCall>| {
        let mut met: Vec<u64> = cell.iter().map(|call| call.lenient).collect();
        met.sort_unstable_by_key(|calls| Reverse(*calls));
        let least = EXCEEDED_MIN.max((AGAINST_MAX * met.len() as f64).ceil() as usize);
        met.get(least - 1).copied()
    };
    let counts = path.count(passed);
    let met = counts.iter().map(met).enumerate();
    met.filter_map(|(cell, calls)| Some(ExceededCeiling { cell, calls: calls? }))
        .filter(|it| it.calls >= calls + slack(calls))
        .max_by_key(|it| it.calls)
}

/// What lies between the client and the server that counts, in microseconds.
#[derive(Debug, Clone, Copy)]
struct CountedPath {
    /// The way there and back.
    way: i64,
    /// By how much the times of two calls may be off.
    unsure: i64,
}

impl CountedPath {
    fn count(self, cells: &[Vec<HeldCall>]) -> Vec<Vec<CountedCall>> {
        cells.iter().map(|calls| self.count_cell(calls)).collect()
    }

    fn count_cell(self, calls: &[HeldCall]) -> Vec<CountedCall> {
        let Self { way, unsure } = self;
        let mut calls = calls.to_vec();
        calls.sort_by_key(|call| (call.sent, call.ended));
        let count = |begin: i64, end: i64| in_flight(&calls, begin, way + end);
        let (seen, most, fewest) = (count(0, 0), count(unsure, -unsure), count(-unsure, unsure));
        let one = |(at, call): (usize, &HeldCall)| CountedCall {
            refused: call.refused,
            took: call.ended.saturating_sub(call.sent),
            seen: seen[at],
            lenient: if call.refused { most[at] } else { fewest[at] },
        };
        calls.iter().enumerate().map(one).collect()
    }
}

/// The calls of the cells, counted for each length that the way may have. Empty if none was refused or
/// none passed.
fn counted(cells: &[Vec<HeldCall>]) -> Vec<Vec<Vec<CountedCall>>> {
    paths(cells).into_iter().map(|path| path.count(cells)).collect()
}

/// The lengths that the way may have, by the times of `cells`. Empty if no call was refused or none passed.
fn paths(cells: &[Vec<HeldCall>]) -> Vec<CountedPath> {
    let took = |is_refused: bool| {
        let calls = cells.iter().flatten().filter(|call| call.refused == is_refused);
        super::sorted(&calls.map(|it| it.ended.saturating_sub(it.sent) as f64).collect::<Vec<_>>())
    };
    let (refusals, calls) = (took(true), took(false));
    let (Some(refusal), Some(quickest)) = (refusals.first(), calls.first()) else {
        return Vec::new();
    };
    let middle = |sorted: &[f64]| super::quantile_of_sorted(sorted, 0.5).unwrap_or(0.0);
    let unsure = (UNSURE * quickest).min(UNSURE_MAX_US) as i64;
    let is_prompt = middle(&refusals) <= WAITS * middle(&calls);
    let way = is_prompt.then_some(refusal.min(*quickest) as i64);
    way.into_iter().chain([0]).map(|way| CountedPath { way, unsure }).collect()
}

/// Whether calls are refused if and only if `calls` are in flight; `more` times as much as is usual may
/// contradict that.
fn agrees(cells: &[Vec<CountedCall>], calls: u64, more: f64) -> bool {
    let (against, far_off) = (more * AGAINST_MAX, more * FAR_OFF_MAX);
    let all = || cells.iter().flatten();
    let refused = all().filter(|it| it.refused).count() as f64;
    let early = |most: u64| all().filter(|it| it.refused && it.lenient <= most).count() as f64;
    let met = calls + slack(calls);
    let beyond = all().filter(|it| !it.refused && it.lenient >= met).count() as f64;
    early(calls - 1 - slack(calls)) <= against * refused
        && early(calls / 2) <= far_off * refused
        && beyond <= against * (refused + beyond)
}

/// Calls by which the count of those in flight may be off.
fn slack(calls: u64) -> u64 {
    if calls < SLACK_FROM { 0 } else { (calls / SLACK_OF).max(1) }
}

/// The value that comes most often, the smaller of two.
fn most_common(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts = std::collections::BTreeMap::<u64, usize>::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(value, count)| (*count, Reverse(*value)))
        .map(|(value, _)| value)
}

/// How often the bound was met after at most half of it was.
fn fills(cell: &[CountedCall], bound: u64) -> usize {
    let (mut is_low, mut fills) = (true, 0);
    for call in cell {
        if call.refused && is_low {
            fills += 1;
        }
        is_low = !call.refused && (is_low || call.seen * 2 <= bound);
    }
    fills
}

/// For each of `calls`, which are in the order in which they were sent, the others that passed and were
/// sent up to `begin` after it, or before it, and ended later than `end` after it was sent. Microseconds.
fn in_flight(calls: &[HeldCall], begin: i64, end: i64) -> Vec<u64> {
    let mut open: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    let mut next = 0;
    let mut found = Vec::with_capacity(calls.len());
    for (at, call) in calls.iter().enumerate() {
        let sent = call.sent as i64;
        // Of calls sent at the same moment those before it in the list were first.
        while next < calls.len()
            && (calls[next].sent as i64) <= sent + begin
            && (next < at || begin > 0)
        {
            if !calls[next].refused {
                open.push(Reverse(calls[next].ended as i64));
            }
            next += 1;
        }
        while open.peek().is_some_and(|Reverse(ended)| *ended <= sent + end) {
            open.pop();
        }
        let itself = u64::from(!call.refused && next > at && call.ended as i64 > sent + end);
        found.push((open.len() as u64).saturating_sub(itself));
    }
    found
}

#[cfg(test)]
#[path = "ceiling_tests.rs"]
mod tests;
