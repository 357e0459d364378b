//! What one WebSocket connection is subscribed to: ids, and a cursor into the journal for each.
//!
//! Nothing is queued for a connection. It is woken when the journal grew, reads from its cursors
//! what is new while its socket takes it, and is ended when it falls off the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_subscribe::{ChainEvent, Cursor, GroupId, Notification, RingView, SubscriptionId};

use crate::state::chain::ServedChain;
use crate::state::subscriptions::{
    ChainSubscriptions, JoinedGroup, SubscriberHub, SubscriptionCounters,
};

/// The most subscriptions of one connection; geth has no bound, reth has this one.
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
    /// Where it reads, for the metrics, while it has a place.
    position: Option<Arc<AtomicU64>>,
    /// The round that goes on; `None` while there is nothing to tell.
    round: Option<TellRound>,
}

/// All subscriptions at one place of the journal, each looked at once, so that many on one connection
/// cost no more than their number.
#[derive(Debug)]
struct TellRound {
    cursor: Cursor,
    /// Heads are told first, then logs.
    is_of_logs: bool,
    /// The next subscription to look at.
    at: usize,
}

#[derive(Debug)]
struct Subscription {
    id: SubscriptionId,
    /// The id again, to be sent without a copy.
    text: Bytes,
    kind: SubscriptionKind,
    cursor: Cursor,
    /// Where it began: it was not told of a block that was added before.
    since: Cursor,
    /// The client was told the id, so that it can be told what the id stands for.
    is_active: bool,
}

/// What a client subscribes to.
#[derive(Debug)]
pub(crate) enum SubscriptionKind {
    /// `newHeads`.
    Heads,
    /// `logs`.
    Logs {
        /// Those with equal criteria.
        group: JoinedGroup,
        /// Logs of the event at the cursor that were told.
        told: usize,
    },
}

/// A step over one event of the journal.
enum SubscriptionStep {
    Tell(SubscriberEvent),
    /// The event means nothing here, and is passed.
    Passed,
    /// The logs of the block are not known yet.
    Awaits,
}

/// What a connection is told next.
#[derive(Debug)]
pub enum SubscriberEvent {
    /// A notification, in pieces that follow each other.
    Notification([Bytes; 3]),
    /// The client reads so slowly that the journal has dropped what it would be told next.
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
    /// [activated](Subscriber::activate). Gives it back where the connection has as many as it may.
    pub(crate) fn add(
        &self,
        id: SubscriptionId,
        kind: SubscriptionKind,
        cursor: Cursor,
    ) -> Result<(), SubscriptionKind> {
        self.subscriber.add(id, kind, cursor)?;
        self.subscribed.lock().push(id);
        Ok(())
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

    fn add(
        &self,
        id: SubscriptionId,
        kind: SubscriptionKind,
        cursor: Cursor,
    ) -> Result<(), SubscriptionKind> {
        let mut state = self.state.lock();
        // Asked again: many calls of a connection may have waited for the first block.
        if state.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(kind);
        }
        if state.place.is_none() {
            state.place = Some(self.hub.enter(&self.chain.subscriptions));
            state.position = Some(self.chain.subscriptions.enter());
        }
        let counts = self.chain.subscriptions.counts();
        SubscriptionCounters::add(&counts.begun, 1);
        kind.open(counts).fetch_add(1, Relaxed);
        let text = Bytes::copy_from_slice(id.as_str().as_bytes());
        state.subscriptions.push(Subscription {
            id,
            text,
            kind,
            cursor,
            since: cursor,
            is_active: false,
        });
        Ok(())
    }

    /// The client is told these ids before anything else that is sent from now on.
    pub fn activate(&self, ids: &[SubscriptionId]) {
        let mut state = self.state.lock();
        state.round = None;
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
        state.round = None;
        let ended = state.subscriptions.remove(place);
        self.end(&ended);
        if state.subscriptions.is_empty() {
            self.leave(&mut state);
        }
        true
    }

    /// The next notification, in the order of the journal: of each block first the head, then its
    /// logs. A subscription to logs that waits for those of a block delays no other one.
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SubscriberEvent> {
        let mut state = self.state.lock();
        let Some(place) = state.place else { return Poll::Pending };
        let subscriptions = &self.chain.subscriptions;
        // Before the journal is looked at, so that nothing is missed.
        self.hub.wake_at(place, cx.waker());
        let journal = subscriptions.reader().load();
        let round = state.round.take().or_else(|| state.next_round(None, journal.tip()));
        let Some(mut round) = round else { return Poll::Pending };
        loop {
            while let Some(next) = state.subscriptions.get_mut(round.at) {
                let is_next = next.is_active
                    && next.cursor == round.cursor
                    && next.kind.is_logs() == round.is_of_logs;
                if !is_next {
                    round.at += 1;
                    continue;
                }
                match next.advance(&journal, subscriptions) {
                    SubscriptionStep::Tell(event) => {
                        state.round = Some(round);
                        return Poll::Ready(event);
                    }
                    SubscriptionStep::Passed => {}
                    SubscriptionStep::Awaits => round.at += 1,
                }
            }
            if !round.is_of_logs {
                round = TellRound { is_of_logs: true, at: 0, ..round };
                continue;
            }
            match state.next_round(Some(round.cursor), journal.tip()) {
                Some(next) => round = next,
                None => return Poll::Pending,
            }
        }
    }

    fn end(&self, subscription: &Subscription) {
        if let SubscriptionKind::Logs { group, .. } = &subscription.kind {
            self.chain.subscriptions.leave(group);
        }
        subscription.kind.open(self.chain.subscriptions.counts()).fetch_sub(1, Relaxed);
        self.chain.subscriptions.end();
    }

    fn leave(&self, state: &mut SubscriberState) {
        if let Some(place) = state.place.take() {
            self.hub.leave(place);
            state.position = None;
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut());
        state.subscriptions.iter().for_each(|subscription| self.end(subscription));
        self.leave(&mut state);
    }
}

impl SubscriberState {
    /// The round at the lowest place above `last` and below the journal's tip, if a subscription is
    /// there.
    fn next_round(&self, last: Option<Cursor>, tip: Cursor) -> Option<TellRound> {
        let places = self.subscriptions.iter().filter(|it| it.is_active).map(|it| it.cursor);
        let ahead = places.filter(|at| *at < tip && last.is_none_or(|last| *at > last));
        let next = ahead.min();
        if let Some(position) = &self.position {
            position.store(next.unwrap_or(tip).sequence(), Relaxed);
        }
        next.map(|cursor| TellRound { cursor, is_of_logs: false, at: 0 })
    }
}

impl SubscriptionKind {
    /// The count of open ones.
    fn open<'a>(&self, counts: &'a SubscriptionCounters) -> &'a AtomicUsize {
        match self {
            Self::Heads => &counts.heads,
            Self::Logs { .. } => &counts.logs,
        }
    }

    fn is_logs(&self) -> bool {
        matches!(self, Self::Logs { .. })
    }
}

impl Subscription {
    /// Takes one step in the journal, whose tip it has not reached.
    fn advance(
        &mut self,
        journal: &RingView<ChainEvent>,
        subscriptions: &ChainSubscriptions,
    ) -> SubscriptionStep {
        let event = match journal.since(self.cursor) {
            Ok(mut events) => events.next().map(|(_, event)| event),
            Err(lagged) => {
                return SubscriptionStep::Tell(match lagged.missed {
                    Some(_) => SubscriberEvent::TooSlow,
                    None => SubscriberEvent::Resync,
                });
            }
        };
        let told = event.map_or(SubscriptionStep::Passed, |event| match &self.kind {
            SubscriptionKind::Heads => match event.added() {
                Some(block) => self.tell(block.header().notification()),
                None => SubscriptionStep::Passed,
            },
            SubscriptionKind::Logs { group, told } => {
                self.tell_log(event, group.id, *told, subscriptions)
            }
        });
        match (&told, &mut self.kind) {
            (SubscriptionStep::Awaits, _) => {}
            (SubscriptionStep::Tell(_), SubscriptionKind::Logs { told, .. }) => *told += 1,
            (SubscriptionStep::Passed, SubscriptionKind::Logs { told, .. }) => {
                *told = 0;
                self.cursor = self.cursor.next();
            }
            (_, SubscriptionKind::Heads) => self.cursor = self.cursor.next(),
        }
        told
    }

    /// The log behind the first `told` ones of an event.
    fn tell_log(
        &self,
        event: &ChainEvent,
        group: GroupId,
        told: usize,
        subscriptions: &ChainSubscriptions,
    ) -> SubscriptionStep {
        let (block, is_removed) = match event {
            ChainEvent::Began(_) => return SubscriptionStep::Passed,
            ChainEvent::Added(block) => (block, false),
            ChainEvent::Removed(block) => (block, true),
        };
        if block.logs().is_none() {
            return SubscriptionStep::Awaits;
        }
        let Some(logs) = event.logs_told(self.since) else { return SubscriptionStep::Passed };
        if logs.logs().is_empty() {
            return SubscriptionStep::Passed;
        }
        // Nothing may be passed over in silence.
        let Some(matches) = subscriptions.matches_of(block) else {
            return SubscriptionStep::Tell(SubscriberEvent::TooSlow);
        };
        match matches.of(group).nth(told) {
            None => SubscriptionStep::Passed,
            Some(place) if is_removed => self.tell(&logs.removed_notification(place)),
            Some(place) => self.tell(&logs.notification(place)),
        }
    }

    fn tell(&self, notification: &Notification) -> SubscriptionStep {
        let prefix = Bytes::from_static(Notification::prefix());
        let pieces = [prefix, self.text.clone(), notification.suffix().clone()];
        SubscriptionStep::Tell(SubscriberEvent::Notification(pieces))
    }
}
