//! What heads of both directions have in common.

use crate::MalformedHttp;

/// Whether a header is called `lower`, a name of lower-case letters and dashes; upper case
/// counts as lower. `name` is a token, as the parser saw to: of the bytes in tokens only
/// letters become letters by this bit, and only a dash becomes a dash. Written without an
/// early end, so that it is a comparison of whole words.
#[inline]
pub(crate) fn is(name: &str, lower: &str) -> bool {
    const LOWER: u8 = 0x20;
    name.len() == lower.len()
        && name.bytes().zip(lower.bytes()).fold(0, |odd, (a, b)| odd | ((a | LOWER) ^ b)) == 0
}

pub(crate) fn once<T>(
    place: &mut Option<T>,
    value: T,
    twice: MalformedHttp,
) -> Result<(), MalformedHttp> {
    place.replace(value).map_or(Ok(()), |_| Err(twice))
}

/// A `Content-Length`: digits, nothing else.
pub(crate) fn length(value: &[u8]) -> Result<u64, MalformedHttp> {
    let digits = value.trim_ascii();
    if digits.is_empty() {
        return Err(MalformedHttp("the content-length is empty"));
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = match digit {
            b'0'..=b'9' => u64::from(digit - b'0'),
            _ => return Err(MalformedHttp("the content-length is not a number")),
        };
        let sum = sum.checked_mul(10).and_then(|sum| sum.checked_add(digit));
        sum.ok_or(MalformedHttp("the content-length is out of range"))
    })
}

/// What is wrong with a head, without quoting it.
pub(crate) fn words(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header's name is not valid",
        httparse::Error::HeaderValue => "a header's value is not valid",
        httparse::Error::NewLine => "a line of the head does not end well",
        httparse::Error::Status => "the status line is not valid",
        httparse::Error::Token => "the head is not valid",
        httparse::Error::TooManyHeaders => "too many headers",
        httparse::Error::Version => "the peer does not speak HTTP/1",
    }
}
