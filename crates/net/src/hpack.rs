//! HPACK (RFC 7541): the compressed headers of HTTP/2, as far as a client of
//! JSON-RPC needs them.
//!
//! Outgoing headers are the same for every request but for the length, so the
//! two forms they ever take are made once per upstream. Of incoming ones only
//! those that decide something are kept; the others are counted, since their
//! size decides what the table of recent headers still holds.

use std::collections::VecDeque;

use bytes::Bytes;
use wellhead_jsonrpc::write;

use crate::huffman;
use crate::inflate::Encoding;
use crate::journal::{keep_limit, tells_limit};

/// Size of either side's table unless agreed otherwise; ours stays there.
pub(crate) const TABLE_BYTES: usize = 4096;
/// What an entry counts beyond its name and value.
const ENTRY_BYTES: usize = 32;
/// Larger numbers are a mistake or an attack.
const INTEGER_MAX: usize = 1 << 28;

/// The names of the static table, from index 1 on.
const STATIC_NAMES: [&str; 61] = [
    ":authority",
    ":method",
    ":method",
    ":path",
    ":path",
    ":scheme",
    ":scheme",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];
/// The statuses of the static table, from `STATIC_STATUS` on.
const STATIC_STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const STATIC_STATUS: usize = 8;
const METHOD_POST: u8 = 3;
const SCHEME_HTTP: u8 = 6;
const SCHEME_HTTPS: u8 = 7;
const CONTENT_LENGTH: usize = 28;

const INDEXED: u8 = 0x80;
const INCREMENTAL: u8 = 0x40;
const SIZE_UPDATE: u8 = 0x20;
const NEVER_INDEXED: u8 = 0x10;
const PLAIN: u8 = 0x00;

/// Takes a request's headers down in their two forms.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    /// The first on a connection, which fills the peer's table.
    pub(crate) first: Vec<u8>,
    /// All others, which refer to it.
    pub(crate) later: Vec<u8>,
    /// For a peer that wants a smaller table than the standard one.
    pub(crate) plain: Vec<u8>,
}

impl Blocks {
    /// `fields` without pseudo headers; a `true` beside one keeps it out of any table.
    pub(crate) fn new<'a>(
        secure: bool,
        authority: &'a str,
        path: &'a str,
        fields: impl Iterator<Item = (&'a str, &'a [u8], bool)>,
    ) -> Self {
        let scheme = if secure { SCHEME_HTTPS } else { SCHEME_HTTP };
        let constant = [INDEXED | METHOD_POST, INDEXED | scheme];
        let mut blocks =
            Self { first: constant.to_vec(), later: constant.to_vec(), plain: constant.to_vec() };
        let pseudo = [(":authority", authority.as_bytes()), (":path", path.as_bytes())];
        let pseudo = pseudo.into_iter().map(|(name, value)| (name, value, false));
        let mut indexed = Vec::new();
        let mut used = 0;
        for (name, value, secret) in pseudo.chain(fields) {
            let at = STATIC_NAMES.iter().position(|n| *n == name).map_or(0, |at| at + 1);
            let put = |out: &mut Vec<u8>, kind: u8, bits: u32| {
                put_integer(out, kind, bits, at);
                if at == 0 {
                    put_string(out, name.as_bytes());
                }
                put_string(out, value);
            };
            let size = ENTRY_BYTES + name.len() + value.len();
            if secret {
                for block in [&mut blocks.first, &mut blocks.later, &mut blocks.plain] {
                    put(block, NEVER_INDEXED, 4);
                }
            } else if used + size <= TABLE_BYTES {
                used += size;
                put(&mut blocks.first, INCREMENTAL, 6);
                put(&mut blocks.plain, PLAIN, 4);
                indexed.push(blocks.later.len());
                // Its index is known when all are: the newest has the lowest.
                blocks.later.push(INDEXED);
            } else {
                for block in [&mut blocks.first, &mut blocks.later, &mut blocks.plain] {
                    put(block, PLAIN, 4);
                }
            }
        }
        let mut later = Vec::with_capacity(blocks.later.len());
        let mut copied = 0;
        for (nth, at) in indexed.iter().enumerate() {
            later.extend_from_slice(&blocks.later[copied..*at]);
            put_integer(&mut later, INDEXED, 7, STATIC_NAMES.len() + indexed.len() - nth);
            copied = at + 1;
        }
        later.extend_from_slice(&blocks.later[copied..]);
        blocks.later = later;
        blocks
    }
}

/// Adds a header that differs between requests and is in no table.
pub(crate) fn put_literal(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    put_integer(out, PLAIN, 4, 0);
    put_string(out, name.as_bytes());
    put_string(out, value);
}

/// Adds `content-length`, the one header that each request has with a value of its own.
pub(crate) fn put_content_length(out: &mut Vec<u8>, length: usize) {
    put_integer(out, PLAIN, 4, CONTENT_LENGTH);
    let at = out.len();
    out.push(0);
    write::integer(out, length as u64);
    // At most 20 digits: one byte of length.
    out[at] = (out.len() - at - 1) as u8;
}

/// Tells the peer that our side of the table is empty from now on.
pub(crate) fn put_empty_table(out: &mut Vec<u8>) {
    out.push(SIZE_UPDATE);
}

fn put_integer(out: &mut Vec<u8>, kind: u8, bits: u32, mut number: usize) {
    let full = (1usize << bits) - 1;
    if number < full {
        out.push(kind | number as u8);
        return;
    }
    out.push(kind | full as u8);
    number -= full;
    while number >= 0x80 {
        out.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    put_integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// The table and with it the connection are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecodable(pub(crate) &'static str);

/// What the headers of one answer say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) status: Option<u16>,
    pub(crate) length: Option<u64>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) retry_after: Option<Bytes>,
    pub(crate) date: Option<Bytes>,
    /// What is told of limits; only where that is kept.
    pub(crate) limits: Vec<(String, String)>,
    /// Why they are not an answer, though they could be read.
    pub(crate) malformed: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldName {
    Status,
    Length,
    Encoding,
    RetryAfter,
    Date,
    /// It tells of limits, and that is kept.
    Limit,
    Other,
    /// Not allowed in an answer.
    Wrong,
}

impl FieldName {
    fn of(name: &[u8]) -> Self {
        match name {
            b":status" => Self::Status,
            b"content-length" => Self::Length,
            b"content-encoding" => Self::Encoding,
            b"retry-after" => Self::RetryAfter,
            b"date" => Self::Date,
            _ if name.is_empty() || name[0] == b':' || name.iter().any(u8::is_ascii_uppercase) => {
                Self::Wrong
            }
            _ => Self::Other,
        }
    }
}

/// A header as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    Status(u16),
    Length(u64),
    Encoding(Encoding),
    RetryAfter(Bytes),
    Date(Bytes),
    /// Name and value.
    Limit(Bytes, Bytes),
    Other,
    Malformed(&'static str),
}

impl Meaning {
    fn of(name: FieldName, value: &[u8]) -> Self {
        let number = || {
            let digits = value.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
        };
        match name {
            FieldName::Status => match number() {
                Some(status @ 100..=999) if value.len() == 3 => Self::Status(status as u16),
                Some(_) | None => Self::Malformed("the status is not one of HTTP's"),
            },
            FieldName::Length => match number() {
                Some(length) => Self::Length(length),
                None => Self::Malformed("the content-length is not a number"),
            },
            FieldName::Encoding => Self::Encoding(Encoding::of(Some(value))),
            FieldName::RetryAfter => Self::RetryAfter(Bytes::copy_from_slice(value)),
            FieldName::Date => Self::Date(Bytes::copy_from_slice(value)),
            // The table entry has its name as well.
            FieldName::Limit | FieldName::Other => Self::Other,
            FieldName::Wrong => Self::Malformed("a header's name is not valid"),
        }
    }
}

#[derive(Debug)]
struct TableEntry {
    name: FieldName,
    name_len: usize,
    size: usize,
    meaning: Meaning,
}

/// Reads the headers of answers; holds the table that the peer fills.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Newest first.
    table: VecDeque<TableEntry>,
    size: usize,
    size_max: usize,
    /// Whether headers that tell of limits are kept, for a journal.
    pub(crate) keeps_limits: bool,
    /// Where strings are unpacked.
    space: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            size_max: TABLE_BYTES,
            keeps_limits: false,
            space: Vec::new(),
        }
    }

    /// Reads one whole block.
    pub(crate) fn decode(&mut self, mut block: &[u8]) -> Result<Fields, Undecodable> {
        let mut fields = Fields::default();
        let mut started = false;
        while let Some(first) = block.first().copied() {
            if first & INDEXED != 0 {
                started = true;
                let index = integer(&mut block, 7)?;
                self.indexed(index, &mut fields)?;
            } else if first & INCREMENTAL == 0 && first & SIZE_UPDATE != 0 {
                let size = integer(&mut block, 5)?;
                if started || size > TABLE_BYTES {
                    return Err(Undecodable("a table size at the wrong place or too large"));
                }
                self.size_max = size;
                self.evict(0);
            } else {
                started = true;
                let keeps = first & INCREMENTAL != 0;
                let index = integer(&mut block, if keeps { 6 } else { 4 })?;
                self.literal(index, keeps, &mut block, &mut fields)?;
            }
        }
        Ok(fields)
    }

    fn indexed(&self, index: usize, fields: &mut Fields) -> Result<(), Undecodable> {
        let dynamic = STATIC_NAMES.len() + 1;
        if index >= dynamic {
            let entry = self.table.get(index - dynamic).ok_or(NO_ENTRY)?;
            fields.take(entry.meaning.clone());
            return Ok(());
        }
        let name = STATIC_NAMES.get(index.wrapping_sub(1)).ok_or(NO_ENTRY)?;
        fields.take(match STATIC_STATUSES.get(index.wrapping_sub(STATIC_STATUS)) {
            Some(status) => Meaning::Status(*status),
            None => Meaning::of(FieldName::of(name.as_bytes()), b""),
        });
        Ok(())
    }

    fn literal(
        &mut self,
        index: usize,
        keeps: bool,
        block: &mut &[u8],
        fields: &mut Fields,
    ) -> Result<(), Undecodable> {
        let dynamic = STATIC_NAMES.len() + 1;
        let mut limit = Bytes::new();
        let (name, name_len) = if index >= dynamic {
            let entry = self.table.get(index - dynamic).ok_or(NO_ENTRY)?;
            if let Meaning::Limit(name, _) = &entry.meaning {
                limit = name.clone();
            }
            (entry.name, entry.name_len)
        } else if index > 0 {
            let name = STATIC_NAMES[index - 1];
            (FieldName::of(name.as_bytes()), name.len())
        } else {
            let name = string(block)?.unpacked(&mut self.space)?;
            if self.keeps_limits && FieldName::of(name) == FieldName::Other && tells_limit(name) {
                limit = Bytes::copy_from_slice(name);
                (FieldName::Limit, name.len())
            } else {
                (FieldName::of(name), name.len())
            }
        };
        let value = string(block)?;
        if name == FieldName::Other && !keeps {
            return Ok(());
        }
        let value = value.unpacked(&mut self.space)?;
        let size = ENTRY_BYTES + name_len + value.len();
        let meaning = match name {
            FieldName::Limit => Meaning::Limit(limit, Bytes::copy_from_slice(value)),
            name => Meaning::of(name, value),
        };
        fields.take(meaning.clone());
        if keeps {
            self.evict(size);
            if size <= self.size_max {
                self.size += size;
                self.table.push_front(TableEntry { name, name_len, size, meaning });
            }
        }
        Ok(())
    }

    /// Makes room for `more` bytes.
    fn evict(&mut self, more: usize) {
        while self.size + more > self.size_max {
            let Some(oldest) = self.table.pop_back() else { break };
            self.size -= oldest.size;
        }
    }
}

impl Fields {
    fn take(&mut self, meaning: Meaning) {
        let twice = match meaning {
            Meaning::Status(status) => self.status.replace(status).is_some(),
            Meaning::Length(length) => self.length.replace(length).is_some(),
            Meaning::Encoding(encoding) => self.encoding.replace(encoding).is_some(),
            Meaning::RetryAfter(value) => {
                self.retry_after = Some(value);
                false
            }
            Meaning::Date(value) => {
                self.date = Some(value);
                false
            }
            Meaning::Limit(name, value) => {
                keep_limit(&mut self.limits, &name, &value);
                false
            }
            Meaning::Other => false,
            Meaning::Malformed(why) => {
                self.malformed = Some(why);
                false
            }
        };
        if twice {
            self.malformed = Some("a header that may come once came twice");
        }
    }
}

const NO_ENTRY: Undecodable = Undecodable("a header refers to none that is known");
const CUT: Undecodable = Undecodable("the headers are cut short");

fn integer(block: &mut &[u8], bits: u32) -> Result<usize, Undecodable> {
    let (first, mut rest) = block.split_first().ok_or(CUT)?;
    let full = (1usize << bits) - 1;
    let mut number = usize::from(*first) & full;
    if number == full {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first().ok_or(CUT)?;
            rest = after;
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if number > INTEGER_MAX || shift > 28 {
                return Err(Undecodable("a number in the headers is too large"));
            }
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(number)
}

/// A string as it arrived.
struct Packed<'a> {
    text: &'a [u8],
    huffman: bool,
}

fn string<'a>(block: &mut &'a [u8]) -> Result<Packed<'a>, Undecodable> {
    let huffman = block.first().ok_or(CUT)? & 0x80 != 0;
    let len = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(len).ok_or(CUT)?;
    *block = rest;
    Ok(Packed { text, huffman })
}

impl<'a> Packed<'a> {
    /// Plain, in place or in `space`.
    fn unpacked(self, space: &'a mut Vec<u8>) -> Result<&'a [u8], Undecodable> {
        if !self.huffman {
            return Ok(self.text);
        }
        space.clear();
        huffman::unpack(self.text, space).ok_or(Undecodable("a packed header is not valid"))?;
        Ok(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
    }

    /// Appendix C.6 of RFC 7541: three answers, packed, with a table of 256 bytes.
    #[test]
    fn the_answers_of_the_standard_are_read() {
        let mut decoder = Decoder::new();
        decoder.size_max = 256;
        let first = bytes(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        );
        let second = bytes("4883 640e ffc1 c0bf");
        let third = bytes(
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
             9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        );
        let date = |second| Some(Bytes::from(format!("Mon, 21 Oct 2013 20:13:{second} GMT")));
        let read = decoder.decode(&first).expect("valid");
        assert_eq!((read.status, read.date, decoder.size), (Some(302), date(21), 222));
        let read = decoder.decode(&second).expect("valid");
        assert_eq!((read.status, read.date, decoder.size), (Some(307), date(21), 222));
        let read = decoder.decode(&third).expect("valid");
        assert_eq!((read.status, read.date, decoder.size), (Some(200), date(22), 215));
        assert_eq!((read.encoding, read.malformed), (Some(Encoding::Gzip), None));
        assert_eq!(decoder.table.len(), 3);
    }

    /// Reads what we write, as if it were an answer.
    #[test]
    fn our_own_headers_can_be_read() {
        let value = "v".repeat(1000);
        let fields = [
            ("content-type", b"application/json".as_slice(), false),
            ("authorization", b"SECRET", true),
            ("x-long", value.as_bytes(), false),
            ("retry-after", b"7", false),
            ("x-too-long-for-the-table", &[b'x'; 4000], false),
        ];
        let blocks = Blocks::new(true, "localhost:8545", "/v2?x=1", fields.into_iter());
        let mut decoder = Decoder::new();
        for block in [&blocks.first, &blocks.later, &blocks.later, &blocks.plain] {
            let mut block = block.clone();
            put_content_length(&mut block, 1234);
            let read = decoder.decode(&block).expect("valid");
            assert_eq!((read.length, read.retry_after), (Some(1234), Some(Bytes::from("7"))));
        }
        assert_eq!(decoder.table.len(), 5, "two pseudo headers and three others");
        let secrets = |block: &[u8]| block.windows(6).filter(|w| w == b"SECRET").count();
        assert_eq!((secrets(&blocks.first), secrets(&blocks.later)), (1, 1), "never in a table");
        assert!(blocks.later.len() < 4100);
    }

    fn refused(block: &[u8]) {
        assert!(Decoder::new().decode(block).is_err(), "{block:?}");
    }

    #[test]
    fn what_loses_the_table_is_refused() {
        refused(b"\x80");
        refused(b"\xbe");
        refused(b"\x7f\x00\x01x");
        refused(b"\x40");
        refused(b"\x40\x05abc");
        refused(b"\x40\x01x\x05abc");
        refused(b"\x88\x20");
        refused(b"\x3f\xe2\x1f");
        refused(b"\xff\xff\xff\xff\xff\xff\x01");
        // Packed text that ends in the wrong padding, or in none.
        refused(b"\x48\x81\x00");
        refused(b"\x48\x85\xff\xff\xff\xff\xff");
    }

    #[test]
    fn the_table_forgets_the_oldest_and_may_be_emptied() {
        let mut decoder = Decoder::new();
        let entry = |letter: u8| [&b"\x40\x01x\x7f\x89\x07"[..], &[letter; 1032]].concat();
        for letter in *b"abcd" {
            decoder.decode(&entry(letter)).expect("valid");
        }
        // Four of 1065 bytes do not fit 4096.
        assert_eq!((decoder.table.len(), decoder.size), (3, 3 * 1065));
        decoder.decode(b"\x20").expect("valid");
        assert_eq!((decoder.table.len(), decoder.size), (0, 0));
        decoder.decode(&entry(b'e')).expect("valid, and not kept");
        assert!(decoder.table.is_empty());
        assert!(decoder.decode(b"\xbe").is_err());
    }

    #[test]
    fn integers_are_written_as_they_are_read() {
        for bits in [4, 5, 6, 7] {
            for number in [0, 1, 14, 15, 30, 31, 62, 63, 126, 127, 128, 1337, 100_000] {
                let mut out = Vec::new();
                put_integer(&mut out, 0, bits, number);
                let mut rest = &out[..];
                assert_eq!(integer(&mut rest, bits), Ok(number));
                assert!(rest.is_empty());
            }
        }
    }
}
