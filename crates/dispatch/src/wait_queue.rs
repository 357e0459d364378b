//! The queue of calls that wait for upstreams at a limit.
//!
//! A call whose candidates are all limited waits in the queue until one of them admits it. A worker's
//! queue has [`PLACES_MAX`] places. A call that finds no place, or that could not be
//! answered before its deadline, is refused at once with the time to retry. Writes go first,
//! logs and traces last; in a full queue the last call is refused for a call with a better position. To
//! avoid starvation of logs and traces, the first of them that has waited for [`PATIENCE`] joins
//! the end of the usual calls, one at a time: it has one turn in a round of the others.
//!
//! A call that its own method's pause or rate delays ([`Bound::lets_others_pass`]) waits **aside**:
//! calls of other methods pass it, and those of its method queue behind it. At most
//! [`ASIDE_MAX`] calls wait aside in all, so that one refused method leaves places to others. A call whose
//! client has its share of an upstream's places waits aside, too: of the calls of its method those of other
//! clients have lower rounds, as a rule, and pass it as well.
//!
//! Among calls of one priority **clients take turns** (start-time fair queueing): each call has a
//! round, which is one more than that of its client's previous call, and at least the
//! current round of its priority: that of the last admitted call, or of the first waiting
//! call, if that is lower. So a client with one call passes a client with thousands of queued calls,
//! wherever the other calls of either go meanwhile, and in a full queue a call of
//! the highest round is refused. Rounds are counted per upstream ([`Rounds`]), because a call may be
//! stuck at one while calls proceed at another; a call that waits for several has its round at the one
//! that has advanced furthest.
//!
//! A call waits for some upstreams, and it is its turn at those for which no call
//! before it waits; so a call that waits for a slow limit does not block calls for other upstreams.
//! The call whose turn it is tries again when the limit should end, or when a call ended. New calls
//! queue behind the calls of their priority with an equal or lower round, and behind those of a better
//! priority.
//!
//! A waiting call has no task, and a call that finds the queue empty pays one atomic load.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_eth::{CostClass, Effect, MethodIndex, MethodRow};
use wellhead_route::Roster;
use wellhead_upstream::{Bound, InFlight, LimitedBy, Slot, Upstream, UpstreamSet};

use crate::client_id::ClientId;
use crate::now;

/// Calls that wait at one worker at most. One more is refused, or the last of them is.
///
/// Many, as all the clients of a busy start may come before the first answer has taught
/// how many calls an upstream bears.
pub const PLACES_MAX: usize = 8_192;

/// Calls in one queue that wait for a bound of their own method alone, at most.
const ASIDE_MAX: usize = PLACES_MAX / 2;

/// The last rounds of at most this many clients are known, and of twice as many as have calls in
/// line. At the bound those without such a call are forgotten, which costs others one turn each.
const CLIENTS_KNOWN_MAX: usize = 128;

/// So long the patient wait before one of them may be raised.
const PATIENCE: Duration = Duration::from_secs(2);

/// The order of calls in the queue.
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
            (_, class) if class.is_heavy() => Self::Bulk,
            _ => Self::Usual,
        }
    }
}

/// What of a call its place in line depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    priority: Priority,
    /// `None` for a batch, whose calls are of any method.
    method: Option<MethodIndex>,
    /// Whose call it is; those of unknown clients take turns as one client.
    client: Option<ClientId>,
}

impl Claim {
    /// That of calls of quick methods in one exchange.
    pub(crate) fn of_batch(client: Option<ClientId>) -> Self {
        Self { priority: Priority::Usual, method: None, client }
    }

    pub(crate) fn of(row: &MethodRow, client: Option<ClientId>) -> Self {
        Self { priority: Priority::of(row), method: Some(row.index), client }
    }
}

/// Upstreams that hold a call, and the bound that ends first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holders {
    pub(crate) slots: UpstreamSet,
    /// Those of them that hold its method alone.
    aside: UpstreamSet,
    pub(crate) first: LimitedBy,
}

impl Holders {
    /// `before` and this one.
    pub(crate) fn and(before: Option<Self>, slot: Slot, held: LimitedBy) -> Self {
        let none = UpstreamSet::default();
        let mut all = before.unwrap_or(Self { slots: none, aside: none, first: held });
        all.slots.insert(slot);
        all.aside = all.aside.without([slot].into_iter().collect());
        if held.bound.lets_others_pass() {
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

/// No upstream would admit the call in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoTurn {
    /// What holds it.
    pub(crate) bound: Bound,
    /// When it may be worth to come back.
    pub(crate) retry_after: Duration,
}

/// Sorted by the order in which calls are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    priority: Priority,
    round: u64,
    number: u64,
}

impl QueuePosition {
    /// Before all of this priority.
    fn first(priority: Priority) -> Self {
        Self { priority, round: 0, number: 0 }
    }
}

/// A round for each upstream and priority; zero where none was noted.
#[derive(Debug, Default, Clone)]
struct Rounds(BTreeMap<Slot, [u64; Priority::COUNT]>);

impl Rounds {
    fn at(&self, slot: Slot, priority: Priority) -> u64 {
        self.0.get(&slot).map_or(0, |rounds| rounds[priority as usize])
    }

    fn of(&mut self, slot: Slot, priority: Priority) -> &mut u64 {
        &mut self.0.entry(slot).or_default()[priority as usize]
    }
}

/// A client's calls in line.
#[derive(Debug, Default, Clone)]
struct Queued {
    count: u32,
    /// Of its next call, if the upstream has not come so far by then.
    next_rounds: Rounds,
}

/// The round of a call, and the upstream at which it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    home: Slot,
    round: u64,
}

#[derive(Debug)]
struct Waiter {
    slots: UpstreamSet,
    /// Where a bound of its method or kind alone holds it.
    aside: UpstreamSet,
    method: Option<MethodIndex>,
    client: Option<ClientId>,
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
    waiting: BTreeMap<QueuePosition, Waiter>,
    /// Their places, once for each upstream that they wait for.
    by_upstream: BTreeSet<(Slot, QueuePosition)>,
    next: u64,
    /// How far each priority has come at each upstream. Not as far as a call that went past others of
    /// its priority there: else one call would put the calls that its client left behind before those
    /// of all newcomers.
    rounds: Rounds,
    clients: BTreeMap<Option<ClientId>, Queued>,
    /// How many of those wait.
    clients_waiting: u32,
    /// How many wait for more than a bound of their method, by priority.
    counts: [u32; Priority::COUNT],
    /// How many wait for that alone, by method.
    aside: BTreeMap<Option<MethodIndex>, u32>,
    /// How many wait for that at some upstream, perhaps beside others.
    aside_somewhere: u32,
    /// What each upstream said last to the call that was first in line for it, of all or of one
    /// method.
    said: BTreeMap<(Slot, Option<MethodIndex>), LimitedBy>,
    /// Where the patient one is that was raised last, while it waits.
    raised: Option<QueuePosition>,
}

impl State {
    /// How many wait that go before a newcomer, at most.
    fn before(&self, claim: Claim) -> u32 {
        let of_method = self.aside.get(&claim.method).copied().unwrap_or_default();
        let all = self.counts[..=claim.priority as usize].iter().sum::<u32>() + of_method;
        // Of each other client as many as it has itself, and one.
        let own = self.clients.get(&claim.client).map_or(0, |queued| queued.count);
        let others = self.clients_waiting.saturating_sub(u32::from(own > 0));
        all.min(own.saturating_add(others.saturating_mul(own + 1)))
    }

    /// The first that waits for `slot` with this priority.
    fn first(&self, slot: Slot, priority: Priority) -> Option<QueuePosition> {
        let (at, position) =
            *self.by_upstream.range((slot, QueuePosition::first(priority))..).next()?;
        (at == slot && position.priority == priority).then_some(position)
    }

    /// How far `priority` has come at `slot`. The first that waits there may have its round from another
    /// upstream, which has come farther: no newcomer is more than one round before it.
    fn come(&self, slot: Slot, priority: Priority) -> u64 {
        let first = self.first(slot, priority).map_or(0, |first| first.round.saturating_sub(1));
        self.rounds.at(slot, priority).max(first)
    }

    /// Of a newcomer that may go to any of these upstreams.
    fn next_turn(&self, claim: Claim, slots: UpstreamSet) -> Turn {
        let Claim { priority, client, .. } = claim;
        let come = slots.iter().map(|slot| (self.come(slot, priority), Reverse(slot)));
        let (come, Reverse(home)) = come.max().unwrap_or((0, Reverse(Slot(0))));
        let own = self.clients.get(&client);
        let own = own.map_or(0, |queued| queued.next_rounds.at(home, priority));
        Turn { home, round: come.max(own) }
    }

    /// Notes that a call has this turn.
    fn note_turn(&mut self, claim: Claim, turn: Turn) {
        // Seldom, as it looks at all of them: most were added since the last time.
        if self.clients.len() >= CLIENTS_KNOWN_MAX + 2 * self.clients_waiting as usize {
            self.clients.retain(|_, queued| queued.count > 0);
        }
        let queued = self.clients.entry(claim.client).or_default();
        *queued.next_rounds.of(turn.home, claim.priority) = turn.round + 1;
    }

    /// Notes that the call at `position`, which is in line yet, is let go to `slot`.
    fn let_go(&mut self, position: QueuePosition, slot: Slot) {
        debug_assert!(self.waiting.contains_key(&position), "{position:?} is in line yet");
        let QueuePosition { priority, round, .. } = position;
        // At most its own, which is in line yet.
        let round = self.first(slot, priority).map_or(round, |first| first.round);
        let come = self.rounds.of(slot, priority);
        *come = round.max(*come);
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

    fn remove(&mut self, position: QueuePosition) -> Option<Waiter> {
        let waiter = self.waiting.remove(&position)?;
        for slot in waiter.slots.iter() {
            self.by_upstream.remove(&(slot, position));
        }
        if let Some(queued) = self.clients.get_mut(&waiter.client) {
            queued.count -= 1;
            self.clients_waiting -= u32::from(queued.count == 0);
        }
        if self.waiting.is_empty() {
            self.clients.clear();
            self.rounds.0.clear();
        }
        let count = self.count(position.priority, waiter.method, waiter.is_aside());
        *count -= 1;
        if *count == 0 && waiter.is_aside() {
            self.aside.remove(&waiter.method);
        }
        self.aside_somewhere -= u32::from(!waiter.aside.is_empty());
        if self.raised == Some(position) {
            self.raised = None;
        }
        // The next of the patient may have waited for long enough.
        if self.raised.is_none()
            && let Some((_, next)) =
                self.waiting.range(QueuePosition::first(Priority::Bulk)..).next()
        {
            next.wake.notify_one();
        }
        self.check();
        Some(waiter)
    }

    fn insert(&mut self, priority: Priority, round: u64, waiter: Waiter) -> QueuePosition {
        let position = QueuePosition { priority, round, number: self.next };
        self.next += 1;
        let queued = self.clients.entry(waiter.client).or_default();
        queued.count += 1;
        self.clients_waiting += u32::from(queued.count == 1);
        *self.count(priority, waiter.method, waiter.is_aside()) += 1;
        self.aside_somewhere += u32::from(!waiter.aside.is_empty());
        self.by_upstream.extend(waiter.slots.iter().map(|slot| (slot, position)));
        self.waiting.insert(position, waiter);
        self.check();
        position
    }

    /// Each call that waits is in one count, and nothing is left of those that went.
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let counted = self.counts.iter().chain(self.aside.values()).sum::<u32>() as usize;
        assert_eq!(counted, self.waiting.len(), "each call that waits is counted once");
        assert!(self.clients_waiting as usize <= self.waiting.len(), "each client has a call");
        assert!(self.aside_somewhere as usize <= self.waiting.len(), "each of them is a call");
        assert!(self.raised.is_none_or(|at| self.waiting.contains_key(&at)), "it waits");
        let is_empty = self.by_upstream.is_empty() && self.clients_waiting == 0;
        assert!(is_empty || !self.waiting.is_empty(), "nothing is left of calls that went");
    }

    /// Notes what `slot` said to the waiter at `position`. Where that lets others pass, those
    /// behind it may have their turn.
    fn say(&mut self, position: QueuePosition, slot: Slot, held: LimitedBy) {
        let lets_others_pass = held.bound.lets_others_pass();
        let Some(waiter) = self.waiting.get_mut(&position) else { return };
        let (method, was_aside) = (waiter.method, waiter.is_aside());
        let was_somewhere = !waiter.aside.is_empty();
        // A batch is held for one of its methods, and it is not known which.
        if !lets_others_pass || method.is_some() {
            self.said.insert((slot, method.filter(|_| lets_others_pass)), held);
        }
        if waiter.aside.contains(slot) == lets_others_pass {
            return;
        }
        let this = [slot].into_iter().collect();
        waiter.aside = waiter.aside.without(this);
        if lets_others_pass {
            waiter.aside.insert(slot);
        }
        let (is_aside, is_somewhere) = (waiter.is_aside(), !waiter.aside.is_empty());
        self.aside_somewhere += u32::from(is_somewhere);
        self.aside_somewhere -= u32::from(was_somewhere);
        if is_aside != was_aside {
            *self.count(position.priority, method, was_aside) -= 1;
            *self.count(position.priority, method, is_aside) += 1;
        }
        self.check();
        if lets_others_pass && let Some(next) = self.first_open(slot) {
            next.wake.notify_one();
        }
    }

    /// The first for `slot` that no bound of its method holds there, as far as is known.
    fn first_open(&self, slot: Slot) -> Option<&Waiter> {
        let is_open = |it: &&Waiter| it.slots.contains(slot) && !it.aside.contains(slot);
        self.waiting.values().find(is_open)
    }

    /// The first for `slot` that stands aside for a share of its places, or may: what holds a batch is
    /// not known.
    fn first_of_share(&self, slot: Slot) -> Option<&Waiter> {
        self.waiting.values().find(|it| {
            let said = it.method.and_then(|_| self.said.get(&(slot, it.method)));
            let is_for_share =
                it.method.is_none() || said.is_some_and(|held| held.bound.is_share());
            is_for_share && it.aside.contains(slot)
        })
    }

    /// Moves the waiter at `position` to the end of those that are usual, if it is the first of
    /// the patient and none of them was raised before. Where it is then.
    fn raise(&mut self, position: QueuePosition) -> QueuePosition {
        let mut patient = self.waiting.range(QueuePosition::first(Priority::Bulk)..);
        if self.raised.is_some() || patient.next().is_none_or(|(first, _)| *first != position) {
            return position;
        }
        let usual = QueuePosition::first(Priority::Usual)..QueuePosition::first(Priority::Bulk);
        let last = self.waiting.range(usual).next_back();
        let last_round = last.map(|(last, _)| last.round);
        let Some(waiter) = self.remove(position) else { return position };
        let come = || waiter.slots.iter().map(|slot| self.rounds.at(slot, Priority::Usual)).max();
        let last_round = last_round.or_else(come).unwrap_or_default();
        let position = self.insert(Priority::Usual, last_round, waiter);
        self.raised = Some(position);
        position
    }
}

/// The queue of one worker.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    state: Mutex<State>,
    len: AtomicUsize,
}

impl WaitQueue {
    /// Lets a call go that does not wait yet, unless others wait for the same upstream.
    pub(crate) fn admit(
        &self,
        upstream: &Arc<Upstream>,
        claim: Claim,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, LimitedBy>,
        now: Instant,
    ) -> Result<InFlight, LimitedBy> {
        let held = match self.held_by_others(upstream.slot(), claim) {
            Some(held) => held,
            None => match try_admit(upstream, now) {
                Ok(in_flight) => {
                    self.passed(claim, upstream.slot());
                    return Ok(in_flight);
                }
                Err(held) => held,
            },
        };
        upstream.note_held(held.bound);
        Err(held)
    }

    /// Waits until one of `candidates` that is in `by` admits the call; until `latest` at the
    /// latest. Cancel-safe: a dropped call leaves the queue.
    pub(crate) async fn wait(
        &self,
        candidates: &[Slot],
        by: Holders,
        claim: Claim,
        try_admit: impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, LimitedBy>,
        roster: &Roster,
        latest: Instant,
    ) -> Result<(Slot, InFlight), NoTurn> {
        let no_turn = |retry_after: Duration| NoTurn { bound: by.first.bound, retry_after };
        let priority = claim.priority;
        let Some(mut ticket) = self.join(by, claim) else {
            return Err(no_turn(by.first.wait + by.first.pace * PLACES_MAX as u32));
        };
        let mut first = by.first;
        // What the queue itself said counts those before already.
        let mut before = if first.bound == Bound::Queue { 0 } else { ticket.before };
        let is_patient_until =
            now().checked_add(PATIENCE).filter(|_| priority == Priority::Bulk).unwrap_or(latest);
        loop {
            let began = now();
            // Raised, one that waits for the share of its like would hold up all others.
            if priority == Priority::Bulk && began >= is_patient_until && !first.bound.is_share() {
                ticket.position = self.state.lock().raise(ticket.position);
            }
            let Some(turn) = self.turn(&ticket) else { return Err(no_turn(first.wait)) };
            let in_turn = candidates.iter().copied().filter(|slot| turn.contains(*slot));
            let try_slot = |slot| try_admit(roster.upstream(slot), began);
            let soonest = match self.try_in_turn(ticket.position, in_turn, try_slot) {
                Ok(admitted) => return Ok(admitted),
                Err(soonest) => soonest,
            };
            // Where it is not its turn yet, what the queue said holds.
            if let Some(soonest) = soonest
                && (by.slots.without(turn).is_empty() || soonest.wait < first.wait)
            {
                (first, before) = (soonest, 0);
            }
            let expected = first.wait.saturating_add(first.pace.saturating_mul(before));
            if began.checked_add(expected).is_none_or(|turn| turn >= latest) {
                return Err(no_turn(expected));
            }
            // Without a turn there is nothing to try before another call leaves.
            let mut until = soonest.map_or(latest, |held| latest.min(began + held.wait));
            if began < is_patient_until {
                until = until.min(is_patient_until);
            }
            let _woken_or_due = tokio::time::timeout_at(until.into(), ticket.wake.notified()).await;
        }
    }

    /// Lets the call at `position` go to the first of `slots` that takes it; else what holds it for
    /// the shortest time, if there are any.
    fn try_in_turn(
        &self,
        position: QueuePosition,
        slots: impl Iterator<Item = Slot>,
        try_admit: impl Fn(Slot) -> Result<InFlight, LimitedBy>,
    ) -> Result<(Slot, InFlight), Option<LimitedBy>> {
        let mut soonest: Option<LimitedBy> = None;
        for slot in slots {
            match try_admit(slot) {
                Ok(in_flight) => {
                    self.state.lock().let_go(position, slot);
                    return Ok((slot, in_flight));
                }
                Err(held) => {
                    self.state.lock().say(position, slot, held);
                    if soonest.is_none_or(|soonest| held.wait < soonest.wait) {
                        soonest = Some(held);
                    }
                }
            }
        }
        Err(soonest)
    }

    /// Tells the first call in line for `slot` that a call there ended.
    pub(crate) fn freed(&self, slot: Slot) {
        if self.is_empty() {
            return;
        }
        let state = self.state.lock();
        let of_share = (state.aside_somewhere > 0).then(|| state.first_of_share(slot)).flatten();
        for waiter in state.first_open(slot).into_iter().chain(of_share) {
            waiter.wake.notify_one();
        }
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Notes that a call went to `slot` at once while others wait, so that the next call of its client
    /// stands behind those of other clients there.
    fn passed(&self, claim: Claim, slot: Slot) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            let turn = state.next_turn(claim, [slot].into_iter().collect());
            state.note_turn(claim, turn);
        }
    }

    fn held_by_others(&self, slot: Slot, claim: Claim) -> Option<LimitedBy> {
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let round = state.next_turn(claim, [slot].into_iter().collect()).round;
        let newcomer = QueuePosition { priority: claim.priority, round, number: u64::MAX };
        let range = (slot, QueuePosition::first(Priority::Write))..(slot, newcomer);
        let mut before =
            state.by_upstream.range(range).filter_map(|(_, position)| state.waiting.get(position));
        let waiter = before.find(|it| it.before(claim.method).contains(slot))?;
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
        Some(LimitedBy { bound: Bound::Queue, wait, pace })
    }

    /// A place at the end of its priority; `None` when there is none to be had.
    fn join(&self, by: Holders, claim: Claim) -> Option<QueueTicket<'_>> {
        let mut state = self.state.lock();
        let wake = Arc::new(Notify::new());
        let Holders { slots, aside, .. } = by;
        let Claim { priority, method, client } = claim;
        let waiter = Waiter { slots, aside, method, client, wake: Arc::clone(&wake) };
        if waiter.is_aside() && state.aside.values().sum::<u32>() as usize >= ASIDE_MAX {
            return None;
        }
        let turn = state.next_turn(claim, slots);
        if state.waiting.len() >= PLACES_MAX {
            let (last, _) = state.waiting.last_key_value()?;
            let newcomer = QueuePosition { priority, round: turn.round, number: state.next };
            let last = Some(*last).filter(|last| *last > newcomer)?;
            // It finds its place gone when it wakes.
            state.remove(last)?.wake.notify_one();
        }
        let before = state.before(claim);
        let position = state.insert(priority, turn.round, waiter);
        state.note_turn(claim, turn);
        self.len.store(state.waiting.len(), Ordering::Relaxed);
        Some(QueueTicket { queue: self, position, before, slots, method, wake })
    }

    /// Where it is its turn; `None` when its place is gone.
    fn turn(&self, ticket: &QueueTicket<'_>) -> Option<UpstreamSet> {
        let state = self.state.lock();
        state.waiting.contains_key(&ticket.position).then(|| {
            let mut turn = ticket.slots;
            // Most wait for the same upstreams: the first of them ends the search.
            for waiter in state.waiting.range(..ticket.position).map(|(_, waiter)| waiter) {
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
/// comes later would be taken from others for nothing. The time left must be twice the
/// answer time of the slowest candidate, but at most a quarter of the time that is left now.
pub(crate) fn latest_turn(
    candidates: &[Slot],
    by: Holders,
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
struct QueueTicket<'a> {
    queue: &'a WaitQueue,
    position: QueuePosition,
    /// How many were there when it came.
    before: u32,
    slots: UpstreamSet,
    method: Option<MethodIndex>,
    wake: Arc<Notify>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.remove(self.position);
        self.queue.len.store(state.waiting.len(), Ordering::Relaxed);
        // The call that is first now, at any of its upstreams, can try again.
        let mut left = self.slots;
        // The calls of its method that wait aside wait for it wherever it was.
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

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    const MANY: ClientId = ClientId::V6(0);
    const ONE: ClientId = ClientId::V6(1);

    fn claim(method: &str, client: ClientId) -> Claim {
        Claim::of(MethodTable::standard().row(method), Some(client))
    }

    fn held_by(slot: u8, bound: Bound) -> Holders {
        let held = LimitedBy { bound, wait: Duration::ZERO, pace: Duration::ZERO };
        Holders::and(None, Slot(slot), held)
    }

    /// A client with 900 calls in line has one more let go, past all of them; how many of the 900
    /// a newcomer then stands behind.
    #[track_caller]
    fn check(method: &str, bound: Bound, past: (&str, u8), newcomer: &str) {
        let queue = WaitQueue::default();
        let join = |method, slot, bound, client| {
            queue.join(held_by(slot, bound), claim(method, client)).expect("a place")
        };
        let crowd: Vec<_> = (0..900).map(|_| join(method, 0, bound, MANY)).collect();
        let gone = join(past.0, past.1, Bound::InFlight, MANY);
        assert!(queue.turn(&gone).is_some_and(|turn| turn.contains(Slot(past.1))), "{past:?}");
        queue.state.lock().let_go(gone.position, Slot(past.1));
        drop(gone);
        let newcomer = join(newcomer, 0, bound, ONE);
        let before = crowd.iter().filter(|it| it.position < newcomer.position).count();
        assert_eq!(before, 1, "{method} {bound:?} {past:?}");
    }

    #[test]
    fn a_call_that_goes_past_others_moves_no_newcomer_behind_them() {
        // By its priority, to another upstream, and past those that stand aside.
        check("eth_call", Bound::InFlight, ("eth_sendRawTransaction", 0), "eth_call");
        check("eth_call", Bound::InFlight, ("eth_call", 1), "eth_call");
        check("eth_call", Bound::MethodRate, ("eth_getBalance", 0), "eth_call");
        check("eth_getLogs", Bound::InFlight, ("eth_call", 0), "eth_getLogs");
    }

    #[test]
    fn each_turn_brings_the_line_on() {
        let queue = WaitQueue::default();
        let join = |client| {
            queue.join(held_by(0, Bound::InFlight), claim("eth_call", client)).expect("a place")
        };
        let mut crowd: Vec<_> = (0..9).map(|_| join(MANY)).collect();
        for gone in crowd.drain(..5) {
            queue.state.lock().let_go(gone.position, Slot(0));
        }
        // It does not wait for those of the rounds that are to come.
        let newcomer = join(ONE);
        let before = crowd.iter().filter(|it| it.position < newcomer.position).count();
        assert_eq!(before, 0, "{:?}", newcomer.position);
        assert_eq!(newcomer.position.round, 4);
    }

    /// A client's 100 calls went to upstream 1 while another client's call waits for upstream 0 alone.
    /// Then a crowd comes, and that client's next call; how many of the crowd that stands behind.
    #[track_caller]
    fn check_stuck(slots: &[u8]) {
        let queue = WaitQueue::default();
        let join = |slots: &[u8], client| {
            let by = slots.iter().fold(None, |by, slot| {
                let held = held_by(*slot, Bound::InFlight);
                Some(Holders::and(by, Slot(*slot), held.first))
            });
            queue.join(by.expect("some"), claim("eth_call", client)).expect("a place")
        };
        let _stuck = join(&[0], ClientId::V6(2));
        for _ in 0..100 {
            let gone = join(slots, ONE);
            queue.state.lock().let_go(gone.position, Slot(1));
        }
        let crowd: Vec<_> = (0..50).map(|_| join(slots, MANY)).collect();
        let newcomer = join(slots, ONE);
        let before = crowd.iter().filter(|it| it.position < newcomer.position).count();
        // The crowd has had no turn yet, of the last round or of this one.
        assert_eq!(before, 2, "{slots:?}");
    }

    #[test]
    fn a_call_that_is_stuck_at_one_upstream_holds_up_no_round_at_another() {
        check_stuck(&[1]);
        check_stuck(&[0, 1]);
    }

    #[test]
    fn clients_that_pass_by_are_not_all_known() {
        let queue = WaitQueue::default();
        let _waiting = queue.join(held_by(0, Bound::InFlight), claim("eth_call", MANY));
        for client in 1..=1_000 {
            queue.passed(claim("eth_call", ClientId::V6(client)), Slot(0));
            let known = queue.state.lock().clients.len();
            assert!(known <= CLIENTS_KNOWN_MAX + 2, "{known} after {client}");
        }
        // One that waits keeps its turn.
        let slots = [Slot(0)].into_iter().collect();
        assert_eq!(queue.state.lock().next_turn(claim("eth_call", MANY), slots).round, 1);
    }
}
