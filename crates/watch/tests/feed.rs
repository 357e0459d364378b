//! newHeads over a feed: believed, refused, lost and found again.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{BLOCK, Connector, Node, Stage, now, seconds, settle};
use wellhead_upstream::Condition;

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
    let pending = r#"{"method":"eth_subscription","params":{"result":{"number":null}}}"#;
    let late = r#"{"jsonrpc":"2.0","id":2,"result":"0x1"}"#;
    for (number, noise) in (1007..).zip([
        ["", "[]"],
        ["{", r#"{"params":{"result":{"number":null}}}"#],
        [r#"{"params":[]}"#, "x"],
        // These can be read.
        [pending, late],
        [pending, late],
        [pending, late],
    ]) {
        noise.iter().for_each(|noise| speaker.say(noise));
        speaker.head(number);
        settle().await;
        assert_eq!(stage.head(0), Some(number));
        if number < 1010 {
            stage.busy_for(seconds(60), seconds(3)).await;
        }
    }
    assert_eq!(connector.opened.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn three_messages_in_a_minute_that_cannot_be_read_end_a_feed() {
    let (node, connector, mut stage) = with_feed();
    let (speaker, second) = (connector.prepare_good(1), connector.prepare_good(1));
    stage.follow(&node, Some(&connector));
    settle().await;
    for after in [0, 29, 29] {
        stage.busy_for(seconds(after), seconds(3)).await;
        assert!(!speaker.is_closed());
        speaker.say("<html>");
        settle().await;
    }
    assert!(speaker.is_closed());
    stage.busy_for(seconds(2), seconds(1)).await;
    second.head(2000);
    settle().await;
    assert_eq!(stage.head(0), Some(2000), "opened again a second later");
}

#[tokio::test(start_paused = true)]
async fn ids_that_come_back_as_text_are_ours() {
    for (first, second) in [("\"1\"", "\"2\""), ("\"0x1\"", "\"0x2\""), ("1", "\"2\"")] {
        let (node, connector, mut stage) = with_feed();
        let speaker = connector.prepare(&[
            &format!(r#"{{"id":{first},"result":"0x1"}}"#),
            &format!(r#"{{"id":{second},"result":"0x77"}}"#),
        ]);
        stage.follow(&node, Some(&connector));
        settle().await;
        speaker.head(1234);
        settle().await;
        assert_eq!(stage.head(0), Some(1234), "{first} {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_has_enough_of_us_is_left_alone_for_a_minute() {
    let limit = r#"{"jsonrpc":"2.0","id":2,"error":{"code":429,"message":"Too Many Requests"}}"#;
    let refusal = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}"#;
    let check = async |code: Option<u16>, answer: Option<&str>, away: u64| {
        let (node, connector, mut stage) = with_feed();
        let chain_id = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
        let speaker = connector.prepare(&[&[chain_id], answer.as_slice()].concat());
        stage.follow(&node, Some(&connector));
        settle().await;
        let began = now();
        if let Some(code) = code {
            speaker.close_with(code);
        }
        stage.busy_for(seconds(70), seconds(3)).await;
        let opened = connector.opened.lock();
        let again = opened.iter().find(|at| **at > began).expect("opened again");
        assert_eq!(
            (*again - began).as_millis().div_ceil(1_000),
            u128::from(away),
            "{code:?} {answer:?}"
        );
    };
    check(Some(1006), None, 1).await;
    check(Some(1001), None, 1).await;
    check(Some(1008), None, 60).await;
    check(Some(1013), None, 60).await;
    check(None, Some(refusal), 1).await;
    check(None, Some(limit), 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_feed_without_data_is_asked_for_some() {
    let block = seconds(300);
    let stage = Stage::new(Some(1), 1);
    stage.pulse.note_call(now());
    let (node, connector, mut stage) = (Node::new(1, block), Arc::new(Connector::default()), stage);
    let speaker = connector.prepare_good(1);
    stage.follow(&node, Some(&connector));
    settle().await;
    for number in 1001..1005 {
        speaker.head(number);
        stage.busy_for(seconds(30), seconds(3)).await;
    }
    let began = now();
    assert_eq!(speaker.calls_of("net_version", began), []);
    speaker.head(1005);
    for _ in 0..3 {
        stage.busy_for(seconds(51), seconds(3)).await;
        speaker.say(r#"{"jsonrpc":"2.0","id":"3","result":"1"}"#);
    }
    let asked: Vec<u64> =
        speaker.calls_of("net_version", began).iter().map(Duration::as_secs).collect();
    assert_eq!(asked, [50, 101, 152]);
    assert_eq!(stage.asked[0].pushed(), 5, "answers are not pushed");
    assert_eq!(stage.asked[0].get(wellhead_watch::CallReason::Feed), 2 + 3);
}
