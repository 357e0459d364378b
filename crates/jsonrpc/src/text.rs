//! From a string as it is written to what it says: undoing escapes.
//!
//! Works on the inside of strings that the scanner has accepted, and on half
//! surrogate pairs as well: each becomes U+FFFD, since an upstream's message
//! with one odd character is better than none.

use std::borrow::Cow;

/// What the inside of a JSON string says. `None` when it is not UTF-8, or not
/// the inside of a JSON string.
pub(crate) fn unescape(inner: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(inner).ok()?;
    let Some(mut backslash) = memchr::memchr(b'\\', inner) else {
        return Some(Cow::Borrowed(text));
    };
    let mut meaning = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (plain, escape) = rest.split_at(backslash);
        meaning.push_str(plain);
        let (character, length) = character(escape.as_bytes())?;
        meaning.push(character);
        rest = escape.get(length..)?;
        match memchr::memchr(b'\\', rest.as_bytes()) {
            Some(next) => backslash = next,
            None => break,
        }
    }
    meaning.push_str(rest);
    Some(Cow::Owned(meaning))
}

/// The character that an escape stands for, and the length of the escape.
fn character(escape: &[u8]) -> Option<(char, usize)> {
    let character = match escape.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return code_point(escape),
        _ => return None,
    };
    Some((character, 2))
}

fn code_point(escape: &[u8]) -> Option<(char, usize)> {
    let first = unit(escape)?;
    if let 0xD800..0xDC00 = first
        && let Some(second @ 0xDC00..0xE000) = escape.get(6..).and_then(unit)
    {
        let point = 0x1_0000 + ((u32::from(first) - 0xD800) << 10) + (u32::from(second) - 0xDC00);
        return Some((char::from_u32(point)?, 12));
    }
    Some((char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER), 6))
}

/// The sixteen bits of a `\uXXXX`.
fn unit(escape: &[u8]) -> Option<u16> {
    hex4(escape.strip_prefix(b"\\u")?.first_chunk()?)
}

/// Four hex digits, either case.
pub(crate) fn hex4(digits: &[u8; 4]) -> Option<u16> {
    digits.iter().try_fold(0, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | digit as u16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inner: &str, expected: Option<&str>) {
        assert_eq!(unescape(inner.as_bytes()).as_deref(), expected, "{inner}");
    }

    #[test]
    fn plain_text_is_borrowed() {
        let meaning = unescape(b"eth_call").expect("plain text");
        assert!(matches!(meaning, Cow::Borrowed("eth_call")));
    }
    #[test]
    fn short_escapes() {
        check(r#"a\"\\\/\b\f\n\r\tz"#, Some("a\"\\/\u{8}\u{c}\n\r\tz"));
    }
    #[test]
    fn code_points() {
        check(r"\u0065th\u005Fcall \u00e9 \u20AC \ud83d\ude00", Some("eth_call é € 😀"));
    }
    #[test]
    fn half_pairs_are_replaced() {
        check(r"a\ud800b", Some("a\u{fffd}b"));
        check(r"\udc00\ud800", Some("\u{fffd}\u{fffd}"));
        check(r"\ud800\u0041", Some("\u{fffd}A"));
        check(r"\ud800\ud83d\ude00", Some("\u{fffd}😀"));
    }
    #[test]
    fn what_is_no_string_says_nothing() {
        for inner in [r"\", r"\x", r"\u", r"\u12", r"\u12g4", "\\u12é4"] {
            check(inner, None);
        }
        assert_eq!(unescape(b"\xff"), None);
    }
}
