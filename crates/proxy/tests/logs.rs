//! Searches for logs that find nothing, and what headers say of that.

mod support;

use std::time::Duration;

use support::{Plan, Stage, ask, elapsed, error, text};
use wellhead_dispatch::now;
use wellhead_kit::result;
use wellhead_upstream::Tier;

const LOG: &str = r#"[{"address":"0xab"}]"#;
/// All logs of block 100, and those of one address.
const ALL: &str = r#"[{"fromBlock":"0x64","toBlock":"0x64"}]"#;
const ONE: &str = r#"[{"fromBlock":"0x64","toBlock":"0x64","address":"0xabababababababababababababababababababab"}]"#;

/// Upstreams that stand on block 101; the quickest is `a`.
fn stage(upstreams: usize, keeps: bool) -> Stage {
    let stage = Stage::new(vec![Plan { upstreams, keeps, ..Plan::default() }]);
    for place in 0..u8::try_from(upstreams).expect("few") {
        for number in 99..=101 {
            stage.show_block(place, number, 1);
        }
    }
    stage
}

fn asked(stage: &Stage) -> Vec<usize> {
    stage.peers[0].iter().map(|peer| peer.seen().len()).collect()
}

fn missed(stage: &Stage) -> Vec<u64> {
    let status = stage.proxy.status();
    status.chains[0].upstreams.iter().map(|upstream| upstream.missed_logs).collect()
}

#[tokio::test(start_paused = true)]
async fn what_another_finds_is_the_answer() {
    let stage = stage(2, false);
    stage.show_bloom(100, 1, 1);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", result(LOG));
    assert_eq!(stage.call("eth_getLogs", ALL).await, LOG);
    assert_eq!((asked(&stage), missed(&stage)), (vec![1, 1], vec![1, 0]));
}

/// A header as upstreams tell it, in whose block some log is.
fn header(number: u64) -> String {
    let others = ["sha3Uncles", "stateRoot", "transactionsRoot", "receiptsRoot", "difficulty"];
    let others = others.iter().chain(&["gasLimit", "gasUsed", "timestamp", "extraData"]);
    let others: String = others.map(|name| format!(r#""{name}":"0x1","#)).collect();
    let (own, parent) = (support::hash(number, 1), support::hash(number - 1, 1));
    let bloom = "01".repeat(256);
    let ids = format!(r#""number":"{number:#x}","hash":"{own}","parentHash":"{parent}""#);
    format!(r#"{{{others}"logsBloom":"0x{bloom}",{ids}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_header_that_was_read_for_subscribers_is_evidence() {
    let stage = stage(2, false);
    for number in (98..=101).rev() {
        stage.peer(0).next("eth_getBlockByHash", result(&header(number)));
    }
    let _announced = stage.announce().await;
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", result(LOG));
    assert_eq!(stage.call("eth_getLogs", ALL).await, LOG);
    assert_eq!(missed(&stage), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn two_are_believed() {
    let stage = stage(3, false);
    stage.show_bloom(100, 1, 1);
    for place in 0..3 {
        stage.peer(place).next("eth_getLogs", result(" [ ] "));
    }
    assert_eq!(stage.call("eth_getLogs", ALL).await, "[ ]");
    assert_eq!((asked(&stage).iter().sum::<usize>(), missed(&stage)), (2, vec![0; 3]));
}

#[tokio::test(start_paused = true)]
async fn no_second_upstream_is_asked_without_evidence() {
    let check = async |bloom: Option<(u64, u8)>, params: &str| {
        let stage = stage(2, false);
        if let Some((number, bits)) = bloom {
            stage.show_bloom(number, 1, bits);
        }
        for place in 0..2 {
            stage.peer(place).next("eth_getLogs", result("[]"));
        }
        assert_eq!(stage.call("eth_getLogs", params).await, "[]");
        asked(&stage)
    };
    assert_eq!(check(Some((100, 1)), ALL).await, [1, 1]);
    assert_eq!(check(None, ALL).await, [1, 0], "no header is known");
    assert_eq!(check(Some((101, 1)), ALL).await, [1, 0], "another block's");
    assert_eq!(check(Some((100, 0)), ALL).await, [1, 0], "no log is in it");
    assert_eq!(check(Some((100, 0)), ONE).await, [1, 0], "nor one of this address");
    assert_eq!(check(Some((100, 255)), ONE).await, [1, 0], "it fits everything");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_confirmed_is_told_and_not_kept() {
    let stage = stage(2, true);
    for place in 0..2 {
        stage.show_final(place, 100);
    }
    stage.show_bloom(100, 1, 1);
    for times in 1..=2 {
        stage.peer(0).next("eth_getLogs", result("[]"));
        stage.peer(1).next("eth_getLogs", error(-32000, "boom"));
        assert_eq!(stage.call("eth_getLogs", ALL).await, "[]");
        assert_eq!(asked(&stage)[0], times);
    }
    let before = asked(&stage);
    for place in 0..2 {
        stage.peer(place).next("eth_getLogs", result("[]"));
    }
    for _ in 0..2 {
        assert_eq!(stage.call("eth_getLogs", ALL).await, "[]");
    }
    let more: Vec<_> = asked(&stage).iter().zip(before).map(|(after, it)| after - it).collect();
    assert_eq!(more, [1, 1], "what two say is kept");
}

#[tokio::test(start_paused = true)]
async fn a_part_is_held_against_blooms_too() {
    let stage = stage(2, false);
    stage.show_bloom(100, 1, 1);
    for place in 0..2 {
        stage.peer(place).searches(2);
    }
    // Both learn that they search two blocks.
    stage.call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x5"}]"#).await;
    stage.call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x5"}]"#).await;
    let before = asked(&stage);
    stage.peer(0).next("eth_getLogs", result("[]"));
    let found = stage.call("eth_getLogs", r#"[{"fromBlock":"0x64","toBlock":"0x65"}]"#).await;
    assert_eq!((found.as_str(), missed(&stage)), ("[100,101]", vec![1, 0]), "{before:?}");
}

#[tokio::test(start_paused = true)]
async fn a_block_is_searched_by_its_hash_where_it_is_held() {
    let stage = stage(2, false);
    stage.show_block(1, 102, 1);
    stage.show_block(0, 102, 1);
    stage.show_block(1, 103, 1);
    stage.show_bloom(102, 1, 1);
    let params = format!(r#"[{{"blockHash":"{}"}}]"#, support::hash(102, 1));
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", result(LOG));
    assert_eq!(stage.call("eth_getLogs", &params).await, LOG);
    assert_eq!(missed(&stage), [1, 0]);
}

/// A stage of one upstream, what the client is told, and the warning.
async fn alone(stage: &Stage, params: &str) -> (String, Option<&'static str>) {
    let answer = ask(stage, "eth_getLogs", params).await;
    (text(&answer).replace(r#"{"jsonrpc":"2.0","id":1,"result":"#, ""), answer.warning)
}

fn unconfirmed(stage: &Stage) -> bool {
    stage.metrics().contains(r#"wellhead_logs_unconfirmed_total{chain="ethereum"} 1"#)
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_alone_is_asked_again_after_its_next_block() {
    let stage = stage(1, false);
    stage.show_bloom(100, 1, 1);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(0).next("eth_getLogs", result(LOG));
    let began = now();
    let next_block = async {
        tokio::time::sleep(Duration::from_millis(450)).await;
        stage.show_block(0, 102, 1);
    };
    let (told, ()) = tokio::join!(alone(&stage, ALL), next_block);
    assert_eq!(told, (format!("{LOG}}}"), None));
    let took = elapsed(began);
    assert!(took >= Duration::from_millis(450) && took < Duration::from_secs(1), "{took:?}");
    assert_eq!((asked(&stage), missed(&stage), unconfirmed(&stage)), (vec![2], vec![1], false));
}

/// As after a start (seed 987 of the simulated subscribers): the head of the other one is not known yet.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_shows_the_block_soon_is_waited_for() {
    let stage = Stage::new(vec![Plan { upstreams: 2, ..Plan::default() }]);
    stage.show_block(1, 90, 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    (90..=101).for_each(|number| stage.show_block(0, number, 1));
    stage.show_bloom(100, 1, 1);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", result(LOG));
    let blocks = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        stage.show_block(0, 102, 1);
        tokio::time::sleep(Duration::from_millis(250)).await;
        (99..=101).for_each(|number| stage.show_block(1, number, 1));
    };
    let (told, ()) = tokio::join!(alone(&stage, ALL), blocks);
    assert_eq!(told, (format!("{LOG}}}"), None));
    assert_eq!(
        (asked(&stage), missed(&stage), unconfirmed(&stage)),
        (vec![1, 1], vec![1, 0], false)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_empty_twice_is_served_with_a_warning() {
    let stage = stage(1, false);
    stage.show_bloom(100, 1, 1);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(0).next("eth_getLogs", result("[]"));
    let began = now();
    assert_eq!(alone(&stage, ALL).await, ("[]}".to_owned(), Some("logs-doubted")));
    let took = elapsed(began);
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3), "{took:?}");
    assert_eq!((asked(&stage), missed(&stage), unconfirmed(&stage)), (vec![2], vec![0], true));
}

#[tokio::test(start_paused = true)]
async fn weak_evidence_makes_no_call_wait() {
    let check = async |bits: u8, params: &str, waits: bool| {
        let stage = stage(1, false);
        stage.show_bloom(100, 1, bits);
        stage.peer(0).next_times(2, "eth_getLogs", result("[]"));
        let began = now();
        let (told, warning) = alone(&stage, params).await;
        assert_eq!(told, "[]}");
        assert_eq!((warning.is_some(), elapsed(began) > Duration::from_secs(1)), (waits, waits));
        assert_eq!(unconfirmed(&stage), waits, "{bits}");
    };
    check(1, ALL, true).await;
    check(0, ALL, false).await;
    // One address fits it in 42 of 100 cases by chance.
    check(0b0111_0111, ONE, false).await;
    check(255, ONE, false).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_another_could_not_confirm_has_a_warning() {
    let stage = stage(2, false);
    stage.show_bloom(100, 1, 1);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", error(-32000, "boom"));
    assert_eq!(alone(&stage, ALL).await, ("[]}".to_owned(), Some("logs-doubted")));
    assert!(unconfirmed(&stage));
}

#[tokio::test(start_paused = true)]
async fn one_item_of_a_batch_warns_for_all() {
    let stage = stage(1, false);
    stage.show_bloom(100, 1, 1);
    let call = |id: u8, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    stage.peer(0).next_times(2, "eth_getLogs", result("[]"));
    let batch = format!("[{},{}]", call(1, "eth_getLogs", ALL), call(2, "eth_chainId", "[]"));
    assert_eq!(stage.send(None, &batch).await.warning, Some("logs-doubted"));
    let batch = format!("[{}]", call(2, "eth_chainId", "[]"));
    assert_eq!(stage.send(None, &batch).await.warning, None);
}

/// What a client hears of logs that a primary upstream hides and one of a dearer tier has, and
/// which were asked.
async fn hidden(bits: u8, params: &str) -> (String, Vec<usize>) {
    let tiers = vec![Tier::Primary, Tier::Fallback];
    let stage = Stage::new(vec![Plan { upstreams: 2, tiers, ..Plan::default() }]);
    for place in 0..2 {
        for number in 99..=101 {
            stage.show_block(place, number, 1);
        }
    }
    stage.show_bloom(100, 1, bits);
    stage.peer(0).next("eth_getLogs", result("[]"));
    stage.peer(1).next("eth_getLogs", result(LOG));
    (stage.call("eth_getLogs", params).await, asked(&stage))
}

#[tokio::test(start_paused = true)]
async fn a_dearer_tier_is_asked_only_where_there_is_hardly_any_doubt() {
    assert_eq!(hidden(1, ALL).await, (LOG.to_owned(), vec![1, 1]), "any log is proof");
    // Three quarters of a bloom are set: those that fit do so by chance in two cases of five.
    let mut fitting = 0;
    for bits in (1..=255_u8).filter(|bits| bits.count_ones() == 6) {
        let stage = stage(2, false);
        stage.show_bloom(100, 1, bits);
        stage.peer(0).next("eth_getLogs", result("[]"));
        stage.call("eth_getLogs", ONE).await;
        if asked(&stage) == [1, 1] {
            fitting += 1;
            assert_eq!(hidden(bits, ONE).await, ("[]".to_owned(), vec![1, 0]), "{bits:b}");
        }
    }
    assert!(fitting > 0);
}
