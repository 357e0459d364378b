//! Searches over more blocks than upstreams accept.

mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{Plan, Stage, elapsed, error, result};
use wellhead_dispatch::now;
use wellhead_proxy::Answer;

fn blocks(from: u64, to: u64) -> String {
    let blocks: Vec<String> = (from..=to).map(|block| block.to_string()).collect();
    format!("[{}]", blocks.join(","))
}

/// Searches `from..=to` where upstream `a` accepts `a_max` blocks at once and `b`, if it is
/// there, `b_max`; compares what each is asked, and returns the answer.
async fn check(stage: &Stage, (from, to): (u64, u64), searched: &[&str]) -> String {
    let before: Vec<String> = stage.peers[0].iter().map(|peer| peer.searched()).collect();
    let params = format!(r#"[{{"address":"0x01","fromBlock":"0x{from:x}","toBlock":"0x{to:x}"}}]"#);
    let answer = stage.call("eth_getLogs", &params).await;
    for (place, expected) in searched.iter().enumerate() {
        let asked = stage.peer(place).searched();
        assert_eq!(asked[before[place].len()..].trim(), *expected, "upstream {place}");
    }
    answer
}

fn stage(accepts: &[u64]) -> Stage {
    let stage = Stage::upstreams(accepts.len());
    for (place, most) in accepts.iter().enumerate() {
        stage.peer(place).searches(*most);
        stage.show_head(u8::try_from(place).expect("few"), 1000);
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_the_limit_is_learnt() {
    let stage = stage(&[4]);
    let answer = check(&stage, (1, 10), &["1-10 1-4 5-8 9-10"]).await;
    assert_eq!(answer, blocks(1, 10));
    let answer = check(&stage, (11, 20), &["11-14 15-18 19-20"]).await;
    assert_eq!(answer, blocks(11, 20), "known from the first time");
    let answer = check(&stage, (30, 33), &["30-33"]).await;
    assert_eq!(answer, blocks(30, 33), "what is accepted goes whole");
}

#[tokio::test(start_paused = true)]
async fn who_accepts_more_is_asked() {
    let stage = stage(&[4, 100]);
    // Whoever is first: the other one has it all.
    let first = check(&stage, (1, 50), &[]).await;
    assert_eq!(first, blocks(1, 50));
    let before = stage.peer(0).searched();
    for _ in 0..20 {
        assert_eq!(check(&stage, (1, 50), &[]).await, blocks(1, 50));
    }
    let tried = stage.peer(0).searched()[before.len()..].split_whitespace().count();
    assert!(tried <= 1, "asked {tried} times for what it does not accept");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_divided_is_told_in_the_upstreams_words() {
    let stage = stage(&[0]);
    let answer = check(&stage, (5, 5), &["5-5"]).await;
    assert!(answer.contains("range 1 exceeds limit of 0"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_are_refused_before_they_are_made() {
    let stage = stage(&[2]);
    let answer = check(&stage, (1, 900), &["1-900"]).await;
    assert!(answer.contains("-32012") && answer.contains("at most 100 calls"), "{answer}");
    // What is above the head is not there to be found.
    let answer = check(&stage, (901, u64::MAX / 2), &[]).await;
    assert_eq!(answer, blocks(901, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_fails_the_search() {
    let stage = stage(&[4]);
    check(&stage, (1, 10), &["1-10 1-4 5-8 9-10"]).await;
    stage.peer(0).next("eth_getLogs", error(-32602, "invalid argument 0: bad topics"));
    let answer = check(&stage, (1, 10), &[]).await;
    assert!(answer.contains("bad topics"), "{answer}");
    stage.peer(0).next("eth_getLogs", result("{}"));
    let answer = check(&stage, (1, 10), &[]).await;
    assert!(answer.contains("no list"), "{answer}");
}

const SECOND: Duration = Duration::from_secs(1);

/// One upstream that takes `time` for each search over at most four blocks, which is known of
/// it, before clients for whom all but the smallest answers flow.
async fn flowing(time: Duration) -> Stage {
    let stage = Stage::new(vec![Plan { whole_bytes_max: 20, ..Plan::default() }]);
    stage.peer(0).searches(4);
    stage.show_head(0, 1000);
    check(&stage, (1, 5), &["1-5 1-4 5-5"]).await;
    stage.peer(0).searches_slowly(4, time);
    stage
}

async fn ask(stage: &Stage, from: u64, to: u64) -> Answer {
    let params = format!(r#"[{{"fromBlock":"0x{from:x}","toBlock":"0x{to:x}"}}]"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":{params}}}"#);
    stage.send(None, &body).await
}

/// Reads what flows; `Err` where it is cut.
async fn read(answer: Answer) -> Result<String, String> {
    let mut pieces = answer.body;
    if let Some(mut rest) = answer.rest {
        while let Some(piece) = rest.next().await {
            pieces.push(piece.map_err(|error| error.to_string())?);
        }
    }
    Ok(String::from_utf8_lossy(&Bytes::from(pieces.concat())).into_owned())
}

fn asked(stage: &Stage) -> usize {
    stage.peer(0).searched().split_whitespace().count()
}

#[tokio::test(start_paused = true)]
async fn a_large_search_flows_while_its_end_is_still_looked_for() {
    let stage = flowing(SECOND * 61 / 50).await;
    let began = now();
    let answer = ask(&stage, 1, 396).await;
    assert!(elapsed(began) < SECOND * 3, "{:?}", elapsed(began));
    assert!(answer.rest.is_some() && answer.status == 200);
    let expected = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, blocks(1, 396));
    assert_eq!(read(answer).await, Ok(expected));
    assert!(elapsed(began) > SECOND * 30, "longer than any call may take, and well");
}

#[tokio::test(start_paused = true)]
async fn little_is_asked_for_ahead_of_a_client_that_does_not_read() {
    let stage = flowing(SECOND / 10).await;
    let before = asked(&stage);
    let answer = ask(&stage, 1, 396).await;
    tokio::time::sleep(SECOND * 5).await;
    let ahead = asked(&stage) - before;
    assert!((4..=16).contains(&ahead), "{ahead} parts of 99");
    let said = read(answer).await.expect("all of it");
    assert!(said.ends_with(",395,396]}"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_ends_the_search() {
    let stage = flowing(SECOND).await;
    let answer = ask(&stage, 1, 396).await;
    drop(answer);
    tokio::time::sleep(SECOND / 2).await;
    let after = asked(&stage);
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(asked(&stage), after);
    assert_eq!((stage.answers.held(), stage.upstream(0).in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_fails_on_its_way_is_cut_and_what_fails_before_is_told() {
    let stage = flowing(SECOND).await;
    let long = format!("[{}]", vec!["7"; 20].join(","));
    for _ in 0..4 {
        stage.peer(0).next("eth_getLogs", result(&long));
    }
    stage.peer(0).next("eth_getLogs", error(-32602, "invalid argument 0: bad topics"));
    let answer = ask(&stage, 1, 396).await;
    assert!(answer.rest.is_some());
    let cut = read(answer).await.expect_err("a part failed");
    assert!(cut.contains("refused a part"), "{cut}");
    stage.peer(0).next("eth_getLogs", error(-32602, "invalid argument 0: bad topics"));
    let answer = read(ask(&stage, 1, 396).await).await.expect("whole");
    assert!(answer.contains("bad topics"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_search_that_is_not_ended_in_time_is_cut() {
    let stage = flowing(SECOND * 4).await;
    let answer = ask(&stage, 1, 396).await;
    let cut = read(answer).await.expect_err("a hundred seconds for a thousand bytes");
    assert!(cut.contains("too slowly"), "{cut}");
}

#[tokio::test(start_paused = true)]
async fn parts_that_are_final_are_asked_for_once() {
    let stage = Stage::keeping(1);
    stage.peer(0).searches(4);
    stage.show_head(0, 1000);
    stage.show_final(0, 990);
    check(&stage, (900, 905), &["900-905 900-903 904-905"]).await;
    let answer = check(&stage, (910, 925), &["910-911 912-915 916-919 920-923 924-925"]).await;
    assert_eq!(answer, blocks(910, 925));
    // The window moves on: what is in both is known.
    let answer = check(&stage, (913, 930), &["913-915 924-927 928-930"]).await;
    assert_eq!(answer, blocks(913, 930));
    // What is not final is asked for each time, and what is below it is not.
    let answer = check(&stage, (980, 995), &["980-983 984-987 988-991 992-995"]).await;
    assert_eq!(answer, blocks(980, 995));
    let answer = check(&stage, (980, 996), &["988-991 992-995 996-996"]).await;
    assert_eq!(answer, blocks(980, 996));
}
