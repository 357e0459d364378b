//! The judge against replies: one table per theme.
//!
//! What each rule means is tested by its own recorded errors in `rules.rs`; here is
//! what no rule can say: envelopes, ids, payloads, transports, and what a contract
//! or a caller may try.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use wellhead_eth::MethodTable;
use wellhead_transport::{Sent, Timing, TransportError, TransportErrorKind, WireReply};
use wellhead_upstream::{HealthEffect, Judge, Payload, TryElsewhere, Verdict, VerdictClass};

fn reply(status: u16, body: &[u8]) -> WireReply {
    WireReply::whole(status, Bytes::copy_from_slice(body), Timing::default())
}

fn judge(status: u16, method: &str, body: &str) -> Verdict {
    let row = MethodTable::standard().row(method);
    Judge::standard().reply(row, &reply(status, body.as_bytes()))
}

/// `expected` is "rule class".
fn check(status: u16, method: &str, body: &str, expected: &str) {
    let verdict = judge(status, method, body);
    assert_eq!(format!("{} {}", verdict.rule, verdict.class), expected, "{status} {body}");
}

/// As [`check`], of a call that HTTP says is well.
fn check_call(body: &str, expected: &str) {
    check(200, "eth_call", body, expected);
}

#[test]
fn a_result_is_an_answer() {
    check_call(r#"{"jsonrpc":"2.0","id":1,"result":"0x"}"#, "result answer");
    check_call(r#"{"result":{"a":[1]},"id":1}"#, "result answer");
    check(201, "eth_call", r#"{"id":1,"result":false}"#, "result answer");
    check_call(r#"{"id":1,"result":"0x08c379a000"}"#, "result answer");
    check_call(r#"{"id":1,"result":"rate limit exceeded"}"#, "result answer");
}

#[test]
fn null_is_an_answer_where_the_table_says_so() {
    let null = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
    for row in MethodTable::standard().rows() {
        let expected = if row.null_is_answer { VerdictClass::Answer } else { VerdictClass::Null };
        let verdict = Judge::standard().reply(row, &reply(200, null.as_bytes()));
        assert_eq!(verdict.class, expected, "{}", row.name);
        assert_eq!(verdict.payload, Payload::Result(Bytes::from_static(b"null")), "{}", row.name);
    }
    check(200, "eth_getBlockByNumber", null, "result-null null");
    check(200, "eth_getTransactionReceipt", null, "result answer");
}

#[test]
fn the_result_is_passed_on_as_it_came() {
    let verdict = judge(200, "eth_call", r#"{"id":1, "result" : { "a" : 1.0 } }"#);
    assert_eq!(verdict.payload, Payload::Result(Bytes::from_static(br#"{ "a" : 1.0 }"#)));
    assert_eq!(verdict.health, HealthEffect::Good);
}

/// From 64 KiB on a reply is not parsed, unless its brackets do not close with its result.
#[test]
fn a_large_reply_is_whole() {
    let item = format!(r#"{{"topics":["0x1"],"data":"0x{}"}}"#, "0".repeat(70_000));
    let list = format!("[{item},{item}]");
    let judged =
        |result: &str| judge(200, "eth_getLogs", &format!(r#"{{"id":1,"result":{result}"#));
    for result in [&list, &item] {
        for end in ["}", " } ", r#","jsonrpc":"2.0"}"#] {
            let verdict = judged(&format!("{result}{end}"));
            let is_whole = verdict.payload == Payload::Result(Bytes::from(result.clone()))
                || verdict.payload == Payload::Result(Bytes::from(format!("{result} ")));
            assert!(is_whole && verdict.class == VerdictClass::Answer, "{end}");
        }
    }
    // Cut behind an item, inside one, and behind a list in one; framed as if it were whole.
    let inside = list.len() / 2;
    for cut in [&list[..=item.len()], &list[..inside], &list[..list.len() - 3], &list[..], &item] {
        assert_eq!(judged(cut).rule, "body-truncated", "{} bytes", cut.len());
    }
}

/// Whatever brackets stand before the cut, also those that a whole answer ends with.
#[test]
fn no_cut_of_a_large_reply_is_an_answer() {
    let pad = "0".repeat(64 * 1024);
    let log = r#"{"topics":["0x1",["0x2"]],"n":{"a":{}},"data":"]}","text":"a \"b\" \\"}"#;
    for whole in [
        format!(r#"{{"id":1,"result":[{{"data":"0x{pad}","topics":[[]]}},{log},{log}]}}"#),
        format!(r#"{{"id":1,"result":{{"data":"0x{pad}","logs":[{log},{log}],"o":{{}}}}}}"#),
        format!(r#"{{"id":1,"result":"0x{pad}"}}"#),
        format!(r#"{{"id":1,"result":"0x{pad}\"}}\\\""}}"#),
    ] {
        assert_eq!(judge(200, "eth_getLogs", &whole).class, VerdictClass::Answer, "{whole}");
        for cut in pad.len() + 20..whole.len() {
            for space in ["", "\r\n"] {
                let verdict = judge(200, "eth_getLogs", &format!("{}{space}", &whole[..cut]));
                assert_eq!(verdict.class, VerdictClass::Fault, "cut at {cut}: {}", verdict.rule);
            }
        }
    }
}

/// Nothing but the result is passed on, also where members follow it.
#[test]
fn what_follows_the_result_of_a_large_reply_is_no_part_of_it() {
    let pad = "0".repeat(64 * 1024);
    for result in [format!(r#"["{pad}"]"#), format!(r#"{{"a":"{pad}"}}"#), format!("\"{pad}\"")] {
        for more in [r#","a":"b""#, r#","a":[1]"#, r#","a":{}"#] {
            let verdict = judge(200, "eth_call", &format!(r#"{{"id":1,"result":{result}{more}}}"#));
            assert_eq!(verdict.payload, Payload::Result(Bytes::from(result.clone())), "{more}");
        }
    }
    let twice = format!(r#"{{"id":1,"result":["{pad}"],"result":[]}}"#);
    check_call(&twice, "body-duplicate-key fault");
}

#[test]
fn ids_have_to_be_ours() {
    check_call(r#"{"result":"0x"}"#, "id-missing fault");
    check_call(r#"{"id":null,"result":"0x"}"#, "id-missing fault");
    check_call(r#"{"id":2,"result":"0x"}"#, "id-wrong fault");
    check_call(r#"{"id":"1","result":"0x"}"#, "id-wrong fault");
    check_call(r#"{"id":1.0,"result":"0x"}"#, "id-wrong fault");
    check_call(r#"{"id":-1,"result":"0x"}"#, "id-wrong fault");
    check_call(r#"{"id":[1],"result":"0x"}"#, "id-wrong fault");
    check_call(r#"{"id":18446744073709551617,"result":"0x"}"#, "id-wrong fault");
}

#[test]
fn another_id_is_ours_when_we_sent_it() {
    let row = MethodTable::standard().row("eth_call");
    let answer = reply(200, br#"{"id":7,"result":"0x"}"#);
    assert_eq!(Judge::standard().reply_to(row, &answer, 7).class, VerdictClass::Answer);
    assert_eq!(Judge::standard().reply_to(row, &answer, 1).class, VerdictClass::Fault);
}

#[test]
fn an_error_under_no_id_is_ours() {
    check_call(
        r#"{"id":null,"error":{"code":3,"message":"execution reverted"}}"#,
        "revert-code reverted",
    );
    check_call(r#"{"error":{"code":-32600,"message":"no"}}"#, "code-32600 caller_fault");
}

#[test]
fn an_error_under_another_id_only_tells_of_the_upstream() {
    check_call(r#"{"id":9,"error":{"code":3,"message":"execution reverted"}}"#, "id-wrong fault");
    check_call(
        r#"{"id":9,"error":{"code":-32000,"message":"header not found"}}"#,
        "id-wrong fault",
    );
    check(429, "eth_call", r#"{"id":0,"error":{"code":429,"message":""}}"#, "http-429 throttled");
    check(401, "eth_call", r#"{"id":"x","error":{"code":1,"message":""}}"#, "http-401 auth");
}

#[test]
fn bodies_that_are_no_reply() {
    check_call("", "body-empty fault");
    check_call(" \n", "body-empty fault");
    check_call("<html><body>rate limit</body></html>", "body-html fault");
    check_call("  <!DOCTYPE html>", "body-html fault");
    check_call("too many requests", "body-not-json fault");
    check_call(r#"{"id":1,"result":"0x"#, "body-truncated fault");
    check_call(r#"{"id":1,"result":"0x"} x"#, "body-not-json fault");
    check_call(r#"[{"id":1,"result":"0x"}]"#, "body-array fault");
    check_call("[]", "body-array fault");
    check_call("null", "body-not-object fault");
    check_call("{}", "body-no-outcome fault");
    check_call(r#"{"id":1}"#, "body-no-outcome fault");
    check_call(
        r#"{"id":1,"result":1,"error":{"code":1,"message":""}}"#,
        "body-both-outcomes fault",
    );
    check_call(r#"{"id":1,"result":1,"result":2}"#, "body-duplicate-key fault");
    check_call(r#"{"id":1,"error":7}"#, "error-unreadable fault");
}

#[test]
fn status_counts_where_the_body_says_nothing() {
    check(502, "eth_call", "<html>bad gateway</html>", "http-5xx fault");
    check(503, "eth_call", "", "http-5xx fault");
    check(404, "eth_call", "<html>", "http-404 fault");
    check(301, "eth_call", "", "http-redirect fault");
    check(413, "eth_getLogs", "", "http-413 range_too_large");
    check(429, "eth_call", "<html>", "http-429 throttled");
    check(402, "eth_call", "", "http-402 billing");
    check(403, "eth_call", "<html>", "http-403 auth");
    check(400, "eth_call", "<html>", "body-html fault");
    check(500, "eth_call", r#"{"id":1,"result":"0x"}"#, "result-beside-status fault");
}

#[test]
fn status_outranks_the_body_where_it_speaks_of_the_key() {
    let reverted = r#"{"id":1,"error":{"code":3,"message":"execution reverted"}}"#;
    check_call(reverted, "revert-code reverted");
    check(400, "eth_call", reverted, "revert-code reverted");
    check(500, "eth_call", reverted, "revert-code reverted");
    check(429, "eth_call", reverted, "revert-code reverted");
    check(401, "eth_call", reverted, "http-401 auth");
    check(402, "eth_call", reverted, "http-402 billing");
    check(403, "eth_call", reverted, "http-403 auth");
}

#[test]
fn a_client_cannot_talk_an_upstream_down_with_a_bad_request() {
    let verdict = judge(400, "eth_call", "<html>400 Bad Request</html>");
    assert_eq!((verdict.health, verdict.elsewhere), (HealthEffect::Neutral, TryElsewhere::Once));
    let verdict = judge(500, "eth_call", "<html></html>");
    assert_eq!((verdict.health, verdict.elsewhere), (HealthEffect::Failed, TryElsewhere::Yes));
}

#[test]
fn errors_go_to_the_client_as_they_came() {
    let object = r#"{ "code":3,"message":"execution reverted: é","data":"0x08c379a0","x":[1.0] }"#;
    let verdict = judge(200, "eth_call", &format!(r#"{{"id":1,"error":{object}}}"#));
    assert_eq!(verdict.payload, Payload::Error(Bytes::copy_from_slice(object.as_bytes())));
}

fn check_payload(error: &str, expected: &str) {
    let verdict = judge(200, "eth_call", &format!(r#"{{"id":1,"error":{error}}}"#));
    let Payload::Error(object) = &verdict.payload else { panic!("{error}: {verdict:?}") };
    assert_eq!(std::str::from_utf8(object).expect("utf-8"), expected, "{error}");
}

#[test]
fn errors_without_a_code_or_a_message_are_completed() {
    check_payload(r#""too many requests""#, r#"{"code":-32005,"message":"too many requests"}"#);
    check_payload(
        r#"{"message":"header not found","data":[1]}"#,
        r#"{"code":-32014,"message":"header not found","data":[1]}"#,
    );
    check_payload(
        r#"{"code":-32099}"#,
        r#"{"code":-32099,"message":"an error that matches no rule"}"#,
    );
    check_payload(r#"{"code":"429","message":"x \" y"}"#, r#"{"code":429,"message":"x \" y"}"#);
}

#[test]
fn keys_never_reach_the_client() {
    let bodies = [
        (401, r#"{"id":1,"error":{"code":-32600,"message":"key s3cret is wrong"}}"#),
        (403, "<html>key s3cret is not allowed</html>"),
        (402, r#"{"code":402,"message":"account s3cret has not paid"}"#),
        (200, r#"{"id":1,"error":{"code":-32600,"message":"Invalid access key s3cret"}}"#),
        (200, r#"{"id":1,"error":{"code":-32000,"message":"reached the free tier of s3cret"}}"#),
        (502, "<html>could not reach http://node/s3cret</html>"),
        (400, "s3cret"),
    ];
    for (status, body) in bodies {
        let verdict = judge(status, "eth_call", body);
        let Payload::None { detail } = &verdict.payload else { panic!("{body}: {verdict:?}") };
        assert!(!detail.contains("s3cret") && !detail.is_empty(), "{detail}");
    }
}

#[test]
fn unknown_errors_are_tried_once_elsewhere_and_blame_no_upstream() {
    for code in [-32000, -32050, -32099, 17, -1, 0] {
        let body = format!(r#"{{"id":1,"error":{{"code":{code},"message":"zorp"}}}}"#);
        let verdict = judge(200, "eth_call", &body);
        assert_eq!(verdict.rule, "unknown-error", "{body}");
        assert_eq!(verdict.class, VerdictClass::Unknown);
        assert_eq!(
            (verdict.health, verdict.elsewhere),
            (HealthEffect::Neutral, TryElsewhere::Once)
        );
    }
}

/// Wraps `text` as nodes wrap what a contract says.
fn as_reverts(text: &str) -> Vec<String> {
    let quoted = serde_json::to_string(text).expect("a string");
    let message = serde_json::to_string(&format!("execution reverted: {text}")).expect("a string");
    let hardhat = format!(
        "Error: VM Exception while processing transaction: reverted with reason string '{text}'"
    );
    let hardhat = serde_json::to_string(&hardhat).expect("a string");
    vec![
        format!(r#"{{"id":1,"error":{{"code":3,"message":{message}}}}}"#),
        format!(r#"{{"id":1,"error":{{"code":3,"message":{message},"data":{quoted}}}}}"#),
        format!(r#"{{"id":1,"error":{{"code":-32000,"message":{message},"data":{quoted}}}}}"#),
        format!(
            r#"{{"id":1,"error":{{"code":-32603,"message":{message},"data":{{"message":{quoted}}}}}}}"#
        ),
        format!(
            r#"{{"id":1,"error":{{"code":-32015,"message":"VM execution error.","data":{quoted}}}}}"#
        ),
        format!(r#"{{"id":1,"error":{{"code":-32603,"message":{hardhat}}}}}"#),
    ]
}

#[test]
fn a_contract_steers_nothing() {
    let judge_of_all = Judge::standard();
    let mut texts: Vec<String> = judge_of_all.rules().texts().map(str::to_owned).collect();
    let recorded = judge_of_all.rules().rules.iter().flat_map(|rule| &rule.recorded);
    texts.extend(recorded.map(|recorded| recorded.body.clone()));
    texts.push(texts.join(" "));
    assert!(texts.len() > 400, "{}", texts.len());
    for text in &texts {
        for method in ["eth_call", "eth_estimateGas", "debug_traceCall", "eth_getLogs"] {
            for body in as_reverts(text) {
                for status in [200, 400, 500] {
                    let verdict = judge(status, method, &body);
                    assert_eq!(verdict.class, VerdictClass::Reverted, "{method} {status} {body}");
                    assert_eq!(verdict.elsewhere, TryElsewhere::No);
                    assert_eq!(verdict.health, HealthEffect::Neutral);
                    assert_eq!(verdict.learnt, None);
                }
            }
        }
    }
}

#[test]
fn what_is_left_of_a_cut_answer_steers_nothing() {
    for text in Judge::standard().rules().texts() {
        let cut = format!(r#"{{"id":1,"result":"{text}"#);
        check_call(&cut, "body-truncated fault");
        let cut =
            format!(r#"{{"id":1,"error":{{"code":-32000,"message":"execution reverted: {text}"#);
        check(500, "eth_call", &cut, "http-5xx fault");
    }
}

#[test]
fn a_caller_cannot_rest_an_upstream_by_being_quoted() {
    for text in
        ["rate limit exceeded", "too many requests", "unauthorized", "/billing", "mdbx_panic"]
    {
        let quotes = [
            format!(
                r#"{{"id":1,"error":{{"code":-32601,"message":"the method {text} does not exist/is not available"}}}}"#
            ),
            format!(
                r#"{{"id":1,"error":{{"code":-32000,"message":"the method {text} does not exist/is not available"}}}}"#
            ),
            format!(r#"{{"id":1,"error":{{"code":-32601,"message":"Method not found: {text}"}}}}"#),
            format!(
                r#"{{"id":1,"error":{{"code":-32602,"message":"invalid argument 0: json: cannot unmarshal {text}"}}}}"#
            ),
        ];
        for body in quotes {
            let verdict = judge(200, "eth_call", &body);
            assert_eq!(verdict.health, HealthEffect::Neutral, "{body}: {verdict:?}");
        }
    }
}

/// Checks errors, each as its code and message or as a whole, with what is learnt of it below.
fn check_learnt(method: &str, errors: &str) {
    let mut lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    while let Some(error) = lines.next() {
        let expected = lines.next().expect("what is learnt");
        let error = match error.split_once(' ') {
            Some((code, message)) if !error.starts_with('{') => {
                format!(r#"{{"code":{code},"message":"{message}"}}"#)
            }
            _ => error.to_owned(),
        };
        let verdict = judge(200, method, &format!(r#"{{"id":1,"error":{error}}}"#));
        let learnt = verdict.learnt.map_or("nothing".into(), |learnt| learnt.to_string());
        assert_eq!(format!("- {learnt}"), expected, "{error}: {verdict:?}");
    }
}

#[test]
fn facts_are_learnt_from_the_upstreams_own_words() {
    check_learnt(
        "eth_getLogs",
        r#"
        -32602 Query returned more than 10000 results. Try with this block range [0x118dc91, 0x1198cc3].
            - blocks 18406545 to 18451651 would work
        -32602 up to a 2K block range. this block range should work: [0x0, 0x87fe9]
            - blocks 0 to 557033 would work
        -32602 query exceeds max results 20000, retry with the range 25766988-25775072
            - blocks 25766988 to 25775072 would work
        {"code":-32005,"message":"query returned more than 10000 results","data":{"from":"0x1","to":"0xff","limit":10000}}
            - blocks 1 to 255 would work
        -32005 query returned more than 10000 results
            - nothing
        -32602 this block range should work: [0x9, 0x1]
            - nothing
        -32602 range 1000000 exceeds limit of 10000
            - at most 10000 blocks at once
        -32614 eth_getLogs is limited to a 10,000 range
            - at most 10000 blocks at once
        -32701 eth_getLogs is limited to 0 - 50 blocks range
            - at most 50 blocks at once
        35 ranges over 10000 blocks are not supported on freetier
            - at most 10000 blocks at once
        -32000 block range is larger than max block range, block range = 5120, max block range = 5000
            - at most 5000 blocks at once
        -32602 query exceeds max block range 5000
            - at most 5000 blocks at once
        -32005 block range too large, max range: 1000
            - at most 1000 blocks at once
        -32603 block range is too wide (maximum 1024)
            - at most 1024 blocks at once
        -32000 maximum [from, to] blocks distance: 10000
            - at most 10000 blocks at once
        {"code":-32602,"message":"invalid params","data":{"payload":"range 9009594 is bigger than range limit 2000"}}
            - at most 2000 blocks at once
        -32000 please specify less number of address
            - nothing
        -32602 This query contains 6000 filters. The current limit is 5000.
            - at most 5000 addresses at once
        -32600 You can make eth_getLogs requests with up to a 500 block range. Based on your parameters, this block range should work: [0x1a30dfd, 0x1a30ff0]
            - at most 500 blocks at once
        -32000 block range is too wide
            - fewer blocks at once
        -32600 block range too high
            - fewer blocks at once
        "#,
    );
    check_learnt(
        "eth_call",
        r#"
        -32000 height 100 is not available, lowest height is 13580000
            - nothing below block 13580000
        -32000 old data not available due to pruning: requested block 16999999, history is available from block 22000000
            - nothing below block 22000000
        -32000 old data not available due to pruning: from tx: 1962853355, min tx: 2662500000
            - nothing
        -32000 Access to archival data is not included in your current plan
            - no old state in this plan
        3 execution reverted: try with this block range [0x1, 0x2]
            - nothing
        "#,
    );
    check_learnt(
        "debug_traceTransaction",
        "-32612 Custom tracers are disabled\n- the method is there",
    );
    check_learnt("eth_sendRawTransaction", "-32000 nonce too low\n- perhaps mined already");
}

#[test]
fn limits_of_the_machine_are_no_rates() {
    for text in ["block gas limit exceeded", "call depth limit exceeded", "stack limit exceeded"] {
        let body = format!(r#"{{"id":1,"error":{{"code":-32000,"message":"{text}"}}}}"#);
        check_call(&body, "unknown-error unknown");
    }
}

#[test]
fn how_long_to_rest() {
    let body = br#"{"id":1,"error":{"code":-32005,"message":"exceeded project rate limit","data":{"rate":{"backoff_seconds":30}}}}"#;
    let row = MethodTable::standard().row("eth_call");
    let mut limited = reply(200, body);
    let rest = |reply: &WireReply| Judge::standard().reply(row, reply).retry_after;
    assert_eq!(rest(&limited), Some(Duration::from_secs(30)));
    limited.retry_after = Some(Duration::from_secs(2));
    assert_eq!(rest(&limited), Some(Duration::from_secs(2)), "the header comes first");
    let mut page = reply(503, b"<html>");
    page.retry_after = Some(Duration::from_secs(5));
    assert_eq!(rest(&page), Some(Duration::from_secs(5)));
    assert_eq!(rest(&reply(429, b"")), None);
}

#[test]
fn items_of_a_batch() {
    let body =
        br#"[{"id":2,"result":"0x"},{"id":1,"error":{"code":3,"message":"execution reverted"}}]"#;
    let batch = reply(200, body);
    let row = MethodTable::standard().row("eth_call");
    let items = wellhead_jsonrpc::scan_batch(&batch.body, 10).expect("a batch");
    let classes: Vec<_> =
        items.iter().map(|item| Judge::standard().item(row, &batch, item).class).collect();
    assert_eq!(classes, [VerdictClass::Answer, VerdictClass::Reverted]);
}

fn check_transport(kind: TransportErrorKind, sent: Sent, expected: &str) {
    let verdict = Judge::standard().transport(&TransportError::new(kind, sent, "why"));
    let is = format!("{} {} {}", verdict.rule, verdict.class, verdict.health.word());
    assert_eq!(is, expected);
    let Payload::None { detail } = verdict.payload else { panic!("{kind:?} has a payload") };
    assert!(detail.ends_with("why"), "{detail}");
}

#[test]
fn transports() {
    use TransportErrorKind as Kind;
    check_transport(Kind::Dns, Sent::No, "transport-dns fault failed_at_once");
    check_transport(Kind::Connect, Sent::No, "transport-connect fault failed_at_once");
    check_transport(Kind::Tls, Sent::No, "transport-tls fault failed_at_once");
    check_transport(Kind::ConnectTimeout, Sent::No, "transport-connect-timeout fault failed");
    check_transport(Kind::Timeout, Sent::Maybe, "transport-timeout fault failed");
    check_transport(Kind::Closed, Sent::Maybe, "transport-closed fault failed");
    check_transport(Kind::Closed, Sent::No, "transport-refused fault neutral");
    check_transport(Kind::Truncated, Sent::Maybe, "transport-truncated fault failed");
    check_transport(Kind::Protocol, Sent::Maybe, "transport-protocol fault failed");
    check_transport(Kind::TooLarge, Sent::Maybe, "transport-too-large range_too_large neutral");
    check_transport(Kind::PoolFull, Sent::No, "transport-pool-full fault neutral");
    check_transport(Kind::NoRoom, Sent::Maybe, "transport-no-room fault neutral");
}

/// An object with a `result` that is ours, as serde_json reads it.
fn is_answer(body: &[u8]) -> bool {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(body) else { return false };
    object.contains_key("result") && object.get("id").and_then(serde_json::Value::as_u64) == Some(1)
}

fn check_any(status: u16, method: &str, body: &[u8]) -> Result<(), TestCaseError> {
    let row = MethodTable::standard().row(method);
    let verdict = Judge::standard().reply(row, &reply(status, body));
    let is_result = matches!(verdict.class, VerdictClass::Answer | VerdictClass::Null);
    prop_assert!(!is_result || is_answer(body), "{:?}: {:?}", verdict, body);
    match &verdict.payload {
        Payload::Result(bytes) | Payload::Error(bytes) => {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(bytes).is_ok());
        }
        Payload::None { detail } => prop_assert!(!detail.is_empty()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes(status in 100u16..600, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_any(status, "eth_call", &body)?;
    }

    #[test]
    fn nearly_replies(
        status in prop_oneof![Just(200u16), 100u16..600],
        id in "1|2|null|\"1\"|1\\.0|01| 1 ",
        key in "result|error|resul|\\\\u0072esult",
        value in "null|1|\"0x\"|\\{\\}|\\{\"code\":3,\"message\":\"[ -~]{0,20}\"\\}|\\[1,|tru|\"[ -~]{0,20}\"",
        cut in 0usize..80,
    ) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"{key}":{value}}}"#);
        check_any(status, "eth_getBlockByNumber", body.as_bytes())?;
        check_any(status, "eth_call", &body.as_bytes()[..body.len().min(cut)])?;
    }

    #[test]
    fn arbitrary_errors(code in any::<i64>(), message in ".{0,60}", data in ".{0,60}") {
        let error = serde_json::json!({"id": 1, "error": {"code": code, "message": message, "data": data}});
        check_any(200, "eth_call", error.to_string().as_bytes())?;
    }
}
