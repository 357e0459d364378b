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
use wellhead_limit::lease::{LeaseShortage, LeasedBucket, LeasedCap, LeasedGate, LeasedLimit};
use wellhead_limit::{Cap, Caps, Gate, LearntLimit, Ledger, Pages, days_left_in_month};

use crate::bound::{Bound, LimitedBy};
use crate::budget::{Budget, BudgetRate};
use crate::client_places::{ClientHash, ClientPlaces};
use crate::demand::Demand;
use crate::provider::PushPrice;
use crate::rate::{ANSWER_WAIT, RateState};
use crate::refusal::{NamedPauses, RateRefusal, Refusals};

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
    gate: Gate,
    /// Those inside whose answers are long.
    bulky: Gate,
    clients: ClientPlaces,
    /// Large answers that wait for their clients: no longer inside, and still under way there.
    parked: AtomicU32,
    /// Large answers that flow, whether they wait for their clients or for the upstream.
    flows: AtomicU32,
    /// The given limit of calls at once and the caps, where replicas share them.
    places: Option<Arc<LeasedGate>>,
    caps: Option<Arc<LeasedCap>>,
    credits: RateState,
    calls: RateState,
    ledger: Ledger,
    refusals: Refusals,
    learnt_limit: LearntLimit<{ CostClass::ALL.len() }>,
    held: [AtomicU64; Bound::ALL.len()],
    /// Thousandths of a credit of pushed messages that are not in the ledger yet.
    pushed_thousandths: AtomicU64,
    pub(crate) demand: Demand,
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
        Self {
            is_bounded: budget.is_bounded(),
            budget,
            gate: Gate::default(),
            bulky: Gate::default(),
            clients: ClientPlaces::default(),
            parked: AtomicU32::new(0),
            flows: AtomicU32::new(0),
            places: None,
            caps: None,
            credits: RateState::default(),
            calls: RateState::default(),
            ledger: Ledger::default(),
            refusals: Refusals::default(),
            learnt_limit: LearntLimit::default(),
            held: std::array::from_fn(|_| AtomicU64::new(0)),
            pushed_thousandths: AtomicU64::new(0),
            demand: Demand::default(),
        }
    }

    /// Makes the bounds of the budget those of all replicas together: `share` gets each, with a word for it.
    /// Rates that are counted in windows, and what is learnt, stay as they are.
    pub(crate) fn share(&mut self, mut share: impl FnMut(&'static str, LeasedLimit)) {
        let mut shared = |rate: Option<BudgetRate>, word| {
            let Some(BudgetRate::Paced(pace)) = rate else { return None };
            let bucket = Arc::new(LeasedBucket::new(pace.per_second(), pace.burst()));
            share(word, LeasedLimit::Bucket(Arc::clone(&bucket)));
            Some(bucket)
        };
        self.credits.shared = shared(self.budget.credits, "credits");
        self.calls.shared = shared(self.budget.calls, "calls");
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
        if let Some(held) = self.refusals.pause_for(rows.clone(), || now) {
            return Err(held);
        }
        let (limit, bound) = self.limit(now);
        if let Err(bound) = self.enter(limit, bound, place, now) {
            let each = latency().map(|latency| latency / limit.max(1)).unwrap_or_default();
            let wait = each.clamp(PLACE_WAIT.0, PLACE_WAIT.1);
            let is_known = bound == Bound::InFlight || self.learnt_limit.is_settled();
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
        if place.client.is_some_and(|client| !self.clients.enter(client, limit, now)) {
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
            self.clients.leave(client);
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
            if !self.bulky.enter(share) {
                return Err(Bound::BulkyShare);
            }
        }
        if self.gate.enter(limit) {
            return Ok(());
        }
        if is_bulky {
            self.bulky.leave();
        }
        Err(bound)
    }

    /// Admits one of wellhead's own calls, which limits do not delay. It is charged as any other.
    pub(crate) fn begin(&self, row: &MethodRow, now: Duration) {
        if let Some(places) = &self.places {
            places.enter_anyway();
        }
        self.gate.enter_anyway();
        self.charge(row, now);
    }

    /// Charges a call that limits do not delay and that takes no permit.
    pub(crate) fn charge(&self, row: &MethodRow, now: Duration) {
        let price = self.price(std::iter::once(row));
        if let Some(BudgetRate::Paced(pace)) = self.budget.credits {
            self.credits.charge(pace, price.throughput, now);
        }
        if let Some(BudgetRate::Paced(pace)) = self.budget.calls {
            self.calls.charge(pace, price.calls, now);
        }
        self.charge_caps(price.billed, now);
        self.spend(std::iter::once(row), price, now);
    }

    /// Pays for a pushed message and tells the whole credits that went to the ledger: what a
    /// message costs beyond them is kept for the next one.
    pub(crate) fn charge_push(&self, bytes: usize, now: Duration) -> u64 {
        let Some(price) = self.budget.push else { return 0 };
        let thousandths = price.thousandths(bytes);
        let before = self.pushed_thousandths.fetch_add(thousandths, Ordering::Relaxed);
        let credits = before.saturating_add(thousandths) / 1_000 - before / 1_000;
        self.charge_caps(credits, now);
        match self.is_bounded {
            true => self.ledger.spend(credits, self.today(now)),
            false => self.ledger.spend_undated(credits),
        }
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
        self.gate.leave();
        if is_bulky {
            self.bulky.leave();
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.gate.inside()
    }

    /// Notes that the rest of an answer waits for its client: the upstream is not at work for it,
    /// so it takes no place of the limit that is learnt from delay. It keeps one of the limit that
    /// was given, as the upstream may count what was not read yet.
    pub(crate) fn parked(&self, is_bulky: bool) {
        self.parked.fetch_add(1, Ordering::Relaxed);
        self.leave_here(is_bulky);
    }

    /// Notes that the client asked for more.
    pub(crate) fn resumed(&self, is_bulky: bool) {
        self.gate.enter_anyway();
        if is_bulky {
            self.bulky.enter_anyway();
        }
        self.parked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that an answer was given up while it waited for its client.
    pub(crate) fn left_parked(&self, place: ExchangePlace) {
        self.leave_client(place);
        self.leave_place();
        self.parked.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn parked_now(&self) -> u32 {
        self.parked.load(Ordering::Relaxed)
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
        self.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Notes that an answer flows no longer; to be called once for each that began.
    pub(crate) fn end_flow(&self) {
        self.flows.fetch_sub(1, Ordering::Relaxed);
    }

    /// The pauses and rates that refusals taught.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Learns from a refusal, and pauses; returns the pauses with a named time that began. `asked` is the pause that the upstream asked for,
    /// `usual` the one that is made without that, where rates are not learnt.
    pub(crate) fn refused(
        &self,
        row: &MethodRow,
        began: Duration,
        now: Duration,
        asked: Option<Duration>,
        usual: Duration,
    ) -> NamedPauses {
        let credits = self.throughput(row);
        let usual = self.budget.fixed.then_some(usual);
        self.refusals.refused(row, RateRefusal { credits, began, now, asked, usual })
    }

    /// Learns from an answer to a single call.
    pub(crate) fn answered(&self, class: CostClass, began: Duration, now: Duration) {
        if !self.budget.fixed {
            self.learnt_limit.answered(class as usize, began, now, self.gate.inside());
        }
    }

    pub(crate) fn billed(&self, row: &MethodRow) -> u64 {
        self.price(std::iter::once(row)).billed
    }

    /// Whether any rate may hold a call: one that was told, or was learnt once.
    pub(crate) fn has_rate(&self) -> bool {
        self.is_bounded || self.refusals.has_rate()
    }

    /// How long the rates hold a call of this method.
    pub(crate) fn rate_wait(&self, row: &MethodRow, now: Duration) -> Duration {
        let learnt = self.refusals.wait(row, self.throughput(row), now);
        if !self.is_bounded {
            return learnt;
        }
        let price = self.price(std::iter::once(row));
        let of = |rate: Option<BudgetRate>, state: &RateState, credits: f64| {
            rate.map_or(Duration::ZERO, |rate| state.wait(rate, credits, now))
        };
        of(self.budget.credits, &self.credits, price.throughput)
            .max(of(self.budget.calls, &self.calls, price.calls))
            .max(learnt)
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
        self.ledger.reached(self.budget.caps, self.today(now))
    }

    pub(crate) fn may_overspend(&self) -> bool {
        self.budget.overspend
    }

    pub(crate) fn count_held(&self, bound: Bound) {
        self.held[bound as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that were held by this bound.
    pub(crate) fn held(&self, bound: Bound) -> u64 {
        self.held[bound as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn spending(&self, now: Duration) -> Spending {
        let today = self.today(now);
        let dated = |credits: u64| self.is_bounded.then_some(credits);
        Spending {
            total: self.ledger.total(),
            day: dated(self.ledger.on_day(today)),
            month: dated(self.ledger.in_month(today)),
            caps: self.budget.caps,
            learnt_rate: self.refusals.rate(now),
            limit: Some(self.limit(now).0).filter(|limit| *limit < u32::MAX),
        }
    }

    /// The spending, to be kept; `None` if days are not counted.
    pub(crate) fn pages(&self) -> Option<Pages> {
        self.is_bounded.then(|| self.ledger.pages())
    }

    /// Adds what was spent before the start.
    pub(crate) fn restore(&self, pages: Pages, now: Duration) {
        if self.is_bounded {
            self.ledger.restore(pages, self.today(now));
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
        let learnt = self.learnt_limit.limit();
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
        if let Err(held) = self.refusals.take(&rows, throughput, now) {
            self.give_back_credits(price);
            if let Some(rate) = self.budget.calls {
                self.calls.give_back(rate, price.calls);
            }
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
            let passed = self.ledger.passed(self.budget.caps, credits, self.today(now));
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
        if let Some(rate) = self.budget.credits {
            self.credits.take(rate, price.throughput, now, Bound::Credits)?;
        }
        if let Some(rate) = self.budget.calls
            && let Err(held) = self.calls.take(rate, price.calls, now, Bound::Calls)
        {
            self.give_back_credits(price);
            return Err(held);
        }
        Ok(())
    }

    fn give_back_credits(&self, price: Price) {
        if let Some(rate) = self.budget.credits {
            self.credits.give_back(rate, price.throughput);
        }
    }

    fn spend<'a>(&self, rows: impl Iterator<Item = &'a MethodRow>, price: Price, now: Duration) {
        if self.is_bounded {
            self.ledger.spend(price.billed, self.today(now));
        } else {
            self.ledger.spend_undated(price.billed);
        }
        if !self.budget.fixed {
            self.refusals.sent(rows, price.throughput, |row| self.throughput(row), now);
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
mod tests {
    use wellhead_eth::MethodTable;
    use wellhead_limit::lease::{GateGrant, LeaseGrant};

    use super::*;
    use crate::budget::BudgetTerms;
    use crate::provider::Provider;

    /// 20 November 2026, 23:00 UTC.
    const LATE: u64 = 20_777 * 86_400 + 23 * 3_600;

    fn controls(provider: &str, terms: &BudgetTerms<'_>) -> Controls {
        Controls::new(Budget::new(Provider::named(provider), terms, LATE))
    }

    /// Plays `at_ms:method[*calls]` and compares: `ok`, or the bound and the wait.
    fn check(controls: &Controls, script: &str, expected: &str) {
        let told = |step: &str| {
            let (at, method) = step.split_once(':').expect("at:method");
            let (method, calls) = method.split_once('*').unwrap_or((method, "1"));
            let at = Duration::from_millis(at.parse().expect("ms"));
            let row = MethodTable::standard().row(method);
            let calls = calls.parse().expect("a number");
            let rows = std::iter::repeat_n(row, calls);
            match controls.admit(rows, place(calls > 1 || row.class.is_heavy()), || None, at) {
                Ok(()) => "ok".to_owned(),
                Err(held) => format!("{}/{}ms", held.bound.word(), held.wait.as_millis()),
            }
        };
        let found: Vec<_> = script.split_whitespace().map(told).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    fn place(is_bulky: bool) -> ExchangePlace {
        ExchangePlace { is_bulky, client: None }
    }

    fn terms() -> BudgetTerms<'static> {
        BudgetTerms { learn: true, ..BudgetTerms::default() }
    }

    fn paused(controls: &Controls, method: &str, at: Duration) -> Option<Duration> {
        let row = MethodTable::standard().row(method);
        controls.refusals().pause_for(std::iter::once(row), || at).map(|held| held.wait)
    }

    #[test]
    fn without_bounds_all_go() {
        let controls = controls("", &terms());
        check(&controls, "0:eth_call 0:eth_call*1000 0:eth_getLogs", "ok ok ok");
        assert_eq!(controls.spending(Duration::ZERO).total, 1_002);
        assert_eq!(controls.spending(Duration::ZERO).day, None);
    }

    #[test]
    fn a_rate_that_replicas_share_is_asked_for_and_held_like_any_other() {
        let terms = BudgetTerms { calls_per_second: Some(100), calls_burst: Some(10), ..terms() };
        let mut controls = controls("", &terms);
        let mut shared = Vec::new();
        controls.share(|word, limit| shared.push((word, limit)));
        let [("calls", LeasedLimit::Bucket(bucket))] = &shared[..] else {
            panic!("one limit: {shared:?}")
        };
        // No store serves it: the whole is its own, 95 a second and 9 at once.
        check(&controls, "0:eth_call*9 0:eth_call", "ok calls/10ms");
        bucket.note_replicas(3);
        bucket.note_back();
        check(&controls, "1:eth_call 1:eth_call", "ok calls/6ms");
        let ms = Duration::from_millis;
        let ask = bucket.ask(ms(2)).expect("it owes one, and wants another");
        let grant = |granted, wait| LeaseGrant { granted, wait: ms(wait) };
        bucket.grant(grant(ask.want, 0), ms(3));
        check(&controls, "3:eth_call", "ok");
        while controls.calls.take(terms_rate(&controls), 1.0, ms(4), Bound::Calls).is_ok() {}
        bucket.ask(ms(5)).expect("it wants more");
        bucket.grant(grant(0, 300), ms(6));
        check(&controls, "7:eth_call", "calls/299ms");
        let row = MethodTable::standard().row("eth_call");
        assert_eq!(controls.rate_wait(row, ms(7)), ms(299));
    }

    #[test]
    fn caps_that_replicas_share_end_where_the_store_says() {
        let terms = BudgetTerms { credits_per_day: Some(100), ..terms() };
        let mut controls = controls("", &terms);
        let mut shared = Vec::new();
        controls.share(|word, limit| shared.push((word, limit)));
        let [("caps", LeasedLimit::Cap(cap))] = &shared[..] else {
            panic!("one limit: {shared:?}")
        };
        cap.note_replicas(3);
        cap.note_back();
        let (ms, unix) = (Duration::from_millis, Duration::from_secs(LATE));
        check(&controls, "0:eth_call", "day/6ms");
        let ask = cap.ask(ms(1), unix).expect("a call waits for it");
        cap.grant(ask, 2_000, (50_000, u64::MAX), ms(2));
        check(&controls, "2:eth_call 2:eth_call", "ok ok");
        assert_eq!(controls.cap_reached(ms(2)), None);
        controls.begin(MethodTable::standard().row("eth_chainId"), ms(2));
        // The others have spent the rest.
        check(&controls, "3:eth_call", "day/6ms");
        let ask = cap.ask(ms(3), unix).expect("one was charged, another waits");
        cap.grant(ask, 0, (0, u64::MAX), ms(4));
        check(&controls, "5:eth_call", "day/3600000ms");
        assert_eq!(controls.cap_reached(ms(5)), Some(Cap::Day));
        assert_eq!(controls.cap_reached(Duration::from_secs(3_600)), None, "tomorrow");
    }

    #[test]
    fn places_that_replicas_share_are_held_by_parked_answers_too() {
        let terms = BudgetTerms { in_flight: Some(12), ..terms() };
        let mut controls = controls("", &terms);
        let mut shared = Vec::new();
        controls.share(|word, limit| shared.push((word, limit)));
        let [("in_flight", LeasedLimit::Gate(places))] = &shared[..] else {
            panic!("one limit: {shared:?}")
        };
        places.note_replicas(3);
        places.note_back();
        // Two are its own; six more are divided by the store.
        check(&controls, "0:eth_call 0:eth_call 0:eth_call", "ok ok in_flight/1ms");
        let ask = places.ask(Duration::ZERO).expect("more are wanted");
        places.grant(ask, GateGrant { places: 1 }, Duration::ZERO);
        check(&controls, "1:eth_call 1:eth_call", "ok in_flight/1ms");
        controls.parked(false);
        assert_eq!((controls.in_flight(), places.inside()), (2, 3));
        check(&controls, "2:eth_call", "in_flight/1ms");
        controls.left_parked(place(false));
        controls.ended(place(false));
        assert_eq!((controls.in_flight(), places.inside()), (1, 1));
        controls.begin(MethodTable::standard().row("eth_chainId"), Duration::ZERO);
        assert_eq!((controls.in_flight(), places.inside()), (2, 2));
        // A quarter of its fair share of four.
        assert!(controls.begin_flow() && !controls.begin_flow());
    }

    fn terms_rate(controls: &Controls) -> BudgetRate {
        controls.budget.calls.expect("a rate of calls")
    }

    #[test]
    fn calls_at_once() {
        let controls = controls("", &BudgetTerms { in_flight: Some(2), ..terms() });
        check(&controls, "0:eth_call 0:eth_call 0:eth_call", "ok ok in_flight/1ms");
        controls.ended(place(false));
        check(&controls, "0:eth_call 0:eth_call", "ok in_flight/1ms");
        // Our own are counted but not held.
        controls.begin(MethodTable::standard().row("eth_chainId"), Duration::ZERO);
        assert_eq!(controls.in_flight(), 3);
    }

    #[test]
    fn one_of_several_clients_leaves_places_to_the_others() {
        let controls = controls("", &BudgetTerms { in_flight: Some(4), ..terms() });
        let row = MethodTable::standard().row("eth_call");
        let of = |client| ExchangePlace { is_bulky: false, client: Some(ClientHash(client)) };
        let enter = |client| {
            let rows = std::iter::once(row);
            let admitted = controls.admit(rows, of(client), || None, Duration::ZERO);
            admitted.map_err(|held| held.bound)
        };
        assert_eq!([enter(1), enter(2), enter(2), enter(2)], [Ok(()); 4]);
        assert_eq!(enter(2), Err(Bound::ClientShare));
        assert_eq!(enter(1), Err(Bound::InFlight));
        controls.ended(of(1));
        assert_eq!((enter(2), enter(1)), (Err(Bound::ClientShare), Ok(())));
        // Parked, it still has a place of the given limit and of its client's share.
        controls.parked(false);
        assert_eq!(enter(2), Err(Bound::ClientShare));
        controls.left_parked(of(2));
        assert_eq!((enter(2), enter(2)), (Ok(()), Err(Bound::ClientShare)));
    }

    #[test]
    fn an_answer_that_waits_for_its_client_has_a_place_of_the_given_limit_alone() {
        let controls = controls("", &BudgetTerms { in_flight: Some(8), ..terms() });
        check(&controls, "0:eth_call*1 0:eth_call*1", "ok ok");
        controls.parked(false);
        controls.parked(false);
        assert_eq!(controls.in_flight(), 0);
        check(&controls, "0:a 0:a 0:a 0:a 0:a 0:a 0:a", "ok ok ok ok ok ok in_flight/1ms");
        controls.resumed(false);
        controls.left_parked(place(false));
        assert_eq!(controls.in_flight(), 7);
        check(&controls, "0:a 0:a", "ok in_flight/1ms");
    }

    #[test]
    fn a_quarter_of_the_given_limit_flows_however_many_wait_for_their_clients() {
        for (given, most) in [(None, 99), (Some(1), 0), (Some(2), 1), (Some(8), 2), (Some(9), 2)] {
            let controls = controls("", &BudgetTerms { in_flight: given, ..terms() });
            let flow = |_: &u32| {
                let began = controls.begin_flow();
                if began {
                    controls.begin(MethodTable::standard().row("eth_getLogs"), Duration::ZERO);
                    controls.parked(false);
                    controls.resumed(false);
                }
                began
            };
            assert_eq!((0..99).filter(flow).count(), most, "{given:?}");
            if most > 0 {
                controls.end_flow();
                assert!(controls.begin_flow(), "{given:?}: one ended");
            }
        }
    }

    #[test]
    fn credits_are_those_of_the_provider() {
        // A bucket of 5,000, of which 4,500 may go at once: a raw transaction is 250.
        let controls = controls("alchemy", &BudgetTerms { plan: Some("free"), ..terms() });
        check(
            &controls,
            "0:eth_sendRawTransaction*18 0:eth_chainId 0:eth_call 52:eth_call",
            "ok ok credits/52ms ok",
        );
        // Billed otherwise than counted against the rate.
        assert_eq!(controls.spending(Duration::ZERO).total, 18 * 40 + 26);
    }

    #[test]
    fn pushed_messages_are_in_the_ledger_to_the_credit() {
        let pushed = |provider: &str, messages: u64, bytes| {
            let controls = controls(provider, &terms());
            let told: u64 =
                (0..messages).map(|_| controls.charge_push(bytes, Duration::ZERO)).sum();
            assert_eq!(controls.spending(Duration::ZERO).total, told, "{provider}");
            told
        };
        // A day of mainnet: 7,200 heads of 1,816 bytes at 0.04 credits a byte.
        assert_eq!(pushed("alchemy", 7_200, 1_816), 523_008);
        assert_eq!(pushed("alchemy", 3, 10), 1, "1.2 credits");
        assert_eq!(pushed("infura", 7_200, 1_816), 360_000);
        assert_eq!(pushed("", 7_200, 1_816), 0, "an own node costs nothing");
    }

    #[test]
    fn a_batch_costs_what_its_calls_cost() {
        let controls = controls("", &BudgetTerms { credits_per_second: Some(100), ..terms() });
        check(&controls, "0:eth_call*5 0:eth_call", "ok credits/10ms");
    }

    #[test]
    fn what_is_held_by_a_later_bound_pays_no_earlier_one() {
        let terms =
            BudgetTerms { credits_per_second: Some(1_000), calls_per_second: Some(20), ..terms() };
        let controls = controls("", &terms);
        check(
            &controls,
            "0:eth_call 0:eth_call 0:eth_call 0:eth_call",
            "ok calls/52ms calls/52ms calls/52ms",
        );
        assert_eq!(controls.spending(Duration::ZERO).total, 1);
        assert_eq!(controls.in_flight(), 1, "nor a place");
        // 50 at once less the one that went.
        check(&controls, "0:eth_call*49", "calls/52ms");
        let row = MethodTable::standard().row("eth_call");
        assert_eq!(controls.rate_wait(row, Duration::ZERO).as_millis(), 52);
    }

    #[test]
    fn caps_end_with_their_day() {
        let day = BudgetTerms { credits_per_day: Some(3), ..terms() };
        let controls = controls("", &day);
        check(&controls, "0:eth_call*3 0:eth_call", "ok day/3600000ms");
        check(&controls, "3599999:eth_call 3600000:eth_call", "day/1000ms ok");
    }

    #[test]
    fn and_with_their_month() {
        let month = BudgetTerms { credits_per_month: Some(3), ..terms() };
        let controls = controls("", &month);
        // An hour of today and ten days of November are left.
        check(&controls, "0:eth_call*3 0:eth_call", "ok month/867600000ms");
        check(&controls, "867600000:eth_call", "ok");
    }

    #[test]
    fn beyond_a_cap_only_who_is_allowed() {
        let terms = BudgetTerms { credits_per_day: Some(1), overspend: true, ..terms() };
        let controls = controls("", &terms);
        check(&controls, "0:eth_call 0:eth_call", "ok ok");
        assert_eq!(controls.cap_reached(Duration::ZERO), Some(Cap::Day));
    }

    #[test]
    fn long_answers_leave_a_quarter_of_what_is_learnt_to_short_ones() {
        let controls = controls("", &terms());
        let play = |script: &str, times: usize, expected: &str| {
            (0..times).for_each(|_| check(&controls, script, expected));
        };
        play("0:eth_getLogs", 12, "ok");
        play("0:eth_call*100", 12, "ok");
        check(&controls, "0:eth_getLogs 0:eth_call*2", "bulky_share/1ms bulky_share/1ms");
        play("0:eth_call", 8, "ok");
        check(&controls, "0:eth_call", "learnt_limit/1ms");
        // One that waits for its client leaves its place, and takes it again.
        controls.parked(true);
        check(&controls, "0:eth_getLogs 0:eth_getLogs", "ok bulky_share/1ms");
        controls.resumed(true);
        controls.ended(place(true));
        controls.ended(place(false));
        check(&controls, "0:eth_getLogs 0:eth_call", "bulky_share/1ms ok");
        controls.ended(place(true));
        check(&controls, "0:eth_getLogs 0:eth_call", "ok learnt_limit/1ms");
    }

    #[test]
    fn a_limit_that_was_given_is_for_all() {
        let controls = controls("", &BudgetTerms { in_flight: Some(4), ..terms() });
        check(&controls, "0:eth_getLogs 0:eth_call*2 0:eth_getLogs 0:eth_getLogs", "ok ok ok ok");
        check(&controls, "0:eth_getLogs 0:eth_call", "in_flight/1ms in_flight/1ms");
    }

    #[test]
    fn a_refusal_changes_the_rate_and_not_the_limit() {
        let controls = controls("", &terms());
        let row = MethodTable::standard().row("eth_call");
        let limit = controls.spending(Duration::ZERO).limit;
        let at = Duration::from_secs(1);
        let rows = std::iter::repeat_n(row, 50);
        assert!(controls.admit(rows, place(false), || None, at).is_ok());
        controls.refused(row, at, at, None, Duration::from_secs(9));
        let pause = paused(&controls, "eth_call", at).expect("a pause");
        assert_eq!(pause, Duration::from_secs(1));
        let spending = controls.spending(at + pause);
        assert!(spending.learnt_rate.is_some_and(|rate| rate < 50.0), "{spending:?}");
        assert_eq!(spending.limit, limit);
    }

    #[test]
    fn who_must_not_learn_does_not() {
        let controls = controls("", &BudgetTerms { learn: false, ..terms() });
        let row = MethodTable::standard().row("eth_call");
        let at = Duration::from_secs(1);
        controls.refused(row, at, at, None, Duration::from_secs(9));
        assert_eq!(paused(&controls, "eth_call", at), Some(Duration::from_secs(9)));
        let spending = controls.spending(at);
        assert_eq!((spending.learnt_rate, spending.limit), (None, None));
    }
}
