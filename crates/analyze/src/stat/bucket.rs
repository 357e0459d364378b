//! Limits on a rate, inferred from who was refused when.
//!
//! A token bucket of size `B` that refills at `r` lets `B + r d` of a burst pass that lasts `d`
//! and is refused in part, and after a pause `t` it lets `min(B, r t)` pass again; it is full
//! after `B / r`, which is its window. A counter that starts anew lets nothing pass until its
//! window is over, then `B`. Counting who passed, not which was the first refused, does not
//! depend on the order in which calls that are under way together arrive.

use serde::{Deserialize, Serialize};

use super::{median, slope_through_origin};

/// One call: when it was sent, in seconds, and whether it passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Served {
    /// Seconds.
    pub at: f64,
    /// Not refused for its rate.
    pub passed: bool,
}

/// How many pass in a second while more are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Calls a second.
    pub per_second: f64,
    /// That many passed in that time.
    pub passed: usize,
    /// Seconds that it was counted over.
    pub seconds: f64,
}

/// How many calls a second pass a limit that refuses some. Counted from one onset of refusals to
/// another, the first and the last, so that a full bucket at the begin adds nothing and a window
/// that resets is counted a whole number of times. With one onset, to the end. `None` where
/// nothing was refused, or nothing passed after the first refusal. `calls` are in order of time.
pub fn pace(calls: &[Served]) -> Option<Pace> {
    let onset = |pair: &[Served]| pair[0].passed && !pair[1].passed;
    let first = calls.iter().position(|call| !call.passed)?;
    let last_onset = calls.windows(2).rposition(onset).map(|at| at + 1);
    let last = last_onset.filter(|at| *at > first).unwrap_or(calls.len() - 1);
    let seconds = calls[last].at - calls[first].at;
    let passed = calls[first..=last].iter().filter(|call| call.passed).count();
    let found = passed > 0 && seconds > 0.0;
    found.then(|| Pace { per_second: passed as f64 / seconds, passed, seconds })
}

/// A burst, a pause, and a burst again.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// In order of time.
    pub first: Vec<Served>,
    /// Likewise.
    pub second: Vec<Served>,
}

/// How the limit lets calls pass again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// Bit by bit.
    Steady,
    /// All at once, when a window is over.
    Reset,
}

/// What limits the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Calls that pass at once.
    pub size: f64,
    /// Calls a second that pass for ever.
    pub refill_per_second: f64,
    /// Size / refill, seconds.
    pub window: f64,
    /// How it refills.
    pub refill: Refill,
    /// Bursts that the size was taken from.
    pub bursts: usize,
    /// Pauses that the refill was taken from.
    pub pauses: usize,
}

/// What can be said of probes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Inference {
    /// Size and refill.
    Found(Bucket),
    /// The size alone: no pause was short or long enough to see the refill.
    SizeOnly {
        /// Calls that pass at once.
        size: f64,
    },
    /// No burst was refused, up to so many calls.
    Unlimited {
        /// The largest burst.
        up_to: usize,
    },
    /// There is no burst.
    Nothing,
}

/// One probe in figures.
#[derive(Debug, Clone, Copy)]
struct Seen {
    first_passed: f64,
    first_seconds: f64,
    second_passed: f64,
    second_seconds: f64,
    second_refused: bool,
    /// From the end of the first burst to the end of the second.
    between_ends: f64,
    /// From the begin of the first burst to the begin of the second.
    between_begins: f64,
}

/// Infers the bucket. Size: the median over bursts of (passed - r d). Refill: the slope through
/// the origin of (passed in the second burst) over (time between the ends of both), where the
/// second was refused in part and the bucket was not full; alternated three times, as each
/// needs the other. Where the second bursts passed either whole or not at all and the pauses of
/// the two kinds do not overlap, the window is half way between the longest that was too short
/// and the shortest that was enough.
pub fn infer(probes: &[Probe]) -> Inference {
    let bursts = probes.iter().flat_map(|probe| [&probe.first, &probe.second]);
    let Some(up_to) = bursts.map(Vec::len).max().filter(|calls| *calls > 0) else {
        return Inference::Nothing;
    };
    let seen: Vec<Seen> = probes.iter().filter_map(figures).collect();
    if seen.is_empty() {
        return Inference::Unlimited { up_to };
    }
    let (mut size, mut refill) = (size_of(&seen, 0.0), 0.0);
    for _ in 0..3 {
        let Some(slope) = slope_through_origin(&partial(&seen, size)) else { break };
        refill = slope;
        size = size_of(&seen, refill);
    }
    let pauses = partial(&seen, size).len();
    if let Some(window) = reset_window(&seen, size_of(&seen, 0.0)) {
        let size = size_of(&seen, 0.0);
        let refill_per_second = size / window;
        let (refill, bursts) = (Refill::Reset, seen.len());
        return Inference::Found(Bucket {
            size,
            refill_per_second,
            window,
            refill,
            bursts,
            pauses,
        });
    }
    if pauses == 0 || refill <= 0.0 {
        return Inference::SizeOnly { size };
    }
    Inference::Found(Bucket {
        size,
        refill_per_second: refill,
        window: size / refill,
        refill: Refill::Steady,
        bursts: seen.len(),
        pauses,
    })
}

/// `None` where the first burst was not refused in part: then the bucket was not empty.
fn figures(probe: &Probe) -> Option<Seen> {
    let passed = |burst: &[Served]| burst.iter().filter(|call| call.passed).count() as f64;
    let (begin, end) = (probe.first.first()?.at, probe.first.last()?.at);
    let (again, again_end) = (probe.second.first()?.at, probe.second.last()?.at);
    let refused = probe.first.iter().any(|call| !call.passed);
    refused.then(|| Seen {
        first_passed: passed(&probe.first),
        first_seconds: end - begin,
        second_passed: passed(&probe.second),
        second_seconds: again_end - again,
        second_refused: probe.second.iter().any(|call| !call.passed),
        between_ends: again_end - end,
        between_begins: again - begin,
    })
}

fn size_of(seen: &[Seen], refill: f64) -> f64 {
    let sizes: Vec<f64> =
        seen.iter().map(|seen| seen.first_passed - refill * seen.first_seconds).collect();
    median(&sizes).unwrap_or(0.0).max(1.0)
}

/// Time between ends and calls that passed, where the bucket was empty before and not full again.
fn partial(seen: &[Seen], size: f64) -> Vec<(f64, f64)> {
    let part = |seen: &&Seen| seen.second_refused && seen.second_passed < 0.9 * size;
    seen.iter().filter(part).map(|seen| (seen.between_ends, seen.second_passed)).collect()
}

fn reset_window(seen: &[Seen], size: f64) -> Option<f64> {
    // A bucket that refills lets some pass after any pause that is long enough to count.
    let nothing = |seen: &&Seen| seen.second_passed <= 0.05 * size;
    let all = |seen: &&Seen| seen.second_passed >= 0.9 * size || !seen.second_refused;
    let between = seen.iter().filter(|seen| !nothing(seen) && !all(seen)).count();
    let too_short: Vec<f64> = seen.iter().filter(nothing).map(|s| s.between_begins).collect();
    let enough: Vec<f64> = seen.iter().filter(all).map(|s| s.between_begins).collect();
    let longest = too_short.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shortest = enough.iter().copied().fold(f64::INFINITY, f64::min);
    // A steady refill shows at least one pause in between when it was not far below the window.
    let sharp = longest > shortest / 4.0 && longest < shortest && shortest.is_finite();
    // The second burst itself takes time, and may begin before the window is over and end after.
    let straddling = seen.iter().map(|seen| seen.second_seconds).fold(0.0, f64::max);
    (between == 0 && sharp && straddling < shortest).then(|| f64::midpoint(longest, shortest))
}
