//! A disk behind the memory: what comes back after a restart, and what must not.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use support::{Plan, Stage, body_of, check_kept, hash, text};
use tempfile::TempDir;
use wellhead_dispatch::Quorum;
use wellhead_eth::BlockHash;
use wellhead_kit::result;
use wellhead_proxy::{Answer, Level, QuorumRule, Sweeper, Tiers, VerifySettings};
use wellhead_store::{Disk, DiskBounds};
use wellhead_upstream::Slot;

const BLOCK: &str = "eth_getBlockByNumber";

/// A disk may be as slow as a busy machine likes.
const WAIT: Duration = Duration::from_secs(60);

fn open(folder: &Path) -> Disk {
    let bounds = DiskBounds {
        bytes_max: 16 << 20,
        entries_max: 10_000,
        read_within: WAIT,
        ..DiskBounds::default()
    };
    Disk::open(folder, &bounds, Arc::new(|| 1_000)).expect("the folder is ours")
}

/// Blocks up to 90 are final, and 100 is the newest. Another one over the same folder is the
/// same wellhead, started again.
fn stage(folder: &TempDir) -> (Stage, Disk) {
    stage_of(folder, Plan::default())
}

fn stage_of(folder: &TempDir, plan: Plan) -> (Stage, Disk) {
    let disk = open(folder.path());
    let plan = Plan { keeps: true, ..plan };
    let stage = Stage::before(vec![plan], Tiers::new(Some(disk.clone())).batches_within(WAIT));
    for number in 88..=100 {
        stage.show_block(0, number, b'a');
    }
    stage.show_final(0, 90);
    stage.chain().pulse.tell_origin(Slot(0), hash(1, b'a'));
    (stage, disk)
}

async fn send(stage: &Stage, number: u64) -> Answer {
    let params = format!(r#"["0x{number:x}",false]"#);
    stage.send(None, &body_of(BLOCK, &params)).await
}

fn block(number: u64) -> String {
    let (own, parent) = (hash(number, b'a'), hash(number - 1, b'a'));
    format!(r#"{{"number":"0x{number:x}","hash":"{own}","parentHash":"{parent}"}}"#)
}

/// A folder that one wellhead filled with these blocks, and left.
async fn filled(numbers: &[u64]) -> TempDir {
    filled_as(Plan::default(), numbers).await
}

async fn filled_as(plan: Plan, numbers: &[u64]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let (stage, disk) = stage_of(&folder, plan);
    for number in numbers {
        stage.peer(0).next(BLOCK, result(&block(*number)));
        check_kept(&send(&stage, *number).await, Some("miss"), &block(*number));
    }
    drop(stage);
    disk.close().await;
    folder
}

#[tokio::test]
async fn a_final_answer_outlives_a_restart_and_one_that_may_be_replaced_does_not() {
    let folder = filled(&[80, 95]).await;
    let (stage, _disk) = stage(&folder);
    let answer = send(&stage, 80).await;
    check_kept(&answer, Some("hit"), &block(80));
    assert_eq!((answer.attempts, answer.upstream.as_deref()), (0, Some("cache")));
    assert!(stage.peer(0).seen().is_empty());
    // From now on it is in memory.
    assert_eq!(stage.proxy.status().cache.expect("a cache").entries, 1);
    check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
    let tier = stage.proxy.status().cache.expect("a cache").tiers.remove(0);
    assert_eq!((tier.name, tier.is_up, tier.hits), ("disk", true, 1));
    stage.peer(0).next(BLOCK, result(&block(95)));
    check_kept(&send(&stage, 95).await, Some("miss"), &block(95));
}

#[tokio::test]
async fn the_items_of_a_batch_come_from_the_disk_as_well() {
    let folder = filled(&[80, 81, 82]).await;
    let (stage, _disk) = stage(&folder);
    let item = |id: u64, number: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{BLOCK}","params":["0x{number:x}",false]}}"#
        )
    };
    let body = format!("[{},{},{}]", item(1, 80), item(2, 81), item(3, 82));
    let answer = stage.send(None, &body).await;
    let reply = |id: u64, number: u64| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, block(number))
    };
    assert_eq!(text(&answer), format!("[{},{},{}]", reply(1, 80), reply(2, 81), reply(3, 82)));
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test]
async fn what_is_damaged_is_asked_for_again() {
    let folder = filled(&[80]).await;
    let own = hash(80, b'a').to_string();
    let mut spoilt = 0;
    for file in std::fs::read_dir(folder.path()).expect("a folder") {
        let path = file.expect("an entry").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        let place = bytes.windows(own.len()).position(|it| it == own.as_bytes());
        if let Some(place) = place {
            bytes[place + 5] ^= 1;
            std::fs::write(&path, bytes).expect("a file");
            spoilt += 1;
        }
    }
    assert_eq!(spoilt, 1);
    let (stage, _disk) = stage(&folder);
    stage.peer(0).next(BLOCK, result(&block(80)));
    check_kept(&send(&stage, 80).await, Some("miss"), &block(80));
}

/// Answers are told from the disk, or not, whatever `other` the upstream would say.
async fn check_at(stage: &Stage, number: u64, is_hit: bool) {
    let other = format!(r#"{{"number":"0x{number:x}","hash":"0x01"}}"#);
    stage.peer(0).next(BLOCK, result(&other));
    match is_hit {
        true => check_kept(&send(stage, number).await, Some("hit"), &block(number)),
        false => check_kept(&send(stage, number).await, Some("miss"), &other),
    }
}

/// As a development node does that starts anew; that takes a minute to be believed. It has
/// caught up again then.
async fn start_anew(stage: &Stage, sweeper: &mut Sweeper) {
    tokio::time::pause();
    stage.show_block(0, 3, b'c');
    tokio::time::advance(Duration::from_secs(60)).await;
    stage.show_block(0, 3, b'c');
    sweeper.sweep();
    for number in 75..=100 {
        stage.show_block(0, number, b'c');
    }
    stage.show_final(0, 90);
    sweeper.sweep();
    tokio::time::resume();
}

/// The first block of another chain of the same id.
const OTHER: BlockHash = BlockHash([9; 32]);

#[tokio::test]
async fn a_chain_that_was_started_anew_is_not_answered_from_the_disk() {
    let folder = filled(&[80, 81]).await;
    let (stage, disk) = stage(&folder);
    let mut sweeper = Sweeper::new(stage.proxy.replaceable());
    sweeper.sweep();
    check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
    start_anew(&stage, &mut sweeper).await;
    assert_eq!(stage.chain().pulse.origin(), None, "it is asked for again");
    check_at(&stage, 81, false).await;
    // The new chain has a place of its own on the same disk.
    stage.chain().pulse.tell_origin(Slot(0), OTHER);
    check_at(&stage, 80, false).await;
    drop(stage);
    disk.close().await;
}

#[tokio::test]
async fn nor_when_it_was_started_anew_while_wellhead_was_not_there() {
    let folder = filled(&[80]).await;
    let (other, disk) = stage(&folder);
    other.chain().pulse.tell_origin(Slot(0), OTHER);
    check_at(&other, 80, false).await;
    drop(other);
    disk.close().await;
    let (stage, _disk) = stage(&folder);
    check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
}

#[tokio::test]
async fn final_blocks_that_are_replaced_on_the_same_chain_end_the_disk() {
    let folder = filled(&[80, 81]).await;
    let (stage, _disk) = stage(&folder);
    let mut sweeper = Sweeper::new(stage.proxy.replaceable());
    sweeper.sweep();
    check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
    start_anew(&stage, &mut sweeper).await;
    stage.chain().pulse.tell_origin(Slot(0), hash(1, b'a'));
    check_at(&stage, 81, false).await;
}

#[tokio::test]
async fn until_its_origin_is_told_a_chain_is_not_answered_from_the_disk() {
    let folder = filled(&[80]).await;
    let (stage, _disk) = stage(&folder);
    let pulse = &stage.chain().pulse;
    pulse.tell_origin(Slot(1), OTHER);
    check_at(&stage, 80, false).await;
}

/// A wellhead that looks at its answers at this level.
fn verifying(level: Level) -> Plan {
    Plan { verify: VerifySettings { level, ..VerifySettings::OFF }, ..Plan::default() }
}

#[tokio::test]
async fn what_was_kept_unverified_serves_no_call_that_is_to_be_verified() {
    for (kept_at, asked_at, found) in [
        (Level::Off, Level::Cheap, "miss"),
        (Level::Off, Level::Full, "miss"),
        (Level::Cheap, Level::Full, "miss"),
        (Level::Cheap, Level::Cheap, "hit"),
        (Level::Cheap, Level::Off, "hit"),
        (Level::Full, Level::Cheap, "hit"),
    ] {
        let folder = filled_as(verifying(kept_at), &[80]).await;
        let (stage, disk) = stage_of(&folder, verifying(asked_at));
        stage.peer(0).next(BLOCK, result(&block(80)));
        check_kept(&send(&stage, 80).await, Some(found), &block(80));
        // What was looked at now is there for the next one, in memory and on the disk.
        check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
        drop(stage);
        disk.close().await;
        let (stage, _disk) = stage_of(&folder, verifying(asked_at));
        check_kept(&send(&stage, 80).await, Some("hit"), &block(80));
    }
}

#[tokio::test]
async fn what_one_upstream_said_serves_no_call_that_several_have_to_answer() {
    let folder = filled(&[80]).await;
    let agreed = || {
        let methods = vec![BLOCK.parse().expect("a method")];
        let quorum = Quorum { agree: 2, of: 2, ..Quorum::default() };
        Plan { upstreams: 2, quorum: vec![QuorumRule { methods, quorum }], ..Plan::default() }
    };
    let (both, disk) = stage_of(&folder, agreed());
    both.peer(0).next(BLOCK, result(&block(80)));
    both.peer(1).next(BLOCK, result(&block(80)));
    check_kept(&send(&both, 80).await, Some("miss"), &block(80));
    check_kept(&send(&both, 80).await, Some("hit"), &block(80));
    drop(both);
    disk.close().await;
    // What two said serves calls that need one.
    let (one, _disk) = stage(&folder);
    check_kept(&send(&one, 80).await, Some("hit"), &block(80));
}
