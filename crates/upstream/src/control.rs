//! Whether an upstream may take one more call: pauses, caps, rates and how many at once,
//! in series, and each with its own state.
//!
//! A refusal lowers the rate and never the number of calls at once; a slow answer lowers
//! that number and never the rate. Mechanisms and formulas are in `wellhead_limit`, the
//! bounds in [`Budget`]. Nothing waits here: a call that is not admitted gets the reason and the
//! time to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use wellhead_eth::{CostClass, MethodRow};
use wellhead_limit::lease::{LeaseShortage, LeasedCap, LeasedGate, LeasedLimit};
use wellhead_limit::{Cap, Caps, Gate, LearntLimit, Ledger, Pages, days_left_in_month};

use crate::bound::{Bound, LimitedBy};
use crate::budget::{Budget, BudgetRate};
use crate::client_places::{ClientHash, ClientPlaces};
use crate::demand::Demand;
use crate::provider::PushPrice;
use crate::rate::{ANSWER_WAIT, MeteredRate};
use crate::refusal::{NamedPauses, RateRefusal, Refusals};
use crate::stamp::Stamp;
use crate::study_hold::StudyHold;

const DAY: Duration = Duration::from_secs(86_400);
/// How often it is worth to look again for a place, when nothing is known of latencies.
const PLACE_WAIT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// One in this many of the calls at once that were learnt is kept for calls whose answers are
/// short: else a few clients that ask for megabytes hold all of them until the first megabytes have
/// come.
const SHORT_SHARE: u32 = 4;

/// One in this many of the calls that an upstream may be sent at once, where that was given, may be
/// a large answer that flows to its client.
const FLOWS_SHARE: u32 = 4;

/// What was spent, and what is bounded how, for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spending {
    /// Credits since the start.
    pub total: u64,
    /// Credits today and this month; `None` if days are not counted.
    pub day: Option<u64>,
    /// See `day`.
    pub month: Option<u64>,
    /// The caps of both.
    pub caps: Caps,
    /// The rate learnt from refusals, in credits per second: of the whole, or of the method that is
    /// bounded most where only methods are.
    pub learnt_rate: Option<f64>,
    /// The limit of calls at once that holds now.
    pub limit: Option<u32>,
}

/// The state of one upstream's bounds. Instants are times since the upstream's epoch.
#[derive(Debug)]
pub(crate) struct Controls {
    budget: Budget,
    is_bounded: bool,
    /// The given limit of calls at once and the caps, where replicas share them.
    places: Option<Arc<LeasedGate>>,
    caps: Option<Arc<LeasedCap>>,
    credits: Option<Arc<MeteredRate>>,
    calls: Option<Arc<MeteredRate>>,
    counts: Arc<ControlCounts>,
}

/// What is counted and learnt, whatever the budget.
#[derive(Debug, Default)]
struct ControlCounts {
    gate: Gate,
    /// Those inside whose answers are long.
    bulky: Gate,
    clients: ClientPlaces,
    /// Large answers that wait for their clients: no longer inside, and still under way there.
    parked: AtomicU32,
    /// Large answers that flow, whether they wait for their clients or for the upstream.
    flows: AtomicU32,
    /// Credits since the start.
    spent: AtomicU64,
    ledger: Ledger,
    refusals: Refusals,
    study: StudyHold,
    learnt_limit: LearntLimit<{ CostClass::ALL.len() }>,
    held: [AtomicU64; Bound::ALL.len()],
    /// Thousandths of a credit of pushed messages that are not in the ledger yet.
    pushed_thousandths: AtomicU64,
    demand: Demand,
}

/// What an exchange takes of the calls at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExchangePlace {
    /// Its answer is long: that of a batch, of a search for logs, of a trace.
    pub(crate) is_bulky: bool,
    /// Whose it is; `None` for wellhead's own calls.
    pub(crate) client: Option<ClientHash>,
}

/// What the calls of one exchange take from each bound.
#[derive(Debug, Clone, Copy)]
struct Price {
    billed: u64,
    throughput: f64,
    calls: f64,
}

impl Controls {
    pub(crate) fn new(budget: Budget) -> Self {
        let rate = |rate: Option<BudgetRate>| rate.map(|rate| Arc::new(MeteredRate::new(rate)));
        Self {
            is_bounded: budget.is_bounded(),
            places: None,
            caps: None,
            credits: rate(budget.credits),
            calls: rate(budget.calls),
            budget,
            counts: Arc::default(),
        }
    }

    /// The bounds of another budget, with the present counts. A rate that changes begins with a full bucket.
    pub(crate) fn changed(&self, budget: Budget) -> Self {
        // The epoch stays, too.
        let new = Self::new(Budget { epoch_unix: self.budget.epoch_unix, ..budget });
        let kept = |is_same: bool, rate: &Option<Arc<MeteredRate>>| {
            rate.clone().filter(|rate| is_same && !rate.is_shared())
        };
        Self {
            credits: kept(new.budget.credits == self.budget.credits, &self.credits).or(new.credits),
            calls: kept(new.budget.calls == self.budget.calls, &self.calls).or(new.calls),
            counts: Arc::clone(&self.counts),
            ..new
        }
    }

    /// Makes the bounds of the budget those of all replicas together: `share` gets each, with a word for it.
    /// What is learnt stays as it is.
    pub(crate) fn share(&mut self, mut share: impl FnMut(&'static str, LeasedLimit)) {
        let mut shared = |rate: Option<BudgetRate>, word| {
            rate.map(|rate| Arc::new(MeteredRate::shared(rate, |limit| share(word, limit))))
        };
        self.credits = shared(self.budget.credits, "credits");
        self.calls = shared(self.budget.calls, "calls");
        self.caps = self.is_capped().then(|| {
            let cap = Arc::new(LeasedCap::new(self.budget.caps));
            share("caps", LeasedLimit::Cap(Arc::clone(&cap)));
            cap
        });
        self.places = self.budget.in_flight.map(|max| {
            let gate = Arc::new(LeasedGate::new(max));
            share("in_flight", LeasedLimit::Gate(Arc::clone(&gate)));
            gate
        });
    }

    /// Lets the calls of `rows` go in one exchange, or says what keeps them. `latency` is what an
    /// answer is expected to take.
    pub(crate) fn admit<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow> + Clone,
        place: ExchangePlace,
        latency: impl FnOnce() -> Option<Duration>,
        now: Duration,
    ) -> Result<(), LimitedBy> {
        if let Some(held) = self.paused_for(rows.clone(), || now) {
            return Err(held);
        }
        let (limit, bound) = self.limit(now);
        if let Err(bound) = self.enter(limit, bound, place, now) {
            let each = latency().map(|latency| latency / limit.max(1)).unwrap_or_default();
            let wait = each.clamp(PLACE_WAIT.0, PLACE_WAIT.1);
            let is_known = bound == Bound::InFlight || self.counts.learnt_limit.is_settled();
            let pace = if is_known { each } else { Duration::ZERO };
            return Err(LimitedBy { bound, wait, pace });
        }
        let paid = self.pay(rows, now);
        if paid.is_err() {
            self.ended(place);
        }
        paid
    }

    /// Takes a place, or says which bound has none left.
    fn enter(
        &self,
        limit: u32,
        bound: Bound,
        place: ExchangePlace,
        now: Duration,
    ) -> Result<(), Bound> {
        if place.client.is_some_and(|client| !self.counts.clients.enter(client, limit, now)) {
            return Err(Bound::ClientShare);
        }
        let entered = self.enter_shared(limit, bound, place.is_bulky, now);
        if entered.is_err() {
            self.leave_client(place);
        }
        entered
    }

    fn leave_client(&self, place: ExchangePlace) {
        if let Some(client) = place.client {
            self.counts.clients.leave(client);
        }
    }

    /// Takes a place of those that replicas share, and of those of this process.
    fn enter_shared(
        &self,
        limit: u32,
        bound: Bound,
        is_bulky: bool,
        now: Duration,
    ) -> Result<(), Bound> {
        if self.places.as_ref().is_some_and(|places| places.enter(now).is_err()) {
            return Err(Bound::InFlight);
        }
        let entered = self.enter_here(limit, bound, is_bulky);
        if entered.is_err() {
            self.leave_place();
        }
        entered
    }

    fn leave_place(&self) {
        if let Some(places) = &self.places {
            places.leave();
        }
    }

    /// Takes a place of those that are counted by this process alone.
    fn enter_here(&self, limit: u32, bound: Bound, is_bulky: bool) -> Result<(), Bound> {
        if is_bulky {
            // A limit that was given is the operator's to use up.
            let share = match bound {
                Bound::LearntLimit => limit - limit / SHORT_SHARE,
                _ => u32::MAX,
            };
            if !self.counts.bulky.enter(share) {
                return Err(Bound::BulkyShare);
            }
        }
        if self.counts.gate.enter(limit) {
            return Ok(());
        }
        if is_bulky {
            self.counts.bulky.leave();
        }
        Err(bound)
    }

    /// Admits one of wellhead's own calls, which limits do not delay. It is charged as any other.
    pub(crate) fn begin(&self, row: &MethodRow, now: Duration) {
        if let Some(places) = &self.places {
            places.enter_anyway();
        }
        self.counts.gate.enter_anyway();
        self.charge(row, now);
    }

    /// Charges a call that limits do not delay and that takes no permit.
    pub(crate) fn charge(&self, row: &MethodRow, now: Duration) {
        let price = self.price(std::iter::once(row));
        self.rates(price).for_each(|(rate, credits)| rate.charge(credits, now));
        self.charge_caps(price.billed, now);
        self.spend(std::iter::once(row), price, now);
    }

    /// Charges a call of a study. It takes of caps and of windows, which the provider counts down as well. It takes of no
    /// bucket: those are emptied once, when the hold ends, and calls that the provider refused do not make them owe.
    pub(crate) fn charge_study(&self, row: &MethodRow, now: Duration) {
        let price = self.price(std::iter::once(row));
        let counted = self.rates(price).filter(|(rate, _)| rate.is_counted());
        counted.for_each(|(rate, credits)| rate.charge(credits, now));
        self.charge_caps(price.billed, now);
        self.note_spent(price.billed, now);
    }

    /// Holds clients' calls for `time`.
    pub(crate) fn hold_for_study(&self, time: Duration, now: Duration) {
        self.counts.study.hold(time, Stamp::at(now));
    }

    /// Ends that hold, with empty buckets: the study has left none of what they stand for.
    pub(crate) fn release_from_study(&self, now: Duration) {
        if !self.counts.study.release(Stamp::at(now)) {
            return;
        }
        [&self.credits, &self.calls].into_iter().flatten().for_each(|rate| rate.empty(now));
    }

    /// The longest pause, or hold of a study, that keeps a call of one of `rows`.
    pub(crate) fn paused_for<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow>,
        now: impl Fn() -> Duration,
    ) -> Option<LimitedBy> {
        let refused = self.counts.refusals.pause_for(rows, &now);
        let Some(wait) = self.counts.study.left(&now) else { return refused };
        let study = LimitedBy { bound: Bound::Study, wait, pace: Duration::ZERO };
        Some(refused.filter(|refused| refused.wait > wait).unwrap_or(study))
    }

    /// Pays for a pushed message and tells the whole credits that went to the ledger: what a
    /// message costs beyond them is kept for the next one.
    pub(crate) fn charge_push(&self, bytes: usize, now: Duration) -> u64 {
        let Some(price) = self.budget.push else { return 0 };
        let thousandths = price.thousandths(bytes);
        let before = self.counts.pushed_thousandths.fetch_add(thousandths, Ordering::Relaxed);
        let credits = before.saturating_add(thousandths) / 1_000 - before / 1_000;
        self.charge_caps(credits, now);
        self.note_spent(credits, now);
        credits
    }

    pub(crate) fn push_price(&self) -> Option<PushPrice> {
        self.budget.push
    }

    /// Notes that an exchange ended.
    pub(crate) fn ended(&self, place: ExchangePlace) {
        self.leave_client(place);
        self.leave_place();
        self.leave_here(place.is_bulky);
    }

    fn leave_here(&self, is_bulky: bool) {
        self.counts.gate.leave();
        if is_bulky {
            self.counts.bulky.leave();
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.counts.gate.inside()
    }

    /// Notes that the rest of an answer waits for its client: the upstream is not at work for it,
    /// so it takes no place of the limit that is learnt from delay. It keeps one of the limit that
    /// was given, as the upstream may count what was not read yet.
    pub(crate) fn parked(&self, is_bulky: bool) {
        self.counts.parked.fetch_add(1, Ordering::Relaxed);
        self.leave_here(is_bulky);
    }

    /// Notes that the client asked for more.
    pub(crate) fn resumed(&self, is_bulky: bool) {
        self.counts.gate.enter_anyway();
        if is_bulky {
            self.counts.bulky.enter_anyway();
        }
        self.counts.parked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that an answer was given up while it waited for its client.
    pub(crate) fn left_parked(&self, place: ExchangePlace) {
        self.leave_client(place);
        self.leave_place();
        self.counts.parked.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn parked_now(&self) -> u32 {
        self.counts.parked.load(Ordering::Relaxed)
    }

    /// Counts one more answer that flows, if it may: where a limit was given, a quarter of it do,
    /// so that no client can hold all of it. One that its client takes counts as well: it waits
    /// for the client again a moment later.
    pub(crate) fn begin_flow(&self) -> bool {
        let given = self.places.as_ref().map(|places| places.fair_share());
        let most = match given.or(self.budget.in_flight) {
            None => u32::MAX,
            Some(given) if given < 2 => 0,
            Some(given) => (given / FLOWS_SHARE).max(1),
        };
        let one_more = |flows| (flows < most).then(|| flows + 1);
        self.counts.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Notes that an answer flows no longer; to be called once for each that began.
    pub(crate) fn end_flow(&self) {
        self.counts.flows.fetch_sub(1, Ordering::Relaxed);
    }

    /// When calls of clients come.
    pub(crate) fn demand(&self) -> &Demand {
        &self.counts.demand
    }

    /// The pauses and rates that refusals taught.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.counts.refusals
    }

    /// Learns from a refusal, and pauses; returns the pauses with a named time that began. `asked` is the pause that the upstream asked for,
    /// `usual` the one that is made without that, where rates are not learnt, or a study explains the refusal.
    pub(crate) fn refused(
        &self,
        row: &MethodRow,
        began: Duration,
        now: Duration,
        asked: Option<Duration>,
        usual: Duration,
    ) -> NamedPauses {
        let credits = self.throughput(row);
        let teaches_nothing =
            self.budget.fixed || self.counts.study.explains_refusals(Stamp::at(now));
        let usual = teaches_nothing.then_some(usual);
        self.counts.refusals.refused(row, RateRefusal { credits, began, now, asked, usual })
    }

    /// Learns from an answer to a single call.
    pub(crate) fn answered(&self, class: CostClass, began: Duration, now: Duration) {
        if !self.budget.fixed {
            self.counts.learnt_limit.answered(
                class as usize,
                began,
                now,
                self.counts.gate.inside(),
            );
        }
    }

    pub(crate) fn billed(&self, row: &MethodRow) -> u64 {
        self.price(std::iter::once(row)).billed
    }

    /// Whether any rate may hold a call: one that was told, or was learnt once.
    pub(crate) fn has_rate(&self) -> bool {
        self.is_bounded || self.counts.refusals.has_rate()
    }

    /// How long the rates hold a call of this method.
    pub(crate) fn rate_wait(&self, row: &MethodRow, now: Duration) -> Duration {
        let learnt = self.counts.refusals.wait(row, self.throughput(row), now);
        if !self.is_bounded {
            return learnt;
        }
        let rates = self.rates(self.price(std::iter::once(row)));
        rates.map(|(rate, credits)| rate.wait(credits, now)).fold(learnt, Duration::max)
    }

    /// Whether there is a cap at all.
    pub(crate) fn is_capped(&self) -> bool {
        self.budget.caps != Caps::default()
    }

    /// The cap that was reached.
    pub(crate) fn cap_reached(&self, now: Duration) -> Option<Cap> {
        if !self.is_capped() {
            return None;
        }
        if let Some(shared) = &self.caps {
            return shared.reached(1.0, self.wall(now));
        }
        self.counts.ledger.reached(self.budget.caps, self.today(now))
    }

    pub(crate) fn may_overspend(&self) -> bool {
        self.budget.overspend
    }

    pub(crate) fn count_held(&self, bound: Bound) {
        self.counts.held[bound as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that were held by this bound.
    pub(crate) fn held(&self, bound: Bound) -> u64 {
        self.counts.held[bound as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn spending(&self, now: Duration) -> Spending {
        let today = self.today(now);
        let dated = |credits: u64| self.is_bounded.then_some(credits);
        Spending {
            total: self.counts.spent.load(Ordering::Relaxed),
            day: dated(self.counts.ledger.on_day(today)),
            month: dated(self.counts.ledger.in_month(today)),
            caps: self.budget.caps,
            learnt_rate: self.counts.refusals.rate(now),
            limit: Some(self.limit(now).0).filter(|limit| *limit < u32::MAX),
        }
    }

    /// The spending, to be kept; `None` if days are not counted.
    pub(crate) fn pages(&self) -> Option<Pages> {
        self.is_bounded.then(|| self.counts.ledger.pages())
    }

    /// Adds what was spent before the start.
    pub(crate) fn restore(&self, pages: Pages, now: Duration) {
        if self.is_bounded {
            self.counts.ledger.restore(pages, self.today(now));
        }
    }

    /// The bound on calls at once that is tighter.
    fn limit(&self, now: Duration) -> (u32, Bound) {
        let given = self.places.as_ref().map(|places| places.places(now));
        let given = given.or(self.budget.in_flight);
        let own = given.map_or(u32::MAX, |given| given.saturating_sub(self.parked_now()));
        if self.budget.fixed {
            return (own, Bound::InFlight);
        }
        let learnt = self.counts.learnt_limit.limit();
        if learnt < own { (learnt, Bound::LearntLimit) } else { (own, Bound::InFlight) }
    }

    fn price<'a>(&self, rows: impl Iterator<Item = &'a MethodRow>) -> Price {
        let mut price = Price { billed: 0, throughput: 0.0, calls: 0.0 };
        for row in rows {
            let tariff = self.budget.tariff.as_ref();
            price.billed += tariff.map_or(1, |tariff| u64::from(tariff.billed(row)));
            price.throughput += self.throughput(row);
            price.calls += 1.0;
        }
        price
    }

    /// What a call of `row` counts against rates.
    fn throughput(&self, row: &MethodRow) -> f64 {
        let tariff = self.budget.tariff.as_ref();
        tariff.map_or(1.0, |tariff| f64::from(tariff.throughput(row)))
    }

    /// Takes from all bounds or from none.
    fn pay<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow> + Clone,
        now: Duration,
    ) -> Result<(), LimitedBy> {
        let price = self.price(rows.clone());
        if self.is_bounded {
            self.take_of_caps(price.billed, now)?;
            if let Err(held) = self.take_of_rates(price, now) {
                self.give_back_to_caps(price.billed);
                return Err(held);
            }
        }
        let throughput = |row: &MethodRow| self.throughput(row);
        if let Err(held) = self.counts.refusals.take(&rows, throughput, now) {
            self.rates(price).for_each(|(rate, credits)| rate.give_back(credits));
            self.give_back_to_caps(price.billed);
            return Err(held);
        }
        self.spend(rows, price, now);
        Ok(())
    }

    /// What is left of the caps has to be enough for all of it, unless it may be overspent.
    fn take_of_caps(&self, credits: u64, now: Duration) -> Result<(), LimitedBy> {
        if !self.is_capped() {
            return Ok(());
        }
        let Some(shared) = &self.caps else {
            let passed = self.counts.ledger.passed(self.budget.caps, credits, self.today(now));
            let passed = passed.filter(|_| !self.budget.overspend);
            return passed.map_or(Ok(()), |cap| Err(self.capped(cap, now)));
        };
        if self.budget.overspend {
            shared.charge(credits as f64, now);
            return Ok(());
        }
        shared.take(credits as f64, now, self.wall(now)).map_err(|shortage| {
            let only = if self.budget.caps.day.is_some() { Cap::Day } else { Cap::Month };
            let held =
                self.capped(shared.reached(credits as f64, self.wall(now)).unwrap_or(only), now);
            let wait = match shortage {
                LeaseShortage::Refused(wait) => wait.min(held.wait),
                LeaseShortage::Unanswered(wait) => wait.min(ANSWER_WAIT),
            };
            LimitedBy { wait, ..held }
        })
    }

    fn give_back_to_caps(&self, credits: u64) {
        // What was charged to be overspent is given back as well.
        if let Some(shared) = &self.caps {
            shared.give_back(credits as f64);
        }
    }

    /// Counts credits that were spent regardless against the caps that replicas share.
    fn charge_caps(&self, credits: u64, now: Duration) {
        if let Some(shared) = &self.caps {
            shared.charge(credits as f64, now);
        }
    }

    /// Takes from both rates or from neither.
    fn take_of_rates(&self, price: Price, now: Duration) -> Result<(), LimitedBy> {
        if let Some(rate) = &self.credits {
            rate.take(price.throughput, now, Bound::Credits)?;
        }
        let Some(rate) = &self.calls else { return Ok(()) };
        rate.take(price.calls, now, Bound::Calls).inspect_err(|_| {
            if let Some(rate) = &self.credits {
                rate.give_back(price.throughput);
            }
        })
    }

    /// The rates, and what an exchange takes of each.
    fn rates(&self, price: Price) -> impl Iterator<Item = (&MeteredRate, f64)> {
        let rates = [(&self.credits, price.throughput), (&self.calls, price.calls)];
        rates.into_iter().filter_map(|(rate, credits)| Some((rate.as_deref()?, credits)))
    }

    /// Counts what was spent since the start, and by days where the settings have a budget.
    fn note_spent(&self, credits: u64, now: Duration) {
        self.counts.spent.fetch_add(credits, Ordering::Relaxed);
        if self.is_bounded {
            self.counts.ledger.spend(credits, self.today(now));
        }
    }

    fn spend<'a>(&self, rows: impl Iterator<Item = &'a MethodRow>, price: Price, now: Duration) {
        self.note_spent(price.billed, now);
        if !self.budget.fixed {
            self.counts.refusals.sent(rows, price.throughput, |row| self.throughput(row), now);
        }
    }

    fn capped(&self, cap: Cap, now: Duration) -> LimitedBy {
        let of_day = self.wall(now).as_secs() % DAY.as_secs();
        let tomorrow = Duration::from_secs(DAY.as_secs() - of_day);
        let (bound, wait) = match cap {
            Cap::Day => (Bound::Day, tomorrow),
            Cap::Month => {
                let days = days_left_in_month(self.today(now));
                (Bound::Month, tomorrow + DAY * days.saturating_sub(1))
            }
        };
        LimitedBy { bound, wait, pace: Duration::ZERO }
    }

    fn wall(&self, now: Duration) -> Duration {
        Duration::from_secs(self.budget.epoch_unix).saturating_add(now)
    }

    fn today(&self, now: Duration) -> u32 {
        u32::try_from(self.wall(now).as_secs() / DAY.as_secs()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
