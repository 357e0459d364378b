//! A sum in a window that opens with its first call.
//!
//! How a counter with an expiry counts: the first call starts the window, all calls in
//! it are added up, and when it is over the count starts anew with the next call. A client
//! that counts these calls sees that window slightly earlier: the provider's begins when the call
//! arrives. So this window stays closed for [`GUARD`] longer.
//!
//! Not for windows that begin with the minute of a provider's clock, or that slide: we do
//! not see when they begin. For those, [`crate::Pace::for_window`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much later than ours the provider's window may have begun.
pub(crate) const GUARD: Duration = Duration::from_millis(250);

/// The low bits hold the credits, the high ones the begin in milliseconds.
const CREDIT_BITS: u32 = 24;
const CREDITS_MAX: u64 = (1 << CREDIT_BITS) - 1;

/// The count of one window. At most 16 million credits, beyond which it is full.
#[derive(Debug, Default)]
pub struct FixedWindow {
    /// Zero when no window was ever opened.
    state: AtomicU64,
}

impl FixedWindow {
    /// Adds `credits` to the window, or says how long until the next one.
    pub fn take(
        &self,
        credits: u64,
        credits_max: u64,
        window: Duration,
        now: Duration,
    ) -> Result<(), Duration> {
        let credits_max = credits_max.min(CREDITS_MAX);
        let taken = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            let (began, used) = open(state, window, now);
            let fits = used == 0 || used.saturating_add(credits) <= credits_max;
            fits.then(|| began << CREDIT_BITS | used.saturating_add(credits).min(CREDITS_MAX))
        });
        match taken {
            Ok(_) => Ok(()),
            Err(state) => Err(left(state, window, now)),
        }
    }

    /// Puts back what was taken for a call that was not made after all.
    pub fn give_back(&self, credits: u64) {
        let less = |state: u64| {
            let used = (state & CREDITS_MAX).saturating_sub(credits);
            Some(state >> CREDIT_BITS << CREDIT_BITS | used)
        };
        let _always = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Adds credits that were spent regardless.
    pub fn charge(&self, credits: u64, window: Duration, now: Duration) {
        let more = |state: u64| {
            let (began, used) = open(state, window, now);
            Some(began << CREDIT_BITS | used.saturating_add(credits).min(CREDITS_MAX))
        };
        let _always = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes out what is in the window that counts at `now`, and returns it.
    pub(crate) fn drain(&self, window: Duration, now: Duration) -> u64 {
        let empty = |state: u64| {
            let (began, used) = open(state, window, now);
            (used > 0).then_some(began << CREDIT_BITS)
        };
        let drained = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, empty);
        drained.map_or(0, |before| before & CREDITS_MAX)
    }

    /// How long until `credits` could be added; adds none.
    pub fn wait(
        &self,
        credits: u64,
        credits_max: u64,
        window: Duration,
        now: Duration,
    ) -> Duration {
        let state = self.state.load(Ordering::Relaxed);
        let (_, used) = open(state, window, now);
        let fits = used == 0 || used.saturating_add(credits) <= credits_max.min(CREDITS_MAX);
        if fits { Duration::ZERO } else { left(state, window, now) }
    }
}

/// When the window that counts at `now` began, in ms, and what is in it.
fn open(state: u64, window: Duration, now: Duration) -> (u64, u64) {
    match left(state, window, now) {
        // Never zero at the epoch: a state of zero has no window.
        Duration::ZERO => (millis(now).max(1), 0),
        _ => (state >> CREDIT_BITS, state & CREDITS_MAX),
    }
}

fn left(state: u64, window: Duration, now: Duration) -> Duration {
    match state >> CREDIT_BITS {
        0 => Duration::ZERO,
        began => Duration::from_millis(began).saturating_add(window + GUARD).saturating_sub(now),
    }
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX) & (u64::MAX >> CREDIT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `at_ms:credits` on a window of 10 credits in 1 s: `ok`, or the wait in ms.
    fn check(script: &str, expected: &str) {
        let window = FixedWindow::default();
        let told = |step: &str| {
            let (at, credits) = step.split_once(':').expect("at:credits");
            let at = Duration::from_millis(at.parse().expect("ms"));
            let credits = credits.parse().expect("credits");
            let wait = window.wait(credits, 10, Duration::from_secs(1), at);
            match window.take(credits, 10, Duration::from_secs(1), at) {
                Ok(()) => "ok".to_owned(),
                Err(told) => {
                    assert_eq!(told, wait, "asked before and told after");
                    told.as_millis().to_string()
                }
            }
        };
        let found: Vec<_> = script.split_whitespace().map(told).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    #[test]
    fn all_of_it_may_go_at_once() {
        check("500:10 500:1 1000:1 1749:1 1750:1", "ok 1250 750 1 ok");
    }

    #[test]
    fn the_next_window_begins_with_its_first_call() {
        check("1:1 5000:9 5900:1 6100:1", "ok ok ok 150");
    }

    #[test]
    fn what_was_spent_regardless_opens_a_window_and_fills_it() {
        let (window, second) = (FixedWindow::default(), Duration::from_secs(1));
        let at = Duration::from_millis;
        window.charge(12, second, at(100));
        assert_eq!(window.take(1, 10, second, at(200)), Err(at(1_150)));
        assert_eq!((window.drain(second, at(300)), window.drain(second, at(300))), (12, 0));
        assert_eq!(window.take(10, 10, second, at(300)), Ok(()));
        assert_eq!(window.drain(second, at(1_350)), 0, "it is over");
    }

    #[test]
    fn what_is_dearer_than_a_window_has_one_alone() {
        check("1:1 2:11 1300:11 1301:1", "ok 1249 ok 1249");
    }
}
