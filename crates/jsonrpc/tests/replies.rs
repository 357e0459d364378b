//! What each kind of body from an upstream is read as, whole and from its head,
//! and what can be seen inside raw values.

use wellhead_jsonrpc::{
    Envelope, ReplyHead, ReplyOutcome, ScanError, Span, raw, scan, scan_batch, scan_error,
    scan_head, scan_id,
};

fn text(body: &[u8], span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| String::from_utf8_lossy(span.of(body)).into_owned())
}

fn summary(body: &[u8], envelope: Envelope) -> String {
    let (word, span) = match envelope.outcome {
        ReplyOutcome::Result(span) => ("result", span),
        ReplyOutcome::Error(span) => ("error", span),
    };
    format!("{} {word} {}", text(body, envelope.id), text(body, Some(span)))
}

/// `expected` is `id result value`, `id error value`, or what is wrong.
#[track_caller]
fn check(body: impl AsRef<[u8]>, expected: &str) {
    let body = body.as_ref();
    let found = match scan(body) {
        Ok(envelope) => summary(body, envelope),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(body));
}

#[test]
fn results_of_every_kind() {
    check(r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#, r#"1 result "0x1""#);
    check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "1 result null");
    check(r#"{"jsonrpc":"2.0","id":1,"result":[{"a":[]}]}"#, r#"1 result [{"a":[]}]"#);
    check(
        r#"{"id":1,"result":{"id":2,"result":3,"error":4}}"#,
        r#"1 result {"id":2,"result":3,"error":4}"#,
    );
    check(r#"{"id":1,"result":false}"#, "1 result false");
    check(r#"{"id":1,"result":-1.5e9}"#, "1 result -1.5e9");
    check(r#"{"result":""}"#, r#"- result """#);
}

#[test]
fn ids_of_every_kind() {
    check(r#"{"id":null,"result":1}"#, "null result 1");
    check(r#"{"id":"abc","result":1}"#, r#""abc" result 1"#);
    check(
        r#"{"id":123456789012345678901234567890,"result":1}"#,
        "123456789012345678901234567890 result 1",
    );
    check(r#"{"id":{"a":1},"result":1}"#, r#"{"a":1} result 1"#);
}

#[test]
fn errors() {
    check(r#"{"id":1,"error":{"code":3,"message":"no"}}"#, r#"1 error {"code":3,"message":"no"}"#);
    check(r#"{"error":"busy"}"#, r#"- error "busy""#);
    check(r#"{"error":{}}"#, "- error {}");
    check(r#"{"error":false}"#, "- error false");
}

#[test]
fn nulls_beside_the_other_outcome_do_not_count() {
    check(r#"{"id":1,"result":1,"error":null}"#, "1 result 1");
    check(r#"{"id":1,"error":null,"result":1}"#, "1 result 1");
    check(r#"{"id":1,"result":null,"error":null}"#, "1 result null");
    check(r#"{"id":1,"error":null,"result":null}"#, "1 result null");
    check(r#"{"id":1,"result":null,"error":{}}"#, "1 error {}");
    check(r#"{"id":1,"error":{},"result":null}"#, "1 error {}");
    check(r#"{"id":1,"error":null}"#, "NoOutcome");
    check(r#"{"id":1,"result":1,"error":{}}"#, "BothOutcomes");
    check(r#"{"id":1,"error":"","result":0}"#, "BothOutcomes");
}

#[test]
fn any_order_white_space_and_escapes() {
    check(r#"{"result":[1],"x":"id","id":5}"#, "5 result [1]");
    check(" \n{ \"id\" : 5 ,\t\"result\" : [ 1 ] }\r\n", "5 result [ 1 ]");
    check(r#"{"\u0069d":1,"re\u0073ult":2}"#, "1 result 2");
    check(r#"{"i\u0064":1,"\u0065rror":2}"#, "1 error 2");
    check(r#"{"\\u0069d":1,"result":2}"#, "- result 2");
    check(r#"{"ID":1,"Result":1,"result":2}"#, "- result 2");
}

#[test]
fn keys_that_stand_twice() {
    check(r#"{"id":1,"id":1,"result":2}"#, "DuplicateKey");
    check(r#"{"id":1,"result":2,"result":2}"#, "DuplicateKey");
    check(r#"{"id":1,"result":2,"r\u0065sult":2}"#, "DuplicateKey");
    check(r#"{"id":1,"error":null,"error":{},"result":2}"#, "DuplicateKey");
    check(r#"{"jsonrpc":"2.0","jsonrpc":"2.0","x":1,"x":2,"result":2}"#, "- result 2");
}

#[test]
fn what_is_no_reply() {
    check("", "Empty");
    check(" \r\n", "Empty");
    check("<html><body>502 Bad Gateway</body></html>", "NotJson { at: 0 }");
    check("upstream connect error", "NotJson { at: 0 }");
    check("null", "NotAnObject");
    check(r#""error""#, "NotAnObject");
    check(r#"[{"id":1,"result":2}]"#, "NotAnObject");
    check("{}", "NoOutcome");
    check(r#"{"jsonrpc":"2.0","id":1}"#, "NoOutcome");
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, "NoOutcome");
}

#[test]
fn what_is_no_json_inside_the_value_either() {
    check(r#"{"id":1,"result":01}"#, "NotJson { at: 18 }");
    check(r#"{"id":1,"result":[1,]}"#, "NotJson { at: 20 }");
    check(r#"{"id":1,"result":{"a" 1}}"#, "NotJson { at: 22 }");
    check(r#"{"id":1,"result":"\x"}"#, "NotJson { at: 19 }");
    check(b"{\"id\":1,\"result\":\"a\nb\"}", "NotJson { at: 19 }");
    check(b"{\"id\":1,\"result\":\"\xff\"}", "NotJson { at: 18 }");
    check(r#"{"id":1,"result":nope}"#, "NotJson { at: 18 }");
    check(r#"{"id":1,"result":1} {"id":2,"result":2}"#, "NotJson { at: 20 }");
    check(r#"{"id":1,"result":1}<!-- -->"#, "NotJson { at: 19 }");
}

#[test]
fn half_surrogates_are_the_upstreams_word() {
    check(r#"{"id":1,"result":"\ud800"}"#, r#"1 result "\ud800""#);
    check(r#"{"\udc00":1,"result":"\ud800\u0041"}"#, r#"- result "\ud800\u0041""#);
}

#[test]
fn a_call_trace_as_deep_as_the_evm_allows_passes() {
    let frames = |frames: usize| {
        let open = r#"{"calls":["#.repeat(frames);
        format!(r#"{{"id":1,"result":{open}{}}}"#, "]}".repeat(frames))
    };
    assert!(scan(frames(1025).as_bytes()).is_ok());
    assert!(scan(frames(2047).as_bytes()).is_ok());
    assert_eq!(scan(frames(2048).as_bytes()), Err(ScanError::TooDeep));
    assert_eq!(scan("[".repeat(1_000_000).as_bytes()), Err(ScanError::TooDeep));
}

#[test]
fn every_cut_of_a_reply_is_truncated() {
    let body = r#"{"jsonrpc":"2.0","id":"é\"","result":[{"a":-1.5e+3,"b":[true,false,null]},"\u00e9\ud83d"],"x":{}}"#;
    for end in 1..body.len() {
        assert_eq!(scan(&body.as_bytes()[..end]), Err(ScanError::Truncated), "cut at {end}");
    }
    assert!(scan(body.as_bytes()).is_ok());
}

// --- batches ---

#[track_caller]
fn check_batch(body: &str, expected: &str) {
    let found = match scan_batch(body.as_bytes(), 3) {
        Ok(items) => {
            let items: Vec<_> =
                items.into_iter().map(|item| summary(body.as_bytes(), item)).collect();
            items.join(" | ")
        }
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(found, expected, "{body}");
}

#[test]
fn batches() {
    check_batch("[]", "");
    check_batch(r#" [ {"id":2,"result":1} , {"error":{},"id":1} ] "#, "2 result 1 | 1 error {}");
    check_batch(r#"[{"id":1,"result":1},{"id":2}]"#, "NoOutcome");
    check_batch(r#"[{"id":1,"result":1},7]"#, "NotAnObject");
    check_batch(r#"[{"id":1,"id":1,"result":1}]"#, "DuplicateKey");
    check_batch(r#"[{"id":1,"result":1},{"id":2,"resu"#, "Truncated");
    check_batch(r#"[{"id":1,"result":1}"#, "Truncated");
    check_batch(r#"[{"id":1,"result":1}}"#, "NotJson { at: 20 }");
    check_batch(r#"[{"id":1,"result":1}] x"#, "NotJson { at: 22 }");
    check_batch("[{},{},{},{}]", "TooManyItems");
    check_batch(r#"{"id":null,"error":{"code":-32600}}"#, "NotAnArray");
    check_batch(r#"{"id":null,"error"#, "Truncated");
    check_batch("<html>", "NotJson { at: 0 }");
    check_batch("", "Empty");
}

// --- heads ---

#[track_caller]
fn check_head(prefix: impl AsRef<[u8]>, expected: &str) {
    let prefix = prefix.as_ref();
    let found = match scan_head(prefix) {
        ReplyHead::Result { id, value_at } => format!("{} result {value_at}", text(prefix, id)),
        ReplyHead::Error { id, value_at } => format!("{} error {value_at}", text(prefix, id)),
        other => format!("{other:?}"),
    };
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(prefix));
}

#[test]
fn heads_that_tell() {
    check_head(r#"{"jsonrpc":"2.0","id":1,"result":""#, "1 result 33");
    check_head(r#"{"jsonrpc":"2.0","id":0,"result":["#, "0 result 33");
    check_head(r#"{"jsonrpc":"2.0","id":1234567890,"result":{"#, "1234567890 result 42");
    check_head(r#"{"jsonrpc":"2.0","id":1,"result":7"#, "1 result 33");
    check_head(r#"{"jsonrpc":"2.0","result":["#, "- result 26");
    check_head(r#"{"id":"a","error":{"code""#, r#""a" error 18"#);
    check_head(r#" { "id" : 1 , "result" : t"#, "1 result 25");
    check_head(r#"{"\u0069d":1,"resul\u0074":1"#, "1 result 27");
    check_head(r#"{"x":{"result":1},"result":-"#, "- result 27");
    check_head(r#"{"error":null,"id":1,"result":{"#, "1 result 30");
}

#[test]
fn heads_that_do_not_tell_yet() {
    check_head("", "NeedMore");
    check_head(" ", "NeedMore");
    check_head("{", "NeedMore");
    check_head(r#"{"jsonrpc":"2.0","id":12"#, "NeedMore");
    check_head(r#"{"jsonrpc":"2.0","id":12,"result"#, "NeedMore");
    check_head(r#"{"jsonrpc":"2.0","id":12,"result":"#, "NeedMore");
    check_head(r#"{"jsonrpc":"2.0","id":12,"result": "#, "NeedMore");
    check_head(r#"{"x":[1,2,"#, "NeedMore");
}

#[test]
fn a_null_tells_nothing_until_the_end() {
    check_head(r#"{"id":1,"result":n"#, "NeedMore");
    check_head(r#"{"id":1,"result":null"#, "NeedMore");
    check_head(r#"{"id":1,"result":null,"#, "NeedMore");
    check_head(r#"{"id":1,"result":null}"#, "1 result 17");
    check_head(r#"{"id":1,"result":null,"error":{"#, "1 error 30");
    check_head(r#"{"result":null,"error":null,"id":1}"#, "1 result 10");
    check_head(r#"{"id":1,"error":null}"#, "Unknown");
}

#[test]
fn heads_of_what_is_no_reply() {
    check_head("<html>", "Unknown");
    check_head("[{", "Unknown");
    check_head("{}", "Unknown");
    check_head("{x", "Unknown");
    check_head(r#"{"id":1}"#, "Unknown");
    check_head(r#"{"jsonrpc":"2.0","id":01,"result":""#, "Unknown");
    check_head(r#"{"jsonrpc":"2.0","id":,"result":""#, "Unknown");
    check_head(r#"{"id":1,"id":"#, "Unknown");
    check_head(r#"{"result":null,"result":"#, "Unknown");
    check_head(r#"{"id":1,"result":x"#, "Unknown");
    check_head(r#"{"id":1,"result":]"#, "Unknown");
    check_head(r#"{"id":1,"result":nix"#, "Unknown");
    check_head(b"{\"id\":\"\xff\",\"result\":1", "Unknown");
    check_head(b"{\"id\":\"\xff\",\"result\":null}", "Unknown");
}

// --- error objects ---

#[track_caller]
fn check_error(value: &str, expected: Option<(i64, &str, Option<&str>)>) {
    let found = scan_error(value.as_bytes());
    let found = found.as_ref().map(|error| {
        let data = error.data.map(|data| std::str::from_utf8(data).expect("from a str"));
        (error.code, &*error.message, data)
    });
    assert_eq!(found, expected, "{value}");
}

#[test]
fn error_objects() {
    check_error(
        r#"{"code":-32000,"message":"header not found"}"#,
        Some((-32000, "header not found", None)),
    );
    check_error(
        r#" { "data" : "0x08c379a0" , "message" : "execution reverted" , "code" : 3 } "#,
        Some((3, "execution reverted", Some(r#""0x08c379a0""#))),
    );
    check_error(
        r#"{"\u0063ode":1,"message":"a \"b\" \u00e9","data":{"x":[]}}"#,
        Some((1, "a \"b\" é", Some(r#"{"x":[]}"#))),
    );
    check_error(r#"{"message":"half \ud800"}"#, Some((0, "half \u{fffd}", None)));
}

#[test]
fn errors_that_say_little() {
    check_error("{}", Some((0, "", None)));
    check_error(r#"{"code":"-32000","message":null,"data":null}"#, Some((0, "", None)));
    check_error(r#"{"code":-32000.0,"message":"m"}"#, Some((0, "m", None)));
    check_error(r#"{"code":99999999999999999999,"message":"m"}"#, Some((0, "m", None)));
    check_error(r#"{"code":1,"message":{"en":"m"}}"#, Some((1, r#"{"en":"m"}"#, None)));
    check_error(r#""rate limited""#, Some((0, "rate limited", None)));
}

#[test]
fn the_last_of_equal_keys_counts() {
    check_error(r#"{"code":1,"code":2,"message":"a","message":"b"}"#, Some((2, "b", None)));
}

#[test]
fn what_is_no_error_object() {
    for value in ["null", "1", "[]", "true", "", " "] {
        check_error(value, None);
    }
}

// --- raw values ---

#[track_caller]
fn check_quantity(value: &str, expected: Option<u64>) {
    assert_eq!(raw::quantity(value.as_bytes()), expected, "{value}");
}

#[test]
fn quantities() {
    check_quantity(r#""0x0""#, Some(0));
    check_quantity(r#""0x1b4""#, Some(436));
    check_quantity(r#" "0X1B4" "#, Some(436));
    check_quantity(r#""0x0001""#, Some(1));
    check_quantity(r#""\u0030x1""#, Some(1));
    check_quantity(r#""0xffffffffffffffff""#, Some(u64::MAX));
    check_quantity(r#""0x00ffffffffffffffff""#, Some(u64::MAX));
    check_quantity("0", Some(0));
    check_quantity("18446744073709551615", Some(u64::MAX));
}

#[test]
fn what_is_no_quantity() {
    for value in [
        "\"0x10000000000000000\"",
        "18446744073709551616",
        "\"0x\"",
        "\"\"",
        "\"12\"",
        "\"latest\"",
        "\"0x1g\"",
        "\"0x-1\"",
        "\"0x+1\"",
        "\"-0x1\"",
        "-1",
        "1.0",
        "1e3",
        "null",
        "true",
        "[]",
        "{}",
        "",
        "\"",
        "\"0x1",
    ] {
        check_quantity(value, None);
    }
}

#[test]
fn strings() {
    let string = |value: &'static str| raw::string(value.as_bytes());
    assert_eq!(string(r#""latest""#).as_deref(), Some("latest"));
    assert_eq!(string(r#" "a\n\u00e9" "#).as_deref(), Some("a\né"));
    assert_eq!(string(r#""""#).as_deref(), Some(""));
    for value in ["", "\"", "latest", "null", "1", "[\"a\"]"] {
        assert_eq!(string(value), None, "{value}");
    }
}

#[test]
fn the_first_value_is_found_whatever_follows() {
    let leading = |text: &'static str| raw::leading(text.as_bytes());
    assert_eq!(leading(r#" {"a":[1]} ,"more":{}"#), Some(&br#"{"a":[1]}"#[..]));
    assert_eq!(leading(r#""0x,\"","jsonrpc":"2.0""#), Some(&br#""0x,\"""#[..]));
    assert_eq!(leading("[]"), Some(&b"[]"[..]));
    assert_eq!((leading(""), leading("{\"a\":"), leading("x")), (None, None, None));
}

#[test]
fn items_and_fields() {
    let array = br#" [ "a" , {"b":[1]}, null ] "#;
    assert_eq!(raw::item(array, 0), Some(&br#""a""#[..]));
    assert_eq!(raw::item(array, 1), Some(&br#"{"b":[1]}"#[..]));
    assert_eq!(raw::item(array, 2), Some(&b"null"[..]));
    assert_eq!(raw::item(array, 3), None);
    assert_eq!(raw::items(array).count(), 3);
    assert_eq!(raw::items(b"[]").count(), 0);
    assert_eq!(raw::items(br#"{"a":1}"#).count(), 0);

    let object = br#" { "a" : 1 , "\u0062" : [2] , "a" : 3 } "#;
    assert_eq!(raw::field(object, "b"), Some(&b"[2]"[..]));
    assert_eq!(raw::field(object, "a"), Some(&b"3"[..]));
    assert_eq!(raw::field(object, "c"), None);
    assert_eq!(raw::field(b"[1]", "a"), None);
    assert_eq!(raw::members(object).count(), 3);
}

#[test]
fn broken_values_end_early() {
    assert_eq!(raw::items(b"[1,2").count(), 2);
    assert_eq!(raw::items(b"[1,2,\"x").count(), 2);
    assert_eq!(raw::items(b"[1 2]").count(), 1);
    assert_eq!(raw::field(br#"{"a":1,"b""#, "a"), Some(&b"1"[..]));
    assert_eq!(raw::field(br#"{"a":1,"b""#, "b"), None);
}

#[test]
fn nulls_and_white_space() {
    assert!(raw::is_null(b"null"));
    assert!(raw::is_null(b"\n null\t\r"));
    assert!(!raw::is_null(b"\"null\""));
    assert!(!raw::is_null(b""));
    assert_eq!(raw::trim(b" \t\r\n"), b"");
    assert_eq!(raw::trim(b" a b "), b"a b");
    assert_eq!(raw::trim(b"\x0ba"), b"\x0ba");
}

/// `expected` is the id, or `-`.
#[track_caller]
fn check_id(body: impl AsRef<[u8]>, expected: &str) {
    let body = body.as_ref();
    assert_eq!(text(body, scan_id(body)), expected, "{}", String::from_utf8_lossy(body));
}

#[test]
fn the_id_is_found_wherever_it_stands() {
    check_id(r#"{"jsonrpc":"2.0","id":1042,"result":"0x1"}"#, "1042");
    check_id(r#"{"jsonrpc":"2.0","id":1042}"#, "1042");
    check_id(r#"{"jsonrpc":"2.0","id":1042,"method":"eth_call","params":[{"id":7}]}"#, "1042");
    check_id(r#"{"result":{"id":7,"x":[{"id":8}]},"id":1042}"#, "1042");
    check_id(r#"{"result":"{\"id\":7}","jsonrpc":"2.0","id":1042}"#, "1042");
    check_id(r#"{"error":{"code":1,"message":"id\":3,","id":4},"id":1042}"#, "1042");
    check_id(" {\n\"id\" : 1042 ,\"result\":1}", "1042");
    check_id(r#"{"\u0069d":1042,"result":1}"#, "1042");
    // The first counts; that there are two is for others to find.
    check_id(r#"{"id":1042,"result":1,"id":2}"#, "1042");
}

#[test]
fn ids_are_found_of_every_kind() {
    check_id(r#"{"jsonrpc":"2.0","id":"1042","result":1}"#, r#""1042""#);
    check_id(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "null");
    check_id(r#"{"jsonrpc":"2.0","id":1.5,"result":1}"#, "1.5");
    check_id(r#"{"jsonrpc":"2.0","id":1e3,"result":1}"#, "1e3");
    check_id(r#"{"jsonrpc":"2.0","id":0,"result":1}"#, "0");
    check_id(r#"{"jsonrpc":"2.0","id":{"id":3},"result":1}"#, r#"{"id":3}"#);
}

#[test]
fn what_has_no_id() {
    check_id("", "-");
    check_id("{", "-");
    check_id("{}", "-");
    check_id(r#"[{"id":1,"result":1}]"#, "-");
    check_id(r#"{"method":"eth_subscription","params":{"id":1,"result":{"id":2}}}"#, "-");
    check_id(r#"{"jsonrpc":"2.0","id":01,"result":1}"#, "-");
    check_id(r#"{"jsonrpc":"2.0","id":1x,"result":1}"#, "-");
    check_id(r#"{"jsonrpc":"2.0","id":"#, "-");
    check_id(r#"{"result":"0x1,"id":5}"#, "-");
    check_id("<html>", "-");
    check_id("\u{feff}{\"id\":1}", "-");
    check_id(vec![b'['; 10_000], "-");
}
