//! Keeps the relays of a chain open at one upstream, as far as it has seats ([`crate::relay`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use wellhead_jsonrpc::raw;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Condition, Slot};

use crate::ask::now;
use crate::feed::{FeedFailure, FeedListener, agrees, is_reply, open};
use crate::follow::FeedPauses;
use crate::identify::WRONG_CHAIN_PAUSE;
use crate::relay::Relay;
use crate::seats::{FeedBid, FeedSeats};
use crate::watcher::Watcher;

/// An upstream that does not offer a subscription is asked for it again after this long.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// The interval at which a loop without a seat looks whether its upstream has become fit.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How the feed of a relay ended.
enum RelayEnd {
    WrongChain,
    Broke { pushes: u64, why: FeedFailure },
}

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
                end = self.relay(connector, relay) => end,
                () = self.until_relay_lost_seat(relay) => {
                    pauses = FeedPauses::default();
                    continue;
                }
            };
            // Its seat goes to the next one meanwhile.
            relay.seats.note_failure(slot, now());
            let (id, subscription) = (&self.upstream().identity().id, &relay.subscription);
            match end {
                RelayEnd::WrongChain => {
                    self.feed_was_wrong.store(true, Ordering::Relaxed);
                    tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
                }
                RelayEnd::Broke { why, .. } if why.is_unsupported => {
                    tracing::debug!(upstream = %id, %subscription, "upstream does not offer the subscription");
                    relay.note_refused(slot);
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
                RelayEnd::Broke { pushes, why } => {
                    let detail = self.upstream().hidden(why.detail.clone());
                    tracing::debug!(upstream = %id, %subscription, %detail, "relayed subscription ended");
                    relay.note_failed(slot);
                    tokio::time::sleep(pauses.next(pushes > 0, &why, began)).await;
                }
            }
        }
    }

    /// Opens a feed and hands on what it pushes until it ends.
    async fn relay(&self, connector: &dyn FeedConnector, relay: &Relay) -> RelayEnd {
        let broke = |pushes, why| RelayEnd::Broke { pushes, why };
        let (mut feed, chain_id) = match open(connector, &self.asker, &relay.subscription).await {
            Ok(opened) => opened,
            Err(why) => return broke(0, why),
        };
        if !agrees(chain_id, &self.asker, &self.heads) {
            return RelayEnd::WrongChain;
        }
        let _telling = relay.tells(self.upstream().slot());
        let _open = self.asker.counts.relay_opened();
        let (mut heard, mut pushes) = (FeedListener::new(), 0);
        loop {
            let message = match heard.next(&mut *feed, &self.asker, None).await {
                Ok(message) => message,
                Err(why) => return broke(pushes, why),
            };
            if is_reply(&message) {
                // It was paid for when it was asked for.
                continue;
            }
            // It was pushed, so it is on the bill, whatever it says.
            let paid = self.asker.pay_for_push(message.len());
            match raw::field(&message, "params").and_then(|it| raw::field(it, "result")) {
                Some(result) => {
                    pushes += 1;
                    relay.sink.push(result);
                }
                None if heard.note_unreadable() => {
                    return broke(pushes, "the feed sent messages that cannot be read".into());
                }
                None => {}
            }
            if let Err(detail) = paid {
                return broke(pushes, detail.into());
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
            | Condition::Draining
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
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
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
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
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
