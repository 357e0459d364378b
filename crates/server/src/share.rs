//! What one client address holds of what all of them share, and how much it may.
//!
//! An address may hold seven times what is free ("dynamic thresholds", as switches share
//! the memory of their ports). So one address alone gets seven eighths of a bound, two get
//! seven fifteenths each, and something is left for the next one whatever the others hold.
//! Nothing is reserved, nothing is searched for, and far from the bound nothing is refused.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An address may hold this many times what is free.
const FREE_TIMES: usize = 7;

/// What one address holds. Bound by [`fits`] where the settings have shares.
#[derive(Debug, Default)]
pub(crate) struct AddressShare {
    /// Requests that came while more than half of all places were taken.
    pub(crate) places: AtomicUsize,
    /// Bytes of request bodies.
    pub(crate) bodies_bytes: AtomicUsize,
    /// Answers that wait for their client, and their bytes.
    pub(crate) waiting: AtomicUsize,
    pub(crate) waiting_bytes: AtomicUsize,
    /// TLS handshakes under way.
    pub(crate) handshakes: AtomicUsize,
}

/// Whether an address may hold `held` of `most`, of which all addresses together hold `total`.
pub(crate) fn fits(held: usize, total: usize, most: usize) -> bool {
    total <= most && held <= FREE_TIMES.saturating_mul(most - total)
}

/// Takes one of `most` places, of which all addresses together hold `total`, for `share`.
/// Without a share all addresses count as one, which may have all.
pub(crate) fn take(total: &AtomicUsize, held: Option<&AtomicUsize>, most: usize) -> bool {
    let before = total.fetch_add(1, Relaxed);
    let held_before = held.map(|held| held.fetch_add(1, Relaxed));
    // As it was before: the last place may go to an address that holds nothing.
    let taken = before < most && held_before.is_none_or(|held| fits(held, before, most));
    if !taken {
        give(total, held);
    }
    taken
}

/// Gives one place back.
pub(crate) fn give(total: &AtomicUsize, held: Option<&AtomicUsize>) {
    total.fetch_sub(1, Relaxed);
    if let Some(held) = held {
        held.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many places `addresses` get of `most` when all of them want as many as they can get.
    fn check(most: usize, addresses: usize, each: usize, free: usize) {
        let total = AtomicUsize::new(0);
        let shares: Vec<_> = (0..addresses).map(|_| AtomicUsize::new(0)).collect();
        while shares.iter().filter(|share| take(&total, Some(share), most)).count() > 0 {}
        for share in &shares {
            assert!(share.load(Relaxed).abs_diff(each) <= 1, "{most}, {addresses}: {shares:?}");
        }
        let left = most - total.load(Relaxed);
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
        let total = AtomicUsize::new(0);
        assert_eq!((0..9).filter(|_| take(&total, None, 5)).count(), 5);
        assert_eq!(total.load(Relaxed), 5);
        give(&total, None);
        assert!(take(&total, None, 5));
    }

    #[test]
    fn what_is_not_taken_is_not_counted() {
        let (total, held) = (AtomicUsize::new(9), AtomicUsize::new(9));
        assert!(!take(&total, Some(&held), 10));
        assert_eq!((total.load(Relaxed), held.load(Relaxed)), (9, 9));
        assert!(take(&total, Some(&AtomicUsize::new(7)), 10));
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
