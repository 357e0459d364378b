//! Bounds of upstreams as calls meet them: passed over, waited for, refused; and how much
//! of a provider's limit is used when it is not in the settings.

#![allow(clippy::print_stdout, reason = "the figures are told as well as checked")]

mod support;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{ScriptedTransport, Stage, locally, ms, scripted, secs, settle, step, verified};
use wellhead_dispatch::{ClientId, Failure, PLACES_MAX, now};
use wellhead_eth::MethodTable;
use wellhead_kit::{Act, Arrival, named_by};
use wellhead_transport::{TransportError, WireReply};
use wellhead_upstream::{
    Bound, Budget, BudgetTerms, Condition, Identity, Slot, Tier, VerdictClass,
};

fn terms() -> BudgetTerms<'static> {
    BudgetTerms { learn: true, ..BudgetTerms::default() }
}

/// Upstreams `a`, `b`, ... that play these scripts, a tier each, within these budgets.
fn stage<'a>(upstreams: impl IntoIterator<Item = (&'a str, BudgetTerms<'a>)>) -> Stage {
    let played = |(script, terms)| (Arc::new(scripted(script)), terms);
    stage_over(upstreams.into_iter().map(played))
}

/// As [`stage`], over these transports.
fn stage_over<'a>(
    upstreams: impl IntoIterator<Item = (Arc<ScriptedTransport>, BudgetTerms<'a>)>,
) -> Stage {
    let tiers = [Tier::Primary, Tier::Fallback, Tier::Public];
    let places = (0..).map(Slot).zip(tiers);
    let upstreams = places.zip(upstreams).map(|((slot, tier), (transport, terms))| {
        let upstream = verified(Identity { tier, ..named_by(slot) }, slot);
        // Noon of a day in the middle of a month.
        let budget = Budget::new(None, &terms, 20_772 * 86_400 + 43_200);
        (upstream.within(budget), transport)
    });
    let mut stage = Stage::of(upstreams);
    stage.total = secs(5);
    stage
}

/// What a provider of the mind saw.
#[derive(Debug, Default)]
struct Seen {
    accepted: u64,
    accepted_late: u64,
    refused: u64,
    /// Of the answers late in the run: their sum.
    latency: Duration,
}

/// How it bounds us.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A bucket of so many calls that fills in a second; how a refusal looks.
    Bucket(f64, &'static str),
    /// So many a second, the others later.
    Shaper(f64),
}

/// A provider that does not tell its limit. What it sees from `late` on is measured.
#[derive(Debug)]
struct Provider {
    kind: Kind,
    latency: Duration,
    late: Instant,
    /// Credits and as of when; or when it is free again.
    state: Mutex<(f64, Instant)>,
    seen: Mutex<Seen>,
}

impl Provider {
    fn new(kind: Kind, latency: Duration, warm_up: Duration) -> Arc<Self> {
        let held = match kind {
            Kind::Bucket(size, _) => size,
            Kind::Shaper(_) => 0.0,
        };
        Arc::new(Self {
            kind,
            latency,
            late: now() + warm_up,
            state: Mutex::new((held, now())),
            seen: Mutex::default(),
        })
    }

    /// When the answer is due, and the word of it.
    fn meter(&self) -> (Instant, &'static str) {
        let (now, mut state) = (now(), self.state.lock());
        match self.kind {
            Kind::Bucket(size, refusal) => {
                let passed = now.duration_since(state.1).as_secs_f64();
                *state = ((state.0 + size * passed).min(size), now);
                if state.0 < 1.0 {
                    return (now + self.latency, refusal);
                }
                state.0 -= 1.0;
                (now + self.latency, "ok")
            }
            Kind::Shaper(per_second) => {
                let begin = state.1.max(now);
                state.1 = begin + Duration::from_secs_f64(1.0 / per_second);
                (begin + self.latency, "ok")
            }
        }
    }
}

impl Provider {
    async fn play(self: Arc<Self>) -> Result<WireReply, TransportError> {
        let began = now();
        let (due, word) = self.meter();
        tokio::time::sleep_until(due.into()).await;
        self.note(word == "ok", began);
        step(word).play(b"").await
    }

    /// Counts an answer to a call that came at `began`.
    fn note(&self, accepts: bool, began: Instant) {
        let mut seen = self.seen.lock();
        seen.refused += u64::from(!accepts);
        seen.accepted += u64::from(accepts);
        if accepts && now() >= self.late {
            seen.accepted_late += 1;
            seen.latency += now() - began;
        }
    }

    fn transport(self: &Arc<Self>) -> Arc<ScriptedTransport> {
        let provider = Arc::clone(self);
        Arc::new(ScriptedTransport::new(move |_| Act::run(Arc::clone(&provider).play())))
    }
}

/// Calls as they come, so many a second, whatever becomes of those before.
async fn open_loop(stage: Stage, per_second: u32, lasts: Duration) {
    let stage = Rc::new(stage);
    locally(async {
        let mut ticks = tokio::time::interval(secs(1) / per_second);
        let until = now() + lasts;
        while now() < until {
            ticks.tick().await;
            let stage = Rc::clone(&stage);
            tokio::task::spawn_local(async move { stage.run("eth_call").await });
        }
    })
    .await;
}

/// Clients that each have one call under way.
async fn closed_loop(stage: Stage, clients: usize, lasts: Duration) {
    let stage = Rc::new(stage);
    locally(async {
        for _ in 0..clients {
            let stage = Rc::clone(&stage);
            tokio::task::spawn_local(async move {
                loop {
                    let refused = stage.run("eth_call").await.result.is_err();
                    // A refusal takes no time, so a client waits before it asks again.
                    tokio::time::sleep(ms(if refused { 500 } else { 1 })).await;
                }
            });
        }
        tokio::time::sleep(lasts).await;
    })
    .await;
}

/// A provider of 125 calls/s that is not in the settings: used at 90 % or more, with less
/// than 1 % of refusals, the first ones included.
async fn check_bucket(refusal: &'static str, terms: BudgetTerms<'static>, demand: u32) {
    let provider = Provider::new(Kind::Bucket(125.0, refusal), ms(40), secs(10));
    let stage = stage_over([(provider.transport(), terms)]);
    open_loop(stage, demand, secs(120)).await;
    let seen = provider.seen.lock();
    let used = seen.accepted_late as f64 / (125.0 * 110.0);
    let sent = seen.accepted + seen.refused;
    let refused = seen.refused as f64 / sent as f64;
    println!(
        "{refusal} at {demand}/s: used {:.1} %, refused {:.2} % ({} of {sent})",
        used * 100.0,
        refused * 100.0,
        seen.refused
    );
    assert!(used >= 0.9, "{refusal} at {demand}/s: {used}");
    assert!(refused < 0.01, "{refusal} at {demand}/s: {refused}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_rate_is_found_from_429s() {
    check_bucket("429", terms(), 200).await;
    check_bucket("429", terms(), 500).await;
}

#[tokio::test(start_paused = true)]
async fn and_from_429s_that_ask_for_a_pause() {
    check_bucket("429+1", terms(), 200).await;
}

#[tokio::test(start_paused = true)]
async fn and_from_429s_in_a_200() {
    check_bucket("limit", terms(), 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_known_rate_is_kept() {
    let known = BudgetTerms { calls_per_second: Some(125), ..terms() };
    check_bucket("429", known, 300).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_shaper_is_driven_without_a_queue() {
    for (per_second, latency, clients) in [(250.0, ms(100), 200), (100.0, ms(200), 500)] {
        let provider = Provider::new(Kind::Shaper(per_second), latency, secs(30));
        let stage = stage_over([(provider.transport(), terms())]);
        closed_loop(stage, clients, secs(90)).await;
        let seen = provider.seen.lock();
        let used = seen.accepted_late as f64 / (per_second * 60.0);
        let times = seen.latency.as_secs_f64() / seen.accepted_late as f64 / latency.as_secs_f64();
        println!(
            "{per_second}/s at {latency:?}, {clients} clients: used {:.1} %, latency {times:.2} times the unloaded",
            used * 100.0
        );
        assert!(used >= 0.95, "{per_second}/s: {used}");
        assert!(times <= 2.0, "{per_second}/s: {times}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_held_is_passed_over_at_no_cost() {
    let one = BudgetTerms { calls_per_second: Some(1), ..terms() };
    let stage = stage([("", one), ("", terms())]);
    let told = [stage.run("eth_call").await, stage.run("eth_call").await];
    assert_eq!(stage.tell(&told[0]), r#"a=answer -> a "0x1""#);
    assert_eq!(stage.tell(&told[1]), r#"b=answer -> b "0x1""#);
    // Planned behind the next tier, as its wait is long; asked, it would have been held.
    assert_eq!(stage.exchanges(), [1, 1]);
    assert_eq!(stage.upstream(0).totals(), (1, 0));
}

/// A primary of 20 calls/s lets one go each 52.6 ms (0.95 of its rate, as the window slides).
/// Of calls that come together the first goes at once, the next waits for 53 ms and a third
/// would for 105 ms: that one is paid for.
#[tokio::test(start_paused = true)]
async fn a_cheaper_tier_is_waited_for_when_it_is_free_in_a_moment() {
    let twenty = BudgetTerms { calls_per_second: Some(20), ..terms() };
    let stage = stage([("", twenty), ("", terms())]);
    let began = now();
    let timed = async || {
        let told = stage.tell(&stage.run("eth_call").await);
        (told, (now() - began).as_millis())
    };
    let (first, second, third) = tokio::join!(timed(), timed(), timed());
    let told = |by: &str| format!(r#"{by}=answer -> {by} "0x1""#);
    assert_eq!(first, (told("a"), 0));
    assert_eq!(second, (told("a"), 53));
    assert_eq!(third, (told("b"), 0), "it would not have been served by then");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_waited_for_before_the_next_tier_is_paid() {
    for (pause, after, by) in [(99, 99, 'a'), (101, 0, 'b')] {
        let mut stage = stage([("", terms()), ("", terms())]);
        stage.throttle(0, ms(pause));
        let wait = stage.upstream(0).throttled_for(now()).expect("a pause");
        assert_eq!(wait, ms(pause));
        let began = now();
        let told = stage.tell(&stage.run("eth_call").await);
        assert_eq!(told, format!(r#"{by}=answer -> {by} "0x1""#), "{pause} ms");
        assert_eq!(now() - began, ms(after), "{pause} ms");
    }
}

/// Calls that bunch up, at 0.8 of what the primary lets go: what they cost at the next tier.
#[tokio::test(start_paused = true)]
async fn bunches_below_the_rate_of_a_tier_hardly_spill() {
    let hundred = BudgetTerms { calls_per_second: Some(100), ..terms() };
    let stage = stage([("", hundred), ("", terms())]);
    let mut rng = SmallRng::seed_from_u64(1);
    let stage = Rc::new(stage);
    let took = locally(async {
        let mut calls = Vec::new();
        for _ in 0..5_000 {
            let pause = -rng.random_range(f64::EPSILON..1.0).ln() / 76.0;
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            let stage = Rc::clone(&stage);
            calls.push(tokio::task::spawn_local(async move {
                let began = now();
                assert!(stage.run("eth_call").await.result.is_ok());
                now() - began
            }));
        }
        let mut took = Vec::new();
        for call in calls {
            took.push(call.await.expect("no panic"));
        }
        took.sort();
        took
    })
    .await;
    let spilled = stage.exchanges()[1];
    let (p50, p95) = (took[took.len() / 2], took[took.len() * 95 / 100]);
    println!("{spilled} of 5000 spilled; waited {p50:?} (p50), {p95:?} (p95)");
    assert!(spilled <= 250, "{spilled}");
    assert!(p95 < ms(110), "{p95:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_hold_is_noted_in_the_trail() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let stage = stage([("50ms~ok", one), ("", terms())]);
    let (_, second) = tokio::join!(stage.run("eth_call"), stage.run("eth_call"));
    assert_eq!(second.trail.holds.len(), 1);
    assert_eq!(second.trail.line(&stage.roster), "b=answer/result:0ms a=held/in_flight:1ms");
    assert_eq!(stage.upstream(0).held(Bound::InFlight), 1);
}

#[tokio::test(start_paused = true)]
async fn when_all_hold_it_the_call_waits_for_the_first() {
    let one = |calls| BudgetTerms { calls_per_second: Some(calls), ..terms() };
    let stage = stage([("", one(1)), ("", one(2))]);
    for expected in ["a", "b", "b"] {
        let told = stage.tell(&stage.run("eth_call").await);
        assert!(told.starts_with(expected), "{told}");
    }
    assert!(stage.upstream(1).held(Bound::Calls) >= 1);
}

/// `b` refused the method recently, so it is a last resort.
#[tokio::test(start_paused = true)]
async fn one_that_is_known_to_refuse_is_asked_only_when_the_others_hold_the_call_for_long() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let mut stage = stage([(&*"50ms~ok ".repeat(3), one), ("ok", terms())]);
    for class in [VerdictClass::Answer, VerdictClass::Unsupported] {
        settle(stage.upstream(1), "eth_call", class, Duration::ZERO);
    }
    for outcome in join_all((0..3).map(|_| stage.run("eth_call"))).await {
        assert_eq!(stage.tell(&outcome), r#"a=answer -> a "0x1""#);
    }
    assert_eq!(stage.exchanges(), [3, 0]);
    stage.throttle(0, secs(10));
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"b=answer -> b "0x1""#);
}

#[tokio::test(start_paused = true)]
async fn the_upstream_that_failed_is_followed_by_the_one_that_held_it() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let stage = stage([("ok internal", terms()), ("80ms~ok", one)]);
    // The first is for a: then b is busy while a fails.
    stage.run("eth_call").await;
    let busy = stage.upstream(1).admit(MethodTable::standard().row("eth_call"), 1, now());
    assert!(busy.is_ok());
    let (outcome, ()) = tokio::join!(stage.run("eth_call"), async {
        tokio::time::sleep(ms(20)).await;
        drop(busy);
    });
    assert_eq!(stage.tell(&outcome), r#"a=fault b=answer -> b "0x1""#);
}

/// Found by the simulation: upstreams that had failed were asked again until no attempt was left,
/// while a well one was busy for a moment.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_busy_for_a_moment_is_waited_for_whatever_others_say() {
    for (bad, free_after, told) in [
        ("internal", 20, r#"a=fault b=answer -> b "0x1""#),
        ("internal", 400, r#"b=answer -> b "0x1""#),
        ("missing", 20, r#"a=missing_data b=answer -> b "0x1""#),
    ] {
        let one = BudgetTerms { in_flight: Some(1), ..terms() };
        let script = format!("ok {}", format!("{bad} ").repeat(20));
        let stage = stage([(&*script, terms()), ("80ms~ok", one)]);
        // The first is for a: then b is busy while a fails.
        stage.run("eth_call").await;
        let row = MethodTable::standard().row("eth_call");
        let busy = stage.upstream(1).admit(row, 1, now());
        assert!(busy.is_ok());
        let (outcome, ()) = tokio::join!(stage.run("eth_call"), async {
            tokio::time::sleep(ms(free_after)).await;
            drop(busy);
        });
        let found = stage.tell(&outcome);
        assert!(found.ends_with(told), "{bad} {free_after}: {found}");
    }
}

/// Found by the simulation: an upstream that was known to be behind said that the block is
/// missing, and the client was told so, while the one that had it asked for a pause.
#[tokio::test(start_paused = true)]
async fn an_upstream_with_the_block_is_waited_for_whatever_those_behind_say() {
    for (word, heads, told) in [
        ("missing", [90, 100], r#"a=missing_data b=answer -> b "0x1""#),
        ("null", [90, 100], r#"a=null b=answer -> b "0x1""#),
        ("missing", [99, 100], r#"a=missing_data b=answer -> b "0x1""#),
        // One that had it and lacks it all the same is believed.
        ("missing", [100, 100], "a=missing_data -> a {"),
        ("null", [100, 100], "a=null -> a null"),
    ] {
        let mut stage = stage([(word, terms()), ("ok", terms())]);
        stage.heads = heads.to_vec();
        stage.throttle(1, secs(3));
        let found = stage.tell(&stage.run("eth_getBlockByNumber").await);
        assert!(found.starts_with(told), "{word} {heads:?}: {found}");
    }
}

/// Found by the simulation: one opinion of one upstream that failed was passed on, while
/// a well one was busy.
#[tokio::test(start_paused = true)]
async fn the_second_opinion_is_waited_for() {
    let mut stage = stage([("strange", terms()), ("ok", terms())]);
    stage.throttle(1, secs(3));
    assert_eq!(stage.tell(&stage.run("eth_call").await), r#"a=unknown b=answer -> b "0x1""#);
}

/// Found by the simulation: what the line had said of its own length was counted twice, and
/// calls were refused that would have had their turn.
#[tokio::test(start_paused = true)]
async fn the_length_of_the_line_is_counted_once() {
    let one = BudgetTerms { calls_per_second: Some(10), ..terms() };
    let mut stage = stage([("", one)]);
    stage.total = secs(5);
    // A little less than ten a second: four seconds for the last of them.
    let outcomes = join_all((0..40).map(|_| stage.run("eth_call"))).await;
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
}

/// Found by seed 5157 of the simulation: of two that hold a call the one with the shorter
/// line was forgotten, because it was the call's turn at the other, which would hold it for
/// minutes.
#[tokio::test(start_paused = true)]
async fn the_shorter_line_counts_whichever_upstream_holds_the_call() {
    let few = BudgetTerms { calls_per_second: Some(2), ..terms() };
    let mut stage = stage([("", few), ("", terms())]);
    stage.throttle(1, secs(100));
    stage.total = secs(5);
    let outcomes = join_all((0..4).map(|_| stage.run("eth_call"))).await;
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_is_refused_at_once() {
    let stage = stage([("429+60", terms())]);
    stage.run("eth_call").await;
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(now(), began, "no call waits in vain");
    assert_eq!(
        outcome.result.map(|_| ()),
        Err(Failure::Exhausted { class: VerdictClass::Throttled, retry_after: Some(secs(60)) })
    );
    assert_eq!(stage.exchanges(), [1], "what it asked for is respected");
    tokio::time::sleep(secs(60)).await;
    assert_eq!(stage.tell(&stage.run("eth_call").await), r#"a=answer -> a "0x1""#);
}

/// What the first upstream was asked for, in order.
fn methods(stage: &Stage) -> Vec<String> {
    stage.transports[0].arrivals().iter().map(Arrival::method).collect()
}

#[tokio::test(start_paused = true)]
async fn logs_wait_for_long_but_not_for_ever() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let mut stage = stage([(&*"50ms~ok ".repeat(240), one)]);
    stage.total = secs(30);
    // Twice as many calls as it can take, and two searches.
    let calls = (0..240)
        .map(|call| (if call == 3 || call == 4 { "eth_getLogs" } else { "eth_call" }, call * 25));
    let calls = calls.map(|(method, after)| {
        let stage = &stage;
        async move {
            tokio::time::sleep(ms(after)).await;
            stage.run(method).await
        }
    });
    join_all(calls).await;
    let sent = methods(&stage);
    let at: Vec<usize> = (0..sent.len()).filter(|at| sent[*at] == "eth_getLogs").collect();
    println!("searches at {at:?} of {}", sent.len());
    // Raised after 2 s, when 40 calls were answered and as many waited; the second follows
    // behind the calls that waited when the first had its turn.
    assert!((60..100).contains(&at[0]) && (120..180).contains(&at[1]), "{at:?} of {}", sent.len());
}

#[tokio::test(start_paused = true)]
async fn writes_go_before_calls_and_these_before_logs() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let stage = stage([("50ms~ok", one)]);
    let later = |method: &'static str, after: u64| {
        let stage = &stage;
        async move {
            tokio::time::sleep(ms(after)).await;
            stage.run(method).await
        }
    };
    tokio::join!(
        later("eth_call", 0),
        later("eth_getLogs", 1),
        later("debug_traceTransaction", 2),
        later("eth_getBalance", 3),
        later("eth_gasPrice", 4),
        later("eth_sendRawTransaction", 5),
    );
    assert_eq!(
        methods(&stage),
        [
            "eth_call",
            "eth_sendRawTransaction",
            "eth_getBalance",
            "eth_gasPrice",
            "eth_getLogs",
            "debug_traceTransaction"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses_and_its_last_gives_way_to_a_write() {
    let one = BudgetTerms { in_flight: Some(1), ..terms() };
    let mut stage = stage([("hang", one)]);
    stage.total = secs(4);
    let stage = Rc::new(stage);
    locally(async {
        let mut waiting = Vec::new();
        for _ in 0..=PLACES_MAX {
            let stage = Rc::clone(&stage);
            waiting.push(tokio::task::spawn_local(async move {
                stage.run("eth_getLogs").await.result.map(|_| ())
            }));
        }
        tokio::time::sleep(ms(1)).await;
        let began = now();
        let refused = stage.run("eth_getLogs").await.result.map(|_| ());
        let place = |bound| matches!(bound, Bound::Queue | Bound::InFlight);
        assert!(matches!(refused, Err(Failure::Held { bound, .. }) if place(bound)), "{refused:?}");
        assert_eq!(now(), began);
        let write = Rc::clone(&stage);
        let write = tokio::task::spawn_local(async move {
            write.run("eth_sendRawTransaction").await.result.map(|_| ())
        });
        tokio::time::sleep(ms(1)).await;
        assert!(!write.is_finished(), "it has a place");
        assert!(waiting[PLACES_MAX].is_finished(), "and the last has none");
        assert!(!waiting[PLACES_MAX - 1].is_finished());
    })
    .await;
}

/// A client with hundreds of calls in line is passed by others, call by call, and none of it is
/// for ever: of three clients each has every third turn.
#[tokio::test(start_paused = true)]
async fn clients_take_turns_in_line() {
    let [many, one, two] = [1, 2, 3].map(ClientId::V6);
    let bound = BudgetTerms { in_flight: Some(1), ..terms() };
    let provider = Provider::new(Kind::Shaper(1e9), ms(10), Duration::ZERO);
    let mut stage = stage_over([(provider.transport(), bound)]);
    stage.total = secs(6);
    let stage = Rc::new(stage);
    locally(async {
        let call = |client: ClientId| {
            let stage = Rc::clone(&stage);
            tokio::task::spawn_local(async move {
                let is_served = stage.run_for(client, "eth_call").await.result.is_ok();
                (is_served, now())
            })
        };
        let began = now();
        let crowd: Vec<_> = (0..400).map(|_| call(many)).collect();
        tokio::time::sleep(ms(1)).await;
        for turn in 0..20 {
            let asked = now();
            assert!(call(one).await.expect("no panic").0, "turn {turn}");
            assert!(now() - asked <= ms(31), "turn {turn}: {:?}", now() - asked);
        }
        // Two that come together, each with ten calls: neither waits for the crowd.
        let both: Vec<_> = (0..20).map(|n| call(if n % 2 == 0 { one } else { two })).collect();
        let asked = now();
        for call in both {
            let (is_served, at) = call.await.expect("no panic");
            assert!(is_served && at - asked <= ms(330), "{:?}", at - asked);
        }
        for call in crowd {
            assert!(call.await.expect("no panic").0);
        }
        assert_eq!(now() - began, ms(440 * 10), "no turn was lost");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_full_line_the_client_that_has_most_gives_way() {
    let bound = BudgetTerms { in_flight: Some(1), ..terms() };
    let mut stage = stage([("hang", bound)]);
    stage.total = secs(4);
    let stage = Rc::new(stage);
    locally(async {
        let call = |client: u64| {
            let stage = Rc::clone(&stage);
            let client = ClientId::V6(client);
            tokio::task::spawn_local(async move {
                stage.run_for(client, "eth_call").await.result.is_ok()
            })
        };
        let many: Vec<_> = (0..=PLACES_MAX).map(|_| call(1)).collect();
        tokio::time::sleep(ms(1)).await;
        let (one_more, other) = (call(1), call(2));
        tokio::time::sleep(ms(1)).await;
        assert!(one_more.is_finished(), "its client has all places");
        assert!(!other.is_finished(), "another client has a place");
        assert!(many[PLACES_MAX].is_finished(), "which was that of the last");
        assert!(!many[PLACES_MAX - 1].is_finished());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn logs_that_hang_leave_a_quarter_of_what_is_learnt_to_other_calls() {
    let script = format!("{} 1ms~ok 1ms~ok", ["hang"; 24].join(" "));
    let stage = stage([(&*script, terms())]);
    let began = now();
    let mut hanging = std::pin::pin!(join_all((0..30).map(|_| stage.run("eth_getLogs"))));
    for after in [1, 3_001] {
        let outcome = tokio::select! {
            _ = hanging.as_mut() => panic!("they ended"),
            outcome = async {
                tokio::time::sleep_until((began + ms(after)).into()).await;
                stage.run("eth_call").await
            } => outcome,
        };
        assert_eq!(stage.tell(&outcome), r#"a=answer -> a "0x1""#);
        assert_eq!((now() - began).as_millis(), u128::from(after) + 1);
    }
    assert!(stage.upstream(0).held(Bound::BulkyShare) > 0);
    assert_eq!(stage.upstream(0).held(Bound::LearntLimit), 0);
}

/// All the clients of a busy start come before anything was learnt of the upstream: none
/// of them is refused, and they are served in rounds of 32, 64, 128 and so on.
#[tokio::test(start_paused = true)]
async fn a_crowd_at_the_start_is_served() {
    for crowd in [32, 200, 1_000, 5_000] {
        let provider = Provider::new(Kind::Shaper(1e9), ms(200), Duration::ZERO);
        let mut stage = stage_over([(provider.transport(), terms())]);
        stage.total = secs(30);
        let began = now();
        let outcomes = join_all((0..crowd).map(|_| stage.run("eth_call"))).await;
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        let rounds = (f64::from(crowd) / 32.0 + 1.0).log2().ceil() as u32;
        println!("{crowd} calls after {:?}, {rounds} rounds", now() - began);
        assert!(now() - began <= ms(210) * rounds, "{crowd}: {:?}", now() - began);
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_day_moves_traffic_to_the_next_tier_and_ends() {
    let two = BudgetTerms { credits_per_day: Some(2), ..terms() };
    let stage = stage([("", two), ("", terms())]);
    for expected in ["a", "a", "b", "b"] {
        let told = stage.tell(&stage.run("eth_call").await);
        assert!(told.starts_with(expected), "{told}");
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::Spent);
    tokio::time::sleep(secs(43_200)).await;
    assert!(stage.tell(&stage.run("eth_call").await).starts_with('a'), "a new day");
}

#[tokio::test(start_paused = true)]
async fn beyond_a_cap_is_the_last_resort_where_the_settings_allow_it() {
    let one = BudgetTerms { credits_per_month: Some(1), ..terms() };
    let strict = stage([("", one.clone())]);
    strict.run("eth_call").await;
    assert_eq!(
        strict.run("eth_call").await.result.map(|_| ()),
        Err(Failure::EmptyPlan),
        "no bill without leave"
    );
    let lax = BudgetTerms { overspend: true, ..one };
    let stage = stage([("", lax), ("ok internal internal", terms())]);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(stage.tell(&stage.run("eth_call").await));
    }
    assert!(told[1].starts_with("b=answer"), "{told:?}");
    assert!(told[2].starts_with("b=fault a=answer"), "{told:?}");
    assert_eq!(stage.upstream(0).condition(now()), Condition::Overspent);
}
