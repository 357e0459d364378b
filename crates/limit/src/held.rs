//! What is held at once: a sum of things or of bytes that is not raised above a bound.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A sum of what is held. The bound is given with each addition: it may be a setting, or
/// there may be none.
#[derive(Debug, Default)]
pub struct Held(AtomicUsize);

impl Held {
    /// Adds `more` unless the sum would pass `max`. Returns the new sum, or `None` when
    /// nothing was added.
    #[must_use]
    pub fn try_raise(&self, more: usize, max: usize) -> Option<usize> {
        let fits = |held: usize| held.checked_add(more).filter(|sum| *sum <= max);
        self.0.fetch_update(Relaxed, Relaxed, fits).ok().map(|before| before + more)
    }

    /// Adds `more` also beyond any bound. Returns the new sum.
    pub fn raise(&self, more: usize) -> usize {
        self.0.fetch_add(more, Relaxed).saturating_add(more)
    }

    /// Takes off what was added before.
    pub fn lower(&self, less: usize) {
        let before = self.0.fetch_sub(less, Relaxed);
        debug_assert!(before >= less, "{less} of {before} are given back");
    }

    /// The sum.
    pub fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_added() {
        let held = Held::default();
        assert_eq!((held.try_raise(60, 100), held.try_raise(41, 100)), (Some(60), None));
        assert_eq!(held.try_raise(usize::MAX, usize::MAX), None, "no overflow");
        assert_eq!((held.try_raise(40, 100), held.try_raise(0, 100)), (Some(100), Some(100)));
        assert_eq!((held.raise(7), held.try_raise(0, 100)), (107, None));
        held.lower(107);
        assert_eq!(held.get(), 0);
    }
}
