//! Answers of one connection that are on their way to its client.
//!
//! A request holds its place among those under way until the last byte of its answer is with
//! the system. A client that does not take its answers must not hold places that others need:
//! as soon as its window is shut (the stream's, the connection's or TCP's) its answers give
//! their places back and wait in a pool of their own, bounded in number and bytes and shared
//! among addresses ([`FairShare`]). Answers for which the pool has no room keep their
//! places, and their connection is ended when it has taken nothing for a moment.
//!
//! Answers of a connection are counted, not told apart: which of them is written first is
//! decided far below.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wellhead_limit::{FairShare, fits};

use crate::Settings;
use crate::count::ServerCounters;
use crate::share::AddressShare;
use crate::shared::ServerShared;

/// A stalled client that accepts this much is given the write timeout anew. A
/// client that reads a byte now and then could otherwise hold an answer for ever.
pub(crate) const WRITE_PROGRESS_BYTES: u64 = 16 * 1024;

/// A connection on which more answers wait is ended when it takes nothing for the stall timeout.
pub(crate) const ANSWERS_MAX: u32 = 63;

/// A connection on which more bytes wait, of more than one answer, is ended when it takes
/// nothing for the stall timeout.
pub(crate) const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Where the pool has no bytes left, an address with up to this part of them is not pressed
/// for its share: it did not fill the pool.
const SMALL_PART: usize = 16;

/// The bytes a second that a connection has to take for its answers to be old and stay, when
/// the pool has no bytes left.
const LEAST_PACE: u64 = 64 * 1024;

/// Where the pool has no room, this part of the stall timeout is enough.
const PRESSED_PART: u32 = 5;

/// All answers of one connection that are complete, or flow, and not yet written.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Only the connection's own thread takes it.
    state: Mutex<State>,
}

/// Small, as each idle connection has one. There are never more answers than streams, of which
/// the settings allow 65,535.
#[derive(Debug, Default)]
struct State {
    /// Answers that hold a place among the requests under way.
    placed: u16,
    /// Of these, answers whose place counts against the share of their address.
    shared: u16,
    /// Answers that hold a place in the pool instead.
    waiting: u16,
    /// Answers that hold neither: the request was refused for want of a place, and the pool
    /// has none for the refusal.
    placeless: u16,
    /// Bytes of all of them.
    bytes: usize,
    /// Bytes that the pool was told of: all of them while the client takes nothing.
    charged: usize,
    /// When the client last took something worth counting; `None` while it takes everything.
    stalled_since: Option<NonZeroU64>,
    /// Bytes that it took since then.
    taken: u32,
    /// Bytes that it took since `period_since`.
    paced: u32,
    /// Answers by the period in which they began: the one that goes on, and all before it.
    began: [u16; 2],
    /// Which of the two goes on.
    period: Period,
    /// When it began.
    period_since: u64,
}

/// The period in which an answer began; of two that follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Period(bool);

/// Which place a request holds among those under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestPlace {
    /// It was refused, and its answer is all there is of it.
    None,
    Plain,
    /// One that counts against the share of its address.
    Shared,
}

/// What the pool has for the answers of a connection within the share of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolRoom {
    Enough,
    /// The pool has no bytes left, and the address has few of them.
    Little,
    NoBytes,
    /// Some answers keep their places among the requests under way, or are refusals without one.
    NoPlaces,
}

/// What the answers of a connection give back to, and take from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerPools<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) counters: &'a ServerCounters,
    pub(crate) share: Option<&'a Arc<AddressShare>>,
}

impl<'a> AnswerPools<'a> {
    pub(crate) fn of(shared: &'a ServerShared, share: Option<&'a Arc<AddressShare>>) -> Self {
        Self { settings: &shared.settings, counters: &shared.counters, share }
    }

    fn bytes(self) -> FairShare<'a> {
        let own = self.share.map(|share| &share.waiting_bytes);
        FairShare { total: &self.counters.answers_waiting_bytes, own }
    }

    fn answers(self) -> FairShare<'a> {
        let own = self.share.map(|share| &share.waiting);
        FairShare { total: &self.counters.answers_waiting, own }
    }

    /// Gives the place of a request back.
    pub(crate) fn give_place(self, place: RequestPlace) {
        match place {
            RequestPlace::None => {}
            RequestPlace::Plain => self.counters.requests_open.lower(1),
            RequestPlace::Shared => {
                let own = self.share.map(|share| &share.places);
                FairShare { total: &self.counters.requests_open, own }.lower(1);
            }
        }
    }

    fn room_for_bytes(self) -> PoolRoom {
        let total = self.counters.answers_waiting_bytes.get();
        let held = self.share.map(|share| share.waiting_bytes.get());
        let most = self.settings.waiting_bytes_max;
        if fits(held.unwrap_or(0), total, most) {
            PoolRoom::Enough
        } else if held.is_some_and(|held| held <= most / SMALL_PART) {
            PoolRoom::Little
        } else {
            PoolRoom::NoBytes
        }
    }
}

/// An answer that began; needed to end it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BegunAnswer {
    place: RequestPlace,
    period: Period,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()) }
    }

    /// One more answer of so many bytes.
    pub(crate) fn begin(
        &self,
        bytes: usize,
        place: RequestPlace,
        pools: AnswerPools<'_>,
    ) -> BegunAnswer {
        let mut state = self.state.lock();
        let period = state.period;
        state.began[usize::from(period.0)] += 1;
        match place {
            RequestPlace::None => state.placeless += 1,
            RequestPlace::Plain => state.placed += 1,
            RequestPlace::Shared => {
                state.placed += 1;
                state.shared += 1;
            }
        }
        state.bytes += bytes;
        if state.stalled_since.is_some() {
            state.settle(pools);
        }
        BegunAnswer { place, period }
    }

    /// More bytes of an answer that flows.
    pub(crate) fn grow(&self, bytes: usize, pools: AnswerPools<'_>) {
        let mut state = self.state.lock();
        state.bytes += bytes;
        if state.stalled_since.is_some() {
            state.settle(pools);
        }
    }

    /// The client takes no more for now.
    pub(crate) fn stall(&self, now: u64, pools: AnswerPools<'_>) {
        let mut state = self.state.lock();
        if state.answers() > 0 && state.bytes > 0 {
            state.stalled_since.get_or_insert(moment(now));
            state.settle(pools);
        }
    }

    /// Records that `bytes` of an answer were taken, or were abandoned.
    pub(crate) fn took(&self, bytes: usize, now: impl FnOnce() -> u64, pools: AnswerPools<'_>) {
        self.state.lock().took(bytes, now, pools);
    }

    /// This answer is done, with so many bytes of it that were not told before.
    pub(crate) fn end(
        &self,
        bytes: usize,
        BegunAnswer { place, period }: BegunAnswer,
        now: impl FnOnce() -> u64,
        pools: AnswerPools<'_>,
    ) {
        let mut state = self.state.lock();
        state.began[usize::from(period.0)] -= 1;
        state.took(bytes, now, pools);
        if state.placeless > 0 && (place == RequestPlace::None || state.waiting + state.placed == 0)
        {
            state.placeless -= 1;
        } else if state.waiting > 0 {
            state.waiting -= 1;
            pools.answers().lower(1);
        } else {
            state.give_place(pools);
        }
        if state.answers() == 0 {
            state.bytes = 0;
            state.stalled_since = None;
            state.settle(pools);
        }
    }

    /// Whether the client lets more wait than it may.
    pub(crate) fn is_too_much(&self, now: u64, pools: AnswerPools<'_>) -> bool {
        let mut state = self.state.lock();
        state.turn(now, pools.settings.stall_timeout / PRESSED_PART);
        let Some(since) = state.stalled_since else { return false };
        state.settle(pools);
        let lasts = Duration::from_micros(now.saturating_sub(since.get() - 1));
        let lacks_places = state.placed > 0 || state.placeless > 0;
        let room = if lacks_places { PoolRoom::NoPlaces } else { pools.room_for_bytes() };
        // With something taken now and then the time of all would begin anew for ever.
        let is_old = state.check_age(now, room, pools.settings.stall_timeout);
        state.is_too_much(lasts, room, is_old, pools.settings)
    }
}

/// Microseconds since the connection was opened, one more than there are.
fn moment(micros: u64) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(micros)
}

impl State {
    fn took(&mut self, bytes: usize, now: impl FnOnce() -> u64, pools: AnswerPools<'_>) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.paced = self.paced.saturating_add(taken);
        if self.stalled_since.is_none() {
            return;
        }
        self.taken = self.taken.saturating_add(taken);
        if self.bytes == 0 {
            // What flows waits for its upstream, if there is anything.
            self.stalled_since = None;
            self.begin_period(now());
        } else if u64::from(self.taken) >= WRITE_PROGRESS_BYTES {
            self.taken = 0;
            self.stalled_since = Some(moment(now()));
        }
        self.settle(pools);
    }

    /// Brings what the pools were told up to date.
    fn settle(&mut self, pools: AnswerPools<'_>) {
        let counted = if self.stalled_since.is_some() { self.bytes } else { 0 };
        if counted > self.charged {
            pools.bytes().raise(counted - self.charged);
        } else if counted < self.charged {
            pools.bytes().lower(self.charged - counted);
        }
        self.charged = counted;
        if self.stalled_since.is_none() {
            self.taken = 0;
            return;
        }
        while self.placed > 0 && pools.answers().try_take(pools.settings.waiting_max) {
            self.waiting += 1;
            self.give_place(pools);
        }
        while self.placeless > 0 && pools.answers().try_take(pools.settings.waiting_max) {
            self.waiting += 1;
            self.placeless -= 1;
        }
    }

    fn answers(&self) -> u32 {
        u32::from(self.placed) + u32::from(self.waiting) + u32::from(self.placeless)
    }

    /// Gives one of the places back that the answers hold.
    fn give_place(&mut self, pools: AnswerPools<'_>) {
        self.placed -= 1;
        if self.shared > 0 {
            self.shared -= 1;
            pools.give_place(RequestPlace::Shared);
        } else {
            pools.give_place(RequestPlace::Plain);
        }
    }

    /// Finds answers that wait although no window looks shut: one that is open by a byte lets
    /// the task of a stream hand on all it has, and then nothing tells that it is not written.
    fn turn(&mut self, now: u64, period: Duration) {
        let lasts = Duration::from_micros(now.saturating_sub(self.period_since));
        if lasts < period {
            return;
        }
        if self.old() == 0 {
            self.period = Period(!self.period.0);
            self.begin_period(now);
        } else if self.bytes == 0 {
            // Answers that flow, and wait for their upstreams.
            self.begin_period(now);
        } else {
            self.stalled_since.get_or_insert(moment(now));
        }
    }

    fn begin_period(&mut self, now: u64) {
        self.period_since = now;
        self.paced = 0;
    }

    /// True when some answer has waited for the stall timeout. A client that takes its answers at
    /// the least pace begins a new period, unless one answer that it takes could keep the places
    /// of others.
    fn check_age(&mut self, now: u64, room: PoolRoom, stall_timeout: Duration) -> bool {
        let oldest = Duration::from_micros(now.saturating_sub(self.period_since));
        if self.old() == 0 || oldest < stall_timeout {
            return false;
        }
        let least = u128::from(LEAST_PACE) * oldest.as_micros() / 1_000_000;
        let may_pass = room != PoolRoom::NoPlaces || self.answers() == 1;
        if may_pass && u128::from(self.paced) >= least {
            self.begin_period(now);
            return false;
        }
        true
    }

    /// Answers that wait since before this period.
    fn old(&self) -> u16 {
        self.began[usize::from(!self.period.0)]
    }

    /// `is_old`: as [`Self::check_age`] found.
    fn is_too_much(
        &self,
        lasts: Duration,
        room: PoolRoom,
        is_old: bool,
        settings: &Settings,
    ) -> bool {
        let too_long = lasts >= settings.stall_timeout;
        let answers = self.answers();
        let many = answers > ANSWERS_MAX || (answers > 1 && self.bytes > BYTES_MAX);
        let is_pressed = match room {
            PoolRoom::Enough => false,
            PoolRoom::Little => too_long,
            PoolRoom::NoBytes | PoolRoom::NoPlaces => {
                lasts >= settings.stall_timeout / PRESSED_PART || is_old
            }
        };
        // Streams are ended one by one before that; what their tasks have handed on is not.
        let forgotten = lasts >= settings.write_timeout * 2;
        (many && too_long) || is_pressed || forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    struct Stage {
        settings: Settings,
        counters: ServerCounters,
        share: Arc<AddressShare>,
        backlog: Backlog,
        begun: RefCell<VecDeque<BegunAnswer>>,
    }

    impl Stage {
        fn new(waiting_max: usize, waiting_bytes_max: usize) -> Self {
            Self {
                settings: Settings { waiting_max, waiting_bytes_max, ..Settings::default() },
                counters: ServerCounters::default(),
                share: Arc::default(),
                backlog: Backlog::new(),
                begun: RefCell::default(),
            }
        }

        fn pools(&self) -> AnswerPools<'_> {
            AnswerPools {
                settings: &self.settings,
                counters: &self.counters,
                share: Some(&self.share),
            }
        }

        fn begin(&self, answers: u32, bytes: usize) {
            for n in 0..answers {
                self.counters.requests_open.raise(1);
                self.share.places.raise(usize::from(n % 2 == 0));
                let place = if n % 2 == 0 { RequestPlace::Shared } else { RequestPlace::Plain };
                let begun = self.backlog.begin(bytes, place, self.pools());
                self.begun.borrow_mut().push_back(begun);
            }
        }

        fn end(&self, answers: u32, bytes: usize) {
            for begun in self.begun.borrow_mut().drain(..answers as usize) {
                self.backlog.end(bytes, begun, || 0, self.pools());
            }
        }

        /// Places taken; answers and bytes in the pool; the same for the address.
        fn check(&self, places: usize, waiting: usize, bytes: usize) {
            let ServerCounters { requests_open, answers_waiting, answers_waiting_bytes, .. } =
                &self.counters;
            assert_eq!(requests_open.get(), places, "places");
            assert_eq!(answers_waiting.get(), waiting, "answers");
            assert_eq!(answers_waiting_bytes.get(), bytes, "bytes");
            assert_eq!(self.share.waiting.get(), waiting, "answers of the address");
            assert_eq!(self.share.waiting_bytes.get(), bytes, "bytes of the address");
        }

        fn is_too_much(&self, millis: u64) -> bool {
            self.backlog.is_too_much(millis * 1000, self.pools())
        }
    }

    #[test]
    fn a_client_that_takes_all_costs_the_pool_nothing() {
        let stage = Stage::new(100, 1000);
        stage.begin(3, 100);
        stage.check(3, 0, 0);
        assert!(!stage.is_too_much(1_000_000));
        stage.end(3, 100);
        stage.check(0, 0, 0);
        assert_eq!(stage.share.places.get(), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_gives_places_back() {
        let stage = Stage::new(100, 10_000);
        stage.begin(3, 100);
        stage.backlog.stall(0, stage.pools());
        stage.check(0, 3, 300);
        assert_eq!(stage.share.places.get(), 0);
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
        assert!(!stage.is_too_much(999));
        assert!(!stage.is_too_much(1000), "they may have begun just now");
        assert!(!stage.is_too_much(1999));
        stage.check(100, 0, 0);
        assert!(!stage.is_too_much(2000), "they give their places back");
        stage.check(0, 100, 100);
        assert!(!stage.is_too_much(6999));
        assert!(stage.is_too_much(7000));
        stage.end(100, 1);
        stage.check(0, 0, 0);
    }

    #[test]
    fn answers_that_follow_each_other_are_not_old() {
        let stage = Stage::new(1000, 10_000);
        for n in 0..100 {
            stage.begin(100, 1);
            assert!(!stage.is_too_much(n * 400));
            stage.check(100 + 100 * usize::from(n > 0), 0, 0);
            stage.end(100 * u32::from(n > 0), 1);
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
            assert_eq!(is_ended, seconds >= 6, "after {seconds} s");
        }
        assert!(is_ended);
    }

    #[test]
    fn the_time_in_which_a_flow_waits_for_its_upstream_does_not_count() {
        let stage = Stage::new(1000, 10_000_000);
        stage.begin(1, 100);
        stage.backlog.took(100, || 0, stage.pools());
        for second in 1..=300 {
            // Each second something waits for a moment, but in a long silence.
            if !(100..200).contains(&second) {
                stage.backlog.grow(1000, stage.pools());
                stage.backlog.stall(second * 1_000_000, stage.pools());
                assert!(!stage.is_too_much(second * 1000), "after {second} s");
                stage.backlog.took(1000, || second * 1_000_000 + 1, stage.pools());
            }
            assert!(!stage.is_too_much(second * 1000 + 500), "after {second} s");
            assert_eq!(stage.counters.answers_waiting_bytes.get(), 0);
        }
        stage.backlog.grow(1000, stage.pools());
        stage.backlog.stall(300_600_000, stage.pools());
        assert!(!stage.is_too_much(360_599));
        assert!(stage.is_too_much(360_600), "now it is the client that takes nothing");
    }

    /// An address with `held` bytes on a connection that takes `pace` bytes a second, while
    /// others have filled the pool: when it is ended, in seconds.
    fn ended_after(held: usize, pace: usize) -> Option<u64> {
        let stage = Stage::new(1000, 160_000_000);
        let hog = Stage::new(1000, 160_000_000);
        let of_hog = AnswerPools { share: Some(&hog.share), ..stage.pools() };
        let begun = hog.backlog.begin(300_000_000, RequestPlace::Plain, of_hog);
        stage.counters.requests_open.raise(1);
        hog.backlog.stall(0, of_hog);
        assert!(!hog.backlog.is_too_much(999_999, of_hog));
        assert!(hog.backlog.is_too_much(1_000_000, of_hog));
        stage.begin(1, held);
        stage.backlog.stall(0, stage.pools());
        let ended = (0..60).find(|second| {
            if *second > 0 {
                stage.backlog.took(pace, || second * 1_000_000, stage.pools());
            }
            stage.is_too_much(second * 1000)
        });
        hog.backlog.end(0, begun, || 0, of_hog);
        ended
    }

    #[test]
    fn the_client_that_fills_the_pool_is_ended_and_not_others() {
        // A sixteenth of the pool is 10 MB.
        assert_eq!(ended_after(9_000_000, 100_000), None);
        assert_eq!(ended_after(9_000_000, 20_000), None, "few bytes, at any pace");
        assert_eq!(ended_after(9_000_000, 0), Some(5), "but not without one");
        assert_eq!(ended_after(50_000_000, 100_000), None, "many, at a good pace");
        assert_eq!(ended_after(50_000_000, 20_000), Some(6), "at a bad one");
        assert_eq!(ended_after(50_000_000, 0), Some(1));
    }

    #[test]
    fn refusals_that_are_not_taken_hold_places_of_the_pool() {
        let stage = Stage::new(1000, 10_000);
        let begun: Vec<_> = (0..=ANSWERS_MAX)
            .map(|_| stage.backlog.begin(10, RequestPlace::None, stage.pools()))
            .collect();
        stage.backlog.stall(0, stage.pools());
        stage.check(0, begun.len(), begun.len() * 10);
        assert!(!stage.is_too_much(4999));
        assert!(stage.is_too_much(5000));
        for begun in begun {
            stage.backlog.end(10, begun, || 0, stage.pools());
        }
        stage.check(0, 0, 0);
    }

    #[test]
    fn refusals_for_which_the_pool_has_no_place_have_a_fifth_of_the_stall_timeout() {
        let stage = Stage::new(8, 10_000);
        stage.begin(2, 10);
        let begun: Vec<_> =
            (0..10).map(|_| stage.backlog.begin(10, RequestPlace::None, stage.pools())).collect();
        assert!(!stage.is_too_much(0), "they may be taken at once");
        stage.backlog.stall(0, stage.pools());
        stage.check(0, 8, 120);
        assert!(!stage.is_too_much(999));
        assert!(stage.is_too_much(1000));
        stage.end(2, 10);
        for begun in begun {
            stage.backlog.end(10, begun, || 0, stage.pools());
        }
        stage.check(0, 0, 0);
    }

    #[test]
    fn a_client_that_takes_something_has_the_time_anew() {
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
