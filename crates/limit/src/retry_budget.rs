//! How many attempts may be made in addition to one per call.
//!
//! Tokens come with calls (a share of them) and with time (a floor, for services that are
//! rarely called), and are saved up to a bound. So retries and hedges add little load while every
//! target fails and tries to recover. A hedge takes a hedge token in addition to a retry token. A
//! retry that the caller's rules allow in any case is recorded: it takes a token if there is one,
//! and leaves no debt.
//!
//! Calls are counted with one addition; the tokens that they earned are computed when one is spent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// What an allowance grows by, and up to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TokenRate {
    /// Tokens a call.
    share: f64,
    /// Tokens a second, however few the calls.
    floor: f64,
    /// No more are saved.
    burst: f64,
}

/// One retry for five calls.
const RETRIES: TokenRate = TokenRate { share: 0.2, floor: 10.0, burst: 100.0 };
/// One hedge for twenty calls, and one a second: a chain that is rarely called would otherwise have
/// none for minutes, though a hedge there costs next to nothing.
const HEDGES: TokenRate = TokenRate { share: 0.05, floor: 1.0, burst: 32.0 };

/// The tokens for retries and for hedges, shared by all threads.
#[derive(Debug)]
pub struct RetryBudget {
    calls: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the levels were worked out, and how many calls there had been.
    at: Option<Instant>,
    calls: u64,
    retries: f64,
    hedges: f64,
}

impl Default for RetryBudget {
    fn default() -> Self {
        let state = State { at: None, calls: 0, retries: RETRIES.burst, hedges: HEDGES.burst };
        Self { calls: AtomicU64::new(0), state: Mutex::new(state) }
    }
}

impl RetryBudget {
    /// Counts a call.
    pub fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a retry that needs no token.
    pub fn note_free_retry(&self, now: Instant) {
        self.with(now, |state| state.retries = (state.retries - 1.0).max(0.0));
    }

    /// Takes a token for a retry; false when there is none.
    pub fn spend_retry(&self, now: Instant) -> bool {
        self.with(now, |state| take(&mut [&mut state.retries]))
    }

    /// Takes what a hedge costs; false when there is not enough.
    pub fn spend_hedge(&self, now: Instant) -> bool {
        self.with(now, |state| take(&mut [&mut state.retries, &mut state.hedges]))
    }

    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.earn(self.calls.load(Ordering::Relaxed), now);
        act(&mut state)
    }
}

impl State {
    fn earn(&mut self, calls: u64, now: Instant) {
        let new = calls.saturating_sub(self.calls) as f64;
        let elapsed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        for (level, rate) in [(&mut self.retries, RETRIES), (&mut self.hedges, HEDGES)] {
            *level = (*level + new * rate.share + elapsed * rate.floor).min(rate.burst);
        }
        self.calls = self.calls.max(calls);
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
    }
}

/// Takes one from each, or nothing from any.
fn take(levels: &mut [&mut f64]) -> bool {
    let enough = levels.iter().all(|level| **level >= 1.0);
    if enough {
        levels.iter_mut().for_each(|level| **level -= 1.0);
    }
    enough
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Plays `3c` (calls), `2s` (seconds), `5r` (retries asked for), `5f` (free ones) and
    /// `5h` (hedges asked for); each `r` and `h` says how many were granted.
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "any instant, to count from")]
    fn check(script: &str, granted: &[u32]) {
        let (budget, mut now, mut seen) = (RetryBudget::default(), Instant::now(), Vec::new());
        for step in script.split_whitespace() {
            let (count, act) = step.split_at(step.len() - 1);
            let count: u32 = count.parse().expect("a number");
            let grants = |ask: &dyn Fn() -> bool| (0..count).filter(|_| ask()).count() as u32;
            match act {
                "c" => (0..count).for_each(|_| budget.count_call()),
                "s" => now += Duration::from_secs(count.into()),
                "f" => (0..count).for_each(|_| budget.note_free_retry(now)),
                "r" => seen.push(grants(&|| budget.spend_retry(now))),
                "h" => seen.push(grants(&|| budget.spend_hedge(now))),
                other => panic!("unknown act {other}"),
            }
        }
        assert_eq!(seen, granted, "{script}");
    }

    #[test]
    fn a_burst_is_there_from_the_start() {
        check("999r", &[100]);
        check("999h", &[32]);
    }

    #[test]
    fn retries_are_a_fifth_of_the_calls() {
        check("999r 300c 999r", &[100, 60]);
        check("999r 4c 999r 1c 999r", &[100, 0, 1]);
    }

    #[test]
    fn hedges_are_a_twentieth_of_the_calls() {
        check("999h 300c 999h", &[32, 15]);
    }

    #[test]
    fn time_gives_a_floor_to_both() {
        check("999r 2s 999r", &[100, 20]);
        check("999h 2s 999h", &[32, 2]);
    }

    #[test]
    fn no_more_than_the_burst_is_saved() {
        check("999r 100000c 3600s 999r 999h", &[100, 100, 0]);
        check("999h 100000c 3600s 999h", &[32, 32]);
    }

    #[test]
    fn a_hedge_needs_a_token_of_the_retries_too() {
        check("999r 999h 3c 1h 999r", &[100, 0, 0, 0]);
        check("99r 5h", &[99, 1]);
    }

    #[test]
    fn what_is_free_is_counted_and_leaves_no_debt() {
        check("60f 999r", &[40]);
        check("5000f 999r 5c 999r", &[0, 1]);
    }
}
