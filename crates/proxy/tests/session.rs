//! What a client was shown and sent decides what it is told next.

mod support;

use support::{Peer, Plan, Stage, Step, hash, ms, text};
use wellhead_kit::result;

/// The example of EIP-155, whose sender and nonce are known.
const RAW: &str = r#"["0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"]"#;
const HASH: &str = r#"["0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788"]"#;
const SENDER: &str = "0x9d8A62f656a8d1615C1294fd71e9CFb3E4855A4F";

fn stage(upstreams: u8) -> Stage {
    let stage = Stage::upstreams(upstreams.into());
    (0..upstreams).for_each(|place| stage.show_head(place, 100));
    stage
}

/// The first client reads a receipt of block 101, which no upstream had told of, at the upstream
/// that is returned.
async fn read_a_receipt(stage: &Stage) -> usize {
    for peer in &stage.peers[0] {
        let hash = hash(101, b'a');
        let receipt = format!(r#"{{"status":"0x1","blockNumber":"0x65","blockHash":"{hash}"}}"#);
        peer.next("eth_getTransactionReceipt", Step::Result(receipt));
    }
    assert!(stage.call("eth_getTransactionReceipt", HASH).await.contains("0x65"));
    let asked = |peer: &support::Peer| !peer.seen().is_empty();
    stage.peers[0].iter().position(asked).expect("one upstream was asked")
}

#[tokio::test(start_paused = true)]
async fn what_was_shown_is_the_newest_block_of_that_client() {
    let stage = stage(2);
    let holder = read_a_receipt(&stage).await;
    assert_eq!(stage.head(holder as u8), Some(101), "the receipt tells of its upstream, too");
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    assert_eq!(stage.call_from(2, "eth_blockNumber", "[]").await, "\"0x64\"");
    for _ in 0..8 {
        stage.call("eth_getBalance", &format!(r#"["{SENDER}","latest"]"#)).await;
        stage.call("eth_getTransactionReceipt", HASH).await;
    }
    assert_eq!(stage.peer(1 - holder).seen().len(), 0, "the other one does not hold it yet");
    assert!(stage.peer(holder).seen().iter().any(|call| call.contains("\"0x65\"]")));
    stage.show_head(1 - holder as u8, 102);
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"", "both hold that");
}

/// Two calls of one client overtake each other: the first came in an earlier second, and is
/// answered after the second call showed a higher block.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_does_not_lower_what_was_shown() {
    let stage = stage(2);
    stage.show_head(0, 102);
    for peer in &stage.peers[0] {
        peer.next("eth_getBalance", result("\"0x1\"").after(ms(1_500)));
        let hash = hash(102, b'a');
        let receipt = format!(r#"{{"blockNumber":"0x66","blockHash":"{hash}"}}"#);
        peer.next("eth_getTransactionReceipt", Step::Result(receipt));
    }
    let early = async {
        let balance = stage.call("eth_getBalance", &format!(r#"["{SENDER}","0x65"]"#)).await;
        assert_eq!(balance, "\"0x1\"");
    };
    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(stage.call("eth_getTransactionReceipt", HASH).await.contains("0x66"));
        assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x66\"");
    };
    tokio::join!(early, late);
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x66\"");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_there_too() {
    let stage = stage(2);
    let holder = read_a_receipt(&stage).await;
    let item = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["{SENDER}","latest"]}}"#
    );
    text(&stage.send(None, &format!("[{item},{item}]")).await);
    assert_eq!(stage.peer(1 - holder).seen().len(), 0);
    assert_eq!(stage.peer(holder).seen().last().expect("a batch").matches("\"0x65\"]").count(), 2);
}

/// While no upstream was heard of, `latest` goes upstream as it came: not to one that was last seen below
/// what was told before.
#[tokio::test(start_paused = true)]
async fn what_was_told_is_the_least_when_the_view_is_old() {
    let stage = Stage::upstreams(3);
    for (place, number) in [(0, 100), (1, 101), (2, 101)] {
        stage.show_head(place, number);
    }
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    for _ in 0..16 {
        stage.call("eth_getBlockByNumber", r#"["latest",false]"#).await;
    }
    assert_eq!(stage.peer(0).seen().len(), 0);
    assert!(stage.peer(1).seen().iter().any(|call| call.contains("\"latest\"")));
}

fn below() -> String {
    let transactions = "0".repeat(70 * 1024);
    format!(r#"{{"number":"0x64","transactions":["0x{transactions}"]}}"#)
}

/// All upstreams were seen at block 101, and no upstream was heard of since. From then on the
/// first says that block 100, which is large, is the newest.
async fn one_falls_back(upstreams: u8) -> Stage {
    let stage = Stage::upstreams(upstreams.into());
    (0..upstreams).for_each(|place| stage.show_head(place, 101));
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    for (place, peer) in stage.peers[0].iter().enumerate() {
        let newest = if place == 0 { below() } else { r#"{"number":"0x65"}"#.to_owned() };
        peer.next_times(60, "eth_getBlockByNumber", Step::Result(newest.clone()));
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn a_newest_block_below_what_was_told_is_asked_for_elsewhere() {
    let stage = one_falls_back(2).await;
    for _ in 0..16 {
        let block = stage.call("eth_getBlockByNumber", r#"["latest",false]"#).await;
        assert_eq!(block, r#"{"number":"0x65"}"#);
    }
    assert!(!stage.peer(0).seen().is_empty(), "the one that fell back was asked, too");
    assert!(stage.peer(1).seen().iter().any(|call| call.contains(r#"["0x65",false]"#)));
}

#[tokio::test(start_paused = true)]
async fn in_a_batch_as_well() {
    let stage = one_falls_back(2).await;
    let item =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}"#;
    for _ in 0..8 {
        for peer in &stage.peers[0] {
            peer.transport.forget();
        }
        let told = text(&stage.send(None, &format!("[{item},{item}]")).await);
        assert_eq!(told.matches(r#"{"number":"0x65"}"#).count(), 2, "{told}");
    }
}

/// Where heads are not followed, the height is what an upstream says.
#[tokio::test(start_paused = true)]
async fn a_height_that_one_upstream_told_counts_as_shown() {
    let stage = Stage::new(vec![Plan { upstreams: 2, is_followed: false, ..Plan::default() }]);
    for place in 0..2 {
        stage.show_head(place, 101);
        let says = |height: &str| Step::Result(format!("\"{height}\""));
        stage.peer(place.into()).next("eth_blockNumber", says("0x66"));
        stage.peer(place.into()).next_times(8, "eth_blockNumber", says("0x64"));
    }
    for _ in 0..8 {
        assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x66\"");
    }
    assert_eq!(stage.call_from(2, "eth_blockNumber", "[]").await, "\"0x65\"", "what is agreed");
}

/// A chain that was reset is shorter, and an upstream may say so.
#[tokio::test(start_paused = true)]
async fn a_newest_block_below_stands_where_no_upstream_has_a_better_one() {
    let stage = one_falls_back(1).await;
    let block = stage.call("eth_getBlockByNumber", r#"["latest",false]"#).await;
    assert_eq!(block, below());
    let seen = stage.peer(0).seen();
    assert!(seen.len() == 2 && seen[1].contains(r#"["0x65",false]"#), "{seen:?}");
}

/// When the only holder is gone, an older answer is better than none; the height stays.
#[tokio::test(start_paused = true)]
async fn what_no_upstream_holds_any_more_is_not_asked_for() {
    let stage = stage(2);
    let holder = read_a_receipt(&stage).await;
    stage.upstream(holder).set_standing(wellhead_upstream::Standing::Unverified);
    stage.call("eth_getBalance", &format!(r#"["{SENDER}","latest"]"#)).await;
    let seen = stage.peer(1 - holder).seen();
    assert!(seen.len() == 1 && seen[0].contains("\"0x64\"]"), "{seen:?}");
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
}

/// Behind one address there may be nodes of different height: what one of them showed is not taken
/// back when the next poll reaches another.
#[tokio::test(start_paused = true)]
async fn the_height_stays_when_the_holder_says_that_it_stands_lower() {
    let stage = stage(2);
    let holder = read_a_receipt(&stage).await as u8;
    stage.show_head(holder, 100);
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    // It said so for long, so that the block is not there any more.
    for _ in 0..10 {
        tokio::time::advance(std::time::Duration::from_secs(4)).await;
        (0..2).for_each(|place| stage.show_head(place, 100));
    }
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x64\"");
}

#[tokio::test(start_paused = true)]
async fn a_pending_nonce_counts_what_was_sent() {
    let stage = stage(2);
    let nonce = |block: &str| format!(r#"["{SENDER}","{block}"]"#);
    let told = |times: usize| {
        for peer in &stage.peers[0] {
            (0..times).for_each(|_| peer.next("eth_getTransactionCount", result("\"0x9\"")));
        }
    };
    told(5);
    assert_eq!(stage.call("eth_getTransactionCount", &nonce("pending")).await, "\"0x9\"");
    stage.call("eth_sendRawTransaction", RAW).await;
    assert_eq!(stage.call("eth_getTransactionCount", &nonce("pending")).await, "\"0xa\"");
    assert_eq!(stage.call("eth_getTransactionCount", &nonce("latest")).await, "\"0x9\"");
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    assert_eq!(stage.call("eth_getTransactionCount", &nonce("pending")).await, "\"0x9\"");
}

/// A tracer is the client's own program, and says what it likes.
#[tokio::test(start_paused = true)]
async fn what_a_client_makes_an_upstream_say_moves_nothing() {
    let stage = stage(2);
    for peer in &stage.peers[0] {
        let lie = format!(r#"{{"blockNumber":"0xffff","blockHash":"{}"}}"#, hash(0xffff, b'a'));
        peer.next_times(2, "debug_traceTransaction", Step::Result(lie.clone()));
    }
    for _ in 0..4 {
        stage.call("debug_traceTransaction", HASH).await;
    }
    assert_eq!([stage.head(0), stage.head(1)], [Some(100), Some(100)]);
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x64\"");
}

/// A client that was shown more does not join the call of one that was not.
#[tokio::test(start_paused = true)]
async fn a_call_is_not_shared_with_a_client_that_saw_less() {
    let stage = Stage::new(vec![Plan { upstreams: 2, keeps: true, ..Plan::default() }]);
    (0..2).for_each(|place| stage.show_head(place, 100));
    let holder = read_a_receipt(&stage).await;
    let late = result("null").after(std::time::Duration::from_secs(1));
    stage.peer(1 - holder).next("eth_getTransactionReceipt", late);
    let other = r#"["0x1111111111111111111111111111111111111111111111111111111111111111"]"#;
    tokio::join!(
        stage.call_from(2, "eth_getTransactionReceipt", other),
        stage.call("eth_getTransactionReceipt", other),
    );
    assert_eq!(sent_with(&stage, "0x1111"), 2, "each had a call of its own");
}

/// Two upstreams whose heads are not followed; calls are shared.
fn sharing() -> Stage {
    let plan =
        Plan { upstreams: 2, keeps: true, shares: true, is_followed: false, ..Plan::default() };
    Stage::new(vec![plan])
}

/// How many calls with this in them the upstreams were sent.
fn sent_with(stage: &Stage, text: &str) -> usize {
    let sent = stage.peers[0].iter().flat_map(Peer::seen);
    sent.filter(|call| call.contains(text)).count()
}

/// Seed 6466: nor is it told by another's call what is below a block that it was shown meanwhile.
#[tokio::test(start_paused = true)]
async fn a_shared_newest_block_is_not_below_what_was_shown_while_it_was_waited_for() {
    let stage = sharing();
    for place in 0..2 {
        stage.show_head(place, 101);
        let peer = stage.peer(place.into());
        peer.next("eth_blockNumber", result("\"0x66\""));
        peer.next("eth_getBlockByNumber", result(r#"{"number":"0x65"}"#).after(ms(300)));
        peer.next_times(4, "eth_getBlockByNumber", result(r#"{"number":"0x66"}"#));
    }
    let newest = r#"["latest",false]"#;
    let height = async {
        tokio::time::sleep(ms(100)).await;
        stage.call("eth_blockNumber", "[]").await
    };
    let (other, own, height) = tokio::join!(
        stage.call_from(2, "eth_getBlockByNumber", newest),
        stage.call("eth_getBlockByNumber", newest),
        height,
    );
    assert_eq!(height, "\"0x66\"");
    assert_eq!((other.as_str(), own.as_str()), (r#"{"number":"0x65"}"#, r#"{"number":"0x66"}"#));
}

#[tokio::test(start_paused = true)]
async fn nor_where_heads_are_not_followed() {
    let stage = sharing();
    for place in 0..2 {
        stage.show_head(place, 101);
        let peer = stage.peer(place.into());
        peer.next("eth_blockNumber", result("\"0x66\""));
        let late = result(r#"{"number":"0x66"}"#).after(ms(100));
        peer.next_times(4, "eth_getBlockByNumber", late.clone());
    }
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x66\"");
    let newest = r#"["latest",false]"#;
    tokio::join!(
        stage.call_from(2, "eth_getBlockByNumber", newest),
        stage.call("eth_getBlockByNumber", newest),
    );
    assert_eq!(sent_with(&stage, "\"latest\""), 2, "each had a call of its own");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_found_where_it_was_taken() {
    let stage = stage(4);
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":{RAW}}}"#);
    let answer = stage.send(None, &body).await;
    let taker = answer.upstream.expect("one took it");
    for peer in stage.peers[0].iter().filter(|peer| *peer.name() != *taker) {
        peer.next_times(20, "eth_getTransactionByHash", result("null"));
    }
    for _ in 0..5 {
        let found = stage.call("eth_getTransactionByHash", HASH).await;
        assert_eq!(found, format!("\"{taker}\""));
    }
}

/// anvil's words for a block above its head.
const ABOVE: &str = "BlockOutOfRangeError: block height is 100 but requested was 101";

#[tokio::test(start_paused = true)]
async fn a_block_that_a_reorg_takes_away_under_way_fails_no_call() {
    let stage = stage(2);
    (0..2).for_each(|place| stage.show_block(place, 101, b'a'));
    let balance = format!(r#"["{SENDER}","latest"]"#);
    for peer in &stage.peers[0] {
        peer.next("eth_getBalance", support::error(-32602, ABOVE));
        peer.always("eth_getBalance", result("\"0x7\""));
    }
    // The view hears of it after the upstreams have answered.
    let reorg = async {
        tokio::time::sleep(ms(100)).await;
        (0..2).for_each(|place| stage.show_block(place, 100, b'b'));
    };
    let call = stage.call("eth_getBalance", &balance);
    assert_eq!(tokio::join!(call, reorg).0, "\"0x7\"");
    let seen: Vec<_> = stage.peers[0].iter().flat_map(support::Peer::seen).collect();
    let with = |block: &str| seen.iter().filter(|call| call.contains(block)).count();
    assert_eq!((with("\"0x65\""), with("\"latest\"")), (2, 1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newest_block_that_a_reorg_takes_away_under_way_is_not_null() {
    let stage = stage(2);
    (0..2).for_each(|place| stage.show_block(place, 101, b'a'));
    let block = r#"{"number":"0x64"}"#;
    for peer in &stage.peers[0] {
        let hash = hash(101, b'a');
        peer.when("eth_getBlockByHash", &format!(r#"["{hash}",false]"#), result("null"));
        peer.when("eth_getBlockByNumber", r#"["0x65",false]"#, result("null"));
        peer.when("eth_getBlockByNumber", r#"["latest",false]"#, result(block));
    }
    let reorg = async {
        tokio::time::sleep(ms(100)).await;
        (0..2).for_each(|place| stage.show_block(place, 100, b'b'));
    };
    let call = stage.call("eth_getBlockByNumber", r#"["latest",false]"#);
    assert_eq!(tokio::join!(call, reorg).0, block);
}

#[tokio::test(start_paused = true)]
async fn without_a_reorg_the_words_of_the_upstreams_are_told() {
    let stage = stage(2);
    (0..2).for_each(|place| stage.show_block(place, 101, b'a'));
    for peer in &stage.peers[0] {
        peer.always("eth_getBalance", support::error(-32602, ABOVE));
    }
    let told = stage.call("eth_getBalance", &format!(r#"["{SENDER}","latest"]"#)).await;
    assert!(told.contains("BlockOutOfRangeError"), "{told}");
    let seen: Vec<_> = stage.peers[0].iter().flat_map(support::Peer::seen).collect();
    assert!(seen.iter().all(|call| call.contains("\"0x65\"")), "{seen:?}");
}
