//! Reads that several upstreams must answer alike.

mod support;

use std::time::Duration;

use support::{Stage, ballot};
use wellhead_dispatch::{Ballot, Heard, Otherwise, now};

fn stage(scripts: &str, change: impl FnOnce(&mut Ballot)) -> Stage {
    let mut stage = Stage::new(scripts);
    let mut ballot = ballot();
    change(&mut ballot);
    stage.ballot = Some(ballot);
    stage
}

/// Runs a call over `scripts` and compares what is told of it.
async fn check(scripts: &str, change: impl FnOnce(&mut Ballot), expected: &str) {
    let stage = stage(scripts, change);
    let told = stage.tell(&stage.run("eth_call").await);
    assert_eq!(told, expected, "{scripts}");
}

#[tokio::test(start_paused = true)]
async fn as_many_as_must_agree_are_asked_at_once_and_no_more_when_they_do() {
    let stage = stage("30ms~ok | 90ms~ok | ok | ok", |_| {});
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=answer b=answer -> a "0x1""#);
    assert_eq!((now() - began).as_millis(), 90);
    assert_eq!(stage.exchanges(), [1, 1, 0, 0]);
    assert_eq!(outcome.trail.heard, Some(Heard { agreed: 2, heard: 2 }));
    assert!(outcome.trail.line(&stage.roster).ends_with(" agreed=2/2"));
}

#[tokio::test(start_paused = true)]
async fn one_that_contradicts_is_outvoted_and_counted() {
    for scripts in ["two | 5ms~ok | 9ms~ok", "9ms~ok | two | ok", "ok | 9ms~two | 2ms~ok"] {
        let stage = stage(scripts, |_| {});
        let outcome = stage.run("eth_call").await;
        let served = outcome.result.expect("two agree");
        assert!(
            matches!(&served.payload, wellhead_upstream::Payload::Result(it) if it == "\"0x1\"")
        );
        assert_eq!(outcome.trail.heard, Some(Heard { agreed: 2, heard: 3 }), "{scripts}");
        let liar = usize::from(!scripts.starts_with("two"));
        for place in 0..3 {
            let dissents = (u64::from(place == liar), 0);
            assert_eq!(stage.upstream(place).dissents(), dissents, "{scripts}: {place}");
            assert_eq!(stage.upstream(place).in_flight(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dispute_is_told_or_settled_as_the_settings_say() {
    let disputed = "Disputed { agreed: 1, heard: 3, agree: 2 }";
    check("ok | two | revert", |_| {}, &format!("a=answer b=answer c=reverted -> {disputed}"))
        .await;
    let most = |ballot: &mut Ballot| ballot.quorum.on_dispute = Otherwise::MostSaid;
    check("ok | two | revert", most, r#"a=answer b=answer c=reverted -> a "0x1""#).await;
    // With all of three, the third is not asked once two contradict each other.
    let all = |ballot: &mut Ballot| ballot.quorum.agree = 3;
    let stage = stage("ok | two | 50ms~ok", all);
    let outcome = stage.run("eth_call").await;
    let told = stage.tell(&outcome);
    assert_eq!(told, "a=answer b=answer -> Disputed { agreed: 1, heard: 2, agree: 3 }");
    assert_eq!(outcome.trail.abandoned.len(), 1);
    assert_eq!(stage.upstream(0).dissents(), (1, 0), "which one is right is not known");
    assert_eq!(stage.upstream(1).dissents(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_fails_is_replaced() {
    check("connect | ok | ok", |_| {}, r#"a=fault b=answer c=answer -> b "0x1""#).await;
    check("limit | ok | ok", |_| {}, r#"a=throttled b=answer c=answer -> b "0x1""#).await;
    check("missing | ok | ok", |_| {}, r#"a=missing_data b=answer c=answer -> b "0x1""#).await;
    // And asked again when no other upstream is left.
    check("closed ok | 9ms~ok", |_| {}, r#"a=fault b=answer a=answer -> b "0x1""#).await;
}

#[tokio::test(start_paused = true)]
async fn fewer_than_must_agree_are_told_or_served_as_the_settings_say() {
    let few = "TooFew { heard: 1, agree: 2 }";
    check("ok | resting ok", |_| {}, &format!("a=answer -> {few}")).await;
    let most = |ballot: &mut Ballot| ballot.quorum.on_low_participation = Otherwise::MostSaid;
    check("ok | resting ok", most, r#"a=answer -> a "0x1""#).await;
    // Without a single word it is told how they failed.
    let stage = stage("connect connect connect | connect connect connect", |_| {});
    let told = stage.tell(&stage.run("eth_call").await);
    assert!(told.contains("Exhausted { class: Fault"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_range_that_one_refuses_is_told_so_that_less_can_be_asked_for() {
    let stage = stage("ok | wide wide wide", |_| {});
    let told = stage.tell(&stage.run("eth_getLogs").await);
    assert!(told.starts_with("a=answer b=range_too_large -> b {"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn no_upstream_has_two_words() {
    let stage = stage("ok ok ok | resting ok", |_| {});
    let outcome = stage.run("eth_call").await;
    assert!(outcome.result.is_err());
    assert_eq!(stage.exchanges(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn one_that_says_nothing_is_not_waited_for() {
    let stage_of_three = stage("ok | hang | 30ms~ok", |_| {});
    let began = now();
    let outcome = stage_of_three.run("eth_call").await;
    assert_eq!(stage_of_three.tell(&outcome), r#"a=answer c=answer -> a "0x1""#);
    // As long as a second attempt waits, and the answer.
    assert_eq!((now() - began).as_millis(), 280);
    // Also where no call may be hedged: an upstream that may be heard may be asked.
    let stage_of_three = stage("ok | hang | 30ms~ok", |_| {}).without_hedges();
    let began = now();
    assert!(stage_of_three.run("eth_call").await.result.is_ok());
    assert_eq!((now() - began).as_millis(), 1_030);
    // With no other upstream, no longer than the settings say.
    let stage_of_two = stage("ok | hang", |_| {});
    let began = now();
    let outcome = stage_of_two.run("eth_call").await;
    assert_eq!(stage_of_two.tell(&outcome), "a=answer -> TooFew { heard: 1, agree: 2 }");
    assert_eq!((now() - began).as_millis(), 2_000);
    assert_eq!(stage_of_two.upstream(1).in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_waited_for() {
    let mut stage = stage("ok | ok", |_| {});
    stage.throttle(1, Duration::from_millis(700));
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=answer b=answer -> a "0x1""#);
    assert_eq!((now() - began).as_millis(), 700);
}

#[tokio::test(start_paused = true)]
async fn other_words_for_the_same_agree() {
    check("upper | lower", |_| {}, r#"a=answer b=answer -> a "0xAB""#).await;
    check("null | null", |_| {}, "a=null b=null -> a null").await;
    let told = r#"a=caller_fault b=caller_fault -> a {"code":-32602,"message":"missing value for required argument 1"}"#;
    check("caller | caller", |_| {}, told).await;
    let told = r#"a=reverted b=reverted -> a {"code":3,"message":"execution reverted"}"#;
    check("revert | revert", |_| {}, told).await;
}

#[tokio::test(start_paused = true)]
async fn the_largest_wins_where_each_knows_a_part() {
    let largest = |ballot: &mut Ballot| ballot.largest = true;
    let stage = stage("ok | two", largest);
    let outcome = stage.run("eth_getTransactionCount").await;
    assert_eq!(stage.tell(&outcome), r#"a=answer b=answer -> b "0x2""#);
    assert_eq!(stage.upstream(0).dissents(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_deadline() {
    let mut stage = stage("hang | hang | hang", |_| {});
    stage.total = Duration::from_secs(1);
    let began = now();
    assert!(stage.run("eth_call").await.result.is_err());
    assert_eq!(now() - began, Duration::from_secs(1));
    for place in 0..3 {
        assert_eq!(stage.upstream(place).in_flight(), 0);
    }
}
