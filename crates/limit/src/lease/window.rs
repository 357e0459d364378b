//! A sum in a window that opens with its first call, which several replicas share.
//!
//! As [`FixedWindow`] counts, with one window in the store for all replicas. The store opens it when the first
//! call of a replica asks for its credits, some milliseconds before the provider sees that call. What is leased ends
//! with the window, and what was leased in one window is not given back to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::side::{LeaseSide, SideTaken, SideTerms, serve_side};
use super::{ANSWER_WITHIN, AloneCount, LeaseAsk, LeaseGrant, LeaseShortage, MILLI, milli};
use crate::window::GUARD;
use crate::{FixedWindow, nanos};

/// Leased credits can be spent for a tenth of the window, within these bounds: a replica that dies takes at most
/// so much time of its calls with it.
const LIFE_OF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// How often a window that is used up is asked for again: other replicas may give back.
const WINDOW_GAP: Duration = Duration::from_secs(1);

/// Nothing is asked for ahead so shortly before the end of a window: the ask might arrive after it, and open the
/// next one, which calls have to do.
const AHEAD_ENDS: Duration = ANSWER_WITHIN.saturating_mul(2);

/// Nothing was told of what is left.
const UNKNOWN: u64 = u64::MAX;

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

/// One replica's part in a window that the store keeps for all.
///
/// Never on credit. Away, with one replica, until a control loop serves it: then each replica counts a window of its
/// own with its part of the credits, and tells the store of it when that is back.
#[derive(Debug)]
pub struct LeasedWindow {
    side: LeaseSide,
    credits: u64,
    window: Duration,
    /// Decides while the store is away or silent.
    share: FixedWindow,
    /// When the window began that tokens are held of, by the store's clock, in microseconds; 0: none did.
    began: AtomicU64,
    /// When it ends, in nanoseconds since the epoch; 0: it is over.
    ends: AtomicU64,
    /// Thousandths of credits that were left of it when the store was last asked.
    left: AtomicU64,
    /// Thousandths of credits that were taken without the store.
    alone: AloneCount,
}

serve_side!(LeasedWindow);

impl LeasedWindow {
    /// `credits` in each `window` over all replicas.
    pub fn new(credits: u64, window: Duration) -> Self {
        let life = (window / 10).clamp(LIFE_OF.0, LIFE_OF.1);
        let side = LeaseSide::new(SideTerms {
            smooth: life,
            stock: life / 2,
            life,
            gap: WINDOW_GAP,
            want_max: credits.saturating_mul(MILLI as u64).max(1),
            back_min: milli(1.0),
            // Of what is left a part is granted as a rule; only nothing is short.
            short_below: f64::MIN_POSITIVE,
        });
        side.ask_ahead_until(Duration::ZERO);
        Self {
            side,
            credits,
            window,
            share: FixedWindow::default(),
            began: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            left: AtomicU64::new(UNKNOWN),
            alone: AloneCount::default(),
        }
    }

    /// Takes `credits`. A call dearer than a whole window has one alone.
    pub fn take(&self, credits: f64, now: Duration) -> Result<(), LeaseShortage> {
        if self.side.away().is_some() {
            return self.take_alone(credits, now);
        }
        self.turn(now);
        let price = milli(credits);
        let part = price.min(self.side.terms.want_max);
        match self.side.take(price, part, None, now) {
            SideTaken::Taken => Ok(()),
            SideTaken::Refused(wait) => {
                Err(LeaseShortage::Refused(self.wait_for(part, now).unwrap_or(wait)))
            }
            SideTaken::Unanswered(wait) => Err(LeaseShortage::Unanswered(wait)),
            SideTaken::Silent => self.take_alone(credits, now),
        }
    }

    /// How long a call of `credits` would be refused, as far as is known; takes none. Zero where it would be
    /// taken, or the store has not said.
    pub fn wait(&self, credits: f64, now: Duration) -> Duration {
        if self.side.away().is_some() {
            return self.share.wait(credits as u64, self.part(), self.window, now);
        }
        let part = milli(credits).min(self.side.terms.want_max);
        match self.side.pool.held(nanos(now)) >= part {
            true => Duration::ZERO,
            false => self.wait_for(part, now).unwrap_or_else(|| self.side.refused_for(now)),
        }
    }

    /// Takes `credits` that were spent regardless: fewer calls pass until the window is over.
    pub fn charge(&self, credits: f64, now: Duration) {
        if self.side.away().is_some() {
            self.share.charge(credits as u64, self.window, now);
        } else {
            self.turn(now);
            self.side.charge(milli(credits), now);
        }
    }

    /// Puts back what was taken for a call that was not made after all.
    pub fn give_back(&self, credits: f64) {
        if self.side.away().is_some() {
            self.share.give_back(credits as u64);
        } else {
            self.side.give_back(milli(credits));
        }
    }

    /// The window in the store.
    pub fn terms(&self) -> WindowTerms {
        let length = u64::try_from((self.window + GUARD).as_micros()).unwrap_or(u64::MAX);
        WindowTerms { credits: self.side.terms.want_max, length }
    }

    /// Credits that were taken without the store so far, because it was away or silent.
    pub fn taken_alone(&self) -> f64 {
        self.alone.amount() as f64 / MILLI
    }

    /// What to ask the store for, if anything. To be followed by [`Self::grant`] or [`Self::fail`].
    pub fn ask(&self, now: Duration) -> Option<WindowAsk> {
        self.turn(now);
        // Read first: what is given back is of this window, or of one after it.
        let began = self.began.load(Relaxed);
        let ask = self.side.ask(u64::MAX, now)?;
        Some(WindowAsk { ask, began })
    }

    /// The answer to the last ask.
    pub fn grant(&self, grant: WindowGrant, now: Duration) {
        let WindowGrant { granted, left, ends_in, began } = grant;
        if self.began.swap(began, Relaxed) != began {
            self.side.forget_tokens();
        }
        let life = self.side.terms.life.min(ends_in);
        let grant = LeaseGrant { granted, wait: Duration::ZERO };
        let Some(asked_at) = self.side.grant_for(grant, life, now) else { return };
        // A moment earlier than in the store: the ask was under way.
        let ends = asked_at + ends_in;
        self.side.ask_ahead_until(ends.saturating_sub(AHEAD_ENDS));
        self.left.store(left, Relaxed);
        self.ends.store(if began == 0 { 0 } else { nanos(ends) }, Relaxed);
        let alone = self.share.drain(self.window, now);
        if alone > 0 {
            self.side.owe(alone.saturating_mul(MILLI as u64));
        }
    }

    /// The store is back.
    pub fn note_back(&self) {
        self.side.note_back();
    }

    /// What is held of a window that is over is void, and so is what is owed for it.
    fn turn(&self, now: Duration) {
        let ends = self.ends.load(Relaxed);
        if ends == 0 || nanos(now) < ends {
            return;
        }
        if self.ends.compare_exchange(ends, 0, Relaxed, Relaxed).is_ok() {
            self.left.store(UNKNOWN, Relaxed);
            self.side.void();
        }
    }

    /// How long until the window is over, if it has no room for the price.
    fn wait_for(&self, price: u64, now: Duration) -> Option<Duration> {
        let ends = Duration::from_nanos(self.ends.load(Relaxed));
        let left = ends.saturating_sub(now);
        (self.left.load(Relaxed) < price && !left.is_zero()).then_some(left)
    }

    #[cold]
    fn take_alone(&self, credits: f64, now: Duration) -> Result<(), LeaseShortage> {
        let taken = self.share.take(credits as u64, self.part(), self.window, now);
        taken.map_err(LeaseShortage::Refused)?;
        self.alone.add(milli(credits));
        Ok(())
    }

    /// This replica's part of the credits.
    fn part(&self) -> u64 {
        (self.credits / u64::from(self.side.replicas())).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::book::WindowBook;

    const CREDITS: u64 = 600;
    const WINDOW: Duration = Duration::from_secs(60);
    /// Of the store's clock at the epoch of the replicas.
    const STORE: u64 = 1_800_000_000_000_000;

    struct World {
        book: WindowBook,
        replicas: Vec<LeasedWindow>,
        now: Duration,
    }

    impl World {
        fn new(replicas: u32) -> Self {
            let window = |_| {
                let window = LeasedWindow::new(CREDITS, WINDOW);
                window.note_replicas(replicas);
                window.note_back();
                window
            };
            let replicas = (0..replicas).map(window).collect();
            Self { book: WindowBook::default(), replicas, now: Duration::from_secs(1) }
        }

        fn store_now(&self) -> u64 {
            STORE + self.now.as_micros() as u64
        }

        /// The control loops and the store, at this moment.
        fn serve(&mut self) {
            for replica in &self.replicas {
                if let Some(ask) = replica.ask(self.now) {
                    let count = self.replicas.len() as u32;
                    let grant = self.book.lease(replica.terms(), count, ask, self.store_now());
                    replica.grant(grant, self.now);
                }
                replica.due(self.now);
            }
        }

        /// Single credits that this replica gets at this moment, at most `tries`; the store answers at once.
        fn take(&mut self, replica: usize, tries: u64) -> u64 {
            (0..tries).filter(|_| self.call(replica, 1.0).is_ok()).count() as u64
        }

        fn call(&mut self, replica: usize, credits: f64) -> Result<(), LeaseShortage> {
            let taken = self.replicas[replica].take(credits, self.now);
            if !matches!(taken, Err(LeaseShortage::Unanswered(_))) {
                return taken;
            }
            self.serve();
            self.replicas[replica].take(credits, self.now)
        }
    }

    #[test]
    fn one_window_is_counted_for_all() {
        let mut world = World::new(3);
        let (mut taken, mut rounds) = (0, 0);
        while rounds < 40 {
            taken += (0..3).map(|replica| world.take(replica, 20)).sum::<u64>();
            world.now += Duration::from_secs(1);
            rounds += 1;
        }
        assert!((CREDITS - 6..=CREDITS).contains(&taken), "{taken} in 40 s");
        let Err(LeaseShortage::Refused(wait)) = world.call(0, 1.0) else { panic!("all is used") };
        assert_eq!(wait, Duration::from_millis(20_250), "until the window and its guard are over");
        assert_eq!(world.replicas[0].wait(1.0, world.now), wait);
        world.now += wait;
        assert_eq!(world.replicas[0].wait(1.0, world.now), Duration::ZERO);
        assert_eq!(world.take(0, 30), 30, "the next one opens with its first call");
    }

    #[test]
    fn a_window_opens_with_its_first_call() {
        let mut world = World::new(1);
        assert_eq!(world.take(0, 1), 1);
        let began = world.book.began;
        world.now += WINDOW + GUARD + Duration::from_secs(1);
        world.serve();
        assert_eq!(world.book.began, began, "without a call none does");
        world.now += Duration::from_secs(7);
        assert_eq!(world.take(0, 1), 1);
        assert_eq!(world.book.began, world.store_now());
    }

    #[test]
    fn what_one_does_not_spend_another_has() {
        let mut world = World::new(2);
        assert_eq!(world.take(0, 1), 1);
        // Its lease ends, and is given back.
        world.now += Duration::from_secs(7);
        world.serve();
        let mut taken = 0;
        for _ in 0..40 {
            taken += world.take(1, 50);
            world.now += Duration::from_secs(1);
        }
        assert!((CREDITS - 6..CREDITS).contains(&taken), "{taken}");
    }

    #[test]
    fn what_is_dearer_than_a_window_has_one_alone() {
        let mut world = World::new(2);
        assert_eq!(world.call(0, 2.0 * CREDITS as f64), Ok(()));
        assert!(world.call(0, 1.0).is_err() && world.call(1, 1.0).is_err());
        world.now += WINDOW + GUARD;
        assert_eq!(world.call(0, 1.0), Ok(()), "its debt is over with its window");
    }

    #[test]
    fn away_each_has_its_part_and_tells_of_it_later() {
        let mut world = World::new(3);
        world.replicas.iter().for_each(|replica| replica.note_away(3));
        let alone: Vec<_> = (0..3).map(|replica| world.take(replica, 1_000)).collect();
        assert_eq!(alone, [200; 3]);
        assert!((world.replicas[0].taken_alone() - 200.0).abs() < 1e-9);
        world.replicas.iter().for_each(LeasedWindow::note_back);
        world.now += Duration::from_secs(1);
        // With the first call of each.
        let first: u64 = (0..3).map(|replica| world.take(replica, 1)).sum();
        let mut later = 0;
        for _ in 0..30 {
            world.serve();
            later += (0..3).map(|replica| world.take(replica, 1_000)).sum::<u64>();
            world.now += Duration::from_secs(1);
        }
        // What their first leases hold.
        let most = CREDITS / 20;
        assert!(first == 3 && later <= most, "{first} and {later} on top of {alone:?}");
    }

    #[test]
    fn what_was_spent_regardless_opens_a_window_and_is_paid_for() {
        let mut world = World::new(2);
        world.replicas[0].charge(590.0, world.now);
        world.serve();
        assert_eq!((world.book.began, world.book.used), (world.store_now(), 590_000));
        let mut taken = 0;
        for _ in 0..40 {
            taken += world.take(0, 20) + world.take(1, 20);
            world.now += Duration::from_secs(1);
        }
        assert!((8..=10).contains(&taken), "{taken}");
    }

    #[test]
    fn a_silent_store_leaves_the_part_to_decide() {
        let world = World::new(3);
        let replica = &world.replicas[0];
        assert!(matches!(replica.take(1.0, world.now), Err(LeaseShortage::Unanswered(_))));
        let later = world.now + ANSWER_WITHIN;
        let taken = (0..1_000).filter(|_| replica.take(1.0, later).is_ok()).count();
        assert_eq!(taken, 200);
    }
}
