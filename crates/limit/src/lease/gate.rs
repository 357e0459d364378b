//! A bound on calls in flight that several replicas share.
//!
//! Places cannot be leased call by call: one is held for as long as a call takes. Half of them belong to
//! the replicas in equal parts, without a word of the store. The other half is divided by what
//! each wants, anew each [`REBALANCE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{ANSWER_WITHIN, AloneCount, Bell, LeaseShortage, WhenAway};
use crate::{Gate, nanos};

/// How often the places are divided anew while some are wanted.
const REBALANCE: Duration = Duration::from_secs(1);

/// How long the store's word counts; longer, and the places go to others.
pub const GATE_LIFE: Duration = Duration::from_secs(3);

/// What a replica asks of a cap on calls in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateAsk {
    /// Places that are divided among those that want some.
    pub places: u32,
    /// As many as these.
    pub want: u32,
    /// Those in use; they cannot be taken away.
    pub inside: u32,
}

/// One replica's part in a bound on calls in flight.
///
/// Over all replicas at most `max` are in at once, as long as each knows how many there are, and at
/// least one at each. Away, with one replica, until a control loop serves it.
#[derive(Debug)]
pub struct LeasedGate {
    gate: Gate,
    max: u32,
    when_away: WhenAway,
    /// Of the places that are divided: this replica's, and until when.
    places: AtomicU32,
    expires: AtomicU64,
    /// The most that were wanted at once since the last ask.
    peak: AtomicU32,
    /// How often one entered without the store.
    alone: AloneCount,
    handed: AtomicBool,
    waiting_since: AtomicU64,
    refused_until: AtomicU64,
    away: AtomicU32,
    replicas: AtomicU32,
    bell: Bell,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    asked_at: Option<Duration>,
    next_ask: Duration,
}

impl LeasedGate {
    /// At most `max` in at once, over all replicas.
    pub fn new(max: u32) -> Self {
        Self {
            gate: Gate::default(),
            max,
            when_away: WhenAway::Share,
            places: AtomicU32::new(0),
            expires: AtomicU64::new(0),
            peak: AtomicU32::new(0),
            alone: AloneCount::default(),
            handed: AtomicBool::new(false),
            waiting_since: AtomicU64::new(0),
            refused_until: AtomicU64::new(0),
            away: AtomicU32::new(1),
            replicas: AtomicU32::new(1),
            bell: Bell::default(),
            state: Mutex::new(GateState::default()),
        }
    }

    /// What holds while the store is away, instead of [`WhenAway::Share`].
    #[must_use]
    pub fn with_when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Goes in; [`Self::leave`] is to be called once for each that did.
    pub fn enter(&self, now: Duration) -> Result<(), LeaseShortage> {
        let at = nanos(now);
        if self.away.load(Relaxed) > 0 {
            return self.enter_away(self.away.load(Relaxed));
        }
        let own = self.own();
        let entered = self.gate.enter(own.saturating_add(self.leased(at)));
        let wanted = self.gate.inside() + u32::from(!entered);
        // Own places need no word.
        if wanted > own {
            self.peak.fetch_max(wanted, Relaxed);
            if !self.handed.load(Relaxed) && !self.handed.swap(true, Relaxed) {
                self.bell.ring();
            }
        }
        if entered { Ok(()) } else { self.beyond(at) }
    }

    /// Goes in regardless of the bound, and of the store.
    pub fn enter_anyway(&self) {
        self.gate.enter_anyway();
    }

    /// How many may be in at this replica now.
    pub fn places(&self, now: Duration) -> u32 {
        match self.away.load(Relaxed) {
            0 => self.own().saturating_add(self.leased(nanos(now))),
            replicas => self.share_of(replicas),
        }
    }

    /// How many each replica has if all want as many.
    pub fn fair_share(&self) -> u32 {
        self.share_of(self.replicas.load(Relaxed))
    }

    /// Leaves.
    pub fn leave(&self) {
        self.gate.leave();
    }

    /// How many are in at this replica.
    pub fn inside(&self) -> u32 {
        self.gate.inside()
    }

    /// How often one entered without the store so far, because it was away or silent.
    pub fn entered_alone(&self) -> u64 {
        self.alone.amount()
    }

    #[cold]
    fn beyond(&self, now: u64) -> Result<(), LeaseShortage> {
        // Counted one by one, so that many calls that are refused at once want as many places.
        self.peak.fetch_add(1, Relaxed);
        let until = self.refused_until.load(Relaxed);
        if now < until {
            return Err(LeaseShortage::Refused(Duration::from_nanos(until - now)));
        }
        let first = self.waiting_since.compare_exchange(0, now.max(1), Relaxed, Relaxed);
        let since = if first.is_ok() { now } else { self.waiting_since.load(Relaxed).min(now) };
        match ANSWER_WITHIN.checked_sub(Duration::from_nanos(now - since)) {
            Some(left) if !left.is_zero() => Err(LeaseShortage::Unanswered(left)),
            _ => self.enter_away(self.replicas.load(Relaxed)),
        }
    }

    fn enter_away(&self, replicas: u32) -> Result<(), LeaseShortage> {
        match self.when_away {
            WhenAway::Open => self.gate.enter_anyway(),
            WhenAway::Share if self.gate.enter(self.share_of(replicas)) => {}
            WhenAway::Share | WhenAway::Closed => return Err(LeaseShortage::Refused(REBALANCE)),
        }
        self.alone.add(1);
        Ok(())
    }

    /// How many each of `replicas` has if all want as many, and while the store is away.
    fn share_of(&self, replicas: u32) -> u32 {
        (self.max / replicas.max(1)).max(1)
    }

    /// Of the places that are divided, those of this replica.
    fn leased(&self, now: u64) -> u32 {
        if now < self.expires.load(Relaxed) { self.places.load(Relaxed) } else { 0 }
    }

    /// This replica's own places.
    fn own(&self) -> u32 {
        (self.max / 2 / self.replicas.load(Relaxed).max(1)).max(1)
    }

    /// Places that are divided.
    fn divided(&self) -> u32 {
        self.max.saturating_sub(self.own().saturating_mul(self.replicas.load(Relaxed).max(1)))
    }

    /// What to ask the store for at `now`, if anything. To be followed by [`Self::grant`] or
    /// [`Self::fail`].
    pub fn ask(&self, now: Duration) -> Option<GateAsk> {
        let mut state = self.state.lock();
        if state.asked_at.is_some() || self.away.load(Relaxed) > 0 || now < state.next_ask {
            return None;
        }
        let inside = self.gate.inside();
        let own = self.own();
        let want = self.peak.swap(inside, Relaxed).max(inside).saturating_sub(own);
        let holds = self.places.load(Relaxed) > 0;
        if want == 0 && !holds {
            return None;
        }
        state.asked_at = Some(now);
        let places = self.divided();
        Some(GateAsk { places, want: want.min(places), inside: inside.saturating_sub(own) })
    }

    /// The answer to the last ask: the places that it has until the next answer, or until it is forgotten.
    pub fn grant(&self, asked: GateAsk, places: u32, now: Duration) {
        let mut state = self.state.lock();
        let Some(at) = state.asked_at.take() else { return };
        self.places.store(places, Relaxed);
        // A moment less than the store gives: the answer was under way.
        self.expires.store(nanos(at + GATE_LIFE), Relaxed);
        self.waiting_since.store(0, Relaxed);
        let is_short = places < asked.want || asked.want == asked.places;
        state.next_ask = if is_short || asked.want == 0 { now + REBALANCE } else { now };
        // What was wanted is there: more can be had at once, and the round comes anyway.
        self.refused_until.store(if is_short { nanos(now + REBALANCE) } else { 0 }, Relaxed);
    }

    /// No answer to the last ask came.
    pub fn fail(&self, now: Duration) {
        let mut state = self.state.lock();
        (state.asked_at, state.next_ask) = (None, now + ANSWER_WITHIN);
    }

    /// When to look again, if it does not ring before; to be called after each look.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let state = self.state.lock();
        if state.asked_at.is_some() || self.away.load(Relaxed) > 0 {
            return None;
        }
        self.handed.store(false, Relaxed);
        let own = self.own();
        let leased = self.places.load(Relaxed);
        if self.peak.load(Relaxed) > own.saturating_add(leased) {
            self.handed.store(true, Relaxed);
            return Some(state.next_ask.max(now));
        }
        // Those that are held are asked for again before they end, or given up; a call that needs
        // more rings before.
        (leased > 0 || self.gate.inside() > own).then(|| state.next_ask.max(now + REBALANCE))
    }

    /// How it calls for a look: at most once until [`Self::due`] was called. The first one set
    /// stays.
    pub fn set_bell(&self, ring: impl Fn() + Send + Sync + 'static) {
        self.bell.set(ring);
    }

    /// Where calls that it lets through without the store are counted, beside those of other limits. The
    /// first one set stays.
    pub fn count_alone(&self, calls: Arc<AtomicU64>) {
        self.alone.set_calls(calls);
    }

    /// `replicas` share it, this one included.
    pub fn note_replicas(&self, replicas: u32) {
        self.replicas.store(replicas.max(1), Relaxed);
    }

    /// The store went away. `replicas` is the last known number of replicas.
    pub fn note_away(&self, replicas: u32) {
        self.note_replicas(replicas);
        self.away.store(replicas.max(1), Relaxed);
        self.places.store(0, Relaxed);
        self.state.lock().asked_at = None;
    }

    /// The store is back.
    pub fn note_back(&self) {
        let mut state = self.state.lock();
        *state = GateState::default();
        self.waiting_since.store(0, Relaxed);
        self.refused_until.store(0, Relaxed);
        self.handed.store(false, Relaxed);
        self.away.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::book::GateBook;

    struct World {
        book: GateBook,
        gates: Vec<LeasedGate>,
    }

    impl World {
        fn new(max: u32, replicas: u32) -> Self {
            let gate = |_| {
                let gate = LeasedGate::new(max);
                gate.note_replicas(replicas);
                gate.note_back();
                gate
            };
            Self { book: GateBook::default(), gates: (0..replicas).map(gate).collect() }
        }

        /// The control loop and the store, at this moment.
        fn serve(&mut self, now: Duration) {
            for (id, gate) in self.gates.iter().enumerate() {
                if let Some(ask) = gate.ask(now) {
                    let keep = GATE_LIFE.as_micros() as u64;
                    let places = self.book.divide(id as u64, ask, keep, now.as_micros() as u64);
                    gate.grant(ask, places, now);
                }
                gate.due(now);
            }
        }

        /// So many try to enter at each; those that do, leave after the round. How many were in
        /// at each.
        fn round(&mut self, tries: &[u32], now: Duration) -> Vec<u32> {
            let enter = |gate: &LeasedGate, n: u32| {
                (0..n).filter(|_| gate.enter(now).is_ok()).count() as u32
            };
            let mut inside: Vec<u32> =
                self.gates.iter().zip(tries).map(|(gate, n)| enter(gate, *n)).collect();
            self.serve(now);
            for ((gate, n), inside) in self.gates.iter().zip(tries).zip(&mut inside) {
                *inside += enter(gate, *n - *inside);
            }
            let total: u32 = self.gates.iter().map(LeasedGate::inside).sum();
            assert!(total <= 64, "{total} are in: {inside:?}");
            for (gate, inside) in self.gates.iter().zip(&inside) {
                (0..*inside).for_each(|_| gate.leave());
            }
            self.serve(now + Duration::from_millis(1));
            inside
        }
    }

    #[test]
    fn what_one_does_not_need_another_has() {
        let mut world = World::new(64, 4);
        let second = Duration::from_secs(1);
        // 8 are each one's own, and 32 are divided.
        assert_eq!(world.round(&[40, 1, 1, 1], second), [40, 1, 1, 1]);
        assert_eq!(world.round(&[0, 0, 0, 0], second * 6), [0, 0, 0, 0]);
        assert_eq!(world.round(&[0, 50, 1, 1], second * 12), [0, 40, 1, 1]);
        for n in 13..20 {
            world.round(&[30, 50, 1, 1], second * n);
        }
        let shared = world.round(&[30, 50, 1, 1], second * 20);
        assert_eq!(shared, [24, 24, 1, 1], "both want more than an equal part of 32");
    }

    #[test]
    fn own_places_need_no_word() {
        let gate = LeasedGate::new(64);
        gate.note_replicas(4);
        gate.note_back();
        let now = Duration::from_secs(1);
        assert!((0..8).all(|_| gate.enter(now).is_ok()));
        assert_eq!(gate.ask(now), None);
        assert_eq!(gate.enter(now), Err(LeaseShortage::Unanswered(ANSWER_WITHIN)));
        assert_eq!(gate.ask(now).map(|ask| ask.want), Some(2));
        let later = now + ANSWER_WITHIN;
        assert!((0..8).all(|_| gate.enter(later).is_ok()), "a silent store leaves the share");
        assert!(gate.enter(later).is_err());
    }

    #[test]
    fn open_and_closed() {
        let now = Duration::from_secs(1);
        for (when_away, admits) in [(WhenAway::Open, 100), (WhenAway::Closed, 0)] {
            let gate = LeasedGate::new(4).with_when_away(when_away);
            let entered = (0..100).filter(|_| gate.enter(now).is_ok()).count();
            assert_eq!((entered, gate.inside()), (admits, admits as u32), "{when_away:?}");
        }
    }

    #[test]
    fn away_it_goes_by_its_share() {
        let gate = LeasedGate::new(64);
        gate.note_away(4);
        let entered = (0..100).filter(|_| gate.enter(Duration::from_secs(1)).is_ok()).count();
        assert_eq!(
            (entered, gate.places(Duration::from_secs(1)), gate.entered_alone()),
            (16, 16, 16)
        );
    }
}
