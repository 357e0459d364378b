//! Where calls wait for their turn at upstreams that are at a bound.
//!
//! A call whose candidates are all held stands in line until one of them lets it go. There
//! are [`PLACES_MAX`] places in a lane. Whoever comes when they are taken, or would not
//! be served before its deadline, is refused at once, and told when to come back: waiting
//! for nothing helps nobody. Writes go first, logs and traces last, and of a full line the
//! last gives way to whoever goes before it. So that the last are not never, the first of
//! them that has waited for [`PATIENCE`] goes to the end of those that are usual, one at a
//! time: of a round of the others it has one turn.
//!
//! A call waits for some upstreams, and it is its turn at those of them for which nobody
//! before it waits; so one that waits for a slow bound holds up nobody who goes elsewhere.
//! Whose turn it is looks when the bound was said to end, or when a call ended; newcomers
//! stand behind all who wait with their priority or a better one.
//!
//! Waiting costs nobody else anything: there is no task, and an empty line is one load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_eth::{CostClass, Effect, MethodRow};
use wellhead_route::Roster;
use wellhead_upstream::{Bound, Held, InFlight, Slot, Upstream, UpstreamSet};

use crate::now;

/// Calls that wait in one lane at most. One more is refused, or the last of them is.
///
/// Many, as all the clients of a busy start may come before the first answer has taught
/// how many calls an upstream bears.
pub const PLACES_MAX: usize = 8_192;

/// So long the patient wait before one of them may be raised.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Writes: there is no other way for them, and they are few.
    Write,
    /// What an application waits for.
    Usual,
    /// What reads much, and is patient.
    Bulk,
}

impl Priority {
    const COUNT: usize = 3;

    pub(crate) fn of(row: &MethodRow) -> Self {
        match (row.effect, row.class) {
            (Effect::Write | Effect::Broadcast, _) | (_, CostClass::Write) => Self::Write,
            (_, CostClass::Logs | CostClass::Trace) => Self::Bulk,
            (_, CostClass::Light | CostClass::State | CostClass::Block | CostClass::Call) => {
                Self::Usual
            }
        }
    }
}

/// Upstreams that hold a call, and the bound that ends first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldBy {
    pub(crate) slots: UpstreamSet,
    pub(crate) first: Held,
}

impl HeldBy {
    /// `before` and this one.
    pub(crate) fn and(before: Option<Self>, slot: Slot, held: Held) -> Self {
        let mut all = before.unwrap_or(Self { slots: UpstreamSet::default(), first: held });
        all.slots.insert(slot);
        if held.wait < all.first.wait {
            all.first = held;
        }
        all
    }

    /// The others than these; `None` when there are none.
    pub(crate) fn without(self, slots: UpstreamSet) -> Option<Self> {
        let slots = self.slots.without(slots);
        (!slots.is_empty()).then_some(Self { slots, ..self })
    }
}

/// Nobody would let the call go in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoTurn {
    /// What holds it.
    pub(crate) bound: Bound,
    /// When it may be worth to come back.
    pub(crate) retry_after: Duration,
}

/// Sorted by who goes first.
type Place = (Priority, u64);

#[derive(Debug)]
struct Waiter {
    slots: UpstreamSet,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<Place, Waiter>,
    next: u64,
    /// How many wait, by priority.
    counts: [u32; Priority::COUNT],
    /// What each upstream said last to whoever was first in line for it.
    said: BTreeMap<Slot, Held>,
    /// Where the patient one is that was raised last, while it waits.
    raised: Option<Place>,
}

impl State {
    /// How many wait that go before a newcomer of this priority.
    fn before(&self, priority: Priority) -> u32 {
        self.counts[..=priority as usize].iter().sum()
    }

    fn remove(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiting.remove(&place)?;
        self.counts[place.0 as usize] -= 1;
        if self.raised == Some(place) {
            self.raised = None;
        }
        // The next of the patient may have waited for long enough.
        if self.raised.is_none()
            && let Some((_, next)) = self.waiting.range((Priority::Bulk, 0)..).next()
        {
            next.wake.notify_one();
        }
        Some(waiter)
    }

    fn insert(&mut self, priority: Priority, waiter: Waiter) -> Place {
        let place = (priority, self.next);
        self.next += 1;
        self.counts[priority as usize] += 1;
        self.waiting.insert(place, waiter);
        place
    }

    /// Moves the waiter at `place` to the end of those that are usual, if it is the first of
    /// the patient and none of them was raised before. Where it is then.
    fn raise(&mut self, place: Place) -> Place {
        let mut patient = self.waiting.range((Priority::Bulk, 0)..);
        if self.raised.is_some() || patient.next().is_none_or(|(first, _)| *first != place) {
            return place;
        }
        let Some(waiter) = self.remove(place) else { return place };
        let place = self.insert(Priority::Usual, waiter);
        self.raised = Some(place);
        place
    }
}

/// The line of one lane.
#[derive(Debug, Default)]
pub(crate) struct Line {
    state: Mutex<State>,
    len: AtomicUsize,
}

impl Line {
    /// Lets a call go that does not wait yet, unless others wait for the same upstream.
    pub(crate) fn admit(
        &self,
        upstream: &Arc<Upstream>,
        priority: Priority,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, Held>,
        now: Instant,
    ) -> Result<InFlight, Held> {
        let held = match self.held_by_others(upstream.slot(), priority) {
            Some(held) => held,
            None => match try_admit(upstream, now) {
                Ok(in_flight) => return Ok(in_flight),
                Err(held) => held,
            },
        };
        upstream.note_held(held.bound);
        Err(held)
    }

    /// Waits until one of `candidates` that is in `by` lets the call go; until `latest` at
    /// the latest. Cancel-safe: who goes away leaves the line.
    pub(crate) async fn wait(
        &self,
        candidates: &[Slot],
        by: HeldBy,
        priority: Priority,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, Held>,
        roster: &Roster,
        latest: Instant,
    ) -> Result<(Slot, InFlight), NoTurn> {
        let no_turn = |retry_after: Duration| NoTurn { bound: by.first.bound, retry_after };
        let Some(mut ticket) = self.join(by.slots, priority) else {
            return Err(no_turn(by.first.wait + by.first.pace * PLACES_MAX as u32));
        };
        let mut first = by.first;
        // What the line itself said counts those before already.
        let mut before = if first.bound == Bound::Line { 0 } else { ticket.before };
        let is_patient_until =
            now().checked_add(PATIENCE).filter(|_| priority == Priority::Bulk).unwrap_or(latest);
        loop {
            let began = now();
            // Raised, one that waits for the share of its like would hold up all others.
            if priority == Priority::Bulk
                && began >= is_patient_until
                && first.bound != Bound::BulkyShare
            {
                ticket.place = self.state.lock().raise(ticket.place);
            }
            let Some(turn) = self.turn(&ticket) else { return Err(no_turn(first.wait)) };
            let mut soonest: Option<Held> = None;
            for slot in candidates.iter().copied().filter(|slot| turn.contains(*slot)) {
                match try_admit(roster.upstream(slot), began) {
                    Ok(in_flight) => return Ok((slot, in_flight)),
                    Err(held) => {
                        self.say(slot, held);
                        if soonest.is_none_or(|soonest| held.wait < soonest.wait) {
                            soonest = Some(held);
                        }
                    }
                }
            }
            // Where it is not its turn yet, what the line said holds.
            if let Some(soonest) = soonest
                && (by.slots.without(turn).is_empty() || soonest.wait < first.wait)
            {
                (first, before) = (soonest, 0);
            }
            let expected = first.wait.saturating_add(first.pace.saturating_mul(before));
            if began.checked_add(expected).is_none_or(|turn| turn >= latest) {
                return Err(no_turn(expected));
            }
            // Without a turn there is nothing to look at before somebody leaves.
            let mut until = soonest.map_or(latest, |held| latest.min(began + held.wait));
            if began < is_patient_until {
                until = until.min(is_patient_until);
            }
            let _woken_or_due = tokio::time::timeout_at(until.into(), ticket.wake.notified()).await;
        }
    }

    /// Tells whoever is first in line for `slot` that a call there ended.
    pub(crate) fn freed(&self, slot: Slot) {
        if self.is_empty() {
            return;
        }
        let state = self.state.lock();
        if let Some(waiter) = state.waiting.values().find(|it| it.slots.contains(slot)) {
            waiter.wake.notify_one();
        }
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn held_by_others(&self, slot: Slot, priority: Priority) -> Option<Held> {
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let mut before = state.waiting.range(..(priority, u64::MAX));
        before.find(|(_, waiter)| waiter.slots.contains(slot))?;
        let (wait, pace) =
            state.said.get(&slot).map_or_else(Default::default, |held| (held.wait, held.pace));
        let wait = wait.saturating_add(pace.saturating_mul(state.before(priority)));
        Some(Held { bound: Bound::Line, wait, pace })
    }

    /// A place at the end of its priority; `None` when there is none to be had.
    fn join(&self, slots: UpstreamSet, priority: Priority) -> Option<Ticket<'_>> {
        let mut state = self.state.lock();
        if state.waiting.len() >= PLACES_MAX {
            let (last, _) = state.waiting.last_key_value()?;
            let last = Some(*last).filter(|last| last.0 > priority)?;
            // It finds its place gone when it wakes.
            state.remove(last)?.wake.notify_one();
        }
        let (before, wake) = (state.before(priority), Arc::new(Notify::new()));
        let place = state.insert(priority, Waiter { slots, wake: Arc::clone(&wake) });
        self.len.store(state.waiting.len(), Ordering::Relaxed);
        Some(Ticket { line: self, place, before, slots, wake })
    }

    /// Where it is its turn; `None` when its place is gone.
    fn turn(&self, ticket: &Ticket<'_>) -> Option<UpstreamSet> {
        let state = self.state.lock();
        state.waiting.contains_key(&ticket.place).then(|| {
            let mut turn = ticket.slots;
            // Most wait for the same upstreams: the first of them ends the search.
            for waiter in state.waiting.range(..ticket.place).map(|(_, waiter)| waiter) {
                turn = turn.without(waiter.slots);
                if turn.is_empty() {
                    break;
                }
            }
            turn
        })
    }

    fn say(&self, slot: Slot, held: Held) {
        self.state.lock().said.insert(slot, held);
    }
}

/// When the turn has to come at the latest, so that there is time for the answer: one that
/// comes later would be taken from others for nothing. What has to be left is twice what
/// answers take at whoever takes longest, but no more than a quarter of what there is now.
pub(crate) fn latest_turn(
    candidates: &[Slot],
    by: HeldBy,
    roster: &Roster,
    deadline: Instant,
) -> Instant {
    let now = now();
    let waited_for = candidates.iter().copied().filter(|slot| by.slots.contains(*slot));
    let latencies = waited_for.filter_map(|slot| roster.upstream(slot).latency(now));
    let longest = latencies.max().unwrap_or_default();
    deadline - (longest * 2).min(deadline.saturating_duration_since(now) / 4)
}

/// A place in line, given up when dropped.
struct Ticket<'a> {
    line: &'a Line,
    place: Place,
    /// How many were there when it came.
    before: u32,
    slots: UpstreamSet,
    wake: Arc<Notify>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.remove(self.place);
        self.line.len.store(state.waiting.len(), Ordering::Relaxed);
        // Whoever is first now, at any of its upstreams, has something to look at.
        let mut left = self.slots;
        for waiter in state.waiting.values() {
            if left.is_empty() {
                break;
            }
            if !waiter.slots.and(left).is_empty() {
                waiter.wake.notify_one();
                left = left.without(waiter.slots);
            }
        }
    }
}
