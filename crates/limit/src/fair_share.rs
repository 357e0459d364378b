//! How much of a common bound one client holds, and how much it may.
//!
//! A client may hold seven times what is free ("dynamic thresholds", as switches share
//! the memory of their ports). So one client alone gets seven eighths of a bound, two get
//! seven fifteenths each, and something is left for the next one whatever the others hold.
//! Nothing is reserved, nothing is searched for, and far from the bound nothing is refused.

use crate::held::Held;

/// A client may hold this many times what is free.
const FREE_TIMES: usize = 7;

/// Whether a client may hold `own` of `max`, of which all clients together hold `total`.
pub fn fits(own: usize, total: usize, max: usize) -> bool {
    total <= max && own <= FREE_TIMES.saturating_mul(max - total)
}

/// What all clients hold of something, and what one of them does.
#[derive(Debug, Clone, Copy)]
pub struct FairShare<'a> {
    /// What all of them hold.
    pub total: &'a Held,
    /// What this client holds. `None`: clients are not told apart, and one may have all.
    pub own: Option<&'a Held>,
}

impl FairShare<'_> {
    /// Takes one of `max`, if the client may hold it.
    pub fn try_take(self, max: usize) -> bool {
        let (total, own) = self.raise(1);
        // As it was before: the last place may go to a client that holds nothing.
        let taken = total <= max && (self.own.is_none() || fits(own - 1, total - 1, max));
        if !taken {
            self.lower(1);
        }
        taken
    }

    /// Adds what the client holds in any case. Returns what all hold now, and what the client
    /// does: all, where clients are not told apart.
    pub fn raise(self, more: usize) -> (usize, usize) {
        let total = self.total.raise(more);
        (total, self.own.map_or(total, |own| own.raise(more)))
    }

    /// Takes off what the client held.
    pub fn lower(self, less: usize) {
        self.total.lower(less);
        if let Some(own) = self.own {
            own.lower(less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many places `addresses` get of `most` when all of them want as many as they can get.
    fn check(most: usize, addresses: usize, each: usize, free: usize) {
        let total = Held::default();
        let shares: Vec<_> = (0..addresses).map(|_| Held::default()).collect();
        let share = |own| FairShare { total: &total, own: Some(own) };
        while shares.iter().filter(|own| share(own).try_take(most)).count() > 0 {}
        for own in &shares {
            assert!(own.get().abs_diff(each) <= 1, "{most}, {addresses}: {shares:?}");
        }
        let left = most - total.get();
        assert!(left.abs_diff(free) <= addresses.min(10), "{most}, {addresses}: {left}");
    }

    #[test]
    fn addresses_share_and_leave_something() {
        check(1, 1, 1, 0);
        check(2, 1, 2, 0);
        check(16_384, 1, 14_336, 2048);
        check(16_384, 2, 7645, 1092);
        check(16_384, 10, 1615, 230);
        check(16_384, 1000, 16, 2);
    }

    #[test]
    fn without_shares_one_may_have_all() {
        let total = Held::default();
        let share = FairShare { total: &total, own: None };
        assert_eq!((0..9).filter(|_| share.try_take(5)).count(), 5);
        assert_eq!(total.get(), 5);
        share.lower(1);
        assert!(share.try_take(5));
    }

    #[test]
    fn what_is_not_taken_is_not_counted() {
        let [total, own, other] = [9, 9, 7].map(|held| {
            let sum = Held::default();
            sum.raise(held);
            sum
        });
        assert!(!FairShare { total: &total, own: Some(&own) }.try_take(10));
        assert_eq!((total.get(), own.get()), (9, 9));
        assert!(FairShare { total: &total, own: Some(&other) }.try_take(10));
    }

    #[test]
    fn nothing_fits_beyond_the_bound() {
        assert!(fits(0, 10, 10));
        assert!(!fits(0, 11, 10));
        assert!(!fits(1, 10, 10));
        assert!(fits(7, 9, 10));
        assert!(!fits(8, 9, 10));
    }
}
