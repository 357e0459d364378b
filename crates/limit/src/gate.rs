//! How many at once: a count that is not raised above a bound.

use std::sync::atomic::{AtomicU32, Ordering};

/// A count of those who are in.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
}

impl Gate {
    /// Goes in unless `max` are in already. Says whether it did.
    pub fn enter(&self, max: u32) -> bool {
        // Added first: two who come together never both pass the last place.
        if self.inside.fetch_add(1, Ordering::Relaxed) < max {
            return true;
        }
        self.leave();
        false
    }

    /// Goes in whoever is in.
    pub fn enter_anyway(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    /// Goes out; to be called once for each who went in.
    pub fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many are in.
    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
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
}
