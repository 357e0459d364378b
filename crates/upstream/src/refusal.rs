//! What an upstream's refusals bound: one method, or all of it.
//!
//! A 429, or "rate limit exceeded" in a 200, may come from the limit of an account, from a limit
//! of one method, or from a contract whose words look like either. So a refusal bounds its method
//! alone, with a pause and a learnt rate ([`LearntRate`]) of the method's own, until methods
//! agree. All methods that may execute code (calls, traces, transactions and user operations) count
//! as one for that, as one contract can provoke their refusals. Three refused methods agree. Two do, unless too many calls of others pass.
//!
//! **When others say otherwise.** Take `n` refusals of one or two methods, and `p` answered calls of
//! all others, of `c` outcomes in the last [`WINDOW`] or two. If one limit bounded all methods alike,
//! the chance that it met none of the others would be about `(1 - n/c)^p`, which is less than
//! `e^(-n·p/c)`. From `n·p/c` = [`CLEAR`] on, less than 2 %, the refused methods are bounded each
//! alone, and what was learnt of the whole from their refusals is forgotten.
//!
//! Where a rate of the whole is known, a refusal that says nothing new belongs to it: the rate
//! tries its limit from time to time, and the call that meets it may be of any method.
//!
//! **Pauses.** A `Retry-After` is believed up to [`METHOD_PAUSE_MAX`] for a method and
//! [`PAUSE_MAX`] for the whole, or [`PAUSE_DOUBTED_MAX`] where two methods alone were refused and
//! others were answered lately, or there were few refusals yet. An answer to what was sent during a long pause (the checks go on) ends it.
//! Replicas tell each other of pauses that were named. Learnt rates are not shared: each replica finds
//! the part of the limit that the others leave, as rates rise step by step and fall by a factor.
//!
//! While nothing was refused lately, a call costs two loads. Nothing here waits or reads a clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use wellhead_eth::{CostClass, MethodRow, MethodTable};
use wellhead_limit::LearntRate;

use crate::bound::{Bound, LimitedBy};
use crate::stamp::{ExchangeSpan, Stamp, StampCell};

/// Outcomes count fully for this long, then half for as long again, and so on.
const WINDOW: Duration = Duration::from_secs(10);
/// For this long after a refusal, outcomes are counted.
const COUNTED_FOR: Duration = Duration::from_secs(20);
/// This many refused methods agree, however many others pass: calls have prices, and a limit that
/// is nearly spent lets the cheap ones go.
const KINDS_SURE: u64 = 3;
/// This many refusals of two are believed to mean all, where no other method was answered.
const REFUSALS_SURE: u64 = 4;
/// `n·p/c` from which on others pass too often for one limit of all.
const CLEAR: u64 = 4;
/// No pause of the whole is longer, whatever it asked for.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Nor of a method.
const METHOD_PAUSE_MAX: Duration = Duration::from_secs(120);
/// Nor of the whole while calls of other methods were answered: what is refused after that tells.
const PAUSE_DOUBTED_MAX: Duration = Duration::from_secs(1);
/// A pause with less than this left is not ended early: it is cheaper than one more refusal.
const PAUSE_ENDED_FROM: Duration = Duration::from_secs(2);

/// What bounds calls of one kind: a pause and a rate.
#[derive(Debug, Default)]
struct CallLimit {
    paused_until: StampCell,
    /// When the refusal came that made the pause.
    paused_at: StampCell,
    /// Whether the upstream named the time of the pause.
    was_named: AtomicBool,
    rate: LearntRate,
}

/// A method that is not called at one upstream for now, because that refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PausedMethod {
    /// Its name.
    pub method: &'static str,
    /// What is left of the pause.
    pub left: Duration,
    /// The upstream named the time of the pause, as with `Retry-After`.
    pub was_named: bool,
}

/// One method that was refused once.
#[derive(Debug, Default)]
struct MethodLimit {
    limit: CallLimit,
    /// Whether it executes code that a client chooses.
    executes: bool,
    /// In the window.
    refused: AtomicU64,
    passed: AtomicU64,
    /// When the last refusal came.
    refused_at: StampCell,
}

/// By row of the method table; room is taken with the first refusal.
type MethodLimits = Box<[OnceLock<Box<MethodLimit>>]>;

/// The bounds that one upstream's refusals taught.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    whole: CallLimit,
    methods: OnceLock<MethodLimits>,
    /// Until when outcomes are counted; none while nothing was ever refused.
    counted_until: StampCell,
    /// Answered calls of all methods, in the window.
    passed: AtomicU64,
    /// When the window began, none at the start; held while a refusal is taken in.
    window: Mutex<Option<Stamp>>,
}

/// A call that was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateRefusal {
    pub(crate) credits: f64,
    pub(crate) began: Duration,
    pub(crate) now: Duration,
    /// The pause that the upstream asked for.
    pub(crate) asked: Option<Duration>,
    /// The pause where none was asked for and nothing is to be learnt; `None` where it is.
    pub(crate) usual: Option<Duration>,
}

/// Pauses that the upstream named and that a refusal began or made longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NamedPauses {
    /// Of the whole.
    pub(crate) whole: Option<Duration>,
    /// Of the method that was refused.
    pub(crate) method: Option<Duration>,
}

/// What a refusal bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalScope {
    Method,
    /// Its method as well, and what the whole was taken to have is forgotten.
    MethodCertainly,
    Whole,
}

impl Refusals {
    fn method(&self, row: &MethodRow) -> Option<&MethodLimit> {
        self.methods.get()?[row.index.get()].get().map(Box::as_ref)
    }

    fn method_or_new(&self, row: &MethodRow) -> &MethodLimit {
        let rows = MethodTable::standard().rows().len();
        let all = self.methods.get_or_init(|| (0..rows).map(|_| OnceLock::new()).collect());
        all[row.index.get()].get_or_init(|| {
            // What went out lately was counted for all methods together.
            let limit = CallLimit { rate: self.whole.rate.apart(), ..CallLimit::default() };
            Box::new(MethodLimit { limit, executes: executes(row), ..MethodLimit::default() })
        })
    }

    fn known(&self) -> impl Iterator<Item = &MethodLimit> {
        self.methods.get().into_iter().flatten().filter_map(OnceLock::get).map(Box::as_ref)
    }

    /// What is left of a pause of the whole.
    pub(crate) fn pause(&self, now: impl Fn() -> Duration) -> Option<Duration> {
        self.whole.pause(&now)
    }

    /// The methods that are paused alone, in the order of the table.
    pub(crate) fn paused_methods(&self, now: Duration) -> Vec<PausedMethod> {
        let rows = MethodTable::standard().rows().iter();
        let paused = |row: &'static MethodRow| {
            let limit = &self.method(row)?.limit;
            let left = limit.pause(&|| now)?;
            let was_named = limit.was_named.load(Ordering::Relaxed);
            Some(PausedMethod { method: row.name, left, was_named })
        };
        rows.filter_map(paused).collect()
    }

    /// The longest pause that holds a call of one of `rows`.
    pub(crate) fn pause_for<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow>,
        now: impl Fn() -> Duration,
    ) -> Option<LimitedBy> {
        let held = |bound, wait| LimitedBy { bound, wait, pace: Duration::ZERO };
        let whole = self.whole.pause(&now);
        let of_methods = self
            .methods
            .get()
            .and_then(|_| rows.filter_map(|row| self.method(row)?.limit.pause(&now)).max());
        match of_methods.filter(|wait| whole.is_none_or(|whole| whole < *wait)) {
            Some(wait) => Some(held(Bound::MethodPause, wait)),
            None => whole.map(|wait| held(Bound::Pause, wait)),
        }
    }

    /// Whether a rate may hold a call: one was learnt once.
    pub(crate) fn has_rate(&self) -> bool {
        self.whole.rate.is_known() || self.methods.get().is_some()
    }

    /// The learnt rate of the whole, or else that of the method that is bounded most.
    pub(crate) fn rate(&self, now: Duration) -> Option<f64> {
        let of_methods = || self.known().filter_map(|method| method.limit.rate.rate(now));
        self.whole.rate.rate(now).or_else(|| of_methods().reduce(f64::min))
    }

    /// How long rates hold a call of `row`.
    pub(crate) fn wait(&self, row: &MethodRow, credits: f64, now: Duration) -> Duration {
        let of_method = self.method(row).map(|method| method.limit.rate.wait(credits, now));
        self.whole.rate.wait(credits, now).max(of_method.unwrap_or_default())
    }

    /// Takes what the calls of `rows` cost from the rates, or nothing. `credits` is the price of
    /// one.
    pub(crate) fn take<'a>(
        &self,
        rows: &(impl Iterator<Item = &'a MethodRow> + Clone),
        credits: impl Fn(&MethodRow) -> f64,
        now: Duration,
    ) -> Result<(), LimitedBy> {
        let all = || rows.clone().map(&credits).sum::<f64>();
        take(&self.whole.rate, Bound::LearntRate, all, now)?;
        if self.methods.get().is_none() {
            return Ok(());
        }
        for (place, row) in rows.clone().enumerate() {
            let same = |other: &&MethodRow| other.index == row.index;
            let Some(method) = self.method(row) else { continue };
            // Each method once, for all its calls.
            if rows.clone().take(place).any(|other| same(&other)) {
                continue;
            }
            let of_method = || rows.clone().filter(same).map(&credits).sum::<f64>();
            if let Err(held) = take(&method.limit.rate, Bound::MethodRate, of_method, now) {
                self.give_back(rows.clone().take(place), &credits, now);
                self.whole.rate.give_back(all(), now);
                return Err(held);
            }
        }
        Ok(())
    }

    /// Puts back what each of `rows` took from the rate of its method.
    fn give_back<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow>,
        credits: &impl Fn(&MethodRow) -> f64,
        now: Duration,
    ) {
        for row in rows {
            if let Some(method) = self.method(row) {
                method.limit.rate.give_back(credits(row), now);
            }
        }
    }

    /// Notes that calls of `rows` went out, which cost `all` together and `credits` each. To be
    /// called for each exchange, bounded or not.
    pub(crate) fn sent<'a>(
        &self,
        rows: impl Iterator<Item = &'a MethodRow>,
        all: f64,
        credits: impl Fn(&MethodRow) -> f64,
        now: Duration,
    ) {
        self.whole.rate.sent(all as u32, now);
        if self.methods.get().is_none() {
            return;
        }
        for row in rows {
            if let Some(method) = self.method(row) {
                method.limit.rate.sent(credits(row) as u32, now);
            }
        }
    }

    /// Notes that a call of `row` was answered, for good or ill, and not refused.
    pub(crate) fn answered(&self, row: &MethodRow, span: ExchangeSpan) {
        if self.counted_until.get() <= Some(span.ended) {
            return;
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        let began = Duration::from_millis(span.began.ms());
        self.whole.rate.answered(began);
        let method = self.method(row);
        if let Some(method) = method {
            method.passed.fetch_add(1, Ordering::Relaxed);
            method.limit.rate.answered(began);
            method.limit.end_long_pause(span);
        }
        // One that is refused itself says nothing of the others.
        if method.is_none_or(|method| method.refused.load(Ordering::Relaxed) == 0) {
            self.whole.end_long_pause(span);
        }
    }

    /// Takes a refusal in, and tells the pauses with a named time that it began.
    pub(crate) fn refused(&self, row: &MethodRow, refusal: RateRefusal) -> NamedPauses {
        let now = Stamp::at(refusal.now);
        // One at a time: they compare what they count.
        let mut window = self.window.lock();
        self.age(&mut window, now);
        let method = self.method_or_new(row);
        // Calls that were under way together say the same thing once.
        if Some(Stamp::at(refusal.began)) >= method.refused_at.get() {
            method.refused_at.set(now);
            method.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.counted_until.advance(now.after(COUNTED_FOR));
        let counts = self.counts();
        let mut named = NamedPauses::default();
        match counts.scope(self.whole.rate.rate(refusal.now).is_some()) {
            RefusalScope::Method => {
                named.method = method.limit.refused(refusal, METHOD_PAUSE_MAX, now);
            }
            RefusalScope::MethodCertainly => {
                self.whole.rate.forget();
                self.whole.paused_until.clear();
                named.method = method.limit.refused(refusal, METHOD_PAUSE_MAX, now);
            }
            RefusalScope::Whole => {
                let is_doubted = counts.kinds() < KINDS_SURE
                    && (counts.passed_others > 0 || counts.refused < REFUSALS_SURE);
                let max = if is_doubted { PAUSE_DOUBTED_MAX } else { PAUSE_MAX };
                named.whole = self.whole.refused(refusal, max, now);
                if let Some(asked) = refusal.asked {
                    let pause = asked.min(METHOD_PAUSE_MAX);
                    named.method = method.limit.begin_pause(pause, true, now).then_some(pause);
                }
                self.known().filter(|it| it.is_refused()).for_each(|it| it.limit.rate.forget());
            }
        }
        named
    }

    /// Takes in that another replica was refused and told to pause: all calls, or those of `row`.
    pub(crate) fn note_peer_pause(&self, row: Option<&MethodRow>, pause: Duration, now: Duration) {
        let now = Stamp::at(now);
        self.counted_until.advance(now.after(COUNTED_FOR));
        match row {
            None => self.whole.begin_pause(pause.min(PAUSE_MAX), true, now),
            Some(row) => {
                let pause = pause.min(METHOD_PAUSE_MAX);
                self.method_or_new(row).limit.begin_pause(pause, true, now)
            }
        };
    }

    /// Halves what was counted, for each window that passed.
    fn age(&self, window: &mut Option<Stamp>, now: Stamp) {
        let elapsed = now.ms().saturating_sub(window.map_or(0, Stamp::ms));
        let windows = elapsed / WINDOW.as_millis() as u64;
        if windows == 0 {
            return;
        }
        *window = Some(now);
        let halves = u32::try_from(windows).unwrap_or(u32::MAX);
        let counts = self.known().flat_map(|method| [&method.refused, &method.passed]);
        for count in counts.chain([&self.passed]) {
            let left = count.load(Ordering::Relaxed).checked_shr(halves).unwrap_or_default();
            count.store(left, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> OutcomeCounts {
        let mut counts = OutcomeCounts {
            passed_others: self.passed.load(Ordering::Relaxed),
            ..OutcomeCounts::default()
        };
        counts.outcomes = counts.passed_others;
        for method in self.known().filter(|method| method.is_refused()) {
            let refused = method.refused.load(Ordering::Relaxed);
            let passed = method.passed.load(Ordering::Relaxed);
            match method.executes {
                true => counts.executes = 1,
                false => counts.methods += 1,
            }
            counts.refused += refused;
            counts.outcomes += refused;
            counts.passed_others = counts.passed_others.saturating_sub(passed);
        }
        counts
    }
}

/// Outcomes in the window.
#[derive(Debug, Clone, Copy, Default)]
struct OutcomeCounts {
    /// Methods that were refused, but for those that execute code.
    methods: u64,
    /// One where such a method was.
    executes: u64,
    /// Their refusals: `n`.
    refused: u64,
    /// Answered calls of other methods: `p`.
    passed_others: u64,
    /// All: `c`.
    outcomes: u64,
}

impl OutcomeCounts {
    fn kinds(self) -> u64 {
        self.methods + self.executes
    }

    fn scope(self, is_whole_known: bool) -> RefusalScope {
        let evidence = self.refused.saturating_mul(self.passed_others);
        if self.kinds() >= KINDS_SURE {
            RefusalScope::Whole
        } else if evidence >= CLEAR.saturating_mul(self.outcomes.max(1)) {
            RefusalScope::MethodCertainly
        } else if self.kinds() >= 2 || is_whole_known {
            RefusalScope::Whole
        } else {
            RefusalScope::Method
        }
    }
}

/// Whether an upstream may run a contract for a call of `row`, and answer in its words: nodes and
/// bundlers simulate what they are sent, and paymasters (`pm_`) what they are to pay for.
fn executes(row: &MethodRow) -> bool {
    let by_class = match row.class {
        CostClass::Call | CostClass::Trace | CostClass::Write => true,
        CostClass::Light | CostClass::State | CostClass::Block | CostClass::Logs => false,
    };
    by_class || row.name.starts_with("pm_")
}

impl MethodLimit {
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }
}

impl CallLimit {
    fn pause(&self, now: &impl Fn() -> Duration) -> Option<Duration> {
        let left = self.paused_until.get()?.since(Stamp::at(now()));
        (!left.is_zero()).then_some(left)
    }

    /// Returns the pause if the upstream named it and it began or became longer.
    fn refused(&self, refusal: RateRefusal, pause_max: Duration, at: Stamp) -> Option<Duration> {
        let RateRefusal { credits, began, now, asked, usual } = refusal;
        let asked = asked.map(|asked| asked.min(pause_max));
        let pause = match usual {
            Some(usual) => asked.unwrap_or(usual),
            None => self.rate.refused(credits, began, now, asked),
        };
        let began = self.begin_pause(pause, asked.is_some(), at);
        (began && asked.is_some()).then_some(pause)
    }

    /// Returns whether the pause began or became longer.
    fn begin_pause(&self, pause: Duration, was_named: bool, now: Stamp) -> bool {
        let is_longer = self.paused_until.advance(now.after(pause));
        if is_longer {
            self.paused_at.set(now);
            self.was_named.store(was_named, Ordering::Relaxed);
        }
        is_longer
    }

    /// Ends a pause that is long yet, because a call that was sent since was answered.
    fn end_long_pause(&self, span: ExchangeSpan) {
        let Some(until) = self.paused_until.get() else { return };
        if until.since(span.ended) >= PAUSE_ENDED_FROM && Some(span.began) > self.paused_at.get() {
            // A refusal that came in between stands.
            let _ = self.paused_until.replace(Some(until), None);
        }
    }
}

fn take(
    rate: &LearntRate,
    bound: Bound,
    credits: impl FnOnce() -> f64,
    now: Duration,
) -> Result<(), LimitedBy> {
    if !rate.is_known() {
        return Ok(());
    }
    let credits = credits();
    let held = |wait| LimitedBy { bound, wait, pace: rate.time_of(credits, now) };
    rate.take(credits, now).map_err(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &str) -> &'static MethodRow {
        // Short names, so that a script fits a line.
        MethodTable::standard().row(match method {
            "call" => "eth_call",
            "gas" => "eth_estimateGas",
            "bal" => "eth_getBalance",
            "num" => "eth_blockNumber",
            "sha" => "web3_sha3",
            "tx" => "eth_sendRawTransactionSync",
            "userop" => "eth_sendUserOperation",
            "pay" => "pm_getPaymasterData",
            other => panic!("unknown method {other}"),
        })
    }

    fn span(began: Duration, ended: Duration) -> ExchangeSpan {
        ExchangeSpan { began: Stamp::at(began), ended: Stamp::at(ended) }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Plays steps such as `10ms call+3` and returns what was asked, each with a comma: `+`
    /// answered, `-` refused, `-60` refused with a `Retry-After` of 60 s, each of them as often as
    /// the number before the method says; `?` asks how many milliseconds of pause are left.
    fn play(refusals: &Refusals, usual: Option<Duration>, script: &str) -> String {
        let (mut now, mut told) = (ms(1_000), Vec::new());
        for step in script.split_whitespace() {
            if let Some(later) = step.strip_suffix("ms") {
                now += ms(later.parse().expect("milliseconds"));
                continue;
            }
            let at = step.find(['+', '-', '?']).expect("an act");
            let (times, method) = step[..at].split_once('*').unwrap_or(("1", &step[..at]));
            let (row, act) = (row(method), &step[at..]);
            for _ in 0..times.parse().expect("a number") {
                match (act.split_at(1).0, act[1..].parse().ok().map(Duration::from_secs)) {
                    ("+", _) => refusals.answered(row, span(now, now)),
                    ("-", asked) => {
                        let refusal = RateRefusal { credits: 1.0, began: now, now, asked, usual };
                        refusals.refused(row, refusal);
                    }
                    _ => {
                        let left = refusals.pause_for(std::iter::once(row), || now);
                        told.push(left.map_or(0, |held| held.wait.as_millis()).to_string());
                    }
                }
            }
        }
        told.join(",")
    }

    #[track_caller]
    fn check(script: &str, expected: &str) {
        let refusals = Refusals::default();
        assert_eq!(play(&refusals, Some(ms(1_000)), script), expected, "{script}");
    }

    #[test]
    fn a_refusal_pauses_its_method_alone() {
        check("call- call? bal? num?", "1000,0,0");
        check("call-5 6*call- 500ms call? bal?", "4500,0");
        // Whether others were answered before or not.
        check("9*bal+ 6*call- bal+ call? bal?", "1000,0");
    }

    #[test]
    fn paused_methods_are_told() {
        let told = |script: &str| {
            let refusals = Refusals::default();
            play(&refusals, Some(ms(1_000)), script);
            let spent: u64 = script
                .split_whitespace()
                .filter_map(|step| step.strip_suffix("ms")?.parse::<u64>().ok())
                .sum();
            let shown = refusals.paused_methods(ms(1_000 + spent)).into_iter().map(|paused| {
                let PausedMethod { method, left, was_named } = paused;
                let reason = if was_named { "named" } else { "refused" };
                format!("{method} {} {reason}", left.as_millis())
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(told("call+"), "");
        assert_eq!(told("call- 200ms num+"), "eth_call 800 refused");
        assert_eq!(told("call-7 1000ms"), "eth_call 6000 named");
        assert_eq!(told("call-7 call-"), "eth_call 7000 named");
        assert_eq!(told("call- 1000ms"), "");
        assert_eq!(told("call- 2*bal-7"), "eth_getBalance 7000 named, eth_call 1000 refused");
    }

    #[test]
    fn all_pause_when_methods_agree() {
        check("call- bal- num? call?", "1000,1000");
        check("call- 3*bal+ bal- num?", "1000");
        check("call- bal-7 gas?", "1000");
        check("2*call- 2*bal-7 gas?", "7000");
        // Not when the first refusal is long ago.
        check("call- 30000ms bal- num? bal?", "0,1000");
    }

    #[test]
    fn methods_that_execute_code_are_one_in_this() {
        check("call- gas- call- gas- num? call? gas?", "0,1000,1000");
        check("call- gas- num- bal?", "1000");
        check("call- tx- userop- pay- call- num? tx? pay?", "0,1000,1000");
    }

    #[test]
    fn two_methods_that_are_refused_bound_no_others_that_pass() {
        let two = "call- 4*num+ bal- 4*num+ 9*num+ call- 9*num+ bal- 9*num+ call- bal-";
        check(&format!("{two} num? gas? call? bal?"), "0,0,1000,1000");
        // One limit of all meets all, and the methods that pass beside it are few.
        check("call- bal- 2*num+ call- bal- gas?", "1000");
    }

    #[test]
    fn three_methods_that_are_refused_agree_whatever_passes() {
        check("call- 9*sha+ bal- 99*sha+ call- bal- num-7 gas? sha?", "7000,7000");
    }

    #[test]
    fn no_pause_is_longer_than_its_bound() {
        let ten_years = "315360000";
        check(&format!("call-{ten_years} call? num?"), "120000,0");
        check(&format!("call-{ten_years} num-{ten_years} bal?"), "1000");
        check(&format!("3*call- num-{ten_years} bal?"), "300000");
        check(&format!("call- num- bal-{ten_years} sha?"), "300000");
        check(&format!("call-{ten_years} bal+ num-{ten_years} bal? gas?"), "1000,1000");
    }

    #[test]
    fn an_answer_during_a_long_pause_ends_it() {
        check("2*call-60 2*num-60 1000ms gas? bal+ gas? call?", "59000,0,59000");
        // Not one of a method that is refused itself, but for its own pause.
        check("2*call-60 2*num-60 1000ms num+ gas? num? call?", "59000,59000,59000");
        check("call-60 1000ms call? call+ call?", "59000,0");
        // What is left of a short one is waited for.
        check("2*call-2 2*num-2 1000ms bal+ bal?", "1000");
    }

    #[test]
    fn named_pauses_are_told_and_hold_at_another_replica() {
        let (here, there) = (Refusals::default(), Refusals::default());
        let refuse = |method, asked: Option<u64>| {
            let (asked, now) = (asked.map(Duration::from_secs), ms(1_000));
            let refusal = RateRefusal { credits: 1.0, began: now, now, asked, usual: None };
            here.refused(row(method), refusal)
        };
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(refuse("call", None), NamedPauses::default(), "its own guess");
        assert_eq!(refuse("call", Some(7)), NamedPauses { whole: None, method: secs(7) });
        assert_eq!(refuse("call", Some(5)), NamedPauses::default(), "no longer than before");
        let named = refuse("num", Some(9));
        assert_eq!(named, NamedPauses { whole: secs(9), method: secs(9) });

        there.note_peer_pause(Some(row("call")), Duration::from_secs(7), ms(5_000));
        let left = |method, at| {
            there.pause_for(std::iter::once(row(method)), || ms(at)).map(|held| held.wait)
        };
        assert_eq!((left("call", 6_000), left("num", 6_000)), (secs(6), None));
        there.note_peer_pause(None, Duration::from_secs(3_600), ms(6_000));
        assert_eq!(left("num", 6_000), Some(PAUSE_MAX));
        // An answer to what was sent since ends it here, whatever the other was told.
        there.answered(row("bal"), span(ms(7_000), ms(7_500)));
        assert_eq!((left("num", 7_500), left("call", 7_500)), (None, Some(ms(4_500))));
    }

    #[test]
    fn what_was_sent_before_a_pause_does_not_end_it() {
        let refusals = Refusals::default();
        play(&refusals, None, "2*call-60 2*num-60");
        refusals.answered(row("bal"), span(ms(999), ms(5_000)));
        assert_eq!(refusals.pause(|| ms(5_000)), Some(ms(56_000)));
    }

    /// Sends 200 calls of each method and then refuses as the script says.
    fn rates(script: &str) -> [Option<u32>; 3] {
        let refusals = Refusals::default();
        let both = [row("call"), row("num")];
        (0..200).for_each(|_| refusals.sent(both.into_iter(), 2.0, |_| 1.0, ms(900)));
        play(&refusals, None, script);
        let now = ms(1_000);
        let of = |method| refusals.method(row(method)).and_then(|it| it.limit.rate.rate(now));
        [refusals.whole.rate.rate(now), of("call"), of("num")].map(|it| it.map(|it| it as u32))
    }

    #[test]
    fn a_rate_is_learnt_for_the_method_until_methods_agree() {
        assert_eq!(rates("call-"), [None, Some(372), None]);
        assert_eq!(rates("call- num-"), [Some(372), None, None]);
        let shown = "call- num- 40*bal+ 1ms call- 40*bal+ 1ms num- 40*bal+ 1ms call- 1ms num-";
        let [whole, call, num] = rates(shown);
        assert!(whole.is_none() && call.is_some() && num.is_some(), "{whole:?} {call:?} {num:?}");
    }

    #[test]
    fn a_batch_takes_from_the_rate_of_each_method_or_of_none() {
        let refusals = Refusals::default();
        (0..100).for_each(|_| refusals.sent([row("call")].into_iter(), 1.0, |_| 1.0, ms(900)));
        play(&refusals, None, "call-");
        let now = ms(3_000);
        let take = |rows: &[&'static MethodRow]| {
            refusals.take(&rows.iter().copied(), |_| 1.0, now).map_err(|held| held.bound)
        };
        // A batch may borrow; then nothing is left, and what is held takes nothing of others.
        assert_eq!(take(&[row("num"), row("call"), row("call"), row("num"), row("call")]), Ok(()));
        assert_eq!(take(&[row("call"); 3]), Err(Bound::MethodRate));
        assert_eq!(take(&[row("num"); 3]), Ok(()));
    }
}
