//! Raw transactions: to several at once, taken when one takes them.

mod support;

use std::time::Duration;

use support::{Stage, check, check_with};
use wellhead_dispatch::now;

const SEND: &str = "eth_sendRawTransaction";

#[tokio::test(start_paused = true)]
async fn it_goes_to_three_at_once_and_the_first_to_take_it_answers() {
    let stage = Stage::new("90ms~ok | 30ms~ok | 60ms~ok | ok");
    let began = now();
    let outcome = stage.run(SEND).await;
    assert_eq!(stage.tell(&outcome), r#"b=answer -> b "0x1""#);
    assert_eq!((now() - began).as_millis(), 30);
    assert_eq!(stage.exchanges(), [1, 1, 1, 0]);
    assert_eq!(outcome.trail.exchanges(), 3);
    // The others are let finish.
    assert_eq!(stage.upstream(0).in_flight(), 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.upstream(0).in_flight(), 0);
    assert!(stage.upstream(0).latency(now()).expect("measured") >= Duration::from_millis(80));
}

#[tokio::test(start_paused = true)]
async fn only_the_fit_and_only_as_many_as_the_settings_say() {
    for (most, expected) in [(1, [1, 0, 0, 0]), (2, [1, 1, 0, 0]), (9, [1, 1, 1, 0])] {
        let mut stage = Stage::new("ok | ok | ok | resting ok");
        stage.bounds.broadcast_max = most;
        stage.run(SEND).await;
        assert_eq!(stage.exchanges(), expected, "{most}");
    }
    // With none fit, one after another.
    let stage = Stage::new("resting ok | resting ok");
    assert!(stage.run(SEND).await.result.is_ok());
    assert_eq!(stage.exchanges().iter().sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_refusal_is_not_believed_while_another_may_take_it() {
    check(SEND, "nonce | 300ms~ok", "a=transaction_rejected b=answer -> b \"0x1\"").await;
    check(SEND, "nonce | 300ms~known", "a=transaction_rejected b=transaction_known -> b {").await;
    check(SEND, "nonce | 300ms~connect | ok", "a=transaction_rejected c=answer -> c").await;
    // But not for ever.
    let stage = Stage::new("nonce | hang | hang");
    let began = now();
    let outcome = stage.run(SEND).await;
    let told = stage.tell(&outcome);
    assert!(told.starts_with("a=transaction_rejected -> a {"), "{told}");
    assert_eq!((now() - began).as_millis(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_used_nonce_is_what_is_passed_on_since_it_can_be_looked_up() {
    for scripts in ["funds | nonce", "nonce | funds"] {
        let stage = Stage::new(scripts);
        let served = stage.run(SEND).await.result.expect("refused");
        assert_eq!(served.learnt, Some(wellhead_upstream::Learnt::MaybeMined), "{scripts}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_none_of_them_can_be_reached_the_next_is_asked() {
    let scripts = "connect | closed | 502 | ok";
    check(SEND, scripts, "a=fault b=fault c=fault d=answer -> d \"0x1\"").await;
    let two = |stage: &mut Stage| stage.bounds.broadcast_max = 2;
    check_with(SEND, scripts, two, "a=fault b=fault c=fault d=answer -> d \"0x1\"").await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_deadline() {
    let mut stage = Stage::new("hang | hang | hang");
    stage.total = Duration::from_secs(2);
    let began = now();
    assert!(stage.run(SEND).await.result.is_err());
    assert_eq!(now() - began, Duration::from_secs(2));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(stage.upstream(0).in_flight(), 0, "no task outlives the attempt's time");
}
