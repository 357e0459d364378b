//! The largest size that is served: doubling, then bisecting, then once more the two that decide.
//!
//! Plain: told what became of a size, it says which is next.

use crate::experiment::TryFate;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct ExtentSearch {
    /// The smallest that is tried.
    first: u64,
    max: u64,
    /// The largest that was served; what is smaller than the first is taken for served.
    low: u64,
    /// The smallest that was refused.
    high: Option<u64>,
    phase: SearchPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchPhase {
    /// This size is next.
    Doubling(u64),
    Bisecting,
    /// Played again: first the one that was refused, then the one that was served.
    Confirming(u8),
    Over,
}

impl ExtentSearch {
    /// From `first` up to `max`, both at least 1.
    pub(super) fn new(first: u64, max: u64) -> Self {
        let max = max.max(1);
        let first = first.clamp(1, max);
        Self { first, max, low: first - 1, high: None, phase: SearchPhase::Doubling(first) }
    }

    /// The search as it stands after these sizes, up to the first that it would not have tried.
    pub(super) fn after(mut self, tried: &[(u64, TryFate)]) -> Self {
        for (size, fate) in tried {
            if self.next() != Some(*size) {
                break;
            }
            self.learn(*fate);
        }
        self
    }

    /// Goes up to `max` where nothing smaller was refused: what is searched has grown meanwhile.
    pub(super) fn widen(&mut self, max: u64) {
        if let SearchPhase::Doubling(_) = self.phase
            && max > self.max
        {
            self.max = max;
            if self.served() > 0 {
                self.phase = SearchPhase::Doubling(self.low.saturating_mul(2).min(max));
            }
        }
    }

    /// As far as it goes.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Whether nothing smaller is tried.
    pub(super) fn is_least(&self, size: u64) -> bool {
        size <= self.first
    }

    /// The largest that was served; 0 where none was.
    pub(super) fn served(&self) -> u64 {
        if self.low < self.first { 0 } else { self.low }
    }

    /// The size to be tried; `None` when it is over.
    pub(super) fn next(&self) -> Option<u64> {
        match (self.phase, self.high) {
            (SearchPhase::Doubling(size), _) => Some(size),
            (SearchPhase::Bisecting, Some(high)) => Some(self.low + (high - self.low) / 2),
            (SearchPhase::Confirming(0), Some(high)) => Some(high),
            (SearchPhase::Confirming(_), _) => Some(self.served()).filter(|low| *low > 0),
            (SearchPhase::Bisecting | SearchPhase::Over, _) => None,
        }
    }

    /// Takes in what became of [`next`](Self::next).
    pub(super) fn learn(&mut self, fate: TryFate) {
        let Some(tried) = self.next() else { return };
        self.phase = match (self.phase, fate) {
            (_, TryFate::Open) | (SearchPhase::Over, _) => SearchPhase::Over,
            (SearchPhase::Doubling(_), TryFate::Served) if tried >= self.max => {
                self.low = tried;
                SearchPhase::Over
            }
            (SearchPhase::Doubling(_), TryFate::Served) => {
                self.low = tried;
                SearchPhase::Doubling((tried.saturating_mul(2)).min(self.max))
            }
            (SearchPhase::Doubling(_) | SearchPhase::Bisecting, TryFate::Refused) => {
                self.high = Some(tried);
                self.closing(tried)
            }
            (SearchPhase::Bisecting, TryFate::Served) => {
                self.low = tried;
                self.closing(self.high.unwrap_or(tried))
            }
            (SearchPhase::Confirming(0), _) => SearchPhase::Confirming(1),
            (SearchPhase::Confirming(_), _) => SearchPhase::Over,
        };
    }

    fn closing(&self, high: u64) -> SearchPhase {
        if high - self.low > 1 { SearchPhase::Bisecting } else { SearchPhase::Confirming(0) }
    }

    /// Sizes that are tried at most.
    pub(super) fn tries_max(max: u64) -> u64 {
        2 * u64::from(max.max(2).ilog2() + 1) + 3
    }

    /// Of these, those that are refused at most.
    pub(super) fn refusals_max(max: u64) -> u64 {
        u64::from(max.max(2).ilog2() + 1) + 3
    }

    /// Their sum at most, where a size is a number of calls.
    pub(super) fn calls_max(max: u64) -> u64 {
        // Doubling: below 2 x max. Bisecting: below max each time.
        2 * max + max * u64::from(max.max(2).ilog2() + 1) + 2 * max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sizes that are tried where more than `limit` is refused.
    fn play(first: u64, max: u64, limit: u64) -> Vec<u64> {
        let mut search = ExtentSearch::new(first, max);
        let mut tried = Vec::new();
        while let Some(size) = search.next() {
            tried.push(size);
            search.learn(if size <= limit { TryFate::Served } else { TryFate::Refused });
        }
        tried
    }

    #[test]
    fn it_doubles_bisects_and_confirms() {
        assert_eq!(play(1, 100, 5), [1, 2, 4, 8, 6, 5, 6, 5]);
        assert_eq!(play(1, 100, 0), [1, 1]);
        assert_eq!(play(1, 10, 10), [1, 2, 4, 8, 10]);
        assert_eq!(play(1, 10, 9), [1, 2, 4, 8, 10, 9, 10, 9]);
        assert_eq!(play(1, 1, 1), [1]);
        assert_eq!(play(3, 100, 5), [3, 6, 4, 5, 6, 5]);
        assert_eq!(play(3, 100, 3), [3, 6, 4, 4, 3]);
        assert_eq!(play(3, 2, 2), [2]);
    }

    #[test]
    fn nothing_smaller_than_the_first_is_tried() {
        assert_eq!(play(3, 100, 2), [3, 3]);
        let mut search = ExtentSearch::new(3, 100);
        assert_eq!((search.served(), search.is_least(3), search.is_least(4)), (0, true, false));
        search.learn(TryFate::Refused);
        assert_eq!((search.served(), search.next()), (0, Some(3)));
        search.learn(TryFate::Refused);
        assert_eq!((search.served(), search.next()), (0, None));
    }

    #[test]
    fn every_limit_is_found_within_the_bounds() {
        for max in [1, 2, 3, 100, 1_000] {
            for limit in 0..=max {
                let tried = play(1, max, limit);
                let served = tried.iter().filter(|size| **size <= limit).max();
                assert_eq!(served.copied().unwrap_or(0), limit, "of {max}");
                let refused = tried.iter().filter(|size| **size > limit).min();
                assert_eq!(refused.copied(), (limit < max).then_some(limit + 1));
                let refusals = tried.iter().filter(|size| **size > limit).count() as u64;
                assert!(refusals <= ExtentSearch::refusals_max(max), "{max}: {tried:?}");
                assert!(tried.len() as u64 <= ExtentSearch::tries_max(max), "{max}: {tried:?}");
                assert!(
                    tried.iter().sum::<u64>() <= ExtentSearch::calls_max(max),
                    "{max}: {tried:?}"
                );
            }
        }
    }

    #[test]
    fn cut_anywhere_it_tries_what_was_left() {
        for limit in [0, 5, 9, 10, 100] {
            let tried = play(1, 10, limit);
            let fate = |size: &u64| if *size <= limit { TryFate::Served } else { TryFate::Refused };
            let told: Vec<(u64, TryFate)> = tried.iter().map(|size| (*size, fate(size))).collect();
            for cut in 0..=tried.len() {
                let search = ExtentSearch::new(1, 10).after(&told[..cut]);
                assert_eq!(search.next(), tried.get(cut).copied(), "{limit}, {cut}");
            }
        }
    }

    #[test]
    fn what_has_grown_is_searched_further() {
        let served = |sizes: &[u64]| -> Vec<(u64, TryFate)> {
            sizes.iter().map(|size| (*size, TryFate::Served)).collect()
        };
        let widened = |mut search: ExtentSearch| {
            search.widen(12);
            (search.max(), search.next())
        };
        assert_eq!(widened(ExtentSearch::new(1, 10)), (12, Some(1)));
        assert_eq!(widened(ExtentSearch::new(1, 10).after(&served(&[1, 2, 4]))), (12, Some(8)));
        assert_eq!(widened(ExtentSearch::new(1, 10).after(&served(&[1, 2, 4, 8]))), (12, Some(12)));
        assert_eq!(widened(ExtentSearch::new(1, 10).after(&served(&[1, 2, 4, 8, 10]))), (10, None));
        let refused = [(1, TryFate::Served), (2, TryFate::Served), (4, TryFate::Refused)];
        assert_eq!(widened(ExtentSearch::new(1, 10).after(&refused)), (10, Some(3)));
    }

    #[test]
    fn what_fails_in_another_way_ends_it() {
        let mut search = ExtentSearch::new(1, 100);
        search.learn(TryFate::Served);
        search.learn(TryFate::Open);
        assert_eq!(search.next(), None);
    }
}
