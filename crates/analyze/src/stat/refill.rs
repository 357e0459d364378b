//! How a limit lets calls pass again, read from a flood that is refused and knocks that follow.
//!
//! After a limit was met, a bucket that fills bit by bit lets single calls pass, evenly. A window
//! that starts anew, or slides, lets nothing pass for a while and then many. Both tell the rate
//! that passes for ever, counted over whole waits; a window tells its length as well, and a
//! bucket its size by what passed before the first refusal.

use super::bucket::{TimedCall, pace, waits};
use super::median;

/// After the wait, so much of what passed at first: a window. Fewer: a bucket.
const LONG_RUN: f64 = 0.3;
/// But at least this many.
const LONG_RUN_MIN: f64 = 3.0;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefillKind {
    /// Fills bit by bit.
    Steady,
    /// Lets many pass at once, after a while.
    Reset,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefillLimit {
    /// Which kind.
    pub kind: RefillKind,
    /// Calls that pass at once, or in one window.
    pub size: f64,
    /// Calls a second that pass for ever.
    pub per_second: f64,
    /// Seconds: its length, or size / rate.
    pub window: f64,
    /// Waits that it was read from.
    pub waits: usize,
}

/// What one flood shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Flood {
    /// Passed before the first refusal.
    pub first: f64,
    /// Seconds that this took.
    pub first_seconds: f64,
    /// From the first call to the end of the first long wait, seconds.
    pub until_again: Option<f64>,
    /// Passed from the end of one long wait to the end of the next.
    pub runs: Vec<f64>,
    /// The most of these that passed with none refused between them.
    pub stretches: Vec<f64>,
    /// Calls a second over all of them.
    pub per_second: Option<f64>,
}

/// Reads one flood, its calls in order of time. `None` where nothing was refused.
pub fn flood(calls: &[TimedCall]) -> Option<Flood> {
    let refused = calls.iter().position(|call| !call.passed)?;
    let begin = calls[0].at;
    let ends: Vec<usize> = waits(calls);
    // Between the last knock that was refused and the first that passed.
    let end = |at: usize| f64::midpoint(calls[at - 1].at, calls[at].at);
    let passed = |from: usize, to: usize| calls[from..to].iter().filter(|call| call.passed).count();
    let pairs = || ends.windows(2).map(|pair| (pair[0], pair[1]));
    Some(Flood {
        first: refused as f64,
        first_seconds: calls[refused].at - begin,
        until_again: ends.first().map(|at| end(*at) - begin),
        runs: pairs().map(|(from, to)| passed(from, to) as f64).collect(),
        stretches: pairs().map(|(from, to)| stretch(&calls[from..to])).collect(),
        per_second: pace(calls).map(|pace| pace.per_second),
    })
}

/// Floods after as long a silence pass this much more or less at first where something else is left.
const UNEVEN: f64 = 1.25;

/// Whether floods pass other numbers of calls at first, though each began with a limit that seemed whole: a bucket that
/// is whole lets as many pass each time, or nearly.
pub(crate) fn are_uneven<'a>(floods: impl Iterator<Item = &'a Vec<TimedCall>>) -> bool {
    let firsts: Vec<f64> = floods.filter_map(|calls| flood(calls)).map(|it| it.first).collect();
    let low = firsts.iter().copied().fold(f64::INFINITY, f64::min);
    let high = firsts.iter().copied().fold(0.0, f64::max);
    high > UNEVEN * low + 2.0
}

fn stretch(calls: &[TimedCall]) -> f64 {
    let longest = calls.split(|call| !call.passed).map(<[TimedCall]>::len).max();
    longest.unwrap_or(0) as f64
}

/// Reads the floods of one limit. `None` where nothing was refused, or no two waits ended in any.
///
/// A window's size is the middle one of the runs, each counted as often as calls passed in it: a
/// few that were sent long before the flood pass on their own before the others do. A bucket's is
/// what passed before the first refusal, less what came back meanwhile, and half a call: the last
/// one was refused for want of some part of it.
pub fn read(floods: &[Vec<TimedCall>]) -> Option<RefillLimit> {
    let floods: Vec<Flood> = floods.iter().filter_map(|calls| flood(calls)).collect();
    let per_second = median(&floods.iter().filter_map(|it| it.per_second).collect::<Vec<_>>())?;
    let runs: Vec<f64> = floods.iter().flat_map(|it| it.runs.iter().copied()).collect();
    let stretches: Vec<f64> = floods.iter().flat_map(|it| it.stretches.iter().copied()).collect();
    let first = median(&floods.iter().map(|it| it.first).collect::<Vec<_>>())?;
    let (run, stretch) = (middle_by_weight(&runs)?, middle_by_weight(&stretches)?);
    let (kind, size) = if stretch >= (LONG_RUN * first).max(LONG_RUN_MIN) {
        (RefillKind::Reset, run)
    } else {
        let sizes = floods.iter().map(|it| it.first - per_second * it.first_seconds + 0.5);
        (RefillKind::Steady, median(&sizes.collect::<Vec<_>>())?.max(1.0))
    };
    let window = size / per_second;
    Some(RefillLimit { kind, size, per_second, window, waits: runs.len() })
}

/// A flood and the silence before it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RestedFlood {
    /// Seconds.
    pub(crate) silence: f64,
    /// In order of time.
    pub(crate) calls: Vec<TimedCall>,
}

/// A silence of this many windows lets a limit become whole.
const WHOLE: f64 = 1.05;

/// Of the silences before floods those count that are so large a share of the longest.
const LONG: f64 = 0.5;

/// What the floods show that began with a whole limit, and the calls of these: those after the longest silences, if
/// these were longer than one window. Others may show what earlier calls left in a longer window.
pub(crate) fn read_rested(floods: &[RestedFlood]) -> Option<(RefillLimit, Vec<Vec<TimedCall>>)> {
    let all: Vec<Vec<TimedCall>> = floods.iter().map(|it| it.calls.clone()).collect();
    let longest = floods.iter().map(|it| it.silence).fold(0.0, f64::max);
    let mut limit = read(&all).or_else(|| read_once(&all))?;
    let mut rested = Vec::new();
    // The window that these show may be longer than it seemed.
    for _ in 0..2 {
        let silence_min = (WHOLE * limit.window).max(LONG * longest);
        let found = floods.iter().filter(|it| it.silence >= silence_min);
        rested = found.map(|it| it.calls.clone()).collect();
        if rested.len() >= 2 {
            limit = read(&rested).or_else(|| read_once(&rested)).unwrap_or(limit);
        }
    }
    Some((limit, rested))
}

/// Floods that pass as many at first differ by less than this share.
const ALIKE: f64 = 0.1;

/// Reads a window from floods of which each saw one wait and no more, if all passed as many calls at first.
fn read_once(floods: &[Vec<TimedCall>]) -> Option<RefillLimit> {
    let seen: Vec<Flood> = floods.iter().filter_map(|calls| flood(calls)).collect();
    let (firsts, untils): (Vec<f64>, Vec<f64>) =
        seen.iter().filter_map(|it| Some((it.first, it.until_again?))).unzip();
    let (size, window) = (median(&firsts)?, untils.iter().copied().fold(0.0, f64::max));
    // Windows that begin by a clock end at any time after the first call.
    let is_alike = firsts.iter().all(|first| (first / size - 1.0).abs() < ALIKE)
        && untils.iter().all(|wait| *wait > (1.0 - ALIKE) * window);
    let ends_at_once = floods.iter().all(|calls| {
        let first = waits(calls).first().copied();
        first.is_some_and(|end| stretch(&calls[end..]) >= LONG_RUN * size)
    });
    (firsts.len() >= 2 && is_alike && ends_at_once && window > 0.0).then(|| RefillLimit {
        kind: RefillKind::Reset,
        size,
        per_second: size / window,
        window,
        waits: firsts.len(),
    })
}

/// The middle one of `values`, each counted as often as it is large.
fn middle_by_weight(values: &[f64]) -> Option<f64> {
    let sorted = super::sorted(values);
    let half = sorted.iter().sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let reaches = |value: &f64| {
        sum += value;
        sum >= half
    };
    sorted.iter().copied().find(reaches)
}

/// Whether windows begin by a clock of the provider and not with the first call: in a flood after
/// a silence of more than one window, the first wait then ends earlier than one window after the
/// first call, or more pass at first than one window holds.
pub(crate) fn begins_by_a_clock(rested: &[Vec<TimedCall>], limit: &RefillLimit) -> bool {
    let floods = rested.iter().filter_map(|calls| flood(calls));
    let mut seen = floods.filter_map(|it| Some((it.first, it.until_again?)));
    seen.any(|(first, until)| {
        let early = until < EARLY * limit.window;
        let more = first > limit.size / EARLY && until > limit.window * (2.0 - EARLY);
        early || more
    })
}

/// A wait that ends before so much of the window is early.
const EARLY: f64 = 0.85;

/// What passed of the calls that a window which slides would still hold back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastPart {
    /// Calls that passed.
    pub(crate) passed: usize,
    /// Calls that were sent.
    pub(crate) sent: usize,
}

/// Of the last part, a window that slides lets no more pass than this.
const SLIDING_MAX: f64 = 0.9;

/// The limit was whole if at least this share of the calls before the last part passed.
const PASSED_BEFORE_MIN: f64 = 0.95;

impl LastPart {
    /// Of `calls`, whose last `sent` are that part. `None` where those before were refused: then the limit was not
    /// whole.
    pub(crate) fn of(calls: &[TimedCall], sent: usize) -> Option<Self> {
        let (before, last) = calls.split_at(calls.len().checked_sub(sent)?);
        let passed = |calls: &[TimedCall]| calls.iter().filter(|call| call.passed).count();
        let is_whole = passed(before) as f64 >= PASSED_BEFORE_MIN * before.len() as f64;
        (is_whole && sent > 0).then(|| Self { passed: passed(last), sent })
    }

    /// Whether calls of the window before were counted against it: so does a window that slides, and now and then one
    /// that begins by the provider's clock between the first part and the second.
    pub(crate) fn is_reduced(self) -> bool {
        self.passed as f64 <= SLIDING_MAX * self.sent as f64
    }
}
