//! An open loop that leans on a limit: floods until calls are refused, then knocks until one
//! passes again, and floods again.
//!
//! What a limit is shows in how it lets calls pass again, and it is not known beforehand whether
//! that takes milliseconds or a minute. So knocks grow rarer as the wait grows longer: a wait is
//! known to 3 % whatever its length, and costs a few hundred calls at most. A bucket that fills
//! bit by bit lets single calls pass and is not flooded for each of them.
//!
//! Plain sums: `run` sends when it is told and tells what came of it.

use std::time::Duration;

/// Between the first knocks.
const GAP_MIN: Duration = Duration::from_millis(10);
/// Later ones are so much of the wait apart.
const GAP_SHARE: f64 = 0.03;
/// Refusals in a row that end a flood: fewer may be calls that overtook each other.
const REFUSED_RUN: u32 = 3;
/// Knocks in a row that pass before it is flooded again.
const PASSED_RUN: u64 = 3;
/// A run of so much of what passed at first is a window that started anew.
const LONG_RUN: f64 = 0.3;
/// This many short runs, and no long one, are a bucket that fills bit by bit.
const SHORT_RUNS: u32 = 20;
/// And this many calls that passed tell its rate to 2 %.
const PASSED_ENOUGH: u64 = 50;

/// What is sent at most, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knocking {
    /// Silence before the first call, with the connections open: the limit is whole again then.
    pub settle: Duration,
    /// Calls a second of a flood; has to be above the limit.
    pub per_second: f64,
    /// Calls in all.
    pub calls: u64,
    /// No call begins later than this, the silence included.
    pub within: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum KnockPhase {
    /// Since then.
    Flood(Duration),
    /// Since then, and since the last one that passed.
    Knock { begun: Duration, since: Duration },
}

/// Says when the next call is due. Times are lengths since the cell began.
#[derive(Debug, Clone)]
pub struct Knocker {
    terms: Knocking,
    phase: KnockPhase,
    due: Duration,
    refused_run: u32,
    passed_run: u64,
    /// Passed before the first refusal.
    first: u64,
    /// When the earliest and the latest of the calls began that were refused. Refusals may overtake calls that pass.
    refused: Option<(Duration, Duration)>,
    /// Passed since.
    passed: u64,
    long_runs: u32,
    short_runs: u32,
    over: bool,
}

impl Knocker {
    /// Begins with a flood, after the silence.
    pub fn new(terms: Knocking) -> Self {
        Self {
            terms,
            phase: KnockPhase::Flood(Duration::ZERO),
            due: terms.settle,
            refused_run: 0,
            passed_run: 0,
            first: 0,
            refused: None,
            passed: 0,
            long_runs: 0,
            short_runs: 0,
            over: false,
        }
    }

    /// When the next call should begin.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Whether enough was seen, or time is over.
    pub fn is_over(&self) -> bool {
        self.over || self.due > self.terms.within
    }

    /// The call that was due has been sent.
    pub fn sent(&mut self) {
        let gap = match self.phase {
            KnockPhase::Flood(_) => Duration::from_secs_f64(1.0 / self.terms.per_second),
            KnockPhase::Knock { since, .. } => {
                GAP_MIN.max(self.due.saturating_sub(since).mul_f64(GAP_SHARE))
            }
        };
        self.due += gap;
    }

    /// The call that began at `begun` has its answer, `now`.
    pub fn heard(&mut self, begun: Duration, now: Duration, passed: bool) {
        if !passed {
            self.refused_run += 1;
            self.end_run();
            let (first, last) = self.refused.unwrap_or((begun, begun));
            self.refused = Some((first.min(begun), last.max(begun)));
        } else if self.refused.is_some_and(|(_, last)| begun < last) {
            // It was overtaken, and is part of no run.
            let was_first = self.refused.is_some_and(|(first, _)| begun < first);
            self.first += u64::from(was_first);
            self.passed += u64::from(!was_first);
        } else {
            self.refused_run = 0;
            self.passed_run += 1;
            self.first += u64::from(self.refused.is_none());
            self.passed += u64::from(self.refused.is_some());
        }
        match self.phase {
            KnockPhase::Flood(since) if begun >= since && self.refused_run >= REFUSED_RUN => {
                self.phase = KnockPhase::Knock { begun: now, since: now };
                self.due = now + GAP_MIN;
            }
            // What was sent in the flood and is heard late says nothing of the wait.
            KnockPhase::Knock { begun: from, since } if begun >= from && passed => {
                self.over |= self.long_runs > 0;
                if self.passed_run >= PASSED_RUN {
                    self.phase = KnockPhase::Flood(now);
                    self.due = now;
                } else {
                    self.phase = KnockPhase::Knock { begun: from, since: since.max(begun) };
                    self.due = self.due.min(now + GAP_MIN);
                }
            }
            KnockPhase::Flood(_) | KnockPhase::Knock { .. } => {}
        }
    }

    fn end_run(&mut self) {
        if self.refused.is_some() && self.passed_run > 0 {
            let long = (LONG_RUN * self.first as f64).max(PASSED_RUN as f64);
            let is_long = self.passed_run as f64 >= long;
            self.long_runs += u32::from(is_long);
            self.short_runs += u32::from(!is_long);
        }
        self.passed_run = 0;
        let steady = self.long_runs == 0 && self.short_runs >= SHORT_RUNS;
        self.over |= steady && self.passed >= PASSED_ENOUGH;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::stat::bucket::TimedCall;
    use crate::stat::refill::{RefillKind, RefillLimit, read};

    /// Lets calls pass or not, by their time in seconds.
    type Meter = Box<dyn FnMut(f64) -> bool>;

    fn steady(size: f64, per_second: f64) -> Meter {
        let (mut tokens, mut last) = (size, 0.0);
        Box::new(move |at| {
            tokens = f64::min(tokens + (at - last) * per_second, size);
            last = at;
            let passes = tokens >= 1.0;
            tokens -= f64::from(u8::from(passes));
            passes
        })
    }

    fn fixed(size: u32, window: f64, phase: f64) -> Meter {
        let (mut left, mut number) = (size, 0.0);
        Box::new(move |at| {
            let now = ((at + phase) / window).floor();
            if now > number {
                (left, number) = (size, now);
            }
            let passes = left > 0;
            left -= u32::from(passes);
            passes
        })
    }

    fn sliding(size: usize, window: f64) -> Meter {
        let mut passed: VecDeque<f64> = VecDeque::new();
        Box::new(move |at| {
            while passed.front().is_some_and(|first| at - first >= window) {
                passed.pop_front();
            }
            let passes = passed.len() < size;
            if passes {
                passed.push_back(at);
            }
            passes
        })
    }

    /// Plays it with answers after 30 ms; what became of each call.
    fn play(meter: Meter) -> Vec<TimedCall> {
        play_refusing(meter, Duration::from_millis(30))
    }

    /// Likewise, with refusals after `refusal`.
    fn play_refusing(mut meter: Meter, refusal: Duration) -> Vec<TimedCall> {
        let terms = Knocking {
            settle: Duration::from_secs(1),
            per_second: 400.0,
            calls: 20_000,
            within: Duration::from_secs(400),
        };
        let late = Duration::from_millis(30);
        let mut knocker = Knocker::new(terms);
        let mut under_way: VecDeque<(Duration, bool)> = VecDeque::new();
        let mut served = Vec::new();
        while !knocker.is_over() && (served.len() as u64) < terms.calls {
            let ends =
                |(begun, passed): &(Duration, bool)| *begun + if *passed { late } else { refusal };
            let next = (0..under_way.len()).min_by_key(|at| ends(&under_way[*at]));
            if let Some(at) = next.filter(|at| ends(&under_way[*at]) <= knocker.due()) {
                let (begun, passed) = under_way.remove(at).expect("it was there");
                knocker.heard(begun, ends(&(begun, passed)), passed);
                continue;
            }
            let at = knocker.due();
            let passed = meter(at.as_secs_f64());
            served.push(TimedCall { at: at.as_secs_f64(), passed });
            under_way.push_back((at, passed));
            knocker.sent();
        }
        served
    }

    #[test]
    fn refusals_that_overtake_calls_that_pass() {
        for (size, per_second) in [(20.0, 20.0), (30.0, 16.0), (125.0, 125.0)] {
            let calls = play_refusing(steady(size, per_second), Duration::from_millis(1));
            let limit = read(&[calls]).expect("it refuses");
            assert_eq!(limit.kind, RefillKind::Steady, "{size}: {limit:?}");
            near(limit.per_second, per_second);
        }
        let calls = play_refusing(fixed(200, 1.0, 0.3), Duration::from_millis(1));
        let limit = read(&[calls]).expect("it refuses");
        assert_eq!((limit.kind, limit.size.round() as u32), (RefillKind::Reset, 200));
    }

    fn found(meter: Meter) -> (RefillLimit, usize) {
        let calls = play(meter);
        let sent = calls.len();
        (read(&[calls]).expect("it refuses"), sent)
    }

    fn near(seen: f64, expected: f64) {
        assert!((seen / expected - 1.0).abs() < 0.06, "{seen} for {expected}");
    }

    #[test]
    fn buckets_that_fill_bit_by_bit() {
        for (size, per_second) in
            [(20.0, 20.0), (125.0, 125.0), (200.0, 20.0), (2_000.0, 200.0), (600.0, 10.0)]
        {
            let (limit, sent) = found(steady(size, per_second));
            assert_eq!(limit.kind, RefillKind::Steady, "{size}: {limit:?}");
            near(limit.size, size);
            near(limit.per_second, per_second);
            assert!((sent as f64) < 2.5 * size + 1_500.0, "{sent} calls for {size}");
        }
    }

    #[test]
    fn windows_of_any_length_and_phase() {
        for (size, window) in [(20, 1.0), (200, 1.0), (300, 10.0), (1_000, 60.0)] {
            for phase in [0.0, 0.3, 0.9] {
                let (limit, sent) = found(fixed(size, window, phase * window));
                assert_eq!(limit.kind, RefillKind::Reset, "{size} in {window}: {limit:?}");
                assert_eq!(limit.size.round() as u32, size, "{phase}");
                near(limit.window, window);
                assert!(sent < 4 * size as usize + 800, "{sent} calls for {size}");
            }
        }
    }

    #[test]
    fn windows_that_slide() {
        for (size, window) in [(20, 1.0), (200, 1.0), (300, 10.0), (1_000, 60.0)] {
            let (limit, _) = found(sliding(size, window));
            assert_eq!(limit.kind, RefillKind::Reset, "{size} in {window}: {limit:?}");
            near(limit.size, size as f64);
            near(limit.window, window);
        }
    }

    #[test]
    fn no_limit_is_flooded_to_the_bound() {
        let calls = play(Box::new(|_| true));
        assert_eq!(calls.len(), 20_000);
        assert!(read(&[calls]).is_none());
    }
}
