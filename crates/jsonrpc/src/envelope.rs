//! What an upstream answered: where the id is, where the result or the error.
//!
//! The whole text is validated, so that a reply that passed can be handed on as
//! bytes. Whether the answer is any good is `upstream`'s to judge; what can be
//! told before the text is complete, [`crate::scan_head`]'s.

use std::borrow::Cow;

use crate::error::ScanError;
use crate::json::{ContainerStep, Flaw, Stop, Text};
use crate::span::{BODY_BYTES_MAX, Span};
use crate::text::unescape;

/// Arrays and objects inside each other in one reply. A call trace nests twice
/// per EVM frame and the EVM allows 1024 frames; this leaves twice that room.
pub(crate) const REPLY_DEPTH_MAX: usize = 4096;

/// Where the parts of one reply are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The id's JSON; of whatever kind the upstream sent.
    pub id: Option<Span>,
    /// What it says.
    pub outcome: ReplyOutcome,
}

/// The one thing a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// The result's JSON, `null` included.
    Result(Span),
    /// The error's JSON: never `null`, but not always an object; see [`crate::scan_error`].
    Error(Span),
}

/// Reads one reply, its keys in any order, and validates all of its text.
///
/// Unknown keys are ignored. An `error` of `null` beside a result is no error,
/// and a result of `null` beside an error is no result: some upstreams write
/// both always. Replies nested deeper than 4096 levels are refused.
pub fn scan(body: &[u8]) -> Result<Envelope, ScanError> {
    let (text, start) = begin(body)?;
    let found = item(&text, start, 0).and_then(|found| {
        text.finish(found.end)?;
        Ok(found)
    });
    found.map_err(|Stop| refuse(&text))?.settle()
}

/// Reads the reply to a batch; the spans are relative to the whole body.
///
/// One bad reply spoils the batch: an upstream that gets one envelope wrong is
/// not to be trusted with the others. A single object, which is how upstreams
/// refuse a batch as a whole, is [`ScanError::NotAnArray`]: give it to [`scan`].
pub fn scan_batch(body: &[u8], items_max: usize) -> Result<Vec<Envelope>, ScanError> {
    let (text, start) = begin(body)?;
    if text.peek(start) != Some(b'[') {
        let whole = text.value(start, 0).and_then(|end| text.finish(end));
        whole.map_err(|Stop| refuse(&text))?;
        return Err(ScanError::NotAnArray);
    }
    let mut found = Vec::new();
    match items(&text, start, items_max, &mut found) {
        Ok(true) => found.into_iter().map(EnvelopeParts::settle).collect(),
        Ok(false) => Err(ScanError::TooManyItems),
        Err(Stop) => Err(refuse(&text)),
    }
}

fn begin(body: &[u8]) -> Result<(Text<'_>, usize), ScanError> {
    if body.len() >= BODY_BYTES_MAX {
        return Err(ScanError::TooLarge);
    }
    let text = Text::of_upstream(body, REPLY_DEPTH_MAX);
    let start = text.skip_space(0);
    if text.peek(start).is_none() {
        return Err(ScanError::Empty);
    }
    Ok((text, start))
}

#[cold]
const fn refuse(text: &Text<'_>) -> ScanError {
    let (at, flaw) = text.flaw();
    match flaw {
        Flaw::End => ScanError::Truncated,
        Flaw::TooDeep => ScanError::TooDeep,
        Flaw::Value
        | Flaw::Key
        | Flaw::Colon
        | Flaw::CommaOrBrace
        | Flaw::CommaOrBracket
        | Flaw::Number
        | Flaw::LeadingZero
        | Flaw::Literal
        | Flaw::Control
        | Flaw::Escape
        | Flaw::HexDigit
        | Flaw::Surrogate
        | Flaw::Encoding
        | Flaw::Trailing => ScanError::NotJson { at },
    }
}

/// Whether all the items, to the end of the text, are within the bound.
fn items(
    text: &Text<'_>,
    start: usize,
    items_max: usize,
    found: &mut Vec<EnvelopeParts>,
) -> Result<bool, Stop> {
    let mut step = text.open(start, b']', 1)?;
    let end = loop {
        let at = match step {
            ContainerStep::More(at) => at,
            ContainerStep::Done(end) => break end,
        };
        if found.len() >= items_max {
            return Ok(false);
        }
        let item = item(text, at, 1)?;
        step = text.more(item.end, b']')?;
        found.push(item);
    };
    text.finish(end)?;
    Ok(true)
}

/// What a value turned out to hold.
#[derive(Default)]
struct EnvelopeParts {
    end: usize,
    is_object: bool,
    id: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    result_is_null: bool,
    error_is_null: bool,
    twice: bool,
}

fn item(text: &Text<'_>, start: usize, depth: usize) -> Result<EnvelopeParts, Stop> {
    let mut found = EnvelopeParts::default();
    if text.peek(start) != Some(b'{') {
        found.end = text.value(start, depth)?;
        return Ok(found);
    }
    found.is_object = true;
    let depth = depth + 1;
    let mut step = text.open(start, b'}', depth)?;
    found.end = loop {
        let at = match step {
            ContainerStep::More(at) => at,
            ContainerStep::Done(end) => break end,
        };
        let key = text.key(at)?;
        let is_null = text.peek(key.value_at) == Some(b'n');
        let end = text.value(key.value_at, depth)?;
        let value = Span::new(key.value_at, end);
        match known_part(text.name(key)) {
            Some(ReplyKey::Id) => found.twice |= found.id.replace(value).is_some(),
            Some(ReplyKey::Result) => {
                found.twice |= found.result.replace(value).is_some();
                found.result_is_null = is_null;
            }
            Some(ReplyKey::Error) => {
                found.twice |= found.error.replace(value).is_some();
                found.error_is_null = is_null;
            }
            None => {}
        }
        step = text.more(end, b'}')?;
    };
    Ok(found)
}

/// The keys that matter in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKey {
    Id,
    Result,
    Error,
}

#[inline]
pub(crate) fn known_part(key: &[u8]) -> Option<ReplyKey> {
    match key {
        b"id" => Some(ReplyKey::Id),
        b"result" => Some(ReplyKey::Result),
        b"error" => Some(ReplyKey::Error),
        b"jsonrpc" => None,
        // What is unescaped has no escapes: this recurses once at most.
        _ if key.contains(&b'\\') => match unescape(key)? {
            Cow::Owned(name) if !name.contains('\\') => known_part(name.as_bytes()),
            Cow::Owned(_) | Cow::Borrowed(_) => None,
        },
        _ => None,
    }
}

impl EnvelopeParts {
    fn settle(self) -> Result<Envelope, ScanError> {
        if !self.is_object {
            return Err(ScanError::NotAnObject);
        }
        if self.twice {
            return Err(ScanError::DuplicateKey);
        }
        let error = self.error.filter(|_| !self.error_is_null);
        let result = self.result.filter(|_| error.is_none() || !self.result_is_null);
        let outcome = match (result, error) {
            (Some(result), None) => ReplyOutcome::Result(result),
            (None, Some(error)) => ReplyOutcome::Error(error),
            (Some(_), Some(_)) => return Err(ScanError::BothOutcomes),
            (None, None) => return Err(ScanError::NoOutcome),
        };
        Ok(Envelope { id: self.id, outcome })
    }
}
