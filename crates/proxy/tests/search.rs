//! Searches over more blocks than upstreams accept.

mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{LogSearch, Plan, Stage, address, elapsed, error, log};
use wellhead_dispatch::now;
use wellhead_kit::result;
use wellhead_proxy::Answer;

fn blocks(from: u64, to: u64) -> String {
    let blocks: Vec<String> = (from..=to).map(|block| block.to_string()).collect();
    format!("[{}]", blocks.join(","))
}

/// Searches `from..=to` where upstream `a` accepts `a_max` blocks at once and `b`, if it is
/// there, `b_max`; compares what each is asked, and returns the answer.
async fn check(stage: &Stage, (from, to): (u64, u64), searched: &[&str]) -> String {
    let before: Vec<String> = stage.peers[0].iter().map(support::Peer::searched).collect();
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
async fn an_upstream_that_accepts_more_is_asked() {
    let stage = stage(&[4, 100]);
    // Whichever is first: the other one has it all.
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
/// it, before clients to which all but the smallest answers flow.
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
    stage.peer(0).next_times(4, "eth_getLogs", result(&long));
    stage.peer(0).next("eth_getLogs", error(-32602, "invalid argument 0: bad topics"));
    let answer = ask(&stage, 1, 396).await;
    assert!(answer.rest.is_some());
    let cut = read(answer).await.expect_err("a part failed");
    assert!(cut.contains("refused a part"), "{cut}");
    stage.peer(0).next("eth_getLogs", error(-32602, "invalid argument 0: bad topics"));
    let answer = read(ask(&stage, 1, 396).await).await.expect("whole");
    assert!(answer.contains("bad topics"), "{answer}");
}

/// The answers to parts that were under way when another part failed would be read only once the client
/// has read what is before the error: until then they would hold connections.
#[tokio::test(start_paused = true)]
async fn a_search_that_fails_on_its_way_holds_no_upstream_while_its_client_does_not_read() {
    let stage = flowing(SECOND).await;
    let long = format!("[{}]", vec!["7"; 20].join(","));
    let refusal = error(-32602, "invalid argument 0: bad topics");
    stage.peer(0).next("eth_getLogs", result(&long));
    stage.peer(0).next("eth_getLogs", refusal.after(SECOND / 10));
    let answer = ask(&stage, 1, 396).await;
    assert!(answer.rest.is_some());
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(stage.upstream(0).in_flight(), 0);
    let cut = read(answer).await.expect_err("a part failed");
    assert!(cut.contains("refused a part"), "{cut}");
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

/// Upstreams that stand on block 1,000,000 and answer searches for logs like this.
fn logs_stage(searches: &[LogSearch]) -> Stage {
    let stage = Stage::upstreams(searches.len());
    for (place, search) in searches.iter().enumerate() {
        stage.peer(place).searches_logs(*search);
        stage.show_head(u8::try_from(place).expect("few"), 1_000_000);
    }
    stage
}

/// Takes this many addresses, and refuses more with these words.
fn few_addresses(most: usize, words: &'static str) -> LogSearch {
    LogSearch { addresses: (most, words), ..<_>::default() }
}

/// Finds this many logs, and refuses more with these words.
fn few_results(most: usize, words: &'static str) -> LogSearch {
    LogSearch { results: (most, words), ..<_>::default() }
}

/// The filter of a search for the first `addresses` addresses.
fn filter(range: &str, addresses: u8) -> String {
    let all: Vec<_> = (1..=addresses).map(address).collect();
    format!(r#"[{{{range},"address":[{}]}}]"#, all.join(","))
}

fn over((from, to): (u64, u64)) -> String {
    format!(r#""fromBlock":"0x{from:x}","toBlock":"0x{to:x}""#)
}

fn logs((from, to): (u64, u64), addresses: u8) -> String {
    let logs = (from..=to).flat_map(|block| (1..=addresses).map(move |it| log(block, it)));
    format!("[{}]", logs.collect::<Vec<_>>().join(","))
}

/// Searches for the first `addresses` addresses, compares what the upstream is asked
/// (`blocks:addresses`), and that everything is found in order.
async fn check_logs(stage: &Stage, range: (u64, u64), addresses: u8, asked: &str) {
    let before = stage.peer(0).searched_for();
    let answer = stage.call("eth_getLogs", &filter(&over(range), addresses)).await;
    assert_eq!(stage.peer(0).searched_for()[before.len()..].trim(), asked);
    assert_eq!(answer, logs(range, addresses));
}

/// Time passes, and the upstreams are still there.
async fn pass(stage: &Stage, seconds: u32) {
    tokio::time::advance(SECOND * seconds).await;
    for place in 0..stage.peers[0].len() {
        stage.show_head(u8::try_from(place).expect("few"), 1_000_000);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_addresses_are_asked_for_in_groups_over_all_blocks() {
    let narrow = few_addresses(2, "exceed max addresses or topics per search position");
    let stage = logs_stage(&[narrow]);
    check_logs(&stage, (1, 50), 5, "1-50:5 1-50:2 1-50:2 1-50:1").await;
    check_logs(&stage, (51, 60), 4, "51-60:2 51-60:2").await;
    check_logs(&stage, (51, 60), 2, "51-60:2").await;
    check_logs(&stage, (8, 8), 3, "8-8:2 8-8:1").await;
    pass(&stage, 601).await;
    check_logs(&stage, (1, 9), 4, "1-9:4 1-9:2 1-9:2").await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_the_number_of_addresses_is_taken_at_its_word() {
    let words = "This query contains 9 filters. The current limit is 3.";
    let stage = logs_stage(&[few_addresses(3, words)]);
    check_logs(&stage, (1, 5), 9, "1-5:9 1-5:3 1-5:3 1-5:3").await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_named_twice_is_found_once() {
    let stage = logs_stage(&[few_addresses(2, "specify less number of address")]);
    let list = [1, 2, 1, 3, 2, 4].map(address).join(",");
    let params = format!(r#"[{{{},"address":[{list}]}}]"#, over((1, 3)));
    assert_eq!(stage.call("eth_getLogs", &params).await, logs((1, 3), 4));
    assert_eq!(stage.peer(0).searched_for(), "1-3:6 1-3:2 1-3:2");
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_a_search_by_hash_are_divided() {
    let stage = logs_stage(&[few_addresses(2, "specify less number of address")]);
    let hash = format!(r#""blockHash":"{}""#, support::hash(7, 1));
    let answer = stage.call("eth_getLogs", &filter(&hash, 4)).await;
    assert_eq!(answer, logs((7, 7), 4));
    assert_eq!(stage.peer(0).searched_for(), "0-0:4 0-0:2 0-0:2");
    assert!(stage.peer(0).seen().iter().all(|call| call.contains(&hash)));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_takes_more_addresses_is_asked() {
    let narrow = few_addresses(2, "specify less number of address");
    let stage = logs_stage(&[narrow, LogSearch::default()]);
    for _ in 0..5 {
        let answer = stage.call("eth_getLogs", &filter(&over((1, 9)), 5)).await;
        assert_eq!(answer, logs((1, 9), 5));
    }
    assert_eq!(stage.peer(0).searched_for(), "1-9:5", "once, and not divided");
    assert_eq!(stage.peer(1).seen().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_cannot_be_divided_is_told_in_clear_words_after_one_call() {
    let stage =
        logs_stage(&[few_addresses(0, "exceed max addresses or topics per search position")]);
    let answer = stage.call("eth_getLogs", &filter(&over((1, 99)), 1)).await;
    for words in [
        "-32012",
        "upstream `a` refused the filter: exceed max addresses or topics per search position",
        "names one address",
        "fewer topics",
    ] {
        assert!(answer.contains(words), "{answer}");
    }
    assert_eq!(stage.peer(0).searched_for(), "1-99:1");
    // Nor does dividing go on for ever where one address is too many.
    let answer = stage.call("eth_getLogs", &filter(&over((1, 99)), 2)).await;
    assert!(answer.contains("refused the filter"), "{answer}");
    assert_eq!(stage.peer(0).searched_for(), "1-99:1 1-99:2 1-99:1");
}

#[tokio::test(start_paused = true)]
async fn blocks_and_addresses_are_divided_within_the_calls_of_one_search() {
    let narrow = LogSearch {
        blocks: (10, "block range is too large, max block range: 10"),
        addresses: (2, "specify less number of address"),
        ..<_>::default()
    };
    let stage = logs_stage(&[narrow]);
    let expected = "1-20:4 1-20:2 1-20:2 1-10:2 11-20:2 1-10:2 11-20:2";
    check_logs(&stage, (1, 20), 4, expected).await;
    check_logs(&stage, (21, 40), 4, "21-30:2 21-30:2 31-40:2 31-40:2").await;
    let before = stage.peer(0).seen().len();
    let answer = stage.call("eth_getLogs", &filter(&over((1, 400)), 6)).await;
    assert!(answer.contains("at most 100 calls") && answer.contains("2 addresses"), "{answer}");
    assert_eq!(stage.peer(0).seen().len(), before, "120 calls are not begun");
    check_logs(&stage, (1, 100), 4, &{
        let parts =
            (0..10).map(|part| format!("{0}-{1}:2 {0}-{1}:2", part * 10 + 1, part * 10 + 10));
        parts.collect::<Vec<_>>().join(" ")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_range_without_a_number_is_remembered() {
    let stage =
        logs_stage(&[LogSearch { blocks: (10, "block range is too wide"), ..<_>::default() }]);
    // Four parts at a time: those after the first that is refused are shorter.
    check_logs(&stage, (1, 32), 1, "1-32:1 1-16:1 17-32:1 1-8:1 9-16:1 17-24:1 25-32:1").await;
    check_logs(&stage, (33, 48), 1, "33-40:1 41-48:1").await;
    check_logs(&stage, (1, 8), 2, "1-8:2").await;
    check_logs(&stage, (9, 24), 2, "9-16:2 17-24:2").await;
    pass(&stage, 601).await;
    // Tried again, and what was answered before is known.
    check_logs(&stage, (1, 32), 1, "1-32:1 1-16:1 17-32:1 1-8:1 9-16:1 17-24:1 25-32:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_length_that_was_refused_grows_to_what_is_accepted() {
    let stage =
        logs_stage(&[LogSearch { blocks: (100, "block range is too wide"), ..<_>::default() }]);
    stage.call("eth_getLogs", &filter(&over((1, 300)), 1)).await;
    let refused = async |range| {
        let before = stage.peer(0).searched_for();
        stage.call("eth_getLogs", &filter(&over(range), 1)).await;
        let after = stage.peer(0).searched_for()[before.len()..].to_owned();
        let lengths = after.split_whitespace().map(|search| {
            let (from, to) = search.trim_end_matches(":1").split_once('-').expect("a range");
            to.parse::<u64>().expect("a number") - from.parse::<u64>().expect("a number") + 1
        });
        let lengths: Vec<_> = lengths.collect();
        (lengths.iter().filter(|len| **len > 100).count(), *lengths.iter().max().expect("some"))
    };
    let mut all = 0;
    for search in 0..10 {
        let (some, _) = refused((search * 1000 + 1, search * 1000 + 1000)).await;
        all += some;
    }
    assert!(all <= 8, "{all} refusals in ten searches of at least ten calls");
    let (none, longest) = refused((20_001, 21_000)).await;
    assert!(none == 0 && longest > 80, "{none} refused, {longest} blocks at most");
}

#[tokio::test(start_paused = true)]
async fn too_many_results_bound_searches_for_the_same_alone() {
    for (words, first, second) in [
        ("query returned more than 10000 results", "1-16:2 1-8:2 9-16:2", "17-24:2 25-32:2"),
        (
            "Query returned more than 10000 results. Try with this block range [0x1, 0x5].",
            "1-16:2 1-5:2 6-10:2 11-15:2 16-16:2",
            "17-21:2 22-26:2 27-31:2 32-32:2",
        ),
    ] {
        let stage = logs_stage(&[few_results(16, words)]);
        check_logs(&stage, (1, 16), 2, first).await;
        check_logs(&stage, (17, 32), 2, second).await;
        check_logs(&stage, (1, 16), 1, "1-16:1").await;
        pass(&stage, 121).await;
        let before = stage.peer(0).seen().len();
        stage.call("eth_getLogs", &filter(&over((17, 32)), 2)).await;
        let tried = stage.peer(0).seen()[before].contains(r#""toBlock":"0x20""#);
        assert!(tried, "the whole is tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_that_are_less_dense_are_searched_in_few_calls_at_once() {
    let stage = logs_stage(&[few_results(64, "query returned more than 10000 results")]);
    check_logs(&stage, (1, 4), 32, "1-4:32 1-2:32 3-4:32").await;
    // The same filter, where results are few enough: parts of two blocks would be a thousand.
    stage.peer(0).searches_logs(LogSearch::default());
    let before = stage.peer(0).seen().len();
    let params = filter(&over((1001, 3000)), 32);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":{params}}}"#);
    let found = read(stage.send(None, &body).await).await.expect("all of it");
    assert!(found.ends_with(&format!("{}]}}", log(3000, 32))), "{}", found.len());
    let calls = stage.peer(0).seen().len() - before;
    assert!(calls < 50, "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_holds_too_much_is_asked_for_by_groups_of_addresses() {
    let stage = logs_stage(&[few_results(2, "query returned more than 10000 results")]);
    check_logs(&stage, (5, 5), 4, "5-5:4 5-5:2 5-5:2").await;
    let answer = stage.call("eth_getLogs", &filter(&over((5, 5)), 1)).await;
    assert_eq!(answer, logs((5, 5), 1));
}
