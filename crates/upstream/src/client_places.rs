//! How many calls at once each client has at one upstream.
//!
//! While more than one client calls, a client may have at most three quarters of the places: whatever it
//! sends, a quarter (and at least one, of two or more) is left to the others, so that a light call of
//! another client need not wait until a heavy one ends. A client that calls alone may have all.
//!
//! Clients are counted in cells by their hash; two in one cell share its bound. Nothing here locks:
//! a call costs a few relaxed operations.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::stamp::{Stamp, StampCell};

/// Cells for the counts: 1 KiB an upstream. Of ten busy clients two share one with a chance of one in six.
const CELLS: usize = 256;
/// One in this many of the places is left to other clients.
const OTHERS_SHARE: u32 = 4;
/// Clients whose last calls are no longer ago than this count as calling together.
const TOGETHER: Duration = Duration::from_secs(10);

/// A client of an upstream, by its hash. Different clients may share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientHash(pub u64);

#[derive(Debug, Default)]
pub(crate) struct ClientPlaces {
    /// Room is taken with the first call of a client.
    cells: OnceLock<Box<[AtomicU32; CELLS]>>,
    /// Of the last call.
    last: AtomicU64,
    /// Until when clients count as calling together.
    together_until: StampCell,
}

impl ClientPlaces {
    /// Takes one of `limit` places for `client`, unless it has its share of them.
    pub(crate) fn enter(&self, client: ClientHash, limit: u32, now: Duration) -> bool {
        let now = Stamp::at(now);
        self.note(client, now);
        let own = self.cell(client).fetch_add(1, Relaxed);
        if own < share(limit) || self.together_until.get() <= Some(now) {
            return true;
        }
        self.leave(client);
        false
    }

    /// Gives the place back; to be called once for each that was taken.
    pub(crate) fn leave(&self, client: ClientHash) {
        let before = self.cell(client).fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "each leaves once, after it entered");
    }

    fn note(&self, client: ClientHash, now: Stamp) {
        let last = self.last.load(Relaxed);
        if last == client.0 {
            return;
        }
        self.last.store(client.0, Relaxed);
        // The first client is alone.
        if last != 0 {
            self.together_until.advance(now.after(TOGETHER));
        }
    }

    fn cell(&self, client: ClientHash) -> &AtomicU32 {
        // An odd factor spreads neighbours over the high bits (Fibonacci hashing).
        let spread = client.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cells = self.cells.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU32::new(0))));
        &cells[(spread >> (u64::BITS - CELLS.ilog2())) as usize]
    }
}

/// Of `limit` places, those that one of several clients may have.
fn share(limit: u32) -> u32 {
    match limit {
        0 | 1 => limit,
        _ => limit - (limit / OTHERS_SHARE).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientHash = ClientHash(7);
    const OTHER: ClientHash = ClientHash(8);

    fn entered(places: &ClientPlaces, client: ClientHash, limit: u32, at_s: u64) -> usize {
        (0..100).filter(|_| places.enter(client, limit, Duration::from_secs(at_s))).count()
    }

    #[test]
    fn a_client_that_calls_alone_may_have_all() {
        assert_eq!(entered(&ClientPlaces::default(), ONE, 4, 1), 100, "the gate bounds it");
    }

    #[test]
    fn one_of_several_leaves_a_quarter_to_the_others() {
        for (limit, most) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (32, 24)] {
            let places = ClientPlaces::default();
            assert!(places.enter(OTHER, limit, Duration::from_secs(1)));
            assert_eq!(entered(&places, ONE, limit, 1), most, "{limit}");
            places.leave(ONE);
            assert_eq!(entered(&places, ONE, limit, 9), 1, "{limit}");
        }
    }

    #[test]
    fn a_client_that_stopped_calling_has_nothing_kept_for_it() {
        let places = ClientPlaces::default();
        assert!(places.enter(OTHER, 4, Duration::from_secs(1)));
        assert_eq!(entered(&places, ONE, 4, 2), 3);
        assert_eq!(entered(&places, ONE, 4, 11), 0);
        assert_eq!(entered(&places, ONE, 4, 12), 100);
    }
}
