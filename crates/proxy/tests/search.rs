//! Searches over more blocks than upstreams accept.

mod support;

use support::{Stage, error, result};

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
