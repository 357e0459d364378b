//! Which chain an upstream is on: asked first, believed, asked again.

mod support;

use std::time::Duration;
use support::log::Lines;
use support::{BLOCK, Mood, Node, Stage, now, pass, seconds, settle};
use wellhead_eth::{BlockHash, ChainId};
use wellhead_upstream::Condition;
use wellhead_watch::CallReason;

#[tokio::test(start_paused = true)]
async fn an_upstream_on_the_chain_is_used() {
    let node = Node::new(1, BLOCK);
    let mut stage = Stage::new(Some(1), 1);
    let pulse = std::sync::Arc::clone(&stage.pulse);
    let news = pulse.verified();
    stage.follow(&node, None);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert_eq!(stage.head(0), Some(1000));
    assert_eq!(stage.asked(0), "verify=1 syncing=1 head=1 version=1");
    assert!(tokio::time::timeout(Duration::ZERO, news).await.is_ok(), "a waiter is told");
}

#[tokio::test(start_paused = true)]
async fn one_on_another_chain_is_refused_said_once_and_asked_again() {
    let lines = Lines::collect();
    let (right, wrong) = (Node::new(1, BLOCK), Node::new(5, BLOCK));
    wrong.chain.lock().0 = 9_000_000;
    let mut stage = Stage::new(Some(1), 2);
    stage.follow(&right, None);
    stage.follow(&wrong, None);
    settle().await;
    assert_eq!(stage.condition(1), Condition::WrongChain);
    assert_eq!(stage.head(1), None);
    assert_eq!(stage.heads.view().best.map(|head| head.number.0), Some(1000));
    let problem = stage.upstreams[1].last_problem().expect("told to the operator");
    assert_eq!(problem.text, "it is on chain 5, expected chain 1");
    pass(seconds(190)).await;
    assert_eq!(stage.asked(1), "verify=4", "once a minute, and nothing but the chain id");
    assert_eq!(lines.with("ERROR upstream is on another chain"), 1, "{lines:?}");
    *wrong.chain_id.lock() = 1;
    pass(seconds(60)).await;
    assert_eq!(stage.condition(1), Condition::Ready, "its URL was mended");
}

#[tokio::test(start_paused = true)]
async fn the_first_to_answer_decides_where_no_id_is_given() {
    let (first, second) = (Node::new(137, BLOCK), Node::new(1, BLOCK));
    let mut stage = Stage::new(None, 2);
    stage.follow(&first, None);
    settle().await;
    assert_eq!(stage.pulse.chain_id(), Some(ChainId(137)));
    stage.follow(&second, None);
    settle().await;
    assert_eq!((stage.condition(0), stage.condition(1)), (Condition::Ready, Condition::WrongChain));
    assert_eq!(stage.pulse.chain_id(), Some(ChainId(137)));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_does_not_answer_is_asked_with_growing_pauses() {
    let lines = Lines::collect();
    let node = Node::new(1, BLOCK);
    node.feel(Mood::Refuses);
    let mut stage = Stage::new(Some(1), 1);
    let began = now();
    stage.follow(&node, None);
    pass(seconds(280)).await;
    assert_eq!(stage.condition(0), Condition::Unverified);
    let asked: Vec<u128> =
        node.calls_of("eth_chainId", began).iter().map(Duration::as_millis).collect();
    assert_eq!(
        asked,
        [0, 250, 750, 1750, 3750, 7750, 15_750, 31_750, 63_750, 127_750, 202_750, 277_750]
    );
    assert_eq!(lines.with("WARN upstream failed a probe: its breaker is open"), 1, "{lines:?}");
    assert_eq!(lines.with("WARN upstream did not report its chain id"), 1, "{lines:?}");
    node.feel(Mood::Well);
    pass(seconds(75)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn while_clients_wait_it_is_asked_every_second() {
    let node = Node::new(1, BLOCK);
    node.feel(Mood::Refuses);
    let stage = Stage::following(&node);
    pass(seconds(200)).await;
    let began = now();
    stage.pulse.note_call(began);
    settle().await;
    assert_eq!(node.calls_of("eth_chainId", began), [Duration::ZERO], "a client's call wakes");
    stage.busy_for(seconds(20), seconds(1)).await;
    let asked = node.calls_of("eth_chainId", began);
    assert!((20..=22).contains(&asked.len()), "{asked:?}");
    assert!(asked.windows(2).all(|two| two[1] - two[0] <= seconds(1)), "{asked:?}");
    // Nothing waits for one that is on another chain.
    node.feel(Mood::Well);
    *node.chain_id.lock() = 5;
    stage.busy_for(seconds(2), seconds(1)).await;
    let began = now();
    stage.busy_for(seconds(50), seconds(1)).await;
    assert!(node.calls_of("eth_chainId", began).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_progress_object_without_missing_blocks_is_not_syncing() {
    let node = Node::new(1, BLOCK);
    *node.syncing.lock() = r#"{"currentBlock":"0x0","highestBlock":"0x0","startingBlock":"0x0"}"#;
    let stage = Stage::following(&node);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn one_that_syncs_is_left_out_until_it_says_that_it_is_done() {
    let node = Node::new(1, BLOCK);
    *node.syncing.lock() = r#"{"currentBlock":"0x64","highestBlock":"0x3e8"}"#;
    let stage = Stage::following(&node);
    stage.busy_for(seconds(90), seconds(5)).await;
    assert_eq!(stage.condition(0), Condition::Syncing);
    assert_eq!(stage.asked[0].get(wellhead_watch::CallReason::Syncing), 2, "once a minute");
    // A moment's failure says nothing.
    node.feel(Mood::Only("eth_getBlockByNumber", 500));
    stage.busy_for(seconds(60), seconds(5)).await;
    assert_eq!(stage.condition(0), Condition::Syncing);
    node.feel(Mood::Well);
    *node.syncing.lock() = "false";
    stage.busy_for(seconds(61), seconds(5)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
}

#[tokio::test(start_paused = true)]
async fn one_without_eth_syncing_is_in_sync_and_has_no_problem() {
    let node = Node::new(1, BLOCK);
    *node.syncing.lock() = "\"what\"";
    let stage = Stage::following(&node);
    settle().await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert!(stage.upstreams[0].last_problem().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_origin_is_asked_for_once_where_it_is_wanted_and_again_after_a_rest() {
    let node = Node::new(1, BLOCK);
    let stage = Stage::following(&node);
    let hash = |byte: u8| BlockHash([byte; 32]);
    let block = |byte: u8| format!(r#"{{"number":"0x1","hash":"{}"}}"#, hash(byte));
    stage.pulse.want_finality(now());
    stage.busy_for(seconds(20), seconds(1)).await;
    let asked = stage.asked[0].get(wellhead_watch::CallReason::Finality);
    assert_eq!(stage.pulse.origin(), None, "nothing wants it");
    // It has no block 1 yet, and is asked again.
    stage.pulse.want_origin();
    stage.busy_for(seconds(20), seconds(1)).await;
    assert_eq!(stage.pulse.origin(), None);
    let more = stage.asked[0].get(wellhead_watch::CallReason::Finality) - asked;
    assert!((2..=4).contains(&more), "{more}");
    *node.origin.lock() = block(1);
    stage.busy_for(seconds(20), seconds(1)).await;
    assert_eq!(stage.pulse.origin(), Some(hash(1)));
    *node.origin.lock() = block(2);
    stage.busy_for(seconds(20), seconds(1)).await;
    assert_eq!(stage.pulse.origin(), Some(hash(1)), "it is not asked again");
    node.feel(Mood::Refuses);
    stage.busy_for(seconds(60), seconds(1)).await;
    node.feel(Mood::Well);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert_eq!(stage.pulse.origin(), Some(hash(2)), "what answers there now may be another");
}

/// The version is learnt once a verification, and again after a rest: another node may
/// answer then.
#[tokio::test(start_paused = true)]
async fn a_version_is_learnt_with_each_verification() {
    let node = Node::new(1, BLOCK);
    *node.version.lock() = Some("Geth/v1.17.5");
    let stage = Stage::following(&node);
    settle().await;
    let version = |stage: &Stage| stage.upstreams[0].client_version();
    assert_eq!(version(&stage).as_deref(), Some("Geth/v1.17.5"));
    stage.busy_for(seconds(600), seconds(1)).await;
    assert_eq!(stage.asked[0].get(CallReason::Version), 1, "clients cost no call");
    node.feel(Mood::Refuses);
    *node.version.lock() = Some("reth/v2.0.0");
    stage.busy_for(seconds(60), seconds(1)).await;
    assert_eq!(version(&stage).as_deref(), Some("Geth/v1.17.5"), "it says nothing else");
    node.feel(Mood::Well);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert_eq!(version(&stage).as_deref(), Some("reth/v2.0.0"));
    assert_eq!(stage.asked[0].get(CallReason::Version), 2);
}

/// It is a name for people and tools: an upstream that does not tell it is as well as before.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_tells_no_version_is_used() {
    let node = Node::new(1, BLOCK);
    *node.version.lock() = Some("\\u0000");
    let stage = Stage::following(&node);
    settle().await;
    stage.busy_for(seconds(600), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    assert_eq!(stage.upstreams[0].client_version(), None);
    assert!(!stage.upstreams[0].expects_client_version());
    assert_eq!(stage.asked[0].get(CallReason::Version), 1);
}

/// Has a running node change to another chain, `change` of its heads, and says how long it was
/// used after that; `None` where it still is after five minutes.
async fn used_after(change: impl Fn(&Node)) -> Option<Duration> {
    let node = Node::new(1, BLOCK);
    *node.lineage.lock() = Some('a');
    let stage = Stage::following(&node);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert_eq!(stage.condition(0), Condition::Ready);
    *node.chain_id.lock() = 5;
    change(&node);
    let began = now();
    for _ in 0..300 {
        stage.busy_for(seconds(1), seconds(1)).await;
        if stage.condition(0) == Condition::WrongChain {
            return Some(now() - began);
        }
    }
    None
}

/// A name that leads to another node by now: no call fails.
#[tokio::test(start_paused = true)]
async fn one_whose_chain_changes_while_it_runs_is_found_by_its_next_head() {
    let block_and_poll = BLOCK + seconds(3);
    let other_hashes = used_after(|node| *node.lineage.lock() = Some('b')).await;
    assert!(other_hashes.is_some_and(|after| after <= block_and_poll), "{other_hashes:?}");
    let behind = used_after(|node| node.chain.lock().0 = 10).await;
    assert!(behind.is_some_and(|after| after <= block_and_poll), "{behind:?}");
    let ahead = used_after(|node| node.chain.lock().0 = 9_000_000).await;
    assert!(ahead.is_some_and(|after| after <= block_and_poll), "{ahead:?}");
}

#[tokio::test(start_paused = true)]
async fn reorgs_cost_a_question_for_the_chain_id_a_minute_at_most() {
    let node = Node::new(1, BLOCK);
    *node.lineage.lock() = Some('a');
    let stage = Stage::following(&node);
    stage.busy_for(seconds(60), seconds(1)).await;
    let began = now();
    for minute in 0..10 {
        for lineage in ['b', 'a', 'c', 'a'] {
            *node.lineage.lock() = Some(lineage);
            stage.busy_for(seconds(15), seconds(1)).await;
        }
        assert_eq!(stage.condition(0), Condition::Ready, "minute {minute}");
    }
    let asked = node.calls_of("eth_chainId", began);
    assert!((5..=11).contains(&asked.len()), "{asked:?}");
}
