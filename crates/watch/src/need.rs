//! Whether an upstream is followed: its tier serves calls, or may have to at any moment.
//!
//! The best tier of a chain is always needed. An upstream of another tier is needed while calls
//! of clients come to it, and while no upstream of a better tier is fit: unwell, throttled,
//! spent, behind or astray. Else it is idle, though clients call the chain: it is checked once a
//! minute at most, has no vote on the newest block, and what it said last is not held against
//! it. Its first call wakes the loop, so that its head is known soon after.
//!
//! While something subscribes to the chain and no client calls it, nothing has to be known of an
//! upstream but the newest block, and two are enough to agree on one: of the upstreams that cost
//! something, only those are needed that have a feed, or else the cheapest to poll. When these tell
//! no new block for longer than a block takes, all are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wellhead_chain::View;
use wellhead_eth::MethodTable;
use wellhead_upstream::{Condition, Upstream};

use crate::ask::now;
use crate::checks::CheckKind;
use crate::pulse::BUSY_FOR;
use crate::watcher::Watcher;

/// At least this many upstreams are followed for subscribers where the settings do not say how many
/// have to agree on a block.
const FOLLOWED_MIN: usize = 2;
/// The newest block is late after one and a half block times and this.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// This many upstreams of better tiers have to be fit before one is idle, where the settings do
/// not say how many have to agree on a block.
const FIT_MIN: usize = 1;

impl Watcher {
    /// From now on calls of clients to this upstream are noted, and wake the loop.
    pub(crate) fn listen_for_calls(&self) {
        if self.is_in_best_tier() {
            return;
        }
        let called = Arc::clone(&self.called);
        self.upstream().wake_on_demand(BUSY_FOR, move || called.notify_waiters());
    }

    /// Whether clients call the chain, and this upstream is needed for that.
    pub(crate) fn is_busy(&self) -> bool {
        self.asker.is_busy(now())
    }

    /// Takes note of whether the upstream is needed; true when it was not until now.
    pub(crate) fn look_at_need(&self) -> bool {
        let (slot, now) = (self.upstream().slot(), now());
        let is_needed = self.is_needed(now);
        let was_needed = self.asker.is_needed.swap(is_needed, Ordering::Relaxed);
        if !is_needed {
            // A feed that is still open tells its head as it moves.
            let is_idle = !self.feed_is_live.load(Ordering::Relaxed);
            self.heads.set_idle(slot, is_idle, now);
        } else if !self.checks.follows_by(CheckKind::Head) {
            // Nothing will ask for its head, and the old one would keep calls from it.
            if self.heads.look(|view| view.is_idle(slot)) {
                self.heads.fade(slot);
                self.heads.set_idle(slot, false, now);
            }
        }
        // Else it is idle until its head is told: an old head would keep calls from it.
        is_needed && !was_needed
    }

    fn is_needed(&self, now: Instant) -> bool {
        self.is_tier_needed(now)
            && (self.pulse().is_called(now)
                || !self.pulse().is_busy(now)
                || self.upstream().push_price().is_none()
                || self.is_among_the_followed(now)
                || self.is_the_newest_block_late(None, now))
    }

    /// Whether calls of clients come to the upstream's tier, or may have to at any moment.
    pub(crate) fn is_tier_needed(&self, now: Instant) -> bool {
        if self.is_in_best_tier()
            || self.upstream().is_called_within(BUSY_FOR, now)
            || self.is_called_elsewhere(BUSY_FOR, now)
        {
            return true;
        }
        let fit_min = self.heads.agreement_given().unwrap_or(FIT_MIN);
        let upstreams = self.chain.load();
        let fit = self.heads.look(|view| {
            let better = upstreams.iter().filter(|upstream| self.is_below(upstream));
            better.filter(|upstream| is_fit(upstream, view, now)).take(fit_min).count()
        });
        fit < fit_min
    }

    /// Whether it is one of the upstreams that are followed for subscribers alone.
    fn is_among_the_followed(&self, now: Instant) -> bool {
        let seated = self.pulse().seats.seated(now);
        let poll = MethodTable::standard().row("eth_getBlockByNumber");
        let rank = |upstream: &Upstream, view: &View| {
            let (slot, tier) = (upstream.slot(), upstream.identity().tier);
            let credits = upstream.push_price().map_or(0, |_| upstream.price(poll));
            (!is_fit(upstream, view, now), !seated.contains(slot), tier, credits, slot)
        };
        let before = self.heads.look(|view| {
            let own = rank(self.upstream(), view);
            self.chain.load().iter().filter(|other| rank(other, view) < own).count()
        });
        before < self.heads.agreement_given().unwrap_or(FOLLOWED_MIN)
    }

    /// Whether no upstream told a block for longer than one takes; with `since`, for as long from then on.
    pub(crate) fn is_the_newest_block_late(&self, since: Option<Instant>, now: Instant) -> bool {
        self.heads.look(|view| {
            let is_late = |at: Instant, block_time: Duration| {
                now.saturating_duration_since(at) > block_time * 3 / 2 + LATE_AFTER
            };
            let was_asked_late =
                since.is_none_or(|since| is_late(since, view.block_time.unwrap_or_default()));
            let is_told_late = match (view.latest, view.block_time) {
                (Some(latest), Some(block_time)) => is_late(latest.seen_at, block_time),
                _ => true,
            };
            was_asked_late && is_told_late
        })
    }

    fn is_in_best_tier(&self) -> bool {
        !self.chain.load().iter().any(|upstream| self.is_below(upstream))
    }

    /// Whether the other one is of a better tier.
    fn is_below(&self, other: &Upstream) -> bool {
        other.identity().tier < self.upstream().identity().tier
    }
}

fn is_fit(upstream: &Upstream, view: &View, now: Instant) -> bool {
    let (slot, own_bound) = (upstream.slot(), upstream.identity().lag_blocks_max);
    upstream.condition(now) == Condition::Ready
        && !view.is_lagging(slot, own_bound)
        && !view.is_astray(slot)
}
