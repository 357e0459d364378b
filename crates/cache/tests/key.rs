//! Keys: what means the same shares one, what may mean something else does not.
//!
//! By tables of pairs, and by documents drawn from few words, so that both happen often,
//! against a slow and plain idea of what is the same.

use proptest::prelude::*;
use wellhead_cache::{CacheRequest, Key, PARAMS_BYTES_MAX, PARAMS_DEPTH_MAX, Pin, Point, Reason};
use wellhead_eth::{BlockHash, BlockNumber, BlockTag, ChainId, MethodTable};

const A: &str = "0x00000000219ab540356cBB839Cbe05303d7705Fa";
const B: &str = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48";
const H: &str = "0x1d59ff54b1eb26b013ce3cb5fc9dab3705b415a67127a003c3e61eb445bb8df2";

/// Of the chain on which all is asked.
const ORIGIN: BlockHash = BlockHash([7; 32]);
const HEIGHT: Pin = Pin::Block(Point::Height(BlockNumber(16)));

fn request<'a>(
    method: &str,
    params: Option<&'a [u8]>,
    pin: Pin,
    salt: &'a [u8],
) -> CacheRequest<'a> {
    let row = MethodTable::standard().row(method);
    CacheRequest { chain: ChainId(1), row, params, pin, head: None, salt }
}

fn key(method: &str, params: Option<&str>, pin: Pin, salt: &[u8]) -> Result<Key, Reason> {
    Key::of(&request(method, params.map(str::as_bytes), pin, salt))
}

/// No two of these are the same.
#[track_caller]
fn all_differ(keys: impl IntoIterator<Item = Key>) {
    let mut before = Vec::new();
    for key in keys {
        let digest = key.digest(&ORIGIN);
        let is_new = before.iter().all(|(known, of)| *known != key && *of != digest);
        assert!(is_new, "the one in place {} is that of another", before.len());
        before.push((key, digest));
    }
}

/// `'` stands for `"`, and the words A, B, H in quotes for addresses and a hash.
fn spelled(params: &str) -> String {
    params
        .replace("'A'", &format!("'{A}'"))
        .replace("'B'", &format!("'{B}'"))
        .replace("'H'", &format!("'{H}'"))
        .replace('\'', "\"")
}

#[track_caller]
fn plain(params: &str) -> Key {
    key("web3_sha3", Some(&spelled(params)), Pin::Fixed, b"")
        .unwrap_or_else(|reason| panic!("{params}: {reason}"))
}

#[track_caller]
fn same(one: &str, other: &str) {
    assert_eq!(plain(one), plain(other), "{one} and {other}");
    assert_eq!(plain(one).digest(&ORIGIN), plain(other).digest(&ORIGIN));
}

#[track_caller]
fn differ(one: &str, other: &str) {
    assert_ne!(plain(one), plain(other), "{one} and {other}");
    assert_ne!(plain(one).digest(&ORIGIN), plain(other).digest(&ORIGIN));
}

#[track_caller]
fn refused(params: &str, want: Reason) {
    assert_eq!(key("web3_sha3", Some(&spelled(params)), Pin::Fixed, b""), Err(want), "{params}");
}

#[test]
fn spellings_of_the_same() {
    same("['a',1]", " [ 'a' ,\n\t1 ] ");
    same("[{'a':1,'b':2}]", "[{'b':2,'a':1}]");
    same("[{'a':{'x':1,'y':[{'p':1,'q':2}]},'b':2}]", "[{'b':2,'a':{'y':[{'q':2,'p':1}],'x':1}}]");
    same("['a/b']", "['\\u0061\\/\\u0062']");
    same("[{'to':1}]", "[{'t\\u006f':1}]");
    same("['A']", &format!("['{}']", A.to_lowercase()));
    same("['0xABCDEF']", "['0xabcdef']");
    same("['0xABC']", "['0xabc']");
    same("['0xab']", "['\\u0030xAB']");
    same("[{'A':{'balance':'0x1'}}]", &format!("[{{'{}':{{'balance':'0x1'}}}}]", A.to_lowercase()));
    same("[{'A':1,'B':2,'H':3}]", "[{'H':3,'B':2,'A':1}]");
    same("['é']", "['\\u00e9']");
    same("['😀']", "['\\ud83d\\ude00']");
}

#[test]
fn types() {
    let values = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "1.0",
        "1e0",
        "10",
        "''",
        "'0'",
        "'1'",
        "'null'",
        "'true'",
        "'0x'",
        "'0x1'",
        "'0x01'",
        "'0x0'",
        "'0X1'",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[{}]",
        "{'a':null}",
        "'a'",
        "'A '",
        "'x'",
        "'X'",
        "'0xg'",
        "'0xabg'",
        "'0xABg'",
        "'ab'",
        "'AB'",
    ];
    all_differ(values.map(|value| plain(&format!("[{value}]"))));
}

#[test]
fn lengths_and_nesting() {
    differ("['a','b']", "['a,b']");
    differ("['a','b']", "['ab']");
    differ("['a','b']", "['a\\\",\\\"b']");
    differ("[['a','b']]", "['a','b']");
    differ("[['a'],'b']", "[['a','b']]");
    differ("[['a'],['b']]", "[['a','b']]");
    differ("[[]]", "[[],[]]");
    differ("[[],[]]", "[[[]]]");
    differ("[[[],[]]]", "[[[]],[]]");
    differ("['','']", "['']");
    differ("[1,2]", "[12]");
    differ("[1,23]", "[12,3]");
    differ("[{'a':1},{'b':2}]", "[{'a':1,'b':2}]");
    differ("[{'a':{'b':1}}]", "[{'a':{},'b':1}]");
    differ("[{'a':'b'}]", "[{'b':'a'}]");
    differ("[{'a':1,'b':2}]", "[{'a':2,'b':1}]");
    differ("[['a',1]]", "[{'a':1}]");
    differ("['0xab','0xcd']", "['0xabcd']");
    differ("['0xab0']", "['0xab00']");
    differ("['0xab0']", "['0x0ab']");
    differ("['a','b']", "['b','a']");
    differ("['\\u0000']", "['']");
    // The collision that a proxy was known for: topics that are alternatives.
    differ("[{'topics':['A','B']}]", "[{'topics':[['A','B']]}]");
    differ("[{'topics':['A',null,'B']}]", "[{'topics':['A','B']}]");
    differ("[{'topics':[['A'],['B']]}]", "[{'topics':[['A','B']]}]");
    // Lengths around those whose own length grows.
    for length in [125, 126, 127, 128, 129, 255, 256, 16_383, 16_384] {
        let text = "x".repeat(length);
        differ(&format!("['{text}']"), &format!("['{text}x']"));
        differ(&format!("['{text}','y']"), &format!("['{text}','','y']"));
    }
}

#[test]
fn absence() {
    differ("['a']", "['a',null]");
    differ("[{'a':1}]", "[{'a':1,'b':null}]");
    let absent = key("web3_sha3", None, Pin::Fixed, b"").unwrap();
    assert_ne!(absent, plain("[]"));
    assert_ne!(absent, plain("[null]"));
    assert_ne!(plain("[]"), plain("{}"));
}

#[test]
fn names_keep_their_case_and_strings_that_are_no_data_too() {
    differ("[{'to':1}]", "[{'TO':1}]");
    differ("['callTracer']", "['calltracer']");
    // Shorter than an address: perhaps a name.
    differ("[{'0xAB':1}]", "[{'0xab':1}]");
    differ("['0Xab']", "['0xab']");
}

#[test]
fn names_that_may_mean_one_thing_keep_their_order() {
    differ("[{'0x1':'a','0x01':'b'}]", "[{'0x01':'b','0x1':'a'}]");
    differ("[{'1':'a','0x1':'b'}]", "[{'0x1':'b','1':'a'}]");
    let bare = &B[2..];
    differ(&format!("[{{'B':1,'{bare}':2}}]"), &format!("[{{'{bare}':2,'B':1}}]"));
    let odd = B.replace("0x", "0X");
    differ(&format!("[{{'B':1,'{odd}':2}}]"), &format!("[{{'{odd}':2,'B':1}}]"));
}

#[test]
fn what_can_be_read_in_two_ways_has_no_key() {
    refused("[{'a':1,'a':1}]", Reason::DuplicateKey);
    refused("[{'a':1,'b':2,'a':3}]", Reason::DuplicateKey);
    refused("[{'a':1,'\\u0061':2}]", Reason::DuplicateKey);
    refused("[{'to':1,'a':0,'TO':2}]", Reason::DuplicateKey);
    refused(&format!("[{{'A':1,'{}':2}}]", A.to_lowercase()), Reason::DuplicateKey);
    refused("[[{'x':{'a':1,'a':1}}]]", Reason::DuplicateKey);
    // Go takes the long s for an s.
    refused("[{'acce\u{17f}sList':1}]", Reason::DuplicateKey);
    refused("['\\ud800']", Reason::OddParams);
    // Addresses that differ in one byte that would be a letter are two addresses.
    let (one, two) = (B.replace("a0b8", "41b8"), B.replace("a0b8", "61b8"));
    differ(&format!("[{{'{one}':1,'{two}':2}}]"), &format!("[{{'{one}':2,'{two}':1}}]"));
}

#[test]
fn what_is_no_json_has_no_key() {
    for odd in [
        "",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[nul]",
        "['a]",
        "['a\\",
        "]",
        "[]x",
        "[{]",
        "[{'a'}]",
        "[{'a':}]",
        "[{'a':1,}]",
        "[{1:1}]",
        "[{'a':1]",
        "[+1]",
        "x",
    ] {
        refused(odd, Reason::OddParams);
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    plain(&nested(PARAMS_DEPTH_MAX));
    refused(&nested(PARAMS_DEPTH_MAX + 1), Reason::TooDeep);
    refused(&format!("[{}1{}]", "{'a':".repeat(40), "}".repeat(40)), Reason::TooDeep);
    let long = |length: usize| format!("['{}']", "x".repeat(length - 4));
    plain(&long(PARAMS_BYTES_MAX));
    refused(&long(PARAMS_BYTES_MAX + 1), Reason::ParamsTooLarge);
}

#[test]
fn the_rest_of_the_call_is_in_the_key() {
    let params = Some("[\"0x00\"]");
    let request = request("web3_sha3", params.map(str::as_bytes), Pin::Fixed, b"");
    let keys = [
        Key::of(&request),
        Key::of(&CacheRequest { chain: ChainId(10), ..request }),
        key("debug_preimage", params, Pin::Fixed, b""),
        key("web3_sha3", params, Pin::Fixed, b"x"),
        key("web3_sha3", params, Pin::Fixed, b"\0"),
        key("web3_sha3", params, Pin::Inclusion, b""),
        key("web3_sha3", params, Pin::Head, b""),
    ];
    let keys = keys.map(Result::unwrap);
    assert_eq!(keys[0].clone().as_bytes(), keys[0].as_bytes());
    all_differ(keys);
}

// Blocks.

#[track_caller]
fn pinned(method: &str, params: &str, pin: Pin) -> Key {
    key(method, Some(&spelled(params)), pin, b"")
        .unwrap_or_else(|reason| panic!("{method} {params}: {reason}"))
}

#[test]
fn a_block_is_what_the_pin_says_however_it_was_named() {
    let balance = |params: &str| pinned("eth_getBalance", params, HEIGHT);
    assert_eq!(balance("['A','latest']"), balance("['A','0x10']"));
    assert_eq!(balance("['A','latest']"), balance("['A','safe']"));
    assert_eq!(balance("['A','l\\u0061test']"), balance("['A','latest']"));
    assert_ne!(balance("['A','latest']"), balance("['B','latest']"));
    // One that another upstream may refuse.
    let spellings = [
        "'latest'",
        "16",
        "'0x010'",
        "'0X10'",
        "null",
        "'H'",
        "{'blockNumber':'0x10'}",
        "{'blockNumber':16}",
        "{'blockHash':'H'}",
        "{'blockHash':'H','requireCanonical':true}",
        "{'blockHash':'H','requireCanonical':false}",
        "'0x'",
        "'Latest'",
        "{}",
        "[]",
    ];
    let spelled = spellings.map(|block| balance(&format!("['A',{block}]")));
    all_differ(spelled.into_iter().chain([balance("['A']")]));
    // Elsewhere the same words are words.
    assert_ne!(balance("['latest','latest']"), balance("['safe','latest']"));
    assert_ne!(balance("['A','latest','latest']"), balance("['A','latest','safe']"));
}

#[test]
fn pins_differ() {
    let points = [
        Point::Final(BlockNumber(16)),
        Point::Final(BlockNumber(17)),
        Point::Height(BlockNumber(16)),
        Point::Hash(BlockHash([0; 32])),
        Point::Hash(BlockHash([1; 32])),
        Point::Tag(BlockTag::Latest),
        Point::Tag(BlockTag::Safe),
    ];
    let ranges = points.iter().flat_map(|from| points.map(|to| Pin::Range { from: *from, to }));
    let pins = points.into_iter().map(Pin::Block).chain(ranges);
    all_differ(pins.map(|pin| pinned("eth_getBalance", "['A','latest']", pin)));
}

#[test]
fn ends_of_a_range_and_members_of_objects() {
    let (from, to) = (Point::Final(BlockNumber(1)), Point::Height(BlockNumber(16)));
    let logs = |params: &str| pinned("eth_getLogs", params, Pin::Range { from, to });
    let base = logs("[{'fromBlock':'0x1','toBlock':'latest','address':'A'}]");
    assert_eq!(base, logs("[{'address':'A','toBlock':'0x10','fromBlock':'0x1'}]"));
    assert_ne!(base, logs("[{'fromBlock':'0x1','address':'A'}]"));
    assert_ne!(base, logs("[{'fromBlock':'0x1','toBlock':'latest','address':'B'}]"));
    assert_ne!(base, logs("[{'fromBlock':'0x1','toBlock':16,'address':'A'}]"));
    let by_hash = logs("[{'blockHash':'H'}]");
    assert_ne!(by_hash, logs("[{'toBlock':'H'}]"));

    let many = |params: &str| pinned("eth_callMany", params, HEIGHT);
    assert_eq!(
        many("[[],{'blockNumber':'latest','transactionIndex':1}]"),
        many("[[],{'transactionIndex':1,'blockNumber':'0x10'}]"),
    );
    assert_ne!(
        many("[[],{'blockNumber':'latest','transactionIndex':1}]"),
        many("[[],{'blockNumber':'latest','transactionIndex':2}]"),
    );
    let root = |params: &str| pinned("bor_getRootHash", params, Pin::Range { from, to });
    assert_eq!(root("['0x1','0x10']"), root("['0x1','latest']"));
    assert_ne!(root("['0x1',16]"), root("[1,'0x10']"));
}

#[test]
fn overrides_are_in_the_key() {
    let call = |rest: &str| pinned("eth_call", &format!("[{{'to':'A'}},'latest'{rest}]"), HEIGHT);
    all_differ([
        call(""),
        call(",null"),
        call(",{}"),
        call(",{'A':{}}"),
        call(",{'A':{'balance':'0x1'}}"),
        call(",{'A':{'nonce':'0x1'}}"),
        call(",{'B':{'balance':'0x1'}}"),
        call(",{'A':{'balance':'0x1'}},{'number':'0x1'}"),
        call(",{'A':{'balance':'0x1'}},{'time':'0x1'}"),
        call(",null,{'time':'0x1'}"),
        call(",{'A':{'state':{'H':'H'}}}"),
        call(",{'A':{'stateDiff':{'H':'H'}}}"),
    ]);
}

// Any documents.

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Doc {
    Word(&'static str),
    Number(&'static str),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// How to write a document: a stream of whims.
struct Whims<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl Whims<'_> {
    fn next(&mut self, choices: u8) -> u8 {
        self.0.next().map_or(0, |whim| whim % choices)
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", "", " ", "\n", "\t "][usize::from(self.next(6))]);
    }

    fn text(&mut self, out: &mut String, text: &str, is_data: bool) {
        out.push('"');
        for (place, letter) in text.chars().enumerate() {
            let letter = match self.next(2) {
                1 if is_data && place >= 2 => letter.to_ascii_uppercase(),
                _ => letter,
            };
            if self.next(8) == 7 || matches!(letter, '"' | '\\') {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            } else {
                out.push(letter);
            }
        }
        out.push('"');
    }

    fn write(&mut self, doc: &Doc, out: &mut String) {
        self.space(out);
        match doc {
            Doc::Word(text) | Doc::Number(text) => out.push_str(text),
            Doc::Text(text) => self.text(out, text, is_data(text)),
            Doc::Array(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    self.write(item, out);
                }
                self.space(out);
                out.push(']');
            }
            Doc::Object(members) => {
                let mut members = members.clone();
                if members.iter().all(|(name, _)| is_sortable(name)) && !members.is_empty() {
                    let turn = usize::from(self.next(7)) % members.len();
                    members.rotate_left(turn);
                    if self.next(2) == 1 {
                        members.reverse();
                    }
                }
                out.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    self.space(out);
                    self.text(out, name, is_data(name) && matches!(name.len(), 42 | 66));
                    self.space(out);
                    out.push(':');
                    self.write(value, out);
                }
                self.space(out);
                out.push('}');
            }
        }
        self.space(out);
    }
}

fn is_data(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_sortable(name: &str) -> bool {
    is_data(name) && matches!(name.len(), 42 | 66)
        || name.len() < 40 && name.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// A document in the one form that stands for all its spellings.
fn meaning(doc: &Doc) -> Doc {
    match doc {
        Doc::Word(_) | Doc::Number(_) => doc.clone(),
        Doc::Text(text) if is_data(text) => Doc::Text(text.to_ascii_lowercase()),
        Doc::Text(_) => doc.clone(),
        Doc::Array(items) => Doc::Array(items.iter().map(meaning).collect()),
        Doc::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, value)| (name.clone(), meaning(value))).collect();
            if members.iter().all(|(name, _)| is_sortable(name)) {
                members.sort();
            }
            Doc::Object(members)
        }
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "", "a", "b", "ab", "a,b", "\",\"", "[", "]", "{}", "0x", "0x1", "0x01", "0xab", "0xabc",
            "0x0abc", "latest", "é", "null", "1", "\\",
        ]).prop_map(str::to_owned),
        1 => "[ab\"\\[\\],:]{0,4}",
        1 => "0x[0-9a-f]{0,5}",
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "b",
        "to",
        "0x1",
        "1",
        "",
        "topics",
        B,
        H,
        "0x00000000219ab540356cbb839cbe05303d7705fa",
    ])
    .prop_map(str::to_owned)
}

fn any_doc() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Doc::Word),
        prop::sample::select(vec!["0", "1", "-1", "1.0", "10", "1e1"]).prop_map(Doc::Number),
        any_text().prop_map(Doc::Text),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Doc::Array),
            prop::collection::vec((any_name(), inner), 0..4).prop_map(|mut members| {
                // A name twice has no key, as the tables above show.
                let mut seen = Vec::new();
                members.retain(|(name, _)| {
                    let new = !seen.contains(name);
                    seen.push(name.clone());
                    new
                });
                Doc::Object(members)
            }),
        ]
    })
}

/// A document and one that is a little different, or not at all.
fn any_pair() -> impl Strategy<Value = (Doc, Doc)> {
    prop_oneof![
        (any_doc(), any_doc()),
        any_doc().prop_map(|doc| (doc.clone(), doc)),
        (any_doc(), any_doc(), any::<prop::sample::Index>()).prop_map(|(doc, other, place)| {
            let mut changed = doc.clone();
            let mut spots = count(&doc);
            let spot = place.index(spots);
            spots = spot;
            replace(&mut changed, &mut spots, &other);
            (doc, changed)
        }),
    ]
}

fn count(doc: &Doc) -> usize {
    1 + match doc {
        Doc::Word(_) | Doc::Number(_) | Doc::Text(_) => 0,
        Doc::Array(items) => items.iter().map(count).sum(),
        Doc::Object(members) => members.iter().map(|(_, value)| count(value)).sum(),
    }
}

/// Puts `other` in place of the value that is `left` steps away.
fn replace(doc: &mut Doc, left: &mut usize, other: &Doc) -> bool {
    if *left == 0 {
        *doc = other.clone();
        return true;
    }
    *left -= 1;
    match doc {
        Doc::Word(_) | Doc::Number(_) | Doc::Text(_) => false,
        Doc::Array(items) => items.iter_mut().any(|item| replace(item, left, other)),
        Doc::Object(members) => members.iter_mut().any(|(_, value)| replace(value, left, other)),
    }
}

fn key_of(doc: &Doc, whims: &[u8]) -> Result<Key, Reason> {
    let mut text = String::new();
    Whims(whims.iter().cycle()).write(&Doc::Array(vec![doc.clone()]), &mut text);
    let read: serde_json::Value = serde_json::from_str(&text).expect("the test writes JSON");
    assert!(read.is_array());
    key("web3_sha3", Some(&text), Pin::Fixed, b"")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn keys_are_equal_exactly_where_the_meaning_is(
        (one, other) in any_pair(), whims: [u8; 23], other_whims: [u8; 29],
    ) {
        let equal = key_of(&one, &whims).unwrap() == key_of(&other, &other_whims).unwrap();
        prop_assert_eq!(equal, meaning(&one) == meaning(&other), "{:?} {:?}", one, other);
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        for (method, pin) in [("web3_sha3", Pin::Fixed), ("eth_call", HEIGHT), ("eth_getLogs", HEIGHT)] {
            let _ = Key::of(&request(method, Some(&bytes), pin, b""));
        }
    }

    #[test]
    fn nearly_json_is_survived(text in "[\\[\\]{}\",:\\\\0x1anul ]{0,24}") {
        for (method, pin) in [("web3_sha3", Pin::Fixed), ("eth_call", HEIGHT), ("eth_getLogs", HEIGHT)] {
            let _ = key(method, Some(&text), pin, b"");
        }
    }
}
