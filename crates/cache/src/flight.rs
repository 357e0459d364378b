//! Flights: identical concurrent reads share one upstream call.
//!
//! The first request leads: it makes the call and hands the result to its followers, the requests
//! that ask the same meanwhile. A leader that goes away (its client disconnected, its
//! deadline passed) hands over to the follower that has waited longest; the others keep
//! waiting, so that one disconnect never turns a hundred waiting clients into a hundred calls.
//! A leader whose call failed hands over too, but only [`LEADS_MAX`] leaders may fail: then
//! all followers get that failure, because one attempt per follower, in sequence,
//! would make the last one wait longest for an equal result.
//!
//! Followers have their own deadlines: they drop the [`Follow`], and nothing else changes.
//! A flight does not decide what to do with a result. Nothing here sleeps or spawns; threads
//! share flights through short locks, and its waker wakes a follower on another
//! thread.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use wellhead_eth::BlockNumber;

use crate::key::Key;

/// How many leaders of one flight may fail before their failure is shared: one more than
/// the first, because what failed may have been its upstreams' bad moment.
pub const LEADS_MAX: u32 = 2;

/// Enough that threads rarely meet.
const SHARDS: usize = 16;

/// What must be the same for two reads to share one call.
///
/// The head is part of it: a client that has seen block 100 does not get the result of a call
/// from before that block, even if the cached answer would not depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlightKey {
    /// Everything that the call means.
    pub key: Key,
    /// The head of the view that the request pinned.
    pub head: Option<BlockNumber>,
}

/// How much may be in the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightLimits {
    /// Flights at once. Past it, reads go alone.
    pub flights_max: usize,
    /// Followers of one flight. Past it, reads go alone.
    pub followers_max: usize,
}

impl Default for FlightLimits {
    /// Flights take about 300 bytes beside their keys, followers about 50.
    fn default() -> Self {
        Self { flights_max: 16_384, followers_max: 4_096 }
    }
}

/// All flights of a process. Clones are the same flights.
///
/// `T` is what a call comes to, cheap to clone: a result's `Bytes`, or a failure.
#[derive(Debug)]
pub struct Flights<T>(Arc<FlightTable<T>>);

impl<T> Clone for Flights<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct FlightTable<T> {
    shards: Box<[Shard<T>]>,
    hasher: FixedState,
    limits: FlightLimits,
    flying: AtomicUsize,
    counts: FlightCounters,
}

type Shard<T> = Mutex<HashMap<FlightKey, Arc<Flight<T>>, FixedState>>;

#[derive(Debug)]
struct Flight<T> {
    key: FlightKey,
    /// Locked after the shard's map where both are needed.
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    phase: Phase<T>,
    /// The waiting followers, in order of arrival; a waker once they were polled.
    followers: BTreeMap<u64, Option<Waker>>,
    next_ticket: u64,
    leads_failed: u32,
}

#[derive(Debug)]
enum Phase<T> {
    /// It has a leader.
    Led,
    /// The follower with this ticket leads as soon as it is polled.
    Chosen(u64),
    /// The shared result, for all followers.
    Landed(T),
    /// Nothing can be shared: each goes alone.
    Parted,
}

/// What to do now.
#[derive(Debug)]
pub enum Joined<T> {
    /// Make the call, and tell the others through this.
    Lead(Lead<T>),
    /// Wait for this.
    Follow(Follow<T>),
    /// Make the call for yourself: a bound is reached.
    Alone,
}

/// What a follower is told in the end.
#[derive(Debug)]
pub enum FollowEnd<T> {
    /// What came of the call.
    Landed(T),
    /// The leader is gone: make the call, and tell the others through this.
    Lead(Lead<T>),
    /// What came cannot be shared: make the call for yourself.
    Alone,
}

impl<T: Clone> Flights<T> {
    /// No flights yet. `seed` is a secret, as in [`crate::Memory::new`].
    pub fn new(limits: FlightLimits, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let shard = |_| Mutex::new(HashMap::with_hasher(hasher.clone()));
        Self(Arc::new(FlightTable {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: hasher.clone(),
            limits,
            flying: AtomicUsize::new(0),
            counts: FlightCounters::default(),
        }))
    }

    /// Joins the flight of this key, or begins it.
    ///
    /// The leader looks into the memory again before the call: the previous flight may have
    /// landed since the first look-up.
    pub fn join(&self, key: FlightKey) -> Joined<T> {
        let inner = &self.0;
        let mut flights = inner.shard(&key).lock();
        if let Some(flight) = flights.get(&key) {
            let mut state = flight.state.lock();
            if state.followers.len() >= inner.limits.followers_max {
                inner.counts.alone.fetch_add(1, Ordering::Relaxed);
                return Joined::Alone;
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.followers.insert(ticket, None);
            inner.counts.joined.fetch_add(1, Ordering::Relaxed);
            let of = Of { inner: Arc::clone(inner), flight: Arc::clone(flight) };
            return Joined::Follow(Follow { of, ticket, told: false });
        }
        // Threads that come here together may pass the bound by one each.
        if inner.flying.load(Ordering::Relaxed) >= inner.limits.flights_max {
            inner.counts.alone.fetch_add(1, Ordering::Relaxed);
            return Joined::Alone;
        }
        inner.flying.fetch_add(1, Ordering::Relaxed);
        inner.counts.led.fetch_add(1, Ordering::Relaxed);
        let state = State {
            phase: Phase::Led,
            followers: BTreeMap::new(),
            next_ticket: 0,
            leads_failed: 0,
        };
        let flight = Arc::new(Flight { key: key.clone(), state: Mutex::new(state) });
        flights.insert(key, Arc::clone(&flight));
        Joined::Lead(Lead { of: Of { inner: Arc::clone(inner), flight }, told: false })
    }

    /// Counts so far, and what is in the air now.
    pub fn stats(&self) -> FlightStats {
        let inner = &self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FlightStats {
            led: read(&inner.counts.led),
            joined: read(&inner.counts.joined),
            alone: read(&inner.counts.alone),
            handed_over: read(&inner.counts.handed_over),
            flying: inner.flying.load(Ordering::Relaxed),
        }
    }
}

impl<T> FlightTable<T> {
    fn shard(&self, key: &FlightKey) -> &Shard<T> {
        // The maps use the low and the highest bits of the same hash.
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % SHARDS]
    }
}

/// One's part in a flight.
#[derive(Debug)]
struct Of<T> {
    inner: Arc<FlightTable<T>>,
    flight: Arc<Flight<T>>,
}

impl<T> Of<T> {
    /// Ends the flight, so that no call can join it, and wakes all followers.
    fn end(&self, phase: Phase<T>) {
        self.leave_map(&mut self.inner.shard(&self.flight.key).lock());
        let mut state = self.flight.state.lock();
        state.phase = phase;
        let wakers: Vec<Waker> = state.followers.values_mut().filter_map(Option::take).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Hands over to the follower that has waited longest; ends the flight if there is none.
    fn hand_over(&self) {
        let mut flights = self.inner.shard(&self.flight.key).lock();
        let mut state = self.flight.state.lock();
        let Some((ticket, waker)) =
            state.followers.first_entry().map(|mut first| (*first.key(), first.get_mut().take()))
        else {
            state.phase = Phase::Parted;
            drop(state);
            self.leave_map(&mut flights);
            return;
        };
        state.phase = Phase::Chosen(ticket);
        drop(state);
        drop(flights);
        self.inner.counts.handed_over.fetch_add(1, Ordering::Relaxed);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn leave_map(&self, flights: &mut HashMap<FlightKey, Arc<Flight<T>>, FixedState>) {
        if flights.get(&self.flight.key).is_some_and(|found| Arc::ptr_eq(found, &self.flight)) {
            flights.remove(&self.flight.key);
            self.inner.flying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The duty to tell the followers. Dropped without a word, it goes to the next of them.
#[derive(Debug)]
#[must_use = "the leader passes its result on; if it is dropped, another one leads"]
pub struct Lead<T> {
    of: Of<T>,
    told: bool,
}

impl<T> Lead<T> {
    /// Passes the result of the call to all followers. Cache it before, so that the next call
    /// finds it.
    pub fn land(mut self, outcome: T) {
        self.told = true;
        self.of.end(Phase::Landed(outcome));
    }

    /// The call failed, in a way that another attempt might not. The next follower leads,
    /// unless [`LEADS_MAX`] have failed: then all followers get `outcome`.
    pub fn fail(mut self, outcome: T) {
        self.told = true;
        let mut state = self.of.flight.state.lock();
        state.leads_failed += 1;
        let is_last = state.leads_failed >= LEADS_MAX;
        drop(state);
        if is_last {
            self.of.end(Phase::Landed(outcome));
        } else {
            self.of.hand_over();
        }
    }

    /// What came cannot be shared, as an answer that flows: each goes alone.
    pub fn part(mut self) {
        self.told = true;
        self.of.end(Phase::Parted);
    }

    /// How many wait for this now.
    pub fn followers(&self) -> usize {
        self.of.flight.state.lock().followers.len()
    }
}

impl<T> Drop for Lead<T> {
    fn drop(&mut self) {
        if !self.told {
            self.of.hand_over();
        }
    }
}

/// Waits for the leader's word. May be dropped at any time.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Follow<T> {
    of: Of<T>,
    ticket: u64,
    told: bool,
}

impl<T: Clone> Future for Follow<T> {
    type Output = FollowEnd<T>;

    /// # Panics
    ///
    /// When polled again after it was ready, as futures may.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FollowEnd<T>> {
        let this = self.get_mut();
        assert!(!this.told, "a follower is told once");
        let mut state = this.of.flight.state.lock();
        let turn = match &state.phase {
            Phase::Chosen(ticket) if *ticket == this.ticket => {
                state.phase = Phase::Led;
                let flight = Arc::clone(&this.of.flight);
                let of = Of { inner: Arc::clone(&this.of.inner), flight };
                FollowEnd::Lead(Lead { of, told: false })
            }
            Phase::Led | Phase::Chosen(_) => {
                if let Some(waker) = state.followers.get_mut(&this.ticket) {
                    match waker {
                        Some(waker) => waker.clone_from(context.waker()),
                        None => *waker = Some(context.waker().clone()),
                    }
                }
                return Poll::Pending;
            }
            Phase::Landed(outcome) => FollowEnd::Landed(outcome.clone()),
            Phase::Parted => FollowEnd::Alone,
        };
        state.followers.remove(&this.ticket);
        this.told = true;
        Poll::Ready(turn)
    }
}

impl<T> Drop for Follow<T> {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let mut state = self.of.flight.state.lock();
        let waker = state.followers.remove(&self.ticket);
        let was_chosen = matches!(state.phase, Phase::Chosen(ticket) if ticket == self.ticket);
        drop(state);
        // A waker may be the last thing that holds a task, whose end may join again.
        drop(waker);
        if was_chosen {
            self.of.hand_over();
        }
    }
}

/// What flights did, and what is in the air, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightStats {
    /// Flights begun.
    pub led: u64,
    /// Reads that followed: upstream calls that were not made, but for those handed over.
    pub joined: u64,
    /// Reads that went alone because of a bound.
    pub alone: u64,
    /// Times that a follower was to lead.
    pub handed_over: u64,
    /// Flights in the air.
    pub flying: usize,
}

#[derive(Debug, Default)]
struct FlightCounters {
    led: AtomicU64,
    joined: AtomicU64,
    alone: AtomicU64,
    handed_over: AtomicU64,
}
