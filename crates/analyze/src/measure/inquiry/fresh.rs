//! `fresh`: how soon each target shows a new block, all of them watched at the same time.
//!
//! Each target is asked for its height again and again, at times of its own that chance spreads:
//! polls in step would round every lag to whole steps. A block appeared at some time between the
//! beginning of the last poll that did not show it and the end of the first that did; the middle
//! of that is right on the average, whatever a call takes to travel.
//!
//! Cells: `{"start": n}` when a target first told a height; `{"block": n}` for each new one, which
//! begins with the last poll that did not show it and ends with the first that did;
//! `{"back_to": n}` for a poll that showed less than one before; and at the end
//! `{"watched_ms": t, "polls": p, "failed": f}`.
//!
//! A run that was cut is gone on with for the time that is left. Its parts are watched each for
//! itself, with a `start` of its own: nothing was watched in between, so that what is new after a gap says
//! nothing of when it came.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{factors, quantity};
use crate::measure::client::FinishedCall;
use crate::measure::run::{Panel, RunError};
use crate::record::Cell;
use crate::work::WorkCall;

/// As records and verdicts have it.
pub const NAME: &str = "fresh";
/// Goes up when what it sends changes.
pub const VERSION: u32 = 1;

/// Blocks that one poll may bring; of more only the newest are noted.
const LEAP_MAX: u64 = 256;

/// How long, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreshTerms {
    /// How long all targets are watched.
    pub lasting: Duration,
    /// Between two polls of one target, on the average.
    pub every: Duration,
    /// What chance comes from.
    pub seed: u64,
}

impl Default for FreshTerms {
    fn default() -> Self {
        Self { lasting: Duration::from_secs(300), every: Duration::from_millis(500), seed: 1 }
    }
}

impl FreshTerms {
    /// Calls to one target at most.
    pub fn calls_max(&self) -> u64 {
        let polls = self.lasting.as_secs_f64() / self.every.as_secs_f64().max(1e-3);
        // A step is at least half of what it is on the average; few are for long.
        (polls * 1.2).ceil() as u64 + 10
    }
}

/// One target.
struct Watched {
    height: Option<u64>,
    /// The beginning of the last poll that told no more than `height`.
    lower_at: Instant,
    due: Instant,
    under_way: bool,
    /// Since the last cell.
    polls: Vec<FinishedCall>,
    count: u64,
    failed: u64,
}

impl Watched {
    fn since(begun: Instant) -> Self {
        Self {
            height: None,
            lower_at: begun,
            due: begun,
            under_way: false,
            polls: Vec::new(),
            count: 0,
            failed: 0,
        }
    }
}

/// Watches until the time is over, or the run is to end. What was watched before a run was cut
/// counts.
///
/// # Errors
///
/// Where records cannot be written.
pub async fn play(panel: &mut Panel<'_, '_>, terms: &FreshTerms) -> Result<(), RunError> {
    let lasting = terms.lasting.saturating_sub(watched(&panel.take_earlier()));
    if lasting.is_zero() {
        return Ok(());
    }
    let mut rng = SmallRng::seed_from_u64(terms.seed ^ u64::from(panel.part()));
    let begun = Instant::now();
    let end = begun + lasting;
    let mut watched: Vec<Watched> = (0..panel.len()).map(|_| Watched::since(begun)).collect();
    let mut calls: JoinSet<(usize, FinishedCall)> = JoinSet::new();
    let mut left = terms.calls_max() * panel.len() as u64;
    let mut lasted = None;
    loop {
        let next = watched.iter().enumerate().filter(|(_, it)| !it.under_way);
        let next = next.map(|(seat, it)| (it.due, seat)).min().filter(|(due, _)| *due < end);
        if next.is_none() && calls.is_empty() {
            // No poll is due before the end.
            lasted = Some(lasting);
            break;
        }
        tokio::select! {
            biased;
            () = panel.stop().wait() => break,
            Some(over) = calls.join_next() => {
                let Ok((seat, done)) = over else { break };
                watched[seat].under_way = false;
                panel.over(&done);
                note(panel, seat, &mut watched[seat], done)?;
            }
            seat = until(next), if next.is_some() => {
                let ask = WorkCall::bare("eth_blockNumber");
                let call = if left == 0 { None } else { panel.launch(seat, ask)? };
                let Some(call) = call else { break };
                left -= 1;
                let it = &mut watched[seat];
                it.under_way = true;
                // Late polls are not made up for: the pace is polite before it is even.
                it.due = Instant::now() + terms.every.mul_f64(0.5 + rng.random::<f64>());
                calls.spawn(async move { (seat, call.await) });
            }
        }
    }
    let lasted = lasted.unwrap_or_else(|| begun.elapsed().min(lasting));
    for (seat, it) in watched.into_iter().enumerate() {
        let factors = factors([
            ("watched_ms", lasted.as_micros().div_ceil(1_000).to_string()),
            ("polls", it.count.to_string()),
            ("failed", it.failed.to_string()),
        ]);
        panel.close(seat, factors, it.polls, Some((begun, Instant::now())))?;
    }
    Ok(())
}

/// How long was watched in the parts of a run that was cut. One that was killed does not say so
/// itself: it lasted from its first poll to its last.
pub(super) fn watched(cells: &BTreeMap<u32, Vec<Cell>>) -> Duration {
    let mut parts: BTreeMap<u32, Vec<&Cell>> = BTreeMap::new();
    for cell in cells.values().flatten() {
        parts.entry(cell.part).or_default().push(cell);
    }
    let lasted = |cells: &Vec<&Cell>| {
        let told = |cell: &&Cell| cell.factors.get("watched_ms")?.parse().ok();
        let begun = cells.iter().map(|cell| cell.begun_at).min().unwrap_or(0);
        let ended = cells.iter().map(|cell| cell.ended_at).max().unwrap_or(0);
        let seen = Duration::from_micros(ended.saturating_sub(begun));
        cells.iter().filter_map(told).max().map_or(seen, Duration::from_millis)
    };
    parts.values().map(lasted).sum()
}

async fn until(next: Option<(Instant, usize)>) -> usize {
    match next {
        Some((due, seat)) => {
            sleep_until(due).await;
            seat
        }
        None => std::future::pending().await,
    }
}

/// Takes in a poll.
fn note(
    panel: &mut Panel<'_, '_>,
    seat: usize,
    it: &mut Watched,
    done: FinishedCall,
) -> Result<(), RunError> {
    let told = done.result().and_then(|raw| serde_json::from_slice(&raw).ok());
    let height = told.as_ref().and_then(quantity);
    let (begun, ended) = (done.begun, done.ended);
    it.count += 1;
    it.polls.push(done);
    let Some(height) = height else {
        it.failed += 1;
        return Ok(());
    };
    let Some(known) = it.height else {
        (it.height, it.lower_at) = (Some(height), begun);
        let factors = factors([("start", height.to_string())]);
        return panel.close(seat, factors, std::mem::take(&mut it.polls), None);
    };
    if height > known {
        for block in (known + 1).max(height.saturating_sub(LEAP_MAX))..=height {
            let factors = factors([("block", block.to_string())]);
            let calls = std::mem::take(&mut it.polls);
            panel.close(seat, factors, calls, Some((it.lower_at, ended)))?;
        }
        it.height = Some(height);
    } else if height < known {
        let factors = factors([("back_to", height.to_string())]);
        panel.close(seat, factors, std::mem::take(&mut it.polls), None)?;
    }
    it.lower_at = begun;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(part: u32, from_s: u64, to_s: u64, told_ms: Option<u64>) -> Cell {
        let told = told_ms.map(|ms| ("watched_ms".to_owned(), ms.to_string()));
        let (begun_at, ended_at) = (from_s * 1_000_000, to_s * 1_000_000);
        Cell { part, begun_at, ended_at, factors: told.into_iter().collect(), ..Cell::default() }
    }

    #[test]
    fn what_was_watched_is_the_sum_of_the_parts_without_the_gaps() {
        let told = vec![cell(0, 0, 10, None), cell(0, 0, 60, Some(59_500))];
        let killed = vec![cell(1, 1_000, 1_001, None), cell(1, 1_002, 1_020, None)];
        let (first, second) = (told.clone(), [told, killed].concat());
        assert_eq!(watched(&[(0, first)].into()), Duration::from_millis(59_500));
        assert_eq!(watched(&[(0, second)].into()), Duration::from_millis(79_500));
        assert_eq!(watched(&BTreeMap::new()), Duration::ZERO);
    }
}
