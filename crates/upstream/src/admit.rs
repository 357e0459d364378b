//! Asking an upstream before it is asked: may this call go, and if not, when.
//!
//! The bounds are in `control`; here they meet the upstream's pauses and latencies, and its
//! control loop learns that clients call. What
//! is done with a call that is held, skipping the upstream or waiting, is for `dispatch`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wellhead_eth::MethodRow;
use wellhead_limit::Pages;

use crate::bound::{Bound, LimitedBy};
use crate::client_places::ClientHash;
use crate::control::{ExchangePlace, Spending};
use crate::in_flight::InFlight;
use crate::provider::PushPrice;
use crate::refusal::PausedMethod;
use crate::trials::Trials;
use crate::upstream::Upstream;

impl Upstream {
    /// From now on notes when clients' calls come, and calls `wake` at each that comes after
    /// `quiet` without one. `wake` must not block. It takes the place of the one before.
    pub fn wake_on_demand(&self, quiet: Duration, wake: impl Fn() + Send + Sync + 'static) {
        self.controls().demand().wake(quiet, Box::new(wake));
    }

    /// Whether a client's call came within `time`; never, where nothing wants to know.
    pub fn is_called_within(&self, time: Duration, now: Instant) -> bool {
        let last = self.controls().demand().last();
        last.is_some_and(|last| self.stamp(now).since(last) <= time)
    }

    /// Lets `calls` calls of `row` go in one exchange, which is counted until the returned
    /// guard is dropped, or says what holds them, which is counted too. Takes from every
    /// bound or from none.
    pub fn admit(
        self: &Arc<Self>,
        row: &MethodRow,
        calls: u32,
        now: Instant,
    ) -> Result<InFlight, LimitedBy> {
        let rows = std::iter::repeat_n(row, calls as usize);
        let is_bulky = calls > 1 || row.class.is_heavy();
        self.try_admit(rows, is_bulky, None, now).inspect_err(|held| self.note_held(held.bound))
    }

    /// As [`Upstream::admit`] for calls of several methods, without the count of held calls: for a
    /// queue that asks again and again. `client`: whose calls they are, of which each has a share of the
    /// places while several call.
    pub fn try_admit<'a>(
        self: &Arc<Self>,
        rows: impl Iterator<Item = &'a MethodRow> + Clone,
        is_bulky: bool,
        client: Option<ClientHash>,
        now: Instant,
    ) -> Result<InFlight, LimitedBy> {
        let place = ExchangePlace { is_bulky, client };
        // That it was meant for this upstream counts, whether a bound holds it or not.
        self.controls().demand().note(|| self.stamp(now));
        let latency = || self.latency(now);
        self.controls().admit(rows.clone(), place, latency, self.since_epoch(now))?;
        Ok(self.attempted(rows, place, now))
    }

    /// How long it has yet to be left alone with calls of all methods, because it asked for that;
    /// `None` when it may be asked, as far as this goes.
    pub fn throttled_for(&self, now: Instant) -> Option<Duration> {
        self.controls().refusals().pause(|| self.since_epoch(now))
    }

    /// The pause that holds calls of `row`, because it refused that method or asked for a pause
    /// of all, or because a study of its limit is at work.
    pub fn paused_for(&self, row: &MethodRow, now: Instant) -> Option<LimitedBy> {
        self.controls().paused_for(std::iter::once(row), || self.since_epoch(now))
    }

    /// Holds clients' calls for `time`, at most 5 s, while a study leans on the limit; here, and as a pause at the
    /// other replicas, where these share. A hold that is not renewed ends by itself.
    pub fn hold_for_study(&self, time: Duration, now: Instant) {
        self.controls().hold_for_study(time, self.since_epoch(now));
        self.tell_pause(None, Some(time));
    }

    /// Ends that hold here. Calls then begin as if the buckets of its budget were empty.
    pub fn release_from_study(&self, now: Instant) {
        self.controls().release_from_study(self.since_epoch(now));
    }

    /// Pays for a call of a study, and tells the credits. It is an attempt, and takes no place.
    pub fn charge_study(&self, row: &MethodRow, now: Instant) -> u64 {
        self.state.attempts.fetch_add(1, Ordering::Relaxed);
        self.controls().charge_study(row, self.since_epoch(now));
        self.price(row)
    }

    /// The methods that pause alone, because it refused them.
    pub fn paused_methods(&self, now: Instant) -> Vec<PausedMethod> {
        self.controls().refusals().paused_methods(self.since_epoch(now))
    }

    /// Counts a call as in flight until the returned guard is dropped, whatever its
    /// bounds: for our own, which have to be made. What it costs is counted.
    pub fn begin_call(self: &Arc<Self>, row: &MethodRow, now: Instant) -> InFlight {
        self.controls().begin(row, self.since_epoch(now));
        self.attempted(std::iter::once(row), ExchangePlace::default(), now)
    }

    /// Pays for a call of our own that travels on a feed's connection: it takes no place.
    pub fn charge_call(&self, row: &MethodRow, now: Instant) {
        self.controls().charge(row, self.since_epoch(now));
    }

    /// Pays for a message of `bytes` that the upstream pushed, and tells the credits.
    pub fn charge_push(&self, bytes: usize, now: Instant) -> u64 {
        self.controls().charge_push(bytes, self.since_epoch(now))
    }

    /// What a pushed message costs; `None` where it costs nothing.
    pub fn push_price(&self) -> Option<PushPrice> {
        self.controls().push_price()
    }

    /// What the provider charges for one call of `row`; one if that is unknown.
    pub fn price(&self, row: &MethodRow) -> u64 {
        self.controls().billed(row)
    }

    /// How long a call of `row` would be held by rates; zero for most.
    pub fn rate_wait(&self, row: &MethodRow, now: Instant) -> Duration {
        match self.controls().has_rate() {
            true => self.controls().rate_wait(row, self.since_epoch(now)),
            false => Duration::ZERO,
        }
    }

    /// Counts a call as held.
    pub fn note_held(&self, bound: Bound) {
        self.controls().count_held(bound);
    }

    /// Calls that were held by this bound since the start.
    pub fn held(&self, bound: Bound) -> u64 {
        self.controls().held(bound)
    }

    /// What was spent, and what bounds it.
    pub fn spending(&self, now: Instant) -> Spending {
        self.controls().spending(self.since_epoch(now))
    }

    /// The spending of the last day and month, to be kept across a restart; `None` if days are not
    /// counted.
    pub fn pages(&self) -> Option<Pages> {
        self.controls().pages()
    }

    /// Adds what was spent before the start, as far as it counts today.
    pub fn restore(&self, pages: Pages, now: Instant) {
        self.controls().restore(pages, self.since_epoch(now));
    }

    fn attempted<'a>(
        self: &Arc<Self>,
        rows: impl Iterator<Item = &'a MethodRow>,
        place: ExchangePlace,
        now: Instant,
    ) -> InFlight {
        self.state.attempts.fetch_add(1, Ordering::Relaxed);
        let mut trials = Trials::default();
        rows.for_each(|row| self.on_trial(row.class, &mut trials, now));
        InFlight::new(Arc::clone(self), trials, place, now)
    }
}
