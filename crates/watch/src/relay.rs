//! Subscriptions of which only upstreams know: they are kept open at some upstreams while a client
//! wants them, and what these push goes to a sink.
//!
//! A relay is opened with [`Relays::open`] and ends when its [`RelayHandle`] is dropped. The loop of
//! each upstream with a WebSocket bids for a seat, and the cheapest get one, or all that are free of
//! charge ([`SeatRule`]). A feed that ends is replaced at once by the next upstream's and is opened
//! again after a pause, whatever the breaker of its upstream says: that one judges calls. Each feed
//! says which chain it is on before it is believed. What it pushes is paid from the upstream's budget.
//!
//! Not promised: that nothing is missed while a feed is replaced. [`RelaySink::note_gap`] tells of that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_upstream::{Slot, UpstreamSet};

use crate::seats::{FeedSeats, SeatRule};

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
    /// Each upstream that could be asked said that it does not offer it, but for those that cannot be
    /// reached.
    Refused,
    /// No upstream of the chain has a WebSocket that may be used.
    NoFeeds,
}

/// The relays of one chain.
#[derive(Debug, Default)]
pub struct Relays {
    open: Mutex<Vec<Arc<Relay>>>,
    candidates: Mutex<RelayCandidates>,
    changed: Notify,
}

/// The upstreams that could tell a relay.
#[derive(Debug, Clone, Copy, Default)]
struct RelayCandidates {
    /// They have a WebSocket that may be used.
    all: UpstreamSet,
    /// Those of them that are verified, so that a feed is opened.
    followed: UpstreamSet,
}

/// One relay.
#[derive(Debug)]
pub(crate) struct Relay {
    /// The parameters of its `eth_subscribe`, as JSON.
    pub(crate) subscription: Box<str>,
    pub(crate) sink: Arc<dyn RelaySink>,
    pub(crate) seats: FeedSeats,
    state: Mutex<RelayState>,
    has_ended: AtomicBool,
    news: Notify,
}

#[derive(Debug, Default)]
struct RelayState {
    telling: UpstreamSet,
    refusing: UpstreamSet,
    /// The last attempt to open a feed failed.
    failing: UpstreamSet,
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
        rule: SeatRule,
        sink: Arc<dyn RelaySink>,
    ) -> RelayHandle {
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

    /// Notes that an upstream has a WebSocket that may be used.
    pub(crate) fn add_candidate(&self, slot: Slot) {
        self.candidates.lock().all.insert(slot);
    }

    /// Notes that feeds of this upstream are opened, or are not any more.
    pub(crate) fn set_followed(&self, slot: Slot, is_followed: bool) {
        let followed = &mut self.candidates.lock().followed;
        match is_followed {
            true => followed.insert(slot),
            false => *followed = followed.without(UpstreamSet::from_iter([slot])),
        }
    }

    /// Forgets an upstream whose loop has ended.
    pub(crate) fn vacate(&self, slot: Slot) {
        let mut candidates = self.candidates.lock();
        let gone = UpstreamSet::from_iter([slot]);
        candidates.all = candidates.all.without(gone);
        candidates.followed = candidates.followed.without(gone);
        drop(candidates);
        for relay in self.open.lock().iter() {
            let mut state = relay.state.lock();
            state.refusing = state.refusing.without(gone);
            state.failing = state.failing.without(gone);
        }
    }

    /// Those that are open and not in `known`.
    pub(crate) fn news_for(&self, known: &[Arc<Relay>]) -> Vec<Arc<Relay>> {
        let open = self.open.lock();
        let is_known = |relay: &Arc<Relay>| known.iter().any(|it| Arc::ptr_eq(it, relay));
        open.iter().filter(|relay| !is_known(relay)).cloned().collect()
    }

    /// Resolves when a relay was opened or has ended after this call, polled or not.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }
}

impl RelayHandle {
    /// What has become of the relay.
    pub fn status(&self) -> RelayStatus {
        let candidates = *self.relays.candidates.lock();
        let state = self.relay.state.lock();
        if !state.telling.is_empty() {
            RelayStatus::Told
        } else if candidates.all.is_empty() {
            RelayStatus::NoFeeds
        } else if !state.refusing.is_empty()
            && candidates.followed.without(state.refusing.or(state.failing)).is_empty()
        {
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
    /// Whether its handle was dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Notes that the upstream in `slot` confirmed the subscription, until this is dropped.
    pub(crate) fn tells(&self, slot: Slot) -> Telling<'_> {
        let mut state = self.state.lock();
        let this = UpstreamSet::from_iter([slot]);
        state.telling.insert(slot);
        state.refusing = state.refusing.without(this);
        state.failing = state.failing.without(this);
        drop(state);
        self.seats.note_open(slot);
        self.news.notify_waiters();
        Telling { relay: self, slot }
    }

    /// Notes that the upstream does not offer it.
    pub(crate) fn note_refused(&self, slot: Slot) {
        let mut state = self.state.lock();
        state.refusing.insert(slot);
        state.failing = state.failing.without(UpstreamSet::from_iter([slot]));
        drop(state);
        self.news.notify_waiters();
    }

    /// Notes that its feed could not be opened, or ended.
    pub(crate) fn note_failed(&self, slot: Slot) {
        self.state.lock().failing.insert(slot);
        self.news.notify_waiters();
    }
}

/// An upstream tells a relay, until this is dropped.
pub(crate) struct Telling<'a> {
    relay: &'a Relay,
    slot: Slot,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let mut state = self.relay.state.lock();
        state.telling = state.telling.without(UpstreamSet::from_iter([self.slot]));
        let is_silent = state.telling.is_empty();
        drop(state);
        if is_silent && !self.relay.has_ended() {
            self.relay.sink.note_gap();
        }
        self.relay.news.notify_waiters();
    }
}
