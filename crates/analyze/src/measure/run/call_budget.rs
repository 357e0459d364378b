//! How many calls a run may send, and how many more where cells are played again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bound on calls. Not one more is sent, by whichever experiment.
#[derive(Debug)]
pub struct CallBudget {
    /// With those of `spare` that were moved to `left`.
    max: AtomicU64,
    left: AtomicU64,
    spare: AtomicU64,
}

impl CallBudget {
    /// This many calls.
    pub fn new(max: u64) -> Self {
        Self { max: AtomicU64::new(max), left: AtomicU64::new(max), spare: AtomicU64::new(0) }
    }

    /// With this many more, for cells that are played again because their times were doubted.
    #[must_use]
    pub fn with_spare(self, calls: u64) -> Self {
        self.spare.store(calls, Relaxed);
        self
    }

    /// Makes this many of the spare calls usable; `false`, and none, where fewer are left.
    pub(super) fn take_spare(&self, calls: u64) -> bool {
        let taken = self.spare.fetch_update(Relaxed, Relaxed, |spare| spare.checked_sub(calls));
        if taken.is_ok() {
            self.max.fetch_add(calls, Relaxed);
            self.left.fetch_add(calls, Relaxed);
        }
        taken.is_ok()
    }

    /// Takes one; `false` when none is left.
    pub fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes this many at once, or none of them.
    pub(crate) fn take_all(&self, calls: u64) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(calls)).is_ok()
    }

    /// With this many that were made before.
    #[must_use]
    pub fn after(self, spent: u64) -> Self {
        self.left.store(self.max.load(Relaxed).saturating_sub(spent), Relaxed);
        self
    }

    /// Lets this many be made from now on, whatever is left. Only while nothing is sent.
    pub fn allow(&self, calls: u64) {
        let spent = self.spent();
        self.left.store(calls, Relaxed);
        self.max.store(spent.saturating_add(calls), Relaxed);
    }

    /// Calls that were made.
    pub fn spent(&self) -> u64 {
        self.max.load(Relaxed) - self.left.load(Relaxed)
    }

    /// Calls that may still be made.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_no_more_than_it_has() {
        let budget = CallBudget::new(2);
        assert!(budget.take() && budget.take() && !budget.take() && !budget.take());
        assert_eq!((budget.spent(), budget.is_over()), (2, true));
        budget.allow(3);
        assert!(budget.take() && !budget.take_all(3) && budget.take_all(2) && !budget.take());
        assert_eq!((budget.spent(), budget.is_over()), (5, true));
    }

    #[test]
    fn spare_calls_are_for_what_is_played_again() {
        let budget = CallBudget::new(2).with_spare(10);
        assert!(budget.take_all(2) && !budget.take());
        assert!(!budget.take_spare(11) && budget.take_spare(6) && !budget.take_spare(6));
        assert_eq!((budget.spent(), budget.left()), (2, 6));
        assert!(budget.take_all(6) && budget.is_over());
        assert_eq!(budget.spent(), 8);
    }
}
