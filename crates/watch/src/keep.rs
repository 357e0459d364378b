//! Keeps the relays of a chain open at one upstream, as far as it has seats ([`crate::relay`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Condition, Slot};

use crate::ask::now;
use crate::feed::{FeedEnd, FeedListener, FeedPauses, open, pushed_result};
use crate::identify::WRONG_CHAIN_PAUSE;
use crate::relay::Relay;
use crate::seats::{FeedBid, FeedSeats};
use crate::watcher::Watcher;

/// An upstream that does not offer a subscription is asked for it again after this long.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// The interval at which a loop without a seat looks whether its upstream has become fit.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Watcher {
    /// Offers this upstream to the relays of its chain, for ever.
    pub(crate) async fn follow_relays(&self, connector: &dyn FeedConnector) {
        let relays = &self.pulse().relays;
        let (mut known, mut running) = (Vec::new(), FuturesUnordered::new());
        loop {
            // Created before the look, so that nothing is missed.
            let changed = relays.changed();
            for relay in relays.news_for(&known) {
                known.push(Arc::clone(&relay));
                // Boxed: most upstreams have none.
                running.push(Box::pin(self.keep_until_it_ends(connector, relay)));
            }
            tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                Some(ended) = running.next() => known.retain(|it| !Arc::ptr_eq(it, &ended)),
                () = changed => {}
            }
        }
    }

    async fn keep_until_it_ends(
        &self,
        connector: &dyn FeedConnector,
        relay: Arc<Relay>,
    ) -> Arc<Relay> {
        let ended = async {
            let relays = &self.pulse().relays;
            loop {
                let changed = relays.changed();
                if relay.has_ended() {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = self.keep(connector, &relay) => {}
        }
        relay
    }

    /// Keeps a feed of this upstream open while it has a seat, for ever.
    async fn keep(&self, connector: &dyn FeedConnector, relay: &Relay) {
        let slot = self.upstream().slot();
        let _bid = Bid { seats: &relay.seats, slot };
        let mut pauses = FeedPauses::default();
        loop {
            self.until_relay_has_seat(relay).await;
            let began = now();
            let end = tokio::select! {
                biased;
                end = self.relay(connector, relay, &mut pauses) => end,
                () = self.until_relay_lost_seat(relay) => {
                    pauses.reset();
                    continue;
                }
            };
            // Its seat goes to the next one meanwhile.
            relay.seats.note_failure(slot, now());
            let (id, subscription) = (&self.upstream().identity().id, &relay.subscription);
            match end {
                Err(FeedEnd::WrongChain) => {
                    self.feed_was_wrong.store(true, Ordering::Relaxed);
                    tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
                }
                Err(FeedEnd::Broke(why)) if why.is_unsupported => {
                    tracing::debug!(upstream = %id, %subscription, "upstream does not offer the subscription");
                    relay.note_refused(slot);
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
                Err(FeedEnd::Broke(why)) => {
                    let detail = self.upstream().hidden(why.detail.clone());
                    tracing::debug!(upstream = %id, %subscription, %detail, "relayed subscription ended");
                    relay.note_failed(slot);
                    tokio::time::sleep(pauses.next(&why, began)).await;
                }
            }
        }
    }

    /// Opens a feed and hands on what it pushes until it ends.
    async fn relay(
        &self,
        connector: &dyn FeedConnector,
        relay: &Relay,
        pauses: &mut FeedPauses,
    ) -> Result<Infallible, FeedEnd> {
        let mut feed = open(connector, &self.asker, &self.heads, &relay.subscription).await?;
        let _telling = relay.tells(self.upstream().slot());
        let _open = self.asker.counts.relay_opened();
        let mut heard = FeedListener::new();
        loop {
            let message = heard.next_push(&mut *feed, &self.asker, None).await?;
            match pushed_result(&message) {
                Some(result) => {
                    pauses.reset();
                    relay.sink.push(result);
                }
                None => heard.note_unreadable()?,
            }
        }
    }

    fn may_relay(&self) -> bool {
        let now = now();
        let is_fit = match self.upstream().condition(now) {
            // The breaker judges calls.
            Condition::Ready
            | Condition::Throttled
            | Condition::HalfOpen
            | Condition::BreakerOpen
            | Condition::Syncing => true,
            Condition::Overspent
            | Condition::Spent
            | Condition::OutOfService
            | Condition::Unverified
            | Condition::WrongChain => false,
        };
        is_fit && !self.asker.has_spent_allowance(now)
    }

    async fn until_relay_has_seat(&self, relay: &Relay) {
        let slot = self.upstream().slot();
        loop {
            let changed = relay.seats.changed();
            relay.seats.bid(slot, self.may_relay().then(|| self.relay_bid()));
            // The others, which look at this moment, too, bid first.
            tokio::task::yield_now().await;
            if relay.seats.is_seated(slot, now()) {
                return;
            }
            let _changed_or_late = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }

    async fn until_relay_lost_seat(&self, relay: &Relay) {
        let slot = self.upstream().slot();
        loop {
            let changed = relay.seats.changed();
            if !self.may_relay() {
                relay.seats.bid(slot, None);
            }
            if !relay.seats.is_seated(slot, now()) {
                return;
            }
            let _changed_or_late = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }

    fn relay_bid(&self) -> FeedBid {
        FeedBid { is_forced: false, ..self.feed_bid() }
    }
}

/// Withdraws a bid when it is dropped.
struct Bid<'a> {
    seats: &'a FeedSeats,
    slot: Slot,
}

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        self.seats.bid(self.slot, None);
    }
}
