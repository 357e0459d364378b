//! What wellhead's own calls cost, and when the next one may be made while no client calls.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The length of a day of credits, from its first call on.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A call that could not wait for its turn is paid back by later turns, at most this
/// many of them: a burst long ago must not keep us from looking for hours.
const OWED_TURNS_MAX: u32 = 3;

/// What the checks of one upstream cost today, and whose turn comes next. It outlives the loop that checks: new
/// settings begin another loop, and no new day.
#[derive(Debug, Default)]
pub(crate) struct CheckLedger {
    day: Mutex<Day>,
    free_at: Mutex<Option<Instant>>,
}

/// The credits that one upstream's checks may cost in a day.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DailyAllowance {
    per_day: Option<u64>,
}

#[derive(Debug, Default)]
struct Day {
    began: Option<Instant>,
    spent: u64,
    /// The allowance that was too little for a call.
    exceeded: Option<u64>,
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
        Self { per_day }
    }

    pub(crate) fn spend(self, ledger: &CheckLedger, credits: u64, now: Instant) -> Payment {
        let mut day = ledger.day.lock();
        day.renew(now);
        let per_day = self.per_day.unwrap_or(u64::MAX);
        if day.spent.saturating_add(credits) > per_day {
            return Payment::Refused { is_news: day.exceeded.replace(per_day) != Some(per_day) };
        }
        day.began.get_or_insert(now);
        day.spent += credits;
        Payment::Paid
    }

    /// Whether a call was refused today.
    pub(crate) fn is_spent(self, ledger: &CheckLedger, now: Instant) -> bool {
        let mut day = ledger.day.lock();
        day.renew(now);
        self.per_day.is_some() && day.exceeded == self.per_day
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    every: Duration,
}

impl Turns {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every }
    }

    /// When the next call may be made while no client calls.
    pub(crate) fn free_at(self, ledger: &CheckLedger, now: Instant) -> Instant {
        // Another pace may have set it.
        let latest = now + self.every * OWED_TURNS_MAX;
        ledger.free_at.lock().unwrap_or(now).min(latest)
    }

    /// Notes that a call is made. While clients ask all calls together cost one turn.
    pub(crate) fn take(self, ledger: &CheckLedger, now: Instant, is_busy: bool) {
        let mut free_at = ledger.free_at.lock();
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
        let (allowance, ledger) = (DailyAllowance::new(Some(3)), CheckLedger::default());
        let at = |hours: u64| begun + Duration::from_secs(hours * 3600);
        assert_eq!(allowance.spend(&ledger, 2, at(0)), Payment::Paid);
        assert_eq!(allowance.spend(&ledger, 2, at(1)), Payment::Refused { is_news: true });
        assert!(allowance.is_spent(&ledger, at(1)));
        assert_eq!(allowance.spend(&ledger, 2, at(2)), Payment::Refused { is_news: false });
        assert_eq!(allowance.spend(&ledger, 1, at(3)), Payment::Paid, "what is left may be used");
        assert!(!allowance.is_spent(&ledger, at(24)), "a new day");
        assert_eq!(allowance.spend(&ledger, 3, at(24)), Payment::Paid);
        assert!(!DailyAllowance::new(None).is_spent(&ledger, at(24)));
    }

    #[test]
    fn a_day_goes_on_with_another_allowance() {
        let (ledger, now) = (CheckLedger::default(), now());
        let spend = |per_day, credits| DailyAllowance::new(per_day).spend(&ledger, credits, now);
        assert_eq!(spend(Some(3), 3), Payment::Paid);
        assert_eq!(spend(Some(3), 1), Payment::Refused { is_news: true });
        assert_eq!(spend(Some(2), 1), Payment::Refused { is_news: true });
        assert!(!DailyAllowance::new(Some(5)).is_spent(&ledger, now));
        assert_eq!(spend(Some(5), 2), Payment::Paid);
        assert_eq!(spend(None, 7), Payment::Paid);
        assert_eq!(spend(Some(11), 0), Payment::Refused { is_news: true }, "12 were spent");
    }

    #[test]
    fn a_burst_is_paid_back_but_not_for_hours() {
        let begun = now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let (turns, ledger) = (Turns::new(Duration::from_secs(60)), CheckLedger::default());
        assert_eq!(turns.free_at(&ledger, at(0)), at(0));
        turns.take(&ledger, at(0), false);
        assert_eq!(turns.free_at(&ledger, at(0)), at(60));
        turns.take(&ledger, at(0), false);
        assert_eq!(turns.free_at(&ledger, at(0)), at(120));
        (0..100).for_each(|_| turns.take(&ledger, at(0), false));
        assert_eq!(turns.free_at(&ledger, at(0)), at(180));
        turns.take(&ledger, at(100), true);
        assert_eq!(turns.free_at(&ledger, at(100)), at(180), "what is owed is not forgiven");
        (200..300).for_each(|second| turns.take(&ledger, at(second), true));
        assert_eq!(turns.free_at(&ledger, at(300)), at(359), "a busy time owes one turn");
        let faster = Turns::new(Duration::from_secs(1));
        assert_eq!(faster.free_at(&ledger, at(300)), at(303), "another pace owes by its own");
    }
}
