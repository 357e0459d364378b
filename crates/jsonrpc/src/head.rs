//! What the first bytes of a reply already tell, so that the rest can stream.
//!
//! It promises nothing about bytes it has not seen: the value may be cut, broken
//! or contradicted by an `error` that follows the result. A caller that streams must
//! still follow the text to its end; [`crate::scan`] does when it is all there.

use crate::envelope::{REPLY_DEPTH_MAX, ReplyKey, known_part};
use crate::json::{ContainerStep, Flaw, Stop, Text};
use crate::span::{BODY_BYTES_MAX, Span};

/// What is known of a reply from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// A result has begun.
    Result {
        /// The id, if it came before.
        id: Option<Span>,
        /// The offset of the result's first byte.
        value_at: u32,
    },
    /// An error that is not `null` has begun.
    Error {
        /// The id, if it came before.
        id: Option<Span>,
        /// The offset of the error's first byte.
        value_at: u32,
    },
    /// Nothing wrong so far, but neither key has come yet.
    NeedMore,
    /// Not a reply as far as one can see: not an object, not JSON, a key twice,
    /// or neither result nor error. [`crate::scan`] on the whole says which.
    Unknown,
}

/// Reads as much of a reply as is needed to tell a result from an error.
///
/// A `null` decides nothing by itself, since some upstreams write
/// `"result":null` before an error: it counts when the object ends without one.
#[must_use]
pub fn scan_head(prefix: &[u8]) -> ReplyHead {
    if prefix.len() >= BODY_BYTES_MAX {
        return ReplyHead::Unknown;
    }
    if let Some(head) = usual_head(prefix) {
        return head;
    }
    let text = Text::of_upstream(prefix, REPLY_DEPTH_MAX);
    head(&text).unwrap_or_else(|Stop| match text.flaw() {
        (_, Flaw::End) => ReplyHead::NeedMore,
        _ => ReplyHead::Unknown,
    })
}

/// The head as geth, reth and erigon write it, for the integer ids that we send.
/// `None` says nothing: then the head is read in earnest.
fn usual_head(prefix: &[u8]) -> Option<ReplyHead> {
    const BEFORE_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    const BEFORE_RESULT: &[u8] = br#","result":"#;
    let rest = prefix.strip_prefix(BEFORE_ID)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let value = rest[digits..].strip_prefix(BEFORE_RESULT)?;
    let is_integer = digits == 1 || (digits > 1 && rest[0] != b'0');
    if !is_integer || !matches!(value.first()?, b'"' | b'{' | b'[') {
        return None;
    }
    let id = Span::new(BEFORE_ID.len(), BEFORE_ID.len() + digits);
    Some(ReplyHead::Result { id: Some(id), value_at: id.end + BEFORE_RESULT.len() as u32 })
}

fn head(text: &Text<'_>) -> Result<ReplyHead, Stop> {
    let start = text.skip_space(0);
    match text.peek(start) {
        Some(b'{') => {}
        Some(_) => return Ok(ReplyHead::Unknown),
        None => return Ok(ReplyHead::NeedMore),
    }
    let mut id = None;
    let mut null_result_at = None;
    let mut null_error = false;
    let mut step = text.open(start, b'}', 1)?;
    let end = loop {
        let at = match step {
            ContainerStep::More(at) => at,
            ContainerStep::Done(end) => break end,
        };
        let key = text.key(at)?;
        let at = key.value_at;
        let part = known_part(text.name(key));
        // Told before the value is read: more bytes must not change our mind.
        let twice = match part {
            Some(ReplyKey::Id) => id.is_some(),
            Some(ReplyKey::Result) => null_result_at.is_some(),
            Some(ReplyKey::Error) => null_error,
            None => false,
        };
        if twice {
            return Ok(ReplyHead::Unknown);
        }
        if let (Some(outcome @ (ReplyKey::Result | ReplyKey::Error)), Some(first)) =
            (part, text.peek(at))
            && first != b'n'
        {
            // What was passed over on the way must be text as well.
            text.encoding(at)?;
            let begins = matches!(first, b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f');
            let value_at = at as u32;
            return Ok(match outcome {
                ReplyKey::Result if begins => ReplyHead::Result { id, value_at },
                ReplyKey::Error if begins => ReplyHead::Error { id, value_at },
                ReplyKey::Id | ReplyKey::Result | ReplyKey::Error => ReplyHead::Unknown,
            });
        }
        let end = text.value(at, 1)?;
        match part {
            Some(ReplyKey::Id) => id = Some(Span::new(at, end)),
            Some(ReplyKey::Result) => null_result_at = Some(at),
            Some(ReplyKey::Error) => null_error = true,
            None => {}
        }
        step = text.more(end, b'}')?;
    };
    text.encoding(end)?;
    Ok(match null_result_at {
        Some(at) => ReplyHead::Result { id, value_at: at as u32 },
        None => ReplyHead::Unknown,
    })
}
