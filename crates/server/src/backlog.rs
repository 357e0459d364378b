//! Answers of one connection that are on their way to its client.
//!
//! A request holds its place among those under way until the last byte of its answer is with
//! the system. A client that does not take its answers must not hold places that others need:
//! as soon as its window is shut (the stream's, the connection's or TCP's) its answers give
//! their places back and wait in a pool of their own, bounded in number and bytes and shared
//! among addresses ([`crate::share`]). Answers for which the pool has no room keep their
//! places, and their connection is ended when it has taken nothing for a moment.
//!
//! Answers of a connection are counted, not told apart: which of them is written first is
//! decided far below.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

use crate::count::Counters;
use crate::link::WRITE_PROGRESS_BYTES;
use crate::share::{Share, fits, give, take};
use crate::{Server, Settings};

/// A connection on which more answers wait is ended when it takes nothing for the stall timeout.
pub(crate) const ANSWERS_MAX: u32 = 63;

/// A connection on which more bytes wait, of more than one answer, is ended when it takes
/// nothing for the stall timeout.
pub(crate) const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Where the pool has no room, this part of the stall timeout is enough.
const PRESSED_PART: u32 = 5;

/// All answers of one connection that are complete, or flow, and not yet written.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Only the connection's own thread takes it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Answers that hold a place among the requests under way.
    placed: u32,
    /// Of these, answers whose place counts against the share of their address.
    shared: u32,
    /// Answers that hold a place in the pool instead.
    waiting: u32,
    /// Bytes of all of them.
    bytes: usize,
    /// Bytes that the pool was told of: all of them while the client takes nothing.
    charged: usize,
    /// When the client last took something worth counting; `None` while it takes everything.
    stalled_since: Option<u64>,
    /// Bytes that it took since then.
    taken: usize,
    /// Answers by the period in which they began: the one that goes on, and all before it.
    began: [u32; 2],
    /// Which of the two goes on.
    period: Period,
    /// When it began.
    period_since: u64,
}

/// The period in which an answer began; of two that follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Period(bool);

/// What the answers of a connection give back to, and take from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pools<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) counters: &'a Counters,
    pub(crate) share: Option<&'a Arc<Share>>,
}

impl<'a> Pools<'a> {
    pub(crate) fn of(server: &'a Server, share: Option<&'a Arc<Share>>) -> Self {
        Self { settings: &server.settings, counters: &server.counters, share }
    }

    fn charge(self, bytes: usize) {
        self.counters.answers_waiting_bytes.fetch_add(bytes, Relaxed);
        if let Some(share) = self.share {
            share.waiting_bytes.fetch_add(bytes, Relaxed);
        }
    }

    fn uncharge(self, bytes: usize) {
        self.counters.answers_waiting_bytes.fetch_sub(bytes, Relaxed);
        if let Some(share) = self.share {
            share.waiting_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    fn take_waiting(self) -> bool {
        let held = self.share.map(|share| &share.waiting);
        take(&self.counters.answers_waiting, held, self.settings.waiting_max)
    }

    fn give_waiting(self) {
        give(&self.counters.answers_waiting, self.share.map(|share| &share.waiting));
    }

    /// Gives the place of a request back.
    pub(crate) fn give_place(self, is_shared: bool) {
        let held = self.share.filter(|_| is_shared).map(|share| &share.places);
        give(&self.counters.requests_open, held);
    }

    fn bytes_fit(self) -> bool {
        let total = self.counters.answers_waiting_bytes.load(Relaxed);
        let held = self.share.map_or(0, |share| share.waiting_bytes.load(Relaxed));
        fits(held, total, self.settings.waiting_bytes_max)
    }
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()) }
    }

    /// One more answer of so many bytes, whose request has a place.
    pub(crate) fn begin(&self, bytes: usize, is_shared: bool, pools: Pools<'_>) -> Period {
        let mut state = self.state.lock();
        let period = state.period;
        state.began[usize::from(period.0)] += 1;
        state.placed += 1;
        state.shared += u32::from(is_shared);
        state.bytes += bytes;
        if state.stalled_since.is_some() {
            state.settle(pools);
        }
        period
    }

    /// More bytes of an answer that flows.
    pub(crate) fn grow(&self, bytes: usize, pools: Pools<'_>) {
        let mut state = self.state.lock();
        state.bytes += bytes;
        if state.stalled_since.is_some() {
            state.settle(pools);
        }
    }

    /// The client takes no more for now.
    pub(crate) fn stall(&self, now: u64, pools: Pools<'_>) {
        let mut state = self.state.lock();
        if state.placed + state.waiting > 0 {
            state.stalled_since.get_or_insert(now);
            state.settle(pools);
        }
    }

    /// So many bytes of an answer were taken, or nobody wants them any more.
    pub(crate) fn took(&self, bytes: usize, now: impl FnOnce() -> u64, pools: Pools<'_>) {
        self.state.lock().took(bytes, now, pools);
    }

    /// One answer, of this period, is done, with so many bytes of it that were not told before.
    pub(crate) fn end(
        &self,
        bytes: usize,
        period: Period,
        now: impl FnOnce() -> u64,
        pools: Pools<'_>,
    ) {
        let mut state = self.state.lock();
        state.began[usize::from(period.0)] -= 1;
        state.took(bytes, now, pools);
        if state.waiting > 0 {
            state.waiting -= 1;
            pools.give_waiting();
        } else {
            state.placed -= 1;
            let is_shared = state.shared > 0;
            state.shared -= u32::from(is_shared);
            pools.give_place(is_shared);
        }
        if state.placed + state.waiting == 0 {
            state.bytes = 0;
            state.stalled_since = None;
            state.settle(pools);
        }
    }

    /// Whether the client lets more wait than it may.
    pub(crate) fn is_too_much(&self, now: u64, pools: Pools<'_>) -> bool {
        let mut state = self.state.lock();
        state.turn(now, pools.settings.stall_timeout);
        let Some(since) = state.stalled_since else { return false };
        state.settle(pools);
        let lasts = Duration::from_micros(now.saturating_sub(since));
        let has_room = state.placed == 0 && pools.bytes_fit();
        state.is_too_much(lasts, has_room, pools.settings)
    }
}

impl State {
    fn took(&mut self, bytes: usize, now: impl FnOnce() -> u64, pools: Pools<'_>) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.stalled_since.is_none() {
            return;
        }
        self.taken += bytes;
        if self.taken as u64 >= WRITE_PROGRESS_BYTES {
            self.taken = 0;
            self.stalled_since = Some(now());
        }
        self.settle(pools);
    }

    /// Brings what the pools were told up to date.
    fn settle(&mut self, pools: Pools<'_>) {
        let counted = if self.stalled_since.is_some() { self.bytes } else { 0 };
        if counted > self.charged {
            pools.charge(counted - self.charged);
        } else if counted < self.charged {
            pools.uncharge(self.charged - counted);
        }
        self.charged = counted;
        if self.stalled_since.is_none() {
            self.taken = 0;
            return;
        }
        while self.placed > 0 && pools.take_waiting() {
            let is_shared = self.shared > 0;
            self.shared -= u32::from(is_shared);
            self.placed -= 1;
            self.waiting += 1;
            pools.give_place(is_shared);
        }
    }

    /// Finds answers that wait although no window looks shut: one that is open by a byte lets
    /// the task of a stream hand on all it has, and then nothing tells that it is not written.
    fn turn(&mut self, now: u64, period: Duration) {
        let lasts = Duration::from_micros(now.saturating_sub(self.period_since));
        if lasts < period {
            return;
        }
        if self.old() > 0 {
            self.stalled_since.get_or_insert(self.period_since);
        } else {
            self.period = Period(!self.period.0);
            self.period_since = now;
        }
    }

    /// Answers that wait since before this period.
    fn old(&self) -> u32 {
        self.began[usize::from(!self.period.0)]
    }

    /// `has_room` says that the pools hold all of it, within the share of its address.
    fn is_too_much(&self, lasts: Duration, has_room: bool, settings: &Settings) -> bool {
        let too_long = lasts >= settings.stall_timeout;
        let answers = self.placed + self.waiting;
        let many = answers > ANSWERS_MAX || (answers > 1 && self.bytes > BYTES_MAX);
        // With something taken now and then the time would begin anew for ever.
        let is_stuck = lasts >= settings.stall_timeout / PRESSED_PART || self.old() > 0;
        let pressed = !has_room && is_stuck;
        // Streams are ended one by one before that; what their tasks have handed on is not.
        let forgotten = lasts >= settings.write_timeout * 2;
        (many && too_long) || pressed || forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    struct Stage {
        settings: Settings,
        counters: Counters,
        share: Arc<Share>,
        backlog: Backlog,
        periods: RefCell<VecDeque<Period>>,
    }

    impl Stage {
        fn new(waiting_max: usize, waiting_bytes_max: usize) -> Self {
            Self {
                settings: Settings { waiting_max, waiting_bytes_max, ..Settings::default() },
                counters: Counters::default(),
                share: Arc::default(),
                backlog: Backlog::new(),
                periods: RefCell::default(),
            }
        }

        fn pools(&self) -> Pools<'_> {
            Pools { settings: &self.settings, counters: &self.counters, share: Some(&self.share) }
        }

        fn begin(&self, answers: u32, bytes: usize) {
            for n in 0..answers {
                self.counters.requests_open.fetch_add(1, Relaxed);
                self.share.places.fetch_add(usize::from(n % 2 == 0), Relaxed);
                let period = self.backlog.begin(bytes, n % 2 == 0, self.pools());
                self.periods.borrow_mut().push_back(period);
            }
        }

        fn end(&self, answers: u32, bytes: usize) {
            for period in self.periods.borrow_mut().drain(..answers as usize) {
                self.backlog.end(bytes, period, || 0, self.pools());
            }
        }

        /// Places taken; answers and bytes in the pool; the same for the address.
        fn check(&self, places: usize, waiting: usize, bytes: usize) {
            let Counters { requests_open, answers_waiting, answers_waiting_bytes, .. } =
                &self.counters;
            assert_eq!(requests_open.load(Relaxed), places, "places");
            assert_eq!(answers_waiting.load(Relaxed), waiting, "answers");
            assert_eq!(answers_waiting_bytes.load(Relaxed), bytes, "bytes");
            assert_eq!(self.share.waiting.load(Relaxed), waiting, "answers of the address");
            assert_eq!(self.share.waiting_bytes.load(Relaxed), bytes, "bytes of the address");
        }

        fn is_too_much(&self, millis: u64) -> bool {
            self.backlog.is_too_much(millis * 1000, self.pools())
        }
    }

    #[test]
    fn who_takes_all_costs_the_pool_nothing() {
        let stage = Stage::new(100, 1000);
        stage.begin(3, 100);
        stage.check(3, 0, 0);
        assert!(!stage.is_too_much(1_000_000));
        stage.end(3, 100);
        stage.check(0, 0, 0);
        assert_eq!(stage.share.places.load(Relaxed), 0);
    }

    #[test]
    fn who_takes_nothing_gives_places_back() {
        let stage = Stage::new(100, 10_000);
        stage.begin(3, 100);
        stage.backlog.stall(0, stage.pools());
        stage.check(0, 3, 300);
        assert_eq!(stage.share.places.load(Relaxed), 0);
        // Those that follow do so at once.
        stage.begin(2, 50);
        stage.check(0, 5, 400);
        stage.end(3, 100);
        stage.check(0, 2, 100);
        stage.end(2, 50);
        stage.check(0, 0, 0);
        // The next one begins anew.
        stage.begin(1, 10);
        stage.check(1, 0, 0);
        stage.end(1, 10);
        stage.check(0, 0, 0);
    }

    #[test]
    fn answers_beyond_the_bound_keep_their_places_until_there_is_room() {
        let stage = Stage::new(8, 10_000);
        stage.begin(10, 1);
        stage.backlog.stall(0, stage.pools());
        stage.check(2, 8, 10);
        stage.end(1, 1);
        assert!(!stage.is_too_much(999));
        stage.check(1, 8, 9);
        assert!(stage.is_too_much(1000));
        stage.end(9, 1);
        stage.check(0, 0, 0);
    }

    #[test]
    fn many_answers_have_the_stall_timeout() {
        let stage = Stage::new(1000, 10_000);
        stage.begin(ANSWERS_MAX, 1);
        stage.backlog.stall(0, stage.pools());
        assert!(!stage.is_too_much(5000));
        stage.begin(1, 1);
        assert!(!stage.is_too_much(4999));
        assert!(stage.is_too_much(5000));
    }

    #[test]
    fn many_bytes_have_the_stall_timeout() {
        let stage = Stage::new(1000, usize::MAX);
        stage.begin(1, BYTES_MAX);
        stage.backlog.stall(0, stage.pools());
        stage.backlog.grow(1, stage.pools());
        assert!(!stage.is_too_much(5000), "one answer may be as long as it is");
        stage.begin(1, 1);
        assert!(!stage.is_too_much(4999));
        assert!(stage.is_too_much(5000));
    }

    #[test]
    fn bytes_above_the_share_have_a_fifth_of_it() {
        let stage = Stage::new(1000, 800);
        stage.begin(1, 700);
        stage.backlog.stall(0, stage.pools());
        assert!(!stage.is_too_much(4500));
        let stage = Stage::new(1000, 800);
        stage.begin(1, 701);
        stage.backlog.stall(0, stage.pools());
        assert!(!stage.is_too_much(999));
        assert!(stage.is_too_much(1000));
    }

    #[test]
    fn one_answer_has_twice_the_write_timeout() {
        let stage = Stage::new(1000, 1000);
        stage.begin(1, 1);
        stage.backlog.stall(0, stage.pools());
        assert!(!stage.is_too_much(59_999));
        assert!(stage.is_too_much(60_000));
    }

    #[test]
    fn answers_that_were_handed_on_and_not_written_are_found() {
        let stage = Stage::new(1000, 10_000);
        stage.begin(100, 1);
        assert!(!stage.is_too_much(4999));
        assert!(!stage.is_too_much(5000), "they may have begun just now");
        assert!(!stage.is_too_much(9999));
        stage.check(100, 0, 0);
        assert!(stage.is_too_much(10_000));
        stage.check(0, 100, 100);
        stage.end(100, 1);
        stage.check(0, 0, 0);
    }

    #[test]
    fn answers_that_follow_each_other_are_not_old() {
        let stage = Stage::new(1000, 10_000);
        for seconds in 0..60 {
            stage.begin(100, 1);
            assert!(!stage.is_too_much(seconds * 1000));
            stage.end(100 * u32::from(seconds > 0), 1);
        }
        stage.check(100, 0, 0);
    }

    #[test]
    fn a_byte_now_and_then_does_not_keep_what_has_no_room() {
        let stage = Stage::new(8, 1_000_000);
        stage.begin(10, 50_000);
        let mut is_ended = false;
        for seconds in 0..=10 {
            let now = seconds * 1_000_000;
            stage.backlog.took(20_000, || now, stage.pools());
            is_ended = stage.is_too_much(seconds * 1000);
            assert_eq!(is_ended, seconds >= 10, "after {seconds} s");
        }
        assert!(is_ended);
    }

    #[test]
    fn who_takes_something_has_the_time_anew() {
        let stage = Stage::new(1000, 10_000_000);
        stage.begin(100, 50_000);
        stage.backlog.stall(0, stage.pools());
        let progress = usize::try_from(WRITE_PROGRESS_BYTES).expect("it is small");
        stage.backlog.took(progress - 1, || 4_000_000, stage.pools());
        assert!(stage.is_too_much(5000));
        stage.backlog.took(1, || 4_000_000, stage.pools());
        assert!(!stage.is_too_much(8999));
        assert!(stage.is_too_much(9000));
        stage.check(0, 100, 100 * 50_000 - progress);
    }
}
