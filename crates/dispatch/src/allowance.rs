//! How many upstream calls a client's request may cost, over all that is done for it: attempts,
//! retries, hedges, parts of searches that are refused, second opinions. A batch is one request.
//!
//! Where nothing is left of it a call ends with what it has, or with an error that says so. A
//! search in parts has an allowance of its own within that of its request, and keeps of it what the
//! parts that it is sure to ask for need, so that no retry or hedge takes that from them.
//!
//! One task at a time spends, so a look and then an addition are one step.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The upstream calls that a request, or a search in it, may still make.
#[derive(Debug)]
pub struct Allowance {
    max: u32,
    spent: AtomicU32,
    /// In place of `spent`, once a search that may outlive the request counts as well.
    shared: OnceLock<Arc<AtomicU32>>,
    /// Whose part this is; aside, as few requests have parts.
    whole: Option<Box<Whole>>,
}

#[derive(Debug)]
struct Whole {
    spent: Arc<AtomicU32>,
    max: u32,
    /// Needed by calls of the part that are sure to come.
    kept: AtomicU32,
}

impl Allowance {
    /// At most `max` calls.
    pub fn new(max: u32) -> Self {
        Self { max, spent: AtomicU32::new(0), shared: OnceLock::new(), whole: None }
    }

    /// At most `max` of these, of which `spent` are spent and counted already.
    pub fn part(&self, max: u32, spent: u32) -> Self {
        let before = || Arc::new(AtomicU32::new(self.spent.load(Relaxed)));
        let of_whole = Arc::clone(self.shared.get_or_init(before));
        let whole = Whole { spent: of_whole, max: self.max, kept: AtomicU32::new(0) };
        Self { spent: AtomicU32::new(spent), whole: Some(Box::new(whole)), ..Self::new(max) }
    }

    /// The most that it may ever cost.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Calls that may still be made.
    pub fn left(&self) -> u32 {
        let own = self.max.saturating_sub(self.counter().load(Relaxed));
        own.min(self.left_of_whole())
    }

    /// What is left of the request that this is a part of.
    pub(crate) fn left_of_whole(&self) -> u32 {
        let whole = self.whole.as_ref();
        whole.map_or(u32::MAX, |whole| whole.max.saturating_sub(whole.spent.load(Relaxed)))
    }

    /// Whether its request has less left than it would have itself.
    pub fn is_bound_by_whole(&self) -> bool {
        self.left_of_whole() < self.max.saturating_sub(self.counter().load(Relaxed))
    }

    /// The most that the request may cost that this is a part of.
    pub(crate) fn max_of_whole(&self) -> u32 {
        self.whole.as_ref().map_or(self.max, |whole| whole.max)
    }

    /// Calls that may still be made beside those that are sure to come.
    pub fn to_spare(&self) -> u32 {
        let kept = self.whole.as_ref().map_or(0, |whole| whole.kept.load(Relaxed));
        self.left().saturating_sub(kept)
    }

    /// So many calls of this part are sure to come.
    pub fn keep(&self, calls: u32) {
        if let Some(whole) = &self.whole {
            whole.kept.store(calls, Relaxed);
        }
    }

    /// Takes as many of `calls` as are left, and says how many those are.
    pub fn take(&self, calls: u32) -> u32 {
        let taken = calls.min(self.left());
        self.counter().fetch_add(taken, Relaxed);
        if let Some(whole) = &self.whole {
            whole.spent.fetch_add(taken, Relaxed);
        }
        taken
    }

    /// Gives back what was taken for calls that were not made.
    pub fn give_back(&self, calls: u32) {
        let spent = self.counter().fetch_sub(calls, Relaxed);
        debug_assert!(spent >= calls, "{calls} calls were taken, of {spent}");
        if let Some(whole) = &self.whole {
            let spent = whole.spent.fetch_sub(calls, Relaxed);
            debug_assert!(spent >= calls, "{calls} calls were taken of the whole, of {spent}");
        }
    }

    fn counter(&self) -> &AtomicU32 {
        self.shared.get().map_or(&self.spent, |shared| shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone() {
        let allowance = Allowance::new(5);
        assert_eq!((allowance.take(3), allowance.left()), (3, 2));
        assert_eq!((allowance.take(3), allowance.left()), (2, 0));
        assert_eq!(allowance.take(1), 0);
        allowance.give_back(1);
        assert_eq!(allowance.take(9), 1);
    }

    #[test]
    fn parts_spend_from_the_whole() {
        let whole = Allowance::new(10);
        whole.take(3);
        let (one, other) = (whole.part(5, 1), whole.part(5, 0));
        assert_eq!((one.left(), other.left()), (4, 5));
        assert_eq!((one.take(9), whole.left()), (4, 3));
        assert_eq!((one.left(), other.left()), (0, 3));
        assert_eq!((other.take(9), whole.left()), (3, 0));
        other.give_back(2);
        assert_eq!((whole.left(), one.left(), other.left()), (2, 0, 2));
        assert_eq!((other.left_of_whole(), other.max_of_whole()), (2, 10));
    }

    #[test]
    fn what_is_kept_is_not_to_spare() {
        let allowance = Allowance::new(9).part(5, 0);
        allowance.keep(4);
        assert_eq!((allowance.to_spare(), allowance.left()), (1, 5));
        allowance.take(2);
        assert_eq!((allowance.to_spare(), allowance.left()), (0, 3));
    }
}
