//! From bodies to answers: ids, batches, chains, and calls that come too early.

mod support;

use std::time::Duration;

use support::{Plan, SECRET, Stage, Step, elapsed, error, ms, rules, text};
use wellhead_dispatch::now;
use wellhead_kit::{result, status};
use wellhead_upstream::Standing;

#[tokio::test(start_paused = true)]
async fn ids_come_back_byte_for_byte() {
    let stage = Stage::upstreams(1);
    for id in [
        "1",
        "-0",
        "1.0",
        "1e2",
        "null",
        "\"\"",
        "\"a\\u0041\\n\"",
        "\"ключ\"",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
    ] {
        let body = format!(r#"{{"id" : {id} ,"method":"eth_gasPrice"}}"#);
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"a"}}"#);
        assert_eq!(stage.ask(&body).await, expected);
    }
    assert!(stage.peer(0).seen().iter().all(|body| body.starts_with(r#"{"eth_gasPrice""#)));
}

#[tokio::test(start_paused = true)]
async fn a_result_is_passed_on_as_written() {
    let stage = Stage::upstreams(1);
    let odd = r#"{ "b":1.00, "a" : [ 12345678901234567890 , "\u00e9" ] }"#;
    stage.peer(0).next("eth_getProof", result(odd));
    let answer = stage.send(None, r#"{"id":1,"method":"eth_getProof","params":[]}"#).await;
    assert_eq!(text(&answer), format!(r#"{{"jsonrpc":"2.0","id":1,"result":{odd}}}"#));
    assert_eq!((answer.status, answer.attempts), (200, 1));
    assert_eq!(answer.upstream.as_deref(), Some("a"));
    assert_eq!(answer.trail.as_deref(), Some("a=answer/result:0ms cache=off"));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_quotes_its_own_key_is_not_quoted() {
    let stage = Stage::upstreams(1);
    let words = format!("POST /v2/{SECRET} failed");
    let masked = r#""message":"POST /v2/*** failed""#;
    stage.peer(0).next("eth_gasPrice", error(-31999, &words));
    let told = stage.call("eth_gasPrice", "[]").await;
    assert_eq!(told, format!(r#"{{"code":-31999,{masked}}}"#));
    // Reverted: settled in the batch.
    for method in ["eth_call", "eth_estimateGas"] {
        stage.peer(0).next(method, error(3, &format!("execution reverted: {words}")));
    }
    let reverted = r#""message":"execution reverted: POST /v2/*** failed""#;
    let batch = r#"[{"id":1,"method":"eth_call","params":[{}]},{"id":2,"method":"eth_estimateGas","params":[{}]}]"#;
    let told = stage.ask(batch).await;
    assert_eq!(told.matches(reverted).count(), 2, "{told}");
    assert_eq!(stage.peer(0).seen().iter().filter(|body| body.starts_with('[')).count(), 1);
    // A fault is tried three times, and told by the status page too.
    let error_500 = format!(r#"{{"id":1,"error":{{"code":-32603,"message":"{words}"}}}}"#);
    stage.peer(0).next_times(3, "eth_feeHistory", status(500, error_500.clone()));
    let told = stage.call("eth_feeHistory", "[]").await;
    assert_eq!(told, format!(r#"{{"code":-32603,{masked}}}"#));
    let problem = stage.upstream(0).last_problem().expect("a fault").text;
    assert!(problem.contains("/v2/***") && !problem.contains(SECRET), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_run_and_not_answered() {
    let stage = Stage::upstreams(1);
    for body in [
        r#"{"jsonrpc":"2.0","method":"eth_gasPrice"}"#,
        r#"[{"jsonrpc":"2.0","method":"eth_gasPrice"},{"method":"eth_gasPrice"}]"#,
    ] {
        let answer = stage.send(None, body).await;
        assert_eq!((answer.status, text(&answer).as_str()), (204, ""), "{body}");
    }
    assert_eq!(stage.peer(0).seen().len(), 2, "the two of the batch together");
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_its_order_and_each_item_stands_alone() {
    let stage = Stage::upstreams(1);
    let slow = |millis, step: Step| step.after(ms(millis));
    stage.peer(0).next("eth_gasPrice", slow(90, result("1")));
    stage.peer(0).next("eth_blobBaseFee", slow(10, error(3, "execution reverted")));
    stage.peer(0).next("eth_feeHistory", slow(50, result("3")));
    let began = now();
    let answer = stage
        .send(
            None,
            r#"[ {"id":"x","method":"eth_gasPrice"}, 7, {"id":1.0,"method":"eth_blobBaseFee"},
                 {"method":"eth_baseFee"}, {"id":5}, {"id":null,"method":"eth_feeHistory"},
                 {"id":2,"method":"eth_chainId"}, {"id":1,"id":2,"method":"eth_chainId"} ]"#,
        )
        .await;
    let text = text(&answer);
    let mut items: Vec<&str> = text.split("},{\"jsonrpc\"").collect();
    let last = items.pop().expect("several");
    assert_eq!(answer.status, 200);
    assert_eq!(items[0], r#"[{"jsonrpc":"2.0","id":"x","result":1"#.trim_end_matches('}'));
    assert!(items[1].starts_with(r#":"2.0","id":null,"error":{"code":-32600,"#), "{}", items[1]);
    assert_eq!(items[2], r#":"2.0","id":1.0,"error":{"code":3,"message":"execution reverted"}"#);
    assert!(items[3].starts_with(r#":"2.0","id":5,"error":{"code":-32600,"#), "{}", items[3]);
    assert_eq!(items[4], r#":"2.0","id":null,"result":3"#);
    assert_eq!(items[5], r#":"2.0","id":2,"result":"0x1""#);
    assert!(last.starts_with(r#":"2.0","id":"#) && last.contains("-32600"), "{last}");
    assert_eq!(items.len(), 6);
    assert_eq!(elapsed(began), Duration::from_millis(90), "side by side");
    assert_eq!(answer.attempts, 1, "all four in one exchange");
}

#[tokio::test(start_paused = true)]
async fn a_batch_asks_a_bounded_number_of_calls_at_once() {
    let stage = Stage::upstreams(1);
    // Logs go alone: one slow search would hold up all that shared its exchange.
    let call = r#"{"id":1,"method":"eth_getLogs","params":[{}]}"#;
    for _ in 0..40 {
        let slow = result("[]").after(Duration::from_millis(10));
        stage.peer(0).next("eth_getLogs", slow);
    }
    stage.ask(&format!("[{}]", [call; 40].join(","))).await;
    assert_eq!(stage.peer(0).transport.in_flight_peak(), 4);
    assert_eq!(stage.upstream(0).in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_batches_is_asked_one_by_one_and_remembered() {
    let stage = Stage::upstreams(1);
    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}"#;
    stage.peer(0).next("eth_gasPrice", status(200, refusal));
    let batch = r#"[{"id":1,"method":"eth_gasPrice"},{"id":2,"method":"eth_gasPrice"}]"#;
    let expected =
        r#"[{"jsonrpc":"2.0","id":1,"result":"a"},{"jsonrpc":"2.0","id":2,"result":"a"}]"#;
    assert_eq!(stage.ask(batch).await, expected);
    assert_eq!(stage.peer(0).seen().len(), 1 + 2);
    assert_eq!(stage.ask(batch).await, expected);
    assert_eq!(stage.peer(0).seen().len(), 1 + 2 + 2, "no batch was sent again");
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(stage.ask(batch).await, expected);
    assert_eq!(stage.peer(0).seen().len(), 1 + 2 + 2 + 1, "after a while it is tried again");
}

#[tokio::test(start_paused = true)]
async fn one_bad_item_does_not_spoil_its_batch() {
    let stage = Stage::upstreams(1);
    stage.peer(0).next("eth_gasPrice", error(-32000, "header not found"));
    stage.peer(0).next("eth_gasPrice", result("2"));
    // The first is asked again alone, and then answered.
    stage.peer(0).next("eth_gasPrice", result("1"));
    let batch = r#"[{"id":1,"method":"eth_gasPrice"},{"id":2,"method":"eth_gasPrice"}]"#;
    let expected = r#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"result":2}]"#;
    assert_eq!(stage.ask(batch).await, expected);
    assert_eq!(stage.peer(0).seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_flows_and_its_end_is_checked() {
    let stage = Stage::upstreams(1);
    let large = format!("\"{}\"", "x".repeat(3 << 20));
    stage.peer(0).next("eth_getCode", result(&large));
    let answer = stage.send(None, r#"{"id":"a","method":"eth_getCode","params":[]}"#).await;
    let mut rest = answer.rest.expect("it flows");
    let mut body = answer.body.concat();
    assert!(body.len() < 2 << 20, "held: {}", body.len());
    assert_eq!(stage.upstream(0).parked(), 1, "until it is read");
    while let Some(piece) = rest.next().await {
        body.extend_from_slice(&piece.expect("whole"));
    }
    drop(rest);
    assert_eq!(stage.upstream(0).in_flight(), 0);
    assert_eq!(stage.upstream(0).parked(), 0);
    let expected = format!(r#"{{"jsonrpc":"2.0","id":"a","result":{large}}}"#);
    assert_eq!(body.len(), expected.len());
    assert!(body == expected.as_bytes(), "the same bytes under the client's id");

    // HTTP says that all is there, but the envelope does not end.
    let cut = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{large}"#);
    stage.peer(0).next("eth_getCode", status(200, cut));
    let answer = stage.send(None, r#"{"id":1,"method":"eth_getCode","params":[]}"#).await;
    let mut rest = answer.rest.expect("it flows");
    let mut last = None;
    while let Some(piece) = rest.next().await {
        let is_error = piece.is_err();
        last = Some(piece);
        if is_error {
            break;
        }
    }
    assert!(matches!(last, Some(Err(_))), "a cut answer must not look whole");
}

#[tokio::test(start_paused = true)]
async fn the_replies_of_a_batch_are_bounded_in_bytes() {
    let stage = Stage::upstreams(1);
    let large = format!("\"{}\"", "x".repeat(7 << 20));
    for _ in 0..9 + 4 {
        stage.peer(0).next("eth_getCode", result(&large));
    }
    let calls: Vec<String> =
        (0..9).map(|id| format!(r#"{{"id":{id},"method":"eth_getCode","params":[]}}"#)).collect();
    let answer = stage.send(None, &format!("[{}]", calls.join(","))).await;
    let body = answer.body.concat();
    let tail = String::from_utf8_lossy(&body[body.len() - 160..]).into_owned();
    assert!(
        tail.contains(r#""id":8,"error":{"code":-32003,"message":"response too large"#),
        "{tail}"
    );
    assert_eq!(stage.peer(0).seen().len(), 1 + 4, "together, then alone; the others not at all");
}

/// A batch of `calls` for an answer of `bytes` each, and what it held at most.
async fn held_by_a_batch(calls: usize, bytes: usize, method: &str) -> usize {
    let stage = Stage::upstreams(1);
    stage.peer(0).always(method, result(&format!("\"{}\"", "x".repeat(bytes))));
    let calls: Vec<String> = (0..calls)
        .map(|id| format!(r#"{{"id":{id},"method":"{method}","params":["0x{id:x}"]}}"#))
        .collect();
    let answer = stage.send(None, &format!("[{}]", calls.join(","))).await;
    assert_eq!(answer.status, 200);
    let peak = stage.answers.peak();
    assert!(serde_json::from_slice::<serde_json::Value>(&answer.body.concat()).is_ok());
    drop(answer);
    assert_eq!(stage.answers.held(), 0);
    peak
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_its_bytes_and_one_answer_more() {
    const MIB: usize = 1 << 20;
    for (calls, bytes) in [(30, 5 * MIB), (3, 40 * MIB), (20, 3 * MIB), (150, MIB / 4)] {
        // Those that go together share the bytes of the batch: only the answer to one call goes beyond.
        for method in ["eth_getCode", "debug_traceTransaction"] {
            let peak = held_by_a_batch(calls, bytes, method).await;
            let most = 24 * MIB + bytes.max(MIB / 4) + (64 << 10);
            assert!(peak <= most, "{method}: {calls} of {bytes}: {} MiB", peak / MIB);
            assert!(peak >= bytes, "{method}: {calls} of {bytes}: {peak}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_without_room_are_refused_and_the_others_stay() {
    let stage = Stage::upstreams(1);
    let room = 300_000;
    let others = stage.answers.try_hold(stage.answers.bytes_max() - room).expect("room");
    let large = format!("\"{}\"", "x".repeat(200_000));
    for said in [large.as_str(), &large, "[]"] {
        // Logs go alone, one after the other as they are answered.
        stage.peer(0).next("eth_getLogs", result(said));
    }
    let calls: Vec<String> = (0..3)
        .map(|id| format!(r#"{{"id":{id},"method":"eth_getLogs","params":[{{}}]}}"#))
        .collect();
    let answer = stage.send(None, &format!("[{}]", calls.join(","))).await;
    let told = text(&answer).replace(&large, "LARGE");
    assert_eq!(
        told,
        r#"[{"jsonrpc":"2.0","id":0,"result":LARGE},{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"too many large answers are being sent to clients: try again later"}},{"jsonrpc":"2.0","id":2,"result":[]}]"#
    );
    drop(others);
    assert!(stage.answers.held() > 200_000, "until it is written");
    drop(answer);
    assert_eq!(stage.answers.held(), 0);
    let status = serde_json::to_value(stage.proxy.status()).expect("as JSON");
    assert_eq!(
        (&status["answers"]["refused"], &status["answers"]["held_bytes"]),
        (&1.into(), &0.into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_room_is_a_503_that_says_why() {
    let stage = Stage::upstreams(2);
    let others = stage.answers.try_hold(stage.answers.bytes_max() - 10).expect("room");
    // Its beginning does not say whose it is, so that it has to be read whole.
    let large = format!(r#"{{"jsonrpc":"2.0","result":"{}","id":1}}"#, "x".repeat(2 << 20));
    stage.peer(0).next("eth_getLogs", status(200, large));
    let answer = stage.send(None, r#"{"id":1,"method":"eth_getLogs","params":[{}]}"#).await;
    assert_eq!((answer.status, answer.retry_after), (503, Some(Duration::from_secs(1))));
    let told = text(&answer);
    assert!(told.contains(r#""code":-32005"#) && told.contains("too many large answers"), "{told}");
    assert!(stage.peer(1).seen().is_empty(), "another would say the same");
    assert_eq!(stage.upstream(0).totals().1, 0, "no failure of the upstream");
    drop((answer, others));
    assert_eq!(stage.answers.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_call_is_told_so() {
    let stage = Stage::upstreams(1);
    for (body, code, id) in [
        ("", -32700, "null"),
        ("{", -32700, "null"),
        ("[]", -32600, "null"),
        ("7", -32600, "null"),
        (r#"{"id":7}"#, -32600, "7"),
        (r#"{"id":"a","method":1}"#, -32600, "\"a\""),
        (r#"{"id":{},"method":"eth_gasPrice"}"#, -32600, "null"),
        (r#"{"id":1,"jsonrpc":"1.0","method":"eth_gasPrice"}"#, -32600, "1"),
    ] {
        let answer = stage.send(None, body).await;
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#);
        assert!(text(&answer).starts_with(&expected), "{body}: {}", text(&answer));
        assert_eq!(answer.status, 200);
    }
    assert_eq!(stage.peer(0).seen().len(), 0);
}

const CHAIN_ID: &str = r#"{"id":1,"method":"eth_chainId"}"#;

#[tokio::test(start_paused = true)]
async fn a_chain_is_found_by_name_alias_and_id() {
    let gnosis = || Plan { name: "gnosis", aliases: &["xdai"], id: Some(100), ..Plan::default() };
    let both = Stage::new(vec![Plan::default(), gnosis()]);
    for (path, id) in [
        ("ethereum", "0x1"),
        ("eth", "0x1"),
        ("1", "0x1"),
        ("0x1", "0x1"),
        ("gnosis", "0x64"),
        ("xdai", "0x64"),
        ("100", "0x64"),
        ("0x64", "0x64"),
    ] {
        let answer = both.send(Some(path), CHAIN_ID).await;
        assert_eq!(
            text(&answer),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{id}"}}"#),
            "{path}"
        );
    }
    for path in ["polygon", "2", "0x2", "+1", "Ethereum", ""] {
        let answer = both.send(Some(path), r#"{"id":"mine","method":"eth_chainId"}"#).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(
            text(&answer),
            format!(
                r#"{{"jsonrpc":"2.0","id":"mine","error":{{"code":-32600,"message":"unknown chain `{path}`; known: `ethereum`, `gnosis`"}}}}"#
            )
        );
    }
    let answer = both.send(None, CHAIN_ID).await;
    assert_eq!(answer.status, 404);
    assert!(text(&answer).contains("several chains are served here"), "{}", text(&answer));
    let one = Stage::upstreams(1);
    assert_eq!(one.send(None, CHAIN_ID).await.status, 200);
    assert_eq!(one.send(Some("polygon"), "no json").await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_a_chain_may_yet_find_out_is_not_unknown() {
    let stage = Stage::new(vec![Plan { id: None, verified: false, ..Plan::default() }]);
    let answer = stage.send(Some("137"), CHAIN_ID).await;
    assert_eq!((answer.status, answer.retry_after), (503, Some(Duration::from_secs(1))));
    assert_eq!(stage.send(Some("polygon"), CHAIN_ID).await.status, 404);
    stage.verify(0, 137);
    assert_eq!(stage.send(Some("137"), CHAIN_ID).await.status, 200);
    assert_eq!(stage.send(Some("1"), CHAIN_ID).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn local_methods_need_no_upstream() {
    let stage = Stage::new(vec![Plan {
        id: Some(137),
        verified: false,
        own_methods: vec![rules("eth_call", "")],
        ..Plan::default()
    }]);
    assert_eq!(stage.call("eth_chainId", "[]").await, r#""0x89""#);
    assert_eq!(stage.call("net_version", "[]").await, r#""137""#);
    let classic = Stage::new(vec![Plan { id: Some(61), ..Plan::default() }]);
    assert_eq!(classic.call("net_version", "[]").await, r#""1""#, "not the chain's id");
    let version = stage.call("web3_clientVersion", "[]").await;
    assert!(version.starts_with("\"wellhead/v"), "no upstream told its own: {version}");
    assert_eq!(stage.peer(0).seen().len(), 0);
    let locals: Vec<&str> = wellhead_eth::MethodTable::standard()
        .rows()
        .iter()
        .filter(|row| row.effect == wellhead_eth::Effect::Local)
        .map(|row| row.name)
        .collect();
    assert_eq!(locals, ["eth_chainId", "net_version", "web3_clientVersion"], "one answer each");
    let strict = Stage::new(vec![Plan { methods: rules("", "net_*"), ..Plan::default() }]);
    let refused = strict.call("net_version", "[]").await;
    assert!(refused.contains("the method `net_version` is not allowed here"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_chain_id_that_no_upstream_told_is_waited_for_and_then_refused() {
    let stage = Stage::new(vec![Plan { id: None, verified: false, ..Plan::default() }]);
    let began = now();
    let answer = stage.send(None, CHAIN_ID).await;
    assert_eq!((answer.status, elapsed(began)), (503, Duration::from_secs(5)));
    let words =
        "no upstream has reported its chain id yet: a is unverified: nothing is known about it";
    assert!(text(&answer).contains(words), "{}", text(&answer));
    let began = now();
    let (answer, ()) = tokio::join!(stage.send(None, CHAIN_ID), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.verify(0, 10);
    });
    assert_eq!(text(&answer), r#"{"jsonrpc":"2.0","id":1,"result":"0xa"}"#);
    assert_eq!(elapsed(began), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_with_the_start_waits_for_an_upstream_that_may_serve_it() {
    let stage = Stage::new(vec![Plan {
        upstreams: 2,
        verified: false,
        own_methods: vec![rules("", "eth_gasPrice")],
        ..Plan::default()
    }]);
    let began = now();
    let (answer, ()) = tokio::join!(stage.call("eth_gasPrice", "[]"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // That one may not be asked: the wait goes on.
        stage.verify(0, 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.verify(1, 1);
    });
    assert_eq!((answer.as_str(), elapsed(began)), ("\"b\"", Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_upstreams_that_cannot_serve_it() {
    let stage = Stage::new(vec![Plan {
        upstreams: 2,
        verified: false,
        own_methods: vec![rules("", ""), rules("", "eth_gasPrice")],
        ..Plan::default()
    }]);
    stage.upstream(0).set_standing(Standing::WrongChain(wellhead_eth::ChainId(5)));
    stage.upstream(0).note_problem("it is on chain 5, expected chain 1".into(), now());
    let began = now();
    let body = r#"{"id":1,"method":"eth_gasPrice"}"#;
    let answer = stage.send(None, body).await;
    assert_eq!((answer.status, elapsed(began)), (503, Duration::ZERO));
    assert_eq!(
        text(&answer),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no upstream is available: a is wrong_chain: it is on chain 5, expected chain 1","data":{"attempts":[],"upstreams":[{"upstream":"a","condition":"wrong_chain","detail":"it is on chain 5, expected chain 1"},{"upstream":"b","condition":"unverified","detail":"nothing is known about it"}]}}}"#
    );
    // And for upstreams that could, five seconds.
    let stage = Stage::new(vec![Plan { verified: false, ..Plan::default() }]);
    let began = now();
    let answer = stage.send(None, body).await;
    assert_eq!((answer.status, elapsed(began)), (503, Duration::from_secs(5)));
    assert!(
        text(&answer).contains("a is unverified: nothing is known about it"),
        "{}",
        text(&answer)
    );
    // When it is known to be down, one.
    stage.upstream(0).note_problem("eth_chainId: could not connect".into(), now());
    for (body, words) in [
        (body, "no upstream is available: a is unverified: eth_chainId: could not connect"),
        (CHAIN_ID, "\"result\":\"0x1\""),
    ] {
        let began = now();
        let answer = stage.send(None, body).await;
        assert!(elapsed(began) <= Duration::from_secs(1), "{:?}", elapsed(began));
        assert!(text(&answer).contains(words), "{}", text(&answer));
    }
}

#[tokio::test(start_paused = true)]
async fn the_total_holds() {
    let stage = Stage::upstreams(3);
    for place in 0..3 {
        stage.peer(place).next_times(4, "eth_getLogs", Step::Hang);
    }
    let began = now();
    let answer = stage.send(None, r#"{"id":1,"method":"eth_getLogs","params":[{}]}"#).await;
    assert_eq!((answer.status, elapsed(began)), (503, Duration::from_secs(30)));
    assert!(
        text(&answer).contains("no answer in time; made 3 attempts: a: fault: no"),
        "{}",
        text(&answer)
    );
}

/// Asks for the version of the client; `W` is our own.
async fn version_by(stage: &Stage) -> String {
    let version = stage.call("web3_clientVersion", "[]").await;
    version.trim_matches('"').replace(concat!("wellhead/v", env!("CARGO_PKG_VERSION")), "W")
}

#[tokio::test(start_paused = true)]
async fn the_version_is_that_of_the_first_upstream_that_is_ready_and_ours() {
    let stage = Stage::upstreams(3);
    assert_eq!(version_by(&stage).await, "W", "no upstream told its own");
    stage.upstream(1).note_client_version(Some("reth/v2.0.0"));
    assert_eq!(version_by(&stage).await, "reth/v2.0.0 W");
    stage.upstream(0).note_client_version(Some("anvil/v1.5.0"));
    assert_eq!(version_by(&stage).await, "anvil/v1.5.0 W", "the first of the settings");
    stage.upstream(0).set_standing(Standing::Unverified);
    assert_eq!(version_by(&stage).await, "reth/v2.0.0 W", "the first that is ready");
    stage.upstream(1).set_standing(Standing::Unverified);
    assert_eq!(version_by(&stage).await, "anvil/v1.5.0 W", "none that told one is ready");
    assert!((0..3).all(|place| stage.peer(place).seen().is_empty()), "no call goes upstream");
}

#[tokio::test(start_paused = true)]
async fn a_call_at_the_start_waits_for_the_first_version() {
    let stage = Stage::upstreams(1);
    stage.upstream(0).expect_client_version();
    let told = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.upstream(0).note_client_version(Some("Geth/v1.17.5"));
        stage.chain().pulse.tell_verified();
    };
    let began = now();
    let (version, ()) = tokio::join!(version_by(&stage), told);
    assert_eq!(version, "Geth/v1.17.5 W");
    assert_eq!(elapsed(began), Duration::from_millis(300));
    // One that does not tell it is not waited for any longer.
    let silent = Stage::upstreams(1);
    silent.upstream(0).expect_client_version();
    let began = now();
    assert_eq!(version_by(&silent).await, "W");
    assert_eq!(elapsed(began), Duration::from_secs(1));
    // Nor one that is down.
    silent.upstream(0).note_problem("refused".to_owned(), now());
    let began = now();
    assert_eq!(version_by(&silent).await, "W");
    assert_eq!(elapsed(began), Duration::ZERO);
}
