//! Where the block reference sits among a call's parameters, and reading it.
//!
//! Works on raw JSON; no document is built, and what cannot be understood in
//! exactly one way is [`BlockRef::Unreadable`]. Only positional parameters are
//! read: no client we know names them.

use std::fmt;

use wellhead_jsonrpc::raw;

use crate::block::{BlockPoint, BlockRef, BlockTag};
use crate::hex;
use crate::id::{BlockHash, BlockNumber, hex_number};
use crate::member::find_members;

/// `"0x"` and 64 digits, quotes included.
const HASH_TEXT_BYTES: usize = 68;

/// Where the block reference sits. `Display` writes it as the data file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockParam {
    /// `-`: there is none.
    None,
    /// `at:1=latest`: one parameter is a tag, a number, a hash, or an object
    /// with one of the latter two (EIP-1898).
    At {
        /// Which parameter, from 0.
        index: u8,
        /// Stands for an absent or `null` parameter; without it that is unreadable.
        default: Option<BlockTag>,
    },
    /// `field:1.blockNumber=latest`: the same, in a member of an object.
    AtField {
        /// Which parameter is the object, from 0.
        index: u8,
        /// The member.
        field: &'static str,
        /// Stands for an absent or `null` object or member.
        default: BlockTag,
    },
    /// `hash:0`: one parameter is a block hash.
    Hash {
        /// Which parameter, from 0.
        index: u8,
    },
    /// `filter:0=latest..latest`: one parameter is an object with `fromBlock`
    /// and `toBlock`, or with `blockHash`.
    Filter {
        /// Which parameter, from 0.
        index: u8,
        /// Stands for an absent or `null` `fromBlock`.
        from: BlockTag,
        /// Stands for an absent or `null` `toBlock`.
        to: BlockTag,
    },
    /// `range:0..1`: two parameters are the ends of a range. An absent end is
    /// the same as the start.
    Range {
        /// Which parameter is the start, from 0.
        from: u8,
        /// Which parameter is the end, from 0.
        to: u8,
    },
}

impl BlockParam {
    /// Which block a call with these parameters (raw JSON) speaks of.
    pub fn read(self, params: Option<&[u8]>) -> BlockRef {
        let found = match self {
            Self::None => return BlockRef::None,
            Self::At { index, default } => match argument(params, index) {
                Ok(Some(value)) => single(value),
                Ok(None) => default.map(BlockRef::Tag),
                Err(NotPositional) => None,
            },
            Self::AtField { index, field, default } => match argument(params, index) {
                Ok(Some(object)) => member_or(object, field, default),
                Ok(None) => Some(BlockRef::Tag(default)),
                Err(NotPositional) => None,
            },
            Self::Hash { index } => required(params, index).and_then(hash).map(BlockRef::Hash),
            Self::Filter { index, from, to } => {
                required(params, index).and_then(|object| filter(object, from, to))
            }
            Self::Range { from, to } => range(params, from, to),
        };
        found.unwrap_or(BlockRef::Unreadable)
    }
}

impl BlockParam {
    /// Whether the filter asks for everything that it finds: `trace_filter` can also be
    /// told how many to skip and how many to answer with.
    pub(crate) fn counts_nothing(self, params: Option<&[u8]>) -> bool {
        let Self::Filter { index, .. } = self else { return true };
        required(params, index).is_some_and(|object| {
            let found = find_members(raw::trim(object), ["after", "count"]);
            found.is_ok_and(|found| found.map(not_null) == [None, None])
        })
    }
}

/// The parameters are an object, or not even JSON.
pub(crate) struct NotPositional;

/// One parameter; `None` when it is absent or `null`.
pub(crate) fn argument(params: Option<&[u8]>, index: u8) -> Result<Option<&[u8]>, NotPositional> {
    let Some(params) = params else { return Ok(None) };
    let params = raw::trim(params);
    if params.first() != Some(&b'[') || params.last() != Some(&b']') {
        return Err(NotPositional);
    }
    Ok(raw::item(params, usize::from(index)).filter(|value| !raw::is_null(value)))
}

fn required(params: Option<&[u8]>, index: u8) -> Option<&[u8]> {
    argument(params, index).ok().flatten()
}

/// A tag, a number, a hash, or an object with one of the latter two.
fn single(value: &[u8]) -> Option<BlockRef> {
    let value = raw::trim(value);
    if value.first() == Some(&b'{') {
        let found = find_members(value, ["blockNumber", "blockHash"]).ok()?;
        return match found.map(not_null) {
            [Some(number), None] => point(number).map(BlockRef::from),
            [None, Some(value)] => hash(value).map(BlockRef::Hash),
            // Both, or neither: geth refuses it, others choose.
            [Some(_), Some(_)] | [None, None] => None,
        };
    }
    // Shorter than a hash as it is written; escapes would only make it longer.
    if value.len() < HASH_TEXT_BYTES {
        return point(value).map(BlockRef::from);
    }
    // A 32-byte number is a hash, whatever its leading zeros.
    hash(value).map(BlockRef::Hash).or_else(|| point(value).map(BlockRef::from))
}

fn member_or(object: &[u8], field: &str, default: BlockTag) -> Option<BlockRef> {
    let [value] = find_members(raw::trim(object), [field]).ok()?;
    not_null(value).map_or(Some(BlockRef::Tag(default)), single)
}

fn filter(object: &[u8], from: BlockTag, to: BlockTag) -> Option<BlockRef> {
    let names = ["fromBlock", "toBlock", "blockHash"];
    let end = |value, default| match value {
        Some(value) => point(value),
        None => Some(BlockPoint::Tag(default)),
    };
    match find_members(raw::trim(object), names).ok()?.map(not_null) {
        [None, None, Some(value)] => hash(value).map(BlockRef::Hash),
        [first, last, None] => {
            Some(BlockRef::Range { from: end(first, from)?, to: end(last, to)? })
        }
        // A hash beside a range: geth refuses it, others choose.
        [_, _, Some(_)] => None,
    }
}

fn range(params: Option<&[u8]>, from: u8, to: u8) -> Option<BlockRef> {
    let from = point(required(params, from)?)?;
    let to = match argument(params, to) {
        Ok(Some(value)) => point(value)?,
        Ok(None) => from,
        Err(NotPositional) => return None,
    };
    Some(BlockRef::Range { from, to })
}

/// A tag or a number. Numbers come as hex strings, at some providers also as integers.
fn point(value: &[u8]) -> Option<BlockPoint> {
    let value = raw::trim(value);
    if value.first() != Some(&b'"') {
        return integer(value).map(BlockNumber).map(BlockPoint::Number);
    }
    let text = raw::string(value)?;
    match BlockTag::from_word(&text) {
        Some(tag) => Some(BlockPoint::Tag(tag)),
        None => {
            let number = hex_number(hex::strip_prefix(&text)?)?;
            Some(BlockPoint::Number(BlockNumber(number)))
        }
    }
}

/// A JSON number without sign, fraction and exponent.
fn integer(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn hash(value: &[u8]) -> Option<BlockHash> {
    raw::string(raw::trim(value))?.parse().ok()
}

pub(crate) fn not_null(value: Option<&[u8]>) -> Option<&[u8]> {
    value.filter(|value| !raw::is_null(value))
}

impl fmt::Display for BlockParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::At { index, default: None } => write!(f, "at:{index}"),
            Self::At { index, default: Some(default) } => write!(f, "at:{index}={default}"),
            Self::AtField { index, field, default } => {
                write!(f, "field:{index}.{field}={default}")
            }
            Self::Hash { index } => write!(f, "hash:{index}"),
            Self::Filter { index, from, to } => write!(f, "filter:{index}={from}..{to}"),
            Self::Range { from, to } => write!(f, "range:{from}..{to}"),
        }
    }
}

impl BlockParam {
    /// Reads what `Display` writes.
    pub(crate) fn from_word(word: &'static str) -> Option<Self> {
        if word == "-" {
            return Some(Self::None);
        }
        let (kind, rest) = word.split_once(':')?;
        let (place, default) = match rest.split_once('=') {
            Some((place, default)) => (place, Some(default)),
            None => (rest, None),
        };
        match (kind, default) {
            ("at", None) => Some(Self::At { index: place.parse().ok()?, default: None }),
            ("at", Some(default)) => {
                let default = Some(BlockTag::from_word(default)?);
                Some(Self::At { index: place.parse().ok()?, default })
            }
            ("field", Some(default)) => {
                let (index, field) = place.split_once('.')?;
                let default = BlockTag::from_word(default)?;
                Some(Self::AtField { index: index.parse().ok()?, field, default })
            }
            ("hash", None) => Some(Self::Hash { index: place.parse().ok()? }),
            ("filter", Some(defaults)) => {
                let (from, to) = defaults.split_once("..")?;
                let (from, to) = (BlockTag::from_word(from)?, BlockTag::from_word(to)?);
                Some(Self::Filter { index: place.parse().ok()?, from, to })
            }
            ("range", None) => {
                let (from, to) = place.split_once("..")?;
                Some(Self::Range { from: from.parse().ok()?, to: to.parse().ok()? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

    /// `params` may say `H` for a hash; the answer is compared as text.
    #[track_caller]
    fn check(word: &'static str, params: &str, want: &str) {
        let block = BlockParam::from_word(word).unwrap();
        let params = params.replace("'H'", &format!("\"{HASH}\"")).replace('\'', "\"");
        let got = block.read(Some(params.as_bytes())).to_string().replace(HASH, "H");
        assert_eq!(got, want, "{word} {params}");
    }

    #[track_caller]
    fn check_unreadable(word: &'static str, params: &[&str]) {
        params.iter().for_each(|params| check(word, params, "unreadable"));
    }

    #[test]
    fn a_filter_that_counts_is_not_divisible() {
        let check = |params: &str, want| {
            let row = crate::MethodTable::standard().row("trace_filter");
            let params = params.replace('\'', "\"");
            assert_eq!(row.is_divisible(Some(params.as_bytes())), want, "{params}");
        };
        check("[{'fromBlock':'0x1'}]", true);
        check("[{'after':null}]", true);
        check("[{'after':10}]", false);
        check("[{'count':10}]", false);
        check("[]", false);
    }

    #[test]
    fn no_reference() {
        check("-", "['latest']", "none");
        check("-", "{'block':1}", "none");
        assert_eq!(BlockParam::None.read(None), BlockRef::None);
    }

    #[test]
    fn tags_numbers_and_hashes() {
        let word = "at:1=latest";
        check(word, "[{}, 'latest']", "latest");
        check(word, "[{}, 'earliest']", "earliest");
        check(word, "[{}, 'safe']", "safe");
        check(word, "[{}, 'finalized']", "finalized");
        check(word, "[{}, 'pending']", "pending");
        check(word, "[{}, '0x0']", "0");
        check(word, "[{}, '0x1B4']", "436");
        check(word, "[{}, '0X1b4']", "436");
        check(word, "[{}, '0x0001']", "1");
        check(word, "[{}, 436]", "436");
        check(word, "[{}, 'H']", "H");
        check(word, " [ {\"to\":\"]\"} ,\n '0x1' , {} ] ", "1");
        check(word, "[{}, 'l\\u0061test']", "latest");
        check("at:0", "['0xffffffffffffffff']", "18446744073709551615");
    }

    #[test]
    fn eip_1898_objects() {
        let word = "at:1=latest";
        check(word, "[{}, {'blockNumber':'0x1'}]", "1");
        check(word, "[{}, {'blockNumber':'latest'}]", "latest");
        check(word, "[{}, { 'requireCanonical' : true, 'blockHash' : 'H' }]", "H");
        check(word, "[{}, {'blockHash':'H','blockNumber':null}]", "H");
        for bad in [
            "{}",
            "{'requireCanonical':true}",
            "{'blockHash':'H','blockNumber':'0x1'}",
            "{'blockNumber':'H'}",
            "{'blockHash':'0x1'}",
            "{'blockHash':'latest'}",
            "{'blockNumber':'0x1','blockNumber':'latest'}",
            "{'BlockNumber':'0x1'}",
            "{'blockNumber':{}}",
        ] {
            check(word, &format!("[{{}}, {bad}]"), "unreadable");
        }
    }

    #[test]
    fn an_absent_parameter_is_the_default_where_there_is_one() {
        for params in ["[]", "[{}]", "[{}, null]", " [ {} , null , {} ] "] {
            check("at:1=latest", params, "latest");
            check("at:1=pending", params, "pending");
            check("at:1", params, "unreadable");
        }
        let block = BlockParam::from_word("at:0=latest").unwrap();
        assert_eq!(block.read(None), BlockRef::Tag(BlockTag::Latest));
        let block = BlockParam::from_word("at:0").unwrap();
        assert_eq!(block.read(None), BlockRef::Unreadable);
    }

    #[test]
    fn bad_references_are_unreadable() {
        for bad in [
            "''",
            "'0x'",
            "'0xg'",
            "'Latest'",
            "'436'",
            "'-0x1'",
            "'0x-1'",
            "'0x+1'",
            "' 0x1'",
            "'0x10000000000000000'",
            "-1",
            "1.5",
            "1e3",
            "18446744073709551616",
            "true",
            "[]",
            "['latest']",
        ] {
            check("at:0=latest", &format!("[{bad}]"), "unreadable");
        }
    }

    #[test]
    fn parameters_that_are_no_list_are_unreadable() {
        let no_lists = ["{}", "{'block':'latest'}", "'latest'", "1", "", "[", "null"];
        for word in [
            "at:0=latest",
            "hash:0",
            "filter:0=latest..latest",
            "range:0..1",
            "field:0.blockNumber=latest",
        ] {
            check_unreadable(word, &no_lists);
        }
    }

    #[test]
    fn hashes_only() {
        check("hash:0", "['H', true]", "H");
        check("hash:1", "[true, 'H']", "H");
        let bad = ["[]", "[null]", "['latest']", "['0x1']", "[{'blockHash':'H'}]", "[1]"];
        check_unreadable("hash:0", &bad);
    }

    #[test]
    fn filters() {
        let word = "filter:0=latest..latest";
        check(word, "[{}]", "latest..latest");
        check(word, "[{'address':'0x','fromBlock':'0x1'}]", "1..latest");
        check(word, "[{'toBlock':'0x5'}]", "latest..5");
        check(word, "[{'fromBlock':'0x1','toBlock':'0x5'}]", "1..5");
        check(word, "[{'fromBlock':'earliest','toBlock':'finalized'}]", "earliest..finalized");
        check(word, "[{'fromBlock':null,'toBlock':7,'blockHash':null}]", "latest..7");
        check(word, "[{'blockHash':'H','topics':[null,['0x']]}]", "H");
        check("filter:0=earliest..latest", "[{}]", "earliest..latest");
        let bad = [
            "[]",
            "[null]",
            "['latest']",
            "[[{}]]",
            "[{'fromBlock':'H'}]",
            "[{'fromBlock':'1'}]",
            "[{'toBlock':{}}]",
            "[{'blockHash':'0x1'}]",
            "[{'blockHash':'H','fromBlock':'0x1'}]",
            "[{'blockHash':'H','toBlock':'0x1'}]",
            "[{'toBlock':'0x1','toBlock':'latest'}]",
            "[{'toblock':'0x1'}]",
        ];
        check_unreadable(word, &bad);
    }

    #[test]
    fn members() {
        let word = "field:1.blockNumber=latest";
        check(word, "[[], {'blockNumber':'0x5','transactionIndex':-1}]", "5");
        check(word, "[[], {'transactionIndex':-1}]", "latest");
        check(word, "[[], {'blockNumber':null}]", "latest");
        check(word, "[[]]", "latest");
        check(word, "[[], {'blockNumber':'H'}]", "H");
        check(word, "[[], '0x5']", "unreadable");
        check(word, "[[], {'blocknumber':'0x5'}]", "unreadable");
    }

    #[test]
    fn ranges() {
        check("range:0..1", "['0x1', '0x5']", "1..5");
        check("range:0..1", "[1, 'latest']", "1..latest");
        check("range:0..1", "['0x1']", "1..1");
        check("range:0..1", "['0x1', null]", "1..1");
        check("range:0..1", "[null, '0x1']", "unreadable");
        check("range:0..1", "['0x1', 'H']", "unreadable");
    }

    #[test]
    fn bad_words_are_refused() {
        for word in [
            "",
            "at",
            "at:",
            "at:x",
            "at:1=",
            "at:1=newest",
            "at:300",
            "hash:0=latest",
            "hash:",
            "filter:0",
            "filter:0=latest",
            "range:0",
            "range:0..1=latest",
            "field:0.x",
            "field:0=latest",
            "block:0",
            "--",
        ] {
            assert_eq!(BlockParam::from_word(word), None, "{word:?}");
        }
    }

    fn words() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "-",
            "at:0",
            "at:1=latest",
            "hash:0",
            "filter:0=latest..latest",
            "range:0..1",
            "field:0.blockNumber=latest",
        ])
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let text = prop_oneof![
            any::<String>(),
            Just("latest".to_owned()),
            Just(HASH.to_owned()),
            "0x[0-9a-f]{0,20}",
        ];
        let key = prop_oneof![
            any::<String>(),
            prop::sample::select(vec!["blockNumber", "blockHash", "fromBlock", "toBlock"])
                .prop_map(str::to_owned),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(key.clone(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// What the reader should find in an `at:1=latest` parameter, said again
    /// with a document.
    fn by_document(value: Option<&serde_json::Value>) -> BlockRef {
        use serde_json::Value;
        let text = |text: &str| {
            if let Some(tag) = BlockTag::from_word(text) {
                return Some(BlockRef::Tag(tag));
            }
            let digits = text.strip_prefix("0x")?;
            if digits.len() == 64 {
                return text.parse().ok().map(BlockRef::Hash);
            }
            text.parse().ok().map(BlockRef::Number)
        };
        let found = match value {
            None | Some(Value::Null) => Some(BlockRef::Tag(BlockTag::Latest)),
            Some(Value::String(value)) => text(value),
            Some(Value::Number(value)) => value.as_u64().map(BlockNumber).map(BlockRef::Number),
            Some(Value::Object(members)) => {
                let of = |name| members.get(name).filter(|value| !value.is_null());
                match (of("blockNumber"), of("blockHash")) {
                    (Some(Value::String(value)), None) => {
                        text(value).filter(|found| !matches!(found, BlockRef::Hash(_)))
                    }
                    (Some(Value::Number(value)), None) => {
                        value.as_u64().map(BlockNumber).map(BlockRef::Number)
                    }
                    (None, Some(Value::String(value))) => value.parse().ok().map(BlockRef::Hash),
                    _ => None,
                }
            }
            Some(Value::Bool(_) | Value::Array(_)) => None,
        };
        found.unwrap_or(BlockRef::Unreadable)
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(word in words(), bytes: Vec<u8>) {
            let _ = BlockParam::from_word(word).unwrap().read(Some(&bytes));
        }

        #[test]
        fn any_near_json_is_survived(word in words(), text in r#"\[[\[\]{}",:\\0xlatesblockHashNumber]{0,40}"#) {
            let _ = BlockParam::from_word(word).unwrap().read(Some(text.as_bytes()));
        }

        #[test]
        fn any_json_is_survived(word in words(), params in json()) {
            let _ = BlockParam::from_word(word).unwrap().read(Some(params.to_string().as_bytes()));
        }

        #[test]
        fn agrees_with_a_document(params in prop::collection::vec(json(), 0..4)) {
            let block = BlockParam::from_word("at:1=latest").unwrap();
            let text = serde_json::Value::from(params.clone()).to_string();
            prop_assert_eq!(block.read(Some(text.as_bytes())), by_document(params.get(1)), "{}", text);
        }

        #[test]
        fn a_number_is_read_in_both_forms(number: u64) {
            let block = BlockParam::from_word("at:0").unwrap();
            let want = BlockRef::Number(BlockNumber(number));
            for text in [format!("[{number}]"), format!("[\"{number:#x}\"]")] {
                prop_assert_eq!(block.read(Some(text.as_bytes())), want);
            }
        }
    }
}
