//! Several reads in one exchange with an upstream that takes long, or for ever.

mod support;

use support::{Stage, fail, ms};
use wellhead_dispatch::{BatchItem, now};
use wellhead_eth::MethodTable;

/// Sends three calls to the first upstream; by which rule they were judged, and after how
/// many milliseconds.
async fn batch(stage: &Stage) -> (&'static str, u128) {
    let row = MethodTable::standard().row("eth_call");
    let item = BatchItem { row, method: "eth_call", params: Some(b"[]") };
    // Its latencies were measured at the start of the stage.
    tokio::time::sleep(ms(1_000)).await;
    let began = now();
    let outcome = stage.run_batch(&[item; 3]).await;
    assert_eq!(outcome.verdicts.len(), 3);
    assert_eq!(stage.upstream(0).in_flight(), 0);
    (outcome.verdicts[0].rule, (now() - began).as_millis())
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_stalls_does_not_hold_a_batch() {
    // Nothing was measured: four times a quarter of a second.
    assert_eq!(batch(&Stage::new("hang | ok")).await, ("transport-timeout", 1_000));
    // No other upstream could do better.
    assert_eq!(batch(&Stage::new("hang")).await, ("transport-timeout", 5_000));
    assert_eq!(batch(&Stage::new("hang | resting")).await, ("transport-timeout", 5_000));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_merely_slow_is_waited_for() {
    // Scripts answer with a single reply, which is judged when it comes.
    assert_eq!(batch(&Stage::new("900ms~ok | ok")).await, ("batch-refused", 900));
    let stage = Stage::new("3000ms~ok 10ms~ok | ok");
    let other = async {
        tokio::time::sleep(ms(1_500)).await;
        stage.run("eth_call").await
    };
    let (told, other) = tokio::join!(batch(&stage), other);
    assert_eq!(stage.tell(&other), r#"a=answer -> a "0x1""#);
    assert_eq!(told, ("batch-refused", 3_000), "it was heard meanwhile");
}

#[tokio::test(start_paused = true)]
async fn what_batches_usually_take_says_when_it_is_too_long() {
    let stage = Stage::new("1100ms~ok | ok");
    for _ in 0..16 {
        stage.upstream(0).batch_took(ms(400));
    }
    assert_eq!(batch(&stage).await, ("batch-refused", 1_100));
    let stage = Stage::new("hang | ok");
    for _ in 0..16 {
        stage.upstream(0).batch_took(ms(50));
    }
    assert_eq!(batch(&stage).await, ("transport-timeout", 252));
    // An upstream that became slower is soon given the time.
    for _ in 0..16 {
        stage.upstream(0).batch_took(ms(252));
    }
    assert!(stage.upstream(0).slow_batch_after().expect("measured") >= ms(252));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_begins_to_rest_is_left() {
    let stage = Stage::new("hang | ok");
    let rests = async {
        tokio::time::sleep(ms(1_300)).await;
        fail(stage.upstream(0));
    };
    let (told, ()) = tokio::join!(batch(&stage), rests);
    // At the next look after 250 ms.
    assert_eq!(told, ("transport-timeout", 500));
}
