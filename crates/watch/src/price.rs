//! Whether new blocks are heard over a feed or polled: whatever costs less, and the feed where
//! both cost the same, since it tells sooner. A feed needs one of the chain's seats, too
//! (see `seats`).

use std::time::{Duration, Instant};

use std::sync::atomic::Ordering;
use wellhead_eth::MethodTable;
use wellhead_upstream::{Condition, PushPrice};

use crate::ask::now;
use crate::checks::FeedUse;
use crate::seats::FeedBid;
use crate::watcher::Watcher;

/// What `newHeads` of mainnet pushes for one block, before the first message tells.
const PUSH_BYTES: usize = 1_816;
/// Polls come this much slower than blocks, and are not cheaper for that: what is compared is a
/// pushed block with a polled one. The rest is room for a block time that is measured.
const SLIDE: f64 = 1.2;
/// A loop without a feed looks up this often whether one is worth it, and one with a feed whether
/// it still is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A feed that nothing needs is closed after this long: to open it again costs calls.
const LINGER: Duration = Duration::from_secs(30);

/// Whether a block costs no more pushed than polled. While the block time is not known it is
/// taken to be as long as polls are apart.
fn is_no_dearer(
    push: PushPrice,
    push_bytes: usize,
    poll_credits: u64,
    block_time: Option<Duration>,
    poll_every: Duration,
) -> bool {
    let polls_a_block = block_time.map_or(1.0, |block| {
        SLIDE * block.as_secs_f64() / poll_every.as_secs_f64().max(f64::MIN_POSITIVE)
    });
    push.thousandths(push_bytes) as f64 <= 1_000.0 * poll_credits as f64 * polls_a_block
}

impl Watcher {
    /// Whether a feed should be open now, if there is a seat for it.
    fn is_a_feed_worth_it(&self) -> bool {
        let now = now();
        if !self.is_prober(now) {
            return false;
        }
        let may_be_paid = !self.asker.has_spent_allowance(now)
            && !matches!(self.upstream().condition(now), Condition::Spent | Condition::Overspent);
        if !may_be_paid || !self.pulse().wants_heads(now) || !self.is_tier_needed(now) {
            return false;
        }
        let price = match (self.checks.feed, self.upstream().push_price()) {
            (FeedUse::Never, _) => return false,
            (FeedUse::Always, _) | (FeedUse::ByPrice, None) => return true,
            (FeedUse::ByPrice, Some(price)) => price,
        };
        let bytes = match self.push_bytes.load(Ordering::Relaxed) {
            0 => PUSH_BYTES,
            bytes => bytes,
        };
        is_no_dearer(
            price,
            bytes,
            self.poll_price(),
            self.heads.view().block_time,
            self.block_pace(),
        )
    }

    /// Credits of one poll.
    fn poll_price(&self) -> u64 {
        self.upstream().price(MethodTable::standard().row("eth_getBlockByNumber"))
    }

    /// What the upstream bids for a seat.
    pub(crate) fn feed_bid(&self) -> FeedBid {
        let pushed = self.upstream().push_price().map_or(0, |price| price.thousandths(PUSH_BYTES));
        FeedBid {
            is_forced: self.checks.feed == FeedUse::Always,
            tier: self.upstream().identity().tier,
            price: pushed / self.poll_price().max(1),
        }
    }

    /// Lets others have the seat while the upstream is down: its feed may be open, but its word does not count.
    fn note_if_down(&self) {
        let now = now();
        let is_down = match self.upstream().condition(now) {
            Condition::HalfOpen | Condition::BreakerOpen | Condition::OutOfService => true,
            Condition::Ready
            | Condition::Throttled
            | Condition::Syncing
            | Condition::Overspent
            | Condition::Spent
            | Condition::Unverified
            | Condition::WrongChain => false,
        };
        if is_down {
            self.pulse().seats.note_down(self.upstream().slot(), now);
        }
    }

    fn is_seated(&self) -> bool {
        self.pulse().seats.is_seated(self.upstream().slot(), now())
    }

    /// Returns when a feed should be open and has a seat.
    pub(crate) async fn until_a_feed_is_worth_it(&self) {
        let (seats, slot) = (&self.pulse().seats, self.upstream().slot());
        loop {
            // Created before the check, so that a client call in between is not missed.
            let (woken, called) = (self.pulse().woken(), self.called.notified());
            let changed = seats.changed();
            if self.is_a_feed_worth_it() {
                self.note_if_down();
                seats.bid(slot, Some(self.feed_bid()));
                // The others, which are woken at this moment, too, bid first.
                tokio::task::yield_now().await;
                if self.is_seated() {
                    return;
                }
            } else {
                seats.bid(slot, None);
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = called => {}
                () = changed => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Returns when the feed has not been worth it for a while, or has lost its seat to a cheaper
    /// one.
    pub(crate) async fn until_the_feed_is_idle(&self) {
        let seats = &self.pulse().seats;
        let mut worth_it_at: Instant = now();
        loop {
            let changed = seats.changed();
            self.note_if_down();
            if !self.is_seated() {
                return;
            }
            let idle_for = now().saturating_duration_since(worth_it_at);
            if idle_for >= LINGER {
                seats.bid(self.upstream().slot(), None);
                return;
            }
            let wait = LOOK_EVERY.min(LINGER - idle_for);
            let _changed_or_late = tokio::time::timeout(wait, changed).await;
            if self.is_a_feed_worth_it() {
                worth_it_at = now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_upstream::{Provider, Tariff};

    use super::*;

    /// Blocks of so many milliseconds at a provider, polled as the loops do.
    fn check(provider: &str, block_ms: u64, by_feed: bool) {
        let provider = Provider::named(provider).expect("listed");
        let row = MethodTable::standard().row("eth_getBlockByNumber");
        let poll = u64::from(Tariff::of(provider).billed(row));
        let block = Duration::from_millis(block_ms);
        let every = (block + block / 8).clamp(Duration::from_millis(250), Duration::from_secs(15));
        let push = PushPrice::of(provider);
        let found = is_no_dearer(push, PUSH_BYTES, poll, Some(block), every);
        assert_eq!(found, by_feed, "{} at {block_ms} ms", provider.id);
    }

    #[test]
    fn what_costs_less_is_chosen() {
        // 72.6 credits pushed, 20 polled.
        check("alchemy", 12_000, false);
        check("alchemy", 250, false);
        // A slow chain is polled several times a block.
        check("alchemy", 60_000, true);
        // 50 pushed, 80 polled.
        check("infura", 12_000, true);
        check("infura", 250, true);
        // The same: the feed tells sooner.
        check("quicknode", 12_000, true);
        check("chainstack", 2_000, true);
        // Polls of a chain that is quicker than they may be cost less.
        check("quicknode", 100, false);
        // 100 pushed, 200 polled.
        check("ankr", 12_000, true);
    }

    #[test]
    fn before_the_block_time_is_known_a_poll_stands_for_a_block() {
        let alchemy = PushPrice::of(Provider::named("alchemy").expect("listed"));
        let every = Duration::from_secs(1);
        assert!(!is_no_dearer(alchemy, PUSH_BYTES, 20, None, every));
        assert!(is_no_dearer(alchemy, 400, 20, None, every), "small blocks: 16 credits");
    }
}
