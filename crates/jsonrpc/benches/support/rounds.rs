//! What an operation takes, for benches of several crates.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The time of one operation in rounds of equal length, in nanoseconds. On a busy machine only the best means
/// anything.
pub(crate) struct Rounds {
    pub(crate) best: f64,
    pub(crate) median: f64,
}

impl Rounds {
    /// Runs `operation` in `count` rounds of about `length`, at least once in each round.
    #[allow(clippy::disallowed_methods, reason = "a bench is the one place that must read a clock")]
    pub(crate) fn of<T>(count: usize, length: Duration, mut operation: impl FnMut() -> T) -> Self {
        let began = Instant::now();
        let mut calls = 0_u32;
        while began.elapsed() < length {
            black_box(operation());
            calls += 1;
        }
        let calls = calls.max(1);
        let mut rounds: Vec<f64> = (0..count)
            .map(|_| {
                let began = Instant::now();
                for _ in 0..calls {
                    black_box(operation());
                }
                began.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        Self { best: rounds[0], median: rounds[count / 2] }
    }
}
