//! How often the house asks: polls, probes, and an idle hour.

mod support;

use std::time::Duration;

use support::log::Lines;
use support::{BLOCK, Connector, Mood, Node, Stage, now, pass, seconds, settle};
use wellhead_chain::{Observation, Source};
use wellhead_eth::BlockNumber;
use wellhead_upstream::{Condition, Slot};
use wellhead_watch::{CallReason, Checks, PollPace};

async fn ready(node: &std::sync::Arc<Node>) -> Stage {
    let stage = Stage::following(node);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    stage
}

/// As `ready`, beside an upstream that stays well: nothing is urgent.
async fn ready_beside_another(node: &std::sync::Arc<Node>) -> Stage {
    let mut stage = Stage::new(Some(1), 2);
    stage.follow_all(&[node, &Node::new(1, BLOCK)], Checks::default());
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    stage
}

/// The first hour, with all that the start costs, and any later one: sixty calls at most.
/// The counters, which are what the metric tells, and the node's own log agree.
#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_sixty_calls_at_most_and_only_polls() {
    let node = Node::new(1, BLOCK);
    let began = now();
    let stage = ready(&node).await;
    assert_eq!(stage.asked(0), "verify=1 syncing=1 head=1 version=1");
    pass(seconds(3600)).await;
    assert_eq!(stage.asked(0), "verify=1 syncing=1 head=57 version=1");
    for _ in 0..3 {
        let before = stage.asked_in_all(0);
        pass(seconds(3600)).await;
        let asked = stage.asked_in_all(0) - before;
        assert!((57..=60).contains(&asked), "{asked}");
    }
    let seen = node.calls.lock().iter().filter(|call| call.at >= began).count();
    assert_eq!(u64::try_from(seen), Ok(stage.asked_in_all(0)));
    assert_eq!(stage.asked[0].credits(), stage.asked_in_all(0), "one credit a call");
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_no_more_when_something_is_wrong() {
    for mood in [
        Mood::Refuses,
        Mood::Hangs,
        Mood::Status(500),
        Mood::Status(418),
        Mood::Status(401),
        Mood::Status(429),
    ] {
        let node = Node::new(1, BLOCK);
        let stage = ready(&node).await;
        node.feel(mood.clone());
        for hour in 0..2 {
            let before = stage.asked_in_all(0);
            pass(seconds(3600)).await;
            let asked = stage.asked_in_all(0) - before;
            assert!((30..=60).contains(&asked), "{mood:?}, {hour}: {asked}, {}", stage.asked(0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_of_one_that_never_answers_costs_no_more() {
    for mood in [Mood::Refuses, Mood::Hangs, Mood::Status(401)] {
        let node = Node::new(1, BLOCK);
        node.feel(mood.clone());
        let stage = Stage::following(&node);
        pass(seconds(3600)).await;
        assert!(stage.asked_in_all(0) <= 60, "{mood:?}: {}", stage.asked(0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_of_one_that_lags_or_syncs_costs_no_more() {
    let (ahead, behind) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
    behind.chain.lock().0 -= 50;
    *behind.syncing.lock() = r#"{"currentBlock":"0x1","highestBlock":"0x3e8"}"#;
    let mut stage = Stage::new(Some(1), 2);
    stage.follow(&ahead, None);
    stage.follow(&behind, None);
    settle().await;
    assert_eq!(stage.condition(1), Condition::Syncing);
    let before = stage.asked_in_all(1);
    pass(seconds(3600)).await;
    let asked = stage.asked_in_all(1) - before;
    assert!(asked <= 60, "{asked} calls, {}", stage.asked(1));
    assert!(stage.asked[1].get(CallReason::Syncing) >= 4, "it is asked again: {}", stage.asked(1));
}

#[tokio::test(start_paused = true)]
async fn polls_follow_the_pace_of_the_chain_while_clients_ask() {
    for (block, pace, expected) in [
        (BLOCK, PollPace::default(), 43..=46),
        (seconds(2), PollPace::default(), 260..=275),
        (Duration::from_millis(1500), PollPace::default(), 345..=365),
        // Bounded on both sides.
        (Duration::from_millis(50), PollPace::default(), 2300..=2420),
        (seconds(40), PollPace::default(), 39..=41),
        // A bound from below that is above the one from above.
        (BLOCK, PollPace { poll_min: seconds(30), ..PollPace::default() }, 19..=21),
    ] {
        let node = Node::new(1, block);
        let mut stage = Stage::new(Some(1), 1);
        stage.follow_at(&node, None, pace);
        stage.busy_for(seconds(120), seconds(5)).await;
        let began = now();
        stage.busy_for(seconds(600), seconds(5)).await;
        let polls = node.calls_of("eth_getBlockByNumber", began).len();
        assert!(expected.contains(&polls), "{block:?}: {polls} polls in ten minutes");
        let behind = node.head() - stage.head(0).expect("a head");
        assert!(u128::from(behind) <= 1 + 31_000 / block.as_millis(), "{block:?}: {behind} behind");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_pace_below_the_bound_is_bounded_too() {
    let node = Node::new(1, BLOCK);
    let mut stage = Stage::new(Some(1), 1);
    let pace =
        PollPace { idle: Duration::from_millis(100), poll_min: seconds(5), ..PollPace::default() };
    stage.follow_at(&node, None, pace);
    pass(seconds(1)).await;
    let began = now();
    pass(seconds(600)).await;
    let polls = node.calls_of("eth_getBlockByNumber", began).len();
    assert!((112..=116).contains(&polls), "{polls}");
}

#[tokio::test(start_paused = true)]
async fn a_client_after_a_quiet_time_wakes_the_poll() {
    let node = Node::new(1, BLOCK);
    let stage = ready(&node).await;
    pass(seconds(50)).await;
    let began = now();
    stage.pulse.note_call(began);
    settle().await;
    assert_eq!(node.calls_of("eth_getBlockByNumber", began), [Duration::ZERO]);
    assert_eq!(stage.head(0), Some(node.head()));
}

#[tokio::test(start_paused = true)]
async fn a_busy_hour_costs_nothing_while_answers_to_clients_tell_the_head() {
    let node = Node::new(1, BLOCK);
    // Polls and blocks come at different moments, as they do in life.
    pass(seconds(5)).await;
    let stage = ready(&node).await;
    stage.busy_for(seconds(120), seconds(5)).await;
    let began = now();
    let asked = stage.asked_in_all(0);
    for _ in 0..3600 {
        stage.pulse.note_call(now());
        let seen = Observation::of_number(BlockNumber(node.head()));
        stage.heads.observe(Slot(0), seen, Source::Answer, now());
        pass(seconds(1)).await;
    }
    let polls = node.calls_of("eth_getBlockByNumber", began);
    assert!(polls.len() <= 1, "{polls:?}");
    assert!(stage.asked_in_all(0) - asked <= 1, "{}", stage.asked(0));
    // The answers stop to tell.
    let began = now();
    stage.busy_for(seconds(60), seconds(5)).await;
    assert!(node.calls_of("eth_getBlockByNumber", began).len() >= 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_rests_is_probed_with_its_chain_id_when_the_rest_ends() {
    let lines = Lines::collect();
    let node = Node::new(1, BLOCK);
    let stage = ready_beside_another(&node).await;
    stage.busy_for(seconds(13), seconds(1)).await;
    node.feel(Mood::Refuses);
    stage.busy_for(seconds(15), seconds(1)).await;
    assert!(stage.condition(0) > Condition::Ready, "the poll found it out");
    let (began, heads) = (now(), stage.asked[0].get(CallReason::Head));
    stage.busy_for(seconds(300), seconds(1)).await;
    let probes = node.calls_of("eth_chainId", began);
    assert!((8..=14).contains(&probes.len()), "a rest grows to 30 s: {probes:?}");
    assert_eq!(stage.asked[0].get(CallReason::Head), heads, "nothing else is asked meanwhile");
    assert_eq!(lines.with("WARN"), 1, "the first rest is a warning, the others are not: {lines:?}");
    node.feel(Mood::Well);
    stage.busy_for(seconds(32), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert_eq!(lines.with("INFO upstream recovered"), 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_as_another_chain_is_refused() {
    let node = Node::new(1, BLOCK);
    let stage = ready(&node).await;
    node.feel(Mood::Refuses);
    stage.busy_for(seconds(20), seconds(1)).await;
    *node.chain_id.lock() = 5;
    node.feel(Mood::Well);
    stage.busy_for(seconds(40), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::WrongChain);
    assert_eq!(stage.head(0), None);
    *node.chain_id.lock() = 1;
    stage.busy_for(seconds(61), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_is_tried_again_every_minute() {
    let lines = Lines::collect();
    let node = Node::new(1, BLOCK);
    let stage = ready_beside_another(&node).await;
    node.feel(Mood::Status(401));
    stage.busy_for(seconds(20), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::OutOfService);
    let began = now();
    stage.busy_for(seconds(600), seconds(1)).await;
    assert!((9..=10).contains(&node.calls_of("eth_chainId", began).len()));
    assert_eq!(lines.with("ERROR upstream refused the key"), 1, "{lines:?}");
    // Down while it is out of service: not at every tick either.
    node.feel(Mood::Refuses);
    let began = now();
    stage.busy_for(seconds(600), seconds(1)).await;
    let probes = node.calls_of("eth_chainId", began);
    assert!(probes.len() <= 27, "{probes:?}");
    node.feel(Mood::Well);
    stage.busy_for(seconds(61), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_says_nothing_is_not_repeated_at_every_tick() {
    let node = Node::new(1, BLOCK);
    let stage = ready_beside_another(&node).await;
    node.feel(Mood::Refuses);
    stage.busy_for(seconds(20), seconds(1)).await;
    // A page of 4xx is neither a success nor a failure.
    node.feel(Mood::Status(418));
    let began = now();
    stage.busy_for(seconds(600), seconds(1)).await;
    let probes = node.calls_of("eth_chainId", began);
    assert!((15..=30).contains(&probes.len()), "{probes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_was_reset_is_followed_down() {
    let node = Node::new(1, BLOCK);
    let stage = ready(&node).await;
    node.chain.lock().0 = 0;
    stage.busy_for(seconds(30), seconds(1)).await;
    let best = stage.heads.view().best.map(|head| head.number.0);
    assert_eq!(best, stage.head(0), "the best head does not stand on what is gone");
    assert!(best < Some(10), "{best:?}");
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_refused_costs_little() {
    let node = Node::new(1, BLOCK);
    let connector = std::sync::Arc::new(Connector::default());
    let mut stage = Stage::new(Some(1), 1);
    stage.follow(&node, Some(&connector));
    stage.busy_for(seconds(3600), seconds(5)).await;
    let opened = connector.opened.lock().len();
    assert!((12..=22).contains(&opened), "{opened} times in an hour");
}
