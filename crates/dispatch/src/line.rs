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
//! A call that its own method's pause or rate holds ([`Bound::is_of_method`]) stands **aside**
//! there: calls of other methods go past it, and those of its method behind it. At most
//! [`ASIDE_MAX`] stand aside everywhere, so that one method that is refused leaves places to others.
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
use wellhead_eth::{CostClass, Effect, MethodIndex, MethodRow};
use wellhead_route::Roster;
use wellhead_upstream::{Bound, Held, InFlight, Slot, Upstream, UpstreamSet};

use crate::now;

/// Calls that wait in one lane at most. One more is refused, or the last of them is.
///
/// Many, as all the clients of a busy start may come before the first answer has taught
/// how many calls an upstream bears.
pub const PLACES_MAX: usize = 8_192;

/// Of these at most so many wait for a bound of their own method alone.
const ASIDE_MAX: usize = PLACES_MAX / 2;

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

/// What of a call its place in line depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    priority: Priority,
    /// `None` for a batch, whose calls are of any method.
    method: Option<MethodIndex>,
}

impl Claim {
    /// That of calls of quick methods in one exchange.
    pub(crate) const BATCH: Self = Self { priority: Priority::Usual, method: None };

    pub(crate) fn of(row: &MethodRow) -> Self {
        Self { priority: Priority::of(row), method: Some(row.index) }
    }
}

/// Upstreams that hold a call, and the bound that ends first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldBy {
    pub(crate) slots: UpstreamSet,
    /// Those of them that hold its method alone.
    aside: UpstreamSet,
    pub(crate) first: Held,
}

impl HeldBy {
    /// `before` and this one.
    pub(crate) fn and(before: Option<Self>, slot: Slot, held: Held) -> Self {
        let none = UpstreamSet::default();
        let mut all = before.unwrap_or(Self { slots: none, aside: none, first: held });
        all.slots.insert(slot);
        all.aside = all.aside.without([slot].into_iter().collect());
        if held.bound.is_of_method() {
            all.aside.insert(slot);
        }
        if held.wait < all.first.wait {
            all.first = held;
        }
        all
    }

    /// The others than these; `None` when there are none.
    pub(crate) fn without(self, slots: UpstreamSet) -> Option<Self> {
        self.only(self.slots.without(slots))
    }

    /// Those of these; `None` when there are none.
    pub(crate) fn only(self, slots: UpstreamSet) -> Option<Self> {
        let all = self.among(slots);
        (!all.slots.is_empty()).then_some(all)
    }

    /// Those of these, which may be none.
    pub(crate) fn among(self, slots: UpstreamSet) -> Self {
        Self { slots: self.slots.and(slots), aside: self.aside.and(slots), ..self }
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
    /// Where a bound of its method alone holds it.
    aside: UpstreamSet,
    method: Option<MethodIndex>,
    wake: Arc<Notify>,
}

impl Waiter {
    /// Where calls of `method` have to wait until it has gone.
    fn before(&self, method: Option<MethodIndex>) -> UpstreamSet {
        if self.method == method { self.slots } else { self.slots.without(self.aside) }
    }

    /// Whether it holds up calls of its own method alone.
    fn is_aside(&self) -> bool {
        self.slots.without(self.aside).is_empty()
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<Place, Waiter>,
    next: u64,
    /// How many wait for more than a bound of their method, by priority.
    counts: [u32; Priority::COUNT],
    /// How many wait for that alone, by method.
    aside: BTreeMap<Option<MethodIndex>, u32>,
    /// How many wait for that at some upstream, perhaps beside others.
    aside_somewhere: u32,
    /// What each upstream said last to the call that was first in line for it, of all or of one
    /// method.
    said: BTreeMap<(Slot, Option<MethodIndex>), Held>,
    /// Where the patient one is that was raised last, while it waits.
    raised: Option<Place>,
}

impl State {
    /// How many wait that go before a newcomer.
    fn before(&self, claim: Claim) -> u32 {
        let of_method = self.aside.get(&claim.method).copied().unwrap_or_default();
        self.counts[..=claim.priority as usize].iter().sum::<u32>() + of_method
    }

    fn count(
        &mut self,
        priority: Priority,
        method: Option<MethodIndex>,
        is_aside: bool,
    ) -> &mut u32 {
        match is_aside {
            true => self.aside.entry(method).or_default(),
            false => &mut self.counts[priority as usize],
        }
    }

    fn remove(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiting.remove(&place)?;
        let count = self.count(place.0, waiter.method, waiter.is_aside());
        *count -= 1;
        if *count == 0 && waiter.is_aside() {
            self.aside.remove(&waiter.method);
        }
        self.aside_somewhere -= u32::from(!waiter.aside.is_empty());
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
        *self.count(priority, waiter.method, waiter.is_aside()) += 1;
        self.aside_somewhere += u32::from(!waiter.aside.is_empty());
        self.waiting.insert(place, waiter);
        place
    }

    /// Notes what `slot` said to the waiter at `place`. Where that is of its method alone, those
    /// behind it may have their turn.
    fn say(&mut self, place: Place, slot: Slot, held: Held) {
        let is_of_method = held.bound.is_of_method();
        let Some(waiter) = self.waiting.get_mut(&place) else { return };
        let (method, was_aside) = (waiter.method, waiter.is_aside());
        let was_somewhere = !waiter.aside.is_empty();
        // A batch is held for one of its methods, and it is not known which.
        if !is_of_method || method.is_some() {
            self.said.insert((slot, method.filter(|_| is_of_method)), held);
        }
        if waiter.aside.contains(slot) == is_of_method {
            return;
        }
        let this = [slot].into_iter().collect();
        waiter.aside = waiter.aside.without(this);
        if is_of_method {
            waiter.aside.insert(slot);
        }
        let (is_aside, is_somewhere) = (waiter.is_aside(), !waiter.aside.is_empty());
        self.aside_somewhere += u32::from(is_somewhere);
        self.aside_somewhere -= u32::from(was_somewhere);
        if is_aside != was_aside {
            *self.count(place.0, method, was_aside) -= 1;
            *self.count(place.0, method, is_aside) += 1;
        }
        if is_of_method && let Some(next) = self.first_open(slot) {
            next.wake.notify_one();
        }
    }

    /// The first for `slot` that no bound of its method holds there, as far as is known.
    fn first_open(&self, slot: Slot) -> Option<&Waiter> {
        let is_open = |it: &&Waiter| it.slots.contains(slot) && !it.aside.contains(slot);
        self.waiting.values().find(is_open)
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
        claim: Claim,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, Held>,
        now: Instant,
    ) -> Result<InFlight, Held> {
        let held = match self.held_by_others(upstream.slot(), claim) {
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
        claim: Claim,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, Held>,
        roster: &Roster,
        latest: Instant,
    ) -> Result<(Slot, InFlight), NoTurn> {
        let no_turn = |retry_after: Duration| NoTurn { bound: by.first.bound, retry_after };
        let priority = claim.priority;
        let Some(mut ticket) = self.join(by, claim) else {
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
                        self.state.lock().say(ticket.place, slot, held);
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
        if let Some(waiter) = state.first_open(slot) {
            waiter.wake.notify_one();
        }
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn held_by_others(&self, slot: Slot, claim: Claim) -> Option<Held> {
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let mut before = state.waiting.range(..(claim.priority, u64::MAX));
        let (_, waiter) = before.find(|(_, it)| it.before(claim.method).contains(slot))?;
        // Behind those of its method that stand aside it stands aside, too.
        if waiter.aside.contains(slot)
            && claim.method.is_some()
            && let Some(held) = state.said.get(&(slot, claim.method))
        {
            return Some(*held);
        }
        let said = state.said.get(&(slot, None));
        let (wait, pace) = said.map_or_else(Default::default, |held| (held.wait, held.pace));
        let wait = wait.saturating_add(pace.saturating_mul(state.before(claim)));
        Some(Held { bound: Bound::Line, wait, pace })
    }

    /// A place at the end of its priority; `None` when there is none to be had.
    fn join(&self, by: HeldBy, claim: Claim) -> Option<Ticket<'_>> {
        let mut state = self.state.lock();
        let wake = Arc::new(Notify::new());
        let HeldBy { slots, aside, .. } = by;
        let waiter = Waiter { slots, aside, method: claim.method, wake: Arc::clone(&wake) };
        if waiter.is_aside() && state.aside.values().sum::<u32>() as usize >= ASIDE_MAX {
            return None;
        }
        if state.waiting.len() >= PLACES_MAX {
            let (last, _) = state.waiting.last_key_value()?;
            let last = Some(*last).filter(|last| last.0 > claim.priority)?;
            // It finds its place gone when it wakes.
            state.remove(last)?.wake.notify_one();
        }
        let before = state.before(claim);
        let place = state.insert(claim.priority, waiter);
        self.len.store(state.waiting.len(), Ordering::Relaxed);
        Some(Ticket { line: self, place, before, slots, method: claim.method, wake })
    }

    /// Where it is its turn; `None` when its place is gone.
    fn turn(&self, ticket: &Ticket<'_>) -> Option<UpstreamSet> {
        let state = self.state.lock();
        state.waiting.contains_key(&ticket.place).then(|| {
            let mut turn = ticket.slots;
            // Most wait for the same upstreams: the first of them ends the search.
            for waiter in state.waiting.range(..ticket.place).map(|(_, waiter)| waiter) {
                turn = turn.without(waiter.before(ticket.method));
                if turn.is_empty() {
                    break;
                }
            }
            turn
        })
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
    method: Option<MethodIndex>,
    wake: Arc<Notify>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.remove(self.place);
        self.line.len.store(state.waiting.len(), Ordering::Relaxed);
        // Whoever is first now, at any of its upstreams, has something to look at.
        let mut left = self.slots;
        // Those of its method that stand aside wait for it wherever it stood.
        let mut left_aside = match state.aside_somewhere {
            0 => UpstreamSet::default(),
            _ => self.slots,
        };
        for waiter in state.waiting.values() {
            if left.is_empty() && left_aside.is_empty() {
                break;
            }
            let open = waiter.slots.without(waiter.aside);
            let is_next_aside =
                waiter.method == self.method && !waiter.slots.and(left_aside).is_empty();
            if !open.and(left).is_empty() || is_next_aside {
                waiter.wake.notify_one();
                left = left.without(open);
            }
            if is_next_aside {
                left_aside = left_aside.without(waiter.slots);
            }
        }
    }
}
