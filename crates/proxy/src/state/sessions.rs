//! The newest block that each client has seen: later answers are never older.
//!
//! The agreed head waits for a second upstream, while a receipt comes from the first. A client that
//! saw its transaction in block N and then requests its balance at `latest` must be answered at N
//! or above, even if N is not agreed yet. So the highest block that any answer to a client named is
//! stored, and later calls are answered there: by an upstream that holds it, and never above the
//! head of an upstream that is not astray.
//!
//! A client is a **key**, or an **address** whatever the port: libraries open several connections, and
//! calls on one have to be consistent with answers on another. All clients that use one key, or are
//! behind one address (a load balancer, one cluster), count as one; each then sees at least what any of
//! them has seen. The
//! table has a fixed size: addresses that share a slot count as one client, too; which ones do
//! differs from process to process.
//!
//! Data written by nodes counts: blocks, transactions and receipts, heights that calls named, and
//! the height that an upstream reported while nothing was agreed recently. A trace contains the
//! output of the client's own program. A block counts as seen as far as an upstream that is not
//! astray claims to hold it, and for two minutes: long before that it is agreed or gone. Logs and
//! filters do not count.
//!
//! Not guaranteed: that it is still that block. After a reorg no upstream holds it, or another
//! block has its number, as with any node.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_chain::View;
use wellhead_dispatch::{ClientId, now};
use wellhead_eth::{BlockNumber, BlockTag, MethodRow};
use wellhead_route::{PlanRequest, Roster};
use wellhead_upstream::UpstreamSet;

use crate::blocks::{highest, highest_fit};

/// 32 KiB a chain that is used.
const PLACES: usize = 4096;

/// What was shown is remembered for this long.
const LASTS: Duration = Duration::from_secs(120);
/// A place holds a number in its upper bits, and in this many lower ones the second in which it
/// was shown, counted from the start of the table.
const SECONDS_BITS: u32 = 24;
/// After this many seconds (194 days) the count begins anew.
const SECONDS: u64 = 1 << SECONDS_BITS;
/// Higher ones do not fit a place.
const NUMBER_MAX: u64 = (1 << (u64::BITS - SECONDS_BITS)) - 1;

/// Blocks that are asked for at once, as clients know them: those of honest clients are near each other.
const SEARCHES_MAX: usize = 4;
/// Searches begin at most so often, whatever blocks clients say.
const SEARCH_BEGINS_EVERY: Duration = Duration::from_millis(50);
/// A block that no upstream has is asked for so often.
const SEARCHED_EVERY: Duration = Duration::from_millis(200);

/// The highest block that was shown, by client.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Made when a client is first shown a block above the agreed one: most chains of a large
    /// roster get no calls.
    places: OnceLock<Box<[AtomicU64]>>,
    /// What another replica answers every client with, as a place.
    elsewhere: AtomicU64,
    searches: Mutex<BlockSearches>,
    hasher: RandomState,
    since: Instant,
}

impl Default for Sessions {
    fn default() -> Self {
        let (places, elsewhere) = (OnceLock::new(), AtomicU64::new(0));
        let searches = Mutex::default();
        Self { places, elsewhere, searches, hasher: RandomState::new(), since: now() }
    }
}

impl Sessions {
    /// `None` while no client has seen a block above the agreed one.
    fn place(&self, client: ClientId) -> Option<&AtomicU64> {
        Some(&self.places.get()?[self.index(client.number())])
    }

    fn index(&self, client: u64) -> usize {
        self.hasher.hash_one(client) as usize % PLACES
    }

    fn seconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.since).as_secs() % SECONDS
    }

    /// The number at a place, as far as it is remembered at the moment `at`. That may lie before
    /// the moment at which the number was shown: a call that came earlier looks later, when its
    /// answer is there. The count of seconds tells the two apart within 97 days.
    fn number(&self, packed: u64, at: Instant) -> u64 {
        let shown_at = packed % SECONDS;
        let age = self.seconds(at).wrapping_sub(shown_at) % SECONDS;
        let is_shown_later = age >= SECONDS / 2;
        if is_shown_later || age <= LASTS.as_secs() { packed >> SECONDS_BITS } else { 0 }
    }

    /// Notes that an answer to `client` names a block; returns it if the client is shown none above the agreed one
    /// that is as high. The clock is read only where that may be news.
    pub(crate) fn show(
        &self,
        client: ClientId,
        number: BlockNumber,
        view: &View,
        clock: impl FnOnce() -> Instant,
    ) -> Option<BlockNumber> {
        let number = highest(view).map_or(0, |highest| highest.min(number).0);
        let agreed = view.latest.map_or(0, |head| head.number.0);
        // Nearly always: what is agreed is no news.
        if number <= agreed || number > NUMBER_MAX {
            return None;
        }
        let is_news = self.raise(self.place_to_raise(client.number()), number, clock());
        is_news.then_some(BlockNumber(number))
    }

    fn place_to_raise(&self, client: u64) -> &AtomicU64 {
        let empty = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        &self.places.get_or_init(empty)[self.index(client)]
    }

    /// Raises what was shown at a place; whether it was less.
    fn raise(&self, place: &AtomicU64, number: u64, at: Instant) -> bool {
        let packed = number << SECONDS_BITS | self.seconds(at);
        let raised = |known: u64| (self.number(known, at) <= number).then_some(packed);
        let before = place.fetch_update(Relaxed, Relaxed, raised);
        before.is_ok_and(|before| self.number(before, at) < number)
    }

    /// Takes it on to ask for a block that is news; `None` while another request does, while enough others are
    /// asked for or just were, and just after no upstream had this block or a lower one.
    pub(crate) fn search_for(&self, number: u64, now: Instant) -> Option<BlockSearch<'_>> {
        let mut searches = self.searches.lock();
        let is_soon = searches
            .began
            .is_some_and(|began| now.saturating_duration_since(began) < SEARCH_BEGINS_EVERY);
        let is_missing = searches.missing.is_some_and(|(missing, at)| {
            missing <= number && now.saturating_duration_since(at) < SEARCHED_EVERY
        });
        if is_soon || is_missing || searches.under_way.len() >= SEARCHES_MAX {
            return None;
        }
        let is_first = searches.under_way.insert(number);
        if is_first {
            searches.began = Some(now);
        }
        is_first.then(|| BlockSearch { sessions: self, number })
    }

    /// Notes that another replica showed a client, by its hash, a block above the agreed one.
    pub(crate) fn note_shown_elsewhere(&self, client: u64, number: u64, at: Instant) {
        if number <= NUMBER_MAX {
            self.raise(self.place_to_raise(client), number, at);
        }
    }

    /// Notes that another replica answers all clients with this block.
    pub(crate) fn note_latest_elsewhere(&self, number: u64, at: Instant) {
        if number <= NUMBER_MAX {
            self.raise(&self.elsewhere, number, at);
        }
    }

    /// The highest block that `client` was shown, or that another replica shows all, if that is above `agreed`, as
    /// far as an upstream that is not astray claims to be.
    pub(crate) fn above(
        &self,
        client: ClientId,
        agreed: BlockNumber,
        view: &View,
        at: Instant,
    ) -> Option<BlockNumber> {
        let shown = self.place(client).map_or(0, |place| self.number(place.load(Relaxed), at));
        let floor = shown.max(self.number(self.elsewhere.load(Relaxed), at));
        if floor <= agreed.0 {
            return None;
        }
        let claimed = highest(view)?;
        Some(claimed.min(BlockNumber(floor))).filter(|number| *number > agreed)
    }

    /// The newest block for `client`, while the view is fresh.
    pub(crate) fn newest(&self, client: ClientId, view: &View, now: Instant) -> Option<Newest> {
        let agreed = view.number_of(BlockTag::Latest, now)?;
        Some(Newest { agreed, shown: self.above(client, agreed, view, now) })
    }
}

/// The blocks that requests ask upstreams for, as their clients know them; see [`crate::steps::catch_up`].
#[derive(Debug, Default)]
struct BlockSearches {
    under_way: BTreeSet<u64>,
    /// When the last one began.
    began: Option<Instant>,
    /// The block that no upstream had lately, and when.
    missing: Option<(u64, Instant)>,
}

/// A request that asks upstreams for a block. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct BlockSearch<'a> {
    sessions: &'a Sessions,
    number: u64,
}

impl BlockSearch<'_> {
    /// Notes that no upstream has the block.
    pub(crate) fn note_missing(&self, now: Instant) {
        self.sessions.searches.lock().missing = Some((self.number, now));
    }
}

impl Drop for BlockSearch<'_> {
    fn drop(&mut self) {
        self.sessions.searches.lock().under_way.remove(&self.number);
    }
}

/// The newest block for one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    agreed: BlockNumber,
    /// One above it that it was shown.
    shown: Option<BlockNumber>,
}

impl Newest {
    /// Whether it was shown one above the agreed block.
    pub(crate) fn is_shown(self) -> bool {
        self.shown.is_some()
    }

    /// What it was shown, or the agreed block.
    pub(crate) fn number(self) -> BlockNumber {
        self.shown.unwrap_or(self.agreed)
    }

    /// The newest block of the upstreams fit for a call of `row`: at least the agreed one, at most
    /// the one that the client was shown, and that one where none is fit: an upstream that takes the call all the same
    /// has come back, and may have the block.
    pub(crate) fn held(
        self,
        (row, eligible): (&MethodRow, UpstreamSet),
        view: &View,
        roster: &Roster,
        now: Instant,
    ) -> BlockNumber {
        let Some(shown) = self.shown else { return self.agreed };
        let ask = PlanRequest::of(row, eligible);
        let held = highest_fit(&ask, view, roster, now);
        held.map_or(shown, |held| held.min(shown).max(self.agreed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_chain::{Heads, Observation, Source};
    use wellhead_upstream::Slot;

    use super::*;

    fn client(last: u8) -> ClientId {
        std::net::IpAddr::from([10, 0, 0, last]).into()
    }

    fn stand(heads: &Heads, slot: u8, number: u64, at: Instant) {
        let seen = Observation::of_number(BlockNumber(number));
        heads.observe(Slot(slot), seen, Source::Word, at);
    }

    /// Two upstreams at block 100.
    fn two_at_100(at: Instant) -> Heads {
        let heads = Heads::new(2, Some(Duration::from_secs(12)), None);
        [0, 1].into_iter().for_each(|slot| stand(&heads, slot, 100, at));
        heads
    }

    #[test]
    fn a_client_has_its_own_floor() {
        let sessions = Sessions::default();
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = two_at_100(now);
        stand(&heads, 0, 101, now);
        let view = heads.view();
        let above = |client| sessions.above(client, BlockNumber(100), &view, now);
        let show = |client, number| {
            sessions.show(client, BlockNumber(number), &view, || now).map(|shown| shown.0)
        };
        assert_eq!(above(client(1)), None);
        assert_eq!([show(client(1), 101), show(client(1), 101)], [Some(101), None]);
        assert_eq!((above(client(1)), above(client(2))), (Some(BlockNumber(101)), None));
        // A block that no upstream has does not count, and an older answer does not lower it.
        show(client(1), 5000);
        show(client(1), u64::MAX);
        show(client(1), 7);
        assert_eq!(above(client(1)), Some(BlockNumber(101)));
        let after = |seconds| {
            let later = now + Duration::from_secs(seconds);
            sessions.above(client(1), BlockNumber(100), &view, later).is_some()
        };
        assert!(after(120) && !after(122));
    }

    /// Calls of one client are answered in any order: one that came in an earlier second neither
    /// overwrites what a later one was shown, nor overlooks it.
    #[test]
    fn a_call_that_came_earlier_lowers_nothing() {
        let sessions = Sessions::default();
        let began = sessions.since;
        let heads = two_at_100(began);
        stand(&heads, 0, 102, began);
        let view = heads.view();
        let at = |millis| began + Duration::from_millis(millis);
        let show = |number, millis| {
            sessions.show(client(1), BlockNumber(number), &view, || at(millis));
        };
        let above = |millis| {
            let shown = sessions.above(client(1), BlockNumber(100), &view, at(millis));
            shown.map(|number| number.0)
        };
        show(102, 10_005);
        show(101, 9_990);
        assert_eq!([above(9_990), above(10_010), above(130_000)], [Some(102); 3]);
        assert_eq!(above(131_000), None, "two minutes are over");
        show(101, 132_000);
        assert_eq!(above(132_000), Some(101), "what is forgotten outranks nothing");
    }

    #[test]
    fn what_another_replica_shows_counts_as_far_as_an_upstream_holds_it() {
        let sessions = Sessions::default();
        let began = sessions.since;
        let heads = two_at_100(began);
        let above = |last, seconds| {
            let at = began + Duration::from_secs(seconds);
            let agreed = heads.look(|view| view.latest.expect("told").number);
            let shown = heads.look(|view| sessions.above(client(last), agreed, view, at));
            shown.map(|number| number.0)
        };
        sessions.note_latest_elsewhere(101, began);
        assert_eq!(above(1, 0), None, "no upstream holds it");
        stand(&heads, 0, 102, began);
        assert_eq!([above(1, 0), above(2, 0)], [Some(101); 2]);
        sessions.note_latest_elsewhere(100, began);
        sessions.note_shown_elsewhere(client(2).number(), 103, began);
        assert_eq!([above(1, 0), above(2, 0)], [Some(101), Some(102)]);
        sessions.note_latest_elsewhere(u64::MAX, began);
        sessions.note_shown_elsewhere(client(2).number(), u64::MAX, began);
        assert_eq!([above(1, 0), above(2, 0)], [Some(101), Some(102)]);
        assert_eq!([above(1, 130), above(2, 130)], [None; 2], "two minutes are over");
    }

    #[test]
    fn addresses_are_spread() {
        let sessions = Sessions::default();
        let places = (0..=255_u8).map(|last| sessions.index(client(last).number()));
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 200, "{}", places.len());
    }
}
