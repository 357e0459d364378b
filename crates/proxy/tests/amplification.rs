//! How many calls upstreams get for one request, where they misbehave in the way that makes it
//! most. What is measured is what the table of `docs/limits.md` says.

mod support;

use std::collections::BTreeMap;

use support::{LogSearch, Plan, Stage, Step, error, ms};
use wellhead_dispatch::Quorum;
use wellhead_kit::{result, status};
use wellhead_proxy::QuorumRule;

const RAW: &str =
    r#"["0x02f86c0180843b9aca00843b9aca0082520894000000000000000000000000000000000000000080"]"#;
const HASH: &str = r#"["0x00000000000000000000000000000000000000000000000000000000000000aa"]"#;
const STATE: &str = r#"["0x00000000000000000000000000000000000000aa","latest"]"#;
const ONE_BLOCK: &str = r#"[{"fromBlock":"0x64","toBlock":"0x64","address":"0x00000000000000000000000000000000000000aa"}]"#;

/// How upstreams may answer all that they are asked.
fn faults() -> Vec<Step> {
    let slowly = |millis, step: Step| step.after(ms(millis));
    vec![
        result("\"0x1\""),
        result("null"),
        result("[]"),
        status(503, ""),
        Step::REFUSE,
        Step::Hang,
        error(-32603, "internal error"),
        error(-31999, "something that no rule knows"),
        error(-32000, "nonce too low: address 0x9a31, tx: 1 state: 4"),
        error(-32000, "missing trie node 5ab8 (path ) state 0x5ab8 is not available"),
        error(-32602, "invalid argument 1: json: cannot unmarshal object"),
        error(-32000, "header for hash not found"),
        error(-32005, "query returned more than 10000 results"),
        slowly(1_500, status(503, "")),
        slowly(1_500, result("null")),
        slowly(3_000, error(-32603, "internal error")),
    ]
}

/// Six upstreams on block 100.
fn stage(plan: Plan) -> Stage {
    let stage = Stage::new(vec![Plan { upstreams: 6, ..plan }]);
    for place in 0..6 {
        for number in 88..=100 {
            stage.show_block(place, number, b'a');
        }
        stage.show_final(place, 90);
    }
    // What is not there is doubtful.
    stage.show_bloom(100, b'a', 0x11);
    stage
}

fn calls(stage: &Stage) -> usize {
    stage.peers[0].iter().map(support::Peer::calls).sum()
}

/// The most calls that `method` makes of one, whatever upstreams answer.
async fn most(method: &str, params: &str, plan: impl Fn() -> Plan) -> usize {
    let mut most = 0;
    for fault in faults() {
        let stage = stage(plan());
        stage.peers[0].iter().for_each(|peer| peer.always("*", fault.clone()));
        stage.call(method, params).await;
        most = most.max(calls(&stage));
        // And with one that is well among them.
        let stage = self::stage(plan());
        stage.peers[0][1..].iter().for_each(|peer| peer.always("*", fault.clone()));
        stage.call(method, params).await;
        most = most.max(calls(&stage));
    }
    most
}

fn agreeing() -> Plan {
    let methods = vec!["eth_getBalance".parse().expect("a glob")];
    Plan { quorum: vec![QuorumRule { methods, quorum: Quorum::default() }], ..Plan::default() }
}

/// A search for logs over `blocks` blocks, of which upstreams answer `results` at once.
async fn search(stage: &Stage, blocks: u64) -> String {
    let params = format!(
        r#"[{{"fromBlock":"0x1","toBlock":"0x{blocks:x}","address":"0x00000000000000000000000000000000000000aa"}}]"#
    );
    stage.call("eth_getLogs", &params).await
}

/// Searches of a dense filter and others before upstreams of which every other one fails.
async fn searches() -> usize {
    let mut most = 0;
    for (blocks, results) in [(99, 1), (150, 2), (2_000, 10), (90_000, 900)] {
        for fault in faults() {
            let stage = stage(Plan::default());
            (0..6).for_each(|place| stage.show_head(place, 100_000));
            for (place, peer) in stage.peers[0].iter().enumerate() {
                match place % 2 {
                    0 => peer.searches_logs(LogSearch {
                        results: (results, "query returned more than 10000 results"),
                        ..LogSearch::default()
                    }),
                    _ => peer.always("*", fault.clone()),
                }
            }
            search(&stage, blocks).await;
            most = most.max(calls(&stage));
        }
    }
    // As many parts as there may be, where it is known before that they are needed.
    let stage = stage(Plan::default());
    let blocks = (1, "block range too large, max 1 blocks");
    let search_logs = LogSearch { blocks, ..LogSearch::default() };
    stage.peers[0].iter().for_each(|peer| peer.searches_logs(search_logs));
    for _ in 0..20 {
        search(&stage, 2).await;
    }
    let before = calls(&stage);
    search(&stage, 100).await;
    most.max(calls(&stage) - before)
}

/// Polls of a filter, while upstreams fail, after two new blocks.
async fn polls() -> usize {
    let mut most = 0;
    for fault in faults() {
        let stage = stage(Plan::default());
        let show = |number| (0..6).for_each(|place| stage.show_block(place, number, b'a'));
        (100_001..=100_003).for_each(show);
        let id = stage.call("eth_newFilter", "[{}]").await;
        (100_004..=100_005).for_each(show);
        stage.peers[0].iter().for_each(|peer| peer.always("*", fault.clone()));
        let before = calls(&stage);
        stage.call("eth_getFilterChanges", &format!("[{id}]")).await;
        most = most.max(calls(&stage) - before);
    }
    most
}

/// A batch of reads that all fail together, and then alone.
async fn batch(items: usize) -> usize {
    let mut most = 0;
    for fault in faults() {
        let stage = stage(Plan::default());
        stage.peers[0].iter().for_each(|peer| peer.always("*", fault.clone()));
        let call = r#"{"id":1,"method":"eth_getTransactionReceipt","params":["0xaa"]}"#;
        stage.ask(&format!("[{}]", vec![call; items].join(","))).await;
        most = most.max(calls(&stage));
    }
    most
}

/// The numbers of the table in `docs/limits.md`, by what is called.
fn documented() -> BTreeMap<String, usize> {
    let page = include_str!("../../../docs/limits.md");
    let (_, table) = page.split_once("<!-- calls:begin -->").expect("the table begins");
    let (table, _) = table.split_once("<!-- calls:end -->").expect("and ends");
    let rows = table.trim().lines().skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let number = cells[1].replace(',', "");
        (cells[0].to_owned(), number.parse().expect("a number"))
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn the_table_of_calls_for_a_call_is_what_upstreams_get() {
    let keeping = || Plan { keeps: true, ..Plan::default() };
    let dev = || {
        let allow = vec!["eth_sendTransaction".parse().expect("a method")];
        let dangerous = wellhead_route::DangerousMethods { allow, on_test_chains: false };
        Plan { dangerous, ..Plan::default() }
    };
    let measured = [
        ("`eth_blockNumber`, `eth_chainId`, `net_version`, `web3_clientVersion`", {
            let number = most("eth_blockNumber", "[]", Plan::default).await;
            number + most("eth_chainId", "[]", Plan::default).await
        }),
        ("a read", most("eth_gasPrice", "[]", Plan::default).await),
        ("a state at a new block, by its hash (`cache.by_hash`)", {
            most("eth_getBalance", STATE, keeping).await
        }),
        ("`eth_getTransactionByHash`", most("eth_getTransactionByHash", HASH, Plan::default).await),
        ("a read with a quorum of 2 of 3", most("eth_getBalance", STATE, agreeing).await),
        ("`eth_getLogs` of one block", most("eth_getLogs", ONE_BLOCK, Plan::default).await),
        ("a search over blocks or addresses (`searches.calls_max`)", searches().await),
        ("a trace", most("debug_traceTransaction", HASH, Plan::default).await),
        ("`eth_sendRawTransaction`", most("eth_sendRawTransaction", RAW, Plan::default).await),
        ("another write", most("eth_sendTransaction", "[{}]", dev).await),
        ("a new filter for blocks or logs", most("eth_newFilter", "[{}]", Plan::default).await),
        ("a poll of a filter for logs", polls().await),
        ("a new filter for pending transactions", {
            most("eth_newPendingTransactionFilter", "[]", Plan::default).await
        }),
        ("each of 200 reads in a batch", batch(200).await.div_ceil(200)),
    ];
    let measured: BTreeMap<String, usize> =
        measured.into_iter().map(|(what, calls)| (what.to_owned(), calls)).collect();
    assert_eq!(measured, documented());
}

#[tokio::test(start_paused = true)]
async fn a_search_makes_no_more_calls_than_it_may() {
    assert!(searches().await <= 100);
}

#[tokio::test(start_paused = true)]
async fn a_search_that_took_too_many_calls_fails_before_the_first_one_the_next_time() {
    let too_many = "query returned more than 10000 results";
    for (blocks, results, first) in [
        ((u64::MAX, ""), (10, too_many), 101),
        ((1_000, "block range too large, max 1000 blocks"), (10, too_many), 101),
        ((10, "block range too large, max 10 blocks"), (usize::MAX, ""), 1),
        ((10, "block range is too wide"), (usize::MAX, ""), 101),
    ] {
        let stage = Stage::upstreams(1);
        stage.show_head(0, 100_000);
        stage.peer(0).searches_logs(LogSearch { blocks, results, ..LogSearch::default() });
        let answer = search(&stage, 2_500).await;
        assert!(answer.contains("-32012"), "{blocks:?}: {answer}");
        assert!(calls(&stage) <= first, "{blocks:?}: {} calls", calls(&stage));
        let before = calls(&stage);
        for _ in 0..3 {
            let again = search(&stage, 2_500).await;
            assert!(again.contains("-32012"), "{blocks:?}: {again}");
        }
        assert_eq!(calls(&stage), before, "{blocks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_searches_makes_no_more_calls_than_a_request_may() {
    let stage = Stage::upstreams(2);
    (0..2).for_each(|place| stage.show_head(place, 100_000));
    let search = LogSearch {
        results: (30, "query returned more than 10000 results"),
        ..LogSearch::default()
    };
    stage.peers[0].iter().for_each(|peer| peer.searches_logs(search));
    let item = |number: usize| {
        let address = format!("\"0x{number:040x}\"");
        format!(
            r#"{{"id":{number},"method":"eth_getLogs","params":[{{"fromBlock":"0x1","toBlock":"0x3e8","address":{address}}}]}}"#
        )
    };
    let items: Vec<String> = (0..1_000).map(item).collect();
    let answer = stage.ask(&format!("[{}]", items.join(","))).await;
    assert!(calls(&stage) <= 5_000, "{} calls", calls(&stage));
    assert!(calls(&stage) > 4_900, "{} calls", calls(&stage));
    assert!(answer.contains("`limits.upstream_calls`"), "{}", &answer[answer.len() - 500..]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_thousand_reads_is_answered() {
    let stage = Stage::upstreams(2);
    (0..2).for_each(|place| stage.show_head(place, 100));
    let item = |number: usize| {
        format!(
            r#"{{"id":{number},"method":"eth_getTransactionReceipt","params":["0x{number:x}"]}}"#
        )
    };
    let items: Vec<String> = (0..1_000).map(item).collect();
    let body = format!("[{}]", items.join(","));
    assert!(!stage.ask(&body).await.contains("error"));
    assert_eq!(calls(&stage), 1_000);
    // And after all of its exchanges failed.
    stage.peers[0].iter().for_each(|peer| {
        peer.next_times(10, "eth_getTransactionReceipt", Step::REFUSE);
    });
    let answer = stage.ask(&body).await;
    assert!(!answer.contains("limits.upstream_calls"));
}
