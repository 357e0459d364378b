//! The pace of a limit on a rate, from the times of refused calls. How it refills: [`super::refill`].
//!
//! Counting the calls that passed, not which was the first refused, does not depend on the order in which
//! calls that are under way together arrive.

/// One call: when it was sent, in seconds, and whether it passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedCall {
    /// Seconds.
    pub at: f64,
    /// Not refused for its rate.
    pub passed: bool,
}

/// How many pass in a second while more are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassRate {
    /// Calls a second.
    pub per_second: f64,
    /// That many passed in that time.
    pub passed: usize,
    /// Seconds that it was counted over.
    pub seconds: f64,
}

/// Refusals in a row that are no calls that overtook each other.
const REFUSED_RUN: usize = 3;

/// One wait: calls that were refused one after another, and one that passed.
struct Wait {
    /// The place of the one that passed.
    end: usize,
    seconds: f64,
    refused: usize,
    /// Calls that passed from there on, with none refused between them.
    stretch: usize,
}

/// Ends of the waits: places of calls that pass where those before were refused. Where waits of
/// half the longest or more, and those after which as many pass at once as ever, make up most of
/// the time, only those: the others are calls that overtook each other. `calls` are in order of
/// time.
pub fn waits(calls: &[TimedCall]) -> Vec<usize> {
    let mut found: Vec<Wait> = Vec::new();
    let mut at = 0;
    for pair in calls.chunk_by(|a, b| a.passed == b.passed) {
        let end = at + pair.len();
        if !pair[0].passed && end < calls.len() {
            let stretch = calls[end..].iter().take_while(|call| call.passed).count();
            let seconds = calls[end].at - pair[0].at;
            found.push(Wait { end, seconds, refused: pair.len(), stretch });
        }
        at = end;
    }
    let longest = found.iter().map(|wait| wait.seconds).fold(0.0, f64::max);
    let most = found.iter().map(|wait| wait.stretch).max().unwrap_or(0);
    let counts = |wait: &Wait| {
        let many = wait.stretch * 2 >= most.max(2 * REFUSED_RUN);
        wait.seconds >= longest / 2.0 || (wait.refused >= REFUSED_RUN && many)
    };
    let sum = |of: &dyn Fn(&&Wait) -> bool| {
        found.iter().filter(|wait| of(wait)).map(|wait| wait.seconds).sum::<f64>()
    };
    if sum(&|wait| counts(wait)) >= sum(&|_| true) / 2.0 {
        found.retain(counts);
    }
    found.into_iter().map(|wait| wait.end).collect()
}

/// How many calls a second pass a limit that refuses some. Counted from the end of the first
/// wait to the end of the last one: a full bucket at the begin adds nothing, and a window that
/// starts anew is counted a whole number of times, wherever in it the first call came. `None`
/// where fewer than two waits ended. `calls` are in order of time.
pub fn pace(calls: &[TimedCall]) -> Option<PassRate> {
    let ends = waits(calls);
    let (first, last) = (*ends.first()?, *ends.last()?);
    let seconds = calls[last].at - calls[first].at;
    let passed = calls[first..last].iter().filter(|call| call.passed).count();
    let found = passed > 0 && seconds > 0.0;
    found.then(|| PassRate { per_second: passed as f64 / seconds, passed, seconds })
}
