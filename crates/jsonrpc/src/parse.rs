//! From a client's body to a packet, in one pass.
//!
//! The scanner is stopped at each key of a call and asked to walk over the value;
//! what stands where is noted on the way, and judged when the object is whole.
//! So a syntax error always wins over a malformed call, as JSON-RPC wants it.

use std::borrow::Cow;

use bytes::Bytes;

use crate::call::{Call, Method, Packet};
use crate::error::{Malformed, MalformedReason, ParseError};
use crate::json::{ContainerStep, Flaw, Stop, Text};
use crate::span::{BODY_BYTES_MAX, Span};
use crate::text::unescape;

/// How much of a body we are willing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Calls in one batch; beyond it the whole batch is refused.
    pub batch_items_max: usize,
    /// Arrays and objects inside each other, the outermost counted.
    pub depth_max: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        Self { batch_items_max: 1000, depth_max: 128 }
    }
}

/// Reads what a client sent; the crate's page has the table of what is accepted.
///
/// Shares the body's memory and, for a single call whose method is written
/// without escapes, allocates nothing (cloning a `Bytes` made straight from a
/// `Vec` allocates once; those of a connection do not).
pub fn parse(body: &Bytes, limits: ParseLimits) -> Result<Packet, ParseError> {
    if body.len() >= BODY_BYTES_MAX {
        return Err(ParseError::TooLarge);
    }
    let text = Text::of_client(body, limits.depth_max);
    let start = text.skip_space(0);
    let packet = match text.peek(start) {
        None => return Err(ParseError::Empty),
        Some(b'[') => batch(&text, start, body, limits),
        Some(_) => single(&text, start, body),
    };
    packet.map_err(|refusal| match refusal {
        ParseStop::Ours(error) => error,
        ParseStop::Text => match text.flaw() {
            (_, Flaw::TooDeep) => ParseError::TooDeep { max: limits.depth_max },
            (at, flaw) => ParseError::NotJson { at, what: flaw.what() },
        },
    })
}

/// The id of the first call of a batch that has one, as written. A batch that is refused as a
/// whole is answered under it, as geth does: a list of one error, which programs can match.
///
/// Looks at [`ParseLimits::batch_items_max`] items at most, and says nothing of the rest of the body.
#[must_use]
pub fn first_id(body: &Bytes, limits: ParseLimits) -> Option<Bytes> {
    let text = Text::of_client(body, limits.depth_max);
    let start = text.skip_space(0);
    if body.len() >= BODY_BYTES_MAX || text.peek(start) != Some(b'[') {
        return None;
    }
    let mut step = text.open(start, b']', 1).ok()?;
    for _ in 0..limits.batch_items_max {
        let ContainerStep::More(at) = step else { return None };
        let draft = item(&text, at, 1).ok()?;
        if let Some(id) = draft.call_id(body) {
            return Some(id);
        }
        step = text.more(draft.end, b']').ok()?;
    }
    None
}

/// Why reading ended early.
enum ParseStop {
    /// The text has a flaw.
    Text,
    /// It is beyond our own bounds.
    Ours(ParseError),
}

impl From<Stop> for ParseStop {
    fn from(_: Stop) -> Self {
        Self::Text
    }
}

fn single(text: &Text<'_>, at: usize, body: &Bytes) -> Result<Packet, ParseStop> {
    let draft = item(text, at, 0)?;
    text.finish(draft.end)?;
    Ok(Packet::Single(draft.settle(body)))
}

fn batch(
    text: &Text<'_>,
    at: usize,
    body: &Bytes,
    limits: ParseLimits,
) -> Result<Packet, ParseStop> {
    let mut drafts = Vec::new();
    let mut step = text.open(at, b']', 1)?;
    let end = loop {
        let at = match step {
            ContainerStep::More(at) => at,
            ContainerStep::Done(end) => break end,
        };
        if drafts.len() >= limits.batch_items_max {
            return Err(ParseStop::Ours(ParseError::BatchTooLarge { max: limits.batch_items_max }));
        }
        let draft = item(text, at, 1)?;
        step = text.more(draft.end, b']')?;
        drafts.push(draft);
    };
    text.finish(end)?;
    if drafts.is_empty() {
        return Err(ParseStop::Ours(ParseError::EmptyBatch));
    }
    Ok(Packet::Batch(drafts.into_iter().map(|draft| draft.settle(body)).collect()))
}

/// The positions of the parts of one item, before they are validated.
#[derive(Default)]
struct Draft {
    start: usize,
    end: usize,
    is_object: bool,
    version: Option<Span>,
    id: Option<Span>,
    method: Option<Span>,
    params: Option<Span>,
    id_twice: bool,
    other_twice: bool,
}

/// Walks over one item, `depth` containers being open around it.
fn item(text: &Text<'_>, start: usize, depth: usize) -> Result<Draft, Stop> {
    let mut draft = Draft { start, ..Draft::default() };
    if text.peek(start) != Some(b'{') {
        draft.end = text.value(start, depth)?;
        return Ok(draft);
    }
    draft.is_object = true;
    let mut unknown = Vec::new();
    let depth = depth + 1;
    let mut step = text.open(start, b'}', depth)?;
    draft.end = loop {
        let at = match step {
            ContainerStep::More(at) => at,
            ContainerStep::Done(end) => break end,
        };
        let key = text.key(at)?;
        let end = text.value(key.value_at, depth)?;
        let value = Span::new(key.value_at, end);
        let name = text.name(key);
        match known_part(name) {
            Some(CallKey::Id) => draft.id_twice |= draft.id.replace(value).is_some(),
            Some(CallKey::Version) => draft.other_twice |= draft.version.replace(value).is_some(),
            Some(CallKey::Method) => draft.other_twice |= draft.method.replace(value).is_some(),
            Some(CallKey::Params) => draft.other_twice |= draft.params.replace(value).is_some(),
            None => unknown.push(name),
        }
        step = text.more(end, b'}')?;
    };
    draft.other_twice |= unknown.len() > 1 && any_twice(&unknown);
    Ok(draft)
}

#[derive(Clone, Copy)]
enum CallKey {
    Version,
    Id,
    Method,
    Params,
}

#[inline]
fn known_part(key: &[u8]) -> Option<CallKey> {
    match key {
        b"jsonrpc" => Some(CallKey::Version),
        b"id" => Some(CallKey::Id),
        b"method" => Some(CallKey::Method),
        b"params" => Some(CallKey::Params),
        // What is unescaped has no escapes: this recurses once at most.
        _ if key.contains(&b'\\') => match unescape(key)? {
            Cow::Owned(name) if !name.contains('\\') => known_part(name.as_bytes()),
            Cow::Owned(_) | Cow::Borrowed(_) => None,
        },
        _ => None,
    }
}

/// Whether two of the keys read the same. Sorted, so that a body full of keys
/// costs no more than their number times its logarithm.
fn any_twice(keys: &[&[u8]]) -> bool {
    // Keys that are not UTF-8 drop out here, and with them the whole body a little later.
    let mut names: Vec<_> = keys.iter().filter_map(|key| unescape(key)).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

impl Draft {
    /// The id, if this looks like a call that has one. The encoding of the body may not have
    /// been checked yet.
    fn call_id(&self, body: &Bytes) -> Option<Bytes> {
        let byte = |span: Span| body[span.start as usize];
        let id = self.id.filter(|id| !matches!(byte(*id), b'{' | b'[' | b't' | b'f'))?;
        let is_call = self.method.is_some_and(|method| byte(method) == b'"')
            && self.version.is_none_or(|version| reads_2_0(version.of(body)))
            && !self.id_twice
            && !self.other_twice;
        (is_call && std::str::from_utf8(id.of(body)).is_ok()).then(|| id.bytes(body))
    }

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
        let method = if inner.of(body).contains(&b'\\') {
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
