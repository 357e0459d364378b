//! What wellhead's own calls cost, and when the next one may be made while no client calls.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_eth::MethodRow;
use wellhead_upstream::Upstream;

/// The length of a day of credits, from its first call on.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A call that could not wait for its turn is paid back by later turns, at most this
/// many of them: a burst long ago must not keep us from looking for hours.
const OWED_TURNS_MAX: u32 = 3;

/// What one call to this upstream costs.
pub(crate) fn price(upstream: &Upstream, row: &MethodRow) -> u64 {
    upstream.price(row)
}

/// The credits that one upstream's checks may cost in a day.
#[derive(Debug, Default)]
pub(crate) struct DailyAllowance {
    per_day: Option<u64>,
    day: Mutex<Day>,
}

#[derive(Debug, Default)]
struct Day {
    began: Option<Instant>,
    spent: u64,
    told: bool,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payment {
    /// It may, and is paid for.
    Paid,
    /// It would cost more than is left of this day.
    Refused {
        /// For the first time today.
        is_news: bool,
    },
}

impl DailyAllowance {
    pub(crate) fn new(per_day: Option<u64>) -> Self {
        Self { per_day, ..Self::default() }
    }

    pub(crate) fn spend(&self, credits: u64, now: Instant) -> Payment {
        let Some(per_day) = self.per_day else { return Payment::Paid };
        let mut day = self.day.lock();
        day.renew(now);
        if day.spent.saturating_add(credits) > per_day {
            return Payment::Refused { is_news: !std::mem::replace(&mut day.told, true) };
        }
        day.began.get_or_insert(now);
        day.spent += credits;
        Payment::Paid
    }

    /// Whether a call was refused today.
    pub(crate) fn is_spent(&self, now: Instant) -> bool {
        if self.per_day.is_none() {
            return false;
        }
        let mut day = self.day.lock();
        day.renew(now);
        day.told
    }
}

impl Day {
    fn renew(&mut self, now: Instant) {
        if self.began.is_some_and(|began| now.saturating_duration_since(began) >= DAY) {
            *self = Self::default();
        }
    }
}

/// The turns of own calls while no client calls: the next one is `every` after the last call.
#[derive(Debug)]
pub(crate) struct Turns {
    every: Duration,
    free_at: Mutex<Option<Instant>>,
}

impl Turns {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, free_at: Mutex::new(None) }
    }

    /// When the next call may be made while no client calls.
    pub(crate) fn free_at(&self, now: Instant) -> Instant {
        self.free_at.lock().unwrap_or(now)
    }

    /// Notes that a call is made. While clients ask all calls together cost one turn.
    pub(crate) fn take(&self, now: Instant, is_busy: bool) {
        let mut free_at = self.free_at.lock();
        let owed = free_at.map_or(now, |free| free.max(now));
        let next = if is_busy { owed.max(now + self.every) } else { owed + self.every };
        *free_at = Some(next.min(now + self.every * OWED_TURNS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::now;

    #[test]
    fn a_day_has_so_many_credits() {
        let begun = now();
        let allowance = DailyAllowance::new(Some(3));
        let at = |hours: u64| begun + Duration::from_secs(hours * 3600);
        assert_eq!(allowance.spend(2, at(0)), Payment::Paid);
        assert_eq!(allowance.spend(2, at(1)), Payment::Refused { is_news: true });
        assert!(allowance.is_spent(at(1)));
        assert_eq!(allowance.spend(2, at(2)), Payment::Refused { is_news: false });
        assert_eq!(allowance.spend(1, at(3)), Payment::Paid, "what is left may be used");
        assert!(!allowance.is_spent(at(24)), "a new day");
        assert_eq!(allowance.spend(3, at(24)), Payment::Paid);
        assert!(!DailyAllowance::new(None).is_spent(at(0)));
    }

    #[test]
    fn a_burst_is_paid_back_but_not_for_hours() {
        let begun = now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let turns = Turns::new(Duration::from_secs(60));
        assert_eq!(turns.free_at(at(0)), at(0));
        turns.take(at(0), false);
        assert_eq!(turns.free_at(at(0)), at(60));
        turns.take(at(0), false);
        assert_eq!(turns.free_at(at(0)), at(120));
        (0..100).for_each(|_| turns.take(at(0), false));
        assert_eq!(turns.free_at(at(0)), at(180));
        turns.take(at(100), true);
        assert_eq!(turns.free_at(at(100)), at(180), "what is owed is not forgiven");
        (200..300).for_each(|second| turns.take(at(second), true));
        assert_eq!(turns.free_at(at(300)), at(359), "a busy time owes one turn");
    }
}
