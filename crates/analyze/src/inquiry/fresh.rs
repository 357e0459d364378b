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

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{factors, quantity};
use crate::run::{Panel, RunError};
use crate::way::Done;
use crate::work::Ask;

/// As records and verdicts have it.
pub const NAME: &str = "fresh";
/// Goes up when what it sends changes.
pub const VERSION: u32 = 1;

/// Blocks that one poll may bring; of more only the newest are noted.
const LEAP_MAX: u64 = 256;

/// How long, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How long all targets are watched.
    pub lasting: Duration,
    /// Between two polls of one target, on the average.
    pub every: Duration,
    /// What chance comes from.
    pub seed: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { lasting: Duration::from_secs(300), every: Duration::from_millis(500), seed: 1 }
    }
}

impl Terms {
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
    polls: Vec<Done>,
    count: u64,
    failed: u64,
}

/// Watches until the time is over, or the run is to end.
///
/// # Errors
///
/// Where records cannot be written.
pub async fn play(panel: &mut Panel<'_, '_>, terms: &Terms) -> Result<(), RunError> {
    let mut rng = SmallRng::seed_from_u64(terms.seed);
    let begun = Instant::now();
    let end = begun + terms.lasting;
    let fresh = |_| Watched {
        height: None,
        lower_at: begun,
        due: begun,
        under_way: false,
        polls: Vec::new(),
        count: 0,
        failed: 0,
    };
    let mut watched: Vec<Watched> = (0..panel.len()).map(fresh).collect();
    let mut calls: JoinSet<(usize, Done)> = JoinSet::new();
    let mut left = terms.calls_max() * panel.len() as u64;
    loop {
        let next = watched.iter().enumerate().filter(|(_, it)| !it.under_way);
        let next = next.map(|(who, it)| (it.due, who)).min().filter(|(due, _)| *due < end);
        if next.is_none() && calls.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            () = panel.stop().wait() => break,
            Some(over) = calls.join_next() => {
                let Ok((who, done)) = over else { break };
                watched[who].under_way = false;
                note(panel, who, &mut watched[who], done)?;
            }
            who = until(next), if next.is_some() => {
                let ask = Ask::bare("eth_blockNumber");
                let call = if left == 0 { None } else { panel.launch(who, ask) };
                let Some(call) = call else { break };
                left -= 1;
                let it = &mut watched[who];
                it.under_way = true;
                // Late polls are not made up for: the pace is polite before it is even.
                it.due = Instant::now() + terms.every.mul_f64(0.5 + rng.random::<f64>());
                calls.spawn(async move { (who, call.await) });
            }
        }
    }
    for (who, it) in watched.into_iter().enumerate() {
        let lasted = begun.elapsed().min(terms.lasting);
        let factors = factors([
            ("watched_ms", lasted.as_millis().to_string()),
            ("polls", it.count.to_string()),
            ("failed", it.failed.to_string()),
        ]);
        panel.close(who, factors, it.polls, Some((begun, Instant::now())))?;
    }
    Ok(())
}

async fn until(next: Option<(Instant, usize)>) -> usize {
    match next {
        Some((due, who)) => {
            sleep_until(due).await;
            who
        }
        None => std::future::pending().await,
    }
}

/// Takes in a poll.
fn note(
    panel: &mut Panel<'_, '_>,
    who: usize,
    it: &mut Watched,
    done: Done,
) -> Result<(), RunError> {
    let told = super::result(&done).and_then(|raw| serde_json::from_slice(&raw).ok());
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
        return panel.close(who, factors, std::mem::take(&mut it.polls), None);
    };
    if height > known {
        for block in (known + 1).max(height.saturating_sub(LEAP_MAX))..=height {
            let factors = factors([("block", block.to_string())]);
            let calls = std::mem::take(&mut it.polls);
            panel.close(who, factors, calls, Some((it.lower_at, ended)))?;
        }
        it.height = Some(height);
    } else if height < known {
        let factors = factors([("back_to", height.to_string())]);
        panel.close(who, factors, std::mem::take(&mut it.polls), None)?;
    }
    it.lower_at = begun;
    Ok(())
}
