//! How much of a search an upstream answers at once, learnt from what it refused and answered.
//!
//! A refusal that names its limit is in `reach`. Here are the others, of three kinds:
//!
//! - the **length of the range** was refused, by words without a number: a bound of the
//!   upstream, for all searches;
//! - the **number of addresses** was refused: the same;
//! - the **results** were too many (or too large, or took too long): that depends on how dense
//!   the logs of this filter lie in these blocks, so it is remembered for this filter alone,
//!   [`FILTERS_MAX`] of them, and not for long. One dense search slows down no other.
//!
//! What is remembered of each: the size that was refused, and the one to ask for instead, which
//! is the largest that was answered, else what the refusal suggested, else half. An answer to
//! more raises it; searches in parts try more after some parts that went well. All of it ends
//! after a while, as plans and nodes change: then the whole is tried once, and where that is
//! refused again, the size that was answered before is used at once.

use std::time::Duration;

use parking_lot::Mutex;
use wellhead_eth::{Data, FilterShape};

use crate::stamp::{Stamp, StampCell};

/// What was learnt is forgotten after this long.
pub(crate) const LEARNT_FOR: Duration = Duration::from_secs(600);
/// A bound on results is remembered for this long: the next blocks may be less dense.
const DENSE_FOR: Duration = Duration::from_secs(120);
/// Filters whose results were too many are remembered up to this number; then the one that
/// ends first makes room.
const FILTERS_MAX: usize = 32;

/// How much to ask for at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// As much is answered, as far as is known.
    pub at_once: u64,
    /// More than this is refused, as far as is known.
    pub at_most: u64,
}

impl SizeLimit {
    /// A limit that the upstream itself, or its settings, named.
    pub(crate) fn named(size: u64) -> Self {
        Self { at_once: size, at_most: size }
    }

    /// The narrower of two in each respect.
    fn and(self, other: Self) -> Self {
        Self { at_once: self.at_once.min(other.at_once), at_most: self.at_most.min(other.at_most) }
    }

    /// What to try after several answers to `size`: twice as much, or half of what is left up to
    /// what is known to be refused. `size` where that is hardly more, so that the search for a
    /// limit ends.
    #[must_use]
    pub fn grown(self, size: u64) -> u64 {
        let left = self.at_most.saturating_sub(size);
        let more = left.div_ceil(2).min(size);
        if more > size / 8 { size.saturating_add(more) } else { size }
    }
}

/// How much of one search is answered at once; `None` where nothing is known to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchLimits {
    /// Blocks.
    pub blocks: Option<SizeLimit>,
    /// Addresses.
    pub addresses: Option<SizeLimit>,
}

/// One size that was refused. Zero is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LearntSize {
    at_once: u64,
    /// The largest that was answered.
    answered: u64,
    /// The smallest that was refused.
    refused: u64,
    until: Option<Stamp>,
}

impl LearntSize {
    fn refuse(&mut self, size: u64, suggested: Option<u64>, now: Stamp) {
        if self.until <= Some(now) {
            let answered = self.answered;
            *self = Self { answered, ..Self::default() };
        }
        if self.answered >= size {
            self.answered = 0;
        }
        let guess = suggested.filter(|less| (1..size).contains(less)).unwrap_or(size / 2).max(1);
        let known = if self.at_once == 0 { u64::MAX } else { self.at_once };
        self.at_once = match self.answered {
            0 => known.min(guess),
            answered => answered,
        };
        self.refused = if self.refused == 0 { size } else { self.refused.min(size) };
        self.until = Some(now.after(LEARNT_FOR));
    }

    fn answer(&mut self, size: u64) {
        self.answered = self.answered.max(size);
        self.at_once = self.at_once.max(size);
        if size >= self.refused {
            // What was refused before is answered by now.
            self.until = None;
        }
    }

    fn read(&self, now: Stamp) -> Option<SizeLimit> {
        (self.until > Some(now)).then(|| SizeLimit {
            at_once: self.at_once,
            at_most: self.refused.saturating_sub(1).max(self.at_once),
        })
    }
}

/// The searches of one filter that had too many results.
#[derive(Debug, Clone, Copy)]
struct DenseFilter {
    digest: u64,
    at_once: u64,
    until: Stamp,
}

#[derive(Debug, Default)]
struct LimitTable {
    ranges: [LearntSize; Data::ALL.len()],
    addresses: LearntSize,
    dense: Vec<DenseFilter>,
}

/// What was learnt of one upstream. The lock is held for moments, and not taken while
/// nothing is known.
#[derive(Debug, Default)]
pub(crate) struct LearntLimits {
    learnt: Mutex<LimitTable>,
    /// When the last of it ends.
    until: StampCell,
}

/// A search that was refused or answered.
#[derive(Debug, Clone, Copy)]
pub struct SearchSize {
    /// Over this number of blocks; zero where it names a block by its hash.
    pub blocks: u64,
    /// For this.
    pub filter: FilterShape,
}

/// What a search was refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Range,
    Addresses { suggested: Option<u64> },
    Results { suggested: Option<u64> },
}

impl LearntLimits {
    /// Whether any search was refused, even if that is over: what is answered then spares the
    /// next refusal the halving.
    pub(crate) fn has_refused_any(&self) -> bool {
        self.until.get().is_some()
    }

    fn is_anything_known(&self, now: Stamp) -> bool {
        self.until.get() > Some(now)
    }

    pub(crate) fn refused(&self, data: Data, size: SearchSize, excess: Excess, now: Stamp) {
        let SearchSize { blocks, filter } = size;
        let mut learnt = self.learnt.lock();
        match excess {
            Excess::Range if blocks > 1 => {
                learnt.ranges[data as usize].refuse(blocks, None, now);
            }
            Excess::Addresses { suggested } if filter.addresses > 1 => {
                learnt.addresses.refuse(filter.addresses, suggested, now);
            }
            Excess::Results { suggested } if blocks > 1 && filter.digest != 0 => {
                let half = (blocks / 2).max(1);
                let at_once = suggested.filter(|less| (1..blocks).contains(less)).unwrap_or(half);
                learnt.note_dense(filter.digest, at_once, now);
            }
            Excess::Range | Excess::Addresses { .. } | Excess::Results { .. } => return,
        }
        self.until.advance(now.after(LEARNT_FOR));
    }

    pub(crate) fn answered(&self, data: Data, size: SearchSize, now: Stamp) {
        if !self.has_refused_any() {
            return;
        }
        let mut learnt = self.learnt.lock();
        if learnt.ranges[data as usize].refused != 0 {
            learnt.ranges[data as usize].answer(size.blocks);
        }
        if learnt.addresses.refused != 0 {
            learnt.addresses.answer(size.filter.addresses);
        }
        let digest = size.filter.digest;
        let dense = learnt.dense.iter_mut();
        for dense in dense.filter(|it| it.digest == digest && it.until > now) {
            dense.at_once = dense.at_once.max(size.blocks);
        }
    }

    pub(crate) fn read(&self, data: Data, filter: FilterShape, now: Stamp) -> SearchLimits {
        if !self.is_anything_known(now) {
            return SearchLimits::default();
        }
        let learnt = self.learnt.lock();
        let is_it = |dense: &&DenseFilter| dense.digest == filter.digest && dense.until > now;
        let dense = learnt.dense.iter().find(is_it);
        // Blocks that are less dense may follow: nothing says how many are too many.
        let dense = dense.map(|it| SizeLimit { at_once: it.at_once, at_most: u64::MAX });
        SearchLimits {
            blocks: both(learnt.ranges[data as usize].read(now), dense),
            addresses: learnt.addresses.read(now),
        }
    }
}

impl LimitTable {
    fn note_dense(&mut self, digest: u64, at_once: u64, now: Stamp) {
        let until = now.after(DENSE_FOR);
        self.dense.retain(|it| it.until > now);
        if let Some(known) = self.dense.iter_mut().find(|it| it.digest == digest) {
            known.at_once = known.at_once.min(at_once);
            known.until = until;
            return;
        }
        if self.dense.len() >= FILTERS_MAX
            && let Some((place, _)) =
                self.dense.iter().enumerate().min_by_key(|(_, dense)| dense.until)
        {
            self.dense.swap_remove(place);
        }
        self.dense.push(DenseFilter { digest, at_once, until });
    }
}

/// The narrower limit in each respect.
pub(crate) fn both(one: Option<SizeLimit>, other: Option<SizeLimit>) -> Option<SizeLimit> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::ms;

    const DATA: Data = Data::Logs;

    fn size(blocks: u64, addresses: u64, digest: u64) -> SearchSize {
        SearchSize { blocks, filter: FilterShape { addresses, digest } }
    }

    fn blocks(limits: &LearntLimits, digest: u64, now: u64) -> Option<(u64, u64)> {
        let filter = FilterShape { addresses: 1, digest };
        limits.read(DATA, filter, ms(now)).blocks.map(|it| (it.at_once, it.at_most))
    }

    /// Plays `-n` (the range of n blocks was refused) and `+n` (it was answered).
    #[track_caller]
    fn check(script: &str, expected: Option<(u64, u64)>) {
        let limits = LearntLimits::default();
        for step in script.split_whitespace() {
            let (kind, number) = step.split_at(1);
            let search = size(number.parse().expect("a number"), 1, 7);
            match kind {
                "-" => limits.refused(DATA, search, Excess::Range, ms(1)),
                _ => limits.answered(DATA, search, ms(1)),
            }
        }
        assert_eq!(blocks(&limits, 9, 2), expected, "{script}");
        let of_traces = limits.read(Data::Traces, FilterShape::default(), ms(2));
        assert_eq!(of_traces, SearchLimits::default(), "{script}: other data");
    }

    #[test]
    fn half_of_what_was_refused_until_something_is_answered() {
        check("-1000", Some((500, 999)));
        check("-1000 -500", Some((250, 499)));
        check("-1000 -1000 -1000", Some((500, 999)));
        check("-1000 -500 +250", Some((250, 499)));
        check("-1000 -500 +250 +400", Some((400, 499)));
        check("-1000 -500 +250 +400 -450", Some((400, 449)));
        check("-2", Some((1, 1)));
        check("-1", None);
    }

    #[test]
    fn what_is_answered_after_all_is_refused_no_more() {
        check("-1000 +1000", None);
        check("-1000 +500 -400", Some((200, 399)));
    }

    #[test]
    fn a_refusal_is_forgotten_and_what_was_answered_is_not() {
        let limits = LearntLimits::default();
        let lasts = LEARNT_FOR.as_millis() as u64;
        limits.refused(DATA, size(1000, 1, 7), Excess::Range, ms(1));
        limits.refused(DATA, size(500, 1, 7), Excess::Range, ms(1));
        limits.answered(DATA, size(250, 1, 7), ms(1));
        assert_eq!(blocks(&limits, 9, lasts), Some((250, 499)));
        assert_eq!(blocks(&limits, 9, lasts + 1), None, "the whole is tried again");
        limits.refused(DATA, size(1000, 1, 7), Excess::Range, ms(lasts + 2));
        assert_eq!(blocks(&limits, 9, lasts + 3), Some((250, 999)));
    }

    #[test]
    fn addresses_are_bounded_for_all_filters() {
        let limits = LearntLimits::default();
        let suggested = Some(100);
        limits.refused(DATA, size(9, 500, 7), Excess::Addresses { suggested: None }, ms(1));
        let read = |now| limits.read(DATA, FilterShape::default(), ms(now)).addresses;
        assert_eq!(read(2), Some(SizeLimit { at_once: 250, at_most: 499 }));
        limits.refused(DATA, size(9, 250, 7), Excess::Addresses { suggested }, ms(2));
        assert_eq!(read(3), Some(SizeLimit { at_once: 100, at_most: 249 }));
        assert_eq!(blocks(&limits, 7, 3), None);
    }

    #[test]
    fn too_many_results_bound_the_searches_for_the_same_alone() {
        let limits = LearntLimits::default();
        let results = |suggested| Excess::Results { suggested };
        limits.refused(DATA, size(1000, 1, 7), results(None), ms(1));
        assert_eq!(blocks(&limits, 7, 2), Some((500, u64::MAX)));
        assert_eq!(blocks(&limits, 8, 2), None, "another filter");
        limits.refused(DATA, size(500, 1, 7), results(Some(40)), ms(2));
        assert_eq!(blocks(&limits, 7, 3), Some((40, u64::MAX)));
        limits.answered(DATA, size(80, 1, 7), ms(3));
        assert_eq!(blocks(&limits, 7, 4), Some((80, u64::MAX)), "these blocks are less dense");
        let lasts = DENSE_FOR.as_millis() as u64;
        assert_eq!(blocks(&limits, 7, 2 + lasts), None);
    }

    #[test]
    fn few_filters_are_remembered() {
        let limits = LearntLimits::default();
        for digest in 1..=FILTERS_MAX as u64 + 1 {
            limits.refused(
                DATA,
                size(9, 1, digest),
                Excess::Results { suggested: None },
                ms(digest),
            );
        }
        assert_eq!(limits.learnt.lock().dense.len(), FILTERS_MAX);
        assert_eq!(blocks(&limits, 1, 50), None, "the oldest made room");
        assert_eq!(blocks(&limits, 2, 50), Some((4, u64::MAX)));
    }

    #[test]
    fn growth_ends_at_what_is_refused() {
        let grown = |size, at_most| SizeLimit { at_once: size, at_most }.grown(size);
        assert_eq!(grown(100, u64::MAX), 200);
        assert_eq!(grown(100, 1000), 200);
        assert_eq!(grown(100, 199), 150);
        assert_eq!(grown(100, 110), 100, "near enough");
        assert_eq!(grown(100, 100), 100);
        assert_eq!(grown(1, 2), 2);
        assert_eq!(grown(1, 1), 1);
        // A limit of 700 blocks, of which is known that 500 go and 1000 do not.
        let (mut size, mut at_most, mut tried) = (500, 999, 0);
        while let more @ 1.. = grown(size, at_most) - size {
            tried += 1;
            if size + more <= 700 { size += more } else { at_most = size + more - 1 }
        }
        assert!(size > 600 && tried < 6, "{size} after {tried}");
    }
}
