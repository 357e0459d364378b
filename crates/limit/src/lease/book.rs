//! The store's side, as plain arithmetic: what the script of `store` computes, bit for bit.
//!
//! A test there compares the two on random traces. Simulations use this one. All times are
//! microseconds of the store's clock, all amounts thousandths of credits. Nothing that is computed
//! exceeds 2^53 for the caps named here, so that a language whose only numbers are
//! floating ones computes the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LeaseAsk, LeaseGrant};

const MICROS: u64 = 1_000_000;

/// The bucket in the store, in thousandths of credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketTerms {
    /// What comes back in a second; at least 1.
    pub rate: u64,
    /// What a full bucket holds. Not more than comes back in a year.
    pub depth: u64,
}

/// What a bucket of the store remembers: when it will be full, as [`crate::Bucket`] does, and when it was
/// asked. A bucket that is full need not be remembered.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeaseBook {
    /// In microseconds.
    pub full_at: u64,
    /// When it was asked last, in microseconds.
    pub asked_at: u64,
}

impl LeaseBook {
    /// Puts back, then grants all that is wanted or all that is there, unless that is less than
    /// needed.
    pub fn lease(&mut self, terms: BucketTerms, ask: LeaseAsk, now: u64) -> LeaseGrant {
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

/// A cap on the sums of a day and a month, in thousandths of credits; `None`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapTerms {
    /// On a day's.
    pub day: Option<u64>,
    /// On a month's.
    pub month: Option<u64>,
}

impl CapTerms {
    /// What is left of the caps when so much is used.
    pub fn left(&self, day_used: u64, month_used: u64) -> u64 {
        let left =
            |cap: Option<u64>, used: u64| cap.map_or(u64::MAX, |cap| cap.saturating_sub(used));
        left(self.day, day_used).min(left(self.month, month_used))
    }

    /// How much of what is wanted is granted: at most a twentieth of what is left, divided by the
    /// replicas, or what is needed if that is more; never more than is left.
    pub fn chunk(&self, left: u64, replicas: u32, ask: LeaseAsk) -> u64 {
        let most = (left / (20 * u64::from(replicas.max(1)))).max(ask.need);
        let granted = ask.want.min(most);
        if granted > left || granted < ask.need { 0 } else { granted }
    }
}

/// A sum in a window that opens with its first ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowTerms {
    /// Thousandths of credits of one window.
    pub credits: u64,
    /// How long it lasts, in microseconds.
    pub length: u64,
}

/// What a replica asks of such a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowAsk {
    /// In thousandths of credits.
    pub ask: LeaseAsk,
    /// When the window began that something is given back of, in microseconds.
    pub began: u64,
}

/// What the store gave of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowGrant {
    /// Thousandths of a credit.
    pub granted: u64,
    /// Thousandths of credits that are left of it.
    pub left: u64,
    /// How long it still lasts; nothing if none is open.
    pub ends_in: Duration,
    /// When it began, in microseconds; 0 if none is open.
    pub began: u64,
}

/// What a window of the store remembers.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowBook {
    /// In microseconds; 0: it was never open.
    pub began: u64,
    /// Thousandths of credits.
    pub used: u64,
}

impl WindowBook {
    /// Puts back what is of the open window, then grants what is needed, or a twentieth of what is left, divided by the
    /// replicas, if that is more; never more than is wanted or left. Where none is open, one opens if something is
    /// wanted.
    pub fn lease(
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

/// The places of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateGrant {
    /// Until the next answer, or until it is forgotten.
    pub places: u32,
}

/// What a gate of the store remembers: for each replica its places, what it wants, and until
/// when this counts.
#[derive(Debug, Clone, Default)]
pub struct GateBook {
    /// By the replica's id: places, wanted, until (microseconds).
    pub replicas: BTreeMap<u64, (u32, u32, u64)>,
}

impl GateBook {
    /// Divides the places: each that wants no more than an equal part of what is left gets that,
    /// the smallest first, and none has more than the others have left at this moment. Places in
    /// use cannot be taken away: they are kept on the books until they are left.
    pub fn divide(&mut self, replica: u64, ask: GateAsk, keep: u64, now: u64) -> GateGrant {
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
        GateGrant { places }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket of 1000/s and 100; each step `at_ms:want/need/back`, each answer
    /// `granted` or `granted+wait_us`.
    fn check(script: &str, expected: &str) {
        let terms = BucketTerms { rate: 1_000, depth: 100 };
        let mut book = LeaseBook::default();
        let told = |step: &str| {
            let (at, ask) = step.split_once(':').expect("at:ask");
            let at = 1_000_000 + at.parse::<u64>().expect("ms") * 1_000;
            let numbers: Vec<u64> = ask.split('/').map(|n| n.parse().expect("a number")).collect();
            let ask = LeaseAsk { want: numbers[0], need: numbers[1], back: numbers[2] };
            let grant = book.lease(terms, ask, at);
            match grant.wait.as_micros() {
                0 => grant.granted.to_string(),
                wait => format!("{}+{wait}", grant.granted),
            }
        };
        let found: Vec<_> = script.split_whitespace().map(told).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    #[test]
    fn what_is_there_is_granted_and_comes_back() {
        check("0:60/1/0 0:60/1/0 0:60/1/0 50:60/1/0", "60 40+1000 0+1000 50+1000");
        check("0:100/1/0 1000:200/1/0 1000:1/1/0", "100 100+1000 0+1000");
    }
    #[test]
    fn less_than_needed_is_kept_for_later() {
        check("0:90/1/0 0:50/30/0 19:50/30/0 20:50/30/0", "90 0+20000 0+1000 30+30000");
    }
    #[test]
    fn all_there_is_can_be_needed() {
        let terms = BucketTerms { rate: 6_326, depth: 7_201 };
        let ask = LeaseAsk { want: 9_000, need: 7_201, back: 0 };
        let granted = LeaseBook::default().lease(terms, ask, 1_000_000).granted;
        assert!((7_190..=7_201).contains(&granted), "{granted}");
    }
    #[test]
    fn what_is_given_back_can_be_granted_again_and_never_more_than_fits() {
        check("0:100/1/0 0:0/0/30 0:50/1/0", "100 0 30+1000");
        check("0:10/1/0 0:0/0/300 0:150/1/0", "10 0 100+1000");
    }
    #[test]
    fn a_clock_set_back_leaves_what_was_there() {
        check("900000:100/1/0 0:10/1/0 10:10/1/0", "100 0+1000 10");
        check("900000:40/1/0 0:50/1/0 0:50/1/0", "40 50 10+1000");
        check("900000:40/1/0 899995:100/1/0", "40 60+1000");
        check("900000:40/1/0 0:0/0/30 0:100/1/0", "40 0 90+1000");
    }

    #[test]
    fn caps_are_leased_in_chunks() {
        let terms = CapTerms { day: Some(1_000), month: None };
        assert_eq!((terms.left(400, 0), terms.left(1_001, 0)), (600, 0));
        let ask = |want, need| LeaseAsk { want, need, back: 0 };
        for (left, replicas, wanted, chunk) in [
            (600, 3, ask(100, 1), 10),
            (600, 3, ask(4, 1), 4),
            (600, 3, ask(100, 50), 50),
            (40, 3, ask(100, 1), 1),
            (40, 3, ask(100, 50), 0),
            (0, 3, ask(100, 1), 0),
        ] {
            assert_eq!(terms.chunk(left, replicas, wanted), chunk, "{left} {wanted:?}");
        }
    }

    #[test]
    fn a_window_opens_with_an_ask_and_takes_back_what_is_its_own() {
        let terms = WindowTerms { credits: 1_000, length: 50 };
        let mut book = WindowBook::default();
        let mut lease = |want, back, began, now| {
            let ask = LeaseAsk { want, need: want, back };
            let grant = book.lease(terms, 1, WindowAsk { ask, began }, now);
            (grant.granted, grant.left, grant.ends_in.as_micros(), grant.began)
        };
        assert_eq!(lease(0, 5, 0, 100), (0, 1_000, 0, 0), "nothing is wanted");
        assert_eq!(lease(600, 0, 0, 100), (600, 400, 50, 100));
        assert_eq!(lease(600, 0, 100, 149), (400, 0, 1, 100), "all that is left");
        assert_eq!(lease(600, 300, 100, 149), (300, 0, 1, 100));
        assert_eq!(lease(600, 300, 100, 150), (600, 400, 50, 150), "that window is over");
        assert_eq!(lease(500, 0, 150, 120), (400, 0, 50, 120), "set back, it is used as before");
    }

    #[test]
    fn places_are_divided_by_what_is_wanted() {
        let mut book = GateBook::default();
        let mut divide = |replica, want, inside, now| {
            book.divide(replica, GateAsk { places: 30, want, inside }, 3_000, now).places
        };
        assert_eq!(divide(1, 40, 0, 0), 30, "alone");
        assert_eq!(divide(2, 5, 0, 10), 0, "all are taken until the first asks again");
        assert_eq!(divide(1, 40, 10, 1_000), 25);
        assert_eq!(divide(2, 5, 0, 1_010), 5);
        assert_eq!(divide(3, 40, 0, 1_020), 0);
        assert_eq!(divide(1, 40, 25, 2_000), 12, "an equal part of what the second leaves");
        assert_eq!(divide(3, 40, 0, 2_001), 0, "what the first one uses is not free yet");
        assert_eq!(divide(1, 40, 12, 2_010), 12);
        assert_eq!(divide(3, 40, 0, 2_011), 12);
        assert_eq!(divide(3, 40, 0, 4_011), 15, "the second is forgotten");
        assert_eq!(divide(3, 40, 0, 5_010), 30, "the first one too");
    }
}
