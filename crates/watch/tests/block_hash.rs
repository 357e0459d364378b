//! Which upstreams are found to honour the hash of a block, and what finding out costs.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Mood, Node, Stage, error, not_found, now, pass, result, seconds};
use wellhead_kit::Step;
use wellhead_upstream::Slot;
use wellhead_watch::{Checks, Mode};

const BLOCK: Duration = Duration::from_secs(12);
const GETH: &str = "Geth/v1.14.12-stable/linux-amd64/go1.23";

/// Lets clients ask for states at new blocks for so long.
async fn busy_for(stage: &Stage, time: Duration) {
    let end = now() + time;
    while now() < end {
        stage.pulse.want_block_hashes(now());
        stage.busy_for(seconds(1), seconds(1)).await;
    }
}

fn honours(stage: &Stage) -> bool {
    stage.pulse.honouring_hashes().contains(Slot(0))
}

fn node(version: Option<&'static str>, no_block: Step) -> Arc<Node> {
    let node = Node::new(1, BLOCK);
    (*node.version.lock(), *node.no_block.lock()) = (version, no_block);
    node
}

async fn check(version: Option<&'static str>, no_block: Step, expected: bool) {
    let node = node(version, no_block.clone());
    let stage = Stage::following(&node);
    busy_for(&stage, seconds(5)).await;
    assert_eq!(honours(&stage), expected, "{version:?} {no_block:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_honours_hashes_when_it_refuses_one_that_no_block_has() {
    check(Some(GETH), not_found(), true).await;
    check(None, not_found(), true).await;
    // It answers for another block, or for none in a way that could be one.
    check(Some(GETH), result("\"0x1\""), false).await;
    check(Some(GETH), result("null"), false).await;
    // It does not understand a hash there.
    let cannot = "invalid argument 1: json: cannot unmarshal object into Go value of type string";
    check(Some(GETH), error(-32602, cannot), false).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_answer_for_the_height_of_a_hash_are_found_out_by_their_name() {
    // What anvil says to such a hash.
    let not_found = error(-32001, "Resource not found");
    check(Some("anvil/v1.2.3"), not_found.clone(), false).await;
    check(Some(GETH), not_found, true).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_while_no_call_could_use_it() {
    let node = node(Some(GETH), not_found());
    let stage = Stage::following(&node);
    stage.busy_for(seconds(60), seconds(1)).await;
    assert!(!stage.asked(0).contains("block_hash"), "{}", stage.asked(0));
    pass(seconds(31)).await;
    stage.pulse.want_block_hashes(now());
    pass(seconds(120)).await;
    assert!(!stage.asked(0).contains("block_hash"), "idle: {}", stage.asked(0));
}

#[tokio::test(start_paused = true)]
async fn with_checks_off_nothing_is_asked_and_ephemeral_checks_ask_once() {
    for (mode, expected) in [(Mode::Off, ""), (Mode::Ephemeral, "block_hash=2")] {
        let node = node(Some(GETH), not_found());
        let stage = Stage::checking(&node, Checks { mode, ..Checks::default() });
        busy_for(&stage, seconds(3600)).await;
        let asked = stage.asked(0);
        assert_eq!(asked.split(' ').rfind(|it| it.starts_with("block")).unwrap_or(""), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_is_asked_anew_and_the_old_one_only_for_its_name() {
    let node = node(Some(GETH), not_found());
    let stage = Stage::following(&node);
    let began = now();
    busy_for(&stage, seconds(3600)).await;
    assert!(honours(&stage));
    assert_eq!(node.calls_of("eth_getBalance", began).len(), 1);
    let versions = node.calls_of("web3_clientVersion", began).len();
    assert!((5..=7).contains(&versions), "{versions}: once in ten minutes");
    (*node.version.lock(), *node.no_block.lock()) = (Some("Other/v2"), result("\"0x1\""));
    busy_for(&stage, seconds(601)).await;
    assert!(!honours(&stage));
    assert_eq!(node.calls_of("eth_getBalance", began).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_rested_is_asked_anew_before_it_is_sent_a_hash() {
    let node = node(Some(GETH), not_found());
    let stage = Stage::following(&node);
    busy_for(&stage, seconds(5)).await;
    assert!(honours(&stage));
    node.feel(Mood::Refuses);
    busy_for(&stage, seconds(60)).await;
    // It comes back as another node, under the name that it had.
    *node.no_block.lock() = result("\"0x1\"");
    node.feel(Mood::Well);
    busy_for(&stage, seconds(60)).await;
    assert!(!honours(&stage));
}

#[tokio::test(start_paused = true)]
async fn one_that_could_not_say_is_asked_again_soon() {
    let node = node(Some(GETH), error(-32005, "rate limit exceeded"));
    let stage = Stage::following(&node);
    busy_for(&stage, seconds(5)).await;
    assert!(!honours(&stage));
    *node.no_block.lock() = not_found();
    busy_for(&stage, seconds(60)).await;
    assert!(honours(&stage));
}
