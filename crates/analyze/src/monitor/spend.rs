//! What a target was sent, by the minute, and what it may still be sent. Plain sums: the time is told.

use serde::{Deserialize, Serialize};

const HOUR_MINUTES: u64 = 60;
const DAY_MINUTES: u64 = 24 * 60;

/// Calls that one target may be sent: in any hour, and in any day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendBounds {
    /// In 60 minutes in a row.
    pub per_hour: u64,
    /// In 24 hours in a row.
    pub per_day: u64,
}

/// Calls of one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SpentMinute {
    /// Since 1970.
    minute: u64,
    calls: u64,
}

/// Calls of the last day. A minute counts until all of it is an hour, or a day, ago: the bounds hold for any hour and
/// any day, not for those of a calendar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendLedger {
    /// In the order of time; at most one for each minute of a day.
    minutes: Vec<SpentMinute>,
}

impl SpendLedger {
    /// Calls that may be sent at `now`, seconds since 1970.
    pub fn left(&self, bounds: SpendBounds, now: u64) -> u64 {
        let hour = bounds.per_hour.saturating_sub(self.spent_since(now, HOUR_MINUTES));
        hour.min(bounds.per_day.saturating_sub(self.spent_since(now, DAY_MINUTES)))
    }

    /// Calls in the last hour.
    pub fn of_last_hour(&self, now: u64) -> u64 {
        self.spent_since(now, HOUR_MINUTES)
    }

    /// The first time, not before `now`, at which this many may be sent if none is sent until then; `None` where they
    /// are more than the bounds ever let pass.
    pub fn when(&self, calls: u64, bounds: SpendBounds, now: u64) -> Option<u64> {
        if calls > bounds.per_hour.min(bounds.per_day) {
            return None;
        }
        // The left only change as minutes grow old.
        let ends = self.minutes.iter().flat_map(|it| {
            [HOUR_MINUTES, DAY_MINUTES].map(|minutes| (it.minute + minutes + 1) * 60)
        });
        let mut times: Vec<u64> = ends.filter(|at| *at > now).collect();
        times.push(now);
        times.sort_unstable();
        times.into_iter().find(|at| self.left(bounds, *at) >= calls)
    }

    /// Counts calls before they are sent.
    pub fn charge(&mut self, calls: u64, now: u64) {
        let minute = now / 60;
        self.minutes.retain(|it| it.minute + DAY_MINUTES >= minute);
        match self.minutes.last_mut() {
            // A clock that went back does not make the order another one.
            Some(last) if last.minute >= minute => last.calls = last.calls.saturating_add(calls),
            Some(_) | None => self.minutes.push(SpentMinute { minute, calls }),
        }
    }

    /// Takes back what was charged last and not sent.
    pub fn refund(&mut self, calls: u64) {
        if let Some(last) = self.minutes.last_mut() {
            last.calls = last.calls.saturating_sub(calls);
        }
    }

    fn spent_since(&self, now: u64, minutes: u64) -> u64 {
        let minute = now / 60;
        let recent = self.minutes.iter().filter(|it| it.minute + minutes >= minute);
        recent.fold(0, |sum, it| sum.saturating_add(it.calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SpendBounds = SpendBounds { per_hour: 100, per_day: 250 };
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3_600;

    #[test]
    fn no_hour_and_no_day_has_more_than_its_bound() {
        let (mut ledger, mut sent) = (SpendLedger::default(), Vec::new());
        // A client that takes all that it may, every 7 minutes for three days.
        for now in (0..72 * HOUR).step_by(7 * 60) {
            let calls = ledger.left(BOUNDS, now);
            ledger.charge(calls, now);
            sent.push((now, calls));
        }
        let within = |from: u64, length: u64| -> u64 {
            let inside = sent.iter().filter(|(at, _)| (from..=from + length).contains(at));
            inside.map(|(_, calls)| calls).sum()
        };
        for (from, _) in &sent {
            assert!(within(*from, HOUR) <= 100 && within(*from, 24 * HOUR) <= 250, "{from}");
        }
        assert!(within(0, 72 * HOUR) >= 700, "and it uses what it has");
        assert!(ledger.minutes.len() <= 24 * 60 + 1);
    }

    #[test]
    fn it_says_when_there_is_room() {
        let mut ledger = SpendLedger::default();
        assert_eq!(ledger.when(100, BOUNDS, 5), Some(5));
        assert_eq!(ledger.when(101, BOUNDS, 5), None);
        ledger.charge(60, 10 * MINUTE);
        ledger.charge(40, 20 * MINUTE);
        let now = 21 * MINUTE;
        assert_eq!(ledger.left(BOUNDS, now), 0);
        assert_eq!(ledger.when(60, BOUNDS, now), Some(71 * MINUTE));
        assert_eq!(ledger.when(61, BOUNDS, now), Some(81 * MINUTE));
        assert_eq!(ledger.left(BOUNDS, 71 * MINUTE), 60);
    }

    #[test]
    fn what_was_not_sent_is_given_back() {
        let mut ledger = SpendLedger::default();
        ledger.charge(100, 0);
        ledger.refund(70);
        assert_eq!((ledger.left(BOUNDS, 0), ledger.of_last_hour(0)), (70, 30));
        // And a clock that goes back gives nothing.
        ledger.charge(10, 5 * MINUTE);
        ledger.charge(10, 0);
        assert_eq!(ledger.left(BOUNDS, 5 * MINUTE), 50);
    }
}
