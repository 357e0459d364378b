//! HTTP/1.1 answers as bytes: heads, framing and chunks, without a socket.
//!
//! Strict where two readers could disagree about where an answer ends: what
//! follows would be taken for the next answer, that is for somebody else's.
//! Needs nothing of this crate, so that the fuzz target can include it; `h1`
//! moves the bytes.

use std::mem::MaybeUninit;

/// Bytes of one head. Real ones are below 8 KiB.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Header lines of one head.
const HEADERS_MAX: usize = 100;
/// Bytes of the line before a chunk: a size and extensions that nobody uses.
const CHUNK_LINE_MAX: usize = 256;
/// Hexadecimal digits of a chunk's size: 64 bits.
const CHUNK_DIGITS_MAX: usize = 16;
/// Bytes of all trailers after the last chunk.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// The bytes are not a HTTP/1.1 answer; says why, without quoting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// One complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head<'b> {
    /// Bytes up to and with the empty line.
    pub(crate) len: usize,
    pub(crate) status: u16,
    /// Where the body ends.
    pub(crate) framing: Framing,
    /// Whether the peer keeps the connection open.
    pub(crate) keeps_open: bool,
    pub(crate) retry_after: Option<&'b [u8]>,
    pub(crate) date: Option<&'b [u8]>,
    pub(crate) content_encoding: Option<&'b [u8]>,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// When the connection ends: nothing proves that it is whole but a clean end.
    UntilClose,
}

/// Reads the head at the start of `bytes`; `None` when more is needed.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, Malformed> {
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
        Ok(httparse::Status::Partial) => return Err(Malformed("the head is too long")),
        Err(error) => return Err(Malformed(words(error))),
    };
    if len > HEAD_BYTES_MAX {
        return Err(Malformed("the head is too long"));
    }
    let status = response.code.unwrap_or_default();
    if !(100..=999).contains(&status) {
        return Err(Malformed("the status is not one of HTTP's"));
    }
    let newest = response.version == Some(1);
    let mut read = Head {
        len,
        status,
        framing: Framing::UntilClose,
        keeps_open: newest,
        retry_after: None,
        date: None,
        content_encoding: None,
    };
    let (mut length, mut chunked, mut says_close) = (None, false, false);
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
                let number = number(value)?;
                once(&mut length, number, Malformed("more than one content-length"))?;
            }
            16 if is(name, "content-encoding") => {
                let twice = Malformed("more than one content-encoding");
                once(&mut read.content_encoding, value, twice)?;
            }
            17 if is(name, "transfer-encoding") => {
                if chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed("a transfer-encoding that was not asked for"));
                }
                chunked = true;
            }
            _ => {}
        }
    }
    read.keeps_open &= !says_close;
    read.framing = match (chunked, length) {
        (true, Some(_)) => return Err(Malformed("both a length and chunks")),
        (true, None) if !newest => return Err(Malformed("chunks in HTTP/1.0")),
        _ if matches!(status, 100..=199 | 204 | 304) => Framing::Length(0),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    read.keeps_open &= read.framing != Framing::UntilClose;
    Ok(Some(read))
}

fn is(name: &str, lower: &str) -> bool {
    name.eq_ignore_ascii_case(lower)
}

fn once<T>(place: &mut Option<T>, value: T, twice: Malformed) -> Result<(), Malformed> {
    place.replace(value).map_or(Ok(()), |_| Err(twice))
}

fn number(value: &[u8]) -> Result<u64, Malformed> {
    let digits = value.trim_ascii();
    if digits.is_empty() {
        return Err(Malformed("the content-length is empty"));
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = match digit {
            b'0'..=b'9' => u64::from(digit - b'0'),
            _ => return Err(Malformed("the content-length is not a number")),
        };
        let sum = sum.checked_mul(10).and_then(|sum| sum.checked_add(digit));
        sum.ok_or(Malformed("the content-length is out of range"))
    })
}

fn words(error: httparse::Error) -> &'static str {
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

/// Reads the framing of a chunked body; the data itself goes past it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunked {
    state: State,
    /// Bytes of the line, or of the trailers, so far.
    seen: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        size: u64,
        digits: usize,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataEnd,
    /// At the start of a line after the last chunk.
    Trailer,
    TrailerLine,
    TrailerLineEnd,
    /// Inside the empty line that ends everything.
    LastEnd,
    Ended,
}

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many bytes of data; tell [`Chunked::passed`] when they went by.
    Data(u64),
    /// More framing, which has not arrived yet.
    More,
    /// Nothing: the body is complete.
    End,
}

impl Chunked {
    pub(crate) fn new() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, seen: 0 }
    }

    /// Takes framing from the start of `bytes`; returns how much of them it was.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Next), Malformed> {
        for (at, byte) in bytes.iter().enumerate() {
            match self.state {
                State::Data { left } => return Ok((at, Next::Data(left))),
                State::Ended => return Ok((at, Next::End)),
                state => self.state = self.step(state, *byte)?,
            }
        }
        Ok((bytes.len(), self.next()))
    }

    /// `count` bytes of the announced data went by.
    pub(crate) fn passed(&mut self, count: u64) {
        if let State::Data { left } = self.state {
            let left = left.saturating_sub(count);
            self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
        }
    }

    fn next(&self) -> Next {
        match self.state {
            State::Data { left } => Next::Data(left),
            State::Ended => Next::End,
            _ => Next::More,
        }
    }

    fn step(&mut self, state: State, byte: u8) -> Result<State, Malformed> {
        const BAD_LINE: Malformed = Malformed("the line before a chunk is not valid");
        const BAD_TRAILER: Malformed = Malformed("the trailers are not valid");
        self.seen += 1;
        Ok(match state {
            State::Size { .. } | State::Extension { .. } if self.seen > CHUNK_LINE_MAX => {
                return Err(Malformed("the line before a chunk is too long"));
            }
            State::Trailer | State::TrailerLine if self.seen > TRAILER_BYTES_MAX => {
                return Err(Malformed("the trailers are too long"));
            }
            State::Size { size, digits } => match (char::from(byte).to_digit(16), byte) {
                (Some(_), _) if digits == CHUNK_DIGITS_MAX => {
                    return Err(Malformed("the size of a chunk is out of range"));
                }
                (Some(digit), _) => {
                    State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                (None, _) if digits == 0 => return Err(BAD_LINE),
                (None, b'\r') => State::SizeEnd { size },
                (None, b';' | b' ' | b'\t') => State::Extension { size },
                (None, _) => return Err(BAD_LINE),
            },
            State::Extension { size } => match byte {
                b'\r' => State::SizeEnd { size },
                b'\t' | 0x20..=0x7e | 0x80.. => State::Extension { size },
                _ => return Err(BAD_LINE),
            },
            State::SizeEnd { size } => {
                self.seen = 0;
                match (byte, size) {
                    (b'\n', 0) => State::Trailer,
                    (b'\n', left) => State::Data { left },
                    _ => return Err(BAD_LINE),
                }
            }
            State::DataReturn if byte == b'\r' => State::DataEnd,
            State::DataEnd if byte == b'\n' => {
                self.seen = 0;
                State::Size { size: 0, digits: 0 }
            }
            State::DataReturn | State::DataEnd => {
                return Err(Malformed("a chunk is longer than announced"));
            }
            State::Trailer if byte == b'\r' => State::LastEnd,
            State::Trailer | State::TrailerLine => match byte {
                b'\r' => State::TrailerLineEnd,
                b'\t' | 0x20..=0x7e | 0x80.. => State::TrailerLine,
                _ => return Err(BAD_TRAILER),
            },
            State::TrailerLineEnd if byte == b'\n' => State::Trailer,
            State::LastEnd if byte == b'\n' => State::Ended,
            State::TrailerLineEnd | State::LastEnd => return Err(BAD_TRAILER),
            // `advance` stops at these.
            State::Data { .. } | State::Ended => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(lines: &str) -> Result<(u16, Framing, bool), &'static str> {
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
            Err(Malformed(why)) => Err(why),
        }
    }

    #[test]
    fn heads_say_where_the_answer_ends() {
        use Framing::{Chunked, Length, UntilClose};
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
        assert_eq!(head(endless.as_bytes()), Err(Malformed("the head is too long")));
        let long = format!("HTTP/1.1 204 OK\r\na: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(head(long.as_bytes()), Err(Malformed("the head is too long")));
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

    /// The data of a chunked body that arrives in pieces of `size`, and what is
    /// left behind its end; `None` in place of the end when more is needed.
    fn unchunked(text: &str, size: usize) -> Result<(String, Option<usize>), &'static str> {
        let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
        for piece in text.as_bytes().chunks(size) {
            let mut rest = piece;
            loop {
                let (used, next) = chunked.advance(rest).map_err(|Malformed(why)| why)?;
                (rest, at) = (&rest[used..], at + used);
                match next {
                    Next::Data(0) => panic!("data of no length"),
                    Next::Data(left) => {
                        let some = (left as usize).min(rest.len());
                        data.extend_from_slice(&rest[..some]);
                        (rest, at) = (&rest[some..], at + some);
                        chunked.passed(some as u64);
                        if rest.is_empty() && some as u64 != left {
                            break;
                        }
                    }
                    Next::End => {
                        let data = String::from_utf8(data).expect("text");
                        return Ok((data, Some(text.len() - at)));
                    }
                    Next::More => {
                        assert!(rest.is_empty());
                        break;
                    }
                }
            }
        }
        Ok((String::from_utf8(data).expect("text"), None))
    }

    fn check_chunks(text: &str, expected: Result<(&str, Option<usize>), &'static str>) {
        let expected = expected.map(|(data, left)| (data.to_owned(), left));
        for size in 1..=text.len() {
            assert_eq!(unchunked(text, size), expected, "{text:?} by {size}");
        }
    }

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        check_chunks("0\r\n\r\n", Ok(("", Some(0))));
        check_chunks("3\r\nabc\r\n0\r\n\r\nrest", Ok(("abc", Some(4))));
        check_chunks(
            "3\r\nabc\r\n00b\r\n0123456789a\r\n0\r\n\r\n",
            Ok(("abc0123456789a", Some(0))),
        );
        check_chunks("A;x=\"y\"\r\n0123456789\r\n000;z\r\n\r\n", Ok(("0123456789", Some(0))));
        check_chunks("1 \r\na\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", Ok(("a", Some(0))));
        check_chunks("3\r\nab", Ok(("ab", None)));
        check_chunks("3\r\nabc\r\n", Ok(("abc", None)));
        check_chunks("3\r\nabc\r\n0\r\n", Ok(("abc", None)));
        check_chunks("3\r\nabc\r\n0\r\nx: y\r\n", Ok(("abc", None)));
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        const LINE: Result<(&str, Option<usize>), &str> =
            Err("the line before a chunk is not valid");
        check_chunks("xyz\r\n", LINE);
        check_chunks("\r\n", LINE);
        check_chunks(";x\r\n", LINE);
        check_chunks("-1\r\n", LINE);
        check_chunks("0x1\r\n", LINE);
        check_chunks("1\na\n", LINE);
        check_chunks("1\r\ra", LINE);
        check_chunks("1;\u{1}\r\n", LINE);
        check_chunks("11111111111111111\r\n", Err("the size of a chunk is out of range"));
        check_chunks("1\r\nab\r\n", Err("a chunk is longer than announced"));
        check_chunks("1\r\na\rb", Err("a chunk is longer than announced"));
        check_chunks("0\r\n\rx", Err("the trailers are not valid"));
        check_chunks("0\r\nx: y\n\r\n", Err("the trailers are not valid"));
        let line = format!("1;{}\r\n", "x".repeat(CHUNK_LINE_MAX));
        check_chunks(&line, Err("the line before a chunk is too long"));
        let trailers = format!("0\r\n{}", "x: y\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1));
        assert_eq!(unchunked(&trailers, 1000), Err("the trailers are too long"));
    }
}
