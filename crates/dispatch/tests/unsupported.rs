//! Methods that no upstream offers: told at once, and from memory afterwards.

mod support;

use std::time::Duration;

use support::{Stage, ballot, settle};
use wellhead_dispatch::{Failure, now};
use wellhead_upstream::VerdictClass;

/// A read that no upstream of a stage has answered before.
const METHOD: &str = "trace_block";

/// Runs a call and compares how the telling begins, that no time passed, and how many calls
/// each upstream had so far.
async fn check(stage: &Stage, method: &str, expected: &str, calls: &[usize]) {
    let began = now();
    let told = stage.tell(&stage.run(method).await);
    assert!(told.starts_with(expected), "told: {told}\nwant: {expected}");
    assert_eq!((now() - began, stage.exchanges()), (Duration::ZERO, calls.to_vec()), "{told}");
}

/// Has the upstream at `place` answer `METHOD` once.
fn offers(stage: &Stage, place: usize) {
    settle(stage.upstream(place), METHOD, VerdictClass::Answer, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_method_that_all_refuse_is_told_at_once_and_then_from_memory() {
    let all = "unsupported ".repeat(9);
    for (scripts, tried, calls) in [
        (all.clone(), "a=unsupported -> a {\"code\":-32601", vec![1]),
        (
            format!("{all} | {all} | {all}"),
            "a=unsupported b=unsupported c=unsupported -> a {\"code\":-32601",
            vec![1, 1, 1],
        ),
    ] {
        for method in [METHOD, "eth_protocolVersion", "eth_hashrate"] {
            let stage = Stage::new(&scripts);
            check(&stage, method, tried, &calls).await;
            for _ in 0..3 {
                check(&stage, method, " -> NotOffered", &calls).await;
            }
            // Other methods are not concerned.
            assert_ne!(stage.run("eth_chainId").await.trail.exchanges(), 0);
            // What was learnt is forgotten after a while.
            let before: Vec<usize> = stage.exchanges();
            tokio::time::sleep(Duration::from_secs(300)).await;
            let after: Vec<usize> = before.iter().map(|calls| calls + 1).collect();
            // In another order, as it is not known any more which is quick.
            check(&stage, method, "", &after).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_of_no_table_is_asked_for_each_time_and_told_at_once() {
    let stage = Stage::new("unsupported unsupported | unsupported unsupported");
    for calls in [[1, 1], [2, 2]] {
        check(&stage, "acme_unheardOf", "a=unsupported b=unsupported -> a {", &calls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn more_upstreams_than_attempts_are_asked_by_the_next_call() {
    let stage = Stage::new(&["unsupported"; 6].join(" | "));
    let began = now();
    for calls in [4, 6, 6] {
        stage.run(METHOD).await;
        assert_eq!((stage.exchanges().iter().sum::<usize>(), now()), (calls, began));
    }
    check(&stage, METHOD, " -> NotOffered", &[1; 6]).await;
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_all_upstreams_that_are_ready_ends_the_call() {
    // One that rests is the last resort, and after that is not waited for.
    let stage = Stage::new("unsupported | resting connect");
    check(&stage, METHOD, "a=unsupported b=fault -> a {", &[1, 1]).await;
    check(&stage, METHOD, " -> NotOffered", &[1, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_may_offer_it() {
    let stage = Stage::new("unsupported | 502 ok");
    let told = stage.tell(&stage.run(METHOD).await);
    assert_eq!(told, r#"a=unsupported b=fault b=answer -> b "0x1""#);
    // An upstream that refused is not asked, also where the other one fails.
    let told = stage.tell(&stage.run(METHOD).await);
    assert_eq!(told, r#"b=answer -> b "0x1""#);
    assert_eq!(stage.exchanges(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_seen_to_offer_it_is_waited_for() {
    let stage = Stage::new(&format!("unsupported | {}", "connect ".repeat(9)));
    offers(&stage, 1);
    let began = now();
    let told = stage.tell(&stage.run(METHOD).await);
    assert!(told.contains("b=fault b=fault"), "{told}");
    assert!(now() > began, "it may be well again in a moment");
    let stage = Stage::new("unsupported | resting ok");
    offers(&stage, 1);
    let told = stage.tell(&stage.run(METHOD).await);
    assert!(told.contains("b=answer"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn one_that_asked_for_a_pause_is_waited_for() {
    let stage = Stage::new("unsupported | 429+1 ok");
    let began = now();
    let told = stage.tell(&stage.run(METHOD).await);
    assert_eq!(told, r#"a=unsupported b=throttled b=answer -> b "0x1""#);
    assert_eq!((now() - began).as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_before_is_not_refused_from_memory_for_one_wrong_word() {
    let stage = Stage::new("unsupported ok");
    offers(&stage, 0);
    check(&stage, METHOD, "a=unsupported -> a {", &[1]).await;
    check(&stage, METHOD, "a=answer -> a", &[2]).await;
    // Two that are ten seconds apart are believed.
    let stage = Stage::new("unsupported unsupported");
    offers(&stage, 0);
    check(&stage, METHOD, "a=unsupported -> a {", &[1]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    check(&stage, METHOD, "a=unsupported -> a {", &[2]).await;
    check(&stage, METHOD, " -> NotOffered", &[2]).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_is_asked_again() {
    let stage = Stage::new("unsupported connect connect connect ok ok");
    check(&stage, METHOD, "a=unsupported -> a {", &[1]).await;
    // It rests, and its next answer shows that it is back.
    for _ in 0..6 {
        stage.run("eth_chainId").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(stage.tell(&stage.run(METHOD).await), r#"a=answer -> a "0x1""#);
}

#[tokio::test(start_paused = true)]
async fn where_several_must_agree_the_refusal_of_all_is_told_at_once_too() {
    let mut stage = Stage::new("unsupported | unsupported | unsupported");
    stage.ballot = Some(wellhead_dispatch::Ballot { is_final: false, ..ballot() });
    check(&stage, METHOD, "a=unsupported b=unsupported c=unsupported -> a {", &[1, 1, 1]).await;
    let began = now();
    let outcome = stage.run(METHOD).await;
    assert_eq!((outcome.result.err(), now()), (Some(Failure::NotOffered), began));
}
