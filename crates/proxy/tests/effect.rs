//! Reads, writes, filters and subscriptions, and what a client is told when they fail.

mod support;

use std::time::Duration;

use support::{Plan, Stage, Step, error, hash, rules, settle, text};
use wellhead_dispatch::now;
use wellhead_eth::ChainId;
use wellhead_kit::{result, status};
use wellhead_route::DangerousMethods;
use wellhead_upstream::{Standing, VerdictClass};

/// The example of EIP-155, signed: its hash is known from elsewhere.
const RAW: &str = r#"["0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"]"#;
const HASH: &str = r#""0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788""#;
const SEND: &str = "eth_sendRawTransaction";

#[tokio::test(start_paused = true)]
async fn a_filter_lives_where_it_was_made() {
    let stage = Stage::upstreams(2);
    // The first choice fails, so that the filter is made by the second.
    stage.peer(0).next("eth_newPendingTransactionFilter", Step::REFUSE);
    stage.peer(1).next("eth_newPendingTransactionFilter", result("\"0xabc1\""));
    let id = stage.call("eth_newPendingTransactionFilter", "[]").await;
    assert!(id.starts_with("\"0x") && id.ends_with("abc1\"") && id.len() == 16, "{id}");
    stage.peer(1).next("eth_getFilterChanges", result("[1,2]"));
    assert_eq!(stage.call("eth_getFilterChanges", &format!("[{id}]")).await, "[1,2]");
    assert_eq!(stage.call("eth_getFilterLogs", &format!("[{id}]")).await, "\"b\"");
    stage.peer(1).next("eth_uninstallFilter", result("true"));
    assert_eq!(stage.call("eth_uninstallFilter", &format!("[{id}]")).await, "true");
    assert_eq!(stage.peer(0).seen(), [r#"{"eth_newPendingTransactionFilter","params":[]}"#]);
    assert_eq!(
        stage.peer(1).seen()[1..],
        [
            r#"{"eth_getFilterChanges","params":["0xabc1"]}"#,
            r#"{"eth_getFilterLogs","params":["0xabc1"]}"#,
            r#"{"eth_uninstallFilter","params":["0xabc1"]}"#,
        ]
    );
    // What is new was perhaps taken away: it is not asked for again.
    stage.peer(1).next("eth_getFilterChanges", status(502, ""));
    let lost = stage.call("eth_getFilterChanges", &format!("[{id}]")).await;
    assert!(lost.contains("\"code\":-32002"), "{lost}");
    assert_eq!(stage.peer(1).seen().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_filter_is_told_in_the_words_that_clients_know() {
    let stage = Stage::upstreams(2);
    for id in
        ["[\"0x1\"]", "[\"0x00000000abc1\"]", "[\"abc\"]", "[1]", "[]", "{}", "[\"0x\\u00e9\"]"]
    {
        let told = stage.call("eth_getFilterChanges", id).await;
        assert_eq!(told, r#"{"code":-32000,"message":"filter not found"}"#, "{id}");
    }
    let told = stage.call("eth_getFilterChanges", "null").await;
    assert_eq!(told, r#"{"code":-32602,"message":"missing value for required argument 0"}"#);
    assert!(stage.peer(0).seen().is_empty() && stage.peer(1).seen().is_empty());
    // Its own upstream forgot it: those words are passed on.
    stage.peer(0).next("eth_newPendingTransactionFilter", result("\"0x7\""));
    let id = stage.call("eth_newPendingTransactionFilter", "[]").await;
    stage.peer(0).next("eth_getFilterChanges", error(-32000, "filter not found"));
    let told = stage.call("eth_getFilterChanges", &format!("[{id}]")).await;
    assert_eq!(told, r#"{"code":-32000,"message":"filter not found"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_filter_id_that_cannot_be_named_is_not_handed_out() {
    let stage = Stage::upstreams(1);
    stage.peer(0).next("eth_newPendingTransactionFilter", result("17"));
    let told = stage.call("eth_newPendingTransactionFilter", "[]").await;
    assert!(told.contains("\"code\":-32002"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_need_a_connection_that_stays() {
    let stage = Stage::upstreams(1);
    for method in ["eth_subscribe", "eth_unsubscribe"] {
        let told = stage.call(method, "[\"newHeads\"]").await;
        assert!(
            told.starts_with(r#"{"code":-32601,"#) && told.contains("notifications not supported"),
            "{told}"
        );
    }
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn already_known_is_a_success_with_the_hash() {
    let stage = Stage::upstreams(1);
    stage.peer(0).next(SEND, error(-32000, "already known"));
    assert_eq!(stage.call(SEND, RAW).await, HASH);
    // Of what is no transaction no hash can be told.
    stage.peer(0).next(SEND, error(-32000, "already known"));
    assert_eq!(stage.call(SEND, "[1]").await, r#"{"code":-32000,"message":"already known"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_goes_on_to_upstreams_that_can_be_reached() {
    let stage = Stage::upstreams(2);
    stage.peer(0).next(SEND, Step::REFUSE);
    stage.peer(1).next(SEND, result(HASH));
    assert_eq!(stage.call(SEND, RAW).await, HASH);
    // Also when the first may have taken it, and the second knows it by then.
    stage.peer(0).next(SEND, Step::Hang);
    stage.peer(1).next(SEND, error(-32000, "already known"));
    settle(stage.upstream(0), "eth_call", VerdictClass::Answer, Duration::ZERO);
    assert_eq!(stage.call(SEND, RAW).await, HASH);
}

#[tokio::test(start_paused = true)]
async fn a_used_nonce_may_be_this_very_transactions() {
    const REFUSED: &str = r#"{"code":-32000,"message":"nonce too low"}"#;
    const LOOK: &str = "eth_getTransactionByHash";
    for (found, told) in [
        (result(r#"{"hash":"0x33"}"#), HASH),
        (result("null"), REFUSED),
        (error(-32000, "too busy"), REFUSED),
    ] {
        let stage = Stage::upstreams(2);
        for place in 0..2 {
            stage.peer(place).next(SEND, error(-32000, "nonce too low"));
            stage.peer(place).next(LOOK, found.clone());
        }
        assert_eq!(stage.call(SEND, RAW).await, told, "{found:?}");
        let looked = format!(r#"{{"{LOOK}","params":[{HASH}]}}"#);
        assert_eq!(stage.peer(0).seen().last(), Some(&looked));
    }
    // Another refusal, or of a transaction that we cannot name, is final.
    let stage = Stage::upstreams(1);
    for (params, words) in
        [(RAW, "insufficient funds for gas * price + value"), ("[1]", "nonce too low")]
    {
        stage.peer(0).next(SEND, error(-32000, words));
        assert!(stage.call(SEND, params).await.contains(words));
    }
    assert_eq!(stage.peer(0).seen().len(), 2, "nothing was looked up");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_was_behind_is_asked_before_a_client_hears_of_missing_data() {
    for missing in [
        error(4444, "pruned history unavailable"),
        error(-32000, "header not found"),
        error(-31999, "something unheard of"),
        result("null"),
    ] {
        let stage = Stage::upstreams(2);
        stage.show_head(0, 100);
        // It was polled before the block came.
        stage.show_head(1, 99);
        stage.peer(0).next("eth_getBlockByNumber", missing);
        assert_eq!(stage.call("eth_getBlockByNumber", r#"["0x64",false]"#).await, "\"b\"");
    }
}

#[tokio::test(start_paused = true)]
async fn null_above_the_head_is_believed_and_below_it_is_not() {
    let stage = Stage::upstreams(3);
    for place in 0..2 {
        stage.show_head(place, 100);
    }
    let ask = |number: u64| format!(r#"["0x{number:x}",false]"#);
    let method = "eth_getBlockByNumber";
    // The third, whose head is not known, may be asked at once.
    (0..3).for_each(|place| stage.peer(place).next(method, result("null")));
    assert_eq!(stage.call(method, &ask(101)).await, "null");
    let asked = || (0..3).map(|place| stage.peer(place).seen().len()).sum::<usize>();
    assert_eq!(asked(), 1, "one is enough");
    let stage = Stage::upstreams(2);
    stage.show_head(0, 100);
    stage.show_head(1, 100);
    stage.peer(0).next(method, result("null"));
    stage.peer(1).next(method, result(r#"{"number":"0x64"}"#));
    assert_eq!(stage.call(method, &ask(100)).await, r#"{"number":"0x64"}"#);
}

#[tokio::test(start_paused = true)]
async fn null_for_a_block_of_the_agreed_chain_is_not_believed_by_its_hash() {
    let method = "eth_getBlockReceipts";
    let stage = Stage::upstreams(3);
    // The third one is not known to be on the branch of the others yet.
    for (place, branch) in [(0, b'a'), (1, b'a'), (2, b'b')] {
        stage.show_block(place, 100, branch);
    }
    (0..2).for_each(|place| stage.show_block(place, 101, b'a'));
    (0..2).for_each(|place| stage.peer(place).always(method, result("null")));
    stage.peer(2).always(method, result("[]"));
    let params = |number: u64, branch: u8| format!(r#"["{}"]"#, hash(number, branch));
    assert_eq!(stage.call(method, &params(101, b'a')).await, "[]");
    // Of one that is not on the agreed chain two opinions are enough.
    stage.peer(2).always(method, result("null"));
    assert_eq!(stage.call(method, &params(100, b'b')).await, "null");
}

#[tokio::test(start_paused = true)]
async fn answers_teach_the_head() {
    let stage = Stage::upstreams(1);
    stage.peer(0).next("eth_blockNumber", result("\"0x64\""));
    stage.call("eth_blockNumber", "[]").await;
    assert_eq!(stage.head(0), Some(100));
    // While that is fresh `latest` is block 100; no upstream is followed here, so it grows old.
    tokio::time::advance(Duration::from_secs(6)).await;
    stage.peer(0).next("eth_getBlockByNumber", result(r#"{"number":"0x65"}"#));
    stage.call("eth_getBlockByNumber", r#"["latest",false]"#).await;
    assert_eq!(stage.head(0), Some(101));
    // A client's number is not a head, whatever the upstream makes of it.
    stage.peer(0).next("eth_getBlockReceipts", result("[]"));
    stage.call("eth_getBlockReceipts", r#"["0xfffffffffff"]"#).await;
    assert_eq!(stage.head(0), Some(101));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_refused_meanwhile_teaches_nothing() {
    let stage = Stage::upstreams(1);
    let slow = result("\"0x64\"").after(Duration::from_secs(1));
    stage.peer(0).next("eth_blockNumber", slow);
    tokio::join!(stage.call("eth_blockNumber", "[]"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stage.upstream(0).set_standing(Standing::WrongChain(ChainId(5)));
    });
    assert_eq!(stage.head(0), None);
}

#[tokio::test(start_paused = true)]
async fn methods_are_refused_as_the_settings_say() {
    let stage = Stage::new(vec![Plan {
        methods: rules("", "debug_*"),
        own_methods: vec![rules("eth_*", "")],
        ..Plan::default()
    }]);
    let told = stage.call("debug_traceCall", "[]").await;
    assert_eq!(
        told,
        r#"{"code":-32601,"message":"the method `debug_traceCall` is not allowed here"}"#
    );
    let told = stage.call("trace_block", "[]").await;
    assert_eq!(
        told,
        r#"{"code":-32601,"message":"no upstream of this chain serves `trace_block`"}"#
    );
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_by_one_table() {
    let page = |code| status(code, "<html>nothing here</html>");
    for (say, status, code, retry) in [
        (Step::REFUSE, 503, -32002, Some(1)),
        (page(502), 503, -32002, Some(1)),
        (page(429), 429, -32005, Some(1)),
        (page(401), 503, -32002, Some(1)),
        (page(413), 200, -32012, None),
        (error(-32000, "missing trie node 5ab8 (path )"), 200, -32000, None),
        (error(3, "execution reverted"), 200, 3, None),
    ] {
        let stage = Stage::upstreams(1);
        stage.peer(0).next_times(4, "eth_call", say.clone());
        let answer = stage.send(None, r#"{"id":9,"method":"eth_call","params":[{}]}"#).await;
        let told = text(&answer);
        let begins = format!(r#"{{"jsonrpc":"2.0","id":9,"error":{{"code":{code},"#);
        assert!(told.starts_with(&begins), "{say:?}: {told}");
        let wait = answer.retry_after.map(|wait| wait.as_secs());
        assert_eq!((answer.status, wait), (status, retry), "{say:?}: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_names_the_upstreams_and_why_each_failed() {
    let stage = Stage::upstreams(2);
    stage.peer(0).next("eth_call", Step::REFUSE);
    stage.peer(1).next_times(3, "eth_call", status(502, "oops"));
    let told = stage.call("eth_call", "[{}]").await;
    let begins = r#"{"code":-32002,"message":"no upstream could answer; made 4 attempts: a: fault: could not connect: injected; b: fault: the upstream failed: HTTP 502 with a body that is not JSON","data":{"attempts":[{"upstream":"a","verdict":"fault","detail":"could not connect: injected","ms":0},{"upstream":"b","verdict":"fault","detail":""#;
    assert!(told.starts_with(begins), "{told}");
    let ends = r#""upstreams":[{"upstream":"a","condition":"breaker_open","detail":"could not connect: injected"},{"upstream":"b","condition":"breaker_open","detail":"the upstream failed: HTTP 502 with a body that is not JSON"}]}}"#;
    assert!(told.ends_with(ends), "{told}");
}

#[tokio::test(start_paused = true)]
async fn no_secret_of_an_upstream_reaches_a_client() {
    let words = [
        status(401, r#"{"error":"key s3cret is not valid"}"#),
        status(403, "<html>s3cret</html>"),
        status(402, "account s3cret is over its plan"),
        status(429, "project s3cret is over its limit"),
        status(502, "<html>upstream http://host/v2/s3cret failed</html>"),
        error(-32005, "project s3cret: daily request count exceeded, request rate limited"),
        error(-32005, "s3cret has exceeded its rate limit"),
        error(-32000, "invalid api key s3cret"),
    ];
    for say in words {
        let stage = Stage::upstreams(1);
        stage.peer(0).next_times(4, "eth_call", say.clone());
        let answer = stage.send(None, r#"{"id":1,"method":"eth_call","params":[{}]}"#).await;
        assert!(!text(&answer).contains("s3cret"), "{say:?}: {}", text(&answer));
        assert!(!answer.trail.expect("asked for").contains("s3cret"), "{say:?}");
    }
}

/// The params that went upstream for `eth_getBalance` with these.
async fn sent(stage: &Stage, params: &str) -> String {
    let before = stage.peer(0).seen().len();
    stage.call("eth_getBalance", params).await;
    let seen = stage.peer(0).seen();
    seen.get(before).cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_tag_is_a_number_while_the_view_is_fresh() {
    let stage = Stage::upstreams(1);
    assert!(sent(&stage, r#"["0xab","latest"]"#).await.contains("latest"), "nothing is known");
    stage.show_head(0, 100);
    assert!(sent(&stage, r#"["0xab","latest"]"#).await.contains(r#"["0xab","0x64"]"#));
    assert!(sent(&stage, r#"["0xab"]"#).await.contains(r#"["0xab","0x64"]"#));
    assert!(sent(&stage, r#"["0xab","pending"]"#).await.contains("pending"));
    assert!(
        sent(&stage, r#"["0xab","finalized"]"#).await.contains("finalized"),
        "no upstream told"
    );
    assert!(stage.chain().pulse.wants_finality(now()));
    let body = r#"{"id":1,"method":"eth_getBalance","params":["0xab","latest"]}"#;
    let trail = stage.send(None, body).await.trail.expect("asked for");
    assert!(trail.contains(" block=100"), "{trail}");
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(sent(&stage, r#"["0xab","latest"]"#).await.contains("latest"), "it may be old");
}

#[tokio::test(start_paused = true)]
async fn the_height_is_the_agreed_one() {
    let stage = Stage::upstreams(2);
    stage.show_head(0, 100);
    stage.show_head(1, 100);
    stage.show_head(0, 101);
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x64\"", "one of two holds 101");
    stage.show_head(1, 101);
    assert_eq!(stage.call("eth_blockNumber", "[ ]").await, "\"0x65\"");
    let asked = || (0..2).map(|place| stage.peer(place).seen().len()).sum::<usize>();
    assert_eq!(asked(), 0);
    // Old by now, so that an upstream is asked; what is lower than what was told is not passed on.
    tokio::time::advance(Duration::from_secs(60)).await;
    (0..2).for_each(|place| stage.peer(place).next("eth_blockNumber", result("\"0x63\"")));
    assert_eq!(stage.call("eth_blockNumber", "[]").await, "\"0x65\"");
    assert_eq!(asked(), 1);
}

/// Each kind of dangerous method, with what is said of it.
const DANGEROUS: [(&str, &str); 5] = [
    ("admin_addPeer", "it is intended for node operators"),
    ("admin_notListed", "it is intended for node operators"),
    ("debug_setHead", "it is intended for node operators"),
    ("eth_sendTransaction", "it uses keys that a node holds"),
    ("evm_mine", "it manipulates a test chain"),
];

#[tokio::test(start_paused = true)]
async fn dangerous_methods_are_refused_and_the_setting_is_named() {
    let stage = Stage::upstreams(1);
    for (method, why) in DANGEROUS {
        let refusal = format!(
            r#"{{"code":-32601,"message":"the method `{method}` is off by default because {why}; the setting `methods.dangerous` of this chain allows it"}}"#
        );
        assert_eq!(stage.call(method, "[]").await, refusal);
        let batch = format!(
            r#"[{{"jsonrpc":"2.0","id":1,"method":"{method}"}},{{"jsonrpc":"2.0","id":2,"method":"eth_gasPrice"}}]"#
        );
        let expected = format!(
            r#"[{{"jsonrpc":"2.0","id":1,"error":{refusal}}},{{"jsonrpc":"2.0","id":2,"result":"a"}}]"#
        );
        assert_eq!(stage.ask(&batch).await, expected);
    }
    // However it is written.
    let escaped = r#"{"jsonrpc":"2.0","id":1,"method":"\u0061dmin_addPeer"}"#;
    assert!(stage.ask(escaped).await.contains("is off by default"));
    assert!(stage.peer(0).seen().iter().all(|seen| seen.contains("eth_gasPrice")));
}

#[tokio::test(start_paused = true)]
async fn dangerous_methods_go_upstream_where_the_settings_name_them() {
    let dangerous = DangerousMethods {
        allow: ["admin_*", "evm_mine"].map(|glob| glob.parse().expect("a good glob")).into(),
        on_test_chains: false,
    };
    let stage = Stage::new(vec![Plan { dangerous, ..Plan::default() }]);
    for (method, is_allowed) in [
        ("admin_addPeer", true),
        ("admin_notListed", true),
        ("evm_mine", true),
        ("evm_revert", false),
    ] {
        let told = stage.call(method, "[]").await;
        assert_eq!(told == "\"a\"", is_allowed, "{method}: {told}");
    }
}

/// A chain whose id is found out, with cheats allowed if it is a test chain.
fn maybe_a_test_chain() -> Stage {
    let dangerous = DangerousMethods { allow: Vec::new(), on_test_chains: true };
    Stage::new(vec![Plan { id: None, verified: false, dangerous, ..Plan::default() }])
}

#[tokio::test(start_paused = true)]
async fn keys_and_cheats_are_allowed_on_a_test_chain() {
    for (id, is_allowed) in [(31_337, true), (1337, true), (1, false)] {
        let stage = maybe_a_test_chain();
        stage.verify(0, id);
        for (method, why) in DANGEROUS {
            let may = is_allowed && !why.contains("operator");
            let told = stage.call(method, "[]").await;
            assert_eq!(told == "\"a\"", may, "{id} {method}: {told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cheat_waits_until_the_chain_is_known() {
    let stage = maybe_a_test_chain();
    let verified = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.verify(0, 31_337);
    };
    let (told, ()) = tokio::join!(stage.call("evm_snapshot", "[]"), verified);
    assert_eq!(told, "\"a\"");
}
