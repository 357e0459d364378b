//! Which blocks are safe and final: asked for while a client wants to know, and no longer.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Node, Stage, now, seconds};
use wellhead_chain::Tag;
use wellhead_eth::BlockHash;
use wellhead_kit::Arrival;
use wellhead_watch::CallReason;

const MS_250: Duration = Duration::from_millis(250);

/// Two nodes with these blocks, followed for a minute by a client that calls each second.
async fn stage(block_time: Duration) -> (Stage, Arc<Node>) {
    let nodes = [Node::new(1, block_time), Node::new(1, block_time)];
    let mut stage = Stage::new(Some(1), 2);
    nodes.iter().for_each(|node| stage.follow(node, None));
    stage.busy_for(seconds(60), seconds(1)).await;
    let [node, _] = nodes;
    (stage, node)
}

fn asked(stage: &Stage) -> u64 {
    stage.asked[0].get(CallReason::Finality)
}

fn mark(stage: &Stage, tag: Tag) -> Option<u64> {
    stage.heads.view().mark(tag).map(|mark| mark.number.0)
}

/// A client asks for tags each second for a minute: how far behind the node's own they stand
/// at most, and how many calls that took.
async fn check(block_time: Duration, late_max: u64, calls_max: u64) {
    let (stage, node) = stage(block_time).await;
    assert_eq!((asked(&stage), mark(&stage, Tag::Safe)), (0, None), "no call asked for them");
    let mut late = 0;
    for second in 0..60 {
        stage.pulse.note_tag(now());
        stage.busy_for(seconds(1), seconds(1)).await;
        let view = stage.heads.view();
        let number = |tag| view.mark(tag).expect("known within a second").number.0;
        let (safe, last) = (number(Tag::Safe), number(Tag::Finalized));
        let latest = view.latest.expect("known").number.0;
        assert!(last <= safe && safe <= latest, "{last} {safe} {latest} after {second} s");
        late = late.max(node.head() - 64 - last).max(node.head() - 32 - safe);
    }
    assert!(late <= late_max, "late by {late}");
    let calls = asked(&stage);
    assert!(calls <= calls_max, "{calls} calls");
    // Half a minute later no call needs to know what is safe, and soon nothing is asked at all.
    stage.busy_for(seconds(31), seconds(1)).await;
    let before = asked(&stage);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert!(asked(&stage) - before <= 4, "{} more calls", asked(&stage) - before);
    let before = asked(&stage);
    stage.pulse.note_tag(now());
    tokio::time::sleep(seconds(40)).await;
    let idle_from = asked(&stage);
    assert!(idle_from - before <= calls_max, "{} calls", idle_from - before);
    tokio::time::sleep(seconds(120)).await;
    assert_eq!(asked(&stage), idle_from, "no client calls");
}

#[tokio::test(start_paused = true)]
async fn while_a_client_asks_for_tags_they_are_a_few_blocks_old_at_most() {
    check(seconds(12), 5, 4).await;
    check(seconds(2), 5, 16).await;
    check(seconds(1), 6, 32).await;
    check(MS_250, 14, 62).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_cache_wants_to_know_is_what_is_final_alone() {
    let (stage, _) = stage(seconds(2)).await;
    stage.pulse.want_finality(now());
    stage.busy_for(seconds(200), seconds(1)).await;
    assert!(asked(&stage) <= 5, "{}", asked(&stage));
    assert!(mark(&stage, Tag::Finalized).is_some());
    assert_eq!(mark(&stage, Tag::Safe), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_know_the_tags_is_asked_ever_more_rarely() {
    let node = Node::new(1, seconds(1));
    *node.knows_tags.lock() = false;
    let stage = Stage::following(&node);
    for _ in 0..1_800 {
        stage.pulse.note_tag(now());
        stage.busy_for(seconds(1), seconds(1)).await;
    }
    assert!(asked(&stage) <= 24, "{}", asked(&stage));
    // A fault of a moment keeps nothing from being known.
    *node.knows_tags.lock() = true;
    for _ in 0..610 {
        stage.pulse.note_tag(now());
        stage.busy_for(seconds(1), seconds(1)).await;
    }
    assert!(node.head() - 64 - mark(&stage, Tag::Finalized).expect("known") <= 6);
}

/// Until the origin is known, a slow tier takes no answer that is final.
#[tokio::test(start_paused = true)]
async fn the_origin_is_asked_for_before_what_is_final() {
    let node = Node::new(1, seconds(1));
    *node.origin.lock() = format!(r#"{{"number":"0x1","hash":"{}"}}"#, BlockHash([1; 32]));
    let stage = Stage::following(&node);
    stage.pulse.want_origin();
    stage.pulse.want_finality(now());
    stage.busy_for(seconds(2), seconds(1)).await;
    assert_eq!(stage.pulse.origin(), Some(BlockHash([1; 32])));
    assert!(mark(&stage, Tag::Finalized).is_some());
    let calls = node.calls.lock();
    let first = |params: &str| {
        let of_these = |call: &Arrival| String::from_utf8_lossy(&call.body).contains(params);
        calls.iter().position(of_these).expect("asked")
    };
    assert!(first("\"0x1\"") < first("finalized"));
}
