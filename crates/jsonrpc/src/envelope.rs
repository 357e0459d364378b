//! What an upstream answered: where the id is, where the result or the error.
//!
//! The whole text is validated, so that a reply that passed can be handed on as
//! bytes. Whether the answer is any good is `upstream`'s to judge; what can be
//! told before the text is complete, [`crate::scan_head`]'s.

use crate::error::ScanError;
use crate::json::{Flaw, Quoted, Scanner};
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
    pub outcome: Outcome,
}

/// The one thing a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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
    let mut scanner = begin(body)?;
    let found = match scanner.peek() {
        Some(b'{') => item(&mut scanner, 0),
        _ => scanner.value(0).map(|()| Found::default()),
    };
    let found = found.and_then(|found| scanner.finish().map(|()| found));
    found.map_err(|flaw| refuse(flaw, scanner.at))?.settle()
}

/// Reads the reply to a batch; the spans are relative to the whole body.
///
/// One bad reply spoils the batch: an upstream that gets one envelope wrong is
/// not to be trusted with the others. A single object, which is how upstreams
/// refuse a batch as a whole, is [`ScanError::NotAnArray`]: give it to [`scan`].
pub fn scan_batch(body: &[u8], items_max: usize) -> Result<Vec<Envelope>, ScanError> {
    let mut scanner = begin(body)?;
    if scanner.peek() != Some(b'[') {
        let whole = scanner.value(0).and_then(|()| scanner.finish());
        whole.map_err(|flaw| refuse(flaw, scanner.at))?;
        return Err(ScanError::NotAnArray);
    }
    let mut found = Vec::new();
    let read = items(&mut scanner, items_max, &mut found);
    if !read.map_err(|flaw| refuse(flaw, scanner.at))? {
        return Err(ScanError::TooManyItems);
    }
    found.into_iter().map(Found::settle).collect()
}

fn begin(body: &[u8]) -> Result<Scanner<'_>, ScanError> {
    if body.len() >= BODY_BYTES_MAX {
        return Err(ScanError::TooLarge);
    }
    let mut scanner = Scanner::of_upstream(body, REPLY_DEPTH_MAX);
    scanner.white_space();
    if scanner.peek().is_none() {
        return Err(ScanError::Empty);
    }
    Ok(scanner)
}

const fn refuse(flaw: Flaw, at: usize) -> ScanError {
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
    scanner: &mut Scanner<'_>,
    items_max: usize,
    found: &mut Vec<Found>,
) -> Result<bool, Flaw> {
    let mut more = scanner.open(b']', 1)?;
    while more {
        if found.len() >= items_max {
            return Ok(false);
        }
        if scanner.peek() == Some(b'{') {
            found.push(item(scanner, 1)?);
        } else {
            scanner.value(1)?;
            found.push(Found::default());
        }
        more = scanner.more(b']')?;
    }
    scanner.finish()?;
    Ok(true)
}

/// What an object turned out to hold.
#[derive(Default)]
struct Found {
    is_object: bool,
    id: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    result_is_null: bool,
    error_is_null: bool,
    twice: bool,
}

fn item(scanner: &mut Scanner<'_>, depth: usize) -> Result<Found, Flaw> {
    let mut found = Found { is_object: true, ..Found::default() };
    let depth = depth + 1;
    let mut more = scanner.open(b'}', depth)?;
    while more {
        let key = scanner.key()?;
        let at = scanner.at;
        let is_null = scanner.peek() == Some(b'n');
        scanner.value(depth)?;
        let value = Span::new(at, scanner.at);
        match known_key(scanner, key) {
            Some(Key::Id) => found.twice |= found.id.replace(value).is_some(),
            Some(Key::Result) => {
                found.twice |= found.result.replace(value).is_some();
                found.result_is_null = is_null;
            }
            Some(Key::Error) => {
                found.twice |= found.error.replace(value).is_some();
                found.error_is_null = is_null;
            }
            None => {}
        }
        more = scanner.more(b'}')?;
    }
    Ok(found)
}

/// The keys that matter in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Id,
    Result,
    Error,
}

#[inline]
pub(crate) fn known_key(scanner: &Scanner<'_>, key: Quoted) -> Option<Key> {
    let inner = scanner.slice(key.start, key.end);
    if key.escaped { key_named(unescape(inner)?.as_bytes()) } else { key_named(inner) }
}

#[inline]
fn key_named(name: &[u8]) -> Option<Key> {
    match name {
        b"id" => Some(Key::Id),
        b"result" => Some(Key::Result),
        b"error" => Some(Key::Error),
        _ => None,
    }
}

impl Found {
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
            (Some(result), None) => Outcome::Result(result),
            (None, Some(error)) => Outcome::Error(error),
            (Some(_), Some(_)) => return Err(ScanError::BothOutcomes),
            (None, None) => return Err(ScanError::NoOutcome),
        };
        Ok(Envelope { id: self.id, outcome })
    }
}
