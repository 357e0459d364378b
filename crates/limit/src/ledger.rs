//! What was spent: today, this month, and since the start.
//!
//! Days and months are those of UTC. A provider whose month begins on another day counts
//! differently; a cap is then a little early or late. The spending before the process
//! started is known if the caller kept the [`Pages`] and gives them back.

use std::cmp;
use std::sync::atomic::{AtomicU64, Ordering};

/// The low bits of a page hold its credits, the high ones say which day or month it is.
const CREDIT_BITS: u32 = 40;
const CREDITS_MAX: u64 = (1 << CREDIT_BITS) - 1;

/// How much may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// In a day.
    pub day: Option<u64>,
    /// In a month.
    pub month: Option<u64>,
}

/// Which cap was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// The day's.
    Day,
    /// The month's.
    Month,
}

/// What was spent on the last day and in the last month that anything was: to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// The day, counted from 1970.
    pub day: u32,
    /// Credits of that day.
    pub day_credits: u64,
    /// The month, counted from January 1970.
    pub month: u32,
    /// Credits of that month.
    pub month_credits: u64,
}

impl Pages {
    /// What both of them spent in the later day and in the later month.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let of = |one: (u32, u64), other: (u32, u64)| match one.0.cmp(&other.0) {
            cmp::Ordering::Less => other,
            cmp::Ordering::Greater => one,
            cmp::Ordering::Equal => (one.0, one.1.saturating_add(other.1)),
        };
        let (day, day_credits) = of((self.day, self.day_credits), (other.day, other.day_credits));
        let month = (self.month, self.month_credits);
        let (month, month_credits) = of(month, (other.month, other.month_credits));
        Self { day, day_credits, month, month_credits }
    }
}

/// The books. A page holds 10^12 credits, beyond which it is full.
#[derive(Debug, Default)]
pub struct Ledger {
    day: AtomicU64,
    month: AtomicU64,
    total: AtomicU64,
}

impl Ledger {
    /// Notes that `credits` were spent on the day `today`, counted from 1970.
    pub fn spend(&self, credits: u64, today: u32) {
        self.total.fetch_add(credits, Ordering::Relaxed);
        add(&self.day, credits, today);
        add(&self.month, credits, month_of(today));
    }

    /// Takes back `credits` that were spent on the day `today` for less than they were spent for. Nothing
    /// of a day or month that is over comes back, and the total, which is a counter, stays.
    pub fn give_back(&self, credits: u64, today: u32) {
        take_off(&self.day, credits, today);
        take_off(&self.month, credits, month_of(today));
    }

    /// Adds `credits` to the total alone: enough if days are not counted.
    pub fn spend_undated(&self, credits: u64) {
        self.total.fetch_add(credits, Ordering::Relaxed);
    }

    /// The pages that are open.
    pub fn pages(&self) -> Pages {
        let open = |page: &AtomicU64| {
            let page = page.load(Ordering::Relaxed);
            ((page >> CREDIT_BITS) as u32, page & CREDITS_MAX)
        };
        let ((day, day_credits), (month, month_credits)) = (open(&self.day), open(&self.month));
        Pages { day, day_credits, month, month_credits }
    }

    /// Adds what was spent before the start. Pages of days that are over say nothing, and
    /// neither do those of days to come, which a clock that was wrong may have written.
    pub fn restore(&self, pages: Pages, today: u32) {
        if pages.day == today {
            add(&self.day, pages.day_credits, today);
        }
        if pages.month == month_of(today) {
            add(&self.month, pages.month_credits, month_of(today));
        }
    }

    /// Adds pages of another ledger as they are, whatever the day is.
    pub fn reopen(&self, pages: Pages) {
        add(&self.day, pages.day_credits, pages.day);
        add(&self.month, pages.month_credits, pages.month);
    }

    /// Spent since the start.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Spent today.
    pub fn on_day(&self, today: u32) -> u64 {
        read(&self.day, today)
    }

    /// Spent in the month that `today` is in.
    pub fn in_month(&self, today: u32) -> u64 {
        read(&self.month, month_of(today))
    }

    /// The cap that was reached; the month's first, as it lasts longer.
    pub fn reached(&self, caps: Caps, today: u32) -> Option<Cap> {
        self.passed(caps, 1, today)
    }

    /// The cap that would be passed by spending `credits` more; the month's first.
    pub fn passed(&self, caps: Caps, credits: u64, today: u32) -> Option<Cap> {
        if caps.month.is_some_and(|cap| self.in_month(today).saturating_add(credits) > cap) {
            return Some(Cap::Month);
        }
        caps.day
            .is_some_and(|cap| self.on_day(today).saturating_add(credits) > cap)
            .then_some(Cap::Day)
    }
}

fn add(page: &AtomicU64, credits: u64, which: u32) {
    let turn = |page: u64| {
        // A thread that is late by a moment must not turn the page back; a clock that was ahead and is right
        // again must, or nothing would be bounded until that page.
        let (open, which) = (page >> CREDIT_BITS, u64::from(which));
        let which = if open > which + 1 { which } else { which.max(open) };
        let used = if page >> CREDIT_BITS == which { page & CREDITS_MAX } else { 0 };
        Some(which << CREDIT_BITS | used.saturating_add(credits).min(CREDITS_MAX))
    };
    let _always = page.fetch_update(Ordering::Relaxed, Ordering::Relaxed, turn);
}

fn take_off(page: &AtomicU64, credits: u64, which: u32) {
    let less = |page: u64| {
        let is_open = page >> CREDIT_BITS == u64::from(which);
        is_open.then(|| page - (page & CREDITS_MAX).min(credits))
    };
    // A page that was turned meanwhile holds nothing of this.
    let _ = page.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

fn read(page: &AtomicU64, which: u32) -> u64 {
    let page = page.load(Ordering::Relaxed);
    if page >> CREDIT_BITS == u64::from(which) { page & CREDITS_MAX } else { 0 }
}

/// The month that a day is in, counted from January 1970.
pub fn month_of(day: u32) -> u32 {
    let (year, month, _) = civil(day);
    (year - 1970) * 12 + (month - 1)
}

/// Days from `day` to the first of the next month.
pub fn days_left_in_month(day: u32) -> u32 {
    let month = month_of(day);
    // No month is longer than 31 days.
    (1..=31).find(|days| month_of(day.saturating_add(*days)) != month).unwrap_or(31)
}

/// Year, month and day of the Gregorian calendar, by eras of 400 years from 1 March of
/// year 0 (H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
pub fn civil(day: u32) -> (u32, u32, u32) {
    const DAYS_FROM_MARCH_0_TO_1970: u32 = 719_468;
    const DAYS_OF_ERA: u32 = 146_097;
    // Days beyond the year 11 million have no date.
    let shifted = day.saturating_add(DAYS_FROM_MARCH_0_TO_1970);
    let (era, of_era) = (shifted / DAYS_OF_ERA, shifted % DAYS_OF_ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u32::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (20_777, (2026, 11, 20)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(day), date, "{day}");
        }
    }

    #[test]
    fn months_end() {
        for (day, left) in [(0, 31), (30, 1), (31, 28), (19_782, 1), (20_777, 11)] {
            assert_eq!(days_left_in_month(day), left, "{day}");
        }
        assert_eq!(month_of(20_777), 56 * 12 + 10);
    }

    #[test]
    fn pages_of_one_day_add_up_and_older_ones_are_past() {
        let pages = |day, day_credits, month, month_credits| Pages {
            day,
            day_credits,
            month,
            month_credits,
        };
        let (one, other) = (pages(40, 3, 1, 30), pages(40, 4, 1, 50));
        assert_eq!(one.plus(other), pages(40, 7, 1, 80));
        let next_day = pages(41, 4, 1, 50);
        assert_eq!(one.plus(next_day), pages(41, 4, 1, 80));
        assert_eq!(next_day.plus(one), one.plus(next_day));
        assert_eq!(one.plus(pages(60, 5, 2, 5)), pages(60, 5, 2, 5));
    }

    #[test]
    fn a_new_day_is_a_new_page_and_so_is_a_new_month() {
        let ledger = Ledger::default();
        ledger.spend(10, 20_786);
        ledger.spend(5, 20_786);
        assert_eq!((ledger.on_day(20_786), ledger.in_month(20_786)), (15, 15));
        ledger.spend(1, 20_787);
        assert_eq!((ledger.on_day(20_787), ledger.in_month(20_787)), (1, 16));
        assert_eq!(ledger.on_day(20_786), 0, "yesterday's page is gone");
        // 20_788 is the first of December.
        assert_eq!((ledger.on_day(20_788), ledger.in_month(20_788)), (0, 0));
        ledger.spend(2, 20_788);
        // Late by a moment: counted on the new page rather than lost.
        ledger.spend(3, 20_787);
        assert_eq!((ledger.in_month(20_788), ledger.total()), (2 + 3, 21));
    }

    #[test]
    fn a_clock_that_was_ahead_and_is_right_again_leaves_caps_that_hold() {
        let ledger = Ledger::default();
        ledger.spend(7, 20_786 + 400);
        ledger.spend(9, 20_786);
        assert_eq!((ledger.on_day(20_786), ledger.in_month(20_786)), (9, 9));
    }

    #[test]
    fn caps_are_reached() {
        let ledger = Ledger::default();
        let caps = Caps { day: Some(10), month: Some(15) };
        ledger.spend(9, 20_780);
        assert_eq!(ledger.reached(caps, 20_780), None);
        assert_eq!(ledger.passed(caps, 1, 20_780), None);
        assert_eq!(ledger.passed(caps, 2, 20_780), Some(Cap::Day), "more than is left");
        ledger.spend(1, 20_780);
        assert_eq!(ledger.reached(caps, 20_780), Some(Cap::Day));
        assert_eq!(ledger.reached(caps, 20_781), None);
        ledger.spend(5, 20_781);
        assert_eq!(ledger.reached(caps, 20_781), Some(Cap::Month));
        assert_eq!(ledger.reached(Caps::default(), 20_781), None);
        assert_eq!(ledger.reached(caps, 20_790), None, "December");
    }

    #[test]
    fn what_was_given_back_may_be_spent_again_on_that_day() {
        let ledger = Ledger::default();
        ledger.spend(10, 20_780);
        ledger.give_back(4, 20_780);
        assert_eq!((ledger.on_day(20_780), ledger.in_month(20_780)), (6, 6));
        ledger.give_back(100, 20_780);
        assert_eq!((ledger.on_day(20_780), ledger.in_month(20_780)), (0, 0), "never below nothing");
        ledger.spend(5, 20_781);
        ledger.give_back(5, 20_780);
        assert_eq!((ledger.on_day(20_781), ledger.in_month(20_781)), (5, 0), "its day is over");
    }

    #[test]
    fn what_was_kept_goes_on_where_it_still_counts() {
        let before = Ledger::default();
        before.spend(10, 20_780);
        before.spend(5, 20_781);
        let pages = before.pages();
        assert_eq!((pages.day_credits, pages.month_credits), (5, 15));
        for (today, day, month) in [
            (20_781, 5, 15),
            (20_782, 0, 15),
            // December.
            (20_788, 0, 0),
            // The clock was wrong: another day of November, and one of October.
            (20_779, 0, 15),
            (20_750, 0, 0),
        ] {
            let ledger = Ledger::default();
            ledger.restore(pages, today);
            assert_eq!((ledger.on_day(today), ledger.in_month(today)), (day, month), "{today}");
            // It goes on from there, and nothing of it was spent since the start.
            ledger.spend(1, today);
            assert_eq!((ledger.on_day(today), ledger.total()), (day + 1, 1), "{today}");
        }
        let full = Ledger::default();
        full.restore(Pages { day: 1, day_credits: u64::MAX, ..Pages::default() }, 1);
        assert_eq!(full.on_day(1), CREDITS_MAX);
    }

    #[test]
    fn a_page_that_is_full_stays_full() {
        let ledger = Ledger::default();
        ledger.spend(u64::MAX / 2, 20_780);
        ledger.spend(1, 20_780);
        assert_eq!(ledger.on_day(20_780), CREDITS_MAX);
    }
}
