//! What was spent: today, and this month.
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

/// The books. The page of a day holds 10^12 credits, and so does that of a month; beyond that it is full.
///
/// Each call writes the page of its day alone, as writes to memory that threads share are dear. The page of the month
/// holds the days that are over; the first call of a day adds the page of the day before. Until it has, what is read of
/// the month lacks that day: a cap of the month may then let calls pass that come in this moment.
#[derive(Debug, Default)]
pub struct Ledger {
    day: AtomicU64,
    month: AtomicU64,
}

impl Ledger {
    /// Notes that `credits` were spent on the day `today`, counted from 1970.
    #[inline]
    pub fn spend(&self, credits: u64, today: u32) {
        let before = add(&self.day, credits, today);
        // An empty page says nothing of its month.
        if before.which != before.turned_to(today) && before.credits > 0 {
            add(&self.month, before.credits, month_of(before.which));
        }
    }

    /// Takes back `credits` that were spent on the day `today` for less than they were spent for. Nothing
    /// of a day or month that is over comes back.
    pub fn give_back(&self, credits: u64, today: u32) {
        if !take_off(&self.day, credits, today) {
            take_off(&self.month, credits, month_of(today));
        }
    }

    /// The pages that are open.
    pub fn pages(&self) -> Pages {
        let (day, closed) = (LedgerPage::of(&self.day), LedgerPage::of(&self.month));
        let closed =
            Pages { month: closed.which, month_credits: closed.credits, ..Pages::default() };
        closed.plus(Pages {
            day: day.which,
            day_credits: day.credits,
            month: month_of(day.which),
            month_credits: day.credits,
        })
    }

    /// Adds what was spent before the start. Pages of days that are over say nothing, and
    /// neither do those of days to come, which a clock that was wrong may have written.
    pub fn restore(&self, pages: Pages, today: u32) {
        let is_today = pages.day == today;
        let day_credits = if is_today { pages.day_credits } else { 0 };
        let is_open = pages.month == month_of(today);
        let month_credits = if is_open { pages.month_credits } else { day_credits };
        self.reopen(Pages { day: today, day_credits, month: month_of(today), month_credits });
    }

    /// Adds pages of another ledger as they are, whatever the day is.
    pub fn reopen(&self, pages: Pages) {
        let is_of_month = month_of(pages.day) == pages.month;
        let of_day = if is_of_month { pages.day_credits } else { 0 };
        add(&self.month, pages.month_credits.saturating_sub(of_day), pages.month);
        self.spend(pages.day_credits, pages.day);
    }

    /// Spent today.
    pub fn on_day(&self, today: u32) -> u64 {
        LedgerPage::of(&self.day).credits_of(today)
    }

    /// Spent in the month that `today` is in.
    pub fn in_month(&self, today: u32) -> u64 {
        let (day, month) = (LedgerPage::of(&self.day), month_of(today));
        let open = if month_of(day.which) == month { day.credits } else { 0 };
        LedgerPage::of(&self.month).credits_of(month).saturating_add(open)
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

/// What one word of a ledger holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LedgerPage {
    /// The day or the month, counted from 1970.
    which: u32,
    credits: u64,
}

impl LedgerPage {
    fn of(word: &AtomicU64) -> Self {
        Self::unpack(word.load(Ordering::Relaxed))
    }

    fn unpack(word: u64) -> Self {
        Self { which: (word >> CREDIT_BITS) as u32, credits: word & CREDITS_MAX }
    }

    fn pack(self) -> u64 {
        u64::from(self.which) << CREDIT_BITS | self.credits.min(CREDITS_MAX)
    }

    fn credits_of(self, which: u32) -> u64 {
        if self.which == which { self.credits } else { 0 }
    }

    /// The page that is open once something is spent on `which`. A thread that is late by a moment must not turn the
    /// page back; a clock that was ahead and is right again must, or nothing would be bounded until that page.
    fn turned_to(self, which: u32) -> u32 {
        if self.which > which.saturating_add(1) { which } else { which.max(self.which) }
    }
}

/// Adds to a page, and returns what it was before.
#[inline]
fn add(word: &AtomicU64, credits: u64, which: u32) -> LedgerPage {
    let added = |word: u64| {
        let page = LedgerPage::unpack(word);
        let which = page.turned_to(which);
        let credits = page.credits_of(which).saturating_add(credits);
        Some(LedgerPage { which, credits }.pack())
    };
    let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    LedgerPage::unpack(before.unwrap_or_else(|unchanged| unchanged))
}

/// Takes credits off a page. Returns whether that page is open.
fn take_off(word: &AtomicU64, credits: u64, which: u32) -> bool {
    let less = |word: u64| {
        let page = LedgerPage::unpack(word);
        let credits = page.credits.saturating_sub(credits);
        (page.which == which).then(|| LedgerPage { which, credits }.pack())
    };
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
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
        assert_eq!(ledger.in_month(20_788), 2 + 3);
    }

    #[test]
    fn days_that_are_over_stay_in_their_month() {
        let ledger = Ledger::default();
        for day in 20_779..20_788 {
            ledger.spend(10, day);
            ledger.spend(1, day);
        }
        assert_eq!((ledger.on_day(20_787), ledger.in_month(20_787)), (11, 99));
        let pages = ledger.pages();
        assert_eq!((pages.day_credits, pages.month_credits), (11, 99));
        ledger.give_back(4, 20_780);
        ledger.give_back(2, 20_787);
        assert_eq!((ledger.on_day(20_787), ledger.in_month(20_787)), (9, 93));
        // December, on its first day and after it.
        ledger.spend(3, 20_788);
        assert_eq!((ledger.in_month(20_788), ledger.in_month(20_787)), (3, 93));
        ledger.spend(3, 20_789);
        assert_eq!((ledger.in_month(20_789), ledger.pages().month_credits), (6, 6));
        assert_eq!(ledger.in_month(20_787), 0, "November is over");
    }

    #[test]
    fn threads_that_spend_at_midnight_lose_nothing() {
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for step in 0..20_000 {
                        ledger.spend(1, 20_778 + step / 2_000);
                    }
                });
            }
        });
        // The 20th to the 29th of November; threads late by more than a day have turned pages back, and lose none.
        assert_eq!(ledger.in_month(20_787), 4 * 20_000);
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
        ledger.spend(5, 20_781);
        ledger.give_back(5, 20_780);
        assert_eq!((ledger.on_day(20_781), ledger.in_month(20_781)), (5, 1 + 5), "its day is over");
        ledger.give_back(100, 20_781);
        ledger.give_back(100, 20_780);
        assert_eq!((ledger.on_day(20_781), ledger.in_month(20_781)), (0, 0), "never below nothing");
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
            // It goes on from there.
            ledger.spend(1, today);
            let spent = (ledger.on_day(today), ledger.in_month(today));
            assert_eq!(spent, (day + 1, month + 1), "{today}");
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
