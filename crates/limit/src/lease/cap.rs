//! A cap on the credits of a day or a month that several replicas share.
//!
//! What is leased counts as used until it is given back, so the cap is never passed while the store
//! answers. A replica that dies takes its lease with it: what it would have spent in
//! [`CAP_LIFE`], at most a twentieth of what was left divided by the replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::side::{LeaseSide, SideTaken, SideTerms, serve_side};
use super::{AloneCount, LeaseAsk, LeaseGrant, LeaseShortage, MILLI, WhenAway, milli};
use crate::{Cap, Caps, days_left_in_month, month_of, nanos};

/// How long leased credits can be spent.
pub const CAP_LIFE: Duration = Duration::from_secs(10);

/// How long a lease is meant to last.
const CAP_STOCK: Duration = Duration::from_secs(5);

/// How often a cap that is reached is asked for again: other replicas may give back.
const CAP_GAP: Duration = Duration::from_secs(2);

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

/// No share was fixed yet, or nothing is known of what is left.
const UNKNOWN: u64 = u64::MAX;

/// What to ask the store for, and in which pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageAsk {
    /// In thousandths of credits.
    pub ask: LeaseAsk,
    /// The day, counted from 1970 in UTC.
    pub day: u32,
    /// The month, counted from January 1970.
    pub month: u32,
}

/// A cap on the sums of a day and a month, in thousandths of credits; `None`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapTerms {
    /// On a day's.
    pub day: Option<u64>,
    /// On a month's.
    pub month: Option<u64>,
}

/// One replica's part in the caps that the store keeps for all.
///
/// Never on credit: the first call of a cold key waits for the store's word, as does a call that
/// finds the lease used up. Away, with one replica, until a control loop serves it.
#[derive(Debug)]
pub struct LeasedCap {
    side: LeaseSide,
    caps: Caps,
    when_away: WhenAway,
    /// The day whose tokens are held, plus one.
    day: AtomicU32,
    /// What was left of the day's and the month's cap when the store was last asked.
    day_left: AtomicU64,
    month_left: AtomicU64,
    /// What this replica may still spend while the store is away.
    share: AtomicU64,
    /// Where nothing is known of what is left: the hour, counted from 1970, whose part is in `share`.
    share_hour: AtomicU64,
    /// Thousandths of credits that were taken without the store.
    alone: AloneCount,
}

serve_side!(LeasedCap);

impl LeasedCap {
    /// These caps over all replicas.
    pub fn new(caps: Caps) -> Self {
        let side = LeaseSide::new(SideTerms {
            smooth: CAP_LIFE,
            stock: CAP_STOCK,
            life: CAP_LIFE,
            gap: CAP_GAP,
            want_max: u64::MAX / 4,
            back_min: milli(1.0),
            // Of a cap a part is granted as a rule; only nothing is short.
            short_below: f64::MIN_POSITIVE,
        });
        let unknown = || AtomicU64::new(UNKNOWN);
        Self {
            side,
            caps,
            when_away: WhenAway::Share,
            day: AtomicU32::new(0),
            day_left: unknown(),
            month_left: unknown(),
            share: unknown(),
            share_hour: AtomicU64::new(0),
            alone: AloneCount::default(),
        }
    }

    /// What holds while the store is away, instead of [`WhenAway::Share`].
    #[must_use]
    pub fn with_when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Takes `credits`. `unix` is the time since 1970, by which days and months turn; the wait of
    /// a refusal lasts until then.
    pub fn take(&self, credits: f64, now: Duration, unix: Duration) -> Result<(), LeaseShortage> {
        let price = milli(credits);
        self.turn_page(day_of(unix));
        if self.side.away().is_some() {
            return self.take_away(price, now, unix);
        }
        match self.side.take(price, price, None, now) {
            SideTaken::Taken => Ok(()),
            SideTaken::Refused(wait) => {
                let wait = self.page_end(price, unix).unwrap_or(wait);
                Err(LeaseShortage::Refused(wait))
            }
            SideTaken::Unanswered(wait) => Err(LeaseShortage::Unanswered(wait)),
            SideTaken::Silent => self.take_away(price, now, unix),
        }
    }

    /// Takes `credits` that were spent regardless; they may pass the cap.
    pub fn charge(&self, credits: f64, now: Duration) {
        self.side.charge(milli(credits), now);
    }

    /// Puts back what was taken for a call that was not made after all, or was cheaper than
    /// thought.
    pub fn give_back(&self, credits: f64) {
        self.side.give_back(milli(credits));
    }

    /// The cap that leaves no room for `credits` more on the day of `unix`, as far as was told; the
    /// month's first.
    pub fn reached(&self, credits: f64, unix: Duration) -> Option<Cap> {
        if self.day.load(Relaxed) != day_of(unix) + 1 {
            return None;
        }
        let price = milli(credits);
        let is_reached = |left: &AtomicU64| left.load(Relaxed) < price;
        if self.caps.month.is_some() && is_reached(&self.month_left) {
            return Some(Cap::Month);
        }
        (self.caps.day.is_some() && is_reached(&self.day_left)).then_some(Cap::Day)
    }

    /// Credits of the day or the month of `unix` that all replicas have spent or hold in advance, as the store told
    /// last; `None` where it told nothing of that day.
    pub fn used(&self, cap: Cap, unix: Duration) -> Option<u64> {
        if self.day.load(Relaxed) != day_of(unix) + 1 {
            return None;
        }
        let (most, left) = match cap {
            Cap::Day => (self.caps.day?, self.day_left.load(Relaxed)),
            Cap::Month => (self.caps.month?, self.month_left.load(Relaxed)),
        };
        (left != UNKNOWN).then(|| most.saturating_sub(left.div_ceil(MILLI as u64)))
    }

    /// Credits that were taken without the store so far, because it was away or silent.
    pub fn taken_alone(&self) -> f64 {
        self.alone.amount() as f64 / MILLI
    }

    /// The caps in thousandths of credits.
    pub fn terms(&self) -> CapTerms {
        let milli = |cap: Option<u64>| cap.map(|cap| cap.saturating_mul(MILLI as u64));
        CapTerms { day: milli(self.caps.day), month: milli(self.caps.month) }
    }

    /// What to ask the store for, if anything. To be followed by [`Self::grant`] or [`Self::fail`].
    pub fn ask(&self, now: Duration, unix: Duration) -> Option<PageAsk> {
        let day = day_of(unix);
        self.turn_page(day);
        let ask = self.side.ask(u64::MAX, now)?;
        Some(PageAsk { ask, day, month: month_of(day) })
    }

    /// The answer to an ask of that day, with what is left in thousandths after it. What comes
    /// when the day is over is forgotten.
    pub fn grant(&self, asked: PageAsk, granted: u64, left: (u64, u64), now: Duration) {
        if self.day.load(Relaxed) != asked.day + 1 {
            self.side.fail(now);
            return;
        }
        let told = |place: &AtomicU64, cap: Option<u64>, left: u64| {
            place.store(if cap.is_some() { left } else { UNKNOWN }, Relaxed);
        };
        told(&self.day_left, self.caps.day, left.0);
        told(&self.month_left, self.caps.month, left.1);
        self.share.store(UNKNOWN, Relaxed);
        self.side.grant(LeaseGrant { granted, wait: Duration::ZERO }, now);
    }

    /// The store is back.
    pub fn note_back(&self) {
        self.side.note_back();
    }

    /// Tokens of a page that is over are void, and so is what was owed for it.
    fn turn_page(&self, day: u32) {
        let before = self.day.load(Relaxed);
        // A thread that is late by a moment must not turn it back; a clock that was ahead and is right again
        // must.
        if before == day + 1 || before == day + 2 {
            return;
        }
        let turned = self.day.compare_exchange(before, day + 1, Relaxed, Relaxed);
        if before == 0 || turned.is_err() {
            return;
        }
        let is_new_month = month_of(before - 1) != month_of(day);
        if self.caps.day.is_none() && !is_new_month {
            return;
        }
        self.side.void();
        self.share.store(UNKNOWN, Relaxed);
        if let Some(cap) = self.terms().day {
            self.day_left.store(cap, Relaxed);
        }
        if let Some(cap) = self.terms().month.filter(|_| is_new_month) {
            self.month_left.store(cap, Relaxed);
        }
    }

    #[cold]
    fn take_away(&self, price: u64, now: Duration, unix: Duration) -> Result<(), LeaseShortage> {
        match self.when_away {
            WhenAway::Open => {
                self.owe(price);
                return Ok(());
            }
            WhenAway::Closed => return Err(LeaseShortage::Refused(CAP_LIFE)),
            WhenAway::Share => {}
        }
        // What is leased counts as used already.
        if self.side.pool.take(price, nanos(now)).is_some() {
            return Ok(());
        }
        let hour = unix.as_secs() / HOUR;
        if self.share.load(Relaxed) == UNKNOWN {
            self.share_hour.store(hour, Relaxed);
        }
        let less = |share: u64| {
            let share = if share == UNKNOWN { self.share_of_rest() } else { share };
            share.checked_sub(price)
        };
        let take = || self.share.fetch_update(Relaxed, Relaxed, less).is_ok();
        if take() || (self.take_parts_until(hour) && take()) {
            // Told to the store when it is back.
            self.owe(price);
            return Ok(());
        }
        let page_end = self.page_end(0, unix).unwrap_or(CAP_LIFE);
        let next_part = Duration::from_secs(HOUR - unix.as_secs() % HOUR);
        let wait = if self.hourly_part().is_some() { page_end.min(next_part) } else { page_end };
        Err(LeaseShortage::Refused(wait))
    }

    /// Adds the parts of the hours that have begun since the last part, where nothing is known of what is left;
    /// returns whether there were any.
    fn take_parts_until(&self, hour: u64) -> bool {
        let Some(part) = self.hourly_part() else { return false };
        let later = |last: u64| (last < hour).then_some(hour);
        let Ok(last) = self.share_hour.fetch_update(Relaxed, Relaxed, later) else { return false };
        // A clock that is set ahead earns a day at most.
        let hours = (hour - last).min(DAY / HOUR);
        self.share.fetch_add(part.saturating_mul(hours).min(u64::MAX / 4), Relaxed);
        true
    }

    /// This replica's part of an hour, where the store never told what is left of a cap.
    fn hourly_part(&self) -> Option<u64> {
        let terms = self.terms();
        let untold = |cap: Option<u64>, left: &AtomicU64, hours: u64| match left.load(Relaxed) {
            UNKNOWN => cap.map(|cap| cap / hours),
            _ => None,
        };
        let day = untold(terms.day, &self.day_left, DAY / HOUR);
        let month = untold(terms.month, &self.month_left, 31 * DAY / HOUR);
        let part = day.into_iter().chain(month).min()?;
        Some(part / u64::from(self.side.replicas()))
    }

    fn owe(&self, price: u64) {
        self.alone.add(price);
        self.side.owe(price);
    }

    /// This replica's part of what was left when the store was last asked. If it never was, of a
    /// day's cap the part of an hour, of a month's that of a day; more is added as hours pass.
    fn share_of_rest(&self) -> u64 {
        let terms = self.terms();
        let rest = |cap: Option<u64>, left: &AtomicU64, parts: u64| match (cap, left.load(Relaxed))
        {
            (None, _) => UNKNOWN,
            (Some(cap), UNKNOWN) => cap / parts,
            (Some(_), left) => left,
        };
        let day = rest(terms.day, &self.day_left, 24);
        let month = rest(terms.month, &self.month_left, 31);
        day.min(month) / u64::from(self.side.replicas())
    }

    /// How long until the page ends whose cap has no room for the price; at a price of 0, the first
    /// page that ends.
    fn page_end(&self, price: u64, unix: Duration) -> Option<Duration> {
        let rest_of_day = Duration::from_secs(DAY - unix.as_secs() % DAY);
        let days = days_left_in_month(day_of(unix));
        let rest_of_month =
            rest_of_day + Duration::from_secs(DAY * u64::from(days.saturating_sub(1)));
        if price == 0 {
            return Some(if self.caps.day.is_some() { rest_of_day } else { rest_of_month });
        }
        match self.reached(price as f64 / MILLI, unix)? {
            Cap::Day => Some(rest_of_day),
            Cap::Month => Some(rest_of_month),
        }
    }
}

fn day_of(unix: Duration) -> u32 {
    // Days beyond the year 11 million are one.
    u32::try_from(unix.as_secs() / DAY).unwrap_or(u32::MAX - 1).min(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::book::{chunk, left};

    /// Noon of 20 November 2026.
    const NOON: Duration = Duration::from_secs(20_777 * DAY + DAY / 2);

    struct World {
        cap: LeasedCap,
        used: u64,
        now: Duration,
    }

    impl World {
        fn new(caps: Caps) -> Self {
            let cap = LeasedCap::new(caps);
            cap.note_replicas(2);
            cap.note_back();
            Self { cap, used: 0, now: Duration::from_secs(1) }
        }

        fn take(&self, credits: f64, unix: Duration) -> Result<(), LeaseShortage> {
            self.cap.take(credits, self.now, unix)
        }

        /// The store answers what is asked, for a cap of a day or a month. Returns what was granted.
        fn answer(&mut self, unix: Duration) -> Option<u64> {
            let asked = self.cap.ask(self.now, unix)?;
            let terms = self.cap.terms();
            self.used = self.used.saturating_sub(asked.ask.back);
            let granted = chunk(left(terms, self.used, self.used), 2, asked.ask);
            self.used += granted;
            let rest = |cap: Option<u64>| cap.map_or(u64::MAX, |cap| cap - self.used);
            self.cap.grant(asked, granted, (rest(terms.day), rest(terms.month)), self.now);
            self.cap.due(self.now);
            Some(granted)
        }

        /// Takes single credits until one is refused; how many were taken.
        fn drain(&mut self, unix: Duration) -> u64 {
            let mut taken = 0;
            loop {
                match self.take(1.0, unix) {
                    Ok(()) => taken += 1,
                    Err(LeaseShortage::Unanswered(_)) => {
                        assert!(self.answer(unix).is_some(), "each that waits gets an answer");
                    }
                    Err(LeaseShortage::Refused(_)) => return taken,
                }
            }
        }
    }

    fn day(cap: u64) -> Caps {
        Caps { day: Some(cap), month: None }
    }

    #[test]
    fn it_ends_at_the_cap_and_not_above() {
        for caps in [day(10_000), Caps { day: None, month: Some(10_000) }] {
            let mut world = World::new(caps);
            assert_eq!(world.drain(NOON), 10_000, "{caps:?}");
            assert_eq!(world.used, 10_000_000, "{caps:?}");
        }
    }

    #[test]
    fn a_refusal_lasts_until_the_page_ends() {
        let month = Caps { day: None, month: Some(5) };
        for (caps, hours, reached) in [(day(5), 12, Cap::Day), (month, 12 + 10 * 24, Cap::Month)] {
            let mut world = World::new(caps);
            assert_eq!(world.drain(NOON), 5);
            let wait = Duration::from_secs(hours * 60 * 60);
            assert_eq!(world.take(1.0, NOON), Err(LeaseShortage::Refused(wait)), "{caps:?}");
            assert_eq!(world.cap.reached(1.0, NOON), Some(reached));
            let later = NOON + Duration::from_secs(24 * 60 * 60);
            assert_eq!(world.cap.reached(1.0, later), None, "nothing was told of that day");
        }
    }

    #[test]
    fn what_all_replicas_hold_counts_as_used() {
        let mut world = World::new(day(1_000_000));
        let used = |world: &World, cap, unix| world.cap.used(cap, unix);
        assert_eq!(used(&world, Cap::Day, NOON), None, "nothing was told yet");
        assert!(matches!(world.take(1.0, NOON), Err(LeaseShortage::Unanswered(_))));
        // Others have spent 700,000.
        world.used = 700_000_000;
        let granted = world.answer(NOON).expect("it was asked for");
        assert_eq!(used(&world, Cap::Day, NOON), Some(700_000 + granted / 1_000));
        assert_eq!(used(&world, Cap::Month, NOON), None, "no cap");
        assert_eq!(used(&world, Cap::Day, NOON + Duration::from_secs(DAY)), None, "another day");
    }

    #[test]
    fn a_new_day_is_a_new_page() {
        let mut world = World::new(day(5));
        assert_eq!(world.drain(NOON), 5);
        world.used = 0;
        assert_eq!(world.drain(NOON + Duration::from_secs(DAY / 2)), 5);
        assert_eq!(world.drain(NOON), 0, "a clock that is late does not turn it back");
    }

    #[test]
    fn what_is_not_spent_is_given_back() {
        let mut world = World::new(day(1_000_000));
        assert!(matches!(world.take(1.0, NOON), Err(LeaseShortage::Unanswered(_))));
        assert_eq!(world.answer(NOON), Some(5_000));
        assert_eq!(world.take(1.0, NOON), Ok(()));
        world.now += CAP_LIFE;
        assert_eq!(world.answer(NOON), Some(0), "given back, and nothing is wanted");
        assert_eq!(world.used, 1_000);
    }

    #[test]
    fn away_it_spends_its_part_of_the_rest_and_says_so_later() {
        let mut world = World::new(day(1_000));
        assert!(world.take(1.0, NOON).is_err());
        assert_eq!(world.answer(NOON), Some(5_000));
        world.cap.note_away(2);
        // Five are leased, and half of the 995 that are left.
        assert_eq!(world.drain(NOON), 5 + 497);
        world.cap.note_back();
        assert!(world.take(1.0, NOON).is_err());
        world.answer(NOON);
        assert!(world.used >= (5 + 497) * 1_000, "{}", world.used);
        assert_eq!(world.drain(NOON), 1_000 - 5 - 497);
    }

    #[test]
    fn nothing_known_and_away_it_spends_the_part_of_an_hour_or_a_day() {
        for (caps, part) in [(day(2_400), 50), (Caps { day: None, month: Some(3_100) }, 50)] {
            let mut world = World::new(caps);
            world.cap.note_away(2);
            assert_eq!(world.drain(NOON), part, "{caps:?}");
        }
    }

    #[test]
    fn nothing_known_and_away_each_hour_has_its_part() {
        let mut world = World::new(day(2_400));
        world.cap.note_away(2);
        let at = |minutes: u64| NOON + Duration::from_secs(minutes * 60);
        assert_eq!(world.drain(at(20)), 50);
        let wait = Duration::from_secs(40 * 60);
        assert_eq!(world.take(1.0, at(20)), Err(LeaseShortage::Refused(wait)));
        assert_eq!((world.drain(at(59)), world.drain(at(60))), (0, 50));
        assert_eq!(world.drain(at(0)), 0, "a clock that goes back earns nothing");
        assert_eq!(world.drain(at(11 * 60 + 59)), 10 * 50);
        assert_eq!(world.drain(at(12 * 60)), 1_200, "of a day that begins, all is left");
        // Of a month's cap a day's part, and then that of each hour.
        let mut world = World::new(Caps { day: None, month: Some(31 * 24 * 2) });
        world.cap.note_away(2);
        assert_eq!((world.drain(at(0)), world.drain(at(5 * 60))), (24, 5));
        assert_eq!(world.drain(at(24 * 60 * 5)), 24, "a clock that is set far ahead earns a day");
    }
}
