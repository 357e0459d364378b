//! What one connection bears: streams at once (`streams`), requests, and silence (`connection`).
//!
//! `streams`: a cell `{"streams": n}` sends its calls over one fresh connection, at most `n` at
//! once. `connection`: a cell `{"requests": n}` sends up to `n` calls, a few at a time, until its
//! first connection ends; a cell `{"idle_ms": t}` makes a call, is silent for `t`, and calls again.

use std::collections::BTreeSet;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{CapWay, Finding, IdleClose, NoCountLimit, NoIdleClose, Recycle, StreamLimit};
use super::trial::{PlayedCell, sent_at, throttled};
use super::{Confidence, DraftVerdict};
use crate::record::{CellDoubt, WireEvent, WireRecord};
use crate::stat::median;
use crate::stat::step::{Recycling, Tipping, TriedSize, recycling, tipping};

/// The code of `REFUSED_STREAM` (RFC 9113, section 7).
const REFUSED_STREAM: u32 = 7;

/// So large a share of a silence may be ours.
const LATE_MAX: f64 = 0.05;

/// Calls that may be under way on a connection when it ends.
const SLACK: u64 = 8;

pub(super) fn streams(cells: &[&PlayedCell<'_>]) -> DraftVerdict {
    let sized: Vec<(u64, &PlayedCell<'_>)> =
        cells.iter().filter_map(|cell| Some((cell.count("streams")?, *cell))).collect();
    let failed = |cell: &PlayedCell<'_>| cell.calls.iter().any(|call| call.error.is_some());
    let announced = announced(&sized);
    // A call that is refused for its rate was a stream as well, for as long as it took, and one that
    // is answered was none any more: what counts is how many there were at once.
    let (borne, thin): (Vec<_>, Vec<_>) =
        sized.iter().partition(|(size, cell)| failed(cell) || was_borne(*size, cell, announced));
    let sized: Vec<(u64, &PlayedCell<'_>)> = borne;
    let tried: Vec<TriedSize> =
        sized.iter().map(|(size, cell)| TriedSize { size: *size, failed: failed(cell) }).collect();
    let Some(found) = tipping(&tried) else {
        return DraftVerdict::cannot_tell(match thin.len() {
            0 => "no cell was completed",
            _ => "calls ended before the intended concurrency was reached",
        });
    };
    let mut evidence = circumstances(announced, &sized, thin.len());
    let Some(fails_at) = found.fails_at else {
        return without_failure(&found, announced, evidence);
    };
    let Some(holds) = found.holds else {
        return DraftVerdict::cannot_tell(format!("calls failed even at {fails_at} streams"));
    };
    // A target that ends connections whatever is open on them ends them at the size that is borne
    // as well.
    let mut held = sized.iter().filter(|(size, _)| *size == holds);
    if held.all(|(_, cell)| connections(cell) > 1) {
        let why = "connections also close at low concurrency: run `connection` to measure after how many requests";
        return DraftVerdict::cannot_tell(why);
    }
    let failing: Vec<&PlayedCell<'_>> =
        sized.iter().filter(|(size, _)| *size == fails_at).map(|(_, cell)| *cell).collect();
    let way = way(&failing, announced, holds);
    let repeats = found.repeats;
    evidence.push(format!(
        "{holds} streams: nothing failed; {fails_at} streams: {repeats} of {repeats} failed"
    ));
    evidence.extend(ends(&failing));
    if fails_at > holds + 1 {
        evidence.push(format!(
            "sizes between {holds} and {fails_at} were not tested, or their results varied"
        ));
    }
    if found.odd > 0 {
        evidence.push(format!("{} smaller sizes failed in some repeats", found.odd));
    }
    let exact = fails_at == holds + 1 && found.odd == 0;
    let confidence = match (exact, repeats) {
        (true, 3..) => Confidence::High,
        (true, 2) => Confidence::Medium,
        (true, _) | (false, _) => Confidence::Low,
    };
    let seen = format!("{repeats} of {repeats}");
    let finding = Finding::StreamCap(Found(StreamLimit { streams: holds, way, seen }));
    DraftVerdict::new(finding, confidence, evidence)
}

/// What the settings announce, and which cells were metered or left out, for people.
fn circumstances(
    announced: Option<u64>,
    sized: &[(u64, &PlayedCell<'_>)],
    thin: usize,
) -> Vec<String> {
    let mut lines = vec![match announced {
        Some(streams) => format!("the settings announce {streams} streams"),
        None => "the settings announce no limit on streams".to_owned(),
    }];
    let metered = sized.iter().filter(|(_, cell)| cell.share(throttled) > 0.0).count();
    if metered > 0 {
        lines.push(format!("calls were throttled in {metered} cells; they count as streams"));
    }
    if thin > 0 {
        lines.push(format!(
            "{thin} cells are left out: calls ended before that number of streams was reached"
        ));
    }
    lines
}

/// Whether there were as many streams at once as the cell says, or as are announced.
fn was_borne(size: u64, cell: &PlayedCell<'_>, announced: Option<u64>) -> bool {
    let meant = announced.map_or(size, |announced| size.min(announced));
    at_once(cell) >= meant
}

/// Connections that carried calls of a cell.
fn connections(cell: &PlayedCell<'_>) -> usize {
    cell.calls.iter().filter_map(|call| call.connection).collect::<BTreeSet<u64>>().len()
}

/// The most calls of a cell that were under way at a time.
fn at_once(cell: &PlayedCell<'_>) -> u64 {
    // At the same moment one that ends makes room for one that begins.
    let begins = cell.calls.iter().map(|call| (sent_at(call), true));
    let ends = cell.calls.iter().map(|call| (call.ended_at, false));
    let mut turns: Vec<(u64, bool)> = begins.chain(ends).collect();
    turns.sort_unstable();
    let (mut now, mut most) = (0_u64, 0);
    for (_, begins) in turns {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

fn without_failure(found: &Tipping, announced: Option<u64>, evidence: Vec<String>) -> DraftVerdict {
    let up_to = found.holds.unwrap_or(0);
    if up_to == 0 {
        return DraftVerdict::cannot_tell("at every size some repeats failed and others did not");
    }
    let repeats = found.repeats;
    let confidence = if repeats >= 2 { Confidence::High } else { Confidence::Medium };
    let finding = match announced {
        // We keep to what is announced: above it, calls wait.
        Some(streams) if streams <= up_to => {
            let seen = format!("{repeats} of {repeats}");
            Finding::StreamCap(Found(StreamLimit { streams, way: CapWay::Announced, seen }))
        }
        Some(_) | None => Finding::StreamCap(NotUpTo(NoCountLimit { up_to })),
    };
    DraftVerdict::new(finding, confidence, evidence)
}

/// The smallest number that any connection announced.
fn announced(sized: &[(u64, &PlayedCell<'_>)]) -> Option<u64> {
    let said = |wire: &&WireRecord| match wire.event {
        WireEvent::Settings { max_streams, .. } => max_streams.map(u64::from),
        WireEvent::Opened { .. }
        | WireEvent::Goaway { .. }
        | WireEvent::Reset { .. }
        | WireEvent::Closed { .. } => None,
    };
    sized.iter().flat_map(|(_, cell)| cell.wires.iter().filter_map(said)).min()
}

fn way(failing: &[&PlayedCell<'_>], announced: Option<u64>, holds: u64) -> CapWay {
    if announced == Some(holds) {
        return CapWay::Announced;
    }
    let (mut refused, mut fatal) = (0, 0);
    for wire in failing.iter().flat_map(|cell| &cell.wires) {
        match &wire.event {
            WireEvent::Reset { code: REFUSED_STREAM, .. } => refused += 1,
            WireEvent::Goaway { .. } => fatal += 1,
            WireEvent::Closed { in_flight, .. } if *in_flight > 0 => fatal += 1,
            WireEvent::Reset { .. }
            | WireEvent::Closed { .. }
            | WireEvent::Opened { .. }
            | WireEvent::Settings { .. } => {}
        }
    }
    if fatal == 0 && refused > 0 { CapWay::Refused } else { CapWay::Fatal }
}

/// How the connections of these cells ended, in words.
fn ends(failing: &[&PlayedCell<'_>]) -> Vec<String> {
    let mut told = BTreeSet::new();
    for wire in failing.iter().flat_map(|cell| &cell.wires) {
        match &wire.event {
            WireEvent::Goaway { code, last_stream, debug } => {
                told.insert(format!(
                    "GOAWAY with code {code}, last stream {last_stream}, debug data {debug:?}"
                ));
            }
            WireEvent::Reset { code, .. } => {
                told.insert(format!("streams were reset with code {code}"));
            }
            WireEvent::Closed { reason, .. } => {
                told.insert(format!("the connection closed: {reason}"));
            }
            WireEvent::Opened { .. } | WireEvent::Settings { .. } => {}
        }
    }
    told.into_iter().take(5).collect()
}

pub(super) fn connection(cells: &[&PlayedCell<'_>]) -> Vec<DraftVerdict> {
    let of = |factor: &str| -> Vec<(u64, &PlayedCell<'_>)> {
        cells.iter().filter_map(|cell| Some((cell.count(factor)?, *cell))).collect()
    };
    let (requests, idle) = (of("requests"), of("idle_ms"));
    let mut found = Vec::new();
    if !requests.is_empty() {
        found.push(recycled(&requests));
    }
    // A silence is long beside what we were late by, where the calls around it are not.
    let is_told = |(ms, cell): &(u64, &PlayedCell<'_>)| {
        let late_us = cell.cell.load.late_p99.max(cell.cell.load.lag_p99);
        cell.is_timed() || late_us as f64 <= LATE_MAX * 1_000.0 * *ms as f64
    };
    let told: Vec<(u64, &PlayedCell<'_>)> = idle.iter().filter(|it| is_told(it)).copied().collect();
    match (idle.is_empty(), told.is_empty()) {
        (true, _) => {}
        (false, true) => found.push(DraftVerdict::cannot_tell(CellDoubt::Behind.words())),
        (false, false) => found.push(idled(&told)),
    }
    found
}

fn recycled(cells: &[(u64, &PlayedCell<'_>)]) -> DraftVerdict {
    let (mut ended, mut held, mut lost) = (Vec::new(), Vec::new(), 0);
    for (asked, cell) in cells {
        match first_end(cell) {
            Some(end) if end.announced || end.borne < *asked => {
                ended.push(end.borne);
                lost += u64::from(end.lost > 0);
            }
            Some(end) => held.push(end.borne),
            None => held.push(cell.calls.len() as u64),
        }
    }
    let (ends, holds) = (ended.len(), held.len());
    let mut evidence =
        vec![format!("{ends} connections were closed by the other side, {holds} were not")];
    if lost > 0 {
        evidence.push(format!("{lost} of them closed with requests in flight"));
    }
    evidence.extend(ends_told(cells));
    let orderly = lost == 0;
    let seen = |times: usize, often| match times >= often {
        true => Confidence::High,
        false => Confidence::Medium,
    };
    let (found, sure) = match recycling(&ended, &held, SLACK) {
        Recycling::After(after_calls) => {
            (Found(Recycle { after_calls, orderly }), seen(ended.len(), 3))
        }
        Recycling::Once(after_calls) => (Found(Recycle { after_calls, orderly }), Confidence::Low),
        Recycling::Never(up_to) => (NotUpTo(NoCountLimit { up_to }), seen(held.len(), 2)),
        Recycling::Irregular(ended) => {
            let ended: Vec<String> = ended.iter().take(6).map(u64::to_string).collect();
            let ended = ended.join(", ");
            let why = format!("connections closed after {ended} requests: no fixed number");
            return DraftVerdict::cannot_tell(why);
        }
        Recycling::Nothing => return DraftVerdict::cannot_tell("no connection was tested"),
    };
    DraftVerdict::new(Finding::Recycle(found), sure, evidence)
}

fn ends_told(cells: &[(u64, &PlayedCell<'_>)]) -> Vec<String> {
    let cells: Vec<&PlayedCell<'_>> = cells.iter().map(|(_, cell)| *cell).collect();
    // Where it is announced gently the streams' numbers are chance.
    ends(&cells).into_iter().take(3).collect()
}

/// How the first connection of a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstEnd {
    /// Requests that it bore.
    pub(crate) borne: u64,
    /// Whether the other side said so before.
    pub(crate) announced: bool,
    /// Requests that it took and did not answer.
    pub(crate) lost: u64,
}

/// What a gentle GOAWAY says first: all streams.
const ALL_STREAMS: u32 = (1 << 31) - 1;

/// How the first connection of a cell ended; `None` where it did not.
pub(crate) fn first_end(cell: &PlayedCell<'_>) -> Option<FirstEnd> {
    let first = cell.wires.iter().map(|wire| wire.connection).min()?;
    let (mut announced, mut rough, mut last, mut closed) = (false, false, None, None);
    for wire in cell.wires.iter().filter(|wire| wire.connection == first) {
        match &wire.event {
            WireEvent::Goaway { code, last_stream, .. } => {
                announced = true;
                rough |= *code != 0;
                last = Some(*last_stream).filter(|last| *last < ALL_STREAMS);
            }
            WireEvent::Closed { calls, in_flight, .. } => {
                closed = closed.or(Some((*calls, u64::from(*in_flight))));
            }
            WireEvent::Opened { .. } | WireEvent::Settings { .. } | WireEvent::Reset { .. } => {}
        }
    }
    let (calls, unanswered) = match closed {
        Some(closed) => closed,
        None if announced => {
            let carried = cell.calls.iter().filter(|call| call.connection == Some(first)).count();
            (carried as u64, 0)
        }
        None => return None,
    };
    // Requests above the last stream were never taken: they may be sent again.
    let taken = match last.filter(|_| !rough) {
        Some(last) => calls.min(u64::from(last.div_ceil(2))),
        None => calls,
    };
    let lost = unanswered.saturating_sub(calls - taken);
    Some(FirstEnd { borne: taken - lost.min(taken), announced, lost })
}

fn idled(cells: &[(u64, &PlayedCell<'_>)]) -> DraftVerdict {
    let after = |cell: &PlayedCell<'_>| closed_after_ms(cell);
    let tried: Vec<TriedSize> = cells
        .iter()
        .map(|(size, cell)| TriedSize {
            size: *size,
            failed: after(cell).is_some() || is_ended(cell),
        })
        .collect();
    let Some(found) = tipping(&tried) else {
        return DraftVerdict::cannot_tell("no cell was completed");
    };
    let (Some(fails_at), holds) = (found.fails_at, found.holds) else {
        let up_to_ms = found.holds.unwrap_or(0);
        let evidence = vec![format!("a connection worked after {up_to_ms} ms idle")];
        let sure = if found.odd == 0 { Confidence::High } else { Confidence::Low };
        let finding = Finding::IdleClose(NotUpTo(NoIdleClose { up_to_ms }));
        return DraftVerdict::new(finding, sure, evidence);
    };
    let seen: Vec<f64> = cells.iter().filter_map(|(_, cell)| after(cell)).collect();
    let after_ms = median(&seen).map_or(fails_at, |ms| ms.round() as u64);
    let evidence = vec![
        format!("longest idle time after which a connection worked: {} ms", holds.unwrap_or(0)),
        format!("shortest idle time after which it did not: {fails_at} ms"),
        match seen.len() {
            0 => "no close was seen, but the next call got no response".to_owned(),
            n => format!("{n} connections were seen to close"),
        },
    ];
    let sure = match (found.odd, seen.len()) {
        (0, 3..) => Confidence::High,
        (0, 2) => Confidence::Medium,
        (_, _) => Confidence::Low,
    };
    DraftVerdict::new(Finding::IdleClose(Found(IdleClose { after_ms })), sure, evidence)
}

/// How long the first connection had been silent when the other side ended it, where that was
/// before the silence of the cell was over. `None` where no record says that it ended.
fn closed_after_ms(cell: &PlayedCell<'_>) -> Option<f64> {
    let first = cell.wires.iter().map(|wire| wire.connection).min()?;
    let ended = cell.wires.iter().find(|wire| {
        wire.connection == first
            && matches!(wire.event, WireEvent::Closed { .. } | WireEvent::Goaway { .. })
    })?;
    let before = cell.calls.iter().filter(|call| call.ended_at <= ended.at);
    let last = before.map(|call| call.ended_at).max()?;
    is_ended(cell).then(|| (ended.at - last) as f64 / 1_000.0)
}

/// Whether the connection of the first call carried none after it.
fn is_ended(cell: &PlayedCell<'_>) -> bool {
    let Some((first, later)) = cell.calls.split_first() else { return false };
    later.iter().any(|call| call.error.is_some() || call.connection != first.connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CallRecord, Cell};

    /// A cell of 64 streams with calls that begin this many microseconds apart and take 1 ms; some
    /// of the first are served, the others refused for their rate.
    fn told(apart: u64, served: u64) -> DraftVerdict {
        let call = |n: u64| CallRecord {
            begun_at: n * apart,
            ended_at: n * apart + 1_000,
            class: if n < served { "answer" } else { "throttled" }.to_owned(),
            ..CallRecord::default()
        };
        let calls: Vec<CallRecord> = (0..64).map(call).collect();
        let factors = [("streams".to_owned(), "64".to_owned())].into();
        let cell = Cell { factors, ..Cell::default() };
        let played = PlayedCell { cell: &cell, calls: calls.iter().collect(), wires: Vec::new() };
        streams(&[&played])
    }

    #[test]
    fn refused_calls_are_streams_where_they_were_at_once() {
        let found = told(0, 10);
        assert_eq!(found.finding, Finding::StreamCap(NotUpTo(NoCountLimit { up_to: 64 })));
        assert!(found.evidence.iter().any(|line| line.starts_with("calls were throttled in ")));
    }

    /// One stream at a time is borne, over this many connections, and two are not.
    fn capped(connections: u64) -> Finding {
        let call = |n: u64, error: Option<&str>| CallRecord {
            begun_at: n,
            ended_at: n + 1,
            connection: Some(n % connections),
            class: "answer".to_owned(),
            error: error.map(str::to_owned),
            ..CallRecord::default()
        };
        let size = |size: &str| [("streams".to_owned(), size.to_owned())].into();
        let (one, two) = (
            Cell { factors: size("1"), ..Cell::default() },
            Cell { factors: size("2"), ..Cell::default() },
        );
        let (good, bad): (Vec<CallRecord>, Vec<CallRecord>) =
            ((0..8).map(|n| call(n, None)).collect(), vec![call(0, Some("refused"))]);
        let played = |cell, calls| PlayedCell { cell, calls, wires: Vec::new() };
        let (good, bad) = (good.iter().collect(), bad.iter().collect());
        streams(&[&played(&one, good), &played(&two, bad)]).finding
    }

    #[test]
    fn a_target_that_ends_connections_after_some_requests_shows_no_cap() {
        let Finding::StreamCap(Found(StreamLimit { streams: 1, .. })) = capped(1) else {
            panic!("one is borne")
        };
        let Finding::CannotTell { why } = capped(8) else { panic!("nothing is known") };
        assert!(why.contains("run `connection` to measure"), "{why}");
    }

    #[test]
    fn one_after_another_they_prove_nothing() {
        // 16 of them are under way at a time, whether they are served or not.
        for served in [10, 64] {
            let found = told(63, served).finding;
            let Finding::CannotTell { why } = found else { panic!("{found:?}") };
            assert!(why.contains("before the intended concurrency was reached"), "{why}");
        }
    }
}
