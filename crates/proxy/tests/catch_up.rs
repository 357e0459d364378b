//! A client that says which block it knows is told of no older one, whichever replica showed it that block.

mod support;

use std::time::Duration;

use support::{Peer, Stage, Step, elapsed, hash, settle, text};
use tokio::time::timeout;
use wellhead_kit::{now, result};
use wellhead_upstream::VerdictClass;

fn block(number: u64) -> Step {
    Step::Result(format!(r#"{{"number":"{number:#x}","hash":"{}"}}"#, hash(number, b'a')))
}

/// Two upstreams at block 100, as far as this wellhead knows.
fn stage() -> Stage {
    let stage = Stage::upstreams(2);
    (0..2).for_each(|place| stage.show_head(place, 100));
    stage
}

const BLOCK_NUMBER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
const NEWEST_BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}"#;

/// Opens the breaker of an upstream.
fn fail(stage: &Stage, place: usize) {
    let upstream = stage.upstream(place);
    (0..3).for_each(|_| settle(upstream, "eth_call", VerdictClass::Fault, Duration::ZERO));
}

/// What `eth_blockNumber` is answered with, and what the client is said to know by then.
async fn told(stage: &Stage, known: Option<u64>) -> (String, Option<u64>) {
    let answer = stage.send_knowing(known, BLOCK_NUMBER).await;
    (text(&answer), answer.block)
}

/// Calls that the upstreams got.
fn calls(stage: &Stage) -> usize {
    stage.peers[0].iter().map(Peer::calls).sum()
}

fn number(number: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{number:#x}"}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_news_is_asked_for_before_the_call_is_read() {
    let stage = stage();
    for peer in &stage.peers[0] {
        peer.when("eth_getBlockByNumber", r#"["0x66",false]"#, block(102));
    }
    assert_eq!(told(&stage, None).await, (number(100), None));
    assert_eq!(told(&stage, Some(0)).await, (number(100), Some(100)));
    assert_eq!(told(&stage, Some(100)).await, (number(100), Some(100)));
    assert_eq!(calls(&stage), 0, "what is known costs no call");
    assert_eq!(told(&stage, Some(102)).await, (number(102), Some(102)));
    assert_eq!(calls(&stage), 1);
    // From here on it is known, to this client and to one that says so.
    assert_eq!(told(&stage, None).await, (number(102), None));
    assert_eq!(told(&stage, Some(102)).await, (number(102), Some(102)));
    assert_eq!(calls(&stage), 1);
}

#[tokio::test(start_paused = true)]
async fn one_upstream_that_has_the_block_is_enough() {
    let stage = stage();
    stage.peer(0).always("eth_getBlockByNumber", result("null"));
    stage.peer(1).when("eth_getBlockByNumber", r#"["0x65",false]"#, block(101));
    for client in 0..8 {
        assert_eq!(told(&stage, Some(101)).await, (number(101), Some(101)), "{client}");
    }
}

/// After a reorg the client's next request is about a block that there is. However many requests say blocks that
/// there are not, the upstreams are asked five times a second.
#[tokio::test(start_paused = true)]
async fn a_block_that_no_upstream_has_is_looked_for_and_then_forgotten() {
    let stage = stage();
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getBlockByNumber", result("null")));
    let began = now();
    assert_eq!(told(&stage, Some(103)).await, (number(100), Some(100)));
    assert_eq!(elapsed(began).as_secs(), 2);
    let alone = calls(&stage);
    assert!((10..=30).contains(&alone), "{alone}");
    // Also where each is below the one that was missing before.
    for order in [1, -1] {
        let before = calls(&stage);
        let blocks = (0..500_i64).map(|place| (400 + order * place / 2).unsigned_abs());
        let many = blocks.map(|known| told(&stage, Some(known)));
        for answer in futures_util::future::join_all(many).await {
            assert_eq!(answer, (number(100), Some(100)));
        }
        let more = calls(&stage) - before;
        assert!(more <= 5 * alone, "{more} after {alone}");
    }
}

/// An upstream that gets the block a moment later is asked again.
#[tokio::test(start_paused = true)]
async fn a_block_that_comes_a_moment_later_is_found() {
    let stage = stage();
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getBlockByNumber", result("null")));
    let comes = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        stage.peer(1).always("eth_getBlockByNumber", block(103));
    };
    let (told, ()) = tokio::join!(told(&stage, Some(103)), comes);
    assert_eq!(told, (number(103), Some(103)));
}

/// A client can neither have us ask for what cannot be, nor wait for long.
#[tokio::test(start_paused = true)]
async fn a_block_far_above_is_not_looked_for_and_a_slow_upstream_not_waited_for() {
    let stage = stage();
    stage.peers[0].iter().for_each(|peer| peer.always("*", Step::Hang));
    for far in [100 + 1_025, u64::MAX] {
        assert_eq!(told(&stage, Some(far)).await, (number(100), Some(100)));
    }
    assert_eq!(calls(&stage), 0);
    let began = now();
    assert_eq!(told(&stage, Some(100 + 1_024)).await, (number(100), Some(100)));
    assert_eq!(elapsed(began).as_secs(), 2);
}

/// One request asks; when it is gone, another one does.
#[tokio::test(start_paused = true)]
async fn requests_that_say_the_same_block_wait_for_one() {
    let stage = stage();
    stage.peers[0].iter().for_each(|peer| peer.always("*", Step::Hang));
    let at_most = Duration::from_millis(20);
    let first = timeout(at_most, told(&stage, Some(101)));
    let others = async { tokio::join!(told(&stage, Some(101)), told(&stage, Some(101))) };
    let answers = async {
        first.await.expect_err("it hangs");
        assert_eq!(calls(&stage), 1);
        stage.peers[0].iter().for_each(|peer| peer.always("eth_getBlockByNumber", block(101)));
    };
    let ((), (one, other)) = tokio::join!(answers, others);
    assert_eq!([one, other], [(number(101), Some(101)), (number(101), Some(101))]);
    assert_eq!(calls(&stage), 2);
}

/// All items of a batch see the block that the client knows.
#[tokio::test(start_paused = true)]
async fn a_batch_is_read_at_the_block_that_is_known() {
    let stage = stage();
    for peer in &stage.peers[0] {
        peer.when("eth_getBlockByNumber", r#"["0x66",false]"#, block(102));
    }
    let answer = stage.send_knowing(Some(102), &format!("[{BLOCK_NUMBER},{BLOCK_NUMBER}]")).await;
    assert_eq!(text(&answer), format!("[{},{}]", number(102), number(102)));
    assert_eq!(answer.block, Some(102));
}

/// The upstream that is at the block has failed since, and the other one may have the block by now.
#[tokio::test(start_paused = true)]
async fn a_block_of_an_upstream_that_fails_is_asked_for_at_the_others() {
    let stage = stage();
    stage.show_head(0, 101);
    fail(&stage, 0);
    stage.peer(0).always("*", Step::REFUSE);
    for (tag, number) in [("latest", 100), ("0x64", 100), ("0x65", 101)] {
        stage.peer(1).when("eth_getBlockByNumber", &format!(r#"["{tag}",false]"#), block(number));
    }
    let answer = stage.send_knowing(Some(101), NEWEST_BLOCK).await;
    assert!(text(&answer).contains(r#""number":"0x65""#), "{}", text(&answer));
    assert_eq!(answer.block, Some(101));
}

/// Where no upstream can be asked, nothing is waited for.
#[tokio::test(start_paused = true)]
async fn a_block_is_not_looked_for_while_all_upstreams_fail() {
    let stage = stage();
    stage.show_head(0, 101);
    (0..2).for_each(|place| fail(&stage, place));
    let began = now();
    assert_eq!(told(&stage, Some(101)).await, (number(101), Some(101)));
    assert_eq!((elapsed(began), calls(&stage)), (Duration::ZERO, 0));
}

/// The upstream that takes the call on trial may have the block, though it told of a lower one last.
#[tokio::test(start_paused = true)]
async fn while_all_upstreams_fail_a_call_is_not_pinned_lower() {
    let stage = stage();
    stage.show_head(0, 101);
    for place in 0..2 {
        fail(&stage, place);
        stage.peer(place).when("eth_getBlockByNumber", r#"["0x65",false]"#, block(101));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answer = stage.send_knowing(Some(101), NEWEST_BLOCK).await;
    assert!(text(&answer).contains(r#""number":"0x65""#), "{}", text(&answer));
}

/// What is agreed is told, whatever an upstream that is fit has told of.
#[tokio::test(start_paused = true)]
async fn an_agreed_block_is_not_looked_for() {
    let stage = Stage::upstreams(3);
    (0..2).for_each(|place| stage.show_head(place, 101));
    stage.show_head(2, 100);
    (0..2).for_each(|place| fail(&stage, place));
    assert_eq!(told(&stage, Some(101)).await, (number(101), Some(101)));
    assert_eq!(calls(&stage), 0);
}
