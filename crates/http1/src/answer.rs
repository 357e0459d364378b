//! The head of an answer, and where its body ends.
//!
//! Strict where two readers could disagree about that: what follows would be taken
//! for the next answer, which belongs to another call.

use std::mem::MaybeUninit;

use crate::MalformedHttp;
use crate::field::{is, length, once, words};

/// Bytes of one head. Real ones are below 8 KiB.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Header lines of one head.
const HEADERS_MAX: usize = 100;

/// One complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'b> {
    /// Bytes up to and with the empty line.
    pub len: usize,
    /// From 100 to 999.
    pub status: u16,
    /// Where the body ends.
    pub framing: ResponseFraming,
    /// Whether the peer keeps the connection open.
    pub keeps_open: bool,
    /// As it came.
    pub retry_after: Option<&'b [u8]>,
    /// As it came.
    pub date: Option<&'b [u8]>,
    /// As it came; not more than one.
    pub content_encoding: Option<&'b [u8]>,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// When the connection ends: nothing proves that it is whole but a clean end.
    UntilClose,
}

/// Reads the head at the start of `bytes`; `None` when more is needed.
pub fn head(bytes: &[u8]) -> Result<Option<ResponseHead<'_>>, MalformedHttp> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    );
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(MalformedHttp("the head is too long")),
        Err(error) => return Err(MalformedHttp(words(error))),
    };
    if len > HEAD_BYTES_MAX {
        return Err(MalformedHttp("the head is too long"));
    }
    let status = response.code.unwrap_or_default();
    if !(100..=999).contains(&status) {
        return Err(MalformedHttp("the status is not one of HTTP's"));
    }
    let newest = response.version == Some(1);
    let mut read = ResponseHead {
        len,
        status,
        framing: ResponseFraming::UntilClose,
        keeps_open: newest,
        retry_after: None,
        date: None,
        content_encoding: None,
    };
    let (mut announced, mut chunked, mut says_close) = (None, false, false);
    for header in response.headers {
        let (name, value) = (header.name, header.value);
        match name.len() {
            4 if is(name, "date") => read.date = Some(value),
            10 if is(name, "connection") => {
                for word in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    says_close |= word.eq_ignore_ascii_case(b"close");
                    read.keeps_open |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            11 if is(name, "retry-after") => read.retry_after = Some(value),
            14 if is(name, "content-length") => {
                once(
                    &mut announced,
                    length(value)?,
                    MalformedHttp("more than one content-length"),
                )?;
            }
            16 if is(name, "content-encoding") => {
                let twice = MalformedHttp("more than one content-encoding");
                once(&mut read.content_encoding, value, twice)?;
            }
            17 if is(name, "transfer-encoding") => {
                if chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(MalformedHttp("a transfer-encoding that was not asked for"));
                }
                chunked = true;
            }
            _ => {}
        }
    }
    read.keeps_open &= !says_close;
    read.framing = match (chunked, announced) {
        (true, Some(_)) => return Err(MalformedHttp("both a length and chunks")),
        (true, None) if !newest => return Err(MalformedHttp("chunks in HTTP/1.0")),
        _ if matches!(status, 100..=199 | 204 | 304) => ResponseFraming::Length(0),
        (true, None) => ResponseFraming::Chunked,
        (false, Some(length)) => ResponseFraming::Length(length),
        (false, None) => ResponseFraming::UntilClose,
    };
    read.keeps_open &= read.framing != ResponseFraming::UntilClose;
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(lines: &str) -> Result<(u16, ResponseFraming, bool), &'static str> {
        let text = format!("{}\r\n\r\nrest", lines.replace('|', "\r\n"));
        match head(text.as_bytes()) {
            Ok(Some(head)) => {
                assert_eq!(&text.as_bytes()[head.len..], b"rest");
                for cut in 0..head.len {
                    assert_eq!(self::head(&text.as_bytes()[..cut]), Ok(None), "{lines} at {cut}");
                }
                Ok((head.status, head.framing, head.keeps_open))
            }
            Ok(None) => Err("more is needed"),
            Err(MalformedHttp(why)) => Err(why),
        }
    }

    #[test]
    fn heads_say_where_the_answer_ends() {
        use ResponseFraming::{Chunked, Length, UntilClose};
        for (lines, read) in [
            ("HTTP/1.1 200 OK|content-length: 7", (200, Length(7), true)),
            ("HTTP/1.1 200|Content-Length:7  ", (200, Length(7), true)),
            ("HTTP/1.1 200 OK|CONTENT-LENGTH: 0", (200, Length(0), true)),
            ("HTTP/1.1 503 |content-length: 18446744073709551615", (503, Length(u64::MAX), true)),
            ("HTTP/1.1 200 OK|transfer-encoding: Chunked", (200, Chunked, true)),
            ("HTTP/1.1 200 OK|x: y", (200, UntilClose, false)),
            ("HTTP/1.1 200 OK", (200, UntilClose, false)),
            ("HTTP/1.0 200 OK|content-length: 1", (200, Length(1), false)),
            ("HTTP/1.0 200 OK|content-length: 1|connection: Keep-Alive", (200, Length(1), true)),
            ("HTTP/1.1 200 OK|content-length: 1|connection: x, Close", (200, Length(1), false)),
            ("HTTP/1.1 200 OK|connection: close, keep-alive", (200, UntilClose, false)),
            (
                "HTTP/1.1 200 OK|content-length: 1|connection: keep-alive|connection: close",
                (200, Length(1), false),
            ),
            ("HTTP/1.1 204 No|content-length: 5", (204, Length(0), true)),
            ("HTTP/1.1 304 Not|transfer-encoding: chunked", (304, Length(0), true)),
            ("HTTP/1.1 100 Continue", (100, Length(0), true)),
        ] {
            assert_eq!(framed(lines), Ok(read), "{lines}");
        }
    }

    #[test]
    fn heads_that_could_be_read_in_two_ways_are_refused() {
        for (lines, why) in [
            ("SSH-2.0-OpenSSH_9.6", "the peer does not speak HTTP/1"),
            ("HTTP/2.0 200 OK", "the peer does not speak HTTP/1"),
            ("HTTP/1.1 20x OK", "the status line is not valid"),
            ("HTTP/1.1 099 OK", "the status is not one of HTTP's"),
            ("HTTP/1.1 200 OK|content-length: 1|content-length: 1", "more than one content-length"),
            ("HTTP/1.1 200 OK|content-length: 1, 1", "the content-length is not a number"),
            ("HTTP/1.1 200 OK|content-length: +1", "the content-length is not a number"),
            ("HTTP/1.1 200 OK|content-length: -1", "the content-length is not a number"),
            ("HTTP/1.1 200 OK|content-length: 0x1", "the content-length is not a number"),
            ("HTTP/1.1 200 OK|content-length:", "the content-length is empty"),
            (
                "HTTP/1.1 200 OK|content-length: 18446744073709551616",
                "the content-length is out of range",
            ),
            (
                "HTTP/1.1 200 OK|content-length: 1|transfer-encoding: chunked",
                "both a length and chunks",
            ),
            (
                "HTTP/1.1 204 OK|content-length: 1|transfer-encoding: chunked",
                "both a length and chunks",
            ),
            ("HTTP/1.0 200 OK|transfer-encoding: chunked", "chunks in HTTP/1.0"),
            (
                "HTTP/1.1 200 OK|transfer-encoding: gzip, chunked",
                "a transfer-encoding that was not asked for",
            ),
            (
                "HTTP/1.1 200 OK|transfer-encoding: chunked|transfer-encoding: chunked",
                "a transfer-encoding that was not asked for",
            ),
            (
                "HTTP/1.1 200 OK|transfer-encoding: identity",
                "a transfer-encoding that was not asked for",
            ),
            ("HTTP/1.1 200 OK|content-length : 1", "a header's name is not valid"),
            ("HTTP/1.1 200 OK| folded: 1", "a header's name is not valid"),
            ("HTTP/1.1 200 OK|a: \0", "a header's value is not valid"),
            (
                "HTTP/1.1 200 OK|content-encoding: gzip|content-encoding: gzip",
                "more than one content-encoding",
            ),
        ] {
            assert_eq!(framed(lines), Err(why), "{lines}");
        }
    }

    #[test]
    fn heads_are_bounded() {
        let many = |count: usize| framed(&format!("HTTP/1.1 204 OK{}", "|a: b".repeat(count)));
        assert!(many(HEADERS_MAX).is_ok());
        assert_eq!(many(HEADERS_MAX + 1), Err("too many headers"));
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(head(endless.as_bytes()), Err(MalformedHttp("the head is too long")));
        let long = format!("HTTP/1.1 204 OK\r\na: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(head(long.as_bytes()), Err(MalformedHttp("the head is too long")));
    }

    #[test]
    fn what_callers_decide_by_is_found() {
        let text =
            b"HTTP/1.1 429 Slow\r\nDate: d\r\nRETRY-AFTER: 7\r\ncontent-encoding: gzip\r\n\r\n";
        let head = head(text).expect("valid").expect("complete");
        assert_eq!(head.date, Some(&b"d"[..]));
        assert_eq!(head.retry_after, Some(&b"7"[..]));
        assert_eq!(head.content_encoding, Some(&b"gzip"[..]));
    }
}
