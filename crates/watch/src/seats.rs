//! Which upstreams of one chain may have a feed open: of its heads at most two, one and a hot standby,
//! however many clients and upstreams there are.
//!
//! Two are enough for two upstreams to agree on a block within a round trip; each further one
//! would push every block once more, on the bill or not. An upstream whose feed is worth its price
//! bids for a seat; the others poll. The bids are ordered anew with each change, so a feed that
//! ends is replaced at once, and a cheaper one that comes back takes its seat from a dearer one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_upstream::{Slot, Tier, UpstreamSet};

/// Feeds of one chain at most. Feeds that the settings want at any price have a seat in any case
/// and take these first.
pub(crate) const FEEDS_MAX: usize = 2;
/// An upstream whose feed ended by itself, or that is down, ranks behind the others for this long, so that one
/// that always fails does not close a good one again and again.
const DEMOTED_FOR: Duration = Duration::from_secs(600);

/// Of feeds that only tell more together, at most this many, which are free of charge.
const FREE_FEEDS_MAX: usize = 4;

/// How many upstreams have a seat, and so tell a subscription.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SeatRule {
    /// Two, by tier and price.
    #[default]
    TwoCheapest,
    /// The first of these.
    Cheapest,
    /// All that are free of charge, at most four, also while they fail: each tells something that the others do
    /// not. And the cheapest of the others where no free one is well.
    AllFree,
}

/// The wish of one upstream to have a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeedBid {
    /// The settings want it at any price.
    pub(crate) is_forced: bool,
    pub(crate) tier: Tier,
    /// What a pushed block of mainnet costs there, in thousandths of a poll: credits of two
    /// providers are not worth the same. Not what the last block did cost, by which two upstreams
    /// could change places with each block.
    pub(crate) price: u64,
}

/// The seats of one chain.
#[derive(Debug, Default)]
pub(crate) struct FeedSeats {
    rule: SeatRule,
    bidders: Mutex<BTreeMap<u8, Bidder>>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bidder {
    bid: Option<FeedBid>,
    demoted_until: Option<Instant>,
}

impl FeedSeats {
    /// Without bids yet.
    pub(crate) fn new(rule: SeatRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Replaces the bid of an upstream; `None` withdraws it.
    pub(crate) fn bid(&self, slot: Slot, bid: Option<FeedBid>) {
        let mut bidders = self.bidders.lock();
        let bidder = bidders.entry(slot.0).or_default();
        if bidder.bid != bid {
            bidder.bid = bid;
            self.changed.notify_waiters();
        }
    }

    /// Withdraws the bid of an upstream whose feed ended by itself.
    pub(crate) fn note_failure(&self, slot: Slot, now: Instant) {
        let mut bidders = self.bidders.lock();
        let demoted_until = Some(now + DEMOTED_FOR);
        bidders.insert(slot.0, Bidder { bid: None, demoted_until });
        self.changed.notify_waiters();
    }

    /// Notes that an upstream is down: its word does not count, so another one has its seat if there is one.
    pub(crate) fn note_down(&self, slot: Slot, now: Instant) {
        let mut bidders = self.bidders.lock();
        let bidder = bidders.entry(slot.0).or_default();
        let was_demoted = bidder.demoted_until.is_some_and(|until| now < until);
        bidder.demoted_until = Some(now + DEMOTED_FOR);
        if !was_demoted {
            self.changed.notify_waiters();
        }
    }

    /// Notes that a feed is open. Where each tells more, it ranks as before its failure; where one replaces
    /// another, one that always fails a moment later must not.
    pub(crate) fn note_open(&self, slot: Slot) {
        if self.rule == SeatRule::AllFree
            && let Some(bidder) = self.bidders.lock().get_mut(&slot.0)
            && bidder.demoted_until.take().is_some()
        {
            self.changed.notify_waiters();
        }
    }

    /// The upstreams that may have their feeds open now.
    pub(crate) fn seated(&self, now: Instant) -> UpstreamSet {
        let mut seats = UpstreamSet::NONE;
        seated(&self.bidders.lock(), self.rule, now).for_each(|slot| seats.insert(Slot(slot)));
        seats
    }

    /// Whether this one may.
    pub(crate) fn is_seated(&self, slot: Slot, now: Instant) -> bool {
        self.seated(now).contains(slot)
    }

    /// Resolves when a bid changes after this call, polled or not.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }
}

/// The slots that have a seat.
fn seated(
    bidders: &BTreeMap<u8, Bidder>,
    rule: SeatRule,
    now: Instant,
) -> impl Iterator<Item = u8> {
    let mut bids: Vec<_> = bidders
        .iter()
        .filter_map(|(slot, bidder)| {
            let is_demoted = bidder.demoted_until.is_some_and(|until| now < until);
            let FeedBid { is_forced, tier, price } = bidder.bid?;
            Some((!is_forced, is_demoted, tier, price, *slot))
        })
        .collect();
    bids.sort_unstable();
    match rule {
        SeatRule::TwoCheapest => {
            let forced = bids.iter().filter(|(is_by_price, ..)| !is_by_price).count();
            bids.truncate(FEEDS_MAX.max(forced));
        }
        SeatRule::Cheapest => bids.truncate(1),
        SeatRule::AllFree => {
            let is_free = |(_, _, _, price, _): &(_, _, _, u64, _)| *price == 0;
            let is_well = |(_, is_demoted, ..): &(_, bool, _, _, _)| !is_demoted;
            let needs_paid = !bids.iter().any(|bid| is_free(bid) && is_well(bid));
            let (mut free, paid) = (0, bids.iter().find(|bid| !is_free(bid)).copied());
            bids.retain(|bid| {
                free += usize::from(is_free(bid));
                (is_free(bid) && free <= FREE_FEEDS_MAX) || (needs_paid && Some(*bid) == paid)
            });
        }
    }
    bids.into_iter().map(|(.., slot)| slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bids such as `p20 f0 p0! p5-`: the first letter of the tier, the price, `!` where it is
    /// forced, and `-` where it failed a minute ago.
    fn check(bids: &str, expected: &[u8]) {
        check_rule(SeatRule::TwoCheapest, bids, expected);
    }

    fn check_rule(rule: SeatRule, bids: &str, expected: &[u8]) {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary moment")]
        let now = Instant::now();
        let seats = FeedSeats::new(rule);
        for (slot, bid) in (0..).map(Slot).zip(bids.split_whitespace()) {
            let tier = if bid.starts_with('p') { Tier::Primary } else { Tier::Fallback };
            let price = bid.trim_matches(|letter: char| !letter.is_ascii_digit());
            if bid.ends_with('-') {
                seats.note_failure(slot, now);
            }
            let price = price.parse().expect("a price");
            seats.bid(slot, Some(FeedBid { is_forced: bid.ends_with('!'), tier, price }));
        }
        let later = now + Duration::from_secs(60);
        let seated =
            |at| (0..8).filter(|slot| seats.is_seated(Slot(*slot), at)).collect::<Vec<_>>();
        assert_eq!(seated(later), expected, "{bids}");
        let much_later = later + DEMOTED_FOR;
        if rule == SeatRule::TwoCheapest {
            assert_eq!(seated(much_later).len(), expected.len(), "{bids}");
        }
        seats.bid(Slot(0), None);
        assert!(!seats.is_seated(Slot(0), much_later));
    }

    #[test]
    fn the_two_cheapest_of_the_best_tier_have_a_seat() {
        check("p50", &[0]);
        check("p50 p20", &[0, 1]);
        check("p50 p20 p20 p0 p20 p20", &[1, 3]);
        check("p0 p0 p0 p0 p0 p0", &[0, 1]);
        check("f0 p20 p20", &[1, 2]);
        check("f0 f5 p20", &[0, 2]);
    }

    #[test]
    fn what_failed_lately_comes_after_what_did_not() {
        check("p0- p20 p50", &[1, 2]);
        check("p0- p20 f50", &[1, 2]);
        check("p0- p20- p50-", &[0, 1]);
    }

    #[test]
    fn what_is_down_keeps_its_seat_only_where_no_other_bids() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary moment")]
        let now = Instant::now();
        let seats = FeedSeats::default();
        let bid = FeedBid { is_forced: false, tier: Tier::Primary, price: 0 };
        let seated =
            |at| (0..3).filter(|slot| seats.is_seated(Slot(*slot), at)).collect::<Vec<_>>();
        seats.bid(Slot(0), Some(bid));
        seats.note_down(Slot(0), now);
        seats.bid(Slot(1), Some(bid));
        assert_eq!(seated(now), [0, 1]);
        seats.bid(Slot(2), Some(FeedBid { tier: Tier::Fallback, ..bid }));
        assert_eq!(seated(now), [1, 2]);
        let later = now + DEMOTED_FOR / 2;
        seats.note_down(Slot(0), later);
        assert_eq!(seated(now + DEMOTED_FOR), [1, 2], "it was down again");
        assert_eq!(seated(later + DEMOTED_FOR), [0, 1]);
    }

    #[test]
    fn forced_feeds_have_a_seat_in_any_case_and_take_the_others_away() {
        check("p0 p0 p50!", &[0, 2]);
        check("p0 p50! p50!", &[1, 2]);
        check("p0 p50! f50! p9!", &[1, 2, 3]);
    }

    #[test]
    fn where_each_tells_more_all_that_are_free_have_a_seat() {
        check_rule(SeatRule::AllFree, "p0 p5 f0 p0", &[0, 2, 3]);
        check_rule(SeatRule::AllFree, "f9 p5 p3", &[2]);
        check_rule(SeatRule::AllFree, "p0- p5", &[0, 1]);
        check_rule(SeatRule::AllFree, "p0- p5 f0", &[0, 2]);
        check_rule(SeatRule::AllFree, "p0- f0-", &[0, 1]);
        check_rule(SeatRule::AllFree, "p0 p0 p0 f0 p0 f0", &[0, 1, 2, 4]);
        check_rule(SeatRule::Cheapest, "f0 p5 p3", &[2]);
    }
}
