//! From a client's body to a packet, in one pass.
//!
//! The scanner is stopped at each key of a call and asked to walk over the value;
//! what stands where is noted on the way, and judged when the object is whole.
//! So a syntax error always wins over a malformed call, as JSON-RPC wants it.

use bytes::Bytes;

use crate::call::{Call, Method, Packet};
use crate::error::{Malformed, MalformedReason, ParseError};
use crate::json::{Flaw, Quoted, Scanner};
use crate::span::{BODY_BYTES_MAX, Span};
use crate::text::unescape;

/// How much of a body we are willing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls in one batch; beyond it the whole batch is refused.
    pub batch_items_max: usize,
    /// Arrays and objects inside each other, the outermost counted.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch_items_max: 1000, depth_max: 128 }
    }
}

/// Reads what a client sent; the crate's page has the table of what is accepted.
///
/// Shares the body's memory and, for a single call whose method is written
/// without escapes, allocates nothing (cloning a `Bytes` made straight from a
/// `Vec` allocates once; those of a connection do not).
pub fn parse(body: &Bytes, limits: Limits) -> Result<Packet, ParseError> {
    if body.len() >= BODY_BYTES_MAX {
        return Err(ParseError::TooLarge);
    }
    let mut scanner = Scanner::of_client(body, limits.depth_max);
    scanner.white_space();
    let packet = match scanner.peek() {
        None => return Err(ParseError::Empty),
        Some(b'[') => batch(&mut scanner, body, limits),
        Some(_) => single(&mut scanner, body),
    };
    packet.map_err(|stop| match stop {
        Stop::Error(error) => error,
        Stop::Flaw(Flaw::TooDeep) => ParseError::TooDeep { max: limits.depth_max },
        Stop::Flaw(flaw) => ParseError::NotJson { at: scanner.at, what: flaw.what() },
    })
}

/// Why reading ended early: the text, or our own bounds.
enum Stop {
    Flaw(Flaw),
    Error(ParseError),
}

impl From<Flaw> for Stop {
    fn from(flaw: Flaw) -> Self {
        Self::Flaw(flaw)
    }
}

fn single(scanner: &mut Scanner<'_>, body: &Bytes) -> Result<Packet, Stop> {
    let draft = item(scanner, 0)?;
    scanner.finish()?;
    Ok(Packet::Single(draft.settle(body)))
}

fn batch(scanner: &mut Scanner<'_>, body: &Bytes, limits: Limits) -> Result<Packet, Stop> {
    let mut drafts = Vec::new();
    let mut more = scanner.open(b']', 1)?;
    while more {
        if drafts.len() >= limits.batch_items_max {
            return Err(Stop::Error(ParseError::BatchTooLarge { max: limits.batch_items_max }));
        }
        drafts.push(item(scanner, 1)?);
        more = scanner.more(b']')?;
    }
    scanner.finish()?;
    if drafts.is_empty() {
        return Err(Stop::Error(ParseError::EmptyBatch));
    }
    Ok(Packet::Batch(drafts.into_iter().map(|draft| draft.settle(body)).collect()))
}

/// Where the parts of one item are, before anybody asks whether they will do.
struct Draft {
    start: usize,
    end: usize,
    is_object: bool,
    version: Option<Span>,
    id: Option<Span>,
    method: Option<Span>,
    method_escaped: bool,
    params: Option<Span>,
    id_twice: bool,
    other_twice: bool,
    unknown: Vec<Quoted>,
}

/// Walks over one item, `depth` containers being open around it.
fn item(scanner: &mut Scanner<'_>, depth: usize) -> Result<Draft, Flaw> {
    let start = scanner.at;
    let mut draft = Draft {
        start,
        end: start,
        is_object: scanner.peek() == Some(b'{'),
        version: None,
        id: None,
        method: None,
        method_escaped: false,
        params: None,
        id_twice: false,
        other_twice: false,
        unknown: Vec::new(),
    };
    if !draft.is_object {
        scanner.value(depth)?;
        draft.end = scanner.at;
        return Ok(draft);
    }
    let depth = depth + 1;
    let mut more = scanner.open(b'}', depth)?;
    while more {
        let key = scanner.key()?;
        let at = scanner.at;
        let known = known_key(scanner, key);
        if known == Some(Key::Method) && scanner.peek() == Some(b'"') {
            draft.method_escaped = scanner.string()?;
        } else {
            scanner.value(depth)?;
        }
        let value = Span::new(at, scanner.at);
        match known {
            Some(Key::Id) => draft.id_twice |= draft.id.replace(value).is_some(),
            Some(Key::Version) => draft.other_twice |= draft.version.replace(value).is_some(),
            Some(Key::Method) => draft.other_twice |= draft.method.replace(value).is_some(),
            Some(Key::Params) => draft.other_twice |= draft.params.replace(value).is_some(),
            None => draft.unknown.push(key),
        }
        more = scanner.more(b'}')?;
    }
    draft.end = scanner.at;
    draft.other_twice |= any_twice(scanner.text(), &draft.unknown);
    Ok(draft)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Version,
    Id,
    Method,
    Params,
}

#[inline]
fn known_key(scanner: &Scanner<'_>, key: Quoted) -> Option<Key> {
    let inner = scanner.slice(key.start, key.end);
    if key.escaped { key_named(unescape(inner)?.as_bytes()) } else { key_named(inner) }
}

#[inline]
fn key_named(name: &[u8]) -> Option<Key> {
    match name {
        b"jsonrpc" => Some(Key::Version),
        b"id" => Some(Key::Id),
        b"method" => Some(Key::Method),
        b"params" => Some(Key::Params),
        _ => None,
    }
}

/// Whether two of the keys read the same. Sorted, so that ten thousand keys
/// cost a client's body no more than their number of comparisons.
fn any_twice(text: &[u8], keys: &[Quoted]) -> bool {
    if keys.len() < 2 {
        return false;
    }
    let mut names: Vec<_> = keys
        .iter()
        // Keys that are not UTF-8 drop out here, and with them the whole body a little later.
        .filter_map(|key| unescape(&text[key.start..key.end]))
        .collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

impl Draft {
    /// Judges the parts. Only called once the whole body is known to be JSON in
    /// UTF-8: a method is read as text here.
    fn settle(self, body: &Bytes) -> Result<Call, Malformed> {
        let byte = |span: Span| body[span.start as usize];
        let id_is_scalar = self.id.is_none_or(|id| !matches!(byte(id), b'{' | b'[' | b't' | b'f'));
        let malformed = |reason| {
            let id = self.id.filter(|_| id_is_scalar && !self.id_twice);
            Err(Malformed { id: id.map(|id| id.bytes(body)), reason })
        };
        if !self.is_object {
            return malformed(MalformedReason::NotAnObject);
        }
        if self.id_twice || self.other_twice {
            return malformed(MalformedReason::DuplicateKey);
        }
        if !self.version.is_none_or(|version| reads_2_0(version.of(body))) {
            return malformed(MalformedReason::WrongVersion);
        }
        if !id_is_scalar {
            return malformed(MalformedReason::IdNotScalar);
        }
        let Some(method) = self.method else {
            return malformed(MalformedReason::MethodMissing);
        };
        if byte(method) != b'"' {
            return malformed(MalformedReason::MethodNotAString);
        }
        let params = match self.params.map(|params| (params, byte(params))) {
            None | Some((_, b'n')) => None,
            Some((params, b'[' | b'{')) => Some(params),
            Some(_) => return malformed(MalformedReason::ParamsNotStructured),
        };
        let inner = Span { start: method.start + 1, end: method.end - 1 };
        let method = if self.method_escaped {
            let name = unescape(inner.of(body)).expect("the scanner accepted this string");
            Method::Unescaped(name.into())
        } else {
            Method::Plain(inner)
        };
        let whole = Span::new(self.start, self.end);
        Ok(Call { source: body.clone(), whole, id: self.id, method, params })
    }
}

fn reads_2_0(version: &[u8]) -> bool {
    version == b"\"2.0\""
        || (version.starts_with(b"\"")
            && unescape(&version[1..version.len() - 1]).is_some_and(|text| text == "2.0"))
}
