//! How many at once: a count that is not raised above a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A count of holders. The bound is given with each call, because it may be learnt.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
}

impl Gate {
    /// Goes in unless `max` are in already. Says whether it did.
    pub fn enter(&self, max: u32) -> bool {
        // Added first: of two concurrent callers at most one gets the last place.
        if self.inside.fetch_add(1, Ordering::Relaxed) < max {
            return true;
        }
        self.leave();
        false
    }

    /// Enters regardless of the bound.
    pub fn enter_anyway(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves; to be called once for each entry.
    pub fn leave(&self) {
        let inside = self.inside.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(inside > 0, "each leaves once, after it entered");
    }

    /// How many are in.
    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
    }
}

/// A gate with a fixed bound, which hands out permits that leave by themselves.
#[derive(Debug)]
pub struct Permits {
    gate: Gate,
    max: u32,
}

impl Permits {
    /// At most `max` at once.
    pub fn new(max: usize) -> Self {
        Self { gate: Gate::default(), max: u32::try_from(max).unwrap_or(u32::MAX) }
    }

    /// A permit, until it is dropped; `None` when all are taken.
    pub fn try_acquire(&self) -> Option<Permit<&Self>> {
        Permit::of(self)
    }

    /// As [`Self::try_acquire`], for a holder that outlives the borrow.
    pub fn try_acquire_owned(self: &Arc<Self>) -> Option<Permit<Arc<Self>>> {
        Permit::of(Arc::clone(self))
    }
}

impl AsRef<Self> for Permits {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// One of the permits of `P`, given back when dropped.
#[derive(Debug)]
pub struct Permit<P: AsRef<Permits>>(P);

impl<P: AsRef<Permits>> Permit<P> {
    fn of(permits: P) -> Option<Self> {
        let Permits { gate, max } = permits.as_ref();
        // Not `then_some`: a permit that is made is given back.
        gate.enter(*max).then(|| Self(permits))
    }
}

impl<P: AsRef<Permits>> Drop for Permit<P> {
    fn drop(&mut self) {
        self.0.as_ref().gate.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_go_in() {
        let gate = Gate::default();
        assert_eq!([gate.enter(2), gate.enter(2), gate.enter(2)], [true, true, false]);
        gate.enter_anyway();
        assert_eq!((gate.inside(), gate.enter(3)), (3, false));
        gate.leave();
        gate.leave();
        assert_eq!((gate.enter(2), gate.inside()), (true, 2));
    }

    #[test]
    fn a_permit_is_given_back_once() {
        let permits = Arc::new(Permits::new(2));
        let first = permits.try_acquire().expect("one of two");
        let second = permits.try_acquire_owned().expect("two of two");
        assert!(permits.try_acquire().is_none() && permits.try_acquire_owned().is_none());
        drop(first);
        assert_eq!(permits.gate.inside(), 1);
        drop((permits.try_acquire(), second));
        assert_eq!(permits.gate.inside(), 0);
    }
}
