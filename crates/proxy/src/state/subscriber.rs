//! What one WebSocket connection is subscribed to: ids, and a cursor into the journal of blocks, or into a
//! stream beside it, for each.
//!
//! Nothing is queued for a connection. It is woken when the journal or a stream grew, reads from its
//! cursors what is new while its socket takes it, and is ended when it falls off the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use wellhead_access::HeldPlace;
use wellhead_prefetch::FetchAddress;
use wellhead_subscribe::{
    ChainEvent, Cursor, GroupId, MinedCriteria, Notification, PartState, ReceiptCriteria, RingView,
    SubscriptionId,
};

use crate::state::chain::ServedChain;
use crate::state::streams::StreamTicket;
use crate::state::subscriptions::{
    ChainSubscriptions, Demanded, HeldCriteria, KindName, SubscriberEvent, SubscriberHub,
    SubscriberMemory,
};

/// The most subscriptions of one connection; geth has no bound, reth has this one.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;

/// How one worker's subscribers of one chain are woken.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubscriberHubs {
    /// Those that read the journal of blocks.
    blocks: Arc<SubscriberHub>,
    /// Those that read streams, which may grow far more often.
    streams: Arc<SubscriberHub>,
}

/// One connection of a client to one chain.
#[derive(Debug)]
pub struct Subscriber {
    chain: Arc<ServedChain>,
    hubs: SubscriberHubs,
    state: Mutex<SubscriberState>,
}

#[derive(Debug, Default)]
struct SubscriberState {
    subscriptions: Vec<Subscription>,
    /// Its place among those that are woken, while it has a subscription.
    place: Option<usize>,
    /// Where it reads, for the metrics, while it has a place.
    position: Option<Arc<AtomicU64>>,
    streams: StreamSubscriptions,
    /// What subscriptions hold of the limits of their caller, where it has any.
    held: Vec<(SubscriptionId, HeldPlace)>,
    /// The round that goes on; `None` while there is nothing to tell.
    round: Option<TellRound>,
}

/// All subscriptions at one place of the journal, each looked at once, so that many on one connection
/// cost no more than their number.
#[derive(Debug)]
struct TellRound {
    cursor: Cursor,
    /// Heads are told first, then what else belongs to the block.
    is_of_parts: bool,
    /// The next subscription to look at.
    at: usize,
}

#[derive(Debug)]
struct Subscription {
    id: SubscriptionId,
    /// The id again, to be sent without a copy.
    text: Bytes,
    kind: SubscriptionKind,
    /// The journal is written while this is held.
    _demanded: Demanded,
    cursor: Cursor,
    /// What belongs to the event at the cursor was told up to here, or is not told: logs, or transactions.
    told: usize,
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
        group: GroupId,
        _held: HeldCriteria,
    },
    /// `transactionReceipts`.
    Receipts {
        /// Which of them.
        criteria: ReceiptCriteria,
        /// They are fetched while this is held.
        _held: HeldCriteria,
    },
    /// `alchemy_minedTransactions`.
    Mined {
        /// Which of them, and how.
        criteria: MinedCriteria,
        /// They are fetched while this is held.
        _held: HeldCriteria,
    },
}

/// The subscriptions of a connection that read streams.
#[derive(Debug, Default)]
struct StreamSubscriptions {
    all: Vec<StreamSubscription>,
    /// As that of the others.
    place: Option<usize>,
    /// The one that is looked at first: each has its turn, however much another one has to tell.
    first: usize,
}

#[derive(Debug)]
struct StreamSubscription {
    id: SubscriptionId,
    text: Bytes,
    ticket: StreamTicket,
    is_active: bool,
}

/// A step over one event of the journal.
enum SubscriptionStep {
    /// This, which belongs to the event before the place `told`; zero where nothing of the event can follow.
    Tell { event: SubscriberEvent, told: usize },
    /// The event means nothing here, and is passed.
    Passed,
    /// The part of the block that is told is not known yet.
    Awaits,
}

/// One message of a connection, and what it subscribes to.
#[derive(Debug)]
pub struct SubscriberMessage<'a> {
    /// The connection.
    pub(crate) subscriber: &'a Subscriber,
    subscribed: Mutex<Vec<SubscriptionId>>,
}

impl<'a> SubscriberMessage<'a> {
    /// A message that came on the connection of `subscriber`.
    pub fn new(subscriber: &'a Subscriber) -> Self {
        Self { subscriber, subscribed: Mutex::default() }
    }

    /// Adds a subscription, which is silent until it is [activated](Subscriber::activate); false where the
    /// connection has as many as it may.
    pub(crate) fn add(
        &self,
        id: SubscriptionId,
        kind: SubscriptionKind,
        demanded: Demanded,
        cursor: Cursor,
    ) -> bool {
        self.note(id, self.subscriber.add(id, kind, demanded, cursor))
    }

    /// As [`SubscriberMessage::add`], of a subscription that reads a stream.
    pub(crate) fn add_stream(&self, id: SubscriptionId, ticket: StreamTicket) -> bool {
        self.note(id, self.subscriber.add_stream(id, ticket))
    }

    fn note(&self, id: SubscriptionId, is_added: bool) -> bool {
        if is_added {
            self.subscribed.lock().push(id);
        }
        is_added
    }

    /// The subscriptions that the answer tells the client the ids of: to be
    /// [activated](Subscriber::activate) when the answer has its place among what is sent.
    pub fn into_subscribed(self) -> Vec<SubscriptionId> {
        self.subscribed.into_inner()
    }
}

impl Subscriber {
    /// A connection without subscriptions.
    pub(crate) fn new(chain: Arc<ServedChain>, hubs: SubscriberHubs) -> Self {
        Self { chain, hubs, state: Mutex::default() }
    }

    /// Whether it was opened to this chain: the settings may have given its path another one since.
    pub(crate) fn is_of(&self, chain: &ServedChain) -> bool {
        Arc::ptr_eq(&self.chain.subscriptions, &chain.subscriptions)
    }

    /// The chain that it leads to, as the settings name it.
    pub fn chain_name(&self) -> &str {
        &self.chain.name.name
    }

    /// Whether it is subscribed to anything, or about to be.
    pub fn is_subscribed(&self) -> bool {
        let state = self.state.lock();
        !(state.subscriptions.is_empty() && state.streams.all.is_empty())
    }

    /// Whether it has as many subscriptions as a connection may.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().is_full()
    }

    fn add(
        &self,
        id: SubscriptionId,
        kind: SubscriptionKind,
        demanded: Demanded,
        cursor: Cursor,
    ) -> bool {
        let mut state = self.state.lock();
        // Asked again: many calls of a connection may have waited for the first block.
        if state.is_full() {
            return false;
        }
        if state.place.is_none() {
            state.place = Some(self.hubs.blocks.enter(&self.chain.subscriptions.published));
            state.position = Some(self.chain.subscriptions.enter());
        }
        self.chain.subscriptions.counts.open(kind.name());
        let text = Bytes::copy_from_slice(id.to_string().as_bytes());
        if state.subscriptions.is_empty() {
            // Most connections have one, and a vector begins with room for four.
            state.subscriptions.reserve_exact(1);
        }
        state.subscriptions.push(Subscription {
            id,
            text,
            kind,
            _demanded: demanded,
            cursor,
            told: 0,
            since: cursor,
            is_active: false,
        });
        true
    }

    fn add_stream(&self, id: SubscriptionId, ticket: StreamTicket) -> bool {
        let mut state = self.state.lock();
        if state.is_full() {
            return false;
        }
        let streams = &mut state.streams;
        if streams.place.is_none() {
            streams.place = Some(self.hubs.streams.enter(&self.chain.streams.published));
        }
        self.chain.subscriptions.counts.open(ticket.kind());
        let text = Bytes::copy_from_slice(id.to_string().as_bytes());
        streams.all.push(StreamSubscription { id, text, ticket, is_active: false });
        true
    }

    /// The client is told these ids before anything else that is sent from now on.
    pub fn activate(&self, ids: &[SubscriptionId]) {
        let mut state = self.state.lock();
        state.round = None;
        for subscription in &mut state.subscriptions {
            subscription.is_active |= ids.contains(&subscription.id);
        }
        for subscription in &mut state.streams.all {
            subscription.is_active |= ids.contains(&subscription.id);
        }
    }

    /// Holds the place of a subscription until that ends.
    pub(crate) fn hold(&self, id: SubscriptionId, place: HeldPlace) {
        if !place.is_empty() {
            self.state.lock().held.push((id, place));
        }
    }

    /// Ends a subscription; false if there is none of this id.
    pub(crate) fn remove(&self, id: &SubscriptionId) -> bool {
        let mut state = self.state.lock();
        state.held.retain(|(known, _)| known != id);
        if let Some(place) = state.subscriptions.iter().position(|known| known.id == *id) {
            state.round = None;
            let ended = state.subscriptions.remove(place);
            self.chain.subscriptions.counts.close(ended.kind.name());
        } else if let Some(place) = state.streams.all.iter().position(|known| known.id == *id) {
            let ended = state.streams.all.remove(place);
            self.chain.subscriptions.counts.close(ended.ticket.kind());
        } else {
            return false;
        }
        self.leave_unread(&mut state);
        true
    }

    /// The next notification: in the order of the journal, of each block first the head, then its
    /// logs and receipts; then what the streams tell. A subscription that waits for a part of a block
    /// delays no other one.
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SubscriberEvent> {
        let mut state = self.state.lock();
        match self.poll_blocks(&mut state, cx).or_else(|| self.poll_streams(&mut state, cx)) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }

    fn poll_blocks(
        &self,
        state: &mut SubscriberState,
        cx: &mut Context<'_>,
    ) -> Option<SubscriberEvent> {
        let place = state.place?;
        let subscriptions = &self.chain.subscriptions;
        // Before the journal is looked at, so that nothing is missed.
        self.hubs.blocks.wake_at(place, cx.waker(), self.memory(&state.subscriptions));
        if subscriptions.is_closed() {
            return Some(SubscriberEvent::Resync);
        }
        let journal = subscriptions.reader.load();
        let mut round = state.round.take().or_else(|| state.next_round(None, journal.tip()))?;
        loop {
            while let Some(next) = state.subscriptions.get_mut(round.at) {
                let is_next = next.is_active
                    && next.cursor == round.cursor
                    && next.kind.is_part() == round.is_of_parts;
                if !is_next {
                    round.at += 1;
                    continue;
                }
                match next.advance(&journal, subscriptions) {
                    SubscriptionStep::Tell { event, .. } => {
                        state.round = Some(round);
                        return Some(event);
                    }
                    SubscriptionStep::Passed => {}
                    SubscriptionStep::Awaits => round.at += 1,
                }
            }
            if !round.is_of_parts {
                round = TellRound { is_of_parts: true, at: 0, ..round };
                continue;
            }
            round = state.next_round(Some(round.cursor), journal.tip())?;
        }
    }

    fn poll_streams(
        &self,
        state: &mut SubscriberState,
        cx: &mut Context<'_>,
    ) -> Option<SubscriberEvent> {
        let streams = &mut state.streams;
        // Before the streams are looked at, so that nothing is missed.
        self.hubs.streams.wake_at(streams.place?, cx.waker(), self.memory(&streams.all));
        if self.chain.subscriptions.is_closed() {
            return Some(SubscriberEvent::Resync);
        }
        let count = streams.all.len();
        for turn in 0..count {
            let at = (streams.first + turn) % count;
            let next = &mut streams.all[at];
            if next.is_active
                && let Some(event) = next.ticket.next(&next.text)
            {
                streams.first = (at + 1) % count;
                return Some(event);
            }
        }
        None
    }

    fn memory<T>(&self, subscriptions: &[T]) -> SubscriberMemory {
        SubscriberMemory {
            state: FetchAddress::of(self),
            subscription: FetchAddress::of(subscriptions),
        }
    }

    /// Gives back the places from which nothing is read any more.
    fn leave_unread(&self, state: &mut SubscriberState) {
        if state.subscriptions.is_empty()
            && let Some(place) = state.place.take()
        {
            self.hubs.blocks.leave(place);
            state.position = None;
        }
        if state.streams.all.is_empty()
            && let Some(place) = state.streams.place.take()
        {
            self.hubs.streams.leave(place);
        }
    }
}

impl SubscriberMemory {
    pub(crate) const STATE_BYTES: usize = size_of::<Subscriber>();
    pub(crate) const SUBSCRIPTION_BYTES: usize = size_of::<Subscription>();
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut());
        for ended in state.subscriptions.drain(..) {
            self.chain.subscriptions.counts.close(ended.kind.name());
        }
        for ended in state.streams.all.drain(..) {
            self.chain.subscriptions.counts.close(ended.ticket.kind());
        }
        self.leave_unread(&mut state);
    }
}

impl SubscriberState {
    fn is_full(&self) -> bool {
        self.subscriptions.len() + self.streams.all.len() >= SUBSCRIPTIONS_MAX
    }

    /// The round at the lowest place above `last` and below the journal's tip, if a subscription is
    /// there.
    fn next_round(&self, last: Option<Cursor>, tip: Cursor) -> Option<TellRound> {
        let places = self.subscriptions.iter().filter(|it| it.is_active).map(|it| it.cursor);
        let ahead = places.filter(|at| *at < tip && last.is_none_or(|last| *at > last));
        let next = ahead.min();
        if let Some(position) = &self.position {
            position.store(next.unwrap_or(tip).sequence(), Relaxed);
        }
        next.map(|cursor| TellRound { cursor, is_of_parts: false, at: 0 })
    }
}

impl SubscriptionKind {
    fn name(&self) -> KindName {
        match self {
            Self::Heads => KindName::NewHeads,
            Self::Logs { .. } => KindName::Logs,
            Self::Receipts { .. } => KindName::TransactionReceipts,
            Self::Mined { .. } => KindName::AlchemyMinedTransactions,
        }
    }

    /// Whether it is told a part of the block that is fetched after the header.
    fn is_part(&self) -> bool {
        match self {
            Self::Heads => false,
            Self::Logs { .. } | Self::Receipts { .. } | Self::Mined { .. } => true,
        }
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
                let event = match lagged.missed {
                    Some(_) => SubscriberEvent::TooSlow,
                    None => SubscriberEvent::Resync,
                };
                return SubscriptionStep::Tell { event, told: 0 };
            }
        };
        let step = event.map_or(SubscriptionStep::Passed, |event| match &self.kind {
            SubscriptionKind::Heads => match event.added() {
                Some(block) => self.tell(block.header().notification(), 0),
                None => SubscriptionStep::Passed,
            },
            SubscriptionKind::Logs { group, .. } => self.tell_log(event, *group, subscriptions),
            SubscriptionKind::Receipts { criteria, .. } => self.tell_receipts(event, criteria),
            SubscriptionKind::Mined { criteria, .. } => self.tell_transaction(event, criteria),
        });
        match &step {
            SubscriptionStep::Awaits => {}
            SubscriptionStep::Tell { told: told @ 1.., .. } => self.told = *told,
            SubscriptionStep::Tell { .. } | SubscriptionStep::Passed => {
                self.told = 0;
                self.cursor = self.cursor.next();
            }
        }
        step
    }

    /// The log of an event behind those that were told.
    fn tell_log(
        &self,
        event: &ChainEvent,
        group: GroupId,
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
            return SubscriptionStep::Tell { event: SubscriberEvent::TooSlow, told: self.told + 1 };
        };
        match matches.of(group).nth(self.told) {
            None => SubscriptionStep::Passed,
            Some(place) if is_removed => {
                self.tell(&logs.removed_notification(place), self.told + 1)
            }
            Some(place) => self.tell(&logs.notification(place), self.told + 1),
        }
    }

    /// The receipts of a block that was added; a removal is not told, as at geth.
    fn tell_receipts(&self, event: &ChainEvent, criteria: &ReceiptCriteria) -> SubscriptionStep {
        let Some(block) = event.added() else { return SubscriptionStep::Passed };
        match block.receipts() {
            None => SubscriptionStep::Awaits,
            Some(PartState::Unneeded) => SubscriptionStep::Passed,
            Some(PartState::Known(receipts)) => match receipts.notification(criteria) {
                Some(notification) => self.tell(&notification, 0),
                None => SubscriptionStep::Passed,
            },
        }
    }

    /// The transaction of an event that matches next, behind those that were told. Those of a block that was
    /// taken back are told again where the client wants that and was told them.
    fn tell_transaction(&self, event: &ChainEvent, criteria: &MinedCriteria) -> SubscriptionStep {
        let (block, is_removed) = match event {
            ChainEvent::Began(_) => return SubscriptionStep::Passed,
            ChainEvent::Added(block) => (block, false),
            ChainEvent::Removed(block) => (block, true),
        };
        let is_told = criteria.includes_removed() && block.sequence() >= self.since.sequence();
        if is_removed && !is_told {
            return SubscriptionStep::Passed;
        }
        match block.transactions() {
            None => SubscriptionStep::Awaits,
            Some(PartState::Unneeded) => SubscriptionStep::Passed,
            Some(PartState::Known(all)) => match all.next_match(criteria, self.told) {
                Some(place) => self.tell(&all.notification(criteria, place, is_removed), place + 1),
                None => SubscriptionStep::Passed,
            },
        }
    }

    fn tell(&self, notification: &Notification, told: usize) -> SubscriptionStep {
        SubscriptionStep::Tell { event: SubscriberEvent::of(&self.text, notification), told }
    }
}
