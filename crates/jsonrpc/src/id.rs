//! The position of the id in a call or a reply: for multiplexing many of them over one
//! connection.
//!
//! Looks no further than the id, and says nothing about the rest: a text that is broken
//! behind it still has one. Whether the reply is any good is told by [`crate::scan`].

use crate::envelope::{REPLY_DEPTH_MAX, ReplyKey, known_part};
use crate::json::{ContainerStep, Stop, Text};
use crate::span::{BODY_BYTES_MAX, Span};

/// Finds the id of one call or reply: the value of the first `id` of the outermost object,
/// of whatever kind it is. Ids inside params, results and errors are passed over.
///
/// `None` for a text without one, for a batch, and for what is no JSON as far as it had
/// to be read. Usually that is a few bytes; where the id comes last, it is all of it.
#[must_use]
pub fn scan_id(body: &[u8]) -> Option<Span> {
    if body.len() >= BODY_BYTES_MAX {
        return None;
    }
    usual_id(body).or_else(|| first_id(&Text::of_upstream(body, REPLY_DEPTH_MAX)).ok().flatten())
}

/// The id as we write it, and as geth, reth and erigon do. `None` says nothing.
fn usual_id(body: &[u8]) -> Option<Span> {
    const BEFORE_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    let rest = body.strip_prefix(BEFORE_ID)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let is_integer = digits == 1 || (digits > 1 && rest[0] != b'0');
    let is_whole = matches!(rest[digits], b',' | b'}');
    (is_integer && is_whole).then(|| Span::new(BEFORE_ID.len(), BEFORE_ID.len() + digits))
}

fn first_id(text: &Text<'_>) -> Result<Option<Span>, Stop> {
    let start = text.skip_space(0);
    if text.peek(start) != Some(b'{') {
        return Ok(None);
    }
    let mut step = text.open(start, b'}', 1)?;
    while let ContainerStep::More(at) = step {
        let key = text.key(at)?;
        let end = text.value(key.value_at, 1)?;
        // First, or half of a broken number would pass for one.
        step = text.more(end, b'}')?;
        if known_part(text.name(key)) == Some(ReplyKey::Id) {
            return Ok(Some(Span::new(key.value_at, end)));
        }
    }
    Ok(None)
}
