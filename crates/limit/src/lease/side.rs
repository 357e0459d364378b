//! What every leased limit has: tokens, the demand for them, a debt, and the state of its ask.
//!
//! The request path uses the atomics; the control plane, one loop, holds the lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::demand::{DemandRate, LeaseDemand};
use super::pool::TokenPool;
use super::{ANSWER_WITHIN, Bell, LEAST_CALLS, LeaseAsk, LeaseGrant};
use crate::nanos;

/// What the control plane tells every limit that has a `side`, and counts as `alone`.
macro_rules! serve_side {
    ($limit:ty) => {
        impl $limit {
            /// No answer to the last ask came.
            pub fn fail(&self, now: Duration) {
                self.side.fail(now);
            }

            /// When to look again, if it does not ring before; to be called after each look.
            pub fn due(&self, now: Duration) -> Option<Duration> {
                self.side.due(now)
            }

            /// How it calls for a look: at most once until [`Self::due`] was called. The first one set
            /// stays.
            pub fn set_bell(&self, ring: impl Fn() + Send + Sync + 'static) {
                self.side.set_bell(ring);
            }

            /// Where calls that it lets through without the store are counted, beside those of other limits. The
            /// first one set stays.
            pub fn count_alone(&self, calls: Arc<AtomicU64>) {
                self.alone.set_calls(calls);
            }

            /// `replicas` share it, this one included.
            pub fn note_replicas(&self, replicas: u32) {
                self.side.note_replicas(replicas);
            }

            /// The store went away. `replicas` is the last known number of replicas.
            pub fn note_away(&self, replicas: u32) {
                self.side.note_away(replicas);
            }
        }
    };
}

pub(super) use serve_side;

/// By which a rate and a cap differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct SideTerms {
    /// The demand is smoothed over this.
    pub(super) smooth: Duration,
    /// How long a lease is meant to last.
    pub(super) stock: Duration,
    /// How long a token can be spent.
    pub(super) life: Duration,
    /// The pause after a grant that was short.
    pub(super) gap: Duration,
    /// Nothing more is ever wanted, in thousandths.
    pub(super) want_max: u64,
    /// What is worth an ask of its own to give back, in thousandths, divided by the replicas.
    pub(super) back_min: u64,
    /// A grant is short below this share of what was wanted.
    pub(super) short_below: f64,
}

/// How a call fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideTaken {
    Taken,
    /// The store said so.
    Refused(Duration),
    /// Nothing was said yet; it is due within this.
    Unanswered(Duration),
    /// Nothing was said, and it is overdue.
    Silent,
}

#[derive(Debug)]
pub(super) struct LeaseSide {
    pub(super) terms: SideTerms,
    pub(super) pool: TokenPool,
    demand: LeaseDemand,
    /// Thousandths of credits that are owed to the store.
    debt: AtomicU64,
    /// Of calls since the last ask that found no tokens, the sum and the dearest.
    unmet: AtomicU64,
    dearest: AtomicU64,
    /// With this or less left, it is time to ask.
    low: AtomicU64,
    /// When a call left so little, or found none.
    low_at: AtomicU64,
    /// The control plane has it in hand: no need to ring.
    handed: AtomicBool,
    /// When the first call waited for the answer to come; 0: none does.
    waiting_since: AtomicU64,
    refused_until: AtomicU64,
    /// Until when tokens are asked for before a call misses them.
    ahead_until: AtomicU64,
    /// Replicas while the store is away, else 0.
    away: AtomicU32,
    /// Replicas known last.
    replicas: AtomicU32,
    bell: Bell,
    state: Mutex<AskState>,
}

/// The control plane's.
#[derive(Debug, Default)]
struct AskState {
    rate: DemandRate,
    asked: Option<OpenAsk>,
    next_ask: Duration,
    /// To be given back.
    back: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenAsk {
    at: Duration,
    want: u64,
}

impl LeaseSide {
    /// Away until it is served by a control loop.
    pub(super) fn new(terms: SideTerms) -> Self {
        Self {
            terms,
            pool: TokenPool::default(),
            demand: LeaseDemand::default(),
            debt: AtomicU64::new(0),
            unmet: AtomicU64::new(0),
            dearest: AtomicU64::new(0),
            low: AtomicU64::new(0),
            low_at: AtomicU64::new(0),
            handed: AtomicBool::new(false),
            waiting_since: AtomicU64::new(0),
            refused_until: AtomicU64::new(0),
            ahead_until: AtomicU64::new(u64::MAX),
            away: AtomicU32::new(1),
            replicas: AtomicU32::new(1),
            bell: Bell::default(),
            state: Mutex::new(AskState::default()),
        }
    }

    pub(super) fn set_bell(&self, ring: impl Fn() + Send + Sync + 'static) {
        self.bell.set(ring);
    }

    /// Replicas to share with while the store is away.
    pub(super) fn away(&self) -> Option<u32> {
        match self.away.load(Relaxed) {
            0 => None,
            replicas => Some(replicas),
        }
    }

    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Relaxed).max(1)
    }

    pub(super) fn note_replicas(&self, replicas: u32) {
        self.replicas.store(replicas.max(1), Relaxed);
    }

    /// Takes the price, of which `part` has to be there; the rest becomes a debt. Beyond the tokens
    /// that are leased, on credit up to `credit`, and one call at least; `None`: never.
    pub(super) fn take(
        &self,
        price: u64,
        part: u64,
        credit: Option<u64>,
        now: Duration,
    ) -> SideTaken {
        let now = nanos(now);
        self.demand.add(price);
        if let Some(left) = self.pool.take(part, now) {
            if price > part {
                self.debt.fetch_add(price - part, Relaxed);
            }
            if left <= self.low.load(Relaxed) {
                self.low_at.store(now, Relaxed);
                self.call_attention();
            }
            return SideTaken::Taken;
        }
        self.take_beyond(price, part, credit, now)
    }

    /// Kept apart: the way above is the one that has to be short.
    #[cold]
    fn take_beyond(&self, price: u64, part: u64, credit: Option<u64>, now: u64) -> SideTaken {
        self.low_at.store(now, Relaxed);
        if self.pool.take_of_both(part, now) {
            self.debt.fetch_add(price - part, Relaxed);
            self.call_attention();
            return SideTaken::Taken;
        }
        let until = self.refused_until.load(Relaxed);
        if now < until {
            return SideTaken::Refused(Duration::from_nanos(until - now));
        }
        let now = now.max(1);
        let since = self.waiting_since.compare_exchange(0, now, Relaxed, Relaxed);
        let since = since.map_or_else(|since| since.min(now), |_| now);
        if let Some(credit) = credit {
            // One call at least: otherwise no call could begin where a replica's share is less than that.
            let more = |debt: u64| {
                (debt == 0 || debt.saturating_add(price) <= credit).then_some(debt + price)
            };
            if self.debt.fetch_update(Relaxed, Relaxed, more).is_ok() {
                self.call_attention();
                return SideTaken::Taken;
            }
        }
        self.unmet.fetch_add(part, Relaxed);
        self.dearest.fetch_max(part, Relaxed);
        self.call_attention();
        match ANSWER_WITHIN.checked_sub(Duration::from_nanos(now - since)) {
            Some(left) if !left.is_zero() => SideTaken::Unanswered(left),
            _ => SideTaken::Silent,
        }
    }

    /// How long the store's word holds that there is nothing.
    pub(super) fn refused_for(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.refused_until.load(Relaxed).saturating_sub(nanos(now)))
    }

    fn call_attention(&self) {
        if !self.handed.load(Relaxed) && !self.handed.swap(true, Relaxed) {
            self.bell.ring();
        }
    }

    /// Takes what was spent regardless: out of the tokens, or as a debt.
    pub(super) fn charge(&self, price: u64, now: Duration) {
        if self.pool.take(price, nanos(now)).is_none() {
            self.debt.fetch_add(price, Relaxed);
            self.call_attention();
        }
    }

    /// Puts back what was taken: off the debt first.
    pub(super) fn give_back(&self, price: u64) {
        let before = self.lower_debt(price);
        if price > before {
            self.pool.put_back(price - before);
        }
    }

    /// The debt before.
    fn lower_debt(&self, by: u64) -> u64 {
        let less = |debt: u64| Some(debt.saturating_sub(by));
        self.debt.fetch_update(Relaxed, Relaxed, less).unwrap_or_default()
    }

    pub(super) fn debt(&self) -> u64 {
        self.debt.load(Relaxed)
    }

    /// Notes what was spent without the store: paid for with the next lease.
    pub(super) fn owe(&self, price: u64) {
        self.debt.fetch_add(price, Relaxed);
    }

    /// Tokens are void, and nothing of them is given back.
    pub(super) fn forget_tokens(&self) {
        self.state.lock().back = 0;
        self.pool.clear();
    }

    /// Tokens are void, and so is what is owed.
    pub(super) fn void(&self) {
        let mut state = self.state.lock();
        (state.back, state.next_ask) = (0, Duration::ZERO);
        self.pool.clear();
        self.debt.store(0, Relaxed);
        self.refused_until.store(0, Relaxed);
        self.waiting_since.store(0, Relaxed);
    }

    /// What the store should be asked at `now`, if anything. `least_max` bounds the lease of a quiet key.
    /// To be followed by [`Self::grant`] or [`Self::fail`].
    pub(super) fn ask(&self, least_max: u64, now: Duration) -> Option<LeaseAsk> {
        let terms = &self.terms;
        let mut state = self.state.lock();
        if state.asked.is_some() || self.away().is_some() {
            return None;
        }
        let expired = self.pool.expire(nanos(now));
        state.back += expired;
        let mut ask = LeaseAsk::default();
        if now >= state.next_ask {
            ask = self.wanted(&mut state, least_max, now);
        }
        let back_min = (terms.back_min / u64::from(self.replicas())).max(1);
        if ask.want == 0 && state.back < back_min {
            return None;
        }
        ask.back = std::mem::take(&mut state.back);
        state.asked = Some(OpenAsk { at: now, want: ask.want });
        Some(ask)
    }

    fn wanted(&self, state: &mut AskState, least_max: u64, now: Duration) -> LeaseAsk {
        let terms = &self.terms;
        state.rate.update(&self.demand, terms.smooth, now);
        let debt = self.debt();
        let (unmet, dearest) = (self.unmet.swap(0, Relaxed), self.dearest.swap(0, Relaxed));
        let price = state.rate.price_of(1);
        let least = state.rate.price_of(LEAST_CALLS).min(least_max.max(price));
        let target =
            state.rate.in_stretch(terms.stock).max(unmet).saturating_add(least).min(terms.want_max);
        let held = self.pool.held(nanos(now));
        if held >= target {
            // The demand fell: what there is will do for longer.
            self.low.store(target / 2, Relaxed);
        }
        let is_slow = unmet == 0 && state.rate.is_slow(terms.life);
        if unmet == 0 && debt == 0 && (is_slow || !self.is_low(now)) {
            return LeaseAsk::default();
        }
        let more = if is_slow { 0 } else { target.saturating_sub(held).max(dearest).max(price) };
        let want = more.saturating_add(debt);
        // With its debt paid, it has the credit for one call at least.
        let need = if debt > 0 { debt } else { dearest.max(price) };
        let need = need.min(terms.want_max).min(want);
        LeaseAsk { want, need, back: 0 }
    }

    /// From then on tokens are asked for only when a call missed some.
    pub(super) fn ask_ahead_until(&self, until: Duration) {
        self.ahead_until.store(nanos(until), Relaxed);
    }

    /// The answer to the ask.
    pub(super) fn grant(&self, grant: LeaseGrant, now: Duration) {
        let _asked_at = self.grant_for(grant, self.terms.life, now);
    }

    /// As [`Self::grant`], of tokens that can be spent for another time than usual. Returns when they were asked
    /// for.
    pub(super) fn grant_for(
        &self,
        grant: LeaseGrant,
        life: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let mut state = self.state.lock();
        let asked = state.asked.take()?;
        let paid = self.lower_debt(grant.granted).min(grant.granted);
        let tokens = grant.granted - paid;
        if tokens > 0 {
            let left = self.pool.add(tokens, asked.at + life);
            state.back += left;
        }
        if asked.want == 0 {
            return Some(asked.at);
        }
        self.low.store(self.pool.held(nanos(now)) / 2, Relaxed);
        self.waiting_since.store(0, Relaxed);
        let got = grant.granted as f64 / asked.want as f64;
        let is_short = got < self.terms.short_below;
        // What was got shortens the pause: near the limit, each is refused less in it.
        let pause = asked.at + self.terms.gap.mul_f64((1.0 - got).max(0.5));
        let pause = pause.max(now + grant.wait);
        state.next_ask = if is_short { pause } else { now };
        let until = if is_short { nanos(state.next_ask) } else { 0 };
        self.refused_until.store(until, Relaxed);
        Some(asked.at)
    }

    /// No answer came. What was to be given back may have been: it is lost.
    pub(super) fn fail(&self, now: Duration) {
        let mut state = self.state.lock();
        state.next_ask = state.next_ask.max(now + self.terms.gap.min(ANSWER_WITHIN));
        if state.asked.take().is_some_and(|asked| asked.want > 0) {
            // What was wanted still is.
            self.unmet.fetch_max(1, Relaxed);
        }
    }

    /// When [`Self::ask`] is worth a look without a ring; to be called after each look.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let state = self.state.lock();
        if self.away().is_some() || state.asked.is_some() {
            return None;
        }
        // First this, then the look: a call in between rings, or is seen.
        self.handed.store(false, Relaxed);
        let expiry = self.pool.next_expiry();
        // As `wanted` has it, or the two would go round in a circle.
        let is_low = self.is_low(now) && !state.rate.is_slow(self.terms.life);
        if self.debt() > 0 || self.unmet.load(Relaxed) > 0 || is_low {
            self.handed.store(true, Relaxed);
            return Some(expiry.map_or(state.next_ask, |at| at.min(state.next_ask)).max(now));
        }
        expiry.map(|expiry| expiry.max(now))
    }

    /// Whether calls of late left little. Those of earlier may have gone to another replica, and
    /// the tokens with them.
    fn is_low(&self, now: Duration) -> bool {
        if nanos(now) >= self.ahead_until.load(Relaxed) {
            return false;
        }
        let since = nanos(now).saturating_sub(self.low_at.load(Relaxed));
        since <= nanos(self.terms.gap / 2) && self.pool.held(nanos(now)) <= self.low.load(Relaxed)
    }

    /// The store went away. Tokens that are leased are not used any more: the share takes their place.
    pub(super) fn note_away(&self, replicas: u32) {
        self.note_replicas(replicas);
        self.away.store(replicas.max(1), Relaxed);
        self.state.lock().asked = None;
    }

    /// The store is back. What was leased before may be spent as long as it lives.
    pub(super) fn note_back(&self) {
        let mut state = self.state.lock();
        (state.asked, state.next_ask, state.back) = (None, Duration::ZERO, 0);
        self.waiting_since.store(0, Relaxed);
        self.refused_until.store(0, Relaxed);
        self.handed.store(false, Relaxed);
        self.away.store(0, Relaxed);
    }
}
