//! Whole calls, played without a clock, a socket or a task: what each attempt brings is written
//! down, and the steps are compared.

use wellhead_eth::MethodTable;
use wellhead_transport::Sent;
use wellhead_upstream::{Payload, Verdict};

use super::*;
use crate::allowance::Allowance;
use crate::attempt::AttemptResult;
use crate::progress::Progress;
use crate::wait_queue::NoTurn;

const MS: Duration = Duration::from_millis(1);
/// Every attempt takes this long.
const TOOK: Duration = Duration::from_millis(10);
/// No call takes more steps.
const STEPS_MAX: usize = 60;

fn held(bound: Bound, wait: Duration) -> LimitedBy {
    LimitedBy { bound, wait, pace: Duration::ZERO }
}

/// An upstream of a play, and when it changes.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    candidate: Candidate,
    paused_until: Option<Instant>,
    returns_at: Option<Instant>,
}

impl Actor {
    /// `a` is fit; `b:fallback:behind` says more, `c:back700` rests and comes back after 700 ms.
    fn of(place: usize, text: &str, began: Instant) -> Self {
        let mut candidate = Candidate {
            slot: Slot(u8::try_from(place).expect("few")),
            tier: Tier::Primary,
            rank: Rank::Fit,
            condition: Condition::Ready,
            class_rests: false,
            offer: Offer::Open,
            has_offered: true,
            pause: None,
            has_rate: true,
            outage: None,
            is_new: true,
        };
        let (mut paused_until, mut returns_at) = (None, None);
        for word in text.split(':').skip(1) {
            let ms = |name| Some(MS * word.strip_prefix(name)?.parse::<u32>().ok()?);
            match word {
                "fallback" => candidate.tier = Tier::Fallback,
                "limited" => candidate.rank = Rank::Limited,
                "behind" => candidate.rank = Rank::Behind,
                "lags" => candidate.rank = Rank::Up,
                "refusing" => candidate.rank = Rank::Refusing,
                "lacking" => candidate.offer = Offer::Lacking,
                "slow" => candidate.has_rate = false,
                "rests" | "halfopen" => {
                    candidate.rank = Rank::Unwell;
                    candidate.outage = Some(OUTAGE_IS_NEW * 2);
                    candidate.condition = match word {
                        "rests" => Condition::BreakerOpen,
                        _ => Condition::HalfOpen,
                    };
                }
                "unseen" => candidate.has_offered = false,
                _ if let Some(ms) = ms("paused") => paused_until = Some(began + ms),
                _ if let Some(ms) = ms("back") => {
                    candidate.rank = Rank::Unwell;
                    candidate.condition = Condition::BreakerOpen;
                    candidate.outage = Some(MS);
                    returns_at = Some(began + ms);
                }
                other => panic!("unknown word {other}"),
            }
        }
        Self { candidate, paused_until, returns_at }
    }

    /// Those of `cast`, in its order.
    pub(crate) fn cast(cast: &str, began: Instant) -> Vec<Self> {
        let words = cast.split_whitespace().enumerate();
        words.map(|(place, text)| Self::of(place, text, began)).collect()
    }

    fn at(&self, attempts: &Attempts, began: Instant, now: Instant) -> Candidate {
        let mut candidate = self.candidate;
        let pause = self.paused_until.filter(|until| *until > now);
        candidate.pause = pause.map(|until| held(Bound::Pause, until - now));
        let returned = self.returns_at.filter(|at| *at <= now);
        if returned.is_some() {
            (candidate.condition, candidate.outage) = (Condition::Ready, None);
        }
        let is_past = |after| returned.is_some_and(|at| began + after < at);
        candidate.is_new = attempts.trail.attempts.iter().all(|it| {
            let had_its_pause = it.class == VerdictClass::Throttled && pause.is_none();
            it.slot != candidate.slot || is_past(it.after) || had_its_pause
        });
        candidate
    }
}

pub(crate) struct Seen(pub(crate) Vec<Candidate>);

impl Seen {
    pub(crate) fn of(actors: &[Actor], attempts: &Attempts, began: Instant, now: Instant) -> Self {
        Self(actors.iter().map(|it| it.at(attempts, began, now)).collect())
    }
}

impl Candidates for Seen {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn at(&self, place: usize) -> Candidate {
        self.0[place]
    }
}

/// A call before it is made.
struct Play {
    method: &'static str,
    bounds: Bounds,
    is_there: bool,
    is_one_tier: bool,
    calls_max: u32,
    total: Duration,
}

impl Default for Play {
    fn default() -> Self {
        Self {
            method: "eth_call",
            bounds: Bounds::default(),
            is_there: false,
            is_one_tier: false,
            calls_max: 100,
            total: Duration::from_secs(30),
        }
    }
}

/// What a call did.
struct Played {
    steps: Vec<String>,
    attempts: Attempts,
    /// Attempts, how their upstreams stood, and what came of them.
    sends: Vec<(SendStep, Candidate, StepResult)>,
    end: Consequence,
}

pub(crate) fn class_of(word: &str) -> VerdictClass {
    match word {
        "ok" => VerdictClass::Answer,
        "null" => VerdictClass::Null,
        "revert" => VerdictClass::Reverted,
        "fault" => VerdictClass::Fault,
        "missing" => VerdictClass::MissingData,
        "wide" => VerdictClass::RangeTooLarge,
        "unknown" => VerdictClass::Unknown,
        "unsupported" => VerdictClass::Unsupported,
        "auth" => VerdictClass::Auth,
        "throttled" => VerdictClass::Throttled,
        other => panic!("unknown word {other}"),
    }
}

pub(crate) fn name(slot: Slot) -> char {
    char::from(b'a' + slot.0)
}

fn names(by: Holders) -> String {
    by.slots.iter().map(name).collect()
}

impl Play {
    /// Plays a call over `cast`. Each attempt takes the next word of `script`: `ok`, `fault` ...
    /// judge it, `throttled300` asks for a pause, `lost` was certainly not sent. `unpaid` and `held50`
    /// keep it from being made, `noturn` ends a wait in the queue; each is left out where it cannot
    /// be. When the script is over all fail.
    fn play(&self, cast: &str, script: &str) -> Played {
        let began = crate::now();
        let mut actors = Actor::cast(cast, began);
        let progress = Progress::new(Allowance::new(self.calls_max));
        let job = Job {
            is_there: self.is_there,
            progress: Some(&progress),
            ..Job::new(
                MethodTable::standard().row(self.method),
                self.method,
                began,
                began + self.total,
            )
        };
        let terms = CallTerms { job: &job, bounds: &self.bounds, is_one_tier: self.is_one_tier };
        let (mut now, mut script) = (began, script.split_whitespace());
        let (mut attempts, mut steps, mut sends) = (Attempts::default(), Vec::new(), Vec::new());
        let end = loop {
            assert!(steps.len() < STEPS_MAX, "it does not end: {steps:?}");
            let seen = Seen::of(&actors, &attempts, began, now);
            let decision =
                next(&attempts, &seen, terms, now, |range| (range.start + range.end) / 2);
            attempts.position = decision.position;
            attempts.is_spent |= decision.is_spent;
            let price = |price| match price {
                AttemptPrice::Nothing => "",
                AttemptPrice::Counted => "+",
                AttemptPrice::Retry | AttemptPrice::Hedge => "$",
            };
            let slot = match decision.step {
                CallStep::Finish(end) => break end,
                CallStep::BeginRound { round, kept } => {
                    attempts.begin_round(round, kept);
                    continue;
                }
                CallStep::Hold { slot, held } => {
                    steps.push(format!("hold:{}", name(slot)));
                    attempts.hold(slot, held);
                    attempts.result = StepResult::Done;
                    continue;
                }
                CallStep::Pause { until } => {
                    steps.push(format!("pause{}", (until - now).as_millis()));
                    now = until;
                    attempts.result = StepResult::Done;
                    continue;
                }
                CallStep::Send(step) => {
                    steps.push(format!("{}{}", name(step.slot), price(step.price)));
                    assert!(now < job.deadline, "an attempt begins in time: {steps:?}");
                    step.slot
                }
                CallStep::Turn(step) => {
                    let scope = match step.scope {
                        WaitScope::All => "turn",
                        WaitScope::Cheaper => "cheaper",
                        WaitScope::OneTier => "tier",
                    };
                    steps.push(format!("{scope}:{}{}", names(step.by), price(step.price)));
                    attempts.has_waited_for_cheaper |= step.scope == WaitScope::Cheaper;
                    now += step.by.first.wait;
                    step.by.slots.iter().next().expect("one at least")
                }
            };
            let is_turn = matches!(decision.step, CallStep::Turn(_));
            let price = match decision.step {
                CallStep::Send(step) => step.price,
                CallStep::Turn(step) => step.price,
                _ => AttemptPrice::Nothing,
            };
            let is_possible = |word: &&str| match *word {
                "unpaid" => price == AttemptPrice::Retry,
                "noturn" => is_turn,
                word => !is_turn || !word.starts_with("held"),
            };
            let word = script.find(is_possible).unwrap_or("fault");
            attempts.result = if word == "unpaid" {
                StepResult::Unpaid
            } else if word == "noturn" {
                let retry_after = Duration::from_secs(1);
                attempts.no_turn = Some(NoTurn { bound: Bound::InFlight, retry_after });
                StepResult::NoTurn
            } else if let Some(ms) = word.strip_prefix("held") {
                let wait = MS * ms.parse().expect("milliseconds");
                attempts.hold(slot, held(Bound::Calls, wait));
                StepResult::Held
            } else {
                if is_turn {
                    let others = |by: Holders| by.without([slot].into_iter().collect());
                    attempts.held_by = attempts.held_by.and_then(others);
                }
                progress.allowance().take(1);
                attempts.begun += 1;
                let (word, pause) = match word.strip_prefix("throttled") {
                    Some(ms) => ("throttled", ms.parse().ok().map(|ms: u32| MS * ms)),
                    None => (word, None),
                };
                let (word, sent) = match word {
                    "lost" => ("fault", Sent::No),
                    word => (word, Sent::Maybe),
                };
                let payload = Payload::Result(bytes::Bytes::from_static(b"null"));
                let mut verdict = Verdict::new(class_of(word), "test", payload);
                verdict.retry_after = pause;
                let ended = now + TOOK;
                actors[usize::from(slot.0)].paused_until = pause.map(|pause| ended + pause);
                let settled = AttemptResult::whole(verdict, now, ended, sent);
                now = ended;
                let tier = seen.0[usize::from(slot.0)].tier;
                StepResult::Sent(attempts.end(&job, slot, tier, settled))
            };
            if let CallStep::Send(step) = decision.step {
                sends.push((step, seen.0[usize::from(step.slot.0)], attempts.result));
            }
        };
        steps.push(
            match end {
                Consequence::Serve => "serve",
                Consequence::GoOn => "go-on",
                Consequence::Stop => "end",
            }
            .to_owned(),
        );
        assert!(attempts.begun <= self.calls_max, "no more calls than allowed: {steps:?}");
        Played { steps, attempts, sends, end }
    }

    #[track_caller]
    fn check(&self, cast: &str, script: &str, expected: &str) {
        let played = self.play(cast, script).steps.join(" ");
        assert_eq!(played, expected, "{cast} | {script}");
    }
}

#[track_caller]
fn check(cast: &str, script: &str, expected: &str) {
    Play::default().check(cast, script, expected);
}

#[track_caller]
fn check_there(cast: &str, script: &str, expected: &str) {
    Play { is_there: true, ..Play::default() }.check(cast, script, expected);
}

#[test]
fn one_candidate_after_another_until_one_answers() {
    check("a b c", "ok", "a serve");
    check("a b c", "fault ok", "a b+ serve");
    check("a b c", "fault revert", "a b+ serve");
    check("a b c", "lost lost ok", "a b+ c+ serve");
}

#[test]
fn a_fault_of_a_moment_is_healed_by_later_rounds() {
    check("a", "fault ok", "a pause50 a$ serve");
    check("a", "", "a pause50 a$ pause100 a$ a$ end");
    check("a b", "", "a b+ pause50 a$ b$ end");
    check("a b", "auth fault ok", "a b+ pause50 b$ serve");
    check("a b", "fault unpaid unpaid ok", "a b+ serve");
}

#[test]
fn an_upstream_that_asked_for_a_pause_is_passed_over() {
    check("a:paused300 b", "ok", "hold:a b serve");
    check("a:paused300", "ok", "hold:a turn:a serve");
    check("a:paused300 b", "fault ok", "hold:a b turn:a serve");
    check("a b", "throttled200 fault ok", "a b+ pause50 b$ serve");
    check("a:paused60000", "noturn", "hold:a turn:a end");
    check("a:paused300 b:paused200", "noturn", "hold:a hold:b turn:ab b b$ b$ b$ end");
}

#[test]
fn a_call_that_is_held_waits_for_its_turn() {
    check("a", "held50 ok", "a turn:a serve");
    check("a b", "held50 held90 ok", "a b turn:ab serve");
    check("a b", "held5000 fault ok", "a b pause50 a+ serve");
    check("a b", "held5000 fault fault fault", "a b pause50 a+ b$ pause100 a$ end");
    check("a b", "held5000 missing ok", "a b end");
    check("a", "fault held50 unpaid", "a pause50 a$ turn:a$ a$ a$ a$ end");
}

#[test]
fn before_a_dearer_tier_a_call_waits_for_a_cheaper_one() {
    check("a b:fallback", "held50 ok", "a cheaper:a serve");
    check("a b:fallback", "held50 noturn ok", "a cheaper:a b serve");
    check("a b:fallback", "held50 fault ok", "a cheaper:a b+ serve");
    check("a b:fallback", "held200 ok", "a b serve");
    check("a b:fallback c:fallback", "held50 noturn held50 ok", "a cheaper:a b c serve");
    check("a b:fallback", "fault ok", "a b+ serve");
}

#[test]
fn a_null_is_doubted_once_and_in_no_dearer_tier() {
    check("a b c", "null null", "a b+ end");
    check("a b c", "null ok", "a b+ serve");
    check("a b:fallback", "null", "a end");
    check_there("a b c", "null null ok", "a b+ c+ serve");
    check_there("a b:fallback", "null ok", "a b+ serve");
}

#[test]
fn an_unknown_error_that_two_share_may_be_a_fault_of_both() {
    check("a b c", "unknown unknown ok", "a b+ c$ serve");
    check("a b c", "unknown unknown unknown", "a b+ c$ end");
    check("a b:behind", "unknown ok", "a b+ serve");
    check("a b c:lags", "unknown unknown ok", "a b+ end");
    check("a b:lags", "unknown ok", "a b+ serve");
    check("a b:rests", "unknown ok", "a end");
}

#[test]
fn what_some_lack_is_looked_for_where_it_may_be() {
    check_there("a b", "missing ok", "a b+ serve");
    check_there("a:behind b:lags", "missing ok", "a b+ serve");
    check_there("a b:lags", "missing ok", "a b+ serve");
    check_there("a b:rests", "missing", "a end");
    check_there("a b:halfopen", "missing ok", "a b$ serve");
    check_there("a:behind b:rests", "missing ok", "a b$ serve");
}

#[test]
fn a_range_that_is_too_large_for_one_is_taken_by_another() {
    check("a b", "wide ok", "a b+ serve");
    check("a b c:refusing", "wide wide wide", "a b+ end");
    check("a b:refusing", "held200 ok", "a turn:a serve");
    check("a b:refusing", "held2000 wide", "a b end");
}

#[test]
fn last_resorts_are_asked_when_nothing_can_be_told() {
    check("a b:rests", "fault ok", "a b$ serve");
    check("a b:rests", "fault unpaid fault", "a b$ pause50 a$ pause100 a$ a$ end");
    check("a b:lags c:rests", "fault fault ok", "a b+ c$ serve");
}

#[test]
fn an_upstream_that_comes_back_is_asked() {
    check("a b:back5", "fault ok", "a b+ serve");
    check(
        "a:back700",
        "fault fault fault ok",
        "a pause50 a$ pause100 a$ pause75 pause75 pause75 pause75 pause75 pause75 pause75 a serve",
    );
    check(
        "a:back700 b:rests",
        "auth auth ok",
        "a b$ pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 a serve",
    );
    check("a:rests", "", "a pause50 a$ pause100 a$ end");
    check(
        "a:back9000",
        "",
        "a pause50 a$ pause100 a$ pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 end",
    );
    check(
        "a b:back900",
        "auth fault auth auth ok",
        "a b$ pause50 b$ pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 pause75 b end",
    );
}

#[test]
fn a_method_that_none_offers_is_not_waited_for() {
    check("a b", "unsupported unsupported", "a b+ end");
    check("a b:lacking", "unsupported unsupported", "a b+ end");
    check("a b:rests:unseen", "unsupported unpaid", "a b$ end");
    check("a b:rests", "unsupported fault", "a b$ pause50 b$ pause100 b$ end");
}

#[test]
fn a_write_that_may_have_run_is_not_repeated() {
    let write = Play { method: "eth_sendTransaction", ..Play::default() };
    write.check("a b", "ok", "a serve");
    write.check("a b", "fault", "a end");
    write.check("a b", "lost ok", "a b+ serve");
    write.check("a:rests", "lost", "a pause50 a$ end");
}

#[test]
fn a_call_ends_at_its_bounds() {
    let few = |attempts_max| {
        let bounds = Bounds { attempts_max, ..Bounds::default() };
        Play { bounds, ..Play::default() }
    };
    few(1).check("a b", "fault", "a end");
    few(0).check("a b", "fault", "a end");
    few(2).check("a b c", "", "a b+ end");
    // The last attempt is for the one that was not asked.
    few(3).check("a b c", "held2000 fault fault ok", "a b c+ pause50 a+ serve");
    Play { calls_max: 2, ..Play::default() }.check("a b c", "", "a b+ end");
    Play { calls_max: 0, ..Play::default() }.check("a b c", "", "end");
    Play { total: MS * 15, ..Play::default() }.check("a b c", "", "a b+ end");
    Play { total: MS * 60, ..Play::default() }.check("a", "", "a a$ a$ a$ end");
}

#[test]
fn one_tier_of_several_has_one_round_and_one_wait() {
    let tier = Play { method: "eth_sendRawTransaction", is_one_tier: true, ..Play::default() };
    tier.check("a b", "fault fault", "a b+ go-on");
    tier.check("a b", "held50 fault ok", "a b tier:a serve");
    tier.check("a b", "held50 fault noturn", "a b tier:a go-on");
    tier.check("a b", "ok", "a serve");
}

/// What holds of every call, whatever its upstreams do.
fn check_rules(play: &Play, cast: &str, script: &str) {
    let Played { steps, attempts, sends, end } = play.play(cast, script);
    let told = || format!("{} {cast} | {script}: {steps:?}", play.method);
    assert!(
        attempts.count() <= play.bounds.attempts_max,
        "as many attempts as allowed: {}",
        told()
    );
    assert!(end != Consequence::Serve || attempts.best.is_some(), "there is something: {}", told());
    let mut asked: Vec<Slot> = Vec::new();
    let mut may_have_run = false;
    for (place, (step, candidate, result)) in sends.into_iter().enumerate() {
        assert!(candidate.pause.is_none(), "a pause is respected: {}", told());
        assert!(!may_have_run, "a write that may have run is not repeated: {}", told());
        let is_free = asked.is_empty() || (candidate.is_up() && candidate.is_new);
        let is_paid = step.price == AttemptPrice::Retry;
        assert!(is_free || is_paid, "attempt {place} costs a token: {}", told());
        if let StepResult::Sent(consequence) = result {
            asked.push(step.slot);
            let is_write = play.method == "eth_sendTransaction";
            may_have_run = is_write && consequence == Consequence::Stop;
        }
    }
}

#[test]
fn the_rules_hold_whatever_upstreams_do() {
    let casts = [
        "a",
        "a b c",
        "a b:fallback",
        "a:paused200 b c:fallback",
        "a:behind b:lags c:rests",
        "a b:rests c:refusing",
        "a b:back60 c:halfopen",
        "a:back300 b:rests:unseen",
        "a b:lacking c:limited",
    ];
    let words = [
        "ok",
        "null",
        "fault",
        "lost",
        "missing",
        "unknown",
        "unsupported",
        "wide",
        "throttled70",
        "held40",
        "unpaid",
        "noturn",
    ];
    let few = Bounds { attempts_max: 2, ..Bounds::default() };
    let plays = [
        Play::default(),
        Play { is_there: true, calls_max: 3, ..Play::default() },
        Play { bounds: few, total: MS * 400, ..Play::default() },
        Play { method: "eth_sendTransaction", ..Play::default() },
        Play { method: "eth_sendRawTransaction", is_one_tier: true, ..Play::default() },
    ];
    let mut played = 0;
    for (first, second) in words.iter().flat_map(|it| words.iter().map(move |other| (it, other))) {
        for third in words {
            let script = format!("{first} {second} {third}");
            for cast in casts {
                plays.iter().for_each(|play| check_rules(play, cast, &script));
                played += plays.len();
            }
        }
    }
    assert_eq!(played, 12 * 12 * 12 * 9 * 5);
}
