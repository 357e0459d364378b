//! newHeads over a feed: believed, refused, lost and found again.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Connector, Node, Stage, now, seconds, settle};
use wellhead_upstream::Condition;

const BLOCK: Duration = Duration::from_secs(12);

/// A client has just called: without one no feed is opened.
fn with_feed() -> (Arc<Node>, Arc<Connector>, Stage) {
    let stage = Stage::new(Some(1), 1);
    stage.pulse.note_call(now());
    (Node::new(1, BLOCK), Arc::new(Connector::default()), stage)
}

#[tokio::test(start_paused = true)]
async fn heads_of_a_feed_are_observed_and_no_poll_is_made() {
    let (node, connector, mut stage) = with_feed();
    let speaker = connector.prepare_good(1);
    stage.follow(&node, Some(&connector));
    settle().await;
    // Three blocks tell the pace of the chain.
    for number in 1001..1004 {
        speaker.head(number);
        settle().await;
        assert_eq!(stage.head(0), Some(number));
        stage.busy_for(BLOCK, seconds(3)).await;
    }
    let (began, asked) = (now(), stage.asked_in_all(0));
    for number in 1004..1054 {
        stage.busy_for(BLOCK, seconds(3)).await;
        speaker.head(number);
        settle().await;
        assert_eq!(stage.head(0), Some(number));
    }
    assert_eq!(node.calls_of("eth_getBlockByNumber", began), [], "ten minutes without a poll");
    assert_eq!(stage.asked_in_all(0), asked, "{}", stage.asked(0));
    assert_eq!(stage.asked[0].get(wellhead_watch::CallReason::Feed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_goes_deaf_is_helped_by_polls_and_opened_again() {
    let (node, connector, mut stage) = with_feed();
    let speaker = connector.prepare_good(1);
    let second = connector.prepare_good(1);
    stage.follow(&node, Some(&connector));
    settle().await;
    for number in 1001..1006 {
        speaker.head(number);
        stage.busy_for(BLOCK, seconds(3)).await;
    }
    let began = now();
    stage.busy_for(seconds(100), seconds(3)).await;
    assert_eq!(connector.opened.lock().len(), 1, "ten block times are waited for");
    assert!(node.calls_of("eth_getBlockByNumber", began).len() >= 5, "polls stand in");
    stage.busy_for(seconds(25), seconds(3)).await;
    assert_eq!(connector.opened.lock().len(), 2);
    second.head(2000);
    settle().await;
    assert_eq!(stage.head(0), Some(2000));
}

#[tokio::test(start_paused = true)]
async fn a_closed_feed_is_opened_again_with_growing_pauses_while_polling_goes_on() {
    let (node, connector, mut stage) = with_feed();
    let speaker = connector.prepare_good(1);
    stage.follow(&node, Some(&connector));
    settle().await;
    speaker.head(1001);
    settle().await;
    drop(speaker);
    let began = now();
    stage.busy_for(seconds(130), seconds(3)).await;
    let opened: Vec<u64> = connector
        .opened
        .lock()
        .iter()
        .filter(|at| **at >= began)
        .map(|at| (*at - began).as_secs())
        .collect();
    assert_eq!(opened, [1, 3, 7, 15, 31, 63, 127]);
    assert!(node.calls_of("eth_getBlockByNumber", began).len() >= 9);
    let speaker = connector.prepare_good(1);
    stage.busy_for(seconds(140), seconds(3)).await;
    speaker.head(3000);
    settle().await;
    assert_eq!(stage.head(0), Some(3000), "and is back");
}

#[tokio::test(start_paused = true)]
async fn a_feed_of_another_chain_takes_its_upstream_out() {
    let (node, connector, mut stage) = with_feed();
    let wrong = [connector.prepare_good(5), connector.prepare_good(5)];
    stage.follow(&node, Some(&connector));
    settle().await;
    assert_eq!(stage.condition(0), Condition::WrongChain);
    assert_eq!(stage.head(0), None);
    let problem = stage.upstreams[0].last_problem().expect("told to the operator");
    assert_eq!(problem.text, "its feed is on chain 5, expected chain 1");
    // It is not asked in circles, and not used in between.
    for _ in 0..110 {
        stage.busy_for(seconds(1), seconds(1)).await;
        assert_eq!(stage.condition(0), Condition::WrongChain);
    }
    assert_eq!(connector.opened.lock().len(), 2, "once a minute");
    drop(wrong);
    let good = [connector.prepare_good(1), connector.prepare_good(1)];
    stage.busy_for(seconds(61), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready, "both agree now");
    good[1].head(1500);
    settle().await;
    assert_eq!(stage.head(0), Some(1500));
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_refuses_the_opening_is_left_at_once() {
    for (first, second) in [
        (r#"{"id":1,"error":{"code":-32601,"message":"no"}}"#, r#"{"id":2,"result":"0x1"}"#),
        (r#"{"id":1,"result":"0x1"}"#, r#"{"id":2,"error":{"code":-32601,"message":"no"}}"#),
        (r#"{"id":1,"result":"one"}"#, r#"{"id":2,"result":"0x1"}"#),
    ] {
        let (node, connector, mut stage) = with_feed();
        let _speaker = connector.prepare(&[first, second]);
        stage.follow(&node, Some(&connector));
        stage.busy_for(Duration::from_millis(1500), seconds(1)).await;
        assert_eq!(connector.opened.lock().len(), 2, "opened again a second later: {first}");
        assert_eq!(stage.condition(0), Condition::Ready);
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_never_confirms_is_given_up() {
    let (node, connector, mut stage) = with_feed();
    let _speaker = connector.prepare(&["not json", r#"{"id":9,"result":true}"#]);
    stage.follow(&node, Some(&connector));
    stage.busy_for(seconds(10), seconds(1)).await;
    assert_eq!(connector.opened.lock().len(), 1);
    stage.busy_for(seconds(2), seconds(1)).await;
    assert_eq!(connector.opened.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_head_is_passed_over() {
    let (node, connector, mut stage) = with_feed();
    let speaker = connector.prepare_good(1);
    stage.follow(&node, Some(&connector));
    settle().await;
    for noise in ["", "[]", "{", r#"{"params":{"result":{"number":null}}}"#, r#"{"params":[]}"#] {
        speaker.say(noise);
    }
    speaker.head(1007);
    settle().await;
    assert_eq!(stage.head(0), Some(1007));
}
