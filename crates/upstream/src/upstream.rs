//! One upstream as the request path and the control loops share it.
//!
//! All state is atomics: the request path reads and counts, `watch` verifies and probes,
//! and neither waits for the other. The caller passes every instant, which is kept
//! as a [`Stamp`] of [`Upstream`]'s own epoch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_eth::{ChainId, CostClass, MethodRow, MethodTable};

use crate::breaker::{BreakerBounds, BreakerState, CircuitBreaker, TrialClaim};
use crate::budget::Budget;
use crate::control::Controls;
use crate::dissent::Dissents;
use crate::failure_rate::ClassFailureRate;
use crate::identity::Identity;
use crate::latency::PeakEwma;
use crate::offer::{Offer, Offers};
use crate::quantile::SlowMark;
use crate::reach::{Reach, ReachSettings};
use crate::redactor::Redactor;
use crate::set::Slot;
use crate::sharing::{PEER_PAUSE_MIN, UpstreamSharing};
use crate::silence::StallDetector;
use crate::stamp::{ExchangeSpan, Stamp, StampCell};
use crate::trials::Trials;
use crate::unknown::Unknowns;
use crate::version::VersionCell;
use crate::{HealthEffect, Payload, Verdict, VerdictClass};

/// A rest after a 429 without `Retry-After`, where rates are not learnt.
const THROTTLE_REST: Duration = Duration::from_secs(1);
/// How long an upstream with a bad key or an empty account is left alone.
const OUT_OF_SERVICE_REST: Duration = Duration::from_secs(60);
/// How long an upstream that answered a batch with something else is sent none.
const BATCH_BAN: Duration = Duration::from_secs(600);
/// What a failure counts as in the latency average, so that a fast refuser
/// does not look like the fastest upstream.
const FAILURE_LATENCY: Duration = Duration::from_secs(1);

/// A cost takes no greater share of failures into account.
const FAILING_MAX: f64 = 0.95;

/// Whether the upstream was seen to be on the chain that it is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not asked yet, or it could not answer.
    Unverified,
    /// It is.
    Verified,
    /// It reported this other chain. Never used.
    WrongChain(ChainId),
}

/// Whether an upstream can take a call now, the best first.
/// Its words stand in metrics, status and the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Condition {
    /// Yes.
    Ready,
    /// It is paused, after it refused calls of several methods.
    Throttled,
    /// It failed; its breaker is half-open: a probe, or a call without another candidate, may test it.
    HalfOpen,
    /// It reports that it is syncing.
    Syncing,
    /// It failed, and its breaker is open.
    BreakerOpen,
    /// Its key or its account was refused.
    OutOfService,
    /// Its credits of the day or the month are spent, and its settings allow overspending.
    Overspent,
    /// Its credits of the day or the month are spent, and it must not be used.
    Spent,
    /// Its chain id is not verified yet.
    Unverified,
    /// It is on another chain.
    WrongChain,
}

wellhead_word::words!(Condition);

impl Condition {
    /// Whether a call may go there when nothing better is left.
    pub fn is_last_resort(self) -> bool {
        match self {
            Self::Ready => false,
            Self::Throttled
            | Self::HalfOpen
            | Self::Syncing
            | Self::BreakerOpen
            | Self::OutOfService
            | Self::Overspent => true,
            Self::Spent | Self::Unverified | Self::WrongChain => false,
        }
    }
}

/// What a settled exchange changed, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing worth a line.
    None,
    /// It rests from now on.
    Rests,
    /// Calls of this class go elsewhere from now on; the others do not notice.
    ClassRests,
    /// A rest ended well.
    Recovered,
    /// Its key or account was refused: an operator must act.
    WentOutOfService,
}

/// The last thing that went wrong, in words that hold no secret.
#[derive(Debug, Clone)]
pub struct UpstreamProblem {
    /// When.
    pub at: Instant,
    /// What, for the operator.
    pub text: String,
    /// How it was judged, when it was an exchange.
    pub class: Option<VerdictClass>,
}

impl UpstreamProblem {
    /// What a client may hear of it. Providers name the project or the plan when they
    /// limit it, which is the operator's business: the log and the status page tell it.
    pub fn told_to_clients(&self) -> &str {
        match self.class {
            Some(class) if class.is_between_us_and_the_upstream() => class.about(),
            Some(_) | None => &self.text,
        }
    }
}

/// One upstream: its settings, and what was learnt of it.
///
/// When settings change, a new one takes over what the old one learnt and counts ([`Upstream::succeeding`]).
pub struct Upstream {
    identity: Identity,
    redactor: Redactor,
    slot: Slot,
    /// What the settings say that it keeps.
    pub(crate) history: ReachSettings,
    sharing: Option<Arc<dyn UpstreamSharing>>,
    epoch: Instant,
    controls: Arc<Controls>,
    pub(crate) state: Arc<UpstreamState>,
}

/// What was learnt of an upstream, whatever its settings.
#[derive(Default)]
pub(crate) struct UpstreamState {
    /// 0 unverified, 1 verified, 2 wrong chain (then `reported_chain` holds it).
    standing: AtomicU8,
    reported_chain: AtomicU64,
    syncing: AtomicBool,
    breaker: CircuitBreaker,
    /// No check probes it: client calls detect its recovery.
    tried_by_clients: AtomicBool,
    failure_rates: [ClassFailureRate; CostClass::ALL.len()],
    unknowns: Unknowns,
    dissents: Dissents,
    out_until: StampCell,
    latency: [PeakEwma; CostClass::ALL.len()],
    /// Over all classes, probes included: stands in for a class not yet measured.
    latency_overall: PeakEwma,
    /// When a call takes longer than nineteen in twenty, by class.
    slow: [SlowMark; CostClass::ALL.len()],
    /// When an exchange of several calls takes longer than nineteen in twenty.
    slow_batch: SlowMark,
    silence: StallDetector,
    pub(crate) reach: Reach,
    offers: Offers,
    /// Until when no batch is sent to it.
    no_batches_until: StampCell,
    pub(crate) attempts: AtomicU64,
    failures: AtomicU64,
    last_problem: Mutex<Option<UpstreamProblem>>,
    version: VersionCell,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("id", &self.identity.id).finish_non_exhaustive()
    }
}

impl Upstream {
    /// An upstream of which nothing is known yet. `now` becomes its epoch.
    pub fn new(identity: Identity, slot: Slot, bounds: BreakerBounds, now: Instant) -> Self {
        let upstream = Self {
            identity,
            redactor: Redactor::default(),
            slot,
            history: ReachSettings::default(),
            sharing: None,
            epoch: now,
            controls: Arc::new(Controls::new(Budget::default())),
            state: Arc::default(),
        };
        upstream.set_bounds(bounds);
        upstream
    }

    /// This upstream after its settings changed: `self` has the new ones, and takes over what `old` learnt
    /// and spent, its budget, and its epoch. Calls that go on at `old` count for both. The bounds of its breakers stay
    /// until [`Upstream::set_bounds`].
    #[must_use]
    pub fn succeeding(self, old: &Self) -> Self {
        Self {
            sharing: old.sharing.clone(),
            epoch: old.epoch,
            controls: Arc::clone(&old.controls),
            state: Arc::clone(&old.state),
            ..self
        }
    }

    /// Its breakers go by these bounds from now on. Rests that began go on.
    pub fn set_bounds(&self, bounds: BreakerBounds) {
        self.state.breaker.set_bounds(bounds);
        for (class, failure_rate) in CostClass::ALL.iter().zip(&self.state.failure_rates) {
            failure_rate.set_bounds(*class, bounds);
        }
    }

    /// Within another budget than that of the upstream that it succeeds. What was spent and learnt stays.
    #[must_use]
    pub fn within_instead(mut self, budget: Budget) -> Self {
        self.controls = Arc::new(self.controls.changed(budget));
        self
    }

    /// With secrets that must not be told when it quotes them.
    #[must_use]
    pub fn hiding(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Within this budget. What was counted before is forgotten.
    #[must_use]
    pub fn within(mut self, budget: Budget) -> Self {
        self.controls = Arc::new(Controls::new(budget));
        self
    }

    /// With a budget and pauses that replicas share. The budget has to be set before, and to be its own.
    #[must_use]
    pub fn sharing(mut self, sharing: Arc<dyn UpstreamSharing>) -> Self {
        if let Some(controls) = Arc::get_mut(&mut self.controls) {
            controls.share(|word, limit| sharing.share(word, limit));
        }
        self.sharing = Some(sharing);
        self
    }

    /// With what the settings say of how far back it reaches, and over how much at once.
    #[must_use]
    pub fn reaching(self, history: ReachSettings) -> Self {
        Self { history, ..self }
    }

    /// Tells other replicas of a pause of all calls or of those of one method, where it is worth it.
    pub(crate) fn tell_pause(&self, method: Option<&'static str>, pause: Option<Duration>) {
        if let Some(sharing) = &self.sharing
            && let Some(pause) = pause.filter(|pause| *pause >= PEER_PAUSE_MIN)
        {
            sharing.tell_pause(method, pause);
        }
    }

    /// Takes in that another replica was refused and told to pause: all calls, or those of one method. A
    /// method that is not known here is ignored.
    pub fn note_peer_pause(&self, method: Option<&str>, pause: Duration, now: Instant) {
        let row = method.map(|method| MethodTable::standard().row(method));
        if row.is_none_or(|row| Some(row.name) == method) {
            let at = self.since_epoch(now);
            self.controls.refusals().note_peer_pause(row, pause, at);
        }
    }

    pub(crate) fn controls(&self) -> &Controls {
        &self.controls
    }

    pub(crate) fn since_epoch(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.epoch)
    }

    /// Claims what a call of this class is to find out, beside what `trials` holds already.
    pub(crate) fn on_trial(&self, class: CostClass, trials: &mut Trials, now: Instant) {
        let failure_rate = &self.state.failure_rates[class as usize];
        let is_in = self.state.out_until.get().is_none();
        if is_in && self.state.breaker.is_closed() && failure_rate.is_well() {
            return;
        }
        let now = self.stamp(now);
        if trials.ours & Trials::WHOLE == 0 {
            let whole = match self.state.out_until.get() {
                None => self.state.breaker.begin(now),
                Some(until) if until <= now => self.state.breaker.claim(now),
                Some(_) => TrialClaim::None,
            };
            trials.note(Trials::WHOLE, whole);
        }
        let place = 1 << class as u8;
        if trials.ours & place == 0 {
            trials.note(place, failure_rate.begin(now));
        }
    }

    pub(crate) fn release(&self, trials: Trials, began: Instant) {
        let began = self.stamp(began);
        if trials.ours & Trials::WHOLE != 0 {
            self.state.breaker.release(began);
        }
        for (place, failure_rate) in self.state.failure_rates.iter().enumerate() {
            if trials.ours & (1 << place) != 0 {
                failure_rate.release(began);
            }
        }
    }

    /// What the settings say of it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its place in the roster.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn stamp(&self, now: Instant) -> Stamp {
        Stamp::at(self.since_epoch(now))
    }

    /// Whether it was seen to be on its chain.
    pub fn standing(&self) -> Standing {
        match self.state.standing.load(Ordering::Acquire) {
            0 => Standing::Unverified,
            1 => Standing::Verified,
            _ => Standing::WrongChain(ChainId(self.state.reported_chain.load(Ordering::Relaxed))),
        }
    }

    /// Notes which chain it reported, and says whether that is news.
    pub fn set_standing(&self, standing: Standing) -> bool {
        let (value, chain) = match standing {
            Standing::Unverified => (0, 0),
            Standing::Verified => (1, 0),
            Standing::WrongChain(chain) => (2, chain.0),
        };
        self.state.reported_chain.store(chain, Ordering::Relaxed);
        self.state.standing.swap(value, Ordering::AcqRel) != value
    }

    /// Notes whether it says that it is still syncing; true when that is news.
    pub fn set_syncing(&self, syncing: bool) -> bool {
        self.state.syncing.swap(syncing, Ordering::Relaxed) != syncing
    }

    /// Whether it can take a call now.
    pub fn condition(&self, now: Instant) -> Condition {
        match self.state.standing.load(Ordering::Acquire) {
            0 => return Condition::Unverified,
            1 => {}
            _ => return Condition::WrongChain,
        }
        if self.state.out_until.get().is_some() {
            return Condition::OutOfService;
        }
        // The time is worked out where something depends on it, here and below: for an
        // upstream that is well nothing does, and a call asks a dozen times.
        if !self.state.breaker.is_closed() {
            match self.state.breaker.state(self.stamp(now)) {
                BreakerState::Open(_) => return Condition::BreakerOpen,
                BreakerState::HalfOpen => return Condition::HalfOpen,
                BreakerState::Closed => {}
            }
        }
        if self.state.syncing.load(Ordering::Relaxed) {
            return Condition::Syncing;
        }
        if self.controls.is_capped() && self.controls.cap_reached(self.since_epoch(now)).is_some() {
            let may_go_on = self.controls.may_overspend();
            return if may_go_on { Condition::Overspent } else { Condition::Spent };
        }
        if self.throttled_for(now).is_some() {
            return Condition::Throttled;
        }
        Condition::Ready
    }

    /// When a control loop should probe it again; `None` when it needs no probe,
    /// an instant in the past when it is due.
    pub fn probe_due(&self, now: Instant) -> Option<Instant> {
        let at = |stamp: Stamp| self.epoch + Duration::from_millis(stamp.ms());
        if let Some(until) = self.state.out_until.get() {
            return Some(at(until));
        }
        if self.state.breaker.is_closed() {
            return None;
        }
        match self.state.breaker.state(self.stamp(now)) {
            BreakerState::Closed => None,
            BreakerState::HalfOpen => Some(now),
            BreakerState::Open(until) => Some(at(until)),
        }
    }

    /// Whether it rested and came back after `at`: what was asked of it before says nothing of now.
    pub fn came_back_after(&self, at: Instant) -> bool {
        self.state.breaker.recovered_after(self.stamp(at))
    }

    /// For how long it has been failing, probes included; `None` while it is not.
    pub fn down_for(&self, now: Instant) -> Option<Duration> {
        let since = self.state.breaker.down_since()?;
        Some(self.stamp(now).since(since))
    }

    /// Sets whether client calls have to detect its recovery, because no check probes it.
    pub fn set_tried_by_clients(&self, tried: bool) {
        self.state.tried_by_clients.store(tried, Ordering::Relaxed);
    }

    /// Whether its breaker is half-open and a client's call has to test it: no check does, and no
    /// other call is testing it.
    pub fn takes_trial(&self, now: Instant) -> bool {
        if !self.state.tried_by_clients.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.stamp(now);
        match self.state.out_until.get() {
            None => self.state.breaker.takes_trial(now),
            Some(until) => until <= now && self.state.breaker.is_untried(now),
        }
    }

    /// Whether calls of `class` should go elsewhere, although it is well otherwise: they
    /// failed here too often lately.
    pub fn class_rests(&self, class: CostClass, now: Instant) -> bool {
        let failure_rate = &self.state.failure_rates[class as usize];
        !failure_rate.is_well() && failure_rate.rests(self.stamp(now))
    }

    /// The share of the calls of `class` that failed lately, from zero to one.
    pub fn failing(&self, class: CostClass) -> f64 {
        self.state.failure_rates[class as usize].share()
    }

    /// How often it said something that no rule knows: by code, and with codes for which
    /// there was no place left.
    pub fn unknown_errors(&self) -> (Vec<(i64, u64)>, u64) {
        self.state.unknowns.told()
    }

    /// Whether it offers the method of `row`, as far as its answers say.
    pub fn offer(&self, row: &MethodRow, now: Instant) -> Offer {
        self.state.offers.of(row, self.stamp(now), |at| self.state.breaker.recovered_after(at))
    }

    /// Whether it was seen to offer the method of `row`.
    pub fn has_offered(&self, row: &MethodRow) -> bool {
        self.state.offers.is_there(row)
    }

    /// Whether it may be sent several calls in one body.
    pub fn takes_batches(&self, now: Instant) -> bool {
        self.state.no_batches_until.get().is_none_or(|until| until <= self.stamp(now))
    }

    /// Notes that it answered a batch with something else.
    pub fn refuses_batches(&self, now: Instant) {
        self.state.no_batches_until.set(self.stamp(now).after(BATCH_BAN));
    }

    /// What one more call of `class` would cost: the expected nanoseconds times the
    /// calls that would then be in flight, by the share of its calls that do not fail,
    /// since a call that fails has to be made again. Zero while nothing was measured, so
    /// that a new upstream is tried.
    pub fn cost(&self, class: CostClass, now: Instant) -> f64 {
        let now = self.stamp(now);
        let latency = self.state.latency[class as usize]
            .read(now)
            .or_else(|| self.state.latency_overall.read(now))
            .unwrap_or(0.0);
        let answered = 1.0 - self.failing(class).min(FAILING_MAX);
        latency * f64::from(self.in_flight().saturating_add(1)) / answered
    }

    /// The expected latency over all classes; `None` while nothing was measured.
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        self.state
            .latency_overall
            .read(self.stamp(now))
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    /// What nineteen in twenty answers to calls of `class` take at most; `None` while too
    /// few were measured.
    pub fn slow_after(&self, class: CostClass) -> Option<Duration> {
        self.state.slow[class as usize].read()
    }

    /// What nineteen in twenty exchanges of several calls take at most; `None` while too few
    /// were measured.
    pub fn slow_batch_after(&self) -> Option<Duration> {
        self.state.slow_batch.read()
    }

    /// Notes how long an exchange of several calls took, or how long it was waited for.
    pub fn batch_took(&self, took: Duration) {
        self.state.slow_batch.observe(took);
    }

    /// Notes that a call sent at `began` waits longer than such calls usually take; `noted`
    /// is when the same call was last noted.
    pub fn overdue(&self, began: Instant, noted: Option<Instant>, now: Instant) {
        let waited = ExchangeSpan { began: self.stamp(began), ended: self.stamp(now) };
        self.state.silence.overdue(waited, noted.map(|at| self.stamp(at)));
    }

    /// Whether it looks stalled: several calls wait longer than usual and nothing was heard
    /// of it meanwhile. `usual` is what most calls take.
    pub fn is_silent(&self, usual: Duration, now: Instant) -> bool {
        self.state.silence.is_long(self.stamp(now), usual)
    }

    /// Takes note that it said something; what that is worth is settled later.
    pub fn heard(&self, now: Instant) {
        self.state.silence.heard(self.stamp(now));
    }

    /// Whether it answered any call after `began`.
    pub fn was_heard_after(&self, began: Instant) -> bool {
        self.state.silence.was_heard_after(self.stamp(began))
    }

    /// Calls in flight, without large answers that wait for their clients.
    pub fn in_flight(&self) -> u32 {
        self.controls.in_flight()
    }

    /// Large answers that wait for their clients.
    pub fn parked(&self) -> u32 {
        self.controls.parked_now()
    }

    /// Attempts begun and failed since the start.
    pub fn totals(&self) -> (u64, u64) {
        (self.state.attempts.load(Ordering::Relaxed), self.state.failures.load(Ordering::Relaxed))
    }

    /// Counts that it disagreed with the quorum, about a final block or another one. Returns whether
    /// to log it, at most once a minute. Does not affect health.
    pub fn note_dissent(&self, is_final: bool, now: Instant) -> bool {
        self.state.dissents.note(is_final, self.stamp(now))
    }

    /// How often it disagreed with the quorum, about final blocks and about others.
    pub fn dissents(&self) -> (u64, u64) {
        self.state.dissents.told()
    }

    /// `verdict` on its reply, without its secrets. To be called on each verdict before any use.
    pub fn redacted(&self, mut verdict: Verdict) -> Verdict {
        self.redactor.apply(&mut verdict);
        verdict
    }

    /// `text`, some of which it may have written, without its secrets.
    pub fn hidden(&self, text: String) -> String {
        self.redactor.hidden(text)
    }

    /// The version that the upstream told last: at most `CLIENT_VERSION_BYTES_MAX` characters
    /// of printable ASCII. `None` while it told none.
    ///
    /// A node that was replaced without a failed call keeps the version of the old one here
    /// until the next verification.
    pub fn client_version(&self) -> Option<Arc<str>> {
        self.state.version.read()
    }

    /// Whether `watch` is about to learn the version for the first time.
    pub fn expects_client_version(&self) -> bool {
        self.state.version.is_expected()
    }

    /// Notes that the version is going to be asked for.
    pub fn expect_client_version(&self) {
        self.state.version.expect();
    }

    /// Notes what the upstream said, `None` when it did not say; true when the version is
    /// another one than before. An upstream that does not say keeps the version that it told.
    pub fn note_client_version(&self, said: Option<&str>) -> bool {
        self.state.version.note(said)
    }

    /// What went wrong last.
    pub fn last_problem(&self) -> Option<UpstreamProblem> {
        self.state.last_problem.lock().clone()
    }

    /// Remembers what went wrong; `text` must be free of secrets.
    pub fn note_problem(&self, text: String, now: Instant) {
        *self.state.last_problem.lock() = Some(UpstreamProblem { at: now, text, class: None });
    }

    /// Remembers an exchange that failed; `text` must be free of secrets.
    pub fn note_failure(&self, class: VerdictClass, text: String, now: Instant) {
        *self.state.last_problem.lock() =
            Some(UpstreamProblem { at: now, text, class: Some(class) });
    }

    /// Takes the verdict of an exchange that began at `began` into account.
    pub fn settle(
        &self,
        row: &MethodRow,
        verdict: &Verdict,
        began: Instant,
        now: Instant,
    ) -> Change {
        if verdict.health == HealthEffect::Good {
            self.controls.answered(row.class, self.since_epoch(began), self.since_epoch(now));
        }
        self.settle_shared(row, verdict, began, now)
    }

    /// As [`Upstream::settle`] for one call of several in one exchange, whose time says little of
    /// how long one call takes.
    pub fn settle_shared(
        &self,
        row: &MethodRow,
        verdict: &Verdict,
        began: Instant,
        now: Instant,
    ) -> Change {
        let (began, now) = (self.since_epoch(began), self.since_epoch(now));
        let span = ExchangeSpan { began: Stamp::at(began), ended: Stamp::at(now) };
        let took = now.saturating_sub(began);
        self.state
            .offers
            .settle(row, verdict, span.ended, |at| self.state.breaker.recovered_after(at));
        if verdict.class == VerdictClass::Unknown {
            self.state.unknowns.count(&verdict.payload);
        }
        match verdict.health {
            HealthEffect::Good
            | HealthEffect::Neutral
            | HealthEffect::Throttled
            | HealthEffect::OutOfService => self.state.silence.heard(span.ended),
            HealthEffect::Failed | HealthEffect::FailedAtOnce => {}
        }
        match verdict.health {
            HealthEffect::Good => {
                self.state.failure_rates[row.class as usize].answered(span);
                self.controls.refusals().answered(row, span);
                self.answers(row.class, took, span.ended);
                self.well(span)
            }
            HealthEffect::Neutral => {
                // An upstream that refuses a call for its content has read it, so earlier failures
                // were not consecutive. Closing the breaker takes more: a good answer.
                if shows_that_it_works(verdict) {
                    self.controls.refusals().answered(row, span);
                    self.state.failure_rates[row.class as usize].answered(span);
                    self.state.breaker.answered();
                }
                Change::None
            }
            HealthEffect::Throttled => {
                self.count_failure(row.class, took, span.ended);
                let asked = verdict.retry_after;
                let named = self.controls.refused(row, began, now, asked, THROTTLE_REST);
                self.tell_pause(None, named.whole);
                self.tell_pause(Some(row.name), named.method);
                Change::None
            }
            HealthEffect::Failed => self.failed(row.class, took, span, false),
            HealthEffect::FailedAtOnce => self.failed(row.class, took, span, true),
            HealthEffect::OutOfService => {
                self.count_failure(row.class, took, span.ended);
                match self.state.out_until.swap(span.ended.after(OUT_OF_SERVICE_REST)) {
                    None => Change::WentOutOfService,
                    Some(_) => Change::None,
                }
            }
        }
    }

    /// Records that the caller gave up after `took`, without a verdict: an answer would have taken
    /// longer still. Never a failure, but an upstream that hangs must not look fast because its
    /// clients have shorter timeouts than wellhead.
    pub fn given_up(&self, row: &MethodRow, took: Duration, now: Instant) {
        let now = self.stamp(now);
        for average in [&self.state.latency[row.class as usize], &self.state.latency_overall] {
            // A lower bound says nothing when it is below what is expected anyway.
            if average.read(now).is_none_or(|expected| took.as_nanos() as f64 > expected) {
                average.observe(took, now);
            }
        }
    }

    /// Takes into account that the beginning of a large answer arrived at `now`. Whether it
    /// was a good one shows at its end: [`Upstream::ended_well`], or a failure to settle.
    pub fn began_well(&self, row: &MethodRow, began: Instant, now: Instant) {
        let at = self.stamp(now);
        self.state.silence.heard(at);
        self.answers(row.class, now.saturating_duration_since(began), at);
        self.controls.answered(row.class, self.since_epoch(began), self.since_epoch(now));
    }

    /// Takes into account that a large answer to a call sent at `began` was whole.
    pub fn ended_well(&self, row: &MethodRow, began: Instant, now: Instant) -> Change {
        let span = ExchangeSpan { began: self.stamp(began), ended: self.stamp(now) };
        self.state.silence.heard(span.ended);
        self.state.failure_rates[row.class as usize].answered(span);
        self.controls.refusals().answered(row, span);
        self.well(span)
    }

    fn answers(&self, class: CostClass, took: Duration, now: Stamp) {
        self.state.latency[class as usize].observe(took, now);
        self.state.latency_overall.observe(took, now);
        self.state.slow[class as usize].observe(took);
    }

    fn well(&self, span: ExchangeSpan) -> Change {
        // Only what was sent after the refusal shows that the key works again.
        let is_past = |until| span.began.after(OUT_OF_SERVICE_REST) > until;
        let was_out = self.state.out_until.get().is_some_and(is_past);
        if was_out {
            self.state.out_until.clear();
        }
        let recovered = self.state.breaker.succeeded(span);
        if was_out || recovered { Change::Recovered } else { Change::None }
    }

    fn failed(
        &self,
        class: CostClass,
        took: Duration,
        span: ExchangeSpan,
        at_once: bool,
    ) -> Change {
        self.count_failure(class, took, span.ended);
        // What fails because all of it fails says nothing of the class.
        let is_up = !at_once && self.state.breaker.state(span.ended) == BreakerState::Closed;
        let class_rests = is_up && self.state.failure_rates[class as usize].failed(span);
        let counts = at_once || !class.is_heavy();
        if counts && self.state.breaker.failed(span, at_once) {
            Change::Rests
        } else if class_rests {
            Change::ClassRests
        } else {
            Change::None
        }
    }

    fn count_failure(&self, class: CostClass, took: Duration, now: Stamp) {
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        let took = took.max(FAILURE_LATENCY);
        self.state.latency[class as usize].observe(took, now);
        // Else one that only ever failed would cost nothing in every other class.
        self.state.latency_overall.observe(took, now);
    }
}

/// Whether a verdict that says nothing of health still shows that the upstream
/// itself looked at the call. Words are needed: a gateway's page has none, and
/// neither has what we refused ourselves.
fn shows_that_it_works(verdict: &Verdict) -> bool {
    let has_words = match verdict.payload {
        Payload::Result(_) | Payload::Error(_) => true,
        Payload::None { .. } => false,
    };
    has_words && verdict.class.was_read()
}
