//! Texts by the thousand, compared with `serde_json`'s reading of them: valid
//! ones in every spelling, the same with a few bytes changed, and cut ones.
//!
//! Seeds are fixed: a run says the same today and tomorrow. For new ground there
//! are the fuzz targets, which share the oracle.

mod oracle;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use wellhead_jsonrpc::{ParseLimits, ReplyOutcome, ScanError, Span, parse, scan, write};

fn for_all<S: Strategy>(cases: u32, strategy: &S, check: impl Fn(S::Value)) {
    let outcome = TestRunner::new(Config::with_cases(cases)).run(strategy, |value| {
        check(value);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

// --- texts ---

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => select(vec![" ", "\n", "\t", "\r\n", "  \t\n "])]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,4})?",
        select(vec!["0", "-0", "1e999", "18446744073709551616", "-1.50E+00"]).prop_map(Into::into),
    ]
}

/// A string, quoted and escaped in whatever way one may.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ !#-\\[\\]-~]{0,12}",
        2 => "0x[0-9a-f]{0,80}",
        1 => "[0-9a-f]{240,420}",
        1 => "[^\\x00-\\x1f\"\\\\]{1,6}",
        1 => select(vec![r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t"]).prop_map(Into::into),
        1 => any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")),
        1 => any::<char>().prop_map(|letter| {
            letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect()
        }),
    ];
    vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key() -> impl Strategy<Value = String> {
    let known = select(vec![
        r#""id""#,
        r#""jsonrpc""#,
        r#""method""#,
        r#""params""#,
        r#""result""#,
        r#""error""#,
        r#""\u0069d""#,
        r#""i\u0064""#,
        r#""resul\u0074""#,
        r#""\u0065rror""#,
        r#""m\u0065thod""#,
        r#""ID""#,
        r#""idx""#,
        r#""""#,
        r#""\\u0069d""#,
    ]);
    prop_oneof![4 => known.prop_map(Into::into), 1 => string()]
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => number(),
        3 => string(),
        2 => select(vec!["null", "true", "false", r#""2.0""#, r#""\u0032.0""#, r#""1.0""#, "1"])
            .prop_map(Into::into),
    ]
}

fn array(item: impl Strategy<Value = String>, items_max: usize) -> impl Strategy<Value = String> {
    vec((space(), item, space()), 0..items_max).prop_map(|items| {
        let items: Vec<_> = items.into_iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
        format!("[{}]", items.join(","))
    })
}

fn object(member: impl Strategy<Value = (String, String)>) -> impl Strategy<Value = String> {
    vec((space(), member, space(), space()), 0..7).prop_map(|members| {
        let members: Vec<_> = members
            .into_iter()
            .map(|(a, (key, value), b, c)| format!("{a}{key}{b}:{c}{value}{a}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn value() -> impl Strategy<Value = String> + Clone {
    scalar().prop_recursive(5, 40, 6, |inner| {
        prop_oneof![array(inner.clone(), 5).boxed(), object((key(), inner)).boxed(),]
    })
}

/// Members that make calls and replies likely.
fn likely_member() -> impl Strategy<Value = (String, String)> {
    let fixed = |key: &'static str, values: Vec<&'static str>| {
        (Just(key.to_owned()), select(values).prop_map(str::to_owned))
    };
    prop_oneof![
        2 => fixed(r#""jsonrpc""#, vec![r#""2.0""#, r#""2.0""#, r#""2\u002e0""#, "2.0", "null"]),
        2 => fixed(r#""id""#, vec!["1", r#""a""#, "null", "1.0", "true", "[]", "123456789012345678901"]),
        2 => fixed(r#""method""#, vec![r#""eth_call""#, r#""eth\u005fcall""#, r#""""#, "1", "null"]),
        2 => fixed(r#""params""#, vec!["[]", "[1, 2]", "{}", "null", "1", r#""x""#]),
        2 => (Just(r#""result""#.to_owned()), value()),
        2 => fixed(r#""error""#, vec!["null", "null", r#"{"code":3,"message":"no"}"#, r#""no""#]),
        1 => (key(), value()),
    ]
}

fn message() -> impl Strategy<Value = String> {
    let item = || prop_oneof![6 => object(likely_member()).boxed(), 1 => value().boxed()];
    let body = prop_oneof![4 => item().boxed(), 1 => array(item(), 20).boxed()];
    (space(), body, space()).prop_map(|(before, body, after)| format!("{before}{body}{after}"))
}

/// A reply with exactly one outcome, its keys in any order.
fn reply() -> impl Strategy<Value = (String, Option<String>, bool, String)> {
    let id = proptest::option::of(prop_oneof![number(), string(), Just("null".to_owned())]);
    let others = vec((string(), value()), 0..3);
    (id, value(), any::<bool>(), others, space(), any::<[Index; 4]>()).prop_map(
        |(id, value, is_error, others, space, order)| {
            let is_error = is_error && value != "null";
            let mut members: Vec<_> = others
                .into_iter()
                .map(|(name, value)| (name.replacen('"', "\"x-", 1), value))
                .collect();
            for (place, member) in order.iter().zip([
                id.clone().map(|id| ("\"id\"".to_owned(), id)),
                Some((if is_error { "\"error\"" } else { "\"result\"" }.to_owned(), value.clone())),
                Some(("\"jsonrpc\"".to_owned(), "\"2.0\"".to_owned())),
            ]) {
                let at = place.index(members.len() + 1);
                members.splice(at..at, member);
            }
            let members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{space}{name}{space}:{space}{value}{space}"))
                .collect();
            (format!("{{{}}}", members.join(",")), id, is_error, value)
        },
    )
}

#[derive(Clone, Debug)]
enum Change {
    Delete(Index),
    Insert(Index, u8),
    Replace(Index, u8),
    Cut(Index),
    Repeat(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || {
        prop_oneof![
            4 => select(b"\"\\{}[]:,0129-+.eEutfn \n/dD".to_vec()),
            1 => any::<u8>(),
        ]
    };
    prop_oneof![
        any::<Index>().prop_map(Change::Delete),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Repeat(from, to)),
    ]
}

fn changed(text: String, changes: Vec<Change>) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for change in changes {
        let length = bytes.len();
        match change {
            Change::Insert(at, byte) => bytes.insert(at.index(length + 1), byte),
            _ if length == 0 => {}
            Change::Delete(at) => drop(bytes.remove(at.index(length))),
            Change::Replace(at, byte) => bytes[at.index(length)] = byte,
            Change::Cut(at) => bytes.truncate(at.index(length)),
            Change::Repeat(a, b) => {
                let (a, b) = (a.index(length), b.index(length));
                let piece = bytes[a.min(b)..a.max(b)].to_vec();
                bytes.splice(a..a, piece);
            }
        }
    }
    bytes
}

const LIMITS: ParseLimits = ParseLimits { batch_items_max: 12, depth_max: 6 };

// --- what must hold ---

#[test]
fn valid_texts_are_read_as_serde_json_reads_them() {
    for_all(4000, &message(), |text| {
        assert!(oracle::valid(text.as_bytes()).is_some(), "the generator wrote {text}");
        oracle::check_parse(text.as_bytes(), LIMITS);
        oracle::check_parse(text.as_bytes(), ParseLimits::default());
        oracle::check_scan(text.as_bytes());
        oracle::check_head(text.as_bytes(), 400);
        oracle::check_raw(text.as_bytes());
    });
}

#[test]
fn changed_texts_are_accepted_when_serde_json_accepts_them() {
    for_all(12_000, &(message(), vec(change(), 1..4)), |(text, changes)| {
        let bytes = changed(text, changes);
        oracle::check_parse(&bytes, LIMITS);
        oracle::check_scan(&bytes);
        oracle::check_head(&bytes, 120);
        oracle::check_raw(&bytes);
    });
}

#[test]
fn values_are_looked_into_as_serde_json_does() {
    for_all(3000, &value(), |text| oracle::check_raw(text.as_bytes()));
}

#[test]
fn a_reply_is_found_in_any_key_order() {
    for_all(3000, &reply(), |(text, id, is_error, value)| {
        let body = text.as_bytes();
        let envelope = scan(body).unwrap_or_else(|error| panic!("{error}: {text}"));
        let (outcome, found_error) = match envelope.outcome {
            ReplyOutcome::Result(span) => (span, false),
            ReplyOutcome::Error(span) => (span, true),
        };
        assert_eq!(envelope.id.map(|id| id.of(body)), id.as_deref().map(str::as_bytes), "{text}");
        assert_eq!((outcome.of(body), found_error), (value.as_bytes(), is_error), "{text}");
        oracle::check_head(body, 300);
    });
}

#[test]
fn no_cut_reply_passes_for_a_whole_one() {
    for_all(400, &reply(), |(text, ..)| {
        let body = text.as_bytes();
        for end in 0..body.len() {
            let expected = if body[..end].trim_ascii().is_empty() {
                ScanError::Empty
            } else {
                ScanError::Truncated
            };
            assert_eq!(scan(&body[..end]), Err(expected), "cut at {end}: {text}");
        }
    });
}

#[test]
fn no_cut_call_passes_for_a_whole_one() {
    for_all(400, &object(likely_member()), |text| {
        for end in 0..text.len() {
            let cut = text.as_bytes()[..end].to_vec();
            assert!(parse(&cut.into(), LIMITS).is_err(), "cut at {end}: {text}");
        }
    });
}

#[test]
fn what_we_write_is_what_is_read() {
    let id = || proptest::option::of(prop_oneof![number(), string()]);
    let code = any::<i64>();
    let strategy = (id(), value(), code, any::<String>(), proptest::option::of(value()));
    for_all(3000, &strategy, |(id, value, code, message, data)| {
        let id = id.as_deref().map(str::as_bytes);
        let data = data.as_deref().map(str::as_bytes);
        let mut out = Vec::new();

        write::result(&mut out, id, value.as_bytes());
        let envelope = scan(&out).expect("we wrote a reply");
        let read = |span: Span| span.of(&out).to_vec();
        assert_eq!(envelope.id.map(read).as_deref(), Some(id.unwrap_or(b"null")));
        assert!(
            matches!(envelope.outcome, ReplyOutcome::Result(span) if read(span) == value.as_bytes())
        );

        out.clear();
        write::error(&mut out, id, code, &message, data);
        let envelope = scan(&out).expect("we wrote a reply");
        let ReplyOutcome::Error(span) = envelope.outcome else { panic!("we wrote an error") };
        let error = wellhead_jsonrpc::scan_error(span.of(&out)).expect("we wrote an object");
        assert_eq!((error.code, &*error.message), (code, &*message));
        assert_eq!(error.data, data.filter(|&data| data != b"null"));

        let mut again = Vec::new();
        write::error_raw(&mut again, id, span.of(&out));
        assert_eq!(again, out);
    });
}
