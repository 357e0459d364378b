//! One form for answers that mean the same, so that the words of several upstreams can be
//! compared.
//!
//! Upstreams write the same answer in different ways: members in another order, addresses in
//! capitals, absent members as `null`, and a few members that only some clients have. None
//! of that is a difference. Numbers are compared as written: `"0x01"` is not `"0x1"`, and no
//! client writes it so.
//!
//! Not promised: that two answers whose forms differ contradict each other. Where the block
//! that they speak of may still be replaced, two honest upstreams may be on two branches.

use std::collections::BTreeMap;

use wellhead_jsonrpc::raw;

/// Members that some clients write and others do not, or that each counts in its own way.
/// None of them says anything that the members around it do not.
///
/// - `blockTimestamp` of a log or receipt: newer clients only; it is the block's.
/// - `totalDifficulty`: left out by most since the chain needs no work.
/// - `yParity`: newer clients only; it is `v` of a typed transaction.
/// - `size` of a block: with or without what came with later forks.
/// - `author`, `sealFields`: older names of the miner and of the seal.
const APART: [&str; 6] =
    ["author", "blockTimestamp", "sealFields", "size", "totalDifficulty", "yParity"];

/// What is nested deeper is compared as written: each level is read once more, and no answer
/// but a trace goes as deep as this.
const DEPTH_MAX: usize = 64;

/// The form in which `result`, which must be valid JSON, is compared; two are equal where
/// the bytes of their forms are. Takes time and memory in proportion to its length times the
/// depth of its nesting.
#[must_use]
pub fn canonical(result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len());
    write(&mut out, raw::trim(result), 0);
    out
}

fn write(out: &mut Vec<u8>, value: &[u8], depth: usize) {
    match value.first() {
        _ if depth > DEPTH_MAX => out.extend_from_slice(value),
        Some(b'{') => write_object(out, value, depth),
        Some(b'[') => {
            out.push(b'[');
            for (place, item) in raw::items(value).enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(out, item, depth + 1);
            }
            out.push(b']');
        }
        Some(b'"') if is_hex(value) => out.extend(value.iter().map(u8::to_ascii_lowercase)),
        Some(_) | None => out.extend_from_slice(value),
    }
}

/// Members by name. Of equal names the last counts, as it does for most parsers.
fn write_object(out: &mut Vec<u8>, object: &[u8], depth: usize) {
    let members: BTreeMap<_, _> = raw::members(object).collect();
    let told = members
        .iter()
        .filter(|(name, value)| !raw::is_null(value) && !APART.contains(&name.as_ref()));
    out.push(b'{');
    for (place, (name, value)) in told.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        wellhead_jsonrpc::write::string(out, name);
        out.push(b':');
        write(out, value, depth + 1);
    }
    out.push(b'}');
}

/// Whether it is a string of hex digits after `0x`.
fn is_hex(string: &[u8]) -> bool {
    let inner = string.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner
        .and_then(|inner| inner.strip_prefix(b"0x").or_else(|| inner.strip_prefix(b"0X")))
        .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(one: &str, other: &str, same: bool) {
        assert_eq!(
            canonical(one.as_bytes()) == canonical(other.as_bytes()),
            same,
            "{one}, {other}"
        );
    }

    #[test]
    fn the_same_in_other_words_is_the_same() {
        check(r#""0xAbCd""#, r#""0xabcd""#, true);
        check(r#"{"a":1,"b":[true,false]}"#, r#" {"b": [true , false], "a": 1}"#, true);
        check(r#"{"a":"0x1","to":null}"#, r#"{"a":"0x1"}"#, true);
        check(r#"{"hash":"0x1","totalDifficulty":"0x2"}"#, r#"{"hash":"0x1"}"#, true);
        check(r#"{"h\u0061sh":"0x1"}"#, r#"{"hash":"0x1"}"#, true);
        check(r#"[{"logIndex":"0x0","blockTimestamp":"0x5"}]"#, r#"[{"logIndex":"0x0"}]"#, true);
    }

    #[test]
    fn what_means_something_else_is_not() {
        check(r#""0x1""#, r#""0x2""#, false);
        check(r#""0x1""#, r#""0x01""#, false);
        check(r#""Word""#, r#""word""#, false);
        check("[1,2]", "[2,1]", false);
        check("[]", "{}", false);
        check("null", "[]", false);
        check(r#"{"a":[]}"#, "{}", false);
        check(r#"{"a":"0x1"}"#, r#"{"b":"0x1"}"#, false);
        check(r#"{"a":"0x1","a":"0x2"}"#, r#"{"a":"0x1"}"#, false);
        check(r#"{"a\":\"b":"c"}"#, r#"{"a":"b\":\"c"}"#, false);
    }

    #[test]
    fn it_is_its_own_form() {
        let block = br#" {"b":{"y":null,"x":["0xAA",null,{"z":1,"size":"0x9"}]},"a":"\u0030x0B"} "#;
        let form = canonical(block);
        assert_eq!(form, canonical(&form));
        assert_eq!(form, br#"{"a":"\u0030x0B","b":{"x":["0xaa",null,{"z":1}]}}"#);
    }

    #[test]
    fn what_is_nested_deep_ends() {
        let deep = [vec![b'['; 5_000], vec![b']'; 5_000]].concat();
        assert!(!canonical(&deep).is_empty());
    }
}
