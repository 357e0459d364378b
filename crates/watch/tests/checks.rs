//! Checks that cost what the settings say: off, only while unwell, so many credits a day.
//! And the other end: all upstreams are dead, and one comes back.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::log::Lines;
use support::{BLOCK, Connector, Mood, Node, Stage, now, pass, seconds, settle};
use wellhead_chain::{Observation, Source};
use wellhead_eth::BlockNumber;
use wellhead_upstream::{Condition, Slot};
use wellhead_watch::{CallReason, CheckKind, Checks, FeedUse, Mode};

fn off() -> Checks {
    Checks { mode: Mode::Off, feed: FeedUse::Never, ..Checks::default() }
}

#[tokio::test(start_paused = true)]
async fn with_checks_off_nothing_is_asked_and_the_settings_are_believed() {
    let (node, connector) = (Node::new(5, BLOCK), Arc::new(Connector::default()));
    let mut stage = Stage::new(Some(1), 1);
    stage.follow_checking(&node, Some(&connector), off());
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready, "although it is on another chain");
    stage.busy_for(seconds(600), seconds(1)).await;
    pass(seconds(3600)).await;
    assert_eq!(stage.asked(0), "");
    assert!(node.calls.lock().is_empty() && connector.opened.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_checks_off_and_no_id_it_waits_for_another_upstream_to_tell_the_chain() {
    let (silent, teller) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
    let mut stage = Stage::new(None, 2);
    stage.follow_checking(&silent, None, off());
    pass(seconds(10)).await;
    assert_eq!(stage.condition(0), Condition::Unverified);
    stage.follow(&teller, None);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert!(silent.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_feed_may_be_listened_to_although_calls_are_off() {
    let (node, connector) = (Node::new(1, BLOCK), Arc::new(Connector::default()));
    let speaker = connector.prepare_good(1);
    let mut stage = Stage::new(Some(1), 1);
    let checks = Checks { feed: FeedUse::Always, ..off() };
    stage.pulse.note_call(now());
    stage.follow_checking(&node, Some(&connector), checks);
    settle().await;
    speaker.head(2000);
    settle().await;
    assert_eq!(stage.head(0), Some(2000));
    assert_eq!(stage.asked(0), "feed=2", "the chain id and the subscription");
    assert!(node.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_checks_off_a_feed_on_another_chain_is_believed_and_may_take_it_back() {
    let (node, connector) = (Node::new(1, BLOCK), Arc::new(Connector::default()));
    let _wrong = connector.prepare_good(5);
    let mut stage = Stage::new(Some(1), 1);
    stage.pulse.note_call(now());
    stage.follow_checking(&node, Some(&connector), Checks { feed: FeedUse::Always, ..off() });
    settle().await;
    assert_eq!(stage.condition(0), Condition::WrongChain);
    let (_verified, _followed) = (connector.prepare_good(1), connector.prepare_good(1));
    pass(seconds(63)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert!(node.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn ephemeral_checks_ask_at_the_start_and_while_it_is_unwell() {
    let node = Node::new(1, BLOCK);
    let checks = Checks { mode: Mode::Ephemeral, feed: FeedUse::Never, ..Checks::default() };
    let stage = Stage::checking(&node, checks);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert_eq!(stage.asked(0), "verify=1 version=1");
    pass(seconds(3600)).await;
    stage.busy_for(seconds(600), seconds(1)).await;
    assert_eq!(stage.asked(0), "verify=1 version=1", "nothing while it is well");
    // Clients find out that it is dead; probes find out that it is back.
    node.feel(Mood::Refuses);
    stage.fail(0);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert!(stage.asked[0].get(CallReason::Probe) >= 5, "{}", stage.asked(0));
    node.feel(Mood::Well);
    stage.busy_for(seconds(1), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    let before = stage.asked_in_all(0);
    pass(seconds(3600)).await;
    assert_eq!(stage.asked_in_all(0), before);
}

/// As an answer to a client tells it.
fn tell(stage: &Stage, place: u8, number: u64) {
    let seen = Observation::of_number(BlockNumber(number));
    stage.heads.observe(Slot(place), seen, Source::Answer, now());
}

fn lags(stage: &Stage, place: u8) -> bool {
    stage.heads.view().is_lagging(Slot(place), None)
}

/// Two upstreams, of which clients ask the first: the other one's head grows old.
#[tokio::test(start_paused = true)]
async fn one_that_is_not_followed_is_not_left_out_for_an_old_head() {
    for (mode, asked) in [(Mode::Ephemeral, "verify=1 head=1 version=1"), (Mode::Off, "")] {
        let (a, b) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
        let mut stage = Stage::new(Some(1), 2);
        let checks = Checks { mode, feed: FeedUse::Never, ..Checks::default() };
        stage.follow_checking(&a, None, checks);
        stage.follow_checking(&b, None, checks);
        settle().await;
        tell(&stage, 0, 900);
        tell(&stage, 1, 900);
        // So many blocks are not made at once.
        pass(seconds(6)).await;
        tell(&stage, 0, 1000);
        assert!(lags(&stage, 1), "{mode:?}");
        stage.busy_for(seconds(17), seconds(1)).await;
        assert!(!lags(&stage, 1), "{mode:?}: asked, or unknown");
        assert_eq!(stage.asked(1), asked, "{mode:?}");
        assert_eq!(stage.heads.view().best.map(|best| best.number.0 >= 1000), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn ephemeral_checks_ask_for_the_head_of_one_that_is_back() {
    let node = Node::new(1, BLOCK);
    let checks = Checks { mode: Mode::Ephemeral, feed: FeedUse::Never, ..Checks::default() };
    let stage = Stage::checking(&node, checks);
    settle().await;
    tell(&stage, 0, 7);
    stage.fail(0);
    stage.busy_for(seconds(3), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert_eq!(stage.asked(0), "verify=1 head=1 probe=1 version=2");
    assert_ne!(stage.head(0), Some(7));
}

#[tokio::test(start_paused = true)]
async fn only_the_calls_that_are_listed_are_made() {
    let node = Node::new(1, BLOCK);
    let calls = [CheckKind::Head].into_iter().collect();
    let stage = Stage::checking(&node, Checks { calls, ..Checks::default() });
    stage.busy_for(seconds(60), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    node.feel(Mood::Refuses);
    stage.busy_for(seconds(30), seconds(1)).await;
    assert!(stage.asked[0].get(CallReason::Probe) > 0);
    node.feel(Mood::Well);
    stage.busy_for(seconds(2), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready, "a head is a sign of life too");
    assert!(node.calls.lock().iter().all(|call| call.method() == "eth_getBlockByNumber"));
}

#[tokio::test(start_paused = true)]
async fn one_without_peers_is_left_out_where_that_is_asked() {
    let node = Node::new(1, BLOCK);
    *node.peers.lock() = 0;
    let calls = [CheckKind::ChainId, CheckKind::Head, CheckKind::Peers].into_iter().collect();
    let stage = Stage::checking(&node, Checks { calls, ..Checks::default() });
    settle().await;
    assert_eq!(stage.condition(0), Condition::Syncing);
    assert_eq!(stage.asked(0), "verify=1 peers=1 head=1");
    *node.peers.lock() = 3;
    stage.busy_for(seconds(61), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn when_the_credits_of_a_day_are_spent_nothing_is_asked_until_the_next() {
    let lines = Lines::collect();
    let node = Node::new(1, BLOCK);
    let checks = Checks { credits_per_day: Some(20), ..Checks::default() };
    let stage = Stage::checking(&node, checks);
    stage.busy_for(seconds(3600), seconds(1)).await;
    assert_eq!(stage.asked[0].credits(), 20);
    assert_eq!(stage.condition(0), Condition::Ready, "that is no reason to leave it out");
    assert_eq!(lines.with("WARN today's credits for checks"), 1, "{lines:?}");
    // It dies. Nothing probes, so a client's call may try when its rest is over.
    stage.fail(0);
    assert!(!stage.upstreams[0].takes_trial(now()));
    stage.busy_for(seconds(2), seconds(1)).await;
    assert_eq!(stage.asked[0].credits(), 20);
    assert!(stage.upstreams[0].takes_trial(now()));
    stage.busy_for(seconds(23 * 3600), seconds(10)).await;
    assert!(stage.asked[0].credits() > 20, "a new day");
    assert!(stage.asked[0].credits() <= 40);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_asked_any_more_is_trusted_where_the_chain_is_known() {
    let node = Node::new(1, BLOCK);
    node.feel(Mood::Refuses);
    let checks = Checks { credits_per_day: Some(5), ..Checks::default() };
    let stage = Stage::checking(&node, checks);
    pass(seconds(120)).await;
    assert_eq!(stage.asked(0), "verify=5");
    assert_ne!(stage.condition(0), Condition::Unverified, "clients find out how it is");
}

/// All are dead for a minute while clients ask; then one comes back.
async fn check_recovery(mood: Mood, well_after_ms: u64) {
    let (a, b) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
    let mut stage = Stage::new(Some(1), 2);
    stage.follow_all(&[&a, &b], Checks::default());
    settle().await;
    a.feel(mood.clone());
    b.feel(mood.clone());
    // Failures of calls do not count here: only probes and polls find out.
    stage.busy_for(seconds(60), seconds(1)).await;
    assert!(stage.condition(0) > Condition::Ready && stage.condition(1) > Condition::Ready);
    pass(Duration::from_millis(well_after_ms)).await;
    b.feel(Mood::Well);
    stage.busy_for(Duration::from_millis(1000), Duration::from_millis(100)).await;
    assert_eq!(stage.condition(1), Condition::Ready, "{mood:?} {well_after_ms}");
    assert!(stage.condition(0) > Condition::Ready);
    // From then on the other one is in no hurry.
    let before = stage.asked_in_all(0);
    stage.busy_for(seconds(60), seconds(1)).await;
    let asked = stage.asked_in_all(0) - before;
    assert!(asked <= 20, "{mood:?}: {asked} probes in a minute");
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_back_first_is_found_within_a_second() {
    for mood in [Mood::Refuses, Mood::Hangs, Mood::Status(500)] {
        for well_after_ms in [0, 137, 333, 499, 750, 901] {
            check_recovery(mood.clone(), well_after_ms).await;
        }
    }
}

/// Found by seed 5496 of the simulation: a poll that hung kept the upstream from being
/// probed for five seconds.
#[tokio::test(start_paused = true)]
async fn a_poll_that_hangs_keeps_no_probe_from_being_sent() {
    let node = Node::new(1, BLOCK);
    let mut stage = Stage::new(Some(1), 1);
    stage.follow_all(&[&node], Checks::default());
    settle().await;
    stage.busy_for(seconds(5), Duration::from_millis(100)).await;
    let calls = node.calls.lock().len();
    node.feel(Mood::Hangs);
    while node.calls.lock().len() == calls {
        stage.busy_for(Duration::from_millis(100), Duration::from_millis(100)).await;
    }
    // The poll hangs; a client's call finds out that it is down, and it comes back.
    stage.fail(0);
    stage.busy_for(Duration::from_millis(1500), Duration::from_millis(100)).await;
    assert!(stage.condition(0) > Condition::Ready);
    node.feel(Mood::Well);
    stage.busy_for(Duration::from_millis(1000), Duration::from_millis(100)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn what_hung_before_a_recovery_does_not_end_it() {
    let node = Node::new(1, BLOCK);
    let mut stage = Stage::new(Some(1), 1);
    stage.follow_all(&[&node], Checks::default());
    settle().await;
    node.feel(Mood::Hangs);
    stage.busy_for(seconds(60), seconds(1)).await;
    node.feel(Mood::Well);
    stage.busy_for(seconds(1), Duration::from_millis(100)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    // The probes that hung would time out in these seconds.
    for _ in 0..60 {
        stage.busy_for(Duration::from_millis(100), Duration::from_millis(100)).await;
        assert_eq!(stage.condition(0), Condition::Ready);
    }
}

#[tokio::test(start_paused = true)]
async fn while_all_are_dead_and_no_client_asks_there_is_no_hurry() {
    let (a, b) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
    let mut stage = Stage::new(Some(1), 2);
    stage.follow_all(&[&a, &b], Checks::default());
    settle().await;
    a.feel(Mood::Refuses);
    b.feel(Mood::Refuses);
    let before = stage.asked_in_all(0);
    pass(seconds(3600)).await;
    assert!(stage.asked_in_all(0) - before <= 60);
    // A client comes: it is found out at once how they are.
    b.feel(Mood::Well);
    stage.pulse.note_call(now());
    settle().await;
    assert_eq!(stage.condition(1), Condition::Ready);
}
