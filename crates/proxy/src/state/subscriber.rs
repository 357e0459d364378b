//! What one WebSocket connection is subscribed to: ids, and a cursor into the journal for each.
//!
//! Nothing is queued for a connection. It is woken when the journal grew, reads from its cursors
//! what is new while its socket takes it, and is ended when it falls off the journal.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_subscribe::{ChainEvent, Cursor, Notification, RingView, SubscriptionId};

use crate::state::chain::ServedChain;
use crate::state::subscriptions::SubscriberHub;

/// ChainSubscriptions of one connection; geth has no bound, reth has this one.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;

/// One connection of a client to one chain.
#[derive(Debug)]
pub struct Subscriber {
    chain: Arc<ServedChain>,
    hub: Arc<SubscriberHub>,
    state: Mutex<SubscriberState>,
}

#[derive(Debug, Default)]
struct SubscriberState {
    subscriptions: Vec<Subscription>,
    /// Its place among those that are woken, while it has a subscription.
    place: Option<usize>,
}

#[derive(Debug)]
struct Subscription {
    id: SubscriptionId,
    /// The id again, to be sent without a copy.
    text: Bytes,
    kind: SubscriptionKind,
    cursor: Cursor,
    /// The client was told the id, so that it can be told what the id stands for.
    is_active: bool,
}

/// What a client subscribes to. In the order in which those of one block are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    /// `newHeads`.
    Heads,
}

/// What a connection is told next.
#[derive(Debug)]
pub enum SubscriberEvent {
    /// A notification, in pieces that follow each other.
    Notification([Bytes; 3]),
    /// It took less than was announced for so long that the journal is past it.
    TooSlow,
    /// The journal began anew: what was between is not known.
    Resync,
}

/// One message of a connection, and what it subscribes to.
#[derive(Debug)]
pub struct SubscriberMessage<'a> {
    subscriber: &'a Subscriber,
    subscribed: Mutex<Vec<SubscriptionId>>,
}

impl<'a> SubscriberMessage<'a> {
    /// A message that came on the connection of `subscriber`.
    pub fn new(subscriber: &'a Subscriber) -> Self {
        Self { subscriber, subscribed: Mutex::default() }
    }

    /// The connection.
    pub(crate) fn subscriber(&self) -> &Subscriber {
        self.subscriber
    }

    /// Adds a subscription that was counted. It is silent until it is
    /// [activated](Subscriber::activate).
    pub(crate) fn add(&self, id: SubscriptionId, kind: SubscriptionKind, cursor: Cursor) {
        self.subscriber.add(id, kind, cursor);
        self.subscribed.lock().push(id);
    }

    /// The subscriptions that the answer tells the client the ids of: to be
    /// [activated](Subscriber::activate) when the answer has its place among what is sent.
    pub fn into_subscribed(self) -> Vec<SubscriptionId> {
        self.subscribed.into_inner()
    }
}

impl Subscriber {
    /// A connection without subscriptions.
    pub(crate) fn new(chain: Arc<ServedChain>, hub: Arc<SubscriberHub>) -> Self {
        Self { chain, hub, state: Mutex::default() }
    }

    /// Whether it has as many subscriptions as a connection may.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().subscriptions.len() >= SUBSCRIPTIONS_MAX
    }

    fn add(&self, id: SubscriptionId, kind: SubscriptionKind, cursor: Cursor) {
        let mut state = self.state.lock();
        if state.place.is_none() {
            state.place = Some(self.hub.enter(&self.chain.subscriptions));
        }
        let text = Bytes::copy_from_slice(id.as_str().as_bytes());
        state.subscriptions.push(Subscription { id, text, kind, cursor, is_active: false });
    }

    /// The client is told these ids before anything else that is sent from now on.
    pub fn activate(&self, ids: &[SubscriptionId]) {
        let mut state = self.state.lock();
        for subscription in &mut state.subscriptions {
            subscription.is_active |= ids.contains(&subscription.id);
        }
    }

    /// Ends a subscription; false if there is none of this id.
    pub(crate) fn remove(&self, id: &SubscriptionId) -> bool {
        let mut state = self.state.lock();
        let Some(place) = state.subscriptions.iter().position(|known| known.id == *id) else {
            return false;
        };
        state.subscriptions.remove(place);
        self.chain.subscriptions.end();
        if state.subscriptions.is_empty() {
            self.leave(&mut state);
        }
        true
    }

    /// The next notification, in the order of the journal; within one block in the order of
    /// [`SubscriptionKind`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SubscriberEvent> {
        let mut state = self.state.lock();
        let Some(place) = state.place else { return Poll::Pending };
        let journal = self.chain.subscriptions.reader().load();
        loop {
            let next = state.subscriptions.iter_mut().filter(|it| it.is_active);
            let Some(next) = next.min_by_key(|it| it.cursor) else { return Poll::Pending };
            if next.cursor >= journal.tip() {
                // Before the journal is looked at for the last time, so that nothing is missed.
                self.hub.wake_at(place, cx.waker());
                if self.chain.subscriptions.reader().tip() == journal.tip() {
                    return Poll::Pending;
                }
                drop(state);
                return self.poll_event(cx);
            }
            if let Some(event) = next.advance(&journal) {
                return Poll::Ready(event);
            }
        }
    }

    fn leave(&self, state: &mut SubscriberState) {
        if let Some(place) = state.place.take() {
            self.hub.leave(place);
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut());
        for _ in &state.subscriptions {
            self.chain.subscriptions.end();
        }
        self.leave(&mut state);
    }
}

impl Subscription {
    /// Passes one event of the journal; returns what it means for the subscription, if anything.
    fn advance(&mut self, journal: &RingView<ChainEvent>) -> Option<SubscriberEvent> {
        let first = match journal.since(self.cursor) {
            Ok(mut events) => events.next()?.1,
            Err(lagged) => {
                return Some(match lagged.missed {
                    Some(_) => SubscriberEvent::TooSlow,
                    None => SubscriberEvent::Resync,
                });
            }
        };
        self.cursor = self.cursor.next();
        match (&self.kind, first) {
            (SubscriptionKind::Heads, ChainEvent::Added(block)) => {
                let notification = block.header().notification();
                let prefix = Bytes::from_static(Notification::prefix());
                Some(SubscriberEvent::Notification([
                    prefix,
                    self.text.clone(),
                    notification.suffix().clone(),
                ]))
            }
            (SubscriptionKind::Heads, ChainEvent::Removed(_) | ChainEvent::Began(_)) => None,
        }
    }
}
