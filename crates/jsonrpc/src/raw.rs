//! Looking into values whose JSON is already known to be valid: params that
//! [`crate::parse`] accepted, results and errors that [`crate::scan`] found.
//!
//! On other bytes these functions answer `None`, or end early; they never panic.
//! Each call walks from the start of its value: for more than a few fields of a
//! large object, deserialize it.

use std::borrow::Cow;

use crate::envelope::REPLY_DEPTH_MAX;
use crate::json::{ContainerStep, Stop, Text};
use crate::text::unescape;

/// The item at `index` of an array, as written.
#[must_use]
pub fn item(array: &[u8], index: usize) -> Option<&[u8]> {
    items(array).nth(index)
}

/// The items of an array, as written; none when it is not an array.
pub fn items(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = Text::of_upstream(array, REPLY_DEPTH_MAX);
    let mut next = first(&text, b'[', b']');
    std::iter::from_fn(move || {
        let start = next.take()?;
        let end = text.value(start, 1).ok()?;
        next = following(&text, end, b']');
        Some(text.slice(start, end))
    })
}

/// The members of an object: key with escapes undone, value as written; none
/// when it is not an object. Keys that are not UTF-8 are left out.
pub fn members(object: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, &[u8])> {
    let text = Text::of_upstream(object, REPLY_DEPTH_MAX);
    let mut next = first(&text, b'{', b'}');
    std::iter::from_fn(move || {
        while let Some(at) = next.take() {
            let key = text.key(at).ok()?;
            let end = text.value(key.value_at, 1).ok()?;
            next = following(&text, end, b'}');
            if let Some(name) = unescape(text.name(key)) {
                return Some((name, text.slice(key.value_at, end)));
            }
        }
        None
    })
}

/// Where the first item or key of the container stands, if this is one and it has any.
fn first(text: &Text<'_>, open: u8, close: u8) -> Option<usize> {
    let start = text.skip_space(0);
    if text.peek(start) != Some(open) {
        return None;
    }
    more(text.open(start, close, 1))
}

fn following(text: &Text<'_>, end: usize, close: u8) -> Option<usize> {
    more(text.more(end, close))
}

const fn more(step: Result<ContainerStep, Stop>) -> Option<usize> {
    match step {
        Ok(ContainerStep::More(at)) => Some(at),
        Ok(ContainerStep::Done(_)) | Err(Stop) => None,
    }
}

/// The value of `key` in an object, as written.
///
/// When the key stands there twice, the last one counts, as it does for geth and
/// in JavaScript: we must not see another block in a filter than the node will.
#[must_use]
pub fn field<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    members(object).filter(|(name, _)| name == key).last().map(|(_, value)| value)
}

/// What a JSON string says; `None` for other kinds. Half surrogate pairs become U+FFFD.
#[must_use]
pub fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    unescape(trim(value).strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

/// A number the way Ethereum writes it (`"0x1b4"`, leading zeros forgiven) or as a
/// plain JSON integer. `None` for other kinds, for `"0x"`, and beyond 64 bits.
#[must_use]
pub fn quantity(value: &[u8]) -> Option<u64> {
    let value = trim(value);
    if value.first()?.is_ascii_digit() {
        return digits(value, 10);
    }
    let text = string(value)?;
    digits(text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?.as_bytes(), 16)
}

fn digits(digits: &[u8], radix: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        let digit = char::from(digit).to_digit(radix)?;
        value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

/// Whether the value is `null`.
#[must_use]
pub fn is_null(value: &[u8]) -> bool {
    trim(value) == b"null"
}

/// The value without JSON white space around it.
#[must_use]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\n' | b'\r'] = value {
        value = rest;
    }
    value
}

/// The first value in `text`, as written, whatever follows it.
#[must_use]
pub fn leading(text: &[u8]) -> Option<&[u8]> {
    let text = Text::of_upstream(text, REPLY_DEPTH_MAX);
    let start = text.skip_space(0);
    let end = text.value(start, 1).ok()?;
    Some(text.slice(start, end))
}

/// The parts of a JSON-RPC error, as far as the upstream bothered to send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject<'a> {
    /// 0 when absent, not an integer, or beyond 64 bits.
    pub code: i64,
    /// Escapes undone. Empty when absent or `null`; other kinds as their JSON.
    pub message: Cow<'a, str>,
    /// As written; `None` when absent or `null`.
    pub data: Option<&'a [u8]>,
}

/// Reads an error value: what [`crate::ReplyOutcome::Error`] points at.
///
/// A bare string, which some gateways send, is taken as the message. `None` for
/// other kinds. As in [`field`], the last of equal keys counts.
#[must_use]
pub fn scan_error(raw: &[u8]) -> Option<ErrorObject<'_>> {
    let raw = trim(raw);
    if raw.first() == Some(&b'"') {
        return Some(ErrorObject { code: 0, message: string(raw)?, data: None });
    }
    if raw.first() != Some(&b'{') {
        return None;
    }
    let mut error = ErrorObject { code: 0, message: Cow::Borrowed(""), data: None };
    for (key, value) in members(raw) {
        match &*key {
            "code" => error.code = integer(value).unwrap_or(0),
            "message" => error.message = message(value),
            "data" => error.data = (!is_null(value)).then_some(value),
            _ => {}
        }
    }
    Some(error)
}

fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn message(value: &[u8]) -> Cow<'_, str> {
    if is_null(value) {
        return Cow::Borrowed("");
    }
    string(value).unwrap_or_else(|| String::from_utf8_lossy(value))
}
