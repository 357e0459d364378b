//! Second attempts: when they begin, which wins, what they may cost, and which upstream is left alone
//! after a stall.

mod support;

use std::time::Duration;

use support::{Stage, ms, settle};
use wellhead_dispatch::{Hedging, now};
use wellhead_eth::CostClass;
use wellhead_upstream::{Condition, VerdictClass};

/// Runs one call and compares how it went, which upstream was left, and how long it took.
async fn check(stage: &Stage, method: &str, told: &str, left: &str, took_ms: u64) {
    let began = now();
    let outcome = stage.run(method).await;
    let took = (now() - began).as_millis() as u64;
    let names: Vec<String> = outcome
        .trail
        .abandoned
        .iter()
        .map(|it| stage.roster.upstream(it.slot).identity().id.to_string())
        .collect();
    let seen = (stage.tell(&outcome), names.join(" "), took);
    assert_eq!(seen, (told.to_owned(), left.to_owned(), took_ms), "{method}");
}

/// Has the upstream at `place` answer `count` calls of the class in `millis` each.
fn measured(stage: &Stage, place: usize, method: &str, count: usize, millis: u64) {
    for _ in 0..count {
        settle(stage.upstream(place), method, VerdictClass::Answer, ms(millis));
    }
}

const B: &str = r#"b=answer -> b "0x1""#;

#[tokio::test(start_paused = true)]
async fn unmeasured_a_quarter_of_a_second_is_waited() {
    check(&Stage::new("hang | 30ms~ok"), "eth_call", B, "a", 280).await;
    check(&Stage::new("hang | 30ms~ok"), "eth_getLogs", B, "a", 1_030).await;
    check(&Stage::new("249ms~ok | ok"), "eth_call", r#"a=answer -> a "0x1""#, "", 249).await;
}

#[tokio::test(start_paused = true)]
async fn measured_its_own_slow_answers_say_when() {
    let stage = Stage::new("hang | 30ms~ok");
    measured(&stage, 0, "eth_call", 32, 8);
    measured(&stage, 1, "eth_call", 32, 100);
    // Never before the least delay.
    check(&stage, "eth_call", B, "a", 50).await;
    let stage = Stage::new("hang | 30ms~ok");
    measured(&stage, 0, "eth_call", 32, 80);
    measured(&stage, 1, "eth_call", 32, 100);
    let began = now();
    stage.run("eth_call").await;
    let took = now() - began;
    assert!((ms(110)..ms(131)).contains(&took), "80 ms, a quarter at most, and 30: {took:?}");
    let mut stage = Stage::new("hang | 30ms~ok");
    stage.bounds.hedging = Some(Hedging { delay_min: ms(5), delay_max: ms(60) });
    check(&stage, "eth_call", B, "a", 90).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_good_verdict_wins() {
    let a = r#"a=answer -> a "0x1""#;
    check(&Stage::new("300ms~ok | 100ms~ok"), "eth_call", a, "b", 300).await;
    check(&Stage::new("400ms~ok | 100ms~ok"), "eth_call", B, "a", 350).await;
    let b_failed = r#"b=fault a=answer -> a "0x1""#;
    check(&Stage::new("600ms~ok | connect"), "eth_call", b_failed, "", 600).await;
    let a_failed = r#"a=fault b=answer -> b "0x1""#;
    check(&Stage::new("300ms~500 | 100ms~ok"), "eth_call", a_failed, "", 350).await;
    let both = r#"b=fault a=fault c=answer -> c "0x1""#;
    check(&Stage::new("300ms~500 | connect | ok"), "eth_call", both, "", 300).await;
    let reverted = r#"b=reverted -> b {"code":3,"message":"execution reverted"}"#;
    check(&Stage::new("hang | revert"), "eth_call", reverted, "a", 250).await;
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_left_alone_has_company_too() {
    let c = r#"a=fault c=answer -> c "0x1""#;
    // It was asked after 250 ms and is alone after 300.
    check(&Stage::new("300ms~500 | hang | 30ms~ok"), "eth_call", c, "b", 530).await;
    // After 1 s, and after 1.2.
    check(&Stage::new("1200ms~500 | hang | 30ms~ok"), "eth_getLogs", c, "b", 2_030).await;
    let both = r#"a=fault c=fault d=answer -> d "0x1""#;
    // An upstream that fails at once is followed when the alarm rings again.
    check(&Stage::new("300ms~500 | hang | connect | ok"), "eth_call", both, "b", 750).await;
}

#[tokio::test(start_paused = true)]
async fn what_changes_something_never_has_company() {
    for method in
        ["eth_sendTransaction", "evm_mine", "eth_newPendingTransactionFilter", "no_such_method"]
    {
        let stage = Stage::new("3000ms~ok | ok");
        check(&stage, method, r#"a=answer -> a "0x1""#, "", 3_000).await;
        assert_eq!(stage.transports[1].count(), 0, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_fit_keep_company() {
    let stage = Stage::new("4000ms~ok | resting ok");
    check(&stage, "eth_call", r#"a=answer -> a "0x1""#, "", 4_000).await;
    let stage = Stage::new("4000ms~ok | ok").without_hedges();
    check(&stage, "eth_call", r#"a=answer -> a "0x1""#, "", 4_000).await;
    let mut stage = Stage::new("4000ms~ok | ok");
    stage.bounds.attempts_max = 1;
    check(&stage, "eth_call", r#"a=answer -> a "0x1""#, "", 4_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_hedge_goes_to_one_that_was_not_asked_before_one_that_had_its_pause() {
    let stage = Stage::new("limit limit limit | hang | 900ms~ok");
    let c = r#"a=throttled c=answer -> c "0x1""#;
    // The pause of the first is over by the time at which the second is given up on.
    measured(&stage, 1, "eth_call", 32, 1_500);
    measured(&stage, 2, "eth_call", 32, 3_000);
    check(&stage, "eth_call", c, "b", 1_900).await;
}

#[tokio::test(start_paused = true)]
async fn slow_queries_are_hedged_within_their_budget_and_rest_no_upstream() {
    // Each answers after 3 s; the other is no quicker, so that every hedge is in vain.
    let slow = "3000ms~ok ".repeat(200);
    let stage = Stage::new(&format!("{slow} | {slow}"));
    let began = now();
    let (mut extra, calls) = (0, 100);
    for _ in 0..calls {
        let outcome = stage.run("eth_getLogs").await;
        assert!(outcome.result.is_ok());
        extra += outcome.trail.exchanges() - 1;
    }
    let floor = (now() - began).as_secs();
    assert!(extra as u64 <= 32 + 5 + floor, "{extra} in {floor} s");
    for place in 0..2 {
        assert_eq!(stage.upstream(place).condition(now()), Condition::Ready);
    }
    // Nor do those that lose.
    let stage = Stage::new(&format!("{slow} | {}", "50ms~ok ".repeat(200)));
    for _ in 0..50 {
        assert!(stage.run("eth_getLogs").await.result.is_ok());
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
    assert_eq!(stage.upstream(0).totals().1, 0, "no failure was counted");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_slow_with_one_call_and_answers_others_is_not_stalled() {
    let stage = Stage::new(&format!("{} | {}", "hang ".repeat(50), "10ms~ok ".repeat(500)));
    for _ in 0..20 {
        assert!(stage.run("eth_call").await.result.is_ok());
        // Meanwhile it answers another call, a probe say.
        measured(&stage, 0, "eth_blockNumber", 1, 5);
        tokio::time::sleep(ms(40)).await;
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_stall_rests_its_upstream_and_frees_all_calls_that_wait_for_it() {
    let stage = Stage::new(&format!("{} | {}", "hang ".repeat(500), "20ms~ok ".repeat(900)));
    let began = now();
    // More than the hedges have budget for.
    let calls = (0..200).map(|_| async { (stage.run("eth_call").await, now()) });
    let mut slowest = Duration::ZERO;
    for (outcome, at) in futures_util::future::join_all(calls).await {
        assert!(outcome.result.is_ok(), "{}", stage.tell(&outcome));
        slowest = slowest.max(at - began);
    }
    // Some hedges at 250 ms; when the alarm rings again, a stall is seen and all go.
    assert!(slowest <= ms(600), "{slowest:?}");
    assert_eq!(stage.upstream(0).condition(now()), Condition::BreakerOpen);
    let problem = stage.upstream(0).last_problem().expect("told to the operator").text;
    assert!(problem.contains("silent while another upstream answered"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn when_all_are_silent_no_upstream_is_blamed_before_its_time() {
    let mut stage = Stage::new(&format!("{} | {}", "hang ".repeat(99), "hang ".repeat(99)));
    stage.total = ms(2_000);
    for _ in 0..10 {
        assert!(stage.run("eth_call").await.result.is_err());
    }
    // Our own network may be the reason: only the usual time-outs count, and here no
    // attempt had the time for one.
    for place in 0..2 {
        assert_eq!(stage.upstream(place).condition(now()), Condition::Ready);
    }
    assert!(stage.upstream(0).cost(CostClass::Call, now()) > 1e9, "but it looks slow");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_both_uncounted() {
    let stage = Stage::new("hang | hang");
    assert!(tokio::time::timeout(ms(900), stage.run("eth_call")).await.is_err());
    for place in 0..2 {
        assert_eq!(stage.upstream(place).in_flight(), 0);
        assert_eq!(stage.upstream(place).totals(), (1, 0));
    }
}
