//! What stays in the tier where the operator put it: raw transactions, hedges and second
//! opinions. Failing over does not.

mod support;

use std::time::Duration;

use support::{Stage, ballot, check_with, ms};
use wellhead_dispatch::{TierScope, now};

const SEND: &str = "eth_sendRawTransaction";
const B: &str = r#"b=answer -> b "0x1""#;

/// Sends a transaction over `scripts` and compares how the telling begins and which upstreams saw it.
async fn check_sent(scripts: &str, scope: TierScope, expected: &str, calls: &[usize]) -> Duration {
    let mut stage = Stage::new(scripts);
    stage.bounds.broadcast_tiers = scope;
    let began = now();
    let told = stage.tell(&stage.run(SEND).await);
    let took = now() - began;
    // Those that are not waited for are let finish.
    tokio::time::sleep(ms(100)).await;
    assert!(told.starts_with(expected), "{scripts}: {told}");
    assert_eq!(stage.exchanges(), calls, "{scripts}: {told}");
    took
}

#[tokio::test(start_paused = true)]
async fn a_transaction_stays_in_the_best_tier_that_is_well() {
    let best = TierScope::Best;
    check_sent("ok | fallback ok | public ok", best, "a=answer -> a", &[1, 0, 0]).await;
    check_sent("ok | 5ms~ok | fallback ok", best, "a=answer -> a", &[1, 1, 0]).await;
    check_sent("resting ok | fallback ok | fallback 5ms~ok", best, B, &[0, 1, 1]).await;
    check_sent("public ok | fallback ok", best, B, &[0, 1]).await;
    // A refusal is an answer.
    check_sent("funds | fallback ok", best, "a=transaction_rejected -> a {", &[1, 0]).await;
    check_sent("funds | funds | public ok", best, "a=transaction_rejected", &[1, 1, 0]).await;
    check_sent("ok | 5ms~ok | fallback 5ms~ok", TierScope::All, "a=answer -> a", &[1, 1, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_goes_to_the_next_tier_when_the_best_fails() {
    let best = TierScope::Best;
    check_sent("connect | fallback ok", best, &format!("a=fault {B}"), &[1, 1]).await;
    let both = r#"a=fault b=fault c=answer -> c "0x1""#;
    let scripts = "connect | 502 | fallback ok | fallback 5ms~ok | public ok";
    check_sent(scripts, best, both, &[1, 1, 1, 1, 0]).await;
    // Also where it does not take transactions at all.
    check_sent("unsupported | public ok", best, &format!("a=unsupported {B}"), &[1, 1]).await;
    // One that hangs has the time of an attempt.
    let took = check_sent("hang | fallback ok", best, &format!("a=fault {B}"), &[1, 1]).await;
    assert_eq!(took.as_secs(), 5);
    // No more than a call may have.
    let scripts = "502 | 502 | 502 | fallback 502 | fallback ok";
    check_sent(scripts, best, "a=fault b=fault c=fault d=fault", &[1, 1, 1, 1, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_holds_a_transaction_is_waited_for_a_moment() {
    for (pause, expected) in [(1, r#"a=answer -> a "0x1""#), (9, B)] {
        let mut stage = Stage::new("ok | fallback ok");
        stage.throttle(0, Duration::from_secs(pause));
        let began = now();
        assert_eq!(stage.tell(&stage.run(SEND).await), expected, "{pause} s");
        assert!(now() - began <= Duration::from_secs(2), "{:?}", now() - began);
    }
}

/// Runs a read over `scripts` and compares how it went and how long it took.
async fn check_read(scripts: &str, scope: TierScope, expected: &str, took: Duration) {
    let mut stage = Stage::new(scripts);
    stage.bounds.extra_tiers = scope;
    // What they said when the stage was set is past.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = now();
    let told = stage.tell(&stage.run("eth_call").await);
    assert_eq!((told.as_str(), now() - began), (expected, took), "{scripts}");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_goes_to_no_dearer_tier() {
    let a = r#"a=answer -> a "0x1""#;
    check_read("400ms~ok | fallback ok", TierScope::Best, a, ms(400)).await;
    check_read("400ms~ok | fallback ok", TierScope::All, B, ms(250)).await;
    check_read("400ms~ok | 30ms~ok | fallback ok", TierScope::Best, B, ms(280)).await;
    let c = r#"c=answer -> c "0x1""#;
    check_read("400ms~ok | fallback ok | 10ms~ok", TierScope::Best, c, ms(260)).await;
    // From a dearer tier to a cheaper one it may.
    let stage = Stage::new("ok | fallback 400ms~ok");
    stage.upstream(0).set_syncing(true);
    assert_eq!(stage.tell(&stage.run("eth_call").await), B);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_which_nothing_is_heard_goes_on_in_another_tier() {
    // Alone: after a second, and four times what a hedge waits for.
    check_read("hang | fallback 30ms~ok", TierScope::Best, B, ms(1_030)).await;
    check_read("900ms~ok | fallback ok", TierScope::Best, r#"a=answer -> a "0x1""#, ms(900)).await;
    // Where several wait, sooner.
    let hang = "hang ".repeat(9);
    let stage = Stage::new(&format!("{hang} | fallback"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = now();
    let calls = (0..4).map(|_| stage.run("eth_call"));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(stage.tell(&outcome), B);
    }
    assert!(now() - began <= ms(600), "{:?}", now() - began);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_healed_by_any_tier_at_once() {
    for (word, class) in [
        ("connect", "fault"),
        ("500", "fault"),
        ("404", "fault"),
        ("limit", "throttled"),
        ("missing", "missing_data"),
        ("unsupported", "unsupported"),
        ("strange", "unknown"),
        ("wide", "range_too_large"),
    ] {
        let expected = format!("a={class} {B}");
        check_read(&format!("{word} | public ok"), TierScope::Best, &expected, ms(0)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_opinion_on_a_null_is_had_in_its_tier() {
    let null = "a=null -> a null";
    check_read("null | fallback ok", TierScope::Best, null, ms(0)).await;
    check_read("null | fallback ok", TierScope::All, &format!("a=null {B}"), ms(0)).await;
    check_read("null | ok | fallback ok", TierScope::Best, &format!("a=null {B}"), ms(0)).await;
    // A failure in between is healed by none, as there is an answer.
    check_read("null | 502 | fallback ok", TierScope::Best, "a=null b=fault -> a null", ms(0))
        .await;
    check_read("502 | null | fallback ok", TierScope::Best, "a=fault b=null -> b null", ms(0))
        .await;
    // A null for a block that is there is a failure.
    let there = |stage: &mut Stage| stage.heads = vec![7, 7];
    let expected = format!("a=null {B}");
    check_with("eth_getBlockByNumber", "null | fallback ok", there, &expected).await;
}

/// Runs a read on which two of three must agree, and compares which upstreams were asked.
async fn check_quorum(scripts: &str, expected: &str, calls: &[usize]) {
    let mut stage = Stage::new(scripts);
    stage.ballot = Some(ballot());
    let told = stage.tell(&stage.run("eth_call").await);
    assert!(told.starts_with(expected), "{scripts}: {told}");
    assert_eq!(stage.exchanges(), calls, "{scripts}: {told}");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_is_of_the_best_tier_as_far_as_there_are_enough() {
    let both = r#"a=answer b=answer -> a "0x1""#;
    check_quorum("ok | 5ms~ok | fallback ok", both, &[1, 1, 0]).await;
    check_quorum("fallback ok | ok | 5ms~ok", r#"b=answer c=answer -> b "0x1""#, &[0, 1, 1]).await;
    // One is too few, one fails, one contradicts: another tier has a word.
    check_quorum("ok | fallback 5ms~ok", both, &[1, 1]).await;
    let failed = r#"a=fault b=answer c=answer -> b "0x1""#;
    check_quorum("502 | 5ms~ok | fallback 9ms~ok", failed, &[1, 1, 1]).await;
    let third = r#"a=answer b=answer c=answer -> a "0x1""#;
    check_quorum("ok | 5ms~two | fallback ok", third, &[1, 1, 1]).await;
    // One that is merely slow is not hedged there.
    check_quorum("ok | 900ms~ok | fallback ok", both, &[1, 1, 0]).await;
    check_quorum("ok | 900ms~ok | 10ms~ok | fallback ok", "a=answer c=answer", &[1, 1, 1, 0]).await;
}
