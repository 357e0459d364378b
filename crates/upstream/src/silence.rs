//! Whether an upstream has stopped answering altogether.
//!
//! A stalled upstream accepts calls and never answers. Each of its calls would wait for its own
//! timeout, and three of them before the breaker opens: for seconds all of its calls
//! wait. A stall can be distinguished much earlier from a slow call, because the upstream
//! answers no call at all. So a call that waits longer than such calls usually take is noted
//! here, and any reply, to any call, resets that.
//!
//! This only reports that it looks like a stall. Another upstream that answers the call shows that
//! the upstream is the cause, and not the local network; the caller that sees this
//! records it (`dispatch::hedge`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::stamp::{ExchangeSpan, Stamp, StampCell};

/// This many calls must wait in vain.
const OVERDUE_MIN: u32 = 3;
/// And nothing must have been heard for this long: longer than a collector's pause.
const QUIET_MIN: Duration = Duration::from_millis(250);
/// And this many times longer than nineteen in twenty calls take.
const QUIET_FACTOR: u32 = 4;
/// Calls that waited longer ago than this show nothing of now.
const MEMORY: Duration = Duration::from_secs(10);

/// What is known of one upstream's silence.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    heard: StampCell,
    /// Since when nothing was heard with calls waiting; none while no call waits.
    since: StampCell,
    noted: StampCell,
    overdue: AtomicU32,
}

impl StallDetector {
    /// It said something.
    pub(crate) fn heard(&self, now: Stamp) {
        // Stored only when it changes: this is the request path, shared by all workers.
        if self.heard.get() < Some(now) {
            self.heard.set(now);
        }
        if self.since.get().is_some() {
            self.forget();
        }
    }

    /// A call has waited for this span, longer than usual. It may say so again and again, and
    /// is counted once: `noted` is when it last did.
    pub(crate) fn overdue(&self, waited: ExchangeSpan, noted: Option<Stamp>) {
        let ExchangeSpan { began, ended: now } = waited;
        let heard = self.heard.get();
        if noted.is_some() && noted > heard {
            return;
        }
        if self.noted.swap(now).is_some_and(|before| now.since(before) > MEMORY) {
            self.forget();
        }
        self.since.keep_earliest(heard.map_or(began, |heard| began.max(heard)));
        self.overdue.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it looks stalled; `usual` is what nineteen in twenty calls take at most.
    pub(crate) fn is_long(&self, now: Stamp, usual: Duration) -> bool {
        let quiet = usual.saturating_mul(QUIET_FACTOR).max(QUIET_MIN);
        let is_quiet = |since| now.since(since).as_millis() >= quiet.as_millis();
        self.overdue.load(Ordering::Relaxed) >= OVERDUE_MIN
            && self.since.get().is_some_and(is_quiet)
    }

    /// Whether it said anything after `at`.
    pub(crate) fn was_heard_after(&self, at: Stamp) -> bool {
        self.heard.get() > Some(at)
    }

    fn forget(&self) {
        self.overdue.store(0, Ordering::Relaxed);
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::{ms, span};

    /// Plays `began-now?` (overdue), `began-noted-now?` (again) and `now!` (heard), and asks
    /// at `at` with a usual time.
    fn check(script: &str, at: u64, usual_ms: u64, expected: bool) {
        let silence = StallDetector::default();
        let number = |text: &str| text.parse::<u64>().expect("milliseconds");
        for step in script.split_whitespace() {
            let times: Vec<u64> =
                step.trim_end_matches(['?', '!']).split('-').map(number).collect();
            match times[..] {
                [began, noted, now] => silence.overdue(span(began, now), Some(ms(noted))),
                [began, now] => silence.overdue(span(began, now), None),
                [now] => silence.heard(ms(now)),
                _ => panic!("too many times: {step}"),
            }
        }
        let is_long = silence.is_long(ms(at), Duration::from_millis(usual_ms));
        assert_eq!(is_long, expected, "{script} at {at}");
    }

    #[test]
    fn three_calls_in_vain_and_a_quarter_of_a_second_look_like_a_stall() {
        check("", 9_000, 20, false);
        check("10-30? 11-31?", 9_000, 20, false);
        check("10-30? 11-31? 12-32?", 259, 20, false);
        check("11-31? 10-30? 12-32?", 260, 20, true);
    }

    #[test]
    fn the_slow_are_given_longer() {
        check("10-400? 11-400? 12-400?", 1_609, 400, false);
        check("10-400? 11-400? 12-400?", 1_610, 400, true);
    }

    #[test]
    fn a_word_to_any_of_them_ends_it() {
        check("10-30? 11-31? 12-32? 40!", 900, 20, false);
        check("10-30? 11-31? 12-32? 40! 10-30-50? 11-31-50?", 900, 20, false);
    }

    #[test]
    fn a_stall_that_begins_with_calls_under_way_is_seen() {
        check("20! 10-30? 11-31? 12-32?", 269, 20, false);
        check("20! 10-30? 11-31? 12-32?", 270, 20, true);
        check("10-30? 11-31? 12-32? 40! 10-30-50? 11-31-51? 12-32-52?", 290, 20, true);
    }

    #[test]
    fn one_call_is_counted_once() {
        check("10-30? 10-30-50? 10-50-90? 10-90-170?", 900, 20, false);
    }

    #[test]
    fn rare_calls_are_not_added_up() {
        check("10-30? 20010-20030? 40010-40030?", 40_030, 20, false);
        check("10-30? 5010-5030? 10010-10030?", 10_030, 20, true);
    }
}
