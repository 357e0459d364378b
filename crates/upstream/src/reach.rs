//! How far back an upstream reaches, and over how many blocks at once.
//!
//! Both are given by the settings or learnt from what the upstream itself says, and what
//! was learnt is forgotten after a while, since a node may be synced anew and a plan be
//! changed. Atomics only: the path of a request reads, and writes where it failed.
//!
//! A history is learnt in two ways: from words that name the first block that is kept, at
//! once; from a block that is missing although it is old, only the third time, since one
//! such answer is also what a moment's fault looks like. An answer about an older block
//! takes it back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wellhead_eth::{BlockNumber, Data};

use crate::search_limit::{LEARNT_FOR, LearntLimits};
use crate::stamp::{Stamp, StampCell};

/// A block that is missing and nearer to the head than this says nothing of the history: it
/// may not have arrived yet. Half of the 128 states that a geth without an archive keeps.
const NEAR_HEAD: u64 = 64;
/// This many old blocks have to be missing before the history is taken to be short.
const MISSES_MIN: u32 = 3;
/// The states that a provider serves on plans without history.
const STATES_WITHOUT_HISTORY: u64 = 128;

/// What the settings say of how far an upstream reaches; `None` where they say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReachSettings {
    /// This many of the newest blocks are kept, by kind of data.
    pub kept: [Option<u64>; Data::ALL.len()],
    /// A search may go over this many blocks at once.
    pub range_max: Option<u64>,
}

impl ReachSettings {
    pub(crate) fn kept(&self, data: Data) -> Option<u64> {
        self.kept[data as usize]
    }
}

/// A number that expires. Zero means none: no upstream keeps less than from block 0 on, and no
/// range is empty.
#[derive(Debug, Default)]
struct Fading {
    number: AtomicU64,
    until: StampCell,
}

impl Fading {
    fn read(&self, now: Stamp) -> Option<u64> {
        match self.number.load(Ordering::Relaxed) {
            0 => None,
            number => (self.until.get() > Some(now)).then_some(number),
        }
    }

    fn set(&self, number: u64, now: Stamp) {
        self.until.set(now.after(LEARNT_FOR));
        self.number.store(number, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.number.store(0, Ordering::Relaxed);
    }
}

/// What was learnt of one kind of data.
#[derive(Debug, Default)]
struct OfData {
    /// The oldest block that is kept.
    oldest: Fading,
    /// The newest old block that was missing, while that is not yet believed.
    missing: Fading,
    misses: AtomicU32,
    /// Blocks at once.
    range_max: Fading,
}

/// What was learnt of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    data: [OfData; Data::ALL.len()],
    pub(crate) limits: LearntLimits,
}

impl Reach {
    fn of(&self, data: Data) -> &OfData {
        &self.data[data as usize]
    }

    /// The oldest block that is kept, as far as is known. `given` are the newest blocks
    /// that the settings say, `head` the upstream's own.
    pub(crate) fn oldest(
        &self,
        data: Data,
        given: Option<u64>,
        head: Option<BlockNumber>,
        now: Stamp,
    ) -> Option<BlockNumber> {
        let given = match (given, head) {
            (Some(kept), Some(head)) => Some((head.0 + 1).saturating_sub(kept)),
            (Some(_), None) | (None, _) => None,
        };
        given.max(self.of(data).oldest.read(now)).map(BlockNumber)
    }

    /// Blocks that are given at once, as far as is known.
    pub(crate) fn range_max(&self, data: Data, now: Stamp) -> Option<u64> {
        self.of(data).range_max.read(now)
    }

    /// Its own words: nothing is kept below `number`.
    pub(crate) fn pruned_below(&self, data: Data, number: u64, now: Stamp) {
        self.of(data).oldest.set(number, now);
    }

    /// Its own words: no history is sold to us.
    pub(crate) fn no_history(&self, data: Data, head: Option<BlockNumber>, now: Stamp) {
        if let Some(head) = head {
            let oldest = (head.0 + 1).saturating_sub(STATES_WITHOUT_HISTORY);
            self.of(data).oldest.set(oldest, now);
        }
    }

    /// Its own words: at most this many blocks at once.
    pub(crate) fn range_at_most(&self, data: Data, blocks: u64, now: Stamp) {
        self.of(data).range_max.set(blocks, now);
    }

    /// Block `number` was missing while the head was at `head`.
    pub(crate) fn missed(&self, data: Data, number: BlockNumber, head: BlockNumber, now: Stamp) {
        if number.0.saturating_add(NEAR_HEAD) > head.0 {
            return;
        }
        let of = self.of(data);
        let newest = of.missing.read(now);
        let misses = match newest {
            Some(_) => of.misses.fetch_add(1, Ordering::Relaxed) + 1,
            None => {
                of.misses.store(1, Ordering::Relaxed);
                1
            }
        };
        let first_kept = newest.unwrap_or_default().max(number.0 + 1);
        of.missing.set(first_kept, now);
        if misses >= MISSES_MIN {
            of.oldest.set(first_kept, now);
        }
    }

    /// Block `number` was there.
    pub(crate) fn had(&self, data: Data, number: BlockNumber, now: Stamp) {
        let of = self.of(data);
        for learnt in [&of.oldest, &of.missing] {
            if learnt.read(now).is_some_and(|first_kept| number.0 < first_kept) {
                learnt.forget();
            }
        }
    }

    /// Whether anything of the history was learnt: a cheap question before [`Reach::had`].
    pub(crate) fn is_anything_missing(&self, data: Data) -> bool {
        let of = self.of(data);
        (of.missing.number.load(Ordering::Relaxed) | of.oldest.number.load(Ordering::Relaxed)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::ms;

    const HEAD: BlockNumber = BlockNumber(1000);
    const LATER: u64 = LEARNT_FOR.as_millis() as u64;

    /// Plays `-n` (block n was missing), `+n` (it was there), `<n` (nothing below n) and
    /// says from which block on states are taken to be kept.
    fn check(script: &str, expected: Option<u64>) -> Reach {
        let reach = Reach::default();
        for step in script.split_whitespace() {
            let (kind, number) = step.split_at(1);
            let number: u64 = number.parse().expect("a number");
            match kind {
                "-" => reach.missed(Data::State, BlockNumber(number), HEAD, ms(1)),
                "+" => reach.had(Data::State, BlockNumber(number), ms(1)),
                _ => reach.pruned_below(Data::State, number, ms(1)),
            }
        }
        let oldest = reach.oldest(Data::State, None, Some(HEAD), ms(2)).map(|oldest| oldest.0);
        assert_eq!(oldest, expected, "{script}");
        assert_eq!(reach.oldest(Data::Logs, None, Some(HEAD), ms(2)), None, "{script}: other data");
        reach
    }

    #[test]
    fn a_history_is_short_after_the_third_old_block_that_is_missing() {
        check("-5", None);
        check("-5 -6", None);
        check("-5 -900 -6", Some(901));
        check("-5 -6 -7 -936", Some(937));
    }

    #[test]
    fn what_is_near_the_head_may_be_yet_to_come() {
        check("-937 -999 -1000 -1001 -5000", None);
        check("-936 -936 -936", Some(937));
    }

    #[test]
    fn an_older_answer_takes_it_back() {
        check("-5 -6 -7 +8", Some(8));
        check("-5 -6 -7 +7", None);
        check("-5 -6 +3 -7", None);
        check("<500 +499", None);
        check("<500 +500", Some(500));
    }

    #[test]
    fn words_are_believed_at_once_and_for_a_while() {
        let reach = check("<500", Some(500));
        assert_eq!(reach.oldest(Data::State, None, Some(HEAD), ms(LATER + 1)), None);
        reach.no_history(Data::State, Some(HEAD), ms(LATER));
        let oldest = reach.oldest(Data::State, None, Some(HEAD), ms(LATER + 1));
        assert_eq!(oldest, Some(BlockNumber(873)));
        reach.range_at_most(Data::Logs, 2000, ms(5));
        assert_eq!(reach.range_max(Data::Logs, ms(6)), Some(2000));
        assert_eq!(reach.range_max(Data::Traces, ms(6)), None);
        assert_eq!(reach.range_max(Data::Logs, ms(5 + LATER)), None);
    }

    #[test]
    fn what_is_given_moves_on_with_the_head() {
        let reach = Reach::default();
        let given = |head| reach.oldest(Data::State, Some(128), head, ms(1)).map(|oldest| oldest.0);
        assert_eq!(given(Some(HEAD)), Some(873));
        assert_eq!(given(Some(BlockNumber(5))), Some(0));
        assert_eq!(given(None), None, "without a head nothing can be counted back from it");
        reach.pruned_below(Data::State, 950, ms(1));
        assert_eq!(given(Some(HEAD)), Some(950), "the narrower one counts");
    }
}
