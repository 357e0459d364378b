//! Time limits, what they do to an upstream's standing, and giving up in between.

mod support;

use std::time::Duration;

use support::{Stage, ms};
use wellhead_dispatch::{Failure, now};
use wellhead_eth::CostClass;
use wellhead_upstream::Condition;

/// Runs one call and compares how it ended and after how long.
async fn check(stage: &Stage, method: &str, told: &str, took: Duration) {
    let began = now();
    let outcome = stage.run(method).await;
    assert_eq!((stage.tell(&outcome).as_str(), now() - began), (told, took), "{method}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_hangs_is_left_after_the_attempts_time() {
    let stage = Stage::new("hang | ok").without_hedges();
    check(&stage, "eth_call", r#"a=fault b=answer -> b "0x1""#, ms(5_000)).await;
}

#[tokio::test(start_paused = true)]
async fn both_limits_hold_while_a_connection_is_set_up() {
    // A dial that never ends and heeds no deadline, again and again.
    let mut stage = Stage::new("dial dial dial dial | dial dial dial").without_hedges();
    stage.total = ms(12_000);
    check(&stage, "eth_call", "a=fault b=fault a=fault -> Deadline", ms(12_000)).await;
    let stage = Stage::new("dial | ok").without_hedges();
    check(&stage, "eth_call", r#"a=fault b=answer -> b "0x1""#, ms(5_000)).await;
    // Work that never lets its task rest does not hold up its own deadline.
    let stage = Stage::new("busy | ok").without_hedges();
    check(&stage, "eth_call", r#"a=fault b=answer -> b "0x1""#, ms(5_000)).await;
}

#[tokio::test(start_paused = true)]
async fn logs_and_traces_get_four_times_as_long() {
    let stage = Stage::new("18000ms~ok");
    check(&stage, "eth_getLogs", r#"a=answer -> a "0x1""#, ms(18_000)).await;
    let stage = Stage::new("18000ms~ok | ok").without_hedges();
    check(&stage, "eth_call", r#"a=fault b=answer -> b "0x1""#, ms(5_000)).await;
}

#[tokio::test(start_paused = true)]
async fn the_total_holds_whatever_hangs() {
    let mut stage = Stage::new("hang hang | hang hang | hang hang").without_hedges();
    stage.total = ms(12_000);
    check(&stage, "eth_call", "a=fault b=fault c=fault -> Deadline", ms(12_000)).await;
    let mut stage = Stage::new("4000ms~connect_timeout 4000ms~connect_timeout");
    stage.total = ms(6_000);
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(outcome.result.map(|_| ()), Err(Failure::Deadline));
    assert_eq!(now() - began, ms(6_000), "also while connecting");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_late_already_asks_no_upstream() {
    let mut stage = Stage::new("ok");
    stage.total = Duration::ZERO;
    check(&stage, "eth_call", " -> Deadline", Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_attempt_ends_with_the_total() {
    let mut stage = Stage::new("hang");
    stage.bounds.attempt = Duration::MAX;
    stage.total = ms(700);
    check(&stage, "eth_getLogs", "a=fault -> Deadline", ms(700)).await;
}

#[tokio::test(start_paused = true)]
async fn no_second_round_that_could_not_begin_in_time() {
    let mut stage = Stage::new("50ms~connect ok");
    stage.total = ms(50);
    let outcome = stage.run("eth_call").await;
    assert_eq!(outcome.trail.attempts.len(), 1);
    assert_eq!(outcome.result.map(|_| ()), Err(Failure::Deadline));
}

#[tokio::test(start_paused = true)]
async fn the_pause_before_the_second_round_is_short() {
    let stage = Stage::new("connect ok");
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=fault a=answer -> a "0x1""#);
    assert!(now() - began < ms(101), "{:?}", now() - began);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_hangs_looks_slow_and_rests() {
    let mut stage = Stage::new("hang hang hang");
    stage.bounds.attempts_max = 1;
    let upstream = stage.upstream(0);
    for told in 1..=3 {
        assert_eq!(upstream.condition(now()), Condition::Ready, "before hang {told}");
        stage.run("eth_call").await;
        let cost = upstream.cost(CostClass::Call, now());
        assert!(cost >= 4.9e9, "costs as much as it took: {cost}");
        // And for calls of a kind that was never measured there.
        assert!(upstream.cost(CostClass::Logs, now()) >= 4.9e9);
    }
    assert_eq!(upstream.condition(now()), Condition::BreakerOpen);
    assert_eq!(upstream.totals(), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_had_no_time_is_not_blamed() {
    let mut stage = Stage::new("hang hang hang hang");
    stage.bounds.attempts_max = 1;
    stage.total = ms(2_400);
    for _ in 0..4 {
        stage.run("eth_call").await;
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
    assert_eq!(stage.upstream(0).totals(), (4, 0));
    assert!(stage.upstream(0).cost(CostClass::Call, now()) >= 2.3e9, "but it looks slow");
    // Half of its time is enough to be blamed.
    let mut stage = Stage::new("hang hang hang");
    stage.bounds.attempts_max = 1;
    stage.total = ms(2_500);
    for _ in 0..3 {
        stage.run("eth_call").await;
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::BreakerOpen);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_no_trace_but_the_time() {
    let stage = Stage::new("hang");
    let upstream = stage.upstream(0);
    let gone = tokio::time::timeout(ms(3_000), stage.run("eth_call")).await;
    assert!(gone.is_err(), "dropped in the middle of the attempt");
    assert_eq!(upstream.in_flight(), 0);
    assert_eq!(upstream.totals(), (1, 0));
    assert_eq!(upstream.condition(now()), Condition::Ready);
    let cost = upstream.cost(CostClass::Call, now());
    assert!((3.0e9..3.1e9).contains(&cost), "an upstream that hangs must not look quick: {cost}");
}

#[tokio::test(start_paused = true)]
async fn an_impatient_client_does_not_make_an_upstream_look_quick() {
    let stage = Stage::new("hang");
    let before = stage.upstream(0).cost(CostClass::Call, now());
    let gone = tokio::time::timeout(Duration::from_nanos(1), stage.run("eth_call")).await;
    assert!(gone.is_err());
    let after = stage.upstream(0).cost(CostClass::Call, now());
    assert!(after >= before * 0.99, "{before} -> {after}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_in_flight_while_it_lasts() {
    let stage = Stage::new("40ms~ok");
    let upstream = stage.upstream(0);
    tokio::join!(async { stage.run("eth_call").await }, async {
        tokio::time::sleep(ms(20)).await;
        assert_eq!(upstream.in_flight(), 1);
    });
    assert_eq!(upstream.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_call_break_a_row_of_failures() {
    for word in ["revert", "caller", "missing", "null"] {
        let mut stage = Stage::new(&format!("500 500 {word} 500 500"));
        stage.bounds.attempts_max = 1;
        for _ in 0..5 {
            stage.run("eth_call").await;
        }
        assert_eq!(stage.upstream(0).condition(now()), Condition::Ready, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_trail_says_which_upstream_when_how_long_and_why() {
    let stage = Stage::new("30ms~connect | 200ms~ok");
    let outcome = stage.run("eth_call").await;
    let [first, second] = &outcome.trail.attempts[..] else { panic!("two attempts") };
    assert_eq!((first.after, first.took), (ms(0), ms(30)));
    assert_eq!(
        (first.rule, first.detail.as_str()),
        ("transport-connect", "could not connect: injected")
    );
    assert_eq!((second.after, second.took), (ms(30), ms(200)));
    assert_eq!((second.rule, second.detail.as_str()), ("result", ""));
    assert_eq!(
        outcome.trail.line(&stage.roster),
        "a=fault/transport-connect:30ms b=answer/result:200ms"
    );
}

#[tokio::test(start_paused = true)]
async fn the_wire_carries_our_id_the_method_and_the_params_as_written() {
    let stage = Stage::new("ok");
    stage.run("eth_call").await;
    let body = &stage.transports[0].bodies()[0];
    assert_eq!(body, r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":["0xab"]}"#);
}
