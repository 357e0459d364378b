//! The store's side of `limit::lease`, as plain arithmetic: what the script of `store` computes, bit for bit.
//!
//! A test there compares the two on random traces; the tests of `limit` have this one for their store. All times
//! are microseconds of the store's clock, all amounts thousandths of credits. Nothing that is computed exceeds
//! 2^53 for the caps of these tests, so that a language whose only numbers are floating ones computes the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    BucketTerms, CapTerms, GateAsk, LeaseAsk, LeaseGrant, WindowAsk, WindowGrant, WindowTerms,
};

const MICROS: u64 = 1_000_000;

/// What a bucket of the store remembers: when it will be full, as `Bucket` does, and when it was
/// asked. A bucket that is full need not be remembered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeaseBook {
    /// In microseconds.
    pub(super) full_at: u64,
    /// When it was asked last, in microseconds.
    pub(super) asked_at: u64,
}

impl LeaseBook {
    /// Puts back, then grants all that is wanted or all that is there, unless that is less than
    /// needed.
    pub(super) fn lease(&mut self, terms: BucketTerms, ask: LeaseAsk, now: u64) -> LeaseGrant {
        let time_of = |milli: u64| milli as f64 * MICROS as f64 / terms.rate as f64;
        let fill = time_of(terms.depth).floor() as u64;
        // When the clock was set back, what was missing still is. Were the bucket empty then, limits that
        // were hardly used would refuse calls.
        let mut full_at = match now < self.asked_at {
            true => now + self.full_at.saturating_sub(self.asked_at),
            false => self.full_at,
        };
        // A bucket that was larger: empty, and not worse.
        full_at = full_at.min(now + fill);
        full_at = full_at.saturating_sub(time_of(ask.back).floor() as u64).max(now);
        let held = |full_at: u64| {
            let missing = (full_at - now).min(fill);
            ((fill - missing) as f64 * terms.rate as f64 / MICROS as f64).floor() as u64
        };
        // Rounded as all is, or a need of all there is would never be met.
        let need = ask.need.min(held(now));
        let mut granted = 0;
        if ask.want > 0 && held(full_at) >= need {
            granted = ask.want.min(held(full_at));
            full_at += time_of(granted).ceil() as u64;
        }
        (self.full_at, self.asked_at) = (full_at, now);
        let mut wait = 0;
        if granted < ask.want {
            wait = time_of(need.saturating_sub(held(full_at))).ceil() as u64;
        }
        LeaseGrant { granted, wait: Duration::from_micros(wait) }
    }
}

/// What is left of the caps when so much is used.
pub(super) fn left(terms: CapTerms, day_used: u64, month_used: u64) -> u64 {
    let left = |cap: Option<u64>, used: u64| cap.map_or(u64::MAX, |cap| cap.saturating_sub(used));
    left(terms.day, day_used).min(left(terms.month, month_used))
}

/// How much of what is wanted is granted: at most a twentieth of what is left, divided by the replicas, or what is
/// needed if that is more; never more than is left.
pub(super) fn chunk(left: u64, replicas: u32, ask: LeaseAsk) -> u64 {
    let most = (left / (20 * u64::from(replicas.max(1)))).max(ask.need);
    let granted = ask.want.min(most);
    if granted > left || granted < ask.need { 0 } else { granted }
}

/// What a window of the store remembers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowBook {
    /// In microseconds; 0: it was never open.
    pub(super) began: u64,
    /// Thousandths of credits.
    pub(super) used: u64,
}

impl WindowBook {
    /// Puts back what is of the open window, then grants what is needed, or a twentieth of what is left, divided by the
    /// replicas, if that is more; never more than is wanted or left. Where none is open, one opens if something is
    /// wanted.
    pub(super) fn lease(
        &mut self,
        terms: WindowTerms,
        replicas: u32,
        asked: WindowAsk,
        now: u64,
    ) -> WindowGrant {
        let WindowAsk { ask, began } = asked;
        // When the clock was set back, what was used still is.
        self.began = self.began.min(now);
        if now >= self.began + terms.length {
            if ask.want == 0 {
                return WindowGrant { left: terms.credits, ..WindowGrant::default() };
            }
            *self = Self { began: now, used: 0 };
        }
        if began == self.began {
            self.used = self.used.saturating_sub(ask.back);
        }
        let left = terms.credits.saturating_sub(self.used);
        // All that is left, where that is less than needed: debts are paid as far as may be.
        let most = (left / (20 * u64::from(replicas.max(1)))).max(ask.need.min(left));
        let granted = ask.want.min(most);
        self.used += granted;
        WindowGrant {
            granted,
            left: left - granted,
            ends_in: Duration::from_micros(self.began + terms.length - now),
            began: self.began,
        }
    }
}

/// What a gate of the store remembers: for each replica its places, what it wants, and until
/// when this counts.
#[derive(Debug, Clone, Default)]
pub(super) struct GateBook {
    /// By the replica's id: places, wanted, until (microseconds).
    pub(super) replicas: BTreeMap<u64, (u32, u32, u64)>,
}

impl GateBook {
    /// Divides the places: each that wants no more than an equal part of what is left gets that,
    /// the smallest first, and none has more than the others have left at this moment. Places in
    /// use cannot be taken away: they are kept on the books until they are left.
    pub(super) fn divide(&mut self, replica: u64, ask: GateAsk, keep: u64, now: u64) -> u32 {
        // What ends later than any that is written now is of a clock that was set back.
        self.replicas.retain(|_, (_, _, until)| *until > now && *until <= now + keep);
        let before = self.replicas.get(&replica).map_or(0, |(places, _, _)| *places);
        let others = || self.replicas.iter().filter(|(id, _)| **id != replica).map(|(_, of)| *of);
        let taken: u32 = others().map(|(places, _, _)| places).sum();
        let smaller: Vec<u32> =
            others().map(|(_, want, _)| want).filter(|want| *want <= ask.want).collect();
        let larger = others().count() - smaller.len();
        let part = equal_part(ask.places, smaller, larger as u32 + 1);
        let free = ask.places.saturating_sub(taken);
        let places = ask.want.min(part).min(free);
        let kept = places.max(ask.inside.min(before));
        self.replicas.insert(replica, (kept, ask.want, now + keep));
        places
    }
}

/// An equal part of what the smaller ones leave.
fn equal_part(places: u32, mut smaller: Vec<u32>, rest: u32) -> u32 {
    smaller.sort_unstable();
    let (mut left, mut sharers) = (places, smaller.len() as u32 + rest);
    for want in smaller {
        if want > left / sharers {
            break;
        }
        left -= want;
        sharers -= 1;
    }
    left / sharers
}
