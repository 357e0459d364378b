//! How fast a chain makes blocks, measured from when new heads were first seen.
//!
//! Arrival times rather than timestamps: those have whole seconds, and some
//! chains make four blocks in one. The mean over a window evens out that a
//! poller sees blocks in lumps.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many new heads are remembered.
const WINDOW: usize = 32;
/// Heads seen so soon after the first are those of several upstreams that were heard of one
/// after the other, and no new blocks.
const START: Duration = Duration::from_secs(1);
/// What was seen for less than this says nothing of the pace.
const SPAN_MIN: Duration = Duration::from_secs(1);
/// A fall by so many blocks is no reorg: the higher ones were another chain's, or no one's.
const FALL: u64 = 256;
/// A longer silence is a pause of ours or of the chain and says nothing of its pace.
const GAP_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(crate) struct BlockPace {
    seen: VecDeque<(u64, Instant)>,
}

impl BlockPace {
    /// Notes that `number` became the best head.
    pub(crate) fn observe(&mut self, number: u64, now: Instant) {
        if let Some((last, at)) = self.seen.back() {
            let has_fallen = number.saturating_add(FALL) <= *last;
            if has_fallen || now.saturating_duration_since(*at) > GAP_MAX {
                self.seen.clear();
            } else if *last >= number {
                return;
            }
        }
        if self.seen.len() == WINDOW {
            self.seen.pop_front();
        }
        self.seen.push_back((number, now));
    }

    /// Notes that a reorg took the best head down to `number`: what comes above it are new blocks. If they
    /// counted only above the old height, the time until they reach it would be taken for that of one
    /// block.
    pub(crate) fn fall_to(&mut self, number: u64) {
        let Some((last, _)) = self.seen.back() else { return };
        let by = last.saturating_sub(number);
        if self.seen.front().is_none_or(|(first, _)| *first < by) {
            self.seen.clear();
        }
        for (number, _) in &mut self.seen {
            *number -= by;
        }
    }

    /// The mean time between blocks; `None` before three heads were seen, since the
    /// first interval is cut short by when we began to look, and before they tell of a
    /// second: two that poll one after the other may show two blocks in one millisecond.
    pub(crate) fn block_time(&self) -> Option<Duration> {
        let (_, start) = self.seen.front()?;
        let is_start = |(_, at): &&(u64, Instant)| at.saturating_duration_since(*start) <= START;
        let started = self.seen.iter().take_while(is_start).count();
        // The first head had been there for an unknown time when we came.
        let (first, began) = self.seen.get((started - 1).max(1))?;
        let (last, ended) = self.seen.back()?;
        let blocks = u32::try_from(last - first).ok().filter(|blocks| *blocks > 0)?;
        let span = ended.saturating_duration_since(*began);
        (span >= SPAN_MIN).then(|| span / blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `number@ms`, or `>number@ms` for a reorg, and compares the block time in milliseconds.
    fn check(script: &str, expected_ms: Option<u64>) {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let origin = Instant::now();
        let mut pace = BlockPace::default();
        for step in script.split_whitespace() {
            let (number, at) = step.split_once('@').expect("number@ms");
            let at = origin + Duration::from_millis(at.parse().expect("ms"));
            match number.strip_prefix('>') {
                Some(number) => pace.fall_to(number.parse().expect("number")),
                None => pace.observe(number.parse().expect("number"), at),
            }
        }
        assert_eq!(pace.block_time(), expected_ms.map(Duration::from_millis), "{script}");
    }

    #[test]
    fn the_first_interval_does_not_count() {
        check("", None);
        check("1@0 2@100", None);
        check("1@0 2@100 3@1100", Some(1000));
    }

    #[test]
    fn lumps_are_evened_out() {
        check("1@0 5@1000 9@2000 13@3000", Some(250));
    }

    #[test]
    fn repeats_and_returns_are_not_new_blocks() {
        check("1@0 2@1000 2@1500 1@1600 3@3000", Some(2000));
    }

    #[test]
    fn upstreams_that_are_heard_of_first_may_lag() {
        check("10@0 20@10 40@20 41@1020", Some(1000));
    }

    #[test]
    fn a_moment_says_nothing() {
        check("1@0 2@1500 3@1503", None);
        check("1@0 2@1500 3@1503 4@3500", Some(1000));
    }

    #[test]
    fn a_long_pause_starts_over() {
        check("1@0 2@1000 3@2000 90@500000", None);
    }

    #[test]
    fn blocks_of_a_shorter_branch_are_new_blocks() {
        check("101@0 102@1000 103@2000 >101@2500 102@3000 103@4000 104@5000", Some(1000));
        check("101@0 102@1000 103@2000 >50@2500 51@3000 52@4000", Some(1000));
        // Another chain.
        check("101@0 102@1000 103@2000 >1@2500 2@3000", None);
    }

    #[test]
    fn a_deep_fall_starts_over() {
        check("9001@0 9002@1000 1@1500 2@2000 3@3000", Some(1000));
    }
}
