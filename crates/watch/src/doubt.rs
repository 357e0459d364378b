//! Doubt that an upstream is on its chain still.
//!
//! A name that leads to another node by now, or a node that was started anew with other data, goes
//! on answering calls, and nothing of its health says so. Its heads do: they have other hashes at
//! heights that are known, fall far back, or are far ahead of everything. A reorg looks like that,
//! too, so doubt only has the upstream asked for its chain id, at once and at most each
//! [`ASKED_EVERY`].

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_chain::{Observation, View};
use wellhead_eth::BlockNumber;
use wellhead_upstream::Slot;

/// An upstream whose chain reorganises all the time is asked for its id no more often.
const ASKED_EVERY: Duration = Duration::from_secs(60);

/// A head that comes so soon after the chain id is not the reason to ask for it once more: before
/// that the upstream may have been away for long.
const ASKED_JUST_NOW: Duration = Duration::from_secs(5);

/// Whether what `slot` says of its head is hard to believe of the chain of `view`.
pub(crate) fn is_doubtful(view: &View, slot: Slot, seen: &Observation, now: Instant) -> bool {
    let is_other = |number, hash| {
        let known = view.hash_at(number);
        known.zip(hash).is_some_and(|(known, told)| known != told)
    };
    let before = seen.number.0.checked_sub(1).map(BlockNumber);
    let fell = view.head(slot).map_or(0, |head| head.number.0.saturating_sub(seen.number.0));
    // The known head may be old after a long time without polls.
    let latest = view.latest.filter(|_| view.is_fresh(now));
    let ahead = latest.map_or(0, |latest| seen.number.0.saturating_sub(latest.number.0));
    is_other(seen.number, seen.hash)
        || before.is_some_and(|before| is_other(before, seen.parent))
        || fell.max(ahead) > view.lag_bound()
}

/// Whether one upstream is in doubt.
#[derive(Debug, Default)]
pub(crate) struct ChainDoubt {
    state: Mutex<State>,
    raised: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_raised: bool,
    asked: Option<Instant>,
}

impl State {
    fn was_asked_within(&self, time: Duration, now: Instant) -> bool {
        self.asked.is_some_and(|at| now.saturating_duration_since(at) < time)
    }
}

impl ChainDoubt {
    /// Notes that its head was hard to believe.
    pub(crate) fn raise(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.was_asked_within(ASKED_JUST_NOW, now) {
            return;
        }
        state.is_raised = true;
        if !state.was_asked_within(ASKED_EVERY, now) {
            self.raised.notify_one();
        }
    }

    /// Whether it is to be asked for its chain id now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.is_raised && !state.was_asked_within(ASKED_EVERY, now)
    }

    /// Notes that it is asked.
    pub(crate) fn settle(&self, now: Instant) {
        *self.state.lock() = State { is_raised: false, asked: Some(now) };
    }

    /// Until doubt is raised of which it may be asked at once.
    pub(crate) async fn raised(&self) {
        self.raised.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use wellhead_chain::{Heads, Source};
    use wellhead_eth::BlockHash;

    use super::*;
    use crate::ask::now;

    /// A block of one of several chains: `100a` is the block of height 100 of chain `a`, and
    /// `100a<b` has a parent of chain `b`.
    fn block(text: &str) -> Observation {
        let (text, parent) = text.split_once('<').unwrap_or((text, ""));
        let (number, chain) = text.split_at(text.len() - 1);
        let number: u64 = number.parse().expect("a height");
        let hash = |number: u64, chain: &str| -> BlockHash {
            format!("0x{}{number:063x}", chain).parse().expect("a hash")
        };
        let parent = if parent.is_empty() { chain } else { parent };
        Observation {
            number: BlockNumber(number),
            hash: Some(hash(number, chain)),
            parent: Some(hash(number - 1, parent)),
            timestamp: None,
        }
    }

    /// After these heads, whether the last one is hard to believe.
    fn check(heads: &str, expected: bool) {
        let began = now();
        let (known, slot) = (Heads::new(1, None, Some(9)), Slot(0));
        let mut told = Vec::new();
        for (text, at) in heads.split_whitespace().zip(0..) {
            let (seen, at) = (block(text), began + Duration::from_secs(at));
            told.push(is_doubtful(&known.view(), slot, &seen, at));
            known.observe(slot, seen, Source::Word, at);
        }
        assert_eq!(told.last(), Some(&expected), "{heads}");
        assert!(told[..told.len() - 1].iter().all(|told| !told), "{heads}: {told:?}");
    }

    #[test]
    fn a_chain_that_goes_on_is_in_no_doubt() {
        check("100a", false);
        check("100a 101a 102a 102a", false);
        check("100a 109a", false);
        check("100a 95a", false);
    }

    #[test]
    fn other_hashes_at_known_heights_raise_doubt() {
        check("100a 101a 101b", true);
        check("100a 101a 102b<b", true);
        check("100a 101a 100b", true);
    }

    #[test]
    fn heights_far_from_the_chain_raise_doubt() {
        check("100a 110a", true);
        check("100a 90a", true);
    }

    #[test]
    fn doubt_is_raised_once_a_minute() {
        let (doubt, began) = (ChainDoubt::default(), now());
        let mut asked = 0;
        for second in 0..=120 {
            let now = began + Duration::from_secs(second);
            doubt.raise(now);
            if doubt.is_due(now) {
                doubt.settle(now);
                asked += 1;
            }
        }
        assert_eq!(asked, 3);
    }

    #[test]
    fn doubt_waits_until_it_may_be_asked_and_not_when_it_just_was() {
        let (doubt, began) = (ChainDoubt::default(), now());
        let at = |second| began + Duration::from_secs(second);
        doubt.settle(at(0));
        doubt.raise(at(4));
        assert!(!doubt.is_due(at(60)));
        doubt.raise(at(10));
        assert_eq!([59, 60].map(|second| doubt.is_due(at(second))), [false, true]);
    }
}
