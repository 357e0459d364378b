//! What the first bytes of a reply already tell, so that the rest can stream.
//!
//! It promises nothing about bytes it has not seen: the value may be cut, broken
//! or contradicted by an `error` that follows the result. Whoever streams must
//! still follow the text to its end; [`crate::scan`] does when it is all there.

use crate::envelope::{Key, REPLY_DEPTH_MAX, known_key};
use crate::json::{Flaw, Scanner};
use crate::span::{BODY_BYTES_MAX, Span};

/// What is known of a reply from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
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
pub fn scan_head(prefix: &[u8]) -> Head {
    if prefix.len() >= BODY_BYTES_MAX {
        return Head::Unknown;
    }
    let mut scanner = Scanner::of_upstream(prefix, REPLY_DEPTH_MAX);
    match head(&mut scanner) {
        // What was passed over on the way must be text as well.
        Ok(head) if scanner.encoding().is_ok() => head,
        Err(Flaw::End) => Head::NeedMore,
        Ok(_) | Err(_) => Head::Unknown,
    }
}

fn head(scanner: &mut Scanner<'_>) -> Result<Head, Flaw> {
    scanner.white_space();
    match scanner.peek() {
        Some(b'{') => {}
        Some(_) => return Ok(Head::Unknown),
        None => return Ok(Head::NeedMore),
    }
    let mut id = None;
    let mut null_result_at = None;
    let mut null_error = false;
    let mut more = scanner.open(b'}', 1)?;
    while more {
        let key = known_key_at(scanner)?;
        let at = scanner.at;
        let first = scanner.peek().ok_or(Flaw::End)?;
        match key {
            Some(Key::Result) if first != b'n' => {
                return Ok(match first {
                    _ if null_result_at.is_some() => Head::Unknown,
                    b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' => {
                        Head::Result { id, value_at: at as u32 }
                    }
                    _ => Head::Unknown,
                });
            }
            Some(Key::Error) if first != b'n' => {
                return Ok(match first {
                    _ if null_error => Head::Unknown,
                    b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' => {
                        Head::Error { id, value_at: at as u32 }
                    }
                    _ => Head::Unknown,
                });
            }
            _ => scanner.value(1)?,
        }
        let twice = match key {
            Some(Key::Id) => id.replace(Span::new(at, scanner.at)).is_some(),
            Some(Key::Result) => null_result_at.replace(at).is_some(),
            Some(Key::Error) => std::mem::replace(&mut null_error, true),
            None => false,
        };
        if twice {
            return Ok(Head::Unknown);
        }
        more = scanner.more(b'}')?;
    }
    Ok(match null_result_at {
        Some(at) => Head::Result { id, value_at: at as u32 },
        None => Head::Unknown,
    })
}

#[inline]
fn known_key_at(scanner: &mut Scanner<'_>) -> Result<Option<Key>, Flaw> {
    let key = scanner.key()?;
    Ok(known_key(scanner, key))
}
