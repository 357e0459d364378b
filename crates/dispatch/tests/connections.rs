//! Connections to an upstream: there are so many, and calls that hang hold them.

mod support;

use std::future::Future;

use futures_util::future::join_all;
use support::{Stage, ms};
use wellhead_dispatch::{Outcome, now};
use wellhead_upstream::{Bound, Condition};

/// The outcome of a call that is made 1 ms after these, which have not ended by then.
async fn beside(
    stage: &Stage,
    hanging: impl Future<Output = Vec<Outcome>>,
    method: &str,
) -> Outcome {
    let later = async {
        tokio::time::sleep(ms(1)).await;
        stage.run(method).await
    };
    tokio::select! {
        outcomes = hanging => panic!("they ended: {outcomes:?}"),
        outcome = later => outcome,
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_connection_asks_another_upstream_at_once() {
    let stage = Stage::pooled("hang hang | 1ms~ok", 2);
    let (began, hanging) = (now(), join_all((0..2).map(|_| stage.run("eth_call"))));
    let outcome = beside(&stage, hanging, "eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"b=answer -> b "0x1""#);
    assert_eq!((now() - began).as_millis(), 2);
    assert_eq!(stage.upstream(0).held(Bound::Connections), 1);
}

/// The other upstream is down, and all connections to this one are held by a call that hangs. A
/// wait that were part of the attempt would end when the connection comes free, with a failure
/// of an upstream that answers.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_connection_is_no_attempt_and_no_upstream_is_blamed_for_it() {
    let down = ["connect"; 9].join(" ");
    let stage = Stage::pooled(&format!("hang 10ms~ok 10ms~ok | resting {down}"), 1);
    let began = now();
    let first = async { vec![stage.run("eth_call").await] };
    let later = async {
        tokio::time::sleep(ms(1)).await;
        stage.run("eth_call").await
    };
    let (first, later) = tokio::join!(first, later);
    assert!(stage.tell(&later).ends_with(r#"a=answer -> a "0x1""#), "{}", stage.tell(&later));
    assert!(stage.tell(&first[0]).ends_with(r#"-> a "0x1""#), "{}", stage.tell(&first[0]));
    assert!((now() - began).as_millis() < 6_000, "{:?}", now() - began);
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
    assert_eq!(stage.upstream(0).totals().1, 1, "only the call that hung is a failure");
}

#[tokio::test(start_paused = true)]
async fn logs_that_hang_leave_half_of_the_connections_to_other_calls() {
    let stage = Stage::pooled("hang hang 1ms~ok 1ms~ok", 4);
    let began = now();
    let hanging = join_all((0..4).map(|_| stage.run("eth_getLogs")));
    let mut hanging = std::pin::pin!(hanging);
    let outcome = beside(&stage, hanging.as_mut(), "eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=answer -> a "0x1""#);
    assert_eq!((now() - began).as_millis(), 2);
    let held = |bound| stage.upstream(0).held(bound);
    assert_eq!((held(Bound::BulkyShare), held(Bound::Queue)), (2, 0), "it holds their kind alone");
    // Nor does one of them stand before others once it has waited for long.
    let outcome = tokio::select! {
        outcomes = hanging.as_mut() => panic!("they ended: {outcomes:?}"),
        outcome = async {
            tokio::time::sleep(ms(4_000)).await;
            stage.run("eth_call").await
        } => outcome,
    };
    assert_eq!(stage.tell(&outcome), r#"a=answer -> a "0x1""#);
    assert_eq!((now() - began).as_millis(), 4_003);
    assert_eq!(held(Bound::Queue), 0);
}
