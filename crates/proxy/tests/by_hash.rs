//! States asked for by the hash of their block, and kept under it.

mod support;

use wellhead_proxy::ByHashMode;
use wellhead_upstream::Slot;

use support::{Plan, Stage, ask, check_kept, error, hash, text};
use wellhead_kit::{result, status};

const BALANCE: &str = "eth_getBalance";

/// The call as it is to arrive: at a block by its hash.
fn at(number: u64, branch: u8) -> String {
    format!(r#"{{"{BALANCE}","params":["0xab",{{"blockHash":"{}"}}]}}"#, hash(number, branch))
}

#[tokio::test(start_paused = true)]
async fn a_state_at_the_newest_block_is_asked_by_its_hash_and_kept() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x1\"");
    assert_eq!(stage.peer(0).seen(), [at(100, b'a')]);
    for same in [r#"["0xab","latest"]"#, r#"["0xab", "0x64"]"#, r#"[ "0xAB" , "0x64" ]"#] {
        check_kept(&ask(&stage, BALANCE, same).await, Some("hit"), "\"0x1\"");
    }
    // The next block has a state of its own.
    stage.show_block(0, 101, b'a');
    stage.peer(0).next(BALANCE, result("\"0x2\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x2\"");
    check_kept(&ask(&stage, BALANCE, r#"["0xab","0x64"]"#).await, Some("hit"), "\"0x1\"");
    assert_eq!(stage.peer(0).seen(), [at(100, b'a'), at(101, b'a')]);
}

#[tokio::test(start_paused = true)]
async fn after_a_reorg_the_state_is_that_of_the_other_block() {
    let stage = Stage::keeping_to_100(1);
    for branch in [b'a', b'b'] {
        stage.show_block(0, 100, branch);
        let balance = format!("\"0x{branch:x}\"");
        stage.peer(0).next(BALANCE, result(&balance));
        for found in ["miss", "hit"] {
            let answer = ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
            check_kept(&answer, Some(found), &balance);
        }
    }
    assert_eq!(stage.peer(0).seen(), [at(100, b'a'), at(100, b'b')]);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_refuses_a_hash_is_asked_by_the_height_for_a_while() {
    let stage = Stage::keeping_to_100(1);
    let by_height = format!(r#"{{"{BALANCE}","params":["0xab","0x64"]}}"#);
    let refuse = || error(-32602, "invalid argument 1: json: cannot unmarshal object");
    stage.peer(0).next(BALANCE, refuse());
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    let answer = ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    check_kept(&answer, Some("miss"), "\"0x1\"");
    assert_eq!(stage.peer(0).seen(), [at(100, b'a'), by_height.clone()]);
    assert_eq!(answer.attempts, 2);
    // What came by the height is not kept.
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x1\"");
    assert_eq!(stage.peer(0).seen()[2..], [by_height]);
    // After the pause the hash is tried again, and understood this time.
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    stage.show_block(0, 101, b'a');
    stage.peer(0).next(BALANCE, result("\"0x3\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x3\"");
    assert_eq!(stage.peer(0).seen()[3..], [at(101, b'a')]);
}

#[tokio::test(start_paused = true)]
async fn by_the_height_no_upstream_is_asked_first_that_failed_otherwise() {
    let stage = Stage::keeping_to_100(2);
    stage.peer(0).next_times(3, BALANCE, error(-32603, "internal error"));
    stage.peer(1).next(BALANCE, error(-32602, "invalid argument 1: json: cannot unmarshal object"));
    stage.peer(1).next(BALANCE, result("\"0x1\""));
    let answer = ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    check_kept(&answer, Some("miss"), "\"0x1\"");
    assert_eq!((stage.peer(0).seen().len(), stage.peer(1).seen().len()), (1, 2));
    assert_eq!(answer.attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_upstreams_that_failed_with_the_hash_and_with_the_height() {
    let stage = Stage::keeping_to_100(2);
    stage.peer(0).next_times(3, BALANCE, status(500, "no luck"));
    stage.peer(1).next(BALANCE, error(-32602, "invalid argument 1: json: cannot unmarshal object"));
    stage.peer(1).next_times(3, BALANCE, status(500, "no luck"));
    let answer = ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    let told = text(&answer);
    assert!(
        told.contains("made 5 attempts: a: fault: ") && told.contains("; b: fault: "),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_fault_of_a_caller_is_told_at_once_by_an_upstream_that_takes_hashes() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    stage.peer(0).next(BALANCE, error(-32602, "invalid argument 0: hex string has odd length"));
    let answer = ask(&stage, BALANCE, r#"["0xabc","latest"]"#).await;
    assert!(text(&answer).contains("odd length"), "{}", text(&answer));
    assert_eq!((answer.attempts, stage.peer(0).seen().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_both_forms_show_is_told_in_the_words_about_the_height() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next(BALANCE, error(-32602, "invalid argument 1"));
    stage.peer(0).next(BALANCE, error(-32602, "invalid argument 0: hex string has odd length"));
    let answer = ask(&stage, BALANCE, r#"["0xabc","latest"]"#).await;
    assert!(text(&answer).contains("odd length"), "{}", text(&answer));
    // The hash was not at fault, and is asked by the next time.
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    assert_eq!(stage.peer(0).seen()[2..], [at(100, b'a')]);
}

#[tokio::test(start_paused = true)]
async fn what_a_contract_says_is_final() {
    let stage = Stage::keeping_to_100(1);
    stage.peer(0).next("eth_call", error(3, "execution reverted"));
    let answer = ask(&stage, "eth_call", r#"[{"to":"0x01"},"latest"]"#).await;
    assert!(text(&answer).contains("execution reverted"), "{}", text(&answer));
    assert_eq!(stage.peer(0).seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_final_or_not_known_by_hash_is_asked_by_its_height() {
    let stage = Stage::keeping_to_100(1);
    for height in ["0x50", "0x70"] {
        ask(&stage, BALANCE, &format!(r#"["0xab","{height}"]"#)).await;
    }
    let by_height = |height: &str| format!(r#"{{"{BALANCE}","params":["0xab","{height}"]}}"#);
    assert_eq!(stage.peer(0).seen(), [by_height("0x50"), by_height("0x70")]);
}

#[tokio::test(start_paused = true)]
async fn items_of_a_batch_are_asked_by_hash_and_those_refused_once_more_alone() {
    let stage = Stage::keeping_to_100(1);
    for say in [
        result("\"0x1\""),
        error(-32602, "invalid argument 1: json: cannot unmarshal object"),
        result("\"0x2\""),
    ] {
        stage.peer(0).next(BALANCE, say);
    }
    let call = |id: u32, who: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{BALANCE}","params":["{who}","latest"]}}"#)
    };
    let answer = stage.send(None, &format!("[{},{}]", call(1, "0xaa"), call(2, "0xab"))).await;
    let body = text(&answer);
    assert!(body.contains(r#""id":1,"result":"0x1""#), "{body}");
    assert!(body.contains(r#""id":2,"result":""#), "{body}");
    // The first was kept under its hash.
    check_kept(&ask(&stage, BALANCE, r#"["0xaa","latest"]"#).await, Some("hit"), "\"0x1\"");
}

/// Upstreams of which nothing is known but what is found out.
fn finding_out(upstreams: usize) -> Stage {
    let by_hash = ByHashMode::Auto;
    let stage = Stage::new(vec![Plan { upstreams, keeps: true, by_hash, ..Plan::default() }]);
    stage.show_to_100();
    stage
}

fn by_height() -> String {
    format!(r#"{{"{BALANCE}","params":["0xab","0x64"]}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_hash_goes_only_to_upstreams_that_were_found_to_honour_one() {
    let stage = finding_out(2);
    let pulse = &stage.chain().pulse;
    ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    assert_eq!(stage.peer(0).seen(), [by_height()], "nothing is known yet");
    assert!(pulse.tell_honours_hashes(Slot(1), true), "it is news");
    // `a` is the quicker one, and does not honour hashes.
    stage.peer(0).next(BALANCE, result("\"0x1\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x1\"");
    assert_eq!(stage.peer(0).seen()[1..], [by_height()]);
    // What it said may be of any block of that height, so it is not kept.
    stage.peer(0).next(BALANCE, error(-32603, "internal error"));
    stage.peer(1).next(BALANCE, result("\"0x2\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("miss"), "\"0x2\"");
    assert_eq!(stage.peer(1).seen(), [at(100, b'a')]);
    // That was by the hash.
    check_kept(&ask(&stage, BALANCE, r#"["0xab","latest"]"#).await, Some("hit"), "\"0x2\"");
}

#[tokio::test(start_paused = true)]
async fn items_of_a_batch_are_kept_only_from_upstreams_that_honour_hashes() {
    let stage = finding_out(2);
    stage.chain().pulse.tell_honours_hashes(Slot(1), true);
    let call = |id: u32, who: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{BALANCE}","params":["{who}","latest"]}}"#)
    };
    let batch = format!("[{},{}]", call(1, "0xaa"), call(2, "0xab"));
    for say in ["\"0x1\"", "\"0x2\""] {
        stage.peer(0).next(BALANCE, result(say));
    }
    stage.send(None, &batch).await;
    assert!(!stage.peer(0).seen()[0].contains("blockHash"), "{:?}", stage.peer(0).seen());
    stage.peer(0).next(BALANCE, result("\"0x3\""));
    check_kept(&ask(&stage, BALANCE, r#"["0xaa","latest"]"#).await, Some("miss"), "\"0x3\"");
    // And once the first was found to honour them.
    stage.chain().pulse.tell_honours_hashes(Slot(0), true);
    for say in ["\"0x4\"", "\"0x5\""] {
        stage.peer(0).next(BALANCE, result(say));
    }
    stage.send(None, &batch).await;
    check_kept(&ask(&stage, BALANCE, r#"["0xaa","latest"]"#).await, Some("hit"), "\"0x4\"");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_was_away_is_asked_by_the_height_until_it_is_known_again() {
    let stage = finding_out(1);
    let pulse = &stage.chain().pulse;
    pulse.tell_honours_hashes(Slot(0), true);
    ask(&stage, BALANCE, r#"["0xab","latest"]"#).await;
    pulse.tell_honours_hashes(Slot(0), false);
    ask(&stage, BALANCE, r#"["0xcd","latest"]"#).await;
    let by_height = format!(r#"{{"{BALANCE}","params":["0xcd","0x64"]}}"#);
    assert_eq!(stage.peer(0).seen(), [at(100, b'a'), by_height]);
}
