//! Subscriptions of which only upstreams know: they are kept open at some upstreams while a client
//! wants them, and what these push goes to a sink.
//!
//! A relay is opened with [`Relays::open`] and ends when its [`RelayHandle`] is dropped. The loop of
//! each upstream with a WebSocket bids for a seat, and the cheapest get one, or all that are free of
//! charge ([`RelaySpread`]). A feed that ends is replaced at once by the next upstream's and is opened
//! again after a pause, whatever the breaker of its upstream says: that one judges calls. Each feed
//! says which chain it is on before it is believed. What it pushes is paid from the upstream's budget.
//!
//! Not promised: that nothing is missed while a feed is replaced. [`RelaySink::note_gap`] tells of that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_jsonrpc::raw;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Condition, Slot, UpstreamSet};

use crate::ask::now;
use crate::feed::{FeedFailure, FeedListener, agrees, is_reply, open};
use crate::follow::FeedPauses;
use crate::identify::WRONG_CHAIN_PAUSE;
use crate::seats::{FeedBid, FeedSeats, SeatRule};
use crate::watcher::Watcher;

/// An upstream that does not offer a subscription is asked for it again after so long.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);
/// A loop without a seat looks up so often whether its upstream has become fit.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many upstreams tell a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelaySpread {
    /// All that push free of charge, at most four: each tells something that the others do not. The
    /// cheapest one where none is free.
    AllFree,
    /// The cheapest one.
    One,
}

/// Takes in what the upstreams of a relay push.
pub trait RelaySink: Send + Sync + fmt::Debug {
    /// A notification's result (raw JSON).
    fn push(&self, result: &[u8]);

    /// No upstream tells from now on, until the next [`RelaySink::push`].
    fn note_gap(&self);
}

/// What has become of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayStatus {
    /// At least one upstream confirmed the subscription.
    Told,
    /// None has yet, or none does any more.
    Opening,
    /// Each upstream that could be asked said that it does not offer it.
    Refused,
    /// No upstream of the chain has a WebSocket that may be used.
    NoFeeds,
}

/// The relays of one chain.
#[derive(Debug, Default)]
pub struct Relays {
    open: Mutex<Vec<Arc<Relay>>>,
    /// The upstreams that could tell one.
    candidates: Mutex<UpstreamSet>,
    changed: Notify,
}

/// One relay.
#[derive(Debug)]
struct Relay {
    /// The parameters of its `eth_subscribe`, as JSON.
    subscription: Box<str>,
    sink: Arc<dyn RelaySink>,
    seats: FeedSeats,
    state: Mutex<RelayState>,
    has_ended: AtomicBool,
    news: Notify,
}

#[derive(Debug, Default)]
struct RelayState {
    telling: UpstreamSet,
    refusing: UpstreamSet,
}

/// Keeps a relay open.
#[derive(Debug)]
pub struct RelayHandle {
    relays: Arc<Relays>,
    relay: Arc<Relay>,
}

impl Relays {
    /// Keeps a subscription with these parameters (a JSON array) open at upstreams, until the handle is
    /// dropped.
    pub fn open(
        self: &Arc<Self>,
        subscription: &str,
        spread: RelaySpread,
        sink: Arc<dyn RelaySink>,
    ) -> RelayHandle {
        let rule = match spread {
            RelaySpread::AllFree => SeatRule::AllFree,
            RelaySpread::One => SeatRule::Cheapest,
        };
        let relay = Arc::new(Relay {
            subscription: subscription.into(),
            sink,
            seats: FeedSeats::new(rule),
            state: Mutex::default(),
            has_ended: AtomicBool::new(false),
            news: Notify::new(),
        });
        self.open.lock().push(Arc::clone(&relay));
        self.changed.notify_waiters();
        RelayHandle { relays: Arc::clone(self), relay }
    }

    fn add_candidate(&self, slot: Slot) {
        self.candidates.lock().insert(slot);
    }

    /// Those that are open and not in `known`.
    fn news_for(&self, known: &[Arc<Relay>]) -> Vec<Arc<Relay>> {
        let open = self.open.lock();
        let is_known = |relay: &Arc<Relay>| known.iter().any(|it| Arc::ptr_eq(it, relay));
        open.iter().filter(|relay| !is_known(relay)).cloned().collect()
    }
}

impl RelayHandle {
    /// What has become of the relay.
    pub fn status(&self) -> RelayStatus {
        let candidates = *self.relays.candidates.lock();
        let state = self.relay.state.lock();
        if !state.telling.is_empty() {
            RelayStatus::Told
        } else if candidates.is_empty() {
            RelayStatus::NoFeeds
        } else if candidates.without(state.refusing).is_empty() {
            RelayStatus::Refused
        } else {
            RelayStatus::Opening
        }
    }

    /// Resolves when [`RelayHandle::status`] may be another one than at this call, polled or not: made
    /// before looking, nothing is missed.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.relay.news.notified()
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.relay.has_ended.store(true, Ordering::Relaxed);
        self.relays.open.lock().retain(|relay| !Arc::ptr_eq(relay, &self.relay));
        self.relays.changed.notify_waiters();
    }
}

impl Relay {
    fn tells(&self, slot: Slot) -> Telling<'_> {
        let mut state = self.state.lock();
        state.telling.insert(slot);
        state.refusing = state.refusing.without(UpstreamSet::from_iter([slot]));
        self.news.notify_waiters();
        Telling { relay: self, slot }
    }

    fn note_refused(&self, slot: Slot) {
        self.state.lock().refusing.insert(slot);
        self.news.notify_waiters();
    }
}

/// An upstream tells a relay, until this is dropped.
struct Telling<'a> {
    relay: &'a Relay,
    slot: Slot,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let mut state = self.relay.state.lock();
        state.telling = state.telling.without(UpstreamSet::from_iter([self.slot]));
        let is_silent = state.telling.is_empty();
        drop(state);
        if is_silent && !self.relay.has_ended.load(Ordering::Relaxed) {
            self.relay.sink.note_gap();
        }
        self.relay.news.notify_waiters();
    }
}

/// How the feed of a relay ended.
enum RelayEnd {
    WrongChain,
    Broke { pushes: u64, why: FeedFailure },
}

impl Watcher {
    /// Offers this upstream to the relays of its chain, for ever.
    pub(crate) async fn follow_relays(&self, connector: &dyn FeedConnector) {
        let relays = &self.pulse().relays;
        relays.add_candidate(self.upstream().slot());
        let (mut known, mut running) = (Vec::new(), FuturesUnordered::new());
        loop {
            // Created before the look, so that nothing is missed.
            let changed = relays.changed.notified();
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
            let changed = &self.pulse().relays.changed;
            loop {
                let changed = changed.notified();
                if relay.has_ended.load(Ordering::Relaxed) {
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
        is_fit && !self.asker.allowance.is_spent(now)
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
