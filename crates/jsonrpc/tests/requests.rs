//! What each kind of body from a client becomes, and the exact words it gets.
//!
//! The cases are the specification of the messages; that everything else agrees
//! with `serde_json` is shown in `properties`.

use wellhead_jsonrpc::{Call, Malformed, Packet, ParseLimits, first_id, parse};

/// Small bounds, so that the cases stay readable.
const LIMITS: ParseLimits = ParseLimits { batch_items_max: 3, depth_max: 5 };

/// `expected` is `id method params` for a call, `id! code message` for a malformed
/// one, `code message` for a refused body; `-` stands for what is absent.
#[track_caller]
fn check(body: impl AsRef<[u8]>, expected: &str) {
    let body = bytes::Bytes::copy_from_slice(body.as_ref());
    let summary = match parse(&body, LIMITS) {
        Err(error) => format!("{} {error}", error.code()),
        Ok(Packet::Single(item)) => item_summary(item),
        Ok(Packet::Batch(items)) => {
            let items: Vec<_> = items.into_iter().map(item_summary).collect();
            format!("[{}]", items.join(" | "))
        }
    };
    assert_eq!(summary, expected, "{}", String::from_utf8_lossy(&body));
}

fn item_summary(item: Result<Call, Malformed>) -> String {
    let text = |bytes: Option<&[u8]>| {
        String::from_utf8(bytes.unwrap_or(b"-").to_vec()).expect("parse checks the encoding")
    };
    match item {
        Ok(call) => format!("{} {} {}", text(call.id()), call.method(), text(call.params())),
        Err(malformed) => {
            format!("{}! {} {malformed}", text(malformed.id.as_deref()), malformed.code())
        }
    }
}

#[test]
fn nothing_to_read() {
    check("", "-32700 parse error: the request body is empty");
    check(" ", "-32700 parse error: the request body is empty");
    check(b"\n\t\r ", "-32700 parse error: the request body is empty");
}

#[test]
fn text_that_begins_as_no_value() {
    check(b"\xef\xbb\xbf{}", "-32700 parse error: expected a value at byte 0");
    check("hello", "-32700 parse error: expected a value at byte 0");
    check("<html>", "-32700 parse error: expected a value at byte 0");
    check("'a'", "-32700 parse error: expected a value at byte 0");
    check("NaN", "-32700 parse error: expected a value at byte 0");
    check("Infinity", "-32700 parse error: expected a value at byte 0");
    check("-Infinity", "-32700 parse error: expected a digit at byte 1");
    check("undefined", "-32700 parse error: expected a value at byte 0");
    check("}", "-32700 parse error: expected a value at byte 0");
    check("]", "-32700 parse error: expected a value at byte 0");
    check(",", "-32700 parse error: expected a value at byte 0");
    check(":", "-32700 parse error: expected a value at byte 0");
    check(b"\x00", "-32700 parse error: expected a value at byte 0");
    check(b"// x\n{}", "-32700 parse error: expected a value at byte 0");
    check("+1", "-32700 parse error: expected a value at byte 0");
    check(".5", "-32700 parse error: expected a value at byte 0");
    check("True", "-32700 parse error: expected a value at byte 0");
    check(b"\x0c{}", "-32700 parse error: expected a value at byte 0");
    check(b"\xa0{}", "-32700 parse error: expected a value at byte 0");
}

#[test]
fn words() {
    check("nul", "-32700 parse error: the text ends too early at byte 3");
    check("nulL", "-32700 parse error: expected `true`, `false` or `null` at byte 3");
    check("tru", "-32700 parse error: the text ends too early at byte 3");
    check("trux", "-32700 parse error: expected `true`, `false` or `null` at byte 3");
    check("fals", "-32700 parse error: the text ends too early at byte 4");
    check("falsy", "-32700 parse error: expected `true`, `false` or `null` at byte 4");
    check("nullnull", "-32700 parse error: unexpected text after the end at byte 4");
    check("n", "-32700 parse error: the text ends too early at byte 1");
}

#[test]
fn numbers() {
    check("01", "-32700 parse error: a number must not begin with 0 at byte 1");
    check("-", "-32700 parse error: the text ends too early at byte 1");
    check("--1", "-32700 parse error: expected a digit at byte 1");
    check("-x", "-32700 parse error: expected a digit at byte 1");
    check("1.", "-32700 parse error: the text ends too early at byte 2");
    check("1.e3", "-32700 parse error: expected a digit at byte 2");
    check("1.x", "-32700 parse error: expected a digit at byte 2");
    check("1e", "-32700 parse error: the text ends too early at byte 2");
    check("1e+", "-32700 parse error: the text ends too early at byte 3");
    check("1ex", "-32700 parse error: expected a digit at byte 2");
    check("00", "-32700 parse error: a number must not begin with 0 at byte 1");
    check("-01", "-32700 parse error: a number must not begin with 0 at byte 2");
    check("0x10", "-32700 parse error: unexpected text after the end at byte 1");
    check("1_000", "-32700 parse error: unexpected text after the end at byte 1");
    check("1 2", "-32700 parse error: unexpected text after the end at byte 2");
    check("1,2", "-32700 parse error: unexpected text after the end at byte 1");
}

#[test]
fn brackets_commas_and_colons() {
    check("{", "-32700 parse error: the text ends too early at byte 1");
    check("[", "-32700 parse error: the text ends too early at byte 1");
    check("[1", "-32700 parse error: the text ends too early at byte 2");
    check("[1,", "-32700 parse error: the text ends too early at byte 3");
    check("[1,]", "-32700 parse error: expected a value at byte 3");
    check("[,1]", "-32700 parse error: expected a value at byte 1");
    check("[1 2]", "-32700 parse error: expected `,` or `]` at byte 3");
    check("[1}", "-32700 parse error: expected `,` or `]` at byte 2");
    check("[1]]", "-32700 parse error: unexpected text after the end at byte 3");
    check("[[]", "-32700 parse error: the text ends too early at byte 3");
    check("{]", "-32700 parse error: expected a key in double quotes at byte 1");
    check(r#"{"a":1"#, "-32700 parse error: the text ends too early at byte 6");
    check(r#"{"a":1,"#, "-32700 parse error: the text ends too early at byte 7");
    check(r#"{"a":1,}"#, "-32700 parse error: expected a key in double quotes at byte 7");
    check("{,}", "-32700 parse error: expected a key in double quotes at byte 1");
    check(r#"{"a" 1}"#, "-32700 parse error: expected `:` at byte 5");
    check(r#"{"a":}"#, "-32700 parse error: expected a value at byte 5");
    check(r#"{"a"}"#, "-32700 parse error: expected `:` at byte 4");
    check(r#"{"a":1]"#, "-32700 parse error: expected `,` or `}` at byte 6");
    check(r#"{"a":1 "b":2}"#, "-32700 parse error: expected `,` or `}` at byte 7");
    check(r#"{"a":1}}"#, "-32700 parse error: unexpected text after the end at byte 7");
    check("{a:1}", "-32700 parse error: expected a key in double quotes at byte 1");
    check("{'a':1}", "-32700 parse error: expected a key in double quotes at byte 1");
    check("{1:1}", "-32700 parse error: expected a key in double quotes at byte 1");
    check("{null:1}", "-32700 parse error: expected a key in double quotes at byte 1");
    check(r#"{"a":1;"b":2}"#, "-32700 parse error: expected `,` or `}` at byte 6");
    check(r#"{"a"::1}"#, "-32700 parse error: expected a value at byte 5");
    check(r#"{"a":1,,"b":2}"#, "-32700 parse error: expected a key in double quotes at byte 7");
    check(r#"{"method":"m"} x"#, "-32700 parse error: unexpected text after the end at byte 15");
    check(
        r#"{"method":"m"}{"method":"m"}"#,
        "-32700 parse error: unexpected text after the end at byte 14",
    );
    check(
        b"{\"method\":\"m\"}\x00",
        "-32700 parse error: unexpected text after the end at byte 14",
    );
}

#[test]
fn strings() {
    check(r#"""#, "-32700 parse error: the text ends too early at byte 1");
    check(r#""a"#, "-32700 parse error: the text ends too early at byte 2");
    check(r#""\"#, "-32700 parse error: the text ends too early at byte 2");
    check(r#""\""#, "-32700 parse error: the text ends too early at byte 3");
    check(r#""\x""#, "-32700 parse error: unknown escape in a string at byte 2");
    check(r#""\u""#, "-32700 parse error: expected a hex digit at byte 3");
    check(r#""\u12""#, "-32700 parse error: expected a hex digit at byte 5");
    check(r#""\u12"#, "-32700 parse error: the text ends too early at byte 5");
    check(r#""\u12g4""#, "-32700 parse error: expected a hex digit at byte 5");
    check(r#""\u 123""#, "-32700 parse error: expected a hex digit at byte 3");
    check(r#""\U0041""#, "-32700 parse error: unknown escape in a string at byte 2");
    check(b"\"a\nb\"", "-32700 parse error: unescaped control character in a string at byte 2");
    check(b"\"a\tb\"", "-32700 parse error: unescaped control character in a string at byte 2");
    check(b"\"\x00\"", "-32700 parse error: unescaped control character in a string at byte 1");
    check(b"\"\x1f\"", "-32700 parse error: unescaped control character in a string at byte 1");
    check(b"{\"a\nb\":1}", "-32700 parse error: unescaped control character in a string at byte 3");
    check(
        b"{\"method\":\"m\",\"params\":[\"\x01\"]}",
        "-32700 parse error: unescaped control character in a string at byte 25",
    );
    check(
        format!("\"{}\n\"", "a".repeat(40)),
        "-32700 parse error: unescaped control character in a string at byte 41",
    );
    check(
        format!("\"{}\t\"", "a".repeat(300)),
        "-32700 parse error: unescaped control character in a string at byte 301",
    );
}

#[test]
fn half_surrogate_pairs() {
    check(r#""\ud800""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\udc00""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\ud800\u0041""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\ud800\ud800""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\ud800x""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\ud800\n""#, "-32700 parse error: half a surrogate pair in a string at byte 1");
    check(r#""\ud800"#, "-32700 parse error: the text ends too early at byte 7");
    check(r#""\ud800\"#, "-32700 parse error: the text ends too early at byte 8");
    check(r#""\ud800\u"#, "-32700 parse error: the text ends too early at byte 9");
    check(r#""\ud83d\ude0"#, "-32700 parse error: the text ends too early at byte 12");
    check(r#"{"\ud800":1}"#, "-32700 parse error: half a surrogate pair in a string at byte 2");
    check(
        r#"{"method":"m","params":["a\udfffb"]}"#,
        "-32700 parse error: half a surrogate pair in a string at byte 26",
    );
}

#[test]
fn encodings() {
    check(b"\"\xff\"", "-32700 parse error: not UTF-8 at byte 1");
    check(b"\"\x80\"", "-32700 parse error: not UTF-8 at byte 1");
    check(b"\"\xc0\x80\"", "-32700 parse error: not UTF-8 at byte 1");
    check(b"\"\xed\xa0\x80\"", "-32700 parse error: not UTF-8 at byte 1");
    check(b"\"\xf4\x90\x80\x80\"", "-32700 parse error: not UTF-8 at byte 1");
    check(b"\"ab\xc3\"", "-32700 parse error: not UTF-8 at byte 3");
    check(b"\"\xc3", "-32700 parse error: the text ends too early at byte 2");
    check(b"{\"method\":\"m\xe9\"}", "-32700 parse error: not UTF-8 at byte 12");
    check(b"{\"\xff\":1}", "-32700 parse error: not UTF-8 at byte 2");
    check(b"[{\"method\":\"m\"},\"\xf0\x9f\x98\"]", "-32700 parse error: not UTF-8 at byte 17");
    check(b"\xff\xfe{\x00}\x00", "-32700 parse error: expected a value at byte 0");
}

#[test]
fn values_that_are_no_calls() {
    check("1", "-! -32600 invalid request: a call must be an object");
    check(r#""x""#, "-! -32600 invalid request: a call must be an object");
    check("null", "-! -32600 invalid request: a call must be an object");
    check("true", "-! -32600 invalid request: a call must be an object");
    check("-1.5e3", "-! -32600 invalid request: a call must be an object");
    check("{}", "-! -32600 invalid request: `method` is missing");
    check(r#"{"a":1}"#, "-! -32600 invalid request: `method` is missing");
}

#[test]
fn batches() {
    check("[]", "-32600 invalid request: the batch is empty");
    check(" [ ] ", "-32600 invalid request: the batch is empty");
    check("[[]]", "[-! -32600 invalid request: a call must be an object]");
    check("[1]", "[-! -32600 invalid request: a call must be an object]");
    check(
        r#"[1,"x",null]"#,
        "[-! -32600 invalid request: a call must be an object | -! -32600 invalid request: a call must be an object | -! -32600 invalid request: a call must be an object]",
    );
    check(
        "[[],{},true]",
        "[-! -32600 invalid request: a call must be an object | -! -32600 invalid request: `method` is missing | -! -32600 invalid request: a call must be an object]",
    );
    check(r#"[{"method":"m"},1]"#, "[- m - | -! -32600 invalid request: a call must be an object]");
    check(
        r#"[1,{"method":"m","id":1}]"#,
        "[-! -32600 invalid request: a call must be an object | 1 m -]",
    );
    check("[{},{},{},{}]", "-32600 batch too large: it has more than 3 items");
    check("[1,1,1,1,!", "-32600 batch too large: it has more than 3 items");
    check("[1,1,1,!", "-32600 batch too large: it has more than 3 items");
    check("[] []", "-32700 parse error: unexpected text after the end at byte 3");
    check("[]x", "-32700 parse error: unexpected text after the end at byte 2");
}

#[test]
fn depth() {
    check("[[[[[1]]]]]", "[-! -32600 invalid request: a call must be an object]");
    for body in [
        "[[[[[[",
        r#"{"method":"m","params":[[[[[1]]]]]}"#,
        r#"{"method":"m","params":[[[[[]]]]]}"#,
        r#"{"method":"m","x":{"a":{"a":{"a":{"a":{}}}}}}"#,
        r#"[{"method":"m","params":[[[[]]]]}]"#,
    ] {
        check(body, "-32600 invalid request: nested deeper than 5 levels");
    }
    check(r#"{"method":"m","params":[[[[1]]]]}"#, "- m [[[[1]]]]");
    check(r#"[{"method":"m","params":[[[]]]}]"#, "[- m [[[]]]]");
}

#[test]
fn keys_that_stand_twice() {
    check(r#"{"id":1,"id":1,"method":"m"}"#, "-! -32600 invalid request: the call has a key twice");
    for body in [
        r#"{"id":1,"method":"m","method":"n"}"#,
        r#"{"id":1,"method":"m","m\u0065thod":"n"}"#,
        r#"{"id":1,"method":"m","params":[],"params":null}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#,
        r#"{"id":1,"method":"m","x":1,"y":2,"x":3}"#,
        r#"{"id":1,"method":"m","x":1,"\u0078":3}"#,
    ] {
        check(body, "1! -32600 invalid request: the call has a key twice");
    }
    check(
        r#"{"id":1,"\u0069d":2,"method":"m"}"#,
        "-! -32600 invalid request: the call has a key twice",
    );
    check(r#"{"id":1,"method":"m","x":1,"X":3}"#, "1 m -");
    check(r#"{"id":1,"method":"m","\\u0069d":1}"#, "1 m -");
    check(
        r#"{"id":[1],"id":2,"method":"m"}"#,
        "-! -32600 invalid request: the call has a key twice",
    );
}

#[test]
fn versions() {
    for body in [
        r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":null,"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0 ","id":1,"method":"m"}"#,
        r#"{"jsonrpc":["2.0"],"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"","id":1,"method":"m"}"#,
        r#"{"json\u0072pc":"1.0","id":1,"method":"m"}"#,
    ] {
        check(body, "1! -32600 invalid request: `jsonrpc` must be the string `2.0`");
    }
    check(
        r#"{"jsonrpc":"2","id":"a","method":"m"}"#,
        r#""a"! -32600 invalid request: `jsonrpc` must be the string `2.0`"#,
    );
    check(r#"{"jsonrpc":"2\u002e0","id":1,"method":"m"}"#, "1 m -");
    check(r#"{"JSONRPC":"1.0","id":1,"method":"m"}"#, "1 m -");
}

#[test]
fn ids_are_kept_as_written() {
    for body in [
        r#"{"id":true,"method":"m"}"#,
        r#"{"id":false,"method":"m"}"#,
        r#"{"id":[],"method":"m"}"#,
        r#"{"id":{"a":1},"method":"m"}"#,
    ] {
        check(body, "-! -32600 invalid request: `id` must be a string, a number or null");
    }
    check(r#"{"id":null}"#, "null! -32600 invalid request: `method` is missing");
    check(r#"{"id":null,"method":"m"}"#, "null m -");
    check(r#"{"id":0,"method":"m"}"#, "0 m -");
    check(r#"{"id":-0,"method":"m"}"#, "-0 m -");
    check(r#"{"id":-7,"method":"m"}"#, "-7 m -");
    check(r#"{"id":1.0,"method":"m"}"#, "1.0 m -");
    check(r#"{"id":1e0,"method":"m"}"#, "1e0 m -");
    check(r#"{"id":1.50E+2,"method":"m"}"#, "1.50E+2 m -");
    check(r#"{"id":9007199254740993,"method":"m"}"#, "9007199254740993 m -");
    check(r#"{"id":18446744073709551615,"method":"m"}"#, "18446744073709551615 m -");
    check(
        r#"{"id":123456789012345678901234567890,"method":"m"}"#,
        "123456789012345678901234567890 m -",
    );
    check(r#"{"id":1e999,"method":"m"}"#, "1e999 m -");
    check(r#"{"id":"","method":"m"}"#, r#""" m -"#);
    check(r#"{"id":"1","method":"m"}"#, r#""1" m -"#);
    check(r#"{"id":"\u00e9\"\n","method":"m"}"#, r#""\u00e9\"\n" m -"#);
    check(r#"{"id":"é","method":"m"}"#, r#""é" m -"#);
    check(r#"{"method":"m","id" : 3 }"#, "3 m -");
    check(r#"{"\u0069\u0064":4,"method":"m"}"#, "4 m -");
    check(r#"{"ID":1,"method":"m"}"#, "- m -");
    check(r#"{"method":"m"}"#, "- m -");
}

#[test]
fn methods() {
    check(r#"{"id":1}"#, "1! -32600 invalid request: `method` is missing");
    check(r#"{"id":1,"params":[]}"#, "1! -32600 invalid request: `method` is missing");
    check(r#"{"id":1,"Method":"m"}"#, "1! -32600 invalid request: `method` is missing");
    check(r#"{"id":1,"method":1}"#, "1! -32600 invalid request: `method` must be a string");
    check(r#"{"id":1,"method":null}"#, "1! -32600 invalid request: `method` must be a string");
    check(r#"{"id":1,"method":["m"]}"#, "1! -32600 invalid request: `method` must be a string");
    check(r#"{"id":1,"method":{}}"#, "1! -32600 invalid request: `method` must be a string");
    check(r#"{"id":1,"method":true}"#, "1! -32600 invalid request: `method` must be a string");
    check(r#"{"id":1,"method":""}"#, "1  -");
    check(r#"{"id":1,"method":"eth\u005fcall"}"#, "1 eth_call -");
    check(r#"{"id":1,"m\u0065thod":"eth_call"}"#, "1 eth_call -");
    check(r#"{"id":1,"method":"a\\b\"c"}"#, r#"1 a\b"c -"#);
    check(r#"{"id":1,"method":"\u00e9é"}"#, "1 éé -");
    check(r#"{"id":1,"method":"\ud83d\ude00"}"#, "1 😀 -");
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#,
        "1! -32600 invalid request: `method` is missing",
    );
}

#[test]
fn params() {
    for body in [
        r#"{"id":1,"method":"m","params":1}"#,
        r#"{"id":1,"method":"m","params":"x"}"#,
        r#"{"id":1,"method":"m","params":true}"#,
        r#"{"id":1,"method":"m","params":false}"#,
    ] {
        check(body, "1! -32600 invalid request: `params` must be an array or an object");
    }
    check(r#"{"id":1,"method":"m","params":null}"#, "1 m -");
    check(r#"{"id":1,"method":"m","params":[]}"#, "1 m []");
    check(r#"{"id":1,"method":"m","params":{}}"#, "1 m {}");
    check(r#"{"id":1,"method":"m","params":[ 1 , {"a":[]} ] }"#, r#"1 m [ 1 , {"a":[]} ]"#);
    check(r#"{"id":1,"method":"m","params":{"a":1,"a":2}}"#, r#"1 m {"a":1,"a":2}"#);
    check(r#"{"id":1,"method":"m","p\u0061rams":[1]}"#, "1 m [1]");
}

#[test]
fn the_first_fault_in_the_table_is_told() {
    check(
        r#"{"id":[],"id":[],"jsonrpc":1,"method":2,"params":3}"#,
        "-! -32600 invalid request: the call has a key twice",
    );
    check(
        r#"{"id":[],"jsonrpc":1,"method":2,"params":3}"#,
        "-! -32600 invalid request: `jsonrpc` must be the string `2.0`",
    );
    check(
        r#"{"id":[],"method":2,"params":3}"#,
        "-! -32600 invalid request: `id` must be a string, a number or null",
    );
    check(r#"{"id":1,"params":3}"#, "1! -32600 invalid request: `method` is missing");
    check(
        r#"{"id":1,"method":2,"params":3}"#,
        "1! -32600 invalid request: `method` must be a string",
    );
}

#[test]
fn white_space_is_allowed_between_all_tokens_and_kept_inside_params() {
    check(
        b"\r\n\t { \"jsonrpc\" : \"2.0\" ,\n\"id\"\t:\r1 , \"method\" : \"m\" , \"params\" : [ 1 ,\n2 ] } \n",
        "1 m [ 1 ,\n2 ]",
    );
    check(
        b" [ { \"method\" : \"m\" } , 1 ] ",
        "[- m - | -! -32600 invalid request: a call must be an object]",
    );
}

#[test]
fn parts_may_come_in_any_order_among_strangers() {
    check(
        r#"{"x":{"id":7,"method":"no"},"params":["p"],"":[],"method":"m","y":"id","id":"a","jsonrpc":"2.0"}"#,
        r#""a" m ["p"]"#,
    );
}

#[test]
fn a_call_knows_the_text_it_was_written_as() {
    let body = bytes::Bytes::from_static(br#" [ {"method":"a"} , { "method" : "b" } ] "#);
    let Ok(Packet::Batch(items)) = parse(&body, LIMITS) else { panic!("a batch of two") };
    let raw: Vec<_> = items.iter().map(|item| item.as_ref().expect("a call").raw()).collect();
    assert_eq!(raw, [&br#"{"method":"a"}"#[..], br#"{ "method" : "b" }"#]);
}

#[test]
fn a_call_shares_the_memory_of_its_body() {
    let body = bytes::Bytes::from(r#"{"id":1,"method":"m","params":["0xabc"]}"#.to_owned());
    let Ok(Packet::Single(Ok(call))) = parse(&body, LIMITS) else { panic!("a call") };
    let params = call.params().expect("there are params");
    assert!(body.as_ptr_range().contains(&params.as_ptr()), "params were copied");
}

#[test]
fn a_million_brackets_neither_overflow_nor_take_long() {
    let deep = ParseLimits { batch_items_max: 3, depth_max: usize::MAX };
    let open = bytes::Bytes::from("[".repeat(1_000_000));
    let words = parse(&open, deep).expect_err("it never ends").to_string();
    assert_eq!(words, "parse error: the text ends too early at byte 1000000");
    let whole = bytes::Bytes::from("[".repeat(100_000) + &"]".repeat(100_000));
    assert!(matches!(parse(&whole, deep), Ok(Packet::Batch(items)) if items.len() == 1));
}

#[test]
fn a_body_full_of_keys_takes_no_quadratic_time() {
    let keys: Vec<_> = (0..50_000).map(|key| format!("\"{key}\":1")).collect();
    check(format!("{{{},\"method\":\"m\"}}", keys.join(",")), "- m -");
    check(
        format!("{{{},\"method\":\"m\",\"777\":1}}", keys.join(",")),
        "-! -32600 invalid request: the call has a key twice",
    );
}

#[test]
fn default_limits() {
    let batch = |items: usize| format!("[{}]", vec![r#"{"method":"m"}"#; items].join(","));
    let parsed =
        |body: String| parse(&body.into(), ParseLimits::default()).map_err(|e| e.to_string());
    assert!(matches!(parsed(batch(1000)), Ok(Packet::Batch(items)) if items.len() == 1000));
    assert_eq!(
        parsed(batch(1001)).expect_err("one too many"),
        "batch too large: it has more than 1000 items"
    );
    let nested = |depth: usize| {
        format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert!(parsed(nested(127)).is_ok());
    assert_eq!(
        parsed(nested(128)).expect_err("one too deep"),
        "invalid request: nested deeper than 128 levels"
    );
}

#[track_caller]
fn check_first_id(body: &[u8], expected: Option<&str>) {
    let id = first_id(&bytes::Bytes::copy_from_slice(body), LIMITS);
    let id = id.map(|id| String::from_utf8(id.to_vec()).expect("UTF-8"));
    assert_eq!(id.as_deref(), expected, "{}", String::from_utf8_lossy(body));
}

#[test]
fn a_batch_that_is_refused_is_answered_under_its_first_id() {
    check_first_id(br#"[{"method":"m","id":7},{"method":"m","id":8}]"#, Some("7"));
    check_first_id(br#"[{"method":"m"},{"method":"m","id":"x"},1,1,1,1]"#, Some("\"x\""));
    check_first_id(br#"[{"method":"m","id":null}]"#, Some("null"));
    check_first_id(br#"[1,{"id":1},{"method":"m","id":[]},{"method":"m","id":4}]"#, None);
    check_first_id(br#"[{"method":"m","id":1,"id":2},{"jsonrpc":"1","method":"m","id":3}]"#, None);
    check_first_id(br#"[{"method":"m","id":9},!"#, Some("9"));
    check_first_id(br#"{"method":"m","id":7}"#, None);
    check_first_id(b"[]", None);
    check_first_id(b"", None);
    check_first_id(b"[{\"method\":\"m\",\"id\":\"\xff\"}]", None);
    check_first_id(b"[{\"method\":\"\xff\\n\",\"id\":5}]", Some("5"));
}
